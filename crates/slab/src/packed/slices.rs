//! Slices of large values in the cache of records, by where they lie, once they were checked: a
//! whole one as the block that it was read into, a shorter one copied. They are forgotten when
//! their blob's place is.

use std::sync::Arc;

use stratakv_base::fault_point;
use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_device::{Block, Class};
use stratakv_engine::Effects;

use super::Log;
use crate::blob_read::CachedSlice;
use crate::space::offset;

/// Where a slice lies, as the cache names it.
fn slice_at(first: u32, slice: usize) -> u64 {
    offset(first) + (slice * SLICE_BYTES) as u64
}

impl Log {
    /// A slice of the blob whose first page this is. It begins its block, unless part of a slab
    /// page `may_lend`.
    pub(super) fn slice(&mut self, first: u32, slice: usize, may_lend: bool, effects: &Effects) -> Option<CachedSlice> {
        let hit = self.cache.get(slice_at(first, slice))?;
        let is_whole = hit.bytes.len() == SLICE_BYTES;
        if let Some((block, at)) = hit.shared.filter(|_| is_whole || may_lend) {
            return Some(CachedSlice { block: Arc::clone(block), at, is_lent: true });
        }
        let mut block = effects.block(Class::Slice)?;
        block.get_mut(..hit.bytes.len())?.copy_from_slice(hit.bytes);
        Some(CachedSlice { block: Arc::new(block), at: 0, is_lent: false })
    }

    /// Caches a slice that was read, of so many bytes.
    pub(super) fn keep_slice(&mut self, at: (u32, usize), bytes: usize, block: &Arc<Block>, effects: &Effects) {
        let (at, take) = (slice_at(at.0, at.1), &mut || effects.block(Class::Slice));
        if bytes == SLICE_BYTES {
            self.cache.adopt(at, block, take);
        } else {
            self.cache.insert(at, &[block.get(..bytes).unwrap_or_default()], take);
        }
    }

    /// Nothing names this blob any more.
    pub(super) fn forget_slices(&mut self, first: u32, pages: u32) {
        fault_point!("cached_slices_of_a_dead_run_stay", return);
        for slice in 0..(pages as usize * PAGE_BYTES).div_ceil(SLICE_BYTES) {
            self.cache.remove(slice_at(first, slice));
        }
    }
}
