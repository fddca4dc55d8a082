//! What the kernel tells of a process.

use std::net::SocketAddrV4;
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

/// Processor time of a process so far, the kernel's work for it included; none if it has ended.
pub fn cpu(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let ticks = ticks(&stat).unwrap_or_default();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// How long a core was not idle so far, interrupts included and what a host took from it left out;
/// none if there is no such core.
pub fn core_busy(core: usize) -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = busy_ticks(&stat, core).unwrap_or_default();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The core's line has user, nice, system, idle, iowait, irq and softirq.
fn busy_ticks(stat: &str, core: usize) -> Option<u64> {
    let name = format!("cpu{core}");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '))?;
    let fields: Vec<u64> = line.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    [0, 1, 2, 5, 6].into_iter().map(|field| fields.get(field).copied()).sum::<Option<u64>>()
}

/// User and system time in /proc/PID/stat, whose second field may hold anything, blanks and
/// brackets too.
fn ticks(stat: &str) -> Option<u64> {
    let rest = &stat[stat.rfind(')')? + 1..];
    let mut fields = rest.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Bytes that devices have read for a process; what a file system in memory has is not among them.
///
/// # Errors
/// There is no such process, or it is somebody else's.
pub fn device_read_bytes(process: u32) -> Result<u64, String> {
    let path = format!("/proc/{process}/io");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let bytes = text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok());
    bytes.ok_or_else(|| format!("{path} has no read_bytes"))
}

/// How many descriptors it has.
///
/// # Errors
/// There is no such process.
pub fn descriptors(process: u32) -> Result<usize, String> {
    let path = format!("/proc/{process}/fd");
    std::fs::read_dir(&path).map(Iterator::count).map_err(|error| format!("{path}: {error}"))
}

/// Whether it takes connections at this address: it, and not another process that was given the
/// port before it.
///
/// # Errors
/// There is no such process, or its descriptors are not for us to see.
pub fn listens(process: u32, address: SocketAddrV4) -> Result<bool, String> {
    let path = format!("/proc/{process}/net/tcp");
    let sockets = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let Some(inode) = sockets.lines().find_map(|line| listening(line, address)) else { return Ok(false) };
    let (path, socket) = (format!("/proc/{process}/fd"), format!("socket:[{inode}]"));
    let entries = std::fs::read_dir(&path).map_err(|error| format!("{path}: {error}"))?;
    // One that is closed meanwhile is not it.
    Ok(entries
        .flatten()
        .any(|entry| std::fs::read_link(entry.path()).is_ok_and(|at| at.as_os_str() == socket.as_str())))
}

/// The inode of the socket, if this line of /proc/net/tcp is of one that listens at the address.
fn listening(line: &str, address: SocketAddrV4) -> Option<u64> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    // The bytes of the address as they lie in memory, read as a number.
    let local = format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port());
    let (at, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    if *at == local && *state == LISTEN { inode.parse().ok() } else { None }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener};

    #[test]
    fn a_core_is_busy_but_when_it_waits() {
        let stat = "cpu  9 9 9 9 9 9 9\ncpu1 1 2 4 100 200 8 16 32 0 0\ncpu11 1 1 1 1 1 1 1 0 0 0\n";
        assert_eq!((busy_ticks(stat, 1), busy_ticks(stat, 11), busy_ticks(stat, 2)), (Some(31), Some(5), None));
    }

    #[test]
    fn time_is_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 25 17 3 4 20 0 1 0 100 1 1";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks(""), None);
    }

    /// A harness took whoever answered at the port for the server that it had started, and measured
    /// a stranger.
    #[test]
    fn who_listens_is_told_from_a_stranger() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let Ok(SocketAddr::V4(address)) = listener.local_addr() else { panic!("asked for IPv4") };
        let mut stranger = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let found = [std::process::id(), stranger.id()].map(|process| listens(process, address));
        stranger.kill().and_then(|()| stranger.wait()).expect("it ends");
        assert_eq!(found, [Ok(true), Ok(false)]);
        drop(listener);
        assert_eq!(listens(std::process::id(), address), Ok(false));
    }
}
