//! A real shard as a subject: its effects are carried out at once, on a disk in memory.

use stratakv_base::random::Random;
use stratakv_base::{Level, Mono, Now, Wall};
use stratakv_device::Pool;
use stratakv_engine::{Capabilities, Effects, Error, Io, IoOutcome, Opener, Operation, Reply, Shard, Token};

use super::{Disk, Ending, Subject};

/// Turns without any progress after which an engine counts as stuck.
const IDLE_TICKS_MAX: usize = 10_000;

/// What a factory of openers is told.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// The disk has never been written.
    pub create: bool,
    /// Where the furthest write ended, in bytes.
    pub len_bytes: u64,
    /// What it may grow to, in bytes.
    pub capacity_bytes: u64,
}

/// A shard over a [`Disk`], driven by whoever asks. Completions come back in a seeded order.
pub struct ShardSubject<S, F> {
    make: F,
    shard: Option<S>,
    effects: Effects,
    disk: Disk,
    capacity_bytes: u64,
    ending: Ending,
    random: Random,
    now: Now,
    outcomes: Vec<(Io, IoOutcome)>,
    next_slot: u32,
    given_up: usize,
}

impl<S, F, O> ShardSubject<S, F>
where
    S: Shard,
    F: FnMut(Opening) -> O,
    O: Opener<Shard = S>,
{
    /// Creates a shard on an empty disk. `pool_bytes` limits its blocks, `capacity_bytes` its disk;
    /// `ending` is how each life ends.
    ///
    /// # Panics
    /// The shard cannot be created.
    pub fn new(capacity_bytes: u64, pool_bytes: usize, ending: Ending, seed: u64, make: F) -> Self {
        let mut subject = ShardSubject {
            make,
            shard: None,
            effects: Effects::new(Pool::new(pool_bytes)),
            disk: Disk::new(capacity_bytes),
            capacity_bytes,
            ending,
            random: Random::new(seed),
            now: Now { mono: Mono(1), wall: Wall(1_800_000_000_000) },
            outcomes: Vec::new(),
            next_slot: 0,
            given_up: 0,
        };
        if let Err(error) = subject.open(true) {
            panic!("cannot create: {error}");
        }
        subject
    }

    /// The disk.
    pub fn disk(&mut self) -> &mut Disk {
        &mut self.disk
    }

    /// How many reads of those who had left were given up.
    pub fn given_up(&self) -> usize {
        self.given_up
    }

    /// The shard.
    pub fn shard(&mut self) -> &mut S {
        match &mut self.shard {
            Some(shard) => shard,
            None => panic!("the shard is open between operations"),
        }
    }

    /// Ends the shard in the given way.
    pub fn end(&mut self, ending: Ending) {
        if ending == Ending::Orderly {
            self.close();
        }
        // What the dead one had in flight never reached the disk.
        self.outcomes.clear();
        self.effects.requests.clear();
        self.effects.replies.clear();
        self.effects.messages.clear();
        self.shard = None;
        let seed = self.random.next_u64();
        self.disk.end(ending, seed);
    }

    /// Opens what is on the disk.
    ///
    /// # Errors
    /// As [`Opener::finish`].
    pub fn open(&mut self, create: bool) -> Result<(), Error> {
        let opening = Opening { create, len_bytes: self.disk.len_bytes(), capacity_bytes: self.capacity_bytes };
        let mut opener = (self.make)(opening);
        self.effects.begin(self.now);
        opener.start(&mut self.effects);
        while !opener.is_finished() {
            self.carry_out();
            assert!(!self.outcomes.is_empty(), "an opener that is not finished has something in flight");
            for (io, outcome) in std::mem::take(&mut self.outcomes) {
                self.effects.begin(self.now);
                opener.complete(io, outcome, &mut self.effects);
            }
        }
        self.carry_out();
        self.shard = Some(opener.finish()?);
        Ok(())
    }

    fn close(&mut self) {
        self.effects.begin(self.now);
        let mut shard = match self.shard.take() {
            Some(shard) => shard,
            None => return,
        };
        shard.close(&mut self.effects);
        self.shard = Some(shard);
        for _ in 0..IDLE_TICKS_MAX {
            if self.shard().is_closed() {
                return;
            }
            self.tick(&mut Vec::new());
        }
        panic!("the shard does not close");
    }

    /// One tick: completions, then as many of `waiting` as the shard takes, then its end; then
    /// requests are carried out.
    fn tick(&mut self, waiting: &mut Vec<(Token, Operation)>) {
        self.now.mono.0 += 1000;
        if self.outcomes.is_empty()
            && !self.effects.more
            && let Some(at) = self.effects.wake_at
        {
            self.now.mono = self.now.mono.max(at);
        }
        self.effects.begin(self.now);
        let Some(shard) = self.shard.as_mut() else { return };
        for (io, outcome) in std::mem::take(&mut self.outcomes) {
            shard.complete(io, outcome, &mut self.effects);
        }
        let mut refused = Vec::new();
        for (token, operation) in waiting.drain(..) {
            // Once one is refused the later ones wait too, so that their order stays.
            if !refused.is_empty() {
                refused.push((token, operation));
            } else if let Err(operation) = shard.accept(token, operation, &mut self.effects) {
                refused.push((token, operation));
            }
        }
        *waiting = refused;
        shard.tick_end(&mut self.effects);
        assert!(self.effects.messages.is_empty(), "a store of one shard has nobody to send to");
        self.carry_out();
    }

    /// Carries out every request, in order; the outcomes come in another.
    fn carry_out(&mut self) {
        for (io, request) in std::mem::take(&mut self.effects.requests) {
            let outcome = self.disk.execute(request);
            let at = self.random.below(self.outcomes.len() as u64 + 1) as usize;
            self.outcomes.insert(at, (io, outcome));
        }
    }
}

/// The cases ask for the highest level; of an engine that is not durable, for what it has.
fn in_memory(mut operation: Operation) -> Operation {
    if let Operation::Update { level, .. } | Operation::Write { level, .. } | Operation::DeleteRange { level, .. } =
        &mut operation
        && *level == Level::PowerLoss
    {
        *level = Level::Memory;
    }
    operation
}

impl<S, F, O> Subject for ShardSubject<S, F>
where
    S: Shard,
    F: FnMut(Opening) -> O,
    O: Opener<Shard = S>,
{
    fn capabilities(&self) -> Capabilities {
        self.shard.as_ref().map_or(Capabilities::default(), Shard::capabilities)
    }

    fn execute(&mut self, operation: Operation) -> Reply {
        match self.execute_all(vec![operation]).pop() {
            Some(reply) => reply,
            None => panic!("one operation has one reply"),
        }
    }

    fn execute_all(&mut self, operations: Vec<Operation>) -> Vec<Reply> {
        self.execute_leaving(operations, &|_| false)
    }

    fn execute_leaving(&mut self, operations: Vec<Operation>, leaves: &dyn Fn(usize) -> bool) -> Vec<Reply> {
        let first = self.next_slot;
        let mut answers: Vec<Option<Reply>> = operations.iter().map(|_| None).collect();
        let tokens = (first..).map(|slot| Token { slot, generation: slot ^ 0x5EED });
        let durable = self.capabilities().durable;
        let operations = operations.into_iter().map(|operation| if durable { operation } else { in_memory(operation) });
        let mut waiting: Vec<(Token, Operation)> = tokens.zip(operations).collect();
        self.next_slot += answers.len() as u32;
        let (mut idle_ticks, mut ticks) = (0, 0);
        while answers.iter().any(Option::is_none) {
            let waited = waiting.len();
            self.tick(&mut waiting);
            ticks += 1;
            if ticks == 1
                && let Some(shard) = &mut self.shard
            {
                let has_left = |token: Token| leaves(token.slot.wrapping_sub(first) as usize);
                shard.cancel(&has_left, &mut self.effects);
            }
            let progress = !self.outcomes.is_empty() || !self.effects.replies.is_empty() || waiting.len() < waited;
            idle_ticks = if progress { 0 } else { idle_ticks + 1 };
            assert!(idle_ticks < IDLE_TICKS_MAX, "stuck: no I/O in flight, {} operations refused", waiting.len());
            for (token, reply) in std::mem::take(&mut self.effects.replies) {
                let answer = answers.get_mut(token.slot.wrapping_sub(first) as usize);
                let Some(answer) = answer else { panic!("a reply to {token:?}, which asked nothing: {reply:?}") };
                assert!(answer.is_none(), "a second reply to one token");
                self.given_up += usize::from(matches!(reply, Reply::Failed(Error::Cancelled)));
                *answer = Some(reply);
            }
        }
        answers.into_iter().flatten().collect()
    }

    fn reopen(&mut self) {
        let ending = self.ending;
        self.end(ending);
        if let Err(error) = self.open(false) {
            panic!("cannot open again after {ending:?}: {error}");
        }
    }

    fn wall(&self) -> Wall {
        self.now.wall
    }

    fn advance_wall(&mut self, millis: u64) {
        self.now.wall.0 += millis;
        self.now.mono.0 += millis * 1_000_000;
    }
}
