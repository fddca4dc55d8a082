//! Tables: sorted versions as pages of 4096 bytes, made and read without I/O.
//! `docs/format-matrix.md` draws the pages.
//!
//! - [`Builder`] takes versions in order and gives finished pages to a sink; at the end it gives
//!   [`TableFacts`].
//! - [`verify`] compares a page's checksum, once, when it was read. Readers trust no page even
//!   then: what checks but makes no sense is [`Stop::Damaged`](crate::cursor::Stop), never a panic
//!   and never another page's bytes.
//! - [`may_contain`] and [`find`] look a key up; [`TableCursor`] goes through a table both ways.
//! - [`values`] does the same for files of values.

mod builder;
mod cursor;
mod data;
mod filling;
mod filter;
#[cfg(any(test, fuzzing))]
#[path = "../../tests/fuzzing/table.rs"]
pub mod fuzzing;
mod index;
mod packing;
mod page;
mod read;
#[cfg(test)]
#[path = "../../tests/unit/table/mod.rs"]
mod tests;
pub mod values;

pub use builder::{Builder, Refused};
pub use cursor::TableCursor;
pub use filter::{key_hash, line_allows, line_insert};
pub use page::{Page, verify};
pub use read::{Hit, bytes_between, entries_of_block, find, get, may_contain};

/// What is known of a finished table. Readers need `file`, `pages`, `data_pages`, `root` and
/// `filter_pages`: these must be kept wherever tables are listed. The rest helps to choose among
/// tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFacts {
    /// Its number.
    pub file: u64,
    /// Versions in it.
    pub entries: u64,
    /// All its pages.
    pub pages: u32,
    /// About how many pages it would have if none were compressed: `pages` if none is, else more.
    pub plain_pages: u32,
    /// Pages of data blocks: the first ones.
    pub data_pages: u32,
    /// First page of the index's root; 0 if there is one data block and no index.
    pub root: u32,
    /// Index blocks on the way from the root to a data block.
    pub index_levels: u8,
    /// Pages of its filter: the last ones. 0: there is none.
    pub filter_pages: u32,
    /// Lowest version.
    pub lowest_version: u64,
    /// Highest version.
    pub highest_version: u64,
    /// First key.
    pub first_key: Box<[u8]>,
    /// Last key.
    pub last_key: Box<[u8]>,
    /// Versions that say their key is not there.
    pub deletes: u64,
    /// Value files that it points to, each with the bytes of the values it points to, in the order
    /// they were met.
    pub blob: Vec<(u64, u64)>,
}

impl TableFacts {
    /// Whether some of its pages are compressed.
    pub fn is_compressed(&self) -> bool {
        self.plain_pages > self.pages
    }

    /// The first page of its filter.
    pub fn filter_first(&self) -> u32 {
        self.pages.saturating_sub(self.filter_pages)
    }
}

/// Longest value beside its key, in bytes.
pub const INLINE_BYTES_MAX: usize = stratakv_base::limits::SLICE_BYTES;

/// How many bytes `a` and `b` have in common at their start.
#[inline]
fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    let (words_a, words_b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    for (number, (x, y)) in words_a.iter().zip(words_b).enumerate() {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return number * 8 + difference.trailing_zeros() as usize / 8;
        }
    }
    let start = words_a.len().min(words_b.len()) * 8;
    let rest = a.get(start..).unwrap_or_default().iter().zip(b.get(start..).unwrap_or_default());
    start + rest.take_while(|(x, y)| x == y).count()
}
