//! What tests need that run the program under `strace`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether it is there. With `CI=true` it must be.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn is_there() -> bool {
    let found = Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    assert!(found || !in_ci, "strace is not installed; with CI=true every test must run");
    if !found {
        eprintln!("skipped: strace not installed");
    }
    found
}

/// Files of a folder, and of those in it.
pub fn files_under(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_under(&path) } else { vec![path] }).collect()
}
