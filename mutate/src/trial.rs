//! Builds the mutated copy, and tries one mutation after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::tree::Mutation;

/// A program that may catch mutations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// As it is told.
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Where it runs.
    pub folder: PathBuf,
    pub is_simulator: bool,
}

/// What a look took, and what it met, with no mutation on.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    pub took: Duration,
    pub met: BTreeSet<u32>,
}

/// How a mutation fared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// By this look; by a test, or else by the simulator.
    Caught(String, bool),
    /// It was met by a look, and nothing went wrong.
    Survived,
    /// No look met it.
    NeverMet,
    /// There was no time left for it.
    NotTried,
}

/// Worlds of the simulator that run a crate's code, with numbers of seeds that take some seconds.
pub fn worlds(package: &str) -> &'static [&'static [&'static str]] {
    const IN_PLACE: &[&str] = &["--placement", "in_place", "--seeds", "400"];
    const PACKED: &[&str] = &["--placement", "packed", "--seeds", "300"];
    const MATRIX: &[&str] = &["--engine", "matrix", "--seeds", "150"];
    const TIER: &[&str] = &["--world", "tier", "--seeds", "300"];
    const STORE: &[&str] = &["--world", "store", "--seeds", "60"];
    const STORE_ON_MATRIX: &[&str] = &["--world", "store", "--engine", "matrix", "--seeds", "40"];
    const PIPELINED: &[&str] = &["--world", "pipelined", "--seeds", "60"];
    const BREAKING: &[&str] = &["--world", "breaking", "--seeds", "60"];
    const LIBRARY: &[&str] = &["--world", "library", "--seeds", "60"];
    const SERVER: &[&str] = &["--world", "server", "--seeds", "40"];
    const BREAKING_SERVER: &[&str] = &["--world", "breaking_server", "--seeds", "40"];
    match package {
        "slab" => &[IN_PLACE, PACKED, PIPELINED, LIBRARY],
        "matrix" => &[MATRIX, STORE_ON_MATRIX, PIPELINED, LIBRARY],
        "tier" => &[TIER, SERVER],
        "hash" | "pmem" => &[LIBRARY],
        "index" | "engine" | "base" => &[IN_PLACE, PACKED, MATRIX],
        "runtime" => &[STORE, PIPELINED, BREAKING, LIBRARY],
        "stratakv" => &[STORE, LIBRARY, PIPELINED],
        "server" | "protocol" => &[SERVER, BREAKING_SERVER],
        _ => &[],
    }
}

/// Lines that cannot be built, file by file.
pub type Refused = BTreeMap<String, BTreeSet<usize>>;

/// Asks the compiler for lines of the copy that are no Rust.
///
/// # Errors
/// Cargo cannot be started, or fails without such a line.
pub fn check(copy: &Path, target: &Path) -> Result<Refused, String> {
    let (messages, is_built) =
        messages(copy, target, &["check", "--workspace", "--exclude", "xtask", "--lib", "--keep-going"])?;
    let mut refused = Refused::new();
    for message in messages.iter().filter(|message| message.pointer("/message/level") == Some(&"error".into())) {
        let spans = message.pointer("/message/spans").and_then(Value::as_array);
        for span in spans.into_iter().flatten() {
            let file = span.get("file_name").and_then(Value::as_str);
            let line = span.get("line_start").and_then(Value::as_u64);
            if let (Some(file), Some(line)) = (file, line) {
                refused.entry(file.to_owned()).or_default().insert(line as usize);
            }
        }
    }
    if refused.is_empty() && !is_built { Err("the mutated tree cannot be checked".into()) } else { Ok(refused) }
}

/// Builds the tests of crates and the simulator: what may catch a mutation of which crate.
///
/// # Errors
/// They cannot be built.
pub fn build(copy: &Path, target: &Path, packages: &[String]) -> Result<Vec<(String, Look)>, String> {
    let targets = test_targets(copy, packages);
    let mut arguments = vec!["test", "--workspace", "--exclude", "xtask", "--no-run", "--lib", "--bin", "sim"];
    targets.iter().for_each(|name| arguments.extend(["--test", name]));
    let (messages, is_built) = messages(copy, target, &arguments)?;
    if !is_built {
        return Err("the tests of the mutated tree cannot be built".into());
    }
    let mut looks = Vec::new();
    for message in &messages {
        let word = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        let (Some(manifest), Some(program)) = (word("/manifest_path"), word("/executable")) else { continue };
        let Some(folder) = Path::new(manifest).parent() else { continue };
        let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_test = message.pointer("/profile/test").and_then(Value::as_bool) == Some(true);
        let name = word("/target/name").unwrap_or_default();
        if is_test && packages.contains(&package) {
            looks.push((package, test(folder, name, program)));
        } else if !is_test && name == "sim" {
            looks.extend(packages.iter().flat_map(|package| simulations(copy, package, program)));
        }
    }
    Ok(looks)
}

/// Files and folders under `tests/` of these crates: those of others take long to build, and nobody
/// runs them.
fn test_targets(copy: &Path, packages: &[String]) -> BTreeSet<String> {
    let folders =
        packages.iter().filter_map(|package| fs::read_dir(copy.join("crates").join(package).join("tests")).ok());
    let paths = folders.flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let is_target = |path: &PathBuf| {
        path.is_file() && path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").is_file()
    };
    paths.filter(is_target).filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect()
}

/// What cargo says, line by line, and whether all could be built.
fn messages(copy: &Path, target: &Path, arguments: &[&str]) -> Result<(Vec<Value>, bool), String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(copy).env("CARGO_TARGET_DIR", target).env("RUSTFLAGS", "--cap-lints warn").args(arguments);
    command.args(["--message-format", "json"]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().map_err(|error| format!("cannot start cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(), output.status.success()))
}

fn test(folder: &Path, target: &str, program: &str) -> Look {
    Look {
        name: format!("test {target}"),
        program: program.into(),
        arguments: vec!["--test-threads=2".into()],
        folder: folder.into(),
        is_simulator: false,
    }
}

fn simulations(copy: &Path, package: &str, program: &str) -> Vec<(String, Look)> {
    let look = |words: &&[&str]| Look {
        name: format!("sim {}", words.join(" ")),
        program: program.into(),
        arguments: words.iter().copied().chain(["--from", "7000000"]).map(str::to_owned).collect(),
        folder: copy.into(),
        is_simulator: true,
    };
    worlds(package).iter().map(|words| (package.to_owned(), look(words))).collect()
}

/// Runs a look with no mutation on.
///
/// # Errors
/// It fails, or has no end.
pub fn baseline(look: &Look, scratch: &Path) -> Result<Baseline, String> {
    let list = scratch.join("met");
    let _ = fs::remove_file(&list);
    let started = Instant::now();
    let log = scratch.join("log");
    let ended = run(look, ("MUTATIONS_MET", &list.display().to_string()), Duration::from_secs(900), &log)?;
    match ended {
        Some(status) if status.success() => {}
        Some(status) => return Err(format!("{status} with no mutation on: {}", tail(&log))),
        None => return Err("no end within 15 minutes with no mutation on".into()),
    }
    let met = fs::read_to_string(&list).unwrap_or_default();
    Ok(Baseline { took: started.elapsed(), met: met.lines().filter_map(|line| line.parse().ok()).collect() })
}

/// Tries a mutation by every look that meets it, the quickest first, until one catches it.
///
/// # Errors
/// A program cannot be started.
pub fn try_one(mutation: &Mutation, looks: &[(Look, Baseline)], scratch: &Path, end: Instant) -> Result<Fate, String> {
    let mut meet: Vec<_> = looks.iter().filter(|(_, baseline)| baseline.met.contains(&mutation.number)).collect();
    meet.sort_by_key(|(_, baseline)| baseline.took);
    if meet.is_empty() {
        return Ok(Fate::NeverMet);
    }
    for (look, baseline) in meet {
        if Instant::now() > end {
            return Ok(Fate::NotTried);
        }
        let limit = baseline.took * 4 + Duration::from_secs(20);
        let ended = run(look, ("MUTATION", &mutation.number.to_string()), limit, &scratch.join("log"))?;
        if !ended.is_some_and(|status| status.success()) {
            let how = if ended.is_none() { " (no end)" } else { "" };
            return Ok(Fate::Caught(format!("{}{how}", look.name), look.is_simulator));
        }
    }
    Ok(Fate::Survived)
}

/// Runs a program to its end; `None`: it had none in time, and was killed with its children.
fn run(look: &Look, variable: (&str, &str), limit: Duration, log: &Path) -> Result<Option<ExitStatus>, String> {
    let output = File::create(log).map_err(|error| format!("cannot write {}: {error}", log.display()))?;
    let errors = output.try_clone().map_err(|error| format!("cannot write {}: {error}", log.display()))?;
    let mut command = Command::new(&look.program);
    command.args(&look.arguments).current_dir(&look.folder).env(variable.0, variable.1).env("CI", "");
    command.env("CARGO_MANIFEST_DIR", &look.folder).stdin(Stdio::null()).stdout(output).stderr(errors);
    let child = command.process_group(0).spawn();
    let mut child = child.map_err(|error| format!("cannot start {}: {error}", look.program.display()))?;
    let group = format!("-{}", child.id());
    let (told, ended) = mpsc::channel();
    thread::scope(|scope| {
        // Whoever listens has heard, or has given up.
        scope.spawn(|| _ = told.send(child.wait()));
        let waited = ended.recv_timeout(limit);
        if waited.is_err() {
            // It may end by itself at this moment.
            let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        }
        match waited {
            Ok(Ok(status)) => Ok(Some(status)),
            Ok(Err(error)) => Err(format!("cannot wait for {}: {error}", look.program.display())),
            Err(_) => Ok(None),
        }
    })
}

fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
