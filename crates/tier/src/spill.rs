//! Whole segments go to the volume, each in a few large writes.

use std::sync::Arc;

use stratakv_base::fault_point;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_device::{Block, BlockPart, Class, IoFault, Pool};
use stratakv_engine::Effects;

use crate::drops::DropReason;
use crate::index::{Loc, Tag};
use crate::log::{Head, Line, RecordAddress, Stored, encode_lines};
use crate::spill_queue::Spill;
use crate::tier::{IoPurpose, Tier};
use crate::volume::Volume;

/// Segments that may be on their way before writes wait.
const SPILLS_MAX: usize = 2;
/// Parts of one request: its bytes are at most 1 MiB where blocks are slices.
const PARTS_MAX: usize = 16;
/// ENOMEM.
const NO_MEMORY: IoFault = IoFault::Os(12);

impl Tier {
    /// Whether what leaves DRAM can go to the volume.
    pub(crate) fn can_spill(&self) -> bool {
        let now = self.now.mono;
        // At an end there is no later time.
        let mut is_closing = !self.ending.is_open();
        fault_point!("tier_pause_outlives_an_end", is_closing = false);
        let takes = |volume: &Volume| {
            let is_paused = volume.spills.is_paused(now) && !is_closing;
            !volume.is_lost && !is_paused && (volume.saving.is_none() || self.is_saving())
        };
        !self.config.read_only && self.volume.as_ref().is_some_and(takes)
    }

    /// Why what leaves DRAM now is dropped, as it cannot go to the volume.
    pub(crate) fn unspilled(&self) -> DropReason {
        match &self.volume {
            Some(volume) if volume.is_lost => DropReason::VolumeLost,
            Some(volume) if volume.spills.is_paused(self.now.mono) => DropReason::WritesPaused,
            _ => DropReason::MemoryFull,
        }
    }

    /// Whether so much is on its way to the volume that more must wait.
    pub(crate) fn is_backed_up(&self) -> bool {
        self.volume.as_ref().is_some_and(|volume| volume.spills.len() >= SPILLS_MAX)
    }

    /// Begins to write what is sealed, as far as there is room.
    pub(crate) fn pump_spills(&mut self, effects: &mut Effects) {
        let has_holes = self.fill_holes(effects);
        while let Some(slot) = self.volume.as_ref().and_then(|volume| volume.spills.front()) {
            if !self.can_spill() {
                self.drop_segment(slot, self.unspilled(), effects);
            } else if has_holes || !self.spill(slot, effects) {
                break;
            }
            if let Some(volume) = &mut self.volume {
                volume.spills.pop();
            }
        }
    }

    /// Items of a sealed segment that are the newest of their keys.
    fn live_items(&self, slot: u32) -> Vec<(Tag, Loc, Line)> {
        let Some(segment) = self.segments.get(slot) else { return Vec::new() };
        let line = |(offset, header): (usize, crate::item::Header)| {
            let (tag, place) = (Tag::of(&segment.key(offset, &header)), Loc::dram(slot, offset));
            let line = Line { tag, offset: offset as u32, bytes: header.total() as u32, version: header.version };
            self.index.at(tag, place).map(|_| (tag, place, line))
        };
        segment.walk().filter_map(line).collect()
    }

    /// Writes a segment. False: there is no room yet.
    fn spill(&mut self, slot: u32, effects: &mut Effects) -> bool {
        let items = self.live_items(slot);
        let Some(segment) = self.segments.get(slot).filter(|_| !items.is_empty()) else {
            self.segments.remove(slot);
            return true;
        };
        let lines: Vec<Line> = items.iter().map(|(_, _, line)| *line).collect();
        let summary = encode_lines(&lines);
        let data_pages = segment.used_bytes().div_ceil(PAGE_BYTES) as u64;
        let (id, expires_s, mut parts) = (segment.id, segment.expires_s(), segment.parts());
        let Some(volume) = &mut self.volume else { return false };
        let head = Head::new(id, volume.next_order, expires_s, &summary, lines.len() as u32, data_pages);
        let page = match volume.log.addr(u64::from(head.pages)) {
            RecordAddress::Free(page) => page,
            RecordAddress::Blocked => {
                volume.spills.wait_for_room(u64::from(head.pages));
                return false;
            }
            RecordAddress::TooLong => {
                self.drop_segment(slot, DropReason::TooLong, effects);
                return true;
            }
        };
        let mut all = match parts_of(&head.encode(&self.config.uuid, page, &summary), effects.pool()) {
            Ok(parts) => parts,
            Err(fault) => {
                volume.spills.pause(self.now.mono);
                self.note_spill(Err(fault));
                self.drop_segment(slot, DropReason::WriteFailed, effects);
                return true;
            }
        };
        volume.next_order += 1;
        volume.journal.begin_segment(head.order);
        let (pages, head_pages, order) = (u64::from(head.pages), head.head_pages, head.order);
        let stored =
            Stored { id, order, page, pages, head_pages, expires_s, pins: 0, is_written: false, is_void: false };
        volume.log.push(stored);
        all.append(&mut parts);
        let items = items.into_iter().map(|(tag, place, line)| (tag, place, stored.loc(&line))).collect();
        let requests = all.chunks(PARTS_MAX).count() as u32;
        volume.spills.begin(order, Spill { slot, page, waiting: requests, failed: false, items });
        let mut offset = page * PAGE_BYTES as u64;
        for parts in all.chunks(PARTS_MAX) {
            effects.write(self.io.start(IoPurpose::Spill(order)), offset, parts.to_vec(), false);
            offset += parts.iter().map(|part| u64::from(part.len)).sum::<u64>();
        }
        self.counters.spilled_bytes += pages * PAGE_BYTES as u64;
        fault_point!("tier_overwrite_of_a_spilling_item_not_journaled", return true);
        self.segments.change(slot, |segment| segment.order = Some(order));
        true
    }

    fn note_spill(&mut self, result: Result<(), IoFault>) {
        self.counters.note_write(result);
        if let Err(fault) = result {
            tracing::warn!(%fault, shard = self.config.shard, "a segment could not be written: its items are dropped");
        }
    }

    /// A piece of a segment was written, or not.
    pub(crate) fn spill_written(&mut self, order: u64, result: Result<(), IoFault>) {
        self.note_spill(result);
        let Some(volume) = &mut self.volume else { return };
        let Some(spill) = volume.spills.piece_written(order, result.is_err()) else { return };
        if let Some(stored) = volume.log.get_mut(spill.page) {
            (stored.is_written, stored.is_void) = (true, spill.failed);
        }
        if spill.failed || volume.is_lost {
            let mut journals = volume.journals();
            fault_point!("tier_hole_left_in_the_log", journals = false);
            if journals {
                volume.spills.add_hole(spill.page);
            }
            volume.spills.pause(self.now.mono);
            self.void_items(&spill.items);
        } else {
            volume.spills.has_succeeded();
            self.counters.spilled_items += spill.items.len() as u64;
            for (tag, place, stored) in spill.items {
                let Some(loc) = self.index.at(tag, place) else { continue };
                let wanted = volume.saving.is_some() && loc.is_wanted();
                self.index.replace(tag, place, stored.with_uses(loc.uses()).wanted(wanted));
            }
        }
        self.segments.remove(spill.slot);
    }

    /// Writes an empty head over what could not be written, so that a recovery finds the way to
    /// what comes behind. Whether something must wait for that.
    fn fill_holes(&mut self, effects: &mut Effects) -> bool {
        let can_spill = self.can_spill();
        let Some(volume) = &self.volume else { return false };
        for page in volume.spills.holes_due(can_spill) {
            let Some(volume) = &mut self.volume else { break };
            let Some(stored) = volume.log.get_mut(page).filter(|stored| stored.is_void) else {
                volume.spills.forget_hole(page);
                continue;
            };
            stored.pins += 1;
            let head = Head::empty(stored).encode(&self.config.uuid, page, &[]);
            volume.spills.fill_hole(page);
            self.write_pages(page, &head, IoPurpose::Fill(page), effects);
        }
        self.volume.as_ref().is_some_and(|volume| volume.spills.holes() > 0)
    }

    /// The head of a hole was written, or not.
    pub(crate) fn hole_filled(&mut self, page: u64, result: Result<(), IoFault>) {
        let is_closing = !self.ending.is_open();
        self.unpin(&[page]);
        let Some(volume) = &mut self.volume else { return };
        match result {
            Ok(()) => volume.spills.forget_hole(page),
            Err(_) => {
                self.counters.write_errors += 1;
                // The table of an orderly end tells of it too: that does not wait for a disk that
                // may never be mended.
                if is_closing || volume.is_lost {
                    volume.spills.forget_hole(page);
                } else {
                    volume.spills.reopen_hole(page);
                    volume.spills.pause(self.now.mono);
                }
            }
        }
    }

    /// What failed to be written may be on the volume all the same.
    fn void_items(&mut self, items: &[(Tag, Loc, Loc)]) {
        for (tag, place, _) in items {
            if self.index.remove(*tag, *place) {
                self.evictions.count(DropReason::WriteFailed, 1);
                self.invalidate(*tag, self.versions.next());
            }
        }
    }

    /// Drops what lies in a segment in DRAM.
    fn drop_segment(&mut self, slot: u32, reason: DropReason, effects: &Effects) {
        for (tag, place, _) in self.live_items(slot) {
            if effects.tells_evictions
                && let Some((segment, offset, header)) = self.segments.item(place)
            {
                let key = segment.key(offset, &header);
                self.note_evicted(&key, &header, true, effects);
            }
            self.drop_item(tag, place, reason);
        }
        self.segments.remove(slot);
    }
}

/// Bytes, a multiple of a page, as parts of blocks.
///
/// # Errors
/// The system gives no memory, not even for a block beyond the limit. All of it fails then: what is
/// written without a part of it would lie in wrong places, and count as written.
pub(crate) fn parts_of(bytes: &[u8], pool: &Pool) -> Result<Vec<BlockPart>, IoFault> {
    let class = if bytes.len() > PAGE_BYTES { Class::Slice } else { Class::Page };
    let part = |chunk: &[u8]| {
        let mut block = pool.take(class).or_else(|| beyond_the_limit(class, pool)).ok_or(NO_MEMORY)?;
        block[..chunk.len()].copy_from_slice(chunk);
        Ok(BlockPart { block: Arc::new(block), start: 0, len: chunk.len() as u32 })
    };
    bytes.chunks(class.bytes()).map(part).collect()
}

/// A block though the pool has none left: what is written or read to make room cannot wait for that
/// room.
pub(crate) fn beyond_the_limit(class: Class, pool: &Pool) -> Option<Block> {
    let limit = pool.limit_bytes();
    pool.set_limit_bytes(pool.held_bytes() + (1 << 20));
    let block = pool.take(class);
    pool.set_limit_bytes(limit);
    block
}
