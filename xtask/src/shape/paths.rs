//! The files and functions of its engine that one put and one get pass.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::callgrind;
use crate::cargo::succeed;

/// Name, the crates that count, options of a new store.
const ENGINES: &[(&str, &[&str], &[&str])] = &[
    ("slab, in_place", &["slab", "packed", "chassis"], &["--engine", "slab", "--placement", "in_place"]),
    ("slab, packed", &["slab", "packed", "chassis"], &["--engine", "slab", "--placement", "packed"]),
    ("matrix", &["matrix", "chassis"], &["--engine", "matrix"]),
    ("hash", &["hash"], &["--engine", "hash"]),
    ("tier", &["tier", "chassis"], &["--engine", "tier"]),
];
/// Callers without a ring enter an engine here.
const ENTRIES: &[&str] =
    &["stratakv_runtime::runtime::Runtime<S>::execute", "stratakv_runtime::direct::Direct::execute"];

/// A table: without optimisation, so that each function is called.
///
/// # Errors
/// A program cannot be built or run.
pub fn measure(of: &Path) -> Result<String, String> {
    let program = callgrind::build(of, false)?;
    let folder = of.join("target/shape/paths");
    let mut text =
        String::from("| engine | put: files | functions | get: files | functions |\n|---|--:|--:|--:|--:|\n");
    let mut lists = String::new();
    for (name, crates, options) in ENGINES {
        _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        let store = folder.join("store");
        for number in 0..5 {
            let mut put = Command::new(&program);
            put.args(["put", "--data"]).arg(&store).args(if number == 0 { *options } else { &[] });
            put.args([&format!("key {number}"), "a value"]).stderr(Stdio::null());
            succeed("put", &mut put)?;
        }
        _ = write!(text, "| {name} |");
        for (operation, words) in [("put", &["key 3", "another value"][..]), ("get", &["key 2"][..])] {
            let out = folder.join(operation);
            let toggles: Vec<String> = ENTRIES.iter().map(|entry| format!("--toggle-collect={entry}")).collect();
            let toggles: Vec<&str> = toggles.iter().map(String::as_str).collect();
            let mut command = callgrind::command(&program, &out, &toggles);
            command.args([operation, "--data"]).arg(&store);
            command.args((*name != "hash").then_some(["--io", "blocking"]).into_iter().flatten()).args(words);
            succeed(operation, &mut command)?;
            let passed = passed(&out, crates)?;
            let files: BTreeSet<&str> = passed.iter().map(|(file, _)| file.as_str()).collect();
            _ = write!(text, " {} | {} |", files.len(), passed.len());
            _ = writeln!(lists, "\n{operation} of {name}:");
            for file in files {
                let names = passed.iter().filter(|(of, _)| of == file).map(|(_, name)| format!("`{name}`"));
                _ = writeln!(lists, "- `{file}`: {}", names.collect::<Vec<_>>().join(", "));
            }
        }
        text.push('\n');
    }
    Ok(text + &lists)
}

/// Files and functions of some crates, each once, by callgrind's own reader.
fn passed(out: &Path, crates: &[&str]) -> Result<BTreeSet<(String, String)>, String> {
    let mut command = Command::new("callgrind_annotate");
    let output = command.args(["--threshold=100", "--auto=no"]).arg(out).output();
    let output = output.map_err(|error| format!("cannot start callgrind_annotate: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = text.lines().filter_map(|line| {
        let (_, place) = line.split_once("crates/")?;
        let (file, name) = place.split_once(".rs:")?;
        let name = name.split(" [").next().unwrap_or(name).trim();
        // A closure belongs to the function that it stands in; generic code has its types dropped.
        let name = name.split("::{{closure}}").next().unwrap_or(name).rsplit("::").next().unwrap_or(name);
        let is_of = crates.iter().any(|of| file.starts_with(&format!("{of}/src/")));
        is_of.then(|| (format!("crates/{file}.rs"), name.to_owned()))
    });
    Ok(found.collect())
}
