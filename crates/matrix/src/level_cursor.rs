//! A level as one cursor: its tables one after the other.

use std::sync::Arc;

use crate::cursor::{Cursor, Pages, Stop};
use crate::entry::Meta;
use crate::table::TableCursor;
use crate::volume::LevelTable;

/// A place in a level.
pub(crate) struct LevelCursor<'a> {
    tables: &'a [Arc<LevelTable>],
    pages: &'a dyn Pages,
    /// The table it is in, by its place in the level.
    at: usize,
    inner: Option<TableCursor<'a>>,
}

impl<'a> LevelCursor<'a> {
    pub(crate) fn new(tables: &'a [Arc<LevelTable>], pages: &'a dyn Pages) -> LevelCursor<'a> {
        LevelCursor { tables, pages, at: 0, inner: None }
    }

    /// The cursor of a table, before its first version.
    fn enter(&mut self, at: usize) -> Option<&mut TableCursor<'a>> {
        let table = self.tables.get(at)?;
        self.at = at;
        Some(self.inner.insert(TableCursor::new(&table.facts, self.pages)))
    }

    fn is_at_end(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.key().is_none())
    }
}

impl Cursor for LevelCursor<'_> {
    fn seek(&mut self, key: &[u8]) -> Result<(), Stop> {
        let at = self.tables.partition_point(|table| &table.facts.last_key[..] < key);
        self.inner = None;
        self.enter(at).map_or(Ok(()), |inner| inner.seek(key))
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<(), Stop> {
        let before =
            key.map_or(self.tables.len(), |key| self.tables.partition_point(|table| &table.facts.first_key[..] < key));
        self.inner = None;
        let Some(at) = before.checked_sub(1) else { return Ok(()) };
        self.enter(at).map_or(Ok(()), |inner| inner.seek_before(key))
    }

    fn next(&mut self) -> Result<(), Stop> {
        if let Some(inner) = &mut self.inner {
            inner.next()?;
        }
        if self.is_at_end() {
            self.inner = None;
            self.enter(self.at + 1).map_or(Ok(()), |inner| inner.seek(&[]))?;
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<(), Stop> {
        if let Some(inner) = &mut self.inner {
            inner.prev()?;
        }
        if self.is_at_end() {
            self.inner = None;
            let Some(at) = self.at.checked_sub(1) else { return Ok(()) };
            self.enter(at).map_or(Ok(()), |inner| inner.seek_before(None))?;
        }
        Ok(())
    }

    fn key(&self) -> Option<&[u8]> {
        self.inner.as_ref()?.key()
    }

    fn meta(&self) -> Option<Meta> {
        self.inner.as_ref()?.meta()
    }

    fn value(&self, into: &mut Vec<u8>) -> Result<(), Stop> {
        self.inner.as_ref().map_or(Ok(()), |inner| inner.value(into))
    }
}
