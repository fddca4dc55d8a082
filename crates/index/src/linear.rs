//! A table from numbers to values by linear hashing (Litwin, VLDB 1980): each insert adds at most
//! one bucket and moves one chain, so growing never stops a request; the KVell paper (section 5.2)
//! saw 100 ms spikes from a hash table that doubled, and fell back to a B-tree. Entries lie densely
//! and can be walked by number.

use smallvec::SmallVec;

/// No slot: the end of a chain.
const NONE: u32 = u32::MAX;
/// Elements in one piece of a [`Pieces`].
const PIECE: usize = 1024;

/// Values by key.
pub(crate) struct Linear<V> {
    /// Dense, in no order.
    slots: Pieces<Slot<V>>,
    /// First slot of each chain.
    buckets: Pieces<u32>,
}

struct Slot<V> {
    key: u64,
    value: V,
    next: u32,
}

/// A vector that grows and shrinks by whole pieces and never moves its elements.
struct Pieces<T>(Vec<Vec<T>>);

impl<T> Pieces<T> {
    fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * PIECE + last.len())
    }

    fn push(&mut self, element: T) {
        match self.0.last_mut() {
            Some(last) if last.len() < PIECE => last.push(element),
            _ => {
                let mut piece = Vec::with_capacity(PIECE);
                piece.push(element);
                self.0.push(piece);
            }
        }
    }

    fn pop(&mut self) -> Option<T> {
        let last = self.0.last_mut()?;
        let element = last.pop();
        if last.is_empty() {
            self.0.pop();
        }
        element
    }

    fn get(&self, index: usize) -> &T {
        &self.0[index / PIECE][index % PIECE]
    }

    fn get_mut(&mut self, index: usize) -> &mut T {
        &mut self.0[index / PIECE][index % PIECE]
    }

    fn footprint_bytes(&self) -> usize {
        self.0.len() * (PIECE * size_of::<T>() + 16) + self.0.capacity() * size_of::<Vec<T>>()
    }
}

impl<V> Linear<V> {
    pub(crate) fn new() -> Linear<V> {
        let mut buckets = Pieces(Vec::new());
        buckets.push(NONE);
        Linear { slots: Pieces(Vec::new()), buckets }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of the table.
    pub(crate) fn footprint_bytes(&self) -> usize {
        self.slots.footprint_bytes() + self.buckets.footprint_bytes()
    }

    /// The slot of a key: good until the next [`Linear::insert`] or [`Linear::take`].
    pub(crate) fn find(&self, key: u64) -> Option<usize> {
        self.find_from(*self.buckets.get(self.bucket(key)), key)
    }

    fn find_from(&self, mut number: u32, key: u64) -> Option<usize> {
        while number != NONE {
            let slot = self.slots.get(number as usize);
            if slot.key == key {
                return Some(number as usize);
            }
            number = slot.next;
        }
        None
    }

    /// The slots of many keys, in their order. A key costs two or three reads of memory that no
    /// cache has, one after the other: those of all keys are under way together here.
    pub(crate) fn find_all(&self, keys: &[u64], mut found: impl FnMut(Option<usize>)) {
        let firsts: SmallVec<[u32; 64]> = keys.iter().map(|key| *self.buckets.get(self.bucket(*key))).collect();
        // Branches on what was read would have the processor wait for it: none here.
        let nowhere = (0, NONE);
        let slot = |number: u32| {
            let slot = self.slots.0.get(number as usize / PIECE).and_then(|piece| piece.get(number as usize % PIECE));
            slot.map_or(nowhere, |slot| (slot.key, slot.next))
        };
        let slots: SmallVec<[(u64, u32); 64]> = firsts.iter().map(|number| slot(*number)).collect();
        for ((key, first), (stored, next)) in keys.iter().zip(firsts).zip(slots) {
            found(match first {
                NONE => None,
                _ if stored == *key => Some(first as usize),
                _ => self.find_from(next, *key),
            });
        }
    }

    pub(crate) fn value(&self, slot: usize) -> &V {
        &self.slots.get(slot).value
    }

    pub(crate) fn value_mut(&mut self, slot: usize) -> &mut V {
        &mut self.slots.get_mut(slot).value
    }

    /// Adds a key that is not there.
    pub(crate) fn insert(&mut self, key: u64, value: V) {
        let (number, bucket) = (self.slots.len() as u32, self.bucket(key));
        let next = std::mem::replace(self.buckets.get_mut(bucket), number);
        self.slots.push(Slot { key, value, next });
        if self.slots.len() > self.buckets.len() {
            self.add_bucket();
        }
    }

    /// Takes a slot out of the table; the last slot moves into its place.
    pub(crate) fn take(&mut self, slot: usize) -> (u64, V) {
        let next = self.slots.get(slot).next;
        *self.link_to(slot) = next;
        let last = self.slots.len() - 1;
        if slot != last {
            *self.link_to(last) = slot as u32;
        }
        let Some(mut taken) = self.slots.pop() else { unreachable!("slot {slot} is there, so the last one is") };
        if slot != last {
            std::mem::swap(self.slots.get_mut(slot), &mut taken);
        }
        if self.slots.len() * 2 < self.buckets.len() && self.buckets.len() > 1 {
            self.remove_bucket();
        }
        (taken.key, taken.value)
    }

    fn bucket(&self, key: u64) -> usize {
        bucket_among(key, self.buckets.len())
    }

    /// Adds the next bucket of the current doubling, and gives it its share of the chain that had
    /// it so far.
    fn add_bucket(&mut self) {
        let (new, count) = (self.buckets.len(), self.buckets.len() + 1);
        let old = new - count.next_power_of_two() / 2;
        let mut number = std::mem::replace(self.buckets.get_mut(old), NONE);
        self.buckets.push(NONE);
        while number != NONE {
            let bucket = self.bucket(self.slots.get(number as usize).key);
            let next = self.slots.get(number as usize).next;
            self.slots.get_mut(number as usize).next = std::mem::replace(self.buckets.get_mut(bucket), number);
            number = next;
        }
    }

    /// Undoes the latest [`Linear::add_bucket`].
    fn remove_bucket(&mut self) {
        let old = self.buckets.len() - 1 - self.buckets.len().next_power_of_two() / 2;
        let mut number = self.buckets.pop().unwrap_or(NONE);
        while number != NONE {
            let slot = self.slots.get_mut(number as usize);
            let next = slot.next;
            slot.next = std::mem::replace(self.buckets.get_mut(old), number);
            number = next;
        }
    }

    /// What points to `slot`: its bucket, or the slot before it in its chain.
    fn link_to(&mut self, slot: usize) -> &mut u32 {
        let bucket = self.bucket(self.slots.get(slot).key);
        let mut number = *self.buckets.get(bucket);
        if number as usize == slot {
            return self.buckets.get_mut(bucket);
        }
        loop {
            let next = self.slots.get(number as usize).next;
            if next as usize == slot {
                return &mut self.slots.get_mut(number as usize).next;
            }
            number = next;
        }
    }
}

/// Spreads keys that differ in few bits.
pub(crate) fn hash(key: u64) -> u64 {
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

/// The bucket of `key` when there are `count`.
fn bucket_among(key: u64, count: usize) -> usize {
    let hash = hash(key) as usize;
    let span = count.next_power_of_two();
    let bucket = hash & (span - 1);
    if bucket < count { bucket } else { bucket & (span / 2 - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_found_as_one_is() {
        let mut table = Linear::new();
        for key in (0..5000).filter(|key| key % 3 == 0) {
            table.insert(key * 8, key);
        }
        let keys: Vec<u64> = (0..5000).map(|key| key * 7919 % 5000 * 8).collect();
        let mut found = Vec::new();
        table.find_all(&keys, |slot| found.push(slot));
        let one_by_one: Vec<Option<usize>> = keys.iter().map(|key| table.find(*key)).collect();
        assert_eq!(found, one_by_one);
        assert_eq!(found.iter().flatten().count(), 1667);
    }
}
