//! Page cache.
use std::{collections::BTreeMap, sync::Arc};
use stratakv_device::{Block, block::ChunkId};
/// Page cache.
#[derive(Default)]
pub struct PageCache(BTreeMap<u64, Arc<Block>>);
impl PageCache {
    /// Empty.
    pub fn new() -> PageCache { PageCache::default() }
    /// Marks used.
    pub fn get(&mut self, page: u64) -> Option<Arc<Block>> { self.0.get(&page).cloned() }
    /// Does not mark.
    pub fn peek(&self, page: u64) -> Option<&Arc<Block>> { self.0.get(&page) }
    /// Adds or replaces.
    pub fn insert(&mut self, page: u64, block: Arc<Block>) -> Option<Arc<Block>> { self.0.insert(page, block) }
    /// Removes.
    pub fn remove(&mut self, page: u64) -> Option<Arc<Block>> { self.0.remove(&page) }
    /// Victim.
    pub fn evict(&mut self) -> Option<(u64, Arc<Block>)> {
        let page = *self.0.iter().find(|(_, b)| Arc::strong_count(b) == 1)?.0;
        Some((page, self.0.remove(&page)?))
    }
    /// Removes all pages whose block lies in `chunk`.
    pub fn drop_chunk(&mut self, chunk: ChunkId) -> usize {
        let before = self.0.len();
        self.0.retain(|_, b| b.chunk() != chunk);
        before - self.0.len()
    }
    /// Pages.
    pub fn len(&self) -> usize { self.0.len() }
    /// None.
    pub fn is_empty(&self) -> bool { self.0.is_empty() }
    /// Bytes.
    pub fn footprint_bytes(&self) -> usize { self.0.len() * 32 }
}
