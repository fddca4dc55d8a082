//! Batches: several changes, of one shard or many, as one. docs/batches.md draws the records and
//! argues every crash.
//!
//! [`TwoPhaseCommit`] coordinates: of keys of one shard that shard, of others shard 0. Here is what
//! this engine's shards do in it: as *participant* one has a [`prepare_record`]; as *read-only
//! participant*, whose keys are only checked, it locks them and logs nothing. What a crash left is
//! read by [`opening`]. Everything happens in [`IndexedShard::step_batches`], at the end of a tick:
//! answers to the shard's own writes and messages of other shards are queued until then.

mod admission;
mod opening;
mod prepare_record;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use stratakv_base::{Key, fault_point};
use stratakv_chassis::batches::opening::Opening;
pub(crate) use stratakv_chassis::batches::prepare_record::{self as record, BatchId};
use stratakv_chassis::batches::{BatchRules, CommitStep, ToCoordinator, ToParticipant, TwoPhaseCommit};
use stratakv_engine::{
    Change, ChangeKind, Effects, Error, Message, Operation, Record, RecordPart, Reply, ShardId, Token, Value,
};

use crate::config::SlabConfig;
use crate::placement::Placement;
use crate::shard::{IndexedShard, is_expired};
use crate::write::Origin;
use opening::RecordReads;
use prepare_record::PrepareRecord;

/// What applying the changes of a prepare record takes.
#[derive(Debug)]
pub(crate) struct Needs {
    /// Pages of slots, of a placement that has them.
    pub(crate) pages: u32,
    /// Bytes of a log, of a placement that has one.
    pub(crate) bytes: u64,
    /// Pages of the blob of each change; 0 if it needs none.
    pub(crate) blobs: Vec<u32>,
}

impl Needs {
    pub(crate) fn blob_pages(&self) -> u32 {
        self.blobs.iter().sum()
    }
}

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

/// Batches of a shard.
#[derive(Debug)]
pub(crate) struct Batches {
    commit: TwoPhaseCommit,
    events: VecDeque<(BatchId, BatchStep, Event)>,
    prepare_records: BTreeMap<BatchId, PrepareRecord>,
    reads: RecordReads,
    /// Operations that came before it was known which batches hold.
    deferred_operations: Vec<(Token, Operation)>,
    /// Keys of prepare records that are durable and not yet applied: whose change of which number.
    prepared: HashMap<Key, (BatchId, u32)>,
    /// Keys of prepare records that cannot be applied before the store is opened again.
    stuck: HashMap<Key, Error>,
    /// Pages set aside for prepare records.
    reserved_pages: u32,
    /// Bytes of records set aside for prepare records.
    reserved_bytes: u64,
}

impl Batches {
    /// Whether batches of this shard, or whose prepare records have come, are yet to change keys of
    /// a range. Not those that wait to be let in.
    pub(crate) fn change_some_of(&self, range: &(Bound<Key>, Bound<Key>)) -> bool {
        fault_point!("pipelined_range_overtakes_batches", return false);
        let is_within = |change: &Change| {
            !matches!(change.kind, ChangeKind::Check) && std::ops::RangeBounds::contains(range, &change.key)
        };
        let mut records = self.prepare_records.values().filter(|record| record.is_yet_to_change());
        self.commit.mail.prepares().any(|prepare| prepare.changes.iter().any(is_within))
            || records.any(|record| record.changes.iter().any(is_within))
    }

    /// Of a shard in whose index these records of batches were found.
    pub(crate) fn new(config: &SlabConfig, found: Vec<Key>) -> Batches {
        let rules = BatchRules {
            shard: config.shard,
            shards: config.shards,
            read_only: config.read_only,
            locks_first: false,
            replies_when_decided: true,
            barriers_pause: false,
        };
        Batches {
            commit: TwoPhaseCommit::new(rules, Opening::new(&rules, found.is_empty())),
            events: VecDeque::new(),
            prepare_records: BTreeMap::new(),
            reads: RecordReads { records: found, loading: 0 },
            deferred_operations: Vec::new(),
            prepared: HashMap::new(),
            stuck: HashMap::new(),
            reserved_pages: 0,
            reserved_bytes: 0,
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
        self.commit.mail.is_due(u64::MAX) || !self.events.is_empty()
    }

    /// Whether a prepare record waits for space.
    pub(crate) fn wait_for_space(&self) -> bool {
        self.prepare_records.values().any(PrepareRecord::waits_for_space)
    }

    /// Prepare records and batches under way.
    pub(crate) fn under_way(&self) -> u64 {
        (self.prepare_records.len() + self.commit.coordinator.waiting()) as u64
    }

    /// Batches committed here as coordinator.
    pub(crate) fn done(&self) -> u64 {
        self.commit.coordinator.done()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.commit.is_idle()
            && self.events.is_empty()
            && self.deferred_operations.is_empty()
            && self.prepare_records.values().all(PrepareRecord::is_at_rest)
    }

    /// Whether it is known which keys batches are yet to change.
    pub(crate) fn may_write(&self) -> bool {
        self.commit.opening.may_serve() && self.commit.opening.refusal().is_none()
    }

    /// Why a range cannot be deleted, if a batch is stuck within: its key may come back.
    pub(crate) fn stuck_within(&self, range: &(Bound<Key>, Bound<Key>)) -> Option<&Error> {
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

impl<P: Placement> IndexedShard<P> {
    /// Messages of other shards are handled at the end of the tick.
    pub(crate) fn batch_message(&mut self, from: ShardId, message: Message) {
        self.batches.commit.mail.receive(from, message);
    }

    /// Everything batches have to do now, also for what was held back while shard 0 decided.
    pub(crate) fn step_batches(&mut self, effects: &mut Effects) {
        self.run_batches(effects);
        if self.end_opening(effects) {
            self.run_batches(effects);
        }
        self.batches.commit.mail.post(u64::MAX, effects);
    }

    fn run_batches(&mut self, effects: &mut Effects) {
        loop {
            self.step_opening(effects);
            if let Some(step) = self.batches.commit.next(&mut self.groups.counter) {
                match step {
                    CommitStep::Reply { token, reply, .. } => effects.reply(token, reply),
                    CommitStep::Participant(message) => self.participate(message, effects),
                }
            } else if let Some((id, step, event)) = self.batches.events.pop_front() {
                match step {
                    BatchStep::Load => self.loaded(id, event, effects),
                    step => self.prepare_record_event(id, step, event, effects),
                }
            } else if !self.make_barrier(effects) {
                break;
            }
        }
        self.retry_reservations(effects);
    }

    fn participate(&mut self, message: ToParticipant, effects: &mut Effects) {
        match message {
            ToParticipant::Prepare(prepare) => self.prepare(prepare, effects),
            ToParticipant::Log(id) => self.log_when_locked(id, effects),
            ToParticipant::Commit(id) => self.commit(id, effects),
            ToParticipant::Abort(id) => self.abort(id, effects),
            ToParticipant::Forget(id) => self.forget(id, effects),
            ToParticipant::InDoubt(id) => {
                let why = "another shard of its batch broke; reopen the store";
                self.get_stuck(id, Error::Unknown(why), effects);
            }
            ToParticipant::Barrier(number) => self.batches.commit.barriers.want(number),
            // What was held back goes on in `end_opening`; barriers have one round, and no shard
            // fails at one.
            ToParticipant::Decided(_) | ToParticipant::MakeBarrier(..) | ToParticipant::DropBarrier(_) => {}
        }
    }

    /// Makes the barrier that is wanted, if no prepare record is under way. Whether it did.
    fn make_barrier(&mut self, effects: &mut Effects) -> bool {
        let Batches { commit, prepare_records, .. } = &mut self.batches;
        let Some(number) = commit.barriers.wanted() else { return false };
        if !prepare_records.values().all(PrepareRecord::is_at_rest) || !commit.opening.may_serve() {
            return false;
        }
        commit.barriers.pass(number);
        commit.mail.send(0, ToCoordinator::BarrierMade(number, None));
        self.pass_barrier(number, effects);
        true
    }

    /// Holds an operation back until it is known which batches hold.
    pub(crate) fn defer_until_decided(
        &mut self,
        token: Token,
        operation: Operation,
        effects: &mut Effects,
    ) -> Option<(Token, Operation)> {
        if self.batches.commit.opening.may_serve() {
            let Some(error) = self.batches.commit.opening.refusal() else { return Some((token, operation)) };
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
        for token in self.batches.commit.give_up() {
            effects.reply(token, Reply::Failed(Error::Closed));
        }
    }

    /// What a committed batch that is not applied yet makes of a key: `None` if it has nothing to
    /// say, or has a version above `newest`.
    fn visible_change(&self, key: &Key, newest: u64) -> Option<(&Change, u64)> {
        if self.batches.prepared.is_empty() {
            return None;
        }
        let (id, at) = self.batches.prepared.get(key)?;
        let prepare_record = self.batches.prepare_records.get(id)?;
        let change = prepare_record.changes.get(*at as usize)?;
        (prepare_record.is_visible() && prepare_record.version <= newest).then_some((change, prepare_record.version))
    }

    /// Another shard of the store is broken.
    pub(crate) fn shard_failed(&mut self, peer: ShardId, effects: &mut Effects) {
        let is_undecided = self.batches.commit.peer_failed(peer.0, None);
        self.participant_failed(peer.0, effects);
        if is_undecided {
            let why = "the shard that decides on batches broke; reopen the store";
            self.get_all_stuck(&Error::Unknown(why), effects);
        }
    }

    /// The answer to a read of a key, if a batch decides it.
    pub(crate) fn batch_reply(&self, key: &Key, part: RecordPart, effects: &Effects) -> Option<Reply> {
        match self.visible_change(key, u64::MAX) {
            Some(_) => Some(Reply::Record(self.batch_record(key, part, u64::MAX, effects)?)),
            None => {
                self.batches.stuck(key).filter(|_| self.batches.prepared.contains_key(key)).cloned().map(Reply::Failed)
            }
        }
    }

    /// The record that a committed batch gives a key, or that it is gone; `None` if no batch
    /// decides, or none up to version `newest`.
    pub(crate) fn batch_record(
        &self,
        key: &Key,
        part: RecordPart,
        newest: u64,
        effects: &Effects,
    ) -> Option<Option<Record>> {
        let (change, version) = self.visible_change(key, newest)?;
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

    /// Keys that committed batches up to version `newest` put or delete and the index does not show
    /// yet, in order, with whether they are there.
    pub(crate) fn batch_keys(
        &self,
        range: (Bound<&Key>, Bound<&Key>),
        newest: u64,
        effects: &Effects,
    ) -> BTreeMap<Key, bool> {
        let keys = self.batches.prepared.keys().filter(|key| std::ops::RangeBounds::contains(&range, *key));
        let visible = keys.filter_map(|key| {
            let record = self.batch_record(key, RecordPart::Meta, newest, effects)?;
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
