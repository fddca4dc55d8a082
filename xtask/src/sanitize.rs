//! `cargo xtask sanitize`: under AddressSanitizer the tests of the crates with `unsafe`, and of
//! those that lend them memory; under ThreadSanitizer those in which threads share something.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::toolchain;

const USAGE: &str = "\
usage: cargo xtask sanitize [address|thread] [--short] [--package NAME ...]

  address         out of bounds, use after free, leaks (AddressSanitizer with LeakSanitizer); the default
  thread          data races (ThreadSanitizer) in the threaded tests of hash, and in runtime; needs the sources of the standard library
  --short         address: the crates with `unsafe` only, index and device; thread: without the snapshots of hash
  --package NAME  all tests of this crate instead";

/// Where `unsafe` is.
const UNSAFE: &[&str] = &["stratakv-index", "stratakv-device"];
/// Where it is used hardest.
const USERS: &[&str] = &["stratakv-runtime", "stratakv-slab", "stratakv"];

/// Every test of a crate.
const ALL: &[&str] = &["--lib", "--tests"];
/// Where threads share what is not behind a lock, and the lanes.
const THREADED: &[(&str, &[&str])] = &[
    ("stratakv-hash", &["--test", "threads", "--test", "mixed"]),
    ("stratakv-hash", &["--test", "snapshots"]),
    ("stratakv-runtime", ALL),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sanitizer {
    Address,
    Thread,
}

#[derive(Debug, PartialEq, Eq)]
struct Request {
    sanitizer: Sanitizer,
    runs: Vec<Run>,
}

/// Tests that one call of cargo runs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    packages: Vec<String>,
    which: &'static [&'static str],
}

impl Run {
    fn new<'a>(packages: impl IntoIterator<Item = &'a &'a str>, which: &'static [&'static str]) -> Run {
        Run { packages: packages.into_iter().map(|name| (*name).to_owned()).collect(), which }
    }
}

/// Runs the command.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let Request { sanitizer, runs } = parse(arguments)?;
    if let Some(missing) = toolchain::missing().or_else(|| sanitizer.missing()) {
        println!("skipped: {sanitizer:?}Sanitizer needs {missing}");
        return Ok(());
    }
    let started = Instant::now();
    let (mut clean, mut dirty) = (Vec::new(), Vec::new());
    for run in runs {
        let status = sanitizer.tests(root, &run).status().map_err(|error| format!("cannot start cargo: {error}"))?;
        let target = if status.success() { &mut clean } else { &mut dirty };
        target.push(format!("{} ({})", run.packages.join(", "), run.which.join(" ")));
    }
    let seconds = started.elapsed().as_secs();
    if dirty.is_empty() {
        println!("{sanitizer:?}Sanitizer: no finding in {} ({seconds} s)", clean.join(", "));
        return Ok(());
    }
    let dirty = dirty.join(", ");
    Err(format!("a test of {dirty} failed, or {sanitizer:?}Sanitizer has something to say ({seconds} s): see above"))
}

fn parse(arguments: &[String]) -> Result<Request, String> {
    let (mut sanitizer, mut packages, mut short) = (Sanitizer::Address, Vec::new(), false);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "address" => sanitizer = Sanitizer::Address,
            "thread" => sanitizer = Sanitizer::Thread,
            "--short" => short = true,
            "--package" => packages.push(arguments.next().ok_or_else(|| USAGE.to_owned())?.clone()),
            other => return Err(format!("unknown argument `{other}`\n\n{USAGE}")),
        }
    }
    let runs = match sanitizer {
        _ if !packages.is_empty() => vec![Run { packages, which: ALL }],
        Sanitizer::Address => vec![Run::new(UNSAFE.iter().chain(if short { &[] } else { USERS }), ALL)],
        Sanitizer::Thread => {
            let threaded = THREADED.iter().filter(|(_, which)| !(short && which.contains(&"snapshots")));
            threaded.map(|(package, which)| Run::new([package], which)).collect()
        }
    };
    Ok(Request { sanitizer, runs })
}

impl Sanitizer {
    /// ThreadSanitizer must see the locks themselves: it takes what a standard library without
    /// instrumentation protects for races.
    fn missing(self) -> Option<String> {
        let sources = || toolchain::sysroot().map(|root| root.join("lib/rustlib/src/rust/library/std"));
        let is_there = self == Sanitizer::Address || sources().as_deref().is_some_and(Path::is_dir);
        (!is_there).then(|| {
            "the sources of the standard library, to instrument its locks too (rustup component add rust-src --toolchain nightly)".into()
        })
    }

    fn tests(self, root: &Path, run: &Run) -> Command {
        let flag = match self {
            Sanitizer::Address => "-Zsanitizer=address",
            Sanitizer::Thread => "-Zsanitizer=thread",
        };
        let mut cargo = toolchain::cargo(root, &[flag, "-Cunsafe-allow-abi-mismatch=sanitizer"]);
        let folder: PathBuf = toolchain::target_directory(root).join(format!("sanitize-{self:?}").to_lowercase());
        cargo.args(["test", "--quiet", "--no-fail-fast"]).args(run.which).arg("--target-dir").arg(folder);
        if self == Sanitizer::Thread {
            cargo.arg("-Zbuild-std");
        }
        run.packages.iter().for_each(|package| _ = cargo.args(["--package", package]));
        let leaks = root.join("xtask/suppressions/leaks.txt");
        cargo.env("LSAN_OPTIONS", format!("suppressions={}:print_suppressions=0", leaks.display()));
        // A report is a failure also where the test itself succeeds.
        cargo.env("TSAN_OPTIONS", "exitcode=66").env("RUST_BACKTRACE", "1");
        cargo
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(arguments: &[&str]) -> Result<Request, String> {
        parse(&arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<String>>())
    }

    #[test]
    fn arguments_choose_sanitizer_and_crates() {
        let address =
            |packages: &[&str]| Request { sanitizer: Sanitizer::Address, runs: vec![Run::new(packages, ALL)] };
        assert_eq!(asked(&[]), Ok(address(&[UNSAFE, USERS].concat())));
        assert_eq!(asked(&["--short"]), Ok(address(UNSAFE)));
        let (long, short) = (asked(&["thread"]).unwrap(), asked(&["thread", "--short"]).unwrap());
        assert_eq!((long.runs.len(), short.runs.len()), (THREADED.len(), THREADED.len() - 1));
        assert!(short.runs.iter().all(|run| long.runs.contains(run)) && short.sanitizer == Sanitizer::Thread);
        let one = Request { sanitizer: Sanitizer::Thread, runs: vec![Run::new(&["x"], ALL)] };
        assert_eq!(asked(&["thread", "--package", "x"]), Ok(one));
        assert!(asked(&["memory"]).is_err() && asked(&["--package"]).is_err());
    }
}
