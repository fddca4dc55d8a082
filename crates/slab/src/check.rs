//! Putting a shard together, and checking that everything in it adds up.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};

use foldhash::HashMap;
use stratakv_base::Key;
use stratakv_engine::{IoTable, ShardEvent};

use crate::batch::{Batches, batch_records};
use crate::blob_read::BlobReads;
use crate::config::{CheckReport, SlabConfig};
use crate::group::Groups;
use crate::place::blob_of;
use crate::placement::Placement;
use crate::recovery::RecoveredShard;
use crate::shard::{Closing, Counters, DebugTree, IndexedShard};
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
    /// Every blob of an index.
    pub(crate) fn blobs(&mut self, index: &DebugTree) {
        index.0.scan(Bound::Unbounded, Bound::Unbounded, false, &mut |_, entry| {
            blob_of(entry.place).into_iter().for_each(|(first, _)| self.blob(first));
            ControlFlow::Continue(())
        });
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
        }
        let corruptions = found.report.corrupt.clone();
        let events = found.report.read_in_full.map(|why| ShardEvent::ReadInFull { why });
        let batches = Batches::new(&config, batch_records(&found.index.0));
        let groups = Groups::new(superblock.durable);
        IndexedShard {
            counter: superblock.incarnation << 40,
            superblock,
            report: found.report,
            index: found.index,
            placement: found.placement,
            space: found.space,
            io: IoTable::new(),
            pending: HashMap::default(),
            groups,
            blob_reads: BlobReads::default(),
            blob_writes: Default::default(),
            scans: Default::default(),
            ranges: Default::default(),
            batches,
            backup: None,
            growth: Default::default(),
            space_waiters: Vec::new(),
            block_waiters: VecDeque::new(),
            blob_pages: found.blob_pages,
            blob_tags: found.blob_tags,
            expiring: found.expiring,
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
        let used = P::check(self, &mut report, &mut mistakes);
        let sum = u64::from(FIRST_PAGE) + used + report.free_pages + report.deferred_pages;
        if self.is_quiet() && sum != report.total_pages {
            mistakes.push(format!(
                "{used} pages in use, {} free, {} deferred, {FIRST_PAGE} superblocks do not make {}",
                report.free_pages, report.deferred_pages, report.total_pages
            ));
        }
        report.mistakes = mistakes;
        report
    }

    /// Whether nothing is being written.
    pub(crate) fn is_quiet(&self) -> bool {
        self.placement.is_idle() && self.groups.is_idle() && self.blob_writes.is_idle() && self.poisoned.is_none()
    }
}
