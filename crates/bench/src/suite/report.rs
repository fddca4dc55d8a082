//! What a suite measured, for people and as JSON.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::environment::{DEBUG_BUILD, Environment, cpu_model, read_line};
use crate::graph::GraphFacts;
use crate::page::PhasesContext;
use crate::phase::PhaseReport;
use crate::suite::kvdk::KvdkOptions;
use crate::suite::subject::Subject;

/// A suite: what was asked, where it ran, what came out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SuiteReport {
    /// Version of this JSON's shape.
    pub schema: u32,
    /// Whose measurements are repeated.
    pub suite: String,
    /// Durability level of writes.
    pub durability: String,
    /// Records of the strings and of the sorted collection.
    pub records: u64,
    /// Elements of the list.
    pub list_elements: u64,
    /// Threads of the phases on strings and on the sorted collection.
    pub threads: usize,
    /// How often all of it was done.
    pub rounds: usize,
    /// Seed.
    pub seed: u64,
    /// CPU model.
    pub cpu: String,
    /// Cores.
    pub cores: usize,
    /// Kernel.
    pub kernel: String,
    /// Version of this program.
    pub version: String,
    /// Where and how it was measured; `None` in reports of earlier versions.
    #[serde(default)]
    pub environment: Option<Environment>,
    /// What the graph was found to be, the same in every store.
    pub graph: GraphFacts,
    /// Medians over the rounds, by store and phase.
    pub phases: Vec<PhaseReport>,
    /// Every round by itself.
    pub each_round: Vec<PhaseReport>,
}

impl SuiteReport {
    /// With the medians of `rounds`.
    pub(super) fn new(
        (suite, environment): (&str, Environment),
        options: &KvdkOptions,
        graph: GraphFacts,
        rounds: Vec<PhaseReport>,
    ) -> SuiteReport {
        SuiteReport {
            suite: suite.to_owned(),
            durability: stratakv::Level::ProcessCrash.name().into(),
            records: options.records,
            list_elements: options.list_elements,
            threads: options.threads,
            rounds: options.rounds,
            seed: options.seed,
            environment: Some(environment),
            graph,
            phases: PhaseReport::medians(&rounds),
            each_round: rounds,
            ..SuiteReport::here()
        }
    }

    /// With nothing measured yet, on this machine.
    pub fn here() -> SuiteReport {
        SuiteReport {
            schema: 1,
            cpu: cpu_model(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: read_line("/proc/sys/kernel/osrelease"),
            version: env!("CARGO_PKG_VERSION").into(),
            ..SuiteReport::default()
        }
    }
}

impl SuiteReport {
    /// What its page says beside the phases.
    pub fn context(&self) -> PhasesContext {
        let here = self.environment.clone().unwrap_or_default();
        let facts = [
            ("durability", self.durability.clone()),
            ("records", self.records.to_string()),
            ("elements of the list", self.list_elements.to_string()),
            ("graph", format!("{} vertices, {} edges", self.graph.vertices, self.graph.edges)),
            ("length of values", "128 B".into()),
            ("threads", self.threads.to_string()),
            ("seed", self.seed.to_string()),
            ("machine", format!("{}, {} cores", self.cpu, self.cores)),
            ("memory of the machine", stratakv_base::quantity::format_bytes(here.machine_memory_bytes)),
            ("kernel", self.kernel.clone()),
            ("file system", here.file_system.clone()),
            ("device", here.device),
            ("version", self.version.clone()),
            ("commit", here.commit),
            ("build", here.build.clone()),
            ("date", here.date),
            ("command", here.command.join(" ")),
        ];
        let shown = |(name, words): (&str, String)| {
            (name.to_owned(), if words.is_empty() { "not known".to_owned() } else { words })
        };
        let mut notes = vec![
            "A batch of `slab` survives a power cut, so that adding an edge costs it several flushes: that is its price, not \
             an unequal medium."
                .to_owned(),
        ];
        notes.extend((here.build == "debug").then(|| DEBUG_BUILD.to_owned()));
        if here.file_system == "tmpfs" {
            notes.push("Measured on tmpfs: memory, whose write bandwidth persistent memory does not have.".into());
        }
        PhasesContext {
            title: "Strings, sorted collections, lists and a graph, as KVDK was measured".into(),
            facts: facts.into_iter().map(shown).collect(),
            notes,
            ours: vec![Subject::Hash.to_string()],
        }
    }
}

/// Phases below one another, the stores of each phase together.
pub fn write_table(f: &mut impl fmt::Write, phases: &[PhaseReport]) -> fmt::Result {
    writeln!(
        f,
        "{:<22}{:<24}{:>12}{:>12}{:>14}{:>10}{:>10}{:>10}",
        "phase", "store", "operations", "per s", "per CPU-s", "p50 µs", "p99 µs", "p99.9 µs"
    )?;
    let mut names: Vec<&str> = Vec::new();
    for one in phases {
        if !names.contains(&one.phase.as_str()) {
            names.push(&one.phase);
        }
    }
    for name in names {
        for one in phases.iter().filter(|one| one.phase == name) {
            writeln!(
                f,
                "{:<22}{:<24}{:>12}{:>12.0}{:>14.0}{:>10.2}{:>10.2}{:>10.2}",
                one.phase,
                one.subject,
                one.operations,
                one.operations_per_s,
                one.operations_per_cpu_s,
                one.latency_us_p50,
                one.latency_us_p99,
                one.latency_us_p99_9
            )?;
        }
    }
    Ok(())
}

impl fmt::Display for SuiteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "suite {}, {}, {} records, {} threads, medians of {} rounds",
            self.suite, self.durability, self.records, self.threads, self.rounds
        )?;
        let graph = &self.graph;
        writeln!(f, "graph: {} vertices, {} edges of {} that came", graph.vertices, graph.edges, graph.edges_offered)?;
        for (start, sizes) in graph.starts.iter().zip(&graph.frontiers) {
            writeln!(f, "  from vertex {start}, reached after 0, 1, .. edges: {sizes:?}")?;
        }
        if let Some(first) = graph.top.first() {
            writeln!(f, "  most edges: vertex {} with {}", first.vertex.0, first.degree)?;
        }
        write_table(f, &self.phases)
    }
}
