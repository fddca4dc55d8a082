//! The engines as the simulator sees them, and the runs `cargo xtask sim` makes over them.

pub mod ledger;
pub mod matrix;
pub mod tier;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use stratakv_device::Geometry;
use stratakv_sim::flips::{Flips, Sample};
use stratakv_sim::machine::{Audit, Engine, Opening};
use stratakv_sim::scenario::Statistics;
use stratakv_sim::search::{Failure, run_seed};
#[cfg(feature = "fault_points")]
use stratakv_sim::search::{run_guarded, shrink};
use stratakv_slab::{
    CheckReport, CheckpointPace, DiscardPace, Packed, PackedOpener, RecoveryReport, Slab, SlabConfig, SlabOpener,
};

/// Engine `slab`.
#[derive(Clone, Copy, Debug)]
pub struct SlabEngine;

/// Engine `slab` with placement `packed`.
#[derive(Clone, Copy, Debug)]
pub struct PackedEngine;

/// One of them, which gives free pages to the file system as soon as it may.
#[derive(Clone, Copy, Debug)]
pub struct Discarding<E>(pub E);

impl Engine for SlabEngine {
    type Opener = SlabOpener;
    type Shard = Slab;

    fn opener(&self, opening: &Opening) -> SlabOpener {
        let config = config(opening, true);
        if opening.create { SlabOpener::create(config) } else { SlabOpener::recover(config) }
    }

    fn audit(&self, shard: &Slab) -> Audit {
        audit(shard.recovery(), shard.check())
    }
}

impl Engine for PackedEngine {
    type Opener = PackedOpener;
    type Shard = Packed;

    fn opener(&self, opening: &Opening) -> PackedOpener {
        // A log is compared with what its checkpoint says of it, but not always: then damage meets
        // those who rely on it.
        let config = config(opening, opening.depth != 2);
        if opening.create { PackedOpener::create(config) } else { PackedOpener::recover(config) }
    }

    fn capacity_bytes_min(&self) -> u64 {
        64 << 12
    }

    fn audit(&self, shard: &Packed) -> Audit {
        audit(shard.recovery(), shard.check())
    }
}

/// At once, and as fast as it goes.
const AT_ONCE: DiscardPace = DiscardPace { after_ns: 0, bytes_per_second: u64::MAX, kept_bytes: 0 };

impl Engine for Discarding<SlabEngine> {
    type Opener = SlabOpener;
    type Shard = Slab;

    fn opener(&self, opening: &Opening) -> SlabOpener {
        let config = SlabConfig { discards: Some(AT_ONCE), ..config(opening, true) };
        if opening.create { SlabOpener::create(config) } else { SlabOpener::recover(config) }
    }

    fn zero_writes(&self) -> bool {
        true
    }

    fn audit(&self, shard: &Slab) -> Audit {
        self.0.audit(shard)
    }
}

impl Engine for Discarding<PackedEngine> {
    type Opener = PackedOpener;
    type Shard = Packed;

    fn opener(&self, opening: &Opening) -> PackedOpener {
        let config = SlabConfig { discards: Some(AT_ONCE), ..config(opening, opening.depth != 2) };
        if opening.create { PackedOpener::create(config) } else { PackedOpener::recover(config) }
    }

    fn capacity_bytes_min(&self) -> u64 {
        self.0.capacity_bytes_min()
    }

    fn zero_writes(&self) -> bool {
        true
    }

    fn audit(&self, shard: &Packed) -> Audit {
        self.0.audit(shard)
    }
}

fn config(opening: &Opening, verify: bool) -> SlabConfig {
    SlabConfig {
        uuid: *b"simulated store!",
        shard: 0,
        shards: 1,
        geometry: Geometry { volatile_cache: opening.volatile_cache, ..Geometry::unknown() },
        memory_bytes: opening.memory_bytes,
        depth: opening.depth,
        capacity_bytes: opening.capacity_bytes,
        volume_bytes: opening.volume_bytes,
        read_only: opening.read_only,
        discards: None,
        scanned_per_write_min: 0,
        checkpoints: CheckpointPace {
            // Often, but not for a few records where a segment is a megabyte.
            log_bytes_min: match opening.checkpoint_bytes {
                Some(bytes) => bytes.into(),
                None if opening.capacity_bytes.is_some() => 12 << 10,
                None => 3 << 20,
            },
            times: 0,
            step_bytes: 200,
        },
        record_cache: opening.record_cache,
        verify,
    }
}

fn audit(recovery: &RecoveryReport, check: CheckReport) -> Audit {
    let damage = recovery.corrupt.iter().chain(&check.corrupt).map(ToString::to_string);
    Audit {
        damage: damage.collect(),
        mistakes: check.mistakes,
        repaired: recovery.superblock_repaired,
        quick: recovery.checkpoint.is_used,
    }
}

/// Turns every `step`th bit of a small store, in two threads.
///
/// # Errors
/// Which bit did harm.
pub fn turn_bits<E: Engine + Sync>(engine: &E, step: usize) -> Result<Flips, String> {
    let sample = Sample::make(engine)?;
    let halves = std::thread::scope(|scope| {
        let sample = &sample;
        let half = |first| scope.spawn(move || sample.tick(engine, (first..sample.bits()).step_by(2 * step)));
        [half(0), half(step as u64)].map(|thread| thread.join().unwrap_or_else(|_| Err("a panic".into())))
    });
    let mut sum = Flips::default();
    for half in halves {
        sum.add(&half?);
    }
    Ok(sum)
}

/// What it took to notice a fault point.
#[cfg(feature = "fault_points")]
#[derive(Clone, Debug)]
pub struct Caught {
    /// Seeds run, the one that failed included.
    pub seeds: u64,
    /// Processor time of this thread, in seconds.
    pub cpu_seconds: f64,
    /// The scenario in which it showed, cut down if that was asked for.
    pub failure: Failure,
}

/// Where a search for a fault point begins, and when it gives up.
#[cfg(feature = "fault_points")]
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The first seed.
    pub from: u64,
    /// Most seeds.
    pub seeds: u64,
    /// Most processor time of this thread, in seconds.
    pub cpu_seconds: f64,
}

/// Turns a fault point on and runs seed after seed until one fails or the limit is reached.
///
/// # Panics
/// The seed fails without the fault point too: that is a defect.
#[cfg(feature = "fault_points")]
pub fn listen<E: Engine>(engine: &E, name: &str, limit: Limit, cut_down: bool) -> Option<Caught> {
    let run = |seed| run_seed(engine, seed).err();
    let (seeds, cpu_seconds, failure) = hunt(&run, name, limit)?;
    let mut caught = Caught { seeds, cpu_seconds, failure: *failure };
    if cut_down {
        stratakv_base::fault_point::release(Some(name));
        caught.failure = shrink(engine, &caught.failure, 3000);
        stratakv_base::fault_point::release(None);
    }
    Some(caught)
}

/// As [`listen`], over whole worlds: for fault points of what one shard alone cannot do wrong. How
/// many seeds it took, the processor time, and what was noticed.
#[cfg(feature = "fault_points")]
pub fn listen_in_world(world: crate::world::RunSeed, name: &str, limit: Limit) -> Option<(u64, f64, String)> {
    // A panic is a way to show, too.
    hunt(&|seed| run_guarded(|| world(seed)).err(), name, limit)
}

#[cfg(feature = "fault_points")]
fn hunt<F>(run: &dyn Fn(u64) -> Option<F>, name: &str, limit: Limit) -> Option<(u64, f64, F)> {
    stratakv_base::fault_point::release(Some(name));
    let begin = cpu_seconds();
    let mut seeds = 0;
    let caught = loop {
        if seeds == limit.seeds || cpu_seconds() - begin > limit.cpu_seconds {
            break None;
        }
        seeds += 1;
        if let Some(failure) = run(limit.from + seeds - 1) {
            break Some((seeds, cpu_seconds() - begin, failure));
        }
    };
    stratakv_base::fault_point::release(None);
    if caught.is_some() {
        let seed = limit.from + seeds - 1;
        assert!(run(seed).is_none(), "seed {seed} fails without the fault point too");
    }
    caught
}

/// Whether the scenarios kept of this fault point's defect still fail while it is on; `None` if
/// there are none.
#[cfg(feature = "fault_points")]
pub fn still_fails<E: Engine>(engine: &E, name: &str) -> Option<bool> {
    stratakv_base::fault_point::release(Some(name));
    let mut kept = ledger::ledger().into_iter().filter(|found| found.fault_point == Some(name)).peekable();
    let any = kept.peek().is_some();
    let fail = kept.all(|found| stratakv_sim::search::run_plan(engine, &found.plan).is_err());
    stratakv_base::fault_point::release(None);
    any.then_some(fail)
}

#[cfg(feature = "fault_points")]
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// How long to search.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The first seed.
    pub from: u64,
    /// How many, at most.
    pub seeds: u64,
    /// How long, at most.
    pub time: Duration,
    /// Threads.
    pub threads: usize,
}

/// Runs seed after seed until one fails or seeds or time are used up. `watch` is told the sums
/// every few seconds.
///
/// # Errors
/// The failure with the lowest seed among those found, with the sums so far.
pub fn search<E: Engine + Sync>(
    engine: &E,
    search: &Search,
    watch: &(dyn Fn(&Statistics, u64) + Sync),
) -> (Statistics, Option<Box<Failure>>) {
    let next = AtomicU64::new(search.from);
    let stop = AtomicBool::new(false);
    let sums = Mutex::new((Statistics::default(), None::<Box<Failure>>));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..search.threads {
            scope.spawn(|| {
                let mut mine = Statistics::default();
                let mut told = Instant::now();
                while !stop.load(Ordering::Relaxed) && started.elapsed() < search.time {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed - search.from >= search.seeds {
                        break;
                    }
                    let failed = match run_seed(engine, seed) {
                        Ok(statistics) => {
                            mine.add(&statistics);
                            None
                        }
                        Err(failure) => Some(failure),
                    };
                    if failed.is_some() || told.elapsed() > Duration::from_secs(10) {
                        told = Instant::now();
                        let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
                        sums.0.add(&std::mem::take(&mut mine));
                        if let Some(failure) = failed {
                            stop.store(true, Ordering::Relaxed);
                            if sums.1.as_ref().is_none_or(|known| failure.seed < known.seed) {
                                sums.1 = Some(failure);
                            }
                        }
                        watch(&sums.0, next.load(Ordering::Relaxed));
                    }
                }
                sums.lock().unwrap_or_else(PoisonError::into_inner).0.add(&mine);
            });
        }
    });
    sums.into_inner().unwrap_or_else(PoisonError::into_inner)
}
