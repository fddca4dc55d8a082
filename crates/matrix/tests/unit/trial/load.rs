//! Loads: straight to the lowest level or not at all.

use std::collections::BTreeMap;
use std::ops::Range;

use stratakv_base::random::Random;
use stratakv_device::DiskRequest;
use stratakv_engine::{Error, LoadRecord, SnapshotOp, Unmet};

use super::*;

fn small() -> Trial {
    Trial::new(config(), 512 << 10, UNIT_BYTES)
}

/// Records as [`Trial::fill`] puts them.
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

fn is_absent(trial: &mut Trial, keys: Range<u64>) -> bool {
    keys.into_iter().all(|number| found(&trial.ask(get(&name(number)))).is_none())
}

/// Within each level tables are in order, and no two hold the same key.
fn assert_blob(trial: &Trial) {
    trial.assert_sound();
    for level in 0..trial.shard.levels.depth() {
        for pair in trial.shard.levels.level(level).windows(2) {
            let [before, after] = [&pair[0].facts, &pair[1].facts];
            assert!(before.last_key < after.first_key, "level {level}: {before:?} {after:?}");
        }
    }
}

fn versions(trial: &mut Trial, keys: Range<u64>) -> Vec<u64> {
    let version = |number| match trial.ask(get(&name(number))) {
        Reply::Record(Some(record)) => record.version,
        other => panic!("{other:?}"),
    };
    keys.map(version).collect()
}

#[test]
pub(super) fn a_load_is_written_once_and_never_compacted() {
    for bytes in [100, 1000, 9000] {
        let mut trial = small();
        let count = 1_200_000 / bytes as u64;
        for from in [0, count, 2 * count] {
            loaded(&trial.ask(load(records(from..from + count, bytes))));
        }
        trial.settle();
        assert_blob(&trial);
        let all = trial.statistic("loaded_bytes");
        assert_eq!(all, 3 * count * (bytes as u64 + 9 + 1));
        let written = trial.statistic("write_bytes") + trial.statistic("layer_write_bytes");
        let limit = if bytes == 100 { 140 } else { 120 };
        assert!(written * 100 < all * limit, "{written} bytes for {all} of {bytes} bytes each");
        assert_eq!((trial.statistic("columns_down"), trial.statistic("level_compactions")), (0, 0));
        trial.assert_filled(0..3 * count, bytes);
        trial.reopen();
        trial.assert_filled(0..3 * count, bytes);
        assert_blob(&trial);
    }
}

/// A process that ends at each step of a load, also while it is opened again.
#[test]
pub(super) fn every_cut_of_a_load_leaves_all_or_nothing() {
    let (mut steps, mut ends) = (0, [0, 0]);
    loop {
        let mut trial = small();
        trial.fill(900..1000, 700);
        let token = trial.submit(load(records(0..300, 700)));
        let is_over = |trial: &Trial| trial.replies.contains_key(&token) && trial.in_flight.is_empty();
        for _ in 0..steps {
            if !trial.complete_where(None, |_| true) {
                trial.tick();
            }
        }
        let (over, answered) = (is_over(&trial), trial.replies.get(&token).map(loaded));
        let before = trial.shard.container.version();
        if steps % 2 == 0 {
            trial.region.memory.cut();
        }
        trial.reopen_after([0, 1, u32::MAX][steps % 3]).unwrap();
        assert_blob(&trial);
        let is_there = !is_absent(&mut trial, 0..1);
        assert!(is_there || (answered.is_none() && is_absent(&mut trial, 0..300)), "step {steps}: a part of it");
        ends[usize::from(is_there)] += 1;
        if is_there {
            trial.assert_filled(0..300, 700);
            let version = versions(&mut trial, 0..1)[0];
            assert_eq!(versions(&mut trial, 0..300), vec![version; 300]);
            let reply = trial.ask(write(vec![put("after", value(1, 10))]));
            let Reply::Done { version: next, .. } = reply else { panic!("{reply:?}") };
            assert!(next > version && version <= before.max(version), "version {version} is given again as {next}");
        } else {
            loaded(&trial.ask(load(records(0..300, 700))));
            trial.assert_filled(0..300, 700);
        }
        trial.assert_filled(900..1000, 700);
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
    let mut trial = small();
    let middle = records(100..200, 300);
    // In a memtable, deleted there, in a row, in a table.
    trial.fill(150..151, 10);
    occupied(&trial.ask(load(middle.clone())));
    trial.ask(write(vec![delete(&name(150))]));
    occupied(&trial.ask(load(middle.clone())));
    assert!(is_absent(&mut trial, 100..200));
    trial.fill(150..151, 10);
    trial.fill(1000..1200, 300);
    trial.settle();
    occupied(&trial.ask(load(middle.clone())));
    trial.fill(1200..6000, 300);
    trial.settle();
    let in_table = |level| trial.shard.levels.table_for(level, key(&name(150)).encoded()).is_some();
    assert!((0..trial.shard.levels.depth()).any(in_table), "it is in a table");
    occupied(&trial.ask(load(middle.clone())));
    trial.assert_filled(150..151, 10);
    assert!(is_absent(&mut trial, 100..150) && is_absent(&mut trial, 151..200));
    // On either side of it there is room, in the same tables.
    loaded(&trial.ask(load(records(100..150, 300))));
    loaded(&trial.ask(load(records(151..200, 300))));
    trial.settle();
    assert_blob(&trial);
    trial.assert_filled(100..150, 300);
    trial.assert_filled(151..200, 300);
    trial.assert_filled(1000..6000, 300);
    trial.reopen();
    trial.assert_filled(151..200, 300);
    trial.assert_filled(1000..6000, 300);
}

/// A table that has keys before and behind a load would overlap its tables.
#[test]
pub(super) fn tables_around_a_load_are_parted() {
    let mut trial = small();
    for number in 0..3000 {
        let number = if number % 2 == 0 { number } else { 100_000 + number };
        trial.fill(number..number + 1, 300);
    }
    trial.settle();
    let before = trial.statistic("tables");
    assert!(before > 2);
    // Much more than a table may lie above.
    loaded(&trial.ask(load(records(50_000..54_000, 300))));
    loaded(&trial.ask(load(records(54_000..58_000, 300))));
    trial.settle();
    assert_blob(&trial);
    trial.assert_filled(50_000..58_000, 300);
    for level in 1..trial.shard.levels.depth() {
        for table in trial.shard.levels.level(level - 1) {
            let end = [&table.facts.last_key[..], &[0]].concat();
            let below = trial.shard.levels.overlapping(level, &table.facts.first_key, Some(&end));
            assert!(below.len() <= 12, "{} tables lie below one of level {}", below.len(), level - 1);
        }
    }
    trial.reopen();
    for number in 0..3000 {
        let number = if number % 2 == 0 { number } else { 100_000 + number };
        trial.assert_filled(number..number + 1, 300);
    }
}

/// What comes meanwhile to its keys comes after it; what goes elsewhere does not wait.
#[test]
pub(super) fn writes_within_a_load_wait_for_it_and_win() {
    let mut trial = small();
    trial.fill(300..301, 10);
    trial.settle();
    let load = trial.submit(load(records(0..200, 700)));
    trial.tick();
    let over = trial.submit(write(vec![put(&name(3), value(77, 50))]));
    let gone = trial.submit(write(vec![delete(&name(4))]));
    let absent = Change { expect: Expect::Absent, ..put(&name(5), value(78, 50)) };
    let absent = trial.submit(write(vec![absent]));
    let aside = trial.submit(write(vec![put("z", value(79, 50))]));
    trial.tick();
    assert!(trial.replies.contains_key(&aside), "it has nothing to do with the load");
    assert!([load, over, gone, absent].iter().all(|token| !trial.replies.contains_key(token)));
    trial.settle();
    let version = loaded(&trial.replies[&load]);
    assert!(matches!(trial.replies[&over], Reply::Done { version: later, .. } if later > version));
    assert!(matches!(trial.replies[&gone], Reply::Done { existed: true, .. }));
    assert!(matches!(trial.replies[&absent], Reply::Unmet(Unmet::Present { version: found }) if found == version));
    assert_eq!(found(&trial.ask(get(&name(3)))).as_deref(), Some(&value(77, 50)[..]));
    assert!(is_absent(&mut trial, 4..5));
    trial.assert_filled(5..200, 700);
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
    let mut trial = small();
    trial.fill(500..510, 100);
    let open = |reply: Reply| match reply {
        Reply::Number { number, .. } => number,
        other => panic!("{other:?}"),
    };
    let before = open(trial.ask(Operation::Snapshot(SnapshotOp::Open)));
    let load = trial.submit(load(records(0..300, 700)));
    trial.tick();
    assert!(trial.shard.load.is_some());
    let under_it = trial.submit(Operation::Snapshot(SnapshotOp::Open));
    trial.tick();
    assert!(trial.statistic("snapshots") == 1 && !trial.replies.contains_key(&under_it), "it waits");
    trial.settle();
    loaded(&trial.replies[&load]);
    let after = open(trial.replies.remove(&under_it).expect("it is open"));
    for _ in 0..2 {
        assert_eq!(count(&trial.ask(page(1000, Some(before)))), 10);
        assert_eq!(count(&trial.ask(page(1000, Some(after)))), 310);
        // Whatever is written over it, and merged with it.
        trial.fill(0..300, 300);
        trial.fill(1000..4000, 300);
        trial.ask(Operation::DeleteRange {
            range: Box::new((std::ops::Bound::Included(key(&name(1000))), std::ops::Bound::Unbounded)),
            level: Level::PowerLoss,
        });
        trial.settle();
    }
    assert_eq!(count(&trial.ask(page(1000, Some(after)))), 310);
}

/// It goes on with what there is, and says why it does not load.
#[test]
pub(super) fn a_load_for_which_there_is_no_room_changes_nothing() {
    let mut trial = Trial::new(MatrixConfig { capacity_bytes: Some(6 << 20), ..config() }, 512 << 10, UNIT_BYTES);
    trial.fill(0..1000, 700);
    trial.settle();
    occupied(&trial.ask(load(records(10_000..18_000, 700))));
    loaded(&trial.ask(load(records(10_000..10_500, 700))));
    trial.fill(1000..1500, 700);
    trial.settle();
    assert_blob(&trial);
    trial.assert_filled(0..1500, 700);
    trial.assert_filled(10_000..10_500, 700);
    assert!(is_absent(&mut trial, 10_500..10_600));
}

#[test]
pub(super) fn faults_of_the_volume_end_a_load_in_words() {
    let is_write = |request: &DiskRequest| matches!(request, DiskRequest::Write { .. });
    let is_flush = |request: &DiskRequest| matches!(request, DiskRequest::Flush);
    // A table, the manifest: nothing happened, and the same load finds its way later.
    for of_manifest in [false, true] {
        let mut trial = small();
        let token = trial.submit(load(records(0..300, 700)));
        let is_written = |trial: &Trial| trial.in_flight.iter().any(|(_, request)| is_write(request));
        trial.go_on_until(|trial| is_written(trial) && (trial.shard.install.is_some() || !of_manifest));
        assert!(trial.complete_where(Some(IoFault::Os(5)), is_write));
        trial.tick();
        let reply = &trial.replies[&token];
        assert!(matches!(reply, Reply::Failed(Error::Io { .. })), "{of_manifest}: {reply:?}");
        trial.pass(2);
        trial.settle();
        assert!(is_absent(&mut trial, 0..300));
        loaded(&trial.ask(load(records(0..300, 700))));
        trial.assert_filled(0..300, 700);
        assert_blob(&trial);
    }
    // The flush: it is there or not, and nothing more is written. A snapshot that waited for the
    // load went on waiting (simulator, seed 130000432).
    let mut trial = small();
    let token = trial.submit(load(records(0..300, 700)));
    trial.go_on_until(|trial| trial.in_flight.iter().any(|(_, request)| is_flush(request)));
    let snapshot = trial.submit(Operation::Snapshot(SnapshotOp::Open));
    assert!(trial.complete_where(Some(IoFault::Os(5)), is_flush));
    trial.settle();
    let reply = &trial.replies[&token];
    assert!(matches!(reply, Reply::Failed(Error::Unknown(_))), "{reply:?}");
    let reply = trial.replies.get(&snapshot);
    assert!(matches!(reply, Some(Reply::Number { .. })), "what waited for the load goes on: {reply:?}");
    let reply = trial.ask(load(records(300..400, 700)));
    assert!(matches!(reply, Reply::Failed(Error::Poisoned(_))), "{reply:?}");
}

#[test]
pub(super) fn records_of_a_load_are_sorted_and_within_limits() {
    let mut trial = small();
    let refuse = |trial: &mut Trial, records: Vec<LoadRecord>| match trial.ask(load(records)) {
        Reply::Failed(error) => error,
        other => panic!("{other:?}"),
    };
    let mut twice = records(0..3, 10);
    twice[2].key = twice[1].key.clone();
    let said = refuse(&mut trial, twice).to_string();
    assert!(said.starts_with("`key000001` comes after `key000001`"), "{said}");
    let mut turned = records(0..3, 10);
    turned.swap(0, 2);
    let said = refuse(&mut trial, turned).to_string();
    assert!(said.starts_with("`key000001` comes after `key000002`"), "{said}");
    assert!(matches!(refuse(&mut trial, Vec::new()), Error::BadBatch(_)));
    let reserved = LoadRecord { key: Key::bound(CollectionId::ENGINE, b"load"), ..records(0..1, 10).remove(0) };
    assert!(matches!(refuse(&mut trial, vec![reserved]), Error::Key(_)));
    // What has expired when it comes is not there.
    let mut mixed = records(0..3, 10);
    mixed[1].expiry = Expiry(1);
    loaded(&trial.ask(load(mixed)));
    assert!(!is_absent(&mut trial, 0..1) && is_absent(&mut trial, 1..2) && !is_absent(&mut trial, 2..3));
    let mut gone = records(10..12, 10);
    gone.iter_mut().for_each(|record| record.expiry = Expiry(1));
    loaded(&trial.ask(load(gone)));
    assert!(is_absent(&mut trial, 10..12));
    assert_blob(&trial);
}

/// What the store should hold: the value of each key, and how many cuts there were.
struct Story {
    random: Random,
    trial: Trial,
    holds: BTreeMap<u64, (u64, usize)>,
    direct: u64,
    refused: u64,
}

impl Story {
    fn put(&mut self, number: u64) {
        let (seed, bytes) = (self.random.next_u64(), self.random.below(1500) as usize);
        let reply = self.trial.ask(write(vec![put(&name(number), value(seed, bytes))]));
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
        let token = self.trial.submit(load(drawn.iter().map(record).collect()));
        let cut = if self.random.below(2) == 0 { u64::MAX } else { self.random.below(60) };
        for _ in 0..cut {
            if self.trial.replies.contains_key(&token) {
                break;
            }
            if !self.trial.complete_where(None, |_| true) {
                self.trial.tick();
            }
        }
        let reply = self.trial.replies.remove(&token);
        if cut != u64::MAX {
            if self.random.below(2) == 0 {
                self.trial.region.memory.cut();
            }
            self.trial.reopen_after(self.random.below(4) as u32).unwrap();
        }
        let is_vacant = self.holds.range(from..=from + 3 * (count - 1)).next().is_none();
        let is_there = match reply {
            Some(Reply::Done { .. }) => true,
            Some(Reply::Unmet(Unmet::Occupied)) => false,
            None => found(&self.trial.ask(get(&name(from)))).as_deref() == Some(&value(drawn[0].1.0, drawn[0].1.1)[..]),
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
            let Reply::Page { items, next } = self.trial.ask(Operation::Page(request.into())) else {
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
        assert_blob(&self.trial);
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
            trial: Trial::new(config, 512 << 10, UNIT_BYTES),
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
                        story.trial.ask(write(vec![delete(&name(number))]));
                        story.holds.remove(&number);
                    }
                }
                5 => story.trial.reopen(),
                6 => drop(story.trial.settle()),
                _ => story.compare(),
            }
        }
        story.compare();
        (direct, refused) = (direct + story.direct, refused + story.refused);
    }
    assert!(direct > 40 && refused > 40, "{direct} went straight down, {refused} did not");
}
