//! What blocks of 32 and 64 bytes cost engine `hash`:
//! `cargo run --release -p stratakv-bench --example blocks [RECORDS]`.
//!
//! Blocks of 16 bytes are not offered: a header of 32 bytes has to lie in one line of 64, so that
//! its words become durable with one flush. Their column is arithmetic: header, collection and key,
//! value, rounded up to 16.
#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use std::time::{Duration, Instant};

use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Key, Now};
use stratakv_bench::usage::Usage;
use stratakv_bench::value::key;
use stratakv_engine::Expect;
use stratakv_hash::{Hash, HashOptions};
use stratakv_pmem::{MapOptions, Mapping};

const HEADER_BYTES: usize = 32;

/// Of one store: of the region for each record, freshly loaded and after each was overwritten once
/// on average; operations for each second of processor.
struct Measured {
    loaded_bytes: f64,
    overwritten_bytes: f64,
    puts_per_cpu_s: f64,
    updates_per_cpu_s: f64,
    gets_per_cpu_s: f64,
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let records = std::env::args().nth(1).map_or(Ok(1_000_000), |records| records.parse::<u64>())?;
    println!("value B | 16 B | block B | region B a record | after updates | puts/cpu-s | updates/cpu-s | gets/cpu-s");
    for value_bytes in [8, 32, 64, 100, 128, 256, 1000, 1024] {
        for block_bytes in [32, 64] {
            let found = measure(records, value_bytes, block_bytes)?;
            let sixteen = (HEADER_BYTES + name(0)?.encoded().len() + value_bytes).next_multiple_of(16);
            println!(
                "{value_bytes} | {sixteen} | {block_bytes} | {:.0} | {:.0} | {:.0} K | {:.0} K | {:.0} K",
                found.loaded_bytes,
                found.overwritten_bytes,
                found.puts_per_cpu_s / 1e3,
                found.updates_per_cpu_s / 1e3,
                found.gets_per_cpu_s / 1e3,
            );
        }
    }
    Ok(())
}

fn name(record: u64) -> Outcome<Key> {
    Ok(Key::new(CollectionId(0), &key(record))?)
}

fn measure(records: u64, value_bytes: usize, block_bytes: u32) -> Outcome<Measured> {
    let region_bytes = (records * (value_bytes as u64 + 256) + (64 << 20)).next_multiple_of(1 << 20);
    let options = HashOptions { block_bytes, ..HashOptions::default() };
    let hash = Hash::create(Mapping::anonymous(region_bytes, MapOptions::default())?, options)?;
    let (value, mut random, wall) = (vec![7; value_bytes], Random::new(1), Now::default().wall);
    let put = |record: u64| -> Outcome<()> {
        hash.put(&name(record)?, &value, (0, stratakv_base::Expiry::NEVER), Expect::Any, wall)?;
        Ok(())
    };
    let taken = || {
        let report = hash.report();
        (report.used_bytes - report.free_bytes - report.retired_bytes) as f64 / records as f64
    };
    let puts = per_cpu_s(records, || (0..records).try_for_each(put))?;
    let loaded_bytes = taken();
    let updates = per_cpu_s(records, || (0..records).try_for_each(|_| put(random.below(records))))?;
    let overwritten_bytes = taken();
    let gets = per_cpu_s(records, || {
        (0..records).try_for_each(|_| match hash.get(&name(random.below(records))?, wall)? {
            Some(record) if record.value.len() == value_bytes as u64 => Ok(()),
            _ => Err("a record is not there".into()),
        })
    })?;
    Ok(Measured {
        loaded_bytes,
        overwritten_bytes,
        puts_per_cpu_s: puts,
        updates_per_cpu_s: updates,
        gets_per_cpu_s: gets,
    })
}

fn per_cpu_s(operations: u64, work: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let (before, started) = (Usage::now(), Instant::now());
    work()?;
    let cpu = Usage::now().since(before).cpu.max(Duration::from_micros(1)).min(started.elapsed());
    Ok(operations as f64 / cpu.as_secs_f64())
}
