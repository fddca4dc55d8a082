//! Loads: straight to the lowest level or not at all.

use std::collections::BTreeMap;
use std::ops::Range;

use stratakv_base::random::Random;
use stratakv_device::DiskRequest;
use stratakv_engine::{Error, LoadRecord, SnapshotOp, Unmet};

use super::*;

fn small() -> Harness {
    Harness::new(config(), 512 << 10, UNIT_BYTES)
}

/// Records as [`Harness::fill`] puts them.
fn records(keys: Range<u64>, bytes: usize) -> Vec<LoadRecord> {
    let record =
        |number| LoadRecord { key: key(&name(number)), value: value(number, bytes), flags: 0, expiry: Expiry::NEVER };
    keys.map(record).collect()
}

fn load(records: Vec<LoadRecord>) -> Operation {
    Operation::Load { records: records.into(), level: Level::PowerLoss }
}

#[track_caller]
fn loaded(reply: &Reply) -> u64 {
    match reply {
        Reply::Done { version, existed: false } => *version,
        other => panic!("it is not loaded: {other:?}"),
    }
}

#[track_caller]
fn occupied(reply: &Reply) {
    assert!(matches!(reply, Reply::Unmet(Unmet::Occupied)), "{reply:?}");
}

fn is_absent(harness: &mut Harness, keys: Range<u64>) -> bool {
    keys.into_iter().all(|number| found(&harness.ask(get(&name(number)))).is_none())
}

/// Within each level tables are in order, and no two hold the same key.
fn assert_blob(harness: &Harness) {
    harness.assert_sound();
    for level in 0..harness.shard.levels.depth() {
        for pair in harness.shard.levels.level(level).windows(2) {
            let [before, after] = [&pair[0].facts, &pair[1].facts];
            assert!(before.last_key < after.first_key, "level {level}: {before:?} {after:?}");
        }
    }
}

fn versions(harness: &mut Harness, keys: Range<u64>) -> Vec<u64> {
    let version = |number| match harness.ask(get(&name(number))) {
        Reply::Record(Some(record)) => record.version,
        other => panic!("{other:?}"),
    };
    keys.map(version).collect()
}

#[test]
pub(super) fn a_load_is_written_once_and_never_compacted() {
    for bytes in [100, 1000, 9000] {
        let mut harness = small();
        let count = 1_200_000 / bytes as u64;
        for from in [0, count, 2 * count] {
            loaded(&harness.ask(load(records(from..from + count, bytes))));
        }
        harness.run_until_idle();
        assert_blob(&harness);
        let all = harness.statistic("loaded_bytes");
        assert_eq!(all, 3 * count * (bytes as u64 + 9 + 1));
        let written = harness.statistic("write_bytes") + harness.statistic("pmem_levels_write_bytes");
        let limit = if bytes == 100 { 140 } else { 120 };
        assert!(written * 100 < all * limit, "{written} bytes for {all} of {bytes} bytes each");
        assert_eq!((harness.statistic("columns_down"), harness.statistic("level_compactions")), (0, 0));
        harness.assert_filled(0..3 * count, bytes);
        harness.reopen();
        harness.assert_filled(0..3 * count, bytes);
        assert_blob(&harness);
    }
}

/// A process that ends at each step of a load, also while it is opened again.
#[test]
pub(super) fn every_cut_of_a_load_leaves_all_or_nothing() {
    let (mut steps, mut ends) = (0, [0, 0]);
    loop {
        let mut harness = small();
        harness.fill(900..1000, 700);
        let token = harness.submit(load(records(0..300, 700)));
        let is_over = |harness: &Harness| harness.replies.contains_key(&token) && harness.in_flight.is_empty();
        for _ in 0..steps {
            if !harness.complete_where(None, |_| true) {
                harness.tick();
            }
        }
        let (over, answered) = (is_over(&harness), harness.replies.get(&token).map(loaded));
        let before = harness.shard.container.version();
        if steps % 2 == 0 {
            harness.region.memory.cut();
        }
        harness.reopen_after([0, 1, u32::MAX][steps % 3]).unwrap();
        assert_blob(&harness);
        let is_there = !is_absent(&mut harness, 0..1);
        assert!(is_there || (answered.is_none() && is_absent(&mut harness, 0..300)), "step {steps}: a part of it");
        ends[usize::from(is_there)] += 1;
        if is_there {
            harness.assert_filled(0..300, 700);
            let version = versions(&mut harness, 0..1)[0];
            assert_eq!(versions(&mut harness, 0..300), vec![version; 300]);
            let reply = harness.ask(write(vec![put("after", value(1, 10))]));
            let Reply::Done { version: next, .. } = reply else { panic!("{reply:?}") };
            assert!(next > version && version <= before.max(version), "version {version} is given again as {next}");
        } else {
            loaded(&harness.ask(load(records(0..300, 700))));
            harness.assert_filled(0..300, 700);
        }
        harness.assert_filled(900..1000, 700);
        steps += 1;
        if over {
            break;
        }
    }
    assert!(ends[0] > 5 && ends[1] > 2, "{ends:?} of {steps} steps");
}

/// Wherever it lies, and whether it can be seen or not.
#[test]
pub(super) fn what_lies_in_the_range_of_a_load_refuses_it() {
    let mut harness = small();
    let middle = records(100..200, 300);
    // In a memtable, deleted there, in a row, in a table.
    harness.fill(150..151, 10);
    occupied(&harness.ask(load(middle.clone())));
    harness.ask(write(vec![delete(&name(150))]));
    occupied(&harness.ask(load(middle.clone())));
    assert!(is_absent(&mut harness, 100..200));
    harness.fill(150..151, 10);
    harness.fill(1000..1200, 300);
    harness.run_until_idle();
    occupied(&harness.ask(load(middle.clone())));
    harness.fill(1200..6000, 300);
    harness.run_until_idle();
    let in_table = |level| harness.shard.levels.table_for(level, key(&name(150)).encoded()).is_some();
    assert!((0..harness.shard.levels.depth()).any(in_table), "it is in a table");
    occupied(&harness.ask(load(middle.clone())));
    harness.assert_filled(150..151, 10);
    assert!(is_absent(&mut harness, 100..150) && is_absent(&mut harness, 151..200));
    // On either side of it there is room, in the same tables.
    loaded(&harness.ask(load(records(100..150, 300))));
    loaded(&harness.ask(load(records(151..200, 300))));
    harness.run_until_idle();
    assert_blob(&harness);
    harness.assert_filled(100..150, 300);
    harness.assert_filled(151..200, 300);
    harness.assert_filled(1000..6000, 300);
    harness.reopen();
    harness.assert_filled(151..200, 300);
    harness.assert_filled(1000..6000, 300);
}

/// A table that has keys before and behind a load would overlap its tables.
#[test]
pub(super) fn tables_around_a_load_are_parted() {
    let mut harness = small();
    for number in 0..3000 {
        let number = if number % 2 == 0 { number } else { 100_000 + number };
        harness.fill(number..number + 1, 300);
    }
    harness.run_until_idle();
    let before = harness.statistic("tables");
    assert!(before > 2);
    // Much more than a table may lie above.
    loaded(&harness.ask(load(records(50_000..54_000, 300))));
    loaded(&harness.ask(load(records(54_000..58_000, 300))));
    harness.run_until_idle();
    assert_blob(&harness);
    harness.assert_filled(50_000..58_000, 300);
    for level in 1..harness.shard.levels.depth() {
        for table in harness.shard.levels.level(level - 1) {
            let end = [&table.facts.last_key[..], &[0]].concat();
            let below = harness.shard.levels.overlapping(level, &table.facts.first_key, Some(&end));
            assert!(below.len() <= 12, "{} tables lie below one of level {}", below.len(), level - 1);
        }
    }
    harness.reopen();
    for number in 0..3000 {
        let number = if number % 2 == 0 { number } else { 100_000 + number };
        harness.assert_filled(number..number + 1, 300);
    }
}

/// What comes meanwhile to its keys comes after it; what goes elsewhere does not wait.
#[test]
pub(super) fn writes_within_a_load_wait_for_it_and_win() {
    let mut harness = small();
    harness.fill(300..301, 10);
    harness.run_until_idle();
    let load = harness.submit(load(records(0..200, 700)));
    harness.tick();
    let over = harness.submit(write(vec![put(&name(3), value(77, 50))]));
    let gone = harness.submit(write(vec![delete(&name(4))]));
    let absent = Change { expect: Expect::Absent, ..put(&name(5), value(78, 50)) };
    let absent = harness.submit(write(vec![absent]));
    let aside = harness.submit(write(vec![put("z", value(79, 50))]));
    harness.tick();
    assert!(harness.replies.contains_key(&aside), "it has nothing to do with the load");
    assert!([load, over, gone, absent].iter().all(|token| !harness.replies.contains_key(token)));
    harness.run_until_idle();
    let version = loaded(&harness.replies[&load]);
    assert!(matches!(harness.replies[&over], Reply::Done { version: later, .. } if later > version));
    assert!(matches!(harness.replies[&gone], Reply::Done { existed: true, .. }));
    assert!(matches!(harness.replies[&absent], Reply::Unmet(Unmet::Present { version: found }) if found == version));
    assert_eq!(found(&harness.ask(get(&name(3)))).as_deref(), Some(&value(77, 50)[..]));
    assert!(is_absent(&mut harness, 4..5));
    harness.assert_filled(5..200, 700);
}

fn count(reply: &Reply) -> usize {
    match reply {
        Reply::Page { items, next: None } => items.len(),
        other => panic!("{other:?}"),
    }
}

/// One that was opened under it would have seen it appear.
#[test]
pub(super) fn snapshots_see_all_of_a_load_or_nothing() {
    let mut harness = small();
    harness.fill(500..510, 100);
    let open = |reply: Reply| match reply {
        Reply::Number { number, .. } => number,
        other => panic!("{other:?}"),
    };
    let before = open(harness.ask(Operation::Snapshot(SnapshotOp::Open)));
    let load = harness.submit(load(records(0..300, 700)));
    harness.tick();
    assert!(harness.shard.compactor.load.is_some());
    let under_it = harness.submit(Operation::Snapshot(SnapshotOp::Open));
    harness.tick();
    assert!(harness.statistic("snapshots") == 1 && !harness.replies.contains_key(&under_it), "it waits");
    harness.run_until_idle();
    loaded(&harness.replies[&load]);
    let after = open(harness.replies.remove(&under_it).expect("it is open"));
    for _ in 0..2 {
        assert_eq!(count(&harness.ask(page(1000, Some(before)))), 10);
        assert_eq!(count(&harness.ask(page(1000, Some(after)))), 310);
        // Whatever is written over it, and merged with it.
        harness.fill(0..300, 300);
        harness.fill(1000..4000, 300);
        harness.ask(Operation::DeleteRange {
            range: Box::new((std::ops::Bound::Included(key(&name(1000))), std::ops::Bound::Unbounded)),
            level: Level::PowerLoss,
        });
        harness.run_until_idle();
    }
    assert_eq!(count(&harness.ask(page(1000, Some(after)))), 310);
}

/// It goes on with what there is, and says why it does not load.
#[test]
pub(super) fn a_load_for_which_there_is_no_room_changes_nothing() {
    let mut harness = Harness::new(MatrixConfig { capacity_bytes: Some(6 << 20), ..config() }, 512 << 10, UNIT_BYTES);
    harness.fill(0..1000, 700);
    harness.run_until_idle();
    occupied(&harness.ask(load(records(10_000..18_000, 700))));
    loaded(&harness.ask(load(records(10_000..10_500, 700))));
    harness.fill(1000..1500, 700);
    harness.run_until_idle();
    assert_blob(&harness);
    harness.assert_filled(0..1500, 700);
    harness.assert_filled(10_000..10_500, 700);
    assert!(is_absent(&mut harness, 10_500..10_600));
}

#[test]
pub(super) fn faults_of_the_volume_end_a_load_in_words() {
    let is_write = |request: &DiskRequest| matches!(request, DiskRequest::Write { .. });
    let is_flush = |request: &DiskRequest| matches!(request, DiskRequest::Flush);
    // A table, the manifest: nothing happened, and the same load finds its way later.
    for of_manifest in [false, true] {
        let mut harness = small();
        let token = harness.submit(load(records(0..300, 700)));
        let is_written = |harness: &Harness| harness.in_flight.iter().any(|(_, request)| is_write(request));
        harness.go_on_until(|harness| is_written(harness) && (!harness.shard.installer.is_idle() || !of_manifest));
        assert!(harness.complete_where(Some(IoFault::Os(5)), is_write));
        harness.tick();
        let reply = &harness.replies[&token];
        assert!(matches!(reply, Reply::Failed(Error::Io { .. })), "{of_manifest}: {reply:?}");
        harness.pass(2);
        harness.run_until_idle();
        assert!(is_absent(&mut harness, 0..300));
        loaded(&harness.ask(load(records(0..300, 700))));
        harness.assert_filled(0..300, 700);
        assert_blob(&harness);
    }
    // The flush: it is there or not, and nothing more is written. A snapshot that waited for the
    // load went on waiting (simulator, seed 130000432).
    let mut harness = small();
    let token = harness.submit(load(records(0..300, 700)));
    harness.go_on_until(|harness| harness.in_flight.iter().any(|(_, request)| is_flush(request)));
    let snapshot = harness.submit(Operation::Snapshot(SnapshotOp::Open));
    assert!(harness.complete_where(Some(IoFault::Os(5)), is_flush));
    harness.run_until_idle();
    let reply = &harness.replies[&token];
    assert!(matches!(reply, Reply::Failed(Error::Unknown(_))), "{reply:?}");
    let reply = harness.replies.get(&snapshot);
    assert!(matches!(reply, Some(Reply::Number { .. })), "what waited for the load goes on: {reply:?}");
    let reply = harness.ask(load(records(300..400, 700)));
    assert!(matches!(reply, Reply::Failed(Error::Poisoned(_))), "{reply:?}");
}

#[test]
pub(super) fn records_of_a_load_are_sorted_and_within_limits() {
    let mut harness = small();
    let refuse = |harness: &mut Harness, records: Vec<LoadRecord>| match harness.ask(load(records)) {
        Reply::Failed(error) => error,
        other => panic!("{other:?}"),
    };
    let mut twice = records(0..3, 10);
    twice[2].key = twice[1].key.clone();
    let said = refuse(&mut harness, twice).to_string();
    assert!(said.starts_with("`key000001` comes after `key000001`"), "{said}");
    let mut turned = records(0..3, 10);
    turned.swap(0, 2);
    let said = refuse(&mut harness, turned).to_string();
    assert!(said.starts_with("`key000001` comes after `key000002`"), "{said}");
    assert!(matches!(refuse(&mut harness, Vec::new()), Error::BadBatch(_)));
    let reserved = LoadRecord { key: Key::bound(CollectionId::ENGINE, b"load"), ..records(0..1, 10).remove(0) };
    assert!(matches!(refuse(&mut harness, vec![reserved]), Error::Key(_)));
    // What has expired when it comes is not there.
    let mut mixed = records(0..3, 10);
    mixed[1].expiry = Expiry(1);
    loaded(&harness.ask(load(mixed)));
    assert!(!is_absent(&mut harness, 0..1) && is_absent(&mut harness, 1..2) && !is_absent(&mut harness, 2..3));
    let mut gone = records(10..12, 10);
    gone.iter_mut().for_each(|record| record.expiry = Expiry(1));
    loaded(&harness.ask(load(gone)));
    assert!(is_absent(&mut harness, 10..12));
    assert_blob(&harness);
}

/// What the store should hold: the value of each key, and how many cuts there were.
struct Story {
    random: Random,
    harness: Harness,
    holds: BTreeMap<u64, (u64, usize)>,
    direct: u64,
    refused: u64,
}

impl Story {
    fn put(&mut self, number: u64) {
        let (seed, bytes) = (self.random.next_u64(), self.random.below(1500) as usize);
        let reply = self.harness.ask(write(vec![put(&name(number), value(seed, bytes))]));
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
        self.holds.insert(number, (seed, bytes));
    }

    /// A load of some keys, with a cut after so many steps if it has as many.
    fn load(&mut self) {
        let from = self.random.below(4000);
        let count = 1 + self.random.below(120);
        let drawn: Vec<(u64, (u64, usize))> =
            (0..count).map(|at| (from + 3 * at, (self.random.next_u64(), self.random.below(1500) as usize))).collect();
        let record = |(number, (seed, bytes)): &(u64, (u64, usize))| LoadRecord {
            value: value(*seed, *bytes),
            ..records(*number..number + 1, 0).remove(0)
        };
        let token = self.harness.submit(load(drawn.iter().map(record).collect()));
        let cut = if self.random.below(2) == 0 { u64::MAX } else { self.random.below(60) };
        for _ in 0..cut {
            if self.harness.replies.contains_key(&token) {
                break;
            }
            if !self.harness.complete_where(None, |_| true) {
                self.harness.tick();
            }
        }
        let reply = self.harness.replies.remove(&token);
        if cut != u64::MAX {
            if self.random.below(2) == 0 {
                self.harness.region.memory.cut();
            }
            self.harness.reopen_after(self.random.below(4) as u32).unwrap();
        }
        let is_vacant = self.holds.range(from..=from + 3 * (count - 1)).next().is_none();
        let is_there = match reply {
            Some(Reply::Done { .. }) => true,
            Some(Reply::Unmet(Unmet::Occupied)) => false,
            None => {
                found(&self.harness.ask(get(&name(from)))).as_deref() == Some(&value(drawn[0].1.0, drawn[0].1.1)[..])
            }
            other => panic!("{other:?}"),
        };
        assert!(is_vacant || !is_there, "something lies there already");
        (self.direct, self.refused) = (self.direct + u64::from(is_there), self.refused + u64::from(!is_there));
        if is_there {
            self.holds.extend(drawn);
        }
    }

    fn compare(&mut self) {
        let mut held = Vec::new();
        let mut from = std::ops::Bound::Unbounded;
        loop {
            let request = PageRequest {
                from,
                to: std::ops::Bound::Unbounded,
                reverse: false,
                keys_only: false,
                items_max: 500,
                bytes_max: 1 << 20,
                at: None,
            };
            let Reply::Page { items, next } = self.harness.ask(Operation::Page(request.into())) else {
                panic!("not a page")
            };
            held.extend(items.into_iter().map(|item| (item.key, item.record.expect("a record").value.to_bytes())));
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
        let wanted: Vec<(Key, Bytes)> =
            self.holds.iter().map(|(number, (seed, bytes))| (key(&name(*number)), value(*seed, *bytes))).collect();
        assert!(held == wanted, "{} records, and should be {}", held.len(), wanted.len());
        assert_blob(&self.harness);
    }
}

/// Loads, puts, deletes and cuts as they come.
#[test]
pub(super) fn loads_among_writes_and_cuts() {
    let (mut direct, mut refused) = (0, 0);
    for seed in 0..12 {
        let config = MatrixConfig { table_bytes: 8 << 10, level_bytes: 32 << 10, ..config() };
        let mut story = Story {
            random: Random::new(seed),
            harness: Harness::new(config, 512 << 10, UNIT_BYTES),
            holds: BTreeMap::new(),
            direct: 0,
            refused: 0,
        };
        for _ in 0..60 {
            match story.random.below(8) {
                0..3 => story.load(),
                3 => {
                    let near = story.random.below(5000);
                    for _ in 0..100 {
                        let number = near + story.random.below(200);
                        story.put(number);
                    }
                }
                4 => {
                    let from = story.random.below(5000);
                    let gone: Vec<u64> = story.holds.range(from..from + 300).map(|(number, _)| *number).collect();
                    for number in gone {
                        story.harness.ask(write(vec![delete(&name(number))]));
                        story.holds.remove(&number);
                    }
                }
                5 => story.harness.reopen(),
                6 => drop(story.harness.run_until_idle()),
                _ => story.compare(),
            }
        }
        story.compare();
        (direct, refused) = (direct + story.direct, refused + story.refused);
    }
    assert!(direct > 40 && refused > 40, "{direct} went straight down, {refused} did not");
}
