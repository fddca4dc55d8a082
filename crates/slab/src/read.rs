//! Gets of both placements, and reads of small pages (`in_place`): at most `depth` in flight,
//! readers of one page share one read. Records of `packed` are read in `packed/read.rs`, blobs in
//! `blob_read.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::HashMap;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Corruption, Expiry, Key};
use stratakv_device::{Block, Class, IoFault};
use stratakv_engine::{Effects, Error, Record, RecordPart, Reply, Token, Value};

use crate::blob::Shape;
use crate::blob_read::BlobPurpose;
use crate::page::{self, PageCheck, Slot, SlotRecord};
use crate::place::RecordPlace;
use crate::slab::{IoPurpose, Slab, is_expired};
use crate::space::Extent;
use crate::table;

/// Values from this length on are shared with the cache instead of copied.
pub(crate) const SHARED_BYTES: usize = 1024;

/// Who waits for a page.
#[derive(Debug)]
pub(crate) enum Waiter {
    Get {
        token: Token,
        key: Key,
        part: RecordPart,
    },
    /// The first write of this key.
    Write(Key),
    /// An item of a scan.
    Scan {
        scan: u64,
        item: usize,
    },
    /// The clearing of an older copy.
    Clear(Key, RecordPlace),
}

impl Waiter {
    /// Whether it is a get of somebody who has left.
    pub(crate) fn is_get_of(&self, has_left: &dyn Fn(Token) -> bool) -> bool {
        self.token().is_some_and(has_left)
    }

    /// Who is to be answered, of a get.
    pub(crate) fn token(&self) -> Option<Token> {
        if let Waiter::Get { token, .. } = self { Some(*token) } else { None }
    }
}

/// Page reads queued and in flight.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    waiters: HashMap<u32, Vec<Waiter>>,
    queue: VecDeque<u32>,
    /// Physical pages being read.
    in_flight: Vec<u32>,
}

impl Reads {
    pub(crate) fn is_idle(&self) -> bool {
        self.waiters.is_empty()
    }
    pub(crate) fn waiting(&self) -> usize {
        self.waiters.len()
    }
    /// Whether a read in flight forbids reusing the extent.
    pub(crate) fn pins(&self, extent: &Extent) -> bool {
        self.in_flight.iter().any(|page| (extent.first..extent.first + extent.pages).contains(page))
    }
    /// Forgets gets of those who have left, where the page has not been asked for yet. Whose they
    /// were.
    pub(crate) fn give_up(&mut self, has_left: &dyn Fn(Token) -> bool) -> Vec<Token> {
        let mut left = Vec::new();
        self.queue.retain(|page| {
            let Some(waiters) = self.waiters.get_mut(page) else { return false };
            left.extend(
                waiters.extract_if(.., |waiter| waiter.is_get_of(has_left)).filter_map(|waiter| waiter.token()),
            );
            let is_wanted = !waiters.is_empty();
            if !is_wanted {
                self.waiters.remove(page);
            }
            is_wanted
        });
        left
    }
    /// Reads wait for a block, and nothing in flight will give one back.
    pub(crate) fn is_starved(&self, in_flight: usize) -> bool {
        !self.queue.is_empty() && in_flight == 0
    }
}

impl Slab {
    /// Answers a get: from the cache at once, or after one read.
    pub(crate) fn get(&mut self, token: Token, key: Key, part: RecordPart, effects: &mut Effects) {
        self.answer_get(token, key, part, true, effects);
    }

    /// `first`: not after a wait for its page. Only then it counts as a hit or miss.
    fn answer_get(&mut self, token: Token, key: Key, part: RecordPart, first: bool, effects: &mut Effects) {
        if let Some(reply) = self.batch_reply(&key, part, effects) {
            return effects.reply(token, reply);
        }
        let Some(entry) = self.index.0.get(key.encoded()).filter(|entry| !is_expired(entry.expiry, effects)) else {
            return effects.reply(token, Reply::Record(None));
        };
        match RecordPlace::from_bits(entry.place) {
            RecordPlace::Record(addr) => match self.cached_record(addr, &key, part) {
                Some(record) => {
                    self.counters.cache_hits += u64::from(first);
                    let reply = alive(record, effects);
                    effects.reply(token, reply);
                }
                None => {
                    self.counters.cache_misses += u64::from(first);
                    self.request_record(addr, Waiter::Get { token, key, part });
                }
            },
            RecordPlace::Blob { pages, .. } if is_longer(&key, pages, part) => {
                effects.reply(token, Reply::Longer(u64::from(pages) * PAGE_BYTES as u64));
            }
            RecordPlace::Blob { first, pages } => {
                self.read_blob(BlobPurpose::Get(token), key, (first, pages), part, effects);
            }
            RecordPlace::Slot { logical, slot } => match self.cache.0.get(u64::from(logical)) {
                Some(block) => {
                    self.counters.cache_hits += u64::from(first);
                    let reply = match self.record_at(&block, logical, slot, &key, part) {
                        Ok(record) => alive(record, effects),
                        Err(corruption) => Reply::Failed(corruption.into()),
                    };
                    effects.reply(token, reply);
                }
                None => {
                    self.counters.cache_misses += u64::from(first);
                    self.request_page(logical, Waiter::Get { token, key, part }, effects);
                }
            },
        }
    }

    /// The record of `key` in a durable image.
    pub(crate) fn record_at(
        &mut self,
        block: &Arc<Block>,
        logical: u32,
        slot: u8,
        key: &Key,
        part: RecordPart,
    ) -> Result<Record, Corruption> {
        match page::slot(block, slot) {
            Slot::Live(record) if record.key == key.encoded() => Ok(record_part(block, &record, part)),
            found => {
                let found = match found {
                    Slot::Free => "a free slot",
                    Slot::Live(_) => "another key's record",
                    Slot::Damaged { .. } => "bytes whose checksum does not match",
                };
                let place = self.table.get(logical).map_or(0, |entry| entry.place);
                let corruption = self.corruption(place, "record", format!("slot {slot}: {key}"), found);
                self.note_corruption(&corruption);
                Err(corruption)
            }
        }
    }

    /// Reads a page for `waiter`, or joins the read under way.
    pub(crate) fn request_page(&mut self, logical: u32, waiter: Waiter, effects: &mut Effects) {
        let waiters = self.reads.waiters.entry(logical).or_default();
        waiters.push(waiter);
        if waiters.len() == 1 {
            self.reads.queue.push_back(logical);
            self.pump_reads(effects);
        }
    }

    /// Submits queued page reads, up to the depth.
    pub(crate) fn pump_reads(&mut self, effects: &mut Effects) {
        while !self.reads.queue.is_empty() && self.reads.in_flight.len() < self.config.depth.max(1) as usize {
            let Some(block) = self.take_block(Class::Page, effects) else { return };
            let Some(logical) = self.reads.queue.pop_front() else { return };
            let Some(entry) = self.table.get(logical).copied() else { continue };
            self.reads.in_flight.push(entry.place);
            self.counters.page_reads += 1;
            self.counters.read_bytes += block.len() as u64;
            let io = self.io.start(IoPurpose::Page { logical, place: entry.place });
            let len = block.len() as u32;
            effects.read(io, Self::offset(entry.place), block, len);
        }
    }

    /// A page read is done: checks the page, caches it, goes on with its waiters.
    pub(crate) fn page_read(
        &mut self,
        logical: u32,
        place: u32,
        mut block: Block,
        result: Result<(), IoFault>,
        effects: &mut Effects,
    ) {
        if let Some(at) = self.reads.in_flight.iter().position(|page| *page == place) {
            self.reads.in_flight.swap_remove(at);
        }
        let waiters = self.reads.waiters.remove(&logical).unwrap_or_default();
        let entry = self.table.get(logical).copied();
        let current = entry.is_some_and(|entry| entry.place == place);
        let error = match (result, entry) {
            // The page moved while it was read: its newer image is (or was) in the cache.
            _ if !current => None,
            (Err(fault), _) => Some(Error::Io { what: "reading a page", fault }),
            (Ok(()), Some(entry)) => self.check_page(&mut block, logical, place, entry.tag).err().map(Error::Corrupt),
            (Ok(()), None) => None,
        };
        if current && error.is_none() {
            self.cache.0.insert(u64::from(logical), Arc::new(block));
        } else {
            drop(block);
        }
        if self.space.has_pinned() {
            self.release_deferred(effects);
        }
        if error.is_some() {
            self.lost_slots += u64::from(self.table.shun(logical));
        }
        for waiter in waiters {
            self.page_ready(logical, waiter, error.as_ref(), effects);
        }
        self.pump_reads(effects);
    }

    fn page_ready(&mut self, logical: u32, waiter: Waiter, error: Option<&Error>, effects: &mut Effects) {
        match (waiter, error) {
            (Waiter::Get { token, .. }, Some(error)) => effects.reply(token, Reply::Failed(error.clone())),
            (Waiter::Get { token, key, part }, None) => self.answer_get(token, key, part, false, effects),
            (Waiter::Write(key), Some(error)) if self.lies_in(&key, logical) => {
                self.fail_first(&key, error.clone(), effects);
            }
            (Waiter::Write(key), _) => self.wake(&key, effects),
            (Waiter::Scan { scan, .. }, Some(error)) => self.fail_scan(scan, error, effects),
            (Waiter::Scan { scan, item }, None) => self.scan_item_ready(scan, item, effects),
            // It may be there for recovery: the next read of the page may check, or an older image
            // of it come to hold.
            (Waiter::Clear(key, place), Some(error)) => self.clear_failed(&key, place, error.clone(), effects),
            (Waiter::Clear(key, place), None) => self.clear_copy(&key, place, effects),
        }
    }

    fn lies_in(&self, key: &Key, page: u32) -> bool {
        let entry = self.index.0.get(key.encoded());
        entry.is_some_and(
            |entry| matches!(RecordPlace::from_bits(entry.place), RecordPlace::Slot { logical, .. } if logical == page),
        )
    }

    fn check_page(&mut self, block: &mut Block, logical: u32, place: u32, tag: u32) -> Result<(), Corruption> {
        let (expected, found) = match page::verify(block, &self.config.uuid, place) {
            PageCheck::Image { header, .. } if header.logical == logical && table::tag(header.sequence) == tag => {
                return Ok(());
            }
            PageCheck::Image { header, .. } => (
                format!("the image of page {logical} written last"),
                format!("page {} of sequence {:x}: a write was lost or went astray", header.logical, header.sequence),
            ),
            PageCheck::Mixed(..) => (format!("page {logical}"), "header and trailer of different writes".into()),
            PageCheck::Unknown => (format!("page {logical}"), "neither header nor trailer matches its checksum".into()),
        };
        let corruption = self.corruption(place, "page", expected, &found);
        self.note_corruption(&corruption);
        Err(corruption)
    }
}

/// A record, unless it has expired: of one that was found damaged and can be read after all, the
/// index does not know when.
pub(crate) fn alive(record: Record, effects: &Effects) -> Reply {
    Reply::Record(Some(record).filter(|record| !is_expired(record.expiry.0, effects)))
}

/// Whether the value of a blob of so many pages is longer than its reader expects.
fn is_longer(key: &Key, pages: u32, part: RecordPart) -> bool {
    part.expected_bytes().is_some_and(|bytes| {
        let may_be = u64::from(pages) * PAGE_BYTES as u64 > bytes;
        may_be && pages > Shape::new(key.encoded().len(), bytes as usize).pages()
    })
}

/// The part of a record that was asked for; small values are copied, others shared with the cache.
fn record_part(block: &Arc<Block>, record: &SlotRecord<'_>, part: RecordPart) -> Record {
    let range = part_range(part, record.value.len());
    let value = if range.len() < SHARED_BYTES {
        Value::Inline(Bytes::copy_from_slice(record.value.get(range).unwrap_or_default()))
    } else {
        Value::Blocks {
            start: (record.value_start + range.start) as u32,
            len: range.len() as u64,
            blocks: vec![Arc::clone(block)],
        }
    };
    Record {
        value,
        value_bytes: record.value.len() as u64,
        flags: record.meta.flags,
        version: record.meta.version,
        expiry: Expiry(record.meta.expiry),
    }
}

/// The bytes of a value of `len` bytes that `part` asks for.
pub(crate) fn part_range(part: RecordPart, len: usize) -> std::ops::Range<usize> {
    match part {
        RecordPart::Meta => 0..0,
        RecordPart::Whole => 0..len,
        RecordPart::Sliced { start, len: wanted, .. } => {
            part_range(RecordPart::Range { start, len: wanted.into() }, len)
        }
        RecordPart::Range { start, len: wanted } => {
            let start = start.min(len as u64);
            let end = start.saturating_add(wanted).min(len as u64);
            start as usize..end as usize
        }
    }
}
