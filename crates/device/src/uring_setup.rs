//! What every io_uring of this crate has in common: how it is set up, and entered.

use std::io;
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, squeue};

/// A ring that belongs to the thread that first enters it; before that it may move.
pub(crate) struct OwnedUring<S: squeue::EntryMarker, C: cqueue::EntryMarker> {
    pub(crate) ring: IoUring<S, C>,
    enabled: bool,
    system_calls: u64,
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> OwnedUring<S, C> {
    /// With DEFER_TASKRUN where the kernel knows it (6.1).
    ///
    /// # Errors
    /// As io_uring_setup(2); EINVAL: this kernel has no entries of these kinds.
    pub(crate) fn new(entries: u32) -> io::Result<OwnedUring<S, C>> {
        let modern = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_r_disabled()
            .setup_submit_all()
            .setup_cqsize(entries * 4)
            .build(entries);
        let (ring, enabled) = match modern {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => (IoUring::builder().build(entries)?, true),
            other => (other?, false),
        };
        Ok(OwnedUring { ring, enabled, system_calls: 0 })
    }

    /// Whether the kernel took only the older flags.
    pub(crate) fn is_of_old_kernel(&self) -> bool {
        self.enabled && self.system_calls == 0
    }

    pub(crate) fn system_calls(&self) -> u64 {
        self.system_calls
    }

    /// Whether the kernel has something for us that only a call brings: deferred task work, or
    /// completions that found the queue full.
    pub(crate) fn kernel_has_news(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// Hands over what is queued, and waits for `want` completions.
    ///
    /// # Errors
    /// The ring is not to be used any more.
    pub(crate) fn enter(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        if !self.enabled {
            self.ring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        self.system_calls += 1;
        let result = match timeout.filter(|_| want > 0) {
            None => self.ring.submit_and_wait(want),
            Some(timeout) => {
                let time = Timespec::from(timeout);
                self.ring.submitter().submit_with_args(want, &SubmitArgs::new().timespec(&time))
            }
        };
        match result.map_err(|error| error.raw_os_error()) {
            Ok(_) | Err(Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)) => Ok(()),
            Err(Some(libc::EEXIST)) => Err(io::Error::other(
                "an io_uring was moved to another thread after its first submit; it belongs to that thread",
            )),
            Err(errno) => Err(errno.map_or_else(|| io::Error::other("io_uring_enter"), io::Error::from_raw_os_error)),
        }
    }
}
