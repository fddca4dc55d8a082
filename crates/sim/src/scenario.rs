//! Runs a plan against an engine and judges every answer by the model.

mod judge;
mod loads;
mod requests;
mod snapshots;

use std::ops::Bound;

use stratakv_base::Level;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::random::Random;
use stratakv_device::IoFault;
use stratakv_engine::{Error, Operation, PageRequest, RecordPart, Reply, Shard};

use crate::coverage::Coverage;
use crate::disk::{Broken, Chances, Disk, DiskOptions};
use crate::machine::{Engine, Machine, Opening};
use crate::model::{History, Seen};
use crate::plan::{Crash, Plan, PlanStep, Regime, Setup};
use requests::{Asked, Scanned, Sees};
use snapshots::Snapshots;

/// What runs added up to.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Scenarios.
    pub scenarios: u64,
    /// Power cuts, those during recovery included.
    pub power_cuts: u64,
    /// Kills of the process, likewise.
    pub kills: u64,
    /// Ends of recoveries, by their depth: the first of a row, the second, the third.
    pub in_recovery: [u64; 3],
    /// Operations handed over.
    pub operations: u64,
    /// Writes acknowledged.
    pub acknowledged: u64,
    /// Of them, loads that went straight to their place.
    pub loads: u64,
    /// Keys compared after a crash.
    pub verified: u64,
    /// Snapshots opened, pages of them that were right, and those of them that ended because they
    /// kept too much.
    pub snapshots: [u64; 3],
    /// Openings that failed for an injected error, and went well after a repair.
    pub repairs: u64,
    /// Reads that were answered with an error because of an injected fault.
    pub failed_reads: u64,
    /// Orderly closed stores of which a bit was turned.
    pub rotten: u64,
    /// After a lie of the disk: stores that would not open.
    pub refused: u64,
    /// After a lie of the disk: keys that went back to an older state unnoticed.
    pub unnoticed: u64,
    /// Openings that came to their end after a crash; and of stores without a capacity.
    pub opened: [u64; 2],
    /// Of them, those that did not need everything that was written.
    pub quick: [u64; 2],
    /// Of those, with places that could not be read any more and were not met: they stay for the
    /// life that follows.
    pub quick_and_broken: u64,
    /// Faults met.
    pub coverage: Coverage,
}

impl Statistics {
    /// Adds another's figures.
    pub fn add(&mut self, other: &Statistics) {
        self.scenarios += other.scenarios;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.in_recovery.iter_mut().zip(other.in_recovery).for_each(|(mine, theirs)| *mine += theirs);
        self.operations += other.operations;
        self.acknowledged += other.acknowledged;
        self.loads += other.loads;
        self.verified += other.verified;
        self.snapshots.iter_mut().zip(other.snapshots).for_each(|(mine, theirs)| *mine += theirs);
        self.repairs += other.repairs;
        self.failed_reads += other.failed_reads;
        self.rotten += other.rotten;
        self.refused += other.refused;
        self.unnoticed += other.unnoticed;
        for at in 0..2 {
            self.opened[at] += other.opened[at];
            self.quick[at] += other.quick[at];
        }
        self.quick_and_broken += other.quick_and_broken;
        self.coverage.add(&other.coverage);
    }
}

/// A store in the middle of a scenario.
pub(crate) struct World<'e, E: Engine> {
    machine: Machine<'e, E>,
    setup: Setup,
    histories: Vec<History>,
    /// Operations without an answer, by token.
    asked: Vec<(u32, Asked)>,
    snapshots: Snapshots,
    /// Makes every value different.
    counter: u32,
    /// The highest version heard of, and the highest before the last crash.
    highest: u64,
    floor: u64,
    /// In this life a write or a flush failed: the shard may refuse writes, and what was not
    /// durable may be damaged.
    poisoned: bool,
    /// This life ended with an orderly close.
    closed: bool,
    /// A bit of the medium was turned, once in a scenario: keys may be damaged, and say so.
    rotten: bool,
    /// Flushes that had failed when this life began.
    failed_flushes: u64,
    /// Requests that had failed, and found no space, when the store was last opened.
    failed: u64,
    full: u64,
    statistics: Statistics,
}

/// Runs a plan. Panics of the engine come through.
///
/// # Errors
/// The engine broke a promise; says which.
pub fn run<E: Engine>(engine: &E, plan: &Plan) -> Result<Statistics, String> {
    let mut world = World::new(engine, &plan.setup);
    world.statistics.scenarios = 1;
    let last = Crash { power: true, inside: [None; 3], seed: 1, rot: false };
    let mut random = Random::new(0xB00);
    world.create(&mut random)?;
    for (number, step) in plan.steps.iter().chain([&PlanStep::Crash(last)]).enumerate() {
        tracing::debug!(number, ?step);
        match world.step(step) {
            Ok(true) => {}
            Ok(false) => break,
            Err(why) => return Err(format!("at step {number}, {step:?}: {why}")),
        }
    }
    world.statistics.coverage = world.machine.disk.coverage().clone();
    Ok(world.statistics)
}

impl<'e, E: Engine> World<'e, E> {
    fn new(engine: &'e E, setup: &Setup) -> World<'e, E> {
        let mut setup = *setup;
        if let Some(bytes) = setup.capacity_bytes.as_mut().filter(|bytes| **bytes < engine.capacity_bytes_min()) {
            setup.disk_bytes += engine.capacity_bytes_min() - *bytes;
            *bytes = engine.capacity_bytes_min();
        }
        let options = DiskOptions { capacity_bytes: setup.disk_bytes, volatile_cache: setup.volatile_cache };
        let mut disk = if engine.is_driven_here() { Disk::driven(options) } else { Disk::new(options) };
        // A lie may make it forget what it discarded.
        if engine.zero_writes() && setup.regime != Regime::Lies {
            disk.demand_zeros();
        }
        let opening = Opening {
            create: true,
            volume_bytes: 0,
            capacity_bytes: setup.capacity_bytes,
            memory_bytes: setup.memory_bytes,
            depth: setup.depth,
            checkpoint_bytes: setup.checkpoint_bytes,
            record_cache: setup.record_cache,
            volatile_cache: setup.volatile_cache,
            read_only: false,
        };
        World {
            machine: Machine::new(engine, disk, opening),
            setup,
            histories: vec![History::default(); usize::from(setup.keys)],
            asked: Vec::new(),
            snapshots: Snapshots::default(),
            counter: 0,
            highest: 0,
            floor: 0,
            poisoned: false,
            closed: false,
            rotten: false,
            failed_flushes: 0,
            failed: 0,
            full: 0,
            statistics: Statistics::default(),
        }
    }

    /// Whether the disk may answer with errors.
    fn errors(&self) -> bool {
        self.setup.regime != Regime::Crashes || self.setup.chances.full > 0
    }

    fn lies(&self) -> bool {
        self.setup.regime == Regime::Lies
    }

    /// Lays out the volume. The power may fail before that is done; then it is done again.
    fn create(&mut self, random: &mut Random) -> Result<(), String> {
        self.machine.disk.set_chances(Chances { delay: self.setup.chances.delay, ..Chances::default() });
        if self.setup.keys.is_multiple_of(4) {
            // Every error of the setup, then once more without.
            self.machine.disk.set_chances(self.setup.chances);
            let stop = Some(self.setup.depth as u8 % 4 + u8::from(self.setup.volatile_cache));
            let opened = self.open(true, stop, random);
            self.end_life(self.setup.depth != 8, random);
            if opened.is_err() && !self.is_excused() {
                return Err(format!("cannot create: {opened:?}"));
            }
            self.machine.disk.set_chances(Chances::default());
            self.machine.disk.repair();
            // A store's creation clears away what an interrupted one left.
            self.machine.disk.restore(&[]);
        }
        let opened = self.open(true, None, random);
        opened.map_err(|error| format!("cannot create: {error:?}"))?;
        let capabilities = self.machine.shard().capabilities();
        if capabilities.snapshot != self.machine.opens_snapshots() {
            return Err(format!("scenarios are drawn without a look at whether there are snapshots: {capabilities:?}"));
        }
        self.machine.disk.set_chances(self.setup.chances);
        Ok(())
    }

    fn open(&mut self, create: bool, stop: Option<u8>, random: &mut Random) -> Result<bool, Error> {
        (self.failed, self.full) = (self.machine.disk.failed(), self.machine.disk.full());
        self.machine.open(create, stop, random)
    }

    /// Whether the disk or the region has given reason for an error since the store was last
    /// opened.
    fn is_excused(&self) -> bool {
        self.lies() || self.has_failed() || self.machine.disk.full() > self.full || self.machine.has_region_failed()
    }

    fn has_failed(&self) -> bool {
        self.machine.disk.failed() > self.failed
    }

    fn end_life(&mut self, power: bool, random: &mut Random) {
        if power {
            self.statistics.power_cuts += 1;
        } else {
            self.statistics.kills += 1;
        }
        self.machine.die(power, random);
    }

    /// False: the store would not open after a lie of the disk; nothing more can be asked of it.
    fn step(&mut self, step: &PlanStep) -> Result<bool, String> {
        match step {
            PlanStep::Submit(request) => self.submit(request)?,
            PlanStep::Tick { completions, seed } => {
                self.machine.tick(*completions, &mut random(*seed));
                self.take_replies()?;
            }
            PlanStep::Drain { seed } => self.drain(&mut random(*seed))?,
            PlanStep::Settle { seed } => self.run_until_idle(&mut random(*seed))?,
            PlanStep::Pass { seconds } => {
                self.drain(&mut random(*seconds))?;
                self.machine.pass(*seconds);
            }
            PlanStep::Close { seed } => self.close(&mut random(*seed))?,
            PlanStep::Crash(crash) => return self.crash(crash),
        }
        Ok(true)
    }

    fn drain(&mut self, random: &mut Random) -> Result<(), String> {
        let mut failure = Ok(());
        let mut machine_done = false;
        while !self.asked.is_empty() && !machine_done {
            machine_done = !self.machine.tick_until(random, |machine| !machine.replies.is_empty());
            failure = failure.and(self.take_replies());
        }
        failure?;
        match self.asked.first() {
            Some((token, asked)) => Err(format!("operation {token} is never answered: {asked:?}")),
            None => Ok(()),
        }
    }

    fn run_until_idle(&mut self, random: &mut Random) -> Result<(), String> {
        self.drain(random)?;
        if !self.machine.run_until_idle(random) {
            return Err("the shard never comes to rest".into());
        }
        self.audit()
    }

    fn close(&mut self, random: &mut Random) -> Result<(), String> {
        self.drain(random)?;
        if !self.machine.close(random) {
            return Err("the shard never closes".into());
        }
        // With errors about, closing may have had to give up.
        if !self.errors() {
            self.histories.iter_mut().for_each(History::closed);
            self.closed = true;
        }
        Ok(())
    }

    fn audit(&self) -> Result<(), String> {
        let audit = self.machine.audit();
        let damaged = !audit.damage.is_empty() && !self.lies() && !self.poisoned && !self.rotten;
        // A region that failed while it was written to is in order again when it has been opened.
        if damaged || !audit.mistakes.is_empty() && !self.machine.has_region_failed() {
            return Err(format!("audit: {audit:?}"));
        }
        Ok(())
    }

    /// The end of a life, perhaps of some recoveries; then the store is opened and compared with
    /// the model.
    fn crash(&mut self, crash: &Crash) -> Result<bool, String> {
        let random = &mut random(crash.seed);
        let loads = self.open_loads();
        self.asked.clear();
        self.snapshots.are_forgotten();
        self.end_life(crash.power, random);
        let rots = std::mem::take(&mut self.closed) && crash.rot && !self.rotten;
        if rots {
            self.rot(random);
            self.rotten = true;
            self.statistics.rotten += 1;
        }
        for (depth, stop) in crash.inside.iter().flatten().enumerate() {
            let opened = self.open(false, Some(*stop), random);
            match opened {
                Ok(false) => self.statistics.in_recovery[depth] += 1,
                // The recovery was quicker than the cut: the shard serves for a moment.
                Ok(true) => {}
                Err(_) if self.is_excused() => {
                    self.poisoned = true;
                    self.machine.disk.repair();
                }
                Err(error) => return Err(format!("does not open: {error}")),
            }
            self.end_life(crash.power, random);
        }
        if !self.reopen(random)? {
            return Ok(false);
        }
        self.audit()?;
        let broken = self.note_opening();
        self.floor = self.highest;
        let from: Vec<usize> = {
            let only = crash.power || self.poisoned || self.machine.disk.failed_flushes() != self.failed_flushes;
            self.histories.iter().map(|history| history.owed(only)).collect()
        };
        self.poisoned = false;
        self.failed_flushes = self.machine.disk.failed_flushes();
        self.compare(&from, rots, random)?;
        if !self.lies() && !self.rotten {
            self.compare_loads(&loads)?;
        }
        self.machine.disk.break_again(broken);
        self.draw_failing_region(crash.seed);
        Ok(true)
    }

    /// Where disks fail, regions do, in one life in four. Drawn apart: the rest of the scenario is
    /// what it was.
    fn draw_failing_region(&self, seed: u32) {
        let mut random = random(seed ^ 0x4E61_0000);
        if self.setup.regime == Regime::Errors && random.below(4) == 0 {
            let power = random.below(13);
            self.machine.fail_region_after(random.below(1 << power));
        }
    }

    /// Counts what opening needed. A place that cannot be read any more was perhaps not met by one
    /// that did not read everything: it works until the keys are compared, and is broken again in
    /// the life that follows.
    fn note_opening(&mut self) -> Broken {
        let quick = self.machine.audit().quick;
        let broken = self.machine.disk.mend_for_now();
        let unbounded = self.setup.capacity_bytes.is_none();
        for at in 0..=usize::from(unbounded) {
            self.statistics.opened[at] += 1;
            self.statistics.quick[at] += u64::from(quick);
        }
        self.statistics.quick_and_broken += u64::from(quick && broken.is_any());
        broken
    }

    /// Turns one bit, with a liking for the superblocks, for the beginnings of pages, where headers
    /// lie, and for what is not zero.
    fn rot(&mut self, random: &mut Random) {
        let used: Vec<u64> = (0..)
            .zip(self.machine.disk.bytes().chunks(PAGE_BYTES))
            .filter_map(|(number, page)| page.iter().any(|byte| *byte != 0).then_some(number))
            .collect();
        let page = match random.below(8) {
            0 => random.below(2),
            1..=5 => self.machine.disk.recent()[random.below(16) as usize],
            _ => used[random.below(used.len() as u64) as usize],
        };
        let first = page as usize * PAGE_BYTES;
        let page = self.machine.disk.bytes().get(first..first + PAGE_BYTES).unwrap_or_default();
        let filled: Vec<usize> = (0..page.len()).filter(|at| page[*at] != 0).collect();
        let at = match random.below(6) {
            0 => random.below(PAGE_BYTES as u64) as usize,
            1 => random.below(96) as usize,
            _ => filled.get(random.below(1 + filled.len() as u64) as usize).copied().unwrap_or_default(),
        };
        self.machine.disk.flip(first + at, 1 << random.below(8));
    }

    fn reopen(&mut self, random: &mut Random) -> Result<bool, String> {
        let first = self.open(false, None, random);
        if let Err(error) = first {
            if !self.is_excused() {
                return Err(format!("does not open: {error}"));
            }
            // A flush that failed may have lost what had only been written.
            self.poisoned = true;
            self.machine.disk.repair();
            self.machine.disk.set_chances(Chances::default());
            self.machine.die(false, random);
            let again = self.open(false, None, random);
            self.machine.disk.set_chances(self.setup.chances);
            match again {
                Ok(_) => self.statistics.repairs += 1,
                Err(_) if self.lies() => {
                    self.statistics.refused += 1;
                    return Ok(false);
                }
                Err(again) => return Err(format!("does not open after a repair: {again} (before it: {error})")),
            }
        }
        Ok(true)
    }

    /// Reads every key, by gets or by a scan, and settles the model on what is there.
    fn compare(&mut self, from: &[usize], rots: bool, random: &mut Random) -> Result<(), String> {
        // What is compared is what recovery found: the disk behaves until that is known.
        let chances = self.setup.chances;
        let quiet = Chances { delay: chances.delay, ..Chances::default() };
        self.machine.disk.set_chances(quiet);
        for (key, from) in from.iter().enumerate() {
            let operation = Operation::Get { key: requests::key(key as u16), part: RecordPart::Whole };
            let reply = self.ask(operation, random)?;
            self.compare_key(key, *from, rots, reply)?;
        }
        if random.below(4) == 0 {
            let (from, to) = (Bound::Unbounded, Bound::Unbounded);
            let (items_max, bytes_max) = (1000, 64 << 20);
            let request = PageRequest { from, to, reverse: false, keys_only: false, items_max, bytes_max, at: None };
            let reply = self.ask(Operation::Page(request.into()), random)?;
            let sees = Sees::Now(vec![0; self.histories.len()]);
            let keys = 0..=u16::MAX;
            let scanned = Scanned { keys, reverse: false, keys_only: false, items_max, bytes_max, sees };
            self.judge_scan(&scanned, &reply)?;
        }
        self.machine.disk.set_chances(chances);
        Ok(())
    }

    /// `rots`: a bit has just turned.
    fn compare_key(&mut self, key: usize, from: usize, rots: bool, reply: Reply) -> Result<(), String> {
        let wall = self.machine.now().wall;
        let lies = self.lies();
        self.statistics.verified += 1;
        let record = match &reply {
            Reply::Record(record) => record.as_ref(),
            Reply::Failed(Error::Corrupt(_)) => {
                self.statistics.failed_reads += 1;
                let history = &mut self.histories[key];
                match () {
                    () if lies => history.damaged(),
                    () if rots => history.rotted(from),
                    () if history.may_be_damaged(from) => history.still_rotted(),
                    () => {
                        return Err(format!("key {key} after a crash, owed {from}: {reply:?}, {}", history.describe()));
                    }
                }
                return Ok(());
            }
            other => return Err(format!("key {key} after a crash: {other:?}")),
        };
        let before = self.histories[key].describe();
        let Some(found) = self.histories[key].recovered(from, record, wall, lies) else {
            let found = record.map(|record| (record.value_bytes, record.version));
            return Err(format!("key {key} after a crash, owed {from}: found {found:?} of {before}"));
        };
        self.statistics.unnoticed += u64::from(found.older);
        if let Some(record) = record {
            self.highest = self.highest.max(record.version);
        }
        Ok(())
    }

    /// One operation, answered.
    fn ask(&mut self, operation: Operation, random: &mut Random) -> Result<Reply, String> {
        let Some(token) = self.machine.submit(operation) else {
            return Err("takes nothing right after opening".into());
        };
        let answered = |machine: &mut Machine<'e, E>| machine.replies.iter().any(|(number, _)| *number == token);
        if !self.machine.tick_until(random, answered) {
            return Err("a read right after opening is never answered".into());
        }
        let at = self.machine.replies.iter().position(|(number, _)| *number == token).unwrap_or(0);
        Ok(self.machine.replies.swap_remove(at).1)
    }
}

fn random(seed: u32) -> Random {
    Random::new(u64::from(seed) | 1 << 40)
}

fn level(power_loss: bool) -> Level {
    if power_loss { Level::PowerLoss } else { Level::ProcessCrash }
}

/// Whether the error says that the shard takes no more writes.
fn is_poison(error: &Error) -> bool {
    matches!(error, Error::Poisoned(_) | Error::Unknown(_) | Error::Pmem(_) | Error::Io { fault: IoFault::Os(_), .. })
}

fn seen_of(reply: &Reply) -> Seen<'_> {
    match reply {
        Reply::Record(record) => Seen::whole(record.as_ref()),
        _ => Seen::Absent,
    }
}
