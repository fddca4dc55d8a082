//! `cargo xtask mutate`: prepares two checkouts of the last commit, and runs `mutate/` on them.

use std::path::Path;

use crate::cargo::{cargo, succeed};
use crate::failing::checkout;
use crate::toolchain::target_directory;

/// Runs the command.
///
/// # Errors
/// Nothing could be built or tried. Mutations that survive are told and are no error.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let folder = target_directory(root).join("mutate");
    for name in ["originals", "tree"] {
        checkout(root, &folder.join(name), "HEAD")?;
    }
    let mut command = cargo(root);
    command.args(["run", "--quiet", "--manifest-path"]).arg(root.join("mutate/Cargo.toml")).arg("--");
    succeed("mutate", command.arg(&folder).args(arguments))
}
