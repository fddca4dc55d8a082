//! Placement `packed`: a log of segments instead of pages that are written again.
//!
//! Records are appended back to back in batches, one contiguous write each; live data is never
//! rewritten in place; the space of what is overwritten or deleted comes back by moving what is
//! alive out of the emptiest segments, a bounded amount inside each group. docs/format-packed.md
//! draws the volume and argues crash safety and pace.

pub(crate) mod addr;
pub(crate) mod batch;
pub(crate) mod check;
pub(crate) mod checkpoint;
pub(crate) mod clean;
pub(crate) mod commit;
pub(crate) mod large;
pub(crate) mod read;
pub(crate) mod recluster;
pub(crate) mod recovery;
pub(crate) mod segment_reader;
pub(crate) mod segments;
pub(crate) mod slices;
pub(crate) mod sort;
pub(crate) mod table;
pub(crate) mod tables;
pub(crate) mod verify;
pub(crate) mod walk;
pub(crate) mod write;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::HashMap;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Corruption, Key};
use stratakv_device::Block;
use stratakv_device::block::ChunkId;
use stratakv_engine::{ChangeKind, Effects, IoOutcome, Record, RecordPart, Reply, Statistic, Token};
use stratakv_index::{CachedAt, RecordCache};

use crate::batch::Needs;
use crate::blob::Shape;
use crate::blob_read::CachedSlice;
use crate::blob_write::ReadyBlob;
use crate::config::{CheckReport, SlabConfig};
use crate::place::RecordPlace;
use crate::placement::{Placement, Scanned};
use crate::read::Waiter;
use crate::record::Meta;
use crate::shard::IndexedShard;
use crate::space::{Extent, SEGMENT_PAGES, Space};
use crate::superblock::Superblock;
use crate::write::{Change, Newest, Stop, Work};
use addr::RecordAddress;
use batch::record_bytes;
use checkpoint::Checkpoints;
use checkpoint::load::LogOpening;
use clean::Cleaner;
use commit::{Append, Appended, AppendedBatch};
use large::LargeValues;
use read::RecordReads;
use recluster::{Origin, Reclusterer};
use recovery::LogGeometry;
use segments::Segments;
use sort::Sorter;
use tables::Tables;

/// What the record cache leaves to batches and reads: two groups of five batches of 256 KiB, 64
/// reads over a page's end (a slice each), a victim.
const IO_BYTES: usize = 8 << 20;
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

/// Free segments that are kept beside those that keep the cleaner quiet.
const SPARE_SEGMENTS: u32 = 4;

/// What a request of this placement is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogIoPurpose {
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
    /// A slice of a segment that becomes part of a sorted run.
    Sort {
        slice: u32,
    },
    /// Of a checkpoint: a chunk, the flush of all of them, the root.
    CheckpointChunk,
    CheckpointFlush,
    CheckpointRoot,
}

/// Counters of this placement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogCounters {
    /// Batches written.
    pub(crate) batches: u64,
    /// Bytes of users' records appended.
    pub(crate) user_bytes: u64,
    /// Bytes of records moved.
    pub(crate) moved_bytes: u64,
    /// Bytes of records appended once more beside their neighbours.
    pub(crate) reclustered_bytes: u64,
    /// Times that all of the log was put in key order, the bytes of records appended for it, and of
    /// segments read.
    pub(crate) sorts: u64,
    pub(crate) sorted_bytes: u64,
    pub(crate) sort_read_bytes: u64,
    /// Bytes that would have been, had there been room.
    pub(crate) refused_bytes: u64,
    /// Bytes of segments read to find what is alive.
    pub(crate) cleaner_read_bytes: u64,
    /// Segments given back.
    pub(crate) segments_freed: u64,
    pub(crate) tombstones_dropped: u64,
    /// Reads of segments that failed, for cleaning or sorting.
    pub(crate) segment_read_errors: u64,
}

/// A shard of engine `packed`.
pub type Packed = IndexedShard<Log>;
/// A place in such a shard.
pub(crate) type LogPlace = RecordPlace<RecordAddress>;

/// What is kept of a key with writes under way.
#[derive(Debug, Default)]
pub(crate) struct PendingRecord {
    /// Of its changes, those in batches that are being written.
    pub(crate) appended: u32,
    /// The newest record, if it waits to be appended or published.
    pub(crate) newest: Option<(Meta, Bytes)>,
}

/// The log, and what is under way with it.
#[derive(Debug)]
pub struct Log {
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
    pub(crate) sorter: Sorter,
    pub(crate) reads: RecordReads,
    /// Records in memory, by their addresses.
    pub(crate) cache: RecordCache,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) counters: LogCounters,
}

impl Log {
    /// Without any record.
    pub(crate) fn new(segment_pages: u32) -> Log {
        Log {
            segments: Segments::new(segment_pages),
            tables: Tables::default(),
            queue: VecDeque::new(),
            queue_bytes: 0,
            last_sequence: 0,
            pointers: HashMap::default(),
            large: LargeValues::default(),
            cleaner: Cleaner::default(),
            reclusterer: Reclusterer::default(),
            sorter: Sorter::default(),
            reads: RecordReads::default(),
            cache: RecordCache::new(),
            checkpoints: Checkpoints::default(),
            counters: LogCounters::default(),
        }
    }
}

impl Placement for Log {
    type Address = RecordAddress;
    type IoPurpose = LogIoPurpose;
    type Member = AppendedBatch;
    type Wait = Infallible;
    type KeyState = PendingRecord;
    type Cached = CachedAt;
    type Origin = Origin;
    type Scanner = LogOpening;

    const NAME: &'static str = "packed";
    /// Users' records and copies, and as a rule that is all.
    const WRITES_THROUGH_MAX: usize = 2;

    fn segment_pages(config: &SlabConfig) -> u32 {
        segment_pages(config.capacity_bytes)
    }

    fn create(superblock: &Superblock) -> (Log, Space) {
        (Log::new(superblock.segment_pages), Space::with_segments(superblock.segment_pages))
    }

    fn scanner(config: &SlabConfig, superblock: &Superblock) -> LogOpening {
        let pages = (superblock.usable_bytes / PAGE_BYTES as u64) as u32;
        let (uuid, shard, segment_pages) = (config.uuid, config.shard, superblock.segment_pages);
        LogOpening::new(LogGeometry { uuid, shard, pages, segment_pages }, superblock.durable, config.verify)
    }

    /// A copy of a table that does not check stays as it is: closing must not wait for it to be
    /// written.
    fn opened_read_only(&mut self) {
        self.tables.abandon();
    }

    fn footprint_bytes(&self) -> usize {
        self.segments.footprint_bytes() + self.pointers.capacity() * 13
    }

    fn working_bytes(&self) -> usize {
        self.cleaner.footprint_bytes()
            + self.reclusterer.bytes()
            + self.sorter.footprint_bytes()
            + self.cache.footprint_bytes()
    }

    fn cached_bytes(&self) -> usize {
        self.cache.slab_page_bytes()
    }

    fn set_limit_bytes(&mut self, config: &SlabConfig, limit: usize) {
        if config.record_cache {
            self.cache.set_limit_bytes(limit - IO_BYTES.min(limit / 2));
        }
    }

    fn drop_chunk(&mut self, chunk: ChunkId) {
        self.cache.drop_chunk(chunk);
    }

    fn cached_record(
        shard: &mut Packed,
        addr: RecordAddress,
        key: &Key,
        part: RecordPart,
        found: Option<Option<CachedAt>>,
    ) -> Option<Result<Record, Corruption>> {
        shard.placement.record(addr, key, part, found).map(Ok)
    }

    fn request_record(shard: &mut Packed, addr: RecordAddress, waiter: Waiter, _: &mut Effects) {
        shard.placement.request_record(addr, waiter);
    }

    fn find_cached(&self, places: impl Iterator<Item = Option<RecordAddress>>) -> Vec<Option<CachedAt>> {
        // No record lies there.
        const NOWHERE: u64 = u64::MAX;
        let at = |addr: Option<RecordAddress>| addr.map_or(NOWHERE, |addr| addr.at);
        self.cache.find_all(&places.map(at).collect::<Vec<u64>>())
    }

    fn origin(&self, addr: RecordAddress) -> Option<Origin> {
        Some((addr, self.segments.generation(addr)))
    }

    fn scanned(shard: &mut Packed, reads: usize, records: &[Scanned<'_, Log>], effects: &Effects) {
        shard.recluster(reads, records, effects);
    }

    fn merge_read(shard: &mut Packed, records: &[Scanned<'_, Log>], effects: &mut Effects) {
        shard.merge_read(records, effects);
    }

    fn cached_slice(&mut self, first: u32, slice: usize, may_lend: bool, effects: &Effects) -> Option<CachedSlice> {
        self.slice(first, slice, may_lend, effects)
    }

    fn cache_slice(&mut self, first: u32, (slice, bytes): (usize, usize), block: &Arc<Block>, effects: &Effects) {
        self.keep_slice((first, slice), bytes, block, effects);
    }

    fn pins(&self, extent: &Extent) -> bool {
        self.reads.pins(extent) || self.sorter.pins(extent.first / self.segments.pages)
    }

    fn give_up(&mut self, has_left: &dyn Fn(Token) -> bool) -> Vec<Token> {
        self.reads.give_up(has_left)
    }

    fn pump_reads(shard: &mut Packed, effects: &mut Effects) {
        shard.pump_record_reads(effects);
    }

    fn current(
        shard: &mut Packed,
        work: &mut Work,
        place: LogPlace,
        newest: &Newest<Log>,
    ) -> Result<(Meta, Bytes), Stop<Log>> {
        shard.current(work, place, newest)
    }

    fn put(
        shard: &mut Packed,
        work: &mut Work,
        newest: &Newest<Log>,
        record: (Meta, &Bytes),
        reply: &dyn Fn(u64) -> Reply,
        effects: &mut Effects,
    ) -> Result<(), Stop<Log>> {
        shard.put_record(work, newest, record, reply, effects)
    }

    fn delete(
        shard: &mut Packed,
        work: &mut Work,
        _: LogPlace,
        newest: &Newest<Log>,
        effects: &mut Effects,
    ) -> Result<(), Stop<Log>> {
        shard.delete_record(work, newest, effects)
    }

    fn wait(_: &mut Packed, _: Key, wait: Infallible, _: &mut Effects) {
        match wait {}
    }

    fn blob_written(shard: &mut Packed, blob: ReadyBlob<Log>, effects: &mut Effects) {
        shard.write_blob_head(blob, effects);
    }

    fn claim_for_blobs(shard: &mut Packed, extent: Extent) {
        shard.claim_for_blobs(extent);
    }

    fn blobs_may_lie_at(&self, extent: Extent) -> bool {
        self.allows_blobs_at(extent)
    }

    fn pump_writes(shard: &mut Packed, effects: &mut Effects) {
        shard.pump_blob_writes(effects);
        shard.grow(effects);
        shard.pump_cleaner(effects);
        shard.pump_sorter(effects);
        shard.pump_checkpoint(effects);
        shard.pump_tables(effects);
        shard.seal(effects);
        shard.pump_flush(effects);
        // What writes have asked for since.
        shard.pump_record_reads(effects);
        if shard.placement.checkpoints.must_give_way() && shard.io.is_empty() {
            effects.more();
        }
    }

    fn publish(shard: &mut Packed, members: Vec<AppendedBatch>, group: u64, effects: &mut Effects) {
        shard.publish_batches(members, group, effects);
    }

    fn wants_flush(&self) -> bool {
        self.large.wants_flush()
    }

    fn is_short_of_space(shard: &Packed) -> bool {
        shard.spare_segments() <= clean::LOW
    }

    fn flush_begun(&mut self) {
        self.large.flush_begun();
    }

    fn flush_done(shard: &mut Packed) {
        shard.blobs_flushed();
    }

    fn complete(shard: &mut Packed, purpose: LogIoPurpose, outcome: IoOutcome, effects: &mut Effects) {
        match (purpose, outcome) {
            (LogIoPurpose::Record { read }, IoOutcome::Read(block, result)) => {
                shard.record_read(read, block, result, effects)
            }
            (LogIoPurpose::Victim { slice }, IoOutcome::Read(block, result)) => {
                shard.victim_read(slice, &block, result);
            }
            (LogIoPurpose::Sort { slice }, IoOutcome::Read(block, result)) => {
                shard.sort_read(slice, &block, result, effects);
            }
            (LogIoPurpose::Table { zone }, IoOutcome::Write(result)) => shard.table_written(zone, result, effects),
            (LogIoPurpose::BlobHead { number }, IoOutcome::Write(result)) => {
                shard.blob_head_written(number, result, effects)
            }
            (LogIoPurpose::CheckpointChunk, IoOutcome::Write(result)) => shard.checkpoint_written(false, result),
            (LogIoPurpose::CheckpointRoot, IoOutcome::Write(result)) => shard.checkpoint_written(true, result),
            (LogIoPurpose::CheckpointFlush, IoOutcome::Flush(result)) => shard.checkpoint_flushed(result, effects),
            (purpose, outcome) => {
                debug_assert!(false, "{outcome:?} for {purpose:?}");
            }
        }
    }

    fn each_origin(batch: &AppendedBatch, each: &mut dyn FnMut(crate::write::Origin)) {
        for appended in &batch.appended {
            if let Appended::Change { change: Change { ack: Some(ack), .. }, .. } = appended {
                each(ack.origin);
            }
        }
    }

    fn changes_of(batch: AppendedBatch) -> Vec<Change<Log>> {
        let changes = batch.appended.into_iter().filter_map(|appended| match appended {
            Appended::Change { change, .. } => Some(change),
            Appended::Moved(_) => None,
        });
        changes.collect()
    }

    fn abandon(&mut self) -> Vec<Change<Log>> {
        self.queue_bytes = 0;
        self.tables.abandon();
        self.cleaner.abandon();
        self.sorter.abandon();
        let queue = std::mem::take(&mut self.queue).into_iter().map(|append| append.change);
        queue.chain(self.large.abandon()).collect()
    }

    /// Bytes of records and pages of blobs that changes take, and bytes of the commit-done record.
    fn needs(&self, changes: &[stratakv_engine::Change], done_bytes: usize) -> Needs {
        let inline = inline_bytes(self.segments.pages);
        let mut bytes = record_bytes(&Meta::default(), 17, done_bytes);
        let mut blobs = vec![0; changes.len()];
        for (change, blob) in changes.iter().zip(&mut blobs) {
            let key_bytes = change.key.encoded().len();
            let mut meta = Meta { version: 1, ..Meta::default() };
            let mut value_bytes = 8;
            if let ChangeKind::Put { value, flags, expiry } = &change.kind {
                (meta.flags, meta.expiry, value_bytes) = (*flags, expiry.0, value.len());
                if record_bytes(&meta, key_bytes, value_bytes) > inline {
                    *blob = Shape::new(key_bytes, value_bytes).pages();
                    value_bytes = 12;
                }
            }
            bytes += record_bytes(&meta, key_bytes, value_bytes);
        }
        Needs { pages: 0, bytes: bytes as u64 + bytes as u64 / 16, blobs }
    }

    fn can_reserve(shard: &Packed, needs: &Needs) -> bool {
        shard.can_reserve(needs.bytes, needs.blob_pages())
    }

    fn wants_growth(shard: &Packed) -> bool {
        shard.wants_growth()
    }

    fn use_of_space(shard: &Packed) -> (u64, u64) {
        shard.use_of_space()
    }

    fn has_spare_extents(shard: &Packed) -> bool {
        has_spare_segments(shard) && !shard.has_few_segments(shard.space.whole_segments() - 1)
    }

    fn condenses(shard: &mut Packed) -> bool {
        // It makes whole segments of pieces, and no more segments.
        !has_spare_segments(shard) && shard.condense()
    }

    fn extended(shard: &mut Packed) {
        shard.log_extended();
    }

    fn makes_space(shard: &mut Packed) -> bool {
        shard.checkpoints_give_way()
    }

    fn has_late_space(shard: &Packed) -> bool {
        shard.has_late_space()
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.reads.is_idle() && self.large.is_idle() && self.tables.is_idle()
    }

    fn is_starved(shard: &Packed) -> bool {
        shard.placement.reads.is_starved(shard.io.len())
    }

    fn delays_close(shard: &mut Packed, effects: &mut Effects) -> bool {
        shard.closing_checkpoint(effects)
    }

    fn digest(shard: &Packed) -> u64 {
        recovery::log_digest(&shard.placement, &shard.index)
    }

    fn check(shard: &Packed, report: &mut CheckReport, mistakes: &mut Vec<String>) -> u64 {
        shard.check_log(report, mistakes)
    }

    fn statistics(&self, out: &mut Vec<Statistic>) {
        self.append_statistics(out);
    }
}

/// Whether more are free as a whole than keep the cleaner quiet.
fn has_spare_segments(shard: &Packed) -> bool {
    shard.space.whole_segments() > shard.spare_high() + SPARE_SEGMENTS
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
