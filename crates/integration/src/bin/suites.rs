//! `cargo xtask suites`: the own test suites of memcache clients against our server, with memcached
//! as the control.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use stratakv_integration::arguments::{answer, named};
use stratakv_integration::differ::peer::{Memcached, VERSION};
use stratakv_integration::requirement;
use stratakv_integration::suites::fetch::{Fetched, fetch};
use stratakv_integration::suites::known::{self, Known};
use stratakv_integration::suites::page::{Group, Ran, counts, groups, page};
use stratakv_integration::suites::run::run;
use stratakv_integration::suites::server::Kind;
use stratakv_integration::suites::{Results, SUITES, Suite, TestOutcome};

const USAGE: &str = "\
usage: suites [--suites NAME,..] [--servers NAME,..] [--sources DIR] [--folder DIR] [--write FILE]

  --suites NAME,..   of pymemcache, pylibmc, gomemcache, memjs, spymemcached, dalli (all)
  --servers NAME,..  of slab, packed (slab with that placement), hash, matrix, tier (all); memcached always
  --sources DIR      checkouts of clients whose packages hold no tests: DIR/spymemcached, DIR/dalli
  --folder DIR       where suites are fetched to and run (target/suites)
  --write FILE       the page as Markdown

Fetches the test suites of memcache clients, runs each against memcached 1.6.18 and against `stratakv serve`, and compares them
test by test. Fails where a test comes out otherwise and crates/integration/src/suites/known.txt has no reason.
";

/// What to do.
struct Arguments {
    suites: Vec<&'static Suite>,
    servers: Vec<Kind>,
    sources: Option<PathBuf>,
    folder: PathBuf,
    write: Option<PathBuf>,
}

fn main() -> ExitCode {
    answer("suites", USAGE, |words| arguments(words).and_then(|arguments| suites(&arguments)))
}

fn arguments(words: &[String]) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        suites: SUITES.iter().collect(),
        servers: Kind::ALL.to_vec(),
        sources: None,
        folder: PathBuf::from("target/suites"),
        write: None,
    };
    for pair in words.chunks(2) {
        let [option, value] = pair else { return Err(format!("{} needs a value\n\n{USAGE}", pair[0])) };
        match option.as_str() {
            "--suites" => {
                let every: Vec<&'static Suite> = SUITES.iter().collect();
                arguments.suites = named(value, &every, |suite| suite.name)?;
            }
            "--servers" => {
                arguments.servers = named(value, Kind::ALL, Kind::name)?;
                arguments.servers.retain(|kind| *kind != Kind::Memcached);
                arguments.servers.insert(0, Kind::Memcached);
            }
            "--sources" => arguments.sources = Some(value.into()),
            "--folder" => arguments.folder = value.into(),
            "--write" => arguments.write = Some(value.into()),
            _ => return Err(format!("unknown option `{option}`\n\n{USAGE}")),
        }
    }
    Ok(arguments)
}

fn suites(arguments: &Arguments) -> Result<(), String> {
    let memcached = requirement::tool("memcached").ok_or("memcached is not installed (Debian: memcached)")?;
    match Memcached::start(&memcached)?.version()? {
        version if version == VERSION => {}
        other => return Err(format!("the control is memcached {VERSION}, and this one is {other}")),
    }
    let cannot = |error| format!("cannot use {}: {error}", arguments.folder.display());
    std::fs::create_dir_all(&arguments.folder).map_err(cannot)?;
    let folder = arguments.folder.canonicalize().map_err(cannot)?;
    let sources = arguments.sources.as_deref().map(Path::canonicalize).transpose();
    let sources = sources.map_err(|error| format!("cannot read the folder that `--sources` names: {error}"))?;
    let known = known::list()?;
    let (mut all, mut found) = (Vec::new(), Vec::new());
    for suite in &arguments.suites {
        let results = match fetch(suite, &folder, sources.as_deref()) {
            Ok(fetched) => Ok(against_all(suite, &fetched, arguments, &memcached, &folder)?),
            Err(why) => {
                println!("{}: not run, {why}", suite.name);
                Err(why)
            }
        };
        found.extend(results.iter().flat_map(|results| groups(suite, results, &known)));
        all.push(Ran { suite, results });
    }
    if let Some(file) = &arguments.write {
        let text = page(&all, &found, &arguments.servers);
        std::fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    conclude(&all, &found, &known, arguments)
}

fn against_all(
    suite: &'static Suite,
    fetched: &Fetched,
    arguments: &Arguments,
    memcached: &Path,
    folder: &Path,
) -> Result<Vec<(Kind, Results)>, String> {
    let mut all = Vec::new();
    for kind in &arguments.servers {
        let mut results = run(suite, fetched, *kind, memcached, folder)?;
        // Some tests count seconds and fail on a busy machine. The control gets a second chance;
        // ours does not.
        if *kind == Kind::Memcached && results.values().any(|verdict| verdict.outcome == TestOutcome::Failed) {
            better(&mut results, run(suite, fetched, *kind, memcached, folder)?);
        }
        let [passed, failed, skipped] = counts(&results);
        println!("{} with {}: {passed} passed, {failed} failed, {skipped} skipped", suite.name, kind.name());
        all.push((*kind, results));
    }
    Ok(all)
}

/// Takes the passes of a second run.
fn better(results: &mut Results, second: Results) {
    let passes = second.into_iter().filter(|(_, verdict)| verdict.outcome == TestOutcome::Passed);
    results.extend(passes);
}

/// Fails where a difference has no reason, a reason no difference, or a suite that should run did
/// not.
fn conclude(all: &[Ran], found: &[Group], known: &[Known], arguments: &Arguments) -> Result<(), String> {
    let servers = &arguments.servers;
    let unknown = found.iter().filter(|group| group.reason.is_none());
    let mut faults: Vec<String> = unknown
        .map(|group| {
            let Group { suite, test, theirs, ours, variants, message, .. } = group;
            let (theirs, ours, servers) = (theirs.name(), ours.name(), group.servers.join(", "));
            format!("{suite} {test} ({variants} variants): {theirs} with memcached, {ours} with {servers}: {message}")
        })
        .collect();
    // A race needs to show in no run.
    for known in known.iter().filter(|known| !known.reason.starts_with("Race:")) {
        let ran = all.iter().any(|ran| ran.suite.name == known.suite && ran.results.is_ok());
        for kind in servers.iter().filter(|kind| ran && known.servers.iter().any(|name| name == kind.name())) {
            let differs =
                |group: &Group| group.servers.contains(&kind.name()) && known.explains(group.suite, *kind, &group.test);
            if !found.iter().any(differs) {
                let name = kind.name();
                faults.push(format!("known.txt: {} {} does not differ with {name}", known.suite, known.test));
            }
        }
    }
    let missing = all.iter().filter(|ran| ran.suite.unpublished.is_none() || arguments.sources.is_some());
    let missing = missing.filter_map(|ran| Some((ran.suite.name, ran.results.as_ref().err()?)));
    faults.extend(missing.map(|(name, why)| format!("{name} was not run: {why}")));
    match faults.len() {
        0 => Ok(()),
        count => Err(format!("{count} findings\n{}", faults.join("\n"))),
    }
}
