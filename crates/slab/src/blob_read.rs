//! Reading blobs: slice by slice, each checked before it is used, a few reads ahead.
//!
//! The value is answered as the blocks it was read into. When the pool has no more, what was read
//! is copied out and the blocks are used again, so a value larger than the pool can still be read.
//!
//! A placement may cache slices that were checked beside its records: they are taken from there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use foldhash::HashMap;
use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_base::{Corruption, Key, fault_point};
use stratakv_device::{Block, Class, IoFault};
use stratakv_engine::{Effects, Error, Record, RecordPart, Reply, Token, Value};

use crate::blob::{self, BlobHeader};
use crate::place::{RecordPlace, blob_of};
use crate::placement::Placement;
use crate::read::{Waiter, alive, part_range};
use crate::record;
use crate::requests::IoPurpose;
use crate::shard::IndexedShard;
use crate::space::{Extent, offset};

/// Slices read ahead for one value.
const AHEAD: usize = 8;
/// Values up to this length are copied, so that they do not pin a 64 KiB block of their own.
const COPIED_BYTES: usize = 16 << 10;

/// What a blob is read for.
#[derive(Debug)]
pub(crate) enum BlobPurpose {
    Get(Token),
    /// The first write of the blob's key needs the record.
    Load,
    Scan {
        scan: u64,
        item: usize,
    },
}

impl BlobPurpose {
    /// A write goes on in a tick of its own, so what it needs is read; and what it needs is about
    /// to be superseded.
    fn uses_cache(&self) -> bool {
        !matches!(self, BlobPurpose::Load)
    }
}

/// Blobs being read.
#[derive(Debug, Default)]
pub(crate) struct BlobReads {
    /// Boxed: each is taken out and put back whenever a slice of it has come.
    active: HashMap<u64, Box<BlobRead>>,
    next: u64,
    in_flight: usize,
    /// Those that could not read their next slice, in order: a tick looks at these alone, up to the
    /// first that still cannot.
    waiting: VecDeque<u64>,
    /// Those of them that hold blocks of what they have read.
    holding: BTreeSet<u64>,
    /// How often a read was gone on with.
    steps: u64,
    /// First pages of blobs being read, which must not be reused yet.
    pinned: HashMap<u32, u32>,
}

#[derive(Debug)]
struct BlobRead {
    purpose: BlobPurpose,
    key: Key,
    first: u32,
    pages: u32,
    /// Of the version that it must have.
    tag: Option<u32>,
    part: RecordPart,
    header: Option<BlobHeader>,
    head: Vec<u8>,
    arrived: BTreeMap<usize, Piece>,
    progress: SliceProgress,
    value: ReadValue,
    /// Part of it came from the device.
    is_read: bool,
    /// A slice of it lies in a slab page of the cache, or is one.
    lends_slab_page: bool,
    error: Option<Box<Error>>,
    /// It is in the queue of those that wait.
    is_queued: bool,
}

/// Which slices are read.
#[derive(Debug, Default)]
struct SliceProgress {
    /// The next slice to read, and to look at.
    next: usize,
    looked_at: usize,
    in_flight: usize,
}

/// What was read of the value: in blocks from `start`, or, if the pool ran out, in front of them in
/// `copied`.
#[derive(Debug, Default)]
struct ReadValue {
    blocks: Vec<Arc<Block>>,
    start: usize,
    copied: Option<Vec<u8>>,
}

/// A slice that was cached.
pub(crate) struct CachedSlice {
    pub(crate) block: Arc<Block>,
    /// Where it begins.
    pub(crate) at: usize,
    /// The block is a slab page of the cache.
    pub(crate) is_lent: bool,
}

/// A slice that has come, where it begins in its block, and whether it is from the cache, where all
/// is checked.
#[derive(Debug)]
struct Piece {
    block: Arc<Block>,
    at: usize,
    is_cached: bool,
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        self.block.get(self.at..).unwrap_or_default()
    }
}

impl BlobReads {
    pub(crate) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }
    /// How often a read was gone on with.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }
    pub(crate) fn pins(&self, extent: &Extent) -> bool {
        self.pinned.contains_key(&extent.first)
    }
}

impl BlobRead {
    fn slices(&self) -> usize {
        (self.pages as usize * PAGE_BYTES).div_ceil(SLICE_BYTES)
    }

    fn slice_bytes(&self, slice: usize) -> usize {
        (self.pages as usize * PAGE_BYTES).saturating_sub(slice * SLICE_BYTES).min(SLICE_BYTES)
    }

    /// Whether the head is complete and checked.
    fn has_head(&self) -> bool {
        self.header.is_some_and(|header| self.head.len() == header.shape.head_bytes())
    }

    /// Whether all of the value is wanted. Of one that is to be taken slice by slice it is: its
    /// reader was told if it is longer than expected, and nothing is read again.
    fn wants_all(&self) -> bool {
        matches!(self.part, RecordPart::Whole | RecordPart::Sliced { start: 0, .. })
    }

    /// The bytes of the value that are wanted.
    fn range(&self, header: &BlobHeader) -> std::ops::Range<usize> {
        let len = header.shape.value_len;
        if self.wants_all() { 0..len } else { part_range(self.part, len) }
    }

    /// The bytes of the blob that are wanted, once the head is known.
    fn wanted(&self, header: &BlobHeader) -> std::ops::Range<usize> {
        let head = header.shape.head_bytes();
        let range = self.range(header);
        head + range.start..head + range.end
    }

    /// Whether nothing more needs to be read.
    fn is_done(&self) -> bool {
        let Some(header) = self.header.filter(|_| self.has_head()) else { return false };
        let wanted = self.wanted(&header);
        wanted.is_empty() || self.progress.looked_at * SLICE_BYTES >= wanted.end
    }

    /// The next slice to read, if there is one now.
    fn next_slice(&mut self) -> Option<usize> {
        if self.progress.in_flight >= AHEAD || self.progress.next >= self.slices() {
            return None;
        }
        match self.header.filter(|_| self.has_head()) {
            // Only the whole value is worth reading ahead before the head is known.
            None if self.progress.next > self.progress.looked_at && !self.wants_all() => return None,
            None => {}
            Some(header) => {
                let wanted = self.wanted(&header);
                if self.progress.next * SLICE_BYTES >= wanted.end {
                    return None;
                }
                if self.progress.in_flight == 0
                    && self.arrived.is_empty()
                    && self.value.blocks.is_empty()
                    && self.value.copied.is_none()
                {
                    let first = wanted.start / SLICE_BYTES;
                    self.progress.next = self.progress.next.max(first);
                    self.progress.looked_at = self.progress.looked_at.max(first);
                }
            }
        }
        self.progress.next += 1;
        Some(self.progress.next - 1)
    }

    /// Gives up the blocks held, keeping their bytes that are wanted.
    fn copy_out(&mut self) -> bool {
        let Some(header) = self.header.filter(|_| !self.value.blocks.is_empty()) else { return false };
        let bytes_max = self.range(&header).len();
        let copied = self.value.copied.get_or_insert_default();
        for block in self.value.blocks.drain(..) {
            let bytes = block.get(std::mem::take(&mut self.value.start)..).unwrap_or_default();
            copied.extend_from_slice(bytes.get(..bytes_max.saturating_sub(copied.len())).unwrap_or(bytes));
        }
        true
    }

    fn record(&mut self, header: &BlobHeader) -> Record {
        let range = self.range(header);
        let lends = range.len() > COPIED_BYTES || self.lends_slab_page && range.len() >= PAGE_BYTES;
        let value = if !lends || self.value.copied.is_some() {
            self.copy_out();
            Value::Inline(self.value.copied.take().unwrap_or_default().into())
        } else {
            let blocks = std::mem::take(&mut self.value.blocks);
            Value::Blocks { blocks, start: self.value.start as u32, len: range.len() as u64 }
        };
        header.meta.record(value, header.shape.value_len as u64)
    }
}

impl<P: Placement> IndexedShard<P> {
    /// Begins to read (a part of) a blob.
    pub(crate) fn read_blob(
        &mut self,
        purpose: BlobPurpose,
        key: Key,
        (first, pages): (u32, u32),
        part: RecordPart,
        effects: &mut Effects,
    ) {
        let read = BlobRead {
            purpose,
            key,
            first,
            pages,
            tag: self.blobs.tags.get(&first).copied(),
            part,
            header: None,
            head: Vec::new(),
            arrived: BTreeMap::new(),
            progress: SliceProgress::default(),
            value: ReadValue::default(),
            is_read: false,
            lends_slab_page: false,
            error: None,
            is_queued: false,
        };
        *self.blobs.reads.pinned.entry(first).or_default() += 1;
        self.blobs.reads.next += 1;
        let number = self.blobs.reads.next;
        self.blobs.reads.active.insert(number, Box::new(read));
        self.pump_blob_read(number, effects);
    }

    /// The first write of `key` needs its record.
    pub(crate) fn load_record(&mut self, key: Key, whole: bool, effects: &mut Effects) {
        match self.index.place(&key) {
            Some(RecordPlace::Record(address)) => P::request_record(self, address, Waiter::Write(key), effects),
            Some(RecordPlace::Blob { first, pages }) => {
                let part = if whole { RecordPart::Whole } else { RecordPart::Meta };
                self.read_blob(BlobPurpose::Load, key, (first, pages), part, effects);
            }
            None => self.keys.block_waiters.push_back(key),
        }
    }

    /// Goes on with reads that waited for their turn at the device or for blocks, until one still
    /// has to.
    pub(crate) fn pump_blob_reads(&mut self, effects: &mut Effects) {
        while let Some(number) = self.blobs.reads.waiting.pop_front() {
            self.blobs.reads.holding.remove(&number);
            let Some(read) = self.blobs.reads.active.get_mut(&number) else { continue };
            read.is_queued = false;
            self.pump_blob_read(number, effects);
            if !self.blobs.reads.active.get(&number).is_some_and(|read| read.is_queued) {
                continue;
            }
            // It is at the end of the queue again.
            let is_due = self.blobs.reads.in_flight < self.config.depth.max(1) as usize;
            if !is_due || !self.copy_one_out() {
                self.blobs.reads.waiting.rotate_right(1);
                return;
            }
            self.blobs.reads.waiting.rotate_right(1);
        }
    }

    /// A read that waits gives the blocks back that it holds. Whether there was one.
    fn copy_one_out(&mut self) -> bool {
        while let Some(number) = self.blobs.reads.holding.pop_first() {
            if self.blobs.reads.active.get_mut(&number).is_some_and(|read| read.copy_out()) {
                return true;
            }
        }
        false
    }

    /// Reads no further slice for those who have left; they are answered once what is in flight is
    /// back.
    pub(crate) fn give_up_blob_reads(&mut self, has_left: &dyn Fn(Token) -> bool, effects: &mut Effects) {
        let is_gone = |read: &BlobRead| matches!(read.purpose, BlobPurpose::Get(token) if has_left(token));
        let active = self.blobs.reads.active.iter_mut().filter(|(_, read)| is_gone(read));
        let mut gone: Vec<u64> = active
            .map(|(number, read)| {
                read.error.get_or_insert_with(|| Box::new(Error::Cancelled));
                *number
            })
            .collect();
        gone.sort_unstable();
        gone.into_iter().for_each(|number| self.pump_blob_read(number, effects));
    }

    fn pump_blob_read(&mut self, number: u64, effects: &mut Effects) {
        let Some(mut read) = self.blobs.reads.active.remove(&number) else { return };
        self.blobs.reads.steps += 1;
        let waits = self.begin_slices(number, &mut read, effects);
        if waits && !read.is_queued {
            read.is_queued = true;
            self.blobs.reads.waiting.push_back(number);
        }
        if waits && !read.value.blocks.is_empty() {
            self.blobs.reads.holding.insert(number);
        }
        if read.progress.in_flight == 0 && (read.error.is_some() || read.is_done()) {
            return self.finish_blob_read(read, effects);
        }
        self.blobs.reads.active.insert(number, read);
    }

    /// Takes what is cached, and reads ahead what is not. Whether it waits for its turn at the
    /// device, or for a block.
    fn begin_slices(&mut self, number: u64, read: &mut BlobRead, effects: &mut Effects) -> bool {
        while read.error.is_none() && !read.is_done() {
            let Some(slice) = read.next_slice() else { break };
            if let Some(piece) = self.piece_from_cache(read, slice, effects) {
                read.arrived.insert(slice, piece);
                self.look_at_arrived(read, effects);
                continue;
            }
            if self.blobs.reads.in_flight >= self.config.depth.max(1) as usize {
                read.progress.next = slice;
                return true;
            }
            let Some(block) = self.take_block(Class::Slice, effects) else {
                read.progress.next = slice;
                if read.copy_out() {
                    continue;
                }
                return true;
            };
            self.io.counters.cache_misses += u64::from(!read.is_read);
            read.is_read = true;
            read.progress.in_flight += 1;
            self.blobs.reads.in_flight += 1;
            self.io.counters.page_reads += 1;
            let len = read.slice_bytes(slice);
            self.io.counters.read_bytes += len as u64;
            let io = self.io.start(IoPurpose::BlobSlice { read: number, slice });
            effects.read(io, offset(read.first) + (slice * SLICE_BYTES) as u64, block, len as u32);
        }
        false
    }

    fn piece_from_cache(&mut self, read: &mut BlobRead, slice: usize, effects: &Effects) -> Option<Piece> {
        if !read.purpose.uses_cache() {
            return None;
        }
        // Blocks of a value follow one another: only one that has no other can begin within a
        // slab page.
        let may_lend = read.slices() == 1;
        let CachedSlice { block, at, is_lent } = self.placement.cached_slice(read.first, slice, may_lend, effects)?;
        read.lends_slab_page |= is_lent;
        Some(Piece { block, at, is_cached: true })
    }

    /// A slice has been read.
    pub(crate) fn blob_slice_read(
        &mut self,
        number: u64,
        slice: usize,
        block: Block,
        result: Result<(), IoFault>,
        effects: &mut Effects,
    ) {
        self.blobs.reads.in_flight -= 1;
        let Some(mut read) = self.blobs.reads.active.remove(&number) else { return };
        read.progress.in_flight -= 1;
        match result {
            Err(fault) => read.error = Some(Box::new(Error::Io { what: "reading a large value", fault })),
            Ok(()) => {
                read.arrived.insert(slice, Piece { block: Arc::new(block), at: 0, is_cached: false });
                self.look_at_arrived(&mut read, effects);
            }
        }
        self.blobs.reads.active.insert(number, read);
        self.pump_blob_read(number, effects);
    }

    /// Looks at the slices that have come, in order; what checks is cached.
    fn look_at_arrived(&mut self, read: &mut BlobRead, effects: &Effects) {
        while read.error.is_none()
            && let Some(piece) = read.arrived.remove(&read.progress.looked_at)
        {
            match look_at(read, &self.config.uuid, &piece) {
                Ok(is_checked) => {
                    if is_checked
                        && !piece.is_cached
                        && read.purpose.uses_cache()
                        && let Some(header) = read.header
                    {
                        let slice = (read.progress.looked_at, header.shape.bytes_in(read.progress.looked_at));
                        self.cache_slice(read, slice, &piece.block, effects);
                    }
                }
                Err((expected, found)) => {
                    let page = read.first + (read.progress.looked_at * SLICE_BYTES / PAGE_BYTES) as u32;
                    let corruption: Corruption = self.corruption(page, "large value", expected, found);
                    self.health.note(&corruption);
                    read.error = Some(Box::new(corruption.into()));
                }
            }
            read.progress.looked_at += 1;
        }
    }

    fn cache_slice(&mut self, read: &BlobRead, slice: (usize, usize), block: &Arc<Block>, effects: &Effects) {
        // It may have died while it was read: nobody would take it out of the cache, and its place
        // may come to hold another.
        let named = self.index.get(&read.key).and_then(|entry| blob_of(entry.place));
        if named == Some((read.first, read.pages)) {
            self.placement.cache_slice(read.first, slice, block, effects);
        }
    }

    fn finish_blob_read(&mut self, mut read: Box<BlobRead>, effects: &mut Effects) {
        if let Some(readers) = self.blobs.reads.pinned.get_mut(&read.first) {
            *readers -= 1;
            if *readers == 0 {
                self.blobs.reads.pinned.remove(&read.first);
                if self.space.has_pinned() {
                    self.release_deferred(effects);
                }
            }
        }
        let result = match (read.error.take(), read.header) {
            (None, Some(header)) => Ok(header),
            (error, _) => Err(error.map_or(Error::Unknown("a large value was not read"), |error| *error)),
        };
        match result {
            Ok(header) => {
                self.io.counters.cache_hits += u64::from(!read.is_read);
                let record = read.record(&header);
                match read.purpose {
                    BlobPurpose::Get(token) => {
                        let reply = alive(record, effects);
                        effects.reply(token, reply);
                    }
                    BlobPurpose::Scan { scan, item } => self.scan_item_read(scan, item, record, None),
                    BlobPurpose::Load => {
                        let value: Bytes = record.value.to_bytes();
                        let is_whole = value.len() as u64 == record.value_bytes;
                        if let Some(work) = self.keys.first(&read.key) {
                            work.loaded = Some((header.meta, value));
                            work.loaded_whole = is_whole;
                        }
                        self.wake(&read.key, effects);
                    }
                }
            }
            Err(error) => match read.purpose {
                BlobPurpose::Get(token) => effects.reply(token, Reply::Failed(error)),
                BlobPurpose::Scan { scan, .. } => self.fail_scan(scan, &error, effects),
                BlobPurpose::Load => self.fail_first(&read.key, error, effects),
            },
        }
    }
}

/// Checks the next slice in order and keeps what is wanted of it. Whether all of it is checked.
fn look_at(read: &mut BlobRead, uuid: &[u8; 16], piece: &Piece) -> Result<bool, (String, &'static str)> {
    let bytes = piece.bytes();
    let slice = read.progress.looked_at;
    let from = slice * SLICE_BYTES;
    if slice == 0 {
        let header = blob::decode_header(uuid, read.first, bytes);
        let header = header.filter(|header| header.shape.pages() == read.pages);
        let header = header.ok_or_else(|| (format!("the head of {:?}", read.key), "bytes that do not check"))?;
        let mut is_newest = read.tag == Some(record::tag(header.meta.version));
        fault_point!("stale_run_passes", is_newest = true);
        if !is_newest {
            return Err((
                format!("the value of {:?} written last", read.key),
                "an older one: a write was lost or went astray",
            ));
        }
        read.header = Some(header);
    }
    let Some(header) = read.header else { return Err(("a head".into(), "none")) };
    let shape = header.shape;
    let missing = shape.head_bytes().saturating_sub(read.head.len());
    if missing > 0 {
        read.head.extend_from_slice(bytes.get(..missing.min(bytes.len())).unwrap_or_default());
        if read.head.len() < shape.head_bytes() {
            return Ok(false);
        }
        if !blob::head_checks(uuid, read.first, &header, &read.head) {
            return Err(("checksums and key of a large value".into(), "bytes that do not check"));
        }
        if blob::head_key(&shape, &read.head) != read.key.encoded() {
            return Err((format!("{:?}", read.key), "another key's value"));
        }
    }
    let wanted = read.wanted(&header);
    if wanted.is_empty() || wanted.start >= from + SLICE_BYTES || wanted.end <= from {
        return Ok(false);
    }
    let part = shape.value_part(slice);
    let at = (shape.head_bytes() + part.start).saturating_sub(from);
    let value = bytes.get(at..at + part.len()).unwrap_or_default();
    let checks = || {
        fault_point!("skip_the_checksum_of_slices", return true);
        blob::slice_crc(uuid, read.first, header.meta.version, slice, value) == blob::head_slice_crc(&read.head, slice)
    };
    if !piece.is_cached && !checks() {
        return Err((format!("slice {slice} of {:?}", read.key), "a checksum that does not match"));
    }
    let start = piece.at + wanted.start.saturating_sub(from);
    if read.value.blocks.is_empty() && read.value.copied.is_none() {
        read.value.start = start;
    }
    read.value.blocks.push(Arc::clone(&piece.block));
    Ok(true)
}
