//! Deletes of ranges. Each is one record of the log; from there it goes to the manifest, and hides
//! what is older in its range until that is gone. No table has any of them: a reader asks this
//! list, which is short.

use std::sync::Arc;

use stratakv_base::fault_point;

/// All keys of a range were deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeDelete {
    /// The first key, encoded.
    pub from: Box<[u8]>,
    /// The first key behind it.
    pub to: Box<[u8]>,
    /// When: it hides the versions below this one.
    pub version: u64,
}

impl RangeDelete {
    /// Whether these keys are all in it.
    fn has(&self, first: &[u8], last: &[u8]) -> bool {
        &self.from[..] <= first && last < &self.to[..]
    }

    /// Whether some key from the one to the other can be in it.
    pub(crate) fn meets(&self, first: &[u8], last: &[u8]) -> bool {
        &self.from[..] <= last && first < &self.to[..]
    }
}

/// A part of the key space that the same ranges cover, by the versions of those, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fragment {
    from: Arc<[u8]>,
    to: Arc<[u8]>,
    versions: Vec<u64>,
}

/// The deletes that hide something, perhaps.
#[derive(Clone, Debug, Default)]
pub struct RangeDeletes {
    /// Oldest first.
    all: Vec<RangeDelete>,
    /// In order, none empty.
    fragments: Vec<Fragment>,
}

impl RangeDeletes {
    /// Of these. O(n² log n).
    pub fn new(mut all: Vec<RangeDelete>) -> RangeDeletes {
        all.sort_by_key(|range| range.version);
        all.dedup_by_key(|range| range.version);
        let mut bounds: Vec<Arc<[u8]>> =
            all.iter().flat_map(|range| [&range.from, &range.to]).map(|bound| Arc::from(&bound[..])).collect();
        bounds.sort();
        bounds.dedup();
        let fragment = |(from, to): (&Arc<[u8]>, &Arc<[u8]>)| {
            let over = all.iter().filter(|range| range.from[..] <= from[..] && to[..] <= range.to[..]);
            let versions: Vec<u64> = over.map(|range| range.version).collect();
            (!versions.is_empty()).then(|| Fragment { from: from.clone(), to: to.clone(), versions })
        };
        let fragments = bounds.iter().zip(bounds.iter().skip(1)).filter_map(fragment).collect();
        RangeDeletes { all, fragments }
    }

    /// With one more.
    pub(crate) fn with(&self, range: RangeDelete) -> RangeDeletes {
        RangeDeletes::new(self.all.iter().cloned().chain([range]).collect())
    }

    /// Oldest first.
    pub fn all(&self) -> &[RangeDelete] {
        &self.all
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The version of the newest one; 0: there are none.
    pub(crate) fn newest(&self) -> u64 {
        self.all.last().map_or(0, |range| range.version)
    }

    /// The versions of those over a key, oldest first. O(log n).
    #[inline]
    pub(crate) fn over(&self, key: &[u8]) -> &[u64] {
        if self.fragments.is_empty() {
            return &[];
        }
        let behind = self.fragments.partition_point(|fragment| &fragment.from[..] <= key);
        let fragment = behind.checked_sub(1).and_then(|at| self.fragments.get(at));
        fragment.filter(|fragment| key < &fragment.to[..]).map_or(&[], |fragment| &fragment.versions)
    }

    /// The version of the newest delete that hides a version of a key from a reader who sees
    /// everything up to `at`.
    #[inline]
    pub(crate) fn hiding(&self, key: &[u8], version: u64, at: u64) -> Option<u64> {
        let over = self.over(key);
        let behind = over.partition_point(|delete| *delete <= at);
        let newest = over.get(behind.checked_sub(1)?).copied()?;
        fault_point!("trial_range_hides_nothing", return None);
        (newest > version).then_some(newest)
    }

    /// Those that hide something still, of which `is_needed` tells, without those that a later one
    /// stands for: it covers them, both are durable, and no snapshot is between.
    pub(crate) fn needed(
        &self,
        snapshots: &[u64],
        durable: u64,
        is_needed: impl Fn(&RangeDelete) -> bool,
    ) -> Option<RangeDeletes> {
        let sees_between = |from: u64, to: u64| snapshots.iter().any(|snapshot| (from..to).contains(snapshot));
        let stands_for = |later: &RangeDelete, range: &RangeDelete| {
            later.version > range.version
                && later.version <= durable
                && later.from <= range.from
                && range.to <= later.to
                && !sees_between(range.version, later.version)
        };
        let left = |range: &&RangeDelete| is_needed(range) && !self.all.iter().any(|later| stands_for(later, range));
        let left: Vec<RangeDelete> = self.all.iter().filter(left).cloned().collect();
        (left.len() < self.all.len()).then(|| RangeDeletes::new(left))
    }

    /// Whether all that lies between two keys, of versions from `lowest` to `highest`, is hidden
    /// from everybody: a delete that is durable covers it, and no snapshot sees some of it.
    pub(crate) fn hide_all(
        &self,
        (first, last): (&[u8], &[u8]),
        (lowest, highest): (u64, u64),
        snapshots: &[u64],
        durable: u64,
    ) -> bool {
        let hides = |range: &RangeDelete| {
            range.has(first, last)
                && highest < range.version
                && range.version <= durable
                && !snapshots.iter().any(|snapshot| (lowest..range.version).contains(snapshot))
        };
        self.all.iter().any(hides)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stratakv_base::random::Random;

    use super::*;

    fn range(from: &str, to: &str, version: u64) -> RangeDelete {
        RangeDelete { from: from.as_bytes().into(), to: to.as_bytes().into(), version }
    }

    #[test]
    fn a_later_range_stands_for_those_within_it() {
        let ranges = RangeDeletes::new(vec![range("c", "f", 5), range("a", "k", 9), range("b", "d", 20)]);
        let left = |snapshots: &[u64], durable| {
            let left = ranges.needed(snapshots, durable, |_| true).unwrap_or_else(|| ranges.clone());
            left.all().iter().map(|range| range.version).collect::<Vec<_>>()
        };
        assert_eq!(left(&[], 30), [9, 20]);
        assert_eq!(left(&[7], 30), [5, 9, 20], "a snapshot sees the one and not the other");
        assert_eq!(left(&[4, 9], 30), [9, 20]);
        assert_eq!(left(&[], 8), [5, 9, 20], "a crash may forget the later one");
        assert!(ranges.hide_all((b"a", b"j"), (1, 8), &[], 30) && !ranges.hide_all((b"a", b"k"), (1, 8), &[], 30));
        assert!(!ranges.hide_all((b"a", b"j"), (1, 9), &[], 30) && !ranges.hide_all((b"a", b"j"), (1, 8), &[3], 30));
        assert!(ranges.hide_all((b"a", b"j"), (4, 8), &[3, 9], 30) && !ranges.hide_all((b"a", b"j"), (4, 8), &[], 8));
    }

    proptest! {
        #[test]
        fn fragments_tell_what_ranges_do(seed in any::<u64>()) {
            let mut random = Random::new(seed);
            let key = |random: &mut Random| vec![b'a' + random.below(8) as u8; 1 + random.below(2) as usize];
            let all: Vec<RangeDelete> = (1..=random.below(8))
                .map(|number| RangeDelete { from: key(&mut random).into(), to: key(&mut random).into(), version: number * 3 })
                .collect();
            let ranges = RangeDeletes::new(all.clone());
            for _ in 0..40 {
                let (key, version, at) = (key(&mut random), random.below(26), random.below(26));
                let hiding = all.iter().filter(|range| range.has(&key, &key) && range.version <= at).map(|range| range.version).max();
                prop_assert_eq!(ranges.hiding(&key, version, at), hiding.filter(|hiding| *hiding > version));
            }
        }
    }
}
