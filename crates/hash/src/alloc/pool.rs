//! Segments in no span.

use std::collections::{BTreeMap, BTreeSet};

/// Runs of segments: first segment, count; and the same by count.
#[derive(Debug, Default)]
pub(super) struct Pool {
    runs: BTreeMap<u32, u32>,
    by_count: BTreeSet<(u32, u32)>,
    /// Of all runs.
    segments: u32,
}

impl Pool {
    pub(super) fn segments(&self) -> u32 {
        self.segments
    }

    pub(super) fn footprint_bytes(&self) -> u64 {
        // Both trees, whose nodes are half full at worst.
        (self.runs.len() * 4 * size_of::<(u32, u32)>()) as u64
    }

    fn add(&mut self, first: u32, count: u32) {
        if count > 0 {
            self.runs.insert(first, count);
            self.by_count.insert((count, first));
            self.segments += count;
        }
    }

    /// Takes a run out; how many segments it had.
    fn remove(&mut self, first: u32) -> Option<u32> {
        let count = self.runs.remove(&first)?;
        self.by_count.remove(&(count, first));
        self.segments -= count;
        Some(count)
    }

    /// Segments side by side, from the shortest run that has so many.
    pub(super) fn take(&mut self, count: u32) -> Option<u32> {
        let (len, first) = *self.by_count.range((count, 0)..).next()?;
        self.remove(first);
        self.add(first + count, len - count);
        Some(first)
    }

    pub(super) fn give(&mut self, mut first: u32, mut count: u32) {
        let before = self.runs.range(..first).next_back().map(|(before, len)| (*before, *len));
        if let Some((before, len)) = before.filter(|(before, len)| before + len == first) {
            self.remove(before);
            (first, count) = (before, len + count);
        }
        count += self.remove(first + count).unwrap_or(0);
        self.add(first, count);
    }

    /// Takes these segments out, if all are in the pool.
    pub(super) fn withhold(&mut self, first: u32, count: u32) -> bool {
        let run = self.runs.range(..=first).next_back().map(|(start, len)| (*start, *len));
        let Some((start, len)) = run.filter(|(start, len)| start + len >= first + count) else { return false };
        self.remove(start);
        self.add(start, first - start);
        self.add(first + count, start + len - first - count);
        true
    }

    /// First segment and count of each run.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u32, u32)> {
        self.runs.iter().map(|(first, count)| (*first, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_meet_again_and_the_shortest_that_does_is_taken() {
        let mut pool = Pool::default();
        pool.give(0, 20);
        pool.withhold(4, 2);
        pool.withhold(10, 1);
        assert_eq!(pool.runs, [(0, 4), (6, 4), (11, 9)].into());
        assert_eq!(pool.take(5), Some(11));
        assert_eq!((pool.take(4), pool.take(4)), (Some(0), Some(6)));
        assert_eq!((pool.take(5), pool.segments()), (None, 4));
        for (first, count) in [(11, 5), (4, 2), (10, 1), (0, 4), (6, 4)] {
            pool.give(first, count);
        }
        assert_eq!((pool.runs.clone(), pool.by_count.clone()), ([(0, 20)].into(), [(20, 0)].into()));
        assert_eq!(pool.segments(), 20);
    }
}
