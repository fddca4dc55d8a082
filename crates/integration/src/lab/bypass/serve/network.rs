//! A cable between two network namespaces of the guest, by the host's `ip` and `ethtool`.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::system::finit_module;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::super::super::guest::{text, write};
use super::super::super::machine::find;
use super::super::super::pmem::MODULES;
use super::super::VETH_MODULE;

/// Programs of the host that the guest needs for it.
const TOOLS: [&str; 2] = ["ip", "ethtool"];
/// The server's end.
pub(super) const INTERFACE: &str = "xdp0";
const NAMESPACE: &str = "/run/netns/client";

/// An end of the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Server,
    Client,
}

/// The cable.
pub(super) struct Network {
    client: File,
}

/// Paths of the host's programs.
pub(in super::super) fn tools() -> Option<Vec<PathBuf>> {
    TOOLS.iter().map(|tool| find(tool)).collect()
}

impl Network {
    /// Lays it: two queues, one for each server thread.
    pub(super) fn lay() -> Result<Network, String> {
        load_veth()?;
        fs::create_dir_all("/run/netns").map_err(text("make /run/netns"))?;
        let queues = "numrxqueues 2 numtxqueues 2";
        for words in [
            "link set lo up".to_owned(),
            "netns add client".to_owned(),
            format!("link add {INTERFACE} {queues} type veth peer name eth0 {queues} netns client"),
            "-n client addr add 10.77.0.1/24 dev eth0".to_owned(),
            format!("link set {INTERFACE} up"),
            "-n client link set eth0 up".to_owned(),
        ] {
            run("/ip", &words)?;
        }
        let client = File::open(NAMESPACE).map_err(text("open the clients' namespace"))?;
        let network = Network { client };
        let entered = std::thread::scope(|scope| {
            let tool = scope.spawn(|| {
                network.enter()?;
                // Else frames have no checksum: a kernel leaves that to the cable, which has none.
                run("/ethtool", "-K eth0 tx off")?;
                // Else a connection changes its queue of the cable when it sends something again,
                // which no card does.
                write("/proc/sys/net/core/txrehash", "0")
            });
            tool.join().map_err(|_| "ethtool's thread panicked".to_owned())?
        });
        entered.map(|()| network)
    }

    /// Has the calling thread be a client from now on.
    pub(super) fn enter(&self) -> Result<(), String> {
        move_into_link_name_space(self.client.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(text("enter the clients' namespace"))
    }

    /// Takes one end down, or up again.
    pub(super) fn set_up(&self, side: Side, up: bool) -> Result<(), String> {
        let state = if up { "up" } else { "down" };
        match side {
            Side::Server => run("/ip", &format!("link set {INTERFACE} {state}")),
            Side::Client => run("/ip", &format!("-n client link set eth0 {state}")),
        }
    }
}

fn run(program: &str, words: &str) -> Result<(), String> {
    let output = Command::new(program).args(words.split(' ')).output().map_err(text(&format!("run {program}")))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program} {words}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

fn load_veth() -> Result<(), String> {
    let path = format!("/{MODULES}/{}", VETH_MODULE.replace('/', "_"));
    if !Path::new(&path).exists() {
        return Err("the kernel's package has no veth".into());
    }
    let file = File::open(&path).map_err(text(&format!("open {path}")))?;
    finit_module(&file, c"", 0).map_err(text("load veth"))
}
