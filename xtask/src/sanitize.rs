//! `cargo xtask sanitize`: the tests of the crates with `unsafe`, and of those that lend them memory, under a sanitizer.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::nightly;

const USAGE: &str = "\
usage: cargo xtask sanitize [address|thread] [--short] [--package NAME ...]

  address   out of bounds, use after free, leaks (AddressSanitizer with LeakSanitizer); the default
  thread    data races (ThreadSanitizer); needs the sources of the standard library
  --short   the crates with `unsafe` only: index, device";

/// Where `unsafe` is.
const UNSAFE: &[&str] = &["stratakv-index", "stratakv-device"];
/// Where it is used hardest.
const USERS: &[&str] = &["stratakv-runtime", "stratakv-slab", "stratakv"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sanitizer {
    Address,
    Thread,
}

#[derive(Debug, PartialEq, Eq)]
struct Request {
    sanitizer: Sanitizer,
    packages: Vec<String>,
}

/// Runs the command.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let Request { sanitizer, packages } = parse(arguments)?;
    if let Some(missing) = nightly::missing().or_else(|| sanitizer.missing()) {
        println!("skipped: {sanitizer:?}Sanitizer needs {missing}");
        return Ok(());
    }
    let started = Instant::now();
    let status = sanitizer.tests(root, &packages).status().map_err(|error| format!("cannot start cargo: {error}"))?;
    let (packages, seconds) = (packages.join(", "), started.elapsed().as_secs());
    if status.success() {
        println!("{sanitizer:?}Sanitizer: no finding in {packages} ({seconds} s)");
        return Ok(());
    }
    Err(format!("a test of {packages} failed, or {sanitizer:?}Sanitizer has something to say ({seconds} s): see above"))
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
    if packages.is_empty() {
        let users: &[&str] = if short { &[] } else { USERS };
        packages = UNSAFE.iter().chain(users).map(|name| (*name).to_owned()).collect();
    }
    Ok(Request { sanitizer, packages })
}

impl Sanitizer {
    /// ThreadSanitizer must see the locks themselves: it takes what a standard library without instrumentation protects for races.
    fn missing(self) -> Option<String> {
        let sources = || nightly::sysroot().map(|root| root.join("lib/rustlib/src/rust/library/std"));
        let is_there = self == Sanitizer::Address || sources().as_deref().is_some_and(Path::is_dir);
        (!is_there).then(|| {
            "the sources of the standard library, to instrument its locks too (rustup component add rust-src --toolchain nightly)".into()
        })
    }

    fn tests(self, root: &Path, packages: &[String]) -> Command {
        let flag = match self {
            Sanitizer::Address => "-Zsanitizer=address",
            Sanitizer::Thread => "-Zsanitizer=thread",
        };
        let mut cargo = nightly::cargo(root, &[flag, "-Cunsafe-allow-abi-mismatch=sanitizer"]);
        let folder: PathBuf = nightly::target_directory(root).join(format!("sanitize-{self:?}").to_lowercase());
        cargo.args(["test", "--quiet", "--lib", "--tests", "--no-fail-fast", "--target-dir"]).arg(folder);
        if self == Sanitizer::Thread {
            cargo.arg("-Zbuild-std");
        }
        packages.iter().for_each(|package| _ = cargo.args(["--package", package]));
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
        assert_eq!(asked(&[]).unwrap().packages.len(), UNSAFE.len() + USERS.len());
        let thread = asked(&["thread", "--package", "x"]).unwrap();
        assert_eq!(thread, Request { sanitizer: Sanitizer::Thread, packages: vec!["x".to_owned()] });
        assert_eq!(asked(&["--short"]).unwrap().packages, UNSAFE);
        assert!(asked(&["memory"]).is_err() && asked(&["--package"]).is_err());
    }
}
