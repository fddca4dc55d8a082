//! `bench`: the YCSB workloads, and the cost of each way in.

mod ground;
mod report;
mod suite;

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use stratakv::{ErrorKind, Level, Options, Store};
use stratakv_base::quantity::{parse_bytes, parse_count};
use stratakv_bench::environment::{Environment, StoreSettings};
use stratakv_bench::load::{LoadOptions, expect_loaded, load};
use stratakv_bench::page::claims::KVELL;
use stratakv_bench::paths::{PathReport, measure};
use stratakv_bench::value::ValueSize;
use stratakv_bench::{BenchError, Distribution, Report, RunOptions, TargetKind, Workload};
use stratakv_server::{Server, ServerOptions};

use crate::Output;
use crate::bench::ground::Ground;
use crate::count::{parse_some, parse_usize};
use crate::failure::{Exit, Failure};
use crate::opening::{DurabilityArguments, EngineArguments, Io, Placed, refuse_another_format};
use crate::say::say;
use crate::{memory, progress};

const EXAMPLES: &str = "\
Examples:
  stratakv bench ycsb --workload a --records 1000000 --seconds 30
  stratakv bench ycsb --workload c --data /mnt/nvme/bench --no-load --distribution zipfian --json c.json
  stratakv bench ycsb --workload b --target memcache://127.0.0.1:11211 --clients 64
  stratakv bench ycsb --workload a --rounds 3 --explain --report a.html --json a.json
  stratakv bench report after.json before.json --output both.html
  stratakv bench suite kvell --data /mnt/nvme/bench --report kvell.html
  stratakv bench paths --records 1000000 --memory 64M
  stratakv bench suite kvdk --scale 0.1 --data /dev/shm/bench --json kvdk.json
  stratakv bench suite matrixkv --data /mnt/nvme/bench --report matrixkv.html --beside results/matrixkv.json";

/// Measure a store, or a memcached-compatible server
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Load records and run a YCSB workload
    Ycsb(Ycsb),
    /// Time one get at a time through each interface: blocking, future, session, server
    Paths(Paths),
    /// Repeat the measurements of the paper behind an engine, over the engines side by side
    #[command(subcommand)]
    Suite(suite::Suite),
    /// Write a page of saved runs: one by itself, or several side by side
    Report(report::Saved),
}

/// Where the store is, and what becomes of it.
#[derive(Args)]
struct GroundArguments {
    /// Directory of the store; removed afterwards, also after a failure, if this run created it,
    /// unless --keep
    #[arg(long, value_name = "DIR", default_value = "./stratakv-bench")]
    data: PathBuf,
    /// Do not remove the store
    #[arg(long)]
    keep: bool,
    /// Measure in a store that `bench` did not make: it is written to
    #[arg(long)]
    existing: bool,
    /// Do not load: the records are there from an earlier run with --keep
    #[arg(long)]
    no_load: bool,
}

/// The store that is measured.
#[derive(Args)]
struct Subject {
    #[command(flatten)]
    ground: GroundArguments,
    /// How many records, such as 100000 or 10M
    #[arg(long, visible_alias = "keys", value_name = "N", default_value = "100K", value_parser = parse_some)]
    records: u64,
    /// Length of values in bytes, or `production` (250 B to 1 KiB)
    #[arg(long, default_value = "1024", value_parser = parse_size)]
    value_size: ValueSize,
    /// Cap on index, cache and I/O buffers together
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = parse_bytes)]
    memory: u64,
    #[command(flatten)]
    engine: EngineArguments,
    /// Where the region of a new store of engine `hash` or `matrix` is made, a file on tmpfs or
    /// DAX, say; removed with the store [default: in the store's directory]
    #[arg(long, value_name = "PATH")]
    region_path: Option<PathBuf>,
    /// Shards of a new store
    #[arg(long)]
    shards: Option<usize>,
    /// Most bytes a new store may take on disk
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    capacity: Option<u64>,
    /// Requests in flight on the device
    #[arg(long, default_value_t = 128)]
    depth: u32,
    /// What carries the I/O
    #[arg(long, value_enum, default_value_t)]
    io: Io,
    #[command(flatten)]
    durability: DurabilityArguments,
    /// Seed of keys, values and choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the results as JSON here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Arguments of `bench ycsb`.
#[derive(Args)]
struct Ycsb {
    #[command(flatten)]
    subject: Subject,
    /// a, b, c, d, e, f, production or fill (writes only)
    #[arg(long)]
    workload: Workload,
    /// uniform, zipfian or latest [default: the workload's own]
    #[arg(long)]
    distribution: Option<Distribution>,
    /// So many of 100 requests go to shard 0, whatever its share of the records; figures of each
    /// shard are printed
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    hot_shard: u32,
    /// embedded, blocking, async or memcache://HOST:PORT
    #[arg(long, default_value = "embedded")]
    target: TargetKind,
    /// Requests in flight
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse_usize)]
    clients: usize,
    /// Threads that submit them
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Seconds that count
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Seconds before that
    #[arg(long, default_value_t = 2)]
    warm_up: u64,
    /// Tell where the time goes and what binds, of a store that this process opens
    #[arg(long)]
    explain: bool,
    /// Print all counters of the store at the end
    #[arg(long)]
    counters: bool,
    /// End after so many operations, if that is earlier; the warm-up's count too
    #[arg(long, value_name = "N", value_parser = parse_count)]
    operations: Option<u64>,
    /// How often, on the same store; --json is a list then
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    #[command(flatten)]
    report: report::ReportArguments,
}

/// Arguments of `bench paths`.
#[derive(Args)]
struct Paths {
    #[command(flatten)]
    subject: Subject,
    /// Gets on each path
    #[arg(long, value_name = "N", default_value = "20K", value_parser = parse_count)]
    count: u64,
}

fn parse_size(text: &str) -> Result<ValueSize, String> {
    if text == "production" {
        return Ok(ValueSize::Production);
    }
    match parse_bytes(text)? {
        bytes if bytes <= stratakv::limits::VALUE_BYTES_MAX as u64 => Ok(ValueSize::Fixed(bytes as usize)),
        bytes => Err(format!("{bytes} bytes: a value has at most 64 MiB")),
    }
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    match &arguments.what {
        What::Ycsb(ycsb) => run_ycsb(ycsb, output),
        What::Paths(paths) => run_paths(paths, output),
        What::Suite(suite) => suite::run(suite, output),
        What::Report(saved) => report::run(saved),
    }
}

fn run_ycsb(ycsb: &Ycsb, output: &mut Output) -> Result<(), Failure> {
    let subject = &ycsb.subject;
    // What cannot be used is told before anything is measured.
    let beside = ycsb.report.read_beside()?;
    refuse_unwritable(subject.json.as_deref().into_iter().chain(ycsb.report.path()))?;
    let remote = matches!(ycsb.target, TargetKind::Memcache(_));
    if remote && ycsb.explain {
        let why =
            "--explain looks at a store that this process opens: with a server, see request_latency in its /metrics";
        return Err(Failure::usage(why));
    }
    let stand = if remote { None } else { Some(Stand::open(subject)?) };
    let store = stand.as_ref().map(|stand| &stand.store);
    subject.load(store, ycsb.target, ycsb.clients)?;
    let environment = Environment::here(store.map(|_| subject.ground.data.as_path()));
    let mut rounds = Vec::new();
    for round in 0..ycsb.rounds {
        let report = run_round(ycsb, store, round, output)?;
        rounds.push(Report { environment: Some(environment.clone()), ..report });
    }
    if let Some(stand) = stand {
        if ycsb.counters {
            stand.print_statistics(output)?;
        }
        if ycsb.hot_shard > 0 {
            stand.print_shards(output)?;
        }
        stand.close()?;
    }
    match &rounds[..] {
        [one] => subject.write_json(one)?,
        all => subject.write_json(&all)?,
    }
    let ours: Vec<_> = rounds.into_iter().map(|report| (name_of(&report), true, report)).collect();
    let title = format!("YCSB workload {}", ours.first().map_or("", |(_, _, report)| &report.workload));
    // KVell is what engine `slab` is made after.
    let is_slab = ours.iter().any(|(_, _, report)| report.store.as_ref().is_some_and(|of| of.engine == "slab"));
    ycsb.report.write(&title, ours, beside, if is_slab { KVELL } else { &[] })
}

/// What a store is called in the report.
fn name_of(report: &Report) -> String {
    report.store.as_ref().map_or_else(|| report.target.clone(), StoreSettings::name)
}

fn run_round(ycsb: &Ycsb, store: Option<&Store>, round: u64, output: &mut Output) -> Result<Report, Failure> {
    let subject = &ycsb.subject;
    let options = RunOptions {
        workload: ycsb.workload,
        distribution: ycsb.distribution.unwrap_or(ycsb.workload.distribution()),
        records: subject.records,
        hot_shard_percent: ycsb.hot_shard,
        value: subject.value_size,
        target: ycsb.target,
        level: store.map_or(Level::PowerLoss, Store::default_level),
        threads: ycsb.threads,
        clients: ycsb.clients,
        duration: Duration::from_secs(ycsb.seconds.max(1)),
        warm_up: Duration::from_secs(ycsb.warm_up),
        operations_max: ycsb.operations,
        seed: subject.seed.wrapping_add(round),
    };
    let mut report: Report = stratakv_bench::run(store, &options)?;
    report.store = store.map(|store| StoreSettings::of(store, subject.memory, subject.depth));
    write!(output, "{report}").map_err(Failure::output)?;
    if let Some(explanation) = &mut report.explanation {
        explanation.in_flight_max = f64::from(subject.depth);
        if ycsb.explain {
            write!(output, "{explanation}").map_err(Failure::output)?;
        }
    }
    Ok(report)
}

fn run_paths(paths: &Paths, output: &mut Output) -> Result<(), Failure> {
    let subject = &paths.subject;
    refuse_unwritable(subject.json.as_deref())?;
    let stand = Stand::open(subject)?;
    subject.load(Some(&stand.store), TargetKind::Embedded, 256)?;
    let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
    let server =
        Server::start(stand.store.clone(), ServerOptions { memcache: vec![any_port], ..ServerOptions::default() })
            .map_err(|error| Failure::failed(error.to_string()))?;
    let reports = measure(&stand.store, server.addresses().first().copied(), subject.records, paths.count)?;
    server.shutdown();
    server.join().map_err(|error| Failure::failed(error.to_string()))?;
    writeln!(output, "{:<16}{:>10}{:>14}{:>14}", "path of one get", "count", "p50 in µs", "p99 in µs")
        .map_err(Failure::output)?;
    for report in &reports {
        let PathReport { path, count, page_reads, latency_us_p50, latency_us_p99 } = report;
        match report.missed_the_point() {
            true => writeln!(
                output,
                "{path:<16}{count:>10}  {page_reads} of them read the device: the cache holds the rest"
            ),
            false => writeln!(output, "{path:<16}{count:>10}{latency_us_p50:>14.2}{latency_us_p99:>14.2}"),
        }
        .map_err(Failure::output)?;
    }
    if reports.iter().any(PathReport::missed_the_point) {
        say!("to measure misses, make the cache far smaller than the data: lower --memory, or raise --records");
    }
    stand.close()?;
    subject.write_json(&reports)
}

impl Subject {
    fn load(&self, store: Option<&Store>, target: TargetKind, clients: usize) -> Result<(), Failure> {
        if self.ground.no_load {
            return Ok(expect_loaded(store, target, self.records)?);
        }
        let options = LoadOptions {
            records: self.records,
            overwrites: 0,
            value: self.value_size,
            target: if store.is_some() { TargetKind::Embedded } else { target },
            // Nothing is measured yet, and the run syncs before it starts.
            level: Level::ProcessCrash,
            threads: 1,
            clients: clients.max(256),
            seed: self.seed,
        };
        let watch = progress::watch("loading");
        let record_bytes = self.value_size.max() as u64;
        let took = load(store, &options, &|done| {
            watch(stratakv::OpenProgress { done_bytes: done * record_bytes, total_bytes: self.records * record_bytes });
        })?;
        if let Some(store) = store {
            store.sync()?;
        }
        tracing::info!(records = self.records, seconds = took.as_secs_f64(), "loaded");
        Ok(())
    }

    fn write_json(&self, report: &impl Serialize) -> Result<(), Failure> {
        self.json.as_deref().map_or(Ok(()), |path| write_json(path, report))
    }
}

/// Refuses files that results could not be written to, before anything is measured. Leaves nothing
/// that was not there.
fn refuse_unwritable<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<(), Failure> {
    for path in paths {
        let found = std::fs::metadata(path);
        if found.as_ref().is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            // A pipe would wait for its reader.
            continue;
        }
        File::options().append(true).create(true).open(path).map_err(|error| {
            let shown = path.display();
            Failure::usage(format!(
                "cannot write {shown}: {error}; nothing was measured: name a file that can be written"
            ))
        })?;
        if found.is_err() {
            let _ = std::fs::remove_file(path);
        }
    }
    Ok(())
}

fn write_json(path: &Path, report: &impl Serialize) -> Result<(), Failure> {
    let write = || -> std::io::Result<()> {
        let mut file = File::create(path)?;
        serde_json::to_writer_pretty(&mut file, report)?;
        writeln!(file)
    };
    write().map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))
}

/// The store under measurement, and where it lies. The store is closed first: fields are dropped in
/// their order.
struct Stand {
    store: Store,
    ground: Ground,
}

impl Stand {
    fn open(subject: &Subject) -> Result<Stand, Failure> {
        refuse_another_format(
            [subject.ground.data.as_path()],
            subject.engine.engine,
            subject.shards,
            subject.engine.placement,
        )?;
        let placed = Placed::choose_in(
            subject.engine.placement,
            [subject.ground.data.as_path()].into_iter(),
            false,
            subject.io,
        )?;
        memory::warn_of_too_much(subject.memory);
        let mut ground = Ground::claim(&subject.ground.data, !subject.ground.no_load, subject.ground.existing)?;
        let mut options = Options::new()
            .create(!subject.ground.no_load)
            .memory_bytes(subject.memory)
            .depth(subject.depth)
            .capacity_bytes(subject.capacity.unwrap_or(0))
            .io(subject.io.into())
            .progress(progress::watch("recovering"));
        if let Some(shards) = subject.shards {
            options = options.shards(shards);
        }
        if let Some(region) = &subject.region_path {
            ground.claim_region(region)?;
            options = options.region_paths([region]);
        }
        let options = subject.durability.add_to(options);
        let store = placed.add_to(subject.engine.add_to(options)).open(&subject.ground.data).inspect_err(|error| {
            // Somebody else was faster.
            if error.kind() == ErrorKind::Locked {
                ground.keep();
            }
        })?;
        placed.tell(&store);
        if subject.ground.keep || !store.recovery().created {
            ground.keep();
        }
        Ok(Stand { store, ground })
    }

    fn print_statistics(&self, output: &mut Output) -> Result<(), Failure> {
        if let Some(placement) = self.store.placement() {
            writeln!(output, "{:<32}{:>16}", "placement", placement.name()).map_err(Failure::output)?;
        }
        for one in self.store.stats() {
            writeln!(output, "{:<32}{:>16}", one.name, one.value).map_err(Failure::output)?;
        }
        Ok(())
    }

    /// The statistics of each shard beside one another.
    fn print_shards(&self, output: &mut Output) -> Result<(), Failure> {
        let shards: Vec<_> = (0..self.store.shards()).map(|shard| self.store.shard_stats(shard)).collect();
        let numbers: String = (0..shards.len()).map(|shard| format!("{:>16}", format!("shard {shard}"))).collect();
        writeln!(output, "\n{:<32}{numbers}", "").map_err(Failure::output)?;
        for one in shards.first().into_iter().flatten() {
            let value = |shard: &Vec<stratakv::Statistic>| {
                shard.iter().find(|other| other.name == one.name).map_or(0, |found| found.value)
            };
            let values: String = shards.iter().map(|shard| format!("{:>16}", value(shard))).collect();
            writeln!(output, "{:<32}{values}", one.name).map_err(Failure::output)?;
        }
        Ok(())
    }

    fn close(self) -> Result<(), Failure> {
        self.store.close()?;
        self.ground.clear()
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Failure {
        match error {
            BenchError::Store(error) => error.into(),
            BenchError::NoScans(_) => Failure::new(Exit::Usage, error.to_string()),
            BenchError::NotLoaded { .. } => Failure::new(Exit::NotFound, error.to_string()),
            other => Failure::failed(other.to_string()),
        }
    }
}
