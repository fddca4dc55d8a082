//! Checkpoints: the index written down in segments of its own, so that opening need not read the
//! log.
//!
//! docs/format-packed.md draws them and argues why what they find is what a scan finds.

pub(crate) mod format;
pub(crate) mod load;
pub(crate) mod write;

use stratakv_base::fault_point;

use super::segments::{Segments, State};
use crate::packed::Packed;
use crate::place::RecordPlace;
use crate::space::Extent;
use format::Covered;
use write::Writing;

/// What a shard knows of its checkpoints.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    /// Segments of the one that holds.
    pub(crate) current: Vec<u32>,
    pub(crate) writing: Option<Writing>,
    /// Bytes of batches since the start of the one begun last.
    pub(crate) log_bytes: u64,
    /// Their segments are needed for something else.
    wanted_back: bool,
    /// The one of the orderly close was begun, or is not worth it.
    closing_tried: bool,
    /// Bytes and keys of the last one that was completed.
    last_took: (u64, u64),
    /// Made so far, and the bytes written for them.
    pub(crate) made: u64,
    pub(crate) bytes: u64,
}

impl Checkpoints {
    /// Segments that they occupy.
    pub(crate) fn held(&self) -> u32 {
        (self.current.len() + self.writing.as_ref().map_or(0, Writing::held)) as u32
    }

    /// Whether their segments should be given back at the next tick.
    pub(crate) fn must_give_way(&self) -> bool {
        self.wanted_back
    }
}

impl Segments {
    /// Segments in which every batch is shown and to which none will be added in their present
    /// life.
    fn covered_segments(&self) -> Vec<u32> {
        let covered_segments = self.iter().filter(|(_, segment)| {
            let mut sealed = matches!(segment.state, State::Sealed | State::Free);
            fault_point!("checkpoint_covers_open_segments", segment.state == State::Open, sealed = true);
            sealed && segment.in_flight == 0 && segment.end > 0
        });
        covered_segments.map(|(number, _)| number).collect()
    }

    /// What a checkpoint says of a segment.
    fn covered(&self, number: u32) -> Covered {
        let segment = self.get(number);
        let mut tombstones = self.tombstones_of(number);
        fault_point!("checkpoint_skips_the_tombstones", tombstones.clear());
        Covered { number, end: segment.end, tombstones }
    }
}

impl Packed {
    /// Whether the live records fit without the segments of checkpoints and `more` of them.
    fn fits_beside_checkpoints(&self, more: u32) -> bool {
        let alive =
            self.placement.segments.live_bytes() + self.placement.queue_bytes + self.placement.large.record_bytes();
        let wanted = alive + alive / 64 + self.batches.reserved_bytes();
        let taken = u64::from(self.placement.checkpoints.held() + more);
        wanted <= self.live_limit_bytes(super::write::Claim::New, taken)
    }

    /// If the checkpoint that holds spares opening less than half of the log by now, what it takes
    /// is better given to the next one, for which there is no room beside it. True if it is given
    /// back at the next tick.
    fn give_outdated_checkpoint_back(&mut self) -> bool {
        let log = u64::from(self.placement.segments.used()) * u64::from(self.placement.segments.bytes());
        let outdated = self.placement.checkpoints.log_bytes * 2 > log && !self.placement.checkpoints.current.is_empty();
        self.placement.checkpoints.wanted_back |= outdated;
        outdated
    }

    /// Something needs the segments of checkpoints: they are given back at the next tick. False if
    /// there are none.
    pub(crate) fn checkpoints_give_way(&mut self) -> bool {
        self.placement.checkpoints.wanted_back |= self.placement.checkpoints.held() > 0;
        self.placement.checkpoints.wanted_back
    }

    /// Gives the segments of checkpoints back if the log, or a large value, needs them.
    fn give_checkpoints_back(&mut self, effects: &mut stratakv_engine::Effects) {
        let wanted = self.placement.checkpoints.wanted_back;
        if !wanted && (self.placement.checkpoints.held() == 0 || self.fits_beside_checkpoints(0)) {
            return;
        }
        self.placement.checkpoints.wanted_back = true;
        let current = std::mem::take(&mut self.placement.checkpoints.current);
        self.release_checkpoint(&current);
        self.abandon_checkpoint();
        // Else when what is in flight has completed.
        if self.placement.checkpoints.held() == 0 {
            self.placement.checkpoints.wanted_back = false;
            self.space_came(effects);
        }
    }

    /// Segments of a checkpoint are free: what lies there is void as soon as the table opens them
    /// anew.
    fn release_checkpoint(&mut self, numbers: &[u32]) {
        for number in numbers {
            self.placement.segments.set_state(*number, State::Free);
            let extent = Extent { first: number * self.placement.segments.pages, pages: self.placement.segments.pages };
            self.space.release(extent);
        }
    }

    /// What a checkpoint says of a key, from its index entry.
    fn checkpoint_entry(&self, entry: stratakv_index::IndexEntry) -> Option<format::KeyEntry> {
        match RecordPlace::from_bits(entry.place) {
            RecordPlace::Record(addr) => Some(format::KeyEntry { addr, expiry: entry.expiry, large: None }),
            RecordPlace::Blob { first, pages } => {
                let (addr, tag) = (*self.placement.pointers.get(&first)?, *self.blobs.tags.get(&first)?);
                Some(format::KeyEntry { addr, expiry: entry.expiry, large: Some((Extent { first, pages }, tag)) })
            }
        }
    }
}
