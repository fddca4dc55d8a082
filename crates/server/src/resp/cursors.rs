//! Cursors of `SCAN`, `HSCAN` and their kin: a number stands for a place in the walk over all keys,
//! or over the elements of a long structure.
//!
//! Clients keep a cursor as a number and may come back by another connection, so places are kept
//! for the whole server. A walk has two of them at most: the one that it goes on at, and the one
//! before, as a client may repeat a call whose answer it did not get. The oldest make room.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use stratakv_base::Wall;

use crate::server::lock;
use crate::walk::WalkPlace;

const PLACES_MAX: usize = 4096;
const BYTES_MAX: usize = 1 << 20;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cursors(Arc<Mutex<Places>>);

#[derive(Debug, Default)]
struct Places {
    last: u64,
    bytes: usize,
    by_number: HashMap<u64, CursorPlace>,
}

/// Where a walk goes on.
#[derive(Clone, Debug)]
enum ScanPlace {
    /// Over all keys.
    Keys(WalkPlace),
    /// Over the elements of this key: at the first one that is not less.
    Elements { key: Bytes, next: Bytes },
}

impl ScanPlace {
    fn held_bytes(&self) -> usize {
        match self {
            ScanPlace::Keys(place) => place.held_bytes(),
            ScanPlace::Elements { key, next } => size_of::<ScanPlace>() + key.len() + next.len(),
        }
    }
}

#[derive(Debug)]
struct CursorPlace {
    place: ScanPlace,
    /// The cursor that led here.
    from: u64,
}

impl Cursors {
    /// Where a walk over keys goes on; `None`: it is not known any more.
    pub(crate) fn place(&self, number: u64) -> Option<WalkPlace> {
        match &lock(&self.0).by_number.get(&number)?.place {
            ScanPlace::Keys(place) => Some(place.clone()),
            ScanPlace::Elements { .. } => None,
        }
    }

    /// The same of a walk over the elements of a key.
    pub(crate) fn element(&self, number: u64, of: &[u8]) -> Option<Bytes> {
        match &lock(&self.0).by_number.get(&number)?.place {
            ScanPlace::Elements { key, next } if *key == of => Some(next.clone()),
            _ => None,
        }
    }

    /// A cursor for a place that was reached by the cursor `from`; 0 is the beginning.
    pub(crate) fn keep(&self, from: u64, place: WalkPlace, wall: Wall) -> u64 {
        self.keep_place(from, ScanPlace::Keys(place), wall)
    }

    /// The same for an element of a key.
    pub(crate) fn keep_element(&self, from: u64, key: &[u8], next: Bytes, wall: Wall) -> u64 {
        // Not the whole node that it was read of.
        let next = Bytes::copy_from_slice(&next);
        self.keep_place(from, ScanPlace::Elements { key: Bytes::copy_from_slice(key), next }, wall)
    }

    fn keep_place(&self, from: u64, place: ScanPlace, wall: Wall) -> u64 {
        let places = &mut *lock(&self.0);
        // Of a walk that goes on nobody asks for what lies two pages back.
        if let Some(before) = places.by_number.get(&from).map(|known| known.from) {
            places.forget(before);
        }
        // Those of a server that ran before this one mean nothing here: they are smaller. Below
        // 2^53 they are numbers in any language.
        places.last = (places.last + 1).max(wall.0 << 11);
        let number = places.last;
        places.bytes += place.held_bytes();
        places.by_number.insert(number, CursorPlace { place, from });
        while places.by_number.len() > PLACES_MAX || (places.bytes > BYTES_MAX && places.by_number.len() > 1) {
            let Some(oldest) = places.by_number.keys().min().copied() else { break };
            places.forget(oldest);
        }
        number
    }
}

impl Places {
    fn forget(&mut self, number: u64) {
        if let Some(known) = self.by_number.remove(&number) {
            self.bytes -= known.place.held_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: Wall = Wall(1_800_000_000_000);

    #[test]
    fn a_walk_keeps_two_places_and_the_oldest_make_room() {
        let cursors = Cursors::default();
        let keep = |from| cursors.keep(from, WalkPlace::start(), WALL);
        let first = keep(0);
        let second = keep(first);
        assert!(first > 0 && second > first && second < 1 << 53);
        assert!(cursors.place(first).is_some() && cursors.place(second).is_some());
        let third = keep(second);
        assert!(cursors.place(first).is_none() && cursors.place(second).is_some());
        assert!(cursors.place(7).is_none());
        let later: Vec<u64> = (0..PLACES_MAX).map(|_| keep(0)).collect();
        assert!(cursors.place(third).is_none() && cursors.place(later[0]).is_some());
        assert_eq!(lock(&cursors.0).by_number.len(), PLACES_MAX);
        let element = cursors.keep_element(0, b"h", Bytes::from_static(b"field"), WALL);
        assert_eq!(cursors.element(element, b"h").as_deref(), Some(&b"field"[..]));
        assert!(cursors.element(element, b"other").is_none() && cursors.place(element).is_none());
        assert!(cursors.element(*later.last().unwrap(), b"h").is_none());
        let again = Cursors::default().keep(0, WalkPlace::start(), Wall(WALL.0 + 10_000));
        assert!(again > *later.last().unwrap(), "a server that starts later has others");
    }
}
