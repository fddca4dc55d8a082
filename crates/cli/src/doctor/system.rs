//! What the kernel is and allows.

use std::io;

use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use stratakv_device::uring::Uring;

/// Kernel, cores, limits.
pub(super) struct System {
    pub(super) kernel: String,
    pub(super) cores: usize,
    pub(super) io_uring: Result<(), UringUnavailable>,
    /// `None`: unlimited.
    pub(super) memlock_bytes: Option<u64>,
    /// `None`: unlimited.
    pub(super) open_files: Option<u64>,
}

/// Why io_uring cannot be had.
#[derive(Debug, Serialize)]
pub(super) struct UringUnavailable {
    pub(super) why: String,
    /// How to allow it.
    pub(super) remedy: String,
}

impl System {
    pub(super) fn read() -> System {
        let name = rustix::system::uname();
        let [system, release, machine] =
            [name.sysname(), name.release(), name.machine()].map(|text| text.to_string_lossy());
        System {
            kernel: format!("{system} {release} {machine}"),
            cores: cores(),
            io_uring: Uring::new(8).map(drop).map_err(|error| refusal(&error, disabled())),
            memlock_bytes: getrlimit(Resource::Memlock).current,
            open_files: getrlimit(Resource::Nofile).current,
        }
    }
}

/// Cores this process may use.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// `kernel.io_uring_disabled`; `None` before Linux 6.6, which has no such switch.
fn disabled() -> Option<u8> {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?.trim().parse().ok()
}

/// The usual reasons, told apart by the error and the switch.
fn refusal(error: &io::Error, disabled: Option<u8>) -> UringUnavailable {
    let (why, remedy) = match (error.kind(), disabled) {
        (_, Some(2)) => ("kernel.io_uring_disabled is 2", "sysctl kernel.io_uring_disabled=0"),
        (io::ErrorKind::PermissionDenied, Some(1)) => (
            "kernel.io_uring_disabled is 1",
            "sysctl kernel.io_uring_disabled=0, or run in the group that kernel.io_uring_group names",
        ),
        (io::ErrorKind::PermissionDenied, _) => (
            "a seccomp filter or security module forbids it, as containers do by default",
            "a seccomp profile that permits io_uring_setup, io_uring_enter and io_uring_register",
        ),
        (io::ErrorKind::Unsupported, _) => {
            ("this kernel has no io_uring", "Linux 5.15 or newer, not in a sandbox such as gVisor")
        }
        (io::ErrorKind::OutOfMemory, _) => {
            ("it may not lock enough memory", "ulimit -l unlimited (LimitMEMLOCK=infinity for systemd)")
        }
        _ => ("the kernel refuses it", "a newer kernel"),
    };
    UringUnavailable { why: format!("{why} ({error})"), remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_refusal_is_told_with_its_remedy() {
        let denied = io::Error::from_raw_os_error(1);
        assert!(refusal(&denied, Some(2)).remedy.contains("io_uring_disabled=0"));
        assert!(refusal(&denied, Some(1)).remedy.contains("io_uring_group"));
        assert!(refusal(&denied, Some(0)).why.contains("seccomp"));
        assert!(refusal(&denied, None).why.contains("seccomp"));
        assert!(refusal(&io::Error::from_raw_os_error(38), None).why.contains("no io_uring"));
    }
}
