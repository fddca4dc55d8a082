//! Opens the shards, each in a thread of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use stratakv_base::Level;
use stratakv_device::volume::OpenMode;
use stratakv_device::{Geometry, Pool, Volume, open_ring_for};
use stratakv_engine::Progress;
use stratakv_matrix::MatrixConfig;
use stratakv_runtime::open_shard_by;
use stratakv_slab::{CheckpointPace, DiscardPace, PackedOpener, SCANNED_PER_WRITE_MIN, SlabConfig, SlabOpener};
use stratakv_tier::{TierConfig, TierOpener};

use crate::containers::Containers;
use crate::devices;
use crate::directory::{Directory, Manifest, io_error};
use crate::engine::{AnyShard, Engine};
use crate::error::Error;
use crate::options::{OpenProgress, Options, Placement};
use crate::rejoin;
use crate::store::RecoverySummary;

/// A recovered shard, before it is put to work.
pub(crate) struct OpenedShard {
    pub(crate) shard: AnyShard,
    pub(crate) volume: Arc<Volume>,
    pub(crate) pool: Pool,
}

/// Opens every shard, each in a thread of its own: recovery is a scan at the device's full
/// bandwidth (KVell section 5.6).
pub(crate) fn open_shards(
    directory: &Directory,
    manifest: &Manifest,
    options: &Options,
    opening: ShardOpening,
) -> Result<(Vec<OpenedShard>, Option<Containers>), Error> {
    let shards = manifest.shards;
    let has_containers = manifest.engine() == Engine::Matrix;
    let containers =
        has_containers.then(|| Containers::open(directory, manifest, options, opening.created)).transpose()?;
    let progress = ProgressSum::new(shards, options);
    let opened: Vec<Result<OpenedShard, Error>> = thread::scope(|scope| {
        let open = |shard| {
            let (progress, containers) = (&progress, containers.as_ref());
            let how = OpenOne { shard, opening, containers };
            scope.spawn(move || open_one(directory, manifest, options, how, progress))
        };
        let threads: Vec<_> = (0..shards).map(open).collect();
        let gone = || Error::Option("a thread that opened a shard ended by a panic".into());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(gone()))).collect()
    });
    Ok((opened.into_iter().collect::<Result<_, _>>()?, containers))
}

/// How shards are opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShardOpening {
    /// They are made.
    pub(crate) created: bool,
    /// Everything is read and verified.
    pub(crate) verify: bool,
    /// What a cache had is forgotten.
    pub(crate) begins_empty: bool,
}

/// Which shard is opened, and how.
#[derive(Clone, Copy)]
struct OpenOne<'a> {
    shard: u32,
    opening: ShardOpening,
    containers: Option<&'a Containers>,
}

fn open_one(
    directory: &Directory,
    manifest: &Manifest,
    options: &Options,
    how: OpenOne<'_>,
    progress: &ProgressSum,
) -> Result<OpenedShard, Error> {
    let OpenOne { shard, opening, containers } = how;
    let created = opening.created;
    let volume = open_volume(directory, shard, OpenMode { create: created, read_only: options.read_only })?;
    let path = volume.path().to_path_buf();
    let volume_bytes = volume.len_bytes().map_err(io_error("measure", &path))?;
    let volume = Arc::new(volume);
    check_medium(&volume, options.level_of(manifest.engine()), options.read_only)?;
    let pool = Pool::new((options.memory_bytes / u64::from(manifest.shards)) as usize);
    let mut ring = open_ring_for(options.tuning.io, 64, [&volume]).map_err(io_error("set up a ring for", &path))?;
    let ring = ring.as_mut();
    let watch = &mut |now: Progress| progress.report(shard, now);
    let begins_empty = opening.begins_empty;
    let settings = ShardSettings { directory, manifest, options, shard, volume_bytes, begins_empty };
    let told = |error| Error::opening(path.clone(), error);
    let shard = match (manifest.engine(), containers) {
        (Engine::Matrix, Some(containers)) => {
            let opener = containers.opener(settings.matrix())?;
            let matrix = open_shard_by(&options.clock, opener, &volume, &pool, ring, watch);
            AnyShard::Matrix(Box::new(matrix.map_err(|error| containers.named(told(error)))?))
        }
        (Engine::Tier, _) => {
            let config = settings.tier();
            let capacity_bytes = config.capacity_bytes;
            let opener = if created { TierOpener::create(config) } else { TierOpener::recover(config) };
            let tier = open_shard_by(&options.clock, opener, &volume, &pool, ring, watch).map_err(told)?;
            if !options.read_only && !tier.is_returning() {
                // With less than before it began empty: what lies beyond goes back to the file
                // system.
                let len_bytes = capacity_bytes.unwrap_or(0).max(TIER_BYTES_MIN);
                volume.shorten(len_bytes).map_err(io_error("shorten", &path))?;
            }
            AnyShard::Tier(Box::new(tier))
        }
        _ if manifest.placement() == Placement::Packed => {
            let config = settings.slab(volume.geometry().clone(), opening.verify);
            let opener = if created { PackedOpener::create(config) } else { PackedOpener::recover(config) };
            let packed = open_shard_by(&options.clock, opener, &volume, &pool, ring, watch);
            AnyShard::Packed(Box::new(packed.map_err(told)?))
        }
        _ => {
            let config = settings.slab(volume.geometry().clone(), opening.verify);
            let opener = if created { SlabOpener::create(config) } else { SlabOpener::recover(config) };
            let slab = open_shard_by(&options.clock, opener, &volume, &pool, ring, watch);
            AnyShard::Slab(Box::new(slab.map_err(told)?))
        }
    };
    Ok(OpenedShard { shard, volume, pool })
}

/// Of memory, so many times as much on the volumes of a cache, if nobody said.
pub(super) const TIERS_RATIO: u64 = 8;
/// A cache's volume without a second tier: two superblocks.
const TIER_BYTES_MIN: u64 = 8192;
/// A segment of a cache.
const SEGMENT_BYTES: u32 = 1 << 20;
/// Keys of a range that are deleted one by one: 64 deletes take some 4 KiB of the log.
const RANGE_KEYS_FEW: usize = 64;

/// A shard's part of what the store has: from this an engine's configuration is made.
struct ShardSettings<'a> {
    directory: &'a Directory,
    manifest: &'a Manifest,
    options: &'a Options,
    shard: u32,
    volume_bytes: u64,
    begins_empty: bool,
}

impl ShardSettings<'_> {
    fn uuid(&self) -> [u8; 16] {
        self.manifest.uuid_bytes().unwrap_or_default()
    }

    fn memory_bytes(&self) -> u64 {
        self.options.memory_bytes / u64::from(self.manifest.shards)
    }

    /// Most requests in flight.
    fn depth(&self) -> u32 {
        (self.options.tuning.depth * self.directory.disks() as u32 / self.manifest.shards).max(1)
    }

    /// Most bytes of the volume, if there is a limit. A range of a device is as long as it will
    /// ever be.
    fn capacity_bytes(&self) -> Option<u64> {
        let asked = self.options.capacity_bytes.filter(|bytes| *bytes > 0);
        let asked = asked.map(|bytes| bytes / u64::from(self.manifest.shards));
        let room = (!self.directory.devices.is_empty()).then_some(self.volume_bytes);
        asked.into_iter().chain(room).min()
    }

    fn slab(&self, geometry: Geometry, verify: bool) -> SlabConfig {
        SlabConfig {
            uuid: self.uuid(),
            shard: self.shard,
            shards: self.manifest.shards,
            geometry,
            memory_bytes: self.memory_bytes(),
            depth: self.depth(),
            capacity_bytes: self.capacity_bytes(),
            volume_bytes: self.volume_bytes,
            read_only: self.options.read_only,
            checkpoints: CheckpointPace::default(),
            discards: self.directory.devices.is_empty().then(DiscardPace::default),
            scanned_per_write_min: SCANNED_PER_WRITE_MIN,
            record_cache: true,
            verify,
        }
    }

    fn tier(&self) -> TierConfig {
        let capacity_bytes = self.manifest.cache_bytes.unwrap_or_default() / u64::from(self.manifest.shards);
        let on_devices = !self.manifest.devices.is_empty();
        let capacity_bytes = if on_devices { capacity_bytes.min(self.volume_bytes) } else { capacity_bytes };
        TierConfig {
            uuid: self.uuid(),
            shard: self.shard,
            shards: self.manifest.shards,
            memory_bytes: self.memory_bytes(),
            depth: self.depth(),
            capacity_bytes: (capacity_bytes > 0).then_some(capacity_bytes),
            saves_at_shutdown: self.manifest.saves_at_shutdown,
            segment_bytes: SEGMENT_BYTES,
            collected_percent: 66,
            boot: boot(),
            begins_empty: self.begins_empty,
            read_only: self.options.read_only,
        }
    }

    /// The lengths are those of the container.
    fn matrix(&self) -> MatrixConfig {
        MatrixConfig {
            uuid: self.uuid(),
            shard: self.shard,
            shards: self.manifest.shards,
            memory_bytes: self.memory_bytes(),
            depth: self.depth(),
            capacity_bytes: self.capacity_bytes(),
            row_bytes: 0,
            table_bytes: 0,
            level_bytes: 0,
            pmem_levels_bytes: 0,
            range_keys_few: RANGE_KEYS_FEW,
            compression: self.manifest.compression(),
            read_only: self.options.read_only,
            session: 0,
        }
    }
}

/// The identity of the running system.
fn boot() -> Option<[u8; 16]> {
    // Without it a cache begins empty.
    let digits: String = rejoin::boot().chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
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

pub(super) fn summarise(shards: &[OpenedShard], created: bool) -> RecoverySummary {
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
            watch: options.listeners.progress.clone(),
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
