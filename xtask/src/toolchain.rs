//! The nightly toolchain: what instruments programs is not stable.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::hide_caller;

/// Named, so that build scripts and procedural macros, which run on the host, are not instrumented.
pub const TARGET: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };

/// What is missing, if it is.
pub fn missing() -> Option<String> {
    let found =
        Command::new("cargo").args(["+nightly", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let hint = "the nightly toolchain (rustup toolchain install nightly --profile minimal)";
    (!found.is_ok_and(|status| status.success())).then(|| hint.to_owned())
}

/// Nightly's cargo in `folder`, with these flags to rustc. Add a subcommand first.
pub fn cargo(folder: &Path, flags: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    hide_caller(cargo.arg("+nightly").current_dir(folder));
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")).env("CARGO_BUILD_TARGET", TARGET);
    cargo
}

/// Where cargo builds, unless told otherwise.
pub fn target_directory(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

/// The folder of the toolchain.
pub fn sysroot() -> Option<PathBuf> {
    let output = Command::new("rustc").args(["+nightly", "--print", "sysroot"]).output().ok()?;
    Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
}
