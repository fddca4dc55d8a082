//! [`Zeroed`]: much memory of the system, of which only what is touched is there.

#![expect(unsafe_code, reason = "mmap, munmap, and slices of what they give")]

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use zerocopy::FromZeros;

/// Elements of zeros for tables in DRAM. Nothing of it is touched before it is used, so it takes
/// memory as it fills; in huge pages, where the system gives them to those who ask
/// (`transparent_hugepage`): a random access then misses the TLB far less often.
///
/// A vector of zeros does neither: the allocator writes what has to lie at multiples of a cache
/// line.
#[derive(Debug)]
pub struct Zeroed<T> {
    start: NonNull<T>,
    count: usize,
    bytes: usize,
    owned: PhantomData<T>,
}

// SAFETY: it owns its elements, as a box does.
unsafe impl<T: Send> Send for Zeroed<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Zeroed<T> {}

impl<T: FromZeros> Zeroed<T> {
    /// `count` elements; `None`: the system has no room for them, or they lie wider apart than a
    /// page, or are none.
    pub fn new(count: usize) -> Option<Zeroed<T>> {
        const { assert!(!std::mem::needs_drop::<T>(), "elements are not dropped") };
        let bytes = count.checked_mul(size_of::<T>()).filter(|bytes| *bytes > 0 && align_of::<T>() <= 4096)?;
        // SAFETY: new memory, where the system chooses.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let start = NonNull::new(start.ok()?)?;
        // SAFETY: of this memory, which holds nothing yet. A system without huge pages refuses, and
        // that is fine.
        let _ = unsafe { madvise(start.as_ptr(), bytes, Advice::LinuxHugepage) };
        Some(Zeroed { start: start.cast(), count, bytes, owned: PhantomData })
    }
}

impl<T> Deref for Zeroed<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: so many elements were mapped, aligned to a page; zeros are a value of them;
        // nobody has a `&mut`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T> Drop for Zeroed<T> {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped, and no reference outlives its owner. It cannot fail: it is a
        // mapping of its own.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Bytes of this process that are in memory.
    fn resident_bytes() -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("proc");
        statm.split(' ').nth(1).expect("a field").parse::<u64>().expect("a number") * 4096
    }

    #[test]
    fn it_takes_memory_as_it_fills() {
        let before = resident_bytes();
        let words: Zeroed<AtomicU64> = Zeroed::new(128 << 20).expect("a gigabyte of addresses");
        words[5 << 20].store(7, Ordering::Relaxed);
        assert_eq!([4 << 20, 5 << 20, (128 << 20) - 1].map(|at| words[at].load(Ordering::Relaxed)), [0, 7, 0]);
        // Tests beside this one take some too.
        assert!(resident_bytes() < before + (256 << 20));
        assert!(Zeroed::<u64>::new(0).is_none() && Zeroed::<u64>::new(usize::MAX / 16).is_none());
    }
}
