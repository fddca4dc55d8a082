//! An orderly end without a second tier: what DRAM holds is saved on the volume, as segments and a
//! table like those of a second tier, for the next opening.
//!
//! Room for the table is set aside first, so that a place that gets full has part of the cache, and
//! not segments of which nobody knows.

use std::collections::VecDeque;

use stratakv_base::limits::PAGE_BYTES;
use stratakv_device::IoFault;
use stratakv_engine::Effects;

use crate::closing::Closing;
use crate::journal::{Journal, Tail};
use crate::log::{Log, RecordAddress};
use crate::superblock::{IndexDump, Layout, PAGES_MAX, TAIL_PAGE};
use crate::tier::{IoPurpose, Tier};
use crate::volume::Volume;

/// What is known of a volume that holds what is saved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Saving {
    /// Pages set aside for the table, with which it begins.
    table_pages: u64,
    /// Items that were to be saved.
    items: u64,
}

impl Volume {
    fn for_saving(uuid: [u8; 16], saving: Saving, next_order: u64) -> Volume {
        let mut log = Log::new(Layout::saved(PAGES_MAX / 2));
        log.set_head(TAIL_PAGE + saving.table_pages);
        let journal = Journal::new(uuid, TAIL_PAGE, 0, Tail::default(), VecDeque::new());
        Volume::new(log, journal, next_order, Some(saving))
    }

    /// Where a table of so many pages goes.
    pub(crate) fn table_addr(&self, pages: u64) -> RecordAddress {
        match self.saving {
            Some(saving) if pages <= saving.table_pages => RecordAddress::Free(TAIL_PAGE),
            _ => self.log.addr(pages),
        }
    }
}

impl Tier {
    /// Whether what DRAM holds is on its way to where it is saved.
    pub(crate) fn is_saving(&self) -> bool {
        self.ending.phase() == Closing::Spilling && self.volume.as_ref().is_some_and(|volume| volume.saving.is_some())
    }

    /// Sets room for the table aside, if there is something to be saved.
    pub(crate) fn begin_saving(&mut self, effects: &mut Effects) {
        let saving = self.to_save();
        if !self.config.saves_at_shutdown || self.volume.is_some() || self.config.read_only || saving.items == 0 {
            return;
        }
        self.ending.enter(Closing::Reserving);
        let io = self.io.start(IoPurpose::Reserve);
        effects.allocate(io, TAIL_PAGE * PAGE_BYTES as u64, saving.table_pages * PAGE_BYTES as u64);
    }

    fn to_save(&self) -> Saving {
        let entries = self.index.len() as u64;
        // A segment that leaves has no room for the next item, which is a quarter of one at most,
        // or is such a long item.
        let segments = (4 * self.segments.bytes() / self.segment_len()) as u64 + 8;
        let table = IndexDump { entries, segments, ..IndexDump::default() };
        Saving { table_pages: table.pages(), items: entries }
    }

    pub(crate) fn reserved(&mut self, result: Result<(), IoFault>, effects: &mut Effects) {
        let mut saving = self.to_save();
        self.counters.write_errors += u64::from(result.is_err());
        if !matches!(result, Ok(()) | Err(IoFault::Full)) {
            // It may be a file system that sets nothing aside: then the table comes last.
            saving.table_pages = 0;
        }
        match result {
            Ok(()) | Err(IoFault::Os(_)) => {
                let next_order = self.superblock.get().first_number() + 1;
                self.volume = Some(Volume::for_saving(self.config.uuid, saving, next_order));
            }
            Err(fault) => {
                tracing::warn!(
                    %fault, shard = self.config.shard, items = saving.items,
                    "nothing can be saved: the next start is cold; make room where the store lies"
                );
            }
        }
        self.ending.enter(Closing::Spilling);
        effects.more();
    }

    /// All of it is on the volume, or failed to be, and the table will be.
    pub(crate) fn note_saved(&mut self, table: &IndexDump) {
        let Some((volume, saving)) = self.volume.as_ref().and_then(|volume| Some((volume, volume.saving?))) else {
            return;
        };
        let end = volume.log.head().max(table.next_page);
        self.superblock.set_layout(Layout::saved(end - TAIL_PAGE));
        let (shard, items, saved) = (self.config.shard, saving.items, table.entries);
        if volume.log.iter().any(|stored| stored.is_void) {
            tracing::warn!(
                shard,
                items,
                saved,
                "not everything could be saved: the next start is warm in part; make room where the store lies"
            );
        } else {
            tracing::info!(shard, items, saved, "what was in memory is saved");
        }
    }

    /// What was written counts not.
    pub(crate) fn warn_unsaved(&self) {
        if self.volume.as_ref().is_some_and(|volume| volume.saving.is_some()) {
            let shard = self.config.shard;
            tracing::warn!(shard, "what was saved could not be made sure: the next start is cold");
        }
    }
}
