//! `bench suite ukv`: gets and sets over the wire, by length of values.

mod server;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use stratakv_base::quantity::parse_bytes;
use stratakv_bench::page;
use stratakv_bench::suite::ukv::{ServedReport, ServerUnderTest, UkvCase};
use stratakv_bench::suite::{UkvOptions, run_ukv};

use self::server::{OwnServer, PeerServer};
use super::claim;
use crate::Output;
use crate::bench::report::{OURS, write};
use crate::bench::{refuse_unwritable, write_json};
use crate::count::{parse_some, parse_usize};
use crate::failure::Failure;
use crate::opening::DurabilityArguments;

/// Longest value: servers are started with items of 2 MiB.
const VALUE_BYTES_MAX: u64 = 1 << 20;
/// Less, and a server would have no room for its buffers.
const MEMORY_BYTES_MIN: u64 = 32 << 20;

/// Arguments of `bench suite ukv`.
#[derive(Args)]
pub(in crate::bench) struct Ukv {
    /// Where the records are: half of the memory, or five times the memory
    #[arg(long, value_enum, value_delimiter = ',', default_value = "memory,ssd")]
    cases: Vec<CaseArgument>,
    /// Lengths of values
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "1K,4K,16K,64K,256K,1M", value_parser = parse_length)]
    value_sizes: Vec<usize>,
    /// Memory of each server
    #[arg(long, value_name = "BYTES", default_value = "128M", value_parser = parse_memory)]
    memory: u64,
    /// Records of each length [default: fitted to the memory]
    #[arg(long, visible_alias = "keys", value_name = "N", value_parser = parse_some)]
    records: Option<u64>,
    /// Where the stores are made, one at a time, and removed: a directory that is absent or empty,
    /// on the SSD to be measured
    #[arg(long, value_name = "DIR", default_value = "./stratakv-bench")]
    data: PathBuf,
    /// Servers of ours
    #[arg(long, value_enum, value_delimiter = ',', default_value = "tier,slab")]
    servers: Vec<ServerArgument>,
    /// A server that is already there, shown beside ours where records are in memory:
    /// NAME=memcache://ADDRESS:PORT or NAME=resp://ADDRESS:PORT. It is written to
    #[arg(long, value_name = "NAME=URL")]
    peer: Vec<PeerServer>,
    /// Connections
    #[arg(long, value_name = "N", default_value = "32", value_parser = parse_usize)]
    connections: usize,
    /// Threads of each server of ours
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    #[command(flatten)]
    durability: DurabilityArguments,
    /// Seconds that count of each run
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// How often; medians are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// Seed of keys, values and choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: OutputArguments,
}

/// Where results go.
#[derive(Args)]
struct OutputArguments {
    /// Write the results as JSON here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a report here: one HTML file, with plots and every number
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CaseArgument {
    Memory,
    Ssd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ServerArgument {
    /// A cache, acknowledged from memory
    Tier,
    /// A store, acknowledged when it is durable
    Slab,
}

fn parse_length(text: &str) -> Result<usize, String> {
    match parse_bytes(text)? {
        bytes @ 1..=VALUE_BYTES_MAX => Ok(bytes as usize),
        bytes => Err(format!("{bytes} bytes: 1 B to 1 MiB")),
    }
}

fn parse_memory(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes @ MEMORY_BYTES_MIN.. => Ok(bytes),
        bytes => Err(format!("{bytes} bytes: 32M or more")),
    }
}

pub(super) fn run(ukv: &Ukv, output: &mut Output) -> Result<(), Failure> {
    let OutputArguments { json, report: html } = &ukv.output;
    refuse_unwritable(json.as_deref().into_iter().chain(html.as_deref()))?;
    let options = ukv.options();
    let servers = ukv.servers(&options);
    let ground = claim(&ukv.data)?;
    let watch = |one: &ServedReport| {
        let ServedReport { server, case, mix, value_bytes, round, wire, .. } = one;
        tracing::info!(server, case, mix, value_bytes, round, wire.operations_per_s, "measured");
    };
    let report = run_ukv(&options, &servers, &ukv.data, &watch)?;
    ground.clear()?;
    print(&report.served, output)?;
    if let Some(path) = json {
        write_json(path, &report)?;
    }
    if let Some(path) = html {
        write(path, page::of_served(&report, &OURS))?;
    }
    match &report.left_out[..] {
        [] => Ok(()),
        all => Err(Failure::failed(format!("left out, since it could not be measured: {}", all.join("; ")))),
    }
}

fn print(served: &[ServedReport], output: &mut Output) -> Result<(), Failure> {
    writeln!(
        output,
        "{:<8}{:<8}{:>9}  {:<12}{:>6}{:>14}{:>10}{:>10}{:>12}",
        "case", "mix", "value", "server", "round", "requests/s", "p95 µs", "p99 µs", "CPU µs"
    )
    .map_err(Failure::output)?;
    for one in served {
        let ServedReport { server, case, mix, value_bytes, round, wire, .. } = one;
        let cpu = one.server_cpu_us_per_operation.map_or("-".into(), |us| format!("{us:.1}"));
        writeln!(
            output,
            "{case:<8}{mix:<8}{value_bytes:>9}  {server:<12}{round:>6}{:>14.0}{:>10.0}{:>10.0}{cpu:>12}",
            wire.operations_per_s, wire.latency_us_p95, wire.latency_us_p99
        )
        .map_err(Failure::output)?;
    }
    Ok(())
}

impl Ukv {
    fn options(&self) -> UkvOptions {
        let case = |case: &CaseArgument| match case {
            CaseArgument::Memory => UkvCase::Memory,
            CaseArgument::Ssd => UkvCase::Ssd,
        };
        UkvOptions {
            cases: self.cases.iter().map(case).collect(),
            value_sizes: self.value_sizes.clone(),
            memory_bytes: self.memory,
            records: self.records,
            connections: self.connections.max(1),
            duration: Duration::from_secs(self.seconds),
            rounds: self.rounds as usize,
            seed: self.seed,
        }
    }

    fn servers(&self, options: &UkvOptions) -> Vec<Box<dyn ServerUnderTest>> {
        // Room for all records twice over, and for what a log needs to be cleaned.
        let data_bytes = options.cases.iter().map(|case| options.data_bytes(*case)).max().unwrap_or_default();
        let capacity_bytes = (2 * data_bytes + (256 << 20)).next_multiple_of(1 << 20);
        let own = |server: &ServerArgument| -> Box<dyn ServerUnderTest> {
            let mut options: Vec<String> = match server {
                ServerArgument::Tier => vec!["--engine".into(), "tier".into()],
                ServerArgument::Slab => ["--engine", "slab", "--placement", "packed"].map(str::to_owned).into(),
            };
            if *server == ServerArgument::Slab && self.durability.is_process_crash() {
                options.extend(["--durability", "process_crash"].map(str::to_owned));
            }
            Box::new(OwnServer {
                name: if *server == ServerArgument::Tier { "tier" } else { "slab" },
                options,
                directory: self.data.clone(),
                memory_bytes: self.memory,
                capacity_bytes,
                threads: self.threads,
            })
        };
        let peer = |peer: &PeerServer| -> Box<dyn ServerUnderTest> { Box::new(peer.clone()) };
        self.servers.iter().map(own).chain(self.peer.iter().map(peer)).collect()
    }
}
