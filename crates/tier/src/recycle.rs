//! The oldest segment of the log makes room: what was used of it since goes back to DRAM, the rest
//! is dropped.
//!
//! The order matters. Before an entry of the index is forgotten, the journal says that its segment
//! counts no longer: else the key could be written anew without anybody knowing of the copy, and a
//! recovery would find it.

use std::sync::Arc;

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Mono, fault_point};
use stratakv_device::Block;
use stratakv_engine::Effects;

use crate::drops::DropReason;
use crate::fetch::{Fetched, RECYCLER, joined};
use crate::index::{Loc, Tag};
use crate::item::{self, Header, SsdAddress};
use crate::log::{Head, RecordAddress, Stored};
use crate::segment::Stream;
use crate::tier::Tier;

/// Of a segment's bytes, at most one of so many goes back to DRAM.
const KEPT_SHARE: u64 = 2;
const READS_MAX: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecyclePhase {
    /// Its head is being read.
    Head,
    /// What is hot is being read.
    Moving,
    /// The journal is to say that it counts no longer, with this group.
    Low(u64),
    /// Somebody still reads it; since then it waits.
    Pinned(Mono),
    /// All of it is being read, to come back to DRAM: it was saved.
    Returning,
}

/// A segment that makes room.
#[derive(Debug)]
pub(crate) struct Retire {
    stored: Stored,
    /// Its items; `None`: not known, its head could not be read.
    items: Option<Vec<(Tag, Loc)>>,
    next: usize,
    in_flight: u32,
    kept_bytes: u64,
    phase: RecyclePhase,
    /// Why what is left of it goes.
    reason: DropReason,
}

impl Retire {
    /// A segment of what was saved.
    pub(crate) fn returning(stored: Stored, reason: DropReason) -> Retire {
        Retire { stored, items: None, next: 0, in_flight: 0, kept_bytes: 0, phase: RecyclePhase::Returning, reason }
    }

    pub(crate) fn stored(&self) -> &Stored {
        &self.stored
    }

    /// These items of it, if they are known, are in DRAM or gone. Nothing of it counts after a
    /// crash, so the journal is not asked.
    pub(crate) fn has_returned(&mut self, items: Option<Vec<(Tag, Loc)>>) {
        (self.items, self.phase) = (items, RecyclePhase::Low(0));
    }

    pub(crate) fn pinned_since(&self) -> Option<Mono> {
        if let RecyclePhase::Pinned(since) = self.phase { Some(since) } else { None }
    }
}

impl Tier {
    /// Takes the next steps, and begins when the next segment would find no room, or the index is
    /// crowded.
    pub(crate) fn pump_recycle(&mut self, effects: &mut Effects) {
        if self.config.read_only {
            return;
        }
        for _ in 0..8 {
            let Some(volume) = self.volume.as_ref().filter(|volume| !volume.is_lost) else { return };
            let Some(retire) = &volume.retire else {
                if !self.begin_retire(effects) {
                    return;
                }
                continue;
            };
            match retire.phase {
                RecyclePhase::Head | RecyclePhase::Returning => return,
                RecyclePhase::Moving => {
                    if !self.move_hot() {
                        return;
                    }
                    self.raise_low();
                }
                RecyclePhase::Low(group) => {
                    if !volume.journal.is_written(group) {
                        return;
                    }
                    self.forget_retired();
                }
                RecyclePhase::Pinned(_) => {
                    let mut is_pinned = volume.log.oldest().is_none_or(|stored| stored.pins > 0);
                    fault_point!("tier_recycled_segment_read_unverified", is_pinned = false);
                    if is_pinned {
                        return;
                    }
                    let Some(volume) = &mut self.volume else { return };
                    let gone = volume.log.pop_oldest();
                    gone.iter().for_each(|gone| volume.spills.forget_hole(gone.page));
                    (volume.retire, volume.lapped) = (None, true);
                    self.give_back_saved(gone.map(|gone| (gone.page, gone.pages)), effects);
                    effects.more();
                }
            }
        }
    }

    /// Whether a segment has to make room, and one can.
    fn begin_retire(&mut self, effects: &mut Effects) -> bool {
        if self.volume.as_ref().is_some_and(|volume| volume.saving.is_some()) {
            return self.begin_return(effects);
        }
        let ordinary = (self.segment_len() / PAGE_BYTES) as u64 * 5 / 4 + 2;
        let is_closing = !self.ending.is_open();
        let is_crowded = self.index.is_crowded();
        let Some(volume) = &mut self.volume else { return false };
        let ordinary = if is_closing { 0 } else { ordinary.min(volume.log.pages_max()) };
        let has_space = volume.log.addr(volume.spills.wanted_pages().max(ordinary)) != RecordAddress::Blocked;
        if has_space && !is_crowded {
            return false;
        }
        let Some(stored) = volume.log.oldest().copied().filter(|stored| stored.is_written) else { return false };
        let (phase, items) =
            if stored.is_void { (RecyclePhase::Moving, Some(Vec::new())) } else { (RecyclePhase::Head, None) };
        let reason = if has_space { DropReason::IndexFull } else { DropReason::LogFull };
        volume.retire = Some(Retire { stored, items, next: 0, in_flight: 0, kept_bytes: 0, phase, reason });
        if phase == RecyclePhase::Head {
            self.fetch_head(&stored);
        }
        true
    }

    /// The head of the segment was read, or not.
    pub(crate) fn head_read(&mut self, blocks: Option<Vec<Arc<Block>>>, effects: &mut Effects) {
        let uuid = self.config.uuid;
        let Some(retire) = self.volume.as_mut().and_then(|volume| volume.retire.as_mut()) else { return };
        let stored = retire.stored;
        let lines = blocks.and_then(|blocks| {
            let bytes = joined(&blocks);
            let head = Head::decode(&uuid, stored.page, &bytes).filter(|head| head.order == stored.order)?;
            head.lines(&bytes)
        });
        retire.items = lines.map(|lines| lines.iter().map(|line| (line.tag, stored.loc(line))).collect());
        retire.phase = RecyclePhase::Moving;
        effects.more();
    }

    /// Has what is hot read. True: all of it has moved.
    fn move_hot(&mut self) -> bool {
        let now = self.now.wall;
        let moves = self.ending.is_open();
        while let Some(retire) = self.volume.as_mut().and_then(|volume| volume.retire.as_mut()) {
            let stored = retire.stored;
            let moves = moves
                && !stratakv_base::Expiry::at_second(stored.expires_s.into()).is_past(now)
                && retire.kept_bytes < stored.pages * PAGE_BYTES as u64 / KEPT_SHARE;
            let Some(item) = retire.items.as_ref().and_then(|items| items.get(retire.next)).copied().filter(|_| moves)
            else {
                return retire.in_flight == 0;
            };
            if retire.in_flight >= READS_MAX {
                return false;
            }
            retire.next += 1;
            let (tag, place) = item;
            let is_hot = self.index.at(tag, place).is_some_and(|loc| loc.uses() > 0);
            if is_hot
                && self.fetch_item(tag, place, RECYCLER, false).is_some()
                && let Some(retire) = self.volume.as_mut().and_then(|volume| volume.retire.as_mut())
            {
                retire.in_flight += 1;
            }
        }
        false
    }

    /// What is hot was read: it goes back to DRAM, where there is room at once. Until the journal
    /// has spoken, its copy may return.
    pub(crate) fn reinsert(&mut self, place: Loc, item: Option<Arc<Fetched>>, effects: &mut Effects) {
        let Some(retire) = self.volume.as_mut().and_then(|volume| volume.retire.as_mut()) else { return };
        retire.in_flight = retire.in_flight.saturating_sub(1);
        let order = retire.stored.order;
        effects.more();
        let Some(item) = item.filter(|item| item.is_whole()) else { return };
        let bytes = item.header.total() + item::SSD_ADDRESS_BYTES;
        let key: Vec<u8> = item.body().flatten().copied().take(item.header.key_bytes as usize).collect();
        let tag = Tag::of(&key);
        let is_gone = item.header.expiry.is_past(self.now.wall) || self.versions.is_flushed(&key, item.header.version);
        if is_gone
            || self.index.at(tag, place).is_none()
            || self.operations.has_held()
            || !self.make_room(bytes, effects)
        {
            return;
        }
        let trailer = SsdAddress { loc: place, order }.encode();
        let body = item.body().chain(std::iter::once(&trailer[..]));
        let header = Header { has_ssd_address: true, ..item.header };
        let Some(new) = self.append(Stream::Main, header, body, effects) else { return };
        if self.index.replace(tag, place, new.wanted(true)) {
            self.counters.reinserted += 1;
            if let Some(retire) = self.volume.as_mut().and_then(|volume| volume.retire.as_mut()) {
                retire.kept_bytes += bytes as u64;
            }
        }
    }

    fn raise_low(&mut self) {
        let Some(volume) = &mut self.volume else { return };
        let Some(retire) = &mut volume.retire else { return };
        let (low, page) = match volume.log.second() {
            Some(next) => (next.order, next.page),
            None => (volume.next_order, volume.log.head()),
        };
        fault_point!("tier_forgotten_though_the_journal_does_not_say_so", {
            retire.phase = RecyclePhase::Low(0);
            return;
        });
        retire.phase = RecyclePhase::Low(volume.journal.raise_low(low, page));
    }

    /// The journal says that the segment is gone: so it is.
    fn forget_retired(&mut self) {
        let Some(volume) = &mut self.volume else { return };
        volume.written_low = volume.journal.low();
        let Some(retire) = &mut volume.retire else { return };
        retire.phase = RecyclePhase::Pinned(self.now.mono);
        let (stored, reason) = (retire.stored, retire.reason);
        let gone = match retire.items.take() {
            Some(items) => items.into_iter().filter(|(tag, place)| self.index.remove(*tag, *place)).count() as u64,
            None => {
                let range = stored.page * PAGE_BYTES as u64..stored.end() * PAGE_BYTES as u64;
                self.index.retain(|_, loc| !loc.is_on_volume() || !range.contains(&loc.address()))
            }
        };
        self.evictions.count(reason, gone);
    }
}
