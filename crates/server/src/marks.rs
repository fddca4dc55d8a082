//! What the meta commands know of records beyond what the engine keeps: that one is stale, that
//! somebody was told to make it anew, and a version that a client gave it.
//!
//! A mark belongs to one version of a record, so a write of any kind ends it unless the write says
//! otherwise. Marks are the server's and lie in memory: a restart forgets them, and then a stale
//! record counts as fresh again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use stratakv_base::{Expiry, Key, Wall};

use crate::server::lock;

/// Most marks at once: some 20 MiB with the longest keys.
const MARKS_MAX: usize = 1 << 16;
/// Separate locks.
const SHELVES: usize = 16;

/// What is known of one version of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The version of the engine that it belongs to.
    pub(crate) version: u64,
    /// When the record ends, and the mark with it.
    pub(crate) expiry: Expiry,
    /// Not what it should be, to be made anew.
    pub(crate) stale: bool,
    /// A client was told to make it anew.
    pub(crate) sent: bool,
    /// The version that clients see.
    pub(crate) shown: Option<u64>,
}

/// What a client that reads a record is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) stale: bool,
    /// Another client makes it anew.
    pub(crate) sent: bool,
    /// This client is to make it anew.
    pub(crate) won: bool,
}

#[derive(Debug, Default)]
struct Shelf {
    marks: HashMap<Key, Mark>,
    /// When expired marks were last looked for in vain.
    swept: Wall,
}

/// The marks of a server. Costs one load while there are none.
#[derive(Debug)]
pub(crate) struct Marks {
    count: AtomicUsize,
    shelves: Vec<Mutex<Shelf>>,
    shelf_max: usize,
}

impl Default for Marks {
    fn default() -> Marks {
        Marks::new(MARKS_MAX)
    }
}

impl Marks {
    pub(crate) fn new(marks_max: usize) -> Marks {
        let shelves = (0..SHELVES).map(|_| Mutex::default()).collect();
        Marks { count: 0.into(), shelves, shelf_max: marks_max / SHELVES }
    }

    fn shelf(&self, key: &Key) -> MutexGuard<'_, Shelf> {
        let number = stratakv_base::checksum::shard_of(key.encoded(), self.shelves.len());
        lock(&self.shelves[number])
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Of the record with this version, if it has one.
    pub(crate) fn of(&self, key: &Key, version: u64) -> Option<Mark> {
        if self.is_empty() {
            return None;
        }
        self.shelf(key).marks.get(key).copied().filter(|mark| mark.version == version)
    }

    /// The version that clients see.
    pub(crate) fn shown(&self, key: &Key, version: u64) -> u64 {
        self.of(key, version).and_then(|mark| mark.shown).unwrap_or(version)
    }

    /// The engine's version behind the one that a client saw.
    pub(crate) fn meant(&self, key: &Key, shown: u64) -> u64 {
        if self.is_empty() {
            return shown;
        }
        match self.shelf(key).marks.get(key) {
            Some(mark) if mark.shown == Some(shown) => mark.version,
            // Nobody was shown this one.
            Some(mark) if mark.version == shown && mark.shown.is_some() => u64::MAX,
            _ => shown,
        }
    }

    /// Whether a version that a client saw is one that a client gave.
    pub(crate) fn is_given(&self, key: &Key, shown: u64) -> bool {
        let meant = self.meant(key, shown);
        meant != shown && meant != u64::MAX
    }

    /// Marks a record; false if there is no room. The mark of a newer version stays: what is to be
    /// marked has been written since.
    pub(crate) fn set(&self, key: &Key, mark: Mark, wall: Wall) -> bool {
        self.put(&mut self.shelf(key), key, mark, wall)
    }

    fn put(&self, shelf: &mut Shelf, key: &Key, mark: Mark, wall: Wall) -> bool {
        if let Some(now) = shelf.marks.get_mut(key) {
            if now.version <= mark.version {
                *now = mark;
            }
            return true;
        }
        let before = shelf.marks.len();
        if before >= self.shelf_max {
            // Once a second: a full shelf is not searched for every mark.
            if shelf.swept.seconds() == wall.seconds() {
                return false;
            }
            shelf.swept = wall;
            shelf.marks.retain(|_, mark| !mark.expiry.is_past(wall));
        }
        let room = shelf.marks.len() < self.shelf_max;
        if room {
            shelf.marks.insert(key.clone(), mark);
        }
        self.recount(before, shelf.marks.len());
        room
    }

    /// What a reader of this version is told. If it is stale, or `wants` to make it anew, the first
    /// who asks wins; without room for marks everybody.
    pub(crate) fn tell(&self, key: &Key, version: u64, expiry: Expiry, wants: bool, wall: Wall) -> Told {
        if !wants && self.is_empty() {
            return Told::default();
        }
        let mut shelf = self.shelf(key);
        match shelf.marks.get_mut(key) {
            Some(mark) if mark.version == version => {
                let won = !mark.sent && (mark.stale || wants);
                let told = Told { stale: mark.stale, sent: mark.sent, won };
                mark.sent |= won;
                told
            }
            // It has been made anew.
            Some(mark) if mark.version > version => Told::default(),
            _ => {
                if wants {
                    self.put(&mut shelf, key, Mark { version, expiry, sent: true, ..Mark::default() }, wall);
                }
                Told { won: wants, ..Told::default() }
            }
        }
    }

    /// The record was written anew: what was known of it before is over.
    pub(crate) fn forget(&self, key: &Key, version: u64) {
        if !self.is_empty() {
            let mut shelf = self.shelf(key);
            let before = shelf.marks.len();
            if shelf.marks.get(key).is_some_and(|mark| mark.version < version) {
                shelf.marks.remove(key);
            }
            self.recount(before, shelf.marks.len());
        }
    }

    /// Whether nothing is known of any version.
    pub(crate) fn is_unknown(&self, key: &Key) -> bool {
        self.is_empty() || !self.shelf(key).marks.contains_key(key)
    }

    /// The record changed in place: its mark stays with it.
    pub(crate) fn keep(&self, key: &Key, version: u64, shown: Option<u64>, expiry: Option<Expiry>) {
        if !self.is_empty()
            && let Some(mark) = self.shelf(key).marks.get_mut(key)
            && mark.version < version
        {
            mark.version = version;
            mark.shown = shown;
            mark.expiry = expiry.unwrap_or(mark.expiry);
        }
    }

    fn recount(&self, before: usize, after: usize) {
        if after >= before {
            self.count.fetch_add(after - before, Ordering::AcqRel);
        } else {
            self.count.fetch_sub(before - after, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use stratakv_base::CollectionId;

    use super::*;

    const WALL: Wall = Wall(1000);

    fn key(name: &str) -> Key {
        Key::new(CollectionId::default(), name.as_bytes()).unwrap()
    }

    #[test]
    fn the_first_reader_of_a_stale_record_wins_and_a_write_ends_it() {
        let (marks, a) = (Marks::default(), key("a"));
        assert!(marks.set(&a, Mark { version: 7, stale: true, ..Mark::default() }, WALL));
        let tell = |version| marks.tell(&a, version, Expiry::NEVER, false, WALL);
        assert_eq!(tell(7), Told { stale: true, sent: false, won: true });
        assert_eq!(tell(7), Told { stale: true, sent: true, won: false });
        assert_eq!(tell(8), Told::default(), "another version");
        marks.keep(&a, 9, None, None);
        assert_eq!(tell(9), Told { stale: true, sent: true, won: false });
        marks.forget(&a, 10);
        assert_eq!((tell(9), marks.is_empty()), (Told::default(), true));
    }

    #[test]
    fn who_wants_to_make_it_anew_wins_once() {
        let (marks, a) = (Marks::default(), key("a"));
        let tell = |wants| marks.tell(&a, 1, Expiry::NEVER, wants, WALL);
        assert_eq!(tell(false), Told::default());
        assert!(tell(true).won);
        assert_eq!(tell(true), Told { sent: true, ..Told::default() });
        assert_eq!(tell(false), Told { sent: true, ..Told::default() });
    }

    #[test]
    fn a_given_version_stands_for_the_engines() {
        let (marks, a) = (Marks::default(), key("a"));
        marks.set(&a, Mark { version: 7, shown: Some(50), ..Mark::default() }, WALL);
        assert_eq!((marks.shown(&a, 7), marks.shown(&a, 8)), (50, 8));
        assert_eq!((marks.meant(&a, 50), marks.meant(&a, 7), marks.meant(&a, 9)), (7, u64::MAX, 9));
    }

    #[test]
    fn there_is_room_for_so_many_and_expired_ones_make_way() {
        let marks = Marks::new(SHELVES);
        let mark = Mark { version: 1, expiry: Expiry(WALL.0 + 5000), ..Mark::default() };
        let taken = (0..1000).filter(|number| marks.set(&key(&format!("k{number}")), mark, WALL)).count();
        assert_eq!((taken, marks.count.load(Ordering::Relaxed)), (SHELVES, SHELVES));
        assert!(marks.set(&key("later"), mark, Wall(WALL.0 + 5000)));
        assert_eq!(marks.count.load(Ordering::Relaxed), SHELVES);
    }

    /// Its mark was once put in place of the newer one, and the record counted as fresh.
    #[test]
    fn who_comes_late_does_not_wipe_out_the_mark_of_a_newer_version() {
        let (marks, a) = (Marks::default(), key("a"));
        assert!(marks.set(&a, Mark { version: 9, stale: true, ..Mark::default() }, WALL));
        assert_eq!(marks.tell(&a, 7, Expiry::NEVER, true, WALL), Told::default(), "it has been written since");
        assert!(marks.set(&a, Mark { version: 8, shown: Some(50), ..Mark::default() }, WALL));
        let told = marks.tell(&a, 9, Expiry::NEVER, false, WALL);
        assert_eq!(told, Told { stale: true, sent: false, won: true });
    }
}
