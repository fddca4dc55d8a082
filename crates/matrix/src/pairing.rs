//! Which region and which volume belong together: both have the epoch of the last opening for
//! writing, and each says how far the other one was when it was written last.

mod loss;

use std::fmt;

pub use loss::{Loss, LostTable};

/// An opening for writing. Region and volume of a shard have the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// Grows by one with each opening.
    pub number: u64,
    /// Drawn at each opening: two copies of a shard that are both written to have the same numbers
    /// and differ in this.
    pub session: u64,
}

/// What the volume knows of the region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The opening.
    pub epoch: Epoch,
    /// The number of its newest directory.
    pub directory: u64,
    /// Its newest durable version.
    pub version: u64,
    /// The oldest version that was perhaps only there; 0: it had none.
    pub oldest: u64,
    /// About how many versions were only there.
    pub records: u64,
}

/// What a region says of itself, and of the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionState {
    /// Its opening.
    pub epoch: Epoch,
    /// The volume may still have this one: its own was on its way.
    pub before: Epoch,
    /// The number of its directory.
    pub directory: u64,
    /// Its newest version.
    pub version: u64,
    /// The newest manifest of the volume that was durable.
    pub manifest: u64,
    /// Hand-overs so far.
    pub compactor: u64,
}

/// What the volume says of itself and of the region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeState {
    /// What its superblock knows.
    pub known: Known,
    /// The number of its manifest.
    pub manifest: u64,
    /// The number of the region's directory that the manifest knows.
    pub directory: u64,
    /// And of its compactor.
    pub compactor: u64,
}

/// Why a region and a volume do not belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The region is a copy from before: in epoch, directory or compactor.
    RegionOlder {
        /// Its number.
        has: u64,
        /// The one that the volume has seen.
        known: u64,
        /// Of what.
        of: &'static str,
    },
    /// All of the region is there but its end.
    EndMissing {
        /// Its newest version.
        has: u64,
        /// The one that the volume has seen.
        known: u64,
    },
    /// The volume is a copy from before.
    VolumeOlder {
        /// Its number.
        has: u64,
        /// The one that the region has seen.
        known: u64,
        /// Of what.
        of: &'static str,
    },
    /// The region waits for a manifest without the tables that were lost with the one before it.
    GivingUpWasCut {
        /// The manifest that the volume has.
        has: u64,
        /// The one that the region waits for.
        awaited: u64,
    },
    /// Both were written to, each beside a copy of the other one.
    WentBlob {
        /// Of the epoch.
        number: u64,
    },
}

impl RegionState {
    /// Whether the volume is this region's, and neither is older than the other one has seen it.
    ///
    /// # Errors
    /// [`Mismatch`].
    pub fn compare(&self, volume: &VolumeState) -> Result<(), Mismatch> {
        let known = &volume.known;
        let (ours, theirs) = (self.epoch.number, known.epoch.number);
        if known.epoch != self.epoch && known.epoch != self.before {
            return Err(match ours.cmp(&theirs) {
                std::cmp::Ordering::Less => Mismatch::RegionOlder { has: ours, known: theirs, of: "epoch" },
                std::cmp::Ordering::Greater => Mismatch::VolumeOlder { has: theirs, known: ours, of: "epoch" },
                std::cmp::Ordering::Equal => Mismatch::WentBlob { number: ours },
            });
        }
        let directory = known.directory.max(volume.directory);
        if directory > self.directory {
            return Err(Mismatch::RegionOlder { has: self.directory, known: directory, of: "directory" });
        }
        if volume.compactor > self.compactor {
            return Err(Mismatch::RegionOlder { has: self.compactor, known: volume.compactor, of: "compactor" });
        }
        if self.manifest > volume.manifest && self.before != self.epoch && known.epoch == self.before {
            return Err(Mismatch::GivingUpWasCut { has: volume.manifest, awaited: self.manifest });
        }
        if self.manifest > volume.manifest {
            return Err(Mismatch::VolumeOlder { has: volume.manifest, known: self.manifest, of: "manifest" });
        }
        if known.version > self.version {
            return Err(Mismatch::EndMissing { has: self.version, known: known.version });
        }
        Ok(())
    }
}

impl RegionState {
    /// Of a region that is refused: whether nothing came down from it since, so that all it has
    /// still counts, and what follows is all that is missing.
    pub fn lacks_only_its_end(&self, volume: &VolumeState, mismatch: Mismatch) -> bool {
        let is_older = matches!(mismatch, Mismatch::RegionOlder { .. } | Mismatch::EndMissing { .. });
        is_older
            && volume.directory <= self.directory
            && volume.compactor <= self.compactor
            && self.manifest <= volume.manifest
            && self.version <= volume.known.version
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::RegionOlder { has, known, of } => write!(
                f,
                "the region is older than its volume, a copy from before: it has {of} {has}, and the volume has seen {of} {known} of it. Put the newer one back"
            ),
            Mismatch::EndMissing { has, known } => write!(
                f,
                "the region lacks its end: it has changes up to version {has}, and the volume knows of {known}. It is a copy from before, or lost \
                 what was not on its medium. Put the newer one back"
            ),
            Mismatch::VolumeOlder { has, known, of } => write!(
                f,
                "the volume is older than its region, a copy from before: it has {of} {has}, and the region has seen {of} {known} of it. Put the newer one back"
            ),
            Mismatch::GivingUpWasCut { has, awaited } => write!(
                f,
                "the volume has manifest {has}, and the region waits for {awaited}: giving up a region before this one was cut off, and has to be done again; or the volume is a copy \
                 from before, then put the newer one back"
            ),
            Mismatch::WentBlob { number } => write!(
                f,
                "region and volume do not belong together: both have epoch {number}, and not the same one, so each was written to beside a copy of the other. \
                 Put those back that belong together"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(number: u64) -> Epoch {
        Epoch { number, session: 100 + number }
    }

    fn pair() -> (RegionState, VolumeState) {
        let region =
            RegionState { epoch: epoch(5), before: epoch(5), directory: 40, version: 900, manifest: 30, compactor: 7 };
        let known = Known { epoch: epoch(5), directory: 40, version: 900, oldest: 800, records: 90 };
        (region, VolumeState { known, manifest: 30, directory: 39, compactor: 7 })
    }

    #[test]
    fn what_each_has_seen_of_the_other_is_compared() {
        let (region, volume) = pair();
        assert_eq!(region.compare(&volume), Ok(()));
        let older = RegionState { epoch: epoch(4), before: epoch(4), ..region };
        assert!(matches!(older.compare(&volume), Err(Mismatch::RegionOlder { has: 4, known: 5, .. })));
        let newer = RegionState { epoch: epoch(6), before: epoch(6), ..region };
        assert!(matches!(newer.compare(&volume), Err(Mismatch::VolumeOlder { has: 5, known: 6, .. })));
        let on_its_way = RegionState { before: epoch(5), ..newer };
        assert_eq!(on_its_way.compare(&volume), Ok(()), "a cut between the two");
        let other = Epoch { session: 1, ..epoch(5) };
        let other = RegionState { epoch: other, before: other, ..region };
        assert_eq!(other.compare(&volume), Err(Mismatch::WentBlob { number: 5 }));
        let behind = [RegionState { directory: 39, ..region }, RegionState { compactor: 6, ..region }];
        assert!(behind.iter().all(|region| matches!(region.compare(&volume), Err(Mismatch::RegionOlder { .. }))));
        let ahead = RegionState { manifest: 31, ..region };
        assert!(matches!(ahead.compare(&volume), Err(Mismatch::VolumeOlder { .. })));
        let begun = RegionState { epoch: epoch(6), manifest: 31, ..region };
        assert_eq!(begun.compare(&volume), Err(Mismatch::GivingUpWasCut { has: 30, awaited: 31 }));
        let cut = RegionState { version: 899, ..region };
        assert_eq!(cut.compare(&volume), Err(Mismatch::EndMissing { has: 899, known: 900 }));
    }
}
