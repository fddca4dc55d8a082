//! What a store that is created will be.

use std::path::PathBuf;
use std::thread;

use stratakv_base::quantity::format_count;

use super::shards::TIERS_RATIO;
use crate::devices;
use crate::directory::{
    Directory, FORMAT_OF_DEVICES, FORMAT_OF_MATRIX, FORMAT_OF_ONE, FORMAT_OF_REGION, FORMAT_OF_SEVERAL, FORMAT_OF_TIER,
    LZ4, Manifest,
};
use crate::engine::Engine;
use crate::error::Error;
use crate::options::{Compression, Options, Placement};
use crate::parts;
use crate::region;

/// What a new store will be, where nothing of another one is in its way.
pub(super) fn claim(
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

/// How many shards a new store gets.
pub(super) fn new_shards(options: &Options) -> u32 {
    // `hash` has one, and the region of `matrix` is divided among its shards.
    if options.engine.is_some_and(Engine::has_region) {
        return options.shards.unwrap_or(1) as u32;
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    options.shards.unwrap_or(cores.min(64)) as u32
}

/// Each device and directory gets a shard at least.
fn refuse_idle_places(options: &Options, more_directories: &[PathBuf], shards: u32) -> Result<(), Error> {
    if options.places.devices.len() > shards as usize {
        return Err(Error::Option(format!(
            "{} for {}: some would hold nothing; name fewer, or ask for more shards",
            format_count(options.places.devices.len() as u64, "device"),
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
    Ok(())
}

fn new_manifest(options: &Options, more_directories: &[PathBuf]) -> Result<Manifest, Error> {
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid)
        .map_err(|error| Error::Option(format!("no random numbers for the store's uuid: {error}")))?;
    let uuid = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let shards = new_shards(options);
    refuse_idle_places(options, more_directories, shards)?;
    let absolute = |paths: &[PathBuf]| paths.iter().map(std::path::absolute).collect::<Result<Vec<_>, _>>();
    let directories =
        absolute(more_directories).map_err(|error| Error::Option(format!("a directory's name: {error}")))?;
    let devices = options.places.devices.iter().map(|path| devices::full_name(path)).collect::<Result<Vec<_>, _>>();
    let devices = devices.map_err(|error| Error::Option(format!("a device's name: {error}")))?;
    let mut regions =
        absolute(&options.asked.region.paths).map_err(|error| Error::Option(format!("the region's path: {error}")))?;
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
    let placement = (options.asked.placement == Some(Placement::Packed)).then(|| "packed".to_owned());
    let saves_at_shutdown = options.asked.saves_at_shutdown == Some(true);
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
        compression: options.asked.compression.and_then(name_of),
    })
}

/// As `store.toml` has it.
pub(super) fn name_of(compression: Compression) -> Option<String> {
    (compression == Compression::Lz4).then(|| LZ4.to_owned())
}
