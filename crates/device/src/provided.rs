//! Buffers of which the kernel takes one when bytes have come: who waits for its peer holds none.
#![expect(unsafe_code, reason = "a ring in memory that the kernel reads: one entry type, one tail, written here only")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

/// How many the kernel has. With more receives than this between two looks the others bring a
/// buffer of their own.
const COUNT: u16 = 256;
/// What receives hand in beyond these is freed.
const STOCK_MAX: usize = COUNT as usize;
/// Shorter buffers would split what comes, longer ones are for those who expect much.
const BYTES_MIN: usize = 2 << 10;
const BYTES_MAX: usize = 4 << 10;

/// A registered ring of buffers (IORING_REGISTER_PBUF_RING), group 0. The io_uring must go first.
pub(crate) struct Provided {
    entries: *mut BufRingEntry,
    /// What the kernel has, by number.
    buffers: Vec<Vec<u8>>,
    /// Handed in by receives that wait, for those that end.
    stock: Vec<Vec<u8>>,
    tail: u16,
}

// SAFETY: the entries are memory of its own.
unsafe impl Send for Provided {}

impl Provided {
    /// # Errors
    /// The kernel has no such rings (before Linux 5.19), or counts its one page as too much.
    pub(crate) fn new(ring: &IoUring) -> io::Result<Provided> {
        // SAFETY: not of size zero.
        let entries = unsafe { alloc_zeroed(layout()) };
        if entries.is_null() {
            handle_alloc_error(layout());
        }
        let mut provided = Provided { entries: entries.cast(), buffers: Vec::new(), stock: Vec::new(), tail: 0 };
        // SAFETY: the entries live until after the ring.
        unsafe { ring.submitter().register_buf_ring_with_flags(entries as u64, COUNT, 0, 0)? };
        for number in 0..COUNT {
            provided.buffers.push(Vec::with_capacity(BYTES_MIN));
            provided.publish(number);
        }
        Ok(provided)
    }

    /// Whether a receive may do without this buffer until bytes have come.
    pub(crate) fn replaces(buffer: &Vec<u8>) -> bool {
        buffer.is_empty() && (BYTES_MIN..=BYTES_MAX).contains(&buffer.capacity())
    }

    /// Keeps a buffer that is [replaced](Self::replaces).
    pub(crate) fn hand_in(&mut self, buffer: Vec<u8>) {
        if self.stock.len() < STOCK_MAX {
            self.stock.push(buffer);
        }
    }

    /// The buffer that the kernel has filled, its length still 0; it gets another one for it.
    pub(crate) fn take(&mut self, number: u16) -> Option<Vec<u8>> {
        let place = self.buffers.get_mut(usize::from(number))?;
        let next = self.stock.pop().unwrap_or_else(|| Vec::with_capacity(BYTES_MIN));
        let filled = std::mem::replace(place, next);
        self.publish(number);
        Some(filled)
    }

    fn publish(&mut self, number: u16) {
        let Some(buffer) = self.buffers.get_mut(usize::from(number)) else { return };
        // SAFETY: within the ring; the kernel reads the entry only when the tail is past it.
        let entry = unsafe { &mut *self.entries.add(usize::from(self.tail % COUNT)) };
        entry.set_addr(buffer.as_mut_ptr() as u64);
        entry.set_len(buffer.capacity() as u32);
        entry.set_bid(number);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail lies in the first entry, where no other field is; the kernel only reads
        // it.
        let tail = unsafe { &*BufRingEntry::tail(self.entries).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }
}

fn layout() -> Layout {
    // The kernel wants whole pages.
    Layout::new::<[BufRingEntry; COUNT as usize]>()
        .align_to(4096)
        .map_or(Layout::new::<u8>(), |layout| layout.pad_to_align())
}

impl Drop for Provided {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.entries.cast(), layout()) };
    }
}
