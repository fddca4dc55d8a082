//! Engine `matrix`: an LSM tree whose L0 is a matrix container in persistent memory, after MatrixKV
//! (Yao et al., USENIX ATC 2020).
//!
//! `docs/format-matrix.md` draws what lies in a region and on a volume, and says why it survives
//! crashes. The parts, from the top of the tree downwards:
//! - [`container`]: the region. The log, the memtables over it, rows with their hints, columns.
//! - [`table`]: tables as pages, made and read without I/O.
//! - [`volume`]: superblocks, the manifest, free extents.
//! - `pmem_levels`: levels of which the tables lie in the region.

mod acks;
mod backup;
mod batch;
mod blob_write;
mod changes;
mod check;
mod compactor;
mod config;
pub mod container;
pub mod cursor;
mod dead_spans;
pub mod entry;
#[cfg(any(test, fuzzing))]
#[path = "../tests/fuzzing/mod.rs"]
pub mod fuzzing;
mod growth;
#[cfg(test)]
#[path = "../tests/unit/harness/mod.rs"]
mod harness;
mod install;
mod job;
mod job_files;
mod job_reads;
mod key_locks;
mod level_cursor;
pub mod levels;
mod life;
mod load;
mod lookup;
mod maintain;
mod matrix;
mod memory;
pub mod merge;
mod opener;
mod operation_steps;
mod operations;
mod output;
mod pace;
pub mod pairing;
mod pmem_levels;
mod range_delete;
pub mod ranges;
mod reading;
pub mod retention;
mod scan;
mod scheduler;
mod snapshots;
mod space;
mod statistics;
pub mod table;
pub mod volume;
mod walk;

pub use check::{TableContents, ValueBlob, ValueCheck};
pub use config::{Compression, MatrixConfig, RecoveryReport};
pub use container::DamagedValue;
pub use growth::SET_ASIDE_BYTES;
pub use matrix::Matrix;
pub use opener::MatrixOpener;
pub use pairing::{Loss, LostTable};
