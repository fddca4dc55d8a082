//! Tables, made in one pass.

use stratakv_base::Key;
use stratakv_base::limits::PAGE_BYTES;

use super::data::{Head, RESTART_ENTRIES};
use super::filter;
use super::index::{self, Level};
use super::page::{CONTENTS_BYTES, HEADER_BYTES, Header, Kind, Page};
use super::{INLINE_BYTES_MAX, TableFacts, shared_bytes};
use crate::entry::{Body, Meta};

/// Why a builder does not take a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It does not come after the one before it.
    #[error(
        "version {version} of a key of {key_bytes} bytes does not come after the entry before it: give keys ascending, versions of one key descending"
    )]
    Order {
        /// Its version.
        version: u64,
        /// Length of its key.
        key_bytes: usize,
    },
    /// No key has this length.
    #[error("a key of {0} bytes: encoded keys have 1 to {max} bytes", max = Key::ENCODED_BYTES_MAX)]
    Key(usize),
    /// The value beside the key is not as long as the version says, or too long to lie there.
    #[error("a value of {found} bytes for {said}: give it whole, up to {INLINE_BYTES_MAX} bytes")]
    Value {
        /// Bytes given.
        found: usize,
        /// Bytes that the version says lie beside the key.
        said: usize,
    },
    /// The table has as many pages as page numbers can count.
    #[error("the table is full: begin another one")]
    Full,
}

/// Makes one table. Nothing is allocated for an entry; what a builder keeps until the end grows by 8 bytes for each key (its hash) and some
/// 10 to 20 for each page (the index).
#[derive(Debug)]
pub struct Builder {
    out: Out,
    /// The block that is being filled: its contents behind where the header goes.
    page: Box<Page>,
    /// Bytes of entries in it.
    used: usize,
    entries: u16,
    restarts: Vec<u16>,
    /// A block that does not fit in a page.
    long: Vec<u8>,
    last_key: Vec<u8>,
    last_version: u64,
    index: Level,
    hashes: Vec<u64>,
    filter_bits_per_key: u32,
    facts: TableFacts,
}

/// Where finished pages go, and what their checksums are seeded with.
#[derive(Debug)]
struct Out {
    uuid: [u8; 16],
    file: u64,
    pages: u32,
}

impl Out {
    fn give(&mut self, header: Header, page: &mut Page, sink: &mut impl FnMut(&Page)) {
        header.seal(page, &self.uuid, self.file, self.pages);
        sink(page);
        self.pages += 1;
    }

    /// Gives a block of as many pages as it takes.
    fn give_block(&mut self, kind: Kind, entries: u16, contents: &[u8], page: &mut Page, sink: &mut impl FnMut(&Page)) {
        let pages = contents.len().div_ceil(CONTENTS_BYTES).max(1);
        for before in 0..pages {
            let start = before * CONTENTS_BYTES;
            let piece = &contents[start..contents.len().min(start + CONTENTS_BYTES)];
            let (filled, empty) = page[HEADER_BYTES..].split_at_mut(piece.len());
            filled.copy_from_slice(piece);
            empty.fill(0);
            let (after, before) = ((pages - 1 - before) as u8, before as u32);
            let header = Header { kind: kind as u8, after, entries, used: contents.len() as u32, before };
            self.give(header, page, sink);
        }
    }
}

impl Builder {
    /// A builder for the table `file` of the store `uuid`. `filter_bits_per_key` 10 lets in one stranger of a hundred; 0 makes no filter.
    pub fn new(uuid: [u8; 16], file: u64, filter_bits_per_key: u32) -> Builder {
        let facts = TableFacts {
            file,
            entries: 0,
            pages: 0,
            data_pages: 0,
            root: 0,
            index_levels: 0,
            filter_pages: 0,
            lowest_version: u64::MAX,
            highest_version: 0,
            first_key: Box::default(),
            last_key: Box::default(),
            deletes: 0,
            apart: Vec::new(),
        };
        Builder {
            out: Out { uuid, file, pages: 0 },
            page: Box::new([0; PAGE_BYTES]),
            used: 0,
            entries: 0,
            restarts: Vec::new(),
            long: Vec::new(),
            last_key: Vec::new(),
            last_version: 0,
            index: Level::default(),
            hashes: Vec::new(),
            filter_bits_per_key,
            facts,
        }
    }

    /// Versions so far.
    pub fn entries(&self) -> u64 {
        self.facts.entries
    }

    /// The last key, empty if there is none: versions of one key belong into one table.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// About the bytes that the table would have if it were finished now: some percent off, more only where keys have hundreds of bytes. O(1).
    pub fn bytes(&self) -> u64 {
        let filter = filter::pages_for(self.hashes.len(), self.filter_bits_per_key) as usize * PAGE_BYTES;
        u64::from(self.out.pages) * PAGE_BYTES as u64 + (self.used + self.index.bytes() + filter) as u64
    }

    /// Takes the next version: its key, and its value if that lies beside the key (else nothing). Pages that are finished by this go to `sink`
    /// in order, at most one, and up to 33 more if key and value are longer than a page.
    ///
    /// # Errors
    /// [`Refused`]; the builder is as before.
    #[inline]
    pub fn add(&mut self, key: &[u8], meta: &Meta, value: &[u8], sink: &mut impl FnMut(&Page)) -> Result<(), Refused> {
        let shared = shared_bytes(&self.last_key, key);
        let new_key = shared != key.len() || shared != self.last_key.len();
        self.check(key, meta, value, shared, new_key)?;
        if self.entries == 0 || !self.place(key, shared, meta, value) {
            self.place_first(key, meta, value, sink);
        }
        if new_key {
            self.last_key.truncate(shared);
            self.last_key.extend_from_slice(&key[shared..]);
            if self.filter_bits_per_key > 0 {
                self.hashes.push(filter::key_hash(key));
            }
        }
        self.last_version = meta.version;
        self.count(meta);
        Ok(())
    }

    fn check(&self, key: &[u8], meta: &Meta, value: &[u8], shared: usize, new_key: bool) -> Result<(), Refused> {
        let said = if let Body::Here { value_bytes, .. } = meta.body { value_bytes as usize } else { 0 };
        if said != value.len() || said > INLINE_BYTES_MAX {
            return Err(Refused::Value { found: value.len(), said });
        }
        if key.is_empty() || key.len() > Key::ENCODED_BYTES_MAX {
            return Err(Refused::Key(key.len()));
        }
        let ascends =
            if new_key { self.last_key.get(shared) < key.get(shared) } else { meta.version < self.last_version };
        if !ascends {
            return Err(Refused::Order { version: meta.version, key_bytes: key.len() });
        }
        // The longest entry, the longest index and the filter of a table of 2^31 pages stay below 2^32.
        if self.out.pages > u32::MAX / 2 { Err(Refused::Full) } else { Ok(()) }
    }

    /// Puts an entry into the page that is being filled, if there is room.
    #[inline]
    fn place(&mut self, key: &[u8], shared: usize, meta: &Meta, value: &[u8]) -> bool {
        let restart = usize::from(self.entries).is_multiple_of(RESTART_ENTRIES);
        let shared = if restart { 0 } else { shared };
        let suffix = &key[shared..];
        let head = Head::new(shared, suffix.len(), meta);
        let room = CONTENTS_BYTES - (self.restarts.len() + usize::from(restart) + 1) * 2;
        let end = self.used + head.bytes().len() + suffix.len() + value.len();
        if end > room {
            return false;
        }
        let place = &mut self.page[HEADER_BYTES + self.used..];
        // Copying all the room there is takes less than copying just the head; what is too much is written over.
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
        self.entries += 1;
        true
    }

    /// Puts an entry at the start of a new block.
    fn place_first(&mut self, key: &[u8], meta: &Meta, value: &[u8], sink: &mut impl FnMut(&Page)) {
        self.close_block(sink);
        if self.facts.entries == 0 {
            self.facts.first_key = key.into();
            self.index.push(0, None);
        } else {
            self.index.push(self.out.pages, Some(&index::separator(&self.last_key, key)));
        }
        if !self.place(key, 0, meta, value) {
            self.place_long(key, meta, value, sink);
        }
    }

    /// Gives the page that is being filled, if it has entries.
    fn close_block(&mut self, sink: &mut impl FnMut(&Page)) {
        if self.entries == 0 {
            return;
        }
        let used = self.used + (self.restarts.len() + 1) * 2;
        let tail = &mut self.page[HEADER_BYTES + self.used..];
        let mut writer = stratakv_base::codec::Writer::new(tail);
        self.restarts.iter().for_each(|offset| _ = writer.u16(*offset));
        writer.u16(self.restarts.len() as u16);
        self.page[HEADER_BYTES + used..].fill(0);
        let header = Header { kind: Kind::Data as u8, after: 0, entries: self.entries, used: used as u32, before: 0 };
        self.out.give(header, &mut self.page, sink);
        self.used = 0;
        self.entries = 0;
        self.restarts.clear();
    }

    /// Gives a block of several pages with one entry.
    fn place_long(&mut self, key: &[u8], meta: &Meta, value: &[u8], sink: &mut impl FnMut(&Page)) {
        let head = Head::new(0, key.len(), meta);
        self.long.clear();
        for piece in [head.bytes(), key, value, &[0, 0], &[1, 0]] {
            self.long.extend_from_slice(piece);
        }
        self.out.give_block(Kind::Data, 1, &self.long, &mut self.page, sink);
    }

    #[inline]
    fn count(&mut self, meta: &Meta) {
        let facts = &mut self.facts;
        facts.entries += 1;
        facts.lowest_version = facts.lowest_version.min(meta.version);
        facts.highest_version = facts.highest_version.max(meta.version);
        match meta.body {
            Body::Delete => facts.deletes += 1,
            Body::Here { .. } => {}
            Body::Apart(pointer) => {
                let bytes = u64::from(pointer.value_bytes);
                match facts.apart.iter_mut().rev().find(|(file, _)| *file == pointer.file) {
                    Some((_, sum)) => *sum += bytes,
                    None => facts.apart.push((pointer.file, bytes)),
                }
            }
        }
    }

    /// Gives the last data block, the index and the filter, and says what the table is. `None`: it is empty, and has no page.
    pub fn finish(mut self, sink: &mut impl FnMut(&Page)) -> Option<TableFacts> {
        if self.facts.entries == 0 {
            return None;
        }
        self.close_block(sink);
        self.facts.data_pages = self.out.pages;
        self.finish_index(sink);
        self.finish_filter(sink);
        self.facts.pages = self.out.pages;
        self.facts.last_key = self.last_key.into();
        Some(self.facts)
    }

    fn finish_index(&mut self, sink: &mut impl FnMut(&Page)) {
        let mut level = std::mem::take(&mut self.index);
        while level.children.len() > 1 {
            let mut above = Level::default();
            let (mut first, mut behind) = (0, None);
            while first < level.children.len() {
                let (count, separator) = level.block(first, &mut self.long);
                above.push(self.out.pages, behind);
                self.out.give_block(Kind::Index, count as u16, &self.long, &mut self.page, sink);
                (first, behind) = (first + count, separator);
            }
            self.facts.index_levels += 1;
            level = above;
        }
        self.facts.root = level.children.first().copied().unwrap_or_default();
    }

    fn finish_filter(&mut self, sink: &mut impl FnMut(&Page)) {
        let pages = filter::pages_for(self.hashes.len(), self.filter_bits_per_key);
        let mut filter = vec![[0; PAGE_BYTES]; pages as usize];
        self.hashes.iter().for_each(|hash| filter::insert(&mut filter, *hash));
        for page in &mut filter {
            let header =
                Header { kind: Kind::Filter as u8, after: 0, entries: 0, used: CONTENTS_BYTES as u32, before: 0 };
            self.out.give(header, page, sink);
        }
        self.facts.filter_pages = pages;
    }
}
