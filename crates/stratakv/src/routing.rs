//! From an operation to its shard, or to all of them; and the answer back.

use std::mem::ManuallyDrop;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use stratakv_base::checksum::shard_of;
use stratakv_base::limits::VALUE_BYTES_MAX;
use stratakv_base::{CollectionId, Key, Level};
use stratakv_engine::{
    Capability, Change, ChangeKind, Error as EngineError, Item, Operation, PageRequest, Reply, SnapshotOp,
};
use stratakv_matrix::table::values::BLOB_BYTES_MIN;
use stratakv_pmem::Mapping;
use stratakv_runtime::{Runtime, block_on};

use crate::asking::{Asking, Awaiting, Blocking};
use crate::catalogue::{CATALOGUE, Names};
use crate::directory::Directory;
use crate::engine::{AnyShard, Engine};
use crate::error::Error;
use crate::events::{StoreEvent, Watcher};
use crate::expiring::Expiring;
use crate::list::ListLocks;
use crate::merge::{Gather, Page, merge_pages, shares};
use crate::options::Placement;
use crate::order::Orders;
use crate::rejoin::Presence;
use crate::store::RecoverySummary;
use crate::store::Region;

/// What the clones of a store, its collections, scans and sessions share.
pub(crate) struct Inner {
    pub(crate) runtime: Arc<Runtime<AnyShard>>,
    pub(crate) level: Level,
    pub(crate) files: StoreFiles,
    pub(crate) identity: Identity,
    pub(crate) recovery: RecoverySummary,
    pub(crate) read_only: bool,
    pub(crate) names: Names,
    pub(crate) expiring: Expiring,
    pub(crate) list_locks: ListLocks,
    pub(crate) orders: Orders,
    pub(crate) closed: AtomicBool,
    pub(crate) watcher: Option<Watcher>,
    pub(crate) region: Option<Region>,
    pub(crate) engine: Engine,
    /// Of scans through `matrix`: see [`Inner::gathered_of`].
    pub(crate) values_apart: AtomicBool,
}

/// Where a store lies, locked while it is open.
#[derive(Default)]
pub(crate) struct StoreFiles {
    pub(crate) path: PathBuf,
    pub(crate) directory: Mutex<Option<Directory>>,
    pub(crate) mapping: Option<Arc<Mapping>>,
    /// What of it was found to be removed while it was open.
    pub(crate) removed: OnceLock<PathBuf>,
    /// Of a cache that is open for writing.
    pub(crate) presence: Option<Presence>,
}

impl StoreFiles {
    /// Lets them go: somebody else may open the store.
    fn unlock(&self) {
        if let Some(mapping) = &self.mapping {
            mapping.unlock();
        }
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Directory>> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a store is besides its engine, fixed at creation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) uuid: String,
    /// Of engine `slab`.
    pub(crate) placement: Option<Placement>,
}

/// The shard that coordinates batches across shards.
const BATCHES_SHARD: usize = 0;

/// Where an operation goes.
pub(crate) enum Route {
    Shard(usize),
    All,
    Refused(EngineError),
    /// It needs no shard.
    Answered(Reply),
}

impl Inner {
    /// The level of several changes as one: power loss on disks, where batches are made of flushed
    /// shares; in a region that of its writes.
    pub(crate) fn batch_level(&self) -> Level {
        if self.engine == Engine::Slab { Level::PowerLoss } else { self.level }
    }

    /// The level of writes to a collection that name none. What says which number a name stands for
    /// is as durable as anything can be: a record that is durable under a number that is not would
    /// turn up under another name.
    pub(crate) fn level_in(&self, collection: CollectionId) -> Level {
        if collection == CATALOGUE { self.batch_level() } else { self.level }
    }

    /// Whether there can be collections with names.
    ///
    /// # Errors
    /// There cannot.
    pub(crate) fn has_names(&self) -> Result<(), Error> {
        self.check_not_forked()?;
        match self.engine {
            Engine::Tier => Err(Error::Option(
                "a collection with a name: the engine `tier` is a cache, which may evict names too, and has the default collection only".into(),
            )),
            _ => Ok(()),
        }
    }

    /// Whether this is the process that opened the store.
    ///
    /// # Errors
    /// It is a child that was forked from that one: the store's locks may be held by threads that
    /// are not there.
    pub(crate) fn check_not_forked(&self) -> Result<(), Error> {
        if self.runtime.is_forked() { Err(EngineError::Forked.into()) } else { Ok(()) }
    }

    pub(crate) fn shards(&self) -> usize {
        self.runtime.shards()
    }

    pub(crate) fn shard_of(&self, key: &Key) -> usize {
        // Of one shard nobody needs a hash.
        if self.shards() == 1 { 0 } else { shard_of(key.encoded(), self.shards()) }
    }

    /// Where an operation goes; what is out of limits goes nowhere.
    pub(crate) fn route(&self, operation: &Operation) -> Route {
        if self.runtime.is_forked() {
            // Before any lock that a thread of the parent may have held.
            return Route::Refused(EngineError::Forked);
        }
        if let Some(reply) = self.expired_reply(operation) {
            return Route::Answered(reply);
        }
        match operation {
            Operation::Get { key, .. } | Operation::Update { key, .. } => Route::Shard(self.shard_of(key)),
            Operation::Write { changes, .. } => self.route_write(changes),
            Operation::Load { records, .. } => {
                let mut shards = records.iter().map(|record| self.shard_of(&record.key));
                match shards.next() {
                    Some(first) if self.shards() == 1 || shards.all(|shard| shard == first) => Route::Shard(first),
                    _ => Route::Refused(EngineError::BadBatch("the keys of a load lie on one shard")),
                }
            }
            Operation::Page(_) | Operation::DeleteRange { .. } | Operation::Snapshot(_) | Operation::Sync
                if self.shards() == 1 =>
            {
                Route::Shard(0)
            }
            // Of one key.
            Operation::Page(request) => match (&request.from, &request.to) {
                (Bound::Included(from), Bound::Included(to)) if from == to => Route::Shard(self.shard_of(from)),
                _ => Route::All,
            },
            Operation::DeleteRange { .. } | Operation::Sync => Route::All,
            // Shard 0 opens it in all of them.
            Operation::Snapshot(SnapshotOp::Open) if self.engine == Engine::Matrix => Route::Shard(BATCHES_SHARD),
            Operation::Snapshot(SnapshotOp::Close(_)) if self.engine == Engine::Matrix => Route::All,
            Operation::Snapshot(_) => Route::Refused(EngineError::Unsupported(Capability::Snapshot)),
            Operation::List(request) if (request.shard as usize) < self.shards() => {
                Route::Shard(request.shard as usize)
            }
            Operation::List(_) => Route::Refused(EngineError::Unsupported(Capability::List)),
            Operation::Backup { shard, .. } if (*shard as usize) < self.shards() => Route::Shard(*shard as usize),
            Operation::Backup { .. } => Route::Refused(EngineError::Unsupported(Capability::Backup)),
        }
    }

    /// The shard of a write's keys, or the one that coordinates those of several shards.
    pub(crate) fn shard_of_write(&self, write: &Operation) -> usize {
        let Operation::Write { changes, .. } = write else { return BATCHES_SHARD };
        let mut shards = changes.iter().map(|change| self.shard_of(&change.key));
        match shards.next() {
            Some(first) if shards.all(|shard| shard == first) => first,
            _ => BATCHES_SHARD,
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
            // Its shards cannot make a batch together.
            Some(_) if !matches!(self.engine, Engine::Slab | Engine::Matrix) => {
                Route::Refused(EngineError::Unsupported(Capability::Batch))
            }
            Some(_) => Route::Shard(BATCHES_SHARD),
            None => Route::Refused(EngineError::BadBatch("it is empty")),
        }
    }

    pub(crate) fn execute(&self, operation: Operation) -> Reply {
        match self.route(&operation) {
            Route::Shard(shard) => self.runtime.execute(shard, operation),
            Route::Refused(error) => Reply::Failed(error),
            Route::Answered(reply) => reply,
            Route::All => block_on(self.execute_on_all::<Blocking>(operation)),
        }
    }

    pub(crate) fn execute_many(&self, operations: Vec<Operation>) -> Vec<Reply> {
        let routed: Vec<_> = operations.into_iter().map(|operation| (self.route(&operation), operation)).collect();
        if let Some(bad) = routed.iter().position(|(route, _)| !matches!(route, Route::Shard(_))) {
            tracing::debug!(bad, "an operation that is not on one key: they are executed one by one");
            return routed.into_iter().map(|(_, operation)| self.execute(operation)).collect();
        }
        let shard = |route| if let Route::Shard(shard) = route { shard } else { 0 };
        self.runtime.execute_many(routed.into_iter().map(|(route, operation)| (shard(route), operation)).collect())
    }

    pub(crate) async fn execute_async(&self, operation: Operation) -> Reply {
        match self.route(&operation) {
            Route::Shard(shard) => self.runtime.execute_async(shard, operation).await,
            Route::Refused(error) => Reply::Failed(error),
            Route::Answered(reply) => reply,
            Route::All => self.execute_on_all::<Awaiting>(operation).await,
        }
    }

    async fn execute_on_all<A: Asking>(&self, operation: Operation) -> Reply {
        match operation {
            Operation::Page(request) => self.execute_page::<A>(&request).await,
            other => sum(A::several(self, self.for_all(&other)).await),
        }
    }

    /// The same operation for every shard.
    fn for_all(&self, operation: &Operation) -> Vec<(usize, Operation)> {
        (0..self.shards()).map(|shard| (shard, operation.clone())).collect()
    }

    /// One page of keys, merged over the shards: no I/O, but where keys are not in memory.
    pub(crate) fn page_of_keys(&self, request: &PageRequest) -> Result<(Vec<Key>, Option<Bound<Key>>), EngineError> {
        if self.is_page_expired(request) {
            return Ok((Vec::new(), None));
        }
        if self.shards() == 1 && !self.gathers() {
            // Nothing is to be merged.
            return match self.execute(Operation::Page(request.clone().into())) {
                Reply::Page { items, next } => Ok(keys_of((items, next))),
                Reply::Failed(error) => Err(error),
                _ => Err(EngineError::Unknown("the engine gave an answer of another kind")),
            };
        }
        block_on(self.keys::<Blocking>(request))
    }

    async fn keys<A: Asking>(&self, request: &PageRequest) -> Result<(Vec<Key>, Option<Bound<Key>>), EngineError> {
        if self.gathers() {
            return self.gather::<A>(request.clone()).await.map(keys_of);
        }
        merged_keys(A::several(self, self.for_all(&Operation::Page(request.clone().into()))).await, request)
    }

    /// Whether pages are gathered ([`Gather`]): keys are not in memory.
    pub(crate) fn gathers(&self) -> bool {
        self.engine == Engine::Matrix
    }

    /// What is to be gathered of a page. Where values lie beside their keys, the records: they are
    /// read with the keys. Where values are reads of their own, the keys: of what a shard gives too
    /// much the values would be read in vain, and the pages of keys are in the cache when the
    /// records are asked for. Which it is the last pages tell: a guess, which costs reads only.
    pub(crate) fn gathered_of(&self, request: &PageRequest) -> PageRequest {
        let keys_only = request.keys_only || self.values_apart.load(Ordering::Relaxed);
        PageRequest { keys_only, ..request.clone() }
    }

    /// Sees how long the values of a page are.
    pub(crate) fn saw(&self, items: &[Item]) {
        if self.gathers() && items.iter().any(|item| item.record.is_some()) {
            let bytes: u64 = items.iter().filter_map(|item| Some(item.record.as_ref()?.value_bytes)).sum();
            self.values_apart.store(bytes >= (BLOB_BYTES_MIN * items.len()) as u64, Ordering::Relaxed);
        }
    }

    async fn gather<A: Asking>(&self, request: PageRequest) -> Result<Page, EngineError> {
        let mut gather = Gather::new(request, self.shards());
        loop {
            let wanted = gather.wants();
            if wanted.is_empty() {
                return Ok(gather.finish());
            }
            let (shards, operations) = operations(wanted);
            let pages = pages_of(A::several(self, operations).await)?;
            shards.into_iter().zip(pages).for_each(|(shard, page)| gather.take(shard, page));
        }
    }

    fn page_reply(&self, page: Result<Page, EngineError>) -> Reply {
        self.seen(page.map_or_else(Reply::Failed, |(items, next)| Reply::Page { items, next }))
    }

    fn seen(&self, reply: Reply) -> Reply {
        if let Reply::Page { items, .. } = &reply {
            self.saw(items);
        }
        reply
    }

    async fn execute_page<A: Asking>(&self, request: &PageRequest) -> Reply {
        let gathered = self.gathered_of(request);
        if self.gathers() && !gathered.keys_only {
            return self.page_reply(self.gather::<A>(gathered).await);
        }
        match self.keys::<A>(&PageRequest { keys_only: true, ..request.clone() }).await {
            Err(error) => Reply::Failed(error),
            Ok((keys, next)) if request.keys_only => keys_page(keys, next),
            Ok((keys, next)) => {
                self.seen(records_page(A::several(self, self.pages(keys, request)).await, request, next))
            }
        }
    }

    /// For each shard the page that has the records of its keys among these.
    pub(crate) fn pages(&self, keys: Vec<Key>, request: &PageRequest) -> Vec<(usize, Operation)> {
        let shares = shares(keys, request, self.shards(), |key| self.shard_of(key)).into_iter();
        shares.map(|share| (share.shard, Operation::Page(share.request.into()))).collect()
    }

    pub(crate) fn close(&self) {
        if self.runtime.is_forked() {
            return;
        }
        if !self.closed.swap(true, Ordering::SeqCst) {
            self.removed();
            self.runtime.close();
            if let Some(Err(error)) = self.files.presence.as_ref().map(Presence::end) {
                tracing::warn!(%error, "when the cache last served could not be noted: the next opening does not know it");
            }
            self.files.unlock();
            match (self.failure(), &self.watcher) {
                (Some(error), _) => {
                    tracing::error!(%error, path = %self.files.path.display(), "the store was not closed in order")
                }
                (None, Some(watcher)) => watcher(&StoreEvent::Closed { path: self.files.path.clone() }),
                (None, None) => {}
            }
        }
    }

    /// See [`Store::failure`](crate::Store::failure).
    pub(crate) fn failure(&self) -> Option<Error> {
        let failure = self.runtime.failure().map(|(_, error)| error.into());
        failure.or_else(|| self.removed().map(|path| Error::Removed { path: path.to_owned() }))
    }

    /// What of the store was removed while it was open. Looks at its files until it has found one.
    fn removed(&self) -> Option<&Path> {
        if self.files.removed.get().is_none()
            && !self.runtime.is_forked()
            && let Some(path) = self.look_for_removed()
        {
            tracing::error!(path = %path.display(), "a file of the store was removed while it is open: what it holds ends with this process");
            // Whoever was faster has found it too.
            let _ = self.files.removed.set(path);
        }
        self.files.removed.get().map(PathBuf::as_path)
    }

    fn look_for_removed(&self) -> Option<PathBuf> {
        let directory = self.files.lock();
        // Once it is let go anybody may remove it.
        let directory = directory.as_ref()?;
        let of_region = || self.files.mapping.as_ref()?.removed().map(Path::to_owned);
        let of_volumes = || self.runtime.removed_volume().map(Path::to_owned);
        directory.is_removed().then(|| self.files.path.clone()).or_else(of_volumes).or_else(of_region)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.runtime.is_forked() {
            // Threads, rings and locks are the parent's: nothing of theirs is dropped here, however
            // many hold them.
            let _runtime = ManuallyDrop::new(Arc::clone(&self.runtime));
            let _mapping = ManuallyDrop::new(self.files.mapping.clone());
            let directory = self.files.directory.get_mut().unwrap_or_else(PoisonError::into_inner);
            let _directory = ManuallyDrop::new(directory.take());
            return;
        }
        self.close();
    }
}

/// Answers of all shards as one: numbers are added up; anything else than success is told.
fn sum(replies: Vec<Reply>) -> Reply {
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

/// Which shards are asked, and what for.
fn operations(wanted: Vec<(usize, PageRequest)>) -> (Vec<usize>, Vec<(usize, Operation)>) {
    wanted.into_iter().map(|(shard, request)| (shard, (shard, Operation::Page(request.into())))).unzip()
}

fn keys_of((items, next): Page) -> (Vec<Key>, Option<Bound<Key>>) {
    (items.into_iter().map(|item| item.key).collect(), next)
}

fn pages_of(replies: Vec<Reply>) -> Result<Vec<Page>, EngineError> {
    let pages = replies.into_iter().map(|reply| match reply {
        Reply::Page { items, next } => Ok((items, next)),
        Reply::Failed(error) => Err(error),
        _ => Err(EngineError::Unknown("the engine gave an answer of another kind")),
    });
    pages.collect()
}

fn merged_keys(replies: Vec<Reply>, request: &PageRequest) -> Result<(Vec<Key>, Option<Bound<Key>>), EngineError> {
    Ok(keys_of(merge_pages(pages_of(replies)?, request.reverse, request.items_max as usize)))
}

fn keys_page(keys: Vec<Key>, next: Option<Bound<Key>>) -> Reply {
    Reply::Page { items: keys.into_iter().map(|key| Item { key, record: None }).collect(), next }
}

/// The shards' pages of records as one; the keys went on at `next`. Records that are gone since
/// their keys were seen are left out, as if the scan had come later.
fn records_page(replies: Vec<Reply>, request: &PageRequest, next: Option<Bound<Key>>) -> Reply {
    match pages_of(replies) {
        Err(error) => Reply::Failed(error),
        Ok(pages) => {
            let (items, cut) = merge_pages(pages, request.reverse, request.items_max as usize);
            Reply::Page { items, next: cut.or(next) }
        }
    }
}
