//! Persistent memory: the interface engines write through, and a medium that loses what was not
//! flushed and fenced.
//!
//! [`Pmem`] is the interface. [`Region`] implements it over a shadow image: it knows, for every
//! cache line of 64 bytes, which stores the medium need not have yet. [`Trace`] records what a
//! workload did to a region and then explores its power cuts: every legal one of a small workload
//! ([`Trace::exhaustive`]), or as many as there is time for ([`Trace::random`]).
//!
//! # What survives a cut
//! The domain of persistence is ADR: what reached the memory controller survives, caches do not.
//! - An aligned word of 8 bytes is written as a whole or not at all. Nothing larger is.
//! - Of a line's stores that are not durable, a prefix in program order survives, independently of
//!   every other line: the line was evicted after the last of them. So an eviction is no event of
//!   its own: it is a choice made at the cut.
//! - The words of *one* [`store`](Pmem::store) reach the line in no promised order (a `memcpy`
//!   makes none), and neither do the words of non-temporal stores between two fences.
//!   [`WordOrder::Any`] explores this; [`WordOrder::Program`] is the smaller space in which words
//!   go in ascending order. Code that relies on an order within a line makes one `store_u64` for
//!   each step.
//! - A flush covers the stores before it. It and non-temporal stores are complete after the next
//!   fence.
//! - A line can be poisoned (an uncorrectable error), the file under a mapping can be shrunk:
//!   accesses fail, other lines do not.
//!
//! Not modelled: fences of other threads (a fence completes every flush of the region: drive it
//! from one thread at a time), eADR.
//!
//! Sources: Intel SDM vol. 1 ch. 11 (CLWB, CLFLUSHOPT, SFENCE); Raad et al., "Persistency semantics
//! of the Intel-x86 architecture", POPL 2020; Fu et al., "Witcher", SOSP 2021 (what a check
//! compares); Neal et al., "Agamotto", OSDI 2020 (what [`Counters`] count).

mod cutting;
mod explore;
mod lines;
mod memory;
mod region;
#[cfg(test)]
mod tests;

pub use cutting::Cutting;
pub use explore::{Caught, Exhaustive, Explored, Trace};
pub use lines::WordOrder;
pub use memory::Memory;
pub use region::{Counters, Domain, Region};
pub use stratakv_pmem::{LINE_BYTES, Pmem, PmemError};
