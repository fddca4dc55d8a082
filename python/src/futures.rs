//! [`Port`]: operations in flight for an event loop.
//!
//! An operation is a future of the library, polled on the loop's own thread. Where it has to wait,
//! the thread that completes it notes its number and writes to a descriptor that the loop watches.
//! So a thread that does I/O never waits for the interpreter's lock, and many completions are one
//! wake-up of the loop.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use stratakv::{Error, PutOutcome};

use crate::args::{Condition, Extent, Input, Ttl};
use crate::batch::{Batch, version};
use crate::collection::{Collection, PutArguments};
use crate::errors::raise;
use crate::record::{Record, value};

/// What an operation comes to.
enum Outcome {
    Value(Option<stratakv::Record>),
    Record(Option<stratakv::Record>),
    Put(PutOutcome),
    Batch(PutOutcome),
    Existed(bool),
    Count(u64),
}

type Operation = Pin<Box<dyn Future<Output = Result<Outcome, Error>> + Send>>;

/// Which operations can go on.
struct Woken {
    numbers: Mutex<Vec<u64>>,
    signal: OwnedFd,
}

/// Wakes one operation.
struct OperationWaker {
    number: u64,
    woken: Arc<Woken>,
}

impl Wake for OperationWaker {
    fn wake(self: Arc<Self>) {
        let mut numbers = locked(&self.woken.numbers);
        numbers.push(self.number);
        if numbers.len() == 1 {
            // It can only fail where the counter is full: then the loop is about to look anyway.
            let _ = rustix::io::write(&self.woken.signal, &1_u64.to_ne_bytes());
        }
    }
}

/// Operations in flight for one event loop. Of `AsyncStore`: nobody else needs it.
#[pyclass(frozen, module = "stratakv")]
pub struct Port {
    woken: Arc<Woken>,
    waiting: Mutex<HashMap<u64, Operation>>,
    next: AtomicU64,
}

/// A number to wait for, or what the operation came to.
type Begun = (Option<u64>, Option<Py<PyAny>>);
/// An operation that has ended: its number, what it came to, or what it raised.
type Ended = (u64, Option<Py<PyAny>>, Option<PyErr>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn given(py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
    match outcome {
        Outcome::Value(None) | Outcome::Record(None) | Outcome::Put(PutOutcome::Unmet(_)) => Ok(py.None()),
        Outcome::Value(Some(record)) => value(py, &record)?.into_py_any(py),
        Outcome::Record(Some(record)) => Record::new(record).into_py_any(py),
        Outcome::Put(PutOutcome::Written { version }) => version.into_py_any(py),
        Outcome::Batch(outcome) => version(outcome)?.into_py_any(py),
        Outcome::Existed(existed) => existed.into_py_any(py),
        Outcome::Count(count) => count.into_py_any(py),
    }
}

impl Port {
    fn begin(&self, py: Python<'_>, operation: Operation) -> PyResult<Begun> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        match self.poll(py, number, operation) {
            Poll::Pending => Ok((Some(number), None)),
            Poll::Ready(outcome) => Ok((None, Some(given(py, outcome.map_err(raise)?)?))),
        }
    }

    /// Polls an operation, and keeps it if it has to wait.
    fn poll(&self, py: Python<'_>, number: u64, mut operation: Operation) -> Poll<Result<Outcome, Error>> {
        let waker = Waker::from(Arc::new(OperationWaker { number, woken: Arc::clone(&self.woken) }));
        py.detach(|| {
            let polled = operation.as_mut().poll(&mut Context::from_waker(&waker));
            if polled.is_pending() {
                locked(&self.waiting).insert(number, operation);
            }
            polled
        })
    }
}

#[pymethods]
impl Port {
    #[new]
    fn new() -> PyResult<Port> {
        let signal = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let signal =
            signal.map_err(|error| PyOSError::new_err(format!("no descriptor for the event loop: {error}")))?;
        let woken = Arc::new(Woken { numbers: Mutex::default(), signal });
        Ok(Port { woken, waiting: Mutex::default(), next: AtomicU64::new(1) })
    }

    /// What the loop watches: readable when operations can go on.
    fn fileno(&self) -> i32 {
        self.woken.signal.as_fd().as_raw_fd()
    }

    /// Goes on with the operations that can; those that have ended.
    fn drain(&self, py: Python<'_>) -> PyResult<Vec<Ended>> {
        // Before the numbers are taken, so that none is missed: an empty descriptor is no failure.
        let _ = rustix::io::read(&self.woken.signal, &mut [0; 8]);
        let numbers = std::mem::take(&mut *locked(&self.woken.numbers));
        let mut ended = Vec::with_capacity(numbers.len());
        for number in numbers {
            // It may have ended, or have been given up, since it was woken.
            let Some(operation) = locked(&self.waiting).remove(&number) else { continue };
            if let Poll::Ready(outcome) = self.poll(py, number, operation) {
                match outcome.map_err(raise).and_then(|outcome| given(py, outcome)) {
                    Ok(value) => ended.push((number, Some(value), None)),
                    Err(error) => ended.push((number, None, Some(error))),
                }
            }
        }
        Ok(ended)
    }

    /// Gives up waiting for an operation. A write that has begun is still made.
    fn forget(&self, py: Python<'_>, number: u64) {
        let operation = locked(&self.waiting).remove(&number);
        py.detach(|| drop(operation));
    }

    /// Number of operations that wait.
    fn __len__(&self) -> usize {
        locked(&self.waiting).len()
    }

    /// Begins to read a value; with_record: the record.
    fn get(&self, py: Python<'_>, of: &Bound<'_, Collection>, key: Input, with_record: bool) -> PyResult<Begun> {
        let records = of.get().records.clone();
        let found = move |record| if with_record { Outcome::Record(record) } else { Outcome::Value(record) };
        self.begin(py, Box::pin(async move { records.get_async(&key).await.map(found) }))
    }

    /// Begins to write a record.
    #[expect(clippy::too_many_arguments, reason = "those of put")]
    fn put(
        &self,
        py: Python<'_>,
        of: &Bound<'_, Collection>,
        key: Input,
        value: Input,
        ttl: Option<Ttl>,
        flags: u32,
        expect: Option<Condition>,
        durability: Option<&str>,
    ) -> PyResult<Begun> {
        let options = PutArguments { ttl, flags, expect, durability }.options(&of.get().store)?;
        let records = of.get().records.clone();
        let operation = async move { records.put_with_async(&key, &value, &options).await.map(Outcome::Put) };
        self.begin(py, Box::pin(operation))
    }

    /// Begins to remove a record.
    fn delete(&self, py: Python<'_>, of: &Bound<'_, Collection>, key: Input) -> PyResult<Begun> {
        let records = of.get().records.clone();
        self.begin(py, Box::pin(async move { records.delete_async(&key).await.map(Outcome::Existed) }))
    }

    /// Begins to remove a range of keys, or those with a prefix.
    #[pyo3(signature = (of, *, prefix=None, start=None, end=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        of: &Bound<'_, Collection>,
        prefix: Option<Input>,
        start: Option<Input>,
        end: Option<Input>,
    ) -> PyResult<Begun> {
        let records = of.get().records.clone();
        let extent = Extent { prefix, start, end, ..Extent::default() };
        extent.bounds()?;
        let operation = async move {
            let count = match (&extent.prefix, extent.bounds()) {
                (None, Ok(Some((from, to)))) => records.delete_range_async::<&[u8]>((from, to)).await,
                (prefix, _) => records.delete_prefix_async(prefix.as_deref().unwrap_or_default()).await,
            };
            count.map(Outcome::Count)
        };
        self.begin(py, Box::pin(operation))
    }

    /// Begins to write a batch.
    fn write(&self, py: Python<'_>, of: &Bound<'_, Collection>, batch: &Bound<'_, Batch>) -> PyResult<Begun> {
        let (store, batch) = (of.get().store.clone(), batch.get().take()?);
        self.begin(py, Box::pin(async move { store.write_async(batch).await.map(Outcome::Batch) }))
    }
}
