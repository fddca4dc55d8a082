//! Opening AF_XDP on an interface: program, sockets, and why it is refused.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::bpf::{Link, Program, SocketMap};
use super::filter::{Filter, PASS, pass_all};
use super::interface::Interface;
use super::stack::StackOptions;
use super::umem::{HEADROOM, Umem, UmemIo};
use super::xsk::XskRings;

/// Shortest packet that IPv6 demands every link to carry.
pub(super) const MTU_MIN: usize = 1280;
const ETHERNET_BYTES: usize = 14;
/// Frames of a UMEM: a length that kernels take, for packets of up to 1500 bytes and for longer
/// ones. Those do not get longer than a page: peers are told so (MSS).
const FRAME_BYTES: usize = 2048;
const FRAME_BYTES_LONG: usize = 4096;
/// How long a queue in use is asked for again: the kernel ends a killed process's rings later.
const IN_USE_PATIENCE: Duration = Duration::from_secs(2);
/// Most addresses of one interface.
pub const ADDRESSES_MAX: usize = 8;

/// Where to serve without the kernel's TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpOptions {
    /// The interface, such as `eth1`.
    pub interface: String,
    /// Addresses that the stack has there, with the lengths of their prefixes; up to 8.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Bytes of frames for each receive queue; and as many for what its connections have buffered
    /// beyond 48 KiB each.
    pub umem_bytes: u64,
    /// Most connections of each receive queue.
    pub connections_max: usize,
}

/// Bytes of frames for each receive queue, if nothing is said.
pub const UMEM_BYTES: u64 = 16 << 20;
const UMEM_BYTES_MIN: u64 = 1 << 20;
const UMEM_BYTES_MAX: u64 = 1 << 30;

/// Why AF_XDP cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve through AF_XDP on {interface}: {what}: {error}; {hint}")]
pub struct XdpRefusal {
    /// The interface.
    pub interface: String,
    /// What was tried.
    pub what: &'static str,
    /// What to do next.
    pub hint: &'static str,
    /// Why.
    pub error: io::Error,
}

/// An interface whose receive queues are ours, and all of whose frames go to the kernel as yet.
#[derive(Debug)]
pub struct PreparedXdp {
    options: XdpOptions,
    interface: Interface,
    /// With what tells of changes of interfaces.
    queues: Vec<(UmemIo<XskRings>, OwnedFd)>,
    link: Link,
}

/// Whether an interface is there.
#[derive(Debug, Default)]
pub struct XdpHealth {
    is_gone: AtomicBool,
}

impl XdpHealth {
    /// Whether it has been removed: nobody is served there any more.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Notes that it has been removed; true if that is news.
    pub(super) fn is_newly_gone(&self) -> bool {
        !self.is_gone.swap(true, Ordering::Relaxed)
    }
}

/// The XDP program on an interface; its sockets, one for each receive queue.
#[derive(Debug)]
pub struct XdpPort {
    queues: Vec<XdpQueue>,
    health: Arc<XdpHealth>,
}

/// One receive queue, for one thread.
#[derive(Debug)]
pub struct XdpQueue {
    pub(super) io: UmemIo<XskRings>,
    pub(super) options: StackOptions,
    pub(super) interface: String,
    /// Can be read from when an interface has changed.
    pub(super) news: OwnedFd,
    pub(super) health: Arc<XdpHealth>,
    /// Detached when the last queue is dropped.
    pub(super) attachment: Arc<Attachment>,
}

/// What keeps frames coming.
#[derive(Debug)]
pub(super) struct Attachment {
    _link: Link,
    _program: Program,
    _sockets: SocketMap,
}

impl XdpOptions {
    /// Whether the options make sense by themselves.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), String> {
        if self.addresses.is_empty() {
            return Err("AF_XDP needs at least one address that it serves, such as --address 10.0.0.2/24".into());
        }
        if self.addresses.len() > ADDRESSES_MAX {
            return Err(format!("{} addresses: AF_XDP serves up to {ADDRESSES_MAX}", self.addresses.len()));
        }
        for (address, prefix) in &self.addresses {
            let longest = if address.is_ipv4() { 32 } else { 128 };
            if *prefix > longest || address.is_unspecified() || address.is_multicast() || address.is_loopback() {
                return Err(format!("{address}/{prefix} is no address of a host on a network"));
            }
        }
        if !(UMEM_BYTES_MIN..=UMEM_BYTES_MAX).contains(&self.umem_bytes) {
            return Err(format!("{} bytes of frames: AF_XDP takes 1 MiB to 1 GiB a queue", self.umem_bytes));
        }
        Ok(())
    }

    fn refusal(&self, what: &'static str, hint: &'static str, error: io::Error) -> XdpRefusal {
        XdpRefusal { interface: self.interface.clone(), what, hint, error }
    }

    /// Opens all receive queues of the interface, of which there may be up to `queues_max`, and
    /// takes frames to these ports from then on.
    ///
    /// # Errors
    /// See [`XdpRefusal`].
    pub fn open(&self, ports: &[u16], queues_max: usize) -> Result<XdpPort, XdpRefusal> {
        self.prepare(queues_max)?.serve(ports)
    }

    /// Opens all receive queues of the interface, of which there may be up to `queues_max`, and
    /// attaches a program that leaves all frames to the kernel as yet: what can be refused is.
    ///
    /// # Errors
    /// See [`XdpRefusal`].
    pub fn prepare(&self, queues_max: usize) -> Result<PreparedXdp, XdpRefusal> {
        self.check().map_err(|why| self.refusal("the options", "correct them", io::Error::other(why)))?;
        let interface = Interface::of(&self.interface)
            .map_err(|error| self.refusal("ask for the interface", "`ip link` lists those there are", error))?;
        if interface.mtu < MTU_MIN {
            let error = io::Error::other(format!("its MTU is {}", interface.mtu));
            return Err(self.refusal("use the interface", "give it an MTU of 1280 or more: `ip link set`", error));
        }
        let mut queues = Vec::new();
        for queue in 0..=queues_max as u32 {
            match self.open_queue(&interface, queue) {
                Ok(rings) if queues.len() < queues_max => queues.push(rings),
                Ok(_) => {
                    let error = io::Error::other(format!("more than {queues_max} receive queues"));
                    let hint = "give it as many as there are server threads (`ethtool -L INTERFACE combined N`), or raise --threads";
                    return Err(self.refusal("take each queue with one thread", hint, error));
                }
                // There are no more.
                Err(error) if queue > 0 && error.raw_os_error() == Some(libc::EINVAL) => break,
                Err(error) => {
                    let hint = hint_of(&error);
                    return Err(self.refusal("bind a socket to a receive queue", hint, error));
                }
            }
        }
        let refused = |what| move |error: io::Error| self.refusal(what, hint_of(&error), error);
        let news = queues.iter().map(|_| link_news()).collect::<io::Result<Vec<_>>>();
        let news = news.map_err(refused("hear of changes of interfaces"))?;
        let program = Program::load(&pass_all()).map_err(refused("load the XDP program"))?;
        let link = program.attach(interface.index).map_err(refused("attach the XDP program"))?;
        Ok(PreparedXdp { options: self.clone(), interface, queues: queues.into_iter().zip(news).collect(), link })
    }

    fn open_queue(&self, interface: &Interface, queue: u32) -> io::Result<UmemIo<XskRings>> {
        let frame_bytes = frame_bytes(interface.mtu);
        let frames = (self.umem_bytes / frame_bytes as u64).min(8192) as u32;
        let umem = Arc::new(Umem::new(frame_bytes, frames)?);
        let started = Instant::now();
        loop {
            match XskRings::open(&umem, interface.index, queue) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && started.elapsed() < IN_USE_PATIENCE => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                rings => return Ok(UmemIo::new(umem, rings?)),
            }
        }
    }
}

impl PreparedXdp {
    /// Takes frames to these ports from now on.
    ///
    /// # Errors
    /// See [`XdpRefusal`].
    pub fn serve(self, ports: &[u16]) -> Result<XdpPort, XdpRefusal> {
        let PreparedXdp { options: given, interface, queues, link } = self;
        let refused = |what| {
            let given = &given;
            move |error: io::Error| given.refusal(what, hint_of(&error), error)
        };
        let map = SocketMap::new(queues.len() as u32).map_err(refused("make a map of sockets"))?;
        for (queue, (io, _)) in (0..).zip(&queues) {
            map.set(queue, io.rings.as_fd()).map_err(refused("give a queue to a socket"))?;
        }
        let addresses = given.addresses.iter().map(|(address, _)| *address).collect();
        let filter = Filter { addresses, ports: ports.to_vec(), sockets: map.raw(), without_socket: PASS };
        let program = Program::load(&filter.program()).map_err(refused("load the XDP program"))?;
        link.replace_with(&program).map_err(refused("attach the XDP program"))?;
        let is_zero_copy = queues.iter().all(|(io, _)| io.rings.is_zero_copy);
        tracing::info!(
            interface = given.interface,
            queues = queues.len(),
            mode = if link.is_native { "native" } else { "generic" },
            frames = if is_zero_copy { "zero-copy" } else { "copied" },
            "AF_XDP takes frames"
        );
        let mtu = interface.mtu.min(frame_bytes(interface.mtu) - HEADROOM - ETHERNET_BYTES);
        let mut options = StackOptions::new(interface.hardware, given.addresses.clone(), mtu);
        options.connections_max = given.connections_max;
        options.buffers.shared = usize::try_from(given.umem_bytes).unwrap_or(usize::MAX);
        let attachment = Arc::new(Attachment { _link: link, _program: program, _sockets: map });
        let health: Arc<XdpHealth> = Arc::default();
        let queue = |(io, news)| XdpQueue {
            io,
            options: options.clone(),
            interface: given.interface.clone(),
            news,
            health: Arc::clone(&health),
            attachment: Arc::clone(&attachment),
        };
        Ok(XdpPort { queues: queues.into_iter().map(queue).collect(), health })
    }
}

/// A socket that can be read from when an interface of this network namespace has changed, or is
/// gone.
fn link_news() -> io::Result<OwnedFd> {
    use rustix::net::netlink::SocketAddrNetlink;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
    // RTMGRP_LINK, of protocol 0, which is NETLINK_ROUTE.
    const LINKS: u32 = 1;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, LINKS))?;
    Ok(socket)
}

pub(super) fn frame_bytes(mtu: usize) -> usize {
    if mtu + ETHERNET_BYTES + HEADROOM <= FRAME_BYTES { FRAME_BYTES } else { FRAME_BYTES_LONG }
}

fn hint_of(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "run as root, or give the program CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF (and allow it to lock memory)"
        }
        Some(libc::EBUSY) => {
            "another program has the queue or an XDP program of its own there: `ip link` and `bpftool net` show it; stop it, or take another interface"
        }
        Some(libc::EAFNOSUPPORT | libc::ENOSYS) => "this kernel is built without AF_XDP: use a kernel socket instead",
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            "raise the limit of locked memory (ulimit -l), or take fewer bytes of frames"
        }
        Some(libc::ENODEV | libc::ENETDOWN) => "the interface is gone or down: `ip link set INTERFACE up`",
        Some(libc::EOPNOTSUPP | libc::ERANGE | libc::EINVAL) => {
            "the driver refuses it: lower the MTU, switch off LRO, or serve this address by a kernel socket instead"
        }
        _ => "serve this address by a kernel socket instead (--memcache)",
    }
}

impl XdpPort {
    /// Whether the interface is there.
    pub fn health(&self) -> Arc<XdpHealth> {
        Arc::clone(&self.health)
    }

    /// One for each receive queue.
    pub fn into_queues(self) -> Vec<XdpQueue> {
        self.queues
    }
}
