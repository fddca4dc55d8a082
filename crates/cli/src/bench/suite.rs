//! `bench suite`: the measurements of the papers, over our engines.

mod kvell;
mod matrixkv;
mod ukv;

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use stratakv_base::quantity::parse_bytes;
use stratakv_bench::BenchError;
use stratakv_bench::graph::{GraphSource, Packages, edges_of_snap};
use stratakv_bench::suite::{KvdkOptions, Subject, run_kvdk};

use super::ground::Ground;
use super::report::{of_kvdk, write};
use super::{refuse_unwritable, write_json};
use crate::Output;
use crate::failure::Failure;

#[derive(Subcommand)]
pub(super) enum Suite {
    /// Strings, sorted collections, lists, and a graph: load, search, rank
    Kvdk(Kvdk),
    /// Random writes by length of values: throughput, each second of it, latency, write
    /// amplification
    Matrixkv(matrixkv::Matrixkv),
    /// YCSB A, B, C, E and F, uniform and zipfian, and the production mix, on both placements
    Kvell(kvell::Kvell),
    /// Gets and sets of servers, by length of values, from memory and from the SSD
    Ukv(ukv::Ukv),
}

/// Arguments of `bench suite kvdk`.
#[derive(Args)]
pub(super) struct Kvdk {
    /// How much of it: 1 is 3 million records and a graph of 2^20 vertices and 16 times as many
    /// edges
    #[arg(long, default_value_t = 0.0625, value_parser = parse_scale)]
    scale: f64,
    /// Where the stores are made, one at a time, and removed: a directory that is absent or empty.
    /// On tmpfs, memory is measured
    #[arg(long, value_name = "DIR", default_value = "./stratakv-bench")]
    data: PathBuf,
    /// What is measured; memory, a hash table without a store, in the graph only
    #[arg(long, value_enum, value_delimiter = ',', default_value = "hash,slab,matrix,memory")]
    stores: Vec<StoreArgument>,
    /// How often; medians are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// Threads of the phases on strings and on the sorted collection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    /// Instead of the drawn graph, edges from a file of lines `source<TAB>destination`, as SNAP
    /// gives them out
    #[arg(long, value_name = "FILE", conflicts_with = "packages")]
    edges: Option<PathBuf>,
    /// Instead of the drawn graph, dependencies of packages from a file such as
    /// /var/lib/dpkg/status, or the output of `apt-cache dumpavail`
    #[arg(long, value_name = "FILE")]
    packages: Option<PathBuf>,
    /// Length of the region of engine `hash` [default: fitted to the data]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    region: Option<u64>,
    /// Cap on the memory of each store
    #[arg(long, value_name = "BYTES", default_value = "4G", value_parser = parse_bytes)]
    memory: u64,
    /// Seed of keys, values, edges and choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the results as JSON here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a report here: one HTML file, with plots and every number
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StoreArgument {
    Hash,
    Slab,
    Matrix,
    Memory,
}

impl From<StoreArgument> for Subject {
    fn from(store: StoreArgument) -> Subject {
        match store {
            StoreArgument::Hash => Subject::Hash,
            StoreArgument::Slab => Subject::Slab,
            StoreArgument::Matrix => Subject::Matrix,
            StoreArgument::Memory => Subject::Memory,
        }
    }
}

fn parse_scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= 1000.0 => Ok(scale),
        _ => Err("a number above 0, at most 1000: 0.0625 is a sixteenth of the whole".into()),
    }
}

pub(super) fn run(suite: &Suite, output: &mut Output) -> Result<(), Failure> {
    match suite {
        Suite::Kvdk(kvdk) => run_kvdk_suite(kvdk, output),
        Suite::Matrixkv(matrixkv) => matrixkv::run(matrixkv, output),
        Suite::Kvell(kvell) => kvell::run(kvell, output),
        Suite::Ukv(ukv) => ukv::run(ukv, output),
    }
}

/// A directory for stores of the suite's own.
fn claim(path: &Path) -> Result<Ground, Failure> {
    if path.join("store.toml").exists() {
        return Err(Failure::usage(format!(
            "{} holds a store: the suite makes its own, so name a directory that is empty or does not exist",
            path.display()
        )));
    }
    Ground::claim(path, true, false)
}

fn run_kvdk_suite(kvdk: &Kvdk, output: &mut Output) -> Result<(), Failure> {
    refuse_unwritable(kvdk.json.as_deref().into_iter().chain(kvdk.report.as_deref()))?;
    let options = kvdk.options()?;
    let ground = claim(&kvdk.data)?;
    let report = run_kvdk(&kvdk.data, &options)?;
    ground.clear()?;
    write!(output, "{report}").map_err(Failure::output)?;
    if let Some(path) = &kvdk.json {
        write_json(path, &report)?;
    }
    kvdk.report.as_deref().map_or(Ok(()), |path| write(path, of_kvdk(&report)))
}

impl Kvdk {
    fn options(&self) -> Result<KvdkOptions, Failure> {
        let mut options = KvdkOptions {
            subjects: self.stores.iter().copied().map(Subject::from).collect(),
            threads: self.threads as usize,
            rounds: self.rounds as usize,
            region_bytes: self.region,
            memory_bytes: self.memory,
            ..KvdkOptions::at_scale(self.scale, self.seed)
        };
        let listed = match (&self.edges, &self.packages) {
            (Some(path), _) => Some((path, read(path, |text| edges_of_snap(text).collect())?)),
            (None, Some(path)) => Some((path, read(path, |text| Ok(Packages::read(text)?.edges))?)),
            (None, None) => None,
        };
        if let Some((path, edges)) = listed {
            if edges.is_empty() {
                return Err(Failure::usage(format!("{} has no edges: there is no graph to measure", path.display())));
            }
            options.graph.source = GraphSource::Listed(edges);
        }
        Ok(options)
    }
}

type EdgeList = Vec<(stratakv_bench::graph::Vertex, stratakv_bench::graph::Vertex)>;

fn read(path: &Path, parse: impl FnOnce(BufReader<File>) -> Result<EdgeList, BenchError>) -> Result<EdgeList, Failure> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| Failure::usage(format!("cannot read {shown}: {error}")))?;
    parse(BufReader::new(file)).map_err(|error| Failure::usage(format!("{shown}: {error}")))
}
