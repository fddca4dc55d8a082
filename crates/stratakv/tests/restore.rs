//! What a restore tells, and what it takes over from the store that was backed up.

use std::sync::{Arc, Mutex};

use stratakv::{Level, Options, Placement};

fn options() -> Options {
    Options::new().shards(2).memory_bytes(64 << 20).level(Level::ProcessCrash)
}

#[test]
fn a_restore_tells_how_far_it_is() {
    let place = tempfile::tempdir().unwrap();
    let (data, backup) = (place.path().join("data"), place.path().join("backup"));
    let store = options().open(&data).unwrap();
    for number in 0..400 {
        store.put(format!("key{number}").as_bytes(), [7; 10_000]).unwrap();
    }
    let bytes = store.backup(&backup).unwrap().bytes;
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let watched = options().progress(Arc::new(move |progress| telling.lock().unwrap().push(progress)));
    stratakv::restore(&backup, place.path().join("copy"), &watched).unwrap();
    let told = told.lock().unwrap();
    // Opening the new store may tell of nothing, which is all of it.
    let restoring: Vec<_> = told.iter().filter(|progress| progress.total_bytes == bytes).collect();
    assert!(restoring.len() >= 3, "{told:?}");
    assert!(restoring.iter().map(|progress| progress.done_bytes).is_sorted(), "{told:?}");
    assert!(restoring.iter().all(|progress| progress.done_bytes <= bytes), "{told:?}");
}

#[test]
fn a_new_store_is_in_place_and_a_restored_one_is_as_it_was() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    assert_eq!(options().open(path("new")).unwrap().placement(), Some(Placement::InPlace));
    let packed = options().placement(Placement::Packed).open(path("packed")).unwrap();
    packed.put(b"key", b"value").unwrap();
    packed.backup(path("backup")).unwrap();
    stratakv::restore(path("backup"), path("copy"), &options()).unwrap();
    let copy = options().create(false).open(path("copy")).unwrap();
    assert_eq!(copy.placement(), Some(Placement::Packed));
    assert!(copy.get(b"key").unwrap().is_some());
    let asked = options().placement(Placement::InPlace);
    stratakv::restore(path("backup"), path("other"), &asked).unwrap();
    assert_eq!(options().open(path("other")).unwrap().placement(), Some(Placement::InPlace));
}
