//! The coordinator of batches: lets them in, asks the participants, decides.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::{HashSet, HashSetExt};
use stratakv_base::checksum::shard_of;
use stratakv_base::limits::{SHARDS_MAX, VALUE_BYTES_MAX};
use stratakv_base::{Key, Level, fault_point};
use stratakv_engine::{Capability, Change, ChangeKind, Effects, Error, Expect, Reply, Token};

use super::record::CHANGE_BYTES;
use super::{BatchId, BatchMessage, Prepare};
use crate::slab::Slab;

/// Most bytes of a batch: each prepare record is one record.
const BYTES_MAX: usize = VALUE_BYTES_MAX - 16 - 4 * SHARDS_MAX;
/// Waiting batches looked at for one that shares no key with those before it.
const LOOK_AHEAD: usize = 64;

/// Batches a shard coordinates.
#[derive(Debug, Default)]
pub(crate) struct Coordinator {
    active: BTreeMap<BatchId, Coordinated>,
    /// Keys of batches across shards that are not decided yet.
    locked: Option<HashSet<Key>>,
    waiting: VecDeque<(Token, Vec<Change>)>,
}

#[derive(Debug)]
struct Coordinated {
    token: Option<Token>,
    participants: Arc<[u32]>,
    /// Shards that only check.
    read_only_participants: Arc<[u32]>,
    /// Nothing is logged yet: not all keys are locked.
    locking: bool,
    /// To be let go when it is decided.
    keys: Vec<Key>,
    visible: Arc<AtomicBool>,
    committed: bool,
    /// Who has not answered.
    missing: Vec<u32>,
    /// Of the last change.
    version: u64,
    existed: bool,
    /// Every participant so far has resolved.
    resolved: bool,
}

/// What a shard has to do in a batch.
#[derive(Debug, Default)]
struct ShardChanges {
    changes: Vec<Change>,
    checks: Vec<(Key, Expect)>,
    /// The batch's last change is this one.
    last: Option<u32>,
}

impl Coordinator {
    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty() && self.waiting.is_empty()
    }

    /// No batch is under way.
    pub(super) fn is_completed(&self) -> bool {
        self.active.is_empty()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn give_up_waiting(&mut self) -> Vec<Token> {
        std::mem::take(&mut self.waiting).into_iter().map(|(token, _)| token).collect()
    }

    fn release(&mut self, keys: &[Key]) {
        for key in keys {
            self.locked.as_mut().map(|locked| locked.remove(key));
        }
    }
}

impl Slab {
    /// Takes a batch: of keys of this shard alone, or, if it is shard 0, of any.
    pub(crate) fn accept_batch(&mut self, token: Token, changes: Vec<Change>, level: Level, effects: &mut Effects) {
        if let Some(error) = self.batch_error(&changes, level) {
            return effects.reply(token, Reply::Failed(error));
        }
        let mine = |change: &Change| self.owner(&change.key) == self.config.shard;
        let is_mine = changes.iter().all(mine);
        if is_mine && !self.batches_pause() {
            self.begin_batch(token, changes, Vec::new(), effects);
        } else if is_mine || self.config.shard == 0 {
            self.batches.coordinator.waiting.push_back((token, changes));
            self.admit(effects);
        } else {
            let error = Error::BadBatch("it is of several shards, and was not given to shard 0");
            effects.reply(token, Reply::Failed(error));
        }
    }

    fn batch_error(&self, changes: &[Change], level: Level) -> Option<Error> {
        if level == Level::Memory {
            return Some(Error::Unsupported(Capability::Level));
        }
        if self.config.read_only && !changes.iter().all(|change| matches!(change.kind, ChangeKind::Check)) {
            return Some(Error::WrongVolume(
                "the store is open for reading only: open it for writing to change it".into(),
            ));
        }
        let value_len =
            |change: &Change| if let ChangeKind::Put { value, .. } = &change.kind { value.len() } else { 0 };
        if let Some(len) = changes.iter().map(value_len).find(|len| *len > VALUE_BYTES_MAX) {
            return Some(Error::ValueTooLarge { len_bytes: len as u64, max_bytes: VALUE_BYTES_MAX as u64 });
        }
        let len = changes.iter().map(|change| change.key.encoded().len() + value_len(change) + CHANGE_BYTES);
        let len_bytes = len.sum::<usize>() as u64;
        if len_bytes > BYTES_MAX as u64 {
            return Some(Error::BatchTooLarge { len_bytes, max_bytes: BYTES_MAX as u64 });
        }
        let mut keys: Vec<&Key> = changes.iter().map(|change| &change.key).collect();
        keys.sort_unstable();
        match keys.windows(2).any(|pair| pair[0] == pair[1]) {
            true => Some(Error::BadBatch("a key occurs twice")),
            false if keys.is_empty() => Some(Error::BadBatch("it is empty")),
            false => None,
        }
    }

    pub(super) fn owner(&self, key: &Key) -> u32 {
        shard_of(key.encoded(), self.config.shards as usize) as u32
    }

    /// Lets waiting batches in that share no key with one that is under way or waits before them.
    pub(super) fn admit(&mut self, effects: &mut Effects) {
        if self.batches_pause() {
            return;
        }
        let mut ahead: HashSet<Key> = HashSet::new();
        let mut at = 0;
        while at < self.batches.coordinator.waiting.len().min(LOOK_AHEAD) {
            let coordinator = &mut self.batches.coordinator;
            let locked = coordinator.locked.get_or_insert_with(HashSet::new);
            let Some((_, changes)) = coordinator.waiting.get(at) else { return };
            let keys: Vec<Key> = changes.iter().map(|change| change.key.clone()).collect();
            if keys.iter().any(|key| locked.contains(key) || ahead.contains(key)) {
                ahead.extend(keys);
                at += 1;
                continue;
            }
            locked.extend(keys.iter().cloned());
            if let Some((token, changes)) = coordinator.waiting.remove(at) {
                self.begin_batch(token, changes, keys, effects);
            }
        }
    }

    fn begin_batch(&mut self, token: Token, changes: Vec<Change>, keys: Vec<Key>, effects: &mut Effects) {
        let id = BatchId { number: self.next_number(), coordinator: self.config.shard };
        let mut prepare_records: BTreeMap<u32, ShardChanges> = BTreeMap::new();
        let last = changes.iter().rposition(|change| !matches!(change.kind, ChangeKind::Check));
        for (at, change) in changes.into_iter().enumerate() {
            let part = prepare_records.entry(self.owner(&change.key)).or_default();
            if matches!(change.kind, ChangeKind::Check) {
                part.checks.push((change.key, change.expect));
                continue;
            }
            if Some(at) == last {
                part.last = Some(part.changes.len() as u32);
            }
            part.changes.push(change);
        }
        let that = |logs: bool| prepare_records.iter().filter(move |(_, part)| part.changes.is_empty() != logs);
        let participants: Arc<[u32]> = that(true).map(|(shard, _)| *shard).collect();
        let read_only_participants: Arc<[u32]> = that(false).map(|(shard, _)| *shard).collect();
        let visible = Arc::<AtomicBool>::default();
        let waits = !read_only_participants.is_empty();
        let coordinated = Coordinated {
            token: Some(token),
            participants: Arc::clone(&participants),
            read_only_participants,
            locking: waits,
            keys,
            visible: Arc::clone(&visible),
            committed: false,
            missing: prepare_records.keys().copied().collect(),
            version: 0,
            existed: false,
            resolved: true,
        };
        self.batches.coordinator.active.insert(id, coordinated);
        for (shard, ShardChanges { changes, checks, last }) in prepare_records {
            let mut visible = Arc::clone(&visible);
            fault_point!("batch_shown_shard_by_shard", visible = Arc::default());
            let prepare =
                Prepare { id, participants: Arc::clone(&participants), changes, checks, last, waits, visible };
            self.send(shard, BatchMessage::Prepare(prepare), effects);
        }
    }

    /// A participant or read-only participant has locked its keys.
    pub(super) fn participant_locked(&mut self, from: u32, id: BatchId, effects: &mut Effects) {
        let Some(batch) = self.batches.coordinator.active.get_mut(&id).filter(|batch| batch.locking) else { return };
        batch.missing.retain(|shard| *shard != from);
        if !batch.missing.is_empty() {
            return;
        }
        batch.locking = false;
        batch.missing = batch.participants.to_vec();
        let participants = Arc::clone(&batch.participants);
        if participants.is_empty() {
            return self.decide_commit(id, effects);
        }
        participants.iter().for_each(|shard| self.send(*shard, BatchMessage::Log(id), effects));
    }

    /// A participant's prepare record is durable.
    pub(super) fn participant_prepared(
        &mut self,
        from: u32,
        id: BatchId,
        version: u64,
        existed: Option<bool>,
        effects: &mut Effects,
    ) {
        let Some(batch) = self.batches.coordinator.active.get_mut(&id).filter(|batch| !batch.committed) else { return };
        batch.missing.retain(|shard| *shard != from);
        if let Some(existed) = existed {
            (batch.version, batch.existed) = (version, existed);
        }
        fault_point!("batch_half_applied", return self.decide_commit(id, effects));
        if batch.missing.is_empty() {
            self.decide_commit(id, effects);
        }
    }

    /// From here on every read of its keys sees the batch, at every shard.
    fn decide_commit(&mut self, id: BatchId, effects: &mut Effects) {
        let Some(batch) = self.batches.coordinator.active.get_mut(&id) else { return };
        let late = std::mem::take(&mut batch.missing);
        batch.committed = true;
        batch.visible.store(true, Ordering::Release);
        batch.missing = batch.participants.to_vec();
        let (keys, mut participants) = (std::mem::take(&mut batch.keys), Arc::clone(&batch.participants));
        let read_only_participants = Arc::clone(&batch.read_only_participants);
        if let Some(token) = batch.token.take() {
            effects.reply(token, Reply::Done { version: batch.version, existed: batch.existed });
        }
        self.batches.done += 1;
        fault_point!("batch_half_applied", {
            participants = participants.iter().filter(|shard| !late.contains(shard)).copied().collect();
            late.iter().for_each(|shard| self.send(*shard, BatchMessage::Abort(id), effects));
        });
        if participants.is_empty() {
            self.batches.coordinator.active.remove(&id);
        }
        participants
            .iter()
            .chain(&*read_only_participants)
            .for_each(|shard| self.send(*shard, BatchMessage::Commit(id), effects));
        self.batches.coordinator.release(&keys);
        self.admit(effects);
    }

    /// A participant refuses: the batch is aborted. It has no prepare record, so this stands
    /// whatever happens to the others.
    pub(super) fn participant_refused(&mut self, from: u32, id: BatchId, reply: Reply, effects: &mut Effects) {
        if self.batches.coordinator.active.get(&id).is_none_or(|batch| batch.committed) {
            return;
        }
        let Some(batch) = self.batches.coordinator.active.remove(&id) else { return };
        if let Some(token) = batch.token {
            effects.reply(token, reply);
        }
        for shard in batch.participants.iter().chain(&*batch.read_only_participants).filter(|shard| **shard != from) {
            self.send(*shard, BatchMessage::Abort(id), effects);
        }
        self.batches.coordinator.release(&batch.keys);
        self.admit(effects);
    }

    /// A participant is done with a committed batch.
    pub(super) fn participant_completed(&mut self, from: u32, id: BatchId, resolved: bool, effects: &mut Effects) {
        let Some(batch) = self.batches.coordinator.active.get_mut(&id) else { return };
        batch.missing.retain(|shard| *shard != from);
        batch.resolved &= resolved;
        if !batch.missing.is_empty() {
            return;
        }
        let Some(batch) = self.batches.coordinator.active.remove(&id) else { return };
        // A batch on one shard has no commit-done record; of one that is stuck somewhere, the
        // commit-done records are needed at the next opening.
        if batch.resolved && batch.participants.len() > 1 {
            batch.participants.iter().for_each(|shard| self.send(*shard, BatchMessage::Forget(id), effects));
        }
    }

    /// A batch that an earlier opening had committed is applied by those who still hold their
    /// prepare record.
    pub(super) fn resume_batch(&mut self, id: BatchId, holders: Vec<u32>, present: Vec<u32>, effects: &mut Effects) {
        let coordinated = Coordinated {
            token: None,
            participants: present.into(),
            read_only_participants: Arc::default(),
            locking: false,
            keys: Vec::new(),
            visible: Arc::default(),
            committed: true,
            missing: holders.clone(),
            version: 0,
            existed: false,
            resolved: true,
        };
        if !self.config.read_only {
            self.batches.coordinator.active.insert(id, coordinated);
        }
        holders.into_iter().for_each(|shard| self.send(shard, BatchMessage::Commit(id), effects));
    }

    /// A shard of the store is broken: what waits for it is over.
    pub(super) fn coordinator_failed(&mut self, peer: u32, effects: &mut Effects) {
        let active = self.batches.coordinator.active.iter();
        let waiting = active.filter(|(_, batch)| batch.missing.contains(&peer));
        let waiting: Vec<_> = waiting.map(|(id, batch)| (*id, batch.committed)).collect();
        for (id, committed) in waiting {
            let why = "a shard of the batch broke; reopen the store";
            match committed {
                true => self.participant_completed(peer, id, false, effects),
                false => self.participant_refused(peer, id, Reply::Failed(Error::Unknown(why)), effects),
            }
        }
    }
}
