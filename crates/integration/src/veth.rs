//! AF_XDP beside the kernel's TCP: servers in turn at one end of a cable between two network
//! namespaces, the load at the other, each on a core of its own.

pub mod network;
mod server;
pub mod table;

use std::path::PathBuf;
use std::time::Duration;

use stratakv_bench::Distribution;
use stratakv_bench::wire::{self, WireOptions, WireReport, Work};

use crate::ukv::Mix;
use network::Network;
pub use server::Contender;
use server::Running;

/// Connections and requests in a batch while records are loaded.
const LOAD_DEPTH: (usize, usize) = (16, 4);
/// The records are this part of a server's memory.
const MEMORY_BY_RECORDS: u64 = 4;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Servers.
    pub contenders: Vec<Contender>,
    /// Gets, sets or both at once.
    pub mixes: Vec<Mix>,
    /// Lengths of values in bytes.
    pub value_bytes: Vec<usize>,
    /// Connections.
    pub connections: Vec<usize>,
    /// Requests in a batch.
    pub pipelines: Vec<usize>,
    /// Rounds: all servers in turn.
    pub rounds: u32,
    /// What counts of each run.
    pub duration: Duration,
    /// What comes before.
    pub warm_up: Duration,
    /// Memory of each server.
    pub memory_bytes: u64,
    /// Core of the server, and of the load generator.
    pub cores: (usize, usize),
    /// Whether each end's frames are received on the core of that end.
    pub is_steered: bool,
    /// Longest packet of the cable.
    pub mtu: u32,
    /// Where the servers' files lie; what is made there is removed.
    pub place: PathBuf,
    /// Of what is drawn.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            contenders: Contender::ALL.to_vec(),
            mixes: vec![Mix::Get, Mix::Set],
            value_bytes: [1, 4, 16, 64].map(|kib| kib << 10).to_vec(),
            connections: vec![1, 16, 64, 256],
            pipelines: vec![1, 16],
            rounds: 3,
            duration: Duration::from_millis(500),
            warm_up: Duration::from_millis(100),
            memory_bytes: 256 << 20,
            cores: (0, 1),
            is_steered: true,
            mtu: 1500,
            place: "./stratakv-veth".into(),
            seed: 1,
        }
    }
}

impl Plan {
    /// Small and quick: whether it works, not how fast.
    pub fn shorten(&mut self) {
        self.rounds = 1;
        (self.value_bytes, self.connections) = (vec![1 << 10, 4 << 10], vec![1, 64]);
        (self.duration, self.warm_up) = (Duration::from_millis(100), Duration::from_millis(30));
        self.memory_bytes = 64 << 20;
    }

    /// Whether it can be run.
    ///
    /// # Errors
    /// What cannot be.
    pub fn check(&self) -> Result<(), String> {
        let within = |numbers: &[usize]| numbers.iter().all(|number| (1..=1000).contains(number));
        let legal = [
            (self.value_bytes.iter().all(|bytes| (16..=1 << 20).contains(bytes)), "--values: 16 bytes to 1M"),
            (within(&self.connections), "--connections: 1 to 1000"),
            (within(&self.pipelines), "--pipelines: 1 to 1000"),
            ((1..=100).contains(&self.rounds), "--rounds: 1 to 100"),
            (self.cores.0 != self.cores.1, "--cores: two, so that the load does not take the server's"),
            (self.memory_bytes >= 64 << 20, "--memory: 64M or more"),
            ((1280..=9000).contains(&self.mtu), "--mtu: 1280 to 9000"),
            (!self.duration.is_zero(), "--ms: 1 or more"),
        ];
        legal.into_iter().find(|(legal, _)| !legal).map_or(Ok(()), |(_, why)| Err(why.to_owned()))
    }

    fn records(&self, value_bytes: usize) -> u64 {
        (self.memory_bytes / MEMORY_BY_RECORDS / value_bytes as u64).max(1)
    }
}

/// What was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
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
    pub contender: Contender,
    /// What was run.
    pub setting: Setting,
    /// Which round, from 1 on.
    pub round: u32,
    /// By the clients.
    pub report: WireReport,
    /// Processor time of the server's process for each request, with the kernel's work that ran on
    /// its account.
    pub process_us: f64,
    /// Time for each request that the server's core was not idle, interrupts included.
    pub core_us: f64,
}

/// Runs the plan; `note` is called with each measurement, or with why a server could not be
/// measured.
///
/// # Errors
/// The plan cannot be run here.
pub fn run(plan: &Plan, note: &mut dyn FnMut(Result<&Measured, &str>)) -> Result<Vec<Measured>, String> {
    plan.check()?;
    crate::ukv::pin_this_process(plan.cores.1)?;
    network::go_first(std::process::id(), 1)?;
    let network = Network::new(plan.mtu)?;
    network.enter()?;
    let mut all = Vec::new();
    for round in 1..=plan.rounds {
        for value_bytes in plan.value_bytes.iter().copied() {
            for contender in plan.contenders.iter().copied() {
                let subject = Subject { plan, network: &network, contender, value_bytes, round };
                let mut keep = |measured: Measured| {
                    note(Ok(&measured));
                    all.push(measured);
                };
                if let Err(why) = subject.measure(&mut keep) {
                    note(Err(&format!("{}, {value_bytes} bytes: {why}", contender.name())));
                }
            }
        }
    }
    Ok(all)
}

/// One server with records of one length.
struct Subject<'a> {
    plan: &'a Plan,
    network: &'a Network,
    contender: Contender,
    value_bytes: usize,
    round: u32,
}

impl Subject<'_> {
    fn measure(&self, keep: &mut dyn FnMut(Measured)) -> Result<(), String> {
        let place = self.plan.place.join(format!("{}-{}", self.contender.name(), std::process::id()));
        let outcome = self.measure_in(&place, keep);
        let removed = std::fs::remove_dir_all(&place);
        outcome?;
        removed.map_err(|error| format!("cannot remove {}: {error}", place.display()))
    }

    fn measure_in(&self, place: &std::path::Path, keep: &mut dyn FnMut(Measured)) -> Result<(), String> {
        let Plan { mixes, connections, pipelines, .. } = self.plan;
        self.network.prepare(self.contender == Contender::Xdp, self.plan.is_steered.then_some(self.plan.cores))?;
        let running = self.contender.start(place, self.network, self.plan)?;
        self.wire(&running, LOAD_DEPTH, Work::Load)?;
        for mix in mixes.iter().copied() {
            for (connections, pipeline) in
                pipelines.iter().flat_map(|pipeline| connections.iter().map(|count| (*count, *pipeline)))
            {
                let setting = Setting { mix, value_bytes: self.value_bytes, connections, pipeline };
                keep(self.one(&running, setting)?);
            }
        }
        Ok(())
    }

    fn one(&self, running: &Running, setting: Setting) -> Result<Measured, String> {
        let Plan { duration, warm_up, .. } = *self.plan;
        let get_percent = if setting.mix == Mix::Get { 100 } else { 0 };
        let work = Work::Draw { get_percent, distribution: Distribution::Uniform, warm_up, duration };
        let (report, used) = self.wire(running, (setting.connections, setting.pipeline), work)?;
        let for_each = |time: Duration| time.as_secs_f64() * 1e6 / report.operations.max(1) as f64;
        Ok(Measured {
            contender: self.contender,
            setting,
            round: self.round,
            report,
            process_us: for_each(used.process),
            core_us: for_each(used.core),
        })
    }

    /// One run of the load generator, and what the server used while it counted.
    fn wire(
        &self,
        running: &Running,
        (connections, pipeline): (usize, usize),
        work: Work,
    ) -> Result<(WireReport, Used), String> {
        let options = WireOptions {
            address: running.address(),
            protocol: self.contender.protocol(),
            connections,
            pipeline,
            records: self.plan.records(self.value_bytes),
            value_bytes: self.value_bytes,
            work,
            load_bytes_per_s: None,
            seed: self.plan.seed.wrapping_add(u64::from(self.round)),
        };
        let now = || Used { process: running.cpu(), core: crate::process::core_busy(self.plan.cores.0) };
        let mut before = None;
        let mut watch = |counts: bool| {
            if counts && before.is_none() {
                before = Some(now());
            }
        };
        let report = wire::run(&options, &mut watch).map_err(|error| format!("{error}; {}", running.said()))?;
        let (after, before) = (now(), before.unwrap_or_default());
        let process = after.process.saturating_sub(before.process);
        Ok((report, Used { process, core: after.core.saturating_sub(before.core) }))
    }
}

/// Processor time.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    process: Duration,
    core: Duration,
}
