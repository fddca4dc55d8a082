//! [`Collection`]: a key space as a mutable mapping of bytes to bytes.

use bytes::Bytes;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMapping, PyTuple};
use stratakv::{Expect, Expiry, Next, PutOptions, PutOutcome, ScanOptions, Ttl};

use crate::args::{Condition, Extent, Input, Ttl as GivenTtl, expiry, level};
use crate::errors::{run, usage};
use crate::record::{Record, value};
use crate::scan::{Scan, Yield};

/// A key space of its own: a mapping of bytes to bytes, in the order of the keys.
///
/// Any number of threads may use it at once. Calls that wait release the interpreter's lock.
#[pyclass(frozen, subclass, mapping, module = "stratakv")]
pub struct Collection {
    pub store: stratakv::Store,
    pub records: stratakv::Collection,
    /// `None`: the default collection.
    pub name: Option<String>,
}

/// What [`Collection::put`] is told beside key and value.
pub struct PutArguments<'a> {
    /// When it expires.
    pub ttl: Option<GivenTtl>,
    /// Bits kept with the value.
    pub flags: u32,
    /// Under which condition.
    pub expect: Option<Condition>,
    /// When it is acknowledged.
    pub durability: Option<&'a str>,
}

impl PutArguments<'_> {
    /// As the library has it.
    ///
    /// # Errors
    /// An unknown durability.
    pub fn options(&self, store: &stratakv::Store) -> PyResult<PutOptions> {
        let expect = self.expect.map_or(Expect::Any, |condition| condition.0);
        let (flags, level) = (self.flags, level(self.durability)?);
        Ok(PutOptions { flags, expiry: expiry(self.ttl.as_ref(), store.wall()), expect, level, ttl: None })
    }
}

impl Collection {
    /// Of a store; the default one if there is no name.
    pub fn new(store: &stratakv::Store, records: stratakv::Collection, name: Option<String>) -> Collection {
        Collection { store: store.clone(), records, name }
    }

    fn put_one(&self, py: Python<'_>, key: &[u8], value: &[u8]) -> PyResult<u64> {
        run(py, || self.records.put(key, value))
    }

    fn get_one(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<stratakv::Record>> {
        run(py, || self.records.get(key))
    }

    fn scan_of(&self, extent: &Extent, reverse: bool, yields: Yield) -> PyResult<Scan> {
        let mut options = extent.options()?;
        if reverse {
            options = options.reverse();
        }
        if yields == Yield::Keys {
            options = options.keys_only();
        }
        Ok(Scan::new(self.records.scan(options), yields, None))
    }

    /// Takes a record away; it, if there was one.
    fn take(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<stratakv::Record>> {
        Ok(run(py, || self.records.fetch_update(key, |_| Next::Delete))?.before)
    }

    fn take_end(&self, py: Python<'_>, last: bool) -> PyResult<Option<(Bytes, stratakv::Record)>> {
        let all = || if last { ScanOptions::all().reverse() } else { ScanOptions::all() };
        loop {
            let first = run(py, || self.records.scan(all().keys_only()).next().transpose())?;
            let Some((key, _)) = first else { return Ok(None) };
            // Somebody else may have taken it meanwhile.
            if let Some(record) = self.take(py, &key)? {
                return Ok(Some((key, record)));
            }
        }
    }
}

/// `KeyError` with the key.
pub fn missing(py: Python<'_>, key: &[u8]) -> PyErr {
    PyKeyError::new_err(PyBytes::new(py, key).unbind())
}

#[pymethods]
impl Collection {
    /// Its name; None for the default collection of a store.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Input) -> PyResult<Bound<'py, PyBytes>> {
        match self.get_one(py, &key)? {
            Some(record) => value(py, &record),
            None => Err(missing(py, &key)),
        }
    }

    fn __setitem__(&self, py: Python<'_>, key: Input, value: Input) -> PyResult<()> {
        self.put_one(py, &key, &value).map(drop)
    }

    fn __delitem__(&self, py: Python<'_>, key: Input) -> PyResult<()> {
        if run(py, || self.records.delete(&key))? { Ok(()) } else { Err(missing(py, &key)) }
    }

    fn __contains__(&self, py: Python<'_>, key: Input) -> PyResult<bool> {
        Ok(run(py, || self.records.ttl(&key))? != Ttl::Absent)
    }

    /// How many records there are. Looks at each key in the index; reads no value.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let count = run(py, || self.records.len())?;
        usize::try_from(count).map_err(|_| usage("more records than this machine can count"))
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(!run(py, || self.records.is_empty())?)
    }

    fn __iter__(&self) -> PyResult<Scan> {
        self.scan_of(&Extent::default(), false, Yield::Keys)
    }

    fn __reversed__(&self) -> PyResult<Scan> {
        self.scan_of(&Extent::default(), true, Yield::Keys)
    }

    /// The value of a key, or `default`.
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Input,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.get_one(py, &key)? {
            Some(record) => Ok(Some(value(py, &record)?.into_any())),
            None => Ok(default),
        }
    }

    /// The record of a key, with version, flags and expiry; None if there is none.
    /// memoryview(record) reads the value without a copy.
    #[pyo3(signature = (key, /))]
    fn record(&self, py: Python<'_>, key: Input) -> PyResult<Option<Record>> {
        Ok(self.get_one(py, &key)?.map(Record::new))
    }

    /// The values of several keys, None where there is none. Their reads overlap.
    #[pyo3(signature = (keys, /))]
    fn get_many<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let keys = keys.try_iter()?.map(|key| key?.extract::<Input>()).collect::<PyResult<Vec<_>>>()?;
        let records = run(py, || self.records.multi_get(&keys))?;
        records.iter().map(|record| record.as_ref().map(|record| value(py, record)).transpose()).collect()
    }

    /// Writes a record; returns its version once it is durable. With `expect`, returns None and
    /// changes nothing if the condition does not hold: "absent", "present", or the version that the
    /// record has.
    #[pyo3(signature = (key, value, /, *, ttl=None, flags=0, expect=None, durability=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn put(
        &self,
        py: Python<'_>,
        key: Input,
        value: Input,
        ttl: Option<GivenTtl>,
        flags: u32,
        expect: Option<Condition>,
        durability: Option<&str>,
    ) -> PyResult<Option<u64>> {
        let options = PutArguments { ttl, flags, expect, durability }.options(&self.store)?;
        Ok(match run(py, || self.records.put_with(&key, &value, &options))? {
            PutOutcome::Written { version } => Some(version),
            PutOutcome::Unmet(_) => None,
        })
    }

    /// Removes a record; whether there was one.
    #[pyo3(signature = (key, /))]
    fn delete(&self, py: Python<'_>, key: Input) -> PyResult<bool> {
        run(py, || self.records.delete(&key))
    }

    /// The value of a key; if there is none, `default`, which is written then. One step.
    #[pyo3(signature = (key, default, /))]
    fn setdefault<'py>(&self, py: Python<'py>, key: Input, default: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let new = default.extract::<Input>()?;
        let next = |before: Option<&stratakv::Record>| match before {
            Some(_) => Next::Keep,
            None => Next::value(Bytes::copy_from_slice(&new)),
        };
        match run(py, || self.records.fetch_update(&key, next))?.before {
            Some(record) => Ok(value(py, &record)?.into_any()),
            None => Ok(PyBytes::new(py, &new).into_any()),
        }
    }

    /// Removes a record and returns its value, in one step; `default` if there is none, and without
    /// that a KeyError.
    #[pyo3(signature = (key, /, *default))]
    fn pop<'py>(&self, py: Python<'py>, key: Input, default: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        if default.len() > 1 {
            return Err(pyo3::exceptions::PyTypeError::new_err("pop takes a key and at most one default"));
        }
        match self.take(py, &key)? {
            Some(record) => Ok(value(py, &record)?.into_any()),
            None => default.get_item(0).map_err(|_| missing(py, &key)),
        }
    }

    /// Removes and returns the last (key, value) in the order of keys; the first with last=False.
    #[pyo3(signature = (*, last=true))]
    fn popitem<'py>(&self, py: Python<'py>, last: bool) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        match self.take_end(py, last)? {
            Some((key, record)) => Ok((PyBytes::new(py, &key), value(py, &record)?)),
            None => Err(PyKeyError::new_err("there is no record")),
        }
    }

    /// Writes all pairs of a mapping or an iterable as one: all or none, crashes included. At most
    /// 64 MiB of keys and values.
    #[pyo3(signature = (other, /))]
    fn update(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        let pairs = match other.cast::<PyMapping>() {
            Ok(mapping) => mapping.items()?.into_any(),
            Err(_) => other.clone(),
        };
        let mut batch = stratakv::WriteBatch::new();
        for pair in pairs.try_iter()? {
            let (key, value) = pair?.extract::<(Input, Input)>()?;
            batch.put_in(&self.records, &key, &value);
        }
        run(py, || self.store.write(batch)).map(drop)
    }

    /// Removes every record of this collection. Not one step.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.delete_range(py, None, None).map(drop)
    }

    /// Removes the keys from `start` up to, not including, `end`; how many. Not one step.
    #[pyo3(signature = (start=None, end=None))]
    fn delete_range(&self, py: Python<'_>, start: Option<Input>, end: Option<Input>) -> PyResult<u64> {
        let extent = Extent { start, end, ..Extent::default() };
        let Some((from, to)) = extent.bounds()? else { return Ok(0) };
        run(py, || self.records.delete_range::<&[u8]>((from, to)))
    }

    /// Removes the keys that begin with `prefix`; how many. Not one step.
    #[pyo3(signature = (prefix, /))]
    fn delete_prefix(&self, py: Python<'_>, prefix: Input) -> PyResult<u64> {
        run(py, || self.records.delete_prefix(&prefix))
    }

    /// An iterator over keys, in order. Reads no value.
    #[pyo3(signature = (*, prefix=None, start=None, end=None, include_start=true, include_end=false, reverse=false))]
    fn keys(
        &self,
        prefix: Option<Input>,
        start: Option<Input>,
        end: Option<Input>,
        include_start: bool,
        include_end: bool,
        reverse: bool,
    ) -> PyResult<Scan> {
        let extent = Extent { prefix, start, end, without_start: !include_start, with_end: include_end };
        self.scan_of(&extent, reverse, Yield::Keys)
    }

    /// An iterator over values, in the order of their keys.
    #[pyo3(signature = (*, prefix=None, start=None, end=None, include_start=true, include_end=false, reverse=false))]
    fn values(
        &self,
        prefix: Option<Input>,
        start: Option<Input>,
        end: Option<Input>,
        include_start: bool,
        include_end: bool,
        reverse: bool,
    ) -> PyResult<Scan> {
        let extent = Extent { prefix, start, end, without_start: !include_start, with_end: include_end };
        self.scan_of(&extent, reverse, Yield::Values)
    }

    /// An iterator over (key, value), in the order of keys.
    #[pyo3(signature = (*, prefix=None, start=None, end=None, include_start=true, include_end=false, reverse=false))]
    fn items(
        &self,
        prefix: Option<Input>,
        start: Option<Input>,
        end: Option<Input>,
        include_start: bool,
        include_end: bool,
        reverse: bool,
    ) -> PyResult<Scan> {
        let extent = Extent { prefix, start, end, without_start: !include_start, with_end: include_end };
        self.scan_of(&extent, reverse, Yield::Items)
    }

    /// An iterator over (key, record), in the order of keys.
    #[pyo3(signature = (*, prefix=None, start=None, end=None, include_start=true, include_end=false, reverse=false))]
    fn records(
        &self,
        prefix: Option<Input>,
        start: Option<Input>,
        end: Option<Input>,
        include_start: bool,
        include_end: bool,
        reverse: bool,
    ) -> PyResult<Scan> {
        let extent = Extent { prefix, start, end, without_start: !include_start, with_end: include_end };
        self.scan_of(&extent, reverse, Yield::Records)
    }

    /// Adds to a counter of decimal digits, in one step; the sum. One that does not exist counts
    /// from 0. A negative number subtracts, stopping at 0.
    #[pyo3(signature = (key, by=1, /))]
    fn increment(&self, py: Python<'_>, key: Input, by: i128) -> PyResult<u64> {
        let amount = u64::try_from(by.unsigned_abs()).map_err(|_| usage("a counter has 64 bits: add less"))?;
        run(py, || match by < 0 {
            true => self.records.decrement(&key, amount),
            false => self.records.increment(&key, amount),
        })
    }

    /// Subtracts from a counter, stopping at 0; what is left.
    #[pyo3(signature = (key, by=1, /))]
    fn decrement(&self, py: Python<'_>, key: Input, by: u64) -> PyResult<u64> {
        run(py, || self.records.decrement(&key, by))
    }

    /// Adds bytes behind a value, in one step; False, and nothing is done, if there is no record.
    #[pyo3(signature = (key, value, /))]
    fn append(&self, py: Python<'_>, key: Input, value: Input) -> PyResult<bool> {
        Ok(run(py, || self.records.append(&key, &value))?.is_some())
    }

    /// Adds bytes before a value, in one step; False, and nothing is done, if there is no record.
    #[pyo3(signature = (key, value, /))]
    fn prepend(&self, py: Python<'_>, key: Input, value: Input) -> PyResult<bool> {
        Ok(run(py, || self.records.prepend(&key, &value))?.is_some())
    }

    /// Changes a value in one step: `change` gets the value, or None, and returns the new one, or
    /// None to remove the record. It is called again if somebody else was faster. Flags and expiry
    /// stay. Returns what `change` returned.
    #[pyo3(signature = (key, change, /))]
    fn fetch_update(&self, py: Python<'_>, key: Input, change: Py<PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let mut outcome = Ok(None);
        let next = |before: Option<&stratakv::Record>| {
            Python::attach(|py| {
                let made = asked(py, &change, before);
                let next = made.as_ref().map_or(Next::Keep, |(next, _)| next.clone());
                outcome = made.map(|(_, new)| new);
                next
            })
        };
        run(py, || self.records.fetch_update(&key, next).map(drop))?;
        outcome
    }

    /// Sets when a record expires: after `ttl` seconds, or, with None, never. Whether there is one.
    #[pyo3(signature = (key, ttl, /))]
    fn expire(&self, py: Python<'_>, key: Input, ttl: Option<GivenTtl>) -> PyResult<bool> {
        let at = expiry(ttl.as_ref(), self.store.wall());
        run(py, || self.records.expire(&key, at))
    }

    /// How many seconds a record lives on; None if it does not expire. KeyError if there is none.
    #[pyo3(signature = (key, /))]
    fn ttl(&self, py: Python<'_>, key: Input) -> PyResult<Option<f64>> {
        match run(py, || self.records.ttl(&key))? {
            Ttl::Absent => Err(missing(py, &key)),
            Ttl::Unlimited => Ok(None),
            Ttl::Left(left) => Ok(Some(left.as_secs_f64())),
        }
    }

    /// Loads pairs that come in the order of their keys, each key once: any number of them, fastest
    /// with engine matrix. Not one step. How many.
    #[pyo3(signature = (pairs, /))]
    fn load(&self, py: Python<'_>, pairs: &Bound<'_, PyAny>) -> PyResult<u64> {
        let mut loader = self.records.loader();
        for pair in pairs.try_iter()? {
            let (key, value) = pair?.extract::<(Input, Input)>()?;
            run(py, || loader.add(&key, &value))?;
        }
        run(py, || loader.finish())
    }

    fn __repr__(&self) -> String {
        let path = self.store.path().display();
        match &self.name {
            Some(name) => format!("<stratakv.Collection {name:?} of {path}>"),
            None => format!("<stratakv.Store {path}>"),
        }
    }
}

/// What a function of the caller's makes of a record.
fn asked(py: Python<'_>, change: &Py<PyAny>, before: Option<&stratakv::Record>) -> PyResult<(Next, Option<Py<PyAny>>)> {
    let old = before.map(|record| value(py, record)).transpose()?;
    let new = change.bind(py).call1((old,))?;
    if new.is_none() {
        return Ok((Next::Delete, None));
    }
    let value = Bytes::copy_from_slice(&new.extract::<Input>()?);
    let (flags, expiry) = before.map_or((0, Expiry::NEVER), |record| (record.flags, record.expiry));
    Ok((Next::Put { value, flags, expiry }, Some(new.unbind())))
}
