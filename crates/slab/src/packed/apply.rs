//! What becomes of a batch once it is durable at its level, and of places that nothing names any
//! more.

use std::sync::Arc;

use smallvec::SmallVec;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Key, fault_point, probe};
use stratakv_device::{Block, Class};
use stratakv_engine::{Effects, IoOutcome, Reply};
use stratakv_index::IndexEntry;

use super::PackedIoPurpose;
use super::addr::RecordAddress;
use super::append::{Appended, AppendedBatch, Moving};
use crate::place::RecordPlace;
use crate::slab::Slab;
use crate::space::Extent;
use crate::write::{Change, Changed};

impl Slab {
    /// A request of this placement is done.
    pub(crate) fn packed_done(&mut self, purpose: PackedIoPurpose, outcome: IoOutcome, effects: &mut Effects) {
        match (purpose, outcome) {
            (PackedIoPurpose::Record { read }, IoOutcome::Read(block, result)) => {
                self.record_read(read, block, result, effects)
            }
            (PackedIoPurpose::Victim { slice }, IoOutcome::Read(block, result)) => {
                self.victim_read(slice, &block, result);
            }
            (PackedIoPurpose::Table { zone }, IoOutcome::Write(result)) => self.table_written(zone, result, effects),
            (PackedIoPurpose::BlobHead { number }, IoOutcome::Write(result)) => {
                self.blob_head_written(number, result, effects)
            }
            (PackedIoPurpose::CheckpointChunk, IoOutcome::Write(result)) => self.checkpoint_written(false, result),
            (PackedIoPurpose::CheckpointRoot, IoOutcome::Write(result)) => self.checkpoint_written(true, result),
            (PackedIoPurpose::CheckpointFlush, IoOutcome::Flush(result)) => self.checkpoint_flushed(result, effects),
            (purpose, outcome) => {
                debug_assert!(false, "{outcome:?} for {purpose:?}");
            }
        }
    }

    /// Shows a batch of group `group`.
    pub(crate) fn apply_batch(
        &mut self,
        batch: AppendedBatch,
        group: u64,
        drained: &mut Vec<Key>,
        effects: &mut Effects,
    ) {
        for appended in batch.appended {
            match appended {
                Appended::Change { change, addr } => {
                    if let Some(pending) = self.pending.get_mut(&change.key) {
                        pending.appended -= 1;
                    }
                    if change.kind == Changed::Put && !matches!(change.place, RecordPlace::Blob { .. }) {
                        let change = Change { place: RecordPlace::Record(addr), ..change };
                        self.apply_record(change, (batch.first, &batch.pages), group, effects, drained);
                    } else {
                        self.apply_appended(change, addr, group, drained, effects);
                    }
                }
                Appended::Moved { key, what, from, to } => self.apply_moved(&key, what, (from, to), group),
            }
        }
        if let Some(packed) = &mut self.packed
            && let Some(segment) = packed.segments.get_mut(batch.segment)
        {
            segment.in_flight -= 1;
        }
        self.give_back_if_dead(batch.segment, group);
    }

    /// A record is shown, and takes the place in the cache of the one before it.
    fn apply_record(
        &mut self,
        change: Change,
        appended: (u32, &[Arc<Block>]),
        group: u64,
        effects: &mut Effects,
        drained: &mut Vec<Key>,
    ) {
        let RecordPlace::Record(addr) = change.place else { return };
        let old = self.publish(&change);
        let before = if let Some(RecordPlace::Record(old)) = old { old } else { addr };
        self.cache_appended((before, addr), appended, effects);
        match old {
            // Its record in the cache is the new one by now.
            Some(RecordPlace::Record(old)) => self.forget_record(old, group),
            Some(old) => self.forget_place(old, group),
            None => {}
        }
        self.release(&change.key, group);
        self.complete_change(change, drained, effects);
    }

    fn cache_appended(
        &mut self,
        (old, addr): (RecordAddress, RecordAddress),
        (first, pages): (u32, &[Arc<Block>]),
        effects: &Effects,
    ) {
        let Some(packed) = &mut self.packed else { return };
        let offset = (addr.at - Self::offset(first)) as usize;
        let (mut page, mut from, mut left) = (offset / PAGE_BYTES, offset % PAGE_BYTES, addr.bytes() as usize);
        let mut parts: SmallVec<[&[u8]; 6]> = SmallVec::new();
        while let Some(block) = pages.get(page).filter(|_| left > 0) {
            let part = block.get(from..(from + left).min(PAGE_BYTES)).unwrap_or_default();
            parts.push(part);
            left -= part.len();
            (page, from) = (page + 1, 0);
        }
        packed.cache.replace(old.at, addr.at, &parts, &mut || effects.block(Class::Slice));
    }

    /// A tombstone, or the record of a blob, is shown.
    fn apply_appended(
        &mut self,
        change: Change,
        addr: RecordAddress,
        group: u64,
        drained: &mut Vec<Key>,
        effects: &mut Effects,
    ) {
        let Some(packed) = &mut self.packed else { return };
        let change = match change.place {
            RecordPlace::Blob { first, .. } if change.kind == Changed::Put => {
                packed.pointers.insert(first, addr);
                change
            }
            _ => Change { place: RecordPlace::Record(addr), ..change },
        };
        self.apply_change(change, group, drained, effects);
    }

    fn apply_moved(&mut self, key: &Key, what: Moving, (from, to): (RecordAddress, RecordAddress), group: u64) {
        let Some(packed) = &mut self.packed else { return };
        packed.segments.end_move(from, to);
        let (from_bits, to_bits) = (RecordPlace::Record(from).to_bits(), RecordPlace::Record(to).to_bits());
        let still = match what {
            Moving::Tombstone => true,
            Moving::Large(first) => match packed.pointers.get_mut(&first).filter(|pointer| **pointer == from) {
                Some(pointer) => {
                    *pointer = to;
                    true
                }
                None => false,
            },
            Moving::Value => {
                let mut still = self.index.0.relocate(key.encoded(), from_bits, to_bits);
                fault_point!("moved_while_a_write_is_under_way", !still, still = self.publish_moved(key, to_bits));
                still
            }
        };
        let Some(packed) = &mut self.packed else { return };
        if !still {
            // It was replaced meanwhile: the original is dead already, now the copy is.
            let number = packed.segments.remove_live(to, false);
            self.give_back_if_dead(number, group);
            return self.give_back_if_dead(self.segment_of(from), group);
        }
        if what == Moving::Value {
            probe!("packed: the cleaner moved a record that is cached", packed.cache.contains(from.at));
            packed.cache.rekey(from.at, to.at);
        }
        let number = packed.segments.remove_live(from, what == Moving::Tombstone);
        self.give_back_if_dead(number, group);
    }

    /// What the fault point does: shows a copy whatever became of its original.
    fn publish_moved(&mut self, key: &Key, place: u64) -> bool {
        let expiry = self.index.0.get(key.encoded()).map_or(0, |entry| entry.expiry);
        self.index.0.insert(key.encoded(), IndexEntry { place, expiry });
        true
    }

    fn segment_of(&self, addr: RecordAddress) -> u32 {
        self.packed.as_ref().map_or(0, |packed| packed.segments.of(addr))
    }

    /// Nothing names this place any more since `group`.
    pub(crate) fn forget_place(&mut self, place: RecordPlace, group: u64) {
        let Some(packed) = &mut self.packed else { return };
        match place {
            RecordPlace::Record(addr) => {
                packed.cache.remove(addr.at);
                self.forget_record(addr, group);
            }
            RecordPlace::Blob { first, pages } => {
                if let Some(addr) = packed.pointers.remove(&first) {
                    self.forget_record(addr, group);
                }
                self.blob_pages -= u64::from(pages);
                self.blob_tags.remove(&first);
                self.forget_slices(first, pages);
                self.space.release_after(group, Extent { first, pages });
            }
            RecordPlace::Slot { .. } => {}
        }
    }

    fn forget_record(&mut self, addr: RecordAddress, group: u64) {
        let Some(packed) = &mut self.packed else { return };
        let number = packed.segments.remove_live(addr, false);
        self.give_back_if_dead(number, group);
    }

    /// A write or flush failed: nothing of this is written any more.
    pub(crate) fn abandon_packed(&mut self, effects: &mut Effects, refused: &dyn Fn() -> Reply) {
        let Some(packed) = &mut self.packed else { return };
        packed.queue_bytes = 0;
        packed.tables.abandon();
        packed.cleaner.abandon();
        let mut changes: Vec<Change> =
            std::mem::take(&mut packed.queue).into_iter().map(|append| append.change).collect();
        changes.extend(packed.large.abandon());
        for ack in changes.into_iter().filter_map(|change| change.ack) {
            self.answer(ack.origin, refused(), effects);
        }
    }

    /// The changes of a batch that failed: whether they are on the medium is not known.
    pub(crate) fn unknown_changes(batch: AppendedBatch) -> impl Iterator<Item = Change> {
        batch.appended.into_iter().filter_map(|appended| match appended {
            Appended::Change { change, .. } => Some(change),
            Appended::Moved { .. } => None,
        })
    }
}
