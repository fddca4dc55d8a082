//! Going on without a region that is lost: what is on the volumes of a store of engine `matrix`.

use std::path::Path;

use stratakv_pmem::Pmem;

use crate::devices;
use crate::directory::Directory;
use crate::engine::{AnyShard, Engine};
use crate::error::Error;
use crate::open::{check_engine, open_shards};
use crate::options::{Options, Repairing};
use crate::parts;
use crate::region;

/// A region, or a shard's part of one, that does not belong to its volume any more, or cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRegion {
    /// The shard.
    pub shard: u32,
    /// Why it is not served.
    pub why: String,
    /// What goes with it, and what stays.
    pub loss: String,
    /// The volume knows of changes up to this version; there may have been more.
    pub version: u64,
    /// Of these, the oldest that was perhaps in the region only; 0: none was.
    pub oldest: u64,
    /// At most so many of these were.
    pub records: u64,
    /// The store was closed in order after that version: there were no more.
    pub clean: bool,
    /// All of the region up to this version is kept.
    pub kept_version: Option<u64>,
    /// Versions of records on the volume.
    pub entries: u64,
}

/// What [`repair`] found, and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// Shards without a region; the others are as they were.
    pub lost: Vec<LostRegion>,
    /// They have a new one.
    pub repaired: bool,
    /// Where it is.
    pub region: Option<String>,
}

/// Tells what a store of engine `matrix` loses whose region is gone, blank, damaged, older than its volumes or newer; with `accept_lost_region` makes a new region, in which the store goes on
/// with what is on its volumes. A part of the region that belongs to its volume stays. Of `options` count what says where things are, the length of the new region, memory
/// and durability.
///
/// # Errors
/// There is no store, it has another engine, or is open elsewhere; a volume is missing or damaged; another store's region would be written over.
pub fn repair(path: impl AsRef<Path>, options: &Options, accept_lost_region: bool) -> Result<RepairReport, Error> {
    let mut options = options.clone().create(false).create_new(false).read_only(!accept_lost_region);
    options.repairing = Some(Repairing { accepts: accept_lost_region });
    options.check()?;
    let (path, further) = parts::home(path.as_ref(), &options.further)?;
    let mut directory = Directory::lock(&path, false, options.read_only)?;
    let manifest = match directory.read_manifest()? {
        Some(manifest) if manifest.complete => manifest,
        _ => return Err(Error::NotFound { path }),
    };
    if manifest.engine() != Engine::Matrix {
        return Err(Error::Option(format!(
            "the store in {} has the engine `{}`: `repair` goes on without the region of one of engine `matrix`; `check` says what is damaged",
            path.display(),
            manifest.engine().name()
        )));
    }
    check_engine(&manifest, &directory, &options)?;
    directory.parts = parts::find(&directory, &manifest, &further)?;
    directory.devices = devices::find(&directory.path, &manifest, &options.devices, options.read_only)?;
    let (shards, containers) = open_shards(&directory, &manifest, &options, false, false)?;
    let mut report = RepairReport::default();
    for (shard, opened) in (0..).zip(&shards) {
        let AnyShard::Matrix(matrix) = &opened.shard else { continue };
        let Some(loss) = &matrix.recovery().loss else { continue };
        report.lost.push(LostRegion {
            shard,
            why: loss.why.clone(),
            loss: loss.to_string(),
            version: loss.known.version,
            oldest: loss.known.oldest,
            records: loss.known.records,
            clean: loss.clean,
            kept_version: loss.kept_version,
            entries: loss.entries,
        });
    }
    let Some(containers) = containers.filter(|_| accept_lost_region) else { return Ok(report) };
    let summary = containers.summary();
    containers.mapping().sync().map_err(stratakv_engine::Error::from)?;
    if let Some(moved) = region::moved(&directory, &manifest, &options, &summary.paths)? {
        directory.write_manifest(&moved)?;
    }
    report.repaired = !report.lost.is_empty();
    report.region = Some(summary.path.display().to_string());
    Ok(report)
}
