//! `cargo xtask sim`: builds the simulator, with every assertion on, and runs it. For
//! `--fault-points` it is built with the deliberate defects in it, and told their names as they
//! stand in the sources. Others are for tests, which are run after, but for the gate's short form
//! (`--known`).

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::cargo::{build, built, cargo, succeed};
use crate::tidy::Tree;

/// Where the macro is explained, with an example that is no fault point.
const EXPLAINED: &str = "crates/base/src/fault_point.rs";

/// Packages with fault points that tests of their own look for, those that have none, the targets
/// that the tests are in, and what is in their names. What is left of the workspace is built as for
/// the simulator, so nothing is built twice.
const TESTED: [&str; 6] =
    ["stratakv-device", "stratakv-hash", "stratakv-matrix", "stratakv-slab", "stratakv-tier", "stratakv-integration"];
const WITHOUT: [&str; 10] = [
    "stratakv-base",
    "stratakv-index",
    "stratakv-engine",
    "stratakv-conformance",
    "stratakv-protocol",
    "stratakv-structures",
    "stratakv-server",
    "stratakv-pmem",
    "stratakv",
    "stratakv-runtime",
];
const TARGETS: &str =
    "--lib --test cuts --test threads --test batches --test snapshots --test waiting --test container --test main";
const NAMES: &str = "deliberate reused shown_shard_by_shard";

pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let mut arguments = arguments.to_vec();
    let mut all_fault_points = false;
    let at = arguments.iter().position(|argument| argument == "--fault-points");
    if let Some(at) = at {
        let named = arguments.get(at + 1).is_some_and(|next| !next.starts_with("--"));
        if !named {
            all_fault_points = true;
            let tree = Tree::read(root).map_err(|error| format!("cannot read the repository: {error}"))?;
            arguments.insert(at + 1, fault_points(&tree).into_iter().collect::<Vec<_>>().join(","));
        }
    }
    // Seeds that are known to show them take little time: what the tests built will do.
    let is_known = arguments.iter().any(|argument| argument == "--known");
    let profile = profile(&mut arguments)?.unwrap_or(if is_known { "dev" } else { "sim" }.to_owned());
    let features: Vec<String> = match at {
        Some(_) => TESTED.iter().map(|package| format!("{package}/fault_points")).collect(),
        None => Vec::new(),
    };
    build(root, &profile, &["sim"], &features)?;
    succeed("sim", Command::new(built(root, &profile, "sim")).current_dir(root).args(arguments))?;
    // Those of tests take a build of their own each: the night looks for them.
    if all_fault_points && !is_known {
        let mut tests = cargo(root);
        tests.args(["test", "--workspace"]).args(features.iter().map(|feature| format!("--features={feature}")));
        WITHOUT.iter().for_each(|package| _ = tests.args(["--exclude", package]));
        succeed("fault points of tests", tests.args(TARGETS.split(' ')).arg("--").args(NAMES.split(' ')))?;
    }
    Ok(())
}

/// Takes `--profile NAME` out of the arguments.
fn profile(arguments: &mut Vec<String>) -> Result<Option<String>, String> {
    let Some(at) = arguments.iter().position(|argument| argument == "--profile") else { return Ok(None) };
    arguments.remove(at);
    match arguments.get(at).map(String::as_str) {
        Some("dev" | "sim" | "release") => Ok(Some(arguments.remove(at))),
        _ => Err("--profile wants dev, sim or release".to_owned()),
    }
}

/// Names in `fault_point!("…")` in the product's sources; those of placement `packed` say so.
fn fault_points(tree: &Tree) -> BTreeSet<String> {
    let product = |path: &str| {
        let has_tests_of_its_own = path.starts_with("crates/hash/")
            || path.starts_with("crates/matrix/src/container/")
            || path.starts_with("crates/device/src/passthrough/")
            || path.starts_with("crates/device/src/xdp/");
        path.starts_with("crates/") && path.contains("/src/") && path != EXPLAINED && !has_tests_of_its_own
    };
    let sources = tree.files.iter().filter(|file| product(&file.path));
    let names = sources.flat_map(|file| {
        let placement = match &file.path {
            path if path.contains("/packed/") => "packed:",
            path if path.starts_with("crates/matrix/") => "matrix:",
            _ => "",
        };
        file.text.split("fault_point!(\"").skip(1).map(move |rest| (placement, rest))
    });
    let names = names.filter_map(|(placement, rest)| Some((placement, rest.split('"').next()?)));
    // What the engines share has fault points of each of them.
    let names = names.map(|(placement, name)| (if name.starts_with("matrix_") { "matrix:" } else { placement }, name));
    // Those of trials have tests of their own.
    let simulated = names.filter(|(_, name)| !name.starts_with("trial_"));
    simulated.map(|(placement, name)| format!("{placement}{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::File;

    #[test]
    fn a_fault_point_is_known_by_being_written_down() {
        let source = "fn f() {\n    fault_point!(\"one\", return);\n    fault_point!(\"two\", x, y = z);\n}\n";
        let packed = File::new("crates/slab/src/packed/b.rs", "fault_point!(\"three\", return);");
        let files = vec![
            File::new("crates/slab/src/a.rs", source),
            packed,
            File::new("crates/chassis/src/c.rs", "fault_point!(\"matrix_four\", return);"),
            File::new(EXPLAINED, "fault_point!(\"example\", return)"),
        ];
        let names: Vec<String> = fault_points(&Tree { files }).into_iter().collect();
        assert_eq!(names, ["matrix:matrix_four", "one", "packed:three", "two"]);
    }
}
