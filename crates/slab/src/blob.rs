//! Blobs as bytes: items too large for a slot, in contiguous pages. Pure functions.
//!
//! A blob is `header (64 B), slice checksums (4 B each), key, value`, back to back from the start
//! of its first page. Slice *k* is bytes `k * 64 KiB ..` of the blob; its checksum covers its part
//! of the value, so a value can be checked and sent slice by slice. Header and checksums are
//! written last, with the group that acknowledges the blob.

use stratakv_base::checksum::{crc32c, seed, turned_bit};
use stratakv_base::codec::{Reader, Writer};
use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES, VALUE_BYTES_MAX};
use stratakv_base::{Key, limits::KEY_BYTES_MAX};

use crate::record::Meta;
use crate::superblock::FORMAT;

const MAGIC: u32 = u32::from_le_bytes(*b"SLRN");
/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 64;
const LIVE: u8 = 1;
const DEAD: u8 = 2;
/// Most pages of a blob.
pub(crate) const PAGES_MAX: u32 = 1 << 15;

/// Where the parts of a blob lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) key_len: usize,
    pub(crate) value_len: usize,
    pub(crate) slices: usize,
}

impl Shape {
    /// The shape of a blob for a key and a value of these lengths.
    pub(crate) fn new(key_len: usize, value_len: usize) -> Shape {
        let mut slices = 1;
        while HEADER_BYTES + 4 * slices + key_len + value_len > slices * SLICE_BYTES {
            slices += 1;
        }
        Shape { key_len, value_len, slices }
    }

    /// Bytes in front of the value.
    pub(crate) fn head_bytes(&self) -> usize {
        HEADER_BYTES + 4 * self.slices + self.key_len
    }

    /// Bytes of the blob.
    pub(crate) fn total_bytes(&self) -> usize {
        self.head_bytes() + self.value_len
    }

    /// Pages of the blob.
    pub(crate) fn pages(&self) -> u32 {
        self.total_bytes().div_ceil(PAGE_BYTES) as u32
    }

    /// Slices that hold a part of the head: those are written last.
    pub(crate) fn head_slices(&self) -> usize {
        self.head_bytes().div_ceil(SLICE_BYTES)
    }

    /// The part of the value in slice `slice`.
    pub(crate) fn value_part(&self, slice: usize) -> std::ops::Range<usize> {
        let head = self.head_bytes();
        let start = (slice * SLICE_BYTES).max(head).min(self.total_bytes());
        let end = ((slice + 1) * SLICE_BYTES).min(self.total_bytes()).max(start);
        start - head..end - head
    }

    /// Bytes of the blob in slice `slice`.
    pub(crate) fn bytes_in(&self, slice: usize) -> usize {
        self.total_bytes().saturating_sub(slice * SLICE_BYTES).min(SLICE_BYTES)
    }

    /// Bytes of slice `slice` on the medium, in whole pages.
    pub(crate) fn slice_bytes(&self, slice: usize) -> usize {
        self.bytes_in(slice).div_ceil(PAGE_BYTES) * PAGE_BYTES
    }
}

/// What a blob's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlobHeader {
    pub(crate) shape: Shape,
    pub(crate) meta: Meta,
    pub(crate) sequence: u64,
    pub(crate) durable: u64,
    /// Cleared: its pages may hold anything.
    pub(crate) dead: bool,
    table_crc: u32,
}

/// Checksum of the part of the value in one slice.
pub(crate) fn slice_crc(uuid: &[u8; 16], place: u32, version: u64, slice: usize, part: &[u8]) -> u32 {
    crc32c(seed(uuid, u64::from(place), version) ^ slice as u32, part)
}

/// The head: header, checksums and key.
pub(crate) fn encode_head(
    uuid: &[u8; 16],
    place: u32,
    shape: &Shape,
    meta: &Meta,
    (sequence, durable): (u64, u64),
    crcs: &[u32],
    key: &[u8],
) -> Vec<u8> {
    let mut head = vec![0; shape.head_bytes()];
    let mut writer = Writer::new(&mut head[HEADER_BYTES..]);
    crcs.iter().for_each(|crc| {
        writer.u32(*crc);
    });
    writer.bytes(key);
    let table_crc = crc32c(seed(uuid, u64::from(place), sequence), &head[HEADER_BYTES..]);
    let mut writer = Writer::new(&mut head);
    writer.u32(MAGIC).u8(FORMAT).u8(LIVE).u16(0).u32(0).u32(table_crc).u64(sequence).u64(durable).u64(meta.version);
    writer.u32(shape.value_len as u32).u32(shape.key_len as u32).u32(shape.pages()).u32(meta.flags);
    let (seconds, millis) = (meta.expiry / 1000, meta.expiry % 1000);
    writer.u32(u32::try_from(seconds).unwrap_or(u32::MAX)).u32(millis as u32);
    let crc = header_crc(uuid, place, &head);
    Writer::new(&mut head[8..12]).u32(crc);
    head
}

fn header_crc(uuid: &[u8; 16], place: u32, head: &[u8]) -> u32 {
    crc32c(crc32c(seed(uuid, u64::from(place), 1), &head[..8]), &head[12..HEADER_BYTES])
}

/// Reads the header at the start of a blob's first page; `None` if there is none that checks.
pub(crate) fn decode_header(uuid: &[u8; 16], place: u32, bytes: &[u8]) -> Option<BlobHeader> {
    let bytes = bytes.get(..HEADER_BYTES)?;
    let mut reader = Reader::new(bytes);
    let (magic, format, state) = (reader.u32().ok()?, reader.u8().ok()?, reader.u8().ok()?);
    reader.u16().ok()?;
    let (crc, table_crc) = (reader.u32().ok()?, reader.u32().ok()?);
    if magic != MAGIC || format != FORMAT || crc != header_crc(uuid, place, bytes) {
        return None;
    }
    let (sequence, durable, version) = (reader.u64().ok()?, reader.u64().ok()?, reader.u64().ok()?);
    let (value_len, key_len) = (reader.u32().ok()? as usize, reader.u32().ok()? as usize);
    let (pages, flags) = (reader.u32().ok()?, reader.u32().ok()?);
    let expiry = u64::from(reader.u32().ok()?) * 1000 + u64::from(reader.u32().ok()?);
    if value_len > VALUE_BYTES_MAX || key_len > Key::ENCODED_BYTES_MAX {
        return None;
    }
    let shape = Shape::new(key_len, value_len);
    (shape.pages() == pages && pages < PAGES_MAX).then_some(BlobHeader {
        shape,
        meta: Meta { version, flags, expiry },
        sequence,
        durable,
        dead: state == DEAD,
        table_crc,
    })
}

/// Reads a header of which one bit has turned. Whatever it heads is damaged, but it still says
/// whose it is.
pub(crate) fn mend_header(uuid: &[u8; 16], place: u32, bytes: &[u8]) -> Option<BlobHeader> {
    let magic = Reader::new(bytes).u32().ok()?;
    if (magic ^ MAGIC).count_ones() > 1 {
        return None;
    }
    let mut bytes: [u8; HEADER_BYTES] = bytes.get(..HEADER_BYTES)?.try_into().ok()?;
    (0..HEADER_BYTES * 8).find_map(|bit| {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let header = decode_header(uuid, place, &bytes);
        bytes[bit / 8] ^= 1 << (bit % 8);
        header
    })
}

/// Turns one bit of the checksums and the key back, if that makes them check: the key is known
/// again.
pub(crate) fn mend_table(uuid: &[u8; 16], place: u32, header: &BlobHeader, head: &mut [u8]) -> bool {
    let Some(table) = head.get_mut(HEADER_BYTES..header.shape.head_bytes()) else { return false };
    let crc = crc32c(seed(uuid, u64::from(place), header.sequence), table);
    let Some((byte, mask)) = turned_bit(crc ^ header.table_crc, table.len()) else { return false };
    table[byte] ^= mask;
    true
}

/// Whether bytes that are no head by their checksum carry a head's magic number.
pub(crate) fn looks_like_head(bytes: &[u8]) -> bool {
    Reader::new(bytes).u32().is_ok_and(|magic| magic == MAGIC)
}

/// Whether the head (`shape.head_bytes()` of it) checks.
pub(crate) fn head_checks(uuid: &[u8; 16], place: u32, header: &BlobHeader, head: &[u8]) -> bool {
    head.len() == header.shape.head_bytes()
        && head
            .get(HEADER_BYTES..)
            .is_some_and(|table| crc32c(seed(uuid, u64::from(place), header.sequence), table) == header.table_crc)
}

/// The checksum of one slice and the key, from a head that checks.
pub(crate) fn head_slice_crc(head: &[u8], slice: usize) -> u32 {
    head.get(HEADER_BYTES + 4 * slice..).and_then(|bytes| Reader::new(bytes).u32().ok()).unwrap_or_default()
}

/// The key, from a head that checks.
pub(crate) fn head_key<'a>(shape: &Shape, head: &'a [u8]) -> &'a [u8] {
    head.get(HEADER_BYTES + 4 * shape.slices..shape.head_bytes()).unwrap_or_default()
}

/// Turns the first page of a blob into that of a cleared one. Changes bytes of the first sector
/// only, so a torn write leaves the blob either live or cleared.
pub(crate) fn write_tombstone(uuid: &[u8; 16], place: u32, page: &mut [u8]) {
    page[5] = DEAD;
    let crc = header_crc(uuid, place, page);
    Writer::new(&mut page[8..12]).u32(crc);
}

const _: () = assert!((VALUE_BYTES_MAX + KEY_BYTES_MAX + (80 << 10)) / PAGE_BYTES < PAGES_MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_cover_the_value_exactly() {
        for key_len in [2, 300, KEY_BYTES_MAX + 1] {
            for value_len in [0, 1, 4000, 65_000, 65_400, 65_536, 131_000, 131_072, 1 << 20, VALUE_BYTES_MAX] {
                let shape = Shape::new(key_len, value_len);
                assert!(shape.slices * SLICE_BYTES >= shape.total_bytes());
                assert!((shape.slices - 1) * SLICE_BYTES < shape.total_bytes());
                let mut at = 0;
                for slice in 0..shape.slices {
                    let part = shape.value_part(slice);
                    assert_eq!(part.start, at, "{shape:?} {slice}");
                    at = part.end;
                }
                assert_eq!(at, value_len);
            }
        }
    }

    #[test]
    fn heads_read_back_and_damage_is_found() {
        let (uuid, meta) = ([3; 16], Meta { version: 8, flags: 1, expiry: 2_000 });
        let shape = Shape::new(4, 100_000);
        let head = encode_head(&uuid, 70, &shape, &meta, (12, 11), &[5, 6], b"\0key");
        assert_eq!(crc32c(0, &head), 0x26A2_5C50, "raise FORMAT when this changes");
        let header = decode_header(&uuid, 70, &head).unwrap();
        assert_eq!((header.meta, header.sequence, header.durable, header.dead), (meta, 12, 11, false));
        assert!(head_checks(&uuid, 70, &header, &head));
        assert_eq!((head_slice_crc(&head, 1), head_key(&shape, &head)), (6, &b"\0key"[..]));
        assert!(decode_header(&uuid, 71, &head).is_none());
        for bit in 0..head.len() * 8 {
            let mut bad = head.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let good = decode_header(&uuid, 70, &bad).is_some_and(|header| head_checks(&uuid, 70, &header, &bad));
            assert!(!good, "bit {bit}");
        }
        let mut dead = head.clone();
        write_tombstone(&uuid, 70, &mut dead);
        let header = decode_header(&uuid, 70, &dead).unwrap();
        assert!(header.dead && head_checks(&uuid, 70, &header, &dead));
    }
}
