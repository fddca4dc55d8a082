//! `cargo xtask differ`: fresh seeds to our server and to memcached, and every byte of both answers
//! compared.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use stratakv_integration::arguments::answer;
use stratakv_integration::differ::intended::Intended;
use stratakv_integration::differ::peer::{Peers, VERSION};
use stratakv_integration::differ::shrink::compared;
use stratakv_integration::differ::{Counts, Failure};
use stratakv_integration::engine::Engine;
use stratakv_integration::{place, requirement};

const USAGE: &str = "\
usage: differ [--seeds 0..1000] [--engine slab|hash|matrix|tier|all] [--seconds N] [--keep-going N]

  --seeds A..B    sequences of these seeds (0..1000)
  --engine E      of our server; `all`, the default, is one after the other
  --seconds N     no further seed after so many seconds of an engine
  --keep-going N  up to so many differences of an engine, instead of the first one

Sends each sequence to `stratakv serve` and to memcached 1.6.18, and compares every answer. What differs and is not in
crates/integration/src/differ/intended.txt is cut down and printed.
";

/// What to do.
struct Arguments {
    seeds: Range<u64>,
    engines: Vec<Engine>,
    time: Duration,
    differences_max: usize,
}

fn main() -> ExitCode {
    answer("differ", USAGE, |words| arguments(words).and_then(|arguments| differ(&arguments)))
}

fn arguments(words: &[String]) -> Result<Arguments, String> {
    let every: Vec<Engine> = Engine::ALL.iter().copied().chain([Engine::Tier]).collect();
    let mut arguments = Arguments { seeds: 0..1000, engines: every.clone(), time: Duration::MAX, differences_max: 1 };
    for pair in words.chunks(2) {
        let [option, value] = pair else { return Err(format!("{} needs a value\n\n{USAGE}", pair[0])) };
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{option} wants numbers, not `{value}`"));
        match option.as_str() {
            "--seeds" => {
                let (from, to) = value.split_once("..").ok_or_else(|| format!("{option} wants A..B, not `{value}`"))?;
                arguments.seeds = number(from)?..number(to)?;
            }
            "--seconds" => arguments.time = Duration::from_secs(number(value)?),
            "--keep-going" => arguments.differences_max = number(value)? as usize,
            "--engine" if value == "all" => {}
            "--engine" => {
                let engine = every.iter().find(|engine| engine.name() == value);
                arguments.engines = vec![*engine.ok_or_else(|| format!("there is no engine `{value}`\n\n{USAGE}"))?];
            }
            _ => return Err(format!("unknown option `{option}`\n\n{USAGE}")),
        }
    }
    Ok(arguments)
}

fn differ(arguments: &Arguments) -> Result<(), String> {
    let memcached = requirement::tool("memcached").ok_or("memcached is not installed (Debian: memcached)")?;
    let (intended, mut differences) = (Intended::list(), 0);
    for engine in &arguments.engines {
        let place = place::directory();
        let peers = Peers::start(&memcached, *engine, &place.path().join("data"))?;
        let (began, mut counts, mut found) = (Instant::now(), Counts::default(), 0);
        for seed in arguments.seeds.clone() {
            if began.elapsed() > arguments.time || found >= arguments.differences_max {
                break;
            }
            match compared(&peers, seed, &intended) {
                Ok(more) => counts.add(&more),
                Err(Failure::Broken(why)) => return Err(format!("seed {seed}: {why}; ours said:\n{}", peers.said())),
                Err(Failure::Found(difference)) => {
                    found += 1;
                    println!("{} seed {seed}: {}\n", engine.name(), difference.what);
                }
            }
        }
        print(*engine, &counts, began.elapsed());
        differences += found;
    }
    match differences {
        0 => Ok(()),
        count => Err(format!("{count} differences from memcached {VERSION} that are not in the list")),
    }
}

fn print(engine: Engine, counts: &Counts, time: Duration) {
    let Counts { sequences, commands, answers, bytes, left, .. } = counts;
    println!(
        "{}: {sequences} sequences, {commands} commands, {answers} answers the same ({bytes} bytes), {left} sequences left early, {:.1} s",
        engine.name(),
        time.as_secs_f64()
    );
    for (name, count) in &counts.intended {
        println!("  meant: {count:>6} {name}");
    }
}
