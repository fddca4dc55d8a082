//! Free pages next to each other: where the smallest hole is that a blob fits in.
//!
//! Best fit keeps large holes large: with values of 16 B to 1 MiB replaced at random, first fit has
//! no room for the longest ones beyond 90 % fill, best fit has at 95 % (docs/decisions/0013).

use std::collections::{BTreeMap, BTreeSet};

use crate::space::Extent;

/// The holes of a volume; neighbours are one hole. O(log holes) for each change, some 40 bytes for
/// each hole.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    by_first: BTreeMap<u32, u32>,
    /// (pages, first).
    by_pages: BTreeSet<(u32, u32)>,
}

impl Holes {
    fn insert(&mut self, first: u32, pages: u32) {
        self.by_first.insert(first, pages);
        self.by_pages.insert((pages, first));
    }

    fn remove(&mut self, first: u32, pages: u32) {
        self.by_first.remove(&first);
        self.by_pages.remove(&(pages, first));
    }

    /// The hole that `page` lies in or follows.
    fn before(&self, page: u32) -> Option<Extent> {
        self.by_first.range(..=page).next_back().map(|(first, pages)| Extent { first: *first, pages: *pages })
    }

    /// These pages, all of them in use till now, are free.
    pub(crate) fn free(&mut self, extent: Extent) {
        let (mut first, mut end) = (extent.first, extent.first + extent.pages);
        if let Some(before) = self.before(first).filter(|hole| hole.first + hole.pages == first) {
            self.remove(before.first, before.pages);
            first = before.first;
        }
        if let Some(pages) = self.by_first.get(&end).copied() {
            self.remove(end, pages);
            end += pages;
        }
        self.insert(first, end - first);
    }

    /// These pages, all of them free till now, are in use.
    pub(crate) fn take(&mut self, extent: Extent) {
        let Some(hole) = self.before(extent.first) else { return };
        let (end, hole_end) = (extent.first + extent.pages, hole.first + hole.pages);
        debug_assert!(end <= hole_end, "{extent:?} is not in the hole {hole:?}");
        self.remove(hole.first, hole.pages);
        if hole.first < extent.first {
            self.insert(hole.first, extent.first - hole.first);
        }
        if end < hole_end {
            self.insert(end, hole_end - end);
        }
    }

    /// Where `pages` go: in the smallest hole that has room, at an end of it that breaks no whole
    /// segment, if one of them does not.
    pub(crate) fn best_fit(&self, pages: u32, segment_pages: u32) -> Option<u32> {
        let (hole_pages, first) = self.by_pages.range((pages, 0)..).next().copied()?;
        let end = first + hole_pages;
        let (front, tail) = (first.next_multiple_of(segment_pages) - first, end % segment_pages);
        Some(if pages > front && pages <= tail { end - pages } else { first })
    }

    pub(crate) fn footprint_bytes(&self) -> usize {
        self.by_first.len() * 40
    }

    /// All of them, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = Extent> {
        self.by_first.iter().map(|(first, pages)| Extent { first: *first, pages: *pages })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holes_of(extents: &[(u32, u32)]) -> Holes {
        let mut holes = Holes::default();
        extents.iter().for_each(|(first, pages)| holes.free(Extent { first: *first, pages: *pages }));
        holes
    }

    #[test]
    fn neighbours_become_one_hole_and_are_split_again() {
        let mut holes = holes_of(&[(10, 5), (20, 5), (15, 5)]);
        assert_eq!(holes.all().collect::<Vec<_>>(), [Extent { first: 10, pages: 15 }]);
        holes.take(Extent { first: 12, pages: 3 });
        let left = [Extent { first: 10, pages: 2 }, Extent { first: 15, pages: 10 }];
        assert_eq!(holes.all().collect::<Vec<_>>(), left);
        holes.take(left[0]);
        holes.take(left[1]);
        assert_eq!((holes.all().count(), holes.footprint_bytes()), (0, 0));
    }

    #[test]
    fn a_blob_goes_into_the_smallest_hole_and_breaks_no_whole_segment_if_it_need_not() {
        // Segments of 100 pages: 3 free ones from 100 on with a tail of 40, and holes of 30 and 60.
        let holes = holes_of(&[(2, 30), (40, 58), (100, 340)]);
        assert_eq!(holes.best_fit(30, 100), Some(2));
        assert_eq!(holes.best_fit(31, 100), Some(40));
        assert_eq!(holes.best_fit(59, 100), Some(100));
        let tailed = holes_of(&[(100, 340)]);
        assert_eq!(tailed.best_fit(40, 100), Some(400));
        let fronted = holes_of(&[(150, 350)]);
        assert_eq!((fronted.best_fit(50, 100), fronted.best_fit(400, 100)), (Some(150), None));
    }
}
