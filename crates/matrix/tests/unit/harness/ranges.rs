//! Deletes of ranges.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use stratakv_base::random::Random;
use stratakv_engine::SnapshotOp;

use super::pmem_levels::{assert_is, churn, cut};
use super::*;

fn range(keys: Range<u64>) -> Operation {
    let (from, to) = (Bound::Included(key(&name(keys.start))), Bound::Excluded(key(&name(keys.end))));
    Operation::DeleteRange { range: Box::new((from, to)), level: Level::PowerLoss }
}

fn deleted(harness: &mut Harness, keys: Range<u64>) -> u64 {
    match harness.ask(range(keys)) {
        Reply::Number { number, .. } => number,
        other => panic!("{other:?}"),
    }
}

fn harness() -> Harness {
    let lengths = MatrixConfig { table_bytes: 16 << 10, level_bytes: 64 << 10, ..config() };
    Harness::new(lengths, 512 << 10, UNIT_BYTES)
}

fn assert_gone(harness: &mut Harness, keys: Range<u64>) {
    for number in keys {
        assert_eq!(found(&harness.ask(get(&name(number)))), None, "key {number}");
    }
}

/// What deletes it is as long for a thousand keys as for a hundred; what it hides whole goes
/// unread, and comes back in no way.
#[test]
pub(super) fn a_range_is_deleted_with_one_record() {
    let mut harness = harness();
    harness.fill(0..6000, 150);
    harness.fill(0..3000, 600);
    let before = harness.statistic("user_bytes");
    assert_eq!(deleted(&mut harness, 1000..5000), 4000);
    assert!(harness.statistic("user_bytes") - before < 64, "one record");
    assert_gone(&mut harness, 1000..5000);
    harness.fill(2000..2100, 150);
    harness.run_until_idle();
    let dropped = harness.statistic("tables_dropped_whole");
    assert!(dropped > 10, "{dropped} tables dropped");
    cut(&mut harness);
    for _ in 0..3 {
        assert_gone(&mut harness, 1000..2000);
        harness.assert_filled(2000..2100, 150);
        assert_gone(&mut harness, 2100..5000);
        harness.assert_filled(5000..6000, 150);
        harness.assert_filled(0..1000, 600);
        harness.assert_sound();
        harness.fill(2000..2100, 150);
        harness.fill(5000..6000, 150);
    }
    assert_eq!(deleted(&mut harness, 1000..5000), 100);
    assert_eq!(deleted(&mut harness, 1000..5000), 0);
}

/// The log that has it goes, and what it hides is still there.
#[test]
pub(super) fn a_range_outlives_its_log() {
    let mut harness = harness();
    harness.fill(0..3000, 150);
    // Some tables lie across both ends.
    assert_eq!(deleted(&mut harness, 705..1395), 690);
    harness.fill(5000..7000, 150);
    harness.run_until_idle();
    for _ in 0..2 {
        assert_gone(&mut harness, 705..1395);
        cut(&mut harness);
    }
    harness.assert_filled(0..705, 150);
    harness.assert_filled(1395..3000, 150);
    harness.assert_sound();
    // In the end nothing is left that it could hide.
    for round in 0..20 {
        harness.fill(5000..7000, 100 + round);
        harness.run_until_idle();
        if harness.statistic("range_deletes_in_force") == 0 {
            return cut_without_range(&mut harness);
        }
    }
    panic!("it is never forgotten");
}

fn cut_without_range(harness: &mut Harness) {
    cut(harness);
    assert_gone(harness, 705..1395);
    harness.fill(705..1395, 150);
    harness.assert_filled(0..3000, 150);
}

/// A store that has room for all in its region.
fn in_region() -> Harness {
    Harness::new(config(), 2 << 20, UNIT_BYTES)
}

/// Its log became a row, which has no ranges, before a manifest had it.
#[test]
pub(super) fn a_range_outlives_a_log_that_no_manifest_has_seen() {
    let mut harness = in_region();
    harness.fill(0..1000, 150);
    assert_eq!(deleted(&mut harness, 100..900), 800);
    harness.fill(2000..2400, 150);
    harness.run_until_idle();
    assert_eq!(harness.statistic("columns_down"), 0);
    cut(&mut harness);
    assert_gone(&mut harness, 100..900);
    harness.assert_filled(0..100, 150);
    harness.assert_sound();
}

/// Few keys, and too long for one batch in a small container: it was refused.
#[test]
fn few_keys_that_make_no_batch_are_deleted_with_their_range() {
    let mut harness = Harness::new(config(), 72 << 10, UNIT_BYTES);
    let long = |number: u64| format!("{}{}", name(number), "k".repeat(3800));
    for number in 0..14 {
        let reply = harness.ask(write(vec![put(&long(number), value(number, 10))]));
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    }
    assert_eq!(deleted(&mut harness, 0..13), 13);
    for number in 0..14 {
        let found = found(&harness.ask(get(&long(number))));
        assert_eq!(found.is_some(), number == 13, "{number}");
    }
}

/// A memtable that has nothing but deletes of ranges makes no row.
#[test]
fn a_log_of_ranges_alone_is_freed() {
    let mut harness = in_region();
    harness.fill(0..1000, 150);
    harness.shard.container.seal(&[]).unwrap();
    harness.run_until_idle();
    for from in 0..20 {
        assert_eq!(deleted(&mut harness, from * 50..from * 50 + 40), 40);
    }
    harness.shard.container.seal(&[]).unwrap();
    harness.fill(2000..2001, 150);
    harness.run_until_idle();
    assert_eq!(harness.shard.container.statistics().memtables, 1);
    for _ in 0..2 {
        cut(&mut harness);
        for from in 0..20 {
            assert_gone(&mut harness, from * 50..from * 50 + 40);
            harness.assert_filled(from * 50 + 40..from * 50 + 50, 150);
        }
        harness.assert_sound();
    }
}

/// Beside a model: with snapshots and cuts, over ranges that lie across each other, and one key at
/// a time in them.
#[test]
fn ranges_at_random_hide_what_a_model_deletes() {
    for seed in 0..4 {
        let (mut harness, mut model, mut random) = (harness(), BTreeMap::new(), Random::new(seed));
        churn(&mut harness, &mut model, seed, 4000);
        for _ in 0..12 {
            let then = model.clone();
            let Reply::Number { number: id, .. } = harness.ask(Operation::Snapshot(SnapshotOp::Open)) else {
                panic!("none")
            };
            for _ in 0..random.below(4) {
                let from = random.below(2400);
                let to = from + 1 + random.below(900);
                let before = model.len() as u64;
                model.retain(|key, _| *key < name(from) || *key >= name(to));
                assert_eq!(deleted(&mut harness, from..to), before - model.len() as u64);
                churn(&mut harness, &mut model, random.next_u64(), random.below(400));
            }
            assert_is(&mut harness, &then, Some(id));
            match random.below(3) {
                0 => cut(&mut harness),
                _ => drop(harness.ask(Operation::Snapshot(SnapshotOp::Close(id)))),
            }
            assert_is(&mut harness, &model, None);
        }
    }
}
