//! Engine `matrix`: an LSM tree whose L0 is a matrix container in persistent memory, after MatrixKV (Yao et al., USENIX ATC 2020).
//!
//! `docs/format-matrix.md` draws what lies in a region and on a volume, and says why it survives crashes. The parts, from the top of the tree downwards:
//! - [`container`]: the region. The log, the memtables over it, rows with their hints, columns.
//! - [`table`]: tables as pages, made and read without I/O.
//! - [`volume`]: superblocks, the manifest, free extents.

pub mod container;
pub mod cursor;
pub mod entry;
pub mod levels;
pub mod merge;
mod reading;
pub mod retention;
pub mod table;
pub mod volume;
