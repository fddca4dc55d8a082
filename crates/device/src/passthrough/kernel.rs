//! The kernel's driver by ioctl: Identify, and commands of callers without a ring.
#![expect(unsafe_code, reason = "ioctl(2) with a struct that points to memory")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::nvme::IDENTIFY_BYTES;
use crate::nvme::command::{Cns, Command};
use crate::passthrough::abi::{IOCTL_ADMIN, IOCTL_ID, PassthroughCommand};
use crate::passthrough::queue::UringQueue;
use crate::passthrough::target::{CommandQueue, CommandTarget};

/// A namespace's character device, open.
#[derive(Debug)]
pub(super) struct KernelTarget {
    /// Queues in flight keep it open: its lock outlives a process that was killed.
    file: Arc<File>,
    /// The block device of the same namespace, open for its lock.
    block: File,
    begin: Instant,
}

impl KernelTarget {
    pub(super) fn new(file: File, block: File) -> KernelTarget {
        KernelTarget { file: Arc::new(file), block, begin: Instant::now() }
    }

    /// Namespace Identifier.
    pub(super) fn nsid(&self) -> io::Result<u32> {
        // SAFETY: this ioctl takes nothing.
        let nsid = unsafe { libc::ioctl(self.file.as_raw_fd(), IOCTL_ID.into()) };
        if nsid < 0 { Err(io::Error::last_os_error()) } else { Ok(nsid as u32) }
    }

    /// Identify (5.17). `Ok(Err)`: the controller refuses it, with this status.
    pub(super) fn identify(&self, cns: Cns, nsid: u32) -> io::Result<Result<[u8; IDENTIFY_BYTES], u16>> {
        let mut page = [0; IDENTIFY_BYTES];
        let command = Command::identify(cns, nsid, 0);
        let command = PassthroughCommand::plain(command, page.as_mut_ptr() as u64, IDENTIFY_BYTES as u32);
        // SAFETY: Identify writes the page, which is as long as the command says.
        match unsafe { self.call(IOCTL_ADMIN, &command) } {
            0 => Ok(Ok(page)),
            status if status > 0 => Ok(Err(status as u16)),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        }
    }

    /// # Safety
    /// As [`CommandTarget::execute`].
    unsafe fn call(&self, ioctl: u32, command: &PassthroughCommand) -> i32 {
        let mut command = command.for_kernel();
        // SAFETY: the struct is that of the ioctl; what it points to is valid by this function's
        // contract, and the kernel is done with it when the call returns.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), ioctl.into(), &raw mut command) };
        if result < 0 { -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) } else { result }
    }
}

impl CommandTarget for KernelTarget {
    fn queue(&self, depth: u16, event: OwnedFd) -> io::Result<Box<dyn CommandQueue>> {
        Ok(Box::new(UringQueue::new(&self.file, depth, event)?))
    }

    unsafe fn execute(&self, command: &PassthroughCommand) -> i32 {
        // SAFETY: by this function's contract.
        unsafe { self.call(command.ioctl(), command) }
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn unlock(&self) {
        for file in [&*self.file, &self.block] {
            // Cannot fail on a descriptor that is open; the kernel also unlocks when it closes.
            let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
        }
    }
}
