//! How a command ended (NVMe Base Specification 2.0, section 3.3.3.2.1), and what that is to a
//! caller.

use std::fmt;
use std::time::Duration;

use crate::request::IoFault;

/// The Status Field of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandStatus(u16);

/// Times that a command is sent again when the controller says that this may help.
pub(crate) const RETRIES_MAX: u8 = 5;
/// A command that failed for now is sent again after this time, then after twice as long.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(5);

impl CommandStatus {
    /// From the 15 bits of the field.
    pub(crate) fn new(bits: u16) -> CommandStatus {
        CommandStatus(bits & 0x7FFF)
    }

    /// Status Code Type and Status Code: `0x0280` is type 2, code 80h.
    fn code(self) -> u16 {
        self.0 & 0x07FF
    }

    /// It did what it was asked.
    pub(crate) fn is_success(self) -> bool {
        self.code() == 0
    }

    /// Whether the same command may succeed later (Do Not Retry is not set), and its kind says so.
    pub(crate) fn may_be_retried(self) -> bool {
        let may = self.0 >> 14 & 1 == 0;
        // Data Transfer Error, Internal Error, Namespace Not Ready, Command Interrupted,
        // Transient Transport Error, Reservation Conflict no; paths: all.
        may && (matches!(self.code(), 0x04 | 0x06 | 0x21 | 0x22 | 0x82) || self.code() >> 8 == 3)
    }

    /// What a caller is told.
    pub(crate) fn fault(self) -> IoFault {
        match self.code() {
            // Capacity Exceeded; LBA Out of Range.
            0x81 => IoFault::Full,
            0x80 => IoFault::Short,
            // Invalid opcode, field, namespace or format; protection information.
            0x01 | 0x02 | 0x0B | 0x0A => IoFault::Os(libc::EINVAL),
            // Aborted: on request, by a deleted queue, by power loss.
            0x05 | 0x07 | 0x08 => IoFault::Os(libc::ETIMEDOUT),
            // Namespace is Write Protected; attempted write to a read-only range.
            0x20 | 0x182 => IoFault::Os(libc::EROFS),
            // Reservation Conflict; Operation Denied; Access Denied.
            0x83 | 0x15 | 0x286 => IoFault::Os(libc::EACCES),
            _ => IoFault::Os(libc::EIO),
        }
    }

    fn name(self) -> &'static str {
        match self.code() {
            0x00 => "Successful Completion",
            0x01 => "Invalid Command Opcode",
            0x02 => "Invalid Field in Command",
            0x03 => "Command ID Conflict",
            0x04 => "Data Transfer Error",
            0x05 => "Aborted due to Power Loss Notification",
            0x06 => "Internal Error",
            0x07 => "Command Abort Requested",
            0x08 => "Aborted due to SQ Deletion",
            0x0B => "Invalid Namespace or Format",
            0x13 => "Invalid PRP Offset",
            0x15 => "Operation Denied",
            0x20 => "Namespace is Write Protected",
            0x21 => "Command Interrupted",
            0x22 => "Transient Transport Error",
            0x80 => "LBA Out of Range",
            0x81 => "Capacity Exceeded",
            0x82 => "Namespace Not Ready",
            0x83 => "Reservation Conflict",
            0x100 => "Completion Queue Invalid",
            0x101 => "Invalid Queue Identifier",
            0x102 => "Invalid Queue Size",
            0x182 => "Attempted Write to Read Only Range",
            0x280 => "Write Fault",
            0x281 => "Unrecovered Read Error",
            0x282 => "End-to-end Guard Check Error",
            0x285 => "Compare Failure",
            0x286 => "Access Denied",
            0x287 => "Deallocated or Unwritten Logical Block",
            code => match code >> 8 {
                0 => "a generic status",
                1 => "a status of the command",
                2 => "a media or data integrity error",
                3 => "a path-related status",
                _ => "a status of the vendor",
            },
        }
    }
}

impl fmt::Display for CommandStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code();
        write!(f, "{} (status code type {:X}h, code {:02X}h)", self.name(), code >> 8, code & 0xFF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each class of status, whatever the code: a success or a fault, and never a panic.
    #[test]
    fn every_status_means_something() {
        for bits in 0..=0x7FFF {
            let status = CommandStatus::new(bits);
            assert_eq!(status.is_success(), bits & 0x7FF == 0);
            assert!(!status.to_string().is_empty());
            let _fault = status.fault();
            assert!(!status.may_be_retried() || bits >> 14 == 0, "do not retry means it");
        }
    }

    #[test]
    fn callers_hear_what_the_kernel_would_tell_them() {
        let fault = |code| CommandStatus::new(code).fault();
        assert_eq!((fault(0x81), fault(0x80)), (IoFault::Full, IoFault::Short));
        assert_eq!((fault(0x281), fault(0x280), fault(0x3FF)), ([IoFault::Os(libc::EIO); 3]).into());
        assert_eq!((fault(0x07), fault(0x20)), (IoFault::Os(libc::ETIMEDOUT), IoFault::Os(libc::EROFS)));
        assert!(CommandStatus::new(0x82).may_be_retried() && !CommandStatus::new(0x4082).may_be_retried());
        assert!(!CommandStatus::new(0x281).may_be_retried());
    }
}
