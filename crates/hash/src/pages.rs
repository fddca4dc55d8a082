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

/// Keys in the order that are not there, or have expired, which a page passes over. With more it
/// ends, and says where the next one begins.
const PASSED_MAX: usize = 4096;

/// Records that are looked up together, their cache misses with one another: 50 of 128 B from a
/// table of a million take 43 us one by one.
const WINDOW: usize = 32;

/// How the records of a page are read.
#[derive(Clone, Copy)]
struct View {
    keys_only: bool,
    /// That a key is in an order does not mean that it is there.
    unsure: bool,
    /// What a snapshot with this version sees.
    version: Option<u64>,
    wall: Wall,
}

/// A page that is being filled.
struct Filling<'a> {
    request: &'a PageRequest,
    items: Vec<Item>,
    bytes: usize,
    /// The last key looked at, if there was nothing: else it is the last item's.
    gone: Option<Key>,
}

/// Items, and where the next page begins.
pub(crate) type Page = (Vec<Item>, Option<Bound<Key>>);

/// What is left of a range behind its last key taken.
fn after(from: &mut Bound<Key>, to: &mut Bound<Key>, reverse: bool, last: &Key) {
    *(if reverse { to } else { from }) = Bound::Excluded(last.clone());
}

impl Filling<'_> {
    fn items_max(&self) -> usize {
        (self.request.items_max.max(1) as usize).min(ITEMS_MAX)
    }

    fn is_full(&self) -> bool {
        self.items.len() >= self.items_max() || self.bytes >= self.request.bytes_max as usize
    }

    fn add(&mut self, key: Key, record: Option<Record>) {
        self.bytes += key.encoded().len() + record.as_ref().map_or(0, |record| record.value.len() as usize);
        self.items.push(Item { key, record });
        self.gone = None;
    }

    fn last(&self) -> Option<&Key> {
        self.gone.as_ref().or(self.items.last().map(|item| &item.key))
    }
}

/// Whether no key of the default collection lies above this bound: those are in no order.
fn is_above_unordered(from: &Bound<Key>) -> bool {
    let first = Key::bound(CollectionId(1), b"");
    matches!(from, Bound::Included(key) | Bound::Excluded(key) if *key >= first)
}

impl<P: Pmem> Hash<P> {
    /// One page: of a snapshot, or each record as it is when it is read. Of a single key also in
    /// the default collection.
    ///
    /// # Errors
    /// The range reaches into the default collection, which is in no order; there is no such
    /// snapshot; a record is damaged.
    pub(crate) fn page(&self, request: &PageRequest, wall: Wall) -> Result<Page, Error> {
        let version = request.at.map(|id| self.snapshots.version_of(id)).transpose()?;
        let page = match (&request.from, &request.to) {
            (Bound::Included(key), Bound::Included(last)) if key == last => {
                let view = View { keys_only: request.keys_only, unsure: true, version, wall };
                let record = self.record(key, 0, view)?;
                (record.map(|record| Item { key: key.clone(), record }).into_iter().collect(), None)
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
        let mut filling = Filling { request, items: Vec::new(), bytes: 0, gone: None };
        let mut looked_at = 0;
        loop {
            let taken_max = (filling.items_max() - filling.items.len()).min(TAKEN_MAX);
            // Asked before the keys are taken: a key that is no ghost then was there when it was
            // taken.
            let unsure = version.is_some() || self.snapshots.has_ghosts();
            let taken = self.orders.keys(&from, &to, request.reverse, taken_max);
            let is_last = taken.len() < taken_max;
            looked_at += taken.len();
            self.fill(&mut filling, taken, View { keys_only: request.keys_only, unsure, version, wall })?;
            if let Some(last) = filling.last() {
                after(&mut from, &mut to, request.reverse, last);
            }
            let has_passed_many = looked_at.saturating_sub(filling.items.len()) >= PASSED_MAX;
            let is_full = filling.is_full() || (has_passed_many && !is_last);
            if is_full || is_last {
                // Full at the very last key: the next page is empty.
                let next = if request.reverse { to } else { from };
                return Ok((filling.items, is_full.then_some(next)));
            }
        }
    }

    /// Adds the records of these keys, until the page is full.
    fn fill(&self, filling: &mut Filling<'_>, taken: Vec<Listed>, view: View) -> Result<(), Error> {
        filling.items.reserve_exact(taken.len());
        let mut taken = taken.into_iter();
        while taken.len() > 0 && !filling.is_full() {
            match (view.keys_only, view.version) {
                (false, None) => self.fill_by_hash(filling, &mut taken, view.wall)?,
                _ => self.fill_singly(filling, &mut taken, view)?,
            }
        }
        Ok(())
    }

    /// Adds the latest records of a window of keys. A reader stays in its epoch for all of them.
    fn fill_by_hash(
        &self,
        filling: &mut Filling<'_>,
        taken: &mut std::vec::IntoIter<Listed>,
        wall: Wall,
    ) -> Result<(), Error> {
        let window = taken.as_slice().iter().take(WINDOW);
        let hashes = self.prefetch(window.map(|(key, _)| key.encoded()));
        let _inside = self.epochs.enter();
        for (hash, (key, _)) in hashes.into_iter().zip(taken) {
            match self.get_inside(hash, key.encoded(), wall)? {
                Some(record) => filling.add(key, Some(record)),
                None => filling.gone = Some(key),
            }
            if filling.is_full() {
                break;
            }
        }
        Ok(())
    }

    fn fill_singly(
        &self,
        filling: &mut Filling<'_>,
        taken: &mut std::vec::IntoIter<Listed>,
        view: View,
    ) -> Result<(), Error> {
        if !view.keys_only {
            self.prefetch(taken.as_slice().iter().take(WINDOW).map(|(key, _)| key.encoded()));
        }
        for (key, expiry) in taken.take(WINDOW) {
            match self.record(&key, expiry, view)? {
                Some(record) => filling.add(key, record),
                None => filling.gone = Some(key),
            }
            if filling.is_full() {
                break;
            }
        }
        Ok(())
    }

    /// What an item says of the record of a key besides its key; `None`: it is gone.
    fn record(&self, key: &Key, expiry: u64, view: View) -> Result<Option<Option<Record>>, Error> {
        let record = match (view.keys_only, view.version) {
            (true, None) if !view.unsure => return Ok((!Expiry(expiry).is_past(view.wall)).then_some(None)),
            (true, None) => self.get_meta(key, view.wall)?,
            (false, None) => self.get(key, view.wall)?,
            (_, Some(version)) => self.get_at(key, version, view.keys_only, view.wall)?,
        };
        Ok(record.map(|record| (!view.keys_only).then_some(record)))
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

    /// Deletes what is in a range and has a version up to `not_after`; how many, and the version of
    /// the last. O(range), but where it reaches into the default collection, which is in no order,
    /// O(records).
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
        if is_empty_range(&from, &to) {
            return Ok((0, 0));
        }
        let mut done = Deleted::default();
        if !is_above_unordered(&from) {
            return self.delete_range_of_all((from.as_ref(), to.as_ref()), not_after, wall);
        }
        loop {
            let taken = self.orders.keys(&from, &to, false, TAKEN_MAX);
            let is_last = taken.len() < TAKEN_MAX;
            for (key, _) in taken {
                done.add(self.delete_if_not_after(&key, not_after, wall))?;
                after(&mut from, &mut to, false, &key);
            }
            if is_last {
                return done.result();
            }
        }
    }

    /// As [`Hash::delete_range`], by a look at every key. One that moves meanwhile, as the table
    /// grows, stays in its share.
    fn delete_range_of_all(
        &self,
        range: (Bound<&Key>, Bound<&Key>),
        not_after: u64,
        wall: Wall,
    ) -> Result<(u64, u64), Error> {
        let bits = self.table.bits();
        let mut done = Deleted::default();
        for share in 0..1 << bits {
            let (keys, damaged) = {
                let _inside = self.epochs.enter();
                self.keys_of_share(share, bits)?
            };
            damaged.into_iter().try_for_each(|error| done.add(Err(error)))?;
            let keys = keys.iter().filter_map(|key| Key::from_encoded(key));
            for key in keys.filter(|key| range.contains(key)) {
                done.add(self.delete_if_not_after(&key, not_after, wall))?;
            }
        }
        done.result()
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

/// What a delete of a range has done. Damage of one record is no reason to leave the others.
#[derive(Debug, Default)]
struct Deleted {
    records: u64,
    version: u64,
    damage: Option<Error>,
}

impl Deleted {
    fn add(&mut self, deleted: Result<Option<u64>, Error>) -> Result<(), Error> {
        match deleted {
            Ok(Some(version)) => (self.records, self.version) = (self.records + 1, version),
            Ok(None) => {}
            Err(error @ Error::Corrupt(_)) => drop(self.damage.get_or_insert(error)),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn result(self) -> Result<(u64, u64), Error> {
        self.damage.map_or(Ok((self.records, self.version)), Err)
    }
}

#[cfg(test)]
mod tests {
    use stratakv_pmem::{MapOptions, Mapping};

    use super::*;
    use crate::HashOptions;

    const NOW: Wall = Wall(1000);
    const VALUE_BYTES: usize = 50;

    fn key(number: usize) -> Key {
        Key::new(CollectionId(3), format!("{number:04}").as_bytes()).unwrap()
    }

    /// 700 keys, of which some windows hold none that is still there.
    fn filled() -> (Hash<Mapping>, Vec<Key>) {
        let pmem = Mapping::anonymous(1 << 20, MapOptions::default()).unwrap();
        let hash = Hash::create(pmem, HashOptions { segment_bytes: 16 << 10, ..HashOptions::default() }).unwrap();
        let is_past = |number: &usize| number.is_multiple_of(3) || (40..120).contains(number) || *number >= 600;
        for number in 0..700 {
            let expiry = Expiry(if is_past(&number) { NOW.0 } else { 0 });
            hash.put(&key(number), &[number as u8; VALUE_BYTES], (0, expiry), Expect::Any, NOW).unwrap();
        }
        (hash, (0..700).filter(|number| !is_past(number)).map(key).collect())
    }

    /// All that is there, in pages.
    fn paged(hash: &Hash<Mapping>, mut request: PageRequest) -> Vec<Key> {
        let mut keys = Vec::new();
        for _ in 0..1000 {
            let (items, next) = hash.page(&request, NOW).unwrap();
            let bytes = |item: &Item| item.key.encoded().len() + item.record.as_ref().map_or(0, |_| VALUE_BYTES);
            let before_last: usize = items.iter().rev().skip(1).map(bytes).sum();
            assert!(items.len() <= request.items_max as usize && before_last < request.bytes_max as usize);
            for item in &items {
                let number: usize = std::str::from_utf8(item.key.user()).unwrap().parse().unwrap();
                let value = item.record.as_ref().map(|record| record.value.to_bytes());
                assert!(value.is_none_or(|value| value[..] == [number as u8; VALUE_BYTES]));
            }
            keys.extend(items.into_iter().map(|item| item.key));
            match next {
                None => return keys,
                Some(next) if request.reverse => request.to = next,
                Some(next) => request.from = next,
            }
        }
        panic!("pages without end");
    }

    #[test]
    fn pages_of_every_length_hold_each_key_once() {
        let (hash, expected) = filled();
        let (from, to) = (Key::bound(CollectionId(3), b""), Key::bound(CollectionId(4), b""));
        for (items_max, bytes_max) in [(1, 1 << 20), (31, 1 << 20), (33, 1 << 20), (999, 1 << 20), (999, 1), (40, 700)]
        {
            for (reverse, keys_only) in [(false, false), (false, true), (true, false), (true, true)] {
                let (from, to) = (Bound::Included(from.clone()), Bound::Excluded(to.clone()));
                let mut keys =
                    paged(&hash, PageRequest { from, to, reverse, keys_only, items_max, bytes_max, at: None });
                if reverse {
                    keys.reverse();
                }
                assert_eq!(keys, expected, "{items_max} items, {bytes_max} B, {reverse} {keys_only}");
            }
        }
    }

    /// Keys that an order has for a snapshot only, or that have expired, were passed in one call,
    /// any number of them.
    #[test]
    fn a_page_passes_a_bounded_number_of_keys_that_are_not_there() {
        let pmem = Mapping::anonymous(4 << 20, MapOptions::default()).unwrap();
        let hash = Hash::create(pmem, HashOptions { segment_bytes: 16 << 10, ..HashOptions::default() }).unwrap();
        const GONE: usize = 9000;
        let name = |number: usize| Key::new(CollectionId(3), format!("{number:05}").as_bytes()).unwrap();
        for number in 0..=GONE {
            let expiry = Expiry(if number < GONE { NOW.0 } else { 0 });
            hash.put(&name(number), b"v", (0, expiry), Expect::Any, Wall(1)).unwrap();
        }
        for (reverse, keys_only) in [(false, false), (false, true), (true, true)] {
            let from = Bound::Included(Key::bound(CollectionId(3), b""));
            let to = Bound::Excluded(Key::bound(CollectionId(4), b""));
            let (items_max, bytes_max, at) = (10, 1 << 20, None);
            let mut request = PageRequest { from, to, reverse, keys_only, items_max, bytes_max, at };
            let (mut pages, mut found) = (0, Vec::new());
            loop {
                let (items, next) = hash.page(&request, NOW).unwrap();
                pages += 1;
                found.extend(items.into_iter().map(|item| item.key));
                match next {
                    None => break,
                    Some(next) if reverse => request.to = next,
                    Some(next) => request.from = next,
                }
            }
            assert_eq!((found, pages), (vec![name(GONE)], 3), "{reverse} {keys_only}");
        }
    }
}
