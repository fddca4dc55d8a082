//! What a shard counts, and tells.

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Mono, fault_point};
use stratakv_chassis::account::MemoryAccount;
use stratakv_engine::Statistic;
use stratakv_pmem::Pmem;

use crate::matrix::Matrix;
use crate::output::Role;
use crate::table::TableFacts;

/// Counters, see [`Shard::statistics`](stratakv_engine::Shard::statistics).
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reads: ReadCounters,
    pub(crate) writes: WriteCounters,
    pub(crate) compaction: CompactionCounters,
    /// Nanoseconds that writes were told to wait for columns.
    pub(crate) paced_ns: u64,
    pub(crate) user_bytes: u64,
    /// Of them, those that loads brought.
    pub(crate) loaded_bytes: u64,
    pub(crate) full_refusals: u64,
    pub(crate) corrupt_records: u64,
    pub(crate) stalled_ticks: u64,
    pub(crate) range_deletes: u64,
}

/// What was read of the volume and of the PMEM levels.
#[derive(Debug, Default)]
pub(crate) struct ReadCounters {
    /// Requests, each of one page or several.
    pub(crate) reads: u64,
    pub(crate) page_reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) pmem_levels_read_bytes: u64,
}

/// What was written to the volume and to the PMEM levels.
#[derive(Debug, Default)]
pub(crate) struct WriteCounters {
    pub(crate) write_bytes: u64,
    value_write_bytes: u64,
    pub(crate) manifest_write_bytes: u64,
    /// Of tables, by level; deeper ones together.
    level_write_bytes: [u64; LEVELS_TOLD.len()],
    /// Of tables that were made, and what they would have if nothing of them were compressed.
    table_write_bytes: u64,
    table_plain_write_bytes: u64,
    pub(crate) pmem_levels_write_bytes: u64,
}

/// What compactions did.
#[derive(Debug, Default)]
pub(crate) struct CompactionCounters {
    pub(crate) installs: u64,
    pub(crate) columns: u64,
    pub(crate) level_compactions: u64,
    pub(crate) value_collections: u64,
    pub(crate) compacted_bytes: u64,
    pub(crate) rows: u64,
    pub(crate) tables_dropped: u64,
    phases: Phases,
}

/// What compaction does, or waits for.
#[derive(Clone, Copy, Debug, Default)]
enum CompactionPhase {
    /// There is nothing to do, or no room.
    #[default]
    Idle,
    /// It merges, as far as it is paid for.
    Merge,
    /// It waits for pages.
    Read,
    /// It waits until the device has what it made.
    Write,
    /// A manifest is on its way, and nothing is merged.
    Install,
}

const PHASES_TOLD: [&str; 5] =
    ["compaction_idle_ns", "compaction_merge_ns", "compaction_read_ns", "compaction_write_ns", "compaction_install_ns"];

/// How long compaction was in each phase: what holds writes up is the longest one but the first.
#[derive(Debug, Default)]
struct Phases {
    now: CompactionPhase,
    since: Mono,
    ns: [u64; PHASES_TOLD.len()],
}

impl Phases {
    fn pass(&mut self, to: CompactionPhase, now: Mono) {
        // What came before the first tick is nobody's.
        if self.since != Mono::default() {
            self.ns[self.now as usize] += now.0.saturating_sub(self.since.0);
        }
        // Ticks of several threads may see times in another order.
        (self.now, self.since) = (to, self.since.max(now));
    }
}

/// Levels below L0 of which it is told how much was written into them, to whichever medium.
const LEVELS_TOLD: [&str; 6] = [
    "level_1_write_bytes",
    "level_2_write_bytes",
    "level_3_write_bytes",
    "level_4_write_bytes",
    "level_5_write_bytes",
    "level_6_write_bytes",
];

impl WriteCounters {
    /// So many bytes of a file were written.
    pub(crate) fn wrote(&mut self, role: Role, bytes: u64) {
        match role {
            Role::Table { level, .. } => self.level_write_bytes[level.min(LEVELS_TOLD.len() - 1)] += bytes,
            Role::Values => self.value_write_bytes += bytes,
        }
    }

    /// These tables were made.
    pub(crate) fn made<'a>(&mut self, tables: impl Iterator<Item = &'a TableFacts>) {
        for facts in tables {
            self.table_write_bytes += u64::from(facts.pages) * PAGE_BYTES as u64;
            self.table_plain_write_bytes += u64::from(facts.plain_pages) * PAGE_BYTES as u64;
        }
    }
}

impl<P: Pmem> Matrix<P> {
    /// Notes what compaction does from now on.
    pub(crate) fn note_phase(&mut self) {
        let may_merge = self.may_merge();
        let phase = match self.compactor.job() {
            Some(job) if job.reads.waits() => CompactionPhase::Read,
            Some(_) if may_merge => CompactionPhase::Merge,
            Some(_) => CompactionPhase::Write,
            None if !self.installer.is_idle() => CompactionPhase::Install,
            None => CompactionPhase::Idle,
        };
        self.counters.compaction.phases.pass(phase, self.life.mono());
    }

    /// About how many records there are: what nobody has looked up cannot be counted. A key with
    /// several versions that were not merged yet counts for each of them, a delete takes one away,
    /// and what has expired, or was deleted with its range, counts until it is merged. O(tables).
    pub fn records(&self) -> u64 {
        let container = self.container.statistics();
        let facts = || self.tables().map(|table| &table.facts);
        let entries = container.elements + container.keys + facts().map(|facts| facts.entries).sum::<u64>();
        let deletes = container.deletes + facts().map(|facts| facts.deletes).sum::<u64>();
        fault_point!("trial_deletes_count_as_records", return entries);
        entries.saturating_sub(2 * deletes)
    }

    /// Pages of the volume, those of them that are free, and those that are free as soon as nobody
    /// reads them. All that it may have if it has a capacity, else up to the last in use.
    fn volume_pages_now(&self) -> (u64, u64, u64) {
        let (pages, free) = match self.config.capacity_bytes {
            Some(_) => (self.volume.limit_pages(), self.volume.room_pages()),
            None => self.volume_pages(),
        };
        let deferred = self.volume.deferred().iter().chain(self.reads.held()).filter(|extent| !extent.in_pmem_levels());
        (pages, free, deferred.map(|extent| u64::from(extent.pages)).sum())
    }

    /// Appends counters and gauges. O(tables).
    pub(crate) fn count(&self, out: &mut Vec<Statistic>) {
        let container = self.container.statistics();
        let counters = &self.counters;
        let mut add = |name, value| out.push(Statistic { name, value });
        add("records", self.records());
        add("container_units", container.units);
        add("container_units_free", container.units_free);
        add("container_unit_bytes", container.unit_bytes);
        add("container_rows", container.rows_receiver + container.rows_compactor);
        add("container_elements", container.elements);
        add("memtable_bytes", container.memtable_bytes);
        let tables = self.levels.footprint_bytes() as u64;
        add("index_bytes", container.index_bytes + container.row_dram_bytes + tables);
        add("metadata_elements_touched", container.searches.elements_touched);
        add("records_visited", self.scheduler.walks().visited.get());
        add("paced_ns", counters.paced_ns);
        let index = self.container.footprint_bytes();
        MemoryAccount { index, tables, ..self.memory.account() }.append(out);
        self.count_tables(out);
        self.count_traffic(out);
        self.count_upkeep(out);
    }

    /// Levels, tables, files of values, and the volume they lie on.
    fn count_tables(&self, out: &mut Vec<Statistic>) {
        let mut add = |name, value| out.push(Statistic { name, value });
        add("levels", self.levels.depth() as u64);
        add("tables", (0..self.levels.depth()).map(|level| self.levels.level(level).len() as u64).sum());
        add("value_files", self.levels.value_files().count() as u64);
        add("value_live_bytes", self.levels.value_files().map(|values| values.live_bytes).sum());
        add("value_bytes", self.levels.value_files().map(|values| values.bytes).sum());
        add("cached_pages", self.memory.cache().borrow().len() as u64);
        let (pages, free, deferred) = self.volume_pages_now();
        add("usable_bytes", pages * PAGE_BYTES as u64);
        add("pages_free", free);
        add("pages_deferred", deferred);
        let bytes = |pages: fn(&TableFacts) -> u32| {
            self.tables().map(|table| u64::from(pages(&table.facts))).sum::<u64>() * PAGE_BYTES as u64
        };
        add("table_bytes", bytes(|facts| facts.pages));
        add("table_plain_bytes", bytes(|facts| facts.plain_pages));
        let (pmem_levels_used, pmem_levels_free, pmem_levels_all) = self.pmem_levels_bytes();
        add("pmem_levels_bytes", pmem_levels_all);
        add("pmem_levels_free_bytes", pmem_levels_free);
        add("pmem_levels_table_bytes", pmem_levels_used);
        add("pmem_levels", (0..).take_while(|level| self.compactor.plan().in_pmem_levels(*level)).count() as u64);
    }

    /// Bytes read and written, and for whom.
    fn count_traffic(&self, out: &mut Vec<Statistic>) {
        let counters = &self.counters;
        let mut add = |name, value| out.push(Statistic { name, value });
        add("reads", counters.reads.reads);
        add("page_reads", counters.reads.page_reads);
        add("read_bytes", counters.reads.read_bytes);
        add("write_bytes", counters.writes.write_bytes);
        add("value_write_bytes", counters.writes.value_write_bytes);
        add("manifest_write_bytes", counters.writes.manifest_write_bytes);
        for (name, bytes) in LEVELS_TOLD.into_iter().zip(counters.writes.level_write_bytes) {
            add(name, bytes);
        }
        add("table_write_bytes", counters.writes.table_write_bytes);
        add("table_plain_write_bytes", counters.writes.table_plain_write_bytes);
        add("pmem_levels_write_bytes", counters.writes.pmem_levels_write_bytes);
        add("pmem_levels_read_bytes", counters.reads.pmem_levels_read_bytes);
        add("user_bytes", counters.user_bytes);
        add("loaded_bytes", counters.loaded_bytes);
    }

    /// Compactions, deletes of ranges, batches, snapshots.
    fn count_upkeep(&self, out: &mut Vec<Statistic>) {
        let counters = &self.counters;
        let mut add = |name, value| out.push(Statistic { name, value });
        add("installs", counters.compaction.installs);
        add("columns_down", counters.compaction.columns);
        add("level_compactions", counters.compaction.level_compactions);
        add("value_collections", counters.compaction.value_collections);
        add("compacted_bytes", counters.compaction.compacted_bytes);
        for (name, ns) in PHASES_TOLD.into_iter().zip(counters.compaction.phases.ns) {
            add(name, ns);
        }
        add("rows_flushed", counters.compaction.rows);
        add("range_deletes", counters.range_deletes);
        add("range_deletes_in_force", self.ranges.all().len() as u64);
        add("tables_dropped_whole", counters.compaction.tables_dropped);
        add("stalled_ticks", counters.stalled_ticks);
        add("full_refusals", counters.full_refusals);
        add("corrupt_records", counters.corrupt_records);
        add("batches", self.batches.done());
        add("batches_under_way", self.batches.under_way());
        add("snapshots", self.snapshots.len() as u64);
        // Rows do not say for whom they keep.
        let kept_in_rows = if self.snapshots.len() > 0 { self.container.statistics().kept_bytes } else { 0 };
        add("snapshots_kept_bytes", self.snapshots.kept_bytes() + kept_in_rows);
        add("snapshots_ended_early", self.snapshots.ended_early());
        add("snapshot_oldest_ns", self.snapshots.oldest_ns(self.life.mono()));
    }
}
