//! `cargo xtask redis-suite`: Redis's own tests against our server, with Redis as the control.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::process::ExitCode;

use stratakv_integration::arguments::answer;
use stratakv_integration::redis_suite::compared::{SuiteArguments, Tally, end};
use stratakv_integration::redis_suite::known::{self, Known};
use stratakv_integration::redis_suite::run::{SuiteServer, run};
use stratakv_integration::redis_suite::{UNITS, source};
use stratakv_integration::requirement;
use stratakv_integration::suites::Results;
use stratakv_integration::suites::page::counts;

const USAGE: &str = "\
usage: redis-suite [--units NAME,..] [--servers NAME,..] [--source DIR] [--folder DIR]

  --units NAME,..    files of tests: type/string, type/hash, expire, multi, .. (all that apply)
  --servers NAME,..  of slab, packed (slab with that placement), hash, matrix, tier (packed)
  --source DIR       a checkout of Redis 7.0.15 (fetched by apt-get source, which needs a line `deb-src`)
  --folder DIR       where it is fetched to and run (target/redis-suite)

Runs Redis's own tests, in Tcl, against `redis-server` and against `stratakv serve`, and compares them test by test. Tests in
crates/integration/src/redis_suite/known.txt are skipped, each for a reason. Fails where any other one comes out otherwise than with
Redis, and where a line there names no test.
";

fn main() -> ExitCode {
    answer("redis-suite", USAGE, |words| {
        let arguments = SuiteArguments::read(words, USAGE, ("--units", UNITS), "target/redis-suite")?;
        suite(&arguments)
    })
}

fn suite(arguments: &SuiteArguments) -> Result<(), String> {
    for (tool, package) in [("redis-server", "redis-server"), ("tclsh", "tcl")] {
        requirement::tool(tool).ok_or_else(|| format!("{tool} is not installed (Debian: {package})"))?;
    }
    let folder = arguments.make_folder()?;
    let source = source::fetch(arguments.source.as_deref(), &folder)?;
    let known = known::list()?;
    let mut tallies: Vec<Tally> = arguments.servers.iter().map(|_| Tally::default()).collect();
    let mut faults = Vec::new();
    for unit in &arguments.files {
        let theirs = run(unit, SuiteServer::Redis, &source, (&folder, &[]))?;
        if theirs.is_empty() {
            return Err(format!("{unit} ran no test with Redis: the list of units or of tags is wrong"));
        }
        let mut line = format!("{unit}: redis {}", told(&theirs));
        for (server, tally) in arguments.servers.iter().zip(&mut tallies) {
            let skipped = known.iter().filter(|known| known.unit == *unit && known.is_of(*server)).map(Known::pattern);
            let ours = run(unit, *server, &source, (&folder, &skipped.collect::<Vec<_>>()))?;
            line.push_str(&format!("; {} {}", server.name(), told(&ours)));
            let (mut found, _) = tally.add(unit, *server, [&theirs, &ours], &known);
            faults.append(&mut found);
            for known in known.iter().filter(|known| known.unit == *unit && known.is_of(*server)) {
                if !theirs.keys().any(|test| known.explains(unit, *server, test)) {
                    faults.push(format!("known.txt: {unit} has no test {}", known.test));
                }
            }
        }
        println!("{line}");
    }
    for (server, tally) in arguments.servers.iter().zip(&tallies) {
        println!("{}", tally.told(*server, "skipped"));
    }
    end(&faults)
}

fn told(results: &Results) -> String {
    let [passed, failed, skipped] = counts(results);
    format!("{passed} passed, {failed} failed, {skipped} skipped")
}
