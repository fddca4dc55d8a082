//! Opening: directory, volumes, one recovering thread for each shard, then the runtime.

mod new_store;
mod shards;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use stratakv_base::Level;
use stratakv_device::Geometry;
use stratakv_pmem::Mapping;
use stratakv_runtime::{Member, Runtime, RuntimeOptions};

use self::new_store::{claim, name_of, new_shards};
use self::shards::summarise;
pub(crate) use self::shards::{OpenedShard, ShardOpening, open_shards};
use crate::cache_room;
use crate::containers::Containers;
use crate::creation::{self, Before};
use crate::devices;
use crate::directory::{Directory, Manifest, io_error};
use crate::durability;
use crate::engine::{AnyShard, Engine};
use crate::error::Error;
use crate::events::{StoreEvent, listener};
use crate::options::{OpenPurpose, Options, Whose};
use crate::parts;
use crate::region;
use crate::rejoin::{Presence, Return};
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
    pub(crate) presence: Option<Presence>,
}

/// What runs, what opening found, and the region if there is one.
struct Running {
    runtime: Arc<Runtime<AnyShard>>,
    recovery: RecoverySummary,
    region: Option<Region>,
    mapping: Option<Arc<Mapping>>,
    presence: Option<Presence>,
}

pub(crate) fn open(path: &Path, options: &Options) -> Result<Opened, Error> {
    let (path, more_directories) = parts::home(path, &options.places.more_directories)?;
    let creates = options.create || options.create_new;
    let engine = options.engine.unwrap_or_default();
    if creates && !path.join("store.toml").exists() {
        // Before anything is made.
        options.check_of(engine, Whose::New(&path), None)?;
        options.check_memory(engine, new_shards(options))?;
    }
    let before = creates.then(|| Before::of(&path, &more_directories));
    let mut directory = Directory::lock(&path, creates, options.read_only)
        .inspect_err(|_| before.iter().for_each(Before::remove_directories))?;
    let mut begun = None;
    match open_in(&mut directory, more_directories, options, &mut begun) {
        Ok((Running { runtime, recovery, region, mapping, presence }, manifest, level)) => {
            let engine = manifest.engine();
            let placement = (engine == Engine::Slab).then(|| manifest.placement());
            let identity = Identity { uuid: manifest.uuid, placement };
            Ok(Opened { runtime, recovery, directory, identity, level, region, engine, mapping, presence })
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
    crate::backup::refuse_unfinished(&directory.path, matches!(options.purpose, OpenPurpose::Restore(_)))?;
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
        directory.devices = devices::find(&directory.path, &manifest, &options.places.devices, options.read_only)?;
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
    if let Some(watcher) = &options.listeners.watcher {
        watcher(&StoreEvent::Opened { path: directory.path.clone(), recovery: running.recovery.clone() });
        running.runtime.listen(listener(Arc::clone(watcher)));
    }
    Ok((running, manifest, level))
}

/// What the store is, if the volumes of a cache are to be of another length from now on, tables to
/// be compressed or not, or writes to be acknowledged sooner: remembered, for who says nothing.
fn changed(directory: &Directory, manifest: Manifest, options: &Options) -> Result<Manifest, Error> {
    let cache_bytes = options.capacity_bytes.filter(|_| manifest.engine() == Engine::Tier).or(manifest.cache_bytes);
    let compression = options.asked.compression.map_or_else(|| manifest.compression.clone(), name_of);
    let has_second_tier = cache_bytes.unwrap_or_default() > 0;
    let saves_at_shutdown = options.asked.saves_at_shutdown.unwrap_or(manifest.saves_at_shutdown) && !has_second_tier;
    let durability = durability::remembered(options, directory, &manifest);
    let changed = Manifest { cache_bytes, saves_at_shutdown, durability, compression, ..manifest.clone() };
    if changed != manifest && !options.read_only && changed.complete {
        directory.write_manifest(&changed)?;
    }
    Ok(changed)
}

/// Whether the options are for the engine of this store.
pub(crate) fn check_engine(manifest: &Manifest, directory: &Directory, options: &Options) -> Result<(), Error> {
    let (has, home) = (manifest.engine(), &directory.path);
    if let Some(asked) = options.engine.filter(|asked| *asked != has) {
        return Err(Error::Option(format!(
            "engine `{}` was asked for, and the store in {} has `{}`: that is fixed when a store is created. Leave the option out, or `dump` this \
             store and `load` it into a new one",
            asked.name(),
            home.display(),
            has.name()
        )));
    }
    options.check_of(has, Whose::Stored(home), manifest.cache_bytes)?;
    options.check_memory(has, manifest.shards)
}

/// Whether what says what the store is, and where it lies, survives a power cut as its data does
/// that lies elsewhere.
fn check_home(manifest: &Manifest, directory: &Directory, options: &Options) -> Result<(), Error> {
    let lies_elsewhere =
        manifest.region.is_some() || !options.asked.region.paths.is_empty() || !manifest.devices.is_empty();
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
    let comes_back = manifest.engine() == Engine::Tier && !options.read_only;
    let comes_back = comes_back.then(|| Return::of(&directory.path, options.asked.rejoin));
    let mut begins_empty = !created && comes_back.as_ref().is_some_and(Return::empties);
    let open =
        |begins_empty| open_shards(directory, manifest, options, ShardOpening { created, begins_empty, verify: false });
    let (mut shards, containers) = open(begins_empty)?;
    if !created && !begins_empty && comes_back.as_ref().is_some_and(Return::empties) {
        // It was away for too long by the time that its index was read.
        drop(shards);
        begins_empty = true;
        shards = open(true)?.0;
    }
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
    let presence = comes_back.and_then(|back| noted(back, begins_empty, options));
    let members = shards.into_iter().map(|OpenedShard { shard, volume, pool }| Member { shard, volume, pool });
    let members: Vec<_> = members.collect();
    let runtime = Runtime::start_by(options.clock.clone(), members, runtime_options(options, manifest.shards));
    let runtime = runtime.map_err(io_error("start the reactors of", &directory.path))?;
    let mapping = containers.map(|containers| containers.mapping());
    Ok(Running { runtime, recovery, region, mapping, presence })
}

/// Notes that a cache serves from now on.
fn noted(back: Return, was_emptied: bool, options: &Options) -> Option<Presence> {
    let wall_s = options.clock.now().wall.0 / 1000;
    match back.arrive(was_emptied, wall_s) {
        Ok(presence) => Some(presence),
        Err(error) => {
            tracing::warn!(%error, "when the cache serves cannot be noted: neither it nor the next opening knows how long it was away; make its directory writable");
            None
        }
    }
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
    Ok(Running { runtime, recovery, region, mapping: None, presence: None })
}

fn runtime_options(options: &Options, shards: u32) -> RuntimeOptions {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let reactors = options.tuning.reactors.unwrap_or(cores).clamp(1, shards.max(1) as usize);
    RuntimeOptions { ring: options.tuning.io, ring_entries: 256, reactors }
}
