//! Collections that are gone, dropped or expired: which numbers they had, and what is left of them.
//!
//! From the moment when a collection is dropped every operation on it finds nothing, and writes are
//! refused, whoever still has a handle. An operation that was on its way then may write a record
//! behind the delete of all: so the catalogue's record of the drop stays for a while, then the
//! collection is emptied once more, and the record goes. Each call that has to do with names does a
//! few such steps; what they leave is done at the next opening.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use stratakv_base::{CollectionId, Mono};

use crate::batch::WriteBatch;
use crate::error::{Error, ErrorKind};
use crate::store::Store;

/// How long an operation may be on its way.
const GRACE: Duration = Duration::from_secs(30);
/// Collections that a call empties once more, or removes since they have expired.
pub(crate) const STEPS: usize = 4;
/// Records of the catalogue that go together.
const FORGOTTEN_AT_ONCE: usize = 256;

/// Numbers of collections, as ranges: those that are made and dropped again and again follow each
/// other.
#[derive(Debug, Default)]
pub(crate) struct Numbers(BTreeMap<u32, u32>);

impl Numbers {
    pub(crate) fn has(&self, CollectionId(number): CollectionId) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, last)| number <= *last)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, id: CollectionId) {
        if self.has(id) {
            return;
        }
        let (mut first, mut last) = (id.0, id.0);
        if let Some((before, _)) = self.0.range(..id.0).next_back().filter(|(_, last)| **last + 1 == id.0) {
            first = *before;
        }
        if let Some(behind) = id.0.checked_add(1).and_then(|next| self.0.remove(&next)) {
            last = behind;
        }
        self.0.insert(first, last);
    }
}

/// What is left of collections that were dropped since the opening, in order.
#[derive(Debug, Default)]
pub(crate) struct Leftovers(VecDeque<Leftover>);

/// A record of the catalogue that says that a collection is gone.
#[derive(Debug)]
struct Leftover {
    id: CollectionId,
    key: Vec<u8>,
    since: Mono,
}

impl Leftovers {
    pub(crate) fn add(&mut self, id: CollectionId, key: Vec<u8>, since: Mono) {
        self.0.push_back(Leftover { id, key, since });
    }

    /// Takes some that nothing can be on its way to any more.
    fn take(&mut self, now: Mono, grace: Duration) -> Vec<Leftover> {
        let is_due = |left: &mut Leftover| left.since.0.saturating_add(grace.as_nanos() as u64) <= now.0;
        std::iter::from_fn(|| self.0.pop_front_if(is_due)).take(STEPS).collect()
    }
}

impl Store {
    /// A collection is gone; the catalogue says so under this key.
    pub(crate) fn note_gone(&self, id: CollectionId, key: Vec<u8>) {
        self.inner().expiring.gone(id, key, self.inner().runtime.now().mono);
    }

    /// Empties some collections once more that are gone for a while, and forgets them.
    ///
    /// # Errors
    /// As [`Collection::delete_range`](crate::Collection::delete_range). What failed is done at the
    /// next opening.
    pub(crate) fn reclaim_some(&self) -> Result<(), Error> {
        self.reclaim_older(GRACE)
    }

    pub(crate) fn reclaim_older(&self, grace: Duration) -> Result<(), Error> {
        if self.inner().read_only {
            return Ok(());
        }
        let now = self.inner().runtime.now().mono;
        let due = self.inner().expiring.leftovers(|left| left.take(now, grace));
        let mut keys = Vec::new();
        for Leftover { id, key, .. } in due {
            self.empty(id)?;
            keys.push(key);
        }
        self.forget_emptied(&keys)
    }

    /// Removes what a collection has that is gone.
    pub(crate) fn empty(&self, id: CollectionId) -> Result<u64, Error> {
        self.records_of(id).delete_range::<&[u8]>(..)
    }

    /// Removes records of the catalogue that have collections emptied: once that is durable,
    /// whatever the store's level is.
    pub(crate) fn forget_emptied<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<(), Error> {
        if keys.is_empty() {
            return Ok(());
        }
        self.sync()?;
        let catalogue = self.catalogue();
        for some in keys.chunks(FORGOTTEN_AT_ONCE) {
            let mut batch = WriteBatch::new();
            some.iter().for_each(|key| _ = batch.delete_in(&catalogue, key.as_ref()));
            match self.write(batch) {
                // A batch takes space until it is complete; a delete finds some in a full store
                // too.
                Err(error) if error.kind() == ErrorKind::Full => {
                    some.iter().try_for_each(|key| catalogue.delete(key.as_ref()).map(|_| ()))?;
                }
                written => _ = written?,
            }
        }
        self.inner().names.recount();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_follow_each_other_are_one_range() {
        let mut numbers = Numbers::default();
        for number in [7, 5, 1, 6, u32::MAX, 2, u32::MAX - 1, 5] {
            numbers.add(CollectionId(number));
        }
        assert_eq!(numbers.0.into_iter().collect::<Vec<_>>(), [(1, 2), (5, 7), (u32::MAX - 1, u32::MAX)]);
    }

    /// Records of drops were kept to the next opening, which had more to do the longer the store
    /// had been open.
    #[test]
    fn drops_are_forgotten_while_the_store_is_open() {
        for (what, options) in crate::catalogue::tests::kinds() {
            let directory = tempfile::tempdir().unwrap();
            let store = options.open(directory.path().join("data")).unwrap();
            let mut late = Vec::new();
            for number in 0..40 {
                let name = format!("c{number}");
                let collection = store.collection(&name).unwrap();
                collection.put(b"k", b"v").unwrap();
                late.push(collection);
                if number % 2 == 0 {
                    assert!(store.drop_collection(&name).unwrap(), "{what}");
                } else {
                    let now = stratakv_base::Expiry(store.wall().0);
                    assert!(store.expire_collection(&name, now).unwrap(), "{what}");
                }
            }
            assert!(store.collections().unwrap().is_empty(), "{what}");
            for collection in &late {
                assert!(collection.get(b"k").unwrap().is_none() && collection.put(b"late", b"v").is_err(), "{what}");
            }
            let records = || store.catalogue().scan(crate::ScanOptions::all().keys_only()).count();
            let before = records();
            for _ in 0..=40 / STEPS {
                store.drop_expired().unwrap();
                store.reclaim_older(Duration::ZERO).unwrap();
            }
            assert!(before > 40 && records() == 1, "{what}: {before} records, then {}", records());
            assert!(late.iter().all(|it| store.empty(it.id()).unwrap() == 0), "{what}: records are left");
            assert!(store.inner().expiring.leftovers(|left| left.0.is_empty()), "{what}");
            store.close().unwrap();
        }
    }
}
