//! [`TableCursor`].

use super::TableFacts;
use super::data::{BlockEntry, Data, RESTART_ENTRIES};
use super::page::{Block, Kind};
use super::read::data_page;
use crate::cursor::{Cursor, Pages, Stop};
use crate::entry::Meta;

/// A place in a table. [`Cursor::next`] and [`Cursor::prev`] take the index no second time: data
/// blocks lie side by side.
///
/// After [`Stop::Missing`] from either of them the place is as before: the same call goes on once
/// the page is there. Pages are asked for one at a time, forward in ascending order, so whoever
/// gives them can read ahead.
pub struct TableCursor<'a> {
    table: &'a TableFacts,
    pages: &'a dyn Pages,
    place: CursorPosition,
    block: Option<Block>,
    /// Where the entries of the block end.
    entries_end: usize,
    entry: BlockEntry,
    key: Vec<u8>,
    back: Back,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CursorPosition {
    Before,
    At,
    After,
    /// An error was met on the way.
    Lost,
}

/// Entries from a restart point on, for going back: entries can be read forward only.
#[derive(Debug, Default)]
struct Back {
    entries: Vec<(BlockEntry, usize)>,
    /// Their keys, one behind the other; each pair above says where its key begins.
    keys: Vec<u8>,
}

impl Back {
    fn clear(&mut self) {
        self.entries.clear();
        self.keys.clear();
    }

    /// Reads the entries from the restart point at `start` up to the one that ends at `end`.
    /// `None`: there is none.
    fn fill(&mut self, entries: &[u8], start: usize, end: usize) -> Option<()> {
        self.clear();
        let (mut at, mut previous) = (start, 0..0);
        while at < end {
            let entry = BlockEntry::parse(entries, at)?;
            let shared = previous.start..previous.start + entry.shared as usize;
            if shared.end > previous.end || self.entries.len() == RESTART_ENTRIES {
                return None;
            }
            let key_start = self.keys.len();
            self.keys.extend_from_within(shared);
            self.keys.extend_from_slice(entry.suffix(entries));
            self.entries.push((entry, key_start));
            previous = key_start..self.keys.len();
            at = entry.end as usize;
        }
        (at == end).then_some(())
    }

    /// Takes the entry that ends at `at`, if it is here; its key goes to `key`.
    fn take(&mut self, at: usize, key: &mut Vec<u8>) -> Option<BlockEntry> {
        while let Some((entry, key_start)) = self.entries.pop_if(|(entry, _)| entry.end as usize >= at) {
            if entry.end as usize == at {
                key.clear();
                key.extend_from_slice(self.keys.get(key_start..)?);
                self.keys.truncate(key_start);
                return Some(entry);
            }
            self.keys.truncate(key_start);
        }
        None
    }
}

impl<'a> TableCursor<'a> {
    /// A cursor before the first version.
    pub fn new(table: &'a TableFacts, pages: &'a dyn Pages) -> TableCursor<'a> {
        TableCursor {
            table,
            pages,
            place: CursorPosition::Before,
            block: None,
            entries_end: 0,
            entry: BlockEntry::NONE,
            key: Vec::new(),
            back: Back::default(),
        }
    }

    /// Like [`Cursor::value`], but where it lies: nothing is copied.
    ///
    /// # Errors
    /// [`Stop::Damaged`].
    pub fn value_here(&self) -> Result<&[u8], Stop> {
        match &self.block {
            Some(block) if self.place == CursorPosition::At => self.entry.checked_value(block),
            _ => Ok(&[]),
        }
    }

    /// Loads the data block at `ordinal`; without an error the place is before its first entry.
    fn enter(&mut self, ordinal: u32) -> Result<(), Stop> {
        self.stand_in(Block::load(self.pages, self.table.file, ordinal, Kind::Data)?)
    }

    fn stand_in(&mut self, block: Block) -> Result<(), Stop> {
        self.entries_end = Data::new(&block)?.entries.len();
        self.block = Some(block);
        self.entry = BlockEntry::NONE;
        self.key.clear();
        self.back.clear();
        Ok(())
    }

    /// Reads the entry behind the current one, in this block.
    #[inline]
    fn step(&mut self) -> Option<()> {
        let entries = self.block.as_ref()?.contents().get(..self.entries_end)?;
        let entry = BlockEntry::parse(entries, self.entry.end as usize)?;
        if entry.shared as usize > self.key.len() {
            return None;
        }
        self.key.truncate(entry.shared as usize);
        self.key.extend_from_slice(entry.suffix(entries));
        self.entry = entry;
        self.place = CursorPosition::At;
        Some(())
    }

    fn forward(&mut self) -> Result<(), Stop> {
        if self.entry.end as usize == self.entries_end {
            let next = self.block.as_ref().map_or(0, Block::next);
            if next >= u64::from(self.table.data_pages) {
                self.place = CursorPosition::After;
                return Ok(());
            }
            self.enter(next as u32)?;
        }
        self.step().ok_or_else(|| self.damaged())
    }

    /// Goes to the entry that ends where the current one begins.
    fn back(&mut self) -> Result<(), Stop> {
        if self.entry.at == 0 {
            let ordinal = self.block.as_ref().map_or(0, |block| block.ordinal);
            let Some(last) = ordinal.checked_sub(1) else {
                self.place = CursorPosition::Before;
                return Ok(());
            };
            self.enter_from_behind(last)?;
        }
        self.step_back().ok_or_else(|| self.damaged())
    }

    fn first(&mut self) -> Result<(), Stop> {
        self.enter(0)?;
        self.step().ok_or_else(|| self.damaged())
    }

    fn last(&mut self) -> Result<(), Stop> {
        self.enter_from_behind(self.table.data_pages.saturating_sub(1))?;
        self.step_back().ok_or_else(|| self.damaged())
    }

    fn enter_from_behind(&mut self, last: u32) -> Result<(), Stop> {
        self.stand_in(Block::load_ending(self.pages, self.table.file, last, Kind::Data)?)?;
        self.entry.at = self.entries_end as u32;
        Ok(())
    }

    fn step_back(&mut self) -> Option<()> {
        let at = self.entry.at as usize;
        let entry = match self.back.take(at, &mut self.key) {
            Some(entry) => entry,
            None => {
                let data = Data::new(self.block.as_ref()?).ok()?;
                self.back.fill(data.entries, data.restart_before(at)?, at)?;
                self.back.take(at, &mut self.key)?
            }
        };
        self.entry = entry;
        self.place = CursorPosition::At;
        Some(())
    }

    /// Goes to the first entry in its block that is not before `key`. `false`: there is none, and
    /// the place is behind the block's last entry.
    fn seek_in_block(&mut self, key: &[u8]) -> Result<bool, Stop> {
        self.place = CursorPosition::Lost;
        let ordinal = data_page(self.table, self.pages, Some(key))?;
        if self.block.as_ref().is_none_or(|block| block.ordinal != ordinal) {
            self.enter(ordinal)?;
        }
        let Some(block) = &self.block else { return Ok(false) };
        let data = Data::new(block)?;
        let bound = data.lower_bound(key, u64::MAX).ok_or_else(|| self.damaged())?;
        self.key.clear();
        match bound.entry {
            Some(entry) => {
                // What it shares with the entry before it, it shares with `key`: see
                // `Data::lower_bound`.
                self.key.extend_from_slice(key.get(..entry.shared as usize).unwrap_or_default());
                self.key.extend_from_slice(entry.suffix(data.entries));
                self.entry = entry;
                Ok(true)
            }
            None => {
                let end = self.entries_end as u32;
                self.entry = BlockEntry { at: end, end, ..BlockEntry::NONE };
                Ok(false)
            }
        }
    }

    #[cold]
    fn damaged(&self) -> Stop {
        match &self.block {
            Some(block) => block.damaged("entries one behind the other", "something else"),
            None => Stop::Missing,
        }
    }

    /// Does `go`; after damage there is no place any more.
    #[inline]
    fn or_lost(&mut self, go: impl FnOnce(&mut Self) -> Result<(), Stop>) -> Result<(), Stop> {
        let result = go(self);
        if matches!(result, Err(Stop::Damaged(_))) {
            self.place = CursorPosition::Lost;
        }
        result
    }
}

impl Cursor for TableCursor<'_> {
    fn seek(&mut self, key: &[u8]) -> Result<(), Stop> {
        if self.seek_in_block(key)? {
            self.place = CursorPosition::At;
            return Ok(());
        }
        self.or_lost(Self::forward)
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<(), Stop> {
        let Some(key) = key else { return self.or_lost(Self::last) };
        self.seek_in_block(key)?;
        self.or_lost(Self::back)
    }

    fn next(&mut self) -> Result<(), Stop> {
        match self.place {
            CursorPosition::At => self.or_lost(Self::forward),
            CursorPosition::Before => self.or_lost(Self::first),
            CursorPosition::After | CursorPosition::Lost => Ok(()),
        }
    }

    fn prev(&mut self) -> Result<(), Stop> {
        match self.place {
            CursorPosition::At => self.or_lost(Self::back),
            CursorPosition::After => self.or_lost(Self::last),
            CursorPosition::Before | CursorPosition::Lost => Ok(()),
        }
    }

    fn key(&self) -> Option<&[u8]> {
        (self.place == CursorPosition::At).then_some(&self.key)
    }

    fn meta(&self) -> Option<Meta> {
        (self.place == CursorPosition::At).then_some(self.entry.meta)
    }

    fn value(&self, into: &mut Vec<u8>) -> Result<(), Stop> {
        into.extend_from_slice(self.value_here()?);
        Ok(())
    }
}
