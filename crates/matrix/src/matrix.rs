//! [`Matrix`]: the state of one shard, and its face to the driver.

use std::sync::Arc;

use stratakv_base::{Key, Level, fault_point};
use stratakv_chassis::batches::prepare_record::batch_error;
use stratakv_device::IoFault;
use stratakv_engine::{
    Capabilities, Capability, ChangeKind, Effects, Error, Io, IoOutcome, Message, Operation, Reply, Shard, ShardId,
    Stage, Statistic, Token,
};
use stratakv_pmem::Pmem;

use crate::batch::Batches;
use crate::batch::publication::ReadAdmission;
use crate::blob_write::Blobs;
use crate::changes::OperationStep;
use crate::compactor::Compactor;
use crate::config::{MatrixConfig, RecoveryReport};
use crate::container::{Change as Append, Container, What};
use crate::growth::VolumeSpace;
use crate::install::Installer;
use crate::levels::Levels;
use crate::life::Life;
use crate::load::Load;
use crate::memory::{IoPurpose, Memory};
use crate::merge::ReadView;
use crate::operations::{Suspended, Work};
use crate::ranges::RangeDeletes;
use crate::reading::Reads;
use crate::scan::PageWork;
use crate::scheduler::{Scheduler, WaitFor};
use crate::snapshots::Snapshots;
use crate::statistics::Counters;

/// One shard of a store with the engine `matrix`. See the crate.
#[derive(Debug)]
pub struct Matrix<P> {
    pub(crate) config: MatrixConfig,
    pub(crate) life: Life,
    pub(crate) counters: Counters,
    pub(crate) memory: Memory,
    pub(crate) volume: VolumeSpace,
    pub(crate) container: Container<P>,
    pub(crate) levels: Levels,
    /// Deletes of ranges in force.
    pub(crate) ranges: Arc<RangeDeletes>,
    pub(crate) reads: Reads,
    pub(crate) scheduler: Scheduler,
    pub(crate) snapshots: Snapshots,
    pub(crate) batches: Batches,
    pub(crate) blobs: Blobs,
    pub(crate) compactor: Compactor,
    pub(crate) installer: Installer,
}

impl<P: Pmem> Matrix<P> {
    /// What opening found.
    pub fn recovery(&self) -> &RecoveryReport {
        self.life.report()
    }

    /// What a reader without a snapshot sees.
    pub(crate) fn read_view(&self) -> ReadView {
        ReadView { at: u64::MAX, now: self.life.wall() }
    }

    /// Appends changes to the log as one batch, and returns the version of the last one.
    ///
    /// # Errors
    /// What the write comes to instead.
    pub(crate) fn append(&mut self, changes: &[Append<'_>]) -> Result<u64, OperationStep> {
        if self.batches.is_paused() {
            return Err(OperationStep::NoRoom);
        }
        let puts = changes.iter().filter(|change| matches!(change.what, What::Put(_) | What::Blob(_)));
        puts.for_each(|change| self.scheduler.walks_mut().spans.get_mut().split(change.key));
        let mut seen = self.snapshots.versions();
        fault_point!("matrix_overwrite_forgets_snapshots", seen = &[]);
        match self.container.append(changes, seen) {
            Ok(versions) => {
                let bytes = changes.iter().map(Append::user_bytes).sum::<u64>();
                self.counters.user_bytes += bytes;
                self.compactor.owe(bytes);
                self.came_in(changes);
                if changes.iter().any(|change| matches!(change.what, What::Delete)) {
                    self.compactor.wake();
                }
                Ok(*versions.end())
            }
            Err(Error::Full(_)) => {
                fault_point!("trial_large_batches_wait", return Err(OperationStep::NoRoom));
                match self.container.batch_error(changes) {
                    // It would not find room in an empty container either.
                    Some(error) => Err(OperationStep::Reply(Reply::Failed(error))),
                    None => Err(OperationStep::NoRoom),
                }
            }
            Err(error) if self.container.has_failed() => {
                fault_point!("trial_half_written_is_refused", return Err(OperationStep::Reply(Reply::Failed(error))));
                self.fail_region(error);
                // A part of it may be durable, and found at the next opening: what its records
                // point to stays.
                Err(OperationStep::Logged(Reply::Failed(Error::Unknown(
                    "the persistent memory failed while the write was stored; open the store again to see what is there",
                ))))
            }
            Err(error) => Err(OperationStep::Reply(Reply::Failed(error))),
        }
    }

    /// The region takes no more writes.
    pub(crate) fn fail_region(&mut self, error: Error) {
        tracing::error!(%error, shard = self.config.shard, "the container takes no more writes");
        self.life.fail_region(error);
    }

    /// Why there can be no writes, if there can be none.
    pub(crate) fn refusal(&self) -> Option<Error> {
        if self.config.read_only {
            return Some(Error::WrongVolume(
                "the store is open for reading only: open it for writing to change it".into(),
            ));
        }
        self.medium_failure()
    }

    /// How the region or the volume failed, if one did; for good.
    fn medium_failure(&self) -> Option<Error> {
        self.life.failure().or_else(|| self.container.pmem().failure().map(Error::Pmem))
    }

    /// Levels that are not durable are none of this engine, and no write gets more than its region
    /// can give.
    fn unsupported(&self, level: Level) -> Option<Error> {
        let survives = self.container.pmem().survives_power_loss();
        let is_offered = level == Level::ProcessCrash || level == Level::PowerLoss && survives;
        (!is_offered).then_some(Error::Unsupported(Capability::Level))
    }

    /// What is wrong with an operation, whatever the store holds.
    fn complaint(&self, operation: &Operation) -> Option<Error> {
        let key_error = |key: &Key| key.check().err().map(Error::from);
        match operation {
            Operation::Get { key, .. } => key_error(key),
            Operation::Update { key, level, .. } => {
                self.refusal().or_else(|| key_error(key)).or_else(|| self.unsupported(*level))
            }
            Operation::Write { changes, level, .. } => {
                self.refusal()
                    .or_else(|| self.unsupported(*level))
                    .or_else(|| changes.iter().find_map(|change| key_error(&change.key)))
                    .or_else(|| {
                        changes.iter().find_map(|change| match &change.kind {
                            ChangeKind::Put { value, .. } => Self::value_error(value.len()),
                            _ => None,
                        })
                    })
                    // One change is as large as its key and value may be.
                    .or_else(|| if changes.len() == 1 { None } else { batch_error(changes, 0, BATCH_BYTES_MAX) })
            }
            Operation::Load { records, level } => {
                self.refusal().or_else(|| self.unsupported(*level)).or_else(|| Self::load_error(records))
            }
            Operation::DeleteRange { level, .. } => self.refusal().or_else(|| self.unsupported(*level)),
            Operation::Sync => self.refusal(),
            Operation::List(_) => Some(Error::Unsupported(Capability::List)),
            Operation::Page(_) | Operation::Snapshot(_) | Operation::Backup { .. } => None,
        }
    }

    /// Takes an operation that has not to wait for anything.
    pub(crate) fn admit_operation(&mut self, token: Token, operation: Operation, effects: &mut Effects) {
        match self.complaint(&operation).or_else(|| self.batch_complaint(&operation)) {
            Some(error) => effects.reply(token, Reply::Failed(error)),
            None => {
                if let Some(operation) = self.take_of_all(token, operation, effects) {
                    self.begin(token, operation, effects);
                }
            }
        }
    }

    fn begin(&mut self, token: Token, operation: Operation, effects: &mut Effects) {
        let work = match operation {
            Operation::Get { key, part } => Work::Get { key, part, long: None },
            Operation::Update { key, update, .. } => Work::Update { key, update, placed: Vec::new(), long: None },
            Operation::Write { changes, .. } => {
                Work::Write { changes, placed: Vec::new(), looked: Vec::new(), damage: None }
            }
            Operation::Page(request) => match self.read_view_of(request.at) {
                Ok(read_view) => Work::Page(PageWork::new(*request, read_view)),
                Err(error) => return effects.reply(token, Reply::Failed(error)),
            },
            Operation::DeleteRange { range, .. } => {
                let (from, to) = *range;
                Work::DeleteRange { from, to }
            }
            Operation::Load { records, .. } => Work::Load(Load::new(records)),
            Operation::Sync => Work::Sync,
            // It was complained of.
            Operation::List(_) => return,
            operation @ (Operation::Snapshot(_) | Operation::Backup { .. }) => match self.cut(operation) {
                Ok(work) => work,
                Err(reply) => return effects.reply(token, reply),
            },
        };
        let id = self.scheduler.next_id();
        let permit = self.memory.permit_for_writing(work.value_bytes());
        let suspended = Suspended::new(token, work, permit);
        match self.scheduler.may_begin(&suspended.work) {
            true => self.run_step(id, suspended, false, effects),
            false => {
                effects.enter(token, Stage::Key);
                self.scheduler.queue(id, suspended)
            }
        }
    }

    pub(crate) fn fail_operation(&mut self, id: u64, error: Error, effects: &mut Effects) {
        let Some(suspended) = self.scheduler.take(id) else { return };
        self.end_failed(id, suspended, error, effects);
    }

    /// Everything appended in this tick becomes durable, then it is acknowledged. If it does not,
    /// whatever rests on no part of it is answered all the same.
    fn commit(&mut self, effects: &mut Effects) {
        let mut is_durable = self.container.durable_version() == self.container.version();
        fault_point!("matrix_acknowledged_before_the_fence", is_durable = true);
        if !is_durable && let Err(error) = self.container.commit() {
            self.fail_region(error);
            self.scheduler.acks().fail_behind(self.container.durable_version());
        }
        self.write_region_back(effects);
        for (token, reply, _) in self.scheduler.acks().take() {
            self.answer(token, reply, effects);
        }
    }

    /// Answers those who asked for a sync: what fences left in the page cache goes to the medium
    /// first.
    fn write_region_back(&mut self, effects: &mut Effects) {
        if !self.scheduler.acks().any_syncs() {
            return;
        }
        let mut is_left = !self.container.pmem().survives_power_loss();
        fault_point!("trial_sync_writes_nothing_back", is_left = false);
        if is_left
            && self.life.region_failure().is_none()
            && let Err(error) = self.container.pmem().sync()
        {
            self.fail_region(error.into());
        }
        for token in self.scheduler.acks().take_syncs() {
            let reply = match self.medium_failure() {
                Some(error) => Reply::Failed(error),
                None => Reply::Done { version: 0, existed: false },
            };
            self.answer(token, reply, effects);
        }
    }

    /// Whether everybody is answered and nothing is under way that could still be done.
    fn is_drained(&self) -> bool {
        let is_idle = self.scheduler.is_idle() && self.batches.is_idle() && self.memory.is_quiet();
        is_idle && (self.installer.is_idle() || self.life.is_frozen())
    }

    fn pump_close(&mut self, effects: &mut Effects) {
        if !self.life.is_draining() || !self.is_drained() {
            return;
        }
        self.drop_job();
        if self.life.is_frozen() {
            return self.life.close();
        }
        if let Err(error) = self.container.pmem().sync() {
            // No clean superblock: what the region holds is not known.
            self.fail_region(error.into());
            return self.life.close();
        }
        self.write_last_superblock(effects);
    }

    fn completed(&mut self, purpose: IoPurpose, outcome: IoOutcome, effects: &mut Effects) {
        match (purpose, outcome) {
            (IoPurpose::Read(page), IoOutcome::Read(block, result)) => self.read_done(page, block, result, effects),
            (IoPurpose::Growth, IoOutcome::Allocate(result)) => self.grown(result, effects),
            (IoPurpose::Output(file), IoOutcome::Write(result)) => self.output_written(file, result, effects),
            (IoPurpose::Manifest(number), IoOutcome::Write(Ok(()))) => self.manifest_written(number, effects),
            (IoPurpose::Flush(number), IoOutcome::Flush(Ok(()))) => self.flushed(number, effects),
            (IoPurpose::Superblock(number), IoOutcome::Write(Ok(()))) => self.superblock_written(number, effects),
            (IoPurpose::Manifest(number), IoOutcome::Write(Err(fault))) => self.fail_install(number, fault, effects),
            (_, IoOutcome::Write(Err(fault)) | IoOutcome::Flush(Err(fault))) => self.fail_volume(fault, effects),
            _ => {}
        }
    }

    /// A flush or a superblock failed: what is on the medium is not known, so nothing more is
    /// written to it.
    pub(crate) fn fail_volume(&mut self, fault: IoFault, effects: &mut Effects) {
        tracing::error!(%fault, shard = self.config.shard, "a flush failed: the volume takes no more writes");
        self.life.fail_volume(fault);
        self.refuse_waiting(&Error::Poisoned(fault), effects);
    }

    /// Whoever waits for the region waits in vain once it has failed.
    fn end_for_failed_region(&mut self, effects: &mut Effects) {
        let Some(error) = self.life.region_failure().cloned() else { return };
        let mut somebody_waits = !self.scheduler.has_no_writes();
        fault_point!("trial_failed_region_is_waited_for", somebody_waits = false);
        if somebody_waits {
            self.refuse_waiting(&error, effects);
        }
        self.batches.fail_behind(self.container.durable_version(), &error);
    }

    /// Whether the next tick has something to do whatever comes.
    fn has_next(&mut self) -> bool {
        let is_awaited = self.scheduler.is_awaited(WaitFor::Step) || self.scheduler.is_awaited(WaitFor::Visits);
        is_awaited || self.scheduler.acks().any_pending() || self.batches.has_work()
    }

    /// Writes that wait wait in vain.
    fn refuse_waiting(&mut self, error: &Error, effects: &mut Effects) {
        for (id, is_begun) in self.scheduler.give_up_writes() {
            let error =
                match self.compactor.load.as_ref().is_some_and(|load| load.id == id) && !self.installer.is_idle() {
                    true => Error::Unknown("a load was being installed"),
                    false if is_begun => Error::Unknown("a part of the range was deleted"),
                    false => error.clone(),
                };
            self.fail_operation(id, error, effects);
        }
    }
}

/// Most bytes of keys and values in a batch.
pub(crate) const BATCH_BYTES_MAX: u64 = 64 << 20;

/// How often in a tick what was wanted of the PMEM levels is loaded, and who waited for it goes on:
/// filters and indexes come before data, at each level.
const PMEM_LEVELS_ROUNDS_MAX: u32 = 8;
impl<P: Pmem + Send> Shard for Matrix<P> {
    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: true, snapshot: true, durable: true, evicting: false, blind: true }
    }

    fn accept(&mut self, token: Token, operation: Operation, effects: &mut Effects) -> Result<(), Operation> {
        if !self.life.is_open() {
            return Err(operation);
        }
        self.life.begin_call(effects.now());
        let operation = match self.publish_batches(token, operation, effects) {
            ReadAdmission::Begin(operation) => operation,
            ReadAdmission::Waiting => return Ok(()),
            ReadAdmission::Later(operation, at) => {
                effects.wake_at(at);
                return Err(operation);
            }
        };
        if let Some(at) = self.waits_for_pace(&operation) {
            effects.wake_at(at);
            return Err(operation);
        }
        self.admit_operation(token, operation, effects);
        Ok(())
    }

    fn complete(&mut self, io: Io, outcome: IoOutcome, effects: &mut Effects) {
        self.life.begin_call(effects.now());
        if let Some(purpose) = self.memory.finish(io) {
            self.completed(purpose, outcome, effects);
        }
    }

    fn message(&mut self, from: ShardId, message: Message, _: &mut Effects) {
        self.batch_message(from, message);
    }

    fn gone(&mut self, shard: ShardId, effects: &mut Effects) {
        self.shard_failed(shard, effects);
    }

    fn tick_end(&mut self, effects: &mut Effects) {
        self.life.begin_call(effects.now());
        self.empty_deferred();
        self.run_ready(effects);
        for _ in 0..PMEM_LEVELS_ROUNDS_MAX {
            if !self.load_from_pmem_levels(effects) {
                break;
            }
            self.run_ready(effects);
        }
        self.run_walks(effects);
        self.commit(effects);
        while self.step_batches(effects) {
            self.run_ready(effects);
            self.commit(effects);
        }
        self.maintain(effects);
        self.pump_superblock(effects);
        self.end_for_failed_region(effects);
        if self.memory.is_balance_due() {
            self.balance_memory(effects);
        }
        self.pump_reads(effects);
        if self.load_from_pmem_levels(effects) {
            effects.more();
        }
        self.pump_close(effects);
        self.find_blocks(effects);
        let may_wake_memory_waiters = self.scheduler.is_awaited(WaitFor::Memory) && self.memory.has_room_for_reading();
        if self.has_next() || (may_wake_memory_waiters && self.memory.is_quiet()) {
            effects.more();
        }
        self.scheduler.walks_mut().begin_tick();
    }

    fn cancel(&mut self, has_left: &dyn Fn(Token) -> bool, effects: &mut Effects) {
        self.give_up_reads(has_left, effects);
    }

    fn close(&mut self, effects: &mut Effects) {
        if self.life.drain() {
            self.close_batches(effects);
        }
        effects.more();
    }

    fn is_closed(&self) -> bool {
        self.life.is_closed()
    }

    fn failure(&self) -> Option<Error> {
        self.medium_failure()
    }

    fn statistics(&self, out: &mut Vec<Statistic>) {
        self.count(out);
    }
}
