//! [`Workers`]: threads that sleep until the medium has what is written, for threads that serve
//! many and must not.

use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use stratakv_base::Key;
use stratakv_engine::{Error, Operation, Reply};

use crate::direct::Core;
use crate::order::{Order, Scope, Task};
use crate::slot::{Waiter, lock};

/// One commit of the medium serves all who wait for it, so there are more of them than processors.
const WORKERS: usize = 32;
/// Operations handed over and not done before those who bring more wait too.
const BEGUN_MAX: usize = 8192;

/// Threads that do what is handed over, in its [`Order`]. Started by the first operation.
pub(crate) struct Workers {
    shop: Arc<Shop>,
    hasher: RandomState,
}

/// What the threads share.
struct Shop {
    core: Arc<Core>,
    state: Mutex<State>,
    filled: Condvar,
    emptied: Condvar,
    in_progress: AtomicU64,
}

struct State {
    order: Order<(Waiter, Operation)>,
    threads: Vec<JoinHandle<()>>,
    started: bool,
    ended: bool,
}

impl Workers {
    pub(crate) fn new(core: &Arc<Core>) -> Workers {
        let shop = Shop {
            core: Arc::clone(core),
            state: Mutex::new(State { order: Order::new(), threads: Vec::new(), started: false, ended: false }),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            in_progress: AtomicU64::new(0),
        };
        Workers { shop: Arc::new(shop), hasher: RandomState::new() }
    }

    fn scope_of(&self, operation: &Operation) -> Scope {
        let hash = |key: &Key| self.hasher.hash_one(key.encoded());
        match operation {
            Operation::Get { key, .. } | Operation::Update { key, .. } => Scope::Keys(vec![hash(key)]),
            Operation::Write { changes, .. } => Scope::Keys(changes.iter().map(|change| hash(&change.key)).collect()),
            Operation::Load { records, .. } => Scope::Keys(records.iter().map(|record| hash(&record.key)).collect()),
            Operation::DeleteRange { .. } => Scope::Range,
            Operation::Page(_)
            | Operation::List(_)
            | Operation::Snapshot(_)
            | Operation::Backup { .. }
            | Operation::Sync => Scope::All,
        }
    }

    /// Queues an operation; waits while there are too many. Gives it back if there is no thread.
    pub(crate) fn hand_over(
        &self,
        operation: Operation,
        waiter: impl FnOnce() -> Waiter,
    ) -> Result<(), Box<Operation>> {
        let scope = self.scope_of(&operation);
        let mut state = lock(&self.shop.state);
        // The workers wait for nobody who could be waiting here.
        while state.order.len() >= BEGUN_MAX && !state.ended {
            state = self.shop.emptied.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.ended {
            drop(state);
            waiter().answer(Reply::Failed(Error::Closed));
            return Ok(());
        }
        if !mem::replace(&mut state.started, true) {
            state.threads = self.start();
        }
        if state.threads.is_empty() {
            return Err(Box::new(operation));
        }
        self.shop.in_progress.fetch_add(1, Ordering::Relaxed);
        state.order.begin(scope, (waiter(), operation), || self.shop.core.last_version());
        drop(state);
        self.shop.filled.notify_one();
        Ok(())
    }

    /// As many as there can be; perhaps none.
    fn start(&self) -> Vec<JoinHandle<()>> {
        let mut threads = Vec::new();
        for number in 0..WORKERS {
            let shop = Arc::clone(&self.shop);
            let thread = thread::Builder::new().name(format!("stratakv-write-{number}"));
            let work = move || {
                shop.core.stay_near(number);
                shop.work();
            };
            match thread.spawn(work) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    tracing::warn!(%error, workers = number, "fewer threads than wanted wait for the medium");
                    break;
                }
            }
        }
        threads
    }

    /// Whether a write or a range delete would come before what was handed over earlier, if it were
    /// done now.
    pub(crate) fn would_overtake(&self, operation: &Operation) -> bool {
        self.in_progress() > 0 && lock(&self.shop.state).order.would_overtake(&self.scope_of(operation))
    }

    /// Operations handed over and not yet answered.
    pub(crate) fn in_progress(&self) -> u64 {
        self.shop.in_progress.load(Ordering::Relaxed)
    }

    /// Lets everything handed over be done, and ends the threads. What comes later is answered
    /// `Closed`, and starts none.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.shop.state);
        state.ended = true;
        let threads = mem::take(&mut state.threads);
        drop(state);
        self.shop.filled.notify_all();
        self.shop.emptied.notify_all();
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread that waits for the medium ended by a panic");
            }
        }
    }
}

impl Shop {
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            let Some(Task { done, job, begun_at }) = state.order.next() else {
                if state.ended && state.order.len() == 0 {
                    // The others wait for this too.
                    self.filled.notify_all();
                    return;
                }
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            // Whoever takes something calls the next one: what a task sets free may be more than
            // one can do.
            let has_next = state.order.has_next();
            drop(state);
            if has_next {
                self.filled.notify_one();
            }
            self.carry_out(job, begun_at);
            state = lock(&self.state);
            state.order.finish(done, || self.core.last_version());
            self.emptied.notify_one();
        }
    }

    /// Answered before what waits for it begins: so answers come in the order of what they answer.
    fn carry_out(&self, (waiter, operation): (Waiter, Operation), begun_at: Option<u64>) {
        let reply = self.core.execute_begun(operation, begun_at, self.core.now());
        self.in_progress.fetch_sub(1, Ordering::Relaxed);
        if catch_unwind(AssertUnwindSafe(|| waiter.answer(reply))).is_err() {
            tracing::error!("whoever waited for an operation panicked when it was told of the answer");
        }
    }
}
