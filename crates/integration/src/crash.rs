//! Clients at work, `kill -9` and other faults on the process that has the store, and what must be
//! there afterwards.
//!
//! Each key belongs to one client, which numbers its writes. After a restart the value under a key
//! must be the last acknowledged one or one issued after it: never an older one, never another
//! key's, never torn, never one whose time is over, and its version larger than any seen before. A
//! deleted key stays away. What a restart showed is settled: it must be there after the next one,
//! unless it was overwritten. The oracle is in this process, outside the one that is faulted.

pub mod oracle;
mod trial;
pub mod writer;

use std::path::Path;
use std::time::{Duration, Instant};

use stratakv_base::random::Random;

use crate::engine::Engine;
use crate::protocol::Protocol;
pub use trial::{Load, Trial};

/// What clients do.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Keys of each client.
    pub keys_per_client: u64,
    /// Largest value, in bytes.
    pub value_bytes_max: u64,
    /// Operations may be refused for want of room, or fail.
    pub may_fail: bool,
    /// The store is a cache: what it acknowledged may be gone, and it is flushed now and then.
    pub evicts: bool,
}

impl Default for Mix {
    fn default() -> Self {
        Mix { keys_per_client: 400, value_bytes_max: 300 << 10, may_fail: false, evicts: false }
    }
}

/// What to do. Each round draws one of each list: a store written through one interface must be
/// whole through every other.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of the store.
    pub engine: Engine,
    /// How clients reach it.
    pub protocols: Vec<Protocol>,
    /// Values of `--io`.
    pub ios: Vec<String>,
    /// Values of `--durability`.
    pub levels: Vec<String>,
    /// How often to kill.
    pub rounds: u32,
    /// Writing clients.
    pub clients: u64,
    /// What they do.
    pub mix: Mix,
    /// Of twelve lives, so many end in order.
    pub closes: u64,
    /// The longest time between the first write and the kill.
    pub life_max: Duration,
    /// For the operations; the moments of the kills are never the same twice.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            engine: Engine::Slab,
            protocols: Protocol::ALL.to_vec(),
            ios: vec!["auto".into(), "blocking".into()],
            levels: vec!["power_loss".into(), "process_crash".into()],
            rounds: 200,
            clients: 8,
            mix: Mix::default(),
            closes: 1,
            life_max: Duration::from_millis(600),
            seed: 1,
        }
    }
}

impl Plan {
    /// With the levels of this engine; a cache is asked over memcache, ends in order as often as
    /// not, and may drop what it acknowledged.
    pub fn of(engine: Engine) -> Plan {
        let mut plan = Plan { engine, ..Plan::default() };
        plan.levels = engine.levels().iter().map(|level| (*level).to_owned()).collect();
        if engine.evicts() {
            plan.protocols.retain(|protocol| *protocol == Protocol::Memcache);
            (plan.closes, plan.mix.evicts) = (6, true);
        }
        plan
    }
}

/// Keys after restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Values that might be there by what was acknowledged.
    pub expected: u64,
    /// Values that were there.
    pub found: u64,
}

impl Share {
    fn add(&mut self, other: Share) {
        self.expected += other.expected;
        self.found += other.found;
    }

    /// Of those expected, so many in a hundred were there.
    pub fn percent(self) -> f64 {
        100.0 * self.found as f64 / self.expected.max(1) as f64
    }
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Kills.
    pub kills: u64,
    /// Of these, kills of a process that had just been started: most likely it was recovering.
    pub kills_in_recovery: u64,
    /// Of these, kills of a process that had been asked to end.
    pub kills_in_close: u64,
    /// Orderly ends.
    pub closes: u64,
    /// Acknowledged writes and deletes.
    pub acknowledged: u64,
    /// Writes refused for want of room, or failed.
    pub refused: u64,
    /// Writes whose outcome was not known at a kill.
    pub in_doubt: u64,
    /// Of these, writes that had happened.
    pub in_doubt_present: u64,
    /// Values compared after restarts.
    pub verified: u64,
    /// Of these, values that were gone because their time had come.
    pub expired: u64,
    /// Flushes acknowledged.
    pub flushes: u64,
    /// After kills.
    pub after_kill: Share,
    /// After orderly ends.
    pub after_close: Share,
}

/// Runs the plan on a fresh store in `data`; `report` is called after each round.
///
/// # Errors
/// Something acknowledged is lost, something else appeared, or the server does not come back: what,
/// and in which round.
pub fn run(data: &Path, plan: &Plan, report: &mut dyn FnMut(u32, &Tally)) -> Result<Tally, String> {
    let mut random = Random::new(plan.seed);
    let mut trial = Trial::new(data, plan);
    for round in 0..plan.rounds {
        let in_round = |message: String| format!("round {round}: {message}");
        trial.draw(&mut random, plan);
        if random.below(6) == 0 {
            // A crash in recovery, a crash in the recovery from that, and so on.
            for _ in 0..1 + random.below(3) {
                trial.kill_in_recovery(Duration::from_millis(random.below(60))).map_err(in_round)?;
            }
        }
        let served = trial.start().map_err(in_round)?;
        let load = trial.load(&served);
        let life = Duration::from_micros(1000 + random.below(plan.life_max.as_micros() as u64));
        let started = Instant::now();
        while started.elapsed() < life && load.is_well() {
            std::thread::sleep(Duration::from_micros(500).min(life.saturating_sub(started.elapsed())));
        }
        let ended = match random.below(12) {
            tick if tick < plan.closes => trial.close(served, load),
            11 => trial.kill_in_close(served, load, Duration::from_millis(random.below(30))),
            _ => trial.kill(served, load),
        };
        ended.map_err(in_round)?;
        report(round, &trial.tally());
    }
    trial.finish()
}
