//! Where replies go: an [`Inbox`] of a thread with a ring, or a [`Slot`] of a blocking call or a
//! future.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;

use stratakv_device::Waker;
use stratakv_device::fork::Lineage;
use stratakv_engine::{Error, Operation, Reply, Shard};

use crate::cell::append;
use crate::pump;
use crate::runtime::Runtime;

/// Who waits for a reply.
#[derive(Clone)]
pub(crate) enum Waiter {
    /// A thread with a ring, and its tag.
    Inbox(Arc<Inbox>, u64),
    /// A blocking call or a future, and which of its replies.
    Slot(Arc<Slot>, u32),
}

/// Operations whose callers have left: the inbox that they were to be answered in, and their tags.
pub(crate) type Left = (Arc<Inbox>, RangeInclusive<u64>);

/// All who have left since the last tick: each operation is looked for in O(log callers).
pub(crate) struct Departed {
    /// By inbox and first tag: the last one. They do not overlap.
    tags: BTreeMap<(usize, u64), u64>,
    /// Kept, so that no other inbox lies there.
    _inboxes: Vec<Left>,
}

impl Departed {
    pub(crate) fn new(left: Vec<Left>) -> Departed {
        let mut ranges: Vec<_> =
            left.iter().map(|(inbox, tags)| (address(inbox), *tags.start(), *tags.end())).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, before| {
            let overlap = next.0 == before.0 && next.1 <= before.2;
            if overlap {
                before.2 = before.2.max(next.2);
            }
            overlap
        });
        let tags = ranges.into_iter().map(|(inbox, first, last)| ((inbox, first), last)).collect();
        Departed { tags, _inboxes: left }
    }

    /// Whether it is one of those who have left.
    pub(crate) fn has(&self, waiter: &Waiter) -> bool {
        let Waiter::Inbox(inbox, tag) = waiter else { return false };
        let inbox = address(inbox);
        let before = self.tags.range((inbox, 0)..=(inbox, *tag)).next_back();
        before.is_some_and(|(_, last)| tag <= last)
    }
}

fn address(inbox: &Arc<Inbox>) -> usize {
    Arc::as_ptr(inbox) as usize
}

impl Waiter {
    /// Leaves the reply and wakes who waits.
    pub(crate) fn answer(self, reply: Reply) {
        match self {
            Waiter::Inbox(inbox, tag) => {
                inbox.leave(tag, reply);
                inbox.wake();
            }
            Waiter::Slot(slot, index) => {
                if let Some(waker) = slot.leave(index, reply) {
                    waker.wake();
                }
            }
        }
    }
}

/// Replies for a thread with a ring, left by ticks that other threads ran.
pub(crate) struct Inbox {
    replies: Mutex<Vec<(u64, Reply)>>,
    filled: AtomicBool,
    waker: Waker,
}

impl Inbox {
    pub(crate) fn new(waker: Waker) -> Arc<Inbox> {
        Arc::new(Inbox { replies: Mutex::default(), filled: false.into(), waker })
    }

    /// Leaves a reply; the caller wakes afterwards, once a tick.
    pub(crate) fn leave(&self, tag: u64, reply: Reply) {
        lock(&self.replies).push((tag, reply));
        self.filled.store(true, Ordering::Release);
    }

    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Takes what was left. No lock, no write if there is nothing.
    pub(crate) fn take(&self, into: &mut Vec<(u64, Reply)>) {
        if self.filled.load(Ordering::Acquire) && self.filled.swap(false, Ordering::AcqRel) {
            append(into, &mut lock(&self.replies));
        }
    }

    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }
}

/// Replies of one blocking call or future, in the order of its operations.
#[derive(Default)]
pub(crate) struct Slot(Mutex<SlotState>);

#[derive(Default)]
struct SlotState {
    replies: Vec<Option<Reply>>,
    missing: usize,
    waker: Option<std::task::Waker>,
}

impl Slot {
    pub(crate) fn new(replies: usize) -> Arc<Slot> {
        let state = SlotState { replies: vec![None; replies], missing: replies, waker: None };
        Arc::new(Slot(Mutex::new(state)))
    }

    /// Leaves a reply; if it was the last one missing, gives back the waker to fire once the tick
    /// is over.
    pub(crate) fn leave(&self, index: u32, reply: Reply) -> Option<std::task::Waker> {
        let mut state = lock(&self.0);
        let place = state.replies.get_mut(index as usize)?;
        if place.replace(reply).is_none() {
            state.missing -= 1;
        }
        if state.missing == 0 { state.waker.take() } else { None }
    }

    pub(crate) fn is_ready(&self) -> bool {
        lock(&self.0).missing == 0
    }

    /// The replies if all are there; else `waker` is fired when they are.
    pub(crate) fn poll(&self, waker: &std::task::Waker) -> Option<Vec<Reply>> {
        let mut state = lock(&self.0);
        if state.missing == 0 {
            return Some(take_replies(&mut state));
        }
        state.waker = Some(waker.clone());
        None
    }

    /// Parks the calling thread until all replies are there.
    pub(crate) fn wait(&self) -> Vec<Reply> {
        parked_until(|waker| self.poll(waker))
    }
}

/// Polls until there is an output. Meanwhile the calling thread is parked, or helps.
fn parked_until<T>(mut poll: impl FnMut(&std::task::Waker) -> Option<T>) -> T {
    thread_local! {
        static UNPARK: std::task::Waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
    }
    UNPARK.with(|waker| {
        loop {
            if let Some(output) = poll(waker) {
                return output;
            }
            if !pump::once() {
                std::thread::park();
            }
        }
    })
}

/// Runs a future to its end in the calling thread, as the blocking calls wait.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    parked_until(|waker| match future.as_mut().poll(&mut Context::from_waker(waker)) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    })
}

fn take_replies(state: &mut SlotState) -> Vec<Reply> {
    let replies = std::mem::take(&mut state.replies).into_iter();
    replies.map(|reply| reply.unwrap_or(Reply::Failed(Error::Unknown("the reply was lost")))).collect()
}

/// Operations under way, for a blocking caller that has other things to do meanwhile. Dropping it
/// suppresses the replies, never a write that has begun.
#[must_use = "nobody else gets the replies"]
pub struct Started {
    pub(crate) slot: Arc<Slot>,
    /// Whose threads see to it.
    pub(crate) lineage: Lineage,
    pub(crate) count: usize,
}

impl Started {
    /// Whether [`wait`](Started::wait) returns at once.
    pub fn is_ready(&self) -> bool {
        self.lineage.is_forked() || self.slot.is_ready()
    }

    /// Parks the calling thread until all replies are there, in the order asked.
    pub fn wait(self) -> Vec<Reply> {
        if self.lineage.is_forked() {
            return vec![Reply::Failed(Error::Forked); self.count];
        }
        self.slot.wait()
    }
}

impl std::fmt::Debug for Started {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Started(ready: {})", self.slot.is_ready())
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// An operation under way, as a future for any runtime. It starts at the first poll; a hit in the
/// cache is answered there, without a hop.
///
/// Dropping it suppresses the reply, never a write that has begun.
#[must_use = "futures do nothing unless polled"]
pub struct Pending<S: Shard + 'static> {
    runtime: Arc<Runtime<S>>,
    state: PendingState,
}

enum PendingState {
    Fresh(usize, Option<Operation>),
    Started(Arc<Slot>),
    Done,
}

impl<S: Shard> Pending<S> {
    pub(crate) fn new(runtime: Arc<Runtime<S>>, shard: usize, operation: Operation) -> Self {
        Pending { runtime, state: PendingState::Fresh(shard, Some(operation)) }
    }
}

impl<S: Shard> Future for Pending<S> {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        let this = &mut *self;
        if this.runtime.is_forked() {
            this.state = PendingState::Done;
            return Poll::Ready(Reply::Failed(Error::Forked));
        }
        if let PendingState::Fresh(shard, operation) = &mut this.state {
            let shard = *shard;
            let Some(operation) = operation.take() else { return Poll::Pending };
            let slot = Slot::new(1);
            this.runtime.begin(shard, operation, Waiter::Slot(Arc::clone(&slot), 0));
            this.state = PendingState::Started(slot);
        }
        let PendingState::Started(slot) = &this.state else {
            return Poll::Ready(Reply::Failed(Error::Unknown("the future was polled after it had ended")));
        };
        match slot.poll(context.waker()) {
            Some(mut replies) => {
                this.state = PendingState::Done;
                Poll::Ready(replies.pop().unwrap_or(Reply::Failed(Error::Closed)))
            }
            None => Poll::Pending,
        }
    }
}

/// Locks, also after a panic elsewhere: what these locks guard is left whole between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use stratakv_device::ring::{RingKind, open_ring};

    use super::*;

    #[test]
    fn those_who_have_left_are_found_by_inbox_and_tag() {
        let ring = open_ring(RingKind::Blocking, 1).unwrap();
        let [one, other] = [0, 1].map(|_| Inbox::new(ring.waker()));
        let left = |inbox: &Arc<Inbox>, tags| (Arc::clone(inbox), tags);
        let departed = Departed::new(vec![
            left(&one, 10..=19),
            left(&one, 40..=80),
            left(&one, 50..=60),
            left(&one, 20..=20),
            left(&other, 0..=5),
        ]);
        let is_gone = |inbox: &Arc<Inbox>, tag| departed.has(&Waiter::Inbox(Arc::clone(inbox), tag));
        let gone: Vec<u64> = (0..100).filter(|tag| is_gone(&one, *tag)).collect();
        assert_eq!(gone, (10..=20).chain(40..=80).collect::<Vec<_>>());
        assert!(is_gone(&other, 5) && !is_gone(&other, 10));
        assert!(!departed.has(&Waiter::Slot(Slot::new(1), 0)));
        assert!(!Departed::new(Vec::new()).has(&Waiter::Inbox(one, 3)));
    }

    #[test]
    fn what_waits_is_polled_again_once_it_is_woken() {
        let mut asked = 0;
        let output = block_on(std::future::poll_fn(|context| {
            asked += 1;
            if asked < 3 {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(asked)
        }));
        assert_eq!(output, 3);
    }
}
