//! What the store tells of itself.

use std::sync::{Arc, Mutex};

use stratakv::{ErrorKind, Level, Options, Placement, StoreEvent};
use stratakv_integration::place;

/// The options, and what a store opened with them tells.
fn listening(options: Options) -> (Options, Arc<Mutex<Vec<StoreEvent>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    let watch = Arc::new(move |event: &StoreEvent| sink.lock().expect("no panic").push(event.clone()));
    (options.on_event(watch), told)
}

#[test]
fn what_happens_is_told_in_order() {
    let place = place::directory();
    let path = place.path().join("data");
    let options = Options::new().shards(1).level(Level::ProcessCrash).memory_bytes(64 << 20);
    let (options, told) = listening(options.capacity_bytes(8 << 20));
    let store = options.open(&path).expect("created");
    let mut key = 0u32;
    let error = loop {
        match store.put(key.to_be_bytes(), [1; 60_000]) {
            Ok(_) => key += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Full);
    assert_eq!(store.put(b"again", [1; 60_000]).expect_err("full").kind(), ErrorKind::Full);
    let full = |name: &str| store.stats().iter().find(|one| one.name == name).map(|one| one.value);
    assert_eq!(full("full"), Some(1));
    (0..key / 2).for_each(|key| assert!(store.delete(key.to_be_bytes()).expect("a delete")));
    store.put(b"fits", [1; 60_000]).expect("there is room");
    assert_eq!(full("full"), Some(0));
    assert!(store.shard_stats(0).iter().any(|one| one.name == "records" && one.value > 0));
    store.close().expect("closed");
    drop(store);
    let told = told.lock().expect("no panic");
    let mut names: Vec<String> =
        told.iter().map(|event| format!("{event:?}").split([' ', '{']).next().unwrap_or_default().to_owned()).collect();
    // It may grow in more than one step.
    names.dedup();
    assert_eq!(names, ["Opened", "Grew", "Full", "Room", "Closed"], "{told:?}");
}

/// It takes longer, and loses nothing; but whoever runs the store should know why it took longer.
#[test]
fn an_opening_that_cannot_use_a_damaged_checkpoint_is_told_with_the_reason() {
    let place = place::directory();
    let path = place.path().join("data");
    let options = Options::new().shards(1).placement(Placement::Packed).level(Level::ProcessCrash);
    let (options, told) = listening(options.memory_bytes(64 << 20).capacity_bytes(16 << 20));
    let store = options.clone().open(&path).expect("created");
    for key in 0..5000_u32 {
        store.put(key.to_be_bytes(), [1; 1000]).expect("there is room");
    }
    store.close().expect("closed");
    drop(store);
    let volume = path.join("shard-000.vol");
    let mut bytes = std::fs::read(&volume).expect("read");
    // All there are: a slow machine may have written one before the last.
    let chunks: Vec<usize> = (0..bytes.len()).step_by(4096).filter(|at| bytes[*at..].starts_with(b"SPCK")).collect();
    assert!(!chunks.is_empty(), "there is no checkpoint");
    chunks.iter().for_each(|chunk| bytes[*chunk + 100] ^= 1);
    std::fs::write(&volume, bytes).expect("written");
    told.lock().expect("no panic").clear();
    let store = options.open(&path).expect("opened");
    assert!((0..5000_u32).all(|key| store.get(key.to_be_bytes()).expect("read").is_some()));
    let told = told.lock().expect("no panic");
    assert!(matches!(&told[0], StoreEvent::Opened { .. }), "{told:?}");
    let why: Vec<String> =
        told.iter().filter(|event| matches!(event, StoreEvent::ReadInFull { .. })).map(ToString::to_string).collect();
    assert_eq!(why, ["all of shard 0 was read to open it: the chunks of a checkpoint do not check"]);
}
