//! Commit groups of pages: dirty images and heads of blobs go to free pages, and of cleared blobs
//! the first page is overwritten.

use std::collections::VecDeque;
use std::sync::Arc;

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Key, Level, fault_point};
use stratakv_device::{Block, BlockPart};
use stratakv_engine::Effects;

use super::page::{self, PageHeader};
use super::table::NOWHERE;
use super::{InPlace, Slab, SlotPlace};
use crate::blob;
use crate::blob_write::ReadyBlob;
use crate::group::GroupBuilder;
use crate::place::RecordPlace;
use crate::space::Extent;
use crate::write::{Change, Changed};

/// Most groups in flight: a page waits for its own write, not for the slowest of many others.
const GROUPS_MAX: usize = 8;
/// Most pages in one group.
const PAGES_MAX: usize = 64;
/// Most pages in one write.
const WRITE_PAGES_MAX: usize = 64;

/// What waits for the next group.
#[derive(Debug, Default)]
pub(crate) struct Unsealed {
    /// Logical pages with a dirty image and none being written.
    pub(crate) pages: VecDeque<u32>,
    pub(crate) blobs: VecDeque<ReadyBlob<InPlace>>,
    pub(crate) blob_tombstones: VecDeque<BlobTombstone>,
}

impl Unsealed {
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.blobs.is_empty() && self.blob_tombstones.is_empty()
    }
}

/// A blob whose first page says from now on that it is cleared.
#[derive(Debug)]
pub(crate) struct BlobTombstone {
    pub(crate) block: Block,
    pub(crate) change: Change<InPlace>,
    pub(crate) level: Level,
}

/// What a group makes durable.
#[derive(Debug)]
pub(crate) enum Member {
    Page { logical: u32, place: u32, sequence: u64, changes: Vec<Change<InPlace>> },
    Blob { change: Change<InPlace> },
    BlobTombstone { change: Change<InPlace> },
}

/// A group under construction: neighbouring pages go out together.
#[derive(Default)]
struct Sealing {
    group: GroupBuilder<Member>,
    next: u32,
}

impl Sealing {
    fn page(&mut self, place: u32, part: BlockPart) {
        match self.group.writes.last_mut() {
            Some((_, parts)) if place == self.next && parts.len() < WRITE_PAGES_MAX => parts.push(part),
            _ => self.group.writes.push((place, vec![part])),
        }
        self.next = place + 1;
    }

    fn alone(&mut self, place: u32, parts: Vec<BlockPart>) {
        self.group.writes.push((place, parts));
        self.next = NOWHERE;
    }
}

impl Slab {
    /// Queues the clearing of a blob.
    pub(crate) fn write_blob_tombstone(&mut self, block: Block, change: Change<InPlace>, level: Level) {
        self.placement.unsealed.blob_tombstones.push_back(BlobTombstone { block, change, level });
    }

    /// Seals what is dirty into groups, as long as few are in flight.
    pub(crate) fn seal(&mut self, effects: &mut Effects) {
        while self.groups.in_flight() < GROUPS_MAX && !self.placement.unsealed.is_empty() {
            let mut sealing = Sealing::default();
            self.seal_pages(&mut sealing);
            self.seal_blobs(&mut sealing);
            if sealing.group.members.is_empty() {
                // No free page to write to: wait for the deferred free list to be released.
                self.groups.want(self.space.deferred_waits_for().unwrap_or_default());
                return;
            }
            self.launch(sealing.group, effects);
        }
    }

    fn seal_pages(&mut self, sealing: &mut Sealing) {
        while sealing.group.writes.len() < self.config.depth.max(1) as usize && sealing.group.members.len() < PAGES_MAX
        {
            let Some(logical) = self.placement.unsealed.pages.pop_front() else { return };
            let Some(dirty) = self.placement.images.get_mut(&logical).and_then(|image| image.dirty.take()) else {
                continue;
            };
            let Some(place) = self.space.take_page() else {
                if let Some(image) = self.placement.images.get_mut(&logical) {
                    image.dirty = Some(dirty);
                }
                return self.placement.unsealed.pages.push_front(logical);
            };
            let sequence = self.next_number();
            let mut block = dirty.block;
            let class = page::class_of(&block);
            let mut durable = self.groups.durable_sequence();
            fault_point!("durable_mark_too_high", durable = sequence);
            let header = PageHeader { class, logical, sequence, durable };
            page::seal(&mut block, &self.config.uuid, place, &header);
            let block = Arc::new(block);
            if let Some(image) = self.placement.images.get_mut(&logical) {
                image.writing = Some(Arc::clone(&block));
            }
            let mut was_unplaced = self.placement.table.get(logical).is_some_and(|page| page.place == NOWHERE);
            fault_point!("promised_pages_stay", was_unplaced = false);
            if was_unplaced {
                self.placement.unplaced_pages -= 1;
            }
            sealing.group.level = sealing.group.level.max(Some(dirty.level));
            sealing.page(place, BlockPart::whole(block));
            sealing.group.members.push(Member::Page { logical, place, sequence, changes: dirty.changes });
        }
    }

    fn seal_blobs(&mut self, sealing: &mut Sealing) {
        let depth = self.config.depth.max(1) as usize;
        while sealing.group.writes.len() < depth
            && let Some(blob) = self.placement.unsealed.blobs.pop_front()
        {
            sealing.group.level = sealing.group.level.max(Some(blob.level));
            let sequence = self.next_number();
            let first = blob.first;
            let mut has_body = blob.has_body();
            fault_point!("head_written_through_before_its_body", has_body = false);
            sealing.group.has_body |= has_body;
            let (parts, change) = blob.seal(&self.config.uuid, (sequence, self.groups.durable_sequence()));
            sealing.alone(first, parts);
            sealing.group.members.push(Member::Blob { change });
        }
        while sealing.group.writes.len() < depth
            && let Some(blob_tombstone) = self.placement.unsealed.blob_tombstones.pop_front()
        {
            let RecordPlace::Blob { first, .. } = blob_tombstone.change.place else { continue };
            sealing.group.level = sealing.group.level.max(Some(blob_tombstone.level));
            let mut block = blob_tombstone.block;
            blob::write_tombstone(&self.config.uuid, first, &mut block);
            let part = BlockPart { block: Arc::new(block), start: 0, len: PAGE_BYTES as u32 };
            sealing.alone(first, vec![part]);
            sealing.group.members.push(Member::BlobTombstone { change: blob_tombstone.change });
        }
    }

    /// Publishes what a group has made durable.
    pub(crate) fn publish_members(&mut self, members: Vec<Member>, group: u64, effects: &mut Effects) {
        let mut drained: Vec<Key> = Vec::new();
        let copies = self.placement.obsolete.len();
        for member in members {
            match member {
                Member::Page { logical, place, sequence, changes } => {
                    self.page_durable(logical, place, sequence, group);
                    for change in changes {
                        self.apply_change(change, group, &mut drained, effects);
                    }
                }
                Member::Blob { change } | Member::BlobTombstone { change } => {
                    self.apply_change(change, group, &mut drained, effects);
                }
            }
        }
        for key in drained {
            self.wake(&key, effects);
        }
        if self.placement.obsolete.len() < copies {
            self.wake_space_waiters(effects);
        }
    }

    fn page_durable(&mut self, logical: u32, place: u32, sequence: u64, group: u64) {
        let old = self.placement.table.place(logical, place, sequence);
        if old != NOWHERE {
            self.release_page(old, group);
        }
        let Some(image) = self.placement.images.get_mut(&logical) else { return };
        if let Some(block) = image.writing.take() {
            self.placement.cache.0.insert(u64::from(logical), block);
        }
        if image.dirty.is_some() {
            self.placement.unsealed.pages.push_back(logical);
        } else {
            self.placement.images.remove(&logical);
        }
    }

    /// A page that was written elsewhere is free once `group` is durable.
    fn release_page(&mut self, place: u32, group: u64) {
        fault_point!("free_before_the_new_copy_is_durable", return self.space.release(Extent::page(place)));
        self.space.release_after(group, Extent::page(place));
    }

    fn apply_change(&mut self, change: Change<InPlace>, group: u64, drained: &mut Vec<Key>, effects: &mut Effects) {
        match change.kind {
            Changed::Put => {
                if let Some(old) = self.publish(&change) {
                    self.placement.obsolete.add(&change.key, old, group);
                }
                self.placement.obsolete.release(&change.key, group);
            }
            Changed::Delete => {
                self.unpublish(&change.key);
                self.blob_cleared(change.place, group);
            }
            Changed::Clear => {
                self.blob_cleared(change.place, group);
                return self.obsolete_cleared(&change.key, change.place, drained);
            }
        }
        self.complete_change(change, drained, effects);
    }

    fn blob_cleared(&mut self, place: SlotPlace, group: u64) {
        if let RecordPlace::Blob { first, pages } = place {
            self.release_blob(Extent { first, pages }, group);
        }
    }
}
