//! Placement `in_place`: KVell's slabs. A record lies in a slot of a page of its size class, and is
//! written again where it lies; the page, changed, goes to a free physical page.
//!
//! docs/format-slab.md draws the volume and argues crash safety. A change is made in the *dirty*
//! image of a page at once, and becomes visible when the group that writes the image is durable. A
//! record that changes class or grows into a blob leaves an older copy behind, which is cleared.

pub(crate) mod check;
pub(crate) mod class;
pub(crate) mod obsolete;
pub(crate) mod page;
pub(crate) mod read;
pub(crate) mod recovery;
pub(crate) mod seal;
pub(crate) mod table;
pub(crate) mod write;

use bytes::Bytes;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Corruption, Key};
use stratakv_device::block::ChunkId;
use stratakv_engine::{ChangeKind, Effects, IoOutcome, Record, RecordPart, Reply, Token};
use stratakv_index::PageCache;

use crate::batch::Needs;
use crate::blob::Shape;
use crate::blob_write::ReadyBlob;
use crate::config::{CheckReport, SlabConfig};
use crate::keys::Wait;
use crate::place::{Address, RecordPlace};
use crate::placement::Placement;
use crate::read::Waiter;
use crate::record::Meta;
use crate::shard::IndexedShard;
use crate::space::{Extent, SEGMENT_PAGES, Space};
use crate::superblock::Superblock;
use crate::write::{Change, Newest, Stop, Work};
use class::SizeClass;
use obsolete::ObsoleteCopies;
use read::PageReads;
use recovery::PageScanner;
use seal::{Member, Unsealed};
use table::PageTable;
use write::Images;

/// A shard of engine `slab`.
pub type Slab = IndexedShard<InPlace>;
/// A place in such a shard.
pub(crate) type SlotPlace = RecordPlace<SlotAddress>;

/// A slot of a logical page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlotAddress {
    pub(crate) logical: u32,
    pub(crate) slot: u8,
}

impl Address for SlotAddress {
    fn to_bits(self) -> u64 {
        u64::from(self.logical) << 8 | u64::from(self.slot)
    }

    fn from_bits(bits: u64) -> SlotAddress {
        SlotAddress { logical: (bits >> 8) as u32, slot: bits as u8 }
    }

    fn read_bytes(self) -> usize {
        PAGE_BYTES
    }
}

/// What a request of this placement is for.
#[derive(Debug)]
pub(crate) enum PageIoPurpose {
    /// A small page; `place` is where it was when the read began.
    Page { logical: u32, place: u32 },
    /// The first page of a blob that is to be cleared.
    BlobHead { key: Key, place: SlotPlace },
}

/// What a write waits for with this placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageWait {
    /// A page read.
    Page(u32),
    /// Its blob's first page.
    Head,
    /// Older copies to be cleared.
    Obsolete,
}

impl From<PageWait> for Wait<PageWait> {
    fn from(wait: PageWait) -> Self {
        Wait::Placement(wait)
    }
}

impl From<PageWait> for Stop<InPlace> {
    fn from(wait: PageWait) -> Self {
        Stop::Wait(wait.into())
    }
}

/// Pages of slots, and what is under way with them.
#[derive(Debug, Default)]
pub struct InPlace {
    pub(crate) table: PageTable,
    pub(crate) cache: DebugCache,
    pub(crate) images: Images,
    pub(crate) unsealed: Unsealed,
    pub(crate) reads: PageReads,
    pub(crate) obsolete: ObsoleteCopies,
    /// New logical pages whose first image has no physical page yet.
    pub(crate) unplaced_pages: u32,
    /// Slots that are not free and of no known key: damaged, or in pages that could not be read.
    pub(crate) lost_slots: u64,
}

/// [`PageCache`] with a short `Debug`.
pub(crate) struct DebugCache(pub(crate) PageCache);

impl Default for DebugCache {
    fn default() -> Self {
        DebugCache(PageCache::new())
    }
}

impl std::fmt::Debug for DebugCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageCache({} pages)", self.0.len())
    }
}

impl Placement for InPlace {
    type Address = SlotAddress;
    type IoPurpose = PageIoPurpose;
    type Member = Member;
    type Wait = PageWait;
    type KeyState = ();
    type Cached = ();
    type Origin = ();
    type Scanner = PageScanner;

    const NAME: &'static str = "in_place";
    const WRITES_THROUGH_MAX: usize = 1;

    fn segment_pages(_: &SlabConfig) -> u32 {
        0
    }

    fn create(_: &Superblock) -> (InPlace, Space) {
        (InPlace::default(), Space::default())
    }

    fn scanner(config: &SlabConfig, superblock: &Superblock) -> PageScanner {
        let pages = (superblock.usable_bytes / PAGE_BYTES as u64) as u32;
        PageScanner::new(config.uuid, config.shard, pages, superblock.durable)
    }

    fn footprint_bytes(&self) -> usize {
        self.table.footprint_bytes()
    }

    fn working_bytes(&self) -> usize {
        self.cache.0.footprint_bytes()
    }

    fn cached_bytes(&self) -> usize {
        self.cache.0.len() * PAGE_BYTES
    }

    fn set_limit_bytes(&mut self, _: &SlabConfig, _: usize) {}

    fn drop_chunk(&mut self, chunk: ChunkId) {
        self.cache.0.drop_chunk(chunk);
    }

    fn evict_page(&mut self) -> bool {
        self.cache.0.evict().is_some()
    }

    fn lacks_pages(&self) -> bool {
        self.cache.0.len() < 64
    }

    #[inline]
    fn cached_record(
        shard: &mut Slab,
        SlotAddress { logical, slot }: SlotAddress,
        key: &Key,
        part: RecordPart,
        _: Option<Option<()>>,
    ) -> Option<Result<Record, Corruption>> {
        let block = shard.placement.cache.0.get(u64::from(logical))?;
        Some(shard.record_at(&block, logical, slot, key, part))
    }

    fn request_record(shard: &mut Slab, address: SlotAddress, waiter: Waiter, effects: &mut Effects) {
        shard.request_page(address.logical, read::PageWaiter::Record(waiter), effects);
    }

    fn find_cached(&self, _: impl Iterator<Item = Option<SlotAddress>>) -> Vec<Option<()>> {
        Vec::new()
    }

    fn origin(&self, _: SlotAddress) -> Option<()> {
        None
    }

    fn pins(&self, extent: &Extent) -> bool {
        self.reads.pins(extent)
    }

    fn give_up(&mut self, has_left: &dyn Fn(Token) -> bool) -> Vec<Token> {
        self.reads.give_up(has_left)
    }

    fn pump_reads(shard: &mut Slab, effects: &mut Effects) {
        shard.pump_page_reads(effects);
    }

    fn current(
        shard: &mut Slab,
        work: &mut Work,
        place: SlotPlace,
        newest: &Newest<InPlace>,
    ) -> Result<(Meta, Bytes), Stop<InPlace>> {
        shard.current(work, place, newest)
    }

    fn put(
        shard: &mut Slab,
        work: &mut Work,
        newest: &Newest<InPlace>,
        (meta, value): (Meta, &Bytes),
        reply: &dyn Fn(u64) -> Reply,
        effects: &mut Effects,
    ) -> Result<(), Stop<InPlace>> {
        shard.put_in_place(work, newest, (meta, value), reply, effects)
    }

    fn delete(
        shard: &mut Slab,
        work: &mut Work,
        place: SlotPlace,
        newest: &Newest<InPlace>,
        effects: &mut Effects,
    ) -> Result<(), Stop<InPlace>> {
        shard.delete_in_place(work, place, newest, effects)
    }

    fn wait(shard: &mut Slab, key: Key, wait: PageWait, effects: &mut Effects) {
        match wait {
            PageWait::Page(logical) => {
                shard.request_page(logical, read::PageWaiter::Record(Waiter::Write(key)), effects);
            }
            PageWait::Head => shard.load_head(key, effects),
            PageWait::Obsolete => {}
        }
    }

    fn blob_written(shard: &mut Slab, blob: ReadyBlob<InPlace>, _: &mut Effects) {
        shard.placement.unsealed.blobs.push_back(blob);
    }

    fn pump_writes(shard: &mut Slab, effects: &mut Effects) {
        shard.pump_obsolete(effects);
        shard.pump_blob_writes(effects);
        shard.grow(effects);
        shard.seal(effects);
        shard.pump_flush(effects);
    }

    fn publish(shard: &mut Slab, members: Vec<Member>, group: u64, effects: &mut Effects) {
        shard.publish_members(members, group, effects);
    }

    fn complete(shard: &mut Slab, purpose: PageIoPurpose, outcome: IoOutcome, effects: &mut Effects) {
        match (purpose, outcome) {
            (PageIoPurpose::Page { logical, place }, IoOutcome::Read(block, result)) => {
                shard.page_read(logical, place, block, result, effects);
            }
            (PageIoPurpose::BlobHead { key, place }, IoOutcome::Read(block, result)) => {
                shard.blob_head_read(key, place, block, result, effects);
            }
            (purpose, outcome) => debug_assert!(false, "{outcome:?} for {purpose:?}"),
        }
    }

    fn each_origin(member: &Member, each: &mut dyn FnMut(crate::write::Origin)) {
        let changes = match member {
            Member::Page { changes, .. } => changes.as_slice(),
            Member::Blob { change } | Member::BlobTombstone { change } => std::slice::from_ref(change),
        };
        changes.iter().filter_map(|change| change.ack.as_ref()).for_each(|ack| each(ack.origin));
    }

    fn changes_of(member: Member) -> Vec<Change<InPlace>> {
        match member {
            Member::Page { changes, .. } => changes,
            Member::Blob { change } | Member::BlobTombstone { change } => vec![change],
        }
    }

    fn abandon(&mut self) -> Vec<Change<InPlace>> {
        self.obsolete.queue.clear();
        let dirty = self.images.drain().filter_map(|(_, image)| image.dirty);
        let mut changes: Vec<_> = dirty.flat_map(|dirty| dirty.changes).collect();
        let Unsealed { blobs, blob_tombstones, .. } = std::mem::take(&mut self.unsealed);
        changes.extend(blobs.into_iter().map(|blob| blob.change));
        changes.extend(blob_tombstones.into_iter().map(|tombstone| tombstone.change));
        changes
    }

    /// Pages that changes may take, one for the commit-done record among them; and those of each
    /// blob.
    fn needs(&self, changes: &[stratakv_engine::Change], _: usize) -> Needs {
        let mut slots: Vec<(SizeClass, u32)> = Vec::new();
        let mut blobs = vec![0; changes.len()];
        for (change, blob) in changes.iter().zip(&mut blobs) {
            let ChangeKind::Put { value, flags, expiry } = &change.kind else { continue };
            let key_len = change.key.encoded().len();
            let meta = Meta { version: 1, flags: *flags, expiry: expiry.0 };
            match SizeClass::for_record(page::record_bytes(&meta, key_len, value.len())) {
                Some(class) => match slots.iter_mut().find(|(known, _)| *known == class) {
                    Some((_, count)) => *count += 1,
                    None => slots.push((class, 1)),
                },
                None => *blob = Shape::new(key_len, value.len()).pages(),
            }
        }
        let pages = slots.iter().map(|(class, count)| count.div_ceil(u32::from(class.slots()))).sum::<u32>();
        Needs { pages: 1 + pages, bytes: 0, blobs }
    }

    fn can_reserve(shard: &Slab, needs: &Needs) -> bool {
        shard.has_room(needs.pages + needs.blob_pages())
    }

    fn kept_from_blobs(shard: &Slab, needs: &Needs) -> u32 {
        shard.reserve_pages() + shard.placement.unplaced_pages + shard.batches.reserved_pages() + needs.pages
    }

    fn unplaced_pages(&self) -> u32 {
        self.unplaced_pages
    }

    fn wants_growth(shard: &Slab) -> bool {
        let held = shard.space.held();
        shard.space.free_pages() < (held / 8).clamp((held / 4).min(SEGMENT_PAGES / 2), 32 * SEGMENT_PAGES)
    }

    fn use_of_space(shard: &Slab) -> (u64, u64) {
        let held = shard.space.held();
        let reserved = shard.placement.unplaced_pages + shard.batches.reserved_pages() + shard.reserve_pages();
        (u64::from(held - shard.space.free_pages()) + u64::from(reserved), u64::from(held))
    }

    fn lacks_reserved_pages(shard: &Slab) -> bool {
        shard.placement.unplaced_pages > shard.space.free_pages()
    }

    fn makes_space(shard: &mut Slab) -> bool {
        shard.clears_give_space()
    }

    fn is_idle(&self) -> bool {
        self.is_quiet() && self.reads.is_idle()
    }

    fn is_quiet(&self) -> bool {
        self.images.is_empty() && self.unsealed.is_empty()
    }

    fn is_starved(shard: &Slab) -> bool {
        let waits = || shard.keys.pending.values().any(|pending| pending.wait == Some(PageWait::Obsolete.into()));
        shard.placement.reads.is_starved(shard.io.len())
            || shard.io.is_empty() && !shard.placement.obsolete.is_empty() && waits()
    }

    fn digest(shard: &Slab) -> u64 {
        shard.digest_of_pages()
    }

    fn check(shard: &Slab, report: &mut CheckReport, mistakes: &mut Vec<String>) -> u64 {
        shard.check_pages(report, mistakes)
    }

    fn pages(&self) -> usize {
        self.table.len()
    }

    fn waiting(&self) -> usize {
        self.reads.waiting()
    }
}
