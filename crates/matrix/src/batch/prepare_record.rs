//! A participant's part of a batch: it locks the keys, logs the prepare record, applies the
//! changes. A read-only participant only locks.

use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::{Expiry, fault_point};
use stratakv_chassis::batches::prepare_record::{self as record, BatchId, Kept};
use stratakv_chassis::batches::{Completion, LastChange, Prepare, ToCoordinator, VisibleFlag};
use stratakv_engine::{Change, ChangeKind, Effects, Error, Reply};
use stratakv_pmem::Pmem;

use super::INTERNAL;
use crate::blob_write::Placed;
use crate::changes::{Before, OperationStep};
use crate::container::{Change as Append, What};
use crate::cursor::Stop;
use crate::matrix::Matrix;
use crate::operations::{Suspended, Work};

/// See the module.
#[derive(Debug)]
pub(crate) struct PrepareRecord {
    id: BatchId,
    participants: Arc<[u32]>,
    pub(crate) changes: Vec<Change>,
    last: Option<usize>,
    visible: VisibleFlag,
    phase: ParticipantPhase,
    /// Its record is in the log.
    is_logged: bool,
    /// Where the long values of its changes lie, and its record's.
    placed: Vec<Placed>,
    record_placed: Vec<Placed>,
    pub(crate) looked: Vec<Option<Before>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParticipantPhase {
    Locking,
    /// Waits until everybody has locked their keys.
    Locked,
    Logging,
    /// Waits for the decision.
    Logged,
    Applying,
    /// It was refused: the record goes.
    Erasing,
}

impl PrepareRecord {
    /// Where the long values lie that are being written, or were.
    pub(crate) fn placed(&mut self) -> &mut Vec<Placed> {
        if self.phase == ParticipantPhase::Logging { &mut self.record_placed } else { &mut self.placed }
    }

    pub(crate) fn all_placed(&self) -> (&[Placed], &[Placed]) {
        (&self.placed, &self.record_placed)
    }

    /// Whether the batch holds: it is not refused any more.
    pub(crate) fn is_decided(&self) -> bool {
        self.phase == ParticipantPhase::Applying
    }

    /// The same each time: it may be written to the volume first.
    fn record(&self) -> Bytes {
        let version = self.id.number;
        let participants = self.participants.to_vec();
        record::encode(&Kept::PrepareRecord { participants, version, changes: self.changes.clone() })
    }
}

impl<P: Pmem> Matrix<P> {
    /// Begins a prepare record: its keys are queued for, all in this tick, so that prepare records
    /// meet in one order everywhere.
    pub(super) fn prepare(&mut self, prepare: Prepare, effects: &mut Effects) {
        let Prepare { id, participants, changes, last, visible, .. } = prepare;
        let refusal = self.refusal().or((!self.is_open()).then_some(Error::Closed));
        if let Some(error) = refusal {
            return self.batches.commit.mail.send(id.coordinator, ToCoordinator::Refused(id, Reply::Failed(error)));
        }
        let prepare_record = PrepareRecord {
            id,
            participants,
            changes,
            last,
            visible,
            phase: ParticipantPhase::Locking,
            is_logged: false,
            placed: Vec::new(),
            record_placed: Vec::new(),
            looked: Vec::new(),
        };
        let (op, suspended) = self.suspend_prepare_record(prepare_record);
        match self.scheduler.may_begin(&suspended.work) {
            true => self.run_step(op, suspended, false, effects),
            false => self.scheduler.queue(op, suspended),
        }
    }

    fn suspend_prepare_record(&mut self, prepare_record: PrepareRecord) -> (u64, Suspended) {
        let op = self.scheduler.next_id();
        self.batches.prepare_records.insert(prepare_record.id, op);
        let work = Work::PrepareRecord(Box::new(prepare_record));
        let permit = self.memory.permit_for_writing(work.value_bytes());
        (op, Suspended::new(INTERNAL, work, permit))
    }

    /// A prepare record that was durable before the store was opened. Nobody else is served yet:
    /// its keys are its own at once.
    pub(super) fn recover_prepare_record(&mut self, id: BatchId, participants: &[u32], changes: Vec<Change>) {
        let prepare_record = PrepareRecord {
            id,
            participants: participants.into(),
            looked: Vec::new(),
            changes,
            last: None,
            visible: VisibleFlag::default(),
            phase: ParticipantPhase::Logged,
            is_logged: true,
            placed: Vec::new(),
            record_placed: Vec::new(),
        };
        self.batches.publication.log(id, &prepare_record.visible, &prepare_record.changes);
        let (op, mut suspended) = self.suspend_prepare_record(prepare_record);
        suspended.begun = true;
        self.scheduler.queue(op, suspended);
    }

    /// A step of a prepare record.
    ///
    /// # Errors
    /// [`Stop`]: nothing was changed.
    pub(crate) fn prepare_record_step(&mut self, prepare_record: &mut PrepareRecord) -> Result<OperationStep, Stop> {
        match prepare_record.phase {
            ParticipantPhase::Locking => self.lock_keys(prepare_record),
            ParticipantPhase::Locked | ParticipantPhase::Logged => Ok(OperationStep::Rests),
            ParticipantPhase::Logging => Ok(self.log(prepare_record)),
            ParticipantPhase::Applying => self.apply_changes(prepare_record),
            ParticipantPhase::Erasing => Ok(self.erase(prepare_record)),
        }
    }

    /// Its keys are locked; what its conditions need is looked up, and its long values are written
    /// already.
    fn lock_keys(&mut self, prepare_record: &mut PrepareRecord) -> Result<OperationStep, Stop> {
        self.look_at(&prepare_record.changes, &mut prepare_record.looked, None)?;
        if let Some(unmet) = self.unmet(&prepare_record.changes, &prepare_record.looked) {
            return Ok(OperationStep::Reply(Reply::Unmet(unmet)));
        }
        if let Some(long) = self.long_values(&prepare_record.changes, &prepare_record.placed) {
            return Ok(OperationStep::BlobWrite(long));
        }
        let grows = prepare_record.changes.iter().any(|change| matches!(change.kind, ChangeKind::Put { .. }));
        if let Some(waits) = self.waits_for_room(grows) {
            return Ok(waits);
        }
        prepare_record.phase = ParticipantPhase::Locked;
        self.batches.commit.mail.send(prepare_record.id.coordinator, ToCoordinator::Locked(prepare_record.id));
        Ok(OperationStep::Rests)
    }

    fn log(&mut self, prepare_record: &mut PrepareRecord) -> OperationStep {
        let key = record::key(prepare_record.id);
        let value = prepare_record.record();
        let what = match (self.is_long(key.encoded(), &value), prepare_record.record_placed.first()) {
            (false, _) => What::Put(&value),
            (true, None) => return OperationStep::BlobWrite(vec![value]),
            (true, Some(placed)) => What::Blob(placed.pointer(self.container.version() + 1, &value)),
        };
        let append = Append { key: key.encoded(), flags: 0, expiry: Expiry::NEVER, what };
        match self.append(&[append]) {
            Ok(version) => {
                prepare_record.record_placed.clear();
                (prepare_record.phase, prepare_record.is_logged) = (ParticipantPhase::Logged, true);
                self.batches.commit.mail.send_when(
                    version,
                    prepare_record.id.coordinator,
                    ToCoordinator::Prepared(prepare_record.id, None),
                );
                self.batches.publication.log(prepare_record.id, &prepare_record.visible, &prepare_record.changes);
                OperationStep::Rests
            }
            Err(OperationStep::Logged(reply)) => OperationStep::Reply(reply),
            Err(refused) => refused,
        }
    }

    /// All changes and the commit-done record that they are made are one batch of this shard's log.
    fn apply_changes(&mut self, prepare_record: &mut PrepareRecord) -> Result<OperationStep, Stop> {
        // Of one that was found at opening they are not written yet.
        if let Some(long) = self.long_values(&prepare_record.changes, &prepare_record.placed) {
            return Ok(OperationStep::BlobWrite(long));
        }
        let key = record::key(prepare_record.id);
        let commit_done = record::encode(&Kept::Resolved { participants: prepare_record.participants.to_vec() });
        let (mut appends, done) = self.appends(&prepare_record.changes, &prepare_record.looked, &prepare_record.placed);
        let changed = appends.len() as u64;
        let what = What::Put(&commit_done);
        appends.push(Append { key: key.encoded(), flags: 0, expiry: Expiry::NEVER, what });
        fault_point!("matrix_batch_carried_out_without_a_mark", appends.pop());
        let before = self.container.version();
        let version = match self.append(&appends) {
            Ok(version) => version,
            Err(OperationStep::NoRoom) => return Ok(OperationStep::NoRoom),
            Err(OperationStep::Reply(Reply::Failed(error)) | OperationStep::Logged(Reply::Failed(error))) => {
                tracing::error!(%error, shard = self.config.shard, "a committed batch is carried out when the store is opened again");
                self.stick(prepare_record);
                return Ok(OperationStep::Ended);
            }
            Err(other) => return Ok(other),
        };
        prepare_record.placed.clear();
        self.batches.publication.complete(prepare_record.id, &prepare_record.changes);
        self.batches.prepare_records.remove(&prepare_record.id);
        let last = prepare_record.last.map(|_| LastChange {
            version: if done.deletes_nothing { 0 } else { before + changed },
            existed: done.existed,
        });
        let completed = ToCoordinator::Completed(prepare_record.id, Completion::CommitDone, last);
        self.batches.commit.mail.send_when(version, prepare_record.id.coordinator, completed);
        Ok(OperationStep::Ended)
    }

    fn erase(&mut self, prepare_record: &mut PrepareRecord) -> OperationStep {
        if prepare_record.is_logged {
            match self.append(&[Append::delete(record::key(prepare_record.id).encoded())]) {
                Ok(_) => {}
                Err(OperationStep::NoRoom) => return OperationStep::NoRoom,
                // It is found at the next opening, and erased then.
                Err(_) => {}
            }
        }
        self.batches.prepare_records.remove(&prepare_record.id);
        OperationStep::Ended
    }

    /// Goes on with a prepare record about which a message came.
    fn wake_prepare_record(
        &mut self,
        id: BatchId,
        from: &[ParticipantPhase],
        to: ParticipantPhase,
        effects: &mut Effects,
    ) -> bool {
        let Some(op) = self.batches.prepare_records.get(&id).copied() else { return false };
        let Some(mut suspended) = self.scheduler.take(op) else { return false };
        let due =
            matches!(&suspended.work, Work::PrepareRecord(prepare_record) if from.contains(&prepare_record.phase));
        if let (true, Work::PrepareRecord(prepare_record)) = (due, &mut suspended.work) {
            prepare_record.phase = to;
            if to == ParticipantPhase::Erasing {
                self.batches.publication.complete(id, &prepare_record.changes);
                self.note_unreferenced(&mut suspended.work);
            }
            self.run_step(op, suspended, true, effects);
        } else {
            self.scheduler.suspend(op, suspended, true);
        }
        due
    }

    pub(super) fn log_prepare_record(&mut self, id: BatchId, effects: &mut Effects) {
        self.wake_prepare_record(id, &[ParticipantPhase::Locked], ParticipantPhase::Logging, effects);
    }

    /// The batch is visible.
    pub(super) fn apply(&mut self, id: BatchId, effects: &mut Effects) {
        self.batches.publication.apply(id);
        if !self.wake_prepare_record(id, &[ParticipantPhase::Logged], ParticipantPhase::Applying, effects) {
            self.batches.publication.complete(id, &[]);
        }
    }

    /// The batch is committed.
    pub(super) fn commit_prepare_record(&mut self, id: BatchId, effects: &mut Effects) {
        if self.config.read_only {
            let why = "a batch was committed and not carried out at every shard before the store was last closed: open it for writing once";
            self.batches.commit.opening.refuse(Error::WrongVolume(why.into()));
            // Nobody waits for it: the next opening for writing applies it.
            return self.doubt_prepare_record(id);
        }
        if self.batches.stuck_batches.contains(&id) {
            // The decision of an opening comes after it was told: shard 0 had no such batch yet.
            let stuck = ToCoordinator::Completed(id, Completion::Stuck, None);
            return self.batches.commit.mail.send(id.coordinator, stuck);
        }
        let is_here = self.batches.prepare_records.contains_key(&id);
        // Of a read-only participant nothing was logged.
        let was_locked = self.wake_prepare_record(id, &[ParticipantPhase::Locked], ParticipantPhase::Erasing, effects);
        if !was_locked && is_here {
            self.apply(id, effects);
        }
    }

    /// Somebody refused.
    pub(super) fn abort_prepare_record(&mut self, id: BatchId, effects: &mut Effects) {
        let phases =
            [ParticipantPhase::Locking, ParticipantPhase::Locked, ParticipantPhase::Logging, ParticipantPhase::Logged];
        self.wake_prepare_record(id, &phases, ParticipantPhase::Erasing, effects);
    }

    /// Whether it holds is not known before the store is opened again.
    pub(super) fn doubt_prepare_record(&mut self, id: BatchId) {
        let Some(op) = self.batches.prepare_records.remove(&id) else { return };
        let Some(suspended) = self.scheduler.take(op) else { return };
        if let Work::PrepareRecord(prepare_record) = &suspended.work {
            self.batches.publication.complete(id, &prepare_record.changes);
            self.batches.stuck.extend(prepare_record.changes.iter().map(|change| change.key.clone()));
        }
        self.scheduler.release_keys(op, &suspended.work);
    }

    /// It cannot be applied now.
    fn stick(&mut self, prepare_record: &PrepareRecord) {
        self.batches.publication.complete(prepare_record.id, &prepare_record.changes);
        self.batches.prepare_records.remove(&prepare_record.id);
        self.batches.stuck.extend(prepare_record.changes.iter().map(|change| change.key.clone()));
        self.batches.stuck_batches.insert(prepare_record.id);
        self.batches
            .commit
            .mail
            .send(prepare_record.id.coordinator, ToCoordinator::Completed(prepare_record.id, Completion::Stuck, None));
    }

    /// A prepare record fails, with everything that waits: its medium failed. Where it is logged it
    /// may count at the next opening.
    pub(crate) fn fail_prepare_record(&mut self, prepare_record: &PrepareRecord, reply: Reply) {
        let id = prepare_record.id;
        if prepare_record.is_logged {
            self.stick(prepare_record);
        } else {
            self.batches.prepare_records.remove(&id);
        }
        if prepare_record.phase != ParticipantPhase::Applying {
            let reply = if prepare_record.is_logged {
                Reply::Failed(Error::Unknown("a part of the batch is in doubt"))
            } else {
                reply
            };
            self.batches.commit.mail.send(id.coordinator, ToCoordinator::Refused(id, reply));
        }
    }

    /// Commit-done records of batches that everybody has applied go, when there is room.
    pub(super) fn forget_marks(&mut self) {
        if self.batches.is_paused() || !self.life.may_maintain() {
            return;
        }
        while let Some(id) = self.batches.forgotten.pop() {
            if matches!(self.append(&[Append::delete(record::key(id).encoded())]), Err(OperationStep::NoRoom)) {
                return self.batches.forgotten.push(id);
            }
        }
    }

    /// The coordinator broke. What is visible is committed, whether or not it said so. What is not
    /// logged never will be; of what is, nobody knows.
    pub(super) fn participant_failed(&mut self, peer: u32, effects: &mut Effects) {
        for id in self.batches.publication.visible(Some(peer)) {
            self.apply(id, effects);
        }
        let is_applied = |id: &BatchId| self.batches.publication.is_applied(*id);
        let of_peer = self.batches.prepare_records.keys().filter(|id| id.coordinator == peer && !is_applied(id));
        for id in of_peer.copied().collect::<Vec<_>>() {
            let phases = [ParticipantPhase::Locking, ParticipantPhase::Locked, ParticipantPhase::Logging];
            if !self.wake_prepare_record(id, &phases, ParticipantPhase::Erasing, effects) {
                self.doubt_prepare_record(id);
            }
        }
    }
}
