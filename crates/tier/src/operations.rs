//! Operations in steps: a step ends its operation over what is in memory, or says which items on
//! the volume it must see first, and leaves nothing behind.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::key::KeyError;
use stratakv_base::limits::{PAGE_BYTES, VALUE_BYTES_MAX};
use stratakv_base::{CollectionId, Expiry, Key, fault_point};
use stratakv_engine::update;
use stratakv_engine::{
    Capability, Change, ChangeKind, Effects, Error, Expect, Operation, Record, RecordPart, Reply, Stage, Token, Update,
    Value,
};

use crate::fetch::Fetched;
use crate::index::{Loc, Tag};
use crate::item::{self, HEADER_BYTES, Header, SSD_ADDRESS_BYTES, SsdAddress};
use crate::operation_queues::{LookupResult, Suspended};
use crate::segment::Stream;
use crate::tier::{Tier, unsupported};

/// An item on the volume moves to DRAM with its next use after so many.
const USES_BEFORE: u8 = 2;

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Get {
        key: Key,
        part: RecordPart,
    },
    Write(Change),
    Update {
        key: Key,
        update: Update,
    },
    /// Collections from the first to the last lose everything.
    Flush {
        first: u32,
        last: u32,
    },
}

impl Work {
    pub(crate) fn is_write(&self) -> bool {
        !matches!(self, Work::Get { .. })
    }

    /// Whether the front of a long value will do for now.
    fn takes_slices(&self) -> bool {
        matches!(self, Work::Get { part: RecordPart::Sliced { .. }, .. })
    }

    fn key(&self) -> Option<&Key> {
        match self {
            Work::Get { key, .. } | Work::Update { key, .. } | Work::Write(Change { key, .. }) => Some(key),
            Work::Flush { .. } => None,
        }
    }

    fn tag(&self) -> Option<Tag> {
        self.key().map(|key| Tag::of(key.encoded()))
    }
}

/// Where the newest item of a key lies.
#[derive(Debug)]
enum NewestItem {
    Absent,
    Dram(Loc, Header),
    Volume(Loc, Arc<Fetched>),
}

/// How a step ended.
#[derive(Debug)]
enum StepEnd {
    Done(Reply),
    /// These items on the volume may be its.
    Missing(Vec<Loc>),
    /// Memory is full until something was spilled.
    NoRoom,
}

/// A new item.
struct Item<'a> {
    key: &'a Key,
    value: &'a [u8],
    flags: u32,
    expiry: Expiry,
}

impl Tier {
    /// What is wrong with an operation, whatever the shard holds.
    pub(crate) fn complaint(&self, operation: &Operation) -> Option<Error> {
        let key_error = |key: &Key| key.check().err().map(|error: KeyError| Error::from(error));
        match operation {
            Operation::Get { key, .. } => key_error(key),
            Operation::Update { key, level, .. } => {
                self.refusal().or_else(|| key_error(key)).or_else(|| unsupported(*level))
            }
            Operation::Write { changes, level } => {
                self.refusal().or_else(|| unsupported(*level)).or_else(|| match &changes[..] {
                    [] => Some(Error::BadBatch("it is empty")),
                    [Change { kind: ChangeKind::Check, .. }] | [_, _, ..] => {
                        Some(Error::Unsupported(Capability::Batch))
                    }
                    [change] => key_error(&change.key).or_else(|| match &change.kind {
                        ChangeKind::Put { value, .. } => self.too_large(&change.key, value.len() as u64),
                        _ => None,
                    }),
                })
            }
            Operation::DeleteRange { range, level } => self
                .refusal()
                .or_else(|| unsupported(*level))
                .or_else(|| collections(range).is_none().then_some(Error::Unsupported(Capability::Ordered))),
            Operation::List(_) => None,
            Operation::Load { .. } => Some(Error::Unsupported(Capability::Load)),
            Operation::Page(_) => Some(Error::Unsupported(Capability::Ordered)),
            Operation::Snapshot(_) => Some(Error::Unsupported(Capability::Snapshot)),
            Operation::Backup { .. } => Some(Error::Unsupported(Capability::Backup)),
            Operation::Sync => Some(Error::Unsupported(Capability::Level)),
        }
    }

    fn too_large(&self, key: &Key, len_bytes: u64) -> Option<Error> {
        let longest = self.cap.item_bytes_max();
        let sums = ((longest >> self.config.slice_shift()) + 2) * 4;
        let around = (HEADER_BYTES + SSD_ADDRESS_BYTES + key.encoded().len()).next_multiple_of(8) as u64 + 8 + sums;
        let max_bytes = (VALUE_BYTES_MAX as u64).min(longest.saturating_sub(around));
        (len_bytes > max_bytes).then_some(Error::ValueTooLarge { len_bytes, max_bytes })
    }

    /// Takes an operation that there is nothing wrong with.
    pub(crate) fn begin(&mut self, token: Token, operation: Operation, effects: &mut Effects) {
        let work = match operation {
            Operation::Get { part: RecordPart::Sliced { hold: hold @ 1.., start, len }, .. } => {
                return self.begin_slices(token, hold, start, len, effects);
            }
            Operation::Get { key, part } => {
                self.start(token, Work::Get { key, part }, effects);
                return;
            }
            Operation::List(request) => return self.listings.add(token, request),
            Operation::Update { key, update, .. } => Work::Update { key, update },
            Operation::Write { mut changes, .. } => match changes.pop() {
                Some(change) => Work::Write(change),
                None => return,
            },
            Operation::DeleteRange { range, .. } => match collections(&range) {
                Some((first, last)) => Work::Flush { first, last },
                None => return,
            },
            _ => return,
        };
        effects.enter(token, Stage::Room);
        if self.operations.hold(token, work) {
            self.run_held(effects);
        }
    }

    /// Writes in the order in which they came, until one finds no room.
    pub(crate) fn run_held(&mut self, effects: &mut Effects) {
        while let Some((token, work)) = self.operations.next_held() {
            if let Work::Flush { first, last } = work {
                if self.operations.has_busy() {
                    return self.operations.hold_first(token, work);
                }
                self.flush(token, first, last, effects);
            } else if let Some(work) = self.start(token, work, effects) {
                effects.enter(token, Stage::Room);
                return self.operations.hold_first(token, work);
            }
        }
    }

    /// Every item of these collections is gone at once: what is older than this version does not
    /// count.
    fn flush(&mut self, token: Token, first: u32, last: u32, effects: &mut Effects) {
        if let Some(error) = self.refusal_of(None) {
            return effects.reply(token, Reply::Failed(error));
        }
        let flushed = self.versions.flush(first, last);
        if let Some(volume) = self.volume.as_mut().filter(|volume| volume.saving.is_none()) {
            volume.journal.flush(flushed);
        }
        let reply = Reply::Number { number: 0, version: self.versions.newest() };
        self.answer(token, reply, None, effects);
    }

    pub(crate) fn is_visible(&self, key: &Key, header: &Header) -> bool {
        let mut expired = header.expiry.is_past(self.now.wall);
        fault_point!("tier_expired_item_served", expired = false);
        !expired && !self.versions.is_flushed(key.encoded(), header.version)
    }

    /// Takes the first step. `Some`: there is no room for it.
    fn start(&mut self, token: Token, work: Work, effects: &mut Effects) -> Option<Work> {
        let tag = work.tag()?;
        effects.enter(token, Stage::Key);
        let work = self.operations.queue_if_busy(token, work, tag)?;
        match self.step(&work, tag, &[], effects) {
            StepEnd::Done(reply) => self.answer(token, reply, Some(tag), effects),
            StepEnd::NoRoom => return Some(work),
            StepEnd::Missing(places) => {
                let id = self.operations.name(tag, work.is_write());
                self.suspend(id, Suspended::new(token, work, tag), &places, effects);
            }
        }
        None
    }

    fn suspend(&mut self, id: u64, mut suspended: Suspended, places: &[Loc], effects: &mut Effects) {
        effects.enter(suspended.token, Stage::Read);
        for place in places {
            match self.fetch_item(suspended.tag, *place, id, suspended.work.takes_slices()) {
                Some(pin) => {
                    suspended.pins.push(pin);
                    suspended.waiting += 1;
                }
                // No segment is there any more.
                None => suspended.lookup_results.push((*place, None)),
            }
        }
        self.operations.suspend(id, suspended);
    }

    /// Runs the next step of every operation that has what it waited for.
    pub(crate) fn run_ready(&mut self, effects: &mut Effects) {
        // The first one that found no room, and others behind it as long as each comes to its end.
        for _ in 0..self.operations.cramped() {
            let Some(id) = self.operations.next_cramped() else { break };
            self.run_suspended(id, effects);
            if !self.operations.is_over(id) {
                break;
            }
        }
        for _ in 0..self.operations.ready() {
            let Some(id) = self.operations.next_ready() else { break };
            self.run_suspended(id, effects);
        }
    }

    fn run_suspended(&mut self, id: u64, effects: &mut Effects) {
        let Some(mut suspended) = self.operations.take(id) else { return };
        if suspended.is_cancelled {
            self.unpin(&suspended.pins);
            return effects.reply(suspended.token, Reply::Failed(Error::Cancelled));
        }
        match self.step(&suspended.work, suspended.tag, &suspended.lookup_results, effects) {
            StepEnd::Done(reply) => {
                self.unpin(&suspended.pins);
                if suspended.work.is_write() {
                    self.operations.pass_on(suspended.tag);
                }
                self.answer(suspended.token, reply, Some(suspended.tag), effects);
            }
            StepEnd::NoRoom => {
                // Room may come from the very segment that it pins: it reads again.
                self.unpin(&suspended.pins);
                (suspended.pins, suspended.lookup_results) = (Vec::new(), Vec::new());
                effects.enter(suspended.token, Stage::Room);
                self.operations.cramp(id, suspended);
            }
            StepEnd::Missing(places) => self.suspend(id, suspended, &places, effects),
        }
    }

    fn step(&mut self, work: &Work, tag: Tag, lookup_results: &[LookupResult], effects: &mut Effects) -> StepEnd {
        if work.is_write()
            && let Some(error) = self.refusal_of(Some(tag))
        {
            return StepEnd::Done(Reply::Failed(error));
        }
        match work {
            Work::Get { key, part } => self.get(key, tag, *part, lookup_results, effects),
            Work::Update { key, update } => self.update(key, tag, update, lookup_results, effects),
            Work::Write(Change { key, expect, kind: ChangeKind::Put { value, flags, expiry } }) => {
                let item = Item { key, value, flags: *flags, expiry: *expiry };
                self.put(item, *expect, tag, lookup_results, effects)
            }
            Work::Write(Change { key, expect, .. }) => self.delete(key, *expect, tag, lookup_results),
            Work::Flush { .. } => StepEnd::NoRoom,
        }
    }

    /// Where the newest item of a key lies.
    ///
    /// # Errors
    /// What must be read to know.
    fn resolve(&self, key: &Key, tag: Tag, lookup_results: &[LookupResult]) -> Result<NewestItem, Vec<Loc>> {
        let (mut missing, mut found) = (Vec::new(), None);
        for loc in self.index.find(tag) {
            if let Some((segment, offset, header)) = self.segments.item(loc) {
                if segment.has_key(offset, &header, key.encoded()) {
                    return Ok(NewestItem::Dram(loc, header));
                }
            } else if loc.is_on_volume() {
                match lookup_results.iter().find(|(place, _)| place.is_at(loc)) {
                    Some((_, Some(fetched))) if fetched.has_key(key.encoded()) => {
                        found = Some(NewestItem::Volume(loc, Arc::clone(fetched)));
                    }
                    Some(_) => {}
                    None => missing.push(loc),
                }
            }
        }
        match found {
            Some(found) => Ok(found),
            None if missing.is_empty() => Ok(NewestItem::Absent),
            None => Err(missing),
        }
    }

    /// As [`Tier::resolve`]; what expired or was flushed is absent.
    fn resolve_visible(&self, key: &Key, tag: Tag, lookup_results: &[LookupResult]) -> Result<NewestItem, Vec<Loc>> {
        let found = self.resolve(key, tag, lookup_results)?;
        let header = match &found {
            NewestItem::Absent => return Ok(found),
            NewestItem::Dram(_, header) => *header,
            NewestItem::Volume(_, fetched) => fetched.header,
        };
        Ok(if self.is_visible(key, &header) { found } else { NewestItem::Absent })
    }

    fn get(
        &mut self,
        key: &Key,
        tag: Tag,
        part: RecordPart,
        lookup_results: &[LookupResult],
        effects: &Effects,
    ) -> StepEnd {
        let found = match self.resolve_visible(key, tag, lookup_results) {
            Ok(found) => found,
            Err(missing) => {
                return self.longer(part, &missing).map_or_else(|| StepEnd::Missing(missing), StepEnd::Done);
            }
        };
        let record = self.record(&found, part);
        let mut hold = None;
        match found {
            NewestItem::Absent => self.counters.misses += 1,
            NewestItem::Dram(loc, _) => {
                self.counters.hits_dram += 1;
                if loc.uses() < 3 {
                    self.index.replace(tag, loc, loc.with_uses(loc.uses() + 1));
                }
            }
            NewestItem::Volume(loc, fetched) => {
                self.counters.hits_volume += 1;
                if !fetched.is_whole() {
                    hold = self.hold(tag, loc, &fetched);
                }
                if loc.uses() < USES_BEFORE || !self.promote(tag, loc, &fetched, effects) {
                    self.index.replace(tag, loc, loc.with_uses(loc.uses() + 1));
                }
            }
        }
        StepEnd::Done(match (record, hold) {
            (Some(record), Some(hold)) => Reply::Part(record, hold),
            (record, _) => Reply::Record(record),
        })
    }

    /// What a reader is told before more is read of these places than it expects.
    fn longer(&self, part: RecordPart, places: &[Loc]) -> Option<Reply> {
        let pages = |loc: &Loc| if self.reads_front(*loc) { self.front_pages() } else { loc.pages() };
        let pages = places.iter().map(pages).sum::<u64>();
        // An item may begin and end within a page, and has more than its value.
        let is_longer = part.expected_bytes()? < pages.saturating_sub(2) * PAGE_BYTES as u64;
        is_longer.then_some(Reply::Longer(pages * PAGE_BYTES as u64))
    }

    fn record(&self, found: &NewestItem, part: RecordPart) -> Option<Record> {
        let header = match found {
            NewestItem::Absent => return None,
            NewestItem::Dram(_, header) => *header,
            NewestItem::Volume(_, fetched) => fetched.header,
        };
        let all = header.value_bytes as usize;
        let (start, len) = match part {
            RecordPart::Meta => (0, 0),
            RecordPart::Whole => (0, all),
            RecordPart::Sliced { start, len, .. } => match found {
                NewestItem::Volume(_, fetched) if !fetched.is_whole() => (0, fetched.value_there),
                // All of it was read: it is not to be read again for the rest.
                NewestItem::Volume(..) if start == 0 => (0, all),
                _ => (all.min(start as usize), (len as usize).min(all - all.min(start as usize))),
            },
            RecordPart::Range { start, len } => {
                let start = start.min(all as u64);
                (start as usize, len.min(all as u64 - start) as usize)
            }
        };
        let value = match found {
            _ if len == 0 => Value::Inline(Bytes::new()),
            NewestItem::Absent => return None,
            NewestItem::Dram(loc, header) => {
                let (segment, offset, _) = self.segments.item(*loc)?;
                segment.value(offset, header, start, len)
            }
            NewestItem::Volume(_, fetched) => fetched.value(start, len),
        };
        let Header { flags, version, expiry, .. } = header;
        Some(Record { value, value_bytes: all as u64, flags, version, expiry })
    }

    /// Copies an item from the volume into DRAM, where there is room at once.
    fn promote(&mut self, tag: Tag, loc: Loc, fetched: &Fetched, effects: &Effects) -> bool {
        let Some(volume) = self.volume.as_ref().filter(|_| !self.config.read_only) else { return false };
        let Some(stored) = volume.log.of(loc.address()) else { return false };
        let ssd_address = SsdAddress { loc: loc.place(), order: stored.order };
        let bytes = fetched.header.total() + item::SSD_ADDRESS_BYTES;
        if !volume.is_ssd_address(&ssd_address)
            || !fetched.is_whole()
            || bytes > self.segment_len() / 4
            || self.operations.has_held()
            || !self.make_room(bytes, effects)
        {
            return false;
        }
        // Making room does not touch what is on the volume.
        let header = Header { has_ssd_address: true, ..fetched.header };
        let trailer = ssd_address.encode();
        let body = fetched.body().chain(std::iter::once(&trailer[..]));
        let Some(new) = self.append(Stream::Main, header, body, effects) else { return false };
        self.counters.promoted += 1;
        self.index.replace(tag, loc, new)
    }

    fn put(
        &mut self,
        item: Item<'_>,
        expect: Expect,
        tag: Tag,
        lookup_results: &[LookupResult],
        effects: &Effects,
    ) -> StepEnd {
        // The cap may have come down since it was taken.
        if let Some(error) = self.too_large(item.key, item.value.len() as u64) {
            return StepEnd::Done(Reply::Failed(error));
        }
        let mut existed = false;
        if expect != Expect::Any {
            let found = match self.resolve_visible(item.key, tag, lookup_results) {
                Ok(found) => found,
                Err(missing) => return StepEnd::Missing(missing),
            };
            let version = found.version();
            existed = version.is_some();
            if let Some(unmet) = expect.unmet(existed, version) {
                return StepEnd::Done(Reply::Unmet(unmet));
            }
        }
        // Only now: a put that its condition refuses evicts nothing.
        let bytes = self.new_header(&item).total();
        if !self.make_room(bytes, effects) || !self.make_index_room(tag, effects) {
            return StepEnd::NoRoom;
        }
        match self.store(item, tag, effects) {
            Some(version) => StepEnd::Done(Reply::Done { version, existed }),
            None => self.no_block(effects),
        }
    }

    /// Nobody gives a block back but a segment that leaves.
    fn no_block(&mut self, effects: &Effects) -> StepEnd {
        self.evict(effects);
        StepEnd::NoRoom
    }

    /// The header of a new item, as the next version.
    fn new_header(&self, item: &Item<'_>) -> Header {
        let unsliced = Header {
            checksum: 0,
            key_bytes: item.key.encoded().len() as u32,
            value_bytes: item.value.len() as u32,
            flags: item.flags,
            expiry: item.expiry,
            version: self.versions.next(),
            has_ssd_address: false,
            slice_shift: 0,
        };
        let is_long = unsliced.total() > self.config.sliced_from();
        Header { slice_shift: if is_long { self.config.slice_shift() } else { 0 }, ..unsliced }
    }

    /// Appends an item, or writes it where its predecessor lies, and lets the index know. `None`:
    /// no block is free.
    fn store(&mut self, item: Item<'_>, tag: Tag, effects: &Effects) -> Option<u64> {
        let encoded = item.key.encoded();
        let header = self.new_header(&item);
        // Their place: they are counted when the item leaves DRAM.
        let sums = vec![0; header.sums_bytes()];
        if self.overwrite(item.key, &header, [encoded, &sums, item.value], tag) {
            return Some(self.versions.advance());
        }
        let comes_back = self.evictions.comes_back(tag);
        let stream = if comes_back { Stream::Main } else { Stream::Small };
        let new = self.append(stream, header, [encoded, &sums, item.value].into_iter(), effects)?;
        let version = self.versions.advance();
        let replaced = self.supersede(item.key, tag, version);
        let uses = replaced.map_or(0, Loc::uses);
        self.index.insert(tag, new.with_uses(uses).wanted(comes_back || replaced.is_some()));
        Some(version)
    }

    /// Forgets every item that a write of this key makes stale, and journals that if one has a copy
    /// on the volume. What shares the tag there may be the key's, and goes too.
    fn supersede(&mut self, key: &Key, tag: Tag, version: u64) -> Option<Loc> {
        let (mut last, mut returns) = (None, false);
        loop {
            let stale = self.index.find(tag).find_map(|loc| match self.segments.item(loc) {
                Some((segment, offset, header)) => {
                    segment.has_key(offset, &header, key.encoded()).then_some((loc, Some(header)))
                }
                None => Some((loc, None)),
            });
            let Some((loc, header)) = stale else { break };
            returns |= self.may_return(loc);
            self.index.remove(tag, loc);
            if let (Some((slot, _)), Some(header)) = (loc.in_dram(), header) {
                self.segments.supersede(slot, &header, self.config.collected_percent > 0);
            }
            last = Some(loc);
        }
        fault_point!("tier_stale_copy_not_journaled", return last);
        if returns {
            self.invalidate(tag, version);
        }
        last
    }

    /// Whether a recovery might find a copy of this item on the volume.
    fn may_return(&self, loc: Loc) -> bool {
        let Some(volume) = self.volume.as_ref().filter(|volume| volume.journals()) else { return false };
        match self.segments.item(loc) {
            Some((segment, offset, header)) => {
                segment.order.is_some()
                    || segment.ssd_address(offset, &header).is_some_and(|ssd_address| volume.may_return(&ssd_address))
            }
            None => true,
        }
    }

    /// Journals that copies on the volume with this tag and a lower version are stale.
    pub(crate) fn invalidate(&mut self, tag: Tag, version: u64) {
        let writes = !self.config.read_only;
        if let Some(volume) = self.volume.as_mut().filter(|volume| writes && volume.journals()) {
            volume.journal.invalidate(tag, version);
        }
    }

    fn delete(&mut self, key: &Key, expect: Expect, tag: Tag, lookup_results: &[LookupResult]) -> StepEnd {
        let found = match self.resolve_visible(key, tag, lookup_results) {
            Ok(found) => found,
            Err(missing) => return StepEnd::Missing(missing),
        };
        let version = found.version();
        if let Some(unmet) = expect.unmet(version.is_some(), version) {
            return StepEnd::Done(Reply::Unmet(unmet));
        }
        if version.is_none() {
            return StepEnd::Done(Reply::deleted(0, false));
        }
        let version = self.versions.advance();
        self.supersede(key, tag, version);
        StepEnd::Done(Reply::Done { version, existed: true })
    }

    fn update(
        &mut self,
        key: &Key,
        tag: Tag,
        update: &Update,
        lookup_results: &[LookupResult],
        effects: &Effects,
    ) -> StepEnd {
        let found = match self.resolve_visible(key, tag, lookup_results) {
            Ok(found) => found,
            Err(missing) => return StepEnd::Missing(missing),
        };
        let old = self.record(&found, RecordPart::Whole);
        let value = old.as_ref().map(|old| old.value.to_bytes());
        let parts = old.as_ref().zip(value.as_ref()).map(|(old, value)| (value, old.flags, old.expiry.0));
        let outcome = match update::outcome(update, parts) {
            Ok(outcome) => outcome,
            Err(reply) => return StepEnd::Done(reply),
        };
        if let Some(error) = self.too_large(key, outcome.value.len() as u64) {
            return StepEnd::Done(Reply::Failed(error));
        }
        let expiry = Expiry(outcome.expiry);
        let old_flags = old.as_ref().map_or(0, |old| old.flags);
        let item = Item { key, value: &outcome.value, flags: outcome.flags.unwrap_or(old_flags), expiry };
        let bytes = self.new_header(&item).total();
        if !self.make_room(bytes, effects) || !self.make_index_room(tag, effects) {
            return StepEnd::NoRoom;
        }
        let Some(version) = self.store(item, tag, effects) else { return self.no_block(effects) };
        StepEnd::Done(match (update, outcome.number, old) {
            (Update::Touch(_), _, Some(old)) => Reply::Record(Some(Record { version, expiry, ..old })),
            (_, Some(number), _) => Reply::Number { number, version },
            (_, _, old) => Reply::Done { version, existed: old.is_some() },
        })
    }
}

impl NewestItem {
    fn version(&self) -> Option<u64> {
        match self {
            NewestItem::Absent => None,
            NewestItem::Dram(_, header) => Some(header.version),
            NewestItem::Volume(_, fetched) => Some(fetched.header.version),
        }
    }
}

/// The collections that a range consists of, if it is whole ones.
fn collections((from, to): &(Bound<Key>, Bound<Key>)) -> Option<(u32, u32)> {
    let begins = |key: &Key| key.user().is_empty().then_some(key.collection().0);
    let first = match from {
        Bound::Unbounded => 0,
        Bound::Included(key) => begins(key)?,
        Bound::Excluded(_) => return None,
    };
    let last = match to {
        Bound::Unbounded => CollectionId::ENGINE.0,
        Bound::Excluded(key) => begins(key)?.checked_sub(1)?,
        Bound::Included(_) => return None,
    };
    (first <= last).then_some((first, last))
}
