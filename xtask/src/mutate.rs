//! `cargo xtask mutate`: prepares two checkouts of a commit, the last one unless `--of COMMIT`
//! names another, and runs `mutate/` on them.

use std::path::Path;
use std::process::Command;

use crate::cargo::{cargo, hide_caller, succeed};
use crate::failing::checkout;
use crate::toolchain::target_directory;

/// Runs the command.
///
/// # Errors
/// Nothing could be built or tried. Mutations that survive are told and are no error.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let folder = target_directory(root).join("mutate");
    let (commit, arguments) = match arguments {
        [option, commit, rest @ ..] if option == "--of" => (commit.as_str(), rest),
        all => ("HEAD", all),
    };
    for name in ["originals", "tree"] {
        checkout(root, &folder.join(name), commit)?;
    }
    let program = folder.join("program");
    let mut build = cargo(root);
    build.args(["build", "--quiet", "--manifest-path", "mutate/Cargo.toml", "--target-dir"]).arg(&program);
    succeed("build", &mut build)?;
    // Not by `cargo run`: the cargo that it calls is not to hear of this one.
    let mut command = Command::new(program.join("debug/stratakv-mutate"));
    hide_caller(command.current_dir(root).arg(&folder).args(arguments));
    succeed("mutate", &mut command)
}
