//! What an orderly end saved comes back to DRAM while the cache serves, a segment at a time, and
//! its room goes back to the file system. Until then it is read where it lies.
//!
//! The opening has called it used, so a later one will not find it: nothing is journaled. As in
//! life the newest segments are brought in last, so what has no room any more, as there is less
//! memory than before, is what an eviction would have taken.

use std::sync::Arc;

use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_device::Block;
use stratakv_engine::Effects;

use crate::closing::Closing;
use crate::drops::DropReason;
use crate::fetch::{Fetched, slices};
use crate::index::{Loc, Tag};
use crate::item::Header;
use crate::log::{Head, Stored};
use crate::recycle::Retire;
use crate::segment::Stream;
use crate::tier::{IoPurpose, Tier};

impl Tier {
    /// Whether part of what was saved is still on the volume, to come back or, in a store that is
    /// only read, to stay.
    pub fn is_returning(&self) -> bool {
        let is_ours = self.ending.is_open() || self.ending.phase() == Closing::Draining;
        is_ours && self.volume.as_ref().is_some_and(|volume| volume.saving.is_some())
    }

    /// Begins with the next segment. When there is none any more, the volume is out of use.
    pub(crate) fn begin_return(&mut self, effects: &mut Effects) -> bool {
        if !self.is_returning() {
            return false;
        }
        let Some(volume) = &mut self.volume else { return false };
        let Some(stored) = volume.log.oldest().copied() else {
            // What the index had no room for, too.
            let all = volume.log.extent();
            self.give_back_saved(Some(all), effects);
            self.volume = None;
            return false;
        };
        // With less memory than before a long item may have no place, and reading it would cost
        // what has one.
        let longest = self.config.item_bytes_max().max(self.config.segment_len() as u64) + 2 * SLICE_BYTES as u64;
        let is_read = !stored.is_void && stored.pages * PAGE_BYTES as u64 <= longest;
        let reason = if is_read { DropReason::Unreadable } else { DropReason::TooLong };
        let mut retire = Retire::returning(stored, reason);
        if !is_read {
            retire.has_returned(stored.is_void.then(Vec::new));
        }
        volume.retire = Some(retire);
        if is_read {
            self.fetch_segment(&stored);
        }
        true
    }

    /// All of a segment was read, or nothing.
    pub(crate) fn segment_read(&mut self, blocks: &[Arc<Block>], effects: &mut Effects) {
        effects.more();
        let Some(stored) =
            self.volume.as_ref().and_then(|volume| volume.retire.as_ref()).map(|retire| *retire.stored())
        else {
            return;
        };
        let items = self.items_of(&stored, blocks);
        self.counters.corrupt_records += u64::from(items.is_none() && !blocks.is_empty());
        for (tag, place) in items.iter().flatten().copied() {
            self.bring_back(&stored, tag, place, blocks, effects);
        }
        if let Some(retire) = self.volume.as_mut().and_then(|volume| volume.retire.as_mut()) {
            retire.has_returned(items);
        }
    }

    /// What the summary says; `None`: it does not check.
    fn items_of(&self, stored: &Stored, blocks: &[Arc<Block>]) -> Option<Vec<(Tag, Loc)>> {
        let bytes: Vec<u8> = slices(blocks, 0, stored.head_pages as usize * PAGE_BYTES).flatten().copied().collect();
        let head = Head::decode(&self.config.uuid, stored.page, &bytes);
        let lines = head.filter(|head| head.order == stored.order)?.lines(&bytes)?;
        Some(lines.iter().map(|line| (line.tag, stored.loc(line))).collect())
    }

    fn bring_back(&mut self, stored: &Stored, tag: Tag, place: Loc, blocks: &[Arc<Block>], effects: &Effects) {
        let Some(loc) = self.index.at(tag, place) else { return };
        let Some(item) = self.item_in(stored, tag, place, blocks) else {
            self.counters.corrupt_records += 1;
            return self.drop_unreadable(tag, place, DropReason::Unreadable);
        };
        let key: Vec<u8> = item.body().flatten().copied().take(item.header.key_bytes as usize).collect();
        let is_past = item.header.expiry.is_past(self.now.wall);
        if is_past || self.versions.is_flushed(&key, item.header.version) {
            self.counters.expired += u64::from(is_past);
            self.index.remove(tag, place);
            return;
        }
        match self.append_returned(loc, &item, effects) {
            Some(new) => {
                self.counters.reinserted += 1;
                self.index.replace(tag, place, new);
            }
            None => {
                self.note_evicted(&key, &item.header, true, effects);
                self.drop_item(tag, place, DropReason::MemoryFull);
            }
        }
    }

    /// To the queue that it was in.
    fn append_returned(&mut self, loc: Loc, item: &Fetched, effects: &Effects) -> Option<Loc> {
        let bytes = item.header.total();
        if bytes as u64 > self.config.item_bytes_max() || !self.make_room(bytes, effects) {
            return None;
        }
        let stream = if loc.is_wanted() { Stream::Main } else { Stream::Small };
        loop {
            // Of what it is a copy of is no word in its body.
            let header = Header { has_ssd_address: false, ..item.header };
            if let Some(new) = self.append(stream, header, item.body(), effects) {
                return Some(new.with_uses(loc.uses()).wanted(loc.is_wanted()));
            }
            if !self.evict(effects) {
                return None;
            }
        }
    }

    fn item_in(&self, stored: &Stored, tag: Tag, place: Loc, blocks: &[Arc<Block>]) -> Option<Fetched> {
        let block_len = blocks.first()?.len();
        let start = place.address().checked_sub(stored.page * PAGE_BYTES as u64)? as usize;
        let end = (start + place.pages() as usize * PAGE_BYTES).div_ceil(block_len).min(blocks.len());
        let touched = blocks.get(start / block_len..end)?.to_vec();
        self.check_item(tag, place, stored.page, touched, start % block_len)
    }

    /// The pages, from this one on, of what has returned go back to the file system.
    pub(crate) fn give_back_saved(&mut self, gone: Option<(u64, u64)>, effects: &mut Effects) {
        let Some((page, pages)) = gone.filter(|_| self.is_returning()) else { return };
        let io = self.io.start(IoPurpose::Discard);
        effects.discard(io, page * PAGE_BYTES as u64, pages * PAGE_BYTES as u64);
    }
}
