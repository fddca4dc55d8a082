//! What is done when the volume has hardly room: nothing grows before what is dead was cleared
//! away. Deletes always go on: there is room for all that the container holds.

use std::sync::Arc;

use stratakv_base::fault_point;
use stratakv_engine::Error;
use stratakv_pmem::Pmem;

use crate::config::{Compression, MatrixConfig};
use crate::container::ColumnLimits;
use crate::job::{Job, Moves, Source, TABLES_BELOW_MAX};
use crate::maintain::COLUMN_TABLES;
use crate::matrix::Matrix;
use crate::scheduler::WaitFor;
use crate::volume::{FIRST_PAGE, LevelTable, ValueFile};

/// Files of which more is alive are not worth moving while there is room, in millionths.
const POOR_PPM_MAX: u64 = 900_000;
/// A value file of which less than this share of a hundred is alive is rewritten though no
/// compaction meets it.
const POOR_PERCENT: u64 = 50;
/// The same where there is hardly room.
const POOR_PERCENT_TIGHT: u64 = 90;
/// Of all values in value files, so many of a hundred may be dead before some are rewritten that no
/// compaction meets.
const DEAD_PERCENT_MAX: u64 = 40;
/// A compaction may need room for so many tables at once: a table, those below it, and with them
/// their filters and indexes.
const WORKING_TABLES: u64 = TABLES_BELOW_MAX as u64 + 4;

/// What is kept for snapshots may take one in so many bytes of what the volume holds, or as much as
/// the region has: beyond it the oldest snapshot ends.
const KEPT_SHARE: u64 = 4;

/// Why compaction rests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CompactionBackoff {
    /// It does not.
    #[default]
    No,
    /// The volume has hardly room, and nothing more can be cleared away: until something is deleted
    /// or becomes free.
    Full,
    /// What it has to read is damaged.
    Damaged,
}

/// A compaction that leaves values where they are: what it makes is no longer than what it reads.
fn in_place(mut job: Job) -> Job {
    job.moves = Moves::Nothing;
    job
}

/// How much of a file is alive, in millionths.
fn alive_ppm(values: &ValueFile) -> u64 {
    (u128::from(values.live_bytes) * 1_000_000 / u128::from(values.bytes.max(1))) as u64
}

/// Bytes of values that are moved for a hundred that go down: nothing while a tenth is dead, a half
/// of them at 30 %, all at 40 %, twice as many at 50 %. Evenly overwritten, a store comes to rest
/// where files that are 40 % alive are moved: two thirds, with a third of all values dead.
fn moved_percent(bytes: u64, live_bytes: u64) -> u64 {
    let dead_percent = (u128::from(bytes.saturating_sub(live_bytes)) * 100 / u128::from(bytes.max(1))) as u64;
    let above = dead_percent.saturating_sub(10);
    above * above * 12 / 100
}

/// Pages that values take in new files.
fn moved_pages(bytes: u64) -> u64 {
    bytes.div_ceil(4096) * 9 / 8 + 1
}

/// What files leave of a volume for two manifests of so many pages, of two copies each.
fn pages_of_manifests(pages: u32) -> u64 {
    4 * u64::from(pages) + 16
}

/// Where one version of so many is a delete, compaction for the sake of those that walk there is
/// worth it.
pub(crate) const DENSE_SHARE: u64 = 4;

/// Pages that one compaction may need at once.
fn working_pages(table_bytes: u64) -> u64 {
    WORKING_TABLES * (table_bytes.div_ceil(4096).max(1) + 2)
}

/// Fewest pages of a volume that takes anything: what nothing that grows may take of an empty one,
/// its superblocks, its first manifest, and what comes down as one row.
pub(crate) fn pages_min(config: &MatrixConfig) -> u64 {
    FIRST_PAGE + 2 + pages_of_manifests(1) + working_pages(config.table_bytes) + 2 * config.row_bytes.div_ceil(4096)
}

impl<P: Pmem> Matrix<P> {
    /// Pages that nothing that grows may take: for two manifests of two copies each, for all that
    /// the container and the PMEM levels hold, since it goes down, and for one compaction.
    pub(crate) fn reserve_pages(&self) -> u64 {
        let (free, of) = self.container.units_free();
        let container_pages = ((of - free.min(of)) * self.container.unit_bytes()).div_ceil(4096);
        let table_pages = self.config.table_bytes.div_ceil(4096).max(1);
        // Down there it has indexes and filters besides, and pages that are not full.
        let container_pages = container_pages * (table_pages + 3) / table_pages * 5 / 4;
        let (pmem_levels_free, pmem_levels_pages) = self.volume.places().pmem_levels_pages();
        let mut in_pmem_levels = pmem_levels_pages - pmem_levels_free;
        fault_point!("trial_layer_has_no_reserve", in_pmem_levels = 0);
        self.manifest_pages() + container_pages + in_pmem_levels + working_pages(self.config.table_bytes)
    }

    /// What files leave of the volume for two manifests, of two copies each.
    pub(crate) fn manifest_pages(&self) -> u64 {
        pages_of_manifests(self.installer.superblock().pages)
    }

    /// Whether the volume has hardly room for what is there and what waits to be written to it.
    pub(crate) fn is_tight(&self) -> bool {
        self.volume.room_pages() < self.reserve_pages() + self.blobs.wanted_pages()
    }

    /// Whether what is dead is being cleared away, since there is hardly room.
    pub(crate) fn is_clearing(&self) -> bool {
        self.is_tight() && !self.compactor.rests()
    }

    /// Whether a put has to wait until something was cleared away; an error if it would wait for
    /// ever.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn must_wait_for_room(&mut self) -> Result<bool, Error> {
        fault_point!("trial_puts_take_the_last_room", return Ok(false));
        if !self.is_tight() {
            return Ok(false);
        }
        // What snapshots keep goes before a put is refused.
        if self.end_snapshot_that_keeps() {
            return Ok(true);
        }
        match (self.compactor.backoff(), self.compactor.verdict()) {
            (CompactionBackoff::No, Some(error)) => Err(error.clone()),
            (CompactionBackoff::No, None) => Ok(true),
            (CompactionBackoff::Full | CompactionBackoff::Damaged, _) => {
                Err(Error::Full("the volume has no room for more than it holds"))
            }
        }
    }

    /// Ends the oldest snapshot if what is kept for snapshots takes too much room.
    pub(crate) fn bound_snapshots(&mut self) {
        let used_bytes = (self.volume.capacity() - self.volume.free_pages()) * 4096;
        let region_bytes = self.container.units_free().1 * self.container.unit_bytes();
        if self.snapshots.kept_bytes() > (used_bytes / KEPT_SHARE).max(region_bytes) {
            self.end_oldest_snapshot();
        }
    }

    /// Ends the oldest snapshot if there is no room and something is kept for snapshots. Whether it
    /// did: then there may be room soon.
    pub(crate) fn end_snapshot_that_keeps(&mut self) -> bool {
        self.compactor.backoff() == CompactionBackoff::Full
            && self.snapshots.kept_bytes() > 0
            && self.end_oldest_snapshot()
    }

    fn end_oldest_snapshot(&mut self) -> bool {
        fault_point!("trial_snapshots_last_for_ever", return false);
        let ended = self.snapshots.end_oldest();
        if ended {
            self.compactor.look_again();
            tracing::warn!(
                shard = self.config.shard,
                "the oldest snapshot has ended: what was kept for it took too much room"
            );
            self.compactor.wake();
        }
        ended
    }

    /// Nothing more can be cleared away: whoever waits for room is told.
    pub(crate) fn back_off_for_space(&mut self) {
        self.compactor.rest_full(self.life.mono());
        self.scheduler.wake(WaitFor::VolumeRoom);
    }

    /// A compaction for which there is room where there is hardly any, the one first that clears
    /// the most away: deletes that hide much below, values that lie among dead ones, what the
    /// container holds, anything that hides something, values among some dead ones. `None`: nothing
    /// does, in the room there is. O(tables).
    pub(crate) fn small_job(&mut self) -> Option<Job> {
        if let Some(job) = self.dense_job() {
            return Some(job);
        }
        // Before what the container holds takes the room for it.
        let clears = self.half_hidden_job().or_else(|| self.collection(POOR_PERCENT)).or_else(|| self.stale_job(1));
        if let Some(job) = clears {
            return Some(job);
        }
        // Short columns make short tables and value files, which take whole pages; but up to the
        // next table's end needs the least room.
        let table_bytes = self.config.table_bytes;
        let column = [COLUMN_TABLES * table_bytes, table_bytes, 1].into_iter().find_map(|low_bytes| {
            let job = self.next_column(ColumnLimits { low_bytes, high_bytes: low_bytes.max(table_bytes) });
            job.map(in_place).filter(|job| self.has_room_for(job.pages_in()))
        });
        column.or_else(|| self.hiding_job(|_| true)).or_else(|| self.collection(POOR_PERCENT_TIGHT))
    }

    /// A table above the bottom that is mostly deletes and what they hide, into the next level.
    pub(crate) fn dense_job(&self) -> Option<Job> {
        self.hiding_job(|table| table.facts.deletes * DENSE_SHARE > table.facts.entries)
    }

    /// A table above the bottom, with as many deletes as can be, into the next level.
    fn hiding_job(&self, is_worth: impl Fn(&LevelTable) -> bool) -> Option<Job> {
        let above = 0..self.levels.depth().saturating_sub(1);
        let tables = above.flat_map(|level| self.levels.level(level).iter().map(move |table| (level, table)));
        let mut tables: Vec<_> = tables.filter(|(_, table)| is_worth(table)).collect();
        tables.sort_by_key(|(_, table)| std::cmp::Reverse(table.facts.deletes));
        let mut jobs = tables.into_iter().map(|(level, table)| in_place(self.job_of(level, table)));
        jobs.find(|job| self.has_room_for(job.pages_in()))
    }

    /// Whether a compaction that makes so many pages finds room, the manifest's aside.
    pub(crate) fn has_room_for(&self, pages: u64) -> bool {
        self.volume.room_pages() >= self.manifest_pages() + pages
    }

    /// What the tables of a compaction are written as. Where compression is off it goes on as long
    /// as there would be hardly room otherwise: what compressed tables take beyond their pages once
    /// they are plain is not in the reserve, and a store that was filled with them may have no room
    /// for it at all.
    pub(crate) fn compression_of(&self, job: &Job) -> Compression {
        let growth = job.growth_pages();
        let mut needs_it =
            growth > 0 && self.volume.room_pages() < self.reserve_pages() + self.blobs.wanted_pages() + growth;
        fault_point!("trial_tables_grow_beyond_the_room", needs_it = false);
        if needs_it { Compression::Lz4 } else { self.config.compression }
    }

    /// Rewrites a table that has values in the value file of which the least is alive, so that
    /// those move elsewhere: after the last of them the file is free. Of files that have less than
    /// `poor_percent` alive; `None`: there are none, or no room. One table, and as many of its
    /// values in such files as there is room for: bounded work. O(files + tables).
    pub(crate) fn collection(&self, poor_percent: u64) -> Option<Job> {
        fault_point!("trial_values_are_not_collected", return None);
        let poor = self.levels.value_files().filter(|values| !values.unreferenced && values.is_poor(poor_percent));
        let mut poor: Vec<_> =
            poor.map(|values| (values.live_bytes * 1000 / values.bytes.max(1), values.file)).collect();
        poor.sort_unstable();
        poor.into_iter().find_map(|(_, file)| self.collection_of(file, poor_percent))
    }

    /// Rewrites the table that has the most for snapshots that are closed, if that is at least so
    /// much.
    fn stale_job(&self, bytes_min: u64) -> Option<Job> {
        fault_point!("trial_snapshots_leave_what_they_kept", return None);
        let (file, _) = self.snapshots.most_stale().filter(|(_, bytes)| *bytes >= bytes_min)?;
        self.rewriting(|table| table.facts.file == file)
    }

    /// Every table, from the top down, with its level.
    fn places(&self) -> impl Iterator<Item = (usize, &Arc<LevelTable>)> {
        (0..self.levels.depth()).flat_map(|level| self.levels.level(level).iter().map(move |table| (level, table)))
    }

    /// Writes the first table for which `wanted` says so anew, in its level, without what nobody
    /// sees; values stay where they are. `None`: there is none, or no room.
    pub(crate) fn rewriting(&self, wanted: impl Fn(&LevelTable) -> bool) -> Option<Job> {
        let (level, table) = self.places().find(|(_, table)| wanted(table))?;
        let mut job = Job::new(Source::Level { tables: vec![table.clone()] }, level, Vec::new());
        job.moves = Moves::Files(Vec::new());
        self.has_room_for(job.pages_in()).then_some(job)
    }

    /// A table with values in this file. If nobody else has values there, the file is free
    /// afterwards, and others of which that holds are taken along; else the file alone, and only if
    /// there is room for what the other tables have there too, which they bring next: what was
    /// begun comes to an end.
    fn collection_of(&self, file: u64, poor_percent: u64) -> Option<Job> {
        let mut places = self.places().filter(|(_, table)| table.facts.blob.iter().any(|(blob, _)| *blob == file));
        let (level, table) = places.next()?;
        let mut job = Job::new(Source::Level { tables: vec![table.clone()] }, level, Vec::new());
        let mut pages = job.pages_in() + 1 + moved_pages(self.levels.values(file)?.live_bytes);
        if !self.has_room_for(pages) {
            return None;
        }
        let is_whole =
            |from: u64, bytes: u64| self.levels.values(from).is_some_and(|values| values.live_bytes == bytes);
        let mut files = vec![file];
        if table.facts.blob.iter().any(|(blob, bytes)| *blob == file && is_whole(file, *bytes)) {
            for (from, bytes) in &table.facts.blob {
                let is_poor = self.levels.values(*from).is_some_and(|values| values.is_poor(poor_percent));
                let more = moved_pages(*bytes);
                if *from != file && is_poor && is_whole(*from, *bytes) && self.has_room_for(pages + more) {
                    pages += more;
                    files.push(*from);
                }
            }
        }
        files.sort_unstable();
        job.moves = Moves::Files(files);
        Some(job)
    }

    /// A collection that is due though there is room: much is dead, and no compaction meets it.
    /// Looked for once after each installation.
    pub(crate) fn due_collection(&mut self) -> Option<Job> {
        if self.compactor.has_looked(self.counters.compaction.installs) {
            return None;
        }
        let (bytes, live_bytes) = self.levels.value_sums();
        let dead = bytes.saturating_sub(live_bytes);
        let is_due = dead * 100 > bytes * DEAD_PERCENT_MAX && dead > 2 * self.config.table_bytes;
        let job = if is_due { self.collection(POOR_PERCENT) } else { None };
        let job = job.or_else(|| self.stale_job(self.config.table_bytes / 4)).or_else(|| self.half_hidden_job());
        if job.is_none() {
            self.compactor.note_look(self.counters.compaction.installs);
        }
        job
    }

    /// Chooses the files that a compaction moves values out of, of those that it meets: the poorest
    /// first, as far as [`moved_percent`] of what columns brought down allows. With a fixed bound
    /// (less than half is alive) all files of a store that was loaded and then overwritten evenly
    /// became poor at the same time: each column moved several times what it brought, and puts fell
    /// to a twentieth for ten seconds. O(files that are met * log).
    pub(crate) fn choose_moves(&mut self, job: &mut Job) {
        if !matches!(job.moves, Moves::Met(_)) {
            return;
        }
        if let Source::Column(column) = &job.source {
            let (bytes, live_bytes) = self.levels.value_sums();
            self.compactor.pay_for_moves(column.bytes * moved_percent(bytes, live_bytes) / 100);
        }
        let files = job.blob().into_iter();
        let files = files.filter_map(|(file, bytes)| Some((alive_ppm(self.levels.values(file)?), file, bytes)));
        let mut files: Vec<_> = files.filter(|(ppm, ..)| *ppm < POOR_PPM_MAX).collect();
        files.sort_unstable();
        let mut met = Vec::new();
        for (_, file, bytes) in files {
            if !self.compactor.spend_on_move(bytes) {
                break;
            }
            met.push(file);
        }
        met.sort_unstable();
        job.moves = Moves::Met(met);
    }

    /// Whether a job moves values of this file.
    pub(crate) fn moves_from(&self, moves: &Moves, file: u64) -> bool {
        match moves {
            Moves::Nothing => false,
            Moves::Met(files) | Moves::Files(files) => files.binary_search(&file).is_ok(),
        }
    }
}
