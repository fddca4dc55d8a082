//! One step of the comparison: a load or a run of one store, in a process of its own, so that no
//! store inherits another's memory, caches or threads, and so that its processor time, bytes and
//! peak memory are its own.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stratakv::Level;
use stratakv_bench::load::{LoadOptions, load_through};
use stratakv_bench::suite::matrixkv::{Fill, FillReport};
use stratakv_bench::usage::Usage;
use stratakv_bench::value::ValueSize;
use stratakv_bench::{BenchError, Distribution, Report, RunOptions, TargetKind, Workload, run_through};

use crate::subject::{DEPTH, Means, Opened, Subject};

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Name of a [`Subject`].
    pub subject: String,
    /// Its directory.
    pub directory: PathBuf,
    /// See [`Means`].
    pub memory_bytes: u64,
    /// See [`Means`].
    pub capacity_bytes: u64,
    /// See [`Means`].
    pub region_bytes: u64,
    /// See [`Means`].
    pub fast: PathBuf,
    /// See [`Means`].
    pub fast_bytes: u64,
    /// Requests in flight.
    pub clients: usize,
    /// Cores, shards, and threads that submit to ours.
    pub cores: usize,
    /// Records there are, or will be.
    pub records: u64,
    /// Length of values; 0 for the production mix.
    pub value_bytes: usize,
    /// Seed.
    pub seed: u64,
    /// What.
    pub task: Task,
}

/// What to do with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Write all records, then so many of them again.
    Load { overwrites: u64 },
    /// Run a workload.
    Run { workload: String, distribution: String, seconds: u64, warm_up: u64, operations_max: Option<u64> },
    /// Write as many records at random as there may be, as suite matrixkv does, until the store is
    /// settled.
    Fill { round: usize },
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    /// Of a run.
    pub report: Option<Report>,
    /// Of a fill.
    pub fill: Option<FillReport>,
    /// Time to open the store.
    pub open_s: f64,
    /// Time to load it.
    pub load_s: f64,
    /// Bytes sent to storage by all of the job.
    pub write_bytes: u64,
    /// Most memory the process had.
    pub memory_peak_bytes: u64,
    /// Bytes the directory takes.
    pub disk_bytes: u64,
    /// Of ours, by name: counters since it was opened, and gauges at the end.
    pub statistics: BTreeMap<String, u64>,
}

impl Job {
    /// Does it here.
    ///
    /// # Errors
    /// What the store says.
    pub fn execute(&self) -> Result<Done, BenchError> {
        let subject: Subject = self.subject.parse().map_err(BenchError::Wrong)?;
        let means = Means {
            memory_bytes: self.memory_bytes,
            capacity_bytes: self.capacity_bytes,
            region_bytes: self.region_bytes,
            clients: self.clients,
            cores: self.cores,
            fast: self.fast.clone(),
            fast_bytes: self.fast_bytes,
        };
        let started = std::time::Instant::now();
        // What is loaded is not measured, and is durable when the store is closed.
        let opened_as = match (&self.task, subject) {
            (Task::Load { .. }, Subject::Ours(placement, _)) => Subject::Ours(placement, Level::ProcessCrash),
            (Task::Load { .. }, Subject::RocksDb { settings, .. }) => Subject::RocksDb { settings, sync: false },
            (Task::Load { .. }, Subject::WiredTiger { .. }) => Subject::WiredTiger { sync: false },
            (Task::Load { .. }, Subject::Peer { peer, .. }) => Subject::Peer { peer, sync: false },
            (Task::Run { .. } | Task::Fill { .. }, subject)
            | (
                Task::Load { .. },
                subject @ (Subject::Hash
                | Subject::HashSorted
                | Subject::Matrix
                | Subject::RocksDbOverMemory { .. }
                | Subject::RocksDbWithoutLog),
            ) => subject,
        };
        let store = Opened::open(opened_as, &self.directory, &means)?;
        let mut done = Done { open_s: started.elapsed().as_secs_f64(), ..Done::default() };
        match &self.task {
            Task::Load { overwrites } => done.load_s = self.load(&store, *overwrites)?.as_secs_f64(),
            Task::Run { workload, distribution, seconds, warm_up, operations_max } => {
                let options = RunOptions {
                    workload: workload.parse().map_err(BenchError::Wrong)?,
                    distribution: distribution.parse().map_err(BenchError::Wrong)?,
                    operations_max: *operations_max,
                    ..self.run_options(*seconds, *warm_up)
                };
                let mut report = run_through(&store, &options)?;
                report.durability = subject.durability().into();
                report.store = Some(store.settings(subject, self.memory_bytes));
                if let Some(explanation) = &mut report.explanation {
                    explanation.in_flight_max = f64::from(DEPTH);
                }
                done.report = Some(report);
            }
            Task::Fill { round } => {
                let told = || store.statistics().get("write_bytes").copied().unwrap_or_default();
                let tells = store.statistics().contains_key("write_bytes");
                let told: Option<&dyn Fn() -> u64> = tells.then_some(&told);
                done.fill = Some(self.fill(*round, store.fast_memory(subject)).measure(&store, told)?);
            }
        }
        done.statistics = store.statistics();
        store.close()?;
        done.write_bytes = Usage::now().write_bytes;
        done.memory_peak_bytes = memory_peak_bytes();
        done.disk_bytes = disk_bytes(&self.directory);
        Ok(done)
    }

    fn value(&self) -> ValueSize {
        if self.value_bytes == 0 { ValueSize::Production } else { ValueSize::Fixed(self.value_bytes) }
    }

    fn load(&self, store: &Opened, overwrites: u64) -> Result<Duration, BenchError> {
        let options = LoadOptions {
            records: self.records,
            overwrites,
            value: self.value(),
            target: TargetKind::Embedded,
            level: Level::ProcessCrash,
            threads: 1,
            clients: self.clients,
            seed: self.seed,
        };
        load_through(store, &options, &|_| {})
    }

    fn fill(&self, round: usize, fast_memory: String) -> Fill {
        Fill {
            store: self.subject.clone(),
            fast_memory,
            value_bytes: self.value_bytes,
            round,
            records: self.records,
            clients: self.clients,
            threads: self.cores,
            seed: self.seed,
            quiet: Duration::from_secs(1),
        }
    }

    fn run_options(&self, seconds: u64, warm_up: u64) -> RunOptions {
        RunOptions {
            workload: Workload::A,
            distribution: Distribution::Uniform,
            hot_shard_percent: 0,
            records: self.records,
            value: self.value(),
            target: TargetKind::Embedded,
            level: Level::PowerLoss,
            threads: self.cores,
            clients: self.clients,
            duration: Duration::from_secs(seconds),
            warm_up: Duration::from_secs(warm_up),
            operations_max: None,
            seed: self.seed,
        }
    }

    /// Does it in a process of its own.
    ///
    /// # Errors
    /// It failed; what it said went to stderr.
    pub fn run(&self) -> Result<Done, String> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let job = serde_json::to_string(self).map_err(|error| error.to_string())?;
        let output = Command::new(program).arg("--job").arg(job).stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("cannot start this program again: {error}"))?;
        if !output.status.success() {
            // By the kernel, if its control group has no memory left.
            let is_killed = output.status.signal() == Some(9);
            let why = if is_killed { ": it may have taken more memory than --memory gives it" } else { "" };
            return Err(format!("{}: {:?} failed ({}){why}", self.subject, self.task, output.status));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| format!("{}: an odd answer: {error}", self.subject))
    }
}

fn memory_peak_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak =
        text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<u64>().ok());
    peak.unwrap_or_default() << 10
}

/// Blocks allocated, of the files in `directory` itself (no store here has folders).
fn disk_bytes(directory: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.blocks() * 512)).sum()
}
