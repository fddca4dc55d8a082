//! Programs of others that chores call: found in `PATH`, or built once into `target/tools`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::{cargo, succeed};
use crate::toolchain::target_directory;

/// A program that `cargo install` builds.
pub struct Tool {
    /// Of its package, and of its program.
    pub name: &'static str,
    /// The version that is built where there is none.
    pub version: &'static str,
    /// Whether another version in `PATH` will not do.
    pub is_exact: bool,
    /// Further arguments of `cargo install`.
    pub options: &'static [&'static str],
}

impl Tool {
    /// Where the program is; it is built if there is none.
    ///
    /// # Errors
    /// It does not build, as without the registry.
    pub fn find(&self, root: &Path) -> Result<PathBuf, String> {
        let tools = target_directory(root).join("tools");
        let own = tools.join("bin").join(self.name);
        for candidate in [Path::new(self.name), &own] {
            let told = Command::new(candidate).arg("--version").stderr(Stdio::null()).output();
            if told.is_ok_and(|told| told.status.success() && self.is_wanted(&told.stdout)) {
                return Ok(candidate.to_owned());
            }
        }
        eprintln!("building {} {}, once", self.name, self.version);
        let mut install = cargo(root);
        install.args(["install", "--quiet", "--locked"]).args(self.options).arg("--root").arg(tools);
        install.arg(format!("{}@{}", self.name, self.version));
        let built = succeed(&format!("the build of {}", self.name), &mut install);
        built.map_err(|why| format!("{why}; or install it yourself: cargo install {}", self.name))?;
        Ok(own)
    }

    /// Whether the program that says so may be taken: `mdbook v0.5.4`, `3.8.0`.
    fn is_wanted(&self, told: &[u8]) -> bool {
        let told = String::from_utf8_lossy(told);
        let version = told.split_whitespace().last().unwrap_or_default();
        !self.is_exact || version.trim_start_matches('v') == self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        let exact = Tool { name: "mdbook", version: "0.5.4", is_exact: true, options: &[] };
        assert!(exact.is_wanted(b"mdbook v0.5.4\n") && exact.is_wanted(b"0.5.4\n"));
        assert!(!exact.is_wanted(b"mdbook v0.4.40\n") && !exact.is_wanted(b""));
        let any = Tool { is_exact: false, ..exact };
        assert!(any.is_wanted(b"mdbook v0.4.40\n"));
    }

    #[test]
    fn a_program_that_is_there_is_not_built() {
        let cargo = Tool { name: "cargo", version: "0.0.0", is_exact: false, options: &[] };
        assert_eq!(cargo.find(Path::new("/nonexistent")), Ok("cargo".into()));
    }
}
