//! Which part of which span is cleared when what is free is too short: see `moving.rs`.
//!
//! A span from which records are moved belongs to an arena of nobody meanwhile: what is freed in it
//! stays in it, and nothing of it is allocated but the tail that somebody had.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};

use stratakv_pmem::{Pmem, PmemError};

use super::{Allocator, Arena, Extent, Span, lock};
use crate::region::Region;

/// Of a run of segments, most eighths of what is moved out of the way of a record that is longer
/// than one.
const MOVED_EIGHTHS_MAX: u64 = 6;

/// What is being cleared.
#[derive(Debug, Default)]
pub(crate) struct Clearing {
    /// First segments and all blocks of spans.
    pub(crate) spans: Vec<(u32, Extent)>,
    /// Segments between them that are in no span. Nobody else takes them meanwhile.
    withheld: Vec<u32>,
}

impl Allocator {
    /// Whoever clears something does so alone.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.clearing)
    }

    /// Whether clearing can be of no use: too little is free anywhere, or it was of none the last
    /// time and nothing was freed since.
    pub(crate) fn clearing_is_useless(&self, blocks: u32) -> bool {
        let in_arenas: u64 = self.arenas.iter().map(|arena| lock(arena).free_blocks()).sum();
        let free = in_arenas + self.blocks_of(self.unused_segments());
        free < u64::from(blocks) || self.none_by_moving.is_known(self.freed(), blocks)
    }

    /// Nothing could be moved; `freed` is what was counted before that was tried. What others freed
    /// meanwhile may be of use.
    pub(crate) fn note_useless_clearing(&self, freed: u64, blocks: u32) {
        self.none_by_moving.note(freed, blocks);
    }

    pub(crate) fn freed(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }

    /// Chooses what to clear for an extent of so many blocks, none of the spans in `tried`, and
    /// takes it from its arenas. `None`: there is nothing of which much is free.
    pub(crate) fn begin_clearing(&self, blocks: u32, tried: &mut Vec<u32>) -> Option<Clearing> {
        if blocks > self.owners.ground.segment_blocks
            && let Some(first) = self.best_run(blocks.div_ceil(self.owners.ground.segment_blocks), tried)
        {
            return Some(self.take_run(first, blocks.div_ceil(self.owners.ground.segment_blocks), tried));
        }
        let emptiest =
            |(number, arena): (usize, &Mutex<Arena>)| Some((lock(arena).emptiest_of(blocks, tried)?, number));
        let ((_, first), number) = self.arenas.iter().enumerate().filter_map(emptiest).max()?;
        tried.push(first);
        let mut clearing = Clearing::default();
        self.set_aside(number, first, &mut clearing);
        Some(clearing)
    }

    /// Takes a span from its arena.
    fn set_aside(&self, number: usize, first: u32, clearing: &mut Clearing) {
        // In the order of their numbers, and this one after all others.
        let (mut arena, mut aside) = (lock(&self.arenas[number]), lock(&self.aside));
        // Somebody may have taken it over, or merged it.
        let Some(blocks) = self.hand_over(first, &mut arena, &mut aside, self.arenas.len()) else { return };
        clearing.spans.push((first, Extent { place: self.owners.place_of(first), blocks }));
    }

    /// The first of so many segments side by side with the fewest blocks to move, apart from what
    /// was tried.
    fn best_run(&self, segments: u32, tried: &[u32]) -> Option<u32> {
        let (all, length) = (self.live_blocks(), segments as usize);
        let most = self.blocks_of(segments) / 8 * MOVED_EIGHTHS_MAX;
        // What cannot be cleared weighs more than any run.
        let weight = |at: usize| all.get(at).copied().flatten().unwrap_or(1 << 40);
        let (mut sum, mut best) = ((0..length).map(weight).sum::<u64>(), None);
        for first in 0..(all.len() + 1).saturating_sub(length) {
            let is_new = !tried.iter().any(|tried| tried.abs_diff(first as u32) < segments);
            if sum <= most && is_new && best.is_none_or(|(least, _)| sum < least) {
                best = Some((sum, first as u32));
            }
            sum = sum + weight(first + length) - weight(first);
        }
        best.map(|(_, first)| first)
    }

    /// By segment how many blocks there would be to move; none: it cannot be cleared.
    fn live_blocks(&self) -> Vec<Option<u64>> {
        let mut all = vec![None; self.owners.words.len()];
        for arena in &self.arenas {
            for (first, live_blocks) in lock(arena).live_blocks_of_segments() {
                all[first as usize] = Some(live_blocks);
            }
        }
        for pool in &self.pools {
            for (first, count) in lock(pool).runs() {
                all[first as usize..(first + count) as usize].fill(Some(0));
            }
        }
        all
    }

    /// Takes all spans of a run from their arenas, and the segments between them from the pool.
    /// What has changed meanwhile is left out: the rest is cleared all the same.
    fn take_run(&self, first: u32, segments: u32, tried: &mut Vec<u32>) -> Clearing {
        tried.push(first);
        let mut clearing = Clearing::default();
        for segment in first..first + segments {
            match self.owners.span_of(self.owners.place_of(segment)) {
                Some((first, number)) if first == segment && number < self.arenas.len() => {
                    self.set_aside(number, first, &mut clearing);
                }
                None if self.pool_of(segment).withhold(segment, 1) => clearing.withheld.push(segment),
                _ => {}
            }
        }
        clearing
    }

    /// A free extent of at least so many blocks, from whoever has the shortest that does, exactly
    /// so long if there is one, else out of the pool. Ends with [`Allocator::release`].
    pub(crate) fn look<P: Pmem>(
        &self,
        region: &Region<P>,
        home: usize,
        blocks: u32,
    ) -> Result<Option<Extent>, PmemError> {
        let exact = self.arenas_from(home).find_map(|arena| lock(arena).take_exactly(&self.owners, blocks));
        let listed = || self.arenas_from(home).find_map(|arena| lock(arena).take_listed(&self.owners, blocks));
        let found = match exact.or_else(listed) {
            Some(found) => Some(found),
            None => self.take_span_anywhere(region, home, blocks)?,
        };
        self.held.fetch_add(u64::from(found.is_some()), Ordering::AcqRel);
        Ok(found)
    }

    /// What is free in a span that is being cleared, ascending. What is free on the medium and not
    /// here somebody has in hand, or a snapshot keeps.
    pub(crate) fn free_in(&self, first: u32) -> Vec<Extent> {
        lock(&self.aside).span(first).map(Span::free_extents).unwrap_or_default()
    }

    /// No extent that [`Allocator::look`] finds for a record of a segment at most is longer.
    pub(crate) fn longest(&self) -> u32 {
        let of_pool = if self.unused_segments() > 0 { self.owners.ground.segment_blocks } else { 0 };
        self.arenas.iter().map(|arena| lock(arena).longest_listed()).max().unwrap_or(0).max(of_pool)
    }

    /// Gives what was cleared to the arena of a home, or of its stripe on the node where it lies,
    /// and what is free as a whole to the pool.
    pub(crate) fn end_clearing<P: Pmem>(
        &self,
        region: &Region<P>,
        home: usize,
        clearing: Clearing,
    ) -> Result<(), PmemError> {
        let mut failed = Ok(());
        for (first, _) in clearing.spans {
            let number = self.arena_on(self.owners.ground.node_of(first), home);
            let (mut own, mut aside) = (lock(&self.arenas[number]), lock(&self.aside));
            if self.hand_over(first, &mut aside, &mut own, number).is_some() {
                failed = failed.and(self.merge(region, &mut own, first));
            }
        }
        for segment in clearing.withheld {
            self.pool_of(segment).give(segment, 1);
        }
        // Who looked meanwhile did not see it.
        self.freed.fetch_add(1, Ordering::Release);
        failed
    }
}
