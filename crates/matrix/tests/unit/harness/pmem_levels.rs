//! PMEM levels: tables in the region.

use std::collections::BTreeMap;
use std::ops::Bound;

use stratakv_base::random::Random;
use stratakv_engine::{Error, SnapshotOp};

use super::*;
use crate::volume::PMEM_LEVELS_FIRST;

pub(super) const REGION_BYTES: usize = 512 << 10;

/// A store of which the container has half a MiB, and the PMEM levels so much behind it.
pub(super) fn with_pmem_levels(pmem_levels_bytes: u64) -> Harness {
    let lengths = MatrixConfig { table_bytes: 16 << 10, level_bytes: 32 << 10, ..config() };
    Harness::new(MatrixConfig { pmem_levels_bytes, ..lengths }, REGION_BYTES + pmem_levels_bytes as usize, UNIT_BYTES)
}

/// Power is cut, and the store is opened again.
pub(super) fn cut(harness: &mut Harness) {
    harness.region.memory.cut();
    harness.reopen();
}

/// All records, in order, page by page.
pub(super) fn scan(harness: &mut Harness, reverse: bool, at: Option<u64>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut records, mut next) = (Vec::new(), None);
    loop {
        let mut operation = page(500, at);
        if let Operation::Page(request) = &mut operation {
            request.reverse = reverse;
            if let Some(bound) = next.take() {
                *(if reverse { &mut request.to } else { &mut request.from }) = bound;
            }
        }
        let reply = harness.ask(operation);
        let Reply::Page { items, next: more } = reply else { panic!("not a page: {reply:?}") };
        for item in items {
            let value = item.record.expect("with values").value.slices().flatten().copied().collect();
            records.push((item.key.user().to_vec(), value));
        }
        next = more;
        if next.is_none() {
            return records;
        }
    }
}

/// Puts, deletes, also of ranges, and values that lie apart, at random, beside a model.
pub(super) fn churn(harness: &mut Harness, model: &mut BTreeMap<String, Bytes>, seed: u64, writes: u64) {
    let mut random = Random::new(seed);
    for _ in 0..writes {
        let number = random.below(2500);
        if random.below(250) == 0 {
            let (from, to) = (name(number), name(number + 20));
            let (first, last) = (Bound::Included(key(&from)), Bound::Excluded(key(&to)));
            let reply = harness.ask(Operation::DeleteRange { range: Box::new((first, last)), level: Level::PowerLoss });
            assert!(matches!(reply, Reply::Number { .. }), "{reply:?}");
            model.retain(|key, _| *key < from || *key >= to);
        }
        let name = name(number);
        let change = match random.below(10) {
            0 => {
                model.remove(&name);
                delete(&name)
            }
            kind => {
                let value = value(random.next_u64(), if kind == 1 { 900 } else { 150 });
                model.insert(name.clone(), value.clone());
                put(&name, value)
            }
        };
        let reply = harness.ask(write(vec![change]));
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    }
}

/// Every key, and all of them in order both ways.
pub(super) fn assert_is(harness: &mut Harness, model: &BTreeMap<String, Bytes>, at: Option<u64>) {
    if at.is_none() {
        for number in 0..2500 {
            let found = found(&harness.ask(get(&name(number))));
            assert_eq!(found.as_deref(), model.get(&name(number)).map(|value| &value[..]), "key {number}");
        }
    }
    let expected: Vec<(Vec<u8>, Vec<u8>)> =
        model.iter().map(|(key, value)| (key.clone().into_bytes(), value.to_vec())).collect();
    for reverse in [false, true] {
        let mut found = scan(harness, reverse, at);
        if reverse {
            found.reverse();
        }
        assert!(found == expected, "{} records, {} expected", found.len(), expected.len());
    }
    harness.assert_sound();
}

/// L0, PMEM levels, and levels on the volume: what goes down through all of them is read, merged,
/// kept for a snapshot, and found again after cuts.
#[test]
fn what_goes_through_the_pmem_levels_is_read_merged_and_recovered() {
    let (mut harness, mut model) = (with_pmem_levels(128 << 10), BTreeMap::new());
    churn(&mut harness, &mut model, 1, 5000);
    harness.run_until_idle();
    assert_is(&mut harness, &model, None);
    let [in_pmem_levels, into_pmem_levels, below] =
        ["pmem_levels_table_bytes", "pmem_levels_write_bytes", "level_2_write_bytes"]
            .map(|name| harness.statistic(name));
    assert!(
        in_pmem_levels > 0 && in_pmem_levels <= 128 << 10 && into_pmem_levels > in_pmem_levels && below > 0,
        "{in_pmem_levels} {into_pmem_levels} {below}"
    );
    assert_eq!(harness.statistic("pmem_levels"), 1);
    let Reply::Number { number: id, .. } = harness.ask(Operation::Snapshot(SnapshotOp::Open)) else { panic!("none") };
    let then = model.clone();
    churn(&mut harness, &mut model, 2, 3000);
    assert_is(&mut harness, &then, Some(id));
    assert_is(&mut harness, &model, None);
    harness.ask(Operation::Snapshot(SnapshotOp::Close(id)));
    for seed in 3..6 {
        churn(&mut harness, &mut model, seed, 700);
        cut(&mut harness);
        assert_is(&mut harness, &model, None);
    }
    harness.close();
    cut(&mut harness);
    assert_is(&mut harness, &model, None);
}

/// Of one length, with and without: what lies in the PMEM levels is not written to the volume.
#[test]
fn pmem_levels_spare_the_volume() {
    let written = [0, 512 << 10].map(|pmem_levels_bytes| {
        let (mut harness, mut model) = (with_pmem_levels(pmem_levels_bytes), BTreeMap::new());
        churn(&mut harness, &mut model, 1, 6000);
        harness.run_until_idle();
        harness.statistic("write_bytes") + harness.statistic("manifest_write_bytes")
    });
    assert!(written[1] < written[0] * 3 / 4, "{written:?}");
}

/// The process ends at any moment while a compaction is installed: whatever the manifest that
/// counts names is there.
#[test]
pub(super) fn tables_of_the_pmem_levels_are_durable_before_a_manifest_names_them() {
    let (mut harness, mut model) = (with_pmem_levels(128 << 10), BTreeMap::new());
    churn(&mut harness, &mut model, 1, 2000);
    for round in 0..30 {
        churn(&mut harness, &mut model, 10 + round, 150);
        for _ in 0..round {
            if !harness.complete_where(None, |_| true) {
                harness.tick();
            }
        }
        cut(&mut harness);
        assert_is(&mut harness, &model, None);
    }
}

/// PMEM levels with hardly room for a table: what does not fit goes to the volume.
#[test]
fn tables_that_find_no_room_in_the_pmem_levels_go_to_the_volume() {
    let (mut harness, mut model) = (with_pmem_levels(20 << 10), BTreeMap::new());
    churn(&mut harness, &mut model, 1, 4000);
    harness.run_until_idle();
    assert!(harness.statistic("level_1_write_bytes") > harness.statistic("pmem_levels_write_bytes"));
    assert_is(&mut harness, &model, None);
    cut(&mut harness);
    assert_is(&mut harness, &model, None);
}

/// What the PMEM levels hold goes down to the volume: a volume that was full by what it had itself
/// refused deletes.
#[test]
pub(super) fn a_full_volume_with_pmem_levels_recovers_after_deletes() {
    for (bytes, pmem_levels_bytes) in [(100, 256 << 10), (400, 256 << 10), (400, 40 << 10), (1000, 128 << 10)] {
        let lengths = MatrixConfig { table_bytes: 16 << 10, level_bytes: 64 << 10, ..config() };
        let config = MatrixConfig { capacity_bytes: Some(4 << 20), pmem_levels_bytes, ..lengths };
        let mut harness = Harness::new(config, REGION_BYTES + pmem_levels_bytes as usize, UNIT_BYTES);
        let held = space::fill_up(&mut harness, bytes);
        assert!(held * bytes as u64 > 1_200_000, "only {held} values of {bytes} bytes");
        harness.assert_filled(0..held, bytes);
        for number in 0..held * 3 / 4 {
            let reply = harness.ask(write(vec![delete(&name(number))]));
            assert!(matches!(reply, Reply::Done { .. }), "key {number} of {held}: {reply:?}");
        }
        harness.fill(0..held / 2, bytes);
        harness.run_until_idle();
        harness.assert_filled(0..held / 2, bytes);
        harness.assert_filled(held * 3 / 4..held, bytes);
        harness.assert_sound();
    }
}

/// The region is another one: nothing is opened that lacks tables.
#[test]
fn a_region_without_the_pmem_levels_is_refused() {
    let (mut harness, mut model) = (with_pmem_levels(128 << 10), BTreeMap::new());
    churn(&mut harness, &mut model, 1, 3000);
    harness.run_until_idle();
    harness.close();
    let other = with_pmem_levels(4096);
    harness.region = other.region;
    let error = harness.reopen_after(u32::MAX).unwrap_err();
    assert!(matches!(&error, Error::WrongVolume(why) if why.contains("the region is older")), "{error:?}");
}

/// A bit of the PMEM levels flips: the report says where, and nothing wrong is read.
#[test]
fn damage_in_the_pmem_levels_is_told() {
    let (mut harness, mut model) = (with_pmem_levels(128 << 10), BTreeMap::new());
    churn(&mut harness, &mut model, 1, 3000);
    harness.run_until_idle();
    let table =
        harness.shard.levels.level(0).iter().find(|table| table.extents[0].in_pmem_levels()).expect("a table").clone();
    let offset = REGION_BYTES as u64 + (table.extents[0].page - PMEM_LEVELS_FIRST) * 4096 + 100;
    let mut byte = [0];
    harness.region.memory.load(offset, &mut byte).unwrap();
    harness.region.memory.store(offset, &[byte[0] ^ 4]).unwrap();
    harness.region.memory.persist(offset, 1).unwrap();
    harness.reopen();
    let mut told = 0;
    for number in 0..2500 {
        match harness.ask(get(&name(number))) {
            Reply::Failed(Error::Corrupt(corruption)) => {
                assert_eq!(corruption.place.offset_bytes / 4096, offset / 4096);
                assert!(corruption.found.contains("PMEM levels"), "{corruption}");
                told += 1;
            }
            reply => assert_eq!(found(&reply).as_deref(), model.get(&name(number)).map(|value| &value[..])),
        }
    }
    assert!(told > 0);
}

/// The memory fails when what was stored in the PMEM levels is made durable: the manifest that
/// would name it never counts.
#[test]
fn a_fence_that_fails_installs_nothing() {
    let (mut harness, mut model) = (with_pmem_levels(128 << 10), BTreeMap::new());
    churn(&mut harness, &mut model, 1, 3000);
    harness.run_until_idle();
    let installs = harness.shard.installer.superblock().number;
    // Enough for a job, without ticks that end with a fence of the log.
    harness.go_on_until(|harness| {
        !harness.shard.installer.is_idle()
            || harness.shard.compactor.job().is_none() && harness.in_flight.is_empty() && !harness.more
    });
    while harness.shard.installer.is_idle() {
        churn(&mut harness, &mut model, 7, 1);
        harness.tick();
    }
    harness.fail_fences_after(0);
    while harness.complete_where(None, |_| true) {}
    harness.tick();
    assert!(harness.shard.life.region_failure().is_some());
    assert!(harness.shard.installer.superblock().number >= installs);
    harness.fail_fences_after(i64::MAX);
    cut(&mut harness);
    assert_is(&mut harness, &model, None);
}
