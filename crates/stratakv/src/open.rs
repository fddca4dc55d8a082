//! Opening: directory, volumes, one recovering thread for each shard, then the runtime.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use stratakv_base::Level;
use stratakv_base::quantity::format_count;
use stratakv_device::volume::OpenMode;
use stratakv_device::{Geometry, Pool, Volume, open_ring_for};
use stratakv_engine::Progress;
use stratakv_matrix::MatrixConfig;
use stratakv_pmem::Mapping;
use stratakv_runtime::{Member, Runtime, RuntimeOptions, open_shard_by};
use stratakv_slab::{CheckpointPace, Placement, SCANNED_PER_WRITE_MIN, SlabConfig, SlabOpener};
use stratakv_tier::{TierConfig, TierOpener};

use crate::cache_room;
use crate::containers::Containers;
use crate::creation::{self, Before};
use crate::devices;
use crate::directory::{
    Directory, FORMAT_OF_DEVICES, FORMAT_OF_MATRIX, FORMAT_OF_ONE, FORMAT_OF_REGION, FORMAT_OF_SEVERAL, FORMAT_OF_TIER,
    LZ4, Manifest, io_error,
};
use crate::durability;
use crate::engine::{AnyShard, Engine};
use crate::error::Error;
use crate::events::{StoreEvent, listener};
use crate::options::{Compression, OpenProgress, Options};
use crate::parts;
use crate::region;
use crate::routing::Identity;
use crate::store::{RecoverySummary, Region};

pub(crate) struct Opened {
    pub(crate) runtime: Arc<Runtime<AnyShard>>,
    pub(crate) recovery: RecoverySummary,
    pub(crate) directory: Directory,
    pub(crate) identity: Identity,
    pub(crate) level: Level,
    pub(crate) region: Option<Region>,
    pub(crate) engine: Engine,
    /// The region of shards that share one, to be unlocked at the end.
    pub(crate) mapping: Option<Arc<Mapping>>,
}

/// What runs, what opening found, and the region if there is one.
struct Running {
    runtime: Arc<Runtime<AnyShard>>,
    recovery: RecoverySummary,
    region: Option<Region>,
    mapping: Option<Arc<Mapping>>,
}

/// A recovered shard, before it is put to work.
pub(crate) struct OpenedShard {
    pub(crate) shard: AnyShard,
    pub(crate) volume: Arc<Volume>,
    pub(crate) pool: Pool,
}

pub(crate) fn open(path: &Path, options: &Options) -> Result<Opened, Error> {
    let (path, more_directories) = parts::home(path, &options.more_directories)?;
    let creates = options.create || options.create_new;
    if creates && !path.join("store.toml").exists() && matches!(options.engine, None | Some(Engine::Slab)) {
        // Before anything is made.
        options.check_level(Engine::Slab)?;
        options.check_memory(new_shards(options))?;
        if options.region_bytes.is_some() || !options.region_paths.is_empty() || options.pmem_levels_bytes.is_some() {
            return Err(Error::Option(format!(
                "a region is of the engines `hash` and `matrix`, and the new store in {} would be of `slab`: ask for the engine too (--engine hash), or leave the region out",
                path.display()
            )));
        }
        options.check_saving(Engine::Slab, None)?;
        if options.compression.is_some() {
            return Err(Error::Option(format!(
                "compression is of the engine `matrix`, and the new store in {} would be of `slab`: ask for the engine too (--engine matrix), or leave the option out",
                path.display()
            )));
        }
    }
    let before = creates.then(|| Before::of(&path, &more_directories));
    let mut directory = Directory::lock(&path, creates, options.read_only)
        .inspect_err(|_| before.iter().for_each(Before::remove_directories))?;
    let mut begun = None;
    match open_in(&mut directory, more_directories, options, &mut begun) {
        Ok((Running { runtime, recovery, region, mapping }, manifest, level)) => {
            let engine = manifest.engine();
            let placement = (engine == Engine::Slab).then(|| manifest.placement());
            let identity = Identity { uuid: manifest.uuid, placement };
            Ok(Opened { runtime, recovery, directory, identity, level, region, engine, mapping })
        }
        Err(error) => {
            if let Some(before) = before {
                before.restore(&directory, begun.as_ref());
            }
            Err(error)
        }
    }
}

/// Opens or creates the store in a directory that is locked; `begun` is what it creates where
/// nothing was.
fn open_in(
    directory: &mut Directory,
    more_directories: Vec<PathBuf>,
    options: &Options,
    begun: &mut Option<Manifest>,
) -> Result<(Running, Manifest, Level), Error> {
    let creates = options.create || options.create_new;
    crate::backup::refuse_unfinished(&directory.path, options.restoring.is_some())?;
    let manifest = directory.read_manifest()?;
    let mut is_new = false;
    let (manifest, created) = match manifest {
        Some(Manifest { complete: true, .. }) if options.create_new => {
            return Err(Error::Exists { path: directory.path.clone() });
        }
        Some(manifest) if manifest.complete => (manifest, false),
        _ if !creates || options.read_only => return Err(Error::NotFound { path: directory.path.clone() }),
        unfinished => {
            let resumes = unfinished.is_some();
            let manifest = claim(directory, options, &more_directories, unfinished)?;
            is_new = !resumes;
            (manifest, true)
        }
    };
    check_engine(&manifest, directory, options)?;
    if created {
        check_home(&manifest, directory, options)?;
        directory.parts.extend(more_directories);
        *begun = is_new.then(|| manifest.clone());
        creation::begin(directory, &manifest)?;
    } else {
        directory.parts = parts::find(directory, &manifest, &more_directories)?;
        directory.devices = devices::find(&directory.path, &manifest, &options.devices, options.read_only)?;
    }
    let options = &durability::with_remembered(options, directory, &manifest);
    if !created {
        check_home(&manifest, directory, options)?;
    }
    let manifest = changed(directory, manifest, options)?;
    let level = options.level_of(manifest.engine());
    let running = match manifest.engine() {
        Engine::Slab | Engine::Matrix | Engine::Tier => run_shards(directory, &manifest, options, created)?,
        Engine::Hash => run_in_region(directory, &manifest, options, created)?,
    };
    if let Some(watcher) = &options.watcher {
        watcher(&StoreEvent::Opened { path: directory.path.clone(), recovery: running.recovery.clone() });
        running.runtime.listen(listener(Arc::clone(watcher)));
    }
    Ok((running, manifest, level))
}

/// What the store is, if the volumes of a cache are to be of another length from now on, tables to
/// be compressed or not, or writes to be acknowledged sooner: remembered, for who says nothing.
fn changed(directory: &Directory, manifest: Manifest, options: &Options) -> Result<Manifest, Error> {
    let cache_bytes = options.capacity_bytes.filter(|_| manifest.engine() == Engine::Tier).or(manifest.cache_bytes);
    let compression = options.compression.map_or_else(|| manifest.compression.clone(), name_of);
    let has_second_tier = cache_bytes.unwrap_or_default() > 0;
    let saves_at_shutdown = options.saves_at_shutdown.unwrap_or(manifest.saves_at_shutdown) && !has_second_tier;
    let durability = durability::remembered(options, directory, &manifest);
    let changed = Manifest { cache_bytes, saves_at_shutdown, durability, compression, ..manifest.clone() };
    if changed != manifest && !options.read_only && changed.complete {
        directory.write_manifest(&changed)?;
    }
    Ok(changed)
}

/// As `store.toml` has it.
fn name_of(compression: Compression) -> Option<String> {
    (compression == Compression::Lz4).then(|| LZ4.to_owned())
}

/// What a new store will be, where nothing of another one is in its way.
fn claim(
    directory: &mut Directory,
    options: &Options,
    more_directories: &[PathBuf],
    unfinished: Option<Manifest>,
) -> Result<Manifest, Error> {
    let mut manifest = new_manifest(options, more_directories)?;
    parts::may_create(directory, unfinished.as_ref(), more_directories)?;
    if let Some(unfinished) = &unfinished {
        // The same store again: what the interrupted creation has marked is still its own, however
        // often it is interrupted.
        manifest.uuid.clone_from(&unfinished.uuid);
    }
    directory.devices = devices::claim(&manifest)?;
    if manifest.engine().has_region() {
        region::may_create(directory, &manifest, unfinished.as_ref(), options)?;
    }
    Ok(manifest)
}

/// Whether the options are for this store's engine.
pub(crate) fn check_engine(manifest: &Manifest, directory: &Directory, options: &Options) -> Result<(), Error> {
    let (has, home) = (manifest.engine(), directory.path.display());
    if let Some(asked) = options.engine.filter(|asked| *asked != has) {
        return Err(Error::Option(format!(
            "engine `{}` was asked for, and the store in {home} has `{}`: that is fixed when a store is created. Leave the option out, or `dump` this \
             store and `load` it into a new one",
            asked.name(),
            has.name()
        )));
    }
    options.check_level(has)?;
    options.check_saving(has, options.capacity_bytes.or(manifest.cache_bytes))?;
    if options.pmem_levels_bytes.is_some() && has != Engine::Matrix {
        return Err(Error::Option(format!(
            "--pmem-levels is part of a region of engine `matrix`, and the store in {home} has the engine `{}`: leave the option out",
            has.name()
        )));
    }
    if options.compression.is_some() && has != Engine::Matrix {
        return Err(Error::Option(format!(
            "--compression is for tables of engine `matrix`, and the store in {home} has the engine `{}`: leave the option out",
            has.name()
        )));
    }
    match has {
        Engine::Slab | Engine::Tier if options.region_bytes.is_some() || !options.region_paths.is_empty() => {
            Err(Error::Option(format!(
                "--region and --region-path are for engines `hash` and `matrix`, and the store in {home} has the engine `{}`: leave them out",
                has.name()
            )))
        }
        Engine::Slab | Engine::Tier => options.check_memory(manifest.shards),
        Engine::Hash => region::check_options(has, options),
        Engine::Matrix => region::check_options(has, options).and_then(|()| options.check_memory(manifest.shards)),
    }
}

/// Whether what says what the store is, and where it lies, survives a power cut as its data does
/// that lies elsewhere.
fn check_home(manifest: &Manifest, directory: &Directory, options: &Options) -> Result<(), Error> {
    let lies_elsewhere = manifest.region.is_some() || !options.region_paths.is_empty() || !manifest.devices.is_empty();
    if options.level_of(manifest.engine()) != Level::PowerLoss || options.read_only || !lies_elsewhere {
        return Ok(());
    }
    let home = &directory.path;
    let geometry = Geometry::probe(&File::open(home).map_err(io_error("open", home))?);
    if geometry.survives_power_loss {
        return Ok(());
    }
    let (name, home) = (geometry.file_system.as_deref().unwrap_or("memory"), home.display());
    Err(Error::Option(format!(
        "durability power_loss cannot be given with the store's directory {home} on {name}: store.toml, without which its data is not found, does not \
         survive a power cut. Keep the directory (--data) on a disk, or ask for durability process_crash"
    )))
}

fn run_shards(directory: &Directory, manifest: &Manifest, options: &Options, created: bool) -> Result<Running, Error> {
    let (shards, containers) = open_shards(directory, manifest, options, created, false)?;
    let region = containers.as_ref().map(Containers::summary);
    if created {
        directory.write_manifest(&Manifest { complete: true, ..manifest.clone() })?;
    } else if let Some(region) = &region
        && let Some(moved) = region::moved(directory, manifest, options, &region.paths)?
    {
        directory.write_manifest(&moved)?;
    }
    if manifest.engine() == Engine::Tier && !options.read_only {
        match manifest.saves_at_shutdown {
            true => cache_room::warn_of_too_little_to_save(directory, options.memory_bytes, manifest.shards),
            false => cache_room::warn_of_too_little(directory, manifest.cache_bytes.unwrap_or(0), manifest.shards),
        }
    }
    let recovery = summarise(&shards, created);
    let members = shards.into_iter().map(|OpenedShard { shard, volume, pool }| Member { shard, volume, pool });
    let members: Vec<_> = members.collect();
    let runtime = Runtime::start_by(options.clock.clone(), members, runtime_options(options, manifest.shards));
    let runtime = runtime.map_err(io_error("start the reactors of", &directory.path))?;
    Ok(Running { runtime, recovery, region, mapping: containers.map(|containers| containers.mapping()) })
}

fn run_in_region(
    directory: &Directory,
    manifest: &Manifest,
    options: &Options,
    created: bool,
) -> Result<Running, Error> {
    let (engine, recovery) = region::open(directory, manifest, options, created)?;
    if created {
        directory.write_manifest(&Manifest { complete: true, ..manifest.clone() })?;
    } else if let Some(moved) = region::moved(directory, manifest, options, &engine.summary().paths)? {
        directory.write_manifest(&moved)?;
    }
    let region = Some(engine.summary());
    let runtime = Runtime::shared_by(options.clock.clone(), engine, runtime_options(options, 1));
    let runtime = runtime.map_err(io_error("start the maintenance of", &directory.path))?;
    Ok(Running { runtime, recovery, region, mapping: None })
}

fn runtime_options(options: &Options, shards: u32) -> RuntimeOptions {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let reactors = options.reactors.unwrap_or(cores).clamp(1, shards.max(1) as usize);
    RuntimeOptions { ring: options.io, ring_entries: 256, reactors }
}

/// How many shards a new store gets.
fn new_shards(options: &Options) -> u32 {
    // `hash` has one, and the region of `matrix` is divided among its shards.
    if options.engine.is_some_and(Engine::has_region) {
        return options.shards.unwrap_or(1) as u32;
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    options.shards.unwrap_or(cores.min(64)) as u32
}

fn new_manifest(options: &Options, more_directories: &[PathBuf]) -> Result<Manifest, Error> {
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid)
        .map_err(|error| Error::Option(format!("no random numbers for the store's uuid: {error}")))?;
    let uuid = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let shards = new_shards(options);
    if options.devices.len() > shards as usize {
        return Err(Error::Option(format!(
            "{} for {}: some would hold nothing; name fewer, or ask for more shards",
            format_count(options.devices.len() as u64, "device"),
            format_count(u64::from(shards), "shard")
        )));
    }
    if more_directories.len() >= shards as usize {
        return Err(Error::Option(format!(
            "{} directories for {}: some would hold nothing; name fewer, or ask for more shards",
            more_directories.len() + 1,
            format_count(u64::from(shards), "shard")
        )));
    }
    let absolute = |paths: &[PathBuf]| paths.iter().map(std::path::absolute).collect::<Result<Vec<_>, _>>();
    let directories =
        absolute(more_directories).map_err(|error| Error::Option(format!("a directory's name: {error}")))?;
    let devices = options.devices.iter().map(|path| devices::full_name(path)).collect::<Result<Vec<_>, _>>();
    let devices = devices.map_err(|error| Error::Option(format!("a device's name: {error}")))?;
    let mut regions =
        absolute(&options.region_paths).map_err(|error| Error::Option(format!("the region's path: {error}")))?;
    let region = (!regions.is_empty()).then(|| regions.remove(0));
    let engine = options.engine.unwrap_or_default();
    let format = match (engine, directories.is_empty(), devices.is_empty()) {
        (Engine::Hash, ..) => FORMAT_OF_REGION,
        (Engine::Matrix, ..) => FORMAT_OF_MATRIX,
        (Engine::Tier, ..) => FORMAT_OF_TIER,
        (_, true, true) => FORMAT_OF_ONE,
        (_, false, true) => FORMAT_OF_SEVERAL,
        (_, _, false) => FORMAT_OF_DEVICES,
    };
    let engine = engine.name().to_owned();
    let placement = (options.placement == Some(Placement::Packed)).then(|| "packed".to_owned());
    let saves_at_shutdown = options.saves_at_shutdown == Some(true);
    let default_cache_bytes = options.memory_bytes.saturating_mul(TIERS_RATIO);
    let cache_bytes = (options.engine == Some(Engine::Tier))
        .then(|| options.capacity_bytes.unwrap_or(if saves_at_shutdown { 0 } else { default_cache_bytes }));
    let complete = false;
    Ok(Manifest {
        format,
        engine,
        shards,
        uuid,
        placement,
        complete,
        directories,
        devices,
        region,
        regions,
        cache_bytes,
        saves_at_shutdown,
        durability: None,
        compression: options.compression.and_then(name_of),
    })
}

/// Opens every shard, each in a thread of its own: recovery is a scan at the device's full
/// bandwidth (KVell section 5.6).
pub(crate) fn open_shards(
    directory: &Directory,
    manifest: &Manifest,
    options: &Options,
    created: bool,
    verify: bool,
) -> Result<(Vec<OpenedShard>, Option<Containers>), Error> {
    let shards = manifest.shards;
    let has_containers = manifest.engine() == Engine::Matrix;
    let containers = has_containers.then(|| Containers::open(directory, manifest, options, created)).transpose()?;
    let progress = ProgressSum::new(shards, options);
    let opened: Vec<Result<OpenedShard, Error>> = thread::scope(|scope| {
        let open = |shard| {
            let (progress, containers) = (&progress, containers.as_ref());
            let how = OpenOne { shard, created, verify, containers };
            scope.spawn(move || open_one(directory, manifest, options, how, progress))
        };
        let threads: Vec<_> = (0..shards).map(open).collect();
        let gone = || Error::Option("a thread that opened a shard ended by a panic".into());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(gone()))).collect()
    });
    Ok((opened.into_iter().collect::<Result<_, _>>()?, containers))
}

/// Which shard is opened, and how.
#[derive(Clone, Copy)]
struct OpenOne<'a> {
    shard: u32,
    created: bool,
    verify: bool,
    containers: Option<&'a Containers>,
}

fn open_one(
    directory: &Directory,
    manifest: &Manifest,
    options: &Options,
    how: OpenOne<'_>,
    progress: &ProgressSum,
) -> Result<OpenedShard, Error> {
    let OpenOne { shard, created, containers, .. } = how;
    let volume = open_volume(directory, shard, OpenMode { create: created, read_only: options.read_only })?;
    let path = volume.path().to_path_buf();
    let volume_bytes = volume.len_bytes().map_err(io_error("measure", &path))?;
    let volume = Arc::new(volume);
    check_medium(&volume, options.level_of(manifest.engine()), options.read_only)?;
    let pool = Pool::new((options.memory_bytes / u64::from(manifest.shards)) as usize);
    let mut ring = open_ring_for(options.io, 64, [&volume]).map_err(io_error("set up a ring for", &path))?;
    let watch = &mut |now: Progress| progress.report(shard, now);
    let config = slab_config(directory, manifest, options, (how, &volume), volume_bytes);
    let shard = match containers {
        None if manifest.engine() == Engine::Tier => {
            let config = tier_config(&config, manifest, volume_bytes);
            let capacity_bytes = config.capacity_bytes;
            let opener = if created { TierOpener::create(config) } else { TierOpener::recover(config) };
            let tier = open_shard_by(&options.clock, opener, &volume, &pool, ring.as_mut(), watch);
            let tier = tier.map_err(|error| Error::opening(path.clone(), error))?;
            if !options.read_only && !tier.is_returning() {
                // With less than before it began empty: what lies beyond goes back to the file
                // system.
                let len_bytes = capacity_bytes.unwrap_or(0).max(TIER_BYTES_MIN);
                volume.shorten(len_bytes).map_err(io_error("shorten", &path))?;
            }
            AnyShard::Tier(Box::new(tier))
        }
        None => {
            let opener = if created { SlabOpener::create(config) } else { SlabOpener::recover(config) };
            let slab = open_shard_by(&options.clock, opener, &volume, &pool, ring.as_mut(), watch);
            AnyShard::Slab(Box::new(slab.map_err(|error| Error::opening(path, error))?))
        }
        Some(containers) => {
            let opener = containers.opener(matrix_config(&config, manifest))?;
            let matrix = open_shard_by(&options.clock, opener, &volume, &pool, ring.as_mut(), watch);
            let told = |error| containers.named(Error::opening(path, error));
            AnyShard::Matrix(Box::new(matrix.map_err(told)?))
        }
    };
    Ok(OpenedShard { shard, volume, pool })
}

fn slab_config(
    directory: &Directory,
    manifest: &Manifest,
    options: &Options,
    (how, volume): (OpenOne<'_>, &Volume),
    volume_bytes: u64,
) -> SlabConfig {
    // A range of a device is as long as it will ever be.
    let room = (!directory.devices.is_empty()).then_some(volume_bytes);
    let capacity = options.capacity_bytes.filter(|bytes| *bytes > 0 || manifest.engine() == Engine::Tier);
    let capacity = capacity.map(|bytes| bytes / u64::from(manifest.shards));
    SlabConfig {
        uuid: manifest.uuid_bytes().unwrap_or_default(),
        shard: how.shard,
        shards: manifest.shards,
        geometry: volume.geometry().clone(),
        memory_bytes: options.memory_bytes / u64::from(manifest.shards),
        placement: manifest.placement(),
        depth: (options.depth * directory.disks() as u32 / manifest.shards).max(1),
        capacity_bytes: capacity.into_iter().chain(room).min(),
        volume_bytes,
        read_only: options.read_only,
        checkpoints: CheckpointPace::default(),
        scanned_per_write_min: SCANNED_PER_WRITE_MIN,
        record_cache: true,
        verify: how.verify,
    }
}

/// Of memory, so many times as much on the volumes of a cache, if nobody said.
const TIERS_RATIO: u64 = 8;
/// A cache's volume without a second tier: two superblocks.
const TIER_BYTES_MIN: u64 = 8192;
/// A segment of a cache.
const SEGMENT_BYTES: u32 = 1 << 20;

fn tier_config(config: &SlabConfig, manifest: &Manifest, room_bytes: u64) -> TierConfig {
    let capacity_bytes = manifest.cache_bytes.unwrap_or_default() / u64::from(manifest.shards);
    // A range of a device is as long as it will ever be.
    let capacity_bytes = if manifest.devices.is_empty() { capacity_bytes } else { capacity_bytes.min(room_bytes) };
    TierConfig {
        uuid: config.uuid,
        shard: config.shard,
        shards: config.shards,
        memory_bytes: config.memory_bytes,
        depth: config.depth,
        capacity_bytes: (capacity_bytes > 0).then_some(capacity_bytes),
        saves_at_shutdown: manifest.saves_at_shutdown,
        segment_bytes: SEGMENT_BYTES,
        collected_percent: 66,
        boot: boot(),
        read_only: config.read_only,
    }
}

/// The identity of the running system.
fn boot() -> Option<[u8; 16]> {
    // Without it a cache begins empty.
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

/// Keys of a range that are deleted one by one: 64 deletes take some 4 KiB of the log.
const RANGE_KEYS_FEW: usize = 64;

/// What shards of both engines are told. The lengths are those of the container.
fn matrix_config(config: &SlabConfig, manifest: &Manifest) -> MatrixConfig {
    MatrixConfig {
        uuid: config.uuid,
        shard: config.shard,
        shards: config.shards,
        memory_bytes: config.memory_bytes,
        depth: config.depth,
        capacity_bytes: config.capacity_bytes,
        row_bytes: 0,
        table_bytes: 0,
        level_bytes: 0,
        pmem_levels_bytes: 0,
        range_keys_few: RANGE_KEYS_FEW,
        compression: manifest.compression(),
        read_only: config.read_only,
        session: 0,
    }
}

/// A shard's file, or its range of its device.
fn open_volume(directory: &Directory, shard: u32, mode: OpenMode) -> Result<Volume, Error> {
    if let Some(volume) = devices::volume(&directory.devices, shard) {
        return volume;
    }
    let path = directory.volume_path(shard);
    Volume::open(&path, mode).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => Error::Locked { path: path.clone(), holder: String::new() },
        std::io::ErrorKind::NotFound => Error::Damaged {
            path: path.clone(),
            why: "the volume is missing; if its disk is not mounted, mount it, else restore the whole store from a backup".into(),
        },
        _ => io_error(if mode.create { "create" } else { "open" }, &path)(error),
    })
}

fn check_medium(volume: &Volume, level: Level, read_only: bool) -> Result<(), Error> {
    let geometry = volume.geometry();
    if level == Level::PowerLoss && !geometry.survives_power_loss && !read_only {
        let name = geometry.file_system.as_deref().unwrap_or("this file system");
        return Err(Error::Option(format!(
            "durability power_loss cannot be given on {name} ({}): its data does not survive a power cut. \
             Put the store on a disk, or ask for durability process_crash (--durability process_crash); the store remembers it",
            volume.path().display()
        )));
    }
    Ok(())
}

fn summarise(shards: &[OpenedShard], created: bool) -> RecoverySummary {
    let mut sum = RecoverySummary { created, clean: true, ..RecoverySummary::default() };
    for shard in shards {
        let found = shard.shard.found();
        sum.clean &= found.clean;
        sum.records += found.records;
        sum.torn += found.torn;
        sum.superblocks_repaired += u64::from(found.superblock_repaired);
        sum.corrupt.extend(found.corrupt.iter().map(ToString::to_string));
        sum.lost_unknown += found.lost_unknown;
        sum.unreadable.extend(found.unreadable.iter().map(ToString::to_string));
    }
    if sum.superblocks_repaired > 0 {
        tracing::warn!(
            count = sum.superblocks_repaired,
            "one copy of a superblock was damaged; repaired from the other"
        );
    }
    for damage in &sum.corrupt {
        tracing::warn!(%damage, "damaged data; reading it fails, everything else is served");
    }
    for place in &sum.unreadable {
        tracing::warn!(%place, "the device did not give this; reading it fails, everything else is served");
    }
    sum
}

/// Progress of all shards as one.
struct ProgressSum {
    done: Vec<AtomicU64>,
    totals: Mutex<Vec<u64>>,
    watch: Option<crate::options::Watch>,
}

impl ProgressSum {
    fn new(shards: u32, options: &Options) -> ProgressSum {
        ProgressSum {
            done: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            totals: Mutex::new(vec![0; shards as usize]),
            watch: options.progress.clone(),
        }
    }

    fn report(&self, shard: u32, now: Progress) {
        let Some(watch) = &self.watch else { return };
        self.done[shard as usize].store(now.done_bytes, Ordering::Relaxed);
        let mut totals = self.totals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        totals[shard as usize] = now.total_bytes;
        let done_bytes = self.done.iter().map(|done| done.load(Ordering::Relaxed)).sum();
        watch(OpenProgress { done_bytes, total_bytes: totals.iter().sum() });
    }
}
