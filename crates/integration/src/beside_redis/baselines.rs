//! The servers that are compared, and how each is started.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use super::Measure;
use crate::pinned::{PinnedServer, Running};
use crate::program;

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// Redis without persistence.
    Redis,
    /// Redis that answers a write when it is in its log on the disk.
    RedisAlways,
    /// Engine `hash`.
    Hash,
    /// Engine `tier`, whose records fit in memory.
    Tier,
    /// Engine `slab`, placement `packed`, durable at power loss.
    Packed,
    /// Engine `slab`, placement `in_place`, durable at power loss.
    InPlace,
    /// Engine `matrix`, durable at power loss.
    Matrix,
}

/// What a server may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) memory_bytes: u64,
    pub(super) core: usize,
}

impl Baseline {
    /// All of them.
    pub const ALL: [Baseline; 7] = [
        Baseline::Redis,
        Baseline::RedisAlways,
        Baseline::Hash,
        Baseline::Tier,
        Baseline::Packed,
        Baseline::InPlace,
        Baseline::Matrix,
    ];
    /// Those that promise nothing about power loss.
    pub const IN_MEMORY: [Baseline; 3] = [Baseline::Redis, Baseline::Hash, Baseline::Tier];

    /// Its name on command lines and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Baseline::Redis => "redis",
            Baseline::RedisAlways => "redis-always",
            Baseline::Hash => "hash",
            Baseline::Tier => "tier",
            Baseline::Packed => "packed",
            Baseline::InPlace => "slab",
            Baseline::Matrix => "matrix",
        }
    }

    /// Whether it has a command at this length: structures of `tier` are one record.
    pub(super) fn has(self, measure: &Measure) -> bool {
        self != Baseline::Tier || !measure.name.ends_with("long")
    }

    fn is_redis(self) -> bool {
        matches!(self, Baseline::Redis | Baseline::RedisAlways)
    }

    /// The options that give it one thread, this address and this room.
    fn arguments(self, place: &Path, address: SocketAddr, room: Room) -> Vec<String> {
        let (at, port, memory) = (place.display(), address.port(), room.memory_bytes);
        let redis = format!("--port {port} --bind 127.0.0.1 --save  --dir {at}");
        let ours = format!(
            "serve --threads 1 --shards 1 --memory {memory} --memcache unix:{at}/memcache --resp {address} --data {at}/store"
        );
        let line = match self {
            Baseline::Redis => format!("{redis} --appendonly no"),
            Baseline::RedisAlways => {
                format!("{redis} --appendonly yes --appendfsync always --auto-aof-rewrite-percentage 0")
            }
            Baseline::Hash => format!("{ours} --engine hash --region 2G --durability process_crash"),
            Baseline::Tier => format!("{ours} --engine tier --capacity 1G"),
            Baseline::Packed => format!("{ours} --engine slab --placement packed"),
            Baseline::InPlace => format!("{ours} --engine slab --placement in_place"),
            Baseline::Matrix => format!("{ours} --engine matrix"),
        };
        // Two blanks: an empty argument.
        line.split(' ').map(str::to_owned).collect()
    }

    /// Starts it in a new directory and waits until it takes connections.
    ///
    /// # Errors
    /// It cannot be started, or ends.
    pub(super) fn start(self, place: &Path, room: Room) -> Result<Running, String> {
        // What an earlier run that was ended has left.
        let _ = fs::remove_dir_all(place);
        let cannot = |error| format!("cannot use {}: {error}", place.display());
        fs::create_dir_all(place).map_err(cannot)?;
        let place = fs::canonicalize(place).map_err(cannot)?;
        let program = if self.is_redis() { Path::new("redis-server") } else { program::binary() };
        let server = PinnedServer { name: self.name(), program, cores: &[room.core] };
        server.start(&place, |place, address| self.arguments(place, address, room))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_durable_as_its_name_says() {
        let address = "127.0.0.1:6379".parse().expect("an address");
        let room = Room { memory_bytes: 1 << 30, core: 0 };
        let said = |baseline: Baseline| baseline.arguments(Path::new("/x"), address, room);
        let has = |baseline: Baseline, pair: [&str; 2]| said(baseline).windows(2).any(|words| words == pair);
        assert!(has(Baseline::Redis, ["--save", ""]) && has(Baseline::Redis, ["--appendonly", "no"]));
        assert!(has(Baseline::RedisAlways, ["--appendfsync", "always"]));
        assert!(has(Baseline::Hash, ["--durability", "process_crash"]));
        // The server's own level is power loss.
        assert!(
            [Baseline::Packed, Baseline::InPlace, Baseline::Matrix]
                .iter()
                .all(|baseline| !said(*baseline).contains(&"--durability".to_owned()))
        );
    }
}
