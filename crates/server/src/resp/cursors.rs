//! Cursors of `SCAN`: a number stands for a place in the walk over all keys.
//!
//! Clients keep a cursor as a number and may come back by another connection, so places are kept
//! for the whole server. A walk has two of them at most: the one that it goes on at, and the one
//! before, as a client may repeat a call whose answer it did not get. The oldest make room.

use std::collections::HashMap;
use std::sync::Mutex;

use stratakv_base::Wall;

use crate::server::lock;
use crate::walk::WalkPlace;

const PLACES_MAX: usize = 4096;
const BYTES_MAX: usize = 1 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Cursors(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    last: u64,
    bytes: usize,
    by_number: HashMap<u64, CursorPlace>,
}

#[derive(Debug)]
struct CursorPlace {
    place: WalkPlace,
    /// The cursor that led here.
    from: u64,
}

impl Cursors {
    /// Where a cursor goes on; `None`: it is not known any more.
    pub(crate) fn place(&self, number: u64) -> Option<WalkPlace> {
        lock(&self.0).by_number.get(&number).map(|known| known.place.clone())
    }

    /// A cursor for a place that was reached by the cursor `from`; 0 is the beginning.
    pub(crate) fn keep(&self, from: u64, place: WalkPlace, wall: Wall) -> u64 {
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
        let again = Cursors::default().keep(0, WalkPlace::start(), Wall(WALL.0 + 10_000));
        assert!(again > *later.last().unwrap(), "a server that starts later has others");
    }
}
