//! The volume grows ahead of need: space is set aside (fallocate) before a file of ours goes there,
//! so no write of a compaction finds the device full, and none lengthens the volume. A write that
//! does takes the file's lock alone: on ext4 it is handed to a kernel thread, which spins for that
//! lock; 64 KiB writes, eight in flight, were 0.6 GB/s instead of 1.2, with nine times the context
//! switches.
//!
//! What was set aside is the volume's capacity for now: what must stay free for deletes
//! ([`Matrix::reserve_pages`]) is free there, whatever others put on the device.

use stratakv_base::{Mono, fault_point};
use stratakv_device::IoFault;
use stratakv_engine::Effects;
use stratakv_pmem::Pmem;

use crate::matrix::{IoPurpose, Matrix};
use crate::scheduler::WaitFor;
use crate::volume::PAGES_MAX;

/// Set aside at a time, by all shards: 64 MiB, or a sixteenth of what there is. Shards share the
/// device: what one has set aside, the others cannot have when it gets full.
const STEP_PAGES: u64 = 16 << 10;
/// As much stays free ahead of need, on a device that has it: the volumes of empty shards take two
/// steps together.
pub const SET_ASIDE_BYTES: u64 = 2 * STEP_PAGES * 4096;
/// A device that is full is asked for less, down to 64 KiB.
const STEP_PAGES_MIN: u64 = 16;
/// And asked again after so long.
const RETRY_NS: u64 = 1_000_000_000;

/// How far the volume may grow, and whether it does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    /// The capacity that it was given, in pages.
    limit: u64,
    /// What is being set aside: up to this page.
    target: Option<u64>,
    /// Nothing below the capacity was set aside since the volume was opened: there may be holes in
    /// it.
    may_have_holes: bool,
    pub(crate) step: u64,
    /// What that is unless the device is nearly full.
    step_pages: u64,
    /// The device has no more, it said then.
    full_since: Option<Mono>,
    /// Somebody waits for so many free pages.
    wanted: u64,
}

impl Growth {
    /// A volume of `capacity_bytes`, or as long as the device lets it be.
    pub(crate) fn new(capacity_bytes: Option<u64>, shards: u32) -> Growth {
        let step_pages = (STEP_PAGES / u64::from(shards.max(1))).max(STEP_PAGES_MIN);
        let limit = capacity_bytes.map_or(PAGES_MAX, |bytes| bytes / 4096).min(PAGES_MAX);
        Growth { limit, target: None, may_have_holes: true, step: step_pages, step_pages, full_since: None, wanted: 0 }
    }
}

impl<P: Pmem> Matrix<P> {
    /// Whether more may be set aside. Not while the device is full.
    pub(crate) fn can_grow(&self) -> bool {
        self.growth.full_since.is_none() && self.extents.capacity() < self.growth.limit
    }

    /// Whether more is being set aside, or will be.
    pub(crate) fn is_growing(&self) -> bool {
        self.growth.target.is_some() || self.can_grow()
    }

    /// Pages that the volume may have, whether it has them yet or not.
    pub(crate) fn limit_pages(&self) -> u64 {
        self.growth.limit.max(self.extents.capacity())
    }

    /// Pages that are free, or would be if the volume grew as far as it may.
    pub(crate) fn room_pages(&self) -> u64 {
        let more = if self.can_grow() { self.growth.limit - self.extents.capacity() } else { 0 };
        self.extents.free_pages() + more
    }

    /// Whether there are no such many free pages yet, but may be soon: whoever needs them is to try
    /// again in a later tick.
    pub(crate) fn waits_for_growth(&mut self, pages: u64) -> bool {
        let waits = self.extents.free_pages() < pages && self.can_grow();
        if waits {
            self.growth.wanted = self.growth.wanted.max(pages);
        }
        waits
    }

    /// Pages side by side that were not to be had: the volume grows by so many.
    pub(crate) fn grow_by(&mut self, pages: u64) {
        self.growth.wanted = self.growth.wanted.max(self.extents.free_pages() + pages);
    }

    /// Sets more aside if there is less than is needed soon.
    pub(crate) fn pump_growth(&mut self, effects: &mut Effects) {
        if self.growth.target.is_some() || self.extents.capacity() >= self.growth.limit {
            return;
        }
        let growth = &self.growth;
        let step = growth.step.max(if growth.step < growth.step_pages { 0 } else { self.extents.capacity() / 16 });
        let mut reserve_pages = self.reserve_pages();
        fault_point!("trial_growth_leaves_no_reserve", reserve_pages = 0);
        let needed = reserve_pages.max(self.growth.wanted) + step;
        if self.extents.free_pages() >= needed {
            return;
        }
        if let Some(since) = self.growth.full_since {
            let again = Mono(since.0 + RETRY_NS);
            if self.now.mono < again {
                fault_point!("trial_full_devices_are_not_asked_again", return);
                effects.wake_at(again);
                return;
            }
            self.growth.full_since = None;
        }
        let pages = self.extents.capacity();
        let target =
            (pages + step.max(self.growth.wanted.saturating_sub(self.extents.free_pages()))).min(self.growth.limit);
        let from = if self.growth.may_have_holes { 0 } else { pages };
        self.growth.target = Some(target);
        let io = self.io.start(IoPurpose::Growth);
        effects.background(io);
        effects.allocate(io, from * 4096, (target - from) * 4096);
    }

    /// Space was set aside, or there is none.
    pub(crate) fn grown(&mut self, result: Result<(), IoFault>, effects: &mut Effects) {
        let Some(target) = self.growth.target.take() else { return };
        match result {
            Ok(()) => {
                self.extents.grow(target);
                self.growth = Growth { may_have_holes: false, step: self.growth.step_pages, wanted: 0, ..self.growth };
                self.wake_compaction();
            }
            Err(_) if self.growth.step / 4 >= STEP_PAGES_MIN => {
                self.growth = Growth { step: self.growth.step / 4, wanted: 0, ..self.growth };
            }
            Err(fault) => {
                tracing::warn!(%fault, shard = self.config.shard, "the volume cannot grow for now");
                self.growth = Growth { full_since: Some(self.now.mono), wanted: 0, ..self.growth };
            }
        }
        effects.more();
        fault_point!("trial_growth_forgets_who_waits", self.growth.step != self.growth.step_pages, return);
        // Whoever waits asks again: what they wanted is forgotten.
        self.scheduler.wake(WaitFor::VolumeRoom);
    }
}
