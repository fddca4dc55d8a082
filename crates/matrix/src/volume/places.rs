//! All pages that files may lie in: those of the volume, and those of the PMEM levels in the
//! region.

use super::extents::{Clash, Extent, Extents};
use super::superblock::{FIRST_PAGE, PAGES_MAX};

/// The first page of the PMEM levels: no volume has so many. So one number says where a page is, on
/// either medium.
pub const PMEM_LEVELS_FIRST: u64 = PAGES_MAX;

/// Which pages are free, on both media.
#[derive(Clone, Debug)]
pub struct Places {
    volume: Extents,
    pmem_levels: Extents,
}

impl Places {
    /// A volume of so many pages, its superblocks aside, and PMEM levels of so many, all of them
    /// free.
    pub fn new(volume_pages: u64, pmem_levels_pages: u64) -> Places {
        let pmem_levels_end = PMEM_LEVELS_FIRST + pmem_levels_pages.min(PAGES_MAX);
        Places {
            volume: Extents::new(FIRST_PAGE, volume_pages.min(PAGES_MAX)),
            pmem_levels: Extents::new(PMEM_LEVELS_FIRST, pmem_levels_end),
        }
    }

    fn of(&mut self, extent: Extent) -> &mut Extents {
        if extent.in_pmem_levels() { &mut self.pmem_levels } else { &mut self.volume }
    }

    /// As [`Extents::claim`].
    ///
    /// # Errors
    /// Somebody else uses a page of it, or there is no such page.
    pub fn claim(&mut self, extent: Extent) -> Result<(), Clash> {
        self.of(extent).claim(extent)
    }

    /// Pages of the volume, as [`Extents::take`].
    pub fn take(&mut self, pages: u32) -> Option<Vec<Extent>> {
        self.volume.take(pages)
    }

    /// Pages of the volume side by side.
    pub fn take_contiguous(&mut self, pages: u32) -> Option<Extent> {
        self.volume.take_contiguous(pages)
    }

    /// Pages of the PMEM levels, as [`Extents::take`].
    pub fn take_in_pmem_levels(&mut self, pages: u32) -> Option<Vec<Extent>> {
        self.pmem_levels.take(pages)
    }

    /// Gives pages back, as [`Extents::give`].
    pub fn give(&mut self, extent: Extent) {
        self.of(extent).give(extent);
    }

    /// The volume has so many pages, if it had fewer.
    pub fn grow(&mut self, volume_pages: u64) {
        self.volume.grow(volume_pages.min(PAGES_MAX));
    }

    /// Pages of the volume that can be taken.
    pub fn free_pages(&self) -> u64 {
        self.volume.free_pages()
    }

    /// Pages of the volume, free or not.
    pub fn capacity(&self) -> u64 {
        self.volume.capacity()
    }

    /// The page of the volume after the last one in use.
    pub fn end(&self) -> u64 {
        self.volume.end()
    }

    /// Pages of the PMEM levels that can be taken, and of how many.
    pub fn pmem_levels_pages(&self) -> (u64, u64) {
        (self.pmem_levels.free_pages(), self.pmem_levels.capacity() - PMEM_LEVELS_FIRST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_goes_back_to_its_medium() {
        let mut places = Places::new(100, 10);
        let (here, there) = (places.take(98).unwrap(), places.take_in_pmem_levels(10).unwrap());
        assert!(!here[0].in_pmem_levels() && there[0].in_pmem_levels());
        assert_eq!((places.take(1), places.take_in_pmem_levels(1)), (None, None));
        there.into_iter().for_each(|extent| places.give(extent));
        assert_eq!((places.free_pages(), places.pmem_levels_pages()), (0, (10, 10)));
        assert!(places.claim(Extent { page: PMEM_LEVELS_FIRST + 10, pages: 1 }).is_err(), "it has ten pages");
        assert!(places.claim(Extent { page: PMEM_LEVELS_FIRST + 9, pages: 1 }).is_ok());
    }
}
