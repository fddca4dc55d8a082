//! [`Life`]: how far a shard is between its opening and its end, what time it is to it, and which
//! of its media failed for good. Every part asks it; media are reported to it by
//! [`Matrix::fail_region`](crate::matrix::Matrix::fail_region) and
//! [`Matrix::fail_volume`](crate::matrix::Matrix::fail_volume) alone.

use stratakv_base::{Mono, Now, Wall};
use stratakv_device::IoFault;
use stratakv_engine::Error;

use crate::config::RecoveryReport;

/// How far closing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Closing {
    #[default]
    Open,
    /// Finishing what was accepted.
    Draining,
    /// The last superblock is on its way.
    Superblock,
    Closed,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Life {
    report: RecoveryReport,
    read_only: bool,
    /// The tick's.
    now: Now,
    closing: Closing,
    volume_failed: Option<IoFault>,
    region_failed: Option<Error>,
}

impl Life {
    pub(crate) fn new(report: RecoveryReport, read_only: bool) -> Life {
        let (volume_failed, region_failed) = (None, None);
        Life { report, read_only, now: Now::default(), closing: Closing::Open, volume_failed, region_failed }
    }

    /// What opening found.
    pub(crate) fn report(&self) -> &RecoveryReport {
        &self.report
    }

    /// The driver calls.
    pub(crate) fn begin_call(&mut self, now: Now) {
        self.now = now;
    }

    pub(crate) fn mono(&self) -> Mono {
        self.now.mono
    }

    pub(crate) fn wall(&self) -> Wall {
        self.now.wall
    }

    /// Whether operations are accepted.
    pub(crate) fn is_open(&self) -> bool {
        self.closing == Closing::Open
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.closing == Closing::Draining
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closing == Closing::Closed
    }

    /// No more operations. Whether it was open.
    pub(crate) fn drain(&mut self) -> bool {
        let was_open = self.is_open();
        if was_open {
            self.closing = Closing::Draining;
        }
        was_open
    }

    /// All is done but for the superblock that says so.
    pub(crate) fn write_last_superblock(&mut self) {
        self.closing = Closing::Superblock;
    }

    pub(crate) fn close(&mut self) {
        self.closing = Closing::Closed;
    }

    /// Whether nothing is written to the media any more.
    pub(crate) fn is_frozen(&self) -> bool {
        self.read_only || self.region_failed.is_some() || self.volume_failed.is_some()
    }

    /// Whether maintenance goes on.
    pub(crate) fn may_maintain(&self) -> bool {
        !self.is_frozen() && matches!(self.closing, Closing::Open | Closing::Draining)
    }

    /// The region takes no more writes; a shard that was closing is at its end.
    pub(crate) fn fail_region(&mut self, error: Error) {
        self.region_failed.get_or_insert(error);
        self.end_without_superblock();
    }

    /// The volume takes no more writes; a shard that was closing is at its end.
    pub(crate) fn fail_volume(&mut self, fault: IoFault) {
        self.volume_failed.get_or_insert(fault);
        self.end_without_superblock();
    }

    fn end_without_superblock(&mut self) {
        if self.closing == Closing::Superblock {
            self.close();
        }
    }

    pub(crate) fn region_failure(&self) -> Option<&Error> {
        self.region_failed.as_ref()
    }

    /// How a medium failed, as far as it was noticed by a write.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.region_failed.clone().or(self.volume_failed.map(Error::Poisoned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody would have heard of the superblock any more: the shard would never have been closed.
    #[test]
    fn a_medium_that_fails_under_the_last_superblock_ends_the_closing() {
        let fails: [fn(&mut Life); 2] = [|life| life.fail_volume(IoFault::Short), |life| life.fail_region(Error::Busy)];
        for fail in fails {
            let mut life = Life::new(RecoveryReport::default(), false);
            assert!(life.drain() && !life.drain() && life.may_maintain());
            life.write_last_superblock();
            assert!(!life.may_maintain() && !life.is_closed());
            fail(&mut life);
            assert!(life.is_closed() && life.is_frozen());
        }
    }
}
