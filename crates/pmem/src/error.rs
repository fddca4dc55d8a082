//! Why a region cannot be mapped.

use std::io;
use std::path::PathBuf;

use crate::{Domain, PmemError};

/// Why a region could not be created, opened or grown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// Creating found something of that name.
    #[error("{} exists: open it, or remove it first (a device has its length already and is only ever opened)", path.display())]
    Exists {
        /// Where.
        path: PathBuf,
    },
    /// A directory, a block device, a pipe.
    #[error("{} is neither a file nor a devdax device: name one of those (a block device needs a file system, mounted with -o dax)", path.display())]
    NotARegion {
        /// Where.
        path: PathBuf,
    },
    /// Another process, or another mapping of this one, has it.
    #[error("{} is open elsewhere: close it there first, and try again if that process was just killed", path.display())]
    Locked {
        /// Where.
        path: PathBuf,
    },
    /// No or too few bytes.
    #[error("a region of {len_bytes} bytes is too short: it has at least {unit_bytes}")]
    TooShort {
        /// What it has, or what was asked for.
        len_bytes: u64,
        /// The shortest possible.
        unit_bytes: u64,
    },
    /// Memory is mapped in pages.
    #[error("a region of {len_bytes} bytes is no multiple of {unit_bytes}: choose one")]
    Unaligned {
        /// What it has, or what was asked for.
        len_bytes: u64,
        /// A page: 4096 bytes, longer for huge pages and devices.
        unit_bytes: u64,
    },
    /// Longer than addresses reach.
    #[error("a region of {len_bytes} bytes does not fit into the address space: make it, or what it reserves, shorter")]
    TooLong {
        /// What was asked for.
        len_bytes: u64,
    },
    /// Something else changes the file, without asking for the lock.
    #[error("{} had {before_bytes} bytes and now has {after_bytes}: another program changes it; stop that program", path.display())]
    LengthChanged {
        /// Where.
        path: PathBuf,
        /// Before it was mapped.
        before_bytes: u64,
        /// After.
        after_bytes: u64,
    },
    /// The file system, or the pool of huge pages, is full.
    #[error("no space for {len_bytes} bytes of {}: make room (of huge pages: vm.nr_hugepages), or ask for fewer", path.display())]
    NoSpace {
        /// Where.
        path: PathBuf,
        /// The whole length that was to be had.
        len_bytes: u64,
    },
    /// A file with holes where they cannot be filled: a store into one could end the process.
    #[error("{} has holes and its file system cannot fill them: copy it (cp --sparse=never), then open the copy", path.display())]
    Sparse {
        /// Where.
        path: PathBuf,
    },
    /// Devices are mapped for all who use them at once.
    #[error("{} is a device: what is stored to it cannot be kept apart; open it for writing", path.display())]
    NotPrivate {
        /// Where.
        path: PathBuf,
    },
    /// A domain that promises more than what was found.
    #[error(
        "what lies below is in the domain `{found}` and cannot be treated as `{wanted}`: leave the choice out, or take a weaker one"
    )]
    Domain {
        /// What it is.
        found: Domain,
        /// What it was to be.
        wanted: Domain,
    },
    /// Parts of one region on memory of different sorts.
    #[error(
        "{} is in the domain `{first}` and {} in `{second}`: all files of a region lie on memory of one sort; put them there",
        first_path.display(),
        second_path.display()
    )]
    Mixed {
        /// One of them.
        first_path: PathBuf,
        /// Its domain.
        first: Domain,
        /// Another one.
        second_path: PathBuf,
        /// Its domain.
        second: Domain,
    },
    /// This processor cannot write single lines back, and a device has no other way.
    #[error("this processor has no instruction to write lines back to {}: use a file on a file system over it", path.display())]
    NoFlush {
        /// Where.
        path: PathBuf,
    },
    /// Opened for reading, so it can be neither made nor grown.
    #[error("a region is not created or grown by one who only reads: ask without `read_only`")]
    ReadOnly,
    /// Devices have one length.
    #[error("{} is a device and has one length: it cannot grow", path.display())]
    FixedLength {
        /// Where.
        path: PathBuf,
    },
    /// A region never shrinks.
    #[error("the region has {len_bytes} bytes already and never shrinks below that")]
    Shrinks {
        /// What it has.
        len_bytes: u64,
    },
    /// Growth beyond the addresses set aside at open.
    #[error(
        "{len_bytes} bytes do not fit into the {reserved_bytes} reserved: open it again with larger `reserve_bytes`"
    )]
    NotReserved {
        /// What was asked for.
        len_bytes: u64,
        /// What there is room for.
        reserved_bytes: u64,
    },
    /// The region takes no more writes.
    #[error(transparent)]
    Region(#[from] PmemError),
    /// The system refused.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// How it failed.
        source: io::Error,
    },
}
