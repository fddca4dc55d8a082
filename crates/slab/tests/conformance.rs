//! The engines' common suite, with an orderly end, a killed process and a loss of power between
//! lives.

use stratakv_conformance::{self as conformance, Ending, Opening, ShardSubject};
use stratakv_device::Geometry;
use stratakv_slab::{Placement, SlabConfig, SlabOpener};

const MEMORY: u64 = 160 << 20;

fn opener(opening: Opening, placement: Placement) -> SlabOpener {
    let config = SlabConfig {
        uuid: [9; 16],
        shard: 0,
        shards: 1,
        geometry: Geometry::unknown(),
        memory_bytes: MEMORY,
        placement,
        depth: 32,
        capacity_bytes: Some(opening.capacity_bytes),
        volume_bytes: opening.len_bytes,
        read_only: false,
        checkpoints: stratakv_slab::CheckpointPace::default(),
        scanned_per_write_min: 0,
        record_cache: true,
        verify: false,
    };
    if opening.create { SlabOpener::create(config) } else { SlabOpener::recover(config) }
}

fn subject(ending: Ending, placement: Placement) -> impl conformance::Subject {
    ShardSubject::new(512 << 20, MEMORY as usize, ending, 1, move |opening| opener(opening, placement))
}

macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        mod in_place {
            use super::*;
            $(#[test] fn $name() {
                for ending in [Ending::Orderly, Ending::Kill, Ending::PowerCut] {
                    conformance::$module::$name(&mut subject(ending, Placement::InPlace));
                }
            })*
        }
        mod packed {
            use super::*;
            $(
                #[test]
                fn $name() {
                    for ending in [Ending::Orderly, Ending::Kill, Ending::PowerCut] {
                        conformance::$module::$name(&mut subject(ending, Placement::Packed));
                    }
                }
            )*
        }
    };
}
stratakv_conformance::cases!(tests);
