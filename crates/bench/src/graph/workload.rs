//! The graph workload: load vertices and edges one at a time, search from a few vertices, rank all.

use std::cell::RefCell;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stratakv_base::random::Random;

use super::{Direction, Graph, KeyValue, Ranked, Rmat, Vertex};
use crate::phase::{Latencies, Meter, PhaseReport};
use crate::target::BenchError;
use crate::value::Values;

/// How far searches go: friends of friends of friends of friends, as in KVDK's measurement.
pub const HOPS: usize = 4;

/// Bytes of a vertex's properties.
const VERTEX_VALUE_BYTES: usize = 128;
/// Bytes of an edge's properties.
const EDGE_VALUE_BYTES: usize = 8;

/// Which graph, and what is asked of it.
#[derive(Clone, Debug)]
pub struct GraphOptions {
    /// The graph.
    pub source: GraphSource,
    /// Searches, each from a vertex of its own that has an edge.
    pub searches: usize,
    /// How many vertices the ranking keeps.
    pub top: usize,
    /// Seed of values and of where searches start.
    pub seed: u64,
}

/// Where edges come from.
#[derive(Clone, Debug)]
pub enum GraphSource {
    /// Drawn as they are needed.
    Rmat(Rmat),
    /// Read before.
    Listed(Vec<(Vertex, Vertex)>),
}

impl GraphSource {
    /// The numbers of vertices are below this.
    pub fn vertices(&self) -> Vertex {
        match self {
            GraphSource::Rmat(rmat) => rmat.vertices(),
            GraphSource::Listed(edges) => {
                edges.iter().map(|(from, to)| from.max(to).saturating_add(1)).max().unwrap_or_default()
            }
        }
    }

    /// How many edges there are, repeated ones counted.
    pub fn edges(&self) -> u64 {
        match self {
            GraphSource::Rmat(rmat) => rmat.edges(),
            GraphSource::Listed(edges) => edges.len() as u64,
        }
    }

    /// The edges, in order.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (Vertex, Vertex)> + '_> {
        match self {
            GraphSource::Rmat(rmat) => Box::new(rmat.iter()),
            GraphSource::Listed(edges) => Box::new(edges.iter().copied()),
        }
    }
}

/// What the graph turned out to be: the same in every store, or one of them is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphFacts {
    /// Vertices.
    pub vertices: u64,
    /// Edges that arrived.
    pub edges_offered: u64,
    /// Different ones among them.
    pub edges: u64,
    /// Of each search, where it began.
    pub starts: Vec<Vertex>,
    /// Of each search, how many vertices were reached first after 0, 1, .. edges.
    pub frontiers: Vec<Vec<u64>>,
    /// Vertices with the most edges that leave them.
    pub top: Vec<Ranked>,
}

/// Runs the workload in a store that holds no graph yet. Operations of the phases are vertices set,
/// edges added, lists of neighbours read by searches, and lists read to rank.
///
/// # Errors
/// The store's own.
pub fn run_graph(
    store: impl KeyValue,
    subject: &str,
    options: &GraphOptions,
) -> Result<(Vec<PhaseReport>, GraphFacts), BenchError> {
    let mut graph = Graph::new(Timed::new(store)?);
    let mut facts = GraphFacts { vertices: options.source.vertices().into(), ..GraphFacts::default() };
    let vertices = load_vertices(&mut graph, subject, options)?;
    let edges = load_edges(&mut graph, subject, options, &mut facts)?;
    let searches = search(&graph, subject, options, &mut facts)?;
    graph.store().restart()?;
    let meter = Meter::start();
    facts.top = graph.top_by_degree(0..options.source.vertices(), options.top, Direction::Out)?;
    let ranking = graph.store().finish(meter, subject, "graph top by degree");
    Ok((vec![vertices, edges, searches, ranking], facts))
}

fn load_vertices<K: KeyValue>(
    graph: &mut Graph<K>,
    subject: &str,
    options: &GraphOptions,
) -> Result<PhaseReport, BenchError> {
    let (values, mut random, mut value) = (Values::new(VERTEX_VALUE_BYTES), Random::new(options.seed), Vec::new());
    let mut latencies = Latencies::new()?;
    let vertices = options.source.vertices();
    let meter = Meter::start();
    for vertex in 0..vertices {
        values.make(vertex.into(), VERTEX_VALUE_BYTES, &mut random, &mut value);
        latencies.time(|| graph.put_vertex(vertex, &value))?;
    }
    Ok(meter.finish(subject, "graph vertices", vertices.into(), &latencies))
}

fn load_edges<K: KeyValue>(
    graph: &mut Graph<K>,
    subject: &str,
    options: &GraphOptions,
    facts: &mut GraphFacts,
) -> Result<PhaseReport, BenchError> {
    let mut latencies = Latencies::new()?;
    let meter = Meter::start();
    for (from, to) in options.source.iter() {
        let properties: [u8; EDGE_VALUE_BYTES] = facts.edges_offered.to_le_bytes();
        facts.edges += u64::from(latencies.time(|| graph.add_edge(from, to, &properties))?);
        facts.edges_offered += 1;
    }
    Ok(meter.finish(subject, "graph edges", facts.edges_offered, &latencies))
}

fn search<K: KeyValue>(
    graph: &Graph<Timed<K>>,
    subject: &str,
    options: &GraphOptions,
    facts: &mut GraphFacts,
) -> Result<PhaseReport, BenchError> {
    facts.starts = starts(graph, options)?;
    graph.store().restart()?;
    let meter = Meter::start();
    for start in &facts.starts {
        facts.frontiers.push(graph.frontiers(*start, HOPS, Direction::Out)?);
    }
    Ok(graph.store().finish(meter, subject, "graph search 4 hops"))
}

/// Different vertices that edges leave, drawn by the seed; fewer than asked if there are few.
fn starts<K: KeyValue>(graph: &Graph<K>, options: &GraphOptions) -> Result<Vec<Vertex>, BenchError> {
    let mut random = Random::new(options.seed ^ 0x57A7);
    let vertices = u64::from(options.source.vertices());
    let (mut starts, mut draws) = (Vec::new(), 0);
    while starts.len() < options.searches && draws < 100 * options.searches {
        draws += 1;
        let vertex = random.below(vertices) as Vertex;
        if !starts.contains(&vertex) && !graph.neighbours(vertex, Direction::Out)?.is_empty() {
            starts.push(vertex);
        }
    }
    Ok(starts)
}

/// A store whose reads are timed one by one.
struct Timed<K> {
    store: K,
    reads: RefCell<(u64, Latencies)>,
}

impl<K: KeyValue> Timed<K> {
    fn new(store: K) -> Result<Timed<K>, BenchError> {
        Ok(Timed { store, reads: RefCell::new((0, Latencies::new()?)) })
    }

    /// Forgets what was read so far.
    fn restart(&self) -> Result<(), BenchError> {
        self.reads.replace((0, Latencies::new()?));
        Ok(())
    }

    fn finish(&self, meter: Meter, subject: &str, phase: &str) -> PhaseReport {
        let (count, latencies) = &*self.reads.borrow();
        meter.finish(subject, phase, *count, latencies)
    }
}

impl<K: KeyValue> KeyValue for Timed<K> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BenchError> {
        let (count, latencies) = &mut *self.reads.borrow_mut();
        *count += 1;
        latencies.time(|| self.store.get(key))
    }

    fn write(&mut self, puts: &[(&[u8], &[u8])]) -> Result<(), BenchError> {
        self.store.write(puts)
    }
}
