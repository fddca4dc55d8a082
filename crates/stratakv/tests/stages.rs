//! What operations are said to wait for, by each engine that lets them wait.

use std::path::Path;

use stratakv::{Engine, Level, MeasuredKind, Options, Placement, Stage, Store};

const RECORDS: u32 = 2000;

fn count(store: &Store, kind: MeasuredKind, stage: Stage) -> u64 {
    store.stages(kind).stages[stage as usize].count()
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

/// Puts records, closes the store, and gets every one from a store that has nothing in memory.
fn get_from_the_volume(options: &Options, directory: &Path) -> Store {
    let store = options.clone().open(directory).unwrap();
    for number in 0..RECORDS {
        store.put(key(number), vec![7; 4000]).unwrap();
    }
    store.close().unwrap();
    drop(store);
    let store = options.clone().open(directory).unwrap();
    for number in 0..RECORDS {
        assert!(store.get(key(number)).unwrap().is_some());
    }
    store
}

#[test]
fn gets_wait_for_reads_and_writes_for_their_group() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().shards(1).memory_bytes(64 << 20);
    for placement in [Placement::InPlace, Placement::Packed] {
        let path = directory.path().join(format!("{placement:?}"));
        let store = get_from_the_volume(&options.clone().placement(placement), &path);
        let get = store.stages(MeasuredKind::Get);
        assert_eq!(get.answered, u64::from(RECORDS) / 16, "{placement:?}: one in sixteen");
        assert!(count(&store, MeasuredKind::Get, Stage::Read) > 0, "{placement:?}");
        assert_eq!(count(&store, MeasuredKind::Get, Stage::Write), 0, "{placement:?}");
        for number in 0..64 {
            store.put(key(number), vec![8; 4000]).unwrap();
        }
        assert!(count(&store, MeasuredKind::Write, Stage::Write) > 0, "{placement:?}");
        // A large value is written before its group is.
        let before = count(&store, MeasuredKind::Write, Stage::Write);
        for number in 0..16 {
            store.put(key(number), vec![8; 300_000]).unwrap();
        }
        assert!(count(&store, MeasuredKind::Write, Stage::Write) > before, "{placement:?}");
        store.close().unwrap();
    }
}

#[test]
fn gets_of_matrix_wait_for_reads_of_tables() {
    let directory = tempfile::tempdir().unwrap();
    // A region that holds a part of the records only.
    let options = Options::new().engine(Engine::Matrix).shards(1).region_bytes(64 << 20).memory_bytes(64 << 20);
    let options = options.region_path(directory.path().join("region")).level(Level::ProcessCrash);
    let path = directory.path().join("matrix");
    let store = options.clone().open(&path).unwrap();
    for number in 0..40_000 {
        store.put(key(number), vec![7; 4000]).unwrap();
    }
    store.close().unwrap();
    drop(store);
    let store = options.open(&path).unwrap();
    for number in 0..RECORDS {
        assert!(store.get(key(number * 17)).unwrap().is_some());
    }
    assert!(count(&store, MeasuredKind::Get, Stage::Read) > 0);
    store.close().unwrap();
}
