//! StrataKV's engine for persistent memory, after KVDK: records in a region, a hash table over them
//! in DRAM.
//!
//! Any thread calls a [`struct@Hash`] in place. Gets take no lock; writes lock the slot of their
//! key, a cache line of the table. What lies in the region, in which order it is stored and why no
//! power cut can hurt it: docs/format-hash.md.
//!
//! Source: Intel and Kuaishou, KVDK (github.com/pmem/kvdk); where this differs, the module says
//! why.

mod alloc;
mod batch;
mod crc;
mod epoch;
mod expiry;
#[cfg(any(test, fuzzing))]
#[path = "../tests/fuzzing/mod.rs"]
pub mod fuzzing;
mod hash;
mod health;
#[cfg(all(test, loom))]
#[path = "../tests/unit/interleavings.rs"]
mod interleavings;
mod layout;
mod list;
mod moving;
mod opening;
mod order;
mod pages;
mod parts;
mod region;
mod scrub;
mod shared;
mod snapshot;
mod sync;
mod table;
mod versions;
mod walk;
mod write;

pub use hash::{DramReport, Hash, HashOptions, NodeReport, Report, Written};
pub use parts::FoundPart;
pub use snapshot::SnapshotReport;
