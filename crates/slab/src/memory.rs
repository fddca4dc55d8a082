//! Memory of a shard: the cache gets what the index leaves of the cap.

use stratakv_chassis::account::MemoryAccount;
use stratakv_device::block::CHUNK_BYTES;
use stratakv_device::{Block, Class};
use stratakv_engine::{Effects, Error};

use crate::placement::Placement;
use crate::shard::IndexedShard;

/// Ticks from one balance to the next.
const TICKS: u64 = 64;

/// When memory is balanced.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    ticks: u64,
    next_at: u64,
    /// Bytes of blocks that the pool held at the last balance.
    held_bytes: u64,
}

impl Memory {
    /// A tick has passed. Whether memory is to be balanced.
    pub(crate) fn is_balance_due(&mut self) -> bool {
        self.ticks += 1;
        let is_due = self.ticks >= self.next_at;
        if is_due {
            self.next_at = self.ticks + TICKS;
        }
        is_due
    }
}

impl<P: Placement> IndexedShard<P> {
    /// A block, making room in the cache if need be.
    pub(crate) fn take_block(&mut self, class: Class, effects: &Effects) -> Option<Block> {
        if let Some(block) = effects.block(class) {
            return Some(block);
        }
        for _ in 0..8 {
            if class == Class::Slice || !self.placement.evict_page() {
                break;
            }
            if let Some(block) = effects.block(class) {
                return Some(block);
            }
        }
        // The next tick looks whether one class took everything.
        self.memory.next_at = 0;
        None
    }

    /// Bytes the index and the tables take.
    pub(crate) fn index_bytes(&self) -> u64 {
        (self.index.tree.footprint_bytes()
            + self.placement.footprint_bytes()
            + self.blobs.tags.capacity() * 9
            + self.space.footprint_bytes()) as u64
    }

    /// Bytes the index may take: what the cap leaves beside a minimal cache.
    pub(crate) fn index_limit_bytes(&self) -> u64 {
        self.config.memory_bytes - (4 << 20).min(self.config.memory_bytes / 2)
    }

    /// What the index and the rest leave to the blocks of the pool.
    fn pool_room_bytes(&self) -> usize {
        let used = self.index_bytes() + self.placement.working_bytes() as u64;
        let cap = self.config.memory_bytes - self.reserve_bytes();
        cap.saturating_sub(used) as usize
    }

    /// What the allocator cannot use between blocks, and answers under way: 3 to 8 % of a process
    /// that was measured.
    fn reserve_bytes(&self) -> u64 {
        self.config.memory_bytes / 24
    }

    /// What the memory is used for.
    pub(crate) fn memory_account(&self) -> MemoryAccount {
        let index = self.index.tree.footprint_bytes() as u64;
        MemoryAccount {
            limit: self.config.memory_bytes,
            index,
            tables: self.index_bytes() - index,
            blocks: self.memory.held_bytes,
            work: self.placement.working_bytes() as u64,
            reserve: self.reserve_bytes(),
        }
    }

    /// Whether so many bytes more fit beside the blocks that the pool holds.
    pub(crate) fn has_room_for(&self, bytes: usize, effects: &Effects) -> bool {
        effects.pool().held_bytes() + bytes <= self.pool_room_bytes()
    }

    /// Gives the cache what the index leaves of the cap, and sees to it that a block of each class
    /// can be had: a pool filled with blocks of one class would starve the other.
    pub(crate) fn balance_memory(&mut self, effects: &Effects) {
        let pool = effects.pool();
        let left = self.pool_room_bytes().max(2 * CHUNK_BYTES);
        let limit = left - CHUNK_BYTES;
        pool.set_limit_bytes(limit);
        self.placement.set_limit_bytes(&self.config, limit);
        for _ in 0..4 {
            if pool.held_bytes() <= left {
                break;
            }
            let Some(chunk) = pool.retire_chunk() else { break };
            self.placement.drop_chunk(chunk);
        }
        // A few cached pages may be lent to replies or lie in a chunk that is being given back:
        // they help nobody.
        let starved = [(Class::Slice, true), (Class::Page, self.placement.lacks_pages())];
        for (class, _) in starved.into_iter().filter(|(_, starved)| *starved) {
            if effects.block(class).is_none() && pool.held_bytes() <= left + 2 * CHUNK_BYTES {
                pool.set_limit_bytes(pool.held_bytes() + CHUNK_BYTES);
                drop(effects.block(class));
                pool.set_limit_bytes(limit);
            }
        }
        self.memory.held_bytes = pool.held_bytes() as u64;
    }

    pub(crate) fn check_memory(&self) -> Result<(), Error> {
        let limit_bytes = self.index_limit_bytes();
        if self.index_bytes() + 256 > limit_bytes {
            return Err(Error::MemoryFull { limit_bytes });
        }
        Ok(())
    }
}
