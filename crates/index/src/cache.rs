//! Page cache: which pages of a volume are in memory, and which of them goes when memory is wanted.
//!
//! The victim is chosen by CLOCK (second chance), with a bounded look. About 36 bytes a page,
//! besides the page.

use std::sync::Arc;

use stratakv_device::Block;
use stratakv_device::block::ChunkId;

use crate::linear::Linear;

/// After this many pages that were used of late, the next best is taken: no eviction walks the
/// whole cache.
const SECOND_CHANCES_MAX: usize = 256;
/// After this many pages in use elsewhere, an eviction gives up.
const IN_USE_MAX: usize = 4096;

/// Blocks by page number.
///
/// One shard's own: not shared, no locks. The cache has no size of its own; whoever runs out of
/// blocks calls [`PageCache::evict`].
pub struct PageCache {
    /// The clock's hand goes round its slots.
    table: Linear<Page>,
    hand: usize,
}

struct Page {
    block: Arc<Block>,
    chunk: ChunkId,
    used: bool,
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
        PageCache { table: Linear::new(), hand: 0 }
    }

    /// The page's block, if cached, and a second chance for it. O(1).
    pub fn get(&mut self, page: u64) -> Option<Arc<Block>> {
        let slot = self.table.find(page)?;
        let cached = self.table.value_mut(slot);
        cached.used = true;
        Some(Arc::clone(&cached.block))
    }

    /// The page's block, if cached, without effect on what is evicted. O(1).
    pub fn peek(&self, page: u64) -> Option<&Arc<Block>> {
        Some(&self.table.value(self.table.find(page)?).block)
    }

    /// Caches `block` as the contents of `page` and returns the block it had. A new page starts
    /// without a second chance, so that pages read once (scans) go first. O(1).
    pub fn insert(&mut self, page: u64, block: Arc<Block>) -> Option<Arc<Block>> {
        let chunk = block.chunk();
        if let Some(slot) = self.table.find(page) {
            let cached = self.table.value_mut(slot);
            cached.chunk = chunk;
            cached.used = true;
            return Some(std::mem::replace(&mut cached.block, block));
        }
        self.table.insert(page, Page { block, chunk, used: false });
        None
    }

    /// Forgets `page` and returns its block. O(1).
    pub fn remove(&mut self, page: u64) -> Option<Arc<Block>> {
        let slot = self.table.find(page)?;
        Some(self.table.take(slot).1.block)
    }

    /// Forgets the page that was not used for longest, as CLOCK sees it, and returns it. Blocks in
    /// use elsewhere are passed over: dropping them would free no memory. `None`: nothing cached,
    /// or 4,096 blocks in a row are in use; the next call looks further on. O(1): looks at 256
    /// pages, and seldom at more.
    pub fn evict(&mut self) -> Option<(u64, Arc<Block>)> {
        let mut chances = SECOND_CHANCES_MAX.min(self.len());
        let mut in_use = IN_USE_MAX.min(self.len());
        while in_use > 0 {
            if self.hand >= self.len() {
                self.hand = 0;
            }
            let slot = self.table.value_mut(self.hand);
            if Arc::strong_count(&slot.block) > 1 {
                in_use -= 1;
            } else if slot.used && chances > 0 {
                chances -= 1;
                slot.used = false;
            } else {
                let (page, cached) = self.table.take(self.hand);
                return Some((page, cached.block));
            }
            self.hand += 1;
        }
        None
    }

    /// Forgets all pages whose block lies in `chunk`, and says how many: the chunk's memory goes
    /// back once its last block is dropped ([`stratakv_device::Pool::retire_chunk`]). O(pages), by
    /// one walk over the table that reads no block.
    pub fn drop_chunk(&mut self, chunk: ChunkId) -> usize {
        let before = self.len();
        // Downwards, as taking one moves the last slot, which is then one already seen, into its
        // place.
        for slot in (0..before).rev() {
            if self.table.value(slot).chunk == chunk {
                self.table.take(slot);
            }
        }
        before - self.len()
    }

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the table, without the blocks.
    pub fn footprint_bytes(&self) -> usize {
        self.table.footprint_bytes()
    }
}
