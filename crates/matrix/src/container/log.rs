//! Appending to the log of the active memtable.

use stratakv_base::fault_point;
use stratakv_base::key::KeyError;
use stratakv_engine::Error;
use stratakv_pmem::{Pmem, PmemError};

use super::medium::{LOG, UNIT_HEADER_BYTES, UnitHeader};
use super::memtable::Taken;
use super::record::{self, Change, Stamp, What};
use super::row::Row;
use super::units::Owner;
use super::{Container, Memtable};

/// Values up to this length are stored together with what precedes them.
const TOGETHER_BYTES: usize = 1024;

/// Where the log of the active memtable ends, and what of it is not flushed.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Units of the log so far.
    units: u32,
    at: u64,
    end: u64,
    /// Stored and not flushed: from, to.
    dirty: Vec<(u64, u64)>,
    head: Vec<u8>,
}

impl Log {
    pub(super) fn is_blank(&self) -> bool {
        self.units == 0
    }

    /// What comes next belongs to another log; what is not flushed stays to be.
    pub(super) fn end(&mut self) {
        (self.units, self.at, self.end) = (0, 0, 0);
    }

    pub(super) fn flush<P: Pmem>(&mut self, pmem: &P) -> Result<(), PmemError> {
        for (from, to) in self.dirty.drain(..) {
            fault_point!("matrix_commit_not_flushed", continue);
            pmem.flush(from, to - from)?;
        }
        Ok(())
    }

    fn soil(&mut self, from: u64, to: u64) {
        match self.dirty.last_mut() {
            Some((_, end)) if *end == from => *end = to,
            _ => self.dirty.push((from, to)),
        }
    }
}

impl<P: Pmem> Container<P> {
    /// Whether changes can be appended, and rows made of all memtables after it: else nothing would
    /// ever become free.
    pub(super) fn admit(&self, changes: &[Change<'_>]) -> Result<(), Error> {
        let capacity = self.medium.layout.capacity();
        if changes.is_empty() {
            return Err(Error::BadBatch("it has no changes"));
        }
        let (mut at, mut units) = (self.log.end - self.log.at, 0);
        let (mut bytes, mut longest) = (self.active.bytes, self.active.longest);
        for change in changes {
            match change.key.len() {
                0 => return Err(Error::Key(KeyError::Empty)),
                len if len > self.key_bytes_max() => return Err(Error::Key(KeyError::TooLong(len))),
                _ => {}
            }
            let len_bytes = change.record_bytes();
            if len_bytes > capacity {
                return Err(Error::ValueTooLarge { len_bytes, max_bytes: capacity });
            }
            if at < len_bytes {
                (at, units) = (capacity, units + 1);
            }
            at -= len_bytes;
            bytes += len_bytes;
            longest = longest.max(len_bytes);
        }
        let records = self.active.records + changes.len() as u64;
        let most = self.row_units_max((bytes, records, longest), self.active.units.len() as u64 + units);
        let begun = self.build.as_ref().map_or(0, |build| build.units().count() as u64);
        let free = self.units.free_count() + begun;
        if free < units + most { Err(Error::Full("the container: flush a row, or release a column")) } else { Ok(()) }
    }

    /// Why a batch finds no room in this container even when that is empty.
    pub fn batch_error(&self, changes: &[Change<'_>]) -> Option<Error> {
        let layout = &self.medium.layout;
        let (mut at, mut units, mut len_bytes, mut longest) = (0, 0, 0, 0u64);
        for record_bytes in changes.iter().map(Change::record_bytes) {
            if at < record_bytes {
                (at, units) = (layout.capacity(), units + 1);
            }
            at = at.saturating_sub(record_bytes);
            len_bytes += record_bytes;
            longest = longest.max(record_bytes);
        }
        let row_units = Row::units_max(layout, len_bytes, changes.len() as u64, longest);
        let all = u64::from(self.units.count());
        // Log and row are there at once; a third of the units is for what does not fit together.
        let max_bytes = (all / 3 * layout.capacity()).min(len_bytes.saturating_sub(1));
        (units + row_units > all).then_some(Error::BatchTooLarge { len_bytes, max_bytes })
    }

    /// Units that rows of all memtables can take before the logs they replace are free, whether
    /// they are made one after the other, or, since opening makes one memtable of all, at once. The
    /// active memtable's bytes, records, longest record and units of log are given.
    fn row_units_max(&self, active: (u64, u64, u64), active_units: u64) -> u64 {
        let layout = &self.medium.layout;
        let sealed = self.immutables.iter().map(|memtable| {
            let Memtable { bytes, records, longest, units, .. } = memtable;
            ((*bytes, *records, *longest), units.len() as u64)
        });
        let (mut taken, mut most, mut all) = (0u64, 0, (0, 0, 0));
        for ((bytes, records, longest), log_units) in sealed.chain([(active, active_units)]) {
            let row_units = Row::units_max(layout, bytes, records, longest);
            most = most.max(taken + row_units);
            taken = (taken + row_units).saturating_sub(log_units);
            all = (all.0 + bytes, all.1 + records, all.2.max(longest));
        }
        // Rows made before a crash round up more often than one of all.
        let rounding = self.immutables.len() as u64 * 2;
        most.max(Row::units_max(layout, all.0, all.1, all.2) + rounding)
    }

    /// Writes one change, and shows it. There is room.
    pub(super) fn write(&mut self, change: &Change<'_>, ends_batch: bool, retain: &[u64]) -> Result<(), Error> {
        let bytes = change.record_bytes();
        if self.log.at + bytes > self.log.end {
            self.begin_unit()?;
        }
        let (place, version) = (self.log.at, self.version + 1);
        let not_durable = u32::try_from(self.version - self.durable).unwrap_or(u32::MAX);
        let stamp = Stamp { number: self.active.number, place, version, ends_batch, not_durable };
        record::encode(&self.medium.layout, change, stamp, &mut self.log.head);
        let value = if let What::Put(value) | What::Range(value) = change.what { value } else { &[] };
        self.store(place, value)?;
        self.log.at += bytes;
        self.log.soil(place, place + bytes);
        self.version = version;
        let taken = Taken { place, bytes, version, is_delete: change.what == What::Delete };
        if let What::Range(to) = change.what {
            self.active.insert_range(change.key, to, taken);
            return Ok(());
        }
        self.active.insert(&self.medium, change.key, taken, retain).map_err(super::damaged)
    }

    /// Stores the head and its value in whole words: a store that ends within one costs an
    /// exchange.
    fn store(&mut self, place: u64, value: &[u8]) -> Result<(), PmemError> {
        let head = &mut self.log.head;
        let to_a_word = head.len().next_multiple_of(8) - head.len();
        let first = if value.len() <= TOGETHER_BYTES { value.len() } else { to_a_word };
        let (first, rest) = value.split_at(first.min(value.len()));
        head.extend_from_slice(first);
        head.resize(head.len().next_multiple_of(8), 0);
        let pmem = &self.medium.pmem;
        pmem.store(place, head)?;
        if rest.is_empty() {
            return Ok(());
        }
        let at = place + head.len() as u64;
        let (whole, edge) = rest.split_at(rest.len() / 8 * 8);
        pmem.store(at, whole)?;
        let mut last = [0; 8];
        last[..edge.len()].copy_from_slice(edge);
        if edge.is_empty() { Ok(()) } else { pmem.store(at + whole.len() as u64, &last) }
    }

    fn begin_unit(&mut self) -> Result<(), Error> {
        let number = self.active.number;
        let unit = self.units.take(Owner::Log(number))?;
        let (layout, start) = (&self.medium.layout, self.medium.layout.unit_start(unit));
        let header = UnitHeader { kind: LOG, ordinal: self.log.units, number };
        self.medium.pmem.store(start, &header.encode(layout, unit))?;
        self.log.units += 1;
        (self.log.at, self.log.end) = (start + UNIT_HEADER_BYTES, layout.unit_end(unit));
        self.log.soil(start, self.log.at);
        self.active.units.push(unit);
        Ok(())
    }
}
