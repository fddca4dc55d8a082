//! Two ends of TCP over a cable that loses, doubles, delays, reorders and damages frames, from
//! seeds, without the kernel: the stack at one end, plain `smoltcp` at the other.
//!
//! The ends take turns, as memcache's do. Where both retransmit at once, two ends of `smoltcp` may
//! stand still until one gives up: each acknowledges with the sequence number it has gone back to,
//! which the other takes for an old segment. The kernel's TCP acknowledges with its newest.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{IpAddress, IpCidr};
use stratakv_base::random::Random;

use super::buffers::BufferSizes;
use super::wire::{self, Crafted, MemoryStack, OURS, PORT, THEIR_HARDWARE, THEIRS};
use crate::ring::{Chunk, Completion, NetOutcome, NetRequest, Socket};

/// The end of the client: frames in queues.
#[derive(Default)]
struct ClientPort {
    incoming: VecDeque<Vec<u8>>,
    outgoing: Vec<Vec<u8>>,
}

struct Incoming(Vec<u8>);
struct Outgoing<'a>(&'a mut Vec<Vec<u8>>);

impl RxToken for Incoming {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, consume: F) -> R {
        consume(&self.0)
    }
}

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        let mut frame = vec![0; len];
        let result = fill(&mut frame);
        self.0.push(frame);
        result
    }
}

impl Device for ClientPort {
    type RxToken<'a> = Incoming;
    type TxToken<'a> = Outgoing<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Incoming, Outgoing<'_>)> {
        Some((Incoming(self.incoming.pop_front()?), Outgoing(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outgoing<'_>> {
        Some(Outgoing(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        (capabilities.medium, capabilities.max_transmission_unit) = (Medium::Ethernet, 1514);
        capabilities
    }
}

/// When it arrives, in which order it left, whether at the server; its bytes.
type FrameUnderWay = (i64, u64, bool, Vec<u8>);

/// What the cable does to frames, in thousandths, and for how long it holds them.
struct Cable {
    lost: u64,
    doubled: u64,
    damaged: u64,
    jitter_us: u64,
    under_way: BinaryHeap<Reverse<FrameUnderWay>>,
    count: u64,
}

impl Cable {
    fn new(random: &mut Random) -> Cable {
        let strength = random.below(4);
        Cable {
            lost: strength * random.below(40),
            doubled: strength * random.below(10),
            damaged: strength * random.below(20),
            jitter_us: 1 + strength * random.below(2000),
            under_way: BinaryHeap::new(),
            count: 0,
        }
    }

    fn carry(&mut self, mut frame: Vec<u8>, to_server: bool, now: i64, random: &mut Random) {
        let happens = |thousandths, random: &mut Random| random.below(1000) < thousandths;
        if happens(self.lost, random) {
            return;
        }
        // Neighbours' questions and Ethernet headers have no checksum but that of the cable.
        let is_ip = frame.get(12..14) == Some(&[8, 0]) && frame.len() > 14;
        if is_ip && happens(self.damaged, random) {
            let at = 14 + random.below(frame.len() as u64 - 14) as usize;
            frame[at] ^= 1 << random.below(8);
        }
        let copies = 1 + usize::from(happens(self.doubled, random));
        for _ in 0..copies {
            self.count += 1;
            let arrives = now + 20 + random.below(self.jitter_us) as i64;
            self.under_way.push(Reverse((arrives, self.count, to_server, frame.clone())));
        }
    }
}

/// What a connection of the client is to send, in requests of a length and so many bytes, and has
/// received for it.
struct Talk {
    handle: SocketHandle,
    bytes: Vec<u8>,
    /// Of the request under way: what is left to be sent.
    request: Vec<u8>,
    /// Where in `bytes` it ends.
    asked: usize,
    received: usize,
}

/// What the server sends back for a byte.
fn answer(byte: u8) -> u8 {
    byte.rotate_left(3) ^ 0x5A
}

/// The server: sends each request's bytes back, changed.
struct Echo {
    listener: Socket,
    accepted: HashMap<u64, Socket>,
    /// What has come of each one's request.
    requests: HashMap<u64, Vec<u8>>,
    /// Room of the receive in flight of each.
    rooms: HashMap<u64, usize>,
    next: u64,
}

const ACCEPT: u64 = u64::MAX;

impl Echo {
    fn recv(&mut self, stack: &mut MemoryStack, number: u64, random: &mut Random) {
        let Some(socket) = self.accepted.get(&number) else { return };
        let buffer = Vec::with_capacity(1 + random.below(6000) as usize);
        self.rooms.insert(number, buffer.capacity());
        stack.request(number, NetRequest::Recv { socket: Arc::clone(socket), buffer });
    }

    fn take(&mut self, stack: &mut MemoryStack, completion: Completion, random: &mut Random) {
        let Completion::Net { tag, outcome } = completion else { return };
        match outcome {
            NetOutcome::Accept(accepted) => {
                let (socket, peer) = accepted.expect("accepting does not fail");
                assert_eq!(peer.map(|peer| peer.ip()), Some(THEIRS.into()));
                self.accepted.insert(self.next, socket);
                self.recv(stack, self.next, random);
                self.next += 1;
                stack.request(ACCEPT, NetRequest::Accept { listener: Arc::clone(&self.listener) });
            }
            NetOutcome::Recv(buffer, result) => {
                assert!(buffer.len() <= self.rooms[&tag], "more was received than there was room for");
                match result {
                    Ok(0) | Err(_) => _ = self.accepted.remove(&tag),
                    Ok(count) => {
                        assert_eq!(count, buffer.len());
                        let request = self.requests.entry(tag).or_default();
                        request.extend_from_slice(&buffer);
                        let len = request.first_chunk().map_or(usize::MAX, |len| u32::from_be_bytes(*len) as usize);
                        if request.len().saturating_sub(4) < len {
                            return self.recv(stack, tag, random);
                        }
                        let answer: Vec<u8> = request.drain(..).skip(4).map(answer).collect();
                        let (head, tail) = answer.split_at(answer.len() / 3);
                        let chunks = vec![Chunk::Bytes(head.to_vec()), Chunk::Bytes(tail.to_vec())];
                        let socket = Arc::clone(&self.accepted[&tag]);
                        stack.request(tag, NetRequest::Send { socket, chunks });
                    }
                }
            }
            NetOutcome::Send(result) => match result {
                Ok(()) => self.recv(stack, tag, random),
                Err(_) => _ = self.accepted.remove(&tag),
            },
        }
    }
}

struct World {
    random: Random,
    stack: MemoryStack,
    echo: Echo,
    client: Interface,
    port: ClientPort,
    sockets: SocketSet<'static>,
    talks: Vec<Talk>,
    cable: Cable,
    now: i64,
    backlog: usize,
    /// The last port of the client's that was used.
    ports: u16,
}

const SECONDS_MAX: i64 = 3000;

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let mut options = wire::options();
        options.buffers = BufferSizes {
            receive_least: 2048,
            receive_most: 2048 << random.below(4),
            send_least: 2048,
            send_most: 2048 << random.below(5),
            shared: 1024 << random.below(8),
        };
        options.backlog = 8 + random.below(8) as usize;
        options.peer_timeout = std::time::Duration::from_secs(300);
        let backlog = options.backlog;
        let (mut stack, listener) = wire::stack(options, 8 << random.below(5), seed);
        stack.request(ACCEPT, NetRequest::Accept { listener: Arc::clone(&listener) });
        let mut port = ClientPort::default();
        let mut config = Config::new(THEIR_HARDWARE.into());
        config.random_seed = random.next_u64();
        let mut client = Interface::new(config, &mut port, Instant::ZERO);
        client.update_ip_addrs(|addresses| addresses.push(IpCidr::new(IpAddress::from(THEIRS), 24)).unwrap());
        let cable = Cable::new(&mut random);
        let echo =
            Echo { listener, accepted: HashMap::new(), requests: HashMap::new(), rooms: HashMap::new(), next: 0 };
        let sockets = SocketSet::new(Vec::new());
        let mut world = World {
            random,
            stack,
            echo,
            client,
            port,
            sockets,
            talks: Vec::new(),
            cable,
            now: 0,
            backlog,
            ports: 50_000,
        };
        for number in 0..1 + world.random.below(4) {
            world.connect(40_000 + number as u16);
        }
        world
    }

    fn connect(&mut self, port: u16) {
        let buffer = |random: &mut Random| tcp::SocketBuffer::new(vec![0; 1024 << random.below(5)]);
        let mut socket = tcp::Socket::new(buffer(&mut self.random), buffer(&mut self.random));
        socket.set_nagle_enabled(false);
        // It does not always ask whether a window has opened again.
        socket.set_keep_alive(Some(smoltcp::time::Duration::from_secs(1)));
        socket.connect(self.client.context(), (IpAddress::from(OURS), PORT), port).expect("a connection begins");
        let handle = self.sockets.add(socket);
        let mut bytes = vec![0; 1 + self.random.below(60_000) as usize];
        self.random.fill(&mut bytes);
        self.talks.push(Talk { handle, bytes, request: Vec::new(), asked: 0, received: 0 });
    }

    /// Frames that nobody follows up: the bounds hold, and others are served all the same.
    fn flood(&mut self) {
        for _ in 0..20 {
            let from = (
                [10, 1, self.random.below(256) as u8, self.random.below(256) as u8].into(),
                1 + self.random.below(9999) as u16,
            );
            let mut frame = Crafted::syn(from).frame();
            if self.random.below(4) == 0 {
                let keep = self.random.below(frame.len() as u64) as usize;
                frame.truncate(keep);
            }
            self.cable.carry(frame, true, self.now, &mut self.random);
        }
    }

    fn step(&mut self) {
        while let Some(Reverse((at, ..))) = self.cable.under_way.peek()
            && *at <= self.now
        {
            let Some(Reverse((_, _, to_server, frame))) = self.cable.under_way.pop() else { return };
            if to_server { self.stack.io_mut().rings.deliver(&frame) } else { self.port.incoming.push_back(frame) }
        }
        self.stack.tick(Instant::from_micros(self.now)).expect("memory does not fail");
        let mut done = Vec::new();
        self.stack.reap(&mut done);
        for completion in done {
            self.echo.take(&mut self.stack, completion, &mut self.random);
        }
        self.stack.tick(Instant::from_micros(self.now)).expect("memory does not fail");
        // A card sends when it likes to.
        let leaving = 1 + self.random.below(16) as usize;
        for frame in self.stack.io_mut().rings.collect(leaving) {
            self.cable.carry(frame, false, self.now, &mut self.random);
        }
        self.talk();
        self.client.poll(Instant::from_micros(self.now), &mut self.port, &mut self.sockets);
        for frame in std::mem::take(&mut self.port.outgoing) {
            self.cable.carry(frame, true, self.now, &mut self.random);
        }
        assert_eq!(self.stack.io_mut().strange(), 0, "a frame had two owners");
        let most = self.talks.len() + 2 * self.backlog;
        assert!(self.stack.connections() <= most, "{} connections", self.stack.connections());
    }

    fn talk(&mut self) {
        for talk in &mut self.talks {
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(talk.handle);
            if socket.may_send() && talk.received == talk.asked && talk.asked < talk.bytes.len() {
                let left = &talk.bytes[talk.asked..];
                let request = &left[..left.len().min(1 + self.random.below(9000) as usize)];
                talk.request = (request.len() as u32).to_be_bytes().iter().chain(request).copied().collect();
                talk.asked += request.len();
            }
            if socket.may_send() && !talk.request.is_empty() {
                let sent = socket.send_slice(&talk.request).expect("it is open");
                talk.request.drain(..sent);
            }
            while socket.can_recv() {
                let take = 1 + self.random.below(4000) as usize;
                let received = socket
                    .recv(|bytes| {
                        let bytes = &bytes[..bytes.len().min(take)];
                        (bytes.len(), bytes.to_vec())
                    })
                    .expect("it is open");
                let expected = &talk.bytes[talk.received..][..received.len()];
                assert!(received.iter().zip(expected).all(|(ours, theirs)| *ours == answer(*theirs)), "a wrong value");
                talk.received += received.len();
            }
            if talk.received == talk.bytes.len() {
                socket.close();
            }
        }
    }

    fn is_over(&mut self) -> bool {
        let sockets = &self.sockets;
        let closed = |talk: &Talk| {
            let state = sockets.get::<tcp::Socket<'_>>(talk.handle).state();
            talk.received == talk.bytes.len() && matches!(state, tcp::State::Closed | tcp::State::TimeWait)
        };
        self.talks.iter().all(closed) && self.echo.accepted.is_empty() && self.stack.connections() == 0
    }

    /// Those whose opening took too long, or made room for a flood's, begin again.
    fn reconnect(&mut self) {
        for talk in &mut self.talks {
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(talk.handle);
            if socket.state() == tcp::State::Closed && talk.received == 0 {
                self.ports += 1;
                socket.connect(self.client.context(), (IpAddress::from(OURS), PORT), self.ports).expect("it is closed");
                (talk.asked, talk.request) = (0, Vec::new());
            }
        }
    }

    /// To where something happens next.
    fn pass_time(&mut self) {
        let instant = Instant::from_micros(self.now);
        let arrives = self.cable.under_way.peek().map(|Reverse((at, ..))| *at);
        let client = self.client.poll_at(instant, &self.sockets).map(|at| at.total_micros());
        let stack = self.stack.next_timer().map(|at| at.total_micros());
        let next = [arrives, client, stack].into_iter().flatten().min().unwrap_or(self.now + 1000);
        // Frames that the card has yet to send go out in steps.
        self.now = next.clamp(self.now + 10, self.now + 1000);
    }

    fn state(&self) -> String {
        let of = |talk: &Talk| {
            let socket = self.sockets.get::<tcp::Socket<'_>>(talk.handle);
            format!(
                "{} of {} asked, {} received, {}, {} to be sent, {} not acknowledged",
                talk.asked,
                talk.bytes.len(),
                talk.received,
                socket.state(),
                talk.request.len(),
                socket.send_queue()
            )
        };
        let talks: Vec<String> = self.talks.iter().map(of).collect();
        format!("{talks:?}; {} accepted, {} connections", self.echo.accepted.len(), self.stack.connections())
    }

    fn run(&mut self) {
        let floods = self.random.below(4) == 0;
        while !self.is_over() {
            let seconds = self.now / 1_000_000;
            assert!(seconds < SECONDS_MAX, "the connections stand still: {}", self.state());
            if floods && self.random.below(200) == 0 && seconds < 2 {
                self.flood();
            }
            self.step();
            self.reconnect();
            self.pass_time();
        }
    }
}

fn run(seed: u64) {
    World::new(seed).run();
}

/// A few, or those of `XDP_LINK_SEEDS=FIRST..END`.
fn seeds() -> std::ops::Range<u64> {
    let Ok(wanted) = std::env::var("XDP_LINK_SEEDS") else { return 0..60 };
    let (first, end) = wanted.split_once("..").expect("XDP_LINK_SEEDS=FIRST..END");
    first.parse().expect("a number")..end.parse().expect("a number")
}

#[test]
fn values_arrive_whole_over_a_bad_cable() {
    for seed in seeds() {
        let passed = std::panic::catch_unwind(|| run(seed));
        assert!(passed.is_ok(), "seed {seed}");
    }
}

/// Nothing was retransmitted once the peer's window had closed on a part of what was under way, and
/// was open again; the last is of an opening that took longer than it may.
#[test]
fn connections_do_not_stand_still() {
    [4216, 11548, 18792, 24784, 32390, 6135, 9777, 13052, 2336].into_iter().for_each(run);
}

#[cfg(feature = "fault_points")]
#[test]
fn deliberate_defects_are_caught() {
    let names = [
        "xdp_sent_frame_reused_early",
        "xdp_received_frame_reused_early",
        "xdp_checksum_skipped",
        "xdp_receive_ignores_room",
        "xdp_send_skips_what_did_not_fit",
        "xdp_backlog_unbounded",
    ];
    for name in names {
        let is_caught = (0..200).any(|seed| {
            stratakv_base::fault_point::release(Some(name));
            let passed = std::panic::catch_unwind(|| run(seed));
            stratakv_base::fault_point::release(None);
            passed.is_err()
        });
        assert!(is_caught, "{name} was not caught");
    }
}
