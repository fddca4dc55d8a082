//! How operations are asked for: this thread waits for the answers, or an executor does. What asks
//! more than once is written once, over [`Asking`].

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use stratakv_engine::{Operation, Reply};
use stratakv_runtime::Pending;

use crate::engine::AnyShard;
use crate::routing::Inner;

/// One of two ways to ask.
pub(crate) trait Asking {
    /// Asks whomever it concerns.
    async fn one(inner: &Inner, operation: Operation) -> Reply;

    /// Asks the shards that are named; their I/O overlaps. Answers come in the order of operations.
    async fn several(inner: &Inner, operations: Vec<(usize, Operation)>) -> Vec<Reply>;
}

/// This thread waits: futures of it are ready at once, see [`now`].
pub(crate) struct Blocking;

/// An executor waits.
pub(crate) struct Awaiting;

impl Asking for Blocking {
    async fn one(inner: &Inner, operation: Operation) -> Reply {
        inner.execute(operation)
    }

    async fn several(inner: &Inner, operations: Vec<(usize, Operation)>) -> Vec<Reply> {
        inner.runtime.execute_many(operations)
    }
}

impl Asking for Awaiting {
    async fn one(inner: &Inner, operation: Operation) -> Reply {
        inner.execute_async(operation).await
    }

    async fn several(inner: &Inner, operations: Vec<(usize, Operation)>) -> Vec<Reply> {
        let begin = |(shard, operation)| (inner.runtime.execute_async(shard, operation), None);
        let mut all: Vec<(Pending<AnyShard>, Option<Reply>)> = operations.into_iter().map(begin).collect();
        std::future::poll_fn(|context| {
            for (pending, reply) in all.iter_mut().filter(|(_, reply)| reply.is_none()) {
                if let Poll::Ready(ready) = Pin::new(pending).poll(context) {
                    *reply = Some(ready);
                }
            }
            if all.iter().all(|(_, reply)| reply.is_some()) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        all.into_iter().filter_map(|(_, reply)| reply).collect()
    }
}

/// The output of a future over [`Blocking`]. Should it wait all the same, so does this thread.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return output;
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::now;

    #[test]
    fn what_waits_once_is_waited_for() {
        let mut asked = 0;
        let output = now(std::future::poll_fn(|context| {
            asked += 1;
            if asked < 3 {
                context.waker().wake_by_ref();
                return std::task::Poll::Pending;
            }
            std::task::Poll::Ready(asked)
        }));
        assert_eq!(output, 3);
    }
}
