//! `cargo xtask redis-suite`: Redis's own tests against our server, with Redis as the control.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use stratakv_integration::arguments::{answer, named};
use stratakv_integration::redis_suite::known::{self, Known, REASONS};
use stratakv_integration::redis_suite::run::{SuiteServer, run};
use stratakv_integration::redis_suite::{UNITS, source};
use stratakv_integration::requirement;
use stratakv_integration::suites::page::counts;
use stratakv_integration::suites::{Results, TestOutcome, differences};

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

/// What to do.
struct Arguments {
    units: Vec<&'static str>,
    servers: Vec<SuiteServer>,
    source: Option<PathBuf>,
    folder: PathBuf,
}

/// What came of the tests of all units with one server.
#[derive(Default)]
struct Tally {
    counted: [usize; 3],
    /// Tests that are skipped, by the kind of reason.
    reasons: BTreeMap<String, usize>,
}

fn main() -> ExitCode {
    answer("redis-suite", USAGE, |words| arguments(words).and_then(|arguments| suite(&arguments)))
}

fn arguments(words: &[String]) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        units: UNITS.to_vec(),
        servers: vec![SuiteServer::Packed],
        source: None,
        folder: PathBuf::from("target/redis-suite"),
    };
    for pair in words.chunks(2) {
        let [option, value] = pair else { return Err(format!("{} needs a value\n\n{USAGE}", pair[0])) };
        match option.as_str() {
            "--units" => arguments.units = named(value, UNITS, |unit| unit)?,
            "--servers" => arguments.servers = named(value, SuiteServer::OURS, SuiteServer::name)?,
            "--source" => arguments.source = Some(value.into()),
            "--folder" => arguments.folder = value.into(),
            _ => return Err(format!("unknown option `{option}`\n\n{USAGE}")),
        }
    }
    Ok(arguments)
}

fn suite(arguments: &Arguments) -> Result<(), String> {
    for (tool, package) in [("redis-server", "redis-server"), ("tclsh", "tcl")] {
        requirement::tool(tool).ok_or_else(|| format!("{tool} is not installed (Debian: {package})"))?;
    }
    let cannot = |error| format!("cannot use {}: {error}", arguments.folder.display());
    std::fs::create_dir_all(&arguments.folder).map_err(cannot)?;
    let folder = arguments.folder.canonicalize().map_err(cannot)?;
    let source = source::fetch(arguments.source.as_deref(), &folder)?;
    let known = known::list()?;
    let mut tallies: Vec<Tally> = arguments.servers.iter().map(|_| Tally::default()).collect();
    let mut faults = Vec::new();
    for unit in &arguments.units {
        let theirs = run(unit, SuiteServer::Redis, &source, (&folder, &[]))?;
        if theirs.is_empty() {
            return Err(format!("{unit} ran no test with Redis: the list of units or of tags is wrong"));
        }
        let mut line = format!("{unit}: redis {}", told(&theirs));
        for (server, tally) in arguments.servers.iter().zip(&mut tallies) {
            let skipped = known.iter().filter(|known| known.unit == *unit && known.is_of(*server)).map(Known::pattern);
            let ours = run(unit, *server, &source, (&folder, &skipped.collect::<Vec<_>>()))?;
            line.push_str(&format!("; {} {}", server.name(), told(&ours)));
            tally.counted = std::array::from_fn(|at| tally.counted[at] + counts(&ours)[at]);
            faults.extend(judge(unit, *server, [&theirs, &ours], &known, tally));
        }
        println!("{line}");
    }
    for (server, tally) in arguments.servers.iter().zip(&tallies) {
        let [passed, failed, skipped] = tally.counted;
        println!("{}: {passed} passed, {failed} failed, {skipped} skipped", server.name());
        for (name, why) in REASONS {
            if let Some(count) = tally.reasons.get(*name) {
                println!("  {count} skipped: {name}, {why}");
            }
        }
    }
    match faults.len() {
        0 => Ok(()),
        count => Err(format!("{count} findings\n{}", faults.join("\n"))),
    }
}

fn told(results: &Results) -> String {
    let [passed, failed, skipped] = counts(results);
    format!("{passed} passed, {failed} failed, {skipped} skipped")
}

/// Differences from Redis, and reasons of no test.
fn judge(
    unit: &str,
    server: SuiteServer,
    [theirs, ours]: [&Results; 2],
    known: &[Known],
    tally: &mut Tally,
) -> Vec<String> {
    let mut faults = Vec::new();
    let differences = differences(theirs, ours);
    for difference in &differences {
        let reason = known.iter().find(|known| known.explains(unit, server, &difference.test));
        match reason {
            Some(known) => *tally.reasons.entry(known.reason.clone()).or_default() += 1,
            // One that Redis fails and we pass needs no reason.
            None if difference.ours == TestOutcome::Passed => {}
            None => {
                let (name, test, message) = (server.name(), &difference.test, &difference.message);
                let (theirs, ours) = (difference.theirs.name(), difference.ours.name());
                faults.push(format!("{unit} | {name} | {test}: {theirs} with Redis, {ours} with ours: {message}"));
            }
        }
    }
    for known in known.iter().filter(|known| known.unit == unit && known.is_of(server)) {
        if !theirs.keys().any(|test| known.explains(unit, server, test)) {
            faults.push(format!("known.txt: {unit} has no test {}", known.test));
        }
    }
    faults
}
