//! [`Batch`]: changes that are made as one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use stratakv::{End, Expect, PutOptions, PutOutcome, WriteBatch};

use crate::args::{Condition, Input, Ttl, expiry};
use crate::collection::Collection;
use crate::errors::{conflict, run, usage};
use crate::list::List;

/// Changes that are made as one: all or none, crashes included. At most 64 MiB of keys and values.
///
/// As a context manager it is written at the end of the block, unless the block raises.
#[pyclass(frozen, module = "stratakv")]
pub struct Batch {
    store: stratakv::Store,
    /// `None` once it is written or given up.
    batch: Mutex<Option<WriteBatch>>,
    /// Whether something of it goes to a list.
    has_pushes: AtomicBool,
}

impl Batch {
    /// An empty one.
    pub fn new(store: &stratakv::Store) -> Batch {
        Batch { store: store.clone(), batch: Mutex::new(Some(WriteBatch::new())), has_pushes: AtomicBool::new(false) }
    }

    fn add(&self, change: impl FnOnce(&mut WriteBatch)) -> PyResult<()> {
        let mut batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
        batch.as_mut().map(change).ok_or_else(ended)
    }

    /// Takes the changes out: nothing more is added.
    pub fn take(&self) -> PyResult<WriteBatch> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(ended)
    }

    fn push(&self, list: &Bound<'_, List>, end: End, value: &[u8]) -> PyResult<()> {
        self.has_pushes.store(true, Ordering::Relaxed);
        self.add(|batch| _ = batch.push(list.get().inner(), end, value))
    }

    fn records<'a>(&'a self, collection: Option<&'a Bound<'_, Collection>>) -> &'a stratakv::Collection {
        collection.map_or(&self.store, |collection| &collection.get().records)
    }
}

fn ended() -> PyErr {
    usage("the batch was written or given up: begin another one with store.batch()")
}

/// What came of a batch.
///
/// # Errors
/// A condition did not hold.
pub fn version(outcome: PutOutcome) -> PyResult<u64> {
    match outcome {
        PutOutcome::Written { version } => Ok(version),
        PutOutcome::Unmet(_) => Err(conflict(
            "a condition of the batch does not hold, so nothing of it was done: read again, and write another batch",
        )),
    }
}

#[pymethods]
impl Batch {
    /// Sets a key of the default collection, or of another one. If `expect` does not hold when the
    /// batch is written, nothing of it is done.
    #[pyo3(signature = (key, value, /, *, ttl=None, flags=0, expect=None, collection=None))]
    fn put(
        &self,
        key: Input,
        value: Input,
        ttl: Option<Ttl>,
        flags: u32,
        expect: Option<Condition>,
        collection: Option<&Bound<'_, Collection>>,
    ) -> PyResult<()> {
        let expiry = expiry(ttl.as_ref(), self.store.wall());
        let expect = expect.map_or(Expect::Any, |condition| condition.0);
        let options = PutOptions::new().flags(flags).expiry(expiry).expect(expect);
        self.add(|batch| _ = batch.put_with(self.records(collection), &key, &value, &options))
    }

    /// Removes a key, if there is one.
    #[pyo3(signature = (key, /, *, expect=None, collection=None))]
    fn delete(
        &self,
        key: Input,
        expect: Option<Condition>,
        collection: Option<&Bound<'_, Collection>>,
    ) -> PyResult<()> {
        let expect = expect.map_or(Expect::Any, |condition| condition.0);
        self.add(|batch| _ = batch.delete_if(self.records(collection), &key, expect))
    }

    fn __setitem__(&self, key: Input, value: Input) -> PyResult<()> {
        self.add(|batch| _ = batch.put(&key, &value))
    }

    fn __delitem__(&self, key: Input) -> PyResult<()> {
        self.add(|batch| _ = batch.delete(&key))
    }

    /// Puts an element behind the last one of a list.
    #[pyo3(signature = (list, value, /))]
    fn append(&self, list: &Bound<'_, List>, value: Input) -> PyResult<()> {
        self.push(list, End::Back, &value)
    }

    /// Puts an element before the first one of a list.
    #[pyo3(signature = (list, value, /))]
    fn appendleft(&self, list: &Bound<'_, List>, value: Input) -> PyResult<()> {
        self.push(list, End::Front, &value)
    }

    /// Whether it puts something into a list.
    #[getter]
    fn has_pushes(&self) -> bool {
        self.has_pushes.load(Ordering::Relaxed)
    }

    fn __len__(&self) -> usize {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, WriteBatch::len)
    }

    /// Makes all changes; their version. Conflict, and nothing is done, if a condition does not
    /// hold.
    fn write(&self, py: Python<'_>) -> PyResult<u64> {
        let batch = self.take()?;
        version(run(py, || self.store.write(batch))?)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        raised: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        match self.take() {
            // It was written in the block.
            Err(_) => Ok(()),
            Ok(_) if !raised.is_none() => Ok(()),
            Ok(batch) => version(run(py, || self.store.write(batch))?).map(drop),
        }
    }
}
