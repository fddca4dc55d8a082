//! `cargo xtask instructions`: instructions of an operation, counted by callgrind, of this tree and
//! of another one in turn. Each subject runs twice, the second time with more operations: what
//! starting and ending take falls out of the difference.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::{cargo, succeed};
use crate::counts::valgrind::{Totals, callgrind, quiet};
use crate::serving::{Serving, with_directory};

const USAGE: &str = "usage: cargo xtask instructions [--beside DIR] [--rounds 3] [--only WORD]\n\n\
    Counts instructions of an operation with callgrind (Debian: valgrind), through the kernel's\n\
    blocking I/O, on one shard. --beside: another checkout, in turn, and the ratio to it. --only: subjects\n\
    whose name has this word.";

/// Operations of the shorter and the longer run.
const FEW: u64 = 4_000;
const MANY: u64 = 20_000;
const RECORDS: &str = "20K";

/// What is measured: a workload of YCSB in this process, or memcache commands to a server.
const SUBJECTS: &[Subject] = &[
    Subject { name: "slab in_place A", engine: &["slab", "--placement", "in_place"], workload: "a" },
    Subject { name: "slab in_place C", engine: &["slab", "--placement", "in_place"], workload: "c" },
    Subject { name: "slab packed A", engine: &["slab", "--placement", "packed"], workload: "a" },
    Subject { name: "slab packed C", engine: &["slab", "--placement", "packed"], workload: "c" },
    Subject { name: "hash A", engine: &["hash"], workload: "a" },
    Subject { name: "hash C", engine: &["hash"], workload: "c" },
    Subject { name: "matrix A", engine: &["matrix"], workload: "a" },
    Subject { name: "matrix C", engine: &["matrix"], workload: "c" },
    Subject { name: "tier get", engine: &["tier"], workload: "c" },
    Subject { name: "tier set", engine: &["tier"], workload: "fill" },
];

/// Operations on a store.
pub struct Subject {
    /// What they are called.
    pub name: &'static str,
    /// The value of `--engine`, and options of it.
    pub engine: &'static [&'static str],
    /// The value of `--workload`.
    pub workload: &'static str,
}

/// A run of so many operations, and further options of the load and of callgrind.
struct Run<'a> {
    program: &'a Path,
    data: PathBuf,
    counted: PathBuf,
    operations: u64,
    load: &'a [&'a str],
    callgrind: &'a [&'a str],
}

struct Request {
    beside: Option<PathBuf>,
    rounds: usize,
    only: String,
}

/// Runs the command.
///
/// # Errors
/// Valgrind is not installed, or a program cannot be built or run.
pub fn run(root: &Path, rest: &[String]) -> Result<(), String> {
    let request = parse(rest)?;
    let mut trees = vec![root.to_path_buf()];
    trees.extend(request.beside.clone());
    let programs = trees.iter().map(|tree| build(tree)).collect::<Result<Vec<_>, _>>()?;
    let text = with_directory("instructions", |directory| measure(&request, &programs, directory))?;
    println!("{text}");
    Ok(())
}

/// The table: each subject by each program in turn.
fn measure(request: &Request, programs: &[PathBuf], directory: &Path) -> Result<String, String> {
    let mut text =
        String::from("| instructions of an operation | here | beside | here / beside |\n|---|--:|--:|--:|\n");
    for subject in SUBJECTS.iter().filter(|subject| subject.name.contains(&request.only)) {
        let mut counts = vec![Vec::new(); programs.len()];
        for _ in 0..request.rounds {
            for (program, counts) in programs.iter().zip(&mut counts) {
                counts.push(subject.count(program, directory)?);
            }
        }
        let medians: Vec<u64> = counts.into_iter().map(median).collect();
        let row = row(subject.name, &medians);
        eprint!("{row}");
        text.push_str(&row);
    }
    Ok(text)
}

fn parse(rest: &[String]) -> Result<Request, String> {
    let mut request = Request { beside: None, rounds: 3, only: String::new() };
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("`{word}` needs a value\n\n{USAGE}"));
        match word.as_str() {
            "--beside" => request.beside = Some(PathBuf::from(value()?)),
            "--rounds" => request.rounds = value()?.parse().map_err(|_| USAGE.to_owned())?,
            "--only" => request.only.clone_from(value()?),
            _ => return Err(format!("`{word}` is not understood\n\n{USAGE}")),
        }
    }
    if request.rounds == 0 { Err(USAGE.into()) } else { Ok(request) }
}

/// The released program, but for what reads the auxiliary vector: under valgrind it is libc's.
fn build(tree: &Path) -> Result<PathBuf, String> {
    let target = tree.join("target/callgrind");
    let mut command = cargo(tree);
    command.args(["build", "--release", "--package", "stratakv-cli", "--features", "rustix/use-libc-auxv"]);
    succeed("build", command.arg("--target-dir").arg(&target))?;
    Ok(target.join("release/stratakv"))
}

fn median(mut counts: Vec<u64>) -> u64 {
    counts.sort_unstable();
    counts.get(counts.len() / 2).copied().unwrap_or_default()
}

fn row(name: &str, medians: &[u64]) -> String {
    let mut row = format!("| {name} |");
    for median in medians {
        _ = write!(row, " {median} |");
    }
    match medians {
        [here, beside] => row + &format!(" {:.3} |\n", *here as f64 / *beside as f64),
        _ => row + " | |\n",
    }
}

impl Subject {
    /// Instructions of one operation.
    fn count(&self, program: &Path, directory: &Path) -> Result<u64, String> {
        let few = self.total(program, directory, FEW)?;
        let many = self.total(program, directory, MANY)?;
        Ok(many.saturating_sub(few) / (MANY - FEW))
    }

    /// Instructions of a run of so many operations on a new store.
    fn total(&self, program: &Path, directory: &Path, operations: u64) -> Result<u64, String> {
        let text = self.profile(program, directory, operations, &[], &[])?;
        Ok(Totals::read(&text)?.instructions)
    }

    /// What callgrind tells of a run of so many operations on a new store.
    ///
    /// # Errors
    /// The program cannot be run, or fails.
    pub fn profile(
        &self,
        program: &Path,
        directory: &Path,
        operations: u64,
        load: &[&str],
        callgrind: &[&str],
    ) -> Result<String, String> {
        let (data, counted) = (directory.join("data"), directory.join("counted"));
        let run = Run { program, data, counted, operations, load, callgrind };
        let outcome = if self.engine == ["tier"] { serve(self, &run) } else { embed(self, &run) };
        let removed = std::fs::remove_dir_all(&run.data);
        outcome.and(removed.map_err(|error| format!("cannot remove {}: {error}", run.data.display())))?;
        std::fs::read_to_string(&run.counted).map_err(|error| format!("no count: {error}"))
    }
}

/// Loads a store, then works on it under callgrind.
fn embed(subject: &Subject, run: &Run<'_>) -> Result<(), String> {
    let mut load = Command::new(run.program);
    bench(&mut load, subject).arg("--data").arg(&run.data).args(["--keep", "--operations", "1"]);
    quiet(&mut load)?;
    let mut work = callgrind(run.program, &run.counted, run.callgrind);
    bench(&mut work, subject).arg("--data").arg(&run.data).args(["--keep", "--no-load"]);
    quiet(work.args(["--operations", &run.operations.to_string()]).args(run.load))
}

fn bench<'a>(command: &'a mut Command, subject: &Subject) -> &'a mut Command {
    command.args(["bench", "ycsb", "--workload", subject.workload, "--records", RECORDS, "--memory", "64M"]);
    command.args(["--seconds", "3600", "--warm-up", "0", "--shards", "1", "--io", "blocking"]);
    command.args(["--durability", "process_crash", "--engine"]).args(subject.engine)
}

/// A server under callgrind; the clients run beside it.
fn serve(subject: &Subject, run: &Run<'_>) -> Result<(), String> {
    let mut command = callgrind(run.program, &run.counted, run.callgrind);
    command.args(["serve", "--memcache", "127.0.0.1:0", "--threads", "1", "--shards", "1"]);
    command.args(["--io", "blocking", "--memory", "64M", "--data"]).arg(&run.data).arg("--engine").args(subject.engine);
    let server = Serving::spawn(command)?;
    let mut load = Command::new(run.program);
    load.args(["bench", "ycsb", "--workload", subject.workload, "--records", RECORDS, "--seconds", "3600"]);
    load.args(["--warm-up", "0", "--target", &format!("memcache://{}", server.memcache)]);
    quiet(load.args(["--operations", &run.operations.to_string()]).args(run.load))?;
    server.end()
}
