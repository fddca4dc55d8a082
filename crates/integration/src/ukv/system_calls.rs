//! How many system calls another process makes, counted by `perf` in the kernel: its batches stay
//! as they are.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// What `perf` runs: it counts from before this is started until it ends. It says that it was
/// started, and ends when its input does.
const WHILE: &str = "echo started; read end";

/// Counts until it is told to finish.
#[derive(Debug)]
pub struct Counter(Child);

impl Counter {
    /// Counts those of all threads of this process, from its return on; none if there is no `perf`,
    /// or it may not count.
    pub fn start(process: u32) -> Option<Counter> {
        let mut perf = Command::new("perf");
        perf.args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p"]).arg(process.to_string());
        perf.args(["sh", "-c", WHILE]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut perf = perf.spawn().ok()?;
        let mut said = String::new();
        let heard = perf.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut said));
        if matches!(heard, Some(Ok(1..))) {
            return Some(Counter(perf));
        }
        // It ends by itself: why, it has said to nobody who could help.
        let _ = perf.wait();
        None
    }

    /// How many there were.
    pub fn finish(mut self) -> Option<u64> {
        drop(self.0.stdin.take());
        let output = self.0.wait_with_output().ok()?;
        count(&String::from_utf8_lossy(&output.stderr))
    }
}

/// In what `perf stat -x ,` says.
fn count(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("raw_syscalls:sys_enter"))?;
    line.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_told_from_a_refusal() {
        assert_eq!(count("5137,,raw_syscalls:sys_enter,1000,100.00,,\n"), Some(5137));
        assert_eq!(count("<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n"), None);
        assert_eq!(count("event syntax error: 'raw_syscalls:sys_enter'\n"), None);
        assert_eq!(count(""), None);
    }

    #[test]
    fn calls_are_counted_from_the_start_to_the_end() {
        let Some(counter) = Counter::start(std::process::id()) else {
            return crate::requirement::not_here("no perf that may count system calls");
        };
        (0..1000).for_each(|_| _ = std::fs::metadata("/"));
        let counted = counter.finish().expect("a count");
        assert!(counted >= 1000, "{counted}");
    }
}
