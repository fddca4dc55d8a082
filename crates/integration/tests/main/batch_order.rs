//! Threads that write batches over several shards of a real store, beside others that read their
//! keys one by one, several at once and in scans: what all were answered can have been answered by
//! one store that does one thing at a time.

use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use stratakv::raw::{Change, ChangeKind, Operation, PageRequest, RecordPart, Reply};
use stratakv::{CollectionId, Engine, Expect, Expiry, Key, Level, Options, Placement, Store};
use stratakv_base::checksum::shard_of;
use stratakv_base::random::Random;
use stratakv_integration::place;
use stratakv_sim::linearizability::{Clock, Failure, History, HistoryEntry, check};

const SHARDS: usize = 4;
const WRITERS: u64 = 3;
const READERS: u64 = 3;
/// Sets of keys that are written together, a key in each of three shards: more would tie too much
/// together for an order to be found.
const GROUPS: u64 = 6;
const ROUNDS: u64 = 250;
const STEPS: u64 = 30_000_000;

/// The keys of a group, each in another shard.
fn keys(group: u64) -> Vec<Key> {
    let named = |shard: usize| {
        let names = (0..).map(move |number: u32| format!("{group}-{number}"));
        let mut keys = names.map(|name| Key::bound(CollectionId(0), name.as_bytes()));
        keys.find(|key| shard_of(key.encoded(), SHARDS) == shard)
    };
    (1..SHARDS).filter_map(named).collect()
}

fn put(number: u64) -> ChangeKind {
    let len = [8, 8, 300, 6000][(number % 4) as usize];
    ChangeKind::Put { value: format!("{number:<len$}").into(), flags: 0, expiry: Expiry::NEVER }
}

/// A batch over all or two keys of a group; now and then a single write.
fn write(random: &mut Random, number: u64, level: Level) -> Operation {
    let mut keys = keys(random.below(GROUPS));
    match random.below(8) {
        0 => keys.truncate(1),
        1 => keys.truncate(2),
        2 => _ = keys.remove(0),
        _ => {}
    }
    let deletes = random.below(10);
    let change = |(at, key)| {
        let kind = if deletes == at { ChangeKind::Delete } else { put(number) };
        Change { key, expect: Expect::Any, kind }
    };
    Operation::Write { changes: (0..).zip(keys).map(change).collect(), level }
}

fn get(key: &Key) -> Operation {
    Operation::Get { key: key.clone(), part: RecordPart::Whole }
}

/// Reads that ran at the same time: each is an entry of its own, between the ticks of all.
fn at_once(clock: &Clock, client: u32, keys: &[Key], read: impl FnOnce() -> Vec<Reply>) -> Vec<HistoryEntry> {
    let before: Vec<u64> = keys.iter().map(|_| clock.tick()).collect();
    let replies = read();
    let entries = keys.iter().zip(replies).zip(before).map(|((key, reply), invoked)| {
        let returned = Some(clock.tick());
        HistoryEntry { client, invoked, returned, operation: get(key), reply: Some(reply) }
    });
    entries.collect()
}

/// What one page says of keys: that they are there, or not.
fn scan(store: &Store, keys: &[Key]) -> Vec<Reply> {
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    let (from, to) = (Bound::Included(sorted[0].clone()), Bound::Included(sorted[sorted.len() - 1].clone()));
    let request =
        PageRequest { from, to, reverse: false, keys_only: false, items_max: 1000, bytes_max: 1 << 20, at: None };
    let Reply::Page { items, next: None } = store.execute(Operation::Page(request.into())) else {
        panic!("not one page")
    };
    let found = |key: &Key| items.iter().find(|item| item.key == *key).and_then(|item| item.record.clone());
    keys.iter().map(|key| Reply::Record(found(key))).collect()
}

/// How far the writers are: reads are so much quicker that they would all come before the first of
/// them.
#[derive(Default)]
struct Written(AtomicU64);

impl Written {
    /// Waits until another write has been answered; false when there are no more.
    fn wait_for_another(&self, known: &mut u64) -> bool {
        loop {
            let now = self.0.load(Ordering::Relaxed);
            if now == WRITERS * ROUNDS {
                return false;
            }
            if now > std::mem::replace(known, now) {
                return true;
            }
            thread::yield_now();
        }
    }
}

fn writer(store: &Store, clock: &Clock, thread: u64, written: &Written, prepare: fn()) -> Vec<HistoryEntry> {
    prepare();
    let (mut random, mut entries) = (Random::new(thread), Vec::new());
    for round in 1..=ROUNDS {
        let operation = write(&mut random, round * WRITERS + thread, store.default_level());
        let invoked = clock.tick();
        let reply = store.execute(operation.clone());
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
        let returned = Some(clock.tick());
        entries.push(HistoryEntry { client: thread as u32, invoked, returned, operation, reply: Some(reply) });
        written.0.fetch_add(1, Ordering::Relaxed);
    }
    entries
}

fn reader(store: &Store, clock: &Clock, thread: u64, written: &Written) -> Vec<HistoryEntry> {
    let (mut random, mut entries, client) = (Random::new(100 + thread), Vec::new(), (WRITERS + thread) as u32);
    let (mut known, mut rounds) = (0, 0);
    while rounds % 3 > 0 || written.wait_for_another(&mut known) {
        rounds += 1;
        let mut keys = keys(random.below(GROUPS));
        if random.below(2) == 0 {
            keys.reverse();
        }
        match random.below(3) {
            0 => {
                for key in &keys {
                    entries.extend(at_once(clock, client, std::slice::from_ref(key), || vec![store.execute(get(key))]));
                }
            }
            1 => {
                let gets = keys.iter().map(get).collect();
                entries.extend(at_once(clock, client, &keys, || store.execute_many(gets)));
            }
            _ => entries.extend(at_once(clock, client, &keys, || scan(store, &keys))),
        }
    }
    entries
}

/// `prepare` runs first in every thread that writes.
fn record(options: &Options, prepare: fn()) -> History {
    let place = place::directory();
    let options = options.clone().shards(SHARDS).memory_bytes(128 << 20);
    let store = options.open(place.path().join("data")).expect("the store opens");
    let (clock, written) = (Clock::default(), Written::default());
    let mut history = History::new(store.engine() == Engine::Matrix);
    thread::scope(|scope| {
        let (store, clock, written) = (&store, &clock, &written);
        let writers = (0..WRITERS).map(|thread| scope.spawn(move || writer(store, clock, thread, written, prepare)));
        let writers: Vec<_> = writers.collect();
        let readers: Vec<_> =
            (0..READERS).map(|thread| scope.spawn(move || reader(store, clock, thread, written))).collect();
        for thread in writers.into_iter().chain(readers) {
            history.entries.extend(thread.join().expect("no thread panics"));
        }
    });
    store.close().expect("closed");
    history
}

/// Half a batch: a late read of one key finds what the key had before a batch that a read before
/// it, of another key, had shown.
fn tear(history: &mut History) {
    let shown = |entry: &HistoryEntry| match (&entry.operation, &entry.reply) {
        (Operation::Get { key, .. }, Some(Reply::Record(Some(record)))) => Some((key.clone(), record.version)),
        _ => None,
    };
    let middle = history.entries.iter().map(|entry| entry.invoked).max().unwrap_or_default() / 2;
    let late = (0..history.entries.len()).rev().filter(|at| history.entries[*at].invoked > middle);
    let late = late.filter_map(|at| Some((at, shown(&history.entries[at])?)));
    let earlier = |key: &Key| {
        let early = history.entries.iter().filter(|entry| entry.returned.is_some_and(|at| at < middle / 2));
        early.into_iter().find(|entry| shown(entry).is_some_and(|(other, _)| other == *key))
    };
    let found = late.into_iter().find_map(|(at, (key, _))| Some((at, earlier(&key)?.reply.clone())));
    let (at, reply) = found.expect("a key that was read early and late");
    history.entries[at].reply = reply;
}

fn has_an_order(options: &Options) {
    let mut history = record(options, || {});
    let batches = history.entries.iter().filter(|entry| {
        let overlaps = entry.returned.is_some_and(|at| at > entry.invoked + 1);
        overlaps && matches!(&entry.operation, Operation::Write { changes, .. } if changes.len() > 1)
    });
    assert!(batches.count() as u64 * 4 > WRITERS * ROUNDS, "too few batches overlap with anything");
    match check(&history, STEPS) {
        Ok(checked) => assert_eq!(checked.components as u64, GROUPS, "{checked:?}"),
        Err(failure) => panic!("{failure}"),
    }
    tear(&mut history);
    assert!(matches!(check(&history, STEPS), Err(Failure::Violation(_))), "half a batch is not noticed");
}

fn in_place() -> Options {
    Options::new().placement(Placement::InPlace)
}

fn matrix() -> Options {
    Options::new().engine(Engine::Matrix).region_bytes((8 << 20) * SHARDS as u64).level(Level::ProcessCrash)
}

#[test]
fn batches_over_shards_and_reads_beside_them_have_an_order() {
    has_an_order(&in_place());
}

#[test]
fn batches_over_shards_of_logs_and_reads_beside_them_have_an_order() {
    has_an_order(&Options::new().placement(Placement::Packed));
}

#[test]
fn batches_over_shards_of_matrix_and_reads_beside_them_have_an_order() {
    has_an_order(&matrix());
}

/// The defect itself, in the threads that write: each share is shown when its own shard hears of
/// the commit.
#[cfg(feature = "fault_points")]
#[test]
fn a_batch_that_is_shown_shard_by_shard_is_noticed() {
    let split = |options: &Options, prepare| {
        let history = record(options, prepare);
        matches!(check(&history, STEPS), Err(Failure::Violation(_)))
    };
    let of_slab = || stratakv_base::fault_point::release(Some("batch_shown_shard_by_shard"));
    assert!((0..20).any(|_| split(&in_place(), of_slab)), "no reader saw half a batch");
    let of_matrix = || stratakv_base::fault_point::release(Some("matrix_batch_shown_shard_by_shard"));
    assert!((0..20).any(|_| split(&matrix(), of_matrix)), "no reader saw half a batch");
}
