//! What was done, and how often.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! kinds {
    ($($kind:ident $name:literal)*) => {
        #[derive(Clone, Copy, Debug)]
        pub enum Kind { $($kind),* }

        const NAMES: &[&str] = &[$($name),*];
    };
}

kinds! {
    Put "puts"
    Delete "deletes"
    Unmet "conditions that did not hold"
    Full "writes refused as full"
    Batch "batches"
    Transfer "transfers"
    Conflict "transfers that others forestalled"
    Increment "increments"
    Lock "locks"
    Step "steps of the stairs"
    Range "range deletes"
    RangeKey "keys they deleted"
    Get "gets"
    Scan "scans"
    Item "keys they found"
    Snapshot "snapshots"
    Look "looks at snapshots"
    Backup "backups"
    Ended "of both that ended for want of room"
    Expired "expired records given back"
    Scrub "rounds of scrubbing"
    Grown "buckets that tables grew by"
    Opening "openings"
    Verified "keys compared at rest"
}

#[derive(Debug)]
pub struct Tally([AtomicU64; NAMES.len()]);

impl Tally {
    pub fn new() -> Tally {
        Tally([const { AtomicU64::new(0) }; NAMES.len()])
    }

    pub fn count(&self, kind: Kind) {
        self.add(kind, 1);
    }

    pub fn add(&self, kind: Kind, count: u64) {
        self.0[kind as usize].fetch_add(count, Ordering::Relaxed);
    }

    pub fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize].load(Ordering::Relaxed)
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = self.0.iter().zip(NAMES).map(|(count, name)| format!("{} {name}", count.load(Ordering::Relaxed)));
        f.write_str(&counts.collect::<Vec<String>>().join(", "))
    }
}
