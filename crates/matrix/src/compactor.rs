//! [`Compactor`]: what compacts, what it may spend, and why it rests. `maintain.rs` plans its jobs
//! and runs them, once a tick; whoever makes room or deletes something wakes it. It knows no
//! tables: what is worth a job is for `space.rs`, `load.rs` and `range_delete.rs` to say.
//!
//! ```text
//!   Idle --begin--> Runs(job) --take_job--> Idle        (it is installed, or given up)
//!    ^                  |
//!    |                put_off
//!  begin, later         v
//!    `------------- PutOff(until)
//! ```
//!
//! Beside its state it *rests* ([`CompactionBackoff`]) while the volume is full or damaged; a load
//! is carried out even then.

use stratakv_base::{Mono, fault_point};
use stratakv_engine::Error;

use crate::job::Job;
use crate::load::LoadTurn;
use crate::pace::Pace;
use crate::pmem_levels::Plan;
use crate::space::CompactionBackoff;

/// A compaction that failed is tried again after a second.
const RETRY_NS: u64 = 1_000_000_000;
/// After so many in a row who waits for one is told.
const FAILURES_MAX: u32 = 5;
/// After a device said that it is full it is asked again.
const REST_NS: u64 = 1_000_000_000;

#[derive(Debug)]
enum CompactorState {
    Idle,
    Runs(Box<Job>),
    /// One failed: none begins before.
    PutOff(Mono),
}

/// How far the oldest memtable is on its way to be a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlushState {
    /// It is made one, as far as that is paid for.
    Goes,
    /// The container's directory is full: it waits for a compaction.
    DirectoryFull,
    /// It waits for a manifest with the deletes of ranges up to this version; `is_put_off`: one
    /// that cannot be written now.
    Ranges { version: u64, is_put_off: bool },
}

/// What there was when something was looked for: installations, deletes of ranges, snapshots.
pub(crate) type Looked = (u64, u64, usize);

/// See the module.
#[derive(Debug)]
pub(crate) struct Compactor {
    state: CompactorState,
    begun: u64,
    /// Where tables are to go.
    plan: Plan,
    /// How fast columns go down, and writes come in.
    pub(crate) pace: Pace,
    flush: FlushState,
    /// The load that has its turn.
    pub(crate) load: Option<LoadTurn>,
    /// Bytes that came in since the last tick.
    written_bytes: u64,
    /// It may merge so much.
    credit_bytes: u64,
    /// Bytes of values that compactions may move yet; below 0 if the last one moved a file that was
    /// longer.
    move_credit_bytes: i64,
    backoff: CompactionBackoff,
    backed_off_at: Mono,
    failures: Failures,
    /// Installations when no value file was found that is worth rewriting.
    looked_at_installs: u64,
    /// When no table was found that deletes of ranges hide all of.
    pub(crate) ranges_looked: Looked,
}

impl Compactor {
    pub(crate) fn new(plan: Plan) -> Compactor {
        Compactor {
            state: CompactorState::Idle,
            begun: 0,
            plan,
            pace: Pace::default(),
            flush: FlushState::Goes,
            load: None,
            written_bytes: 0,
            credit_bytes: 0,
            move_credit_bytes: 0,
            backoff: CompactionBackoff::No,
            backed_off_at: Mono(0),
            failures: Failures::default(),
            looked_at_installs: 0,
            ranges_looked: Looked::default(),
        }
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn job(&self) -> Option<&Job> {
        if let CompactorState::Runs(job) = &self.state { Some(job) } else { None }
    }

    pub(crate) fn job_mut(&mut self) -> Option<&mut Job> {
        if let CompactorState::Runs(job) = &mut self.state { Some(job) } else { None }
    }

    /// The job leaves: it is installed or given up, or [`Compactor::put_back`] after a step of it.
    pub(crate) fn take_job(&mut self) -> Option<Box<Job>> {
        match std::mem::replace(&mut self.state, CompactorState::Idle) {
            CompactorState::Runs(job) => Some(job),
            other => {
                self.state = other;
                None
            }
        }
    }

    pub(crate) fn put_back(&mut self, job: Box<Job>) {
        self.state = CompactorState::Runs(job);
    }

    /// Begins a job that was planned, and gives it its number.
    pub(crate) fn begin(&mut self, mut job: Job, now: Mono) {
        self.pace.begin_job(now);
        self.begun += 1;
        job.number = self.begun;
        self.state = CompactorState::Runs(Box::new(job));
    }

    /// A job failed, or an installation, and is tried again later. Whether so many did that who
    /// waits is told. The job must have left.
    pub(crate) fn put_off(&mut self, error: &Error, now: Mono) -> bool {
        self.put_off_until(Mono(now.0 + RETRY_NS));
        self.failures.add(error);
        self.failures.verdict().is_some()
    }

    pub(crate) fn put_off_until(&mut self, until: Mono) {
        self.state = CompactorState::PutOff(until);
    }

    /// Until when no job and no repair begins, if that is to come.
    pub(crate) fn is_put_off(&self, now: Mono) -> Option<Mono> {
        if let CompactorState::PutOff(until) = self.state { Some(until).filter(|until| now < *until) } else { None }
    }

    /// What a compaction made is installed.
    pub(crate) fn succeed(&mut self) {
        self.failures = Failures::default();
    }

    /// Why writes that wait for a compaction are refused, if so many failed. It is tried again all
    /// the same.
    pub(crate) fn verdict(&self) -> Option<&Error> {
        self.failures.verdict()
    }

    /// Bytes came in, which compaction owes.
    pub(crate) fn owe(&mut self, bytes: u64) {
        self.written_bytes += bytes;
    }

    /// Those since it was asked last.
    pub(crate) fn take_written(&mut self) -> u64 {
        std::mem::take(&mut self.written_bytes)
    }

    /// So much is paid for.
    pub(crate) fn pay(&mut self, bytes: u64) {
        self.credit_bytes += bytes;
    }

    pub(crate) fn credit_bytes(&self) -> u64 {
        self.credit_bytes
    }

    pub(crate) fn spend(&mut self, bytes: u64) {
        self.credit_bytes = self.credit_bytes.saturating_sub(bytes);
    }

    /// A column goes down, which pays for so many bytes of values that are moved. What could not be
    /// used is not kept for later: that would be a burst.
    pub(crate) fn pay_for_moves(&mut self, bytes: u64) {
        self.move_credit_bytes = self.move_credit_bytes.min(bytes as i64) + bytes as i64;
    }

    /// Whether there is something left to move values with; then it moves these.
    pub(crate) fn spend_on_move(&mut self, bytes: u64) -> bool {
        let mut is_spent = self.move_credit_bytes <= 0;
        fault_point!("trial_columns_move_all_they_meet", is_spent = false);
        if !is_spent {
            self.move_credit_bytes -= bytes as i64;
        }
        !is_spent
    }

    pub(crate) fn backoff(&self) -> CompactionBackoff {
        self.backoff
    }

    pub(crate) fn rests(&self) -> bool {
        self.backoff != CompactionBackoff::No
    }

    /// Nothing more can be cleared away.
    pub(crate) fn rest_full(&mut self, now: Mono) {
        (self.backoff, self.backed_off_at) = (CompactionBackoff::Full, now);
    }

    /// What it has to read is damaged.
    pub(crate) fn rest_damaged(&mut self) {
        self.backoff = CompactionBackoff::Damaged;
    }

    /// Pages became free: it is tried again, whatever it rested for.
    pub(crate) fn end_rest(&mut self) {
        self.backoff = CompactionBackoff::No;
    }

    /// Something was deleted, or became free: what rests for want of room is tried again.
    pub(crate) fn wake(&mut self) {
        if self.backoff == CompactionBackoff::Full {
            self.end_rest();
        }
    }

    /// The device under the volume may have room again, of which nobody tells.
    pub(crate) fn wake_after_a_while(&mut self, now: Mono) {
        if now.0 >= self.backed_off_at.0 + REST_NS {
            self.wake();
        }
    }

    /// There may be something to rewrite that there was not.
    pub(crate) fn look_again(&mut self) {
        self.looked_at_installs = u64::MAX;
    }

    /// Whether there was nothing to rewrite after so many installations.
    pub(crate) fn has_looked(&self, installs: u64) -> bool {
        self.looked_at_installs == installs
    }

    pub(crate) fn note_look(&mut self, installs: u64) {
        self.looked_at_installs = installs;
    }

    pub(crate) fn set_flush(&mut self, flush: FlushState) {
        self.flush = flush;
    }

    /// Whether no tick more would bring the row about.
    pub(crate) fn is_flush_blocked(&self) -> bool {
        matches!(self.flush, FlushState::DirectoryFull | FlushState::Ranges { is_put_off: true, .. })
    }

    /// Whether the row waits for a manifest with deletes of ranges, all of them durable.
    pub(crate) fn flush_wants_manifest(&self, durable: u64) -> bool {
        matches!(self.flush, FlushState::Ranges { version, .. } if version <= durable)
    }
}

/// Compactions that failed one after the other.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    last: Option<Error>,
}

impl Failures {
    fn add(&mut self, error: &Error) {
        self.count = self.count.saturating_add(1);
        self.last = Some(error.clone());
    }

    fn verdict(&self) -> Option<&Error> {
        fault_point!("trial_failing_devices_are_waited_for", return None);
        self.last.as_ref().filter(|_| self.count >= FAILURES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_failed_is_put_off_and_who_waits_is_told_after_five() {
        let mut compactor = Compactor::new(Plan::default());
        compactor.begin(Job::new(crate::job::Source::Level { tables: Vec::new() }, 0, Vec::new()), Mono(1));
        assert!(compactor.take_job().is_some() && compactor.take_job().is_none());
        let told: Vec<bool> = (0..6).map(|_| compactor.put_off(&Error::Closed, Mono(1))).collect();
        assert_eq!(told, [false, false, false, false, true, true]);
        // To look for a job that is not there does not end it.
        assert!(compactor.take_job().is_none() && compactor.is_put_off(Mono(RETRY_NS)).is_some());
        assert!(compactor.is_put_off(Mono(RETRY_NS + 1)).is_none());
        compactor.succeed();
        assert!(compactor.verdict().is_none());
    }

    /// What is damaged stays so, however much is deleted.
    #[test]
    fn a_rest_for_damage_does_not_end_with_a_delete() {
        let mut compactor = Compactor::new(Plan::default());
        compactor.rest_full(Mono(5));
        compactor.wake_after_a_while(Mono(6));
        assert!(compactor.rests());
        compactor.wake();
        assert!(!compactor.rests());
        compactor.rest_damaged();
        compactor.wake();
        compactor.wake_after_a_while(Mono(u64::MAX));
        assert!(compactor.rests());
    }
}
