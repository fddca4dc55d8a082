//! `cargo xtask book`: `docs/` as a book of HTML pages, by mdBook. A warning fails it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::cargo::{cargo, succeed};
use crate::toolchain::target_directory;

/// The program, and the version that `cargo install` builds where there is none.
const VERSION: &str = "0.5.4";

/// Builds the book into `target/book`.
///
/// # Errors
/// mdBook cannot be had, fails, or warns; what it said.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    if let Some(word) = arguments.first() {
        return Err(format!("`{word}` is not understood\n\nusage: cargo xtask book"));
    }
    let program = program(root)?;
    let book = target_directory(root).join("book");
    let output = Command::new(&program).args(["build", "--dest-dir"]).arg(&book).arg(root).output();
    let output = output.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    judge(&output)?;
    println!("{}", book.join("index.html").display());
    Ok(())
}

/// mdBook of the wanted version: in `PATH`, or built into `target/tools`.
fn program(root: &Path) -> Result<PathBuf, String> {
    let tools = target_directory(root).join("tools");
    let own = tools.join("bin/mdbook");
    for candidate in [Path::new("mdbook"), &own] {
        let told = Command::new(candidate).arg("--version").output();
        if told.is_ok_and(|told| is_wanted(&told.stdout)) {
            return Ok(candidate.to_owned());
        }
    }
    eprintln!("building mdBook {VERSION}, once");
    let mut install = cargo(root);
    install.args(["install", "--quiet", "--locked", "--no-default-features", "--root"]).arg(tools);
    succeed("the build of mdBook", install.arg(format!("mdbook@{VERSION}")))?;
    Ok(own)
}

fn is_wanted(told: &[u8]) -> bool {
    String::from_utf8_lossy(told).trim().trim_start_matches("mdbook v") == VERSION
}

/// Whether the book was built, and nothing was wrong with it.
fn judge(output: &Output) -> Result<(), String> {
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    let is_bad = |line: &str| line.split_whitespace().any(|word| ["WARN", "ERROR"].contains(&word));
    match output.status.success() && !said.lines().any(is_bad) {
        true => Ok(()),
        false => Err(format!("mdBook ({}) said:\n{said}", output.status)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn output(code: i32, said: &str) -> Output {
        Output { status: ExitStatus::from_raw(code << 8), stdout: Vec::new(), stderr: said.into() }
    }

    #[test]
    fn a_warning_fails_the_book() {
        assert!(judge(&output(0, " INFO Book building has started\n")).is_ok());
        let warned = judge(&output(0, " INFO Book building\n WARN unclosed HTML tag\n"));
        assert!(warned.is_err_and(|why| why.contains("unclosed HTML tag")));
        assert!(judge(&output(101, "")).is_err());
    }

    #[test]
    fn the_version_is_read() {
        assert!(is_wanted(b"mdbook v0.5.4\n"));
        assert!(!is_wanted(b"mdbook v0.4.40\n"));
    }
}
