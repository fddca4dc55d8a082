//! [`Umem`]: the memory that frames lie in, shared with the kernel, and [`UmemIo`]: frames in and
//! out of it over any rings of descriptors.
#![expect(unsafe_code, reason = "memory that the kernel reads and writes; each frame has one owner at a time")]

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use stratakv_base::fault_point;

use super::frame_io::FrameIo;
use super::frame_pool::FramePool;

/// Bytes that the kernel leaves free before a received frame (XDP_PACKET_HEADROOM).
pub(super) const HEADROOM: usize = 256;

/// Frames of one length, back to back in one mapping.
#[derive(Debug)]
pub(super) struct Umem {
    memory: NonNull<u8>,
    frame_bytes: usize,
    frames: u32,
}

// SAFETY: the mapping belongs to the Umem alone until it is dropped, and its bytes are reached only
// through a `UmemFrame` or `Umem::write`, whose callers own the frame.
unsafe impl Send for Umem {}
// SAFETY: as above; a shared Umem gives out no reference to bytes without an owned frame.
unsafe impl Sync for Umem {}

impl Umem {
    /// Room for `frames` frames of `frame_bytes` bytes, all zero.
    ///
    /// # Errors
    /// The system has not so much memory.
    pub(super) fn new(frame_bytes: usize, frames: u32) -> io::Result<Umem> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let (protection, bytes) = (libc::PROT_READ | libc::PROT_WRITE, frame_bytes * frames as usize);
        // SAFETY: a new anonymous mapping touches no memory that is in use.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or_else(|| io::Error::other("mmap returned null"))?;
        Ok(Umem { memory, frame_bytes, frames })
    }

    pub(super) fn address(&self) -> u64 {
        self.memory.as_ptr().addr() as u64
    }

    pub(super) fn bytes(&self) -> usize {
        self.frame_bytes * self.frames as usize
    }

    pub(super) fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    pub(super) fn frames(&self) -> u32 {
        self.frames
    }

    /// The offset of a frame, as descriptors have it.
    pub(super) fn offset_of(&self, frame: u32) -> u64 {
        u64::from(frame) * self.frame_bytes as u64
    }

    /// The frame that an offset lies in, and where in it.
    fn place_of(&self, offset: u64) -> (u32, usize) {
        let frame_bytes = self.frame_bytes as u64;
        (u32::try_from(offset / frame_bytes).unwrap_or(u32::MAX), (offset % frame_bytes) as usize)
    }

    /// Lets `fill` write the first `len` bytes of a frame that the caller owns; gives it back if
    /// the frame is shorter.
    pub(super) fn write<T, F: FnOnce(&mut [u8]) -> T>(&self, frame: u32, len: usize, fill: F) -> Result<T, F> {
        if frame >= self.frames || len > self.frame_bytes {
            return Err(fill);
        }
        // SAFETY: the range lies within the mapping by the check above. The caller has taken the
        // frame from its pool and not yet given it to the kernel, so nobody else reaches it.
        let bytes = unsafe {
            let start = self.memory.as_ptr().add(frame as usize * self.frame_bytes);
            std::slice::from_raw_parts_mut(start, len)
        };
        Ok(fill(bytes))
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no frame of it lives: each holds the Umem. What the
        // kernel still has of it, it has pinned by itself.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes()) };
    }
}

/// A received frame that the stack owns.
#[derive(Debug)]
pub(super) struct UmemFrame {
    umem: Arc<Umem>,
    frame: u32,
    start: usize,
    len: usize,
}

impl UmemFrame {
    /// `len` bytes from `start` on in a frame that the caller owns, if they lie within it.
    pub(super) fn new(umem: &Arc<Umem>, frame: u32, start: usize, len: usize) -> Option<UmemFrame> {
        let fits = frame < umem.frames && start.checked_add(len).is_some_and(|end| end <= umem.frame_bytes);
        fits.then(|| UmemFrame { umem: Arc::clone(umem), frame, start, len })
    }
}

impl AsRef<[u8]> for UmemFrame {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range was checked to lie within the mapping, which lives as long as `umem`.
        // The pool says that the stack owns the frame, and the kernel writes only to its own.
        unsafe {
            let start = self.umem.memory.as_ptr().add(self.frame as usize * self.umem.frame_bytes + self.start);
            std::slice::from_raw_parts(start, self.len)
        }
    }
}

/// A range of a UMEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameDescriptor {
    pub(super) offset: u64,
    pub(super) len: u32,
}

/// The four rings of descriptors between a stack and what moves its frames.
pub(super) trait FrameRings {
    /// Offers a frame to be received into; false if the ring is full.
    fn fill(&mut self, offset: u64) -> bool;
    /// The next received frame.
    fn received(&mut self) -> Option<FrameDescriptor>;
    /// Queues a frame to be sent; false if the ring is full.
    fn transmit(&mut self, descriptor: FrameDescriptor) -> bool;
    /// Whether one more can be queued.
    fn can_transmit(&mut self) -> bool;
    /// The next frame that has been sent.
    fn sent(&mut self) -> Option<u64>;
    /// Hands over what was queued.
    fn flush(&mut self) -> io::Result<()>;
}

/// Frames in and out of a UMEM over rings.
#[derive(Debug)]
pub(super) struct UmemIo<R> {
    umem: Arc<Umem>,
    pool: FramePool,
    pub(super) rings: R,
    /// What is written where no frame is free.
    scratch: Vec<u8>,
}

impl<R: FrameRings> UmemIo<R> {
    pub(super) fn new(umem: Arc<Umem>, rings: R) -> UmemIo<R> {
        let pool = FramePool::new(umem.frames());
        let mut io = UmemIo { umem, pool, rings, scratch: Vec::new() };
        io.refill();
        io
    }

    /// Offers free frames to be received into.
    fn refill(&mut self) {
        while let Some(frame) = self.pool.next_for_receiving() {
            if !self.rings.fill(self.umem.offset_of(frame)) {
                self.pool.received(frame);
                self.pool.release(frame);
                return;
            }
        }
    }

    fn take_sent(&mut self) {
        while let Some(offset) = self.rings.sent() {
            self.pool.sent(self.umem.place_of(offset).0);
        }
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn strange(&self) -> u64 {
        self.pool.strange()
    }
}

impl<R: FrameRings> FrameIo for UmemIo<R> {
    type Frame = UmemFrame;

    fn receive(&mut self) -> Option<UmemFrame> {
        loop {
            let FrameDescriptor { offset, len } = self.rings.received()?;
            let (frame, start) = self.umem.place_of(offset);
            if !self.pool.received(frame) {
                continue;
            }
            fault_point!("xdp_received_frame_reused_early", self.rings.fill(self.umem.offset_of(frame)));
            match UmemFrame::new(&self.umem, frame, start, len as usize) {
                Some(frame) => return Some(frame),
                None => self.pool.release(frame),
            }
        }
    }

    fn release(&mut self, frame: UmemFrame) {
        self.pool.release(frame.frame);
    }

    fn can_transmit(&mut self) -> bool {
        if !self.pool.has_free() || !self.rings.can_transmit() {
            self.take_sent();
        }
        self.pool.has_free() && self.rings.can_transmit()
    }

    fn transmit<T>(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> T) -> T {
        let fits = len <= self.umem.frame_bytes() && self.can_transmit();
        let frame = fits.then(|| self.pool.next_for_sending()).flatten();
        // No frame has this number.
        match self.umem.write(frame.unwrap_or(u32::MAX), len, fill) {
            Ok(result) => {
                let offset = self.umem.offset_of(frame.unwrap_or(u32::MAX));
                let is_queued = self.rings.transmit(FrameDescriptor { offset, len: len as u32 });
                debug_assert!(is_queued, "the ring had room");
                result
            }
            Err(fill) => {
                self.scratch.resize(len, 0);
                fill(&mut self.scratch)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.take_sent();
        self.refill();
        self.rings.flush()
    }
}
