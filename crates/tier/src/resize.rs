//! A cap on memory that changes while the shard serves.
//!
//! A higher one counts at once. A lower one is come down to in steps, each once what is held is
//! under the one before: so no tick has more to evict than a few segments, and a write never finds
//! the memory much too full. What makes room is what always does: segments leave DRAM; where the
//! index has too many entries the oldest segments of the volume go, after the journal has said so;
//! and tables of the index become shorter, one a tick. Last the pool's chunks are given back: what
//! is left in one that must go moves to others.

use stratakv_base::limits::SLICE_BYTES;
use stratakv_base::{Mono, fault_point};
use stratakv_device::block::{CHUNK_BYTES, ChunkId};
use stratakv_device::{Block, Class};
use stratakv_engine::Effects;

use crate::segment::Segment;
use crate::tier::{RETRY_NS, Tier};
use crate::volume::Volume;

/// Segments that are taken apart in a tick, beside those that writes pay for.
const EVICTED_MAX: usize = 8;
/// Chunks that are retired in a tick.
const RETIRED_MAX: usize = 4;
/// Segments that are looked at in a tick for blocks in a chunk that must go, and bytes of blocks
/// that are moved.
const LOOKED_AT_MAX: usize = 256;
const MOVED_BYTES_MAX: usize = 1 << 20;

impl Tier {
    /// Takes the next steps to the cap that the driver names.
    pub(crate) fn follow_memory(&mut self, effects: &mut Effects) {
        if let Some(target) = effects.memory_bytes.filter(|target| self.cap.aim(*target, &self.config)) {
            self.evictions.resize(target);
            if target > self.config.memory_bytes {
                self.set_cap(target);
            }
        }
        if !self.ending.is_open() || self.config.read_only {
            return;
        }
        let is_table_shorter = self.index.shrink_step();
        // Above its limit though no table can be shorter and entries are few enough: by the first
        // places of some tables.
        let is_index_under = !self.index.is_over() || !(is_table_shorter || self.index.is_crowded());
        let is_under = self.evict_above_cap(effects) && is_index_under;
        if self.config.memory_bytes <= self.cap.target_bytes() {
            return if !is_under {
                self.go_on_soon(is_table_shorter, effects)
            };
        }
        // A read that was begun under a higher cap may need all of it.
        let may_step = is_under && self.fetches.longest_pages() <= self.cap.fetch_pages_max();
        if may_step {
            fault_point!("tier_lower_cap_not_followed", return self.go_on_soon(true, effects));
            self.set_cap(self.cap.step_from(self.config.memory_bytes, self.segment_len()));
        }
        self.go_on_soon(may_step || is_table_shorter, effects);
    }

    fn set_cap(&mut self, bytes: u64) {
        self.config.memory_bytes = bytes;
        self.index.set_limit_bytes(self.config.index_bytes_max());
    }

    fn go_on_soon(&self, is_moving: bool, effects: &mut Effects) {
        if is_moving {
            effects.more();
        } else if self.io.is_empty() {
            effects.wake_at(Mono(self.now.mono.0 + RETRY_NS));
        }
    }

    /// Whether the index has more entries than the cap lets it have: tables cannot become so short.
    fn has_too_many_entries(&self) -> bool {
        self.index.is_over() && self.index.is_crowded()
    }

    /// Segments leave DRAM. Whether what is left of them is under the cap.
    fn evict_above_cap(&mut self, effects: &Effects) -> bool {
        for _ in 0..EVICTED_MAX {
            let volume_has_some = self.volume.as_ref().is_some_and(Volume::has_some_to_retire);
            // Else the volume's oldest segment goes.
            let crowds = self.has_too_many_entries() && !volume_has_some;
            if !crowds && self.segments.bytes() <= self.budget() {
                return true;
            }
            if !self.evict(effects) {
                break;
            }
        }
        self.segments.bytes() <= self.budget()
    }

    /// Gives the pool what the index leaves, and chunks that it has beyond that back to the system.
    pub(crate) fn balance_memory(&mut self, effects: &mut Effects) {
        let limit = match self.is_saving() {
            // What is saved leaves DRAM: on tmpfs it takes the same memory.
            true => self.segments.bytes() as u64 + self.config.blocks_bytes() + CHUNK_BYTES as u64,
            false => self.config.memory_bytes.saturating_sub(self.bytes_apart() as u64),
        };
        let pool = effects.pool();
        pool.set_limit_bytes(limit as usize);
        let is_retiring = (0..RETIRED_MAX).map_while(|_| pool.retire_chunk()).count() > 0;
        if !pool.is_retiring() {
            self.cap.draining().end();
        } else if !is_retiring && self.config.memory_bytes <= self.cap.target_bytes() {
            self.drain_chunks(effects);
        }
        self.cap.set_held(effects.pool().held_bytes() + self.bytes_apart());
    }

    /// Moves blocks out of chunks that must go. Blocks that a reply or a request has come back by
    /// themselves.
    fn drain_chunks(&mut self, effects: &mut Effects) {
        self.cap.draining().go_on(effects.pool());
        let slots = self.segments.slots();
        if !self.ending.is_open() || self.cap.draining().slot(slots).is_none() {
            return;
        }
        let mut moved_bytes = 0;
        for _ in 0..LOOKED_AT_MAX {
            let draining = self.cap.draining();
            let Some(slot) = draining.slot(slots).filter(|_| moved_bytes < MOVED_BYTES_MAX) else { break };
            let take = |class| effects.block(class).or_else(|| Self::block_of_another_chunk(class, effects));
            match self.segments.change(slot, |segment| segment.leave_chunks(draining.chunks(), take)) {
                Some(None) => {
                    // Nobody has a block to spare: one segment less.
                    self.evict(effects);
                    break;
                }
                Some(Some(bytes)) => moved_bytes += bytes,
                None => {}
            }
            draining.advance();
        }
        effects.more();
    }
}

impl Segment {
    /// Moves its blocks out of these chunks: how many bytes of them. `None`: there were no others
    /// for all of them.
    fn leave_chunks(&mut self, chunks: &[ChunkId], mut take: impl FnMut(Class) -> Option<Block>) -> Option<usize> {
        let mut moved_bytes = 0;
        if self.order.is_some() {
            // It leaves anyway.
            return Some(0);
        }
        self.change_blocks(|block| {
            if chunks.binary_search(&block.chunk()).is_err() {
                return Some(None);
            }
            let mut other = take(block.class())?;
            other.copy_from_slice(block);
            moved_bytes += block.len().min(SLICE_BYTES);
            Some(Some(other))
        })?;
        Some(moved_bytes)
    }
}
