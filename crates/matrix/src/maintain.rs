//! What a tick does besides operations: rows from memtables, columns into L1, tables into the
//! levels below. All of it is paid for by the writes that cause it.

use std::sync::Arc;

use stratakv_base::fault_point;
use stratakv_device::{Class, IoFault};
use stratakv_engine::{Effects, Error, Reply};
use stratakv_pmem::Pmem;

use crate::compactor::FlushState;
use crate::container::{Column, ColumnLimits, Flush};
use crate::cursor::{Cursor, Stop};
use crate::install::Made;
use crate::job::{Job, Source};
use crate::matrix::Matrix;
use crate::memory::IoPurpose;
use crate::output::{NoRoom, Output, Role, SLICE_PAGES};
use crate::reading::Waiter;
use crate::scheduler::WaitFor;
use crate::volume::LevelTable;

/// A compaction stops merging while so much of what it made waits for the device.
const BACKLOG_BYTES_MAX: usize = 1 << 20;
/// Columns have between this many tables' bytes and twice as many (MatrixKV: between AF/2 and AF,
/// AF = 10; smaller ones free room sooner).
pub(crate) const COLUMN_TABLES: u64 = 4;
/// With less of the container's units free than so many of a hundred, columns go down whatever they
/// cost.
const FREE_PERCENT_MIN: u64 = 5;
/// Of the container's units, so many of a hundred are free before a column goes down: each key
/// range then waits for its turn once around the key space, and what goes down of it is about 1.4
/// times what the container holds for each byte of it (what was just cut has nothing, what is cut
/// next has twice the mean).
const COLUMN_FREE_PERCENT: u64 = 30;
/// The same of a container whose compactor takes rows only when it is empty (MatrixKV hands over at
/// 60 % of the container; here at 40 %).
const RECEIVER_FREE_PERCENT: u64 = 60;

/// Bytes of maintenance in one tick while nothing is written: bytes and not time, so that it is
/// deterministic.
const STEP_BYTES: u64 = 64 << 10;

impl<P: Pmem> Matrix<P> {
    /// A bounded step of everything that is due.
    pub(crate) fn maintain(&mut self, effects: &mut Effects) {
        if !self.life.may_maintain() {
            return;
        }
        let written = self.compactor.take_written();
        let free = self.free_percent();
        let share = STEP_BYTES;
        self.scheduler.walks_mut().note_dead();
        if let Err(error) = self.flush(written, share, effects) {
            return self.fail_region(error);
        }
        let is_closing = !self.life.is_open();
        let mut has_use = !is_closing || self.somebody_waits();
        fault_point!("trial_closing_clears_nothing", has_use = !is_closing);
        if has_use {
            self.plan_job(free);
        }
        if self.compactor.job().is_some() {
            // While there is room a byte is merged for each that is written, near its end as many
            // as the device takes: the container finds the fill at which columns keep pace.
            let below = self.column_free_percent().saturating_sub(free);
            let is_idle = written == 0 || self.somebody_waits();
            let more = if is_idle || free <= FREE_PERCENT_MIN { share } else { 0 };
            self.compactor.pay(written * (3 + below) / 3 + more);
            self.run_job(effects);
            if is_idle && self.may_merge() {
                effects.more();
            }
        }
        self.pump_growth(effects);
        self.pump_spills(effects);
        self.pump_outputs(effects);
        self.pump_install(effects);
        self.note_phase();
        if let Some(until) = self.compactor.is_put_off(self.life.mono()) {
            effects.wake_at(until);
        }
        self.pump_repair(effects);
        if self.is_stuck() && self.scheduler.is_awaited(WaitFor::ContainerRoom) {
            // They are told in the next tick.
            effects.more();
        }
    }

    /// Whether writes wait for room, so that what makes it goes on by itself.
    fn somebody_waits(&self) -> bool {
        self.scheduler.is_awaited(WaitFor::ContainerRoom)
            || self.scheduler.is_awaited(WaitFor::VolumeRoom)
            || self.compactor.load.is_some()
    }

    /// Whether writes wait for room and nothing is under way that would wake them, though there may
    /// be enough by now: a memtable that became a row has a shorter reserve. What can be cleared
    /// away is, or they are told that nothing can, so none asks for ever.
    fn waits_for_nothing(&self) -> bool {
        fault_point!("trial_values_wait_for_nothing", return false);
        let is_under_way = self.blobs.is_writing()
            || self.compactor.load.is_some()
            || self.volume.is_growing()
            || !self.volume.deferred().is_empty();
        self.scheduler.is_awaited(WaitFor::VolumeRoom) && !is_under_way && self.reads.held().next().is_none()
    }

    pub(crate) fn free_percent(&self) -> u64 {
        let (free, of) = self.container.units_free();
        free * 100 / of.max(1)
    }

    /// Memtables become rows: as many bytes as came in, and half as many again.
    fn flush(&mut self, written: u64, share: u64, effects: &mut Effects) -> Result<(), Error> {
        let mut seen = self.snapshots.versions();
        fault_point!("matrix_flush_forgets_snapshots", seen = &[]);
        let seals_dead =
            std::mem::take(&mut self.scheduler.walks_mut().seals_dead) && self.container.is_memtable_dense();
        let clears = self.is_clearing() || seals_dead;
        if (self.container.is_full() || self.scheduler.is_awaited(WaitFor::ContainerRoom) || clears)
            && !matches!(self.container.seal(seen), Ok(_) | Err(Error::Full(_)))
        {
            self.counters.stalled_ticks += 1;
        }
        if !self.container.has_sealed() {
            return Ok(());
        }
        let budget = if written == 0 || self.scheduler.is_awaited(WaitFor::ContainerRoom) {
            share * 4
        } else {
            written + written / 2
        };
        let step = self.container.flush_step(budget);
        let is_full = matches!(step, Err(Error::Full(_)));
        self.compactor.set_flush(if is_full { FlushState::DirectoryFull } else { FlushState::Goes });
        match step {
            Ok(Flush::Row { .. }) => self.counters.compaction.rows += 1,
            Ok(Flush::More) => {}
            Ok(Flush::Waits(version)) => {
                fault_point!("trial_range_forgotten_with_its_log", {
                    self.container.ranges_are_kept(version);
                    effects.more();
                    return Ok(());
                });
                let is_put_off = self.compactor.is_put_off(self.life.mono()).is_some();
                self.compactor.set_flush(FlushState::Ranges { version, is_put_off });
                fault_point!("trial_ranges_spin_for_a_failing_device", effects.more());
                // Else it is woken then.
                if !is_put_off {
                    effects.more();
                }
                return Ok(());
            }
            // The directory has no room for a row before a compactor's are gone: a tick more would
            // not help.
            Ok(Flush::Idle) | Err(Error::Full(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        if self.container.has_sealed() && (written == 0 || self.somebody_waits()) {
            effects.more();
        }
        Ok(())
    }

    /// Chooses what to compact next.
    fn plan_job(&mut self, free_percent: u64) {
        let now = self.life.mono();
        if !self.is_tight() {
            self.compactor.wake_after_a_while(now);
        }
        let waits = self.compactor.job().is_some() || !self.installer.is_idle();
        if waits || self.compactor.is_put_off(now).is_some() {
            return;
        }
        let is_urgent = !self.compactor.rests()
            && (free_percent <= FREE_PERCENT_MIN || self.scheduler.is_awaited(WaitFor::ContainerRoom));
        if let Some(job) = self.load_job(is_urgent) {
            return self.begin_job(job);
        }
        if self.compactor.rests() || self.drops_hidden_tables() {
            return;
        }
        let is_clearing = self.is_clearing() || self.waits_for_nothing();
        let (receiver, compactor) = self.container.rows();
        let clears_dead = self.scheduler.walks().clears_dead && self.container.are_rows_dense();
        let is_due = free_percent <= self.column_free_percent()
            || self.scheduler.is_awaited(WaitFor::ContainerRoom)
            || is_clearing
            || clears_dead;
        if (compactor == 0 || self.container.joins())
            && receiver > 0
            && is_due
            && let Err(error) = self.container.hand_over()
        {
            return self.fail_region(error);
        }
        let wanted = if is_clearing { None } else { self.wanted_job(free_percent, is_due) };
        let lacks_room = wanted.as_ref().is_some_and(|job| !self.has_room_for(job.pages_in()));
        let mut job = wanted.filter(|_| !lacks_room);
        if job.is_none() && self.scheduler.walks().clears_dead && !lacks_room && !is_clearing && !self.awaits_row() {
            // What walks passed goes down, level by level: at the lowest one nothing is left of it.
            job = self.dense_job();
            self.scheduler.walks_mut().clears_dead = job.is_some();
        }
        if job.is_none() && (lacks_room || is_clearing) && !self.awaits_row() {
            job = self.small_job();
            if job.is_none() && !self.compactor.rests() && !self.reclaim() {
                self.back_off_for_space();
            }
        }
        if let Some(job) = job {
            self.begin_job(job);
        }
    }

    fn begin_job(&mut self, mut job: Job) {
        job.ranges = self.ranges.clone();
        self.choose_moves(&mut job);
        job.files.compression = self.compression_of(&job);
        self.compactor.begin(job, self.life.mono());
    }

    /// Whether a row is on its way, of which more may be cleared away. One that finds no room in
    /// the container is not.
    fn awaits_row(&self) -> bool {
        fault_point!("trial_blocked_rows_are_awaited", return self.container.has_sealed());
        self.container.has_sealed() && !self.compactor.is_flush_blocked()
    }

    /// Of the container's units, so many of a hundred may stay free.
    fn column_free_percent(&self) -> u64 {
        if self.container.joins() { COLUMN_FREE_PERCENT } else { RECEIVER_FREE_PERCENT }
    }

    fn wanted_job(&mut self, free_percent: u64, column_is_due: bool) -> Option<Job> {
        let deep = self.level_over_limit();
        let column = if column_is_due || !self.container.joins() { self.long_column() } else { None };
        match (column, deep) {
            // L1 that is much too long makes columns dear: it goes first, unless there is hardly
            // room.
            (_, Some(level)) if self.level_bytes(level) > 2 * self.limit_bytes(level) && free_percent > 10 => {
                self.level_job(level)
            }
            // A column that finds no room in the PMEM levels is written to the volume, twice in the
            // end: unless writes wait for it, room is made first.
            (Some(job), _) if self.finds_no_room_in_pmem_levels(&job) && free_percent > FREE_PERCENT_MIN => {
                self.level_job(0).or(Some(job))
            }
            (Some(job), _) => Some(job),
            (None, Some(level)) => self.level_job(level),
            (None, None) => self.due_collection(),
        }
    }

    fn finds_no_room_in_pmem_levels(&self, column: &Job) -> bool {
        self.compactor.plan().in_pmem_levels(0) && column.pages_likely() > self.volume.places().pmem_levels_pages().0
    }

    /// The column that is next while there is room.
    fn long_column(&mut self) -> Option<Job> {
        // What a merge makes in the PMEM levels has to find room beside what it takes.
        let tables = if self.compactor.plan().in_pmem_levels(0) { COLUMN_TABLES / 2 } else { COLUMN_TABLES };
        let low_bytes = tables * self.config.table_bytes;
        self.next_column(ColumnLimits { low_bytes, high_bytes: 2 * low_bytes })
    }

    /// The next column, of such a length.
    pub(crate) fn next_column(&mut self, limits: ColumnLimits) -> Option<Job> {
        if self.container.rows().1 == 0 {
            return None;
        }
        let tables = self.levels.level(0);
        let bounds: Vec<&[u8]> =
            tables.iter().flat_map(|table| [&table.facts.first_key[..], &table.facts.last_key[..]]).collect();
        match self.container.column(&bounds, limits).and_then(|column| self.column_job(column)) {
            Ok(job) => job,
            Err(stop) => {
                self.stop_job(stop);
                None
            }
        }
    }

    /// A column into L1: merged with the tables from its first record to its last one, which may be
    /// far from where it ends.
    fn column_job(&self, column: Option<Column>) -> Result<Option<Job>, Stop> {
        let Some(column) = column else { return Ok(None) };
        let (mut first, mut last) = (None::<Vec<u8>>, Vec::new());
        let mut parts = self.container.column_parts(&column)?;
        for mut row in self.container.part_cursors(&mut parts, &[])? {
            let key = row.key().unwrap_or_default();
            if first.as_ref().is_none_or(|first| key < &first[..]) {
                first = Some(key.to_vec());
            }
            row.seek_before(None)?;
            last = last.max(row.key().unwrap_or_default().to_vec());
        }
        last.push(0);
        let below = match &first {
            Some(first) => self.levels.overlapping(0, first, Some(&last)),
            None => 0..0,
        };
        let below = self.levels.level(0)[below].to_vec();
        Ok(Some(Job::of_column(column, parts, below)))
    }

    fn limit_bytes(&self, level: usize) -> u64 {
        self.compactor.plan().limit_bytes(level)
    }

    fn level_bytes(&self, level: usize) -> u64 {
        self.levels.pages(level) * 4096
    }

    /// The level that is furthest beyond its limit.
    fn level_over_limit(&self) -> Option<usize> {
        let over = |level: &usize| self.level_bytes(*level) > self.limit_bytes(*level);
        (0..self.levels.depth())
            .filter(over)
            .max_by_key(|level| self.level_bytes(*level) * 100 / self.limit_bytes(*level))
    }

    /// The table of a level that has the least below it for each byte of its own, into the next
    /// level.
    fn level_job(&self, level: usize) -> Option<Job> {
        let below = |table: &crate::volume::LevelTable| {
            let mut end = table.facts.last_key.to_vec();
            end.push(0);
            self.levels.overlapping(level + 1, &table.facts.first_key, Some(&end))
        };
        let cost = |table: &std::sync::Arc<crate::volume::LevelTable>| {
            let tables = &self.levels.level(level + 1)[below(table)];
            let pages: u64 = tables.iter().map(|table| u64::from(table.facts.pages)).sum();
            pages * 1000 / u64::from(table.facts.pages.max(1))
        };
        let table = self.levels.level(level).iter().min_by_key(|table| cost(table))?;
        Some(self.job_of(level, table))
    }

    /// A table of a level, into the next one.
    pub(crate) fn job_of(&self, level: usize, table: &Arc<LevelTable>) -> Job {
        let mut end = table.facts.last_key.to_vec();
        end.push(0);
        let below = self.levels.overlapping(level + 1, &table.facts.first_key, Some(&end));
        let tables = self.levels.level(level + 1)[below].to_vec();
        Job::new(Source::Level { tables: vec![table.clone()] }, level + 1, tables)
    }

    pub(crate) fn may_merge(&mut self) -> bool {
        let Some(job) = self.compactor.job_mut() else { return false };
        !job.merged && !job.reads.waits() && job.files.backlog_bytes() < BACKLOG_BYTES_MAX
    }

    /// Merges as much as was paid for.
    fn run_job(&mut self, effects: &mut Effects) {
        if self.may_merge()
            && self.compactor.credit_bytes() >= MERGE_BYTES
            && let Some(mut job) = self.compactor.take_job()
        {
            let budget = self.compactor.credit_bytes().min(MERGE_BYTES);
            let before = job.read_bytes;
            let merged = self.merge(&mut job, budget);
            self.compactor.spend((job.read_bytes - before).max(1));
            let number = job.number;
            if matches!(merged, Err(Stop::Missing)) {
                job.reads.wait_for(self.reads.ask_missing(Waiter::Job(number)));
            }
            self.compactor.put_back(job);
            if let Err(stop) = merged {
                self.stop_job(stop);
            }
            self.reads.ask_ahead(number, self.config.depth as usize / 2);
        }
        let is_written = self.installer.is_idle() && self.compactor.job().is_some_and(Job::is_written);
        if is_written
            && !self.volume.waits_for(self.manifest_pages())
            && let Some(job) = self.compactor.take_job()
        {
            self.compactor.spend(u64::MAX);
            // No pages side by side for the manifest: there will be some if the volume grows. It is
            // compacted again.
            if self.begin_install(Made::Compaction(job)).is_err() && !self.volume.is_growing() {
                self.refuse_load();
                self.volume_is_full();
            }
            effects.more();
        }
    }

    /// Hands what the job made to the device.
    fn pump_outputs(&mut self, effects: &mut Effects) {
        if let Some(mut job) = self.compactor.take_job() {
            let is_load = job.is_load();
            let written = job.files.outputs().try_for_each(|output| self.pump_output(output, is_load, effects));
            self.compactor.put_back(job);
            if written.is_err() {
                self.volume_is_full();
            }
        }
        self.pump_spilled(effects);
    }

    /// `is_asked`: an operation waits for it, which takes no room that is kept for others.
    pub(crate) fn pump_output(
        &mut self,
        output: &mut Output,
        is_asked: bool,
        effects: &mut Effects,
    ) -> Result<(), NoRoom> {
        if let Err(error) = self.store_in_pmem_levels(output, effects) {
            self.fail_region(error);
            return Ok(());
        }
        let reserve_pages = if is_asked { self.reserve_pages() } else { self.manifest_pages() };
        while output.wants_write() {
            if self.volume.waits_for(reserve_pages + SLICE_PAGES) {
                break;
            }
            let Some(block) = self.memory.take_block(Class::Slice, effects) else { break };
            for (place, part) in output.next_write(block, self.volume.places_mut(), reserve_pages)? {
                self.counters.writes.write_bytes += u64::from(part.len);
                self.counters.writes.wrote(output.role(), part.len.into());
                if matches!(output.role(), Role::Table { .. }) {
                    self.cache_written(place, &part, effects);
                }
                let io = self.memory.start(IoPurpose::Output(output.file()));
                if !is_asked {
                    effects.background(io);
                }
                effects.write(io, place, vec![part], false);
            }
        }
        Ok(())
    }

    /// A write of a file is done: of the compaction's, of a long value, or of one that was given
    /// up, whose errors are nobody's.
    pub(crate) fn output_written(&mut self, file: u64, result: Result<(), IoFault>, effects: &mut Effects) {
        let is_it = |output: &&mut Output| output.file() == file;
        let is_blob = self.blobs.output_written(file);
        let of_job = self.compactor.job_mut().and_then(|job| job.files.outputs().find(is_it).map(Output::written));
        self.volume.output_written(file);
        match result {
            Err(fault) if is_blob => self.fail_blob_write(&write_failed(fault), effects),
            Err(IoFault::Full) if of_job.is_some() => self.volume_is_full(),
            Err(fault) if of_job.is_some() => self.put_off(&write_failed(fault)),
            // Nobody waits for a file that was given up.
            Err(fault) => {
                fault_point!("trial_errors_of_dropped_files_count", self.put_off(&write_failed(fault)));
            }
            Ok(()) => {}
        }
        self.defer_reclaim();
    }

    /// A compaction failed, and is tried again later.
    pub(crate) fn put_off(&mut self, error: &Error) {
        if self.compactor.job().is_some_and(Job::is_load) {
            self.end_load(Reply::Failed(error.clone()));
        }
        tracing::warn!(%error, shard = self.config.shard, "a compaction failed; it is tried again");
        self.drop_job();
        if self.compactor.put_off(error, self.life.mono()) {
            self.scheduler.wake(WaitFor::VolumeRoom);
        }
    }

    /// The volume has no room for what a compaction makes.
    fn volume_is_full(&mut self) {
        let is_load = self.compactor.job().is_some_and(Job::is_load);
        if !is_load && !self.reclaim() {
            self.back_off_for_space();
        }
        self.drop_job();
    }

    /// Values that no record points to any more, since it was overwritten before a column brought
    /// it down, are given up with the next manifest, which is written at once. Whether there are
    /// any. O(records of the container) if there are unreferenced files.
    pub(crate) fn reclaim(&mut self) -> bool {
        let Ok(mut unclaimed) = self.unclaimed() else { return false };
        for suspended in self.scheduler.all() {
            suspended.work.all_placed().for_each(|placed| _ = unclaimed.remove(&placed.file));
        }
        if self.blobs.add_unreferenced(unclaimed) {
            self.installer.repair();
        }
        self.installer.repairs()
    }

    /// Nothing of the job counts. Its room is free once its writes have ended.
    pub(crate) fn drop_job(&mut self) {
        if self.compactor.job().is_some_and(|job| job.for_load) {
            self.refuse_load();
        }
        let outputs = self.compactor.take_job().into_iter().flat_map(|job| job.files.into_outputs());
        self.drop_outputs(outputs);
    }

    /// What a compaction reads is damaged: it stays where it is, and so does everything that would
    /// have to be merged with it.
    fn stop_job(&mut self, stop: Stop) {
        if let Stop::Damaged(corruption) = stop {
            self.fail_job(Error::Corrupt(corruption));
        }
    }

    pub(crate) fn fail_job(&mut self, error: Error) {
        if matches!(error, Error::Io { .. }) {
            return self.put_off(&error);
        }
        tracing::error!(%error, shard = self.config.shard, "a compaction cannot go on: its room is not freed until the store is repaired");
        self.compactor.rest_damaged();
        self.scheduler.wake(WaitFor::VolumeRoom);
        self.drop_job();
    }

    /// Whether the container is full and nothing will make room in it.
    pub(crate) fn is_stuck(&self) -> bool {
        self.compactor.rests()
            && self.compactor.job().is_none()
            && self.installer.is_idle()
            && !self.blobs.is_writing()
            && (self.compactor.is_flush_blocked() || !self.container.has_sealed())
    }
}

/// A write of the volume failed.
pub(crate) fn write_failed(fault: IoFault) -> Error {
    match fault {
        IoFault::Full => Error::Full("the device under the volume has no space"),
        fault => Error::Io { what: "a write", fault },
    }
}

/// Merged in one step.
const MERGE_BYTES: u64 = 64 << 10;
