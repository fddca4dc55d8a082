//! Stores of today that are Rust crates: fjall 3 (an LSM tree), redb 4 (a copy-on-write B+tree) and
//! LMDB by heed (a memory-mapped one).
//!
//! All three read through the kernel's cache, so a [`MemoryGroup`] holds each with its pages to the
//! memory of the others.
#![expect(unsafe_code, reason = "LMDB maps a file that others could change")]

use std::path::Path;
use std::sync::Arc;

use fjall::config::CompressionPolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use heed::types::Bytes;
use heed::{EnvFlags, EnvOpenOptions, WithTls};
use redb::{Durability, ReadableDatabase, TableDefinition};
use stratakv_bench::BenchError;
use stratakv_bench::target::{Front, OperationOutcome};

use crate::memory::MemoryGroup;
use crate::subject::Means;

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// fjall. Without `sync` the kernel has its journal.
    Fjall,
    /// redb. Without `sync` nothing but its cache has a write: it survives no crash.
    Redb,
    /// LMDB. Without `sync` the kernel has its pages.
    Lmdb,
}

impl Peer {
    /// As it stands in tables.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Fjall => "fjall",
            Peer::Redb => "redb",
            Peer::Lmdb => "lmdb",
        }
    }
}

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
/// Beside a store's own memory: the program, its threads and histograms.
const PROGRAM_BYTES: u64 = 64 << 20;

fn wrong(error: impl std::fmt::Display) -> BenchError {
    BenchError::Wrong(error.to_string())
}

/// The store itself.
#[derive(Clone)]
enum Handle {
    Fjall(Database, Keyspace),
    Redb(Arc<redb::Database>),
    Lmdb(heed::Env<WithTls>, heed::Database<Bytes, Bytes>),
}

/// An open store, and whether its writes wait for the device.
pub struct PeerStore {
    handle: Handle,
    peer: Peer,
    sync: bool,
    /// Left when the store has been closed.
    _group: MemoryGroup,
}

impl PeerStore {
    /// Opens or creates it with the settings that its documentation recommends: no compression,
    /// since the values do not compress; a quarter of the memory as cache (fjall) or half of it
    /// (redb). What is left is for memtables and the kernel's pages.
    ///
    /// # Errors
    /// The store's own; no control group.
    pub fn open(peer: Peer, directory: &Path, means: &Means, sync: bool) -> Result<PeerStore, BenchError> {
        // fjall's memtables pile up while it is written to, whatever its settings say.
        let times = if peer == Peer::Fjall { 2 } else { 1 };
        let group = MemoryGroup::enter(times * means.memory_bytes + PROGRAM_BYTES)?;
        let handle = match peer {
            Peer::Fjall => open_fjall(directory, means)?,
            Peer::Redb => {
                let cache = usize::try_from(means.memory_bytes / 2).map_err(wrong)?;
                let db = redb::Database::builder().set_cache_size(cache).create(directory.join("redb"));
                Handle::Redb(Arc::new(db.map_err(wrong)?))
            }
            Peer::Lmdb => open_lmdb(directory, means, sync)?,
        };
        Ok(PeerStore { handle, peer, sync, _group: group })
    }

    /// As it stands in reports.
    pub fn name(&self) -> &'static str {
        self.peer.name()
    }

    /// One thread's way in.
    pub fn target(&self) -> PeerTarget {
        PeerTarget { handle: self.handle.clone(), sync: self.sync, done: Vec::new() }
    }

    /// Everything durable, everything closed.
    ///
    /// # Errors
    /// The store's own.
    pub fn close(self) -> Result<(), BenchError> {
        match &self.handle {
            Handle::Fjall(db, _) => db.persist(PersistMode::SyncAll).map_err(wrong),
            // What was committed without durability becomes durable with the next that has it.
            Handle::Redb(db) => db.begin_write().map_err(wrong)?.commit().map_err(wrong),
            Handle::Lmdb(env, _) => env.force_sync().map_err(wrong),
        }
    }
}

fn open_fjall(directory: &Path, means: &Means) -> Result<Handle, BenchError> {
    let db = Database::builder(directory)
        .cache_size(means.memory_bytes / 4)
        .worker_threads(means.cores)
        .open()
        .map_err(wrong)?;
    let options = || {
        KeyspaceCreateOptions::default()
            .data_block_compression_policy(CompressionPolicy::disabled())
            .max_memtable_size((means.memory_bytes / 16).clamp(2 << 20, 64 << 20))
    };
    let records = db.keyspace("records", options).map_err(wrong)?;
    Ok(Handle::Fjall(db, records))
}

fn open_lmdb(directory: &Path, means: &Means, sync: bool) -> Result<Handle, BenchError> {
    let mut options = EnvOpenOptions::new();
    // Address space, not memory.
    options.map_size(1 << 40).max_readers(u32::try_from(means.clients + 64).map_err(wrong)?);
    let flags = if sync { EnvFlags::empty() } else { EnvFlags::NO_SYNC };
    // SAFETY: the file is this comparison's alone, and mapped once in this process. Without
    // read-ahead, since records are read at random; without syncs, a crash of the machine would
    // damage what is made anew for each comparison anyway.
    let env = unsafe { options.flags(flags | EnvFlags::NO_READ_AHEAD).open(directory) }.map_err(wrong)?;
    let mut transaction = env.write_txn().map_err(wrong)?;
    let records = env.create_database(&mut transaction, None).map_err(wrong)?;
    transaction.commit().map_err(wrong)?;
    Ok(Handle::Lmdb(env, records))
}

/// One thread's way in: a request is done when it has been submitted.
pub struct PeerTarget {
    handle: Handle,
    sync: bool,
    done: Vec<(u64, OperationOutcome)>,
}

fn found(value: Option<&[u8]>) -> OperationOutcome {
    value.map_or_else(OperationOutcome::default, |value| OperationOutcome { records: 1, front: Front::of(value) })
}

/// Looks at a record of a scan as a client would: takes a copy of its value.
fn take(value: &[u8]) {
    std::hint::black_box(value.to_vec());
}

impl PeerTarget {
    fn get(&self, key: &[u8]) -> Result<OperationOutcome, BenchError> {
        Ok(match &self.handle {
            Handle::Fjall(_, records) => found(records.get(key).map_err(wrong)?.as_deref()),
            Handle::Redb(db) => {
                let table = db.begin_read().map_err(wrong)?.open_table(RECORDS);
                match table {
                    Ok(table) => found(table.get(key).map_err(wrong)?.as_ref().map(|value| value.value())),
                    // Nothing was written yet.
                    Err(redb::TableError::TableDoesNotExist(_)) => OperationOutcome::default(),
                    Err(error) => return Err(wrong(error)),
                }
            }
            Handle::Lmdb(env, records) => {
                let transaction = env.read_txn().map_err(wrong)?;
                found(records.get(&transaction, key).map_err(wrong)?)
            }
        })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<OperationOutcome, BenchError> {
        match &self.handle {
            Handle::Fjall(db, records) => {
                records.insert(key, value).map_err(wrong)?;
                if self.sync {
                    db.persist(PersistMode::SyncData).map_err(wrong)?;
                }
            }
            Handle::Redb(db) => {
                let mut transaction = db.begin_write().map_err(wrong)?;
                let durability = if self.sync { Durability::Immediate } else { Durability::None };
                transaction.set_durability(durability).map_err(wrong)?;
                transaction.open_table(RECORDS).map_err(wrong)?.insert(key, value).map_err(wrong)?;
                transaction.commit().map_err(wrong)?;
            }
            Handle::Lmdb(env, records) => {
                let mut transaction = env.write_txn().map_err(wrong)?;
                records.put(&mut transaction, key, value).map_err(wrong)?;
                transaction.commit().map_err(wrong)?;
            }
        }
        Ok(OperationOutcome::default())
    }

    fn scan(&self, key: &[u8], len: u32) -> Result<OperationOutcome, BenchError> {
        let (mut records_read, most) = (0, len as usize);
        match &self.handle {
            Handle::Fjall(_, records) => {
                for record in records.range(key..).take(most) {
                    take(&record.value().map_err(wrong)?);
                    records_read += 1;
                }
            }
            Handle::Redb(db) => {
                let table = db.begin_read().map_err(wrong)?.open_table(RECORDS).map_err(wrong)?;
                for record in table.range(key..).map_err(wrong)?.take(most) {
                    take(record.map_err(wrong)?.1.value());
                    records_read += 1;
                }
            }
            Handle::Lmdb(env, records) => {
                let transaction = env.read_txn().map_err(wrong)?;
                let range = (std::ops::Bound::Included(key), std::ops::Bound::Unbounded);
                for record in records.range(&transaction, &range).map_err(wrong)?.take(most) {
                    take(record.map_err(wrong)?.1);
                    records_read += 1;
                }
            }
        }
        Ok(OperationOutcome { records: records_read, ..OperationOutcome::default() })
    }
}

crate::at_once::answers_at_once!(PeerTarget);
