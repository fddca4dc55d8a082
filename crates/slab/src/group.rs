//! Commit groups of both placements: what is dirty is sealed, written, flushed if asked, then
//! becomes the durable state.
//!
//! Groups of `in_place` have dirty pages and heads of blobs, which go to free pages, and cleared
//! blobs, whose first page is overwritten. `packed` fills its groups in `packed/append.rs` and
//! publishes them in `packed/apply.rs`; numbers, writes, flushes and the order are kept here.

use std::collections::VecDeque;
use std::sync::Arc;

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Key, Level, fault_point};
use stratakv_device::{Block, BlockPart, IoFault};
use stratakv_engine::{Effects, Error, Reply};
use stratakv_index::IndexEntry;

use crate::blob_write::ReadyBlob;
use crate::packed::append::AppendedBatch;
use crate::packed::clean::LOW;
use crate::page::{self, PageHeader};
use crate::place::RecordPlace;
use crate::slab::{Clearing, IoPurpose, ObsoleteCopy, Slab};
use crate::space::Extent;
use crate::table::NOWHERE;
use crate::write::{Change, Changed};

/// Most groups in flight.
const GROUPS_MAX: usize = 2;
/// Of placement `packed`: a group is one write there, or two, so many small ones wait for less than
/// few large ones.
pub(crate) const PACKED_GROUPS_MAX: usize = 8;
/// Most pages in one group.
const PAGES_MAX: usize = 256;
/// Most pages in one write.
const WRITE_PAGES_MAX: usize = 64;
/// Pages deferred at which a flush is made for their sake.
const DEFERRED_PAGES: u32 = 256;

/// A blob whose first page says from now on that it is cleared.
#[derive(Debug)]
pub(crate) struct BlobTombstone {
    pub(crate) block: Block,
    pub(crate) change: Change,
    pub(crate) level: Level,
}

/// What a group makes durable.
#[derive(Debug)]
pub(crate) enum Member {
    /// Placement `packed`.
    Batch(AppendedBatch),
    Page {
        logical: u32,
        place: u32,
        sequence: u64,
        changes: Vec<Change>,
    },
    Blob {
        change: Change,
    },
    BlobTombstone {
        change: Change,
    },
}

#[derive(Debug)]
struct Group {
    number: u64,
    last_sequence: u64,
    writes_left: u32,
    /// Not acknowledged before a flush covers it.
    needs_flush: bool,
    /// Durable as soon as it is written.
    writes_through: bool,
    members: Vec<Member>,
}

/// The groups of a shard, and what waits for the next one.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Logical pages with a dirty image and none being written.
    queue: VecDeque<u32>,
    blobs: VecDeque<ReadyBlob>,
    blob_tombstones: VecDeque<BlobTombstone>,
    in_flight: VecDeque<Group>,
    /// Numbers: the last one sealed, applied, durable.
    sealed: u64,
    applied: u64,
    durable: u64,
    applied_sequence: u64,
    durable_sequence: u64,
    /// The flush in flight covers groups up to this number, whose last sequence is this.
    flushing: Option<(u64, u64)>,
    /// Groups up to this number have been flushed.
    flushed: u64,
    /// Somebody waits for this group to be durable.
    wanted: u64,
}

impl Groups {
    /// No groups yet; every sequence up to `durable_sequence` is durable.
    pub(crate) fn new(durable_sequence: u64) -> Groups {
        Groups { durable_sequence, applied_sequence: durable_sequence, ..Groups::default() }
    }
    pub(crate) fn durable_sequence(&self) -> u64 {
        self.durable_sequence
    }
    pub(crate) fn queue(&mut self, logical: u32) {
        self.queue.push_back(logical);
    }
    pub(crate) fn add_blob(&mut self, blob: ReadyBlob) {
        self.blobs.push_back(blob);
    }
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }
    pub(crate) fn applied_sequence(&self) -> u64 {
        self.applied_sequence
    }
    pub(crate) fn sealed(&self) -> u64 {
        self.sealed
    }
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
    /// Asks for a flush that makes `group` durable.
    pub(crate) fn want(&mut self, group: u64) {
        self.wanted = self.wanted.max(group);
    }
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
            && self.queue.is_empty()
            && self.blobs.is_empty()
            && self.blob_tombstones.is_empty()
            && self.flushing.is_none()
    }
    fn has_work(&self) -> bool {
        !(self.queue.is_empty() && self.blobs.is_empty() && self.blob_tombstones.is_empty())
    }
    /// Whether every group so far is durable, or will be before it is applied.
    pub(crate) fn all_durable_when_applied(&self) -> bool {
        fault_point!("write_through_covers_everything", return true);
        self.durable == self.applied && self.in_flight.iter().all(|group| group.needs_flush || group.writes_through)
    }
    /// The last group such that it and all before it are written.
    fn written(&self) -> (u64, u64) {
        let written = self.in_flight.iter().take_while(|group| group.writes_left == 0).last();
        written.map_or((self.applied, self.applied_sequence), |group| (group.number, group.last_sequence))
    }
}

/// Writes of a group under construction: neighbouring pages go out together.
#[derive(Default)]
struct Batch {
    writes: Vec<(u32, Vec<BlockPart>)>,
    next: u32,
    /// Contains the head of a blob whose other slices were written earlier.
    has_body: bool,
}

impl Batch {
    fn page(&mut self, place: u32, part: BlockPart) {
        match self.writes.last_mut() {
            Some((_, parts)) if place == self.next && parts.len() < WRITE_PAGES_MAX => parts.push(part),
            _ => self.writes.push((place, vec![part])),
        }
        self.next = place + 1;
    }

    fn alone(&mut self, place: u32, parts: Vec<BlockPart>) {
        self.writes.push((place, parts));
        self.next = NOWHERE;
    }
}

impl Slab {
    /// Queues the clearing of a blob.
    pub(crate) fn write_blob_tombstone(&mut self, block: Block, change: Change, level: Level) {
        self.groups.blob_tombstones.push_back(BlobTombstone { block, change, level });
    }

    /// Seals what is dirty into a group, if fewer than two are in flight.
    pub(crate) fn seal(&mut self, effects: &mut Effects) {
        if self.packed.is_some() {
            return self.seal_packed(effects);
        }
        while self.groups.in_flight.len() < GROUPS_MAX && self.groups.has_work() {
            let mut batch = Batch::default();
            let mut members = Vec::new();
            let mut level = Level::ProcessCrash;
            self.seal_pages(&mut batch, &mut members, &mut level);
            self.seal_blobs(&mut batch, &mut members, &mut level);
            if members.is_empty() {
                // No free page to write to: wait for the deferred free list to be released.
                self.groups.want(self.space.deferred_waits_for().unwrap_or_default());
                return;
            }
            self.launch(batch.writes, members, level, batch.has_body, effects);
        }
    }

    /// Submits the writes of a group. `has_body`: it relies on slices of a blob that were written
    /// before.
    pub(crate) fn launch(
        &mut self,
        writes: Vec<(u32, Vec<BlockPart>)>,
        members: Vec<Member>,
        level: Level,
        has_body: bool,
        effects: &mut Effects,
    ) {
        self.groups.sealed += 1;
        self.counters.groups += 1;
        let number = self.groups.sealed;
        let volatile = self.config.geometry.volatile_cache;
        let mut needs_flush = volatile && level == Level::PowerLoss;
        fault_point!("no_flush", needs_flush = false);
        // Write-through covers its own writes only: not the slices of a blob that were written
        // before, nor groups that were acknowledged without a flush, on which this one may rely. It
        // saves a tick; many writes are cheaper with one flush. (`packed`: users' records and
        // copies are two, and as a rule all.)
        let through_max = if self.packed.is_some() { 2 } else { 1 };
        let through = needs_flush && writes.len() <= through_max && !has_body && self.groups.all_durable_when_applied();
        self.groups.in_flight.push_back(Group {
            number,
            last_sequence: self.counter,
            writes_left: writes.len() as u32,
            needs_flush: needs_flush && !through,
            writes_through: through || !volatile,
            members,
        });
        for (place, parts) in writes {
            self.counters.page_writes += 1;
            self.counters.write_bytes += parts.iter().map(|part| u64::from(part.len)).sum::<u64>();
            let io = self.io.start(IoPurpose::Group { number });
            effects.write(io, Self::offset(place), parts, through);
        }
    }

    fn seal_pages(&mut self, batch: &mut Batch, members: &mut Vec<Member>, level: &mut Level) {
        while batch.writes.len() < self.config.depth.max(1) as usize && members.len() < PAGES_MAX {
            let Some(logical) = self.groups.queue.pop_front() else { return };
            let Some(dirty) = self.images.get_mut(&logical).and_then(|image| image.dirty.take()) else { continue };
            let Some(place) = self.space.take_page() else {
                if let Some(image) = self.images.get_mut(&logical) {
                    image.dirty = Some(dirty);
                }
                return self.groups.queue.push_front(logical);
            };
            let sequence = self.next_number();
            let mut block = dirty.block;
            let class = page::class_of(&block);
            let mut durable = self.groups.durable_sequence;
            fault_point!("durable_mark_too_high", durable = sequence);
            let header = PageHeader { class, logical, sequence, durable };
            page::seal(&mut block, &self.config.uuid, place, &header);
            let block = Arc::new(block);
            if let Some(image) = self.images.get_mut(&logical) {
                image.writing = Some(Arc::clone(&block));
            }
            let mut was_unplaced = self.table.get(logical).is_some_and(|page| page.place == NOWHERE);
            fault_point!("promised_pages_stay", was_unplaced = false);
            if was_unplaced {
                self.unplaced_pages -= 1;
            }
            *level = (*level).max(dirty.level);
            batch.page(place, BlockPart::whole(block));
            members.push(Member::Page { logical, place, sequence, changes: dirty.changes });
        }
    }

    fn seal_blobs(&mut self, batch: &mut Batch, members: &mut Vec<Member>, level: &mut Level) {
        let depth = self.config.depth.max(1) as usize;
        while batch.writes.len() < depth
            && let Some(blob) = self.groups.blobs.pop_front()
        {
            *level = (*level).max(blob.level);
            let sequence = self.next_number();
            let first = blob.first;
            let mut has_body = blob.has_body();
            fault_point!("head_written_through_before_its_body", has_body = false);
            batch.has_body |= has_body;
            let (parts, change) = blob.seal(&self.config.uuid, (sequence, self.groups.durable_sequence));
            batch.alone(first, parts);
            members.push(Member::Blob { change });
        }
        while batch.writes.len() < depth
            && let Some(blob_tombstone) = self.groups.blob_tombstones.pop_front()
        {
            let RecordPlace::Blob { first, .. } = blob_tombstone.change.place else { continue };
            *level = (*level).max(blob_tombstone.level);
            let mut block = blob_tombstone.block;
            crate::blob::write_tombstone(&self.config.uuid, first, &mut block);
            let part = BlockPart { block: Arc::new(block), start: 0, len: PAGE_BYTES as u32 };
            batch.alone(first, vec![part]);
            members.push(Member::BlobTombstone { change: blob_tombstone.change });
        }
    }

    /// A write of a group is done.
    pub(crate) fn group_written(&mut self, number: u64, result: Result<(), IoFault>, effects: &mut Effects) {
        if let Err(fault) = result {
            return self.poison(fault, "a page could not be written", effects);
        }
        if let Some(group) = self.groups.in_flight.iter_mut().find(|group| group.number == number) {
            group.writes_left -= 1;
        }
        self.apply_groups(effects);
    }

    /// Submits a flush, unless one is in flight: who is refused asks again in the next tick.
    ///
    /// Two at once would hide a failure. What a flush that failed has lost is not known before it
    /// is heard of, and one that overlapped it may succeed, be heard of first and be believed.
    pub(crate) fn submit_flush(&mut self, purpose: IoPurpose, effects: &mut Effects) -> bool {
        if self.is_flushing {
            return false;
        }
        self.is_flushing = true;
        self.counters.flushes += 1;
        effects.flush(self.io.start(purpose));
        true
    }

    /// Submits a flush if a written group, the deferred free list, a Sync or a clearing waits for
    /// one.
    pub(crate) fn pump_flush(&mut self, effects: &mut Effects) {
        if self.groups.flushing.is_some() || self.poisoned.is_some() {
            return;
        }
        if let Some(target) = self.pending_acks.back().map(|pending_ack| pending_ack.group) {
            self.groups.want(target);
        }
        let short = self.packed.is_some() && self.space.deferred_pages() > 0 && self.spare_segments() <= LOW;
        let waited_for = self.space.deferred_pages() > 0 && self.waits_for_space();
        if short || waited_for || self.space.deferred_pages() >= DEFERRED_PAGES {
            self.groups.want(self.space.deferred_waits_for().unwrap_or_default());
        }
        let (mut covers, sequence) = self.groups.written();
        fault_point!("flush_covers_writes_in_flight", covers = self.groups.sealed);
        let waiting = self.groups.in_flight.iter().take_while(|group| group.writes_left == 0);
        let needed = waiting.into_iter().any(|group| group.needs_flush && group.number > self.groups.flushed);
        let wanted = self.groups.wanted > self.groups.durable && covers > self.groups.durable;
        let needed = needed || wanted || self.blobs_want_flush();
        if needed && self.submit_flush(IoPurpose::Flush { covers }, effects) {
            self.blobs_flushing();
            self.groups.flushing = Some((covers, sequence));
        }
    }

    /// A flush is done.
    pub(crate) fn flushed(&mut self, covers: u64, result: Result<(), IoFault>, effects: &mut Effects) {
        let sequence = self.groups.flushing.take().map_or(0, |(_, sequence)| sequence);
        if let Err(fault) = result {
            return self.poison(fault, "a flush failed", effects);
        }
        if self.poisoned.is_some() {
            return;
        }
        self.groups.flushed = self.groups.flushed.max(covers);
        self.blobs_flushed();
        self.apply_groups(effects);
        if covers > self.groups.durable {
            self.groups.durable = covers;
            self.groups.durable_sequence = sequence;
        }
        self.release_deferred(effects);
    }

    /// Publishes the groups that are durable at their level, in order.
    fn apply_groups(&mut self, effects: &mut Effects) {
        let durable = self.groups.durable;
        while let Some(group) = self.groups.in_flight.front() {
            let mut written = group.writes_left == 0;
            fault_point!("group_half_applied", written = group.writes_left <= 1);
            let mut ready = written && (!group.needs_flush || group.number <= self.groups.flushed);
            fault_point!("acknowledge_before_completion", ready = true);
            if !ready {
                break;
            }
            let Some(group) = self.groups.in_flight.pop_front() else { break };
            self.apply(group, effects);
        }
        if self.groups.durable != durable {
            self.release_deferred(effects);
        }
    }

    fn apply(&mut self, group: Group, effects: &mut Effects) {
        self.groups.applied = group.number;
        self.groups.applied_sequence = group.last_sequence;
        if group.writes_through && self.groups.durable + 1 == group.number {
            self.groups.durable = group.number;
            self.groups.durable_sequence = group.last_sequence;
        }
        let mut drained: Vec<Key> = Vec::new();
        let copies = self.obsolete.len();
        for member in group.members {
            match member {
                Member::Batch(batch) => self.apply_batch(batch, group.number, &mut drained, effects),
                Member::Page { logical, place, sequence, changes } => {
                    self.page_durable(logical, place, sequence, group.number);
                    for change in changes {
                        self.apply_change(change, group.number, &mut drained, effects);
                    }
                }
                Member::Blob { change } | Member::BlobTombstone { change } => {
                    self.apply_change(change, group.number, &mut drained, effects);
                }
            }
        }
        for key in drained {
            self.wake(&key, effects);
        }
        if self.obsolete.len() < copies {
            self.wake_space_waiters(effects);
        }
    }

    fn page_durable(&mut self, logical: u32, place: u32, sequence: u64, group: u64) {
        let old = self.table.place(logical, place, sequence);
        if old != NOWHERE {
            self.release_page(old, group);
        }
        let Some(image) = self.images.get_mut(&logical) else { return };
        if let Some(block) = image.writing.take() {
            self.cache.0.insert(u64::from(logical), block);
        }
        if image.dirty.is_some() {
            self.groups.queue(logical);
        } else {
            self.images.remove(&logical);
        }
    }

    /// A page that was written elsewhere is free once `group` is durable.
    fn release_page(&mut self, place: u32, group: u64) {
        fault_point!("free_before_the_new_copy_is_durable", return self.space.release(Extent::page(place)));
        self.space.release_after(group, Extent::page(place));
    }

    pub(crate) fn apply_change(&mut self, change: Change, group: u64, drained: &mut Vec<Key>, effects: &mut Effects) {
        match change.kind {
            Changed::Put => {
                if let Some(old) = self.publish(&change) {
                    match self.packed {
                        Some(_) => self.forget_place(old, group),
                        None => self.add_obsolete(&change.key, old, group),
                    }
                }
                self.release(&change.key, group);
            }
            Changed::Delete => {
                if let Some(old) = self.index.0.remove(change.key.encoded()) {
                    self.expiring -= u64::from(old.expiry != 0);
                    if self.packed.is_some() {
                        self.forget_place(RecordPlace::from_bits(old.place), group);
                    }
                }
                self.blob_cleared(change.place, group);
            }
            Changed::Clear => {
                self.blob_cleared(change.place, group);
                return self.obsolete_cleared(&change.key, change.place, drained);
            }
        }
        self.complete_change(change, drained, effects);
    }

    /// Puts a change into the index; the place of the record before it, if that is another one.
    pub(crate) fn publish(&mut self, change: &Change) -> Option<RecordPlace> {
        let entry = IndexEntry { place: change.place.to_bits(), expiry: change.expiry };
        let old = self.index.0.insert(change.key.encoded(), entry);
        self.expiring += u64::from(entry.expiry != 0);
        if let RecordPlace::Blob { pages, .. } = change.place {
            self.blob_pages += u64::from(pages);
        }
        let old = old?;
        self.expiring -= u64::from(old.expiry != 0);
        if old.place == entry.place {
            return None;
        }
        fault_point!("stale_index_after_class_change", self.index.0.insert(change.key.encoded(), old));
        Some(RecordPlace::from_bits(old.place))
    }

    /// A change is published: answers it, and releases its key.
    pub(crate) fn complete_change(&mut self, change: Change, drained: &mut Vec<Key>, effects: &mut Effects) {
        let key = change.key;
        if let Some(ack) = change.ack {
            self.answer(ack.origin, ack.reply, effects);
        }
        self.backup_saw_end(&key);
        if let Some(pending) = self.pending.get_mut(&key) {
            pending.outstanding -= 1;
            if pending.outstanding == 0 && matches!(pending.wait, None | Some(crate::write::Wait::Drain)) {
                drained.push(key);
            }
        }
    }

    /// Notes an older copy of `key`, to be cleared once `group` is durable.
    fn add_obsolete(&mut self, key: &Key, place: RecordPlace, group: u64) {
        let copy = ObsoleteCopy { place, clearing: Clearing::Queued, after: group };
        self.obsolete.entry(key.clone()).or_default().push(copy);
        self.obsolete_queue.push_back((key.clone(), place));
    }

    fn blob_cleared(&mut self, place: RecordPlace, mut group: u64) {
        fault_point!("run_freed_before_it_is_cleared", group = 0);
        if let RecordPlace::Blob { first, pages } = place {
            self.blob_pages -= u64::from(pages);
            self.blob_tags.remove(&first);
            self.space.release_after(group, Extent { first, pages });
        }
    }

    /// Frees what waited for durability; whoever waits for space tries again.
    pub(crate) fn release_deferred(&mut self, effects: &mut Effects) {
        let (reads, blobs, log) = (&self.reads, &self.blob_reads, self.packed.as_ref().map(|packed| &packed.reads));
        let before = self.space.free_pages();
        self.space.release_durable(self.groups.durable, |extent| {
            fault_point!("reuse_a_page_with_a_read_in_flight", return false);
            reads.pins(extent) || blobs.pins(extent) || log.is_some_and(|log| log.pins(extent))
        });
        if self.space.free_pages() != before {
            self.space_came(effects);
        }
    }

    /// A write or flush failed: what is on the medium is not known any more. Everything under way
    /// is answered, nothing is written again until the volume is reopened; reads go on from the
    /// durable state.
    pub(crate) fn poison(&mut self, fault: IoFault, what: &'static str, effects: &mut Effects) {
        if self.poisoned.is_some() {
            return;
        }
        tracing::error!(%fault, shard = self.config.shard, "{what}: the volume takes no more writes");
        self.poisoned = Some(fault);
        let mut unknown: Vec<Change> = Vec::new();
        for group in std::mem::take(&mut self.groups.in_flight) {
            for member in group.members {
                match member {
                    Member::Batch(batch) => unknown.extend(Self::unknown_changes(batch)),
                    Member::Page { changes, .. } => unknown.extend(changes),
                    Member::Blob { change } | Member::BlobTombstone { change } => unknown.push(change),
                }
            }
        }
        let mut unwritten: Vec<Change> = Vec::new();
        for (_, image) in self.images.drain() {
            unwritten.extend(image.dirty.into_iter().flat_map(|dirty| dirty.changes));
        }
        unwritten.extend(std::mem::take(&mut self.groups.blobs).into_iter().map(|blob| blob.change));
        unwritten.extend(
            std::mem::take(&mut self.groups.blob_tombstones).into_iter().map(|blob_tombstone| blob_tombstone.change),
        );
        unwritten.extend(self.abandon_blob_writes());
        self.groups.queue.clear();
        let refused = || Reply::Failed(Error::Poisoned(fault));
        let acks = unknown.into_iter().map(|change| (change.ack, Reply::Failed(Error::Unknown(what))));
        for (ack, reply) in acks.chain(unwritten.into_iter().map(|change| (change.ack, refused()))) {
            if let Some(ack) = ack {
                self.answer(ack.origin, reply, effects);
            }
        }
        self.abandon_packed(effects, &refused);
        let waiting: Vec<_> = self.pending.drain().flat_map(|(_, pending)| pending.queue).collect();
        for work in waiting {
            self.answer(work.origin, refused(), effects);
        }
        self.space_waiters.clear();
        self.block_waiters.clear();
        self.obsolete_queue.clear();
        self.fail_ranges(&Error::Poisoned(fault), effects);
        self.send_pending_acks(effects);
    }
}
