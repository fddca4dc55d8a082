//! twemproxy (`nutcracker`) before several servers: keys by ketama, servers that do not answer are
//! left out and tried again after a while.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::memcache::Client;
use crate::program::free_address;
use crate::requirement;

/// How soon a server that was left out is tried again.
pub const RETRY: Duration = Duration::from_millis(1000);

/// A running proxy. Dropping it ends it.
pub struct Twemproxy {
    child: Child,
    /// Where it serves memcache clients.
    pub address: SocketAddr,
}

impl Twemproxy {
    /// Starts one before `servers`, its configuration in `folder`; `None` after saying that the
    /// test is skipped, as it is not installed.
    ///
    /// # Errors
    /// It cannot be started, or does not come up.
    pub fn start(folder: &Path, servers: &[SocketAddr]) -> io::Result<Option<Twemproxy>> {
        let Some(program) = requirement::tool("nutcracker") else { return Ok(None) };
        let (address, statistics) = (free_address()?, free_address()?);
        let mut text = format!(
            "caches:\n  listen: {address}\n  hash: murmur\n  distribution: ketama\n  auto_eject_hosts: true\n  \
             server_retry_timeout: {}\n  server_failure_limit: 1\n  timeout: 400\n  servers:\n",
            RETRY.as_millis()
        );
        for (number, server) in servers.iter().enumerate() {
            _ = writeln!(text, "   - {server}:1 cache{number}");
        }
        let configuration = folder.join("nutcracker.yml");
        std::fs::write(&configuration, text)?;
        let mut command = Command::new(program);
        command.arg("-c").arg(&configuration).args(["-a", "127.0.0.1", "-s", &statistics.port().to_string()]);
        command.arg("-o").arg(folder.join("nutcracker.log")).arg("-p").arg(folder.join("nutcracker.pid"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let proxy = Twemproxy { child, address };
        let begun = Instant::now();
        while let Err(error) = Client::connect(address) {
            if begun.elapsed() > Duration::from_secs(10) {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Some(proxy))
    }
}

impl Drop for Twemproxy {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
