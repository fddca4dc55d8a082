//! Runs cargo.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::toolchain::target_directory;

/// Runs one of the long harnesses of `stratakv-integration` (`attacks`, `crash`, `differ`,
/// `proxies`, `realdata`, `redis-py-suite`, `redis-suite`, `soak`, `suites`, `ukv`, `veth`,
/// `walks`) against an optimised server. `crash`, `differ`, `proxies` and the suites run against
/// the one that the tests built, with every assertion on: nobody looks at its speed, and nothing is
/// built twice.
pub fn harness(root: &Path, name: &str, arguments: &[String]) -> Result<(), String> {
    let profile = if matches!(name, "crash" | "differ" | "proxies" | "redis-py-suite" | "redis-suite" | "suites") {
        "dev"
    } else {
        "release"
    };
    build(root, profile, &["stratakv", name], &[])?;
    let mut command = Command::new(built(root, profile, name));
    command.current_dir(root).env("STRATAKV_BIN", built(root, profile, "stratakv")).args(arguments);
    succeed(name, &mut command)
}

/// Builds programs of `stratakv-cli` and `stratakv-integration`. What is asked for together shares
/// the features of its dependencies, and builds them once: those of profile `dev` with the whole
/// workspace and a small test, as `cargo test --workspace` does; others, whose speed counts, as
/// their users would.
pub fn build(root: &Path, profile: &str, programs: &[&str], features: &[String]) -> Result<(), String> {
    let mut command = cargo(root);
    command.args(["build", "--profile", profile]);
    match profile {
        "dev" => command.args(["--workspace", "--test", "bus"]),
        _ => command.args(["--package", "stratakv-cli", "--package", "stratakv-integration"]),
    };
    if profile != "dev" {
        tell_commit(root, &mut command);
    }
    programs.iter().for_each(|program| _ = command.args(["--bin", program]));
    command.args(features.iter().map(|feature| format!("--features={feature}")));
    succeed("build", &mut command)
}

/// What cargo builds, by its profile and its name.
pub fn built(root: &Path, profile: &str, file: &str) -> PathBuf {
    target_directory(root).join(if profile == "dev" { "debug" } else { profile }).join(file)
}

/// `cargo`, in the repository.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    hide_caller(command.current_dir(root));
    command
}

/// Has the commit built into the program: reports of benchmarks name it. Of a folder that is none
/// of git's it is not known.
pub fn tell_commit(root: &Path, cargo: &mut Command) {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(root).args(arguments).output().ok()?;
        let text = output.status.success().then_some(output.stdout)?;
        Some(String::from_utf8_lossy(&text).trim().to_owned())
    };
    if let (Some(commit), Some(changes)) =
        (git(&["rev-parse", "HEAD"]), git(&["status", "--porcelain", "--untracked-files=no"]))
    {
        let modified = if changes.is_empty() { "" } else { ", modified" };
        cargo.env("STRATAKV_COMMIT", format!("{commit}{modified}"));
    }
}

/// What the cargo that runs this program says of it is not handed down to another one: build
/// scripts that ask for it (ring's) would run again, and what rests on them be built again, each
/// time that somebody else calls cargo.
pub fn hide_caller(cargo: &mut Command) {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let of_caller = names.filter(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"));
    of_caller.for_each(|name| _ = cargo.env_remove(name));
}

/// Runs a command to its end.
pub fn succeed(name: &str, command: &mut Command) -> Result<(), String> {
    let status = command.status();
    let status = status.map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))?;
    if status.success() { Ok(()) } else { Err(format!("{name} failed ({status})")) }
}
