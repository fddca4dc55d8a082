//! The keys of collections in order.
//!
//! Point operations go through the hash table; scans take keys from here and records from there. So an order costs an overwrite nothing, a new key an insert into a tree, and a scanned
//! record a lookup. It is in DRAM and built again at opening: nothing of it has to be kept consistent on the medium (KVDK keeps a linked list there). The keys of the default collection
//! are in no order.
//!
//! Collections share trees: a small one costs its keys, whose neighbours share their prefix, and nothing else.

use std::ops::{Bound, ControlFlow};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use stratakv_base::{CollectionId, Key};
use stratakv_engine::range::encoded;
use stratakv_index::{Entry, Tree};

/// Trees. A collection lies in one.
const STRIPES: usize = 64;
/// Keys taken at a time: as long are writers kept away.
pub(crate) const TAKEN_MAX: usize = 256;

/// A key, and the second in which it expires, or 0.
pub(crate) type Listed = (Key, u32);

/// See the module.
#[derive(Debug)]
pub(crate) struct Orders(Box<[RwLock<Tree>]>);

/// Whether a key is in an order: not in the default collection.
pub(crate) fn is_ordered(key: &[u8]) -> bool {
    key.first().is_some_and(|first| *first != 0)
}

fn stripe_of(collection: CollectionId) -> usize {
    // Neighbouring numbers in different ones.
    collection.0 as usize % STRIPES
}

fn stripe_of_key(key: &[u8]) -> usize {
    stripe_of(match key {
        [0xFF, a, b, c, d, ..] => CollectionId(u32::from_be_bytes([*a, *b, *c, *d])),
        [small, ..] => CollectionId(u32::from(*small)),
        [] => CollectionId(0),
    })
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

impl Orders {
    pub(crate) fn new() -> Orders {
        Orders((0..STRIPES).map(|_| RwLock::default()).collect())
    }

    fn write(&self, key: &[u8]) -> RwLockWriteGuard<'_, Tree> {
        self.0[stripe_of_key(key)].write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, stripe: usize) -> RwLockReadGuard<'_, Tree> {
        self.0[stripe].read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a key, or says when it expires now.
    pub(crate) fn insert(&self, key: &[u8], expiry: u32) {
        self.write(key).insert(key, Entry { place: 0, expiry });
    }

    pub(crate) fn remove(&self, key: &[u8]) {
        self.write(key).remove(key);
    }

    /// The first `max` keys between the bounds, or the last ones downwards. Fewer: these are all.
    pub(crate) fn keys(&self, from: &Bound<Key>, to: &Bound<Key>, reverse: bool, max: usize) -> Vec<Listed> {
        if let Some(collection) = collection_of(from, to) {
            return self.keys_in(stripe_of(collection), from, to, reverse, max);
        }
        let all = (0..STRIPES).flat_map(|stripe| self.keys_in(stripe, from, to, reverse, max));
        let mut all: Vec<Listed> = all.collect();
        all.sort_unstable();
        if reverse {
            all.reverse();
        }
        all.truncate(max);
        all
    }

    fn keys_in(&self, stripe: usize, from: &Bound<Key>, to: &Bound<Key>, reverse: bool, max: usize) -> Vec<Listed> {
        let mut keys = Vec::new();
        self.read(stripe).scan(encoded(from), encoded(to), reverse, &mut |key, entry| {
            keys.extend(Key::from_encoded(key).map(|key| (key, entry.expiry)));
            if keys.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        keys
    }

    pub(crate) fn len(&self) -> u64 {
        (0..STRIPES).map(|stripe| self.read(stripe).len() as u64).sum()
    }

    pub(crate) fn footprint_bytes(&self) -> u64 {
        (0..STRIPES).map(|stripe| self.read(stripe).footprint_bytes() as u64).sum()
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

    #[test]
    fn the_default_collection_is_in_no_order() {
        assert!(!is_ordered(key(0, "a").encoded()));
        assert!([1, 254, 255, u32::MAX].iter().all(|collection| is_ordered(key(*collection, "a").encoded())));
    }
}
