//! The keys at the ends of collections, for who asks for one key at a time: lists do, at every push
//! and pop.
//!
//! A look into a tree for one key takes as long as a short scan, and first makes all that waits. So
//! the stripe keeps the keys next to an end that was asked for, as they are with all that waits.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

use stratakv_base::{CollectionId, Key};

use super::Listed;

/// Collections of a stripe whose ends are kept: those that began to be asked for last.
const COLLECTIONS: usize = 4;
/// Keys that are kept of an end that is asked for again and again.
const KEYS_MAX: usize = 32;
/// Longer ones, encoded, are not kept: so these few kilobytes stay few.
const KEY_BYTES_MAX: usize = 40;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ends(VecDeque<EndsOfOne>);

#[derive(Debug)]
struct EndsOfOne {
    collection: CollectionId,
    front: Window,
    back: Window,
}

/// The first keys of a collection, or the last ones downwards: all that lie between the first of
/// them and the last. Empty: nothing is known.
#[derive(Debug, Default)]
struct Window {
    keys: VecDeque<Listed>,
    reverse: bool,
}

impl Window {
    /// Where a key is, or would be.
    fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let order = |found: &Listed| {
            let order = found.0.encoded().cmp(key);
            if self.reverse { order.reverse() } else { order }
        };
        // Mostly the first one.
        match self.keys.front().map(order) {
            None | Some(Ordering::Greater) => Err(0),
            Some(Ordering::Equal) => Ok(0),
            Some(Ordering::Less) => self.keys.binary_search_by(order),
        }
    }

    fn insert(&mut self, key: &[u8], expiry: u64) {
        match self.search(key) {
            Ok(at) => self.keys.iter_mut().skip(at).take(1).for_each(|listed| listed.1 = expiry),
            // Between the last one and this one there may be others.
            Err(at) if at == self.keys.len() => {}
            Err(at) => {
                match Key::from_encoded(key).filter(|_| key.len() <= KEY_BYTES_MAX) {
                    Some(key) => self.keys.insert(at, (key, expiry)),
                    None => self.keys.truncate(at),
                }
                self.keys.truncate(KEYS_MAX);
            }
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Ok(at) = self.search(key) {
            self.keys.remove(at);
        }
    }

    /// The first key of a range, or the last one; `None`: that is not known.
    fn first(&self, from: &Bound<Key>, to: &Bound<Key>) -> Option<Option<&Listed>> {
        let begins = |listed: &&Listed| match self.reverse {
            false => (from.as_ref(), Bound::Unbounded).contains(&listed.0),
            true => (Bound::Unbounded, to.as_ref()).contains(&listed.0),
        };
        let found = self.keys.iter().find(begins)?;
        Some(Some(found).filter(|(key, _)| (from.as_ref(), to.as_ref()).contains(key)))
    }
}

impl Ends {
    fn of(&self, collection: CollectionId) -> Option<&EndsOfOne> {
        self.0.iter().find(|ends| ends.collection == collection)
    }

    fn of_mut(&mut self, collection: CollectionId) -> Option<&mut EndsOfOne> {
        self.0.iter_mut().find(|ends| ends.collection == collection)
    }

    /// A key comes, or expires at another time.
    pub(super) fn insert(&mut self, collection: CollectionId, key: &[u8], expiry: u64) {
        if let Some(ends) = self.of_mut(collection) {
            ends.front.insert(key, expiry);
            ends.back.insert(key, expiry);
        }
    }

    /// A key goes.
    pub(super) fn remove(&mut self, collection: CollectionId, key: &[u8]) {
        if let Some(ends) = self.of_mut(collection) {
            ends.front.remove(key);
            ends.back.remove(key);
        }
    }

    /// The first key of a range within a collection, or the last one; `None`: that is not known.
    pub(super) fn first(
        &self,
        collection: CollectionId,
        (from, to): (&Bound<Key>, &Bound<Key>),
        reverse: bool,
    ) -> Option<Vec<Listed>> {
        let ends = self.of(collection)?;
        let found = (if reverse { &ends.back } else { &ends.front }).first(from, to)?;
        Some(found.cloned().into_iter().collect())
    }

    /// How many keys of an end are worth looking at: one, unless it is asked for again.
    pub(super) fn wanted(&self, collection: CollectionId) -> usize {
        if self.of(collection).is_some() { KEYS_MAX } else { 1 }
    }

    /// Keeps the first keys of a collection, or the last ones downwards.
    pub(super) fn keep(&mut self, collection: CollectionId, keys: &[Listed], reverse: bool) {
        let is_short = |listed: &&Listed| listed.0.encoded().len() <= KEY_BYTES_MAX;
        if keys.first().is_some_and(|first| !is_short(&first)) {
            // Whoever asks again would take many keys from the tree for nothing.
            self.0.retain(|ends| ends.collection != collection);
            return;
        }
        if self.of(collection).is_none() {
            self.0.truncate(COLLECTIONS - 1);
            let back = Window { reverse: true, ..Window::default() };
            self.0.push_front(EndsOfOne { collection, front: Window::default(), back });
        }
        if let Some(ends) = self.of_mut(collection) {
            let window = if reverse { &mut ends.back } else { &mut ends.front };
            window.keys.clear();
            window.keys.extend(keys.iter().take(KEYS_MAX).take_while(is_short).cloned());
        }
    }

    pub(super) fn footprint_bytes(&self) -> usize {
        let windows = self.0.iter().flat_map(|ends| [&ends.front, &ends.back]);
        let keys: usize = windows.map(|window| window.keys.capacity()).sum();
        self.0.capacity() * size_of::<EndsOfOne>() + keys * size_of::<Listed>()
    }
}

/// Whether a range within a collection begins with it, or if `reverse` ends with it.
pub(super) fn begins_at_end(from: &Bound<Key>, to: &Bound<Key>, reverse: bool) -> bool {
    match if reverse { to } else { from } {
        Bound::Included(key) => !reverse && key.user().is_empty(),
        Bound::Excluded(key) => key.user().is_empty(),
        Bound::Unbounded => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use stratakv_base::random::Random;

    use super::super::Orders;
    use super::*;

    fn key(collection: u32, user: &str) -> Key {
        Key::new(CollectionId(collection), user.as_bytes()).unwrap()
    }

    fn end(orders: &Orders, (from, to): (&Bound<Key>, &Bound<Key>), reverse: bool) -> Option<Key> {
        let found = orders.keys(from, to, reverse, 1);
        assert!(found.len() <= 1);
        found.into_iter().next().map(|(key, _)| key)
    }

    /// Against a set: whole collections and ranges in them, more collections than are kept, keys
    /// that are too long to be.
    #[test]
    fn the_ends_are_those_of_a_sorted_set() {
        let (orders, mut random, mut known) = (Orders::new(), Random::new(5), 0);
        let mut all: BTreeSet<Key> = BTreeSet::new();
        for step in 0..60_000 {
            // Of one stripe.
            let collection = 1 + 64 * random.below(if step < 40_000 { 3 } else { 6 }) as u32;
            let filler = if random.below(50) == 0 { "x".repeat(60) } else { String::new() };
            let key = key(collection, &format!("{:03}{filler}", random.below(200)));
            match random.below(4) {
                0 => {
                    orders.remove(key.encoded());
                    all.remove(&key);
                }
                1 => {
                    orders.insert(key.encoded(), 7);
                    all.insert(key.clone());
                }
                _ => {
                    let start = Key::bound(CollectionId(collection), b"");
                    let begin = if random.below(4) == 0 { Bound::Excluded(key) } else { Bound::Included(start) };
                    let stop = Key::bound(CollectionId(collection + 1), b"");
                    let other = Key::bound(CollectionId(collection), format!("{:03}", random.below(200)).as_bytes());
                    let stop = Bound::Excluded(if random.below(4) == 0 { other } else { stop });
                    for reverse in [false, true] {
                        let range = (begin.as_ref(), stop.as_ref());
                        let mut within = all.iter().filter(|key| range.contains(*key));
                        let expected = if reverse { within.next_back() } else { within.next() };
                        known += usize::from(orders.0[1].waiting().ends.of(CollectionId(collection)).is_some());
                        assert_eq!(end(&orders, (&begin, &stop), reverse).as_ref(), expected, "step {step}");
                    }
                }
            }
            if random.below(3) == 0 {
                orders.apply_waiting(self::key(collection, "a").encoded());
            }
        }
        assert!(known > 20_000, "{known}");
    }

    /// Of keys that are too long to be kept one is taken from the tree at a time.
    #[test]
    fn long_keys_at_an_end_are_not_looked_for_in_advance() {
        let orders = Orders::new();
        let range =
            (Bound::Included(Key::bound(CollectionId(1), b"")), Bound::Excluded(Key::bound(CollectionId(2), b"")));
        let wanted = || orders.0[1].waiting().ends.wanted(CollectionId(1));
        orders.insert(key(1, "b").encoded(), 0);
        assert_eq!(end(&orders, (&range.0, &range.1), false), Some(key(1, "b")));
        assert_eq!(wanted(), KEYS_MAX);
        let long = key(1, &"a".repeat(KEY_BYTES_MAX));
        orders.insert(long.encoded(), 0);
        for _ in 0..2 {
            assert_eq!(end(&orders, (&range.0, &range.1), false), Some(long.clone()));
            assert_eq!(wanted(), 1);
        }
    }

    /// A queue looks into the tree once for many pops, and never to push.
    #[test]
    fn a_queue_seldom_looks_into_the_tree() {
        let orders = Orders::new();
        let whole =
            (Bound::Included(Key::bound(CollectionId(1), b"")), Bound::Excluded(Key::bound(CollectionId(2), b"")));
        let name = |number: u32| key(1, &format!("{number:05}"));
        let mut looked = 0;
        let mut first = |orders: &Orders, reverse: bool| {
            let known = orders.0[1].waiting().ends.first(CollectionId(1), (&whole.0, &whole.1), reverse).is_some();
            looked += u32::from(!known);
            end(orders, (&whole.0, &whole.1), reverse)
        };
        orders.insert(name(0).encoded(), 0);
        for number in 1..1000 {
            assert_eq!(first(&orders, true), Some(name(number - 1)));
            orders.insert(name(number).encoded(), 0);
        }
        for number in 0..1000 {
            assert_eq!(first(&orders, false), Some(name(number)));
            orders.remove(name(number).encoded());
        }
        assert!(looked < 40, "{looked} looks");
    }
}
