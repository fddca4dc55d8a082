//! What a cache gives up has a reason, and a failed write costs one segment.

use stratakv_engine::Shard;

use super::World;

/// A shard tries each write of an end so often; that of its table all together.
const TRIES_OF_END: u64 = 8;

/// What failed so far on a disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    requests: u64,
    full: u64,
    flushes: u64,
}

/// Segments that a kill may take though they are in the log: those on their way, and the one that
/// makes room.
const SEGMENTS_SLACK: u64 = 5;

impl World<'_> {
    /// A statistic of the shard.
    pub(super) fn figure(&self, name: &str) -> u64 {
        let mut found = Vec::new();
        self.machine.shard().statistics(&mut found);
        found.iter().filter(|found| found.name == name).map(|found| found.value).sum()
    }

    /// Nothing is given up for a reason that there was not.
    pub(super) fn check_losses(&self) -> Result<(), String> {
        let none = |name: &str, why: &str| match self.figure(name) {
            0 => Ok(()),
            items => Err(format!("{items} items are gone ({name}), and {why}")),
        };
        let has_volume = self.machine.opening().capacity_bytes.is_some();
        if has_volume {
            none("evictions_memory_full", "there is a second tier")?;
        }
        let disk = &self.machine.disk;
        if disk.failed() + disk.full() + disk.failed_flushes() == 0 && !self.flips {
            for name in ["evictions_write_failed", "evictions_ssd_paused", "evictions_ssd_lost"] {
                none(name, "no request failed")?;
            }
            // What was on its way when a process was killed may be there in part.
            if self.statistics.ends[0] == 0 {
                none("corrupt_records", "no request failed, and nothing was killed")?;
            }
        }
        Ok(())
    }

    pub(super) fn faults(&self) -> Faults {
        let disk = &self.machine.disk;
        Faults { requests: disk.failed(), full: disk.full(), flushes: disk.failed_flushes() }
    }

    /// Whether an end that began with these faults has to be clean: what failed since, the shard
    /// tries again.
    pub(super) fn owes_clean_start(&self, before: Faults) -> bool {
        let now = self.faults();
        let has_volume = self.machine.opening().capacity_bytes.is_some();
        let is_kept = has_volume && self.figure("ssd_lost") == 0 && !self.flips;
        let has_few = now.requests < before.requests + TRIES_OF_END;
        is_kept && has_few && (now.full, now.flushes) == (before.full, before.flushes)
    }

    /// Segments of the log that the next opening must find; `None`: nobody knows.
    pub(super) fn segments_owed(&self) -> Option<u64> {
        let has_volume = self.machine.opening().capacity_bytes.is_some();
        let is_whole = self.figure("ssd_lost") + self.figure("ssd_holes") == 0;
        // With another cap the index has room for others.
        let is_known = has_volume && is_whole && !self.flips && !self.resizes;
        is_known.then(|| self.figure("ssd_segments"))
    }

    /// A recovery came to the end of the log.
    pub(super) fn check_segments(&self, owed: Option<u64>, found: u64) -> Result<(), String> {
        let owed = owed.filter(|_| self.figure("evictions_index_full") == 0).unwrap_or_default();
        if found + SEGMENTS_SLACK < owed {
            return Err(format!("{owed} segments were in the log, a recovery found {found}"));
        }
        Ok(())
    }
}
