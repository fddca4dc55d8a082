//! Memory that a device reaches: the driver's own (queues, lists), and the blocks of pools.
#![expect(unsafe_code, reason = "memory that a device reads and writes is reached by volatile accesses")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::block::CHUNK_BYTES;
use crate::lock;
use crate::nvme::Bus;

/// The unit in which a controller is told of memory (CC.MPS 0).
pub(super) const MEMORY_PAGE_BYTES: usize = 4096;

/// Zeroed memory of the driver's own, which the device reaches.
#[derive(Debug)]
pub(super) struct DmaMemory {
    bus: Arc<dyn Bus>,
    memory: NonNull<u8>,
    layout: Layout,
    address: u64,
}

// SAFETY: reached only through methods that take the value, by accesses that the device may race
// with anyway.
unsafe impl Send for DmaMemory {}
// SAFETY: as above; `&DmaMemory` only reads, by volatile accesses.
unsafe impl Sync for DmaMemory {}

impl DmaMemory {
    /// At least `bytes`, in whole pages.
    pub(super) fn new(bus: &Arc<dyn Bus>, bytes: usize) -> io::Result<DmaMemory> {
        let bytes = bytes.max(1).next_multiple_of(MEMORY_PAGE_BYTES);
        let layout = Layout::from_size_align(bytes, MEMORY_PAGE_BYTES).map_err(io::Error::other)?;
        // SAFETY: the layout has a size.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the memory is freed in Drop, after it was unmapped.
        match unsafe { bus.map(memory, bytes) } {
            Ok(address) => Ok(DmaMemory { bus: Arc::clone(bus), memory, layout, address }),
            Err(error) => {
                // SAFETY: allocated above with this layout, and nobody was told of it.
                unsafe { dealloc(memory.as_ptr(), layout) };
                Err(error)
            }
        }
    }

    /// Where the device finds byte `at`.
    pub(super) fn address(&self, at: usize) -> u64 {
        self.address + at as u64
    }

    /// The double word at byte `at`, as it is now; 0 beyond the end.
    pub(super) fn load(&self, at: usize) -> u32 {
        if !at.is_multiple_of(4) || at + 4 > self.layout.size() {
            return 0;
        }
        // SAFETY: within the memory, and aligned.
        u32::from_le(unsafe { self.memory.as_ptr().add(at).cast::<u32>().read_volatile() })
    }

    /// Writes the double word at byte `at`; nothing beyond the end.
    pub(super) fn store(&mut self, at: usize, value: u32) {
        if !at.is_multiple_of(4) || at + 4 > self.layout.size() {
            return;
        }
        // SAFETY: as in `load`.
        unsafe { self.memory.as_ptr().add(at).cast::<u32>().write_volatile(value.to_le()) }
    }

    /// The same for 64 bits.
    pub(super) fn store_u64(&mut self, at: usize, value: u64) {
        self.store(at, value as u32);
        self.store(at + 4, (value >> 32) as u32);
    }

    /// Clears all of it.
    pub(super) fn clear(&mut self) {
        (0..self.layout.size()).step_by(4).for_each(|at| self.store(at, 0));
    }

    /// The first bytes of it, once the device is done with them.
    pub(super) fn copy_to(&self, bytes: &mut [u8]) {
        for (word, at) in bytes.chunks_mut(4).zip((0..).step_by(4)) {
            word.copy_from_slice(&self.load(at).to_le_bytes()[..word.len()]);
        }
    }
}

impl Drop for DmaMemory {
    fn drop(&mut self) {
        // What cannot be taken back from the device is never used for anything else.
        if self.bus.unmap(self.address, self.layout.size()).is_ok() {
            // SAFETY: allocated with this layout, and the device reaches it no more.
            unsafe { dealloc(self.memory.as_ptr(), self.layout) };
        }
    }
}

/// The chunks of pools that one device reaches: each is mapped once, when the first of its blocks
/// is handed in, and unmapped when the pool frees it.
#[derive(Debug)]
pub(super) struct Domain {
    bus: Arc<dyn Bus>,
    /// Where a chunk begins, and where the device finds it.
    chunks: Mutex<BTreeMap<usize, u64>>,
}

/// All that live, for pools that free a chunk.
static DOMAINS: Mutex<Vec<Weak<Domain>>> = Mutex::new(Vec::new());
/// Whether there was ever one: else a chunk is freed without a look.
static ANY: AtomicBool = AtomicBool::new(false);

impl Domain {
    pub(super) fn new(bus: &Arc<dyn Bus>) -> Arc<Domain> {
        let domain = Arc::new(Domain { bus: Arc::clone(bus), chunks: Mutex::default() });
        let mut domains = lock(&DOMAINS);
        domains.retain(|domain| domain.strong_count() > 0);
        domains.push(Arc::downgrade(&domain));
        ANY.store(true, Ordering::Release);
        domain
    }

    /// Where the device finds `byte`, which lies in the chunk that `chunk` tells the start of: a
    /// look in a table, and a system call the first time.
    pub(super) fn address(&self, byte: NonNull<u8>, chunk: impl FnOnce() -> Option<NonNull<u8>>) -> io::Result<u64> {
        let at = byte.as_ptr() as usize;
        if let Some(address) = self.known(at) {
            return Ok(address);
        }
        // Not while the table is locked: a pool that frees a chunk has its own lock, and wants the
        // table's.
        let start = chunk().ok_or(io::ErrorKind::InvalidInput)?;
        let offset = at.wrapping_sub(start.as_ptr() as usize);
        if offset >= CHUNK_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut chunks = lock(&self.chunks);
        if let Some(address) = chunks.get(&(start.as_ptr() as usize)) {
            return Ok(address + offset as u64);
        }
        // SAFETY: a pool keeps a chunk until no block of it is out, and asks `release` before it
        // frees it.
        let address = unsafe { self.bus.map(start, CHUNK_BYTES) }?;
        chunks.insert(start.as_ptr() as usize, address);
        Ok(address + offset as u64)
    }

    fn known(&self, at: usize) -> Option<u64> {
        let chunks = lock(&self.chunks);
        let (start, address) = chunks.range(..=at).next_back()?;
        (at - start < CHUNK_BYTES).then_some(address + (at - start) as u64)
    }

    fn forget(&self, start: usize) -> io::Result<()> {
        match lock(&self.chunks).remove(&start) {
            Some(address) => self.bus.unmap(address, CHUNK_BYTES),
            None => Ok(()),
        }
    }

    /// Takes all chunks back from the device: it does not stop by itself.
    pub(super) fn close(&self) {
        let chunks = std::mem::take(&mut *lock(&self.chunks));
        for address in chunks.into_values() {
            if let Err(error) = self.bus.unmap(address, CHUNK_BYTES) {
                tracing::error!(device = self.bus.name(), %error, "memory could not be taken back from the device");
            }
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        self.close();
    }
}

/// A pool is about to free the chunk at `start`: no device reaches it afterwards. `false`: one may,
/// so that the memory must never be used again.
pub(crate) fn release(start: NonNull<u8>) -> bool {
    if !ANY.load(Ordering::Acquire) {
        return true;
    }
    let domains: Vec<Arc<Domain>> = lock(&DOMAINS).iter().filter_map(Weak::upgrade).collect();
    domains.iter().all(|domain| domain.forget(start.as_ptr() as usize).is_ok())
}
