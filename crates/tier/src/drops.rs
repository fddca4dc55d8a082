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

impl DropReason {
    const ALL: [DropReason; 9] = [
        DropReason::MemoryFull,
        DropReason::NotAdmitted,
        DropReason::LogFull,
        DropReason::IndexFull,
        DropReason::WriteFailed,
        DropReason::WritesPaused,
        DropReason::VolumeLost,
        DropReason::Unreadable,
        DropReason::TooLong,
    ];

    fn statistic(self) -> &'static str {
        match self {
            DropReason::MemoryFull => "evictions_memory_full",
            DropReason::NotAdmitted => "not_admitted",
            DropReason::LogFull => "evictions_ssd_full",
            DropReason::IndexFull => "evictions_index_full",
            DropReason::WriteFailed => "evictions_write_failed",
            DropReason::WritesPaused => "evictions_ssd_paused",
            DropReason::VolumeLost => "evictions_ssd_lost",
            DropReason::Unreadable => "evictions_unreadable",
            DropReason::TooLong => "evictions_too_long",
        }
    }
}

/// Items that were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drops([u64; DropReason::ALL.len()]);

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
        let each = DropReason::ALL.iter().zip(self.0);
        out.extend(each.map(|(reason, value)| Statistic { name: reason.statistic(), value }));
    }
}
