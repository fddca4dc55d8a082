//! [`Transaction`]: reads and writes of any keys, collections and lists that take effect as one, or
//! not at all.
//!
//! Optimistic: nothing is locked while somebody else's code runs. What is read is remembered with
//! its version, or as absent; what is written is kept back. The commit is one batch: the writes
//! under the condition that what was read of their keys still holds, and a check for each key that
//! was only read. The engine holds all these keys at one instant, so the transaction happened then.
//! Ends of lists are looked at again under the locks of the lists.

mod ends;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::{CollectionId, Key};
use stratakv_engine::{Change, ChangeKind, Expect, Operation, RecordPart, Value};

use crate::collection::{Collection, Next, put_kind, record, written};
use crate::error::Error;
use crate::order;
use crate::put::{PutOptions, PutOutcome};
use crate::record::Record;
use crate::routing::Inner;
use crate::store::Store;
use ends::Ends;

/// How often [`Store::transact`] tries.
const ATTEMPTS_MAX: u32 = 100;

/// What came of a [`Transaction::commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Commit {
    /// All of it is done, durable as a batch is; one change alone, at the store's level.
    Done {
        /// Version of the last change by order of the keys; 0 if nothing was changed.
        version: u64,
    },
    /// What was read has been changed by somebody else since, or the end of a list has. Nothing was
    /// done.
    Conflict {
        /// Which key, as it was given: its collection and [`Key::user`]. `None` if it is as it was
        /// read again by now.
        key: Option<Key>,
    },
}

/// Reads and writes that take effect as one ([`Store::transaction`]). It sees its own writes;
/// nobody else does before the commit. Dropped without a commit, nothing was done.
///
/// # Isolation
/// Transactions that commit are serialisable with one another and with all single operations and
/// batches, in what they read by key, present or absent, and at the ends of lists: the commit
/// happens at one instant at which all of that still holds. Within a transaction a key that is read
/// again is as it was. What is *not* promised:
/// - scans are not part of transactions: keys that somebody adds to a range are not noticed;
/// - before the commit, reads of several keys may show states of different moments (the commit will
///   then be refused), so code between them must not take harm from that;
/// - ends of lists that are changed not by [`List`](crate::List) or a transaction, but as records
///   by their keys, may be missed.
///
/// Limits and costs: keys and values of a commit are 64 MiB at most, with all keys that were read;
/// they and all values read are in memory until then. A commit costs a batch; one that read one key
/// at most and wrote none costs nothing.
pub struct Transaction {
    inner: Arc<Inner>,
    reads: BTreeMap<Key, Option<Record>>,
    writes: BTreeMap<Key, ChangeKind>,
    ends: BTreeMap<CollectionId, Ends>,
    /// Its collections in an order of the user's.
    in_order: BTreeSet<CollectionId>,
}

impl Store {
    /// Begins a transaction. Costs nothing.
    ///
    /// ```
    /// # fn main() -> Result<(), stratakv::Error> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let store = stratakv::Store::open(directory.path().join("data"))?;
    /// let (stock, orders) = (store.collection("stock")?, store.list("orders")?);
    /// stock.put(b"apple", b"1")?;
    /// let mut txn = store.transaction();
    /// if txn.get(&stock, b"apple")?.is_some() {
    ///     txn.delete(&stock, b"apple")?;
    ///     txn.push_back(&orders, b"apple for Ada")?;
    /// }
    /// match txn.commit()? {
    ///     stratakv::Commit::Done { .. } => {}
    ///     stratakv::Commit::Conflict { .. } => println!("somebody else was faster"),
    /// }
    /// assert_eq!(orders.len()?, 1);
    /// # store.close()
    /// # }
    /// ```
    pub fn transaction(&self) -> Transaction {
        let inner = Arc::clone(self.inner());
        let (reads, writes, ends) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Transaction { inner, reads, writes, ends, in_order: BTreeSet::new() }
    }

    /// Runs `body` in a transaction and commits it; again if somebody else was faster, up to 100
    /// times. What `body` returned then. If `body` fails, nothing is done, and its error is
    /// returned, unless it had seen states that do not fit together: then it runs again too.
    ///
    /// ```
    /// # fn main() -> Result<(), stratakv::Error> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let store = stratakv::Store::open(directory.path().join("data"))?;
    /// # store.put(b"from", b"100")?;
    /// # let number = |record: Option<stratakv::Record>| -> u64 {
    /// #     let text = record.map(|record| record.to_bytes()).unwrap_or_default();
    /// #     String::from_utf8_lossy(&text).parse().unwrap_or(0)
    /// # };
    /// store.transact(|txn| -> Result<(), stratakv::Error> {
    ///     let (from, to) = (number(txn.get(&store, b"from")?), number(txn.get(&store, b"to")?));
    ///     txn.put(&store, b"from", (from - 10).to_string().as_bytes())?;
    ///     txn.put(&store, b"to", (to + 10).to_string().as_bytes())
    /// })?;
    /// assert_eq!(store.get(b"to")?.unwrap().to_bytes(), "10");
    /// # store.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `body` failed with; [`Error::Conflict`] after the last attempt; as
    /// [`Transaction::commit`].
    pub fn transact<T, E: From<Error>>(&self, mut body: impl FnMut(&mut Transaction) -> Result<T, E>) -> Result<T, E> {
        let mut at = None;
        for attempt in 0..ATTEMPTS_MAX {
            give_way(attempt);
            let mut txn = self.transaction();
            let outcome = body(&mut txn);
            let commit = match &outcome {
                Ok(_) => txn.commit()?,
                Err(_) => txn.validate().unwrap_or(Commit::Done { version: 0 }),
            };
            match commit {
                Commit::Done { .. } => return outcome,
                Commit::Conflict { key } => at = key,
            }
        }
        let at = at.map_or_else(|| "a key".to_owned(), |key| key.to_string());
        Err(Error::Conflict { attempts: ATTEMPTS_MAX, at }.into())
    }
}

/// So that those who meet again and again come apart. At first not at all: most conflicts are over
/// when they are told.
fn give_way(attempt: u32) {
    (3..attempt).for_each(|_| std::thread::yield_now());
}

impl Transaction {
    /// A record, with this transaction's own changes; `None` if there is none. A record written
    /// here has version 0. Costs a read the first time.
    ///
    /// # Errors
    /// As [`Collection::get`]; [`Error::OtherStore`].
    pub fn get(&mut self, collection: &Collection, key: impl AsRef<[u8]>) -> Result<Option<Record>, Error> {
        let key = self.key(collection, key.as_ref())?;
        match self.writes.get(&key) {
            Some(kind) => Ok(own(kind)),
            None => self.read(key),
        }
    }

    /// Sets a record.
    ///
    /// # Errors
    /// A bad key, a value over 64 MiB; [`Error::OtherStore`].
    pub fn put(
        &mut self,
        collection: &Collection,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        self.put_next(collection, key.as_ref(), Next::value(Bytes::copy_from_slice(value.as_ref())))
    }

    /// Sets a record with flags and expiry. If its condition is not [`Expect::Any`], this reads the
    /// record and returns whether the condition holds; else `true`. (The level is that of the
    /// commit.)
    ///
    /// # Errors
    /// As [`Transaction::put`] and [`Transaction::get`].
    pub fn put_with(
        &mut self,
        collection: &Collection,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &PutOptions,
    ) -> Result<bool, Error> {
        if options.expect != Expect::Any {
            let found = self.get(collection, key.as_ref())?;
            if options.expect.unmet(found.is_some(), found.map(|record| record.version)).is_some() {
                return Ok(false);
            }
        }
        let (value, flags, expiry) =
            (Bytes::copy_from_slice(value.as_ref()), options.flags, options.expiry_in(collection));
        self.put_next(collection, key.as_ref(), Next::Put { value, flags, expiry })?;
        Ok(true)
    }

    /// Removes a record, if there is one.
    ///
    /// # Errors
    /// A bad key; [`Error::OtherStore`].
    pub fn delete(&mut self, collection: &Collection, key: impl AsRef<[u8]>) -> Result<(), Error> {
        self.put_next(collection, key.as_ref(), Next::Delete)
    }

    /// Changes a record in dependence on itself, as [`Collection::fetch_update`]: the record
    /// before.
    ///
    /// # Errors
    /// As [`Transaction::get`] and [`Transaction::put`].
    pub fn fetch_update(
        &mut self,
        collection: &Collection,
        key: impl AsRef<[u8]>,
        next: impl FnOnce(Option<&Record>) -> Next,
    ) -> Result<Option<Record>, Error> {
        let before = self.get(collection, key.as_ref())?;
        self.put_next(collection, key.as_ref(), next(before.as_ref()))?;
        Ok(before)
    }

    /// Makes all changes, if everything read still holds.
    ///
    /// # Errors
    /// As [`Store::write`]. Nothing was done, unless the error's kind is
    /// [`Unknown`](crate::ErrorKind::Unknown): then all of it was, or nothing.
    pub fn commit(self) -> Result<Commit, Error> {
        let writes = self.writes.iter().map(|(key, kind)| Change {
            key: key.clone(),
            expect: self.reads.get(key).map_or(Expect::Any, expectation),
            kind: kind.clone(),
        });
        let changes = writes.chain(self.checks(|key| !self.writes.contains_key(key))).collect();
        self.write(changes)
    }

    /// Whether everything read holds at one instant.
    fn validate(&self) -> Result<Commit, Error> {
        self.write(self.checks(|_| true).collect())
    }

    fn checks(&self, which: impl Fn(&Key) -> bool) -> impl Iterator<Item = Change> {
        let reads = self.reads.iter().filter(move |(key, _)| which(key));
        reads.map(|(key, record)| Change { key: key.clone(), expect: expectation(record), kind: ChangeKind::Check })
    }

    fn write(&self, changes: Vec<Change>) -> Result<Commit, Error> {
        self.inner.check_not_forked()?;
        let _held = self.inner.list_locks.lock(self.ends.keys().copied());
        for (id, ends) in &self.ends {
            if let Some(key) = ends.changed(*id, &self.inner)? {
                return Ok(Commit::Conflict { key: Some(key) });
            }
        }
        // One key is as it was at the moment at which it was read.
        let is_one_read = self.ends.is_empty() && matches!(&changes[..], [Change { kind: ChangeKind::Check, .. }]);
        // Of a store that is open for reading nothing changes.
        let is_frozen = self.inner.read_only && changes.iter().all(|c| matches!(c.kind, ChangeKind::Check));
        if changes.is_empty() || is_one_read || is_frozen {
            return Ok(Commit::Done { version: 0 });
        }
        let level = if changes.len() == 1 { self.inner.level } else { self.inner.batch_level() };
        match written(self.inner.execute(Operation::Write { changes, level }))? {
            PutOutcome::Written { version } => Ok(Commit::Done { version }),
            PutOutcome::Unmet(_) => Ok(Commit::Conflict { key: self.changed_key()? }),
        }
    }

    /// The first key that is not as it was read.
    fn changed_key(&self) -> Result<Option<Key>, Error> {
        let get = |key: &Key| Operation::Get { key: key.clone(), part: RecordPart::Meta };
        let now = self.inner.execute_many(self.reads.keys().map(get).collect());
        for ((key, before), now) in self.reads.iter().zip(now) {
            let version = |record: &Record| record.version;
            if record(now)?.as_ref().map(version) != before.as_ref().map(version) {
                return Ok(Some(self.given(key)));
            }
        }
        Ok(None)
    }

    /// A key as it was given.
    fn given(&self, key: &Key) -> Key {
        match self.in_order.contains(&key.collection()) {
            true => Key::bound(key.collection(), order::given(key.user())),
            false => key.clone(),
        }
    }

    fn put_next(&mut self, collection: &Collection, key: &[u8], next: Next) -> Result<(), Error> {
        let key = self.key(collection, key)?;
        let kind = match next {
            Next::Keep => return Ok(()),
            Next::Delete => ChangeKind::Delete,
            Next::Put { value, flags, expiry } => put_kind(value, flags, expiry)?,
        };
        self.writes.insert(key, kind);
        Ok(())
    }

    fn read(&mut self, key: Key) -> Result<Option<Record>, Error> {
        if let Some(known) = self.reads.get(&key) {
            return Ok(known.clone());
        }
        let found = record(self.inner.execute(Operation::Get { key: key.clone(), part: RecordPart::Whole }))?;
        let found = found.map(|record| record.detached());
        self.reads.insert(key, found.clone());
        Ok(found)
    }

    fn key(&mut self, collection: &Collection, key: &[u8]) -> Result<Key, Error> {
        if !Arc::ptr_eq(&self.inner, collection.inner()) {
            return Err(Error::OtherStore("the collection"));
        }
        if collection.order().is_some() {
            self.in_order.insert(collection.id());
        }
        collection.key(key)
    }
}

/// What must hold of a key that was read.
fn expectation(record: &Option<Record>) -> Expect {
    record.as_ref().map_or(Expect::Absent, |record| Expect::Version(record.version))
}

/// The record that a transaction has written itself.
fn own(kind: &ChangeKind) -> Option<Record> {
    let ChangeKind::Put { value, flags, expiry } = kind else { return None };
    Some(Record::new(Value::Inline(value.clone()), *flags, 0, *expiry))
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transaction({} keys read, {} written)", self.reads.len(), self.writes.len())
    }
}
