//! [`Store`]: a store as a whole, which is its default collection too.

use std::path::PathBuf;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::args::{Ttl, expiry};
use crate::batch::Batch;
use crate::collection::Collection;
use crate::errors::run;
use crate::list::List;
use crate::options::options;
use crate::snapshot::Snapshot;
use crate::transaction::{self, Transaction};

/// An open store, and a mapping of bytes to bytes: its default collection.
///
/// Store(path, **options) opens the store in a directory, and creates it if there is none.
#[pyclass(frozen, extends = Collection, mapping, module = "stratakv")]
pub struct Store {
    store: stratakv::Store,
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (path, /, **given))]
    fn open(py: Python<'_>, path: PathBuf, given: Option<&Bound<'_, PyDict>>) -> PyResult<PyClassInitializer<Store>> {
        let options = options(given)?;
        let store = run(py, || options.open(&path))?;
        let base = Collection::new(&store, (*store).clone(), None);
        Ok(PyClassInitializer::from(base).add_subclass(Store { store }))
    }

    /// Its directory.
    #[getter]
    fn path(&self) -> PathBuf {
        self.store.path().to_path_buf()
    }

    /// The name of its engine: "slab", "hash", "matrix" or "tier".
    #[getter]
    fn engine(&self) -> String {
        self.store.engine().name().to_owned()
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    /// The collection of that name: a key space of its own, made if there is none. With
    /// create=False it must exist; else KeyError.
    #[pyo3(signature = (name, /, *, create=true))]
    fn collection(&self, py: Python<'_>, name: &str, create: bool) -> PyResult<Collection> {
        let found = run(py, || match create {
            true => self.store.collection(name).map(Some),
            false => self.store.existing_collection(name),
        })?;
        let records = found.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        Ok(Collection::new(&self.store, records, Some(name.to_owned())))
    }

    /// The list of that name, made if there is none. With create=False it must exist; else
    /// KeyError.
    #[pyo3(signature = (name, /, *, create=true))]
    fn list(&self, py: Python<'_>, name: &str, create: bool) -> PyResult<List> {
        let found = run(py, || match create {
            true => self.store.list(name).map(Some),
            false => self.store.existing_list(name),
        })?;
        let list = found.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        Ok(List::new(list, name))
    }

    /// An empty batch: changes that are made as one, at the end of a with block or by its write().
    fn batch(&self) -> Batch {
        Batch::new(&self.store)
    }

    /// A transaction that begins now. It costs nothing, and locks nothing.
    fn transaction(&self) -> Transaction {
        Transaction::new(&self.store, self.store.transaction())
    }

    /// Runs function(transaction) and commits; again if somebody else was faster, up to 100 times,
    /// then Conflict. What the function returned. If it raises, nothing is done.
    #[pyo3(signature = (function, /))]
    fn transact(&self, py: Python<'_>, function: Py<PyAny>) -> PyResult<Py<PyAny>> {
        transaction::transact(py, &self.store, &function)
    }

    /// The store with all its collections as it is now. Unsupported, but for engines hash and
    /// matrix.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        Ok(Snapshot::new(run(py, || self.store.snapshot())?, (*self.store).clone()))
    }

    /// The names of all collections and lists.
    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        run(py, || self.store.collections())
    }

    /// Removes a collection or list with all that is in it; whether there was one.
    #[pyo3(signature = (name, /))]
    fn drop(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        run(py, || self.store.drop_collection(name))
    }

    /// Sets when all of a collection or list expires: after `ttl` seconds, or, with None, never.
    /// Whether there is one.
    #[pyo3(signature = (name, ttl, /))]
    fn expire_collection(&self, py: Python<'_>, name: &str, ttl: Option<Ttl>) -> PyResult<bool> {
        let at = expiry(ttl.as_ref(), self.store.wall());
        run(py, || self.store.expire_collection(name, at))
    }

    /// Finishes what is in flight, makes it durable, and lets the directory go. What comes later
    /// raises Closed. May be called again.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || self.store.close())
    }

    /// Makes every acknowledged write durable at power loss, whatever its level was.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || self.store.sync())
    }

    /// Counters and gauges, by their names.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for statistic in py.detach(|| self.store.stats()) {
            found.set_item(statistic.name, statistic.value)?;
        }
        Ok(found)
    }

    /// Writes a backup of one moment into a new or empty directory, while the store serves; how
    /// many records it holds.
    #[pyo3(signature = (directory, /))]
    fn backup(&self, py: Python<'_>, directory: PathBuf) -> PyResult<u64> {
        Ok(run(py, || self.store.backup(&directory))?.records)
    }
}
