//! [`Collection`]: a key space, and what is done with its keys.

use std::ops::RangeBounds;
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::limits::VALUE_BYTES_MAX;
use stratakv_base::{CollectionId, Expiry};
use stratakv_engine::{Change, ChangeKind, Error as EngineError, Expect, Operation, RecordPart, Reply, Update};

use stratakv_runtime::block_on;

use crate::asking::{Asking, Awaiting, Blocking};
use crate::error::Error;
use crate::order::InOrder;
use crate::put::{PutOptions, PutOutcome, Unmet};
use crate::raw;
use crate::record::Record;
use crate::routing::Inner;
use crate::scan::{Scan, ScanOptions};
use crate::store::unexpected_reply;

/// A key space: the default one, or one with a name
/// ([`Store::collection`](crate::Store::collection)). Its keys are its own; scans, ranges and
/// prefixes end with it. Cloning is cheap. It holds the store open.
#[derive(Clone)]
pub struct Collection {
    inner: Arc<Inner>,
    id: CollectionId,
    /// `None`: its keys' bytes.
    order: Option<Arc<InOrder>>,
}

/// What a [`Collection::fetch_update`] makes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Leaves it as it is.
    Keep,
    /// Removes it.
    Delete,
    /// Replaces it.
    Put {
        /// The value.
        value: Bytes,
        /// Opaque to the store.
        flags: u32,
        /// When it expires.
        expiry: Expiry,
    },
}

impl Next {
    /// A value, without flags or expiry.
    pub fn value(value: impl Into<Bytes>) -> Next {
        Next::Put { value: value.into(), flags: 0, expiry: Expiry::NEVER }
    }
}

/// What a [`Collection::fetch_update`] did.
#[derive(Clone, Debug)]
pub struct Updated {
    /// The record before.
    pub before: Option<Record>,
    /// Version of the change; `None` if there was none to make.
    pub version: Option<u64>,
}

impl Collection {
    pub(crate) fn new(inner: Arc<Inner>, id: CollectionId, order: Option<Arc<InOrder>>) -> Collection {
        Collection { inner, id, order }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    pub(crate) fn in_order(&self) -> Option<&InOrder> {
        self.order.as_deref()
    }

    /// Its number, which keys of operations begin with ([`Collection::key`]).
    pub fn id(&self) -> CollectionId {
        self.id
    }

    /// Reads a record; `None` if there is none.
    ///
    /// # Errors
    /// A bad key, an I/O error, a damaged record.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Record>, Error> {
        record(self.inner.execute(self.get_operation(key.as_ref())?))
    }

    /// Writes a record; returns its version once it is durable.
    ///
    /// # Errors
    /// A bad key, a value over 64 MiB, a full store, an I/O error.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<u64, Error> {
        match self.put_with(key, value, &PutOptions::default())? {
            PutOutcome::Written { version } => Ok(version),
            PutOutcome::Unmet(_) => Err(unexpected_reply()),
        }
    }

    /// Writes a record if `expect` holds, as one step.
    ///
    /// # Errors
    /// As [`Collection::put`].
    pub fn put_if(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expect: Expect) -> Result<PutOutcome, Error> {
        self.put_with(key, value, &PutOptions { expect, ..PutOptions::default() })
    }

    /// Writes a record with flags, expiry, condition and level.
    ///
    /// # Errors
    /// As [`Collection::put`].
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &PutOptions,
    ) -> Result<PutOutcome, Error> {
        written(self.inner.execute(self.put_operation(key.as_ref(), value.as_ref(), options)?))
    }

    /// Removes a record; returns whether there was one, once that is durable.
    ///
    /// # Errors
    /// A bad key, an I/O error.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        deleted(self.inner.execute(self.delete_operation(key.as_ref())?))
    }

    /// Reads several records; their I/O overlaps.
    ///
    /// # Errors
    /// As [`Collection::get`], for the first that fails.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Record>>, Error> {
        let gets = keys.iter().map(|key| self.get_operation(key.as_ref())).collect::<Result<Vec<_>, _>>()?;
        self.inner.execute_many(gets).into_iter().map(record).collect()
    }

    /// Puts bytes behind a value, as one step; returns the new version, or `None` if there is no
    /// record. Flags and expiry stay.
    ///
    /// # Errors
    /// As [`Collection::put`].
    pub fn append(&self, key: impl AsRef<[u8]>, bytes: impl AsRef<[u8]>) -> Result<Option<u64>, Error> {
        self.extend(key.as_ref(), Update::Append(Bytes::copy_from_slice(bytes.as_ref())))
    }

    /// As [`Collection::append`], before the value.
    ///
    /// # Errors
    /// As [`Collection::put`].
    pub fn prepend(&self, key: impl AsRef<[u8]>, bytes: impl AsRef<[u8]>) -> Result<Option<u64>, Error> {
        self.extend(key.as_ref(), Update::Prepend(Bytes::copy_from_slice(bytes.as_ref())))
    }

    fn extend(&self, key: &[u8], update: Update) -> Result<Option<u64>, Error> {
        match self.update(key, update)? {
            Reply::Done { version, .. } => Ok(Some(version)),
            Reply::Unmet(raw::Unmet::Absent) => Ok(None),
            _ => Err(unexpected_reply()),
        }
    }

    /// Changes a record at its owner, as one step.
    pub(crate) fn update(&self, key: &[u8], update: Update) -> Result<Reply, Error> {
        let key = self.place(key)?;
        match self.inner.execute(Operation::Update { key, update, level: self.inner.level_in(self.id) }) {
            Reply::Failed(error) => Err(error.into()),
            reply => Ok(reply),
        }
    }

    /// Changes a record in dependence on itself, as one step: reads it, asks `next` what to make of
    /// it, and writes that if nobody was faster; else asks again. For numbers,
    /// [`Collection::increment`] never has to ask again.
    ///
    /// # Errors
    /// As [`Collection::get`] and [`Collection::put`].
    pub fn fetch_update(
        &self,
        key: impl AsRef<[u8]>,
        next: impl FnMut(Option<&Record>) -> Next,
    ) -> Result<Updated, Error> {
        block_on(self.update_by::<Blocking>(key.as_ref(), next))
    }

    async fn update_by<A: Asking>(
        &self,
        key: &[u8],
        mut next: impl FnMut(Option<&Record>) -> Next,
    ) -> Result<Updated, Error> {
        loop {
            let before = record(A::one(&self.inner, self.get_operation(key)?).await)?;
            let Some(operation) = self.next_operation(key, before.as_ref(), next(before.as_ref()))? else {
                return Ok(Updated { before, version: None });
            };
            if let PutOutcome::Written { version } = written(A::one(&self.inner, operation).await)? {
                return Ok(Updated { before, version: Some(version) });
            }
        }
    }

    /// Adds to a counter: a value of decimal digits, 64 bits, wrapping. One that does not exist
    /// counts from 0. Returns the sum.
    ///
    /// # Errors
    /// [`Error::NotANumber`]; as [`Collection::put`].
    pub fn increment(&self, key: impl AsRef<[u8]>, by: u64) -> Result<u64, Error> {
        self.count(key.as_ref(), Update::Increment(by), by)
    }

    /// Subtracts from a counter, stopping at 0. Returns what is left.
    ///
    /// # Errors
    /// As [`Collection::increment`].
    pub fn decrement(&self, key: impl AsRef<[u8]>, by: u64) -> Result<u64, Error> {
        self.count(key.as_ref(), Update::Decrement(by), 0)
    }

    fn count(&self, key: &[u8], update: Update, first: u64) -> Result<u64, Error> {
        loop {
            match self.update(key, update.clone())? {
                Reply::Number { number, .. } => return Ok(number),
                Reply::Unmet(raw::Unmet::NotANumber) => {
                    return Err(Error::NotANumber { key: key.escape_ascii().to_string() });
                }
                Reply::Unmet(_) => {
                    if let PutOutcome::Written { .. } =
                        self.put_if(key, first.to_string().as_bytes(), Expect::Absent)?
                    {
                        return Ok(first);
                    }
                }
                _ => return Err(unexpected_reply()),
            }
        }
    }

    /// Removes every key between two bounds, in the order of the collection, that exists when this
    /// is asked; returns how many once that is durable. Not one step: a crash may leave a part of
    /// them, and keys written meanwhile stay.
    ///
    /// # Errors
    /// An I/O error; some may be gone by then.
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64, Error> {
        counted(self.inner.execute(self.range_operation(&ScanOptions::range(range))?))
    }

    /// Removes every key that begins with `prefix`, as [`Collection::delete_range`]. (Not in an
    /// order of the user's: [`ScanOptions::prefix`].)
    ///
    /// # Errors
    /// As [`Collection::delete_range`].
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<u64, Error> {
        counted(self.inner.execute(self.range_operation(&ScanOptions::prefix(prefix))?))
    }

    /// Records whose key begins with `prefix`, in order.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Scan {
        self.scan(ScanOptions::prefix(prefix))
    }

    /// Records of the keys in a range, in order: `range("a".."c")`, `range("a"..)`. Of all keys:
    /// [`Collection::iter`].
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Scan {
        self.scan(ScanOptions::range(range))
    }

    /// All records, in order.
    pub fn iter(&self) -> Scan {
        self.scan(ScanOptions::all())
    }

    /// A scan.
    pub fn scan(&self, options: ScanOptions) -> Scan {
        Scan::new(self.clone(), options)
    }

    fn get_operation(&self, key: &[u8]) -> Result<Operation, Error> {
        Ok(Operation::Get { key: self.place(key)?, part: RecordPart::Whole })
    }

    pub(crate) fn put_operation(&self, key: &[u8], value: &[u8], options: &PutOptions) -> Result<Operation, Error> {
        let kind = put_kind(Bytes::copy_from_slice(value), options.flags, options.expiry_in(self))?;
        let change = Change { key: self.place(key)?, expect: options.expect, kind };
        let level = options.level.unwrap_or(self.inner.level_in(self.id));
        Ok(Operation::Write { changes: vec![change], level })
    }

    pub(crate) fn delete_operation(&self, key: &[u8]) -> Result<Operation, Error> {
        let change = Change { key: self.place(key)?, expect: Expect::Any, kind: ChangeKind::Delete };
        Ok(Operation::Write { changes: vec![change], level: self.inner.level_in(self.id) })
    }

    fn next_operation(&self, key: &[u8], before: Option<&Record>, next: Next) -> Result<Option<Operation>, Error> {
        let expect = before.map_or(Expect::Absent, |record| Expect::Version(record.version));
        let kind = match next {
            Next::Keep => return Ok(None),
            Next::Delete if before.is_none() => return Ok(None),
            Next::Delete => ChangeKind::Delete,
            Next::Put { value, flags, expiry } => put_kind(value, flags, expiry)?,
        };
        let change = Change { key: self.place(key)?, expect, kind };
        Ok(Some(Operation::Write { changes: vec![change], level: self.inner.level_in(self.id) }))
    }

    fn range_operation(&self, options: &ScanOptions) -> Result<Operation, Error> {
        let (from, to) = self.bounds(&options.extent)?;
        Ok(Operation::DeleteRange { range: Box::new((from, to)), level: self.inner.level })
    }
}

/// The same as futures, for any runtime.
impl Collection {
    /// [`Collection::get`] as a future. A hit in the cache is answered at the first poll.
    ///
    /// # Errors
    /// As [`Collection::get`].
    pub async fn get_async(&self, key: impl AsRef<[u8]>) -> Result<Option<Record>, Error> {
        record(self.inner.execute_async(self.get_operation(key.as_ref())?).await)
    }

    /// [`Collection::put`] as a future.
    ///
    /// # Errors
    /// As [`Collection::put`].
    pub async fn put_async(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<u64, Error> {
        match self.put_with_async(key, value, &PutOptions::default()).await? {
            PutOutcome::Written { version } => Ok(version),
            PutOutcome::Unmet(_) => Err(unexpected_reply()),
        }
    }

    /// [`Collection::put_with`] as a future.
    ///
    /// # Errors
    /// As [`Collection::put`].
    pub async fn put_with_async(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &PutOptions,
    ) -> Result<PutOutcome, Error> {
        written(self.inner.execute_async(self.put_operation(key.as_ref(), value.as_ref(), options)?).await)
    }

    /// [`Collection::delete`] as a future.
    ///
    /// # Errors
    /// As [`Collection::delete`].
    pub async fn delete_async(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        deleted(self.inner.execute_async(self.delete_operation(key.as_ref())?).await)
    }

    /// [`Collection::fetch_update`] as a future.
    ///
    /// # Errors
    /// As [`Collection::fetch_update`].
    pub async fn fetch_update_async(
        &self,
        key: impl AsRef<[u8]>,
        next: impl FnMut(Option<&Record>) -> Next,
    ) -> Result<Updated, Error> {
        self.update_by::<Awaiting>(key.as_ref(), next).await
    }

    /// [`Collection::delete_range`] as a future.
    ///
    /// # Errors
    /// As [`Collection::delete_range`].
    pub async fn delete_range_async<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64, Error> {
        let operation = self.range_operation(&ScanOptions::range(range))?;
        counted(self.inner.execute_async(operation).await)
    }

    /// [`Collection::delete_prefix`] as a future.
    ///
    /// # Errors
    /// As [`Collection::delete_range`].
    pub async fn delete_prefix_async(&self, prefix: impl AsRef<[u8]>) -> Result<u64, Error> {
        let operation = self.range_operation(&ScanOptions::prefix(prefix))?;
        counted(self.inner.execute_async(operation).await)
    }
}

impl std::fmt::Debug for Collection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Collection({} of {})", self.id.0, self.inner.files.path.display())
    }
}

/// A put within the limits.
pub(crate) fn put_kind(value: Bytes, flags: u32, expiry: Expiry) -> Result<ChangeKind, EngineError> {
    let len_bytes = value.len() as u64;
    if value.len() > VALUE_BYTES_MAX {
        return Err(EngineError::ValueTooLarge { len_bytes, max_bytes: VALUE_BYTES_MAX as u64 });
    }
    Ok(ChangeKind::Put { value, flags, expiry: expiry.min(Expiry::MAX) })
}

pub(crate) fn record(reply: Reply) -> Result<Option<Record>, Error> {
    match reply {
        Reply::Record(record) => Ok(record.map(Record::from)),
        Reply::Failed(error) => Err(error.into()),
        _ => Err(unexpected_reply()),
    }
}

pub(crate) fn written(reply: Reply) -> Result<PutOutcome, Error> {
    match reply {
        Reply::Done { version, .. } => Ok(PutOutcome::Written { version }),
        Reply::Unmet(unmet) => Ok(PutOutcome::Unmet(Unmet::of(unmet).ok_or_else(unexpected_reply)?)),
        Reply::Failed(error) => Err(error.into()),
        _ => Err(unexpected_reply()),
    }
}

fn deleted(reply: Reply) -> Result<bool, Error> {
    match reply {
        Reply::Done { existed, .. } => Ok(existed),
        Reply::Failed(error) => Err(error.into()),
        _ => Err(unexpected_reply()),
    }
}

fn counted(reply: Reply) -> Result<u64, Error> {
    match reply {
        Reply::Number { number, .. } => Ok(number),
        Reply::Failed(error) => Err(error.into()),
        _ => Err(unexpected_reply()),
    }
}
