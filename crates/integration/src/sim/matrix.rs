//! Engine `matrix` as the simulator sees it: a shard whose region loses what was not fenced
//! whenever its life ends, and fails in some lives where disks do. Two stores in three have PMEM
//! levels in it, one in two compresses its tables.

use std::cell::RefCell;

use stratakv_base::random::Random;
use stratakv_matrix::{Compression, Matrix, MatrixConfig, MatrixOpener};
use stratakv_sim::machine::{Audit, Engine, Opening};
use stratakv_sim::pmem::Memory;

const REGION_BYTES: usize = 512 << 10;
const UNIT_BYTES: u32 = 4096;
/// Lengths of the PMEM levels and of the first level: off; hardly room for a table; one level; one
/// that overflows; two levels.
const LAYERS: [(u64, u64); 6] = [
    (0, 64 << 10),
    (0, 64 << 10),
    (40 << 10, 64 << 10),
    (512 << 10, 64 << 10),
    (160 << 10, 64 << 10),
    (512 << 10, 16 << 10),
];

/// Engine `matrix`.
#[derive(Clone, Copy, Debug)]
pub struct MatrixEngine;

thread_local! {
    /// That of the machine which this thread drives: it has one at a time.
    static MEMORY: RefCell<Region> = RefCell::new(Region { memory: Memory::new(REGION_BYTES, 0), level_bytes: 0 });
}

/// A region, and what the shard was made with.
struct Region {
    memory: Memory,
    level_bytes: u64,
}

/// A number that is another one with all that scenarios differ in.
fn drawn(opening: &Opening) -> u64 {
    let drawn = [
        opening.capacity_bytes.unwrap_or(0),
        opening.checkpoint_bytes.unwrap_or(0).into(),
        opening.record_cache.into(),
        opening.memory_bytes,
        opening.volatile_cache.into(),
        opening.depth.into(),
    ];
    drawn.into_iter().fold(0, |seed, one| Random::new(seed ^ one).next_u64())
}

/// The PMEM levels of a new store.
fn draw_layer(opening: &Opening) -> (u64, u64) {
    LAYERS[Random::new(drawn(opening)).below(LAYERS.len() as u64) as usize]
}

/// Whether its tables are compressed in this life.
fn draw_compression(opening: &Opening) -> Compression {
    [Compression::None, Compression::Lz4][Random::new(drawn(opening) ^ 1).below(2) as usize]
}

impl Engine for MatrixEngine {
    type Opener = MatrixOpener<Memory>;
    type Shard = Matrix<Memory>;

    fn opener(&self, opening: &Opening) -> MatrixOpener<Memory> {
        let (pmem_levels_bytes, level_bytes) = draw_layer(opening);
        let config = MatrixConfig {
            uuid: *b"simulated store!",
            shard: 0,
            shards: 1,
            memory_bytes: opening.memory_bytes,
            depth: opening.depth,
            capacity_bytes: opening.capacity_bytes,
            row_bytes: 24 << 10,
            table_bytes: 16 << 10,
            level_bytes,
            pmem_levels_bytes,
            range_keys_few: 1,
            compression: draw_compression(opening),
            read_only: opening.read_only,
            session: opening.memory_bytes ^ u64::from(opening.depth),
        };
        MEMORY.with_borrow_mut(|Region { memory, level_bytes }| {
            if opening.create {
                let region_bytes = REGION_BYTES + config.pmem_levels_bytes as usize;
                *memory = Memory::new(region_bytes, u64::from(opening.depth) ^ opening.memory_bytes);
                *level_bytes = config.level_bytes;
                return MatrixOpener::create(config, memory.clone(), UNIT_BYTES);
            }
            memory.cut();
            MatrixOpener::recover(MatrixConfig { level_bytes: *level_bytes, ..config }, memory.clone())
        })
    }

    fn capacity_bytes_min(&self) -> u64 {
        4 << 20
    }

    fn shares_blocks(&self) -> bool {
        true
    }

    fn takes_loads(&self) -> bool {
        true
    }

    fn opens_snapshots(&self) -> bool {
        true
    }

    fn fail_region_after(&self, calls: u64) {
        MEMORY.with_borrow(|region| region.memory.fail_after(calls));
    }

    fn has_region_failed(&self) -> bool {
        MEMORY.with_borrow(|region| region.memory.has_failed())
    }

    fn audit(&self, shard: &Matrix<Memory>) -> Audit {
        let (damage, mistakes) = shard.check();
        let repaired = shard.recovery().superblock_repaired;
        Audit { damage, mistakes, repaired, quick: false }
    }
}
