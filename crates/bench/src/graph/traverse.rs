//! Friends of friends by breadth-first search, and the vertices with the most neighbours.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Direction, Graph, KeyValue, Vertex};
use crate::target::BenchError;

/// A vertex by its degree; of equal degree, the lower number is more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Ranked {
    /// How many neighbours.
    pub degree: u64,
    /// Whose, with the order turned round.
    pub vertex: Reverse<Vertex>,
}

/// Which vertices were seen: a bit each, up to the highest.
#[derive(Default)]
struct Seen(Vec<u64>);

impl Seen {
    /// Whether it is new.
    fn insert(&mut self, vertex: Vertex) -> bool {
        let (word, bit) = (vertex as usize / 64, 1 << (vertex % 64));
        if word >= self.0.len() {
            self.0.resize((word + 1).next_power_of_two(), 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }
}

impl<K: KeyValue> Graph<K> {
    /// How many vertices are reached first after 0, 1, .. `hops` edges from `start`; ends early
    /// where no further ones are. A read for each vertex reached but those of the last hop. Memory:
    /// the frontier, and a bit for each vertex up to the highest seen.
    ///
    /// # Errors
    /// As [`Graph::neighbours`].
    pub fn frontiers(&self, start: Vertex, hops: usize, direction: Direction) -> Result<Vec<u64>, BenchError> {
        let mut seen = Seen::default();
        seen.insert(start);
        let (mut frontier, mut sizes) = (vec![start], vec![1]);
        for _ in 0..hops {
            let mut next = Vec::new();
            for vertex in frontier {
                let neighbours = self.neighbours(vertex, direction)?;
                next.extend(neighbours.iter().filter(|neighbour| seen.insert(*neighbour)));
            }
            if next.is_empty() {
                break;
            }
            sizes.push(next.len() as u64);
            frontier = next;
        }
        Ok(sizes)
    }

    /// The `count` vertices with the most neighbours among `vertices`, the first the highest; fewer
    /// if fewer have any. One read for each vertex, and a heap of `count`.
    ///
    /// # Errors
    /// As [`Graph::neighbours`].
    pub fn top_by_degree(
        &self,
        vertices: impl IntoIterator<Item = Vertex>,
        count: usize,
        direction: Direction,
    ) -> Result<Vec<Ranked>, BenchError> {
        // The least of the best is on top, so that it is the one that a better one replaces.
        let mut best = BinaryHeap::with_capacity(count + 1);
        for vertex in vertices {
            let degree = self.neighbours(vertex, direction)?.len() as u64;
            if degree == 0 {
                continue;
            }
            best.push(Reverse(Ranked { degree, vertex: Reverse(vertex) }));
            if best.len() > count {
                best.pop();
            }
        }
        Ok(best.into_sorted_vec().into_iter().map(|Reverse(ranked)| ranked).collect())
    }
}
