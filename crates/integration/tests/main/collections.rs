//! Key spaces of their own, ranges, and fetch-and-update.

use std::ops::Bound;
use std::path::Path;
use std::thread;

use stratakv::{Collection, ErrorKind, Expect, Level, Next, Options, ScanOptions, Store};
use stratakv_integration::executor::block_on_all;
use stratakv_integration::place;

fn open(path: &Path) -> Store {
    Options::new().shards(3).memory_bytes(96 << 20).level(Level::ProcessCrash).open(path).expect("the store opens")
}

fn keys(collection: &Collection) -> Vec<String> {
    let items = collection.scan(ScanOptions::all().keys_only()).map(|item| item.expect("a key").0);
    items.map(|key| String::from_utf8_lossy(&key).into_owned()).collect()
}

fn text(collection: &Collection, key: &[u8]) -> Option<String> {
    let record = collection.get(key).expect("a get")?;
    Some(String::from_utf8_lossy(&record.to_bytes()).into_owned())
}

#[test]
fn a_collection_keeps_its_keys_to_itself() {
    let place = place::directory();
    let path = place.path().join("data");
    let store = open(&path);
    let (users, orders) = (store.collection("users").expect("made"), store.collection("orders").expect("made"));
    for (collection, value) in [(&*store, "plain"), (&users, "user"), (&orders, "order")] {
        collection.put(b"1", value.as_bytes()).expect("a put");
    }
    users.put(b"2", b"other").expect("a put");
    assert_eq!((text(&store, b"1"), text(&users, b"1")), (Some("plain".into()), Some("user".into())));
    assert_eq!(
        (keys(&store), keys(&users), keys(&orders)),
        (vec!["1".into()], vec!["1".into(), "2".into()], vec!["1".into()])
    );
    assert_eq!(store.collections().expect("names"), ["orders", "users"]);
    drop((users, orders));
    store.close().expect("closed");
    let store = open(&path);
    assert_eq!(store.collections().expect("names"), ["orders", "users"]);
    let users = store.existing_collection("users").expect("found").expect("it is there");
    assert_eq!(keys(&users), ["1", "2"]);
    assert!(store.existing_collection("nobody").expect("looked up").is_none());
    for name in [String::new(), "n".repeat(256)] {
        assert_eq!(store.collection(&name).expect_err("a bad name").kind(), ErrorKind::Usage);
    }
}

#[test]
fn a_dropped_collection_is_gone_and_its_name_begins_anew() {
    let place = place::directory();
    let path = place.path().join("data");
    let store = open(&path);
    let old = store.collection("c").expect("made");
    for number in 0..500u32 {
        old.put(number.to_be_bytes(), b"v").expect("a put");
    }
    assert!(store.drop_collection("c").expect("dropped"));
    assert!(!store.drop_collection("c").expect("answered"), "there is none any more");
    assert_eq!(store.collections().expect("names"), Vec::<String>::new());
    // Somebody still has a handle.
    let error = old.put(b"late", b"v").expect_err("it is gone");
    assert!(error.to_string().contains("was dropped"), "{error}");
    let new = store.collection("c").expect("made");
    assert_ne!(new.id(), old.id());
    assert_eq!(keys(&new), Vec::<String>::new());
    new.put(b"k", b"v").expect("a put");
    drop((old, new));
    let records = |store: &Store| store.stats().iter().find(|s| s.name == "records").map(|s| s.value);
    store.close().expect("closed");
    let store = open(&path);
    // `k`; the catalogue is not counted.
    assert_eq!(records(&store), Some(1));
    assert_eq!(keys(&store.collection("c").expect("there")), ["k"]);
}

#[test]
fn threads_that_make_one_collection_get_the_same() {
    let place = place::directory();
    let store = open(&place.path().join("data"));
    let make = || (0..20).map(|n| store.collection(&format!("c{n}")).expect("made").id()).collect::<Vec<_>>();
    let ids: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "{ids:?}");
    let mut all = ids[0].clone();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 20);
}

#[test]
fn ranges_and_prefixes_are_deleted_within_their_collection() {
    let place = place::directory();
    let store = open(&place.path().join("data"));
    let users = store.collection("users").expect("made");
    for collection in [&*store, &users] {
        for name in ["a", "b1", "b2", "b\u{ff}", "c", "d"] {
            collection.put(name.as_bytes(), b"v").expect("a put");
        }
    }
    assert_eq!(users.delete_prefix(b"b").expect("deleted"), 3);
    assert_eq!(users.delete_range::<&str>((Bound::Excluded("a"), Bound::Included("c"))).expect("deleted"), 1);
    assert_eq!(keys(&users), ["a", "d"]);
    assert_eq!(block_on_all(vec![users.delete_prefix_async(b"")]).remove(0).expect("deleted"), 2);
    assert_eq!(keys(&store).len(), 6);
    let range = store.delete_range_async(.."b2");
    assert_eq!(block_on_all(vec![range]).remove(0).expect("deleted"), 2);
    assert_eq!(keys(&store), ["b2", "b\u{ff}", "c", "d"]);
    assert_eq!(store.collections().expect("names"), ["users"], "the catalogue is no part of the default collection");
}

#[test]
fn fetch_and_update_loses_nothing_between_threads() {
    let place = place::directory();
    let store = open(&place.path().join("data"));
    let add = |before: Option<&stratakv::Record>| {
        let number: u64 =
            before.map_or(0, |record| String::from_utf8_lossy(&record.to_bytes()).parse().expect("digits"));
        Next::value((number + 1).to_string())
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    store.fetch_update(b"closure", add).expect("updated");
                    store.increment(b"counter", 2).expect("counted");
                }
            });
        }
    });
    assert_eq!((text(&store, b"closure"), text(&store, b"counter")), (Some("200".into()), Some("400".into())));
    let updated = block_on_all(vec![store.fetch_update_async(b"closure", add)]).remove(0).expect("updated");
    assert_eq!(updated.before.map(|record| record.to_bytes()), Some("200".into()));
    let kept = store.fetch_update(b"closure", |_| Next::Keep).expect("answered");
    assert_eq!(kept.version, None);
    assert!(store.fetch_update(b"closure", |_| Next::Delete).expect("deleted").version.is_some());
    assert_eq!(text(&store, b"closure"), None);
    assert_eq!(store.fetch_update(b"closure", |_| Next::Delete).expect("answered").version, None);
    assert_eq!(store.decrement(b"counter", 500).expect("counted"), 0);
    assert_eq!(store.decrement(b"none", 5).expect("counted"), 0);
    store.put_if(b"word", b"x", Expect::Absent).expect("a put");
    let error = store.increment(b"word", 1).expect_err("no number");
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.to_string().contains("`word`"), "{error}");
}
