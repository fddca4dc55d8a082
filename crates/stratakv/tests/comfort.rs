//! What makes the library pleasant: keys and values of any kind of bytes, ranges, turned scans,
//! times to live, errors that say when to come back.

use std::time::Duration;

use stratakv::{Error, ErrorKind, Expect, Expiry, Options, PutOptions, PutOutcome, Store, Ttl, Unmet, WriteBatch};

fn with_store(test: impl FnOnce(&Store)) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::builder().shards(3).open(directory.path().join("data")).expect("opened");
    test(&store);
    store.close().expect("closed");
}

fn keys(scan: stratakv::Scan) -> Vec<String> {
    scan.keys().map(|key| String::from_utf8(key.expect("a key").to_vec()).expect("text")).collect()
}

#[test]
fn keys_and_values_are_any_bytes() {
    with_store(|store| {
        store.put("text", String::from("owned")).expect("put");
        store.put(b"array", [1, 2, 3]).expect("put");
        store.put(vec![0xFF], bytes::Bytes::from_static(b"shared")).expect("put");
        store.put(String::from("owned"), [7_u8; 9].as_slice()).expect("put");
        let value = |key: &[u8]| store.get(key).expect("read").expect("there").to_bytes();
        assert_eq!((value(b"text"), value(b"array")), ("owned".into(), bytes::Bytes::from_static(&[1, 2, 3])));
        assert_eq!((value(&[0xFF]), value(b"owned").len()), ("shared".into(), 9));
        let mut batch = WriteBatch::new();
        batch.put("a", "1").delete(String::from("owned"));
        store.write(batch).expect("written");
        assert!(store.get("owned").expect("read").is_none() && store.get("a").expect("read").is_some());
    });
}

#[test]
fn ranges_have_the_bounds_that_they_show() {
    with_store(|store| {
        for key in ["a", "b", "c", "d", "da"] {
            store.put(key, key).expect("put");
        }
        assert_eq!(keys(store.range("b".."d")), ["b", "c"]);
        assert_eq!(keys(store.range("b"..="d")), ["b", "c", "d"]);
        assert_eq!(keys(store.range(.."b")), ["a"]);
        assert_eq!(keys(store.range("d"..)), ["d", "da"]);
        assert_eq!(keys(store.range::<&str>(..)), ["a", "b", "c", "d", "da"]);
        assert_eq!(keys(store.range("d".."b")), Vec::<String>::new());
        assert_eq!(store.delete_range("c"..="d").expect("deleted"), 2);
        assert_eq!(keys(store.iter()), ["a", "b", "da"]);
    });
}

#[test]
fn a_scan_turns_before_its_first_item_only() {
    with_store(|store| {
        for key in ["a", "b", "c"] {
            store.put(key, key.repeat(2)).expect("put");
        }
        assert_eq!(keys(store.iter().rev()), ["c", "b", "a"]);
        assert_eq!(keys(store.iter().rev().rev()), ["a", "b", "c"]);
        assert_eq!(keys(store.range("b"..).rev()), ["c", "b"]);
        let values: Vec<_> = store.iter().rev().records().map(|record| record.expect("read").to_bytes()).collect();
        assert_eq!(values, ["cc", "bb", "aa"]);

        let mut begun = store.iter();
        begun.next().expect("an item").expect("read");
        let mut turned = begun.rev();
        let error = turned.next().expect("an item").expect_err("too late");
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(turned.next().is_none(), "that is its only item");
        let mut begun = store.iter();
        begun.next().expect("an item").expect("read");
        let told: Vec<_> = begun.keys().collect();
        assert!(matches!(&told[..], [Err(_)]), "{told:?}");
    });
}

#[test]
fn a_ttl_counts_from_the_write_on() {
    with_store(|store| {
        let hour = PutOptions::new().ttl(Duration::from_secs(3600)).flags(7);
        store.put_with("k", "v", &hour).expect("put");
        let left = |key: &str| match store.ttl(key).expect("read") {
            Ttl::Left(left) => left.as_secs(),
            other => panic!("{other:?}"),
        };
        assert!((3_500..=3_600).contains(&left("k")), "{}", left("k"));
        assert_eq!(store.get("k").expect("read").expect("there").flags, 7);
        assert!(store.expire_in("k", Duration::from_secs(60)).expect("there"));
        assert!((50..=60).contains(&left("k")), "{}", left("k"));
        assert!(!store.expire_in("nobody", Duration::from_secs(60)).expect("answered"));
        // The later one of the two ways to say it holds.
        store.put_with("never", "v", &hour.expiry(Expiry::NEVER)).expect("put");
        assert_eq!(store.ttl("never").expect("read"), Ttl::Unlimited);
        // Longer than the store's clock goes on is as long as it goes.
        store.put_with("long", "v", &PutOptions::new().ttl(Duration::MAX)).expect("put");
        assert!(store.get("long").expect("read").is_some());
        store.put_with("gone", "v", &PutOptions::new().ttl(Duration::ZERO)).expect("put");
        assert!(store.get("gone").expect("read").is_none());

        let mut batch = WriteBatch::new();
        batch.put_with(store, "batched", "v", &hour);
        store.write(batch).expect("written");
        assert!((3_500..=3_600).contains(&left("batched")));
        store.transact(|txn| txn.put_with(store, "moved", "v", &hour).map(drop)).expect("done");
        assert!((3_500..=3_600).contains(&left("moved")));
    });
}

#[test]
fn an_unmet_condition_says_what_is_there() {
    with_store(|store| {
        let version = store.put("k", "v").expect("put");
        let unmet = |expect| match store.put_if("k", "w", expect).expect("answered") {
            PutOutcome::Unmet(unmet) => unmet,
            PutOutcome::Written { .. } => panic!("{expect:?} held"),
        };
        assert_eq!(unmet(Expect::Absent), Unmet::Present { version });
        assert_eq!(unmet(Expect::Version(version + 1)), Unmet::Version { found: version });
        assert_eq!(store.put_if("nobody", "w", Expect::Present).expect("answered"), PutOutcome::Unmet(Unmet::Absent));
    });
}

#[test]
fn errors_say_when_to_come_back() {
    with_store(|store| {
        let error = Store::open(store.path()).expect_err("it is open");
        assert_eq!((error.kind(), error.retry_after()), (ErrorKind::Locked, None), "waiting does not help: {error}");
        let error = store.put("", "v").expect_err("a bad key");
        assert_eq!(error.retry_after(), None);
        let busy = Error::from(stratakv::EngineError::Busy);
        assert!(busy.retry_after().is_some_and(|wait| wait < Duration::from_secs(1)));
        let conflict = Error::Conflict { attempts: 100, at: "k".into() };
        assert!(conflict.retry_after().is_some());
    });
    let locked = Error::Locked { path: "data".into(), holder: String::new() };
    assert_eq!(locked.retry_after(), Some(Duration::from_secs(1)));
    assert!(Options::new().read_only(true).open("/nonexistent").expect_err("none").retry_after().is_none());
}
