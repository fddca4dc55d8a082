//! [`Uring`]: disk and sockets on one io_uring.
#![expect(
    unsafe_code,
    reason = "submission entries hold raw pointers; each request owns what they point to until its completion"
)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, FsyncFlags};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::block::{Block, BlockPart};
use crate::fork::Lineage;
use crate::provided::Provided;
use crate::request::{DiskOutcome, DiskRequest, IoFault};
use crate::ring::{Chunk, Completion, NetOutcome, NetRequest, Ring, Socket, Wait, Waker};
use crate::uring_setup::OwnedUring;
use crate::volume::Volume;

/// An io_uring that belongs to one thread: the one that first submits.
///
/// Set up with DEFER_TASKRUN, so completions are processed when this thread asks for them and never
/// interrupt it.
pub struct Uring {
    ring: OwnedUring<squeue::Entry, cqueue::Entry>,
    /// Dropped after the ring, which knows its memory.
    provided: Buffers,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Entries that did not fit the submission queue yet.
    backlog: VecDeque<squeue::Entry>,
    done: Vec<Completion>,
    waker: Waker,
    /// Landing place of the waker's eventfd read; boxed so that it does not move.
    woken: Box<u64>,
    waker_armed: bool,
    /// Descriptors that end a wait, and whether the kernel has been told to poll them.
    watched: Vec<(RawFd, bool)>,
    /// The waker was used since the last submit ended: the next one must not wait.
    waker_used: bool,
    /// Being dropped: what is left of a cancelled send is not issued again.
    closing: bool,
    in_flight: usize,
    disk_in_flight: usize,
    lineage: Lineage,
}

/// Whether receives that wait do without a buffer.
enum Buffers {
    /// Nobody has asked yet.
    Untried,
    Refused,
    Ready(Box<Provided>),
}

#[derive(Default)]
struct Slot {
    generation: u32,
    /// Kept between requests: making one anew costs an allocation and a copy.
    work: Box<Work>,
}

/// A request in flight, or the room for one: it owns every buffer the kernel was told of.
#[derive(Default)]
struct Work {
    tag: u64,
    kind: Kind,
    /// Bytes done so far; short transfers go on from here.
    done: usize,
    iovecs: Vec<libc::iovec>,
    message: Option<libc::msghdr>,
    /// The socket was found non-blocking and set to blocking.
    unblocked: bool,
}

#[derive(Default)]
enum Kind {
    /// No request.
    #[default]
    Free,
    Read {
        volume: Arc<Volume>,
        offset: u64,
        block: Block,
        len: u32,
    },
    Write {
        volume: Arc<Volume>,
        offset: u64,
        parts: Vec<BlockPart>,
        total: usize,
        durable: bool,
    },
    Flush {
        volume: Arc<Volume>,
    },
    Allocate {
        volume: Arc<Volume>,
        offset: u64,
        len: u64,
    },
    Discard {
        volume: Arc<Volume>,
        offset: u64,
        len: u64,
    },
    Accept {
        listener: Socket,
    },
    Recv {
        socket: Socket,
        buffer: Vec<u8>,
    },
    /// The same for up to so many bytes, into a buffer that the kernel takes when they have come.
    RecvProvided {
        socket: Socket,
        len: u32,
    },
    Send {
        socket: Socket,
        chunks: Vec<Chunk>,
        total: usize,
    },
}

// SAFETY: the raw pointers in `iovecs` and `message` point into buffers the same Work owns; it may
// move between threads with them.
unsafe impl Send for Work {}

/// Longest timeout for which several completions are awaited in one go: the waker counts as just
/// one of them, so a wait for more sees it only when its time is over.
const GATHER_MAX: Duration = Duration::from_millis(1);

/// A request with more buffers gives their list back when it ends.
const IOVECS_KEPT: usize = 64;

/// IORING_RECVSEND_POLL_FIRST, which io-uring keeps to itself: who waits for its peer need not try
/// first.
const POLL_FIRST: u16 = 1;

/// User data of the waker's read and of cancellations.
const WAKER: u64 = u64::MAX;
const IGNORED: u64 = u64::MAX - 1;
/// And of polls of watched descriptors, from here on: slots have 31 bits of generation.
const WATCHED: u64 = 1 << 63;
/// Most descriptors that are watched.
const WATCHED_MAX: usize = 64;

impl Uring {
    /// A ring with room for `entries` submissions in one system call.
    ///
    /// # Errors
    /// As io_uring_setup(2): EPERM and ENOSYS where io_uring is refused; `Unsupported` before Linux
    /// 5.11 (no timeout of a wait).
    pub fn new(entries: u32) -> io::Result<Uring> {
        let entries = entries.clamp(8, 4096).next_power_of_two();
        let ring = OwnedUring::new(entries)?;
        if !ring.ring.params().is_feature_ext_arg() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring is too old (5.11 is needed)",
            ));
        }
        Ok(Uring {
            // The older flags mean an older kernel.
            provided: if ring.is_of_old_kernel() { Buffers::Refused } else { Buffers::Untried },
            ring,
            lineage: Lineage::here(),
            slots: Vec::new(),
            free: Vec::new(),
            backlog: VecDeque::new(),
            done: Vec::new(),
            waker: Waker::new()?,
            woken: Box::new(0),
            waker_armed: false,
            watched: Vec::new(),
            waker_used: false,
            closing: false,
            in_flight: 0,
            disk_in_flight: 0,
        })
    }

    fn start(&mut self, tag: u64, kind: Kind) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        self.in_flight += 1;
        self.disk_in_flight += usize::from(kind.is_disk());
        let work = &mut self.slots[slot as usize].work;
        (work.tag, work.kind, work.done, work.unblocked) = (tag, kind, 0, false);
        self.issue(slot);
    }

    /// Queues the (rest of the) request in `slot`.
    fn issue(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        let user_data = u64::from(entry.generation) << 32 | u64::from(slot);
        if let Some(entry) = entry.work.entry() {
            self.push(entry.user_data(user_data));
        }
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: every pointer in the entry is into the boxed Work in its slot (or the boxed waker
        // word), which stays where it is until the completion with its user data has been reaped;
        // Drop waits for all of them.
        if !self.backlog.is_empty() || unsafe { self.ring.ring.submission().push(&entry) }.is_err() {
            self.backlog.push_back(entry);
        }
    }

    fn push_backlog(&mut self) {
        while let Some(entry) = self.backlog.front() {
            // SAFETY: as in `push`.
            if unsafe { self.ring.ring.submission().push(entry) }.is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    fn arm_waker(&mut self) {
        if !self.waker_armed {
            self.waker_armed = true;
            let event = Fd(self.waker.0.event.as_raw_fd());
            let word: *mut u64 = &mut *self.woken;
            self.push(opcode::Read::new(event, word.cast(), 8).build().user_data(WAKER));
        }
    }

    fn arm_watches(&mut self) {
        for number in 0..self.watched.len() {
            let (descriptor, armed) = &mut self.watched[number];
            if !std::mem::replace(armed, true) {
                let entry = opcode::PollAdd::new(Fd(*descriptor), libc::POLLIN as u32).build();
                self.push(entry.user_data(WATCHED | number as u64));
            }
        }
    }

    /// Moves what the kernel has finished to `done`; goes on with short transfers.
    fn drain(&mut self) {
        loop {
            let Some(entry) = self.ring.ring.completion().next() else { return };
            self.finish(&entry);
        }
    }

    fn finish(&mut self, entry: &cqueue::Entry) {
        match entry.user_data() {
            WAKER => {
                self.waker_armed = false;
                self.waker_used = true;
            }
            IGNORED => {}
            watched if watched & WATCHED != 0 => {
                if let Some((_, armed)) = self.watched.get_mut((watched & !WATCHED) as usize) {
                    *armed = false;
                }
            }
            user_data => {
                let slot = user_data as u32;
                let Some(place) = self.slots.get_mut(slot as usize) else { return };
                if u64::from(place.generation) != user_data >> 32 {
                    return;
                }
                let work = &mut place.work;
                if matches!(work.kind, Kind::Free) {
                    return;
                }
                let result = work.complete(entry, &mut self.provided);
                if work.advance(result) && (work.kind.is_disk() || !self.closing) {
                    self.issue(slot);
                    return;
                }
                place.generation = place.generation.wrapping_add(1) & 0x7FFF_FFFF;
                self.free.push(slot);
                self.in_flight -= 1;
                self.disk_in_flight -= usize::from(work.kind.is_disk());
                self.done.extend(work.end(result));
            }
        }
    }
}

impl Ring for Uring {
    fn disk(&mut self, tag: u64, volume: &Arc<Volume>, request: DiskRequest) {
        if volume.takes_commands() {
            // Not this ring's: done as for a caller without one.
            let outcome = crate::sync::execute(volume, request);
            return self.done.push(Completion::Disk { tag, outcome });
        }
        let volume = Arc::clone(volume);
        let request = match volume.place(request) {
            Ok(request) => request,
            Err(outcome) => return self.done.push(Completion::Disk { tag, outcome }),
        };
        let kind = match request {
            DiskRequest::Read { block, len, .. } if len as usize > block.len() => {
                let outcome = DiskOutcome::Read(block, Err(IoFault::Os(libc::EINVAL)));
                return self.done.push(Completion::Disk { tag, outcome });
            }
            DiskRequest::Read { offset, block, len } => Kind::Read { volume, offset, block, len },
            DiskRequest::Write { offset, parts, durable } => {
                let total = parts.iter().map(|part| part.len as usize).sum();
                Kind::Write { volume, offset, parts, total, durable }
            }
            DiskRequest::Flush => Kind::Flush { volume },
            DiskRequest::Allocate { offset, len } => Kind::Allocate { volume, offset, len },
            DiskRequest::Discard { offset, len } => Kind::Discard { volume, offset, len },
        };
        self.start(tag, kind);
    }

    fn net(&mut self, tag: u64, request: NetRequest) {
        let kind = match request {
            NetRequest::Accept { listener } => Kind::Accept { listener },
            NetRequest::Recv { socket, mut buffer } => {
                if buffer.capacity() == buffer.len() {
                    buffer.reserve(4096);
                }
                let provided = if Provided::replaces(&buffer) { self.provided.ready(&self.ring.ring) } else { None };
                match provided {
                    None => Kind::Recv { socket, buffer },
                    Some(provided) => {
                        let len = buffer.capacity() as u32;
                        provided.hand_in(buffer);
                        Kind::RecvProvided { socket, len }
                    }
                }
            }
            NetRequest::Send { socket, chunks } => {
                let total = chunks.iter().map(|chunk| chunk.bytes().len()).sum();
                Kind::Send { socket, chunks, total }
            }
        };
        self.start(tag, kind);
    }

    fn shutdown(&mut self, socket: &Socket) {
        // Wakes receives and sends; a listener's accept ends with EINVAL.
        let shut = |descriptor| rustix::net::shutdown(descriptor, rustix::net::Shutdown::Both);
        if socket.descriptor().and_then(shut).is_err() {
            self.cancel(socket);
        }
    }

    fn cancel(&mut self, socket: &Socket) {
        let every = CancelBuilder::fd(Fd(socket.raw())).all();
        self.push(opcode::AsyncCancel2::new(every).build().user_data(IGNORED));
    }

    fn submit(&mut self, wait: Wait) -> io::Result<()> {
        self.push_backlog();
        self.drain();
        let (want, timeout) = match wait {
            Wait::None => (0, None),
            // Used between the caller's last look and here.
            Wait::For { .. } if self.waker_used => (0, None),
            Wait::For { completions, timeout } => {
                self.arm_waker();
                self.arm_watches();
                let missing = (completions as usize).saturating_sub(self.done.len());
                let gathers = timeout.is_some_and(|timeout| timeout <= GATHER_MAX);
                (if gathers { missing } else { missing.min(1) }, timeout)
            }
        };
        let queued = !self.ring.ring.submission().is_empty();
        let result =
            if want > 0 || queued || self.ring.kernel_has_news() { self.ring.enter(want, timeout) } else { Ok(()) };
        fence(Ordering::SeqCst);
        self.waker.awake();
        self.drain();
        self.waker_used = false;
        result?;
        // What did not fit, and the rests of short transfers.
        let mut again = !self.ring.ring.submission().is_empty();
        while again || !self.backlog.is_empty() {
            self.push_backlog();
            self.ring.enter(0, None)?;
            self.drain();
            again = false;
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.drain();
        if completions.is_empty() {
            std::mem::swap(completions, &mut self.done);
        } else {
            completions.append(&mut self.done);
        }
    }

    fn has_news(&mut self) -> bool {
        !self.done.is_empty() || !self.ring.ring.completion().is_empty() || self.ring.kernel_has_news()
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn watch(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        if self.watched.len() == WATCHED_MAX {
            return Err(io::Error::other("an io_uring watches 64 descriptors at most"));
        }
        self.watched.push((descriptor.as_raw_fd(), false));
        Ok(())
    }

    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn system_calls(&self) -> u64 {
        self.ring.system_calls()
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.lineage.is_forked() {
            // What is in flight is the parent's, and so is the kernel's end of the ring.
            return;
        }
        // The kernel holds pointers into the work in flight: what waits for sockets is cancelled
        // (others may still use them), disk requests end by themselves, then all is reaped.
        self.closing = true;
        let sockets: Vec<Socket> = self.slots.iter().filter_map(|slot| slot.work.kind.socket()).collect();
        sockets.iter().for_each(|socket| self.cancel(socket));
        while self.in_flight > 0 || self.waker_armed {
            self.push_backlog();
            self.waker.announce_sleep();
            self.waker.wake();
            if self.ring.enter(1, None).is_err() {
                // Cannot reap: leak what the kernel may still write to rather than free it.
                for slot in self.slots.drain(..) {
                    Box::leak(slot.work);
                }
                Box::leak(std::mem::replace(&mut self.woken, Box::new(0)));
                if let Buffers::Ready(provided) = std::mem::replace(&mut self.provided, Buffers::Refused) {
                    Box::leak(provided);
                }
                return;
            }
            self.drain();
        }
    }
}

impl Buffers {
    fn ready(&mut self, ring: &IoUring) -> Option<&mut Provided> {
        if let Buffers::Untried = self {
            *self = Provided::new(ring).map_or(Buffers::Refused, |provided| Buffers::Ready(Box::new(provided)));
        }
        match self {
            Buffers::Ready(provided) => Some(provided),
            _ => None,
        }
    }
}

impl Kind {
    fn is_disk(&self) -> bool {
        matches!(
            self,
            Kind::Read { .. } | Kind::Write { .. } | Kind::Flush { .. } | Kind::Allocate { .. } | Kind::Discard { .. }
        )
    }

    fn socket(&self) -> Option<Socket> {
        match self {
            Kind::Accept { listener: socket }
            | Kind::Recv { socket, .. }
            | Kind::RecvProvided { socket, .. }
            | Kind::Send { socket, .. } => Some(Arc::clone(socket)),
            _ => None,
        }
    }
}

impl Chunk {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Bytes(bytes) => bytes,
            Chunk::Block { block, start, len } => &block[*start as usize..][..*len as usize],
        }
    }
}

fn iovecs<'a>(parts: impl Iterator<Item = &'a [u8]>, mut skip: usize, into: &mut Vec<libc::iovec>) {
    into.clear();
    for bytes in parts {
        let left = bytes.get(skip..).unwrap_or_default();
        skip = skip.saturating_sub(bytes.len());
        if !left.is_empty() {
            into.push(libc::iovec { iov_base: left.as_ptr().cast_mut().cast(), iov_len: left.len() });
        }
        if into.len() == 1024 {
            break;
        }
    }
}

/// A write of memory that its caller keeps until it is done.
fn write_entry(file: Fd, iovecs: &[libc::iovec], offset: u64, flags: i32) -> squeue::Entry {
    match iovecs {
        [one] => {
            opcode::Write::new(file, one.iov_base.cast(), one.iov_len as u32).offset(offset).rw_flags(flags).build()
        }
        several => {
            opcode::Writev::new(file, several.as_ptr(), several.len() as u32).offset(offset).rw_flags(flags).build()
        }
    }
}

impl Work {
    /// The submission entry for what is left of this request, if there is one.
    fn entry(&mut self) -> Option<squeue::Entry> {
        let done = self.done;
        Some(match &mut self.kind {
            Kind::Free => return None,
            Kind::Read { volume, offset, block, len } => {
                let rest = &mut block[done..*len as usize];
                opcode::Read::new(Fd(volume.descriptor()), rest.as_mut_ptr(), rest.len() as u32)
                    .offset(*offset + done as u64)
                    .build()
            }
            Kind::Write { volume, offset, parts, total, durable } => {
                let flags = crate::sync::write_flags(volume, *total, *durable);
                let file = Fd(volume.descriptor());
                iovecs(parts.iter().map(BlockPart::bytes), done, &mut self.iovecs);
                write_entry(file, &self.iovecs, *offset + done as u64, flags)
            }
            Kind::Flush { volume } => opcode::Fsync::new(Fd(volume.descriptor())).flags(FsyncFlags::DATASYNC).build(),
            Kind::Allocate { volume, offset, len } => {
                opcode::Fallocate::new(Fd(volume.descriptor()), *len).offset(*offset).build()
            }
            Kind::Discard { volume, offset, len } => opcode::Fallocate::new(Fd(volume.descriptor()), *len)
                .offset(*offset)
                .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
            Kind::Accept { listener } => {
                let flags = libc::SOCK_CLOEXEC;
                opcode::Accept::new(Fd(listener.raw()), std::ptr::null_mut(), std::ptr::null_mut()).flags(flags).build()
            }
            Kind::Recv { socket, buffer } => {
                let spare = buffer.spare_capacity_mut();
                let (pointer, len) = (spare.as_mut_ptr().cast::<u8>(), spare.len().min(1 << 30));
                opcode::Recv::new(Fd(socket.raw()), pointer, len as u32).build()
            }
            Kind::RecvProvided { socket, len } => opcode::Recv::new(Fd(socket.raw()), std::ptr::null_mut(), *len)
                .buf_group(0)
                .ioprio(POLL_FIRST)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT),
            Kind::Send { socket, chunks, .. } => {
                iovecs(chunks.iter().map(Chunk::bytes), done, &mut self.iovecs);
                // SAFETY: msghdr is plain data for which all zeros is valid.
                let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
                message.msg_iov = self.iovecs.as_mut_ptr();
                message.msg_iovlen = self.iovecs.len() as _;
                // MSG_WAITALL: the kernel itself goes on after a short send.
                let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
                let message: *const libc::msghdr = self.message.insert(message);
                opcode::SendMsg::new(Fd(socket.raw()), message).flags(flags as u32).build()
            }
        })
    }

    /// Puts the buffer that the kernel took where a receive's own would be, and gives the result to
    /// go on with.
    fn complete(&mut self, entry: &cqueue::Entry, provided: &mut Buffers) -> i32 {
        let (Kind::RecvProvided { socket, len }, Buffers::Ready(provided)) = (&self.kind, provided) else {
            return entry.result();
        };
        let (socket, len) = (Arc::clone(socket), *len as usize);
        let taken = cqueue::buffer_select(entry.flags()).and_then(|number| provided.take(number));
        match (entry.result(), taken) {
            (result, Some(buffer)) if i64::from(result) <= buffer.capacity() as i64 => {
                self.kind = Kind::Recv { socket, buffer };
                result
            }
            (1.., _) => -libc::EIO,
            // All were taken: again, with one of its own.
            (result, None) if result == -libc::ENOBUFS => {
                self.kind = Kind::Recv { socket, buffer: Vec::with_capacity(len) };
                -libc::EINTR
            }
            (result, _) => result,
        }
    }

    /// Takes in a completion's result; true if the rest of the request is to be issued again.
    fn advance(&mut self, result: i32) -> bool {
        if result == -libc::EINTR || (result == -libc::EAGAIN && self.may_try_again()) {
            return true;
        }
        if result <= 0 {
            return false;
        }
        let total = match &self.kind {
            Kind::Read { len, .. } => *len as usize,
            Kind::Write { total, .. } | Kind::Send { total, .. } => *total,
            _ => return false,
        };
        self.done += result as usize;
        if let Kind::Read { offset, .. } = &self.kind
            && !crate::sync::goes_on_at(*offset + self.done as u64)
        {
            return false;
        }
        self.done < total
    }

    /// Whether EAGAIN means "issue it again": always for a disk; for a socket once, after setting
    /// it to blocking (on a non-blocking one some kernels answer EAGAIN instead of waiting).
    fn may_try_again(&mut self) -> bool {
        let Some(socket) = self.kind.socket() else { return true };
        !std::mem::replace(&mut self.unblocked, true) && {
            socket.descriptor().and_then(|descriptor| rustix::io::ioctl_fionbio(descriptor, false)).is_ok()
        }
    }

    /// The completion of a request whose last result is `result`. Leaves room for another one.
    fn end(&mut self, result: i32) -> Option<Completion> {
        if self.iovecs.capacity() > IOVECS_KEPT {
            self.iovecs = Vec::new();
        }
        let tag = self.tag;
        let disk = |outcome| Completion::Disk { tag, outcome };
        let net = |outcome| Completion::Net { tag, outcome };
        let plain = if result < 0 { Err(IoFault::from_errno(-result)) } else { Ok(()) };
        let system = if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result as usize) };
        Some(match std::mem::take(&mut self.kind) {
            Kind::Free => return None,
            Kind::Read { block, len, .. } => {
                let short = self.done < len as usize;
                disk(DiskOutcome::Read(block, plain.and(if short { Err(IoFault::Short) } else { Ok(()) })))
            }
            Kind::Write { total, .. } => {
                let short = self.done < total;
                disk(DiskOutcome::Write(plain.and(if short { Err(IoFault::Full) } else { Ok(()) })))
            }
            Kind::Flush { .. } => disk(DiskOutcome::Flush(plain)),
            Kind::Allocate { .. } => disk(DiskOutcome::Allocate(IoFault::of_allocation(plain))),
            Kind::Discard { .. } => disk(DiskOutcome::Discard(plain)),
            Kind::Accept { .. } => net(NetOutcome::Accept(system.map(|fd| {
                // SAFETY: a successful accept gives a new descriptor that nobody else owns.
                let socket = unsafe { OwnedFd::from_raw_fd(fd as i32) };
                crate::ring::accepted(socket)
            }))),
            Kind::Recv { mut buffer, .. } => {
                if let Ok(received) = system {
                    // SAFETY: the kernel filled `received` bytes of the spare capacity it was
                    // given.
                    unsafe { buffer.set_len(buffer.len() + received) };
                }
                net(NetOutcome::Recv(buffer, system))
            }
            Kind::RecvProvided { len, .. } => {
                net(NetOutcome::Recv(Vec::with_capacity(len as usize), system.map(|_| 0)))
            }
            Kind::Send { total, .. } => {
                let broken = self.done < total && result == 0;
                net(NetOutcome::Send(if broken { Err(io::ErrorKind::WriteZero.into()) } else { system.map(|_| ()) }))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::OpenMode;

    /// The slot of a request is used again, by a request that has nothing to do with it.
    #[test]
    fn a_completion_that_comes_late_ends_no_other_request() {
        let Ok(mut ring) = Uring::new(8) else {
            return;
        };
        let directory = tempfile::tempdir().unwrap();
        let mode = OpenMode { create: true, read_only: false };
        let volume = Arc::new(Volume::open(&directory.path().join("v"), mode).unwrap());
        let wait = Wait::For { completions: 1, timeout: None };
        let mut done = Vec::new();
        for tag in 1..4 {
            let late = u64::from(ring.slots.first().map_or(0, |slot| slot.generation)) << 32;
            ring.disk(tag, &volume, DiskRequest::Flush);
            while done.is_empty() {
                ring.submit(wait).unwrap();
                ring.reap(&mut done);
            }
            assert_eq!((done.drain(..).count(), ring.in_flight()), (1, 0));
            // A request that waits for its peer takes the place, and the kernel tells the end of
            // the flush once more.
            let (peer, own) = std::os::unix::net::UnixStream::pair().unwrap();
            let socket: Socket = Arc::new(OwnedFd::from(own).into());
            ring.net(10 + tag, NetRequest::Recv { socket, buffer: Vec::with_capacity(16) });
            ring.push(opcode::Nop::new().build().user_data(late));
            let short = Wait::For { completions: 1, timeout: Some(Duration::from_millis(20)) };
            ring.submit(short).unwrap();
            ring.reap(&mut done);
            assert!(done.is_empty() && ring.in_flight() == 1, "the late one ended it: {done:?}");
            drop(peer);
            while done.is_empty() {
                ring.submit(wait).unwrap();
                ring.reap(&mut done);
            }
            assert!(matches!(&done[..], [Completion::Net { tag: ended, .. }] if *ended == 10 + tag), "{done:?}");
            done.clear();
        }
    }
}
