//! [`Slots`]: a table of things in progress, each under a key that is given once.
//!
//! Tables of requests, operations and connections are this one. Everything is O(1); there are as
//! many slots as were ever in use at once. A slot is used again, its key is not: a completion that
//! comes late, or twice, finds nothing, and ends no other request.

use std::marker::PhantomData;

/// Names an entry: its slot, and how often that had been used before.
pub trait SlotKey: Copy {
    /// The key of this slot's use.
    fn new(slot: u32, generation: u32) -> Self;
    /// Its slot, and the slot's uses before.
    fn parts(self) -> (u32, u32);
}

impl SlotKey for (u32, u32) {
    #[inline]
    fn new(slot: u32, generation: u32) -> Self {
        (slot, generation)
    }

    #[inline]
    fn parts(self) -> (u32, u32) {
        self
    }
}

/// A tag, as rings and drivers take it: the slot below, its uses above.
impl SlotKey for u64 {
    #[inline]
    fn new(slot: u32, generation: u32) -> Self {
        u64::from(generation) << 32 | u64::from(slot)
    }

    #[inline]
    fn parts(self) -> (u32, u32) {
        (self as u32, (self >> 32) as u32)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Slots<T, K> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    keys: PhantomData<fn() -> K>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T, K> Default for Slots<T, K> {
    fn default() -> Self {
        Slots { slots: Vec::new(), free: Vec::new(), keys: PhantomData }
    }
}

impl<T, K: SlotKey> Slots<T, K> {
    /// Keeps `value` under a new key.
    #[inline]
    pub fn insert(&mut self, value: T) -> K {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        place.value = Some(value);
        K::new(slot, place.generation)
    }

    /// Ends an entry. `None`: it has ended before, or never was.
    #[inline]
    pub fn remove(&mut self, key: K) -> Option<T> {
        let (slot, generation) = key.parts();
        let place = self.slots.get_mut(slot as usize).filter(|place| place.generation == generation)?;
        let value = place.value.take()?;
        place.generation = generation.wrapping_add(1);
        self.free.push(slot);
        Some(value)
    }

    /// The entry, if it has not ended.
    #[inline]
    pub fn get(&self, key: K) -> Option<&T> {
        let (slot, generation) = key.parts();
        self.slots.get(slot as usize).filter(|place| place.generation == generation)?.value.as_ref()
    }

    /// The same, to change it.
    #[inline]
    pub fn get_mut(&mut self, key: K) -> Option<&mut T> {
        let (slot, generation) = key.parts();
        self.slots.get_mut(slot as usize).filter(|place| place.generation == generation)?.value.as_mut()
    }

    /// Entries that have not ended, in the order of slots.
    pub fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        let key = |(slot, place): (usize, &Slot<T>)| K::new(slot as u32, place.generation);
        self.slots.iter().enumerate().filter_map(move |at| Some((key(at), at.1.value.as_ref()?)))
    }

    /// Ends all entries, in the order of slots. Their keys find nothing from then on.
    pub fn take_all(&mut self) -> Vec<T> {
        let keys: Vec<K> = self.iter().map(|(key, _)| key).collect();
        keys.into_iter().filter_map(|key| self.remove(key)).collect()
    }

    /// Entries that have not ended.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether all have ended.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_found_until_it_ends() {
        let mut slots = Slots::<&str, (u32, u32)>::default();
        let (first, second) = (slots.insert("first"), slots.insert("second"));
        assert_eq!((slots.get(first), slots.get(second), slots.len()), (Some(&"first"), Some(&"second"), 2));
        *slots.get_mut(second).unwrap() = "changed";
        assert_eq!(slots.remove(first), Some("first"));
        assert_eq!(slots.iter().collect::<Vec<_>>(), [(second, &"changed")]);
        assert_eq!(slots.take_all(), ["changed"]);
        assert!(slots.is_empty());
    }

    /// A completion that comes late must not end the request that has its slot by now.
    #[test]
    fn a_key_is_not_given_twice() {
        let mut slots = Slots::<u32, u64>::default();
        let late = slots.insert(1);
        assert_eq!(slots.remove(late), Some(1));
        let next = slots.insert(2);
        assert_eq!((next as u32, next == late), (late as u32, false), "the same slot, under another key");
        assert!(slots.get(late).is_none() && slots.get_mut(late).is_none() && slots.remove(late).is_none());
        assert_eq!(slots.take_all(), [2]);
        let third = slots.insert(3);
        assert_eq!([next, third, third].map(|key| slots.remove(key)), [None, Some(3), None]);
    }

    #[test]
    fn there_are_as_many_slots_as_were_in_use_at_once() {
        let mut slots = Slots::<u32, (u32, u32)>::default();
        for round in 0..100 {
            let keys: Vec<_> = (0..3).map(|number| slots.insert(round + number)).collect();
            assert!(keys.iter().all(|(slot, _)| *slot < 3), "{keys:?}");
            keys.into_iter().for_each(|key| _ = slots.remove(key));
        }
        assert!(slots.get((7, 0)).is_none() && slots.remove((7, 0)).is_none(), "a slot that never was");
    }
}
