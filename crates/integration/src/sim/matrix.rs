//! Engine `matrix` as the simulator sees it: a shard whose region loses what was not fenced whenever its life ends.

use std::cell::RefCell;

use stratakv_matrix::{Matrix, MatrixConfig, MatrixOpener};
use stratakv_sim::machine::{Audit, Engine, Opening};
use stratakv_sim::pmem::Memory;

const REGION_BYTES: usize = 512 << 10;
const UNIT_BYTES: u32 = 4096;

/// Engine `matrix`.
#[derive(Clone, Copy, Debug)]
pub struct MatrixEngine;

thread_local! {
    /// That of the machine which this thread drives: it has one at a time.
    static MEMORY: RefCell<Memory> = RefCell::new(Memory::new(REGION_BYTES, 0));
}

impl Engine for MatrixEngine {
    type Opener = MatrixOpener<Memory>;
    type Shard = Matrix<Memory>;

    fn opener(&self, opening: &Opening) -> MatrixOpener<Memory> {
        let config = MatrixConfig {
            uuid: *b"simulated store!",
            shard: 0,
            shards: 1,
            memory_bytes: opening.memory_bytes,
            depth: opening.depth,
            capacity_bytes: opening.capacity_bytes,
            row_bytes: 24 << 10,
            table_bytes: 16 << 10,
            level_bytes: 64 << 10,
            read_only: opening.read_only,
            session: opening.memory_bytes ^ u64::from(opening.depth),
        };
        MEMORY.with_borrow_mut(|memory| {
            if opening.create {
                *memory = Memory::new(REGION_BYTES, u64::from(opening.depth) ^ opening.memory_bytes);
                return MatrixOpener::create(config, memory.clone(), UNIT_BYTES);
            }
            memory.cut();
            MatrixOpener::recover(config, memory.clone())
        })
    }

    fn capacity_bytes_min(&self) -> u64 {
        4 << 20
    }

    fn shares_blocks(&self) -> bool {
        true
    }

    fn audit(&self, shard: &Matrix<Memory>) -> Audit {
        let (damage, mistakes) = shard.check();
        let repaired = shard.recovery().superblock_repaired;
        Audit { damage, mistakes, repaired, quick: false }
    }
}
