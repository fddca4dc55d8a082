//! The hash table: where the record of a key lies.
//!
//! Buckets of one cache line: a word for the lock and the chain, and seven entries of 8 bytes. An
//! entry is 27 bits of the key's hash, a bit that says that it is about to change, and 36 bits of
//! where its record lies, in blocks; so it is read and replaced as one. Readers take no lock. They
//! never miss a key that is there all the time: an entry stays in its slot until it is replaced or
//! removed; where a bucket is split its entries are in both buckets before readers are told of the
//! new one, and taken out of the old one after; and where a chain is drawn together entries move to
//! its front only, each stored there before it is taken out behind, and readers look from the
//! chain's end to its front. All orders of these are tried: `interleavings`.
//!
//! It grows by linear hashing (Litwin, VLDB 1980): an insertion splits at most [`SPLITS_MAX`]
//! buckets, in order, so nothing ever stops for a rebuild. What decides where an entry goes is in
//! the entry: no record is read for it.
//!
//! KVDK has entries of 16 bytes and buckets of 128.

use std::sync::atomic::Ordering;
use std::sync::{OnceLock, PoisonError};

use smallvec::SmallVec;
use stratakv_base::fault_point;
use stratakv_pmem::prefetch;

use crate::sync::{AtomicU64, IS_TRIED, Mutex, spin_loop, yield_now};

/// Entries of a bucket.
const ENTRIES: usize = if IS_TRIED { 2 } else { 7 };
/// log2 of the buckets of an empty table.
const BASE_BITS: u32 = if IS_TRIED { 0 } else { 10 };
/// Entries for each bucket at which the table grows: with splits under way a bucket has half of
/// this or all of it.
const FILL: u64 = if IS_TRIED { 2 } else { 4 };
/// Most buckets an insertion splits.
const SPLITS_MAX: usize = if IS_TRIED { 1 } else { 2 };
const PLACE_BITS: u32 = 36;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
/// The entry is about to change, with others of a batch: readers wait. Without a place: a key is
/// about to come, and is not there yet.
const PENDING: u64 = 1 << PLACE_BITS;
const TAG_SHIFT: u32 = PLACE_BITS + 1;
const TAG_MASK: u64 = u64::MAX << TAG_SHIFT;
const LOCKED: u64 = 1;
const NEXT_SHIFT: u32 = 32;
/// log2 of the first buckets for chains.
const OVERFLOW_BITS: u32 = if IS_TRIED { 0 } else { 6 };

/// One line: bit 0 of the first word is the lock, bits 32 to 63 are the number of the bucket that
/// goes on, plus one.
#[derive(Debug)]
#[cfg_attr(not(all(test, loom)), derive(zerocopy::FromZeros))]
#[repr(C, align(64))]
struct Bucket {
    head: AtomicU64,
    entries: [AtomicU64; ENTRIES],
}

/// Buckets by number, in pieces that are made when they are needed and never move.
#[derive(Debug)]
struct Buckets {
    /// Piece 0 has the first 2^`bits` buckets, each other one as many as all before it. `None`:
    /// there was no memory for it.
    pieces: [OnceLock<Option<Piece>>; 33],
    bits: u32,
}

/// A table. Places are block numbers below 2³⁶, not 0.
#[derive(Debug)]
pub(crate) struct HashTable {
    all: Buckets,
    /// How many there are.
    buckets: AtomicU64,
    entries: AtomicU64,
    /// Buckets of chains, after their first.
    overflow: Buckets,
    overflow_used: Mutex<Overflow>,
    /// One thread splits at a time.
    splitting: Mutex<()>,
}

#[derive(Debug, Default)]
struct Overflow {
    /// Numbers below are in use or free.
    used: u32,
    free: Vec<u32>,
}

/// The bits of a hash that an entry keeps: those above the base, which also say where it goes when
/// its bucket is split.
fn tag(hash: u64) -> u64 {
    hash >> BASE_BITS << TAG_SHIFT
}

fn place_of(entry: u64) -> u64 {
    entry & PLACE_MASK
}

/// The bucket of a hash among so many.
fn bucket_of(hash: u64, buckets: u64) -> u64 {
    let bits = 63 - buckets.leading_zeros();
    let next = hash & ((2 << bits) - 1);
    if next < buckets { next } else { hash & ((1 << bits) - 1) }
}

#[cfg(not(all(test, loom)))]
type Piece = stratakv_pmem::Zeroed<Bucket>;

#[cfg(not(all(test, loom)))]
fn zeroed(count: usize) -> Option<Piece> {
    Piece::new(count)
}

#[cfg(all(test, loom))]
type Piece = Box<[Bucket]>;

#[cfg(all(test, loom))]
fn zeroed(count: usize) -> Option<Piece> {
    let entries = || std::array::from_fn(|_| AtomicU64::new(0));
    Some((0..count).map(|_| Bucket { head: AtomicU64::new(0), entries: entries() }).collect())
}

impl Buckets {
    fn new(bits: u32) -> Buckets {
        Buckets { pieces: [const { OnceLock::new() }; 33], bits }
    }

    /// The piece of a bucket, and the number of the piece's first one.
    fn piece_of(&self, number: u64) -> (usize, u64) {
        let piece = 64 - (number >> self.bits).leading_zeros();
        (piece as usize, if piece == 0 { 0 } else { 1 << (self.bits + piece - 1) })
    }

    fn get(&self, number: u64) -> Option<&Bucket> {
        let (piece, first) = self.piece_of(number);
        self.pieces.get(piece)?.get()?.as_ref()?.get((number - first) as usize)
    }

    /// The bucket, whose piece is made if need be.
    fn get_or_make(&self, number: u64) -> Option<&Bucket> {
        let (piece, first) = self.piece_of(number);
        let made = self.pieces.get(piece)?.get_or_init(|| zeroed(first.max(1 << self.bits) as usize));
        made.as_ref()?.get((number - first) as usize)
    }
}

/// The slot of a hash, locked. Nobody else changes an entry of its bucket.
pub(crate) struct Slot<'a> {
    table: &'a HashTable,
    bucket: &'a Bucket,
    hash: u64,
    /// It unlocks the bucket: of several slots that were locked together, one of each bucket.
    unlocks: bool,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if self.unlocks {
            self.bucket.head.fetch_and(!LOCKED, Ordering::Release);
        }
    }
}

/// Pauses, longer as the tries go up: whoever is waited for may have lost its processor.
struct Patience(u32);

impl Patience {
    fn wait(&mut self) {
        self.0 = self.0.saturating_add(1);
        if self.0 < 64 && !IS_TRIED { spin_loop() } else { yield_now() }
    }
}

/// What an entry is when it is not about to change.
fn stable_bits(entry: &AtomicU64) -> u64 {
    let mut patience = Patience(0);
    loop {
        let bits = entry.load(Ordering::Acquire);
        if bits & PENDING == 0 || place_of(bits) == 0 {
            return bits;
        }
        patience.wait();
    }
}

/// Asks about the entries of one bucket, from its last one.
fn find_in<T>(bucket: &Bucket, hash: u64, is_it: &mut impl FnMut(u64) -> Option<T>) -> Option<T> {
    for entry in bucket.entries.iter().rev() {
        if entry.load(Ordering::Acquire) & TAG_MASK != tag(hash) {
            continue;
        }
        let bits = stable_bits(entry);
        if bits & TAG_MASK == tag(hash)
            && place_of(bits) != 0
            && let Some(found) = is_it(place_of(bits))
        {
            return Some(found);
        }
    }
    None
}

/// An entry, as found.
#[derive(Clone, Copy)]
pub(crate) struct FoundEntry<'a> {
    entry: &'a AtomicU64,
    pub(crate) place: u64,
}

impl HashTable {
    pub(crate) fn new() -> HashTable {
        let table = HashTable {
            all: Buckets::new(BASE_BITS),
            buckets: AtomicU64::new(1 << BASE_BITS),
            entries: AtomicU64::new(0),
            overflow: Buckets::new(OVERFLOW_BITS),
            overflow_used: Mutex::default(),
            splitting: Mutex::new(()),
        };
        table.all.get_or_make(0);
        table
    }

    pub(crate) fn len(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Memory of the buckets in use.
    pub(crate) fn footprint_bytes(&self) -> u64 {
        let overflow = u64::from(self.overflow_used.lock().unwrap_or_else(PoisonError::into_inner).used);
        (self.buckets.load(Ordering::Relaxed) + overflow) * size_of::<Bucket>() as u64
    }

    fn bucket(&self, number: u64) -> Option<&Bucket> {
        self.all.get(number)
    }

    fn next(&self, head: u64) -> Option<&Bucket> {
        self.overflow.get((head >> NEXT_SHIFT).checked_sub(1)?)
    }

    /// The buckets of a chain, from its first.
    fn chain<'a>(&'a self, first: &'a Bucket) -> impl Iterator<Item = &'a Bucket> {
        std::iter::successors(Some(first), |bucket| self.next(bucket.head.load(Ordering::Acquire)))
    }

    /// Asks `is_it` about the place of every entry that may be of this hash, until it says
    /// something. Without a lock; whoever asks is inside an epoch.
    pub(crate) fn find<T>(&self, hash: u64, mut is_it: impl FnMut(u64) -> Option<T>) -> Option<T> {
        let mut buckets = self.buckets.load(Ordering::Acquire);
        loop {
            let first = self.bucket(bucket_of(hash, buckets))?;
            let found = match self.next(first.head.load(Ordering::Acquire)) {
                None => find_in(first, hash, &mut is_it),
                Some(second) => {
                    // From the end: what moves forward meanwhile is met behind, or else in front.
                    let mut chain: SmallVec<[&Bucket; 4]> = [first].into_iter().chain(self.chain(second)).collect();
                    fault_point!("hash_order_looked_from_the_front", chain.reverse());
                    chain.iter().rev().find_map(|bucket| find_in(bucket, hash, &mut is_it))
                }
            };
            if found.is_some() {
                return found;
            }
            // It may have gone to a bucket that there was not yet.
            let now = self.buckets.load(Ordering::Acquire);
            let mut is_same = bucket_of(hash, now) == bucket_of(hash, buckets);
            fault_point!("hash_order_found_without_looking_again", is_same = true);
            if is_same {
                return None;
            }
            buckets = now;
        }
    }

    /// Asks for the bucket of a hash, which will be looked into.
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(first) = self.bucket(bucket_of(hash, self.buckets.load(Ordering::Relaxed))) {
            prefetch(first);
        }
    }

    /// The places that [`HashTable::find`] would ask about if nothing changed: a hint.
    pub(crate) fn likely_places(&self, hash: u64) -> impl Iterator<Item = u64> {
        let first = self.bucket(bucket_of(hash, self.buckets.load(Ordering::Acquire)));
        let entries = first.into_iter().flat_map(|first| self.chain(first)).flat_map(|bucket| &bucket.entries);
        let like = entries.map(|entry| entry.load(Ordering::Acquire)).filter(move |bits| bits & TAG_MASK == tag(hash));
        like.map(place_of).filter(|place| *place != 0)
    }

    /// log2 of the buckets, rounded down.
    pub(crate) fn bits(&self) -> u32 {
        63 - self.buckets.load(Ordering::Acquire).leading_zeros()
    }

    /// The places of all entries whose hashes end in these bits, at most [`HashTable::bits`] of
    /// them. Each chain as it is at one moment; what is split off meanwhile comes later, maybe once
    /// more.
    pub(crate) fn places(&self, share: u64, bits: u32) -> Vec<u64> {
        let (mut places, mut number) = (Vec::new(), share);
        while number < self.buckets.load(Ordering::Acquire)
            && let Some(first) = self.bucket(number)
        {
            lock(first);
            let entries = self.chain(first).flat_map(|bucket| &bucket.entries);
            places.extend(entries.map(|entry| place_of(entry.load(Ordering::Acquire))).filter(|place| *place != 0));
            first.head.fetch_and(!LOCKED, Ordering::Release);
            number += 1 << bits;
        }
        places
    }

    /// Locks the slot of a hash. Spins, then yields.
    pub(crate) fn lock(&self, hash: u64) -> Option<Slot<'_>> {
        loop {
            let buckets = self.buckets.load(Ordering::Acquire);
            let bucket = self.bucket(bucket_of(hash, buckets))?;
            lock(bucket);
            let slot = Slot { table: self, bucket, hash, unlocks: true };
            let now = self.buckets.load(Ordering::Acquire);
            let mut is_same = bucket_of(hash, now) == bucket_of(hash, buckets);
            fault_point!("hash_order_locked_without_looking_again", is_same = true);
            if is_same {
                return Some(slot);
            }
        }
    }

    /// Locks the slots of several hashes, in the order of their buckets, as splits do: so nobody
    /// waits in a circle. In the order of the hashes.
    pub(crate) fn lock_all(&self, hashes: &[u64]) -> Option<Vec<Slot<'_>>> {
        loop {
            let buckets = self.buckets.load(Ordering::Acquire);
            let mut order: Vec<(u64, usize)> =
                hashes.iter().enumerate().map(|(index, hash)| (bucket_of(*hash, buckets), index)).collect();
            order.sort_unstable();
            let mut slots: Vec<Option<Slot<'_>>> = hashes.iter().map(|_| None).collect();
            let mut last = None;
            for (number, index) in order {
                let (bucket, unlocks) = (self.bucket(number)?, last != Some(number));
                if unlocks {
                    lock(bucket);
                }
                slots[index] = Some(Slot { table: self, bucket, hash: hashes[index], unlocks });
                last = Some(number);
            }
            let now = self.buckets.load(Ordering::Acquire);
            if hashes.iter().all(|hash| bucket_of(*hash, now) == bucket_of(*hash, buckets)) {
                return slots.into_iter().collect();
            }
        }
    }

    /// Splits as many buckets as the entries ask for, at most [`SPLITS_MAX`]; how many.
    pub(crate) fn grow(&self) -> usize {
        let wants = || self.entries.load(Ordering::Relaxed) > self.buckets.load(Ordering::Relaxed) * FILL;
        if !wants() {
            return 0;
        }
        let Ok(_splitting) = self.splitting.try_lock() else { return 0 };
        (0..SPLITS_MAX).take_while(|_| wants() && self.split().is_some()).count()
    }

    /// Splits the next bucket.
    fn split(&self) -> Option<()> {
        let buckets = self.buckets.load(Ordering::Acquire);
        let bits = 63 - buckets.leading_zeros();
        let old_number = buckets - (1 << bits);
        let (old, new) = (self.bucket(old_number)?, self.all.get_or_make(buckets)?);
        lock(old);
        lock(new);
        let goes = |entry: u64| entry != 0 && entry >> TAG_SHIFT >> (bits - BASE_BITS) & 1 == 1;
        let mut added = true;
        for entry in self.chain(old).flat_map(|bucket| &bucket.entries) {
            let entry = entry.load(Ordering::Relaxed);
            added &= !goes(entry) || self.add_to(new, entry).is_some();
        }
        if added {
            self.buckets.store(buckets + 1, Ordering::Release);
            let moved = self.chain(old).flat_map(|bucket| &bucket.entries);
            moved
                .filter(|entry| goes(entry.load(Ordering::Relaxed)))
                .for_each(|entry| entry.store(0, Ordering::Release));
            self.draw_together(old);
        } else {
            self.chain(new).flat_map(|bucket| &bucket.entries).for_each(|entry| entry.store(0, Ordering::Release));
        }
        new.head.fetch_and(!LOCKED, Ordering::Release);
        old.head.fetch_and(!LOCKED, Ordering::Release);
        added.then_some(())
    }

    /// Adds an entry to a locked chain.
    fn add_to<'a>(&'a self, first: &'a Bucket, entry: u64) -> Option<&'a AtomicU64> {
        let mut last = first;
        for bucket in self.chain(first) {
            if let Some(free) = bucket.entries.iter().find(|entry| entry.load(Ordering::Relaxed) == 0) {
                free.store(entry, Ordering::Release);
                return Some(free);
            }
            last = bucket;
        }
        let mut overflow = self.overflow_used.lock().unwrap_or_else(PoisonError::into_inner);
        let number = overflow.free.pop().unwrap_or(overflow.used);
        let bucket = self.overflow.get_or_make(u64::from(number))?;
        overflow.used = overflow.used.max(number + 1);
        bucket.entries[0].store(entry, Ordering::Release);
        last.head.fetch_or(u64::from(number + 1) << NEXT_SHIFT, Ordering::Release);
        Some(&bucket.entries[0])
    }

    /// Moves the entries of a locked chain to its front, and gives back the buckets at its end that
    /// are empty then.
    fn draw_together(&self, first: &Bucket) {
        if first.head.load(Ordering::Relaxed) >> NEXT_SHIFT == 0 {
            return;
        }
        let slots: Vec<&AtomicU64> = self.chain(first).flat_map(|bucket| &bucket.entries).collect();
        let mut front = 0;
        for (at, slot) in slots.iter().enumerate() {
            let entry = slot.load(Ordering::Relaxed);
            if entry != 0 {
                if front < at {
                    slots[front].store(entry, Ordering::Release);
                    slot.store(0, Ordering::Release);
                }
                front += 1;
            }
        }
        let kept = front.div_ceil(ENTRIES).max(1);
        let chain: Vec<&Bucket> = self.chain(first).collect();
        let mut overflow = self.overflow_used.lock().unwrap_or_else(PoisonError::into_inner);
        for bucket in chain.iter().skip(kept - 1) {
            let before = bucket.head.fetch_and((1 << NEXT_SHIFT) - 1, Ordering::Release);
            overflow.free.extend(((before >> NEXT_SHIFT) as u32).checked_sub(1));
        }
    }
}

impl<'a> Slot<'a> {
    /// The entry of a key that `is_it` knows by its place.
    pub(crate) fn find<T>(&self, mut is_it: impl FnMut(u64) -> Option<T>) -> Option<(FoundEntry<'a>, T)> {
        let table = self.table;
        let entries = table.chain(self.bucket).flat_map(|bucket| &bucket.entries);
        for entry in entries {
            let bits = entry.load(Ordering::Relaxed);
            if bits & TAG_MASK == tag(self.hash)
                && place_of(bits) != 0
                && let Some(found) = is_it(place_of(bits))
            {
                return Some((FoundEntry { entry, place: place_of(bits) }, found));
            }
        }
        None
    }

    /// Lets an entry point elsewhere.
    pub(crate) fn replace(&self, found: FoundEntry<'_>, place: u64) {
        found.entry.store(tag(self.hash) | place, Ordering::Release);
    }

    /// Says that an entry is about to point to `place`, or to go: who looks for it waits until it
    /// does.
    pub(crate) fn announce(&self, found: FoundEntry<'_>, place: u64) {
        found.entry.store(tag(self.hash) | PENDING | place, Ordering::Release);
    }

    /// Adds an entry that points nowhere yet; `None`: the table has reached its end.
    pub(crate) fn reserve(&self) -> Option<FoundEntry<'a>> {
        let entry = self.table.add_to(self.bucket, tag(self.hash) | PENDING)?;
        self.table.entries.fetch_add(1, Ordering::Relaxed);
        Some(FoundEntry { entry, place: 0 })
    }

    pub(crate) fn remove(&self, found: FoundEntry<'_>) {
        found.entry.store(0, Ordering::Release);
        self.table.entries.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock(bucket: &Bucket) {
    let mut patience = Patience(0);
    while bucket.head.fetch_or(LOCKED, Ordering::Acquire) & LOCKED != 0 {
        while bucket.head.load(Ordering::Relaxed) & LOCKED != 0 {
            patience.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    use stratakv_base::random::Random;

    /// Places are hashes here: an entry is known by its place.
    fn hash_of(place: u64) -> u64 {
        place.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17)
    }

    fn insert(table: &HashTable, place: u64) {
        let slot = table.lock(hash_of(place)).unwrap();
        slot.replace(slot.reserve().unwrap(), place);
    }

    fn holds(table: &HashTable, place: u64) -> bool {
        table.find(hash_of(place), |found| (found == place).then_some(())).is_some()
    }

    #[test]
    fn it_holds_what_a_map_holds_while_it_grows() {
        let (table, mut random) = (HashTable::new(), Random::new(3));
        let mut model: HashMap<u64, ()> = HashMap::new();
        let mut splits = 0;
        for _ in 0..200_000 {
            let place = 1 + random.below(60_000);
            let slot = table.lock(hash_of(place)).unwrap();
            let found = slot.find(|found| (found == place).then_some(()));
            assert_eq!(found.is_some(), model.contains_key(&place));
            match found {
                Some((found, ())) if random.below(3) == 0 => {
                    slot.remove(found);
                    model.remove(&place);
                }
                Some(_) => {}
                None => {
                    slot.replace(slot.reserve().unwrap(), place);
                    model.insert(place, ());
                }
            }
            drop(slot);
            let split = table.grow();
            assert!(split <= SPLITS_MAX);
            splits += split;
        }
        assert_eq!(table.len() as usize, model.len());
        assert!((1..=60_000).all(|place| holds(&table, place) == model.contains_key(&place)));
        assert!(splits > 8_000, "{splits} splits");
        assert!(table.footprint_bytes() < 20 * table.len(), "{} bytes for {}", table.footprint_bytes(), table.len());
    }

    /// Readers of keys that stay, while others come and go around them and buckets are split.
    #[test]
    fn a_key_that_stays_is_always_found() {
        let table = HashTable::new();
        for place in 1..2_000 {
            insert(&table, place);
        }
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for place in 2_000..150_000 {
                    insert(&table, place);
                    table.grow();
                    if place % 3 == 0 {
                        let slot = table.lock(hash_of(place)).unwrap();
                        let (found, ()) = slot.find(|found| (found == place).then_some(())).unwrap();
                        slot.remove(found);
                    }
                }
            });
            while !writer.is_finished() {
                assert!((1..2_000).all(|place| holds(&table, place)));
            }
        });
        assert!(table.buckets.load(Ordering::Relaxed) > 1 << (BASE_BITS + 3));
    }
}
