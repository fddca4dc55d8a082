//! What tests need that run the program under `strace`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

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

/// Ends a server that a test leaves behind as it fails, and with it the one that a tracer has.
pub fn end(process: &mut Child) {
    // It may have ended.
    if process.try_wait().is_ok_and(|ended| ended.is_some()) {
        return;
    }
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", process.id())).unwrap_or_default();
    for id in children.split_whitespace() {
        let _ = Command::new("kill").args(["-KILL", id]).status();
    }
    let _ = process.kill();
    let _ = process.wait();
}
