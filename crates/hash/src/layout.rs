//! What lies where in a region: drawn in docs/format-hash.md.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};
use stratakv_base::checksum::crc32c;
use stratakv_pmem::LINE_BYTES;

use crate::crc::crc;

/// Bytes of a superblock, of the roots; the segment words are rounded up to it.
pub(crate) const PAGE: u64 = 4096;
pub(crate) const LEASE_AT: u64 = 2 * PAGE;
/// Words of batches that are committed and not carried out to their end, a line each, behind that
/// of the lease.
pub(crate) const COMMITS: u64 = PAGE / LINE_BYTES - 1;
pub(crate) const WORDS_AT: u64 = 3 * PAGE;
/// Bytes of a record before its flags and key.
pub(crate) const HEADER_BYTES: u64 = 32;
/// Versions of a lease.
pub(crate) const LEASE: u64 = 1 << 20;
/// Of regions of one part, which older programs may open; and of several.
const FORMAT_OF_ONE: u32 = 1;
pub(crate) const FORMAT: u32 = 2;

const MAGIC: &[u8; 16] = b"StrataKV hash  \0";
/// Bytes of a superblock of one part, with its checksum: all begin with as many.
const SUPERBLOCK_OF_ONE: usize = 60;
/// Most parts of a region.
pub(crate) const PARTS_MAX: usize = 64;
/// Bytes of a superblock at most.
pub(crate) const SUPERBLOCK_LEN: usize = SUPERBLOCK_OF_ONE + 4 + 16 * PARTS_MAX + 4;
/// Blocks of an extent.
pub(crate) const BLOCKS_MAX: u64 = (1 << 24) - 1;
const HAS_FLAGS: u64 = 1 << 31;
/// Bits of a version; above them, the milliseconds of the expiry.
const VERSION_BITS: u32 = 54;
const VERSION_MASK: u64 = (1 << VERSION_BITS) - 1;
/// An entry of the table has 36 bits for a block.
const BLOCKS_OF_REGION_MAX: u64 = 1 << 36;
/// No version is as high: 2^63 of them would take a century at a hundred a nanosecond.
pub(crate) const VERSION_MAX: u64 = 1 << VERSION_BITS;

/// What a region says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) block_bytes: u32,
    pub(crate) segment_bytes: u64,
    /// One at least.
    pub(crate) parts: SmallVec<[Named; 1]>,
    pub(crate) uuid: [u8; 16],
}

/// A part as the superblock names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) bytes: u64,
    /// Drawn when it was made: what a growth has left that was cut is not taken for it. 0: the
    /// first one.
    pub(crate) id: u64,
}

impl Named {
    pub(crate) fn first(bytes: u64) -> Named {
        Named { bytes, id: 0 }
    }
}

/// Why bytes are no superblock, or no head of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSuperblock {
    /// All of it is zero: a region that was never created, or not to its end.
    Blank,
    /// It is something else, or damaged.
    Foreign,
    /// Of this version of the format.
    Newer(u32),
}

/// A number off bytes; zero beyond their end.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

fn uuid_at(bytes: &[u8], at: usize) -> [u8; 16] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default()
}

impl Superblock {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let format = if self.parts.len() == 1 { FORMAT_OF_ONE } else { FORMAT };
        let mut bytes = Vec::with_capacity(SUPERBLOCK_LEN);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&format.to_le_bytes());
        bytes.extend_from_slice(&self.block_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.segment_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.first_part_bytes().to_le_bytes());
        bytes.extend_from_slice(&self.uuid);
        bytes.extend_from_slice(&crc32c(0, &bytes).to_le_bytes());
        if self.parts.len() > 1 {
            bytes.extend_from_slice(&(self.parts.len() as u32).to_le_bytes());
            for Named { bytes: part_bytes, id } in &self.parts {
                bytes.extend_from_slice(&part_bytes.to_le_bytes());
                bytes.extend_from_slice(&id.to_le_bytes());
            }
            bytes.extend_from_slice(&crc32c(0, &bytes).to_le_bytes());
        }
        bytes
    }

    /// The superblock at the begin of these bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Superblock, NoSuperblock> {
        let Some(head) = bytes.first_chunk::<SUPERBLOCK_OF_ONE>() else { return Err(NoSuperblock::Foreign) };
        if head.iter().all(|byte| *byte == 0) {
            return Err(NoSuperblock::Blank);
        }
        if head[..16] != MAGIC[..] || u32_at(head, 56) != crc32c(0, &head[..56]) {
            return Err(NoSuperblock::Foreign);
        }
        let parts = match u32_at(head, 16) {
            FORMAT_OF_ONE => smallvec![Named::first(u64_at(head, 32))],
            FORMAT => parts_in(bytes).ok_or(NoSuperblock::Foreign)?,
            newer => return Err(NoSuperblock::Newer(newer)),
        };
        let found = Superblock {
            block_bytes: u32_at(head, 20),
            segment_bytes: u64_at(head, 24),
            parts,
            uuid: uuid_at(head, 40),
        };
        found.is_possible().then_some(found).ok_or(NoSuperblock::Foreign)
    }

    /// Whether the lengths go together, with at least one segment in each part.
    pub(crate) fn is_possible(&self) -> bool {
        let region_bytes = self.parts.iter().try_fold(0, |sum: u64, part| sum.checked_add(part.bytes));
        matches!(self.block_bytes, 32 | 64)
            && self.segment_bytes.is_power_of_two()
            && (4096..=1 << 20).contains(&self.segment_bytes)
            && region_bytes.is_some_and(|bytes| bytes / u64::from(self.block_bytes) <= BLOCKS_OF_REGION_MAX)
            && (1..=PARTS_MAX).contains(&self.parts.len())
            && (self.parts.len() == 1 || self.parts.iter().all(|part| part.bytes.is_multiple_of(PAGE)))
            && self.first_segments() > 0
            && self.layout().iter().all(|part| !part.segments.is_empty())
    }

    pub(crate) fn first_part_bytes(&self) -> u64 {
        self.parts.first().map_or(0, |part| part.bytes)
    }

    /// Bytes of all parts.
    pub(crate) fn region_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Segments of the first part.
    fn first_segments(&self) -> u32 {
        let words = |segments: u64| (segments * 8).next_multiple_of(PAGE);
        let room_bytes = self.first_part_bytes().saturating_sub(WORDS_AT);
        let most = room_bytes / self.segment_bytes;
        // One segment at most is lost to the words of all of them.
        let lost =
            (words(most) + most * self.segment_bytes > room_bytes).then(|| words(most).div_ceil(self.segment_bytes));
        most.saturating_sub(lost.unwrap_or(0)).min(u64::from(u32::MAX)) as u32
    }

    /// Where the first segment begins.
    pub(crate) fn first(&self) -> u64 {
        WORDS_AT + (u64::from(self.first_segments()) * 8).next_multiple_of(PAGE)
    }

    /// The parts, one behind the other.
    pub(crate) fn layout(&self) -> Vec<PartLayout> {
        let (first, first_bytes) = (self.first(), self.first_part_bytes());
        let (mut parts, mut offset) = (Vec::with_capacity(self.parts.len()), first_bytes);
        parts.push(PartLayout {
            offset: 0,
            bytes: first_bytes,
            words_at: WORDS_AT,
            segments: 0..self.first_segments(),
        });
        for Named { bytes, .. } in self.parts.iter().skip(1) {
            let words_at = offset + HEADS_BYTES;
            let begin = words_at + (bytes / self.segment_bytes * 8).next_multiple_of(PAGE);
            let number = |bytes: u64| u32::try_from(bytes / self.segment_bytes).unwrap_or(u32::MAX);
            let segments = number(begin - first + self.segment_bytes - 1)..number(offset + bytes - first);
            parts.push(PartLayout { offset, bytes: *bytes, words_at, segments });
            offset += bytes;
        }
        parts
    }

    pub(crate) fn segment_at(&self, number: u32) -> u64 {
        self.first() + u64::from(number) * self.segment_bytes
    }

    pub(crate) fn blocks_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.block_bytes))
    }
}

/// The parts in a superblock of several.
fn parts_in(bytes: &[u8]) -> Option<SmallVec<[Named; 1]>> {
    const AT: usize = SUPERBLOCK_OF_ONE + 4;
    let count = u32_at(bytes, SUPERBLOCK_OF_ONE) as usize;
    if !(2..=PARTS_MAX).contains(&count) {
        return None;
    }
    let end = AT + 16 * count;
    let checks = bytes.len() >= end + 4 && u32_at(bytes, end) == crc32c(0, bytes.get(..end)?);
    let part = |at: usize| Named { bytes: u64_at(bytes, at), id: u64_at(bytes, at + 8) };
    let parts: SmallVec<[Named; 1]> = (AT..end).step_by(16).map(part).collect();
    (checks && parts.first() == Some(&Named::first(u64_at(bytes, 32)))).then_some(parts)
}

/// Where a part lies, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartLayout {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Of the word of its first segment.
    pub(crate) words_at: u64,
    pub(crate) segments: Range<u32>,
}

/// Bytes of the head of a part, and of the second copy.
pub(crate) const HEADS_BYTES: u64 = 2 * PAGE;
const PART_MAGIC: &[u8; 16] = b"StrataKV part  \0";
pub(crate) const HEAD_LEN: usize = 60;

/// What a later part says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) number: u32,
    pub(crate) id: u64,
    pub(crate) bytes: u64,
    pub(crate) uuid: [u8; 16],
}

impl Head {
    pub(crate) fn encode(&self) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        bytes[..16].copy_from_slice(PART_MAGIC);
        bytes[16..20].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.id.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[40..56].copy_from_slice(&self.uuid);
        let crc = crc32c(0, &bytes[..56]);
        bytes[56..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HEAD_LEN]) -> Result<Head, NoSuperblock> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(NoSuperblock::Blank);
        }
        if bytes[..16] != PART_MAGIC[..] || u32_at(bytes, 56) != crc32c(0, &bytes[..56]) {
            return Err(NoSuperblock::Foreign);
        }
        if u32_at(bytes, 16) != FORMAT {
            return Err(NoSuperblock::Newer(u32_at(bytes, 16)));
        }
        let (number, uuid) = (u32_at(bytes, 20), uuid_at(bytes, 40));
        Ok(Head { number, id: u64_at(bytes, 24), bytes: u64_at(bytes, 32), uuid })
    }
}

/// Where a commit word lies.
pub(crate) fn commit_at(number: u64) -> u64 {
    LEASE_AT + LINE_BYTES * (number + 1)
}

/// What a commit word says of a batch with this version.
pub(crate) fn commit_value(version: u64) -> u64 {
    version & ((1 << 48) - 1)
}

/// A word of 48 bits with its check.
fn checked(uuid: &[u8; 16], offset: u64, value: u64) -> u16 {
    let [a, b, c, d, e, f, ..] = value.to_le_bytes();
    let crc = crc(uuid, [offset, 0], &[a, b, c, d, e, f]);
    (crc ^ crc >> 16) as u16
}

/// A lease or the state of a segment as a word.
pub(crate) fn root_word(uuid: &[u8; 16], offset: u64, value: u64) -> u64 {
    value << 16 | u64::from(checked(uuid, offset, value))
}

/// What such a word says; `None` if it does not check.
pub(crate) fn root_value(uuid: &[u8; 16], offset: u64, word: u64) -> Option<u64> {
    let value = word >> 16;
    (word as u16 == checked(uuid, offset, value)).then_some(value)
}

/// State of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentState {
    Unused,
    Extents,
    /// The first of so many whose extents go on from one to the next.
    Large(u32),
    Continued,
}

impl SegmentState {
    pub(crate) fn to_value(self) -> u64 {
        match self {
            SegmentState::Unused => 0,
            SegmentState::Extents => 1,
            SegmentState::Large(segments) => 2 + (u64::from(segments) << 8),
            SegmentState::Continued => 3,
        }
    }

    pub(crate) fn from_value(value: u64) -> Option<SegmentState> {
        match (value & 0xFF, value >> 8) {
            (0, 0) => Some(SegmentState::Unused),
            (1, 0) => Some(SegmentState::Extents),
            (2, segments) => u32::try_from(segments).ok().filter(|count| *count > 1).map(SegmentState::Large),
            (3, 0) => Some(SegmentState::Continued),
            _ => None,
        }
    }
}

/// What an extent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Free,
    Record,
    /// A record of a batch: there only if the batch was committed.
    Member,
    /// The delete of a key by a batch.
    Removal,
}

impl Kind {
    fn bits(self) -> u64 {
        match self {
            Kind::Free => 0x2D,
            Kind::Record => 0x52,
            Kind::Member => 0x4B,
            Kind::Removal => 0x34,
        }
    }

    fn of(bits: u64) -> Option<Kind> {
        [Kind::Free, Kind::Record, Kind::Member, Kind::Removal].into_iter().find(|kind| kind.bits() == bits)
    }
}

/// The first word of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct First {
    pub(crate) kind: Kind,
    pub(crate) blocks: u32,
    /// Of the record that is there, or was until it was freed: 0 if there was none.
    pub(crate) key_bytes: u32,
}

impl First {
    pub(crate) fn free(blocks: u32) -> First {
        First { kind: Kind::Free, blocks, key_bytes: 0 }
    }

    pub(crate) fn with(self, kind: Kind) -> First {
        First { kind, ..self }
    }

    fn bits(self) -> u64 {
        self.kind.bits() | u64::from(self.blocks) << 7 | u64::from(self.key_bytes) << 31
    }

    pub(crate) fn encode(self, uuid: &[u8; 16], offset: u64) -> u64 {
        let bits = self.bits();
        bits | u64::from(checked(uuid, offset, bits)) << 48
    }

    /// `None`: it does not check, or is none.
    pub(crate) fn decode(uuid: &[u8; 16], offset: u64, word: u64) -> Option<First> {
        let bits = word & ((1 << 48) - 1);
        let (blocks, key_bytes) = ((bits >> 7 & BLOCKS_MAX) as u32, (bits >> 31) as u32);
        let kind = Kind::of(bits & 0x7F).filter(|kind| *kind == Kind::Free || key_bytes > 0)?;
        let checks = blocks > 0 && (word >> 48) as u16 == checked(uuid, offset, bits);
        checks.then_some(First { kind, blocks, key_bytes })
    }
}

/// The header of a record, and the flags behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) blocks: u32,
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    pub(crate) version: u64,
    /// Milliseconds since 1970; 0 never.
    pub(crate) expiry: u64,
    pub(crate) has_flags: bool,
    pub(crate) header_crc: u32,
    pub(crate) value_crc: u32,
}

impl Header {
    /// The words of a header whose first one says `first`.
    pub(crate) fn decode(words: [u64; 4], first: First) -> Header {
        Header {
            blocks: first.blocks,
            key_bytes: first.key_bytes,
            version: words[1] & VERSION_MASK,
            value_bytes: (words[2] & 0x0FFF_FFFF) as u32,
            has_flags: words[2] & HAS_FLAGS != 0,
            header_crc: (words[2] >> 32) as u32,
            expiry: u64::from(words[3] as u32) * 1000 + (words[1] >> VERSION_BITS),
            value_crc: (words[3] >> 32) as u32,
        }
    }

    /// Words 1 to 3.
    pub(crate) fn words(&self) -> [u64; 3] {
        let value = u64::from(self.value_bytes) | if self.has_flags { HAS_FLAGS } else { 0 };
        [
            self.version | (self.expiry % 1000) << VERSION_BITS,
            value | u64::from(self.header_crc) << 32,
            (self.expiry / 1000).min(u32::MAX.into()) | u64::from(self.value_crc) << 32,
        ]
    }

    pub(crate) fn first(&self) -> First {
        First { kind: Kind::Record, blocks: self.blocks, key_bytes: self.key_bytes }
    }

    /// Bytes between the header and the value.
    pub(crate) fn prefix_bytes(&self) -> u64 {
        u64::from(self.key_bytes) + if self.has_flags { 4 } else { 0 }
    }

    /// The key in what lies between the header and the value.
    pub(crate) fn key_in<'a>(&self, prefix: &'a [u8]) -> &'a [u8] {
        prefix.get(prefix.len().saturating_sub(self.key_bytes as usize)..).unwrap_or_default()
    }

    /// The flags in what lies between the header and the value.
    pub(crate) fn flags_in(&self, prefix: &[u8]) -> u32 {
        let flags = prefix.strip_suffix(self.key_in(prefix)).and_then(|flags| flags.try_into().ok());
        flags.map_or(0, u32::from_le_bytes)
    }

    /// Bytes of the record.
    pub(crate) fn bytes(&self) -> u64 {
        HEADER_BYTES + self.prefix_bytes() + u64::from(self.value_bytes)
    }

    pub(crate) fn fits(&self, block_bytes: u32) -> bool {
        self.bytes() <= u64::from(self.blocks) * u64::from(block_bytes)
    }

    /// The checksum of the header, the flags and the key (`prefix`). It covers that of the value.
    pub(crate) fn crc(&self, uuid: &[u8; 16], offset: u64, prefix: &[u8]) -> u32 {
        let [version, value, expiry] = Header { header_crc: 0, ..*self }.words();
        crc(uuid, [offset, version, self.first().bits(), value, expiry], prefix)
    }
}

/// The checksum of a value in the record at `offset`.
pub(crate) fn value_crc(uuid: &[u8; 16], offset: u64, value: &[u8]) -> u32 {
    crc(uuid, [offset, 0], value)
}

const _: () = assert!(HEADER_BYTES <= LINE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] = *b"0123456789abcdef";

    fn superblock() -> Superblock {
        of_parts(&[1 << 30])
    }

    fn of_parts(parts: &[u64]) -> Superblock {
        let named = (0..).zip(parts).map(|(number, bytes)| Named { bytes: *bytes, id: number * 0x0102_0304_0506_0708 });
        Superblock { block_bytes: 64, segment_bytes: 1 << 20, parts: named.collect(), uuid: UUID }
    }

    fn of_lengths(block_bytes: u32, segment_bytes: u64, region_bytes: u64) -> Superblock {
        Superblock { block_bytes, segment_bytes, ..of_parts(&[region_bytes]) }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The format is on people's memory: it does not change unnoticed.
    #[test]
    fn the_format_is_what_the_book_draws() {
        let head = concat!(
            "53747261",
            "74614b56",
            "20686173",
            "68202000",
            "01000000",
            "40000000",
            "0000100000000000",
            "0000004000000000",
            "30313233343536373839616263646566",
        );
        let bytes = superblock().encode();
        assert_eq!(hex(&bytes[..56]), head);
        let header = Header {
            blocks: 3,
            key_bytes: 9,
            value_bytes: 128,
            version: 0x0102_0304_0506,
            expiry: 77_000,
            has_flags: true,
            header_crc: 0xAABB_CCDD,
            value_crc: 0x1122_3344,
        };
        let words = [
            header.first().encode(&UUID, 4096) & 0xFFFF_FFFF_FFFF,
            header.words()[0],
            header.words()[1],
            header.words()[2],
        ];
        let expected = [0x0000_0004_8000_01D2, 0x0102_0304_0506, 0xAABB_CCDD_8000_0080, 0x1122_3344_0000_004D];
        assert_eq!(words, expected);
        assert_eq!(Header::decode(words, header.first()), header);
        // The milliseconds are with the version, and under its checksum.
        let later = Header { expiry: 77_009, ..header };
        let words = [words[0], words[1] | 9 << 54, words[2], words[3]];
        assert_eq!((later.words(), Header::decode(words, header.first())), ([words[1], words[2], words[3]], later));
        assert_ne!(later.crc(&UUID, 4096, b"key"), header.crc(&UUID, 4096, b"key"));
        assert_eq!(First::free(3).encode(&UUID, 64) & 0xFFFF_FFFF_FFFF, 0x1AD);
        assert_eq!(SegmentState::Large(9).to_value(), 0x902);
        let member = header.first().with(Kind::Member).encode(&UUID, 4096) & 0xFFFF_FFFF_FFFF;
        let removal = header.first().with(Kind::Removal).encode(&UUID, 4096) & 0xFFFF_FFFF_FFFF;
        assert_eq!((member, removal), (0x0000_0004_8000_01CB, 0x0000_0004_8000_01B4));
        assert_eq!((commit_at(0), commit_at(COMMITS - 1)), (8256, 12224));
    }

    #[test]
    fn the_format_of_parts_is_what_the_book_draws() {
        let bytes = of_parts(&[1 << 30, 1 << 29, 1 << 21]).encode();
        let head = concat!("02000000", "40000000", "0000100000000000", "0000004000000000");
        assert_eq!(hex(&bytes[16..40]), head);
        let parts = concat!(
            "03000000",
            "00000040000000000000000000000000",
            "00000020000000000807060504030201",
            "0000200000000000100e0c0a08060402",
        );
        assert_eq!((hex(&bytes[60..112]).as_str(), bytes.len()), (parts, 116));
        assert_eq!((u32_at(&bytes, 56), u32_at(&bytes, 112)), (crc32c(0, &bytes[..56]), crc32c(0, &bytes[..112])));
        let head = Head { number: 2, id: 0x0102_0304_0506_0708, bytes: 1 << 21, uuid: UUID }.encode();
        let expected = concat!(
            "5374726174614b56207061727420200002000000",
            "02000000",
            "0807060504030201",
            "0000200000000000",
            "30313233343536373839616263646566",
        );
        assert_eq!((hex(&head[..56]).as_str(), u32_at(&head, 56)), (expected, crc32c(0, &head[..56])));
    }

    #[test]
    fn a_superblock_comes_back_or_says_why_not() {
        assert_eq!(Superblock::decode(&[0; SUPERBLOCK_LEN]), Err(NoSuperblock::Blank));
        assert_eq!(Superblock::decode(&[0; 59]), Err(NoSuperblock::Foreign));
        for superblock in [superblock(), of_parts(&[1 << 30, 1 << 29]), of_parts(&[1 << 26; PARTS_MAX])] {
            let bytes = superblock.encode();
            assert!(bytes.len() <= SUPERBLOCK_LEN);
            assert_eq!(Superblock::decode(&[&bytes[..], &[9; 600]].concat()), Ok(superblock));
            for bit in 0..bytes.len() * 8 {
                let mut turned = bytes.clone();
                turned[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Superblock::decode(&turned), Err(NoSuperblock::Foreign), "bit {bit}");
            }
            (60..bytes.len()).for_each(|len| assert_eq!(Superblock::decode(&bytes[..len]), Err(NoSuperblock::Foreign)));
        }
        let mut newer = superblock().encode();
        newer[16] = 3;
        let crc = crc32c(0, &newer[..56]);
        newer[56..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Superblock::decode(&newer), Err(NoSuperblock::Newer(3)));
    }

    #[test]
    fn a_head_comes_back_or_says_why_not() {
        let head = Head { number: 3, id: 1 << 30, bytes: 1 << 20, uuid: UUID };
        let bytes = head.encode();
        assert_eq!(Head::decode(&bytes), Ok(head));
        assert_eq!(Head::decode(&[0; HEAD_LEN]), Err(NoSuperblock::Blank));
        for bit in 0..bytes.len() * 8 {
            let mut turned = bytes;
            turned[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::decode(&turned), Err(NoSuperblock::Foreign), "bit {bit}");
        }
    }

    #[test]
    fn segments_and_their_words_fit_the_region() {
        for (segment_bytes, region_bytes) in
            [(4096, 65536), (4096, 24576), (1 << 20, 1 << 30), (4096, 1 << 26), (65536, 1_000_000)]
        {
            let superblock = of_lengths(64, segment_bytes, region_bytes);
            let end = superblock.segment_at(superblock.first_segments());
            assert!(superblock.first_segments() > 0 && end <= region_bytes, "{superblock:?} ends at {end}");
            assert!(
                end + 3 * segment_bytes > region_bytes || end + 2 * PAGE > region_bytes,
                "{superblock:?} ends at {end}"
            );
        }
        assert!(!of_lengths(64, 4096, 16384).is_possible());
        assert!(of_lengths(64, 1 << 20, 4 << 40).is_possible());
        assert!(!of_lengths(64, 1 << 20, (4 << 40) + 64).is_possible(), "more than an entry can point to");
        assert!(!of_lengths(32, 1 << 20, 4 << 40).is_possible());
    }

    #[test]
    fn segments_of_later_parts_lie_in_them_and_in_the_grid() {
        let cases: [(u64, &[u64]); 4] = [
            (4096, &[32768, 16384, 65536]),
            (1 << 20, &[1 << 30, 1 << 29, 3 << 20, (1 << 30) + 4096]),
            (65536, &[1 << 20, 1 << 30]),
            (4096, &[1 << 40, 1 << 40]),
        ];
        for (segment_bytes, parts) in cases {
            let superblock = Superblock { segment_bytes, ..of_parts(parts) };
            assert!(superblock.is_possible());
            let layout = superblock.layout();
            assert_eq!(layout.len(), parts.len());
            for (before, part) in layout.iter().zip(&layout[1..]) {
                let PartLayout { offset, bytes, words_at, ref segments } = *part;
                assert_eq!((before.offset + before.bytes, words_at), (offset, offset + HEADS_BYTES));
                assert!(before.segments.end < segments.start, "no run goes from one into the other");
                let (begin, end) = (superblock.segment_at(segments.start), superblock.segment_at(segments.end));
                assert!(words_at + 8 * u64::from(segments.end - segments.start) <= begin && end <= offset + bytes);
                let lost_bytes = begin - words_at + offset + bytes - end;
                assert!(lost_bytes <= bytes / segment_bytes * 8 + PAGE + 2 * segment_bytes, "{part:?}");
            }
        }
        let small = |part: u64| Superblock { segment_bytes: 4096, ..of_parts(&[32768, part]) };
        assert!(small(16384).is_possible() && !small(12288).is_possible() && !small(16385).is_possible());
        assert!(!of_parts(&[1 << 30, 1 << 20]).is_possible(), "no whole segment of 1 MiB");
        assert!(!of_parts(&[1 << 30, u64::MAX - 4095]).is_possible());
        assert!(!of_parts(&[1 << 26; PARTS_MAX + 1]).is_possible());
    }

    #[test]
    fn every_turned_bit_of_a_first_word_is_seen() {
        for first in [
            First::free(5),
            First { kind: Kind::Member, blocks: 5, key_bytes: 9 },
            First { kind: Kind::Record, blocks: 5, key_bytes: 9 },
        ] {
            let word = first.encode(&UUID, 640);
            assert_eq!(First::decode(&UUID, 640, word), Some(first));
            assert_eq!(First::decode(&UUID, 704, word), None, "another place");
            assert!((0..64).all(|bit| First::decode(&UUID, 640, word ^ 1 << bit).is_none()));
        }
        assert_eq!(First::decode(&UUID, 0, 0), None);
    }
}
