//! The data block that is being filled.

use stratakv_base::codec::Writer;
use stratakv_base::limits::PAGE_BYTES;

use super::data::{BlockEntry, HEAD_ROOM, Head, RESTART_ENTRIES};
use super::packing::{RAW_BYTES_MAX, RAW_PAGES};
use super::page::{CONTENTS_BYTES, HEADER_BYTES, Page};
use super::shared_bytes;
use crate::entry::Meta;

/// Whole entries of a block, not more than fit in `limit`.
#[derive(Debug)]
pub(super) struct Filling {
    /// Its contents behind where the header goes.
    bytes: Box<[u8; RAW_PAGES * PAGE_BYTES]>,
    /// Bytes of entries in it.
    used: usize,
    restarts: Vec<u16>,
    /// Where each entry ends.
    ends: Vec<u16>,
    limit: usize,
    /// Length of the longest key.
    key_bytes: usize,
}

/// Entries that were taken out of a block again.
#[derive(Debug, Default)]
pub(super) struct BlockRemainder {
    bytes: Vec<u8>,
    at: usize,
    /// The key before the next entry, and that entry's.
    before: Vec<u8>,
    key: Vec<u8>,
}

impl Filling {
    pub fn new() -> Filling {
        Filling {
            bytes: Box::new([0; RAW_PAGES * PAGE_BYTES]),
            used: 0,
            restarts: Vec::new(),
            ends: Vec::new(),
            limit: CONTENTS_BYTES,
            key_bytes: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn entries(&self) -> usize {
        self.ends.len()
    }

    /// Bytes that the contents may have.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// From now on the contents may have so many bytes: those of a page, or more if they are to be
    /// compressed.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.clamp(CONTENTS_BYTES, RAW_BYTES_MAX);
    }

    /// Bytes of its contents: the first `entries` entries, and the restart points behind them.
    pub fn contents_bytes(&self, entries: usize) -> usize {
        let end = entries.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0);
        usize::from(end) + (entries.div_ceil(RESTART_ENTRIES) + 1) * 2
    }

    /// How many of its first entries have contents of at most so many bytes.
    pub fn fitting(&self, bytes: usize) -> usize {
        let (mut low, mut high) = (0, self.entries());
        while low < high {
            let middle = (low + high).div_ceil(2);
            if self.contents_bytes(middle) <= bytes { low = middle } else { high = middle - 1 }
        }
        low
    }

    /// Puts an entry behind the others, if there is room.
    #[inline]
    pub fn place(&mut self, key: &[u8], shared: usize, meta: &Meta, value: &[u8]) -> bool {
        let restart = self.entries().is_multiple_of(RESTART_ENTRIES);
        let shared = if restart { 0 } else { shared };
        let suffix = &key[shared..];
        let head = Head::new(shared, suffix.len(), meta);
        let room = self.limit - (self.restarts.len() + usize::from(restart) + 1) * 2;
        let end = self.used + head.bytes().len() + suffix.len() + value.len();
        // What was compressed in vain is written in pages that are not: each entry fits in one of
        // those.
        let whole = HEAD_ROOM + key.len() + value.len() + 4;
        if end > room || (self.limit > CONTENTS_BYTES && whole > CONTENTS_BYTES) {
            return false;
        }
        let place = &mut self.bytes[HEADER_BYTES + self.used..];
        // Copying all the room there is takes less than copying just the head; what is too much is
        // written over.
        match place.first_chunk_mut() {
            Some(room) => *room = *head.room(),
            None => place[..head.bytes().len()].copy_from_slice(head.bytes()),
        }
        let (at_key, at_value) = place[head.bytes().len()..end - self.used].split_at_mut(suffix.len());
        at_key.copy_from_slice(suffix);
        at_value.copy_from_slice(value);
        if restart {
            self.restarts.push(self.used as u16);
        }
        self.used = end;
        self.ends.push(end as u16);
        self.key_bytes = self.key_bytes.max(key.len());
        true
    }

    /// The page that it is, but for the header, and the bytes used of it. Only if it fits in one.
    pub fn page(&mut self) -> (&mut Page, usize) {
        let used = self.contents_bytes(self.entries());
        let page = &mut self.bytes.as_chunks_mut::<PAGE_BYTES>().0[0];
        let mut writer = Writer::new(&mut page[HEADER_BYTES + self.used..]);
        self.restarts.iter().for_each(|offset| _ = writer.u16(*offset));
        writer.u16(self.restarts.len() as u16);
        page[HEADER_BYTES + used..].fill(0);
        (page, used)
    }

    /// Writes the contents that a block of its first `entries` entries has into `contents`, which
    /// it clears.
    pub fn contents(&self, entries: usize, contents: &mut Vec<u8>) {
        let restarts = entries.div_ceil(RESTART_ENTRIES);
        let end = self.contents_bytes(entries) - (restarts + 1) * 2;
        contents.clear();
        contents.extend_from_slice(&self.bytes[HEADER_BYTES..HEADER_BYTES + end]);
        self.restarts[..restarts].iter().for_each(|offset| contents.extend_from_slice(&offset.to_le_bytes()));
        contents.extend_from_slice(&(restarts as u16).to_le_bytes());
    }

    /// How many pages its first `entries` entries fill if they are not compressed, at most.
    /// `open_bytes` is what the page has that was begun before, and that which is begun behind.
    pub fn plain_pages(&self, entries: usize, open_bytes: &mut usize) -> u32 {
        // A page begins with a whole key, and has restart points of its own.
        let room = CONTENTS_BYTES.saturating_sub(self.key_bytes + 4);
        let (mut pages, mut last) = (0, 0);
        for (end, number) in self.ends[..entries].iter().zip(0usize..) {
            let bytes = usize::from(*end) - last + if number.is_multiple_of(RESTART_ENTRIES) { 2 } else { 0 };
            if *open_bytes > 0 && *open_bytes + bytes > room {
                (pages, *open_bytes) = (pages + 1, 0);
            }
            *open_bytes += bytes;
            last = usize::from(*end);
        }
        pages
    }

    /// Begins anew, and gives back the entries from number `from` on.
    pub fn take_rest(&mut self, from: usize) -> BlockRemainder {
        let mut rest = BlockRemainder::default();
        if from < self.entries() {
            let begin = self.restarts.get(from / RESTART_ENTRIES).copied().unwrap_or(0);
            rest.bytes.extend_from_slice(&self.bytes[HEADER_BYTES + usize::from(begin)..HEADER_BYTES + self.used]);
            (0..from % RESTART_ENTRIES).for_each(|_| _ = rest.next());
            if from.is_multiple_of(RESTART_ENTRIES) {
                // The key before a restart point is in the interval before it.
                rest.before = self.key_before(from);
                rest.key.clone_from(&rest.before);
            }
        }
        self.used = 0;
        self.restarts.clear();
        self.ends.clear();
        self.key_bytes = 0;
        rest
    }

    fn key_before(&self, from: usize) -> Vec<u8> {
        let Some(last) = from.checked_sub(1) else { return Vec::new() };
        let begin = self.restarts.get(last / RESTART_ENTRIES).copied().unwrap_or(0);
        let bytes = self.bytes[HEADER_BYTES + usize::from(begin)..HEADER_BYTES + self.used].to_vec();
        let mut entries = BlockRemainder { bytes, ..BlockRemainder::default() };
        (0..=last % RESTART_ENTRIES).for_each(|_| _ = entries.next());
        entries.key
    }
}

/// An entry that was taken out.
pub(super) struct Taken<'a> {
    /// The key before it.
    pub before: &'a [u8],
    pub key: &'a [u8],
    /// Bytes that both have in common.
    pub shared: usize,
    pub meta: Meta,
    pub value: &'a [u8],
}

impl BlockRemainder {
    /// The next entry.
    pub fn next(&mut self) -> Option<Taken<'_>> {
        let entry = BlockEntry::parse(&self.bytes, self.at).filter(|_| self.at < self.bytes.len())?;
        self.before.clone_from(&self.key);
        self.key.truncate(entry.shared as usize);
        self.key.extend_from_slice(entry.suffix(&self.bytes));
        self.at = entry.end as usize;
        let shared = shared_bytes(&self.before, &self.key);
        Some(Taken { before: &self.before, key: &self.key, shared, meta: entry.meta, value: entry.value(&self.bytes) })
    }
}
