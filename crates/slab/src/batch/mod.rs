//! Batches: several changes, of one shard or many, as one. docs/batches.md draws the records and
//! argues every crash.
//!
//! A change that is a check makes its shard a *read-only participant* if it has nothing else to do
//! in the batch: it locks the keys and logs nothing.
//!
//! A shard is *coordinator* ([`coordinator`]) of batches given to it, *participant*
//! ([`prepare_record`]) in those that change its keys; what a crash left is completed by
//! [`opening`]. Everything happens in [`Slab::step_batches`], at the end of a tick: answers to the
//! shard's own writes and messages of other shards are queued until then.

mod barrier;
mod coordinator;
mod opening;
mod prepare_record;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use stratakv_base::{Key, fault_point};
pub(crate) use stratakv_engine::prepare_record::{self as record, BatchId};
use stratakv_engine::{
    Change, ChangeKind, Effects, Error, Expect, Message, Operation, Record, RecordPart, Reply, ShardId, Token, Value,
};

use crate::slab::{Slab, is_expired};
use crate::write::Origin;
use coordinator::Coordinator;
use opening::{FoundBatch, Opening};
use prepare_record::PrepareRecord;

/// What a write is to its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchStep {
    /// Locks the key of the change of this number.
    LockKey(u32),
    /// Writes the prepare record.
    Log,
    /// Applies a change.
    Apply,
    /// Locks the key again, once its change is applied.
    Applied(u32),
    /// Replaces the prepare record by its commit-done record.
    CommitDone,
    /// Removes the prepare record.
    Erase,
    /// Removes the commit-done record.
    Forget,
    /// Reads a record found at opening.
    Load,
}

/// What came of such a write.
#[derive(Debug)]
enum Event {
    /// The key is locked, and nothing is under way there.
    Locked {
        existed: bool,
    },
    Answered(Reply),
}

/// Messages between shards.
#[derive(Debug)]
enum BatchMessage {
    Prepare(Prepare),
    /// All keys are locked, all conditions hold: of a batch with read-only participants.
    Locked(BatchId),
    /// All participants and read-only participants have locked their keys.
    Log(BatchId),
    Prepared {
        id: BatchId,
        version: u64,
        existed: Option<bool>,
    },
    Refused {
        id: BatchId,
        reply: Reply,
    },
    Commit(BatchId),
    Abort(BatchId),
    /// Applied and recorded as done; or, if not, it cannot be before the store is opened again.
    Completed {
        id: BatchId,
        resolved: bool,
    },
    Forget(BatchId),
    /// `None`: it cannot be read.
    Found(Option<Vec<FoundBatch>>),
    /// Everything that was found at opening is decided.
    Decided,
    /// Make your barrier for this backup.
    Barrier(u64),
    BarrierMade(u64),
    /// It cannot be known whether the batch holds before the store is opened again.
    InDoubt(BatchId),
}

/// A participant's prepare record, on its way to it.
#[derive(Debug)]
struct Prepare {
    id: BatchId,
    participants: Arc<[u32]>,
    changes: Vec<Change>,
    /// Keys that are only locked, and under which condition.
    checks: Vec<(Key, Expect)>,
    /// The batch's last change is this one: its answer counts.
    last: Option<u32>,
    /// There are read-only participants: nothing is logged before they have locked their keys.
    waits: bool,
    visible: Arc<AtomicBool>,
}

/// Batches of a shard.
#[derive(Debug)]
pub(crate) struct Batches {
    inbox: VecDeque<(u32, BatchMessage)>,
    events: VecDeque<(BatchId, BatchStep, Event)>,
    prepare_records: BTreeMap<BatchId, PrepareRecord>,
    coordinator: Coordinator,
    opening: Opening,
    /// Operations that came before it was known which batches hold.
    deferred_operations: Vec<(Token, Operation)>,
    /// Keys of prepare records that are durable and not yet applied: whose change of which number.
    prepared: HashMap<Key, (BatchId, u32)>,
    /// Keys of prepare records that cannot be applied before the store is opened again.
    stuck: HashMap<Key, Error>,
    /// Pages set aside for prepare records.
    reserved_pages: u32,
    /// Bytes of records set aside for prepare records (placement `packed`).
    reserved_bytes: u64,
    done: u64,
    /// Shard 0: backups that are being begun.
    barriers: VecDeque<barrier::Barriers>,
    /// The backup for which a barrier is to be made as soon as no prepare record is under way.
    barrier_wanted: Option<u64>,
}

impl Batches {
    /// Whether batches of this shard, or whose prepare records have come, are yet to change keys of
    /// a range. Not those that wait to be let in.
    pub(crate) fn change_some_of(&self, range: &(std::ops::Bound<Key>, std::ops::Bound<Key>)) -> bool {
        fault_point!("pipelined_range_overtakes_batches", return false);
        let is_within = |change: &Change| std::ops::RangeBounds::contains(range, &change.key);
        let mut come = self
            .inbox
            .iter()
            .filter_map(|(_, message)| if let BatchMessage::Prepare(one) = message { Some(one) } else { None });
        come.any(|prepare| prepare.changes.iter().any(is_within))
            || self
                .prepare_records
                .values()
                .any(|prepare_record| prepare_record.is_yet_to_change() && prepare_record.changes.iter().any(is_within))
    }

    /// Of a shard in whose index these records of batches were found.
    pub(crate) fn new(found: Vec<Key>) -> Batches {
        Batches {
            inbox: VecDeque::new(),
            events: VecDeque::new(),
            prepare_records: BTreeMap::new(),
            coordinator: Coordinator::default(),
            opening: Opening::new(found),
            deferred_operations: Vec::new(),
            prepared: HashMap::new(),
            stuck: HashMap::new(),
            reserved_pages: 0,
            reserved_bytes: 0,
            done: 0,
            barriers: VecDeque::new(),
            barrier_wanted: None,
        }
    }

    pub(crate) fn reserved_pages(&self) -> u32 {
        self.reserved_pages
    }

    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    /// Whether something waits for the next tick.
    pub(crate) fn has_work(&self) -> bool {
        !self.inbox.is_empty() || !self.events.is_empty()
    }

    /// Whether a prepare record waits for space.
    pub(crate) fn wait_for_space(&self) -> bool {
        self.prepare_records.values().any(PrepareRecord::waits_for_space)
    }

    /// Prepare records and batches under way.
    pub(crate) fn under_way(&self) -> u64 {
        (self.prepare_records.len() + self.coordinator.waiting()) as u64
    }

    /// Batches committed here as coordinator.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.inbox.is_empty()
            && self.events.is_empty()
            && self.deferred_operations.is_empty()
            && self.coordinator.is_idle()
            && self.barriers.is_empty()
            && self.barrier_wanted.is_none()
            && self.opening.is_over()
            && self.prepare_records.values().all(PrepareRecord::is_at_rest)
    }

    /// Whether it is known which keys batches are yet to change.
    pub(crate) fn may_write(&self) -> bool {
        self.opening.may_serve() && self.opening.refusal().is_none()
    }

    /// Why a range cannot be deleted, if a batch is stuck within: its key may come back.
    pub(crate) fn stuck_within(&self, range: &(std::ops::Bound<Key>, std::ops::Bound<Key>)) -> Option<&Error> {
        let within = |(key, _): &(&Key, &Error)| std::ops::RangeBounds::contains(range, *key);
        self.stuck.iter().find(within).map(|(_, error)| error)
    }

    /// Why the key cannot be written, if a batch is stuck there.
    pub(crate) fn stuck(&self, key: &Key) -> Option<&Error> {
        if self.stuck.is_empty() { None } else { self.stuck.get(key) }
    }

    /// An answer to a write that was made for a batch.
    pub(crate) fn answered(&mut self, id: BatchId, step: BatchStep, reply: Reply) {
        self.events.push_back((id, step, Event::Answered(reply)));
    }

    /// A key is locked for a batch.
    pub(crate) fn key_locked(&mut self, id: BatchId, step: BatchStep, existed: bool) {
        self.events.push_back((id, step, Event::Locked { existed }));
    }
}

impl Slab {
    /// Messages of other shards are handled at the end of the tick.
    pub(crate) fn batch_message(&mut self, from: ShardId, message: Message) {
        match message.0.downcast::<BatchMessage>() {
            Ok(send) => self.batches.inbox.push_back((from.0, *send)),
            Err(_) => debug_assert!(false, "a message of another engine"),
        }
    }

    /// Everything batches have to do now.
    pub(crate) fn step_batches(&mut self, effects: &mut Effects) {
        loop {
            self.step_opening(effects);
            if let Some((from, message)) = self.batches.inbox.pop_front() {
                self.handle(from, message, effects);
            } else if let Some((id, step, event)) = self.batches.events.pop_front() {
                match step {
                    BatchStep::Load => self.loaded(id, event, effects),
                    step => self.prepare_record_event(id, step, event, effects),
                }
            } else {
                break;
            }
        }
        self.retry_reservations(effects);
        self.end_opening(effects);
        self.step_barriers(effects);
    }

    fn handle(&mut self, from: u32, send: BatchMessage, effects: &mut Effects) {
        match send {
            BatchMessage::Prepare(prepare) => self.prepare(prepare, effects),
            BatchMessage::Locked(id) => self.participant_locked(from, id, effects),
            BatchMessage::Log(id) => self.log_when_locked(id, effects),
            BatchMessage::Prepared { id, version, existed } => {
                self.participant_prepared(from, id, version, existed, effects)
            }
            BatchMessage::Refused { id, reply } => self.participant_refused(from, id, reply, effects),
            BatchMessage::Commit(id) => self.commit(id, effects),
            BatchMessage::Abort(id) => self.abort(id, effects),
            BatchMessage::Completed { id, resolved } => self.participant_completed(from, id, resolved, effects),
            BatchMessage::Forget(id) => self.forget(id, effects),
            BatchMessage::Found(found) => self.participant_found(from, found, effects),
            BatchMessage::Decided => self.decided(),
            BatchMessage::Barrier(id) => self.batches.barrier_wanted = Some(id),
            BatchMessage::BarrierMade(id) => self.barrier_made(from, id, effects),
            BatchMessage::InDoubt(id) => {
                let why = "another shard of its batch broke; reopen the store";
                self.get_stuck(id, Error::Unknown(why), effects);
            }
        }
    }

    fn send(&mut self, to: u32, send: BatchMessage, effects: &mut Effects) {
        if to == self.config.shard {
            self.batches.inbox.push_back((to, send));
        } else {
            effects.send(ShardId(to), Message(Box::new(send)));
        }
    }

    /// Holds an operation back until it is known which batches hold.
    pub(crate) fn defer_until_decided(
        &mut self,
        token: Token,
        operation: Operation,
        effects: &mut Effects,
    ) -> Option<(Token, Operation)> {
        if self.batches.opening.may_serve() {
            let Some(error) = self.batches.opening.refusal() else { return Some((token, operation)) };
            effects.reply(token, Reply::Failed(error.clone()));
            return None;
        }
        self.batches.deferred_operations.push((token, operation));
        None
    }

    /// Answers what was held back or waits for admission: the shard closes.
    pub(crate) fn close_batches(&mut self, effects: &mut Effects) {
        for (token, _) in std::mem::take(&mut self.batches.deferred_operations) {
            effects.reply(token, Reply::Failed(Error::Closed));
        }
        self.give_up_barriers(effects);
        for token in self.batches.coordinator.give_up_waiting() {
            effects.reply(token, Reply::Failed(Error::Closed));
        }
    }

    /// What a committed batch that is not applied yet makes of a key: `None` if it has nothing
    /// to say.
    fn visible_change(&self, key: &Key) -> Option<(&Change, u64)> {
        if self.batches.prepared.is_empty() {
            return None;
        }
        let (id, at) = self.batches.prepared.get(key)?;
        let prepare_record = self.batches.prepare_records.get(id)?;
        let change = prepare_record.changes.get(*at as usize)?;
        prepare_record.is_visible().then_some((change, prepare_record.version))
    }

    /// Another shard of the store is broken.
    pub(crate) fn shard_failed(&mut self, peer: ShardId, effects: &mut Effects) {
        self.coordinator_failed(peer.0, effects);
        self.participant_failed(peer.0, effects);
        self.opening_failed(peer.0, effects);
        self.barriers_failed(peer.0, effects);
    }

    /// The answer to a read of a key, if a batch decides it.
    pub(crate) fn batch_reply(&self, key: &Key, part: RecordPart, effects: &Effects) -> Option<Reply> {
        match self.visible_change(key) {
            Some(_) => Some(Reply::Record(self.batch_record(key, part, effects)?)),
            None => {
                self.batches.stuck(key).filter(|_| self.batches.prepared.contains_key(key)).cloned().map(Reply::Failed)
            }
        }
    }

    /// The record that a committed batch gives a key, or that it is gone; `None` if no batch
    /// decides.
    pub(crate) fn batch_record(&self, key: &Key, part: RecordPart, effects: &Effects) -> Option<Option<Record>> {
        let (change, version) = self.visible_change(key)?;
        let ChangeKind::Put { value, flags, expiry } = &change.kind else { return Some(None) };
        if is_expired(expiry.0, effects) {
            return Some(None);
        }
        let value_bytes = value.len() as u64;
        let value = match part {
            RecordPart::Whole => value.clone(),
            RecordPart::Meta => Bytes::new(),
            part => value.slice(crate::read::part_range(part, value.len())),
        };
        Some(Some(Record { value: Value::Inline(value), value_bytes, flags: *flags, version, expiry: *expiry }))
    }

    /// Keys that committed batches put or delete and the index does not show yet, in order, with
    /// whether they are there.
    pub(crate) fn batch_keys(
        &self,
        range: (std::ops::Bound<&Key>, std::ops::Bound<&Key>),
        effects: &Effects,
    ) -> BTreeMap<Key, bool> {
        let keys = self.batches.prepared.keys().filter(|key| std::ops::RangeBounds::contains(&range, *key));
        let visible = keys.filter_map(|key| {
            let record = self.batch_record(key, RecordPart::Meta, effects)?;
            Some((key.clone(), record.is_some()))
        });
        visible.collect()
    }

    /// Answers whoever waits behind a batch in `queue`.
    fn refuse_queue(&mut self, queue: VecDeque<crate::write::Work>, id: BatchId, error: &Error, effects: &mut Effects) {
        for work in queue {
            if !matches!(work.origin, Origin::Batch(own, _) if own == id) {
                self.answer(work.origin, Reply::Failed(error.clone()), effects);
            }
        }
    }
}

/// The flag that all participants share.
fn is_set(visible: &AtomicBool) -> bool {
    visible.load(Ordering::Acquire)
}
