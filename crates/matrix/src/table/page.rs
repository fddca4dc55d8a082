//! The 16 bytes before a page's contents, and blocks of one or several pages.

use stratakv_base::Corruption;
use stratakv_base::checksum::{crc32c, seed};
use stratakv_base::codec::Writer;
use stratakv_base::corruption::Place;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_device::BlockPart;

use super::packing;
use crate::cursor::{Pages, Stop};

/// A page.
pub type Page = [u8; PAGE_BYTES];

pub(super) const HEADER_BYTES: usize = 16;
/// What a page has room for.
pub(super) const CONTENTS_BYTES: usize = PAGE_BYTES - HEADER_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data = 1,
    Index = 2,
    Filter = 3,
    /// A data block that is compressed: what asks for [`Kind::Data`] gets its contents as they
    /// were.
    Packed = 4,
}

impl Kind {
    /// Whether a page that says it is of kind `found` is what was asked for.
    fn allows(self, found: u8) -> bool {
        found == self as u8 || (self == Kind::Data && found == Kind::Packed as u8)
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Data | Kind::Packed => "data block",
            Kind::Index => "index block",
            Kind::Filter => "filter page",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub kind: u8,
    /// Pages of this block behind this one.
    pub after: u8,
    pub entries: u16,
    /// Bytes, over all pages of the block.
    pub used: u32,
    /// Pages of this block before this one.
    pub before: u32,
}

impl Header {
    #[inline]
    fn parse(page: &Page) -> Header {
        let word = |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
        let entries = u16::from_le_bytes([page[6], page[7]]);
        Header { kind: page[4], after: page[5], entries, used: word(8), before: word(12) }
    }

    /// Writes the header of the page `ordinal` of `file`, whose contents are in their place.
    pub fn seal(&self, page: &mut Page, uuid: &[u8; 16], file: u64, ordinal: u32) {
        let mut writer = Writer::new(&mut page[4..HEADER_BYTES]);
        writer.u8(self.kind).u8(self.after).u16(self.entries).u32(self.used).u32(self.before);
        let checksum = crc32c(seed(uuid, file, u64::from(ordinal)), &page[4..]);
        page[..4].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Whether `page` is the page `ordinal` of table `file`, as it was written. About 0.3 us. To be
/// asked once, when it was read.
///
/// # Errors
/// It is not. The place is that in the file (see [`Corruption`] for what a person needs): whoever
/// knows where the file lies adds that.
pub fn verify(page: &[u8], uuid: &[u8; 16], file: u64, ordinal: u32) -> Result<(), Corruption> {
    let whole: Option<&Page> = page.try_into().ok();
    let Some((checksum, rest)) = whole.and_then(|page| page.split_first_chunk::<4>()) else {
        return Err(corruption("page", file, ordinal, "4096 bytes", format!("{}", page.len())));
    };
    let (stored, computed) = (u32::from_le_bytes(*checksum), crc32c(seed(uuid, file, u64::from(ordinal)), rest));
    if stored == computed {
        return Ok(());
    }
    Err(corruption("page", file, ordinal, "its checksum", format!("{stored:08x} for {computed:08x}")))
}

#[cold]
pub(super) fn corruption(what: &'static str, file: u64, ordinal: u32, expected: &str, found: String) -> Corruption {
    let place = Place { shard: 0, offset_bytes: u64::from(ordinal) * PAGE_BYTES as u64 };
    Corruption { place, what, expected: format!("page {ordinal} of file {file} with {expected}"), found }
}

/// A block, its pages one behind the other.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub file: u64,
    pub ordinal: u32,
    pub header: Header,
    bytes: Bytes,
}

#[derive(Clone, Debug)]
enum Bytes {
    One(BlockPart),
    Many(Vec<u8>),
}

impl Block {
    /// The block of `kind` whose first page is `ordinal`. One page is borrowed from where it lies,
    /// several are copied together, and one that is compressed is unpacked.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn load(pages: &dyn Pages, file: u64, ordinal: u32, kind: Kind) -> Result<Block, Stop> {
        let (part, header) = page(pages, file, ordinal, kind)?;
        let room = (usize::from(header.after) + 1) * CONTENTS_BYTES;
        if header.before != 0 || header.used as usize > room {
            return Err(damaged(kind.name(), file, ordinal, "a block's start", format!("{header:?}")));
        }
        let bytes = match header.after {
            _ if header.kind == Kind::Packed as u8 => {
                let contents = part.bytes().get(HEADER_BYTES..HEADER_BYTES + header.used as usize);
                let raw = contents.filter(|_| header.after == 0).and_then(packing::unpack);
                let no_sense = || damaged(kind.name(), file, ordinal, "what was compressed", "something else");
                Bytes::Many(raw.ok_or_else(no_sense)?)
            }
            0 => Bytes::One(part),
            _ => Bytes::Many(gather(pages, file, ordinal, kind, (&part, header))?),
        };
        Ok(Block { file, ordinal, header, bytes })
    }

    /// The block of `kind` whose last page is `ordinal`.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn load_ending(pages: &dyn Pages, file: u64, ordinal: u32, kind: Kind) -> Result<Block, Stop> {
        let (_, header) = page(pages, file, ordinal, kind)?;
        let first = ordinal.checked_sub(header.before).filter(|_| header.after == 0);
        let Some(first) = first else {
            return Err(damaged(kind.name(), file, ordinal, "a block's end", format!("{header:?}")));
        };
        let block = Block::load(pages, file, first, kind)?;
        if block.next() != u64::from(ordinal) + 1 {
            return Err(damaged(kind.name(), file, first, "a block up to the next", format!("{:?}", block.header)));
        }
        Ok(block)
    }

    /// The first page behind this block.
    pub fn next(&self) -> u64 {
        u64::from(self.ordinal) + u64::from(self.header.after) + 1
    }

    /// The bytes used.
    #[inline]
    pub fn contents(&self) -> &[u8] {
        match &self.bytes {
            Bytes::One(part) => {
                part.bytes().get(HEADER_BYTES..HEADER_BYTES + self.header.used as usize).unwrap_or_default()
            }
            Bytes::Many(bytes) => bytes,
        }
    }

    /// A piece of the contents as it lies in its page; `None` if the block has several pages, or
    /// one that is compressed.
    pub fn part(&self, start: usize, len: usize) -> Option<BlockPart> {
        let Bytes::One(part) = &self.bytes else { return None };
        self.contents().get(start..)?.get(..len)?;
        let start = part.start + (HEADER_BYTES + start) as u32;
        Some(BlockPart { block: part.block.clone(), start, len: len as u32 })
    }

    /// This block makes no sense.
    #[cold]
    pub fn damaged(&self, expected: &str, found: impl Into<String>) -> Stop {
        let what = if self.header.kind == Kind::Index as u8 { Kind::Index } else { Kind::Data };
        damaged(what.name(), self.file, self.ordinal, expected, found)
    }
}

#[cold]
fn damaged(what: &'static str, file: u64, ordinal: u32, expected: &str, found: impl Into<String>) -> Stop {
    Stop::Damaged(corruption(what, file, ordinal, expected, found.into()))
}

/// One page of a kind.
pub(super) fn page(pages: &dyn Pages, file: u64, ordinal: u32, kind: Kind) -> Result<(BlockPart, Header), Stop> {
    let part = pages.page(file, ordinal)?;
    let header = part.bytes().try_into().ok().map(Header::parse);
    match header {
        Some(header) if kind.allows(header.kind) => Ok((part, header)),
        _ => {
            let found = format!("{:?} of {} bytes", part.bytes().get(..HEADER_BYTES), part.len);
            Err(damaged(kind.name(), file, ordinal, kind.name(), found))
        }
    }
}

/// All pages of a block together, `first` among them.
fn gather(
    pages: &dyn Pages,
    file: u64,
    ordinal: u32,
    kind: Kind,
    first: (&BlockPart, Header),
) -> Result<Vec<u8>, Stop> {
    let (part, head) = first;
    let mut bytes = Vec::with_capacity(head.used as usize);
    bytes.extend_from_slice(part.bytes().get(HEADER_BYTES..).unwrap_or_default());
    for before in 1..=u32::from(head.after) {
        let (part, header) = page(pages, file, ordinal.saturating_add(before), kind)?;
        let expected = Header { after: head.after - before as u8, before, ..head };
        if header != expected {
            let found = format!("{header:?} for {expected:?}");
            return Err(damaged(kind.name(), file, ordinal.saturating_add(before), "the block's next page", found));
        }
        bytes.extend_from_slice(part.bytes().get(HEADER_BYTES..).unwrap_or_default());
    }
    bytes.truncate(head.used as usize);
    Ok(bytes)
}
