//! `check`: every record, the index against the disk, the accounts of free space. Changes nothing.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stratakv_base::Key;
use stratakv_base::limits::SLICE_BYTES;
use stratakv_device::sync::execute;
use stratakv_device::{Class, DiskOutcome, DiskRequest, IoFault};

use self::matrix_store::check_matrix;
use self::slab_store::{check_packed, check_slab};
use self::tier_store::check_tier;
use crate::devices::{self, Device};
use crate::directory::Directory;
use crate::engine::{AnyShard, Engine};
use crate::error::Error;
use crate::open::{OpenedShard, ShardOpening, check_engine, open_shards};
use crate::options::{OpenProgress, Options};
use crate::{parts, region};

mod matrix_store;
mod slab_store;
mod tier_store;

/// What [`check`] found, added over the shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Shards looked at.
    pub shards: u32,
    /// Records of users whose checksum, place and index entry are right: what a dump writes, and
    /// what has expired and was not removed yet.
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
    /// Damage, with its place.
    pub damage: Vec<String>,
    /// Places that the device did not give: an I/O error each. What lies there may be whole.
    pub unreadable: Vec<String>,
    /// Accounts of free space that do not add up: a defect of this program. Please report it.
    pub mistakes: Vec<String>,
}

impl CheckReport {
    /// Everything was read, nothing is damaged or lost, and everything adds up.
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
            && self.unreadable.is_empty()
            && self.mistakes.is_empty()
            && self.lost_records == 0
            && self.lost_unknown == 0
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

/// As [`check`], of a store whose other data directories, or devices, or region, are not where they
/// were at its creation.
///
/// # Errors
/// As [`check`]; also if several are named: a store has one or the other.
pub fn check_spread(
    path: impl AsRef<Path>,
    more_directories: &[PathBuf],
    devices: &[PathBuf],
    regions: &[PathBuf],
    progress: Option<Arc<dyn Fn(OpenProgress) + Send + Sync>>,
) -> Result<CheckReport, Error> {
    let mut options = Options::new().data_directories(more_directories).devices(devices);
    options.asked.region.paths = regions.to_vec();
    options.listeners.progress = progress;
    check_with(path, &options)
}

/// As [`check`]. Of `options` count what says where things are, what carries the I/O, and who is
/// told of the progress.
///
/// # Errors
/// As [`check_spread`].
pub fn check_with(path: impl AsRef<Path>, options: &Options) -> Result<CheckReport, Error> {
    let options = options.clone().create(false).create_new(false).read_only(true).memory_bytes(u64::MAX >> 8);
    options.check()?;
    let (path, more_directories) = parts::home(path.as_ref(), &options.places.more_directories)?;
    let mut directory = Directory::lock(&path, false, true)?;
    crate::backup::refuse_unfinished(&directory.path, false)?;
    let manifest = match directory.read_manifest()? {
        Some(manifest) if manifest.complete => manifest,
        _ => return Err(Error::NotFound { path }),
    };
    directory.parts = parts::find(&directory, &manifest, &more_directories)?;
    directory.devices = devices::find(&directory.path, &manifest, &options.places.devices, true)?;
    check_engine(&manifest, &directory, &options)?;
    if manifest.engine() == Engine::Hash {
        return region::check(&directory, &manifest, &options);
    }
    let mut sum = CheckReport { shards: manifest.shards, ..CheckReport::default() };
    sum.damage.extend(directory.devices.iter().filter_map(Device::damage));
    let opening = ShardOpening { verify: true, ..ShardOpening::default() };
    for (number, shard) in open_shards(&directory, &manifest, &options, opening)?.0.iter().enumerate() {
        match &shard.shard {
            AnyShard::Slab(slab) => check_slab(slab, number, shard, &mut sum),
            AnyShard::Packed(packed) => check_packed(packed, number, shard, &mut sum),
            AnyShard::Matrix(matrix) => check_matrix(matrix, shard, &mut sum),
            AnyShard::Tier(tier) => check_tier(tier, number, shard, &mut sum),
        }
    }
    // Recovery and the accounting meet the same damage.
    let mut seen = HashSet::new();
    sum.damage.retain(|damage| seen.insert(damage.clone()));
    Ok(sum)
}

fn repaired(shard: &OpenedShard) -> String {
    let volume = shard.volume.path().display();
    format!("{volume}: one copy of what says where everything lies is damaged; opening the store repairs it")
}

/// Bytes of a volume, in pieces as long as a block; why the device does not give them.
fn read_volume(shard: &OpenedShard, offset: u64, len: usize) -> Result<Vec<u8>, String> {
    let volume = shard.volume.path().display();
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let (at, piece) = (offset + bytes.len() as u64, SLICE_BYTES.min(len - bytes.len()));
        let block = shard.pool.take(Class::Slice).ok_or("there is no memory to read the volume with")?;
        match execute(&shard.volume, DiskRequest::Read { offset: at, block, len: piece as u32 }) {
            DiskOutcome::Read(block, Ok(())) => bytes.extend_from_slice(block.get(..piece).unwrap_or_default()),
            // Cut short: nothing that checks is there.
            DiskOutcome::Read(_, Err(IoFault::Short)) => bytes.resize(bytes.len() + piece, 0),
            DiskOutcome::Read(_, Err(fault)) => return Err(format!("{volume}: byte {at} cannot be read: {fault}")),
            _ => return Err(format!("{volume}: byte {at} cannot be read")),
        }
    }
    Ok(bytes)
}
