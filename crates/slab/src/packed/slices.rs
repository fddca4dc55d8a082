//! Slices of large values in the cache of records, by where they lie, once they were checked: a
//! whole one as the block that it was read into, a shorter one copied. They are forgotten when
//! their blob's place is.

use std::sync::Arc;

use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_base::{Key, fault_point};
use stratakv_device::{Block, Class};
use stratakv_engine::Effects;

use crate::place::RecordPlace;
use crate::slab::Slab;

/// Where a slice lies, as the cache names it.
fn slice_at(first: u32, slice: usize) -> u64 {
    Slab::offset(first) + (slice * SLICE_BYTES) as u64
}

/// A slice that was cached.
pub(crate) struct CachedSlice {
    pub(crate) block: Arc<Block>,
    /// Where it begins.
    pub(crate) at: usize,
    /// The block is a slab page of the cache.
    pub(crate) is_lent: bool,
}

impl Slab {
    /// A slice of the blob whose first page this is. It begins its block, unless part of a slab
    /// page `may_lend`.
    pub(crate) fn cached_slice(
        &mut self,
        first: u32,
        slice: usize,
        may_lend: bool,
        effects: &Effects,
    ) -> Option<CachedSlice> {
        let hit = self.packed.as_mut()?.cache.get(slice_at(first, slice))?;
        let is_whole = hit.bytes.len() == SLICE_BYTES;
        if let Some((block, at)) = hit.shared.filter(|_| is_whole || may_lend) {
            return Some(CachedSlice { block: Arc::clone(block), at, is_lent: true });
        }
        let mut block = effects.block(Class::Slice)?;
        block.get_mut(..hit.bytes.len())?.copy_from_slice(hit.bytes);
        Some(CachedSlice { block: Arc::new(block), at: 0, is_lent: false })
    }

    /// Caches a slice that was read, of so many bytes.
    pub(crate) fn cache_slice(
        &mut self,
        key: &Key,
        blob: RecordPlace,
        (slice, bytes): (usize, usize),
        block: &Arc<Block>,
        effects: &Effects,
    ) {
        let RecordPlace::Blob { first, .. } = blob else { return };
        // It may have died while it was read: nobody would take it out of the cache, and its place
        // may come to hold another.
        let is_named = self.index.0.get(key.encoded()).is_some_and(|entry| entry.place == blob.to_bits());
        let Some(packed) = self.packed.as_mut().filter(|_| is_named) else { return };
        let (at, take) = (slice_at(first, slice), &mut || effects.block(Class::Slice));
        if bytes == SLICE_BYTES {
            packed.cache.adopt(at, block, take);
        } else {
            packed.cache.insert(at, &[block.get(..bytes).unwrap_or_default()], take);
        }
    }

    /// Nothing names this blob any more.
    pub(crate) fn forget_slices(&mut self, first: u32, pages: u32) {
        let Some(packed) = &mut self.packed else { return };
        fault_point!("cached_slices_of_a_dead_run_stay", return);
        for slice in 0..(pages as usize * PAGE_BYTES).div_ceil(SLICE_BYTES) {
            packed.cache.remove(slice_at(first, slice));
        }
    }
}
