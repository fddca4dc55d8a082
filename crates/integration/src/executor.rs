//! The smallest executor: polls in the calling thread, sleeps until woken.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs all of them at once; their outputs, in their order.
pub fn block_on_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut pending: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = pending.iter().map(|_| None).collect();
    loop {
        for (future, output) in pending.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(&mut context)
            {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) {
            return outputs.into_iter().flatten().collect();
        }
        thread::park();
    }
}
