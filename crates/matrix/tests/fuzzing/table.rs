//! What holds for any bytes of a table: run by the fuzzers (docs/fuzzing.md), and over their corpus
//! by a test.
//!
//! Pages come to readers with their checksums compared, so what is forged here is what a checksum
//! would have let pass.

use std::sync::Arc;

use stratakv_base::Expiry;
use stratakv_base::codec::Reader;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::random::Random;
use stratakv_device::{BlockPart, Class, Pool};

use super::packing;
use super::page::{HEADER_BYTES, Kind};
use super::{Builder, Page, TableCursor, TableFacts, bytes_between, find, get};
use crate::config::Compression;
use crate::cursor::{Cursor, Pages, Stop};
use crate::entry::{Body, Meta, value_checksum};

const FILE: u64 = 1;

struct Forged(Vec<BlockPart>);

impl Pages for Forged {
    fn page(&self, _: u64, ordinal: u32) -> Result<BlockPart, Stop> {
        self.0.get(ordinal as usize).cloned().ok_or(Stop::Missing)
    }
}

/// A table of a few dozen versions, forged as `input` says. Readers end, and nothing they say
/// reaches out of a page.
///
/// # Panics
/// A property does not hold.
pub fn table(input: &[u8]) {
    let mut choices = Reader::new(input);
    let [shape, mode] = choices.array().unwrap_or_default();
    let compression = if mode & 4 == 0 { Compression::None } else { Compression::Lz4 };
    let (mut facts, mut pages) = built(shape, compression);
    if mode & 1 != 0 {
        forge_facts(&mut facts, &mut choices);
    }
    if mode & 2 != 0 {
        let seed = choices.u32().unwrap_or_default();
        fill_with_noise(&mut pages, u64::from(seed));
    }
    if mode & 8 != 0 {
        forge_compressed(&mut pages, &mut choices);
    }
    while let Ok([page, high, low, byte]) = choices.array::<4>() {
        let page = usize::from(page) % pages.len();
        // Most of what can be forged lies at the start of a page.
        let at = usize::from(u16::from_le_bytes([low, high & 0x0f])) >> (high >> 5);
        pages[page][at % PAGE_BYTES] = byte;
    }
    let pool = Pool::new(4 << 20);
    let part = |page: &Page| {
        let mut block = pool.take(Class::Page).expect("the pool is large");
        block.copy_from_slice(page);
        BlockPart::whole(Arc::new(block))
    };
    let forged = Forged(pages.iter().map(part).collect());
    look_up(&facts, &forged);
    walk(&facts, &forged);
}

/// Keys of 4 bytes, of 400 and of 5000.
fn built(shape: u8, compression: Compression) -> (TableFacts, Vec<Page>) {
    let prefix = vec![b'k'; [0, 400, 5_000][usize::from(shape) % 3]];
    let (mut pages, mut builder) = (Vec::new(), Builder::new([1; 16], FILE, 10, compression));
    for number in 0..[200, 40, 8][usize::from(shape) % 3] {
        let key = [&prefix[..], &u32::to_be_bytes(number / 2)].concat();
        let (version, value) = (u64::from(1_000 - number), [number as u8; 60]);
        let here = Body::Here { value_bytes: 60, checksum: value_checksum(version, &value) };
        let (body, value) = if number % 5 == 0 { (Body::Delete, &[][..]) } else { (here, &value[..]) };
        let meta = Meta { version, flags: number % 3, expiry: Expiry((number % 2).into()), body };
        builder.add(&key, &meta, value, &mut |page| pages.push(*page)).expect("they are in order");
    }
    (builder.finish(&mut |page| pages.push(*page)).expect("there are versions"), pages)
}

fn forge_facts(facts: &mut TableFacts, choices: &mut Reader<'_>) {
    let mut number = || choices.u8().map(u32::from).unwrap_or_default();
    facts.root = number();
    facts.data_pages = number();
    facts.filter_pages = number();
    facts.pages = if number() % 2 == 0 { u32::MAX } else { number() };
}

/// Changes what compressed pages are unpacked to: eight times a byte of the first, or what lies in
/// the middle.
fn forge_compressed(pages: &mut [Page], choices: &mut Reader<'_>) {
    for page in pages.iter_mut().filter(|page| page[4] == Kind::Packed as u8) {
        let used = u32::from_le_bytes([page[8], page[9], page[10], page[11]]) as usize;
        let contents = page.get(HEADER_BYTES..HEADER_BYTES + used);
        let Some(mut raw) = contents.and_then(packing::unpack).filter(|raw| !raw.is_empty()) else { continue };
        for _ in 0..8 {
            let Ok([high, low, byte]) = choices.array::<3>() else { break };
            let at = usize::from(u16::from_le_bytes([low, high & 0x3f])) >> (high >> 6 << 2);
            let at = at % raw.len();
            // Offsets of restart points lie at the end.
            let at = if byte & 1 == 0 { at } else { raw.len() - 1 - at };
            raw[at] = byte;
        }
        let packed = [&(raw.len() as u32).to_le_bytes()[..], &lz4_flex::block::compress(&raw)].concat();
        if let Some(room) = page[HEADER_BYTES..].get_mut(..packed.len()) {
            room.copy_from_slice(&packed);
            page[8..12].copy_from_slice(&(packed.len() as u32).to_le_bytes());
        }
    }
}

fn fill_with_noise(pages: &mut [Page], seed: u64) {
    let mut random = Random::new(seed);
    for page in pages {
        let at = random.below(64) as usize;
        random.fill(&mut page[at..]);
    }
}

fn look_up(facts: &TableFacts, pages: &Forged) {
    let keys = [&facts.first_key[..], &facts.last_key, b"", b"k", b"\0\0\0\x09", &[0xff; 70_000]];
    for key in keys {
        for version in [u64::MAX, 900, 0] {
            for found in [find(facts, pages, key, version), get(facts, pages, key, version)] {
                let Ok(Some(hit)) = found else { continue };
                assert!(hit.meta.version <= version);
                let mut value = Vec::new();
                if hit.value(&mut value).is_ok() {
                    assert!(hit.part().is_ok_and(|part| part.is_none_or(|part| part.bytes() == value)));
                }
            }
        }
        let between = bytes_between(facts, pages, key, &facts.last_key).unwrap_or_default();
        assert!(between <= u64::from(facts.data_pages) * PAGE_BYTES as u64);
    }
}

/// Forward to the end, and back to the start, each from several places.
fn walk(facts: &TableFacts, pages: &Forged) {
    let mut cursor = TableCursor::new(facts, pages);
    for key in [&b""[..], b"\0\0\0\x20", &facts.last_key] {
        let state = cursor.seek(key);
        walk_on(&mut cursor, state, Cursor::next, pages);
        let state = cursor.seek_before(Some(key).filter(|key| !key.is_empty()));
        walk_on(&mut cursor, state, Cursor::prev, pages);
    }
}

fn walk_on<'a>(
    cursor: &mut TableCursor<'a>,
    mut state: Result<(), Stop>,
    step: fn(&mut TableCursor<'a>) -> Result<(), Stop>,
    pages: &Forged,
) {
    // An entry has at least four bytes.
    for _ in 0..=pages.0.len() * packing::RAW_PAGES * PAGE_BYTES / 4 {
        assert!(!matches!(state, Err(Stop::Damaged(_))) || cursor.key().is_none(), "no entry after damage");
        if state.is_err() || cursor.key().is_none() {
            return;
        }
        let (meta, value) = (cursor.meta().expect("where a key is, there is a version"), cursor.value_here());
        assert!(value.is_err() || value == Ok(&[]) || matches!(meta.body, Body::Here { .. }));
        state = step(cursor);
    }
    panic!("it does not end");
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_tables_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/table");
        for file in std::fs::read_dir(folder).unwrap() {
            super::table(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }
}
