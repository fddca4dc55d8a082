//! The log of segments on the volume: a ring, written front to back; what lies ahead of the head is
//! the oldest, and makes room.

use std::collections::{BTreeMap, VecDeque};

use stratakv_base::checksum::{crc32c, seed};
use stratakv_base::codec::{Reader, Writer};
use stratakv_base::limits::PAGE_BYTES;

use crate::index::{Loc, Tag};
use crate::superblock::Layout;

const MAGIC: u64 = u64::from_le_bytes(*b"STRTIERS");
const HEAD_BYTES: usize = 64;

/// What the first pages of a segment say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Names the segment in its items' checksums.
    pub(crate) id: u64,
    /// Counts segments in the order in which they were written.
    pub(crate) order: u64,
    /// Pages of head and summary; the items follow.
    pub(crate) head_pages: u32,
    /// Pages in all.
    pub(crate) pages: u32,
    /// Items in the summary.
    pub(crate) items: u32,
    /// The first second at which every item has expired; 0 if one never does.
    pub(crate) expires_s: u32,
    summary_bytes: u32,
    summary_crc: u32,
}

/// A line of a segment's summary: an item that was the newest of its key when the segment was
/// written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) tag: Tag,
    /// From the first page of items on.
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
    pub(crate) version: u64,
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint(reader: &mut Reader<'_>) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = reader.u8().ok()?;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Lines, in the order of their offsets: about 9 bytes each.
pub(crate) fn encode_lines(lines: &[Line]) -> Vec<u8> {
    let (mut out, mut end, mut version) = (Vec::with_capacity(lines.len() * 10), 0, 0u64);
    for line in lines {
        out.extend_from_slice(&line.tag.bits().to_le_bytes()[..Tag::BYTES]);
        put_varint(&mut out, u64::from(line.offset - end) / 8);
        put_varint(&mut out, u64::from(line.bytes) / 8);
        let delta = line.version.wrapping_sub(version) as i64;
        put_varint(&mut out, (delta << 1 ^ delta >> 63) as u64);
        (end, version) = (line.offset + line.bytes, line.version);
    }
    out
}

/// As many lines as can be read.
pub(crate) fn decode_lines(bytes: &[u8], items: u32) -> Vec<Line> {
    let (mut reader, mut end, mut version) = (Reader::new(bytes), 0u32, 0u64);
    let mut next = || {
        let tag = reader.bytes(Tag::BYTES).ok()?.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
        let (gap, len) = (varint(&mut reader)?, varint(&mut reader)?);
        let zigzag = varint(&mut reader)?;
        let offset = u32::try_from(gap.checked_mul(8)?).ok()?.checked_add(end)?;
        let bytes = u32::try_from(len.checked_mul(8)?).ok()?;
        end = offset.checked_add(bytes)?;
        version = version.wrapping_add((zigzag >> 1) ^ 0u64.wrapping_sub(zigzag & 1));
        Some(Line { tag: Tag::from_bits(tag), offset, bytes, version })
    };
    (0..items).map_while(|_| next()).collect()
}

impl Head {
    /// A head for these lines, over so many pages of items.
    pub(crate) fn new(id: u64, order: u64, expires_s: u32, summary: &[u8], items: u32, data_pages: u64) -> Head {
        let head_pages = (HEAD_BYTES + summary.len()).div_ceil(PAGE_BYTES) as u32;
        let pages = head_pages + data_pages as u32;
        let (summary_bytes, summary_crc) = (summary.len() as u32, crc32c(0, summary));
        Head { id, order, head_pages, pages, items, expires_s, summary_bytes, summary_crc }
    }

    /// The head of a segment that holds nothing, in the place of this one.
    pub(crate) fn empty(stored: &Stored) -> Head {
        Head::new(stored.id, stored.order, 0, &[], 0, stored.pages - 1)
    }

    /// Head and summary as the bytes from this page of the volume on.
    pub(crate) fn encode(&self, uuid: &[u8; 16], page: u64, summary: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; self.head_pages as usize * PAGE_BYTES];
        let mut writer = Writer::new(&mut bytes);
        writer.u64(MAGIC).u64(self.id).u64(self.order).u32(self.head_pages).u32(self.pages).u32(self.items);
        writer.u32(self.expires_s).u32(self.summary_bytes).u32(self.summary_crc).u64(0);
        let crc = crc32c(seed(uuid, page, MAGIC), &bytes[..HEAD_BYTES - 4]);
        Writer::new(&mut bytes[HEAD_BYTES - 4..]).u32(crc).bytes(summary);
        bytes
    }

    /// From the first bytes of a segment that begins at this page; `None` if none does.
    pub(crate) fn decode(uuid: &[u8; 16], page: u64, bytes: &[u8]) -> Option<Head> {
        let crc = Reader::new(bytes.get(HEAD_BYTES - 4..)?).u32().ok()?;
        let mut reader = Reader::new(bytes.get(..HEAD_BYTES - 4)?);
        if reader.u64().ok()? != MAGIC || crc != crc32c(seed(uuid, page, MAGIC), bytes.get(..HEAD_BYTES - 4)?) {
            return None;
        }
        let (id, order) = (reader.u64().ok()?, reader.u64().ok()?);
        let (head_pages, pages) = (reader.u32().ok()?, reader.u32().ok()?);
        let (items, expires_s) = (reader.u32().ok()?, reader.u32().ok()?);
        let (summary_bytes, summary_crc) = (reader.u32().ok()?, reader.u32().ok()?);
        let is_possible = head_pages <= pages && head_pages > 0;
        is_possible.then_some(Head { id, order, head_pages, pages, items, expires_s, summary_bytes, summary_crc })
    }

    /// The lines in `bytes`, which begin with the segment; `None` if they do not check.
    pub(crate) fn lines(&self, bytes: &[u8]) -> Option<Vec<Line>> {
        let summary = bytes.get(HEAD_BYTES..)?.get(..self.summary_bytes as usize)?;
        (crc32c(0, summary) == self.summary_crc).then(|| decode_lines(summary, self.items))
    }
}

/// A segment on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) id: u64,
    pub(crate) order: u64,
    pub(crate) page: u64,
    pub(crate) pages: u64,
    pub(crate) head_pages: u32,
    pub(crate) expires_s: u32,
    /// Reads and operations that rely on its bytes.
    pub(crate) pins: u32,
    /// It is on the volume as a whole.
    pub(crate) is_written: bool,
    /// It holds the table of an orderly end, or what failed to be written: no items.
    pub(crate) is_void: bool,
}

impl Stored {
    /// First byte of the items.
    pub(crate) fn data_at(&self) -> u64 {
        (self.page + u64::from(self.head_pages)) * PAGE_BYTES as u64
    }

    /// The place of a line of its summary.
    pub(crate) fn loc(&self, line: &Line) -> Loc {
        let address = self.data_at() + u64::from(line.offset);
        let pages = (address % PAGE_BYTES as u64 + u64::from(line.bytes)).div_ceil(PAGE_BYTES as u64);
        Loc::volume(address, pages)
    }

    pub(crate) fn end(&self) -> u64 {
        self.page + self.pages
    }
}

/// Where the next segment can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordAddress {
    /// From this page on.
    Free(u64),
    /// The oldest segment is in the way.
    Blocked,
    /// The log is too short for it.
    TooLong,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Log {
    first: u64,
    end: u64,
    head: u64,
    segments: BTreeMap<u64, Stored>,
    /// First pages, the oldest segment first.
    fifo: VecDeque<u64>,
}

impl Log {
    pub(crate) fn new(layout: Layout) -> Log {
        let (first, end) = (layout.log_page, layout.log_page + layout.log_pages);
        Log { first, end, head: first, segments: BTreeMap::new(), fifo: VecDeque::new() }
    }

    /// The newest segment ends, and the next one begins, at this page.
    pub(crate) fn set_head(&mut self, page: u64) {
        self.head = page.clamp(self.first, self.end);
    }

    /// Its first page, and how many it has.
    pub(crate) fn extent(&self) -> (u64, u64) {
        (self.first, self.end - self.first)
    }

    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// The longest segment that it takes: so that four fit.
    pub(crate) fn pages_max(&self) -> u64 {
        (self.end - self.first) / 4
    }

    /// Where a segment of so many pages would begin.
    pub(crate) fn addr(&self, pages: u64) -> RecordAddress {
        if pages > self.pages_max() {
            return RecordAddress::TooLong;
        }
        let wraps = self.head + pages > self.end;
        let start = if wraps { self.first } else { self.head };
        let Some(oldest) = self.oldest() else { return RecordAddress::Free(start) };
        let skipped = wraps && oldest.page >= self.head;
        let overlaps = self.segments.range(..start + pages).next_back().is_some_and(|(_, stored)| stored.end() > start);
        if skipped || overlaps { RecordAddress::Blocked } else { RecordAddress::Free(start) }
    }

    /// Whether so many pages from this one on are the log's, and of no segment.
    pub(crate) fn has_place(&self, page: u64, pages: u64) -> bool {
        let Some(end) = page.checked_add(pages).filter(|end| pages > 0 && *end <= self.end) else { return false };
        let before = self.segments.range(..end).next_back();
        page >= self.first && before.is_none_or(|(_, stored)| stored.end() <= page)
    }

    /// Adds the newest segment.
    pub(crate) fn push(&mut self, stored: Stored) {
        self.head = stored.end();
        self.fifo.push_back(stored.page);
        self.segments.insert(stored.page, stored);
    }

    pub(crate) fn oldest(&self) -> Option<&Stored> {
        self.segments.get(self.fifo.front()?)
    }

    /// The segment after the oldest.
    pub(crate) fn second(&self) -> Option<&Stored> {
        self.segments.get(self.fifo.get(1)?)
    }

    pub(crate) fn pop_oldest(&mut self) -> Option<Stored> {
        self.segments.remove(&self.fifo.pop_front()?)
    }

    /// The segment in which this byte of the volume lies.
    pub(crate) fn of(&self, address: u64) -> Option<&Stored> {
        let page = address / PAGE_BYTES as u64;
        self.segments.range(..=page).next_back().map(|(_, stored)| stored).filter(|stored| page < stored.end())
    }

    pub(crate) fn get_mut(&mut self, page: u64) -> Option<&mut Stored> {
        self.segments.get_mut(&page)
    }

    /// All of them, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stored> {
        self.fifo.iter().filter_map(|page| self.segments.get(page))
    }

    pub(crate) fn len(&self) -> usize {
        self.fifo.len()
    }

    /// Pages of segments.
    pub(crate) fn used_pages(&self) -> u64 {
        self.segments.values().map(|stored| stored.pages).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_head_is_read_back_and_nothing_else_is() {
        let lines: Vec<Line> = (0..1000)
            .map(|n| Line { tag: Tag::from_bits(n * 77), offset: n as u32 * 64, bytes: 48, version: 1 << 40 | (n ^ 5) })
            .collect();
        let summary = encode_lines(&lines);
        assert!(summary.len() < 12 * lines.len());
        let head = Head::new(7, 8, 9, &summary, 1000, 16);
        let bytes = head.encode(&[1; 16], 40, &summary);
        let found = Head::decode(&[1; 16], 40, &bytes).expect("a head");
        assert_eq!((found, found.lines(&bytes)), (head, Some(lines)));
        assert_eq!(Head::decode(&[1; 16], 41, &bytes), None, "it lies elsewhere");
        assert_eq!(Head::decode(&[2; 16], 40, &bytes), None, "another store's");
    }

    proptest! {
        #[test]
        fn lines_of_any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), items in 0u32..100) {
            prop_assert!(decode_lines(&bytes, items).len() <= items as usize);
        }

        /// Segments never overlap, and the oldest is what is in the way.
        #[test]
        fn a_ring_of_segments(pages in prop::collection::vec(1u64..26, 1..200)) {
            let mut log = Log::new(Layout { ring_pages: 1, log_page: 5, log_pages: 103 });
            for (order, pages) in pages.into_iter().enumerate() {
                let page = loop {
                    match log.addr(pages) {
                        RecordAddress::Free(page) => break page,
                        RecordAddress::Blocked => { prop_assert!(log.pop_oldest().is_some()); }
                        RecordAddress::TooLong => { prop_assert!(pages > 25); return Ok(()); }
                    }
                };
                prop_assert!(page >= 5 && page + pages <= 108);
                for other in log.iter() {
                    prop_assert!(other.end() <= page || page + pages <= other.page);
                }
                let order = order as u64;
                log.push(Stored { id: order, order, page, pages, head_pages: 1, expires_s: 0, pins: 0, is_written: true, is_void: false });
            }
        }
    }
}
