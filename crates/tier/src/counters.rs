//! What a shard counts, and what it tells of itself.

use stratakv_chassis::account::MemoryAccount;
use stratakv_device::IoFault;
use stratakv_engine::Statistic;

use crate::config::RecoveryReport;
use crate::tier::Tier;

/// See [`stratakv_engine::Shard::statistics`]. Parts of the shard count what only they see.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) recovered: RecoveryReport,
    pub(crate) hits_dram: u64,
    pub(crate) hits_volume: u64,
    pub(crate) misses: u64,
    pub(crate) expired: u64,
    /// Items written where their predecessor lay.
    pub(crate) overwritten: u64,
    pub(crate) spilled_bytes: u64,
    pub(crate) spilled_items: u64,
    pub(crate) promoted: u64,
    pub(crate) reinserted: u64,
    pub(crate) read_errors: u64,
    pub(crate) corrupt_records: u64,
    pub(crate) write_errors: u64,
    /// The last write or flush that failed.
    pub(crate) last_fault: Option<IoFault>,
}

impl Counters {
    /// A write ended.
    pub(crate) fn note_write(&mut self, result: Result<(), IoFault>) {
        self.write_errors += u64::from(result.is_err());
        self.last_fault = result.err().or(self.last_fault);
    }

    /// Bytes of an item were read, and are not it; or they were not read at all.
    pub(crate) fn note_unreadable(&mut self, is_read: bool) {
        *if is_read { &mut self.corrupt_records } else { &mut self.read_errors } += 1;
    }
}

impl Tier {
    pub(crate) fn all_statistics(&self, out: &mut Vec<Statistic>) {
        let counters = &self.counters;
        let (steps, stalled_ticks) = self.operations.statistics();
        let (volume, suspended) = match self.volume.as_ref() {
            Some(volume) if volume.saving.is_some() => (None, Some(volume)),
            volume => (volume, None),
        };
        let mut add = |name, value| out.push(Statistic { name, value });
        add("items", self.index.len() as u64);
        add("index_bytes", self.index.bytes() as u64);
        add("memory_bytes", self.cap.held_bytes());
        add("ghost_queue_bytes", self.evictions.bytes() as u64);
        add("dram_bytes", self.segments.bytes() as u64);
        add("dram_segments", self.segments.len() as u64);
        add("ssd_bytes", volume.map_or(0, |volume| volume.log.used_pages() * 4096));
        add("ssd_segments", volume.map_or(0, |volume| volume.log.len() as u64));
        add("ssd_capacity_bytes", self.superblock.get().layout.log_pages * 4096);
        add("saved_bytes", suspended.map_or(0, |volume| volume.log.used_pages() * 4096));
        add("ssd_lost", volume.map_or(0, |volume| u64::from(volume.is_lost)));
        add("ssd_refused_keys", volume.map_or(0, |volume| volume.returning.len() as u64));
        add("ssd_holes", volume.map_or(0, |volume| volume.spills.holes() as u64));
        add("ssd_paused", volume.map_or(0, |volume| u64::from(volume.spills.is_paused(self.now.mono))));
        add("expired", counters.expired);
        add("overwritten_in_place", counters.overwritten);
        add("spilled_bytes", counters.spilled_bytes);
        add("spilled_items", counters.spilled_items);
        add("promoted", counters.promoted);
        add("reinserted", counters.reinserted);
        add("hits_dram", counters.hits_dram);
        add("hits_ssd", counters.hits_volume);
        add("misses", counters.misses);
        add("ssd_reads", self.fetches.device_reads());
        add("ssd_read_errors", counters.read_errors);
        add("ssd_write_errors", counters.write_errors);
        add("corrupt_records", counters.corrupt_records);
        add("journal_writes", volume.map_or(0, |volume| volume.journal.pages_issued()));
        add("invalidations", volume.map_or(0, |volume| volume.journal.invalidations()));
        add("evictions_at_end", self.ending.dropped());
        add("stalled_ticks", stalled_ticks);
        add("suspended_steps", steps);
        add("recovered_items", counters.recovered.items);
        add("recovered_segments", counters.recovered.segments);
        add("untrusted_segments", counters.recovered.untrusted_segments);
        self.evictions.drops().statistics(out);
        self.memory_account().append(out);
    }

    /// What the memory is used for, as the last balance found it.
    fn memory_account(&self) -> MemoryAccount {
        let (index, work) = (self.index.bytes() as u64, self.evictions.bytes() as u64);
        let apart = self.bytes_apart() as u64;
        MemoryAccount {
            limit: self.cap.target_bytes(),
            index,
            tables: apart - index - work,
            blocks: self.cap.held_bytes().saturating_sub(apart),
            work,
            reserve: 0,
        }
    }
}
