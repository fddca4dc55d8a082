//! Persistent memory: the interface engines write through, and a medium that loses what was not flushed and fenced.
//!
//! [`Pmem`] is the interface. [`Region`] implements it over a shadow image: it knows, for every cache line of 64 bytes, which stores the
//! medium need not have yet. [`Trace`] records what a workload did to a region and then explores its power cuts: every legal one of a
//! small workload ([`Trace::exhaustive`]), or as many as there is time for ([`Trace::random`]).
//!
//! # What survives a cut
//! The domain of persistence is ADR: what reached the memory controller survives, caches do not.
//! - An aligned word of 8 bytes is written as a whole or not at all. Nothing larger is.
//! - Of a line's stores that are not durable, a prefix in program order survives, independently of every other line: the line was evicted
//!   after the last of them. So an eviction is no event of its own: it is a choice made at the cut.
//! - The words of *one* [`store`](Pmem::store) reach the line in no promised order (a `memcpy` makes none), and neither do the words of
//!   non-temporal stores between two fences. [`WordOrder::Any`] explores this; [`WordOrder::Program`] is the smaller space in which words
//!   go in ascending order. Code that relies on an order within a line makes one `store_u64` for each step.
//! - A flush covers the stores before it. It and non-temporal stores are complete after the next fence.
//! - A line can be poisoned (an uncorrectable error), the file under a mapping can be shrunk: accesses fail, other lines do not.
//!
//! Not modelled: fences of other threads (a fence completes every flush of the region: drive it from one thread at a time), eADR.
//!
//! Sources: Intel SDM vol. 1 ch. 11 (CLWB, CLFLUSHOPT, SFENCE); Raad et al., "Persistency semantics of the Intel-x86 architecture",
//! POPL 2020; Fu et al., "Witcher", SOSP 2021 (what a check compares); Neal et al., "Agamotto", OSDI 2020 (what [`Counters`] count).

mod explore;
mod lines;
mod region;
#[cfg(test)]
mod tests;

pub use explore::{Caught, Exhaustive, Explored, Trace};
pub use lines::WordOrder;
pub use region::{Counters, Domain, Region};

/// Length of a cache line.
pub const LINE_BYTES: u64 = 64;

/// A mapped region of persistent memory. The crate `pmem` will own this trait and implement it for real memory: clwb and sfence on DAX,
/// `msync` on a plain file.
///
/// Methods take `&self`: the region is shared, nobody ever holds a `&mut` over it. Every offset is checked. A caller that stores and loads the
/// same bytes from two threads at once must do so by `store_u64` and `load_u64`.
pub trait Pmem {
    /// Length of the mapping.
    fn len_bytes(&self) -> u64;

    /// Copies bytes out.
    ///
    /// # Errors
    /// Out of bounds, poisoned, beyond the end of a file that was shrunk. What `into` then holds is not specified.
    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), PmemError>;

    /// The word at an offset that is a multiple of 8, in the machine's order: atomic, with acquire.
    ///
    /// # Errors
    /// As [`Pmem::load`]; misaligned.
    fn load_u64(&self, offset: u64) -> Result<u64, PmemError>;

    /// Copies bytes in, word by word in no promised order. Visible at once, durable after a flush and a fence, or earlier by an eviction.
    ///
    /// # Errors
    /// As [`Pmem::load`]; then nothing was stored.
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError>;

    /// Stores one aligned word: atomic, with release. Among stores to one line, none survives a cut without the earlier ones.
    ///
    /// # Errors
    /// As [`Pmem::load_u64`]; then nothing was stored.
    fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError>;

    /// As [`Pmem::store`], past the cache: durable after the next fence, without a flush.
    ///
    /// # Errors
    /// As [`Pmem::store`].
    fn store_nt(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError>;

    /// Starts writing back the lines that hold `len_bytes` from `offset`, with the stores made to them so far.
    ///
    /// # Errors
    /// Out of bounds.
    fn flush(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError>;

    /// Returns when everything flushed, and every non-temporal store, is durable.
    ///
    /// # Errors
    /// `msync` failed: the region takes no more writes until it is opened again. Never with real persistent memory.
    fn fence(&self) -> Result<(), PmemError>;

    /// A flush and a fence.
    ///
    /// # Errors
    /// As both.
    fn persist(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        self.flush(offset, len_bytes)?;
        self.fence()
    }
}

/// Why an access failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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
}
