//! Kinds of collections, and collections that expire as a whole.

use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

use stratakv::raw::{Operation, PageRequest, RecordPart, Reply};
use stratakv::{
    Capability, CollectionId, End, EngineError, ErrorKind, Expiry, Key, Kind, Level, Options, ScanOptions, Store, Ttl,
    WriteBatch,
};
use stratakv_integration::engine::Engine;
use stratakv_integration::place;

/// Where the store keeps what names stand for.
const CATALOGUE: CollectionId = CollectionId(0xFFFF_FFFE);

fn open(engine: Engine, path: &Path) -> Store {
    let options = engine.options().memory_bytes(96 << 20).level(Level::ProcessCrash);
    options.shards(if engine == Engine::Slab { 3 } else { 1 }).open(path).expect("the store opens")
}

/// Records of all collections, the catalogue's too. `None` of an engine that keeps no order in the
/// default one: then they cannot be had.
fn records(store: &Store) -> Option<usize> {
    let (from, to) = (Bound::Unbounded, Bound::Unbounded);
    let request =
        PageRequest { from, to, reverse: false, keys_only: true, items_max: 10_000, bytes_max: 1 << 30, at: None };
    match store.execute(Operation::Page(request.into())) {
        Reply::Page { items, .. } => Some(items.len()),
        Reply::Failed(EngineError::Unsupported(Capability::Ordered)) => None,
        other => panic!("{other:?}"),
    }
}

fn catalogue(store: &Store, key: &str) -> Option<String> {
    let key = Key::new(CATALOGUE, key.as_bytes()).expect("a key");
    match store.execute(Operation::Get { key, part: RecordPart::Whole }) {
        Reply::Record(record) => record.map(|record| String::from_utf8_lossy(&record.value.to_bytes()).into_owned()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_collection_is_what_it_was_made_as() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let path = place.path().join("data");
        let store = open(engine, &path);
        store.collection("users").expect("made");
        store.list("tasks").expect("made");
        let check = |store: &Store| {
            assert_eq!(store.kind_of("users").expect("told"), Some(Kind::KeyValue));
            assert_eq!(store.kind_of("tasks").expect("told"), Some(Kind::List));
            assert_eq!(store.kind_of("nobody").expect("told"), None);
            let error = store.list("users").expect_err("it is no list");
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().starts_with("`users` is a collection of keys and values, not a list"), "{error}");
            assert!(store.existing_list("users").is_err());
            let error = store.collection("tasks").expect_err("it is a list").to_string();
            assert!(error.starts_with("`tasks` is a list, not a collection of keys and values"), "{error}");
            assert!(store.existing_collection("tasks").is_err());
            assert!(store.existing_list("nobody").expect("looked up").is_none());
        };
        check(&store);
        store.close().expect("closed");
        let store = open(engine, &path);
        check(&store);
        assert_eq!(store.collections().expect("names"), ["tasks", "users"]);
        assert!(store.drop_collection("tasks").expect("dropped"));
        assert_eq!(store.kind_of("tasks").expect("told"), None);
        store.collection("tasks").expect("a name of what is gone may be anything");
    }
}

/// What was written before there were kinds is as it was.
#[test]
fn names_without_a_kind_are_of_keys_and_values() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let path = place.path().join("data");
        let store = open(engine, &path);
        let users = store.collection("users").expect("made");
        users.put(b"ada", b"36").expect("a put");
        let digits = catalogue(&store, "name/users").expect("it is there");
        assert!(digits.bytes().all(|byte| byte.is_ascii_digit()), "as before there were kinds: {digits}");
        drop(users);
        store.close().expect("closed");
        let store = open(engine, &path);
        assert_eq!(store.kind_of("users").expect("told"), Some(Kind::KeyValue));
        assert!(store.collection("users").expect("there").get(b"ada").expect("a get").is_some());
    }
}

#[test]
fn records_are_counted_and_expire_one_by_one() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        let users = store.collection("users").expect("made");
        assert!(users.is_empty().expect("looked at"));
        let mut batch = WriteBatch::new();
        for number in 0..9000_u32 {
            batch.put_in(&users, number.to_be_bytes(), b"v");
        }
        store.write(batch).expect("written");
        let other = store.collection("other").expect("made");
        other.put(b"default", b"v").expect("a put");
        assert_eq!((users.len().expect("counted"), other.len().expect("counted")), (9000, 1));
        let key = 7_u32.to_be_bytes();
        assert_eq!(users.ttl(key).expect("told"), Ttl::Unlimited);
        assert_eq!(users.ttl(b"nobody").expect("told"), Ttl::Absent);
        assert!(users.expire(key, Expiry(store.wall().0 + 5_000_000)).expect("set"));
        match users.ttl(key).expect("told") {
            Ttl::Left(left) => {
                assert!(left <= Duration::from_secs(5000) && left > Duration::from_secs(4000), "{left:?}")
            }
            other => panic!("{other:?}"),
        }
        assert!(users.expire(key, Expiry::NEVER).expect("set"));
        assert_eq!(users.ttl(key).expect("told"), Ttl::Unlimited);
        assert!(users.expire(key, Expiry(1)).expect("set"));
        assert_eq!(users.ttl(key).expect("told"), Ttl::Absent);
        assert!(!users.expire(key, Expiry::NEVER).expect("answered"), "it is gone");
        assert_eq!(users.len().expect("counted"), 8999);
    }
}

#[test]
fn an_expired_collection_is_gone_for_every_handle() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let path = place.path().join("data");
        let store = open(engine, &path);
        let cache = store.collection("cache").expect("made");
        for number in 0..300_u32 {
            cache.put(number.to_be_bytes(), b"v").expect("a put");
        }
        assert_eq!(store.collection_expiry("cache").expect("told"), Some(Expiry::NEVER));
        let late = Expiry(store.wall().0 + 100_000_000);
        assert!(store.expire_collection("cache", late).expect("set"));
        assert!(!store.expire_collection("nobody", late).expect("answered"));
        assert_eq!(store.collection_expiry("cache").expect("told"), Some(late));
        assert!(store.expire_collection("cache", Expiry::NEVER).expect("put off for good"));
        assert_eq!(catalogue(&store, "name/cache"), Some(cache.id().0.to_string()));
        assert_eq!(cache.len().expect("counted"), 300);
        let mut scan = cache.scan(ScanOptions::all());
        scan.next().expect("a record").expect("read");
        assert!(store.expire_collection("cache", Expiry(store.wall().0)).expect("now"));
        let key = 5_u32.to_be_bytes();
        assert!(cache.get(key).expect("answered").is_none());
        assert_eq!((cache.len().expect("counted"), cache.prefix(b"").count()), (0, 0));
        assert_eq!(cache.append(key, "x").map(|version| version.is_none()).ok(), Some(true));
        let error = cache.put(b"late", b"v").expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("has expired"), "{error}");
        let mut batch = WriteBatch::new();
        batch.put(b"with it", b"v").put_in(&cache, b"late", b"v");
        assert!(store.write(batch).is_err());
        assert!(store.get(b"with it").expect("a get").is_none(), "a batch is whole");
        let mut txn = store.transaction();
        assert!(txn.get(&cache, key).expect("answered").is_none());
        assert_eq!(store.kind_of("cache").expect("told"), None);
        assert_eq!(store.collections().expect("names"), Vec::<String>::new());
        let anew = store.list("cache").expect("the name is free");
        assert_ne!(anew.records().id(), cache.id());
        assert!(cache.put(b"late", b"v").is_err(), "the old handle still leads nowhere");
        anew.push_back(b"x").expect("pushed");
        // `next`, `name/cache`, `expiring/…`, the element.
        assert_eq!(records(&store).unwrap_or(4), 4);
        drop((cache, anew, scan, txn));
        store.close().expect("closed");
        let store = open(engine, &path);
        assert_eq!(records(&store).unwrap_or(3), 3, "nothing is left of the old one");
        assert_eq!(store.list("cache").expect("there").len().expect("counted"), 1);
    }
}

#[test]
fn what_expired_while_nobody_looked_goes_at_opening() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let path = place.path().join("data");
        let store = open(engine, &path);
        let (list, kept) = (store.list("gone").expect("made"), store.collection("kept").expect("made"));
        list.push_all(End::Back, &["a"; 100]).expect("pushed");
        kept.put(b"k", b"v").expect("a put");
        assert!(store.expire_collection("kept", Expiry(store.wall().0 + 100_000_000)).expect("set"));
        assert!(store.expire_collection("gone", Expiry(store.wall().0)).expect("set"));
        drop((list, kept));
        store.close().expect("closed");
        let read_only =
            Options::new().read_only(true).create(false).memory_bytes(96 << 20).open(&path).expect("opened");
        assert_eq!(records(&read_only).unwrap_or(106), 106);
        assert_eq!(read_only.collections().expect("names"), ["kept"]);
        assert!(read_only.existing_list("gone").expect("looked up").is_none());
        assert_eq!(read_only.kind_of("gone").expect("told"), None);
        read_only.close().expect("closed");
        let store = open(engine, &path);
        // `next`, `name/kept`, `k`, and two in `expiring/`.
        assert_eq!(records(&store).unwrap_or(5), 5);
        assert_eq!(store.collections().expect("names"), ["kept"]);
        assert!(store.collection_expiry("kept").expect("told").is_some_and(|expiry| expiry != Expiry::NEVER));
        let kept = store.collection("kept").expect("there");
        assert!(kept.get(b"k").expect("a get").is_some());
        assert!(store.drop_collection("kept").expect("dropped"));
    }
}
