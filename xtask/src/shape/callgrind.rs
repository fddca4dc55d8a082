//! `stratakv` under callgrind: this machine may have no counters of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::{cargo, succeed};

/// Builds `stratakv` so that it runs under valgrind, which shows a process no vDSO: rustix is to
/// ask libc for it.
///
/// # Errors
/// It cannot be built.
pub fn build(of: &Path, release: bool) -> Result<PathBuf, String> {
    let target = of.join("target/shape");
    let mut command = cargo(of);
    command.args(["build", "--package", "stratakv-cli", "--features", "rustix/use-libc-auxv", "--target-dir"]);
    command.arg(&target).args(release.then_some("--release"));
    succeed("build", &mut command)?;
    Ok(target.join(if release { "release" } else { "debug" }).join("stratakv"))
}

/// `program` under callgrind, which writes to `out`.
pub fn command(program: &Path, out: &Path, options: &[&str]) -> Command {
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display()));
    command.args(options).arg(program).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Instructions that were counted.
///
/// # Errors
/// There is no such file, or nothing was counted.
pub fn instructions(out: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(out).map_err(|error| format!("cannot read {}: {error}", out.display()))?;
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
    totals.and_then(|count| count.trim().parse().ok()).ok_or(format!("{} has no total", out.display()))
}
