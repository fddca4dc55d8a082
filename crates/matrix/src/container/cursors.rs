//! Cursors over all that the container holds.

use stratakv_pmem::Pmem;

use super::row::{Row, RowCursor, View};
use super::{Column, Container, MemtableCursor};
use crate::cursor::{Cursor, Stop};
use crate::entry::Meta;

/// What a record's head mostly takes, in bytes.
const RECORD_BYTES: u64 = 96;

/// A cursor over a memtable or a row.
pub enum ContainerCursor<'a, P> {
    /// Over a memtable.
    Memtable(MemtableCursor<'a, P>),
    /// Over a row, or a part of one.
    Row(RowCursor<'a, P>),
}

/// Elements of a row that belong to a column and were not gone through.
#[derive(Clone, Copy, Debug)]
pub struct RowPart {
    /// The row's number.
    row: u64,
    from: u32,
    to: u32,
}

impl<P: Pmem> Container<P> {
    /// A cursor for each memtable and each row, newest first; what is down of the compactor's rows
    /// is passed over. Where two have the same key, the versions in the newer one are the newer
    /// ones.
    pub fn cursors(&self) -> Vec<ContainerCursor<'_, P>> {
        let memtables = self.memtables().filter(|memtable| !memtable.is_empty());
        let memtables = memtables.map(|memtable| MemtableCursor::new(&self.medium, &self.units, memtable));
        let rows = self.rows.iter().rev().filter(|row| row.live_elements() > 0);
        let rows = rows.map(|row| RowCursor::new(self.view(row)));
        memtables.map(ContainerCursor::Memtable).chain(rows.map(ContainerCursor::Row)).collect()
    }

    /// As [`Container::cursors`], each sought, and those left out that have nothing there.
    /// `reverse`: before the key as [`Cursor::seek_before`] says, else as [`Cursor::seek`] does.
    /// The newest row is searched, the others by the hints of the next newer one. `end`: who asks
    /// wants no key from there on, or none before it if `reverse`. Rows whose metadata tells that
    /// they have no other key are left out.
    ///
    /// # Errors
    /// [`Stop::Damaged`].
    pub fn cursors_at(
        &self,
        key: Option<&[u8]>,
        end: Option<&[u8]>,
        reverse: bool,
    ) -> Result<Vec<ContainerCursor<'_, P>>, Stop> {
        let mut cursors = Vec::new();
        for memtable in self.memtables().filter(|memtable| !memtable.is_empty()) {
            let mut cursor = MemtableCursor::new(&self.medium, &self.units, memtable);
            if reverse {
                cursor.seek_before(key)?
            } else {
                cursor.seek(key.unwrap_or_default())?
            }
            cursors.push(ContainerCursor::Memtable(cursor));
        }
        for (row, found) in self.rows_at(key, end, reverse)? {
            let mut cursor = RowCursor::new(self.view(row));
            if reverse {
                cursor.seek_back_from(found)?
            } else {
                cursor.seek_from(found)?
            }
            cursors.push(ContainerCursor::Row(cursor));
        }
        cursors.retain(|cursor| cursor.key().is_some());
        Ok(cursors)
    }

    /// The rows, newest first, and the first element of each that is not before a key; without a
    /// key the one behind its last, or its first. Rows are left out as in
    /// [`Container::cursors_at`].
    fn rows_at(&self, key: Option<&[u8]>, end: Option<&[u8]>, reverse: bool) -> Result<Vec<(&Row, u32)>, Stop> {
        let (mut rows, mut window) = (Vec::with_capacity(self.rows.len()), None);
        for (ordinal, row) in self.rows.iter().enumerate().rev() {
            let found = match key {
                Some(key) => {
                    let view = self.view(row);
                    let (found, _) = view.find(key, window)?;
                    let older = ordinal.checked_sub(1).and_then(|older| self.rows.get(older));
                    window = older.map(|older| view.window(found, older)).transpose()?;
                    found
                }
                None if reverse => row.elements,
                None => 0,
            };
            let stands = if reverse { found.checked_sub(1) } else { Some(found) };
            if let Some(element) = stands.filter(|element| *element < row.elements) {
                if end.map_or(Ok(false), |end| self.view(row).is_surely_beyond(element, end, reverse))? {
                    continue;
                }
                // Its record is loaded when all rows were searched: until then it is on its way
                // from memory.
                self.medium.pmem.prefetch(row.place(&self.medium, element)?, RECORD_BYTES);
            }
            rows.push((row, found));
        }
        Ok(rows)
    }

    /// What each row of the compactor has of a column, newest first; rows that have nothing are
    /// left out. O(rows · log elements).
    ///
    /// # Errors
    /// [`Stop::Damaged`].
    pub fn column_parts(&self, column: &Column) -> Result<Vec<RowPart>, Stop> {
        let mut parts = Vec::new();
        for row in self.rows.iter().take(self.directory.compactor_rows as usize).rev() {
            let (from, to) = column.elements(&View::silent(&self.medium, row, &self.directory.rotation))?;
            if from < to {
                parts.push(RowPart { row: row.number, from, to });
            }
        }
        Ok(parts)
    }

    /// A cursor for each of these parts, over nothing else, at the first key that is not before
    /// `position`; parts that have none go. What lies before it is passed for good: `position` only
    /// grows. So what is searched of a row is what was passed since the last time. O(rows + records
    /// passed).
    ///
    /// # Errors
    /// [`Stop::Damaged`].
    pub fn part_cursors(&self, parts: &mut Vec<RowPart>, position: &[u8]) -> Result<Vec<RowCursor<'_, P>>, Stop> {
        let (mut found, mut rows) = (Vec::with_capacity(parts.len()), self.rows.iter().rev());
        for part in &mut *parts {
            let Some(row) = rows.find(|row| row.number == part.row) else {
                let missing = format!("no row {}", part.row);
                return Err(Stop::Damaged(self.medium.damage(0, "the compactor", "the rows of a column", missing)));
            };
            let view = View::silent(&self.medium, row, &self.directory.rotation);
            part.from = view.gallop(position, part.from)?.min(part.to);
            if part.from < part.to {
                self.medium.pmem.prefetch(row.place(&self.medium, part.from)?, RECORD_BYTES);
                found.push(RowCursor::over(view, part.from, part.to));
            }
        }
        found.iter_mut().try_for_each(|cursor| cursor.seek_from(0))?;
        parts.retain(|part| part.from < part.to);
        Ok(found)
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
