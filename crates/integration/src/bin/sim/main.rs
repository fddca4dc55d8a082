//! `cargo xtask sim`: scenarios from seeds, over the real code of an engine on a disk that fails on command.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

mod listed;
#[cfg(feature = "canaries")]
mod planted;

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use stratakv_integration::sim::matrix::MatrixEngine;
use stratakv_integration::sim::{PackedEngine, Search, SlabEngine, search, turn_bits};
use stratakv_integration::world::{self, On, RunSeed, by_name, left_out};
use stratakv_sim::machine::Engine;
use stratakv_sim::scenario::Statistics;
use stratakv_sim::search::{Failure, keep_panics, run_plan, run_seed, shrink};

const USAGE: &str = "\
usage: sim [--engine slab|matrix] [--seeds N] [--minutes M | --seconds S] [--from SEED] [--threads 2]    search
       sim [--engine slab|matrix] --seed SEED [--trace yes]      one seed again, cut down if it fails; traced: every request and answer

       sim --world store|breaking|tier [--engine matrix] --seeds N [--from SEED]   the same for a whole store (on matrix too), one whose shards break, or a shard of engine tier
       sim --world server [--engine slab|matrix|tier] [--minutes M] [--from SEED]   a server with its clients, network and disks failing; without --engine each
                                                         seed has its own
       sim --world NAME --seed SEED [--without A..B,C..D]   one seed of a world again, without some of its events; it is cut down if it fails
       sim --listed FILE    the seeds of a list, a line each: WORLD FROM SEEDS # why
       sim [--engine slab] --canaries NAME,NAME,… [--cpu-seconds 10]    each deliberate defect must be caught in time
       sim --canaries NAME,NAME,… --known FILE    the same from the seeds of a list, a line each: NAME SEED; few seeds each, whatever time they take
       sim --canaries NAME,NAME,… --write FILE    draws that list
       sim [--engine slab|matrix] --flips N                  turn every Nth bit of a small store (1: all)
       --placement in_place|packed                        of engine slab; a canary `packed:NAME` sings in packed, `matrix:NAME` in engine matrix

Every seed draws a setup, operations, faults and crashes; every answer is judged by a model of what the store owes. The same seed
gives the same run. Ends with the table of faults that were met, by phase and kind of request.
";

/// Whose shards are simulated.
#[derive(Clone, Copy, PartialEq)]
enum Which {
    InPlace,
    Packed,
    Matrix,
    /// Under a server only: its shards alone have a world of their own.
    Tier,
}

struct Arguments {
    search: Search,
    seed: Option<u64>,
    trace: bool,
    canaries: Vec<String>,
    /// Not one shard, but a whole store or server.
    world: Option<RunSeed>,
    engine: Option<Which>,
    /// Turn every so manieth bit.
    flips: Option<usize>,
    /// For one canary.
    cpu_seconds: f64,
    /// Seeds that are known to show canaries.
    known: Option<PathBuf>,
    /// Where to write down which seeds show canaries.
    write: Option<PathBuf>,
    /// A list of seeds to run.
    listed: Option<PathBuf>,
    /// Events of a world's seed to leave out.
    without: Vec<Range<u64>>,
}

fn main() -> ExitCode {
    keep_panics();
    match arguments().and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("sim: {message}");
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Result<Arguments, String> {
    let hour = Duration::from_secs(3600);
    let mut arguments = Arguments {
        search: Search { from: 0, seeds: u64::MAX, time: 24 * hour, threads: 2 },
        seed: None,
        trace: false,
        canaries: Vec::new(),
        world: None,
        engine: None,
        flips: None,
        cpu_seconds: 10.0,
        known: None,
        write: None,
        listed: None,
        without: Vec::new(),
    };
    let mut words = std::env::args().skip(1);
    let mut bounded = false;
    let mut world = None;
    while let Some(word) = words.next() {
        if word == "--help" {
            print!("{USAGE}");
            std::process::exit(0);
        }
        let value = words.next().ok_or_else(|| format!("{word} needs a value\n\n{USAGE}"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word} needs a number, not `{value}`"));
        match word.as_str() {
            "--world" if value == "shard" => {}
            "--world" => world = Some(value),
            "--engine" if value == "slab" => _ = arguments.engine.get_or_insert(Which::InPlace),
            "--engine" if value == "matrix" => arguments.engine = Some(Which::Matrix),
            "--engine" if value == "tier" => arguments.engine = Some(Which::Tier),
            "--placement" if value == "in_place" => arguments.engine = Some(Which::InPlace),
            "--placement" if value == "packed" => arguments.engine = Some(Which::Packed),
            "--placement" => return Err(format!("there is no placement `{value}`; known: in_place, packed")),
            "--engine" => return Err(format!("there is no engine `{value}`; known: slab, matrix, tier")),
            "--seeds" => (arguments.search.seeds, bounded) = (number()?, true),
            "--minutes" => (arguments.search.time, bounded) = (Duration::from_secs(60 * number()?), true),
            "--seconds" => (arguments.search.time, bounded) = (Duration::from_secs(number()?), true),
            "--known" => arguments.known = Some(PathBuf::from(value)),
            "--write" => arguments.write = Some(PathBuf::from(value)),
            "--listed" => arguments.listed = Some(PathBuf::from(value)),
            "--without" => arguments.without = listed::ranges(&value)?,
            "--from" => arguments.search.from = number()?,
            "--threads" => arguments.search.threads = number()?.clamp(1, 64) as usize,
            "--seed" => arguments.seed = Some(number()?),
            "--trace" => arguments.trace = true,
            "--flips" => arguments.flips = Some(number()?.max(1) as usize),
            "--cpu-seconds" => arguments.cpu_seconds = number()? as f64,
            "--canaries" => arguments.canaries = value.split(',').map(str::to_owned).collect(),
            other => return Err(format!("unknown option `{other}`\n\n{USAGE}")),
        }
    }
    if let Some(name) = world {
        let on = arguments.engine.map(|engine| match engine {
            Which::InPlace => On::InPlace,
            Which::Packed => On::Packed,
            Which::Matrix => On::Matrix,
            Which::Tier => On::Tier,
        });
        let known = "known: shard, store, breaking, server (with --engine), tier";
        let found = by_name(&name, on);
        arguments.world = Some(found.ok_or_else(|| format!("there is no world `{name}` with that engine; {known}"))?);
    }
    if !bounded {
        arguments.search.time = Duration::from_secs(60);
    }
    Ok(arguments)
}

fn run(arguments: Arguments) -> Result<(), String> {
    if let Some(file) = &arguments.listed {
        return listed::run(file, arguments.search.threads);
    }
    if let Some(world) = arguments.world {
        return run_world(world, &arguments);
    }
    match arguments.engine.unwrap_or(Which::InPlace) {
        Which::InPlace => run_engine(&SlabEngine, arguments),
        Which::Packed => run_engine(&PackedEngine, arguments),
        Which::Matrix => run_engine(&MatrixEngine, arguments),
        Which::Tier => Err("shards of engine tier have a world of their own: --world tier, or --world server".into()),
    }
}

fn run_engine<E: Engine + Sync>(engine: &E, arguments: Arguments) -> Result<(), String> {
    if let Some(seed) = arguments.seed {
        return match run_seed(engine, seed) {
            Ok(statistics) => {
                print(&statistics);
                Ok(())
            }
            Err(failure) => Err(explain(engine, &failure, &arguments)),
        };
    }
    if let Some(step) = arguments.flips {
        let flips = turn_bits(engine, step)?;
        println!(
            "{} bits turned at rest and {} in service: opening told of {}, a read of {}, {} did no harm; wrong data 0",
            flips.at_rest, flips.in_service, flips.told_at_opening, flips.told_by_a_read, flips.harmless
        );
        return Ok(());
    }
    if !arguments.canaries.is_empty() {
        return listen_to(&arguments);
    }
    let started = Instant::now();
    let (statistics, failure) = search(engine, &arguments.search, &|sums, next| {
        let seconds = started.elapsed().as_secs();
        eprintln!("{seconds} s: up to seed {next}, {} power cuts, {} kills", sums.power_cuts, sums.kills);
    });
    print(&statistics);
    println!("{:.1} s", started.elapsed().as_secs_f64());
    match failure {
        Some(failure) => {
            eprintln!("seed {} failed: {}\nIt is being cut down.", failure.seed, failure.why);
            Err(explain(engine, &failure, &arguments))
        }
        None => {
            println!("nothing lost");
            Ok(())
        }
    }
}

/// Seeds of whole worlds, each in one thread, until one fails or seeds or time are used up.
fn run_world(world: RunSeed, arguments: &Arguments) -> Result<(), String> {
    let (from, seeds) = arguments.seed.map_or((arguments.search.from, arguments.search.seeds), |seed| (seed, 1));
    let (started, next, stop) = (Instant::now(), AtomicU64::new(from), AtomicBool::new(false));
    let sums = Mutex::new((world::Statistics::default(), None::<(u64, String)>));
    let lock = || sums.lock().unwrap_or_else(PoisonError::into_inner);
    let told = AtomicU64::new(0);
    let work = || {
        while !stop.load(Ordering::Relaxed) && started.elapsed() < arguments.search.time {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed - from >= seeds {
                break;
            }
            let (_, found) = left_out::run(world, seed, &arguments.without);
            let mut sums = lock();
            match found {
                Ok(statistics) => sums.0.add(&statistics),
                Err(why) => {
                    stop.store(true, Ordering::Relaxed);
                    if sums.1.as_ref().is_none_or(|(known, _)| seed < *known) {
                        sums.1 = Some((seed, why));
                    }
                }
            }
            let minutes = started.elapsed().as_secs() / 60;
            if told.fetch_max(minutes, Ordering::Relaxed) < minutes {
                let (asked, failed) = (sums.0.asked, sums.0.served.failed);
                let peak = resident_bytes_max() >> 20;
                eprintln!(
                    "{minutes} min: up to seed {seed}, {asked} asked, {failed} failed for a reason, {peak} MiB at most"
                );
            }
        }
    };
    std::thread::scope(|scope| {
        (0..arguments.search.threads).for_each(|_| _ = scope.spawn(work));
    });
    let (sums, failure) = std::mem::take(&mut *lock());
    print_world(&sums);
    println!("seeds {from} to {}, {:.1} s", next.load(Ordering::Relaxed) - 1, started.elapsed().as_secs_f64());
    match failure {
        Some((seed, why)) => Err(explain_world(world, seed, &why, &arguments.without)),
        None => {
            println!("nothing lost");
            Ok(())
        }
    }
}

fn print_world(sums: &world::Statistics) {
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
    println!("{} connections that spoke no protocol, {} bytes of it", served.rude, served.rude_bytes);
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

#[cfg(not(feature = "canaries"))]
fn listen_to(_: &Arguments) -> Result<(), String> {
    Err("built without canaries: use `cargo xtask sim --canaries`".into())
}

#[cfg(feature = "canaries")]
use planted::listen_to;

/// Cuts a world's seed down, unless it was run without some events already.
fn explain_world(world: RunSeed, seed: u64, why: &str, without: &[Range<u64>]) -> String {
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

fn print(sums: &Statistics) {
    print!("{}", sums.coverage);
    let rare = sums.coverage.pairs_below(1000);
    println!("request × fault pairs met fewer than 1,000 times: {}", rare.len());
    for (call, fault, times) in rare {
        println!("  {call:?} × {fault:?}: {times}");
    }
    println!(
        "{} scenarios, {} power cuts and {} kills; ended in recovery {} / {} / {} (depth 1, 2, 3)",
        sums.scenarios, sums.power_cuts, sums.kills, sums.in_recovery[0], sums.in_recovery[1], sums.in_recovery[2]
    );
    println!(
        "{} operations, {} writes acknowledged, {} of them loads, {} keys compared after a crash",
        sums.operations, sums.acknowledged, sums.loads, sums.verified
    );
    let [opened, pages, ended] = sums.snapshots;
    println!("{opened} snapshots opened, {pages} pages of them, {ended} ended since they kept too much");
    println!(
        "injected: {} reads failed, {} stores opened after a repair, {} read with one bit turned; after lies: {} would not open, {} keys older unnoticed",
        sums.failed_reads, sums.repairs, sums.rotten, sums.refused, sums.unnoticed
    );
    println!(
        "opened by a checkpoint: {} of {}, of them {} of {} on volumes without a capacity, {} with places that cannot be read",
        sums.quick[0], sums.opened[0], sums.quick[1], sums.opened[1], sums.quick_and_broken
    );
}

fn explain<E: Engine>(engine: &E, failure: &Failure, arguments: &Arguments) -> String {
    let smallest = shrink(engine, failure, 3000);
    if arguments.trace {
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::TRACE);
        subscriber.without_time().with_writer(std::io::stderr).init();
        // Told again, in its short form.
        let _ = run_plan(engine, &smallest.plan);
    }
    format!(
        "seed {} failed: {}\ncut down from {} steps to {}:\n{}\nagain: cargo xtask sim --engine {} --seed {}",
        failure.seed,
        failure.why,
        failure.plan.steps.len(),
        smallest.plan.steps.len(),
        smallest.script(),
        match arguments.engine {
            None | Some(Which::InPlace) => "slab --placement in_place",
            Some(Which::Packed) => "slab --placement packed",
            Some(Which::Matrix) => "matrix",
            Some(Which::Tier) => "tier",
        },
        failure.seed
    )
}
