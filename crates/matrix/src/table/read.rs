//! Lookups.

use stratakv_base::limits::PAGE_BYTES;
use stratakv_device::BlockPart;

use super::data::{BlockEntry, Data};
use super::index::Index;
use super::page::{self, Block, Kind};
use super::{TableFacts, filter, key_hash};
use crate::cursor::{Pages, Stop};
use crate::entry::Meta;

/// A version that was found. It keeps its page in memory.
#[derive(Clone, Debug)]
pub struct Hit {
    /// What it says.
    pub meta: Meta,
    block: Block,
    entry: BlockEntry,
}

impl Hit {
    /// Appends the value that lies beside the key to `into`, its checksum compared; nothing if
    /// there is none.
    ///
    /// # Errors
    /// [`Stop::Damaged`].
    pub fn value(&self, into: &mut Vec<u8>) -> Result<(), Stop> {
        into.extend_from_slice(self.entry.checked_value(&self.block)?);
        Ok(())
    }

    /// That value where it lies, its checksum compared: nothing is copied. `None` if it does not
    /// lie in one page: ask for [`Hit::value`].
    ///
    /// # Errors
    /// [`Stop::Damaged`].
    pub fn part(&self) -> Result<Option<BlockPart>, Stop> {
        let len = self.entry.checked_value(&self.block)?.len();
        Ok(self.block.part(self.entry.value as usize, len))
    }
}

/// Whether the table may have the key of this [`key_hash`], asked of its filter: one page. `true`
/// of a table without a filter.
///
/// # Errors
/// [`Stop`].
pub fn may_contain(table: &TableFacts, pages: &dyn Pages, key_hash: u64) -> Result<bool, Stop> {
    if table.filter_pages == 0 {
        return Ok(true);
    }
    let ordinal = table.filter_first().saturating_add(filter::page_of(key_hash, table.filter_pages));
    let (part, _) = page::page(pages, table.file, ordinal, Kind::Filter)?;
    Ok(filter::allows(part.bytes(), key_hash, table.filter_pages))
}

/// The newest version of `key` that is not newer than `at_version`. The filter is not asked. One
/// page of each level of the index, one data page.
///
/// # Errors
/// [`Stop`].
pub fn find(table: &TableFacts, pages: &dyn Pages, key: &[u8], at_version: u64) -> Result<Option<Hit>, Stop> {
    let mut ordinal = data_page(table, pages, Some(key))?;
    loop {
        let block = Block::load(pages, table.file, ordinal, Kind::Data)?;
        let bound = Data::new(&block)?.lower_bound(key, at_version);
        let Some(bound) = bound else { return Err(block.damaged("entries", "something else")) };
        match bound.entry {
            Some(entry) if bound.same_key => return Ok(Some(Hit { meta: entry.meta, block, entry })),
            // Older versions may lie in the next block.
            None if bound.same_key && block.next() < u64::from(table.data_pages) => ordinal = block.next() as u32,
            _ => return Ok(None),
        }
    }
}

/// [`may_contain`], then [`find`].
///
/// # Errors
/// [`Stop`].
pub fn get(table: &TableFacts, pages: &dyn Pages, key: &[u8], at_version: u64) -> Result<Option<Hit>, Stop> {
    if !may_contain(table, pages, key_hash(key))? {
        return Ok(None);
    }
    find(table, pages, key, at_version)
}

/// About how many bytes of data pages have the keys from `first` up to `last`: to a page, from the
/// index alone.
///
/// # Errors
/// [`Stop`].
pub fn bytes_between(table: &TableFacts, pages: &dyn Pages, first: &[u8], last: &[u8]) -> Result<u64, Stop> {
    let (first, last) = (data_page(table, pages, Some(first))?, data_page(table, pages, Some(last))?);
    Ok(u64::from(last.saturating_sub(first)) * PAGE_BYTES as u64)
}

/// Gives all versions of the data block whose first page is `ordinal` to `each`, in order. The
/// first page behind it.
///
/// # Errors
/// [`Stop`].
pub fn entries_of_block(
    pages: &dyn Pages,
    file: u64,
    ordinal: u32,
    each: &mut dyn FnMut(&[u8], Meta),
) -> Result<u64, Stop> {
    let block = Block::load(pages, file, ordinal, Kind::Data)?;
    let entries = Data::new(&block)?.entries;
    let (mut key, mut at) = (Vec::new(), 0);
    while at < entries.len() {
        let entry = BlockEntry::parse(entries, at).filter(|entry| entry.shared as usize <= key.len());
        let Some(entry) = entry else { return Err(block.damaged("entries one behind the other", "something else")) };
        key.truncate(entry.shared as usize);
        key.extend_from_slice(entry.suffix(entries));
        each(&key, entry.meta);
        at = entry.end as usize;
    }
    Ok(block.next())
}

/// The first page of the first data block that can have `key` or what comes after it; of the last
/// block for `None`. Touches the index only.
pub(super) fn data_page(table: &TableFacts, pages: &dyn Pages, key: Option<&[u8]>) -> Result<u32, Stop> {
    let mut ordinal = table.root;
    // Each block lies behind those below it, so this ends.
    while ordinal >= table.data_pages {
        let block = Block::load(pages, table.file, ordinal, Kind::Index)?;
        let index = Index::new(&block)?;
        let position = key.map_or(Some(index.len().saturating_sub(1)), |key| index.position(key));
        match position.and_then(|position| index.child(position)) {
            Some(child) if child < ordinal => ordinal = child,
            _ => return Err(block.damaged("a block below for every key", "none")),
        }
    }
    Ok(ordinal)
}
