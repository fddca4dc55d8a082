//! `cargo xtask crash`: faults on real processes, and a look at what comes back.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use stratakv::{IoBackend, Level};
use stratakv_base::quantity::parse_bytes;
use stratakv_integration::crash::{Plan, run};
use stratakv_integration::engine::Engine;
use stratakv_integration::protocol::embedded;
use stratakv_integration::scenario::{SCENARIOS, Scenario, ScenarioOutcome, Setting, play};

const USAGE: &str = "\
usage: crash [--engine slab|hash|matrix|tier] [--rounds 200] [--protocol memcache|embedded|any] [--io auto|io_uring|blocking|any]
             [--durability power_loss|process_crash|memory|any] [--clients 8] [--keys 400] [--seed 1] [--data DIR]
       crash --scenario NAME|all [--engine slab] [--seed 1] [--data DIR]

Starts a process that has a store, writes and deletes from several clients, kills it with SIGKILL at a random moment (at times while it
recovers or closes), starts another and compares every key with what was acknowledged. Of `tier`, a cache, every key is the newest or
gone, never older; it is flushed now and then, half of its lives end in order, and it must come back warm. With `any`, the default, each round draws
one. DIR is emptied first and kept on failure; without it a temporary one is used.
Scenarios are other faults on such a process, with the same clients and the same comparison; some need root.
";

/// What to run.
struct Arguments {
    plan: Plan,
    data: Option<PathBuf>,
    scenarios: Vec<&'static Scenario>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.first().map(String::as_str) {
        // Parts played by processes of the harness itself.
        Some("embedded") => serve_embedded(&words[1..]),
        Some(part @ ("reader" | "sender")) => play(part, &words[1..], &mut |line| println!("{line}")),
        _ => arguments(&words).and_then(run_all),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("crash: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Options and their values.
fn pairs(words: &[String]) -> Result<Vec<(&str, &str)>, String> {
    let pairs = words.chunks(2).map(|words| match words {
        [word, value] => Ok((word.as_str(), value.as_str())),
        _ => Err(format!("{} needs a value\n\n{USAGE}", words.join(" "))),
    });
    pairs.collect()
}

fn arguments(words: &[String]) -> Result<Arguments, String> {
    if words.iter().any(|word| word == "--help") {
        print!("{USAGE}");
        for Scenario { name, what, .. } in SCENARIOS {
            println!("  {name:<16} {what}");
        }
        std::process::exit(0);
    }
    let pairs = pairs(words)?;
    let named = pairs.iter().rfind(|(word, _)| *word == "--engine");
    let engine = named.map_or(Some(Engine::Slab), |(_, name)| Engine::named(name));
    let mut plan = Plan::of(engine.ok_or_else(|| format!("there is no such engine\n\n{USAGE}"))?);
    let (mut data, mut scenarios) = (None, Vec::new());
    for (word, value) in pairs {
        let number = || value.parse::<u64>().map_err(|_| format!("{word} needs a number, not `{value}`"));
        let unknown = |what| format!("there is no {what} `{value}`\n\n{USAGE}");
        match (word, value) {
            ("--rounds", _) => plan.rounds = number()? as u32,
            ("--clients", _) => plan.clients = number()?,
            ("--keys", _) => plan.mix.keys_per_client = number()?,
            ("--seed", _) => plan.seed = number()?,
            ("--protocol" | "--io" | "--durability", "any") | ("--engine", _) => {}
            ("--protocol", _) => {
                plan.protocols.retain(|protocol| protocol.name() == value);
                if plan.protocols.is_empty() {
                    return Err(unknown("protocol"));
                }
            }
            ("--io", _) => plan.ios = vec![value.into()],
            ("--durability", _) => plan.levels = vec![value.into()],
            ("--data", _) => data = Some(value.into()),
            ("--scenario", "all") => scenarios.extend(SCENARIOS),
            ("--scenario", _) => scenarios.push(Scenario::named(value).ok_or_else(|| unknown("scenario"))?),
            _ => return Err(format!("unknown option `{word}`\n\n{USAGE}")),
        }
    }
    if plan.engine.evicts() && !scenarios.is_empty() {
        return Err("scenarios ask whether everything is there, and `tier` is a cache: name another engine".into());
    }
    Ok(Arguments { plan, data, scenarios })
}

fn run_all(Arguments { plan, data, scenarios }: Arguments) -> Result<(), String> {
    let temporary = tempfile::tempdir().map_err(|error| error.to_string())?;
    let data = data.unwrap_or_else(|| temporary.path().join("data"));
    let outcome = match scenarios.is_empty() {
        true => empty(&data).and_then(|()| crash(&plan, &data)),
        false => scenarios.iter().try_for_each(|scenario| run_scenario(scenario, &plan, &data)),
    };
    if outcome.is_err() {
        println!("the data is kept in {}", data.display());
        let _ = temporary.keep();
    }
    outcome
}

fn empty(data: &Path) -> Result<(), String> {
    match data.exists() {
        true => std::fs::remove_dir_all(data).map_err(|error| format!("cannot empty {}: {error}", data.display())),
        false => Ok(()),
    }
}

fn run_scenario(scenario: &Scenario, plan: &Plan, place: &Path) -> Result<(), String> {
    empty(place)?;
    std::fs::create_dir_all(place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
    let started = Instant::now();
    let setting = Setting { place, engine: plan.engine, long: true, seed: plan.seed };
    let outcome = (scenario.run)(&setting).map_err(|message| format!("{}: {message}", scenario.name))?;
    let (name, seconds) = (scenario.name, started.elapsed().as_secs_f64());
    match outcome {
        ScenarioOutcome::Held(counted) => println!("{name:<16} {seconds:6.1} s  {counted}"),
        ScenarioOutcome::Skipped(why) => println!("{name:<16} skipped: {why}"),
        ScenarioOutcome::Missing(program) => println!("{name:<16} skipped: {program} not installed"),
    }
    Ok(())
}

fn crash(plan: &Plan, data: &Path) -> Result<(), String> {
    let started = Instant::now();
    let tally = run(data, plan, &mut |round, tally| {
        if (round + 1) % 10 == 0 {
            println!("{:>4} rounds, {:?}: {tally:?}", round + 1, started.elapsed());
        }
    })?;
    let nothing = if plan.engine.evicts() {
        "nothing older than the newest came back"
    } else {
        "nothing acknowledged lost, torn or resurrected"
    };
    let protocols: Vec<&str> = plan.protocols.iter().map(|protocol| protocol.name()).collect();
    println!(
        "{} rounds of {} by {protocols:?}, {:?}, {:?} in {:?}: {nothing}; found {:.1} % after kills, {:.1} % after orderly ends\n{tally:#?}",
        plan.rounds,
        plan.engine.name(),
        plan.ios,
        plan.levels,
        started.elapsed(),
        tally.after_kill.percent(),
        tally.after_close.percent()
    );
    if tally.after_kill.expected > 0 && tally.after_kill.found == 0 {
        return Err("nothing was found after any kill: it came back cold".into());
    }
    Ok(())
}

/// Has a store and serves it until stdin ends.
fn serve_embedded(words: &[String]) -> Result<(), String> {
    let (mut data, mut address, mut options) = (String::new(), String::new(), stratakv::Options::new());
    for (word, value) in pairs(words)? {
        let bytes = || parse_bytes(value).map_err(|error| format!("{word}: {error}"));
        let number = || value.parse::<u32>().map_err(|_| format!("{word} needs a number, not `{value}`"));
        options = match (word, value) {
            ("--data", _) => {
                value.clone_into(&mut data);
                options
            }
            ("--address", _) => {
                value.clone_into(&mut address);
                options
            }
            ("--io", "auto") => options.io(IoBackend::Auto),
            ("--io", "io_uring") => options.io(IoBackend::IoUring),
            ("--io", "blocking") => options.io(IoBackend::Blocking),
            ("--durability", "power_loss") => options.level(Level::PowerLoss),
            ("--durability", "process_crash") => options.level(Level::ProcessCrash),
            ("--engine", _) => match Engine::named(value) {
                Some(Engine::Hash) => options.engine(stratakv::Engine::Hash),
                Some(Engine::Matrix) => options.engine(stratakv::Engine::Matrix),
                Some(Engine::Slab) => options.engine(stratakv::Engine::Slab),
                Some(Engine::Tier) => options.engine(stratakv::Engine::Tier),
                None => return Err(format!("{word}: there is no engine `{value}`")),
            },
            ("--region", _) => options.region_bytes(bytes()?),
            ("--memory", _) => options.memory_bytes(bytes()?),
            ("--capacity", _) => options.capacity_bytes(bytes()?),
            ("--shards", _) => options.shards(number()? as usize),
            ("--depth", _) => options.depth(number()?),
            ("--threads", _) => options.cores(number()? as usize),
            _ => return Err(format!("unknown option `{word} {value}`")),
        };
    }
    let store = options.open(data).map_err(|error| error.to_string())?;
    let listener = TcpListener::bind(address).map_err(|error| error.to_string())?;
    let closing = store.clone();
    std::thread::spawn(move || {
        // Nothing is ever written there: this returns when the other end is closed, be it by the
        // death of its holder.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let closed = closing.close();
        std::process::exit(i32::from(closed.is_err()));
    });
    embedded::serve(&store, &listener).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use stratakv_integration::protocol::Protocol;

    use super::*;

    #[test]
    fn options_are_told_apart() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let good = arguments(&words("--rounds 7 --protocol embedded --io blocking --data x")).expect("good");
        let Arguments { plan, data, .. } = good;
        assert_eq!((plan.rounds, plan.protocols.len(), plan.ios.len(), plan.levels.len()), (7, 1, 1, 2));
        assert_eq!(data, Some("x".into()));
        for bad in ["--rounds", "--rounds x", "--protocol smoke", "--engine none", "--what 1", "--scenario none"] {
            assert!(arguments(&words(bad)).is_err(), "{bad}");
        }
        let Arguments { plan, .. } = arguments(&words("--rounds 7 --engine tier")).expect("good");
        assert_eq!((plan.engine, plan.rounds, &plan.levels[..]), (Engine::Tier, 7, &["memory".to_owned()][..]));
        assert!(plan.mix.evicts && plan.protocols == [Protocol::Memcache]);
        assert!(arguments(&words("--engine tier --scenario all")).is_err(), "scenarios want everything there");
        assert!(arguments(&words("--engine tier --protocol embedded")).is_err(), "it has no flush");
        assert!(Protocol::ALL.len() > 1 && Engine::named("slab").is_some());
    }
}
