//! How a command ended, as the kernel tells: an NVMe status, or why the controller was not asked.

use std::fmt;

use crate::nvme::status::CommandStatus;
use crate::request::IoFault;

/// 0, a Status Field, or an error number below 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommandOutcome(pub(super) i32);

/// What is wrong with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommandFailure {
    /// What a caller is told.
    pub(super) fault: IoFault,
    /// The same command may succeed later.
    pub(super) may_be_retried: bool,
    /// The kernel has reset the controller, or lost it: what its cache held may be gone.
    pub(super) was_reset: bool,
}

/// Path-related statuses of the kernel's own: the controller was not there, or was reset.
const HOST_PATH_ERROR: u16 = 0x370;
const HOST_ABORTED: u16 = 0x371;

impl CommandOutcome {
    /// `Ok`: it did what it was asked.
    pub(super) fn result(self) -> Result<(), CommandFailure> {
        let CommandOutcome(number) = self;
        if number < 0 {
            return Err(match -number {
                // The kernel cancelled it when it reset the controller: after a timeout, say.
                libc::EINTR => {
                    CommandFailure { fault: IoFault::Os(libc::ETIMEDOUT), may_be_retried: false, was_reset: true }
                }
                errno @ (libc::ENODEV | libc::ENXIO) => {
                    CommandFailure { fault: IoFault::Os(errno), may_be_retried: false, was_reset: true }
                }
                libc::EAGAIN => {
                    CommandFailure { fault: IoFault::Os(libc::EAGAIN), may_be_retried: true, was_reset: false }
                }
                errno => CommandFailure { fault: IoFault::from_errno(errno), may_be_retried: false, was_reset: false },
            });
        }
        let bits = number as u16;
        let status = CommandStatus::new(bits);
        if status.is_success() {
            return Ok(());
        }
        Err(CommandFailure {
            fault: status.fault(),
            may_be_retried: status.may_be_retried(),
            was_reset: matches!(bits & 0x7FF, HOST_PATH_ERROR | HOST_ABORTED),
        })
    }
}

impl fmt::Display for CommandOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            number if number < 0 => write!(f, "{}", std::io::Error::from_raw_os_error(-number)),
            bits => write!(f, "{}", CommandStatus::new(bits as u16)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(number: i32) -> CommandFailure {
        CommandOutcome(number).result().expect_err("it failed")
    }

    #[test]
    fn outcomes_are_those_of_the_driver_in_this_process() {
        assert_eq!(CommandOutcome(0).result(), Ok(()));
        let retried = CommandFailure { fault: IoFault::Os(libc::EIO), may_be_retried: true, was_reset: false };
        assert_eq!(failure(0x82), retried, "Namespace Not Ready");
        assert!(!failure(0x4082).may_be_retried, "Do Not Retry");
        assert_eq!((failure(0x81).fault, failure(0x80).fault), (IoFault::Full, IoFault::Short));
        assert_eq!(failure(0x281).fault, IoFault::Os(libc::EIO));
    }

    #[test]
    fn what_a_reset_ends_is_told_apart() {
        let cancelled = failure(-libc::EINTR);
        assert_eq!(cancelled.fault, IoFault::Os(libc::ETIMEDOUT), "as if this process had reset it");
        assert!(cancelled.was_reset && !cancelled.may_be_retried);
        assert!(failure(0x371).was_reset && failure(0x370).was_reset && failure(-libc::ENODEV).was_reset);
        assert!(!failure(0x302).was_reset, "another path has the same cache");
        assert!(failure(-libc::EAGAIN).may_be_retried && !failure(-libc::EINVAL).may_be_retried);
        assert_eq!(failure(-libc::EACCES).fault, IoFault::Os(libc::EACCES));
    }
}
