//! [`Store`]: opening, closing, and what concerns the store as a whole.

use std::ops::{Bound, Deref};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stratakv_base::quantity::format_bytes;
use stratakv_base::{CollectionId, Key, Level};
use stratakv_device::Ring;
use stratakv_engine::{Error as EngineError, MeasuredKind, Operation, Reply, StageReport, Statistic};
use stratakv_runtime::{EvictionListener, RequestLatencies, Runtime};

use crate::catalogue::Names;
use crate::collection::Collection;
use crate::engine::{AnyShard, Engine};
use crate::error::{Error, ErrorKind};
use crate::expiring::Expiring;
use crate::list::ListLocks;
use crate::old_names::add_old_names;
use crate::open;
use crate::options::{Options, Placement};
use crate::order::Orders;
use crate::rejoin::{Presence, Rejoin, Rejoined};
use crate::routing::{Identity, Inner, StoreFiles};
use crate::session::Session;

/// An open cache comes down to so much memory for each shard: with less, blocks for reads alone may
/// be over it.
const RESIZED_SHARD_BYTES_MIN: u64 = 4 << 20;

/// An open store. Clones share it; the last one to go closes it.
///
/// Its keys lie in the default [`Collection`], whose methods it has; [`Store::collection`] gives
/// key spaces of their own.
#[derive(Clone)]
pub struct Store(Collection);

impl Deref for Store {
    type Target = Collection;

    fn deref(&self) -> &Collection {
        &self.0
    }
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
    /// Volumes and regions whose damaged superblock copy was repaired from the good one; of a store
    /// that is open for reading only, is yet to be.
    pub superblocks_repaired: u64,
    /// Damaged places, for people.
    pub corrupt: Vec<String>,
    /// Damaged records whose key cannot be read: a key that is not there may be one of theirs.
    pub lost_unknown: u64,
    /// Places that the device did not give, for people: what lies there may be whole. A store that
    /// is opened for writing is refused instead.
    pub unreadable: Vec<String>,
    /// Bytes by which the region of engine `hash` was made longer, as it was asked for.
    pub grown_bytes: u64,
}

/// The region of a store of [`Engine::Hash`] or [`Engine::Matrix`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Region {
    /// Where it lies: its first file.
    pub path: PathBuf,
    /// All of its files and devices.
    pub paths: Vec<PathBuf>,
    /// Its length.
    pub len_bytes: u64,
    /// What makes what is stored there durable, in words.
    pub domain: String,
    /// Whether what was acknowledged survives a power cut, at the level the store is open at.
    pub survives_power_loss: bool,
    /// Whether it would at [`Level::PowerLoss`].
    pub can_survive_power_loss: bool,
}

impl Store {
    /// Opens the store in directory `path`, creating it if there is none, with the default
    /// [`Options`].
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open(path: impl AsRef<Path>) -> Result<Store, Error> {
        Options::new().open(path)
    }

    /// Options of a store, to be opened by [`Options::open`].
    ///
    /// ```no_run
    /// # fn main() -> Result<(), stratakv::Error> {
    /// let store = stratakv::Store::builder().memory_bytes(256 << 20).open("data")?;
    /// # store.close()
    /// # }
    /// ```
    pub fn builder() -> Options {
        Options::new()
    }

    pub(crate) fn open_with(path: &Path, options: &Options) -> Result<Store, Error> {
        let opened = open::open(path, options)?;
        let store = Store::new(Inner {
            runtime: opened.runtime,
            level: opened.level,
            files: StoreFiles {
                path: opened.directory.path.clone(),
                directory: Some(opened.directory).into(),
                mapping: opened.mapping,
                removed: OnceLock::new(),
                presence: opened.presence,
            },
            identity: opened.identity,
            recovery: opened.recovery,
            read_only: options.read_only,
            names: Names::default(),
            expiring: Expiring::default(),
            list_locks: ListLocks::default(),
            orders: Orders::new(options.orders.clone()),
            closed: false.into(),
            watcher: options.listeners.watcher.clone(),
            region: opened.region,
            engine: opened.engine,
            values_apart: AtomicBool::new(false),
        });
        match store.complete_names() {
            // It is what makes room that could not be done. It is done at the next opening.
            Err(error) if error.kind() == ErrorKind::Full => {
                tracing::warn!(%error, "what dropped collections left could not all be removed");
            }
            done => done?,
        }
        Ok(store)
    }

    /// What an opening does about collections: finishes drops, learns what expires. For
    /// simulations; [`Options::open`] does it.
    ///
    /// # Errors
    /// As [`Collection::delete_range`].
    #[doc(hidden)]
    pub fn complete_names(&self) -> Result<(), Error> {
        if self.inner().has_names().is_err() {
            return Ok(());
        }
        let finished = if self.inner().read_only { Ok(()) } else { self.finish_drops() };
        match (finished, self.load_expiring()) {
            // Of the two, a full store is the one that an opening survives.
            (Err(error), Err(full)) if full.kind() == ErrorKind::Full => Err(error),
            (finished, loaded) => loaded.and(finished),
        }
    }

    /// A store over a runtime that somebody else has put together, without a directory: for
    /// simulations.
    #[doc(hidden)]
    pub fn over(runtime: Arc<Runtime<AnyShard>>, level: Level, engine: Engine) -> Store {
        Store::new(Inner {
            runtime,
            level,
            files: StoreFiles::default(),
            identity: Identity::default(),
            recovery: RecoverySummary::default(),
            read_only: false,
            names: Names::default(),
            expiring: Expiring::default(),
            list_locks: ListLocks::default(),
            orders: Orders::default(),
            closed: false.into(),
            watcher: None,
            region: None,
            engine,
            values_apart: AtomicBool::new(false),
        })
    }

    fn new(inner: Inner) -> Store {
        Store(Collection::new(Arc::new(inner), CollectionId::default(), None))
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        self.0.inner()
    }

    /// The store's directory.
    pub fn path(&self) -> &Path {
        &self.inner().files.path
    }

    /// Its own, drawn when it was created, in 32 hexadecimal digits. A restored store has another
    /// one than the store of its backup.
    pub fn uuid(&self) -> &str {
        &self.inner().identity.uuid
    }

    /// What opening found.
    pub fn recovery(&self) -> &RecoverySummary {
        &self.inner().recovery
    }

    /// How a cache (engine `tier`) that is open for writing came back; `None` of another store.
    pub fn rejoined(&self) -> Option<Rejoined> {
        self.inner().files.presence.as_ref().map(Presence::rejoined)
    }

    /// Notes that a cache serves now, for [`Rejoin::WarmWithin`](crate::Rejoin::WarmWithin) of the
    /// next opening. Who calls it once calls it every second for as long as clients are served, and
    /// not while it drains: the cache counts as away from the last call on. Without any call it
    /// counts as away from its orderly end on, if [`Options::rejoin`] was given, else as before.
    /// For another store, and in a forked child, nothing is done. One write without a flush.
    ///
    /// # Errors
    /// The file could not be written.
    pub fn note_presence(&self) -> std::io::Result<()> {
        let presence = self.inner().files.presence.as_ref().filter(|_| !self.is_forked());
        presence.map_or(Ok(()), Presence::tell)
    }

    /// What a cache that is open for writing does if it was away, as [`Options::rejoin`] says;
    /// `None` of another store.
    pub fn rejoin(&self) -> Option<Rejoin> {
        self.inner().files.presence.as_ref().map(Presence::how)
    }

    /// Notes that a cache was away while it ran, and is to be emptied: until
    /// [`Store::return_empty`] has done so nobody knows how long it was away, and
    /// [`Store::note_presence`] notes nothing. So [`Rejoin::WarmWithin`] and [`Rejoin::Cold`] empty
    /// it at the next opening, however this one ends. Durable when it returns. For another store,
    /// and in a forked child, nothing is done.
    ///
    /// # Errors
    /// The file could not be written. May be tried again.
    pub fn note_absence(&self) -> std::io::Result<()> {
        let presence = self.inner().files.presence.as_ref().filter(|_| !self.is_forked());
        presence.map_or(Ok(()), Presence::leave)
    }

    /// A cache that was away while it ran drops all that it has, of every collection, and gets
    /// another epoch: [`Store::rejoined`] tells it. Who calls it serves nobody meanwhile. It does
    /// what [`Store::note_absence`] does first.
    ///
    /// # Errors
    /// It could not be dropped, or not be noted: the cache may have all that it had. May be tried
    /// again.
    pub fn return_empty(&self, absence: Option<Duration>) -> Result<Rejoined, Error> {
        let presence = self.inner().files.presence.as_ref().filter(|_| !self.is_forked());
        let refused = || Error::Option("only a cache (engine `tier`) that is open for writing returns empty".into());
        let presence = presence.ok_or_else(refused)?;
        let noted = |what| move |error| Error::Io { what, path: self.path().to_owned(), error };
        presence.leave().map_err(noted("note that the cache was away in"))?;
        let range = Box::new((Bound::Unbounded, Bound::Unbounded));
        match self.execute(Operation::DeleteRange { range, level: self.default_level() }) {
            Reply::Failed(error) => Err(error.into()),
            _ => presence.return_empty(absence).map_err(noted("note that the cache is empty, and serves, in")),
        }
    }

    /// Its engine.
    pub fn engine(&self) -> Engine {
        self.inner().engine
    }

    /// Where it puts small records, if its engine is [`Engine::Slab`].
    pub fn placement(&self) -> Option<Placement> {
        self.inner().identity.placement
    }

    /// Its region, if its engine has one.
    pub fn region(&self) -> Option<&Region> {
        self.inner().region.as_ref()
    }

    /// The durability level of writes that name none.
    pub fn default_level(&self) -> Level {
        self.inner().level
    }

    /// Number of shards.
    pub fn shards(&self) -> usize {
        self.inner().shards()
    }

    /// The shard that owns a key.
    pub fn shard_of(&self, key: &Key) -> usize {
        self.inner().shard_of(key)
    }

    /// The shard that takes a write of one key or several: the owner of all its keys, or the one
    /// that coordinates batches.
    pub fn shard_of_write(&self, write: &Operation) -> usize {
        self.inner().shard_of_write(write)
    }

    /// The level of several changes as one: power loss on disks, whatever the store's own is.
    pub fn batch_level(&self) -> Level {
        self.inner().batch_level()
    }

    /// Any operation, in the calling thread.
    pub fn execute(&self, operation: Operation) -> Reply {
        self.inner().execute(operation)
    }

    /// Any operation, as a future for any runtime. A hit in the cache is answered at the first
    /// poll.
    pub async fn execute_async(&self, operation: Operation) -> Reply {
        self.inner().execute_async(operation).await
    }

    /// Several operations on single keys; their I/O overlaps. Replies are in the order asked.
    pub fn execute_many(&self, operations: Vec<Operation>) -> Vec<Reply> {
        self.inner().execute_many(operations)
    }

    /// A session: submit and poll, with a ring of the calling thread's own.
    ///
    /// # Errors
    /// The ring could not be made.
    pub fn session(&self) -> Result<Session, Error> {
        let mut driver = self.driver()?;
        driver.leave_background();
        Ok(self.session_over(driver))
    }

    /// A shard breaks in its next tick, as by a panic: see [`Runtime::break_shard`]. For tests.
    #[doc(hidden)]
    pub fn break_shard(&self, shard: usize, stage: u8) {
        self.inner().runtime.break_shard(shard, stage);
    }

    /// A session over a given driver: for simulations.
    #[doc(hidden)]
    pub fn session_over(&self, driver: crate::raw::Driver) -> Session {
        Session::new(self.clone(), driver)
    }

    /// A driver: what sessions and servers are built on.
    ///
    /// # Errors
    /// The ring could not be made.
    pub fn driver(&self) -> Result<crate::raw::Driver, Error> {
        self.driver_with(Ok)
    }

    /// The same, over a ring that `wrap` makes of the store's.
    ///
    /// # Errors
    /// A ring could not be made.
    #[doc(hidden)]
    pub fn driver_with(
        &self,
        wrap: impl FnOnce(Box<dyn Ring + Send>) -> std::io::Result<Box<dyn Ring + Send>>,
    ) -> Result<crate::raw::Driver, Error> {
        self.inner().runtime.driver_with(wrap).map_err(|error| Error::Io {
            what: "set up a ring for",
            path: self.inner().files.path.clone(),
            error,
        })
    }

    /// Keeps the calling thread near the region, where that lies on several nodes of the machine
    /// (NUMA): on the processors of one of them, in turn by `number`, for as long as the thread
    /// lives. What it writes goes there while there is room. Else it does nothing. For threads that
    /// serve the store and nothing else.
    pub fn stay_near(&self, number: usize) {
        self.inner().runtime.stay_near(number);
    }

    /// Most bytes of blocks that the shard with the fewest may have; `None` for an engine that has
    /// no blocks. For servers, which lend some to clients.
    #[doc(hidden)]
    pub fn block_bytes_min(&self) -> Option<u64> {
        self.inner().runtime.block_bytes_min()
    }

    /// Counters and gauges, added over the shards. None in a forked child.
    pub fn stats(&self) -> Vec<Statistic> {
        let mut all = self.inner().runtime.statistics();
        // Of the other engines each shard has taken its own away.
        if self.inner().engine == Engine::Matrix && !all.is_empty() {
            take_away(&mut all, self.catalogue_records());
        }
        if !all.is_empty() {
            all.extend(self.inner().files.presence.iter().flat_map(Presence::statistics));
        }
        add_old_names(&mut all);
        all
    }

    /// What requests to the volumes took since the store was opened, by kind. Empty for engine
    /// `hash`, which has none. Costs a pass over the threads with a ring.
    pub fn request_latencies(&self) -> RequestLatencies {
        self.inner().runtime.request_latencies()
    }

    /// Where the time of operations of a kind went since the store was opened, by stage, from the
    /// tick that took them to the one that answered: of one in sixteen. Empty for engine `hash`.
    /// Costs a pass over the shards.
    pub fn stages(&self, kind: MeasuredKind) -> StageReport {
        self.inner().runtime.stages(kind)
    }

    /// Counters and gauges of one shard: a hot one shows.
    pub fn shard_stats(&self, shard: usize) -> Vec<Statistic> {
        let mut all = self.inner().runtime.statistics_of(shard);
        add_old_names(&mut all);
        all
    }

    /// Says who is told of the records that a cache (engine `tier`) drops from memory for want of
    /// room, or that nobody is any more: in whatever thread they are dropped, so it must not wait.
    /// There is one listener: a server over this store takes its place while a client of it watches
    /// evictions. What goes later, with the oldest of its volume, is counted (`evictions`) and not
    /// told: its keys are not in memory.
    pub fn listen_to_evictions(&self, listener: Option<EvictionListener>) {
        self.inner().runtime.listen_to_evictions(listener);
    }

    /// Changes the cap on the memory of a cache (engine `tier`) while it is open, as
    /// [`Options::memory_bytes`](crate::Options::memory_bytes) says it at an opening: all shards
    /// together. It is in force when this returns, and what is held comes down to a lower one
    /// within the next ticks: what was used least goes first, and no write is refused meanwhile,
    /// but for values that are too long for it. The next opening has its own.
    ///
    /// # Errors
    /// [`Error::Option`]: another engine, a cache that is open for reading, or less than 4 MiB for
    /// a shard.
    pub fn set_memory_bytes(&self, bytes: u64) -> Result<(), Error> {
        let inner = self.inner();
        let refuse = |why: String| Err(Error::Option(why));
        if inner.engine != Engine::Tier || inner.read_only {
            let what = if inner.read_only { "a store that is open for reading" } else { inner.engine.name() };
            return refuse(format!("the memory of {what} is fixed while it is open: open it with another --memory"));
        }
        let shards = inner.runtime.shards() as u64;
        if bytes / shards < RESIZED_SHARD_BYTES_MIN {
            let (least, has) = (format_bytes(shards * RESIZED_SHARD_BYTES_MIN), format_bytes(bytes));
            return refuse(format!(
                "{has} of memory are too little for {shards} shards of a cache: give at least {least}"
            ));
        }
        inner.runtime.set_shard_memory_bytes(bytes / shards);
        Ok(())
    }

    /// Makes every acknowledged write durable at power loss, whatever its level was. On a medium
    /// that no power cut survives (tmpfs), there is nothing to make durable, and it answers `Ok`.
    ///
    /// # Errors
    /// The medium failed, now or earlier: see [`Store::failure`].
    pub fn sync(&self) -> Result<(), Error> {
        match self.execute(Operation::Sync) {
            Reply::Failed(error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Whether this process was forked from the one that opened the store. Then every operation is
    /// answered [`EngineError::Forked`], and dropping the store does nothing. Costs a load.
    pub fn is_forked(&self) -> bool {
        self.inner().runtime.is_forked()
    }

    /// Why the store, or a shard of it, takes no more writes until it is opened again: its medium
    /// failed under a write, a flush or the end of the store, or a defect stopped a shard. Or its
    /// files were removed while it is open. Once there is a failure it stays, after
    /// [`Store::close`] too. It takes some system calls.
    pub fn failure(&self) -> Option<Error> {
        self.inner().failure()
    }

    /// Finishes what is in flight, makes it durable, and lets the directory go. Other clones answer
    /// `Closed` from then on. Idempotent.
    ///
    /// # Errors
    /// What [`Store::failure`] tells then: the end was not orderly. The store is closed all the
    /// same; open it again to see what it holds.
    pub fn close(&self) -> Result<(), Error> {
        self.inner().check_not_forked()?;
        self.inner().close();
        self.failure().map_or(Ok(()), Err)
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.inner().files.path.display())
    }
}

/// Leaves the catalogue out of the records, and tells of it besides.
pub(crate) fn take_away(statistics: &mut Vec<Statistic>, catalogue_records: u64) {
    for records in statistics.iter_mut().filter(|one| one.name == "records") {
        records.value = records.value.saturating_sub(catalogue_records);
    }
    statistics.push(Statistic { name: "catalogue_records", value: catalogue_records });
}

/// The engine answered what no engine should.
pub(crate) fn unexpected_reply() -> Error {
    EngineError::Unknown("the engine gave an answer of another kind").into()
}
