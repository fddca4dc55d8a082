//! Damage found on a medium: where, what was expected, what was found. And bytes that a device
//! does not give, which is something else.

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

/// Bytes that a device did not give. What lies there may be whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len_bytes} bytes cannot be read ({place}): {why}")]
pub struct Unreadable {
    /// Where they begin.
    pub place: Place,
    /// How many.
    pub len_bytes: u64,
    /// What the device answered.
    pub why: String,
}

impl Unreadable {
    /// Whether a place lies in them.
    pub fn holds(&self, place: Place) -> bool {
        let begins = self.place.offset_bytes;
        place.shard == self.place.shard && (begins..begins + self.len_bytes).contains(&place.offset_bytes)
    }
}
