//! `cargo xtask redis-py-suite`: redis-py's own tests against our server, Redis as the control.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use stratakv_integration::arguments::{answer, named};
use stratakv_integration::redis_py_suite::{FILES, fetch, known, run};
use stratakv_integration::redis_suite::known::REASONS;
use stratakv_integration::redis_suite::run::SuiteServer;
use stratakv_integration::requirement;
use stratakv_integration::suites::page::counts;
use stratakv_integration::suites::{TestOutcome, differences};

const USAGE: &str = "\
usage: redis-py-suite [--files NAME,..] [--servers NAME,..] [--source DIR] [--folder DIR]

  --files NAME,..    files of tests: test_commands, test_pubsub (both)
  --servers NAME,..  of slab, packed (slab with that placement), hash, matrix, tier (packed)
  --source DIR       a source distribution of redis-py 8.1.0 (fetched by pip)
  --folder DIR       where it is fetched to and run (target/redis-py-suite)

Runs redis-py's own tests against `redis-server` and against `stratakv serve`, and compares them test by test. Fails where a test comes
out otherwise than with Redis that is not in crates/integration/src/redis_py_suite/known.txt, and where a line there explains nothing.
";

/// What to do.
struct Arguments {
    files: Vec<&'static str>,
    servers: Vec<SuiteServer>,
    source: Option<PathBuf>,
    folder: PathBuf,
}

fn main() -> ExitCode {
    answer("redis-py-suite", USAGE, |words| arguments(words).and_then(|arguments| suite(&arguments)))
}

fn arguments(words: &[String]) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        files: FILES.to_vec(),
        servers: vec![SuiteServer::Packed],
        source: None,
        folder: PathBuf::from("target/redis-py-suite"),
    };
    for pair in words.chunks(2) {
        let [option, value] = pair else { return Err(format!("{} needs a value\n\n{USAGE}", pair[0])) };
        match option.as_str() {
            "--files" => arguments.files = named(value, FILES, |file| file)?,
            "--servers" => arguments.servers = named(value, SuiteServer::OURS, SuiteServer::name)?,
            "--source" => arguments.source = Some(value.into()),
            "--folder" => arguments.folder = value.into(),
            _ => return Err(format!("unknown option `{option}`\n\n{USAGE}")),
        }
    }
    Ok(arguments)
}

fn suite(arguments: &Arguments) -> Result<(), String> {
    requirement::tool("redis-server").ok_or("redis-server is not installed (Debian: redis-server)")?;
    for module in ["pytest", "pytest_timeout", "pytest_asyncio"] {
        requirement::python_with(module).ok_or_else(|| format!("Python has no module {module}"))?;
    }
    let cannot = |error| format!("cannot use {}: {error}", arguments.folder.display());
    std::fs::create_dir_all(&arguments.folder).map_err(cannot)?;
    let folder = arguments.folder.canonicalize().map_err(cannot)?;
    let source = fetch(arguments.source.as_deref(), &folder)?.canonicalize().map_err(cannot)?;
    let known = known()?;
    let (mut faults, mut tallies, mut reasons) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    for file in &arguments.files {
        let theirs = run(file, SuiteServer::Redis, &source, &folder)?;
        let mut line = format!("{file}: redis {:?}", counts(&theirs));
        for server in &arguments.servers {
            let ours = run(file, *server, &source, &folder)?;
            let counted = counts(&ours);
            line.push_str(&format!("; {} {counted:?}", server.name()));
            let tally = tallies.entry(server.name()).or_insert([0; 3]);
            *tally = std::array::from_fn(|at| tally[at] + counted[at]);
            let differences = differences(&theirs, &ours);
            let mut explained = vec![false; known.len()];
            for difference in &differences {
                let at = known.iter().position(|known| known.explains(file, *server, &difference.test));
                match at {
                    Some(at) => {
                        explained[at] = true;
                        *reasons.entry((server.name(), known[at].reason.clone())).or_insert(0) += 1;
                    }
                    // One that Redis fails and we pass needs no reason.
                    None if difference.ours == TestOutcome::Passed => {}
                    None => {
                        let (test, message) = (&difference.test, &difference.message);
                        let (theirs, ours) = (difference.theirs.name(), difference.ours.name());
                        let name = server.name();
                        faults.push(format!(
                            "{file} | {name} | {test}: {theirs} with Redis, {ours} with ours: {message}"
                        ));
                    }
                }
            }
            for (known, _) in known.iter().zip(explained).filter(|(_, is_explained)| !is_explained) {
                if known.unit == *file && known.is_of(*server) {
                    faults.push(format!("known.txt explains nothing: {file} | {} | {}", server.name(), known.test));
                }
            }
        }
        println!("{line} passed, failed, skipped");
    }
    for (server, [passed, failed, skipped]) in tallies {
        println!("{server}: {passed} passed, {failed} failed, {skipped} skipped");
        for (name, why) in REASONS {
            if let Some(count) = reasons.get(&(server, (*name).to_owned())) {
                println!("  {count} come out otherwise: {name}, {why}");
            }
        }
    }
    match faults.len() {
        0 => Ok(()),
        count => Err(format!("{count} findings\n{}", faults.join("\n"))),
    }
}
