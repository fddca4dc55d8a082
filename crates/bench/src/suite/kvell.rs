//! What was measured of KVell: YCSB A, B, C, E and F, uniform and zipfian, and the production mix,
//! on both placements of engine `slab` in turn.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stratakv::{Engine, Level, Options, Placement};

use crate::environment::{Environment, StoreSettings};
use crate::load::{LoadOptions, load};
use crate::report::Report;
use crate::run::{RunOptions, run};
use crate::suite::subject::Stand;
use crate::target::{BenchError, Kind as TargetKind};
use crate::value::ValueSize;
use crate::{Distribution, Workload};

/// Version of the JSON's shape.
const SCHEMA: u32 = 1;
/// What the JSON names itself.
pub const SUITE: &str = "kvell";
/// Bytes of a record beside its value.
const RECORD_OVERHEAD_BYTES: u64 = 24 + 32;
/// Mean of [`ValueSize::Production`].
const PRODUCTION_BYTES_MEAN: u64 = 519;
/// With less, a store would have no room for its index and for buffers.
const MEMORY_BYTES_MIN: u64 = 32 << 20;

/// How much to measure.
#[derive(Clone, Debug)]
pub struct KvellOptions {
    /// Records of each store.
    pub records: u64,
    /// Length of values, but of the production mix.
    pub value_bytes: usize,
    /// Cap on the memory of each store; `None`: a third of the data, as in the paper.
    pub memory_bytes: Option<u64>,
    /// Workloads; the production mix has stores of its own.
    pub workloads: Vec<Workload>,
    /// Distributions.
    pub distributions: Vec<Distribution>,
    /// Placements, in this order in each round.
    pub placements: Vec<Placement>,
    /// Requests in flight.
    pub clients: usize,
    /// Threads that submit them; shards too.
    pub threads: usize,
    /// Requests in flight on the volumes.
    pub depth: u32,
    /// When writes are acknowledged.
    pub level: Level,
    /// What counts of each run.
    pub duration: Duration,
    /// What comes before.
    pub warm_up: Duration,
    /// How often; medians count.
    pub rounds: usize,
    /// Seed.
    pub seed: u64,
}

impl Default for KvellOptions {
    fn default() -> KvellOptions {
        KvellOptions {
            records: 100_000,
            value_bytes: 1024,
            memory_bytes: None,
            workloads: vec![Workload::A, Workload::B, Workload::C, Workload::E, Workload::F, Workload::Production],
            distributions: vec![Distribution::Uniform, Distribution::Zipfian],
            placements: vec![Placement::Packed, Placement::InPlace],
            clients: 64,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            depth: 128,
            level: Level::PowerLoss,
            duration: Duration::from_secs(3),
            warm_up: Duration::from_secs(1),
            rounds: 3,
            seed: 1,
        }
    }
}

impl KvellOptions {
    fn memory_bytes(&self, is_production: bool) -> u64 {
        let value_bytes = if is_production { PRODUCTION_BYTES_MEAN } else { self.value_bytes as u64 };
        let third = self.records * (value_bytes + RECORD_OVERHEAD_BYTES) / 3;
        self.memory_bytes.unwrap_or(third).max(MEMORY_BYTES_MIN)
    }

    fn value(&self, is_production: bool) -> ValueSize {
        if is_production { ValueSize::Production } else { ValueSize::Fixed(self.value_bytes) }
    }
}

/// One run of a workload on one store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreRun {
    /// The placement; in a comparison the store as its `--stores` names it.
    pub store: String,
    /// From 1.
    pub round: usize,
    /// What came out.
    pub report: Report,
}

/// The suite: every run, in their order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KvellReport {
    /// Version of this JSON's shape.
    pub schema: u32,
    /// `kvell`.
    pub suite: String,
    /// The runs.
    pub runs: Vec<StoreRun>,
}

/// Runs the suite in stores made below `directory`, and removed again. `watch` is told of each run.
///
/// # Errors
/// A store's own; a read that found no record.
pub fn run_kvell(
    directory: &Path,
    options: &KvellOptions,
    watch: &dyn Fn(&StoreRun),
) -> Result<KvellReport, BenchError> {
    let environment = Environment::here(Some(directory));
    let mut report = KvellReport { schema: SCHEMA, suite: SUITE.into(), runs: Vec::new() };
    // The production mix has records of its own lengths, so stores of its own.
    for is_production in [false, true] {
        let is_of = |workload: &&Workload| (**workload == Workload::Production) == is_production;
        let workloads: Vec<Workload> = options.workloads.iter().filter(is_of).copied().collect();
        if workloads.is_empty() {
            continue;
        }
        let make = |placement: &Placement| LoadedStore::make(directory, options, *placement, is_production);
        let stores: Vec<LoadedStore<'_>> = options.placements.iter().map(make).collect::<Result<_, _>>()?;
        for (workload, distribution) in
            workloads.iter().flat_map(|one| options.distributions.iter().map(move |of| (one, of)))
        {
            for round in 1..=options.rounds {
                for store in &stores {
                    let found = store.run(*workload, *distribution, round)?;
                    let found = Report { environment: Some(environment.clone()), ..found };
                    let run = StoreRun { store: store.name.to_owned(), round, report: found };
                    watch(&run);
                    report.runs.push(run);
                }
            }
        }
        stores.into_iter().try_for_each(|store| store.stand.close())?;
    }
    Ok(report)
}

/// A store that is loaded. All of them stay open; one at a time works.
struct LoadedStore<'a> {
    name: &'static str,
    stand: Stand,
    options: &'a KvellOptions,
    is_production: bool,
}

impl<'a> LoadedStore<'a> {
    fn make(
        directory: &Path,
        options: &'a KvellOptions,
        placement: Placement,
        is_production: bool,
    ) -> Result<LoadedStore<'a>, BenchError> {
        let opening = Options::new()
            .create_new(true)
            .engine(Engine::Slab)
            .placement(placement)
            .memory_bytes(options.memory_bytes(is_production))
            .shards(options.threads)
            .depth(options.depth)
            .level(options.level);
        let name = placement.name();
        let stand = Stand::make(name, directory, None, opening)?;
        let loading = LoadOptions {
            records: options.records,
            // As in the comparison with others: the volume has been overwritten once.
            overwrites: options.records,
            value: options.value(is_production),
            target: TargetKind::Embedded,
            // Nothing is measured yet, and it is synced before it is.
            level: Level::ProcessCrash,
            threads: 1,
            clients: options.clients.max(256),
            seed: options.seed,
        };
        load(Some(stand.store()?), &loading, &|_| {})?;
        stand.store()?.sync()?;
        Ok(LoadedStore { name, stand, options, is_production })
    }

    fn run(&self, workload: Workload, distribution: Distribution, round: usize) -> Result<Report, BenchError> {
        let KvellOptions { records, clients, threads, depth, level, duration, warm_up, seed, .. } = *self.options;
        let store = self.stand.store()?;
        let options = RunOptions {
            workload,
            distribution,
            records,
            hot_shard_percent: 0,
            value: self.options.value(self.is_production),
            target: TargetKind::Embedded,
            level,
            threads,
            clients,
            duration,
            warm_up,
            operations_max: None,
            seed: seed.wrapping_add(round as u64),
        };
        let mut report = run(Some(store), &options)?;
        // What this run leaves to do is not the next store's burden.
        store.sync()?;
        if report.missing > 0 {
            return Err(BenchError::Wrong(format!("{}: {} reads found no record", self.name, report.missing)));
        }
        if let Some(explanation) = &mut report.explanation {
            explanation.in_flight_max = f64::from(depth);
        }
        report.store = Some(StoreSettings::of(store, self.options.memory_bytes(self.is_production), depth));
        Ok(report)
    }
}

/// A line for each run.
impl fmt::Display for KvellReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<24}{:<10}{:>6}{:>14}{:>14}{:>10}{:>10}{:>10}",
            "workload", "store", "round", "operations/s", "slowest s", "CPU µs", "WA", "p99 µs"
        )?;
        for StoreRun { store, round, report } in &self.runs {
            let amplification = report.write_amplification().map_or("-".into(), |found| format!("{found:.2}"));
            let p99 = report.operations.iter().map(|one| one.latency_us_p99).fold(0.0, f64::max);
            writeln!(
                f,
                "{:<24}{store:<10}{round:>6}{:>14.0}{:>14}{:>10.1}{amplification:>10}{p99:>10.0}",
                format!("{} {}", report.workload, report.distribution),
                report.operations_per_s,
                report.operations_per_s_min,
                report.cpu_us_per_operation,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_placements_run_every_workload_and_nothing_is_left() {
        let place = tempfile::tempdir().expect("a directory");
        let options = KvellOptions {
            records: 500,
            value_bytes: 100,
            workloads: vec![Workload::A, Workload::Production],
            distributions: vec![Distribution::Zipfian],
            level: Level::ProcessCrash,
            duration: Duration::from_millis(1000),
            warm_up: Duration::ZERO,
            rounds: 1,
            ..KvellOptions::default()
        };
        let told = std::cell::Cell::new(0);
        let report = run_kvell(place.path(), &options, &|_| told.set(told.get() + 1)).expect("a run");
        let each: Vec<_> = report.runs.iter().map(|run| (run.report.workload.as_str(), run.store.as_str())).collect();
        assert_eq!(each, [("a", "packed"), ("a", "in_place"), ("production", "packed"), ("production", "in_place")]);
        assert_eq!(told.get(), 4);
        for StoreRun { report, .. } in &report.runs {
            assert!(report.operations_per_s > 0.0 && report.user_write_bytes_per_operation > 0.0, "{report:?}");
            assert!(report.environment.is_some() && report.explanation.is_some());
            // 50 % of values of 100 B and keys of 24 B, or 57 % of longer ones.
            let bytes = report.user_write_bytes_per_operation;
            let expected = if report.workload == "a" { 50.0..75.0 } else { 250.0..370.0 };
            assert!(expected.contains(&bytes), "{bytes}");
        }
        assert!(report.to_string().lines().count() == 5);
        assert_eq!(std::fs::read_dir(place.path()).expect("read").count(), 0);
    }

    #[test]
    fn memory_is_a_third_of_the_data_as_in_the_paper() {
        let options = KvellOptions { records: 4_000_000, ..KvellOptions::default() };
        assert_eq!(options.memory_bytes(false), 4_000_000 * 1080 / 3);
        assert_eq!(options.memory_bytes(true), 4_000_000 * 575 / 3);
        assert_eq!(KvellOptions { memory_bytes: Some(1), ..options }.memory_bytes(true), 32 << 20);
    }
}
