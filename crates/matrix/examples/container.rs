//! Prints what the matrix container costs: nanoseconds per put and per byte of a flush, and what
//! hints save a lookup.
//!
//! `cargo run --release -p stratakv-matrix --example container`
//!
//! The region is anonymous memory: nothing is flushed, and a fence costs nothing. What persistent
//! memory adds is not in these figures.

#![expect(clippy::print_stdout, reason = "a program that prints tables")]

use std::error::Error;

use stratakv_base::Expiry;
use stratakv_base::random::Random;
use stratakv_matrix::container::{Change, Config, Container, Flush, What};
use stratakv_pmem::{MapOptions, Mapping, Pmem};

const UNIT_BYTES: u32 = 64 << 10;
const ROW_BYTES: u64 = 16 << 20;

fn container(region_bytes: u64, row_bytes: u64) -> Result<Container<Mapping>, Box<dyn Error>> {
    let pmem = Mapping::anonymous(region_bytes, MapOptions::default())?;
    // Touched once, as persistent memory is.
    (0..region_bytes / 4096).try_for_each(|page| pmem.store(page * 4096, &[0; 4096]))?;
    Ok(Container::create(pmem, Config { uuid: [7; 16], shard: 0, unit_bytes: UNIT_BYTES, row_bytes })?)
}

/// Nanoseconds that this thread has had a processor: what else runs on the machine does not count.
fn processor_ns() -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

fn key(number: u64) -> String {
    format!("{:016x}", Random::new(number).next_u64())
}

fn put(container: &mut Container<Mapping>, key: &str, value: &[u8]) -> Result<(), Box<dyn Error>> {
    let change = Change { key: key.as_bytes(), flags: 0, expiry: Expiry::NEVER, what: What::Put(value) };
    container.append(&[change], &[])?;
    Ok(())
}

/// Seals and makes a row; nanoseconds, and units it took.
fn flush(container: &mut Container<Mapping>) -> Result<(u64, u64), Box<dyn Error>> {
    container.seal(&[])?;
    let start = processor_ns()?;
    loop {
        match container.flush_step(64 << 10)? {
            Flush::Row { units, .. } => return Ok((processor_ns()? - start, units.into())),
            Flush::More => {}
            Flush::Idle | Flush::Waits(_) => return Err("nothing was sealed".into()),
        }
    }
}

fn puts(value_bytes: usize) -> Result<(), Box<dyn Error>> {
    let (mut container, value) = (container(512 << 20, ROW_BYTES)?, vec![5; value_bytes]);
    let keys: Vec<String> = (0..2_000_000).map(key).collect();
    let (mut next, mut put_ns, mut flush_ns_per_byte) = (0, f64::MAX, f64::MAX);
    for _ in 0..6 {
        let (start, first) = (processor_ns()?, next);
        while !container.is_full() {
            put(&mut container, &keys[next], &value)?;
            container.commit()?;
            next += 1;
        }
        put_ns = put_ns.min((processor_ns()? - start) as f64 / (next - first) as f64);
        let bytes = container.statistics().memtable_bytes;
        let (spent, _) = flush(&mut container)?;
        flush_ns_per_byte = flush_ns_per_byte.min(spent as f64 / bytes as f64);
    }
    println!("{value_bytes:>6} B: {put_ns:>6.0} ns per put and commit, {flush_ns_per_byte:.3} ns per byte of a flush");
    Ok(())
}

/// Rows of 4,000 records each, keys drawn from a million; lookups of keys that are there, and of
/// others.
fn hints(rows: u64) -> Result<(), Box<dyn Error>> {
    const RECORDS: u64 = 4_000;
    let (mut container, mut random) = (container(256 << 20, u64::MAX)?, Random::new(rows));
    let mut keys = Vec::new();
    for _ in 0..rows {
        for _ in 0..RECORDS {
            let number = random.below(1_000_000);
            put(&mut container, &key(number), b"value")?;
            keys.push(number);
        }
        flush(&mut container)?;
    }
    for (what, is_there) in [("there", true), ("absent", false)] {
        let mut line = format!("{rows:>4} rows, {what:>6}:");
        for by_hints in [true, false] {
            let (before, start) = (container.statistics(), processor_ns()?);
            let lookups = 20_000;
            for _ in 0..lookups {
                let drawn = keys[random.below(keys.len() as u64) as usize];
                let key = key(if is_there { drawn } else { 2_000_000 + drawn });
                let found = if by_hints {
                    container.get(key.as_bytes(), u64::MAX)?
                } else {
                    container.get_without_hints(key.as_bytes(), u64::MAX)?
                };
                assert_eq!(found.is_some(), is_there);
            }
            let (spent, after) = ((processor_ns()? - start) / lookups, container.statistics());
            let touched = (after.searches.elements_touched - before.searches.elements_touched) as f64 / lookups as f64;
            let full = after.searches.searched_in_full - before.searches.searched_in_full;
            let share = full as f64 / (after.searches.searched - before.searches.searched) as f64;
            let name = if by_hints { "with hints" } else { "without" };
            line +=
                &format!("  {name}: {touched:>7.1} elements, {spent:>6} ns, {:.2} of rows searched in full;", share);
        }
        println!("{line}");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("keys of 16 B, units of 64 KiB, rows of 16 MiB, the fastest of six");
    [100, 1024, 4096].into_iter().try_for_each(puts)?;
    println!("elements of metadata touched by a lookup");
    [8, 32, 128].into_iter().try_for_each(hints)
}
