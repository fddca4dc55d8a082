//! What a crash left of batches: every shard reads its shares and marks, shard 0 decides.

use std::collections::BTreeMap;

use stratakv_base::{Key, Level, fault_point};
use stratakv_engine::{Effects, Error, Expect, Reply, Shard};

use super::record::{self, Kept, Verdict};
use super::{BatchId, BatchMessage, Event, Step};
use crate::slab::Slab;
use crate::write::{Kind, Origin, Work};

/// A record of a batch that a shard found.
#[derive(Clone, Debug)]
pub(super) struct FoundBatch {
    id: BatchId,
    /// Empty if it cannot be read.
    participants: Vec<u32>,
    /// There is something to carry out.
    is_share: bool,
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
    /// Shard 0: shards that broke before they told.
    lost: Vec<u32>,
}

impl Opening {
    pub(super) fn new(records: Vec<Key>) -> Opening {
        let undecided = !records.is_empty();
        Opening { records, loading: 0, found: Vec::new(), told: false, undecided, lists: None, lost: Vec::new() }
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
            let origin = Origin::Batch(id, Step::Load);
            self.submit(Work::new(origin, key, Expect::Any, Kind::Load, Level::ProcessCrash), effects);
        }
        if self.batches.opening.loading == 0 && !self.batches.shares.values().any(super::PrepareRecord::is_being_held) {
            self.batches.opening.told = true;
            let found = std::mem::take(&mut self.batches.opening.found);
            self.say(0, BatchMessage::Found(found), effects);
        }
    }

    /// A record that was found has been read.
    pub(super) fn loaded(&mut self, id: BatchId, event: Event, effects: &mut Effects) {
        self.batches.opening.loading -= 1;
        let value = match event {
            Event::Answered(Reply::Record(Some(record))) => Some(record.value.to_bytes()),
            _ => None,
        };
        let kept = value.as_deref().and_then(record::decode).filter(|kept| self.may_be_mine(kept));
        if value.is_some() && kept.is_none() {
            let expected = "a share that this shard can have logged".into();
            let found = format!("batch {:x} of shard {} says something else", id.number, id.coordinator);
            self.note_corruption(&self.corruption(0, "share of a batch", expected, &found));
        }
        let found = match kept {
            Some(Kept::Resolved { participants }) => FoundBatch { id, participants, is_share: false },
            Some(Kept::Share { participants, version, changes }) => {
                self.recover_share(id, &participants, version, changes, effects);
                FoundBatch { id, participants, is_share: true }
            }
            // It was durable, so the others go by it; what it held is damage, and reported as such.
            None => FoundBatch { id, participants: Vec::new(), is_share: false },
        };
        self.batches.opening.found.push(found);
    }

    /// Whether this shard can have logged it: keys of its own, a version that it had handed out.
    fn may_be_mine(&self, kept: &Kept) -> bool {
        let Kept::Share { version, changes, .. } = kept else { return true };
        (1..=self.counter).contains(version)
            && changes.iter().all(|change| self.owner(&change.key) == self.config.shard)
    }

    /// Shard 0 hears what a shard found. When all have told: a batch is committed if every
    /// participant holds its share or a mark.
    pub(super) fn participant_found(&mut self, from: u32, found: Vec<FoundBatch>, effects: &mut Effects) {
        let shards = self.config.shards as usize;
        let opening = &mut self.batches.opening;
        let Some(lists) = opening.lists.as_mut() else { return };
        lists.insert(from, found);
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
            self.say(shard, BatchMessage::Decided, effects);
        }
    }

    fn decide_found(&mut self, id: BatchId, holders: &[(u32, FoundBatch)], lost: &[u32], effects: &mut Effects) {
        let found: Vec<_> =
            holders.iter().map(|(shard, found)| (*shard, &found.participants[..], found.is_share)).collect();
        match record::decide(&found, lost) {
            Verdict::InDoubt(holders) => {
                holders.into_iter().for_each(|shard| self.say(shard, BatchMessage::InDoubt(id), effects))
            }
            Verdict::Over(present) => {
                present.into_iter().for_each(|shard| self.say(shard, BatchMessage::Forget(id), effects))
            }
            Verdict::Committed { holders, present } => {
                fault_point!("batch_dropped_at_opening", return self.abort_found(id, holders, effects));
                self.resume_batch(id, holders, present, effects);
            }
            Verdict::Aborted(holders) => self.abort_found(id, holders, effects),
        }
    }

    fn abort_found(&mut self, id: BatchId, holders: Vec<u32>, effects: &mut Effects) {
        holders.into_iter().for_each(|shard| self.say(shard, BatchMessage::Abort(id), effects));
    }

    /// Everything that was found is decided: what came meanwhile is served.
    pub(super) fn decided(&mut self) {
        self.batches.opening.undecided = false;
    }

    pub(super) fn end_opening(&mut self, effects: &mut Effects) {
        if self.batches.opening.undecided || self.batches.held_back.is_empty() {
            return;
        }
        for (token, operation) in std::mem::take(&mut self.batches.held_back) {
            if self.accept(token, operation, effects).is_err() {
                effects.reply(token, Reply::Failed(Error::Closed));
            }
        }
    }

    /// A shard is broken before it told what it found.
    pub(super) fn opening_lost(&mut self, peer: u32, effects: &mut Effects) {
        if self.config.shard != 0 {
            // Before all is read, nobody may be served: what is told then comes back with the word
            // that the shard is broken.
            if peer == 0 && self.batches.opening.undecided && self.batches.opening.told {
                let shares: Vec<BatchId> = self.batches.shares.keys().copied().collect();
                let why = "the shard that decides on batches broke; reopen the store";
                shares.into_iter().for_each(|id| self.get_stuck(id, Error::Unknown(why), effects));
                self.decided();
            }
            return;
        }
        if !self.batches.opening.told {
            // Perhaps it breaks before this one's first turn.
            self.batches.opening.lists.get_or_insert_default();
        }
        let Some(lists) = &self.batches.opening.lists else { return };
        if !lists.contains_key(&peer) && !self.batches.opening.lost.contains(&peer) {
            self.batches.opening.lost.push(peer);
            // Told as if by itself, so that the count is looked at.
            let (me, mine) = (self.config.shard, lists.get(&self.config.shard).cloned());
            if let Some(mine) = mine {
                self.participant_found(me, mine, effects);
            }
        }
    }
}
