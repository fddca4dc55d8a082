//! Runs a program under callgrind or DHAT, and reads what they counted.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program under callgrind, which writes its counts to a file. The program's own arguments
/// follow.
pub fn callgrind(program: &Path, counted: &Path, options: &[&str]) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=callgrind"]).arg(format!("--callgrind-out-file={}", counted.display()));
    command.args(options).arg(program);
    command
}

/// A program under DHAT, which counts the bytes that `memcpy` and its like copy.
pub fn copies(program: &Path, counted: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--tool=dhat", "--mode=copy", "--dhat-out-file=/dev/null"]);
    command.arg(format!("--log-file={}", counted.display())).arg(program);
    command
}

/// Runs a command whose words are shown only if it fails.
pub fn quiet(command: &mut Command) -> Result<(), String> {
    let output = command.stdout(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}

/// What a file of callgrind says of a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Instructions.
    pub instructions: u64,
    /// System calls, but for those that ask the clock: outside of valgrind the kernel's page
    /// answers them.
    pub system_calls: u64,
    /// Calls of the allocator that give memory.
    pub allocations: u64,
}

impl Totals {
    /// Reads a file of callgrind.
    ///
    /// # Errors
    /// It has no total.
    pub fn read(text: &str) -> Result<Totals, String> {
        let mut totals = Totals::default();
        let (mut events, mut instructions) = (Vec::new(), None);
        // Names are written once and are numbers from then on.
        let (mut names, mut function, mut called) = (HashMap::new(), "", "");
        // The line behind `calls=` has the cost of what is called: it is counted there.
        let mut is_inclusive = false;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("events: ") {
                events = rest.split(' ').collect();
            } else if let Some(rest) = line.strip_prefix("totals: ") {
                instructions = nth(rest, place(&events, "Ir"));
            } else if let Some(rest) = line.strip_prefix("fn=") {
                function = name(&mut names, rest);
            } else if let Some(rest) = line.strip_prefix("cfn=") {
                called = name(&mut names, rest);
            } else if let Some(rest) = line.strip_prefix("calls=") {
                if is_allocator(called) {
                    totals.allocations += nth(rest, Some(0)).unwrap_or_default();
                }
                is_inclusive = true;
            } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                let calls = place(&events, "sysCount").and_then(|place| nth(line, Some(place + 1)));
                if !std::mem::take(&mut is_inclusive) && !function.contains("clock_gettime") {
                    totals.system_calls += calls.unwrap_or_default();
                }
            }
        }
        totals.instructions = instructions.ok_or("callgrind told no total")?;
        Ok(totals)
    }
}

/// The bytes that a log of DHAT tells.
///
/// # Errors
/// It tells none.
pub fn copied_bytes(log: &str) -> Result<u64, String> {
    let total = log.lines().find_map(|line| line.split_once("Total:")).map(|(_, rest)| rest.trim());
    let bytes = total.and_then(|rest| rest.split(' ').next()).map(|bytes| bytes.replace(',', ""));
    bytes.and_then(|bytes| bytes.parse().ok()).ok_or_else(|| format!("DHAT told no total:\n{log}"))
}

fn place(events: &[&str], event: &str) -> Option<usize> {
    events.iter().position(|one| *one == event)
}

fn nth(line: &str, place: Option<usize>) -> Option<u64> {
    line.split(' ').nth(place?)?.parse().ok()
}

fn name<'a>(names: &mut HashMap<&'a str, &'a str>, text: &'a str) -> &'a str {
    match text.split_once(' ') {
        Some((number, name)) => {
            names.insert(number, name);
            name
        }
        None => names.get(text).copied().unwrap_or_default(),
    }
}

/// A call from recursion is written with its depth: `malloc'2`.
fn is_allocator(function: &str) -> bool {
    let name = function.split('\'').next().unwrap_or_default();
    matches!(name, "malloc" | "calloc" | "realloc" | "posix_memalign" | "aligned_alloc")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "\
events: Ir sysCount sysTime
fn=(1) put
10 100
+3 5 2 7
cfn=(2) malloc
calls=3 40
* 60 1 9
cfn=(3) write
calls=2 50
+1 70 2 1

fn=(2)
40 60 1 9
fn=(3)
50 70 2 1
cfn=(2)
calls=4 40
50 8
fn=(4) rustix::backend::vdso_wrappers::clock_gettime_via_syscall
60 20 90 2

totals: 255 95 19
";

    #[test]
    fn a_profile_gives_its_totals_without_questions_to_the_clock() {
        let totals = Totals { instructions: 255, system_calls: 5, allocations: 7 };
        assert_eq!(Totals::read(PROFILE), Ok(totals));
        assert!(Totals::read("events: Ir\n").is_err());
    }

    #[test]
    fn a_log_of_copies_gives_its_bytes() {
        let log =
            "==7== DHAT, a dynamic heap analysis tool\n==7== Total:     1,402,340 bytes in 2,031 blocks\n==7== \n";
        assert_eq!(copied_bytes(log), Ok(1_402_340));
        assert!(copied_bytes("==7== killed").is_err());
    }
}
