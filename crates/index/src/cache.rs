//! Page cache: which pages of a volume are in memory, and which of them goes when memory is wanted.
//!
//! A table by linear hashing (Litwin, VLDB 1980): each insert adds at most one bucket and moves one chain, so growing never stops a
//! request; the KVell paper (section 5.2) saw 100 ms spikes from a hash table that doubled, and fell back to a B-tree.
//! The victim is chosen by CLOCK (second chance), with a bounded look. About 36 bytes a page, besides the page.

use std::sync::Arc;

use stratakv_device::Block;
use stratakv_device::block::ChunkId;

/// No slot: the end of a chain.
const NONE: u32 = u32::MAX;
/// Elements in one piece of a [`Pieces`].
const PIECE: usize = 1024;
/// After this many pages that were used of late, the next best is taken: no eviction walks the whole cache.
const SECOND_CHANCES_MAX: usize = 256;
/// After this many pages in use elsewhere, an eviction gives up.
const IN_USE_MAX: usize = 4096;

/// Blocks by page number.
///
/// One shard's own: not shared, no locks. The cache has no size of its own; whoever runs out of blocks calls
/// [`PageCache::evict`].
pub struct PageCache {
    /// Dense, in no order; the clock's hand goes round it.
    slots: Pieces<Slot>,
    /// First slot of each chain.
    buckets: Pieces<u32>,
    hand: usize,
}

struct Slot {
    page: u64,
    block: Arc<Block>,
    next: u32,
    chunk: ChunkId,
    used: bool,
}

/// A vector that grows and shrinks by whole pieces and never moves its elements.
struct Pieces<T>(Vec<Vec<T>>);

impl<T> Pieces<T> {
    fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * PIECE + last.len())
    }

    fn push(&mut self, element: T) {
        match self.0.last_mut() {
            Some(last) if last.len() < PIECE => last.push(element),
            _ => {
                let mut piece = Vec::with_capacity(PIECE);
                piece.push(element);
                self.0.push(piece);
            }
        }
    }

    fn pop(&mut self) -> Option<T> {
        let last = self.0.last_mut()?;
        let element = last.pop();
        if last.is_empty() {
            self.0.pop();
        }
        element
    }

    fn get(&self, index: usize) -> &T {
        &self.0[index / PIECE][index % PIECE]
    }

    fn get_mut(&mut self, index: usize) -> &mut T {
        &mut self.0[index / PIECE][index % PIECE]
    }

    fn footprint_bytes(&self) -> usize {
        self.0.len() * (PIECE * size_of::<T>() + 16) + self.0.capacity() * size_of::<Vec<T>>()
    }
}

impl Default for PageCache {
    fn default() -> PageCache {
        PageCache::new()
    }
}

impl std::fmt::Debug for PageCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageCache({} pages)", self.len())
    }
}

impl PageCache {
    /// A cache without pages.
    pub fn new() -> PageCache {
        let mut buckets = Pieces(Vec::new());
        buckets.push(NONE);
        PageCache { slots: Pieces(Vec::new()), buckets, hand: 0 }
    }

    /// The page's block, if cached, and a second chance for it. O(1).
    pub fn get(&mut self, page: u64) -> Option<Arc<Block>> {
        let slot = self.find(page)?;
        let slot = self.slots.get_mut(slot);
        slot.used = true;
        Some(Arc::clone(&slot.block))
    }

    /// The page's block, if cached, without effect on what is evicted. O(1).
    pub fn peek(&self, page: u64) -> Option<&Arc<Block>> {
        Some(&self.slots.get(self.find(page)?).block)
    }

    /// Caches `block` as the contents of `page` and returns the block it had. A new page starts without a second chance, so that
    /// pages read once (scans) go first. O(1).
    pub fn insert(&mut self, page: u64, block: Arc<Block>) -> Option<Arc<Block>> {
        let chunk = block.chunk();
        if let Some(slot) = self.find(page) {
            let slot = self.slots.get_mut(slot);
            slot.chunk = chunk;
            slot.used = true;
            return Some(std::mem::replace(&mut slot.block, block));
        }
        let (number, bucket) = (self.slots.len() as u32, self.bucket(page));
        let next = std::mem::replace(self.buckets.get_mut(bucket), number);
        self.slots.push(Slot { page, block, next, chunk, used: false });
        if self.slots.len() > self.buckets.len() {
            self.add_bucket();
        }
        None
    }

    /// Forgets `page` and returns its block. O(1).
    pub fn remove(&mut self, page: u64) -> Option<Arc<Block>> {
        let slot = self.find(page)?;
        Some(self.take(slot).1)
    }

    /// Forgets the page that was not used for longest, as CLOCK sees it, and returns it. Blocks in use elsewhere are passed over:
    /// dropping them would free no memory. `None`: nothing cached, or 4,096 blocks in a row are in use; the next call looks further on.
    /// O(1): looks at 256 pages, and seldom at more.
    pub fn evict(&mut self) -> Option<(u64, Arc<Block>)> {
        let mut chances = SECOND_CHANCES_MAX.min(self.len());
        let mut in_use = IN_USE_MAX.min(self.len());
        while in_use > 0 {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let slot = self.slots.get_mut(self.hand);
            if Arc::strong_count(&slot.block) > 1 {
                in_use -= 1;
            } else if slot.used && chances > 0 {
                chances -= 1;
                slot.used = false;
            } else {
                return Some(self.take(self.hand));
            }
            self.hand += 1;
        }
        None
    }

    /// Forgets all pages whose block lies in `chunk`, and says how many: the chunk's memory goes back once its last block is dropped
    /// ([`stratakv_device::Pool::retire_chunk`]). O(pages), by one walk over the table that reads no block.
    pub fn drop_chunk(&mut self, chunk: ChunkId) -> usize {
        let before = self.len();
        // Downwards, as taking one moves the last slot, which is then one already seen, into its place.
        for slot in (0..before).rev() {
            if self.slots.get(slot).chunk == chunk {
                self.take(slot);
            }
        }
        before - self.len()
    }

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the table, without the blocks.
    pub fn footprint_bytes(&self) -> usize {
        self.slots.footprint_bytes() + self.buckets.footprint_bytes()
    }

    /// The slot of `page`.
    fn find(&self, page: u64) -> Option<usize> {
        let mut number = *self.buckets.get(self.bucket(page));
        while number != NONE {
            let slot = self.slots.get(number as usize);
            if slot.page == page {
                return Some(number as usize);
            }
            number = slot.next;
        }
        None
    }

    fn bucket(&self, page: u64) -> usize {
        bucket_among(page, self.buckets.len())
    }

    /// Adds the next bucket of the current doubling, and gives it its share of the chain that had it so far.
    fn add_bucket(&mut self) {
        let (new, count) = (self.buckets.len(), self.buckets.len() + 1);
        let old = new - count.next_power_of_two() / 2;
        let mut number = std::mem::replace(self.buckets.get_mut(old), NONE);
        self.buckets.push(NONE);
        while number != NONE {
            let bucket = self.bucket(self.slots.get(number as usize).page);
            let next = self.slots.get(number as usize).next;
            self.slots.get_mut(number as usize).next = std::mem::replace(self.buckets.get_mut(bucket), number);
            number = next;
        }
    }

    /// Undoes the latest [`PageCache::add_bucket`].
    fn remove_bucket(&mut self) {
        let old = self.buckets.len() - 1 - self.buckets.len().next_power_of_two() / 2;
        let mut number = self.buckets.pop().unwrap_or(NONE);
        while number != NONE {
            let slot = self.slots.get_mut(number as usize);
            let next = slot.next;
            slot.next = std::mem::replace(self.buckets.get_mut(old), number);
            number = next;
        }
    }

    /// Takes a slot out of the table; the last slot moves into its place.
    fn take(&mut self, slot: usize) -> (u64, Arc<Block>) {
        let next = self.slots.get(slot).next;
        *self.link_to(slot) = next;
        let last = self.slots.len() - 1;
        if slot != last {
            *self.link_to(last) = slot as u32;
        }
        let Some(mut taken) = self.slots.pop() else { unreachable!("slot {slot} is there, so the last one is") };
        if slot != last {
            std::mem::swap(self.slots.get_mut(slot), &mut taken);
        }
        if self.slots.len() * 2 < self.buckets.len() && self.buckets.len() > 1 {
            self.remove_bucket();
        }
        (taken.page, taken.block)
    }

    /// What points to `slot`: its bucket, or the slot before it in its chain.
    fn link_to(&mut self, slot: usize) -> &mut u32 {
        let bucket = self.bucket(self.slots.get(slot).page);
        let mut number = *self.buckets.get(bucket);
        if number as usize == slot {
            return self.buckets.get_mut(bucket);
        }
        loop {
            let next = self.slots.get(number as usize).next;
            if next as usize == slot {
                return &mut self.slots.get_mut(number as usize).next;
            }
            number = next;
        }
    }
}

/// The bucket of `page` when there are `count`.
fn bucket_among(page: u64, count: usize) -> usize {
    let mixed = page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = (mixed ^ (mixed >> 32)) as usize;
    let span = count.next_power_of_two();
    let bucket = hash & (span - 1);
    if bucket < count { bucket } else { bucket & (span / 2 - 1) }
}
