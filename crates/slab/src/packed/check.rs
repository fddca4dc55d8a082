//! Checking that everything in a log adds up, and what is told of it.

use std::ops::{Bound, ControlFlow};

use foldhash::{HashMap, HashSet};
use stratakv_engine::Statistic;

use super::segments::State;
use super::{Log, Packed};
use crate::config::CheckReport;
use crate::place::RecordPlace;
use crate::placement::Placement;

impl Packed {
    /// Compares index, pointers and segments: every place is of one key, lies in a segment in use,
    /// and live bytes are their sum. The pages in use.
    pub(crate) fn check_log(&self, report: &mut CheckReport, mistakes: &mut Vec<String>) -> u64 {
        let mut live: HashMap<u32, u64> = HashMap::default();
        let mut places = HashSet::default();
        let (mut blobs, mut blob_pages) = (HashSet::default(), 0);
        self.index.tree.scan(Bound::Unbounded, Bound::Unbounded, false, &mut |key, entry| {
            let place = RecordPlace::from_bits(entry.place);
            let addr = match place {
                RecordPlace::Record(addr) => Some(addr),
                RecordPlace::Blob { first, pages } => {
                    blobs.insert(first);
                    blob_pages += u64::from(pages);
                    if (first..first + pages).any(|page| self.space.is_free(page)) {
                        mistakes.push(format!("pages of the blob at {first} are marked free"));
                    }
                    self.placement.pointers.get(&first).copied()
                }
            };
            let Some(addr) = addr.filter(|addr| places.insert(*addr)) else {
                mistakes.push(format!("{} lies nowhere, or with another key: {place:?}", key.escape_ascii()));
                return ControlFlow::Continue(());
            };
            *live.entry(self.placement.segments.of(addr)).or_default() += u64::from(addr.bytes());
            ControlFlow::Continue(())
        });
        report.blobs = blobs.len() as u64;
        if self.placement.pointers.len() != blobs.len() || blob_pages != self.blobs.pages {
            let known = self.placement.pointers.len();
            mistakes.push(format!(
                "{} blobs of {blob_pages} pages, {known} records of blobs, {} pages counted",
                blobs.len(),
                self.blobs.pages
            ));
        }
        let mut pages = u64::from(2 * self.placement.tables.zones.len() as u32) + blob_pages;
        for (number, segment) in self.placement.segments.iter() {
            let named = live.remove(&number).unwrap_or_default() + u64::from(segment.tombstones);
            let quiet = segment.in_flight == 0 && segment.moving == 0 && self.placement.is_idle();
            if quiet && named != u64::from(segment.live) && self.placement.segments.miscounted == 0 {
                mistakes
                    .push(format!("segment {number} has {} live bytes, {named} are named: {segment:?}", segment.live));
            }
            if segment.state == State::Free {
                continue;
            }
            pages += u64::from(self.placement.segments.pages);
            report.pages += u64::from(segment.end);
            let first = number * self.placement.segments.pages;
            if (first..first + self.placement.segments.pages).any(|page| self.space.is_free(page)) {
                mistakes.push(format!("pages of segment {number} are marked free: {segment:?}"));
            }
        }
        if self.placement.segments.miscounted > 0 {
            let found = format!("{} records that died where nothing was alive", self.placement.segments.miscounted);
            report.corrupt.push(self.corruption(0, "sum of live bytes", "a disk that tells the truth".into(), &found));
        }
        pages
    }
}

impl Log {
    /// Appends counters and gauges.
    pub(super) fn append_statistics(&self, out: &mut Vec<Statistic>) {
        let (segments, counters) = (&self.segments, &self.counters);
        let mut add = |name, value| out.push(Statistic { name, value });
        add("segments_used", u64::from(segments.used()));
        add("segment_bytes", u64::from(segments.bytes()));
        add("live_bytes", segments.live_bytes());
        add("tombstone_bytes", segments.tombstone_bytes());
        add("log_batches", counters.batches);
        add("user_bytes", counters.user_bytes);
        add("cleaned_bytes", counters.moved_bytes);
        add("reclustered_bytes", counters.reclustered_bytes);
        add("sorts", counters.sorts);
        add("sorted_bytes", counters.sorted_bytes);
        add("sort_read_bytes", counters.sort_read_bytes);
        add("cleaner_read_bytes", counters.cleaner_read_bytes);
        add("segments_cleaned", counters.segments_freed);
        add("tombstones_dropped", counters.tombstones_dropped);
        add("segment_read_errors", counters.segment_read_errors);
        add("checkpoints", self.checkpoints.made);
        add("checkpoint_bytes", self.checkpoints.bytes);
        add("checkpoint_segments", u64::from(self.checkpoints.held()));
        add("checkpoint_log_bytes", self.checkpoints.log_bytes);
    }
}
