//! [`Snapshot`]: a store as it was at one moment.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::args::{Extent, Input};
use crate::collection::{Collection, missing};
use crate::errors::{run, usage};
use crate::record::{Record, value};
use crate::scan::{Scan, Yield};

/// A store as it was when store.snapshot() was called, with all its collections. Engines hash and
/// matrix have snapshots. What writers replace keeps its space until the snapshot is closed.
#[pyclass(frozen, module = "stratakv")]
pub struct Snapshot {
    snapshot: Mutex<Option<Arc<stratakv::Snapshot>>>,
    default: stratakv::Collection,
}

impl Snapshot {
    /// Of a store with that default collection.
    pub fn new(snapshot: stratakv::Snapshot, default: stratakv::Collection) -> Snapshot {
        Snapshot { snapshot: Mutex::new(Some(Arc::new(snapshot))), default }
    }

    fn held(&self) -> PyResult<Arc<stratakv::Snapshot>> {
        let held = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone();
        held.ok_or_else(|| usage("the snapshot is closed: take another one with store.snapshot()"))
    }

    fn records_of<'a>(&'a self, collection: Option<&'a Bound<'_, Collection>>) -> &'a stratakv::Collection {
        collection.map_or(&self.default, |collection| &collection.get().records)
    }

    fn read(
        &self,
        py: Python<'_>,
        key: &Input,
        of: Option<&Bound<'_, Collection>>,
    ) -> PyResult<Option<stratakv::Record>> {
        let (held, records) = (self.held()?, self.records_of(of));
        run(py, || held.get(records, key))
    }
}

#[pymethods]
impl Snapshot {
    fn __getitem__<'py>(&self, py: Python<'py>, key: Input) -> PyResult<Bound<'py, PyBytes>> {
        match self.read(py, &key, None)? {
            Some(record) => value(py, &record),
            None => Err(missing(py, &key)),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: Input) -> PyResult<bool> {
        Ok(self.read(py, &key, None)?.is_some())
    }

    /// The value that a key had, or `default`.
    #[pyo3(signature = (key, default=None, /, *, collection=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Input,
        default: Option<Bound<'py, PyAny>>,
        collection: Option<&Bound<'py, Collection>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.read(py, &key, collection)? {
            Some(record) => Ok(Some(value(py, &record)?.into_any())),
            None => Ok(default),
        }
    }

    /// The record that a key had; None if there was none.
    #[pyo3(signature = (key, /, *, collection=None))]
    fn record(
        &self,
        py: Python<'_>,
        key: Input,
        collection: Option<&Bound<'_, Collection>>,
    ) -> PyResult<Option<Record>> {
        Ok(self.read(py, &key, collection)?.map(Record::new))
    }

    /// An iterator over (key, value) as they were, in the order of keys.
    #[pyo3(signature = (*, prefix=None, start=None, end=None, reverse=false, collection=None))]
    fn items(
        &self,
        prefix: Option<Input>,
        start: Option<Input>,
        end: Option<Input>,
        reverse: bool,
        collection: Option<&Bound<'_, Collection>>,
    ) -> PyResult<Scan> {
        let extent = Extent { prefix, start, end, ..Extent::default() };
        let (held, options) = (self.held()?, extent.options()?);
        let options = if reverse { options.reverse() } else { options };
        let scan = held.scan(self.records_of(collection), options);
        Ok(Scan::new(scan, Yield::Items, Some(held)))
    }

    fn __iter__(&self) -> PyResult<Scan> {
        let held = self.held()?;
        let scan = held.scan(&self.default, Extent::default().options()?.keys_only());
        Ok(Scan::new(scan, Yield::Keys, Some(held)))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }

    /// Ends it. Iterators over it that run go on to their ends.
    fn close(&self, py: Python<'_>) {
        let held = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(held));
    }
}
