//! [`Placement`]: what a shard leaves to the one that lays its records down.
//!
//! Everything else is the same for all placements: the index, commit groups, large values, scans,
//! ranges, batches, backups, growth. A hook stands where placements differ; most take the shard,
//! for they read and change what it has. [`InPlace`](crate::in_place::InPlace) and
//! [`Log`](crate::packed::Log) are the two.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::{Corruption, Key};
use stratakv_device::Block;
use stratakv_device::block::ChunkId;
use stratakv_engine::{Effects, IoOutcome, Record, RecordPart, Reply, Statistic, Token};

use crate::batch::Needs;
use crate::blob_read::CachedSlice;
use crate::blob_write::ReadyBlob;
use crate::config::{CheckReport, SlabConfig};
use crate::opener::Scanner;
use crate::place::{Address, RecordPlace};
use crate::read::Waiter;
use crate::record::Meta;
use crate::shard::IndexedShard;
use crate::space::{Extent, Space};
use crate::superblock::Superblock;
use crate::write::{Change, Newest, Stop, Work};

/// A place as a shard of placement `P` has it in its index.
pub(crate) type PlaceOf<P> = RecordPlace<<P as Placement>::Address>;

/// Where the small records of a shard lie, and what becomes of their places.
pub(crate) trait Placement: Debug + Send + Sized {
    /// Names a small record.
    type Address: Address;
    /// What a request is for.
    type IoPurpose: Debug + Send;
    /// What a commit group makes durable.
    type Member: Debug + Send;
    /// What a write may wait for, besides what every placement has.
    type Wait: Copy + Debug + Eq + Send;
    /// What is kept of a key with writes under way.
    type KeyState: Debug + Default + Send;
    /// Where the cache has a record.
    type Cached: Copy + Debug + Send;
    /// Where and when a scan read a record, for re-clustering.
    type Origin: Copy + Debug + Send;
    /// What judges the pages of a volume that is opened.
    type Scanner: Scanner<Self>;

    /// As options and reports write it.
    const NAME: &'static str;
    /// Most writes of a group that goes out write-through.
    const WRITES_THROUGH_MAX: usize;

    // Opening.

    /// Pages of a segment of a new volume; 0 for a placement without segments.
    fn segment_pages(config: &SlabConfig) -> u32;
    /// The placement of a new volume, and its space, of no pages yet.
    fn create(superblock: &Superblock) -> (Self, Space);
    /// What opens an existing volume.
    fn scanner(config: &SlabConfig, superblock: &Superblock) -> Self::Scanner;
    /// The volume was opened for reading only.
    fn opened_read_only(&mut self) {}

    // Memory.

    /// Bytes of what grows with the store.
    fn footprint_bytes(&self) -> usize;
    /// Bytes beside the blocks of the pool that come and go: they take from the cache, but refuse
    /// no write.
    fn working_bytes(&self) -> usize;
    /// Bytes of cached records.
    fn cached_bytes(&self) -> usize;
    /// The blocks of the pool may take so many bytes from now on.
    fn set_limit_bytes(&mut self, config: &SlabConfig, limit: usize);
    /// Drops what lies in a chunk that goes back.
    fn drop_chunk(&mut self, chunk: ChunkId);
    /// Drops one cached page; false if there is none.
    fn evict_page(&mut self) -> bool {
        false
    }
    /// Whether so few pages are cached that their blocks could not serve anything else.
    fn lacks_pages(&self) -> bool {
        true
    }

    // Reads.

    /// The record of `key` at `addr`, if it is cached. `found`: where, if that is known.
    fn cached_record(
        shard: &mut IndexedShard<Self>,
        addr: Self::Address,
        key: &Key,
        part: RecordPart,
        found: Option<Option<Self::Cached>>,
    ) -> Option<Result<Record, Corruption>>;
    /// Reads what lies at `addr` for `waiter`, or joins the read under way.
    fn request_record(shard: &mut IndexedShard<Self>, addr: Self::Address, waiter: Waiter, effects: &mut Effects);
    /// Which of these places the cache has.
    fn find_cached(&self, places: impl Iterator<Item = Option<Self::Address>>) -> Vec<Option<Self::Cached>>;
    /// What re-clustering has to know of a record that was read.
    fn origin(&self, addr: Self::Address) -> Option<Self::Origin>;
    /// A page of a scan has taken `reads` reads for these records.
    fn scanned(_: &mut IndexedShard<Self>, _reads: usize, _: &[Scanned<'_, Self>], _: &Effects) {}
    /// What [`IndexedShard::scan_for_merge`] read; nothing, if it failed.
    fn merge_read(_: &mut IndexedShard<Self>, _: &[Scanned<'_, Self>], _: &mut Effects) {}
    /// A slice of the blob whose first page this is, if it is cached. It begins its block, unless
    /// part of a slab page `may_lend`.
    fn cached_slice(&mut self, _first: u32, _slice: usize, _may_lend: bool, _: &Effects) -> Option<CachedSlice> {
        None
    }
    /// Caches a slice that was read, of so many bytes.
    fn cache_slice(&mut self, _first: u32, _: (usize, usize), _: &Arc<Block>, _: &Effects) {}
    /// Whether a read forbids reusing the extent.
    fn pins(&self, extent: &Extent) -> bool;
    /// Forgets gets of those who have left; whose they were.
    fn give_up(&mut self, has_left: &dyn Fn(Token) -> bool) -> Vec<Token>;
    /// Submits queued reads.
    fn pump_reads(shard: &mut IndexedShard<Self>, effects: &mut Effects);

    // Writes.

    /// The current record of a key, for a write that depends on it; the value may be left out where
    /// the write does not need it.
    fn current(
        shard: &mut IndexedShard<Self>,
        work: &mut Work,
        place: PlaceOf<Self>,
        newest: &Newest<Self>,
    ) -> Result<(Meta, Bytes), Stop<Self>>;
    /// Puts a record; `reply` is what its version makes of the answer.
    fn put(
        shard: &mut IndexedShard<Self>,
        work: &mut Work,
        newest: &Newest<Self>,
        record: (Meta, &Bytes),
        reply: &dyn Fn(u64) -> Reply,
        effects: &mut Effects,
    ) -> Result<(), Stop<Self>>;
    /// Deletes the record at `place`.
    fn delete(
        shard: &mut IndexedShard<Self>,
        work: &mut Work,
        place: PlaceOf<Self>,
        newest: &Newest<Self>,
        effects: &mut Effects,
    ) -> Result<(), Stop<Self>>;
    /// The first write of `key` waits.
    fn wait(shard: &mut IndexedShard<Self>, key: Key, wait: Self::Wait, effects: &mut Effects);
    /// All but the head of a blob is written.
    fn blob_written(shard: &mut IndexedShard<Self>, blob: ReadyBlob<Self>, effects: &mut Effects);
    /// Pages are taken for a blob.
    fn claim_for_blobs(_: &mut IndexedShard<Self>, _: Extent) {}
    /// Whether a blob may be written there yet.
    fn blobs_may_lie_at(&self, _: Extent) -> bool {
        true
    }
    /// Everything that is written in a tick, in order.
    fn pump_writes(shard: &mut IndexedShard<Self>, effects: &mut Effects);

    // Commit groups.

    /// Publishes what a group has made durable, and wakes who waited for it.
    fn publish(shard: &mut IndexedShard<Self>, members: Vec<Self::Member>, group: u64, effects: &mut Effects);
    /// Whether what is in no group waits for a flush.
    fn wants_flush(&self) -> bool {
        false
    }
    /// Whether pages deferred should be flushed for, though no write waits for space yet.
    fn is_short_of_space(_: &IndexedShard<Self>) -> bool {
        false
    }
    /// A flush is submitted: it covers what is written now.
    fn flush_begun(&mut self) {}
    /// That flush is done.
    fn flush_done(_: &mut IndexedShard<Self>) {}
    /// A request of this placement is done.
    fn complete(shard: &mut IndexedShard<Self>, purpose: Self::IoPurpose, outcome: IoOutcome, effects: &mut Effects);
    /// Who asked for the changes of a member.
    fn each_origin(member: &Self::Member, each: &mut dyn FnMut(crate::write::Origin));
    /// The changes of a member of a group that failed: whether they are on the medium is not known.
    fn changes_of(member: Self::Member) -> Vec<Change<Self>>;
    /// A write or flush failed: nothing is written any more. The changes that were in no group.
    fn abandon(&mut self) -> Vec<Change<Self>>;

    // Space.

    /// What applying changes takes, with a commit-done record of `done_bytes`.
    fn needs(&self, changes: &[stratakv_engine::Change], done_bytes: usize) -> Needs;
    /// Whether so much can be set aside for a prepare record.
    fn can_reserve(shard: &IndexedShard<Self>, needs: &Needs) -> bool;
    /// Pages that blobs set aside with these needs leave free.
    fn kept_from_blobs(_: &IndexedShard<Self>, _: &Needs) -> u32 {
        0
    }
    /// Pages that are promised to what is not written yet.
    fn unplaced_pages(&self) -> u32 {
        0
    }
    /// Whether the volume should grow ahead of need.
    fn wants_growth(shard: &IndexedShard<Self>) -> bool;
    /// Whether what was accepted lacks pages that were reserved for it.
    fn lacks_reserved_pages(_: &IndexedShard<Self>) -> bool {
        false
    }
    /// Pages that are in use or reserved, or as many as what is alive would take, and those that
    /// the file has.
    fn use_of_space(shard: &IndexedShard<Self>) -> (u64, u64);
    /// Whether an extent of free pages is more than is needed to turn round in.
    fn has_spare_extents(_: &IndexedShard<Self>) -> bool {
        true
    }
    /// Whether something is done about free space that lies in pieces.
    fn condenses(_: &mut IndexedShard<Self>) -> bool {
        false
    }
    /// The volume has grown, or is new.
    fn extended(_: &mut IndexedShard<Self>) {}
    /// Whether space will come by itself, perhaps because this asks for it.
    fn makes_space(shard: &mut IndexedShard<Self>) -> bool;
    /// Whether space was given back when everything was durable already: no completion will see to
    /// it.
    fn has_late_space(_: &IndexedShard<Self>) -> bool {
        false
    }

    // The shard's life.

    /// Whether nothing is under way.
    fn is_idle(&self) -> bool;
    /// Whether nothing is being written, so that pages and records can be counted.
    fn is_quiet(&self) -> bool {
        self.is_idle()
    }
    /// Whether something waits for a block, with nothing in flight that will give one back.
    fn is_starved(shard: &IndexedShard<Self>) -> bool;
    /// Whether an orderly close waits for something more to be written.
    fn delays_close(_: &mut IndexedShard<Self>, _: &mut Effects) -> bool {
        false
    }
    /// The digest of the durable state.
    fn digest(shard: &IndexedShard<Self>) -> u64;
    /// Compares what this placement knows with the index and the space maps; the pages in use.
    fn check(shard: &IndexedShard<Self>, report: &mut CheckReport, mistakes: &mut Vec<String>) -> u64;
    /// Pages of slots.
    fn pages(&self) -> usize {
        0
    }
    /// Reads that somebody waits for.
    fn waiting(&self) -> usize {
        0
    }
    /// Appends counters and gauges.
    fn statistics(&self, _: &mut Vec<Statistic>) {}
}

/// A record as a scan read it, and where.
pub(crate) type Scanned<'a, P> = (&'a Key, &'a Record, Option<<P as Placement>::Origin>);
