//! Entries of data blocks.

use std::cmp::Ordering;

use stratakv_base::Expiry;
use stratakv_base::codec::Writer;

use super::page::Block;
use super::shared_bytes;
use crate::cursor::Stop;
use crate::entry::{Body, Meta, Pointer, value_checksum};

/// Entries from one restart point to the next.
pub(super) const RESTART_ENTRIES: usize = 16;
/// 3 + 3 for the lengths of the key's parts, 10 version, 1 kind, 4 flags, 4 expiry, 5 + 4 + 10 + 10
/// pointer: 54, and what a varint's word reaches over.
pub(super) const HEAD_ROOM: usize = 64;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const BLOB: u8 = 3;
const HAS_FLAGS: u8 = 4;
const HAS_EXPIRY: u8 = 8;
/// An expiry that is no whole second has 8 bytes, not 4.
const HAS_MILLIS: u8 = 16;

/// All of an entry before the bytes of its key.
pub(super) struct Head {
    bytes: [u8; HEAD_ROOM],
    len: usize,
}

impl Head {
    #[inline]
    pub fn new(shared: usize, suffix: usize, meta: &Meta) -> Head {
        let mut head = Head { bytes: [0; HEAD_ROOM], len: 0 };
        head.varint(shared as u64);
        head.varint(suffix as u64);
        head.varint(meta.version);
        let kind = match meta.body {
            Body::Here { .. } => PUT,
            Body::Delete => DELETE,
            Body::Blob(_) => BLOB,
        };
        let has_flags = if meta.flags == 0 { 0 } else { HAS_FLAGS };
        let has_expiry = match meta.expiry.whole_seconds() {
            Some(0) => 0,
            Some(_) => HAS_EXPIRY,
            None => HAS_MILLIS,
        };
        head.put(&[kind | has_flags | has_expiry]);
        if has_flags != 0 {
            head.put(&meta.flags.to_le_bytes());
        }
        match meta.expiry.whole_seconds() {
            Some(0) => {}
            Some(seconds) => head.put(&seconds.to_le_bytes()),
            None => head.put(&meta.expiry.0.to_le_bytes()),
        }
        head.body(&meta.body);
        head
    }

    #[inline]
    fn body(&mut self, body: &Body) {
        match body {
            Body::Delete => {}
            Body::Here { value_bytes, checksum } => {
                self.varint(u64::from(*value_bytes));
                self.put(&checksum.to_le_bytes());
            }
            Body::Blob(pointer) => {
                self.varint(u64::from(pointer.value_bytes));
                self.put(&pointer.checksum.to_le_bytes());
                self.varint(pointer.file);
                self.varint(pointer.offset);
            }
        }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        Writer::new(&mut self.bytes[self.len..]).bytes(bytes);
        self.len += bytes.len();
    }

    #[inline(always)]
    fn varint(&mut self, value: u64) {
        if value < 0x80 {
            self.bytes[self.len] = value as u8;
            self.len += 1;
        } else if value < 1 << 56 {
            let bytes = (70 - value.leading_zeros() as usize) / 7;
            let goes_on = 0x8080_8080_8080_8080 & ((1 << (8 * bytes - 8)) - 1);
            self.bytes[self.len..][..8].copy_from_slice(&(spread_sevens(value) | goes_on).to_le_bytes());
            self.len += bytes;
        } else {
            self.long_varint(value);
        }
    }

    #[cold]
    fn long_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put(&[value as u8 | 0x80]);
            value >>= 7;
        }
        self.put(&[value as u8]);
    }

    /// The head, and zeros.
    #[inline]
    pub fn room(&self) -> &[u8; HEAD_ROOM] {
        &self.bytes
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Bytes that are looked at to read all of an entry before its key. Read from a medium: 5 + 5 +
/// 10 + 1 + 4 + 4 + 5 + 4 + 10 + 10 are 58.
const WINDOW_BYTES: usize = 64;
type Window = [u8; WINDOW_BYTES];

/// Fields off the front of bytes from a medium. `None`: they do not make sense.
struct Fields<'a> {
    window: &'a Window,
    at: usize,
}

impl Fields<'_> {
    /// The next eight bytes.
    #[inline]
    fn word(&self) -> Option<u64> {
        self.window.get(self.at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
    }

    /// A varint of up to eight bytes without a loop: what a branch cannot foresee costs more than
    /// the arithmetic.
    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let word = self.word()?;
        let ends = !word & 0x8080_8080_8080_8080;
        if ends == 0 {
            return self.long_varint(word);
        }
        self.at += (ends.trailing_zeros() / 8 + 1) as usize;
        // All bits up to the first byte whose top bit is clear; then sevens to fourteens, to
        // twenty-eights, to fifty-six.
        Some(join_sevens(word & (ends ^ (ends - 1))))
    }

    #[cold]
    fn long_varint(&mut self, word: u64) -> Option<u64> {
        let rest = self.window.get(self.at + 8..)?.first_chunk::<2>()?;
        let value = join_sevens(word) | u64::from(rest[0] & 0x7f) << 56;
        if rest[0] < 0x80 {
            self.at += 9;
            return Some(value);
        }
        self.at += 10;
        (rest[1] <= 1).then_some(value | u64::from(rest[1]) << 63)
    }

    /// A varint of up to five bytes.
    #[inline]
    fn length(&mut self) -> Option<u32> {
        let start = self.at;
        let first = *self.window.get(start)?;
        if first < 0x80 {
            self.at += 1;
            return Some(u32::from(first));
        }
        let value = u32::try_from(self.varint()?).ok()?;
        (self.at - start <= 5).then_some(value)
    }

    #[inline]
    fn u64(&mut self) -> Option<u64> {
        let field = self.window.get(self.at..)?.first_chunk()?;
        self.at += 8;
        Some(u64::from_le_bytes(*field))
    }

    #[inline]
    fn u32(&mut self) -> Option<u32> {
        let field = self.window.get(self.at..)?.first_chunk()?;
        self.at += 4;
        Some(u32::from_le_bytes(*field))
    }

    #[inline]
    fn body(&mut self, kind: u8) -> Option<Body> {
        match kind {
            PUT => Some(Body::Here { value_bytes: self.length()?, checksum: self.u32()? }),
            DELETE => Some(Body::Delete),
            BLOB => {
                let (value_bytes, checksum) = (self.length()?, self.u32()?);
                let (file, offset) = (self.varint()?, self.varint()?);
                Some(Body::Blob(Pointer { file, offset, value_bytes, checksum }))
            }
            _ => None,
        }
    }
}

/// [`join_sevens`] the other way, for up to 56 bits.
#[inline]
fn spread_sevens(value: u64) -> u64 {
    let fours = (value & 0x0fff_ffff) | (value & 0x00ff_ffff_f000_0000) << 4;
    let pairs = (fours & 0x0000_3fff_0000_3fff) | (fours & 0x0fff_c000_0fff_c000) << 2;
    (pairs & 0x007f_007f_007f_007f) | (pairs & 0x3f80_3f80_3f80_3f80) << 1
}

/// The low seven bits of each byte, side by side.
#[inline]
fn join_sevens(word: u64) -> u64 {
    let sevens = word & 0x7f7f_7f7f_7f7f_7f7f;
    let pairs = (sevens & 0x007f_007f_007f_007f) | (sevens & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = (pairs & 0x0000_3fff_0000_3fff) | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    (fours & 0x0fff_ffff) | (fours & 0x0fff_ffff_0000_0000) >> 4
}

/// An entry, and where its parts lie among the block's entries: the key's own bytes from `suffix`
/// to `value`, the value from there to `end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockEntry {
    pub at: u32,
    /// Bytes of its key that are the previous key's.
    pub shared: u32,
    pub suffix: u32,
    pub value: u32,
    pub end: u32,
    pub meta: Meta,
}

impl BlockEntry {
    /// Before the first entry.
    pub const NONE: BlockEntry = BlockEntry {
        at: 0,
        shared: 0,
        suffix: 0,
        value: 0,
        end: 0,
        meta: Meta { version: 0, flags: 0, expiry: Expiry::NEVER, body: Body::Delete },
    };

    /// The entry that begins at `at`; `None` if there is none that makes sense.
    #[inline]
    pub fn parse(entries: &[u8], at: usize) -> Option<BlockEntry> {
        let rest = entries.get(at..)?;
        match rest.first_chunk() {
            Some(window) => BlockEntry::parse_in(window, entries.len(), at),
            None => BlockEntry::parse_last(rest, entries.len(), at),
        }
    }

    /// Of the last entries of a block, which has no whole window behind them.
    #[inline(never)]
    fn parse_last(rest: &[u8], entries_bytes: usize, at: usize) -> Option<BlockEntry> {
        let mut window = [0; WINDOW_BYTES];
        window.get_mut(..rest.len())?.copy_from_slice(rest);
        BlockEntry::parse_in(&window, entries_bytes, at)
    }

    #[inline(always)]
    fn parse_in(window: &Window, entries_bytes: usize, at: usize) -> Option<BlockEntry> {
        let mut fields = Fields { window, at: 0 };
        let (shared, suffix_bytes) = (fields.length()?, fields.length()?);
        let version = fields.varint()?;
        let kind = *window.get(fields.at)?;
        fields.at += 1;
        let flags = if kind & HAS_FLAGS == 0 { 0 } else { fields.u32()? };
        let expiry = Expiry(match kind & (HAS_EXPIRY | HAS_MILLIS) {
            0 => 0,
            HAS_EXPIRY => u64::from(fields.u32()?) * 1000,
            _ => fields.u64()?,
        });
        let body = fields.body(kind & !(HAS_FLAGS | HAS_EXPIRY | HAS_MILLIS))?;
        let value_bytes = if let Body::Here { value_bytes, .. } = body { value_bytes as usize } else { 0 };
        let suffix = at + fields.at;
        // Sums of 32-bit numbers: they cannot run over.
        let value = suffix + suffix_bytes as usize;
        let end = value + value_bytes;
        if end > entries_bytes {
            return None;
        }
        let meta = Meta { version, flags, expiry, body };
        let (at, suffix, value, end) = (at as u32, suffix as u32, value as u32, end as u32);
        Some(BlockEntry { at, shared, suffix, value, end, meta })
    }

    /// The key's own bytes.
    #[inline]
    pub fn suffix<'a>(&self, entries: &'a [u8]) -> &'a [u8] {
        entries.get(self.suffix as usize..self.value as usize).unwrap_or_default()
    }

    /// The value beside the key.
    #[inline]
    pub fn value<'a>(&self, entries: &'a [u8]) -> &'a [u8] {
        entries.get(self.value as usize..self.end as usize).unwrap_or_default()
    }

    /// The value beside the key, its checksum compared; empty if there is none.
    ///
    /// # Errors
    /// [`Stop::Damaged`].
    #[inline]
    pub fn checked_value<'a>(&self, block: &'a Block) -> Result<&'a [u8], Stop> {
        let Body::Here { checksum, .. } = self.meta.body else { return Ok(&[]) };
        let value = self.value(block.contents());
        let found = value_checksum(self.meta.version, value);
        if found != checksum {
            return Err(block.damaged("a value with its checksum", format!("{found:08x} for {checksum:08x}")));
        }
        Ok(value)
    }
}

/// The contents of a data block.
#[derive(Clone, Copy)]
pub(super) struct Data<'a> {
    pub entries: &'a [u8],
    restarts: &'a [[u8; 2]],
}

/// Where a search in a block ended.
pub(super) struct Bound {
    /// The first entry that is not before what was looked for; `None`: all are.
    pub entry: Option<BlockEntry>,
    /// Whether that entry has the very key; where there is none, whether the block's last entry has
    /// it.
    pub same_key: bool,
}

impl<'a> Data<'a> {
    /// # Errors
    /// [`Stop::Damaged`].
    pub fn new(block: &'a Block) -> Result<Data<'a>, Stop> {
        Data::split(block).ok_or_else(|| block.damaged("restart points behind its entries", "others"))
    }

    fn split(block: &'a Block) -> Option<Data<'a>> {
        let (rest, count) = block.contents().split_last_chunk::<2>()?;
        let count = usize::from(u16::from_le_bytes(*count));
        let entries_bytes = rest.len().checked_sub(count * 2)?;
        let (entries, restarts) = rest.split_at_checked(entries_bytes)?;
        let right = count == usize::from(block.header.entries).div_ceil(RESTART_ENTRIES) && count > 0;
        right.then_some(Data { entries, restarts: restarts.as_chunks().0 })
    }

    /// The entry at a restart point, whose key is whole.
    #[inline]
    fn restart(&self, number: usize) -> Option<BlockEntry> {
        let at = usize::from(u16::from_le_bytes(*self.restarts.get(number)?));
        BlockEntry::parse(self.entries, at).filter(|entry| entry.shared == 0)
    }

    /// Offset of the last restart point before `at`.
    pub fn restart_before(&self, at: usize) -> Option<usize> {
        let count = self.restarts.partition_point(|offset| usize::from(u16::from_le_bytes(*offset)) < at);
        self.restarts.get(count.checked_sub(1)?).map(|offset| usize::from(u16::from_le_bytes(*offset)))
    }

    /// The first entry that is not before `version` of `key`. O(log entries), nothing is copied.
    /// `None`: the block makes no sense.
    pub fn lower_bound(&self, key: &[u8], version: u64) -> Option<Bound> {
        let (mut low, mut high) = (0, self.restarts.len());
        // The restart points below `low` are before it, those from `high` on are not.
        while low < high {
            let middle = (low + high) / 2;
            let entry = self.restart(middle)?;
            let order = entry.suffix(self.entries).cmp(key).then(version.cmp(&entry.meta.version));
            if order == Ordering::Less { low = middle + 1 } else { high = middle }
        }
        self.scan(self.restart(low.saturating_sub(1))?, key, version)
    }

    /// Looks from `entry` on, which is at a restart point.
    ///
    /// `matched` bytes of `key` are those of the previous entry, which is before what is looked
    /// for. So an entry that shares more with its predecessor is before it too, one that shares
    /// less is not, and only otherwise need bytes be compared. The next restart point shares
    /// nothing, and is not before it: the search among them said so.
    #[inline]
    fn scan(&self, mut entry: BlockEntry, key: &[u8], version: u64) -> Option<Bound> {
        let (mut matched, mut same_key) = (0, false);
        loop {
            match (entry.shared as usize).cmp(&matched) {
                Ordering::Greater => {}
                Ordering::Less => {
                    let same_key = entry.shared == 0 && entry.suffix(self.entries) == key;
                    return Some(Bound { entry: Some(entry), same_key });
                }
                Ordering::Equal => {
                    let (suffix, wanted) = (entry.suffix(self.entries), key.get(matched..)?);
                    let common = shared_bytes(suffix, wanted);
                    same_key = common == suffix.len() && common == wanted.len();
                    let before = match (suffix.get(common), wanted.get(common)) {
                        (None, None) => entry.meta.version > version,
                        (found, wanted) => found < wanted,
                    };
                    if !before {
                        return Some(Bound { entry: Some(entry), same_key });
                    }
                    matched += common;
                }
            }
            if entry.end as usize == self.entries.len() {
                return Some(Bound { entry: None, same_key });
            }
            entry = BlockEntry::parse(self.entries, entry.end as usize)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_are_read_back() {
        let numbers = (0..64).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) | 1]).chain([u64::MAX]);
        for number in numbers {
            let pointer = Pointer { file: number, offset: !number, value_bytes: number as u32, checksum: !0 };
            let meta = Meta { version: number, flags: number as u32, expiry: Expiry(!0), body: Body::Blob(pointer) };
            let shared = number as u32 as usize;
            let head = Head::new(shared, 0, &meta);
            for behind in [0, 7, 100] {
                let entries = [head.bytes(), &vec![0xff; behind]].concat();
                let entry = BlockEntry::parse(&entries, 0).unwrap();
                assert_eq!((entry.meta, entry.shared as usize), (meta, shared));
                assert_eq!(entry.end as usize, head.bytes().len());
            }
            let short = head.bytes().len() - 1;
            assert!(BlockEntry::parse(&head.bytes()[..short], 0).is_none_or(|entry| entry.end as usize <= short));
        }
        assert!(BlockEntry::parse(&[0xff; 100], 0).is_none());
        assert!(BlockEntry::parse(&[], 0).is_none());
    }
}
