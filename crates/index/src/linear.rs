//! A table from numbers to values by linear hashing (Litwin, VLDB 1980): each insert adds at most one bucket and moves one chain, so
//! growing never stops a request; the KVell paper (section 5.2) saw 100 ms spikes from a hash table that doubled, and fell back to a
//! B-tree. Entries lie densely and can be walked by number.

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
        let mut number = *self.buckets.get(self.bucket(key));
        while number != NONE {
            let slot = self.slots.get(number as usize);
            if slot.key == key {
                return Some(number as usize);
            }
            number = slot.next;
        }
        None
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

    /// Adds the next bucket of the current doubling, and gives it its share of the chain that had it so far.
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
