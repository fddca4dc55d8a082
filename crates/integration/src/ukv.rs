//! The cache beside memcached, its extstore and Redis: each server in turn, on the same cores, with
//! the same memory and the same bytes of SSD.
//!
//! `ram`: the records fit in memory. `ssd`: they are five times the memory, and the page cache is
//! kept cold: what the kernel has of a server's files is dropped before each run and ten times a
//! second during it (ours are opened with `O_DIRECT` anyway). `depth`: as `ram`, gets of one length
//! over numbers of connections and batches. `small`: more short records than memory holds; how many
//! are there. `hits`: a cache as one is used, what was missed is set; how many gets hit.

mod baseline;
pub mod system_calls;
pub mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use stratakv_bench::Distribution;
use stratakv_bench::wire::{self, WireOptions, WireReport, Work};

use baseline::Room;
pub use baseline::{Baseline, pin_this_process};
use system_calls::Counter;

use crate::pinned::Running;

/// Connections and requests in a batch while records are loaded.
const LOAD_CONNECTIONS: usize = 64;
const LOAD_PIPELINE: usize = 4;
/// In flight at once while records are loaded, at most.
const LOAD_BYTES_MAX: usize = 16 << 20;
/// How long requests go on whose system calls are counted.
const COUNTED: Duration = Duration::from_millis(200);
/// In case `depth`.
const DEPTH_CONNECTIONS: [usize; 5] = [1, 8, 32, 128, 256];
const DEPTH_PIPELINES: [usize; 2] = [1, 16];
const DEPTH_VALUE_BYTES: usize = 4 << 10;
/// In case `small`: lengths of values, and what comes to each at the least.
const SMALL_VALUE_BYTES: [usize; 4] = [16, 64, 256, 1 << 10];
const SMALL_OVERHEAD_BYTES: u64 = 48;
/// In case `hits`: lengths of values, and how many times memory and SSD the records are.
const HITS_VALUE_BYTES: [usize; 2] = [1 << 10, 4 << 10];
const HITS_TIMES: u64 = 3;
/// At which sets of case `hits` go out: extstore drops what it cannot write in time.
const HITS_BYTES_PER_S: u64 = 64 << 20;

/// Where the records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// In memory.
    Ram,
    /// Most of them on the SSD.
    Ssd,
    /// In memory; connections and batches vary.
    Depth,
    /// Short ones, twice as many as memory holds.
    Small,
    /// In memory, on the SSD, and most of them nowhere.
    Hits,
}

impl Case {
    /// All of them.
    pub const ALL: [Case; 5] = [Case::Ram, Case::Ssd, Case::Depth, Case::Small, Case::Hits];

    /// Its name on command lines and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Case::Ram => "ram",
            Case::Ssd => "ssd",
            Case::Depth => "depth",
            Case::Small => "small",
            Case::Hits => "hits",
        }
    }

    /// Whether a server is of it.
    fn is_for(self, baseline: Baseline) -> bool {
        match self {
            Case::Ram | Case::Depth => true,
            Case::Ssd => baseline.has_ssd(),
            // Whoever never forgets is no cache.
            Case::Small => !matches!(baseline, Baseline::Slab | Baseline::Extstore),
            Case::Hits => matches!(baseline, Baseline::Tier | Baseline::Extstore),
        }
    }
}

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Gets only.
    Get,
    /// Nine gets, one set.
    Mixed,
    /// Sets only.
    Set,
}

impl Mix {
    /// All of them, in the order in which they are run.
    pub const ALL: [Mix; 3] = [Mix::Get, Mix::Mixed, Mix::Set];

    /// Its name on command lines and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Mix::Get => "get",
            Mix::Mixed => "mixed",
            Mix::Set => "set",
        }
    }

    fn get_percent(self) -> u64 {
        match self {
            Mix::Get => 100,
            Mix::Mixed => 90,
            Mix::Set => 0,
        }
    }
}

/// What to compare.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Servers.
    pub rivals: Vec<Baseline>,
    /// Cases.
    pub cases: Vec<Case>,
    /// Mixes.
    pub mixes: Vec<Mix>,
    /// Lengths of values in bytes.
    pub value_bytes: Vec<usize>,
    /// Connections, but in case `depth`.
    pub connections: usize,
    /// Requests in a batch, but in case `depth`.
    pub pipeline: usize,
    /// Which records are asked for.
    pub distribution: Distribution,
    /// Rounds: all servers in turn.
    pub rounds: u32,
    /// What counts of each run.
    pub duration: Duration,
    /// What comes before.
    pub warm_up: Duration,
    /// Memory of each server in case `ram`; half of it are records.
    pub ram_memory_bytes: u64,
    /// Memory of each server in case `ssd`; the records are five times that.
    pub ssd_memory_bytes: u64,
    /// What each may have on the SSD.
    pub ssd_bytes: u64,
    /// Cores of the server, which has a thread for each.
    pub server_cores: Vec<usize>,
    /// Core of the load generator.
    pub load_core: usize,
    /// Where the servers' files lie; what is made there is removed.
    pub place: PathBuf,
    /// Of what is drawn.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            rivals: Baseline::ALL.to_vec(),
            cases: Case::ALL.to_vec(),
            mixes: Mix::ALL.to_vec(),
            value_bytes: [1, 4, 16, 64, 256, 1024].map(|kib| kib << 10).to_vec(),
            connections: 32,
            pipeline: 1,
            distribution: Distribution::Uniform,
            rounds: 3,
            duration: Duration::from_millis(1000),
            warm_up: Duration::from_millis(200),
            ram_memory_bytes: 256 << 20,
            ssd_memory_bytes: 96 << 20,
            ssd_bytes: 2 << 30,
            server_cores: vec![0],
            load_core: 1,
            place: "./stratakv-ukv".into(),
            seed: 1,
        }
    }
}

impl Plan {
    /// Small and quick: whether it works, not how fast.
    pub fn shorten(&mut self) {
        self.rounds = 1;
        self.value_bytes = vec![4 << 10, 64 << 10];
        (self.duration, self.warm_up) = (Duration::from_millis(200), Duration::from_millis(50));
        (self.ram_memory_bytes, self.ssd_memory_bytes, self.ssd_bytes) = (96 << 20, 64 << 20, 1 << 30);
    }

    /// Whether it can be run.
    ///
    /// # Errors
    /// What cannot be.
    pub fn check(&self) -> Result<(), String> {
        let memory_bytes_min = self.ram_memory_bytes.min(self.ssd_memory_bytes);
        if memory_bytes_min < 64 << 20 || self.ssd_bytes < 6 * self.ssd_memory_bytes {
            return Err(
                "memory: 64 MiB or more (memcached's extstore wants it); SSD: six times the memory of case ssd or more"
                    .into(),
            );
        }
        let legal = [
            (self.value_bytes.iter().all(|bytes| (16..=1 << 20).contains(bytes)), "--values: 16 bytes to 1M"),
            ((1..=1000).contains(&self.connections), "--connections: 1 to 1000"),
            ((1..=1000).contains(&self.pipeline), "--pipeline: 1 to 1000"),
            ((1..=100).contains(&self.rounds), "--rounds: 1 to 100"),
            (
                self.cores_are_legal(),
                "--cores: of the server, each once, then another one, so that the load does not take all that it has",
            ),
            (!self.duration.is_zero(), "--ms: 1 or more"),
        ];
        legal.into_iter().find(|(legal, _)| !legal).map_or(Ok(()), |(_, why)| Err(why.to_owned()))
    }

    /// Where the server has several, the load may take one of them: there may be no other.
    fn cores_are_legal(&self) -> bool {
        let mut cores = self.server_cores.clone();
        cores.sort_unstable();
        cores.dedup();
        cores.len() == self.server_cores.len() && cores.iter().any(|core| *core != self.load_core)
    }

    fn room(&self, case: Case) -> Room<'_> {
        let (memory_bytes, ssd_bytes) = match case {
            Case::Ram | Case::Depth => (self.ram_memory_bytes, self.ssd_bytes),
            Case::Ssd => (self.ssd_memory_bytes, self.ssd_bytes),
            Case::Small => (self.ram_memory_bytes, 0),
            Case::Hits => (self.ssd_memory_bytes, 6 * self.ssd_memory_bytes),
        };
        Room { memory_bytes, ssd_bytes, cores: &self.server_cores }
    }

    fn records(&self, case: Case, value_bytes: usize) -> u64 {
        let room = self.room(case);
        let (data_bytes, record_bytes) = match case {
            Case::Ram | Case::Depth => (room.memory_bytes / 2, value_bytes as u64),
            Case::Ssd => (5 * room.memory_bytes, value_bytes as u64),
            Case::Small => (2 * room.memory_bytes, value_bytes as u64 + SMALL_OVERHEAD_BYTES),
            Case::Hits => (HITS_TIMES * (room.memory_bytes + room.ssd_bytes), value_bytes as u64),
        };
        (data_bytes / record_bytes).max(1)
    }

    /// Lengths of values.
    fn lengths(&self, case: Case) -> &[usize] {
        match case {
            Case::Ram | Case::Ssd => &self.value_bytes,
            Case::Depth => &[DEPTH_VALUE_BYTES],
            Case::Small => &SMALL_VALUE_BYTES,
            Case::Hits => &HITS_VALUE_BYTES,
        }
    }
}

/// What was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Where the records are.
    pub case: Case,
    /// What clients do.
    pub mix: Mix,
    /// Length of values.
    pub value_bytes: usize,
    /// Connections.
    pub connections: usize,
    /// Requests in a batch.
    pub pipeline: usize,
}

/// What was measured of one server, once.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Which server.
    pub baseline: Baseline,
    /// What was run.
    pub setting: Setting,
    /// Which round, from 1 on.
    pub round: u32,
    /// Records that were set or asked for.
    pub records: u64,
    /// By the clients.
    pub report: WireReport,
    /// Processor time of the server for each request, the kernel's work for it included.
    pub server_cpu_us: f64,
    /// The most memory the server's process has had.
    pub memory_peak_bytes: u64,
    /// System calls of the server for each request; of the last round only, and none where `perf`
    /// cannot count.
    pub system_calls: Option<f64>,
}

/// Runs the plan; `note` is called with each measurement, or with why a server could not be
/// measured.
///
/// # Errors
/// The plan cannot be run here.
pub fn run(plan: &Plan, note: &mut dyn FnMut(Result<&Measured, &str>)) -> Result<Vec<Measured>, String> {
    plan.check()?;
    pin_this_process(plan.load_core)?;
    let mut all = Vec::new();
    for round in 1..=plan.rounds {
        for case in plan.cases.iter().copied() {
            for value_bytes in plan.lengths(case) {
                for baseline in plan.rivals.iter().copied().filter(|baseline| case.is_for(*baseline)) {
                    let subject = Subject { plan, baseline, case, value_bytes: *value_bytes, round };
                    let mut keep = |measured: Measured| {
                        note(Ok(&measured));
                        all.push(measured);
                    };
                    if let Err(why) = subject.measure(&mut keep) {
                        note(Err(&format!("{}, {}, {value_bytes} bytes: {why}", baseline.name(), case.name())));
                    }
                }
            }
        }
    }
    Ok(all)
}

/// One server with records of one length.
struct Subject<'a> {
    plan: &'a Plan,
    baseline: Baseline,
    case: Case,
    value_bytes: usize,
    round: u32,
}

impl Subject<'_> {
    fn measure(&self, keep: &mut dyn FnMut(Measured)) -> Result<(), String> {
        let place = self.plan.place.join(format!("{}-{}", self.baseline.name(), std::process::id()));
        let outcome = self.measure_in(&place, keep);
        let removed = std::fs::remove_dir_all(&place);
        outcome?;
        removed.map_err(|error| format!("cannot remove {}: {error}", place.display()))
    }

    fn measure_in(&self, place: &Path, keep: &mut dyn FnMut(Measured)) -> Result<(), String> {
        let running = self.baseline.start(place, self.plan.room(self.case))?;
        let batch_bytes = LOAD_CONNECTIONS * LOAD_PIPELINE * self.value_bytes;
        let load = match batch_bytes {
            ..LOAD_BYTES_MAX => (LOAD_CONNECTIONS, LOAD_PIPELINE),
            _ => ((LOAD_BYTES_MAX / self.value_bytes).min(LOAD_CONNECTIONS), 1),
        };
        if self.case != Case::Hits {
            self.wire(&running, load, Work::Load)?;
        }
        for setting in self.settings() {
            let measured = self.one(&running, setting)?;
            keep(measured);
        }
        Ok(())
    }

    fn settings(&self) -> Vec<Setting> {
        let Subject { plan, case, value_bytes, .. } = *self;
        let of = |mix, connections, pipeline| Setting { case, mix, value_bytes, connections, pipeline };
        match case {
            Case::Ram | Case::Ssd => {
                return plan.mixes.iter().map(|mix| of(*mix, plan.connections, plan.pipeline)).collect();
            }
            Case::Small | Case::Hits => return vec![of(Mix::Get, plan.connections, plan.pipeline)],
            Case::Depth => {}
        }
        let pairs = DEPTH_PIPELINES.iter().flat_map(|pipeline| DEPTH_CONNECTIONS.map(|count| (count, *pipeline)));
        pairs.map(|(connections, pipeline)| of(Mix::Get, connections, pipeline)).collect()
    }

    fn one(&self, running: &Running, setting: Setting) -> Result<Measured, String> {
        let Plan { duration, warm_up, distribution, rounds, .. } = *self.plan;
        let work =
            |warm_up, duration| Work::Draw { get_percent: setting.mix.get_percent(), distribution, warm_up, duration };
        let depth = (setting.connections, setting.pipeline);
        let records = self.plan.records(self.case, self.value_bytes);
        let all = match self.case {
            Case::Hits => {
                Work::ReadThrough { distribution: Distribution::Zipfian, warm_up_gets: records, gets: records }
            }
            _ => work(warm_up, duration),
        };
        let (report, cpu) = self.wire(running, depth, all)?;
        let is_counted = self.round == rounds && matches!(self.case, Case::Ram | Case::Ssd);
        let system_calls = is_counted.then(|| self.system_calls(running, depth, work)).transpose()?.flatten();
        Ok(Measured {
            baseline: self.baseline,
            setting,
            round: self.round,
            records,
            report,
            server_cpu_us: cpu.as_secs_f64() * 1e6 / report.operations.max(1) as f64,
            memory_peak_bytes: running.memory_peak_bytes(),
            system_calls,
        })
    }

    /// System calls of the server for each request, in a run of its own.
    fn system_calls(
        &self,
        running: &Running,
        depth: (usize, usize),
        work: impl Fn(Duration, Duration) -> Work,
    ) -> Result<Option<f64>, String> {
        // Whoever is idle makes none, so all that are counted are for these requests and their
        // connections.
        let Some(counter) = Counter::start(running.id()) else { return Ok(None) };
        let (report, _) = self.wire(running, depth, work(Duration::ZERO, COUNTED))?;
        Ok(counter.finish().map(|calls| calls as f64 / report.operations.max(1) as f64))
    }

    /// One run of the load generator, and what the server's processor time was while it counted.
    fn wire(
        &self,
        running: &Running,
        (connections, pipeline): (usize, usize),
        work: Work,
    ) -> Result<(WireReport, Duration), String> {
        let options = WireOptions {
            address: running.address(),
            protocol: self.baseline.protocol(),
            connections,
            pipeline,
            records: self.plan.records(self.case, self.value_bytes),
            value_bytes: self.value_bytes,
            work,
            load_bytes_per_s: match self.case {
                Case::Hits => Some(HITS_BYTES_PER_S),
                Case::Ssd => self.baseline.load_bytes_per_s(),
                _ => None,
            },
            seed: self.plan.seed.wrapping_add(u64::from(self.round)),
        };
        let keep_cold = matches!(self.case, Case::Ssd | Case::Hits) && work != Work::Load;
        if keep_cold {
            running.drop_page_cache(true);
        }
        let mut before = None;
        let mut watch = |counts: bool| {
            if counts && before.is_none() {
                before = Some(running.cpu());
            }
            if keep_cold {
                running.drop_page_cache(false);
            }
        };
        let report = wire::run(&options, &mut watch).map_err(|error| format!("{error}; {}", running.said()))?;
        let cpu = running.cpu().saturating_sub(before.unwrap_or_default());
        Ok((report, cpu))
    }
}
