//! [`List`]: elements in the order in which they were put.
//!
//! An element is a record whose key is its position ([`key`]): so order needs no pointers on the
//! medium, and a crash can break nothing. Whoever changes a list holds a lock of its own in memory
//! from looking at the ends to the answer of the write; writes carry conditions all the same, for
//! those who change its records by other ways. The lock is never held while somebody else's code
//! runs.

mod elements;
mod key;
mod lock;

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::{Expiry, Key};
use stratakv_engine::{Change, ChangeKind, Expect, Operation, PageRequest, Reply};

use crate::collection::{Collection, put_kind, written};
use crate::error::Error;
use crate::kind::Kind;
use crate::put::PutOutcome;
use crate::record::Record;
use crate::scan::ScanOptions;
use crate::store::{Store, unexpected_reply};

pub use elements::{Element, Elements};
pub(crate) use lock::ListLocks;

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its first element, or the place before it.
    Front,
    /// Its last element, or the place after it.
    Back,
}

/// Names an element as it was seen. Once that is erased or replaced, whatever is there then, the
/// position stands for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub(crate) key: Bytes,
    pub(crate) version: u64,
}

/// A list of values, in the order in which they were put ([`Store::list`]). Cloning is cheap. It
/// holds the store open.
///
/// Elements are values of up to 64 MiB. Each is a record with a key of 8 bytes, longer if it was
/// inserted between others. Changes of one list go one after the other, each until it is durable;
/// to put many, [`List::push_all`] them. Writes of one element are durable at the store's level,
/// those of several at power loss.
#[derive(Clone)]
pub struct List {
    records: Collection,
}

impl Store {
    /// The list of that name, made if there is none. A name has 1 to 255 bytes.
    ///
    /// ```
    /// # fn main() -> Result<(), stratakv::Error> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let store = stratakv::Store::open(directory.path().join("data"))?;
    /// let tasks = store.list("tasks")?;
    /// tasks.push_back(b"wash")?;
    /// tasks.push_all(stratakv::End::Back, &["dry", "iron"])?;
    /// assert_eq!(tasks.get(-1)?.unwrap(), "iron");
    /// assert_eq!(tasks.pop_front()?.unwrap(), "wash");
    /// let urgent = store.list("urgent")?;
    /// tasks.move_to(stratakv::End::Back, &urgent, stratakv::End::Front)?; // as one
    /// for element in urgent.iter() {
    ///     assert_eq!(element?.value, "iron");
    /// }
    /// # store.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// A bad name; [`Error::OtherKind`] if it is no list; as [`Collection::put`].
    pub fn list(&self, name: &str) -> Result<List, Error> {
        Ok(List { records: self.made(name, Kind::List, None)? })
    }

    /// The list of that name, if there is one.
    ///
    /// # Errors
    /// A bad name; [`Error::OtherKind`] if it is no list; as [`Collection::get`].
    pub fn existing_list(&self, name: &str) -> Result<Option<List>, Error> {
        Ok(self.existing(name, Kind::List, None)?.map(|records| List { records }))
    }
}

impl List {
    /// The records of its elements, by position: to copy a list as it is. Whoever writes here goes
    /// round the list's lock: conditions keep its elements whole, but [`List::push_back`] and
    /// others may have to try again, and a key that no list makes may leave no room beside it.
    pub fn records(&self) -> &Collection {
        &self.records
    }

    /// How many elements there are. Costs a look at each key in the index, 4,096 at a time; reads
    /// none.
    ///
    /// # Errors
    /// As [`Collection::len`].
    pub fn len(&self) -> Result<u64, Error> {
        self.records.len()
    }

    /// Whether there are none. Costs a look at one key.
    ///
    /// # Errors
    /// As [`Collection::len`].
    pub fn is_empty(&self) -> Result<bool, Error> {
        self.records.is_empty()
    }

    /// Puts an element behind the last one; its position. Costs a look at one key, and a put.
    ///
    /// # Errors
    /// As [`Collection::put`].
    pub fn push_back(&self, value: impl AsRef<[u8]>) -> Result<Position, Error> {
        self.push(End::Back, value)
    }

    /// Puts an element before the first one, as [`List::push_back`].
    ///
    /// # Errors
    /// As [`Collection::put`].
    pub fn push_front(&self, value: impl AsRef<[u8]>) -> Result<Position, Error> {
        self.push(End::Front, value)
    }

    /// Puts an element at an end, as [`List::push_back`].
    ///
    /// # Errors
    /// As [`Collection::put`].
    pub fn push(&self, end: End, value: impl AsRef<[u8]>) -> Result<Position, Error> {
        let value = value.as_ref();
        let _held = self.lock()?;
        loop {
            let last = self.end_key(end)?;
            let key = place(last.as_ref(), end)?;
            if let Some(position) = self.put_new(key, value)? {
                return Ok(position);
            }
        }
    }

    /// Puts elements at an end as one: all or none, crashes included. They come in the list in the
    /// order given, at the front too. At most 64 MiB in all.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn push_all<V: AsRef<[u8]>>(&self, end: End, values: &[V]) -> Result<(), Error> {
        if values.is_empty() {
            return Ok(());
        }
        let _held = self.lock()?;
        loop {
            let last = self.end_key(end)?;
            let keys = key::beyond(last.as_ref().map(Key::user), end == End::Back, values.len());
            let keys = keys.ok_or(NO_POSITION)?;
            let put = |(key, value): (Vec<u8>, &V)| {
                let kind = put_kind(Bytes::copy_from_slice(value.as_ref()), 0, Expiry::NEVER)?;
                Ok(Change { key: Key::new(self.records.id(), &key)?, expect: Expect::Absent, kind })
            };
            let changes = keys.into_iter().zip(values).map(put).collect::<Result<Vec<_>, Error>>()?;
            if let PutOutcome::Written { .. } = self.write(changes)? {
                return Ok(());
            }
        }
    }

    /// Takes the first element away; `None` if there is none. Costs a read and a delete.
    ///
    /// # Errors
    /// As [`Collection::get`] and [`Collection::delete`]. A damaged element stays where it is:
    /// [`List::erase`] it, or drop the list.
    pub fn pop_front(&self) -> Result<Option<Bytes>, Error> {
        self.pop(End::Front)
    }

    /// Takes the last element away, as [`List::pop_front`].
    ///
    /// # Errors
    /// As [`List::pop_front`].
    pub fn pop_back(&self) -> Result<Option<Bytes>, Error> {
        self.pop(End::Back)
    }

    /// Takes an element away from an end, as [`List::pop_front`].
    ///
    /// # Errors
    /// As [`List::pop_front`].
    pub fn pop(&self, end: End) -> Result<Option<Bytes>, Error> {
        Ok(self.pop_many(end, 1)?.pop())
    }

    /// Takes up to `count` elements away from an end as one: all or none, crashes included. The one
    /// next to that end comes first. They are in memory together.
    ///
    /// # Errors
    /// As [`List::pop_front`] and [`Store::write`].
    pub fn pop_many(&self, end: End, count: usize) -> Result<Vec<Bytes>, Error> {
        let _held = self.lock()?;
        loop {
            let items = self.ends(end, count)?;
            if items.is_empty() {
                return Ok(Vec::new());
            }
            let changes = items.iter().map(|(key, record)| erasure(key.clone(), record.version)).collect();
            if let PutOutcome::Written { .. } = self.write(changes)? {
                return Ok(items.into_iter().map(|(_, record)| record.to_bytes()).collect());
            }
        }
    }

    /// Takes an element away from an end of this list and puts it at an end of another, or of the
    /// same one, as one: at no time, crashes included, is it in both or in neither. The element;
    /// `None` if there is none. Costs a read and a batch of two changes.
    ///
    /// # Errors
    /// [`Error::OtherStore`]; as [`List::pop_front`] and [`Store::write`].
    pub fn move_to(&self, from: End, to: &List, end: End) -> Result<Option<Bytes>, Error> {
        if !Arc::ptr_eq(self.records.inner(), to.records.inner()) {
            return Err(Error::OtherStore("the other list"));
        }
        self.records.inner().check_not_forked()?;
        let _held = self.records.inner().list_locks.lock([self.records.id(), to.records.id()]);
        loop {
            let Some((key, record)) = self.ends(from, 1)?.pop() else { return Ok(None) };
            let value = record.to_bytes();
            let last = to.end_key(end)?;
            let new = Key::new(to.records.id(), &place(last.as_ref(), end)?)?;
            let put = Change { key: new, expect: Expect::Absent, kind: put_kind(value.clone(), 0, Expiry::NEVER)? };
            if let PutOutcome::Written { .. } = self.write(vec![erasure(key, record.version), put])? {
                return Ok(Some(value));
            }
        }
    }

    /// The element of that number: from 0 at the front, from -1 at the back. Costs a look at each
    /// key up to it, and a read.
    ///
    /// # Errors
    /// As [`Collection::get`].
    pub fn get(&self, index: i64) -> Result<Option<Bytes>, Error> {
        loop {
            let Some(key) = self.key_at(index)? else { return Ok(None) };
            // It may just have been erased: then another one has its number.
            if let Some(record) = self.records.get(key.user())? {
                return Ok(Some(record.to_bytes()));
            }
        }
    }

    /// The position of the element of that number, counted as in [`List::get`], at the same cost.
    ///
    /// # Errors
    /// As [`Collection::get`].
    pub fn position(&self, index: i64) -> Result<Option<Position>, Error> {
        loop {
            let Some(key) = self.key_at(index)? else { return Ok(None) };
            if let Some(record) = self.records.meta(key.user())? {
                let key = Bytes::copy_from_slice(key.user());
                return Ok(Some(Position { key, version: record.version }));
            }
        }
    }

    /// The element at a position, if it is still that one. Costs a read.
    ///
    /// # Errors
    /// As [`Collection::get`].
    pub fn at(&self, position: &Position) -> Result<Option<Bytes>, Error> {
        let record = self.records.get(&position.key)?.filter(|record| record.version == position.version);
        Ok(record.map(|record| record.to_bytes()))
    }

    /// Puts an element so that it has that number then: 0 for the first, -1 for the last. `None`,
    /// and nothing is done, if there are too few elements. Costs a look at each key up to it, and a
    /// put.
    ///
    /// # Errors
    /// As [`Collection::put`].
    pub fn insert_at(&self, index: i64, value: impl AsRef<[u8]>) -> Result<Option<Position>, Error> {
        let value = value.as_ref();
        let _held = self.lock()?;
        loop {
            let reverse = index < 0;
            let skip = if reverse { index.unsigned_abs() - 1 } else { index.unsigned_abs() };
            // The neighbour towards the end that is counted from.
            let near = match skip.checked_sub(1) {
                None => None,
                Some(skip) => match self.key_from(reverse, skip)? {
                    Some(key) => Some(key),
                    None => return Ok(None),
                },
            };
            let far = self.beside(near.as_ref(), reverse)?;
            let (lower, upper) = if reverse { (far, near) } else { (near, far) };
            let key = between(lower.as_ref(), upper.as_ref())?;
            if let Some(position) = self.put_new(key, value)? {
                return Ok(Some(position));
            }
        }
    }

    /// Puts an element right before another; its position, or `None`, and nothing is done, if the
    /// other is gone. Costs a look at one key, a look at one record, and a put.
    ///
    /// # Errors
    /// As [`Collection::put`].
    pub fn insert_before(&self, position: &Position, value: impl AsRef<[u8]>) -> Result<Option<Position>, Error> {
        self.insert_beside(position, true, value.as_ref())
    }

    /// Puts an element right after another, as [`List::insert_before`].
    ///
    /// # Errors
    /// As [`Collection::put`].
    pub fn insert_after(&self, position: &Position, value: impl AsRef<[u8]>) -> Result<Option<Position>, Error> {
        self.insert_beside(position, false, value.as_ref())
    }

    fn insert_beside(&self, position: &Position, before: bool, value: &[u8]) -> Result<Option<Position>, Error> {
        let here = Key::new(self.records.id(), &position.key)?;
        let _held = self.lock()?;
        loop {
            let record = self.records.meta(&position.key)?;
            if record.is_none_or(|record| record.version != position.version) {
                return Ok(None);
            }
            let neighbour = self.beside(Some(&here), before)?;
            let key = match before {
                true => between(neighbour.as_ref(), Some(&here))?,
                false => between(Some(&here), neighbour.as_ref())?,
            };
            if let Some(position) = self.put_new(key, value)? {
                return Ok(Some(position));
            }
        }
    }

    /// Takes the element at a position away; whether it was still there. Costs a delete.
    ///
    /// # Errors
    /// As [`Collection::delete`].
    pub fn erase(&self, position: &Position) -> Result<bool, Error> {
        let _held = self.lock()?;
        let change = erasure(Key::new(self.records.id(), &position.key)?, position.version);
        Ok(matches!(self.write(vec![change])?, PutOutcome::Written { .. }))
    }

    /// Puts another value in an element's place; its new position, which stands where the old one
    /// did, or `None`, and nothing is done, if the element is gone. Costs a put.
    ///
    /// # Errors
    /// As [`Collection::put`].
    pub fn replace(&self, position: &Position, value: impl AsRef<[u8]>) -> Result<Option<Position>, Error> {
        let _held = self.lock()?;
        let outcome = self.records.put_if(&position.key, value, Expect::Version(position.version))?;
        Ok(match outcome {
            PutOutcome::Written { version } => Some(Position { key: position.key.clone(), version }),
            PutOutcome::Unmet(_) => None,
        })
    }

    /// Its elements from the front, each with its position. No snapshot: an element is as it is
    /// when it is reached. Costs as a scan ([`Collection::scan`]).
    pub fn iter(&self) -> Elements {
        Elements::new(self.records.scan(ScanOptions::all()))
    }

    /// Its elements from the back, as [`List::iter`].
    pub fn iter_back(&self) -> Elements {
        Elements::new(self.records.scan(ScanOptions::all().reverse()))
    }

    fn lock(&self) -> Result<lock::ListGuards<'_>, Error> {
        self.records.inner().check_not_forked()?;
        Ok(self.records.inner().list_locks.lock([self.records.id()]))
    }

    /// Puts an element under a key that must be free; `None` if it is not.
    fn put_new(&self, key: Vec<u8>, value: &[u8]) -> Result<Option<Position>, Error> {
        Ok(match self.records.put_if(&key, value, Expect::Absent)? {
            PutOutcome::Written { version } => Some(Position { key: key.into(), version }),
            PutOutcome::Unmet(_) => None,
        })
    }

    fn write(&self, changes: Vec<Change>) -> Result<PutOutcome, Error> {
        let inner = self.records.inner();
        let level = if changes.len() == 1 { inner.level } else { inner.batch_level() };
        written(inner.execute(Operation::Write { changes, level }))
    }

    /// The key next to an end.
    pub(crate) fn end_key(&self, end: End) -> Result<Option<Key>, Error> {
        self.key_from(end == End::Back, 0)
    }

    /// The neighbour of a key; of none, the first or last one.
    fn beside(&self, key: Option<&Key>, reverse: bool) -> Result<Option<Key>, Error> {
        let mut request = self.request(reverse);
        if let Some(key) = key {
            *(if reverse { &mut request.to } else { &mut request.from }) = Bound::Excluded(key.clone());
        }
        self.records.key_of(request, 0)
    }

    fn key_at(&self, index: i64) -> Result<Option<Key>, Error> {
        match index < 0 {
            true => self.key_from(true, index.unsigned_abs() - 1),
            false => self.key_from(false, index.unsigned_abs()),
        }
    }

    /// The key after `skip` others.
    fn key_from(&self, reverse: bool, skip: u64) -> Result<Option<Key>, Error> {
        self.records.key_of(self.request(reverse), skip)
    }

    fn request(&self, reverse: bool) -> PageRequest {
        self.records.page_of_all(reverse)
    }

    /// Up to `count` elements from an end.
    fn ends(&self, end: End, count: usize) -> Result<Vec<(Key, Record)>, Error> {
        let reverse = end == End::Back;
        let mut request = PageRequest { keys_only: false, ..self.request(reverse) };
        let mut found = Vec::new();
        while found.len() < count {
            request.items_max = u32::try_from(count - found.len()).unwrap_or(u32::MAX).min(512);
            let (items, next) = match self.records.inner().execute(Operation::Page(request.clone().into())) {
                Reply::Page { items, next } => (items, next),
                Reply::Failed(error) => return Err(error.into()),
                _ => return Err(unexpected_reply()),
            };
            found.extend(items.into_iter().filter_map(|item| Some((item.key, item.record?.into()))));
            match next {
                Some(next) => *(if reverse { &mut request.to } else { &mut request.from }) = next,
                None => break,
            }
        }
        Ok(found)
    }
}

const NO_POSITION: Error = Error::NoPosition { why: "its end is full" };

/// A key beyond an end.
pub(crate) fn place(last: Option<&Key>, end: End) -> Result<Vec<u8>, Error> {
    match end {
        End::Back => key::between(last.map(Key::user), None),
        End::Front => key::between(None, last.map(Key::user)),
    }
    .ok_or(NO_POSITION)
}

fn between(lower: Option<&Key>, upper: Option<&Key>) -> Result<Vec<u8>, Error> {
    let key = key::between(lower.map(Key::user), upper.map(Key::user));
    key.ok_or(Error::NoPosition { why: "its neighbours have keys that no list makes, or its end is full" })
}

fn erasure(key: Key, version: u64) -> Change {
    Change { key, expect: Expect::Version(version), kind: ChangeKind::Delete }
}

impl std::fmt::Debug for List {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "List({:?})", self.records)
    }
}
