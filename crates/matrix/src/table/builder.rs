//! Tables, made in one pass.

use stratakv_base::Key;
use stratakv_base::limits::PAGE_BYTES;

use super::data::Head;
use super::filling::Filling;
use super::filter;
use super::index::{self, Level};
use super::packing::{Made, Packer};
use super::page::{CONTENTS_BYTES, HEADER_BYTES, Header, Kind, Page};
use super::{INLINE_BYTES_MAX, TableFacts, shared_bytes};
use crate::config::Compression;
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

/// Makes one table. Nothing is allocated for an entry; what a builder keeps until the end grows by
/// 8 bytes for each key (its hash) and some 10 to 20 for each page (the index).
#[derive(Debug)]
pub struct Builder {
    out: Out,
    /// The block that is being filled, and what compresses it.
    block: Filling,
    packer: Option<Packer>,
    /// Bytes of the last page that would not be full yet if nothing were compressed.
    open_bytes: usize,
    /// A page of what is made at once.
    page: Box<Page>,
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
    /// A builder for the table `file` of the store `uuid`. `filter_bits_per_key` 10 lets in one
    /// stranger of a hundred; 0 makes no filter.
    pub fn new(uuid: [u8; 16], file: u64, filter_bits_per_key: u32, compression: Compression) -> Builder {
        let facts = TableFacts {
            file,
            entries: 0,
            pages: 0,
            plain_pages: 0,
            data_pages: 0,
            root: 0,
            index_levels: 0,
            filter_pages: 0,
            lowest_version: u64::MAX,
            highest_version: 0,
            first_key: Box::default(),
            last_key: Box::default(),
            deletes: 0,
            blob: Vec::new(),
        };
        Builder {
            out: Out { uuid, file, pages: 0 },
            block: Filling::new(),
            open_bytes: 0,
            packer: (compression == Compression::Lz4).then(Packer::new),
            page: Box::new([0; PAGE_BYTES]),
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

    /// About the bytes that the table would have if it were finished now, and nothing were
    /// compressed: some percent off, more only where keys have hundreds of bytes. O(1).
    pub fn bytes(&self) -> u64 {
        let filter = filter::pages_for(self.hashes.len(), self.filter_bits_per_key) as usize * PAGE_BYTES;
        let block = self.block.contents_bytes(self.block.entries());
        u64::from(self.facts.plain_pages) * PAGE_BYTES as u64 + (block + self.index.bytes() + filter) as u64
    }

    /// Takes the next version: its key, and its value if that lies beside the key (else nothing).
    /// Pages that are finished by this go to `sink` in order: at most one, if it compresses some
    /// more, and up to 33 more if key and value are longer than a page.
    ///
    /// # Errors
    /// [`Refused`]; the builder is as before.
    #[inline]
    pub fn add(&mut self, key: &[u8], meta: &Meta, value: &[u8], sink: &mut impl FnMut(&Page)) -> Result<(), Refused> {
        let shared = shared_bytes(&self.last_key, key);
        let new_key = shared != key.len() || shared != self.last_key.len();
        self.check(key, meta, value, shared, new_key)?;
        let before = std::mem::take(&mut self.last_key);
        self.insert((&before, key), shared, (meta, value), sink);
        self.last_key = before;
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
        // The longest entry, the longest index and the filter of a table of 2^31 pages stay below
        // 2^32.
        if self.out.pages > u32::MAX / 2 { Err(Refused::Full) } else { Ok(()) }
    }

    /// Puts an entry behind the one whose key comes before, which has so many bytes in common with
    /// its own.
    #[inline]
    fn insert(
        &mut self,
        (before, key): (&[u8], &[u8]),
        shared: usize,
        (meta, value): (&Meta, &[u8]),
        sink: &mut impl FnMut(&Page),
    ) {
        while !self.block.is_empty() {
            if self.block.place(key, shared, meta, value) {
                return;
            }
            if !self.packer.as_mut().is_some_and(|packer| packer.makes_room(&mut self.block)) {
                self.give_full(sink);
            }
        }
        if self.index.children.is_empty() {
            self.facts.first_key = key.into();
            self.index.push(0, None);
        } else {
            self.index.push(self.out.pages, Some(&index::separator(before, key)));
        }
        if !self.block.place(key, 0, meta, value) {
            self.place_long(key, meta, value, sink);
        }
    }

    /// Gives a page with the entries of the block, or as many of the first ones as it holds; the
    /// others are in the next block then.
    fn give_full(&mut self, sink: &mut impl FnMut(&Page)) {
        let entries = self.block.entries();
        if self.block.contents_bytes(entries) > CONTENTS_BYTES && self.packer.is_some() {
            return self.give_packed(sink);
        }
        let (page, used) = self.block.page();
        let header = Header { kind: Kind::Data as u8, after: 0, entries: entries as u16, used: used as u32, before: 0 };
        self.out.give(header, page, sink);
        self.facts.plain_pages += 1;
        self.begin_block(entries, false, sink);
    }

    fn give_packed(&mut self, sink: &mut impl FnMut(&Page)) {
        let Some(packer) = &mut self.packer else { return };
        let (kind, entries, contents) = match packer.make(&self.block) {
            Made::Packed(entries, contents) => (Kind::Packed, entries, contents),
            Made::Plain(entries, contents) => (Kind::Data, entries, contents),
        };
        self.out.give_block(kind, entries as u16, contents, &mut self.page, sink);
        let is_packed = kind == Kind::Packed;
        self.facts.plain_pages += if is_packed { self.block.plain_pages(entries, &mut self.open_bytes) } else { 1 };
        self.begin_block(entries, is_packed, sink);
    }

    /// Begins a block with what is left of the one before, of which the first `given` entries were
    /// given.
    fn begin_block(&mut self, given: usize, was_packed: bool, sink: &mut impl FnMut(&Page)) {
        let mut rest = self.block.take_rest(given);
        if let Some(packer) = &mut self.packer {
            self.block.set_limit(packer.begin(was_packed));
        }
        while let Some(taken) = rest.next() {
            self.insert((taken.before, taken.key), taken.shared, (&taken.meta, taken.value), sink);
        }
    }

    /// Gives a block of several pages with one entry.
    fn place_long(&mut self, key: &[u8], meta: &Meta, value: &[u8], sink: &mut impl FnMut(&Page)) {
        let head = Head::new(0, key.len(), meta);
        self.long.clear();
        for piece in [head.bytes(), key, value, &[0, 0], &[1, 0]] {
            self.long.extend_from_slice(piece);
        }
        let before = self.out.pages;
        self.out.give_block(Kind::Data, 1, &self.long, &mut self.page, sink);
        self.facts.plain_pages += self.out.pages - before;
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
            Body::Blob(pointer) => {
                let bytes = u64::from(pointer.value_bytes);
                match facts.blob.iter_mut().rev().find(|(file, _)| *file == pointer.file) {
                    Some((_, sum)) => *sum += bytes,
                    None => facts.blob.push((pointer.file, bytes)),
                }
            }
        }
    }

    /// Gives the last data block, the index and the filter, and says what the table is. `None`: it
    /// is empty, and has no page.
    pub fn finish(mut self, sink: &mut impl FnMut(&Page)) -> Option<TableFacts> {
        if self.facts.entries == 0 {
            return None;
        }
        while !self.block.is_empty() {
            self.give_full(sink);
        }
        self.facts.data_pages = self.out.pages;
        self.facts.plain_pages += u32::from(self.open_bytes > 0);
        self.finish_index(sink);
        // Of more data blocks it would have a longer index.
        let index_pages = u64::from(self.out.pages - self.facts.data_pages) * u64::from(self.facts.plain_pages);
        self.facts.plain_pages += index_pages.div_ceil(u64::from(self.facts.data_pages)) as u32;
        self.finish_filter(sink);
        self.facts.pages = self.out.pages;
        self.facts.plain_pages += self.facts.filter_pages;
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
