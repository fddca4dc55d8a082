//! The seam between a loop and its kernel: one ring for disk and sockets.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::block::Block;
use crate::request::{DiskOutcome, DiskRequest};
use crate::socket::SocketHandle;
use crate::volume::Volume;

/// A listening or connected socket, shared with the requests in flight on it.
pub type Socket = Arc<SocketHandle>;

/// One request to a socket.
#[derive(Debug)]
pub enum NetRequest {
    /// Accepts one connection.
    Accept {
        /// The listener.
        listener: Socket,
    },
    /// Receives up to `buffer.capacity() - buffer.len()` bytes, appended to `buffer`.
    Recv {
        /// The connection.
        socket: Socket,
        /// Comes back in the outcome; for an empty one of 2 to 4 KiB maybe another, which was
        /// somebody else's while this connection waited.
        buffer: Vec<u8>,
    },
    /// Sends the chunks back to back; completes when all is sent or the connection failed. One at a
    /// time for a connection: the bytes of two in flight may mix.
    Send {
        /// The connection.
        socket: Socket,
        /// What to send.
        chunks: Vec<Chunk>,
    },
}

/// Bytes to send.
#[derive(Debug)]
pub enum Chunk {
    /// Owned bytes: headers and small values.
    Bytes(Vec<u8>),
    /// A range of a block read from disk: sent from where it lies, without a copy.
    Block {
        /// The block.
        block: Arc<Block>,
        /// First byte.
        start: u32,
        /// How many bytes.
        len: u32,
    },
}

/// How a socket request ended.
#[derive(Debug)]
pub enum NetOutcome {
    /// An accepted connection (TCP_NODELAY set, close-on-exec) and its peer.
    Accept(io::Result<(Socket, Option<SocketAddr>)>),
    /// The buffer, and how many bytes were appended; 0 is the end of the stream.
    Recv(Vec<u8>, io::Result<usize>),
    /// All sent, or why not.
    Send(io::Result<()>),
}

/// A finished request.
#[derive(Debug)]
pub enum Completion {
    /// A disk request.
    Disk {
        /// As given to [`Ring::disk`].
        tag: u64,
        /// How it ended.
        outcome: DiskOutcome,
    },
    /// A socket request.
    Net {
        /// As given to [`Ring::net`].
        tag: u64,
        /// How it ended.
        outcome: NetOutcome,
    },
}

/// How long [`Ring::submit`] may wait.
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// Not at all.
    None,
    /// For `completions` of them, or until `timeout` has passed (`None`: for ever), or until the
    /// [`Waker`] is used. May end early with fewer completions, even none. With a timeout of up to
    /// 1 ms, io_uring sees the waker at its end at the latest.
    For {
        /// At least 1.
        completions: u32,
        /// The longest wait.
        timeout: Option<Duration>,
    },
}

/// Disk and socket requests of one thread.
///
/// Requests are queued by [`disk`](Ring::disk) and [`net`](Ring::net) without a system call, handed
/// to the kernel by one [`submit`](Ring::submit), and come back through [`reap`](Ring::reap) in any
/// order. Partial writes, interrupted and short transfers are continued inside; a completion is
/// final. Dropping a ring waits for its disk requests and cancels its socket requests; the sockets
/// stay open. A ring may be sent to another thread until its first submit; later io_uring refuses
/// to submit from, or be reaped by, any other thread (its buffers in flight are then leaked, never
/// freed too early).
pub trait Ring {
    /// Queues a disk request. O_DIRECT alignment is the caller's duty.
    fn disk(&mut self, tag: u64, volume: &Arc<Volume>, request: DiskRequest);

    /// Queues a socket request.
    fn net(&mut self, tag: u64, request: NetRequest);

    /// Ends the requests in flight on this socket: they complete with an error. The socket closes
    /// when its last handle drops.
    fn shutdown(&mut self, socket: &Socket);

    /// Ends the requests in flight on this socket with an error, and leaves the socket as it is:
    /// other processes may use it. (A ring whose sockets nobody else has may shut it down.)
    fn cancel(&mut self, socket: &Socket) {
        self.shutdown(socket);
    }

    /// Hands everything queued to the kernel and waits as told, in one system call where possible.
    ///
    /// # Errors
    /// The ring itself failed; requests in flight are in doubt and the ring must not be used
    /// further.
    fn submit(&mut self, wait: Wait) -> io::Result<()>;

    /// Moves finished requests to the end of `completions`.
    fn reap(&mut self, completions: &mut Vec<Completion>);

    /// Whether something may have ended, or come, that [`submit`](Ring::submit) and
    /// [`reap`](Ring::reap) would bring: a look without a system call. A ring that cannot tell
    /// says no.
    fn has_news(&mut self) -> bool {
        false
    }

    /// Requests queued or in flight (without the ring's own, such as the waker's).
    fn in_flight(&self) -> usize;

    /// A handle that ends a wait from another thread.
    fn waker(&self) -> Waker;

    /// From now on a wait ends also while `descriptor` is readable, or has failed. The caller keeps
    /// it open for as long as the ring lives.
    ///
    /// # Errors
    /// This kind of ring waits for nothing but its own requests, or the system refused.
    fn watch(&mut self, _: BorrowedFd<'_>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// `io_uring`, `passthrough`, `blocking` or `memory`, for one.
    fn name(&self) -> &'static str;

    /// System calls made by this thread for the ring so far; 0 where none are made, or none are
    /// counted.
    fn system_calls(&self) -> u64 {
        0
    }
}

/// Ends a ring's wait from any thread: at most one system call, none if the ring's thread is awake.
#[derive(Clone, Debug)]
pub struct Waker(pub(crate) Arc<WakerState>);

#[derive(Debug)]
pub(crate) struct WakerState {
    /// True from just before the ring's thread waits until it is awake again.
    pub(crate) asleep: std::sync::atomic::AtomicBool,
    /// An eventfd that the ring polls.
    pub(crate) event: OwnedFd,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        let event =
            rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK)?;
        Ok(Waker(Arc::new(WakerState { asleep: false.into(), event })))
    }

    /// Wakes the ring's thread if it sleeps. What was published before this call is seen by it
    /// after the wait.
    pub fn wake(&self) {
        use std::sync::atomic::{Ordering, fence};
        // Pairs with the SeqCst fence the ring makes between setting `asleep` and its last look at
        // its queues.
        fence(Ordering::SeqCst);
        if self.0.asleep.swap(false, Ordering::AcqRel) {
            // EAGAIN means the counter is full, that is: the ring is being woken already.
            let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
        }
    }

    /// Announces that the ring's thread is about to wait. The thread must look at its queues once
    /// more after this and before [`Ring::submit`]; [`Ring::submit`] takes the announcement back
    /// when it returns.
    pub fn announce_sleep(&self) {
        use std::sync::atomic::{Ordering, fence};
        self.0.asleep.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Whether a sleep is announced, and nobody has ended it yet.
    pub(crate) fn is_announced(&self) -> bool {
        self.0.asleep.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Takes the announcement back without having waited.
    pub fn awake(&self) {
        self.0.asleep.store(false, std::sync::atomic::Ordering::Release);
    }
}

/// Which ring to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RingKind {
    /// io_uring, or threads where the system refuses it.
    #[default]
    Auto,
    /// io_uring, or an error.
    IoUring,
    /// A pool of threads, and epoll for sockets.
    Blocking,
}

/// Opens a ring that takes up to `entries` requests in one system call.
///
/// # Errors
/// io_uring is refused and was demanded, or no descriptor or thread could be made.
pub fn open_ring(kind: RingKind, entries: u32) -> io::Result<Box<dyn Ring + Send>> {
    if kind == RingKind::Blocking {
        return Ok(Box::new(crate::blocking::Blocking::new(entries)?));
    }
    match crate::uring::Uring::new(entries) {
        Ok(ring) => return Ok(Box::new(ring)),
        Err(error) if kind == RingKind::IoUring => return Err(error),
        // Nobody refuses io_uring: threads and files would be short as well, and nothing is to be
        // allowed.
        Err(error) if is_short_of_descriptors(&error) => {
            return Err(io::Error::new(
                error.kind(),
                format!(
                    "{error}: no descriptor is left for an I/O ring; raise the limit (ulimit -n), or open fewer stores and connections"
                ),
            ));
        }
        Err(error) => {
            static SAID: std::sync::Once = std::sync::Once::new();
            SAID.call_once(|| {
                tracing::warn!(
                    %error,
                    "io_uring is refused here; using threads instead. To allow it: sysctl kernel.io_uring_disabled=0, and in a container a seccomp profile that permits io_uring_setup, io_uring_enter and io_uring_register"
                );
            });
        }
    }
    Ok(Box::new(crate::blocking::Blocking::new(entries)?))
}

/// As [`open_ring`], for requests to these volumes: if this process drives the device of one, the
/// ring is an [`NvmeRing`](crate::NvmeRing); if one takes commands by the kernel, a
/// [`PassthroughRing`](crate::PassthroughRing) on io_uring, or the threads of the other kind.
///
/// # Errors
/// As [`open_ring`].
pub fn open_ring_for<'v>(
    kind: RingKind,
    entries: u32,
    volumes: impl IntoIterator<Item = &'v Arc<Volume>>,
) -> io::Result<Box<dyn Ring + Send>> {
    let mut ring = open_ring(kind, entries)?;
    let (mut is_driven, mut is_commanded) = (false, false);
    for volume in volumes {
        is_driven |= volume.is_driven_here();
        is_commanded |= volume.passthrough().is_some();
    }
    if is_commanded && ring.name() == "io_uring" {
        ring = Box::new(crate::passthrough::PassthroughRing::new(ring));
    }
    Ok(if is_driven { Box::new(crate::nvme::NvmeRing::new(ring)) } else { ring })
}

fn is_short_of_descriptors(error: &io::Error) -> bool {
    let short = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    rustix::io::Errno::from_io_error(error).is_some_and(|errno| short.contains(&errno))
}

/// Readies a socket that was just accepted, and finds its peer.
pub(crate) fn accepted(socket: OwnedFd) -> (Socket, Option<SocketAddr>) {
    // Fails on a Unix socket, which has no such delay.
    let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
    let peer = rustix::net::getpeername(&socket).ok().flatten().and_then(|peer| SocketAddr::try_from(peer).ok());
    (Arc::new(socket.into()), peer)
}
