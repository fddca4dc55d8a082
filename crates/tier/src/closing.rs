//! [`Ending`]: how far an orderly end is, and what it could not keep.
//!
//! It owns the phase, which `ending.rs`, `saving.rs` and `losing.rs` move on. Everybody may ask for
//! it. It begins nothing itself.

use stratakv_base::Mono;
use stratakv_device::IoFault;

use crate::drops::Drops;

/// How far closing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Closing {
    #[default]
    Open,
    /// Finishing what was accepted.
    Draining,
    /// A place for the table of what is to be saved is set aside.
    Reserving,
    /// DRAM goes to the volume.
    Spilling,
    /// The index is written down.
    Table(TableWrite),
    Flushing,
    Superblock,
    Closed,
}

/// The table of an end: pages that were begun, and writes in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableWrite {
    pub(crate) begun: u64,
    pub(crate) in_flight: u32,
    pub(crate) failed: bool,
    pub(crate) tries: u32,
    /// It does not begin before.
    pub(crate) begins_at: Mono,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    phase: Closing,
    /// What had been dropped when the end began.
    drops_before: Drops,
    /// Items that it found no room for.
    dropped: u64,
    /// It did not keep what it should have, for this reason.
    failure: Option<IoFault>,
}

impl Ending {
    pub(crate) fn phase(&self) -> Closing {
        self.phase
    }

    /// Whether the shard serves, and no end has begun.
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Closing::Open
    }

    pub(crate) fn enter(&mut self, phase: Closing) {
        self.phase = phase;
    }

    /// Everything that was accepted is done; so much was dropped before.
    pub(crate) fn begin(&mut self, drops: Drops) {
        self.drops_before = drops;
    }

    /// Counts what was dropped since. How much of it failed to be written; told once.
    pub(crate) fn count_drops(&mut self, drops: Drops) -> u64 {
        let before = std::mem::replace(&mut self.drops_before, drops);
        self.dropped += drops.total() - before.total();
        drops.of_failures() - before.of_failures()
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Why it did not keep what it should have, if that is no matter of course.
    pub(crate) fn fail(&mut self, fault: Option<IoFault>) {
        self.failure = fault;
    }

    pub(crate) fn failure(&self) -> Option<IoFault> {
        self.failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drops::DropReason;

    #[test]
    fn an_end_counts_what_it_dropped_itself_and_tells_failures_once() {
        let (mut ending, mut drops) = (Ending::default(), Drops::default());
        drops.add(DropReason::WriteFailed, 7);
        ending.begin(drops);
        drops.add(DropReason::WriteFailed, 2);
        drops.add(DropReason::MemoryFull, 1);
        assert_eq!((ending.count_drops(drops), ending.dropped()), (2, 3));
        assert_eq!((ending.count_drops(drops), ending.dropped()), (0, 3));
    }
}
