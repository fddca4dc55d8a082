//! The two servers that are compared.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::wire::Wire;
use crate::engine::Engine;
use crate::program::{Serve, Served, free_address};

/// The memcached whose answers ours are to be.
pub const VERSION: &str = "1.6.18";

/// How long it may take to answer its first connection.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A memcached of its own, ended when dropped.
#[derive(Debug)]
pub struct Memcached {
    process: Child,
    address: SocketAddr,
}

impl Memcached {
    /// Starts it, and waits until it takes connections.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(program: &Path) -> Result<Memcached, String> {
        let address = free_address().map_err(|error| format!("no free port: {error}"))?;
        let port = address.port().to_string();
        let mut command = Command::new(program);
        command.args(["-l", "127.0.0.1", "-U", "0", "-u", "nobody", "-m", "256", "-t", "2", "-p", &port]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().map_err(|error| format!("cannot start memcached: {error}"))?;
        let mut memcached = Memcached { process, address };
        let deadline = Instant::now() + START_TIMEOUT;
        while Wire::connect(address).is_err() {
            if let Ok(Some(status)) = memcached.process.try_wait() {
                return Err(format!("memcached ended ({status})"));
            }
            if Instant::now() > deadline {
                return Err("memcached takes no connection".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(memcached)
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// The version that it tells.
    ///
    /// # Errors
    /// It does not answer.
    pub fn version(&self) -> Result<String, String> {
        let answers = Wire::connect(self.address)?.ask(&[b"version\r\n".to_vec()], false, false);
        let told = answers.first().map(|answer| String::from_utf8_lossy(&answer.bytes).into_owned());
        let told = told.unwrap_or_default();
        let version = told.strip_prefix("VERSION ").map(|version| version.trim_end().to_owned());
        version.ok_or_else(|| format!("memcached tells no version: {told:?}"))
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Both, running.
#[derive(Debug)]
pub struct Peers {
    ours: Served,
    theirs: Memcached,
}

impl Peers {
    /// Starts them: ours on a store of this engine in an empty directory.
    ///
    /// # Errors
    /// One does not start, or is another version than it should be.
    pub fn start(memcached: &Path, engine: Engine, data: &Path) -> Result<Peers, String> {
        let level = engine.levels().last().copied().unwrap_or("memory");
        let serve =
            Serve::on(data).options(engine.serve_options()).options(&["--durability", level, "--memory", "64M"]);
        let peers = Peers { theirs: Memcached::start(memcached)?, ours: serve.start() };
        match peers.theirs.version()? {
            version if version == VERSION => Ok(peers),
            other => Err(format!("the list of differences is that of memcached {VERSION}, and this one is {other}")),
        }
    }

    /// Where ours and memcached serve.
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.ours.address(), self.theirs.address)
    }

    /// What ours said, for messages.
    pub fn said(&self) -> String {
        self.ours.said()
    }
}
