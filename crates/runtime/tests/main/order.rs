//! The order of what is handed over to an engine that is called in place.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::RangeBounds;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use stratakv_base::{CollectionId, Expiry, Key, Level, Now};
use stratakv_device::Wait;
use stratakv_device::ring::RingKind;
use stratakv_engine::{
    Capabilities, Change, ChangeKind, Error, Expect, Operation, Reply, Shared, SnapshotOp, Statistic,
};
use stratakv_runtime::{Driver, Event, Runtime, RuntimeOptions};

use crate::toy::{Toy, put};

/// How long a slow write waits to be overtaken. A right order never depends on it; a wrong one has
/// this long to show itself.
const PATIENCE: Duration = Duration::from_millis(100);

/// Numbers by key, with versions, and ways to hold up what is done.
#[derive(Default)]
struct Numbers {
    writes_wait: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    values: BTreeMap<Key, (u64, u64)>,
    version: u64,
    /// Operations done, as their replies tell: writes by their first key's byte, others by `b'*'`.
    done: Vec<u8>,
    /// Operations that have come in.
    entered: usize,
    /// A write that begins with this key takes until another operation is done, or [`PATIENCE`] is
    /// over.
    slow: Option<u8>,
    /// Writes that begin with one of these keys, and range deletes, wait until it is taken back.
    closed: Vec<u8>,
}

/// Nobody is slow any more: an answer was heard.
const HEARD: u8 = b'!';
/// Stands for range deletes in [`State::closed`].
const RANGES: u8 = b'*';

impl Numbers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    fn wait_until(&self, is_so: impl Fn(&State) -> bool) {
        drop(self.changed.wait_while(self.state(), |state| !is_so(state)).unwrap());
    }

    fn values(&self) -> Vec<(u8, u64)> {
        self.state().values.iter().map(|(key, (_, value))| (byte(key), *value)).collect()
    }

    /// Comes in, and is held up as was asked.
    fn enter(&self, what: u8) -> MutexGuard<'_, State> {
        self.change(|state| state.entered += 1);
        let mut state = self.changed.wait_while(self.state(), |state| state.closed.contains(&what)).unwrap();
        if state.slow == Some(what) {
            let done = state.done.len();
            let waited = self.changed.wait_timeout_while(state, PATIENCE, |state| state.done.len() == done);
            state = waited.unwrap().0;
        }
        state
    }

    fn write(&self, changes: Vec<Change>) -> Reply {
        let first = byte(&changes[0].key);
        let mut state = self.enter(first);
        state.version += 1;
        let version = state.version;
        for Change { key, kind, .. } in changes {
            let ChangeKind::Put { value, .. } = kind else { panic!("a test puts") };
            let value = u64::from_le_bytes(value[..].try_into().unwrap());
            state.values.insert(key, (version, value));
        }
        state.done.push(first);
        Reply::Done { version, existed: false }
    }
}

impl Shared for Numbers {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn execute_begun(&self, operation: Operation, begun_at: Option<u64>, _: Now) -> Reply {
        let reply = match operation {
            Operation::Write { changes, .. } => self.write(changes),
            Operation::DeleteRange { range, .. } => {
                let mut state = self.enter(RANGES);
                let not_after = begun_at.unwrap_or(state.version);
                let before = state.values.len();
                state.values.retain(|key, (version, _)| *version > not_after || !range.contains(key));
                state.done.push(RANGES);
                Reply::Number { number: (before - state.values.len()) as u64, version: 0 }
            }
            // What it sees: as many writes.
            Operation::Sync | Operation::Snapshot(_) | Operation::Backup { .. } => {
                let mut state = self.enter(0);
                state.done.push(RANGES);
                Reply::Number { number: state.version, version: 0 }
            }
            _ => Reply::Failed(Error::BadBatch("no test asks for it")),
        };
        self.changed.notify_all();
        reply
    }

    fn last_version(&self) -> u64 {
        self.state().version
    }

    fn writes_wait(&self) -> bool {
        self.writes_wait
    }

    fn maintain(&self, _: Now) -> bool {
        false
    }

    fn statistics(&self, _: &mut Vec<Statistic>) {}

    fn close(&self) {}
}

fn start(writes_wait: bool) -> (Arc<Numbers>, Arc<Runtime<Toy>>) {
    let engine = Arc::new(Numbers { writes_wait, ..Numbers::default() });
    let options = RuntimeOptions { ring: RingKind::Auto, ring_entries: 64, reactors: 2 };
    let runtime = Runtime::shared(Arc::clone(&engine) as Arc<dyn Shared>, options).unwrap();
    (engine, runtime)
}

fn byte(key: &Key) -> u8 {
    key.encoded().last().copied().unwrap()
}

fn batch(bytes: impl IntoIterator<Item = u8>, value: u64) -> Operation {
    let change = |byte: u8| {
        let value = Bytes::copy_from_slice(&value.to_le_bytes());
        let kind = ChangeKind::Put { value, flags: 0, expiry: Expiry::NEVER };
        Change { key: Key::new(CollectionId(0), &[byte]).unwrap(), expect: Expect::Any, kind }
    };
    Operation::Write { changes: bytes.into_iter().map(change).collect(), level: Level::PowerLoss }
}

fn delete_all() -> Operation {
    Operation::DeleteRange {
        range: Box::new((std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)),
        level: Level::PowerLoss,
    }
}

fn in_progress(runtime: &Runtime<Toy>) -> u64 {
    runtime.statistics().into_iter().find(|one| one.name == "operations_in_progress").unwrap().value
}

/// So many replies, in the order in which they came.
fn replies(driver: &mut Driver<Toy>, count: usize) -> Vec<(u64, Reply)> {
    let (mut replies, mut events) = (Vec::new(), Vec::new());
    while replies.len() < count {
        driver.tick(Wait::For { completions: 1, timeout: None }, &mut events).unwrap();
        for event in events.drain(..) {
            let Event::Reply { tag, reply } = event else { panic!("{event:?}") };
            replies.push((tag, reply));
        }
    }
    replies
}

fn number(reply: &Reply) -> u64 {
    let Reply::Number { number, .. } = reply else { panic!("{reply:?}") };
    *number
}

#[test]
fn a_range_delete_overtook_a_put_begun_before_it() {
    let (engine, runtime) = start(true);
    engine.state().slow = Some(1);
    let replies = runtime.execute_many(vec![(0, put(1, 10)), (0, delete_all()), (0, put(2, 20))]);
    assert_eq!(number(&replies[1]), 1);
    assert_eq!(engine.values(), [(2, 20)]);
}

#[test]
fn a_put_begun_after_a_range_delete_was_deleted_by_it() {
    for writes_wait in [true, false] {
        let (engine, runtime) = start(writes_wait);
        let mut driver = runtime.driver().unwrap();
        driver.submit(0, 1, put(1, 10));
        replies(&mut driver, 1);
        engine.state().closed.push(RANGES);
        driver.submit(0, 2, delete_all());
        // It is under way, and later writes do not wait for its end.
        engine.wait_until(|state| state.entered == 2);
        driver.submit(0, 3, put(1, 11));
        driver.submit(0, 4, put(2, 20));
        assert!(replies(&mut driver, 2).iter().all(|(_, reply)| matches!(reply, Reply::Done { .. })));
        engine.change(|state| state.closed.clear());
        replies(&mut driver, 1);
        assert_eq!(engine.values(), [(1, 11), (2, 20)], "writes wait: {writes_wait}");
    }
}

#[test]
fn a_put_begun_after_a_range_delete_that_still_waited_for_another_one_was_deleted() {
    let (engine, runtime) = start(false);
    engine.state().closed.push(RANGES);
    let first = runtime.start_many(vec![(0, delete_all())]);
    engine.wait_until(|state| state.entered == 1);
    // They are done in place; the range deletes come one by one.
    let second = runtime.start_many(vec![(0, put(1, 10)), (0, delete_all()), (0, put(2, 20))]);
    engine.change(|state| state.closed.clear());
    assert_eq!(number(&first.wait()[0]), 0);
    assert_eq!(number(&second.wait()[1]), 1);
    assert_eq!(engine.values(), [(2, 20)]);
}

#[test]
fn a_batch_was_overtaken_by_a_put_of_its_second_key() {
    let (engine, runtime) = start(true);
    engine.state().slow = Some(0);
    let puts = (1..40).map(|key| (0, put(key, 2)));
    runtime.execute_many([(0, batch(0..40, 1))].into_iter().chain(puts).collect());
    let wanted: Vec<_> = (0..40).map(|key| (key, if key == 0 { 1 } else { 2 })).collect();
    assert_eq!(engine.values(), wanted);
}

#[test]
fn a_batch_was_overtaken_by_another_one_that_began_with_another_key() {
    let (engine, runtime) = start(true);
    engine.state().slow = Some(0);
    let batches = (50..90).map(|key| (0, batch([key, 1], u64::from(key))));
    runtime.execute_many([(0, batch([0, 1], 1))].into_iter().chain(batches).collect());
    assert_eq!(engine.values()[1], (1, 89));
}

#[test]
fn sync_and_snapshots_did_not_cover_what_was_begun_before_them() {
    for covers in [Operation::Sync, Operation::Snapshot(SnapshotOp::Open), Operation::Backup { cursor: 0, shard: 0 }] {
        let (engine, runtime) = start(true);
        engine.state().slow = Some(1);
        let mut driver = runtime.driver().unwrap();
        driver.submit(0, 1, put(1, 10));
        driver.submit(0, 2, covers);
        let replies = replies(&mut driver, 2);
        assert_eq!(replies.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), [1, 2], "answered in order");
        assert_eq!(number(&replies[1].1), 1);
    }
}

/// Polled once: so it has begun.
fn begun(future: impl Future<Output = Reply>) {
    begun_for(future, Waker::noop());
}

/// The same; this one is told of the answer.
fn begun_for(future: impl Future<Output = Reply>, waker: &Waker) {
    assert!(pin!(future).poll(&mut Context::from_waker(waker)).is_pending());
}

#[test]
fn what_came_later_was_answered_first() {
    /// Takes its time to hear the answer.
    struct Deaf(Arc<Numbers>);
    impl Wake for Deaf {
        fn wake(self: Arc<Self>) {
            let state = self.0.state();
            let waited = self.0.changed.wait_timeout_while(state, PATIENCE, |state| state.entered == 1);
            let mut state = waited.unwrap().0;
            if state.entered == 1 {
                state.slow = Some(HEARD);
            }
        }
    }
    for next in [put(1, 11), batch([2, 1], 20), delete_all(), Operation::Sync] {
        let (engine, runtime) = start(true);
        engine.state().closed.push(1);
        begun_for(runtime.execute_async(0, put(1, 10)), &Arc::new(Deaf(Arc::clone(&engine))).into());
        let next = runtime.start_many(vec![(0, next)]);
        engine.change(|state| state.closed.clear());
        next.wait();
        assert_eq!(engine.state().slow, Some(HEARD), "the answer was heard before");
    }
}

#[test]
fn a_blocking_caller_overtook_what_was_begun_before() {
    for asked in [put(1, 11), delete_all()] {
        let (engine, runtime) = start(true);
        engine.state().slow = Some(1);
        begun(runtime.execute_async(0, put(1, 10)));
        engine.wait_until(|state| state.entered == 1);
        let is_put = matches!(asked, Operation::Write { .. });
        runtime.execute(0, asked);
        runtime.close();
        assert_eq!(engine.values(), if is_put { vec![(1, 11)] } else { vec![] });
    }
}

#[test]
fn a_range_delete_that_waited_deleted_what_a_blocking_caller_put_after_it() {
    let (engine, runtime) = start(true);
    engine.state().slow = Some(1);
    let begun = runtime.start_many(vec![(0, put(1, 10)), (0, delete_all())]);
    runtime.execute(0, put(2, 20));
    assert_eq!(number(&begun.wait()[1]), 1);
    assert_eq!(engine.values(), [(2, 20)]);
}

#[test]
fn a_blocking_caller_waits_for_nothing_that_does_not_concern_it() {
    let (engine, runtime) = start(true);
    engine.state().closed.push(1);
    let begun = runtime.start_many(vec![(0, put(1, 10))]);
    runtime.execute(0, put(2, 20));
    assert_eq!(number(&runtime.execute(0, Operation::Sync)), 1);
    engine.change(|state| state.closed.clear());
    begun.wait();
}

#[test]
fn all_that_waited_for_one_write_goes_on_at_once() {
    let (engine, runtime) = start(true);
    // Several times: at first threads are still being started, and find it by themselves.
    for _ in 0..20 {
        engine.change(|state| (state.closed, state.done) = (vec![1, 2], Vec::new()));
        let begun = runtime.start_many(vec![(0, batch([1, 2, 3], 10)), (0, put(2, 20)), (0, put(3, 30))]);
        engine.change(|state| state.closed.retain(|key| *key == 2));
        // Though the other one takes its time.
        engine.wait_until(|state| state.done == [1, 3]);
        engine.change(|state| state.closed.clear());
        begun.wait();
    }
}

#[test]
fn closing_sees_a_range_delete_through_that_waits_and_what_waits_for_it() {
    let (engine, runtime) = start(true);
    engine.state().closed.push(1);
    let begun = runtime.start_many(vec![
        (0, put(1, 10)),
        (0, delete_all()),
        (0, put(2, 20)),
        (0, delete_all()),
        (0, put(3, 30)),
    ]);
    let closing = thread::spawn({
        let runtime = Arc::clone(&runtime);
        move || runtime.close()
    });
    while !runtime.is_ended() {
        thread::yield_now();
    }
    engine.change(|state| state.closed.clear());
    let replies = begun.wait();
    closing.join().unwrap();
    assert_eq!((number(&replies[1]), engine.values()), (1, vec![(3, 30)]));
}

#[test]
fn more_than_there_is_room_for_waits_and_keeps_its_order() {
    let (engine, runtime) = start(true);
    engine.state().closed.push(1);
    let operation = |tick: u64| match tick {
        0 => put(1, 0),
        tick if tick % 1000 == 999 => delete_all(),
        // A hundred keys, over and over, and at the end the first half of them.
        tick => put((tick % if tick < 20_000 { 100 } else { 50 }) as u8, tick),
    };
    let bringing = thread::spawn({
        let runtime = Arc::clone(&runtime);
        move || runtime.execute_many((0..20_050).map(|tick| (0, operation(tick))).collect())
    });
    // There is room for 8192.
    while in_progress(&runtime) < 8192 {
        thread::yield_now();
    }
    engine.change(|state| state.closed.clear());
    assert!(bringing.join().unwrap().iter().all(|reply| !matches!(reply, Reply::Failed(_))));
    assert!(engine.values().into_iter().eq((0..50).map(|key| (key, 20_000 + u64::from(key)))));
}

#[test]
fn what_was_begun_after_the_end_started_threads_that_nobody_ended() {
    for writes_wait in [true, false] {
        let (engine, runtime) = start(writes_wait);
        runtime.close();
        assert!(matches!(runtime.execute_many(vec![(0, Operation::Sync)])[0], Reply::Failed(Error::Closed)));
        drop(runtime);
        assert_eq!(Arc::strong_count(&engine), 1, "its threads are gone");
    }
}

#[test]
fn whoever_panicked_when_it_was_answered_left_others_without_an_answer() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("as asked");
        }
    }
    let (engine, runtime) = start(true);
    engine.state().closed.push(1);
    begun_for(runtime.execute_async(0, put(1, 10)), &Arc::new(Panics).into());
    let begun = runtime.start_many(vec![(0, put(1, 11)), (0, delete_all()), (0, put(2, 20))]);
    engine.change(|state| state.closed.clear());
    assert_eq!(number(&begun.wait()[1]), 1);
    assert_eq!(engine.values(), [(2, 20)]);
    runtime.close();
}
