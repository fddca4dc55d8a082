//! `check` of a shard of engine `slab`: what recovery found, its space accounting, and the bytes of
//! large values that recovery does not read.

use stratakv_slab::Slab;

use super::{CheckReport, read_volume, repaired};
use crate::catalogue::internal_keys;
use crate::open::OpenedShard;

pub(super) fn check_slab(slab: &Slab, number: usize, shard: &OpenedShard, sum: &mut CheckReport) {
    let (recovery, accounting) = (slab.recovery(), slab.check());
    let values = slab.verify_large_values(&mut |offset, len| read_volume(shard, offset, len));
    sum.records += recovery.records - slab.records_from(&internal_keys());
    sum.torn += recovery.torn;
    sum.lost.extend(recovery.lost.iter().cloned().chain(values.lost));
    sum.lost_records += recovery.lost_records + values.lost_records;
    sum.lost_unknown += recovery.lost_unknown;
    sum.pages += accounting.total_pages;
    sum.pages_free += accounting.free_pages + accounting.deferred_pages;
    sum.damage.extend(recovery.corrupt.iter().chain(&accounting.corrupt).map(ToString::to_string));
    sum.damage.extend(values.damage.iter().map(ToString::to_string));
    sum.unreadable.extend(recovery.unreadable.iter().map(ToString::to_string).chain(values.unreadable));
    sum.mistakes.extend(accounting.mistakes.iter().map(|mistake| format!("shard {number}: {mistake}")));
    if recovery.superblock_repaired {
        sum.damage.push(repaired(shard));
    }
}
