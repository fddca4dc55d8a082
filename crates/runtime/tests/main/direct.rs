//! The runtime over an engine that is called in place.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use bytes::Bytes;
use stratakv_base::{Expiry, Now};
use stratakv_device::Wait;
use stratakv_device::ring::RingKind;
use stratakv_engine::{Capabilities, ChangeKind, Error, Operation, Record, Reply, Shared, Statistic, Value};
use stratakv_runtime::{Driver, Event, Runtime, RuntimeOptions};

use crate::toy::{Toy, block_on, get, number, put};

/// A write of this byte panics.
const PANICS: u8 = 0xFF;

/// Numbers in a map.
#[derive(Default)]
struct Map {
    writes_wait: bool,
    values: Mutex<HashMap<Vec<u8>, (u64, Bytes)>>,
    /// Writers inside, and how many must have been there before any goes on.
    meeting: Mutex<(usize, usize)>,
    met: Condvar,
    /// Steps of maintenance to come.
    chores: AtomicU64,
    closed: AtomicBool,
    /// Keys of which it was told before.
    prefetched: Mutex<Vec<Vec<u8>>>,
}

impl Map {
    fn write(&self, operation: Operation) -> Reply {
        let Operation::Write { mut changes, .. } = operation else {
            return Reply::Failed(Error::BadBatch("a test writes nothing else"));
        };
        let change = changes.pop().unwrap();
        assert!(change.key.encoded().last() != Some(&PANICS), "as asked");
        let mut meeting = self.meeting.lock().unwrap();
        meeting.0 += 1;
        self.met.notify_all();
        drop(self.met.wait_while(meeting, |(inside, wanted)| inside < wanted).unwrap());
        let ChangeKind::Put { value, .. } = change.kind else { return Reply::Failed(Error::BadBatch("a put")) };
        let mut values = self.values.lock().unwrap();
        let entry = values.entry(change.key.encoded().to_vec()).or_default();
        *entry = (entry.0 + 1, value);
        Reply::Done { version: entry.0, existed: entry.0 > 1 }
    }
}

impl Shared for Map {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn execute_begun(&self, operation: Operation, _: Option<u64>, _now: Now) -> Reply {
        if self.closed.load(Ordering::SeqCst) {
            return Reply::Failed(Error::Closed);
        }
        let Operation::Get { key, .. } = &operation else { return self.write(operation) };
        let values = self.values.lock().unwrap();
        let record = values.get(key.encoded()).map(|(version, value)| Record {
            value: Value::Inline(value.clone()),
            value_bytes: value.len() as u64,
            flags: 0,
            version: *version,
            expiry: Expiry::NEVER,
        });
        Reply::Record(record)
    }

    fn prefetch(&self, keys: &mut dyn Iterator<Item = &[u8]>) {
        self.prefetched.lock().unwrap().extend(keys.map(<[u8]>::to_vec));
    }

    fn last_version(&self) -> u64 {
        0
    }

    fn writes_wait(&self) -> bool {
        self.writes_wait
    }

    fn maintain(&self, _now: Now) -> bool {
        let before = self.chores.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        before.is_ok_and(|before| before > 1)
    }

    fn statistics(&self, out: &mut Vec<Statistic>) {
        out.push(Statistic { name: "keys", value: self.values.lock().unwrap().len() as u64 });
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }
}

fn start(engine: &Arc<Map>) -> Arc<Runtime<Toy>> {
    let options = RuntimeOptions { ring: RingKind::Auto, ring_entries: 64, reactors: 2 };
    Runtime::shared(Arc::clone(engine) as Arc<dyn Shared>, options).unwrap()
}

fn map(writes_wait: bool) -> Arc<Map> {
    Arc::new(Map { writes_wait, ..Map::default() })
}

/// So many replies, by tag.
fn replies(driver: &mut Driver<Toy>, count: usize) -> HashMap<u64, Reply> {
    let (mut replies, mut events) = (HashMap::new(), Vec::new());
    while replies.len() < count {
        driver.tick(Wait::For { completions: 1, timeout: None }, &mut events).unwrap();
        for event in events.drain(..) {
            let Event::Reply { tag, reply } = event else { panic!("{event:?}") };
            replies.insert(tag, reply);
        }
    }
    replies
}

#[test]
fn an_engine_hears_of_keys_that_follow_until_it_panics() {
    let map = map(false);
    let runtime = start(&map);
    let mut driver = runtime.driver().unwrap();
    let tell = |driver: &Driver<Toy>| driver.prefetch(&mut [&b"one"[..], b"other"].into_iter());
    tell(&driver);
    assert_eq!(*map.prefetched.lock().unwrap(), [&b"one"[..], b"other"]);
    driver.submit(0, 1, put(PANICS, 1));
    assert!(matches!(replies(&mut driver, 1)[&1], Reply::Failed(Error::Unknown(_))));
    tell(&driver);
    assert_eq!(map.prefetched.lock().unwrap().len(), 2, "it is not called any more");
}

#[test]
fn every_way_in_gives_the_same_answers() {
    for writes_wait in [false, true] {
        let runtime = start(&map(writes_wait));
        assert_eq!(runtime.shards(), 1);
        assert!(matches!(runtime.execute(0, put(1, 11)), Reply::Done { .. }));
        assert_eq!(number(&runtime.execute(0, get(1))), 11);
        let writes = (0..40).map(|i| (0, put(i, 100 + u64::from(i)))).collect();
        assert!(runtime.execute_many(writes).iter().all(|reply| matches!(reply, Reply::Done { .. })));
        let reads = runtime.execute_many((0..40).map(|i| (0, get(i))).collect());
        assert!(reads.iter().map(number).eq(100..140));
        assert!(matches!(block_on(runtime.execute_async(0, put(7, 77))), Reply::Done { .. }));
        assert_eq!(number(&block_on(runtime.execute_async(0, get(7)))), 77);
        let mut driver = runtime.driver().unwrap();
        (0..40).for_each(|i| driver.submit(0, u64::from(i), get(i)));
        for (tag, reply) in replies(&mut driver, 40) {
            assert_eq!(number(&reply), if tag == 7 { 77 } else { 100 + tag });
        }
        drop(driver);
        let keys = runtime.statistics().into_iter().find(|one| one.name == "keys").map(|one| one.value);
        assert_eq!(keys, Some(40));
        runtime.close();
        assert!(matches!(runtime.execute(0, get(1)), Reply::Failed(Error::Closed)));
        assert!(matches!(block_on(runtime.execute_async(0, put(1, 1))), Reply::Failed(Error::Closed)));
        runtime.close();
    }
}

#[test]
fn writes_of_one_key_keep_their_order_though_many_threads_wait_for_them() {
    let runtime = start(&map(true));
    let mut driver = runtime.driver().unwrap();
    for write in 0..2000u64 {
        driver.submit(0, write, put((write % 4) as u8, write));
    }
    for (tag, reply) in replies(&mut driver, 2000) {
        let Reply::Done { version, .. } = reply else { panic!("{reply:?}") };
        assert_eq!(version, tag / 4 + 1, "write {tag}");
    }
}

#[test]
fn while_writes_wait_for_each_other_reads_go_on() {
    let engine = map(true);
    engine.meeting.lock().unwrap().1 = 4;
    let runtime = start(&engine);
    let mut driver = runtime.driver().unwrap();
    // None of them ends before four have come: one thread could not wait for them one by one.
    for tag in 0..3 {
        driver.submit(0, tag, put(tag as u8, tag));
    }
    driver.submit(0, 100, get(77));
    let answers = replies(&mut driver, 1);
    assert!(matches!(answers.get(&100), Some(Reply::Record(None))), "{answers:?}");
    driver.submit(0, 3, put(3, 3));
    let answers = replies(&mut driver, 4);
    assert!(answers.values().all(|reply| matches!(reply, Reply::Done { .. })));
}

#[test]
fn a_panic_is_an_unknown_outcome_and_ends_nothing_else() {
    for writes_wait in [false, true] {
        let engine = map(writes_wait);
        let runtime = start(&engine);
        let mut driver = runtime.driver().unwrap();
        driver.submit(0, 1, put(PANICS, 1));
        assert!(matches!(replies(&mut driver, 1)[&1], Reply::Failed(Error::Unknown(_))));
        // What it left behind is in doubt.
        assert!(matches!(runtime.execute(0, get(1)), Reply::Failed(Error::Unknown(_))));
        assert!(matches!(block_on(runtime.execute_async(0, put(1, 1))), Reply::Failed(Error::Unknown(_))));
        runtime.close();
        assert!(!engine.closed.load(Ordering::SeqCst), "it is not called again");
    }
}

#[test]
fn maintenance_goes_on_while_there_is_some_and_ends_with_the_store() {
    let engine = map(false);
    engine.chores.store(100_000, Ordering::SeqCst);
    let runtime = start(&engine);
    while engine.chores.load(Ordering::SeqCst) > 0 {
        thread::yield_now();
    }
    runtime.close();
    engine.chores.store(7, Ordering::SeqCst);
    drop(runtime);
    assert_eq!(Arc::strong_count(&engine), 1, "its threads are gone");
    assert_eq!(engine.chores.load(Ordering::SeqCst), 7);
}

#[test]
fn closing_finishes_what_was_handed_over() {
    let engine = map(true);
    let runtime = start(&engine);
    let begun: Vec<_> = (0..100u8).map(|i| runtime.start_many(vec![(0, put(i, 1)), (0, put(i, 2))])).collect();
    runtime.close();
    for started in begun {
        assert!(started.wait().iter().all(|reply| matches!(reply, Reply::Done { .. })));
    }
    assert!(engine.values.lock().unwrap().values().all(|(version, _)| *version == 2));
}
