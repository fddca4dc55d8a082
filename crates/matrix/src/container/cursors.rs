//! Cursors over all that the container holds.

use stratakv_pmem::Pmem;

use super::row::{RowCursor, View};
use super::{Column, Container, MemtableCursor};
use crate::cursor::{Cursor, Stop};
use crate::entry::Meta;

/// A cursor over a memtable or a row.
pub enum ContainerCursor<'a, P> {
    /// Over a memtable.
    Memtable(MemtableCursor<'a, P>),
    /// Over a row, or a part of one.
    Row(RowCursor<'a, P>),
}

impl<P: Pmem> Container<P> {
    /// A cursor for each memtable and each row, newest first; what is down of the compactor's rows is passed over. Where two have the same key, the
    /// versions in the newer one are the newer ones.
    pub fn cursors(&self) -> Vec<ContainerCursor<'_, P>> {
        let memtables = self.memtables().filter(|memtable| !memtable.is_empty());
        let memtables = memtables.map(|memtable| MemtableCursor::new(&self.medium, &self.units, memtable));
        let rows = self.rows.iter().rev().filter(|row| row.live_elements() > 0);
        let rows = rows.map(|row| RowCursor::new(self.view(row)));
        memtables.map(ContainerCursor::Memtable).chain(rows.map(ContainerCursor::Row)).collect()
    }

    /// A cursor for each row of the compactor that has records in a column, newest first, over nothing else.
    ///
    /// # Errors
    /// [`Stop::Damaged`].
    pub fn column_cursors(&self, column: &Column) -> Result<Vec<RowCursor<'_, P>>, Stop> {
        let mut cursors = Vec::new();
        for row in self.rows.iter().take(self.directory.compactor_rows as usize).rev() {
            let view = View::silent(&self.medium, row, &self.directory.rotation);
            let (from, to) = column.elements(&view)?;
            if from < to {
                cursors.push(RowCursor::over(view, from, to));
            }
        }
        Ok(cursors)
    }
}

impl<'a, P: Pmem> ContainerCursor<'a, P> {
    fn cursor(&mut self) -> &mut dyn Cursor {
        match self {
            ContainerCursor::Memtable(cursor) => cursor,
            ContainerCursor::Row(cursor) => cursor,
        }
    }
}

impl<P: Pmem> Cursor for ContainerCursor<'_, P> {
    fn seek(&mut self, key: &[u8]) -> Result<(), Stop> {
        self.cursor().seek(key)
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<(), Stop> {
        self.cursor().seek_before(key)
    }

    fn next(&mut self) -> Result<(), Stop> {
        self.cursor().next()
    }

    fn prev(&mut self) -> Result<(), Stop> {
        self.cursor().prev()
    }

    fn key(&self) -> Option<&[u8]> {
        match self {
            ContainerCursor::Memtable(cursor) => cursor.key(),
            ContainerCursor::Row(cursor) => cursor.key(),
        }
    }

    fn meta(&self) -> Option<Meta> {
        match self {
            ContainerCursor::Memtable(cursor) => cursor.meta(),
            ContainerCursor::Row(cursor) => cursor.meta(),
        }
    }

    fn value(&self, into: &mut Vec<u8>) -> Result<(), Stop> {
        match self {
            ContainerCursor::Memtable(cursor) => cursor.value(into),
            ContainerCursor::Row(cursor) => cursor.value(into),
        }
    }
}
