//! Whole stores in the simulator: several shards of slab behind the real runtime, store and server code, on simulated disks and sockets,
//! in one thread, by a seeded clock. One seed gives one run, always the same.
//!
//! [`store`] is a process with the library embedded, [`server`] one that serves memcache clients. Both die at any moment, by a power cut or a kill,
//! and are opened again by the code that opens real volumes.

pub mod server;
pub mod store;

use std::path::PathBuf;
use std::sync::Arc;

use stratakv::{AnyShard, Driver, Level, Store};
use stratakv_base::random::Random;
use stratakv_base::{Mono, Now, Wall};
use stratakv_device::{Geometry, Pool, Ring};
use stratakv_runtime::{Clock, ManualClock, Member, OpenFailure, Runtime, open_shard_by};
use stratakv_sim::disk::{Chances, Disk, DiskOptions};
use stratakv_sim::ring::World;
use stratakv_slab::{CheckpointPace, Placement, Slab, SlabConfig, SlabOpener};

/// What runs came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Runs.
    pub runs: u64,
    /// Lives that a power cut ended.
    pub power_cuts: u64,
    /// Lives that a kill ended.
    pub kills: u64,
    /// Lives that ended in order.
    pub closes: u64,
    /// Recoveries that were themselves cut off.
    pub cut_recoveries: u64,
    /// Operations or commands asked.
    pub asked: u64,
    /// Of them, answered.
    pub answered: u64,
    /// Runs whose history was too hard to judge.
    pub undecided: u64,
    /// Backups made and judged (store only).
    pub backups: u64,
    /// Connections (server only).
    pub connections: u64,
    /// A checksum over everything that was answered, to compare runs by.
    pub digest: u64,
}

impl Statistics {
    /// Adds another run's counts.
    pub fn add(&mut self, other: &Statistics) {
        self.runs += other.runs;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.closes += other.closes;
        self.cut_recoveries += other.cut_recoveries;
        self.asked += other.asked;
        self.answered += other.answered;
        self.undecided += other.undecided;
        self.backups += other.backups;
        self.connections += other.connections;
        self.note(&other.digest.to_le_bytes());
    }

    fn note(&mut self, bytes: &[u8]) {
        let mut hash = self.digest ^ 0xCBF2_9CE4_8422_2325;
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
        self.digest = hash;
    }
}

/// Runs the world of a seed; the error says what went wrong.
pub type RunSeed = fn(seed: u64) -> Result<Statistics, String>;

/// The world of that name: `store`, `server`, or one shard of engine `tier`, whose judge is none of a durable engine.
pub fn by_name(name: &str) -> Option<RunSeed> {
    match name {
        "store" => Some(store::run),
        "server" => Some(server::run),
        "tier" => Some(crate::sim::tier::run),
        _ => None,
    }
}

/// A store's circumstances.
#[derive(Clone, Copy, Debug)]
struct Setup {
    shards: u32,
    capacity_bytes: u64,
    volatile_cache: bool,
    depth: u32,
    placement: Placement,
    reactors: usize,
    chances: Chances,
}

impl Setup {
    fn draw(random: &mut Random) -> Setup {
        Setup {
            shards: 1 + random.below(3) as u32,
            capacity_bytes: [64, 96, 160][random.below(3) as usize] * 4096,
            volatile_cache: random.below(6) > 0,
            depth: [1, 2, 8, 32][random.below(4) as usize],
            reactors: 1 + random.below(2) as usize,
            placement: if random.below(3) == 0 { Placement::Packed } else { Placement::InPlace },
            chances: Chances { delay: [0, 0, 800, 6000][random.below(4) as usize], ..Chances::default() },
        }
    }
}

/// Memory of a shard, in bytes.
const MEMORY_BYTES: u64 = 4 << 20;

/// A machine with the volumes of a store, and its clocks.
struct Host {
    setup: Setup,
    world: World,
    clock: Arc<ManualClock>,
    now: Now,
    pools: Vec<Pool>,
    created: bool,
}

/// A store's process.
struct Process {
    runtime: Arc<Runtime<AnyShard>>,
    reactors: Vec<Driver>,
    store: Store,
}

impl Host {
    fn new(setup: Setup, seed: u64) -> Host {
        let world = World::new(seed);
        for shard in 0..setup.shards {
            let options =
                DiskOptions { capacity_bytes: setup.capacity_bytes + 8 * 4096, volatile_cache: setup.volatile_cache };
            let mut disk = Disk::new(options);
            disk.set_chances(setup.chances);
            world.add_disk(name(shard), disk);
        }
        let pools = (0..setup.shards).map(|_| Pool::new(MEMORY_BYTES as usize)).collect();
        let now = Now { mono: Mono(1_000_000_000), wall: Wall(1_000_000) };
        let clock = Arc::new(ManualClock::default());
        clock.set(now);
        Host { setup, world, clock, now, pools, created: false }
    }

    fn clock(&self) -> Clock {
        Clock::Manual(Arc::clone(&self.clock))
    }

    /// Time passes.
    fn pass(&mut self, nanoseconds: u64) {
        self.now.mono.0 += nanoseconds;
        self.clock.set(self.now);
    }

    /// Creates or recovers every shard and puts them to work. `None` if the power was cut after `cut` batches of completions.
    fn open(&mut self, cut: Option<u64>) -> Result<Option<Process>, String> {
        let mut batches_left = cut;
        let mut members = Vec::new();
        for shard in 0..self.setup.shards {
            let Some(member) = self.open_shard(shard, &mut batches_left)? else { return Ok(None) };
            members.push(member);
        }
        self.created = true;
        let rings = (0..self.setup.reactors).map(|_| self.ring()).collect::<Result<Vec<_>, _>>()?;
        let (runtime, reactors) = Runtime::turned(members, rings, self.clock());
        let store = Store::over(Arc::clone(&runtime), Level::PowerLoss);
        Ok(Some(Process { runtime, reactors, store }))
    }

    fn open_shard(&self, shard: u32, batches_left: &mut Option<u64>) -> Result<Option<Member<AnyShard>>, String> {
        let volume = self.world.volume(name(shard)).map_err(|error| error.to_string())?;
        let pool = self.pools[shard as usize].clone();
        let config = self.config(shard);
        let opener = if self.created { SlabOpener::recover(config) } else { SlabOpener::create(config) };
        let mut ring = self.ring()?;
        let mut watch = |_| {
            match batches_left {
                Some(0) => self.world.crash(true),
                Some(left) => *left -= 1,
                None => {}
            };
        };
        let slab = match open_shard_by(&self.clock(), opener, &volume, &pool, ring.as_mut(), &mut watch) {
            Ok(slab) => slab,
            Err(OpenFailure::Ring(_)) => return Ok(None),
            Err(failure) => return Err(format!("shard {shard} does not open: {failure}")),
        };
        if *batches_left == Some(0) {
            // Cut at its very end.
            self.world.crash(true);
            return Ok(None);
        }
        audit(shard, &slab)?;
        Ok(Some(Member { shard: AnyShard::Slab(Box::new(slab)), volume, pool }))
    }

    fn config(&self, shard: u32) -> SlabConfig {
        SlabConfig {
            uuid: *b"simulated store!",
            shard,
            shards: self.setup.shards,
            geometry: Geometry { volatile_cache: self.setup.volatile_cache, ..Geometry::unknown() },
            memory_bytes: MEMORY_BYTES,
            placement: self.setup.placement,
            depth: self.setup.depth,
            capacity_bytes: Some(self.setup.capacity_bytes),
            volume_bytes: self.world.with_disk(&name(shard), |disk| disk.len_bytes()),
            read_only: false,
            checkpoints: CheckpointPace { log_bytes_min: 12 << 10, times: 0, step_bytes: 200 },
            scanned_per_write_min: 0,
            record_cache: true,
            verify: true,
        }
    }

    fn ring(&self) -> Result<Box<dyn Ring + Send>, String> {
        Ok(Box::new(self.world.ring().map_err(|error| error.to_string())?))
    }

    /// Recovers the store after a crash. Now and then the power is cut while it is being recovered: then says so.
    fn reopen(&mut self, random: &mut Random, statistics: &mut Statistics) -> Result<(Process, bool), String> {
        let cuts = if self.created { [0, 0, 0, 1, 1, 2, 3][random.below(7) as usize] } else { 0 };
        for cut in 0..cuts {
            let stop = random.below(12);
            match self.open(Some(stop))? {
                None => statistics.cut_recoveries += 1,
                Some(process) => return Ok((process, cut > 0)),
            }
            self.is_all_given_back()?;
        }
        let process = self.open(None)?.ok_or("recovery ended by itself")?;
        Ok((process, cuts > 0))
    }

    /// Whether all blocks are back, once a process has ended.
    fn is_all_given_back(&self) -> Result<(), String> {
        let used: usize = self.pools.iter().map(Pool::used_bytes).sum();
        if used == 0 {
            Ok(())
        } else {
            Err(format!("{used} bytes of blocks were not given back when the process ended"))
        }
    }
}

fn name(shard: u32) -> PathBuf {
    PathBuf::from(format!("{shard}.vol"))
}

/// Nothing is damaged and everything adds up: the disks here do not lie.
fn audit(shard: u32, slab: &Slab) -> Result<(), String> {
    let check = slab.check();
    let damage: Vec<String> = slab.recovery().corrupt.iter().chain(&check.corrupt).map(ToString::to_string).collect();
    if damage.is_empty() && check.mistakes.is_empty() {
        return Ok(());
    }
    Err(format!("shard {shard} after recovery: damage {damage:?}, mistakes {:?}", check.mistakes))
}
