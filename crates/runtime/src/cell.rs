//! A shard behind its lock, and its turn.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use stratakv_base::{Mono, Now};
use stratakv_device::{DiskRequest, Pool, Volume};
use stratakv_engine::{Budget, Effects, Error, Io, Message, Operation, Outcome, Reply, Shard, ShardId, Statistic};

use crate::slot::{Inbox, Waiter, lock};
use crate::tokens::Tokens;

/// A shard, its volume, and what waits for it.
pub(crate) struct Cell<S> {
    pub(crate) volume: Arc<Volume>,
    state: Mutex<State<S>>,
    messages: Mutex<Vec<(ShardId, Message)>>,
    /// Someone asked for a turn: `more`, or a message.
    wants_turn: AtomicBool,
    /// Instant of the next turn the shard asked for; `u64::MAX` if none.
    wake_at: AtomicU64,
    closed: Condvar,
}

struct State<S> {
    shard: S,
    effects: Effects,
    tokens: Tokens,
    /// Operations the shard had no room for, in order of arrival.
    backlog: VecDeque<(Waiter, Operation)>,
    closing: bool,
    /// Panicked in the middle of a turn: its invariants are in doubt.
    broken: bool,
}

/// What a turn left to do, once the lock is released. Reused from turn to turn.
#[derive(Default)]
pub(crate) struct TurnOutput {
    /// I/O to execute on the shard's volume.
    pub(crate) requests: Vec<(Io, DiskRequest)>,
    /// Replies for the caller's own inbox.
    pub(crate) own: Vec<(u64, Reply)>,
    /// Messages to other shards of the store.
    pub(crate) messages: Vec<(ShardId, Message)>,
    /// The shard wants another turn, by now or by `wake_at`: someone with a ring must see to it.
    pub(crate) attention: bool,
    wakes: Vec<Wakeup>,
}

enum Wakeup {
    Inbox(Arc<Inbox>),
    Task(std::task::Waker),
}

impl TurnOutput {
    /// Fires the wakers collected over one or more turns.
    pub(crate) fn fire(&mut self) {
        for wake in self.wakes.drain(..) {
            match wake {
                Wakeup::Inbox(inbox) => inbox.wake(),
                Wakeup::Task(waker) => waker.wake(),
            }
        }
    }
}

impl<S: Shard> Cell<S> {
    pub(crate) fn new(shard: S, volume: Arc<Volume>, pool: Pool) -> Cell<S> {
        let state = State {
            shard,
            effects: Effects::new(pool),
            tokens: Tokens::default(),
            backlog: VecDeque::new(),
            closing: false,
            broken: false,
        };
        Cell {
            volume,
            state: Mutex::new(state),
            messages: Mutex::default(),
            wants_turn: true.into(),
            wake_at: u64::MAX.into(),
            closed: Condvar::new(),
        }
    }

    /// Runs one turn: `completions`, messages, the backlog, `operations`, end of turn. Both lists are left empty.
    /// `me` is the caller's inbox, if it has one: its replies come back directly.
    pub(crate) fn turn(
        &self,
        now: Now,
        me: Option<&Arc<Inbox>>,
        completions: &mut Vec<(Io, Outcome)>,
        operations: &mut Vec<(Waiter, Operation)>,
        out: &mut TurnOutput,
    ) {
        let guard = self.lock();
        self.turn_of(guard, now, me, completions, operations, out);
    }

    /// Like [`Cell::turn`], unless another thread is in a turn of this shard: then nothing is done and false is returned.
    pub(crate) fn try_turn(
        &self,
        now: Now,
        me: Option<&Arc<Inbox>>,
        completions: &mut Vec<(Io, Outcome)>,
        operations: &mut Vec<(Waiter, Operation)>,
        out: &mut TurnOutput,
    ) -> bool {
        match self.state.try_lock() {
            Ok(guard) => {
                self.turn_of(guard, now, me, completions, operations, out);
                true
            }
            Err(_) => false,
        }
    }

    fn turn_of(
        &self,
        mut guard: MutexGuard<'_, State<S>>,
        now: Now,
        me: Option<&Arc<Inbox>>,
        completions: &mut Vec<(Io, Outcome)>,
        operations: &mut Vec<(Waiter, Operation)>,
        out: &mut TurnOutput,
    ) {
        self.wants_turn.store(false, Ordering::Release);
        let state = &mut *guard;
        state.effects.begin(now);
        for (io, outcome) in completions.drain(..) {
            state.shard.complete(io, outcome, &mut state.effects);
        }
        for (from, message) in lock(&self.messages).drain(..) {
            state.shard.message(from, message, &mut state.effects);
        }
        state.take_operations(operations);
        state.shard.turn_end(Budget::default(), &mut state.effects);
        self.settle(state, me, out);
        drop(guard);
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        match self.state.lock() {
            Ok(guard) => guard,
            Err(poisoned) => {
                let mut guard = poisoned.into_inner();
                guard.broken = true;
                guard
            }
        }
    }

    /// Moves the effects out and finds who gets the replies.
    fn settle(&self, state: &mut State<S>, me: Option<&Arc<Inbox>>, out: &mut TurnOutput) {
        out.requests.append(&mut state.effects.requests);
        for (token, reply) in state.effects.replies.drain(..) {
            let waiter = match &reply {
                Reply::Part(_) => state.tokens.get(token).cloned(),
                _ => state.tokens.remove(token),
            };
            match waiter {
                Some(waiter) => deliver(waiter, reply, me, out),
                None => tracing::error!(?token, "a shard answered an operation twice; the second answer is dropped"),
            }
        }
        out.messages.append(&mut state.effects.messages);
        self.note_attention(state, out);
        if state.closing && state.shard.is_closed() {
            self.closed.notify_all();
        }
    }

    fn note_attention(&self, state: &State<S>, out: &mut TurnOutput) {
        let again = state.effects.more || (!state.backlog.is_empty() && state.tokens.len() == 0);
        if again {
            self.wants_turn.store(true, Ordering::Release);
            out.attention = true;
        }
        let wake_at = state.effects.wake_at.map_or(u64::MAX, |at| at.0);
        let before = self.wake_at.swap(wake_at, Ordering::AcqRel);
        out.attention |= wake_at < before;
    }
}

impl<S: Shard> State<S> {
    /// The backlog first, then the new ones; what finds no room waits, in order.
    fn take_operations(&mut self, operations: &mut Vec<(Waiter, Operation)>) {
        while let Some((waiter, operation)) = self.backlog.pop_front() {
            if let Err(refused) = self.accept(waiter, operation) {
                self.backlog.push_front(refused);
                break;
            }
        }
        for (waiter, operation) in operations.drain(..) {
            // Reads may overtake waiting writes: they are concurrent, and neither has been acknowledged.
            let must_queue = !self.backlog.is_empty() && !matches!(operation, Operation::Get { .. });
            let refused = if must_queue { Err((waiter, operation)) } else { self.accept(waiter, operation) };
            if let Err(refused) = refused {
                self.backlog.push_back(refused);
            }
        }
    }

    #[expect(clippy::result_large_err, reason = "the operation is moved back, not copied")]
    fn accept(&mut self, waiter: Waiter, operation: Operation) -> Result<(), (Waiter, Operation)> {
        let refusal = if self.broken {
            Some(Error::Unknown("a defect stopped this shard; reopen the store"))
        } else if self.closing {
            Some(Error::Closed)
        } else {
            None
        };
        let token = self.tokens.insert(waiter);
        if let Some(error) = refusal {
            self.effects.reply(token, Reply::Failed(error));
            return Ok(());
        }
        match self.shard.accept(token, operation, &mut self.effects) {
            Ok(()) => Ok(()),
            Err(operation) => match self.tokens.remove(token) {
                Some(waiter) => Err((waiter, operation)),
                None => Ok(()),
            },
        }
    }
}

fn deliver(waiter: Waiter, reply: Reply, me: Option<&Arc<Inbox>>, out: &mut TurnOutput) {
    match waiter {
        Waiter::Inbox(inbox, tag) => {
            if me.is_some_and(|me| Arc::ptr_eq(me, &inbox)) {
                out.own.push((tag, reply));
                return;
            }
            inbox.leave(tag, reply);
            let known = |wake: &Wakeup| matches!(wake, Wakeup::Inbox(other) if Arc::ptr_eq(other, &inbox));
            if !out.wakes.iter().any(known) {
                out.wakes.push(Wakeup::Inbox(inbox));
            }
        }
        Waiter::Slot(slot, index) => out.wakes.extend(slot.leave(index, reply).map(Wakeup::Task)),
    }
}

impl<S: Shard> Cell<S> {
    /// Leaves a message from another shard; taken at the next turn.
    pub(crate) fn leave_message(&self, from: ShardId, message: Message) {
        lock(&self.messages).push((from, message));
        self.wants_turn.store(true, Ordering::Release);
    }

    /// Whether a turn was asked for, or is due at `now`.
    pub(crate) fn is_due(&self, now: Mono) -> bool {
        self.wants_turn.load(Ordering::Acquire) || self.wake_at.load(Ordering::Acquire) <= now.0
    }

    /// The instant at which the next turn is due, if one was asked for.
    pub(crate) fn wake_at(&self) -> Option<Mono> {
        Some(Mono(self.wake_at.load(Ordering::Acquire))).filter(|at| at.0 != u64::MAX)
    }

    /// Tells the shard to finish; turns must go on until [`Cell::wait_closed`] returns.
    pub(crate) fn begin_close(&self, now: Now, out: &mut TurnOutput) {
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
        state.shard.close(&mut state.effects);
        self.wants_turn.store(true, Ordering::Release);
        self.settle(state, None, out);
    }

    /// Waits until the shard has closed. At once if a defect broke it.
    pub(crate) fn wait_closed(&self) {
        let mut guard = self.lock();
        while !guard.broken && !guard.shard.is_closed() {
            guard = self.closed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn statistics(&self, out: &mut Vec<Statistic>) {
        let guard = self.lock();
        guard.shard.statistics(out);
        out.push(Statistic { name: "operations_in_progress", value: guard.tokens.len() as u64 });
        out.push(Statistic { name: "operations_waiting_for_room", value: guard.backlog.len() as u64 });
    }

    /// Looks at the shard itself, between turns.
    pub(crate) fn with_shard<R>(&self, look: impl FnOnce(&S) -> R) -> R {
        look(&self.lock().shard)
    }
}
