//! StrataKV's slab engine: KVell's design, items unsorted on disk under an ordered index in memory.
//!
//! Source: Lepers, Balmau, Gupta, Zwaenepoel, "KVell: the Design and Implementation of a Fast
//! Persistent Key-Value Store", SOSP 2019. Items are updated in place (section 5.3), except that a
//! modified page is written to a free physical page, so that no atomic page writes are needed. The
//! volume's format and the argument for crash safety are in docs/format-slab.md. With placement
//! `packed` small records go to a log of segments instead: docs/format-packed.md and the module of
//! that name.
//!
//! [`SlabOpener`] creates or recovers a [`Slab`]; both are state machines driven through
//! `stratakv_engine`'s traits.
#![forbid(unsafe_code)]

mod backup;
mod batch;
mod blob;
mod blob_read;
mod blob_write;
mod check;
mod class;
pub mod config;
mod expiry;
#[cfg(any(test, fuzzing))]
#[path = "../tests/fuzzing/mod.rs"]
pub mod fuzzing;
mod group;
mod grow;
mod holes;
mod obsolete;
pub mod opener;
mod packed;
mod page;
mod place;
mod range;
mod read;
mod recovery;
mod scan;
mod slab;
mod space;
mod superblock;
mod table;
mod write;

pub use config::{CheckReport, CheckpointPace, Placement, RecoveryReport, SCANNED_PER_WRITE_MIN, SlabConfig};
pub use opener::SlabOpener;
pub use packed::verify::{ReadVolume, VerifiedValues};
pub use slab::Slab;
