//! The library's errors as the exceptions of `stratakv.errors`, by their kind, with its own texts.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyModule, PyType};
use stratakv::{Error, ErrorKind};

/// The module that declares the exceptions. They are Python's, so that they may have two bases.
const MODULE: &str = "stratakv.errors";

static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// Runs what may wait, without the interpreter's lock; its failure becomes an exception.
pub fn run<T: Send>(py: Python<'_>, call: impl FnOnce() -> Result<T, Error> + Send) -> PyResult<T> {
    py.detach(call).map_err(raise)
}

/// The exception for an error.
pub fn raise(error: Error) -> PyErr {
    let name = match (&error, error.kind()) {
        (Error::Conflict { .. }, _) => "Conflict",
        (_, ErrorKind::Usage) => "Usage",
        (_, ErrorKind::NotFound) => "NotFound",
        (_, ErrorKind::Corrupt) => "Corruption",
        (_, ErrorKind::Locked) => "Locked",
        (_, ErrorKind::Full) => "Full",
        (_, ErrorKind::Unsupported) => "Unsupported",
        (_, ErrorKind::Closed) => "Closed",
        (_, ErrorKind::Unknown) => "Unknown",
        (_, ErrorKind::Busy) => "Busy",
        _ => "DeviceError",
    };
    named(name, error.to_string())
}

/// An exception for a bad argument.
pub fn usage(message: impl Into<String>) -> PyErr {
    named("Usage", message.into())
}

/// An exception for a transaction or batch that met a conflict.
pub fn conflict(message: impl Into<String>) -> PyErr {
    named("Conflict", message.into())
}

/// An exception of [`MODULE`].
pub fn named(name: &str, message: String) -> PyErr {
    Python::attach(|py| {
        let made = CLASSES
            .get_or_try_init(py, || py.import(MODULE).map(Bound::unbind))
            .and_then(|module| Ok(module.bind(py).getattr(name)?.cast_into::<PyType>()?));
        made.map_or_else(|error| error, |class| PyErr::from_type(class, message))
    })
}
