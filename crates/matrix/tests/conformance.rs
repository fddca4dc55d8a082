//! The engines' common suite, with an orderly end, a killed process and a loss of power between
//! lives.

use stratakv_conformance::{self as conformance, Ending, Opening, ShardSubject};
use stratakv_matrix::{Compression, MatrixConfig, MatrixOpener};
use stratakv_sim::pmem::Memory;

const MEMORY_BYTES: u64 = 160 << 20;
const REGION_BYTES: usize = 48 << 20;
const UNIT_BYTES: u32 = 256 << 10;

fn opener(opening: Opening, memory: &Memory, ending: Ending) -> MatrixOpener<Memory> {
    let config = MatrixConfig {
        uuid: [9; 16],
        shard: 0,
        shards: 1,
        memory_bytes: MEMORY_BYTES,
        depth: 32,
        capacity_bytes: Some(opening.capacity_bytes),
        row_bytes: 1 << 20,
        table_bytes: 256 << 10,
        level_bytes: 4 << 20,
        range_keys_few: 1,
        // With and without.
        pmem_levels_bytes: if ending == Ending::PowerCut { 8 << 20 } else { 0 },
        // With and without.
        compression: if ending == Ending::Kill { Compression::None } else { Compression::Lz4 },
        read_only: false,
        session: 1,
    };
    if opening.create {
        return MatrixOpener::create(config, memory.clone(), UNIT_BYTES);
    }
    if ending == Ending::PowerCut {
        memory.cut();
    }
    MatrixOpener::recover(config, memory.clone())
}

fn subject(ending: Ending) -> impl conformance::Subject {
    let memory = Memory::new(REGION_BYTES, 7);
    ShardSubject::new(512 << 20, MEMORY_BYTES as usize, ending, 1, move |opening| opener(opening, &memory, ending))
}

macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        $(#[test] fn $name() {
            for ending in [Ending::Orderly, Ending::Kill, Ending::PowerCut] {
                conformance::$module::$name(&mut subject(ending));
            }
        })*
    };
}
stratakv_conformance::cases!(tests);
