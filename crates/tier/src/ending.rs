//! An orderly end: everything spills, then the index is written down, then the superblock says so.

use stratakv_base::checksum::{crc32c, seed};
use stratakv_base::codec::{Reader, Writer};
use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_base::{Mono, fault_point, probe};
use stratakv_device::IoFault;
use stratakv_engine::Effects;

use crate::closing::{Closing, TableWrite};
use crate::index::{Loc, Tag};
use crate::log::{RecordAddress, Stored};
use crate::superblock::{IndexDump, PAGES_MAX};
use crate::tier::{IoPurpose, RETRY_NS, Tier};

/// A table of which a piece could not be written is written so often again, each time after twice
/// as long: an eighth of a second in all.
const TABLE_TRIES: u32 = 7;
const SEGMENT_BYTES: usize = 44;
const ENTRY_BYTES: usize = Tag::BYTES + 8;
const CRC_AT: usize = PAGE_BYTES - 4;
/// Segments and entries of a page.
pub(crate) const SEGMENTS_PER_PAGE: usize = CRC_AT / SEGMENT_BYTES;
pub(crate) const ENTRIES_PER_PAGE: usize = CRC_AT / ENTRY_BYTES;

impl IndexDump {
    pub(crate) fn segment_pages(&self) -> u64 {
        self.segments.div_ceil(SEGMENTS_PER_PAGE as u64)
    }

    pub(crate) fn pages(&self) -> u64 {
        self.segment_pages() + self.entries.div_ceil(ENTRIES_PER_PAGE as u64)
    }
}

fn encode_segment(stored: &Stored, writer: &mut Writer<'_>) {
    writer.u64(stored.order).u64(stored.id).u64(stored.page).u64(stored.pages).u32(stored.head_pages);
    writer.u32(stored.expires_s).u32(u32::from(stored.is_void));
}

fn decode_segment(reader: &mut Reader<'_>) -> Option<Stored> {
    let (order, id, page, pages) = (reader.u64().ok()?, reader.u64().ok()?, reader.u64().ok()?, reader.u64().ok()?);
    let (head_pages, expires_s, is_void) = (reader.u32().ok()?, reader.u32().ok()?, reader.u32().ok()? == 1);
    if page > PAGES_MAX || pages > PAGES_MAX || u64::from(head_pages) > pages {
        return None;
    }
    Some(Stored { id, order, page, pages, head_pages, expires_s, pins: 0, is_written: true, is_void })
}

fn seal(uuid: &[u8; 16], table: &IndexDump, number: u64, page: &mut [u8]) {
    let crc = crc32c(seed(uuid, table.order, number), &page[..CRC_AT]);
    Writer::new(&mut page[CRC_AT..]).u32(crc);
}

/// What a page of a table holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TablePage {
    Segments(Vec<Stored>),
    Entries(Vec<(Tag, Loc)>),
}

/// Page `number` of a table; `None` if it is damaged.
pub(crate) fn decode_page(uuid: &[u8; 16], table: &IndexDump, number: u64, page: &[u8]) -> Option<TablePage> {
    let crc = Reader::new(page.get(CRC_AT..)?).u32().ok()?;
    if crc != crc32c(seed(uuid, table.order, number), page.get(..CRC_AT)?) {
        return None;
    }
    let mut reader = Reader::new(page);
    if number < table.segment_pages() {
        let left = table.segments - number * SEGMENTS_PER_PAGE as u64;
        let segments = (0..left.min(SEGMENTS_PER_PAGE as u64)).map_while(|_| decode_segment(&mut reader));
        return Some(TablePage::Segments(segments.collect()));
    }
    let left = table.entries.saturating_sub((number - table.segment_pages()) * ENTRIES_PER_PAGE as u64);
    let entry = |_| {
        let tag = reader.bytes(Tag::BYTES).ok()?.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
        Some((Tag::from_bits(tag), Loc::from_bits(reader.u64().ok()?)))
    };
    Some(TablePage::Entries((0..left.min(ENTRIES_PER_PAGE as u64)).map_while(entry).collect()))
}

impl Tier {
    /// Takes the next step of an orderly end.
    pub(crate) fn pump_close(&mut self, effects: &mut Effects) {
        match self.ending.phase() {
            Closing::Draining => {
                let is_drained = self.operations.is_idle() && self.listings.is_idle() && self.fetches.is_idle();
                // Room that is being given back is where this end saves: carried out late, that
                // would take what was written meanwhile.
                let gives_back = self.volume.is_none() && !self.io.is_empty();
                if is_drained && (self.config.read_only || !(self.is_returning() || gives_back)) {
                    self.ending.begin(self.evictions.drops());
                    self.ending.enter(if self.config.read_only { Closing::Closed } else { Closing::Spilling });
                    self.begin_saving(effects);
                    effects.more();
                }
            }
            Closing::Spilling => self.pump_last_spills(effects),
            Closing::Table(_) => self.pump_table(effects),
            _ => {}
        }
    }

    fn pump_last_spills(&mut self, effects: &mut Effects) {
        while self.evict(effects) {}
        if self.segments.queued() == 0
            && let Some(slot) = self.segments.outgoing()
        {
            self.seal(slot);
        }
        let is_idle = self.volume.as_ref().is_none_or(|volume| {
            volume.is_lost || volume.spills.len() == 0 && volume.retire.is_none() && volume.journal.is_idle()
        });
        if self.segments.len() > 0 || !is_idle || !self.fetches.is_idle() || !self.io.is_empty() {
            return self.go_on(effects);
        }
        self.tell_what_end_costs();
        match self.volume.as_ref().map(|volume| volume.is_lost) {
            Some(true) if self.is_void() => self.ending.enter(Closing::Closed),
            Some(true) => {
                // Once more: what the system may find when the store is opened again must not
                // count.
                self.ending.enter(Closing::Superblock);
                self.write_void(effects);
            }
            None => self.flush_last(effects),
            Some(false) => self.begin_table(effects),
        }
    }

    /// Counts what this end dropped, and says once how much of it could not be written.
    fn tell_what_end_costs(&mut self) {
        let items = self.ending.count_drops(self.evictions.drops());
        if items > 0 {
            self.fail_end();
            let shard = self.config.shard;
            tracing::error!(
                shard,
                items,
                "this end could not write all that was in memory: make room on the disk, or exchange it"
            );
        }
    }

    /// The end does not keep what it should. Where it saves, a place that is full has a part of it,
    /// and that is in order.
    pub(crate) fn fail_end(&mut self) {
        let fault = self.counters.last_fault.unwrap_or(IoFault::Os(5));
        let saves_at_shutdown = self.volume.as_ref().is_none_or(|volume| volume.saving.is_some());
        self.ending.fail(Some(fault).filter(|fault| !(saves_at_shutdown && *fault == IoFault::Full)));
    }

    /// Another tick, unless something in flight brings one.
    fn go_on(&self, effects: &mut Effects) {
        let retries = self.volume.as_ref().is_some_and(|volume| volume.journal.retries_at().is_some());
        if self.io.is_empty() && !retries {
            effects.more();
        }
    }

    /// Finds a place for the table, where the log goes on.
    fn begin_table(&mut self, effects: &mut Effects) {
        let entries = self.index.len() as u64;
        let Some(volume) = &mut self.volume else { return };
        let mut table =
            IndexDump { entries, segments: volume.log.len() as u64, order: volume.next_order, ..IndexDump::default() };
        match volume.table_addr(table.pages().max(1)) {
            RecordAddress::Free(page) => table.page = page,
            RecordAddress::Blocked => {
                volume.spills.wait_for_room(table.pages().max(1));
                return self.go_on(effects);
            }
            RecordAddress::TooLong => {
                self.ending.enter(Closing::Closed);
                return;
            }
        }
        table.next_page = table.page + table.pages().max(1);
        volume.next_order += 1;
        self.superblock.set_table(table);
        self.note_saved(&table);
        self.ending.enter(Closing::Table(TableWrite::default()));
        self.pump_table(effects);
    }

    /// Writes pages of the table, 64 KiB at a time.
    fn pump_table(&mut self, effects: &mut Effects) {
        let Some(table) = self.superblock.get().table else { return };
        while let Closing::Table(write) = self.ending.phase() {
            let TableWrite { begun, in_flight, failed, tries, begins_at } = write;
            if begins_at > self.now.mono {
                return effects.wake_at(begins_at);
            }
            if !failed && begun < table.pages() && in_flight < 4 {
                let count = (table.pages() - begun).min((SLICE_BYTES / PAGE_BYTES) as u64);
                let mut bytes = vec![0; count as usize * PAGE_BYTES];
                for (number, page) in (begun..).zip(bytes.chunks_mut(PAGE_BYTES)) {
                    self.table_page(&table, number, page);
                }
                let write = TableWrite { begun: begun + count, in_flight: in_flight + 1, ..write };
                self.ending.enter(Closing::Table(write));
                self.write_pages(table.page + begun, &bytes, IoPurpose::Table, effects);
                if self.ending.phase() != Closing::Table(write) {
                    // It has failed, and what follows is done.
                    return;
                }
                continue;
            }
            return match in_flight {
                0 if failed && tries < TABLE_TRIES => {
                    probe!("tier: a table is written again at an end");
                    let begins_at = Mono(self.now.mono.0 + (RETRY_NS << tries));
                    self.ending.enter(Closing::Table(TableWrite {
                        tries: tries + 1,
                        begins_at,
                        ..TableWrite::default()
                    }));
                    effects.wake_at(begins_at);
                }
                // Not clean: the next opening does with what the journal says.
                0 if failed => {
                    self.warn_unsaved();
                    self.fail_end();
                    self.ending.enter(Closing::Closed);
                }
                0 => self.flush_last(effects),
                _ => {}
            };
        }
    }

    fn table_page(&self, table: &IndexDump, number: u64, page: &mut [u8]) {
        let mut writer = Writer::new(page);
        if number < table.segment_pages() {
            let skipped = number as usize * SEGMENTS_PER_PAGE;
            let segments = self.volume.iter().flat_map(|volume| volume.log.iter());
            segments.skip(skipped).take(SEGMENTS_PER_PAGE).for_each(|stored| encode_segment(stored, &mut writer));
        } else {
            let skipped = (number - table.segment_pages()) as usize * ENTRIES_PER_PAGE;
            for (tag, loc) in self.index.entries_from(skipped).take(ENTRIES_PER_PAGE) {
                writer.bytes(&tag.bits().to_le_bytes()[..Tag::BYTES]).u64(loc.bits());
            }
        }
        seal(&self.config.uuid, table, number, page);
    }

    pub(crate) fn table_written(&mut self, result: Result<(), IoFault>, effects: &mut Effects) {
        let Closing::Table(write) = self.ending.phase() else { return };
        self.counters.note_write(result);
        let (in_flight, failed) = (write.in_flight - 1, write.failed || result.is_err());
        self.ending.enter(Closing::Table(TableWrite { in_flight, failed, ..write }));
        self.pump_table(effects);
    }

    fn flush_last(&mut self, effects: &mut Effects) {
        self.ending.enter(Closing::Flushing);
        fault_point!("tier_parked_without_a_flush", {
            if self.volume.as_ref().is_some_and(|volume| volume.saving.is_some()) {
                return self.flushed(Ok(()), effects);
            }
        });
        effects.flush(self.io.start(IoPurpose::Flush));
    }

    pub(crate) fn flushed(&mut self, result: Result<(), IoFault>, effects: &mut Effects) {
        if result.is_err() {
            // What was written before it, the journal too, may be lost: nothing counts.
            self.counters.note_write(result);
            self.ending.enter(Closing::Superblock);
            self.fail_end();
            self.warn_unsaved();
            return self.write_void(effects);
        }
        self.ending.enter(Closing::Superblock);
        self.superblock.set_clean(self.versions.newest());
        self.write_superblock(effects);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever a page says, with a checksum that holds.
        #[test]
        fn a_page_of_any_bytes_does_no_harm(bytes in prop::collection::vec(any::<u8>(), CRC_AT), segments in 0u64..200, entries in any::<u64>(), number in 0u64..5) {
            let table = IndexDump { segments, entries: entries >> 8, ..IndexDump::default() };
            let mut page = bytes;
            page.resize(PAGE_BYTES, 0);
            seal(&[1; 16], &table, number, &mut page);
            prop_assert!(decode_page(&[1; 16], &table, number, &page).is_some());
            page[0] ^= 1;
            prop_assert!(decode_page(&[1; 16], &table, number, &page).is_none());
        }
    }
}
