//! What becomes of a batch once it is durable at its level, and of places that nothing names any
//! more.

use std::sync::Arc;

use smallvec::SmallVec;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Key, fault_point, probe};
use stratakv_device::{Block, Class};
use stratakv_engine::{Effects, IoOutcome};
use stratakv_index::IndexEntry;

use super::addr::RecordAddress;
use super::append::{Appended, AppendedBatch, Moving};
use super::{Log, LogIoPurpose, LogPlace, Packed};
use crate::place::RecordPlace;
use crate::space::{Extent, offset};
use crate::write::{Change, Changed};

impl Packed {
    /// A request of this placement is done.
    pub(crate) fn log_io_done(&mut self, purpose: LogIoPurpose, outcome: IoOutcome, effects: &mut Effects) {
        match (purpose, outcome) {
            (LogIoPurpose::Record { read }, IoOutcome::Read(block, result)) => {
                self.record_read(read, block, result, effects)
            }
            (LogIoPurpose::Victim { slice }, IoOutcome::Read(block, result)) => {
                self.victim_read(slice, &block, result);
            }
            (LogIoPurpose::Table { zone }, IoOutcome::Write(result)) => self.table_written(zone, result, effects),
            (LogIoPurpose::BlobHead { number }, IoOutcome::Write(result)) => {
                self.blob_head_written(number, result, effects)
            }
            (LogIoPurpose::CheckpointChunk, IoOutcome::Write(result)) => self.checkpoint_written(false, result),
            (LogIoPurpose::CheckpointRoot, IoOutcome::Write(result)) => self.checkpoint_written(true, result),
            (LogIoPurpose::CheckpointFlush, IoOutcome::Flush(result)) => self.checkpoint_flushed(result, effects),
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
                    if let Some(pending) = self.keys.pending.get_mut(&change.key) {
                        pending.placement.appended -= 1;
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
        if let Some(segment) = self.placement.segments.get_mut(batch.segment) {
            segment.in_flight -= 1;
        }
        self.give_back_if_dead(batch.segment, group);
    }

    /// A record is shown, and takes the place in the cache of the one before it.
    fn apply_record(
        &mut self,
        change: Change<Log>,
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
        self.complete_change(change, drained, effects);
    }

    fn cache_appended(
        &mut self,
        (old, addr): (RecordAddress, RecordAddress),
        (first, pages): (u32, &[Arc<Block>]),
        effects: &Effects,
    ) {
        let offset = (addr.at - offset(first)) as usize;
        let (mut page, mut from, mut left) = (offset / PAGE_BYTES, offset % PAGE_BYTES, addr.bytes() as usize);
        let mut parts: SmallVec<[&[u8]; 6]> = SmallVec::new();
        while let Some(block) = pages.get(page).filter(|_| left > 0) {
            let part = block.get(from..(from + left).min(PAGE_BYTES)).unwrap_or_default();
            parts.push(part);
            left -= part.len();
            (page, from) = (page + 1, 0);
        }
        self.placement.cache.replace(old.at, addr.at, &parts, &mut || effects.block(Class::Slice));
    }

    /// A tombstone, or the record of a blob, is shown.
    fn apply_appended(
        &mut self,
        change: Change<Log>,
        addr: RecordAddress,
        group: u64,
        drained: &mut Vec<Key>,
        effects: &mut Effects,
    ) {
        let change = match change.place {
            RecordPlace::Blob { first, .. } if change.kind == Changed::Put => {
                self.placement.pointers.insert(first, addr);
                change
            }
            _ => Change { place: RecordPlace::Record(addr), ..change },
        };
        let old = match change.kind {
            Changed::Put => self.publish(&change),
            Changed::Delete | Changed::Clear => self.unpublish(&change.key),
        };
        if let Some(old) = old {
            self.forget_place(old, group);
        }
        self.complete_change(change, drained, effects);
    }

    fn apply_moved(&mut self, key: &Key, what: Moving, (from, to): (RecordAddress, RecordAddress), group: u64) {
        self.placement.segments.end_move(from, to);
        let (from_bits, to_bits) = (LogPlace::Record(from).to_bits(), LogPlace::Record(to).to_bits());
        let still = match what {
            Moving::Tombstone => true,
            Moving::Large(first) => match self.placement.pointers.get_mut(&first).filter(|pointer| **pointer == from) {
                Some(pointer) => {
                    *pointer = to;
                    true
                }
                None => false,
            },
            Moving::Value => {
                let mut still = self.index.tree.relocate(key.encoded(), from_bits, to_bits);
                fault_point!("moved_while_a_write_is_under_way", !still, still = self.publish_moved(key, to_bits));
                still
            }
        };
        if !still {
            // It was replaced meanwhile: the original is dead already, now the copy is.
            let number = self.placement.segments.remove_live(to, false);
            self.give_back_if_dead(number, group);
            return self.give_back_if_dead(self.placement.segments.of(from), group);
        }
        if what == Moving::Value {
            probe!("packed: the cleaner moved a record that is cached", self.placement.cache.contains(from.at));
            self.placement.cache.rekey(from.at, to.at);
        }
        let number = self.placement.segments.remove_live(from, what == Moving::Tombstone);
        self.give_back_if_dead(number, group);
    }

    /// What the fault point does: shows a copy whatever became of its original.
    fn publish_moved(&mut self, key: &Key, place: u64) -> bool {
        let expiry = self.index.get(key).map_or(0, |entry| entry.expiry);
        self.index.tree.insert(key.encoded(), IndexEntry { place, expiry });
        true
    }

    /// Nothing names this place any more since `group`.
    pub(crate) fn forget_place(&mut self, place: LogPlace, group: u64) {
        match place {
            RecordPlace::Record(addr) => {
                self.placement.cache.remove(addr.at);
                self.forget_record(addr, group);
            }
            RecordPlace::Blob { first, pages } => {
                if let Some(addr) = self.placement.pointers.remove(&first) {
                    self.forget_record(addr, group);
                }
                self.placement.forget_slices(first, pages);
                self.release_blob(Extent { first, pages }, group);
            }
        }
    }

    fn forget_record(&mut self, addr: RecordAddress, group: u64) {
        let number = self.placement.segments.remove_live(addr, false);
        self.give_back_if_dead(number, group);
    }
}
