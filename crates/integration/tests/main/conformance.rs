//! The conformance suite on every engine, over every way a life can end.

use stratakv_conformance::{Ending, Opening, ShardSubject, Subject};
use stratakv_device::Geometry;
use stratakv_slab::{Slab, SlabConfig, SlabOpener};

/// Room for the largest value twice over, old and new.
const CAPACITY_BYTES: u64 = 640 << 20;
const POOL_BYTES: usize = 320 << 20;

pub(crate) fn config(opening: Opening, read_only: bool) -> SlabConfig {
    SlabConfig {
        uuid: *b"conformance-uuid",
        shard: 0,
        shards: 1,
        geometry: Geometry::unknown(),
        memory_bytes: POOL_BYTES as u64,
        depth: 32,
        capacity_bytes: Some(opening.capacity_bytes),
        volume_bytes: opening.len_bytes,
        read_only,
        checkpoints: Default::default(),
        discards: None,
        scanned_per_write_min: 0,
        record_cache: true,
        verify: false,
    }
}

fn open(opening: Opening) -> SlabOpener {
    let config = config(opening, false);
    if opening.create { SlabOpener::create(config) } else { SlabOpener::recover(config) }
}

fn slab(ending: Ending) -> ShardSubject<Slab, fn(Opening) -> SlabOpener> {
    ShardSubject::new(CAPACITY_BYTES, POOL_BYTES, ending, 11, open)
}

macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        mod slab_closed_in_order {
            use super::*;
            $(#[test] fn $name() { stratakv_conformance::$module::$name(&mut slab(Ending::Orderly)); })*
        }
        mod slab_killed {
            use super::*;
            $(#[test] fn $name() { stratakv_conformance::$module::$name(&mut slab(Ending::Kill)); })*
        }
        mod slab_without_power {
            use super::*;
            $(#[test] fn $name() { stratakv_conformance::$module::$name(&mut slab(Ending::PowerCut)); })*
        }
    };
}
stratakv_conformance::cases!(tests);

#[test]
fn slab_reads_nothing_more_for_those_who_have_left() {
    let mut subject = slab(Ending::Orderly);
    stratakv_conformance::concurrent::reads_of_those_who_left_are_given_up(&mut subject);
    assert!(subject.given_up() >= 20, "{} of 50", subject.given_up());
}

#[test]
fn slab_is_ordered_and_durable() {
    let capabilities = slab(Ending::Orderly).capabilities();
    assert!(capabilities.ordered && capabilities.durable && !capabilities.evicting);
}
