//! `cargo xtask compare`: StrataKV beside RocksDB, WiredTiger, fjall, redb and LMDB on the same
//! machine, data, memory and durability, in turn.

mod at_once;
mod graph;
mod job;
mod matrixkv;
mod memory;
mod page;
mod peer;
mod rocksdb;
mod subject;
mod table;
mod wiredtiger;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use serde::{Deserialize, Serialize};
use stratakv_base::quantity::{format_bytes, parse_bytes};
use stratakv_bench::environment::Environment;
use stratakv_bench::{Distribution, Workload};

use crate::graph::GraphJob;
use crate::job::{Done, Job, Task};
use crate::subject::Subject;
use crate::table::Run;

/// StrataKV and other stores under the same YCSB workloads, in turn
#[derive(Parser)]
#[command(name = "cargo xtask compare", max_term_width = 120)]
struct Arguments {
    /// Small data, one distribution, a second each: whether it works, not how fast
    #[arg(long)]
    short: bool,
    /// Stores, by name
    #[arg(long, value_delimiter = ',', default_value = "in_place,packed,rocksdb-sync,rocksdb-async,wiredtiger-sync")]
    stores: Vec<Subject>,
    /// Workloads: a to f, production (with values of its own: 250 B to 1 KiB); d comes last, since
    /// it inserts without end
    #[arg(long, value_delimiter = ',', default_value = "a,b,c,d,e,f,production")]
    workloads: Vec<Workload>,
    /// Distributions; d has its own, latest
    #[arg(long, value_delimiter = ',', default_value = "uniform,zipfian")]
    distributions: Vec<Distribution>,
    /// Requests in flight: threads of the others; several: each in turn
    #[arg(long, value_delimiter = ',', default_value = "64")]
    clients: Vec<usize>,
    /// Records
    #[arg(long, default_value_t = 4_000_000)]
    records: u64,
    /// Length of values in bytes
    #[arg(long, default_value_t = 1024)]
    value_size: usize,
    /// Memory of each store [default: a third of the data]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Before anything is measured, overwrite so many times the volume, at random
    #[arg(long, default_value_t = 3.0)]
    age: f64,
    /// How full the volume of `packed` is
    #[arg(long, default_value_t = 0.8)]
    fill: f64,
    /// Rounds: each store once for each workload, all stores in turn
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds that count
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Seconds before that, in which caches fill
    #[arg(long, default_value_t = 15)]
    warm_up: u64,
    /// The same for workload e [default: as --warm-up]: where scans bring neighbours together, that
    /// takes minutes
    #[arg(long, value_name = "SECONDS")]
    warm_up_scans: Option<u64>,
    /// Seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the stores are; what is made there is removed afterwards
    #[arg(long, value_name = "DIR", default_value = "./stratakv-compare")]
    data: PathBuf,
    /// Leave the loaded and aged stores there, and take them up again the next time if they were
    /// made with the same options
    #[arg(long)]
    keep: bool,
    /// A directory in memory (tmpfs) for what `matrix` and `rocksdb_over_memory` have in persistent
    /// memory; what is made there is removed afterwards
    #[arg(long, value_name = "DIR", default_value = "/dev/shm/stratakv-compare")]
    pmem: PathBuf,
    /// So many bytes of it each [default: a tenth of the data]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pmem_bytes: Option<u64>,
    /// Instead of YCSB, what was measured of MatrixKV: --bytes written at random for each of
    /// --value-sizes, then reads and scans
    #[arg(long)]
    matrixkv: bool,
    /// Bytes of values that are written
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "8G")]
    bytes: u64,
    /// Lengths of values
    #[arg(long, value_delimiter = ',', default_value = "64,256,1024,4096,16384,65536")]
    value_sizes: Vec<usize>,
    /// Where tables.md, timeline.csv, plots and runs.json go [default: only tables, to stdout]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write a report here: one HTML file, with plots and every number, in the shape of
    /// `stratakv bench --report`. It is written anew after each setting
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Instead of YCSB, the graph of `stratakv bench suite kvdk`, so much of it, over hash, slab
    /// and RocksDB; of the options, --rounds, --memory [default: 4G], --seed and --data count
    #[arg(long, value_name = "SCALE")]
    graph: Option<f64>,
    /// What this program gives itself to do
    #[arg(long, hide = true)]
    job: Option<String>,
    /// The same, of a graph
    #[arg(long, hide = true)]
    graph_job: Option<String>,
}

impl Arguments {
    /// Where a subject has what lies in persistent memory.
    fn memory_dir(&self, subject: Subject) -> PathBuf {
        let whose = if self.keep { "kept".to_owned() } else { std::process::id().to_string() };
        self.pmem.join(format!("{}-{whose}", subject.data_set()))
    }

    fn fast_bytes(&self, data_bytes: u64) -> u64 {
        let wanted = self.pmem_bytes.unwrap_or(data_bytes / 10);
        wanted.max(64 << 20).next_multiple_of(1 << 20)
    }

    fn shortened(mut self) -> Arguments {
        if self.short {
            (self.records, self.rounds, self.seconds, self.warm_up) = (20_000, 1, 1, 0);
            self.distributions.truncate(1);
            (self.age, self.memory) = (self.age.min(1.0), Some(32 << 20));
            (self.bytes, self.pmem_bytes) = (64 << 20, Some(64 << 20));
            self.value_sizes.truncate(2);
            self.fill = self.fill.min(0.3);
        }
        self
    }

    fn check(&self) -> Result<(), String> {
        let legal = [
            (self.records >= 1000, "--records: 1000 or more"),
            ((16..=1 << 20).contains(&self.value_size), "--value-size: 16 to 1048576"),
            ((0.0..=100.0).contains(&self.age), "--age: 0 to 100"),
            ((0.1..=0.95).contains(&self.fill), "--fill: 0.1 to 0.95"),
            ((1..=100).contains(&self.rounds), "--rounds: 1 to 100"),
            ((1..=86_400).contains(&self.seconds), "--seconds: 1 to 86400"),
            (self.clients.iter().all(|clients| (1..=4096).contains(clients)), "--clients: 1 to 4096"),
        ];
        legal.into_iter().find(|(legal, _)| !legal).map_or(Ok(()), |(_, message)| Err(message.to_owned()))
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let is_writable = page::refuse_unwritable(arguments.report.as_deref());
    let outcome = is_writable.and_then(|()| match (&arguments.job, &arguments.graph_job, arguments.graph) {
        (Some(job), ..) => execute(job),
        (_, Some(job), _) => execute_graph(job),
        (_, _, Some(scale)) => compare_graph(&arguments, scale),
        _ if arguments.matrixkv => matrixkv::compare(&arguments.shortened()),
        _ => compare(&arguments.shortened()),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("compare: {message}");
            ExitCode::FAILURE
        }
    }
}

fn execute(job: &str) -> Result<(), String> {
    let job: Job = serde_json::from_str(job).map_err(|error| format!("--job: {error}"))?;
    let done = job.execute().map_err(|error| format!("{}: {error}", job.subject))?;
    println!("{}", serde_json::to_string(&done).map_err(|error| error.to_string())?);
    Ok(())
}

fn execute_graph(job: &str) -> Result<(), String> {
    let job: GraphJob = serde_json::from_str(job).map_err(|error| format!("--graph-job: {error}"))?;
    job.execute()
}

fn compare_graph(arguments: &Arguments, scale: f64) -> Result<(), String> {
    arguments.check()?;
    if !(scale > 0.0 && scale <= 1000.0) {
        return Err("--graph: above 0, at most 1000".into());
    }
    let folder = arguments.data.join(format!("compare-graph-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let memory_bytes = arguments.memory.unwrap_or(4 << 30);
    let environment = Environment::here(Some(&folder));
    let outcome = graph::compare(&graph::SUBJECTS, scale, arguments.rounds, memory_bytes, arguments.seed, &folder);
    let removed = fs::remove_dir_all(&folder);
    let compared = outcome?;
    println!("{}", compared.text()?);
    page::write(arguments.report.as_deref(), || compared.page(environment, memory_bytes, scale))?;
    removed.map_err(|error| format!("cannot remove {}: {error}", folder.display()))?;
    // Only if it is empty: it may be somebody's.
    let _ = fs::remove_dir(&arguments.data);
    Ok(())
}

/// One data set of one store.
struct Stand {
    data_set: &'static str,
    /// How it is made.
    made: Job,
    /// The next thing to be done to it.
    job: Job,
}

fn compare(arguments: &Arguments) -> Result<(), String> {
    arguments.check()?;
    let name = if arguments.keep { "compare-kept".into() } else { format!("compare-{}", std::process::id()) };
    let folder = arguments.data.join(name);
    let outcome = compare_in(arguments, &folder);
    let removed = if arguments.keep { Ok(()) } else { fs::remove_dir_all(&folder) };
    let runs = outcome?;
    removed.map_err(|error| format!("cannot remove {}: {error}", folder.display()))?;
    // Only if it is empty: it may be somebody's.
    let _ = fs::remove_dir(&arguments.data);
    let tables = table::tables(&runs);
    println!("{tables}");
    Ok(())
}

fn compare_in(arguments: &Arguments, folder: &Path) -> Result<Vec<Run>, String> {
    fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    // Of this process: those that run the stores have a command line of their own.
    let environment = Environment::here(Some(folder));
    let mut runs = Vec::new();
    // The production mix has records of its own lengths, so stores of its own; one data set at a
    // time saves room.
    for production in [false, true] {
        let is_asked = |workload: &&Workload| (**workload == Workload::Production) == production;
        let mut workloads: Vec<Workload> = arguments.workloads.iter().filter(is_asked).copied().collect();
        if workloads.is_empty() {
            continue;
        }
        workloads.sort_by_key(|workload| *workload == Workload::D);
        let mut stands: Vec<Stand> = Vec::new();
        for subject in &arguments.stores {
            if stands.iter().all(|stand| stand.data_set != subject.data_set()) {
                let mut stand = Stand::new(*subject, arguments, folder, production);
                stand.load(arguments)?;
                stands.push(stand);
            }
        }
        for workload in workloads {
            run_workload(arguments, workload, &mut stands, &mut runs, &environment)?;
        }
        for stand in stands.iter().filter(|stand| !stand.note().exists()) {
            let gone = fs::remove_dir_all(&stand.job.directory);
            gone.map_err(|error| stand.cannot("remove", error))?;
        }
    }
    Ok(runs)
}

/// All rounds of a workload, the stores in turn; what there is by then is written out after each
/// setting.
fn run_workload(
    arguments: &Arguments,
    workload: Workload,
    stands: &mut [Stand],
    runs: &mut Vec<Run>,
    environment: &Environment,
) -> Result<(), String> {
    let own = [Distribution::Latest];
    let distributions = if workload == Workload::D { &own } else { &arguments.distributions[..] };
    let lower = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
    for clients in &arguments.clients {
        for distribution in distributions {
            let (name, distribution) = (lower(&workload), lower(distribution));
            let setting = format!("{} {distribution} {clients} in flight", name.to_uppercase());
            for round in 1..=arguments.rounds {
                for subject in &arguments.stores {
                    let Some(stand) = stands.iter_mut().find(|stand| stand.data_set == subject.data_set()) else {
                        continue;
                    };
                    let mut done = stand.run(arguments, *subject, (&name, &distribution), *clients)?;
                    if let Some(report) = &mut done.report {
                        report.environment = Some(environment.clone());
                    }
                    let speed = done.report.as_ref().map_or(0.0, |report| report.operations_per_s);
                    eprintln!("round {round}, {setting}: {subject} {speed:.0}/s, opened in {:.1} s", done.open_s);
                    runs.push(Run { subject: *subject, round, setting: setting.clone(), done });
                }
            }
            if let Some(out) = &arguments.out {
                write_out(out, &table::tables(runs), runs)?;
            }
            page::write(arguments.report.as_deref(), || page::of(runs))?;
        }
    }
    Ok(())
}

/// Bytes of a record beside its value: the key, and what `packed` puts before it.
const RECORD_OVERHEAD_BYTES: u64 = 24 + 32;
/// Mean of [`stratakv_bench::value::ValueSize::Production`].
const PRODUCTION_BYTES_MEAN: u64 = 519;

/// What `--keep` notes of a store.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// How it was made.
    made: Job,
    /// What it holds by now.
    records: u64,
}

impl Stand {
    fn new(subject: Subject, arguments: &Arguments, folder: &Path, production: bool) -> Stand {
        let value_bytes = if production { PRODUCTION_BYTES_MEAN } else { arguments.value_size as u64 };
        let data_bytes = arguments.records * (value_bytes + RECORD_OVERHEAD_BYTES);
        let memory_bytes = arguments.memory.unwrap_or(data_bytes / 3);
        let job = Job {
            subject: subject.to_string(),
            directory: folder.join(subject.data_set().to_owned() + if production { "-production" } else { "" }),
            memory_bytes: memory_bytes.max(32 << 20),
            capacity_bytes: (data_bytes as f64 / arguments.fill) as u64 + (16 << 20),
            region_bytes: (2 * data_bytes).next_multiple_of(1 << 20) + (64 << 20),
            fast: arguments.memory_dir(subject),
            fast_bytes: arguments.fast_bytes(data_bytes),
            clients: arguments.clients.iter().copied().max().unwrap_or(64),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            records: arguments.records,
            value_bytes: if production { 0 } else { arguments.value_size },
            seed: arguments.seed,
            task: Task::Load { overwrites: (arguments.records as f64 * arguments.age) as u64 },
        };
        Stand { data_set: subject.data_set(), made: job.clone(), job }
    }

    fn load(&mut self, arguments: &Arguments) -> Result<(), String> {
        let note = self.note();
        if let Ok(kept) = fs::read_to_string(&note) {
            let kept: Kept = serde_json::from_str(&kept).map_err(|error| format!("{}: {error}", note.display()))?;
            // Levels and requests in flight share a store.
            let same = Job { subject: self.made.subject.clone(), clients: self.made.clients, ..kept.made };
            if same != self.made {
                let note = note.display();
                return Err(format!(
                    "{note} tells of a store made with other options: use them, remove its folder, or name another --data"
                ));
            }
            self.job.records = kept.records;
            eprintln!("{}: {} records kept from an earlier comparison", self.data_set, kept.records);
            return Ok(());
        }
        // Half made, or D was its last.
        if self.job.directory.exists() {
            fs::remove_dir_all(&self.job.directory).map_err(|error| self.cannot("remove", error))?;
        }
        let Done { load_s, write_bytes, disk_bytes, memory_peak_bytes, .. } = self.job.run()?;
        eprintln!(
            "{}: {} records loaded, then overwritten {} times, in {load_s:.1} s; {} written, {} on disk, {} of memory at most",
            self.data_set,
            self.job.records,
            arguments.age,
            format_bytes(write_bytes),
            format_bytes(disk_bytes),
            format_bytes(memory_peak_bytes)
        );
        if arguments.keep { self.remember() } else { Ok(()) }
    }

    /// What tells of the store's making, beside it.
    fn note(&self) -> PathBuf {
        self.job.directory.with_extension("json")
    }

    /// Notes what the store is by now.
    fn remember(&self) -> Result<(), String> {
        let kept = Kept { made: self.made.clone(), records: self.job.records };
        let text = serde_json::to_string(&kept).map_err(|error| error.to_string())?;
        fs::write(self.note(), text).map_err(|error| self.cannot("write the note of", error))
    }

    fn cannot(&self, what: &str, error: std::io::Error) -> String {
        format!("cannot {what} {}: {error}", self.job.directory.display())
    }

    /// The records it inserts stay, for what runs next.
    fn run(
        &mut self,
        arguments: &Arguments,
        subject: Subject,
        (workload, distribution): (&str, &str),
        clients: usize,
    ) -> Result<Done, String> {
        self.job.seed += 1;
        self.job.subject = subject.to_string();
        self.job.clients = clients;
        self.job.task = Task::Run {
            workload: workload.to_owned(),
            distribution: distribution.to_owned(),
            seconds: arguments.seconds,
            warm_up: arguments.warm_up_scans.filter(|_| workload == "e").unwrap_or(arguments.warm_up),
            operations_max: None,
        };
        if workload == "d" && self.note().exists() {
            // Its volume has twice the room from now on: no store for other comparisons.
            fs::remove_file(self.note()).map_err(|error| self.cannot("remove the note of", error))?;
        }
        let job = match workload {
            "d" => Job { capacity_bytes: self.job.capacity_bytes.saturating_mul(2), ..self.job.clone() },
            _ => self.job.clone(),
        };
        let done = job.run()?;
        if let Some(report) = &done.report {
            if report.missing > 0 {
                return Err(format!("{subject}: {} reads found no record", report.missing));
            }
            self.job.records = self.job.records.max(report.records_after);
        }
        if self.note().exists() {
            self.remember()?;
        }
        Ok(done)
    }
}

fn write_out(out: &Path, tables: &str, runs: &[Run]) -> Result<(), String> {
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(out)?;
        fs::write(out.join("tables.md"), tables)?;
        fs::write(out.join("timeline.csv"), table::timeline(runs))?;
        for (name, plot) in table::plots(runs).map_err(|error| std::io::Error::other(error.to_string()))? {
            fs::write(out.join(name).with_extension("svg"), plot)?;
        }
        let all: Vec<_> = runs
            .iter()
            .map(|run| serde_json::json!({ "store": run.subject.to_string(), "round": run.round, "setting": run.setting, "done": run.done }))
            .collect();
        fs::write(out.join("runs.json"), serde_json::to_vec_pretty(&all)?)
    };
    write().map_err(|error| format!("cannot write to {}: {error}", out.display()))
}
