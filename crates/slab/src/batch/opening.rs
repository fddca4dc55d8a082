//! Reads the prepare records and commit-done records that a crash left, for shard 0 to decide.

use stratakv_base::{Key, Level, fault_point};
use stratakv_chassis::batches::opening::damage;
use stratakv_engine::{Effects, Error, Expect, Reply, Shard};

use super::record::{self, Kept};
use super::{BatchId, BatchStep, Event};
use crate::placement::Placement;
use crate::shard::IndexedShard;
use crate::write::{Kind, Origin, Work};

/// See the module.
#[derive(Debug)]
pub(super) struct RecordReads {
    /// Not yet asked for.
    pub(super) records: Vec<Key>,
    /// Under way.
    pub(super) loading: usize,
}

impl<P: Placement> IndexedShard<P> {
    /// Reads what was found, then tells shard 0.
    pub(super) fn step_opening(&mut self, effects: &mut Effects) {
        if !self.batches.commit.opening.is_reading() {
            return;
        }
        for key in std::mem::take(&mut self.batches.reads.records) {
            let Some(id) = record::id_of(&key) else { continue };
            self.batches.reads.loading += 1;
            let origin = Origin::Batch(id, BatchStep::Load);
            self.submit(Work::new(origin, key, Expect::Any, Kind::Load, Level::ProcessCrash), effects);
        }
        let is_read = self.batches.reads.loading == 0 && self.batches.reads.records.is_empty();
        if !is_read || self.batches.prepare_records.values().any(super::PrepareRecord::is_locking) {
            return;
        }
        let refusal = self.batches.commit.opening.refusal().cloned();
        if let Some(error) = &refusal {
            // Shard 0 decides nothing here: those that were read wait for the next opening.
            self.get_all_stuck(error, effects);
        }
        let commit = &mut self.batches.commit;
        commit.opening.tell(refusal.is_none(), &mut commit.mail);
    }

    /// No batch can be decided before the next opening.
    pub(super) fn get_all_stuck(&mut self, error: &Error, effects: &mut Effects) {
        let ids: Vec<BatchId> = self.batches.prepare_records.keys().copied().collect();
        ids.into_iter().for_each(|id| self.get_stuck(id, error.clone(), effects));
    }

    /// A record that was found has been read.
    pub(super) fn loaded(&mut self, id: BatchId, event: Event, effects: &mut Effects) {
        self.batches.reads.loading -= 1;
        let value = match event {
            Event::Answered(Reply::Record(Some(record))) => Some(record.value.to_bytes()),
            Event::Answered(Reply::Failed(error)) if !matches!(error, Error::Corrupt(_)) => {
                return self.load_again(id, &error);
            }
            _ => None,
        };
        let commit = &mut self.batches.commit;
        let can_be_version = |version| (1..=self.groups.counter).contains(&version);
        match commit.opening.note(commit.coordinator.rules(), id, value.as_deref(), can_be_version) {
            Some(Kept::PrepareRecord { participants, version, changes }) => {
                self.recover_prepare_record(id, &participants, version, changes, effects);
            }
            None if value.is_some() => self.health.note(&damage(self.config.shard, id)),
            // Whoever read the damage has reported it.
            Some(Kept::Resolved { .. }) | None => {}
        }
    }

    /// A record could not be read: it is asked for again. If that does not help, shard 0 treats
    /// this shard as one that broke, and every operation is refused: which keys the batch changes
    /// is not known.
    fn load_again(&mut self, id: BatchId, error: &Error) {
        let commit = &mut self.batches.commit;
        fault_point!("trial_unread_batch_passes_for_none", {
            commit.opening.note(commit.coordinator.rules(), id, None, |_| true);
            return;
        });
        let key = record::key(id);
        if self.health.poisoned.is_some() {
            commit.opening.refuse(record::unread());
        } else if commit.opening.may_read_again(&key) {
            return self.batches.reads.records.push(key);
        }
        tracing::error!(%error, shard = self.config.shard, "a batch's record cannot be read: nothing is served");
    }

    /// Once everything that was found is decided, what came meanwhile is served. Whether there was
    /// any.
    pub(super) fn end_opening(&mut self, effects: &mut Effects) -> bool {
        if !self.batches.commit.opening.may_serve() || self.batches.deferred_operations.is_empty() {
            return false;
        }
        for (token, operation) in std::mem::take(&mut self.batches.deferred_operations) {
            if self.accept(token, operation, effects).is_err() {
                effects.reply(token, Reply::Failed(Error::Closed));
            }
        }
        true
    }
}
