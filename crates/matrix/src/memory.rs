//! The memory of a shard: blocks for reads and writes, what the cache may have, and what to do when
//! there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stratakv_base::{Mono, fault_point};
use stratakv_device::block::CHUNK_BYTES;
use stratakv_device::{Block, Class};
use stratakv_engine::Effects;
use stratakv_pmem::Pmem;

use crate::matrix::Matrix;
use crate::scheduler::WaitFor;

/// A shard without blocks asks for so many ticks, then for one in a while.
const STARVED_TICKS_MAX: u32 = 32;
const STARVED_NS: u64 = 10_000_000;

/// Operations may hold this share of the memory in values outside the pool: those that wait to be
/// written, and long ones that are being read.
const OUTSIDE_SHARE: u64 = 4;

/// Bytes outside the pool that somebody holds, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    held: Arc<AtomicU64>,
    bytes: u64,
}

impl Permit {
    pub(crate) fn new(held: &Arc<AtomicU64>, bytes: u64) -> Permit {
        held.fetch_add(bytes, Ordering::Relaxed);
        Permit { held: Arc::clone(held), bytes }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl<P: Pmem> Matrix<P> {
    /// What operations may hold outside the pool.
    pub(crate) fn outside_bytes_max(&self) -> u64 {
        self.config.memory_bytes / OUTSIDE_SHARE
    }

    /// Room for a long value that is to be read; `None`: others have to end first. One always has
    /// room, and so has whoever does not wait.
    pub(crate) fn permit_for_reading(&self, bytes: u64, at_once: bool) -> Option<Permit> {
        let held = self.long_bytes.load(Ordering::Relaxed);
        let mut is_crowded = held > 0 && held + bytes > self.outside_bytes_max();
        fault_point!("trial_long_reads_crowd", is_crowded = false);
        (at_once || !is_crowded).then(|| Permit::new(&self.long_bytes, bytes))
    }

    /// Those that waited for room to read a long value in, one at a time.
    pub(crate) fn wake_memory_waiters(&mut self) {
        if self.long_bytes.load(Ordering::Relaxed) < self.outside_bytes_max() {
            self.scheduler.wake_first(WaitFor::Memory);
        }
    }

    /// A block, making room in the cache if need be.
    pub(crate) fn take_block(&mut self, class: Class, effects: &Effects) -> Option<Block> {
        let block = self.spare_block(class, effects);
        self.lacks_block |= block.is_none();
        block
    }

    /// As [`Matrix::take_block`], by who can do without.
    pub(crate) fn spare_block(&mut self, class: Class, effects: &Effects) -> Option<Block> {
        for _ in 0..8 {
            if let Some(block) = effects.block(class) {
                return Some(block);
            }
            let Some(evicted) = self.cache.get_mut().evict() else { break };
            drop(evicted);
        }
        effects.block(class)
    }

    /// Gives the cache what everything else leaves of the cap.
    pub(crate) fn balance_memory(&mut self, effects: &Effects) {
        let pool = effects.pool();
        let used = self.container.footprint_bytes() + self.levels.footprint_bytes() as u64;
        let used = used + self.cache.get_mut().footprint_bytes() as u64;
        let left = (self.config.memory_bytes.saturating_sub(used) as usize).max(4 * CHUNK_BYTES);
        pool.set_limit_bytes(left);
        for _ in 0..4 {
            if pool.held_bytes() <= left {
                break;
            }
            let Some(chunk) = pool.retire_chunk() else { break };
            self.cache.get_mut().drop_chunk(chunk);
        }
        // A pool filled with blocks of one class would starve the other.
        let starved = [(Class::Slice, true), (Class::Page, self.cache.get_mut().len() < 64)];
        for (class, _) in starved.into_iter().filter(|(_, starved)| *starved) {
            if effects.block(class).is_none() && pool.held_bytes() <= left + 2 * CHUNK_BYTES {
                pool.set_limit_bytes(pool.held_bytes() + CHUNK_BYTES);
                drop(effects.block(class));
                pool.set_limit_bytes(left);
            }
        }
    }

    /// A block was wanted and could not be had. What is in flight gives some back and makes a tick;
    /// if nothing is, others have to let go of what they hold, and there is another tick: not for
    /// ever, since a pool that gives nothing then is held by somebody else, who is asked again at
    /// intervals.
    pub(crate) fn find_blocks(&mut self, effects: &mut Effects) {
        let mut lacks_block = std::mem::take(&mut self.lacks_block);
        fault_point!("trial_lacks_blocks_silently", lacks_block = false);
        if !lacks_block {
            self.starved_ticks = 0;
            return;
        }
        self.balance_memory(effects);
        if !self.io.is_empty() {
            return;
        }
        self.release_pins();
        self.starved_ticks += 1;
        if self.starved_ticks < STARVED_TICKS_MAX {
            effects.more();
        } else {
            effects.wake_at(Mono(self.now.mono.0 + STARVED_NS));
        }
    }

    /// Nothing is in flight and no block can be had: everybody but the oldest operation lets go of
    /// what was read for it.
    fn release_pins(&mut self) {
        // Nobody has pinned anything since the last time.
        if self.pins_released_at == Some(self.counters.page_reads) {
            return;
        }
        self.pins_released_at = Some(self.counters.page_reads);
        if let Some(job) = &mut self.job {
            job.release();
        }
        self.scheduler.release_pins();
    }
}
