//! What expires when: the space of expired records comes back without a look at all the others.
//!
//! A record with an expiry is put down when it is written, under the second by whose end it has
//! expired: many share one, so an entry is 8 bytes. What is put down is not taken back when the
//! record is replaced: when its second has come it is looked at, and it counts only if the table
//! still points to it. Where most of a part is void it is made anew, so it takes memory for twice
//! the records that will expire, and no more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use stratakv_base::{Expiry, Wall};
use stratakv_engine::Error;
use stratakv_pmem::Pmem;

use crate::hash::Hash;

const STRIPES: usize = 64;
/// Records looked at in one step.
const STEP: usize = 256;
/// What may be void besides as many as are not.
const VOID_MIN: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Expiries {
    stripes: Box<[Mutex<Queue>]>,
    /// The stripe that is looked at next.
    next: AtomicU64,
    reclaimed: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    /// Places of records by the second at which they have expired.
    seconds: BTreeMap<u64, Vec<u64>>,
    listed: usize,
    /// Records that expire and are there.
    live: usize,
}

impl Queue {
    fn push(&mut self, second: u64, place: u64) {
        self.seconds.entry(second).or_default().push(place);
        self.listed += 1;
    }

    /// Takes up to `max` places whose second has come.
    fn due(&mut self, wall: Wall, max: usize) -> Vec<(u64, u64)> {
        let mut due = Vec::new();
        while due.len() < max
            && let Some(mut second) = self.seconds.first_entry()
            && *second.key() <= wall.seconds()
        {
            let (at, places) = (*second.key(), second.get_mut());
            let left = places.len().saturating_sub(max - due.len());
            due.extend(places.drain(left..).map(|place| (at, place)));
            if places.is_empty() {
                second.remove();
            }
        }
        self.listed -= due.len();
        due
    }
}

impl Expiries {
    pub(crate) fn new() -> Expiries {
        let stripes = (0..STRIPES).map(|_| Mutex::default()).collect();
        Expiries { stripes, next: AtomicU64::new(0), reclaimed: AtomicU64::new(0) }
    }

    fn stripe(&self, hash: u64) -> MutexGuard<'_, Queue> {
        self.stripes[hash as usize % STRIPES].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A record is there, or is replaced or deleted.
    fn change(&self, hash: u64, comes: Option<(u64, u64)>, goes: bool) {
        let mut queue = self.stripe(hash);
        queue.live = (queue.live + usize::from(comes.is_some())).saturating_sub(usize::from(goes));
        if let Some((second, place)) = comes {
            queue.push(second, place);
        }
    }

    /// Records reclaimed since the store was opened.
    pub(crate) fn reclaimed(&self) -> u64 {
        self.reclaimed.load(Ordering::Relaxed)
    }

    /// Bytes of DRAM of what is put down.
    pub(crate) fn footprint_bytes(&self) -> u64 {
        let listed = |stripe| self.stripe(stripe).listed as u64;
        (0..STRIPES as u64).map(listed).sum::<u64>() * size_of::<u64>() as u64
    }
}

impl<P: Pmem> Hash<P> {
    /// Puts down when a key's record expires, and forgets the one it had. With the key's slot
    /// locked, and no entry announced: whoever has a stripe may wait for that.
    pub(crate) fn note_expiry(&self, key: &[u8], before: u64, comes: Option<(u64, u64)>) {
        let comes = comes.filter(|(expiry, _)| *expiry != 0).map(|(expiry, place)| (Expiry(expiry).seconds(), place));
        if before == 0 && comes.is_none() {
            return;
        }
        self.expiries.change(self.hash_of(key), comes, before != 0);
    }

    /// Makes a part anew of what is not void, if most of it is. O(its length), after as many
    /// changes.
    fn drop_void(&self, stripe: u64) {
        let _inside = self.epochs.enter();
        let mut queue = self.expiries.stripe(stripe);
        if queue.listed <= 2 * queue.live + VOID_MIN {
            return;
        }
        let before = std::mem::take(&mut queue.seconds);
        queue.listed = 0;
        for (second, mut places) in before {
            // A place that came round again is there as often.
            places.sort_unstable();
            places.dedup();
            for place in places {
                // What cannot be read stays.
                if self.expiring_at(place, second).map_or(true, |found| found.is_some()) {
                    queue.push(second, place);
                }
            }
        }
    }

    /// The key of the record at `place`, if it expires in this second and the table points to it.
    /// By somebody inside an epoch.
    fn expiring_at(&self, place: u64, second: u64) -> Result<Option<Box<[u8]>>, Error> {
        let offset = self.region.offset(place);
        // It may be anything by now, also the middle of a value.
        let Some(header) = self.region.header(offset)?.filter(|header| Expiry(header.expiry).seconds() == second)
        else {
            return Ok(None);
        };
        let prefix = self.region.prefix(offset, &header)?;
        let key = header.key_in(&prefix);
        let is_there = self.table.find(self.hash_of(key), |found| (found == place).then_some(()));
        Ok(is_there.map(|()| key.into()))
    }

    /// Frees expired records, a bounded number; whether there may be more at once.
    pub(crate) fn reclaim_expired(&self, wall: Wall) -> bool {
        let mut left = STEP;
        for _ in 0..STRIPES {
            let stripe = self.expiries.next.fetch_add(1, Ordering::Relaxed);
            self.drop_void(stripe);
            let due = self.expiries.stripe(stripe).due(wall, left);
            for (second, place) in &due {
                let inside = self.epochs.enter();
                let found = self.expiring_at(*place, *second);
                drop(inside);
                // What is damaged or cannot be freed is met again by whoever asks for it, and the
                // others are not its fault.
                if let Ok(Some(key)) = found {
                    let _ = self.reclaim(&key, *place, wall);
                }
            }
            left -= due.len();
            if left == 0 {
                return true;
            }
        }
        false
    }

    /// Frees the record of a key, if it is still the one at `place`.
    fn reclaim(&self, key: &[u8], place: u64, wall: Wall) -> Result<(), Error> {
        let (slot, current) = self.locked(key)?;
        let is_it = |found: u64, expiry: u64| found == place && Expiry(expiry).is_past(wall);
        if let Some(current) = current.filter(|current| is_it(current.found.place, current.header.expiry)) {
            self.remove(slot, current, key)?;
            self.expiries.reclaimed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}
