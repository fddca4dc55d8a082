//! Regions of persistent memory: bytes by offset, and when a power cut can no longer take them.
//!
//! [`Pmem`] is what engines write through. [`Mapping`] implements it over persistent memory, a file
//! or memory; what makes its stores durable is its [`Domain`]. The crate `sim` has a twin that
//! loses what was not flushed and fenced.

mod bus;
mod domain;
mod error;
mod flush;
mod group;
mod map;
mod node;
mod part;
mod prefetch;
mod source;
mod space;
mod survey;
mod words;
mod zeroed;

pub use bus::explain_bus_errors;
pub use domain::Domain;
pub use error::MapError;
pub use map::{MapOptions, Mapping, Piece};
pub use node::Node;
pub use part::RegionPart;
pub use prefetch::prefetch;
pub use survey::{DaxDevice, Prospect, dax_devices, flush_instruction, prospect_of};
pub use zeroed::Zeroed;

/// Length of a cache line.
pub const LINE_BYTES: u64 = 64;

/// A region of persistent memory: an array of bytes whose stores become durable when they were
/// flushed and fenced.
///
/// Methods take `&self`: the region is shared, nobody ever holds a `&mut` over it. Every offset is
/// checked. A load of bytes that another thread stores meanwhile gives, for each aligned word, what
/// it held before or after: verify such bytes by a checksum, or publish them by `store_u64` and
/// find them by `load_u64`.
pub trait Pmem {
    /// Length of the mapping.
    fn len_bytes(&self) -> u64;

    /// Copies bytes out.
    ///
    /// # Errors
    /// Out of bounds, poisoned, beyond the end of a file that was shrunk. What `into` then holds is
    /// not specified.
    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), PmemError>;

    /// The word at an offset that is a multiple of 8, in the machine's order: atomic, with acquire.
    ///
    /// # Errors
    /// As [`Pmem::load`]; misaligned.
    fn load_u64(&self, offset: u64) -> Result<u64, PmemError>;

    /// Copies bytes in, word by word in no promised order. Visible at once, durable after a flush
    /// and a fence, or earlier by an eviction.
    ///
    /// # Errors
    /// As [`Pmem::load`]; then nothing was stored.
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError>;

    /// Stores one aligned word: atomic, with release. Among stores to one line, none survives a cut
    /// without the earlier ones.
    ///
    /// # Errors
    /// As [`Pmem::load_u64`]; then nothing was stored.
    fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError>;

    /// As [`Pmem::store`], past the cache: durable after the next fence, without a flush.
    ///
    /// # Errors
    /// As [`Pmem::store`].
    fn store_nt(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError>;

    /// Asks for what will be loaded soon, as [`prefetch`]. A hint: bytes that are not in the region
    /// are not asked for, and most regions do nothing.
    fn prefetch(&self, _offset: u64, _len_bytes: u64) {}

    /// Starts writing back the lines that hold `len_bytes` from `offset`, with the stores made to
    /// them so far.
    ///
    /// # Errors
    /// Out of bounds.
    fn flush(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError>;

    /// Returns when everything flushed, and every non-temporal store, is durable: all that the
    /// calling thread did before.
    ///
    /// # Errors
    /// `msync` failed: the region takes no more writes until it is opened again. Never with real
    /// persistent memory.
    fn fence(&self) -> Result<(), PmemError>;

    /// Whether a fence puts its caller to sleep, for as long as a disk takes.
    fn fence_waits(&self) -> bool {
        false
    }

    /// Begins to read a range that is about to be loaded from one end to the other. Only disks gain
    /// by it; what fails is read when it is loaded.
    fn will_read(&self, _offset: u64, _len_bytes: u64) {}

    /// Writes everything back that was stored so far, also where the domain does not ask for it: an
    /// orderly end, and a flush that a user asks for. O(length of the region) where pages are
    /// written back. A failure is kept: from then on stores, fences and syncs fail, since the
    /// kernel may have dropped the pages.
    ///
    /// # Errors
    /// As [`Pmem::fence`].
    fn sync(&self) -> Result<(), PmemError> {
        self.fence()
    }

    /// Why the region takes no more stores: writing it back failed once. That stays so until it is
    /// opened again.
    fn failure(&self) -> Option<PmemError> {
        None
    }

    /// Whether what was fenced survives a power cut; else only the death of the process.
    fn survives_power_loss(&self) -> bool {
        true
    }

    /// How many nodes of the machine (NUMA) it lies on, as far as is known: 1 at least. They are
    /// counted from 0.
    fn node_count(&self) -> usize {
        1
    }

    /// The node that the calling thread is on, now; of one that is near none of them, any.
    fn node_here(&self) -> usize {
        0
    }

    /// The node that the byte at `offset` lies on.
    fn node_of(&self, _offset: u64) -> usize {
        0
    }

    /// The machine's number of a node; 0 where it is not known.
    fn node_number(&self, _node: usize) -> u32 {
        0
    }

    /// A flush and a fence.
    ///
    /// # Errors
    /// As both.
    fn persist(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        self.flush(offset, len_bytes)?;
        self.fence()
    }
}

/// A region that is lent.
impl<P: Pmem + ?Sized> Pmem for &P {
    fn len_bytes(&self) -> u64 {
        (**self).len_bytes()
    }

    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), PmemError> {
        (**self).load(offset, into)
    }

    fn load_u64(&self, offset: u64) -> Result<u64, PmemError> {
        (**self).load_u64(offset)
    }

    fn prefetch(&self, offset: u64, len_bytes: u64) {
        (**self).prefetch(offset, len_bytes);
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        (**self).store(offset, bytes)
    }

    fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError> {
        (**self).store_u64(offset, value)
    }

    fn store_nt(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        (**self).store_nt(offset, bytes)
    }

    fn flush(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        (**self).flush(offset, len_bytes)
    }

    fn fence(&self) -> Result<(), PmemError> {
        (**self).fence()
    }

    fn fence_waits(&self) -> bool {
        (**self).fence_waits()
    }

    fn will_read(&self, offset: u64, len_bytes: u64) {
        (**self).will_read(offset, len_bytes);
    }

    fn sync(&self) -> Result<(), PmemError> {
        (**self).sync()
    }

    fn failure(&self) -> Option<PmemError> {
        (**self).failure()
    }

    fn survives_power_loss(&self) -> bool {
        (**self).survives_power_loss()
    }

    fn node_count(&self) -> usize {
        (**self).node_count()
    }

    fn node_here(&self) -> usize {
        (**self).node_here()
    }

    fn node_of(&self, offset: u64) -> usize {
        (**self).node_of(offset)
    }

    fn node_number(&self, node: usize) -> u32 {
        (**self).node_number(node)
    }
}

/// Why an access failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PmemError {
    /// Not inside the region.
    #[error("{len_bytes} bytes at {offset} are not inside a region of {region_bytes} bytes")]
    OutOfBounds {
        /// Where it began.
        offset: u64,
        /// How long it was.
        len_bytes: u64,
        /// Length of the region.
        region_bytes: u64,
    },
    /// A word must lie at a multiple of 8.
    #[error("a word at {offset}: atomic accesses lie at multiples of 8")]
    Misaligned {
        /// Where it began.
        offset: u64,
    },
    /// The medium cannot give the line back.
    #[error("the line at {offset} is lost (uncorrectable memory error); restore what it held, or clear it")]
    Poisoned {
        /// First byte of the line.
        offset: u64,
    },
    /// The file was shrunk below its mapping.
    #[error("nothing is at {offset} any more: the file under the region was shrunk to {file_bytes} bytes")]
    Shrunk {
        /// The first byte asked for that is gone.
        offset: u64,
        /// Its length now.
        file_bytes: u64,
    },
    /// The region was opened for reading.
    #[error("the region was opened for reading only; open it for writing to store")]
    ReadOnly,
    /// The system could not write the file back.
    #[error(
        "writing the region back failed ({}): what was not fenced may be lost, and it takes no more stores; see to the disk, then open it again",
        std::io::Error::from_raw_os_error(*errno)
    )]
    SyncFailed {
        /// The system's number of the error.
        errno: i32,
    },
}
