//! A cable between two network namespaces, made for a run and gone with it.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use rustix::thread::{CpuSet, LinkNameSpaceType, Pid, move_into_link_name_space, sched_setaffinity};

/// The server's interface.
pub const INTERFACE: &str = "xdp0";
/// The client's.
const CLIENT_INTERFACE: &str = "eth0";
/// The server's address that the kernel has, and the one that it knows nothing of.
pub const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 9);
/// See [`KERNEL`].
pub const BYPASS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);

/// Two namespaces and a cable.
#[derive(Debug)]
pub struct Network {
    server: String,
    client: String,
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot start {program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{program} {arguments:?}: {}", said.trim())) }
}

fn ip(arguments: &str) -> Result<(), String> {
    run("ip", &arguments.split_whitespace().collect::<Vec<_>>())
}

impl Network {
    /// Makes it. Needs root, `ip` and `ethtool`.
    ///
    /// # Errors
    /// What this machine refuses.
    pub fn new(mtu: u32) -> Result<Network, String> {
        let name = |of: &str| format!("stratakv-veth-{of}-{}", std::process::id());
        let network = Network { server: name("server"), client: name("client") };
        let Network { server, client } = &network;
        ip(&format!("netns add {server}"))?;
        ip(&format!("netns add {client}"))?;
        ip(&format!("-n {server} link add {INTERFACE} type veth peer name {CLIENT_INTERFACE} netns {client}"))?;
        for (namespace, interface, address) in [(server, INTERFACE, KERNEL), (client, CLIENT_INTERFACE, CLIENT)] {
            ip(&format!("-n {namespace} addr add {address}/24 dev {interface}"))?;
            ip(&format!("-n {namespace} link set {interface} mtu {mtu} up"))?;
            ip(&format!("-n {namespace} link set lo up"))?;
            // One without pacing, that every namespace may have: a cable in memory loses nothing.
            let line = "echo reno > /proc/sys/net/ipv4/tcp_congestion_control";
            run("ip", &["netns", "exec", namespace, "sh", "-c", line])?;
        }
        Ok(network)
    }

    /// Sets the cable up for the next server. Beside AF_XDP the client's kernel fills in checksums,
    /// as no card does it here; beside the kernel's TCP all is left as it was made. With `cores`
    /// frames for the server are received on the first and those for the client on the second.
    ///
    /// # Errors
    /// A setting is refused.
    pub fn prepare(&self, is_xdp: bool, cores: Option<(usize, usize)>) -> Result<(), String> {
        let checksums = if is_xdp { "off" } else { "on" };
        let Network { server, client } = self;
        ip(&format!("netns exec {client} ethtool -K {CLIENT_INTERFACE} tx {checksums} tso {checksums}"))?;
        let mask = |core: Option<usize>| core.map_or("0".to_owned(), |core| format!("{:x}", 1u64 << core));
        let ends = [
            (server, INTERFACE, mask(cores.map(|cores| cores.0))),
            (client, CLIENT_INTERFACE, mask(cores.map(|cores| cores.1))),
        ];
        for (namespace, interface, mask) in ends {
            let line = format!("echo {mask} > /sys/class/net/{interface}/queues/rx-0/rps_cpus");
            run("ip", &["netns", "exec", namespace, "sh", "-c", &line])?;
        }
        Ok(())
    }

    /// Has threads of the kernel receive for the server's interface, on this core; their numbers.
    /// An interface can have them from when a program of XDP is attached.
    ///
    /// # Errors
    /// The kernel has none.
    pub fn receive_on(&self, core: usize) -> Result<Vec<u32>, String> {
        let line = format!("echo 1 > /sys/class/net/{INTERFACE}/threaded");
        run("ip", &["netns", "exec", &self.server, "sh", "-c", &line])?;
        Ok(receivers_on(core))
    }

    /// A program in the server's namespace, on this core.
    pub fn command(&self, core: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.server, "taskset", "-c", &core.to_string()]);
        command
    }

    /// Has the calling thread be the client from now on.
    ///
    /// # Errors
    /// As setns(2).
    pub fn enter(&self) -> Result<(), String> {
        let entered = File::open(format!("/run/netns/{}", self.client))
            .and_then(|file| Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?));
        entered.map_err(|error| format!("cannot enter the client's network namespace: {error}"))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in [&self.server, &self.client] {
            // What was not made is not there.
            drop(ip(&format!("netns del {name}")));
        }
    }
}

/// From now on a thread, and what it starts, runs before the programs of others: what these do is
/// not measured. What receives goes before the server, as an interrupt would.
///
/// # Errors
/// It may not.
pub fn go_first(thread: u32, priority: u32) -> Result<(), String> {
    run("chrt", &["-f", "-p", &priority.to_string(), &thread.to_string()])
}

/// The kernel's threads that receive for the server's interface; from now on they run on this core.
fn receivers_on(core: usize) -> Vec<u32> {
    let name = format!("napi/{INTERFACE}");
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_one = |number: &u32| {
        std::fs::read_to_string(format!("/proc/{number}/comm")).is_ok_and(|comm| comm.starts_with(&name))
    };
    let found: Vec<u32> = numbers.filter(is_one).collect();
    for number in &found {
        let mut set = CpuSet::new();
        set.set(core);
        // One that is gone receives nothing.
        let _ = sched_setaffinity(Pid::from_raw(number.cast_signed()), &set);
        drop(go_first(*number, 2));
    }
    found
}
