//! The engines' common suite, with an orderly end, a killed process and a loss of power between
//! lives.

use stratakv_conformance::{self as conformance, Ending, Opening, ShardSubject};
use stratakv_device::Geometry;
use stratakv_slab::{PackedOpener, SlabConfig, SlabOpener};

const MEMORY: u64 = 160 << 20;

fn config(opening: &Opening) -> SlabConfig {
    SlabConfig {
        uuid: [9; 16],
        shard: 0,
        shards: 1,
        geometry: Geometry::unknown(),
        memory_bytes: MEMORY,
        depth: 32,
        capacity_bytes: Some(opening.capacity_bytes),
        volume_bytes: opening.len_bytes,
        read_only: false,
        checkpoints: stratakv_slab::CheckpointPace::default(),
        discards: None,
        scanned_per_write_min: 0,
        record_cache: true,
        verify: false,
    }
}

macro_rules! subject {
    ($ending:expr, $opener:ty) => {
        ShardSubject::new(512 << 20, MEMORY as usize, $ending, 1, |opening: Opening| {
            let config = config(&opening);
            if opening.create { <$opener>::create(config) } else { <$opener>::recover(config) }
        })
    };
}

macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        mod in_place {
            use super::*;
            $(#[test] fn $name() {
                for ending in [Ending::Orderly, Ending::Kill, Ending::PowerCut] {
                    conformance::$module::$name(&mut subject!(ending, SlabOpener));
                }
            })*
        }
        mod packed {
            use super::*;
            $(
                #[test]
                fn $name() {
                    for ending in [Ending::Orderly, Ending::Kill, Ending::PowerCut] {
                        conformance::$module::$name(&mut subject!(ending, PackedOpener));
                    }
                }
            )*
        }
    };
}
stratakv_conformance::cases!(tests);
