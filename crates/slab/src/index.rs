//! The index of a shard: where each key's durable record lies, and which records expire.

use std::ops::{Bound, ControlFlow};

use stratakv_base::{CollectionId, Key, Mono};
use stratakv_index::{Finger, IndexEntry, Tree};

use crate::place::{Address, RecordPlace, blob_of};

/// A sweep for expired records looks at so many index entries, and deletes so many, at so many
/// nanoseconds' distance: 16,000 entries a second, about 0.1 % of a core.
const SWEEP: usize = 4096;
const SWEEP_DELETES: usize = 64;
pub(crate) const SWEEP_EVERY: u64 = 250_000_000;

/// The durable state, by key.
pub(crate) struct Index {
    pub(crate) tree: Tree,
    /// Entries with an expiry.
    expiring: u64,
    /// Where the sweep for expired ones goes on, and when.
    sweep_from: Option<Key>,
    sweep_at: Mono,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Index({} keys, {} expire)", self.tree.len(), self.expiring)
    }
}

impl Index {
    /// With these entries, of which so many expire.
    pub(crate) fn new(tree: Tree, expiring: u64) -> Index {
        Index { tree, expiring, sweep_from: None, sweep_at: Mono::default() }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<IndexEntry> {
        self.tree.get(key.encoded())
    }

    /// The entry of a key, and where in the index it is.
    pub(crate) fn find(&self, key: &Key) -> Option<(IndexEntry, Finger)> {
        self.tree.find(key.encoded())
    }

    /// The same of a key that may have been found before.
    pub(crate) fn find_at(&self, finger: Option<Finger>, key: &Key) -> Option<(IndexEntry, Finger)> {
        self.tree.find_at(finger, key.encoded())
    }

    /// Where the record of a key lies.
    pub(crate) fn place<A: Address>(&self, key: &Key) -> Option<RecordPlace<A>> {
        self.get(key).map(|entry| RecordPlace::from_bits(entry.place))
    }

    /// Points a key to another record; the entry before. It may have been found there.
    pub(crate) fn insert(&mut self, finger: Option<Finger>, key: &Key, entry: IndexEntry) -> Option<IndexEntry> {
        let old = self.tree.insert_at(finger, key.encoded(), entry);
        self.expiring += u64::from(entry.expiry != 0);
        self.expiring -= u64::from(old.is_some_and(|old| old.expiry != 0));
        old
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<IndexEntry> {
        let old = self.tree.remove(key.encoded());
        self.expiring -= u64::from(old.is_some_and(|old| old.expiry != 0));
        old
    }

    /// Records from this key on.
    pub(crate) fn records_from(&self, from: &Key) -> u64 {
        let mut records = 0;
        self.tree.scan(Bound::Included(from.encoded()), Bound::Unbounded, false, &mut |_, _| {
            records += 1;
            ControlFlow::Continue(())
        });
        records
    }

    /// The first page of each blob.
    pub(crate) fn blobs(&self, mut visit: impl FnMut(u32)) {
        self.tree.scan(Bound::Unbounded, Bound::Unbounded, false, &mut |_, entry| {
            blob_of(entry.place).into_iter().for_each(|(first, _)| visit(first));
            ControlFlow::Continue(())
        });
    }

    /// Keys of the engine's own collection: records of batches.
    pub(crate) fn batch_records(&self) -> Vec<Key> {
        let from = Key::bound(CollectionId::ENGINE, b"");
        let mut found = Vec::new();
        self.tree.scan(Bound::Included(from.encoded()), Bound::Unbounded, false, &mut |key, _| {
            found.extend(Key::from_encoded(key));
            ControlFlow::Continue(())
        });
        found
    }

    /// Whether some records expire.
    pub(crate) fn may_expire(&self) -> bool {
        self.expiring > 0
    }

    /// When the sweep is due.
    pub(crate) fn sweep_at(&self) -> Mono {
        self.sweep_at
    }

    /// Looks at a few entries; keys of those that have expired.
    pub(crate) fn sweep(&mut self, now: Mono, is_expired: impl Fn(u64) -> bool) -> Vec<Key> {
        self.sweep_at = Mono(now.0 + SWEEP_EVERY);
        let from = self.sweep_from.take();
        let from = from.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.encoded()));
        let (mut seen, mut last, mut expired) = (0, None, Vec::new());
        self.tree.scan(from, Bound::Unbounded, false, &mut |key, entry| {
            seen += 1;
            if is_expired(entry.expiry) {
                expired.extend(Key::from_encoded(key));
            }
            if seen < SWEEP && expired.len() < SWEEP_DELETES {
                return ControlFlow::Continue(());
            }
            last = Key::from_encoded(key);
            ControlFlow::Break(())
        });
        self.sweep_from = last;
        if expired.len() >= SWEEP_DELETES {
            // There is much to do: go on as soon as these are done.
            self.sweep_at = now;
        }
        expired
    }
}
