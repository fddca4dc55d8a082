//! `check` of a shard of engine `tier`: its accounts, and all that counts of its volume.

use stratakv_tier::{Tier, Verified};

use super::{CheckReport, read_volume};
use crate::open::OpenedShard;

pub(super) fn check_tier(tier: &Tier, number: usize, shard: &OpenedShard, sum: &mut CheckReport) {
    let Verified { items, torn, damage, unreadable, lost, lost_items, lost_unknown } =
        tier.verify(&mut |offset, len| read_volume(shard, offset, len));
    let (pages, pages_free) = tier.volume_pages();
    sum.records += items;
    sum.torn += torn;
    sum.pages += pages;
    sum.pages_free += pages_free;
    sum.lost.extend(lost);
    sum.lost_records += lost_items;
    sum.lost_unknown += lost_unknown;
    sum.damage.extend(damage.iter().map(ToString::to_string));
    sum.unreadable.extend(unreadable);
    sum.mistakes.extend(tier.check().iter().map(|mistake| format!("shard {number}: {mistake}")));
}
