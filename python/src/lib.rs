//! StrataKV from Python: the extension module that the package `stratakv` is made of.

mod args;
mod batch;
mod collection;
mod errors;
mod futures;
mod list;
mod options;
mod record;
mod scan;
mod snapshot;
mod store;
mod transaction;

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use errors::{named, run};

/// Makes a new store in `directory` from a backup; how many records it holds.
#[pyfunction]
#[pyo3(signature = (backup, directory, /, **given))]
fn restore(py: Python<'_>, backup: PathBuf, directory: PathBuf, given: Option<&Bound<'_, PyDict>>) -> PyResult<u64> {
    let options = options::options(given)?;
    Ok(run(py, || stratakv::restore(&backup, &directory, &options))?.records)
}

/// Reads and verifies a whole store that no process has open; how many records it holds.
/// Corruption, with a list of the damage, if it is not sound.
#[pyfunction]
#[pyo3(signature = (path, /))]
fn check(py: Python<'_>, path: PathBuf) -> PyResult<u64> {
    let report = run(py, || stratakv::check(&path, None))?;
    if report.is_sound() {
        return Ok(report.records);
    }
    let (lost, lines) = (report.lost_records, report.damage.into_iter().chain(report.unreadable));
    let lines: Vec<String> = lines.chain(report.mistakes).collect();
    Err(named("Corruption", format!("{lost} records are lost\n{}", lines.join("\n"))))
}

/// The extension module.
#[pymodule]
mod _stratakv {
    #[pymodule_export]
    use super::batch::Batch;
    #[pymodule_export]
    use super::collection::Collection;
    #[pymodule_export]
    use super::futures::Port;
    #[pymodule_export]
    use super::list::{Elements, List};
    #[pymodule_export]
    use super::record::Record;
    #[pymodule_export]
    use super::scan::Scan;
    #[pymodule_export]
    use super::snapshot::Snapshot;
    #[pymodule_export]
    use super::store::Store;
    #[pymodule_export]
    use super::transaction::Transaction;
    #[pymodule_export]
    use super::{check, restore};
}
