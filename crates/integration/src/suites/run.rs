//! Runs a suite against a server.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::fetch::Fetched;
use super::server::{Kind, Server, stand_in};
use super::{DEFAULT_PORT, Results, Runner, Suite, report};

/// A suite takes half a minute at most; one that hangs is ended after so long.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Between two looks at a suite.
const POLL: Duration = Duration::from_millis(50);

/// Runs a suite against a server of its own, and reads its report.
///
/// # Errors
/// The server or the suite does not start, hangs, or reports no test.
pub fn run(suite: &Suite, fetched: &Fetched, kind: Kind, memcached: &Path, folder: &Path) -> Result<Results, String> {
    let place = folder.join(suite.name).join(format!("run-{}", kind.name()));
    let failed = |error: io::Error| format!("cannot prepare {}: {error}", place.display());
    if place.exists() {
        fs::remove_dir_all(&place).map_err(failed)?;
    }
    fs::create_dir_all(place.join("bin")).map_err(failed)?;
    stand_in(kind, memcached, &place.join("bin"))?;
    let mut server = Server::start(kind, memcached, &place)?;
    let port = server.address().port().to_string();
    copy(&fetched.source, &place.join("suite")).map_err(failed)?;
    if suite.name == "pylibmc" {
        // Its tests take the default address of the installed module too.
        copy(&fetched.python.join("pylibmc"), &place.join("suite/pylibmc")).map_err(failed)?;
    }
    for file in suite.ported.iter().map(|file| place.join("suite").join(file)) {
        let text = fs::read_to_string(&file).map_err(failed)?;
        fs::write(&file, text.replace(DEFAULT_PORT, &port)).map_err(failed)?;
    }
    let output = File::create(place.join("suite.log")).map_err(failed)?;
    let errors = output.try_clone().map_err(failed)?;
    let mut command = command(suite, fetched, &place, &port)?;
    command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
    let child = command.spawn().map_err(|error| format!("cannot start the tests of {}: {error}", suite.name))?;
    finish(child, suite)?;
    let results = read(suite, &place)?;
    if !server.is_running() {
        return Err(format!(
            "{}: the server ended during the tests of {}:\n{}",
            kind.name(),
            suite.name,
            server.said()
        ));
    }
    Ok(results)
}

/// How the tests are started; their working folder is the copy.
fn command(suite: &Suite, fetched: &Fetched, place: &Path, port: &str) -> Result<Command, String> {
    let mut command = match suite.runner {
        Runner::Pytest(arguments) => {
            let mut python = Command::new("python3");
            python.args(["-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-o", "addopts="]);
            python.arg(format!("--junitxml={}", place.join("report.xml").display())).args(arguments);
            // The last argument of some wants the port.
            python.args(arguments.last().filter(|last| **last == "--port").map(|_| port));
            let folders = [place.join("suite"), fetched.python.clone()];
            let path = std::env::join_paths(folders).map_err(|error| error.to_string())?;
            python.env("PYTHONPATH", path).env("PYTHONDONTWRITEBYTECODE", "1");
            // pylibmc's tests ask for it.
            python.env("MEMCACHED_PORT", port);
            python
        }
        Runner::Go => {
            let mut go = Command::new("go");
            go.args(["test", "-v", "-count=1", "./..."]).env("GOFLAGS", "-mod=mod");
            go
        }
        Runner::Tap => {
            let mut node = Command::new(place.join("../node_modules/.bin/tap"));
            let files =
                fs::read_dir(place.join("suite/test")).map_err(|error| format!("memjs has no tests: {error}"))?;
            let mut files: Vec<PathBuf> =
                files.filter_map(|file| file.ok().map(|file| file.file_name().into())).collect();
            files.sort();
            node.args(["-R", "tap"]).args(files.iter().map(|file| Path::new("./test").join(file)));
            node
        }
        Runner::None => return Err(format!("the tests of {} cannot be run", suite.name)),
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(place.join("bin")).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(folders).map_err(|error| error.to_string())?);
    command.current_dir(place.join("suite"));
    Ok(command)
}

/// Waits for the end of a suite. What it started and left is ended with it.
fn finish(mut child: Child, suite: &Suite) -> Result<(), String> {
    let deadline = Instant::now() + TIMEOUT;
    let group = rustix::process::Pid::from_child(&child);
    let ended = loop {
        match child.try_wait().map_err(|error| format!("cannot wait for {}: {error}", suite.name))? {
            Some(_) => break Ok(()),
            None if Instant::now() > deadline => break Err(format!("the tests of {} hang", suite.name)),
            None => std::thread::sleep(POLL),
        }
    };
    // An error means that nothing of it is left.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let _ = child.wait();
    ended
}

fn read(suite: &Suite, place: &Path) -> Result<Results, String> {
    let file = place.join(if matches!(suite.runner, Runner::Pytest(_)) { "report.xml" } else { "suite.log" });
    let text = fs::read(&file).map_err(|error| format!("{} wrote no report: {error}", suite.name))?;
    let text = String::from_utf8_lossy(&text);
    let results = match suite.runner {
        Runner::Pytest(_) => report::junit(&text),
        Runner::Go => report::go(&text),
        Runner::Tap | Runner::None => report::tap(&text),
    };
    match results.is_empty() {
        true => Err(format!("{} ran no test; see {}", suite.name, place.join("suite.log").display())),
        false => Ok(results),
    }
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
