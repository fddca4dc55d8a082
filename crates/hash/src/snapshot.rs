//! Snapshots: what was there when one was opened stays readable until it is closed, while writers
//! go on.
//!
//! A snapshot is a version: it sees of each key the newest record that is not later. A write whose
//! old record some snapshot sees keeps it: on the medium it is a free extent as ever (after a crash
//! nobody holds a snapshot), but its space is not given to anybody, and it can be found by its key
//! in DRAM. So snapshots cost writers nothing until they are open, then a map's insert for each
//! record that is replaced for the first time, and readers nothing.
//!
//! Opening one takes two grace periods. Writers enter before they draw their version and leave when
//! others see what they wrote. Once all who might not know that old records are to be kept are
//! gone, a version is taken; once all who may have drawn a lower one are gone, everything up to it
//! is there, and it never changes.
//!
//! After KVDK's snapshots, whose records point to their older versions on the medium.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use stratakv_base::{Mono, fault_point};
use stratakv_engine::Error;
use stratakv_pmem::Pmem;

use crate::alloc::Extent;
use crate::epoch::{Epochs, Inside};
use crate::hash::{Current, Hash};
use crate::order::is_ordered;

/// Parts of what is kept, by the lowest bits of the key's hash.
const STRIPES: usize = 64;
/// Most snapshots open at a time.
const OPEN_MAX: u32 = 64;
/// What is kept may take one in so many bytes of the region: beyond it the oldest snapshot ends.
const KEPT_SHARE: u64 = 4;
/// DRAM of an entry of the past besides its key: the node of the map, the key's box, what is said
/// of the record.
const PAST_BYTES: u64 = 128;

/// Keys, and damage met on the way.
pub(crate) type Share = (Vec<Box<[u8]>>, Vec<Error>);

/// The bits of the hash in reverse order, so that the keys of a bucket lie together; and the key.
type PastKey = (u64, Box<[u8]>);

/// See the module.
#[derive(Debug)]
pub(crate) struct Snapshots {
    open: Mutex<Open>,
    /// The latest version that a snapshot sees, 0 without any; the highest number while one is
    /// being opened.
    latest: AtomicU64,
    writers: Epochs,
    past: Box<[Mutex<BTreeMap<PastKey, Past>>]>,
    kept_blocks: AtomicU64,
    /// DRAM of `past`, about.
    past_bytes: AtomicU64,
    /// Keys that orders have only for the sake of a snapshot.
    ghosts: AtomicU64,
    bounding: Mutex<()>,
    ended_early: AtomicU64,
}

#[derive(Debug, Default)]
struct Open {
    last_id: u64,
    /// By id: they are given in the order of opening, so of versions.
    snapshots: BTreeMap<u64, Snapshot>,
}

#[derive(Clone, Copy, Debug)]
struct Snapshot {
    version: u64,
    opened: Mono,
}

/// Records of a key that are kept, oldest first.
#[derive(Debug, Default)]
struct Past {
    olds: SmallVec<[Old; 1]>,
    /// The key was deleted, and is still in its order.
    is_ghost: bool,
}

/// A record that is kept: the newest one of its key for whoever sees versions from its own to
/// before `until`.
#[derive(Clone, Copy, Debug)]
struct Old {
    extent: Extent,
    version: u64,
    until: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Figures of snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotReport {
    /// How many are open, those of backups too.
    pub open: u64,
    /// When the oldest one was opened; 0 if none is.
    pub oldest: Mono,
    /// Bytes of records kept for them.
    pub kept_bytes: u64,
    /// Bytes of DRAM of what finds those, about.
    pub index_bytes: u64,
    /// Snapshots that ended because what they kept took too much room.
    pub ended_early: u64,
}

impl Snapshots {
    /// Until the writes under way are done.
    fn wait_for_writers(&self) {
        fault_point!("hash_snapshot_without_grace", return);
        self.writers.wait();
    }

    pub(crate) fn new() -> Snapshots {
        Snapshots {
            open: Mutex::default(),
            latest: AtomicU64::new(0),
            writers: Epochs::new(),
            past: (0..STRIPES).map(|_| Mutex::default()).collect(),
            kept_blocks: AtomicU64::new(0),
            past_bytes: AtomicU64::new(0),
            ghosts: AtomicU64::new(0),
            bounding: Mutex::default(),
            ended_early: AtomicU64::new(0),
        }
    }

    /// Every writer is inside from before it draws its version until others see what it wrote.
    pub(crate) fn write(&self) -> Inside<'_> {
        self.writers.enter()
    }

    pub(crate) fn keeps_any(&self) -> bool {
        self.kept_blocks.load(Ordering::Relaxed) > 0
    }

    /// Whether orders may have keys that are deleted.
    pub(crate) fn has_ghosts(&self) -> bool {
        self.ghosts.load(Ordering::SeqCst) > 0
    }

    fn stripe(&self, hash: u64) -> MutexGuard<'_, BTreeMap<PastKey, Past>> {
        lock(&self.past[hash as usize % STRIPES])
    }

    /// The record of a key that a snapshot with this version sees, if it was kept.
    fn find(&self, hash: u64, key: &[u8], version: u64) -> Option<u64> {
        let past = self.stripe(hash);
        let olds = &past.get(&(hash.reverse_bits(), key.into()))?.olds;
        olds.iter().find(|old| (old.version..old.until).contains(&version)).map(|old| old.extent.place)
    }

    /// Keys with something kept whose hashes end in these bits.
    pub(crate) fn keys(&self, share: u64, bits: u32) -> Vec<Box<[u8]>> {
        let first = share.reverse_bits();
        let last = first | u64::MAX >> bits;
        let past = self.stripe(share);
        let range = past.range((first, Box::default())..);
        range.take_while(|((reversed, _), _)| *reversed <= last).map(|((_, key), _)| key.clone()).collect()
    }

    fn versions(&self) -> Vec<u64> {
        lock(&self.open).snapshots.values().map(|snapshot| snapshot.version).collect()
    }

    /// The version that a snapshot sees.
    pub(crate) fn version_of(&self, id: u64) -> Result<u64, Error> {
        lock(&self.open).snapshots.get(&id).map(|snapshot| snapshot.version).ok_or(Error::NoSnapshot { id })
    }

    fn report(&self, block_bytes: u64) -> SnapshotReport {
        let open = lock(&self.open);
        SnapshotReport {
            open: open.snapshots.len() as u64,
            oldest: open.snapshots.values().next().map_or(Mono::default(), |oldest| oldest.opened),
            kept_bytes: self.kept_blocks.load(Ordering::Relaxed) * block_bytes,
            index_bytes: self.past_bytes.load(Ordering::Relaxed),
            ended_early: self.ended_early.load(Ordering::Relaxed),
        }
    }
}

impl<P: Pmem> Hash<P> {
    /// Opens a snapshot; its id. Waits for the writes under way.
    ///
    /// # Errors
    /// [`Error::TooManySnapshots`].
    pub fn open_snapshot(&self, now: Mono) -> Result<u64, Error> {
        let snapshots = &self.snapshots;
        let mut open = lock(&snapshots.open);
        if open.snapshots.len() >= OPEN_MAX as usize {
            return Err(Error::TooManySnapshots { max: OPEN_MAX });
        }
        snapshots.latest.store(u64::MAX, Ordering::SeqCst);
        snapshots.wait_for_writers();
        let version = self.last_version();
        snapshots.wait_for_writers();
        open.last_id += 1;
        let id = open.last_id;
        open.snapshots.insert(id, Snapshot { version, opened: now });
        snapshots.latest.store(version, Ordering::SeqCst);
        Ok(id)
    }

    /// Closes a snapshot. O(records kept for all of them).
    ///
    /// # Errors
    /// There is none with this id, or it ended before.
    pub fn close_snapshot(&self, id: u64) -> Result<(), Error> {
        let mut open = lock(&self.snapshots.open);
        open.snapshots.remove(&id).ok_or(Error::NoSnapshot { id })?;
        let latest = open.snapshots.values().next_back().map_or(0, |snapshot| snapshot.version);
        self.snapshots.latest.store(latest, Ordering::SeqCst);
        drop(open);
        self.release_of_past()
    }

    /// Gives back what no snapshot sees any more.
    fn release_of_past(&self) -> Result<(), Error> {
        // In this order: a snapshot that is not in the list sees no record that was replaced up to
        // `last`.
        let last = self.last_version();
        let versions = self.snapshots.versions();
        for past in &self.snapshots.past {
            let keys: Vec<Box<[u8]>> = lock(past).keys().map(|(_, key)| key.clone()).collect();
            for key in keys {
                self.release_of_key(&key, &versions, last)?;
            }
        }
        Ok(())
    }

    /// What a writer kept who did not know yet that the last snapshot was closed.
    pub(crate) fn sweep_past(&self) {
        let snapshots = &self.snapshots;
        if snapshots.kept_blocks.load(Ordering::Relaxed) > 0 && snapshots.latest.load(Ordering::SeqCst) == 0 {
            // It fails only with the memory, and then writes tell.
            let _ = self.release_of_past();
        }
    }

    fn release_of_key(&self, key: &[u8], versions: &[u64], last: u64) -> Result<(), Error> {
        let (snapshots, hash) = (&self.snapshots, self.hash_of(key));
        let slot = self.slot(key)?;
        let mut past = snapshots.stripe(hash);
        let past_key: PastKey = (hash.reverse_bits(), key.into());
        let Some(found) = past.get_mut(&past_key) else { return Ok(()) };
        let is_seen =
            |old: &Old| old.until > last || versions.iter().any(|version| (old.version..old.until).contains(version));
        let (kept, gone): (SmallVec<[Old; 1]>, SmallVec<[Old; 1]>) = found.olds.drain(..).partition(is_seen);
        found.olds = kept;
        if found.olds.is_empty() {
            if found.is_ghost {
                self.orders.remove(key);
                snapshots.ghosts.fetch_sub(1, Ordering::SeqCst);
            }
            past.remove(&past_key);
        }
        drop(past);
        drop(slot);
        self.orders.apply_waiting(key);
        snapshots.past_bytes.fetch_sub(gone.len() as u64 * (key.len() as u64 + PAST_BYTES), Ordering::Relaxed);
        for old in gone {
            snapshots.kept_blocks.fetch_sub(u64::from(old.extent.blocks), Ordering::Relaxed);
            self.alloc.retire(&self.epochs, self.home(), old.extent);
        }
        Ok(())
    }

    /// Keeps the record that a write with `version` replaces, if a snapshot sees it; whether it
    /// does. With the key's slot locked, before others see the new one, by a writer who is inside.
    pub(crate) fn keep(&self, key: &[u8], current: &Current<'_>, version: u64) -> bool {
        let (snapshots, header) = (&self.snapshots, &current.header);
        fault_point!("hash_old_record_not_kept", return false);
        if snapshots.latest.load(Ordering::SeqCst) < header.version {
            return false;
        }
        let extent = Extent { place: current.found.place, blocks: header.blocks };
        let hash = self.hash_of(key);
        let mut past = snapshots.stripe(hash);
        let olds = &mut past.entry((hash.reverse_bits(), key.into())).or_default().olds;
        olds.push(Old { extent, version: header.version, until: version });
        drop(past);
        snapshots.past_bytes.fetch_add(key.len() as u64 + PAST_BYTES, Ordering::Relaxed);
        snapshots.kept_blocks.fetch_add(u64::from(extent.blocks), Ordering::Relaxed);
        true
    }

    /// Takes a deleted key out of its order, unless a snapshot still wants it there. With the key's
    /// slot locked.
    pub(crate) fn leave_order(&self, key: &[u8]) {
        if !is_ordered(key) {
            return;
        }
        let (snapshots, hash) = (&self.snapshots, self.hash_of(key));
        if snapshots.latest.load(Ordering::SeqCst) > 0 || snapshots.kept_blocks.load(Ordering::Relaxed) > 0 {
            let mut past = snapshots.stripe(hash);
            if let Some(found) = past.get_mut(&(hash.reverse_bits(), key.into())) {
                // Counted before the key is gone: whoever does not see the count sees the key.
                if !std::mem::replace(&mut found.is_ghost, true) {
                    snapshots.ghosts.fetch_add(1, Ordering::SeqCst);
                }
                return;
            }
        }
        self.orders.remove(key);
    }

    /// A key that is written again is no ghost any more. With the key's slot locked.
    pub(crate) fn revive(&self, key: &[u8]) {
        if self.snapshots.has_ghosts() {
            let hash = self.hash_of(key);
            let mut past = self.snapshots.stripe(hash);
            if let Some(found) = past.get_mut(&(hash.reverse_bits(), key.into()))
                && std::mem::take(&mut found.is_ghost)
            {
                self.snapshots.ghosts.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    /// Where the record of a key lies that a snapshot with this version sees. By somebody inside an
    /// epoch.
    pub(crate) fn place_at(&self, key: &[u8], version: u64) -> Result<Option<u64>, Error> {
        let hash = self.hash_of(key);
        let newest = self.table.find(hash, |place| {
            self.header_if(place, key).map(|header| header.map(|header| (place, header.version))).transpose()
        });
        match newest.transpose()? {
            Some((place, found)) if found <= version => Ok(Some(place)),
            _ => Ok(self.snapshots.find(hash, key, version)),
        }
    }

    /// Ends the oldest snapshot if what is kept takes too much room. Not with a slot locked.
    pub(crate) fn bound_snapshots(&self) {
        let snapshots = &self.snapshots;
        // One at a time: while what the oldest one kept is given back, it still counts.
        let Ok(_bounding) = snapshots.bounding.try_lock() else { return };
        let kept_bytes = self.region.offset(snapshots.kept_blocks.load(Ordering::Relaxed));
        if kept_bytes <= self.region.superblock.region_bytes() / KEPT_SHARE {
            return;
        }
        self.end_oldest_snapshot();
    }

    /// Ends the oldest snapshot, that of a backup too, because what snapshots keep takes too much
    /// room or memory; whether there was one. O(records kept for all of them).
    pub fn end_oldest_snapshot(&self) -> bool {
        let oldest = lock(&self.snapshots.open).snapshots.keys().next().copied();
        // It may have been closed meanwhile.
        let has_ended = oldest.is_some_and(|id| self.close_snapshot(id).is_ok());
        self.snapshots.ended_early.fetch_add(u64::from(has_ended), Ordering::Relaxed);
        has_ended
    }

    pub(crate) fn snapshot_report(&self) -> SnapshotReport {
        self.snapshots.report(u64::from(self.region.superblock.block_bytes))
    }

    /// Keys whose hashes end in these bits, each once: those in the table now, and those kept; and
    /// the damage met where the key of a record cannot be read. By somebody inside an epoch.
    pub(crate) fn keys_of_share(&self, share: u64, bits: u32) -> Result<Share, Error> {
        let (mut keys, mut damaged) = (HashMap::new(), Vec::new());
        for place in self.table.places(share, bits) {
            let offset = self.region.offset(place);
            let Some(header) = self.region.header(offset)? else {
                damaged.push(self.note(self.region.damage(offset, "record", "a header", "something else".into())));
                continue;
            };
            let prefix = self.region.prefix(offset, &header)?;
            keys.insert(Box::from(header.key_in(&prefix)), ());
        }
        // Whoever was deleted before we looked into the table is there.
        keys.extend(self.snapshots.keys(share, bits).into_iter().map(|key| (key, ())));
        Ok((keys.into_keys().collect(), damaged))
    }
}
