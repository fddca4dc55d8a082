//! Free pages that are not needed go back to the file system: the file gets holes, and `du` falls
//! after deletes.
//!
//! It begins when most of the volume has been free for a while, ends when half of what is left is
//! in use, and goes at a rate. What was discarded is zero-written before it is used again
//! (`grow.rs`), so that a full disk is met there and not by a commit group. The superblock says
//! from which page on there may be holes, before there is one.

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Mono, fault_point};
use stratakv_device::IoFault;
use stratakv_engine::Effects;

use crate::config::DiscardPace;
use crate::placement::Placement;
use crate::requests::IoPurpose;
use crate::shard::IndexedShard;
use crate::space::{Extent, SEGMENT_PAGES, offset};

/// What a file system says that makes no holes.
const EOPNOTSUPP: i32 = 95;
/// After a failure nothing is discarded for so long.
const RETRY_NS: u64 = 60_000_000_000;

/// An extent on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiscardStep {
    Idle,
    /// It waits for the superblock and the placement to know of it.
    Claimed(Extent),
    Discarding(Extent),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Discards {
    step: DiscardStep,
    /// Most of the volume is free since then.
    spare_since: Option<Mono>,
    /// Not before.
    next_at: Mono,
    /// Pages that the superblocks on the medium tell of begin here; 0: none.
    pub(crate) told_from: u32,
    /// The file system makes no holes.
    is_unsupported: bool,
}

impl Discards {
    /// As the superblock has it.
    pub(crate) fn new(told_from: u32) -> Discards {
        Discards { step: DiscardStep::Idle, spare_since: None, next_at: Mono(0), told_from, is_unsupported: false }
    }

    /// What is being discarded, or about to be.
    pub(crate) fn busy(&self) -> Option<Extent> {
        match self.step {
            DiscardStep::Claimed(extent) | DiscardStep::Discarding(extent) => Some(extent),
            DiscardStep::Idle => None,
        }
    }

    /// Space is needed: no more extents are chosen for now.
    pub(crate) fn give_way(&mut self) {
        self.spare_since = None;
    }
}

/// Pages of an extent that is discarded: of a volume so large, a megabyte.
pub(crate) fn unit_pages(capacity_bytes: Option<u64>, segment_pages: u32) -> u32 {
    match (segment_pages, capacity_bytes) {
        (0, Some(bytes)) => {
            let pages = (bytes / PAGE_BYTES as u64 / 16).clamp(4, u64::from(SEGMENT_PAGES)) as u32;
            1 << pages.ilog2()
        }
        (0, None) => SEGMENT_PAGES,
        (pages, _) => pages,
    }
}

impl<P: Placement> IndexedShard<P> {
    /// Discards an extent when it is time.
    pub(crate) fn pump_discards(&mut self, effects: &mut Effects) {
        let may = self.health.is_open() && !self.volume.discards.is_unsupported;
        let Some(pace) = self.config.discards.filter(|_| may) else { return };
        match self.volume.discards.step {
            DiscardStep::Discarding(_) => {}
            DiscardStep::Claimed(extent) => self.discard_claimed(extent, effects),
            DiscardStep::Idle => self.claim(pace, effects),
        }
    }

    /// Chooses an extent, if most of the volume has been free for a while.
    fn claim(&mut self, pace: DiscardPace, effects: &mut Effects) {
        let now = effects.now().mono;
        let Some(since) = self.spare_since(pace, now) else { return };
        let due = Mono(since.0.saturating_add(pace.after_ns)).max(self.volume.discards.next_at);
        if now < due {
            return effects.wake_at(due);
        }
        let unit = unit_pages(self.config.capacity_bytes, self.volume.superblock.segment_pages);
        let bytes = u64::from(unit) * PAGE_BYTES as u64;
        let takes_ns = bytes.saturating_mul(1_000_000_000) / pace.bytes_per_second.max(1);
        self.volume.discards.next_at = Mono(now.0.saturating_add(takes_ns));
        if !P::has_spare_extents(self) {
            if P::condenses(self) {
                return effects.more();
            }
        } else if let Some(extent) = self.space.take_to_discard(unit) {
            self.volume.discards.step = DiscardStep::Claimed(extent);
            let mut claims = true;
            fault_point!("discards_packed_before_the_table", claims = false);
            if claims {
                P::claim_for_blobs(self, extent);
            }
            return effects.more();
        }
        // What is free lies in pieces: later again.
        self.volume.discards.spare_since = None;
        self.volume.discards.next_at = Mono(now.0.saturating_add(pace.after_ns.max(takes_ns)));
    }

    /// Since when most of the volume is free, if it is.
    fn spare_since(&mut self, pace: DiscardPace, now: Mono) -> Option<Mono> {
        let (used, held) = P::use_of_space(self);
        let may = held > pace.kept_bytes / PAGE_BYTES as u64 && !self.is_growing() && !self.waits_for_space();
        let since = self.volume.discards.spare_since;
        // It goes on until half is in use.
        let begins = || (used.saturating_mul(4) < held).then_some(now);
        let spare = if used.saturating_mul(2) < held { since.or_else(begins) } else { None };
        self.volume.discards.spare_since = spare.filter(|_| may);
        self.volume.discards.spare_since
    }

    /// Discards it when a crash finds it told of.
    fn discard_claimed(&mut self, extent: Extent, effects: &mut Effects) {
        if !self.tells_of(extent, effects) {
            return;
        }
        let mut is_ready = self.placement.blobs_may_lie_at(extent);
        fault_point!("discards_packed_before_the_table", is_ready = true);
        if is_ready {
            self.volume.discards.step = DiscardStep::Discarding(extent);
            let io = self.io.start(IoPurpose::Discard);
            effects.discard(io, offset(extent.first), u64::from(extent.pages) * PAGE_BYTES as u64);
        }
    }

    /// Whether the superblocks tell of this extent; if not, has them written: for more than this
    /// one, so that it is not often.
    fn tells_of(&mut self, extent: Extent, effects: &mut Effects) -> bool {
        fault_point!("discards_are_not_told", return true);
        let told = self.volume.discards.told_from;
        if told != 0 && told <= extent.first {
            return true;
        }
        let more = (self.space.total() / 16).min(64 * SEGMENT_PAGES);
        let from = extent.first.saturating_sub(more).max(1);
        self.tell_of_discards(from, effects);
        false
    }

    /// An extent is discarded, or not.
    pub(crate) fn discard_done(&mut self, result: Result<(), IoFault>, effects: &mut Effects) {
        let DiscardStep::Discarding(extent) = std::mem::replace(&mut self.volume.discards.step, DiscardStep::Idle)
        else {
            return;
        };
        match result {
            Ok(()) => {}
            Err(IoFault::Os(EOPNOTSUPP)) => {
                self.volume.discards.is_unsupported = true;
                self.space.refilled(extent);
            }
            // It may be a hole in part: it is zero-written before it is used.
            Err(fault) => {
                tracing::debug!(%fault, shard = self.config.shard, "free pages could not be given to the file system");
                self.volume.discards.next_at = Mono(effects.now().mono.0.saturating_add(RETRY_NS));
            }
        }
        effects.more();
    }
}
