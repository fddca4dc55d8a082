//! What a shard is told when it is opened, and what opening finds.

use stratakv_base::{Corruption, Unreadable};

use crate::pairing::Loss;

/// What becomes of the data blocks of tables that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// They are written as they are.
    #[default]
    None,
    /// They are compressed by LZ4, where that makes them shorter.
    Lz4,
}

/// How to create or open one shard.
#[derive(Clone, Debug)]
pub struct MatrixConfig {
    /// The store's identity; seeds every checksum.
    pub uuid: [u8; 16],
    /// This shard's number.
    pub shard: u32,
    /// Shards of the store.
    pub shards: u32,
    /// Indexes, tables' facts and cache of this shard together, in bytes.
    pub memory_bytes: u64,
    /// Most reads in flight.
    pub depth: u32,
    /// The volume grows to this many bytes at most.
    pub capacity_bytes: Option<u64>,
    /// A memtable becomes a row when its records take so many bytes.
    pub row_bytes: u64,
    /// A table is ended when it has so many bytes, or would if nothing of it were compressed.
    pub table_bytes: u64,
    /// The first level may have so many bytes, each further level ten times as many. With PMEM
    /// levels: see `pmem_levels_bytes`.
    pub level_bytes: u64,
    /// Of a new shard: so many bytes at the end of its region are the PMEM levels', for tables of
    /// the first levels; 0 for none. Of one that exists the container's superblock says it.
    pub pmem_levels_bytes: u64,
    /// A range with more keys is deleted with one record; fewer are deleted one by one, since a
    /// range in force costs each read something.
    pub range_keys_few: usize,
    /// Of tables that are written from now on. What is there is read whatever it is, and stays
    /// until it is compacted.
    pub compression: Compression,
    /// Refuse changes and write nothing.
    pub read_only: bool,
    /// A number drawn for this opening: see [`Epoch`](crate::pairing::Epoch).
    pub session: u64,
}

/// What opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The shard was closed in order.
    pub clean: bool,
    /// Changes found in the log.
    pub log_records: u64,
    /// Changes at the end of the log that were under way and are void.
    pub torn: u64,
    /// Damage to what was durable.
    pub corrupt: Vec<Corruption>,
    /// Tables on the volume.
    pub tables: u64,
    /// Versions in them.
    pub entries: u64,
    /// What the device did not give, of superblocks and manifests: the other copy counted.
    pub unreadable: Vec<Unreadable>,
    /// One superblock was damaged; the other one counted.
    pub superblock_repaired: bool,
    /// The region was given up, as was asked for.
    pub loss: Option<Loss>,
}
