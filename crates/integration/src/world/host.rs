//! A machine with the volumes of a store, and the store's process: opened, cut off, mended and
//! opened again.

use std::path::PathBuf;
use std::sync::Arc;

use stratakv::raw::{AnyShard, Driver};
use stratakv::{Engine, Level, Placement, Store};
use stratakv_base::random::Random;
use stratakv_base::{Mono, Now, Wall};
use stratakv_device::{Geometry, Pool, Ring};
use stratakv_engine::Opener;
use stratakv_matrix::{Compression, MatrixConfig, MatrixOpener};
use stratakv_pmem::{MapOptions, Mapping, RegionPart};
use stratakv_runtime::{Clock, ManualClock, Member, OpenFailure, Runtime, open_shard_by};
use stratakv_sim::coverage::{Coverage, StorePhase};
use stratakv_sim::disk::{Chances, Disk, DiskOptions};
use stratakv_sim::ring::World;
use stratakv_slab::{CheckReport, CheckpointPace, PackedOpener, RecoveryReport, SlabConfig, SlabOpener};
use stratakv_tier::{Start, TierConfig, TierOpener};

use super::{Medium, Setup, Statistics};

/// Of a shard of engine `matrix`: its region, and what a unit of it has.
const REGION_BYTES: u64 = 1 << 20;
const UNIT_BYTES: u32 = 4096;
/// Where a wall clock begins that goes with time, in milliseconds.
const GUARDED_START_MS: u64 = 1_800_000_000_000;
/// A pool has a chunk of each class however little memory there is, and lends one more of each to
/// what makes room.
const POOL_BYTES_MIN: u64 = 4 << 20;
const BEYOND_BYTES: u64 = 2 << 20;

/// See the module.
pub(super) struct Host {
    pub(super) setup: Setup,
    pub(super) world: World,
    pub(super) clock: Arc<ManualClock>,
    pub(super) now: Now,
    /// The wall clock is guarded against steps and goes with time; it is so far ahead. Else it
    /// stands still.
    guarded: Option<(Clock, i64)>,
    pools: Vec<Pool>,
    /// Of engine `matrix`: what kills leave.
    regions: Vec<Arc<Mapping>>,
    /// Openings of matrix, of all shards: each has a number of its own.
    openings: u64,
    created: bool,
    /// Which system runs: the power was cut so often.
    boot: u64,
    /// Shards that nobody has tried to open since the power was cut. One that was, though that
    /// failed, may have the boot's mark, and what an orderly end had left before it.
    cold: Vec<bool>,
    /// Requests that disks had failed when the store was last opened.
    failures: u64,
}

/// A store's process.
pub(super) struct Process {
    pub(super) runtime: Arc<Runtime<AnyShard>>,
    pub(super) reactors: Vec<Driver>,
    pub(super) store: Store,
}

impl Host {
    pub(super) fn new(setup: Setup, seed: u64) -> Host {
        let world = World::new(seed);
        for shard in 0..setup.shards {
            let options =
                DiskOptions { capacity_bytes: setup.capacity_bytes + 8 * 4096, volatile_cache: setup.volatile_cache };
            let disk = match setup.medium {
                Medium::Kernel => Disk::new(options),
                Medium::Nvme => Disk::driven(options),
            };
            world.add_disk(name(shard), disk);
        }
        let pools = (0..setup.shards).map(|_| Pool::new(setup.memory_bytes as usize)).collect();
        let now = Now { mono: Mono(1_000_000_000), wall: Wall(1_000_000) };
        let clock = Arc::new(ManualClock::default());
        clock.set(now);
        let host = Host {
            setup,
            world,
            clock,
            now,
            guarded: None,
            pools,
            regions: Vec::new(),
            openings: 0,
            created: false,
            boot: 1,
            cold: vec![false; setup.shards as usize],
            failures: 0,
        };
        host.set_chances(setup.chances);
        host
    }

    fn clock(&self) -> Clock {
        match &self.guarded {
            Some((clock, _)) => clock.clone(),
            None => Clock::Manual(Arc::clone(&self.clock)),
        }
    }

    /// Time passes.
    pub(super) fn pass(&mut self, nanoseconds: u64) {
        self.now.mono.0 += nanoseconds;
        if let Some((_, ahead_ms)) = self.guarded {
            self.now.wall = Wall(GUARDED_START_MS.saturating_add_signed(ahead_ms) + self.now.mono.0 / 1_000_000);
        }
        self.clock.set(self.now);
        let mono = self.now.mono;
        self.world.with_net(|net, _| net.now = mono);
    }

    /// From now on the wall clock goes, and each process guards itself against its steps.
    pub(super) fn guard_clock(&mut self) {
        self.guarded = Some((self.clock(), 0));
        self.pass(0);
    }

    /// The wall clock is so far ahead of time from now on, if it is guarded.
    pub(super) fn step_clock(&mut self, ahead_ms: i64) {
        if let Some((_, ahead)) = &mut self.guarded {
            *ahead = ahead_ms;
            self.pass(0);
        }
    }

    /// The process ends; or the power fails, and the system boots anew.
    pub(super) fn crash(&mut self, power: bool) {
        self.world.crash(power);
        if power {
            self.boots();
        }
    }

    fn boots(&mut self) {
        self.boot += 1;
        self.cold.fill(true);
    }

    fn each_disk<R>(&self, mut look: impl FnMut(&mut Disk) -> R) -> Vec<R> {
        (0..self.setup.shards).map(|shard| self.world.with_disk(&name(shard), &mut look)).collect()
    }

    /// How often requests fail from now on, on all disks.
    pub(super) fn set_chances(&self, chances: Chances) {
        self.each_disk(|disk| disk.set_chances(chances));
    }

    /// One disk fails from now on, whatever is asked of it.
    pub(super) fn break_a_disk(&self, random: &mut Random) {
        let shard = random.below(u64::from(self.setup.shards)) as u32;
        let chances = Chances { error_forever: u16::MAX, ..self.setup.chances };
        self.world.with_disk(&name(shard), |disk| disk.set_chances(chances));
    }

    /// What failed for ever works again; what fails now and then goes on to do so.
    pub(super) fn repair(&self) {
        self.each_disk(Disk::repair);
        self.set_chances(self.setup.chances);
    }

    /// Nothing fails any more, until [`Host::repair`].
    fn calm(&self) {
        self.each_disk(Disk::repair);
        self.set_chances(Chances { delay: self.setup.chances.delay, ..Chances::default() });
    }

    /// Requests that disks have failed so far, for lack of space too.
    fn failures_so_far(&self) -> u64 {
        self.each_disk(|disk| disk.failed() + disk.full()).iter().sum()
    }

    /// Whether the disks have given reason for an error since the store was last opened.
    pub(super) fn is_excused(&self) -> bool {
        self.failures_so_far() > self.failures
    }

    /// Which faults the disks had.
    pub(super) fn coverage(&self) -> Coverage {
        let mut sum = Coverage::default();
        self.each_disk(|disk| disk.coverage().clone()).iter().for_each(|coverage| sum.add(coverage));
        sum
    }

    pub(super) fn set_phase(&self, phase: StorePhase) {
        self.each_disk(|disk| disk.set_phase(phase));
    }

    /// Creates or recovers every shard and puts them to work. `None` if the power was cut after
    /// `cut` batches of completions.
    pub(super) fn open(&mut self, cut: Option<u64>) -> Result<Option<Process>, String> {
        self.set_phase(if self.created { StorePhase::Recover } else { StorePhase::Create });
        self.failures = self.failures_so_far();
        if let Some((clock, _)) = &mut self.guarded {
            *clock = Clock::guarded(Arc::clone(&self.clock));
        }
        let mut batches_left = cut;
        let mut members = Vec::new();
        for shard in 0..self.setup.shards {
            let Some(member) = self.open_shard(shard, &mut batches_left)? else {
                self.boots();
                return Ok(None);
            };
            members.push(member);
        }
        self.created = true;
        self.set_phase(StorePhase::Serve);
        let rings = (0..self.setup.reactors).map(|_| self.ring()).collect::<Result<Vec<_>, _>>()?;
        let (runtime, reactors) = Runtime::turned(members, rings, self.clock());
        let level = match self.setup.engine {
            Engine::Tier => Level::Memory,
            // A region in memory survives kills.
            Engine::Matrix => Level::ProcessCrash,
            _ => Level::PowerLoss,
        };
        let store = Store::over(Arc::clone(&runtime), level, self.setup.engine);
        Ok(Some(Process { runtime, reactors, store }))
    }

    fn open_shard(&mut self, shard: u32, batches_left: &mut Option<u64>) -> Result<Option<Member<AnyShard>>, String> {
        // A process begins without blocks, and with the whole of its memory.
        self.pools[shard as usize] = Pool::new(self.setup.memory_bytes as usize);
        let is_cold = std::mem::take(&mut self.cold[shard as usize]);
        let opened = match self.setup.engine {
            Engine::Tier => {
                let config = self.tier_config(shard);
                let opener = if self.created { TierOpener::recover(config) } else { TierOpener::create(config) };
                self.drive(shard, opener, batches_left)?.map(|tier| AnyShard::Tier(Box::new(tier)))
            }
            Engine::Matrix => {
                let opener = self.matrix_opener(shard)?;
                self.drive(shard, opener, batches_left)?.map(|matrix| AnyShard::Matrix(Box::new(matrix)))
            }
            _ if self.setup.placement == Placement::Packed => {
                let config = self.slab_config(shard);
                let opener = if self.created { PackedOpener::recover(config) } else { PackedOpener::create(config) };
                self.drive(shard, opener, batches_left)?.map(|packed| AnyShard::Packed(Box::new(packed)))
            }
            _ => {
                let config = self.slab_config(shard);
                let opener = if self.created { SlabOpener::recover(config) } else { SlabOpener::create(config) };
                self.drive(shard, opener, batches_left)?.map(|slab| AnyShard::Slab(Box::new(slab)))
            }
        };
        let Some(opened) = opened else { return Ok(None) };
        self.audit(shard, &opened, is_cold)?;
        let volume = self.world.volume(name(shard)).map_err(|error| error.to_string())?;
        Ok(Some(Member { shard: opened, volume, pool: self.pools[shard as usize].clone() }))
    }

    /// `None`: cut off.
    fn drive<O: Opener>(
        &self,
        shard: u32,
        opener: O,
        batches_left: &mut Option<u64>,
    ) -> Result<Option<O::Shard>, String> {
        let volume = self.world.volume(name(shard)).map_err(|error| error.to_string())?;
        let mut ring = self.ring()?;
        let mut watch = |_| {
            match batches_left {
                Some(0) => self.world.crash(true),
                Some(left) => *left -= 1,
                None => {}
            };
        };
        let pool = &self.pools[shard as usize];
        let opened = match open_shard_by(&self.clock(), opener, &volume, pool, ring.as_mut(), &mut watch) {
            Ok(opened) => opened,
            Err(OpenFailure::Ring(_)) => return Ok(None),
            Err(failure) => return Err(format!("shard {shard} does not open: {failure}")),
        };
        if *batches_left == Some(0) {
            // Cut at its very end.
            self.world.crash(true);
            return Ok(None);
        }
        Ok(Some(opened))
    }

    fn volume_bytes(&self, shard: u32) -> u64 {
        self.world.with_disk(&name(shard), |disk| disk.len_bytes())
    }

    fn slab_config(&self, shard: u32) -> SlabConfig {
        SlabConfig {
            uuid: *b"simulated store!",
            shard,
            shards: self.setup.shards,
            geometry: Geometry { volatile_cache: self.setup.volatile_cache, ..Geometry::unknown() },
            memory_bytes: self.setup.memory_bytes,
            depth: self.setup.depth,
            capacity_bytes: Some(self.setup.capacity_bytes),
            volume_bytes: self.volume_bytes(shard),
            read_only: false,
            checkpoints: CheckpointPace { log_bytes_min: 12 << 10, times: 0, step_bytes: 200 },
            discards: None,
            scanned_per_write_min: 0,
            record_cache: true,
            verify: true,
        }
    }

    fn tier_config(&self, shard: u32) -> TierConfig {
        let mut boot = [0; 16];
        boot[..8].copy_from_slice(&self.boot.to_le_bytes());
        TierConfig {
            uuid: *b"simulated store!",
            shard,
            shards: self.setup.shards,
            memory_bytes: self.setup.memory_bytes,
            depth: self.setup.depth,
            capacity_bytes: Some(self.setup.capacity_bytes),
            segment_bytes: self.setup.segment_bytes,
            collected_percent: self.setup.collected_percent,
            saves_at_shutdown: false,
            boot: Some(boot),
            begins_empty: false,
            read_only: false,
        }
    }

    fn matrix_opener(&mut self, shard: u32) -> Result<MatrixOpener<RegionPart>, String> {
        let config = MatrixConfig {
            uuid: *b"simulated store!",
            shard,
            shards: self.setup.shards,
            memory_bytes: self.setup.memory_bytes,
            depth: self.setup.depth,
            capacity_bytes: Some(self.setup.capacity_bytes),
            row_bytes: 24 << 10,
            table_bytes: 16 << 10,
            level_bytes: 64 << 10,
            pmem_levels_bytes: 0,
            range_keys_few: 1,
            // In every other life.
            compression: if self.openings.is_multiple_of(2) { Compression::None } else { Compression::Lz4 },
            read_only: false,
            session: self.openings,
        };
        self.openings += 1;
        if self.regions.len() == shard as usize {
            let region = Mapping::anonymous(REGION_BYTES, MapOptions::default()).map_err(|error| error.to_string())?;
            self.regions.push(Arc::new(region));
        }
        let region = Arc::clone(&self.regions[shard as usize]);
        let part = RegionPart::new(region, 0, REGION_BYTES).map_err(|error| error.to_string())?;
        Ok(if self.created {
            MatrixOpener::recover(config, part)
        } else {
            MatrixOpener::create(config, part, UNIT_BYTES)
        })
    }

    pub(super) fn ring(&self) -> Result<Box<dyn Ring + Send>, String> {
        Ok(Box::new(self.world.ring().map_err(|error| error.to_string())?))
    }

    /// Recovers the store after a crash. Now and then the power is cut while it is being recovered:
    /// then says so. Disks may fail meanwhile; then they are mended, and it opens.
    pub(super) fn reopen(
        &mut self,
        random: &mut Random,
        statistics: &mut Statistics,
    ) -> Result<(Process, bool), String> {
        let may_be_cut = self.created && self.setup.engine != Engine::Matrix;
        let cuts = if may_be_cut { [0, 0, 0, 1, 1, 2, 3][random.below(7) as usize] } else { 0 };
        let is_sound = self.setup.chances == Chances { delay: self.setup.chances.delay, ..Chances::default() };
        let begins_calm = !self.created || !is_sound && random.below(3) > 0;
        if begins_calm {
            self.calm();
        }
        for cut in 0..cuts {
            let stop = random.below(12);
            match self.open(Some(stop)) {
                Ok(None) => statistics.cut_recoveries += 1,
                Ok(Some(process)) => return Ok((self.served(process), cut > 0)),
                Err(why) => self.did_not_open(&why, statistics)?,
            }
            self.is_all_given_back()?;
        }
        let process = match self.open(None) {
            Ok(process) => process,
            Err(why) => {
                self.did_not_open(&why, statistics)?;
                self.open(None).map_err(|again| format!("after a repair: {again} (before it: {why})"))?
            }
        };
        Ok((self.served(process.ok_or("recovery ended by itself")?), cuts > 0))
    }

    fn served(&self, process: Process) -> Process {
        self.repair();
        process
    }

    /// An opening failed: not without a reason. The disks are mended.
    fn did_not_open(&mut self, why: &str, statistics: &mut Statistics) -> Result<(), String> {
        if !self.is_excused() {
            return Err(why.to_owned());
        }
        statistics.failed_openings += 1;
        self.calm();
        self.crash(false);
        Ok(())
    }

    /// Whether all blocks are back, once a process has ended.
    pub(super) fn is_all_given_back(&self) -> Result<(), String> {
        let used: usize = self.pools.iter().map(Pool::used_bytes).sum();
        if used == 0 {
            Ok(())
        } else {
            Err(format!("{used} bytes of blocks were not given back when the process ended"))
        }
    }

    /// Bytes of blocks that the process holds: within the memory it was given.
    pub(super) fn held_bytes(&self) -> Result<u64, String> {
        let mut sum = 0;
        for (shard, pool) in self.pools.iter().enumerate() {
            let held = pool.held_bytes() as u64;
            let most = self.setup.memory_bytes.max(POOL_BYTES_MIN) + BEYOND_BYTES;
            if held > most {
                return Err(format!("shard {shard} holds {held} bytes of blocks, and may have {most}"));
            }
            sum += held;
        }
        Ok(sum)
    }

    /// Nothing is damaged and everything adds up: the disks here do not lie.
    fn audit(&self, shard: u32, opened: &AnyShard, is_cold: bool) -> Result<(), String> {
        let (damage, mistakes) = match opened {
            AnyShard::Slab(slab) => found_in(slab.recovery(), slab.check()),
            AnyShard::Packed(packed) => found_in(packed.recovery(), packed.check()),
            AnyShard::Matrix(matrix) => matrix.check(),
            AnyShard::Tier(tier) => {
                let report = tier.recovery();
                if is_cold && report.start == Start::Recovered && report.items > 0 {
                    return Err(format!("shard {shard} after a power cut: {report:?}"));
                }
                (Vec::new(), tier.check())
            }
        };
        // What a disk failed to write in an earlier life may be met as damage in this one.
        if (damage.is_empty() || self.failures_so_far() > 0) && mistakes.is_empty() {
            return Ok(());
        }
        Err(format!("shard {shard} after recovery: damage {damage:?}, mistakes {mistakes:?}"))
    }
}

fn name(shard: u32) -> PathBuf {
    PathBuf::from(format!("{shard}.vol"))
}

/// Damage and mistakes.
fn found_in(recovery: &RecoveryReport, check: CheckReport) -> (Vec<String>, Vec<String>) {
    let damage = recovery.corrupt.iter().chain(&check.corrupt).map(ToString::to_string);
    (damage.collect(), check.mistakes)
}
