//! Segments in DRAM: items back to back in blocks. Full blocks are shared with replies and with
//! writes to the volume; the last one is being filled.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Expiry, Wall};
use stratakv_device::{Block, BlockPart, Class};
use stratakv_engine::Value;

use crate::item::{HEADER_BYTES, Header, SSD_ADDRESS_BYTES, SsdAddress};

/// Values up to this length are copied into a reply; longer ones share the block.
const COPIED_BYTES_MAX: usize = 256;

/// Which way an item took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// New: most are never used again, and leave soon (S3-FIFO's small queue).
    Small,
    /// Used again.
    Main,
    /// On its way to the volume.
    Outgoing,
}

/// Items that expire at similar times share segments, so that whole segments expire.
pub(crate) const TTL_CLASSES: usize = 4;

/// The class of an item: two minutes, an hour, longer, never.
pub(crate) fn ttl_class(expiry: Expiry, now: Wall) -> usize {
    match expiry.0.saturating_sub(now.0) {
        _ if expiry == Expiry::NEVER => 3,
        0..128_000 => 0,
        128_000..4_096_000 => 1,
        _ => 2,
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Names the segment in its items' checksums, for ever.
    pub(crate) id: u64,
    pub(crate) stream: Stream,
    class: Class,
    limit_bytes: usize,
    full: Vec<Arc<Block>>,
    open: Option<Block>,
    spare: VecDeque<Block>,
    used_bytes: usize,
    pub(crate) items: u32,
    /// Items that nothing has superseded, and their bytes. What expired or was flushed still
    /// counts.
    live_items: u32,
    live_bytes: usize,
    /// When the last item expires; never, if one never does.
    expires: Option<Expiry>,
    /// It is being written to the volume, as this order.
    pub(crate) order: Option<u64>,
}

impl Segment {
    pub(crate) fn new(id: u64, stream: Stream, class: Class, limit_bytes: usize) -> Segment {
        Segment {
            id,
            stream,
            class,
            limit_bytes,
            full: Vec::new(),
            open: None,
            spare: VecDeque::new(),
            used_bytes: 0,
            items: 0,
            live_items: 0,
            live_bytes: 0,
            expires: None,
            order: None,
        }
    }

    /// Bytes of blocks it holds.
    pub(crate) fn footprint_bytes(&self) -> usize {
        (self.full.len() + usize::from(self.open.is_some()) + self.spare.len()) * self.class.bytes()
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Of these, bytes of items that nothing has superseded.
    pub(crate) fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// An item of it was superseded. Whether that was the last one.
    pub(crate) fn supersede(&mut self, header: &Header) -> bool {
        self.live_items -= 1;
        self.live_bytes -= header.total();
        self.live_items == 0
    }

    /// Gives its blocks back: nothing in it counts any more, and nothing is appended to it.
    pub(crate) fn empty(&mut self) {
        (self.full, self.open, self.spare) = (Vec::new(), None, VecDeque::new());
        (self.used_bytes, self.expires) = (0, None);
    }

    /// Whether a quarter of it or more is items that were superseded.
    pub(crate) fn is_worn(&self) -> bool {
        self.live_bytes <= self.used_bytes / 4 * 3
    }

    /// Whether so many bytes more fit.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        self.used_bytes + bytes <= self.limit_bytes
    }

    /// Blocks that so many bytes more need.
    pub(crate) fn blocks_for(&self, bytes: usize) -> usize {
        let wanted = (self.used_bytes + bytes).div_ceil(self.class.bytes());
        wanted.saturating_sub(self.footprint_bytes() / self.class.bytes())
    }

    pub(crate) fn add_block(&mut self, block: Block) {
        self.spare.push_back(block);
    }

    /// Appends an item, in pieces. Its blocks are there ([`Segment::blocks_for`]). Gives its
    /// offset.
    pub(crate) fn append<'a>(
        &mut self,
        uuid: &[u8; 16],
        mut header: Header,
        pieces: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> usize {
        let offset = self.used_bytes;
        let is_read_back = self.stream == Stream::Outgoing;
        header.checksum = if is_read_back { header.sum(uuid, self.id, offset, pieces.clone()) } else { 0 };
        self.write(&header.encode());
        pieces.for_each(|piece| self.write(piece));
        let end = offset + header.total();
        let padding = [0; 8];
        self.write(&padding[..end - self.used_bytes]);
        self.items += 1;
        self.live_items += 1;
        self.live_bytes += header.total();
        self.expires_by(header.expiry);
        offset
    }

    /// An item of it expires then.
    pub(crate) fn expires_by(&mut self, expiry: Expiry) {
        self.expires = Some(match self.expires {
            Some(Expiry::NEVER) => Expiry::NEVER,
            _ if expiry == Expiry::NEVER => Expiry::NEVER,
            last => last.unwrap_or_default().max(expiry),
        });
    }

    fn write(&mut self, mut bytes: &[u8]) {
        let len = self.class.bytes();
        while !bytes.is_empty() {
            let at = self.used_bytes % len;
            if self.open.is_none() {
                self.open = self.spare.pop_front();
            }
            let Some(open) = &mut self.open else { return };
            let (now, rest) = bytes.split_at(bytes.len().min(len - at));
            open.store(at, now);
            self.used_bytes += now.len();
            bytes = rest;
            if self.used_bytes.is_multiple_of(len) {
                self.full.extend(self.open.take().map(Arc::new));
            }
        }
    }

    /// Nothing more is appended: the last block can be shared too.
    pub(crate) fn seal(&mut self) {
        self.full.extend(self.open.take().map(Arc::new));
        self.spare.clear();
    }

    /// Gives an item the checksums by which it is read back from the volume. Where a reply has a
    /// block that they lie in, that is copied to one from `spare`. False: there is none.
    pub(crate) fn sum_up(&mut self, uuid: &[u8; 16], offset: usize, spare: &mut impl FnMut() -> Option<Block>) -> bool {
        let Some(mut header) = self.header(offset) else { return false };
        let value_at = offset + header.value_at();
        let sums = header.encode_sums(|range| self.slices(value_at + range.start, range.len()));
        for number in offset / self.class.bytes()..=(value_at - 1) / self.class.bytes() {
            if self.block_mut(number).is_some() {
                continue;
            }
            let (Some(mut copy), Some(shared)) = (spare(), self.full.get_mut(number)) else { return false };
            copy.copy_from_slice(shared);
            *shared = Arc::new(copy);
        }
        let body_at = offset + HEADER_BYTES;
        self.write_at(body_at + header.key_bytes as usize, &sums);
        header.checksum = header.sum(uuid, self.id, offset, self.slices(body_at, header.body_bytes()));
        self.write_at(offset, &header.encode());
        true
    }

    fn block(&self, number: usize) -> Option<&Block> {
        self.full.get(number).map(|block| &**block).or_else(|| self.open.as_ref().filter(|_| number == self.full.len()))
    }

    /// A block that nobody else has.
    pub(crate) fn block_mut(&mut self, number: usize) -> Option<&mut Block> {
        let full = self.full.len();
        match self.full.get_mut(number) {
            Some(block) => Arc::get_mut(block),
            None => self.open.as_mut().filter(|_| number == full),
        }
    }

    /// Puts others in the place of its blocks, if `other` gives any: of the same class, with the
    /// same bytes. `None` as soon as it says so.
    pub(crate) fn change_blocks(&mut self, mut other: impl FnMut(&Block) -> Option<Option<Block>>) -> Option<()> {
        for block in &mut self.full {
            if let Some(other) = other(block)? {
                *block = Arc::new(other);
            }
        }
        for block in self.open.iter_mut().chain(&mut self.spare) {
            if let Some(other) = other(block)? {
                *block = other;
            }
        }
        Some(())
    }

    /// `len` bytes from `offset` on, piece by piece.
    pub(crate) fn slices(&self, offset: usize, len: usize) -> impl Iterator<Item = &[u8]> + Clone {
        let block_len = self.class.bytes();
        let end = (offset + len).min(self.used_bytes);
        let first = offset / block_len;
        (first..end.div_ceil(block_len).max(first)).filter_map(move |number| {
            let begin = number * block_len;
            self.block(number)?.get(offset.max(begin) - begin..end.min(begin + block_len) - begin)
        })
    }

    fn copy<const N: usize>(&self, offset: usize) -> [u8; N] {
        let (mut bytes, mut at) = ([0; N], 0);
        for slice in self.slices(offset, N) {
            bytes[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        bytes
    }

    /// The header of the item at `offset`.
    pub(crate) fn header(&self, offset: usize) -> Option<Header> {
        (offset + HEADER_BYTES <= self.used_bytes).then(|| Header::decode(&self.copy::<HEADER_BYTES>(offset)))?
    }

    /// Whether the item at `offset` has this key.
    pub(crate) fn has_key(&self, offset: usize, header: &Header, key: &[u8]) -> bool {
        header.key_bytes as usize == key.len() && is_equal(self.slices(offset + HEADER_BYTES, key.len()), key)
    }

    /// The key of the item at `offset`.
    pub(crate) fn key(&self, offset: usize, header: &Header) -> Vec<u8> {
        let mut key = Vec::with_capacity(header.key_bytes as usize);
        self.slices(offset + HEADER_BYTES, header.key_bytes as usize).for_each(|slice| key.extend_from_slice(slice));
        key
    }

    /// Where the copy on the volume of the item at `offset` lies.
    pub(crate) fn ssd_address(&self, offset: usize, header: &Header) -> Option<SsdAddress> {
        let at = offset + header.value_at() + header.value_bytes as usize;
        if header.has_ssd_address { SsdAddress::decode(&self.copy::<SSD_ADDRESS_BYTES>(at)) } else { None }
    }

    /// `len` bytes of the item at `offset` from its value's byte `start` on.
    pub(crate) fn value(&self, offset: usize, header: &Header, start: usize, len: usize) -> Value {
        let from = offset + header.value_at() + start;
        let block_len = self.class.bytes();
        let (first, last) = (from / block_len, (from + len).saturating_sub(1) / block_len);
        match self.full.get(first..=last) {
            Some(blocks) if len > COPIED_BYTES_MAX => {
                Value::Blocks { blocks: blocks.to_vec(), start: (from % block_len) as u32, len: len as u64 }
            }
            _ => Value::Inline(self.bytes(from, len)),
        }
    }

    /// `len` bytes from `offset` on, in one piece. Copies.
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> Bytes {
        let mut bytes = Vec::with_capacity(len);
        self.slices(offset, len).for_each(|slice| bytes.extend_from_slice(slice));
        bytes.into()
    }

    /// Offsets and headers of the items, in order.
    pub(crate) fn walk(&self) -> impl Iterator<Item = (usize, Header)> {
        let next = |offset: usize| self.header(offset).map(|header| (offset, header));
        std::iter::successors(next(0), move |(offset, header)| next(offset + header.total()))
    }

    /// Whether every item has expired.
    pub(crate) fn is_expired(&self, now: Wall) -> bool {
        self.expires.is_some_and(|expires| expires.is_past(now))
    }

    /// The first second at which every item has expired; 0 if one never does.
    pub(crate) fn expires_s(&self) -> u32 {
        u32::try_from(self.expires.unwrap_or_default().seconds()).unwrap_or(u32::MAX)
    }

    /// The pages that are filled, to be written. The segment is sealed.
    pub(crate) fn parts(&self) -> Vec<BlockPart> {
        let mut left = self.used_bytes.next_multiple_of(PAGE_BYTES);
        let part = |block: &Arc<Block>| {
            let len = left.min(self.class.bytes());
            left -= len;
            BlockPart { block: Arc::clone(block), start: 0, len: len as u32 }
        };
        self.full.iter().map(part).filter(|part| part.len > 0).collect()
    }
}

/// Whether slices, put together, are these bytes.
pub(crate) fn is_equal<'a>(slices: impl Iterator<Item = &'a [u8]>, mut bytes: &[u8]) -> bool {
    for slice in slices {
        match bytes.split_at_checked(slice.len()) {
            Some((front, rest)) if front == slice => bytes = rest,
            _ => return false,
        }
    }
    bytes.is_empty()
}
