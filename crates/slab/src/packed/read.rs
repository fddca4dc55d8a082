//! Reads of records: from the cache, or one read of the pages they lie on, which checks them.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::HashMap;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Corruption, Expiry, Key, canary};
use stratakv_device::{Block, Class, IoFault};
use stratakv_engine::{Effects, Error, Record, RecordPart, Value};

use super::batch::{self, RecordKind};
use super::spot::Spot;
use crate::page::Meta;
use crate::place::Place;
use crate::read::{SHARED_BYTES, Waiter, alive, part_range};
use crate::slab::{self, Slab};
use crate::space::Extent;
use crate::write::{Newest, Stop, Wait, Work};

/// Reads queued and in flight, by the pages they read.
#[derive(Debug, Default)]
pub(crate) struct RecordReads {
    waiters: HashMap<(u32, u32), Vec<(Spot, Waiter)>>,
    queue: VecDeque<(u32, u32)>,
    in_flight: Vec<(u32, u32)>,
}

impl RecordReads {
    pub(crate) fn is_idle(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Whether a read, queued or in flight, forbids reusing the extent.
    pub(crate) fn pins(&self, extent: &Extent) -> bool {
        let end = extent.first + extent.pages;
        self.waiters.keys().any(|(first, pages)| *first < end && extent.first < first + pages)
    }

    /// Reads wait for a block, and nothing in flight will give one back.
    pub(crate) fn is_starved(&self, in_flight: usize) -> bool {
        !self.queue.is_empty() && in_flight == 0
    }
}

/// Bytes of a record, where they lie.
enum Found {
    Page(Arc<Block>, usize),
    Copied(Vec<u8>),
}

impl Found {
    fn bytes(&self) -> &[u8] {
        match self {
            Found::Page(block, start) => block.get(*start..).unwrap_or_default(),
            Found::Copied(bytes) => bytes,
        }
    }
}

impl Spot {
    /// The pages it lies on: the first, and how many.
    fn span(self) -> (u32, u32) {
        let first = self.at / PAGE_BYTES as u64;
        let last = (self.at + u64::from(self.bytes()) - 1) / PAGE_BYTES as u64;
        (first as u32, (last - first) as u32 + 1)
    }

    fn start(self) -> usize {
        (self.at % PAGE_BYTES as u64) as usize
    }
}

impl Slab {
    /// The record of `key` at `spot`, if it is cached: it was checked when it came into memory.
    pub(crate) fn cached_record(&mut self, spot: Spot, key: &Key, part: RecordPart) -> Option<Record> {
        let hit = self.packed.as_mut()?.cache.get(spot.at)?;
        let (record, start) = batch::parsed(hit.bytes)?;
        if record.key != key.encoded() || record.kind != RecordKind::Value {
            debug_assert!(false, "the cache has another record at {spot:?} than {key}");
            return None;
        }
        let range = part_range(part, record.value.len());
        let value = match hit.shared {
            // A reply holds a whole sheet: only for what is too long to be copied.
            Some((block, at)) if range.len() >= PAGE_BYTES => Value::Blocks {
                blocks: vec![Arc::clone(block)],
                start: (at + start + range.start) as u32,
                len: range.len() as u64,
            },
            _ => Value::Inline(Bytes::copy_from_slice(record.value.get(range).unwrap_or_default())),
        };
        Some(record_with(value, record.meta, record.value.len()))
    }

    /// A record, and its length.
    fn record_in(
        &mut self,
        found: &Found,
        spot: Spot,
        key: &Key,
        part: RecordPart,
    ) -> Result<(Record, usize), Corruption> {
        let bytes = found.bytes();
        let generation = self.packed.as_ref().map_or(0, |packed| packed.segments.generation(spot));
        let what = match batch::record(&self.config.uuid, spot.at, generation, bytes) {
            Some((record, start)) if record.key == key.encoded() && record.kind == RecordKind::Value => {
                return Ok((record_part(found, (record.meta, record.value, start), part), record.bytes()));
            }
            Some(_) => "another record",
            None => "bytes whose checksum does not match",
        };
        let page = (spot.at / PAGE_BYTES as u64) as u32;
        let corruption = self.corruption(page, "record", format!("{key} at byte {}", spot.at), what);
        self.note_corruption(&corruption);
        Err(corruption)
    }

    /// Reads a record's pages for `waiter`, or joins the read under way.
    pub(crate) fn request_record(&mut self, spot: Spot, waiter: Waiter, effects: &mut Effects) {
        let Some(packed) = &mut self.packed else { return };
        let (first, pages) = spot.span();
        let segment = packed.segments.pages;
        let span = (first, pages.min(segment - first % segment));
        let waiters = packed.reads.waiters.entry(span).or_default();
        waiters.push((spot, waiter));
        if waiters.len() == 1 {
            packed.reads.queue.push_back(span);
            self.pump_record_reads(effects);
        }
    }

    /// Submits queued reads, up to the depth.
    pub(crate) fn pump_record_reads(&mut self, effects: &mut Effects) {
        let depth = self.config.depth.max(1) as usize;
        loop {
            let Some(packed) = &self.packed else { return };
            let Some(&(first, pages)) = packed.reads.queue.front() else { return };
            if packed.reads.in_flight.len() >= depth {
                return;
            }
            let class = if pages == 1 { Class::Page } else { Class::Slice };
            let Some(block) = self.take_block(class, effects) else { return };
            let Some(packed) = &mut self.packed else { return };
            packed.reads.queue.pop_front();
            packed.reads.in_flight.push((first, pages));
            let len = pages * PAGE_BYTES as u32;
            self.counters.page_reads += 1;
            self.counters.read_bytes += u64::from(len);
            let io = self.io.start(slab::Purpose::Packed(super::Purpose::Record { first, pages }));
            effects.read(io, Self::offset(first), block, len);
        }
    }

    /// A read is done: its pages are cached, its waiters go on.
    pub(crate) fn record_read(
        &mut self,
        (first, pages): (u32, u32),
        block: Block,
        result: Result<(), IoFault>,
        effects: &mut Effects,
    ) {
        let Some(packed) = &mut self.packed else { return };
        if let Some(at) = packed.reads.in_flight.iter().position(|span| *span == (first, pages)) {
            packed.reads.in_flight.swap_remove(at);
        }
        let waiters = packed.reads.waiters.remove(&(first, pages)).unwrap_or_default();
        let error = result.err().map(|fault| Error::Io { what: "reading a record", fault });
        let block = Arc::new(block);
        for (spot, waiter) in waiters {
            let found = if pages == 1 {
                Found::Page(Arc::clone(&block), spot.start())
            } else {
                let len = (pages as usize * PAGE_BYTES).min(spot.start() + spot.bytes() as usize);
                Found::Copied(block.get(spot.start()..len).unwrap_or_default().to_vec())
            };
            if let Some(bytes) = self.record_ready(spot, &found, waiter, error.as_ref(), effects)
                && let Some(packed) = &mut self.packed
            {
                let record = found.bytes().get(..bytes).unwrap_or_default();
                packed.cache.insert(spot.at, &[record], &mut || effects.block(Class::Slice));
            }
        }
        if self.space.has_pinned() {
            self.release_limbo(effects);
        }
        self.pump_record_reads(effects);
    }

    /// Goes on with who waited for a record; its length, if it checks.
    fn record_ready(
        &mut self,
        spot: Spot,
        found: &Found,
        waiter: Waiter,
        error: Option<&Error>,
        effects: &mut Effects,
    ) -> Option<usize> {
        let (key, part) = match &waiter {
            Waiter::Get { key, part, .. } => (key.clone(), *part),
            Waiter::Write(key) => (key.clone(), RecordPart::Whole),
            Waiter::Scan { scan, item } => match self.scan_key(*scan, *item) {
                Some(key) => (key, RecordPart::Whole),
                None => return None,
            },
            Waiter::Clear(..) => return None,
        };
        let record = match error {
            Some(error) => Err(error.clone()),
            None => self.record_in(found, spot, &key, part).map_err(Error::Corrupt),
        };
        let bytes = record.as_ref().ok().map(|(_, bytes)| *bytes);
        let record = record.map(|(record, _)| record);
        match (waiter, record) {
            (Waiter::Get { token, .. }, Ok(record)) => {
                let reply = alive(record, effects);
                effects.reply(token, reply);
            }
            (Waiter::Get { token, .. }, Err(error)) => effects.reply(token, stratakv_engine::Reply::Failed(error)),
            (Waiter::Scan { scan, item }, Ok(record)) => self.scan_item_read(scan, item, record, effects),
            (Waiter::Scan { scan, .. }, Err(error)) => self.fail_scan(scan, &error, effects),
            (Waiter::Write(key), Ok(record)) => {
                let meta = Meta { version: record.version, flags: record.flags, expiry: record.expiry.0 };
                if let Some(work) = self.pending.get_mut(&key).and_then(|pending| pending.queue.front_mut()) {
                    let value = record.value.to_bytes();
                    work.loaded_whole = value.len() as u64 == record.value_bytes;
                    work.loaded = Some((meta, value));
                }
                self.wake(&key, effects);
            }
            (Waiter::Write(key), Err(error)) => self.fail_first(&key, error, effects),
            (Waiter::Clear(..), _) => {}
        }
        bytes
    }

    /// The current record for a write that depends on it.
    pub(crate) fn packed_current(&mut self, work: &Work, place: Place, newest: &Newest) -> Result<(Meta, Bytes), Stop> {
        if newest.pending {
            let newest = self.pending.get(&work.key).and_then(|pending| pending.newest.clone());
            return newest.ok_or(Wait::Drain.into());
        }
        let whole = self.wants_whole(work);
        if let Some(loaded) = work.loaded.as_ref().filter(|_| work.loaded_whole || !whole) {
            return Ok(loaded.clone());
        }
        if let Place::Record(spot) = place
            && let Some(record) = self.cached_record(spot, &work.key, RecordPart::Whole)
        {
            let meta = Meta { version: record.version, flags: record.flags, expiry: record.expiry.0 };
            return Ok((meta, record.value.to_bytes()));
        }
        Err(Wait::Run { whole }.into())
    }
}

/// The part of a record that was asked for; a large one in a single page is shared with the cache.
fn record_part(found: &Found, (meta, value, start): (Meta, &[u8], usize), part: RecordPart) -> Record {
    let range = part_range(part, value.len());
    let shared = match found {
        Found::Page(block, at) if range.len() >= SHARED_BYTES => Some(Value::Blocks {
            blocks: vec![Arc::clone(block)],
            start: (at + start + range.start) as u32,
            len: range.len() as u64,
        }),
        _ => None,
    };
    let copied = || Value::Inline(Bytes::copy_from_slice(value.get(range.clone()).unwrap_or_default()));
    record_with(shared.unwrap_or_else(copied), meta, value.len())
}

fn record_with(value: Value, meta: Meta, value_len: usize) -> Record {
    Record {
        value,
        value_bytes: value_len as u64,
        flags: meta.flags,
        version: if canary!("packed_records_lose_their_version") { 1 } else { meta.version },
        expiry: Expiry(meta.expiry),
    }
}
