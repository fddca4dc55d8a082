//! The keys of collections in order.
//!
//! Point operations go through the hash table; scans take keys from here and records from there. So
//! an order costs an overwrite nothing, a new key an insert into a tree, and a scanned record a
//! lookup. It is in DRAM and built again at opening: nothing of it has to be kept consistent on the
//! medium (KVDK keeps a linked list there). The keys of the default collection are in no order.
//!
//! Collections share trees: a small one costs its keys, whose neighbours share their prefix, and
//! nothing else.
//!
//! A change of a tree takes 1.5 us, so writers do not queue for it (flat combining: Hendler et al.,
//! SPAA 2010). They add what is to be done to a list, which is short, and whoever then gets the
//! tree makes all that waits, in the order of the list; who does not get it goes on. Who reads a
//! tree first sees to it that nothing waits: so a change that was in the list before is seen.
//!
//! Instead: pieces of a tree with a lock each, which would change at once. They have to be split
//! and merged, and keys that come in order all meet in the last one.

mod ends;

use std::ops::{Bound, ControlFlow};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use stratakv_base::{CollectionId, Key, fault_point};
use stratakv_engine::range::encoded;
use stratakv_index::{IndexEntry, Tree};

use ends::{Ends, begins_at_end};

use crate::sync::{AtomicU64, IS_TRIED, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Trees. A collection lies in one.
const STRIPES: usize = if IS_TRIED { 1 } else { 64 };
/// Keys taken at a time: as long are writers kept away.
pub(crate) const TAKEN_MAX: usize = 256;
/// Bytes of changes that wait while somebody makes some, or reads: a thousand short keys. Beyond,
/// writers wait too.
const WAITING_BYTES_MAX: u64 = 64 << 10;

/// A key, and the millisecond at which it expires, or 0.
pub(crate) type Listed = (Key, u64);

/// See the module.
#[derive(Debug)]
pub(crate) struct Orders(Box<[Stripe]>);

#[derive(Debug)]
#[repr(align(128))]
struct Stripe {
    waiting: Mutex<Waiting>,
    /// Length of its changes, in bytes: stored with it locked.
    waiting_bytes: AtomicU64,
    made: RwLock<Made>,
}

/// Changes to come, and the ends of collections as they will be with these.
#[derive(Debug, Default)]
struct Waiting {
    changes: Changes,
    ends: Ends,
}

/// A tree, and the changes that are being made; none between.
#[derive(Debug, Default)]
struct Made {
    tree: Tree,
    taken: Changes,
}

/// What is to be done, in order.
#[derive(Debug, Default)]
struct Changes {
    /// One behind the other.
    keys: Vec<u8>,
    each: Vec<Change>,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    /// Of its key in `keys`.
    end: usize,
    /// When it expires; `None`: it goes.
    expiry: Option<u64>,
}

/// Whether a key is in an order: not in the default collection.
pub(crate) fn is_ordered(key: &[u8]) -> bool {
    key.first().is_some_and(|first| *first != 0)
}

fn stripe_of(collection: CollectionId) -> usize {
    // Neighbouring numbers in different ones.
    collection.0 as usize % STRIPES
}

fn collection_of_key(key: &[u8]) -> CollectionId {
    match key {
        [0xFF, a, b, c, d, ..] => CollectionId(u32::from_be_bytes([*a, *b, *c, *d])),
        [small, ..] => CollectionId(u32::from(*small)),
        [] => CollectionId(0),
    }
}

fn stripe_of_key(key: &[u8]) -> usize {
    stripe_of(collection_of_key(key))
}

/// The collection in which everything between the bounds lies.
fn collection_of(from: &Bound<Key>, to: &Bound<Key>) -> Option<CollectionId> {
    let (Bound::Included(first) | Bound::Excluded(first)) = from else { return None };
    let collection = first.collection();
    let within = match to {
        Bound::Included(last) => last.collection() == collection,
        Bound::Excluded(last) if last.user().is_empty() => {
            last.collection() == collection || collection.0.checked_add(1) == Some(last.collection().0)
        }
        Bound::Excluded(last) => last.collection() == collection,
        Bound::Unbounded => false,
    };
    within.then_some(collection)
}

impl Changes {
    fn push(&mut self, key: &[u8], expiry: Option<u64>) {
        self.keys.extend_from_slice(key);
        self.each.push(Change { end: self.keys.len(), expiry });
    }

    fn bytes(&self) -> u64 {
        (self.keys.len() + self.each.len() * size_of::<Change>()) as u64
    }

    /// Keeps the memory, if it is not much.
    fn clear(&mut self) {
        self.keys.clear();
        self.each.clear();
        if self.footprint_bytes() as u64 > 4 * WAITING_BYTES_MAX {
            *self = Changes::default();
        }
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], Option<u64>)> {
        let starts = std::iter::once(0).chain(self.each.iter().map(|change| change.end));
        let each = self.each.iter().zip(starts);
        each.map(|(change, start)| (self.keys.get(start..change.end).unwrap_or_default(), change.expiry))
    }

    fn footprint_bytes(&self) -> usize {
        self.keys.capacity() + self.each.capacity() * size_of::<Change>()
    }
}

impl Made {
    /// Makes the changes that were taken.
    fn make(&mut self) {
        for (key, expiry) in self.taken.iter() {
            match expiry {
                Some(expiry) => self.tree.insert(key, IndexEntry { place: 0, expiry }),
                None => self.tree.remove(key),
            };
        }
        self.taken.clear();
    }

    fn keys(&self, from: &Bound<Key>, to: &Bound<Key>, reverse: bool, max: usize) -> Vec<Listed> {
        let mut keys = Vec::new();
        self.tree.scan(encoded(from), encoded(to), reverse, &mut |key, entry| {
            keys.extend(Key::from_encoded(key).map(|key| (key, entry.expiry)));
            if keys.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        keys
    }
}

impl Stripe {
    fn new() -> Stripe {
        Stripe {
            waiting: Mutex::new(Waiting::default()),
            waiting_bytes: AtomicU64::new(0),
            made: RwLock::new(Made::default()),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, key: &[u8], expiry: Option<u64>) {
        let (mut waiting, collection) = (self.waiting(), collection_of_key(key));
        match expiry {
            Some(expiry) => waiting.ends.insert(collection, key, expiry),
            None => waiting.ends.remove(collection, key),
        }
        waiting.changes.push(key, expiry);
        self.waiting_bytes.store(waiting.changes.bytes(), Ordering::Release);
    }

    /// Makes what waits if nobody has the tree, or once nobody has it if it is much.
    fn apply_waiting(&self) {
        let waiting_bytes = self.waiting_bytes.load(Ordering::Relaxed);
        if waiting_bytes > WAITING_BYTES_MAX {
            self.drain(self.made.write().unwrap_or_else(PoisonError::into_inner));
        } else if waiting_bytes > 0
            && let Ok(made) = self.made.try_write()
        {
            self.drain(made);
        }
    }

    /// Makes what waits. Taken with the tree locked: so changes are made in the order in which they
    /// came, and whoever finds none waiting and then locks the tree finds them made.
    fn drain(&self, mut made: RwLockWriteGuard<'_, Made>) {
        {
            let mut waiting = self.waiting();
            std::mem::swap(&mut waiting.changes, &mut made.taken);
            self.waiting_bytes.store(0, Ordering::Release);
        }
        made.make();
    }

    /// The tree with all that was pushed before. What was pushed is either still waiting, and made
    /// here, or was taken by somebody who locked the tree before and unlocks it once it is made.
    /// Whoever finds nothing waiting reads what that one stored, with the tree locked and with
    /// release: so the lock is asked for after that, and had when it is made.
    fn read(&self) -> RwLockReadGuard<'_, Made> {
        let mut is_behind = self.waiting_bytes.load(Ordering::Acquire) > 0;
        fault_point!("hash_order_read_without_what_waits", is_behind = false);
        if is_behind {
            self.drain(self.made.write().unwrap_or_else(PoisonError::into_inner));
        }
        self.made.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stripe {
    /// The first key of a range within a collection, or the last one: from what is known of its
    /// ends, else from the tree.
    fn end(&self, collection: CollectionId, range: (&Bound<Key>, &Bound<Key>), reverse: bool) -> Vec<Listed> {
        let wanted = {
            let waiting = self.waiting();
            if let Some(known) = waiting.ends.first(collection, range, reverse) {
                return known;
            }
            waiting.ends.wanted(collection)
        };
        let is_end = begins_at_end(range.0, range.1, reverse);
        let made = self.read();
        let mut keys = made.keys(range.0, range.1, reverse, if is_end { wanted } else { 1 });
        if is_end {
            let mut waiting = self.waiting();
            // What came since the tree was read would not be among the keys.
            let mut is_all = waiting.changes.each.is_empty();
            fault_point!("hash_order_ends_without_what_waits", is_all = true);
            if is_all {
                waiting.ends.keep(collection, &keys, reverse);
            }
        }
        drop(made);
        keys.truncate(1);
        keys
    }
}

impl Orders {
    pub(crate) fn new() -> Orders {
        Orders((0..STRIPES).map(|_| Stripe::new()).collect())
    }

    /// Adds a key, or says when it expires now. Whoever reads an order later finds it so.
    pub(crate) fn insert(&self, key: &[u8], expiry: u64) {
        self.0[stripe_of_key(key)].push(key, Some(expiry));
    }

    /// The same of a key that goes.
    pub(crate) fn remove(&self, key: &[u8]) {
        self.0[stripe_of_key(key)].push(key, None);
    }

    /// After changes of the order of this key, with no slot locked: others may be waiting for it.
    /// Else the next one makes them.
    pub(crate) fn apply_waiting(&self, key: &[u8]) {
        if is_ordered(key) {
            self.0[stripe_of_key(key)].apply_waiting();
        }
    }

    /// The first `max` keys between the bounds, or the last ones downwards. Fewer: these are all.
    pub(crate) fn keys(&self, from: &Bound<Key>, to: &Bound<Key>, reverse: bool, max: usize) -> Vec<Listed> {
        if let Some(collection) = collection_of(from, to) {
            let stripe = &self.0[stripe_of(collection)];
            return match max {
                1 => stripe.end(collection, (from, to), reverse),
                _ => stripe.read().keys(from, to, reverse, max),
            };
        }
        let all = self.0.iter().flat_map(|stripe| stripe.read().keys(from, to, reverse, max));
        let mut all: Vec<Listed> = all.collect();
        all.sort_unstable();
        if reverse {
            all.reverse();
        }
        all.truncate(max);
        all
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.read().tree.len() as u64).sum()
    }

    pub(crate) fn footprint_bytes(&self) -> u64 {
        let bytes = |stripe: &Stripe| {
            let waiting_bytes = {
                let waiting = stripe.waiting();
                waiting.changes.footprint_bytes() + waiting.ends.footprint_bytes()
            };
            let made = stripe.read();
            waiting_bytes + made.taken.footprint_bytes() + made.tree.footprint_bytes()
        };
        self.0.iter().map(|stripe| bytes(stripe) as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(collection: u32, user: &str) -> Key {
        Key::new(CollectionId(collection), user.as_bytes()).unwrap()
    }

    #[test]
    fn ranges_within_and_across_collections_come_in_order() {
        let orders = Orders::new();
        for collection in [1, 2, 254, 255, 300, 65] {
            for user in ["a", "b", "c"] {
                orders.insert(key(collection, user).encoded(), 0);
            }
        }
        let users = |from: Bound<Key>, to: Bound<Key>, reverse, max| -> Vec<String> {
            let found = orders.keys(&from, &to, reverse, max);
            found.iter().map(|(key, _)| format!("{key:?}")).collect()
        };
        let all_of_2 =
            || (Bound::Included(Key::bound(CollectionId(2), b"")), Bound::Excluded(Key::bound(CollectionId(3), b"")));
        assert_eq!(users(all_of_2().0, all_of_2().1, false, 9), ["2:a", "2:b", "2:c"]);
        assert_eq!(users(all_of_2().0, all_of_2().1, true, 2), ["2:c", "2:b"]);
        let across = || (Bound::Excluded(key(2, "b")), Bound::Included(key(300, "a")));
        assert_eq!(collection_of(&across().0, &across().1), None);
        let expected = ["2:c", "65:a", "65:b", "65:c", "254:a", "254:b", "254:c", "255:a", "255:b", "255:c", "300:a"];
        assert_eq!(users(across().0, across().1, false, 99), expected);
        assert_eq!(users(across().0, across().1, true, 2), ["300:a", "255:c"]);
        assert_eq!(users(Bound::Unbounded, Bound::Unbounded, false, 99).len(), 18);
        orders.remove(key(2, "b").encoded());
        assert_eq!(users(all_of_2().0, all_of_2().1, false, 9), ["2:a", "2:c"]);
        assert_eq!(orders.len(), 17);
    }

    fn all(orders: &Orders) -> Vec<String> {
        let found = orders.keys(&Bound::Included(Key::bound(CollectionId(1), b"")), &Bound::Unbounded, false, 99);
        found.iter().map(|(key, _)| format!("{key:?}")).collect()
    }

    /// Changes of writers who do not get the tree; what a scan sees after each.
    fn changes_beside_a_reader(orders: &Orders) -> Vec<Vec<String>> {
        let (a, b) = (key(1, "a"), key(1, "b"));
        let changes: [&dyn Fn(); 3] = [
            &|| orders.insert(a.encoded(), 0),
            &|| {
                orders.remove(a.encoded());
                orders.insert(b.encoded(), 0);
            },
            &|| {
                orders.insert(a.encoded(), 0);
                orders.remove(a.encoded());
            },
        ];
        let seen = changes.map(|change| {
            let stripe = &orders.0[stripe_of(CollectionId(1))];
            let reader = stripe.read();
            change();
            orders.apply_waiting(a.encoded());
            assert!(stripe.waiting_bytes.load(Ordering::Relaxed) > 0, "somebody reads");
            drop(reader);
            all(orders)
        });
        seen.into()
    }

    #[test]
    fn what_waits_is_seen_by_whoever_reads_later() {
        let orders = Orders::new();
        assert_eq!(changes_beside_a_reader(&orders), [vec!["1:a"], vec!["1:b"], vec!["1:b"]]);
        assert_eq!(orders.len(), 1);
    }

    #[cfg(feature = "fault_points")]
    #[test]
    fn a_read_without_what_waits_is_caught() {
        stratakv_base::fault_point::release(Some("hash_order_read_without_what_waits"));
        let seen = changes_beside_a_reader(&Orders::new());
        stratakv_base::fault_point::release(None);
        assert_eq!(seen[0], [""; 0]);
    }

    #[test]
    fn a_writer_makes_what_waits_when_nobody_has_the_tree() {
        let orders = Orders::new();
        orders.insert(key(1, "a").encoded(), 0);
        orders.apply_waiting(key(1, "a").encoded());
        assert_eq!(orders.0[1].waiting_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn writers_wait_when_too_much_does() {
        let orders = Orders::new();
        let stripe = &orders.0[1];
        let reader = stripe.read();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 0..10_000 {
                    let key = key(1, &format!("{number:05}"));
                    orders.insert(key.encoded(), 0);
                    orders.apply_waiting(key.encoded());
                }
            });
            while stripe.waiting_bytes.load(Ordering::Relaxed) <= WAITING_BYTES_MAX {
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert!(stripe.waiting_bytes.load(Ordering::Relaxed) <= WAITING_BYTES_MAX + 32 && !writer.is_finished());
            drop(reader);
        });
        assert_eq!(orders.len(), 10_000);
        let mut changes = Changes::default();
        changes.push(&[1; 1 << 20], None);
        changes.clear();
        assert_eq!(changes.footprint_bytes(), 0, "much is given back");
    }

    #[test]
    fn the_default_collection_is_in_no_order() {
        assert!(!is_ordered(key(0, "a").encoded()));
        assert!([1, 254, 255, u32::MAX].iter().all(|collection| is_ordered(key(*collection, "a").encoded())));
    }
}
