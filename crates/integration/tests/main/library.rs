//! `stratakv::Store` as its users have it.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Bound;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use stratakv::raw::{Operation, RecordPart, Reply};
use stratakv::{
    CollectionId, ErrorKind, Expect, IoBackend, Key, Level, Options, PutOptions, PutOutcome, ScanOptions, Store, Unmet,
};
use stratakv_base::random::Random;
use stratakv_integration::place;

fn options() -> Options {
    Options::new().shards(3).memory_bytes(96 << 20)
}

fn open(path: &Path) -> Store {
    options().open(path).expect("the store opens")
}

fn value(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).expect("a get").map(|record| record.to_bytes().to_vec())
}

#[test]
fn what_was_put_is_there_after_reopening() {
    for io in [IoBackend::Auto, IoBackend::Blocking] {
        let place = place::directory();
        let data = place.path().join("data");
        let store = options().io(io).open(&data).expect("created");
        assert!(store.recovery().created);
        let first = store.put(b"a", b"1").expect("a put");
        assert!(store.put(b"a", b"2").expect("a put") > first);
        store.put(b"b", vec![7; 300_000]).expect("a put");
        assert!(!store.delete(b"none").expect("a delete"));
        store.put(b"c", b"x").expect("a put");
        assert!(store.delete(b"c").expect("a delete"));
        store.close().expect("closed");
        assert_eq!(store.get(b"a").expect_err("it is closed").kind(), ErrorKind::Closed);
        let store = options().io(io).open(&data).expect("opened");
        assert!(store.recovery().clean && !store.recovery().created);
        assert_eq!(value(&store, b"a"), Some(b"2".to_vec()));
        assert_eq!(value(&store, b"b"), Some(vec![7; 300_000]));
        assert_eq!(value(&store, b"c"), None);
    }
}

#[test]
fn dropping_a_store_without_closing_loses_nothing() {
    let place = place::directory();
    let data = place.path().join("data");
    for round in 0..3u32 {
        let store = open(&data);
        for number in 0..round * 50 {
            assert_eq!(value(&store, &number.to_be_bytes()), Some(vec![number as u8; 100]));
        }
        for number in round * 50..(round + 1) * 50 {
            store.put(number.to_be_bytes(), [number as u8; 100]).expect("a put");
        }
    }
}

#[test]
fn conditions_and_updates() {
    let place = place::directory();
    let store = open(&place.path().join("data"));
    let Ok(PutOutcome::Written { version }) = store.put_if(b"k", b"1", Expect::Absent) else { panic!("k was absent") };
    assert_eq!(
        store.put_if(b"k", b"2", Expect::Absent).expect("answered"),
        PutOutcome::Unmet(Unmet::Present { version })
    );
    assert_eq!(
        store.put_if(b"k", b"2", Expect::Version(version + 1)).expect("answered"),
        PutOutcome::Unmet(Unmet::Version { found: version })
    );
    assert!(matches!(store.put_if(b"k", b"2", Expect::Version(version)), Ok(PutOutcome::Written { .. })));
    assert_eq!(store.increment("k", 40).expect("counted"), 42);
    let version = store.append("k", "0").expect("appended").expect("it is there");
    assert_eq!(store.get("k").expect("read").expect("there").version, version);
    assert!(store.prepend("k", "-").expect("prepended").is_some());
    assert_eq!(store.get("k").expect("read").expect("there").to_bytes(), "-420");
    assert_eq!(store.append("none", "0").expect("answered"), None);
    assert_eq!(store.prepend("none", "0").expect("answered"), None);
    let with_flags = PutOptions { flags: 99, ..PutOptions::default() };
    store.put_with(b"f", b"v", &with_flags).expect("a put");
    assert_eq!(store.get(b"f").expect("a get").map(|record| record.flags), Some(99));
}

#[test]
fn bad_arguments_are_refused_and_change_nothing() {
    let place = place::directory();
    let store = open(&place.path().join("data"));
    for (key, words) in [(vec![], "empty"), (vec![b'k'; 65_536], "65536 bytes")] {
        for error in [store.put(&key, b"v").expect_err("a bad key"), store.get(&key).expect_err("a bad key")] {
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains(words), "{error}");
        }
        assert_eq!(store.delete(&key).expect_err("a bad key").kind(), ErrorKind::Usage);
    }
    store.put(b"k", b"before").expect("a put");
    let error = store.put(b"k", vec![0; (64 << 20) + 1]).expect_err("too large");
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.to_string().contains("67108865"), "{error}");
    assert_eq!(value(&store, b"k"), Some(b"before".to_vec()));
    assert_eq!(store.scan(ScanOptions::all()).count(), 1);
    let refused = |options: Options| options.open(place.path().join("other")).expect_err("a bad option");
    assert_eq!(refused(Options::new().shards(0)).kind(), ErrorKind::Usage);
    assert!(refused(Options::new().level(Level::Memory)).to_string().contains("process_crash"));
}

/// What the store should hold, and in which order.
fn fill(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut random = Random::new(5);
    let mut expected = BTreeMap::new();
    for number in 0..1500u64 {
        let key = format!("user:{:03}/{:x}", random.below(1000), number * 7919 % 977).into_bytes();
        let mut value = vec![0; random.below(700) as usize];
        random.fill(&mut value);
        store.put(&key, &value).expect("a put");
        expected.insert(key, value);
    }
    for key in [&b"\xff"[..], b"\xff\xff", b"\x00", b"user", b"user;"] {
        store.put(key, b"edge").expect("a put");
        expected.insert(key.to_vec(), b"edge".to_vec());
    }
    expected
}

fn scanned(store: &Store, options: ScanOptions) -> Vec<(Vec<u8>, Vec<u8>)> {
    let items = store.scan(options).map(|item| item.expect("an item"));
    items.map(|(key, record)| (key.to_vec(), record.to_bytes().to_vec())).collect()
}

#[test]
fn scans_are_ordered_over_all_shards_both_ways() {
    let place = place::directory();
    let store = options().level(Level::ProcessCrash).open(place.path().join("data")).expect("created");
    let expected = fill(&store);
    let forwards: Vec<_> = expected.clone().into_iter().collect();
    let backwards: Vec<_> = expected.clone().into_iter().rev().collect();
    assert!(scanned(&store, ScanOptions::all()) == forwards, "all, forwards");
    assert!(scanned(&store, ScanOptions::all().reverse()) == backwards, "all, backwards");
    for prefix in [&b"user:"[..], b"user:1", b"user:99", b"\xff", b"nothing"] {
        let wanted: Vec<_> = forwards.iter().filter(|(key, _)| key.starts_with(prefix)).cloned().collect();
        assert!(scanned(&store, ScanOptions::prefix(prefix)) == wanted, "{}", prefix.escape_ascii());
        let mut reversed = scanned(&store, ScanOptions::prefix(prefix).reverse());
        reversed.reverse();
        assert!(reversed == wanted, "{} backwards", prefix.escape_ascii());
    }
    let range = ScanOptions::range::<&str>((Bound::Excluded("user:200"), Bound::Included("user:700")));
    let wanted: Vec<_> = forwards
        .iter()
        .filter(|(key, _)| key.as_slice() > b"user:200".as_slice() && key.as_slice() <= b"user:700".as_slice())
        .cloned()
        .collect();
    assert!(scanned(&store, range.clone()) == wanted, "a range");
    let keys: Vec<_> = store.scan(range.keys_only()).map(|item| item.expect("an item").0.to_vec()).collect();
    assert_eq!(keys, wanted.into_iter().map(|(key, _)| key).collect::<Vec<_>>());
    assert_eq!(store.prefix(b"user:").take(5).count(), 5, "a scan can be left early");
}

#[test]
fn many_at_once_in_the_order_asked() {
    let place = place::directory();
    let store = open(&place.path().join("data"));
    for number in (0..300u32).step_by(2) {
        store.put(number.to_be_bytes(), number.to_be_bytes()).expect("a put");
    }
    let keys: Vec<[u8; 4]> = (0..300u32).rev().map(u32::to_be_bytes).collect();
    let records = store.multi_get(&keys).expect("a multi_get");
    for (key, record) in keys.iter().zip(records) {
        let expected = (key[3] % 2 == 0).then(|| key.to_vec());
        assert_eq!(record.map(|record| record.to_bytes().to_vec()), expected);
    }
}

#[test]
fn threads_count_together() {
    for io in [IoBackend::Auto, IoBackend::Blocking] {
        let place = place::directory();
        let store = options().io(io).level(Level::ProcessCrash).open(place.path().join("data")).expect("created");
        store.put(b"update", b"0").expect("a put");
        store.put(b"swap", b"0").expect("a put");
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        store.increment("update", 1).expect("counted");
                        while !swap_one_up(&store) {}
                    }
                });
            }
        });
        assert_eq!(value(&store, b"update"), Some(b"400".to_vec()));
        assert_eq!(value(&store, b"swap"), Some(b"400".to_vec()));
    }
}

fn swap_one_up(store: &Store) -> bool {
    let record = store.get(b"swap").expect("a get").expect("it was put");
    let number: u64 = std::str::from_utf8(&record.to_bytes()).expect("text").parse().expect("a number");
    let outcome = store.put_if(b"swap", (number + 1).to_string().as_bytes(), Expect::Version(record.version));
    matches!(outcome.expect("answered"), PutOutcome::Written { .. })
}

/// Wakes a thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn futures_run_on_any_executor_many_at_once() {
    let place = place::directory();
    let store = open(&place.path().join("data"));
    block_on(async {
        let mut puts: Vec<_> = (0..200u32)
            .map(|number| {
                let store = store.clone();
                Box::pin(async move { store.put_async(&number.to_be_bytes(), &vec![number as u8; 3000]).await })
            })
            .collect();
        std::future::poll_fn(|context| {
            puts.retain_mut(|put| match put.as_mut().poll(context) {
                Poll::Ready(outcome) => outcome.map(|_| false).expect("a put"),
                Poll::Pending => true,
            });
            if puts.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        for number in 0..200u32 {
            let record = store.get_async(&number.to_be_bytes()).await.expect("a get").expect("it was put");
            assert_eq!(record.to_bytes(), vec![number as u8; 3000]);
        }
        assert!(store.delete_async(&7u32.to_be_bytes()).await.expect("a delete"));
        assert!(store.get_async(&7u32.to_be_bytes()).await.expect("a get").is_none());
    });
    drop(block_on(store.get_async(b"")).expect_err("an empty key"));
}

#[test]
fn a_session_keeps_many_in_flight() {
    for io in [IoBackend::Auto, IoBackend::Blocking] {
        let place = place::directory();
        let store = options().io(io).open(place.path().join("data")).expect("created");
        for number in 0..500u32 {
            let level = PutOptions { level: Some(Level::ProcessCrash), ..PutOptions::default() };
            store.put_with(number.to_be_bytes(), [number as u8; 1000], &level).expect("a put");
        }
        let mut session = store.session().expect("a session");
        let mut asked = BTreeMap::new();
        let mut answered = 0;
        for number in 0..500u32 {
            let key = Key::new(CollectionId(0), &number.to_be_bytes()).expect("a key");
            asked.insert(session.submit(Operation::Get { key, part: RecordPart::Whole }), number);
            while session.in_flight() >= 64 || number == 499 && session.in_flight() > 0 {
                for (ticket, reply) in session.poll(1).expect("polled") {
                    let number = asked.remove(&ticket).expect("each ticket is answered once");
                    let Reply::Record(Some(record)) = reply else { panic!("{number}: {reply:?}") };
                    assert_eq!(record.value.to_bytes(), vec![number as u8; 1000]);
                    answered += 1;
                }
            }
        }
        assert_eq!((answered, asked.len()), (500, 0));
    }
}

#[test]
fn read_only_reads_and_changes_no_byte() {
    let place = place::directory();
    let data = place.path().join("data");
    let store = open(&data);
    store.put(b"k", b"v").expect("a put");
    store.close().expect("closed");
    let bytes = |path: &Path| std::fs::read(path).expect("a volume can be read");
    let before: Vec<Vec<u8>> = place::volumes(&data).iter().map(|path| bytes(path)).collect();
    let store = options().read_only(true).open(&data).expect("opened");
    assert_eq!(value(&store, b"k"), Some(b"v".to_vec()));
    store.put(b"k", b"w").expect_err("read-only");
    store.delete(b"k").expect_err("read-only");
    assert_eq!(value(&store, b"k"), Some(b"v".to_vec()));
    store.close().expect("closed");
    let after: Vec<Vec<u8>> = place::volumes(&data).iter().map(|path| bytes(path)).collect();
    assert!(before == after, "a read-only store wrote");
}

#[test]
fn creating_and_not_creating() {
    let place = place::directory();
    let data = place.path().join("data");
    let error = Options::new().create(false).open(&data).expect_err("there is none");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(!data.exists(), "nothing is made by a refused open");
    drop(open(&data));
    assert!(options().create_new(true).open(&data).is_err(), "there is one");
    std::fs::write(place.path().join("file"), b"x").expect("a file");
    assert_eq!(Options::new().open(place.path().join("file")).expect_err("a file").kind(), ErrorKind::Usage);
}
