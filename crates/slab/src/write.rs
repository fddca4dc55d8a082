//! Writes of both placements: from an operation to a change that waits for its commit group.
//!
//! Every write of a key passes through `pending[key]`. With `in_place` a change is made in the
//! *dirty* image of a page at once, and becomes visible when the group that writes the image is
//! durable. Further writes of the key are applied on top if they stay in the same slot; anything
//! else waits until the key has nothing under way. With `packed` a write leaves this file in `put`
//! and `delete`, and goes on in `packed/write.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::{Expiry, Key, Level, fault_point, probe};
use stratakv_device::{Block, Class};
use stratakv_engine::update;
use stratakv_engine::{Effects, Error, Expect, Record, Reply, Token, Unmet, Update, Value};

use crate::batch::{BatchId, BatchStep};
use crate::class::SizeClass;
use crate::page::{self, Meta, Slot};
use crate::place::RecordPlace;
use crate::slab::{Slab, is_expired};
use crate::space::Extent;

/// Who asked for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Client(Token),
    /// A step of a DeleteRange.
    Range(u64),
    /// The sweep for expired records.
    Expiry,
    /// A step of a batch.
    Batch(BatchId, BatchStep),
}

/// What a write does.
#[derive(Debug)]
pub(crate) enum Kind {
    Put {
        value: Bytes,
        flags: u32,
        expiry: Expiry,
    },
    Delete,
    Update(Update),
    /// Keeps the key for a batch, with nothing under way.
    LockKey,
    /// Reads the record.
    Load,
}

/// A write that is not yet in a page image.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) origin: Origin,
    pub(crate) key: Key,
    pub(crate) expect: Expect,
    pub(crate) kind: Kind,
    pub(crate) level: Level,
    /// The current record, where it lies in a blob and had to be read first.
    pub(crate) loaded: Option<(Meta, Bytes)>,
    pub(crate) loaded_whole: bool,
    /// First page of the blob to be cleared.
    pub(crate) head: Option<Block>,
    /// A delete range removes only versions up to this one.
    pub(crate) not_after: u64,
    /// The version to give the record; else a new one.
    pub(crate) version: Option<u64>,
    /// Pages set aside for a blob.
    pub(crate) extent: Option<Extent>,
    /// It has locked the key.
    is_key_locked: bool,
    /// Nobody waits for it any more.
    pub(crate) is_over: bool,
}

impl Work {
    pub(crate) fn new(origin: Origin, key: Key, expect: Expect, kind: Kind, level: Level) -> Work {
        Work {
            origin,
            key,
            expect,
            kind,
            level,
            loaded: None,
            loaded_whole: false,
            head: None,
            not_after: u64::MAX,
            version: None,
            extent: None,
            is_key_locked: false,
            is_over: false,
        }
    }
}

impl Work {
    /// A delete of a range takes a record that cannot be read, whatever its version was: nobody
    /// will read that record again.
    fn takes_unreadable(&self, error: &Error) -> bool {
        self.not_after != u64::MAX
            && matches!(self.kind, Kind::Delete)
            && matches!(error, Error::Corrupt(_) | Error::Io { .. })
    }

    /// Space was set aside for it: it must not fail for want of any.
    pub(crate) fn has_reserve(&self) -> bool {
        matches!(self.origin, Origin::Batch(_, BatchStep::Apply | BatchStep::CommitDone))
    }
}

/// Who is answered what once a change is durable.
#[derive(Debug)]
pub(crate) struct Ack {
    pub(crate) origin: Origin,
    pub(crate) reply: Reply,
}

/// A change in a page image or blob, waiting to be durable.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) key: Key,
    pub(crate) place: RecordPlace,
    pub(crate) expiry: u64,
    pub(crate) kind: Changed,
    pub(crate) ack: Option<Ack>,
}

/// Kind of a [`Change`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    Put,
    Delete,
    /// An older copy was cleared.
    Clear,
}

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
    pub(crate) changes: Vec<Change>,
    pub(crate) level: Level,
}

/// Writes of one key that are under way.
#[derive(Debug, Default)]
pub(crate) struct PendingWrites {
    /// Of them, those in batches that are being written (placement `packed`).
    pub(crate) appended: u32,
    /// The newest record, if it waits to be appended or published (placement `packed`).
    pub(crate) newest: Option<(Meta, Bytes)>,
    /// Changes in images that are not yet durable.
    pub(crate) outstanding: u32,
    /// The newest state, if `outstanding`.
    pub(crate) place: Option<RecordPlace>,
    pub(crate) expiry: u64,
    /// Writes in order; the first is blocked by `wait`.
    pub(crate) queue: VecDeque<Work>,
    pub(crate) wait: Option<Wait>,
}

/// What a write waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Until the key has nothing outstanding.
    Drain,
    /// A page read.
    Page(u32),
    /// Its blob's record.
    Blob {
        whole: bool,
    },
    /// Its blob's first page.
    Head,
    /// Older copies to be cleared.
    Obsolete,
    Space,
    Block,
    /// For its batch.
    Batch,
}

/// Why a write did not get into an image.
pub(crate) enum Stop {
    Wait(Wait),
    Answer(Reply),
    /// It is as wanted already, and as durable as that state is.
    Unchanged(Reply),
}

impl From<Wait> for Stop {
    fn from(wait: Wait) -> Stop {
        Stop::Wait(wait)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Answer(Reply::Failed(error))
    }
}

/// The newest state of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newest {
    pub(crate) place: Option<RecordPlace>,
    /// Exists and has not expired.
    pub(crate) exists: bool,
    pub(crate) pending: bool,
}

impl Slab {
    /// Takes a write; its reply comes when it is durable.
    pub(crate) fn submit(&mut self, work: Work, effects: &mut Effects) {
        if let Some(error) = self.batches.stuck(&work.key).cloned() {
            return self.answer(work.origin, Reply::Failed(error), effects);
        }
        if let Some(pending) = self.pending.get_mut(&work.key)
            && (pending.wait.is_some() || !pending.queue.is_empty())
        {
            return pending.queue.push_back(work);
        }
        self.try_work(work, effects);
    }

    /// Tries a write; false if it waits.
    fn try_work(&mut self, mut work: Work, effects: &mut Effects) -> bool {
        match self.run_step(&mut work, effects) {
            Ok(()) => true,
            Err(Stop::Answer(reply)) => {
                self.answer(work.origin, reply, effects);
                true
            }
            Err(Stop::Unchanged(reply)) => {
                self.answer_when_durable(work.origin, work.level, reply, effects);
                true
            }
            Err(Stop::Wait(wait)) => {
                self.block_on(work, wait, effects);
                false
            }
        }
    }

    fn block_on(&mut self, work: Work, wait: Wait, effects: &mut Effects) {
        let key = work.key.clone();
        let pending = self.pending.entry(key.clone()).or_default();
        pending.queue.push_front(work);
        pending.wait = Some(wait);
        match wait {
            Wait::Drain | Wait::Obsolete | Wait::Batch => {}
            Wait::Page(logical) => self.request_page(logical, crate::read::Waiter::Write(key), effects),
            Wait::Blob { whole } => self.load_blob(key, whole, effects),
            Wait::Head => self.load_head(key, effects),
            Wait::Space => self.space_waiters.push(key),
            Wait::Block => self.block_waiters.push_back(key),
        }
    }

    /// What the key's first write waited for has happened: goes on with it and those behind it.
    pub(crate) fn wake(&mut self, key: &Key, effects: &mut Effects) {
        loop {
            let Some(pending) = self.pending.get_mut(key) else { return };
            pending.wait = None;
            let Some(work) = pending.queue.pop_front() else {
                if pending.outstanding == 0 {
                    self.pending.remove(key);
                }
                return;
            };
            if !self.try_work(work, effects) {
                return;
            }
        }
    }

    /// What the key's first write waited for cannot be had: it fails, those behind it go on.
    pub(crate) fn fail_first(&mut self, key: &Key, error: Error, effects: &mut Effects) {
        if self.backup_wants(key) {
            // It may only be the copy that cannot be had: the write shows by itself whether it
            // needs the record.
            self.copy_for_backup(key, None);
            return self.wake(key, effects);
        }
        let first = self.pending.get_mut(key).and_then(|pending| pending.queue.front_mut());
        if let Some(work) = first.filter(|work| work.takes_unreadable(&error)) {
            work.not_after = u64::MAX;
            return self.wake(key, effects);
        }
        if let Some(work) = self.pending.get_mut(key).and_then(|pending| pending.queue.pop_front()) {
            self.answer(work.origin, Reply::Failed(error), effects);
        }
        self.wake(key, effects);
    }

    /// Answers whoever asked for a write.
    pub(crate) fn answer(&mut self, origin: Origin, reply: Reply, effects: &mut Effects) {
        match origin {
            Origin::Client(token) => effects.reply(token, reply),
            Origin::Range(id) => self.range_step_done(id, reply, effects),
            Origin::Expiry => {}
            Origin::Batch(id, step) => self.batches.answered(id, step, reply),
        }
    }

    fn newest(&self, key: &Key, effects: &Effects) -> Newest {
        let (place, expiry, pending) = match self.pending.get(key) {
            Some(pending) if pending.outstanding > 0 => {
                let mut expiry = pending.expiry;
                fault_point!("write_under_way_has_the_expiry_before_it", {
                    expiry = self.index.0.get(key.encoded()).map_or(expiry, |entry| entry.expiry);
                });
                (pending.place, expiry, true)
            }
            _ => match self.index.0.get(key.encoded()) {
                Some(entry) => (Some(RecordPlace::from_bits(entry.place)), entry.expiry, false),
                None => (None, 0, false),
            },
        };
        Newest { place, exists: place.is_some() && !is_expired(expiry, effects), pending }
    }

    fn run_step(&mut self, work: &mut Work, effects: &mut Effects) -> Result<(), Stop> {
        if let Some(fault) = self.poisoned {
            return Err(Error::Poisoned(fault).into());
        }
        if work.is_over {
            return Err(Stop::Answer(Reply::Record(None)));
        }
        let mut newest = self.newest(&work.key, effects);
        let mut needs_record = matches!(work.kind, Kind::Update(_) | Kind::Load)
            || matches!(work.expect, Expect::Absent | Expect::Version(_))
            || work.not_after != u64::MAX;
        let copies = !matches!(work.kind, Kind::LockKey | Kind::Load) && self.backup_wants(&work.key);
        let current = match newest.place {
            Some(place) if newest.exists && (needs_record || copies) => match self.current(work, place, &newest) {
                Err(Stop::Answer(_)) if !needs_record => None,
                Err(Stop::Answer(Reply::Failed(error))) if work.takes_unreadable(&error) => {
                    work.not_after = u64::MAX;
                    needs_record = false;
                    None
                }
                current => Some(current?),
            },
            _ => None,
        };
        if copies {
            let record = current.as_ref().map(|(meta, value)| record_of(meta, value));
            self.copy_for_backup(&work.key, record);
        }
        let current = current.filter(|_| needs_record);
        // Of a record that was found damaged and can be read after all, the index does not know
        // when it expires.
        let current = current.filter(|(meta, _)| !is_expired(meta.expiry, effects));
        newest.exists &= current.is_some() || !needs_record;
        if let Some(unmet) = work.expect.unmet(newest.exists, current.as_ref().map(|(meta, _)| meta.version)) {
            // Decided by a state that may still be lost: ask again when it is durable.
            let mut pending = newest.pending;
            fault_point!("refused_by_what_may_be_lost", pending = false);
            let refusal = match &work.kind {
                Kind::Update(update) if unmet == Unmet::Absent => update::absent(update),
                _ => Reply::Unmet(unmet),
            };
            return Err(if pending { Wait::Drain.into() } else { Stop::Answer(refusal) });
        }
        if let Some((meta, _)) = &current
            && meta.version > work.not_after
        {
            probe!("slab: a delete of a range comes to what was put after it began");
            return Err(Stop::Unchanged(Reply::Done { version: 0, existed: false }));
        }
        match std::mem::replace(&mut work.kind, Kind::Delete) {
            Kind::LockKey => {
                work.kind = Kind::LockKey;
                self.lock_keys(work, &newest)
            }
            Kind::Load => {
                Err(Stop::Answer(Reply::Record(current.as_ref().map(|(meta, value)| record_of(meta, value)))))
            }
            Kind::Delete => self.delete(work, &newest, effects),
            Kind::Put { value, flags, expiry } => {
                let meta = Meta { version: 0, flags, expiry: expiry.0 };
                let reply = |version| Reply::Done { version, existed: newest.exists };
                let done = self.put(work, &newest, meta, &value, &reply, effects);
                work.kind = Kind::Put { value, flags, expiry };
                done
            }
            Kind::Update(update) => {
                let done = self.update(work, &newest, current, &update, effects);
                work.kind = Kind::Update(update);
                done
            }
        }
    }

    /// Keeps the key until the batch lets it go.
    fn lock_keys(&mut self, work: &mut Work, newest: &Newest) -> Result<(), Stop> {
        let Origin::Batch(id, step) = work.origin else { return Ok(()) };
        if newest.pending {
            return Err(Wait::Drain.into());
        }
        if !std::mem::replace(&mut work.is_key_locked, true) {
            self.batches.key_locked(id, step, newest.exists);
        }
        Err(Wait::Batch.into())
    }

    fn update(
        &mut self,
        work: &mut Work,
        newest: &Newest,
        current: Option<(Meta, Bytes)>,
        change: &Update,
        effects: &mut Effects,
    ) -> Result<(), Stop> {
        let Some((meta, old)) = current else { return Err(Stop::Answer(update::absent(change))) };
        let outcome = match update::apply(change, &old, meta.expiry) {
            Ok(outcome) => outcome,
            Err(_) if newest.pending => return Err(Wait::Drain.into()),
            Err(update::UpdateError::NotANumber) => return Err(Stop::Answer(Reply::Unmet(Unmet::NotANumber))),
            Err(update::UpdateError::TooLarge(error)) => return Err(error.into()),
        };
        let meta = Meta { version: 0, flags: meta.flags, expiry: outcome.expiry };
        let value = outcome.value.clone();
        let reply = move |version| match (outcome.number, change) {
            (Some(number), _) => Reply::Number { number, version },
            (None, Update::Touch(expiry)) => Reply::Record(Some(Record {
                value_bytes: outcome.value.len() as u64,
                value: Value::Inline(outcome.value.clone()),
                flags: meta.flags,
                version,
                expiry: *expiry,
            })),
            (None, _) => Reply::Done { version, existed: true },
        };
        self.put(work, newest, meta, &value, &reply, effects)
    }

    /// The current record: from its page's newest image, or as it was loaded from its blob. The
    /// value is empty unless an update needs it.
    fn current(&mut self, work: &mut Work, place: RecordPlace, newest: &Newest) -> Result<(Meta, Bytes), Stop> {
        if self.packed.is_some() {
            return self.packed_current(work, place, newest);
        }
        let whole = self.wants_whole(work);
        match place {
            RecordPlace::Record(_) => Err(Wait::Drain.into()),
            RecordPlace::Blob { .. } if newest.pending => Err(Wait::Drain.into()),
            RecordPlace::Blob { .. } => match &work.loaded {
                Some(loaded) if work.loaded_whole || !whole => Ok(loaded.clone()),
                _ => Err(Wait::Blob { whole }.into()),
            },
            RecordPlace::Slot { logical, slot } => {
                self.ensure_image(logical)?;
                let Some(bytes) = self.newest_image(logical) else { return Err(Wait::Page(logical).into()) };
                match page::slot(bytes, slot) {
                    Slot::Live(record) if record.key == work.key.encoded() => {
                        let value = if whole { Bytes::copy_from_slice(record.value) } else { Bytes::new() };
                        Ok((record.meta, value))
                    }
                    _ => {
                        let physical = self.table.get(logical).map_or(0, |entry| entry.place);
                        let corruption =
                            self.corruption(physical, "record", format!("{:?}", work.key), "damaged bytes");
                        self.note_corruption(&corruption);
                        Err(Error::Corrupt(corruption).into())
                    }
                }
            }
        }
    }

    /// Whether a write needs the value too, not only what is known of it.
    pub(crate) fn wants_whole(&self, work: &Work) -> bool {
        matches!(work.kind, Kind::Update(_) | Kind::Load) || self.backup_wants(&work.key)
    }

    /// The newest image of a page, if it is in memory.
    fn newest_image(&self, logical: u32) -> Option<&[u8]> {
        if let Some(image) = self.images.get(&logical) {
            if let Some(dirty) = &image.dirty {
                return Some(&dirty.block);
            }
            if let Some(writing) = &image.writing {
                return Some(writing);
            }
        }
        self.cache.0.peek(u64::from(logical)).map(|block| &block[..])
    }

    fn ensure_image(&self, logical: u32) -> Result<(), Wait> {
        if self.newest_image(logical).is_some() { Ok(()) } else { Err(Wait::Page(logical)) }
    }

    /// Makes sure that the page has a dirty image.
    pub(crate) fn ensure_dirty(&mut self, logical: u32, effects: &mut Effects) -> Result<(), Wait> {
        let image = self.images.get(&logical);
        if image.is_some_and(|image| image.dirty.is_some()) {
            return Ok(());
        }
        let base = match image.and_then(|image| image.writing.clone()) {
            Some(writing) => writing,
            None => self.cache.0.get(u64::from(logical)).ok_or(Wait::Page(logical))?,
        };
        let mut block = self.take_block(Class::Page, effects).ok_or(Wait::Block)?;
        block.copy_from_slice(&base);
        self.add_dirty(logical, block);
        Ok(())
    }

    fn add_dirty(&mut self, logical: u32, block: Block) {
        let image = self.images.entry(logical).or_default();
        image.dirty = Some(Dirty { block, changes: Vec::new(), level: Level::ProcessCrash });
        if image.writing.is_none() {
            self.groups.queue(logical);
        }
    }

    fn put(
        &mut self,
        work: &mut Work,
        newest: &Newest,
        mut meta: Meta,
        value: &Bytes,
        reply: &dyn Fn(u64) -> Reply,
        effects: &mut Effects,
    ) -> Result<(), Stop> {
        if self.packed.is_some() {
            return self.packed_put(work, newest, meta, value, reply, effects);
        }
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
            Some(RecordPlace::Slot { logical, slot })
                if self.table.get(logical).is_some_and(|page| page.class == class) =>
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
                self.table.slot_taken(found.0);
                self.found_room();
                found
            }
        };
        meta.version = work.version.unwrap_or_else(|| self.next_number());
        let Some(dirty) = self.images.get_mut(&logical).and_then(|image| image.dirty.as_mut()) else {
            return Err(Wait::Page(logical).into());
        };
        page::put(&mut dirty.block, slot, &meta, work.key.encoded(), value);
        self.changed(work, RecordPlace::Slot { logical, slot }, meta.expiry, Changed::Put, reply(meta.version));
        Ok(())
    }

    /// Records a change made in a dirty image.
    fn changed(&mut self, work: &Work, place: RecordPlace, expiry: u64, kind: Changed, reply: Reply) {
        let pending = self.pending.entry(work.key.clone()).or_default();
        pending.outstanding += 1;
        pending.place = (kind == Changed::Put).then_some(place);
        pending.expiry = expiry;
        let RecordPlace::Slot { logical, .. } = place else { return };
        if let Some(dirty) = self.images.get_mut(&logical).and_then(|image| image.dirty.as_mut()) {
            let ack = Some(Ack { origin: work.origin, reply });
            dirty.level = dirty.level.max(work.level);
            dirty.changes.push(Change { key: work.key.clone(), place, expiry, kind, ack });
        }
    }

    fn delete(&mut self, work: &mut Work, newest: &Newest, effects: &mut Effects) -> Result<(), Stop> {
        let reclaims = work.origin == Origin::Expiry;
        let Some(place) = newest.place.filter(|_| newest.exists || reclaims) else {
            if newest.pending {
                return Err(Wait::Drain.into());
            }
            return Err(Stop::Unchanged(Reply::Done { version: 0, existed: false }));
        };
        if reclaims && newest.exists {
            return Err(Stop::Unchanged(Reply::Done { version: 0, existed: false }));
        }
        if self.packed.is_some() {
            return self.packed_delete(work, newest, effects);
        }
        // An older copy left behind would come back to life at the next recovery: it goes first.
        let durable = self.index.0.get(work.key.encoded()).map(|entry| RecordPlace::from_bits(entry.place));
        if newest.pending && durable.is_some_and(|durable| durable != place) {
            return Err(Wait::Drain.into());
        }
        let mut has_older = self.obsolete.contains_key(&work.key);
        fault_point!("deleted_before_its_older_copies", has_older = false);
        if has_older {
            self.request_clears(&work.key.clone(), effects);
            return Err(Wait::Obsolete.into());
        }
        match place {
            RecordPlace::Slot { logical, slot } => {
                self.ensure_dirty(logical, effects)?;
                let version = self.next_number();
                self.free_slot(logical, slot);
                let reply = Reply::deleted(version, newest.exists);
                self.changed(work, place, 0, Changed::Delete, reply);
                Ok(())
            }
            RecordPlace::Record(_) => Err(Wait::Drain.into()),
            RecordPlace::Blob { .. } if newest.pending => Err(Wait::Drain.into()),
            RecordPlace::Blob { .. } => {
                let Some(block) = work.head.take() else { return Err(Wait::Head.into()) };
                let version = self.next_number();
                let reply = Reply::deleted(version, newest.exists);
                let ack = Some(Ack { origin: work.origin, reply });
                let change = Change { key: work.key.clone(), place, expiry: 0, kind: Changed::Delete, ack };
                let pending = self.pending.entry(work.key.clone()).or_default();
                pending.outstanding += 1;
                pending.place = None;
                self.write_blob_tombstone(block, change, work.level);
                Ok(())
            }
        }
    }

    /// Frees a slot in a page's dirty image.
    pub(crate) fn free_slot(&mut self, logical: u32, slot: u8) {
        if let Some(dirty) = self.images.get_mut(&logical).and_then(|image| image.dirty.as_mut()) {
            page::free(&mut dirty.block, slot);
            self.table.slot_freed(logical);
        }
    }

    pub(crate) fn check_memory(&self) -> Result<(), Error> {
        let limit_bytes = self.index_limit_bytes();
        if self.index_bytes() + 256 > limit_bytes {
            return Err(Error::MemoryFull { limit_bytes });
        }
        Ok(())
    }

    /// A free slot of `class` in a dirty image.
    fn take_slot(&mut self, class: SizeClass, has_reserve: bool, effects: &mut Effects) -> Result<(u32, u8), Stop> {
        for whole_table in [false, true] {
            while let Some(logical) = self.table.with_free_slot(class, whole_table) {
                self.ensure_dirty(logical, effects)?;
                let image = self.images.get(&logical).and_then(|image| image.dirty.as_ref());
                let free = image
                    .and_then(|dirty| (0..class.slots()).find(|slot| page::slot(&dirty.block, *slot) == Slot::Free));
                if let Some(slot) = free {
                    return Ok((logical, slot));
                }
                // A slot that was free when the page was first read does not check now: not used,
                // like any damaged one.
                self.table.slot_taken(logical);
                self.lost_slots += 1;
            }
            let mut block = self.take_block(Class::Page, effects).ok_or(Wait::Block)?;
            let logical = match self.recast_page(class) {
                Some(logical) => Some(logical),
                None if self.has_room(1) || (has_reserve && self.has_reserved_room(1)) => {
                    self.unplaced_pages += 1;
                    Some(self.table.add(class))
                }
                None => None,
            };
            if let Some(logical) = logical {
                page::clear(&mut block, class);
                self.add_dirty(logical, block);
                self.table.open(logical);
                return Ok((logical, 0));
            }
        }
        Err(self.no_room(1, effects))
    }

    fn recast_page(&mut self, class: SizeClass) -> Option<u32> {
        let images = &self.images;
        self.table.recast(class, |logical| !images.contains_key(&logical))
    }
}

fn record_of(meta: &Meta, value: &Bytes) -> Record {
    Record {
        value_bytes: value.len() as u64,
        value: Value::Inline(value.clone()),
        flags: meta.flags,
        version: meta.version,
        expiry: Expiry(meta.expiry),
    }
}
