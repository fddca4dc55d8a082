//! Opening segments: their new generations are written to the table before anything is written to
//! them.
//!
//! Each group's table has two copies. They are written through, one after the other, first the one
//! not known to be good; as soon as one is written, what it says holds.

use std::collections::BTreeSet;
use std::sync::Arc;

use stratakv_base::fault_point;
use stratakv_device::{BlockPart, Class, IoFault};
use stratakv_engine::Effects;

use super::segments::State;
use super::table::{GROUP_SEGMENTS, SegmentKind, SegmentTable, TableEntry};
use crate::slab::{self, Slab};
use crate::space::Extent;

/// Segments prepared ahead.
const READY: usize = 3;

/// Where the first of a group's two copies lies.
pub(crate) fn table_page(group: u32, segment_pages: u32) -> u32 {
    group * GROUP_SEGMENTS * segment_pages + crate::space::FIRST_PAGE
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableWriteState {
    Idle,
    /// The first copy of this writing, then the second.
    First,
    Second,
}

/// One group's table.
#[derive(Debug)]
pub(crate) struct TableGroup {
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

impl TableGroup {
    /// As found: copy `good` holds, the other may not.
    fn found(table: SegmentTable, good: u32, both: bool) -> TableGroup {
        TableGroup {
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
    pub(crate) groups: Vec<TableGroup>,
    /// Groups of which the table has changed, or may have, and is not being written.
    changed: BTreeSet<u32>,
}

impl Tables {
    /// Whether nothing is being written, or will be.
    pub(crate) fn is_idle(&self) -> bool {
        self.groups.iter().all(|group| group.step == TableWriteState::Idle && !group.dirty)
    }

    /// The next group, as found: copy `good` holds, the other may not.
    pub(crate) fn add(&mut self, table: SegmentTable, good: u32, both: bool) {
        self.changed.insert(self.groups.len() as u32);
        self.groups.push(TableGroup::found(table, good, both));
    }

    /// A table for each group that has begun.
    pub(crate) fn extend(&mut self, total_pages: u32, segment_pages: u32) {
        while table_page(self.groups.len() as u32, segment_pages) + 1 < total_pages {
            self.add(SegmentTable::blank(), 0, true);
        }
    }

    /// Nothing is written any more.
    pub(crate) fn abandon(&mut self) {
        for group in &mut self.groups {
            (group.step, group.dirty) = (TableWriteState::Idle, false);
        }
    }

    fn entry_of(number: u32) -> (usize, usize) {
        ((number / GROUP_SEGMENTS) as usize, (number % GROUP_SEGMENTS) as usize)
    }

    /// What the medium says of a segment.
    pub(crate) fn durable(&self, number: u32) -> TableEntry {
        let (group, entry) = Self::entry_of(number);
        self.groups.get(group).and_then(|group| group.durable.entries.get(entry)).copied().unwrap_or_default()
    }

    fn wanted(&self, number: u32) -> TableEntry {
        let (group, entry) = Self::entry_of(number);
        self.groups.get(group).and_then(|group| group.wanted.entries.get(entry)).copied().unwrap_or_default()
    }

    pub(crate) fn set(&mut self, number: u32, to: TableEntry) {
        let (group, entry) = Self::entry_of(number);
        if let Some(group) = self.groups.get_mut(group)
            && let Some(entry) = group.wanted.entries.get_mut(entry)
        {
            *entry = to;
            group.dirty = true;
            self.changed.insert(number / GROUP_SEGMENTS);
        }
    }
}

impl Slab {
    /// New space: its segments, and the tables of groups that begin there.
    pub(crate) fn packed_extended(&mut self) {
        let Some(packed) = &mut self.packed else { return };
        let total = self.space.total();
        packed.segments.extend(total);
        let known = packed.tables.groups.len() as u32;
        packed.tables.extend(total, packed.segments.pages);
        for group in known..packed.tables.groups.len() as u32 {
            let first = table_page(group, packed.segments.pages);
            self.space.occupy(Extent { first, pages: 2 }, true);
        }
    }

    /// Opens segments ahead of need, and writes tables that changed.
    pub(crate) fn pump_tables(&mut self, effects: &mut Effects) {
        let Some(packed) = &mut self.packed else { return };
        while packed.segments.ready.len() + (packed.segments.preparing as usize) < READY {
            let Some(number) = self.space.take_segment() else { break };
            self.counter += 1;
            let generation = self.counter;
            packed.segments.set_state(number, State::Preparing);
            packed.segments.reset(number, generation);
            packed.tables.set(number, TableEntry { kind: SegmentKind::Log, generation });
            fault_point!("segment_opened_before_its_table_is_written", {
                packed.segments.set_state(number, State::Ready);
                packed.segments.ready.push_back(number);
            });
        }
        let Some(packed) = &mut self.packed else { return };
        for group in std::mem::take(&mut packed.tables.changed) {
            self.write_table(group, effects);
        }
    }

    /// The first of the copies of a table that changed.
    fn write_table(&mut self, group: u32, effects: &mut Effects) {
        let durable = self.groups.durable_sequence();
        let begins = |table: &TableGroup| table.step == TableWriteState::Idle && table.dirty;
        let Some(packed) = &mut self.packed else { return };
        let Some(table) = packed.tables.groups.get_mut(group as usize).filter(|table| begins(table)) else { return };
        table.wanted.counter += 1;
        table.wanted.durable = durable;
        table.writing = Some(table.wanted.clone());
        (table.dirty, table.step) = (false, TableWriteState::First);
        let copy = 1 - table.good;
        self.write_table_copy(group, copy, effects);
    }

    fn write_table_copy(&mut self, group: u32, copy: u32, effects: &mut Effects) {
        let Some(mut block) = self.take_block(Class::Page, effects) else {
            // Nothing was written: again when there is a block.
            if let Some(table) = self.table_group(group) {
                (table.dirty, table.step) = (true, TableWriteState::Idle);
            }
            self.note_table(group);
            return effects.wake_at(stratakv_base::Mono(effects.now().mono.0 + 1_000_000));
        };
        let uuid = self.config.uuid;
        let Some(packed) = &self.packed else { return };
        let place = table_page(group, packed.segments.pages) + copy;
        if let Some(table) = packed.tables.groups.get(group as usize).and_then(|table| table.writing.as_ref()) {
            table.encode(&uuid, place, &mut block);
        }
        self.counters.write_bytes += block.len() as u64;
        self.counters.page_writes += 1;
        let io = self.io.start(slab::IoPurpose::Packed(super::PackedIoPurpose::Table { group }));
        effects.write(io, Self::offset(place), vec![BlockPart::whole(Arc::new(block))], true);
    }

    fn table_group(&mut self, group: u32) -> Option<&mut TableGroup> {
        self.packed.as_mut()?.tables.groups.get_mut(group as usize)
    }

    /// A copy of a table is written.
    pub(crate) fn table_written(&mut self, group: u32, result: Result<(), IoFault>, effects: &mut Effects) {
        let Some(table) = self.table_group(group) else { return };
        if let Err(fault) = result {
            (table.step, table.dirty) = (TableWriteState::Idle, false);
            return self.poison(fault, "a segment table could not be written", effects);
        }
        if table.step != TableWriteState::First {
            (table.step, table.writing) = (TableWriteState::Idle, None);
            // It may have changed meanwhile.
            return self.note_table(group);
        }
        table.good = 1 - table.good;
        table.step = TableWriteState::Second;
        let copy = 1 - table.good;
        let Some(now) = table.writing.clone() else { return };
        let before = std::mem::replace(&mut table.durable, now.clone());
        let changes = before.entries.iter().zip(&now.entries).enumerate().filter(|(_, (before, now))| before != now);
        let log = |entry: &TableEntry| (entry.kind == SegmentKind::Log).then_some(entry.generation);
        for (entry, (before, now)) in changes {
            let number = group * GROUP_SEGMENTS + entry as u32;
            let Some(packed) = &mut self.packed else { return };
            packed.segments.set_on_medium(number, log(before), log(now));
            let segment = packed.segments.get(number);
            if segment.state == State::Preparing && segment.generation == now.generation {
                packed.segments.set_state(number, State::Ready);
                packed.segments.ready.push_back(number);
            }
        }
        self.allow_blob_writes();
        self.write_table_copy(group, copy, effects);
    }

    /// A table is to be looked at in the next tick.
    fn note_table(&mut self, group: u32) {
        if let Some(packed) = &mut self.packed {
            packed.tables.changed.insert(group);
        }
    }

    /// Blobs will lie here: the table must not call these segments logs.
    pub(crate) fn claim_for_blobs(&mut self, extent: Extent) {
        let Some(packed) = &mut self.packed else { return };
        for number in extent.first / packed.segments.pages..=(extent.first + extent.pages - 1) / packed.segments.pages {
            if packed.tables.wanted(number).kind != SegmentKind::Blobs {
                self.counter += 1;
                packed.tables.set(number, TableEntry { kind: SegmentKind::Blobs, generation: self.counter });
            }
        }
    }

    /// Whether the table allows blobs to be written here.
    pub(crate) fn blobs_may_lie_at(&self, extent: Extent) -> bool {
        let Some(packed) = &self.packed else { return true };
        fault_point!("run_written_where_the_table_has_a_log", return true);
        let mut numbers =
            extent.first / packed.segments.pages..=(extent.first + extent.pages - 1) / packed.segments.pages;
        numbers.all(|number| packed.tables.durable(number).kind == SegmentKind::Blobs)
    }
}
