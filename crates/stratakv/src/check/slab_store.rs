//! `check` of a shard with its index in memory, engine `slab` in both placements: what recovery
//! found, its space accounting, and the bytes of large values that recovery does not read.

use stratakv_slab::{CheckReport as Accounting, Packed, RecoveryReport, Slab};

use super::{CheckReport, read_volume, repaired};
use crate::catalogue::internal_keys;
use crate::open::OpenedShard;

pub(super) fn check_slab(slab: &Slab, number: usize, shard: &OpenedShard, sum: &mut CheckReport) {
    add(slab.recovery(), &slab.check(), number, shard, sum);
    sum.records -= slab.records_from(&internal_keys());
}

pub(super) fn check_packed(packed: &Packed, number: usize, shard: &OpenedShard, sum: &mut CheckReport) {
    add(packed.recovery(), &packed.check(), number, shard, sum);
    sum.records -= packed.records_from(&internal_keys());
    let values = packed.verify_large_values(&mut |offset, len| read_volume(shard, offset, len));
    sum.lost.extend(values.lost);
    sum.lost_records += values.lost_records;
    sum.damage.extend(values.damage.iter().map(ToString::to_string));
    sum.unreadable.extend(values.unreadable);
}

fn add(recovery: &RecoveryReport, accounting: &Accounting, number: usize, shard: &OpenedShard, sum: &mut CheckReport) {
    sum.records += recovery.records;
    sum.torn += recovery.torn;
    sum.lost.extend(recovery.lost.iter().cloned());
    sum.lost_records += recovery.lost_records;
    sum.lost_unknown += recovery.lost_unknown;
    sum.pages += accounting.total_pages;
    sum.pages_free += accounting.free_pages + accounting.deferred_pages;
    sum.damage.extend(recovery.corrupt.iter().chain(&accounting.corrupt).map(ToString::to_string));
    sum.unreadable.extend(recovery.unreadable.iter().map(ToString::to_string));
    sum.mistakes.extend(accounting.mistakes.iter().map(|mistake| format!("shard {number}: {mistake}")));
    if recovery.superblock_repaired {
        sum.damage.push(repaired(shard));
    }
}
