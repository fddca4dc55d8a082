//! One version of a key, as the log, rows and tables have it.

use stratakv_base::{Expiry, checksum};

/// All but key and value of one version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Grows with every change of the shard.
    pub version: u64,
    /// As written; 0 for deletes.
    pub flags: u32,
    /// As written; never for deletes.
    pub expiry: Expiry,
    /// What became of the key.
    pub body: Body,
}

/// What a version says of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// It is not there any more.
    Delete,
    /// It has a value, which lies beside the key.
    Here {
        /// Its length.
        value_bytes: u32,
        /// [`value_checksum`] of it.
        checksum: u32,
    },
    /// It has a value, which lies in a value file.
    Blob(Pointer),
}

/// Where a value lies on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The value file.
    pub file: u64,
    /// Its first byte there.
    pub offset: u64,
    /// Its length.
    pub value_bytes: u32,
    /// [`value_checksum`] of it.
    pub checksum: u32,
}

/// The checksum that goes with a value wherever that goes: it is tied to the version and the
/// length.
#[inline]
pub fn value_checksum(version: u64, value: &[u8]) -> u32 {
    checksum::crc32c(value_checksum_head(version, value.len() as u32), value)
}

/// [`value_checksum`] before the value's bytes: for values in pieces.
#[inline]
pub fn value_checksum_head(version: u64, value_bytes: u32) -> u32 {
    let head = u64::from(value_bytes) << 32 | u64::from(version as u32);
    checksum::crc32c(0, &head.to_le_bytes())
}
