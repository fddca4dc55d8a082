//! Rows (RowTables): a memtable's records in order, and the metadata that finds them.

mod build;
mod cursor;
mod filter;
mod open;
mod search;

pub(super) use build::{Build, Source};
pub use cursor::RowCursor;
use filter::RowFilter;
pub(super) use search::{Tally, View};

use stratakv_base::Corruption;
use stratakv_pmem::Pmem;

use super::directory::{Rotation, RowEntry};
use super::medium::{Medium, UNIT_HEADER_BYTES};

/// Bytes of a row's header, behind that of its first unit.
const HEADER_BYTES: u64 = 48;
/// The bits of a place that are an offset; the highest one marks deletes.
const PLACE_MASK: u64 = (1 << 44) - 1;
const DELETE_BIT: u64 = 1 << 63;

/// Elements that are down: `[from, to)`, or `[from, end)` and `[0, to)` if columns have gone around
/// the end since the row came to the compactor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Down {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) wrapped: bool,
}

/// What DRAM keeps of a row.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) number: u64,
    pub(super) elements: u32,
    /// Elements that say their key is not there.
    pub(super) deletes: u32,
    /// Bytes of records that are there only for snapshots; not known of a row that was there when
    /// the region was opened.
    pub(super) kept_bytes: u64,
    /// Units, metadata first.
    pub(super) units: Vec<u32>,
    pub(super) metadata_units: u32,
    pub(super) prefix: Vec<u8>,
    pub(super) first_key: Vec<u8>,
    pub(super) last_key: Vec<u8>,
    pub(super) lowest: u64,
    pub(super) highest: u64,
    pub(super) header_crc: u32,
    /// The first element of each unit of data.
    pub(super) firsts: Vec<u32>,
    pub(super) down: Down,
    /// Rows that were there when the region was opened have no lines in it, and so have those of
    /// which it was dropped for want of memory.
    filter: RowFilter,
}

impl Row {
    /// Where bytes `at` of the metadata are: behind the header, going on after the headers of
    /// further units.
    pub(super) fn metadata_at<P: Pmem>(&self, medium: &Medium<P>, at: u64) -> u64 {
        let (at, capacity) = (at + HEADER_BYTES, medium.layout.capacity());
        // Most rows have all of it in their first unit.
        let (ordinal, at) = if at < capacity { (0, at) } else { (at / capacity, at % capacity) };
        let unit = self.units.get(ordinal as usize).copied().unwrap_or(u32::MAX);
        medium.layout.unit_start(unit) + UNIT_HEADER_BYTES + at
    }

    /// Bytes before the prefixes: the list of units, to a multiple of 8.
    fn list_bytes(&self) -> u64 {
        (self.units.len() as u64 * 4).next_multiple_of(8)
    }

    pub(super) fn metadata_bytes(&self) -> u64 {
        self.list_bytes() + 20 * u64::from(self.elements)
    }

    fn prefix_of<P: Pmem>(&self, medium: &Medium<P>, element: u32) -> Result<u64, Corruption> {
        let at = self.list_bytes() + 8 * u64::from(element);
        Ok(medium.load_u64(self.metadata_at(medium, at))?.swap_bytes())
    }

    fn word<P: Pmem>(&self, medium: &Medium<P>, element: u32) -> Result<u64, Corruption> {
        let at = self.list_bytes() + 8 * (u64::from(self.elements) + u64::from(element));
        medium.load_u64(self.metadata_at(medium, at))
    }

    pub(super) fn place<P: Pmem>(&self, medium: &Medium<P>, element: u32) -> Result<u64, Corruption> {
        Ok(self.word(medium, element)? & PLACE_MASK)
    }

    fn hint<P: Pmem>(&self, medium: &Medium<P>, element: u32) -> Result<u32, Corruption> {
        let at = self.list_bytes() + 16 * u64::from(self.elements) + 4 * u64::from(element);
        medium.load_u32(self.metadata_at(medium, at))
    }

    pub(super) fn data_units(&self) -> &[u32] {
        self.units.get(self.metadata_units as usize..).unwrap_or_default()
    }

    /// The elements of a unit of data.
    pub(super) fn elements_of(&self, data_unit: usize) -> std::ops::Range<u32> {
        let first = self.firsts.get(data_unit).copied().unwrap_or(self.elements);
        first..self.firsts.get(data_unit + 1).copied().unwrap_or(self.elements)
    }

    /// Whether a key with this hash ([`crate::table::key_hash`]) may be in it.
    pub(super) fn may_have(&self, hash: u64) -> bool {
        self.filter.allows(hash)
    }

    /// Without its filter every key may be in it. How many bytes that had.
    pub(super) fn drop_filter(&mut self) -> usize {
        std::mem::take(&mut self.filter).footprint_bytes()
    }

    pub(super) fn filter_bytes(&self) -> usize {
        self.filter.footprint_bytes()
    }

    pub(super) fn is_down(&self, element: u32) -> bool {
        let Down { from, to, wrapped } = self.down;
        if wrapped { element >= from || element < to } else { from <= element && element < to }
    }

    /// The first and the last element that are not down.
    pub(super) fn live_ends(&self) -> Option<(u32, u32)> {
        let Down { from, to, wrapped } = self.down;
        let end = self.elements;
        if wrapped {
            return (to < from.min(end)).then(|| (to, from.min(end) - 1));
        }
        let (from, to) = (from.min(end), to.min(end));
        let none = from >= to;
        let first = if from > 0 || none { 0 } else { to };
        let behind = if to < end || none { end } else { from };
        (first < behind).then(|| (first, behind - 1))
    }

    pub(super) fn live_elements(&self) -> u64 {
        let Down { from, to, wrapped } = self.down;
        let (from, to) = (from.min(self.elements), to.min(self.elements));
        u64::from(if wrapped { from.saturating_sub(to) } else { self.elements - to.saturating_sub(from) })
    }

    /// Of the elements that are not down, about how many say that their key is not there.
    pub(super) fn live_deletes(&self) -> u64 {
        u64::from(self.deletes) * self.live_elements() / u64::from(self.elements).max(1)
    }

    /// Of the elements that are not down, about how many bytes are there only for snapshots.
    pub(super) fn live_kept_bytes(&self) -> u64 {
        self.kept_bytes * self.live_elements() / u64::from(self.elements).max(1)
    }

    /// Whether all elements of a unit of data are down.
    pub(super) fn is_unit_down(&self, data_unit: usize) -> bool {
        let elements = self.elements_of(data_unit);
        let Down { from, to, wrapped } = self.down;
        let whole = from <= elements.start && elements.end <= to;
        if wrapped { elements.start >= from || elements.end <= to || from <= to } else { whole && from < to }
    }

    /// Whether nothing is left that is not down.
    pub(super) fn is_all_down(&self, down: Down) -> bool {
        Row { elements: self.elements, down, ..Row::default() }.live_ends().is_none()
    }

    /// Its units, each with its number.
    pub(super) fn into_units(self) -> impl Iterator<Item = (u64, u32)> {
        self.units.into_iter().map(move |unit| (self.number, unit))
    }

    /// DRAM it takes.
    pub(super) fn footprint_bytes(&self) -> u64 {
        let lists = 4 * (self.units.capacity() + self.firsts.capacity()) + self.filter.footprint_bytes();
        let keys = self.prefix.capacity() + self.first_key.capacity() + self.last_key.capacity();
        (size_of::<Row>() + lists + keys) as u64
    }

    /// Whether the metadata of an element says what its record does.
    pub(super) fn says<P: Pmem>(
        &self,
        medium: &Medium<P>,
        element: u32,
        head: &super::record::Head,
    ) -> Result<bool, Corruption> {
        let word = self.word(medium, element)?;
        let prefix = search::prefix_of(head.key(), self.prefix.len());
        let versions = self.lowest..=self.highest;
        let is_right = head.key().starts_with(&self.prefix) && versions.contains(&head.version());
        Ok(is_right && prefix == self.prefix_of(medium, element)? && head.is_delete() == (word & DELETE_BIT != 0))
    }

    /// Takes over how far columns are down, and the ends of what is not.
    pub(super) fn set_down<P: Pmem>(&mut self, medium: &Medium<P>, down: Down) -> Result<(), Corruption> {
        self.down = down;
        let key = |row: &Row, element| Ok::<_, Corruption>(row.head(medium, element)?.key().to_vec());
        if let Some((first, last)) = self.live_ends() {
            (self.first_key, self.last_key) = (key(self, first)?, key(self, last)?);
        }
        Ok(())
    }

    pub(super) fn head<P: Pmem>(&self, medium: &Medium<P>, element: u32) -> Result<super::record::Head, Corruption> {
        super::record::Head::load(medium, self.number, self.place(medium, element)?)
    }

    pub(super) fn entry(&self) -> RowEntry {
        RowEntry {
            number: self.number,
            first_unit: self.units.first().copied().unwrap_or(u32::MAX),
            header_crc: self.header_crc,
            down_from: self.down.from,
            down_to: self.down.to,
            wrapped: self.down.wrapped,
        }
    }

    /// How many bytes of data lie before an element.
    pub(super) fn data_before<P: Pmem>(&self, medium: &Medium<P>, element: u32) -> Result<u64, Corruption> {
        if element >= self.elements {
            let last = self.elements.saturating_sub(1);
            // Of what is down only the place is left.
            let bytes = if self.is_down(last) { 0 } else { self.head(medium, last)?.record_bytes() };
            return Ok(self.data_before(medium, last)? + bytes);
        }
        let unit = self.firsts.partition_point(|first| *first <= element).saturating_sub(1);
        let offset = self.place(medium, element)? % u64::from(medium.layout.unit_bytes);
        Ok(unit as u64 * medium.layout.capacity() + offset.saturating_sub(UNIT_HEADER_BYTES))
    }

    /// Where the columns stand in this row of the compactor once they are as far as `then`.
    pub(super) fn down_at<P: Pmem>(
        &self,
        medium: &Medium<P>,
        now: &Rotation,
        then: &Rotation,
    ) -> Result<Down, Corruption> {
        let Down { from, to, wrapped } = self.down;
        let crosses = then.wrapped && !now.wrapped;
        if self.live_ends().is_none() || (wrapped && crosses) {
            return Ok(Down { from: 0, to: self.elements, wrapped: wrapped || crosses });
        }
        let view = View::silent(medium, self, now);
        let joins = medium.layout.joins();
        let from = if joins || now.begun { from } else { view.first_at_or_after(&then.start)? };
        let is_end = then.wrapped && then.cursor.is_empty();
        let found = if is_end { 0 } else { view.first_at_or_after(&then.cursor)? };
        // What was down stays so: a cursor behind the last live key is found right behind that.
        let to = if (joins || now.begun) && !crosses { found.max(to) } else { found };
        Ok(Down { from, to, wrapped: wrapped || crosses })
    }

    /// Where a row stands that comes to the compactor: nothing of it is down.
    pub(super) fn joins_at<P: Pmem>(&self, medium: &Medium<P>, rotation: &Rotation) -> Result<Down, Corruption> {
        let at = View::silent(medium, self, rotation).first_at_or_after(&rotation.cursor)?;
        Ok(Down { from: at, to: at, wrapped: false })
    }

    pub(super) fn damage_of<P: Pmem>(&self, medium: &Medium<P>, found: String) -> Corruption {
        let at = self.units.first().map_or(0, |unit| medium.layout.unit_start(*unit));
        medium.damage(at, "row", "one that checks", found)
    }
}
