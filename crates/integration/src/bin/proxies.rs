//! `cargo xtask proxies`: caches behind a real proxy, and servers that go away and come back.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use stratakv_integration::arguments::answer;
use stratakv_integration::proxies::built_in::{memcached_with_proxy, table};
use stratakv_integration::proxies::{Plan, markdown, network_error, run};

const USAGE: &str = "\
usage: cargo xtask proxies [--short | --minutes N] [--seed N]

Three servers of engine `tier` behind twemproxy, clients at work all the time, and servers that are killed, end in order, freeze, or are
cut off, and come back: a row of the table for each way to rejoin and each event. Every answer is judged. Cables are cut in network
namespaces of its own, which takes root and `ip`; without them these rows are left out. --short: four rows, one event each.
--minutes: again and again with other seeds, until the time is over. Then memcached's own proxy in four configurations, if `memcached`,
or the program that STRATAKV_MEMCACHED_PROXY names, is built with --enable-proxy.
";

fn main() -> ExitCode {
    answer("proxies", USAGE, |words| arguments(words).and_then(|(plan, time)| repeat(plan, time)))
}

fn arguments(words: &[String]) -> Result<(Plan, Duration), String> {
    let is_short = words.iter().any(|word| word == "--short");
    let (mut plan, mut time) = (if is_short { Plan::short() } else { Plan::default() }, Duration::ZERO);
    let rest: Vec<&String> = words.iter().filter(|word| *word != "--short").collect();
    for pair in rest.chunks(2) {
        let [word, value] = pair else { return Err(format!("{} needs a value\n\n{USAGE}", pair[0])) };
        let number: u64 = value.parse().map_err(|_| format!("{word} needs a number, not `{value}`\n\n{USAGE}"))?;
        match word.as_str() {
            "--minutes" => time = Duration::from_secs(60 * number),
            "--seed" => plan.seed = number,
            _ => return Err(format!("unknown option `{word}`\n\n{USAGE}")),
        }
    }
    Ok((plan, time))
}

fn repeat(mut plan: Plan, time: Duration) -> Result<(), String> {
    if let Some(why) = network_error() {
        eprintln!("skipped: what needs cables to cut ({why})");
    }
    let begun = Instant::now();
    loop {
        let all = run(&plan, &mut |row, tally| match tally {
            Some(tally) => eprintln!("{}, {}: {tally:?}", row.rejoin, row.event.name()),
            None => eprintln!("{}, {}: skipped", row.rejoin, row.event.name()),
        })?;
        println!("seed {}: {}", plan.seed, markdown(&plan, &all));
        plan.seed += 1;
        if begun.elapsed() >= time {
            return built_in();
        }
    }
}

fn built_in() -> Result<(), String> {
    match memcached_with_proxy() {
        Ok(program) => println!("{}", table(&program)?),
        Err(why) => eprintln!("skipped: memcached's own proxy ({why})"),
    }
    Ok(())
}
