//! StrataKV's engines `slab` and `packed`: records unsorted on disk under an ordered index in
//! memory, KVell's design.
//!
//! Source: Lepers, Balmau, Gupta, Zwaenepoel, "KVell: the Design and Implementation of a Fast
//! Persistent Key-Value Store", SOSP 2019. Both are an [`IndexedShard`]; where its small records
//! lie is its placement's. [`Slab`] (`in_place`) is KVell as the paper has it: items are updated in
//! place in slabs of size classes (section 5.3), except that a modified page is written to a free
//! physical page, so that no atomic page writes are needed. [`Packed`] (`packed`) appends them to a
//! log of segments, which a cleaner keeps short. docs/format-slab.md and docs/format-packed.md draw
//! the volumes and argue crash safety.
//!
//! [`SlabOpener`] and [`PackedOpener`] create or recover a shard; all are state machines driven
//! through `stratakv_engine`'s traits.
#![forbid(unsafe_code)]
#![expect(private_bounds, reason = "the placements are this crate's own")]

mod backup;
mod batch;
mod blob;
mod blob_read;
mod blob_write;
mod blobs;
mod check;
pub mod config;
mod discard;
mod expiry;
#[cfg(any(test, fuzzing))]
#[path = "../tests/fuzzing/mod.rs"]
pub mod fuzzing;
mod group;
mod grow;
mod health;
mod holes;
mod in_place;
mod index;
mod keys;
mod memory;
pub mod opener;
mod packed;
mod place;
mod placement;
mod range;
mod read;
mod record;
mod recovery;
mod requests;
mod scan;
mod shard;
mod space;
mod superblock;
mod write;

pub use config::{
    CheckReport, CheckpointPace, CheckpointUse, DiscardPace, RecoveryReport, SCANNED_PER_WRITE_MIN, SlabConfig,
};
pub use in_place::{InPlace, Slab};
pub use packed::verify::{ReadVolume, VerifiedValues};
pub use packed::{Log, Packed};
pub use shard::IndexedShard;

/// Creates or recovers a [`Slab`].
pub type SlabOpener = opener::IndexedOpener<InPlace>;
/// Creates or recovers a [`Packed`].
pub type PackedOpener = opener::IndexedOpener<Log>;
