//! Room: growth of the volume ahead of need, refusal when it cannot grow, and the sweep for expired
//! records.
//!
//! Growth is zero-written in 1 MiB steps and flushed, then recorded in both superblocks, and only
//! then used. Pages that were discarded (`discard.rs`) come first, and go the same way.

use std::collections::VecDeque;
use std::sync::Arc;

use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_base::{Level, Mono, fault_point};
use stratakv_device::{Block, BlockPart, Class, IoFault};
use stratakv_engine::{Effects, Error, Expect, ShardEvent};

use crate::discard::Discards;
use crate::index::SWEEP_EVERY;
use crate::keys::Wait;
use crate::placement::Placement;
use crate::requests::IoPurpose;
use crate::shard::{IndexedShard, is_expired, wake_soon};
use crate::space::{Extent, SEGMENT_PAGES, offset};
use crate::superblock::Superblock;
use crate::write::{Kind, Origin, Stop, Work};

const MIB_PAGES: u32 = SEGMENT_PAGES;
/// Steps of growth: 4, then 16, then 64 MiB.
const STEPS: [u32; 3] = [4 * MIB_PAGES, 16 * MIB_PAGES, 64 * MIB_PAGES];
/// Zero-writes in flight.
const WRITES: u32 = 2;
/// After a failure, growth is tried again once a second at most.
const RETRY: u64 = 1_000_000_000;
/// Pages of a volume when it is created: the first step, or a quarter of a small capacity, so that
/// what is left unused takes no disk. A log (`segment_pages` is not 0) gets a few segments to turn
/// round in.
pub(crate) fn initial_pages(capacity_bytes: Option<u64>, segment_pages: u32) -> u32 {
    let capacity = capacity_bytes.map_or(u64::MAX, |bytes| bytes / PAGE_BYTES as u64);
    (capacity / 4).clamp(16, u64::from(STEPS[0])).max(16 * u64::from(segment_pages)).min(capacity) as u32
}

/// How far growth is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrowthState {
    Idle,
    Zeroing {
        in_flight: u32,
        fault: Option<IoFault>,
    },
    /// Waits for another flush.
    Zeroed,
    Flushing,
    Superblock(u64),
}

/// The volume: what its superblocks say, and its growth.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) superblock: Superblock,
    step: GrowthState,
    to: u32,
    /// What is still to be zero-written.
    to_zero: VecDeque<Extent>,
    /// Discarded pages that are being zero-written.
    refilling: Vec<Extent>,
    /// A write waits for this many pages.
    wanted: u32,
    /// Growth failed; not tried again before this.
    failed_until: Option<Mono>,
    /// A write was refused for want of space, and none has found some since.
    pub(crate) is_full: bool,
    zeroes: Option<Arc<Block>>,
    /// The other direction.
    pub(crate) discards: Discards,
}

impl Volume {
    pub(crate) fn new(superblock: Superblock) -> Volume {
        Volume {
            superblock,
            step: GrowthState::Idle,
            to: 0,
            to_zero: VecDeque::new(),
            refilling: Vec::new(),
            wanted: 0,
            failed_until: None,
            is_full: false,
            zeroes: None,
            discards: Discards::new(),
        }
    }
}

impl<P: Placement> IndexedShard<P> {
    /// Whether growth is under way.
    pub(crate) fn is_growing(&self) -> bool {
        self.volume.step != GrowthState::Idle
    }

    /// Pages that new items leave free, so that deletes and rewrites always find one.
    pub(crate) fn reserve_pages(&self) -> u32 {
        (self.space.total() / 16).min(64)
    }

    /// Whether a write or a batch waits for space.
    pub(crate) fn waits_for_space(&self) -> bool {
        !self.keys.space_waiters.is_empty() || self.batches.wait_for_space()
    }

    /// There is no room: wait for growth or for the deferred free list, or refuse.
    pub(crate) fn no_room(&mut self, pages: u32, effects: &Effects) -> Stop<P> {
        let growing = self.volume.step != GrowthState::Idle;
        let failed = self.volume.failed_until.is_some_and(|until| effects.now().mono < until);
        let may_grow = self.capacity_pages() > self.space.total() || self.space.discarded_pages() > 0;
        if growing || (!failed && may_grow) {
            self.volume.wanted = self.volume.wanted.max(pages);
            return Wait::Space.into();
        }
        if self.space.deferred_pages() > 0 || P::makes_space(self) {
            return Wait::Space.into();
        }
        self.io.counters.full_refusals += 1;
        if !std::mem::replace(&mut self.volume.is_full, true) {
            self.health.events.push(ShardEvent::Full);
        }
        let why = if failed { "no space left on the device" } else { "its capacity is used up" };
        Error::Full(why).into()
    }

    /// A new record found space.
    pub(crate) fn found_room(&mut self) {
        if std::mem::take(&mut self.volume.is_full) {
            self.health.events.push(ShardEvent::Room);
        }
    }

    fn capacity_pages(&self) -> u32 {
        let capacity = self.config.capacity_bytes.map_or(u64::MAX, |bytes| bytes / PAGE_BYTES as u64);
        capacity.min(u64::from(u32::MAX - 1)) as u32
    }

    /// Space came: writes and batches that waited for it try again. Batches had their turn in this
    /// tick already, and perhaps nothing else brings the next one.
    pub(crate) fn space_came(&mut self, effects: &mut Effects) {
        self.wake_space_waiters(effects);
        fault_point!("library_batch_waits_for_space_unseen", return);
        if self.batches.wait_for_space() {
            effects.more();
        }
    }

    /// The end of a tick: the log's space that came after its turn in the tick is released in the
    /// next one, and whoever waits for it may be the only one who would bring that.
    pub(crate) fn await_late_space(&self, effects: &mut Effects) {
        fault_point!("trial_late_space_waits_for_a_tick", return);
        if self.waits_for_space() && P::has_late_space(self) {
            effects.more();
        }
    }

    /// Writes that waited for space try again.
    pub(crate) fn wake_space_waiters(&mut self, effects: &mut Effects) {
        for key in std::mem::take(&mut self.keys.space_waiters) {
            if self.keys.waits_for(&key, Wait::Space) {
                self.wake(&key, effects);
            }
        }
    }

    /// Starts growth when space runs low.
    pub(crate) fn grow(&mut self, effects: &mut Effects) {
        if self.volume.step == GrowthState::Zeroed && self.io.submit_flush(IoPurpose::Grow, effects) {
            self.volume.step = GrowthState::Flushing;
        }
        // A closing shard grows only for writes it has accepted.
        let ahead = P::wants_growth(self) && (self.health.is_open() || P::lacks_reserved_pages(self));
        if self.volume.step != GrowthState::Idle || !(ahead || self.volume.wanted > 0) {
            return;
        }
        if self.volume.failed_until.is_some_and(|until| effects.now().mono < until) {
            return self.growth_ended(effects);
        }
        let (total, held) = (self.space.total(), self.space.held());
        let step = STEPS.into_iter().rev().find(|step| *step <= held).unwrap_or(STEPS[0]);
        let wanted = self.volume.wanted + self.reserve_pages();
        self.stop_discards();
        if self.space.discarded_pages() > 0 {
            // No more than half as much again: else the rest would be discarded once more. After a
            // failure one extent: some may have their space, though not all.
            let has_failed = self.volume.failed_until.is_some();
            let refilled = if has_failed { 1 } else { wanted.max(step.min(held / 2)) };
            let discards = &self.volume.discards;
            let refilling = self.space.take_to_refill(refilled, |extent| discards.is_busy(extent));
            // Else the last of them are just being discarded: their end brings a tick.
            if !refilling.is_empty() {
                fault_point!("discards_used_without_zeros", {
                    refilling.into_iter().for_each(|extent| self.space.refilled(extent));
                    return self.growth_ended(effects);
                });
                self.volume.to_zero = refilling.iter().copied().collect();
                self.volume.refilling = refilling;
                self.begin_growth(total, effects);
            }
            return;
        }
        let to = total.saturating_add(step.max(wanted.next_multiple_of(MIB_PAGES))).min(self.capacity_pages());
        if to <= total {
            return self.growth_ended(effects);
        }
        let ends = (total / MIB_PAGES + 1..to.div_ceil(MIB_PAGES)).map(|mib| mib * MIB_PAGES).chain([to]);
        let firsts = [total].into_iter().chain((total / MIB_PAGES + 1..).map(|mib| mib * MIB_PAGES));
        self.volume.to_zero = firsts.zip(ends).map(|(first, end)| Extent { first, pages: end - first }).collect();
        self.begin_growth(to, effects);
    }

    fn begin_growth(&mut self, to: u32, effects: &mut Effects) {
        self.volume.to = to;
        self.volume.step = GrowthState::Zeroing { in_flight: 0, fault: None };
        self.write_zeroes(effects);
    }

    /// Has the superblocks say that pages from this one on may have been discarded; unless growth
    /// is under way: then its end brings a tick; or has just failed.
    pub(crate) fn tell_of_discards(&mut self, from: u32, effects: &mut Effects) {
        if let Some(until) = self.volume.failed_until.filter(|until| effects.now().mono < *until) {
            return effects.wake_at(until);
        }
        if self.volume.step == GrowthState::Idle {
            // Those of an earlier opening are there still.
            let before = Some(self.volume.superblock.discarded_from).filter(|from| *from > 0);
            self.volume.superblock.discarded_from = before.map_or(from, |before| before.min(from));
            self.volume.to = self.space.total();
            self.volume.step = GrowthState::Zeroed;
            effects.more();
        }
    }

    /// Growth is over, or impossible: whoever waits finds out.
    fn growth_ended(&mut self, effects: &mut Effects) {
        match std::mem::take(&mut self.volume.wanted) {
            0 => self.wake_space_waiters(effects),
            _ => self.space_came(effects),
        }
    }

    fn write_zeroes(&mut self, effects: &mut Effects) {
        let GrowthState::Zeroing { mut in_flight, fault } = self.volume.step else { return };
        if self.volume.zeroes.is_none() {
            self.volume.zeroes = self.take_block(Class::Slice, effects).map(|mut block| {
                block.fill(0);
                Arc::new(block)
            });
        }
        let Some(zeroes) = self.volume.zeroes.clone() else {
            self.give_growth_up();
            return wake_soon(effects);
        };
        while in_flight < WRITES
            && fault.is_none()
            && let Some(extent) = self.volume.to_zero.pop_front()
        {
            let io = self.io.start(IoPurpose::Grow);
            effects.write(io, offset(extent.first), zero_parts(&zeroes, extent.pages), false);
            in_flight += 1;
        }
        self.volume.step = GrowthState::Zeroing { in_flight, fault };
    }

    /// What was not zero-written to its end stays discarded.
    fn give_growth_up(&mut self) {
        self.volume.step = GrowthState::Idle;
        self.volume.to_zero.clear();
        self.space.not_refilled(std::mem::take(&mut self.volume.refilling));
    }

    /// A request of growth is done.
    pub(crate) fn grow_done(&mut self, result: Result<(), IoFault>, effects: &mut Effects) {
        if self.health.poisoned.is_some() {
            // The failed flush may have dropped zeros too: nothing here may be called usable.
            self.give_growth_up();
            self.volume.zeroes = None;
            return;
        }
        match self.volume.step {
            GrowthState::Idle | GrowthState::Zeroed => {}
            GrowthState::Zeroing { in_flight, fault } => {
                let (in_flight, fault) = (in_flight - 1, fault.or(result.err()));
                self.volume.step = GrowthState::Zeroing { in_flight, fault };
                match fault {
                    Some(fault) if in_flight == 0 => self.growth_failed(fault, effects),
                    Some(_) => {}
                    None if in_flight == 0 && self.volume.to_zero.is_empty() => {
                        fault_point!("growth_used_before_it_is_recorded", self.space.extend(self.volume.to));
                        self.volume.step = GrowthState::Zeroed;
                    }
                    None => self.write_zeroes(effects),
                }
            }
            GrowthState::Flushing => match result {
                Ok(()) => {
                    self.volume.zeroes = None;
                    if !self.volume.refilling.is_empty() {
                        self.volume.superblock.discarded_from = self.space.discarded_from();
                    }
                    self.write_superblock(0, effects);
                }
                // What else this flush should have covered is not known.
                Err(fault) => {
                    self.volume.step = GrowthState::Idle;
                    self.poison(fault, "a flush failed", effects);
                }
            },
            GrowthState::Superblock(slot) => match result {
                Ok(()) if slot == 0 => self.write_superblock(1, effects),
                Ok(()) => {
                    let usable_bytes = offset(self.volume.to);
                    let has_grown = usable_bytes > self.volume.superblock.usable_bytes;
                    self.volume.superblock.usable_bytes = usable_bytes;
                    self.volume.discards.told_from = self.volume.superblock.discarded_from;
                    if self.space.total() < self.volume.to {
                        self.space.extend(self.volume.to);
                    }
                    for extent in std::mem::take(&mut self.volume.refilling) {
                        self.space.refilled(extent);
                    }
                    if has_grown {
                        P::extended(self);
                        self.health.events.push(ShardEvent::Grew { usable_bytes });
                    }
                    self.volume.failed_until = None;
                    self.volume.step = GrowthState::Idle;
                    self.growth_ended(effects);
                }
                Err(fault) => self.growth_failed(fault, effects),
            },
        }
    }

    fn write_superblock(&mut self, slot: u64, effects: &mut Effects) {
        let Some(mut block) = self.take_block(Class::Page, effects) else {
            return self.growth_failed(IoFault::Full, effects);
        };
        self.volume.superblock.generation += u64::from(slot == 0);
        let mut superblock = self.volume.superblock;
        superblock.usable_bytes = offset(self.volume.to);
        superblock.durable = self.groups.durable_sequence();
        superblock.encode(&self.config.uuid, &mut block);
        self.volume.step = GrowthState::Superblock(slot);
        let io = self.io.start(IoPurpose::Grow);
        effects.write(io, slot * PAGE_BYTES as u64, vec![BlockPart::whole(Arc::new(block))], true);
    }

    fn growth_failed(&mut self, fault: IoFault, effects: &mut Effects) {
        tracing::warn!(%fault, shard = self.config.shard, "the volume cannot grow");
        self.give_growth_up();
        self.health.events.push(ShardEvent::CannotGrow { fault });
        self.volume.failed_until = Some(Mono(effects.now().mono.0 + RETRY));
        self.volume.zeroes = None;
        self.growth_ended(effects);
    }

    /// Looks at a few index entries and deletes those that have expired.
    pub(crate) fn sweep_expired(&mut self, effects: &mut Effects) {
        // Before batches are decided on, or if one cannot be read, nothing is written over their
        // keys.
        if !self.index.may_expire() || !self.health.is_open() || !self.batches.may_write() {
            return;
        }
        let now = effects.now().mono;
        if now < self.index.sweep_at() || self.keys.pending.len() > 256 {
            return effects.wake_at(self.index.sweep_at().max(Mono(now.0 + SWEEP_EVERY / 10)));
        }
        let expired = self.index.sweep(now, |expiry| is_expired(expiry, effects));
        effects.wake_at(self.index.sweep_at().max(Mono(now.0 + SWEEP_EVERY / 10)));
        for key in expired {
            if !self.keys.pending.contains_key(&key) {
                self.io.counters.expired_records += 1;
                let work = Work::new(Origin::Expiry, key, Expect::Any, Kind::Delete, Level::ProcessCrash);
                self.submit(work, effects);
            }
        }
    }
}

/// `pages` pages of zeros, from one block used many times.
pub(crate) fn zero_parts(zeroes: &Arc<Block>, pages: u32) -> Vec<BlockPart> {
    let bytes = pages as usize * PAGE_BYTES;
    let parts = (0..bytes.div_ceil(SLICE_BYTES)).map(|slice| BlockPart {
        block: Arc::clone(zeroes),
        start: 0,
        len: (bytes - slice * SLICE_BYTES).min(SLICE_BYTES) as u32,
    });
    parts.collect()
}
