//! The paths whose operations are counted, and why each is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::client::{Client, Wish};
use super::figures::{Count, Figures};
use super::valgrind::{Totals, callgrind, copied_bytes, copies, quiet};
use crate::serving::Serving;

/// An operation that users run.
pub struct CountedPath {
    /// Its name in the file.
    pub name: &'static str,
    /// Who runs it.
    pub why: &'static str,
    /// Operations of the shorter run and of the longer one: the difference is without what
    /// starting, filling caches and ending take.
    runs: [u64; 2],
    subject: Subject,
}

enum Subject {
    /// By the library, in the process: a path of `operations`
    /// (`crates/bench/src/bin/operations.rs`).
    Library(&'static str),
    /// Memcache commands to a server.
    Server(Service),
}

/// A server, what it holds and what it is asked.
struct Service {
    options: &'static [&'static str],
    records: u64,
    value_bytes: usize,
    wish: Wish,
}

const fn library(name: &'static str, program: &'static str, runs: [u64; 2], why: &'static str) -> CountedPath {
    CountedPath { name, why, runs, subject: Subject::Library(program) }
}

const fn server(name: &'static str, service: Service, why: &'static str) -> CountedPath {
    CountedPath { name, why, runs: SINGLE, subject: Subject::Server(service) }
}

const SINGLE: [u64; 2] = [500, 2_500];
const SEVERAL: [u64; 2] = [50, 350];

const SLAB: &[&str] =
    &["--engine", "slab", "--placement", "packed", "--durability", "process_crash", "--memory", "64M"];
const TIER: &[&str] = &["--engine", "tier", "--memory", "64M"];
/// A few MiB of values in memory, the rest on the SSD.
const TIER_ON_SSD: &[&str] = &["--engine", "tier", "--memory", "16M", "--capacity", "256M"];

/// All of them, the slowest to count first.
pub const PATHS: &[CountedPath] = &[
    server(
        "tier get from SSD",
        Service { options: TIER_ON_SSD, records: 6_000, value_bytes: 4_096, wish: Wish::Get },
        "what a cache larger than memory is for",
    ),
    library(
        "slab in_place get from disk, 16 in flight",
        "in_place-get-cold",
        SINGLE,
        "YCSB C where records do not fit",
    ),
    library("slab packed batch of 16", "packed-batch", SEVERAL, "transactions of applications"),
    library("slab packed scan of 50", "packed-scan", SEVERAL, "YCSB E"),
    library("slab in_place scan of 50", "in_place-scan", SEVERAL, "YCSB E"),
    library("matrix scan of 50", "matrix-scan", SEVERAL, "YCSB E"),
    library("hash sorted scan of 50", "hash-scan", SEVERAL, "KVDK's sorted collections"),
    library("slab in_place get", "in_place-get", SINGLE, "YCSB B and C, cached"),
    library("slab in_place put", "in_place-put", SINGLE, "YCSB A, the placement of stores since the first release"),
    library("slab packed get", "packed-get", SINGLE, "YCSB B and C, cached"),
    library("slab packed put, 16 in flight", "packed-put", SINGLE, "YCSB A: commit groups and the cleaner"),
    library("hash get", "hash-get", SINGLE, "KVDK's strings"),
    library("hash put", "hash-put", SINGLE, "KVDK's strings"),
    library("hash list push", "hash-push", SINGLE, "queues"),
    library("matrix get", "matrix-get", SINGLE, "reads of an LSM tree"),
    library("matrix put", "matrix-put", SINGLE, "MatrixKV's fill: the region's log, receiver and compactor"),
    server(
        "slab server get",
        Service { options: SLAB, records: 1_000, value_bytes: 1_024, wish: Wish::Get },
        "a durable store behind the memcache protocol",
    ),
    server(
        "tier get",
        Service { options: TIER, records: 1_000, value_bytes: 1_024, wish: Wish::Get },
        "the most frequent command to a cache",
    ),
    server(
        "tier meta get",
        Service { options: TIER, records: 1_000, value_bytes: 1_024, wish: Wish::MetaGet },
        "the same by clients of today",
    ),
    server(
        "tier set",
        Service { options: TIER, records: 1_000, value_bytes: 1_024, wish: Wish::Set },
        "what fills a cache",
    ),
];

/// The programs of one tree.
pub struct Programs {
    pub stratakv: PathBuf,
    pub operations: PathBuf,
}

/// What counts a run.
#[derive(Clone, Copy)]
enum Tool {
    Callgrind,
    Dhat,
}

impl CountedPath {
    /// Counts one operation, in a directory that is the caller's alone.
    ///
    /// # Errors
    /// A program cannot be run, or fails.
    pub fn count(&self, programs: &Programs, directory: &Path) -> Result<Figures, String> {
        let [few, many] = self.runs;
        let (few_counted, many_counted) =
            (self.total(programs, directory, few)?, self.total(programs, directory, many)?);
        Ok(Figures::between(&few_counted, &many_counted, many - few))
    }

    /// Both tools over a run of so many operations.
    fn total(&self, programs: &Programs, directory: &Path, operations: u64) -> Result<Figures, String> {
        let totals = Totals::read(&self.run(programs, directory, operations, Tool::Callgrind)?)?;
        let copied = copied_bytes(&self.run(programs, directory, operations, Tool::Dhat)?)?;
        Ok(Figures::of(|count| match count {
            Count::Instructions => totals.instructions as f64,
            Count::SystemCalls => totals.system_calls as f64,
            Count::Allocations => totals.allocations as f64,
            Count::CopiedBytes => copied as f64,
        }))
    }

    /// What a tool wrote of a run on a new store.
    fn run(&self, programs: &Programs, directory: &Path, operations: u64, tool: Tool) -> Result<String, String> {
        let (data, counted) = (directory.join("data"), directory.join("counted"));
        let under = |program: &Path| match tool {
            Tool::Callgrind => callgrind(program, &counted, &["--collect-systime=yes"]),
            Tool::Dhat => copies(program, &counted),
        };
        let outcome = match &self.subject {
            Subject::Library(name) => quiet(Command::new(&programs.operations).arg(name).arg(&data).arg("load"))
                .and_then(|()| {
                    let mut command = under(&programs.operations);
                    quiet(command.arg(name).arg(&data).args(["run", &operations.to_string()]))
                }),
            Subject::Server(service) => service.run(under(&programs.stratakv), &data, operations),
        };
        let removed = fs::remove_dir_all(&data);
        outcome.map_err(|error| format!("{}: {error}", self.name))?;
        removed.map_err(|error| format!("cannot remove {}: {error}", data.display()))?;
        fs::read_to_string(&counted).map_err(|error| format!("{}: no count: {error}", self.name))
    }
}

impl Service {
    fn run(&self, mut command: Command, data: &Path, operations: u64) -> Result<(), String> {
        command.args(["serve", "--memcache", "127.0.0.1:0", "--threads", "1", "--shards", "1", "--io", "blocking"]);
        command.arg("--data").arg(data).args(self.options);
        let server = Serving::spawn(command)?;
        let worked = Client::connect(&server.memcache, self.records, self.value_bytes).and_then(|mut client| {
            client.load()?;
            (0..operations).try_for_each(|_| client.ask(self.wish))
        });
        worked.map_err(|error| format!("the client failed: {error}"))?;
        server.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_paths_have_names_of_their_own_and_reasons() {
        let mut names: Vec<_> = PATHS.iter().map(|path| path.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 20);
        for path in PATHS {
            assert!(!path.why.is_empty() && path.runs[0] < path.runs[1], "{}", path.name);
        }
    }
}
