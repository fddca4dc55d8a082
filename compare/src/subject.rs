//! The stores that are compared, each opened with the same memory.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use stratakv::{CollectionId, Engine, Level, Options, Placement, Store};
use stratakv_bench::BenchError;
use stratakv_bench::environment::StoreSettings;
use stratakv_bench::target::{Kind, Target, Through, Way};

use crate::peer::{Peer, PeerStore};
use crate::rocksdb::{Log, RocksDb, RocksDbTarget, Settings};
use crate::wiredtiger::{WiredTiger, WiredTigerTarget};

/// One column of the comparison: a store, and when it acknowledges a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Ours, placement `in_place` or `packed`.
    Ours(Placement, Level),
    /// Ours, engine `hash`: as durable as its directory's medium lets a process's crash be.
    Hash,
    /// The same, its records in a sorted collection.
    HashSorted,
    /// Ours, engine `matrix`: its region in memory, its tables where the others' are. As durable as
    /// memory lets a process's crash be.
    Matrix,
    /// RocksDB with its log and L0 in that memory, held to as many bytes. `sync`: as
    /// [`Subject::RocksDb`], to that memory.
    RocksDbOverMemory { sync: bool },
    /// RocksDB without a log: what is not in a table file is lost with the process.
    RocksDbWithoutLog,
    /// `sync`: after the log has been flushed; else when it is in the kernel's cache.
    RocksDb { settings: Settings, sync: bool },
    /// As RocksDB, but without `sync` the log may still be in the process.
    WiredTiger { sync: bool },
    /// A store of today, held to the same memory with the kernel's pages of its files. `sync`: on
    /// the device; else as [`Peer`] says.
    Peer { peer: Peer, sync: bool },
}

impl Subject {
    /// All there are.
    pub const ALL: [Subject; 24] = [
        Subject::Ours(Placement::InPlace, Level::PowerLoss),
        Subject::Ours(Placement::Packed, Level::PowerLoss),
        Subject::Ours(Placement::InPlace, Level::ProcessCrash),
        Subject::Ours(Placement::Packed, Level::ProcessCrash),
        Subject::Hash,
        Subject::HashSorted,
        Subject::Matrix,
        Subject::RocksDbOverMemory { sync: true },
        Subject::RocksDbOverMemory { sync: false },
        Subject::RocksDbWithoutLog,
        Subject::RocksDb { settings: Settings::Usual, sync: true },
        Subject::RocksDb { settings: Settings::Usual, sync: false },
        Subject::RocksDb { settings: Settings::Tuned, sync: true },
        Subject::RocksDb { settings: Settings::Tuned, sync: false },
        Subject::RocksDb { settings: Settings::Blobs, sync: true },
        Subject::RocksDb { settings: Settings::Blobs, sync: false },
        Subject::WiredTiger { sync: true },
        Subject::WiredTiger { sync: false },
        Subject::Peer { peer: Peer::Fjall, sync: true },
        Subject::Peer { peer: Peer::Fjall, sync: false },
        Subject::Peer { peer: Peer::Redb, sync: true },
        Subject::Peer { peer: Peer::Redb, sync: false },
        Subject::Peer { peer: Peer::Lmdb, sync: true },
        Subject::Peer { peer: Peer::Lmdb, sync: false },
    ];

    /// Whose data it is: levels of durability of one store serve the same.
    pub fn data_set(self) -> &'static str {
        match self {
            Subject::Ours(Placement::InPlace, _) => "in_place",
            Subject::Ours(Placement::Packed, _) => "packed",
            Subject::Hash => "hash",
            Subject::HashSorted => "hash-sorted",
            Subject::Matrix => "matrix",
            Subject::RocksDbOverMemory { .. } => "rocksdb-over_memory",
            // Without a log it is not what the other two can go on with.
            Subject::RocksDbWithoutLog => "rocksdb-no_log",
            Subject::RocksDb { settings, .. } => settings.name(),
            Subject::WiredTiger { .. } => "wiredtiger",
            Subject::Peer { peer, .. } => peer.name(),
        }
    }

    /// When it acknowledges a write.
    pub fn durability(self) -> &'static str {
        match self {
            Subject::Ours(_, level) => level.name(),
            Subject::Hash | Subject::HashSorted | Subject::Matrix => Level::ProcessCrash.name(),
            Subject::RocksDbWithoutLog => "no log",
            Subject::RocksDbOverMemory { .. } => "log in memory",
            Subject::RocksDb { sync, .. } | Subject::WiredTiger { sync } | Subject::Peer { sync, .. } => {
                if sync {
                    Level::PowerLoss.name()
                } else {
                    "not synced"
                }
            }
        }
    }

    /// Whether it is of this house.
    pub fn is_ours(self) -> bool {
        matches!(self, Subject::Ours(..) | Subject::Hash | Subject::HashSorted | Subject::Matrix)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Subject::Ours(Placement::InPlace, Level::PowerLoss) => "in_place",
            Subject::Ours(Placement::Packed, Level::PowerLoss) => "packed",
            Subject::Ours(Placement::InPlace, _) => "in_place-process_crash",
            Subject::Ours(Placement::Packed, _) => "packed-process_crash",
            Subject::Hash => "hash-process_crash",
            Subject::HashSorted => "hash_sorted-process_crash",
            Subject::Matrix => "matrix-process_crash",
            Subject::RocksDbWithoutLog => "rocksdb-no_log",
            Subject::RocksDbOverMemory { sync } => return write_level(f, "rocksdb_over_memory", *sync),
            Subject::RocksDb { settings, sync } => return write_level(f, settings.name(), *sync),
            Subject::WiredTiger { sync } => return write_level(f, "wiredtiger", *sync),
            Subject::Peer { peer, sync } => return write_level(f, peer.name(), *sync),
        };
        f.write_str(name)
    }
}

fn write_level(f: &mut fmt::Formatter<'_>, name: &str, sync: bool) -> fmt::Result {
    write!(f, "{name}-{}", if sync { "sync" } else { "async" })
}

impl FromStr for Subject {
    type Err = String;
    fn from_str(text: &str) -> Result<Subject, String> {
        let found = Subject::ALL.into_iter().find(|subject| subject.to_string() == text);
        let names = || Subject::ALL.map(|subject| subject.to_string()).join(", ");
        found.ok_or_else(|| format!("unknown store `{text}`: use {}", names()))
    }
}

/// What every store is given.
#[derive(Clone, Debug)]
pub struct Means {
    /// A directory in memory, for what lies in persistent memory.
    pub fast: PathBuf,
    /// Bytes that may lie there: the region of `matrix`.
    pub fast_bytes: u64,
    /// Cap of ours; cache and write buffers of the others.
    pub memory_bytes: u64,
    /// Cap on the volume of `packed`, so that it is as full as asked; 0: none.
    pub capacity_bytes: u64,
    /// Length of the region of `hash`: room for all records and as much again.
    pub region_bytes: u64,
    /// Requests in flight.
    pub clients: usize,
    /// Cores.
    pub cores: usize,
}

/// An open store.
pub enum Opened {
    /// Ours.
    Ours(Store, Level),
    /// Ours, engine `hash`: called in place. The records are in this collection.
    Hash(Store, CollectionId),
    /// RocksDB, and how it writes.
    RocksDb(Arc<RocksDb>, Log),
    /// WiredTiger.
    WiredTiger(Arc<WiredTiger>),
    /// A store of today.
    Peer(PeerStore),
}

/// Most requests that a block store of ours has in flight, all shards together.
pub const DEPTH: u32 = 128;

impl Opened {
    /// Opens or creates `subject` in `directory`.
    ///
    /// # Errors
    /// The store's own.
    pub fn open(subject: Subject, directory: &Path, means: &Means) -> Result<Opened, BenchError> {
        std::fs::create_dir_all(directory)?;
        Ok(match subject {
            Subject::Ours(placement, level) => {
                let capacity = if placement == Placement::Packed { means.capacity_bytes } else { 0 };
                let options = Options::new()
                    .memory_bytes(means.memory_bytes)
                    .shards(means.cores)
                    .depth(DEPTH)
                    .placement(placement)
                    .capacity_bytes(capacity)
                    .level(level);
                Opened::Ours(options.open(directory)?, level)
            }
            Subject::Hash | Subject::HashSorted => {
                let options = Options::new().engine(Engine::Hash).region_bytes(means.region_bytes);
                let options = options.memory_bytes(means.memory_bytes).level(Level::ProcessCrash);
                let store = options.open(directory)?;
                let sorted = (subject == Subject::HashSorted).then(|| store.collection("sorted")).transpose()?;
                let collection = sorted.map(|sorted| sorted.id()).unwrap_or_default();
                Opened::Hash(store, collection)
            }
            Subject::Matrix => {
                std::fs::create_dir_all(&means.fast)?;
                let options = Options::new().engine(Engine::Matrix).region_bytes(means.fast_bytes);
                let options = options.region_path(means.fast.join("region")).shards(means.cores).depth(DEPTH);
                let options = options.memory_bytes(means.memory_bytes).level(Level::ProcessCrash);
                Opened::Ours(options.open(directory)?, Level::ProcessCrash)
            }
            Subject::RocksDbOverMemory { sync } => {
                std::fs::create_dir_all(&means.fast)?;
                let fast = (means.fast.as_path(), means.fast_bytes);
                let db = RocksDb::open_over(directory, fast, means.memory_bytes, means.cores)?;
                Opened::RocksDb(Arc::new(db), if sync { Log::Synchronous } else { Log::Written })
            }
            Subject::RocksDbWithoutLog => {
                let db = RocksDb::open(directory, means.memory_bytes, means.cores, Settings::Usual)?;
                Opened::RocksDb(Arc::new(db), Log::None)
            }
            Subject::RocksDb { settings, sync } => {
                let db = RocksDb::open(directory, means.memory_bytes, means.cores, settings)?;
                Opened::RocksDb(Arc::new(db), if sync { Log::Synchronous } else { Log::Written })
            }
            Subject::WiredTiger { sync } => {
                Opened::WiredTiger(Arc::new(WiredTiger::open(directory, means.memory_bytes, sync, means.clients)?))
            }
            Subject::Peer { peer, sync } => Opened::Peer(PeerStore::open(peer, directory, means, sync)?),
        })
    }

    /// What the memory is that log and first level lie in, if not on the disk.
    pub fn fast_memory(&self, subject: Subject) -> String {
        match (self, subject) {
            (Opened::Ours(store, _) | Opened::Hash(store, _), _) => {
                store.region().map(|region| region.domain.clone()).unwrap_or_default()
            }
            (_, Subject::RocksDbOverMemory { .. }) => "volatile (log and first tables on tmpfs)".into(),
            _ => String::new(),
        }
    }

    /// What it was opened with.
    pub fn settings(&self, subject: Subject, memory_bytes: u64) -> StoreSettings {
        match self {
            Opened::Ours(store, _) | Opened::Hash(store, _) => StoreSettings::of(store, memory_bytes, DEPTH),
            _ => StoreSettings { engine: subject.to_string(), memory_bytes, ..StoreSettings::default() },
        }
    }

    /// What ours tells of itself, by name.
    pub fn statistics(&self) -> BTreeMap<String, u64> {
        match self {
            Opened::Ours(store, _) | Opened::Hash(store, _) => {
                store.stats().into_iter().map(|one| (one.name.into(), one.value)).collect()
            }
            _ => BTreeMap::new(),
        }
    }

    /// Everything durable, everything closed.
    ///
    /// # Errors
    /// The store's own.
    pub fn close(self) -> Result<(), BenchError> {
        match self {
            Opened::Ours(store, _) | Opened::Hash(store, _) => store.close()?,
            Opened::Peer(store) => store.close()?,
            // Closed when they go.
            Opened::RocksDb(..) | Opened::WiredTiger(..) => {}
        }
        Ok(())
    }
}

impl Way for Opened {
    fn name(&self) -> String {
        match self {
            Opened::Ours(..) => "embedded".into(),
            Opened::Hash(..) => "blocking".into(),
            Opened::RocksDb(..) => "RocksDB".into(),
            Opened::WiredTiger(..) => "WiredTiger".into(),
            Opened::Peer(store) => store.name().into(),
        }
    }

    /// Ours has many requests in flight from each thread; the others need a thread for each.
    fn spread(&self, clients: usize, threads: usize) -> (usize, usize) {
        if matches!(self, Opened::Ours(..)) { Kind::Embedded } else { Kind::Blocking }.spread(clients, threads)
    }

    fn store(&self) -> Option<&Store> {
        match self {
            Opened::Ours(store, _) | Opened::Hash(store, ..) => Some(store),
            Opened::RocksDb(..) | Opened::WiredTiger(..) | Opened::Peer(_) => None,
        }
    }

    fn open(&self) -> Result<Box<dyn Target>, BenchError> {
        Ok(match self {
            Opened::Ours(store, level) => {
                return {
                    let (kind, collection) = (Kind::Embedded, CollectionId::default());
                    Through { kind, store: Some(store), collection, level: *level }.open()
                };
            }
            Opened::Hash(store, collection) => {
                let (kind, level) = (Kind::Blocking, Level::ProcessCrash);
                return Through { kind, store: Some(store), collection: *collection, level }.open();
            }
            Opened::RocksDb(db, log) => Box::new(RocksDbTarget::new(Arc::clone(db), *log)),
            Opened::WiredTiger(db) => Box::new(WiredTigerTarget::new(Arc::clone(db))?),
            Opened::Peer(store) => Box::new(store.target()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_its_own() {
        for subject in Subject::ALL {
            assert_eq!(subject.to_string().parse(), Ok(subject));
        }
        assert!("rocksdb".parse::<Subject>().is_err());
    }
}
