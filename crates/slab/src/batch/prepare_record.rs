//! A participant's part of a batch: it locks the keys, logs the prepare record, applies the changes
//! and resolves the record.

use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Key, Level, fault_point};
use stratakv_chassis::batches::{Completion, LastChange, Prepare, ToCoordinator, VisibleFlag};
use stratakv_engine::{Change, ChangeKind, Effects, Error, Expect, Reply};

use super::record::{self, Kept};
use super::{BatchId, BatchStep, Event};
use crate::keys::Wait;
use crate::placement::Placement;
use crate::shard::IndexedShard;
use crate::space::Extent;
use crate::write::{Kind, Origin, Stop, Work};

/// What a participant knows of a batch.
#[derive(Debug)]
pub(crate) struct PrepareRecord {
    participants: Arc<[u32]>,
    pub(super) changes: Vec<Change>,
    /// Keys that are locked until the batch is decided, and nothing else.
    checks: Vec<(Key, Expect)>,
    last: Option<u32>,
    /// Of all its changes; 0 until it is logged.
    pub(super) version: u64,
    visible: VisibleFlag,
    state: State,
    /// Keys to come in this state.
    left: usize,
    /// Whether the key of the batch's last change existed.
    existed: bool,
    /// Found at opening: it is durable already.
    recovered: bool,
    /// Logs when told to.
    waits: bool,
    aborted: bool,
    /// Set aside.
    pages: u32,
    bytes: u64,
    extents: Vec<Option<Extent>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Locking,
    /// All keys are locked; space is not there yet.
    Reserving,
    /// Waits until every other shard of the batch has locked its keys.
    Locked,
    Logging,
    Prepared,
    Applying,
    MarkingDone,
    /// The prepare record goes: the batch was refused, or it is of this shard alone and applied.
    Erasing,
    /// Waits to be forgotten.
    Resolved,
    /// Not to be applied before the store is opened again.
    Stuck,
}

impl PrepareRecord {
    pub(super) fn waits_for_space(&self) -> bool {
        self.state == State::Reserving
    }

    pub(super) fn is_visible(&self) -> bool {
        self.visible.is_set()
    }

    /// Whether it is yet to change its keys. One that is stuck does so when the store is opened
    /// again, and nobody may wait for that.
    pub(super) fn is_yet_to_change(&self) -> bool {
        fault_point!("library_range_waits_for_a_stuck_batch", return self.state != State::Resolved);
        !matches!(self.state, State::Resolved | State::Stuck)
    }

    /// Nothing more will come of it by itself.
    pub(super) fn is_at_rest(&self) -> bool {
        matches!(self.state, State::Resolved | State::Stuck) || (self.recovered && self.state == State::Prepared)
    }

    /// Found at opening, and its keys are not all locked yet.
    pub(super) fn is_locking(&self) -> bool {
        self.recovered && self.state == State::Locking
    }

    /// Who decides, and is told what came of it.
    fn decider(&self, id: BatchId) -> u32 {
        if self.recovered { 0 } else { id.coordinator }
    }

    fn is_alone(&self) -> bool {
        self.participants.len() == 1
    }
}

impl<P: Placement> IndexedShard<P> {
    fn tell(&mut self, shard: u32, message: ToCoordinator) {
        self.batches.commit.mail.send(shard, message);
    }

    /// Begins a prepare record: its keys are queued for, all in this tick, so that prepare records
    /// meet in one order everywhere.
    pub(super) fn prepare(&mut self, prepare: Prepare, effects: &mut Effects) {
        let Prepare { id, participants, changes, last, waits, visible } = prepare;
        let error = match self.health.poisoned {
            Some(fault) => Some(Error::Poisoned(fault)),
            None if !self.health.is_open() => Some(Error::Closed),
            None => self.batches.commit.opening.refusal().cloned(),
        };
        if let Some(error) = error {
            return self.tell(id.coordinator, ToCoordinator::Refused(id, Reply::Failed(error)));
        }
        let left = changes.len();
        let is_change = |change: &Change| !matches!(change.kind, ChangeKind::Check);
        let last = last.map(|last| changes.iter().take(last).filter(|change| is_change(change)).count() as u32);
        let (changes, checks): (Vec<Change>, Vec<Change>) = changes.into_iter().partition(is_change);
        let checks = checks.into_iter().map(|check| (check.key, check.expect)).collect();
        let prepare_record = PrepareRecord::new(participants, changes, last, visible);
        self.begin_prepare_record(id, PrepareRecord { checks, left, waits, ..prepare_record }, effects);
    }

    /// A prepare record that was durable before the store was opened.
    pub(super) fn recover_prepare_record(
        &mut self,
        id: BatchId,
        participants: &[u32],
        version: u64,
        changes: Vec<Change>,
        effects: &mut Effects,
    ) {
        let prepare_record = PrepareRecord::new(participants.into(), changes, None, VisibleFlag::default());
        self.begin_prepare_record(id, PrepareRecord { version, recovered: true, ..prepare_record }, effects);
    }

    fn begin_prepare_record(&mut self, id: BatchId, prepare_record: PrepareRecord, effects: &mut Effects) {
        let changes = prepare_record.changes.iter().map(|change| (change.key.clone(), change.expect));
        let keys: Vec<_> = changes.chain(prepare_record.checks.iter().cloned()).collect();
        self.batches.prepare_records.insert(id, prepare_record);
        for (at, (key, expect)) in (0..).zip(keys) {
            let origin = Origin::Batch(id, BatchStep::LockKey(at));
            self.submit(Work::new(origin, key, expect, Kind::LockKey, Level::PowerLoss), effects);
        }
    }

    /// What came of a write that was made for a prepare record.
    pub(super) fn prepare_record_event(&mut self, id: BatchId, step: BatchStep, event: Event, effects: &mut Effects) {
        let Some(prepare_record) = self.batches.prepare_records.get_mut(&id) else { return };
        match (step, event, prepare_record.state) {
            (BatchStep::LockKey(at), Event::Locked { existed }, State::Locking) => {
                prepare_record.left -= 1;
                prepare_record.existed |= existed && prepare_record.last == Some(at);
                if prepare_record.left == 0 {
                    self.all_locked(id, effects);
                }
            }
            (BatchStep::LockKey(_), Event::Answered(reply), State::Locking) if prepare_record.recovered => {
                // The record is durable, and its batch perhaps committed: it is neither refused nor
                // let go, which would let later writes of its keys in, over which the next opening
                // would apply it. It waits for that opening; reads are told what it makes of
                // the keys, once it is known to hold.
                let in_doubt = Error::Unknown("a batch could not be resumed when the store was opened; open it again");
                let error = if let Reply::Failed(error) = reply { error } else { in_doubt };
                self.show_when_committed(id);
                self.get_stuck(id, error, effects);
            }
            (BatchStep::LockKey(_), Event::Answered(reply), State::Locking) => self.refuse(id, reply, effects),
            (BatchStep::Log, Event::Answered(Reply::Done { .. }), State::Logging) => self.logged(id, effects),
            (BatchStep::Log, Event::Answered(reply), State::Logging) => self.refuse(id, reply, effects),
            (BatchStep::Applied(_), Event::Locked { .. }, State::Applying) => {
                prepare_record.left -= 1;
                if prepare_record.left == 0 {
                    self.applied(id, effects);
                }
            }
            (BatchStep::CommitDone, Event::Answered(Reply::Done { .. }), State::MarkingDone) => {
                prepare_record.state = State::Resolved;
                let decider = prepare_record.decider(id);
                self.release_keys(id, effects);
                self.tell(decider, ToCoordinator::Completed(id, Completion::CommitDone, None));
            }
            (BatchStep::Erase, Event::Answered(Reply::Done { .. }), State::Erasing) => {
                let decider = prepare_record.decider(id);
                self.release_keys(id, effects);
                let aborted = self.batches.prepare_records.remove(&id).is_none_or(|record| record.aborted);
                if !aborted {
                    self.tell(decider, ToCoordinator::Completed(id, Completion::Erased, None));
                }
            }
            (BatchStep::Forget, Event::Answered(_), State::Resolved) => drop(self.batches.prepare_records.remove(&id)),
            (
                BatchStep::Apply | BatchStep::Applied(_) | BatchStep::CommitDone | BatchStep::Erase,
                Event::Answered(Reply::Failed(error)),
                State::Applying | State::MarkingDone | State::Erasing,
            ) => self.get_stuck(id, error, effects),
            _ => {}
        }
    }

    fn all_locked(&mut self, id: BatchId, effects: &mut Effects) {
        let Some(prepare_record) = self.batches.prepare_records.get_mut(&id) else { return };
        if prepare_record.recovered {
            prepare_record.state = State::Prepared;
            // What it needs is free: nothing else has been written since. If it is not, as it may
            // have been discarded, it is asked for when it is applied.
            let _ = self.reserve(id, effects);
            return self.show_when_committed(id);
        }
        prepare_record.state = State::Reserving;
        self.try_reserve(id, effects);
    }

    pub(super) fn retry_reservations(&mut self, effects: &mut Effects) {
        let waiting =
            self.batches.prepare_records.iter().filter(|(_, prepare_record)| prepare_record.waits_for_space());
        for id in waiting.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.try_reserve(id, effects);
        }
    }

    fn try_reserve(&mut self, id: BatchId, effects: &mut Effects) {
        match self.reserve(id, effects) {
            Ok(()) => self.reserved(id, effects),
            Err(Stop::Wait(_)) if self.health.poisoned.is_none() => {}
            Err(Stop::Answer(reply) | Stop::Unchanged(reply)) => self.refuse(id, reply, effects),
            Err(Stop::Wait(_)) => {
                let fault = self.health.poisoned.unwrap_or(stratakv_device::IoFault::Full);
                self.refuse(id, Reply::Failed(Error::Poisoned(fault)), effects);
            }
        }
    }

    fn reserved(&mut self, id: BatchId, effects: &mut Effects) {
        let Some(prepare_record) = self.batches.prepare_records.get_mut(&id) else { return };
        if !prepare_record.waits {
            return self.log(id, effects);
        }
        fault_point!("batch_logged_before_all_hold", !prepare_record.changes.is_empty(), {
            self.tell(id.coordinator, ToCoordinator::Locked(id));
            return self.log(id, effects);
        });
        prepare_record.state = State::Locked;
        fault_point!("batch_checks_let_go_early", {
            let checks = std::mem::take(&mut prepare_record.checks);
            checks.iter().for_each(|(key, _)| self.release_key(id, key, effects));
        });
        self.tell(id.coordinator, ToCoordinator::Locked(id));
    }

    /// Every shard of the batch has locked its keys.
    pub(super) fn log_when_locked(&mut self, id: BatchId, effects: &mut Effects) {
        if self.batches.prepare_records.get(&id).is_some_and(|prepare_record| prepare_record.state == State::Locked) {
            self.log(id, effects);
        }
    }

    /// Sets aside what applying the prepare record may take: room for the records, the blobs, and
    /// the commit-done record.
    fn reserve(&mut self, id: BatchId, effects: &Effects) -> Result<(), Stop<P>> {
        let Some(prepare_record) =
            self.batches.prepare_records.get(&id).filter(|prepare_record| !prepare_record.changes.is_empty())
        else {
            return Ok(());
        };
        if prepare_record.changes.iter().any(|change| matches!(change.kind, ChangeKind::Put { .. })) {
            self.check_memory()?;
        }
        let done_bytes = 8 + 4 * prepare_record.participants.len();
        let needs = self.placement.needs(&prepare_record.changes, done_bytes);
        let (pages, bytes, blob_pages) = (needs.pages, needs.bytes, needs.blob_pages());
        if !P::can_reserve(self, &needs) {
            return Err(self.no_room(pages + blob_pages + (bytes / PAGE_BYTES as u64) as u32 + 1, effects));
        }
        let (kept, blobs) = (P::kept_from_blobs(self, &needs), needs.blobs);
        let mut extents: Vec<Option<Extent>> = vec![None; blobs.len()];
        for (pages, extent) in blobs.into_iter().zip(&mut extents).filter(|(pages, _)| *pages > 0) {
            let Some(first) = self.space.take_blob(pages, kept) else { break };
            *extent = Some(Extent { first, pages });
        }
        let taken: u32 = extents.iter().flatten().map(|extent| extent.pages).sum();
        if taken < blob_pages {
            extents.into_iter().flatten().for_each(|extent| self.space.release(extent));
            return Err(self.no_room(blob_pages, effects));
        }
        self.batches.reserved_pages += pages;
        self.batches.reserved_bytes += bytes;
        if let Some(prepare_record) = self.batches.prepare_records.get_mut(&id) {
            (prepare_record.pages, prepare_record.bytes, prepare_record.extents) = (pages, bytes, extents);
        }
        Ok(())
    }

    /// Gives back what was set aside and not used.
    fn unreserve(&mut self, id: BatchId) {
        let Some(prepare_record) = self.batches.prepare_records.get_mut(&id) else { return };
        self.batches.reserved_pages -= std::mem::take(&mut prepare_record.pages);
        self.batches.reserved_bytes -= std::mem::take(&mut prepare_record.bytes);
        for extent in std::mem::take(&mut prepare_record.extents).into_iter().flatten() {
            self.space.release(extent);
        }
    }

    fn log(&mut self, id: BatchId, effects: &mut Effects) {
        let version = self.next_number();
        let Some(prepare_record) = self.batches.prepare_records.get_mut(&id) else { return };
        (prepare_record.state, prepare_record.version) = (State::Logging, version);
        let (participants, changes) = (prepare_record.participants.to_vec(), prepare_record.changes.clone());
        let value = record::encode(&Kept::PrepareRecord { participants, version, changes });
        self.write_record(id, BatchStep::Log, value, effects);
    }

    fn write_record(&mut self, id: BatchId, step: BatchStep, value: Bytes, effects: &mut Effects) {
        let kind = Kind::Put { value, flags: 0, expiry: stratakv_base::Expiry::NEVER };
        let work = Work::new(Origin::Batch(id, step), record::key(id), Expect::Any, kind, Level::PowerLoss);
        self.submit(work, effects);
    }

    fn erase_record(&mut self, id: BatchId, step: BatchStep, level: Level, effects: &mut Effects) {
        let work = Work::new(Origin::Batch(id, step), record::key(id), Expect::Any, Kind::Delete, level);
        self.submit(work, effects);
    }

    fn logged(&mut self, id: BatchId, effects: &mut Effects) {
        let Some(prepare_record) = self.batches.prepare_records.get_mut(&id) else { return };
        prepare_record.state = State::Prepared;
        if prepare_record.aborted {
            return self.erase(id, effects);
        }
        let (version, existed) = (prepare_record.version, prepare_record.existed);
        let last = prepare_record.last.map(|_| LastChange { version, existed });
        self.show_when_committed(id);
        self.tell(id.coordinator, ToCoordinator::Prepared(id, last));
    }

    fn show_when_committed(&mut self, id: BatchId) {
        let Some(prepare_record) = self.batches.prepare_records.get(&id) else { return };
        for (at, change) in (0..).zip(&prepare_record.changes) {
            self.batches.prepared.insert(change.key.clone(), (id, at));
        }
    }

    /// The prepare record was not written: it is not durable, so the batch never was. (If its write
    /// failed, that is not known: the others erase theirs.) It leaves what is on the medium alone:
    /// a prepare record found at an opening never comes here, and one that is being logged is not
    /// prepared, so no coordinator has committed its batch.
    fn refuse(&mut self, id: BatchId, reply: Reply, effects: &mut Effects) {
        self.release_keys(id, effects);
        let aborted = self.batches.prepare_records.remove(&id).is_none_or(|prepare_record| prepare_record.aborted);
        if !aborted {
            self.tell(id.coordinator, ToCoordinator::Refused(id, reply));
        }
    }

    /// The batch is committed.
    pub(super) fn commit(&mut self, id: BatchId, effects: &mut Effects) {
        let Some(prepare_record) = self.batches.prepare_records.get_mut(&id) else { return };
        prepare_record.visible.set();
        let checks = std::mem::take(&mut prepare_record.checks);
        let is_read_only = prepare_record.changes.is_empty();
        checks.iter().for_each(|(key, _)| self.release_key(id, key, effects));
        if is_read_only {
            self.batches.prepare_records.remove(&id);
            return;
        }
        let Some(prepare_record) = self.batches.prepare_records.get_mut(&id) else { return };
        if self.config.read_only {
            // Reads see it from here. No write will come that could want its keys.
            let keys: Vec<Key> = prepare_record.changes.iter().map(|change| change.key.clone()).collect();
            return keys.iter().for_each(|key| self.release_key(id, key, effects));
        }
        if prepare_record.state == State::Stuck {
            // Whoever decides must not wait for it; the commit-done records of the others stay
            // until the next opening.
            let decider = prepare_record.decider(id);
            return self.tell(decider, ToCoordinator::Completed(id, Completion::Stuck, None));
        }
        if let Some(fault) = self.health.poisoned {
            return self.get_stuck(id, Error::Poisoned(fault), effects);
        }
        // Only a defect commits before the prepare record is durable.
        if prepare_record.state != State::Prepared {
            return;
        }
        prepare_record.state = State::Applying;
        prepare_record.left = prepare_record.changes.len();
        let (version, changes) = (prepare_record.version, prepare_record.changes.clone());
        let mut extents = std::mem::take(&mut prepare_record.extents);
        extents.resize(changes.len(), None);
        for ((at, change), extent) in (0..).zip(changes).zip(extents) {
            let kind = match change.kind {
                ChangeKind::Put { value, flags, expiry } => Kind::Put { value, flags, expiry },
                ChangeKind::Delete => Kind::Delete,
                ChangeKind::Check => continue,
            };
            let key = change.key;
            let mut apply =
                Work::new(Origin::Batch(id, BatchStep::Apply), key.clone(), Expect::Any, kind, Level::PowerLoss);
            (apply.version, apply.extent) = (Some(version), extent);
            let again = Origin::Batch(id, BatchStep::Applied(at));
            let again = Work::new(again, key.clone(), Expect::Any, Kind::LockKey, Level::PowerLoss);
            let pending = self.keys.pending.entry(key.clone()).or_default();
            // What locked the key until now.
            pending.queue.pop_front();
            pending.queue.push_front(again);
            pending.queue.push_front(apply);
            self.wake(&key, effects);
        }
    }

    /// All changes are durable and in the index.
    fn applied(&mut self, id: BatchId, effects: &mut Effects) {
        self.hide(id);
        let Some(prepare_record) = self.batches.prepare_records.get_mut(&id) else { return };
        if prepare_record.is_alone() {
            prepare_record.state = State::Erasing;
            return self.erase_record(id, BatchStep::Erase, Level::PowerLoss, effects);
        }
        prepare_record.state = State::MarkingDone;
        let participants = prepare_record.participants.to_vec();
        fault_point!("batch_keys_let_go_early", self.release_keys(id, effects));
        self.write_record(id, BatchStep::CommitDone, record::encode(&Kept::Resolved { participants }), effects);
    }

    /// Its keys are read from the index again.
    fn hide(&mut self, id: BatchId) {
        let Some(prepare_record) = self.batches.prepare_records.get(&id) else { return };
        for change in &prepare_record.changes {
            self.batches.prepared.remove(&change.key);
        }
    }

    /// Another participant refused.
    pub(super) fn abort(&mut self, id: BatchId, effects: &mut Effects) {
        let Some(prepare_record) = self.batches.prepare_records.get_mut(&id) else { return };
        prepare_record.aborted = true;
        match prepare_record.state {
            State::Locking | State::Reserving | State::Locked => {
                self.release_keys(id, effects);
                self.batches.prepare_records.remove(&id);
            }
            State::Prepared => self.erase(id, effects),
            _ => {}
        }
    }

    /// Its keys are let go when it is gone for certain.
    fn erase(&mut self, id: BatchId, effects: &mut Effects) {
        self.hide(id);
        let Some(prepare_record) = self.batches.prepare_records.get_mut(&id) else { return };
        if self.config.read_only {
            self.release_keys(id, effects);
            self.batches.prepare_records.remove(&id);
            return;
        }
        prepare_record.state = State::Erasing;
        self.erase_record(id, BatchStep::Erase, Level::PowerLoss, effects);
    }

    /// All have resolved: the commit-done record is not needed any more. If it stays, the next
    /// opening finds it.
    pub(super) fn forget(&mut self, id: BatchId, effects: &mut Effects) {
        let known = self.index.tree.get(record::key(id).encoded()).is_some();
        if known && self.health.is_open() && self.health.poisoned.is_none() && !self.config.read_only {
            self.erase_record(id, BatchStep::Forget, Level::ProcessCrash, effects);
        } else {
            self.batches.prepare_records.remove(&id);
        }
    }

    /// The keys go on with what waits behind the batch.
    fn release_keys(&mut self, id: BatchId, effects: &mut Effects) {
        self.unreserve(id);
        let Some(prepare_record) = self.batches.prepare_records.get_mut(&id) else { return };
        let (changes, checks) =
            (std::mem::take(&mut prepare_record.changes), std::mem::take(&mut prepare_record.checks));
        for key in changes.into_iter().map(|change| change.key).chain(checks.into_iter().map(|(key, _)| key)) {
            self.release_key(id, &key, effects);
        }
    }

    fn release_key(&mut self, id: BatchId, key: &Key, effects: &mut Effects) {
        let Some(pending) = self.keys.pending.get_mut(key) else { return };
        let own = |work: &Work| matches!(work.origin, Origin::Batch(own, _) if own == id);
        match pending.queue.iter().position(own) {
            // Something is being read for it: it ends when that is there.
            Some(0) if matches!(pending.wait, Some(Wait::Placement(_) | Wait::Record { .. } | Wait::Block)) => {
                if let Some(work) = pending.queue.front_mut() {
                    work.is_over = true;
                }
            }
            Some(0) => {
                pending.queue.pop_front();
                self.wake(key, effects);
            }
            Some(at) => drop(pending.queue.remove(at)),
            None => {}
        }
    }

    /// The prepare record stays as it is until the store is opened again: reads go on (from memory,
    /// if it is committed), writes of its keys are refused.
    pub(super) fn get_stuck(&mut self, id: BatchId, error: Error, effects: &mut Effects) {
        let Some(prepare_record) =
            self.batches.prepare_records.get_mut(&id).filter(|prepare_record| prepare_record.state != State::Stuck)
        else {
            return;
        };
        if prepare_record.changes.is_empty() {
            // Nothing of it is in doubt here.
            self.release_keys(id, effects);
            self.batches.prepare_records.remove(&id);
            return;
        }
        let checks = std::mem::take(&mut prepare_record.checks);
        checks.iter().for_each(|(key, _)| self.release_key(id, key, effects));
        let Some(prepare_record) = self.batches.prepare_records.get_mut(&id) else { return };
        tracing::error!(%error, shard = self.config.shard, "a batch cannot be carried out before the store is opened again");
        let (committed, decider) = (prepare_record.is_visible() && !prepare_record.aborted, prepare_record.decider(id));
        prepare_record.state = State::Stuck;
        let keys: Vec<_> = prepare_record.changes.iter().map(|change| change.key.clone()).collect();
        for key in keys {
            self.batches.stuck.insert(key.clone(), error.clone());
            let Some(pending) = self.keys.pending.get_mut(&key) else { continue };
            let queue = std::mem::take(&mut pending.queue);
            pending.wait = None;
            if pending.outstanding == 0 {
                self.keys.pending.remove(&key);
            }
            self.refuse_queue(queue, id, &error, effects);
        }
        if committed {
            self.tell(decider, ToCoordinator::Completed(id, Completion::Stuck, None));
        }
    }

    /// A shard is broken. Of the batches that it decides, those that are visible are committed,
    /// whether or not it said so; those that are not logged here never were; the others are in
    /// doubt.
    pub(super) fn participant_failed(&mut self, peer: u32, effects: &mut Effects) {
        let decided_there =
            self.batches.prepare_records.iter().filter(|(id, prepare_record)| prepare_record.decider(**id) == peer);
        for id in decided_there.map(|(id, _)| *id).collect::<Vec<_>>() {
            let Some(prepare_record) = self.batches.prepare_records.get(&id) else { continue };
            match prepare_record.state {
                State::Prepared if prepare_record.is_visible() && !prepare_record.aborted => self.commit(id, effects),
                State::Locking | State::Reserving | State::Locked if prepare_record.is_visible() => {
                    self.commit(id, effects)
                }
                State::Locking | State::Reserving | State::Locked if !prepare_record.recovered => {
                    self.abort(id, effects)
                }
                _ if prepare_record.aborted || prepare_record.is_visible() => {}
                _ => {
                    let why = "the shard that decides on a batch broke; reopen the store";
                    self.get_stuck(id, Error::Unknown(why), effects);
                }
            }
        }
    }
}

impl PrepareRecord {
    fn new(participants: Arc<[u32]>, changes: Vec<Change>, last: Option<u32>, visible: VisibleFlag) -> PrepareRecord {
        let left = changes.len();
        PrepareRecord {
            participants,
            changes,
            checks: Vec::new(),
            last,
            version: 0,
            visible,
            state: State::Locking,
            left,
            existed: false,
            recovered: false,
            waits: false,
            aborted: false,
            pages: 0,
            bytes: 0,
            extents: Vec::new(),
        }
    }
}
