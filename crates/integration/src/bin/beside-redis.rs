//! `cargo xtask compare --redis`: commands of Redis clients, ours beside Redis.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::process::ExitCode;

use stratakv_base::quantity::parse_bytes;
use stratakv_integration::arguments::{answer, named};
use stratakv_integration::beside_redis::{Baseline, MEASURES, Measure, Plan, footprint, run, table};

const USAGE: &str = "\
usage: cargo xtask compare --redis [--durable] [--short] [--servers redis,redis-always,hash,tier,packed,slab,matrix]
             [--commands WORD] [--connections 50] [--pipelines 1,16] [--keys 100000] [--value 100] [--requests N]
             [--rounds 3] [--cores 0,1] [--memory 2G] [--data DIR] [--hashes 200000]

Starts each server in turn on the first of --cores, and sends commands by redis-benchmark from the second. In memory, Redis
keeps nothing on disk and our stores lie in /dev/shm; with --durable Redis has `appendfsync always`, ours are durable at
power loss. --commands takes those with this word in their names. Then --hashes small hashes are written on each server, and
what one takes is told; 0 leaves that out. Medians of the rounds go to stdout as Markdown. --short is a smoke run.
";

/// Hashes whose bytes are counted.
const HASHES: u64 = 200_000;

fn main() -> ExitCode {
    answer("compare --redis", USAGE, |words| plan(words).and_then(|(plan, hashes)| compare(&plan, hashes)))
}

fn plan(words: &[String]) -> Result<(Plan, u64), String> {
    let has = |name: &str| words.iter().any(|word| word == name);
    let (mut plan, mut hashes) = (Plan::new(has("--durable")), HASHES);
    if has("--short") {
        (plan.commands, plan.keys, plan.rounds, hashes) = (2_000, 2_000, 1, 2_000);
    }
    let flags = ["--redis", "--durable", "--short"];
    let words: Vec<&String> = words.iter().filter(|word| !flags.contains(&word.as_str())).collect();
    for pair in words.chunks(2) {
        let [word, value] = pair else { return Err(format!("{} needs a value\n\n{USAGE}", pair[0])) };
        let in_word = |why: String| format!("{word}: {why}");
        let number = |value: &str| value.parse::<u64>().map_err(|_| format!("{word} needs a number, not `{value}`"));
        match word.as_str() {
            "--servers" => plan.baselines = named(value, &Baseline::ALL, Baseline::name).map_err(in_word)?,
            "--commands" => plan.measures.retain(|one| one.name.contains(value.as_str())),
            "--connections" => plan.connections = number(value)?.clamp(1, 10_000) as u32,
            "--pipelines" => {
                let each = value.split(',').map(|one| number(one).map(|one| one.clamp(1, 10_000) as u32));
                plan.pipelines = each.collect::<Result<_, _>>()?;
            }
            "--keys" => plan.keys = number(value)?.max(1),
            "--value" => plan.value_bytes = number(value)?.max(1) as usize,
            "--requests" => plan.commands = number(value)?.max(1),
            "--rounds" => plan.rounds = number(value)?.max(1) as u32,
            "--memory" => plan.memory_bytes = parse_bytes(value).map_err(in_word)?,
            "--data" => plan.place = value.into(),
            "--hashes" => hashes = number(value)?,
            "--cores" => {
                let cores = value.split_once(',').ok_or_else(|| in_word("two numbers, such as 0,1".into()))?;
                plan.cores = (number(cores.0)? as usize, number(cores.1)? as usize);
            }
            _ => return Err(format!("unknown option `{word}`\n\n{USAGE}")),
        }
    }
    if plan.measures.is_empty() {
        let names: Vec<&str> = MEASURES.iter().map(|one: &Measure| one.name).collect();
        return Err(format!("no command has that word in its name; there are: {}", names.join("; ")));
    }
    Ok((plan, hashes))
}

fn compare(plan: &Plan, hashes: u64) -> Result<(), String> {
    let all = run(plan, &mut |round, one| {
        eprintln!(
            "round {round}, {} x{}: {} {:.0}/s, p99 {:.2} ms, {:.2} µs of the server",
            one.measure.name,
            one.pipeline,
            one.baseline.name(),
            one.per_s,
            one.p99_ms,
            one.cpu_us
        );
    })?;
    println!(
        "Server on core {} with one thread, redis-benchmark on core {}, loopback, {} keys, values of {} bytes, {} rounds in turn, \
         medians. `µs`: processor time of the server for a command. Ratios are to {}.\n",
        plan.cores.0,
        plan.cores.1,
        plan.keys,
        plan.value_bytes,
        plan.rounds,
        plan.baselines[0].name()
    );
    println!("{}", table::markdown(plan, &all));
    if hashes > 0 {
        let each: Result<Vec<_>, _> =
            plan.baselines.iter().map(|baseline| footprint(plan, *baseline, hashes)).collect();
        println!("{}", table::footprints(&each?));
    }
    // Only if it is empty: it may be somebody's.
    let _ = std::fs::remove_dir(&plan.place);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_told_apart() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (plan, hashes) =
            super::plan(&words("--redis --durable --servers redis-always,slab --commands LPUSH --rounds 2"))
                .expect("good");
        assert_eq!((plan.baselines, plan.rounds, hashes), (vec![Baseline::RedisAlways, Baseline::InPlace], 2, HASHES));
        assert!(plan.durable && plan.measures.iter().all(|one| one.name.contains("LPUSH")));
        let (plan, _) = super::plan(&words("--redis --pipelines 1,32 --cores 1,0")).expect("good");
        assert_eq!((plan.pipelines, plan.cores), (vec![1, 32], (1, 0)));
        for bad in ["--rounds", "--rounds x", "--servers none", "--commands NONE", "--cores 0", "--what 1"] {
            assert!(super::plan(&words(bad)).is_err(), "{bad}");
        }
    }
}
