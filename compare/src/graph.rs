//! The graph workload over the stores, in turn, each in a process of its own: `--graph SCALE`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use stratakv::{Level, Placement};
use stratakv_base::quantity::format_bytes;
use stratakv_bench::BenchError;
use stratakv_bench::environment::Environment;
use stratakv_bench::graph::{GraphFacts, run_graph};
use stratakv_bench::page::{Page, of_phases};
use stratakv_bench::phase::PhaseReport;
use stratakv_bench::suite::{KvdkOptions, SuiteReport, write_table};

use crate::rocksdb::{Log, RocksDb, RocksDbGraph, Settings};
use crate::subject::{Means, Opened, Subject};

/// Those that can be equally durable on any medium: when the process dies nothing is lost, but for
/// RocksDB without a log, which is shown for what the log costs.
pub const SUBJECTS: [Subject; 5] = [
    Subject::Hash,
    Subject::Ours(Placement::InPlace, Level::ProcessCrash),
    Subject::Matrix,
    Subject::RocksDb { settings: Settings::Usual, sync: false },
    Subject::RocksDbWithoutLog,
];

/// One store, once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GraphJob {
    /// Name of a [`Subject`].
    subject: String,
    /// A directory that is not there yet.
    directory: PathBuf,
    /// As of `stratakv bench suite kvdk`.
    scale: f64,
    /// Cap of ours; cache and write buffers of RocksDB.
    memory_bytes: u64,
    seed: u64,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    phases: Vec<PhaseReport>,
    facts: GraphFacts,
}

impl GraphJob {
    /// Does it here, and prints what came of it as JSON.
    pub fn execute(&self) -> Result<(), String> {
        let said = |error: stratakv_bench::BenchError| format!("{}: {error}", self.subject);
        let subject: Subject = self.subject.parse()?;
        let options = KvdkOptions::at_scale(self.scale, self.seed);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        fs::create_dir_all(&self.directory).map_err(|error| format!("{}: {error}", self.directory.display()))?;
        let log = match subject {
            Subject::RocksDb { sync: true, .. } => Some(Log::Synchronous),
            Subject::RocksDb { sync: false, .. } => Some(Log::Written),
            Subject::RocksDbWithoutLog => Some(Log::None),
            _ => None,
        };
        let (phases, facts) = match log {
            Some(log) => {
                let db = RocksDb::open_buffered(&self.directory, self.memory_bytes, cores).map_err(said)?;
                run_graph(RocksDbGraph::new(db, log), &self.subject, &options.graph).map_err(said)?
            }
            None => {
                let (memory_bytes, region_bytes) = (self.memory_bytes, options.graph_region_bytes());
                // One thread writes: one shard spares `slab` agreement among shards.
                let (fast, fast_bytes) = (self.directory.join("pmem"), (region_bytes / 10).next_multiple_of(1 << 20));
                let means =
                    Means { fast, fast_bytes, memory_bytes, capacity_bytes: 0, region_bytes, clients: 1, cores: 1 };
                let opened = Opened::open(subject, &self.directory, &means).map_err(said)?;
                let (Opened::Ours(store, _) | Opened::Hash(store, _)) = &opened else {
                    return Err(format!("{}: the graph is not measured over it", self.subject));
                };
                let found = run_graph(store.clone(), &self.subject, &options.graph).map_err(said)?;
                opened.close().map_err(said)?;
                found
            }
        };
        println!("{}", serde_json::to_string(&Found { phases, facts }).map_err(|error| error.to_string())?);
        Ok(())
    }

    fn run(&self) -> Result<Found, String> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let job = serde_json::to_string(self).map_err(|error| error.to_string())?;
        let output = Command::new(program).arg("--graph-job").arg(job).stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("cannot start this program again: {error}"));
        let removed = fs::remove_dir_all(&self.directory);
        let output = output?;
        if !output.status.success() {
            return Err(format!("{}: the graph failed ({})", self.subject, output.status));
        }
        removed.map_err(|error| format!("cannot remove {}: {error}", self.directory.display()))?;
        serde_json::from_slice(&output.stdout).map_err(|error| format!("{}: an odd answer: {error}", self.subject))
    }
}

/// What came of all rounds.
#[derive(Debug)]
pub struct ComparedGraph {
    rounds: Vec<PhaseReport>,
    facts: GraphFacts,
    seed: u64,
}

impl ComparedGraph {
    /// A table of medians, and what `hash` is against each other store.
    pub fn text(&self) -> Result<String, String> {
        let medians = PhaseReport::medians(&self.rounds);
        let mut text = format!("graph of {} vertices and {} edges\n\n", self.facts.vertices, self.facts.edges);
        write_table(&mut text, &medians).map_err(|error| error.to_string())?;
        text.push('\n');
        text.push_str(&ratios(&medians));
        Ok(text)
    }

    /// The same as a report.
    pub fn page(&self, environment: Environment, memory_bytes: u64, scale: f64) -> Result<Page, BenchError> {
        let here = SuiteReport {
            seed: self.seed,
            threads: 1,
            graph: self.facts.clone(),
            durability: "when the process dies nothing is lost, but of RocksDB without a log".into(),
            environment: Some(environment),
            ..SuiteReport::here()
        };
        let mut context = here.context();
        context.title = "A graph in StrataKV and in RocksDB, as KVDK was measured".into();
        context.facts.retain(|(name, _)| !["records", "elements of the list"].contains(&name.as_str()));
        context.facts.push(("memory of each store".into(), format_bytes(memory_bytes)));
        context.facts.push(("scale".into(), scale.to_string()));
        context.ours =
            SUBJECTS.into_iter().filter(|subject| subject.is_ours()).map(|subject| subject.to_string()).collect();
        of_phases(&context, &self.rounds)
    }
}

/// All of `subjects`, `rounds` times.
pub fn compare(
    subjects: &[Subject],
    scale: f64,
    rounds: usize,
    memory_bytes: u64,
    seed: u64,
    folder: &Path,
) -> Result<ComparedGraph, String> {
    let (mut all, mut facts): (Vec<PhaseReport>, Option<GraphFacts>) = (Vec::new(), None);
    for _ in 0..rounds {
        for subject in subjects {
            let subject = subject.to_string();
            let directory = folder.join(&subject);
            let found = GraphJob { subject: subject.clone(), directory, scale, memory_bytes, seed }.run()?;
            if facts.as_ref().is_some_and(|facts| *facts != found.facts) {
                return Err(format!("{subject} found another graph than the stores before it: {:?}", found.facts));
            }
            facts = Some(found.facts);
            all.extend(found.phases);
        }
    }
    Ok(ComparedGraph { rounds: all, facts: facts.unwrap_or_default(), seed })
}

/// For each phase, how many times as many operations a second of processor the first store did as
/// each other one.
fn ratios(medians: &[PhaseReport]) -> String {
    let Some(first) = medians.first() else { return String::new() };
    let mut text = String::new();
    for ours in medians.iter().filter(|one| one.subject == first.subject) {
        let others = medians.iter().filter(|one| one.phase == ours.phase && one.subject != ours.subject);
        let others: Vec<String> = others
            .map(|other| {
                let wall = ours.operations_per_s / other.operations_per_s.max(1e-9);
                let cpu = ours.operations_per_cpu_s / other.operations_per_cpu_s.max(1e-9);
                format!("{wall:.1} (by processor time {cpu:.1}) × {}", other.subject)
            })
            .collect();
        text.push_str(&format!("{}, {}: {}\n", ours.phase, ours.subject, others.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_same_phase() {
        let one = |subject: &str, phase: &str, operations_per_s: f64| PhaseReport {
            subject: subject.into(),
            phase: phase.into(),
            operations_per_s,
            operations_per_cpu_s: operations_per_s * 2.0,
            ..PhaseReport::default()
        };
        let medians =
            [one("hash", "a", 90.0), one("hash", "b", 8.0), one("rocksdb", "a", 10.0), one("rocksdb", "b", 2.0)];
        let text = ratios(&medians);
        assert!(text.starts_with("a, hash: 9.0 (by processor time 9.0) × rocksdb\nb, hash: 4.0 "), "{text}");
    }
}
