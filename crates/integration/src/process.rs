//! What the kernel tells of a process.

use std::time::{Duration, Instant};

/// How long descriptors may take to come back on a busy machine.
const BACK_TIMEOUT: Duration = Duration::from_secs(30);

/// A field of /proc/PID/status in bytes (`VmRSS`, `VmHWM`).
///
/// # Errors
/// There is no such process, or no such field.
pub fn memory_bytes(process: u32, field: &str) -> Result<u64, String> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| format!("{path} has no {field}"))
}

/// How many descriptors it has.
///
/// # Errors
/// There is no such process.
pub fn descriptors(process: u32) -> Result<usize, String> {
    let path = format!("/proc/{process}/fd");
    std::fs::read_dir(&path).map(Iterator::count).map_err(|error| format!("{path}: {error}"))
}

/// Waits until it has no more descriptors than `most`.
///
/// # Errors
/// It has more after half a minute, or there is no such process.
pub fn wait_for_descriptors(process: u32, most: usize) -> Result<(), String> {
    let deadline = Instant::now() + BACK_TIMEOUT;
    loop {
        let now = descriptors(process)?;
        if now <= most {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("{now} descriptors are open; before there were {most}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Raises this process's limit of open files; how many it allows.
pub fn allow_open_files(wanted: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum.unwrap_or(u64::MAX).min(wanted.max(limit.current.unwrap_or(0)));
    // If it cannot be raised, the answer is what there was.
    match setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum: limit.maximum }) {
        Ok(()) => allowed,
        Err(_) => limit.current.unwrap_or(0),
    }
}
