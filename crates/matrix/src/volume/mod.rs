//! The volume: what its superblocks and its manifest say, and which pages are free.

mod extents;
mod manifest;
mod places;
mod superblock;

pub use extents::{Extent, Extents};
pub use manifest::{LevelTable, Malformed, Manifest, ValueFile};
pub use places::{PMEM_LEVELS_FIRST, Places};
pub use superblock::{FIRST_PAGE, PAGES_MAX, Superblock};
