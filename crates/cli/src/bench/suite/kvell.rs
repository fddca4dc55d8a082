//! `bench suite kvell`: YCSB and the production mix on both placements of engine `slab`.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use stratakv::Level;
use stratakv_base::quantity::parse_bytes;
use stratakv_bench::page::claims::KVELL;
use stratakv_bench::suite::kvell::StoreRun;
use stratakv_bench::suite::{KvellOptions, run_kvell};
use stratakv_bench::{Distribution, Workload};

use super::claim;
use crate::Output;
use crate::bench::report::ReportArguments;
use crate::bench::{refuse_unwritable, write_json};
use crate::count::{parse_some, parse_usize};
use crate::failure::Failure;
use crate::opening::{DurabilityArguments, PlacementChoice};

/// Arguments of `bench suite kvell`.
#[derive(Args)]
pub(in crate::bench) struct Kvell {
    #[command(flatten)]
    size: SizeArguments,
    /// Where the stores are made, and removed: a directory that is absent or empty, on the disk to
    /// be measured
    #[arg(long, value_name = "DIR", default_value = "./stratakv-bench")]
    data: PathBuf,
    /// Workloads; production has stores of its own
    #[arg(long, value_delimiter = ',', default_value = "a,b,c,e,f,production")]
    workloads: Vec<Workload>,
    /// Distributions
    #[arg(long, value_delimiter = ',', default_value = "uniform,zipfian")]
    distributions: Vec<Distribution>,
    /// Placements, in turn
    #[arg(long, value_enum, value_delimiter = ',', default_value = "packed,in_place")]
    placements: Vec<PlacementChoice>,
    /// Requests in flight
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse_usize)]
    clients: usize,
    /// Seconds that count of each run; the fewest that show a slowest second are three
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Seconds before that
    #[arg(long, default_value_t = 1)]
    warm_up: u64,
    /// How often; medians are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    #[command(flatten)]
    durability: DurabilityArguments,
    /// Seed of keys, values and choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the results as JSON here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    report: ReportArguments,
}

/// How large the stores are.
#[derive(Args)]
struct SizeArguments {
    /// Records of each store; the paper has 100M
    #[arg(long, visible_alias = "keys", value_name = "N", default_value = "100K", value_parser = parse_some)]
    records: u64,
    /// Length of values in bytes; the production mix has its own
    #[arg(long, value_name = "BYTES", default_value = "1024", value_parser = parse_length)]
    value_size: usize,
    /// Cap on the memory of each store [default: a third of the data, as in the paper, at least
    /// 32M]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    memory: Option<u64>,
}

fn parse_length(text: &str) -> Result<usize, String> {
    match parse_bytes(text)? {
        bytes @ 1..=0x10_0000 => Ok(bytes as usize),
        bytes => Err(format!("{bytes} bytes: 1 B to 1 MiB")),
    }
}

pub(super) fn run(kvell: &Kvell, output: &mut Output) -> Result<(), Failure> {
    // What cannot be used is told before anything is measured.
    let beside = kvell.report.read_beside()?;
    refuse_unwritable(kvell.json.as_deref().into_iter().chain(kvell.report.path()))?;
    let options = kvell.options()?;
    let ground = claim(&kvell.data)?;
    let watch = |run: &StoreRun| {
        let StoreRun { store, round, report } = run;
        let (workload, distribution) = (&report.workload, &report.distribution);
        tracing::info!(store, round, workload, distribution, report.operations_per_s, "measured");
    };
    let report = run_kvell(&kvell.data, &options, &watch)?;
    ground.clear()?;
    write!(output, "{report}").map_err(Failure::output)?;
    if let Some(path) = &kvell.json {
        write_json(path, &report)?;
    }
    let ours = report.runs.iter().map(|run| (run.store.clone(), true, run.report.clone())).collect();
    kvell.report.write("YCSB and the production mix, as KVell was measured", ours, beside, KVELL)
}

impl Kvell {
    fn options(&self) -> Result<KvellOptions, Failure> {
        let placement = |choice: &PlacementChoice| {
            let why = "--placements: the suite measures both itself, so name in_place, packed, or both";
            choice.named().ok_or_else(|| Failure::usage(why))
        };
        let level = self.durability.level().unwrap_or(Level::PowerLoss);
        if level == Level::Memory {
            return Err(Failure::usage("--durability memory: engine `slab` has power_loss and process_crash"));
        }
        Ok(KvellOptions {
            records: self.size.records,
            value_bytes: self.size.value_size,
            memory_bytes: self.size.memory,
            workloads: self.workloads.clone(),
            distributions: self.distributions.clone(),
            placements: self.placements.iter().map(placement).collect::<Result<_, _>>()?,
            clients: self.clients,
            level,
            duration: Duration::from_secs(self.seconds),
            warm_up: Duration::from_secs(self.warm_up),
            rounds: self.rounds as usize,
            seed: self.seed,
            ..KvellOptions::default()
        })
    }
}
