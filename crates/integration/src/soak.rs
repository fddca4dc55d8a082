//! A soak: a store kept at a given fill for minutes, with values of all sizes, deletes and expiry,
//! every read compared.
//!
//! What should be flat at the end is told by the minute: throughput, memory of the process, bytes
//! on disk, what the engine moves.

mod lane;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stratakv::{Options, Placement, Statistic, Store};

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of the new store.
    pub placement: Placement,
    /// How full its volumes are kept, 0 to 1.
    pub fill: f64,
    /// Of its volumes together.
    pub capacity_bytes: u64,
    /// Its cap.
    pub memory_bytes: u64,
    /// How long.
    pub seconds: u64,
    /// Of a line of the report.
    pub interval_s: u64,
    /// Seed.
    pub seed: u64,
    /// Shortest and longest value.
    pub value_bytes: (usize, usize),
}

/// One interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct Minute {
    /// Operations answered in each second.
    pub operations_per_s: f64,
    /// Bytes of values written in each second.
    pub written_per_s: f64,
    /// The second in which fewest operations were answered.
    pub slowest_second: u64,
    /// How full the volumes are, 0 to 1.
    pub fill: f64,
    /// Resident memory of the process.
    pub resident_bytes: u64,
    /// Bytes the volumes take on disk.
    pub disk_bytes: u64,
    /// Writes that were refused because the store is full.
    pub refused: u64,
    /// Bytes the engine moved for each byte written.
    pub moved: f64,
}

/// What the lanes share.
struct Shared {
    stop: AtomicBool,
    operations: AtomicU64,
    written: AtomicU64,
    refused: AtomicU64,
    /// Bytes of values that each lane may keep alive.
    target: AtomicU64,
}

const LANES: u64 = 2;

/// Runs the plan in a new store in `directory`; `report` is told each interval. The store is closed
/// at the end.
///
/// # Errors
/// A value was not what was written last, or the store failed otherwise than by being full.
pub fn run(directory: &Path, plan: &Plan, report: &mut dyn FnMut(&Minute)) -> Result<Vec<Minute>, String> {
    let options = Options::new().placement(plan.placement).capacity_bytes(plan.capacity_bytes);
    let store = options.memory_bytes(plan.memory_bytes).create_new(true).open(directory);
    let store = store.map_err(|error| error.to_string())?;
    let first_target = (plan.capacity_bytes as f64 * plan.fill * 0.8) as u64 / LANES;
    let shared = Shared {
        stop: false.into(),
        operations: 0.into(),
        written: 0.into(),
        refused: 0.into(),
        target: first_target.into(),
    };
    let minutes = thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES)
            .map(|number| {
                scope.spawn({
                    let (store, shared) = (store.clone(), &shared);
                    move || lane::run(&store, plan, number, shared)
                })
            })
            .collect();
        let minutes = watch(&store, directory, plan, &shared, report);
        shared.stop.store(true, Ordering::Relaxed);
        for lane in lanes {
            lane.join().map_err(|_| "a lane panicked".to_owned())??;
        }
        minutes
    })?;
    store.close().map_err(|error| error.to_string())?;
    Ok(minutes)
}

/// Sees to the fill, and takes the figures.
fn watch(
    store: &Store,
    directory: &Path,
    plan: &Plan,
    shared: &Shared,
    report: &mut dyn FnMut(&Minute),
) -> Result<Vec<Minute>, String> {
    let (started, mut minutes) = (Instant::now(), Vec::new());
    let (mut done, mut written, mut moved, mut refused, mut slowest) = (0, 0, 0, 0, u64::MAX);
    let (mut done_before, mut fill_before) = (0, 0.0);
    for second in 1..=plan.seconds {
        while started.elapsed() < Duration::from_secs(second) {
            if shared.stop.load(Ordering::Relaxed) {
                return Err("a lane has ended before its time".into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        let stats = store.stats();
        let fill = fill(&stats, plan);
        let target = shared.target.load(Ordering::Relaxed) as f64;
        // Only while the fill stands still: what is written counts some time later.
        let step = (plan.fill / fill.max(0.01)).clamp(0.98, 1.02);
        if (fill - fill_before).abs() < 0.01 || fill > plan.fill {
            shared.target.store((target * step) as u64, Ordering::Relaxed);
        }
        fill_before = fill;
        let now = shared.operations.load(Ordering::Relaxed);
        slowest = slowest.min(now - done_before);
        done_before = now;
        if second.is_multiple_of(plan.interval_s) {
            let (written_now, moved_now) = (shared.written.load(Ordering::Relaxed), named(&stats, "cleaned_bytes"));
            let refused_now = shared.refused.load(Ordering::Relaxed);
            let minute = Minute {
                operations_per_s: (now - done) as f64 / plan.interval_s as f64,
                written_per_s: (written_now - written) as f64 / plan.interval_s as f64,
                slowest_second: slowest,
                fill,
                resident_bytes: resident_bytes(),
                disk_bytes: disk_bytes(directory),
                refused: refused_now - refused,
                moved: (moved_now - moved) as f64 / (written_now - written).max(1) as f64,
            };
            (done, written, moved, refused, slowest) = (now, written_now, moved_now, refused_now, u64::MAX);
            report(&minute);
            minutes.push(minute);
        }
    }
    Ok(minutes)
}

fn named(stats: &[Statistic], name: &str) -> u64 {
    stats.iter().find(|statistic| statistic.name == name).map_or(0, |statistic| statistic.value)
}

/// The share of the volumes that holds something alive.
fn fill(stats: &[Statistic], plan: &Plan) -> f64 {
    let pages = match plan.placement {
        Placement::InPlace => named(stats, "pages_used") + named(stats, "blob_pages"),
        Placement::Packed => named(stats, "blob_pages"),
    };
    (pages as f64 * 4096.0 + named(stats, "live_bytes") as f64) / plan.capacity_bytes as f64
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default() * 4096
}

fn disk_bytes(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.blocks() * 512).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_soak_compares_every_read_and_keeps_its_fill() {
        for placement in [Placement::InPlace, Placement::Packed] {
            let folder = tempfile::tempdir().unwrap();
            let plan = Plan {
                placement,
                fill: 0.7,
                capacity_bytes: 64 << 20,
                memory_bytes: 16 << 20,
                seconds: 3,
                interval_s: 1,
                seed: 1,
                value_bytes: (16, 100_000),
            };
            let minutes = run(&folder.path().join("store"), &plan, &mut |_| {}).unwrap();
            assert_eq!(minutes.len(), 3);
            assert!(minutes.iter().all(|minute| minute.fill < 0.95), "{minutes:?}");
            assert!(minutes.iter().any(|minute| minute.operations_per_s > 0.0), "{minutes:?}");
        }
    }
}
