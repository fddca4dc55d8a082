//! The life of a shard: open, closing, closed, or poisoned, and the damage that it met.

use stratakv_base::Corruption;
use stratakv_device::IoFault;
use stratakv_engine::{Error, ShardEvent};

use crate::config::RecoveryReport;

/// How far closing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    Open,
    /// Finishing what was accepted.
    Draining,
    Flushing,
    /// Writing superblock 0 or 1.
    Superblock(u64),
    Closed,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Health {
    /// What recovery found.
    pub(crate) report: RecoveryReport,
    pub(crate) poisoned: Option<IoFault>,
    pub(crate) closing: Closing,
    pub(crate) corruptions: Vec<Corruption>,
    /// Times that damage was met.
    pub(crate) corrupt_records: u64,
    /// For the operator, at the end of the tick.
    pub(crate) events: Vec<ShardEvent>,
}

impl Health {
    /// Of a shard that is open.
    pub(crate) fn new(report: RecoveryReport) -> Health {
        let corruptions = report.corrupt.clone();
        let events = report.checkpoint.read_in_full.map(|why| ShardEvent::ReadInFull { why }).into_iter().collect();
        Health { report, poisoned: None, closing: Closing::Open, corruptions, corrupt_records: 0, events }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.closing == Closing::Open
    }

    /// Why nothing is written any more, if that is so.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.poisoned.map(Error::Poisoned)
    }

    /// Counts and keeps (the first hundred) damage found while running.
    pub(crate) fn note(&mut self, corruption: &Corruption) {
        self.corrupt_records += 1;
        if self.corruptions.len() < 100 && !self.corruptions.contains(corruption) {
            tracing::warn!(%corruption, "damage on the medium");
            self.corruptions.push(corruption.clone());
            self.events.push(ShardEvent::Damaged(corruption.clone()));
        }
    }
}

/// Why nothing is changed in a store that is open for reading only.
pub(crate) fn read_only() -> Error {
    Error::WrongVolume("the store is open for reading only: open it for writing to change it".into())
}
