//! What a shard counts, and tells.

use stratakv_base::canary;
use stratakv_engine::Statistic;
use stratakv_pmem::Pmem;

use crate::matrix::Matrix;

/// Counters, see [`Shard::statistics`](stratakv_engine::Shard::statistics).
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) page_reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
    pub(crate) user_bytes: u64,
    pub(crate) installs: u64,
    pub(crate) columns: u64,
    pub(crate) level_compactions: u64,
    pub(crate) value_collections: u64,
    pub(crate) compacted_bytes: u64,
    pub(crate) rows: u64,
    pub(crate) full_refusals: u64,
    pub(crate) corrupt_records: u64,
    pub(crate) stalled_turns: u64,
}

impl<P: Pmem> Matrix<P> {
    /// About how many records there are: what nobody has looked up cannot be counted. A key with several versions that were not merged yet counts for each of them, a delete takes one
    /// away, and what has expired counts until it is merged. O(tables).
    fn records_about(&self) -> u64 {
        let container = self.container.statistics();
        let facts = || self.tables().map(|table| &table.facts);
        let entries = container.elements + container.keys + facts().map(|facts| facts.entries).sum::<u64>();
        let deletes = container.deletes + facts().map(|facts| facts.deletes).sum::<u64>();
        if canary!("trial_deletes_count_as_records") { entries } else { entries.saturating_sub(2 * deletes) }
    }

    /// Appends counters and gauges. O(tables).
    pub(crate) fn count(&self, out: &mut Vec<Statistic>) {
        let container = self.container.statistics();
        let counters = &self.counters;
        let mut add = |name, value| out.push(Statistic { name, value });
        add("records", self.records_about());
        add("container_units", container.units);
        add("container_units_free", container.units_free);
        add("container_unit_bytes", container.unit_bytes);
        add("container_rows", container.rows_receiver + container.rows_compactor);
        add("container_elements", container.elements);
        add("memtable_bytes", container.memtable_bytes);
        add("index_bytes", container.index_bytes + container.row_dram_bytes + self.levels.footprint_bytes() as u64);
        add("metadata_elements_touched", container.elements_touched);
        add("levels", self.levels.depth() as u64);
        add("tables", (0..self.levels.depth()).map(|level| self.levels.level(level).len() as u64).sum());
        add("value_files", self.levels.value_files().count() as u64);
        add("value_live_bytes", self.levels.value_files().map(|values| values.live_bytes).sum());
        add("value_bytes", self.levels.value_files().map(|values| values.bytes).sum());
        add("cached_pages", self.cache.borrow().len() as u64);
        add("volume_free_pages", self.extents.free_pages());
        add("page_reads", counters.page_reads);
        add("read_bytes", counters.read_bytes);
        add("write_bytes", counters.write_bytes);
        add("user_bytes", counters.user_bytes);
        add("installs", counters.installs);
        add("columns_down", counters.columns);
        add("level_compactions", counters.level_compactions);
        add("value_collections", counters.value_collections);
        add("compacted_bytes", counters.compacted_bytes);
        add("rows_flushed", counters.rows);
        add("stalled_turns", counters.stalled_turns);
        add("full_refusals", counters.full_refusals);
        add("corrupt_records", counters.corrupt_records);
        add("snapshots", self.snapshots.len() as u64);
        // Rows do not say for whom they keep.
        let kept_in_rows = if self.snapshots.len() > 0 { container.kept_bytes } else { 0 };
        add("snapshots_kept_bytes", self.snapshots.kept_bytes() + kept_in_rows);
        add("snapshots_ended_early", self.snapshots.ended_early());
        add("snapshot_oldest_ns", self.snapshots.oldest_ns(self.now.mono));
    }
}
