//! [`UringQueue`]: commands by an io_uring of their own, with entries of 128 and 32 bytes.
#![expect(unsafe_code, reason = "submission entries hold pointers, valid by the contract of `CommandQueue`")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};

use crate::passthrough::abi::PassthroughCommand;
use crate::passthrough::target::CommandQueue;
use crate::uring_setup::OwnedUring;

type Uring128 = OwnedUring<squeue::Entry128, cqueue::Entry32>;

/// See the module.
pub(super) struct UringQueue {
    ring: Uring128,
    file: Arc<File>,
    /// Signalled by completions while the thread sleeps.
    event: OwnedFd,
    is_registered: bool,
}

/// Whether this kernel has such rings (5.19).
pub(super) fn is_known_to_kernel() -> bool {
    // Refused for another reason (a container forbids it), commands go by ioctl.
    !matches!(Uring128::new(1), Err(error) if error.raw_os_error() == Some(libc::EINVAL))
}

impl UringQueue {
    pub(super) fn new(file: &Arc<File>, depth: u16, event: OwnedFd) -> io::Result<UringQueue> {
        let ring = Uring128::new(u32::from(depth).next_power_of_two())?;
        Ok(UringQueue { ring, file: Arc::clone(file), event, is_registered: false })
    }

    fn enter(&mut self, want: usize) -> io::Result<()> {
        self.ring.enter(want, None)
    }
}

impl CommandQueue for UringQueue {
    unsafe fn push(&mut self, slot: u16, command: &PassthroughCommand) -> bool {
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), command.operation()).cmd(command.for_uring());
        let entry = entry.build().user_data(slot.into());
        // SAFETY: by the contract, what the command points to stays valid until its slot is given;
        // the descriptor is open for as long as the queue is.
        unsafe { self.ring.ring.submission().push(&entry).is_ok() }
    }

    fn submit(&mut self) -> io::Result<()> {
        let is_queued = !self.ring.ring.submission().is_empty();
        if is_queued || self.ring.kernel_has_news() { self.enter(0) } else { Ok(()) }
    }

    fn poll(&mut self, ended: &mut Vec<(u16, i32)>) {
        ended.extend(self.ring.ring.completion().map(|entry| (entry.user_data() as u16, entry.result())));
    }

    fn has_news(&mut self) -> bool {
        !self.ring.ring.completion().is_empty() || self.ring.kernel_has_news()
    }

    fn announce_sleep(&mut self, sleeps: bool) {
        if sleeps && !self.is_registered {
            // Without it a sleep ends by itself, later.
            self.is_registered = true;
            if let Err(error) = self.ring.ring.submitter().register_eventfd(self.event.as_raw_fd()) {
                tracing::warn!(%error, "completions of NVMe commands end no sleep: they are looked for every 20 ms");
            }
        }
        let queue = self.ring.ring.completion();
        if sleeps {
            queue.enable_eventfd();
        } else {
            queue.disable_eventfd();
        }
        drop(queue);
        // Before the last look: what comes after it signals.
        fence(Ordering::SeqCst);
    }

    fn wait(&mut self) -> io::Result<()> {
        self.enter(1)
    }

    fn system_calls(&self) -> u64 {
        self.ring.system_calls()
    }
}
