//! AF_XDP sockets: their rings of descriptors, shared with the kernel.
#![expect(unsafe_code, reason = "rings in memory that the kernel reads and writes, and the calls that set them up")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::umem::{FrameDescriptor, FrameRings, Umem};

/// Descriptors in each ring.
const RING_ENTRIES: u32 = 4096;
/// Frames that one system call sends in copy mode (XDP_MAX_TX_SKB_BUDGET, from Linux 6.18 on; 32
/// before).
const MAX_TX_BUDGET: libc::c_int = 9;
/// System calls that send what is queued, if one does not send all of it.
const KICKS_MAX: u32 = 16;

/// A socket bound to one receive queue, with its four rings. One thread uses it.
#[derive(Debug)]
pub(super) struct XskRings {
    socket: OwnedFd,
    fill: Queue,
    completion: Queue,
    receive: Queue,
    transmit: Queue,
    /// Frames go to the card without a copy.
    pub(super) is_zero_copy: bool,
    pub(super) system_calls: u64,
}

/// One ring: indexes and descriptors in a mapping that the kernel shares.
#[derive(Debug)]
struct Queue {
    memory: NonNull<u8>,
    mapped_bytes: usize,
    offsets: libc::xdp_ring_offset,
    /// Ours, published or to be published; and the kernel's as last seen.
    ours: u32,
    theirs: u32,
}

// SAFETY: the mapping belongs to the queue alone; the kernel's side is reached through atomics, and
// descriptors only where the indexes say that they are ours.
unsafe impl Send for Queue {}

impl Queue {
    fn map(socket: &OwnedFd, at: i64, offsets: libc::xdp_ring_offset, entry_bytes: usize) -> io::Result<Queue> {
        let mapped_bytes = offsets.desc as usize + RING_ENTRIES as usize * entry_bytes;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new shared mapping of the socket's ring touches no memory that is in use.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), mapped_bytes, protection, flags, socket.as_raw_fd(), at) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or_else(|| io::Error::other("mmap returned null"))?;
        Ok(Queue { memory, mapped_bytes, offsets, ours: 0, theirs: 0 })
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel gave this offset for this mapping; it is aligned, lies within, and the
        // kernel uses the word atomically as well. It lives as long as the queue.
        unsafe { &*self.memory.as_ptr().add(offset as usize).cast::<AtomicU32>() }
    }

    fn producer(&self) -> &AtomicU32 {
        self.word(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.word(self.offsets.consumer)
    }

    fn wants_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Where entry `index` is.
    fn entry<T>(&self, index: u32) -> *mut T {
        let place = (index & (RING_ENTRIES - 1)) as usize;
        // SAFETY: the masked index lies within the entries that were mapped.
        unsafe { self.memory.as_ptr().add(self.offsets.desc as usize).cast::<T>().add(place) }
    }

    /// As a producer: whether there is room for one more.
    fn has_room(&mut self) -> bool {
        if self.ours.wrapping_sub(self.theirs) >= RING_ENTRIES {
            self.theirs = self.consumer().load(Ordering::Acquire);
        }
        self.ours.wrapping_sub(self.theirs) < RING_ENTRIES
    }

    fn push<T>(&mut self, value: T) -> bool {
        let has_room = self.has_room();
        if has_room {
            // SAFETY: the kernel has consumed this entry and does not read it before `publish`.
            unsafe { self.entry::<T>(self.ours).write(value) };
            self.ours = self.ours.wrapping_add(1);
        }
        has_room
    }

    /// Lets the kernel see what was pushed.
    fn publish(&self) {
        if self.producer().load(Ordering::Relaxed) != self.ours {
            self.producer().store(self.ours, Ordering::Release);
        }
    }

    /// As a consumer: the next entry.
    fn pop<T: Copy>(&mut self) -> Option<T> {
        if self.ours == self.theirs {
            self.consumer().store(self.ours, Ordering::Release);
            self.theirs = self.producer().load(Ordering::Acquire);
            if self.ours == self.theirs {
                return None;
            }
        }
        // SAFETY: the kernel has produced this entry and does not write it before it is consumed.
        let value = unsafe { self.entry::<T>(self.ours).read() };
        self.ours = self.ours.wrapping_add(1);
        Some(value)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it lives longer than the queue.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.mapped_bytes) };
    }
}

fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let (at, bytes) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the value lives until the call returns, and `bytes` is its size.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, at, bytes) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn get<T: Default>(socket: &OwnedFd, option: libc::c_int) -> io::Result<T> {
    let mut value = T::default();
    let mut bytes = size_of::<T>() as libc::socklen_t;
    let at = (&raw mut value).cast();
    // SAFETY: the kernel writes at most `bytes` bytes of a plain structure.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, at, &raw mut bytes) };
    match (result, bytes as usize == size_of::<T>()) {
        (0, true) => Ok(value),
        (0, false) => Err(io::Error::other("this kernel's AF_XDP is too old (5.4 is needed)")),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `struct xdp_mmap_offsets`, with a default.
#[repr(C)]
#[derive(Clone, Copy)]
struct Offsets(libc::xdp_mmap_offsets);

impl Default for Offsets {
    fn default() -> Offsets {
        // SAFETY: plain numbers, for which all zeros is valid.
        Offsets(unsafe { std::mem::zeroed() })
    }
}

/// Whether the kernel was built with AF_XDP.
pub(super) fn is_built() -> bool {
    // SAFETY: takes no pointers.
    let number = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if number < 0 {
        return io::Error::last_os_error().raw_os_error() != Some(libc::EAFNOSUPPORT);
    }
    // SAFETY: socket(2) returned a new descriptor, which nobody else owns.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    true
}

impl XskRings {
    /// A socket at one receive queue of an interface, over a UMEM. The driver's zero-copy mode is
    /// tried first by the kernel itself.
    ///
    /// # Errors
    /// As bind(2) of AF_XDP: EINVAL for a queue that the interface has not, EBUSY for one that
    /// another socket has.
    pub(super) fn open(umem: &Umem, interface: u32, queue: u32) -> io::Result<XskRings> {
        // SAFETY: takes no pointers.
        let number = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: socket(2) returned a new descriptor, which nobody else owns.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        // SAFETY: plain numbers, for which all zeros is valid.
        let mut memory: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
        (memory.addr, memory.len, memory.chunk_size) = (umem.address(), umem.bytes() as u64, umem.frame_bytes() as u32);
        set(&socket, libc::XDP_UMEM_REG, &memory)?;
        let rings = [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING];
        for ring in rings {
            set(&socket, ring, &RING_ENTRIES)?;
        }
        let Offsets(offsets) = get(&socket, libc::XDP_MMAP_OFFSETS)?;
        let (address, descriptor) = (size_of::<u64>(), size_of::<libc::xdp_desc>());
        let fill = Queue::map(&socket, libc::XDP_UMEM_PGOFF_FILL_RING as i64, offsets.fr, address)?;
        let completion = Queue::map(&socket, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64, offsets.cr, address)?;
        let receive = Queue::map(&socket, libc::XDP_PGOFF_RX_RING, offsets.rx, descriptor)?;
        let transmit = Queue::map(&socket, libc::XDP_PGOFF_TX_RING, offsets.tx, descriptor)?;
        // In copy mode frames on their way count for the socket's buffer: what is smaller than the
        // frames there are makes calls in vain. Without the right to it, the default stays.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size_force(&socket, umem.bytes());
        // Older kernels send 32 frames a call, and more calls are made.
        let _ = set(&socket, MAX_TX_BUDGET, &RING_ENTRIES);
        bind(&socket, interface, queue)?;
        // Told to the operator only.
        let options: u32 = get(&socket, libc::XDP_OPTIONS).unwrap_or(0);
        let is_zero_copy = options & libc::XDP_OPTIONS_ZEROCOPY != 0;
        Ok(XskRings { socket, fill, completion, receive, transmit, is_zero_copy, system_calls: 0 })
    }

    /// What has befallen the socket since it was last asked: its interface is gone.
    ///
    /// # Errors
    /// That.
    pub(super) fn check(&mut self) -> io::Result<()> {
        self.system_calls += 1;
        Ok(rustix::net::sockopt::socket_error(&self.socket)??)
    }

    /// Has the kernel send what is queued.
    fn kick(&mut self) -> io::Result<()> {
        self.system_calls += 1;
        let number = self.socket.as_raw_fd();
        // SAFETY: no bytes and no address are given.
        let sent = unsafe { libc::sendto(number, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
        if sent >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Has the driver look at the fill ring, which it found empty.
    fn wake_receiver(&mut self) {
        self.system_calls += 1;
        let number = self.socket.as_raw_fd();
        let flags = libc::MSG_DONTWAIT;
        let none = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: room for no bytes and no address is given. What it returns says nothing: it is
        // called again as long as the driver asks for it.
        let _ = unsafe { libc::recvfrom(number, std::ptr::null_mut(), 0, flags, none.0, none.1) };
    }
}

fn bind(socket: &OwnedFd, interface: u32, queue: u32) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let bytes = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the address lives until the call returns, and `bytes` is its size.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl AsFd for XskRings {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl FrameRings for XskRings {
    fn fill(&mut self, offset: u64) -> bool {
        self.fill.push(offset)
    }

    fn received(&mut self) -> Option<FrameDescriptor> {
        let descriptor: libc::xdp_desc = self.receive.pop()?;
        Some(FrameDescriptor { offset: descriptor.addr, len: descriptor.len })
    }

    fn transmit(&mut self, FrameDescriptor { offset, len }: FrameDescriptor) -> bool {
        self.transmit.push(libc::xdp_desc { addr: offset, len, options: 0 })
    }

    fn can_transmit(&mut self) -> bool {
        self.transmit.has_room()
    }

    fn sent(&mut self) -> Option<u64> {
        self.completion.pop()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.fill.publish();
        self.receive.consumer().store(self.receive.ours, Ordering::Release);
        self.transmit.publish();
        if self.fill.wants_wakeup() {
            self.wake_receiver();
        }
        let mut taken = None;
        for _ in 0..KICKS_MAX {
            let consumed = self.transmit.consumer().load(Ordering::Acquire);
            // A kick that sent nothing is not repeated: something else has to end first.
            if consumed == self.transmit.ours || taken == Some(consumed) || !self.transmit.wants_wakeup() {
                break;
            }
            taken = Some(consumed);
            match self.kick().map_err(|error| error.raw_os_error()) {
                // As many were sent as a call sends, or the interface's queue is full: again, or at
                // the next flush.
                Ok(()) | Err(Some(libc::EAGAIN | libc::EINTR)) => {}
                Err(Some(libc::EBUSY | libc::ENOBUFS)) => break,
                // It may come up again.
                Err(Some(libc::ENETDOWN)) => break,
                Err(errno) => {
                    return Err(errno.map_or_else(|| io::Error::other("sendto"), io::Error::from_raw_os_error));
                }
            }
        }
        Ok(())
    }
}
