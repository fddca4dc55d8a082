//! When records were last used, as `mg`'s flags `h` and `l` tell it.
//!
//! The engines keep no such thing. A fixed table remembers the keys used last, one for each of its
//! places: an older one may be gone, and then counts as never fetched and as not used since the
//! server began.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use stratakv_base::Wall;

/// Half a megabyte.
const PLACES: usize = 1 << 16;
const FETCHED: u64 = 1 << 32;

/// Places of 64 bits: 31 of the key's hash, whether it was fetched since it was stored, and the
/// second of its last use.
#[derive(Debug)]
pub(crate) struct Recency {
    places: Vec<AtomicU64>,
    /// The first second that it was told of.
    began: AtomicU32,
}

impl Default for Recency {
    fn default() -> Recency {
        Recency { places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(), began: 0.into() }
    }
}

impl Recency {
    fn place(&self, hash: u64) -> &AtomicU64 {
        &self.places[hash as usize % PLACES]
    }

    fn note(&self, hash: u64, fetched: u64, wall: Wall) {
        let place = self.place(hash);
        let wanted = tag(hash) | fetched | u64::from(second(wall));
        // A line that many threads read stays where it is.
        if place.load(Ordering::Relaxed) != wanted {
            place.store(wanted, Ordering::Relaxed);
        }
    }

    /// It was written.
    pub(crate) fn stored(&self, hash: u64, wall: Wall) {
        self.note(hash, 0, wall);
    }

    /// It was read.
    pub(crate) fn fetched(&self, hash: u64, wall: Wall) {
        self.note(hash, FETCHED, wall);
    }

    /// The server serves since this second, at the latest.
    pub(crate) fn begin(&self, wall: Wall) {
        let _ = self.began.compare_exchange(0, second(wall), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether it was fetched since it was stored, and how many seconds ago it was last used.
    pub(crate) fn of(&self, hash: u64, wall: Wall) -> (bool, u32) {
        let place = self.place(hash).load(Ordering::Relaxed);
        let known = place & !(FETCHED | u64::from(u32::MAX)) == tag(hash) && place != 0;
        match known {
            true => (place & FETCHED != 0, second(wall).saturating_sub(place as u32)),
            false => (false, second(wall).saturating_sub(self.began.load(Ordering::Relaxed))),
        }
    }
}

/// Until 2106.
fn second(wall: Wall) -> u32 {
    u32::try_from(wall.seconds()).unwrap_or(u32::MAX)
}

fn tag(hash: u64) -> u64 {
    hash & !(FETCHED | u64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_remembered_until_another_key_takes_its_place() {
        let recency = Recency::default();
        recency.begin(Wall(100_000));
        recency.begin(Wall(200_000));
        let (a, b) = (7 << 40 | 5, 9 << 40 | 5);
        assert_eq!(recency.of(a, Wall(110_000)), (false, 10));
        recency.stored(a, Wall(110_000));
        assert_eq!(recency.of(a, Wall(113_000)), (false, 3));
        recency.fetched(a, Wall(113_000));
        assert_eq!(recency.of(a, Wall(113_000)), (true, 0));
        recency.stored(b, Wall(114_000));
        assert_eq!((recency.of(a, Wall(120_000)), recency.of(b, Wall(120_000))), ((false, 20), (false, 6)));
    }
}
