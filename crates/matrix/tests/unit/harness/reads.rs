//! How much is read of the volume for pages of scans: counts, which are the same on any machine.

use std::ops::Bound;

use super::*;
use crate::output::{Output, Role};
use crate::volume::Extent;

fn scan(first: u64, items_max: u32, reverse: bool) -> Operation {
    let (from, to) =
        if reverse { (Bound::Unbounded, key(&name(first))) } else { (Bound::Included(key(&name(first))), key("z")) };
    let (keys_only, bytes_max, at) = (false, 1 << 20, None);
    Operation::Page(PageRequest { from, to: Bound::Excluded(to), reverse, keys_only, items_max, bytes_max, at }.into())
}

/// A page of a scan, and the requests that it took.
fn reads_of(harness: &mut Harness, operation: Operation) -> u64 {
    let before = harness.statistic("reads");
    match harness.ask(operation) {
        Reply::Page { items, .. } => assert!(!items.is_empty()),
        other => panic!("not a page: {other:?}"),
    }
    harness.statistic("reads") - before
}

/// Pages of indexes and of data were read in runs, which are not kept: each page of a scan read
/// each level's index again.
#[test]
fn a_short_scan_reads_nothing_again() {
    let config = MatrixConfig { table_bytes: 1 << 20, level_bytes: 1 << 20, ..config() };
    let mut harness = Harness::new(config, 512 << 10, UNIT_BYTES);
    harness.fill(0..12_000, 100);
    harness.run_until_idle();
    let (levels, tables) = (harness.statistic("levels"), harness.statistic("tables"));
    harness.close();
    harness.reopen();
    for reverse in [false, true] {
        let scans = (2000..10_000).step_by(500);
        let reads: u64 = scans.clone().map(|first| reads_of(&mut harness, scan(first, 200, reverse))).sum();
        // Of a page of a scan each level is a read, and of a table its index once. Some find more
        // in a level than its due, or end in the next table.
        let most = scans.count() as u64 * levels + tables;
        assert!(reads <= most, "{reads} reads, {levels} levels, {tables} tables, reverse: {reverse}");
        reads_of(&mut harness, scan(5000, 20, reverse));
        assert_eq!(reads_of(&mut harness, scan(5000, 20, reverse)), 0, "what was read for a short scan is kept");
    }
}

/// Each merge read the tables of the level again that the one before had written, and a get the
/// page that says where its value is.
#[test]
fn what_compactions_wrote_is_not_read_again() {
    let mut harness = Harness::new(config(), 512 << 10, UNIT_BYTES);
    harness.fill(0..16_000, 100);
    harness.run_until_idle();
    let columns = harness.statistic("columns_down");
    assert!(columns > 2, "{columns} columns");
    harness.assert_filled(0..16_000, 100);
    assert_eq!(harness.statistic("reads"), 0, "all of it fits into the memory");
}

/// Indexes and filters stay in the cache once they were read. Then a get reads a page of each level
/// that a filter lets through: of one, if the key is there, and seldom of any if it is not.
#[test]
fn a_get_reads_one_page_of_the_level_that_has_the_key() {
    let config = MatrixConfig { table_bytes: 256 << 10, ..config() };
    let mut harness = Harness::new(config, 512 << 10, UNIT_BYTES);
    harness.fill(0..16_000, 200);
    harness.run_until_idle();
    let levels = harness.statistic("levels");
    assert!(levels > 1, "{levels} levels");
    harness.close();
    harness.reopen();
    // Each table, of each level, is looked into.
    (0..16_000).step_by(100).for_each(|number| assert!(found(&harness.ask(get(&name(number)))).is_some()));
    let (mut reads, mut most, mut gets) = (0, 0, 0);
    for number in (50..16_000).step_by(100) {
        let before = harness.statistic("reads");
        assert!(found(&harness.ask(get(&name(number)))).is_some());
        let took = harness.statistic("reads") - before;
        (reads, most, gets) = (reads + took, most.max(took), gets + 1);
    }
    assert!(
        most <= levels && reads <= gets + gets / 20,
        "{reads} reads for {gets} gets, at most {most} of {levels} levels"
    );
    assert!(reads > gets / 2, "{reads} reads for {gets} gets: what was read for others says little");
    let before = harness.statistic("reads");
    (0..1000).for_each(|number| assert!(found(&harness.ask(get(&format!("{}x", name(number * 16))))).is_none()));
    let strangers = harness.statistic("reads") - before;
    assert!(strangers <= 1000 * levels / 20, "{strangers} reads for 1000 keys that are not there");
}

/// Pages of tables that were given up before anybody read them lie in the cache, and what is
/// written there later is not what they were.
#[test]
pub(super) fn pages_of_a_dropped_file_leave_the_cache() {
    let mut harness = Harness::new(config(), 512 << 10, UNIT_BYTES);
    let mut dropped = 0;
    for number in 0..3000 {
        harness.submit(write(vec![put(&name(number), value(number, 100 + (number as usize % 2) * 600))]));
        harness.tick();
        while harness.complete_where(None, |_| true) {}
        let of_job = |harness: &Harness| -> Vec<Extent> {
            let is_table = |output: &&Output| matches!(output.role(), Role::Table { .. });
            let outputs =
                harness.shard.compactor.job().into_iter().flat_map(|job| job.files.all_outputs().filter(is_table));
            outputs.flat_map(Output::taken).copied().collect()
        };
        let taken = of_job(&harness);
        if number % 3 != 0 && !taken.is_empty() {
            harness.shard.drop_job();
            let cache = harness.shard.memory.cache().borrow_mut();
            assert!(taken.iter().all(|extent| (extent.page..extent.end()).all(|page| cache.peek(page).is_none())));
            dropped += 1;
        }
    }
    assert!(dropped > 3, "{dropped} jobs were dropped");
    harness.run_until_idle();
    for number in 0..3000 {
        let reply = harness.ask(get(&name(number)));
        let expected = value(number, 100 + (number as usize % 2) * 600);
        assert_eq!(found(&reply).as_deref(), Some(&expected[..]), "key {number}: {reply:?}");
    }
    harness.assert_sound();
}

/// Who takes a value slice by slice gets all of it at once, as all of it is read: it was read again
/// for the rest. Of one that is longer than a slice and than was asked for nothing is read.
#[test]
fn a_long_value_is_read_once() {
    let mut harness = Harness::new(config(), 512 << 10, UNIT_BYTES);
    for (name, bytes) in [("long", 50_000), ("longer", 100_000)] {
        harness.ask(write(vec![put(name, value(1, bytes))]));
        harness.run_until_idle();
        let mut ask = |len| {
            let part = RecordPart::Sliced { hold: 0, start: 0, len };
            harness.ask(Operation::Get { key: key(name), part })
        };
        let mut reply = ask(16 << 10);
        assert_eq!(matches!(reply, Reply::Longer(_)), name == "longer", "{name}: {reply:?}");
        if let Reply::Longer(told) = reply {
            assert_eq!((name, told), ("longer", bytes as u64));
            reply = ask(told as u32);
        }
        let Reply::Record(Some(record)) = reply else { panic!("it is there: {reply:?}") };
        assert!(record.value.to_bytes() == value(1, bytes), "{name}");
    }
}

/// 64 gets of each of 100 clients that were gone took 18 s of an orderly end.
#[test]
fn nothing_more_is_read_for_those_who_have_left() {
    let mut harness = Harness::new(config(), 512 << 10, UNIT_BYTES);
    for number in 0..40 {
        harness.ask(write(vec![put(&name(number), value(number, 100_000))]));
    }
    harness.run_until_idle();
    harness.close();
    harness.reopen();
    let before = harness.statistic("reads");
    let tokens: Vec<u32> = (0..40).map(|number| harness.submit(get(&name(number)))).collect();
    harness.tick();
    let begun = harness.statistic("reads") - before;
    harness.effects.begin(harness.now);
    harness.shard.cancel(&|token| token.slot != tokens[0], &mut harness.effects);
    harness.take_effects();
    harness.run_until_idle();
    let answers: Vec<Reply> = tokens.iter().filter_map(|token| harness.replies.remove(token)).collect();
    assert_eq!(answers.len(), 40, "everybody is answered");
    assert_eq!(found(&answers[0]), Some(value(0, 100_000).to_vec()));
    let given_up =
        answers.iter().filter(|reply| matches!(reply, Reply::Failed(stratakv_engine::Error::Cancelled))).count();
    assert!(given_up >= 20, "{given_up} of 39 were given up");
    let reads = harness.statistic("reads") - before - begun;
    assert!(reads <= 12, "{reads} reads more, for one get that is still waited for");
}
