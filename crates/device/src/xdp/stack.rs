//! [`Stack`]: the server's side of TCP over frames, without the kernel.
//!
//! It finds the connection of each received segment by itself and lets `smoltcp` see the segment
//! with that connection alone: connections that are idle cost nothing in a tick.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::Device;
use smoltcp::socket::tcp::{self, CongestionControl};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, IpListenEndpoint};
use stratakv_base::fault_point;

use super::buffers::{BufferBudget, BufferMemory, BufferSizes};
use super::connection::{Connection, ConnectionPhase};
use super::connections::{ConnectionKey, Connections, Oldest};
use super::frame::{Ends, FrameClass, Segment, classify};
use super::frame_io::FrameIo;
use super::handle::{Order, Orders, SocketId, StackSocket};
use super::port::{EthernetPort, IpPort};
use crate::ring::{Completion, NetOutcome, NetRequest, Socket};
use crate::socket::SocketHandle;

/// Frames that one tick takes in at most: the rest has its turn after what these caused.
const FRAMES_A_TICK: usize = 256;
/// How long a peer may take to acknowledge our SYN.
const OPENING_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a closed connection may take to end, as Linux's `tcp_fin_timeout`.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(60);
/// When to try again what found no room for its frame.
const RETRY: Duration = Duration::from_millis(1);

/// What a stack is, and its bounds.
#[derive(Clone, Debug)]
pub struct StackOptions {
    /// The interface's own Ethernet address.
    pub hardware: [u8; 6],
    /// Its IP addresses and the lengths of their prefixes, up to 8.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Longest IP packet, in bytes.
    pub mtu: usize,
    /// Most connections, those in closing included.
    pub connections_max: usize,
    /// Most connections that are opening, and for each listener most that wait to be accepted.
    pub backlog: usize,
    /// How much connections hold.
    pub buffers: BufferSizes,
    /// How often a silent peer is asked whether it is there.
    pub probe_every: std::time::Duration,
    /// A connection is reset whose peer acknowledges nothing for so long.
    pub peer_timeout: std::time::Duration,
}

impl StackOptions {
    /// The defaults: 10,000 connections, a backlog of 256, those of [`BufferSizes`], a probe every
    /// 30 s, 75 s for the peer.
    pub fn new(hardware: [u8; 6], addresses: Vec<(IpAddr, u8)>, mtu: usize) -> StackOptions {
        StackOptions {
            hardware,
            addresses,
            mtu,
            connections_max: 10_000,
            backlog: 256,
            buffers: BufferSizes::default(),
            probe_every: std::time::Duration::from_secs(30),
            peer_timeout: std::time::Duration::from_secs(75),
        }
    }
}

/// What happened to frames, since the stack was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackCounters {
    /// Received.
    pub frames: u64,
    /// Truncated, malformed or damaged: dropped.
    pub damaged: u64,
    /// Not for this stack: dropped.
    pub foreign: u64,
    /// Connections whose opening made room for another's.
    pub evicted: u64,
    /// SYNs dropped because as many connections are open as may be.
    pub refused: u64,
}

/// See the module.
pub struct Stack<F> {
    io: F,
    options: StackOptions,
    buffers: Arc<BufferBudget>,
    /// Answers segments; it is made anew for each connection, since its random numbers are no
    /// secret once some of them are known, and sequence numbers must be.
    segments: Interface,
    neighbors: Interface,
    nobody: SocketSet<'static>,
    listeners: Vec<Listener>,
    connections: Connections,
    opening: Openings,
    orphans: Oldest,
    orders: Arc<Orders>,
    seeds: Seeds,
    counters: StackCounters,
    done: Vec<Completion>,
    now: Instant,
}

/// Connections that are opening.
#[derive(Default)]
struct Openings {
    /// Some of them are no longer.
    order: Oldest,
    count: usize,
}

struct Listener {
    local: SocketAddr,
    is_listening: bool,
    accepts: VecDeque<(u64, Socket)>,
    ready: VecDeque<ConnectionKey>,
}

/// Random numbers that nobody can guess, or that follow from a given one.
pub(super) enum Seeds {
    Random {
        bytes: Box<[u8; 4096]>,
        at: usize,
    },
    #[cfg_attr(not(any(test, fuzzing)), expect(dead_code, reason = "for tests that repeat a run"))]
    Counted(u64),
}

impl Seeds {
    pub(super) fn random() -> Seeds {
        Seeds::Random { bytes: Box::new([0; 4096]), at: 4096 }
    }

    fn next(&mut self) -> u64 {
        match self {
            Seeds::Counted(next) => {
                *next = next.wrapping_add(0x9E37_79B9_7F4A_7C15);
                *next
            }
            Seeds::Random { bytes, at } => {
                if *at + 8 > bytes.len() {
                    // Without the system's randomness those before are mixed on: foldhash has a
                    // secret of its own.
                    if getrandom::fill(&mut bytes[..]).is_err() {
                        use std::hash::BuildHasher;
                        let secret = foldhash::fast::RandomState::default();
                        bytes.chunks_mut(8).enumerate().for_each(|(number, chunk)| {
                            chunk.copy_from_slice(&secret.hash_one(number).to_ne_bytes()[..chunk.len()]);
                        });
                    }
                    *at = 0;
                }
                let seed = bytes.get(*at..*at + 8).and_then(|seed| seed.try_into().ok()).unwrap_or_default();
                *at += 8;
                u64::from_ne_bytes(seed)
            }
        }
    }
}

impl<F: FrameIo> Stack<F> {
    /// A stack over `io` that listens nowhere.
    pub fn new(io: F, options: StackOptions) -> Stack<F> {
        Stack::with_seeds(io, options, Seeds::random())
    }

    pub(super) fn with_seeds(mut io: F, options: StackOptions, mut seeds: Seeds) -> Stack<F> {
        let (now, hardware) = (Instant::ZERO, EthernetAddress(options.hardware));
        let mtu = options.mtu;
        let mut port = EthernetPort { frame: None, io: &mut io, mtu };
        let neighbors = interface(&options, HardwareAddress::Ethernet(hardware), seeds.next(), &mut port);
        let mut port = IpPort { packet: None, io: &mut io, from: hardware, to: hardware, mtu };
        let segments = interface(&options, HardwareAddress::Ip, seeds.next(), &mut port);
        Stack {
            io,
            buffers: BufferBudget::new(options.buffers),
            options,
            segments,
            neighbors,
            nobody: SocketSet::new(Vec::new()),
            listeners: Vec::new(),
            connections: Connections::default(),
            opening: Openings::default(),
            orphans: Oldest::default(),
            orders: Arc::default(),
            seeds,
            counters: StackCounters::default(),
            done: Vec::new(),
            now,
        }
    }

    /// Listens at an address of the stack.
    pub fn listen(&mut self, local: SocketAddr) -> Socket {
        let number = self.listeners.len() as u32;
        let (accepts, ready) = (VecDeque::new(), VecDeque::new());
        self.listeners.push(Listener { local, is_listening: true, accepts, ready });
        Arc::new(SocketHandle::Stack(StackSocket::listener(number, local, &self.orders)))
    }

    /// What happened to frames so far.
    pub fn counters(&self) -> StackCounters {
        self.counters
    }

    /// Connections, those in opening and closing included.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Where frames come from and go to.
    pub fn io(&self) -> &F {
        &self.io
    }

    /// See [`Stack::io`].
    pub fn io_mut(&mut self) -> &mut F {
        &mut self.io
    }

    /// Whether a request on this socket is one for this stack.
    pub fn has(&self, socket: &Socket) -> bool {
        self.id_of(socket).is_some()
    }

    fn id_of(&self, socket: &Socket) -> Option<SocketId> {
        match &**socket {
            SocketHandle::Stack(socket) if socket.is_of(&self.orders) => Some(socket.id),
            _ => None,
        }
    }

    /// Takes a request on a socket of this stack.
    pub fn request(&mut self, tag: u64, request: NetRequest) {
        let (NetRequest::Accept { listener: socket }
        | NetRequest::Recv { socket, .. }
        | NetRequest::Send { socket, .. }) = &request;
        let socket = Arc::clone(socket);
        let id = self.id_of(&socket);
        match (request, id) {
            (NetRequest::Accept { .. }, Some(SocketId::Listener(number))) => self.accept(tag, number, socket),
            (NetRequest::Recv { buffer, .. }, Some(SocketId::Connection(slot, generation))) => {
                let key = (slot, generation);
                match self.connections.get(key) {
                    Some(connection) => {
                        connection.recv(tag, socket, buffer);
                        connection.advance(&mut self.done);
                        self.connections.list(key);
                    }
                    None => self.refuse(tag, NetOutcome::Recv(buffer, Err(reset()))),
                }
            }
            (NetRequest::Send { chunks, .. }, Some(SocketId::Connection(slot, generation))) => {
                let key = (slot, generation);
                match self.connections.get(key) {
                    Some(connection) => {
                        connection.send(tag, socket, chunks);
                        connection.advance(&mut self.done);
                        self.connections.list(key);
                    }
                    None => self.refuse(tag, NetOutcome::Send(Err(reset()))),
                }
            }
            (NetRequest::Accept { .. }, _) => self.refuse(tag, NetOutcome::Accept(Err(no_socket()))),
            (NetRequest::Recv { buffer, .. }, _) => self.refuse(tag, NetOutcome::Recv(buffer, Err(no_socket()))),
            (NetRequest::Send { .. }, _) => self.refuse(tag, NetOutcome::Send(Err(no_socket()))),
        }
    }

    fn refuse(&mut self, tag: u64, outcome: NetOutcome) {
        self.done.push(Completion::Net { tag, outcome });
    }

    fn accept(&mut self, tag: u64, number: u32, socket: Socket) {
        match self.listeners.get_mut(number as usize) {
            Some(listener) if listener.is_listening => {
                listener.accepts.push_back((tag, socket));
                self.hand_over_ready(number as usize);
            }
            _ => self.refuse(tag, NetOutcome::Accept(Err(std::io::Error::from_raw_os_error(libc::EINVAL)))),
        }
    }

    /// Gives connections that wait to be accepted to those who accept.
    fn hand_over_ready(&mut self, number: usize) {
        let Some(listener) = self.listeners.get_mut(number) else { return };
        while !listener.accepts.is_empty() {
            let Some(key) = listener.ready.pop_front() else { return };
            let Some(connection) = self.connections.get(key) else { continue };
            let Some((tag, _)) = listener.accepts.pop_front() else { return };
            connection.phase = ConnectionPhase::Open;
            let (id, ends) = (SocketId::Connection(key.0, key.1), connection.ends);
            let socket = StackSocket::connection(id, (ends.local, ends.peer), &connection.untaken_bytes, &self.orders);
            let outcome = NetOutcome::Accept(Ok((Arc::new(SocketHandle::Stack(socket)), Some(ends.peer))));
            self.done.push(Completion::Net { tag, outcome });
        }
    }

    /// Ends the requests in flight on a socket, and the socket.
    pub fn shutdown(&mut self, socket: &Socket) {
        self.end_requests(socket, None);
        match self.id_of(socket) {
            Some(SocketId::Listener(number)) => self.end_listening(number),
            Some(id) => {
                if let Some((key, connection)) = self.connections.of_socket(id) {
                    connection.end_receiving();
                    connection.tcp().close();
                    self.connections.list(key);
                }
            }
            None => {}
        }
    }

    /// Ends the requests in flight on a socket.
    pub fn cancel(&mut self, socket: &Socket) {
        self.end_requests(socket, Some(libc::ECANCELED));
    }

    fn end_requests(&mut self, socket: &Socket, errno: Option<i32>) {
        match self.id_of(socket) {
            Some(SocketId::Listener(number)) => {
                let Some(listener) = self.listeners.get_mut(number as usize) else { return };
                for (tag, _) in std::mem::take(&mut listener.accepts) {
                    let error = std::io::Error::from_raw_os_error(errno.unwrap_or(libc::EINVAL));
                    self.refuse(tag, NetOutcome::Accept(Err(error)));
                }
            }
            Some(id) => {
                if let Some((_, connection)) = self.connections.of_socket(id) {
                    connection.end_requests(errno, &mut self.done);
                }
            }
            None => {}
        }
    }

    fn end_listening(&mut self, number: u32) {
        let Some(listener) = self.listeners.get_mut(number as usize) else { return };
        listener.is_listening = false;
        for key in std::mem::take(&mut listener.ready) {
            self.abort(key);
        }
    }

    /// Resets a connection.
    fn abort(&mut self, key: ConnectionKey) {
        let since = self.now;
        if let Some(connection) = self.connections.get(key) {
            connection.phase = ConnectionPhase::Orphan { since };
            connection.tcp().abort();
            self.connections.list(key);
        }
    }

    /// One tick: takes frames in, sees to timers, sends what there is to send. True if there was
    /// anything.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn tick(&mut self, now: Instant) -> std::io::Result<bool> {
        self.now = now;
        for order in self.orders.take() {
            self.obey(order);
        }
        let mut frames = 0;
        while frames < FRAMES_A_TICK
            && let Some(frame) = self.io.receive()
        {
            self.take_frame(frame.as_ref());
            self.io.release(frame);
            frames += 1;
        }
        self.counters.frames += frames as u64;
        self.connections.list_due(now);
        let has_news = frames > 0 || self.connections.has_listed();
        self.send_listed();
        self.io.flush()?;
        Ok(has_news)
    }

    /// Moves completed requests to the end of `completions`.
    pub fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.done);
    }

    /// Whether requests have completed.
    pub fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// When the next timer is due; now, if something waits for the next tick.
    pub fn next_timer(&self) -> Option<Instant> {
        if self.connections.has_listed() { Some(self.now) } else { self.connections.next_timer() }
    }

    /// Resets all connections: their peers should not wait for an end that nobody will send.
    pub fn reset_all(&mut self) {
        for key in self.connections.keys() {
            self.abort(key);
        }
        self.send_listed();
    }

    /// Whether what was closed is still being sent.
    pub fn has_orphans(&mut self) -> bool {
        let keys = self.connections.keys();
        keys.into_iter().any(|key| {
            self.connections.get(key).is_some_and(|connection| {
                matches!(connection.phase, ConnectionPhase::Orphan { .. }) && connection.tcp().send_queue() > 0
            })
        })
    }

    fn obey(&mut self, order: Order) {
        let (Order::Close(id) | Order::EndSending(id) | Order::EndReceiving(id) | Order::LastWords(id, _)) = &order;
        if let (SocketId::Listener(number), Order::Close(_)) = (*id, &order) {
            return self.end_listening(number);
        }
        let Some((key, connection)) = self.connections.of_socket(*id) else { return };
        match order {
            Order::Close(_) => {
                connection.phase = ConnectionPhase::Orphan { since: self.now };
                // Who sent more than was read learns that it was not.
                let was_read = connection.tcp().recv_queue() == 0;
                if was_read {
                    connection.tcp().close()
                } else {
                    connection.tcp().abort()
                }
                self.orphans.push(key);
            }
            Order::EndSending(_) => connection.end_sending(),
            Order::EndReceiving(_) => connection.end_receiving(),
            // Without room they are lost, as is said where they come from.
            Order::LastWords(_, bytes) => drop(connection.tcp().send_slice(&bytes)),
        }
        connection.advance(&mut self.done);
        self.connections.list(key);
    }

    fn take_frame(&mut self, frame: &[u8]) {
        match classify(frame) {
            FrameClass::Tcp(segment) => self.take_segment(&segment, frame),
            FrameClass::Neighbor => {
                let mut port = EthernetPort { frame: Some(frame), io: &mut self.io, mtu: self.options.mtu };
                self.neighbors.poll_ingress_single(self.now, &mut port, &mut self.nobody);
            }
            FrameClass::Icmp { from, packet } => self.answer_as_nobody(frame.get(packet), from),
            FrameClass::Damaged => self.counters.damaged += 1,
            FrameClass::Foreign => self.counters.foreign += 1,
        }
    }

    fn take_segment(&mut self, segment: &Segment, frame: &[u8]) {
        let packet = frame.get(segment.packet.clone());
        let mut known = self.connections.of_ends(&segment.ends);
        // A new connection from where an old one has ended.
        if let Some(key) = known.filter(|_| segment.opens)
            && let Some(connection) = self.connections.get(key)
            && matches!(connection.tcp().state(), tcp::State::TimeWait | tcp::State::Closed)
        {
            if matches!(connection.phase, ConnectionPhase::Orphan { .. }) {
                self.remove(key);
            }
            known = None;
        }
        let key = match known {
            Some(key) => key,
            None if segment.opens && self.listener_of(segment.ends.local).is_some() => match self.open(segment) {
                Some(key) => key,
                None => return,
            },
            None => return self.answer_as_nobody(packet, segment.from),
        };
        let Some(connection) = self.connections.get(key) else { return };
        connection.neighbor = segment.from;
        connection.stall.learn(segment.heard);
        let mut port = IpPort {
            packet,
            io: &mut self.io,
            from: EthernetAddress(self.options.hardware),
            to: segment.from,
            mtu: self.options.mtu,
        };
        // What a peer says wrongly ends its connection, not the server.
        let (segments, now) = (&mut self.segments, self.now);
        let process = || _ = segments.poll_ingress_single(now, &mut port, &mut connection.sockets);
        if catch_unwind(AssertUnwindSafe(process)).is_err() {
            tracing::error!(peer = %segment.ends.peer, "a defect of TCP ended a connection");
            return self.drop_defective(key);
        }
        connection.advance(&mut self.done);
        self.connections.list(key);
        self.follow(key);
    }

    /// Ends the requests of a connection that cannot go on, and forgets it.
    fn drop_defective(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.connections.get(key) {
            connection.end_requests(Some(libc::ECONNRESET), &mut self.done);
        }
        self.remove(key);
    }

    /// Resets, and answers to echo requests.
    fn answer_as_nobody(&mut self, packet: Option<&[u8]>, to: EthernetAddress) {
        let from = EthernetAddress(self.options.hardware);
        let mut port = IpPort { packet, io: &mut self.io, from, to, mtu: self.options.mtu };
        self.segments.poll_ingress_single(self.now, &mut port, &mut self.nobody);
    }

    fn listener_of(&self, local: SocketAddr) -> Option<usize> {
        self.listeners.iter().position(|listener| listener.is_listening && listener.local == local)
    }

    /// Room for a connection that opens: within the bounds, the oldest that has not got far makes
    /// room for it.
    fn open(&mut self, segment: &Segment) -> Option<ConnectionKey> {
        let mut has_room = self.opening.count < self.options.backlog;
        fault_point!("xdp_backlog_unbounded", has_room = true);
        if !has_room {
            let connections = &mut self.connections;
            let is_opening = |key| connections.get(key).is_some_and(|found| found.phase == ConnectionPhase::Opening);
            let oldest = self.opening.order.pop(is_opening)?;
            self.counters.evicted += 1;
            self.remove(oldest);
        }
        if self.connections.len() >= self.options.connections_max {
            let connections = &mut self.connections;
            let is_orphan = |key| connections.get(key).is_some_and(|found| found.phase != ConnectionPhase::Open);
            let Some(oldest) = self.orphans.pop(is_orphan) else {
                self.counters.refused += 1;
                return None;
            };
            self.counters.evicted += 1;
            self.remove(oldest);
        }
        // Without memory it is as if the SYN had been lost.
        let memory = BufferMemory::new(&self.buffers).ok()?;
        let mut socket = Connection::socket_over(&memory);
        socket.set_nagle_enabled(false);
        socket.set_congestion_control(CongestionControl::Cubic);
        socket.set_timeout(Some(OPENING_TIMEOUT));
        let local = segment.ends.local;
        // Refused only for port 0, which nobody listens at.
        socket.listen(IpListenEndpoint { addr: Some(IpAddress::from(local.ip())), port: local.port() }).ok()?;
        let hardware = EthernetAddress(self.options.hardware);
        let mut port = IpPort { packet: None, io: &mut self.io, from: hardware, to: hardware, mtu: self.options.mtu };
        self.segments = interface(&self.options, HardwareAddress::Ip, self.seeds.next(), &mut port);
        let key = self.connections.insert(Connection::new(segment.ends, segment.from, (socket, memory)));
        self.opening.count += 1;
        self.opening.order.push(key);
        let (connections, backlog) = (&mut self.connections, self.options.backlog);
        self.opening
            .order
            .trim(backlog, |key| connections.get(*key).is_some_and(|found| found.phase == ConnectionPhase::Opening));
        Some(key)
    }

    fn remove(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.connections.remove(key) {
            self.opening.count -= usize::from(connection.phase == ConnectionPhase::Opening);
        }
    }

    /// Does what a connection's new state asks for.
    fn follow(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get(key) else { return };
        let (state, ends) = (connection.tcp().state(), connection.ends);
        match connection.phase {
            ConnectionPhase::Opening => match state {
                tcp::State::SynReceived => {}
                tcp::State::Listen | tcp::State::Closed => self.remove(key),
                _ => self.opened(key, ends),
            },
            ConnectionPhase::Ready | ConnectionPhase::Open => {
                if connection.is_over() {
                    self.connections.forget_ends(ends, key);
                }
            }
            ConnectionPhase::Orphan { since } => {
                let is_late = self.now >= since + ORPHAN_TIMEOUT && state != tcp::State::Closed;
                // Who sends to one who left is told so.
                if is_late || connection.tcp().recv_queue() > 0 {
                    connection.tcp().abort();
                    self.connections.list(key);
                } else if connection.is_over() {
                    self.remove(key);
                }
            }
        }
    }

    fn opened(&mut self, key: ConnectionKey, ends: Ends) {
        let (probe_every, peer_timeout) = (self.options.probe_every.into(), self.options.peer_timeout.into());
        let Some(connection) = self.connections.get(key) else { return };
        connection.opened(probe_every, peer_timeout);
        self.opening.count -= 1;
        let number = self.listener_of(ends.local);
        let Some((number, listener)) = number.and_then(|number| Some((number, self.listeners.get_mut(number)?))) else {
            return self.abort(key);
        };
        if listener.ready.len() >= self.options.backlog {
            return self.abort(key);
        }
        listener.ready.push_back(key);
        self.hand_over_ready(number);
    }

    /// Sends what the listed connections have to send. Whose request has just been handed over has
    /// its turn at the next tick: the acknowledgement goes with the answer.
    fn send_listed(&mut self) {
        for key in self.connections.take_listed() {
            let Some(connection) = self.connections.get(key) else { continue };
            connection.is_listed = false;
            if connection.awaits_answer() {
                self.connections.list(key);
                continue;
            }
            let mut port = IpPort {
                packet: None,
                io: &mut self.io,
                from: EthernetAddress(self.options.hardware),
                to: connection.neighbor,
                mtu: self.options.mtu,
            };
            while self.segments.poll_egress(self.now, &mut port, &mut connection.sockets)
                == smoltcp::iface::PollResult::SocketStateChanged
            {}
            connection.advance(&mut self.done);
            let is_unacknowledged = connection.tcp().send_queue() > 0 && !connection.is_over();
            if connection.stall.is_due(is_unacknowledged, self.now) {
                connection.stall.ask(&mut port, connection.ends, self.now);
            }
            let mut timer = self.segments.poll_at(self.now, &connection.sockets);
            timer = [timer, connection.stall.ask_at()].into_iter().flatten().min();
            if let ConnectionPhase::Orphan { since } = connection.phase {
                timer = Some(timer.map_or(since + ORPHAN_TIMEOUT, |at| at.min(since + ORPHAN_TIMEOUT)));
            }
            if let Some(at) = timer {
                self.connections.set_timer(key, at.max(self.now + RETRY));
            }
            self.follow(key);
        }
    }
}

fn interface(
    options: &StackOptions,
    hardware: HardwareAddress,
    seed: u64,
    port: &mut (impl Device + ?Sized),
) -> Interface {
    let mut config = Config::new(hardware);
    config.random_seed = seed;
    let mut interface = Interface::new(config, port, Instant::ZERO);
    interface.update_ip_addrs(|addresses| {
        for (address, prefix) in &options.addresses {
            // More than fit were refused when the options were read.
            let _ = addresses.push(IpCidr::new(IpAddress::from(*address), *prefix));
        }
    });
    interface
}

fn reset() -> std::io::Error {
    std::io::Error::from_raw_os_error(libc::ECONNRESET)
}

fn no_socket() -> std::io::Error {
    std::io::Error::from_raw_os_error(libc::EBADF)
}
