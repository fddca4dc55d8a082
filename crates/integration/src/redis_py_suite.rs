//! redis-py's own tests, run against our server and against Redis.
//!
//! It owns the list of files; `cargo xtask redis-py-suite` calls it. It changes no test: they take
//! the server's address as an option.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::program::free_address;
use crate::redis_suite::compared::{fresh_place, remove_store, tool};
use crate::redis_suite::known::{self, Known};
use crate::redis_suite::run::{Running, SuiteServer};
use crate::suites::run::finish;
use crate::suites::{Results, report};

/// The version whose tests these are.
pub const VERSION: &str = "8.1.0";

/// Those of its files of tests that are compared.
pub const FILES: &[&str] = &["test_commands", "test_pubsub"];

/// A test that takes longer has failed.
const TEST_SECONDS: &str = "30";
/// And a file that takes longer hangs.
const TIMEOUT: Duration = Duration::from_secs(900);

/// Tests that come out otherwise with ours, each with its reason.
///
/// # Errors
/// A line of the list cannot be read.
pub fn known() -> Result<Vec<Known>, String> {
    known::read(include_str!("redis_py_suite/known.txt"), FILES)
}

/// The folder of the source distribution: `given`, or one that pip fetches below `folder`.
///
/// # Errors
/// It cannot be had.
pub fn fetch(given: Option<&Path>, folder: &Path) -> Result<PathBuf, String> {
    let own = folder.join(format!("redis-{VERSION}"));
    let source = given.map_or(own.clone(), Path::to_path_buf);
    if given.is_none() && !own.is_dir() {
        let named = format!("redis=={VERSION}");
        let mut pip = Command::new("python3");
        tool(pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", &named]), folder)?;
        tool(Command::new("tar").args(["xzf", &format!("redis-{VERSION}.tar.gz")]), folder)?;
    }
    match source.join("tests/test_commands.py").is_file() {
        true => Ok(source),
        false => Err(format!("{} has no tests of redis-py", source.display())),
    }
}

/// Runs a file of tests against a server of its own, in `folder`, which keeps the output.
///
/// # Errors
/// The server or the tests do not start, the server ends, or the tests hang.
pub fn run(file: &str, server: SuiteServer, source: &Path, folder: &Path) -> Result<Results, String> {
    let place = fresh_place(folder, server, file)?;
    let failed = |error| format!("cannot prepare {}: {error}", place.display());
    let address = free_address().map_err(failed)?;
    let mut running = Running::start(server, address, &place)?;
    let output = File::create(place.join("tests.log")).map_err(failed)?;
    let errors = output.try_clone().map_err(failed)?;
    let written = place.join("report.xml");
    let mut tests = Command::new("python3");
    // Frames of failures as Python prints them: pytest would parse a file of 10,000 lines for each,
    // which takes longer than the test may.
    tests.args(["-m", "pytest", "-q", "--tb=native", "-p", "no:cacheprovider", "-o", "addopts="]);
    tests.args(["--timeout", TEST_SECONDS, "--redis-url", &format!("redis://{address}/0")]);
    tests.arg(format!("--junitxml={}", written.display())).arg(format!("tests/{file}.py"));
    tests.env("PYTHONPATH", source).env("PYTHONDONTWRITEBYTECODE", "1");
    tests.current_dir(source).stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
    let tests = tests.spawn().map_err(|error| format!("cannot start the tests: {error}"))?;
    finish(tests, file, TIMEOUT)?;
    if !running.is_running() {
        return Err(format!("{}: the server ended during {file}:\n{}", server.name(), running.said()));
    }
    let text = fs::read(&written).map_err(|error| format!("{file} wrote no report: {error}"))?;
    drop(running);
    remove_store(&place)?;
    Ok(report::junit(&String::from_utf8_lossy(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_can_be_read() {
        known().expect("the list is well formed");
    }
}
