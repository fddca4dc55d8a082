//! Batches over several shards, and barriers through all of them: docs/batches.md draws the records
//! and argues every crash.
//!
//! Shard 0 *coordinates* ([`coordinator`]); a shard whose keys a batch changes is a *participant*
//! and has a [`prepare_record`] of it, one whose keys are only checked is a *read-only
//! participant*. A prepare record is a write like others, which locks its keys in their queues, but
//! waits for shard 0. What a crash left is completed by [`opening`]; a snapshot or a
//! backup begins with a [`barrier`]. Everything that is said goes out at the end of a tick, once
//! what it rests on is durable.

mod barrier;
mod coordinator;
mod opening;
pub(crate) mod prepare_record;
pub(crate) mod publication;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use stratakv_base::checksum::shard_of;
use stratakv_base::{Key, fault_point};
use stratakv_engine::prepare_record::BatchId;
use stratakv_engine::{Change, Effects, Error, Message, Operation, Reply, ShardId, Token};
use stratakv_pmem::Pmem;

use crate::matrix::{Closing, Matrix};
use barrier::Barriers;
use coordinator::Coordinator;
use opening::{FoundBatchRecord, Opening};
use publication::Publication;

/// Of operations that nobody outside asked for.
pub(crate) const INTERNAL: Token = Token { slot: u32::MAX, generation: u32::MAX };

/// Messages between shards.
#[derive(Debug)]
pub(crate) enum BatchMessage {
    Prepare(Prepare),
    /// All keys are locked, all conditions hold, there is room.
    Locked(BatchId),
    /// Everybody has locked their keys.
    Log(BatchId),
    /// The prepare record is durable.
    Prepared(BatchId),
    /// There is no prepare record, or it is not known; nobody applies anything.
    Refused {
        id: BatchId,
        reply: Reply,
    },
    Commit(BatchId),
    Abort(BatchId),
    /// Applied, durably, or not before the store is opened again.
    Completed {
        id: BatchId,
        done: Option<Done>,
    },
    /// Everybody has applied: the commit-done records go.
    Forget(BatchId),
    /// What an opening found; nothing: it cannot be read.
    Found(Option<Vec<FoundBatchRecord>>),
    Decided,
    /// It cannot be known whether the batch holds.
    InDoubt(BatchId),
    /// Append nothing until the barrier of this number is made.
    Pause(u64),
    Paused(u64),
    Barrier {
        number: u64,
        backup: bool,
    },
    BarrierMade {
        number: u64,
        error: Option<Error>,
    },
    /// Another shard could not make it.
    Uncut(u64),
}

/// What a participant has to do, on its way to it.
#[derive(Debug)]
pub(crate) struct Prepare {
    id: BatchId,
    participants: Arc<[u32]>,
    changes: Vec<Change>,
    /// The batch's last change is this one: its answer counts.
    last: Option<usize>,
    visible: Arc<AtomicBool>,
}

/// What applying came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    /// Of the batch's last change, if it was here.
    last: Option<(u64, bool)>,
}

/// Batches of a shard.
#[derive(Debug)]
pub(crate) struct Batches {
    inbox: VecDeque<(u32, BatchMessage)>,
    /// What is said once the log is durable up to this version.
    outgoing: Vec<(u64, u32, BatchMessage)>,
    /// The operations that prepare records are.
    prepare_records: BTreeMap<BatchId, u64>,
    /// Prepare records that are logged, whether their batches are visible, and who waits for them.
    pub(crate) publication: Publication,
    /// Keys of prepare records that cannot be applied before the store is opened again.
    stuck: HashSet<Key>,
    /// Commit-done records that can go.
    forgotten: Vec<BatchId>,
    coordinator: Coordinator,
    barriers: Barriers,
    opening: Opening,
}

impl Batches {
    /// Of one of so many shards.
    pub(crate) fn new(shards: u32) -> Batches {
        Batches {
            inbox: VecDeque::new(),
            outgoing: Vec::new(),
            prepare_records: BTreeMap::new(),
            publication: Publication::default(),
            stuck: HashSet::new(),
            forgotten: Vec::new(),
            coordinator: Coordinator::default(),
            barriers: Barriers::default(),
            opening: Opening::new(shards),
        }
    }

    /// Whether appends wait for a barrier.
    pub(crate) fn is_paused(&self) -> bool {
        fault_point!("trial_cut_while_others_write", return false);
        self.barriers.is_paused()
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.inbox.is_empty()
            && self.outgoing.is_empty()
            && self.prepare_records.is_empty()
            && self.publication.is_idle()
            && self.coordinator.is_idle()
            && self.barriers.is_idle()
            && self.opening.is_over()
    }

    /// Batches under way here as coordinator or participant.
    pub(crate) fn under_way(&self) -> u64 {
        (self.prepare_records.len() + self.coordinator.waiting()) as u64
    }

    /// Batches committed here as coordinator.
    pub(crate) fn done(&self) -> u64 {
        self.coordinator.done
    }

    /// What came of reading the records of batches.
    pub(crate) fn opening_read(&mut self, reply: Reply) {
        self.opening.read(reply);
    }

    fn send_when(&mut self, version: u64, to: u32, send: BatchMessage) {
        self.outgoing.push((version, to, send));
    }

    fn send(&mut self, to: u32, send: BatchMessage) {
        self.send_when(0, to, send);
    }
}

impl<P: Pmem> Matrix<P> {
    /// Takes an operation that several shards are needed for. Gives back what is this shard's own.
    pub(crate) fn take_of_all(
        &mut self,
        token: Token,
        operation: Operation,
        effects: &mut Effects,
    ) -> Option<Operation> {
        if self.config.shards <= 1 {
            return Some(operation);
        }
        let shards = self.config.shards as usize;
        let is_others = |change: &Change| shard_of(change.key.encoded(), shards) as u32 != self.config.shard;
        match operation {
            Operation::Write { changes, .. } if changes.iter().any(is_others) => {
                if self.config.shard == 0 {
                    self.submit_batch(token, changes);
                    effects.more();
                } else {
                    let error = Error::BadBatch("it is of several shards, and was not given to shard 0");
                    effects.reply(token, Reply::Failed(error));
                }
                None
            }
            operation if self.config.shard == 0 && barrier::is_barrier(&operation) => {
                self.batches.barriers.ask(token, matches!(operation, Operation::Backup { .. }));
                effects.more();
                None
            }
            operation => Some(operation),
        }
    }

    /// Why an operation cannot be, if a batch that cannot be applied has its keys, or perhaps
    /// has.
    pub(crate) fn batch_complaint(&self, operation: &Operation) -> Option<Error> {
        if let Some(error) = self.batches.opening.refusal() {
            return Some(error.clone());
        }
        if self.batches.stuck.is_empty() {
            return None;
        }
        let is_stuck = match operation {
            Operation::Get { key, .. } | Operation::Update { key, .. } => self.batches.stuck.contains(key),
            Operation::Write { changes, .. } => changes.iter().any(|change| self.batches.stuck.contains(&change.key)),
            Operation::Snapshot(_) | Operation::Sync | Operation::List(_) => false,
            Operation::Page(_) | Operation::DeleteRange { .. } | Operation::Load { .. } | Operation::Backup { .. } => {
                true
            }
        };
        is_stuck.then_some(Error::Unknown("a batch could not be carried out here; open the store again to see it"))
    }

    /// Messages of other shards are handled at the end of the tick.
    pub(crate) fn batch_message(&mut self, from: ShardId, message: Message) {
        match message.0.downcast::<BatchMessage>() {
            Ok(send) => self.batches.inbox.push_back((from.0, *send)),
            Err(_) => debug_assert!(false, "a message of another engine"),
        }
    }

    /// Sends messages and handles those received. Whether anything came of it.
    pub(crate) fn step_batches(&mut self, effects: &mut Effects) -> bool {
        self.step_opening(effects);
        self.serve_released(effects);
        self.step_barriers(effects);
        self.forget_marks();
        let durable = self.container.durable_version();
        let mut waiting = Vec::new();
        for (version, to, send) in std::mem::take(&mut self.batches.outgoing) {
            if version > durable {
                waiting.push((version, to, send));
            } else if to == self.config.shard {
                self.batches.inbox.push_back((to, send));
            } else {
                effects.send(ShardId(to), Message(Box::new(send)));
            }
        }
        self.batches.outgoing = waiting;
        let heard = std::mem::take(&mut self.batches.inbox);
        let any = !heard.is_empty();
        heard.into_iter().for_each(|(from, send)| self.handle(from, send, effects));
        any || self.batches.outgoing.iter().any(|(version, ..)| *version <= durable)
    }

    fn handle(&mut self, from: u32, send: BatchMessage, effects: &mut Effects) {
        match send {
            BatchMessage::Prepare(prepare) => self.prepare(prepare, effects),
            BatchMessage::Locked(id) => self.participant_locked(from, id),
            BatchMessage::Log(id) => self.log_prepare_record(id, effects),
            BatchMessage::Prepared(id) => self.participant_prepared(from, id),
            BatchMessage::Refused { id, reply } => self.participant_refused(from, id, reply, effects),
            BatchMessage::Commit(id) => self.commit_prepare_record(id, effects),
            BatchMessage::Abort(id) => self.abort_prepare_record(id, effects),
            BatchMessage::Completed { id, done } => self.participant_completed(from, id, done, effects),
            BatchMessage::Forget(id) => self.batches.forgotten.push(id),
            BatchMessage::Found(found) => self.participant_found(from, found),
            BatchMessage::Decided => self.batches.opening.decided(),
            BatchMessage::InDoubt(id) => self.doubt_prepare_record(id),
            // Who asked for the barrier is answered already.
            BatchMessage::Pause(_) if !self.is_open() => {}
            BatchMessage::Pause(number) => self.batches.barriers.pause(number),
            BatchMessage::Paused(number) => self.shard_paused(from, number),
            BatchMessage::Barrier { number, backup } => self.make_barrier(number, backup),
            BatchMessage::BarrierMade { number, error } => self.barrier_made(from, number, error, effects),
            BatchMessage::Uncut(number) => _ = self.close_snapshot(number),
        }
    }

    /// Another shard of the store is broken.
    pub(crate) fn shard_failed(&mut self, peer: ShardId, effects: &mut Effects) {
        self.coordinator_failed(peer.0, effects);
        self.participant_failed(peer.0, effects);
        self.opening_failed(peer.0);
        self.barriers_failed(peer.0, effects);
    }

    /// What waits to begin never will: the shard closes.
    pub(crate) fn close_batches(&mut self, effects: &mut Effects) {
        for token in self.batches.coordinator.give_up_waiting().into_iter().chain(self.batches.barriers.give_up()) {
            effects.reply(token, Reply::Failed(Error::Closed));
        }
    }

    /// Whether a batch may begin here.
    fn is_open(&self) -> bool {
        self.closing == Closing::Open
    }
}
