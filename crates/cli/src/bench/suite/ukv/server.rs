//! Servers of suite `ukv`: this program in a process of its own, or one that is already there.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use stratakv_bench::BenchError;
use stratakv_bench::suite::ukv::{RunningServer, ServerUnderTest, UkvCase};
use stratakv_bench::wire::Protocol;

/// A server of ours: its name, the options that make it, and what it may have.
pub(super) struct OwnServer {
    pub(super) name: &'static str,
    /// Of `serve`.
    pub(super) options: Vec<String>,
    /// Where its store is made, and removed.
    pub(super) directory: PathBuf,
    pub(super) memory_bytes: u64,
    pub(super) capacity_bytes: u64,
    pub(super) threads: u64,
}

impl ServerUnderTest for OwnServer {
    fn name(&self) -> &str {
        self.name
    }

    fn is_for(&self, _: UkvCase) -> bool {
        true
    }

    fn start(&self, _: UkvCase) -> Result<Box<dyn RunningServer>, BenchError> {
        let place = self.directory.join(format!("suite-{}", self.name));
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        // Options of the environment are for the server that somebody runs, not for this one.
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        names.filter(|name| name.starts_with("STRATAKV_")).for_each(|name| _ = command.env_remove(name));
        let (threads, memory, capacity) =
            (self.threads.to_string(), self.memory_bytes.to_string(), self.capacity_bytes.to_string());
        command.args(["serve", "--memcache", "127.0.0.1:0", "--item-bytes-max", "2M", "--log", "error"]);
        command.args(["--threads", &threads, "--shards", &threads, "--memory", &memory, "--capacity", &capacity]);
        command.args(&self.options).arg("--data").arg(&place);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut process = OwnProcess { child, place, stdout: None, address: ([127, 0, 0, 1], 0).into() };
        process.wait_ready(self.name)?;
        Ok(Box::new(process))
    }
}

/// A server of ours at work; ended and removed when dropped.
struct OwnProcess {
    child: Child,
    place: PathBuf,
    /// Kept open: it may say more.
    stdout: Option<BufReader<ChildStdout>>,
    address: SocketAddr,
}

impl OwnProcess {
    /// Reads what it says until it takes clients.
    fn wait_ready(&mut self, name: &str) -> Result<(), BenchError> {
        let stdout = self.child.stdout.take().map(BufReader::new);
        let lines = self.stdout.insert(stdout.ok_or_else(|| BenchError::Wrong("the server has no stdout".into()))?);
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 {
                let why = format!("the server `{name}` ended before it took clients; what it said stands above");
                return Err(BenchError::Wrong(why));
            }
            if let Some(address) = line.strip_prefix("memcache ").and_then(|rest| rest.trim().parse().ok()) {
                self.address = address;
                return Ok(());
            }
        }
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap_or_default()
    }
}

impl RunningServer for OwnProcess {
    fn address(&self) -> (SocketAddr, Protocol) {
        (self.address, Protocol::Memcache)
    }

    fn cpu(&self) -> Option<Duration> {
        cpu(&self.read("stat"), rustix::param::clock_ticks_per_second())
    }

    fn memory_peak_bytes(&self) -> u64 {
        memory_peak_bytes(&self.read("status"))
    }
}

impl Drop for OwnProcess {
    fn drop(&mut self) {
        // Its data goes with it, so it need not end in order.
        let _ = self.child.kill();
        let _ = self.child.wait();
        remove(&self.place);
    }
}

fn remove(place: &Path) {
    if let Err(error) = std::fs::remove_dir_all(place)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::error!(%error, "cannot remove {}", place.display());
    }
}

/// User and system time, of a line of /proc/PID/stat.
fn cpu(stat: &str, ticks_per_s: u64) -> Option<Duration> {
    // The name may have anything in it.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut words = after_name.split_whitespace().skip(11);
    let (user, system) = (words.next()?.parse::<u64>().ok()?, words.next()?.parse::<u64>().ok()?);
    Some(Duration::from_secs_f64(user.saturating_add(system) as f64 / ticks_per_s.max(1) as f64))
}

fn memory_peak_bytes(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default().saturating_mul(1024)
}

/// A server that somebody else has started: `NAME=memcache://ADDRESS:PORT`, or `resp://`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PeerServer {
    name: String,
    address: SocketAddr,
    protocol: Protocol,
}

impl FromStr for PeerServer {
    type Err = String;

    fn from_str(text: &str) -> Result<PeerServer, String> {
        let form = || format!("`{text}`: NAME=memcache://ADDRESS:PORT, or NAME=resp://ADDRESS:PORT");
        let (name, url) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(form)?;
        let (protocol, address) = match url.split_once("://").ok_or_else(form)? {
            ("memcache", address) => (Protocol::Memcache, address),
            ("resp", address) => (Protocol::Resp, address),
            _ => return Err(form()),
        };
        let address = address.parse().map_err(|error| format!("{}: {error}", form()))?;
        Ok(PeerServer { name: name.to_owned(), address, protocol })
    }
}

impl ServerUnderTest for PeerServer {
    fn name(&self) -> &str {
        &self.name
    }

    /// What it may have on an SSD is not known here.
    fn is_for(&self, case: UkvCase) -> bool {
        case == UkvCase::Memory
    }

    fn start(&self, _: UkvCase) -> Result<Box<dyn RunningServer>, BenchError> {
        Ok(Box::new(self.clone()))
    }
}

impl RunningServer for PeerServer {
    fn address(&self) -> (SocketAddr, Protocol) {
        (self.address, self.protocol)
    }

    fn cpu(&self) -> Option<Duration> {
        None
    }

    fn memory_peak_bytes(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_of_a_process_is_found_behind_any_name() {
        let line = "7 (a ) b) S 1 7 7 0 -1 4194304 9 0 0 0 150 50 0 0 20 0 4 0 99 1 2";
        assert_eq!(cpu(line, 100), Some(Duration::from_secs(2)));
        assert_eq!((cpu("", 100), cpu("7 (a) S 1", 100)), (None, None));
        assert_eq!(memory_peak_bytes("VmPeak: 9 kB\nVmHWM:\t  2048 kB\n"), 2 << 20);
        assert_eq!(memory_peak_bytes(""), 0);
    }

    #[test]
    fn a_peer_is_named_with_its_protocol() {
        let good: PeerServer = "redis=resp://127.0.0.1:6379".parse().expect("a peer");
        assert_eq!((good.name.as_str(), good.protocol), ("redis", Protocol::Resp));
        for bad in ["redis", "=resp://127.0.0.1:1", "a=http://127.0.0.1:1", "a=resp://x", "a=127.0.0.1:1"] {
            let error = bad.parse::<PeerServer>().expect_err(bad);
            assert!(error.contains("NAME=memcache://ADDRESS:PORT"), "{error}");
        }
    }
}
