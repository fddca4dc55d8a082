//! Runs a suite against a server.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::fetch::{Fetched, GEM_FILE, MAVEN_FILE, copy};
use super::server::{Kind, Server, stand_in};
use super::{DEFAULT_PORT, Results, Runner, Suite, report};

/// A suite takes half a minute at most; one that hangs is ended after so long.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Runs test files with minitest, and reports as pytest does.
const MINITEST: &str = include_str!("minitest.rb");

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
    let ported = suite.ported.iter().map(|file| place.join("suite").join(file));
    // A checkout of another version may lack some.
    for file in ported.filter(|file| suite.unpublished.is_none() || file.exists()) {
        let text = fs::read_to_string(&file).map_err(failed)?;
        fs::write(&file, text.replace(DEFAULT_PORT, &port)).map_err(failed)?;
    }
    let output = File::create(place.join("suite.log")).map_err(failed)?;
    let errors = output.try_clone().map_err(failed)?;
    let mut command = command(suite, fetched, &place, &port)?;
    command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
    let child = command.spawn().map_err(|error| format!("cannot start the tests of {}: {error}", suite.name))?;
    finish(child, suite.name, TIMEOUT)?;
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
            node.args(["-R", "tap"]).args(test_files(suite, place, "")?);
            node
        }
        Runner::Minitest(_) => {
            fs::write(place.join("minitest.rb"), MINITEST)
                .map_err(|error| format!("cannot write a script: {error}"))?;
            let mut ruby = Command::new("ruby");
            ruby.args(["-I", "test"]).arg(place.join("minitest.rb")).arg(place.join("report.xml"));
            ruby.args(test_files(suite, place, "test_")?).env("BUNDLE_GEMFILE", GEM_FILE);
            ruby
        }
        Runner::Maven(_) => {
            let mut maven = Command::new("mvn");
            maven.args(["--batch-mode", "--offline", "-f", MAVEN_FILE, "test"]);
            maven
        }
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(place.join("bin")).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(folders).map_err(|error| error.to_string())?);
    command.current_dir(place.join("suite"));
    Ok(command)
}

/// The files of the copy's folder `test` whose names begin with `start`, in order.
fn test_files(suite: &Suite, place: &Path, start: &str) -> Result<Vec<PathBuf>, String> {
    let failed = |error: io::Error| format!("{} has no tests: {error}", suite.name);
    let mut files = Vec::new();
    for entry in fs::read_dir(place.join("suite/test")).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if name.to_string_lossy().starts_with(start) {
            files.push(Path::new("./test").join(name));
        }
    }
    files.sort();
    Ok(files)
}

/// Waits for the end of tests of this name, for so long. What they started and left is ended with
/// them.
///
/// # Errors
/// They hang.
pub fn finish(mut child: Child, name: &str, timeout: Duration) -> Result<(), String> {
    let deadline = Instant::now() + timeout;
    let group = rustix::process::Pid::from_child(&child);
    let ended = loop {
        match child.try_wait().map_err(|error| format!("cannot wait for {name}: {error}"))? {
            Some(_) => break Ok(()),
            None if Instant::now() > deadline => break Err(format!("the tests of {name} hang")),
            None => std::thread::sleep(POLL),
        }
    };
    // An error means that nothing of it is left.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let _ = child.wait();
    ended
}

fn read(suite: &Suite, place: &Path) -> Result<Results, String> {
    let failed = |error: io::Error| format!("{} wrote no report: {error}", suite.name);
    let text = |file: PathBuf| fs::read(file).map(|text| String::from_utf8_lossy(&text).into_owned()).map_err(failed);
    let results = match suite.runner {
        Runner::Pytest(_) | Runner::Minitest(_) => report::junit(&text(place.join("report.xml"))?),
        Runner::Go => report::go(&text(place.join("suite.log"))?),
        Runner::Tap => report::tap(&text(place.join("suite.log"))?),
        Runner::Maven(_) => {
            let mut results = Results::new();
            for entry in fs::read_dir(place.join("suite/target/surefire-reports")).map_err(failed)? {
                let file = entry.map_err(failed)?.path();
                if file.extension().is_some_and(|extension| extension == "xml") {
                    results.extend(report::junit(&text(file)?));
                }
            }
            results
        }
    };
    match results.is_empty() {
        true => Err(format!("{} ran no test; see {}", suite.name, place.join("suite.log").display())),
        false => Ok(results),
    }
}
