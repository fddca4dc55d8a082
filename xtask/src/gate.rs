//! What a change must pass (`cargo xtask ci`), and what is looked at every night beside it
//! (`cargo xtask nightly`).
//!
//! The gate is deterministic: it draws no fresh seed. Fresh ones are for `cargo xtask explore`,
//! before a change is handed in, and for the night.

use std::path::Path;
use std::time::Duration;

use crate::steps::{Step, run};

/// The gate's first step.
const TESTS: &[Step] = &[Step::cargo("tests", &["test", "--workspace"])];

/// The gate's steps that run none of the product: two minutes, worth it after every last edit.
const QUICK: &[Step] = &[
    Step::cargo("formatting", &["fmt", "--all", "--check"]),
    Step::xtask("house rules", &["tidy"]),
    Step::cargo("clippy", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    // A workspace of its own; a check links nothing, so it needs none of the stores it compares
    // with.
    Step::cargo("compare compiles", &["check", "--quiet", "--manifest-path", "compare/Cargo.toml"]),
    // Another one. Where `compare` was checked, most of it has been checked already.
    Step::cargo(
        "Python compiles",
        &[
            "clippy",
            "--quiet",
            "--locked",
            "--manifest-path=python/Cargo.toml",
            "--target-dir=compare/target",
            "--",
            "-D",
            "warnings",
        ],
    ),
    Step::cargo("documentation", &["doc", "--workspace", "--no-deps", "--quiet"]),
    Step::xtask("the book of docs/", &["book"]),
];

/// The gate's other steps, in order.
const HARNESSES: &[Step] = &[
    Step::xtask(
        "simulator: planted defects are caught",
        &["sim", "--fault-points", "--known", "crates/integration/seeds/fault_points.txt"],
    ),
    Step::xtask(
        "simulator: reviewed seeds",
        &["sim", "--profile", "dev", "--listed", "crates/integration/seeds/gate.txt"],
    ),
    Step::xtask("simulator: one bit in 61 turned", &["sim", "--profile", "dev", "--flips", "61"]),
    Step::xtask("interleavings", &["interleave"]),
    Step::xtask("kill -9", &["crash", "--rounds", "10"]),
    Step::xtask("kill -9 and restarts, engine tier", &["crash", "--engine", "tier", "--rounds", "10"]),
    Step::xtask("Java, and YCSB's own driver", &["bindings"]),
    // As root, with mmdebstrap, systemd-container and crun. The program is that of the tests: its
    // speed is not looked at, and nothing is built twice.
    Step::xtask("the package and the image in clean roots", &["package", "--profile", "dev", "--test", "--run-image"]),
    Step::xtask("the wheel in a new environment", &["python"]),
    Step::xtask("address sanitizer", &["sanitize", "address", "--short"]),
    Step::xtask("counts of an operation", &["bench-gate"]),
];

/// The night, in order: long forms of the gate's steps, fresh seeds, and what needs much building
/// or an emulator.
const NIGHT: &[Step] = &[
    Step::xtask("fresh seeds", &["explore", "--minutes", "60"]),
    Step::xtask("simulator: planted defects from seed 0", &["sim", "--fault-points", "--cpu-seconds", "120"]),
    Step::xtask("simulator: one bit in 7 turned", &["sim", "--flips", "7"]),
    Step::xtask("simulator: one bit in 7 turned, matrix", &["sim", "--engine", "matrix", "--flips", "7"]),
    Step::xtask("kill -9", &["crash", "--rounds", "200"]),
    Step::xtask("kill -9 and restarts, engine tier", &["crash", "--engine", "tier", "--rounds", "200"]),
    Step::xtask("kill -9, engine matrix", &["crash", "--engine", "matrix", "--rounds", "100"]),
    Step::xtask("kill -9, engine hash", &["crash", "--engine", "hash", "--rounds", "100"]),
    Step::xtask("faults on real processes", &["crash", "--scenario", "all"]),
    Step::xtask("attacks", &["attacks", "--short"]),
    Step::xtask("walks", &["walks", "--short"]),
    Step::xtask("caches behind a proxy", &["proxies", "--minutes", "10"]),
    Step::xtask("engine hash by many threads", &["mixed", "--minutes", "10"]),
    Step::xtask("interleavings, five preemptions", &["interleave", "--preemptions", "5"]),
    Step::cargo("mutations: operators and counts", &["test", "--quiet", "--manifest-path", "mutate/Cargo.toml"]),
    Step::xtask("mutations that nobody planned", &["mutate", "--minutes", "120"]),
    Step::xtask("answers beside memcached's", &["differ", "--seconds", "600", "--seeds", "1000..1000000"]),
    Step::xtask("test suites of memcache clients", &["suites"]),
    Step::xtask("Redis's own tests", &["redis-suite", "--servers", "slab,packed,hash,matrix,tier"]),
    Step::xtask("redis-py's own tests", &["redis-py-suite", "--servers", "packed"]),
    Step::xtask("the wheel, as it is released", &["python", "--release"]),
    Step::xtask("stores for Kafka Streams", &["streams"]),
    Step::xtask("fuzzing", &["fuzz", "--seconds", "60"]),
    Step::xtask("address sanitizer", &["sanitize", "address"]),
    Step::xtask("thread sanitizer", &["sanitize", "thread"]),
    // It links RocksDB of the system (Debian: librocksdb-dev).
    Step::cargo(
        "records of RocksDB and LMDB",
        &["test", "--quiet", "--manifest-path", "compare/Cargo.toml", "--bin", "export"],
    ),
    // Where cargo-semver-checks is installed.
    Step::xtask("changes of the library's interface", &["semver"]),
    Step::xtask("status page in a browser", &["status-page"]),
    Step::xtask("a report in a browser", &["report-page"]),
    Step::xtask("alerts of contrib/", &["alerts"]),
    Step::xtask("package and image, as they are released", &["package", "--test", "--run-image"]),
    Step::xtask("lab", &["lab", "--short"]),
    Step::xtask("lab: persistent memory", &["lab", "--pmem"]),
    Step::xtask("lab: controllers driven from user space", &["lab", "--bypass"]),
    Step::xtask("lab: NVMe commands by io_uring", &["lab", "--passthrough"]),
    Step::xtask("lab: raw devices", &["lab", "--raw"]),
    Step::xtask("real data", &["realdata"]),
];

/// Runs the gate: what a change must pass.
///
/// # Errors
/// The step that failed, and how to run it again.
pub fn gate(root: &Path) -> Result<(), String> {
    run(root, &[TESTS, QUICK, HARNESSES].concat(), Duration::from_secs(85 * 60))
}

/// Runs the gate's steps that run none of the product.
///
/// # Errors
/// The step that failed, and how to run it again.
pub fn quick(root: &Path) -> Result<(), String> {
    run(root, QUICK, Duration::from_secs(20 * 60))
}

/// Runs the night.
///
/// # Errors
/// The step that failed, and how to run it again.
pub fn night(root: &Path) -> Result<(), String> {
    run(root, NIGHT, Duration::from_secs(10 * 3600))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::Program;

    /// A gate that looks at the clock for seeds refuses work for defects that were there before.
    #[test]
    fn the_gate_draws_no_fresh_seed_and_its_files_are_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for step in [TESTS, QUICK, HARNESSES].concat() {
            let forbidden = ["--minutes", "--cpu-seconds", "explore", "fuzz", "realdata"];
            let found = step.arguments.iter().find(|word| forbidden.contains(word));
            assert!(found.is_none(), "{}: {found:?} depends on the clock", step.name);
            let files = step.arguments.iter().filter(|word| word.ends_with(".txt"));
            files.for_each(|file| assert!(root.join(file).is_file(), "{}: there is no {file}", step.name));
        }
    }

    /// What people install is built, installed and used before a change is accepted.
    #[test]
    fn packages_are_in_the_gate_and_by_night_as_they_are_released() {
        let has = |steps: &[Step], wanted: &[&str]| {
            let mut arguments = steps.iter().map(|step| step.arguments);
            arguments.any(|arguments| wanted.iter().all(|word| arguments.contains(word)))
        };
        assert!(has(HARNESSES, &["package", "--test", "--run-image"]) && has(HARNESSES, &["python"]));
        assert!(has(NIGHT, &["python", "--release"]));
        let released = |step: &Step| step.arguments.contains(&"package") && !step.arguments.contains(&"--profile");
        assert!(NIGHT.iter().any(released), "by night the package is made of another profile");
    }

    #[test]
    fn what_left_the_gate_is_looked_at_by_night() {
        let subcommands = |steps: &[Step]| {
            let own = steps.iter().filter(|step| step.program == Program::Xtask);
            own.filter_map(|step| step.arguments.first().copied()).collect::<Vec<_>>()
        };
        let night = subcommands(NIGHT);
        for subcommand in [
            "sim",
            "explore",
            "crash",
            "fuzz",
            "sanitize",
            "interleave",
            "lab",
            "status-page",
            "report-page",
            "alerts",
            "package",
            "mixed",
            "attacks",
            "walks",
            "proxies",
            "mutate",
            "suites",
            "redis-suite",
            "redis-py-suite",
            "python",
            "streams",
            "semver",
        ] {
            assert!(night.contains(&subcommand), "nobody runs `{subcommand}`");
        }
    }
}
