//! Arguments: bytes-like objects, times, conditions, bounds of a scan.

use std::ops::{Bound, Deref};
use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyInt, PyMemoryView, PyString};
use stratakv::{Expect, Expiry, Level, ScanOptions, Wall};

use crate::errors::usage;

/// A key or a value: any object with a buffer. `bytes` are used where they lie; of others the
/// bytes are copied, since somebody may change them while the interpreter's lock is released.
pub struct Input(PyBackedBytes);

impl Deref for Input {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Input {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<'py> FromPyObject<'_, 'py> for Input {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Input> {
        if let Ok(bytes) = given.cast::<PyBytes>() {
            return Ok(Input(bytes.to_owned().into()));
        }
        if given.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("keys and values are bytes, not str: encode it, as in text.encode()"));
        }
        let Ok(view) = PyMemoryView::from(&given.to_owned()) else {
            let name = given.get_type().name().map_or_else(|_| "this".to_owned(), |name| name.to_string());
            return Err(PyTypeError::new_err(format!(
                "keys and values are bytes, bytearray, memoryview or another object with a buffer, not {name}"
            )));
        };
        Ok(Input(view.call_method0("tobytes")?.cast_into::<PyBytes>()?.into()))
    }
}

/// A time to live: seconds as a number, or a `datetime.timedelta`.
pub struct Ttl(Duration);

impl<'py> FromPyObject<'_, 'py> for Ttl {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Ttl> {
        if let Ok(seconds) = given.extract::<f64>() {
            let bad = || usage(format!("a ttl of {seconds} seconds: give a number above 0, or None for no expiry"));
            return match Duration::try_from_secs_f64(seconds) {
                // Longer than the store can keep; it takes the last moment that it can.
                Err(_) if seconds > 0.0 && seconds.is_finite() => Ok(Ttl(Duration::from_secs(u64::MAX / 1000))),
                Ok(ttl) if !ttl.is_zero() => Ok(Ttl(ttl)),
                _ => Err(bad()),
            };
        }
        match given.extract::<Duration>() {
            Ok(ttl) if !ttl.is_zero() => Ok(Ttl(ttl)),
            Ok(_) => Err(usage("a ttl of 0: give a time above 0, or None for no expiry")),
            Err(_) => Err(PyTypeError::new_err("a ttl is a number of seconds above 0, or a datetime.timedelta")),
        }
    }
}

/// When a record with that time to live expires. Rounded up to a millisecond.
pub fn expiry(ttl: Option<&Ttl>, now: Wall) -> Expiry {
    let millis = |ttl: &Ttl| u64::try_from(ttl.0.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    ttl.map_or(Expiry::NEVER, |ttl| Expiry::after(now, millis(ttl)))
}

/// The condition of a write: `None`, "absent", "present", or a version.
#[derive(Clone, Copy)]
pub struct Condition(pub Expect);

impl<'py> FromPyObject<'_, 'py> for Condition {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Condition> {
        if given.is_none() {
            return Ok(Condition(Expect::Any));
        }
        if given.is_instance_of::<PyInt>() {
            return Ok(Condition(Expect::Version(given.extract()?)));
        }
        match given.extract::<String>().as_deref() {
            Ok("absent") => Ok(Condition(Expect::Absent)),
            Ok("present") => Ok(Condition(Expect::Present)),
            _ => Err(usage("expect is \"absent\", \"present\", the version that the record has, or None")),
        }
    }
}

/// A durability level by its name.
pub fn level(name: Option<&str>) -> PyResult<Option<Level>> {
    name.map(|name| name.parse().map_err(|why: String| usage(format!("durability: {why}")))).transpose()
}

/// The lower and the upper bound of keys.
pub type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Which keys a scan or a deletion covers.
#[derive(Default)]
pub struct Extent {
    /// Keys that begin with it.
    pub prefix: Option<Input>,
    /// The first key.
    pub start: Option<Input>,
    /// The key after the last one.
    pub end: Option<Input>,
    /// `start` itself is left out.
    pub without_start: bool,
    /// `end` itself belongs to it.
    pub with_end: bool,
}

impl Extent {
    /// Its bounds; `None` if it is given by a prefix.
    ///
    /// # Errors
    /// A prefix and bounds at once.
    pub fn bounds(&self) -> PyResult<Option<Bounds<'_>>> {
        let from = match &self.start {
            None => Bound::Unbounded,
            Some(key) if self.without_start => Bound::Excluded(&key[..]),
            Some(key) => Bound::Included(&key[..]),
        };
        let to = match &self.end {
            None => Bound::Unbounded,
            Some(key) if self.with_end => Bound::Included(&key[..]),
            Some(key) => Bound::Excluded(&key[..]),
        };
        match (&self.prefix, from, to) {
            (None, from, to) => Ok(Some((from, to))),
            (Some(_), Bound::Unbounded, Bound::Unbounded) => Ok(None),
            _ => Err(usage("a scan has a prefix, or start and end, not both: leave one of them out")),
        }
    }

    /// As the library has it.
    ///
    /// # Errors
    /// A prefix and bounds at once.
    pub fn options(&self) -> PyResult<ScanOptions> {
        Ok(match (self.bounds()?, &self.prefix) {
            (Some((from, to)), _) => ScanOptions::range::<&[u8]>((from, to)),
            (None, prefix) => ScanOptions::prefix(prefix.as_deref().unwrap_or_default()),
        })
    }
}
