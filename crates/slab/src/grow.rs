//! Room: growth of the volume ahead of need, refusal when it cannot grow, and the sweep for expired
//! records.
//!
//! Growth is zero-written in 1 MiB steps and flushed, then recorded in both superblocks, and only
//! then used.

use std::sync::Arc;

use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_base::{Level, Mono, fault_point};
use stratakv_device::{Block, BlockPart, Class, IoFault};
use stratakv_engine::{Effects, Error, Expect, ShardEvent};

use crate::index::SWEEP_EVERY;
use crate::keys::Wait;
use crate::placement::Placement;
use crate::requests::IoPurpose;
use crate::shard::{IndexedShard, is_expired, wake_soon};
use crate::space::{SEGMENT_PAGES, offset};
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
        next: u32,
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
    /// A write waits for this many pages.
    wanted: u32,
    /// Growth failed; not tried again before this.
    failed_until: Option<Mono>,
    /// A write was refused for want of space, and none has found some since.
    pub(crate) is_full: bool,
    zeroes: Option<Arc<Block>>,
}

impl Volume {
    pub(crate) fn new(superblock: Superblock) -> Volume {
        Volume {
            superblock,
            step: GrowthState::Idle,
            to: 0,
            wanted: 0,
            failed_until: None,
            is_full: false,
            zeroes: None,
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
        if growing || (!failed && self.capacity_pages() > self.space.total()) {
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
        let total = self.space.total();
        // A closing shard grows only for writes it has accepted.
        let ahead = P::wants_growth(self) && self.health.is_open();
        if self.volume.step != GrowthState::Idle || !(ahead || self.volume.wanted > 0) {
            return;
        }
        if self.volume.failed_until.is_some_and(|until| effects.now().mono < until) {
            return self.growth_ended(effects);
        }
        let step = STEPS.into_iter().rev().find(|step| *step <= total).unwrap_or(STEPS[0]);
        let wanted = (self.volume.wanted + self.reserve_pages()).next_multiple_of(MIB_PAGES);
        let to = total.saturating_add(step.max(wanted)).min(self.capacity_pages());
        if to <= total {
            return self.growth_ended(effects);
        }
        self.volume.to = to;
        self.volume.step = GrowthState::Zeroing { next: total, in_flight: 0, fault: None };
        self.write_zeroes(effects);
    }

    /// Growth is over, or impossible: whoever waits finds out.
    fn growth_ended(&mut self, effects: &mut Effects) {
        match std::mem::take(&mut self.volume.wanted) {
            0 => self.wake_space_waiters(effects),
            _ => self.space_came(effects),
        }
    }

    fn write_zeroes(&mut self, effects: &mut Effects) {
        let GrowthState::Zeroing { mut next, mut in_flight, fault } = self.volume.step else { return };
        if self.volume.zeroes.is_none() {
            self.volume.zeroes = self.take_block(Class::Slice, effects).map(|mut block| {
                block.fill(0);
                Arc::new(block)
            });
        }
        let Some(zeroes) = self.volume.zeroes.clone() else {
            self.volume.step = GrowthState::Idle;
            return wake_soon(effects);
        };
        while in_flight < WRITES && next < self.volume.to && fault.is_none() {
            let end = (next / MIB_PAGES * MIB_PAGES + MIB_PAGES).min(self.volume.to);
            let io = self.io.start(IoPurpose::Grow);
            effects.write(io, offset(next), zero_parts(&zeroes, end - next), false);
            (next, in_flight) = (end, in_flight + 1);
        }
        self.volume.step = GrowthState::Zeroing { next, in_flight, fault };
    }

    /// A request of growth is done.
    pub(crate) fn grow_done(&mut self, result: Result<(), IoFault>, effects: &mut Effects) {
        if self.health.poisoned.is_some() {
            // The failed flush may have dropped zeros too: nothing here may be called usable.
            self.volume.step = GrowthState::Idle;
            self.volume.zeroes = None;
            return;
        }
        match self.volume.step {
            GrowthState::Idle | GrowthState::Zeroed => {}
            GrowthState::Zeroing { next, in_flight, fault } => {
                let (in_flight, fault) = (in_flight - 1, fault.or(result.err()));
                self.volume.step = GrowthState::Zeroing { next, in_flight, fault };
                match fault {
                    Some(fault) if in_flight == 0 => self.growth_failed(fault, effects),
                    Some(_) => {}
                    None if in_flight == 0 && next == self.volume.to => {
                        fault_point!("growth_used_before_it_is_recorded", self.space.extend(self.volume.to));
                        self.volume.step = GrowthState::Zeroed;
                    }
                    None => self.write_zeroes(effects),
                }
            }
            GrowthState::Flushing => match result {
                Ok(()) => {
                    self.volume.zeroes = None;
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
                    self.volume.superblock.usable_bytes = offset(self.volume.to);
                    if self.space.total() < self.volume.to {
                        self.space.extend(self.volume.to);
                    }
                    P::extended(self);
                    self.volume.failed_until = None;
                    self.health.events.push(ShardEvent::Grew { usable_bytes: self.volume.superblock.usable_bytes });
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
        self.volume.step = GrowthState::Idle;
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
