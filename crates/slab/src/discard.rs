//! Free pages that are not needed go back to the file system: the file gets holes, and `du` falls
//! after deletes.
//!
//! It begins when most of the volume has been free for a while, ends when half of what is left is
//! in use, and goes at a rate. What was discarded is zero-written before it is used again
//! (`grow.rs`), so that a full disk is met there and not by a commit group. The superblock says
//! from which page on there may be holes, before there is one.

use std::collections::VecDeque;

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Mono, fault_point};
use stratakv_device::IoFault;
use stratakv_engine::Effects;

use crate::config::DiscardPace;
use crate::placement::Placement;
use crate::requests::IoPurpose;
use crate::shard::IndexedShard;
use crate::space::{Extent, SEGMENT_PAGES, offset};

/// What a file system says that makes no holes, or a sandbox that lets nobody ask for them: EPERM,
/// ENODEV, EINVAL, ENOSYS, EOPNOTSUPP.
const UNSUPPORTED: [i32; 5] = [1, 19, 22, 38, 95];
/// Extents that one writing of the superblocks tells of.
const CLAIMED_AT_ONCE: u64 = 16;
/// After a failure nothing is discarded for so long.
const RETRY_NS: u64 = 60_000_000_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Discards {
    /// Extents that wait for the superblock and the placement to know of them.
    claimed: VecDeque<Extent>,
    in_flight: Option<Extent>,
    /// Most of the volume is free since then.
    spare_since: Option<Mono>,
    /// No extent is chosen before.
    next_at: Mono,
    /// Pages that the superblocks on the medium tell of begin here; 0: none.
    pub(crate) told_from: u32,
    /// The file system makes no holes.
    is_unsupported: bool,
}

impl Discards {
    /// The superblock is written again before the first discard: it says how far all is durable, of
    /// which the pages may be the only other witnesses.
    pub(crate) fn new() -> Discards {
        Discards {
            claimed: VecDeque::new(),
            in_flight: None,
            spare_since: None,
            next_at: Mono(0),
            told_from: 0,
            is_unsupported: false,
        }
    }

    /// Whether an extent is being discarded, or about to be.
    pub(crate) fn is_busy(&self, extent: Extent) -> bool {
        self.in_flight == Some(extent) || self.claimed.contains(&extent)
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
    /// Discards extents when it is time, one after the other.
    pub(crate) fn pump_discards(&mut self, effects: &mut Effects) {
        let may = self.health.is_open() && !self.volume.discards.is_unsupported;
        let Some(pace) = self.config.discards.filter(|_| may) else { return };
        if self.volume.discards.in_flight.is_none() {
            match self.volume.discards.claimed.front() {
                Some(extent) => self.discard_claimed(*extent, effects),
                None => self.claim(pace, effects),
            }
        }
    }

    /// Space is needed: what was only chosen stays, and nothing more is chosen for now.
    pub(crate) fn stop_discards(&mut self) {
        self.volume.discards.spare_since = None;
        for extent in std::mem::take(&mut self.volume.discards.claimed) {
            self.space.not_discarded(extent);
        }
    }

    /// Chooses extents, if most of the volume has been free for a while.
    fn claim(&mut self, pace: DiscardPace, effects: &mut Effects) {
        let now = effects.now().mono;
        let Some(since) = self.spare_since(pace, now) else { return };
        let due = Mono(since.0.saturating_add(pace.after_ns)).max(self.volume.discards.next_at);
        if now < due {
            return effects.wake_at(due);
        }
        let unit = unit_pages(self.config.capacity_bytes, self.volume.superblock.segment_pages);
        let mut extents = 0;
        while extents < CLAIMED_AT_ONCE
            && P::has_spare_extents(self)
            && self.is_mostly_free(unit, pace)
            && let Some(extent) = self.space.take_to_discard(unit)
        {
            extents += 1;
            self.volume.discards.claimed.push_back(extent);
            let mut claims = true;
            fault_point!("discards_packed_before_the_table", claims = false);
            if claims {
                P::claim_for_blobs(self, extent);
            }
        }
        let bytes = extents.max(1) * u64::from(unit) * PAGE_BYTES as u64;
        let takes_ns = bytes.saturating_mul(1_000_000_000) / pace.bytes_per_second.max(1);
        self.volume.discards.next_at = Mono(now.0.saturating_add(takes_ns));
        if extents > 0 || !P::has_spare_extents(self) && P::condenses(self) {
            return effects.more();
        }
        // What is free lies in pieces: later again.
        self.volume.discards.spare_since = None;
        self.volume.discards.next_at = Mono(now.0.saturating_add(pace.after_ns.max(takes_ns)));
    }

    /// Half of what the file has would do, and without so many pages it keeps what it is to keep.
    fn is_mostly_free(&self, pages: u32, pace: DiscardPace) -> bool {
        let (used, held) = P::use_of_space(self);
        used.saturating_mul(2) < held && held.saturating_sub(pages.into()) >= pace.kept_bytes / PAGE_BYTES as u64
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

    /// Discards the first of those that were chosen when a crash finds it told of.
    fn discard_claimed(&mut self, extent: Extent, effects: &mut Effects) {
        if !self.tells_of_claimed(effects) {
            return;
        }
        let mut is_ready = self.placement.blobs_may_lie_at(extent);
        fault_point!("discards_packed_before_the_table", is_ready = true);
        if is_ready {
            self.volume.discards.claimed.pop_front();
            self.volume.discards.in_flight = Some(extent);
            let io = self.io.start(IoPurpose::Discard);
            effects.discard(io, offset(extent.first), u64::from(extent.pages) * PAGE_BYTES as u64);
        }
    }

    /// Whether the superblocks tell of all that were chosen; if not, has them written. Of no more:
    /// what lies before is not taken for holes at the next opening.
    fn tells_of_claimed(&mut self, effects: &mut Effects) -> bool {
        fault_point!("discards_are_not_told", return true);
        let told = self.volume.discards.told_from;
        let first = self.volume.discards.claimed.iter().map(|extent| extent.first).min().unwrap_or(u32::MAX);
        if told != 0 && told <= first {
            return true;
        }
        self.tell_of_discards(first, effects);
        false
    }

    /// An extent is discarded, or not.
    pub(crate) fn discard_done(&mut self, result: Result<(), IoFault>, effects: &mut Effects) {
        let Some(extent) = self.volume.discards.in_flight.take() else { return };
        effects.more();
        if let Err(fault) = result {
            tracing::debug!(%fault, shard = self.config.shard, "free pages could not be given to the file system");
            self.stop_discards();
            self.volume.discards.next_at = Mono(effects.now().mono.0.saturating_add(RETRY_NS));
            if matches!(fault, IoFault::Os(number) if UNSUPPORTED.contains(&number)) {
                self.volume.discards.is_unsupported = true;
                self.space.not_discarded(extent);
            }
            // Else it may be a hole in part: it is zero-written before it is used.
        }
    }
}
