//! `cargo xtask semver`: what has changed in the library's interface since the last version, by
//! cargo-semver-checks. Changes that break users are listed in `xtask/breaking.txt` with a reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::hide_caller;
use crate::toolchain::target_directory;

const USAGE: &str = "\
usage: cargo xtask semver [--since REV]

  Compares the interface of the crate stratakv with that of an older commit. Whatever breaks a
  user's program must be listed in xtask/breaking.txt. Where cargo-semver-checks is not installed,
  this says so and ends: it takes half an hour to build.

  --since REV  the commit to compare with [default: that of the newest stores in
               crates/integration/tests/fixtures]";

/// What reads and compares the interfaces.
const PROGRAM: &str = "cargo-semver-checks";
/// The program of this version wrote the stores that later ones must open; so its commit is known.
const RELEASED: &str = "crates/integration/tests/fixtures/0.1.0/about.toml";
/// Changes that are known to break users, each with its reason: `LINT: WHAT # REASON`.
const KNOWN: &str = "xtask/breaking.txt";
/// What follows the changed item in a line of the report: where it was or is.
const BEHIND_ITEM: [&str; 4] = [", previously in", " in file", ", in file", " in /"];

/// Runs the command.
///
/// # Errors
/// The interface has changed in a way that breaks users and is not listed, or a listed change is
/// none, or the interfaces cannot be compared.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let commit = match arguments {
        [] => released(root)?,
        [option, revision] if option == "--since" => revision.clone(),
        _ => return Err(USAGE.into()),
    };
    let Some(program) = installed(root) else {
        println!("skipped: {PROGRAM} is not installed (cargo install --locked {PROGRAM})");
        return Ok(());
    };
    let text = fs::read_to_string(root.join(KNOWN)).map_err(|error| format!("{KNOWN}: {error}"))?;
    let known = known(&text)?;
    let report = compared(root, &program, &commit)?;
    judge(&broken(&report), &known).map_err(|why| format!("{why}\n\n{report}"))?;
    println!("semver: {} changes since {commit} break users, each with its reason in {KNOWN}", known.len());
    Ok(())
}

/// The program, in `PATH` or below `target/tools`.
fn installed(root: &Path) -> Option<PathBuf> {
    let own = target_directory(root).join("tools/bin").join(PROGRAM);
    [PathBuf::from(PROGRAM), own].into_iter().find(|program| {
        let told = Command::new(program).args(["semver-checks", "--version"]).stdout(Stdio::null()).status();
        told.is_ok_and(|status| status.success())
    })
}

/// The commit of the last version.
fn released(root: &Path) -> Result<String, String> {
    let text = fs::read_to_string(root.join(RELEASED)).map_err(|error| format!("{RELEASED}: {error}"))?;
    let about: toml::Table = text.parse().map_err(|error| format!("{RELEASED}: {error}"))?;
    let commit = about.get("commit").and_then(toml::Value::as_str);
    commit.map(str::to_owned).ok_or_else(|| format!("{RELEASED} names no commit"))
}

/// What the program says of both interfaces.
fn compared(root: &Path, program: &Path, commit: &str) -> Result<String, String> {
    let mut command = Command::new(program);
    hide_caller(command.current_dir(root));
    command.args(["semver-checks", "--package", "stratakv", "--color", "never"]);
    command.args(["--release-type", "minor", "--baseline-rev", commit]);
    let output = command.stderr(Stdio::piped()).output().map_err(|error| format!("cannot start {PROGRAM}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    match complained.lines().any(|line| line.trim_start().starts_with("Checked ")) {
        true => Ok(said),
        false => Err(format!("the interfaces cannot be compared:\n{said}{complained}")),
    }
}

/// Each change in a report: the lint's name and the item.
fn broken(report: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let (mut lint, mut is_list) = ("", false);
    for line in report.lines() {
        if let Some(begin) = line.strip_prefix("--- failure ") {
            (lint, is_list) = (begin.split(':').next().unwrap_or_default(), false);
        } else if line.starts_with("Failed in:") {
            is_list = true;
        } else if is_list && line.starts_with("  ") && !line.trim_start().starts_with("Summary") {
            let line = line.trim();
            let end = BEHIND_ITEM.iter().filter_map(|behind| line.find(behind)).min().unwrap_or(line.len());
            found.insert(format!("{lint}: {}", line.get(..end).unwrap_or(line)));
        } else {
            is_list &= !line.is_empty();
        }
    }
    found
}

/// The listed changes; each line must have a reason.
fn known(text: &str) -> Result<BTreeSet<String>, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let known = lines.map(|line| match line.split_once(" # ") {
        Some((change, reason)) if !reason.trim().is_empty() => Ok(change.trim().to_owned()),
        _ => Err(format!("{KNOWN}: `{line}` has no reason: write LINT: WHAT # REASON")),
    });
    known.collect()
}

fn judge(broken: &BTreeSet<String>, known: &BTreeSet<String>) -> Result<(), String> {
    let new: Vec<&str> = broken.difference(known).map(String::as_str).collect();
    let stale: Vec<&str> = known.difference(broken).map(String::as_str).collect();
    match (new.is_empty(), stale.is_empty()) {
        (true, true) => Ok(()),
        (false, _) => Err(format!(
            "these changes break users' programs. Undo them, or list them in {KNOWN} and CHANGELOG.md:\n{}",
            new.join("\n")
        )),
        (true, false) => Err(format!("these lines of {KNOWN} name no change: remove them\n{}", stale.join("\n"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "
--- failure enum_variant_added: enum variant added on exhaustive enum ---

Description:
A publicly-visible enum without #[non_exhaustive] has a new variant.
        ref: https://doc.rust-lang.org/cargo/reference/semver.html#enum-variant-new

Failed in:
  variant Engine:Tier in /there/crates/stratakv/src/engine.rs:23
  variant Engine:Other in /there/crates/stratakv/src/engine.rs:24

--- failure struct_missing: pub struct removed or renamed ---

Failed in:
  struct stratakv::Old, previously in file /there/old/src/lib.rs:7
";

    fn set(changes: &[&str]) -> BTreeSet<String> {
        changes.iter().map(|change| (*change).to_owned()).collect()
    }

    #[test]
    fn changes_are_read_from_a_report() {
        let expected = [
            "enum_variant_added: variant Engine:Tier",
            "enum_variant_added: variant Engine:Other",
            "struct_missing: struct stratakv::Old",
        ];
        assert_eq!(broken(REPORT), set(&expected));
        assert_eq!(broken("no failure\n  at all\n"), set(&[]));
    }

    #[test]
    fn a_change_needs_a_line_and_a_line_a_change_and_a_reason() {
        assert_eq!(judge(&set(&["a: b"]), &set(&["a: b"])), Ok(()));
        assert!(judge(&set(&["a: b"]), &set(&[])).is_err_and(|why| why.contains("a: b") && why.contains("Undo")));
        assert!(judge(&set(&[]), &set(&["a: b"])).is_err_and(|why| why.contains("remove")));
        assert_eq!(known("# words\n\na: b # as it was wrong\n"), Ok(set(&["a: b"])));
        assert!(known("a: b\n").is_err() && known("a: b # \n").is_err());
    }

    #[test]
    fn the_list_and_the_released_commit_are_there() {
        let root = crate::repository();
        assert!(known(&fs::read_to_string(root.join(KNOWN)).expect("the list")).is_ok());
        assert!(released(&root).is_ok_and(|commit| commit.len() >= 8));
    }
}
