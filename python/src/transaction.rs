//! [`Transaction`]: reads and writes that take effect as one, or not at all.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stratakv::{Commit, End, Expect, PutOptions};

use crate::args::{Condition, Input, Ttl, expiry};
use crate::collection::{Collection, missing};
use crate::errors::{conflict, raise, usage};
use crate::list::{List, element};
use crate::record::{Record, value};

/// Reads and writes of any keys, collections and lists that take effect as one, or not at all.
///
/// It locks nothing. The commit raises Conflict, and does nothing, if what was read has been
/// changed by somebody else since; store.transact(function) then begins again. It sees its own
/// writes. As a context manager it is committed at the end of the block, unless the block raises.
#[pyclass(frozen, module = "stratakv")]
pub struct Transaction {
    store: stratakv::Store,
    /// `None` once it has ended.
    running: Mutex<Option<stratakv::Transaction>>,
}

impl Transaction {
    /// A transaction that has begun.
    pub fn new(store: &stratakv::Store, running: stratakv::Transaction) -> Transaction {
        Transaction { store: store.clone(), running: Mutex::new(Some(running)) }
    }

    /// Takes it out: nothing more is done in it here.
    fn take(&self) -> Option<stratakv::Transaction> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Does something in it, without the interpreter's lock.
    fn within<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut stratakv::Transaction) -> Result<T, stratakv::Error> + Send,
    ) -> PyResult<T> {
        let outcome = py.detach(|| {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            running.as_mut().map(call)
        });
        outcome.ok_or_else(ended)?.map_err(raise)
    }

    fn records<'a>(&'a self, collection: Option<&'a Bound<'_, Collection>>) -> &'a stratakv::Collection {
        collection.map_or(&self.store, |collection| &collection.get().records)
    }

    fn read(
        &self,
        py: Python<'_>,
        key: &Input,
        collection: Option<&Bound<'_, Collection>>,
    ) -> PyResult<Option<stratakv::Record>> {
        let records = self.records(collection);
        self.within(py, |running| running.get(records, key))
    }
}

fn ended() -> PyErr {
    usage("the transaction has ended: begin another one with store.transaction()")
}

/// Why a function that was run in a transaction failed.
enum Failure {
    Library(stratakv::Error),
    Raised(PyErr),
}

impl From<stratakv::Error> for Failure {
    fn from(error: stratakv::Error) -> Failure {
        Failure::Library(error)
    }
}

/// Runs a function of the caller's in a transaction and commits it; again if somebody else was
/// faster.
///
/// # Errors
/// What the function raised; Conflict after the last attempt.
pub fn transact(py: Python<'_>, store: &stratakv::Store, body: &Py<PyAny>) -> PyResult<Py<PyAny>> {
    let attempt = |running: &mut stratakv::Transaction| {
        let own = std::mem::replace(running, store.transaction());
        Python::attach(|py| {
            let object = Bound::new(py, Transaction::new(store, own)).map_err(Failure::Raised)?;
            let outcome = body.bind(py).call1((&object,)).map(Bound::unbind).map_err(Failure::Raised);
            match object.get().take() {
                Some(own) => *running = own,
                None if outcome.is_ok() => {
                    let why = "a function that transact runs leaves the commit to it: do not end its transaction";
                    return Err(Failure::Raised(usage(why)));
                }
                None => {}
            }
            outcome
        })
    };
    py.detach(|| store.transact(attempt)).map_err(|failure| match failure {
        Failure::Library(error) => raise(error),
        Failure::Raised(error) => error,
    })
}

#[pymethods]
impl Transaction {
    fn __getitem__<'py>(&self, py: Python<'py>, key: Input) -> PyResult<Bound<'py, PyBytes>> {
        match self.read(py, &key, None)? {
            Some(record) => value(py, &record),
            None => Err(missing(py, &key)),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: Input) -> PyResult<bool> {
        Ok(self.read(py, &key, None)?.is_some())
    }

    fn __setitem__(&self, py: Python<'_>, key: Input, value: Input) -> PyResult<()> {
        self.within(py, |running| running.put(&self.store, &key, &value))
    }

    /// Removes a key. KeyError if there is none, so this reads it.
    fn __delitem__(&self, py: Python<'_>, key: Input) -> PyResult<()> {
        match self.read(py, &key, None)? {
            Some(_) => self.delete(py, key, None),
            None => Err(missing(py, &key)),
        }
    }

    /// The value of a key, with this transaction's own changes, or `default`.
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

    /// The record of a key; None if there is none. One that was written here has version 0.
    #[pyo3(signature = (key, /, *, collection=None))]
    fn record(
        &self,
        py: Python<'_>,
        key: Input,
        collection: Option<&Bound<'_, Collection>>,
    ) -> PyResult<Option<Record>> {
        Ok(self.read(py, &key, collection)?.map(Record::new))
    }

    /// Sets a key. False, and nothing is done, if `expect` does not hold, which this reads.
    #[pyo3(signature = (key, value, /, *, ttl=None, flags=0, expect=None, collection=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn put(
        &self,
        py: Python<'_>,
        key: Input,
        value: Input,
        ttl: Option<Ttl>,
        flags: u32,
        expect: Option<Condition>,
        collection: Option<&Bound<'_, Collection>>,
    ) -> PyResult<bool> {
        let expiry = expiry(ttl.as_ref(), self.store.wall());
        let expect = expect.map_or(Expect::Any, |condition| condition.0);
        let (options, records) =
            (PutOptions::new().flags(flags).expiry(expiry).expect(expect), self.records(collection));
        self.within(py, |running| running.put_with(records, &key, &value, &options))
    }

    /// Removes a key, if there is one.
    #[pyo3(signature = (key, /, *, collection=None))]
    fn delete(&self, py: Python<'_>, key: Input, collection: Option<&Bound<'_, Collection>>) -> PyResult<()> {
        let records = self.records(collection);
        self.within(py, |running| running.delete(records, &key))
    }

    /// Puts an element behind the last one of a list.
    #[pyo3(signature = (list, value, /))]
    fn append(&self, py: Python<'_>, list: &Bound<'_, List>, value: Input) -> PyResult<()> {
        let list = list.get().inner();
        self.within(py, |running| running.push(list, End::Back, &value))
    }

    /// Puts an element before the first one of a list.
    #[pyo3(signature = (list, value, /))]
    fn appendleft(&self, py: Python<'_>, list: &Bound<'_, List>, value: Input) -> PyResult<()> {
        let list = list.get().inner();
        self.within(py, |running| running.push(list, End::Front, &value))
    }

    /// Removes and returns the last element of a list; None if it is empty.
    #[pyo3(signature = (list, /))]
    fn pop<'py>(&self, py: Python<'py>, list: &Bound<'py, List>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let list = list.get().inner();
        Ok(element(py, self.within(py, |running| running.pop(list, End::Back))?))
    }

    /// Removes and returns the first element of a list; None if it is empty.
    #[pyo3(signature = (list, /))]
    fn popleft<'py>(&self, py: Python<'py>, list: &Bound<'py, List>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let list = list.get().inner();
        Ok(element(py, self.within(py, |running| running.pop(list, End::Front))?))
    }

    /// Makes all changes; their version. Conflict, and nothing is done, if what was read has
    /// changed.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        let running = self.take().ok_or_else(ended)?;
        match py.detach(|| running.commit()).map_err(raise)? {
            Commit::Done { version } => Ok(version),
            Commit::Conflict { key } => {
                let at = key.map_or_else(|| "a key".to_owned(), |key| key.to_string());
                Err(conflict(format!(
                    "{at} was changed by somebody else, so nothing of the transaction was done: begin again, or use store.transact"
                )))
            }
        }
    }

    /// Gives it up: nothing was done. May be called again.
    fn rollback(&self) {
        drop(self.take());
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
        let has_ended = self.running.lock().unwrap_or_else(PoisonError::into_inner).is_none();
        if has_ended || !raised.is_none() {
            self.rollback();
            return Ok(());
        }
        self.commit(py).map(drop)
    }
}
