//! Damage found on a medium: where, what was expected, what was found.

use std::fmt;

/// A place on a medium that a person can look at with `xxd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The shard whose volume it is.
    pub shard: u32,
    /// Offset in the volume, in bytes.
    pub offset_bytes: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} at byte {}", self.shard, self.offset_bytes)
    }
}

/// Bytes from a medium that do not check. Never returned as data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is damaged ({place}): expected {expected}, found {found}")]
pub struct Corruption {
    /// Where.
    pub place: Place,
    /// What lies there: "record", "page header", "superblock".
    pub what: &'static str,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}
