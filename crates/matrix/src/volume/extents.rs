//! Which pages of a volume are free.

use std::collections::BTreeMap;

use super::places::PMEM_LEVELS_FIRST;

/// A run of pages of the volume, or of the PMEM levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first one.
    pub page: u64,
    /// How many.
    pub pages: u32,
}

impl Extent {
    /// The page after the last one.
    pub fn end(self) -> u64 {
        self.page + u64::from(self.pages)
    }

    /// Whether it lies in the PMEM levels.
    pub fn in_pmem_levels(self) -> bool {
        self.page >= PMEM_LEVELS_FIRST
    }

    /// Where page `ordinal` of what lies in `extents`, one after the other, is on the volume.
    pub fn locate(extents: &[Extent], ordinal: u32) -> Option<u64> {
        let mut left = ordinal;
        for extent in extents {
            if left < extent.pages {
                return Some(extent.page + u64::from(left));
            }
            left -= extent.pages;
        }
        None
    }
}

/// Free pages: holes, and everything from `end` up to the capacity. O(log holes) for each call,
/// O(holes) to take some.
#[derive(Clone, Debug)]
pub struct Extents {
    /// First page of each hole, its pages. No two touch, none touches `end`.
    holes: BTreeMap<u64, u64>,
    end: u64,
    capacity: u64,
    first: u64,
    /// Pages that somebody has.
    used: u64,
}

/// Two extents want the same page, or one lies outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clash(pub Extent);

impl Extents {
    /// All pages from `first` to `capacity` are free.
    pub fn new(first: u64, capacity: u64) -> Extents {
        Extents { holes: BTreeMap::new(), end: first, capacity, first, used: 0 }
    }

    /// Takes what is in use already, at opening.
    ///
    /// # Errors
    /// Somebody else uses a page of it.
    pub fn claim(&mut self, extent: Extent) -> Result<(), Clash> {
        if extent.pages == 0 || extent.end() > self.capacity.max(self.end) {
            return Err(Clash(extent));
        }
        if extent.page >= self.end {
            if extent.page > self.end {
                self.holes.insert(self.end, extent.page - self.end);
            }
            self.end = extent.end();
            self.used += u64::from(extent.pages);
            return Ok(());
        }
        let hole = self.holes.range(..=extent.page).next_back().map(|(page, pages)| (*page, *pages));
        let (page, pages) = hole.filter(|(page, pages)| page + pages >= extent.end()).ok_or(Clash(extent))?;
        self.cut(page, pages, extent);
        self.used += u64::from(extent.pages);
        Ok(())
    }

    /// Takes `extent` out of the hole that it lies in.
    fn cut(&mut self, page: u64, pages: u64, extent: Extent) {
        self.holes.remove(&page);
        if extent.page > page {
            self.holes.insert(page, extent.page - page);
        }
        if page + pages > extent.end() {
            self.holes.insert(extent.end(), page + pages - extent.end());
        }
    }

    /// So many pages, in as few pieces as can be had: from the smallest hole that is long enough,
    /// from the end of the volume, else from the largest holes. `None`, and nothing taken, if there
    /// are not so many.
    pub fn take(&mut self, pages: u32) -> Option<Vec<Extent>> {
        if u64::from(pages) > self.free_pages() {
            return None;
        }
        self.used += u64::from(pages);
        let fits = self.holes.iter().filter(|(_, len)| **len >= u64::from(pages)).min_by_key(|(_, len)| **len);
        if let Some((page, len)) = fits.map(|(page, len)| (*page, *len)) {
            let extent = Extent { page, pages };
            self.cut(page, len, extent);
            return Some(vec![extent]);
        }
        if self.capacity.saturating_sub(self.end) >= u64::from(pages) {
            let extent = Extent { page: self.end, pages };
            self.end += u64::from(pages);
            return Some(vec![extent]);
        }
        Some(self.take_pieces(pages))
    }

    /// So many pages side by side.
    pub fn take_contiguous(&mut self, pages: u32) -> Option<Extent> {
        match self.take(pages)?.as_slice() {
            [extent] => Some(*extent),
            pieces => {
                pieces.iter().for_each(|piece| self.give(*piece));
                None
            }
        }
    }

    fn take_pieces(&mut self, pages: u32) -> Vec<Extent> {
        let (mut taken, mut left) = (Vec::new(), u64::from(pages));
        while left > 0 {
            let largest = self.holes.iter().max_by_key(|(_, len)| **len).map(|(page, len)| (*page, *len));
            let extent = match largest {
                Some((page, len)) => {
                    let extent = Extent { page, pages: len.min(left) as u32 };
                    self.cut(page, len, extent);
                    extent
                }
                None => {
                    let extent = Extent { page: self.end, pages: left as u32 };
                    self.end += left;
                    extent
                }
            };
            left -= u64::from(extent.pages);
            taken.push(extent);
        }
        taken
    }

    /// Gives pages back.
    ///
    /// # Panics
    /// If one of them is free already.
    pub fn give(&mut self, extent: Extent) {
        let before = self.holes.range(..extent.end()).next_back().map(|(page, pages)| (*page, *pages));
        assert!(
            extent.end() <= self.end && before.is_none_or(|(page, pages)| page + pages <= extent.page),
            "pages {} to {} are free already",
            extent.page,
            extent.end()
        );
        let (mut page, mut pages) = (extent.page, u64::from(extent.pages));
        self.used -= pages;
        if let Some((left, len)) = before.filter(|(left, len)| left + len == page) {
            self.holes.remove(&left);
            (page, pages) = (left, pages + len);
        }
        if let Some(len) = self.holes.remove(&(page + pages)) {
            pages += len;
        }
        if page + pages == self.end {
            self.end = page;
        } else {
            self.holes.insert(page, pages);
        }
    }

    /// The volume has so many pages now, if it had fewer.
    pub fn grow(&mut self, capacity: u64) {
        self.capacity = self.capacity.max(capacity);
    }

    /// Pages that can be taken.
    pub fn free_pages(&self) -> u64 {
        (self.end - self.first - self.used) + self.capacity.saturating_sub(self.end)
    }

    /// Pages of the volume, free or not.
    pub fn capacity(&self) -> u64 {
        self.capacity.max(self.end)
    }

    /// The page after the last one in use.
    pub fn end(&self) -> u64 {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stratakv_base::random::Random;

    use super::*;

    #[test]
    fn the_smallest_hole_that_fits_is_taken() {
        let mut extents = Extents::new(2, 100);
        let taken: Vec<_> = (0..8).map(|_| extents.take(10).unwrap()[0]).collect();
        for extent in [taken[1], taken[2], taken[5]] {
            extents.give(extent);
        }
        assert_eq!(extents.take(7), Some(vec![Extent { page: 52, pages: 7 }]));
        assert_eq!(extents.take(12), Some(vec![Extent { page: 12, pages: 12 }]));
        assert_eq!(extents.take(18), Some(vec![Extent { page: 82, pages: 18 }]), "at the end");
        assert_eq!(extents.take(12), None, "there are 11");
        assert_eq!(extents.take(11).map(|taken| taken.len()), Some(2), "in pieces");
        assert_eq!(extents.free_pages(), 0);
    }

    #[test]
    #[should_panic(expected = "are free already")]
    fn pages_are_not_freed_twice() {
        let mut extents = Extents::new(0, 100);
        let taken = extents.take(20).unwrap()[0];
        extents.give(Extent { page: 3, pages: 4 });
        extents.give(taken);
    }

    #[test]
    fn two_cannot_claim_one_page() {
        let mut extents = Extents::new(0, 100);
        extents.claim(Extent { page: 10, pages: 5 }).unwrap();
        assert!(extents.claim(Extent { page: 14, pages: 1 }).is_err());
        assert!(extents.claim(Extent { page: 8, pages: 3 }).is_err());
        assert!(extents.claim(Extent { page: 99, pages: 2 }).is_err());
        extents.claim(Extent { page: 8, pages: 2 }).unwrap();
        assert_eq!(extents.free_pages(), 93);
    }

    proptest! {
        #[test]
        fn no_page_has_two_owners(seed in any::<u64>()) {
            let (mut random, mut extents, mut held) = (Random::new(seed), Extents::new(2, 400), Vec::<Extent>::new());
            for _ in 0..200 {
                if random.below(2) == 0 {
                    held.extend(extents.take(1 + random.below(40) as u32).into_iter().flatten());
                } else if !held.is_empty() {
                    extents.give(held.swap_remove(random.below(held.len() as u64) as usize));
                }
                let mut pages: Vec<u64> = held.iter().flat_map(|extent| extent.page..extent.end()).collect();
                prop_assert_eq!(pages.len() as u64 + extents.free_pages(), 398);
                pages.sort_unstable();
                prop_assert!(pages.windows(2).all(|pair| pair[0] != pair[1]));
                let mut again = Extents::new(2, 400);
                for extent in &held {
                    prop_assert!(again.claim(*extent).is_ok());
                }
                prop_assert_eq!(again.free_pages(), extents.free_pages());
            }
        }
    }
}
