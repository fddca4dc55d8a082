//! The servers: how each is started in the server's namespace, and what it has used.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use stratakv_bench::wire::Protocol;

use super::Plan;
use super::network::{BYPASS, INTERFACE, KERNEL, Network};
use crate::logged::LoggedProcess;
use crate::{process, program};

const POLL: Duration = Duration::from_millis(10);
/// Each server has a port of its own: the kernel may hold that of one that was killed for a while.
const FIRST_PORT: u16 = 11211;
static STARTED: AtomicU16 = AtomicU16::new(0);

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// `stratakv serve --xdp`.
    Xdp,
    /// `stratakv serve`, by io_uring on the kernel's TCP.
    Uring,
    /// memcached, one thread.
    Memcached,
    /// Redis, one thread.
    Redis,
}

impl Contender {
    /// All of them.
    pub const ALL: [Contender; 4] = [Contender::Xdp, Contender::Uring, Contender::Memcached, Contender::Redis];

    /// Its name on command lines and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Xdp => "xdp",
            Contender::Uring => "uring",
            Contender::Memcached => "memcached",
            Contender::Redis => "redis",
        }
    }

    /// What it speaks.
    pub fn protocol(self) -> Protocol {
        if self == Contender::Redis { Protocol::Resp } else { Protocol::Memcache }
    }

    fn program(self) -> PathBuf {
        match self {
            Contender::Xdp | Contender::Uring => program::binary().to_owned(),
            Contender::Memcached => "memcached".into(),
            Contender::Redis => "redis-server".into(),
        }
    }

    fn arguments(self, place: &Path, memory_bytes: u64, port: u16) -> Vec<String> {
        let (place, mib) = (place.display(), memory_bytes >> 20);
        let ours = format!(
            "serve --engine tier --capacity 0 --threads 1 --shards 1 --insecure --item-bytes-max 2M --memory {memory_bytes} --memcache {KERNEL}:{port} --data {place}/store"
        );
        let line = match self {
            Contender::Uring => ours,
            Contender::Xdp => format!("{ours} --xdp {INTERFACE} --address {BYPASS}/24"),
            // As root memcached wants to be told as whom to run.
            Contender::Memcached => format!("-l {KERNEL} -p {port} -U 0 -u root -t 1 -c 1100 -I 2m -m {mib}"),
            Contender::Redis => format!(
                "--port {port} --bind {KERNEL} --protected-mode no --io-threads 1 --save  --appendonly no --maxmemory {memory_bytes} --maxmemory-policy allkeys-lru --dir {place}"
            ),
        };
        // Two blanks: an empty argument.
        line.split(' ').map(str::to_owned).collect()
    }

    /// Starts it in a new directory and waits until it takes connections.
    ///
    /// # Errors
    /// It cannot be started, or ends.
    pub fn start(self, place: &Path, network: &Network, plan: &Plan) -> Result<Running, String> {
        let cannot = |error: io::Error| format!("cannot start {}: {error}", self.name());
        fs::create_dir_all(place).map_err(cannot)?;
        let place = place.canonicalize().map_err(cannot)?;
        let mut command = network.command(plan.cores.0);
        let port = FIRST_PORT + STARTED.fetch_add(1, Ordering::Relaxed) % 10_000;
        command.arg(self.program()).args(self.arguments(&place, plan.memory_bytes, port));
        let process = LoggedProcess::spawn(&mut command, &place).map_err(cannot)?;
        let address = SocketAddr::from((if self == Contender::Xdp { BYPASS } else { KERNEL }, port));
        let mut running = Running { process, address, receivers: Vec::new() };
        running.wait_ready().map_err(|why| format!("{}: {why}", self.name()))?;
        if self == Contender::Xdp && plan.is_steered {
            running.receivers = network.receive_on(plan.cores.0)?;
        }
        Ok(running)
    }
}

/// A server at work. Killed when dropped.
#[derive(Debug)]
pub struct Running {
    process: LoggedProcess,
    address: SocketAddr,
    /// Threads of the kernel that receive for it.
    receivers: Vec<u32>,
}

impl Running {
    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it said, for messages.
    pub fn said(&self) -> String {
        self.process.said()
    }

    fn wait_ready(&mut self) -> Result<(), String> {
        let address = self.address;
        self.process.wait_until(|| TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok(), POLL)
    }

    /// Processor time so far, the kernel's work for it included.
    pub fn cpu(&self) -> Duration {
        process::cpu(self.process.id()) + self.receivers.iter().map(|thread| process::cpu(*thread)).sum::<Duration>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_the_same_room_and_its_own_address() {
        let said = |contender: Contender| contender.arguments(Path::new("/x"), 64 << 20, 7).join(" ");
        assert!(said(Contender::Xdp).contains("--memory 67108864 ") && said(Contender::Xdp).contains("--xdp xdp0"));
        assert!(!said(Contender::Uring).contains("--xdp") && said(Contender::Uring).contains("--threads 1"));
        assert!(said(Contender::Memcached).ends_with("-m 64") && said(Contender::Memcached).contains("-t 1"));
        assert!(said(Contender::Redis).contains("--save  --appendonly no"));
    }
}
