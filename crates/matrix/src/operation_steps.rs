//! Steps of operations: which operation runs now, how its step ended, and which ones run again. A
//! step that lacks pages has changed nothing of the store.

use stratakv_base::fault_point;
use stratakv_engine::{Effects, Error, Reply, Token};
use stratakv_pmem::Pmem;

use crate::batch::INTERNAL;
use crate::changes::OperationStep;
use crate::cursor::Stop;
use crate::matrix::Matrix;
use crate::operations::{Suspended, Work};
use crate::range_delete::RangeWork;
use crate::reading::Waiter;

/// Pages that an operation may hold when it has come further.
const PINS_MAX: usize = 128;

impl<P: Pmem> Matrix<P> {
    /// Runs a step of an operation. `queued`: it has its turn among writes.
    pub(crate) fn run_step(&mut self, id: u64, mut suspended: Suspended, queued: bool, effects: &mut Effects) {
        if suspended.work.is_walk() && !self.walks.begin() {
            suspended.begun = true;
            return self.suspend(id, suspended, queued, effects);
        }
        std::mem::swap(&mut self.pins, &mut suspended.pins);
        self.missing.get_mut().clear();
        suspended.begun = true;
        let before = suspended.work.progress();
        let outcome = match self.missing_snapshot(&suspended.work) {
            Some(id) => Ok(OperationStep::Reply(Reply::Failed(Error::NoSnapshot { id }))),
            None => self.step(&mut suspended.work),
        };
        if suspended.work.progress() != before && self.pins.len() > PINS_MAX {
            // What it held has served. What it needs again is in the cache, or is read again.
            self.pins.clear();
        }
        std::mem::swap(&mut self.pins, &mut suspended.pins);
        let outcome = self.outcome_of_prepare_record(&mut suspended.work, outcome);
        match outcome {
            Ok(OperationStep::Ended) => {}
            Ok(OperationStep::Rests) => {
                self.wait_for_turn(id, &suspended, queued);
                self.suspended.insert(id, suspended);
                return;
            }
            Ok(OperationStep::Reply(reply)) => {
                self.note_unreferenced(&mut suspended.work);
                self.pending_acks.push((suspended.token, reply, self.container.version()));
            }
            Ok(OperationStep::Seen(reply, version)) => self.pending_acks.push((suspended.token, reply, version)),
            Ok(OperationStep::Logged(reply)) => {
                self.pending_acks.push((suspended.token, reply, self.container.version()))
            }
            Ok(OperationStep::Synced) => self.syncs.push(suspended.token),
            Ok(OperationStep::NoRoom) => {
                self.wait_for_turn(id, &suspended, queued);
                self.suspended.insert(id, suspended);
                self.space_waiters.push_back(id);
                return;
            }
            Ok(OperationStep::Loads) => {
                self.wait_for_turn(id, &suspended, queued);
                self.queue_load(id, &suspended.work);
                self.suspended.insert(id, suspended);
                effects.more();
                return;
            }
            Ok(OperationStep::Grows) => {
                self.wait_for_turn(id, &suspended, queued);
                self.suspended.insert(id, suspended);
                self.after_install.push(id);
                effects.more();
                return;
            }
            Ok(OperationStep::BlobWrite(values)) => {
                self.wait_for_turn(id, &suspended, queued);
                suspended.blob_writes_waiting = true;
                self.suspended.insert(id, suspended);
                self.blob_writes_waiting.push_back((id, values));
                effects.more();
                return;
            }
            Ok(OperationStep::Yields) => return self.suspend(id, suspended, queued, effects),
            Err(Stop::Missing) => {
                self.wait_for_turn(id, &suspended, queued);
                suspended.missing = self.ask(Waiter::Operation(id)).len();
                if suspended.missing == 0 {
                    self.memory_waiters.push_back(id);
                }
                self.suspended.insert(id, suspended);
                return;
            }
            Err(Stop::Damaged(corruption)) => {
                self.counters.corrupt_records += 1;
                tracing::warn!(%corruption, "damage on the medium");
                self.note_unreferenced(&mut suspended.work);
                self.answer(suspended.token, Reply::Failed(Error::Corrupt(corruption)), effects);
            }
        }
        if queued {
            self.key_locks.done(id, &suspended.work);
        }
    }

    /// Other walks come first, and whoever waits for the shard.
    fn suspend(&mut self, id: u64, suspended: Suspended, queued: bool, effects: &mut Effects) {
        self.wait_for_turn(id, &suspended, queued);
        self.suspended.insert(id, suspended);
        self.walks.suspend(id);
        effects.more();
    }

    /// A write that cannot be ended now holds its keys from here on.
    fn wait_for_turn(&mut self, id: u64, suspended: &Suspended, queued: bool) {
        if suspended.work.is_write() && !queued {
            self.key_locks.queue(id, &suspended.work);
        }
    }

    fn step(&mut self, work: &mut Work) -> Result<OperationStep, Stop> {
        match work {
            Work::Get { key, part, long } => self.get(key, *part, long),
            Work::Write { changes, placed, looked, damage } => self.write(changes, placed, looked, damage.as_ref()),
            Work::Update { key, update, placed, long } => self.update(key.encoded(), update, placed, long),
            Work::Page(page) => {
                let Some(reply) = self.page(page)? else { return Ok(OperationStep::Yields) };
                if let Some(cursor) = page.backup {
                    self.backup_went_on(cursor, &reply);
                }
                Ok(OperationStep::Reply(reply))
            }
            Work::Sync => Ok(OperationStep::Synced),
            Work::Load(load) => self.begin_load(load),
            Work::AfterLoad(operation) => match self.cut(operation.clone()) {
                Ok(Work::AfterLoad(_)) => Ok(OperationStep::Grows),
                Ok(page) => {
                    *work = page;
                    self.step(work)
                }
                Err(reply) => Ok(OperationStep::Reply(reply)),
            },
            Work::DeleteRange { from, to } => {
                // All writes before it are done, those after it within the range wait for it.
                *work = Work::Deleting(RangeWork::new(from.clone(), to.clone()));
                self.step(work)
            }
            Work::Deleting(range) => self.delete_range(range),
            Work::PrepareRecord(prepare_record) => self.prepare_record_step(prepare_record),
        }
    }

    /// Runs the next step of every operation that has what it waited for.
    pub(crate) fn run_ready(&mut self, effects: &mut Effects) {
        self.wake_memory_waiters();
        for _ in 0..self.ready.len() {
            let Some(id) = self.ready.pop_front() else { break };
            if let Some(suspended) = self.suspended.remove(&id) {
                let queued = suspended.work.is_write();
                self.run_step(id, suspended, queued, effects);
            }
        }
        self.retry_space_waiters(effects);
        self.retry_key_waiters(effects);
    }

    fn retry_space_waiters(&mut self, effects: &mut Effects) {
        for _ in 0..self.space_waiters.len() {
            let Some(id) = self.space_waiters.pop_front() else { break };
            let Some(suspended) = self.suspended.remove(&id) else { continue };
            if let Some(error) = self.why_stuck().filter(|_| !suspended.work.is_decided()) {
                self.counters.full_refusals += u64::from(matches!(error, Error::Full(_)));
                self.end_failed(id, suspended, error, effects);
                continue;
            }
            let queued = suspended.work.is_write();
            self.run_step(id, suspended, queued, effects);
            if self.space_waiters.back() == Some(&id) {
                // No room for the first one: the others wait behind it.
                self.space_waiters.rotate_right(1);
                self.counters.stalled_ticks += 1;
                break;
            }
        }
    }

    /// Why nothing will make room in the container, if nothing will.
    fn why_stuck(&mut self) -> Option<Error> {
        if let Some(error) = self.failures.verdict() {
            return Some(error.clone());
        }
        // What snapshots keep goes before a write is refused.
        let is_stuck = self.is_stuck() && !self.end_snapshot_that_keeps();
        is_stuck.then_some(Error::Full("the volume has no room for what the container holds"))
    }

    /// Writes that waited for others.
    pub(crate) fn retry_key_waiters(&mut self, effects: &mut Effects) {
        while self.space_waiters.is_empty()
            && let Some(id) = self.key_locks.next_candidate()
        {
            let has_turn = |suspended: &Suspended| !suspended.begun && self.key_locks.has(id, &suspended.work);
            if self.suspended.get(&id).is_some_and(has_turn)
                && let Some(suspended) = self.suspended.remove(&id)
            {
                self.run_step(id, suspended, true, effects);
            }
        }
    }

    /// A prepare record is refused by a message to shard 0.
    fn outcome_of_prepare_record(
        &mut self,
        work: &mut Work,
        outcome: Result<OperationStep, Stop>,
    ) -> Result<OperationStep, Stop> {
        let reply = match (&*work, outcome) {
            (Work::PrepareRecord(_), Ok(OperationStep::Reply(reply))) => reply,
            (Work::PrepareRecord(_), Err(Stop::Damaged(corruption))) => {
                self.counters.corrupt_records += 1;
                Reply::Failed(Error::Corrupt(corruption))
            }
            (_, outcome) => return outcome,
        };
        self.note_unreferenced(work);
        if let Work::PrepareRecord(prepare_record) = work {
            self.fail_prepare_record(prepare_record, reply);
        }
        Ok(OperationStep::Ended)
    }

    /// An operation ends without a further step.
    pub(crate) fn end_failed(&mut self, id: u64, mut suspended: Suspended, error: Error, effects: &mut Effects) {
        self.note_unreferenced(&mut suspended.work);
        let mut was_load = self.load.take_if(|load| load.id == id).is_some();
        fault_point!("trial_failed_load_is_waited_for", was_load = false);
        if was_load {
            self.ready.extend(self.after_install.drain(..));
            effects.more();
        }
        if suspended.work.is_write() {
            self.key_locks.done(id, &suspended.work);
        }
        match &suspended.work {
            Work::PrepareRecord(prepare_record) => self.fail_prepare_record(prepare_record, Reply::Failed(error)),
            _ => self.answer(suspended.token, Reply::Failed(error), effects),
        }
    }

    /// Answers the reads of those who have left, and reads nothing for them that the device does
    /// not have yet. Backups have accounts of their own, and go on.
    pub(crate) fn give_up_reads(&mut self, has_left: &dyn Fn(Token) -> bool, effects: &mut Effects) {
        for token in self.batches.publication.give_up(has_left) {
            effects.reply(token, Reply::Failed(Error::Cancelled));
        }
        let is_read = |work: &Work| match work {
            Work::Get { .. } => true,
            Work::Page(page) => page.backup.is_none(),
            _ => false,
        };
        let gone = |suspended: &Suspended| {
            suspended.token != INTERNAL && is_read(&suspended.work) && has_left(suspended.token)
        };
        let given_up: foldhash::HashSet<u64> =
            self.suspended.iter().filter(|(_, suspended)| gone(suspended)).map(|(id, _)| *id).collect();
        if given_up.is_empty() {
            return;
        }
        self.deferred.extend(self.reads.give_up(&given_up));
        self.memory_waiters.retain(|id| !given_up.contains(id));
        for id in given_up {
            self.fail_operation(id, Error::Cancelled, effects);
        }
        // What they held may be what others wait for.
        effects.more();
    }

    /// Answers whoever asked.
    pub(crate) fn answer(&mut self, token: Token, reply: Reply, effects: &mut Effects) {
        if token == INTERNAL {
            return self.batches.opening_read(reply);
        }
        effects.reply(token, reply);
    }
}
