//! Runs cargo.

use std::path::Path;
use std::process::Command;

/// What `cargo xtask ci` runs, in order: name, arguments to cargo, extra RUSTDOCFLAGS.
const STEPS: &[(&str, &[&str], Option<&str>)] = &[
    ("tests", &["test", "--workspace"], None),
    ("formatting", &["fmt", "--all", "--check"], None),
    ("clippy", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], None),
    ("documentation", &["doc", "--workspace", "--no-deps", "--quiet"], Some("-D warnings")),
];

/// Every check a change must pass; stops at the first that fails.
pub fn run(root: &Path) -> Result<(), String> {
    for (name, arguments, doc_flags) in STEPS {
        println!("== {name}: cargo {}", arguments.join(" "));
        let mut command = cargo(root);
        command.args(*arguments);
        if let Some(flags) = doc_flags {
            command.env("RUSTDOCFLAGS", flags);
        }
        succeed(name, &mut command)?;
    }
    println!("== tidy");
    crate::run_tidy(root)
}

/// Runs one of the long harnesses of `stratakv-integration` (`crash`, `realdata`, `soak`, `ukv`) against an optimised server.
pub fn harness(root: &Path, name: &str, arguments: &[String]) -> Result<(), String> {
    succeed("build", cargo(root).args(["build", "--release", "--package", "stratakv-cli"]))?;
    let mut command = cargo(root);
    command.args(["run", "--release", "--package", "stratakv-integration", "--bin", name, "--"]).args(arguments);
    succeed(name, &mut command)
}

/// `cargo`, in the repository.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Runs a command to its end.
pub fn succeed(name: &str, command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("cannot start cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name} failed ({status})")) }
}
