//! Iterators over keys and records, in order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::raise;
use crate::record::{Record, value};

/// Records fetched at once: few at first, so that a short scan reads little.
const CHUNK_MIN: usize = 8;
/// Most records fetched at once.
const CHUNK_MAX: usize = 512;
/// A chunk ends early with so many bytes of values.
const CHUNK_BYTES: usize = 1 << 20;

/// What an iterator gives of each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yield {
    /// The key.
    Keys,
    /// The value.
    Values,
    /// Both.
    Items,
    /// The key, and the record with its version, flags and expiry.
    Records,
}

type Item = Result<(Bytes, stratakv::Record), stratakv::Error>;

/// A running scan. A record that cannot be read raises in its place; the scan goes on after it.
#[pyclass(frozen, generic, module = "stratakv")]
pub struct Scan {
    yields: Yield,
    fetched: Mutex<Fetched<stratakv::Scan>>,
    /// The snapshot that is scanned lives as long as its scans.
    _snapshot: Option<Arc<stratakv::Snapshot>>,
}

/// Items that were fetched together, while the interpreter's lock was released.
pub struct Fetched<I: Iterator> {
    from: I,
    items: VecDeque<I::Item>,
    chunk: usize,
}

impl Scan {
    /// An iterator over a scan, of a snapshot if there is one.
    pub fn new(scan: stratakv::Scan, yields: Yield, snapshot: Option<Arc<stratakv::Snapshot>>) -> Scan {
        Scan { yields, fetched: Fetched::new(scan), _snapshot: snapshot }
    }
}

impl<I: Iterator + Send> Fetched<I>
where
    I::Item: Send,
{
    /// Nothing yet.
    pub fn new(from: I) -> Mutex<Fetched<I>> {
        Mutex::new(Fetched { from, items: VecDeque::new(), chunk: CHUNK_MIN })
    }

    /// The next item. `len_bytes` of an item decide how many are fetched together.
    pub fn next_of(fetched: &Mutex<Self>, py: Python<'_>, len_bytes: fn(&I::Item) -> usize) -> Option<I::Item> {
        // Only who has the interpreter's lock looks here, and whoever waits has released it.
        let at_hand = fetched.try_lock().ok().and_then(|mut fetched| fetched.items.pop_front());
        at_hand.or_else(|| py.detach(|| fetched.lock().unwrap_or_else(PoisonError::into_inner).fetch(len_bytes)))
    }

    fn fetch(&mut self, len_bytes: fn(&I::Item) -> usize) -> Option<I::Item> {
        if self.items.is_empty() {
            let mut bytes = 0;
            while self.items.len() < self.chunk && bytes < CHUNK_BYTES {
                let Some(item) = self.from.next() else { break };
                bytes += len_bytes(&item);
                self.items.push_back(item);
            }
            self.chunk = (self.chunk * 2).min(CHUNK_MAX);
        }
        self.items.pop_front()
    }
}

#[pymethods]
impl Scan {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let len_bytes = |item: &Item| item.as_ref().map_or(0, |(key, record)| key.len() + record.len());
        let Some(item) = Fetched::next_of(&self.fetched, py, len_bytes) else { return Ok(None) };
        let (key, record) = item.map_err(raise)?;
        let key = || PyBytes::new(py, &key);
        match self.yields {
            Yield::Keys => key().into_bound_py_any(py),
            Yield::Values => value(py, &record)?.into_bound_py_any(py),
            Yield::Items => (key(), value(py, &record)?).into_bound_py_any(py),
            Yield::Records => (key(), Record::new(record)).into_bound_py_any(py),
        }
        .map(Some)
    }
}
