//! Placement `packed`: a log of segments instead of pages that are written again.
//!
//! Records are appended back to back in batches, one contiguous write each; live data is never
//! rewritten in place; the space of what is overwritten or deleted comes back by moving what is
//! alive out of the emptiest segments, a bounded amount inside each group. docs/format-packed.md
//! draws the volume and argues crash safety and pace.
//!
//! The seam to the rest of the engine: a [`RecordPlace::Record`](crate::place::RecordPlace) instead
//! of a slot, and where `Slab` asks `self.packed`: appending instead of sealing pages, forgetting
//! places instead of clearing older copies.

pub(crate) mod addr;
pub(crate) mod append;
pub(crate) mod apply;
pub(crate) mod batch;
pub(crate) mod check;
pub(crate) mod checkpoint;
pub(crate) mod clean;
pub(crate) mod large;
pub(crate) mod read;
pub(crate) mod recluster;
pub(crate) mod recovery;
pub(crate) mod segments;
pub(crate) mod slices;
pub(crate) mod table;
pub(crate) mod tables;
pub(crate) mod verify;
pub(crate) mod walk;
pub(crate) mod write;

use std::collections::VecDeque;

use foldhash::HashMap;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_index::RecordCache;

use crate::slab::new_map;
use crate::space::SEGMENT_PAGES;
use addr::RecordAddress;
use append::Append;
use checkpoint::Checkpoints;
use clean::Cleaner;
use large::LargeValues;
use read::RecordReads;
use recluster::Reclusterer;
use segments::Segments;
use tables::Tables;

/// Longest record in a batch; longer ones become blobs.
const INLINE_BYTES_MAX: usize = 16 << 10;
/// Bytes of a segment that no record can have: both headers of its batch.
const HEADROOM_BYTES: usize = 2 * batch::HEADER_BYTES;
/// A capacity is divided into so many segments, unless they would be larger than 1 MiB.
const SEGMENTS: u64 = 64;
/// Smallest segment.
const SEGMENT_PAGES_MIN: u32 = 4;

/// Pages of a segment, for a volume of at most `capacity_bytes`.
pub(crate) fn segment_pages(capacity_bytes: Option<u64>) -> u32 {
    let pages = capacity_bytes.map_or(u64::MAX, |bytes| bytes / PAGE_BYTES as u64 / SEGMENTS);
    let pages = u32::try_from(pages).unwrap_or(SEGMENT_PAGES).clamp(SEGMENT_PAGES_MIN, SEGMENT_PAGES);
    1 << pages.ilog2()
}

/// What a request of this placement is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PackedIoPurpose {
    /// Pages of records.
    Record {
        read: u64,
    },
    /// A slice of the segment that is cleaned.
    Victim {
        slice: u32,
    },
    /// A copy of a zone's table.
    Table {
        zone: u32,
    },
    /// The head of a blob.
    BlobHead {
        number: u64,
    },
    /// Of a checkpoint: a chunk, the flush of all of them, the root.
    CheckpointChunk,
    CheckpointFlush,
    CheckpointRoot,
}

/// Counters of this placement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PackedCounters {
    /// Batches written.
    pub(crate) batches: u64,
    /// Bytes of users' records appended.
    pub(crate) user_bytes: u64,
    /// Bytes of records moved.
    pub(crate) moved_bytes: u64,
    /// Bytes of records appended once more beside their neighbours.
    pub(crate) reclustered_bytes: u64,
    /// Bytes that would have been, had there been room.
    pub(crate) refused_bytes: u64,
    /// Bytes of segments read to find what is alive.
    pub(crate) cleaner_read_bytes: u64,
    /// Segments given back.
    pub(crate) segments_freed: u64,
    pub(crate) tombstones_dropped: u64,
}

/// The state of a shard with this placement, besides what both placements share.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) segments: Segments,
    pub(crate) tables: Tables,
    /// Records to be appended, in order.
    pub(crate) queue: VecDeque<Append>,
    pub(crate) queue_bytes: u64,
    /// Sequence of the last batch.
    pub(crate) last_sequence: u64,
    /// Where the record of each blob lies, by the blob's first page.
    pub(crate) pointers: HashMap<u32, RecordAddress>,
    pub(crate) large: LargeValues,
    pub(crate) cleaner: Cleaner,
    pub(crate) reclusterer: Reclusterer,
    pub(crate) reads: RecordReads,
    /// Records in memory, by their addresses.
    pub(crate) cache: RecordCache,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) counters: PackedCounters,
}

impl Packed {
    /// Without any record.
    pub(crate) fn new(segment_pages: u32) -> Packed {
        Packed {
            segments: Segments::new(segment_pages),
            tables: Tables::default(),
            queue: VecDeque::new(),
            queue_bytes: 0,
            last_sequence: 0,
            pointers: new_map(),
            large: LargeValues::default(),
            cleaner: Cleaner::default(),
            reclusterer: Reclusterer::default(),
            reads: RecordReads::default(),
            cache: RecordCache::new(),
            checkpoints: Checkpoints::default(),
            counters: PackedCounters::default(),
        }
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.reads.is_idle() && self.large.is_idle() && self.tables.is_idle()
    }

    /// Bytes of memory of what grows with the store.
    pub(crate) fn footprint_bytes(&self) -> usize {
        self.segments.footprint_bytes() + self.pointers.capacity() * 13
    }

    /// Bytes of memory that come and go: they take from the cache, but refuse no write.
    pub(crate) fn working_bytes(&self) -> usize {
        self.cleaner.footprint_bytes() + self.reclusterer.bytes()
    }
}

/// Longest record in a batch of this volume.
pub(crate) fn inline_bytes(segment_pages: u32) -> usize {
    INLINE_BYTES_MAX.min(segment_pages as usize * PAGE_BYTES / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_fit_the_capacity() {
        assert_eq!(segment_pages(None), 256);
        assert_eq!(segment_pages(Some(1 << 40)), 256);
        assert_eq!(segment_pages(Some(64 * 4096)), 4);
        assert_eq!(segment_pages(Some(8 << 20)), 32);
        assert_eq!(segment_pages(Some(100 << 20)), 256);
    }
}
