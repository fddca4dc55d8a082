//! [`Lineage`]: whether this is still the process that made something, or a child that was forked
//! from it.
//!
//! A child has copies of the memory, descriptors and locks of its parent, and none of its threads:
//! what it would do with them is never seen through, or is done to the parent's files behind its
//! back. What belongs to a process remembers its lineage, and asks it before it does anything. That
//! costs one load: the process has a page which the kernel clears in children (`MADV_WIPEONFORK`,
//! Linux 4.14), however they are made.

#![expect(unsafe_code, reason = "a page that the kernel clears in children, as one atomic")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

const PAGE_BYTES: usize = 4096;

/// The last number that was drawn here. A child goes on counting where its parent was, so the two
/// never have one in common that matters.
static DRAWN: AtomicU64 = AtomicU64::new(0);

/// A process, as what was made in it knows it.
#[derive(Clone, Copy, Debug)]
pub struct Lineage {
    /// `None`: the kernel clears no pages, and forks go unnoticed.
    page: Option<&'static AtomicU64>,
    number: u64,
}

impl Lineage {
    /// This process.
    pub fn here() -> Lineage {
        let Some(page) = page() else { return Lineage { page: None, number: 0 } };
        let number = match page.load(Ordering::Acquire) {
            // The first one here, or the first since the fork.
            0 => {
                let drawn = DRAWN.fetch_add(1, Ordering::Relaxed) + 1;
                page.compare_exchange(0, drawn, Ordering::AcqRel, Ordering::Acquire)
                    .map_or_else(|known| known, |_| drawn)
            }
            known => known,
        };
        Lineage { page: Some(page), number }
    }

    /// Whether this is a child of the process that it was made in.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.page.is_some_and(|page| page.load(Ordering::Relaxed) != self.number)
    }
}

/// The page that children have cleared; made once, never unmapped.
fn page() -> Option<&'static AtomicU64> {
    static PAGE: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
    *PAGE.get_or_init(|| {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: new memory, wherever there is room.
        let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE_BYTES, access, flags) }.ok()?;
        // SAFETY: the page is ours alone. The advice changes nothing in this process.
        let advised = unsafe { madvise(memory, PAGE_BYTES, Advice::LinuxWipeOnFork) };
        if let Err(error) = advised {
            tracing::warn!(%error, "the kernel clears no pages in forked children: a store that is used in one goes unnoticed");
            return None;
        }
        // SAFETY: aligned zeros that stay mapped, and are used as this atomic only.
        Some(unsafe { &*memory.cast::<AtomicU64>() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a child that is forked here exits with.
    fn in_child(body: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child allocates nothing, takes no lock, and exits at once.
        match unsafe { libc::fork() } {
            // SAFETY: nothing of this process is cleaned up.
            0 => unsafe { libc::_exit(body()) },
            child => {
                let mut status = 0;
                // SAFETY: the child is ours; the status is written.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                libc::WEXITSTATUS(status)
            }
        }
    }

    #[test]
    fn a_child_knows_what_is_its_parents() {
        let mine = Lineage::here();
        assert!(!mine.is_forked() && !Lineage::here().is_forked());
        let code = in_child(|| {
            let seen = i32::from(mine.is_forked());
            let own = Lineage::here();
            let both = i32::from(mine.is_forked() && !own.is_forked());
            // SAFETY: as above.
            let grandchild = unsafe { libc::fork() };
            if grandchild == 0 {
                // SAFETY: as above.
                unsafe { libc::_exit(i32::from(mine.is_forked() && own.is_forked())) };
            }
            let mut status = 0;
            // SAFETY: as above.
            unsafe { libc::waitpid(grandchild, &raw mut status, 0) };
            seen + 2 * both + 4 * libc::WEXITSTATUS(status)
        });
        assert_eq!(code, 7);
        assert!(!mine.is_forked(), "in the parent nothing has changed");
    }
}
