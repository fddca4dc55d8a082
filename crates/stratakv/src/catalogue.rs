//! Collections by name: which number a name stands for, in a collection of the store's own.
//!
//! | key | value |
//! |---|---|
//! | `next` | the last number given out, in decimal digits |
//! | `name/` and the name | what is known of it: see below |
//! | `expiring/` and a number, 8 hex digits | the name of one that expires, or did since opening |
//! | `dropped/` and a number, 8 hex digits | the name it had |
//!
//! The value of `name/` begins with the collection's number, in decimal digits. A space and the
//! kind (`keyvalue`, `list`) follow unless it is `keyvalue` and never expires. If it expires, a
//! space and the second since 1970 follow, with three decimals where it is no whole second. A
//! collection in an order of the user's has all of these (`0` stands for never), then a space and
//! the order's name.
//!
//! A number is drawn from `next` by an increment, so no two names get one; one drawn for nothing (a
//! crash, a race lost) is never used. Numbers are not used again: a handle of a dropped collection
//! never meets a later one. The catalogue is written at the highest level that the medium has,
//! whatever the store's is. Where a crash may still leave an older catalogue beside newer records
//! (a region at `process_crash`), a number that is named anywhere, or has records, is passed over.
//! Dropping writes `dropped/` first, then removes the name and the keys; what was on its way
//! meanwhile goes a while later, or at the next opening (`dropped.rs`). `expiring/` does the same
//! for a collection that expires (`expiring.rs`).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stratakv_base::{CollectionId, Expiry, Key};
use stratakv_engine::{Expect, Reply, Unmet, Update};

use crate::collection::Collection;
use crate::error::Error;
use crate::expiring::EXPIRING;
use crate::kind::{Kind, NUMBERS_END, Named};
use crate::order::{InOrder, OrderError};
use crate::put::PutOutcome;
use crate::scan::ScanOptions;
use crate::store::{Store, unexpected_reply};

/// Where names are kept. The one above is for engines, the one below for nodes of structures.
pub(crate) const CATALOGUE: CollectionId = CollectionId(0xFFFF_FFFE);
/// Keys that are not of users begin here: nodes of structures, the catalogue's, those of engines.
pub(crate) fn internal_keys() -> Key {
    Key::bound(CollectionId::NODES, b"")
}

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 255;

const NEXT: &[u8] = b"next";
const NAME: &[u8] = b"name/";
const DROPPED: &[u8] = b"dropped/";

/// Names already looked up.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<All>);

/// What a name stands for.
#[derive(Clone, Debug)]
struct Known {
    id: CollectionId,
    kind: Kind,
    order: Option<Arc<InOrder>>,
}

#[derive(Debug, Default)]
struct All {
    all: HashMap<String, Known>,
    /// Records of the catalogue, unless it has changed since they were counted.
    records: Option<u64>,
    /// How many names were forgotten: what was read of the catalogue before that may not hold any
    /// more.
    forgotten: u64,
    /// The highest number that the catalogue names anywhere, as it was when the first one was
    /// drawn.
    highest: Option<u64>,
}

impl Names {
    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a name, and since when.
    fn get(&self, name: &str) -> (Option<Known>, u64) {
        let known = self.lock();
        (known.all.get(name).cloned(), known.forgotten)
    }

    /// Learns what a name stands for, unless one was forgotten meanwhile.
    fn set(&self, name: &str, is: Known, since: u64) {
        let mut known = self.lock();
        if known.forgotten == since {
            known.all.insert(name.to_owned(), is);
        }
        known.records = None;
    }

    /// The catalogue has changed: its records are counted when next somebody asks.
    pub(crate) fn recount(&self) {
        self.lock().records = None;
    }

    pub(crate) fn forget(&self, name: &str) {
        let mut known = self.lock();
        known.all.remove(name);
        known.records = None;
        known.forgotten += 1;
    }
}

impl Store {
    /// The key space of that name, in the order it was made in; made, in the order of its keys'
    /// bytes, if there is none. A name has 1 to 255 bytes.
    ///
    /// # Errors
    /// A bad name; [`Error::OtherKind`] if it is a list; [`OrderError::Unknown`] and
    /// [`OrderError::Changed`]; as [`Collection::put`].
    pub fn collection(&self, name: &str) -> Result<Collection, Error> {
        self.made(name, Kind::KeyValue, None)
    }

    /// The key space of that name in that order, which is built in ([`Order`](crate::Order)) or was
    /// registered ([`Options::order`](crate::Options::order)); made if there is none.
    ///
    /// ```
    /// # fn main() -> Result<(), stratakv::Error> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("data");
    /// let latest_first = stratakv::Order::new("latest-first", |key| {
    ///     // A name, then the second at which it was seen, as 4 bytes.
    ///     // The latest comes first within each name.
    ///     let (name, second) = key.split_at(key.len().saturating_sub(4));
    ///     let later: Vec<u8> = second.iter().map(|byte| !byte).collect();
    ///     [name, &[0], &later].concat()
    /// });
    /// let store = stratakv::Options::new().order(latest_first).open(&path)?;
    /// let seen = store.collection_in_order("seen", "latest-first")?;
    /// let at = |name: &str, second: u32| [name.as_bytes(), &second.to_be_bytes()].concat();
    /// for (name, second) in [("ada", 7), ("bob", 9), ("ada", 8)] {
    ///     seen.put(&at(name, second), b"")?;
    /// }
    /// let of_ada = seen.scan(stratakv::ScanOptions::sort_prefix(b"ada\0"));
    /// let keys: Result<Vec<_>, _> = of_ada.map(|item| item.map(|(key, _)| key)).collect();
    /// assert_eq!(keys?, [at("ada", 8), at("ada", 7)]);
    /// # store.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Store::collection`]; [`OrderError::Other`].
    pub fn collection_in_order(&self, name: &str, order: &str) -> Result<Collection, Error> {
        self.made(name, Kind::KeyValue, Some(order))
    }

    /// The key space of that name, if there is one, in the order it was made in.
    ///
    /// # Errors
    /// As [`Store::collection`].
    pub fn existing_collection(&self, name: &str) -> Result<Option<Collection>, Error> {
        self.existing(name, Kind::KeyValue, None)
    }

    /// The key space of that name, if there is one, without the function of its order: to look at
    /// one whose function is not there, or to copy one whose function has changed. It can be
    /// scanned (as a whole, or by [`ScanOptions::sort_prefix`]), counted and emptied; what takes a
    /// key is refused with [`OrderError::Unknown`]. One in the order of bytes is as ever.
    ///
    /// # Errors
    /// A bad name; [`Error::OtherKind`] if it is a list; as [`Collection::get`].
    pub fn stored_collection(&self, name: &str) -> Result<Option<Collection>, Error> {
        Ok(self.found(name, Kind::KeyValue)?.map(|collection| collection.as_stored()))
    }

    /// What the collection of that name holds; `None` if there is none.
    ///
    /// # Errors
    /// A bad name; as [`Collection::get`].
    pub fn kind_of(&self, name: &str) -> Result<Option<Kind>, Error> {
        Ok(self.look_up(name)?.map(|known| known.kind))
    }

    /// The records of a collection of that kind, in that order if one is asked for; made if there
    /// is none.
    pub(crate) fn made(&self, name: &str, kind: Kind, order: Option<&str>) -> Result<Collection, Error> {
        if let Some(found) = self.existing(name, kind, order)? {
            return Ok(found);
        }
        let in_order = order.map(|order| self.inner().orders.of(name, order));
        in_order.as_ref().map_or(Ok(()), |order| order.check_known())?;
        let (_, since) = self.inner().names.get(name);
        let named = Named { id: self.draw_number()?, kind, expiry: Expiry::NEVER, order: order.map(str::to_owned) };
        match self.catalogue().put_if(name_key(name), named.encode().as_bytes(), Expect::Absent)? {
            PutOutcome::Written { .. } => {
                let known = self.known(&named, in_order);
                self.inner().names.set(name, known.clone(), since);
                Ok(self.opened(known))
            }
            // Somebody else was faster.
            PutOutcome::Unmet(_) => self.existing(name, kind, order)?.ok_or_else(unexpected_reply),
        }
    }

    /// The records of the collection of that name, which must be of that kind, in that order if one
    /// is asked for; `None` if there is none.
    pub(crate) fn existing(&self, name: &str, kind: Kind, order: Option<&str>) -> Result<Option<Collection>, Error> {
        let Some(found) = self.found(name, kind)? else { return Ok(None) };
        if let Some(asked) = order.filter(|asked| found.order() != Some(asked)) {
            let (collection, is) = (name.to_owned(), found.order().map(str::to_owned));
            return Err(OrderError::Other { collection, is, asked: asked.to_owned() }.into());
        }
        found.check_order()?;
        Ok(Some(found))
    }

    /// The same, whatever its order is.
    fn found(&self, name: &str, kind: Kind) -> Result<Option<Collection>, Error> {
        match self.look_up(name)? {
            Some(Known { kind: is, .. }) if is != kind => {
                Err(Error::OtherKind { name: name.to_owned(), is, asked: kind })
            }
            found => Ok(found.map(|known| self.opened(known))),
        }
    }

    fn opened(&self, known: Known) -> Collection {
        Collection::new(Arc::clone(self.inner()), known.id, known.order)
    }

    fn known(&self, named: &Named, order: Option<Arc<InOrder>>) -> Known {
        if order.is_some() {
            self.inner().orders.meet(named.id);
        }
        Known { id: named.id, kind: named.kind, order }
    }

    /// What a name stands for.
    fn look_up(&self, name: &str) -> Result<Option<Known>, Error> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let len = name.len();
            return Err(Error::Option(format!(
                "a collection's name of {len} bytes: it has 1 to {NAME_BYTES_MAX} (the default collection has no name)"
            )));
        }
        self.inner().has_names()?;
        self.keep_house();
        let (known, since) = self.inner().names.get(name);
        if let Some(known) = known {
            if self.inner().is_expired(known.id) {
                self.try_to_drop(known.id, name);
                return Ok(None);
            }
            return Ok(Some(known));
        }
        let Some((named, _)) = self.named(name)? else { return Ok(None) };
        if named.expiry != Expiry::NEVER {
            self.inner().expiring.set(named.id, named.expiry, name);
        }
        if self.inner().is_expired(named.id) {
            self.try_to_drop(named.id, name);
            return Ok(None);
        }
        let order = named.order.as_deref().map(|order| self.inner().orders.of(name, order));
        let known = self.known(&named, order);
        self.inner().names.set(name, known.clone(), since);
        Ok(Some(known))
    }

    /// Removes some of what has expired or was dropped. A store that is full, or takes no more
    /// writes, is read all the same: what cannot be removed now is removed later, or at the next
    /// opening.
    fn keep_house(&self) {
        if let Err(error) = self.drop_expired().and_then(|()| self.reclaim_some()) {
            tracing::debug!(%error, "what expired or dropped collections left was not removed");
        }
    }

    /// Removes a collection that has expired: whether or not it can be, nobody finds it.
    fn try_to_drop(&self, id: CollectionId, name: &str) {
        if let Err(error) = self.drop_if_expired(id, name) {
            tracing::debug!(%error, name, "a collection that has expired was not removed");
        }
    }

    /// What the catalogue says of a name, and the version of that.
    pub(crate) fn named(&self, name: &str) -> Result<Option<(Named, u64)>, Error> {
        let Some(record) = self.catalogue().get(name_key(name))? else { return Ok(None) };
        Ok(Some((Named::decode(&record.to_bytes(), name)?, record.version)))
    }

    /// The names of all collections but the default one, which has none, in order.
    ///
    /// # Errors
    /// As [`Collection::get`].
    pub fn collections(&self) -> Result<Vec<String>, Error> {
        self.inner().check_not_forked()?;
        if self.inner().has_names().is_err() {
            return Ok(Vec::new());
        }
        self.keep_house();
        let names = self.catalogue().scan(ScanOptions::prefix(NAME).keys_only());
        let name = |key: &[u8]| String::from_utf8_lossy(key.get(NAME.len()..).unwrap_or_default()).into_owned();
        let all = names.map(|item| Ok(name(&item?.0))).collect::<Result<Vec<_>, Error>>()?;
        // Of a store opened for reading they are still there.
        let expired = self.inner().expiring.past(self.inner().wall(), usize::MAX);
        Ok(all.into_iter().filter(|name| !expired.iter().any(|(_, gone)| gone == name)).collect())
    }

    /// Removes a collection and every key in it; whether there was one. Durable when it returns.
    /// Through handles of it that are still around reads find nothing, and writes are answered
    /// [`EngineError::Expired`](stratakv_engine::Error::Expired), as those of a collection that has
    /// expired.
    ///
    /// # Errors
    /// A bad name; as [`Collection::delete_range`]. What was not removed is removed at the next
    /// opening.
    pub fn drop_collection(&self, name: &str) -> Result<bool, Error> {
        let Some(Known { id, .. }) = self.look_up(name)? else { return Ok(false) };
        self.catalogue().put(dropped_key(id), name.as_bytes())?;
        self.unname(name, |named| named.id == id)?;
        self.note_gone(id, dropped_key(id));
        self.empty(id)?;
        Ok(true)
    }

    /// Records of the catalogue: counted when it has changed.
    pub(crate) fn catalogue_records(&self) -> u64 {
        if let Some(records) = self.inner().names.lock().records {
            return records;
        }
        let since = self.inner().names.lock().forgotten;
        // What cannot be read cannot be counted.
        let records = self.catalogue().len().unwrap_or(0);
        let mut known = self.inner().names.lock();
        if known.forgotten == since {
            known.records = Some(records);
        }
        records
    }

    /// Finishes what drops before the last end left.
    pub(crate) fn finish_drops(&self) -> Result<(), Error> {
        let mut emptied = Vec::new();
        for (key, record) in self.catalogue().prefix(DROPPED).collect::<Result<Vec<_>, _>>()? {
            let Some(id) = numbered(DROPPED, &key) else { continue };
            self.unname(&String::from_utf8_lossy(&record.to_bytes()), |named| named.id == id)?;
            self.empty(id)?;
            emptied.push(key);
        }
        self.forget_emptied(&emptied)
    }

    /// Collections in an order of the user's: all that have a name, and those that had one while
    /// the store was open.
    pub(crate) fn collections_in_order(&self) -> Result<HashSet<CollectionId>, Error> {
        let mut all = self.inner().orders.met();
        for item in self.catalogue().prefix(NAME) {
            let (key, record) = item?;
            let name = String::from_utf8_lossy(key.get(NAME.len()..).unwrap_or_default());
            // One that does not decode cannot be opened either.
            let named = Named::decode(&record.to_bytes(), &name).ok();
            all.extend(named.filter(|named| named.order.is_some()).map(|named| named.id));
        }
        Ok(all)
    }

    /// Removes a name, if what it stands for is that; whether it did.
    pub(crate) fn unname(&self, name: &str, is_that: impl Fn(&Named) -> bool) -> Result<bool, Error> {
        self.inner().names.forget(name);
        let still = |record: Option<&crate::Record>| {
            record.is_some_and(|record| Named::decode(&record.to_bytes(), name).is_ok_and(|named| is_that(&named)))
        };
        let updated = self.catalogue().fetch_update(name_key(name), |record| match still(record) {
            true => crate::Next::Delete,
            false => crate::Next::Keep,
        })?;
        // Somebody may have looked it up just before.
        self.inner().names.forget(name);
        Ok(updated.version.is_some())
    }

    /// A number that nobody has, and that has no records.
    fn draw_number(&self) -> Result<CollectionId, Error> {
        let highest = self.highest_number()?;
        let mut by = 1;
        loop {
            match self.catalogue().update(NEXT, Update::Increment(by))? {
                Reply::Number { number, .. } if number <= highest => by = highest - number + 1,
                Reply::Number { number, .. } if (1..NUMBERS_END).contains(&number) => {
                    by = 1;
                    let id = CollectionId(number as u32);
                    if self.is_without_records(id)? {
                        return Ok(id);
                    }
                    tracing::warn!(
                        number,
                        "a crash left records of a collection without its name: their number is passed over"
                    );
                }
                Reply::Number { .. } => {
                    return Err(Error::Option(
                        "no numbers for collections are left: dump the store and load it".into(),
                    ));
                }
                Reply::Unmet(Unmet::Absent) => {
                    self.catalogue().put_if(NEXT, b"0", Expect::Absent)?;
                }
                _ => return Err(unexpected_reply()),
            }
        }
    }

    /// The highest number that a name, a drop or an expiry of the catalogue has: `next` may be
    /// older than they are.
    fn highest_number(&self) -> Result<u64, Error> {
        if let Some(highest) = self.inner().names.lock().highest {
            return Ok(highest);
        }
        let mut highest = 0;
        for item in self.catalogue().scan(ScanOptions::all()) {
            let (key, record) = item?;
            let numbered = [DROPPED, EXPIRING].into_iter().find_map(|front| numbered(front, &key));
            // One that does not decode has a number that is not known; records under it are seen
            // when it is drawn.
            let named =
                || Named::decode(&record.to_bytes(), "").ok().filter(|_| key.starts_with(NAME)).map(|named| named.id);
            highest = highest.max(numbered.or_else(named).map_or(0, |id| u64::from(id.0)));
        }
        self.inner().names.lock().highest = Some(highest);
        Ok(highest)
    }

    fn is_without_records(&self, id: CollectionId) -> Result<bool, Error> {
        let mut records = self.records_of(id).scan(ScanOptions::all().keys_only());
        records.next().transpose().map(|first| first.is_none())
    }

    pub(crate) fn records_of(&self, id: CollectionId) -> Collection {
        Collection::new(Arc::clone(self.inner()), id, None)
    }

    pub(crate) fn catalogue(&self) -> Collection {
        self.records_of(CATALOGUE)
    }
}

fn key(front: &[u8], back: &[u8]) -> Vec<u8> {
    [front, back].concat()
}

pub(crate) fn name_key(name: &str) -> Vec<u8> {
    key(NAME, name.as_bytes())
}

fn dropped_key(id: CollectionId) -> Vec<u8> {
    numbered_key(DROPPED, id)
}

/// The key of a number's record in a part of the catalogue.
pub(crate) fn numbered_key(front: &[u8], id: CollectionId) -> Vec<u8> {
    key(front, format!("{:08x}", id.0).as_bytes())
}

/// Whose record in that part of the catalogue it is.
pub(crate) fn numbered(front: &[u8], key: &[u8]) -> Option<CollectionId> {
    let digits = std::str::from_utf8(key.strip_prefix(front)?).ok()?;
    u32::from_str_radix(digits, 16).ok().map(CollectionId)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A walk over all records asks for them after its cut: one dropped since then is among what it
    /// finds.
    #[test]
    fn collections_in_an_order_are_known_after_they_were_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let options = crate::Options::new().shards(1).memory_bytes(64 << 20).level(crate::Level::ProcessCrash);
        let store = options.open(directory.path().join("data")).unwrap();
        store.collection("plain").unwrap();
        let [kept, dropped] =
            ["kept", "dropped"].map(|name| store.collection_in_order(name, crate::Order::NUMERIC).unwrap().id());
        assert!(store.drop_collection("dropped").unwrap());
        assert_eq!(store.collections_in_order().unwrap(), HashSet::from([kept, dropped]));
        store.close().unwrap();
        let store = options.open(directory.path().join("data")).unwrap();
        assert_eq!(
            store.collections_in_order().unwrap(),
            HashSet::from([kept]),
            "those of earlier lives are in the catalogue"
        );
    }

    /// What a store can be of, at `process_crash`.
    pub(crate) fn kinds() -> Vec<(&'static str, crate::Options)> {
        let small = || crate::Options::new().memory_bytes(64 << 20).level(crate::Level::ProcessCrash);
        let region = |engine| small().engine(engine).region_bytes(32 << 20);
        vec![
            ("in_place", small().shards(2)),
            ("packed", small().shards(2).placement(crate::Placement::Packed)),
            ("hash", region(crate::Engine::Hash)),
            ("matrix", region(crate::Engine::Matrix).shards(2)),
        ]
    }

    /// A power cut at `process_crash` took what said which number a name had, and left the records:
    /// the next collection had that number, and showed them.
    #[test]
    fn no_collection_shows_the_records_of_another_one() {
        for (what, options) in kinds() {
            for names_are_lost in [true, false] {
                let directory = tempfile::tempdir().unwrap();
                let store = options.open(directory.path().join("data")).unwrap();
                let first = store.collection("first").unwrap();
                let precious: Vec<Vec<u8>> = (0..20).map(|number| format!("key-{number}").into_bytes()).collect();
                precious.iter().for_each(|key| _ = first.put(key, b"precious").unwrap());
                let empty = store.collection("empty").unwrap().id();
                // As an older state of the catalogue has it.
                store.catalogue().put(NEXT, b"0").unwrap();
                if names_are_lost {
                    store.catalogue().delete(name_key("first")).unwrap();
                }
                store.close().unwrap();
                let store = options.open(directory.path().join("data")).unwrap();
                let other = store.collection("other").unwrap();
                assert_eq!(other.scan(ScanOptions::all()).count(), 0, "{what}, {names_are_lost}: others' records");
                assert!(other.id() != first.id() && other.id() != empty, "{what}: a number with a name");
                let list = store.list("list").unwrap();
                assert!(list.is_empty().unwrap(), "{what}");
                if !names_are_lost {
                    assert_eq!(store.collection("first").unwrap().scan(ScanOptions::all()).count(), 20, "{what}");
                }
                store.close().unwrap();
            }
        }
    }

    /// Catalogue and records were flushed independently: a record could be durable under a number
    /// that was not.
    #[test]
    fn a_name_is_durable_before_it_is_used() {
        for (what, options) in kinds().into_iter().take(2) {
            let directory = tempfile::tempdir().unwrap();
            let store = options.open(directory.path().join("data")).unwrap();
            let level = |operation| match operation {
                stratakv_engine::Operation::Write { level, .. } => level,
                other => panic!("{other:?}"),
            };
            let catalogue = store.catalogue();
            let put = catalogue.put_operation(NEXT, b"7", &crate::PutOptions::default()).unwrap();
            assert_eq!(level(put), stratakv_base::Level::PowerLoss, "{what}");
            assert_eq!(level(catalogue.delete_operation(NEXT).unwrap()), stratakv_base::Level::PowerLoss, "{what}");
            let record = store.put_operation(b"key", b"v", &crate::PutOptions::default()).unwrap();
            assert_eq!(level(record), stratakv_base::Level::ProcessCrash, "{what}");
        }
    }
}
