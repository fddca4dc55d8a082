//! `cargo xtask redis-py-suite`: redis-py's own tests against our server, Redis as the control.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::process::ExitCode;

use stratakv_integration::arguments::answer;
use stratakv_integration::redis_py_suite::{FILES, fetch, known, run};
use stratakv_integration::redis_suite::compared::{SuiteArguments, Tally, end};
use stratakv_integration::redis_suite::run::SuiteServer;
use stratakv_integration::requirement;
use stratakv_integration::suites::page::counts;

const USAGE: &str = "\
usage: redis-py-suite [--files NAME,..] [--servers NAME,..] [--source DIR] [--folder DIR]

  --files NAME,..    files of tests: test_commands, test_pubsub (both)
  --servers NAME,..  of slab, packed (slab with that placement), hash, matrix, tier (packed)
  --source DIR       a source distribution of redis-py 8.1.0 (fetched by pip)
  --folder DIR       where it is fetched to and run (target/redis-py-suite)

Runs redis-py's own tests against `redis-server` and against `stratakv serve`, and compares them test by test. Fails where a test comes
out otherwise than with Redis that is not in crates/integration/src/redis_py_suite/known.txt, and where a line there explains nothing.
";

fn main() -> ExitCode {
    answer("redis-py-suite", USAGE, |words| {
        let arguments = SuiteArguments::read(words, USAGE, ("--files", FILES), "target/redis-py-suite")?;
        suite(&arguments)
    })
}

fn suite(arguments: &SuiteArguments) -> Result<(), String> {
    requirement::tool("redis-server").ok_or("redis-server is not installed (Debian: redis-server)")?;
    for module in ["pytest", "pytest_timeout", "pytest_asyncio"] {
        requirement::python_with(module).ok_or_else(|| format!("Python has no module {module}"))?;
    }
    let folder = arguments.make_folder()?;
    let source = fetch(arguments.source.as_deref(), &folder)?;
    let source = source.canonicalize().map_err(|error| format!("cannot use {}: {error}", source.display()))?;
    let known = known()?;
    let mut tallies: Vec<Tally> = arguments.servers.iter().map(|_| Tally::default()).collect();
    let mut faults = Vec::new();
    for file in &arguments.files {
        let theirs = run(file, SuiteServer::Redis, &source, &folder)?;
        let mut line = format!("{file}: redis {:?}", counts(&theirs));
        for (server, tally) in arguments.servers.iter().zip(&mut tallies) {
            let ours = run(file, *server, &source, &folder)?;
            line.push_str(&format!("; {} {:?}", server.name(), counts(&ours)));
            let (mut found, are_used) = tally.add(file, *server, [&theirs, &ours], &known);
            faults.append(&mut found);
            for (known, _) in known.iter().zip(are_used).filter(|(_, is_used)| !is_used) {
                if known.unit == *file && known.is_of(*server) {
                    faults.push(format!("known.txt explains nothing: {file} | {} | {}", server.name(), known.test));
                }
            }
        }
        println!("{line} passed, failed, skipped");
    }
    for (server, tally) in arguments.servers.iter().zip(&tallies) {
        println!("{}", tally.told(*server, "come out otherwise"));
    }
    end(&faults)
}
