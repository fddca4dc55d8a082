//! [`Direct`]: an engine that any thread calls in place, behind the ways in that shards have.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, mem};

use stratakv_base::Now;
use stratakv_engine::{Error, Operation, Reply, Shared, Statistic};

use crate::clock::Clock;
use crate::nodes;
use crate::slot::{Slot, Waiter, lock};
use crate::workers::Workers;

/// How long maintenance rests when it had nothing to do.
const MAINTENANCE_PAUSE: Duration = Duration::from_millis(100);

/// The engine panicked: its invariants are in doubt, so it is not called again.
const DEFECT: &str = "a defect stopped the engine; reopen the store";

/// An engine, its maintenance, and the threads that wait for its medium so that others need not.
pub(crate) struct Direct {
    core: Arc<Core>,
    writes_wait: bool,
    /// Nothing is handed over: there are no threads.
    is_driven: bool,
    workers: Workers,
    maintenance: Mutex<Option<JoinHandle<()>>>,
}

/// What the threads share.
pub(crate) struct Core {
    engine: Arc<dyn Shared>,
    clock: Clock,
    broken: AtomicBool,
    is_closing: Mutex<bool>,
    closing: Condvar,
}

impl Core {
    /// Does an operation in the calling thread. No lock, no allocation but the engine's own.
    pub(crate) fn execute(&self, operation: Operation, now: Now) -> Reply {
        self.execute_begun(operation, None, now)
    }

    /// The same with an operation that was begun earlier.
    pub(crate) fn execute_begun(&self, operation: Operation, begun_at: Option<u64>, now: Now) -> Reply {
        if self.broken.load(Ordering::Acquire) {
            return Reply::Failed(Error::Unknown(DEFECT));
        }
        let done = self.guarded(|| self.engine.execute_begun(operation, begun_at, now));
        done.unwrap_or(Reply::Failed(Error::Unknown(DEFECT)))
    }

    /// Operations on these keys follow.
    pub(crate) fn prefetch(&self, keys: &mut dyn Iterator<Item = &[u8]>) {
        if !self.broken.load(Ordering::Acquire) {
            self.guarded(|| self.engine.prefetch(keys));
        }
    }

    /// The engine's; 0 if it is not called any more.
    pub(crate) fn last_version(&self) -> u64 {
        let is_broken = self.broken.load(Ordering::Acquire);
        if is_broken { 0 } else { self.guarded(|| self.engine.last_version()).unwrap_or(0) }
    }

    pub(crate) fn now(&self) -> Now {
        self.clock.at_last_tick()
    }

    pub(crate) fn stay_near(&self, number: usize) {
        nodes::stay(&self.engine.processors(), number);
    }

    /// Lets the engine work. If it panics it is broken from then on; what other threads have begun
    /// is seen through.
    fn guarded<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let done = catch_unwind(AssertUnwindSafe(work)).ok();
        if done.is_none() {
            tracing::error!("the engine panicked; operations are answered as unknown");
            self.broken.store(true, Ordering::Release);
        }
        done
    }

    /// Steps of maintenance until the end is near.
    fn maintain(&self) {
        let mut is_closing = lock(&self.is_closing);
        while !*is_closing && !self.broken.load(Ordering::Acquire) {
            drop(is_closing);
            let has_more = self.guarded(|| self.engine.maintain(self.now())).unwrap_or(false);
            is_closing = lock(&self.is_closing);
            if !has_more && !*is_closing {
                let waited = self.closing.wait_timeout(is_closing, MAINTENANCE_PAUSE);
                is_closing = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl Direct {
    /// Starts the maintenance of `engine`.
    pub(crate) fn start(engine: Arc<dyn Shared>, clock: Clock) -> io::Result<Direct> {
        let mut direct = Direct::turned(engine, clock);
        direct.is_driven = false;
        let maintained = Arc::clone(&direct.core);
        let thread = thread::Builder::new().name("stratakv-maintain".into()).spawn(move || maintained.maintain())?;
        *lock(&direct.maintenance) = Some(thread);
        Ok(direct)
    }

    /// One without threads: who asks does all, and maintenance is called for.
    pub(crate) fn turned(engine: Arc<dyn Shared>, clock: Clock) -> Direct {
        let writes_wait = engine.writes_wait();
        let core = Core { engine, clock, broken: false.into(), is_closing: false.into(), closing: Condvar::new() };
        let core = Arc::new(core);
        let workers = Workers::new(&core);
        Direct { core, writes_wait, is_driven: true, workers, maintenance: Mutex::default() }
    }

    /// A step of maintenance; whether there is more to do.
    pub(crate) fn maintain(&self) -> bool {
        self.core.guarded(|| self.core.engine.maintain(self.core.now())).unwrap_or(false)
    }

    /// Keeps the calling thread near the medium, where that lies on several nodes: on one of them,
    /// in turn by `number`.
    pub(crate) fn stay_near(&self, number: usize) {
        self.core.stay_near(number);
    }

    /// Operations on these keys follow.
    pub(crate) fn prefetch(&self, keys: &mut dyn Iterator<Item = &[u8]>) {
        self.core.prefetch(keys);
    }

    /// The time that operations get.
    pub(crate) fn now(&self) -> Now {
        self.core.now()
    }

    /// Does an operation while the caller waits: in its thread, unless it would come before what
    /// was handed over earlier.
    pub(crate) fn execute(&self, operation: Operation) -> Reply {
        let now = self.core.now();
        if !self.may_wait(&operation) || !self.workers.would_overtake(&operation) {
            return self.core.execute(operation, now);
        }
        let slot = Slot::new(1);
        match self.workers.hand_over(operation, || Waiter::Slot(Arc::clone(&slot), 0)) {
            Ok(()) => slot.wait().pop().unwrap_or(Reply::Failed(Error::Closed)),
            Err(operation) => self.core.execute(*operation, now),
        }
    }

    /// Begins an operation for someone who must not wait for the medium: its reply, or none if
    /// `waiter` is answered later.
    ///
    /// Of two writes of one key, batches too, the one begun first is carried out and answered
    /// first. A range delete finds what was begun before it, and leaves what is begun after it.
    /// `Sync`, snapshots and backups cover what was begun before them, and perhaps what is begun
    /// before they are answered. Reads wait for nobody.
    pub(crate) fn begin(&self, operation: Operation, waiter: impl FnOnce() -> Waiter) -> Option<Reply> {
        let now = self.core.now();
        if !self.may_wait(&operation) {
            return Some(self.core.execute(operation, now));
        }
        match self.workers.hand_over(operation, waiter) {
            Ok(()) => None,
            // No thread could be had.
            Err(operation) => Some(self.core.execute(*operation, now)),
        }
    }

    /// Whether an operation takes longer than those who share its thread should have to wait.
    fn may_wait(&self, operation: &Operation) -> bool {
        match operation {
            _ if self.is_driven => false,
            Operation::Update { .. } | Operation::Write { .. } | Operation::Load { .. } => self.writes_wait,
            Operation::DeleteRange { .. } | Operation::Snapshot(_) | Operation::Backup { .. } | Operation::Sync => true,
            Operation::Get { .. } | Operation::Page(_) | Operation::List(_) => false,
        }
    }

    /// Why nothing is written until the store is opened again, if that is so.
    pub(crate) fn failure(&self) -> Option<Error> {
        let defect = Some(Error::Unknown(DEFECT));
        if self.core.broken.load(Ordering::Acquire) {
            return defect;
        }
        self.core.guarded(|| self.core.engine.failure()).unwrap_or(defect)
    }

    /// Counters and gauges.
    pub(crate) fn statistics(&self, out: &mut Vec<Statistic>) {
        if !self.core.broken.load(Ordering::Acquire) {
            self.core.guarded(|| self.core.engine.statistics(out));
        }
        let failure = self.failure();
        let is_broken = self.core.broken.load(Ordering::Acquire);
        let is_read_only = !is_broken && failure.is_some();
        out.push(Statistic { name: "read_only_after_a_failure", value: u64::from(is_read_only) });
        out.push(Statistic { name: "broken_shards", value: u64::from(is_broken) });
        out.push(Statistic { name: "operations_in_progress", value: self.workers.in_progress() });
    }

    /// Finishes what was handed over, ends the threads, closes the engine. Idempotent.
    pub(crate) fn close(&self) {
        if mem::replace(&mut *lock(&self.core.is_closing), true) {
            return;
        }
        self.core.closing.notify_all();
        self.workers.end();
        let maintenance = mem::take(&mut *lock(&self.maintenance));
        if maintenance.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the maintenance thread ended by a panic");
        }
        if !self.core.broken.load(Ordering::Acquire) {
            self.core.guarded(|| self.core.engine.close());
        }
    }

    /// Whether it was told to close.
    pub(crate) fn is_closing(&self) -> bool {
        *lock(&self.core.is_closing)
    }
}
