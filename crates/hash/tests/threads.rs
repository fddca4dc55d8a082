//! Threads that write and read the same keys, with every value checked: what a get returns was put
//! whole, and never goes back.

mod hooked;
mod values;

use std::ops::Bound;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use hooked::Hooked;
use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Expiry, Key, Level, Now, Wall};
use stratakv_engine::{Change, ChangeKind, Error, Expect, Operation, PageRequest, Reply, Shared};
use stratakv_hash::{Hash, HashOptions, Report, Written};
use stratakv_pmem::{MapOptions, Mapping};
use stratakv_sim::pmem::Region;
use values::Stamp;

const NOW: Wall = Wall(1000);
const KEYS: u64 = 300;
const WRITERS: u64 = 3;

fn key(number: u64) -> Key {
    Key::new(CollectionId(0), format!("key {number}").as_bytes()).expect("a key")
}

/// The round of a value, if it is whole and of this key.
fn round_of(number: u64, value: &[u8]) -> Result<u64, String> {
    let stamp = Stamp::read(value).map_err(|why| format!("a value of key {number}: {why}"))?;
    let expected = Stamp { number, writer: number % WRITERS, round: stamp.round };
    if stamp == expected { Ok(stamp.round) } else { Err(format!("key {number} has {stamp:?}")) }
}

/// Rounds of puts and deletes, each key by one writer; what readers saw that cannot be, if
/// anything.
fn run(fault_point: Option<&'static str>, rounds: u64) -> (Result<(), String>, Report) {
    let pmem = Mapping::anonymous(1 << 20, MapOptions::default()).expect("memory");
    let hash = Hash::create(pmem, HashOptions { segment_bytes: 16 << 10, ..HashOptions::default() }).expect("created");
    let (hash, stop) = (&hash, &AtomicBool::new(false));
    let outcome = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    release(fault_point);
                    write(hash, writer, rounds)
                })
            })
            .collect();
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                scope.spawn(move || {
                    let seen = read(hash, reader, stop);
                    stop.store(true, Ordering::Relaxed);
                    seen
                })
            })
            .collect();
        let mut outcome = Ok(());
        for writer in writers {
            outcome = outcome.and(writer.join().unwrap_or_else(|_| Err("a writer panicked".into())));
        }
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            outcome = outcome.and(reader.join().unwrap_or_else(|_| Err("a reader panicked".into())).map(drop));
        }
        outcome
    });
    (outcome, hash.report())
}

#[cfg(feature = "fault_points")]
fn release(fault_point: Option<&'static str>) {
    stratakv_base::fault_point::release(fault_point);
}

#[cfg(not(feature = "fault_points"))]
fn release(_: Option<&'static str>) {}

fn write(hash: &Hash<Mapping>, writer: u64, rounds: u64) -> Result<(), String> {
    let mut random = Random::new(writer);
    for round in 1..=rounds {
        let number = random.below(KEYS / WRITERS) * WRITERS + writer;
        let written = if random.below(8) == 0 {
            hash.delete(&key(number), Expect::Any, NOW)
        } else {
            let value = Stamp { number, writer, round }.value(1 + random.below(27));
            hash.put(&key(number), &value, (0, Expiry::NEVER), Expect::Any, NOW)
        };
        match written {
            Ok(Written::Done { .. }) | Err(Error::Full(_)) => {}
            other => return Err(format!("{other:?}")),
        }
    }
    Ok(())
}

fn read(hash: &Hash<Mapping>, reader: u64, stop: &AtomicBool) -> Result<u64, String> {
    let (mut random, mut gets) = (Random::new(90 + reader), 0);
    let mut newest = vec![(0, 0); KEYS as usize];
    while !stop.load(Ordering::Relaxed) {
        let number = random.below(KEYS);
        gets += 1;
        let Some(record) = hash.get(&key(number), NOW).map_err(|error| error.to_string())? else { continue };
        let seen = (record.version, round_of(number, &record.value.to_bytes())?);
        let before = std::mem::replace(&mut newest[number as usize], seen);
        if seen < before || (seen.0 == before.0) != (seen.1 == before.1) {
            return Err(format!("key {number} went from {before:?} to {seen:?}"));
        }
    }
    Ok(gets)
}

#[test]
fn what_readers_see_beside_writers_was_put_whole_and_in_order() {
    let (outcome, report) = run(None, 60_000);
    outcome.unwrap_or_else(|why| panic!("{why}: {report:?}"));
    assert!(report.records > KEYS / 2 && report.damaged == 0, "{report:?}");
}

/// What one thread wrote, others update: it took twice the space, since nobody looked at what the
/// first one's arena had.
#[test]
fn what_one_thread_frees_another_one_uses() {
    let pmem = Mapping::anonymous(64 << 20, MapOptions::default()).expect("memory");
    let hash = Hash::create(pmem, HashOptions { segment_bytes: 64 << 10, ..HashOptions::default() }).expect("created");
    let put_all = || {
        for number in 0..60_000 {
            hash.put(&key(number), &[1; 128], (0, Expiry::NEVER), Expect::Any, NOW).expect("a put");
        }
    };
    put_all();
    let filled = hash.report();
    for _ in 0..6 {
        thread::scope(|scope| drop(scope.spawn(put_all)));
    }
    let report = hash.report();
    assert!(report.used_bytes < filled.used_bytes * 3 / 2, "{report:?} after {filled:?}");
}

/// Three writers have the three segments in hand while they write. Who came meanwhile was told that
/// the store is full, and so was everybody after, though it was empty.
#[test]
fn a_store_with_room_is_not_full_for_good_because_others_wrote() {
    let (waiting, let_go) = (AtomicU64::new(0), AtomicU64::new(0));
    let at_store = |bytes: &[u8]| {
        // Of a body, in however many stores: whoever lays one has its extent.
        if bytes.windows(100).any(|value| value == [1; 100]) {
            held(&waiting, &let_go);
        }
    };
    let pmem = Hooked { region: Region::new(7 * 4096), at_load: &|| {}, at_store: &at_store, at_fence: &|| {} };
    let hash = Hash::create(pmem, HashOptions { segment_bytes: 4096, ..HashOptions::default() }).expect("created");
    let put = |number: u64, value: &[u8]| hash.put(&key(number), value, (0, Expiry::NEVER), Expect::Any, NOW);
    thread::scope(|scope| {
        let _at_the_end = LetAllGo(&let_go);
        let put = &put;
        let spawned = |writer| scope.spawn(move || put(writer, &[1; 100]).expect("there is room"));
        let writers = [0, 1, 2].map(spawned);
        while waiting.load(Ordering::SeqCst) < 3 {
            assert!(writers.iter().all(|writer| !writer.is_finished()), "a writer did not wait with its extent");
            thread::yield_now();
        }
        assert!(matches!(put(9, &[2; 100]), Err(Error::Full(_))), "all of it is in hand");
    });
    // Threads of every arena, one after the other.
    for number in 10..26 {
        thread::scope(|scope| scope.spawn(|| put(number, &[2; 100]).expect("there is room")).join().expect("no panic"));
    }
}

/// For stores and fences that return when they are let.
fn held(begun: &AtomicU64, let_go: &AtomicU64) {
    let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
    while let_go.load(Ordering::SeqCst) < number {
        thread::yield_now();
    }
}

/// Lets everybody go who is [`held`], also when a test fails meanwhile: it would wait for them for
/// ever.
struct LetAllGo<'a>(&'a AtomicU64);

impl Drop for LetAllGo<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Ordering::SeqCst);
    }
}

/// What a reader finds during each fence of an update: false for the old value.
fn seen_during_fences(fault_point: Option<&'static str>, is_batch: bool) -> Vec<bool> {
    let (begun, let_go) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let at_fence = || held(&begun, &let_go);
    let pmem = Hooked { region: Region::new(7 * 4096), at_load: &|| {}, at_store: &|_| {}, at_fence: &at_fence };
    let hash = Hash::create(pmem, HashOptions { segment_bytes: 4096, ..HashOptions::default() }).expect("created");
    let put = |number: u64, value: &[u8]| hash.put(&key(number), value, (0, Expiry::NEVER), Expect::Any, NOW);
    put(1, b"old").expect("there is room");
    begun.store(0, Ordering::SeqCst);
    let_go.store(0, Ordering::SeqCst);
    thread::scope(|scope| {
        let _at_the_end = LetAllGo(&let_go);
        let writer = scope.spawn(|| {
            release(fault_point);
            let kind = || ChangeKind::Put { value: "new".into(), flags: 0, expiry: Expiry::NEVER };
            let change = |number| Change { key: key(number), expect: Expect::Any, kind: kind() };
            let written = if is_batch { hash.write(&[change(1), change(2)], NOW) } else { put(1, b"new") };
            written.expect("there is room");
        });
        let mut seen = Vec::new();
        loop {
            let fence = seen.len() as u64 + 1;
            while begun.load(Ordering::SeqCst) < fence && !writer.is_finished() {
                thread::yield_now();
            }
            if writer.is_finished() {
                return seen;
            }
            let record = hash.get(&key(1), NOW).expect("a get").expect("it is always there");
            seen.push(record.value.to_bytes() != "old");
            let_go.store(fence, Ordering::SeqCst);
        }
    })
}

/// A value that a cut may still take back is shown to nobody.
#[test]
fn a_write_is_seen_once_it_is_durable() {
    // Besides the fences of the write those of a span that its thread begins.
    assert!(seen_during_fences(None, false).ends_with(&[false, false, true]));
    assert!(seen_during_fences(None, true).ends_with(&[false, false, false, true, true]));
}

/// The end of a store did not wait for who was writing: it unlocked the region while that went on.
#[test]
fn the_end_waits_for_writes_under_way() {
    let (begun, let_go) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let at_fence = || held(&begun, &let_go);
    let pmem = Hooked { region: Region::new(7 * 4096), at_load: &|| {}, at_store: &|_| {}, at_fence: &at_fence };
    let hash = Hash::create(pmem, HashOptions { segment_bytes: 4096, ..HashOptions::default() }).expect("created");
    begun.store(0, Ordering::SeqCst);
    let_go.store(0, Ordering::SeqCst);
    let put = || {
        let kind = ChangeKind::Put { value: "new".into(), flags: 0, expiry: Expiry::NEVER };
        let changes = vec![Change { key: key(1), expect: Expect::Any, kind }];
        let operation = Operation::Write { changes, level: Level::PowerLoss };
        hash.execute(operation, Now { wall: NOW, ..Now::default() })
    };
    thread::scope(|scope| {
        let _at_the_end = LetAllGo(&let_go);
        let writer = scope.spawn(put);
        while begun.load(Ordering::SeqCst) == 0 {
            assert!(!writer.is_finished(), "a write without a fence");
            thread::yield_now();
        }
        let closer = scope.spawn(|| hash.close());
        let ended_early = (0..2_000).any(|_| {
            thread::yield_now();
            closer.is_finished()
        });
        let_go.store(u64::MAX, Ordering::SeqCst);
        assert!(!ended_early, "it ended before the write");
        assert!(matches!(writer.join(), Ok(Reply::Done { .. })));
    });
    assert!(matches!(put(), Reply::Failed(Error::Closed)));
}

/// Updates a key at one fence of a put that moves some records; the keys with other values than
/// they should have, and whether there was room for it. The update is given so many milliseconds:
/// for ever would be too long, as it may have to wait for the mover.
fn wrong_beside_a_move(fault_point: Option<&'static str>, at: u64, updated: u64, patience_ms: u64) -> (Vec<u64>, bool) {
    let (mover, begun, let_go) = (OnceLock::new(), AtomicU64::new(0), AtomicU64::new(0));
    let at_fence = || {
        if mover.get() == Some(&thread::current().id()) {
            held(&begun, &let_go);
        }
    };
    let pmem = Hooked { region: Region::new(8 * 4096), at_load: &|| {}, at_store: &|_| {}, at_fence: &at_fence };
    let hash = &Hash::create(pmem, HashOptions { segment_bytes: 4096, ..HashOptions::default() }).expect("created");
    let value = |number: u64, bytes: usize| vec![number as u8; bytes];
    let put = |number, value: &[u8]| hash.put(&key(number), value, (7, Expiry::NEVER), Expect::Any, NOW);
    // Of four segments two are full, and what is free in the others lies between records.
    for (number, bytes) in [(20, 3900), (21, 3900)].into_iter().chain((0..12).map(|number| (number, 570))) {
        put(number, &value(number, bytes)).expect("there is room");
    }
    for number in (0..12).step_by(2) {
        hash.delete(&key(number), Expect::Any, NOW).expect("a delete");
    }
    let (is_put, had_room) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            release(fault_point);
            mover.set(thread::current().id()).expect("once");
            // The update may take the room that there would be.
            put(30, &value(30, 2000)).is_ok()
        });
        let_go.store(at - 1, Ordering::SeqCst);
        while begun.load(Ordering::SeqCst) < at && !writer.is_finished() {
            thread::yield_now();
        }
        let updater = scope.spawn(move || put(updated, &value(100 + updated, 570)).is_ok());
        // Whoever wants a slot that the mover has waits for it.
        for _ in 0..patience_ms {
            if !updater.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
        }
        let_go.store(u64::MAX, Ordering::SeqCst);
        (writer.join().expect("no panic"), updater.join().expect("no panic"))
    });
    let expected = |number: u64| match number {
        30 => value(30, 2000),
        number if number == updated && had_room => value(100 + number, 570),
        number => value(number, 570),
    };
    let is_wrong = |number: &u64| {
        let found = hash.get(&key(*number), NOW).expect("a get");
        found.map_or(*number != 30 || is_put, |found| found.value.to_bytes() != expected(*number) || found.flags != 7)
    };
    ((1..12).step_by(2).chain([30]).filter(is_wrong).collect(), had_room)
}

#[test]
fn a_record_that_is_written_while_it_is_moved_has_what_was_written() {
    let mut updates = 0;
    for (at, updated) in fences_and_keys() {
        let (wrong, had_room) = wrong_beside_a_move(None, at, updated, 50);
        assert!(wrong.is_empty(), "{wrong:?} after an update of {updated} at fence {at}");
        updates += u32::from(had_room);
    }
    assert!(updates > 12, "{updates} updates");
}

/// Which records are moved, and at which fence, is the engine's affair.
fn fences_and_keys() -> impl Iterator<Item = (u64, u64)> {
    (1..7).flat_map(|at| (1..12).step_by(2).map(move |updated| (at, updated)))
}

#[cfg(feature = "fault_points")]
#[test]
fn a_deliberately_moved_older_record_is_seen() {
    let wrong =
        |at, updated, patience_ms| wrong_beside_a_move(Some("hash_moved_over_a_newer_one"), at, updated, patience_ms).0;
    // What is freed twice is met by assertions too.
    let is_seen = |at, updated, patience_ms| {
        std::panic::catch_unwind(|| wrong(at, updated, patience_ms)).map_or(true, |wrong| !wrong.is_empty())
    };
    // On a machine with other work an update takes its time.
    let seen = |patience_ms| fences_and_keys().any(|(at, updated)| is_seen(at, updated, patience_ms));
    assert!([50, 500, 3000].into_iter().any(seen));
}

/// Space that is written again while a reader looks at it.
#[cfg(feature = "fault_points")]
#[test]
fn extents_reused_under_readers_are_seen() {
    let seen = (0..20).any(|_| run(Some("hash_reused_under_readers"), 60_000).0.is_err());
    assert!(seen, "hash_reused_under_readers is not caught");
}

/// Which keys of a sorted collection a scan found.
fn scanned(hash: &Hash<Mapping>, keys_only: bool) -> Vec<Key> {
    let bound = |number| Key::bound(CollectionId(number), b"");
    let (from, to) = (Bound::Included(bound(7)), Bound::Excluded(bound(8)));
    let request = PageRequest { from, to, reverse: false, keys_only, items_max: 1000, bytes_max: 1 << 20, at: None };
    match hash.execute(Operation::Page(request.into()), Now { wall: NOW, ..Now::default() }) {
        Reply::Page { items, .. } => items.into_iter().map(|item| item.key).collect(),
        other => panic!("{other:?}"),
    }
}

/// What a scan finds was inserted, and what it does not find was not, as far as that did not change
/// during it.
#[test]
fn a_scan_sees_what_was_inserted_or_removed_before() {
    let pmem = Mapping::anonymous(1 << 20, MapOptions::default()).expect("memory");
    let hash = &Hash::create(pmem, HashOptions { segment_bytes: 16 << 10, ..HashOptions::default() }).expect("created");
    let key = |number: usize| Key::new(CollectionId(7), format!("{number:04}").as_bytes()).expect("a key");
    // Changes begun and done: even while none is under way, and a multiple of 4 while the key is
    // not there.
    let steps: &Vec<AtomicU64> = &(0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let writing = &AtomicU64::new(WRITERS);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let mut random = Random::new(writer);
                for _ in 0..20_000 {
                    let number = (random.below(KEYS / WRITERS) * WRITERS + writer) as usize;
                    let step = steps[number].fetch_add(1, Ordering::SeqCst);
                    let written = if step.is_multiple_of(4) {
                        hash.put(&key(number), b"value", (0, Expiry::NEVER), Expect::Absent, NOW)
                    } else {
                        hash.delete(&key(number), Expect::Present, NOW)
                    };
                    assert!(matches!(written, Ok(Written::Done { .. })), "{written:?}");
                    steps[number].fetch_add(1, Ordering::SeqCst);
                }
                writing.fetch_sub(1, Ordering::SeqCst);
            });
        }
        for reader in 0..2 {
            scope.spawn(move || {
                let all = || -> Vec<u64> { steps.iter().map(|step| step.load(Ordering::SeqCst)).collect() };
                while writing.load(Ordering::SeqCst) > 0 {
                    let before = all();
                    let found = scanned(hash, reader == 0);
                    let after = all();
                    for number in (0..KEYS as usize).filter(|number| before[*number] == after[*number]) {
                        let step = before[number];
                        let is_found = found.binary_search(&key(number)).is_ok();
                        assert!(step % 2 == 1 || is_found == (step % 4 == 2), "key {number}: {is_found} after {step}");
                    }
                }
            });
        }
    });
    assert_eq!(scanned(hash, true), scanned(hash, false));
    assert_eq!(hash.report().ordered, hash.report().records);
}
