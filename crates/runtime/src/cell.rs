//! A shard behind its lock, and its tick: completions, messages, operations, the end of the tick.
//! Its effects go to whoever ran it.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use stratakv_base::slots::Slots;
use stratakv_base::{Mono, Now, fault_point, probe};
use stratakv_device::{DiskRequest, Pool, Volume};
use stratakv_engine::{
    Effects, Error, Io, IoOutcome, Message, Operation, Reply, Shard, ShardEvent, ShardId, StageTimes, Statistic, Token,
};

use crate::mailbox::Mailbox;
use crate::slot::{Departed, Inbox, Left, Waiter, lock};

/// A shard, its volume, and what waits for it.
pub(crate) struct Cell<S> {
    pub(crate) volume: Arc<Volume>,
    /// Where the time of its operations goes.
    pub(crate) stages: Arc<StageTimes>,
    state: Mutex<State<S>>,
    /// What other shards said; nothing: they are broken.
    messages: Mutex<Vec<(ShardId, Option<Message>)>>,
    /// What this one says to others, in the order of its ticks: filled under the lock of its state,
    /// and delivered under its own.
    outbox: Mailbox<(ShardId, Message)>,
    /// Who has left since the last tick.
    left: Mailbox<Left>,
    /// It takes no messages any more. Set before the other shards are told.
    is_broken: AtomicBool,
    /// Of simulations: the next tick breaks the shard, before its stage of this number plus one; 0:
    /// it does not.
    breaks_before: AtomicU8,
    /// Someone asked for a tick: `more`, or a message.
    wants_tick: AtomicBool,
    /// Threads that wait for the lock, each with a tick of its own.
    queued: AtomicU32,
    tells_evictions: AtomicBool,
    /// The shard's cap on memory since it was changed; 0: it was not.
    memory_bytes: AtomicU64,
    /// Instant of the next tick the shard asked for; `u64::MAX` if none.
    wake_at: AtomicU64,
    closed: Condvar,
}

struct State<S> {
    shard: S,
    effects: Effects,
    /// Operations in progress: who waits for the reply.
    tokens: Slots<Waiter, Token>,
    /// Operations the shard had no room for, in order of arrival.
    backlog: VecDeque<(Waiter, Operation)>,
    closing: bool,
    /// Why the shard is never touched again: a defect left its invariants, or the loss of a ring
    /// its requests, in doubt.
    broken: Option<&'static str>,
    /// The other shards are told that it is broken.
    told: bool,
    /// The listener is told that it takes no more writes.
    told_failure: bool,
}

/// A shard panicked in the middle of a tick.
const DEFECT: &str = "a defect stopped this shard; reopen the store";
/// Requests of the shard were on a ring that failed, or with a reactor that is gone.
pub(crate) const RING_LOST: &str = "the I/O ring of this shard failed; reopen the store";

/// What a tick left to do, once the lock is released. Reused from tick to tick.
#[derive(Default)]
pub(crate) struct TickOutput {
    /// I/O to execute on the shard's volume.
    pub(crate) requests: Vec<(Io, DiskRequest)>,
    /// I/O that nobody's operation waits for.
    pub(crate) background: Vec<(Io, DiskRequest)>,
    /// Replies for the caller's own inbox.
    pub(crate) own: Vec<(u64, Reply)>,
    /// What an operator wants to hear of.
    pub(crate) events: Vec<ShardEvent>,
    /// The shard broke in this tick: the others must be told.
    pub(crate) broke: bool,
    /// The shard wants another tick, by now or by `wake_at`: someone with a ring must see to it.
    pub(crate) attention: bool,
    /// Threads with a ring that have replies, each once: they are few.
    inboxes: Vec<Arc<Inbox>>,
    /// Who waits for single replies.
    tasks: Vec<std::task::Waker>,
}

impl TickOutput {
    /// Fires the wakers collected over one or more ticks.
    pub(crate) fn fire(&mut self) {
        self.inboxes.drain(..).for_each(|inbox| inbox.wake());
        self.tasks.drain(..).for_each(std::task::Waker::wake);
    }
}

impl<S: Shard> Cell<S> {
    pub(crate) fn new(shard: S, volume: Arc<Volume>, pool: Pool) -> Cell<S> {
        let state = State {
            shard,
            effects: Effects::new(pool),
            tokens: Slots::default(),
            backlog: VecDeque::new(),
            closing: false,
            broken: None,
            told: false,
            told_failure: false,
        };
        Cell {
            volume,
            stages: Arc::clone(state.effects.stage_times()),
            state: Mutex::new(state),
            messages: Mutex::default(),
            outbox: Mailbox::default(),
            left: Mailbox::default(),
            is_broken: false.into(),
            breaks_before: 0.into(),
            wants_tick: true.into(),
            queued: 0.into(),
            tells_evictions: false.into(),
            memory_bytes: 0.into(),
            wake_at: u64::MAX.into(),
            closed: Condvar::new(),
        }
    }

    /// Whether the shard tells what it evicts, from its next tick on.
    pub(crate) fn tell_evictions(&self, tells: bool) {
        self.tells_evictions.store(tells, Ordering::Relaxed);
    }

    /// The shard's cap on memory, from its next tick on.
    pub(crate) fn set_memory_bytes(&self, bytes: u64) {
        self.memory_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Runs one tick: `completions`, messages, the backlog, `operations`, end of tick. Both lists
    /// are left empty. `me` is the caller's inbox, if it has one: its replies come back directly.
    pub(crate) fn tick(
        &self,
        now: Now,
        me: Option<&Arc<Inbox>>,
        completions: &mut Vec<(Io, IoOutcome)>,
        operations: &mut Vec<(Waiter, Operation)>,
        out: &mut TickOutput,
    ) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        let guard = self.lock();
        self.queued.fetch_sub(1, Ordering::Relaxed);
        self.tick_of(guard, now, me, completions, operations, out);
    }

    /// Whether somebody is about to have a tick. Whoever only came since one was asked for leaves
    /// it to them: the lock goes to whoever is there first, and that is who has just let go of it,
    /// again and again.
    pub(crate) fn is_awaited(&self) -> bool {
        self.queued.load(Ordering::Relaxed) > 0
    }

    /// Like [`Cell::tick`], unless another thread is in a tick of this shard: then nothing is done
    /// and false is returned.
    pub(crate) fn try_tick(
        &self,
        now: Now,
        me: Option<&Arc<Inbox>>,
        completions: &mut Vec<(Io, IoOutcome)>,
        operations: &mut Vec<(Waiter, Operation)>,
        out: &mut TickOutput,
    ) -> bool {
        match self.state.try_lock() {
            Ok(guard) => {
                self.tick_of(guard, now, me, completions, operations, out);
                true
            }
            Err(_) => false,
        }
    }

    fn tick_of(
        &self,
        mut guard: MutexGuard<'_, State<S>>,
        now: Now,
        me: Option<&Arc<Inbox>>,
        completions: &mut Vec<(Io, IoOutcome)>,
        operations: &mut Vec<(Waiter, Operation)>,
        out: &mut TickOutput,
    ) {
        self.wants_tick.store(false, Ordering::Release);
        let state = &mut *guard;
        state.effects.begin(now);
        state.effects.tells_evictions = self.tells_evictions.load(Ordering::Relaxed);
        state.effects.memory_bytes = Some(self.memory_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0);
        self.guarded(state, |state| {
            for (io, outcome) in completions.drain(..) {
                state.shard.complete(io, outcome, &mut state.effects);
            }
            for (from, message) in lock(&self.messages).drain(..) {
                match message {
                    Some(message) => state.shard.message(from, message, &mut state.effects),
                    None => state.shard.gone(from, &mut state.effects),
                }
            }
            if self.breaks(state, 0) {
                return;
            }
            state.take_operations(operations);
            if let Some(left) = self.left.collect().map(|mut left| std::mem::take(&mut *left)) {
                state.cancel(&Departed::new(left), me, out);
            }
            if self.breaks(state, 1) {
                return;
            }
            state.shard.tick_end(&mut state.effects);
            self.breaks(state, 2);
        });
        if let Some(why) = state.broken {
            completions.clear();
            state.backlog.extend(operations.drain(..));
            self.fail(state, why, me, out);
        }
        self.complete_tick(state, me, out);
        drop(guard);
    }

    /// Lets the shard work. If it panics it is broken from then on, and is not asked again.
    fn guarded(&self, state: &mut State<S>, work: impl FnOnce(&mut State<S>)) {
        if state.broken.is_none() && catch_unwind(AssertUnwindSafe(|| work(state))).is_err() {
            tracing::error!(volume = %self.volume.path().display(), "a shard panicked; its operations are answered as unknown");
            state.broken = Some(DEFECT);
        }
    }

    /// The next tick breaks the shard, as a panic would, before it takes operations (0), before the
    /// end of the tick (1) or after it (2).
    pub(crate) fn break_before(&self, stage: u8) {
        self.breaks_before.store(stage + 1, Ordering::Relaxed);
        self.wants_tick.store(true, Ordering::Release);
    }

    /// Whether the shard is to break here.
    fn breaks(&self, state: &mut State<S>, stage: u8) -> bool {
        let breaks = self.breaks_before.load(Ordering::Relaxed) == stage + 1;
        if breaks {
            state.broken = Some(DEFECT);
        }
        breaks
    }

    /// Answers everybody who waits for a broken shard. What it still wanted done is not: nobody
    /// knows whether it should be.
    fn fail(&self, state: &mut State<S>, why: &'static str, me: Option<&Arc<Inbox>>, out: &mut TickOutput) {
        out.broke |= !std::mem::replace(&mut state.told, true);
        // Before the messages go: one that is left from now on is answered by word that this shard
        // is broken.
        self.is_broken.store(true, Ordering::SeqCst);
        state.effects.requests.clear();
        state.effects.replies.clear();
        state.effects.messages.clear();
        state.effects.begin(state.effects.now());
        lock(&self.messages).clear();
        let begun = state.tokens.take_all().into_iter();
        for waiter in begun.chain(state.backlog.drain(..).map(|(waiter, _)| waiter)) {
            deliver(waiter, Reply::Failed(Error::Unknown(why)), me, out);
        }
        self.closed.notify_all();
    }

    /// Gives the shard up, unless it has ended: what is in progress is answered as unknown, and so
    /// is everything later.
    pub(crate) fn abandon(&self, why: &'static str, out: &mut TickOutput) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.broken.is_none() && !(state.closing && state.shard.is_closed()) {
            state.broken = Some(why);
            self.fail(state, why, None, out);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        match self.state.lock() {
            Ok(guard) => guard,
            // The runtime itself panicked, not the shard: see `guarded`.
            Err(poisoned) => {
                let mut guard = poisoned.into_inner();
                guard.broken.get_or_insert(DEFECT);
                guard
            }
        }
    }

    /// Moves the effects out and finds who gets the replies.
    fn complete_tick(&self, state: &mut State<S>, me: Option<&Arc<Inbox>>, out: &mut TickOutput) {
        let Effects { requests, background, .. } = &mut state.effects;
        if !background.is_empty() {
            out.background.extend(requests.extract_if(.., |(io, _)| background.contains(io)));
        }
        append(&mut out.requests, requests);
        for (token, reply) in state.effects.replies.drain(..) {
            match state.tokens.remove(token) {
                Some(waiter) => deliver(waiter, reply, me, out),
                None => tracing::error!(?token, "a shard answered an operation twice; the second answer is dropped"),
            }
        }
        if !state.effects.messages.is_empty() {
            self.outbox.leave(|outgoing| outgoing.append(&mut state.effects.messages));
        }
        out.events.append(&mut state.effects.events);
        if !state.told_failure
            && let Some(error) = state.failure()
        {
            state.told_failure = true;
            out.events.push(ShardEvent::Failed { error });
        }
        self.note_attention(state, out);
        if state.closing && state.is_ended() {
            self.closed.notify_all();
        }
    }

    fn note_attention(&self, state: &State<S>, out: &mut TickOutput) {
        // What waits for room is tried again when something ends, else at once, but for a shard
        // that says when.
        let is_forgotten = !state.backlog.is_empty() && state.tokens.is_empty() && state.effects.wake_at.is_none();
        let again = state.effects.more || is_forgotten;
        if again {
            self.wants_tick.store(true, Ordering::Release);
            out.attention = true;
        }
        let wake_at = state.effects.wake_at.map_or(u64::MAX, |at| at.0);
        let before = self.wake_at.swap(wake_at, Ordering::AcqRel);
        out.attention |= wake_at < before;
    }
}

impl<S: Shard> State<S> {
    /// Why nothing is written here until the store is opened again, if that is so.
    fn failure(&self) -> Option<Error> {
        self.broken.map(Error::Unknown).or_else(|| self.shard.failure())
    }

    /// Nothing more will come of the shard.
    fn is_ended(&self) -> bool {
        self.broken.is_some() || self.shard.is_closed()
    }

    /// The backlog first, then the new ones; what finds no room waits, in order.
    fn take_operations(&mut self, operations: &mut Vec<(Waiter, Operation)>) {
        while let Some((waiter, operation)) = self.backlog.pop_front() {
            if let Err(refused) = self.accept(waiter, operation) {
                self.backlog.push_front(refused);
                break;
            }
        }
        // One by one: if the shard panics, the rest are still there to be answered.
        operations.reverse();
        while let Some((waiter, operation)) = operations.pop() {
            // Reads and scans may overtake waiting writes: they are concurrent, and neither has
            // been acknowledged.
            let must_queue = !self.backlog.is_empty() && !is_read(&operation);
            probe!("runtime: an operation waits behind those that found no room", must_queue);
            let refused = if must_queue { Err((waiter, operation)) } else { self.accept(waiter, operation) };
            if let Err(refused) = refused {
                self.backlog.push_back(refused);
            }
        }
    }

    /// Reads of those who have left are given up, those too that wait for room.
    fn cancel(&mut self, left: &Departed, me: Option<&Arc<Inbox>>, out: &mut TickOutput) {
        let backlog = std::mem::take(&mut self.backlog);
        for (waiter, operation) in backlog {
            if is_read(&operation) && left.has(&waiter) {
                deliver(waiter, Reply::Failed(Error::Cancelled), me, out);
            } else {
                self.backlog.push_back((waiter, operation));
            }
        }
        let waiting = self.tokens.iter().filter(|(_, waiter)| left.has(waiter));
        let tokens: HashSet<Token> = waiting.map(|(token, _)| token).collect();
        if !tokens.is_empty() {
            self.shard.cancel(&|token| tokens.contains(&token), &mut self.effects);
        }
    }

    fn accept(&mut self, waiter: Waiter, operation: Operation) -> Result<(), (Waiter, Operation)> {
        let token = self.tokens.insert(waiter);
        if self.closing {
            self.effects.reply(token, Reply::Failed(Error::Closed));
            return Ok(());
        }
        self.effects.measure(token, &operation);
        match self.shard.accept(token, operation, &mut self.effects) {
            Ok(()) => Ok(()),
            Err(operation) => match self.tokens.remove(token) {
                Some(waiter) => {
                    self.effects.forget(token);
                    Err((waiter, operation))
                }
                None => Ok(()),
            },
        }
    }
}

fn is_read(operation: &Operation) -> bool {
    matches!(operation, Operation::Get { .. } | Operation::Page(_))
}

/// Moves all of `from` to the end of `to`. Nearly always that is empty: then the lists are
/// exchanged, and nothing is copied.
pub(crate) fn append<T>(to: &mut Vec<T>, from: &mut Vec<T>) {
    if to.is_empty() { std::mem::swap(to, from) } else { to.append(from) }
}

fn deliver(waiter: Waiter, reply: Reply, me: Option<&Arc<Inbox>>, out: &mut TickOutput) {
    match waiter {
        Waiter::Inbox(inbox, tag) => {
            if me.is_some_and(|me| Arc::ptr_eq(me, &inbox)) {
                out.own.push((tag, reply));
                return;
            }
            inbox.leave(tag, reply);
            if !out.inboxes.iter().any(|known| Arc::ptr_eq(known, &inbox)) {
                out.inboxes.push(inbox);
            }
        }
        Waiter::Slot(slot, index) => out.tasks.extend(slot.leave(index, reply)),
    }
}

impl<S: Shard> Cell<S> {
    /// Delivers what this shard has said so far: in order, whoever had the ticks in which it was
    /// said.
    pub(crate) fn deliver_messages(&self, mut deliver: impl FnMut(ShardId, Message)) {
        if let Some(mut outgoing) = self.outbox.collect() {
            outgoing.drain(..).for_each(|(to, message)| deliver(to, message));
        }
    }

    /// Leaves a message from another shard, or word that it is broken; taken at the next tick.
    /// False: this shard is broken and takes none.
    pub(crate) fn leave_message(&self, from: ShardId, message: Option<Message>) -> bool {
        let mut is_broken = self.is_broken.load(Ordering::SeqCst);
        fault_point!("messages_to_broken_shards_are_dropped", is_broken = false);
        if is_broken {
            return false;
        }
        lock(&self.messages).push((from, message));
        self.wants_tick.store(true, Ordering::Release);
        true
    }

    /// These callers have left: what they only wanted to read is given up in the next tick.
    pub(crate) fn leave(&self, left: Left) {
        self.left.leave(|all| all.push(left));
        self.wants_tick.store(true, Ordering::Release);
    }

    /// Whether a tick was asked for, or is due at `now`.
    pub(crate) fn is_due(&self, now: Mono) -> bool {
        self.wants_tick.load(Ordering::Acquire) || self.wake_at.load(Ordering::Acquire) <= now.0
    }

    /// The instant at which the next tick is due, if one was asked for.
    pub(crate) fn wake_at(&self) -> Option<Mono> {
        Some(Mono(self.wake_at.load(Ordering::Acquire))).filter(|at| at.0 != u64::MAX)
    }

    /// Tells the shard to finish; ticks must go on until [`Cell::wait_closed`] returns.
    pub(crate) fn begin_close(&self, now: Now, out: &mut TickOutput) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.closing {
            return;
        }
        state.effects.begin(now);
        // What is waiting for room was never begun: it is answered, not lost.
        while let Some((waiter, _)) = state.backlog.pop_front() {
            deliver(waiter, Reply::Failed(Error::Closed), None, out);
        }
        state.closing = true;
        self.guarded(state, |state| state.shard.close(&mut state.effects));
        match state.broken {
            Some(why) => self.fail(state, why, None, out),
            None => self.wants_tick.store(true, Ordering::Release),
        }
        self.complete_tick(state, None, out);
    }

    /// Whether nothing more will come of the shard: it has closed, or is broken.
    pub(crate) fn is_ended(&self) -> bool {
        self.lock().is_ended()
    }

    /// Waits until the shard has closed. At once if it is broken.
    pub(crate) fn wait_closed(&self) {
        let mut guard = self.lock();
        while !guard.is_ended() {
            guard = self.closed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        // A broken shard may have writes in flight on other threads' rings: its volume stays locked
        // until they let go of it.
        if guard.broken.is_none() {
            self.volume.unlock();
        }
    }

    /// Why nothing is written here until the store is opened again, if that is so.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.lock().failure()
    }

    pub(crate) fn statistics(&self, out: &mut Vec<Statistic>) {
        let guard = self.lock();
        let is_broken = guard.broken.is_some();
        if !is_broken {
            guard.shard.statistics(out);
        }
        let is_read_only = !is_broken && guard.shard.failure().is_some();
        out.push(Statistic { name: "read_only_after_a_failure", value: u64::from(is_read_only) });
        out.push(Statistic { name: "broken_shards", value: u64::from(is_broken) });
        out.push(Statistic { name: "operations_in_progress", value: guard.tokens.len() as u64 });
        out.push(Statistic { name: "operations_waiting_for_room", value: guard.backlog.len() as u64 });
    }

    /// Most bytes of blocks that the shard may have.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.lock().effects.pool().limit_bytes() as u64
    }

    /// Looks at the shard itself, between ticks.
    pub(crate) fn with_shard<R>(&self, look: impl FnOnce(&S) -> R) -> R {
        look(&self.lock().shard)
    }
}
