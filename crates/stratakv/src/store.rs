//! [`Store`]: routes keys to shards, opens and closes them.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use stratakv_base::checksum::shard_of;
use stratakv_base::limits::VALUE_BYTES_MAX;
use stratakv_base::{CollectionId, Expiry, Key, Level};
use stratakv_engine::{
    Capability, Change, ChangeKind, Error as EngineError, Expect, Operation, PageRequest, RecordPart, Reply, Statistic,
    Unmet, Update,
};
use stratakv_runtime::Runtime;

use crate::directory::Directory;
use crate::engine::AnyShard;
use crate::error::Error;
use crate::open;
use crate::options::Options;
use crate::record::Record;
use crate::scan::{Scan, ScanOptions, merge_keys};
use crate::session::Session;

/// An open store. Clones share it; the last one to go closes it.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    runtime: Arc<Runtime<AnyShard>>,
    level: Level,
    path: PathBuf,
    recovery: RecoverySummary,
    closed: AtomicBool,
    directory: std::sync::Mutex<Option<Directory>>,
}

/// What opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoverySummary {
    /// Whether the store was created.
    pub created: bool,
    /// Whether it had been closed in order.
    pub clean: bool,
    /// Records found.
    pub records: u64,
    /// Writes that a crash cut off before they were acknowledged, dropped.
    pub torn: u64,
    /// Volumes whose damaged superblock copy was repaired from the good one.
    pub superblocks_repaired: u64,
    /// Damaged places, for people.
    pub corrupt: Vec<String>,
}

/// How to write one record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// Opaque to the store.
    pub flags: u32,
    /// When it expires.
    pub expiry: Expiry,
    /// Under which condition.
    pub expect: Expect,
    /// When to acknowledge; `None` for the store's own level.
    pub level: Option<Level>,
}

/// Outcome of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// Written, durable at its level.
    Written {
        /// The new version.
        version: u64,
    },
    /// The condition did not hold; nothing was changed.
    Unmet(Unmet),
}

/// Where an operation goes.
pub(crate) enum Route {
    Shard(usize),
    All,
    Refused(EngineError),
}

impl Store {
    /// Opens the store in directory `path`, creating it if there is none, with the default [`Options`].
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open(path: impl AsRef<Path>) -> Result<Store, Error> {
        Options::new().open(path)
    }

    pub(crate) fn open_with(path: &Path, options: &Options) -> Result<Store, Error> {
        let opened = open::open(path, options)?;
        Ok(Store(Arc::new(Inner {
            runtime: opened.runtime,
            level: options.level,
            path: path.to_path_buf(),
            recovery: opened.recovery,
            closed: false.into(),
            directory: Some(opened.directory).into(),
        })))
    }

    /// A store over a runtime that somebody else has put together, without a directory: for simulations.
    #[doc(hidden)]
    pub fn over(runtime: Arc<Runtime<AnyShard>>, level: Level) -> Store {
        Store(Arc::new(Inner {
            runtime,
            level,
            path: PathBuf::new(),
            recovery: RecoverySummary::default(),
            closed: false.into(),
            directory: None.into(),
        }))
    }

    /// The store's directory.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What opening found.
    pub fn recovery(&self) -> &RecoverySummary {
        &self.0.recovery
    }

    /// The durability level of writes that name none.
    pub fn default_level(&self) -> Level {
        self.0.level
    }

    /// Number of shards.
    pub fn shards(&self) -> usize {
        self.0.runtime.shards()
    }

    /// The shard that owns a key.
    pub fn shard_of(&self, key: &Key) -> usize {
        shard_of(key.encoded(), self.shards())
    }

    /// Reads a record; `None` if there is none.
    ///
    /// # Errors
    /// A bad key, an I/O error, a damaged record.
    pub fn get(&self, key: &[u8]) -> Result<Option<Record>, Error> {
        record(self.execute(get(key)?))
    }

    /// Writes a record; returns its version once it is durable.
    ///
    /// # Errors
    /// A bad key, a value over 64 MiB, a full store, an I/O error.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<u64, Error> {
        match self.put_with(key, value, &PutOptions::default())? {
            PutOutcome::Written { version } => Ok(version),
            PutOutcome::Unmet(_) => Err(odd()),
        }
    }

    /// Writes a record if `expect` holds, as one step.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn put_if(&self, key: &[u8], value: &[u8], expect: Expect) -> Result<PutOutcome, Error> {
        self.put_with(key, value, &PutOptions { expect, ..PutOptions::default() })
    }

    /// Writes a record with flags, expiry, condition and level.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn put_with(&self, key: &[u8], value: &[u8], options: &PutOptions) -> Result<PutOutcome, Error> {
        written(self.execute(self.put_operation(key, value, options)?))
    }

    /// Removes a record; returns whether there was one, once that is durable.
    ///
    /// # Errors
    /// A bad key, an I/O error.
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        deleted(self.execute(self.delete_operation(key)?))
    }

    /// Reads several records; their I/O overlaps.
    ///
    /// # Errors
    /// As [`Store::get`], for the first that fails.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Record>>, Error> {
        let gets = keys.iter().map(|key| get(key.as_ref())).collect::<Result<Vec<_>, _>>()?;
        self.execute_many(gets).into_iter().map(record).collect()
    }

    /// Adds to (or subtracts from, or appends to, or touches) a record at its owner, as one step.
    ///
    /// # Errors
    /// As [`Store::put`]. Conditions that do not hold come back as [`Reply::Unmet`].
    pub fn update(&self, key: &[u8], update: Update) -> Result<Reply, Error> {
        let key = Key::new(CollectionId::default(), key)?;
        match self.execute(Operation::Update { key, update, level: self.0.level }) {
            Reply::Failed(error) => Err(error.into()),
            reply => Ok(reply),
        }
    }

    /// Records whose key begins with `prefix`, in order.
    pub fn prefix(&self, prefix: &[u8]) -> Scan {
        self.scan(ScanOptions::prefix(prefix))
    }

    /// A scan.
    pub fn scan(&self, options: ScanOptions) -> Scan {
        Scan::new(self.clone(), options)
    }

    /// [`Store::get`] as a future for any runtime. A hit in the cache is answered at the first poll.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub async fn get_async(&self, key: &[u8]) -> Result<Option<Record>, Error> {
        record(self.execute_async(get(key)?).await)
    }

    /// [`Store::put`] as a future.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub async fn put_async(&self, key: &[u8], value: &[u8]) -> Result<u64, Error> {
        let operation = self.put_operation(key, value, &PutOptions::default())?;
        match written(self.execute_async(operation).await)? {
            PutOutcome::Written { version } => Ok(version),
            PutOutcome::Unmet(_) => Err(odd()),
        }
    }

    /// [`Store::delete`] as a future.
    ///
    /// # Errors
    /// As [`Store::delete`].
    pub async fn delete_async(&self, key: &[u8]) -> Result<bool, Error> {
        deleted(self.execute_async(self.delete_operation(key)?).await)
    }

    /// Any operation on one key's shard, as a future. Operations on all shards are answered `Unsupported`.
    pub async fn execute_async(&self, operation: Operation) -> Reply {
        match self.route(&operation) {
            Route::Shard(shard) => self.0.runtime.execute_async(shard, operation).await,
            Route::All => Reply::Failed(EngineError::Unsupported(Capability::Batch)),
            Route::Refused(error) => Reply::Failed(error),
        }
    }

    /// Any operation, in the calling thread.
    pub fn execute(&self, operation: Operation) -> Reply {
        match self.route(&operation) {
            Route::Shard(shard) => self.0.runtime.execute(shard, operation),
            Route::Refused(error) => Reply::Failed(error),
            Route::All => self.execute_on_all(operation),
        }
    }

    /// Several operations on single keys; their I/O overlaps. Replies are in the order asked.
    pub fn execute_many(&self, operations: Vec<Operation>) -> Vec<Reply> {
        let routed: Vec<_> = operations.into_iter().map(|operation| (self.route(&operation), operation)).collect();
        if let Some(bad) = routed.iter().position(|(route, _)| !matches!(route, Route::Shard(_))) {
            tracing::debug!(bad, "an operation that is not on one key: they are executed one by one");
            return routed.into_iter().map(|(_, operation)| self.execute(operation)).collect();
        }
        let shard = |route| if let Route::Shard(shard) = route { shard } else { 0 };
        self.0.runtime.execute_many(routed.into_iter().map(|(route, operation)| (shard(route), operation)).collect())
    }

    /// A session: submit and poll, with a ring of the calling thread's own.
    ///
    /// # Errors
    /// The ring could not be made.
    pub fn session(&self) -> Result<Session, Error> {
        let driver = self.driver()?;
        Ok(self.session_over(driver))
    }

    /// A session over a given driver: for simulations.
    #[doc(hidden)]
    pub fn session_over(&self, driver: crate::Driver) -> Session {
        Session::new(self.clone(), driver)
    }

    /// A driver: what sessions and servers are built on.
    ///
    /// # Errors
    /// The ring could not be made.
    pub fn driver(&self) -> Result<crate::Driver, Error> {
        self.0.runtime.driver().map_err(|error| Error::Io {
            what: "set up a ring for",
            path: self.0.path.clone(),
            error,
        })
    }

    /// Counters and gauges, added over the shards.
    pub fn stats(&self) -> Vec<Statistic> {
        self.0.runtime.statistics()
    }

    /// Makes every acknowledged write durable at power loss, whatever its level was.
    ///
    /// # Errors
    /// An I/O error.
    pub fn sync(&self) -> Result<(), Error> {
        match self.execute(Operation::Sync) {
            Reply::Failed(error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Finishes what is in flight, makes it durable, and lets the directory go. Other clones answer `Closed` from then on. Idempotent.
    ///
    /// # Errors
    /// None today; a later close may have something to say.
    pub fn close(&self) -> Result<(), Error> {
        self.0.close();
        Ok(())
    }

    /// One page of keys, merged over the shards: no I/O.
    pub(crate) fn page_of_keys(&self, request: &PageRequest) -> Result<(Vec<Key>, Option<Bound<Key>>), EngineError> {
        let shards = 0..self.shards();
        let pages = self.0.runtime.execute_many(shards.map(|s| (s, Operation::Page(request.clone()))).collect());
        let pages = pages.into_iter().map(|reply| match reply {
            Reply::Page { items, next } => Ok((items, next)),
            Reply::Failed(error) => Err(error),
            _ => Err(EngineError::Unknown("the engine gave an answer of another kind")),
        });
        Ok(merge_keys(pages.collect::<Result<_, _>>()?, request.reverse, request.items_max as usize))
    }

    /// Where an operation goes; what is out of limits goes nowhere.
    pub(crate) fn route(&self, operation: &Operation) -> Route {
        match operation {
            Operation::Get { key, .. } | Operation::Update { key, .. } => Route::Shard(self.shard_of(key)),
            Operation::Write { changes, .. } => self.route_write(changes),
            Operation::Page(_) | Operation::DeleteRange { .. } | Operation::Sync => Route::All,
            Operation::Snapshot(_) => Route::Refused(EngineError::Unsupported(Capability::Snapshot)),
            Operation::Backup { .. } => Route::Refused(EngineError::Unsupported(Capability::Backup)),
        }
    }

    fn route_write(&self, changes: &[Change]) -> Route {
        let too_large = changes.iter().find_map(|change| match &change.kind {
            ChangeKind::Put { value, .. } if value.len() > VALUE_BYTES_MAX => Some(value.len() as u64),
            _ => None,
        });
        if let Some(len_bytes) = too_large {
            return Route::Refused(EngineError::ValueTooLarge { len_bytes, max_bytes: VALUE_BYTES_MAX as u64 });
        }
        let mut shards = changes.iter().map(|change| self.shard_of(&change.key));
        match shards.next() {
            Some(first) if shards.all(|shard| shard == first) => Route::Shard(first),
            _ => Route::Refused(EngineError::Unsupported(Capability::Batch)),
        }
    }

    fn execute_on_all(&self, operation: Operation) -> Reply {
        if let Operation::Page(request) = &operation {
            return self.execute_page(request);
        }
        let shards = 0..self.shards();
        let replies = self.0.runtime.execute_many(shards.map(|shard| (shard, operation.clone())).collect());
        let mut sum = 0;
        for reply in replies {
            match reply {
                Reply::Number { number, .. } => sum += number,
                Reply::Done { .. } => {}
                other => return other,
            }
        }
        Reply::Number { number: sum, version: 0 }
    }

    fn execute_page(&self, request: &PageRequest) -> Reply {
        let keys_request = PageRequest { keys_only: true, ..request.clone() };
        let (keys, next) = match self.page_of_keys(&keys_request) {
            Ok(page) => page,
            Err(error) => return Reply::Failed(error),
        };
        let mut items = Vec::with_capacity(keys.len());
        if request.keys_only {
            items.extend(keys.into_iter().map(|key| stratakv_engine::Item { key, record: None }));
            return Reply::Page { items, next };
        }
        let gets = keys.iter().map(|key| Operation::Get { key: key.clone(), part: RecordPart::Whole });
        for (key, reply) in keys.iter().zip(self.execute_many(gets.collect())) {
            match reply {
                Reply::Record(Some(record)) => {
                    items.push(stratakv_engine::Item { key: key.clone(), record: Some(record) });
                }
                Reply::Record(None) => {}
                other => return other,
            }
        }
        Reply::Page { items, next }
    }

    fn put_operation(&self, key: &[u8], value: &[u8], options: &PutOptions) -> Result<Operation, Error> {
        let key = Key::new(CollectionId::default(), key)?;
        let len_bytes = value.len() as u64;
        if value.len() > VALUE_BYTES_MAX {
            return Err(EngineError::ValueTooLarge { len_bytes, max_bytes: VALUE_BYTES_MAX as u64 }.into());
        }
        let kind =
            ChangeKind::Put { value: Bytes::copy_from_slice(value), flags: options.flags, expiry: options.expiry };
        let level = options.level.unwrap_or(self.0.level);
        Ok(Operation::Write { changes: vec![Change { key, expect: options.expect, kind }], level, txn: None })
    }

    fn delete_operation(&self, key: &[u8]) -> Result<Operation, Error> {
        let key = Key::new(CollectionId::default(), key)?;
        let change = Change { key, expect: Expect::Any, kind: ChangeKind::Delete };
        Ok(Operation::Write { changes: vec![change], level: self.0.level, txn: None })
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.0.path.display())
    }
}

impl Inner {
    fn close(&self) {
        if !self.closed.swap(true, Ordering::SeqCst) {
            self.runtime.close();
            let mut directory = self.directory.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *directory = None;
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

fn get(key: &[u8]) -> Result<Operation, Error> {
    Ok(Operation::Get { key: Key::new(CollectionId::default(), key)?, part: RecordPart::Whole })
}

fn record(reply: Reply) -> Result<Option<Record>, Error> {
    match reply {
        Reply::Record(record) => Ok(record.map(Record::from)),
        Reply::Failed(error) => Err(error.into()),
        _ => Err(odd()),
    }
}

fn written(reply: Reply) -> Result<PutOutcome, Error> {
    match reply {
        Reply::Done { version, .. } => Ok(PutOutcome::Written { version }),
        Reply::Unmet(unmet) => Ok(PutOutcome::Unmet(unmet)),
        Reply::Failed(error) => Err(error.into()),
        _ => Err(odd()),
    }
}

fn deleted(reply: Reply) -> Result<bool, Error> {
    match reply {
        Reply::Done { existed, .. } => Ok(existed),
        Reply::Failed(error) => Err(error.into()),
        _ => Err(odd()),
    }
}

fn odd() -> Error {
    EngineError::Unknown("the engine gave an answer of another kind").into()
}
