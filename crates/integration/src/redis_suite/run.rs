//! Runs a unit of the suite against a server.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::compared::{fresh_place, remove_store};
use super::{read, tags};
use crate::engine::Engine;
use crate::program::{Serve, Served, free_address};
use crate::suites::Results;
use crate::suites::run::finish;
use crate::suites::server::store_options;

/// Memory of ours.
const MEMORY: &str = "1G";

/// Some tests set values of so many bytes.
const ITEM_BYTES: &str = "16M";

/// A unit takes half a minute at most; one that hangs is ended after so long.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Between two looks at a process.
const POLL: Duration = Duration::from_millis(50);

/// A server that the suite is run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuiteServer {
    /// Redis itself: the control.
    Redis,
    /// Ours with this engine, in its usual placement.
    Ours(Engine),
    /// Ours with engine `slab` and placement `packed`.
    Packed,
}

impl SuiteServer {
    /// Ours.
    pub const OURS: &[SuiteServer] = &[
        SuiteServer::Ours(Engine::Slab),
        SuiteServer::Packed,
        SuiteServer::Ours(Engine::Hash),
        SuiteServer::Ours(Engine::Matrix),
        SuiteServer::Ours(Engine::Tier),
    ];

    /// Its name in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            SuiteServer::Redis => "redis",
            SuiteServer::Ours(engine) => engine.name(),
            SuiteServer::Packed => "packed",
        }
    }

    /// Options of `stratakv serve`; none of Redis.
    fn options(self, resp: &str) -> Vec<String> {
        let mut options = match self {
            SuiteServer::Redis => return Vec::new(),
            SuiteServer::Ours(engine) => store_options(engine, false, MEMORY),
            SuiteServer::Packed => store_options(Engine::Slab, true, MEMORY),
        };
        // Some tests send commands on two connections without waiting, and count on their order:
        // Redis has one thread.
        options.extend(["--threads", "1", "--item-bytes-max", ITEM_BYTES, "--resp", resp]);
        options.into_iter().map(str::to_owned).collect()
    }
}

/// A running server. Killed when dropped.
pub(crate) enum Running {
    Redis(Child),
    Ours(Served),
}

impl Running {
    pub(crate) fn start(server: SuiteServer, address: SocketAddr, folder: &Path) -> Result<Running, String> {
        let cannot = |error| format!("cannot start {}: {error}", server.name());
        if server != SuiteServer::Redis {
            let options = server.options(&address.to_string());
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let mut served = Serve::on(&folder.join("data")).options(&options).spawn().map_err(cannot)?;
            served.wait_ready()?;
            return Ok(Running::Ours(served));
        }
        let output = File::create(folder.join("redis.log")).map_err(cannot)?;
        let mut redis = Command::new("redis-server");
        redis.args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", ""]).current_dir(folder);
        let child = redis.stdin(Stdio::null()).stdout(output).stderr(Stdio::null()).spawn().map_err(cannot)?;
        let mut running = Running::Redis(child);
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(address).is_err() {
            if Instant::now() > deadline || !running.is_running() {
                return Err(format!("redis-server does not answer; see {}", folder.join("redis.log").display()));
            }
            std::thread::sleep(POLL);
        }
        Ok(running)
    }

    pub(crate) fn is_running(&mut self) -> bool {
        match self {
            Running::Redis(child) => matches!(child.try_wait(), Ok(None)),
            Running::Ours(served) => served.is_running(),
        }
    }

    pub(crate) fn said(&self) -> String {
        match self {
            Running::Redis(_) => String::new(),
            Running::Ours(served) => served.said(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Running::Redis(child) = self {
            // An error means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a unit against a server of its own, in `folder`, which keeps the output. Tests of these
/// names are skipped, and those that a pattern matches that begins with `/`.
///
/// # Errors
/// The server or the suite does not start, the server ends, or the unit hangs.
pub fn run(
    unit: &str,
    server: SuiteServer,
    source: &Path,
    (folder, skipped): (&Path, &[String]),
) -> Result<Results, String> {
    let place = fresh_place(folder, server, unit)?;
    let failed = |error| format!("cannot prepare {}: {error}", place.display());
    let address = free_address().map_err(failed)?;
    let mut running = Running::start(server, address, &place)?;
    let log = place.join("suite.log");
    let output = File::create(&log).map_err(failed)?;
    let mut tests = Command::new("tclsh");
    tests.args(["tests/test_helper.tcl", "--host", "127.0.0.1", "--port", &address.port().to_string()]);
    // A server that is there already: one database, no digests and encodings. A test that breaks
    // off has failed, and the next one goes on.
    tests.args(["--singledb", "--ignore-encoding", "--ignore-digest", "--durable", "--dont-clean", "--clients", "1"]);
    tests.args(["--single", &format!("unit/{unit}"), "--tags", &tags(unit)]);
    if !skipped.is_empty() {
        let file = place.join("skipped");
        fs::write(&file, skipped.join("\n")).map_err(failed)?;
        tests.arg("--skipfile").arg(file);
    }
    tests.current_dir(source).stdin(Stdio::null()).process_group(0);
    let errors = output.try_clone().map_err(failed)?;
    let tests = tests.stdout(output).stderr(errors).spawn();
    finish(tests.map_err(|error| format!("cannot start the tests: {error}"))?, unit, TIMEOUT)?;
    if !running.is_running() {
        return Err(format!("{}: the server ended during {unit}:\n{}", server.name(), running.said()));
    }
    let text = fs::read(&log).map_err(failed)?;
    let results = read(&String::from_utf8_lossy(&text));
    drop(running);
    remove_store(&place)?;
    Ok(results)
}
