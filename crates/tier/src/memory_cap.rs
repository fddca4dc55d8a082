//! [`MemoryCap`]: the cap on memory that the driver names, and the way down to a lower one.
//!
//! It owns the target, what follows from it, and the walk over segments whose blocks must move.
//! `resize.rs` drives it in each tick; reads and writes ask it what is too long.

use stratakv_base::limits::PAGE_BYTES;
use stratakv_device::Pool;
use stratakv_device::block::ChunkId;

use crate::config::TierConfig;

/// Segments that the cap falls by in a tick.
const STEP_SEGMENTS: u64 = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct MemoryCap {
    /// As it was opened, or as the driver said since.
    target_bytes: u64,
    /// The longest item that has a place under that cap.
    item_bytes_max: u64,
    /// What was held of it at the end of the last tick's balance: chunks of the pool, index,
    /// ghost queue.
    held_bytes: u64,
    draining: Draining,
}

/// A walk over the segments for blocks in chunks that must go.
#[derive(Debug, Default)]
pub(crate) struct Draining {
    /// Those that must go, in order.
    chunks: Vec<ChunkId>,
    /// Chunks that the pool had retired when the walk began.
    retirements: u64,
    /// The next segment's slot.
    hand: usize,
}

impl MemoryCap {
    pub(crate) fn new(config: &TierConfig) -> MemoryCap {
        let (target_bytes, item_bytes_max) = (config.memory_bytes, config.item_bytes_max());
        MemoryCap { target_bytes, item_bytes_max, held_bytes: 0, draining: Draining::default() }
    }

    pub(crate) fn target_bytes(&self) -> u64 {
        self.target_bytes
    }

    pub(crate) fn item_bytes_max(&self) -> u64 {
        self.item_bytes_max
    }

    /// Pages of the volume that can be read as one item: what is longer was written under a higher
    /// cap, and would wait for blocks for ever.
    pub(crate) fn fetch_pages_max(&self) -> u64 {
        (self.item_bytes_max + self.item_bytes_max / 8) / PAGE_BYTES as u64 + 4
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    pub(crate) fn set_held(&mut self, bytes: usize) {
        self.held_bytes = bytes as u64;
    }

    /// The driver names this cap. Whether it is another one.
    pub(crate) fn aim(&mut self, target_bytes: u64, config: &TierConfig) -> bool {
        let is_new = target_bytes != self.target_bytes;
        if is_new {
            let config = TierConfig { memory_bytes: target_bytes, ..config.clone() };
            (self.target_bytes, self.item_bytes_max) = (target_bytes, config.item_bytes_max());
        }
        is_new
    }

    /// The next step from this cap down to the target.
    pub(crate) fn step_from(&self, bytes: u64, segment_len: usize) -> u64 {
        self.target_bytes.max(bytes.saturating_sub(STEP_SEGMENTS * segment_len as u64))
    }

    pub(crate) fn draining(&mut self) -> &mut Draining {
        &mut self.draining
    }
}

impl Draining {
    /// No chunk must go.
    pub(crate) fn end(&mut self) {
        *self = Draining::default();
    }

    /// Goes on, or anew where the pool has retired more chunks since.
    pub(crate) fn go_on(&mut self, pool: &Pool) {
        let retirements = pool.retirements();
        if retirements != self.retirements {
            (self.retirements, self.hand) = (retirements, 0);
        }
        self.chunks = pool.retiring_chunks();
    }

    /// The slot to be looked at, of so many.
    pub(crate) fn slot(&self, slots: usize) -> Option<u32> {
        (self.hand < slots).then_some(self.hand as u32)
    }

    pub(crate) fn advance(&mut self) {
        self.hand += 1;
    }

    pub(crate) fn chunks(&self) -> &[ChunkId] {
        &self.chunks
    }
}

#[cfg(test)]
mod tests {
    use stratakv_device::Class;

    use super::*;

    fn config(memory_bytes: u64) -> TierConfig {
        TierConfig {
            uuid: [0; 16],
            shard: 0,
            shards: 1,
            memory_bytes,
            depth: 1,
            capacity_bytes: None,
            saves_at_shutdown: false,
            segment_bytes: 1 << 20,
            collected_percent: 66,
            boot: None,
            begins_empty: false,
            read_only: false,
        }
    }

    #[test]
    fn a_lower_cap_is_come_down_to_in_steps_and_counts_at_once_for_what_is_too_long() {
        let mut cap = MemoryCap::new(&config(16 << 20));
        let (longest, pages) = (cap.item_bytes_max(), cap.fetch_pages_max());
        assert!(!cap.aim(16 << 20, &config(16 << 20)) && cap.aim(8 << 20, &config(16 << 20)));
        assert!(cap.item_bytes_max() < longest && cap.fetch_pages_max() < pages);
        assert_eq!(cap.step_from(16 << 20, 1 << 20), 12 << 20);
        assert_eq!(cap.step_from(9 << 20, 1 << 20), 8 << 20);
    }

    #[test]
    fn a_walk_begins_anew_when_more_chunks_must_go() {
        let pool = Pool::new(4 << 20);
        let blocks: Vec<_> = (0..40).map_while(|_| pool.take(Class::Slice)).collect();
        let mut draining = Draining::default();
        pool.set_limit_bytes(2 << 20);
        pool.retire_chunk();
        draining.go_on(&pool);
        draining.advance();
        assert_eq!((draining.chunks().len(), draining.slot(2), draining.slot(1)), (1, Some(1), None));
        draining.go_on(&pool);
        assert_eq!(draining.slot(2), Some(1));
        pool.set_limit_bytes(0);
        pool.set_limit_bytes(2 << 20);
        drop(blocks);
        draining.end();
        assert_eq!((draining.chunks().len(), draining.slot(2)), (0, Some(0)));
    }
}
