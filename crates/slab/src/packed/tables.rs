//! Opening segments: their new generations are written to the table before anything is written to
//! them.
//!
//! Each zone's table has two copies. They are written through, one after the other, first the one
//! not known to be good; as soon as one is written, what it says holds.

use std::collections::BTreeSet;
use std::sync::Arc;

use stratakv_base::fault_point;
use stratakv_device::{BlockPart, Class, IoFault};
use stratakv_engine::Effects;

use super::segments::State;
use super::table::{SegmentKind, SegmentTable, TableEntry, ZONE_SEGMENTS};
use super::{Log, Packed};
use crate::requests::IoPurpose;
use crate::shard::wake_soon;
use crate::space::{Extent, offset};

/// Segments prepared ahead.
const READY: usize = 3;

/// Where the first of a zone's two copies lies.
pub(crate) fn table_page(zone: u32, segment_pages: u32) -> u32 {
    zone * ZONE_SEGMENTS * segment_pages + crate::space::FIRST_PAGE
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableWriteState {
    Idle,
    /// The first copy of this writing, then the second.
    First,
    Second,
}

/// One zone's table.
#[derive(Debug)]
pub(crate) struct TableZone {
    /// As it should be.
    wanted: SegmentTable,
    /// As the medium has it.
    pub(crate) durable: SegmentTable,
    /// As it is being written.
    writing: Option<SegmentTable>,
    /// Which copy is good.
    good: u32,
    step: TableWriteState,
    dirty: bool,
}

impl TableZone {
    /// As found: copy `good` holds, the other may not.
    fn found(table: SegmentTable, good: u32, both: bool) -> TableZone {
        TableZone {
            wanted: table.clone(),
            durable: table,
            writing: None,
            good,
            step: TableWriteState::Idle,
            dirty: !both,
        }
    }
}

/// The tables of a volume.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) zones: Vec<TableZone>,
    /// Zones of which the table has changed, or may have, and is not being written.
    changed: BTreeSet<u32>,
}

impl Tables {
    /// Whether nothing is being written, or will be.
    pub(crate) fn is_idle(&self) -> bool {
        self.zones.iter().all(|zone| zone.step == TableWriteState::Idle && !zone.dirty)
    }

    /// The next zone, as found: copy `good` holds, the other may not.
    pub(crate) fn add(&mut self, table: SegmentTable, good: u32, both: bool) {
        self.changed.insert(self.zones.len() as u32);
        self.zones.push(TableZone::found(table, good, both));
    }

    /// A table for each zone that has begun.
    pub(crate) fn extend(&mut self, total_pages: u32, segment_pages: u32) {
        while table_page(self.zones.len() as u32, segment_pages) + 1 < total_pages {
            self.add(SegmentTable::blank(), 0, true);
        }
    }

    /// Nothing is written any more.
    pub(crate) fn abandon(&mut self) {
        for zone in &mut self.zones {
            (zone.step, zone.dirty) = (TableWriteState::Idle, false);
        }
    }

    fn entry_of(number: u32) -> (usize, usize) {
        ((number / ZONE_SEGMENTS) as usize, (number % ZONE_SEGMENTS) as usize)
    }

    /// What the medium says of a segment.
    pub(crate) fn durable(&self, number: u32) -> TableEntry {
        let (zone, entry) = Self::entry_of(number);
        self.zones.get(zone).and_then(|zone| zone.durable.entries.get(entry)).copied().unwrap_or_default()
    }

    fn wanted(&self, number: u32) -> TableEntry {
        let (zone, entry) = Self::entry_of(number);
        self.zones.get(zone).and_then(|zone| zone.wanted.entries.get(entry)).copied().unwrap_or_default()
    }

    pub(crate) fn set(&mut self, number: u32, to: TableEntry) {
        let (zone, entry) = Self::entry_of(number);
        if let Some(zone) = self.zones.get_mut(zone)
            && let Some(entry) = zone.wanted.entries.get_mut(entry)
        {
            *entry = to;
            zone.dirty = true;
            self.changed.insert(number / ZONE_SEGMENTS);
        }
    }
}

impl Packed {
    /// New space: its segments, and the tables of zones that begin there.
    pub(crate) fn log_extended(&mut self) {
        let total = self.space.total();
        self.placement.segments.extend(total);
        let known = self.placement.tables.zones.len() as u32;
        self.placement.tables.extend(total, self.placement.segments.pages);
        for zone in known..self.placement.tables.zones.len() as u32 {
            let first = table_page(zone, self.placement.segments.pages);
            self.space.occupy(Extent { first, pages: 2 }, true);
        }
    }

    /// Opens segments ahead of need, and writes tables that changed.
    pub(crate) fn pump_tables(&mut self, effects: &mut Effects) {
        while self.placement.segments.ready.len() + (self.placement.segments.preparing as usize) < READY {
            let Some(number) = self.space.take_segment() else { break };
            self.groups.counter += 1;
            let generation = self.groups.counter;
            self.placement.segments.set_state(number, State::Preparing);
            self.placement.segments.reset(number, generation);
            self.placement.tables.set(number, TableEntry { kind: SegmentKind::Log, generation });
            fault_point!("segment_opened_before_its_table_is_written", {
                self.placement.segments.set_state(number, State::Ready);
                self.placement.segments.ready.push_back(number);
            });
        }
        for zone in std::mem::take(&mut self.placement.tables.changed) {
            self.write_table(zone, effects);
        }
    }

    /// The first of the copies of a table that changed.
    fn write_table(&mut self, zone: u32, effects: &mut Effects) {
        let durable = self.groups.durable_sequence();
        let begins = |table: &TableZone| table.step == TableWriteState::Idle && table.dirty;
        let Some(table) = self.placement.tables.zones.get_mut(zone as usize).filter(|table| begins(table)) else {
            return;
        };
        table.wanted.counter += 1;
        table.wanted.durable = durable;
        table.writing = Some(table.wanted.clone());
        (table.dirty, table.step) = (false, TableWriteState::First);
        let copy = 1 - table.good;
        self.write_table_copy(zone, copy, effects);
    }

    fn write_table_copy(&mut self, zone: u32, copy: u32, effects: &mut Effects) {
        let Some(mut block) = self.take_block(Class::Page, effects) else {
            // Nothing was written: again when there is a block.
            if let Some(table) = self.table_zone(zone) {
                (table.dirty, table.step) = (true, TableWriteState::Idle);
            }
            self.note_table(zone);
            return wake_soon(effects);
        };
        let uuid = self.config.uuid;
        let place = table_page(zone, self.placement.segments.pages) + copy;
        if let Some(table) = self.placement.tables.zones.get(zone as usize).and_then(|table| table.writing.as_ref()) {
            table.encode(&uuid, place, &mut block);
        }
        self.io.counters.write_bytes += block.len() as u64;
        self.io.counters.page_writes += 1;
        let io = self.io.start(IoPurpose::Placement(super::LogIoPurpose::Table { zone }));
        effects.write(io, offset(place), vec![BlockPart::whole(Arc::new(block))], true);
    }

    fn table_zone(&mut self, zone: u32) -> Option<&mut TableZone> {
        self.placement.tables.zones.get_mut(zone as usize)
    }

    /// A copy of a table is written.
    pub(crate) fn table_written(&mut self, zone: u32, result: Result<(), IoFault>, effects: &mut Effects) {
        let Some(table) = self.table_zone(zone) else { return };
        if let Err(fault) = result {
            (table.step, table.dirty) = (TableWriteState::Idle, false);
            return self.poison(fault, "a segment table could not be written", effects);
        }
        if table.step != TableWriteState::First {
            (table.step, table.writing) = (TableWriteState::Idle, None);
            // It may have changed meanwhile.
            return self.note_table(zone);
        }
        table.good = 1 - table.good;
        table.step = TableWriteState::Second;
        let copy = 1 - table.good;
        let Some(now) = table.writing.clone() else { return };
        let before = std::mem::replace(&mut table.durable, now.clone());
        let changes = before.entries.iter().zip(&now.entries).enumerate().filter(|(_, (before, now))| before != now);
        let log = |entry: &TableEntry| (entry.kind == SegmentKind::Log).then_some(entry.generation);
        for (entry, (before, now)) in changes {
            let number = zone * ZONE_SEGMENTS + entry as u32;
            self.placement.segments.set_on_medium(number, log(before), log(now));
            let segment = self.placement.segments.get(number);
            if segment.state == State::Preparing && segment.generation == now.generation {
                self.placement.segments.set_state(number, State::Ready);
                self.placement.segments.ready.push_back(number);
            }
        }
        self.allow_blob_writes();
        self.write_table_copy(zone, copy, effects);
    }

    /// A table is to be looked at in the next tick.
    fn note_table(&mut self, zone: u32) {
        self.placement.tables.changed.insert(zone);
    }

    /// Blobs will lie here: the table must not call these segments logs.
    pub(crate) fn claim_for_blobs(&mut self, extent: Extent) {
        for number in extent.first / self.placement.segments.pages
            ..=(extent.first + extent.pages - 1) / self.placement.segments.pages
        {
            if self.placement.tables.wanted(number).kind != SegmentKind::Blobs {
                self.groups.counter += 1;
                self.placement
                    .tables
                    .set(number, TableEntry { kind: SegmentKind::Blobs, generation: self.groups.counter });
            }
        }
    }
}

impl Log {
    /// Whether the table allows blobs to be written here.
    pub(super) fn allows_blobs_at(&self, extent: Extent) -> bool {
        fault_point!("run_written_where_the_table_has_a_log", return true);
        let mut numbers = extent.first / self.segments.pages..=(extent.first + extent.pages - 1) / self.segments.pages;
        numbers.all(|number| self.tables.durable(number).kind == SegmentKind::Blobs)
    }
}
