//! Disk requests and their outcomes. A block is handed over with a request and comes back with its
//! outcome, so nothing can free it in between.

use crate::block::{Block, BlockPart};

/// One request to a volume. Offsets and lengths are multiples of 4096 bytes.
#[derive(Debug)]
pub enum DiskRequest {
    /// Reads `len` bytes at `offset` into the front of `block`.
    Read {
        /// Where, in bytes.
        offset: u64,
        /// The buffer; comes back in the outcome, also after a fault.
        block: Block,
        /// How much, in bytes; at most the block's length.
        len: u32,
    },
    /// Writes the parts back to back at `offset`.
    Write {
        /// Where, in bytes.
        offset: u64,
        /// What; each part's length is a multiple of 4096.
        parts: Vec<BlockPart>,
        /// Complete only when the data is durable at power loss (`RWF_DSYNC`).
        durable: bool,
    },
    /// Makes every write *completed before this request was submitted* durable (fdatasync).
    Flush,
    /// Sets space aside for a range (fallocate), and lengthens the volume to hold it: writes there
    /// find room, and need no longer volume. What is there stays, the rest reads as zeros. On
    /// devices, and file systems that cannot do it, it succeeds and promises nothing.
    Allocate {
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        len: u64,
    },
    /// Returns a range to the file system or device (punch hole); reads give zeros or old data
    /// afterwards.
    Discard {
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        len: u64,
    },
}

impl DiskRequest {
    /// The request, ended by a fault before it was begun.
    pub(crate) fn refuse(self, fault: IoFault) -> DiskOutcome {
        match self {
            DiskRequest::Read { block, .. } => DiskOutcome::Read(block, Err(fault)),
            DiskRequest::Write { .. } => DiskOutcome::Write(Err(fault)),
            DiskRequest::Flush => DiskOutcome::Flush(Err(fault)),
            DiskRequest::Allocate { .. } => DiskOutcome::Allocate(Err(fault)),
            DiskRequest::Discard { .. } => DiskOutcome::Discard(Err(fault)),
        }
    }
}

/// How a disk request ended.
#[derive(Debug)]
pub enum DiskOutcome {
    /// A read; the block is given back, filled if `Ok`. Reading past the end of the volume is a
    /// fault (`Short`).
    Read(Block, Result<(), IoFault>),
    /// A write: all of it, or a fault.
    Write(Result<(), IoFault>),
    /// A flush. After a fault, what was flushed is unknown: never retry as if it were a success.
    Flush(Result<(), IoFault>),
    /// Space was set aside, all of it, or not.
    Allocate(Result<(), IoFault>),
    /// A discard.
    Discard(Result<(), IoFault>),
}

impl DiskOutcome {
    /// Why it failed, if it did.
    pub fn fault(&self) -> Option<IoFault> {
        let (DiskOutcome::Read(_, result)
        | DiskOutcome::Write(result)
        | DiskOutcome::Flush(result)
        | DiskOutcome::Allocate(result)
        | DiskOutcome::Discard(result)) = self;
        result.err()
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoFault {
    /// No space left on the device, quota or file-size limit reached (ENOSPC, EDQUOT, EFBIG).
    #[error("no space left on the device")]
    Full,
    /// Fewer bytes than asked: the volume ends there.
    #[error("the volume ends before the range does")]
    Short,
    /// The kernel's error number.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
}

impl IoFault {
    /// The fault for an error number.
    pub fn from_errno(errno: i32) -> Self {
        match errno {
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => IoFault::Full,
            other => IoFault::Os(other),
        }
    }

    /// How setting space aside ended: what a file system or a device cannot do is not needed
    /// either.
    pub(crate) fn of_allocation(result: Result<(), IoFault>) -> Result<(), IoFault> {
        match result {
            Err(IoFault::Os(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV)) => Ok(()),
            other => other,
        }
    }
}
