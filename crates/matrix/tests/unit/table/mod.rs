//! Tables and value files, against a model.

mod compression;
mod damage;
mod format;
mod model;
mod values;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use stratakv_base::Expiry;
use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_base::random::Random;
use stratakv_device::{Block, BlockPart, Class, Pool};

use super::{Builder, Page, TableFacts};
use crate::config::Compression;
use crate::cursor::{Pages, Stop};
use crate::entry::{Body, Meta, Pointer, value_checksum};

pub const UUID: [u8; 16] = *b"a store of tests";
pub const FILE: u64 = 7;

/// A version as tests give it to a builder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub key: Vec<u8>,
    pub meta: Meta,
    pub value: Vec<u8>,
}

/// A put whose value lies beside its key.
pub fn put(key: &[u8], version: u64, value: &[u8]) -> Version {
    let body = Body::Here { value_bytes: value.len() as u32, checksum: value_checksum(version, value) };
    let meta = Meta { version, flags: 0, expiry: Expiry::NEVER, body };
    Version { key: key.to_vec(), meta, value: value.to_vec() }
}

/// A delete.
pub fn delete(key: &[u8], version: u64) -> Version {
    let meta = Meta { version, flags: 0, expiry: Expiry::NEVER, body: Body::Delete };
    Version { key: key.to_vec(), meta, value: Vec::new() }
}

/// A put whose value lies elsewhere.
pub fn blob(key: &[u8], version: u64, pointer: Pointer) -> Version {
    let meta = Meta { version, flags: 0, expiry: Expiry::NEVER, body: Body::Blob(pointer) };
    Version { key: key.to_vec(), meta, value: Vec::new() }
}

/// Pages packed into blocks of 64 KiB, as a caller packs them that writes them.
pub struct Packed {
    pool: Pool,
    full: Vec<Arc<Block>>,
    open: Option<Block>,
    pages: usize,
}

impl Packed {
    pub fn new() -> Packed {
        Packed { pool: Pool::new(1 << 30), full: Vec::new(), open: None, pages: 0 }
    }

    pub fn push(&mut self, page: &Page) {
        let mut block = self.open.take().unwrap_or_else(|| self.pool.take(Class::Slice).expect("the pool is large"));
        let at = self.pages * PAGE_BYTES % SLICE_BYTES;
        block[at..at + PAGE_BYTES].copy_from_slice(page);
        self.pages += 1;
        if at + PAGE_BYTES == SLICE_BYTES {
            self.full.push(Arc::new(block));
        } else {
            self.open = Some(block);
        }
    }

    pub fn parts(mut self) -> Vec<BlockPart> {
        self.full.extend(self.open.map(Arc::new));
        let part = |page: usize| {
            let at = page * PAGE_BYTES;
            let block = Arc::clone(&self.full[at / SLICE_BYTES]);
            BlockPart { block, start: (at % SLICE_BYTES) as u32, len: PAGE_BYTES as u32 }
        };
        (0..self.pages).map(part).collect()
    }
}

/// A table's pages, of which some are not in memory.
pub struct Store {
    pub parts: Vec<BlockPart>,
    there: RefCell<Vec<bool>>,
    asked: Cell<Option<usize>>,
}

impl Store {
    pub fn new(parts: Vec<BlockPart>) -> Store {
        let there = RefCell::new(vec![true; parts.len()]);
        Store { parts, there, asked: Cell::new(None) }
    }

    pub fn drop_some(&self, random: &mut Random) {
        // Not too many: each makes a lookup begin again.
        let one_of = 4 + self.parts.len() as u64 / 8;
        self.there.borrow_mut().iter_mut().for_each(|there| *there &= random.below(one_of) > 0);
    }

    /// Does `go` until it does not stop for a missing page.
    pub fn until<T>(&self, mut go: impl FnMut() -> Result<T, Stop>) -> T {
        for _ in 0..=self.parts.len() {
            match go() {
                Ok(done) => return done,
                Err(Stop::Damaged(corruption)) => panic!("{corruption}"),
                Err(Stop::Missing) => {
                    let page = self.asked.take().expect("a page was noted");
                    assert!(!std::mem::replace(&mut self.there.borrow_mut()[page], true), "it was missing");
                }
            }
        }
        panic!("it stopped for more pages than there are");
    }
}

impl Pages for Store {
    fn page(&self, file: u64, ordinal: u32) -> Result<BlockPart, Stop> {
        assert_eq!(file, FILE);
        let page = ordinal as usize;
        // Only damaged tables name pages that do not exist; some other page stands there then.
        let Some(part) = self.parts.get(page) else { return Ok(self.parts[page % self.parts.len()].clone()) };
        if self.there.borrow()[page] {
            return Ok(part.clone());
        }
        self.asked.set(Some(page));
        Err(Stop::Missing)
    }
}

/// A table of `versions`, none of it compressed.
pub fn build(versions: &[Version], bits_per_key: u32) -> (TableFacts, Vec<BlockPart>) {
    let (facts, parts) = build_with(versions, bits_per_key, Compression::None);
    assert_eq!(facts.plain_pages, facts.pages);
    (facts, parts)
}

/// A table of `versions`.
pub fn build_with(versions: &[Version], bits_per_key: u32, compression: Compression) -> (TableFacts, Vec<BlockPart>) {
    let (mut builder, mut packed) = (Builder::new(UUID, FILE, bits_per_key, compression), Packed::new());
    for Version { key, meta, value } in versions {
        builder.add(key, meta, value, &mut |page| packed.push(page)).expect("they are in order");
    }
    let bytes = builder.bytes();
    let facts = builder.finish(&mut |page| packed.push(page)).expect("there is a version");
    let parts = packed.parts();
    assert_eq!(parts.len(), facts.pages as usize);
    let real = u64::from(facts.plain_pages) * PAGE_BYTES as u64;
    // Long separators may share much, or leave much of their pages empty.
    let (least, most) = (bytes / 3, bytes * 2 + 4 * PAGE_BYTES as u64);
    assert!((least..most).contains(&real), "{bytes} were told of {real}");
    (facts, parts)
}
