//! Space: extents of blocks in spans of segments.
//!
//! A span is one segment, or several for a record that is longer. Each belongs to an arena, and an arena to the threads of a stripe: threads rarely meet at its lock. An arena
//! keeps its free extents by length, and takes the next span when none is long enough. A freed extent goes back to the arena of its span. Neighbours are
//! merged a span at a time, when an arena looks for room and has much that is too short; a span that is free as a whole goes back to the pool. An arena without room takes over the emptiest span of
//! one that has much, before it takes one from the pool: who frees is not always who writes next.
//!
//! After the allocator of KVDK (segments, free lists by length, merging), with arenas instead of registered threads.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use stratakv_base::canary;
use stratakv_pmem::{Pmem, PmemError};

use crate::epoch::Epochs;
use crate::layout::{First, SegmentState};
use crate::region::Region;

/// Lengths in blocks with a list of their own.
const EXACT: u32 = 64;
/// So often a write that finds no room lets readers and writers go on who hold space back.
const YIELDS_MAX: usize = 20_000;
/// Retired extents after which an epoch is tried to end.
const RETIRED: usize = 32;

/// Blocks side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Number of the first block.
    pub(crate) place: u64,
    pub(crate) blocks: u32,
}

/// Figures of the space, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// In spans.
    pub(crate) in_spans: u64,
    /// Of them, free.
    pub(crate) free: u64,
    /// Freed, but a reader may still look at it.
    pub(crate) retired: u64,
    /// In no span.
    pub(crate) unused: u64,
}

#[derive(Debug)]
pub(crate) struct Allocator {
    arenas: Box<[Mutex<Arena>]>,
    /// By segment: the first segment of its span plus one, and from bit 32 on its arena; 0: it is in the pool.
    spans: Box<[AtomicU64]>,
    pool: Mutex<Pool>,
    /// What readers may still look at, by stripe, with the epoch in which it was freed.
    limbo: Box<[Mutex<Limbo>]>,
    retired: AtomicU64,
    /// Extents that puts have in hand: their rests come back.
    held: AtomicU64,
    /// Counts what is freed.
    freed: AtomicU64,
    /// That count when there was no room the last time, and from bit 0 to 23 for how many blocks: for as many or more there is none until something is freed.
    hopeless: AtomicU64,
    first_place: u64,
    segment_blocks: u32,
}

type Limbo = VecDeque<(u64, Extent)>;

/// Segments in no span, as runs: first segment, count.
#[derive(Debug, Default)]
struct Pool(BTreeMap<u32, u32>);

#[derive(Debug, Default)]
struct Arena {
    /// Free extents of 1 to `EXACT` blocks, by length.
    exact: Vec<Vec<Entry>>,
    /// A bit for each of those lists that is not empty.
    filled: u64,
    longer: BTreeMap<u32, Vec<Entry>>,
    /// What records are cut from.
    tail: Option<Extent>,
    spans: HashMap<u32, Span>,
    /// Counts what makes entries of lists void.
    merges: u64,
    /// The span to be merged next, in the order of their numbers.
    next_merge: u32,
    blocks: u64,
    free: u64,
}

/// A free extent in a list: void if its span says another count by now.
#[derive(Clone, Copy, Debug)]
struct Entry {
    place: u64,
    merges: u64,
}

#[derive(Debug)]
struct Span {
    segments: u32,
    /// The arena's count when it was begun or its neighbours were merged: what lists say of it from before is void.
    merges: u64,
    /// A bit for each free block, and how many there are.
    free: Vec<u64>,
    free_blocks: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    fn take(&mut self, count: u32) -> Option<u32> {
        let (first, len) = self.0.iter().find(|(_, len)| **len >= count).map(|(first, len)| (*first, *len))?;
        self.0.remove(&first);
        if len > count {
            self.0.insert(first + count, len - count);
        }
        Some(first)
    }

    fn give(&mut self, mut first: u32, mut count: u32) {
        if let Some((before, len)) = self.0.range(..first).next_back().map(|(before, len)| (*before, *len))
            && before + len == first
        {
            self.0.remove(&before);
            (first, count) = (before, len + count);
        }
        if let Some(len) = self.0.remove(&(first + count)) {
            count += len;
        }
        self.0.insert(first, count);
    }
}

impl Span {
    fn new(segments: u32, blocks: u64, merges: u64) -> Span {
        Span { segments, merges, free: vec![0; blocks.div_ceil(64) as usize], free_blocks: 0 }
    }

    fn set(&mut self, at: u64, blocks: u32, free: bool) {
        let count = u64::from(blocks);
        self.free_blocks = if free { self.free_blocks + count } else { self.free_blocks - count };
        // By words: an extent may have a million blocks.
        let (mut at, end) = (at, at + count);
        while at < end {
            let (word, bit) = ((at / 64) as usize, at % 64);
            let count = (64 - bit).min(end - at);
            let mask = (u64::MAX >> (64 - count)) << bit;
            if let Some(word) = self.free.get_mut(word) {
                debug_assert_eq!(*word & mask, if free { 0 } else { mask }, "freed or taken twice");
                *word ^= mask;
            }
            at += count;
        }
    }

    /// Runs of free blocks: first, count.
    fn runs(&self) -> Vec<(u64, u32)> {
        let mut runs = Vec::new();
        let mut run: Option<(u64, u32)> = None;
        for at in 0..self.free.len() as u64 * 64 {
            match (self.free[(at / 64) as usize] >> (at % 64) & 1 == 1, &mut run) {
                (true, Some((_, count))) => *count += 1,
                (true, None) => run = Some((at, 1)),
                (false, _) => runs.extend(run.take()),
            }
        }
        runs.extend(run);
        runs
    }
}

impl Arena {
    fn new() -> Arena {
        Arena { exact: vec![Vec::new(); EXACT as usize], ..Arena::default() }
    }

    fn count_merge(&mut self) -> u64 {
        self.merges += 1;
        self.merges
    }

    fn push(&mut self, extent: Extent, merges: u64) {
        let entry = Entry { place: extent.place, merges };
        if extent.blocks <= EXACT {
            self.exact[extent.blocks as usize - 1].push(entry);
            self.filled |= 1 << (extent.blocks - 1);
        } else {
            self.longer.entry(extent.blocks).or_default().push(entry);
        }
    }

    /// An entry of the list of the shortest length that is at least `blocks`.
    fn pop(&mut self, blocks: u32) -> Option<(Entry, u32)> {
        let filled = if blocks <= EXACT { self.filled >> (blocks - 1) } else { 0 };
        if filled != 0 {
            let index = blocks - 1 + filled.trailing_zeros();
            let list = &mut self.exact[index as usize];
            let entry = list.pop();
            if list.is_empty() {
                self.filled &= !(1 << index);
            }
            return Some((entry?, index + 1));
        }
        let (length, list) = self.longer.range_mut(blocks..).next()?;
        let (length, entry) = (*length, list.pop()?);
        if list.is_empty() {
            self.longer.remove(&length);
        }
        Some((entry, length))
    }
}

impl Allocator {
    /// For a region whose segments are all in the pool; opening takes spans out of it.
    pub(crate) fn new(segments: u32, first_place: u64, segment_blocks: u32, arenas: usize) -> Allocator {
        let mut pool = Pool::default();
        pool.give(0, segments);
        Allocator {
            arenas: (0..arenas.max(1)).map(|_| Mutex::new(Arena::new())).collect(),
            spans: (0..segments).map(|_| AtomicU64::new(0)).collect(),
            pool: Mutex::new(pool),
            limbo: (0..arenas.max(1)).map(|_| Mutex::default()).collect(),
            retired: AtomicU64::new(0),
            held: AtomicU64::new(0),
            freed: AtomicU64::new(1),
            hopeless: AtomicU64::new(0),
            first_place,
            segment_blocks,
        }
    }

    fn place_of(&self, segment: u32) -> u64 {
        self.first_place + u64::from(segment) * u64::from(self.segment_blocks)
    }

    /// The span of a place: its first segment, and its arena.
    fn span_of(&self, place: u64) -> Option<(u32, &Mutex<Arena>)> {
        let segment = place.checked_sub(self.first_place)? / u64::from(self.segment_blocks);
        let word = self.spans.get(segment as usize)?.load(Ordering::Acquire);
        Some(((word as u32).checked_sub(1)?, self.arenas.get((word >> 32) as usize)?))
    }

    /// A span that opening found. What is free in it is added by [`Allocator::free`].
    pub(crate) fn add_span(&self, first: u32, segments: u32) {
        self.withhold(first, segments);
        self.begin_span(first, segments, first as usize);
    }

    /// Takes segments out of the pool.
    pub(crate) fn withhold(&self, first: u32, segments: u32) {
        let mut pool = lock(&self.pool);
        // Taken from the run that holds it.
        let run = pool.0.range(..=first).next_back().map(|(start, len)| (*start, *len));
        if let Some((start, len)) = run {
            pool.0.remove(&start);
            if start < first {
                pool.0.insert(start, first - start);
            }
            if start + len > first + segments {
                pool.0.insert(first + segments, start + len - first - segments);
            }
        }
    }

    fn begin_span(&self, first: u32, segments: u32, stripe: usize) {
        let blocks = u64::from(segments) * u64::from(self.segment_blocks);
        let number = stripe % self.arenas.len();
        let mut arena = lock(&self.arenas[number]);
        let merges = arena.count_merge();
        arena.spans.insert(first, Span::new(segments, blocks, merges));
        arena.blocks += blocks;
        self.set_span(first, segments, number);
    }

    /// Says whose the segments of a span are; under the lock of that arena.
    fn set_span(&self, first: u32, segments: u32, arena: usize) {
        for segment in first..first + segments {
            self.spans[segment as usize].store(u64::from(first + 1) | (arena as u64) << 32, Ordering::Release);
        }
    }

    /// Free space of at least so many blocks, and maybe more: what is too much is given back by [`Allocator::free_rest`] once a record ends before it. `None`: there is none.
    /// Ends with [`Allocator::let_go`] when nothing of it is left to give back.
    pub(crate) fn allocate<P: Pmem>(
        &self,
        region: &Region<P>,
        epochs: &Epochs,
        stripe: usize,
        blocks: u32,
    ) -> Result<Option<Extent>, PmemError> {
        let found = self.find_room(region, epochs, stripe, blocks)?;
        self.held.fetch_add(u64::from(found.is_some()), Ordering::AcqRel);
        Ok(found)
    }

    /// What was allocated is used, or given back.
    pub(crate) fn let_go(&self) {
        self.held.fetch_sub(1, Ordering::AcqRel);
    }

    fn find_room<P: Pmem>(
        &self,
        region: &Region<P>,
        epochs: &Epochs,
        stripe: usize,
        blocks: u32,
    ) -> Result<Option<Extent>, PmemError> {
        let own = &self.arenas[stripe % self.arenas.len()];
        if let Some(found) = self.take_from(&mut lock(own), blocks) {
            return Ok(Some(found));
        }
        self.reclaim(epochs, stripe);
        {
            let mut arena = lock(own);
            if arena.free * 4 > arena.blocks {
                self.merge_next(region, &mut arena)?;
            }
            if let Some(found) = self.take_from(&mut arena, blocks) {
                return Ok(Some(found));
            }
        }
        if let Some(found) = self.take_over(region, stripe % self.arenas.len(), blocks)? {
            return Ok(Some(found));
        }
        if let Some(found) = self.take_span(region, stripe, blocks)? {
            return Ok(Some(found));
        }
        self.search(region, epochs, stripe, blocks)
    }

    /// Looks everywhere, and merges everything: before it is said that there is no room.
    fn search<P: Pmem>(
        &self,
        region: &Region<P>,
        epochs: &Epochs,
        stripe: usize,
        blocks: u32,
    ) -> Result<Option<Extent>, PmemError> {
        // Readers stay for as long as a copy takes, or until they get a processor again.
        let free_at = epochs.now() + 2;
        for _ in 0..YIELDS_MAX {
            let retired = self.retired.load(Ordering::Acquire) > 0 && epochs.advance() < free_at;
            if !retired && self.held.load(Ordering::Acquire) == 0 {
                break;
            }
            std::thread::yield_now();
        }
        (0..self.limbo.len()).for_each(|stripe| self.reclaim(epochs, stripe));
        let asked = self.freed.load(Ordering::Acquire) << 24 | u64::from(blocks);
        let hopeless = self.hopeless.load(Ordering::Acquire);
        if hopeless >> 24 == asked >> 24 && hopeless <= asked {
            return Ok(None);
        }
        for arena in &self.arenas {
            let tail = lock(arena).tail.take();
            if let Some(tail) = tail {
                self.free(tail);
            }
        }
        let asked = self.freed.load(Ordering::Acquire) << 24 | u64::from(blocks);
        for arena in &self.arenas {
            let mut arena = lock(arena);
            if let Some(found) = self.take_from(&mut arena, blocks) {
                return Ok(Some(found));
            }
            for _ in 0..arena.spans.len() {
                self.merge_next(region, &mut arena)?;
            }
            if let Some(found) = self.take_from(&mut arena, blocks) {
                return Ok(Some(found));
            }
        }
        let found = self.take_span(region, stripe, blocks)?;
        if found.is_none() {
            self.hopeless.store(asked, Ordering::Release);
        }
        Ok(found)
    }

    /// Takes over the emptiest span of an arena with much that is free, and room from it.
    fn take_over<P: Pmem>(&self, region: &Region<P>, own: usize, blocks: u32) -> Result<Option<Extent>, PmemError> {
        for other in (0..self.arenas.len()).filter(|other| *other != own) {
            // In the order of their numbers, as everybody does.
            let (mut first, mut second) = (lock(&self.arenas[own.min(other)]), lock(&self.arenas[own.max(other)]));
            let (mine, theirs) = if own < other { (&mut *first, &mut *second) } else { (&mut *second, &mut *first) };
            if theirs.free * 4 <= theirs.blocks {
                continue;
            }
            let emptiest = theirs.spans.iter().max_by_key(|(_, span)| span.free_blocks);
            let enough = |span: &Span| span.free_blocks * 4 >= span.free.len() as u64 * 64;
            let Some(number) = emptiest.filter(|(_, span)| enough(span)).map(|(number, _)| *number) else { continue };
            let Some(mut span) = theirs.spans.remove(&number) else { continue };
            let all = u64::from(span.segments) * u64::from(self.segment_blocks);
            theirs.blocks -= all;
            theirs.free -= span.free_blocks;
            mine.blocks += all;
            mine.free += span.free_blocks;
            span.merges = mine.count_merge();
            self.set_span(number, span.segments, own);
            mine.spans.insert(number, span);
            self.merge(region, mine, number, true)?;
            if let Some(found) = self.take_from(mine, blocks) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn take_from(&self, arena: &mut Arena, blocks: u32) -> Option<Extent> {
        // Exactly so long, else the tail, else whatever is longer.
        let exact = blocks <= EXACT && arena.filled >> (blocks - 1) & 1 == 1;
        if !exact && arena.tail.is_some_and(|tail| tail.blocks >= blocks) {
            return arena.tail.take();
        }
        loop {
            let (entry, length) = arena.pop(blocks)?;
            let Some((span, _)) = self.span_of(entry.place) else { continue };
            let start = self.place_of(span);
            let Some(found) = arena.spans.get_mut(&span).filter(|span| span.merges == entry.merges) else { continue };
            found.set(entry.place - start, length, false);
            arena.free -= u64::from(length);
            return Some(Extent { place: entry.place, blocks: length });
        }
    }

    /// Gives back an extent that no reader can have seen, and that is free on the medium.
    pub(crate) fn free(&self, extent: Extent) {
        // Its span may go to another arena meanwhile.
        while let Some((first, arena)) = self.span_of(extent.place) {
            let mut arena = lock(arena);
            let Some(span) = arena.spans.get_mut(&first) else { continue };
            span.set(extent.place - self.place_of(first), extent.blocks, true);
            let merges = span.merges;
            arena.free += u64::from(extent.blocks);
            arena.push(extent, merges);
            break;
        }
        self.freed.fetch_add(1, Ordering::Release);
    }

    /// Gives back what lies behind a record: the next ones of this stripe are cut from it.
    pub(crate) fn free_rest(&self, stripe: usize, extent: Extent) {
        let mut arena = lock(&self.arenas[stripe % self.arenas.len()]);
        let shorter = match arena.tail {
            Some(tail) if tail.blocks >= extent.blocks => Some(extent),
            _ => arena.tail.replace(extent),
        };
        drop(arena);
        if let Some(shorter) = shorter {
            self.free(shorter);
        }
        self.freed.fetch_add(1, Ordering::Release);
    }

    /// Gives back an extent that readers may be looking at, and that is free on the medium.
    pub(crate) fn retire(&self, epochs: &Epochs, stripe: usize, extent: Extent) {
        if canary!("hash_reused_under_readers") {
            return self.free(extent);
        }
        let mut limbo = lock(&self.limbo[stripe % self.limbo.len()]);
        limbo.push_back((epochs.now(), extent));
        self.retired.fetch_add(u64::from(extent.blocks), Ordering::AcqRel);
        let many = limbo.len().is_multiple_of(RETIRED);
        drop(limbo);
        if many {
            epochs.advance();
            self.reclaim(epochs, stripe);
        }
    }

    /// Frees what no reader can be looking at any more.
    fn reclaim(&self, epochs: &Epochs, stripe: usize) {
        let now = epochs.advance();
        let mut limbo = lock(&self.limbo[stripe % self.limbo.len()]);
        let mut free = Vec::new();
        while let Some((_, extent)) = limbo.pop_front_if(|(epoch, _)| *epoch + 2 <= now) {
            free.push(extent);
        }
        drop(limbo);
        for extent in free {
            self.retired.fetch_sub(u64::from(extent.blocks), Ordering::AcqRel);
            self.free(extent);
        }
    }

    /// A new span, all of it.
    fn take_span<P: Pmem>(&self, region: &Region<P>, stripe: usize, blocks: u32) -> Result<Option<Extent>, PmemError> {
        let segments = blocks.div_ceil(self.segment_blocks);
        let Some(first) = lock(&self.pool).take(segments) else { return Ok(None) };
        let extent = Extent { place: self.place_of(first), blocks: segments * self.segment_blocks };
        // In this order, so that a span is there whole or not at all.
        region.set_first(region.offset(extent.place), First::free(extent.blocks))?;
        for segment in first + 1..first + segments {
            region.set_segment(segment, SegmentState::Continued)?;
        }
        region.pmem.fence()?;
        let state = if segments == 1 { SegmentState::Extents } else { SegmentState::Large(segments) };
        region.set_segment(first, state)?;
        region.pmem.fence()?;
        self.begin_span(first, segments, stripe);
        Ok(Some(extent))
    }

    /// Merges neighbours in the next span of an arena.
    fn merge_next<P: Pmem>(&self, region: &Region<P>, arena: &mut Arena) -> Result<(), PmemError> {
        let next = arena.next_merge;
        let Some(first) = arena.spans.keys().copied().min_by_key(|span| (*span < next, *span)) else { return Ok(()) };
        arena.next_merge = first + 1;
        self.merge(region, arena, first, false)
    }

    /// Merges neighbours in a span. If there are none its entries in the lists stay as they are, unless they are void (`lists_anew`).
    fn merge<P: Pmem>(
        &self,
        region: &Region<P>,
        arena: &mut Arena,
        first: u32,
        lists_anew: bool,
    ) -> Result<(), PmemError> {
        let start = self.place_of(first);
        let Some(span) = arena.spans.get_mut(&first) else { return Ok(()) };
        let runs = span.runs();
        let mut merged = false;
        for (at, blocks) in &runs {
            let offset = region.offset(start + at);
            if region.first(offset)?.is_none_or(|first| first.blocks != *blocks) {
                region.set_first(offset, First::free(*blocks))?;
                merged = true;
            }
        }
        if merged && !canary!("hash_merged_without_a_fence") {
            region.pmem.fence()?;
        }
        let (segments, all) = (span.segments, u64::from(span.segments) * u64::from(self.segment_blocks));
        if let [(0, blocks)] = runs[..]
            && u64::from(blocks) == all
        {
            return self.end_span(region, arena, first, segments);
        }
        if merged || lists_anew {
            let merges = arena.count_merge();
            if let Some(span) = arena.spans.get_mut(&first) {
                span.merges = merges;
            }
            for (at, blocks) in runs {
                arena.push(Extent { place: start + at, blocks }, merges);
            }
        }
        Ok(())
    }

    /// A span of which nothing is used goes back to the pool.
    fn end_span<P: Pmem>(
        &self,
        region: &Region<P>,
        arena: &mut Arena,
        first: u32,
        segments: u32,
    ) -> Result<(), PmemError> {
        region.set_segment(first, SegmentState::Unused)?;
        region.pmem.fence()?;
        for segment in first + 1..first + segments {
            region.set_segment(segment, SegmentState::Unused)?;
        }
        region.pmem.fence()?;
        let blocks = u64::from(segments) * u64::from(self.segment_blocks);
        arena.spans.remove(&first);
        arena.blocks -= blocks;
        arena.free -= blocks;
        for segment in first..first + segments {
            self.spans[segment as usize].store(0, Ordering::Release);
        }
        lock(&self.pool).give(first, segments);
        Ok(())
    }

    pub(crate) fn usage(&self) -> Usage {
        let unused: u64 = lock(&self.pool).0.values().map(|count| u64::from(*count)).sum();
        let mut usage = Usage {
            retired: self.retired.load(Ordering::Acquire),
            unused: unused * u64::from(self.segment_blocks),
            ..Usage::default()
        };
        for arena in &self.arenas {
            let arena = lock(arena);
            usage.in_spans += arena.blocks;
            usage.free += arena.free + arena.tail.map_or(0, |tail| u64::from(tail.blocks));
        }
        usage
    }
}
