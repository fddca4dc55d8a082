//! Addresses set aside once, with a file mapped to their first part: it grows and never moves.

#![expect(unsafe_code, reason = "maps memory, and accesses it by raw pointers")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags};

use crate::flush::Flush;
use crate::{PmemError, prefetch, words};

/// Bases lie at multiples of this, so the kernel can map huge pages.
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// What the mapped memory is asked to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    /// Stores are possible.
    pub(crate) writable: bool,
    /// Lines written back are durable without the file system's help (MAP_SYNC).
    pub(crate) synchronous: bool,
    /// What is stored does not reach the file.
    pub(crate) private: bool,
    /// Loads and stores go through the page cache of a disk, and the kernel shall bring pages into
    /// it one by one. By itself it reads what lies around in folios of up to 2 MiB, and to store a
    /// word to one of them is to write all of it back (Linux 6.16 and later on ext4, xfs before).
    pub(crate) by_page: bool,
}

/// A range of addresses. The bytes below [`Space::mapped_bytes`] are there, and are accessed by
/// atomic words only.
#[derive(Debug)]
pub(crate) struct Space {
    base: *mut u8,
    mapped_bytes: AtomicU64,
    /// Addresses that are ours, from the base on. A multiple of 4096, like the mapped ones.
    reserved_bytes: AtomicU64,
}

// SAFETY: the memory stays where it is while the value lives, and all accesses are atomic.
unsafe impl Send for Space {}
// SAFETY: as above.
unsafe impl Sync for Space {}

impl Space {
    /// Sets addresses aside; the base is a multiple of `unit_bytes`, a power of two, and
    /// `reserve_bytes` is one too.
    pub(crate) fn reserve(reserve_bytes: u64, unit_bytes: u64) -> io::Result<Space> {
        let align = unit_bytes.max(HUGE_PAGE_BYTES);
        let whole =
            reserve_bytes.checked_add(align).and_then(|whole| usize::try_from(whole).ok()).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address the kernel chooses.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), whole, ProtFlags::empty(), flags) }?;
        let start = start.cast::<u8>();
        let head = start.addr().next_multiple_of(align as usize) - start.addr();
        let tail = align as usize - head;
        let base = start.wrapping_add(head);
        // SAFETY: both ends are part of what was just mapped and used by nobody. To keep them costs
        // addresses only.
        unsafe {
            let _ = (head > 0).then(|| rustix::mm::munmap(start.cast(), head));
            // Addresses that stay reserved harm nobody.
            let _ = (tail > 0).then(|| rustix::mm::munmap(base.wrapping_add(reserve_bytes as usize).cast(), tail));
        }
        Ok(Space { base, mapped_bytes: AtomicU64::new(0), reserved_bytes: AtomicU64::new(reserve_bytes) })
    }

    /// Whether `file` can be mapped with MAP_SYNC: tried apart, as a failure in the reserved
    /// addresses could give them away.
    pub(crate) fn is_synchronous(file: &File, unit_bytes: u64, writable: bool) -> bool {
        let len = unit_bytes as usize;
        let flags = map_flags(Access { writable, synchronous: true, private: false, by_page: false });
        // SAFETY: a new mapping at an address the kernel chooses, removed at once.
        unsafe {
            match rustix::mm::mmap(std::ptr::null_mut(), len, protection(writable), flags, file, 0) {
                Ok(at) => rustix::mm::munmap(at, len).is_ok(),
                Err(_) => false,
            }
        }
    }

    /// Maps the file's bytes from `file_at` on behind what is mapped, up to `to_bytes`, at most
    /// what is reserved. One caller at a time.
    pub(crate) fn extend(&self, file: &File, file_at: u64, to_bytes: u64, access: Access) -> io::Result<()> {
        self.extend_by(to_bytes, |at, len| {
            let flags = map_flags(access) | MapFlags::FIXED;
            // SAFETY: these addresses are reserved, nothing is mapped there, and nobody accesses
            // what lies beyond `mapped_bytes`.
            unsafe { rustix::mm::mmap(at, len, protection(access.writable), flags, file, file_at) }?;
            Ok(access.by_page)
        })
    }

    /// As [`Space::extend`], by zeros that no file has.
    pub(crate) fn extend_by_zeros(&self, to_bytes: u64) -> io::Result<()> {
        self.extend_by(to_bytes, |at, len| {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
            // SAFETY: as there.
            unsafe { rustix::mm::mmap_anonymous(at, len, protection(true), flags) }?;
            Ok(false)
        })
    }

    /// Has `map` map so many bytes at an address that is reserved; it says whether they are to come
    /// in page by page.
    fn extend_by(&self, to_bytes: u64, map: impl FnOnce(*mut c_void, usize) -> Result<bool, Errno>) -> io::Result<()> {
        let from = self.mapped_bytes();
        if to_bytes > self.reserved_bytes() || to_bytes <= from {
            return Err(Errno::INVAL.into());
        }
        let (at, len) = (self.base.wrapping_add(from as usize).cast(), (to_bytes - from) as usize);
        let by_page = map(at, len).inspect_err(|_| {
            // The kernel may have let go what was reserved here, and given it to others: it is ours
            // no more.
            self.reserved_bytes.store(from, Ordering::Release);
        })?;
        if by_page {
            // SAFETY: it was mapped just now; this changes what is read ahead, and nothing else.
            unsafe { rustix::mm::madvise(at, len, Advice::Random) }?;
        }
        self.mapped_bytes.store(to_bytes, Ordering::Release);
        Ok(())
    }

    /// Where it begins, and how many bytes are set aside there.
    pub(crate) fn addresses(&self) -> (usize, usize) {
        (self.base.addr(), self.reserved_bytes() as usize)
    }

    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.mapped_bytes.load(Ordering::Acquire)
    }

    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes.load(Ordering::Acquire)
    }

    #[cfg(test)]
    pub(crate) fn base(&self) -> usize {
        self.base.addr()
    }

    pub(crate) fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), PmemError> {
        let from = self.at(offset, into.len() as u64)?;
        // SAFETY: in bounds; the mapping is a whole number of words, so their words are too.
        unsafe { words::load(from, into) };
        Ok(())
    }

    pub(crate) fn load_u64(&self, offset: u64) -> Result<u64, PmemError> {
        let from = self.word_at(offset)?;
        // SAFETY: in bounds and aligned. Memory mapped for reading only must not see anything but a
        // relaxed load.
        let value = unsafe { (*from).load(Ordering::Relaxed) };
        fence(Ordering::Acquire);
        Ok(value)
    }

    pub(crate) fn prefetch(&self, offset: u64, len_bytes: u64) {
        if let Ok(start) = self.at(offset, len_bytes) {
            prefetch::lines(start, len_bytes as usize);
        }
    }

    /// The space must be writable, here and below.
    pub(crate) fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        let to = self.at(offset, bytes.len() as u64)?;
        // SAFETY: in bounds, and so are their words.
        unsafe { words::store(to, bytes) };
        Ok(())
    }

    pub(crate) fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError> {
        let to = self.word_at(offset)?;
        // SAFETY: in bounds and aligned.
        unsafe { (*to).store(value, Ordering::Release) };
        Ok(())
    }

    pub(crate) fn store_past_cache(&self, offset: u64, bytes: &[u8], flush: Flush) -> Result<(), PmemError> {
        let to = self.at(offset, bytes.len() as u64)?;
        // SAFETY: in bounds, and so are their words.
        unsafe { flush.store_past_cache(to, bytes) };
        Ok(())
    }

    pub(crate) fn flush_lines(&self, offset: u64, len_bytes: u64, flush: Flush) -> Result<(), PmemError> {
        let start = self.at(offset, len_bytes)?;
        // SAFETY: in bounds.
        unsafe { flush.lines(start, len_bytes as usize) };
        Ok(())
    }

    /// Writes the pages of a range of the mapping back and waits for the device.
    pub(crate) fn sync(&self, range: Range<u64>) -> Result<(), Errno> {
        let start = range.start - range.start % crate::map::PAGE_BYTES;
        let at = self.base.wrapping_add(start as usize).cast();
        loop {
            // SAFETY: the range is mapped; msync changes nothing a program can see.
            match unsafe { rustix::mm::msync(at, (range.end - start) as usize, MsyncFlags::SYNC) } {
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }

    /// In bounds?
    pub(crate) fn check(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        let region_bytes = self.mapped_bytes();
        match offset.checked_add(len_bytes) {
            Some(end) if end <= region_bytes => Ok(()),
            _ => Err(PmemError::OutOfBounds { offset, len_bytes, region_bytes }),
        }
    }

    fn at(&self, offset: u64, len_bytes: u64) -> Result<*mut u8, PmemError> {
        self.check(offset, len_bytes)?;
        Ok(self.base.wrapping_add(offset as usize))
    }

    fn word_at(&self, offset: u64) -> Result<*const AtomicU64, PmemError> {
        if !offset.is_multiple_of(8) {
            return Err(PmemError::Misaligned { offset });
        }
        Ok(self.at(offset, 8)?.cast_const().cast())
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // SAFETY: these addresses are ours, and nobody has a pointer to them any more. An error
        // would leave them mapped, which harms nobody.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), *self.reserved_bytes.get_mut() as usize) };
    }
}

fn protection(writable: bool) -> ProtFlags {
    if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ }
}

fn map_flags(access: Access) -> MapFlags {
    match access {
        // Without a reserve: only what is stored to takes memory.
        Access { private: true, .. } => MapFlags::PRIVATE | MapFlags::NORESERVE,
        Access { synchronous: true, .. } => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
        _ => MapFlags::SHARED,
    }
}
