//! Columns: key ranges cut through the compactor's rows, around the key space.

use stratakv_base::{Corruption, fault_point};
use stratakv_engine::Error;
use stratakv_pmem::Pmem;

use super::directory::{Directory, Rotation};
use super::row::{Down, View};
use super::units::Owner;
use super::{Container, damaged};
use crate::cursor::Stop;

/// Rows that are asked for a key to cut at.
const CUT_ROWS_MAX: usize = 8;

/// How large a column should be, in bytes of its records.
#[derive(Clone, Copy, Debug)]
pub struct ColumnLimits {
    /// Ranges are added until it has as much.
    pub low_bytes: u64,
    /// A range that would make it longer is cut.
    pub high_bytes: u64,
}

/// The next part of the compactor's contents: all its records with keys from `from` up to `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The first key it may have.
    pub from: Vec<u8>,
    /// The first key behind it; `None`: the end of the key space.
    pub end: Option<Vec<u8>>,
    /// Bytes of its records, about (what is left free at the ends of units is counted).
    pub bytes: u64,
    /// Its records.
    pub records: u64,
    /// How far columns are down once it is: for the manifest that has its tables.
    pub after: Rotation,
}

impl Column {
    /// Its elements in a row.
    pub(super) fn elements<P: Pmem>(&self, view: &View<'_, P>) -> Result<(u32, u32), Corruption> {
        elements(view, &self.from, self.end.as_deref())
    }
}

/// The elements of a row from a key, which is where the rotation stands, up to another one.
fn elements<P: Pmem>(view: &View<'_, P>, from: &[u8], end: Option<&[u8]>) -> Result<(u32, u32), Corruption> {
    let row = view.row;
    if row.live_ends().is_none() {
        return Ok((0, 0));
    }
    let Down { from: down_from, to: down_to, wrapped } = row.down;
    let last = if wrapped { down_from } else { row.elements };
    let from = view.first_at_or_after(from)?;
    // The columns go on where those that are down end.
    let from = if down_from < down_to || wrapped { from.max(down_to) } else { from };
    let to = end.map_or(Ok(last), |end| view.first_at_or_after(end))?.min(last);
    Ok((from, to.max(from)))
}

impl<P: Pmem> Container<P> {
    fn compactor_views(&self) -> impl Iterator<Item = View<'_, P>> {
        let rows = self.rows.iter().take(self.directory.compactor_rows as usize);
        rows.map(|row| View::silent(&self.medium, row, &self.directory.rotation))
    }

    /// Bytes and records of the compactor from where the rotation stands up to a key.
    fn size(&self, from: &[u8], end: Option<&[u8]>) -> Result<(u64, u64), Corruption> {
        let (mut bytes, mut records) = (0, 0);
        for view in self.compactor_views() {
            let (from, to) = elements(&view, from, end)?;
            if from < to {
                let before = view.row.data_before(&self.medium, from)?;
                bytes += view.row.data_before(&self.medium, to)?.saturating_sub(before);
                records += u64::from(to - from);
            }
        }
        Ok((bytes, records))
    }

    /// The next column of the rotation: from its cursor up to the first of `bounds` (ascending: the
    /// first and last keys of the tables below, or what else its ends should be) with which it has
    /// at least the lower limit, or less if nothing more is left before the end of the key space or
    /// the start of the rotation. Where that is more than the upper limit it ends within the range,
    /// at a whole key: then it may have less than the lower limit, but has at least one key.
    /// `None`: the compactor is empty. Changes nothing; O(rows · log elements · log bounds).
    ///
    /// # Errors
    /// [`Stop::Damaged`].
    pub fn column<K: AsRef<[u8]>>(&self, bounds: &[K], limits: ColumnLimits) -> Result<Option<Column>, Stop> {
        let rotation = &self.directory.rotation;
        if self.directory.compactor_rows == 0 || rotation.is_over() {
            return Ok(None);
        }
        let (from, limit) = rotation.rest();
        let is_inside = |bound: &&K| {
            let bound = bound.as_ref();
            bound > from && limit.is_none_or(|limit| bound < limit) && bound.len() <= self.key_bytes_max() + 1
        };
        let bounds: Vec<&[u8]> = bounds.iter().filter(is_inside).map(AsRef::as_ref).collect();
        let end = self.end_of(from, limit, &bounds, limits)?;
        let (bytes, records) = self.size(from, end.as_deref())?;
        let after = rotation.after(end.as_deref());
        Ok(Some(Column { from: from.to_vec(), end, bytes, records, after }))
    }

    fn end_of(
        &self,
        from: &[u8],
        limit: Option<&[u8]>,
        bounds: &[&[u8]],
        limits: ColumnLimits,
    ) -> Result<Option<Vec<u8>>, Corruption> {
        // The first bound with which there is enough.
        let (mut low, mut high) = (0, bounds.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.size(from, Some(bounds[middle]))?.0 < limits.low_bytes {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let end = bounds.get(low).copied().or(limit);
        if self.size(from, end)?.0 <= limits.high_bytes {
            return Ok(end.map(<[u8]>::to_vec));
        }
        let cut = self.cut(from, end, limits)?;
        Ok(cut.or(end.map(<[u8]>::to_vec)))
    }

    /// A key before `end` up to which there is not more than the upper limit, and at least one key.
    fn cut(&self, from: &[u8], end: Option<&[u8]>, limits: ColumnLimits) -> Result<Option<Vec<u8>>, Corruption> {
        let (mut parts, mut least) = (Vec::new(), None::<(usize, Vec<u8>)>);
        for view in self.compactor_views() {
            let (first, to) = elements(&view, from, end)?;
            if first < to {
                let head = view.row.head(&self.medium, first)?;
                if least.as_ref().is_none_or(|(_, least)| head.key() < &least[..]) {
                    least = Some((parts.len(), head.key().to_vec()));
                }
                parts.push((to - first, first, view));
            }
        }
        let Some((first_row, mut first_key)) = least else { return Ok(None) };
        // First the row that has the first key: where rows hold one key range each, in none of the
        // others is a place to cut at.
        parts.swap(0, first_row);
        parts[1..].sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
        let (mut best, mut best_bytes) = (None, 0);
        for (count, first, view) in parts.iter().take(CUT_ROWS_MAX) {
            // The last element of this row up to which it is not too much.
            let (mut low, mut high) = (*first, first + count);
            while low < high {
                let middle = low + (high - low) / 2;
                let key = view.row.head(&self.medium, middle)?;
                if self.size(from, Some(key.key()))?.0 <= limits.high_bytes {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            if low > *first {
                let head = view.row.head(&self.medium, low - 1)?;
                let bytes = self.size(from, Some(head.key()))?.0;
                if bytes > best_bytes {
                    (best, best_bytes) = (Some(head.key().to_vec()), bytes);
                }
            }
            if best_bytes >= limits.low_bytes {
                break;
            }
        }
        if best.is_some() {
            return Ok(best);
        }
        // Its first key alone is too much.
        first_key.push(0);
        Ok(Some(first_key))
    }

    /// A column is down: the manifest with this number has its tables, and is durable. Its units
    /// are free; after the last column the rows leave.
    ///
    /// # Errors
    /// The column is not the next one ([`Error::Unknown`]); damage; the memory failed.
    pub fn release(&mut self, column: &Column, manifest: u64) -> Result<(), Error> {
        self.writable()?;
        let (from, rotation) = (&column.from[..], &self.directory.rotation);
        if rotation.rest().0 != from
            || column.after.compactor != rotation.compactor
            || self.directory.compactor_rows == 0
        {
            return Err(Error::Unknown("a column was released that is not the next one of this compactor"));
        }
        self.advance(&column.after, manifest)
    }

    /// Follows the volume after opening: its manifest, with this number, says how far columns are
    /// down. What the directory lacks of that is released. Whether it lacked anything.
    ///
    /// # Errors
    /// The manifest knows of a compactor, or of a directory, that the region does not: the region
    /// is older than the volume. Damage; the memory failed.
    pub fn replay(&mut self, rotation: &Rotation, directory: u64, manifest: u64) -> Result<bool, Error> {
        self.writable()?;
        let known = &self.directory.rotation;
        if rotation.compactor > known.compactor
            || directory > self.directory.number
            || self.directory.manifest > manifest
        {
            return Err(Error::WrongVolume(format!(
                "region and volume do not belong together: manifest {manifest} knows compactor {} and directory {directory}, the region has \
                 compactor {}, directory {} and manifest {}: restore both from one backup",
                rotation.compactor, known.compactor, self.directory.number, self.directory.manifest
            )));
        }
        let is_behind = rotation.compactor == known.compactor && rotation.is_beyond(known);
        if self.directory.compactor_rows == 0 || !is_behind {
            return Ok(false);
        }
        self.advance(rotation, manifest)?;
        Ok(true)
    }

    /// The columns are down as far as `then` says.
    fn advance(&mut self, then: &Rotation, manifest: u64) -> Result<(), Error> {
        let mut directory = Directory { manifest, rotation: then.clone(), ..self.directory.clone() };
        let mut downs = Vec::new();
        for (view, entry) in self.compactor_views().zip(&mut directory.rows) {
            let down = view.row.down_at(&self.medium, &self.directory.rotation, then).map_err(damaged)?;
            (entry.down_from, entry.down_to, entry.wrapped) = (down.from, down.to, down.wrapped);
            downs.push(down);
        }
        // Rows that came first are down first.
        let is_empty = |(view, down): &(View<'_, P>, &Down)| view.row.is_all_down(**down);
        let empty = self.compactor_views().zip(&downs).take_while(is_empty).count();
        let leaving = if then.is_over() { downs.len() } else { empty };
        directory.rows.drain(..leaving);
        directory.compactor_rows -= leaving as u32;
        if directory.compactor_rows == 0 {
            let start = then.cursor.clone();
            directory.rotation = Rotation { start, wrapped: false, begun: false, ..then.clone() };
        }
        self.failed = true;
        self.store_released(directory)?;
        self.failed = false;
        let units: Vec<(u64, u32)> = self.rows.drain(..leaving).flat_map(super::Row::into_units).collect();
        units.into_iter().for_each(|(number, unit)| self.free_of_row(number, unit));
        self.free_what_is_down(&downs[leaving..])
    }

    fn free_what_is_down(&mut self, downs: &[Down]) -> Result<(), Error> {
        let mut free = Vec::new();
        for (row, down) in self.rows.iter_mut().zip(downs) {
            row.set_down(&self.medium, *down).map_err(damaged)?;
            let data_units = row.data_units().iter().enumerate();
            free.extend(data_units.filter(|(at, _)| row.is_unit_down(*at)).map(|(_, unit)| (row.number, *unit)));
        }
        free.into_iter().for_each(|(number, unit)| self.free_of_row(number, unit));
        Ok(())
    }

    /// The directory says what is down before its units are free.
    fn store_released(&mut self, directory: Directory) -> Result<(), Error> {
        fault_point!("matrix_units_freed_before_release", {
            self.directory = directory;
            return Ok(());
        });
        self.store_directory(directory)
    }

    /// A unit that a row had goes back, unless it did before and has another owner now.
    fn free_of_row(&mut self, number: u64, unit: u32) {
        if self.units.owner(unit) == Owner::Row(number) {
            self.units.give_back(unit);
        }
    }
}
