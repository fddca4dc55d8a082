//! Runs the steps of a list one after the other, tells how long each took, and names the one that
//! failed in its last line.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cargo::hide_caller;

/// What runs a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `cargo`, with these arguments.
    Cargo,
    /// This program, with these arguments.
    Xtask,
}

/// One thing that must hold.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What it looks at.
    pub name: &'static str,
    /// What runs it.
    pub program: Program,
    /// What that is told.
    pub arguments: &'static [&'static str],
}

impl Step {
    /// A step that cargo runs.
    pub const fn cargo(name: &'static str, arguments: &'static [&'static str]) -> Step {
        Step { name, program: Program::Cargo, arguments }
    }

    /// A step that is a subcommand of this program.
    pub const fn xtask(name: &'static str, arguments: &'static [&'static str]) -> Step {
        Step { name, program: Program::Xtask, arguments }
    }

    /// The command as someone would type it.
    pub fn line(&self) -> String {
        let program = if self.program == Program::Cargo { "cargo" } else { "cargo xtask" };
        format!("{program} {}", self.arguments.join(" "))
    }

    /// The command, ended by force once `left` has passed.
    fn command(&self, root: &Path, left: Duration) -> Result<Command, String> {
        let mut command = Command::new("timeout");
        command.arg("--kill-after=30").arg(left.as_secs().max(1).to_string());
        match self.program {
            Program::Cargo => command.arg(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())),
            Program::Xtask => {
                command.arg(std::env::current_exe().map_err(|error| format!("no path of xtask: {error}"))?)
            }
        };
        hide_caller(command.current_dir(root).args(self.arguments));
        // Everything is built once: what a later build could begin from is written for nobody.
        command.env("CARGO_INCREMENTAL", "0");
        if self.arguments.first() == Some(&"doc") {
            command.env("RUSTDOCFLAGS", "-D warnings");
        }
        Ok(command)
    }
}

/// What test runners said of their tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tests {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Names of tests that failed, and tests that were skipped.
    noted: Vec<String>,
}

impl Tests {
    /// Learns from a line of output.
    fn read(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            let words: Vec<&str> = counts.split([' ', ';']).filter(|word| !word.is_empty()).collect();
            for pair in words.windows(2) {
                let number = pair[0].parse::<u64>();
                match (number, pair[1]) {
                    (Ok(number), "passed") => self.passed += number,
                    (Ok(number), "failed") => self.failed += number,
                    (Ok(number), "ignored") => self.ignored += number,
                    _ => {}
                }
            }
        } else if (line.starts_with("test ") && line.ends_with("FAILED")) || line.contains("skipped:") {
            self.noted.push(line.trim().to_owned());
        }
    }
}

/// Runs every step; stops at the first that fails, or once `limit` has passed. Prints the time of
/// each.
///
/// # Errors
/// The name of the step that failed.
pub fn run(root: &Path, steps: &[Step], limit: Duration) -> Result<(), String> {
    let started = Instant::now();
    let (mut times, mut tests, mut failed) = (Vec::new(), Tests::default(), None);
    for step in steps {
        say(&format!("\n== {}: {} (after {} s)", step.name, step.line(), started.elapsed().as_secs()));
        let (begun, cpu_before) = (Instant::now(), children_cpu_seconds());
        let left = limit.saturating_sub(started.elapsed());
        let outcome =
            if left.is_zero() { Err("out of time".to_owned()) } else { run_one(root, step, left, &mut tests) };
        times.push((step.name, begun.elapsed(), children_cpu_seconds() - cpu_before));
        if let Err(why) = outcome {
            failed = Some(format!("step `{}` failed ({why}); again: {}", step.name, step.line()));
            break;
        }
    }
    say(&format!("\n{:<44}{:>8}{:>14}", "step", "seconds", "of processor"));
    times.iter().for_each(|(name, time, cpu)| say(&format!("{name:<44}{:>8.1}{cpu:>14.1}", time.as_secs_f64())));
    let cpu: f64 = times.iter().map(|(_, _, cpu)| cpu).sum();
    say(&format!("{:<44}{:>8.1}{cpu:>14.1}", "all", started.elapsed().as_secs_f64()));
    tests.noted.iter().for_each(|line| say(line));
    say(&format!("{} passed, {} failed, {} skipped", tests.passed, tests.failed, tests.ignored));
    failed.map_or(Ok(()), Err)
}

/// Processor time of all that this process started and waited for, user's and system's: it says how
/// long a step takes on a machine that does nothing else. 0 where the kernel does not tell.
fn children_cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may hold anything: fields 16 and 17, in ticks of 10 ms.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

/// Runs one step and hands on what it prints, line by line.
fn run_one(root: &Path, step: &Step, left: Duration, tests: &mut Tests) -> Result<(), String> {
    let mut command = step.command(root, left)?;
    let mut child =
        command.stdout(Stdio::piped()).spawn().map_err(|error| format!("cannot start `timeout`: {error}"))?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.map_err(|error| format!("cannot read its output: {error}"))?;
            let line = String::from_utf8_lossy(&line);
            tests.read(&line);
            say(&line);
        }
    }
    let status = child.wait().map_err(|error| format!("cannot wait for it: {error}"))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(124 | 137) => Err("out of time".to_owned()),
        _ => Err(status.to_string()),
    }
}

/// A line on standard output; who does not read it does not stop the run.
fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    let told = writeln!(output, "{line}").and_then(|()| output.flush());
    drop(told);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_tests_are_added_up_and_failures_are_named() {
        let mut tests = Tests::default();
        let lines = [
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.1s",
            "test a::b ... FAILED",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out",
            "skipped: memcached is not installed",
            "test c ... ok",
        ];
        lines.iter().for_each(|line| tests.read(line));
        assert_eq!((tests.passed, tests.failed, tests.ignored), (14, 1, 1));
        assert_eq!(tests.noted, ["test a::b ... FAILED", "skipped: memcached is not installed"]);
    }

    #[test]
    fn the_first_failure_ends_the_run_and_is_named() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let good = Step::cargo("good", &["--version"]);
        let bad = Step::cargo("bad", &["no-such-command"]);
        let limit = Duration::from_secs(60);
        assert_eq!(run(root, &[good, good], limit), Ok(()));
        let why = run(root, &[good, bad, good], limit).unwrap_err();
        assert!(why.starts_with("step `bad` failed") && why.ends_with("again: cargo no-such-command"), "{why}");
        let why = run(root, &[good], Duration::ZERO).unwrap_err();
        assert!(why.contains("out of time"), "{why}");
    }
}
