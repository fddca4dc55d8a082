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

/// What only the thread that maintains a store runs (`crates/runtime/src/direct.rs`), by a call
/// that is never inlined.
const MAINTENANCE: &str = "stratakv_engine::shared::Shared>::maintain";

/// What a file of callgrind says of a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Instructions.
    pub instructions: u64,
    /// System calls, but for those that ask the clock, which the kernel's page answers outside of
    /// valgrind, and those in which threads wait for each other: how often they do is up to time.
    pub system_calls: u64,
    /// Calls of the allocator that give memory.
    pub allocations: u64,
}

impl Totals {
    /// Of all threads, from a file of callgrind for each. The thread that maintains a store called
    /// in place is left out: it works a step ten times a second, whatever else is done.
    ///
    /// # Errors
    /// A file has no total.
    pub fn of_threads(files: &[String]) -> Result<Totals, String> {
        let mut totals = Totals::default();
        // With files for threads, that of the process is empty.
        for file in files.iter().filter(|file| file.contains("\nfn=")) {
            if file.contains(MAINTENANCE) {
                continue;
            }
            let thread = Totals::read(file)?;
            totals.instructions += thread.instructions;
            totals.system_calls += thread.system_calls;
            totals.allocations += thread.allocations;
        }
        if totals == Totals::default() { Err("callgrind counted nothing".into()) } else { Ok(totals) }
    }

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
                if !std::mem::take(&mut is_inclusive) && !is_left_out(function) {
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

/// Whose system calls are not counted. The standard library asks for futexes by libc's `syscall`,
/// and for nothing else.
fn is_left_out(function: &str) -> bool {
    function.contains("clock_gettime") || function == "syscall"
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
fn=(5) syscall
70 10 30 2

totals: 265 125 21
";

    #[test]
    fn a_profile_gives_its_totals_without_questions_to_the_clock_and_waits_for_threads() {
        let totals = Totals { instructions: 265, system_calls: 5, allocations: 7 };
        assert_eq!(Totals::read(PROFILE), Ok(totals));
        assert!(Totals::read("events: Ir\n").is_err());
    }

    #[test]
    fn threads_are_added_up_but_for_the_one_that_maintains() {
        let files = [String::new(), PROFILE.to_owned(), PROFILE.replace("put", "get")];
        let both = Totals { instructions: 530, system_calls: 10, allocations: 14 };
        assert_eq!(Totals::of_threads(&files), Ok(both));
        let one = Totals { instructions: 265, system_calls: 5, allocations: 7 };
        assert_eq!(Totals::of_threads(&[PROFILE.into(), PROFILE.replace("put", MAINTENANCE)]), Ok(one));
        assert!(Totals::of_threads(&[]).is_err());
    }

    #[test]
    fn a_log_of_copies_gives_its_bytes() {
        let log =
            "==7== DHAT, a dynamic heap analysis tool\n==7== Total:     1,402,340 bytes in 2,031 blocks\n==7== \n";
        assert_eq!(copied_bytes(log), Ok(1_402_340));
        assert!(copied_bytes("==7== killed").is_err());
    }
}
