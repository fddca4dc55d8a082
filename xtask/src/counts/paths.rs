//! The paths whose operations are counted, and why each is.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::client::{Client, Wish};
use super::figures::{Count, Figures, Leeway};
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
    /// What depends on time here, and is judged less strictly.
    wider: &'static [(Count, f64)],
    subject: Subject,
}

impl CountedPath {
    /// Less strict in some counts. Whoever says so says why, beside the path.
    const fn wider(self, wider: &'static [(Count, f64)]) -> CountedPath {
        CountedPath { wider, ..self }
    }

    /// How strictly its figures are judged, where so many times as much is let pass.
    pub fn leeway(&self, times: f64) -> Leeway {
        Leeway { wider: self.wider, times }
    }
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
    /// Records are there when the server starts, and are not counted: else a client writes them
    /// first.
    is_loaded_before: bool,
}

const fn library(name: &'static str, program: &'static str, runs: [u64; 2], why: &'static str) -> CountedPath {
    CountedPath { name, why, runs, wider: &[], subject: Subject::Library(program) }
}

const fn server(name: &'static str, service: Service, why: &'static str) -> CountedPath {
    CountedPath { name, why, runs: SINGLE, wider: &[], subject: Subject::Server(service) }
}

const SINGLE: [u64; 2] = [300, 1_300];
const SEVERAL: [u64; 2] = [40, 240];

const SLAB: &[&str] =
    &["--engine", "slab", "--placement", "packed", "--durability", "process_crash", "--memory", "64M"];
const TIER: &[&str] = &["--engine", "tier", "--memory", "64M"];
/// A few MiB of values in memory, the rest on the SSD.
const TIER_ON_SSD: &[&str] = &["--engine", "tier", "--memory", "16M", "--capacity", "256M"];

/// All of them, the slowest to count first.
pub const PATHS: &[CountedPath] = &[
    server(
        "tier get from SSD",
        Service { options: TIER_ON_SSD, records: 6_000, value_bytes: 4_096, wish: Wish::Get, is_loaded_before: true },
        "what a cache larger than memory is for",
    )
    // A read goes to a thread of its own: how often the two find each other asleep is up to time.
    .wider(&[(Count::SystemCalls, 0.35)]),
    library(
        "slab in_place get from disk, 16 in flight",
        "in_place-get-cold",
        SINGLE,
        "YCSB C where records do not fit",
    )
    // Few bytes are copied: tables of what is in flight grow at some time or other.
    .wider(&[(Count::CopiedBytes, 0.5)]),
    // The cleaner and checkpoints are paced by time.
    library("slab packed batch of 16", "packed-batch", SEVERAL, "transactions of applications").wider(&[
        (Count::Instructions, 0.08),
        (Count::SystemCalls, 0.35),
        (Count::CopiedBytes, 0.1),
    ]),
    library("slab packed scan of 50", "packed-scan", SEVERAL, "YCSB E"),
    library("slab in_place scan of 50", "in_place-scan", SEVERAL, "YCSB E"),
    library("matrix scan of 50", "matrix-scan", SEVERAL, "YCSB E"),
    // Engine `hash` is scrubbed meanwhile, ten times a second, and DHAT cannot tell threads apart.
    library("hash sorted scan of 50", "hash-scan", SEVERAL, "KVDK's sorted collections")
        .wider(&[(Count::CopiedBytes, 1.0)]),
    library("slab in_place get", "in_place-get", SINGLE, "YCSB B and C, cached"),
    library("slab in_place put", "in_place-put", SINGLE, "YCSB A, the placement of stores since the first release"),
    library("slab packed get", "packed-get", SINGLE, "YCSB B and C, cached"),
    // As above; and how many puts share a group is up to time.
    library("slab packed put, 16 in flight", "packed-put", SINGLE, "YCSB A: commit groups and the cleaner").wider(&[
        (Count::Instructions, 0.08),
        (Count::SystemCalls, 0.35),
        (Count::CopiedBytes, 0.06),
    ]),
    // As above, here and in the two that follow.
    library("hash get", "hash-get", SINGLE, "KVDK's strings").wider(&[(Count::CopiedBytes, 7.0)]),
    library("hash put", "hash-put", SINGLE, "KVDK's strings").wider(&[(Count::CopiedBytes, 1.0)]),
    library("hash list push", "hash-push", SINGLE, "queues").wider(&[(Count::CopiedBytes, 0.3)]),
    library("matrix get", "matrix-get", SINGLE, "reads of an LSM tree"),
    library("matrix put", "matrix-put", SINGLE, "MatrixKV's fill: the region's log, receiver and compactor"),
    server(
        "slab server get",
        Service { options: SLAB, records: 1_000, value_bytes: 1_024, wish: Wish::Get, is_loaded_before: false },
        "a durable store behind the memcache protocol",
    )
    // How often the server and the threads of its shard find each other asleep is up to time.
    .wider(&[(Count::SystemCalls, 0.3)]),
    server(
        "tier get",
        Service { options: TIER, records: 1_000, value_bytes: 1_024, wish: Wish::Get, is_loaded_before: false },
        "the most frequent command to a cache",
    ),
    server(
        "tier meta get",
        Service { options: TIER, records: 1_000, value_bytes: 1_024, wish: Wish::MetaGet, is_loaded_before: false },
        "the same by clients of today",
    ),
    server(
        "tier set",
        Service { options: TIER, records: 1_000, value_bytes: 1_024, wish: Wish::Set, is_loaded_before: false },
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
    /// Whether a server is asked.
    pub fn has_server(&self) -> bool {
        matches!(self.subject, Subject::Server(_))
    }

    /// Counts one operation, in a directory that is the caller's alone. All runs begin from copies
    /// of one store: where records came to lie depends on the time that loading took.
    ///
    /// # Errors
    /// A program cannot be run, or fails.
    pub fn count(&self, programs: &Programs, directory: &Path) -> Result<Figures, String> {
        let places = Places::below(directory);
        let counted = self.count_at(programs, &places).map_err(|error| format!("{}: {error}", self.name));
        let removed = [&places.loaded, &places.data, &places.counted].into_iter().try_for_each(|place| remove(place));
        counted.and_then(|counted| removed.map(|()| counted))
    }

    fn count_at(&self, programs: &Programs, places: &Places) -> Result<Figures, String> {
        match &self.subject {
            Subject::Library(name) => {
                quiet(Command::new(&programs.operations).arg(name).arg(&places.loaded).arg("load"))?;
            }
            Subject::Server(service) if service.is_loaded_before => {
                let command = Command::new(&programs.stratakv);
                service.run(command, &places.loaded, |client| client.load())?;
            }
            Subject::Server(_) => {}
        }
        let [few, many] = self.runs;
        let (few_counted, many_counted) = (self.total(programs, places, few)?, self.total(programs, places, many)?);
        Ok(Figures::between(&few_counted, &many_counted, many - few))
    }

    /// Both tools over a run of so many operations.
    fn total(&self, programs: &Programs, places: &Places, operations: u64) -> Result<Figures, String> {
        let totals = Totals::of_threads(&self.run(programs, places, operations, Tool::Callgrind)?)?;
        let copied = copied_bytes(&self.run(programs, places, operations, Tool::Dhat)?.concat())?;
        Ok(Figures::of(|count| match count {
            Count::Instructions => totals.instructions as f64,
            Count::SystemCalls => totals.system_calls as f64,
            Count::Allocations => totals.allocations as f64,
            Count::CopiedBytes => copied as f64,
        }))
    }

    /// What a tool wrote of a run on a copy of the store.
    fn run(&self, programs: &Programs, places: &Places, operations: u64, tool: Tool) -> Result<Vec<String>, String> {
        let Places { loaded, data, counted } = places;
        remove(data).and(remove(counted))?;
        fs::create_dir(counted).map_err(|error| format!("cannot make {}: {error}", counted.display()))?;
        let file = counted.join("count");
        if loaded.exists() {
            quiet(Command::new("cp").args(["--recursive", "--sparse=always"]).arg(loaded).arg(data))?;
        }
        let under = |program: &Path| match tool {
            Tool::Callgrind => callgrind(program, &file, &["--collect-systime=yes", "--separate-threads=yes"]),
            Tool::Dhat => copies(program, &file),
        };
        match &self.subject {
            Subject::Library(name) => {
                let mut command = under(&programs.operations);
                quiet(command.arg(name).arg(data).args(["run", &operations.to_string()]))?;
            }
            Subject::Server(service) => service.run(under(&programs.stratakv), data, |client| {
                if !service.is_loaded_before {
                    client.load()?;
                }
                (0..operations).try_for_each(|_| client.ask(service.wish))
            })?,
        }
        texts(counted).map_err(|error| format!("no count: {error}"))
    }
}

/// What lies where in a directory.
struct Places {
    /// The store as loading left it.
    loaded: PathBuf,
    /// The copy that a run works on.
    data: PathBuf,
    /// What a tool wrote: a file, or one for each thread.
    counted: PathBuf,
}

impl Places {
    fn below(directory: &Path) -> Places {
        let [loaded, data, counted] = ["loaded", "data", "counted"].map(|name| directory.join(name));
        Places { loaded, data, counted }
    }
}

/// The files of a directory.
fn texts(directory: &Path) -> io::Result<Vec<String>> {
    fs::read_dir(directory)?.map(|file| fs::read_to_string(file?.path())).collect()
}

/// Removes a directory that may be there.
fn remove(directory: &Path) -> Result<(), String> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", directory.display()))
        }
        _ => Ok(()),
    }
}

impl Service {
    /// Starts a server, has a client do something, and ends it. What it says is shown only if that
    /// fails.
    fn run(
        &self,
        mut command: Command,
        data: &Path,
        work: impl FnOnce(&mut Client) -> io::Result<()>,
    ) -> Result<(), String> {
        command.args(["serve", "--memcache", "127.0.0.1:0", "--threads", "1", "--shards", "1", "--io", "blocking"]);
        command.arg("--data").arg(data).args(self.options);
        let said = data.with_extension("said");
        command.stderr(File::create(&said).map_err(|error| format!("cannot make {}: {error}", said.display()))?);
        let outcome = Serving::spawn(command).and_then(|server| {
            let mut client = Client::connect(&server.memcache, self.records, self.value_bytes);
            let worked = client.as_mut().map_err(|error| error.to_string());
            worked.and_then(|client| work(client).map_err(|error| format!("the client failed: {error}")))?;
            server.end()
        });
        outcome.map_err(|error| format!("{error}\n{}", fs::read_to_string(&said).unwrap_or_default()))
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
