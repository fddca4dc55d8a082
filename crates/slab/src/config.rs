//! What a shard is told when it is opened, and what opening and checking find.

use stratakv_base::{Corruption, Key, Unreadable};
use stratakv_device::Geometry;

/// How often the index is written down with placement `packed`, so that opening need not read the
/// log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointPace {
    /// The log grows by so many bytes at least from one checkpoint to the next.
    pub log_bytes_min: u64,
    /// And by so many times what a checkpoint takes at most, which is spread over all of it.
    pub times: u32,
    /// Bytes of keys written down in a tick at most, 64 KiB in any case.
    pub step_bytes: u32,
}

impl Default for CheckpointPace {
    fn default() -> CheckpointPace {
        CheckpointPace { log_bytes_min: 8 << 20, times: 6, step_bytes: 64 << 10 }
    }
}

/// How free pages that are not needed go back to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscardPace {
    /// So long, in nanoseconds, most of the volume must have been free.
    pub after_ns: u64,
    /// At most so many bytes a second.
    pub bytes_per_second: u64,
    /// A file of so many bytes or fewer stays as it is.
    pub kept_bytes: u64,
}

impl Default for DiscardPace {
    fn default() -> DiscardPace {
        DiscardPace { after_ns: 10_000_000_000, bytes_per_second: 64 << 20, kept_bytes: 16 << 20 }
    }
}

/// How to create or open one shard's volume.
#[derive(Clone, Debug)]
pub struct SlabConfig {
    /// The store's identity; seeds every checksum.
    pub uuid: [u8; 16],
    /// This shard's number.
    pub shard: u32,
    /// Shards of the store.
    pub shards: u32,
    /// The device under the volume.
    pub geometry: Geometry,
    /// Index, page table and cache of this shard together, in bytes.
    pub memory_bytes: u64,
    /// Most page reads in flight, and most page writes of one commit group; 32 is a good value.
    pub depth: u32,
    /// The volume grows to this many bytes at most.
    pub capacity_bytes: Option<u64>,
    /// Length of the volume now, in bytes.
    pub volume_bytes: u64,
    /// Free pages go back to the file system, so that the file takes less; `None`: never.
    pub discards: Option<DiscardPace>,
    /// For placement `packed`.
    pub checkpoints: CheckpointPace,
    /// For placement `packed`: scans lay neighbours together only if they have lately read so many
    /// records for each one that was written.
    pub scanned_per_write_min: u32,
    /// Keep records that were read or written in memory, with placement `packed`. Always, but where
    /// a test wants reads to reach the medium.
    pub record_cache: bool,
    /// Refuse changes and write nothing, not even superblocks.
    pub read_only: bool,
    /// Check mode: recovery also compares its own accounting ([`crate::Slab::check`] is complete
    /// right after opening).
    pub verify: bool,
}

/// With fewer, more than one of eight records has been written elsewhere when the next scan comes,
/// so each scan would lay its page again: see `RECORDS_OF_READ_MIN` in `packed/recluster.rs`.
pub const SCANNED_PER_WRITE_MIN: u32 = 8;

/// Keys of lost records that are named; all are counted.
pub(crate) const LOST_MAX: usize = 100;

/// What recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The volume was closed in order.
    pub clean: bool,
    /// Writes that were under way at the crash and are void.
    pub torn: u64,
    /// Damage to data that was durable.
    pub corrupt: Vec<Corruption>,
    /// What the device did not give: opened for reading only, the rest is served.
    pub unreadable: Vec<Unreadable>,
    /// Keys whose newest record is damaged, so that it cannot be read: the first hundred of them.
    pub lost: Vec<Key>,
    /// How many there are.
    pub lost_records: u64,
    /// Damaged records whose key cannot be read either: older copies may be among them.
    pub lost_unknown: u64,
    /// Live records.
    pub records: u64,
    /// Logical pages.
    pub pages: u64,
    /// Items stored as blobs of pages.
    pub blobs: u64,
    /// Older copies of records still on the medium, to be cleared.
    pub obsolete: u64,
    /// One superblock was damaged and has been written again from the other.
    pub superblock_repaired: bool,
    /// Bytes read.
    pub read_bytes: u64,
    /// What became of its checkpoints.
    pub checkpoint: CheckpointUse,
}

/// What an opening made of checkpoints, of placement `packed`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointUse {
    /// The index comes from a checkpoint: of the log, only what is newer was read.
    pub is_used: bool,
    /// Checkpoints, or what had to be read besides, that were of no use.
    pub refused: u64,
    /// Why everything was read, though there is a checkpoint, or a part of one.
    pub read_in_full: Option<&'static str>,
}

impl RecoveryReport {
    /// The newest record of an encoded key is damaged.
    pub(crate) fn lose(&mut self, key: &[u8]) {
        self.lost_records += 1;
        if self.lost.len() < LOST_MAX {
            self.lost.extend(Key::from_encoded(key));
        }
    }
}

/// Accounting of a shard: what is on the medium, against the index and the space maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Records in the index.
    pub records: u64,
    /// Logical pages.
    pub pages: u64,
    /// Blobs.
    pub blobs: u64,
    /// Pages of blobs.
    pub blob_pages: u64,
    /// Free physical pages.
    pub free_pages: u64,
    /// Physical pages waiting for a flush or a read before they are reused.
    pub deferred_pages: u64,
    /// Physical pages in all (`usable` / 4096).
    pub total_pages: u64,
    /// Older copies not yet cleared.
    pub obsolete: u64,
    /// Damage found on the medium since the volume was opened.
    pub corrupt: Vec<Corruption>,
    /// Sums that do not add up: defects of this program, not of the medium.
    pub mistakes: Vec<String>,
}

impl CheckReport {
    /// No damage, and everything adds up.
    pub fn is_sound(&self) -> bool {
        self.corrupt.is_empty() && self.mistakes.is_empty()
    }
}
