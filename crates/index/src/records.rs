//! Record cache: single records of a log in memory, by where they lie on the volume.
//!
//! In a log, records that were written at the same time lie together, the hot beside the cold: a
//! cache of pages would hold mostly what nobody asks for. Records are copied, back to back, into
//! *slab pages* of 64 KiB (one of that length becomes a slab page as it is), and slab pages are
//! evicted whole by S3-FIFO (Yang et al., SOSP 2023): a new record goes into a small queue, a tenth
//! of the memory, and leaves it for the main queue only if it was used meanwhile, or was evicted
//! from there a short while ago; the main queue gives used records another round. So neither a scan
//! nor a stream of writes displaces what is hot. Up to 36 bytes a record, besides the record.

use std::collections::VecDeque;
use std::sync::Arc;

use stratakv_device::block::ChunkId;
use stratakv_device::{Block, Class};

use crate::linear::{Linear, hash};

/// Records and their places in a slab page are multiples of this.
const UNIT: usize = 8;
/// Uses that are counted.
const USES_MAX: u8 = 3;
/// The small queue's share of the slab pages is one in so many.
const SMALL_SHARE: usize = 10;
/// Slab pages evicted for one new slab page, at most.
const EVICTIONS_MAX: usize = 4;
/// Remembered evictions for each slab page of the limit.
const GHOSTS: usize = 64;
/// Bits of a place in a slab page, in units.
const START_BITS: u32 = 13;

/// Records by their offset on the volume, a multiple of 8.
///
/// One shard's own: not shared, no locks.
pub struct RecordCache {
    table: Linear<CachedRecord>,
    slab_pages: Vec<Option<SlabPage>>,
    free: Vec<u32>,
    /// Closed slab pages, oldest first: small, main.
    queues: [VecDeque<u32>; 2],
    open: [Option<u32>; 2],
    /// Fingerprints of records evicted from the small queue, each where its hash says.
    ghosts: Vec<u32>,
    limit_slab_pages: usize,
    /// Slab pages of which only the number is left, in a queue.
    hollow: usize,
    /// Records in the lists of all slab pages, those still there or not.
    listed: usize,
}

const SMALL: usize = 0;
const MAIN: usize = 1;
/// Length of a record that has a slab page for itself, in units.
const WHOLE: u16 = (Class::Slice.bytes() / UNIT) as u16;

#[derive(Clone, Copy)]
struct CachedRecord {
    slab_page: u32,
    /// In units.
    start: u16,
    len: u16,
    uses: u8,
}

impl CachedRecord {
    fn is_whole(self) -> bool {
        self.len == WHOLE
    }
}

struct SlabPage {
    memory: Memory,
    /// What was laid in it, in order: offset on the volume and start, in units. The table knows
    /// which of them are still there.
    records: Vec<u64>,
    /// Bytes in use.
    used: usize,
    queue: usize,
}

enum Memory {
    /// Being filled.
    Open(Block),
    /// May be lent to replies.
    Closed(Arc<Block>),
}

/// A record that [`RecordCache::find_all`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedAt(usize);

/// A cached record.
pub struct Hit<'a> {
    /// Its bytes, rounded up to a multiple of 8.
    pub bytes: &'a [u8],
    /// The block it lies in and where, if it can be lent.
    pub shared: Option<(&'a Arc<Block>, usize)>,
}

impl std::fmt::Debug for RecordCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecordCache({} records in {} slab pages)", self.len(), self.slab_page_count())
    }
}

impl Default for RecordCache {
    fn default() -> RecordCache {
        RecordCache::new()
    }
}

impl RecordCache {
    /// A cache that holds nothing until it is given a limit.
    pub fn new() -> RecordCache {
        RecordCache {
            table: Linear::new(),
            slab_pages: Vec::new(),
            free: Vec::new(),
            queues: Default::default(),
            open: [None; 2],
            ghosts: Vec::new(),
            limit_slab_pages: 0,
            hollow: 0,
            listed: 0,
        }
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of slab pages.
    pub fn slab_page_bytes(&self) -> usize {
        self.slab_page_count() * Class::Slice.bytes()
    }

    /// Bytes besides the slab pages. O(1).
    pub fn footprint_bytes(&self) -> usize {
        self.table.footprint_bytes()
            + self.listed * 8
            + self.ghosts.capacity() * 4
            + self.slab_pages.capacity() * size_of::<SlabPage>()
    }

    fn slab_page_count(&self) -> usize {
        self.slab_pages.len() - self.free.len() - self.hollow
    }

    /// Lets it take `bytes` of slab pages from now on; a few slab pages above that are evicted at
    /// once, more at later calls.
    pub fn set_limit_bytes(&mut self, bytes: usize) {
        self.limit_slab_pages = bytes / Class::Slice.bytes();
        if self.ghosts.is_empty() && self.limit_slab_pages > 0 {
            self.ghosts = vec![0; (self.limit_slab_pages * GHOSTS).next_power_of_two()];
        }
        for _ in 0..EVICTIONS_MAX {
            if self.slab_page_count() <= self.limit_slab_pages || !self.evict(&mut || None) {
                return;
            }
        }
    }

    /// The record at `at`, if cached; counts as a use. O(1).
    pub fn get(&mut self, at: u64) -> Option<Hit<'_>> {
        let slot = self.table.find(at)?;
        self.get_found(CachedAt(slot))
    }

    /// Where the records at `ats` are, in that order: good for [`RecordCache::get_found`] until a
    /// record comes or goes. O(1) for each; what memory no cache has is waited for once, not for
    /// each.
    pub fn find_all(&self, ats: &[u64]) -> Vec<Option<CachedAt>> {
        let mut found = Vec::with_capacity(ats.len());
        self.table.find_all(ats, |slot| found.push(slot.map(CachedAt)));
        found
    }

    /// A record that was found; counts as a use. O(1).
    pub fn get_found(&mut self, CachedAt(slot): CachedAt) -> Option<Hit<'_>> {
        let entry = self.table.value_mut(slot);
        entry.uses = (entry.uses + 1).min(USES_MAX);
        let entry = *entry;
        let slab_page = self.slab_pages.get(entry.slab_page as usize)?.as_ref()?;
        let (start, len) = (usize::from(entry.start) * UNIT, usize::from(entry.len) * UNIT);
        let (block, shared) = match &slab_page.memory {
            Memory::Open(block) => (block, None),
            Memory::Closed(block) => (&**block, Some((block, start))),
        };
        Some(Hit { bytes: block.get(start..start + len)?, shared })
    }

    /// Whether the record at `at` is cached; no use. O(1).
    pub fn contains(&self, at: u64) -> bool {
        self.table.find(at).is_some()
    }

    /// Caches a record of `parts`, one after the other; `take` gives blocks of 64 KiB as long as
    /// there are any. A record that is there already stays as it is. O(1), but for what is evicted:
    /// four slab pages at most.
    pub fn insert(&mut self, at: u64, parts: &[&[u8]], take: &mut dyn FnMut() -> Option<Block>) {
        if self.table.find(at).is_none() {
            self.insert_new(at, parts, take);
        }
    }

    /// Caches a record that is not there.
    fn insert_new(&mut self, at: u64, parts: &[&[u8]], take: &mut dyn FnMut() -> Option<Block>) {
        let queue = if self.was_evicted(at) { MAIN } else { SMALL };
        self.insert_in(queue, at, parts, 0, take);
    }

    /// The record at `old`, if cached, has become `new`. In its place, if it can: what is written
    /// often takes no more room for that.
    pub fn replace(&mut self, old: u64, new: u64, parts: &[&[u8]], take: &mut dyn FnMut() -> Option<Block>) {
        if old != new {
            self.remove(new);
        }
        let Some(slot) = self.table.find(old) else { return self.insert_new(new, parts, take) };
        let entry = *self.table.value(slot);
        let Some(slab_page) = self.slab_pages.get_mut(entry.slab_page as usize).and_then(Option::as_mut) else {
            return;
        };
        let queue = slab_page.queue;
        if units(parts) == usize::from(entry.len)
            && let Some(bytes) = slab_page.memory.writable()
        {
            copy(parts, bytes.get_mut(usize::from(entry.start) * UNIT..).unwrap_or_default());
            return self.rekey(old, new);
        }
        self.table.take(slot);
        self.insert_in(queue, new, parts, entry.uses, take);
    }

    /// The record at `old`, if cached, lies at `new` now.
    pub fn rekey(&mut self, old: u64, new: u64) {
        if old == new {
            return;
        }
        self.remove(new);
        let Some(slot) = self.table.find(old) else { return };
        let (_, entry) = self.table.take(slot);
        self.table.insert(new, entry);
        if let Some(Some(slab_page)) = self.slab_pages.get_mut(entry.slab_page as usize) {
            let start = u64::from(entry.start);
            let place = slab_page.records.binary_search_by_key(&start, |record| start_of(*record));
            if let Ok(index) = place
                && let Some(record) = slab_page.records.get_mut(index)
            {
                *record = pack(new, entry.start);
            }
        }
    }

    /// Forgets a record. Its room comes back with its slab page's, at once if that holds nothing
    /// else. O(1), amortised.
    pub fn remove(&mut self, at: u64) {
        let Some(slot) = self.table.find(at) else { return };
        let (_, entry) = self.table.take(slot);
        let slab_page = self.slab_pages.get(entry.slab_page as usize).and_then(Option::as_ref);
        if entry.is_whole() && slab_page.is_some_and(|slab_page| matches!(slab_page.memory, Memory::Closed(_))) {
            self.take_slab_page(entry.slab_page);
            self.hollow += 1;
            self.forget_hollow();
        }
    }

    /// Numbers of hollow slab pages leave their queues once they are half of all: each such walk is
    /// paid for by what it removes.
    fn forget_hollow(&mut self) {
        if self.hollow * 2 <= self.slab_pages.len() {
            return;
        }
        let RecordCache { queues, slab_pages, free, hollow, .. } = self;
        queues.iter_mut().for_each(|queue| {
            queue.retain(|number| {
                let is_there = slab_pages.get(*number as usize).is_some_and(Option::is_some);
                if !is_there {
                    free.push(*number);
                }
                is_there
            });
        });
        *hollow = 0;
    }

    /// Caches a record that fills a block, which becomes a slab page as it is: nothing is copied. A
    /// record that is there already stays. O(1), but for what is evicted: four slab pages at most.
    pub fn adopt(&mut self, at: u64, block: &Arc<Block>, take: &mut dyn FnMut() -> Option<Block>) {
        if block.class() != Class::Slice || self.table.find(at).is_some() || !self.make_room(take) {
            return;
        }
        let queue = if self.was_evicted(at) { MAIN } else { SMALL };
        let used = Class::Slice.bytes();
        let memory = Memory::Closed(Arc::clone(block));
        let number = self.add_slab_page(SlabPage { memory, records: vec![pack(at, 0)], used, queue });
        self.queues[queue].push_back(number);
        self.listed += 1;
        self.table.insert(at, CachedRecord { slab_page: number, start: 0, len: WHOLE, uses: 0 });
    }

    /// Forgets all records whose slab page lies in `chunk`. O(slab pages).
    pub fn drop_chunk(&mut self, chunk: ChunkId) {
        let lies_there = |slab_page: &SlabPage| match &slab_page.memory {
            Memory::Open(block) => block.chunk() == chunk,
            Memory::Closed(block) => block.chunk() == chunk,
        };
        for number in 0..self.slab_pages.len() as u32 {
            if !self.slab_pages[number as usize].as_ref().is_some_and(lies_there) {
                continue;
            }
            self.queues.iter_mut().for_each(|queue| queue.retain(|other| *other != number));
            self.open.iter_mut().filter(|open| **open == Some(number)).for_each(|open| *open = None);
            if let Some(slab_page) = self.take_slab_page(number) {
                self.free.push(number);
                for record in slab_page.records {
                    if let Some(slot) = self.slot_in(number, record) {
                        self.table.take(slot);
                    }
                }
            }
        }
    }

    fn insert_in(&mut self, queue: usize, at: u64, parts: &[&[u8]], uses: u8, take: &mut dyn FnMut() -> Option<Block>) {
        if let Some((slab_page, start)) = self.lay(queue, at, parts, true, take) {
            self.table.insert(at, CachedRecord { slab_page, start, len: units(parts) as u16, uses });
        }
    }

    /// Copies a record into the open slab page of a queue; where.
    fn lay(
        &mut self,
        queue: usize,
        at: u64,
        parts: &[&[u8]],
        may_evict: bool,
        take: &mut dyn FnMut() -> Option<Block>,
    ) -> Option<(u32, u16)> {
        let bytes = units(parts) * UNIT;
        if bytes == 0 || bytes > Class::Slice.bytes() {
            return None;
        }
        let number = match self.open_with_room(queue, bytes) {
            Some(number) => number,
            None => self.open_slab_page(queue, bytes, may_evict, take)?,
        };
        let slab_page = self.slab_pages.get_mut(number as usize)?.as_mut()?;
        let start = (slab_page.used / UNIT) as u16;
        copy(parts, slab_page.memory.writable()?.get_mut(slab_page.used..)?);
        slab_page.used += bytes;
        slab_page.records.push(pack(at, start));
        self.listed += 1;
        Some((number, start))
    }

    /// The open slab page of a queue, if so many bytes more fit.
    fn open_with_room(&self, queue: usize, bytes: usize) -> Option<u32> {
        let has_room = |slab_page: &SlabPage| slab_page.used + bytes <= Class::Slice.bytes();
        self.open[queue].filter(|number| self.slab_pages[*number as usize].as_ref().is_some_and(has_room))
    }

    /// Closes the open slab page of a queue and opens another, for a record of so many bytes.
    fn open_slab_page(
        &mut self,
        queue: usize,
        bytes: usize,
        may_evict: bool,
        take: &mut dyn FnMut() -> Option<Block>,
    ) -> Option<u32> {
        self.close_slab_page(queue);
        if may_evict {
            if !self.make_room(take) {
                return None;
            }
            // What was evicted and had been used may have opened one meanwhile.
            if let Some(number) = self.open_with_room(queue, bytes) {
                return Some(number);
            }
            self.close_slab_page(queue);
        }
        let block = take()?;
        let number = self.add_slab_page(SlabPage { memory: Memory::Open(block), records: Vec::new(), used: 0, queue });
        self.open[queue] = Some(number);
        Some(number)
    }

    /// The open slab page of a queue, if it has one, is the queue's newest.
    fn close_slab_page(&mut self, queue: usize) {
        let Some(number) = self.open[queue].take() else { return };
        let Some(mut slab_page) = self.slab_pages[number as usize].take() else { return };
        if let Memory::Open(block) = slab_page.memory {
            slab_page.memory = Memory::Closed(Arc::new(block));
        }
        slab_page.records.shrink_to_fit();
        self.slab_pages[number as usize] = Some(slab_page);
        self.queues[queue].push_back(number);
    }

    /// Evicts until there is room for another slab page. False: there is none after a few.
    fn make_room(&mut self, take: &mut dyn FnMut() -> Option<Block>) -> bool {
        for _ in 0..EVICTIONS_MAX {
            if self.slab_page_count() < self.limit_slab_pages || !self.evict(take) {
                break;
            }
        }
        self.slab_page_count() < self.limit_slab_pages
    }

    fn add_slab_page(&mut self, slab_page: SlabPage) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.slab_pages[number as usize] = Some(slab_page);
                number
            }
            None => {
                self.slab_pages.push(Some(slab_page));
                self.slab_pages.len() as u32 - 1
            }
        }
    }

    /// Evicts the oldest slab page of the queue that is over its share; what was used goes to the
    /// main queue. False: there is none.
    fn evict(&mut self, take: &mut dyn FnMut() -> Option<Block>) -> bool {
        let small_over = self.queues[SMALL].len() * SMALL_SHARE >= self.slab_page_count();
        let order = if small_over { [SMALL, MAIN] } else { [MAIN, SMALL] };
        let Some(number) = order.into_iter().find_map(|queue| self.queues[queue].pop_front()) else { return false };
        // Its number is given to no other slab page before the end: until then it tells which
        // records are this one's.
        let Some(slab_page) = self.take_slab_page(number) else {
            self.hollow -= 1;
            self.free.push(number);
            return true;
        };
        let Some(slab_page) = self.another_round(number, slab_page) else { return true };
        let Memory::Closed(block) = &slab_page.memory else { return false };
        for record in &slab_page.records {
            let Some(slot) = self.slot_in(number, *record) else { continue };
            let entry = *self.table.value(slot);
            let at = at_of(*record);
            let from = usize::from(entry.start) * UNIT;
            let bytes = block.get(from..from + usize::from(entry.len) * UNIT).unwrap_or_default();
            let place = if entry.uses > 0 { self.lay(MAIN, at, &[bytes], false, take) } else { None };
            match place {
                Some((to, start)) => {
                    let uses = if slab_page.queue == MAIN { entry.uses - 1 } else { 0 };
                    *self.table.value_mut(slot) = CachedRecord { slab_page: to, start, uses, ..entry };
                }
                None => {
                    self.table.take(slot);
                    if slab_page.queue == SMALL {
                        self.remember(at);
                    }
                }
            }
        }
        self.free.push(number);
        true
    }

    /// A slab page of one record that was used goes to the end of the main queue as it is. Any
    /// other comes back.
    fn another_round(&mut self, number: u32, mut slab_page: SlabPage) -> Option<SlabPage> {
        let Some(slot) = slab_page.records.first().and_then(|record| self.slot_in(number, *record)) else {
            return Some(slab_page);
        };
        let entry = self.table.value_mut(slot);
        if !entry.is_whole() || entry.uses == 0 {
            return Some(slab_page);
        }
        entry.uses = if slab_page.queue == MAIN { entry.uses - 1 } else { 0 };
        slab_page.queue = MAIN;
        self.listed += slab_page.records.len();
        self.slab_pages[number as usize] = Some(slab_page);
        self.queues[MAIN].push_back(number);
        None
    }

    /// The slot of a record, if it is this slab page's.
    fn slot_in(&self, number: u32, record: u64) -> Option<usize> {
        let slot = self.table.find(at_of(record))?;
        let entry = self.table.value(slot);
        (entry.slab_page == number && u64::from(entry.start) == start_of(record)).then_some(slot)
    }

    /// Takes a slab page out. Its number is not free yet.
    fn take_slab_page(&mut self, number: u32) -> Option<SlabPage> {
        let slab_page = self.slab_pages.get_mut(number as usize)?.take()?;
        self.listed -= slab_page.records.len();
        Some(slab_page)
    }

    fn ghost(&self, at: u64) -> (usize, u32) {
        let hash = hash(at / UNIT as u64);
        (hash as usize & self.ghosts.len().saturating_sub(1), (hash >> 32) as u32 | 1)
    }

    fn remember(&mut self, at: u64) {
        let (index, fingerprint) = self.ghost(at);
        if let Some(ghost) = self.ghosts.get_mut(index) {
            *ghost = fingerprint;
        }
    }

    fn was_evicted(&self, at: u64) -> bool {
        let (index, fingerprint) = self.ghost(at);
        self.ghosts.get(index) == Some(&fingerprint)
    }
}

impl Memory {
    /// Its bytes, unless somebody else looks at them.
    fn writable(&mut self) -> Option<&mut [u8]> {
        match self {
            Memory::Open(block) => Some(block),
            Memory::Closed(block) => Arc::get_mut(block).map(|block| &mut **block),
        }
    }
}

fn units(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len()).sum::<usize>().div_ceil(UNIT)
}

fn copy(parts: &[&[u8]], mut to: &mut [u8]) {
    for part in parts {
        let (here, rest) = to.split_at_mut(part.len().min(to.len()));
        here.copy_from_slice(&part[..here.len()]);
        to = rest;
    }
}

fn pack(at: u64, start: u16) -> u64 {
    (at / UNIT as u64) << START_BITS | u64::from(start)
}

fn at_of(record: u64) -> u64 {
    (record >> START_BITS) * UNIT as u64
}

fn start_of(record: u64) -> u64 {
    record & ((1 << START_BITS) - 1)
}

const _: () = assert!(Class::Slice.bytes() / UNIT == 1 << START_BITS);

#[cfg(test)]
mod tests {
    use stratakv_base::random::Random;
    use stratakv_device::Pool;

    use super::*;

    /// Every slab page is in a queue or open, and can so be evicted some day; every other number is
    /// free or hollow.
    fn check(cache: &RecordCache) {
        let mut seen = vec![0; cache.slab_pages.len()];
        let queued = cache.queues.iter().flatten().copied();
        for number in queued.clone().chain(cache.open.iter().copied().flatten()).chain(cache.free.iter().copied()) {
            seen[number as usize] += 1;
        }
        assert!(seen.iter().all(|count| *count == 1), "slab pages by the places that name them: {seen:?}");
        let hollow = queued.filter(|number| cache.slab_pages[*number as usize].is_none()).count();
        assert_eq!(hollow, cache.hollow);
        assert!(cache.free.iter().all(|number| cache.slab_pages[*number as usize].is_none()));
    }

    /// A slab page that an eviction opened was forgotten when another one was opened at once: it
    /// stayed for ever.
    #[test]
    fn no_slab_page_is_forgotten() {
        let pool = Pool::new(4 << 20);
        let mut cache = RecordCache::new();
        cache.set_limit_bytes(16 * Class::Slice.bytes());
        let mut random = Random::new(1);
        for round in 0..60_000 {
            // What is hot moves on.
            let at = (round / 20_000 * 10_000 + random.below(1500)) * 8;
            let take = &mut || pool.take(Class::Slice);
            match random.below(40) {
                0 => cache.remove(at),
                1 => {
                    let block = pool.take(Class::Slice).map(Arc::new);
                    block.into_iter().for_each(|block| cache.adopt(at, &block, take));
                }
                _ if cache.get(at).is_none() => cache.insert(at, &[&[7; 1000]], take),
                _ => {}
            }
            check(&cache);
        }
        assert!(cache.len() > 200, "{} records", cache.len());
    }
}
