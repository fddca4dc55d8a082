//! An engine whose disk is driven by the NVMe driver of this process.

use crate::machine::{Audit, Engine, Opening};

/// The same engine on such a disk.
#[derive(Clone, Copy, Debug)]
pub struct Driven<E>(pub E);

impl<E: Engine> Engine for Driven<E> {
    type Opener = E::Opener;
    type Shard = E::Shard;

    fn opener(&self, opening: &Opening) -> E::Opener {
        self.0.opener(opening)
    }

    fn capacity_bytes_min(&self) -> u64 {
        self.0.capacity_bytes_min()
    }

    fn shares_blocks(&self) -> bool {
        self.0.shares_blocks()
    }

    fn takes_loads(&self) -> bool {
        self.0.takes_loads()
    }

    fn opens_snapshots(&self) -> bool {
        self.0.opens_snapshots()
    }

    fn is_driven_here(&self) -> bool {
        true
    }

    fn fail_region_after(&self, calls: u64) {
        self.0.fail_region_after(calls);
    }

    fn has_region_failed(&self) -> bool {
        self.0.has_region_failed()
    }

    fn audit(&self, shard: &E::Shard) -> Audit {
        self.0.audit(shard)
    }
}
