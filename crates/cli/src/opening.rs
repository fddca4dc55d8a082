//! Opening the store that a command works on.

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use stratakv::{
    Collection, Compression, Engine, Error, IoBackend, Kind, Level, Options, Order, OrderError, Placement, Store,
};
use stratakv_base::quantity::format_bytes;
use stratakv_device::nvme::NvmeName;

use crate::doctor::choose_placement;
use crate::failure::{Exit, Failure, backup_there, holds_backup};
use crate::memory;
use crate::progress;
use crate::say::say;

/// Which store.
#[derive(Args)]
pub(crate) struct DataArguments {
    /// The store's directory; more than once to spread a new store over several disks
    #[arg(long, value_name = "DIR", env = "STRATAKV_DATA", default_value = "./stratakv-data")]
    data: Vec<PathBuf>,
    /// A raw block device for the volumes, or an NVMe namespace's character device (/dev/ng0n1),
    /// which takes commands past the block layer; repeat it for several. For an existing store:
    /// where the device is now. --data then holds the store's description only
    #[arg(long, value_name = "DEVICE")]
    device: Vec<PathBuf>,
    /// An NVMe controller that is bound to vfio-pci, by its PCI address, for the volumes: this
    /// process drives it itself. As --device otherwise; `stratakv doctor --nvme` tells how to bind
    #[arg(long, value_name = "ADDRESS", value_parser = nvme_name)]
    nvme: Vec<PathBuf>,
    /// The region's file or devdax device [default: in the store's directory]. For an existing
    /// store: where it is now. With `hash`, repeat it for several, such as one on each NUMA node. A
    /// path that is new to an existing region is added to it: a device, or a file with a longer
    /// --region
    #[arg(long, value_name = "PATH", conflicts_with_all = ["device", "nvme"])]
    region_path: Vec<PathBuf>,
    /// The NUMA node of each --region-path, in the same order, for memory that does not report its
    /// node: tmpfs and huge pages
    #[arg(long, value_name = "NUMBER", requires = "region_path")]
    region_node: Vec<u32>,
}

fn nvme_name(text: &str) -> Result<PathBuf, String> {
    NvmeName::parse(text).map(|name| name.to_string().into()).map_err(|error| error.to_string())
}

impl DataArguments {
    /// The first directory named.
    pub(crate) fn first(&self) -> &Path {
        self.data.first().map_or(Path::new("./stratakv-data"), PathBuf::as_path)
    }

    /// All of them, the first one first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Path> {
        [self.first()].into_iter().chain(self.more_directories().iter().map(PathBuf::as_path))
    }

    /// Raw devices.
    pub(crate) fn devices(&self) -> Vec<PathBuf> {
        self.device.iter().chain(&self.nvme).cloned().collect()
    }

    /// Where the region is, if that was said.
    pub(crate) fn regions(&self) -> &[PathBuf] {
        &self.region_path
    }

    /// The others.
    pub(crate) fn more_directories(&self) -> &[PathBuf] {
        self.data.get(1..).unwrap_or_default()
    }
}

/// How to open it.
#[derive(Args)]
pub(crate) struct OpenArguments {
    #[command(flatten)]
    pub(crate) data: DataArguments,
    /// Cap on index, cache and I/O buffers together
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = stratakv_base::quantity::parse_bytes)]
    pub(crate) memory: u64,
    /// What carries the I/O
    #[arg(long, value_enum, default_value_t)]
    pub(crate) io: Io,
}

/// When writes are acknowledged.
#[derive(Args)]
pub(crate) struct DurabilityArguments {
    /// What an acknowledged write survives [default: power_loss; with engine `tier` memory, its
    /// only level]
    #[arg(long, value_enum)]
    durability: Option<Durability>,
}

impl DurabilityArguments {
    /// The options, at the level that was asked for.
    pub(crate) fn add_to(&self, options: Options) -> Options {
        match self.durability {
            Some(durability) => options.level(durability.into()),
            None => options,
        }
    }

    /// The level, if one was asked for.
    pub(crate) fn level(&self) -> Option<Level> {
        self.durability.map(Level::from)
    }

    /// Whether that was asked for.
    pub(crate) fn is_process_crash(&self) -> bool {
        matches!(self.durability, Some(Durability::ProcessCrash))
    }
}

/// Which key space.
#[derive(Args)]
pub(crate) struct CollectionArguments {
    /// The collection; without it, the default one
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
}

impl CollectionArguments {
    /// It must be there. Of a list, the records of its elements. One in an order that this program
    /// does not know, as it is stored.
    pub(crate) fn read(&self, store: &Store) -> Result<Collection, Failure> {
        let Some(name) = &self.collection else { return Ok(Collection::clone(store)) };
        let found = records_of(store, name)?.map(|found| found.records);
        found.ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("there is no collection `{name}`: `stratakv collections` lists them"))
        })
    }

    /// As if `--collection` had named it.
    pub(crate) fn named(name: String) -> CollectionArguments {
        CollectionArguments { collection: Some(name) }
    }
}

/// Which key space, of a command that makes it if there is none.
#[derive(Args)]
pub(crate) struct MadeCollectionArguments {
    #[command(flatten)]
    named: CollectionArguments,
    /// Order of a new collection's keys, fixed at its creation [default: bytes; an existing
    /// collection keeps its own]
    #[arg(long, value_name = "NAME", requires = "collection", value_parser = PossibleValuesParser::new(Order::BUILT_IN))]
    order: Option<String>,
}

impl MadeCollectionArguments {
    /// Made if there is none.
    pub(crate) fn write(&self, store: &Store) -> Result<Collection, Failure> {
        Ok(match (&self.named.collection, &self.order) {
            (Some(name), Some(order)) => store.collection_in_order(name, order)?,
            (Some(name), None) => store.collection(name)?,
            (None, _) => Collection::clone(store),
        })
    }
}

/// What a new store is made of.
#[derive(Args, Default)]
pub(crate) struct EngineArguments {
    /// How the store keeps its records; fixed when it is created [default: slab; a restored store
    /// has that of its backup]
    #[arg(long, value_enum)]
    pub(crate) engine: Option<EngineArgument>,
    /// Where engine `slab` puts small records; fixed when the store is created [default: in_place;
    /// a restored store has that of its backup]
    #[arg(long, value_enum)]
    pub(crate) placement: Option<PlacementChoice>,
    /// Length of a new region [default: half of the free space there, at most 1G]. That of `hash`
    /// holds all records; for `matrix` a tenth of the data is best. A longer one makes an existing
    /// region of `hash` grow
    #[arg(long, value_name = "BYTES", value_parser = stratakv_base::quantity::parse_bytes)]
    pub(crate) region: Option<u64>,
    /// Part of a new region of `matrix` that holds the first levels of tables, so that less is
    /// written to the volumes. The rest holds log and rows [default: none; was --layer]
    #[arg(long, alias = "layer", value_name = "BYTES", value_parser = stratakv_base::quantity::parse_bytes)]
    pub(crate) pmem_levels: Option<u64>,
    /// Compression of the tables that engine `matrix` writes from now on; remembered [default: as
    /// before, none for a new store]
    #[arg(long, value_enum)]
    pub(crate) compression: Option<CompressionArgument>,
}

impl EngineArguments {
    /// The options, with what was asked for.
    pub(crate) fn add_to(&self, mut options: Options) -> Options {
        if let Some(engine) = self.engine {
            options = options.engine(engine.into());
        }
        if let Some(bytes) = self.region {
            options = options.region_bytes(bytes);
        }
        if let Some(bytes) = self.pmem_levels {
            options = options.pmem_levels_bytes(bytes);
        }
        if let Some(compression) = self.compression {
            options = options.compression(compression.into());
        }
        options
    }
}

/// `--engine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum EngineArgument {
    /// For disks: volumes, and an ordered index of them in memory
    Slab,
    /// For persistent memory: a region that is mapped, and a hash table over it in memory. The keys
    /// of the default collection are in no order
    Hash,
    /// For disks beside persistent memory: an LSM tree, its log and first level in a region, its
    /// tables in volumes
    Matrix,
    /// A cache: records in memory, the older ones in volumes, the oldest evicted
    Tier,
}

impl From<EngineArgument> for Engine {
    fn from(engine: EngineArgument) -> Engine {
        match engine {
            EngineArgument::Slab => Engine::Slab,
            EngineArgument::Hash => Engine::Hash,
            EngineArgument::Matrix => Engine::Matrix,
            EngineArgument::Tier => Engine::Tier,
        }
    }
}

/// `--compression`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompressionArgument {
    /// Pages of tables as they are
    None,
    /// As many records in a page as LZ4 makes room for. Values of 512 B and more stay as they are
    Lz4,
}

impl From<CompressionArgument> for Compression {
    fn from(compression: CompressionArgument) -> Compression {
        match compression {
            CompressionArgument::None => Compression::None,
            CompressionArgument::Lz4 => Compression::Lz4,
        }
    }
}

/// The records of a collection of any kind.
pub(crate) struct OpenedCollection {
    pub(crate) records: Collection,
    pub(crate) kind: Kind,
}

/// The records of a collection of any kind, if there is one of that name. If it is in an order that
/// this program does not know, as they are stored: to be read as a whole.
pub(crate) fn records_of(store: &Store, name: &str) -> Result<Option<OpenedCollection>, Failure> {
    let kind = store.kind_of(name)?.unwrap_or_default();
    let records = match kind {
        Kind::List => store.existing_list(name)?.map(|list| list.records().clone()),
        _ => match store.existing_collection(name) {
            Err(Error::Order(OrderError::Unknown { .. })) => store.stored_collection(name)?,
            found => found?,
        },
    };
    Ok(records.map(|records| OpenedCollection { records, kind }))
}

/// Whether single keys of a collection can be asked for: in an order that this program does not
/// know they cannot be found.
pub(crate) fn has_points(collection: &Collection) -> bool {
    !matches!(collection.key(b"any"), Err(Error::Order(OrderError::Unknown { .. })))
}

/// `--placement`.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum PlacementArgument {
    /// KVell's: each record stays in its page
    #[default]
    InPlace,
    /// Batches back to back in a log that is cleaned as it is written
    Packed,
}

/// `--placement` of a command that can create a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum PlacementChoice {
    /// KVell's: each record stays in its page
    InPlace,
    /// Batches back to back in a log that is cleaned as it is written
    Packed,
    /// One of them, as suits the disk: it is measured for a second, with a temporary file of 64 MiB
    Measured,
}

impl PlacementChoice {
    /// The placement, unless the disk is to be asked for it.
    pub(crate) fn named(self) -> Option<Placement> {
        match self {
            PlacementChoice::InPlace => Some(Placement::InPlace),
            PlacementChoice::Packed => Some(Placement::Packed),
            PlacementChoice::Measured => None,
        }
    }
}

/// What a new store is told of its placement, and why.
#[derive(Default)]
pub(crate) struct Placed {
    placement: Option<Placement>,
    why: Option<String>,
}

impl Placed {
    /// As `asked`; a disk is measured only for a store that is new in `data`.
    pub(crate) fn choose(asked: Option<PlacementChoice>, data: &DataArguments, io: Io) -> Result<Placed, Failure> {
        Placed::choose_in(asked, data.all(), !data.devices().is_empty(), io)
    }

    pub(crate) fn choose_in<'a>(
        asked: Option<PlacementChoice>,
        directories: impl Iterator<Item = &'a Path>,
        on_devices: bool,
        io: Io,
    ) -> Result<Placed, Failure> {
        let Some(asked) = asked else { return Ok(Placed::default()) };
        if let Some(placement) = asked.named() {
            return Ok(Placed { placement: Some(placement), why: None });
        }
        if on_devices {
            return Err(Failure::usage(
                "--placement measured writes a temporary file, and raw devices have none: say in_place or packed",
            ));
        }
        let mut placed = Placed::default();
        // What is no directory is refused later.
        for directory in directories.filter(|path| path.is_dir() || !path.exists()) {
            if stratakv::format_of(directory)?.is_some() {
                return Ok(Placed::default());
            }
            let (placement, why) = choose_placement(disk_of(directory), io)?;
            // One disk that wants it is enough: the others serve as much.
            if placed.placement.is_none() || placement == Placement::Packed {
                placed = Placed { placement: Some(placement), why: Some(why) };
            }
        }
        Ok(placed)
    }

    /// The options, with what was chosen.
    pub(crate) fn add_to(&self, options: Options) -> Options {
        match self.placement {
            Some(placement) => options.placement(placement),
            None => options,
        }
    }

    /// Says in one line that a store was created, and what it is.
    pub(crate) fn tell(&self, store: &Store) {
        if !store.recovery().created {
            return;
        }
        say!("{}", self.line(store.engine(), store.placement()));
    }

    fn line(&self, engine: Engine, placement: Option<Placement>) -> String {
        let engine = engine.name();
        let Some(placement) = placement else { return format!("new store: engine {engine}") };
        let why = match (&self.why, self.placement) {
            (Some(why), _) => format!(", measured: {why}"),
            (None, Some(_)) => String::new(),
            (None, None) => "; `stratakv doctor` says if packed suits".to_owned(),
        };
        format!("new store: engine {engine}, placement {}{why}", placement.name())
    }
}

/// A directory on the disk that a store's directory is on, or will be made on.
pub(crate) fn disk_of(directory: &Path) -> &Path {
    directory.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("."))
}

/// What is fixed at creation, asked of a store that exists: refused if it is something else, not
/// passed over in silence.
pub(crate) fn refuse_another_format<'a>(
    directories: impl IntoIterator<Item = &'a Path>,
    engine: Option<EngineArgument>,
    shards: Option<usize>,
    placement: Option<PlacementChoice>,
) -> Result<(), Failure> {
    let has_placement = |engine: Engine, whose: &str| match placement {
        Some(_) if engine != Engine::Slab => Err(Failure::usage(format!(
            "--placement is of the engine `slab`, and {whose} `{}`: leave it out",
            engine.name()
        ))),
        _ => Ok(()),
    };
    if let Some(engine) = engine {
        has_placement(engine.into(), "--engine says")?;
    }
    for path in directories {
        let Some(format) = stratakv::format_of(path)? else { continue };
        let shown = path.display();
        if let Some(asked) = engine.map(Engine::from).filter(|asked| *asked != format.engine) {
            let (asked, has) = (asked.name(), format.engine.name());
            return Err(Failure::usage(format!(
                "--engine: `{asked}` was asked for, and {shown} holds a store of engine `{has}`, which is fixed when a \
                 store is created. Name another directory with --data, or leave the option out"
            )));
        }
        has_placement(format.engine, &format!("the store in {shown} has"))?;
        let advice = "that is fixed when a store is created. Leave the option out, or `dump` this store and `load` it into a new one";
        if let Some(asked) = shards.filter(|asked| *asked != format.shards) {
            let has = format.shards;
            return Err(Failure::usage(format!("--shards {asked}: the store in {shown} has {has}, and {advice}")));
        }
        if placement.and_then(PlacementChoice::named).is_some_and(|asked| asked != format.placement) {
            return Err(Failure::usage(format!("--placement: the store in {shown} has the other one, and {advice}")));
        }
    }
    Ok(())
}

/// `--io`.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Io {
    /// io_uring, or threads where the system refuses it
    #[default]
    Auto,
    /// io_uring, or an error
    #[value(name = "io_uring")]
    Uring,
    /// Threads and epoll
    Blocking,
}

/// `--durability`.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Durability {
    /// A power cut: acknowledged after the device has flushed
    PowerLoss,
    /// The death of the process, not of the machine
    ProcessCrash,
    /// Nothing: a cache
    Memory,
}

impl From<Io> for IoBackend {
    fn from(io: Io) -> IoBackend {
        match io {
            Io::Auto => IoBackend::Auto,
            Io::Uring => IoBackend::IoUring,
            Io::Blocking => IoBackend::Blocking,
        }
    }
}

impl From<Durability> for Level {
    fn from(durability: Durability) -> Level {
        match durability {
            Durability::PowerLoss => Level::PowerLoss,
            Durability::ProcessCrash => Level::ProcessCrash,
            Durability::Memory => Level::Memory,
        }
    }
}

impl OpenArguments {
    /// Options as given, with a progress bar for long recoveries; nothing is created.
    pub(crate) fn options(&self) -> Options {
        memory::warn_of_too_much(self.memory);
        Options::new()
            .create(false)
            .memory_bytes(self.memory)
            .io(self.io.into())
            .data_directories(self.data.more_directories())
            .devices(self.data.devices())
            .progress(progress::watch("opening"))
            .region_paths(self.data.regions())
            .region_nodes(self.data.region_node.iter().copied())
    }

    /// Opens for reading only.
    pub(crate) fn read(&self) -> Result<Store, Failure> {
        Ok(self.options().read_only(true).open(self.data.first())?)
    }

    /// Opens for writing; creates the store if told what to make.
    pub(crate) fn write(
        &self,
        durability: &DurabilityArguments,
        create: Option<&EngineArguments>,
    ) -> Result<Store, Failure> {
        let options = durability.add_to(self.options().create(create.is_some()));
        let Some(engine) = create else {
            let store = options.open(self.data.first())?;
            tell_growth(&store);
            return Ok(store);
        };
        refuse_another_format(self.data.all(), engine.engine, None, engine.placement)?;
        let placed = Placed::choose(engine.placement, &self.data, self.io)?;
        let options = placed.add_to(engine.add_to(options));
        let store = opened(&options, self.data.first())?;
        placed.tell(&store);
        tell_growth(&store);
        Ok(store)
    }
}

/// Opens the store, or creates it; a creation that takes long is seen on a terminal.
pub(crate) fn opened(options: &Options, path: &Path) -> Result<Store, Failure> {
    let is_new = !path.join("store.toml").exists();
    // Files of a store among those of a backup would end both.
    if is_new && holds_backup(path) {
        return Err(Failure::usage(backup_there(path)));
    }
    let store =
        if is_new { progress::spinning("creating the store", || options.open(path)) } else { options.open(path) };
    Ok(store?)
}

/// Says that the region is longer than it was.
pub(crate) fn tell_growth(store: &Store) {
    let (grown_bytes, region) = (store.recovery().grown_bytes, store.region());
    if let Some(region) = region.filter(|_| grown_bytes > 0) {
        let (now, before) = (format_bytes(region.len_bytes), format_bytes(region.len_bytes - grown_bytes));
        say!("the region {} has grown from {before} to {now}", region.path.display());
    }
}
