//! An orderly end without a second tier: what DRAM holds is parked on the volume, as segments and a
//! table like those of a second tier, for the next opening.
//!
//! Room for the table is set aside first, so that a place that gets full has part of the cache, and
//! not segments of which nobody knows.

use std::collections::VecDeque;

use foldhash::{HashMap, HashMapExt};
use stratakv_base::limits::PAGE_BYTES;
use stratakv_device::IoFault;
use stratakv_engine::Effects;

use crate::ending::Closing;
use crate::journal::{Journal, Tail};
use crate::log::{Log, RecordAddress};
use crate::superblock::{Layout, PAGES_MAX, TAIL_PAGE, Table};
use crate::tier::{Purpose, Tier};
use crate::volume::Volume;

/// What is known of a volume that holds what is parked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parking {
    /// Pages set aside for the table, with which it begins.
    table_pages: u64,
    /// Items that were to be parked.
    items: u64,
}

impl Volume {
    fn for_parking(uuid: [u8; 16], parking: Parking, next_order: u64) -> Volume {
        let mut log = Log::new(Layout::parked(PAGES_MAX / 2));
        log.set_head(TAIL_PAGE + parking.table_pages);
        Volume {
            log,
            journal: Journal::new(uuid, TAIL_PAGE, 0, Tail::default(), VecDeque::new()),
            spills: VecDeque::new(),
            spilling: HashMap::new(),
            retire: None,
            written_low: 0,
            next_order,
            lapped: false,
            not_before: Default::default(),
            failures: 0,
            holes: Default::default(),
            wanted_pages: 0,
            is_lost: false,
            parking: Some(parking),
            returning: Default::default(),
        }
    }

    /// Where a table of so many pages goes.
    pub(crate) fn table_addr(&self, pages: u64) -> RecordAddress {
        match self.parking {
            Some(parking) if pages <= parking.table_pages => RecordAddress::Free(TAIL_PAGE),
            _ => self.log.addr(pages),
        }
    }
}

impl Tier {
    /// Whether what DRAM holds is on its way to where it is parked.
    pub(crate) fn is_parking(&self) -> bool {
        self.closing == Closing::Spilling && self.volume.as_ref().is_some_and(|volume| volume.parking.is_some())
    }

    /// Sets room for the table aside, if there is something to be parked.
    pub(crate) fn begin_parking(&mut self, effects: &mut Effects) {
        let parking = self.to_park();
        if !self.config.parks || self.volume.is_some() || self.config.read_only || parking.items == 0 {
            return;
        }
        self.closing = Closing::Reserving;
        let io = self.io.start(Purpose::Reserve);
        effects.allocate(io, TAIL_PAGE * PAGE_BYTES as u64, parking.table_pages * PAGE_BYTES as u64);
    }

    fn to_park(&self) -> Parking {
        let entries = self.index.len() as u64;
        // A segment that leaves has no room for the next item, which is a quarter of one at most,
        // or is such a long item.
        let segments = (4 * self.segments.bytes() / self.segment_len()) as u64 + 8;
        let table = Table { entries, segments, ..Table::default() };
        Parking { table_pages: table.pages(), items: entries }
    }

    pub(crate) fn reserved(&mut self, result: Result<(), IoFault>, effects: &mut Effects) {
        let mut parking = self.to_park();
        self.counters.write_errors += u64::from(result.is_err());
        if !matches!(result, Ok(()) | Err(IoFault::Full)) {
            // It may be a file system that sets nothing aside: then the table comes last.
            parking.table_pages = 0;
        }
        match result {
            Ok(()) | Err(IoFault::Os(_)) => {
                let next_order = self.superblock.first_number() + 1;
                self.volume = Some(Volume::for_parking(self.config.uuid, parking, next_order));
            }
            Err(fault) => {
                tracing::warn!(
                    %fault, shard = self.config.shard, items = parking.items,
                    "nothing can be parked: the next start is cold; make room where the store lies"
                );
            }
        }
        self.closing = Closing::Spilling;
        effects.more();
    }

    /// All of it is on the volume, or failed to be, and the table will be.
    pub(crate) fn note_parked(&mut self, table: &Table) {
        let Some((volume, parking)) = self.volume.as_ref().and_then(|volume| Some((volume, volume.parking?))) else {
            return;
        };
        let end = volume.log.head().max(table.next_page);
        self.superblock.layout = Layout::parked(end - TAIL_PAGE);
        let (shard, items, parked) = (self.config.shard, parking.items, table.entries);
        if volume.log.iter().any(|stored| stored.is_void) {
            tracing::warn!(
                shard,
                items,
                parked,
                "not everything could be parked: the next start is warm in part; make room where the store lies"
            );
        } else {
            tracing::info!(shard, items, parked, "what was in memory is parked");
        }
    }

    /// What was written counts not.
    pub(crate) fn warn_unparked(&self) {
        if self.volume.as_ref().is_some_and(|volume| volume.parking.is_some()) {
            let shard = self.config.shard;
            tracing::warn!(shard, "what was parked could not be made sure: the next start is cold");
        }
    }
}
