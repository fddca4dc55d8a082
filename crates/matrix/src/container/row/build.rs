//! Making a row of a memtable, in steps.

use std::ops::{Bound, ControlFlow};

use stratakv_base::checksum::crc32c;
use stratakv_base::fault_point;
use stratakv_engine::Error;
use stratakv_pmem::Pmem;

use super::super::directory::Rotation;
use super::super::medium::{Medium, ROW, UNIT_HEADER_BYTES, UnitHeader};
use super::super::memtable::Memtable;
use super::super::record::Head;
use super::super::units::{Owner, Units};
use super::filter::RowFilter;
use super::search::prefix_of;
use super::{DELETE_BIT, HEADER_BYTES, Row, View};
use crate::table::key_hash;

const LINE_BYTES: usize = stratakv_pmem::LINE_BYTES as usize;
/// Records are stored in pieces of about this length.
const PENDING_BYTES: usize = 4096;

/// A row that is not there yet. A crash leaves units that belong to nobody.
#[derive(Debug)]
pub(in super::super) struct Build {
    row: Row,
    data_units: Vec<u32>,
    /// Where the next record goes, and the end of its unit.
    at: u64,
    end: u64,
    /// What is laid out and not stored, and where it goes: whole lines go past the cache.
    pending: Vec<u8>,
    pending_at: u64,
    /// The last key that is done.
    done: Option<Vec<u8>>,
    prefixes: Vec<u8>,
    places: Vec<u8>,
    hints: Vec<u8>,
    /// Where the last key is in the next older row.
    hint: u32,
    /// The metadata, once all data is there, and how much of it is stored.
    metadata: Option<Vec<u8>>,
    stored: usize,
}

/// What a row is made from.
pub(in super::super) struct Source<'a, P> {
    pub(in super::super) medium: &'a Medium<P>,
    pub(in super::super) memtable: &'a Memtable,
    /// The newest row.
    pub(in super::super) older: Option<&'a Row>,
    pub(in super::super) rotation: &'a Rotation,
}

impl Build {
    /// Of a memtable that is not empty.
    pub(in super::super) fn new(memtable: &Memtable) -> Build {
        let (first_key, last_key) = memtable.ends().unwrap_or_default();
        let common = first_key.iter().zip(&last_key).take_while(|(a, b)| a == b).count();
        let prefix = first_key.get(..common).unwrap_or_default().to_vec();
        let filter = RowFilter::new(memtable.tree.len());
        // Narrowed as records come.
        let (number, lowest, highest) = (memtable.number, memtable.highest, memtable.lowest);
        Build {
            row: Row { number, prefix, first_key, last_key, lowest, highest, filter, ..Row::default() },
            data_units: Vec::new(),
            at: 0,
            end: 0,
            pending: Vec::new(),
            pending_at: 0,
            done: None,
            prefixes: Vec::new(),
            places: Vec::new(),
            hints: Vec::new(),
            hint: 0,
            metadata: None,
            stored: 0,
        }
    }

    /// Goes on for about so many bytes; whether all is stored. Durable after a fence.
    pub(in super::super) fn step<P: Pmem>(
        &mut self,
        source: &Source<'_, P>,
        units: &mut Units,
        budget_bytes: u64,
    ) -> Result<bool, Error> {
        if self.metadata.is_none() && !self.copy(source, units, budget_bytes)? {
            return Ok(false);
        }
        if self.metadata.is_none() {
            self.store_pending(source.medium, true)?;
            self.lay_metadata(source.medium, units)?;
        }
        self.store_metadata(source.medium, budget_bytes)
    }

    /// Units it has so far.
    pub(in super::super) fn units(&self) -> impl Iterator<Item = u32> {
        self.row.units.iter().chain(&self.data_units).copied()
    }

    pub(in super::super) fn into_row(self) -> Row {
        self.row
    }

    /// Copies records in order; whether these were the last ones.
    fn copy<P: Pmem>(&mut self, source: &Source<'_, P>, units: &mut Units, budget_bytes: u64) -> Result<bool, Error> {
        let done = self.done.take();
        let from = done.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let (mut left, mut last, mut failed) = (budget_bytes.max(1), None, None);
        source.memtable.tree.scan(from, Bound::Unbounded, false, &mut |key, entry| {
            if left == 0 {
                last = Some(key.to_vec());
                return ControlFlow::Break(());
            }
            match self.take_key(source, units, key, entry.place) {
                Ok(bytes) => left = left.saturating_sub(bytes),
                Err(error) => failed = Some(error),
            }
            if left == 0 {
                self.done = Some(key.to_vec());
            }
            if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        failed.map_or(Ok(last.is_none()), Err)
    }

    fn take_key<P: Pmem>(
        &mut self,
        source: &Source<'_, P>,
        units: &mut Units,
        key: &[u8],
        newest: u64,
    ) -> Result<u64, Error> {
        if let Some(older) = source.older {
            // A hint says where to look, never what is there: what cannot be read has a bad one.
            let view = View::silent(source.medium, older, source.rotation);
            self.hint = view.gallop(key, self.hint).unwrap_or(self.hint);
        }
        self.row.filter.insert(key_hash(key));
        let mut bytes = 0;
        // The newest one first.
        for (at, head) in source.memtable.needed(source.medium, units, newest)?.iter().enumerate() {
            let record_bytes = self.take_record(source.medium, units, head)?;
            self.row.kept_bytes += if at > 0 { record_bytes } else { 0 };
            bytes += record_bytes + 20;
        }
        Ok(bytes)
    }

    fn take_record<P: Pmem>(&mut self, medium: &Medium<P>, units: &mut Units, head: &Head) -> Result<u64, Error> {
        let bytes = head.record_bytes();
        if self.at + bytes > self.end {
            self.begin_unit(medium, units)?;
        }
        head.moved(medium, self.row.number, self.at, &mut self.pending)?;
        if self.pending.len() >= PENDING_BYTES {
            self.store_pending(medium, false)?;
        }
        let delete = if head.is_delete() { DELETE_BIT } else { 0 };
        self.prefixes.extend(prefix_of(head.key(), self.row.prefix.len()).to_be_bytes());
        self.places.extend((self.at | delete).to_le_bytes());
        self.hints.extend(self.hint.to_le_bytes());
        self.row.lowest = self.row.lowest.min(head.version());
        self.row.highest = self.row.highest.max(head.version());
        self.row.elements += 1;
        self.row.deletes += u32::from(head.is_delete());
        self.at += bytes;
        Ok(bytes)
    }

    /// Stores what is laid out, but for the line that goes on if it does.
    fn store_pending<P: Pmem>(&mut self, medium: &Medium<P>, is_end: bool) -> Result<(), Error> {
        let lines = if is_end { self.pending.len() } else { self.pending.len() / LINE_BYTES * LINE_BYTES };
        medium.store_past_cache(self.pending_at, &self.pending[..lines])?;
        self.pending.drain(..lines);
        self.pending_at += lines as u64;
        Ok(())
    }

    fn begin_unit<P: Pmem>(&mut self, medium: &Medium<P>, units: &mut Units) -> Result<(), Error> {
        self.store_pending(medium, true)?;
        let unit = units.take(Owner::Row(self.row.number))?;
        self.at = medium.layout.unit_start(unit) + UNIT_HEADER_BYTES;
        self.end = medium.layout.unit_end(unit);
        self.pending_at = self.at;
        self.data_units.push(unit);
        self.row.firsts.push(self.row.elements);
        Ok(())
    }

    /// Takes the units of the metadata, and lays it out in memory.
    fn lay_metadata<P: Pmem>(&mut self, medium: &Medium<P>, units: &mut Units) -> Result<(), Error> {
        let fixed = HEADER_BYTES + 20 * u64::from(self.row.elements);
        let mut count = 1;
        let list = |count: u64| (4 * (count + self.data_units.len() as u64)).next_multiple_of(8);
        while fixed + list(count) > count * medium.layout.capacity() {
            count += 1;
        }
        for _ in 0..count {
            self.row.units.push(units.take(Owner::Row(self.row.number))?);
        }
        self.row.metadata_units = count as u32;
        self.row.units.append(&mut self.data_units);
        let mut metadata: Vec<u8> = self.row.units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        metadata.resize(metadata.len().next_multiple_of(8), 0);
        for mut part in [&mut self.prefixes, &mut self.places, &mut self.hints].map(std::mem::take) {
            metadata.append(&mut part);
        }
        self.store_unit_headers(medium)?;
        let header = self.header(medium, &metadata);
        self.row.header_crc = super::super::medium::u32_at(&header, 44);
        medium.store_past_cache(medium.layout.unit_start(self.row.units[0]) + UNIT_HEADER_BYTES, &header)?;
        self.metadata = Some(metadata);
        Ok(())
    }

    fn store_unit_headers<P: Pmem>(&self, medium: &Medium<P>) -> Result<(), Error> {
        for (ordinal, unit) in (0..).zip(&self.row.units) {
            let header = UnitHeader { kind: ROW, ordinal, number: self.row.number };
            medium.store_past_cache(medium.layout.unit_start(*unit), &header.encode(&medium.layout, *unit))?;
        }
        Ok(())
    }

    fn header<P: Pmem>(&self, medium: &Medium<P>, metadata: &[u8]) -> [u8; HEADER_BYTES as usize] {
        let row = &self.row;
        let seed = medium.layout.seed(row.number, 0);
        let mut header = [0; HEADER_BYTES as usize];
        let mut writer = stratakv_base::codec::Writer::new(&mut header);
        writer.u64(row.number).u32(row.elements).u32(row.units.len() as u32);
        writer.u32(row.units.len() as u32 - row.metadata_units).u32(row.prefix.len() as u32);
        writer.u64(row.lowest).u64(row.highest).u32(crc32c(seed, metadata));
        let crc = crc32c(seed, &header[..44]);
        header[44..].copy_from_slice(&crc.to_le_bytes());
        header
    }

    fn store_metadata<P: Pmem>(&mut self, medium: &Medium<P>, budget_bytes: u64) -> Result<bool, Error> {
        let Some(metadata) = &self.metadata else { return Ok(false) };
        let mut left = budget_bytes.max(1) as usize;
        while self.stored < metadata.len() && left > 0 {
            let at = self.row.metadata_at(medium, self.stored as u64);
            let unit = medium.layout.unit_of(at);
            let room = (medium.layout.unit_end(unit) - at) as usize;
            let bytes = &metadata[self.stored..metadata.len().min(self.stored + room.min(left.next_multiple_of(64)))];
            store_metadata_at(medium, at, bytes)?;
            self.stored += bytes.len();
            left = left.saturating_sub(bytes.len());
        }
        Ok(self.stored == metadata.len())
    }
}

fn store_metadata_at<P: Pmem>(medium: &Medium<P>, at: u64, bytes: &[u8]) -> Result<(), Error> {
    fault_point!("matrix_metadata_not_stored", return Ok(()));
    Ok(medium.store_past_cache(at, bytes)?)
}

impl Row {
    /// Units that a row of so many records can take at most.
    pub(in super::super) fn units_max(
        layout: &super::super::medium::Layout,
        bytes: u64,
        records: u64,
        longest: u64,
    ) -> u64 {
        if records == 0 {
            return 0;
        }
        let capacity = layout.capacity();
        // A unit is left when the next record does not fit; two units in a row hold more than one
        // unit can.
        let by_waste = bytes / (capacity + 8 - longest.min(capacity)) + 1;
        let data = by_waste.min(2 * bytes / capacity + 1);
        data + (HEADER_BYTES + 8 + 4 * data + 20 * records).div_ceil(capacity - 4)
    }
}
