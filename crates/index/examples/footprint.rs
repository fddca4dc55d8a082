//! Prints what the ordered index costs: bytes per item and nanoseconds per lookup, for keys of 8,
//! 16 and 23 bytes.
//!
//! `cargo run --release -p stratakv-index --example footprint [ITEMS...]` (default:
//! 1000000 4000000)
//!
//! "slowest" is one insert's time by the wall clock, so it includes every time the machine did
//! something else meanwhile. "RSS" is only telling in the first line: later ones reuse what the
//! lines before gave back to the allocator.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::ops::{Bound, ControlFlow};
use std::time::Instant;

use stratakv_base::random::Random;
use stratakv_index::{Builder, IndexEntry, Tree};

/// The item's number: random, and the same for the same index.
fn number(index: u64) -> u64 {
    Random::new(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)).next_u64()
}

type Shape = (&'static str, fn(u64) -> Vec<u8>);

const SHAPES: [Shape; 3] = [
    ("8 B", |n| number(n).to_be_bytes().to_vec()),
    ("16 B", |n| format!("{:016x}", number(n)).into_bytes()),
    ("23 B", |n| format!("user{:019}", number(n) >> 1).into_bytes()),
];

fn main() {
    let sizes: Vec<u64> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![1_000_000, 4_000_000] } else { sizes };
    println!(
        "keys    items    suffix  B/item  RSS/item  built   insert  slowest  replace  get hot  get cold  batched  scan   back  remove"
    );
    println!(
        "                 B       B       B         B       ns      us       ns       ns       ns        ns       ns     ns    ns"
    );
    for (name, key) in SHAPES {
        for items in &sizes {
            print(name, *items, key);
        }
    }
}

fn print(name: &str, items: u64, key: fn(u64) -> Vec<u8>) {
    // 64 Ki keys stand for all in the timings after the inserts, 512 of them for a hot set.
    let rss_before = resident_bytes();
    let mut tree = Tree::new();
    let (mut insert_ns, mut slowest_ns) = (0, 0);
    for n in 0..items {
        let (key, entry) = (key(n), IndexEntry { place: n, expiry: 0 });
        let start = Instant::now();
        tree.insert(&key, entry);
        let took = start.elapsed().as_nanos();
        insert_ns += took;
        slowest_ns = slowest_ns.max(took);
    }
    let rss = (resident_bytes().saturating_sub(rss_before)) as f64 / items as f64;
    let per_item = |bytes: usize| bytes as f64 / items as f64;
    let footprint = per_item(tree.footprint_bytes());

    let some: Vec<Vec<u8>> = (0..65_536u64).map(|n| key(number(n) % items)).collect();
    let replace_ns = time(&some, |key| tree.insert(key, IndexEntry { place: 1, expiry: 0 }).is_some());
    let cold_ns = time(&some, |key| tree.get(key).is_some());
    let start = Instant::now();
    for batch in some.chunks(32) {
        batch.iter().for_each(|key| tree.prefetch(key));
        assert!(batch.iter().all(|key| tree.get(key).is_some()));
    }
    let batch_ns = start.elapsed().as_nanos() as f64 / some.len() as f64;
    let few: Vec<Vec<u8>> = (0..65_536).map(|n| some[n % 512].clone()).collect();
    let hot_ns = time(&few, |key| tree.get(key).is_some());
    let (scan_ns, suffix, sorted) = scan(&tree);
    let start = Instant::now();
    let mut count = 0;
    tree.scan(Bound::Unbounded, Bound::Unbounded, true, &mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    });
    let back_ns = start.elapsed().as_nanos() as f64 / f64::from(count);
    drop(tree);

    let mut builder = Builder::new();
    sorted.iter().for_each(|(key, entry)| builder.push(key, *entry));
    let mut tree = builder.finish();
    let built = per_item(tree.footprint_bytes());
    let remove_ns = time(&some, |key| {
        // A key may come twice.
        tree.remove(key);
        true
    });
    let (insert_ns, slowest_us) = (insert_ns / u128::from(items), slowest_ns / 1000);
    println!(
        "{name:6} {items:8}  {suffix:5.1}  {footprint:6.2}  {rss:7.2}  {built:6.2}  {insert_ns:5}  {slowest_us:6}  {replace_ns:6.0}  {hot_ns:7.0}  {cold_ns:7.0}  {batch_ns:6.0}  {scan_ns:5.1}  {back_ns:5.1}  {remove_ns:5.0}"
    );
}

fn time(keys: &[Vec<u8>], mut operation: impl FnMut(&[u8]) -> bool) -> f64 {
    let start = Instant::now();
    let done = keys.iter().filter(|key| operation(key)).count();
    assert_eq!(done, keys.len(), "every key is there");
    start.elapsed().as_nanos() as f64 / keys.len() as f64
}

/// Nanoseconds per key, mean bytes that a key does not share with the one before, and all items.
fn scan(tree: &Tree) -> (f64, f64, Vec<(Vec<u8>, IndexEntry)>) {
    let (start, mut count) = (Instant::now(), 0u64);
    tree.scan(Bound::Unbounded, Bound::Unbounded, false, &mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    });
    let scan_ns = start.elapsed().as_nanos() as f64 / count as f64;
    let (mut items, mut suffix_bytes): (Vec<(Vec<u8>, IndexEntry)>, usize) = (Vec::new(), 0);
    tree.scan(Bound::Unbounded, Bound::Unbounded, false, &mut |key, entry| {
        let before = items.last().map_or(&[][..], |(key, _)| key);
        suffix_bytes += key.len() - before.iter().zip(key).take_while(|(a, b)| a == b).count();
        items.push((key.to_vec(), entry));
        ControlFlow::Continue(())
    });
    (scan_ns, suffix_bytes as f64 / items.len() as f64, items)
}

/// Memory of this process that is resident, or 0 where the system does not say.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}
