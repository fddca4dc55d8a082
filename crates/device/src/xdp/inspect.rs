//! What stands between an interface and AF_XDP: asked of the system, without changing anything.

use std::io;
use std::path::Path;

use super::interface::{Interface, Offload};
use super::netlink;
use super::open::{MTU_MIN, frame_bytes};
use super::umem::HEADROOM;
use super::xsk;

/// Bits of `enum netdev_xdp_act`.
const CAN_RUN: u64 = 1;
const CAN_REDIRECT: u64 = 1 << 1;
const IS_ZERO_COPY: u64 = 1 << 3;
/// Bits of `linux/capability.h`.
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;
const IPC_LOCK: u64 = 1 << 14;
const SYS_ADMIN: u64 = 1 << 21;
const BPF: u64 = 1 << 39;

/// What an interface and this process are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpFacts {
    /// The interface's name.
    pub interface: String,
    /// Whether it has been set up by its administrator.
    pub is_up: bool,
    /// Its driver, if it says so.
    pub driver: Option<String>,
    /// Longest IP packet.
    pub mtu: usize,
    /// Receive queues.
    pub queues: usize,
    /// Whether it puts several received segments together (large receive offload).
    pub merges_segments: bool,
    /// The number of the XDP program that it has, if there is one.
    pub program: Option<u32>,
    /// What its driver can do; `None`: the kernel does not tell.
    pub driver_can: Option<DriverCan>,
    /// This process and its kernel.
    pub process: ProcessFacts,
}

/// What a driver can do for AF_XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverCan {
    /// Run a program, and hand frames to sockets.
    pub redirect: bool,
    /// Without copying them.
    pub zero_copy: bool,
}

/// What a process may, and its kernel can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// The kernel's version.
    pub kernel: String,
    /// Whether the kernel was built with AF_XDP.
    pub has_sockets: bool,
    /// Capabilities that are missing, by their names.
    pub missing_capabilities: Vec<&'static str>,
    /// Bytes of memory that it may lock; `None`: as many as it likes.
    pub lockable_bytes: Option<u64>,
    /// Cores that it may run on.
    pub cores: usize,
}

impl XdpFacts {
    /// Asks.
    ///
    /// # Errors
    /// There is no such interface, or it is not Ethernet.
    pub fn of(name: &str) -> io::Result<XdpFacts> {
        let interface = Interface::of(name)?;
        let offload = Offload::of(name);
        let features = netlink::features_of(interface.index).ok();
        Ok(XdpFacts {
            interface: name.to_owned(),
            is_up: interface.is_up,
            driver: offload.driver,
            mtu: interface.mtu,
            queues: queues_of(name).max(1),
            merges_segments: offload.merges_segments,
            // Without an answer serving will tell.
            program: netlink::program_on(interface.index).unwrap_or(None),
            driver_can: features.map(|bits| DriverCan {
                redirect: bits & (CAN_RUN | CAN_REDIRECT) == CAN_RUN | CAN_REDIRECT,
                zero_copy: bits & IS_ZERO_COPY != 0,
            }),
            process: ProcessFacts::now(),
        })
    }

    /// Longest IP packet that is served there, if packets may be so short; longer ones are not
    /// sent, and peers are told so.
    pub fn served_mtu(&self) -> Option<usize> {
        (self.mtu >= MTU_MIN).then(|| self.mtu.min(frame_bytes(self.mtu) - HEADROOM - 14))
    }
}

fn queues_of(name: &str) -> usize {
    let folder = Path::new("/sys/class/net").join(name).join("queues");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-")).count()
}

impl ProcessFacts {
    fn now() -> ProcessFacts {
        // Without /proc all capabilities are told as missing.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let capabilities = capabilities_in(&status);
        let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        ProcessFacts {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            has_sockets: xsk::is_built(),
            missing_capabilities: missing(capabilities),
            lockable_bytes: limit.filter(|_| capabilities & IPC_LOCK == 0),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

fn capabilities_in(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok()).unwrap_or(0)
}

fn missing(capabilities: u64) -> Vec<&'static str> {
    // Whoever may administer the system may load programs too.
    let all = [("CAP_NET_ADMIN", NET_ADMIN), ("CAP_NET_RAW", NET_RAW), ("CAP_BPF", BPF | SYS_ADMIN)];
    all.into_iter().filter(|(_, bits)| capabilities & bits == 0).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status() {
        let status = "Name:\tx\nCapPrm:\tffffffffffffffff\nCapEff:\t0000008000003000\n";
        assert_eq!(missing(capabilities_in(status)), [""; 0]);
        assert_eq!(missing(capabilities_in("CapEff:\t0000000000001000\n")), ["CAP_NET_RAW", "CAP_BPF"]);
        assert_eq!(missing(0), ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"]);
        assert_eq!(missing(SYS_ADMIN | NET_RAW | NET_ADMIN), [""; 0]);
    }

    #[test]
    fn what_is_no_ethernet_is_refused() {
        assert_eq!(XdpFacts::of("lo").unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert!(XdpFacts::of("none0").is_err());
    }
}
