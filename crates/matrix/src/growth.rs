//! [`VolumeSpace`]: which pages are free, and how far the volume may grow. Files take pages from it
//! and give them back; [`Matrix::pump_growth`] sets more aside. It does not know what lies where.
//!
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

use crate::matrix::Matrix;
use crate::memory::IoPurpose;
use crate::output::Output;
use crate::scheduler::WaitFor;
use crate::volume::{Extent, PAGES_MAX, Places};

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

/// See the module.
#[derive(Debug)]
pub(crate) struct VolumeSpace {
    places: Places,
    /// Free as soon as nobody reads it. What somebody reads waits in [`Reads::hold`].
    ///
    /// [`Reads::hold`]: crate::reading::Reads::hold
    deferred: Vec<Extent>,
    /// Files that were given up: their pages are free once their writes have ended.
    dropped: Vec<Output>,
    /// The capacity that it was given, in pages.
    limit: u64,
    /// What is being set aside: up to this page.
    target: Option<u64>,
    /// Nothing below the capacity was set aside since the volume was opened: there may be holes in
    /// it.
    may_have_holes: bool,
    step: u64,
    /// What that is unless the device is nearly full.
    step_pages: u64,
    /// The device has no more, it said then.
    full_since: Option<Mono>,
    /// Somebody waits for so many free pages.
    wanted: u64,
}

impl VolumeSpace {
    /// A volume of `capacity_bytes`, or as long as the device lets it be.
    pub(crate) fn new(places: Places, capacity_bytes: Option<u64>, shards: u32) -> VolumeSpace {
        let step_pages = (STEP_PAGES / u64::from(shards.max(1))).max(STEP_PAGES_MIN);
        let limit = capacity_bytes.map_or(PAGES_MAX, |bytes| bytes / 4096).min(PAGES_MAX);
        let (may_have_holes, full_since, wanted) = (true, None, 0);
        let (deferred, dropped, target, step) = (Vec::new(), Vec::new(), None, step_pages);
        VolumeSpace { places, deferred, dropped, limit, target, may_have_holes, step, step_pages, full_since, wanted }
    }

    /// Which pages are free.
    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// For files, which take their pages and give back what they do not need.
    pub(crate) fn places_mut(&mut self) -> &mut Places {
        &mut self.places
    }

    pub(crate) fn free_pages(&self) -> u64 {
        self.places.free_pages()
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.places.capacity()
    }

    /// These are nobody's any more, but may still be read.
    pub(crate) fn defer(&mut self, extents: impl IntoIterator<Item = Extent>) {
        self.deferred.extend(extents);
    }

    pub(crate) fn deferred(&self) -> &[Extent] {
        &self.deferred
    }

    pub(crate) fn take_deferred(&mut self) -> Vec<Extent> {
        std::mem::take(&mut self.deferred)
    }

    /// Files of which nothing counts.
    fn drop_outputs(&mut self, outputs: impl IntoIterator<Item = Output>) {
        self.dropped.extend(outputs);
    }

    pub(crate) fn dropped(&self) -> &[Output] {
        &self.dropped
    }

    /// A write of a file is done; perhaps it is one that was given up.
    pub(crate) fn output_written(&mut self, file: u64) {
        self.dropped.iter_mut().filter(|output| output.file() == file).for_each(Output::written);
    }

    /// Pages of files that were given up and are not being written any more.
    fn take_dropped(&mut self) -> Vec<Extent> {
        self.dropped.extract_if(.., |output| output.in_flight() == 0).flat_map(Output::discard).collect()
    }

    /// Whether more may be set aside. Not while the device is full.
    pub(crate) fn can_grow(&self) -> bool {
        self.full_since.is_none() && self.capacity() < self.limit
    }

    /// Whether more is being set aside, or will be.
    pub(crate) fn is_growing(&self) -> bool {
        self.target.is_some() || self.can_grow()
    }

    /// Pages that the volume may have, whether it has them yet or not.
    pub(crate) fn limit_pages(&self) -> u64 {
        self.limit.max(self.capacity())
    }

    /// Pages that are free, or would be if the volume grew as far as it may.
    pub(crate) fn room_pages(&self) -> u64 {
        let more = if self.can_grow() { self.limit - self.capacity() } else { 0 };
        self.free_pages() + more
    }

    /// Whether there are no such many free pages yet, but may be soon: whoever needs them is to try
    /// again in a later tick.
    pub(crate) fn waits_for(&mut self, pages: u64) -> bool {
        let waits = self.free_pages() < pages && self.can_grow();
        if waits {
            self.wanted = self.wanted.max(pages);
        }
        waits
    }

    /// Pages side by side that were not to be had: the volume grows by so many.
    pub(crate) fn grow_by(&mut self, pages: u64) {
        self.wanted = self.wanted.max(self.free_pages() + pages);
    }

    /// Whether there is more to set aside, and nothing is being set aside.
    fn may_ask(&self) -> bool {
        self.target.is_none() && self.capacity() < self.limit
    }

    /// What to set aside now, from one page to another, if there is less than is needed soon.
    fn next_step(&mut self, reserve_pages: u64, now: Mono, effects: &mut Effects) -> Option<(u64, u64)> {
        let pages = self.capacity();
        let step = self.step.max(if self.step < self.step_pages { 0 } else { pages / 16 });
        if self.free_pages() >= reserve_pages.max(self.wanted) + step {
            return None;
        }
        if let Some(since) = self.full_since {
            let again = Mono(since.0 + RETRY_NS);
            if now < again {
                fault_point!("trial_full_devices_are_not_asked_again", return None);
                effects.wake_at(again);
                return None;
            }
            self.full_since = None;
        }
        let target = (pages + step.max(self.wanted.saturating_sub(self.free_pages()))).min(self.limit);
        self.target = Some(target);
        Some((if self.may_have_holes { 0 } else { pages }, target))
    }

    /// Space was set aside, or there is none. Whoever waits asks again: what they wanted is
    /// forgotten.
    fn grown(&mut self, target: u64, result: Result<(), IoFault>, now: Mono, shard: u32) {
        self.wanted = 0;
        match result {
            Ok(()) => {
                self.places.grow(target);
                (self.may_have_holes, self.step) = (false, self.step_pages);
            }
            Err(_) if self.step / 4 >= STEP_PAGES_MIN => self.step /= 4,
            Err(fault) => {
                tracing::warn!(%fault, shard, "the volume cannot grow for now");
                self.full_since = Some(now);
            }
        }
    }

    /// What a device that is nearly full is asked for.
    #[cfg(test)]
    pub(crate) fn ask_for_little(&mut self) {
        self.step = STEP_PAGES_MIN;
    }
}

impl<P: Pmem> Matrix<P> {
    /// Sets more aside if there is less than is needed soon.
    pub(crate) fn pump_growth(&mut self, effects: &mut Effects) {
        if !self.volume.may_ask() {
            return;
        }
        let mut reserve_pages = self.reserve_pages();
        fault_point!("trial_growth_leaves_no_reserve", reserve_pages = 0);
        if let Some((from, target)) = self.volume.next_step(reserve_pages, self.life.mono(), effects) {
            let io = self.memory.start(IoPurpose::Growth);
            effects.background(io);
            effects.allocate(io, from * 4096, (target - from) * 4096);
        }
    }

    /// Space was set aside, or there is none.
    pub(crate) fn grown(&mut self, result: Result<(), IoFault>, effects: &mut Effects) {
        let Some(target) = self.volume.target.take() else { return };
        self.volume.grown(target, result, self.life.mono(), self.config.shard);
        if result.is_ok() {
            self.compactor.wake();
        }
        effects.more();
        fault_point!("trial_growth_forgets_who_waits", self.volume.step != self.volume.step_pages, return);
        self.scheduler.wake(WaitFor::VolumeRoom);
    }

    /// What is free and nobody reads any more can be taken again; its pages leave the cache.
    pub(crate) fn empty_deferred(&mut self) {
        for extent in self.volume.take_deferred().into_iter().rev() {
            if self.reads.hold(extent) {
                continue;
            }
            self.give_back(extent);
            self.compactor.end_rest();
            self.scheduler.wake(WaitFor::VolumeRoom);
        }
    }

    /// Nothing of these files counts. Their room is free once their writes have ended.
    pub(crate) fn drop_outputs(&mut self, outputs: impl IntoIterator<Item = Output>) {
        self.volume.drop_outputs(outputs);
        self.defer_reclaim();
    }

    /// Gives back what was made in vain, once it is not being written any more.
    pub(crate) fn defer_reclaim(&mut self) {
        self.volume.take_dropped().into_iter().for_each(|extent| self.give_back(extent));
    }

    /// These pages can be taken again: what the cache has of them is of nobody.
    pub(crate) fn give_back(&mut self, extent: Extent) {
        fault_point!("trial_cached_pages_outlive_their_file", return self.volume.places_mut().give(extent));
        self.memory.forget_pages(extent);
        self.volume.places_mut().give(extent);
    }
}
