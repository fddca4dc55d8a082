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

/// A structure that cannot be read: its bytes contradict its layout, or a newer program laid them
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    why: &'static str,
    /// The version of its layout, if this program does not know it.
    newer_layout: Option<u8>,
}

impl Damaged {
    /// What is wrong: of an "it".
    pub const fn new(why: &'static str) -> Damaged {
        Damaged { why, newer_layout: None }
    }

    /// It is whole as far as can be told, and has the layout `version` of a newer program.
    pub(crate) const fn newer(version: u8) -> Damaged {
        Damaged { why: "its layout is of a newer version", newer_layout: Some(version) }
    }

    /// Whether a newer program can read it: nothing says that it is damaged.
    pub fn is_newer(&self) -> bool {
        self.newer_layout.is_some()
    }
}

impl std::error::Error for Damaged {}

impl std::fmt::Display for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.newer_layout {
            Some(version) => {
                let (found, known) = (u32::from(version), u32::from(header::LAYOUT_VERSION));
                f.write_str(&stratakv_base::format::unknown_format("the structure", found, known))
            }
            None => write!(f, "the structure is damaged: {}", self.why),
        }
    }
}

/// A structure that is longer than a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a structure of {bytes} bytes is too long")]
pub struct TooLong {
    /// Bytes that it would take, with its header.
    pub bytes: usize,
}
