//! One shard, its disk and its clock: the real code of an engine, told everything it would be told
//! in life.

use stratakv_base::random::Random;
use stratakv_base::{Mono, Now, Wall};
use stratakv_device::{Class, DiskOutcome, Pool};
use stratakv_engine::{Effects, Error, Io, Opener, Operation, Reply, Shard, Token};

use crate::coverage::StorePhase;
use crate::disk::Disk;

/// How to open a shard.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Lay out a new volume; else recover.
    pub create: bool,
    /// Length of the volume now.
    pub volume_bytes: u64,
    /// The engine's cap.
    pub capacity_bytes: Option<u64>,
    /// The shard's memory.
    pub memory_bytes: u64,
    /// I/O depth.
    pub depth: u32,
    /// The log grows by so many bytes from one checkpoint of the index to the next; `None` for what
    /// suits the capacity.
    pub checkpoint_bytes: Option<u32>,
    /// Records are kept in memory; else every read reaches the disk.
    pub record_cache: bool,
    /// Whether the disk has a volatile cache.
    pub volatile_cache: bool,
    /// Write nothing.
    pub read_only: bool,
}

/// What an engine says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Damage to data that was durable.
    pub damage: Vec<String>,
    /// Sums that do not add up, to the byte.
    pub mistakes: Vec<String>,
    /// Something vital was damaged, and put right from its second copy.
    pub repaired: bool,
    /// It was opened without reading everything.
    pub quick: bool,
}

/// An engine under test.
pub trait Engine {
    /// What creates and recovers it.
    type Opener: Opener<Shard = Self::Shard>;
    /// One shard of it.
    type Shard: Shard;

    /// An opener.
    fn opener(&self, opening: &Opening) -> Self::Opener;

    /// Bytes of the smallest volume it can work with.
    fn capacity_bytes_min(&self) -> u64 {
        0
    }

    /// Whether it zero-writes what it had discarded before it uses it.
    fn zero_writes(&self) -> bool {
        false
    }

    /// Whether one checksum covers what lies side by side, of several keys and of versions that
    /// newer ones hide: what goes over a range may meet damage where no key of the range is
    /// damaged.
    fn shares_blocks(&self) -> bool {
        false
    }

    /// Whether it takes loads.
    fn takes_loads(&self) -> bool {
        false
    }

    /// Whether it opens snapshots: as its capabilities say.
    fn opens_snapshots(&self) -> bool {
        false
    }

    /// Whether the NVMe driver of this process drives its disk.
    fn is_driven_here(&self) -> bool {
        false
    }

    /// In this life of the shard its region fails after so many stores and fences, if it has one.
    fn fail_region_after(&self, _calls: u64) {}

    /// Whether its region has failed in this life.
    fn has_region_failed(&self) -> bool {
        false
    }

    /// What was damaged, and whether the space accounting balances. Asked after each recovery, and
    /// at rest.
    fn audit(&self, shard: &Self::Shard) -> Audit;
}

/// See the module.
pub struct Machine<'e, E: Engine> {
    engine: &'e E,
    opening: Opening,
    /// The disk.
    pub disk: Disk,
    shard: Option<E::Shard>,
    effects: Effects,
    pool: Pool,
    now: Now,
    next_token: u32,
    outcomes: Vec<(Io, DiskOutcome)>,
    /// Answers since they were last taken.
    pub replies: Vec<(u32, Reply)>,
}

/// Turns without an event after which a shard counts as stuck.
const IDLE_TICKS_MAX: u32 = 3_000;

impl<'e, E: Engine> Machine<'e, E> {
    /// Whether the engine takes loads.
    pub fn takes_loads(&self) -> bool {
        self.engine.takes_loads()
    }

    /// Whether the engine opens snapshots.
    pub fn opens_snapshots(&self) -> bool {
        self.engine.opens_snapshots()
    }

    /// As [`Engine::fail_region_after`].
    pub fn fail_region_after(&self, calls: u64) {
        self.engine.fail_region_after(calls);
    }

    /// As [`Engine::has_region_failed`].
    pub fn has_region_failed(&self) -> bool {
        self.engine.has_region_failed()
    }

    /// A figure of the shard's statistics; 0 if it has none of this name.
    pub fn statistic(&self, name: &str) -> u64 {
        let mut statistics = Vec::new();
        self.shard().statistics(&mut statistics);
        statistics.iter().filter(|statistic| statistic.name == name).map(|statistic| statistic.value).sum()
    }

    /// A machine with an empty disk, switched off.
    pub fn new(engine: &'e E, disk: Disk, opening: Opening) -> Machine<'e, E> {
        let pool = Pool::new(opening.memory_bytes as usize);
        Machine {
            engine,
            opening,
            disk,
            shard: None,
            effects: Effects::new(pool.clone()),
            pool,
            now: Now { mono: Mono(1), wall: Wall(1_000_000_000) },
            next_token: 0,
            outcomes: Vec::new(),
            replies: Vec::new(),
        }
    }

    /// How the shard was opened, or will be.
    pub fn opening(&self) -> &Opening {
        &self.opening
    }

    /// Its blocks.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Another cap on memory, for this life of the shard.
    pub fn set_memory_bytes(&mut self, bytes: u64) {
        self.effects.memory_bytes = Some(bytes);
    }

    /// The clocks.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Moves both clocks on.
    pub fn pass(&mut self, seconds: u32) {
        self.now.wall.0 += u64::from(seconds) * 1000;
        self.now.mono.0 += u64::from(seconds) * 1_000_000_000;
    }

    /// The shard.
    ///
    /// # Panics
    /// The machine is off.
    pub fn shard(&self) -> &E::Shard {
        match &self.shard {
            Some(shard) => shard,
            None => panic!("the machine is off"),
        }
    }

    /// Whether the shard is open.
    pub fn is_on(&self) -> bool {
        self.shard.is_some()
    }

    /// As [`Engine::shares_blocks`].
    pub fn shares_blocks(&self) -> bool {
        self.engine.shares_blocks()
    }

    /// Damage and mistakes, as the engine sees them.
    pub fn audit(&self) -> Audit {
        self.engine.audit(self.shard())
    }

    /// Creates or recovers the shard. After `stop` completions, if it is not done then, gives up:
    /// `Ok(false)`.
    ///
    /// # Errors
    /// As [`Opener::finish`].
    pub fn open(&mut self, create: bool, stop: Option<u8>, random: &mut Random) -> Result<bool, Error> {
        self.disk.set_phase(if create { StorePhase::Create } else { StorePhase::Recover });
        // A pool is costly to make, and the last life's blocks are all back; but a new process
        // would not find it full of one class.
        self.pool.set_limit_bytes(self.opening.memory_bytes as usize);
        if self.pool.take(Class::Slice).is_none() || self.pool.take(Class::Page).is_none() {
            self.pool = Pool::new(self.opening.memory_bytes as usize);
        }
        self.effects = Effects::new(self.pool.clone());
        self.effects.begin(self.now);
        self.opening.create = create;
        self.opening.volume_bytes = self.disk.len_bytes();
        self.opening.volatile_cache = self.disk.options().volatile_cache;
        let mut opener = self.engine.opener(&self.opening);
        opener.start(&mut self.effects);
        let mut completed = 0;
        loop {
            self.submit_requests(random);
            if opener.is_finished() {
                break;
            }
            if stop == Some(completed) {
                return Ok(false);
            }
            completed = completed.saturating_add(1);
            let Some((tag, outcome)) = self.disk.complete(random) else {
                panic!("an opener that is not finished has something in flight");
            };
            self.now.mono.0 += 1000;
            self.effects.begin(self.now);
            opener.complete(Io::from_bits(tag), outcome, &mut self.effects);
        }
        self.shard = Some(opener.finish()?);
        self.disk.set_phase(StorePhase::Serve);
        Ok(true)
    }

    /// Hands over an operation; its number names the reply. `None` if the shard takes nothing more.
    pub fn submit(&mut self, operation: Operation) -> Option<u32> {
        self.next_token += 1;
        self.effects.begin(self.now);
        let token = Token { slot: self.next_token, generation: 0 };
        let shard = self.shard.as_mut()?;
        shard.accept(token, operation, &mut self.effects).ok()?;
        Some(self.next_token)
    }

    /// Up to `completions` requests complete, then the tick ends. Says whether anything happened.
    pub fn tick(&mut self, completions: u8, random: &mut Random) -> bool {
        let Some(shard) = self.shard.as_mut() else { return false };
        self.now.mono.0 += 1_000_000;
        self.effects.begin(self.now);
        for _ in 0..completions {
            let Some((tag, outcome)) = self.disk.complete(random) else { break };
            self.outcomes.push((Io::from_bits(tag), outcome));
        }
        let mut busy = !self.outcomes.is_empty();
        for (io, outcome) in self.outcomes.drain(..) {
            shard.complete(io, outcome, &mut self.effects);
        }
        shard.tick_end(&mut self.effects);
        assert!(self.effects.messages.is_empty(), "a store of one shard has nobody to send to");
        busy |= !self.effects.requests.is_empty() || !self.effects.replies.is_empty() || self.effects.more;
        self.submit_requests(random);
        self.replies.extend(self.effects.replies.drain(..).map(|(token, reply)| (token.slot, reply)));
        if !busy
            && self.disk.in_flight() == 0
            && let Some(at) = self.effects.wake_at
        {
            self.now.mono = self.now.mono.max(at);
        }
        busy
    }

    fn submit_requests(&mut self, random: &mut Random) {
        for (io, request) in self.effects.requests.drain(..) {
            self.disk.submit(io.to_bits(), request, random);
        }
    }

    /// Runs ticks until `done` says so. False if nothing happens any more before that.
    pub fn tick_until(&mut self, random: &mut Random, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let mut idle = 0;
        while !done(self) {
            let busy = self.tick(8, random);
            idle = if busy || self.disk.in_flight() > 0 { 0 } else { idle + 1 };
            // Nothing would wake its reactor.
            let sleeps = idle > 0 && self.effects.wake_at.is_none();
            if (sleeps && !done(self)) || idle > IDLE_TICKS_MAX {
                return false;
            }
        }
        true
    }

    /// Runs ticks until nothing is in flight and nothing more is asked.
    pub fn run_until_idle(&mut self, random: &mut Random) -> bool {
        let mut quiet = 0;
        for tick in 0..100_000 {
            let busy = self.tick(64, random);
            let resting = !busy && self.disk.in_flight() == 0;
            quiet = if resting { quiet + 1 } else { 0 };
            // What fails may be tried again for ever, at long intervals.
            if quiet == 3 || (resting && tick > 1000) {
                return true;
            }
        }
        false
    }

    /// An orderly close, up to its end.
    pub fn close(&mut self, random: &mut Random) -> bool {
        self.disk.set_phase(StorePhase::Close);
        self.effects.begin(self.now);
        let Some(shard) = self.shard.as_mut() else { return true };
        shard.close(&mut self.effects);
        self.tick_until(random, |machine| machine.shard().is_closed())
    }

    /// The end of a life: what the shard held is gone; what was in flight is up to the disk.
    pub fn die(&mut self, power: bool, random: &mut Random) {
        self.shard = None;
        self.effects.requests.clear();
        self.effects.replies.clear();
        self.replies.clear();
        self.outcomes.clear();
        if power {
            self.disk.cut_power(random);
        } else {
            self.disk.kill(random);
        }
    }
}
