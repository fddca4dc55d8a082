//! Steps of operations: which operation runs now, how its step ended, and which ones run again. A
//! step that lacks pages has changed nothing of the store.

use stratakv_base::fault_point;
use stratakv_engine::{Effects, Error, Reply, Stage, Token};
use stratakv_pmem::Pmem;

use crate::batch::INTERNAL;
use crate::changes::OperationStep;
use crate::cursor::Stop;
use crate::matrix::Matrix;
use crate::operations::{Suspended, Work};
use crate::range_delete::RangeWork;
use crate::reading::Waiter;
use crate::scheduler::WaitFor;

impl<P: Pmem> Matrix<P> {
    /// Runs a step of an operation. `queued`: it has its turn among writes.
    pub(crate) fn run_step(&mut self, id: u64, mut suspended: Suspended, queued: bool, effects: &mut Effects) {
        if suspended.work.is_walk() && !self.scheduler.walks().begin() {
            suspended.begun = true;
            return self.suspend(id, suspended, queued, effects);
        }
        match self.try_step(&mut suspended) {
            Ok(OperationStep::Ended) => {}
            Ok(OperationStep::Rests) => {
                effects.enter(suspended.token, Stage::Batch);
                return self.scheduler.suspend(id, suspended, queued);
            }
            Ok(OperationStep::Reply(reply)) => {
                self.note_unreferenced(&mut suspended.work);
                self.scheduler.reply_when_durable(suspended.token, reply, self.container.version());
            }
            Ok(OperationStep::Seen(reply, version)) => {
                self.scheduler.reply_when_durable(suspended.token, reply, version)
            }
            Ok(OperationStep::Logged(reply)) => {
                self.scheduler.reply_when_durable(suspended.token, reply, self.container.version())
            }
            Ok(OperationStep::Synced) => self.scheduler.acks().hold_sync(suspended.token),
            Ok(OperationStep::NoRoom) => {
                effects.enter(suspended.token, Stage::Room);
                return self.scheduler.suspend_for(WaitFor::ContainerRoom, id, suspended, queued);
            }
            Ok(OperationStep::Loads) => {
                effects.more();
                self.queue_load(id, &suspended.work);
                return self.scheduler.suspend(id, suspended, queued);
            }
            Ok(OperationStep::Grows) => {
                effects.more();
                effects.enter(suspended.token, Stage::Room);
                return self.scheduler.suspend_for(WaitFor::VolumeRoom, id, suspended, queued);
            }
            Ok(OperationStep::BlobWrite(values)) => {
                effects.more();
                effects.enter(suspended.token, Stage::Write);
                suspended.long_values = values;
                return self.scheduler.suspend_for(WaitFor::BlobWrite, id, suspended, queued);
            }
            Ok(OperationStep::Yields) => return self.suspend(id, suspended, queued, effects),
            Err(Stop::Missing) => return self.suspend_for_reads(id, suspended, queued, effects),
            Err(Stop::Damaged(corruption)) => {
                self.counters.corrupt_records += 1;
                tracing::warn!(%corruption, "damage on the medium");
                self.note_unreferenced(&mut suspended.work);
                self.answer(suspended.token, Reply::Failed(Error::Corrupt(corruption)), effects);
            }
        }
        if queued {
            self.scheduler.release_keys(id, &suspended.work);
        }
    }

    /// A step over the pages that are there.
    fn try_step(&mut self, suspended: &mut Suspended) -> Result<OperationStep, Stop> {
        self.reads.begin_step(&mut suspended.pins);
        suspended.begun = true;
        let before = suspended.work.progress();
        let outcome = match self.missing_snapshot(&suspended.work) {
            Some(id) => Ok(OperationStep::Reply(Reply::Failed(Error::NoSnapshot { id }))),
            None => self.step(&mut suspended.work),
        };
        self.reads.end_step(&mut suspended.pins, suspended.work.progress() != before);
        self.outcome_of_prepare_record(&mut suspended.work, outcome)
    }

    /// Until the pages that it lacks are read, or there is room to read them in.
    fn suspend_for_reads(&mut self, id: u64, mut suspended: Suspended, queued: bool, effects: &mut Effects) {
        suspended.missing = self.reads.ask_missing(Waiter::Operation(id)).len();
        effects.enter(suspended.token, if suspended.missing == 0 { Stage::Room } else { Stage::Read });
        match suspended.missing {
            0 => self.scheduler.suspend_for(WaitFor::Memory, id, suspended, queued),
            _ => self.scheduler.suspend(id, suspended, queued),
        }
    }

    /// Other walks come first, and whoever waits for the shard.
    fn suspend(&mut self, id: u64, suspended: Suspended, queued: bool, effects: &mut Effects) {
        effects.enter(suspended.token, Stage::Queue);
        self.scheduler.suspend_for(WaitFor::Visits, id, suspended, queued);
        effects.more();
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
        for _ in 0..self.scheduler.waiting(WaitFor::Step) {
            let Some(id) = self.scheduler.next(WaitFor::Step) else { break };
            self.step_again(id, effects);
        }
        self.retry_space_waiters(effects);
        self.retry_key_waiters(effects);
    }

    /// Runs the next step of an operation, if it was not ended meanwhile.
    pub(crate) fn step_again(&mut self, id: u64, effects: &mut Effects) {
        if let Some(suspended) = self.scheduler.take(id) {
            let queued = suspended.work.is_write();
            self.run_step(id, suspended, queued, effects);
        }
    }

    fn retry_space_waiters(&mut self, effects: &mut Effects) {
        for _ in 0..self.scheduler.waiting(WaitFor::ContainerRoom) {
            let Some(id) = self.scheduler.next(WaitFor::ContainerRoom) else { break };
            let Some(suspended) = self.scheduler.take(id) else { continue };
            if let Some(error) = self.why_stuck().filter(|_| !suspended.work.is_decided()) {
                self.counters.full_refusals += u64::from(matches!(error, Error::Full(_)));
                self.end_failed(id, suspended, error, effects);
                continue;
            }
            let queued = suspended.work.is_write();
            self.run_step(id, suspended, queued, effects);
            if self.scheduler.stays_first(WaitFor::ContainerRoom, id) {
                self.counters.stalled_ticks += 1;
                break;
            }
        }
    }

    /// Why nothing will make room in the container, if nothing will.
    fn why_stuck(&mut self) -> Option<Error> {
        if let Some(error) = self.compactor.verdict() {
            return Some(error.clone());
        }
        // What snapshots keep goes before a write is refused.
        let is_stuck = self.is_stuck() && !self.end_snapshot_that_keeps();
        is_stuck.then_some(Error::Full("the volume has no room for what the container holds"))
    }

    /// Writes that waited for others.
    pub(crate) fn retry_key_waiters(&mut self, effects: &mut Effects) {
        while let Some((id, suspended)) = self.scheduler.next_with_keys() {
            self.run_step(id, suspended, true, effects);
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
        let mut was_load = self.compactor.load.take_if(|load| load.id == id).is_some();
        fault_point!("trial_failed_load_is_waited_for", was_load = false);
        if was_load {
            self.scheduler.wake(WaitFor::VolumeRoom);
            effects.more();
        }
        if suspended.work.is_write() {
            self.scheduler.release_keys(id, &suspended.work);
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
        let given_up = self.scheduler.give_up(gone);
        if given_up.is_empty() {
            return;
        }
        self.volume.defer(self.reads.give_up(&given_up));
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
