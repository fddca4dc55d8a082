//! twemproxy (`nutcracker`) before several servers: keys by ketama, servers that do not answer are
//! left out and tried again after a while.

use std::fmt::Write;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::memcache::Client;
use crate::program::free_address;
use crate::requirement;

/// How soon a server that was left out is tried again.
pub const RETRY: Duration = Duration::from_millis(1000);

/// How long it waits for servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyTimes {
    /// For an answer; then it leaves out the server.
    pub timeout: Duration,
    /// Until it tries again a server that it has left out.
    pub retry: Duration,
}

impl Default for ProxyTimes {
    fn default() -> ProxyTimes {
        ProxyTimes { timeout: Duration::from_millis(400), retry: RETRY }
    }
}

/// How often it adds up its figures.
const FIGURES_EVERY: Duration = Duration::from_millis(100);

/// A running proxy. Dropping it ends it.
#[derive(Debug)]
pub struct Twemproxy {
    child: Child,
    /// Where it serves memcache clients.
    pub address: SocketAddr,
    statistics: SocketAddr,
}

/// What it counts, some time later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyFigures {
    /// How often it has left out a server.
    pub ejects: u64,
    /// Answers of each server.
    pub responses: Vec<u64>,
}

impl Twemproxy {
    /// Starts one before `servers`, its configuration in `folder`, that leaves out servers; `None`
    /// after saying that the test is skipped, as it is not installed.
    ///
    /// # Errors
    /// It cannot be started, or does not come up.
    pub fn start(folder: &Path, servers: &[SocketAddr]) -> io::Result<Option<Twemproxy>> {
        Twemproxy::start_with(folder, servers, true, ProxyTimes::default())
    }

    /// The same, which leaves out servers or not, after these times.
    ///
    /// # Errors
    /// As [`Twemproxy::start`].
    pub fn start_with(
        folder: &Path,
        servers: &[SocketAddr],
        ejects: bool,
        times: ProxyTimes,
    ) -> io::Result<Option<Twemproxy>> {
        let Some(program) = requirement::tool("nutcracker") else { return Ok(None) };
        let (address, statistics) = (free_address()?, free_address()?);
        let mut text = format!(
            "caches:\n  listen: {address}\n  hash: murmur\n  distribution: ketama\n  auto_eject_hosts: {ejects}\n  \
             server_retry_timeout: {}\n  server_failure_limit: 1\n  timeout: {}\n  servers:\n",
            times.retry.as_millis(),
            times.timeout.as_millis()
        );
        for (number, server) in servers.iter().enumerate() {
            _ = writeln!(text, "   - {server}:1 cache{number}");
        }
        let configuration = folder.join("nutcracker.yml");
        std::fs::write(&configuration, text)?;
        let mut command = Command::new(program);
        command.arg("-c").arg(&configuration).args(["-a", "127.0.0.1", "-s", &statistics.port().to_string()]);
        command.arg("-o").arg(folder.join("nutcracker.log")).arg("-p").arg(folder.join("nutcracker.pid"));
        command.args(["-i", &FIGURES_EVERY.as_millis().to_string()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let proxy = Twemproxy { child, address, statistics };
        let begun = Instant::now();
        while let Err(error) = Client::connect(address) {
            if begun.elapsed() > Duration::from_secs(10) {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Some(proxy))
    }

    /// Its figures, with everything that happened before this was asked.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn figures_by_now(&self) -> Result<ProxyFigures, String> {
        std::thread::sleep(3 * FIGURES_EVERY);
        let mut text = String::new();
        let read = TcpStream::connect(self.statistics).and_then(|mut stream| stream.read_to_string(&mut text));
        read.map_err(|error| format!("the proxy's figures cannot be read: {error}"))?;
        let all: serde_json::Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        let caches = &all["caches"];
        let of_server = |number: usize| caches[format!("cache{number}")]["responses"].as_u64();
        let responses: Vec<u64> = (0..).map_while(of_server).collect();
        let ejects = caches["server_ejects"].as_u64().ok_or_else(|| format!("no server_ejects: {text}"))?;
        Ok(ProxyFigures { ejects, responses })
    }
}

impl Drop for Twemproxy {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
