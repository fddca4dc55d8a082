//! An item: header, key, value, and for one that was promoted, where its copy on the volume lies. The same bytes in DRAM and on the volume.

use stratakv_base::checksum::{crc32c, seed};
use stratakv_base::codec::{Reader, Writer};
use stratakv_base::limits::VALUE_BYTES_MAX;
use stratakv_base::{Expiry, Key};

use crate::index::Loc;

pub(crate) const HEADER_BYTES: usize = 32;
pub(crate) const HOME_BYTES: usize = 16;
const HAS_HOME: u32 = 1 << 31;

/// What an item says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) checksum: u32,
    /// Of the encoded key.
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
    pub(crate) version: u64,
    pub(crate) has_home: bool,
}

/// Where the copy of a promoted item lies on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) loc: Loc,
    /// Of the segment: the copy is there while segments of this order are.
    pub(crate) order: u64,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let key_bytes = self.key_bytes | if self.has_home { HAS_HOME } else { 0 };
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
        let (has_home, key_bytes) = (key_bytes & HAS_HOME != 0, key_bytes & !HAS_HOME);
        let header = Header { checksum, key_bytes, value_bytes, flags, expiry, version: reader.u64().ok()?, has_home };
        let is_possible = key_bytes as usize <= Key::ENCODED_BYTES_MAX && value_bytes as usize <= VALUE_BYTES_MAX;
        is_possible.then_some(header)
    }

    /// Bytes from the item's first to the next item's.
    pub(crate) fn total(&self) -> usize {
        total(self.key_bytes as usize, self.value_bytes as usize, self.has_home)
    }

    /// First byte of the value, counted from the item's.
    pub(crate) fn value_at(&self) -> usize {
        HEADER_BYTES + self.key_bytes as usize
    }

    /// Bytes that the checksum covers, after the header.
    pub(crate) fn body_bytes(&self) -> usize {
        self.key_bytes as usize + self.value_bytes as usize + if self.has_home { HOME_BYTES } else { 0 }
    }

    /// The checksum with this body, at this place.
    pub(crate) fn sum<'a>(
        &self,
        uuid: &[u8; 16],
        segment: u64,
        offset: usize,
        body: impl Iterator<Item = &'a [u8]>,
    ) -> u32 {
        body.fold(head_sum(&self.encode(), uuid, segment, offset), crc32c)
    }
}

/// The checksum of an encoded header, before that of its body.
pub(crate) fn head_sum(head: &[u8], uuid: &[u8; 16], segment: u64, offset: usize) -> u32 {
    crc32c(seed(uuid, segment, offset as u64), head.get(4..).unwrap_or_default())
}

/// Bytes of an item, up to the next one.
pub(crate) fn total(key_bytes: usize, value_bytes: usize, has_home: bool) -> usize {
    (HEADER_BYTES + key_bytes + value_bytes + if has_home { HOME_BYTES } else { 0 }).next_multiple_of(8)
}

impl Home {
    pub(crate) fn encode(&self) -> [u8; HOME_BYTES] {
        let mut bytes = [0; HOME_BYTES];
        Writer::new(&mut bytes).u64(self.loc.bits()).u64(self.order);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Home> {
        let mut reader = Reader::new(bytes);
        Some(Home { loc: Loc::from_bits(reader.u64().ok()?), order: reader.u64().ok()? })
    }
}
