//! Two-phase commit of batches over the shards of a store, without the engine below it:
//! docs/batches.md draws the records and argues every crash.
//!
//! [`TwoPhaseCommit`] is what a shard has of it beside its own prepare records: the [`coordinator`]
//! of the batches given to it, what an [`opening`] found, and the [`barriers`] between batches. It
//! is told what happened here and what other shards sent. [`TwoPhaseCommit::next`] tells the engine
//! what to do. It never touches a record: how a participant locks, logs and applies is the
//! engine's own.

pub mod barriers;
pub mod coordinator;
pub mod opening;
pub mod prepare_record;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prepare_record::BatchId;
use stratakv_base::Key;
use stratakv_base::checksum::shard_of;
use stratakv_engine::{Change, Effects, Error, Message, Reply, ShardId, Token};

use barriers::{BarrierKind, Barriers};
use coordinator::Coordinator;
use opening::{FoundBatch, Opening};

/// Where the engines differ. All shards of a store have the same rules.
#[derive(Clone, Copy, Debug)]
pub struct BatchRules {
    /// This shard.
    pub shard: u32,
    /// All of the store.
    pub shards: u32,
    /// Nothing is written: what an opening finds is committed in memory at most.
    pub read_only: bool,
    /// No shard logs before all have locked their keys. Otherwise that holds only for batches with
    /// read-only participants, and the rest save a round of messages.
    pub locks_first: bool,
    /// The caller is answered when the batch is decided, by what [`ToCoordinator::Prepared`] tells
    /// of its last change. Otherwise when all have applied, by [`ToCoordinator::Completed`].
    pub replies_when_decided: bool,
    /// A barrier takes two rounds: all shards stop, then each makes it. Otherwise each makes it as
    /// soon as it can.
    pub barriers_pause: bool,
}

impl BatchRules {
    /// The shard whose key it is.
    pub fn owner(&self, key: &Key) -> u32 {
        shard_of(key.encoded(), self.shards as usize) as u32
    }
}

/// Whether a batch is committed: one flag that all its participants share.
#[derive(Clone, Debug, Default)]
pub struct VisibleFlag(Arc<AtomicBool>);

impl VisibleFlag {
    /// From here on every read of the batch's keys sees it, at every shard.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether the batch is committed.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What a participant has to do, on its way to it.
#[derive(Debug)]
pub struct Prepare {
    /// Of which batch.
    pub id: BatchId,
    /// The shards that have a prepare record of it.
    pub participants: Arc<[u32]>,
    /// Of this shard, checks among them.
    pub changes: Vec<Change>,
    /// The batch's last change that is no check is this one: its answer counts.
    pub last: Option<usize>,
    /// Nothing is logged before [`ToParticipant::Log`].
    pub waits: bool,
    /// Shared by all participants.
    pub visible: VisibleFlag,
}

/// What the caller is told of the batch's last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastChange {
    /// Its version.
    pub version: u64,
    /// Whether its key existed.
    pub existed: bool,
}

/// What a participant has left of a batch that it is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A commit-done record, which goes when all participants have one.
    CommitDone,
    /// Nothing: it was the only participant.
    Erased,
    /// Its prepare record: it cannot be applied before the store is opened again. So the
    /// commit-done records of the others stay.
    Stuck,
}

/// Messages of the coordinator to a participant.
#[derive(Debug)]
pub enum ToParticipant {
    /// Lock the keys, see whether the conditions hold.
    Prepare(Prepare),
    /// Everybody has locked their keys.
    Log(BatchId),
    /// It holds, everywhere.
    Commit(BatchId),
    /// It never took place.
    Abort(BatchId),
    /// Everybody has applied: the commit-done record goes.
    Forget(BatchId),
    /// It cannot be known whether the batch holds before the store is opened again.
    InDoubt(BatchId),
    /// Everything that was found at opening is decided. No batch of a higher number was found.
    Decided(u64),
    /// Make a barrier of this number as soon as it can be, or stop for it.
    Barrier(u64),
    /// All shards have stopped: this is the instant, of a backup or of a snapshot.
    MakeBarrier(u64, BarrierKind),
    /// Another shard could not make its barrier.
    DropBarrier(u64),
}

/// Messages of a participant to the coordinator, or to shard 0.
#[derive(Debug)]
pub enum ToCoordinator {
    /// All keys are locked, all conditions hold, there is room.
    Locked(BatchId),
    /// The prepare record is durable. What came of the batch's last change, if that is here and
    /// known.
    Prepared(BatchId, Option<LastChange>),
    /// There is no prepare record, or it is not known; nobody applies anything.
    Refused(BatchId, Reply),
    /// Nothing more comes of it here. The last change again, if it was not told before.
    Completed(BatchId, Completion, Option<LastChange>),
    /// What an opening found; nothing: it cannot be read.
    Found(Option<Vec<FoundBatch>>),
    /// Stopped for the barrier of this number.
    Paused(u64),
    /// The barrier is made, or why it cannot be.
    BarrierMade(u64, Option<Error>),
}

/// Messages between shards.
#[derive(Debug)]
pub enum BatchMessage {
    /// Handled by [`TwoPhaseCommit`].
    Coordinator(ToCoordinator),
    /// Handled by the engine.
    Participant(ToParticipant),
}

impl From<ToCoordinator> for BatchMessage {
    fn from(message: ToCoordinator) -> BatchMessage {
        BatchMessage::Coordinator(message)
    }
}

impl From<ToParticipant> for BatchMessage {
    fn from(message: ToParticipant) -> BatchMessage {
        BatchMessage::Participant(message)
    }
}

impl BatchMessage {
    /// What is said instead, when what it rests on never becomes durable.
    fn when_lost(self, error: &Error) -> Option<BatchMessage> {
        let BatchMessage::Coordinator(message) = self else { return Some(self) };
        let instead = match message {
            // Its prepare record fails with everything that waits, and refuses.
            ToCoordinator::Prepared(..) => return None,
            // The next opening may find the prepare record again.
            ToCoordinator::Completed(id, ..) => ToCoordinator::Completed(id, Completion::Stuck, None),
            ToCoordinator::BarrierMade(number, _) => ToCoordinator::BarrierMade(number, Some(error.clone())),
            other => other,
        };
        Some(instead.into())
    }
}

/// What the engine is to do next.
#[derive(Debug)]
pub enum CommitStep {
    /// Answer whoever asked for a batch or a barrier.
    Reply {
        /// Who.
        token: Token,
        /// With what.
        reply: Reply,
        /// It was a batch of checks alone, so nothing that it rests on was awaited.
        is_of_checks: bool,
    },
    /// Act as a participant.
    Participant(ToParticipant),
}

/// What is on its way between this shard's batches and others.
#[derive(Debug, Default)]
pub struct Mailbox {
    shard: u32,
    inbox: VecDeque<(u32, BatchMessage)>,
    /// What is sent once everything up to this version is durable here.
    outgoing: Vec<(u64, u32, BatchMessage)>,
    replies: VecDeque<CommitStep>,
}

impl Mailbox {
    /// Sends a message, perhaps to this shard itself.
    pub fn send(&mut self, to: u32, message: impl Into<BatchMessage>) {
        if to == self.shard {
            self.inbox.push_back((to, message.into()));
        } else {
            self.outgoing.push((0, to, message.into()));
        }
    }

    /// Sends a message once everything up to this version is durable here.
    pub fn send_when(&mut self, version: u64, to: u32, message: impl Into<BatchMessage>) {
        self.outgoing.push((version, to, message.into()));
    }

    fn reply(&mut self, token: Token, reply: Reply) {
        self.replies.push_back(CommitStep::Reply { token, reply, is_of_checks: false });
    }

    /// Takes a message of another shard.
    pub fn receive(&mut self, from: ShardId, message: Message) {
        match message.0.downcast::<BatchMessage>() {
            Ok(message) => self.inbox.push_back((from.0, *message)),
            Err(_) => debug_assert!(false, "a message of another engine"),
        }
    }

    /// Sends what waits for nothing but versions that are durable now.
    pub fn post(&mut self, durable: u64, effects: &mut Effects) {
        for (_, to, message) in self.outgoing.extract_if(.., |(version, ..)| *version <= durable) {
            if to == self.shard {
                self.inbox.push_back((to, message));
            } else {
                effects.send(ShardId(to), Message(Box::new(message)));
            }
        }
    }

    /// The medium failed: nothing behind the version `durable` will be. What waits for it is said
    /// otherwise now, or not at all.
    pub fn fail_behind(&mut self, durable: u64, error: &Error) {
        for (_, to, message) in self.outgoing.extract_if(.., |(version, ..)| *version > durable).collect::<Vec<_>>() {
            if let Some(message) = message.when_lost(error) {
                self.send(to, message);
            }
        }
    }

    /// Participants' parts that have come and are not begun.
    pub fn prepares(&self) -> impl Iterator<Item = &Prepare> {
        self.inbox.iter().filter_map(|(_, message)| match message {
            BatchMessage::Participant(ToParticipant::Prepare(prepare)) => Some(prepare),
            _ => None,
        })
    }

    /// Whether something waits for the next tick.
    pub fn has_work(&self) -> bool {
        !self.inbox.is_empty() || !self.replies.is_empty()
    }

    /// Whether something could be sent or handled at once.
    pub fn is_due(&self, durable: u64) -> bool {
        self.has_work() || self.outgoing.iter().any(|(version, ..)| *version <= durable)
    }

    fn is_empty(&self) -> bool {
        !self.has_work() && self.outgoing.is_empty()
    }
}

/// See the module.
#[derive(Debug)]
pub struct TwoPhaseCommit {
    /// Messages.
    pub mail: Mailbox,
    /// Of the batches given to this shard.
    pub coordinator: Coordinator,
    /// What a crash left.
    pub opening: Opening,
    /// Between batches.
    pub barriers: Barriers,
}

impl TwoPhaseCommit {
    /// Of a shard that begins with this opening.
    pub fn new(rules: BatchRules, opening: Opening) -> TwoPhaseCommit {
        TwoPhaseCommit {
            mail: Mailbox { shard: rules.shard, ..Mailbox::default() },
            coordinator: Coordinator::new(rules),
            opening,
            barriers: Barriers::new(rules),
        }
    }

    /// The rules.
    pub fn rules(&self) -> &BatchRules {
        self.coordinator.rules()
    }

    /// Takes a batch that there is nothing wrong with, of keys of any shards. Batches are numbered
    /// by `counter`, which counts up.
    pub fn submit(&mut self, token: Token, changes: Vec<Change>, counter: &mut u64) {
        self.coordinator.queue(token, changes);
        self.admit(counter);
    }

    /// Begins a batch whose keys are all this shard's: its order is that of their queues.
    pub fn begin_here(&mut self, token: Token, changes: Vec<Change>, counter: &mut u64) {
        if self.barriers.hold_batches() {
            return self.submit(token, changes, counter);
        }
        self.coordinator.begin(token, changes, Vec::new(), counter, &mut self.mail);
    }

    fn admit(&mut self, counter: &mut u64) {
        if !self.barriers.hold_batches() {
            self.coordinator.admit(counter, &mut self.mail);
        }
    }

    /// What the engine is to do next. It calls again until nothing is left.
    pub fn next(&mut self, counter: &mut u64) -> Option<CommitStep> {
        loop {
            self.barriers.begin_next(self.coordinator.is_completed(), &mut self.mail);
            self.admit(counter);
            if let Some(reply) = self.mail.replies.pop_front() {
                return Some(reply);
            }
            match self.mail.inbox.pop_front()? {
                (from, BatchMessage::Coordinator(message)) => self.handle(from, message),
                (_, BatchMessage::Participant(message)) => {
                    if let ToParticipant::Decided(_) = message {
                        self.opening.end();
                    }
                    return Some(CommitStep::Participant(message));
                }
            }
        }
    }

    fn handle(&mut self, from: u32, message: ToCoordinator) {
        let (coordinator, mail) = (&mut self.coordinator, &mut self.mail);
        match message {
            ToCoordinator::Locked(id) => coordinator.participant_locked(from, id, mail),
            ToCoordinator::Prepared(id, last) => coordinator.participant_prepared(from, id, last, mail),
            ToCoordinator::Refused(id, reply) => coordinator.participant_refused(from, id, reply, mail),
            ToCoordinator::Completed(id, completion, last) => {
                coordinator.participant_completed(from, id, completion, last, mail);
            }
            ToCoordinator::Found(found) => self.opening.participant_found(from, found, coordinator, mail),
            ToCoordinator::Paused(number) => self.barriers.shard_paused(from, number, mail),
            ToCoordinator::BarrierMade(number, error) => self.barriers.shard_made(from, number, error, mail),
        }
    }

    /// Another shard is broken, with what its barrier fails then. Says whether no batch of those
    /// that were found here can be decided before the store is opened again.
    #[must_use]
    pub fn peer_failed(&mut self, peer: u32, barrier_error: Option<Error>) -> bool {
        self.coordinator.peer_failed(peer, &mut self.mail);
        self.barriers.peer_failed(peer, barrier_error, &mut self.mail);
        self.opening.peer_failed(peer, &mut self.coordinator, &mut self.mail)
    }

    /// Those whose batches and barriers wait to begin, and never will: the shard closes.
    pub fn give_up(&mut self) -> Vec<Token> {
        let mut tokens = self.coordinator.give_up_waiting();
        tokens.append(&mut self.barriers.give_up());
        tokens
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.mail.is_empty() && self.coordinator.is_idle() && self.barriers.is_idle() && self.opening.is_over()
    }
}

#[cfg(test)]
#[path = "../../tests/unit/batches.rs"]
mod tests;
