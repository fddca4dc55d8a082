//! `cargo xtask attacks`: what many hostile clients do to a server, and to honest clients beside
//! them.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use stratakv_base::quantity::parse_bytes;
use stratakv_integration::arguments::{answer, named};
use stratakv_integration::attacks::kinds::Attack;
use stratakv_integration::attacks::target::Target;
use stratakv_integration::attacks::{Plan, run, table};

const USAGE: &str = "\
usage: cargo xtask attacks [--short] [--engines in_place,packed,matrix,hash,tier] [--attacks unfinished,unfinished-again,
             untaken,untaken-again,wide,invalid,strangers,passwords,metadump,left] [--rounds 5] [--seconds 4] [--after 60]
             [--memory 128M] [--tls] [--memcached] [--data DIR] [--write FILE]

Starts a server for each engine and attack, and another one as control, and lets a crowd of clients attack them while honest
clients are measured. Writes a Markdown table. Fails if a server held more than its bound or a slow honest client was not served;
not for what took long. --short: a tenth of the clients, one round. --memcached: beside memcached, which has no bound to hold.
--write FILE: the table into a file too. It says how long it takes when it begins: two hours for all, minutes with --short.
";

struct Arguments {
    plan: Plan,
    write: Option<PathBuf>,
}

fn main() -> ExitCode {
    answer("attacks", USAGE, |words| arguments(words).and_then(|arguments| attack(&arguments)))
}

fn arguments(words: &[String]) -> Result<Arguments, String> {
    let (mut plan, mut write) = (Plan::default(), None);
    let has = |name: &str| words.iter().any(|word| word == name);
    if has("--short") {
        plan.shorten();
    }
    plan.tls = has("--tls");
    let flags = ["--short", "--tls", "--memcached"];
    let rest: Vec<&String> = words.iter().filter(|word| !flags.contains(&word.as_str())).collect();
    for pair in rest.chunks(2) {
        let [word, value] = pair else { return Err(format!("{} needs a value\n\n{USAGE}", pair[0])) };
        let in_word = |why: String| format!("{word}: {why}");
        let number = || value.parse::<u64>().map_err(|_| format!("{word} needs a number, not `{value}`"));
        match word.as_str() {
            "--engines" => plan.targets = named(value, &Target::ALL, Target::name).map_err(in_word)?,
            "--attacks" => plan.attacks = named(value, &Attack::ALL, Attack::name).map_err(in_word)?,
            "--rounds" => plan.rounds = number()?.max(1) as u32,
            "--seconds" => plan.duration = Duration::from_secs(number()?.max(1)),
            "--after" => plan.after = Duration::from_secs(number()?),
            "--memory" => plan.memory_bytes = parse_bytes(value).map_err(in_word)?,
            "--data" => plan.place = value.into(),
            "--write" => write = Some(value.into()),
            _ => return Err(format!("unknown option `{word}`\n\n{USAGE}")),
        }
    }
    if has("--memcached") && !plan.targets.contains(&Target::Memcached) {
        plan.targets.push(Target::Memcached);
    }
    Ok(Arguments { plan, write })
}

fn attack(Arguments { plan, write }: &Arguments) -> Result<(), String> {
    let (started, mut failed) = (Instant::now(), Vec::new());
    eprintln!("about {} minutes", plan.estimate().as_secs().div_ceil(60));
    let all = run(plan, &mut |noted| {
        let seconds = started.elapsed().as_secs_f64();
        match noted {
            Ok(one) => {
                eprintln!(
                    "{seconds:>6.0} s  {:<9} {:<16} peak {:>4} of {:>4} MiB, after {:>4}; p99 {:>8.2} ms, control {:>8.2}, ratio {:>6.1}",
                    one.target.name(),
                    one.attack.name(),
                    one.held.peak >> 20,
                    one.held.bound >> 20,
                    one.held.after >> 20,
                    one.attacked.p99_ms,
                    one.control.p99_ms,
                    one.ratio()
                );
                if !one.holds() && one.target != Target::Memcached {
                    failed.push(format!("{} under {}", one.target.name(), one.attack.name()));
                }
            }
            Err(why) => {
                failed.push(why.to_owned());
                eprintln!("{seconds:>6.0} s  left out: {why}");
            }
        }
    })?;
    // Only if it is empty: it may be somebody's.
    let _ = std::fs::remove_dir(&plan.place);
    let text = table::markdown(plan, &all);
    println!("{text}");
    if let Some(file) = write {
        std::fs::write(file, &text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("not within bounds, or not measured:\n{}", failed.join("\n"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_told_apart() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let good = "--engines tier,hash --attacks left --rounds 2 --short --after 5 --tls --memcached --write x";
        let Arguments { plan, write } = arguments(&words(good)).expect("good");
        assert_eq!(plan.targets, [Target::Tier, Target::Hash, Target::Memcached]);
        assert_eq!((plan.attacks, plan.rounds, plan.tls, plan.few), (vec![Attack::Left], 2, true, true));
        assert_eq!((plan.after, write), (Duration::from_secs(5), Some("x".into())));
        for bad in ["--rounds", "--rounds x", "--engines none", "--attacks left,", "--memory x", "--what 1"] {
            assert!(arguments(&words(bad)).is_err(), "{bad}");
        }
    }
}
