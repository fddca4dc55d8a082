//! Collections in an order of the user's own: everything a collection does, in that order; and what
//! is wrong with orders is told.

use std::ops::Bound;
use std::path::Path;

use stratakv::raw::{Change, ChangeKind, Operation, RecordPart, Reply};
use stratakv::{
    Collection, Commit, Error, ErrorKind, Expect, Expiry, Level, Next, Options, Order, OrderError, PutOptions,
    PutOutcome, Scan, ScanOptions, Store, Ttl, WriteBatch,
};
use stratakv_integration::engine::Engine;
use stratakv_integration::executor::block_on_all;
use stratakv_integration::place;

fn options(engine: Engine) -> Options {
    let options = engine.options().memory_bytes(96 << 20).level(Level::ProcessCrash);
    options.shards(if engine == Engine::Slab { 3 } else { 1 })
}

/// Words by their length, big-endian, so that sort keys are full of zeros.
fn by_length() -> Order {
    Order::new("by-length", |key| (key.len() as u32).to_be_bytes().to_vec())
}

/// The same name, another function.
fn by_length_changed() -> Order {
    Order::new("by-length", |key| (key.len() as u16).to_be_bytes().to_vec())
}

fn open(engine: Engine, path: &Path) -> Store {
    options(engine).order(by_length()).open(path).expect("the store opens")
}

fn keys(scan: Scan) -> Vec<String> {
    scan.map(|item| String::from_utf8_lossy(&item.expect("an item").0).into_owned()).collect()
}

fn pairs(scan: Scan) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    scan.map(|item| item.expect("an item")).map(|(key, record)| (text(&key), text(&record.to_bytes()))).collect()
}

fn text(collection: &Collection, key: &str) -> Option<String> {
    let record = collection.get(key.as_bytes()).expect("a get")?;
    Some(String::from_utf8_lossy(&record.to_bytes()).into_owned())
}

const WORDS: [&str; 7] = ["a", "b", "ab", "ba", "aaa", "baa", "aaaa"];

/// A collection with those words, put in another order.
fn words(store: &Store) -> Collection {
    let words = store.collection_in_order("words", "by-length").expect("made");
    for word in ["baa", "a", "aaaa", "ba", "b", "aaa", "ab"] {
        words.put(word.as_bytes(), word.as_bytes()).expect("a put");
    }
    words
}

fn order_error<T>(result: Result<T, Error>) -> OrderError {
    match result.err() {
        Some(Error::Order(error)) => error,
        other => panic!("an error of the order is expected, not {other:?}"),
    }
}

#[test]
fn scans_and_ranges_are_in_the_order() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        let words = words(&store);
        assert_eq!(words.order(), Some("by-length"));
        assert_eq!(keys(words.scan(ScanOptions::all())), WORDS);
        assert_eq!(keys(words.scan(ScanOptions::all().keys_only())), WORDS);
        let backwards: Vec<&str> = WORDS.into_iter().rev().collect();
        assert_eq!(keys(words.scan(ScanOptions::all().reverse())), backwards);
        assert_eq!(keys(words.scan(ScanOptions::all().reverse().keys_only())), backwards);
        for (key, value) in pairs(words.scan(ScanOptions::all())) {
            assert_eq!(key, value);
        }
        let range = |from: Bound<&str>, to: Bound<&str>| {
            let range = ScanOptions::range::<&str>((from, to));
            let (there, back) = (keys(words.scan(range.clone())), keys(words.scan(range.reverse())));
            assert!(there.iter().eq(back.iter().rev()), "{there:?} {back:?}");
            there
        };
        // Bounds that are there, and bounds that are not: "zz" comes after all words of two
        // letters.
        assert_eq!(range(Bound::Included("b"), Bound::Excluded("aaa")), ["b", "ab", "ba"]);
        assert_eq!(range(Bound::Excluded("b"), Bound::Included("aaa")), ["ab", "ba", "aaa"]);
        assert_eq!(range(Bound::Included("zz"), Bound::Unbounded), ["aaa", "baa", "aaaa"]);
        assert_eq!(range(Bound::Unbounded, Bound::Included("zz")), ["a", "b", "ab", "ba"]);
        assert_eq!(range(Bound::Included("aaaa"), Bound::Excluded("a")), Vec::<String>::new());
        assert_eq!(range(Bound::Included(""), Bound::Included("a")), ["a"], "the empty key is before all");
        assert_eq!(range(Bound::Unbounded, Bound::Included("")), Vec::<String>::new());
        let sorted = |prefix: &[u8]| keys(words.scan(ScanOptions::sort_prefix(prefix)));
        assert_eq!(sorted(b"\0\0\0\x02"), ["ab", "ba"]);
        assert_eq!(
            (sorted(b"\0\0\0"), sorted(b"")),
            (WORDS.map(String::from).to_vec(), WORDS.map(String::from).to_vec())
        );
        assert_eq!(sorted(b"\0\0\0\x02a"), Vec::<String>::new(), "a sort key, not a key");
        assert_eq!(keys(words.prefix(b"")), WORDS);
        assert_eq!(words.len().expect("counted"), 7);
        assert!(!words.is_empty().expect("looked at"));
        let deleted = words.delete_range::<&str>((Bound::Excluded("b"), Bound::Included("baa"))).expect("deleted");
        assert_eq!((deleted, keys(words.prefix(b""))), (4, vec!["a".into(), "b".into(), "aaaa".into()]));
        let rest = words.delete_range_async("b"..);
        assert_eq!(block_on_all(vec![rest]).remove(0).expect("deleted"), 2);
        assert_eq!(words.delete_prefix(b"").expect("emptied"), 1);
        assert!(words.is_empty().expect("looked at"));
        // In the order of bytes the key is the sort key.
        let plain = store.collection("plain").expect("made");
        for word in WORDS {
            plain.put(word.as_bytes(), b"v").expect("a put");
        }
        assert_eq!(plain.order(), None);
        assert_eq!(keys(plain.scan(ScanOptions::sort_prefix(b"b"))), ["b", "ba", "baa"]);
    }
}

#[test]
fn prefixes_of_keys_are_refused_with_what_to_ask_instead() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        let words = words(&store);
        for options in [ScanOptions::prefix(b"a"), ScanOptions::prefix(b"a").keys_only().reverse()] {
            let mut scan = words.scan(options);
            let error = order_error(scan.next().expect("an error"));
            assert!(matches!(&error, OrderError::Prefix { prefix, .. } if prefix == "a"), "{error}");
            assert!(error.to_string().contains("sort_prefix") && error.to_string().contains("`words`"), "{error}");
            assert!(scan.next().is_none(), "and nothing after it");
        }
        assert!(matches!(order_error(words.delete_prefix(b"a")), OrderError::Prefix { .. }));
        let later = block_on_all(vec![words.delete_prefix_async(b"a")]).remove(0);
        assert!(matches!(order_error(later), OrderError::Prefix { .. }));
        assert_eq!(words.len().expect("counted"), 7, "nothing was deleted");
    }
}

#[test]
fn points_are_found_where_the_order_put_them() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        let words = words(&store);
        assert_eq!(text(&words, "ab"), Some("ab".into()));
        assert_eq!(text(&words, "bb"), None);
        let found = words.multi_get(&["aaa", "nobody", "b"]).expect("read");
        let found: Vec<_> = found.into_iter().map(|record| record.map(|record| record.to_bytes())).collect();
        assert_eq!(found, [Some("aaa".into()), None, Some("b".into())]);
        assert!(words.delete(b"ab").expect("deleted") && !words.delete(b"ab").expect("answered"));
        assert!(matches!(words.put_if(b"a", b"2", Expect::Absent).expect("answered"), PutOutcome::Unmet(_)));
        assert_eq!(words.increment(b"count", 5).expect("counted"), 5);
        assert_eq!(words.decrement(b"count", 2).expect("counted"), 3);
        assert!(words.append(b"b", "++").expect("appended").is_some());
        words.fetch_update(b"ba", |before| Next::value(before.expect("there").to_bytes())).expect("updated");
        words.fetch_update(b"new", |before| Next::value(if before.is_none() { "made" } else { "?" })).expect("updated");
        let error = words.increment(b"aaaa", 1).expect_err("no number").to_string();
        assert!(error.contains("`aaaa`"), "{error}");
        let late = Expiry(store.wall().0 + 5_000_000);
        assert!(words.expire(b"baa", late).expect("set"));
        assert!(matches!(words.ttl(b"baa").expect("told"), Ttl::Left(_)));
        let futures = vec![words.get_async("baa"), words.get_async("ab")];
        let found: Vec<bool> = block_on_all(futures).into_iter().map(|got| got.expect("read").is_some()).collect();
        assert_eq!(found, [true, false]);
        block_on_all(vec![words.put_async(b"later", b"v")]).remove(0).expect("put");
        let (expire, now) = (PutOptions { expiry: Expiry(1), ..PutOptions::default() }, words.get(b"a").expect("read"));
        words.put_with(b"a", b"gone", &expire).expect("put");
        assert!(now.is_some() && words.get(b"a").expect("read").is_none());
        let all: Vec<(String, String)> = pairs(words.scan(ScanOptions::all()));
        let expected = [
            ("b", "b++"),
            ("ba", "ba"),
            ("aaa", "aaa"),
            ("baa", "baa"),
            ("new", "made"),
            ("aaaa", "aaaa"),
            ("count", "3"),
            ("later", "v"),
        ];
        assert_eq!(all, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }
}

#[test]
fn batches_and_transactions_go_through_the_order() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        let words = words(&store);
        let plain = store.collection("plain").expect("made");
        let mut batch = WriteBatch::new();
        batch
            .put_in(&words, b"cc", b"1")
            .delete_in(&words, b"a")
            .put_in(&plain, b"cc", b"2")
            .put_in(&words, b"cc", b"3");
        batch.delete_if(&words, b"b", Expect::Present);
        store.write(batch.clone()).expect("written");
        assert_eq!(keys(words.scan(ScanOptions::all())), ["ab", "ba", "cc", "aaa", "baa", "aaaa"]);
        assert_eq!((text(&words, "cc"), text(&plain, "cc")), (Some("3".into()), Some("2".into())));
        assert!(matches!(store.write(batch).expect("answered"), PutOutcome::Unmet(_)), "b is gone by now");

        let mut txn = store.transaction();
        assert!(txn.get(&words, b"ab").expect("read").is_some());
        txn.put(&words, b"ab", b"mine").expect("kept");
        txn.put(&words, b"dd", b"mine").expect("kept");
        assert_eq!(txn.get(&words, b"dd").expect("read").map(|record| record.to_bytes()), Some("mine".into()));
        assert!(matches!(txn.commit().expect("committed"), Commit::Done { .. }));
        assert_eq!((text(&words, "ab"), text(&words, "dd")), (Some("mine".into()), Some("mine".into())));

        // A conflict tells the key as it was given.
        let mut txn = store.transaction();
        txn.get(&plain, b"cc").expect("read");
        txn.get(&words, b"ba").expect("read");
        txn.put(&words, b"ee", b"never").expect("kept");
        words.put(b"ba", b"theirs").expect("a put");
        match txn.commit().expect("answered") {
            Commit::Conflict { key: Some(key) } => assert_eq!((key.collection(), key.user()), (words.id(), &b"ba"[..])),
            other => panic!("{other:?}"),
        }
        assert_eq!(text(&words, "ee"), None);
        let error = store.transact(|txn| {
            txn.get(&words, b"aaa")?;
            words.put(b"aaa", b"again")?;
            txn.put(&words, b"ff", b"v")
        });
        let error = error.expect_err("always a conflict").to_string();
        assert!(error.contains("`aaa` of collection"), "{error}");
    }
}

/// What is below the library's calls: operations, sessions, all records in no order.
#[test]
fn operations_and_walks_show_the_keys_that_were_given() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        let words = words(&store);
        let gone = store.collection_in_order("gone", "by-length").expect("made");
        store.put(b"plain", b"v").expect("a put");
        let key = words.key(b"ab").expect("a key");
        match store.execute(Operation::Get { key: key.clone(), part: RecordPart::Whole }) {
            Reply::Record(Some(record)) => assert_eq!(record.value.to_bytes(), "ab"),
            other => panic!("{other:?}"),
        }
        assert_eq!(words.user_key(&key).expect("a key of it"), "ab");
        let mut session = store.session().expect("a session");
        let kind = ChangeKind::Put { value: "by a session".into(), flags: 0, expiry: Expiry::NEVER };
        let change = Change { key, expect: Expect::Present, kind };
        session.submit(Operation::Write { changes: vec![change], level: Level::ProcessCrash });
        while session.in_flight() > 0 {
            for (_, reply) in session.poll(1).expect("polled") {
                assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
            }
        }
        drop(session);
        assert_eq!(text(&words, "ab"), Some("by a session".into()));
        gone.put(b"here", b"v").expect("a put");
        let mut seen = Vec::new();
        let walk = |store: &Store, seen: &mut Vec<(u32, String)>| {
            store.for_each(|id, key, _| {
                seen.push((id.0, String::from_utf8_lossy(key).into_owned()));
                Ok::<(), Error>(())
            })
        };
        walk(&store, &mut seen).expect("walked");
        for word in WORDS {
            assert!(seen.contains(&(words.id().0, word.to_owned())), "{seen:?}");
        }
        assert!(seen.contains(&(gone.id().0, "here".into())) && seen.contains(&(0, "plain".into())), "{seen:?}");
        // The function is not needed, nor that anybody looked the collection up.
        drop((words, gone));
        store.close().expect("closed");
        let store = options(engine).open(place.path().join("data")).expect("opened without the order");
        let mut again = Vec::new();
        walk(&store, &mut again).expect("walked");
        seen.sort();
        again.sort();
        assert_eq!(again, seen);
    }
}

/// Only engine `hash` has snapshots.
#[test]
fn a_snapshot_keeps_the_order() {
    let place = place::directory();
    let store = open(Engine::Hash, &place.path().join("data"));
    let words = words(&store);
    let snapshot = store.snapshot().expect("a snapshot");
    words.delete(b"ab").expect("deleted");
    words.put(b"b", b"new").expect("a put");
    words.put(b"zz", b"new").expect("a put");
    let seen = pairs(snapshot.scan(&words, ScanOptions::all()));
    assert_eq!(seen, WORDS.map(|word| (word.to_owned(), word.to_owned())));
    let range = ScanOptions::range::<&str>((Bound::Excluded("b"), Bound::Unbounded)).reverse();
    assert_eq!(keys(snapshot.scan(&words, range)), ["aaaa", "baa", "aaa", "ba", "ab"]);
    assert_eq!(snapshot.get(&words, b"ab").expect("read").map(|record| record.to_bytes()), Some("ab".into()));
    assert!(snapshot.get(&words, b"zz").expect("read").is_none());
}

#[test]
fn what_is_built_in_needs_no_registration() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let path = place.path().join("data");
        let store = options(engine).open(&path).expect("opened");
        let made = [
            (Order::NUMERIC, ["-5", "2", "10", "10.5", "x"]),
            (Order::REVERSED, ["x", "2", "10.5", "10", "-5"]),
            (Order::IGNORING_ASCII_CASE, ["-5", "10", "10.5", "2", "x"]),
        ];
        for (order, expected) in made {
            let collection = store.collection_in_order(order, order).expect("made");
            for key in ["10", "x", "10.5", "-5", "2"] {
                collection.put(key.as_bytes(), b"v").expect("a put");
            }
            assert_eq!(keys(collection.scan(ScanOptions::all())), expected);
        }
        let names = store.collection(Order::IGNORING_ASCII_CASE).expect("there");
        names.put(b"X", b"v").expect("a put");
        assert_eq!(keys(names.scan(ScanOptions::sort_prefix(b"x"))), ["X", "x"], "two keys, next to each other");
        drop(names);
        store.close().expect("closed");
        let store = options(engine).open(&path).expect("opened");
        let numbers = store.collection(Order::NUMERIC).expect("there");
        assert_eq!(keys(numbers.scan(ScanOptions::all())), ["-5", "2", "10", "10.5", "x"]);
    }
}

#[test]
fn the_order_is_there_after_reopening_and_in_a_restored_backup() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let path = place.path().join("data");
        let store = open(engine, &path);
        words(&store);
        let late = Expiry(store.wall().0 + 100_000_000);
        assert!(store.expire_collection("words", late).expect("set"));
        let backup = place.path().join("backup");
        store.backup(&backup).expect("backed up");
        store.close().expect("closed");
        let copy = place.path().join("copy");
        // Neither a backup nor a restore needs the function.
        stratakv::restore(&backup, &copy, &options(engine)).expect("restored");
        for path in [&path, &copy] {
            let store = open(engine, path);
            assert_eq!(store.collection_expiry("words").expect("told"), Some(late));
            let words = store.collection("words").expect("there");
            assert_eq!(words.order(), Some("by-length"));
            assert_eq!(keys(words.scan(ScanOptions::all())), WORDS);
            assert_eq!(text(&words, "ba"), Some("ba".into()));
            assert!(words.delete(b"ba").expect("deleted"));
            assert!(store.expire_collection("words", Expiry::NEVER).expect("put off for good"));
            drop(words);
            store.close().expect("closed");
            let read_only = Options::new().read_only(true).create(false).memory_bytes(96 << 20).order(by_length());
            let store = read_only.open(path).expect("opened for reading");
            let words = store.existing_collection("words").expect("looked up").expect("there");
            assert_eq!((words.order(), words.len().expect("counted")), (Some("by-length"), 6));
        }
    }
}

#[test]
fn an_order_that_was_not_registered_is_told_and_the_rest_works() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let path = place.path().join("data");
        let store = open(engine, &path);
        words(&store);
        store.collection("plain").expect("made").put(b"k", b"v").expect("a put");
        store.close().expect("closed");
        let store = options(engine).open(&path).expect("the store opens");
        let unknown = |error: OrderError| {
            let expected = OrderError::Unknown { collection: "words".into(), order: "by-length".into() };
            assert_eq!(error, expected);
            let text = error.to_string();
            assert!(
                text.starts_with("`words` is in the order `by-length`") && text.contains("Options::order"),
                "{text}"
            );
        };
        unknown(order_error(store.collection("words")));
        unknown(order_error(store.existing_collection("words")));
        unknown(order_error(store.collection_in_order("words", "by-length")));
        assert_eq!(store.collection("words").expect_err("unknown").kind(), ErrorKind::Usage);
        let error = order_error(store.collection_in_order("more", "by-length"));
        assert!(matches!(&error, OrderError::Unknown { collection, .. } if collection == "more"), "{error}");
        assert_eq!(store.collections().expect("names"), ["plain", "words"], "none was made");
        assert_eq!(text(&store.collection("plain").expect("opened"), "k"), Some("v".into()));

        let words = store.stored_collection("words").expect("looked up").expect("there");
        assert_eq!(keys(words.scan(ScanOptions::all())), WORDS);
        assert_eq!(
            keys(words.scan(ScanOptions::all().reverse().keys_only())).first().map(String::as_str),
            Some("aaaa")
        );
        assert_eq!(keys(words.scan(ScanOptions::sort_prefix(b"\0\0\0\x03"))), ["aaa", "baa"]);
        assert_eq!((words.len().expect("counted"), words.order()), (7, Some("by-length")));
        unknown(order_error(words.get(b"a")));
        unknown(order_error(words.put(b"a", b"v")));
        unknown(order_error(words.delete(b"a")));
        unknown(order_error(words.increment(b"a", 1)));
        unknown(order_error(words.multi_get(&["a"])));
        unknown(order_error(words.delete_range(.."b")));
        unknown(order_error(words.scan(ScanOptions::range("a"..)).next().expect("an error")));
        let mut batch = WriteBatch::new();
        batch.put(b"with it", b"v").put_in(&words, b"a", b"v");
        unknown(order_error(store.write(batch)));
        assert!(store.get(b"with it").expect("read").is_none(), "nothing of the batch is done");
        unknown(order_error(store.transaction().get(&words, b"a")));
        assert_eq!(words.delete_range::<&str>(..).expect("emptied"), 7);
        assert!(store.stored_collection("nobody").expect("looked up").is_none());
        let plain = store.stored_collection("plain").expect("looked up").expect("there");
        plain.put(b"k", b"w").expect("in the order of bytes nothing is missing");
        assert!(store.drop_collection("words").expect("dropped without the function"));
    }
}

#[test]
fn another_order_than_it_was_made_in_is_refused() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        words(&store);
        store.collection("plain").expect("made");
        store.list("list").expect("made");
        let error = order_error(store.collection_in_order("words", Order::NUMERIC)).to_string();
        assert!(
            error.starts_with("`words` is in the order `by-length`, not in the order `stratakv.numeric`"),
            "{error}"
        );
        let error = order_error(store.collection_in_order("plain", "by-length")).to_string();
        assert!(error.starts_with("`plain` is in the order of its keys' bytes, not in"), "{error}");
        assert!(matches!(store.collection_in_order("list", "by-length"), Err(Error::OtherKind { .. })));
        assert!(matches!(store.list("words"), Err(Error::OtherKind { .. })));
        // Gone, its name may stand for one in any order.
        assert!(store.drop_collection("words").expect("dropped"));
        let words = store.collection_in_order("words", Order::REVERSED).expect("made anew");
        words.put(b"k", b"v").expect("a put");
        assert_eq!(keys(words.scan(ScanOptions::all())), ["k"]);
    }
}

#[test]
fn a_changed_function_is_noticed_at_opening_and_by_scans() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let path = place.path().join("data");
        let store = open(engine, &path);
        words(&store);
        store.collection_in_order("empty", "by-length").expect("made");
        store.close().expect("closed");
        // Every key elsewhere.
        let store = options(engine).order(by_length_changed()).open(&path).expect("the store opens");
        let error = order_error(store.collection("words"));
        let expected = OrderError::Changed { collection: "words".into(), order: "by-length".into(), key: "a".into() };
        assert_eq!(error, expected);
        assert!(error.to_string().contains("stored_collection"), "{error}");
        store.collection("empty").expect("there is no key that could tell");
        // The way out.
        let old = store.stored_collection("words").expect("looked up").expect("there");
        let new = store.collection_in_order("new words", Order::NUMERIC).expect("made");
        for item in old.scan(ScanOptions::all()) {
            let (key, record) = item.expect("read without the function");
            new.put(&key, record.to_bytes()).expect("a put");
        }
        assert_eq!(new.len().expect("counted"), 7);
        drop((old, new));
        store.close().expect("closed");
        // The ends where they were: a scan comes across the others.
        let some = Order::new("by-length", |key| {
            let len = if key == b"ab" { 9 } else { key.len() as u32 };
            len.to_be_bytes().to_vec()
        });
        let store = options(engine).order(some).open(&path).expect("the store opens");
        let words = store.collection("words").expect("nothing is wrong at its ends");
        for options in [ScanOptions::all(), ScanOptions::all().keys_only()] {
            let items: Vec<_> = words.scan(options).collect();
            assert_eq!(items.len(), 7, "the scan goes on");
            let bad: Vec<_> = items.into_iter().filter_map(Result::err).collect();
            assert!(matches!(&bad[..], [Error::Order(OrderError::Changed { key, .. })] if key == "ab"), "{bad:?}");
        }
    }
}

#[test]
fn keys_that_were_not_made_in_the_order_are_told_and_can_be_removed() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let path = place.path().join("data");
        let store = open(engine, &path);
        let words = words(&store);
        let raw = stratakv::Key::new(words.id(), b"raw").expect("a key");
        let write = |kind: ChangeKind| {
            let change = Change { key: raw.clone(), expect: Expect::Any, kind };
            store.execute(Operation::Write { changes: vec![change], level: Level::ProcessCrash })
        };
        write(ChangeKind::Put { value: "v".into(), flags: 0, expiry: Expiry::NEVER });
        let bad: Vec<_> = words.scan(ScanOptions::all()).filter_map(Result::err).collect();
        assert_eq!(bad.len(), 1);
        assert_eq!(bad[0].kind(), ErrorKind::Corrupt);
        assert!(bad[0].to_string().contains("`raw`") && bad[0].to_string().contains("Collection::key"), "{}", bad[0]);
        drop(words);
        store.close().expect("closed");
        let store = open(engine, &path);
        let words = store.collection("words").expect("it opens nevertheless");
        let change = Change { key: raw, expect: Expect::Any, kind: ChangeKind::Delete };
        store.execute(Operation::Write { changes: vec![change], level: Level::ProcessCrash });
        assert_eq!(keys(words.scan(ScanOptions::all())), WORDS);
    }
}

#[test]
fn keys_too_long_with_their_sort_keys_say_both_lengths() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let twice = Order::new("twice", |key| key.to_vec());
        let store = options(engine).order(twice).open(place.path().join("data")).expect("opened");
        let collection = store.collection_in_order("c", "twice").expect("made");
        // Sort key, two bytes, key.
        let (fits, too_long) = (vec![1; 32_766], vec![1; 32_767]);
        collection.put(&fits, b"v").expect("65,534 bytes");
        assert!(collection.get(&fits).expect("read").is_some());
        let expected = OrderError::TooLong {
            order: "twice".into(),
            key_bytes: 32_767,
            sort_key_bytes: 32_767,
            stored_bytes: 65_536,
        };
        assert_eq!(order_error(collection.put(&too_long, b"v")), expected);
        assert_eq!(order_error(collection.get(&too_long)), expected);
        let text = expected.to_string();
        assert!(text.contains("key has 32767 bytes") && text.contains("65536") && text.contains("65535"), "{text}");
        // Each zero of a sort key is two bytes.
        let zeros = order_error(collection.put(vec![0; 32_000], b"v"));
        assert!(matches!(zeros, OrderError::TooLong { stored_bytes: 96_002, .. }), "{zeros}");
        let range = ScanOptions::range(..=too_long.as_slice());
        assert_eq!(collection.scan(range).count(), 1, "a bound may be of any length");
        for empty in [collection.put(b"", b"v").map(|_| ()), collection.get(b"").map(|_| ())] {
            let error = empty.expect_err("an empty key");
            assert!(error.to_string().contains("the key is empty"), "{error}");
        }
        let mut batch = WriteBatch::new();
        batch.put_in(&collection, &too_long, b"v");
        assert_eq!(order_error(store.write(batch)), expected);
    }
}

#[test]
fn bad_names_of_orders_are_refused_before_anything_is_made() {
    let place = place::directory();
    let path = place.path().join("data");
    let refused = |orders: &[&str]| {
        let options = orders
            .iter()
            .fold(Options::new(), |options, name| options.order(Order::new(*name, |key: &[u8]| key.to_vec())));
        let error = options.open(&path).expect_err("a bad name");
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(!path.exists(), "{orders:?}");
        error.to_string()
    };
    assert!(refused(&[""]).contains("of 0 bytes"), "{}", refused(&[""]));
    assert!(refused(&[&"n".repeat(65)]).contains("of 65 bytes"));
    assert!(refused(&["two words"]).contains("`two words`"));
    assert!(refused(&["stratakv.mine"]).contains("the store's own"));
    assert!(refused(&["one", "other", "one"]).contains("two orders are called `one`"));
    let longest = "n".repeat(64);
    let order = Order::new(longest.clone(), |key| key.to_vec());
    let store = Options::new().memory_bytes(96 << 20).order(order).open(&path).expect("opened");
    store.collection_in_order("c", &longest).expect("made");
    for bad in ["", "unheard-of", "two words"] {
        let error = order_error(store.collection_in_order("d", bad));
        assert!(matches!(&error, OrderError::Unknown { order, .. } if order == bad), "{error}");
    }
}

#[test]
fn an_expired_collection_in_an_order_is_gone() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        let old = words(&store);
        assert!(store.expire_collection("words", Expiry(store.wall().0)).expect("now"));
        assert!(old.get(b"a").expect("answered").is_none());
        assert_eq!(keys(old.scan(ScanOptions::all())), Vec::<String>::new());
        assert!(old.put(b"a", b"v").is_err());
        let plain = store.collection("words").expect("its name is free, in any order");
        assert_eq!(plain.order(), None);
    }
}
