//! How operations are asked for: this thread waits for the answers, or an executor does. What asks
//! more than once is written once, over [`Asking`].

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

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

/// This thread waits: futures of it are ready when they are first polled.
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
