//! Hashes, lists, sets and sorted sets as functions on the value of one record: no I/O, no clock.
//!
//! The server parses a value, changes what it parsed, and encodes a new value. Elements stay slices
//! of the old value and of the command. `docs/structures.md` has the layout byte by byte.
#![forbid(unsafe_code)]

#[cfg(any(test, fuzzing))]
#[path = "../tests/fuzzing/mod.rs"]
pub mod fuzzing;
mod hash;
mod header;
pub mod list;
mod packed;
mod set;
mod sorted_set;
pub mod tree;
mod varint;

pub use hash::Hash;
pub use header::{HEADER_BYTES, Kind, STRUCTURE_FLAGS, kind_of, len};
pub use list::List;
pub use set::Set;
pub use sorted_set::SortedSet;

/// A structure whose bytes contradict its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the structure is damaged: {0}")]
pub struct Damaged(&'static str);

impl Damaged {
    /// What is wrong: of an "it".
    pub fn new(why: &'static str) -> Damaged {
        Damaged(why)
    }
}

/// A structure that is longer than a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a structure of {bytes} bytes is too long")]
pub struct TooLong {
    /// Bytes that it would take, with its header.
    pub bytes: usize,
}
