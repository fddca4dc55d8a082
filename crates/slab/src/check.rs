//! Putting a shard together, and checking that everything in it adds up.

use stratakv_base::Key;

use crate::batch::Batches;
use crate::blobs::Blobs;
use crate::config::{CheckReport, SlabConfig};
use crate::discard::unit_pages;
use crate::group::Groups;
use crate::grow::Volume;
use crate::health::Health;
use crate::keys::KeyQueues;
use crate::memory::Memory;
use crate::placement::Placement;
use crate::range::Ranges;
use crate::recovery::RecoveredShard;
use crate::requests::Requests;
use crate::scan::Scans;
use crate::shard::IndexedShard;
use crate::space::FIRST_PAGE;
use crate::superblock::Superblock;

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

impl<P: Placement> IndexedShard<P> {
    /// A shard from what was found.
    pub(crate) fn build(config: SlabConfig, superblock: Superblock, mut found: RecoveredShard<P>) -> Self {
        if config.read_only {
            found.placement.opened_read_only();
        } else if superblock.discarded_from > 0 {
            let unit = unit_pages(config.capacity_bytes, superblock.segment_pages);
            // Nothing is discarded where a table has a log.
            let placement = &found.placement;
            found.space.discard_from(superblock.discarded_from, unit, |extent| placement.blobs_may_lie_at(extent));
        }
        IndexedShard {
            groups: Groups::new(superblock.durable, superblock.incarnation << 40),
            batches: Batches::new(&config, found.index.batch_records()),
            volume: Volume::new(superblock),
            space: found.space,
            index: found.index,
            placement: found.placement,
            blobs: Blobs::new(found.blob_pages, found.blob_tags),
            keys: KeyQueues::default(),
            scans: Scans::default(),
            ranges: Ranges::default(),
            backup: None,
            io: Requests::new(),
            memory: Memory::default(),
            health: Health::new(found.report),
            config,
        }
    }

    /// Records in the index from this key on.
    pub fn records_from(&self, from: &Key) -> u64 {
        self.index.records_from(from)
    }

    /// Compares index, page table and space maps with each other: every physical page must be a
    /// superblock, an image, part of a blob, free, or deferred, and every index entry must name a
    /// place of its own. Exact when nothing is in flight. O(records).
    pub fn check(&self) -> CheckReport {
        let mut report = CheckReport {
            records: self.index.tree.len() as u64,
            free_pages: u64::from(self.space.free_pages()),
            deferred_pages: u64::from(self.space.deferred_pages()),
            total_pages: u64::from(self.space.total()),
            blob_pages: self.blobs.pages,
            corrupt: self.health.corruptions.clone(),
            ..CheckReport::default()
        };
        let mut mistakes = Vec::new();
        if let Err(why) = self.index.tree.check() {
            mistakes.push(format!("the index is not in order: {why}"));
        }
        match self.space.count_free() {
            Ok(marked) if marked == self.space.free_pages() => {}
            Ok(marked) => mistakes.push(format!("{marked} pages are marked free, {} counted", report.free_pages)),
            Err(why) => mistakes.push(why),
        }
        let used = P::check(self, &mut report, &mut mistakes);
        let discarded = u64::from(self.space.discarded_pages());
        let sum = u64::from(FIRST_PAGE) + used + report.free_pages + report.deferred_pages + discarded;
        if self.is_quiet() && sum != report.total_pages {
            mistakes.push(format!(
                "{used} pages in use, {} free, {} deferred, {discarded} discarded, {FIRST_PAGE} superblocks do not make {}",
                report.free_pages, report.deferred_pages, report.total_pages
            ));
        }
        report.mistakes = mistakes;
        report
    }

    /// Whether nothing is being written.
    pub(crate) fn is_quiet(&self) -> bool {
        self.placement.is_quiet()
            && self.groups.is_idle()
            && self.blobs.writes.is_idle()
            && self.health.poisoned.is_none()
    }
}
