//! One life of a store: how large it is, and how long it lives.

use std::time::Duration;

use stratakv_base::random::Random;
use stratakv_hash::HashOptions;

use crate::world::WRITERS;

/// Bytes of the region for each key that is written at will: with values of some hundred bytes, or
/// of some dozen, there are more than fit.
const BYTES_PER_CELL: u64 = 512;
const BYTES_PER_SMALL_CELL: u64 = 160;
/// So a large region has room for what snapshots keep, too.
const CELLS_MAX: u64 = 12_000;

#[derive(Clone, Debug)]
pub struct Plan {
    /// Of the whole run, and which of its lives it is.
    pub seed: u64,
    pub life: u64,
    pub region_bytes: u64,
    pub block_bytes: u32,
    pub segment_bytes: u64,
    pub cells: u64,
    /// How often values say what they are: one of five, the others, and the longest.
    pub times: (u64, u64),
    pub times_max: u64,
    pub length: Duration,
    /// Writers begin with all their keys, until the store is full.
    pub fills_first: bool,
    /// The store is closed while everything goes on.
    pub closes_under_way: bool,
}

impl Plan {
    pub fn draw(random: &mut Random, (seed, life): (u64, u64), length_max: Duration) -> Plan {
        let region_bytes = 1 << 20 << random.below(6);
        let segment_bytes = 4096 << (2 * random.below(4));
        // Room for a few segments for each thread that writes.
        let segment_bytes = segment_bytes.min(region_bytes / 64);
        // Many small ones make the table grow.
        let is_small = random.below(2) == 0;
        let cell_bytes = if is_small { BYTES_PER_SMALL_CELL } else { BYTES_PER_CELL };
        // Small records that are there to stay keep very long ones from room, and snapshots end in
        // vain.
        let longest = if random.below(3) == 0 { region_bytes / 64 } else { segment_bytes / 8 };
        Plan {
            seed,
            life,
            region_bytes,
            segment_bytes,
            block_bytes: if random.below(2) == 0 { 32 } else { 64 },
            cells: (region_bytes / cell_bytes).min(CELLS_MAX) / WRITERS * WRITERS,
            times: if is_small { (10, 3) } else { (100, 20) },
            times_max: (longest / 24).min(4000),
            length: length_max.mul_f64(0.25 + 0.75 * random.unit()),
            fills_first: random.below(2) == 0,
            closes_under_way: random.below(2) == 0,
        }
    }

    pub fn options(&self) -> HashOptions {
        HashOptions { uuid: [7; 16], block_bytes: self.block_bytes, segment_bytes: self.segment_bytes }
    }
}
