//! Putting a shard together, and checking that everything in it adds up.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};

use foldhash::HashSet;
use stratakv_base::Key;
use stratakv_engine::ShardEvent;
use stratakv_index::PageCache;

use crate::batch::Batches;
use crate::config::{CheckReport, SlabConfig};
use crate::group::Groups;
use crate::place::RecordPlace;
use crate::recovery::RecoveredShard;
use crate::slab::{Closing, Counters, DebugCache, Slab, new_map};
use crate::space::FIRST_PAGE;
use crate::superblock::Superblock;
use crate::table::NOWHERE;
use stratakv_engine::IoTable;

/// A sum over all pages and blobs, independent of order: an orderly close records it, the next
/// recovery compares it, so that lost or outdated pages are noticed even where nothing else tells
/// of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn page(&mut self, logical: u32, tag: u32) {
        self.add(u64::from(logical) << 32 | u64::from(tag));
    }
    pub(crate) fn blob(&mut self, first: u32) {
        self.add(1 << 63 | u64::from(first));
    }
    fn add(&mut self, item: u64) {
        self.0 = self.0.wrapping_add(stratakv_base::random::Random::new(item).next_u64());
    }
    pub(crate) fn sum(self) -> u64 {
        self.0
    }
}

impl Slab {
    /// A shard from what was found.
    pub(crate) fn build(config: SlabConfig, superblock: Superblock, mut found: RecoveredShard) -> Slab {
        if let Some(packed) = found.packed.as_mut().filter(|_| config.read_only) {
            // A copy of a table that does not check stays as it is: closing must not wait for it to
            // be written.
            packed.tables.abandon();
        }
        let corruptions = found.report.corrupt.clone();
        let events = found.report.read_in_full.map(|why| ShardEvent::ReadInFull { why });
        let batches = Batches::new(&config, Slab::batch_records(&found.index.0));
        let groups = Groups::new(superblock.durable);
        Slab {
            counter: superblock.incarnation << 40,
            superblock,
            report: found.report,
            index: found.index,
            table: found.table,
            packed: found.packed,
            space: found.space,
            cache: DebugCache(PageCache::new()),
            io: IoTable::new(),
            pending: new_map(),
            images: new_map(),
            groups,
            reads: Default::default(),
            blob_reads: Default::default(),
            blob_writes: Default::default(),
            scans: Default::default(),
            ranges: Default::default(),
            batches,
            backup: None,
            growth: Default::default(),
            obsolete: found.obsolete,
            obsolete_queue: found.obsolete_queue,
            space_waiters: Vec::new(),
            block_waiters: VecDeque::new(),
            unplaced_pages: 0,
            blob_pages: found.blob_pages,
            blob_tags: found.blob_tags,
            expiring: found.expiring,
            lost_slots: found.lost_slots,
            sweep_from: None,
            sweep_at: Default::default(),
            pending_acks: VecDeque::new(),
            is_flushing: false,
            poisoned: None,
            closing: Closing::Open,
            counters: Counters::default(),
            corruptions,
            events: events.into_iter().collect(),
            is_full: false,
            zeroes: None,
            ticks: 0,
            next_budget_at: 0,
            config,
        }
    }

    /// Records in the index from this key on.
    pub fn records_from(&self, from: &Key) -> u64 {
        let mut records = 0;
        self.index.0.scan(Bound::Included(from.encoded()), Bound::Unbounded, false, &mut |_, _| {
            records += 1;
            ControlFlow::Continue(())
        });
        records
    }

    /// The digest of the durable state.
    pub(crate) fn digest(&self) -> u64 {
        if let Some(packed) = &self.packed {
            return crate::packed::recovery::packed_digest(packed, &self.index);
        }
        let mut digest = Digest::default();
        self.table.iter().filter(|(_, page)| page.place != NOWHERE).for_each(|(logical, page)| {
            digest.page(logical, page.tag);
        });
        self.index.0.scan(Bound::Unbounded, Bound::Unbounded, false, &mut |_, entry| {
            if let RecordPlace::Blob { first, .. } = RecordPlace::from_bits(entry.place) {
                digest.blob(first);
            }
            ControlFlow::Continue(())
        });
        digest.sum()
    }

    /// Compares index, page table and space maps with each other: every physical page must be a
    /// superblock, an image, part of a blob, free, or deferred, and every index entry must name a
    /// place of its own. Exact when nothing is in flight. O(records).
    pub fn check(&self) -> CheckReport {
        let mut report = CheckReport {
            records: self.index.0.len() as u64,
            free_pages: u64::from(self.space.free_pages()),
            deferred_pages: u64::from(self.space.deferred_pages()),
            total_pages: u64::from(self.space.total()),
            blob_pages: self.blob_pages,
            obsolete: self.obsolete.values().map(|copies| copies.len() as u64).sum(),
            corrupt: self.corruptions.clone(),
            ..CheckReport::default()
        };
        let mut mistakes = Vec::new();
        if let Err(why) = self.index.0.check() {
            mistakes.push(format!("the index is not in order: {why}"));
        }
        match self.space.count_free() {
            Ok(marked) if marked == self.space.free_pages() => {}
            Ok(marked) => mistakes.push(format!("{marked} pages are marked free, {} counted", report.free_pages)),
            Err(why) => mistakes.push(why),
        }
        let used = match &self.packed {
            Some(packed) => self.check_packed(packed, &mut report, &mut mistakes),
            None => {
                let mut used = self.check_table(&mut report, &mut mistakes);
                self.check_index(&mut used, &mut report, &mut mistakes);
                used
            }
        };
        let sum = u64::from(FIRST_PAGE) + used + report.free_pages + report.deferred_pages;
        let in_flight = self.images.values().filter(|image| image.writing.is_some()).count();
        if self.is_quiet() && sum != report.total_pages {
            mistakes.push(format!(
                "{used} pages in use, {} free, {} deferred, {FIRST_PAGE} superblocks do not make {} ({in_flight} being written)",
                report.free_pages, report.deferred_pages, report.total_pages
            ));
        }
        let unplaced = self.table.iter().filter(|(logical, page)| {
            page.place == NOWHERE && self.images.get(logical).is_some_and(|image| image.dirty.is_some())
        });
        let unplaced = unplaced.count() as u64;
        if self.poisoned.is_none() && unplaced != u64::from(self.unplaced_pages) {
            mistakes.push(format!("{} pages are counted as waiting for a place, {unplaced} do", self.unplaced_pages));
        }
        report.mistakes = mistakes;
        report
    }

    fn is_quiet(&self) -> bool {
        self.packed.as_ref().is_none_or(|packed| packed.is_idle())
            && self.images.is_empty()
            && self.groups.is_idle()
            && self.blob_writes.is_idle()
            && self.poisoned.is_none()
    }

    fn check_table(&self, report: &mut CheckReport, mistakes: &mut Vec<String>) -> u64 {
        let mut places = HashSet::default();
        for (logical, page) in self.table.iter().filter(|(_, page)| page.place != NOWHERE) {
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
        let pages = self.table.iter().filter(|(_, page)| page.place != NOWHERE);
        pages.map(|(_, page)| u64::from(page.class.slots() - page.free)).sum()
    }

    fn check_index(&self, used: &mut u64, report: &mut CheckReport, mistakes: &mut Vec<String>) {
        let mut places = HashSet::default();
        let mut blob_pages = 0;
        let mut visit = |place: RecordPlace, key: &[u8]| {
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
                RecordPlace::Record(_) => mistakes.push(format!("{} lies in a log", key.escape_ascii())),
                RecordPlace::Slot { logical, slot } => {
                    let page =
                        self.table.get(logical).filter(|page| page.place != NOWHERE && slot < page.class.slots());
                    if page.is_none() {
                        mistakes.push(format!("{} lies in page {logical}, which does not exist", key.escape_ascii()));
                    }
                }
            }
        };
        self.index.0.scan(Bound::Unbounded, Bound::Unbounded, false, &mut |key, entry| {
            visit(RecordPlace::from_bits(entry.place), key);
            ControlFlow::Continue(())
        });
        for (key, copies) in &self.obsolete {
            copies.iter().for_each(|copy| visit(copy.place, key.encoded()));
        }
        let slots: u64 = self.taken_slots();
        let owned = places.iter().filter(|place| matches!(place, RecordPlace::Slot { .. })).count() as u64;
        if self.is_quiet() && slots != owned + self.lost_slots {
            let lost = self.lost_slots;
            mistakes.push(format!("{slots} slots are taken, but {owned} have a key and {lost} are lost to damage"));
        }
        // Blobs whose key is lost keep their pages.
        if blob_pages > self.blob_pages {
            mistakes.push(format!("blobs have {blob_pages} pages, {} were counted", self.blob_pages));
        }
        *used += self.blob_pages;
    }
}
