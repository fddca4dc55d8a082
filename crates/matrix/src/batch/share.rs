//! A participant's share of a batch: hold, log, carry out. A witness only holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use stratakv_base::{Expiry, fault_point};
use stratakv_engine::share::{self as record, BatchId, Kept};
use stratakv_engine::{Change, ChangeKind, Effects, Error, Reply};
use stratakv_pmem::Pmem;

use super::{BatchMessage, Done, INTERNAL, Prepare};
use crate::blob_write::Placed;
use crate::changes::{Before, OperationStep};
use crate::container::{Change as Append, What};
use crate::cursor::Stop;
use crate::matrix::Matrix;
use crate::memory::Lease;
use crate::operations::{Parked, Work};

/// See the module.
#[derive(Debug)]
pub(crate) struct PrepareRecord {
    id: BatchId,
    participants: Arc<[u32]>,
    pub(crate) changes: Vec<Change>,
    last: Option<usize>,
    shown: Arc<AtomicBool>,
    phase: Phase,
    /// Its record is in the log.
    is_logged: bool,
    /// Where the long values of its changes lie, and its record's.
    placed: Vec<Placed>,
    record_placed: Vec<Placed>,
    pub(crate) looked: Vec<Option<Before>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Holding,
    /// Waits until everybody holds their keys.
    Held,
    Logging,
    /// Waits for the decision.
    Logged,
    Carrying,
    /// It was refused: the record goes.
    Erasing,
}

impl PrepareRecord {
    /// Where the long values lie that are being written, or were.
    pub(crate) fn placed(&mut self) -> &mut Vec<Placed> {
        if self.phase == Phase::Logging { &mut self.record_placed } else { &mut self.placed }
    }

    pub(crate) fn all_placed(&self) -> (&[Placed], &[Placed]) {
        (&self.placed, &self.record_placed)
    }

    /// Whether the batch holds: it is not refused any more.
    pub(crate) fn is_decided(&self) -> bool {
        self.phase == Phase::Carrying
    }

    /// The same each time: it may be written to the volume first.
    fn record(&self) -> Bytes {
        let version = self.id.number;
        let participants = self.participants.to_vec();
        record::encode(&Kept::Share { participants, version, changes: self.changes.clone() })
    }
}

/// The flag that all participants share.
pub(super) fn is_set(shown: &AtomicBool) -> bool {
    shown.load(Ordering::Acquire)
}

impl<P: Pmem> Matrix<P> {
    /// Begins a share: its keys are queued for, all in this turn, so that shares meet in one order
    /// everywhere.
    pub(super) fn prepare(&mut self, prepare: Prepare, effects: &mut Effects) {
        let Prepare { id, participants, changes, last, shown } = prepare;
        let refusal = self.refusal().or((!self.is_open()).then_some(Error::Closed));
        if let Some(error) = refusal {
            return self.batches.say(id.coordinator, BatchMessage::Refused { id, reply: Reply::Failed(error) });
        }
        let share = PrepareRecord {
            id,
            participants,
            changes,
            last,
            shown,
            phase: Phase::Holding,
            is_logged: false,
            placed: Vec::new(),
            record_placed: Vec::new(),
            looked: Vec::new(),
        };
        let (op, parked) = self.park_share(share);
        let is_free = self.turns.is_free(&parked.work) && self.space_waiters.is_empty();
        if is_free {
            return self.attempt(op, parked, false, effects);
        }
        self.turns.queue(op, &parked.work);
        self.parked.insert(op, parked);
    }

    fn park_share(&mut self, share: PrepareRecord) -> (u64, Parked) {
        self.next_operation += 1;
        let op = self.next_operation;
        self.batches.shares.insert(share.id, op);
        let work = Work::PrepareRecord(Box::new(share));
        let lease = Lease::new(&self.waiting_bytes, work.value_bytes());
        (op, Parked::new(INTERNAL, work, lease))
    }

    /// A share that was durable before the store was opened. Nobody else is served yet: its keys
    /// are its own at once.
    pub(super) fn recover_share(&mut self, id: BatchId, participants: &[u32], changes: Vec<Change>) {
        let share = PrepareRecord {
            id,
            participants: participants.into(),
            looked: Vec::new(),
            changes,
            last: None,
            shown: Arc::default(),
            phase: Phase::Logged,
            is_logged: true,
            placed: Vec::new(),
            record_placed: Vec::new(),
        };
        self.batches.showing.log(id, &share.shown, &share.changes);
        let (op, mut parked) = self.park_share(share);
        parked.begun = true;
        self.turns.queue(op, &parked.work);
        self.parked.insert(op, parked);
    }

    /// A step of a share.
    ///
    /// # Errors
    /// [`Stop`]: nothing was changed.
    pub(crate) fn share_step(&mut self, share: &mut PrepareRecord) -> Result<OperationStep, Stop> {
        match share.phase {
            Phase::Holding => self.hold(share),
            Phase::Held | Phase::Logged => Ok(OperationStep::Rests),
            Phase::Logging => Ok(self.log(share)),
            Phase::Carrying => self.carry_out(share),
            Phase::Erasing => Ok(self.erase(share)),
        }
    }

    /// Its keys are held; what its conditions need is looked up, and its long values are written
    /// already.
    fn hold(&mut self, share: &mut PrepareRecord) -> Result<OperationStep, Stop> {
        self.look_at(&share.changes, &mut share.looked, None)?;
        if let Some(unmet) = self.unmet(&share.changes, &share.looked) {
            return Ok(OperationStep::Reply(Reply::Unmet(unmet)));
        }
        if let Some(long) = self.long_values(&share.changes, &share.placed) {
            return Ok(OperationStep::BlobWrite(long));
        }
        let grows = share.changes.iter().any(|change| matches!(change.kind, ChangeKind::Put { .. }));
        if let Some(waits) = self.waits_for_room(grows) {
            return Ok(waits);
        }
        share.phase = Phase::Held;
        self.batches.say(share.id.coordinator, BatchMessage::Held(share.id));
        Ok(OperationStep::Rests)
    }

    fn log(&mut self, share: &mut PrepareRecord) -> OperationStep {
        let key = record::key(share.id);
        let value = share.record();
        let what = match (self.is_long(key.encoded(), &value), share.record_placed.first()) {
            (false, _) => What::Put(&value),
            (true, None) => return OperationStep::BlobWrite(vec![value]),
            (true, Some(placed)) => What::Apart(placed.pointer(self.container.version() + 1, &value)),
        };
        let append = Append { key: key.encoded(), flags: 0, expiry: Expiry::NEVER, what };
        match self.append(&[append]) {
            Ok(version) => {
                share.record_placed.clear();
                (share.phase, share.is_logged) = (Phase::Logged, true);
                self.batches.say_when(version, share.id.coordinator, BatchMessage::Prepared(share.id));
                self.batches.showing.log(share.id, &share.shown, &share.changes);
                OperationStep::Rests
            }
            Err(OperationStep::Logged(reply)) => OperationStep::Reply(reply),
            Err(refused) => refused,
        }
    }

    /// All changes and the mark that they are made are one batch of this shard's log.
    fn carry_out(&mut self, share: &mut PrepareRecord) -> Result<OperationStep, Stop> {
        // Of one that was found at opening they are not written yet.
        if let Some(long) = self.long_values(&share.changes, &share.placed) {
            return Ok(OperationStep::BlobWrite(long));
        }
        let key = record::key(share.id);
        let mark = record::encode(&Kept::Resolved { participants: share.participants.to_vec() });
        let (mut appends, done) = self.appends(&share.changes, &share.looked, &share.placed);
        let changed = appends.len() as u64;
        let what = What::Put(&mark);
        appends.push(Append { key: key.encoded(), flags: 0, expiry: Expiry::NEVER, what });
        fault_point!("matrix_batch_carried_out_without_a_mark", appends.pop());
        let before = self.container.version();
        let version = match self.append(&appends) {
            Ok(version) => version,
            Err(OperationStep::NoRoom) => return Ok(OperationStep::NoRoom),
            Err(OperationStep::Reply(Reply::Failed(error)) | OperationStep::Logged(Reply::Failed(error))) => {
                tracing::error!(%error, shard = self.config.shard, "a committed batch is carried out when the store is opened again");
                self.stick(share);
                return Ok(OperationStep::Ended);
            }
            Err(other) => return Ok(other),
        };
        share.placed.clear();
        self.batches.showing.settle(share.id, &share.changes);
        self.batches.shares.remove(&share.id);
        let last = share.last.map(|_| (if done.deletes_nothing { 0 } else { before + changed }, done.existed));
        let settled = BatchMessage::Settled { id: share.id, done: Some(Done { last }) };
        self.batches.say_when(version, share.id.coordinator, settled);
        Ok(OperationStep::Ended)
    }

    fn erase(&mut self, share: &mut PrepareRecord) -> OperationStep {
        if share.is_logged {
            match self.append(&[Append::delete(record::key(share.id).encoded())]) {
                Ok(_) => {}
                Err(OperationStep::NoRoom) => return OperationStep::NoRoom,
                // It is found at the next opening, and erased then.
                Err(_) => {}
            }
        }
        self.batches.shares.remove(&share.id);
        OperationStep::Ended
    }

    /// Goes on with a share of which something was heard.
    fn wake_share(&mut self, id: BatchId, from: &[Phase], to: Phase, effects: &mut Effects) -> bool {
        let Some(op) = self.batches.shares.get(&id).copied() else { return false };
        let Some(mut parked) = self.parked.remove(&op) else { return false };
        let due = matches!(&parked.work, Work::PrepareRecord(share) if from.contains(&share.phase));
        if let (true, Work::PrepareRecord(share)) = (due, &mut parked.work) {
            share.phase = to;
            if to == Phase::Erasing {
                self.batches.showing.settle(id, &share.changes);
                self.orphan(&mut parked.work);
            }
            self.attempt(op, parked, true, effects);
        } else {
            self.parked.insert(op, parked);
        }
        due
    }

    pub(super) fn log_share(&mut self, id: BatchId, effects: &mut Effects) {
        self.wake_share(id, &[Phase::Held], Phase::Logging, effects);
    }

    /// The batch is shown.
    pub(super) fn carry(&mut self, id: BatchId, effects: &mut Effects) {
        self.batches.showing.carry(id);
        if !self.wake_share(id, &[Phase::Logged], Phase::Carrying, effects) {
            self.batches.showing.settle(id, &[]);
        }
    }

    /// The batch is committed.
    pub(super) fn commit_share(&mut self, id: BatchId, effects: &mut Effects) {
        if self.config.read_only {
            return self.batches.opening.refuse_reading();
        }
        let is_here = self.batches.shares.contains_key(&id);
        // Of a witness nothing was logged.
        let was_held = self.wake_share(id, &[Phase::Held], Phase::Erasing, effects);
        if !was_held && is_here {
            self.carry(id, effects);
        }
    }

    /// Somebody refused.
    pub(super) fn abort_share(&mut self, id: BatchId, effects: &mut Effects) {
        let phases = [Phase::Holding, Phase::Held, Phase::Logging, Phase::Logged];
        self.wake_share(id, &phases, Phase::Erasing, effects);
    }

    /// Whether it holds is not known before the store is opened again.
    pub(super) fn doubt_share(&mut self, id: BatchId) {
        let Some(op) = self.batches.shares.remove(&id) else { return };
        let Some(parked) = self.parked.remove(&op) else { return };
        if let Work::PrepareRecord(share) = &parked.work {
            self.batches.showing.settle(id, &share.changes);
            self.batches.stuck.extend(share.changes.iter().map(|change| change.key.clone()));
        }
        self.turns.done(op, &parked.work);
    }

    /// It cannot be carried out now.
    fn stick(&mut self, share: &PrepareRecord) {
        self.batches.showing.settle(share.id, &share.changes);
        self.batches.shares.remove(&share.id);
        self.batches.stuck.extend(share.changes.iter().map(|change| change.key.clone()));
        self.batches.say(share.id.coordinator, BatchMessage::Settled { id: share.id, done: None });
    }

    /// A share fails, with everything that waits: its medium failed. Where it is logged it may
    /// count at the next opening.
    pub(crate) fn fail_share(&mut self, share: &PrepareRecord, reply: Reply) {
        let id = share.id;
        if share.is_logged {
            self.stick(share);
        } else {
            self.batches.shares.remove(&id);
        }
        if share.phase != Phase::Carrying {
            let reply =
                if share.is_logged { Reply::Failed(Error::Unknown("a share of the batch is in doubt")) } else { reply };
            self.batches.say(id.coordinator, BatchMessage::Refused { id, reply });
        }
    }

    /// Marks of batches that everybody has carried out go, when there is room.
    pub(super) fn forget_marks(&mut self) {
        if self.batches.is_paused() || self.config.read_only {
            return;
        }
        while let Some(id) = self.batches.forgotten.pop() {
            if matches!(self.append(&[Append::delete(record::key(id).encoded())]), Err(OperationStep::NoRoom)) {
                return self.batches.forgotten.push(id);
            }
        }
    }

    /// The coordinator broke. What is shown is committed, whether or not it said so. What is not
    /// logged never will be; of what is, nobody knows.
    pub(super) fn participant_lost(&mut self, peer: u32, effects: &mut Effects) {
        for id in self.batches.showing.shown(Some(peer)) {
            self.carry(id, effects);
        }
        let is_carried = |id: &BatchId| self.batches.showing.is_carried(*id);
        let of_peer = self.batches.shares.keys().filter(|id| id.coordinator == peer && !is_carried(id));
        for id in of_peer.copied().collect::<Vec<_>>() {
            let phases = [Phase::Holding, Phase::Held, Phase::Logging];
            if !self.wake_share(id, &phases, Phase::Erasing, effects) {
                self.doubt_share(id);
            }
        }
    }
}
