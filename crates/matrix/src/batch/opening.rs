//! Reads the prepare records and commit-done records that a crash left, for shard 0 to decide.

use std::ops::Bound;

use stratakv_base::{CollectionId, Key};
use stratakv_chassis::batches::opening::damage;
use stratakv_chassis::batches::prepare_record::{self as record, BatchId, Kept};
use stratakv_engine::{Effects, Error, PageRequest, Reply};
use stratakv_pmem::Pmem;

use super::INTERNAL;
use crate::matrix::Matrix;
use crate::operations::{Suspended, Work};
use crate::scan::PageWork;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RecordReads {
    /// Where the page begins that is being read; nowhere before the first.
    from: Option<Bound<Key>>,
    /// What came of it.
    pub(super) page: Option<Reply>,
}

impl<P: Pmem> Matrix<P> {
    pub(super) fn step_opening(&mut self, effects: &mut Effects) {
        if !self.batches.commit.opening.is_reading() {
            return;
        }
        let first = Key::bound(CollectionId::ENGINE, b"");
        let reads = &mut self.batches.reads;
        match (reads.page.take(), reads.from.clone()) {
            (None, None) => self.read_records(Bound::Included(first), effects),
            (Some(Reply::Page { items, next }), _) => {
                for item in items {
                    let value = item.record.map(|record| record.value.to_bytes()).unwrap_or_default();
                    self.found_record(&item.key, &value);
                }
                match next {
                    Some(next) => self.read_records(next, effects),
                    None => self.tell_found(true),
                }
            }
            // Damage is reported by whoever reads it; what the others hold is in doubt.
            (Some(Reply::Failed(Error::Corrupt(_))), _) => self.give_up_reading(),
            (Some(_), Some(from)) if self.batches.commit.opening.may_read_again(&first) => {
                self.read_records(from, effects);
            }
            (Some(_), _) => self.give_up_reading(),
            (None, Some(_)) => {}
        }
    }

    /// Shard 0 decides nothing here: what was read waits for the next opening.
    fn give_up_reading(&mut self) {
        self.doubt_all();
        self.tell_found(false);
    }

    fn tell_found(&mut self, is_known: bool) {
        let commit = &mut self.batches.commit;
        commit.opening.tell(is_known, &mut commit.mail);
    }

    /// No table has such keys but those of a store that was left in the middle of a batch: it costs
    /// no read.
    fn read_records(&mut self, from: Bound<Key>, effects: &mut Effects) {
        self.batches.reads.from = Some(from.clone());
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
        let suspended = Suspended::new(INTERNAL, Work::Page(page), self.memory.permit_for_writing(0));
        let id = self.scheduler.next_id();
        self.run_step(id, suspended, false, effects);
    }

    fn found_record(&mut self, key: &Key, value: &[u8]) {
        // Others of the engine's own keys have another length.
        let Some(id) = record::id_of(key) else { return };
        let commit = &mut self.batches.commit;
        match commit.opening.note(commit.coordinator.rules(), id, Some(value), |_| true) {
            Some(Kept::Resolved { .. }) => {}
            Some(Kept::PrepareRecord { participants, changes, .. }) => {
                self.recover_prepare_record(id, &participants, changes);
            }
            None => {
                self.counters.corrupt_records += 1;
                let corruption = damage(self.config.shard, id);
                tracing::warn!(%corruption, "damage on the medium");
            }
        }
    }

    /// No batch can be decided before the next opening.
    pub(super) fn doubt_all(&mut self) {
        let ids: Vec<BatchId> = self.batches.prepare_records.keys().copied().collect();
        ids.into_iter().for_each(|id| self.doubt_prepare_record(id));
    }
}
