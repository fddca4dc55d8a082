//! [`Connection`]: one TCP connection of a stack, and the requests in flight on it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{self, RecvError};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::EthernetAddress;
use stratakv_base::fault_point;

use super::buffers::BufferMemory;
use super::frame::Ends;
use super::stall::Stall;
use crate::ring::{Chunk, Completion, NetOutcome, Socket};

/// How often a peer is asked that has not taken what was sent, while no retransmission is due.
/// `smoltcp` stops its probes of a closed window when a retransmission falls due, and the peer's
/// word that it has room again may be lost. It also forgets to retransmit when a window closes on a
/// part of what is under way and opens again; three answers to probes make it do so. They come
/// between two keep-alives of the peer, which would begin their count again: those are a second
/// apart or more.
const UNTAKEN_PROBE: Duration = Duration::from_millis(300);

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    /// Its peer has not yet acknowledged our SYN.
    Opening,
    /// Waits to be accepted.
    Ready,
    /// Somebody has a handle.
    Open,
    /// Nobody has one any more: what was sent is seen to its end.
    Orphan { since: Instant },
}

/// A set of one socket, so that a tick walks over nothing but those with something to do.
pub(super) struct Connection {
    pub(super) ends: Ends,
    pub(super) phase: ConnectionPhase,
    /// The neighbour that its frames come from.
    pub(super) neighbor: EthernetAddress,
    /// Over `memory`, which is dropped after it.
    pub(super) sockets: SocketSet<'static>,
    memory: BufferMemory,
    handle: SocketHandle,
    requests: Requests,
    pub(super) untaken_bytes: Arc<AtomicU64>,
    /// How often a peer is asked that is silent.
    probe_every: Duration,
    /// For which its timer is queued.
    pub(super) timer_at: Option<Instant>,
    /// Listed among those that may have something to send.
    pub(super) is_listed: bool,
    /// Where its peer stands.
    pub(super) stall: Stall,
    /// Bytes were handed over since it last had its turn to send.
    has_received: bool,
}

#[derive(Default)]
struct Requests {
    recvs: VecDeque<Receiving>,
    sends: VecDeque<Sending>,
    /// What has arrived is still received, then the stream has ended.
    ends_receiving: bool,
    /// What is being sent is still sent, then the stream ends.
    ends_sending: bool,
}

struct Receiving {
    tag: u64,
    buffer: Vec<u8>,
    /// Keeps the connection open until it completes.
    _socket: Socket,
}

struct Sending {
    tag: u64,
    chunks: Vec<Chunk>,
    /// Where the next byte is: which chunk, and where in it.
    next: (usize, usize),
    left_bytes: u64,
    _socket: Socket,
}

impl Connection {
    pub(super) fn new(
        ends: Ends,
        neighbor: EthernetAddress,
        (socket, memory): (tcp::Socket<'static>, BufferMemory),
    ) -> Connection {
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        Connection {
            ends,
            phase: ConnectionPhase::Opening,
            neighbor,
            sockets,
            memory,
            handle,
            requests: Requests::default(),
            untaken_bytes: Arc::default(),
            probe_every: UNTAKEN_PROBE,
            timer_at: None,
            is_listed: false,
            stall: Stall::default(),
            has_received: false,
        }
    }

    /// A socket over the buffers of a new connection.
    #[expect(unsafe_code, reason = "the socket borrows memory that its connection keeps")]
    pub(super) fn socket_over(memory: &BufferMemory) -> tcp::Socket<'static> {
        // SAFETY: called once for each memory, by whoever makes it; and `Connection` has both, the
        // socket in front: fields are dropped in their order.
        let (receive, send) = unsafe { memory.slices() };
        tcp::Socket::new(tcp::SocketBuffer::new(receive), tcp::SocketBuffer::new(send))
    }

    /// Whether what it sends can wait for the next tick: bytes have just been handed over, whose
    /// answer will be there by then, and nothing else is to be sent. True once only.
    pub(super) fn awaits_answer(&mut self) -> bool {
        let has_received = std::mem::take(&mut self.has_received);
        has_received && self.phase == ConnectionPhase::Open && self.tcp().send_queue() == 0
    }

    pub(super) fn tcp(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Opening has succeeded: from now on it is probed while idle.
    pub(super) fn opened(&mut self, probe_every: Duration, peer_timeout: Duration) {
        (self.phase, self.probe_every) = (ConnectionPhase::Ready, probe_every);
        let socket = self.tcp();
        socket.set_keep_alive(Some(probe_every));
        socket.set_timeout(Some(peer_timeout));
    }

    /// Whether nothing comes or goes any more, and its peer knows.
    pub(super) fn is_over(&mut self) -> bool {
        let socket = self.tcp();
        socket.state() == tcp::State::Closed && socket.remote_endpoint().is_none()
    }

    pub(super) fn recv(&mut self, tag: u64, socket: Socket, mut buffer: Vec<u8>) {
        if buffer.capacity() == buffer.len() {
            buffer.reserve(4096);
        }
        self.requests.recvs.push_back(Receiving { tag, buffer, _socket: socket });
    }

    pub(super) fn send(&mut self, tag: u64, socket: Socket, chunks: Vec<Chunk>) {
        let left_bytes = chunks.iter().map(|chunk| chunk.bytes().len() as u64).sum();
        self.requests.sends.push_back(Sending { tag, chunks, next: (0, 0), left_bytes, _socket: socket });
    }

    pub(super) fn end_receiving(&mut self) {
        self.requests.ends_receiving = true;
    }

    pub(super) fn end_sending(&mut self) {
        self.requests.ends_sending = true;
    }

    /// Moves bytes between the socket and the requests; completes those that are done.
    pub(super) fn advance(&mut self, done: &mut Vec<Completion>) {
        let socket = self.sockets.get_mut::<tcp::Socket<'static>>(self.handle);
        let Requests { recvs, sends, ends_receiving, ends_sending } = &mut self.requests;
        while let Some(receiving) = recvs.front_mut() {
            let Some(result) = receiving.take_from(socket, *ends_receiving) else { break };
            let outcome = |Receiving { tag, buffer, .. }| net(tag, NetOutcome::Recv(buffer, result));
            done.extend(recvs.pop_front().map(outcome));
            self.has_received = true;
        }
        while let Some(sending) = sends.front_mut() {
            let Some(result) = sending.put_into(socket, &mut self.memory) else { break };
            done.extend(sends.pop_front().map(|sending| net(sending.tag, NetOutcome::Send(result))));
        }
        if sends.is_empty() && socket.send_queue() == 0 {
            self.memory.shrink();
        }
        if sends.is_empty() && std::mem::take(ends_sending) {
            socket.close();
        }
        let interval = if socket.send_queue() > 0 { UNTAKEN_PROBE } else { self.probe_every };
        if socket.keep_alive().is_some_and(|before| before != interval) {
            socket.set_keep_alive(Some(interval));
        }
        let left: u64 = sends.iter().map(|sending| sending.left_bytes).sum();
        self.untaken_bytes.store(left + socket.send_queue() as u64, Ordering::Relaxed);
    }

    /// Ends the requests in flight: all with `errno`, or receives with the end of the stream if
    /// there is none.
    pub(super) fn end_requests(&mut self, errno: Option<i32>, done: &mut Vec<Completion>) {
        let recv_result = || errno.map_or(Ok(0), |errno| Err(io::Error::from_raw_os_error(errno)));
        let send_error = || io::Error::from_raw_os_error(errno.unwrap_or(libc::EPIPE));
        let Requests { recvs, sends, .. } = &mut self.requests;
        done.extend(recvs.drain(..).map(|recv| net(recv.tag, NetOutcome::Recv(recv.buffer, recv_result()))));
        done.extend(sends.drain(..).map(|send| net(send.tag, NetOutcome::Send(Err(send_error())))));
    }
}

fn net(tag: u64, outcome: NetOutcome) -> Completion {
    Completion::Net { tag, outcome }
}

impl Receiving {
    /// Takes what has arrived, as much as there is room for; `None`: nothing yet.
    fn take_from(&mut self, socket: &mut tcp::Socket<'static>, is_ending: bool) -> Option<io::Result<usize>> {
        let mut room = self.buffer.capacity() - self.buffer.len();
        fault_point!("xdp_receive_ignores_room", room += 4096);
        let mut taken = 0;
        // The socket's buffer is a ring: what lies there has up to two pieces.
        while taken < room {
            let took = socket.recv(|bytes| {
                let piece = bytes.get(..room - taken).unwrap_or(bytes);
                self.buffer.extend_from_slice(piece);
                (piece.len(), piece.len())
            });
            match took {
                Ok(0) => break,
                Ok(bytes) => taken += bytes,
                Err(_) if taken > 0 => break,
                Err(RecvError::Finished) => return Some(Ok(0)),
                Err(RecvError::InvalidState) => return Some(Err(io::Error::from_raw_os_error(libc::ECONNRESET))),
            }
        }
        (taken > 0 || is_ending).then_some(Ok(taken))
    }
}

impl Sending {
    /// Puts bytes into the socket's buffer, as many as there is room for; `None`: not yet all.
    fn put_into(&mut self, socket: &mut tcp::Socket<'static>, memory: &mut BufferMemory) -> Option<io::Result<()>> {
        loop {
            let (chunk, start) = self.next;
            let Some(bytes) = self.chunks.get(chunk).map(Chunk::bytes) else { return Some(Ok(())) };
            let left = bytes.get(start..).unwrap_or_default();
            if left.is_empty() {
                self.next = (chunk + 1, 0);
                continue;
            }
            let room = memory.send_bytes().saturating_sub(socket.send_queue());
            if left.len() > room && memory.grow() {
                continue;
            }
            match socket.send_slice(left.get(..room).unwrap_or(left)) {
                Ok(0) => return None,
                Ok(put) => {
                    self.next.1 += put;
                    self.left_bytes = self.left_bytes.saturating_sub(put as u64);
                    fault_point!("xdp_send_skips_what_did_not_fit", put < left.len(), self.next = (chunk + 1, 0));
                }
                Err(_) => return Some(Err(io::Error::from_raw_os_error(libc::ECONNRESET))),
            }
        }
    }
}
