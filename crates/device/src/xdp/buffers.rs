//! What connections hold: [`BufferMemory`] of one, as much resident as it has used, and
//! [`BufferBudget`] for what all of a stack hold beyond their least.
#![expect(unsafe_code, reason = "memory of sockets that can be given back to the system in part")]

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much connections hold, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// Received and not yet taken: what each connection may hold whatever the others do.
    pub receive_least: usize,
    /// And what it may hold where the budget has room for it when it opens.
    pub receive_most: usize,
    /// Sent and not acknowledged: what each may hold whatever the others do.
    pub send_least: usize,
    /// And what it may grow to.
    pub send_most: usize,
    /// The budget: for what all hold beyond their least.
    pub shared: usize,
}

impl Default for BufferSizes {
    fn default() -> BufferSizes {
        BufferSizes {
            receive_least: 16 << 10,
            receive_most: 64 << 10,
            send_least: 32 << 10,
            send_most: 256 << 10,
            shared: 16 << 20,
        }
    }
}

/// Bytes that connections of a stack may still hold beyond their least.
#[derive(Debug)]
pub(super) struct BufferBudget {
    sizes: BufferSizes,
    left: AtomicUsize,
}

impl BufferBudget {
    pub(super) fn new(sizes: BufferSizes) -> Arc<BufferBudget> {
        Arc::new(BufferBudget { sizes, left: sizes.shared.into() })
    }

    /// Takes bytes; false if there would be fewer than `keep` left.
    fn take(&self, bytes: usize, keep: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes).filter(|rest| *rest >= keep);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Whether there is so little left that who needs it no more gives it back.
    fn is_short(&self) -> bool {
        self.left.load(Ordering::Relaxed) < self.sizes.shared / 4
    }
}

/// The buffers of one connection: address space for the most it may have, memory for what it has
/// used, and a part of the budget.
#[derive(Debug)]
pub(super) struct BufferMemory {
    memory: NonNull<u8>,
    mapped_bytes: usize,
    receive_bytes: usize,
    /// How much the send buffer may hold for now.
    send_bytes: usize,
    taken_bytes: usize,
    budget: Arc<BufferBudget>,
}

// SAFETY: the mapping belongs to this value; who has its slices keeps it alive, as `slices`
// demands.
unsafe impl Send for BufferMemory {}

impl BufferMemory {
    /// Buffers of a new connection. Half of the budget is kept for sending.
    ///
    /// # Errors
    /// The system has no address space for them.
    pub(super) fn new(budget: &Arc<BufferBudget>) -> io::Result<BufferMemory> {
        let sizes = budget.sizes;
        let more = sizes.receive_most.saturating_sub(sizes.receive_least);
        let has_more = budget.take(more, sizes.shared / 2);
        let receive_bytes = if has_more { sizes.receive_most } else { sizes.receive_least };
        let taken_bytes = if has_more { more } else { 0 };
        let mapped_bytes = receive_bytes + sizes.send_most;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping touches no memory that is in use.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), mapped_bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        let memory = match NonNull::new(memory.cast::<u8>()) {
            Some(address) if memory != libc::MAP_FAILED => address,
            _ => {
                budget.left.fetch_add(taken_bytes, Ordering::Relaxed);
                return Err(io::Error::last_os_error());
            }
        };
        let buffers = BufferMemory {
            memory,
            mapped_bytes,
            receive_bytes,
            send_bytes: sizes.send_least,
            taken_bytes,
            budget: Arc::clone(budget),
        };
        // Huge pages would make memory of what nobody has touched. Kernels without them refuse.
        let _ = buffers.advise(0, libc::MADV_NOHUGEPAGE);
        Ok(buffers)
    }

    fn advise(&self, from: usize, advice: libc::c_int) -> io::Result<()> {
        let len = self.mapped_bytes.saturating_sub(from);
        // SAFETY: the range lies in the mapping, which is ours.
        let result = unsafe { libc::madvise(self.memory.as_ptr().add(from).cast(), len, advice) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The receive buffer and the send buffer.
    ///
    /// # Safety
    /// Once only, and what is returned is dropped before `self`.
    pub(super) unsafe fn slices(&self) -> (&'static mut [u8], &'static mut [u8]) {
        // SAFETY: both ranges lie in the mapping, apart from each other; the caller promises that
        // nobody else has them, and that they are gone before the mapping is.
        unsafe {
            let send = self.memory.as_ptr().add(self.receive_bytes);
            (
                std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.receive_bytes),
                std::slice::from_raw_parts_mut(send, self.mapped_bytes - self.receive_bytes),
            )
        }
    }

    /// How much the send buffer may hold for now.
    pub(super) fn send_bytes(&self) -> usize {
        self.send_bytes
    }

    /// Lets the send buffer hold twice as much, if that is not too much and the budget has it.
    pub(super) fn grow(&mut self) -> bool {
        let more = self.send_bytes.min(self.budget.sizes.send_most.saturating_sub(self.send_bytes));
        let grows = more > 0 && self.budget.take(more, 0);
        if grows {
            self.send_bytes += more;
            self.taken_bytes += more;
        }
        grows
    }

    /// Gives back what an empty send buffer has beyond its least, if others may need it.
    pub(super) fn shrink(&mut self) {
        let least = self.budget.sizes.send_least;
        if self.send_bytes <= least || !self.budget.is_short() {
            return;
        }
        // What an empty ring buffer holds nobody reads; it begins at its start again.
        if self.advise(self.receive_bytes + least, libc::MADV_DONTNEED).is_ok() {
            let less = self.send_bytes - least;
            self.send_bytes = least;
            self.taken_bytes -= less;
            self.budget.left.fetch_add(less, Ordering::Relaxed);
        }
    }
}

impl Drop for BufferMemory {
    fn drop(&mut self) {
        self.budget.left.fetch_add(self.taken_bytes, Ordering::Relaxed);
        // SAFETY: the mapping is ours, and its slices are gone by the promise of `slices`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.mapped_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(shared: usize) -> Arc<BufferBudget> {
        BufferBudget::new(BufferSizes { shared, ..BufferSizes::default() })
    }

    fn left(budget: &BufferBudget) -> usize {
        budget.left.load(Ordering::Relaxed)
    }

    #[test]
    fn connections_hold_together_what_the_budget_has_and_their_least() {
        let budget = budget(256 << 10);
        let mut all: Vec<BufferMemory> = (0..5).map(|_| BufferMemory::new(&budget).unwrap()).collect();
        // Half of the budget is for receiving: two connections have more than 16 KiB.
        let receive: Vec<usize> = all.iter().map(|one| one.receive_bytes >> 10).collect();
        assert_eq!(receive, [64, 64, 16, 16, 16]);
        for one in &mut all {
            while one.grow() {}
        }
        let held: usize = all.iter().map(|one| one.receive_bytes + one.send_bytes).sum();
        let least = 5 * (48 << 10);
        assert!(held <= least + (256 << 10) && left(&budget) < 32 << 10, "{held}, {}", left(&budget));
        assert!(all.iter().all(|one| one.send_bytes >= 32 << 10));
        drop(all);
        assert_eq!(left(&budget), 256 << 10);
    }

    #[test]
    fn an_empty_buffer_gives_back_what_others_may_need() {
        let budget = budget(300 << 10);
        let mut one = BufferMemory::new(&budget).unwrap();
        // SAFETY: they are dropped before the buffers are.
        let (_, send) = unsafe { one.slices() };
        while one.grow() {}
        assert_eq!(one.send_bytes(), 256 << 10);
        send.fill(1);
        one.shrink();
        assert_eq!((one.send_bytes(), left(&budget)), (32 << 10, (300 - 48) << 10));
        assert_eq!((send[(32 << 10) - 1], send[32 << 10], send[(256 << 10) - 1]), (1, 0, 0));
        // With plenty it keeps it.
        while one.grow() {}
        budget.left.fetch_add(1 << 20, Ordering::Relaxed);
        one.shrink();
        assert_eq!(one.send_bytes(), 256 << 10);
    }
}
