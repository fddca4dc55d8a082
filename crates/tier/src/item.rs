//! An item: header, key, checksums of its slices if it is long, value, and for one that was
//! promoted, where its copy on the volume lies. The same bytes in DRAM and on the volume.

use std::ops::Range;

use stratakv_base::checksum::{crc32c, seed};
use stratakv_base::codec::{Reader, Writer};
use stratakv_base::limits::VALUE_BYTES_MAX;
use stratakv_base::{Expiry, Key};

use crate::index::Loc;

pub(crate) const HEADER_BYTES: usize = 32;
pub(crate) const SSD_ADDRESS_BYTES: usize = 16;
/// Slices have a page at least.
const PAGE_SHIFT: u32 = 12;
const HAS_SSD_ADDRESS: u32 = 1 << 31;
/// Where the key's length tells of slices: their length, as a power of two.
const SHIFT_AT: u32 = 24;
const SHIFT: u32 = 0x3F << SHIFT_AT;
const SHIFT_MAX: u32 = 24;

/// What an item says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// 0 in DRAM: an item has its checksums from when it is to go to the volume.
    pub(crate) checksum: u32,
    /// Of the encoded key.
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
    pub(crate) version: u64,
    pub(crate) has_ssd_address: bool,
    /// The value's bytes are checked by slices of so many bytes, as a power of two, counted from
    /// the item's first. 0: with everything else.
    pub(crate) slice_shift: u32,
}

/// Where the copy of a promoted item lies on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SsdAddress {
    pub(crate) loc: Loc,
    /// Of the segment: the copy is there while segments of this order are.
    pub(crate) order: u64,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let key_bytes =
            self.key_bytes | if self.has_ssd_address { HAS_SSD_ADDRESS } else { 0 } | self.slice_shift << SHIFT_AT;
        let mut writer = Writer::new(&mut bytes);
        writer.u32(self.checksum).u32(key_bytes).u32(self.value_bytes).u32(self.flags);
        let (seconds, millis) = (self.expiry.0 / 1000, self.expiry.0 % 1000);
        writer.u32(u32::try_from(seconds).unwrap_or(u32::MAX)).u32(millis as u32);
        writer.u64(self.version);
        bytes
    }

    /// `None`: no item has this header.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Header> {
        let mut reader = Reader::new(bytes);
        let (checksum, key_bytes, value_bytes) = (reader.u32().ok()?, reader.u32().ok()?, reader.u32().ok()?);
        let flags = reader.u32().ok()?;
        let expiry = Expiry(u64::from(reader.u32().ok()?) * 1000 + u64::from(reader.u32().ok()?));
        let (has_ssd_address, slice_shift) = (key_bytes & HAS_SSD_ADDRESS != 0, (key_bytes & SHIFT) >> SHIFT_AT);
        let key_bytes = key_bytes & !(HAS_SSD_ADDRESS | SHIFT);
        let version = reader.u64().ok()?;
        let header = Header { checksum, key_bytes, value_bytes, flags, expiry, version, has_ssd_address, slice_shift };
        let is_possible = key_bytes as usize <= Key::ENCODED_BYTES_MAX
            && value_bytes as usize <= VALUE_BYTES_MAX
            && (slice_shift == 0 || (PAGE_SHIFT..=SHIFT_MAX).contains(&slice_shift));
        is_possible.then_some(header)
    }

    /// Bytes from the item's first to the next item's.
    pub(crate) fn total(&self) -> usize {
        (HEADER_BYTES + self.body_bytes()).next_multiple_of(8)
    }

    /// First byte of the value, counted from the item's.
    pub(crate) fn value_at(&self) -> usize {
        HEADER_BYTES + self.key_bytes as usize + self.sums_bytes()
    }

    /// Bytes of the slices' checksums. An interval touches two slices more than it fills at most;
    /// what is not needed is zero.
    pub(crate) fn sums_bytes(&self) -> usize {
        if self.slice_shift == 0 { 0 } else { ((self.value_bytes as usize >> self.slice_shift) + 2) * 4 }
    }

    /// Bytes after the header: key, checksums, value, SSD address.
    pub(crate) fn body_bytes(&self) -> usize {
        self.value_at() - HEADER_BYTES
            + self.value_bytes as usize
            + if self.has_ssd_address { SSD_ADDRESS_BYTES } else { 0 }
    }

    /// The slices that hold these bytes of the value, whole: number, and where it lies in the
    /// value.
    pub(crate) fn slices(&self, of: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let (at, shift, len) = (self.value_at(), self.slice_shift, self.value_bytes as usize);
        let first = at >> shift;
        let begin = move |number: usize| ((number << shift).saturating_sub(at)).min(len);
        let is_any = shift > 0 && of.start < of.end;
        let touched = if is_any { (at + of.start) >> shift..((at + of.end - 1) >> shift) + 1 } else { 0..0 };
        touched.map(move |number| (number - first, begin(number)..begin(number + 1)))
    }

    /// The checksums of a value's slices, as they lie behind the key; nothing if it has none.
    /// `value` gives bytes of it.
    pub(crate) fn encode_sums<'a, I: Iterator<Item = &'a [u8]>>(&self, value: impl Fn(Range<usize>) -> I) -> Vec<u8> {
        let mut sums = vec![0; self.sums_bytes()];
        for (number, range) in self.slices(0..self.value_bytes as usize) {
            let sum = slice_sum(number, value(range));
            if let Some(place) = sums.get_mut(number * 4..number * 4 + 4) {
                place.copy_from_slice(&sum.to_le_bytes());
            }
        }
        sums
    }

    /// The checksum with this body, at this place.
    pub(crate) fn sum<'a>(
        &self,
        uuid: &[u8; 16],
        segment: u64,
        offset: usize,
        body: impl Iterator<Item = &'a [u8]>,
    ) -> u32 {
        self.fold(head_sum(&self.encode(), uuid, segment, offset), body)
    }

    /// The checksum goes on over the body, in pieces from its first byte on. A value that has
    /// slices is covered by theirs.
    pub(crate) fn fold<'a>(&self, sum: u32, body: impl Iterator<Item = &'a [u8]>) -> u32 {
        let from = self.value_at() - HEADER_BYTES;
        let apart = if self.slice_shift == 0 { 0..0 } else { from..from + self.value_bytes as usize };
        let mut end = 0;
        body.fold(sum, |sum, piece| {
            let begin = end;
            end += piece.len();
            let front = piece.get(..apart.start.clamp(begin, end) - begin).unwrap_or_default();
            let back = piece.get(apart.end.clamp(begin, end) - begin..).unwrap_or_default();
            crc32c(crc32c(sum, front), back)
        })
    }
}

/// The checksum of an encoded header, before that of its body.
pub(crate) fn head_sum(head: &[u8], uuid: &[u8; 16], segment: u64, offset: usize) -> u32 {
    crc32c(seed(uuid, segment, offset as u64), head.get(4..).unwrap_or_default())
}

/// The checksum of a slice of a value. That it is this value's is what the item's own checksum
/// says, which covers this one.
pub(crate) fn slice_sum<'a>(number: usize, pieces: impl Iterator<Item = &'a [u8]>) -> u32 {
    pieces.fold(number as u32, crc32c)
}

impl SsdAddress {
    pub(crate) fn encode(&self) -> [u8; SSD_ADDRESS_BYTES] {
        let mut bytes = [0; SSD_ADDRESS_BYTES];
        Writer::new(&mut bytes).u64(self.loc.bits()).u64(self.order);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<SsdAddress> {
        let mut reader = Reader::new(bytes);
        Some(SsdAddress { loc: Loc::from_bits(reader.u64().ok()?), order: reader.u64().ok()? })
    }
}
