//! How many system calls another process makes, counted by `perf` in the kernel: its batches stay as they are.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Counts for a while.
#[derive(Debug)]
pub struct Counter {
    perf: Child,
    duration: Duration,
}

impl Counter {
    /// Counts those of all threads of this process; none if there is no `perf`.
    pub fn start(process: u32, duration: Duration) -> Option<Counter> {
        let mut perf = Command::new("perf");
        perf.args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p"]).arg(process.to_string());
        perf.arg("sleep").arg(duration.as_secs_f64().to_string());
        perf.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Some(Counter { perf: perf.spawn().ok()?, duration })
    }

    /// How many there were in a second; none if `perf` was not allowed to count, or still does: then it did not see the load only.
    pub fn finish(mut self) -> Option<f64> {
        let is_over = matches!(self.perf.try_wait(), Ok(Some(_)));
        let output = self.perf.wait_with_output().ok()?;
        let counted = count(&String::from_utf8_lossy(&output.stderr)).filter(|_| is_over)?;
        Some(counted as f64 / self.duration.as_secs_f64())
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
}
