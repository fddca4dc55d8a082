//! Older copies of records, and how they are cleared.
//!
//! A record that changes class or grows into a blob leaves its old copy behind. The copy may be
//! cleared only when the new one is durable, and a key may be deleted only when all its older
//! copies have been cleared durably: else a crash would bring one back.

use std::collections::VecDeque;

use foldhash::HashMap;
use smallvec::SmallVec;
use stratakv_base::{Key, Level, fault_point};
use stratakv_device::{Block, Class, IoFault};
use stratakv_engine::{Effects, Error};

use super::read::PageWaiter;
use super::{PageIoPurpose, PageWait, Slab, SlotAddress, SlotPlace};
use crate::blob;
use crate::keys::Wait;
use crate::place::RecordPlace;
use crate::requests::IoPurpose;
use crate::space::offset;
use crate::write::{Change, Changed};

/// Older copies looked at per tick.
const COPIES_PER_TICK: usize = 16;

/// An older copy.
#[derive(Clone, Copy, Debug)]
struct ObsoleteCopy {
    place: SlotPlace,
    clearing: Clearing,
    /// The group that made it stale; it may be cleared once that is durable.
    after: u64,
}

/// How far the clearing of an older copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clearing {
    /// To be done.
    Queued,
    Requested,
    /// It could not be read; tried again when a delete or space needs it.
    Unreadable,
    /// Not before the key is deleted: its newest record is damaged, this may be the last one that
    /// can be saved.
    Kept,
}

/// Older copies of records that are still on the medium.
#[derive(Debug, Default)]
pub(crate) struct ObsoleteCopies {
    of: HashMap<Key, SmallVec<[ObsoleteCopy; 1]>>,
    /// To be cleared, in order.
    pub(crate) queue: VecDeque<(Key, SlotPlace)>,
}

impl ObsoleteCopies {
    /// Keys with older copies.
    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub(crate) fn has(&self, key: &Key) -> bool {
        self.of.contains_key(key)
    }

    /// Every copy, with its key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, SlotPlace)> {
        self.of.iter().flat_map(|(key, copies)| copies.iter().map(move |copy| (key, copy.place)))
    }

    /// Notes an older copy of `key`, to be cleared once `group` is durable.
    pub(crate) fn add(&mut self, key: &Key, place: SlotPlace, group: u64) {
        let copy = ObsoleteCopy { place, clearing: Clearing::Queued, after: group };
        self.of.entry(key.clone()).or_default().push(copy);
        self.queue.push_back((key.clone(), place));
    }

    /// Notes a copy beside a damaged record, which is to be kept.
    pub(crate) fn keep(&mut self, key: Key, place: SlotPlace) {
        self.of.entry(key).or_default().push(ObsoleteCopy { place, clearing: Clearing::Kept, after: 0 });
    }

    /// The damaged record of `key` is replaced once `group` is durable: its older copies need not
    /// be kept any longer.
    pub(crate) fn release(&mut self, key: &Key, group: u64) {
        let kept = |copy: &&mut ObsoleteCopy| copy.clearing == Clearing::Kept;
        for copy in self.of.get_mut(key).into_iter().flatten().filter(kept) {
            (copy.clearing, copy.after) = (Clearing::Queued, group);
            self.queue.push_back((key.clone(), copy.place));
        }
    }

    fn copy_mut(&mut self, key: &Key, place: SlotPlace) -> Option<&mut ObsoleteCopy> {
        self.of.get_mut(key)?.iter_mut().find(|copy| copy.place == place)
    }

    fn set_clearing(&mut self, key: &Key, place: SlotPlace, clearing: Clearing) {
        fault_point!("space_waiters_are_not_told", clearing == Clearing::Unreadable, return);
        if let Some(copy) = self.copy_mut(key, place) {
            copy.clearing = clearing;
        }
    }

    fn clear_later(&mut self, key: &Key, place: SlotPlace) {
        self.set_clearing(key, place, Clearing::Queued);
        self.queue.push_back((key.clone(), place));
    }
}

impl Slab {
    /// Clears a bounded number of older copies.
    pub(crate) fn pump_obsolete(&mut self, effects: &mut Effects) {
        let mut left = COPIES_PER_TICK.max((self.placement.obsolete.queue.len() / 8).min(4 * COPIES_PER_TICK));
        while left > 0 {
            let Some((key, place)) = self.placement.obsolete.queue.pop_front() else { return };
            let copies = self.placement.obsolete.of.get(&key);
            let copy = copies.and_then(|copies| copies.iter().find(|copy| copy.place == place));
            let Some(copy) = copy.filter(|copy| copy.clearing == Clearing::Queued) else { continue };
            let mut is_needed = copy.after > self.groups.durable();
            fault_point!("older_copy_cleared_too_early", is_needed = false);
            if is_needed {
                // Without a flush nothing could ever be cleared; one is made when it pays, or when
                // space is short.
                if self.placement.obsolete.queue.len() >= COPIES_PER_TICK || self.waits_for_space() {
                    self.groups.want(copy.after);
                }
                self.placement.obsolete.queue.push_front((key, place));
                return;
            }
            self.clear_copy(&key, place, effects);
            left -= 1;
        }
        if self.waits_for_space() {
            effects.more();
        }
    }

    /// A delete waits for the older copies of `key`.
    pub(crate) fn request_clears(&mut self, key: &Key, effects: &mut Effects) {
        let copies: Vec<_> = self.placement.obsolete.of.get(key).into_iter().flatten().copied().collect();
        for copy in copies.into_iter().filter(|copy| copy.clearing != Clearing::Requested) {
            if copy.after > self.groups.durable() {
                // Cleared by pump_obsolete after the flush.
                self.groups.want(copy.after);
            } else {
                self.clear_copy(key, copy.place, effects);
            }
        }
    }

    /// Whether clearing older copies will give space back: else those that could not be read are
    /// queued once more, for later.
    pub(crate) fn clears_give_space(&mut self) -> bool {
        let copies =
            self.placement.obsolete.of.iter().flat_map(|(key, copies)| copies.iter().map(move |copy| (key, copy)));
        if copies.clone().any(|(_, copy)| matches!(copy.clearing, Clearing::Queued | Clearing::Requested)) {
            return true;
        }
        let unreadable = copies.filter(|(_, copy)| copy.clearing == Clearing::Unreadable);
        let again: Vec<_> = unreadable.map(|(key, copy)| (key.clone(), copy.place)).collect();
        for (key, place) in again {
            self.placement.obsolete.clear_later(&key, place);
        }
        false
    }

    /// Clears one older copy: its slot in a dirty image, or its blob's first page.
    pub(crate) fn clear_copy(&mut self, key: &Key, place: SlotPlace, effects: &mut Effects) {
        if self.health.poisoned.is_some() {
            // Nothing is written any more: a dirty image would keep the shard from closing.
            return;
        }
        self.placement.obsolete.set_clearing(key, place, Clearing::Requested);
        match place {
            RecordPlace::Record(SlotAddress { logical, slot }) => match self.ensure_dirty(logical, effects) {
                Ok(()) => {
                    self.free_slot(logical, slot);
                    if let Some(dirty) = self.placement.images.get_mut(&logical).and_then(|image| image.dirty.as_mut())
                    {
                        let kind = Changed::Clear;
                        dirty.changes.push(Change {
                            key: key.clone(),
                            place,
                            expiry: 0,
                            finger: None,
                            kind,
                            ack: None,
                        });
                        dirty.level = Level::PowerLoss;
                    }
                }
                Err(Wait::Placement(PageWait::Page(logical))) => {
                    self.request_page(logical, PageWaiter::Clear(key.clone(), place), effects);
                }
                Err(_) => self.placement.obsolete.clear_later(key, place),
            },
            RecordPlace::Blob { .. } => self.read_head(key.clone(), place, effects),
        }
    }

    /// An older copy could not be read: it is still there, so a delete that waits for it fails, and
    /// it gives no space to those who wait for some.
    pub(crate) fn clear_failed(&mut self, key: &Key, place: SlotPlace, error: Error, effects: &mut Effects) {
        self.placement.obsolete.set_clearing(key, place, Clearing::Unreadable);
        if self.keys.waits_for(key, PageWait::Obsolete.into()) {
            self.fail_first(key, error, effects);
        }
        self.wake_space_waiters(effects);
    }

    /// An older copy is gone, durably; a waiting delete goes on after the last one.
    pub(crate) fn obsolete_cleared(&mut self, key: &Key, place: SlotPlace, drained: &mut Vec<Key>) {
        let Some(copies) = self.placement.obsolete.of.get_mut(key) else { return };
        copies.retain(|copy| copy.place != place);
        if copies.is_empty() {
            self.placement.obsolete.of.remove(key);
            if self.keys.waits_for(key, PageWait::Obsolete.into()) {
                drained.push(key.clone());
            }
        }
    }

    /// Reads the first page of the blob that the first write of `key` deletes.
    pub(crate) fn load_head(&mut self, key: Key, effects: &mut Effects) {
        match self.index.place(&key) {
            Some(place @ RecordPlace::Blob { .. }) => self.read_head(key, place, effects),
            _ => self.keys.block_waiters.push_back(key),
        }
    }

    fn read_head(&mut self, key: Key, place: SlotPlace, effects: &mut Effects) {
        let RecordPlace::Blob { first, .. } = place else { return };
        let Some(block) = self.take_block(Class::Page, effects) else {
            if self.is_copy(&key, place) {
                self.placement.obsolete.clear_later(&key, place);
            } else {
                self.keys.block_waiters.push_back(key);
            }
            return;
        };
        let len = block.len() as u32;
        let io = self.io.start(IoPurpose::Placement(PageIoPurpose::BlobHead { key, place }));
        effects.read(io, offset(first), block, len);
    }

    fn is_copy(&self, key: &Key, place: SlotPlace) -> bool {
        self.placement.obsolete.of.get(key).is_some_and(|copies| copies.iter().any(|copy| copy.place == place))
    }

    /// The first page of a blob is here: it is marked cleared in the next group.
    pub(crate) fn blob_head_read(
        &mut self,
        key: Key,
        place: SlotPlace,
        mut block: Block,
        result: Result<(), IoFault>,
        effects: &mut Effects,
    ) {
        let RecordPlace::Blob { first, .. } = place else { return };
        let copy = self.is_copy(&key, place);
        if let Err(fault) = result {
            let error = Error::Io { what: "reading the head of a large value", fault };
            return if copy {
                self.clear_failed(&key, place, error, effects)
            } else {
                self.fail_first(&key, error, effects)
            };
        }
        if self.health.poisoned.is_some() {
            return;
        }
        if blob::decode_header(&self.config.uuid, first, &block).is_none() {
            // Damaged: recovery does not take it for a blob; zeros keep it so.
            block.fill(0);
        }
        if copy {
            let change = Change { key, place, expiry: 0, finger: None, kind: Changed::Clear, ack: None };
            self.write_blob_tombstone(block, change, Level::PowerLoss);
        } else {
            if let Some(work) = self.keys.first(&key) {
                work.head = Some(block);
            }
            self.wake(&key, effects);
        }
    }
}
