//! What a process has used so far: processor, and bytes from and to the device.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Since the process began, all its threads together, the kernel's work for them included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system time.
    pub cpu: Duration,
    /// Bytes asked of storage; 0 where the system does not tell.
    pub read_bytes: u64,
    /// Bytes sent to storage; 0 where the system does not tell.
    pub write_bytes: u64,
}

impl Usage {
    /// Until now.
    pub fn now() -> Usage {
        let cpu = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default();
        let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
        Usage { cpu, read_bytes: field(&text, "read_bytes"), write_bytes: field(&text, "write_bytes") }
    }

    /// User and system time of each thread that runs now, by its number. Empty where the system
    /// does not tell.
    pub fn threads() -> HashMap<String, Duration> {
        let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let of = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
            let ran_ns = text.split(' ').next()?.parse().ok()?;
            Some((entry.file_name().to_string_lossy().into_owned(), Duration::from_nanos(ran_ns)))
        };
        entries.filter_map(of).collect()
    }

    /// Since `before`.
    pub fn since(self, before: Usage) -> Usage {
        Usage {
            cpu: self.cpu.saturating_sub(before.cpu),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(before.write_bytes),
        }
    }
}

fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "rchar: 1\nwchar: 2\nread_bytes: 3\nwrite_bytes: 4\ncancelled_write_bytes: 5\n";
        assert_eq!((field(text, "read_bytes"), field(text, "write_bytes"), field(text, "absent")), (3, 4, 0));
    }

    #[test]
    fn work_is_seen() {
        let before = Usage::now();
        let mut sum = 0u64;
        while Usage::now().since(before).cpu < Duration::from_millis(2) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(Usage::threads().values().any(|ran| *ran >= Duration::from_millis(1)), "no thread has run");
        assert!(sum > 0 && before.since(Usage::now()).cpu == Duration::ZERO);
    }
}
