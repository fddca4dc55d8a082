//! A directed graph in a key-value store, laid out as KVDK's graph store does it, and the work that
//! is measured on it.
//!
//! A vertex is a key, its properties the value. An edge is two keys, one from each of its ends, so
//! that either end finds it. The neighbours of a vertex are one value for each direction. Each edge
//! arrives alone: both lists are read from the store, grown by one, and written back in one batch
//! with the edge's keys; nothing is kept in memory between two edges.

mod packages;
mod rmat;
mod snap;
mod stores;
mod traverse;
mod workload;

use std::fmt;

use bytes::Bytes;

use crate::target::BenchError;

pub use packages::Packages;
pub use rmat::{Edges, Rmat};
pub use snap::edges_of_snap;
pub use stores::InMemory;
pub use traverse::Ranked;
pub use workload::{GraphFacts, GraphOptions, GraphSource, HOPS, run_graph};

/// Number of a vertex.
pub type Vertex = u32;

/// What a graph needs of a store. Several may read at once; one writes at a time, which `&mut` sees
/// to.
pub trait KeyValue {
    /// The value of a key; `None` if there is none.
    ///
    /// # Errors
    /// The store's own.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BenchError>;

    /// Sets all of these keys, or none.
    ///
    /// # Errors
    /// The store's own.
    fn write(&mut self, puts: &[(&[u8], &[u8])]) -> Result<(), BenchError>;
}

/// Which ends of edges a list of neighbours holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Where edges of the vertex lead to.
    Out,
    /// Where edges to the vertex come from.
    In,
}

/// Bytes of a vertex's number in a key or in a list.
const VERTEX_BYTES: usize = size_of::<Vertex>();

fn vertex_key(vertex: Vertex) -> [u8; 1 + VERTEX_BYTES] {
    tagged(b'v', vertex)
}

fn list_key(vertex: Vertex, direction: Direction) -> [u8; 1 + VERTEX_BYTES] {
    tagged(if direction == Direction::Out { b'o' } else { b'i' }, vertex)
}

/// `>` and the source first, or `<` and the destination first.
fn edge_key(tag: u8, first: Vertex, second: Vertex) -> [u8; 1 + 2 * VERTEX_BYTES] {
    let mut key = [tag; 1 + 2 * VERTEX_BYTES];
    key[1..=VERTEX_BYTES].copy_from_slice(&first.to_be_bytes());
    key[1 + VERTEX_BYTES..].copy_from_slice(&second.to_be_bytes());
    key
}

fn tagged(tag: u8, vertex: Vertex) -> [u8; 1 + VERTEX_BYTES] {
    let mut key = [tag; 1 + VERTEX_BYTES];
    key[1..].copy_from_slice(&vertex.to_be_bytes());
    key
}

/// A list of neighbours as it lies in the store, in the order in which their edges came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbours(Bytes);

impl Neighbours {
    /// Number of neighbours.
    pub fn len(&self) -> usize {
        self.0.len() / VERTEX_BYTES
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them once.
    pub fn iter(&self) -> impl Iterator<Item = Vertex> {
        self.0.chunks_exact(VERTEX_BYTES).filter_map(|bytes| Some(Vertex::from_be_bytes(bytes.try_into().ok()?)))
    }

    fn and(&self, vertex: Vertex) -> Vec<u8> {
        let mut longer = Vec::with_capacity(self.0.len() + VERTEX_BYTES);
        longer.extend_from_slice(&self.0);
        longer.extend_from_slice(&vertex.to_be_bytes());
        longer
    }
}

/// A graph in a store. Its keys begin with `v`, `>`, `<`, `o` and `i`: others may be beside them.
pub struct Graph<K> {
    store: K,
}

impl<K> fmt::Debug for Graph<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").finish_non_exhaustive()
    }
}

impl<K: KeyValue> Graph<K> {
    /// The graph that `store` holds.
    pub fn new(store: K) -> Graph<K> {
        Graph { store }
    }

    /// The store.
    pub fn store(&self) -> &K {
        &self.store
    }

    /// Sets the properties of a vertex. Edges do not need it.
    ///
    /// # Errors
    /// The store's own.
    pub fn put_vertex(&mut self, vertex: Vertex, properties: &[u8]) -> Result<(), BenchError> {
        self.store.write(&[(&vertex_key(vertex), properties)])
    }

    /// The properties of a vertex; `None` if they were never set.
    ///
    /// # Errors
    /// The store's own.
    pub fn vertex(&self, vertex: Vertex) -> Result<Option<Bytes>, BenchError> {
        self.store.get(&vertex_key(vertex))
    }

    /// Adds an edge, or gives one that is there other properties; whether it is new. Three reads
    /// and a batch of four keys (of two if it is not new); the lists of both ends are copied.
    ///
    /// # Errors
    /// The store's own; a list that is none.
    pub fn add_edge(&mut self, from: Vertex, to: Vertex, properties: &[u8]) -> Result<bool, BenchError> {
        let (forth, back) = (edge_key(b'>', from, to), edge_key(b'<', to, from));
        if self.store.get(&forth)?.is_some() {
            self.store.write(&[(&forth, properties), (&back, properties)])?;
            return Ok(false);
        }
        let out = self.neighbours(from, Direction::Out)?.and(to);
        let into = self.neighbours(to, Direction::In)?.and(from);
        self.store.write(&[
            (&forth, properties),
            (&back, properties),
            (&list_key(from, Direction::Out), &out),
            (&list_key(to, Direction::In), &into),
        ])?;
        Ok(true)
    }

    /// The properties of an edge, found from its source or, `In`, from its destination; `None` if
    /// there is no such edge.
    ///
    /// # Errors
    /// The store's own.
    pub fn edge(&self, from: Vertex, to: Vertex, seen_from: Direction) -> Result<Option<Bytes>, BenchError> {
        match seen_from {
            Direction::Out => self.store.get(&edge_key(b'>', from, to)),
            Direction::In => self.store.get(&edge_key(b'<', to, from)),
        }
    }

    /// The neighbours of a vertex, by one read; none of a vertex without edges in that direction.
    ///
    /// # Errors
    /// The store's own; a value under the list's key that is no list.
    pub fn neighbours(&self, vertex: Vertex, direction: Direction) -> Result<Neighbours, BenchError> {
        let bytes = self.store.get(&list_key(vertex, direction))?.unwrap_or_default();
        if !bytes.len().is_multiple_of(VERTEX_BYTES) {
            return Err(BenchError::Wrong(format!(
                "the list of neighbours of vertex {vertex} has {} bytes, not {VERTEX_BYTES} for each: something else has written the key \
                 {}; keep the graph in a store of its own",
                bytes.len(),
                list_key(vertex, direction).escape_ascii()
            )));
        }
        Ok(Neighbours(bytes))
    }
}

#[cfg(test)]
#[path = "../../tests/unit/graph.rs"]
mod tests;
