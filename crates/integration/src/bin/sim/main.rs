//! `cargo xtask sim`: scenarios from seeds, over the real code of an engine on a disk that fails on
//! command.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

mod listed;
#[cfg(feature = "fault_points")]
mod planted;
mod worlds;

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use stratakv_integration::sim::matrix::MatrixEngine;
use stratakv_integration::sim::{Discarding, PackedEngine, Search, SlabEngine, search, turn_bits};
use stratakv_integration::world::{Medium, On, RunSeed, by_name};
use stratakv_sim::machine::Engine;
use stratakv_sim::nvme::Driven;
use stratakv_sim::scenario::Statistics;
use stratakv_sim::search::{Failure, keep_panics, run_plan, run_seed, shrink};

const USAGE: &str = "\
usage: sim [--engine slab|matrix] [--seeds N] [--minutes M | --seconds S] [--from SEED] [--threads 2]    search
       sim [--engine slab|matrix] --seed SEED [--trace yes]      one seed again, cut down if it fails; traced: every request and answer

       sim --world store|breaking|tier [--engine matrix] --seeds N [--from SEED]   the same for a whole store (on matrix too), one whose shards break, or a shard of engine tier
       sim --world pipelined [--minutes M]                   hundreds of operations at once over one session
       sim --world library [--minutes M]                     calls of the library one after the other, the power failing in the middle of them
       sim --world redis [--minutes M]                       a server with Redis clients too: structures and transactions, through power cuts and kills
       sim --world breaking_server [--minutes M]             a server whose shards break while the clock is stepped
       sim --world server [--engine slab|matrix|tier] [--minutes M] [--from SEED]   a server with its clients, network and disks failing; without --engine each
                                                         seed has its own
       sim --world NAME --seed SEED [--without A..B,C..D]   one seed of a world again, without some of its events; it is cut down if it fails
       sim --listed FILE    the seeds of a list, a line each: WORLD FROM SEEDS # why
       sim [--engine slab] --fault-points NAME,NAME,… [--cpu-seconds 10]    each deliberate defect must be caught in time
       sim --world NAME --fault-points NAME,NAME,…           the same in that world, instead of where it is at home
       sim --fault-points NAME,NAME,… --known FILE    the same from the seeds of a list, a line each: NAME SEED; few seeds each, whatever time they take
       sim --fault-points NAME,NAME,… --write FILE    draws that list
       sim [--engine slab|matrix] --flips N                  turn every Nth bit of a small store (1: all)
       --medium nvme                                      requests of a shard, or of the store in a world, go through the NVMe driver and a controller that is a program
       --discards yes                                     free pages of engine slab go back to the file system as soon as they may
       --placement in_place|packed                        of engine slab; a fault point `packed:NAME` is of placement packed, `matrix:NAME` in engine matrix

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
    fault_points: Vec<String>,
    /// Not one shard, but a whole store or server.
    world: Option<RunSeed>,
    engine: Option<Which>,
    /// The disk is driven by the NVMe driver of this process.
    driven: bool,
    /// Free pages go back to the file system as soon as they may.
    discards: bool,
    /// Turn every so manieth bit.
    flips: Option<usize>,
    /// For one fault point.
    cpu_seconds: f64,
    /// Seeds that are known to show fault points.
    known: Option<PathBuf>,
    /// Where to write down which seeds show fault points.
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
        fault_points: Vec::new(),
        world: None,
        engine: None,
        driven: false,
        discards: false,
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
            "--medium" if value == "nvme" => arguments.driven = true,
            "--medium" => return Err(format!("there is no medium `{value}`; known: nvme")),
            "--discards" => arguments.discards = value == "yes",
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
            "--fault-points" => arguments.fault_points = value.split(',').map(str::to_owned).collect(),
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
        let known =
            "known: shard, library, pipelined, store, breaking, server (with --engine), redis, breaking_server, tier";
        let medium = if arguments.driven { Medium::Nvme } else { Medium::Kernel };
        let found = by_name(&name, on, medium);
        arguments.world =
            Some(found.ok_or_else(|| format!("there is no world `{name}` with that engine and medium; {known}"))?);
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
    if let Some(world) = arguments.world.filter(|_| arguments.fault_points.is_empty()) {
        return worlds::run(world, &arguments);
    }
    if !arguments.fault_points.is_empty() {
        return listen_to(&arguments);
    }
    match arguments.engine.unwrap_or(Which::InPlace) {
        Which::InPlace if arguments.discards => run_engine(&Discarding(SlabEngine), arguments),
        Which::Packed if arguments.discards => run_engine(&Discarding(PackedEngine), arguments),
        Which::InPlace if arguments.driven => run_engine(&Driven(SlabEngine), arguments),
        Which::Packed if arguments.driven => run_engine(&Driven(PackedEngine), arguments),
        Which::Matrix if arguments.driven => run_engine(&Driven(MatrixEngine), arguments),
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

#[cfg(not(feature = "fault_points"))]
fn listen_to(_: &Arguments) -> Result<(), String> {
    Err("built without fault points: use `cargo xtask sim --fault-points`".into())
}

#[cfg(feature = "fault_points")]
use planted::listen_to;

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
        "seed {} failed: {}\ncut down from {} steps to {}:\n{}\nagain: cargo xtask sim --engine {}{} --seed {}",
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
        if arguments.driven { " --medium nvme" } else { "" },
        failure.seed
    )
}
