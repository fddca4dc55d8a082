//! Pages of scans, and range deletes: keys from the order, records from the table.

use std::ops::{Bound, RangeBounds};

use stratakv_base::{CollectionId, Expiry, Key, Wall};
use stratakv_engine::range::{before_engine_keys, is_empty_range};
use stratakv_engine::{Capability, Error, Expect, Item, PageRequest, Record};
use stratakv_pmem::Pmem;

use crate::hash::{Hash, Written};
use crate::order::{Listed, TAKEN_MAX};

/// Most items of a page.
const ITEMS_MAX: usize = 16 << 10;

/// Items, and where the next page begins.
pub(crate) type Page = (Vec<Item>, Option<Bound<Key>>);

/// What is left of a range behind its last key taken.
fn after(from: &mut Bound<Key>, to: &mut Bound<Key>, reverse: bool, last: &Key) {
    *(if reverse { to } else { from }) = Bound::Excluded(last.clone());
}

/// Whether no key of the default collection lies above this bound: those are in no order.
fn is_above_unordered(from: &Bound<Key>) -> bool {
    let first = Key::bound(CollectionId(1), b"");
    matches!(from, Bound::Included(key) | Bound::Excluded(key) if *key >= first)
}

impl<P: Pmem> Hash<P> {
    /// One page: of a snapshot, or each record as it is when it is read. Of a single key also in the default collection.
    ///
    /// # Errors
    /// The range reaches into the default collection, which is in no order; there is no such snapshot; a record is damaged.
    pub(crate) fn page(&self, request: &PageRequest, wall: Wall) -> Result<Page, Error> {
        let version = request.at.map(|id| self.snapshots.version_of(id)).transpose()?;
        let page = match (&request.from, &request.to) {
            (Bound::Included(key), Bound::Included(last)) if key == last => {
                let item = self.item((key.clone(), 0), request.keys_only, true, version, wall)?;
                (item.into_iter().collect(), None)
            }
            _ => self.page_in_order(request, version, wall)?,
        };
        // What was read is only right if it was kept all the time.
        request.at.map(|id| self.snapshots.version_of(id)).transpose()?;
        Ok(page)
    }

    fn page_in_order(&self, request: &PageRequest, version: Option<u64>, wall: Wall) -> Result<Page, Error> {
        let (mut from, mut to) = (request.from.clone(), before_engine_keys(request.to.clone()));
        if is_empty_range(&from, &to) {
            return Ok((Vec::new(), None));
        }
        if !is_above_unordered(&from) {
            return Err(Error::Unsupported(Capability::Ordered));
        }
        let items_max = (request.items_max.max(1) as usize).min(ITEMS_MAX);
        let (mut items, mut bytes): (Vec<Item>, usize) = (Vec::new(), 0);
        loop {
            let taken_max = (items_max - items.len()).min(TAKEN_MAX);
            // Asked before the keys are taken: a key that is no ghost then was there when it was taken.
            let unsure = version.is_some() || self.snapshots.has_ghosts();
            let taken = self.orders.keys(&from, &to, request.reverse, taken_max);
            let is_last = taken.len() < taken_max;
            for listed in taken {
                after(&mut from, &mut to, request.reverse, &listed.0);
                let Some(item) = self.item(listed, request.keys_only, unsure, version, wall)? else { continue };
                bytes +=
                    item.key.encoded().len() + item.record.as_ref().map_or(0, |record| record.value.len() as usize);
                items.push(item);
                if bytes >= request.bytes_max as usize {
                    break;
                }
            }
            let is_full = items.len() == items_max || bytes >= request.bytes_max as usize;
            if is_full || is_last {
                // Full at the very last key: the next page is empty.
                let next = if request.reverse { to } else { from };
                return Ok((items, is_full.then_some(next)));
            }
        }
    }

    /// The item of a key; `None`: it is gone. `unsure`: that it is in an order does not mean that it is there.
    fn item(
        &self,
        (key, expiry): Listed,
        keys_only: bool,
        unsure: bool,
        version: Option<u64>,
        wall: Wall,
    ) -> Result<Option<Item>, Error> {
        let record = match (keys_only, version) {
            (true, None) if !unsure => return Ok((!Expiry(expiry).is_past(wall)).then_some(Item { key, record: None })),
            (true, None) => self.get_meta(&key, wall)?,
            (false, None) => self.get(&key, wall)?,
            (_, Some(version)) => self.get_at(&key, version, keys_only, wall)?,
        };
        Ok(record.map(|record| Item { key, record: (!keys_only).then_some(record) }))
    }

    /// The record of a key that a snapshot with this version sees, with or without its value.
    fn get_at(&self, key: &Key, version: u64, meta: bool, wall: Wall) -> Result<Option<Record>, Error> {
        let inside = self.epochs.enter();
        let key = key.encoded();
        let Some(place) = self.place_at(key, version)? else { return Ok(None) };
        let record = if meta { self.read_meta(place, key)? } else { self.read(place, key)? };
        drop(inside);
        Ok(record.filter(|record| !record.expiry.is_past(wall)))
    }

    /// Deletes what is in a range and has a version up to `not_after`; how many, and the version of the last. O(range), but where it reaches into the default
    /// collection, which is in no order, O(records).
    ///
    /// # Errors
    /// As [`Hash::delete`]; some may be deleted then.
    pub(crate) fn delete_range(
        &self,
        from: &Bound<Key>,
        to: Bound<Key>,
        not_after: u64,
        wall: Wall,
    ) -> Result<(u64, u64), Error> {
        let (mut from, mut to) = (from.clone(), before_engine_keys(to));
        let (mut deleted, mut version) = (0, 0);
        if is_empty_range(&from, &to) {
            return Ok((0, 0));
        }
        if !is_above_unordered(&from) {
            return self.delete_range_of_all((from.as_ref(), to.as_ref()), not_after, wall);
        }
        loop {
            let taken = self.orders.keys(&from, &to, false, TAKEN_MAX);
            let is_last = taken.len() < TAKEN_MAX;
            for (key, _) in taken {
                if let Some(done) = self.delete_if_not_after(&key, not_after, wall)? {
                    (deleted, version) = (deleted + 1, done);
                }
                after(&mut from, &mut to, false, &key);
            }
            if is_last {
                return Ok((deleted, version));
            }
        }
    }

    /// As [`Hash::delete_range`], by a look at every key. One that moves meanwhile, as the table grows, stays in its share.
    fn delete_range_of_all(
        &self,
        range: (Bound<&Key>, Bound<&Key>),
        not_after: u64,
        wall: Wall,
    ) -> Result<(u64, u64), Error> {
        let bits = self.table.bits();
        let (mut deleted, mut version) = (0, 0);
        for share in 0..1 << bits {
            let (keys, damaged) = {
                let _inside = self.epochs.enter();
                self.keys_of_share(share, bits)?
            };
            damaged.into_iter().next().map_or(Ok(()), Err)?;
            let keys = keys.iter().filter_map(|key| Key::from_encoded(key));
            for key in keys.filter(|key| range.contains(key)) {
                if let Some(done) = self.delete_if_not_after(&key, not_after, wall)? {
                    (deleted, version) = (deleted + 1, done);
                }
            }
        }
        Ok((deleted, version))
    }

    /// Deletes a key unless its version is later; the version of the delete.
    fn delete_if_not_after(&self, key: &Key, not_after: u64, wall: Wall) -> Result<Option<u64>, Error> {
        while let Some(record) = self.get_meta(key, wall)?.filter(|record| record.version <= not_after) {
            if let Written::Done { version, .. } = self.delete(key, Expect::Version(record.version), wall)? {
                return Ok(Some(version));
            }
        }
        Ok(None)
    }
}
