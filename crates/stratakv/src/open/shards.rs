//! Opens the shards, each in a thread of its own.

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
    let mut ring = open_ring_for(options.tuning.io, 64, [&volume]).map_err(io_error("set up a ring for", &path))?;
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
        depth: (options.tuning.depth * directory.disks() as u32 / manifest.shards).max(1),
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
