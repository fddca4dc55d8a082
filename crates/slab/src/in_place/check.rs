//! Checking that pages, slots and the index agree.

use std::ops::{Bound, ControlFlow};

use foldhash::HashSet;

use super::table::NOWHERE;
use super::{Slab, SlotAddress, SlotPlace};
use crate::check::Digest;
use crate::config::CheckReport;
use crate::place::RecordPlace;

impl Slab {
    /// A sum over the pages and blobs of the durable state.
    pub(crate) fn digest_of_pages(&self) -> u64 {
        let mut digest = Digest::default();
        self.placement.table.iter().filter(|(_, page)| page.place != NOWHERE).for_each(|(logical, page)| {
            digest.page(logical, page.tag);
        });
        self.index.blobs(|first| digest.blob(first));
        digest.sum()
    }

    /// Compares the page table with the index and the space map; the pages in use.
    pub(crate) fn check_pages(&self, report: &mut CheckReport, mistakes: &mut Vec<String>) -> u64 {
        report.obsolete = self.placement.obsolete.iter().count() as u64;
        let mut used = self.check_table(report, mistakes);
        self.check_index(&mut used, report, mistakes);
        let unplaced = self.placement.table.iter().filter(|(logical, page)| {
            page.place == NOWHERE && self.placement.images.get(logical).is_some_and(|image| image.dirty.is_some())
        });
        let (unplaced, counted) = (unplaced.count() as u64, self.placement.unplaced_pages);
        if self.health.poisoned.is_none() && unplaced != u64::from(counted) {
            mistakes.push(format!("{counted} pages are counted as waiting for a place, {unplaced} do"));
        }
        used
    }

    fn check_table(&self, report: &mut CheckReport, mistakes: &mut Vec<String>) -> u64 {
        let mut places = HashSet::default();
        for (logical, page) in self.placement.table.iter().filter(|(_, page)| page.place != NOWHERE) {
            report.pages += 1;
            if self.space.is_free(page.place) {
                mistakes.push(format!("page {logical} lies at {}, which is marked free", page.place));
            }
            if !places.insert(page.place) {
                mistakes.push(format!("two pages lie at {}", page.place));
            }
        }
        places.len() as u64
    }

    fn taken_slots(&self) -> u64 {
        let pages = self.placement.table.iter().filter(|(_, page)| page.place != NOWHERE);
        pages.map(|(_, page)| u64::from(page.class.slots() - page.free)).sum()
    }

    fn check_index(&self, used: &mut u64, report: &mut CheckReport, mistakes: &mut Vec<String>) {
        let mut places = HashSet::default();
        let mut blob_pages = 0;
        let mut visit = |place: SlotPlace, key: &[u8]| {
            if !places.insert(place) {
                mistakes.push(format!("{place:?} belongs to two keys, one is {}", key.escape_ascii()));
            }
            match place {
                RecordPlace::Blob { first, pages } => {
                    report.blobs += 1;
                    blob_pages += u64::from(pages);
                    if (first..first + pages).any(|page| self.space.is_free(page)) {
                        mistakes.push(format!("pages of the blob at {first} are marked free"));
                    }
                }
                RecordPlace::Record(SlotAddress { logical, slot }) => {
                    let page = self
                        .placement
                        .table
                        .get(logical)
                        .filter(|page| page.place != NOWHERE && slot < page.class.slots());
                    if page.is_none() {
                        mistakes.push(format!("{} lies in page {logical}, which does not exist", key.escape_ascii()));
                    }
                }
            }
        };
        self.index.tree.scan(Bound::Unbounded, Bound::Unbounded, false, &mut |key, entry| {
            visit(RecordPlace::from_bits(entry.place), key);
            ControlFlow::Continue(())
        });
        self.placement.obsolete.iter().for_each(|(key, place)| visit(place, key.encoded()));
        let slots: u64 = self.taken_slots();
        let owned = places.iter().filter(|place| matches!(place, RecordPlace::Record(_))).count() as u64;
        if self.is_quiet() && slots != owned + self.placement.lost_slots {
            let lost = self.placement.lost_slots;
            mistakes.push(format!("{slots} slots are taken, but {owned} have a key and {lost} are lost to damage"));
        }
        // Blobs whose key is lost keep their pages.
        if blob_pages > self.blobs.pages {
            mistakes.push(format!("blobs have {blob_pages} pages, {} were counted", self.blobs.pages));
        }
        *used += self.blobs.pages;
    }
}
