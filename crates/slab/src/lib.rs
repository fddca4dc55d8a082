//! StrataKV's slab engine: KVell's design, items unsorted on disk under an ordered index in memory.
#![forbid(unsafe_code)]

pub mod config;
mod slab;

pub use config::{CheckReport, RecoveryReport, SlabConfig};
pub use slab::{Slab, SlabOpener};
