//! StrataKV's chores: `cargo xtask help` lists them.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

mod alerts;
mod bindings;
mod book;
mod browser;
mod cargo;
mod compare;
mod counts;
mod explore;
mod failing;
mod fixtures;
mod fuzz;
mod gate;
mod instructions;
mod interleave;
mod lab;
mod language;
mod mixed;
mod mutate;
mod package;
mod paths;
mod python;
mod release;
mod report_page;
mod requirement;
mod sanitize;
mod semver;
mod serving;
mod shape;
mod sim;
mod status_page;
mod steps;
mod streams;
mod tidy;
mod tool;
mod toolchain;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  ci                    the gate: everything a change must pass; no fresh seed in it, the time of each step at its end
  quick                 the gate's steps that run none of the product, in two minutes: formatting, tidy, clippy, documentation
  explore [--minutes N] fresh seeds over every world of the simulator before a change is handed in; what fails is cut down and written down
  nightly               what takes hours: fresh seeds, long forms of the gate's steps, fuzzing, sanitizers, the lab
  failing LIST          shows that tests fail without what they are for: at the commit before it, or with it undone
  tidy                  the house rules only: layers, file length, forbidden calls, unsafe, names (a second or two)
  dropped               each result that is dropped on a path to a medium, with its reason
  alerts                the alerts of contrib/ and their tests, by promtool
  attacks [OPTIONS]     a thousand hostile clients on a server of each engine, and honest ones beside them: memory and delay; --short; --help says more
  bindings [java|ycsb]  the Java library's tests on a debug build, and YCSB's own Java driver against `stratakv serve` (JDK 17, Maven)
  book                  docs/ as a book of HTML pages in target/book, by mdBook; a warning fails it
  compare [OPTIONS]     RocksDB, WiredTiger, fjall, redb and LMDB beside ours, in turn; --short; --today: RocksDB 11; --help and docs/compare.md say more
  compare --ukv [OPTIONS]  the cache beside memcached, its extstore and Redis, in turn; --short; --help says more
  compare --redis [OPTIONS]  commands of Redis clients on our server and on Redis, in turn; --durable; --short; --help says more
  compare --veth [OPTIONS]  ours on AF_XDP and on io_uring, memcached and Redis over veth, in turn; --short; --help says more; root
  crash [OPTIONS]       kill -9 and other faults on a process that has a store, and what comes back; --help says more
  differ [OPTIONS]      the same commands to our server and to memcached 1.6.18, every answer compared: fresh seeds; --help says more
  fixtures --make NAME  stores that the program of a commit writes, for the test that opens stores of older programs; --commit REV; --help says more
  fuzz [PARSER ...]     fuzz the parsers of bytes from disk or wire; --seconds S each, docs/fuzzing.md says more
  interleave [OPTIONS]  what threads of engine hash share without locks, in every interleaving (loom); --preemptions N
  sanitize [address|thread]  the tests of the crates with `unsafe` and their users under a sanitizer; --short: those with it only
  semver [--since REV]  changes of the library's interface since the last version that break users, by cargo-semver-checks
  sim [OPTIONS]         scenarios from seeds over the engines on a disk that fails on command; --fault-points; --flips 1; --help says more
  lab [OPTIONS]         power cuts and I/O errors under a real kernel on an emulated NVMe, in QEMU; --short; --pmem; --bypass; --passthrough; --counts; docs/lab.md says more
  language [OPTIONS]    how plain the words of pages and code are, in numbers; --of DIR: of another checkout
  instructions [OPTIONS] instructions of an operation of each engine, counted by callgrind; --beside DIR: of another checkout too
  bench-gate [OPTIONS]  instructions, system calls, allocations and copied bytes of an operation of 20 paths, against xtask/counts.toml; --accept REASON takes a change over; --help says more
  paths [OPTIONS]       files and functions that a put and a get of each engine pass; --list names them; --of DIR: of another checkout
  python [OPTIONS]      the Python library: builds its wheel, installs it into a new virtual environment, runs its tests there; --release; -- ARGUMENTS OF PYTEST
  shape [OPTIONS]       lines of code, large structs, long functions; --of DIR: of another checkout
  man DIR               the manual pages of the program and its subcommands
  mixed [OPTIONS]       all that engine hash does, by many threads at once on a small region, every answer checked; --minutes N, --seed N
  mutate [OPTIONS]      draws mutations that nobody planned, and tells which share of each crate's the tests and the simulator catch; --minutes M; --of COMMIT first: of that commit
  status-page [OPTIONS] the server's status page in Chromium while clients load it; --screenshot FILE
  soak [OPTIONS]        a store kept at a fill for minutes, every read compared: what should be flat, a line a minute; --help says more
  streams [OPTIONS]     the state stores for Kafka Streams: their tests, three brokers, kill -9; --short; --kills N; --bench: beside RocksDB's; --broker: for trials (JDK 17, Maven)
  suites [OPTIONS]      the own test suites of memcache clients against each engine, memcached as the control; --write FILE; --help says more
  walks [OPTIONS]       scans past 200,000 deleted keys, queues and dropped collections on the ordered engines: times; --short; --help says more
  proxies [OPTIONS]     three caches behind a real proxy that are killed, frozen and cut off, with every answer judged; --short; --minutes N; --help says more
  programs              rq, celery, django-redis, redis-py and redis-cli against our server, where they are installed
  release --out DIR     tarball, package, bill of materials and checksums of this commit; --twice compares two of them; --help says more
  report-page [OPTIONS] a report of short runs in Chromium: light, dark, on paper, and at the width of a phone; --screenshot FILE
  redis-suite [OPTIONS] Redis's own tests, in Tcl, against each engine, Redis as the control; --help says more
  redis-py-suite [OPTIONS] redis-py's own tests against each engine, Redis as the control; --help says more
  package [OPTIONS]     the package of Debian (cargo-deb); --test: installed, upgraded and purged in a clean root under systemd, root; --image-root DIR; --help says more
  realdata [OPTIONS]    load every package known to `apt-cache dumpavail` and compare byte for byte; --help says more
";

/// Arguments of cargo for programs that people run on Redis.
const PROGRAMS: [&str; 7] = ["test", "--package", "stratakv-server", "--test", "resp", "--", "programs::"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    let outcome = match command {
        "ci" => gate::gate(&repository()),
        "quick" => gate::quick(&repository()),
        "nightly" => gate::night(&repository()),
        "explore" => explore::run(&repository(), rest),
        "failing" => failing::run(&repository(), rest),
        "fixtures" => fixtures::run(&repository(), rest),
        "bindings" => bindings::run(&repository(), rest),
        "streams" => streams::run(&repository(), rest),
        "python" => python::run(&repository(), rest),
        "programs" => cargo::succeed("programs", cargo::cargo(&repository()).args(PROGRAMS)),
        "alerts" => alerts::run(&repository(), rest),
        "book" => book::run(&repository(), rest),
        "package" => package::run(&repository(), rest),
        "release" => release::run(&repository(), rest),
        "man" => package::man(&repository(), rest),
        "tidy" => run_tidy(&repository()),
        "dropped" => list_dropped(&repository()),
        "fuzz" => fuzz::run(&repository(), rest),
        "interleave" => interleave::run(&repository(), rest),
        "semver" => semver::run(&repository(), rest),
        "sanitize" => sanitize::run(&repository(), rest),
        "sim" => sim::run(&repository(), rest),
        "compare" if rest.iter().any(|word| word == "--ukv") => cargo::harness(&repository(), "ukv", rest),
        "compare" if rest.iter().any(|word| word == "--redis") => cargo::harness(&repository(), "beside-redis", rest),
        "compare" if rest.iter().any(|word| word == "--veth") => cargo::harness(&repository(), "veth", rest),
        "compare" => compare::run(&repository(), rest),
        "bench-gate" => counts::run(&repository(), rest),
        "instructions" => instructions::run(&repository(), rest),
        "paths" => paths::run(&repository(), rest),
        "shape" => shape::run(&repository(), rest),
        "language" => language::run(&repository(), rest),
        "lab" => lab::run(&repository(), rest),
        "report-page" => report_page::run(&repository(), rest),
        "status-page" => status_page::run(&repository(), rest),
        "mutate" => mutate::run(&repository(), rest),
        "mixed" => mixed::run(&repository(), rest),
        "attacks" | "crash" | "differ" | "proxies" | "realdata" | "redis-py-suite" | "redis-suite" | "soak"
        | "suites" | "walks" => cargo::harness(&repository(), command, rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        other => {
            eprintln!("xtask: unknown command `{other}`\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask {command}: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root: the folder above this crate.
fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

fn list_dropped(root: &Path) -> Result<(), String> {
    let tree = tidy::Tree::read(root).map_err(|error| format!("cannot read the repository: {error}"))?;
    let all = tidy::dropped::list(&tree);
    all.iter().for_each(|dropped| println!("{dropped}"));
    println!("{} results are dropped on paths to a medium", all.len());
    Ok(())
}

fn run_tidy(root: &Path) -> Result<(), String> {
    let tree = tidy::Tree::read(root).map_err(|error| format!("cannot read the repository: {error}"))?;
    let findings = tidy::check(&tree);
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("tidy: {} files, nothing to report", tree.files.len());
            Ok(())
        }
        count => Err(format!("{count} findings")),
    }
}
