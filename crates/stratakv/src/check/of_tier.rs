//! `check` of a shard of engine `tier`: its books, and all that counts of its volume.

use stratakv_base::limits::SLICE_BYTES;
use stratakv_device::sync::execute;
use stratakv_device::{Class, DiskOutcome, DiskRequest};
use stratakv_tier::{Tier, Verified};

use super::CheckReport;
use crate::open::OpenedShard;

pub(super) fn check_tier(tier: &Tier, number: usize, shard: &OpenedShard, sum: &mut CheckReport) {
    let Verified { items, torn, damage, lost, lost_items, lost_unknown } =
        tier.verify(&mut |offset, len| read(shard, offset, len));
    let (pages, pages_free) = tier.volume_pages();
    sum.records += items;
    sum.torn += torn;
    sum.pages += pages;
    sum.pages_free += pages_free;
    sum.lost.extend(lost);
    sum.lost_records += lost_items;
    sum.lost_unknown += lost_unknown;
    sum.damage.extend(damage.iter().map(ToString::to_string));
    sum.mistakes.extend(tier.check().iter().map(|mistake| format!("shard {number}: {mistake}")));
}

/// Bytes of the volume, in pieces as long as a block.
fn read(shard: &OpenedShard, offset: u64, len: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let (at, piece) = (offset + bytes.len() as u64, SLICE_BYTES.min(len - bytes.len()));
        let block = shard.pool.take(Class::Slice).ok_or("there is no memory to read the volume with")?;
        match execute(&shard.volume, DiskRequest::Read { offset: at, block, len: piece as u32 }) {
            DiskOutcome::Read(block, Ok(())) => bytes.extend_from_slice(block.get(..piece).unwrap_or_default()),
            DiskOutcome::Read(_, Err(fault)) => return Err(format!("byte {at} cannot be read: {fault}")),
            _ => return Err(format!("byte {at} cannot be read")),
        }
    }
    Ok(bytes)
}
