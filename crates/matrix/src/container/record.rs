//! A record: one version of a key in a unit.

use smallvec::SmallVec;
use stratakv_base::checksum::crc32c;
use stratakv_base::{Corruption, Expiry, fault_point};
use stratakv_pmem::Pmem;

use super::medium::{Layout, Medium, u32_at, u64_at};
use crate::entry::{Body, Meta, Pointer, value_checksum};

pub(super) const HEADER_BYTES: usize = 36;
/// What stands for a value that lies on the volume.
pub(super) const POINTER_BYTES: usize = 16;
/// Bits of a version, which count up from 1; above them, the milliseconds of the expiry.
const VERSION_BITS: u32 = 54;
const PUT: u8 = 1;
const DELETE: u8 = 2;
const BLOB: u8 = 3;
const RANGE: u8 = 4;
/// What is loaded of a record before its key's length is known.
const GUESS_BYTES: u64 = 96;

/// What a change makes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// It is not there any more.
    Delete,
    /// It has this value.
    Put(&'a [u8]),
    /// It has a value that lies in a value file. Its checksum is that of the version it will have.
    Blob(Pointer),
    /// No key from this one up to that, which is not among them, is there any more.
    Range(&'a [u8]),
}

/// A change of a key, without its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// An encoded key.
    pub key: &'a [u8],
    /// As written; 0 for deletes.
    pub flags: u32,
    /// As written; never for deletes.
    pub expiry: Expiry,
    /// What it becomes.
    pub what: What<'a>,
}

impl Change<'_> {
    /// The key is not there any more.
    pub(crate) fn delete(key: &[u8]) -> Change<'_> {
        Change { key, flags: 0, expiry: Expiry::NEVER, what: What::Delete }
    }

    /// Bytes of key and value.
    pub(crate) fn user_bytes(&self) -> u64 {
        let value = match self.what {
            What::Put(value) | What::Range(value) => value.len() as u64,
            What::Blob(pointer) => u64::from(pointer.value_bytes),
            What::Delete => 0,
        };
        self.key.len() as u64 + value
    }

    /// Length of its record.
    pub(crate) fn record_bytes(&self) -> u64 {
        let value_bytes = match self.what {
            What::Delete => 0,
            What::Put(value) | What::Range(value) => value.len(),
            What::Blob(_) => POINTER_BYTES,
        };
        (HEADER_BYTES + self.key.len() + value_bytes).next_multiple_of(8) as u64
    }
}

/// What a record's checksum also says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) number: u64,
    pub(super) place: u64,
    pub(super) version: u64,
    pub(super) ends_batch: bool,
    pub(super) not_durable: u32,
}

/// Lays a record's header, key and pointer into `head`; the value follows.
pub(super) fn encode(layout: &Layout, change: &Change<'_>, stamp: Stamp, head: &mut Vec<u8>) {
    let (kind, value_bytes, checksum) = match change.what {
        What::Delete => (DELETE, 0, 0),
        What::Put(value) => (PUT, value.len() as u32, value_checksum(stamp.version, value)),
        What::Blob(pointer) => (BLOB, pointer.value_bytes, pointer.checksum),
        What::Range(to) => (RANGE, to.len() as u32, value_checksum(stamp.version, to)),
    };
    head.clear();
    head.extend([0; 4]);
    head.extend((change.key.len() as u16).to_le_bytes());
    let is_longer = change.key.len() > usize::from(u16::MAX);
    head.extend([kind, u8::from(stamp.ends_batch) | u8::from(is_longer) << 1]);
    let (seconds, millis) = (change.expiry.0 / 1000, change.expiry.0 % 1000);
    head.extend((stamp.version | millis << VERSION_BITS).to_le_bytes());
    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
    for word in [value_bytes, change.flags, seconds, checksum, stamp.not_durable] {
        head.extend(word.to_le_bytes());
    }
    head.extend(change.key);
    if let What::Blob(pointer) = change.what {
        head.extend(pointer.file.to_le_bytes());
        head.extend(pointer.offset.to_le_bytes());
    }
    seal(layout, stamp.number, stamp.place, head);
}

/// Gives a record the checksum of its place.
pub(super) fn seal(layout: &Layout, number: u64, place: u64, head: &mut [u8]) {
    let crc = crc32c(layout.seed(number, place), &head[4..]);
    head[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Whether the record at a place, which checked when it was taken, is a delete.
pub(super) fn is_delete_at<P: Pmem>(medium: &Medium<P>, place: u64) -> Result<bool, Corruption> {
    Ok(medium.load_u64(place)?.to_le_bytes()[6] == DELETE)
}

/// The version of the record at a place, which checked when it was taken.
pub(super) fn version_at<P: Pmem>(medium: &Medium<P>, place: u64) -> Result<u64, Corruption> {
    let word = medium.load_u64(place + 8)?;
    fault_point!("trial_expiry_hides_from_snapshots", return Ok(word));
    Ok(version_in(word))
}

/// Without the milliseconds of the expiry.
fn version_in(word: u64) -> u64 {
    word & ((1 << VERSION_BITS) - 1)
}

/// A record without its value, its checksum compared.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) place: u64,
    bytes: SmallVec<[u8; GUESS_BYTES as usize]>,
}

impl Head {
    /// Reads the record at a place. What does not check is damage, or none.
    pub(super) fn load<P: Pmem>(medium: &Medium<P>, number: u64, place: u64) -> Result<Head, Corruption> {
        let layout = &medium.layout;
        let unit = layout.unit_of(place);
        let refuse = |found: &str| Err(medium.damage(place, "record", "one that checks", found));
        if unit >= layout.units() || !place.is_multiple_of(8) {
            return refuse("a place outside of units");
        }
        let room = layout.unit_end(unit) - place;
        // An array at once: `resize` would set byte after byte.
        let mut bytes = SmallVec::from_buf_and_len([0; GUESS_BYTES as usize], GUESS_BYTES.min(room) as usize);
        medium.load(place, &mut bytes)?;
        let mut head = Head { place, bytes };
        let Some(head_bytes) = head.plausible_bytes(room) else { return refuse("fields that make no sense") };
        let loaded = head.bytes.len();
        head.bytes.resize(head_bytes, 0);
        if head_bytes > loaded {
            medium.load(place + loaded as u64, &mut head.bytes[loaded..])?;
        }
        let crc = crc32c(layout.seed(number, place), &head.bytes[4..]);
        if crc != u32_at(&head.bytes, 0) { refuse("another checksum") } else { Ok(head) }
    }

    /// Bytes of header, key and pointer, if they can be a record within so many.
    fn plausible_bytes(&self, room: u64) -> Option<usize> {
        if self.bytes.len() < HEADER_BYTES || self.key_bytes() == 0 {
            return None;
        }
        let head = HEADER_BYTES + self.key_bytes();
        let head = match self.kind() {
            DELETE if self.value_bytes() == 0 => head,
            PUT | RANGE => head,
            BLOB => head + POINTER_BYTES,
            _ => return None,
        };
        let here = if self.has_value() { u64::from(self.value_bytes()) } else { 0 };
        (head as u64 + here <= room).then_some(head)
    }

    fn key_bytes(&self) -> usize {
        let flags = self.bytes.get(7).copied().unwrap_or(0);
        u32_at(&self.bytes, 4) as usize & 0xFFFF | usize::from(flags >> 1 & 1) << 16
    }

    /// Its value lies in it; of one that deletes a range that is where the range ends.
    fn has_value(&self) -> bool {
        matches!(self.kind(), PUT | RANGE)
    }

    pub(super) fn is_range(&self) -> bool {
        self.kind() == RANGE
    }

    fn kind(&self) -> u8 {
        self.bytes.get(6).copied().unwrap_or(0)
    }

    pub(super) fn ends_batch(&self) -> bool {
        self.bytes.get(7).is_some_and(|flags| flags & 1 == 1)
    }

    pub(super) fn version(&self) -> u64 {
        version_in(u64_at(&self.bytes, 8))
    }

    fn value_bytes(&self) -> u32 {
        u32_at(&self.bytes, 16)
    }

    /// The newest version that was known to be durable when this was written.
    pub(super) fn durable_version(&self) -> u64 {
        self.version().saturating_sub(1 + u64::from(u32_at(&self.bytes, 32)))
    }

    pub(super) fn key(&self) -> &[u8] {
        self.bytes.get(HEADER_BYTES..HEADER_BYTES + self.key_bytes()).unwrap_or_default()
    }

    pub(super) fn is_delete(&self) -> bool {
        self.kind() == DELETE
    }

    pub(super) fn meta(&self) -> Meta {
        let (value_bytes, checksum) = (self.value_bytes(), u32_at(&self.bytes, 28));
        let pointer = HEADER_BYTES + self.key_bytes();
        let body = match self.kind() {
            PUT => Body::Here { value_bytes, checksum },
            BLOB => Body::Blob(Pointer {
                file: u64_at(&self.bytes, pointer),
                offset: u64_at(&self.bytes, pointer + 8),
                value_bytes,
                checksum,
            }),
            _ => Body::Delete,
        };
        let millis = u64_at(&self.bytes, 8) >> VERSION_BITS;
        let expiry = Expiry(u64::from(u32_at(&self.bytes, 24)) * 1000 + millis);
        Meta { version: self.version(), flags: u32_at(&self.bytes, 20), expiry, body }
    }

    /// Bytes of the record, with its value and what fills the last word.
    pub(super) fn record_bytes(&self) -> u64 {
        let here = if self.has_value() { self.value_bytes() as usize } else { 0 };
        (self.bytes.len() + here).next_multiple_of(8) as u64
    }

    /// Appends the value that lies in the record, its checksum compared.
    pub(super) fn value<P: Pmem>(&self, medium: &Medium<P>, into: &mut Vec<u8>) -> Result<(), Corruption> {
        if !self.has_value() {
            return Ok(());
        }
        let start = into.len();
        into.resize(start + self.value_bytes() as usize, 0);
        let loaded = medium.load(self.place + self.bytes.len() as u64, &mut into[start..]);
        let (stored, computed) = (u32_at(&self.bytes, 28), value_checksum(self.version(), &into[start..]));
        if loaded.is_ok() && stored == computed {
            return Ok(());
        }
        into.truncate(start);
        loaded?;
        Err(medium.damage(self.place, "value", format!("checksum {stored:08x}"), format!("{computed:08x}")))
    }

    /// Appends the record as it will be in a row: header, key, pointer and value, padded, with the
    /// checksum of its new place. The value is not looked at.
    pub(super) fn moved<P: Pmem>(
        &self,
        medium: &Medium<P>,
        number: u64,
        place: u64,
        into: &mut Vec<u8>,
    ) -> Result<(), Corruption> {
        let (start, head) = (into.len(), self.bytes.len());
        into.extend_from_slice(&self.bytes);
        into.resize(start + self.record_bytes() as usize, 0);
        let (header, rest) = into[start..].split_at_mut(head);
        seal(&medium.layout, number, place, header);
        medium.load(self.place + head as u64, rest)
    }
}
