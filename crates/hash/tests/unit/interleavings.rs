//! The table, the epochs and the orders under loom: all interleavings of two or three threads with
//! at most so many preemptions (`LOOM_MAX_PREEMPTIONS`, else 3), and every value that the memory
//! model lets a load give, not only those that this processor does. `cargo xtask interleave` runs
//! them.

#![expect(unsafe_code, reason = "loom's cells are shared between its threads")]

use std::ops::Bound;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use stratakv_base::{CollectionId, Key};

use crate::epoch::Epochs;
use crate::order::Orders;
use crate::table::HashTable;

/// What may be accessed by one thread that writes, or by some that read. Loom says when it is not
/// so.
struct Memory(UnsafeCell<()>);

// SAFETY: nothing lies there: accesses are told to loom, which keeps its books itself.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    fn new() -> Arc<Memory> {
        Arc::new(Memory(UnsafeCell::new(())))
    }

    fn read(&self) {
        self.0.with(|_| ());
    }

    fn write(&self) {
        self.0.with_mut(|_| ());
    }
}

fn try_all(run: impl Fn() + Sync + Send + 'static) {
    try_up_to(loom::model::Builder::new().preemption_bound.unwrap_or(3), run);
}

fn try_up_to(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(run);
}

/// A writer unlinks an extent and writes it again when its epoch says so; a reader that found it is
/// reading; somebody else begins epochs.
///
/// `advances`: how many epochs the writer begins before.
fn an_extent_is_written_again(advances: usize) {
    let (epochs, entry, extent) = (Arc::new(Epochs::new()), Arc::new(AtomicU64::new(1)), Memory::new());
    let writer = thread::spawn({
        let (epochs, entry, extent) = (epochs.clone(), entry.clone(), extent.clone());
        move || {
            for _ in 0..advances {
                epochs.advance();
            }
            entry.store(0, Ordering::Release);
            let epoch = epochs.of_unlinked();
            epochs.advance();
            if epochs.advance() >= epoch + 2 {
                extent.write();
            }
        }
    });
    let other = thread::spawn({
        let epochs = epochs.clone();
        move || {
            epochs.advance();
        }
    });
    let inside = epochs.enter_at(1);
    if entry.load(Ordering::Acquire) == 1 {
        extent.read();
    }
    drop(inside);
    writer.join().unwrap();
    other.join().unwrap();
}

#[test]
fn no_extent_is_written_under_a_reader() {
    try_all(|| an_extent_is_written_again(0));
    try_all(|| an_extent_is_written_again(1));
}

/// Places are what a hash is known by here.
fn holds(table: &HashTable, hash: u64) -> bool {
    table.find(hash, |place| (place == hash).then_some(())).is_some()
}

fn insert(table: &HashTable, hash: u64) {
    let slot = table.lock(hash).unwrap();
    slot.replace(slot.reserve().unwrap(), hash);
}

fn remove(table: &HashTable, hash: u64) {
    let slot = table.lock(hash).unwrap();
    let (found, ()) = slot.find(|place| (place == hash).then_some(())).expect("it is there");
    slot.remove(found);
}

/// One bucket of two entries that go on in another one.
fn table_of(hashes: &[u64]) -> Arc<HashTable> {
    let table = Arc::new(HashTable::new());
    hashes.iter().for_each(|hash| insert(&table, *hash));
    table
}

/// Beside a split: what stays, what goes, and what moves forward in its chain.
fn a_bucket_is_split(hash: u64) {
    let table = table_of(&[1, 2, 4, 3]);
    let splitter = thread::spawn({
        let table = table.clone();
        move || assert_eq!(table.grow(), 1)
    });
    assert!(holds(&table, hash), "{hash} is not found");
    splitter.join().unwrap();
    assert!([1, 2, 3, 4].iter().all(|hash| holds(&table, *hash)));
}

#[test]
fn a_key_is_found_while_its_bucket_is_split() {
    for hash in [2, 3, 4] {
        try_all(move || a_bucket_is_split(hash));
    }
}

/// The bucket at the end of a chain is given back by a split, and taken for another chain.
fn a_bucket_of_a_chain_changes_hands() {
    let table = table_of(&[1, 2, 4]);
    let writer = thread::spawn({
        let table = table.clone();
        move || {
            assert_eq!(table.grow(), 1);
            insert(&table, 3);
            insert(&table, 5);
        }
    });
    assert!(holds(&table, 4), "4 is not found");
    writer.join().unwrap();
    assert!([1, 2, 3, 4, 5].iter().all(|hash| holds(&table, *hash)));
}

#[test]
fn a_key_is_found_while_the_bucket_it_lay_in_changes_hands() {
    try_all(a_bucket_of_a_chain_changes_hands);
}

/// Inserts and removals into a bucket that is being split.
fn a_bucket_is_written_and_split() {
    let table = table_of(&[1, 2, 4]);
    let splitter = thread::spawn({
        let table = table.clone();
        move || table.grow()
    });
    insert(&table, 3);
    remove(&table, 2);
    splitter.join().unwrap();
    assert!([1, 3, 4].iter().all(|hash| holds(&table, *hash)) && !holds(&table, 2));
    remove(&table, 3);
    assert!(!holds(&table, 3));
}

#[test]
fn what_is_written_while_a_bucket_is_split_is_there() {
    try_all(a_bucket_is_written_and_split);
}

/// Both write what only the owner of a slot may.
fn two_have_the_slot_of_a_key() {
    let (table, memory) = (table_of(&[1, 2]), Memory::new());
    let other = thread::spawn({
        let (table, memory) = (table.clone(), memory.clone());
        move || {
            let _slot = table.lock(1);
            memory.write();
        }
    });
    {
        let _slot = table.lock(1);
        memory.write();
    }
    assert!(table.grow() <= 1);
    other.join().unwrap();
}

#[test]
fn a_slot_has_one_owner() {
    try_all(two_have_the_slot_of_a_key);
}

/// Two keys change together. Whoever sees one of them changed sees the other one so.
fn a_batch_is_shown() {
    let table = table_of(&[1, 2]);
    let writer = thread::spawn({
        let table = table.clone();
        move || {
            let slots = table.lock_all(&[1, 2]).unwrap();
            let entries: Vec<_> = slots.iter().map(|slot| slot.find(|_| Some(())).unwrap().0).collect();
            let all = || slots.iter().zip(&entries).zip([11, 12]);
            all().for_each(|((slot, found), place)| slot.announce(*found, place));
            all().for_each(|((slot, found), place)| slot.replace(*found, place));
        }
    });
    let (first, second) = (table.find(1, Some), table.find(2, Some));
    assert!(first == Some(1) || second == Some(12), "{first:?}, then {second:?}");
    writer.join().unwrap();
}

#[test]
fn a_batch_is_there_as_a_whole_or_not_at_all() {
    try_all(a_batch_is_shown);
}

/// A get beside an update whose old record is written again: the whole way.
fn a_record_is_updated() {
    let (table, epochs, memory) = (table_of(&[1]), Arc::new(Epochs::new()), Memory::new());
    let writer = thread::spawn({
        let (table, epochs, memory) = (table.clone(), epochs.clone(), memory.clone());
        move || {
            let slot = table.lock(1).unwrap();
            let (found, ()) = slot.find(|_| Some(())).unwrap();
            slot.replace(found, 9);
            drop(slot);
            let epoch = epochs.of_unlinked();
            epochs.advance();
            if epochs.advance() >= epoch + 2 {
                memory.write();
            }
        }
    });
    let inside = epochs.enter_at(0);
    let found = table.find(1, Some).expect("it is there, old or new");
    if found == 1 {
        memory.read();
    }
    drop(inside);
    writer.join().unwrap();
}

#[test]
fn a_record_that_was_replaced_is_not_written_under_a_get() {
    try_all(a_record_is_updated);
}

/// Two keys come into an order, whose writers meet. Whoever knows that one is there sees it.
fn keys_come_into_an_order() {
    let (orders, is_there) = (Arc::new(Orders::new()), Arc::new(AtomicU64::new(0)));
    let insert = |user: &'static [u8]| {
        let orders = orders.clone();
        let key = Key::bound(CollectionId(1), user);
        move || {
            orders.insert(key.encoded(), 0);
            orders.apply_waiting(key.encoded());
        }
    };
    let other = thread::spawn(insert(b"a"));
    let writer = thread::spawn({
        let (insert, is_there) = (insert(b"b"), is_there.clone());
        move || {
            insert();
            is_there.store(1, Ordering::Release);
        }
    });
    let was_there = is_there.load(Ordering::Acquire) == 1;
    let found = orders.keys(&Bound::Included(Key::bound(CollectionId(1), b"")), &Bound::Unbounded, false, 9);
    assert!(!was_there || found.iter().any(|(key, _)| key.user() == b"b"), "{found:?}");
    writer.join().unwrap();
    other.join().unwrap();
    assert_eq!(orders.len(), 2);
}

#[test]
fn a_key_that_is_there_is_in_its_order() {
    try_all(keys_come_into_an_order);
}

/// A key comes behind the last one while that is asked for: whoever asks later gets it.
fn a_key_comes_at_an_end() {
    let orders = Arc::new(Orders::new());
    let key = |user: &'static [u8]| Key::bound(CollectionId(1), user);
    orders.insert(key(b"a").encoded(), 0);
    let (from, to) = (Bound::Included(key(b"")), Bound::Excluded(Key::bound(CollectionId(2), b"")));
    let last = |orders: &Orders| orders.keys(&from, &to, true, 1).pop().map(|(key, _)| key.user().to_vec());
    let writer = thread::spawn({
        let (orders, key) = (orders.clone(), key(b"b"));
        move || {
            orders.insert(key.encoded(), 0);
            orders.apply_waiting(key.encoded());
        }
    });
    assert!(last(&orders).is_some());
    writer.join().unwrap();
    assert_eq!(last(&orders).as_deref(), Some(&b"b"[..]));
    assert_eq!(last(&orders).as_deref(), Some(&b"b"[..]), "kept");
}

#[test]
fn a_key_that_comes_at_an_end_is_seen_there() {
    try_all(a_key_comes_at_an_end);
}

/// With feature `fault_points`: each deliberate defect in the order of things is found by one of
/// these.
#[cfg(feature = "fault_points")]
#[test]
fn every_deliberate_defect_is_caught() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    let runs: [fn(); 9] = [
        a_key_comes_at_an_end,
        || an_extent_is_written_again(0),
        || an_extent_is_written_again(1),
        a_record_is_updated,
        || a_bucket_is_split(3),
        || a_bucket_is_split(2),
        || a_bucket_is_split(4),
        a_bucket_is_written_and_split,
        two_have_the_slot_of_a_key,
    ];
    let sources =
        [include_str!("../../src/epoch.rs"), include_str!("../../src/table.rs"), include_str!("../../src/order.rs")];
    let sources = sources.concat();
    let names = sources.split("fault_point!(\"").skip(1).filter_map(|rest| rest.split('"').next());
    // One of the order is seen by a test of its own, without luck (`order.rs`).
    let names: Vec<&str> = names.filter(|name| *name != "hash_order_read_without_what_waits").collect();
    assert!(names.len() >= 7, "{names:?}");
    for name in names {
        let catches = |preemptions: usize, run: fn()| {
            catch_unwind(AssertUnwindSafe(|| {
                stratakv_base::fault_point::release(Some(name));
                try_up_to(preemptions, run);
            }))
            .is_err()
        };
        let tries = (2..=4).flat_map(|preemptions| runs.iter().map(move |run| (preemptions, *run)));
        let is_caught = tries.into_iter().any(|(preemptions, run)| catches(preemptions, run));
        stratakv_base::fault_point::release(None);
        assert!(is_caught, "{name} is not caught");
    }
}
