//! One kind of operation of engine `hash`, alone, for counters: how many microseconds of processor
//! an operation takes, and under callgrind, with `--toggle-collect='*measured*'`, its instructions.
//!
//! `cargo run --release -p stratakv-bench --example phases -- PHASE DIRECTORY [RECORDS [ROUNDS]]`.
//! DIRECTORY is made and removed. Values have 128 bytes, keys 8.
#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use std::fs;
use std::path::Path;

use stratakv::{Collection, Engine, Level, List, Options, ScanOptions, Store};
use stratakv_base::random::Random;
use stratakv_bench::distribution::fnv1a;
use stratakv_bench::usage::Usage;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const PHASES: &str = "PHASE is one of fill, get, mixed (90 % gets), update, sorted_put, sorted_get, scan, push, pop";
const VALUE: [u8; 128] = [7; 128];

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [phase, directory, rest @ ..] = &arguments[..] else { return Err(PHASES.into()) };
    let records = rest.first().map_or(Ok(1_000_000), |records| records.parse::<u64>())?;
    let rounds = rest.get(1).map_or(Ok(1), |rounds| rounds.parse::<usize>())?;
    let mut each = Vec::new();
    for _ in 0..rounds {
        fs::create_dir(directory)?;
        let measured = run(phase, Path::new(directory), records);
        fs::remove_dir_all(directory)?;
        each.push(measured?);
    }
    each.sort_unstable_by(f64::total_cmp);
    println!("{phase} {:.4} us of processor an operation, {records} records", each[each.len() / 2]);
    Ok(())
}

/// Microseconds of processor of an operation.
fn run(phase: &str, directory: &Path, records: u64) -> Outcome<f64> {
    let options = Options::new().create_new(true).level(Level::ProcessCrash).engine(Engine::Hash);
    let store = options.region_bytes((records * 400 + (64 << 20)).next_multiple_of(1 << 20)).open(directory)?;
    let us = prepared(phase, &store, records);
    store.close()?;
    us
}

fn prepared(phase: &str, store: &Store, records: u64) -> Outcome<f64> {
    let timed = |what: &mut dyn FnMut() -> Outcome<u64>| {
        let before = Usage::now();
        let operations = measured(what)?;
        Ok(Usage::now().since(before).cpu.as_secs_f64() * 1e6 / operations as f64)
    };
    let list = || -> Outcome<List> { Ok(store.list("list")?) };
    let sorted = || -> Outcome<Collection> { Ok(store.collection("sorted")?) };
    match phase {
        "fill" => timed(&mut || fill(store, records)),
        "get" | "mixed" | "update" => {
            fill(store, records)?;
            let reads = if phase == "get" { 100 } else { 0 };
            timed(&mut || mixed(store, records, if phase == "mixed" { 90 } else { reads }))
        }
        "sorted_put" => sorted().and_then(|sorted| timed(&mut || fill(&sorted, records))),
        "sorted_get" => {
            let sorted = sorted()?;
            fill(&sorted, records)?;
            timed(&mut || mixed(&sorted, records, 100))
        }
        "scan" => {
            let sorted = sorted()?;
            fill(&sorted, records)?;
            timed(&mut || scan(&sorted))
        }
        "push" => list().and_then(|list| timed(&mut || push(&list, records))),
        "pop" => {
            let list = list()?;
            push(&list, records)?;
            timed(&mut || pop(&list))
        }
        _ => Err(PHASES.into()),
    }
}

/// What callgrind collects.
#[inline(never)]
fn measured(what: &mut dyn FnMut() -> Outcome<u64>) -> Outcome<u64> {
    what()
}

fn key(record: u64) -> [u8; 8] {
    fnv1a(record).to_be_bytes()
}

fn fill(to: &Collection, records: u64) -> Outcome<u64> {
    for record in 0..records {
        to.put(key(record), VALUE)?;
    }
    Ok(records)
}

fn mixed(on: &Collection, records: u64, reads_percent: u64) -> Outcome<u64> {
    let mut random = Random::new(31);
    for _ in 0..records {
        let key = key(random.below(records));
        if random.below(100) >= reads_percent {
            on.put(key, VALUE)?;
        } else if on.get(key)?.is_none_or(|record| record.len() != VALUE.len()) {
            return Err("a record is not what was put".into());
        }
    }
    Ok(records)
}

fn scan(on: &Collection) -> Outcome<u64> {
    let mut count = 0;
    for item in on.scan(ScanOptions::all()) {
        count += u64::from(item?.1.len() == VALUE.len());
    }
    Ok(count)
}

fn push(to: &List, elements: u64) -> Outcome<u64> {
    for _ in 0..elements {
        to.push_back(VALUE)?;
    }
    Ok(elements)
}

fn pop(from: &List) -> Outcome<u64> {
    let mut count = 0;
    while from.pop_front()?.is_some() {
        count += 1;
    }
    Ok(count)
}
