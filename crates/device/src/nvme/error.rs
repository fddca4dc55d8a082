//! Why a device cannot be used.

use std::io;

use crate::nvme::status::CommandStatus;

/// Why an NVMe device cannot be opened, or works no more.
#[derive(Debug, thiserror::Error)]
pub enum NvmeError {
    /// Its registers read all ones.
    #[error("the device answers no more: it was removed, or lost its power")]
    Gone,
    /// CAP names no NVM command set.
    #[error("the controller does not take the NVM command set: it is no disk")]
    NoNvm,
    /// CAP.MPSMIN.
    #[error("the controller wants memory pages of {0} bytes at least, and has to take 4096: use another device")]
    PageSize(u64),
    /// CSTS.RDY did not change within CAP.TO.
    #[error("the controller did not become {0} within {1} s: reset the device, or power it off and on")]
    NotReady(&'static str, u64),
    /// CSTS.CFS.
    #[error("the controller reports a fatal error of its own (CSTS.CFS): power it off and on, and look at its health")]
    Fatal,
    /// A namespace that the controller does not have.
    #[error("the controller has no namespace {nsid} (it has {nn} at most; the first is 1)")]
    NoNamespace {
        /// What was asked for.
        nsid: u32,
        /// The largest identifier.
        nn: u32,
    },
    /// A format that is not taken.
    #[error(
        "namespace {nsid} is formatted with blocks of {lba_bytes} bytes and {metadata_bytes} bytes of metadata{protected}; 512 or 4096 bytes \
         without either are taken: format it so (`nvme format`), which erases it"
    )]
    Format {
        /// Which.
        nsid: u32,
        /// Bytes of a block.
        lba_bytes: u32,
        /// Bytes of metadata with each.
        metadata_bytes: u16,
        /// `, protected end to end`, or nothing.
        protected: &'static str,
    },
    /// What it says of a namespace cannot be.
    #[error(
        "what the controller says of namespace {0} cannot be: its format is not one of its list, or its size is impossible"
    )]
    BadIdentity(u32),
    /// An admin command failed.
    #[error("the controller refuses `{command}`: {status}")]
    Refused {
        /// By the specification's name.
        command: &'static str,
        /// Why.
        status: CommandStatus,
    },
    /// An admin command was not answered.
    #[error("the controller did not answer `{0}` in time")]
    Unanswered(&'static str),
    /// Every I/O queue pair that the controller has is in use.
    #[error("all {0} I/O queue pairs of the controller are in use: use fewer threads")]
    NoQueues(u16),
    /// The system refuses memory or a descriptor.
    #[error("{0}")]
    Io(#[from] io::Error),
}
