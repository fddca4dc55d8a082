//! Servers and their clients in network namespaces of their own, with a cable between each server
//! and the clients. A cable can be cut and mended. All of it is made for a run and gone with it.
//! What a run left that was ended by a signal goes when the next one begins.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where each server listens in its namespace.
const PORT: u16 = 11211;

/// Of the namespaces' names; the process that made them follows.
const PREFIX: &str = "stratakv-proxies-";
/// Where `ip` keeps them.
const NAMESPACES: &str = "/run/netns";

/// See the module.
#[derive(Debug)]
pub struct Network {
    clients: String,
    servers: Vec<String>,
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot start ip: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("ip {arguments}: {}", said.trim())) }
}

fn enter(namespace: &str) -> Result<(), String> {
    let entered = File::open(format!("{NAMESPACES}/{namespace}"))
        .and_then(|file| Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?));
    entered.map_err(|error| format!("cannot enter the network namespace {namespace}: {error}"))
}

/// The process that made a namespace of this name, if it is one of ours.
fn maker(namespace: &str) -> Option<u32> {
    namespace.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

/// Removes what processes made that are no more.
fn remove_orphans() {
    let Ok(entries) = std::fs::read_dir(NAMESPACES) else { return };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let is_orphan = |maker: u32| !Path::new("/proc").join(maker.to_string()).exists();
        if maker(&name).is_some_and(is_orphan) {
            // Another run may have removed it by now.
            drop(ip(&format!("netns del {name}")));
        }
    }
}

impl Network {
    /// Makes it. Needs root and `ip`.
    ///
    /// # Errors
    /// What this machine refuses.
    pub fn new(servers: usize) -> Result<Network, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        static ONCE: Once = Once::new();
        ONCE.call_once(remove_orphans);
        let run = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let name = |of: String| format!("{PREFIX}{run}-{of}");
        let servers = (0..servers).map(|number| name(format!("server{number}"))).collect();
        let network = Network { clients: name("clients".to_owned()), servers };
        ip(&format!("netns add {}", network.clients))?;
        ip(&format!("-n {} link set lo up", network.clients))?;
        for (number, server) in network.servers.iter().enumerate() {
            network.connect(number, server)?;
        }
        Ok(network)
    }

    fn connect(&self, number: usize, server: &str) -> Result<(), String> {
        let clients = &self.clients;
        ip(&format!("netns add {server}"))?;
        ip(&format!("-n {server} link set lo up"))?;
        ip(&format!("-n {server} link add eth0 type veth peer name cable{number} netns {clients}"))?;
        ip(&format!("-n {clients} addr add {}/24 dev cable{number}", Ipv4Addr::new(10, 79, number as u8, 1)))?;
        ip(&format!("-n {server} addr add {}/24 dev eth0", self.address(number).ip()))?;
        ip(&format!("-n {clients} link set cable{number} up"))?;
        ip(&format!("-n {server} link set eth0 up"))
    }

    /// Where clients reach a server.
    pub fn address(&self, server: usize) -> SocketAddr {
        SocketAddr::from(([10, 79, server as u8, 2], PORT))
    }

    /// A shell line that has what follows it run in a server's namespace.
    pub fn line_of(&self, server: usize) -> String {
        format!("exec ip netns exec {} \"$0\" \"$@\"", self.servers[server])
    }

    /// The calling thread, and what it starts, is a client from now on.
    ///
    /// # Errors
    /// As setns(2).
    pub fn enter(&self) -> Result<(), String> {
        enter(&self.clients)
    }

    /// What this does, a server's neighbour on its side of the cable does.
    ///
    /// # Errors
    /// As setns(2).
    pub fn beside<R: Send>(&self, server: usize, work: impl FnOnce() -> R + Send) -> Result<R, String> {
        let namespace = &self.servers[server];
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| enter(namespace).map(|()| work()));
            thread.join().map_err(|_| "a thread beside a server failed".to_owned())?
        })
    }

    /// No frame passes between a server and the clients any more, and nobody is told.
    ///
    /// # Errors
    /// As `ip`.
    pub fn cut(&self, server: usize) -> Result<(), String> {
        // At the clients' end there is no carrier then: their frames are dropped, and their routes
        // stay.
        ip(&format!("-n {} link set eth0 down", self.servers[server]))
    }

    /// Frames pass again.
    ///
    /// # Errors
    /// As `ip`.
    pub fn mend(&self, server: usize) -> Result<(), String> {
        ip(&format!("-n {} link set eth0 up", self.servers[server]))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in self.servers.iter().chain([&self.clients]) {
            // What was not made is not there.
            drop(ip(&format!("netns del {name}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_namespaces_have_a_maker() {
        assert_eq!(maker("stratakv-proxies-4711-0-clients"), Some(4711));
        assert_eq!(maker("stratakv-proxies-x-0"), None);
        assert_eq!(maker("stratakv-4711-0"), None);
    }

    /// A run that was ended by a signal leaves what it made.
    #[test]
    fn what_a_process_left_that_is_no_more_is_removed() {
        let mut child = Command::new("true").spawn().expect("true is everywhere");
        let (gone, here) = (child.id(), std::process::id());
        child.wait().expect("it ends");
        let [orphan, ours] = [gone, here].map(|maker| format!("{PREFIX}{maker}-99-clients"));
        if let Err(why) = ip(&format!("netns add {orphan}")).and_then(|()| ip(&format!("netns add {ours}"))) {
            return crate::requirement::not_here(&format!("there can be no network namespaces: {why}"));
        }
        remove_orphans();
        let exists = |name: &String| Path::new(NAMESPACES).join(name).exists();
        let left = [exists(&orphan), exists(&ours)];
        drop(ip(&format!("netns del {ours}")));
        assert_eq!(left, [false, true]);
    }
}
