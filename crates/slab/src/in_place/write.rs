//! Writes of records in place: from an operation to a change in a page's dirty image.
//!
//! Further writes of a key are applied on top if they stay in the same slot; anything else waits
//! until the key has nothing under way.

use std::sync::Arc;

use bytes::Bytes;
use foldhash::HashMap;
use stratakv_base::{Level, fault_point};
use stratakv_device::{Block, Class};
use stratakv_engine::{Effects, Error, Reply};

use super::class::SizeClass;
use super::page::{self, Slot};
use super::{InPlace, PageWait, Slab, SlotAddress, SlotPlace};
use crate::keys::Wait;
use crate::place::RecordPlace;
use crate::record::Meta;
use crate::write::{Ack, Change, Changed, Newest, Stop, Work};

/// Images of logical pages besides their durable ones.
pub(crate) type Images = HashMap<u32, Image>;

/// The images of a logical page besides its durable one.
#[derive(Debug, Default)]
pub(crate) struct Image {
    /// Being written.
    pub(crate) writing: Option<Arc<Block>>,
    pub(crate) dirty: Option<Dirty>,
}

/// An image not yet sealed.
#[derive(Debug)]
pub(crate) struct Dirty {
    pub(crate) block: Block,
    pub(crate) changes: Vec<Change<InPlace>>,
    pub(crate) level: Level,
}

impl Slab {
    /// The current record: from its page's newest image, or as it was loaded from its blob. The
    /// value is empty unless an update needs it.
    pub(crate) fn current(
        &mut self,
        work: &mut Work,
        place: SlotPlace,
        newest: &Newest<InPlace>,
    ) -> Result<(Meta, Bytes), Stop<InPlace>> {
        let whole = self.wants_whole(work);
        match place {
            RecordPlace::Blob { .. } if newest.pending => Err(Wait::Drain.into()),
            RecordPlace::Blob { .. } => match &work.loaded {
                Some(loaded) if work.loaded_whole || !whole => Ok(loaded.clone()),
                _ => Err(Wait::Record { whole }.into()),
            },
            RecordPlace::Record(SlotAddress { logical, slot }) => {
                self.ensure_image(logical)?;
                let Some(bytes) = self.newest_image(logical) else { return Err(PageWait::Page(logical).into()) };
                match page::slot(bytes, slot) {
                    Slot::Live(record) if record.key == work.key.encoded() => {
                        let value = if whole { Bytes::copy_from_slice(record.value) } else { Bytes::new() };
                        Ok((record.meta, value))
                    }
                    _ => {
                        let physical = self.placement.table.get(logical).map_or(0, |entry| entry.place);
                        let corruption =
                            self.corruption(physical, "record", format!("{:?}", work.key), "damaged bytes");
                        self.health.note(&corruption);
                        Err(Error::Corrupt(corruption).into())
                    }
                }
            }
        }
    }

    /// The newest image of a page, if it is in memory.
    fn newest_image(&self, logical: u32) -> Option<&[u8]> {
        if let Some(image) = self.placement.images.get(&logical) {
            if let Some(dirty) = &image.dirty {
                return Some(&dirty.block);
            }
            if let Some(writing) = &image.writing {
                return Some(writing);
            }
        }
        self.placement.cache.0.peek(u64::from(logical)).map(|block| &block[..])
    }

    fn ensure_image(&self, logical: u32) -> Result<(), Wait<PageWait>> {
        if self.newest_image(logical).is_some() { Ok(()) } else { Err(Wait::Placement(PageWait::Page(logical))) }
    }

    /// Makes sure that the page has a dirty image.
    pub(crate) fn ensure_dirty(&mut self, logical: u32, effects: &mut Effects) -> Result<(), Wait<PageWait>> {
        let image = self.placement.images.get(&logical);
        if image.is_some_and(|image| image.dirty.is_some()) {
            return Ok(());
        }
        let base = match image.and_then(|image| image.writing.clone()) {
            Some(writing) => writing,
            None => self.placement.cache.0.get(u64::from(logical)).ok_or(Wait::Placement(PageWait::Page(logical)))?,
        };
        let mut block = self.take_block(Class::Page, effects).ok_or(Wait::Block)?;
        block.copy_from_slice(&base);
        self.add_dirty(logical, block);
        Ok(())
    }

    fn add_dirty(&mut self, logical: u32, block: Block) {
        let image = self.placement.images.entry(logical).or_default();
        image.dirty = Some(Dirty { block, changes: Vec::new(), level: Level::ProcessCrash });
        if image.writing.is_none() {
            self.placement.unsealed.pages.push_back(logical);
        }
    }

    /// Puts a record into a slot of its class, or begins to write it as a blob.
    pub(crate) fn put_in_place(
        &mut self,
        work: &mut Work,
        newest: &Newest<InPlace>,
        (mut meta, value): (Meta, &Bytes),
        reply: &dyn Fn(u64) -> Reply,
        effects: &mut Effects,
    ) -> Result<(), Stop<InPlace>> {
        let key_len = work.key.encoded().len();
        let Some(class) = SizeClass::for_record(page::record_bytes(&meta, key_len, value.len())) else {
            if newest.pending {
                return Err(Wait::Drain.into());
            }
            if newest.place.is_none() && !work.has_reserve() {
                self.check_memory()?;
            }
            return self.start_blob(work, meta, value.clone(), reply, effects);
        };
        let (logical, slot) = match newest.place {
            Some(RecordPlace::Record(SlotAddress { logical, slot }))
                if self.placement.table.get(logical).is_some_and(|page| page.class == class) =>
            {
                self.ensure_dirty(logical, effects)?;
                (logical, slot)
            }
            _ if newest.pending => return Err(Wait::Drain.into()),
            place => {
                if place.is_none() && !work.has_reserve() {
                    self.check_memory()?;
                }
                let found = self.take_slot(class, work.has_reserve(), effects)?;
                self.placement.table.slot_taken(found.0);
                self.found_room();
                found
            }
        };
        meta.version = work.version.unwrap_or_else(|| self.next_number());
        let Some(dirty) = self.placement.images.get_mut(&logical).and_then(|image| image.dirty.as_mut()) else {
            return Err(PageWait::Page(logical).into());
        };
        page::put(&mut dirty.block, slot, &meta, work.key.encoded(), value);
        let place = RecordPlace::Record(SlotAddress { logical, slot });
        self.changed((work, newest), place, meta.expiry, Changed::Put, reply(meta.version));
        Ok(())
    }

    /// Records a change made in a dirty image.
    fn changed(
        &mut self,
        (work, before): (&Work, &Newest<InPlace>),
        place: SlotPlace,
        expiry: u64,
        kind: Changed,
        reply: Reply,
    ) {
        let newest = (kind == Changed::Put).then_some(place);
        self.keys.changed(&work.key, newest, expiry);
        let RecordPlace::Record(SlotAddress { logical, .. }) = place else { return };
        if let Some(dirty) = self.placement.images.get_mut(&logical).and_then(|image| image.dirty.as_mut()) {
            let ack = Some(Ack { origin: work.origin, reply });
            dirty.level = dirty.level.max(work.level);
            dirty.changes.push(Change { key: work.key.clone(), place, expiry, finger: before.finger, kind, ack });
        }
    }

    /// Frees a record's slot, or clears its blob; older copies go first.
    pub(crate) fn delete_in_place(
        &mut self,
        work: &mut Work,
        place: SlotPlace,
        newest: &Newest<InPlace>,
        effects: &mut Effects,
    ) -> Result<(), Stop<InPlace>> {
        // An older copy left behind would come back to life at the next recovery: it goes first.
        let durable = self.index.place(&work.key);
        if newest.pending && durable.is_some_and(|durable| durable != place) {
            return Err(Wait::Drain.into());
        }
        let mut has_older = self.placement.obsolete.has(&work.key);
        fault_point!("deleted_before_its_older_copies", has_older = false);
        if has_older {
            self.request_clears(&work.key.clone(), effects);
            return Err(PageWait::Obsolete.into());
        }
        match place {
            RecordPlace::Record(SlotAddress { logical, slot }) => {
                self.ensure_dirty(logical, effects)?;
                let version = self.next_number();
                self.free_slot(logical, slot);
                let reply = Reply::deleted(version, newest.exists);
                self.changed((work, newest), place, 0, Changed::Delete, reply);
                Ok(())
            }
            RecordPlace::Blob { .. } if newest.pending => Err(Wait::Drain.into()),
            RecordPlace::Blob { .. } => {
                let Some(block) = work.head.take() else { return Err(PageWait::Head.into()) };
                let version = self.next_number();
                let reply = Reply::deleted(version, newest.exists);
                let ack = Some(Ack { origin: work.origin, reply });
                let change =
                    Change { key: work.key.clone(), place, expiry: 0, finger: None, kind: Changed::Delete, ack };
                self.keys.changed(&work.key, None, 0);
                self.write_blob_tombstone(block, change, work.level);
                Ok(())
            }
        }
    }

    /// Frees a slot in a page's dirty image.
    pub(crate) fn free_slot(&mut self, logical: u32, slot: u8) {
        if let Some(dirty) = self.placement.images.get_mut(&logical).and_then(|image| image.dirty.as_mut()) {
            page::free(&mut dirty.block, slot);
            self.placement.table.slot_freed(logical);
        }
    }

    /// A free slot of `class` in a dirty image.
    fn take_slot(
        &mut self,
        class: SizeClass,
        has_reserve: bool,
        effects: &mut Effects,
    ) -> Result<(u32, u8), Stop<InPlace>> {
        for whole_table in [false, true] {
            while let Some(logical) = self.placement.table.with_free_slot(class, whole_table) {
                self.ensure_dirty(logical, effects)?;
                let image = self.placement.images.get(&logical).and_then(|image| image.dirty.as_ref());
                let free = image
                    .and_then(|dirty| (0..class.slots()).find(|slot| page::slot(&dirty.block, *slot) == Slot::Free));
                if let Some(slot) = free {
                    return Ok((logical, slot));
                }
                // A slot that was free when the page was first read does not check now: not used,
                // like any damaged one.
                self.placement.table.slot_taken(logical);
                self.placement.lost_slots += 1;
            }
            let mut block = self.take_block(Class::Page, effects).ok_or(Wait::Block)?;
            let logical = match self.recast_page(class) {
                Some(logical) => Some(logical),
                None if self.has_room(1) || (has_reserve && self.has_reserved_room(1)) => {
                    self.placement.unplaced_pages += 1;
                    Some(self.placement.table.add(class))
                }
                None => None,
            };
            if let Some(logical) = logical {
                page::clear(&mut block, class);
                self.add_dirty(logical, block);
                self.placement.table.open(logical);
                return Ok((logical, 0));
            }
        }
        Err(self.no_room(1, effects))
    }

    fn recast_page(&mut self, class: SizeClass) -> Option<u32> {
        let images = &self.placement.images;
        self.placement.table.recast(class, |logical| !images.contains_key(&logical))
    }

    /// Whether `pages` more can be used for new items.
    pub(crate) fn has_room(&self, pages: u32) -> bool {
        self.has_reserved_room(pages + self.batches.reserved_pages() + self.reserve_pages())
    }

    /// Whether `pages` more can be used for what space was set aside for.
    fn has_reserved_room(&self, pages: u32) -> bool {
        self.space.free_pages() + self.space.deferred_pages() >= pages + self.placement.unplaced_pages
    }
}
