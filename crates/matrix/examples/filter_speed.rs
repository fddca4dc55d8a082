//! Prints what the filter of a table costs as Bloom in lines (what tables have) and as binary fuse
//! of 8 bits: bits a key, strangers let in, nanoseconds of processor to build and to ask, pages
//! touched by a question.
//!
//! `cargo run --release -p stratakv-matrix --example filter_speed [ENTRIES]` (default: 65536 and
//! 1600000, a table of 64 MiB with values of 1 KiB, and with pointers)
//!
//! Both lie in pages that are got as the engine gets them from its cache, by a table of hashes.
//! Decision 39 draws the conclusion.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

mod clock;

use std::collections::HashMap;

use clock::best;
use stratakv_base::Expiry;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::random::Random;
use stratakv_device::{Block, BlockPart, Class, Pool};
use stratakv_matrix::Compression;
use stratakv_matrix::cursor::{Pages, Stop};
use stratakv_matrix::entry::{Body, Meta, Pointer};
use stratakv_matrix::table::{Builder, Page, TableFacts, key_hash, may_contain};
use xorf::{BinaryFuse8, Filter as _};

const QUESTIONS: usize = 1_000_000;
/// Each page begins with its header, as those of tables do: its first byte is looked at, the rest
/// of its line is not used.
const HEADER_BYTES: usize = 64;
const MARK: u8 = 7;
/// Fingerprints of a page.
const HELD: usize = PAGE_BYTES - HEADER_BYTES;

/// Pages by their number, as a cache has them.
struct Cache(HashMap<u32, BlockPart>);

impl Pages for Cache {
    fn page(&self, _: u64, ordinal: u32) -> Result<BlockPart, Stop> {
        self.0.get(&ordinal).cloned().ok_or(Stop::Missing)
    }
}

impl Cache {
    fn of(pages: &[Page]) -> Cache {
        let pool = Pool::new(1 << 30);
        let part = |page: &Page| {
            let mut block: Block = pool.take(Class::Page).expect("the pool is large");
            block[..PAGE_BYTES].copy_from_slice(page);
            BlockPart { block: std::sync::Arc::new(block), start: 0, len: PAGE_BYTES as u32 }
        };
        Cache((0..).zip(pages.iter().map(part)).collect())
    }
}

/// A table of keys with pointers, its filter having so many bits a key; none has no filter.
fn table(keys: &[[u8; 16]], bits: u32) -> (TableFacts, Vec<Page>) {
    let mut pages = Vec::new();
    let mut sink = |page: &Page| pages.push(*page);
    let mut builder = Builder::new([3; 16], 1, bits, Compression::None);
    let pointer = Pointer { file: 9, offset: 0, value_bytes: 1_000, checksum: 0 };
    let meta = Meta { version: 1, flags: 0, expiry: Expiry::NEVER, body: Body::Blob(pointer) };
    for key in keys {
        builder.add(key, &meta, &[], &mut sink).expect("keys ascend");
    }
    let facts = builder.finish(&mut sink).expect("there are keys");
    (facts, pages)
}

/// A binary fuse filter whose fingerprints lie in pages: where the three of a question are follows
/// the crate's own arithmetic.
struct Fuse {
    filter: BinaryFuse8,
    pages: Cache,
}

impl Fuse {
    fn of(hashes: &[u64]) -> Fuse {
        let filter = BinaryFuse8::try_from(hashes).expect("hashes differ");
        let pages = filter.fingerprints.chunks(HELD).map(|bytes| {
            let mut page = [0; PAGE_BYTES];
            page[0] = MARK;
            page[HEADER_BYTES..][..bytes.len()].copy_from_slice(bytes);
            page
        });
        let pages = Cache::of(&pages.collect::<Vec<Page>>());
        Fuse { filter, pages }
    }

    /// Fingerprint and places of a hash.
    fn places(&self, key: u64) -> (u8, [u32; 3]) {
        let mix = |hash: u64| {
            let hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
            let hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
            hash ^ hash >> 33
        };
        let descriptor = &self.filter.descriptor;
        let hash = mix(key.wrapping_add(descriptor.seed));
        let first = ((u128::from(hash) * u128::from(descriptor.segment_count_length)) >> 64) as u32;
        let second = (first + descriptor.segment_length) ^ ((hash >> 18) as u32 & descriptor.segment_length_mask);
        let third = (first + 2 * descriptor.segment_length) ^ (hash as u32 & descriptor.segment_length_mask);
        ((hash ^ hash >> 32) as u8, [first, second, third])
    }

    fn allows(&self, key: u64) -> bool {
        let (mut fingerprint, places) = self.places(key);
        let mut page: Option<(u32, BlockPart)> = None;
        for place in places {
            let (number, at) = (place / HELD as u32, HEADER_BYTES + place as usize % HELD);
            if page.as_ref().is_none_or(|(have, _)| *have != number) {
                let part = self.pages.page(1, number).ok().filter(|part| part.bytes().first() == Some(&MARK));
                page = part.map(|part| (number, part));
            }
            fingerprint ^= page.as_ref().map_or(0, |(_, part)| part.bytes()[at]);
        }
        fingerprint == 0
    }

    fn pages_asked(&self, key: u64) -> usize {
        let mut pages = self.places(key).1.map(|place| place / HELD as u32).to_vec();
        pages.dedup();
        pages.len()
    }
}

fn keys(entries: usize) -> Vec<[u8; 16]> {
    let mut random = Random::new(1);
    let mut keys: Vec<[u8; 16]> = (0..entries).map(|_| std::array::from_fn(|_| random.below(256) as u8)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn line(name: &str, bits: f64, built: f64, asked: &[u64], present: &[u64], pages: f64, allows: impl Fn(u64) -> bool) {
    assert!(present.iter().all(|hash| allows(*hash)), "no key is refused");
    let let_in = asked.iter().filter(|hash| allows(**hash)).count() as f64 / asked.len() as f64 * 100.0;
    let count = |hashes: &[u64]| hashes.iter().filter(|hash| allows(**hash)).count();
    let stranger = best(asked.len(), || _ = std::hint::black_box(count(asked)));
    let known = best(present.len(), || _ = std::hint::black_box(count(present)));
    println!("{name:16} {bits:8.2} {let_in:8.3} {built:9.1} {stranger:9.1} {known:9.1} {pages:9.2}");
}

fn measure(entries: usize) {
    let keys = keys(entries);
    let hashes: Vec<u64> = keys.iter().map(|key| key_hash(key)).collect();
    let mut random = Random::new(7);
    let asked: Vec<u64> = (0..QUESTIONS).map(|_| random.below(u64::MAX)).collect();
    let present: Vec<u64> = (0..QUESTIONS).map(|_| hashes[random.below(hashes.len() as u64) as usize]).collect();
    println!("{entries} keys, ns   bits/key  let in %   build/key  stranger     known   pages");
    let without = best(keys.len(), || _ = std::hint::black_box(table(&keys, 0)));
    for bits in [10, 12, 14] {
        let built = best(keys.len(), || _ = std::hint::black_box(table(&keys, bits))) - without;
        let (facts, pages) = table(&keys, bits);
        let cache = Cache::of(&pages);
        let size = f64::from(facts.filter_pages) * PAGE_BYTES as f64 * 8.0 / keys.len() as f64;
        let allows = |hash| may_contain(&facts, &cache, hash) == Ok(true);
        line(&format!("Bloom, {bits} bits"), size, built, &asked, &present, 1.0, allows);
    }
    let built = best(keys.len(), || _ = std::hint::black_box(Fuse::of(&hashes)));
    let fuse = Fuse::of(&hashes);
    let agree = asked.iter().chain(&present).all(|hash| fuse.allows(*hash) == fuse.filter.contains(hash));
    assert!(agree, "the places of fingerprints are those of the crate");
    let size = fuse.filter.fingerprints.len() as f64 * 8.0 / keys.len() as f64;
    let pages = asked.iter().map(|hash| fuse.pages_asked(*hash)).sum::<usize>() as f64 / asked.len() as f64;
    line("binary fuse, 8", size, built, &asked, &present, pages, |hash| fuse.allows(hash));
}

fn main() {
    match std::env::args().nth(1).and_then(|text| text.parse().ok()) {
        Some(entries) => measure(entries),
        None => [65_536, 1_600_000].into_iter().for_each(measure),
    }
}
