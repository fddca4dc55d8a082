//! What a cache gives up though nobody deleted it, and why.

use stratakv_engine::Statistic;

/// Why an item that was still valid is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DropReason {
    /// Memory was full, and there is no second tier.
    MemoryFull,
    /// Memory was full, and nobody had asked for it since the log first was.
    NotAdmitted,
    /// Its segment was the oldest of a log that was full.
    LogFull,
    /// Its segment was the oldest, and the index had no room for more entries.
    IndexFull,
    /// Its segment could not be written.
    WriteFailed,
    /// Memory was full, and nothing is written for a while after a failed write.
    WritesPaused,
    /// The journal could not be written, so nothing on the volume counts.
    VolumeLost,
    /// It could not be read, or did not check.
    Unreadable,
    /// It is too long for the memory there is now, or for the log.
    TooLong,
}

/// What each reason is called, in their order.
const STATISTICS: [&str; DropReason::TooLong as usize + 1] = [
    "evictions_memory_full",
    "not_admitted",
    "evictions_ssd_full",
    "evictions_index_full",
    "evictions_write_failed",
    "evictions_ssd_paused",
    "evictions_ssd_lost",
    "evictions_unreadable",
    "evictions_too_long",
];

/// Items that were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drops([u64; STATISTICS.len()]);

impl Drops {
    pub(crate) fn add(&mut self, reason: DropReason, items: u64) {
        self.0[reason as usize] += items;
    }

    /// Those that a disk which works would have kept.
    pub(crate) fn of_failures(&self) -> u64 {
        let failures = [DropReason::WriteFailed, DropReason::WritesPaused, DropReason::VolumeLost];
        failures.into_iter().map(|reason| self.0[reason as usize]).sum()
    }

    /// All of them.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// `evictions`: all of them; then each reason.
    pub(crate) fn statistics(&self, out: &mut Vec<Statistic>) {
        out.push(Statistic { name: "evictions", value: self.total() });
        out.extend(STATISTICS.iter().zip(self.0).map(|(name, value)| Statistic { name, value }));
    }
}
