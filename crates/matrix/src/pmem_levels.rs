//! PMEM levels: levels of which the tables lie in the region, behind the container, between L0 and
//! the levels on the volume. Their pages are those of any table, they go through the same cursors,
//! and the manifest names them: only where a page is loaded from and stored to is told apart here.
//! `docs/decisions/0026` says which levels lie there, and why.

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Corruption, fault_point};
use stratakv_device::{Block, IoFault};
use stratakv_engine::{Effects, Error};
use stratakv_pmem::{Pmem, PmemError};

use crate::container::Container;
use crate::matrix::Matrix;
use crate::output::Output;
use crate::reading::Wanted;
use crate::volume::{Extent, PMEM_LEVELS_FIRST};

/// Each level may have so many times the bytes of the one above it.
pub(crate) const RATIO: u64 = 10;
/// Of the PMEM levels' bytes, levels may have so many of a hundred: the rest is for what a
/// compaction makes before what it took is free.
const FILL_PERCENT: u64 = 75;
/// What a region that cannot be loaded is to a reader.
const EIO: i32 = 5;
/// Pages taken of the PMEM levels at a time while a table grows: extents of 64 KiB.
pub(crate) const PMEM_LEVELS_GROWTH_PAGES: u32 = 16;

/// How many bytes each level may have, and which of them lie in the PMEM levels: the first ones. A
/// byte saves the most there: it takes the place of a level of the volume, and makes the next one
/// as much longer. The plan says where tables are to go, never where they are: that is what their
/// extents say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Of the levels that lie in the region.
    limits: Vec<u64>,
    /// Of the first level on the volume.
    level_bytes: u64,
}

impl Plan {
    /// With so many bytes for the PMEM levels. `level_bytes`: what the first level has at least.
    pub(crate) fn new(pmem_levels_bytes: u64, level_bytes: u64) -> Plan {
        let mut left = pmem_levels_bytes / 100 * FILL_PERCENT;
        let (mut limits, mut most) = (Vec::new(), level_bytes.saturating_mul(RATIO));
        while left > 0 {
            // What would be left for a level of less than the one above it makes that one longer.
            let all = left <= most.saturating_mul(2);
            let limit = if all { left } else { most };
            limits.push(limit);
            left -= limit;
            most = most.saturating_mul(RATIO);
        }
        let level_bytes = limits.last().map_or(level_bytes, |last| last.saturating_mul(RATIO).max(level_bytes));
        Plan { limits, level_bytes }
    }

    /// Whether tables of this level (0 is the first one below L0) go into the PMEM levels.
    pub(crate) fn in_pmem_levels(&self, level: usize) -> bool {
        level < self.limits.len()
    }

    /// How many bytes a level may have.
    pub(crate) fn limit_bytes(&self, level: usize) -> u64 {
        let below = level.saturating_sub(self.limits.len());
        let power = RATIO.saturating_pow(u32::try_from(below).unwrap_or(u32::MAX));
        self.limits.get(level).copied().unwrap_or_else(|| self.level_bytes.saturating_mul(power))
    }
}

/// Pages that lie in the region behind the container, as many as there are whole ones.
pub(crate) fn pmem_levels_pages<P: Pmem>(container: &Container<P>) -> u64 {
    container.pmem().len_bytes().saturating_sub(pmem_levels_start(container)) / PAGE_BYTES as u64
}

fn pmem_levels_start<P: Pmem>(container: &Container<P>) -> u64 {
    container.region_bytes().next_multiple_of(PAGE_BYTES as u64)
}

/// Where a page of the PMEM levels lies in the region; `None`: it is one of the volume.
pub(crate) fn offset_in_region<P: Pmem>(container: &Container<P>, page: u64) -> Option<u64> {
    let bytes = page.checked_sub(PMEM_LEVELS_FIRST)?.checked_mul(PAGE_BYTES as u64)?;
    pmem_levels_start(container).checked_add(bytes)
}

impl<P: Pmem> Matrix<P> {
    /// Loads what operations and the compaction want of the PMEM levels, as far as there are
    /// blocks. Whether there was anything.
    pub(crate) fn load_from_pmem_levels(&mut self, effects: &mut Effects) -> bool {
        let mut loaded = false;
        while let Some(wanted) = self.reads.next_in_pmem_levels() {
            let Some(mut block) = self.memory.take_block(wanted.class(), effects) else { break };
            self.reads.begun_in_pmem_levels();
            let result = self.load_pages(wanted, &mut block);
            self.counters.reads.pmem_levels_read_bytes += u64::from(wanted.pages) * PAGE_BYTES as u64;
            self.read_done(wanted.page, block, result, effects);
            loaded = true;
        }
        loaded
    }

    fn load_pages(&self, wanted: Wanted, block: &mut Block) -> Result<(), IoFault> {
        let len = wanted.pages as usize * PAGE_BYTES;
        let into = block.get_mut(..len).ok_or(IoFault::Short)?;
        self.pmem_levels_page(wanted.page, into)
            .unwrap_or(Err(PmemError::OutOfBounds {
                offset: wanted.page,
                len_bytes: len as u64,
                region_bytes: self.container.pmem().len_bytes(),
            }))
            .map_err(|error| {
                tracing::error!(%error, shard = self.config.shard, "a page of the PMEM levels cannot be loaded");
                IoFault::Os(EIO)
            })
    }

    /// Loads pages from `page` on if that is one of the PMEM levels; else nothing: it is one of the
    /// volume.
    pub fn pmem_levels_page(&self, page: u64, into: &mut [u8]) -> Option<Result<(), PmemError>> {
        Some(self.container.pmem().load(offset_in_region(&self.container, page)?, into))
    }

    /// Says where a damaged page lies.
    pub(crate) fn locate_damage(&self, corruption: &mut Corruption, page: u64) {
        corruption.place = self.place(page.saturating_mul(PAGE_BYTES as u64));
        if let Some(offset) = offset_in_region(&self.container, page) {
            corruption.place.offset_bytes = offset;
            corruption.found.push_str(" (in the PMEM levels: a byte of the region, not of the volume)");
        }
    }

    /// Stores what a table in the PMEM levels has by now. It is durable after
    /// [`Matrix::complete_pmem_levels`].
    ///
    /// # Errors
    /// The memory failed.
    pub(crate) fn store_in_pmem_levels(&mut self, output: &mut Output, effects: &mut Effects) -> Result<(), Error> {
        while let Some((extent, bytes)) = output.next_in_pmem_levels(self.volume.places_mut()) {
            let Some(offset) = offset_in_region(&self.container, extent.page) else { break };
            let (pmem, len_bytes) = (self.container.pmem(), bytes.len() as u64);
            store_past_cache(pmem, offset, bytes)?;
            output.stored(extent.pages);
            self.counters.writes.wrote(output.role(), len_bytes);
            self.counters.writes.pmem_levels_write_bytes += len_bytes;
            // No completion makes a tick.
            effects.more();
        }
        Ok(())
    }

    /// Makes durable what was stored in the PMEM levels: before the manifest counts that names it.
    ///
    /// # Errors
    /// The memory failed.
    pub(crate) fn complete_pmem_levels(&self) -> Result<(), Error> {
        Ok(self.container.pmem().fence()?)
    }

    /// Bytes of tables in the PMEM levels, of free ones, and of all of it.
    pub(crate) fn pmem_levels_bytes(&self) -> (u64, u64, u64) {
        let page = PAGE_BYTES as u64;
        let (free, all) = self.volume.places().pmem_levels_pages();
        let in_pmem_levels = |extent: &&Extent| extent.in_pmem_levels();
        let extents = self.tables().flat_map(|table| table.extents.iter().filter(in_pmem_levels));
        (extents.map(|extent| u64::from(extent.pages)).sum::<u64>() * page, free * page, all * page)
    }
}

/// Durable after a fence.
fn store_past_cache<P: Pmem>(pmem: &P, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
    fault_point!("trial_layer_not_flushed", return pmem.store(offset, bytes));
    pmem.store_nt(offset, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_levels_lie_in_the_pmem_levels_and_the_next_is_ten_times_as_long() {
        let limits = |pmem_levels_bytes, levels: usize| {
            let plan = Plan::new(pmem_levels_bytes, 100);
            (0..levels).map(|level| (plan.in_pmem_levels(level), plan.limit_bytes(level))).collect::<Vec<_>>()
        };
        assert_eq!(limits(0, 3), [(false, 100), (false, 1000), (false, 10_000)]);
        assert_eq!(limits(400, 3), [(true, 300), (false, 3000), (false, 30_000)]);
        assert_eq!(limits(8, 1), [(false, 100)], "less than a hundredth of nothing");
        assert_eq!(limits(16_000, 4), [(true, 1000), (true, 11_000), (false, 110_000), (false, 1_100_000)]);
        assert_eq!(Plan::new(u64::MAX, u64::MAX).limit_bytes(90), u64::MAX);
    }
}
