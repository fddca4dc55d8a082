//! Space: extents of blocks in spans of segments.
//!
//! A span is one segment, or several for a record that is longer. Each belongs to an arena, and an
//! arena to the threads of a stripe: threads rarely meet at its lock. An arena keeps its free
//! extents by length, and takes the next span when none is long enough. A freed extent goes back to
//! the arena of its span. Neighbours are merged a span at a time, when an arena looks for room and
//! has much that is too short; a span that is free as a whole goes back to the pool. An arena
//! without room takes over the emptiest span of one that has much, before it takes one from the
//! pool: who frees is not always who writes next.
//!
//! Where the region lies on several nodes of the machine, each has a pool and arenas of its own. A
//! thread's *home* is an arena of the node that it is on: it takes from the others when its node
//! has no more. A span never leaves the arenas of its node.
//!
//! What a call does under a lock is bounded: it pops a list, merges or takes over a span or two.
//! Only spans that have something to merge are looked at, so what looking everywhere costs was paid
//! for by as many calls that freed something. Where the memory fails while a span is arranged, DRAM
//! and medium may differ: the span is lost, which means that nothing is allocated from it any more
//! until the store is opened again; records in it stay.
//!
//! After the allocator of KVDK (segments, free lists by length, merging), with arenas instead of
//! registered threads.

mod arena;
mod clearing;
mod ground;
mod pool;
mod span;
mod steps;
#[cfg(test)]
#[path = "../tests/unit/alloc.rs"]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use stratakv_base::fault_point;
use stratakv_pmem::{Pmem, PmemError};

use crate::epoch::Epochs;
use crate::layout::{BLOCKS_MAX, First, Kind, SegmentState};
use crate::region::Region;
use arena::Arena;
pub(crate) use clearing::Clearing;
pub(crate) use ground::Ground;
use pool::Pool;
use span::{Join, Span};

/// So often a write that finds no room lets readers and writers go on who hold space back.
const YIELDS_MAX: usize = 20_000;
/// Retired extents after which an epoch is tried to end.
const RETIRED: usize = 32;
/// Most spans that one call takes over from other arenas.
const TAKE_OVERS_MAX: usize = 2;

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
    /// Not allocated from: damaged when the store was opened, or the memory failed.
    pub(crate) lost: u64,
    /// Bytes of DRAM that all this takes.
    pub(crate) footprint_bytes: u64,
}

/// Figures of a node, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeUsage {
    /// Of its parts' segments.
    pub(crate) all: u64,
    /// Of them, not free.
    pub(crate) taken: u64,
    /// Extents that threads on it have got on it.
    pub(crate) local: u64,
    /// And on other nodes.
    pub(crate) remote: u64,
}

/// What threads with one home have got. On a cache line of its own, and its neighbour that is
/// fetched with it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Got {
    local: AtomicU64,
    remote: AtomicU64,
}

/// See [`Allocator::stand_back`].
pub(crate) struct StandingBack<'a> {
    held: &'a AtomicU64,
    in_hand: u64,
}

impl Drop for StandingBack<'_> {
    fn drop(&mut self) {
        self.held.fetch_add(self.in_hand, Ordering::AcqRel);
    }
}

#[derive(Debug)]
pub(crate) struct Allocator {
    /// Node by node, as many of each.
    arenas: Box<[Mutex<Arena>]>,
    arenas_of_node: usize,
    /// By home; not counted where there is one node.
    got: Box<[Got]>,
    /// What is being cleared. Its number is one more than theirs, and nobody allocates from it.
    aside: Mutex<Arena>,
    clearing: Mutex<()>,
    owners: Owners,
    /// By node.
    pools: Box<[Mutex<Pool>]>,
    /// What readers may still look at, by home, with the epoch in which it was freed.
    deferred: Box<[Mutex<Deferred>]>,
    retired: AtomicU64,
    /// Blocks that are not allocated from.
    lost: AtomicU64,
    /// Extents that puts have in hand: their rests come back.
    held: AtomicU64,
    /// Counts what is freed.
    freed: AtomicU64,
    /// For how many blocks there was no room the last time, merging all; and moving what was in the
    /// way.
    none_by_merging: Hopeless,
    none_by_moving: Hopeless,
}

/// What was counted as freed when there was no room the last time, and from bit 0 to 23 for how
/// many blocks: for as many or more there is none until something is freed.
#[derive(Debug, Default)]
struct Hopeless(AtomicU64);

impl Hopeless {
    fn word(freed: u64, blocks: u32) -> u64 {
        freed << 24 | u64::from(blocks)
    }

    fn is_known(&self, freed: u64, blocks: u32) -> bool {
        let (known, asked) = (self.0.load(Ordering::Acquire), Hopeless::word(freed, blocks));
        known >> 24 == asked >> 24 && known <= asked
    }

    fn note(&self, freed: u64, blocks: u32) {
        self.0.store(Hopeless::word(freed, blocks), Ordering::Release);
    }
}

type Deferred = VecDeque<(u64, Extent)>;

/// Whose each segment is. Changed under the lock of the arena that has it.
#[derive(Debug)]
struct Owners {
    /// By segment: the first segment of its span plus one, and from bit 32 on its arena; 0:
    /// nobody's.
    words: Box<[AtomicU64]>,
    ground: Ground,
}

impl Owners {
    fn place_of(&self, segment: u32) -> u64 {
        self.ground.first_place + u64::from(segment) * u64::from(self.ground.segment_blocks)
    }

    /// The span of a place: its first segment, and its arena.
    fn span_of(&self, place: u64) -> Option<(u32, usize)> {
        let segment = place.checked_sub(self.ground.first_place)? / u64::from(self.ground.segment_blocks);
        let word = self.words.get(usize::try_from(segment).ok()?)?.load(Ordering::Acquire);
        Some(((word as u32).checked_sub(1)?, (word >> 32) as usize))
    }

    fn set(&self, first: u32, segments: u32, arena: Option<usize>) {
        let word = arena.map_or(0, |arena| u64::from(first + 1) | (arena as u64) << 32);
        for segment in first..first + segments {
            self.words[segment as usize].store(word, Ordering::Release);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets errors of one place pass, which is lost then, but not those of all of the region.
pub(crate) fn of_one_place(error: PmemError) -> Result<(), PmemError> {
    match error {
        PmemError::Poisoned { .. } | PmemError::Shrunk { .. } | PmemError::OutOfBounds { .. } => Ok(()),
        all => Err(all),
    }
}

impl Allocator {
    /// For a region whose segments are all in the pools; opening takes spans out of them. No span
    /// goes from one part into another, for between them are numbers without a segment. So many
    /// arenas in all, one at least for each node.
    pub(crate) fn new(ground: Ground, arenas: usize) -> Allocator {
        let mut pools: Vec<Pool> = (0..ground.nodes).map(|_| Pool::default()).collect();
        for (segments, node) in ground.parts() {
            pools[node].give(segments.start, segments.end - segments.start);
        }
        let arenas_of_node = arenas.div_ceil(ground.nodes).max(1);
        let arenas = arenas_of_node * ground.nodes;
        Allocator {
            arenas: (0..arenas).map(|_| Mutex::new(Arena::new())).collect(),
            arenas_of_node,
            got: (0..arenas).map(|_| Got::default()).collect(),
            aside: Mutex::new(Arena::new()),
            clearing: Mutex::default(),
            pools: pools.into_iter().map(Mutex::new).collect(),
            deferred: (0..arenas).map(|_| Mutex::default()).collect(),
            owners: Owners { words: (0..ground.end()).map(|_| AtomicU64::new(0)).collect(), ground },
            retired: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            held: AtomicU64::new(0),
            freed: AtomicU64::new(1),
            none_by_merging: Hopeless::default(),
            none_by_moving: Hopeless::default(),
        }
    }

    /// The home of a thread on this node.
    pub(crate) fn home(&self, node: usize, stripe: usize) -> usize {
        node % self.pools.len() * self.arenas_of_node + stripe % self.arenas_of_node
    }

    fn node_of_arena(&self, number: usize) -> usize {
        number % self.arenas.len() / self.arenas_of_node
    }

    /// The arena for a span on this node, of one with this home.
    fn arena_on(&self, node: usize, home: usize) -> usize {
        node * self.arenas_of_node + home % self.arenas_of_node
    }

    /// All arenas, those of the home's node first.
    fn arenas_from(&self, home: usize) -> impl Iterator<Item = &Mutex<Arena>> {
        let first = self.node_of_arena(home) * self.arenas_of_node;
        let (before, own_and_behind) = self.arenas.split_at(first);
        own_and_behind.iter().chain(before)
    }

    /// The pool that a segment belongs to.
    fn pool_of(&self, segment: u32) -> MutexGuard<'_, Pool> {
        lock(&self.pools[self.owners.ground.node_of(segment)])
    }

    /// Segments in no span.
    fn unused_segments(&self) -> u32 {
        self.pools.iter().map(|pool| lock(pool).segments()).sum()
    }

    fn blocks_of(&self, segments: u32) -> u64 {
        u64::from(segments) * u64::from(self.owners.ground.segment_blocks)
    }

    /// A span that opening found. What is free in it is added by [`Allocator::free`].
    pub(crate) fn add_span(&self, first: u32, segments: u32) {
        if self.blocks_of(segments) > BLOCKS_MAX {
            // Longer than any that is made.
            return self.withhold(first, segments);
        }
        self.pool_of(first).withhold(first, segments);
        self.begin_span(first, segments, first as usize);
    }

    /// Takes segments out of the pool: nothing is allocated from them.
    pub(crate) fn withhold(&self, first: u32, segments: u32) {
        self.pool_of(first).withhold(first, segments);
        self.lost.fetch_add(self.blocks_of(segments), Ordering::Relaxed);
    }

    /// What was allocated and turned out to be unusable. On the medium it is free.
    pub(crate) fn lose(&self, extent: Extent) {
        self.lost.fetch_add(u64::from(extent.blocks), Ordering::Relaxed);
    }

    fn begin_span(&self, first: u32, segments: u32, home: usize) {
        let number = self.arena_on(self.owners.ground.node_of(first), home);
        let mut arena = lock(&self.arenas[number]);
        arena.insert(first, Span::new(segments, self.owners.place_of(first), self.blocks_of(segments) as u32));
        self.owners.set(first, segments, Some(number));
    }

    /// Free space of at least so many blocks, and maybe more: what is too much is given back by
    /// [`Allocator::free_rest`] once a record ends before it. `None`: there is none. Ends with
    /// [`Allocator::release`] when nothing of it is left to give back. `in_hand`: how many the
    /// caller has that have not ended.
    pub(crate) fn allocate<P: Pmem>(
        &self,
        region: &Region<P>,
        epochs: &Epochs,
        (home, in_hand): (usize, u64),
        blocks: u32,
    ) -> Result<Option<Extent>, PmemError> {
        let home = home % self.arenas.len();
        let found = self.find_room(region, epochs, (home, in_hand), blocks)?;
        self.held.fetch_add(u64::from(found.is_some()), Ordering::AcqRel);
        if let Some(found) = found.filter(|_| self.pools.len() > 1) {
            let is_local = self.owners.ground.node_at(found.place) == self.node_of_arena(home);
            let Got { local, remote } = &self.got[home];
            (if is_local { local } else { remote }).fetch_add(1, Ordering::Relaxed);
        }
        Ok(found)
    }

    /// What was allocated is used, or given back.
    pub(crate) fn release(&self) {
        self.held.fetch_sub(1, Ordering::AcqRel);
    }

    fn find_room<P: Pmem>(
        &self,
        region: &Region<P>,
        epochs: &Epochs,
        (home, in_hand): (usize, u64),
        blocks: u32,
    ) -> Result<Option<Extent>, PmemError> {
        if let Some(found) = lock(&self.arenas[home]).take(&self.owners, blocks) {
            return Ok(Some(found));
        }
        self.reclaim(epochs, home);
        let (own, nodes) = (self.node_of_arena(home), self.pools.len());
        // Far is better than not at all.
        for node in (own..nodes).chain(0..own) {
            if let Some(found) = self.find_room_on(region, node, home, blocks)? {
                return Ok(Some(found));
            }
        }
        self.search(region, epochs, (home, in_hand), blocks)
    }

    /// Room on this node that is quick to find.
    fn find_room_on<P: Pmem>(
        &self,
        region: &Region<P>,
        node: usize,
        home: usize,
        blocks: u32,
    ) -> Result<Option<Extent>, PmemError> {
        let number = self.arena_on(node, home);
        {
            let mut arena = lock(&self.arenas[number]);
            if arena.has_much() {
                self.merge_next(region, &mut arena)?;
            }
            if let Some(found) = arena.take(&self.owners, blocks) {
                return Ok(Some(found));
            }
        }
        if let Some(found) = self.take_over(region, number, blocks)? {
            return Ok(Some(found));
        }
        self.take_span(region, (node, home), blocks)
    }

    /// Looks everywhere, and merges everything: before it is said that there is no room.
    fn search<P: Pmem>(
        &self,
        region: &Region<P>,
        epochs: &Epochs,
        (home, in_hand): (usize, u64),
        blocks: u32,
    ) -> Result<Option<Extent>, PmemError> {
        let waiting = self.stand_back(in_hand);
        self.free_retired(epochs, true);
        drop(waiting);
        if self.none_by_merging.is_known(self.freed(), blocks) {
            return Ok(None);
        }
        for arena in &self.arenas {
            let tail = lock(arena).tail.take();
            if let Some(tail) = tail {
                self.free(tail);
            }
        }
        let freed = self.freed();
        for arena in self.arenas_from(home) {
            // What others free meanwhile they look for themselves.
            let queued = lock(arena).queued();
            for _ in 0..queued {
                let mut arena = lock(arena);
                if let Some(found) = arena.take(&self.owners, blocks) {
                    return Ok(Some(found));
                }
                self.merge_next(region, &mut arena)?;
            }
            if let Some(found) = lock(arena).take(&self.owners, blocks) {
                return Ok(Some(found));
            }
        }
        let found = self.take_span_anywhere(region, home, blocks)?;
        if found.is_none() {
            self.none_by_merging.note(freed, blocks);
        }
        Ok(found)
    }

    /// Takes over the emptiest span of an arena of the same node with much that is free, and room
    /// from it.
    fn take_over<P: Pmem>(&self, region: &Region<P>, own: usize, blocks: u32) -> Result<Option<Extent>, PmemError> {
        let mut taken_over = 0;
        for step in 1..self.arenas_of_node {
            let other = self.arena_on(self.node_of_arena(own), own + step);
            // In the order of their numbers, as everybody does.
            let (mut first, mut second) = (lock(&self.arenas[own.min(other)]), lock(&self.arenas[own.max(other)]));
            let (mine, theirs) = if own < other { (&mut *first, &mut *second) } else { (&mut *second, &mut *first) };
            let Some(number) = theirs.emptiest().filter(|_| theirs.has_much()) else { continue };
            let is_queued = theirs.is_queued(number);
            if self.hand_over(number, theirs, mine, own).is_none() {
                continue;
            }
            if is_queued {
                self.merge(region, mine, number)?;
            }
            if let Some(found) = mine.take(&self.owners, blocks) {
                return Ok(Some(found));
            }
            taken_over += 1;
            if taken_over == TAKE_OVERS_MAX {
                break;
            }
        }
        Ok(None)
    }

    /// Gives a span to another arena, with this number; how many blocks it has, if it was there.
    fn hand_over(&self, first: u32, from: &mut Arena, to: &mut Arena, number: usize) -> Option<u32> {
        let span = from.remove(first, &self.owners)?;
        let blocks = span.blocks();
        self.owners.set(first, span.segments, Some(number));
        to.insert(first, span);
        Some(blocks)
    }

    /// Gives back an extent that no reader can have seen, and that is free on the medium.
    pub(crate) fn free(&self, extent: Extent) {
        // Its span may go to another arena meanwhile, or be lost.
        while let Some((first, arena)) = self.owners.span_of(extent.place) {
            if lock(self.arenas.get(arena).unwrap_or(&self.aside)).free(first, extent) {
                break;
            }
        }
        self.freed.fetch_add(1, Ordering::Release);
    }

    /// Gives back what lies behind a record: the next ones of this home are cut from it, if it is
    /// on their node.
    pub(crate) fn free_rest(&self, home: usize, extent: Extent) {
        let number = self.arena_on(self.owners.ground.node_at(extent.place), home);
        let mut arena = lock(&self.arenas[number]);
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
    pub(crate) fn retire(&self, epochs: &Epochs, home: usize, extent: Extent) {
        fault_point!("hash_reused_under_readers", return self.free(extent));
        let mut deferred = lock(&self.deferred[home % self.deferred.len()]);
        deferred.push_back((epochs.of_unlinked(), extent));
        self.retired.fetch_add(u64::from(extent.blocks), Ordering::AcqRel);
        let many = deferred.len().is_multiple_of(RETIRED);
        drop(deferred);
        if many {
            // Reclaiming begins an epoch too: with two, and no reader in the way, all that was
            // retired is free at once and written again while the cache has it. Without this one it
            // is no faster (2.55 against 2.60 M updates/s), and twice as much waits.
            epochs.advance();
            self.reclaim(epochs, home);
        }
    }

    /// Frees what no reader can be looking at any more.
    fn reclaim(&self, epochs: &Epochs, home: usize) {
        let now = epochs.advance();
        let mut deferred = lock(&self.deferred[home % self.deferred.len()]);
        let mut free = Vec::new();
        while let Some((_, extent)) = deferred.pop_front_if(|(epoch, _)| *epoch + 2 <= now) {
            free.push(extent);
        }
        drop(deferred);
        for extent in free {
            self.retired.fetch_sub(u64::from(extent.blocks), Ordering::AcqRel);
            self.free(extent);
        }
    }

    /// Whoever waits with so many extents in hand gives nothing back before it has looked: nobody
    /// waits for those meanwhile, nor does it itself.
    pub(crate) fn stand_back(&self, in_hand: u64) -> StandingBack<'_> {
        self.held.fetch_sub(in_hand, Ordering::AcqRel);
        StandingBack { held: &self.held, in_hand }
    }

    /// Waits for who may still look at what was retired, and frees it; and if asked to for what
    /// puts have in hand.
    pub(crate) fn free_retired(&self, epochs: &Epochs, puts_too: bool) {
        // Readers stay for as long as a copy takes, or until they get a processor again.
        let free_at = epochs.now() + 2;
        for _ in 0..YIELDS_MAX {
            let before = epochs.now();
            let has_retired = self.retired.load(Ordering::Acquire) > 0 && epochs.advance() < free_at;
            let has_held = puts_too && self.held.load(Ordering::Acquire) > 0;
            if !has_retired && !has_held {
                break;
            }
            if has_held || epochs.now() == before {
                steps::count(1);
                std::thread::yield_now();
            }
        }
        (0..self.deferred.len()).for_each(|home| self.reclaim(epochs, home));
    }

    /// A new span on this node, all of it.
    fn take_span<P: Pmem>(
        &self,
        region: &Region<P>,
        (node, home): (usize, usize),
        blocks: u32,
    ) -> Result<Option<Extent>, PmemError> {
        let segments = blocks.div_ceil(self.owners.ground.segment_blocks);
        loop {
            let Some(first) = lock(&self.pools[node]).take(segments) else { return Ok(None) };
            let extent = Extent { place: self.owners.place_of(first), blocks: self.blocks_of(segments) as u32 };
            match store_span(region, first, segments, extent) {
                Ok(()) => {
                    self.begin_span(first, segments, home);
                    return Ok(Some(extent));
                }
                Err(error) => {
                    self.lose(extent);
                    of_one_place(error)?;
                }
            }
        }
    }

    /// A new span, on the home's node if that has one.
    fn take_span_anywhere<P: Pmem>(
        &self,
        region: &Region<P>,
        home: usize,
        blocks: u32,
    ) -> Result<Option<Extent>, PmemError> {
        let (own, nodes) = (self.node_of_arena(home), self.pools.len());
        for node in (own..nodes).chain(0..own) {
            let found = self.take_span(region, (node, home), blocks)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Merges neighbours in the next span of an arena that has some.
    fn merge_next<P: Pmem>(&self, region: &Region<P>, arena: &mut Arena) -> Result<(), PmemError> {
        arena.next_queued().map_or(Ok(()), |first| self.merge(region, arena, first))
    }

    /// Merges neighbours in a span. One of which nothing is used goes back to the pool.
    fn merge<P: Pmem>(&self, region: &Region<P>, arena: &mut Arena, first: u32) -> Result<(), PmemError> {
        let Some(span) = arena.span(first) else { return Ok(()) };
        let joins = span.joins();
        match store_joins(region, &joins) {
            Ok(true) => arena.join(first, &joins, &self.owners),
            Ok(false) => {
                self.lose_span(arena, first);
                return Ok(());
            }
            Err(error) => {
                self.lose_span(arena, first);
                return of_one_place(error);
            }
        }
        let Some(segments) = arena.span(first).filter(|span| span.is_unused()).map(|span| span.segments) else {
            return Ok(());
        };
        if let Err(error) = store_end(region, first, segments) {
            self.lose_span(arena, first);
            return of_one_place(error);
        }
        arena.remove(first, &self.owners);
        self.owners.set(first, segments, None);
        self.pool_of(first).give(first, segments);
        Ok(())
    }

    /// The medium may say something else of this span than its arena does: nothing is allocated
    /// from it any more, nor given back to it.
    fn lose_span(&self, arena: &mut Arena, first: u32) {
        if let Some(span) = arena.remove(first, &self.owners) {
            self.owners.set(first, span.segments, None);
            self.lost.fetch_add(u64::from(span.blocks()), Ordering::Relaxed);
        }
    }

    /// Figures. O(arenas · lengths of free extents).
    pub(crate) fn usage(&self) -> Usage {
        let pools_bytes: u64 = self.pools.iter().map(|pool| lock(pool).footprint_bytes()).sum();
        let mut usage = Usage {
            retired: self.retired.load(Ordering::Acquire),
            unused: self.blocks_of(self.unused_segments()),
            lost: self.lost.load(Ordering::Relaxed),
            footprint_bytes: pools_bytes + size_of_val(&*self.owners.words) as u64,
            ..Usage::default()
        };
        for deferred in &self.deferred {
            usage.footprint_bytes += (lock(deferred).capacity() * size_of::<(u64, Extent)>()) as u64;
        }
        for arena in self.arenas.iter().chain([&self.aside]) {
            let arena = lock(arena);
            let tail = arena.tail.filter(|tail| self.owners.span_of(tail.place).is_some());
            usage.in_spans += arena.blocks();
            usage.free += arena.free_blocks() + tail.map_or(0, |tail| u64::from(tail.blocks));
            usage.footprint_bytes += arena.footprint_bytes();
        }
        usage
    }

    /// Figures of each node, where there are several.
    pub(crate) fn usage_of_nodes(&self) -> Vec<NodeUsage> {
        if self.pools.len() == 1 {
            return Vec::new();
        }
        let mut usage = vec![NodeUsage::default(); self.pools.len()];
        for (segments, node) in self.owners.ground.parts() {
            usage[node].all += self.blocks_of(segments.end - segments.start);
        }
        for (number, (arena, got)) in self.arenas.iter().zip(&self.got).enumerate() {
            let (arena, of) = (lock(arena), &mut usage[self.node_of_arena(number)]);
            let tail = arena.tail.filter(|tail| self.owners.span_of(tail.place).is_some());
            of.taken += arena.blocks() - arena.free_blocks() - tail.map_or(0, |tail| u64::from(tail.blocks));
            of.local += got.local.load(Ordering::Relaxed);
            of.remote += got.remote.load(Ordering::Relaxed);
        }
        usage
    }
}

/// Makes segments a span of one free extent.
fn store_span<P: Pmem>(region: &Region<P>, first: u32, segments: u32, extent: Extent) -> Result<(), PmemError> {
    // In this order, so that a span is there whole or not at all.
    region.set_first(region.offset(extent.place), First::free(extent.blocks))?;
    for segment in first + 1..first + segments {
        region.set_segment(segment, SegmentState::Continued)?;
    }
    region.pmem.fence()?;
    let state = if segments == 1 { SegmentState::Extents } else { SegmentState::Large(segments) };
    region.set_segment(first, state)?;
    region.pmem.fence()
}

/// Makes one free extent of each of the neighbours; false: one of them is none, which is damage.
fn store_joins<P: Pmem>(region: &Region<P>, joins: &[Join]) -> Result<bool, PmemError> {
    // All are read before any is stored: a line that cannot be read changes nothing.
    for Join { first, .. } in joins {
        let found = region.first(region.offset(first.place))?;
        if found.is_none_or(|found| found.kind != Kind::Free || found.blocks != first.blocks) {
            return Ok(false);
        }
    }
    for Join { first, blocks } in joins {
        region.set_first(region.offset(first.place), First::free(*blocks))?;
    }
    fault_point!("hash_merged_without_a_fence", return Ok(true));
    if !joins.is_empty() {
        region.pmem.fence()?;
    }
    Ok(true)
}

/// Makes a span none.
fn store_end<P: Pmem>(region: &Region<P>, first: u32, segments: u32) -> Result<(), PmemError> {
    region.set_segment(first, SegmentState::Unused)?;
    region.pmem.fence()?;
    for segment in first + 1..first + segments {
        region.set_segment(segment, SegmentState::Unused)?;
    }
    region.pmem.fence()
}
