//! What was measured of UKV: gets and sets of a memcache server by length of values, with records
//! in memory and with most of them on the SSD.
//!
//! Who calls it starts the servers; this loads them, and measures from outside.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stratakv_base::quantity::format_bytes;

use crate::distribution::Distribution;
use crate::environment::{Environment, cpu_model, read_line};
use crate::target::BenchError;
use crate::wire::{self, Protocol, WireOptions, WireReport, Work};

/// Version of the JSON's shape.
const SCHEMA: u32 = 1;
/// What the JSON names itself.
pub const SUITE: &str = "ukv";
/// Connections, requests in a batch, and bytes in flight at once while records are loaded.
const LOAD_CONNECTIONS: usize = 64;
const LOAD_PIPELINE: usize = 4;
const LOAD_BYTES_MAX: usize = 16 << 20;

/// Where the records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UkvCase {
    /// In memory: half of it.
    Memory,
    /// Five times the memory, so four gets in five go to the SSD.
    Ssd,
}

impl UkvCase {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            UkvCase::Memory => "memory",
            UkvCase::Ssd => "ssd",
        }
    }
}

/// What clients ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UkvMix {
    /// Gets only.
    Get,
    /// Nine gets, one set.
    Mixed,
    /// Sets only.
    Set,
}

impl UkvMix {
    /// All of them, in the order in which they are run.
    pub const ALL: [UkvMix; 3] = [UkvMix::Get, UkvMix::Mixed, UkvMix::Set];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            UkvMix::Get => "get",
            UkvMix::Mixed => "mixed",
            UkvMix::Set => "set",
        }
    }

    fn get_percent(self) -> u64 {
        match self {
            UkvMix::Get => 100,
            UkvMix::Mixed => 90,
            UkvMix::Set => 0,
        }
    }
}

/// How much to measure.
#[derive(Clone, Debug)]
pub struct UkvOptions {
    /// Where the records are.
    pub cases: Vec<UkvCase>,
    /// Lengths of values.
    pub value_sizes: Vec<usize>,
    /// Memory of each server.
    pub memory_bytes: u64,
    /// Records of each length; `None`: fitted to the memory.
    pub records: Option<u64>,
    /// Connections.
    pub connections: usize,
    /// What counts of each run.
    pub duration: Duration,
    /// How often; medians count.
    pub rounds: usize,
    /// Of what is drawn.
    pub seed: u64,
}

impl UkvOptions {
    fn records(&self, case: UkvCase, value_bytes: usize) -> u64 {
        let data_bytes = match case {
            UkvCase::Memory => self.memory_bytes / 2,
            UkvCase::Ssd => self.memory_bytes * 5,
        };
        self.records.unwrap_or(data_bytes / value_bytes.max(1) as u64).max(1)
    }

    /// Bytes of values and of what comes with them that a server needs room for, of all lengths.
    pub fn data_bytes(&self, case: UkvCase) -> u64 {
        let of = |value_bytes: &usize| self.records(case, *value_bytes) * (*value_bytes as u64 + 128);
        self.value_sizes.iter().map(of).max().unwrap_or_default()
    }
}

/// A server that can be started.
pub trait ServerUnderTest {
    /// Its name in reports.
    fn name(&self) -> &str;

    /// Whether it is of a case.
    fn is_for(&self, case: UkvCase) -> bool;

    /// Starts it, empty.
    ///
    /// # Errors
    /// It cannot be started.
    fn start(&self, case: UkvCase) -> Result<Box<dyn RunningServer>, BenchError>;
}

/// A server that takes connections. It ends when it is dropped.
pub trait RunningServer {
    /// Where it is, and what it speaks.
    fn address(&self) -> (SocketAddr, Protocol);

    /// Processor time of its process so far; `None` if that cannot be seen.
    fn cpu(&self) -> Option<Duration>;

    /// The most memory that its process has had; 0 if that cannot be seen.
    fn memory_peak_bytes(&self) -> u64;
}

/// One server under one load, once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServedReport {
    /// Which server.
    pub server: String,
    /// `memory` or `ssd`; in the comparison with others its cases.
    pub case: String,
    /// `get`, `mixed` or `set`.
    pub mix: String,
    /// Length of values.
    pub value_bytes: usize,
    /// Connections.
    pub connections: usize,
    /// Requests in a batch.
    pub pipeline: usize,
    /// From 1.
    pub round: usize,
    /// Records that were set or asked for.
    pub records: u64,
    /// By the clients.
    pub wire: WireReport,
    /// Processor time of the server for each request.
    pub server_cpu_us_per_operation: Option<f64>,
    /// The most memory that its process has had.
    pub memory_peak_bytes: u64,
}

impl ServedReport {
    /// What was asked: where the records are, which requests, connections, requests in a batch.
    pub(crate) fn load(&self) -> (String, String, usize, usize) {
        (self.case.clone(), self.mix.clone(), self.connections, self.pipeline)
    }

    /// Requests a second that were of use: where there are gets alone, those that hit.
    pub fn served_per_s(&self) -> f64 {
        let is_get = self.mix == UkvMix::Get.name();
        self.wire.operations_per_s * if is_get { self.wire.hit_percent().unwrap_or(100.0) / 100.0 } else { 1.0 }
    }
}

/// The suite: what was asked, where it ran, what came out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UkvReport {
    /// Version of this JSON's shape.
    pub schema: u32,
    /// `ukv`.
    pub suite: String,
    /// Heading of its page.
    pub title: String,
    /// CPU model.
    pub cpu: String,
    /// Cores.
    pub cores: usize,
    /// Kernel.
    pub kernel: String,
    /// Version of this program.
    pub version: String,
    /// Where and how it was measured.
    pub environment: Environment,
    /// Further conditions, each with what it was.
    pub conditions: Vec<(String, String)>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// What could not be measured, and why.
    #[serde(default)]
    pub left_out: Vec<String>,
    /// Every run, in their order.
    pub served: Vec<ServedReport>,
}

impl UkvReport {
    /// With nothing measured yet, on this machine, in this directory.
    pub fn here(title: &str, directory: &Path) -> UkvReport {
        UkvReport {
            schema: SCHEMA,
            suite: SUITE.into(),
            title: title.to_owned(),
            cpu: cpu_model(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: read_line("/proc/sys/kernel/osrelease"),
            version: env!("CARGO_PKG_VERSION").into(),
            environment: Environment::here(Some(directory)),
            ..UkvReport::default()
        }
    }

    /// Conditions, each with what it was; empty if that is not known.
    pub(crate) fn facts(&self) -> Vec<(String, String)> {
        let here = &self.environment;
        let machine_memory = match here.machine_memory_bytes {
            0 => String::new(),
            bytes => format_bytes(bytes),
        };
        let known = [
            ("machine", format!("{}, {} cores", self.cpu, self.cores)),
            ("memory of the machine", machine_memory),
            ("kernel", self.kernel.clone()),
            ("file system", here.file_system.clone()),
            ("device", here.device.clone()),
            ("version", self.version.clone()),
            ("commit", here.commit.clone()),
            ("build", here.build.clone()),
            ("date", here.date.clone()),
            ("command", here.command.join(" ")),
        ];
        let known = known.into_iter().map(|(name, words)| (name.to_owned(), words));
        self.conditions.iter().cloned().chain(known).collect()
    }
}

/// A length of values: `4 KiB`.
pub fn length(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

/// Runs the suite: each server in turn, round by round. `watch` is told of each run. A server that
/// ends or answers wrongly is left out of its round, and the report says so.
///
/// # Errors
/// Nothing at all could be measured.
pub fn run_ukv(
    options: &UkvOptions,
    servers: &[Box<dyn ServerUnderTest>],
    directory: &Path,
    watch: &dyn Fn(&ServedReport),
) -> Result<UkvReport, BenchError> {
    let mut report = UkvReport::here("Gets and sets over the wire, as UKV was measured", directory);
    report.conditions = conditions(options);
    report.notes = vec![
        "Load generator and server share the machine's processors. Ours read and write their volumes by O_DIRECT.".into(),
        "UKV's own figures are ratios to Fatcache, which is not measured here: they stand beside extstore in the page of \
         the comparison with memcached."
            .into(),
    ];
    for round in 1..=options.rounds {
        for case in &options.cases {
            for value_bytes in &options.value_sizes {
                for server in servers.iter().filter(|server| server.is_for(*case)) {
                    let run = UkvRun { options, case: *case, value_bytes: *value_bytes, round };
                    match run.measure(server.as_ref()) {
                        Ok(all) => {
                            all.iter().for_each(watch);
                            report.served.extend(all);
                        }
                        Err(error) => report.left_out.push(run.words(server.name(), &error)),
                    }
                }
            }
        }
    }
    match report.left_out.first().filter(|_| report.served.is_empty()) {
        Some(why) => Err(BenchError::Wrong(format!("nothing could be measured: {why}"))),
        None => Ok(report),
    }
}

fn conditions(options: &UkvOptions) -> Vec<(String, String)> {
    let lengths: Vec<String> = options.value_sizes.iter().map(|bytes| length(*bytes)).collect();
    let records = |case: UkvCase, fitted: &str| match options.records {
        Some(records) => (format!("records, case {}", case.name()), records.to_string()),
        None => (format!("records, case {}", case.name()), fitted.to_owned()),
    };
    let each = |case: &UkvCase| match case {
        UkvCase::Memory => records(*case, "as many as fit half of the memory"),
        UkvCase::Ssd => records(*case, "as many as fit five times the memory"),
    };
    let all = [
        ("lengths of values".into(), lengths.join(", ")),
        ("memory of each server".into(), format_bytes(options.memory_bytes)),
        ("connections".into(), options.connections.to_string()),
        ("distribution".into(), "uniform".into()),
        ("what counts of each run".into(), format!("{:?}", options.duration)),
        ("rounds".into(), options.rounds.to_string()),
        ("seed".into(), options.seed.to_string()),
    ];
    options.cases.iter().map(each).chain(all).collect()
}

/// One server with records of one length.
struct UkvRun<'a> {
    options: &'a UkvOptions,
    case: UkvCase,
    value_bytes: usize,
    round: usize,
}

impl UkvRun<'_> {
    fn words(&self, server: &str, error: &BenchError) -> String {
        let (case, length) = (self.case.name(), length(self.value_bytes));
        format!("{server}, {case}, {length} values, round {}: {error}", self.round)
    }

    fn measure(&self, server: &dyn ServerUnderTest) -> Result<Vec<ServedReport>, BenchError> {
        let running = server.start(self.case)?;
        // More would be more than a server has for its clients.
        let bytes_max = LOAD_BYTES_MAX.min((self.options.memory_bytes / 16) as usize);
        let at_once = (bytes_max / self.value_bytes.max(1)).max(1);
        let pipeline = LOAD_PIPELINE.min(at_once);
        self.wire(running.as_ref(), ((at_once / pipeline).clamp(1, LOAD_CONNECTIONS), pipeline), Work::Load)?;
        UkvMix::ALL.into_iter().map(|mix| self.one(server.name(), running.as_ref(), mix)).collect()
    }

    fn one(&self, name: &str, running: &dyn RunningServer, mix: UkvMix) -> Result<ServedReport, BenchError> {
        let UkvOptions { connections, duration, .. } = *self.options;
        let (distribution, warm_up) = (Distribution::Uniform, duration / 5);
        let work = Work::Draw { get_percent: mix.get_percent(), distribution, warm_up, duration };
        let (report, cpu) = self.wire(running, (connections, 1), work)?;
        Ok(ServedReport {
            server: name.to_owned(),
            case: self.case.name().into(),
            mix: mix.name().into(),
            value_bytes: self.value_bytes,
            connections,
            pipeline: 1,
            round: self.round,
            records: self.options.records(self.case, self.value_bytes),
            wire: report,
            server_cpu_us_per_operation: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / report.operations.max(1) as f64),
            memory_peak_bytes: running.memory_peak_bytes(),
        })
    }

    /// Also the server's processor time while it counts.
    fn wire(
        &self,
        running: &dyn RunningServer,
        (connections, pipeline): (usize, usize),
        work: Work,
    ) -> Result<(WireReport, Option<Duration>), BenchError> {
        let (address, protocol) = running.address();
        let options = WireOptions {
            address,
            protocol,
            connections,
            pipeline,
            records: self.options.records(self.case, self.value_bytes),
            value_bytes: self.value_bytes,
            work,
            load_bytes_per_s: None,
            seed: self.options.seed.wrapping_add(self.round as u64),
        };
        let (mut first, mut last) = (None, None);
        let report = wire::run(&options, &mut |counts| {
            let now = running.cpu().filter(|_| counts);
            first = first.or(now);
            last = now.or(last);
        })?;
        let last = running.cpu().or(last);
        Ok((report, last.zip(first).map(|(last, first)| last.saturating_sub(first))))
    }
}

#[cfg(test)]
#[path = "../../tests/unit/ukv.rs"]
mod tests;
