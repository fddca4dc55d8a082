//! What a shard is told when it is opened, and what opening finds.

use stratakv_base::limits::{KEY_BYTES_MAX, PAGE_BYTES, SLICE_BYTES, VALUE_BYTES_MAX};
use stratakv_device::block::CHUNK_BYTES;

use crate::ghost_queue::GhostQueue;

/// Memory and volume have room for so many segments: what is being filled, and what is kept free,
/// is a small part of them.
const SEGMENTS_MIN: u64 = 64;

/// How to create or open one shard.
#[derive(Clone, Debug)]
pub struct TierConfig {
    /// The store's identity; seeds every checksum.
    pub uuid: [u8; 16],
    /// This shard's number.
    pub shard: u32,
    /// Shards of the store.
    pub shards: u32,
    /// Segments in DRAM, index, ghost queue and blocks for reads of this shard together, in bytes:
    /// a hard cap. The index has seven sixteenths of it at most; when it has no room for more, the
    /// oldest segment of the volume goes.
    pub memory_bytes: u64,
    /// Most reads in flight; 32 is a good value.
    pub depth: u32,
    /// Length of the volume, in bytes: a hard cap. `None`: there is no second tier, and a restart
    /// finds what `saves_at_shutdown` says.
    pub capacity_bytes: Option<u64>,
    /// Without a second tier, an orderly end writes what DRAM holds to the volume, and the next
    /// opening brings it back. The volume is not used in between. After any other end a restart
    /// finds nothing.
    pub saves_at_shutdown: bool,
    /// Length of a segment in DRAM, in bytes; 1 MiB is a good value. Cut down where memory has no
    /// room for sixty-four.
    pub segment_bytes: u32,
    /// While items that nothing has superseded take less than this share of what segments may take,
    /// in percent, superseded ones are collected before anything leaves DRAM; 66 is a good value:
    /// then the oldest segments have some in any mix of writes that come back to their keys, and of
    /// uniform ones are 40 % alive. 0: never, and no item is written where its predecessor lies.
    pub collected_percent: u32,
    /// Identity of the running system, on Linux `/proc/sys/kernel/random/boot_id`. What a shard
    /// that was not closed in order left on its volume counts only if it is the same: then the
    /// system kept running, and every write that was issued is there. `None`: it never counts.
    pub boot: Option<[u8; 16]>,
    /// What is on the volume is forgotten, whatever it is.
    pub begins_empty: bool,
    /// Refuse changes and write nothing.
    pub read_only: bool,
}

impl TierConfig {
    /// Bytes of a segment, as used: a multiple of a block.
    pub(crate) fn segment_len(&self) -> usize {
        let share = self.memory_bytes.min(self.capacity_bytes.unwrap_or(u64::MAX)) / SEGMENTS_MIN;
        let wanted = u64::from(self.segment_bytes).min(share).max(2 * PAGE_BYTES as u64) as usize;
        let block = if wanted >= SLICE_BYTES { SLICE_BYTES } else { PAGE_BYTES };
        wanted / block * block
    }

    /// Length of the slices by which long values are checked and read, as a power of two: 64 KiB,
    /// less where segments are short.
    pub(crate) fn slice_shift(&self) -> u32 {
        (self.segment_len() / 4).clamp(PAGE_BYTES, SLICE_BYTES).ilog2()
    }

    /// Items longer than this have slices. They have a segment of their own, so they begin with a
    /// page.
    pub(crate) fn sliced_from(&self) -> usize {
        (self.segment_len() / 4).max(2 << self.slice_shift())
    }

    /// Most that the index takes, in bytes: seven sixteenths of the memory.
    pub(crate) fn index_bytes_max(&self) -> u64 {
        self.memory_bytes / 16 * 7
    }

    /// Memory kept for reads and for what is written around segments, in bytes.
    pub(crate) fn blocks_bytes(&self) -> u64 {
        // The pool lends pages and slices from chunks of their own: one chunk may be of the wrong
        // kind.
        self.requests_bytes() + (self.memory_bytes / 8).min(CHUNK_BYTES as u64)
    }

    fn requests_bytes(&self) -> u64 {
        (self.memory_bytes / 16).max(2 * self.segment_len() as u64)
    }

    /// Bytes of blocks that the pool can lend to segments, in whole chunks, when so many bytes of
    /// the memory are not the pool's.
    pub(crate) fn lent_bytes(&self, apart_bytes: u64) -> u64 {
        let chunks = (self.memory_bytes.saturating_sub(apart_bytes) / CHUNK_BYTES as u64).max(2);
        ((chunks - 1) * CHUNK_BYTES as u64).saturating_sub(self.requests_bytes())
    }

    /// What is left for segments, in bytes, however long the index grows.
    pub(crate) fn segments_bytes_min(&self) -> u64 {
        let apart = self.index_bytes_max() + GhostQueue::bytes_of(self.memory_bytes) + self.blocks_bytes();
        self.memory_bytes.saturating_sub(apart)
    }

    /// The longest item, in bytes, that has a place: the limit of all engines, or half of what
    /// segments have in any case. The other half is what may have to stay beside it: what is about
    /// to be written, and blocks that are not full.
    pub(crate) fn item_bytes_max(&self) -> u64 {
        let limit = (VALUE_BYTES_MAX + KEY_BYTES_MAX + 256 + (8 << 10)) as u64;
        limit.min(self.segments_bytes_min() / 2)
    }
}

/// How an opening came to what it found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// A new volume.
    #[default]
    Created,
    /// Closed in order: everything that was spilled, or saved, is there.
    Clean,
    /// The process died and the system ran on: what is provably newest is there.
    Recovered,
    /// Nothing on the volume counts: the power may have failed, or the volume has another length
    /// than before.
    Emptied,
}

/// What opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// How it began.
    pub start: Start,
    /// Items in the index.
    pub items: u64,
    /// Segments on the volume.
    pub segments: u64,
    /// Segments that were there and do not count: their invalidations are no longer on record, or
    /// they are damaged.
    pub untrusted_segments: u64,
    /// Items that were there and do not count: something newer was acknowledged.
    pub invalidated: u64,
    /// Bytes read.
    pub read_bytes: u64,
}
