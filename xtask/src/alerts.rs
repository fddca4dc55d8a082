//! `cargo xtask alerts`: the rules of `contrib/prometheus` and their tests, by Prometheus's own
//! promtool.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::cargo::succeed;

/// Runs the command.
///
/// # Errors
/// A rule is malformed, or a test of one fails; under `CI`, promtool is missing.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    if !arguments.is_empty() {
        return Err("usage: cargo xtask alerts".into());
    }
    let has_promtool = Command::new("promtool").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if has_promtool.is_err() {
        let missing = "promtool is not installed (Debian: prometheus)";
        if std::env::var_os("CI").is_some() {
            return Err(missing.into());
        }
        println!("skipped: {missing}");
        return Ok(());
    }
    let folder = root.join("contrib/prometheus");
    let promtool = |words: &[&str]| {
        let mut command = Command::new("promtool");
        command.current_dir(&folder).args(words);
        command
    };
    succeed("promtool check rules", &mut promtool(&["check", "rules", "--lint-fatal", "alerts.yml"]))?;
    succeed("promtool test rules", &mut promtool(&["test", "rules", "alerts.test.yml"]))
}
