//! The servers that are compared: how each is started with so much memory and SSD.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustix::thread::CpuSet;
use stratakv_bench::wire::Protocol;

use crate::pinned::{PinnedServer, Running};
use crate::program;

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// `stratakv serve --engine tier`.
    Tier,
    /// `stratakv serve --engine slab`: acknowledged when it is durable.
    Slab,
    /// memcached, in memory only.
    Memcached,
    /// memcached with its second level on the SSD.
    Extstore,
    /// Redis, in memory only, without persistence.
    Redis,
}

/// What a server may have.
#[derive(Clone, Copy, Debug)]
pub struct Room<'a> {
    /// Memory.
    pub memory_bytes: u64,
    /// SSD, of those that use it.
    pub ssd_bytes: u64,
    /// The cores it runs on; it has a thread for each.
    pub cores: &'a [usize],
}

impl Baseline {
    /// All of them.
    pub const ALL: [Baseline; 5] =
        [Baseline::Tier, Baseline::Slab, Baseline::Memcached, Baseline::Extstore, Baseline::Redis];

    /// Its name on command lines and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Baseline::Tier => "tier",
            Baseline::Slab => "slab",
            Baseline::Memcached => "memcached",
            Baseline::Extstore => "extstore",
            Baseline::Redis => "redis",
        }
    }

    /// Whether it uses an SSD.
    pub fn has_ssd(self) -> bool {
        matches!(self, Baseline::Tier | Baseline::Slab | Baseline::Extstore)
    }

    /// How fast records are loaded, if it drops those that it cannot write to its SSD in time: then
    /// gets would find little there to be measured by.
    pub fn load_bytes_per_s(self) -> Option<u64> {
        (self == Baseline::Extstore).then_some(64 << 20)
    }

    /// What it speaks.
    pub fn protocol(self) -> Protocol {
        if self == Baseline::Redis { Protocol::Resp } else { Protocol::Memcache }
    }

    fn program(self) -> PathBuf {
        match self {
            Baseline::Tier | Baseline::Slab => program::binary().to_owned(),
            Baseline::Memcached | Baseline::Extstore => "memcached".into(),
            Baseline::Redis => "redis-server".into(),
        }
    }

    /// The options that give it a thread for each core, this address and this room.
    fn arguments(self, place: &Path, address: SocketAddr, room: Room<'_>) -> Vec<String> {
        let place = place.display();
        let Room { memory_bytes, ssd_bytes, cores } = room;
        let threads = cores.len();
        let (mib, port) = (memory_bytes >> 20, address.port());
        // As root memcached wants to be told as whom to run.
        let memcached = format!("-l 127.0.0.1 -p {port} -U 0 -u root -t {threads} -c 1100 -I 2m -m {mib}");
        let ours = format!(
            "--threads {threads} --shards {threads} --item-bytes-max 2M --memory {memory_bytes} --capacity {ssd_bytes}"
        );
        let line = match self {
            Baseline::Tier => format!("serve --engine tier {ours} --memcache {address} --data {place}/store"),
            Baseline::Slab => {
                format!("serve --engine slab --placement packed {ours} --memcache {address} --data {place}/store")
            }
            Baseline::Memcached => memcached,
            Baseline::Extstore => {
                format!("{memcached} -o ext_page_size=16,ext_threads=4,ext_path={place}/extstore:{}m", ssd_bytes >> 20)
            }
            Baseline::Redis => format!(
                "--port {port} --bind 127.0.0.1 --io-threads {threads} --save  --appendonly no --maxmemory {memory_bytes} --maxmemory-policy allkeys-lru --dir {place}"
            ),
        };
        // Two blanks: an empty argument.
        line.split(' ').map(str::to_owned).collect()
    }

    /// Starts it in a new directory and waits until it takes connections.
    ///
    /// # Errors
    /// It cannot be started, or ends.
    pub fn start(self, place: &Path, room: Room<'_>) -> Result<Running, String> {
        let server = PinnedServer { name: self.name(), program: &self.program(), cores: room.cores };
        server.start(place, |place, address| self.arguments(place, address, room))
    }
}

/// From now on this process runs on one core only, and what it starts too unless told otherwise.
///
/// # Errors
/// It may not.
pub fn pin_this_process(core: usize) -> Result<(), String> {
    let mut set = CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).map_err(|error| format!("cannot run on core {core}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gets_its_room_in_its_own_words() {
        let room = Room { memory_bytes: 128 << 20, ssd_bytes: 2 << 30, cores: &[0, 1] };
        let address = "127.0.0.1:11311".parse().expect("an address");
        let said = |baseline: Baseline| baseline.arguments(Path::new("/x"), address, room);
        let has = |baseline: Baseline, pair: [&str; 2]| said(baseline).windows(2).any(|words| words == pair);
        assert!(has(Baseline::Tier, ["--memory", "134217728"]) && has(Baseline::Tier, ["--capacity", "2147483648"]));
        assert!(has(Baseline::Slab, ["--engine", "slab"]) && has(Baseline::Slab, ["--memcache", "127.0.0.1:11311"]));
        assert!(has(Baseline::Memcached, ["-m", "128"]) && !said(Baseline::Memcached).contains(&"-o".to_owned()));
        assert!(has(Baseline::Extstore, ["-o", "ext_page_size=16,ext_threads=4,ext_path=/x/extstore:2048m"]));
        assert!(has(Baseline::Tier, ["--threads", "2"]) && has(Baseline::Extstore, ["-t", "2"]));
        assert!(has(Baseline::Redis, ["--save", ""]) && has(Baseline::Redis, ["--maxmemory", "134217728"]));
    }
}
