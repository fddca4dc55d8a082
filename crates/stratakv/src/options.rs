//! How to open a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stratakv_base::Level;
use stratakv_base::limits::SHARDS_MAX;
use stratakv_base::quantity::{format_bytes, format_count};
pub use stratakv_device::ring::RingKind as IoBackend;
pub use stratakv_matrix::Compression;
use stratakv_runtime::Clock;

use crate::backup::Restoring;
use crate::engine::Engine;
use crate::error::Error;
use crate::events::{StoreEvent, Watcher};
use crate::order::{self, Order};
use crate::region;
use crate::rejoin::Rejoin;
use crate::store::Store;

mod asked;

pub(crate) use asked::{Asked, Whose};

/// Where engine `slab` lays small records. Fixed when a store is created, and kept in its manifest
/// and superblocks: `packed` is an engine of its own under this name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// KVell's: an item stays in its page; a changed page goes to a free one.
    #[default]
    InPlace,
    /// Batches back to back, in a log of segments that is cleaned a little with each batch.
    Packed,
}

impl Placement {
    /// As options and reports write it.
    pub fn name(self) -> &'static str {
        match self {
            Placement::InPlace => "in_place",
            Placement::Packed => "packed",
        }
    }
}

/// How far opening is, summed over the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenProgress {
    /// Bytes read.
    pub done_bytes: u64,
    /// Bytes to read.
    pub total_bytes: u64,
}

/// The least memory of a shard: with less, the index takes no key.
const SHARD_MEMORY_BYTES_MIN: u64 = 1 << 20;

pub(crate) type Watch = Arc<dyn Fn(OpenProgress) + Send + Sync>;

/// Options of a store. Behaviour first, tuning last.
///
/// An option that the store's engine does not have is refused with [`Error::Option`], whether the
/// engine was asked for or is that of a store that exists.
#[derive(Clone)]
pub struct Options {
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) read_only: bool,
    pub(crate) level: Option<Level>,
    pub(crate) shards: Option<usize>,
    pub(crate) capacity_bytes: Option<u64>,
    pub(crate) memory_bytes: u64,
    pub(crate) engine: Option<Engine>,
    /// What not every engine has.
    pub(crate) asked: Asked,
    pub(crate) places: Places,
    pub(crate) tuning: Tuning,
    pub(crate) listeners: Listeners,
    pub(crate) orders: Vec<Order>,
    pub(crate) clock: Clock,
    pub(crate) purpose: OpenPurpose,
}

/// Where volumes lie.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// Beside the one that is opened.
    pub(crate) more_directories: Vec<PathBuf>,
    pub(crate) devices: Vec<PathBuf>,
}

/// What carries the I/O.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    pub(crate) io: IoBackend,
    pub(crate) depth: u32,
    pub(crate) reactors: Option<usize>,
}

/// Who is told what happens.
#[derive(Clone, Default)]
pub(crate) struct Listeners {
    pub(crate) progress: Option<Watch>,
    pub(crate) watcher: Option<Watcher>,
}

/// What a store is opened for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum OpenPurpose {
    #[default]
    Use,
    /// A restore opens what nobody else may.
    Restore(Restoring),
    /// It is opened although its region may be lost. `accepts`: a new region is made; else what
    /// would be lost is told, and nothing is changed.
    Repair { accepts: bool },
}

impl Default for Options {
    fn default() -> Self {
        Options {
            create: true,
            create_new: false,
            read_only: false,
            level: None,
            shards: None,
            capacity_bytes: None,
            memory_bytes: 1 << 30,
            engine: None,
            asked: Asked::default(),
            places: Places::default(),
            tuning: Tuning { io: IoBackend::Auto, depth: 128, reactors: None },
            listeners: Listeners::default(),
            orders: Vec::new(),
            clock: Clock::System,
            purpose: OpenPurpose::Use,
        }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Options {
        Options::default()
    }

    /// Create the store if there is none. Default: true.
    #[must_use]
    pub fn create(mut self, yes: bool) -> Options {
        self.create = yes;
        self
    }

    /// Create the store; fail if there is one. Default: false.
    #[must_use]
    pub fn create_new(mut self, yes: bool) -> Options {
        self.create_new = yes;
        self
    }

    /// Open for reading: nothing on the medium is changed. Default: false.
    #[must_use]
    pub fn read_only(mut self, yes: bool) -> Options {
        self.read_only = yes;
        self
    }

    /// When writes are acknowledged. Default: [`Level::PowerLoss`]; with [`Engine::Tier`], which
    /// has no other, [`Level::Memory`]. A store on a medium that loses writes in a power cut, such
    /// as tmpfs, remembers [`Level::ProcessCrash`] once that was asked for.
    #[must_use]
    pub fn level(mut self, level: Level) -> Options {
        self.level = Some(level);
        self
    }

    /// The engine; fixed at creation. Default: [`Engine::Slab`] for a new store, and whatever a
    /// store that exists has; to ask for another one of that is an error.
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Options {
        self.engine = Some(engine);
        self
    }

    /// Length of the region of a store of [`Engine::Hash`] or [`Engine::Matrix`], in bytes: a
    /// multiple of 4096, at least 1 MiB. That of `Hash` holds all its records; that of `Matrix`
    /// what is on its way to its volumes, best a tenth of the data, and its length is fixed.
    /// Default of a new store: half of what is free where it lies, at most 1 GiB; of a device all
    /// of it. That of a store of `Hash` that exists grows to that length before it is opened, up to
    /// 63 times ([`RecoverySummary::grown_bytes`](crate::RecoverySummary::grown_bytes)); a shorter
    /// length, and another one on a device, is an error.
    #[must_use]
    pub fn region_bytes(mut self, bytes: u64) -> Options {
        self.asked.region.bytes = Some(bytes);
        self
    }

    /// Of the region of a new store of [`Engine::Matrix`], so many bytes are for *PMEM levels*: the
    /// first levels of its tables lie there and not on its volumes, which are written less. The
    /// rest, at least 8 MiB for each shard, is for what is on its way. Fixed at creation. Default:
    /// none.
    #[must_use]
    pub fn pmem_levels_bytes(mut self, bytes: u64) -> Options {
        self.asked.pmem_levels_bytes = Some(bytes);
        self
    }

    /// The old name of [`Options::pmem_levels_bytes`].
    #[doc(hidden)]
    #[deprecated(note = "use `pmem_levels_bytes`")]
    #[must_use]
    pub fn layer_bytes(self, bytes: u64) -> Options {
        self.pmem_levels_bytes(bytes)
    }

    /// Whether a store of [`Engine::Matrix`] compresses the tables that it writes from now on.
    /// Remembered; what is there is read whatever it is, and changes when it is compacted. Values
    /// of 512 bytes and more lie apart from the tables and are never compressed. Default of a new
    /// store: [`Compression::None`].
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Options {
        self.asked.compression = Some(compression);
        self
    }

    /// Whether an orderly end of a store of [`Engine::Tier`] without a second tier (a capacity of
    /// 0, which is what a new one has then) saves its memory in its volumes, for the next opening
    /// to load. The volumes are not used in between; loaded data leaves them. After a kill the
    /// saved data is not used. On tmpfs, memory and saved data take turns in one memory.
    /// Remembered. Default of a new store: no, and a restart finds nothing.
    #[must_use]
    pub fn save_at_shutdown(mut self, yes: bool) -> Options {
        self.asked.saves_at_shutdown = Some(yes);
        self
    }

    /// What a store of [`Engine::Tier`] that was away begins with. Default: [`Rejoin::Warm`]. Not
    /// remembered. What it found is told by [`Store::rejoined`].
    #[must_use]
    pub fn rejoin(mut self, how: Rejoin) -> Options {
        self.asked.rejoin = Some(how);
        self
    }

    /// The old name of [`Options::save_at_shutdown`].
    #[doc(hidden)]
    #[deprecated(note = "use `save_at_shutdown`")]
    #[must_use]
    pub fn park(self, yes: bool) -> Options {
        self.save_at_shutdown(yes)
    }

    /// Where the region of a store of [`Engine::Hash`] or [`Engine::Matrix`] lies if not in its
    /// directory: a file that is made, on a file system mounted with DAX, say, or a devdax device
    /// (`/dev/dax0.0`), whose first and last MiB are zero. Remembered; later it says where the
    /// region is now, and that is remembered too, unless the store is opened for reading only.
    #[must_use]
    pub fn region_path(self, path: impl Into<PathBuf>) -> Options {
        self.region_paths([path])
    }

    /// As [`Options::region_path`], of a region in several files or devices, one on each node of
    /// the machine (NUMA), say: all on memory of one sort. Each file gets an equal share of
    /// [`Options::region_bytes`], a device is taken whole. Of a store that exists, one more is
    /// added to the region: a file if a longer region is asked for, a device always.
    #[must_use]
    pub fn region_paths<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Options {
        self.asked.region.paths = paths.into_iter().map(Into::into).collect();
        self
    }

    /// The nodes of the machine that the paths of the region lie on, one for each, in their order.
    /// Persistent memory says it itself; new space on tmpfs or of huge pages is taken from there.
    /// Not remembered.
    #[must_use]
    pub fn region_nodes(mut self, nodes: impl IntoIterator<Item = u32>) -> Options {
        self.asked.region.nodes = nodes.into_iter().collect();
        self
    }

    /// Another clock: for tests of what expires.
    #[doc(hidden)]
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Options {
        self.clock = clock;
        self
    }

    /// Number of shards, 1 to 1,024; fixed at creation. Default: the number of cores;
    /// [`Engine::Hash`] has one and is refused more, and [`Engine::Matrix`] has one by default. A
    /// store that exists keeps its own number.
    #[must_use]
    pub fn shards(mut self, shards: usize) -> Options {
        self.shards = Some(shards);
        self
    }

    /// Where [`Engine::Slab`] puts small records; fixed at creation. Default:
    /// [`Placement::InPlace`], whatever the disk; a restored store has that of its backup. A store
    /// of `Slab` that exists keeps its own, whatever is asked for. With another engine
    /// [`Placement::Packed`] is refused.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Options {
        self.asked.placement = Some(placement);
        self
    }

    /// Most bytes the store may take on disk; 0 for no limit, with [`Engine::Tier`] for no second
    /// tier. Default: no limit but the disk's; with `Tier` eight times the memory. A cache whose
    /// capacity is changed begins empty, and its files are cut to the new length. Refused, but for
    /// 0, with [`Engine::Hash`], which takes what its region has.
    #[must_use]
    pub fn capacity_bytes(mut self, bytes: u64) -> Options {
        self.capacity_bytes = Some(bytes);
        self
    }

    /// Cap on index, cache and I/O buffers together, at least 1 MiB for each shard. Default: 1 GiB.
    /// Of [`Engine::Hash`] on the index: beyond it new keys are refused, up to 100 ms late, and the
    /// region is not counted.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: u64) -> Options {
        self.memory_bytes = bytes;
        self
    }

    /// What carries the I/O. Default: io_uring, or threads where it is refused.
    #[must_use]
    pub fn io(mut self, io: IoBackend) -> Options {
        self.tuning.io = io;
        self
    }

    /// Most requests in flight on the device, divided over the shards. Default: 128. KVell's choice
    /// was 64 (98 % of bandwidth); pages of scans ask for several reads at once, and shards are not
    /// always asked evenly: with 128 a cloud disk gave scans 10 to 25 % more, and gets and updates
    /// with 256 callers 10 to 30 %.
    #[must_use]
    pub fn depth(mut self, requests: u32) -> Options {
        self.tuning.depth = requests;
        self
    }

    /// Background threads for futures and timers. Default: one for each core, at most one for each
    /// shard.
    #[must_use]
    pub fn cores(mut self, threads: usize) -> Options {
        self.tuning.reactors = Some(threads);
        self
    }

    /// More data directories, on other disks: the shards are spread over them and the one that is
    /// opened, in turn. Fixed at creation; later the store finds them where they were, or, if some
    /// are named here, where these are, in any order. Refused with [`Engine::Hash`], which has no
    /// volumes, as [`Options::devices`] is.
    #[must_use]
    pub fn data_directories(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Options {
        self.places.more_directories = paths.into_iter().map(Into::into).collect();
        self
    }

    /// The old name of [`Options::data_directories`].
    #[doc(hidden)]
    #[deprecated(note = "use `data_directories`")]
    #[must_use]
    pub fn further_directories(self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Options {
        self.data_directories(paths)
    }

    /// Raw block devices for the volumes: shard *n* lies on device *n* modulo their number, and the
    /// directory that is opened holds what the store is and its lock. A new store takes devices
    /// whose first and last MiB are zero, and that nobody uses. Fixed at creation; later the store
    /// finds them where they were, or, if some are named here, where these are, in any order. A
    /// name that stays (`/dev/disk/by-id/..`) is best.
    ///
    /// An NVMe namespace's character device (`/dev/ng0n1`) takes NVMe commands by io_uring, past
    /// the block layer. It is the same device as its block device: a store opens on either.
    #[must_use]
    pub fn devices(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Options {
        self.places.devices = paths.into_iter().map(Into::into).collect();
        self
    }

    /// As [`Options::devices`], of NVMe controllers that this process drives itself by VFIO: each
    /// by its PCI address, `0000:05:00.0`, for its first namespace, or `0000:05:00.0/2` for its
    /// second. The controller must be bound to vfio-pci (`stratakv doctor --nvme` tells how); one
    /// process has it at a time. docs/bypass.md tells when that pays.
    #[must_use]
    pub fn nvme(self, addresses: impl IntoIterator<Item = impl AsRef<str>>) -> Options {
        let name = |address: &str| PathBuf::from(format!("nvme:{}", address.strip_prefix("nvme:").unwrap_or(address)));
        self.devices(addresses.into_iter().map(|address| name(address.as_ref())))
    }

    /// Registers an order, for collections that are in it or will be
    /// ([`Store::collection_in_order`]); once for each order.
    #[must_use]
    pub fn order(mut self, order: Order) -> Options {
        self.orders.push(order);
        self
    }

    /// Called when something happens that an operator wants to hear of: the store opened, grew, is
    /// full, met damage, failed, closed. It is called in whatever thread found out, with no lock
    /// held; it must not wait, nor call the store (hand the event to a thread of yours by a
    /// channel).
    #[must_use]
    pub fn on_event(mut self, watcher: Arc<dyn Fn(&StoreEvent) + Send + Sync>) -> Options {
        self.listeners.watcher = Some(watcher);
        self
    }

    /// Called now and then while the store is recovered, checked or restored.
    #[must_use]
    pub fn progress(mut self, watch: Arc<dyn Fn(OpenProgress) + Send + Sync>) -> Options {
        self.listeners.progress = Some(watch);
        self
    }

    /// Opens the store in directory `path`.
    ///
    /// # Errors
    /// See [`Error`]. Nothing on disk is changed by a failed open of an existing store, except that
    /// a damaged copy of a superblock may have been repaired from the good one. A creation that is
    /// refused leaves the directories as they were; on raw devices its marks stay until it is tried
    /// again.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store, Error> {
        self.check()?;
        Store::open_with(path.as_ref(), self)
    }

    /// The level of writes that name none.
    pub(crate) fn level_of(&self, engine: Engine) -> Level {
        self.level.unwrap_or(if engine == Engine::Tier { Level::Memory } else { Level::PowerLoss })
    }

    /// The same, of an engine that is durable.
    pub(crate) fn durable_level(&self) -> Level {
        self.level.unwrap_or(Level::PowerLoss)
    }

    /// Whether the engine has the level that was asked for.
    pub(crate) fn check_level(&self, engine: Engine) -> Result<(), Error> {
        let why = match (self.level, engine) {
            (Some(Level::Memory), Engine::Tier) | (None, _) => return Ok(()),
            (Some(_), Engine::Tier) => {
                "the engine `tier` is a cache: it acknowledges writes from memory. Ask for durability memory, or leave it out; the engine `slab` is durable"
            }
            (Some(Level::Memory), _) => {
                "durability `memory` is offered by the engine `tier` only: use power_loss or process_crash"
            }
            (Some(_), _) => return Ok(()),
        };
        Err(Error::Option(why.into()))
    }

    /// Whether a cache with a second tier of so many bytes can save its memory at shutdown.
    pub(crate) fn check_saving(&self, engine: Engine, cache_bytes: Option<u64>) -> Result<(), Error> {
        let cache_bytes = cache_bytes.filter(|bytes| *bytes > 0);
        match cache_bytes.filter(|_| engine == Engine::Tier && self.asked.saves_at_shutdown == Some(true)) {
            None => Ok(()),
            Some(bytes) => Err(Error::Option(format!(
                "a cache with a second tier, of {} here, writes its memory there at a clean shutdown already: leave out --save-at-shutdown, or the second tier (--capacity 0)",
                format_bytes(bytes)
            ))),
        }
    }

    /// Whether that many shards can live on the memory. `hash` has no such least.
    pub(crate) fn check_memory(&self, engine: Engine, shards: u32) -> Result<(), Error> {
        let least = u64::from(shards) * SHARD_MEMORY_BYTES_MIN;
        if self.memory_bytes >= least || engine == Engine::Hash {
            return Ok(());
        }
        let each = format_bytes(SHARD_MEMORY_BYTES_MIN);
        Err(Error::Option(format!(
            "{} of memory are too little for {}: give at least {}, {each} for each; keys and cache want far more",
            format_bytes(self.memory_bytes),
            format_count(u64::from(shards), "shard"),
            format_bytes(least)
        )))
    }

    /// Whether they are for this engine, which the store has or will have; `cache_bytes` is what it
    /// remembers of its second tier.
    pub(crate) fn check_of(&self, engine: Engine, whose: Whose<'_>, cache_bytes: Option<u64>) -> Result<(), Error> {
        self.check_level(engine)?;
        self.asked.check(engine, whose)?;
        self.check_saving(engine, self.capacity_bytes.or(cache_bytes))?;
        if engine.has_region() { region::check_options(engine, self) } else { Ok(()) }
    }

    /// Whether they make sense whatever the store.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |why: String| Err(Error::Option(why));
        if let Some(shards) = self.shards.filter(|shards| !(1..=SHARDS_MAX).contains(shards)) {
            return refuse(format!("{shards} shards: a store has 1 to {SHARDS_MAX}"));
        }
        if !self.places.devices.is_empty() && !self.places.more_directories.is_empty() {
            return refuse(
                "a store's volumes lie in directories or on devices, not on both: name one directory, or no device"
                    .into(),
            );
        }
        if let Some(engine) = self.engine {
            self.check_of(engine, Whose::Asked, None)?;
        }
        order::check(&self.orders)?;
        if !(1..=4096).contains(&self.tuning.depth) {
            return refuse(format!("depth {}: 1 to 4096 requests may be in flight", self.tuning.depth));
        }
        Ok(())
    }
}
