//! Backups while the store serves: all that a snapshot sees, a piece at a time, in the order of the
//! hash table.
//!
//! A walk takes shares of the keys: those whose hashes end in the same bits, as many bits as the
//! table had when it began. The table only splits buckets, so a share stays a whole number of them
//! however it grows, and every key is in one share. Nothing waits for a walk, and no write copies
//! anything for it.

use std::ops::Bound;
use std::sync::{MutexGuard, PoisonError};

use stratakv_base::{Key, Mono, Wall};
use stratakv_engine::{Error, Item};
use stratakv_pmem::Pmem;

use crate::hash::Hash;
use crate::pages::Page;

/// Records and bytes of a piece.
const PIECE_ITEMS: usize = 1024;
const PIECE_BYTES: usize = 1 << 20;

/// How far a backup is.
#[derive(Debug)]
pub(crate) struct Walk {
    snapshot: u64,
    bits: u32,
    /// The share that comes next.
    share: u64,
    /// Met in shares before, and not told yet.
    damaged: Vec<Error>,
}

impl<P: Pmem> Hash<P> {
    fn walk_state(&self) -> MutexGuard<'_, Option<Walk>> {
        self.backup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a backup; its cursor. One that is under way ends.
    ///
    /// # Errors
    /// As [`Hash::open_snapshot`].
    pub(crate) fn begin_backup(&self, now: Mono) -> Result<u64, Error> {
        let mut walk = self.walk_state();
        if let Some(Walk { snapshot, .. }) = walk.take() {
            self.end_snapshot(snapshot)?;
        }
        let snapshot = self.open_snapshot(now)?;
        *walk = Some(Walk { snapshot, bits: self.table.bits(), share: 0, damaged: Vec::new() });
        Ok(snapshot)
    }

    /// The next piece: records in no order, and whether there are more.
    ///
    /// # Errors
    /// Another backup was begun, or the snapshot of this one ended because what it kept took too
    /// much room; a record is damaged: whoever asks again gets what is left.
    pub(crate) fn backup_piece(&self, cursor: u64, wall: Wall) -> Result<Page, Error> {
        let mut state = self.walk_state();
        let Some(walk) = state.as_mut().filter(|walk| walk.snapshot == cursor) else {
            return Err(Error::NoSnapshot { id: cursor });
        };
        let version = self.snapshots.version_of(cursor)?;
        if let Some(damaged) = walk.damaged.pop() {
            return Err(damaged);
        }
        let (mut items, mut bytes): (Vec<Item>, usize) = (Vec::new(), 0);
        while walk.share >> walk.bits == 0 && items.len() < PIECE_ITEMS && bytes < PIECE_BYTES {
            let _inside = self.epochs.enter();
            let (keys, damaged) = self.keys_of_share(walk.share, walk.bits)?;
            walk.damaged.extend(damaged);
            for key in keys {
                let read = self.place_at(&key, version).and_then(|place| match place {
                    Some(place) => self.read(place, &key),
                    None => Ok(None),
                });
                let record = match read {
                    Err(damaged @ Error::Corrupt(_)) => {
                        walk.damaged.push(damaged);
                        continue;
                    }
                    read => read?,
                };
                let (Some(key), Some(record)) = (Key::from_encoded(&key), record) else { continue };
                if !record.expiry.is_past(wall) {
                    bytes += key.encoded().len() + record.value.len() as usize;
                    items.push(Item { key, record: Some(record) });
                }
            }
            walk.share += 1;
        }
        // What was read is only right if it was kept all the time.
        self.snapshots.version_of(cursor)?;
        let more = walk.share >> walk.bits == 0 || !walk.damaged.is_empty();
        if !more {
            *state = None;
            self.end_snapshot(cursor)?;
        }
        Ok((items, more.then_some(Bound::Unbounded)))
    }

    /// Closes a snapshot that may have ended by itself.
    fn end_snapshot(&self, id: u64) -> Result<(), Error> {
        match self.close_snapshot(id) {
            Err(Error::NoSnapshot { .. }) => Ok(()),
            ended => ended,
        }
    }
}
