//! The durability that a store remembers. Where its medium loses writes in a power cut, whoever
//! makes the store has to ask for less than `power_loss`. `store.toml` keeps that answer, so that
//! it is asked for once. On a medium that keeps writes nothing is remembered.

use std::fs::File;
use std::path::{Path, PathBuf};

use stratakv_base::Level;
use stratakv_device::Geometry;

use crate::directory::{Directory, Manifest};
use crate::engine::Engine;
use crate::options::{OpenPurpose, Options};
use crate::region;

/// The options of a store that exists: at the level that it remembers, if nobody asks for one and
/// its medium still needs it.
pub(crate) fn with_remembered(options: &Options, directory: &Directory, manifest: &Manifest) -> Options {
    let is_asked = options.level.is_some();
    match manifest.durability() {
        Some(level) if !is_asked && is_volatile(directory, manifest, options) => options.clone().level(level),
        _ => options.clone(),
    }
}

/// What `store.toml` says from now on.
pub(crate) fn remembered(options: &Options, directory: &Directory, manifest: &Manifest) -> Option<String> {
    // A restore has its own reason for its level.
    let asks = options.level == Some(Level::ProcessCrash) && !matches!(options.purpose, OpenPurpose::Restore(_));
    if asks && manifest.durability.is_none() && is_volatile(directory, manifest, options) {
        return Some(Level::ProcessCrash.name().to_owned());
    }
    manifest.durability.clone()
}

/// Whether a part of what the store lies on loses writes in a power cut.
fn is_volatile(directory: &Directory, manifest: &Manifest, options: &Options) -> bool {
    if manifest.engine() == Engine::Tier {
        return false;
    }
    let mut places = [directory.path.as_path()].into_iter().chain(directory.parts.iter().map(PathBuf::as_path));
    if places.any(loses_writes) {
        return true;
    }
    let named = &options.asked.region.paths;
    let has_region = manifest.engine().has_region();
    let regions = if named.is_empty() { region::remembered(directory, manifest) } else { named.clone() };
    has_region && regions.iter().any(|path| region::is_in_memory(path))
}

/// What cannot be opened cannot be used either, and that says why.
fn loses_writes(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| !Geometry::probe(&file).survives_power_loss)
}
