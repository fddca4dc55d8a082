//! [`Lanes`]: threads that sleep until the medium has what is written, for threads that serve many and must not.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use stratakv_engine::{Error, Operation, Reply};

use crate::direct::Core;
use crate::slot::{Waiter, lock};

/// One commit of the medium serves all who wait for it, so there are more of them than processors.
const LANES: usize = 32;
/// Operations that wait in a lane before those who bring more wait too.
const QUEUED_MAX: usize = 256;

/// A thread each, with a queue. What concerns a key goes to the lane of the key, in order.
pub(crate) struct Lanes {
    lanes: Vec<Arc<Lane>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    hasher: RandomState,
    in_progress: Arc<AtomicU64>,
}

#[derive(Default)]
struct Lane {
    state: Mutex<State>,
    filled: Condvar,
    emptied: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(Waiter, Operation)>,
    ended: bool,
}

impl Lanes {
    /// As many as there can be; perhaps none.
    pub(crate) fn start(core: &Arc<Core>) -> Lanes {
        let in_progress = Arc::new(AtomicU64::new(0));
        let (mut lanes, mut threads) = (Vec::new(), Vec::new());
        for number in 0..LANES {
            let lane = Arc::new(Lane::default());
            let (core, mine, count) = (Arc::clone(core), Arc::clone(&lane), Arc::clone(&in_progress));
            let thread = thread::Builder::new().name(format!("stratakv-write-{number}"));
            match thread.spawn(move || mine.run(&core, &count)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    tracing::warn!(%error, lanes = number, "fewer threads than wanted wait for the medium");
                    break;
                }
            }
            lanes.push(lane);
        }
        Lanes { lanes, threads: Mutex::new(threads), hasher: RandomState::new(), in_progress }
    }

    /// Queues an operation; waits while its lane is full. Gives it back if there is no lane.
    pub(crate) fn hand_over(
        &self,
        operation: Operation,
        waiter: impl FnOnce() -> Waiter,
    ) -> Result<(), Box<Operation>> {
        let key = match &operation {
            Operation::Get { key, .. } | Operation::Update { key, .. } => Some(key),
            Operation::Write { changes, .. } => changes.first().map(|change| &change.key),
            _ => None,
        };
        let hash = key.map_or(0, |key| self.hasher.hash_one(key.encoded()));
        let Some(lane) = self.lanes.get(hash as usize % self.lanes.len().max(1)) else {
            return Err(Box::new(operation));
        };
        let mut state = lock(&lane.state);
        // The lane's thread waits for nobody who could be waiting here.
        while state.queue.len() >= QUEUED_MAX && !state.ended {
            state = lane.emptied.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.ended {
            drop(state);
            waiter().answer(Reply::Failed(Error::Closed));
            return Ok(());
        }
        self.in_progress.fetch_add(1, Ordering::Relaxed);
        state.queue.push_back((waiter(), operation));
        lane.filled.notify_one();
        Ok(())
    }

    /// Operations handed over and not yet answered.
    pub(crate) fn in_progress(&self) -> u64 {
        self.in_progress.load(Ordering::Relaxed)
    }

    /// Lets everything queued be done, and ends the threads. What is handed over later is answered `Closed`.
    pub(crate) fn end(&self) {
        for lane in &self.lanes {
            lock(&lane.state).ended = true;
            lane.filled.notify_all();
            lane.emptied.notify_all();
        }
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            if thread.join().is_err() {
                tracing::error!("a thread that waits for the medium ended by a panic");
            }
        }
    }
}

impl Lane {
    fn run(&self, core: &Core, in_progress: &AtomicU64) {
        while let Some((waiter, operation)) = self.next() {
            let reply = core.execute(operation, core.now());
            in_progress.fetch_sub(1, Ordering::Relaxed);
            waiter.answer(reply);
        }
    }

    /// The next operation; none at the end.
    fn next(&self) -> Option<(Waiter, Operation)> {
        let mut state = lock(&self.state);
        loop {
            if let Some(next) = state.queue.pop_front() {
                self.emptied.notify_one();
                return Some(next);
            }
            if state.ended {
                return None;
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
