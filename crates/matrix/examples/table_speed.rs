//! Prints what tables cost: nanoseconds for each version to build, go through and look up.
//!
//! `cargo run --release -p stratakv-matrix --example table_speed [ENTRIES]` (default: 1000000)
//!
//! Keys of 16 bytes; values beside them, of which none, half or all of the bytes are at random, or
//! pointers; plain, and compressed. All pages are in memory, their checksums compared before.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

mod clock;

use clock::best;
use stratakv_base::Expiry;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::random::Random;
use stratakv_device::{Block, BlockPart, Class, Pool};
use stratakv_matrix::Compression;
use stratakv_matrix::cursor::{Cursor, Pages, Stop};
use stratakv_matrix::entry::{Body, Meta, Pointer, value_checksum};
use stratakv_matrix::table::{Builder, Page, TableCursor, TableFacts, get, key_hash, may_contain, verify};

const UUID: [u8; 16] = [3; 16];

struct Memory(Vec<BlockPart>);

impl Pages for Memory {
    fn page(&self, _: u64, ordinal: u32) -> Result<BlockPart, Stop> {
        self.0.get(ordinal as usize).cloned().ok_or(Stop::Missing)
    }
}

/// Pages, 16 to a block, as they are written.
struct Sink {
    pool: Pool,
    blocks: Vec<Block>,
    pages: usize,
}

impl Sink {
    fn push(&mut self, page: &Page) {
        let at = self.pages % 16 * PAGE_BYTES;
        if at == 0 {
            self.blocks.push(self.pool.take(Class::Slice).expect("the pool is large"));
        }
        let block = self.blocks.last_mut().expect("one was just taken");
        block[at..at + PAGE_BYTES].copy_from_slice(page);
        self.pages += 1;
    }

    fn parts(self) -> Vec<BlockPart> {
        let blocks: Vec<_> = self.blocks.into_iter().map(std::sync::Arc::new).collect();
        let part = |page: usize| {
            let start = (page % 16 * PAGE_BYTES) as u32;
            BlockPart { block: blocks[page / 16].clone(), start, len: PAGE_BYTES as u32 }
        };
        (0..self.pages).map(part).collect()
    }
}

fn keys(entries: usize) -> Vec<[u8; 16]> {
    let mut random = Random::new(1);
    let mut keys: Vec<[u8; 16]> = (0..entries)
        .map(|_| {
            let mut key = *b"user000000000000";
            let number = format!("{:012}", random.below(1_000_000_000_000));
            key[4..].copy_from_slice(number.as_bytes());
            key
        })
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Values of so many bytes, of which some are at random; 0 for pointers.
#[derive(Clone, Copy)]
struct Values {
    bytes: usize,
    drawn: usize,
    compression: Compression,
}

fn build(keys: &[[u8; 16]], values: Values) -> (TableFacts, Vec<BlockPart>) {
    let mut sink = Sink { pool: Pool::new(1 << 30), blocks: Vec::new(), pages: 0 };
    let facts = feed(keys, values, &mut |page| sink.push(page));
    (facts, sink.parts())
}

fn feed(keys: &[[u8; 16]], values: Values, sink: &mut impl FnMut(&Page)) -> TableFacts {
    let mut builder = Builder::new(UUID, 1, 10, values.compression);
    let (mut random, mut value) = (Random::new(5), vec![b'.'; values.bytes]);
    for (number, key) in keys.iter().enumerate() {
        random.fill(&mut value[..values.drawn]);
        let checksum = value_checksum(1_000_000, &value);
        let body = if values.bytes == 0 {
            Body::Blob(Pointer { file: 9, offset: number as u64 * 1_000, value_bytes: 1_000, checksum })
        } else {
            Body::Here { value_bytes: value.len() as u32, checksum }
        };
        let meta = Meta { version: 1_000_000, flags: 0, expiry: Expiry::NEVER, body };
        builder.add(key, &meta, &value, sink).expect("keys ascend");
    }
    builder.finish(sink).expect("there are keys")
}

fn measure(name: &str, entries: usize, values: Values) {
    let keys = keys(entries);
    let count = keys.len();
    let mut block = vec![0; 16 * PAGE_BYTES];
    let built = best(count, || {
        let mut pages = 0;
        feed(&keys, values, &mut |page| {
            block[pages % 16 * PAGE_BYTES..][..PAGE_BYTES].copy_from_slice(page);
            pages += 1;
        });
    });
    let (facts, parts) = build(&keys, values);
    let verified = best(parts.len(), || {
        parts.iter().zip(0..).for_each(|(part, ordinal)| verify(part.bytes(), &UUID, 1, ordinal).expect("it checks"));
    });
    let memory = Memory(parts);
    let (forward, backward) =
        (best(count, || iterate(&facts, &memory, true)), best(count, || iterate(&facts, &memory, false)));
    let mut random = Random::new(2);
    let asked: Vec<[u8; 16]> = (0..200_000).map(|_| keys[random.below(count as u64) as usize]).collect();
    let found = best(asked.len(), || {
        asked.iter().for_each(|key| assert!(matches!(get(&facts, &memory, key, u64::MAX), Ok(Some(_)))));
    });
    let refused = best(asked.len(), || {
        let passed = asked.iter().filter(|key| {
            let stranger = [&key[..], b"x"].concat();
            may_contain(&facts, &memory, key_hash(&stranger)) == Ok(true)
        });
        assert!(passed.count() < asked.len() / 50);
    });
    let bytes = f64::from(facts.pages) * PAGE_BYTES as f64 / count as f64;
    println!(
        "{name:14} {built:7.1} {forward:9.1} {backward:9.1} {found:9.1} {refused:9.1} {verified:11.1} {bytes:9.1} {:7}",
        facts.index_levels
    );
}

fn iterate(facts: &TableFacts, memory: &Memory, forward: bool) {
    let mut cursor = TableCursor::new(facts, memory);
    let first = if forward { cursor.seek(b"") } else { cursor.seek_before(None) };
    first.expect("all pages are there");
    let (mut entries, mut bytes) = (0, 0);
    while let (Some(key), Some(meta)) = (cursor.key(), cursor.meta()) {
        entries += 1;
        bytes += key.len() as u64 + meta.version + cursor.value_here().expect("it checks").len() as u64;
        if forward { cursor.next() } else { cursor.prev() }.expect("all pages are there");
    }
    assert_eq!(entries, facts.entries);
    std::hint::black_box(bytes);
}

fn main() {
    let entries = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    println!("ns             build/v   next/v    prev/v    get       refused   verify/page  bytes/v  levels");
    for (name, bytes, drawn) in [
        ("pointers", 0, 0),
        ("dull 100", 100, 0),
        ("half 100", 100, 50),
        ("random 100", 100, 100),
        ("half 400", 400, 200),
    ] {
        for compression in [Compression::None, Compression::Lz4] {
            let name = if compression == Compression::Lz4 { format!("{name} lz4") } else { name.to_owned() };
            measure(&name, entries, Values { bytes, drawn, compression });
        }
    }
}
