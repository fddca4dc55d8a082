//! [`Memory`]: blocks for reads and writes, the requests in flight that have some, what the cache
//! may have, and what operations hold outside the pool. Whoever begins a request takes its block
//! here; at the end of a tick [`Matrix::find_blocks`] sees to it if one could not be had.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stratakv_base::{Mono, fault_point};
use stratakv_chassis::account::MemoryAccount;
use stratakv_device::block::CHUNK_BYTES;
use stratakv_device::{Block, Class};
use stratakv_engine::{Effects, Io, IoTable};
use stratakv_index::PageCache;
use stratakv_pmem::Pmem;

use crate::matrix::Matrix;
use crate::scheduler::WaitFor;
use crate::volume::Extent;

/// A shard without blocks asks for so many ticks, then for one in a while.
const STARVED_TICKS_MAX: u32 = 32;
const STARVED_NS: u64 = 10_000_000;

/// Ticks from one look at the memory to the next.
const BALANCE_TICKS: u64 = 64;

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

/// Filters of rows may take this share of the memory.
const FILTERS_SHARE: u64 = 8;

/// What a request in flight is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IoPurpose {
    /// The read that begins at this page.
    Read(u64),
    /// Space that is set aside.
    Growth,
    /// A piece of this file.
    Output(u64),
    /// A piece of the manifest with this number.
    Manifest(u64),
    /// The flush before its superblock.
    Flush(u64),
    /// Its superblock.
    Superblock(u64),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes_max: u64,
    cache: RefCell<PageCache>,
    io: IoTable<IoPurpose>,
    /// Bytes of values that wait to be written, and of long values that are being read, all outside
    /// the pool.
    waiting_bytes: Arc<AtomicU64>,
    long_bytes: Arc<AtomicU64>,
    ticks_ended: u64,
    /// Bytes of blocks that the pool held at the last balance.
    held_bytes: u64,
    /// A block was wanted in this tick and could not be had; and ticks in a row of which that was
    /// so, with nothing in flight.
    lacks_block: bool,
    starved_ticks: u32,
    /// Page reads that had come back when operations last let go of what they had pinned.
    pins_released_at: Option<u64>,
}

impl Memory {
    /// Of so many bytes.
    pub(crate) fn new(bytes_max: u64) -> Memory {
        Memory {
            bytes_max,
            cache: RefCell::new(PageCache::new()),
            io: IoTable::new(),
            waiting_bytes: Arc::default(),
            long_bytes: Arc::default(),
            ticks_ended: 0,
            held_bytes: 0,
            lacks_block: false,
            starved_ticks: 0,
            pins_released_at: None,
        }
    }

    /// A request begins.
    pub(crate) fn start(&mut self, purpose: IoPurpose) -> Io {
        self.io.start(purpose)
    }

    /// It is over: what it was for.
    pub(crate) fn finish(&mut self, io: Io) -> Option<IoPurpose> {
        self.io.finish(io)
    }

    /// Whether no request is in flight.
    pub(crate) fn is_quiet(&self) -> bool {
        self.io.is_empty()
    }

    pub(crate) fn cache(&self) -> &RefCell<PageCache> {
        &self.cache
    }

    pub(crate) fn cache_page(&mut self, page: u64, block: Arc<Block>) {
        self.cache.get_mut().insert(page, block);
    }

    /// What lies there is of nobody any more.
    pub(crate) fn forget_pages(&mut self, extent: Extent) {
        let cache = self.cache.get_mut();
        (extent.page..extent.end()).for_each(|page| drop(cache.remove(page)));
    }

    /// What operations may hold outside the pool.
    pub(crate) fn outside_bytes_max(&self) -> u64 {
        self.bytes_max / OUTSIDE_SHARE
    }

    /// For values that wait to be written.
    pub(crate) fn permit_for_writing(&self, bytes: u64) -> Permit {
        Permit::new(&self.waiting_bytes, bytes)
    }

    /// Room for a long value that is to be read; `None`: others have to end first. One always has
    /// room, and so has whoever does not wait.
    pub(crate) fn permit_for_reading(&self, bytes: u64, at_once: bool) -> Option<Permit> {
        let held = self.long_bytes.load(Ordering::Relaxed);
        let mut is_crowded = held > 0 && held + bytes > self.outside_bytes_max();
        fault_point!("trial_long_reads_crowd", is_crowded = false);
        (at_once || !is_crowded).then(|| Permit::new(&self.long_bytes, bytes))
    }

    /// Whether one more may read a long value.
    pub(crate) fn has_room_for_reading(&self) -> bool {
        self.long_bytes.load(Ordering::Relaxed) < self.outside_bytes_max()
    }

    /// Bytes outside the pool: of values to be written, and of values that are being read.
    #[cfg(test)]
    pub(crate) fn outside_bytes(&self) -> [u64; 2] {
        [&self.waiting_bytes, &self.long_bytes].map(|bytes| bytes.load(Ordering::Relaxed))
    }

    /// A block, making room in the cache if need be.
    pub(crate) fn take_block(&mut self, class: Class, effects: &Effects) -> Option<Block> {
        let block = self.spare_block(class, effects);
        self.lacks_block |= block.is_none();
        block
    }

    /// As [`Memory::take_block`], by who can do without.
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

    /// A tick ends. Whether it is time to look at the memory again: sums are not taken in each
    /// tick.
    pub(crate) fn is_balance_due(&mut self) -> bool {
        self.ticks_ended += 1;
        self.ticks_ended.is_multiple_of(BALANCE_TICKS)
    }

    /// Gives the cache what everything else, of so many bytes, leaves of the cap.
    fn balance(&mut self, used: u64, effects: &Effects) {
        let pool = effects.pool();
        let used = used + self.cache.get_mut().footprint_bytes() as u64;
        let left = (self.bytes_max.saturating_sub(used) as usize).max(4 * CHUNK_BYTES);
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
        self.held_bytes = pool.held_bytes() as u64;
    }

    /// What the memory is used for, but for what the engine around this has.
    pub(crate) fn account(&self) -> MemoryAccount {
        let outside = [&self.waiting_bytes, &self.long_bytes].map(|bytes| bytes.load(Ordering::Relaxed));
        MemoryAccount {
            limit: self.bytes_max,
            blocks: self.held_bytes,
            work: self.cache.borrow().footprint_bytes() as u64 + outside.iter().sum::<u64>(),
            ..MemoryAccount::default()
        }
    }

    /// Whether a block was wanted in this tick and could not be had.
    fn take_lack(&mut self) -> bool {
        let mut lacks_block = std::mem::take(&mut self.lacks_block);
        fault_point!("trial_lacks_blocks_silently", lacks_block = false);
        if !lacks_block {
            self.starved_ticks = 0;
        }
        lacks_block
    }

    /// Another tick, now or in a while.
    fn ask_again(&mut self, now: Mono, effects: &mut Effects) {
        self.starved_ticks += 1;
        if self.starved_ticks < STARVED_TICKS_MAX {
            effects.more();
        } else {
            effects.wake_at(Mono(now.0 + STARVED_NS));
        }
    }
}

impl<P: Pmem> Matrix<P> {
    /// Those that waited for room to read a long value in, one at a time.
    pub(crate) fn wake_memory_waiters(&mut self) {
        if self.memory.has_room_for_reading() {
            self.scheduler.wake_first(WaitFor::Memory);
        }
    }

    /// Gives the cache what everything else leaves of the cap.
    pub(crate) fn balance_memory(&mut self, effects: &Effects) {
        self.container.keep_filters_within(self.memory.bytes_max / FILTERS_SHARE);
        let used = self.container.footprint_bytes() + self.levels.footprint_bytes() as u64;
        self.memory.balance(used, effects);
    }

    /// A block was wanted and could not be had. What is in flight gives some back and makes a tick;
    /// if nothing is, others have to let go of what they hold, and there is another tick: not for
    /// ever, since a pool that gives nothing then is held by somebody else, who is asked again at
    /// intervals.
    pub(crate) fn find_blocks(&mut self, effects: &mut Effects) {
        if !self.memory.take_lack() {
            return;
        }
        self.balance_memory(effects);
        if !self.memory.is_quiet() {
            return;
        }
        self.release_pins();
        self.memory.ask_again(self.life.mono(), effects);
    }

    /// Nothing is in flight and no block can be had: everybody but the oldest operation lets go of
    /// what was read for it.
    fn release_pins(&mut self) {
        // Nobody has pinned anything since the last time.
        if self.memory.pins_released_at.replace(self.counters.reads.page_reads) == Some(self.counters.reads.page_reads)
        {
            return;
        }
        if let Some(job) = self.compactor.job_mut() {
            job.reads.release();
        }
        self.scheduler.release_pins();
    }
}
