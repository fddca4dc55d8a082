//! Data blocks that are compressed: one page has as many entries as compress into it.

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use stratakv_base::limits::PAGE_BYTES;

use super::filling::Filling;
use super::page::{CONTENTS_BYTES, HEADER_BYTES};

/// Pages that what a page is unpacked to would take, at most: whoever wants one record of them
/// unpacks all.
pub(super) const RAW_PAGES: usize = 4;
/// What a page is unpacked to has at most so many bytes.
pub(super) const RAW_BYTES_MAX: usize = RAW_PAGES * PAGE_BYTES - HEADER_BYTES;
/// The length of what was compressed stands before it.
const LENGTH_BYTES: usize = 4;
/// A page that holds less than this is not worth unpacking it: it is written as it is.
const WORTH_BYTES: usize = CONTENTS_BYTES * 9 / 8;
/// A page is full enough with so many bytes of what it has room for.
const FULL_BYTES: usize = CONTENTS_BYTES * 7 / 8;
/// Most blocks that are written as they are before one is tried again.
const SKIPPED_MAX: u32 = 15;

/// What the contents of a compressed block are. `None`: they make no sense.
pub(super) fn unpack(contents: &[u8]) -> Option<Vec<u8>> {
    let (len, packed) = contents.split_first_chunk::<LENGTH_BYTES>()?;
    let len = u32::from_le_bytes(*len) as usize;
    if len > RAW_BYTES_MAX {
        return None;
    }
    let mut raw = vec![0; len];
    decompress_into(packed, &mut raw).is_ok_and(|unpacked| unpacked == len).then_some(raw)
}

/// Compresses blocks, and foresees from those before how much the next one holds, so that most are
/// compressed once.
pub(super) struct Packer {
    table: CompressTable,
    packed: Box<[u8]>,
    /// Bytes that the open block had when it was compressed last, and what came of them.
    tried: Option<(usize, usize)>,
    /// Raw bytes that fill a page, as blocks before had it.
    goal: usize,
    /// Blocks in a row that were not worth it, and how many follow that are not tried.
    misses: u32,
    skips: u32,
    scratch: Vec<u8>,
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").field("goal", &self.goal).field("misses", &self.misses).finish_non_exhaustive()
    }
}

/// What becomes of the first entries of a block.
pub(super) enum Made<'a> {
    /// They are compressed to this.
    Packed(usize, &'a [u8]),
    /// They stay what they are.
    Plain(usize, &'a [u8]),
}

impl Packer {
    pub fn new() -> Packer {
        Packer {
            table: CompressTable::small(),
            packed: vec![0; LENGTH_BYTES + get_maximum_output_size(RAW_BYTES_MAX)].into(),
            tried: None,
            goal: CONTENTS_BYTES,
            misses: 0,
            skips: 0,
            scratch: Vec::new(),
        }
    }

    /// Compresses the first entries of a block. The bytes that come of them.
    fn pack(&mut self, block: &Filling, entries: usize) -> usize {
        block.contents(entries, &mut self.scratch);
        let (len, room) = self.packed.split_at_mut(LENGTH_BYTES);
        len.copy_from_slice(&(self.scratch.len() as u32).to_le_bytes());
        let packed = compress_into_with_table(&self.scratch, room, &mut self.table);
        // There is room for the worst that can come of them.
        let packed = LENGTH_BYTES + packed.unwrap_or(RAW_BYTES_MAX);
        self.tried = Some((self.scratch.len(), packed));
        packed
    }

    /// Whether a block that is full holds more than was foreseen: then it has room for more entries
    /// now.
    pub fn makes_room(&mut self, block: &mut Filling) -> bool {
        let raw = block.contents_bytes(block.entries());
        let is_new = self.tried.is_none_or(|(tried, _)| tried != raw);
        if self.skips > 0 || block.limit() >= RAW_BYTES_MAX || !is_new {
            return false;
        }
        let packed = self.pack(block, block.entries());
        let goal = foreseen(raw, packed);
        if packed >= FULL_BYTES || goal < WORTH_BYTES || goal <= block.limit() {
            return false;
        }
        block.set_limit(goal);
        true
    }

    /// Makes a page of as many of a block's first entries as fit in one. It has some, and more than
    /// fit in one as they are.
    pub fn make(&mut self, block: &Filling) -> Made<'_> {
        let (plain, mut entries) = (block.fitting(CONTENTS_BYTES), block.entries());
        let mut left_percent = [97, 88, 75].into_iter();
        while entries > plain {
            let raw = block.contents_bytes(entries);
            let packed = match self.tried {
                Some((tried, packed)) if tried == raw => packed,
                _ => self.pack(block, entries),
            };
            if packed <= CONTENTS_BYTES {
                self.goal = (self.goal + foreseen(raw, packed)) / 2;
                self.misses = 0;
                return Made::Packed(entries, &self.packed[..packed]);
            }
            let Some(percent) = left_percent.next() else { break };
            entries = block.fitting(raw * CONTENTS_BYTES / packed * percent / 100).min(entries - 1);
        }
        block.contents(plain, &mut self.scratch);
        Made::Plain(plain, &self.scratch)
    }

    /// Another block begins: how many bytes it may have. The one before was compressed, or not.
    pub fn begin(&mut self, was_packed: bool) -> usize {
        let missed = !was_packed && self.tried.is_some();
        self.tried = None;
        if missed {
            self.misses += 1;
            self.skips = (1 << self.misses.min(8)).min(SKIPPED_MAX + 1);
            self.goal = CONTENTS_BYTES;
        }
        self.skips = self.skips.saturating_sub(1);
        if self.skips > 0 { CONTENTS_BYTES } else { self.goal }
    }
}

/// How many raw bytes fill a page, if so many were compressed to so many; a little less, since a
/// page that holds less is better than one that has to be made again.
fn foreseen(raw: usize, packed: usize) -> usize {
    (raw * CONTENTS_BYTES / packed.max(1) * 31 / 32).min(RAW_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_makes_sense_or_is_refused() {
        let packed = |len: u32, bytes: &[u8]| [&len.to_le_bytes()[..], bytes].concat();
        let of = |raw: &[u8]| packed(raw.len() as u32, &lz4_flex::block::compress(raw));
        let raw: Vec<u8> = (0..RAW_BYTES_MAX).map(|at| (at / 40) as u8).collect();
        assert_eq!(unpack(&of(&raw)), Some(raw.clone()));
        assert_eq!(unpack(&of(&[])), Some(Vec::new()));
        assert_eq!(unpack(&of(&[&raw[..], b"."].concat())), None, "longer than any");
        assert_eq!(unpack(&packed(u32::MAX, &[0])), None);
        let right = of(&raw);
        for wrong in [RAW_BYTES_MAX as u32 - 1, RAW_BYTES_MAX as u32 + 1, 0] {
            assert_eq!(unpack(&packed(wrong, &right[4..])), None, "a length of {wrong}");
        }
        for len in 0..right.len() {
            assert_eq!(unpack(&right[..len]), None, "{len} bytes of {}", right.len());
        }
    }
}
