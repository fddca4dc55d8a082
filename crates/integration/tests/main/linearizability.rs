//! Threads on a few keys of a real store: what they were answered can have been answered by one
//! register for each key.

use std::path::Path;
use std::sync::{Barrier, RwLock};
use std::thread;

use bytes::Bytes;
use stratakv::raw::{Change, ChangeKind, Operation, RecordPart, Reply, Update};
use stratakv::{CollectionId, EngineError, Expect, Expiry, IoBackend, Key, Level, Options, Store};
use stratakv_base::random::Random;
use stratakv_integration::place;
use stratakv_sim::linearizability::{Client, Clock, Failure, History, check};

const THREADS: u64 = 8;
const KEYS: u64 = 12;
/// Of each thread, in each half.
const OPERATIONS: u64 = 850;
const STEPS: u64 = 20_000_000;

/// An operation on one of a few keys. Values differ, so that a get tells which write it saw.
fn operation(random: &mut Random, last_version: u64, number: u64) -> Operation {
    let key = Key::new(CollectionId::default(), format!("key {}", random.below(KEYS)).as_bytes()).expect("a short key");
    let level = if random.below(4) == 0 { Level::PowerLoss } else { Level::ProcessCrash };
    let write = |expect, kind| {
        let changes = vec![Change { key: key.clone(), expect, kind }];
        Operation::Write { changes, level }
    };
    // Some do not fit a page.
    let len = [8, 8, 100, 5000][random.below(4) as usize];
    let text = format!("{number:<len$}");
    let put = || ChangeKind::Put { value: text.clone().into(), flags: 0, expiry: Expiry::NEVER };
    let update = |update| Operation::Update { key: key.clone(), update, level };
    match random.below(16) {
        0..6 => Operation::Get { key: key.clone(), part: RecordPart::Whole },
        6 | 7 => write(Expect::Any, put()),
        8 => write(Expect::Absent, put()),
        9 => write(Expect::Present, put()),
        10 => write(Expect::Version(last_version), put()),
        11 => write(Expect::Any, ChangeKind::Delete),
        12 => update(Update::Append(Bytes::from(format!("+{number}")))),
        13 => update(Update::Prepend(Bytes::from_static(b"1"))),
        14 => update(Update::Increment(number)),
        _ => match random.below(3) {
            0 => update(Update::Decrement(number)),
            1 => update(Update::Touch(Expiry::NEVER)),
            _ => Operation::Sync,
        },
    }
}

fn version(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Done { version, .. } | Reply::Number { version, .. } => Some(*version),
        Reply::Record(record) => record.as_ref().map(|record| record.version),
        _ => None,
    }
}

/// Asks until everything is asked or the store is closed.
fn work(client: &mut Client<'_>, store: &Store, random: &mut Random, thread: u64, numbers: std::ops::Range<u64>) {
    let mut last_version = 0;
    for number in numbers {
        let operation = operation(random, last_version, number * THREADS + thread);
        let reply = client.call(operation, |operation| store.execute(operation));
        match reply {
            Reply::Failed(EngineError::Closed) => return,
            Reply::Failed(error) => panic!("{error}"),
            reply => last_version = version(reply).unwrap_or(last_version),
        }
    }
}

/// What eight threads asked of a store that one of them closes while the others are asking, and
/// opens again.
fn record(data: &Path, io: IoBackend) -> History {
    let open = || Options::new().shards(2).memory_bytes(64 << 20).io(io).open(data).expect("the store opens");
    let (store, clock, barrier) = (RwLock::new(open()), Clock::default(), Barrier::new(THREADS as usize));
    let current = || store.read().expect("no thread panicked").clone();
    let run = &|thread: u64| {
        let (mut client, mut random) = (clock.client(thread as u32), Random::new(thread));
        let first = if thread == 0 { OPERATIONS / 2 } else { OPERATIONS };
        work(&mut client, &current(), &mut random, thread, 1..first);
        if thread == 0 {
            current().close().expect("closed");
        }
        barrier.wait();
        if thread == 0 {
            *store.write().expect("no thread panicked") = open();
        }
        barrier.wait();
        work(&mut client, &current(), &mut random, thread, OPERATIONS..2 * OPERATIONS);
        client
    };
    let clients = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect::<Vec<_>>()
    });
    current().close().expect("closed");
    History::of(clients)
}

/// Replaces what a late get found by what an early get of the same key found.
fn falsify(history: &mut History) {
    let found = |at: &usize| match (&history.entries[*at].operation, &history.entries[*at].reply) {
        (Operation::Get { key, .. }, Some(Reply::Record(Some(_)))) => Some((key.clone(), *at)),
        _ => None,
    };
    let is_late = |at: &usize| history.entries[*at].invoked > history.entries.len() as u64;
    let (late, early): (Vec<usize>, Vec<usize>) = (0..history.entries.len()).partition(is_late);
    let early: Vec<_> = early.iter().filter_map(found).collect();
    let mut pairs = late
        .iter()
        .filter_map(found)
        .filter_map(|(key, late)| early.iter().find(|(other, _)| *other == key).map(|(_, early)| (late, *early)));
    let (late, early) = pairs.next().expect("some key was read early and late");
    history.entries[late].reply = history.entries[early].reply.clone();
}

fn is_linearizable(io: IoBackend) {
    let place = place::directory();
    let mut history = record(&place.path().join("data"), io);
    let overlaps = history.entries.iter().filter(|entry| entry.returned.is_some_and(|at| at > entry.invoked + 1));
    let (count, overlapping) = (history.entries.len(), overlaps.count());
    assert!(overlapping * 10 > count, "{overlapping} of {count} operations overlap with others");
    match check(&history, STEPS) {
        Ok(checked) => assert!(checked.operations > count / 2, "{checked:?} of {count}"),
        Err(failure) => panic!("{io:?}: {failure}"),
    }
    falsify(&mut history);
    match check(&history, STEPS) {
        Err(Failure::Violation(text)) => assert!(text.contains("<- finds no place"), "{text}"),
        other => panic!("an answer was falsified: {other:?}"),
    }
}

#[test]
fn what_eight_threads_are_answered_through_io_uring_has_an_order() {
    is_linearizable(IoBackend::Auto);
}

#[test]
fn what_eight_threads_are_answered_through_blocking_calls_has_an_order() {
    is_linearizable(IoBackend::Blocking);
}
