//! The library through futures, on the smallest executor that can hold many.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use bytes::Bytes;
use stratakv::raw::{Operation, Reply};
use stratakv::{CollectionId, Level, Store};

use super::{BenchError, OperationOutcome, Request, Target};
use crate::target::blocking::{get, outcome, put};

pub(super) struct FuturesTarget {
    store: Store,
    collection: CollectionId,
    level: Level,
    tasks: Vec<Task>,
}

struct Task {
    tag: u64,
    future: Pin<Box<dyn Future<Output = Reply>>>,
    flag: Arc<Flag>,
    waker: Waker,
}

/// Set when a task wants to be polled again.
struct Flag {
    ready: AtomicBool,
    thread: Thread,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.ready.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl FuturesTarget {
    pub(super) fn new(store: Store, collection: CollectionId, level: Level) -> FuturesTarget {
        FuturesTarget { store, collection, level, tasks: Vec::new() }
    }
}

impl Target for FuturesTarget {
    fn submit(&mut self, tag: u64, request: Request<'_>) -> Result<(), BenchError> {
        let operation: Operation = match request {
            Request::Read(key) => get(self.collection, key)?,
            Request::Write(key, value) => put(self.collection, key, Bytes::copy_from_slice(value), self.level)?,
            Request::Scan(..) => return Err(BenchError::NoScans("the async target")),
        };
        let store = self.store.clone();
        let future = Box::pin(async move { store.execute_async(operation).await });
        let flag = Arc::new(Flag { ready: true.into(), thread: thread::current() });
        let waker = Waker::from(Arc::clone(&flag));
        self.tasks.push(Task { tag, future, flag, waker });
        Ok(())
    }

    fn poll(&mut self, min: usize, done: &mut Vec<(u64, OperationOutcome)>) -> Result<(), BenchError> {
        let wanted = done.len() + min.min(self.tasks.len());
        loop {
            let mut index = 0;
            while index < self.tasks.len() {
                let task = &mut self.tasks[index];
                if !task.flag.ready.swap(false, Ordering::AcqRel) {
                    index += 1;
                    continue;
                }
                match task.future.as_mut().poll(&mut Context::from_waker(&task.waker)) {
                    Poll::Pending => index += 1,
                    Poll::Ready(Reply::Failed(error)) => return Err(stratakv::Error::from(error).into()),
                    Poll::Ready(reply) => {
                        done.push((task.tag, outcome(&reply)?));
                        self.tasks.swap_remove(index);
                    }
                }
            }
            if done.len() >= wanted {
                return Ok(());
            }
            thread::park();
        }
    }
}
