//! Stores of engine `matrix`: what they have in a way of their own.

use std::path::Path;

use stratakv::{Engine, EngineError, Level, Operation, Options, Reply, Store};
use stratakv_integration::place;

const MIB: u64 = 1 << 20;

fn options(shards: usize) -> Options {
    let options = Options::new().engine(Engine::Matrix).region_bytes(8 * MIB * shards as u64);
    options.shards(shards).level(Level::ProcessCrash)
}

/// A store with records enough for several pieces of a backup on each shard.
fn filled(data: &Path, shards: usize) -> Store {
    let store = options(shards).open(data).expect("a store");
    for record in 0..6_000_u32 {
        store.put(&record.to_be_bytes(), &[7; 1000]).expect("a put");
    }
    store
}

fn snapshots(store: &Store) -> u64 {
    store.stats().iter().find(|one| one.name == "snapshots").map_or(0, |one| one.value)
}

fn piece(store: &Store, cursor: u64, shard: u32) -> Reply {
    store.execute(Operation::Backup { cursor, shard })
}

fn begun(store: &Store) -> u64 {
    match piece(store, 0, 0) {
        Reply::Number { number, .. } => number,
        other => panic!("a backup was begun with {other:?}"),
    }
}

/// Each shard kept what was overwritten until the store was closed.
#[test]
fn a_backup_that_is_called_off_keeps_nothing_on_any_shard() {
    let place = place::directory();
    let store = filled(&place.path().join("data"), 2);
    store.backup_watched(&place.path().join("copy"), &|_| false).expect_err("it was called off");
    assert_eq!(snapshots(&store), 0);
}

/// It went on from the beginning, in another cut, and reported success.
#[test]
fn a_backup_that_another_one_ended_is_told_on_every_shard() {
    let place = place::directory();
    let store = filled(&place.path().join("data"), 2);
    let first = begun(&store);
    assert!(matches!(piece(&store, first, 1), Reply::Page { next: Some(_), .. }));
    let second = begun(&store);
    assert!(matches!(piece(&store, second, 1), Reply::Page { next: Some(_), .. }));
    for shard in [0, 1] {
        let reply = piece(&store, first, shard);
        assert!(matches!(reply, Reply::Failed(EngineError::NoSnapshot { .. })), "shard {shard}: {reply:?}");
    }
}

/// Its region was to be as long as all records.
#[test]
fn more_than_the_region_holds_is_restored() {
    let place = place::directory();
    let (copy, restored) = (place.path().join("copy"), place.path().join("restored"));
    let store = filled(&place.path().join("data"), 1);
    for record in 0..20_000_u32 {
        store.put(&[&b"more"[..], &record.to_be_bytes()].concat(), &[8; 1000]).expect("a put");
    }
    store.backup(&copy).expect("a backup");
    stratakv::restore(&copy, &restored, &options(1)).expect("restored");
    let again = options(1).open(&restored).expect("opened");
    assert_eq!(again.region().map(|region| region.len_bytes), Some(8 * MIB));
    assert_eq!(again.len().expect("counted"), 26_000);
}
