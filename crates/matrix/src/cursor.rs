//! [`Cursor`]: one way through memtables, rows and tables. L0 is no side path.

use stratakv_base::Corruption;
use stratakv_device::BlockPart;

use crate::entry::Meta;

/// Why a lookup or a cursor stopped before it knew the answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// A page is not in memory. Whoever gave the pages knows which; the same call made again once
    /// it is there goes on.
    #[error("a page is not in memory")]
    Missing,
    /// What is there does not check, or makes no sense.
    #[error("{0}")]
    Damaged(#[from] Corruption),
}

/// Pages of tables that are in memory, their checksums compared.
pub trait Pages {
    /// The page `ordinal` of table `file`.
    ///
    /// # Errors
    /// [`Stop::Missing`]: it has been noted which one.
    fn page(&self, file: u64, ordinal: u32) -> Result<BlockPart, Stop>;
}

/// A place in a sequence of versions: by key, and those of one key from new to old.
///
/// After an error the place is not specified: seek again.
pub trait Cursor {
    /// Goes to the newest version of the first key at or after `key`.
    ///
    /// # Errors
    /// [`Stop`].
    fn seek(&mut self, key: &[u8]) -> Result<(), Stop>;

    /// Goes to the oldest version of the last key before `key`, or of the last key of all.
    ///
    /// # Errors
    /// [`Stop`].
    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<(), Stop>;

    /// Goes one version on. At the end it stays there.
    ///
    /// # Errors
    /// [`Stop`].
    fn next(&mut self) -> Result<(), Stop>;

    /// Goes one version back. Before the first it stays there.
    ///
    /// # Errors
    /// [`Stop`].
    fn prev(&mut self) -> Result<(), Stop>;

    /// The key here; `None` at either end.
    fn key(&self) -> Option<&[u8]>;

    /// What this version says; `None` at either end.
    fn meta(&self) -> Option<Meta>;

    /// Appends the value that lies beside the key ([`Body::Here`](crate::entry::Body::Here)) to
    /// `into`, its checksum compared; nothing for the others.
    ///
    /// # Errors
    /// [`Stop::Damaged`].
    fn value(&self, into: &mut Vec<u8>) -> Result<(), Stop>;
}
