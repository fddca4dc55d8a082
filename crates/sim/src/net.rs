//! A network in memory, between the server under test and its clients. Bytes are split and joined
//! anywhere; buffers are small and fill up; either side may stall, close, reset, or vanish without
//! a word; accepting may fail.
//!
//! A connection's server end is a real descriptor, one end of a socket pair, because the server
//! names it and shuts it down by system calls. It carries no data of the conversation: that lies
//! here.

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use stratakv_base::Mono;
use stratakv_base::random::Random;
use stratakv_device::{NetOutcome, NetRequest, Socket, SocketHandle};

/// A client's end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(usize);

/// What a client finds when it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientRead {
    /// So many bytes were appended.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The server will send no more.
    End,
    /// The connection is gone; bytes on their way may be lost.
    Reset,
}

/// See the module.
#[derive(Default)]
pub struct Net {
    connections: Vec<Connection>,
    listeners: Vec<Listener>,
    pending: Vec<PendingIo>,
    /// Of 256 accepts, so many fail for want of descriptors.
    pub accept_failures: u8,
    /// Bytes that fit between the two ends, each way; at least 1.
    pub pipe_bytes: usize,
    /// The server is being stopped: its shutdowns of receiving are looked for.
    pub stopping: bool,
    /// What time it is for clients; the world sets it.
    pub now: Mono,
    /// Accepts that failed so far.
    pub accepts_failed: u64,
}

/// Bytes that a server has lent to its socket requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lent {
    /// Room of the largest receive.
    pub recv_max: u64,
    /// Bytes of the largest send.
    pub send_max: u64,
    /// Of all.
    pub sum: u64,
}

struct Listener {
    socket: Weak<SocketHandle>,
    shut: bool,
    /// Connections not yet accepted.
    queue: VecDeque<usize>,
}

struct Connection {
    /// The server's end, once accepted.
    server: Option<Weak<SocketHandle>>,
    /// The other end of the server's descriptor: shows what the server did to it by system calls.
    probe: Option<UnixStream>,
    to_server: VecDeque<u8>,
    /// The server has received something.
    was_heard: bool,
    to_client: VecDeque<u8>,
    /// The client has closed its sending side.
    finished: bool,
    /// The client is gone: closed, or reset.
    gone: bool,
    reset: bool,
    /// The client has gone without a word: nothing arrives any more in either direction.
    vanished: bool,
    /// The server has shut it down, both ways.
    shut: bool,
}

struct PendingIo {
    ring: usize,
    tag: u64,
    request: NetRequest,
    /// Bytes of a send that have left.
    sent: usize,
}

/// What became of a request.
enum Progress {
    Done(NetOutcome),
    /// Some of its bytes have moved.
    Moved(NetRequest),
    Stuck(NetRequest),
}

/// What a step did: for which ring's request, and its outcome if it ended.
pub(crate) type ProgressedIo = (usize, u64, Option<NetOutcome>);

impl Net {
    /// A listening socket for the server.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn listener(&mut self) -> io::Result<Socket> {
        let socket: Socket = Arc::new(UnixStream::pair()?.0.into());
        self.listeners.push(Listener { socket: Arc::downgrade(&socket), shut: false, queue: VecDeque::new() });
        Ok(socket)
    }

    /// A client connects to the newest listener; refused if there is none.
    pub fn connect(&mut self) -> Option<Peer> {
        self.connect_to(0)
    }

    /// The same, to the one before so many newer ones.
    pub fn connect_to(&mut self, newer: usize) -> Option<Peer> {
        let listener = self.listeners.iter_mut().rev().nth(newer);
        let listener = listener.filter(|listener| !listener.shut && listener.socket.strong_count() > 0)?;
        let number = self.connections.len();
        listener.queue.push_back(number);
        self.connections.push(Connection {
            server: None,
            probe: None,
            to_server: VecDeque::new(),
            was_heard: false,
            to_client: VecDeque::new(),
            finished: false,
            gone: false,
            reset: false,
            vanished: false,
            shut: false,
        });
        Some(Peer(number))
    }

    /// The client writes: as many bytes as fit. 0 also if the connection is gone.
    pub fn write(&mut self, peer: Peer, bytes: &[u8]) -> usize {
        let room = self.pipe_bytes.max(1);
        let connection = &mut self.connections[peer.0];
        if connection.finished || connection.gone || connection.vanished {
            return 0;
        }
        if connection.is_closed_by_server() {
            // The answer to this is a reset, which overtakes what was sent before.
            connection.reset = true;
            connection.to_client.clear();
            return 0;
        }
        let count = bytes.len().min(room.saturating_sub(connection.to_server.len()));
        connection.to_server.extend(&bytes[..count]);
        count
    }

    /// The client reads up to `max` bytes.
    pub fn read(&mut self, peer: Peer, max: usize, into: &mut Vec<u8>, random: &mut Random) -> ClientRead {
        let sending = self.is_sending(peer);
        let connection = &mut self.connections[peer.0];
        if connection.vanished {
            return ClientRead::Nothing;
        }
        connection.meet_close(random);
        let count = max.min(connection.to_client.len());
        if count > 0 {
            into.extend(connection.to_client.drain(..count));
            return ClientRead::Bytes(count);
        }
        if connection.reset {
            return ClientRead::Reset;
        }
        match connection.probe.as_ref().and_then(|probe| take(probe, into)) {
            Some(0) if !sending => ClientRead::End,
            Some(count @ 1..) => ClientRead::Bytes(count),
            _ if connection.is_closed_by_server() || connection.shut => ClientRead::End,
            _ => ClientRead::Nothing,
        }
    }

    /// The client will write no more, and still reads.
    pub fn finish(&mut self, peer: Peer) {
        self.connections[peer.0].finished = true;
    }

    /// The client closes; with answers unread that is a reset.
    pub fn close(&mut self, peer: Peer) {
        let connection = &mut self.connections[peer.0];
        connection.reset |= !connection.to_client.is_empty();
        (connection.finished, connection.gone) = (true, true);
    }

    /// The client resets the connection: bytes on their way are lost.
    pub fn reset(&mut self, peer: Peer) {
        let connection = &mut self.connections[peer.0];
        (connection.reset, connection.gone) = (true, true);
        connection.to_server.clear();
        connection.to_client.clear();
    }

    /// The client is gone without a word: what it sent arrives, nothing more does, and nobody
    /// reads.
    pub fn vanish(&mut self, peer: Peer) {
        self.connections[peer.0].vanished = true;
    }

    /// Whether the server has accepted the connection and let go of it.
    pub fn is_released(&self, peer: Peer) -> bool {
        let connection = &self.connections[peer.0];
        connection.server.is_some() && connection.is_closed_by_server()
    }

    /// Whether the server has received something on the connection.
    pub fn was_heard(&self, peer: Peer) -> bool {
        self.connections[peer.0].was_heard
    }

    /// Whether the server has not yet accepted the connection.
    pub fn is_waiting(&self, peer: Peer) -> bool {
        self.connections[peer.0].server.is_none()
    }

    /// Connections that the server holds.
    pub fn held(&self) -> usize {
        let held =
            |connection: &&Connection| connection.server.as_ref().is_some_and(|server| server.strong_count() > 0);
        self.connections.iter().filter(held).count()
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// What the server has lent to requests in flight.
    pub fn lent(&self) -> Lent {
        let mut lent = Lent::default();
        for pending in &self.pending {
            let (most, bytes) = match &pending.request {
                NetRequest::Accept { .. } => continue,
                NetRequest::Recv { buffer, .. } => (&mut lent.recv_max, buffer.capacity()),
                NetRequest::Send { chunks, .. } => {
                    (&mut lent.send_max, chunks.iter().map(|chunk| chunk.bytes().len()).sum())
                }
            };
            *most = bytes.max(*most as usize) as u64;
            lent.sum += bytes as u64;
        }
        lent
    }

    fn is_sending(&self, peer: Peer) -> bool {
        let server = self.connections[peer.0].server.as_ref();
        let is_here = |socket: &Socket| server.is_some_and(|server| Weak::as_ptr(server) == Arc::as_ptr(socket));
        self.pending.iter().any(|other| matches!(&other.request, NetRequest::Send { socket, .. } if is_here(socket)))
    }

    pub(crate) fn submit(&mut self, ring: usize, tag: u64, mut request: NetRequest) {
        if let NetRequest::Recv { buffer, .. } = &mut request
            && buffer.capacity() == buffer.len()
        {
            buffer.reserve(4096);
        }
        self.pending.push(PendingIo { ring, tag, request, sent: 0 });
    }

    /// The server ends what is in flight on a socket.
    pub(crate) fn shutdown(&mut self, socket: &Socket) {
        // Also for sockets that are not of this network, such as the bell of a server's thread.
        let shut = |descriptor| rustix::net::shutdown(descriptor, rustix::net::Shutdown::Both);
        let _ = socket.descriptor().and_then(shut);
        if let Some(connection) = self.find(socket) {
            connection.shut = true;
        }
        let listener = self.listeners.iter_mut().find(|listener| listener.socket.as_ptr() == Arc::as_ptr(socket));
        listener.into_iter().for_each(|listener| listener.shut = true);
    }

    /// A ring is gone: nobody waits for its requests.
    pub(crate) fn cancel(&mut self, ring: usize) {
        self.pending.retain(|pending| pending.ring != ring);
    }

    /// The server's process has ended: every connection is reset; of what it sent, some has
    /// arrived.
    pub(crate) fn crash(&mut self, random: &mut Random) {
        self.pending.clear();
        self.listeners.clear();
        self.stopping = false;
        for connection in &mut self.connections {
            if !connection.gone {
                let arrived = random.below(connection.to_client.len() as u64 + 1) as usize;
                connection.to_client.truncate(arrived);
                (connection.reset, connection.finished) = (true, true);
                connection.to_server.clear();
            }
        }
    }

    fn find(&mut self, socket: &Socket) -> Option<&mut Connection> {
        let is_it = |server: &Weak<SocketHandle>| server.as_ptr() == Arc::as_ptr(socket);
        self.connections.iter_mut().rev().find(|connection| connection.server.as_ref().is_some_and(is_it))
    }

    /// One of the requests in flight gets on. `None` if none can.
    pub(crate) fn step(&mut self, random: &mut Random) -> Option<ProgressedIo> {
        let count = self.pending.len();
        let first = random.below(count as u64) as usize;
        for at in (0..count).map(|step| (first + step) % count) {
            let PendingIo { ring, tag, request, mut sent } = self.pending.swap_remove(at);
            let (request, moved) = match self.advance(request, &mut sent, random) {
                Progress::Done(outcome) => return Some((ring, tag, Some(outcome))),
                Progress::Moved(request) => (request, true),
                Progress::Stuck(request) => (request, false),
            };
            // Back to its place, so that the order of the others stays as it was.
            self.pending.push(PendingIo { ring, tag, request, sent });
            self.pending.swap(at, count - 1);
            if moved {
                return Some((ring, tag, None));
            }
        }
        None
    }

    fn advance(&mut self, request: NetRequest, sent: &mut usize, random: &mut Random) -> Progress {
        match request {
            NetRequest::Accept { listener } => self.accept(listener, random),
            NetRequest::Recv { socket, buffer } => self.recv(socket, buffer, random),
            NetRequest::Send { socket, chunks } => self.send(socket, chunks, sent, random),
        }
    }

    fn accept(&mut self, socket: Socket, random: &mut Random) -> Progress {
        let failures = self.accept_failures;
        let listener = self.listeners.iter_mut().find(|listener| listener.socket.as_ptr() == Arc::as_ptr(&socket));
        let Some(listener) = listener.filter(|listener| !listener.shut) else {
            return Progress::Done(NetOutcome::Accept(Err(Errno::INVAL.into())));
        };
        if listener.queue.is_empty() {
            return Progress::Stuck(NetRequest::Accept { listener: socket });
        }
        if random.below(256) < u64::from(failures) {
            self.accepts_failed += 1;
            return Progress::Done(NetOutcome::Accept(Err(Errno::MFILE.into())));
        }
        let (server, probe) = match UnixStream::pair() {
            Ok(pair) => pair,
            Err(error) => return Progress::Done(NetOutcome::Accept(Err(error))),
        };
        let server: Socket = Arc::new(server.into());
        if let Some(connection) = listener.queue.pop_front().and_then(|number| self.connections.get_mut(number)) {
            connection.server = Some(Arc::downgrade(&server));
            connection.probe = Some(probe);
        }
        Progress::Done(NetOutcome::Accept(Ok((server, None))))
    }

    fn recv(&mut self, socket: Socket, mut buffer: Vec<u8>, random: &mut Random) -> Progress {
        let stopping = self.stopping;
        let Some(connection) = self.find(&socket) else {
            return recv_for_real(socket, buffer);
        };
        if connection.reset {
            return Progress::Done(NetOutcome::Recv(buffer, Err(Errno::CONNRESET.into())));
        }
        let here = connection.to_server.len().min(buffer.capacity() - buffer.len());
        if here > 0 {
            let count = 1 + random.below(here as u64) as usize;
            // Half of the time everything that is there.
            let count = if random.below(2) == 0 { here } else { count };
            buffer.extend(connection.to_server.drain(..count));
            connection.was_heard |= count > 0;
            return Progress::Done(NetOutcome::Recv(buffer, Ok(count)));
        }
        if connection.finished || connection.shut || (stopping && connection.is_read_shut()) {
            return Progress::Done(NetOutcome::Recv(buffer, Ok(0)));
        }
        Progress::Stuck(NetRequest::Recv { socket, buffer })
    }

    fn send(
        &mut self,
        socket: Socket,
        chunks: Vec<stratakv_device::ring::Chunk>,
        sent: &mut usize,
        random: &mut Random,
    ) -> Progress {
        let room = self.pipe_bytes.max(1);
        let Some(connection) = self.find(&socket) else {
            return Progress::Done(NetOutcome::Send(Err(Errno::BADF.into())));
        };
        if connection.reset || connection.gone || connection.shut {
            return Progress::Done(NetOutcome::Send(Err(Errno::PIPE.into())));
        }
        let total: usize = chunks.iter().map(|chunk| chunk.bytes().len()).sum();
        let fits = (total - *sent).min(room.saturating_sub(connection.to_client.len()));
        let mut count = fits.min(1 + random.below(fits as u64 * 2 + 1) as usize);
        let moved = count > 0;
        let mut skip = *sent;
        *sent += count;
        for chunk in &chunks {
            let bytes = chunk.bytes();
            let piece = bytes.get(skip..).unwrap_or_default();
            let piece = &piece[..piece.len().min(count)];
            connection.to_client.extend(piece);
            skip = skip.saturating_sub(bytes.len());
            count -= piece.len();
        }
        match (*sent == total, moved) {
            (true, _) => Progress::Done(NetOutcome::Send(Ok(()))),
            (false, true) => Progress::Moved(NetRequest::Send { socket, chunks }),
            (false, false) => Progress::Stuck(NetRequest::Send { socket, chunks }),
        }
    }
}

impl Connection {
    fn is_closed_by_server(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.strong_count() == 0)
    }

    /// A server that closes with bytes unread resets the connection, and may take back what it
    /// sent.
    fn meet_close(&mut self, random: &mut Random) {
        if !self.reset && self.is_closed_by_server() && !self.to_server.is_empty() {
            self.reset = true;
            self.to_server.clear();
            let arrived = random.below(self.to_client.len() as u64 + 1) as usize;
            self.to_client.truncate(arrived);
        }
    }

    /// Whether the server has shut down receiving: writing to its descriptor is refused.
    fn is_read_shut(&self) -> bool {
        let nothing = |probe| rustix::net::send(probe, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        self.probe.as_ref().is_some_and(|probe| nothing(probe) == Err(Errno::PIPE))
    }
}

/// Takes what the server wrote into its descriptor by itself: so many bytes, 0 at the end, `None`
/// if there is nothing yet.
fn take(probe: &UnixStream, into: &mut Vec<u8>) -> Option<usize> {
    let mut bytes = [0; 256];
    let (_, count) = rustix::net::recv(probe, &mut bytes, RecvFlags::DONTWAIT).ok()?;
    into.extend_from_slice(&bytes[..count]);
    Some(count)
}

/// A socket that is not of this network: the bell of a server's thread.
fn recv_for_real(socket: Socket, mut buffer: Vec<u8>) -> Progress {
    let mut bytes = [0; 64];
    match socket.descriptor().and_then(|socket| rustix::net::recv(socket, &mut bytes, RecvFlags::DONTWAIT)) {
        Ok((_, count)) => {
            buffer.extend_from_slice(&bytes[..count]);
            Progress::Done(NetOutcome::Recv(buffer, Ok(count)))
        }
        Err(Errno::AGAIN) => Progress::Stuck(NetRequest::Recv { socket, buffer }),
        Err(errno) => Progress::Done(NetOutcome::Recv(buffer, Err(errno.into()))),
    }
}

#[cfg(test)]
mod tests;
