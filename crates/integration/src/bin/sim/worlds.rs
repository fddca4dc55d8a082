//! Seeds of whole worlds.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use stratakv_integration::probes;
use stratakv_integration::sim::Search;
use stratakv_integration::world::{RunSeed, Statistics, left_out};

use crate::Arguments;

/// What a search found.
pub struct SearchResult {
    pub sums: Statistics,
    /// The lowest seed that failed, and why.
    pub failure: Option<(u64, String)>,
    /// The seed after the last one that was run.
    pub next: u64,
}

/// Runs seeds of a world, each in one thread, until one fails or seeds or time are used up. `told`
/// hears of each seed that passed.
pub fn search(
    world: RunSeed,
    limits: &Search,
    without: &[Range<u64>],
    told: &(dyn Fn(u64, &Statistics) + Sync),
) -> SearchResult {
    let (started, next, stop) = (Instant::now(), AtomicU64::new(limits.from), AtomicBool::new(false));
    let found = Mutex::new((Statistics::default(), None::<(u64, String)>));
    let lock = || found.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        while !stop.load(Ordering::Relaxed) && started.elapsed() < limits.time {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed - limits.from >= limits.seeds {
                break;
            }
            let (_, outcome) = left_out::run(world, seed, without);
            let (sums, failure) = &mut *lock();
            match outcome {
                Ok(statistics) => {
                    sums.add(&statistics);
                    told(seed, sums);
                }
                Err(why) => {
                    stop.store(true, Ordering::Relaxed);
                    if failure.as_ref().is_none_or(|(known, _)| seed < *known) {
                        *failure = Some((seed, why));
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| (0..limits.threads).for_each(|_| _ = scope.spawn(work)));
    let (sums, failure) = std::mem::take(&mut *lock());
    SearchResult { sums, failure, next: next.into_inner() }
}

/// Runs what the arguments ask for and tells how it went.
///
/// # Errors
/// What went wrong, cut down.
pub fn run(world: RunSeed, arguments: &Arguments) -> Result<(), String> {
    let mut limits = Search { ..arguments.search };
    if let Some(seed) = arguments.seed {
        (limits.from, limits.seeds) = (seed, 1);
    }
    let (started, minutes_told) = (Instant::now(), AtomicU64::new(0));
    let SearchResult { sums, failure, next } = search(world, &limits, &arguments.without, &|seed, sums| {
        let minutes = started.elapsed().as_secs() / 60;
        if minutes_told.fetch_max(minutes, Ordering::Relaxed) < minutes {
            let (asked, failed) = (sums.asked, sums.served.failed);
            let peak = resident_bytes_max() >> 20;
            eprintln!(
                "{minutes} min: up to seed {seed}, {asked} asked, {failed} failed for a reason, {peak} MiB at most"
            );
        }
    });
    print(&sums);
    probes::counts()
        .0
        .iter()
        .filter(|(_, times)| *times > 0)
        .for_each(|(name, times)| println!("{times} times {name}"));
    println!("seeds {} to {}, {:.1} s", limits.from, next - 1, started.elapsed().as_secs_f64());
    match failure {
        Some((seed, why)) => Err(explain(world, seed, &why, &arguments.without)),
        None => {
            println!("nothing lost");
            Ok(())
        }
    }
}

fn print(sums: &Statistics) {
    let served = &sums.served;
    print!("{}", sums.coverage);
    println!(
        "{} runs; lives ended by {} power cuts, {} kills, {} in order; {} recoveries cut off, {} openings failed and went well after a repair",
        sums.runs, sums.power_cuts, sums.kills, sums.closes, sums.cut_recoveries, sums.failed_openings
    );
    println!(
        "{} operations asked, {} answered, {} backups, {} histories too hard to judge; {} shards broke",
        sums.asked, sums.answered, sums.backups, sums.undecided, sums.broken
    );
    println!(
        "{} connections: {} closed, {} reset, {} gone without a word, {} of them in the middle of a command; {} times one stopped reading; {} accepts failed",
        served.connections,
        served.left[0],
        served.left[1],
        served.left[2],
        served.left_inside,
        served.deaf,
        served.accepts_failed
    );
    println!(
        "{} connections that spoke no protocol, {} bytes of it; the wall clock was stepped {} times; {} counts of a key that all share",
        served.adversary, served.adversary_bytes, served.clock_steps, served.tallied
    );
    println!(
        "{} hits; {} answers were errors for which a disk gave reason; {} lives of a cache without its volume, which it said, {} hits in them",
        served.hits, served.failed, served.degraded, served.degraded_hits
    );
    println!(
        "at most {} bytes of blocks held, {} bytes lent to sockets, {} MiB of memory of this process; digest {:016x}",
        served.block_bytes_max,
        served.lent_bytes_max,
        resident_bytes_max() >> 20,
        sums.digest
    );
}

/// Most memory that this process had.
fn resident_bytes_max() -> u64 {
    stratakv_integration::process::memory_bytes(std::process::id(), "VmHWM").unwrap_or_default()
}

/// Cuts a world's seed down, unless it was run without some events already.
fn explain(world: RunSeed, seed: u64, why: &str, without: &[Range<u64>]) -> String {
    let failed = format!("seed {seed} failed: {why}\nagain: the same with --seed {seed}");
    if !without.is_empty() {
        return failed;
    }
    eprintln!("{failed}\nIt is being cut down.");
    match left_out::cut_down(world, seed, 400) {
        Some(smallest) if smallest.left_out.is_empty() => format!("{failed}\nit cannot be cut down"),
        Some(smallest) => {
            let ranges: Vec<String> =
                smallest.left_out.iter().map(|range| format!("{}..{}", range.start, range.end)).collect();
            let gone: u64 = smallest.left_out.iter().map(|range| range.end.min(smallest.events) - range.start).sum();
            format!(
                "{failed}\ncut down to {} events of {}: {}\nagain: the same with --seed {seed} --without {}",
                smallest.events - gone,
                smallest.events,
                smallest.why,
                ranges.join(",")
            )
        }
        None => format!("{failed}\nit passes when it is run again: the run depends on something else than its seed"),
    }
}
