//! A child that is forked while a store is open: it is refused in words, whatever it asks, what it
//! drops changes nothing, and the parent goes on.

#![expect(unsafe_code, reason = "it forks")]

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use stratakv::{Engine, Error, ErrorKind, IoBackend, Level, Options, ScanOptions, Store, WriteBatch};

/// Longer than anything here takes, in seconds: a child that hangs is ended by it.
const NEVER_S: u32 = 60;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs `body` in a child; whether it came to its end.
fn in_child(body: impl FnOnce()) -> bool {
    // SAFETY: the child has copies of all that the body uses; it ends below, without going back to
    // the test's harness.
    match unsafe { libc::fork() } {
        -1 => panic!("no child could be made"),
        0 => {
            // SAFETY: a timer of this child alone.
            unsafe { libc::alarm(NEVER_S) };
            // Past the harness, which would keep it to itself, and past locks that a thread of the
            // parent may have held.
            std::panic::set_hook(Box::new(|why| {
                let text = format!("in the child: {why}\n");
                // SAFETY: the bytes are there.
                _ = unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
            }));
            let ended = catch_unwind(AssertUnwindSafe(body)).is_ok();
            // SAFETY: nothing of the test's is cleaned up.
            unsafe { libc::_exit(i32::from(!ended)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the child is ours, and the status is written.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

fn options(engine: Engine, io: IoBackend) -> Options {
    let options = Options::new().engine(engine).memory_bytes(64 << 20).io(io);
    match engine {
        Engine::Slab => options.shards(2),
        Engine::Tier => options.shards(2).capacity_bytes(64 << 20),
        Engine::Matrix => options.shards(2).region_bytes(32 << 20).level(Level::ProcessCrash),
        _ => options.region_bytes(32 << 20).level(Level::ProcessCrash),
    }
}

fn is_refused<T>(what: &str, outcome: Result<T, Error>) {
    match outcome {
        Ok(_) => panic!("{what}: it is done, or seems so"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Closed, "{what}: {error}");
            assert!(error.to_string().contains("forked"), "{what}: {error}");
        }
    }
}

fn everything_is_refused(store: &Store, place: &Path) {
    assert!(store.is_forked());
    is_refused("a put", store.put(b"k", b"w"));
    is_refused("a get", store.get(b"k"));
    is_refused("gets", store.multi_get(&[b"k", b"l"]));
    is_refused("a delete", store.delete(b"k"));
    is_refused("a sync", store.sync());
    is_refused("a count", store.increment(b"n", 1));
    is_refused("a range delete", store.delete_prefix(b"k"));
    is_refused("a collection", store.collection("named"));
    is_refused("another", store.collection("other"));
    is_refused("a list", store.list("list"));
    is_refused("its names", store.collections());
    is_refused("a drop", store.drop_collection("named"));
    is_refused("a snapshot", store.snapshot());
    is_refused("a backup", store.backup(place.join("backup")));
    is_refused("a load", store.load([(b"k", b"v")]));
    is_refused("a scan", store.scan(ScanOptions::all()).collect::<Result<Vec<_>, _>>());
    let mut batch = WriteBatch::new();
    batch.put(b"k", b"w").put(b"l", b"w");
    is_refused("a batch", store.write(batch));
    is_refused("a transaction", store.transact(|transaction| transaction.put(store, b"k", b"w")));
    assert!(store.session().is_err_and(|error| error.to_string().contains("forked")), "a session");
    assert!(store.driver().is_err(), "a driver");
    let mut future = pin!(store.execute_async(stratakv::raw::Operation::Sync));
    let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(stratakv::raw::Reply::Failed(_))), "a future");
    assert!(store.stats().is_empty() && store.failure().is_some());
    is_refused("the end", store.close());
}

/// Writes of a child were acknowledged and lost, `matrix` was damaged by them, and dropping the
/// store hung or panicked.
fn a_child_is_refused(engine: Engine, io: IoBackend) {
    // What the threads of another test held at the fork would stay held in the child: the first
    // use of something that is made once, say.
    let _one_at_a_time = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let store = options(engine, io).open(&path).unwrap();
    let has_names = engine != Engine::Tier;
    for number in 0..2000 {
        store.put(format!("key-{number}").as_bytes(), [7; 100]).unwrap();
    }
    let list = has_names.then(|| store.list("list").unwrap());
    let named = has_names.then(|| store.collection("named").unwrap());
    let mut session = store.session().unwrap();
    session.submit(stratakv::raw::Operation::Sync);
    let mut scan = (engine == Engine::Slab || engine == Engine::Matrix).then(|| store.scan(ScanOptions::all()));
    scan.iter_mut().for_each(|scan| assert!(scan.next().is_some_and(|item| item.is_ok())));
    let for_child = (store.clone(), list.clone(), named.clone());
    let mut mine = Some((for_child, session, scan));
    let place = directory.path().to_owned();
    assert!(in_child(|| {
        let ((store, list, named), mut session, scan) = mine.take().unwrap();
        everything_is_refused(&store, &place);
        list.iter().for_each(|list| is_refused("a push", list.push_back(b"e")));
        named.iter().for_each(|named| is_refused("a put in a collection", named.put(b"k", b"v")));
        is_refused(
            "a poll",
            session.poll(0).map(|_| ()).map_err(|error| match error.to_string().contains("forked") {
                true => stratakv::EngineError::Forked.into(),
                false => error,
            }),
        );
        // What was read ahead is given; then it says so.
        scan.into_iter().for_each(|scan| assert!(scan.last().is_some_and(|item| item.is_err())));
        drop((list, named, session));
        drop(store);
        // Its own store, elsewhere, is one like any other.
        let own = Options::new().shards(1).memory_bytes(64 << 20).open(place.join("own")).unwrap();
        own.put(b"k", b"v").unwrap();
        assert!(!own.is_forked());
        own.close().unwrap();
        // The parent's is still locked.
        assert!(options(engine, io).open(&path).is_err_and(|error| error.kind() == ErrorKind::Locked));
    }));
    drop(mine);
    assert!(!store.is_forked());
    store.put(b"after", b"v").unwrap();
    list.iter().for_each(|list| _ = list.push_back(b"e").unwrap());
    drop((list, named));
    store.close().unwrap();
    drop(store);
    let store = options(engine, io).open(&path).unwrap();
    assert_eq!(store.get(b"after").unwrap().unwrap().to_bytes(), "v");
    assert!(store.recovery().clean);
    store.close().unwrap();
}

#[test]
fn a_child_is_refused_by_slab_with_io_uring() {
    a_child_is_refused(Engine::Slab, IoBackend::Auto);
}

#[test]
fn a_child_is_refused_by_slab_with_threads() {
    a_child_is_refused(Engine::Slab, IoBackend::Blocking);
}

#[test]
fn a_child_is_refused_by_hash() {
    a_child_is_refused(Engine::Hash, IoBackend::Auto);
}

#[test]
fn a_child_is_refused_by_matrix() {
    a_child_is_refused(Engine::Matrix, IoBackend::Auto);
}

#[test]
fn a_child_is_refused_by_tier() {
    a_child_is_refused(Engine::Tier, IoBackend::Auto);
}
