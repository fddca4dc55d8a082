//! `cargo xtask sim`: scenarios from seeds, over the real code of an engine on a disk that fails on command.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use stratakv_integration::sim::matrix::MatrixEngine;
use stratakv_integration::sim::{PackedEngine, Search, SlabEngine, search, turn_bits};
use stratakv_integration::world::{self, On, RunSeed, by_name};
use stratakv_sim::machine::Engine;
use stratakv_sim::scenario::Statistics;
use stratakv_sim::search::{Failure, keep_panics, run_guarded, run_plan, run_seed, shrink};

const USAGE: &str = "\
usage: sim [--engine slab|matrix] [--seeds N] [--minutes M] [--from SEED] [--threads 2]    search
       sim [--engine slab|matrix] --seed SEED [--trace yes]      one seed again, cut down if it fails; traced: every request and answer

       sim --world store|tier [--engine matrix] --seeds N [--from SEED]   the same for a whole store (on matrix too), or a shard of engine tier
       sim --world server [--engine slab|matrix|tier] [--minutes M] [--from SEED]   a server with its clients, network and disks failing; without --engine each
                                                         seed has its own
       sim [--engine slab] --canaries NAME,NAME,… [--cpu-seconds 10]    each deliberate defect must be caught in time
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
        let known = "known: shard, store, server (with --engine), tier";
        let found = by_name(&name, on);
        arguments.world = Some(found.ok_or_else(|| format!("there is no world `{name}` with that engine; {known}"))?);
    }
    if !bounded {
        arguments.search.time = Duration::from_secs(60);
    }
    Ok(arguments)
}

fn run(arguments: Arguments) -> Result<(), String> {
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
        return listen_to(&arguments.canaries, arguments.search.from, arguments.cpu_seconds, arguments.trace);
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
            let found = run_guarded(|| world(seed));
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
        Some((seed, why)) => Err(format!("seed {seed} failed: {why}\nagain: the same with --seed {seed}")),
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
        "{} operations asked, {} answered, {} backups, {} histories too hard to judge",
        sums.asked, sums.answered, sums.backups, sums.undecided
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
fn listen_to(_: &[String], _: u64, _: f64, _: bool) -> Result<(), String> {
    Err("built without canaries: use `cargo xtask sim --canaries`".into())
}

/// Whose canaries are hunted in which world.
#[cfg(feature = "canaries")]
const WORLDS: [(&str, RunSeed); 6] = [
    ("matrix:matrix_batch_", world::store::run_on_matrix),
    // Odd seeds have checks.
    ("batch_checks_", |seed| world::store::run(2 * seed + 1)),
    ("batch_", world::store::run),
    ("backup_", world::store::run),
    ("server_", world::server::run),
    ("tier_", stratakv_integration::sim::tier::run),
];

#[cfg(feature = "canaries")]
fn listen_to(names: &[String], from: u64, cpu_seconds_max: f64, script: bool) -> Result<(), String> {
    use stratakv_integration::sim;
    let mut caught = 0_usize;
    println!("{:<40}{:>8}{:>9}  how it showed", "canary", "seeds", "CPU s");
    // What several shards do together shows in a store only.
    let (of_stores, of_shards): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| WORLDS.iter().any(|(prefix, _)| name.starts_with(prefix)));
    for name in of_stores {
        let world =
            WORLDS.iter().find(|(prefix, _)| name.starts_with(prefix)).map_or(world::store::run as RunSeed, |w| w.1);
        let (_, bare) = name.split_once(':').unwrap_or(("", name));
        match sim::listen_in_world(world, bare, from, cpu_seconds_max) {
            Some((seeds, cpu_seconds, why)) => {
                caught += 1;
                let why: String = why.replace('\n', " ").chars().take(150).collect();
                println!("{name:<40}{seeds:>8}{cpu_seconds:>9.3}  {why}");
            }
            None => println!("{name:<40} not caught within {cpu_seconds_max} CPU-seconds"),
        }
    }
    for name in of_shards {
        let found = match name.split_once(':') {
            Some(("packed", name)) => sim::listen(&PackedEngine, name, from, cpu_seconds_max, script),
            Some(("matrix", name)) => sim::listen(&MatrixEngine, name, from, cpu_seconds_max, script),
            _ => sim::listen(&SlabEngine, name, from, cpu_seconds_max, script),
        };
        match found {
            Some(found) => {
                caught += 1;
                let why: String = found.failure.why.replace('\n', " ").chars().take(150).collect();
                println!("{name:<40}{:>8}{:>9.3}  {why}", found.seeds, found.cpu_seconds);
                if script {
                    println!("{}", found.failure.script());
                }
            }
            None => println!("{name:<40} not caught within {cpu_seconds_max} CPU-seconds"),
        }
    }
    let kept: Vec<(&String, bool)> =
        names.iter().filter_map(|name| Some((name, sim::still_fails(&SlabEngine, name)?))).collect();
    for (name, _) in kept.iter().filter(|(_, fails)| !fails) {
        println!("{name}: the scenario kept of it fails no more: draw another (--trace)");
        caught = caught.saturating_sub(1);
    }
    println!("{} scenarios of earlier defects fail with their canary", kept.iter().filter(|(_, fails)| *fails).count());
    println!("{caught} of {} caught", names.len());
    if caught == names.len() { Ok(()) } else { Err("a canary was not caught".into()) }
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
