//! Engine `matrix` as the simulator sees it: a shard whose region loses what was not fenced whenever its life ends.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use stratakv_base::random::Random;
use stratakv_device::Geometry;
use stratakv_matrix::{Matrix, MatrixConfig, MatrixOpener};
use stratakv_pmem::{Pmem, PmemError};
use stratakv_sim::machine::{Audit, Engine, Opening};
use stratakv_sim::pmem::{Domain, Region};

const REGION_BYTES: usize = 512 << 10;
const UNIT_BYTES: u32 = 4096;

/// Engine `matrix`.
#[derive(Clone, Copy, Debug)]
pub struct MatrixEngine;

/// A region that outlives the shards that write to it. Clones share it.
#[derive(Clone)]
pub struct Memory(Arc<Mutex<(Region, Random)>>);

thread_local! {
    /// That of the machine which this thread drives: it has one at a time.
    static MEMORY: RefCell<Memory> = RefCell::new(Memory::new(0));
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

impl Memory {
    fn new(seed: u64) -> Memory {
        Memory(Arc::new(Mutex::new((Region::new(REGION_BYTES), Random::new(seed)))))
    }

    /// The power fails.
    fn cut(&self) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (region, random) = &mut *guard;
        let image = region.cut(random);
        *region = Region::open(image, Domain::Adr);
    }

    fn with<R>(&self, look: impl FnOnce(&Region) -> R) -> R {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner).0)
    }
}

impl Pmem for Memory {
    fn len_bytes(&self) -> u64 {
        self.with(Pmem::len_bytes)
    }
    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), PmemError> {
        self.with(|region| region.load(offset, into))
    }
    fn load_u64(&self, offset: u64) -> Result<u64, PmemError> {
        self.with(|region| region.load_u64(offset))
    }
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.with(|region| region.store(offset, bytes))
    }
    fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError> {
        self.with(|region| region.store_u64(offset, value))
    }
    fn store_nt(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.with(|region| region.store_nt(offset, bytes))
    }
    fn flush(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        self.with(|region| region.flush(offset, len_bytes))
    }
    fn fence(&self) -> Result<(), PmemError> {
        self.with(Pmem::fence)
    }
}

impl Engine for MatrixEngine {
    type Opener = MatrixOpener<Memory>;
    type Shard = Matrix<Memory>;

    fn opener(&self, opening: &Opening) -> MatrixOpener<Memory> {
        let config = MatrixConfig {
            uuid: *b"simulated store!",
            shard: 0,
            shards: 1,
            geometry: Geometry { volatile_cache: opening.volatile_cache, ..Geometry::unknown() },
            memory_bytes: opening.memory_bytes,
            depth: opening.depth,
            capacity_bytes: opening.capacity_bytes,
            volume_bytes: opening.volume_bytes,
            row_bytes: 24 << 10,
            table_bytes: 16 << 10,
            level_bytes: 64 << 10,
            read_only: opening.read_only,
        };
        MEMORY.with_borrow_mut(|memory| {
            if opening.create {
                *memory = Memory::new(u64::from(opening.depth) ^ opening.memory_bytes);
                return MatrixOpener::create(config, memory.clone(), UNIT_BYTES);
            }
            memory.cut();
            MatrixOpener::recover(config, memory.clone())
        })
    }

    fn capacity_bytes_min(&self) -> u64 {
        4 << 20
    }

    fn audit(&self, shard: &Matrix<Memory>) -> Audit {
        let (damage, mistakes) = shard.check();
        let repaired = shard.recovery().superblock_repaired;
        Audit { damage, mistakes, repaired, quick: false }
    }
}
