//! `check`: every record, the index against the disk, the books of free space. Changes nothing.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stratakv_base::Key;

use self::of_matrix::check_matrix;
use self::of_tier::check_tier;
use crate::devices::{self, Device};
use crate::directory::Directory;
use crate::engine::{AnyShard, Engine};
use crate::error::Error;
use crate::open::{OpenedShard, check_engine, open_shards};
use crate::options::{OpenProgress, Options};
use crate::{parts, region};

mod of_matrix;
mod of_tier;

/// What [`check`] found, added over the shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Shards looked at.
    pub shards: u32,
    /// Records whose checksum, place and index entry are right.
    pub records: u64,
    /// 4 KiB pages in the volumes, or the region.
    pub pages: u64,
    /// Of these, free.
    pub pages_free: u64,
    /// Leftovers of writes that were cut off before they were acknowledged: harmless.
    pub torn: u64,
    /// Keys whose newest record is damaged and cannot be read: at most a hundred from each shard.
    pub lost: Vec<Key>,
    /// How many there are.
    pub lost_records: u64,
    /// Damaged records whose key cannot be read either; older copies of records may be among them.
    pub lost_unknown: u64,
    /// Damage, with its place. Empty: the store is sound.
    pub damage: Vec<String>,
    /// Books that do not add up: a defect of this program. Please report it.
    pub mistakes: Vec<String>,
}

impl CheckReport {
    /// No damage, and everything adds up.
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty() && self.mistakes.is_empty()
    }
}

/// Reads and verifies a whole store that no process has open.
///
/// # Errors
/// The store cannot be opened at all; damage within it is reported, not an error.
pub fn check(
    path: impl AsRef<Path>,
    progress: Option<Arc<dyn Fn(OpenProgress) + Send + Sync>>,
) -> Result<CheckReport, Error> {
    check_spread(path, &[], &[], &[], progress)
}

/// As [`check`], of a store whose further directories, or devices, or region, are not where they were at its creation.
///
/// # Errors
/// As [`check`]; also if several are named: a store has one or the other.
pub fn check_spread(
    path: impl AsRef<Path>,
    further: &[PathBuf],
    devices: &[PathBuf],
    regions: &[PathBuf],
    progress: Option<Arc<dyn Fn(OpenProgress) + Send + Sync>>,
) -> Result<CheckReport, Error> {
    let mut options = Options::new().create(false).read_only(true).memory_bytes(u64::MAX >> 8);
    options = options.further_directories(further).devices(devices);
    options.region_paths = regions.to_vec();
    options.progress = progress;
    options.check()?;
    let (path, further) = parts::home(path.as_ref(), further)?;
    let mut directory = Directory::lock(&path, false, true)?;
    let manifest = match directory.read_manifest()? {
        Some(manifest) if manifest.complete => manifest,
        _ => return Err(Error::NotFound { path }),
    };
    directory.parts = parts::find(&directory, &manifest, &further)?;
    directory.devices = devices::find(&directory.path, &manifest, devices, true)?;
    check_engine(&manifest, &directory, &options)?;
    if manifest.engine() == Engine::Hash {
        return region::check(&directory, &manifest, &options);
    }
    let mut sum = CheckReport { shards: manifest.shards, ..CheckReport::default() };
    sum.damage.extend(directory.devices.iter().filter_map(Device::damage));
    for (number, shard) in open_shards(&directory, &manifest, &options, false, true)?.0.iter().enumerate() {
        let slab = match &shard.shard {
            AnyShard::Slab(slab) => slab,
            AnyShard::Matrix(matrix) => {
                check_matrix(matrix, shard, &mut sum);
                continue;
            }
            AnyShard::Tier(tier) => {
                check_tier(tier, number, shard, &mut sum);
                continue;
            }
        };
        let (recovery, books) = (slab.recovery(), slab.check());
        sum.records += recovery.records;
        sum.torn += recovery.torn;
        sum.lost.extend(recovery.lost.iter().cloned());
        sum.lost_records += recovery.lost_records;
        sum.lost_unknown += recovery.lost_unknown;
        sum.pages += books.total_pages;
        sum.pages_free += books.free_pages + books.limbo_pages;
        sum.damage.extend(recovery.corrupt.iter().map(ToString::to_string));
        sum.damage.extend(books.corrupt.iter().map(ToString::to_string));
        sum.mistakes.extend(books.mistakes.iter().map(|mistake| format!("shard {number}: {mistake}")));
        if recovery.superblock_repaired {
            sum.damage.push(repaired(shard));
        }
    }
    // Recovery and the books meet the same damage.
    let mut seen = HashSet::new();
    sum.damage.retain(|damage| seen.insert(damage.clone()));
    Ok(sum)
}

fn repaired(shard: &OpenedShard) -> String {
    let volume = shard.volume.path().display();
    format!("{volume}: one copy of what says where everything lies is damaged; opening the store repairs it")
}
