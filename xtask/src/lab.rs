//! `cargo xtask lab`: runs the lab of `stratakv-integration`, which boots itself in QEMU.

use std::path::Path;

use crate::cargo::{cargo, succeed};

/// Builds and runs it as tests are built: emulation is slow by itself, and nothing is built twice.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let mut command = cargo(root);
    command.args(["run", "--quiet", "--package", "stratakv-integration", "--bin", "lab"]);
    // What is counted there is the released program.
    command.args(arguments.iter().any(|argument| argument == "--counts").then_some("--release"));
    command.arg("--").args(arguments);
    succeed("lab", &mut command)
}
