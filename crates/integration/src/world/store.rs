//! A process with a store embedded: sessions and futures over several shards, interleaved by the
//! seed.
//!
//! Everything asked and answered becomes one history, crashes included, and is judged by
//! [`stratakv_sim::linearizability`]: acknowledged writes survive, nothing appears that was not
//! written, reads and writes of a key are in one order. A scan is judged key by key, as reads that
//! were made while it ran: also of the keys it did not return.

mod backup;
mod client;
mod requests;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use stratakv::raw::{Operation, Reply};
use stratakv::{Engine, Level, Session};
use stratakv_base::random::Random;
use stratakv_device::Wait;
use stratakv_engine::Error;
use stratakv_sim::linearizability::{self, Failure, History, HistoryEntry};

use crate::world::{Host, Medium, Process, Setup, Statistics, left_out};
use backup::Backing;
use client::{owned, scanned};
use requests::Requests;

/// Steps of the search for an order of one run's history.
const STEPS_MAX: u64 = 1_500_000;
/// Rounds without an event after which the store counts as stuck.
const IDLE_ROUNDS_MAX: u32 = 3_000;

/// Events after a shard broke.
const EVENTS_WHEN_BROKEN_MAX: u64 = 24;

/// Beside the region of a shard of engine `matrix` its volume has at least so many.
const VOLUME_BYTES_MIN: u64 = 96 * 4096;

/// Runs the world of a seed.
///
/// # Errors
/// What the store did wrong.
pub fn run(seed: u64) -> Result<Statistics, String> {
    run_over(Medium::Kernel, seed)
}

/// As [`run`], with disks that are driven so.
///
/// # Errors
/// What the store did wrong.
pub fn run_over(medium: Medium, seed: u64) -> Result<Statistics, String> {
    let driven = |setup: &mut Setup| setup.medium = Medium::Nvme;
    match medium {
        Medium::Kernel => run_with(seed, |_| {}, |_| {}),
        Medium::Nvme => run_with(seed, driven, |_| {}),
    }
}

/// As [`run`], on engine `matrix`, whose regions survive kills, so power does not fail.
///
/// # Errors
/// What the store did wrong.
pub fn run_on_matrix(seed: u64) -> Result<Statistics, String> {
    let change = |setup: &mut Setup| {
        setup.engine = Engine::Matrix;
        setup.capacity_bytes = setup.capacity_bytes.max(VOLUME_BYTES_MIN);
    };
    run_with(seed, change, |_| {})
}

/// As [`run`], on either engine of several shards, one or two of which break in each life, as by a
/// panic. Everything is answered all the same, and each life ends.
///
/// # Errors
/// What the store did wrong.
pub fn run_breaking(seed: u64) -> Result<Statistics, String> {
    let change = |setup: &mut Setup| setup.shards = setup.shards.max(2);
    let change_matrix = |setup: &mut Setup| {
        setup.shards = setup.shards.max(2);
        setup.engine = Engine::Matrix;
        setup.capacity_bytes = setup.capacity_bytes.max(VOLUME_BYTES_MIN);
    };
    let change = if seed.is_multiple_of(3) { change_matrix } else { change };
    run_of(seed, change, |_| {}, true)
}

fn run_with(seed: u64, change: fn(&mut Setup), tamper: Tamper) -> Result<Statistics, String> {
    run_of(seed, change, tamper, false)
}

fn run_of(seed: u64, change: fn(&mut Setup), tamper: Tamper, breaks: bool) -> Result<Statistics, String> {
    let mut random = Random::new(seed ^ 0x5701_E000_0000_0001);
    let mut setup = Setup::draw(&mut random);
    change(&mut setup);
    let is_matrix = setup.engine == Engine::Matrix;
    let level = if is_matrix { Level::ProcessCrash } else { Level::PowerLoss };
    let mut run = Run {
        host: Host::new(setup, random.next_u64()),
        // Seeds that were kept for what they found are even.
        requests: Requests::new(&mut random, !seed.is_multiple_of(2), level),
        random,
        tamper,
        tick: 0,
        history: History::new(is_matrix),
        in_doubt: 0,
        backup: None,
        breaks,
        is_broken: false,
        statistics: Statistics { runs: 1, ..Statistics::default() },
    };
    let lives = 2 + run.random.below(4);
    for _ in 0..lives {
        run.life()?;
    }
    match linearizability::check(&run.history, STEPS_MAX) {
        Ok(_) => {}
        Err(Failure::Undecided { .. }) => run.statistics.undecided += 1,
        Err(failure) => return Err(failure.to_string()),
    }
    Ok(run.statistics)
}

/// Changes what a session is answered, to see that it is noticed.
type Tamper = fn(&mut Vec<(u64, Reply)>);

struct Run {
    host: Host,
    requests: Requests,
    random: Random,
    tamper: Tamper,
    tick: u64,
    history: History,
    /// Operations of this life that are not answered, or never will be.
    in_doubt: usize,
    /// A backup that is being made.
    backup: Option<Backing>,
    /// Shards break.
    breaks: bool,
    /// One has, in this life.
    is_broken: bool,
    statistics: Statistics,
}

/// What a ticket is for.
enum Asked {
    /// An entry of the history.
    Single(usize),
    /// A scan, and when it was asked.
    Scan(stratakv::raw::PageRequest, u64),
    /// A backup, or its next piece.
    Backup,
}

struct Client {
    session: Session,
    asked: BTreeMap<u64, Asked>,
}

/// An operation begun as a future.
type Begun = Pin<Box<dyn Future<Output = Reply>>>;

/// A process and those who use its store.
struct Life {
    process: Process,
    clients: Vec<Client>,
    futures: Vec<(usize, Begun)>,
}

impl Run {
    fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// From opening to the end.
    fn life(&mut self) -> Result<(), String> {
        let (process, power_cut) = self.host.reopen(&mut self.random, &mut self.statistics)?;
        self.in_doubt = 0;
        self.backup = None;
        self.is_broken = false;
        if power_cut {
            let at = self.tick();
            self.history.crash(at, Level::PowerLoss);
        }
        let mut life = Life { process, clients: Vec::new(), futures: Vec::new() };
        for _ in 0..1 + self.random.below(3) {
            let client = self.client(&life.process)?;
            life.clients.push(client);
        }
        self.look_at_everything(&mut life)?;
        let events = [10, 60, 250][self.random.below(3) as usize] + self.random.below(40);
        let mut left = events;
        while left > 0 {
            left -= 1;
            if self.breaks && self.random.below(events) == 0 {
                self.break_a_shard(&life);
                // Each answer that is unknown makes the history harder to judge.
                left = left.min(EVENTS_WHEN_BROKEN_MAX);
            }
            if !left_out::is_next() {
                self.event(&mut life)?;
            }
        }
        if self.is_broken {
            return self.end_broken(life);
        }
        match self.random.below(6) {
            0 => self.close(life),
            1 => {
                self.drain(&mut life)?;
                self.crash(life)
            }
            _ => self.crash(life),
        }
    }

    fn break_a_shard(&mut self, life: &Life) {
        let shard = self.random.below(u64::from(self.host.setup.shards)) as usize;
        life.process.runtime.break_shard(shard, self.random.below(3) as u8);
        self.is_broken = true;
        self.statistics.broken += 1;
    }

    /// A life in which a shard broke: everything is answered, now or by an end, which comes and
    /// says that it is not orderly.
    fn end_broken(&mut self, mut life: Life) -> Result<(), String> {
        if self.random.below(2) == 0 {
            self.drain(&mut life)?;
        }
        life.process.runtime.begin_close();
        self.tick_until(&mut life, |life| {
            let answered = life.clients.iter().all(|client| client.session.in_flight() == 0);
            life.process.runtime.is_ended() && answered && life.futures.is_empty()
        })?;
        if life.process.store.close().is_ok() {
            return Err("a store with a broken shard says that it was closed in order".into());
        }
        // What was in flight is done in part.
        self.host.crash(false);
        drop(life);
        self.over(Level::ProcessCrash)
    }

    fn client(&self, process: &Process) -> Result<Client, String> {
        let driver = process.runtime.driver_over(self.host.ring()?);
        Ok(Client { session: process.store.session_over(driver), asked: BTreeMap::new() })
    }

    /// After a recovery: every key is read.
    fn look_at_everything(&mut self, life: &mut Life) -> Result<(), String> {
        for operation in self.requests.everything() {
            self.submit(&mut life.clients[0], operation);
        }
        self.drain(life)
    }

    fn event(&mut self, life: &mut Life) -> Result<(), String> {
        let nanoseconds = self.random.below(60_000);
        self.host.pass(nanoseconds);
        let which = self.random.below(life.clients.len() as u64) as usize;
        match self.random.below(20) {
            0..=6 if self.in_doubt >= self.requests.in_doubt_max() => {}
            0..=5 => {
                let operation = self.requests.draw(&mut self.random);
                self.submit(&mut life.clients[which], operation);
            }
            6 => {
                let operation = self.requests.draw_for_keys(&mut self.random);
                self.begin(life, operation);
            }
            7..=11 => self.poll(&mut life.clients[which])?,
            12..=14 => self.tick_reactor(life)?,
            15..=17 => {
                for _ in 0..1 + self.random.below(4) {
                    self.host.world.step();
                }
            }
            18 => self.poll_futures(life)?,
            _ => match self.random.below(8) {
                0 => life.clients[which].session.rest().map_err(|error| format!("rest: {error}"))?,
                1 => {
                    // What the session had begun goes on; its answers are not told.
                    if life.clients[which].asked.values().any(|asked| matches!(asked, Asked::Backup)) {
                        self.backup = None;
                    }
                    life.clients[which] = self.client(&life.process)?;
                }
                2 => self.host.pass(5_000_000),
                3 | 4 if self.backup.is_none() => {
                    self.backup = Some(Backing::begun(self.tick()));
                    self.submit(&mut life.clients[which], Operation::Backup { cursor: 0, shard: 0 });
                }
                _ => {}
            },
        }
        Ok(())
    }

    fn submit(&mut self, client: &mut Client, operation: Operation) {
        self.statistics.asked += 1;
        self.in_doubt += 1;
        let asked = match &operation {
            Operation::Page(request) => Asked::Scan((**request).clone(), self.tick()),
            Operation::Backup { .. } => Asked::Backup,
            _ => Asked::Single(self.note(operation.clone())),
        };
        let ticket = client.session.submit(operation);
        client.asked.insert(ticket, asked);
    }

    /// As a future: its I/O is left to the reactors.
    fn begin(&mut self, life: &mut Life, operation: Operation) {
        self.statistics.asked += 1;
        self.in_doubt += 1;
        let entry = self.note(operation.clone());
        let store = life.process.store.clone();
        life.futures.push((entry, Box::pin(async move { store.execute_async(operation).await })));
    }

    fn note(&mut self, operation: Operation) -> usize {
        let invoked = self.tick();
        self.history.entries.push(HistoryEntry { client: 0, invoked, returned: None, operation, reply: None });
        self.history.entries.len() - 1
    }

    fn poll(&mut self, client: &mut Client) -> Result<(), String> {
        let mut answers = client.session.poll(0).map_err(|error| format!("poll: {error}"))?;
        (self.tamper)(&mut answers);
        for (ticket, reply) in answers {
            match client.asked.remove(&ticket) {
                Some(Asked::Single(entry)) => self.answered(entry, reply)?,
                Some(Asked::Scan(request, invoked)) => self.scan_answered(&request, invoked, reply)?,
                Some(Asked::Backup) => {
                    if let Some(next) = self.backup_answered(reply)? {
                        self.submit(client, next);
                    }
                }
                None => return Err(format!("ticket {ticket} was answered twice, or never given: {reply:?}")),
            }
        }
        Ok(())
    }

    fn poll_futures(&mut self, life: &mut Life) -> Result<(), String> {
        let mut at = 0;
        while at < life.futures.len() {
            match life.futures[at].1.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(reply) => {
                    let (entry, _) = life.futures.swap_remove(at);
                    self.answered(entry, reply)?;
                }
                Poll::Pending => at += 1,
            }
        }
        Ok(())
    }

    fn answered(&mut self, entry: usize, reply: Reply) -> Result<(), String> {
        let reply = owned(reply);
        self.is_expected(&reply)?;
        self.statistics.answered += 1;
        self.in_doubt -= 1;
        self.statistics.note(format!("{entry}{reply:?}").as_bytes());
        let returned = self.tick();
        let entry = &mut self.history.entries[entry];
        self.requests.learn(&entry.operation, &reply);
        entry.returned = Some(returned);
        if matches!(reply, Reply::Unmet(_)) {
            read_only(&mut entry.operation);
        }
        // The answers of the shards to a sync are added up.
        let is_sync = matches!(entry.operation, Operation::Sync) && !matches!(reply, Reply::Failed(_));
        entry.reply = Some(if is_sync { Reply::Done { version: 0, existed: false } } else { reply });
        Ok(())
    }

    fn scan_answered(
        &mut self,
        request: &stratakv::raw::PageRequest,
        invoked: u64,
        reply: Reply,
    ) -> Result<(), String> {
        let reply = owned(reply);
        self.is_expected(&reply)?;
        self.statistics.answered += 1;
        self.in_doubt -= 1;
        self.statistics.note(format!("{invoked}{reply:?}").as_bytes());
        let returned = self.tick();
        for (operation, reply) in scanned(request, &reply, self.requests.keys())? {
            let entry = HistoryEntry { client: 1, invoked, returned: Some(returned), operation, reply: Some(reply) };
            self.history.entries.push(entry);
        }
        Ok(())
    }

    /// Nothing fails here but for want of space.
    fn is_expected(&self, reply: &Reply) -> Result<(), String> {
        match reply {
            Reply::Failed(Error::Unknown(_)) if self.is_broken => Ok(()),
            Reply::Failed(Error::Full(_) | Error::MemoryFull { .. } | Error::Busy | Error::Closed) => Ok(()),
            Reply::Failed(error) => Err(format!("an operation failed on a sound machine: {error}")),
            _ => Ok(()),
        }
    }

    fn tick_reactor(&mut self, life: &mut Life) -> Result<(), String> {
        let which = self.random.below(life.process.reactors.len() as u64) as usize;
        let wait = match self.random.below(3) {
            0 => Wait::None,
            _ => Wait::For { completions: 1, timeout: None },
        };
        let turned = life.process.reactors[which].tick(wait, &mut Vec::new());
        turned.map_err(|error| format!("a reactor's ring failed: {error}"))
    }

    /// Until everything is answered.
    fn drain(&mut self, life: &mut Life) -> Result<(), String> {
        self.tick_until(life, |life| {
            life.futures.is_empty() && life.clients.iter().all(|client| client.session.in_flight() == 0)
        })
    }

    fn tick_until(&mut self, life: &mut Life, done: impl Fn(&Life) -> bool) -> Result<(), String> {
        let mut idle = 0;
        while !done(life) {
            let before = self.statistics.answered;
            for _ in 0..life.process.reactors.len() {
                self.tick_reactor(life)?;
            }
            for at in 0..life.clients.len() {
                self.poll(&mut life.clients[at])?;
            }
            self.poll_futures(life)?;
            let mut busy = self.statistics.answered > before;
            for _ in 0..8 {
                busy |= self.host.world.step();
            }
            idle = if busy { 0 } else { idle + 1 };
            self.host.pass(if busy { 20_000 } else { 10_000_000 });
            if idle > IDLE_ROUNDS_MAX {
                let waiting: usize = life.clients.iter().map(|client| client.asked.len()).sum();
                return Err(format!("nothing happens any more; {} operations wait", waiting + life.futures.len()));
            }
        }
        Ok(())
    }

    /// An orderly end. What was in progress is answered.
    fn close(&mut self, mut life: Life) -> Result<(), String> {
        life.process.runtime.begin_close();
        self.tick_until(&mut life, |life| {
            let answered = life.clients.iter().all(|client| client.session.in_flight() == 0);
            life.process.runtime.is_ended() && answered && life.futures.is_empty()
        })?;
        life.process.store.close().map_err(|error| format!("close: {error}"))?;
        drop(life);
        self.statistics.closes += 1;
        // Nothing is lost by what comes after: it counts as the mildest of crashes.
        self.over(Level::Memory)
    }

    fn crash(&mut self, life: Life) -> Result<(), String> {
        let power = self.random.below(4) > 0 && self.host.setup.engine != Engine::Matrix;
        self.host.crash(power);
        drop(life);
        *(if power { &mut self.statistics.power_cuts } else { &mut self.statistics.kills }) += 1;
        self.over(if power { Level::PowerLoss } else { Level::ProcessCrash })
    }

    fn over(&mut self, survives: Level) -> Result<(), String> {
        let at = self.tick();
        self.history.crash(at, survives);
        self.host.is_all_given_back()
    }
}

/// A write whose condition did not hold changed nothing: as a read, it shows what is durable at the
/// level of whoever wrote it.
fn read_only(operation: &mut Operation) {
    if let Operation::Write { level, .. } | Operation::Update { level, .. } = operation {
        *level = Level::Memory;
    }
}

impl Drop for Life {
    /// Users first: they hold the store.
    fn drop(&mut self) {
        self.futures.clear();
        self.clients.clear();
        self.process.reactors.clear();
    }
}

#[cfg(test)]
mod tests;
