//! Which versions of a key a compaction keeps.

use smallvec::SmallVec;
use stratakv_base::{Expiry, Wall, fault_point};

use crate::entry::{Body, Meta};

/// Versions of one key that are kept, from new to old, each with its place among those that were
/// given.
pub type Kept = SmallVec<[(usize, Meta); 4]>;

/// The place of a delete that no entry stands for.
pub const OF_A_RANGE: usize = usize::MAX;

/// For whom versions are kept.
#[derive(Clone, Copy, Debug)]
pub struct Readers<'a> {
    /// Versions of the open snapshots, from old to new.
    pub snapshots: &'a [u64],
    /// For what has expired.
    pub now: Wall,
    /// Nothing older of the key lies below where the versions go: what is deleted there needs no
    /// entry.
    pub bottom: bool,
}

impl Readers<'_> {
    /// Of the versions of a key, from new to old, those that somebody can still see: the newest
    /// one, and for each snapshot the newest one that it sees. What has expired becomes a delete,
    /// which still hides what is below. O(versions · log snapshots).
    pub fn keep(&self, versions: &[Meta]) -> Kept {
        let mut kept = Kept::new();
        let mut newer = None;
        for (at, meta) in versions.iter().enumerate() {
            if newer.is_none_or(|newer| self.sees_between(meta.version, newer)) {
                kept.push((at, self.as_deleted(*meta)));
            }
            newer = Some(meta.version);
        }
        let mut drops = self.bottom;
        fault_point!("matrix_delete_dropped_above_the_bottom", drops = true);
        while drops && kept.last().is_some_and(|(_, meta)| meta.body == Body::Delete) {
            kept.pop();
        }
        kept
    }

    /// As [`Readers::keep`], of a key that was deleted with ranges as well, at these versions, from
    /// old to new. Where such a delete hides what is kept for a snapshot it is among what is
    /// returned, at [`OF_A_RANGE`]: it needs no entry, for it stays in force.
    pub fn keep_under(&self, versions: &[Meta], deletes: &[u64]) -> Kept {
        let delete = |version: &u64| Meta { version: *version, flags: 0, expiry: Expiry::NEVER, body: Body::Delete };
        let mut all: Kept = versions.iter().copied().enumerate().collect();
        all.extend(deletes.iter().map(|version| (OF_A_RANGE, delete(version))));
        all.sort_by_key(|(_, meta)| std::cmp::Reverse(meta.version));
        let metas: SmallVec<[Meta; 4]> = all.iter().map(|(_, meta)| *meta).collect();
        self.keep(&metas).into_iter().map(|(at, meta)| (all.get(at).map_or(OF_A_RANGE, |one| one.0), meta)).collect()
    }

    /// Whether a snapshot was taken at or after `version`, and before `newer`.
    fn sees_between(&self, version: u64, newer: u64) -> bool {
        fault_point!("matrix_snapshot_version_dropped", return false);
        let first = self.snapshots.partition_point(|snapshot| *snapshot < version);
        self.snapshots.get(first).is_some_and(|snapshot| *snapshot < newer)
    }

    /// The oldest and the newest snapshot that see a version which `newer` replaced.
    pub fn between(&self, version: u64, newer: u64) -> Option<(u64, u64)> {
        let from = self.snapshots.partition_point(|snapshot| *snapshot < version);
        let behind = self.snapshots.partition_point(|snapshot| *snapshot < newer);
        let seeing = self.snapshots.get(from..behind)?;
        Some((*seeing.first()?, *seeing.last()?))
    }

    fn as_deleted(&self, meta: Meta) -> Meta {
        if meta.expiry.is_past(self.now) {
            return Meta { body: Body::Delete, flags: 0, expiry: Expiry::NEVER, ..meta };
        }
        meta
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stratakv_base::random::Random;

    use super::*;

    const PUT: Body = Body::Here { value_bytes: 1, checksum: 0 };

    fn versions(of: &[(u64, Body)]) -> Vec<Meta> {
        of.iter()
            .map(|(version, body)| Meta { version: *version, flags: 0, expiry: Expiry::NEVER, body: *body })
            .collect()
    }

    fn kept(of: &[(u64, Body)], snapshots: &[u64], bottom: bool) -> Vec<u64> {
        let readers = Readers { snapshots, now: Wall(100), bottom };
        readers.keep(&versions(of)).iter().map(|(_, meta)| meta.version).collect()
    }

    #[test]
    fn what_nobody_sees_goes() {
        let history = [(9, PUT), (7, Body::Delete), (5, PUT), (3, PUT)];
        assert_eq!(kept(&history, &[], false), [9]);
        assert_eq!(kept(&history, &[2, 6, 10], false), [9, 5]);
        assert_eq!(kept(&history, &[3, 4, 7, 8], false), [9, 7, 3]);
        assert_eq!(kept(&history, &[7], false), [9, 7], "a delete hides what lies below");
        assert_eq!(kept(&history, &[7], true), [9], "and nothing lies below the bottom");
        assert_eq!(kept(&history[1..], &[], false), [7]);
        assert_eq!(kept(&history[1..], &[], true), []);
        assert_eq!(kept(&history[1..], &[5], true), [7, 5]);
    }

    #[test]
    fn what_a_range_hides_goes_and_the_range_has_no_entry() {
        let history = versions(&[(9, PUT), (7, Body::Delete), (5, PUT), (3, PUT)]);
        let kept = |snapshots: &[u64], deletes: &[u64]| {
            let readers = Readers { snapshots, now: Wall(100), bottom: false };
            let kept = readers.keep_under(&history, deletes);
            let entries = kept.iter().filter(|(at, _)| *at != OF_A_RANGE).map(|(at, meta)| (*at, meta.version));
            entries.collect::<Vec<_>>()
        };
        assert_eq!(kept(&[], &[10]), []);
        assert_eq!(kept(&[], &[8]), [(0, 9)]);
        assert_eq!(kept(&[5], &[6, 10]), [(2, 5)]);
        assert_eq!(kept(&[6, 9], &[6, 10]), [(0, 9)]);
        assert_eq!(kept(&[3, 7], &[4]), [(0, 9), (1, 7), (3, 3)]);
    }

    #[test]
    fn what_has_expired_is_a_delete() {
        let readers = |bottom| Readers { snapshots: &[], now: Wall(100), bottom };
        let expired = Meta { version: 4, flags: 3, expiry: Expiry(100), body: PUT };
        assert_eq!(readers(true).keep(&[expired]).len(), 0);
        let kept = readers(false).keep(&[expired]);
        assert_eq!(kept[0].1, Meta { version: 4, flags: 0, expiry: Expiry::NEVER, body: Body::Delete });
    }

    proptest! {
        #[test]
        fn every_reader_sees_what_it_saw(seed in any::<u64>()) {
            let mut random = Random::new(seed);
            let mut history: Vec<(u64, Body)> =
                (1..=1 + random.below(9)).map(|version| (version, if random.below(3) == 0 { Body::Delete } else { PUT })).collect();
            history.reverse();
            let mut snapshots: Vec<u64> = (0..random.below(4)).map(|_| random.below(11)).collect();
            snapshots.sort_unstable();
            for bottom in [false, true] {
                let left = kept(&history, &snapshots, bottom);
                for reader in snapshots.iter().copied().chain([u64::MAX]) {
                    let seen = |versions: &[u64]| versions.iter().copied().find(|version| *version <= reader);
                    let alive = |version: &u64| history.iter().any(|(other, body)| other == version && *body == PUT);
                    let before = seen(&history.iter().map(|(version, _)| *version).collect::<Vec<_>>());
                    let after = seen(&left);
                    prop_assert_eq!(before.filter(alive), after.filter(alive));
                    prop_assert!(bottom || before == after, "a delete may hide something below");
                }
            }
        }
    }
}
