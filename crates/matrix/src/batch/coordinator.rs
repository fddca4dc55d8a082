//! Shard 0: lets batches in, asks the participants, decides.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stratakv_base::checksum::shard_of;
use stratakv_base::{Key, fault_point};
use stratakv_engine::prepare_record::BatchId;
use stratakv_engine::{Change, ChangeKind, Effects, Error, Reply, Token};
use stratakv_pmem::Pmem;

use super::{BatchMessage, Done, Prepare};
use crate::matrix::Matrix;

/// Waiting batches looked at for one that shares no key with those before it.
const LOOK_AHEAD: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Coordinator {
    active: BTreeMap<BatchId, Coordinated>,
    /// Keys of batches that are not decided yet.
    locked: HashSet<Key>,
    waiting: VecDeque<(Token, Vec<Change>)>,
    /// The number of the last batch. No record of a batch with a higher one is anywhere.
    pub(super) last_number: u64,
    /// That is not known: a shard could not be read.
    pub(super) refuses: bool,
    pub(super) done: u64,
}

#[derive(Debug)]
struct Coordinated {
    token: Option<Token>,
    participants: Arc<[u32]>,
    /// Shards that only check.
    read_only_participants: Vec<u32>,
    phase: CoordinatorPhase,
    /// To be let go when it is decided.
    keys: Vec<Key>,
    visible: Arc<AtomicBool>,
    /// Who has not answered.
    missing: Vec<u32>,
    /// Of the last change, once its shard has applied it: its version, and whether its key
    /// existed.
    last: Option<(u64, bool)>,
    /// Every participant so far has applied.
    resolved: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CoordinatorPhase {
    Locking,
    Logging,
    Committed,
}

/// What a shard has to do in a batch.
#[derive(Debug, Default)]
struct ShardChanges {
    changes: Vec<Change>,
    last: Option<usize>,
}

impl ShardChanges {
    fn logs(&self) -> bool {
        self.changes.iter().any(|change| !matches!(change.kind, ChangeKind::Check))
    }
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
        keys.iter().for_each(|key| _ = self.locked.remove(key));
    }
}

impl<P: Pmem> Matrix<P> {
    /// Takes a batch of several shards that there is nothing wrong with.
    pub(super) fn submit_batch(&mut self, token: Token, changes: Vec<Change>) {
        if self.batches.coordinator.refuses {
            let why = "a shard could not be read when the store was opened: no batch of several shards can be";
            return self.pending_acks.push((token, Reply::Failed(Error::Unknown(why)), 0));
        }
        self.batches.coordinator.waiting.push_back((token, changes));
        self.admit();
    }

    /// Lets waiting batches in that share no key with one that is under way or waits before them:
    /// so two never wait for one another.
    pub(super) fn admit(&mut self) {
        let mut ahead: HashSet<Key> = HashSet::new();
        let mut at = 0;
        while !self.batches.barriers.is_any() && at < self.batches.coordinator.waiting.len().min(LOOK_AHEAD) {
            let coordinator = &mut self.batches.coordinator;
            let Some((_, changes)) = coordinator.waiting.get(at) else { return };
            let keys: Vec<Key> = changes.iter().map(|change| change.key.clone()).collect();
            if keys.iter().any(|key| coordinator.locked.contains(key) || ahead.contains(key)) {
                ahead.extend(keys);
                at += 1;
                continue;
            }
            coordinator.locked.extend(keys.iter().cloned());
            if let Some((token, changes)) = coordinator.waiting.remove(at) {
                self.begin_batch(token, changes, keys);
            }
        }
    }

    fn begin_batch(&mut self, token: Token, changes: Vec<Change>, keys: Vec<Key>) {
        self.batches.coordinator.last_number += 1;
        let id = BatchId { number: self.batches.coordinator.last_number, coordinator: self.config.shard };
        let mut parts: BTreeMap<u32, ShardChanges> = BTreeMap::new();
        let last = changes.iter().rposition(|change| !matches!(change.kind, ChangeKind::Check));
        for (at, change) in changes.into_iter().enumerate() {
            let owner = shard_of(change.key.encoded(), self.config.shards as usize) as u32;
            let part = parts.entry(owner).or_default();
            if Some(at) == last {
                part.last = Some(part.changes.len());
            }
            part.changes.push(change);
        }
        let that = |logs: bool| parts.iter().filter(move |(_, part)| part.logs() == logs).map(|(shard, _)| *shard);
        let (participants, read_only_participants): (Arc<[u32]>, Vec<u32>) =
            (that(true).collect(), that(false).collect());
        let visible = Arc::<AtomicBool>::default();
        let coordinated = Coordinated {
            token: Some(token),
            participants: Arc::clone(&participants),
            read_only_participants,
            phase: CoordinatorPhase::Locking,
            keys,
            visible: Arc::clone(&visible),
            missing: parts.keys().copied().collect(),
            last: None,
            resolved: true,
        };
        self.batches.coordinator.active.insert(id, coordinated);
        for (shard, ShardChanges { changes, last }) in parts {
            let mut visible = Arc::clone(&visible);
            fault_point!("matrix_batch_shown_shard_by_shard", visible = Arc::default());
            let prepare = Prepare { id, participants: Arc::clone(&participants), changes, last, visible };
            self.batches.send(shard, BatchMessage::Prepare(prepare));
        }
    }

    /// A participant or read-only participant has locked its keys.
    pub(super) fn participant_locked(&mut self, from: u32, id: BatchId) {
        let active = &mut self.batches.coordinator.active;
        let Some(batch) = active.get_mut(&id).filter(|batch| batch.phase == CoordinatorPhase::Locking) else { return };
        batch.missing.retain(|shard| *shard != from);
        if !batch.missing.is_empty() {
            return;
        }
        (batch.phase, batch.missing) = (CoordinatorPhase::Logging, batch.participants.to_vec());
        let participants = Arc::clone(&batch.participants);
        if participants.is_empty() {
            return self.decide_commit(id);
        }
        participants.iter().for_each(|shard| self.batches.send(*shard, BatchMessage::Log(id)));
    }

    /// A participant's prepare record is durable.
    pub(super) fn participant_prepared(&mut self, from: u32, id: BatchId) {
        let active = &mut self.batches.coordinator.active;
        let Some(batch) = active.get_mut(&id).filter(|batch| batch.phase == CoordinatorPhase::Logging) else { return };
        batch.missing.retain(|shard| *shard != from);
        fault_point!("matrix_batch_half_committed", return self.decide_commit(id));
        if batch.missing.is_empty() {
            self.decide_commit(id);
        }
    }

    /// From here on every read of its keys sees the batch, at every shard.
    fn decide_commit(&mut self, id: BatchId) {
        let Some(batch) = self.batches.coordinator.active.get_mut(&id) else { return };
        (batch.phase, batch.missing) = (CoordinatorPhase::Committed, batch.participants.to_vec());
        batch.visible.store(true, Ordering::Release);
        let (keys, participants) = (std::mem::take(&mut batch.keys), Arc::clone(&batch.participants));
        let read_only_participants = std::mem::take(&mut batch.read_only_participants);
        self.batches.coordinator.done += 1;
        for shard in participants.iter().chain(&read_only_participants) {
            self.batches.send(*shard, BatchMessage::Commit(id));
        }
        self.batches.coordinator.release(&keys);
        self.end_if_completed(id);
        self.admit();
    }

    /// A participant refuses: the batch is aborted. It has no prepare record that counts, so this
    /// stands whatever happens to the others.
    pub(super) fn participant_refused(&mut self, from: u32, id: BatchId, reply: Reply, effects: &mut Effects) {
        if self.batches.coordinator.active.get(&id).is_none_or(|batch| batch.phase == CoordinatorPhase::Committed) {
            return;
        }
        let Some(batch) = self.batches.coordinator.active.remove(&id) else { return };
        if let Some(token) = batch.token {
            effects.reply(token, reply);
        }
        for shard in batch.participants.iter().chain(&batch.read_only_participants).filter(|shard| **shard != from) {
            self.batches.send(*shard, BatchMessage::Abort(id));
        }
        self.batches.coordinator.release(&batch.keys);
        self.admit();
    }

    /// A participant is done with a committed batch.
    pub(super) fn participant_completed(&mut self, from: u32, id: BatchId, done: Option<Done>, effects: &mut Effects) {
        let active = &mut self.batches.coordinator.active;
        let Some(batch) = active.get_mut(&id).filter(|batch| batch.phase == CoordinatorPhase::Committed) else {
            return;
        };
        batch.missing.retain(|shard| *shard != from);
        batch.resolved &= done.is_some();
        batch.last = done.and_then(|done| done.last).or(batch.last);
        if let Some(token) = batch.token.take_if(|_| batch.missing.is_empty()) {
            let broke = "the batch is done, but its last change waits for the next opening; reopen the store";
            let reply = match batch.last {
                Some((version, existed)) => Reply::Done { version, existed },
                // It is applied then. What it comes to is not known now.
                None => Reply::Failed(Error::Unknown(broke)),
            };
            effects.reply(token, reply);
        }
        self.end_if_completed(id);
    }

    fn end_if_completed(&mut self, id: BatchId) {
        let is_over = |batch: &Coordinated| batch.phase == CoordinatorPhase::Committed && batch.missing.is_empty();
        if !self.batches.coordinator.active.get(&id).is_some_and(is_over) {
            return;
        }
        let Some(batch) = self.batches.coordinator.active.remove(&id) else { return };
        if let Some(token) = batch.token {
            // Of checks alone.
            self.pending_acks.push((token, Reply::Done { version: 0, existed: false }, self.container.version()));
        }
        // Of a batch that is stuck somewhere, the commit-done records are needed at the next
        // opening.
        if batch.resolved {
            batch.participants.iter().for_each(|shard| self.batches.send(*shard, BatchMessage::Forget(id)));
        }
    }

    /// A batch that an earlier opening had committed is applied by those who still hold their
    /// prepare record.
    pub(super) fn resume_batch(&mut self, id: BatchId, holders: Vec<u32>, present: Vec<u32>) {
        let coordinated = Coordinated {
            token: None,
            participants: present.into(),
            read_only_participants: Vec::new(),
            phase: CoordinatorPhase::Committed,
            keys: Vec::new(),
            visible: Arc::default(),
            missing: holders.clone(),
            last: None,
            resolved: true,
        };
        self.batches.coordinator.active.insert(id, coordinated);
        holders.into_iter().for_each(|shard| self.batches.send(shard, BatchMessage::Commit(id)));
    }

    /// A shard of the store is broken: what waits for it is over.
    pub(super) fn coordinator_failed(&mut self, peer: u32, effects: &mut Effects) {
        let active = self.batches.coordinator.active.iter();
        let waiting = active.filter(|(_, batch)| batch.missing.contains(&peer));
        let waiting: Vec<_> = waiting.map(|(id, batch)| (*id, batch.phase == CoordinatorPhase::Committed)).collect();
        for (id, is_committed) in waiting {
            let why = "a shard of the batch broke; reopen the store";
            match is_committed {
                true => self.participant_completed(peer, id, None, effects),
                false => self.participant_refused(peer, id, Reply::Failed(Error::Unknown(why)), effects),
            }
        }
    }
}
