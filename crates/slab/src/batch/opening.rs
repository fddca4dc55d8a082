//! What a crash left of batches: every shard reads its prepare records and commit-done records,
//! shard 0 decides.

use std::collections::BTreeMap;

use stratakv_base::{Key, Level, fault_point};
use stratakv_engine::{Effects, Error, Expect, Reply, Shard};

use super::record::{self, BatchFate, Kept};
use super::{BatchId, BatchMessage, BatchStep, Event};
use crate::slab::Slab;
use crate::write::{Kind, Origin, Work};

/// A record of a batch that a shard found.
#[derive(Clone, Debug)]
pub(super) struct FoundBatch {
    id: BatchId,
    /// Empty if it cannot be read.
    participants: Vec<u32>,
    /// There is something to apply.
    is_prepare_record: bool,
}

/// How far a shard is with what it found.
#[derive(Debug)]
pub(crate) struct Opening {
    /// Not yet asked for.
    records: Vec<Key>,
    loading: usize,
    found: Vec<FoundBatch>,
    told: bool,
    /// There was something, and it is not decided.
    undecided: bool,
    /// Shard 0: what the shards found, by shard.
    lists: Option<BTreeMap<u32, Vec<FoundBatch>>>,
    /// Shard 0: shards that broke before they reported, or cannot read what they have.
    lost: Vec<u32>,
    /// How often each record could not be read, and was asked for again.
    failures: BTreeMap<BatchId, u32>,
    /// Why nothing is served: a record cannot be read, and its keys are not known.
    refusal: Option<Error>,
}

impl Opening {
    pub(super) fn new(records: Vec<Key>) -> Opening {
        let undecided = !records.is_empty();
        Opening {
            records,
            loading: 0,
            found: Vec::new(),
            told: false,
            undecided,
            lists: None,
            lost: Vec::new(),
            failures: BTreeMap::new(),
            refusal: None,
        }
    }

    pub(super) fn refusal(&self) -> Option<&Error> {
        self.refusal.as_ref()
    }

    pub(super) fn may_serve(&self) -> bool {
        !self.undecided
    }

    pub(super) fn is_over(&self) -> bool {
        self.told && !self.undecided && self.lists.is_none()
    }
}

impl Slab {
    /// Reads what was found, then tells shard 0.
    pub(super) fn step_opening(&mut self, effects: &mut Effects) {
        if self.batches.opening.told {
            return;
        }
        if self.config.shard == 0 && self.batches.opening.lists.is_none() {
            self.batches.opening.lists = Some(BTreeMap::new());
        }
        for key in std::mem::take(&mut self.batches.opening.records) {
            let Some(id) = record::id_of(&key) else { continue };
            self.batches.opening.loading += 1;
            let origin = Origin::Batch(id, BatchStep::Load);
            self.submit(Work::new(origin, key, Expect::Any, Kind::Load, Level::ProcessCrash), effects);
        }
        let opening = &mut self.batches.opening;
        let is_read = opening.loading == 0 && opening.records.is_empty();
        if is_read && !self.batches.prepare_records.values().any(super::PrepareRecord::is_locking) {
            opening.told = true;
            let found = std::mem::take(&mut opening.found);
            match opening.refusal.clone() {
                None => self.send(0, BatchMessage::Found(Some(found)), effects),
                Some(error) => {
                    // Shard 0 decides nothing here: those that were read wait for the next opening.
                    self.get_all_stuck(&error, effects);
                    self.send(0, BatchMessage::Found(None), effects);
                }
            }
        }
    }

    /// No batch can be decided before the next opening.
    fn get_all_stuck(&mut self, error: &Error, effects: &mut Effects) {
        let ids: Vec<BatchId> = self.batches.prepare_records.keys().copied().collect();
        ids.into_iter().for_each(|id| self.get_stuck(id, error.clone(), effects));
    }

    /// A record that was found has been read.
    pub(super) fn loaded(&mut self, id: BatchId, event: Event, effects: &mut Effects) {
        self.batches.opening.loading -= 1;
        let value = match event {
            Event::Answered(Reply::Record(Some(record))) => Some(record.value.to_bytes()),
            Event::Answered(Reply::Failed(error)) if !matches!(error, Error::Corrupt(_)) => {
                return self.load_again(id, &error);
            }
            _ => None,
        };
        let kept = value.as_deref().and_then(record::decode).filter(|kept| self.may_be_mine(kept));
        if value.is_some() && kept.is_none() {
            let expected = "a prepare record that this shard can have logged".into();
            let found = format!("batch {:x} of shard {} says something else", id.number, id.coordinator);
            self.note_corruption(&self.corruption(0, "prepare record", expected, &found));
        }
        let found = match kept {
            Some(Kept::Resolved { participants }) => FoundBatch { id, participants, is_prepare_record: false },
            Some(Kept::PrepareRecord { participants, version, changes }) => {
                self.recover_prepare_record(id, &participants, version, changes, effects);
                FoundBatch { id, participants, is_prepare_record: true }
            }
            // It was durable, so the others go by it; what it held is damage, and reported as such.
            None => FoundBatch { id, participants: Vec::new(), is_prepare_record: false },
        };
        self.batches.opening.found.push(found);
    }

    /// A record could not be read: it is asked for again. If that does not help, shard 0 treats
    /// this shard as one that broke, and every operation is refused: which keys the batch changes
    /// is not known.
    fn load_again(&mut self, id: BatchId, error: &Error) {
        let opening = &mut self.batches.opening;
        fault_point!("library_unread_batch_passes_for_none", {
            return opening.found.push(FoundBatch { id, participants: Vec::new(), is_prepare_record: false });
        });
        let failures = opening.failures.entry(id).or_default();
        *failures += 1;
        if *failures < record::FAILURES_MAX && self.poisoned.is_none() {
            opening.records.push(record::key(id));
        } else {
            tracing::error!(%error, shard = self.config.shard, "a batch's record cannot be read: nothing is served");
            opening.refusal = Some(record::unread());
        }
    }

    /// Whether this shard can have logged it: keys of its own, a version that it had handed out.
    fn may_be_mine(&self, kept: &Kept) -> bool {
        let Kept::PrepareRecord { version, changes, .. } = kept else { return true };
        (1..=self.counter).contains(version)
            && changes.iter().all(|change| self.owner(&change.key) == self.config.shard)
    }

    /// Shard 0 learns what a shard found; `None`: it cannot read it.
    pub(super) fn participant_found(&mut self, from: u32, found: Option<Vec<FoundBatch>>, effects: &mut Effects) {
        let opening = &mut self.batches.opening;
        match (found, opening.lists.as_mut()) {
            (_, None) => return,
            // It broke since it reported.
            _ if opening.lost.contains(&from) => return,
            (Some(found), Some(lists)) => _ = lists.insert(from, found),
            (None, Some(_)) => opening.lost.push(from),
        }
        self.decide_when_all_told(effects);
    }

    /// When all shards have reported, or broke: a batch is committed if every participant holds its
    /// prepare record or a commit-done record.
    fn decide_when_all_told(&mut self, effects: &mut Effects) {
        let shards = self.config.shards as usize;
        let opening = &mut self.batches.opening;
        let Some(lists) = &opening.lists else { return };
        if lists.len() + opening.lost.len() < shards {
            return;
        }
        let lost = opening.lost.clone();
        let lists = opening.lists.take().unwrap_or_default();
        let mut batches: BTreeMap<BatchId, Vec<(u32, FoundBatch)>> = BTreeMap::new();
        for (shard, found) in lists {
            found.into_iter().for_each(|batch| batches.entry(batch.id).or_default().push((shard, batch)));
        }
        for (id, holders) in batches {
            self.decide_found(id, &holders, &lost, effects);
        }
        for shard in 0..self.config.shards {
            self.send(shard, BatchMessage::Decided, effects);
        }
    }

    fn decide_found(&mut self, id: BatchId, holders: &[(u32, FoundBatch)], lost: &[u32], effects: &mut Effects) {
        let found: Vec<_> =
            holders.iter().map(|(shard, found)| (*shard, &found.participants[..], found.is_prepare_record)).collect();
        match record::decide(&found, lost) {
            BatchFate::InDoubt(holders) => {
                holders.into_iter().for_each(|shard| self.send(shard, BatchMessage::InDoubt(id), effects))
            }
            BatchFate::Over(present) => {
                present.into_iter().for_each(|shard| self.send(shard, BatchMessage::Forget(id), effects))
            }
            BatchFate::Committed { holders, present } => {
                fault_point!("batch_dropped_at_opening", return self.abort_found(id, holders, effects));
                self.resume_batch(id, holders, present, effects);
            }
            BatchFate::Aborted(holders) => self.abort_found(id, holders, effects),
        }
    }

    fn abort_found(&mut self, id: BatchId, holders: Vec<u32>, effects: &mut Effects) {
        holders.into_iter().for_each(|shard| self.send(shard, BatchMessage::Abort(id), effects));
    }

    /// Everything that was found is decided: what came meanwhile is served.
    pub(super) fn decided(&mut self) {
        self.batches.opening.undecided = false;
    }

    pub(super) fn end_opening(&mut self, effects: &mut Effects) {
        if self.batches.opening.undecided || self.batches.deferred_operations.is_empty() {
            return;
        }
        for (token, operation) in std::mem::take(&mut self.batches.deferred_operations) {
            if self.accept(token, operation, effects).is_err() {
                effects.reply(token, Reply::Failed(Error::Closed));
            }
        }
    }

    /// A shard is broken before it reported what it found.
    pub(super) fn opening_failed(&mut self, peer: u32, effects: &mut Effects) {
        if self.config.shard != 0 {
            // Before all is read, nobody may be served: what is told then comes back with the word
            // that the shard is broken.
            if peer == 0 && self.batches.opening.undecided && self.batches.opening.told {
                let why = "the shard that decides on batches broke; reopen the store";
                self.get_all_stuck(&Error::Unknown(why), effects);
                self.decided();
            }
            return;
        }
        if !self.batches.opening.told {
            // Perhaps it breaks before this one's first tick.
            self.batches.opening.lists.get_or_insert_default();
        }
        let Some(lists) = &self.batches.opening.lists else { return };
        if !lists.contains_key(&peer) && !self.batches.opening.lost.contains(&peer) {
            self.batches.opening.lost.push(peer);
            if self.batches.opening.told {
                self.decide_when_all_told(effects);
            }
        }
    }
}
