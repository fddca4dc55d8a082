//! The segment table as bytes: what each segment of a zone is, and since when. Pure functions.

use stratakv_base::checksum::{crc32c, seed};
use stratakv_base::codec::{Reader, Writer};
use stratakv_base::limits::PAGE_BYTES;

const MAGIC: u32 = u32::from_le_bytes(*b"SPTB");
/// Segments of a zone.
pub(crate) const ZONE_SEGMENTS: u32 = 400;
const ENTRIES_AT: usize = 64;
/// Writes that can never have been: one more than the highest number would be the lowest, and the
/// copy before it would hold for ever.
const COUNTER_MAX: u64 = 1 << 63;

/// What a segment is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SegmentKind {
    /// It was never opened.
    #[default]
    Blank,
    /// Batches.
    Log,
    /// Large values.
    Blobs,
    /// The index, written down.
    Checkpoint,
}

/// What the table says of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableEntry {
    pub(crate) kind: SegmentKind,
    /// Number of its last opening.
    pub(crate) generation: u64,
}

/// One copy of a zone's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentTable {
    /// Counts its writes.
    pub(crate) counter: u64,
    pub(crate) durable: u64,
    /// [`ZONE_SEGMENTS`] of them.
    pub(crate) entries: Vec<TableEntry>,
}

impl SegmentTable {
    /// Of a zone in which nothing was opened.
    pub(crate) fn blank() -> SegmentTable {
        SegmentTable { counter: 0, durable: 0, entries: vec![TableEntry::default(); ZONE_SEGMENTS as usize] }
    }

    /// Writes it into a page that lies at `place`.
    pub(crate) fn encode(&self, uuid: &[u8; 16], place: u32, page: &mut [u8]) {
        page.fill(0);
        let mut writer = Writer::new(page);
        writer.u32(MAGIC).u32(0).u64(self.counter).u64(self.durable);
        let mut writer = Writer::new(&mut page[ENTRIES_AT..]);
        for entry in &self.entries {
            let kind = match entry.kind {
                SegmentKind::Blank => 0,
                SegmentKind::Log => 1,
                SegmentKind::Blobs => 2,
                SegmentKind::Checkpoint => 3,
            };
            writer.u64(entry.generation).u8(kind);
        }
        let crc = page_crc(uuid, place, page);
        Writer::new(&mut page[4..8]).u32(crc);
    }

    /// Reads it; `None` if it does not check.
    pub(crate) fn decode(uuid: &[u8; 16], place: u32, page: &[u8]) -> Option<SegmentTable> {
        let mut reader = Reader::new(page);
        let (magic, crc) = (reader.u32().ok()?, reader.u32().ok()?);
        if page.len() != PAGE_BYTES || magic != MAGIC || crc != page_crc(uuid, place, page) {
            return None;
        }
        let (counter, durable) = (reader.u64().ok()?, reader.u64().ok()?);
        if counter >= COUNTER_MAX {
            return None;
        }
        let mut reader = Reader::new(page.get(ENTRIES_AT..)?);
        let mut entries = Vec::with_capacity(ZONE_SEGMENTS as usize);
        for _ in 0..ZONE_SEGMENTS {
            let generation = reader.u64().ok()?;
            let kind = match reader.u8().ok()? {
                0 => SegmentKind::Blank,
                1 => SegmentKind::Log,
                2 => SegmentKind::Blobs,
                3 => SegmentKind::Checkpoint,
                _ => return None,
            };
            entries.push(TableEntry { kind, generation });
        }
        Some(SegmentTable { counter, durable, entries })
    }
}

fn page_crc(uuid: &[u8; 16], place: u32, page: &[u8]) -> u32 {
    crc32c(crc32c(seed(uuid, u64::from(place), 3), &page[..4]), &page[8..])
}

const _: () = assert!(ENTRIES_AT + ZONE_SEGMENTS as usize * 9 <= PAGE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by forging every number of a log: the count of its writes overflowed.
    #[test]
    fn a_table_that_was_written_too_often_to_be_counted_is_none() {
        let mut page = vec![0; PAGE_BYTES];
        SegmentTable { counter: u64::MAX, ..SegmentTable::blank() }.encode(&[7; 16], 2, &mut page);
        assert_eq!(SegmentTable::decode(&[7; 16], 2, &page), None);
    }

    #[test]
    fn reads_back_and_every_flipped_bit_is_refused() {
        let mut table = SegmentTable { counter: 3, durable: 99, ..SegmentTable::blank() };
        table.entries[7] = TableEntry { kind: SegmentKind::Log, generation: 1 << 63 };
        table.entries[399] = TableEntry { kind: SegmentKind::Blobs, generation: 5 };
        let mut page = vec![0; PAGE_BYTES];
        table.encode(&[7; 16], 2, &mut page);
        assert_eq!(crc32c(0, &page), 0xAA06_AEED, "raise the format when this changes");
        assert_eq!(SegmentTable::decode(&[7; 16], 2, &page), Some(table));
        assert_eq!(SegmentTable::decode(&[7; 16], 3, &page), None, "the other copy");
        for bit in 0..PAGE_BYTES * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentTable::decode(&[7; 16], 2, &page), None, "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
