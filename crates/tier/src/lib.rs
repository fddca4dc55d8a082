//! Engine `tier`: a cache on two levels after UKV. New and hot items lie in segments in DRAM; whole
//! segments spill to a log on the volume, whose oldest segments make room, and what was used of
//! them is taken along. It acknowledges from memory, evicts, and is warm again after a restart.
//!
//! `docs/format-tier.md` draws what lies on a volume; decision 23 says why nothing older than the
//! newest ever comes back.
#![forbid(unsafe_code)]

mod check;
mod closing;
mod config;
mod counters;
mod drops;
mod ending;
mod evictions;
mod fetch;
#[cfg(any(test, fuzzing))]
#[path = "../tests/fuzzing/mod.rs"]
pub mod fuzzing;
mod ghost_queue;
mod holds;
mod index;
mod item;
mod journal;
mod journal_group;
mod listing;
mod log;
mod losing;
mod memory;
mod memory_cap;
mod opener;
mod operation_queues;
mod operations;
mod overwrite;
mod recovery;
mod recycle;
mod resize;
mod returning;
mod rewrite;
mod saving;
mod segment;
mod segments;
mod slices;
mod spill;
mod spill_queue;
mod superblock;
mod superblock_writer;
mod tier;
mod verify;
mod versions;
mod volume;

pub use config::{RecoveryReport, Start, TierConfig};
pub use opener::TierOpener;
pub use tier::Tier;
pub use verify::{ReadVolume, Verified};
