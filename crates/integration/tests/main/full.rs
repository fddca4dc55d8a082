//! A store at its capacity: writes fail, reads and deletes go on, and there is a way back. Full
//! disks are in `scenarios`.

use stratakv::{Engine, ErrorKind, Level, Options};
use stratakv_integration::{place, value};

const LEN: usize = 50_000;

#[test]
fn a_store_at_its_capacity_recovers_once_there_is_room() {
    let place = place::directory();
    let options = Options::new().shards(2).memory_bytes(64 << 20).capacity_bytes(48 << 20).level(Level::ProcessCrash);
    let store = options.open(place.path().join("data")).expect("created");
    let name = |key: u64| format!("key{key}").into_bytes();
    let mut stored = 0;
    let error = loop {
        match store.put(name(stored), value::encode(stored, 1, LEN)) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 2000, "the capacity does not hold");
    };
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(stored > 400, "only {stored} values of {LEN} bytes fit 48 MiB");
    let whole = |key: u64| {
        let record = store.get(name(key)).expect("reads go on").expect("it was acknowledged");
        assert_eq!(value::decode(key, &record.to_bytes()), Ok(1));
    };
    (0..stored).for_each(whole);
    assert!(store.get(name(stored)).expect("reads go on").is_none(), "the refused write left nothing");
    for round in 0..3 {
        for key in 0..stored / 2 {
            assert!(store.delete(name(key)).expect("deletes go on"), "round {round}");
        }
        for key in 0..stored / 2 {
            let again = store.put(name(key), value::encode(key, 1, LEN));
            again
                .unwrap_or_else(|error| panic!("round {round}, key {key}: the freed space is not used again: {error}"));
        }
    }
    store.close().expect("closed");
    let store = options.open(place.path().join("data")).expect("a full store opens");
    for key in 0..stored {
        let record = store.get(name(key)).expect("a get").expect("it was acknowledged");
        assert_eq!(value::decode(key, &record.to_bytes()), Ok(1));
    }
}

/// In a full store of engine `matrix` half of what each value file held is dead. All that one table
/// has there found no room at once, so nothing was moved, and the store stayed full.
#[test]
fn half_dead_value_files_give_their_room_back_though_all_of_them_find_none_at_once() {
    let place = place::directory();
    let options = Options::new().engine(Engine::Matrix).region_bytes(8 << 20).memory_bytes(64 << 20);
    let options = options.capacity_bytes(24 << 20).level(Level::ProcessCrash);
    let store = options.open(place.path().join("data")).expect("created");
    let name = |key: u64| format!("key{key}").into_bytes();
    let put = |key: u64| store.put(name(key), value::encode(key, 1, LEN)).map(|_| ());
    let stored = (0..2000).take_while(|key| put(*key).is_ok()).count() as u64;
    let deleted: Vec<u64> = (0..stored).step_by(2).collect();
    for key in &deleted {
        assert!(store.delete(name(*key)).expect("deletes go on"));
    }
    let again = deleted.iter().take_while(|key| put(**key).is_ok()).count();
    assert!(again * 2 > deleted.len(), "of {} values that were deleted {again} find room again", deleted.len());
    store.close().expect("closed");
}
