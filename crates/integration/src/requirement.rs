//! Tools that some tests need and a machine may lack.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The path of a program, or `None` after saying that the test is skipped.
///
/// # Panics
/// It is missing and `CI=true`: there everything must run.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.or_else(|| skip(&format!("{name} not installed")))
}

/// Python with the given module, or `None` after saying that the test is skipped.
///
/// # Panics
/// As [`tool`].
pub fn python_with(module: &str) -> Option<PathBuf> {
    let python = tool("python3")?;
    let mut import = Command::new(&python);
    import.args(["-c", &format!("import {module}")]).stdout(Stdio::null()).stderr(Stdio::null());
    match import.status() {
        Ok(status) if status.success() => Some(python),
        _ => skip(&format!("python module {module} not installed")),
    }
}

/// Says why a test is skipped; always `None`.
///
/// # Panics
/// `CI=true`.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn skip<T>(reason: &str) -> Option<T> {
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    assert!(!in_ci, "{reason}; with CI=true every test must run");
    eprintln!("skipped: {reason}");
    None
}

/// Says why a test is skipped on this machine, also in CI: for what no installation can give (such
/// as not being root).
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn not_here(reason: &str) {
    eprintln!("skipped: {reason}");
}
