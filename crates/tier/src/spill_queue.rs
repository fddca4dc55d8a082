//! [`SpillQueue`]: sealed segments that wait for the volume, those that are being written, and the
//! holes that failed writes left in the log.
//!
//! It owns the pause after a failed write too. `spill.rs` drives it; it neither reads nor writes.

use std::collections::{BTreeMap, VecDeque};

use foldhash::HashMap;
use stratakv_base::Mono;

use crate::index::{Loc, Tag};

/// After a failed write nothing is spilled for so long; twice as long each time, up to a minute.
const PAUSE_NS: u64 = 250_000_000;
const DOUBLINGS_MAX: u32 = 8;

/// A segment on its way to the volume.
#[derive(Debug)]
pub(crate) struct Spill {
    /// Where it lies in DRAM.
    pub(crate) slot: u32,
    /// Its first page.
    pub(crate) page: u64,
    /// Requests in flight.
    pub(crate) waiting: u32,
    pub(crate) failed: bool,
    /// Its items: tag, place in DRAM, place on the volume.
    pub(crate) items: Vec<(Tag, Loc, Loc)>,
}

/// A segment that could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hole {
    /// Its head is to be written, at once.
    New,
    /// Its head is to be written, when something is written again.
    Open,
    /// Its head is being written.
    Filling,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SpillQueue {
    /// Sealed segments that wait for being written, by slot.
    sealed: VecDeque<u32>,
    /// Pages that the first of them, or the table of an end, waits for.
    wanted_pages: u64,
    /// Those that are being written, by order.
    writing: HashMap<u64, Spill>,
    /// Segments of the log that could not be written, by first page: a recovery would end there, so
    /// each gets a head that says that it is empty, before anything is written behind it.
    holes: BTreeMap<u64, Hole>,
    /// After a failed write nothing is spilled until then.
    not_before: Mono,
    /// Failed writes in a row.
    failures: u32,
}

impl SpillQueue {
    /// Segments that wait or are being written.
    pub(crate) fn len(&self) -> usize {
        self.sealed.len() + self.writing.len()
    }

    /// A sealed segment waits for its turn.
    pub(crate) fn push(&mut self, slot: u32) {
        self.sealed.push_back(slot);
    }

    /// The segment whose turn it is.
    pub(crate) fn front(&self) -> Option<u32> {
        self.sealed.front().copied()
    }

    /// It is being written, or gone.
    pub(crate) fn pop(&mut self) {
        self.sealed.pop_front();
        self.wanted_pages = 0;
    }

    /// It waits until the log has so many pages.
    pub(crate) fn wait_for_room(&mut self, pages: u64) {
        self.wanted_pages = pages;
    }

    /// The pages that the log has to make room for; 0: nothing waits for them.
    pub(crate) fn wanted_pages(&self) -> u64 {
        self.wanted_pages
    }

    /// A segment is being written, with this order.
    pub(crate) fn begin(&mut self, order: u64, spill: Spill) {
        self.writing.insert(order, spill);
    }

    /// A piece of the segment of this order was written, or not: the segment, when that was its
    /// last one.
    pub(crate) fn piece_written(&mut self, order: u64, failed: bool) -> Option<Spill> {
        let spill = self.writing.get_mut(&order)?;
        spill.waiting -= 1;
        spill.failed |= failed;
        if spill.waiting > 0 { None } else { self.writing.remove(&order) }
    }

    /// Tags of what is being written.
    pub(crate) fn tags_under_way(&self) -> impl Iterator<Item = Tag> {
        self.writing.values().flat_map(|spill| spill.items.iter().map(|(tag, ..)| *tag))
    }

    pub(crate) fn is_paused(&self, now: Mono) -> bool {
        self.not_before > now
    }

    /// A write failed: nothing is written for a while.
    pub(crate) fn pause(&mut self, now: Mono) {
        self.not_before = Mono(now.0 + (PAUSE_NS << self.failures.min(DOUBLINGS_MAX)));
        self.failures += 1;
    }

    /// A segment was written: the next failure is the first.
    pub(crate) fn has_succeeded(&mut self) {
        self.failures = 0;
    }

    /// The segment at this page could not be written.
    pub(crate) fn add_hole(&mut self, page: u64) {
        self.holes.insert(page, Hole::New);
    }

    pub(crate) fn holes(&self) -> usize {
        self.holes.len()
    }

    /// Holes whose head is to be written now; `spills`: segments are written again.
    pub(crate) fn holes_due(&self, spills: bool) -> Vec<u64> {
        let is_due = |hole: &Hole| *hole == Hole::New || *hole == Hole::Open && spills;
        self.holes.iter().filter(|(_, hole)| is_due(hole)).map(|(page, _)| *page).collect()
    }

    /// The head of this one is being written.
    pub(crate) fn fill_hole(&mut self, page: u64) {
        self.holes.insert(page, Hole::Filling);
    }

    /// The head of this one could not be written, and must be.
    pub(crate) fn reopen_hole(&mut self, page: u64) {
        self.holes.insert(page, Hole::Open);
    }

    /// This one is no hole any more, or its segment is gone.
    pub(crate) fn forget_hole(&mut self, page: u64) {
        self.holes.remove(&page);
    }

    /// Nothing on the volume counts.
    pub(crate) fn forget_holes(&mut self) {
        self.holes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_written_when_its_last_piece_is() {
        let mut spills = SpillQueue::default();
        spills.push(3);
        assert_eq!((spills.front(), spills.len()), (Some(3), 1));
        spills.begin(9, Spill { slot: 3, page: 40, waiting: 2, failed: false, items: Vec::new() });
        spills.pop();
        assert!(spills.piece_written(9, true).is_none() && spills.piece_written(8, false).is_none());
        assert!(spills.piece_written(9, false).is_some_and(|spill| spill.failed), "a later piece does not mend it");
        assert_eq!((spills.front(), spills.len()), (None, 0));
    }

    /// The log made room for one that could not be written for want of memory, or was gone.
    #[test]
    fn nobody_waits_for_the_room_of_a_segment_that_left_the_queue() {
        let mut spills = SpillQueue::default();
        spills.push(3);
        spills.push(4);
        spills.wait_for_room(300);
        assert_eq!((spills.front(), spills.wanted_pages()), (Some(3), 300));
        spills.pop();
        assert_eq!((spills.front(), spills.wanted_pages()), (Some(4), 0));
    }

    #[test]
    fn pauses_double_up_to_a_minute_and_a_success_ends_that() {
        let mut spills = SpillQueue::default();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            spills.pause(Mono(0));
            pauses.push(spills.not_before.0);
        }
        assert_eq!((pauses[0], pauses[1], pauses[11]), (PAUSE_NS, 2 * PAUSE_NS, 256 * PAUSE_NS));
        assert!(spills.is_paused(Mono(0)) && !spills.is_paused(spills.not_before));
        spills.has_succeeded();
        spills.pause(Mono(0));
        assert_eq!(spills.not_before, Mono(PAUSE_NS));
    }

    #[test]
    fn a_hole_is_filled_at_once_and_later_only_where_segments_are_written() {
        let mut spills = SpillQueue::default();
        spills.add_hole(5);
        assert_eq!(spills.holes_due(false), [5]);
        spills.fill_hole(5);
        assert_eq!(spills.holes_due(true), []);
        spills.reopen_hole(5);
        assert_eq!((spills.holes_due(false), spills.holes_due(true)), (vec![], vec![5]));
        spills.forget_hole(5);
        assert_eq!(spills.holes(), 0);
    }
}
