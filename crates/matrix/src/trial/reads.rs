//! How much is read of the volume for pages of scans: counts, which are the same on any machine.

use std::ops::Bound;

use super::*;

fn scan(first: u64, items_max: u32, reverse: bool) -> Operation {
    let (from, to) =
        if reverse { (Bound::Unbounded, key(&name(first))) } else { (Bound::Included(key(&name(first))), key("z")) };
    let (keys_only, bytes_max, at) = (false, 1 << 20, None);
    Operation::Page(PageRequest { from, to: Bound::Excluded(to), reverse, keys_only, items_max, bytes_max, at }.into())
}

/// A page of a scan, and the requests that it took.
fn reads_of(trial: &mut Trial, operation: Operation) -> u64 {
    let before = trial.statistic("reads");
    match trial.ask(operation) {
        Reply::Page { items, .. } => assert!(!items.is_empty()),
        other => panic!("not a page: {other:?}"),
    }
    trial.statistic("reads") - before
}

/// Pages of indexes and of data were read in runs, which are not kept: each page of a scan read each level's index again.
#[test]
fn a_short_scan_reads_nothing_again() {
    let config = MatrixConfig { table_bytes: 1 << 20, level_bytes: 1 << 20, ..config() };
    let mut trial = Trial::new(config, 512 << 10, UNIT_BYTES);
    trial.fill(0..12_000, 100);
    trial.settle();
    let (levels, tables) = (trial.statistic("levels"), trial.statistic("tables"));
    trial.close();
    trial.reopen();
    for reverse in [false, true] {
        let scans = (2000..10_000).step_by(500);
        let reads: u64 = scans.clone().map(|first| reads_of(&mut trial, scan(first, 200, reverse))).sum();
        // Of a page of a scan each level is a read, and of a table its index once. Some find more in a level than its due, or end in the next table.
        let most = scans.count() as u64 * levels + tables;
        assert!(reads <= most, "{reads} reads, {levels} levels, {tables} tables, reverse: {reverse}");
        reads_of(&mut trial, scan(5000, 20, reverse));
        assert_eq!(reads_of(&mut trial, scan(5000, 20, reverse)), 0, "what was read for a short scan is kept");
    }
}

/// Indexes and filters stay in the cache once they were read. Then a get reads a page of each level that a filter lets through: of one, if the key is there, and seldom of any if it is not.
#[test]
fn a_get_reads_one_page_of_the_level_that_has_the_key() {
    let config = MatrixConfig { table_bytes: 256 << 10, ..config() };
    let mut trial = Trial::new(config, 512 << 10, UNIT_BYTES);
    trial.fill(0..16_000, 200);
    trial.settle();
    let levels = trial.statistic("levels");
    assert!(levels > 1, "{levels} levels");
    trial.close();
    trial.reopen();
    // Each table, of each level, is looked into.
    (0..16_000).step_by(100).for_each(|number| assert!(found(&trial.ask(get(&name(number)))).is_some()));
    let (mut reads, mut most, mut gets) = (0, 0, 0);
    for number in (50..16_000).step_by(100) {
        let before = trial.statistic("reads");
        assert!(found(&trial.ask(get(&name(number)))).is_some());
        let took = trial.statistic("reads") - before;
        (reads, most, gets) = (reads + took, most.max(took), gets + 1);
    }
    assert!(
        most <= levels && reads <= gets + gets / 20,
        "{reads} reads for {gets} gets, at most {most} of {levels} levels"
    );
    assert!(reads > gets / 2, "{reads} reads for {gets} gets: what was read for others says little");
    let before = trial.statistic("reads");
    (0..1000).for_each(|number| assert!(found(&trial.ask(get(&format!("{}x", name(number * 16))))).is_none()));
    let strangers = trial.statistic("reads") - before;
    assert!(strangers <= 1000 * levels / 20, "{strangers} reads for 1000 keys that are not there");
}
