//! A log that scans have paid for is put in key order, and loses nothing on the way.

#[expect(dead_code, reason = "each test binary uses its part of the harness")]
mod harness;

use std::collections::BTreeMap;
use std::ops::Bound;

use harness::*;
use stratakv_base::random::Random;
use stratakv_base::{Expiry, Level};
use stratakv_engine::{Operation, PageRequest, Reply};
use stratakv_slab::Packed;

const MEMORY: u64 = 32 << 20;
const RECORDS: u64 = 24_000;
const BYTES: usize = 900;

type Model = BTreeMap<String, Vec<u8>>;

fn name(number: u64) -> String {
    format!("k{number:06}")
}

fn put(machine: &mut Machine<Packed>, model: &mut Model, puts: &[(u64, Vec<u8>)]) {
    for puts in puts.chunks(64) {
        let operation = |(number, value): &(u64, Vec<u8>)| {
            put_operation(name(*number).as_bytes(), value, Expiry::NEVER, Level::PowerLoss)
        };
        let waiting: Vec<u32> = puts.iter().map(|put| machine.submit(operation(put))).collect();
        for number in waiting {
            assert!(matches!(machine.wait(number), Reply::Done { .. }));
        }
        model.extend(puts.iter().map(|(number, value)| (name(*number), value.clone())));
    }
}

/// A shard with records in an order that no scan has, of which nothing is cached.
fn loaded(bytes: usize, records: u64, capacity: Option<u64>) -> (Machine<Packed>, Model) {
    let mut machine = Machine::create_as(7, 1 << 30, MEMORY, capacity);
    let mut random = Random::new(5);
    let mut keyed: Vec<(u64, u64)> = (0..records).map(|number| (random.next_u64(), number)).collect();
    keyed.sort_unstable();
    let puts: Vec<(u64, Vec<u8>)> =
        keyed.into_iter().map(|(_, number)| (number, vec![(number * 31) as u8; bytes])).collect();
    let mut model = Model::new();
    put(&mut machine, &mut model, &puts);
    reopen(&mut machine, capacity);
    (machine, model)
}

fn reopen(machine: &mut Machine<Packed>, capacity: Option<u64>) {
    machine.close();
    machine.recover(MEMORY, capacity).unwrap();
    machine.run_until_idle();
    machine.disk.reads = 0;
}

fn page_from(number: u64, items_max: u32) -> Operation {
    let from = Bound::Included(key(name(number).as_bytes()));
    let to = Bound::Unbounded;
    let request = PageRequest { from, to, reverse: false, keys_only: false, items_max, bytes_max: 8 << 20, at: None };
    Operation::Page(request.into())
}

#[track_caller]
fn check_page(reply: Reply, model: &Model, number: u64, items_max: usize) {
    let Reply::Page { items, .. } = reply else { panic!("{reply:?}") };
    let expected: Vec<(&String, &Vec<u8>)> = model.range(name(number)..).take(items_max).collect();
    assert_eq!(items.len(), expected.len());
    for (item, (name, value)) in items.iter().zip(expected) {
        assert!(item.key.user() == name.as_bytes());
        assert!(item.record.as_ref().unwrap().value.to_bytes() == *value, "{name}");
    }
}

/// Scans from keys anywhere, until so many passes have begun or this many scans were made.
fn scan_anywhere(machine: &mut Machine<Packed>, model: &Model, random: &mut Random, scans: u64, sorts: u64) {
    for _ in 0..scans {
        if statistic(machine, "sorts") >= sorts {
            return;
        }
        let number = random.below(RECORDS - 100);
        let reply = machine.run(page_from(number, 25));
        check_page(reply, model, number, 25);
    }
}

fn statistic(machine: &Machine<Packed>, name: &str) -> u64 {
    let mut all = Vec::new();
    stratakv_engine::Shard::statistics(&machine.slab, &mut all);
    all.iter().filter(|statistic| statistic.name == name).map(|statistic| statistic.value).sum()
}

#[track_caller]
fn check_all(machine: &mut Machine<Packed>, model: &Model) {
    let report = machine.slab.check();
    assert!(report.is_sound(), "{report:#?}");
    assert_eq!(statistic(machine, "records"), model.len() as u64);
    for (name, value) in model {
        assert!(machine.get(name.as_bytes()).unwrap().as_ref() == Some(value), "{name}");
    }
}

/// Reads of 40 scans of 25 records anywhere.
fn reads_of_scans(machine: &mut Machine<Packed>, model: &Model) -> u64 {
    let (before, mut random) = (machine.disk.reads, Random::new(11));
    for _ in 0..40 {
        let number = random.below(RECORDS - 100);
        let reply = machine.run(page_from(number, 25));
        check_page(reply, model, number, 25);
    }
    machine.disk.reads - before
}

#[test]
fn scans_put_a_log_in_order_and_a_crash_finds_it_whole() {
    let (mut machine, model) = loaded(BYTES, RECORDS, None);
    let mut random = Random::new(3);
    scan_anywhere(&mut machine, &model, &mut random, 2_000, 1);
    assert_eq!(statistic(&machine, "sorts"), 1);
    // A pass goes on by itself, also between requests.
    (0..5_000).for_each(|_| machine.tick(64));
    // Each record twice, but for those that lay in segments that were not sealed.
    let sorted = statistic(&machine, "sorted_bytes");
    let data = RECORDS * BYTES as u64;
    assert!(sorted > data * 3 / 2 && sorted < data * 5 / 2, "{sorted} of {data}");
    machine.disk.lose_all_unflushed();
    machine.recover(MEMORY, None).unwrap();
    machine.run_until_idle();
    let reads = reads_of_scans(&mut machine, &model);
    assert!(reads < 40 * 5, "{reads} reads for 40 scans of a log in order");
    check_all(&mut machine, &model);
    // What is in order is left alone.
    scan_anywhere(&mut machine, &model, &mut random, 500, 1);
    assert_eq!(statistic(&machine, "sorts"), 0);
}

/// The first half of the keys is in memory, so the merge has its pages as soon as it asks for them.
/// The second half is scanned.
#[test]
fn a_merge_of_cached_records_ends() {
    let (mut machine, model) = loaded(BYTES, RECORDS, None);
    machine.close();
    machine.recover(4 * MEMORY, None).unwrap();
    machine.run_until_idle();
    for number in 0..RECORDS / 2 {
        assert!(machine.get(name(number).as_bytes()).unwrap().is_some());
    }
    let mut random = Random::new(3);
    while statistic(&machine, "sorts") == 0 {
        let number = RECORDS / 2 + random.below(RECORDS / 2 - 100);
        let reply = machine.run(page_from(number, 25));
        check_page(reply, &model, number, 25);
    }
    (0..5_000).for_each(|_| machine.tick(64));
    let (sorted, data) = (statistic(&machine, "sorted_bytes"), RECORDS * BYTES as u64);
    assert!(sorted > data * 3 / 2, "{sorted} of {data}");
    check_all(&mut machine, &model);
}

/// Power cuts in either pass, with writes and deletes under way.
#[test]
fn a_power_cut_in_any_pass_loses_nothing() {
    let mut stages = [0, 0];
    for cut in 0..12 {
        let (mut machine, mut model) = loaded(BYTES, RECORDS, None);
        let mut random = Random::new(100 + cut);
        scan_anywhere(&mut machine, &model, &mut random, 2_000, 1);
        assert_eq!(statistic(&machine, "sorts"), 1);
        let before = statistic(&machine, "sorted_bytes");
        let until = before + cut * 4 * (RECORDS * BYTES as u64) / 25;
        let mut value = 0;
        while statistic(&machine, "sorted_bytes") < until {
            let number = random.below(RECORDS);
            if random.below(8) == 0 {
                machine.run(delete_operation(name(number).as_bytes(), Level::PowerLoss));
                model.remove(&name(number));
            } else {
                value += 1;
                put(&mut machine, &mut model, &[(number, vec![value as u8; BYTES])]);
            }
            // Writes must not prevail.
            for _ in 0..2 {
                let number = random.below(RECORDS - 100);
                let reply = machine.run(page_from(number, 25));
                check_page(reply, &model, number, 25);
            }
        }
        let sorted = statistic(&machine, "sorted_bytes");
        stages[usize::from(sorted > RECORDS * BYTES as u64)] += 1;
        machine.disk.lose_all_unflushed();
        machine.recover(MEMORY, None).unwrap();
        machine.run_until_idle();
        check_all(&mut machine, &model);
    }
    assert!(stages.iter().all(|cuts| *cuts >= 3), "cuts in the first and second pass: {stages:?}");
}

/// Segments whose reads fail stay as they are; the failures are counted.
#[test]
fn reads_that_fail_in_a_pass_are_counted_and_lose_nothing() {
    let (mut machine, model) = loaded(BYTES, RECORDS, None);
    let mut random = Random::new(3);
    scan_anywhere(&mut machine, &model, &mut random, 2_000, 1);
    assert_eq!(statistic(&machine, "segment_read_errors"), 0);
    while statistic(&machine, "sort_read_bytes") == 0 {
        machine.tick(64);
    }
    machine.disk.fail_reads = 3;
    (0..5_000).for_each(|_| machine.tick(64));
    assert_eq!(statistic(&machine, "segment_read_errors"), 3);
    assert!(statistic(&machine, "sorted_bytes") > 0);
    check_all(&mut machine, &model);
}

/// A read each is what they take wherever they lie.
#[test]
fn long_records_are_left_where_they_are() {
    let (mut machine, model) = loaded(5_000, 4_000, None);
    let mut random = Random::new(3);
    for _ in 0..600 {
        let number = random.below(3_900);
        let reply = machine.run(page_from(number, 25));
        check_page(reply, &model, number, 25);
    }
    assert_eq!(statistic(&machine, "sorts"), 0);
}

/// The log takes 70 of 100 bytes there are: a pass finds its room, and leaves room for writes.
#[test]
fn a_full_volume_is_put_in_order_too() {
    let capacity = Some(32 << 20);
    let (mut machine, mut model) = loaded(BYTES, RECORDS, capacity);
    let mut random = Random::new(3);
    let overwritten: Vec<(u64, Vec<u8>)> =
        (0..RECORDS / 2).map(|number| (random.below(RECORDS), vec![number as u8; BYTES])).collect();
    put(&mut machine, &mut model, &overwritten);
    reopen(&mut machine, capacity);
    let before = reads_of_scans(&mut machine, &model);
    scan_anywhere(&mut machine, &model, &mut random, 4_000, 1);
    assert_eq!(statistic(&machine, "sorts"), 1);
    for _ in 0..400 {
        let number = random.below(RECORDS - 100);
        let reply = machine.run(page_from(number, 25));
        check_page(reply, &model, number, 25);
    }
    machine.run_until_idle();
    reopen(&mut machine, capacity);
    let after = reads_of_scans(&mut machine, &model);
    assert!(after * 3 < before, "{before} reads before, {after} after");
    put(&mut machine, &mut model, &overwritten);
    assert_eq!(statistic(&machine, "full_refusals"), 0);
    machine.disk.lose_all_unflushed();
    machine.recover(MEMORY, capacity).unwrap();
    machine.run_until_idle();
    check_all(&mut machine, &model);
}
