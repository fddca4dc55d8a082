//! What an opening does with batches that a crash left: every shard tells shard 0 which prepare
//! records and commit-done records it has, and serves once that has decided.

use std::collections::BTreeMap;
use std::ops::Bound;

use stratakv_base::checksum::shard_of;
use stratakv_base::{CollectionId, Corruption, Key, Place, fault_point};
use stratakv_engine::prepare_record::{self as record, BatchFate, BatchId, Kept};
use stratakv_engine::{Effects, Error, PageRequest, Reply};
use stratakv_pmem::Pmem;

use super::{BatchMessage, INTERNAL};
use crate::matrix::Matrix;
use crate::memory::Permit;
use crate::operations::{Suspended, Work};
use crate::scan::PageWork;

/// A prepare record or a commit-done record.
#[derive(Clone, Debug)]
pub(crate) struct FoundBatchRecord {
    id: BatchId,
    /// Empty where it does not decode.
    participants: Vec<u32>,
    is_prepare_record: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Opening {
    phase: BatchRecoveryPhase,
    found: Vec<FoundBatchRecord>,
    /// A page of records that was read.
    page: Option<Reply>,
    /// Shard 0: what the shards reported.
    lists: BTreeMap<u32, Option<Vec<FoundBatchRecord>>>,
    /// Why nothing is served.
    refusal: Option<Error>,
    /// Where the page begins that is being read, and how often one could not be read.
    from: Bound<Key>,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchRecoveryPhase {
    Begin,
    Reading,
    Told,
    Over,
}

impl Opening {
    /// One shard alone has no such batches.
    pub(super) fn new(shards: u32) -> Opening {
        let phase = if shards > 1 { BatchRecoveryPhase::Begin } else { BatchRecoveryPhase::Over };
        Opening {
            phase,
            found: Vec::new(),
            page: None,
            lists: BTreeMap::new(),
            refusal: None,
            from: Bound::Unbounded,
            failures: 0,
        }
    }

    pub(super) fn may_serve(&self) -> bool {
        self.phase == BatchRecoveryPhase::Over
    }

    pub(super) fn is_over(&self) -> bool {
        self.may_serve()
    }

    pub(super) fn decided(&mut self) {
        self.phase = BatchRecoveryPhase::Over;
    }

    pub(super) fn refusal(&self) -> Option<&Error> {
        self.refusal.as_ref()
    }

    /// A batch is to be applied, which nobody can who only reads.
    pub(super) fn refuse_reading(&mut self) {
        let why = "a batch was committed and not carried out at every shard before the store was last closed: open it for writing once";
        self.refusal = Some(Error::WrongVolume(why.into()));
    }

    /// What came of reading a page of records.
    pub(crate) fn read(&mut self, reply: Reply) {
        self.page = Some(reply);
    }
}

impl<P: Pmem> Matrix<P> {
    pub(super) fn step_opening(&mut self, effects: &mut Effects) {
        if self.batches.opening.phase == BatchRecoveryPhase::Begin {
            self.batches.opening.phase = BatchRecoveryPhase::Reading;
            self.read_records(Bound::Included(Key::bound(CollectionId::ENGINE, b"")), effects);
        }
        match self.batches.opening.page.take() {
            Some(Reply::Page { items, next }) => {
                for item in items {
                    let value = item.record.map(|record| record.value.to_bytes()).unwrap_or_default();
                    self.found_record(&item.key, &value);
                }
                match next {
                    Some(next) => self.read_records(next, effects),
                    None => {
                        let found = std::mem::take(&mut self.batches.opening.found);
                        self.tell_found(Some(found));
                    }
                }
            }
            // Damage is reported by whoever reads it; what the others hold is in doubt.
            Some(Reply::Failed(Error::Corrupt(_))) => self.give_up_reading(),
            Some(_) => {
                let opening = &mut self.batches.opening;
                opening.failures += 1;
                if opening.failures < record::FAILURES_MAX {
                    let from = opening.from.clone();
                    return self.read_records(from, effects);
                }
                opening.refusal = Some(record::unread());
                self.give_up_reading();
            }
            None => {}
        }
    }

    /// Shard 0 decides nothing here: what was read waits for the next opening.
    fn give_up_reading(&mut self) {
        let ids: Vec<BatchId> = self.batches.opening.found.iter().map(|found| found.id).collect();
        ids.into_iter().for_each(|id| self.doubt_prepare_record(id));
        self.tell_found(None);
    }

    fn tell_found(&mut self, found: Option<Vec<FoundBatchRecord>>) {
        self.batches.opening.phase = BatchRecoveryPhase::Told;
        self.batches.send(0, BatchMessage::Found(found));
    }

    /// No table has such keys but those of a store that was left in the middle of a batch: it costs
    /// no read.
    fn read_records(&mut self, from: Bound<Key>, effects: &mut Effects) {
        self.batches.opening.from = from.clone();
        let request = PageRequest {
            from,
            to: Bound::Unbounded,
            reverse: false,
            keys_only: false,
            items_max: 1024,
            bytes_max: 1 << 20,
            at: None,
        };
        let page = PageWork::of_engine_keys(request, self.read_view());
        self.next_operation += 1;
        let suspended = Suspended::new(INTERNAL, Work::Page(page), Permit::new(&self.waiting_bytes, 0));
        self.run_step(self.next_operation, suspended, false, effects);
    }

    fn found_record(&mut self, key: &Key, value: &[u8]) {
        // Others of the engine's own keys have another length.
        let Some(id) = record::id_of(key) else { return };
        let kept = record::decode(value).filter(|kept| self.may_be_mine(kept));
        let found = match kept {
            Some(Kept::Resolved { participants }) => FoundBatchRecord { id, participants, is_prepare_record: false },
            Some(Kept::PrepareRecord { participants, changes, .. }) => {
                self.recover_prepare_record(id, &participants, changes);
                FoundBatchRecord { id, participants, is_prepare_record: true }
            }
            None => {
                self.counters.corrupt_records += 1;
                let corruption = Corruption {
                    place: Place { shard: self.config.shard, offset_bytes: 0 },
                    what: "prepare record",
                    expected: "a prepare record that this shard can have logged".into(),
                    found: format!("batch {:x} of shard {} says something else", id.number, id.coordinator),
                };
                tracing::warn!(%corruption, "damage on the medium");
                FoundBatchRecord { id, participants: Vec::new(), is_prepare_record: false }
            }
        };
        self.batches.opening.found.push(found);
    }

    /// Whether this shard can have logged it.
    fn may_be_mine(&self, kept: &Kept) -> bool {
        let Kept::PrepareRecord { changes, .. } = kept else { return true };
        let owner = |key: &Key| shard_of(key.encoded(), self.config.shards as usize) as u32;
        changes.iter().all(|change| owner(&change.key) == self.config.shard)
    }

    /// Shard 0 learns what a shard found. When all have reported: a batch is committed if every
    /// participant holds its prepare record or a commit-done record.
    pub(super) fn participant_found(&mut self, from: u32, found: Option<Vec<FoundBatchRecord>>) {
        let lists = &mut self.batches.opening.lists;
        lists.insert(from, found);
        if lists.len() < self.config.shards as usize {
            return;
        }
        let lists = std::mem::take(lists);
        let lost: Vec<u32> = lists.iter().filter(|(_, found)| found.is_none()).map(|(shard, _)| *shard).collect();
        let mut batches: BTreeMap<BatchId, Vec<(u32, FoundBatchRecord)>> = BTreeMap::new();
        for (shard, found) in lists.into_iter().flat_map(|(shard, found)| Some((shard, found?))) {
            found.into_iter().for_each(|one| batches.entry(one.id).or_default().push((shard, one)));
        }
        // Where a shard cannot be read there may be a higher number: no batch begins.
        let last = batches.keys().map(|id| id.number).max().unwrap_or(0);
        self.batches.coordinator.last_number = last;
        for (id, holders) in batches {
            self.decide_found(id, &holders, &lost);
        }
        for shard in 0..self.config.shards {
            self.batches.send(shard, BatchMessage::Decided);
        }
        if !lost.is_empty() {
            self.batches.coordinator.refuses = true;
        }
    }

    fn decide_found(&mut self, id: BatchId, holders: &[(u32, FoundBatchRecord)], lost: &[u32]) {
        let found: Vec<_> =
            holders.iter().map(|(shard, found)| (*shard, &found.participants[..], found.is_prepare_record)).collect();
        match record::decide(&found, lost) {
            BatchFate::InDoubt(holders) => {
                holders.into_iter().for_each(|shard| self.batches.send(shard, BatchMessage::InDoubt(id)))
            }
            BatchFate::Over(present) => {
                present.into_iter().for_each(|shard| self.batches.send(shard, BatchMessage::Forget(id)))
            }
            BatchFate::Committed { holders, present } => {
                fault_point!("matrix_batch_dropped_at_opening", return self.abort_found(id, holders));
                self.resume_batch(id, holders, present);
            }
            BatchFate::Aborted(holders) => self.abort_found(id, holders),
        }
    }

    fn abort_found(&mut self, id: BatchId, holders: Vec<u32>) {
        holders.into_iter().for_each(|shard| self.batches.send(shard, BatchMessage::Abort(id)));
    }

    /// A shard is broken, perhaps before it reported what it found.
    pub(super) fn opening_failed(&mut self, peer: u32) {
        if self.batches.opening.is_over() {
            return;
        }
        if self.config.shard == 0 {
            if !self.batches.opening.lists.contains_key(&peer) {
                self.participant_found(peer, None);
            }
        } else if peer == 0 && self.batches.opening.phase == BatchRecoveryPhase::Told {
            // Before all is read, nobody may be served: what is told then comes back with the word
            // that the shard is broken.
            let prepare_records: Vec<BatchId> = self.batches.prepare_records.keys().copied().collect();
            prepare_records.into_iter().for_each(|id| self.doubt_prepare_record(id));
            self.batches.opening.decided();
        }
    }
}
