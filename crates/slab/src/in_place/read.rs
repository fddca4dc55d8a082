//! Reads of pages of slots: at most `depth` in flight, readers of one page share one read.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::HashMap;
use stratakv_base::{Corruption, Key};
use stratakv_device::{Block, Class, IoFault};
use stratakv_engine::{Effects, Error, Record, RecordPart, Reply, Token, Value};

use super::page::{self, PageCheck, Slot, SlotRecord};
use super::{PageIoPurpose, Slab, SlotAddress, SlotPlace};
use crate::place::RecordPlace;
use crate::read::{SHARED_BYTES, Waiter, part_range};
use crate::record;
use crate::requests::IoPurpose;
use crate::space::{Extent, offset};

/// Who waits for a page.
#[derive(Debug)]
pub(crate) enum PageWaiter {
    Record(Waiter),
    /// The clearing of an older copy.
    Clear(Key, SlotPlace),
}

impl PageWaiter {
    /// Whether it is a get of somebody who has left.
    fn is_get_of(&self, has_left: &dyn Fn(Token) -> bool) -> bool {
        self.token().is_some_and(has_left)
    }

    fn token(&self) -> Option<Token> {
        if let PageWaiter::Record(waiter) = self { waiter.token() } else { None }
    }
}

/// Page reads queued and in flight.
#[derive(Debug, Default)]
pub(crate) struct PageReads {
    waiters: HashMap<u32, Vec<PageWaiter>>,
    queue: VecDeque<u32>,
    /// Physical pages being read.
    in_flight: Vec<u32>,
}

impl PageReads {
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
    /// The record of `key` in a durable image.
    #[inline]
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
                let place = self.placement.table.get(logical).map_or(0, |entry| entry.place);
                let corruption = self.corruption(place, "record", format!("slot {slot}: {key}"), found);
                self.health.note(&corruption);
                Err(corruption)
            }
        }
    }

    /// Reads a page for `waiter`, or joins the read under way.
    pub(crate) fn request_page(&mut self, logical: u32, waiter: PageWaiter, effects: &mut Effects) {
        let waiters = self.placement.reads.waiters.entry(logical).or_default();
        waiters.push(waiter);
        if waiters.len() == 1 {
            self.placement.reads.queue.push_back(logical);
            self.pump_page_reads(effects);
        }
    }

    /// Submits queued page reads, up to the depth.
    pub(crate) fn pump_page_reads(&mut self, effects: &mut Effects) {
        while !self.placement.reads.queue.is_empty()
            && self.placement.reads.in_flight.len() < self.config.depth.max(1) as usize
        {
            let Some(block) = self.take_block(Class::Page, effects) else { return };
            let Some(logical) = self.placement.reads.queue.pop_front() else { return };
            let Some(entry) = self.placement.table.get(logical).copied() else { continue };
            self.placement.reads.in_flight.push(entry.place);
            self.io.counters.page_reads += 1;
            self.io.counters.read_bytes += block.len() as u64;
            let io = self.io.start(IoPurpose::Placement(PageIoPurpose::Page { logical, place: entry.place }));
            let len = block.len() as u32;
            effects.read(io, offset(entry.place), block, len);
        }
    }

    /// A page read is done: checks the page, caches it, goes on with its waiters.
    #[inline]
    pub(crate) fn page_read(
        &mut self,
        logical: u32,
        place: u32,
        mut block: Block,
        result: Result<(), IoFault>,
        effects: &mut Effects,
    ) {
        if let Some(at) = self.placement.reads.in_flight.iter().position(|page| *page == place) {
            self.placement.reads.in_flight.swap_remove(at);
        }
        let waiters = self.placement.reads.waiters.remove(&logical).unwrap_or_default();
        let entry = self.placement.table.get(logical).copied();
        let current = entry.is_some_and(|entry| entry.place == place);
        let error = match (result, entry) {
            // The page moved while it was read: its newer image is (or was) in the cache.
            _ if !current => None,
            (Err(fault), _) => Some(Error::Io { what: "reading a page", fault }),
            (Ok(()), Some(entry)) => self.check_page(&mut block, logical, place, entry.tag).err().map(Error::Corrupt),
            (Ok(()), None) => None,
        };
        if current && error.is_none() {
            self.placement.cache.0.insert(u64::from(logical), Arc::new(block));
        } else {
            drop(block);
        }
        if self.space.has_pinned() {
            self.release_deferred(effects);
        }
        if error.is_some() {
            self.placement.lost_slots += u64::from(self.placement.table.shun(logical));
        }
        for waiter in waiters {
            self.page_ready(logical, waiter, error.as_ref(), effects);
        }
        self.pump_page_reads(effects);
    }

    fn page_ready(&mut self, logical: u32, waiter: PageWaiter, error: Option<&Error>, effects: &mut Effects) {
        match (waiter, error) {
            (PageWaiter::Record(Waiter::Get { token, .. }), Some(error)) => {
                effects.reply(token, Reply::Failed(error.clone()));
            }
            (PageWaiter::Record(Waiter::Get { token, key, part, finger }), None) => {
                self.answer_get(token, key, part, Some(finger), effects);
            }
            (PageWaiter::Record(Waiter::Write(key)), Some(error)) if self.lies_in(&key, logical) => {
                self.fail_first(&key, error.clone(), effects);
            }
            (PageWaiter::Record(Waiter::Write(key)), _) => self.wake(&key, effects),
            (PageWaiter::Record(Waiter::Scan { scan, .. }), Some(error)) => self.fail_scan(scan, error, effects),
            (PageWaiter::Record(Waiter::Scan { scan, item }), None) => self.scan_item_ready(scan, item, effects),
            // It may be there for recovery: the next read of the page may check, or an older image
            // of it come to hold.
            (PageWaiter::Clear(key, place), Some(error)) => self.clear_failed(&key, place, error.clone(), effects),
            (PageWaiter::Clear(key, place), None) => self.clear_copy(&key, place, effects),
        }
    }

    fn lies_in(&self, key: &Key, page: u32) -> bool {
        let entry = self.index.get(key);
        entry.is_some_and(
            |entry| matches!(RecordPlace::from_bits(entry.place), RecordPlace::Record(SlotAddress { logical, .. }) if logical == page),
        )
    }

    fn check_page(&mut self, block: &mut Block, logical: u32, place: u32, tag: u32) -> Result<(), Corruption> {
        let (expected, found) = match page::verify(block, &self.config.uuid, place) {
            PageCheck::Image { header, .. } if header.logical == logical && record::tag(header.sequence) == tag => {
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
        self.health.note(&corruption);
        Err(corruption)
    }
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
    record.meta.record(value, record.value.len() as u64)
}
