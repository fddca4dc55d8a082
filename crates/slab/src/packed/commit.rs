//! The commit pipeline of a log: from records that wait to records that are published.
//!
//! ```text
//!  queued      packed/write.rs: a user's record waits, its key has it as the newest
//!      | seal: append_queue, then the cleaner's and the re-clusterer's copies
//!      |   open_batch in an open segment, append_record, seal_batch: headers on both ends
//!  sealed      batches of one group, one contiguous write each
//!      | launch (group.rs)                           no segment: when_nothing_is_appended wants a
//!      |                                             flush or the cleaner, or refuse_unlaid
//!  written     group_written, for each write
//!      | flushed (group.rs), unless write-through or below `power_loss`
//!  durable at its level, and all groups before it are published
//!      | publish: apply_batch
//!      |   apply_record: index, cache; forget_place: the record before it is dead
//!      |   apply_moved: a copy takes over, if the index still names its original
//!  published
//!      | complete_change (group.rs)
//!  acknowledged, and the key's next write goes on
//!
//!  give_back_if_dead: a segment without live records is free once the group is durable.
//! ```

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Key, Level, fault_point, probe};
use stratakv_device::{Block, BlockPart, Class};
use stratakv_engine::{Effects, Error, Reply};
use stratakv_index::{Finger, IndexEntry};

use super::addr::RecordAddress;
use super::batch::{LogRecord, RecordKind, SegmentWriter, Stream};
use super::segments::State;
use super::{Log, LogPlace, Packed};
use crate::group::GroupBuilder;
use crate::place::RecordPlace;
use crate::record::Meta;
use crate::space::{Extent, offset};
use crate::write::{Change, Changed};

/// Most pages of a batch.
pub(crate) const BATCH_PAGES: u32 = 64;
/// Most batches of users' records in a group.
const BATCHES: usize = 4;
/// Segments that users' records leave to those that are moved.
const RESERVED: u32 = 2;

/// A record that waits to be appended.
#[derive(Debug)]
pub(crate) struct Append {
    pub(crate) kind: RecordKind,
    pub(crate) meta: Meta,
    pub(crate) value: Bytes,
    pub(crate) change: Change<Log>,
    pub(crate) level: Level,
}

impl Append {
    pub(crate) fn record(&self) -> LogRecord<'_> {
        LogRecord { kind: self.kind, meta: self.meta, key: self.change.key.encoded(), value: &self.value }
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.record().bytes()
    }
}

/// A record in a batch that is being written.
#[derive(Debug)]
pub(crate) enum Appended {
    /// A user's write.
    Change { change: Change<Log>, addr: RecordAddress },
    /// A copy of a live record.
    Moved(MovedRecord),
}

/// A copy of a live record.
#[derive(Debug)]
pub(crate) struct MovedRecord {
    pub(crate) key: Key,
    /// Where the index had the key when it was copied.
    pub(crate) finger: Option<Finger>,
    pub(crate) what: Moving,
    pub(crate) from: RecordAddress,
    pub(crate) to: RecordAddress,
}

/// What is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moving {
    Value,
    Tombstone,
    /// The record of the blob with this first page.
    Large(u32),
}

/// A batch that is being written.
#[derive(Debug)]
pub(crate) struct AppendedBatch {
    pub(crate) segment: u32,
    pub(crate) appended: Vec<Appended>,
    /// Its first page, and what is being written: users' records are cached from it.
    pub(crate) first: u32,
    pub(crate) pages: Vec<Arc<Block>>,
}

/// Most groups in flight: a group is one write, or two, so many small ones wait for less than few
/// large ones.
const GROUPS_MAX: usize = 8;

/// A group under construction.
pub(crate) type LogGroup = GroupBuilder<AppendedBatch>;

/// A batch under construction.
pub(crate) struct Open {
    stream: Stream,
    segment: u32,
    /// Its first page on the volume.
    first: u32,
    /// Most pages it may take.
    pages_max: u32,
    pub(crate) segment_writer: SegmentWriter,
    pub(crate) sequence: u64,
    pub(crate) appended: Vec<Appended>,
}

impl Packed {
    /// Appends what waits into groups, as long as few are in flight.
    pub(crate) fn seal(&mut self, effects: &mut Effects) {
        if self.placement.cleaner.is_hopeless(self.placement.segments.used()) && !self.checkpoints_give_way() {
            self.refuse_unlaid(effects);
        }
        while self.groups.in_flight() < GROUPS_MAX {
            let mut group_builder = LogGroup::default();
            self.append_queue(&mut group_builder, effects);
            self.clean(&mut group_builder, effects);
            self.append_reclustered(&mut group_builder, effects);
            if group_builder.members.is_empty() {
                return self.when_nothing_is_appended(effects);
            }
            // Copies alone wait for nobody, but what comes after them must not wait for a flush on
            // their account.
            let keep_up = if self.groups.all_durable_when_applied() { Level::PowerLoss } else { Level::ProcessCrash };
            group_builder.level = group_builder.level.or(Some(keep_up));
            self.launch(group_builder, effects);
        }
    }

    /// Appends users' records.
    fn append_queue(&mut self, group_builder: &mut LogGroup, effects: &mut Effects) {
        for _ in 0..BATCHES {
            let Some(bytes) = self.placement.queue.front().map(Append::bytes) else { return };
            let spare = self.spare_segments();
            let begun = self.open_batch(Stream::Hot, bytes);
            if self.placement.cleaner.note(begun.is_none() && spare <= RESERVED) {
                // It had its turn before it was known that writes wait for it, and nothing else may
                // bring the next one.
                effects.more();
            }
            let Some(mut open) = begun else { return };
            while let Some(bytes) = self.placement.queue.front().map(Append::bytes) {
                if !self.make_room(&mut open, bytes, effects) {
                    break;
                }
                let Some(append) = self.placement.queue.pop_front() else { break };
                self.placement.queue_bytes -= bytes as u64;
                group_builder.level = group_builder.level.max(Some(append.level));
                self.append_record(&mut open, append);
            }
            if open.segment_writer.is_empty() {
                // No block to be had.
                return;
            }
            self.fill_up(&mut open, effects);
            self.seal_batch(open, group_builder);
        }
    }

    fn append_record(&mut self, open: &mut Open, append: Append) {
        let mut record = append.record();
        if let RecordKind::Deleted { appended } = &mut record.kind {
            *appended = open.sequence;
        }
        let (bytes, tombstone) = (record.bytes(), matches!(record.kind, RecordKind::Deleted { .. }));
        let addr = RecordAddress::new(open.segment_writer.append(&record), bytes as u32);
        self.placement.segments.add_live(addr, tombstone);
        self.placement.counters.user_bytes += bytes as u64;
        if let Some(pending) = self.keys.pending.get_mut(&append.change.key) {
            pending.placement.appended += 1;
        }
        open.appended.push(Appended::Change { change: append.change, addr });
    }

    /// A batch in the open segment of a stream that has room for a first record of `bytes`, or in a
    /// new segment.
    pub(crate) fn open_batch(&mut self, stream: Stream, bytes: usize) -> Option<Open> {
        let uuid = self.config.uuid;
        let spare = self.spare_segments();
        let needed = SegmentWriter::new(uuid, 0, 0).pages_with(bytes);
        let room = |(_, end): &(u32, u32)| end + needed <= self.placement.segments.pages;
        let (segment, end) = match self.placement.segments.open(stream).filter(room) {
            Some(open) => open,
            None => {
                let reserved = if stream == Stream::Hot { RESERVED } else { 0 };
                if spare <= reserved || self.placement.segments.ready.is_empty() {
                    return None;
                }
                let closed = self.placement.segments.close(stream);
                let next = self.placement.segments.ready.pop_front()?;
                self.placement.segments.set_open(stream, next);
                if let Some(closed) = closed {
                    self.give_back_if_dead(closed, self.groups.applied());
                }
                (next, 0)
            }
        };
        let generation = self.placement.segments.get(segment).generation;
        let (first, pages_max) = (segment * self.placement.segments.pages + end, self.placement.segments.pages - end);
        let sequence = self.next_number();
        Some(Open {
            stream,
            segment,
            first,
            pages_max: pages_max.min(BATCH_PAGES.max(needed)),
            segment_writer: SegmentWriter::new(uuid, first, generation),
            sequence,
            appended: Vec::new(),
        })
    }

    /// Makes room for a record of `bytes` in a batch; false if the batch or the pool is full.
    pub(crate) fn make_room(&mut self, open: &mut Open, bytes: usize, effects: &mut Effects) -> bool {
        let pages = open.segment_writer.pages_with(bytes);
        if pages > open.pages_max {
            return false;
        }
        while open.segment_writer.blocks() < pages {
            let Some(block) = self.take_block(Class::Page, effects) else { return false };
            open.segment_writer.add(block);
        }
        true
    }

    /// Completes a batch: it joins the group.
    pub(crate) fn seal_batch(&mut self, open: Open, group_builder: &mut LogGroup) {
        let mut durable = self.groups.durable_sequence();
        fault_point!("packed_durable_mark_too_high", durable = open.sequence);
        let previous = std::mem::replace(&mut self.placement.last_sequence, open.sequence);
        let blocks = open.segment_writer.seal(open.stream, open.sequence, previous, durable);
        let pages: Vec<Arc<Block>> = blocks.into_iter().map(Arc::new).collect();
        self.placement.counters.batches += 1;
        self.placement.checkpoints.log_bytes += (pages.len() * PAGE_BYTES) as u64;
        if let Some(segment) = self.placement.segments.get_mut(open.segment) {
            segment.end += pages.len() as u32;
            segment.in_flight += 1;
        }
        let parts = pages.iter().map(|block| BlockPart::whole(Arc::clone(block))).collect();
        group_builder.writes.push((open.first, parts));
        let (segment, first) = (open.segment, open.first);
        group_builder.members.push(AppendedBatch { segment, appended: open.appended, first, pages });
    }

    /// Segments that can be opened, or will be soon.
    pub(crate) fn spare_segments(&self) -> u32 {
        self.placement.segments.ready.len() as u32 + self.placement.segments.preparing + self.space.whole_segments()
    }

    /// Records wait, but there is no segment for them: a flush may release one, or the cleaner. If
    /// neither can, they are refused.
    fn when_nothing_is_appended(&mut self, effects: &mut Effects) {
        if self.placement.queue.is_empty() {
            return;
        }
        if self.space.deferred_pages() > 0 {
            self.groups.want(self.space.deferred_waits_for().unwrap_or_default());
        }
        let stuck = self.spare_segments() <= RESERVED
            && self.placement.tables.is_idle()
            && self.space.deferred_pages() == 0
            && self.groups.is_idle()
            && self.placement.cleaner.is_idle()
            && self.placement.segments.emptiest(self.groups.applied()).is_none();
        if stuck && !self.checkpoints_give_way() {
            self.refuse_unlaid(effects);
        }
    }

    /// What waits finds no segment.
    fn refuse_unlaid(&mut self, effects: &mut Effects) {
        self.io.counters.full_refusals += self.placement.queue.len() as u64;
        self.placement.queue_bytes = 0;
        self.placement.cleaner.note(false);
        for append in std::mem::take(&mut self.placement.queue) {
            self.refuse_appended(append, effects);
        }
    }

    fn refuse_appended(&mut self, append: Append, effects: &mut Effects) {
        let key = append.change.key;
        if let RecordPlace::Blob { first, pages } = append.change.place {
            self.blobs.tags.remove(&first);
            self.space.release(Extent { first, pages });
        }
        self.backup_saw_end(&key);
        if let Some(pending) = self.keys.pending.get_mut(&key) {
            pending.outstanding -= 1;
            // What is in flight of the key is older than this: nothing may build on it before it is
            // shown.
            (pending.placement.newest, pending.expiry) = (None, 0);
            pending.place = Some(RecordPlace::Blob { first: 0, pages: 0 });
        }
        if let Some(ack) = append.change.ack {
            let error = Error::Full("what is alive cannot be moved together");
            self.answer(ack.origin, Reply::Failed(error), effects);
        }
        self.wake(&key, effects);
    }

    /// Publishes what a group has made durable, and wakes who waited for it.
    pub(super) fn publish_batches(&mut self, batches: Vec<AppendedBatch>, group: u64, effects: &mut Effects) {
        let mut drained = Vec::new();
        for batch in batches {
            self.apply_batch(batch, group, &mut drained, effects);
        }
        for key in drained {
            self.wake(&key, effects);
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
                Appended::Moved(moved) => self.apply_moved(&moved, group),
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

    fn apply_moved(&mut self, moved: &MovedRecord, group: u64) {
        let MovedRecord { key, what, from, to, .. } = moved;
        let (what, from, to) = (*what, *from, *to);
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
                let mut still = self.index.tree.relocate(moved.finger, key.encoded(), from_bits, to_bits);
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

    /// Gives a segment back if nothing in it is alive: it may be opened again once `group` is
    /// durable.
    pub(crate) fn give_back_if_dead(&mut self, number: u32, group: u64) {
        if !self.placement.segments.is_dead(number) || self.placement.cleaner.holds(number) {
            return;
        }
        self.placement.segments.set_state(number, State::Free);
        self.placement.counters.segments_freed += 1;
        let extent = Extent { first: number * self.placement.segments.pages, pages: self.placement.segments.pages };
        fault_point!("segment_reused_before_its_successors_are_durable", return self.space.release(extent));
        self.space.release_after(group, extent);
    }
}

const _: () = assert!(BATCH_PAGES as usize * PAGE_BYTES <= 1 << 20);
