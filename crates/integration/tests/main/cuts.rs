//! Snapshots of stores of several shards: one instant of all of them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use stratakv::{Engine, Level, Options, ScanOptions, Store, WriteBatch};
use stratakv_base::checksum::shard_of;
use stratakv_base::{CollectionId, Key};
use stratakv_integration::place;

const SHARDS: usize = 4;

fn open(path: &Path) -> Store {
    let options = Options::new().engine(Engine::Matrix).shards(SHARDS).region_bytes(SHARDS as u64 * (8 << 20));
    options.memory_bytes(64 << 20).level(Level::ProcessCrash).open(path).expect("the store opens")
}

/// A key of each shard.
fn keys() -> Vec<Vec<u8>> {
    let of = |shard: usize| {
        let names = (0..).map(|number: u32| format!("key-{number}").into_bytes());
        let mut names = names.filter(|name| shard_of(Key::bound(CollectionId(0), name).encoded(), SHARDS) == shard);
        names.next().expect("one of many")
    };
    (0..SHARDS).map(of).collect()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

/// One thread writes a number to one key after the other, the next number when it is round. Whoever
/// sees a number in a key sees it in those before, or the next. What a snapshot saw wrong.
fn torn(path: &Path, rounds: u64, snapshots: usize, prepare: fn()) -> Option<String> {
    let store = open(path);
    let (keys, stop) = (keys(), AtomicBool::new(false));
    keys.iter().for_each(|key| _ = store.put(key, 0u64.to_be_bytes()).expect("a put"));
    thread::scope(|scope| {
        let (store, keys, stop) = (&store, &keys, &stop);
        let writer = scope.spawn(move || {
            prepare();
            for round in 1..=rounds {
                keys.iter().for_each(|key| _ = store.put(key, round.to_be_bytes()).expect("a put"));
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        prepare();
        let mut wrong = None;
        for _ in 0..snapshots {
            let snapshot = store.snapshot().expect("a snapshot");
            let get = |key: &Vec<u8>| snapshot.get(store, key).expect("a get").expect("it is there").to_bytes();
            let seen: Vec<u64> = keys.iter().map(|key| number(&get(key))).collect();
            let scan = snapshot.scan(store, ScanOptions::all());
            assert_eq!(scan.filter(Result::is_ok).count(), SHARDS);
            let falls = seen.windows(2).all(|pair| pair[0] >= pair[1]);
            if !falls || seen[0] > seen[SHARDS - 1] + 1 {
                wrong = Some(format!("{seen:?}"));
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("it ends");
        wrong
    })
}

#[test]
fn a_snapshot_is_one_instant_of_all_shards() {
    let place = place::directory();
    assert_eq!(torn(&place.path().join("data"), u64::MAX, 300, || {}), None);
}

/// The defect itself: shards go on writing while others open their snapshots.
#[cfg(feature = "fault_points")]
#[test]
fn a_deliberate_cut_while_others_write_is_noticed() {
    let place = place::directory();
    let sing = || stratakv_base::fault_point::release(Some("trial_cut_while_others_write"));
    let seen = (0..20).find_map(|run| torn(&place.path().join(format!("data-{run}")), u64::MAX, 300, sing));
    assert!(seen.is_some(), "all snapshots were one instant");
}

#[test]
fn a_snapshot_has_all_of_a_batch_or_nothing_and_outlives_what_came_later() {
    let place = place::directory();
    let store = open(&place.path().join("data"));
    let (keys, stop) = (keys(), AtomicBool::new(false));
    let write = |round: u64| {
        let mut batch = WriteBatch::new();
        keys.iter().for_each(|key| _ = batch.put(key, round.to_be_bytes()));
        store.write(batch).expect("written");
    };
    write(0);
    let oldest = store.snapshot().expect("a snapshot");
    thread::scope(|scope| {
        let writer = scope.spawn(|| (1..).take_while(|_| !stop.load(Ordering::Relaxed)).for_each(write));
        for _ in 0..100 {
            let snapshot = store.snapshot().expect("a snapshot");
            let get = |key: &Vec<u8>| number(&snapshot.get(&store, key).expect("a get").expect("there").to_bytes());
            let seen: Vec<u64> = keys.iter().map(get).collect();
            assert!(seen.iter().all(|number| *number == seen[0]), "{seen:?}");
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("it ends");
    });
    for key in &keys {
        let record = oldest.get(&store, key).expect("a get").expect("it is there");
        assert_eq!(number(&record.to_bytes()), 0);
    }
    drop(oldest);
    let open = store.stats().iter().find(|one| one.name == "snapshots").map(|one| one.value);
    assert_eq!(open, Some(0));
}

/// 64 may be open at each shard.
#[test]
fn too_many_snapshots_are_refused_at_every_shard_or_none() {
    let place = place::directory();
    let store = open(&place.path().join("data"));
    let many: Vec<_> = (0..64).map(|_| store.snapshot().expect("a snapshot")).collect();
    let refused = store.snapshot().expect_err("too many");
    assert_eq!(refused.kind(), stratakv::ErrorKind::Busy);
    // It answered "too many operations are waiting; try again", which never helps.
    assert_eq!(refused.to_string(), "64 snapshots are open, and more may not be: close one of them, then open another");
    drop(many);
    store.snapshot().expect("there is room again");
}
