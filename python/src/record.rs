//! [`Record`]: a value with its version, flags and expiry, which Python reads where it lies.
//!
//! The one module here with `unsafe`: the protocol of buffers has no safe form.
#![expect(unsafe_code, reason = "Python's buffer protocol takes pointers")]

use std::ffi::c_int;
use std::os::raw::c_void;
use std::sync::OnceLock;

use bytes::Bytes;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3::{PyResult, ffi};
use stratakv::Expiry;

/// A record as it was read. `bytes(record)` copies its value; `memoryview(record)` reads it where
/// it lies in the store's cache, and keeps that memory until the view and the record are gone.
#[pyclass(frozen, module = "stratakv")]
pub struct Record {
    record: stratakv::Record,
    /// The value in one piece, where it does not lie so.
    joined: OnceLock<Bytes>,
}

impl Record {
    /// What the library answered.
    pub fn new(record: stratakv::Record) -> Record {
        Record { record, joined: OnceLock::new() }
    }

    fn bytes(&self) -> &[u8] {
        let mut slices = self.record.value().slices();
        match (slices.next(), slices.next()) {
            (None, _) => &[],
            (Some(slice), None) => slice,
            _ => self.joined.get_or_init(|| self.record.to_bytes()),
        }
    }
}

/// The value as `bytes`; copied once.
pub fn value<'py>(py: Python<'py>, record: &stratakv::Record) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, record.len(), |mut room| {
        for slice in record.value().slices() {
            let Some((here, rest)) = room.split_at_mut_checked(slice.len()) else { break };
            here.copy_from_slice(slice);
            room = rest;
        }
        Ok(())
    })
}

/// Seconds since 1970; `None` for never.
pub fn seconds(expiry: Expiry) -> Option<f64> {
    (expiry != Expiry::NEVER).then_some(expiry.0 as f64 / 1000.0)
}

#[pymethods]
impl Record {
    /// The value as bytes: a copy, made anew each time.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        value(py, &self.record)
    }

    /// Grows with every write of the key; compare-and-set is on it.
    #[getter]
    fn version(&self) -> u64 {
        self.record.version
    }

    /// 32 bits that the store keeps with the value.
    #[getter]
    fn flags(&self) -> u32 {
        self.record.flags
    }

    /// When it expires, in seconds since 1970; None for never.
    #[getter]
    fn expires_at(&self) -> Option<f64> {
        seconds(self.record.expiry)
    }

    fn __len__(&self) -> usize {
        self.record.len()
    }

    /// An empty value is a record all the same.
    fn __bool__(&self) -> bool {
        true
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        value(py, &self.record)
    }

    fn __repr__(&self) -> String {
        let (len, version) = (self.record.len(), self.record.version);
        format!("<stratakv.Record of {len} bytes, version {version}>")
    }

    /// The value as a buffer that cannot be written to.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no place for the view"));
        }
        let bytes = slf.get().bytes();
        let (start, len) = (bytes.as_ptr() as *mut c_void, bytes.len() as ffi::Py_ssize_t);
        // SAFETY: `view` is not null, and Python's to fill in. The bytes stay where they are while
        // the record lives: it is frozen, and its blocks or its joined bytes are never replaced.
        // The view holds the record: the call takes a reference of its own, released with it. The
        // view is read-only.
        let outcome = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len, 1, flags) };
        if outcome == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
