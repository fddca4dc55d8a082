//! Batches across shards and collections.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use stratakv::{
    Engine, ErrorKind, Expect, Expiry, Level, Options, PutOptions, PutOutcome, Record, Store, Unmet, WriteBatch,
};
use stratakv_integration::executor::block_on_all;
use stratakv_integration::place;

/// What can make a batch of several shards.
const ENGINES: [Engine; 2] = [Engine::Slab, Engine::Matrix];

fn open(path: &Path, engine: Engine) -> Store {
    let options = Options::new().engine(engine).shards(4).memory_bytes(128 << 20);
    let options = match engine {
        Engine::Matrix => options.region_bytes(32 << 20).level(Level::ProcessCrash),
        _ => options,
    };
    options.open(path).expect("the store opens")
}

fn number(record: Option<Record>) -> u64 {
    record.map_or(0, |record| String::from_utf8_lossy(&record.to_bytes()).parse().expect("digits"))
}

fn put_all(keys: u32, value: &str) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for key in 0..keys {
        batch.put(format!("key-{key}").as_bytes(), value.as_bytes());
    }
    batch
}

#[test]
fn a_batch_is_there_whole_after_reopening() {
    for engine in ENGINES {
        a_batch_is_there_whole_after_reopening_of(engine);
    }
}

fn a_batch_is_there_whole_after_reopening_of(engine: Engine) {
    let place = place::directory();
    let path = place.path().join("data");
    let store = open(&path, engine);
    let users = store.collection("users").expect("made");
    store.put(b"gone", b"x").expect("a put");
    let large = vec![7; 200_000];
    let mut batch = put_all(20, "1");
    batch.put_in(&users, b"key-1", b"ada").put(b"large", &large).delete(b"gone").delete(b"never");
    let expiring = PutOptions { flags: 5, expiry: Expiry::MAX, ..PutOptions::default() };
    batch.put_with(&users, b"flagged", b"f", &expiring);
    assert_eq!(batch.len(), 25);
    assert!(matches!(store.write(batch), Ok(PutOutcome::Written { version }) if version > 0));
    let look = |store: &Store, users: &stratakv::Collection| {
        assert!((0..20).all(|key| number(store.get(format!("key-{key}").as_bytes()).expect("a get")) == 1));
        assert_eq!(store.get(b"large").expect("a get").map(|record| record.to_bytes().to_vec()), Some(large.clone()));
        assert!(store.get(b"gone").expect("a get").is_none());
        assert_eq!(users.get(b"key-1").expect("a get").map(|record| record.to_bytes()), Some("ada".into()));
        let flagged = users.get(b"flagged").expect("a get").expect("it is there");
        assert_eq!((flagged.flags, flagged.expiry), (5, Expiry::MAX));
        let scanned = store.prefix(b"key-").map(|item| item.expect("an item").0).collect::<Vec<_>>();
        assert_eq!(scanned.len(), 20);
    };
    // At once, while it is still being carried out, and later.
    look(&store, &users);
    drop(users);
    store.close().expect("closed");
    let store = open(&path, engine);
    look(&store, &store.collection("users").expect("there"));
    assert!(store.recovery().clean && store.recovery().corrupt.is_empty());
}

#[test]
fn a_condition_that_does_not_hold_stops_the_whole_batch() {
    for engine in ENGINES {
        a_condition_that_does_not_hold_stops_the_whole_batch_of(engine);
    }
}

fn a_condition_that_does_not_hold_stops_the_whole_batch_of(engine: Engine) {
    let place = place::directory();
    let store = open(&place.path().join("data"), engine);
    let version = store.put(b"key-0", b"1").expect("a put");
    let mut batch = put_all(10, "2");
    batch.put_with(&store, b"key-0", b"2", &PutOptions { expect: Expect::Absent, ..PutOptions::default() });
    assert_eq!(store.write(batch).expect("answered"), PutOutcome::Unmet(Unmet::Present { version }));
    assert!((1..10).all(|key| store.get(format!("key-{key}").as_bytes()).expect("a get").is_none()));
    let mut batch = put_all(10, "2");
    batch.delete_if(&store, b"key-0", Expect::Version(version));
    assert!(matches!(store.write(batch), Ok(PutOutcome::Written { .. })));
    assert!((1..10).all(|key| number(store.get(format!("key-{key}").as_bytes()).expect("a get")) == 2));
    assert!(store.get(b"key-0").expect("a get").is_none());
    // What was refused holds no key up.
    assert!(store.put(b"key-0", b"3").expect("a put") > version);
}

#[test]
fn bad_batches_are_refused() {
    for engine in ENGINES {
        bad_batches_are_refused_of(engine);
    }
}

fn bad_batches_are_refused_of(engine: Engine) {
    let place = place::directory();
    let store = open(&place.path().join("data"), engine);
    assert_eq!(store.write(WriteBatch::new()).expect("done"), PutOutcome::Written { version: 0 });
    let mut batch = put_all(3, "1");
    batch.put(b"", b"x");
    assert_eq!(store.write(batch).expect_err("a bad key").kind(), ErrorKind::Usage);
    let mut batch = WriteBatch::new();
    for key in 0..3 {
        batch.put([key], vec![0; 30 << 20]);
    }
    let error = store.write(batch).expect_err("too large");
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.to_string().contains("in parts"), "{error}");
    assert!(store.get(b"key-0").expect("a get").is_none());
}

/// Money moves between accounts; whoever reads one account with the money of a transfer sees it
/// gone from the other. Here: all keys of a batch carry its number, so keys read one after another
/// never show an earlier number after a later one.
#[test]
fn readers_never_see_half_of_a_batch() {
    for engine in ENGINES {
        readers_never_see_half_of_a_batch_of(engine);
    }
}

fn readers_never_see_half_of_a_batch_of(engine: Engine) {
    let place = place::directory();
    let store = open(&place.path().join("data"), engine);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|start| {
                let (store, stop) = (&store, &stop);
                scope.spawn(move || {
                    let mut last = 0;
                    for at in (start..).step_by(1) {
                        let seen = number(store.get(format!("key-{}", at % 8).as_bytes()).expect("a get"));
                        assert!(seen >= last, "{seen} after {last}");
                        last = seen;
                        if stop.load(Ordering::Relaxed) {
                            return last;
                        }
                    }
                    last
                })
            })
            .collect();
        for round in 1..=100 {
            store.write(put_all(8, &round.to_string())).expect("written");
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| assert!(reader.join().expect("no reader sees half") > 0));
    });
}

#[test]
fn batches_that_share_keys_do_not_wait_for_one_another_for_ever() {
    for engine in ENGINES {
        batches_that_share_keys_do_not_wait_for_one_another_for_ever_of(engine);
    }
}

fn batches_that_share_keys_do_not_wait_for_one_another_for_ever_of(engine: Engine) {
    let place = place::directory();
    let store = open(&place.path().join("data"), engine);
    thread::scope(|scope| {
        for thread in 0..4u32 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..15 {
                    let mut batch = WriteBatch::new();
                    for at in 0..6 {
                        // Every thread in another order, and single writes between them.
                        let key = format!("key-{}", (at * (thread + 1) + thread + round) % 7);
                        batch.put(key.as_bytes(), thread.to_string().as_bytes());
                    }
                    store.write(batch).expect("written");
                    store.increment(format!("count-{}", round % 3).as_bytes(), 1).expect("counted");
                }
            });
        }
    });
    let counts: u64 = (0..3).map(|at| number(store.get(format!("count-{at}").as_bytes()).expect("a get"))).sum();
    assert_eq!(counts, 60);
}

#[test]
fn futures_and_many_at_once() {
    for engine in ENGINES {
        futures_and_many_at_once_of(engine);
    }
}

fn futures_and_many_at_once_of(engine: Engine) {
    let place = place::directory();
    let store = open(&place.path().join("data"), engine);
    let batches = (0..30).map(|round: u32| store.write_async(put_all(4 + round % 3, &round.to_string()))).collect();
    assert!(block_on_all(batches).into_iter().all(|done| matches!(done, Ok(PutOutcome::Written { .. }))));
    let stats = store.stats();
    let batches = stats.iter().find(|one| one.name == "batches").map(|one| one.value);
    assert_eq!(batches, Some(30));
}
