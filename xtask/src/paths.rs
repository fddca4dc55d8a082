//! `cargo xtask paths`: files and functions of ours that a put and a get of each engine pass from
//! the runtime down.
//!
//! Callgrind counts how often each instruction runs, in a run of some operations and in one of
//! more. What runs at least once in two operations is passed by one. The program's line numbers
//! tell its place in the sources, and that of each function that it was inlined into.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::{cargo, succeed};
use crate::instructions::Subject;
use crate::serving::with_directory;

const USAGE: &str = "usage: cargo xtask paths [--of DIR] [--only WORD] [--list]\n\n\
    Counts the files and functions of ours that an operation passes (Debian: valgrind, binutils), on\n\
    one shard, by one client. --of: of another checkout. --only: operations whose name has this word.\n\
    --list: names them all.";

/// Operations of the shorter and the longer run.
const FEW: u64 = 100;
const MANY: u64 = 500;

/// What is above the runtime: clients, the command line, protocols, the routing of the library.
const ABOVE: &[&str] = &["bench", "c", "cli", "protocol", "server", "stratakv", "structures"];
/// What several engines share, and the runtime and devices below them.
const SHARED: &[&str] = &["base", "device", "engine", "pmem", "runtime"];

const SUBJECTS: &[Subject] = &[
    Subject { name: "put, slab in_place", engine: &["slab", "--placement", "in_place"], workload: "fill" },
    Subject { name: "get, slab in_place", engine: &["slab", "--placement", "in_place"], workload: "c" },
    Subject { name: "put, slab packed", engine: &["slab", "--placement", "packed"], workload: "fill" },
    Subject { name: "get, slab packed", engine: &["slab", "--placement", "packed"], workload: "c" },
    Subject { name: "put, hash", engine: &["hash"], workload: "fill" },
    Subject { name: "get, hash", engine: &["hash"], workload: "c" },
    Subject { name: "put, matrix", engine: &["matrix"], workload: "fill" },
    Subject { name: "get, matrix", engine: &["matrix"], workload: "c" },
    Subject { name: "put, tier", engine: &["tier"], workload: "fill" },
    Subject { name: "get, tier", engine: &["tier"], workload: "c" },
];

/// Functions by file.
type Passed = BTreeMap<String, BTreeSet<String>>;

struct Request {
    of: PathBuf,
    only: String,
    lists: bool,
}

/// Runs the command.
///
/// # Errors
/// Valgrind or addr2line is not installed, or the program cannot be built or run.
pub fn run(root: &Path, rest: &[String]) -> Result<(), String> {
    let mut request = Request { of: root.to_path_buf(), only: String::new(), lists: false };
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("`{word}` needs a value\n\n{USAGE}"));
        match word.as_str() {
            "--of" => request.of = PathBuf::from(value()?),
            "--only" => request.only.clone_from(value()?),
            "--list" => request.lists = true,
            _ => return Err(format!("`{word}` is not understood\n\n{USAGE}")),
        }
    }
    let program = build(&request.of)?;
    with_directory("paths", |directory| {
        println!(
            "| operation | files of the engine | functions | files in all | functions in all |\n|---|--:|--:|--:|--:|"
        );
        for subject in SUBJECTS.iter().filter(|subject| subject.name.contains(&request.only)) {
            let passed = passed_by(subject, &request.of, &program, directory)?;
            print!("{}", report(subject.name, &passed, request.lists));
        }
        Ok(())
    })
}

/// The released program with line numbers, but for optimisation over crates, which takes longest
/// and changes no path.
fn build(tree: &Path) -> Result<PathBuf, String> {
    let target = tree.join("target/paths");
    let mut command = cargo(tree);
    command.env("CARGO_PROFILE_PERF_LTO", "off").env("CARGO_PROFILE_PERF_CODEGEN_UNITS", "16");
    command.args(["build", "--profile", "perf", "--package", "stratakv-cli", "--features", "rustix/use-libc-auxv"]);
    succeed("build", command.arg("--target-dir").arg(&target))?;
    Ok(target.join("perf/stratakv"))
}

fn passed_by(subject: &Subject, tree: &Path, program: &Path, directory: &Path) -> Result<Passed, String> {
    let run = |operations| -> Result<_, String> {
        let options = ["--fair-sched=yes", "--dump-instr=yes", "--compress-strings=no", "--compress-pos=no"];
        let text = subject.profile(program, directory, operations, &["--clients", "1"], &options)?;
        Ok(counts(&text, program))
    };
    let addresses = often(&run(FEW)?, &run(MANY)?, MANY - FEW);
    let mut sources = Sources { tree, files: BTreeMap::new() };
    let mut passed = Passed::new();
    for (file, line) in places(program, &addresses)? {
        if let Some((file, function)) = sources.function_at(&file, line) {
            passed.entry(file).or_default().insert(function);
        }
    }
    Ok(passed)
}

/// How often each instruction of the program ran, by its address, of a profile without compressed
/// names. A line after `calls=` has what the called function cost.
fn counts(profile: &str, program: &Path) -> BTreeMap<u64, u64> {
    let (mut is_ours, mut is_call, mut counts) = (false, false, BTreeMap::new());
    for line in profile.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_ours = Path::new(object) == program;
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if let Some(rest) = line.strip_prefix("0x") {
            let mut words = rest.split(' ');
            let address = words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
            let count = words.nth(1).and_then(|word| word.parse::<u64>().ok());
            if let Some((address, count)) = address.zip(count).filter(|_| is_ours && !is_call) {
                *counts.entry(address).or_default() += count;
            }
            is_call = false;
        }
    }
    counts
}

/// Addresses that the longer run has at least once more for every second operation more.
fn often(few: &BTreeMap<u64, u64>, many: &BTreeMap<u64, u64>, operations: u64) -> Vec<u64> {
    let more = |(address, count): (&u64, &u64)| {
        let more = count.saturating_sub(few.get(address).copied().unwrap_or_default());
        (2 * more >= operations).then_some(*address)
    };
    many.iter().filter_map(more).collect()
}

/// Files and lines of the addresses, each with those that it was inlined into.
fn places(program: &Path, addresses: &[u64]) -> Result<BTreeSet<(String, usize)>, String> {
    let failed = |error: std::io::Error| format!("cannot run addr2line (Debian: binutils): {error}");
    let mut command = Command::new("addr2line");
    command.arg("--inlines").arg("--exe").arg(program).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let text: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let stdin = child.stdin.take();
    let writer = std::thread::spawn(move || stdin.map_or(Ok(()), |mut stdin| stdin.write_all(text.as_bytes())));
    let output = child.wait_with_output().map_err(failed)?;
    writer.join().map_err(|_| "the writer of addresses ended")?.map_err(failed)?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(place).collect())
}

/// `FILE:LINE`, and perhaps ` (discriminator N)`.
fn place(line: &str) -> Option<(String, usize)> {
    let (file, line) = line.split(' ').next()?.rsplit_once(':')?;
    Some((file.to_owned(), line.parse().ok()?))
}

/// Lines of files of ours that were asked for.
struct Sources<'a> {
    tree: &'a Path,
    files: BTreeMap<String, Vec<String>>,
}

impl Sources<'_> {
    /// The file below `crates/`, and the function that has this line, if it is ours and not above
    /// the runtime.
    fn function_at(&mut self, file: &str, line: usize) -> Option<(String, String)> {
        let file = Path::new(file).strip_prefix(self.tree).unwrap_or(Path::new(file));
        let file = file.strip_prefix("./").unwrap_or(file).to_str()?.strip_prefix("crates/")?;
        let (name, rest) = file.split_once('/')?;
        if !rest.starts_with("src/") || ABOVE.contains(&name) {
            return None;
        }
        let lines = self.files.entry(file.to_owned()).or_insert_with(|| {
            let text = std::fs::read_to_string(self.tree.join("crates").join(file)).unwrap_or_default();
            text.lines().map(str::to_owned).collect()
        });
        function_of(lines, line).map(|function| (file.to_owned(), function))
    }
}

/// The name and the line of the function around this line, in a file as rustfmt leaves it: the
/// first one above whose head is indented less. What begins with a bracket, or `where`, may be the
/// end of such a head. None of a constant, say.
fn function_of(lines: &[String], line: usize) -> Option<String> {
    let mut limit = usize::MAX;
    for (number, text) in lines.iter().enumerate().take(line).rev() {
        let words = text.trim_start();
        let indent = text.len() - words.len();
        if words.is_empty() || indent >= limit {
            continue;
        }
        if let Some(name) = function_in(words) {
            return Some(format!("{name}:{}", number + 1));
        }
        let goes_on = words.starts_with([')', ']', '}', '{']) || words.starts_with("where");
        limit = indent + usize::from(goes_on);
    }
    None
}

/// The name of the function that is declared in this line.
fn function_in(words: &str) -> Option<&str> {
    const BEFORE: &[&str] = &["pub", "const", "async", "unsafe", "extern", "default", "in"];
    let (before, rest) = match words.strip_prefix("fn ") {
        Some(rest) => ("", rest),
        None => words.split_once(" fn ")?,
    };
    let is_declared = before
        .split(' ')
        .all(|word| word.starts_with(['"', ')']) || BEFORE.iter().any(|known| word.starts_with(known)));
    let name = rest.split(|at: char| !at.is_alphanumeric() && at != '_').next()?;
    (before.is_empty() || is_declared).then_some(name)
}

/// A row of the table, and what it counts.
fn report(name: &str, passed: &Passed, lists: bool) -> String {
    let count = |of_engine: bool| {
        let is_counted =
            |file: &str| !(of_engine && SHARED.iter().any(|shared| file.split('/').next() == Some(shared)));
        let counted: Vec<_> = passed.iter().filter(|(file, _)| is_counted(file)).collect();
        format!("{} | {}", counted.len(), counted.iter().map(|(_, functions)| functions.len()).sum::<usize>())
    };
    let mut text = format!("| {name} | {} | {} |\n", count(true), count(false));
    for (file, functions) in passed.iter().filter(|_| lists) {
        let functions: Vec<&str> = functions.iter().map(String::as_str).collect();
        text.push_str(&format!("    {file}: {}\n", functions.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_counts_by_what_the_longer_run_has_more() {
        let profile = |count: u64| {
            format!(
                "positions: instr line\nob=/bin/x\nfn=f\n0x10 3 {count}\n0x14 3 5\ncalls=7 0x99 1\n0x18 4 9999\nob=/lib/y\n0x20 1 9999\nob=/bin/x\n0x18 4 {count}\n"
            )
        };
        let (few, many) = (counts(&profile(100), Path::new("/bin/x")), counts(&profile(150), Path::new("/bin/x")));
        assert_eq!(few, [(0x10, 100), (0x14, 5), (0x18, 100)].into());
        assert_eq!((often(&few, &many, 100), often(&few, &many, 101)), (vec![0x10, 0x18], vec![]));
    }

    #[test]
    fn a_line_lies_in_the_function_around_it() {
        let text = "impl A {\n    pub(crate) fn one(\n        &self,\n    ) -> u8 {\n        let f = |x| {\n            x\n        };\n    }\n\n    // Without fn of it.\n    const B: u8 = 1;\n}\n\nasync fn two() {\n    fn three() {\n        a();\n    }\n    b();\n}\n";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let name = |line| function_of(&lines, line);
        assert_eq!((name(6), name(8), name(2)), (Some("one:2".into()), Some("one:2".into()), Some("one:2".into())));
        assert_eq!((name(16), name(18), name(11)), (Some("three:15".into()), Some("two:14".into()), None));
    }

    #[test]
    fn places_are_read_as_addr2line_writes_them() {
        assert_eq!(place("/a/crates/b/src/c.rs:12 (discriminator 4)"), Some(("/a/crates/b/src/c.rs".into(), 12)));
        assert_eq!(place("??:?"), None);
    }
}
