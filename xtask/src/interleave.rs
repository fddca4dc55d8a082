//! `cargo xtask interleave`: the parts of engine `hash` that threads share without locks, under
//! loom. It replaces their atomics, so they are built apart.

use std::path::Path;
use std::process::Command;

use crate::cargo::{cargo, succeed};
use crate::toolchain::target_directory;

const USAGE: &str = "\
usage: cargo xtask interleave [--preemptions N]

  --preemptions N  all interleavings in which threads are preempted at most N times, instead of 3: each one more takes about ten times as long";

/// Runs the command.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    succeed("interleavings", &mut tests(root, preemptions(arguments)?))
}

fn preemptions(arguments: &[String]) -> Result<Option<u32>, String> {
    match arguments {
        [] => Ok(None),
        [option, number] if option == "--preemptions" => {
            let number = number.parse().map_err(|_| format!("`{number}` is no number of preemptions\n\n{USAGE}"))?;
            Ok(Some(number))
        }
        _ => Err(format!("cannot do this\n\n{USAGE}")),
    }
}

fn tests(root: &Path, preemptions: Option<u32>) -> Command {
    let mut tests = cargo(root);
    tests.args([
        "test",
        "--release",
        "--package",
        "stratakv-hash",
        "--lib",
        "--features",
        "fault_points",
        "--target-dir",
    ]);
    tests.arg(target_directory(root).join("loom")).env("CARGO_ENCODED_RUSTFLAGS", "--cfg\x1floom");
    tests.args(["--", "interleavings"]);
    // What is set outside would say another number than the one that was asked for.
    tests.env_remove("LOOM_MAX_PREEMPTIONS");
    preemptions.map(|number| tests.env("LOOM_MAX_PREEMPTIONS", number.to_string()));
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_preemptions_is_read_or_refused() {
        let asked = |words: &[&str]| preemptions(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(asked(&[]), Ok(None));
        assert_eq!(asked(&["--preemptions", "5"]), Ok(Some(5)));
        assert!(asked(&["--preemptions", "many"]).is_err() && asked(&["--long"]).is_err());
    }
}
