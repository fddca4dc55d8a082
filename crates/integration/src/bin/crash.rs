//! `cargo xtask crash`: kill the server with SIGKILL, many times, and check what comes back.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use stratakv_integration::crash::{Plan, run};

const USAGE: &str = "\
usage: crash [--rounds 200] [--io auto|io_uring|blocking] [--clients 8] [--keys 400] [--seed 1] [--durability power_loss|process_crash] [--data DIR]

Starts `stratakv serve`, writes and deletes from several clients, kills it with SIGKILL at a random moment, starts it again and
compares every key with what was acknowledged. DIR is emptied first and kept on failure; without it a temporary one is used.
";

fn main() -> ExitCode {
    match arguments().and_then(|(plan, data)| crash(&plan, data)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("crash: {message}");
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Result<(Plan, Option<PathBuf>), String> {
    let (mut plan, mut data) = (Plan::default(), None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--help" {
            print!("{USAGE}");
            std::process::exit(0);
        }
        let value = words.next().ok_or_else(|| format!("{word} needs a value\n\n{USAGE}"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word} needs a number, not `{value}`"));
        match word.as_str() {
            "--rounds" => plan.rounds = number()? as u32,
            "--clients" => plan.clients = number()?,
            "--keys" => plan.keys_per_client = number()?,
            "--seed" => plan.seed = number()?,
            "--io" | "--durability" => plan.options.extend([word, value]),
            "--data" => data = Some(value.into()),
            other => return Err(format!("unknown option `{other}`\n\n{USAGE}")),
        }
    }
    Ok((plan, data))
}

fn crash(plan: &Plan, data: Option<PathBuf>) -> Result<(), String> {
    let temporary = tempfile::tempdir().map_err(|error| error.to_string())?;
    let data = data.unwrap_or_else(|| temporary.path().join("data"));
    if data.exists() {
        std::fs::remove_dir_all(&data).map_err(|error| format!("cannot empty {}: {error}", data.display()))?;
    }
    let started = Instant::now();
    let outcome = run(&data, plan, &mut |round, tally| {
        if (round + 1) % 10 == 0 {
            println!("{:>4} rounds, {:?}: {tally:?}", round + 1, started.elapsed());
        }
    });
    if outcome.is_err() {
        println!("the data is kept in {}", temporary.keep().display());
    }
    let tally = outcome?;
    println!(
        "{} rounds with {:?} in {:?}: nothing acknowledged lost, torn or resurrected\n{tally:#?}",
        plan.rounds,
        plan.options,
        started.elapsed()
    );
    Ok(())
}
