//! Reads of records: from the cache, or one read of the pages they lie on, which checks them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_base::{Corruption, Key, fault_point};
use stratakv_device::{Block, Class, IoFault};
use stratakv_engine::{Effects, Error, Record, RecordPart, Token, Value};
use stratakv_index::{CachedAt, Hit};

use super::addr::RecordAddress;
use super::batch::{self, RecordKind};
use super::{Log, LogPlace, Packed};
use crate::keys::Wait;
use crate::place::RecordPlace;
use crate::placement::Placement;
use crate::read::{SHARED_BYTES, Waiter, alive, part_range};
use crate::record::Meta;
use crate::requests::IoPurpose;
use crate::space::{Extent, offset};
use crate::write::{Newest, Stop, Work};

/// Pages: the first, and how many.
type Span = (u32, u32);

/// Most pages of one read.
const READ_PAGES: u32 = (SLICE_BYTES / PAGE_BYTES) as u32;
/// Most pages of a record.
const RECORD_PAGES_MAX: u32 = (super::INLINE_BYTES_MAX / PAGE_BYTES) as u32 + 1;
/// Pages between two that are wanted which are read along rather than asked for twice: 16 KiB cost
/// about as much as 4.
const GAP_PAGES: u32 = 2;
/// Records that scans got from one read are not cached if there were more: each cost so small a
/// part of a read that the room is better given to those that lie alone, and a scan over neighbours
/// would else spend more on the cache than on the records.
const CACHED_OF_READ_MAX: usize = 8;

/// Reads queued and in flight.
///
/// Requests of a tick are queued, and submitted at its end: those for neighbouring pages become one
/// read.
#[derive(Debug, Default)]
pub(crate) struct RecordReads {
    wanted: BTreeMap<Span, Wanted>,
    /// Spans of which no read is under way, in the order asked.
    queue: BTreeMap<u64, Span>,
    in_flight: Vec<Reading>,
    next: u64,
}

/// Who waits for some pages.
#[derive(Debug)]
struct Wanted {
    waiters: Vec<(RecordAddress, Waiter)>,
    /// Its number in the queue, or that of the read under way.
    number: u64,
    queued: bool,
    /// A read of it and its neighbours failed: now each on its own, as the fault may be another's.
    alone: bool,
}

/// A read in flight.
#[derive(Debug)]
struct Reading {
    number: u64,
    first: u32,
    pages: u32,
    /// The last page on which a record begins that was wanted when it was submitted: up to here all
    /// pages were written by then, as the batches of a segment are shown in order. Pages beyond may
    /// have been in the middle of being written.
    sure: u32,
}

impl RecordReads {
    pub(crate) fn is_idle(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Whether a read, queued or in flight, forbids reusing the extent.
    pub(crate) fn pins(&self, extent: &Extent) -> bool {
        let end = extent.first + extent.pages;
        let near = self.wanted.range((extent.first.saturating_sub(RECORD_PAGES_MAX), 0)..(end, 0));
        near.map(|(span, _)| span).any(|(first, pages)| extent.first < first + pages)
    }

    /// Reads wait for a block, and nothing in flight will give one back.
    pub(crate) fn is_starved(&self, in_flight: usize) -> bool {
        !self.queue.is_empty() && in_flight == 0
    }

    /// Forgets gets of those who have left, where no read is under way. Whose they were.
    pub(crate) fn give_up(&mut self, has_left: &dyn Fn(Token) -> bool) -> Vec<Token> {
        let mut left = Vec::new();
        self.queue.retain(|_, span| {
            let Some(wanted) = self.wanted.get_mut(span) else { return false };
            let gone = wanted.waiters.extract_if(.., |(_, waiter)| waiter.is_get_of(has_left));
            left.extend(gone.filter_map(|(_, waiter)| waiter.token()));
            let is_wanted = !wanted.waiters.is_empty();
            if !is_wanted {
                self.wanted.remove(span);
            }
            is_wanted
        });
        left
    }

    /// Adds a waiter: to the span's own waiters, to a read under way that brings its pages, or to
    /// the queue.
    fn want(&mut self, span: Span, addr: RecordAddress, waiter: Waiter) {
        if let Some(wanted) = self.wanted.get_mut(&span) {
            return wanted.waiters.push((addr, waiter));
        }
        let brings = |read: &&Reading| read.first <= span.0 && span.0 + span.1 <= read.sure + 1;
        let (number, queued) = match self.in_flight.iter().find(brings) {
            Some(read) => (read.number, false),
            None => {
                self.next += 1;
                self.queue.insert(self.next, span);
                (self.next, true)
            }
        };
        self.wanted.insert(span, Wanted { waiters: vec![(addr, waiter)], number, queued, alone: false });
    }

    /// The read that begins with the span asked for first, and the spans that it brings: those in
    /// the queue that lie next to it, in the same segment.
    fn reach(&self, front: Span, segment: u32) -> (Reading, Vec<Span>) {
        let (mut read, mut spans) = only(front);
        if self.wanted.get(&front).is_none_or(|wanted| wanted.alone) {
            return (read, spans);
        }
        let joins = |wanted: &Wanted| wanted.queued && !wanted.alone;
        let begin = front.0 - front.0 % segment;
        let after = self.wanted.range((front.0, 0)..(begin.saturating_add(segment), 0));
        for (span, _) in after.filter(|(span, wanted)| joins(wanted) && **span != front) {
            let end = (span.0 + span.1).max(read.first + read.pages);
            if span.0 > read.first + read.pages + GAP_PAGES || end - read.first > READ_PAGES {
                break;
            }
            read.pages = end - read.first;
            read.sure = span.0;
            spans.push(*span);
        }
        let before = self.wanted.range((begin, 0)..(front.0, 0)).rev();
        for (span, _) in before.filter(|(_, wanted)| joins(wanted)) {
            let end = (span.0 + span.1).max(read.first + read.pages);
            if span.0 + span.1 + GAP_PAGES < read.first || end - span.0 > READ_PAGES {
                break;
            }
            read.pages = end - span.0;
            read.first = span.0;
            spans.push(*span);
        }
        (read, spans)
    }

    /// Takes the spans of a read out of the queue.
    fn begin(&mut self, mut read: Reading, spans: &[Span]) -> u64 {
        self.next += 1;
        read.number = self.next;
        for span in spans {
            if let Some(wanted) = self.wanted.get_mut(span) {
                self.queue.remove(&wanted.number);
                (wanted.number, wanted.queued) = (self.next, false);
            }
        }
        self.in_flight.push(read);
        self.next
    }

    /// A read has come back: its pages, and who waited for it. If it `failed` for several spans,
    /// nobody is told yet: each is read again on its own.
    fn end(&mut self, number: u64, failed: bool) -> Option<(Span, Vec<(RecordAddress, Waiter)>)> {
        let at = self.in_flight.iter().position(|read| read.number == number)?;
        let Reading { first, pages, .. } = self.in_flight.swap_remove(at);
        let within = self.wanted.range((first, 0)..(first + pages, 0));
        let spans: SmallVec<[Span; 8]> =
            within.filter(|(_, wanted)| !wanted.queued && wanted.number == number).map(|(span, _)| *span).collect();
        if failed && spans.len() > 1 {
            for span in spans {
                self.next += 1;
                self.queue.insert(self.next, span);
                if let Some(wanted) = self.wanted.get_mut(&span) {
                    (wanted.number, wanted.queued, wanted.alone) = (self.next, true, true);
                }
            }
            return None;
        }
        let waiters = spans.iter().filter_map(|span| self.wanted.remove(span)).flat_map(|wanted| wanted.waiters);
        Some(((first, pages), waiters.collect()))
    }
}

/// A read of one span.
fn only(span: Span) -> (Reading, Vec<Span>) {
    (Reading { number: 0, first: span.0, pages: span.1, sure: span.0 }, vec![span])
}

/// Bytes of a record, where they lie in a block that was read.
struct RecordSlice(Arc<Block>, std::ops::Range<usize>);

impl RecordSlice {
    fn bytes(&self) -> &[u8] {
        self.0.get(self.1.clone()).unwrap_or_default()
    }
}

impl RecordAddress {
    /// The pages it lies on: the first, and how many.
    fn span(self) -> Span {
        let first = self.at / PAGE_BYTES as u64;
        let last = (self.at + u64::from(self.bytes()) - 1) / PAGE_BYTES as u64;
        (first as u32, (last - first) as u32 + 1)
    }

    /// Its bytes in `pages` pages from page `first` on.
    fn within(self, first: u32, pages: u32) -> std::ops::Range<usize> {
        let start = (self.at - u64::from(first) * PAGE_BYTES as u64) as usize;
        start..(start + self.bytes() as usize).min(pages as usize * PAGE_BYTES)
    }
}

impl Log {
    /// The record of `key` at `addr`, if it is cached: it was checked when it came into memory.
    /// `found`: where it is cached, or that it is not, if that is known.
    pub(super) fn record(
        &mut self,
        addr: RecordAddress,
        key: &Key,
        part: RecordPart,
        found: Option<Option<CachedAt>>,
    ) -> Option<Record> {
        let hit = match found {
            Some(found) => self.cache.get_found(found?),
            None => self.cache.get(addr.at),
        };
        record_of(hit?, key, part)
    }

    /// Reads a record's pages for `waiter`, at the end of the tick, or joins the read under way.
    pub(super) fn request_record(&mut self, addr: RecordAddress, waiter: Waiter) {
        let (first, pages) = addr.span();
        let segment = self.segments.pages;
        self.reads.want((first, pages.min(segment - first % segment)), addr, waiter);
    }
}

impl Packed {
    /// A record, and its length.
    fn record_in(
        &mut self,
        found: &RecordSlice,
        addr: RecordAddress,
        key: &Key,
        part: RecordPart,
    ) -> Result<(Record, usize), Corruption> {
        let bytes = found.bytes();
        let generation = self.placement.segments.generation(addr);
        let what = match batch::record(&self.config.uuid, addr.at, generation, bytes) {
            Some((record, start)) if record.key == key.encoded() && record.kind == RecordKind::Value => {
                return Ok((record_part(found, (record.meta, record.value, start), part), record.bytes()));
            }
            Some(_) => "another record",
            None => "bytes whose checksum does not match",
        };
        let page = (addr.at / PAGE_BYTES as u64) as u32;
        let corruption = self.corruption(page, "record", format!("{key} at byte {}", addr.at), what);
        self.health.note(&corruption);
        Err(corruption)
    }

    /// Submits queued reads, up to the depth.
    pub(crate) fn pump_record_reads(&mut self, effects: &mut Effects) {
        let depth = self.config.depth.max(1) as usize;
        while let Some((_, front)) = self.placement.reads.queue.first_key_value()
            && self.placement.reads.in_flight.len() < depth
        {
            let (front, segment) = (*front, self.placement.segments.pages);
            let (mut read, mut spans) = self.placement.reads.reach(front, segment);
            let class = |pages| if pages == 1 { Class::Page } else { Class::Slice };
            let mut block = self.take_block(class(read.pages), effects);
            if block.is_none() && read.pages > 1 && front.1 == 1 {
                // Large blocks are all lent out.
                (read, spans) = only(front);
                block = self.take_block(Class::Page, effects);
            }
            let Some(block) = block else { return };
            let (first, len) = (read.first, read.pages * PAGE_BYTES as u32);
            let number = self.placement.reads.begin(read, &spans);
            self.io.counters.page_reads += 1;
            self.io.counters.read_bytes += u64::from(len);
            let io = self.io.start(IoPurpose::Placement(super::LogIoPurpose::Record { read: number }));
            effects.read(io, offset(first), block, len);
        }
    }

    /// A read is done: its waiters go on, the records they wanted are cached.
    pub(crate) fn record_read(
        &mut self,
        number: u64,
        block: Block,
        result: Result<(), IoFault>,
        effects: &mut Effects,
    ) {
        let ended = self.placement.reads.end(number, result.is_err());
        let Some(((first, pages), waiters)) = ended else { return };
        let error = result.err().map(|fault| Error::Io { what: "reading a record", fault });
        self.count_read_of_scans(waiters.iter().map(|(_, waiter)| waiter));
        let block = Arc::new(block);
        let many = waiters.len() > CACHED_OF_READ_MAX;
        for (addr, waiter) in waiters {
            let found = RecordSlice(Arc::clone(&block), addr.within(first, pages));
            let passing = |scan| many || !self.is_scan_of_client(scan);
            let cached = !matches!(waiter, Waiter::Scan { scan, .. } if passing(scan));
            if let Some(bytes) = self.record_ready(addr, &found, (waiter, cached), error.as_ref(), effects) {
                let record = found.bytes().get(..bytes).unwrap_or_default();
                self.placement.cache.insert(addr.at, &[record], &mut || effects.block(Class::Slice));
            }
        }
        if self.space.has_pinned() {
            self.release_deferred(effects);
        }
    }

    /// Goes on with who waited for a record; its length, if it checks and is to be cached.
    fn record_ready(
        &mut self,
        addr: RecordAddress,
        found: &RecordSlice,
        (waiter, cached): (Waiter, bool),
        error: Option<&Error>,
        effects: &mut Effects,
    ) -> Option<usize> {
        let (key, part, finger) = match &waiter {
            Waiter::Get { key, part, finger, .. } => (key.clone(), *part, Some(*finger)),
            Waiter::Write(key) => (key.clone(), RecordPart::Whole, None),
            Waiter::Scan { scan, item } => match self.scan_key(*scan, *item) {
                Some(key) => (key, RecordPart::Whole, None),
                None => return None,
            },
        };
        let record = match error {
            Some(error) => Err(error.clone()),
            None => self.record_in(found, addr, &key, part).map_err(Error::Corrupt),
        };
        // It may have died while it was read: nobody would take it out of the cache, and its place
        // may come to hold another.
        let place = LogPlace::Record(addr).to_bits();
        let named = || self.index.find_at(finger, &key).is_some_and(|(entry, _)| entry.place == place);
        let bytes = record.as_ref().ok().filter(|_| cached && named()).map(|(_, bytes)| *bytes);
        let record = record.map(|(record, _)| record);
        match (waiter, record) {
            (Waiter::Get { token, .. }, Ok(record)) => {
                let reply = alive(record, effects);
                effects.reply(token, reply);
            }
            (Waiter::Get { token, .. }, Err(error)) => effects.reply(token, stratakv_engine::Reply::Failed(error)),
            (Waiter::Scan { scan, item }, Ok(record)) => {
                let origin = self.placement.origin(addr);
                self.scan_item_read(scan, item, record, origin);
            }
            (Waiter::Scan { scan, .. }, Err(error)) => self.fail_scan(scan, &error, effects),
            (Waiter::Write(key), Ok(record)) => {
                if let Some(work) = self.keys.first(&key) {
                    let value = record.value.to_bytes();
                    work.loaded_whole = value.len() as u64 == record.value_bytes;
                    work.loaded = Some((Meta::of(&record), value));
                }
                self.wake(&key, effects);
            }
            (Waiter::Write(key), Err(error)) => self.fail_first(&key, error, effects),
        }
        bytes
    }

    /// The current record for a write that depends on it.
    pub(crate) fn current(
        &mut self,
        work: &Work,
        place: LogPlace,
        newest: &Newest<Log>,
    ) -> Result<(Meta, Bytes), Stop<Log>> {
        if newest.pending {
            let newest = self.keys.pending.get(&work.key).and_then(|pending| pending.placement.newest.clone());
            return newest.ok_or(Wait::Drain.into());
        }
        let whole = self.wants_whole(work);
        if let Some(loaded) = work.loaded.as_ref().filter(|_| work.loaded_whole || !whole) {
            return Ok(loaded.clone());
        }
        if let RecordPlace::Record(addr) = place
            && let Some(record) = self.placement.record(addr, &work.key, RecordPart::Whole, None)
        {
            return Ok((Meta::of(&record), record.value.to_bytes()));
        }
        Err(Wait::Record { whole }.into())
    }
}

/// The part of a record that was asked for; of a read of one page, a long one is lent with its
/// block.
fn record_part(found: &RecordSlice, (meta, value, start): (Meta, &[u8], usize), part: RecordPart) -> Record {
    let range = match part {
        // All of it was read: it is not to be read again for the rest.
        RecordPart::Sliced { start: 0, .. } => 0..value.len(),
        part => part_range(part, value.len()),
    };
    let RecordSlice(block, at) = found;
    let shared = (range.len() >= SHARED_BYTES && block.class() == Class::Page).then(|| Value::Blocks {
        blocks: vec![Arc::clone(block)],
        start: (at.start + start + range.start) as u32,
        len: range.len() as u64,
    });
    let copied = || Value::Inline(Bytes::copy_from_slice(value.get(range.clone()).unwrap_or_default()));
    record_with(shared.unwrap_or_else(copied), meta, value.len())
}

/// The record of `key`, as it lies in the cache.
fn record_of(hit: Hit<'_>, key: &Key, part: RecordPart) -> Option<Record> {
    let (record, start) = batch::parsed(hit.bytes)?;
    if record.key != key.encoded() || record.kind != RecordKind::Value {
        // Two keys at one place: recovery was shown something false. What lies there is read and
        // judged.
        return None;
    }
    let range = part_range(part, record.value.len());
    let value = match hit.shared {
        // A reply holds a whole slab page: only for what is too long to be copied.
        Some((block, at)) if range.len() >= PAGE_BYTES => Value::Blocks {
            blocks: vec![Arc::clone(block)],
            start: (at + start + range.start) as u32,
            len: range.len() as u64,
        },
        _ => Value::Inline(Bytes::copy_from_slice(record.value.get(range).unwrap_or_default())),
    };
    Some(record_with(value, record.meta, record.value.len()))
}

fn record_with(value: Value, mut meta: Meta, value_len: usize) -> Record {
    fault_point!("packed_records_lose_their_version", meta.version = 1);
    meta.record(value, value_len as u64)
}
