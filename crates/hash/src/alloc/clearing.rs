//! Which part of which span is cleared when what is free is too short: see `moving.rs`.
//!
//! A span from which records are moved belongs to an arena of nobody meanwhile: what is freed in it stays in it, and nothing is allocated from it.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};

use stratakv_pmem::{Pmem, PmemError};

use super::{Allocator, Arena, Extent, lock};
use crate::region::Region;

/// Of a run of segments, most eighths of what is moved out of the way of a record that is longer than one.
const MOVED_EIGHTHS_MAX: u64 = 6;

/// What is being cleared.
#[derive(Debug, Default)]
pub(crate) struct Clearing {
    /// First segments and all blocks of spans.
    pub(crate) spans: Vec<(u32, Extent)>,
    /// Segments between them that are in no span: first, count. Nobody else takes them meanwhile.
    withheld: Vec<(u32, u32)>,
}

/// A segment that could be cleared.
#[derive(Clone, Copy)]
struct Candidate {
    live_blocks: u64,
    is_span: bool,
}

impl Allocator {
    /// Whoever clears something does so alone.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.clearing)
    }

    /// Whether clearing was of no use the last time, and nothing was freed since.
    pub(crate) fn clearing_is_useless(&self, blocks: u32) -> bool {
        self.none_by_moving.is_known(self.freed.load(Ordering::Acquire), blocks)
    }

    pub(crate) fn note_useless_clearing(&self, blocks: u32) {
        self.none_by_moving.note(self.freed.load(Ordering::Acquire), blocks);
    }

    /// Chooses what to clear for an extent of so many blocks, none of the spans in `tried`, and takes it from its arenas. `None`: there is nothing of which much is free.
    pub(crate) fn begin_clearing(&self, blocks: u32, tried: &mut Vec<u32>) -> Option<Clearing> {
        if blocks > self.owners.segment_blocks
            && let Some(first) = self.best_run(blocks.div_ceil(self.owners.segment_blocks), tried)
        {
            return Some(self.take_run(first, blocks.div_ceil(self.owners.segment_blocks), tried));
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
        let Some(span) = arena.remove(first, &self.owners) else { return };
        clearing.spans.push((first, Extent { place: self.owners.place_of(first), blocks: span.blocks() }));
        self.owners.set(first, span.segments, Some(self.arenas.len()));
        aside.insert(first, span);
    }

    /// The first of so many segments side by side with the fewest blocks to move.
    fn best_run(&self, segments: u32, tried: &[u32]) -> Option<u32> {
        let all = self.candidates();
        let sum = |run: &[Option<Candidate>]| -> Option<u64> {
            run.iter().try_fold(0, |sum, candidate| Some(sum + candidate.as_ref()?.live_blocks))
        };
        let runs = all.windows(segments as usize).zip(0..).filter(|(_, first)| !tried.contains(first));
        let best = runs.filter_map(|(run, first)| Some((sum(run)?, first))).min()?;
        (best.0 <= self.blocks_of(segments) / 8 * MOVED_EIGHTHS_MAX).then_some(best.1)
    }

    /// By segment what there would be to move; none: it cannot be cleared.
    fn candidates(&self) -> Vec<Option<Candidate>> {
        let mut all = vec![None; self.owners.words.len()];
        for arena in &self.arenas {
            for (first, live_blocks) in lock(arena).live_blocks_of_segments() {
                all[first as usize] = Some(Candidate { live_blocks, is_span: true });
            }
        }
        for (first, count) in lock(&self.pool).runs() {
            all[first as usize..(first + count) as usize].fill(Some(Candidate { live_blocks: 0, is_span: false }));
        }
        all
    }

    /// Takes all spans of a run from their arenas, and the segments between them from the pool.
    fn take_run(&self, first: u32, segments: u32, tried: &mut Vec<u32>) -> Clearing {
        tried.push(first);
        let (candidates, mut clearing) = (self.candidates(), Clearing::default());
        for segment in first..first + segments {
            match candidates.get(segment as usize).copied().flatten() {
                Some(Candidate { is_span: true, .. }) => {
                    let owner = self.owners.span_of(self.owners.place_of(segment));
                    if let Some((first, number)) = owner.filter(|(_, number)| *number < self.arenas.len()) {
                        self.set_aside(number, first, &mut clearing);
                    }
                }
                Some(_) if lock(&self.pool).withhold(segment, 1) => clearing.withheld.push((segment, 1)),
                // It has changed meanwhile: what can be is cleared all the same.
                _ => {}
            }
        }
        clearing
    }

    /// A free extent of at least so many blocks, from whoever has the shortest that does, exactly so long if there is one. Ends with [`Allocator::let_go`].
    pub(crate) fn take_for_move(&self, blocks: u32) -> Option<Extent> {
        let exact = self.arenas.iter().find_map(|arena| lock(arena).take_exactly(&self.owners, blocks));
        let found =
            exact.or_else(|| self.arenas.iter().find_map(|arena| lock(arena).take_listed(&self.owners, blocks)));
        self.held.fetch_add(u64::from(found.is_some()), Ordering::AcqRel);
        found
    }

    /// How long the longest free extent may be that [`Allocator::take_for_move`] finds.
    pub(crate) fn longest_listed(&self) -> u32 {
        self.arenas.iter().map(|arena| lock(arena).longest_listed()).max().unwrap_or(0)
    }

    /// Gives what was cleared to the arena of a stripe, and what is free as a whole to the pool; an extent of so many blocks, if there is one now. Ends with [`Allocator::let_go`].
    pub(crate) fn end_clearing<P: Pmem>(
        &self,
        region: &Region<P>,
        stripe: usize,
        clearing: Clearing,
        blocks: u32,
    ) -> Result<Option<Extent>, PmemError> {
        let mut failed = Ok(());
        let number = stripe % self.arenas.len();
        for (first, _) in clearing.spans {
            let (mut own, mut aside) = (lock(&self.arenas[number]), lock(&self.aside));
            let Some(span) = aside.remove(first, &self.owners) else { continue };
            self.owners.set(first, span.segments, Some(number));
            own.insert(first, span);
            failed = failed.and(self.merge(region, &mut own, first));
        }
        for (first, count) in clearing.withheld {
            lock(&self.pool).give(first, count);
        }
        failed?;
        let listed = lock(&self.arenas[number]).take_listed(&self.owners, blocks);
        let found = match listed {
            Some(found) => Some(found),
            None => self.take_span(region, stripe, blocks)?,
        };
        self.held.fetch_add(u64::from(found.is_some()), Ordering::AcqRel);
        Ok(found)
    }
}
