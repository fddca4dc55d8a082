//! Snapshots, backups and batches: what is seen belongs together, and is as it was.

mod calls;
mod hooked;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use calls::{all_of, close_snapshot, items, one, open_snapshot};
use hooked::Hooked;
use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Expiry, Key, Mono, Now, Wall};
use stratakv_engine::{Change, ChangeKind, Error, Expect, Item, Operation, RecordPart, Reply, Shared};
use stratakv_hash::{Hash, HashOptions, Written};
use stratakv_pmem::{MapOptions, Mapping};
use stratakv_sim::pmem::Region;

const NOW: Now = Now { mono: Mono(7), wall: Wall(1000) };

type Model = BTreeMap<Key, Vec<u8>>;

fn key(collection: u32, number: u64) -> Key {
    Key::new(CollectionId(collection), format!("key {number:04}").as_bytes()).expect("a key")
}

fn created(region_bytes: u64) -> Hash<Mapping> {
    let pmem = Mapping::anonymous(region_bytes, MapOptions::default()).expect("memory");
    Hash::create(pmem, HashOptions { segment_bytes: 64 << 10, ..HashOptions::default() }).expect("created")
}

fn put(key: Key, value: Vec<u8>) -> Change {
    let kind = ChangeKind::Put { value: value.into(), flags: 0, expiry: Expiry::NEVER };
    Change { key, expect: Expect::Any, kind }
}

fn delete(key: Key) -> Change {
    Change { key, expect: Expect::Any, kind: ChangeKind::Delete }
}

fn write(hash: &impl Shared, changes: Vec<Change>) -> u64 {
    match calls::write(hash, changes, NOW) {
        Ok(Written::Done { version, .. }) => version,
        other => panic!("{other:?}"),
    }
}

fn snapshot(hash: &impl Shared) -> u64 {
    open_snapshot(hash, NOW).expect("a snapshot")
}

fn close(hash: &impl Shared, id: u64) {
    close_snapshot(hash, id, NOW).expect("it is open");
}

/// Values are empty where there are only keys.
fn model_of(items: Vec<Item>) -> Model {
    let mut found = Model::new();
    for Item { key, record } in items {
        let value = record.map(|record| record.value.to_bytes().to_vec()).unwrap_or_default();
        assert!(found.insert(key, value).is_none(), "a key twice");
    }
    found
}

/// A collection as it is seen, by pages.
fn scan(hash: &impl Shared, collection: u32, at: Option<u64>, keys_only: bool) -> Result<Model, Error> {
    items(hash, all_of(collection, at, keys_only), NOW).map(model_of)
}

fn one_at(hash: &impl Shared, key: &Key, at: u64) -> Option<Vec<u8>> {
    let items = items(hash, one(key, Some(at)), NOW).expect("a page");
    items.into_iter().next().map(|item| item.record.expect("a record").value.to_bytes().to_vec())
}

fn backup(hash: &impl Shared, between: impl FnMut()) -> Model {
    model_of(calls::backup(hash, NOW, between).expect("a backup"))
}

fn of_collection(model: &Model, collection: u32) -> Model {
    let inside = model.iter().filter(|(key, _)| key.collection().0 == collection);
    inside.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Some changes, singly or as a batch, in the store and in the model.
fn change(hash: &impl Shared, model: &mut Model, random: &mut Random) {
    let mut changes = BTreeMap::new();
    for _ in 0..1 + random.below(3) {
        let key = key(random.below(3) as u32, random.below(120));
        let bytes = random.below(200) as usize;
        changes.insert(key, (random.below(3) > 0).then(|| vec![random.below(256) as u8; bytes]));
    }
    for (key, value) in &changes {
        match value {
            Some(value) => drop(model.insert(key.clone(), value.clone())),
            None => drop(model.remove(key)),
        }
    }
    let changes = changes.into_iter().map(|(key, value)| match value {
        Some(value) => put(key, value),
        None => delete(key),
    });
    write(hash, changes.collect());
}

#[test]
fn snapshots_stay_as_they_were_however_they_overlap() {
    let (hash, mut random) = (created(16 << 20), Random::new(11));
    let (mut model, mut open): (Model, Vec<(u64, Model)>) = (Model::new(), Vec::new());
    for round in 0..400 {
        (0..random.below(30)).for_each(|_| change(&hash, &mut model, &mut random));
        match random.below(4) {
            0 if open.len() < 5 => open.push((snapshot(&hash), model.clone())),
            1 if !open.is_empty() => {
                let (id, _) = open.swap_remove(random.below(open.len() as u64) as usize);
                close(&hash, id);
            }
            2 if round % 3 == 0 => assert_eq!(backup(&hash, || ()), model, "backup in round {round}"),
            _ => {}
        }
        for (id, then) in &open {
            for collection in [1, 2] {
                let expected = of_collection(then, collection);
                assert_eq!(scan(&hash, collection, Some(*id), false), Ok(expected.clone()), "round {round}");
                let keys = scan(&hash, collection, Some(*id), true).expect("keys");
                assert!(keys.keys().eq(expected.keys()), "keys in round {round}");
            }
            for number in 0..120 {
                assert_eq!(one_at(&hash, &key(0, number), *id).as_ref(), then.get(&key(0, number)), "{number}");
            }
        }
        for collection in [1, 2] {
            let expected = of_collection(&model, collection);
            let keys = scan(&hash, collection, None, true).expect("keys");
            assert!(keys.keys().eq(expected.keys()), "keys now in round {round}");
            assert_eq!(scan(&hash, collection, None, false), Ok(expected), "now, in round {round}");
        }
    }
    open.into_iter().for_each(|(id, _)| close(&hash, id));
    let report = hash.report();
    let ordered = model.keys().filter(|key| key.collection().0 > 0).count() as u64;
    assert_eq!((report.records, report.ordered), (model.len() as u64, ordered), "{report:?}");
    let snapshots = report.snapshots;
    assert_eq!((snapshots.open, snapshots.kept_bytes, snapshots.index_bytes), (0, 0, 0), "{report:?}");
    let record_bytes =
        |key: &Key, value: &Vec<u8>| (32 + key.encoded().len() + value.len()).next_multiple_of(64) as u64;
    let taken: u64 = model.iter().map(|(key, value)| record_bytes(key, value)).sum();
    assert_eq!(report.used_bytes, report.free_bytes + report.retired_bytes + taken, "{report:?}");
}

#[test]
fn a_backup_has_what_was_there_when_it_began() {
    let (hash, mut random) = (created(64 << 20), Random::new(12));
    let mut model = Model::new();
    for number in 0..30_000 {
        model.insert(key(number as u32 % 2, number), vec![number as u8; 50]);
        write(&hash, vec![put(key(number as u32 % 2, number), vec![number as u8; 50])]);
    }
    let expected = model.clone();
    let mut pieces = 0;
    let found = backup(&hash, || {
        pieces += 1;
        // The table grows, and what it has not come to yet is replaced and deleted.
        (0..2_000).for_each(|_| change(&hash, &mut model, &mut random));
        for number in 0..2_000 {
            write(&hash, vec![put(key(3, 2_000 * pieces + number), vec![3])]);
            write(&hash, vec![delete(key(number as u32 % 2, 2_000 * pieces + number))]);
        }
    });
    assert!(pieces > 3, "{pieces} pieces");
    assert!(found == expected, "{} records, not {}", found.len(), expected.len());
    assert_eq!(hash.report().snapshots.kept_bytes, 0);
}

#[test]
fn a_snapshot_that_keeps_too_much_ends_and_says_so() {
    let hash = created(4 << 20);
    let (first, second) = (snapshot(&hash), snapshot(&hash));
    let write_all = |round| {
        for number in 0..2_000 {
            write(&hash, vec![put(key(1, number), vec![round; 300])]);
        }
    };
    (0..6).for_each(write_all);
    // What they see is nothing; a third one sees records of the last round, and each is kept once.
    let third = snapshot(&hash);
    (0..3).for_each(write_all);
    assert_eq!(scan(&hash, 1, Some(third), true).map(|keys| keys.len()), Ok(2_000));
    for _ in 0..3 {
        snapshot(&hash);
        write_all(8);
    }
    assert_eq!(scan(&hash, 1, Some(first), true), Err(Error::NoSnapshot { id: first }));
    let report = hash.report();
    assert!(report.snapshots.ended_early > 0 && report.snapshots.kept_bytes <= 1 << 20, "{report:?}");
    assert!(report.snapshots.open < 6 && second > first, "{report:?}");
}

/// A batch that ended a snapshot did so with the slots of its checks locked, and waited for itself.
#[test]
fn a_batch_with_checks_ends_a_snapshot_and_itself() {
    let hash = created(4 << 20);
    let check = |number| Change { key: key(1, number), expect: Expect::Present, kind: ChangeKind::Check };
    for number in 0..2_000 {
        write(&hash, vec![put(key(1, number), vec![1; 300])]);
    }
    snapshot(&hash);
    // Of each batch one record is kept, and one that was kept before is checked.
    for number in 0..2_000 {
        write(
            &hash,
            vec![put(key(1, number), vec![2; 300]), check((number + 1) % 2_000), check((number + 1_000) % 2_000)],
        );
    }
    let report = hash.report();
    assert!(report.snapshots.ended_early == 0, "{report:?}");
    for _ in 0..6 {
        snapshot(&hash);
    }
    for round in 3..8 {
        for number in 0..2_000 {
            write(&hash, vec![put(key(1, number), vec![round; 300]), check((number + 1) % 2_000)]);
        }
        snapshot(&hash);
    }
    assert!(hash.report().snapshots.ended_early > 0, "{:?}", hash.report());
}

/// Snapshots kept a region full for good that was mostly of old records: writes were refused before
/// what is kept is a quarter.
#[test]
fn a_snapshot_ends_before_a_write_is_refused() {
    let hash = created(4 << 20);
    let mut number = 0;
    // Live records take nearly all of it.
    while hash.report().unused_bytes + hash.report().free_bytes > 400 << 10 {
        write(&hash, vec![put(key(1, number), vec![1; 1000])]);
        number += 1;
    }
    let id = snapshot(&hash);
    for round in 0..3 {
        for number in 0..number / 2 {
            write(&hash, vec![put(key(1, number), vec![round; 1000])]);
        }
    }
    let report = hash.report();
    assert!(report.snapshots.ended_early == 1 && report.snapshots.open == 0, "{report:?}");
    assert_eq!(scan(&hash, 1, Some(id), true), Err(Error::NoSnapshot { id }));
}

/// Each extent of a batch holds back a segment until it is there: thousands of them took a whole
/// region for 600 KB.
#[test]
fn a_batch_of_many_members_takes_little_more_than_their_room() {
    let hash = created(4 << 20);
    write(&hash, (0..9_000).map(|number| put(key(1, number), vec![1; 4])).collect());
    write(&hash, (0..200).map(|number| put(key(2, number), vec![2; 2_000])).collect());
    assert_eq!(hash.report().records, 9_200);
}

const ACCOUNTS: u64 = 48;
const WORTH: u64 = 1000;

fn balance(value: &[u8]) -> u64 {
    value.try_into().map_or(u64::MAX / 100, u64::from_le_bytes)
}

/// Batches that move amounts between accounts, or write one number to all of them, beside readers;
/// what a reader saw that cannot be.
fn run(fault_point: Option<&'static str>, rounds: u64) -> Result<(), String> {
    let (hash, stop) = (&created(8 << 20), &AtomicBool::new(false));
    for number in 0..ACCOUNTS {
        write(hash, vec![put(key(4, number), WORTH.to_le_bytes().to_vec())]);
        write(hash, vec![put(key(0, number), 0u64.to_le_bytes().to_vec())]);
    }
    thread::scope(|scope| {
        let writers = [0, 1].map(|writer| {
            scope.spawn(move || {
                release(fault_point);
                if writer == 0 { write_all(hash, rounds) } else { move_amounts(hash, rounds) }
            })
        });
        let readers = [0, 1].map(|reader| {
            scope.spawn(move || {
                release(fault_point.filter(|_| reader == 1));
                let seen = if reader == 0 { read_in_turn(hash, stop) } else { read_snapshots(hash, stop) };
                stop.store(true, Ordering::Relaxed);
                seen
            })
        });
        writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().try_for_each(|reader| reader.join().expect("a reader"))
    })
}

#[cfg(feature = "fault_points")]
fn release(fault_point: Option<&'static str>) {
    stratakv_base::fault_point::release(fault_point);
}

#[cfg(not(feature = "fault_points"))]
fn release(_: Option<&'static str>) {}

/// One number to all accounts of the default collection, by a batch; at times they are deleted.
fn write_all(hash: &Hash<Mapping>, rounds: u64) {
    for round in 1..=rounds {
        let change = |number| match round % 5 {
            0 => delete(key(0, number)),
            _ => put(key(0, number), round.to_le_bytes().to_vec()),
        };
        write(hash, (0..ACCOUNTS).map(change).collect());
    }
}

fn move_amounts(hash: &Hash<Mapping>, rounds: u64) {
    let mut random = Random::new(5);
    for _ in 0..rounds {
        let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
        let get = |number| match hash.execute(Operation::Get { key: key(4, number), part: RecordPart::Whole }, NOW) {
            Reply::Record(Some(record)) => balance(&record.value.to_bytes()),
            other => panic!("{other:?}"),
        };
        let (a, b) = (get(from), get(to));
        if from != to && a > 0 {
            let amount = 1 + random.below(a);
            let value = |balance: u64| balance.to_le_bytes().to_vec();
            write(hash, vec![put(key(4, from), value(a - amount)), put(key(4, to), value(b + amount))]);
        }
    }
}

/// Gets, one after the other: whoever saw a batch in one key sees no older one in the next.
fn read_in_turn(hash: &Hash<Mapping>, stop: &AtomicBool) -> Result<(), String> {
    let get = |number| hash.get(&key(0, number), NOW.wall).map_err(|error| error.to_string());
    while !stop.load(Ordering::Relaxed) {
        let mut newest = 0;
        for number in 0..ACCOUNTS {
            let Some(record) = get(number)? else { continue };
            let round = balance(&record.value.to_bytes());
            if round < newest {
                return Err(format!("account {number} has round {round} after another had {newest}"));
            }
            newest = round;
        }
    }
    Ok(())
}

/// Snapshots in which no amount is lost between accounts, and that do not change.
fn read_snapshots(hash: &Hash<Mapping>, stop: &AtomicBool) -> Result<(), String> {
    while !stop.load(Ordering::Relaxed) {
        let id = snapshot(hash);
        let first = scan(hash, 4, Some(id), false).map_err(|error| error.to_string())?;
        let sum: u64 = first.values().map(|value| balance(value)).sum();
        if (first.len() as u64, sum) != (ACCOUNTS, ACCOUNTS * WORTH) {
            return Err(format!("{} accounts with {sum}", first.len()));
        }
        if scan(hash, 4, Some(id), false).as_ref() != Ok(&first) {
            return Err("a snapshot has changed".into());
        }
        close(hash, id);
    }
    Ok(())
}

#[test]
fn batches_are_seen_whole_beside_writers() {
    run(None, 20_000).unwrap_or_else(|why| panic!("{why}"));
}

/// Opens a snapshot while an update of a key hangs in the fence that makes it durable, and reads it
/// before and after; what cannot be, if it is seen.
fn open_beside_an_update(fault_point: Option<&'static str>) -> Result<(), String> {
    // Fences that the next update may pass; of any number while nobody counts.
    let (may_pass, is_held) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
    let at_fence = || {
        while may_pass.try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err() {
            is_held.store(true, Ordering::SeqCst);
            thread::yield_now();
        }
    };
    let pmem = Hooked { region: Region::new(7 * 4096), at_load: &|| {}, at_store: &|_| {}, at_fence: &at_fence };
    let hash = &Hash::create(pmem, HashOptions { segment_bytes: 4096, ..HashOptions::default() }).expect("created");
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            write(hash, vec![put(key(0, 1), b"old".to_vec())]);
            // The next one needs no new span: it fences its body, and then, its version drawn, its
            // header.
            may_pass.store(1, Ordering::SeqCst);
            write(hash, vec![put(key(0, 1), b"new".to_vec())]);
        });
        while !is_held.load(Ordering::SeqCst) {
            assert!(!writer.is_finished(), "an update without a second fence");
            thread::yield_now();
        }
        let opener = scope.spawn(|| {
            release(fault_point);
            snapshot(hash)
        });
        for _ in 0..100 {
            if !opener.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
        }
        let early = opener.is_finished();
        if !early {
            may_pass.store(u64::MAX, Ordering::SeqCst);
        }
        let id = opener.join().expect("no panic");
        let before = one_at(hash, &key(0, 1), id);
        may_pass.store(u64::MAX, Ordering::SeqCst);
        writer.join().expect("no panic");
        let after = one_at(hash, &key(0, 1), id);
        if before == after { Ok(()) } else { Err(format!("it had {before:?} and has {after:?}")) }
    })
}

#[test]
fn a_snapshot_waits_for_a_write_under_way() {
    assert_eq!(open_beside_an_update(None), Ok(()));
}

/// Readers who see half a batch, old records that are not kept, snapshots that do not wait for
/// those who write.
#[cfg(feature = "fault_points")]
#[test]
fn deliberate_defects_of_snapshots_are_seen() {
    for name in ["hash_batch_shown_by_halves", "hash_old_record_not_kept"] {
        let seen = (0..40).find_map(|_| run(Some(name), 20_000).err());
        assert!(seen.is_some(), "{name} is not caught");
    }
    let seen = (0..5).find_map(|_| open_beside_an_update(Some("hash_snapshot_without_grace")).err());
    assert!(seen.is_some(), "hash_snapshot_without_grace is not caught");
}
