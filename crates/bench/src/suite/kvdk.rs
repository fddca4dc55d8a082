//! What was measured of KVDK: its microbenchmark, and a graph.

use std::path::Path;

use crate::environment::Environment;
use crate::graph::{GraphFacts, GraphOptions, GraphSource, InMemory, Rmat, run_graph};
use crate::phase::PhaseReport;
use crate::suite::microbenchmark::{self, Extent};
use crate::suite::report::SuiteReport;
use crate::suite::subject::{Stand, StoreResources, Subject};
use crate::target::BenchError;

/// At scale 1: records of the microbenchmark.
const RECORDS: f64 = 3e6;
/// At scale 1: 2 to this power vertices.
const GRAPH_SCALE: f64 = 20.0;
/// Edges for each vertex.
const EDGE_FACTOR: u64 = 16;

/// How much to measure, and on what.
#[derive(Clone, Debug)]
pub struct KvdkOptions {
    /// Records of the strings and of the sorted collection.
    pub records: u64,
    /// Elements of the list.
    pub list_elements: u64,
    /// The graph.
    pub graph: GraphOptions,
    /// Stores, in this order in each round.
    pub subjects: Vec<Subject>,
    /// Threads of the phases on strings and on the sorted collection. The others have one.
    pub threads: usize,
    /// How often all of it is done; medians count.
    pub rounds: usize,
    /// Length of the region of engine `hash`; `None`: fitted to what goes into it.
    pub region_bytes: Option<u64>,
    /// Cap on the memory of each store.
    pub memory_bytes: u64,
    /// Seed of everything.
    pub seed: u64,
}

impl KvdkOptions {
    /// At scale 1: 3 million records of 128 B, a list of a tenth as many, a graph of 2^20 vertices
    /// and 16 times as many edges. The graph of other scales has the nearest power of two vertices,
    /// at least 16; at least 1000 records.
    pub fn at_scale(scale: f64, seed: u64) -> KvdkOptions {
        let records = (RECORDS * scale).max(1e3) as u64;
        let scale = (GRAPH_SCALE + scale.log2()).round().clamp(4.0, 31.0) as u32;
        let source = GraphSource::Rmat(Rmat { scale, edge_factor: EDGE_FACTOR, seed });
        KvdkOptions {
            records,
            list_elements: records / 10,
            graph: GraphOptions { source, searches: 8, top: 100, seed },
            subjects: vec![Subject::Hash, Subject::Slab, Subject::Matrix, Subject::Memory],
            threads: 1,
            rounds: 3,
            region_bytes: None,
            memory_bytes: 4 << 30,
            seed,
        }
    }

    /// Records of up to 256 B in the medium, twice, and elements; the rest is for what is freed
    /// late.
    fn micro_region_bytes(&self) -> u64 {
        (self.records * 640 + self.list_elements * 320).next_multiple_of(1 << 20) + (64 << 20)
    }

    /// Length of a region that the graph fits into, in bytes: an edge is two records of at most 128
    /// B and 4 B in each of two lists, which are laid down anew as they grow.
    pub fn graph_region_bytes(&self) -> u64 {
        let (vertices, edges) = (u64::from(self.graph.source.vertices()), self.graph.source.edges());
        (edges * 320 + vertices * 640).next_multiple_of(1 << 20) + (128 << 20)
    }

    fn means(&self, region_bytes: u64) -> StoreResources {
        let region_bytes = self.region_bytes.unwrap_or(region_bytes);
        StoreResources { region_bytes, memory_bytes: self.memory_bytes, shards: self.threads }
    }
}

/// Runs the suite in stores made below `directory`, one at a time, and removed again. Writes are
/// acknowledged at `process_crash`, so that any medium will do.
///
/// # Errors
/// A store's own; a store whose graph is another than that of the others.
pub fn run_kvdk(directory: &Path, options: &KvdkOptions) -> Result<SuiteReport, BenchError> {
    let environment = Environment::here(Some(directory));
    let (mut rounds, mut facts): (Vec<PhaseReport>, Option<(Subject, GraphFacts)>) = (Vec::new(), None);
    for _ in 0..options.rounds {
        for subject in &options.subjects {
            rounds.extend(run_microbenchmark(*subject, directory, options)?);
            let (phases, found) = run_graph_over(*subject, directory, options)?;
            rounds.extend(phases);
            match &facts {
                Some((first, facts)) if *facts != found => {
                    return Err(BenchError::Wrong(format!(
                        "the graph in `{subject}` is not that in `{first}`: {found:?} instead of {facts:?}"
                    )));
                }
                Some(_) => {}
                None => facts = Some((*subject, found)),
            }
        }
    }
    let facts = facts.map(|(_, facts)| facts).unwrap_or_default();
    Ok(SuiteReport::new(("kvdk", environment), options, facts, rounds))
}

fn run_microbenchmark(
    subject: Subject,
    directory: &Path,
    options: &KvdkOptions,
) -> Result<Vec<PhaseReport>, BenchError> {
    let means = options.means(options.micro_region_bytes());
    let Some(stand) = Stand::open(subject, directory, means)? else { return Ok(Vec::new()) };
    let KvdkOptions { records, list_elements, threads, seed, .. } = *options;
    let extent = Extent { records, list_elements, threads, seed };
    let phases = microbenchmark::run(stand.store()?, &subject.to_string(), extent)?;
    stand.close()?;
    Ok(phases)
}

fn run_graph_over(
    subject: Subject,
    directory: &Path,
    options: &KvdkOptions,
) -> Result<(Vec<PhaseReport>, GraphFacts), BenchError> {
    let (name, means) = (subject.to_string(), options.means(options.graph_region_bytes()));
    let Some(stand) = Stand::open(subject, directory, means)? else {
        return run_graph(InMemory::default(), &name, &options.graph);
    };
    let outcome = run_graph(stand.store()?.clone(), &name, &options.graph)?;
    stand.close()?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> KvdkOptions {
        KvdkOptions { rounds: 2, threads: 2, memory_bytes: 64 << 20, ..KvdkOptions::at_scale(1e-9, 1) }
    }

    #[test]
    fn scale_one_is_what_it_says() {
        let options = KvdkOptions::at_scale(1.0, 1);
        assert!(options.graph.source.vertices() >= 1_000_000 && options.graph.source.edges() >= 16_000_000);
        assert_eq!((options.records, options.list_elements), (3_000_000, 300_000));
        let sixteenth = KvdkOptions::at_scale(1.0 / 16.0, 1);
        assert_eq!((sixteenth.graph.source.vertices(), sixteenth.records), (1 << 16, 187_500));
    }

    #[test]
    fn every_phase_is_measured_over_every_store_and_nothing_is_left() {
        let place = tempfile::tempdir().expect("a directory");
        let report = run_kvdk(place.path(), &tiny()).expect("a run");
        assert_eq!(report.phases.len(), 3 * 13 + 4);
        assert_eq!(report.each_round.len(), 2 * report.phases.len());
        for subject in ["hash", "slab", "matrix"] {
            let of = report.phases.iter().filter(|one| one.subject == subject);
            let operations: Vec<u64> = of.map(|one| one.operations).collect();
            assert_eq!(operations[..9], [1000, 1000, 1000, 1000, 1000, 1000, 1000, 100, 100], "{subject}");
            assert_eq!((operations[9], operations[10], operations[12]), (16, 256, 16), "{subject}");
        }
        assert!(report.phases.iter().all(|one| one.operations_per_s > 0.0 && one.latency_us_p50 > 0.0));
        let shown = report.to_string();
        assert!(shown.contains("strings 90/10") && shown.contains("graph search 4 hops"), "{shown}");
        assert_eq!(std::fs::read_dir(place.path()).expect("read").count(), 0);
    }

    #[test]
    fn a_store_that_is_too_small_says_so_and_is_removed() {
        let place = tempfile::tempdir().expect("a directory");
        let options = KvdkOptions { records: 100_000, region_bytes: Some(8 << 20), ..tiny() };
        let told = run_kvdk(place.path(), &options).expect_err("too small").to_string();
        assert!(told.contains("full") || told.contains("room"), "{told}");
        assert_eq!(std::fs::read_dir(place.path()).expect("read").count(), 0);
    }
}
