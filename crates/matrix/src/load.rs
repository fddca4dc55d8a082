//! Loads: sorted records that are not there yet become tables of the lowest level at once. No log,
//! no container, no compaction: each byte is written once.
//!
//! A load has its turn among writes as a deleted range has: it waits for all that came before it,
//! and what comes later between its first and its last key waits for it. So nothing comes to lie
//! there meanwhile. Then:
//! 1. It sees that nothing lies there, in no memtable, row or table, deletes and expired records
//!    included: else it is refused, and its records are put.
//! 2. A *marker* goes into the log, a delete of a key that no operation reaches. Its version is
//!    that of all records of the load: the log's versions stay without gaps, and none is given
//!    twice whatever a crash leaves. It is durable before anything is made.
//! 3. As the shard's job it makes tables and value files, as a compaction of its records with
//!    nothing would, and installs them as one. Then it is acknowledged.
//!
//! Cut before the superblock points to the new manifest, nothing of it is there; cut behind it, all
//! of it is. Snapshots that were opened before have lower versions than the marker; one that is to
//! be opened meanwhile would see the load appear, and waits.

use std::sync::Arc;

use stratakv_base::{CollectionId, Key, fault_point};
use stratakv_engine::{Error, LoadRecord, Operation, Reply, SnapshotOp, Unmet};
use stratakv_pmem::Pmem;

use crate::changes::OperationStep;
use crate::container::Change as Append;
use crate::cursor::{Cursor, Stop};
use crate::entry::{Body, Meta, value_checksum};
use crate::job::Job;
use crate::level_cursor::LevelCursor;
use crate::matrix::{BATCH_BYTES_MAX, Matrix};
use crate::merge::Merge;
use crate::operations::Work;
use crate::scan::behind;
use crate::scheduler::WaitFor;
use crate::table::values::BLOB_BYTES_MIN;
use crate::volume::LevelTable;

/// What an entry of a table takes beside its key and value, at most.
const ENTRY_BYTES: u64 = 40;
/// A load has numbers of files of its own, so many: a crash forgets which ones an earlier load had,
/// whose records are nowhere else. Had this one the same, a page of it that the device lost without
/// a word would be taken for one that the earlier one left there.
const FILES_BITS: u32 = 10;
/// So often compactions go before a load while the container has hardly room.
const YIELDS_MAX: u32 = 4;
/// More tables than one of each of two levels are not in the way of a load: then something keeps
/// making them.
const SPLITS_MAX: u32 = 4;

/// A load, from when it is handed over until it is answered.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) records: Arc<[LoadRecord]>,
    /// It has had its turn.
    pub(crate) begun: bool,
    /// Its marker's; 0: there is none yet.
    version: u64,
    /// Of keys and values.
    bytes: u64,
    /// That its tables take at most, and with its values.
    table_pages: u64,
    pages: u64,
}

/// The load that has its turn: it waits to be the shard's job, or is it.
#[derive(Debug)]
pub(crate) struct LoadTurn {
    /// Its operation.
    pub(crate) id: u64,
    load: Load,
    yields: u32,
    splits: u32,
}

impl Load {
    pub(crate) fn new(records: Arc<[LoadRecord]>) -> Load {
        let (mut bytes, mut beside, mut blob) = (0, 0, 0);
        for record in &records[..] {
            let is_blob = record.value.len() >= BLOB_BYTES_MIN;
            bytes += record.len_bytes();
            blob += if is_blob { record.value.len() as u64 } else { 0 };
            beside += ENTRY_BYTES + record.len_bytes() - if is_blob { record.value.len() as u64 } else { 0 };
        }
        // Blocks are not full. Values do not begin in the middle of a page if that leaves a gap of
        // up to an eighth.
        let table_pages = beside.div_ceil(4096) * 5 / 4 + 4;
        let pages = table_pages + blob.div_ceil(4096) * 9 / 8 + 1;
        Load { records, begun: false, version: 0, bytes, table_pages, pages }
    }

    /// Its first and its last key.
    pub(crate) fn range(&self) -> Option<(&Key, &Key)> {
        Some((&self.records.first()?.key, &self.records.last()?.key))
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.bytes + (self.records.len() * size_of::<LoadRecord>()) as u64
    }

    /// Pages that it takes at most.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }
}

/// The records of a load, as versions.
pub(crate) struct LoadCursor<'a> {
    records: &'a [LoadRecord],
    version: u64,
    /// One beyond the place: 0 is before the first.
    at: usize,
    /// Of the record here: its checksum is taken once.
    meta: Option<Meta>,
}

impl<'a> LoadCursor<'a> {
    pub(crate) fn new(load: &'a Load) -> LoadCursor<'a> {
        LoadCursor { records: &load.records, version: load.version, at: 0, meta: None }
    }

    fn here(&self) -> Option<&'a LoadRecord> {
        self.records.get(self.at.checked_sub(1)?)
    }

    fn go(&mut self, at: usize) {
        self.at = at.min(self.records.len() + 1);
        self.meta = self.here().map(|record| Meta {
            version: self.version,
            flags: record.flags,
            expiry: record.expiry,
            body: Body::Here {
                value_bytes: record.value.len() as u32,
                checksum: value_checksum(self.version, &record.value),
            },
        });
    }
}

impl Cursor for LoadCursor<'_> {
    fn seek(&mut self, key: &[u8]) -> Result<(), Stop> {
        self.go(self.records.partition_point(|record| record.key.encoded() < key) + 1);
        Ok(())
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<(), Stop> {
        self.go(self.records.partition_point(|record| key.is_none_or(|key| record.key.encoded() < key)));
        Ok(())
    }

    fn next(&mut self) -> Result<(), Stop> {
        self.go(self.at + 1);
        Ok(())
    }

    fn prev(&mut self) -> Result<(), Stop> {
        self.go(self.at.saturating_sub(1));
        Ok(())
    }

    fn key(&self) -> Option<&[u8]> {
        self.here().map(|record| record.key.encoded())
    }

    fn meta(&self) -> Option<Meta> {
        self.meta
    }

    fn value(&self, into: &mut Vec<u8>) -> Result<(), Stop> {
        into.extend_from_slice(self.here().map_or(&[], |record| &record.value[..]));
        Ok(())
    }
}

/// The key of all markers: no operation reaches it, no scan shows it.
fn marker() -> Key {
    Key::bound(CollectionId::ENGINE, b"load")
}

/// What a load that cannot go this way is answered.
fn refused() -> Reply {
    Reply::Unmet(Unmet::Occupied)
}

impl<P: Pmem> Matrix<P> {
    /// What is wrong with the records of a load, whatever the store holds.
    pub(crate) fn load_error(records: &[LoadRecord]) -> Option<Error> {
        if records.is_empty() {
            return Some(Error::BadBatch("it is empty"));
        }
        let len_bytes = records.iter().map(LoadRecord::len_bytes).sum();
        if records.len() > 1 && len_bytes > BATCH_BYTES_MAX {
            return Some(Error::BatchTooLarge { len_bytes, max_bytes: BATCH_BYTES_MAX });
        }
        records
            .iter()
            .find_map(|record| {
                record.key.check().err().map(Error::from).or_else(|| Self::value_error(record.value.len()))
            })
            .or_else(|| LoadRecord::check_order(records).err())
    }

    /// It has its turn: all writes before it are done.
    ///
    /// # Errors
    /// [`Stop`]: nothing was changed.
    pub(crate) fn begin_load(&mut self, load: &mut Load) -> Result<OperationStep, Stop> {
        load.begun = true;
        let mut is_free = self.is_vacant(load)?;
        fault_point!("matrix_loads_under_what_is_there", is_free = true);
        if !is_free || !self.has_room_to_load(load) {
            return Ok(OperationStep::Reply(refused()));
        }
        let key = marker();
        fault_point!("matrix_loads_without_a_marker", {
            load.version = self.container.version() + 1;
            return Ok(OperationStep::Loads);
        });
        load.version = match self.append(&[Append::delete(key.encoded())]) {
            Ok(version) => version,
            Err(refused) => return Ok(refused),
        };
        fault_point!("matrix_loads_name_files_again", return Ok(OperationStep::Loads));
        self.installer.skip_files(load.version << FILES_BITS);
        Ok(OperationStep::Loads)
    }

    /// It is logged, and waits to be the job.
    pub(crate) fn queue_load(&mut self, id: u64, work: &Work) {
        if let Work::Load(load) = work {
            self.compactor.load = Some(LoadTurn { id, load: load.clone(), yields: 0, splits: 0 });
        }
    }

    /// Whether nothing lies between the first and the last key of a load, whoever might see it.
    /// Reads pages only of tables that begin before and end behind it.
    fn is_vacant(&self, load: &Load) -> Result<bool, Stop> {
        let Some((first, last)) = load.range() else { return Ok(true) };
        let (first, last) = (first.encoded(), last.encoded());
        let is_beyond = |cursor: &dyn Cursor| cursor.key().is_none_or(|key| key > last);
        if !self.container.cursors_at(Some(first), None, false)?.iter().all(|cursor| is_beyond(cursor)) {
            return Ok(false);
        }
        let memory = self.in_memory(1);
        let tables = |level| self.tables_in_the_way(level, load);
        let cursors = (0..self.levels.depth()).map(tables).filter(|tables| !tables.is_empty());
        let cursors = cursors.map(|tables| Box::new(LevelCursor::new(tables, &memory)) as Box<dyn Cursor + '_>);
        let mut cursor = Merge::new(cursors.collect());
        cursor.seek(first)?;
        Ok(is_beyond(&cursor))
    }

    /// Tables of a level that begin at or before the last key of a load and end at or behind its
    /// first one. If it is vacant there is one at most.
    fn tables_in_the_way(&self, level: usize, load: &Load) -> &[Arc<LevelTable>] {
        let Some((first, last)) = load.range() else { return &[] };
        let range = self.levels.overlapping(level, first.encoded(), Some(&behind(last)));
        self.levels.level(level).get(range).unwrap_or_default()
    }

    /// Whether there is room beside what nothing that grows may take.
    fn has_room_to_load(&self, load: &Load) -> bool {
        self.volume.room_pages() >= self.reserve_pages() + self.blobs.wanted_pages() + load.pages
    }

    /// The lowest level there is, or one below it if that is long enough already: it is not
    /// compacted further at once. Never one of the PMEM levels, whose bytes are dear.
    fn level_to_load(&self, load: &Load) -> usize {
        let bytes = load.table_pages * 4096;
        let is_long = |level| self.levels.pages(level) * 4096 + bytes > self.compactor.plan().limit_bytes(level);
        let lowest = self.levels.depth().saturating_sub(1);
        (lowest..).find(|level| !self.compactor.plan().in_pmem_levels(*level) && !is_long(*level)).unwrap_or(lowest)
    }

    /// What the load that waits wants done next. `is_urgent`: the container has hardly room.
    pub(crate) fn load_job(&mut self, is_urgent: bool) -> Option<Job> {
        let waiting = self.compactor.load.as_mut()?;
        if is_urgent && waiting.yields < YIELDS_MAX {
            waiting.yields += 1;
            return None;
        }
        let load = waiting.load.clone();
        let level = self.level_to_load(&load);
        // A table around it would have to be merged with all that lies in between: its own level
        // could not have both, and the one above would reach over any number of tables.
        let around = |level| Some((level, self.tables_in_the_way(level, &load).first()?.clone()));
        let mut around = (level.saturating_sub(1)..=level).find_map(around);
        fault_point!("trial_loads_into_tables", around = None);
        let job = match around {
            None => Job::of_load(load, level),
            Some((at, table)) => {
                let (first, _) = load.range()?;
                self.compactor.load.as_mut()?.splits += 1;
                Job::of_split(table, at, first.encoded().to_vec())
            }
        };
        if self.compactor.load.as_ref()?.splits > SPLITS_MAX || !self.has_room_for(job.pages_in()) {
            self.refuse_load();
            return None;
        }
        Some(job)
    }

    /// The manifest with the load's tables is durable.
    pub(crate) fn loaded(&mut self, load: &Load) {
        self.counters.loaded_bytes += load.bytes;
        self.counters.user_bytes += load.bytes;
        if let Some((first, last)) = load.range() {
            self.scheduler.walks_mut().spans.get_mut().forget(first.encoded(), last.encoded());
        }
        self.end_load(Reply::Done { version: load.version, existed: false });
    }

    /// The job that is given up was for a load: nothing of that is there, and its records can be
    /// put.
    pub(crate) fn refuse_load(&mut self) {
        self.end_load(refused());
    }

    /// The load that has its turn is answered, and whoever waited for it goes on.
    pub(crate) fn end_load(&mut self, reply: Reply) {
        let Some(ended) = self.compactor.load.take() else { return };
        let Some(suspended) = self.scheduler.take(ended.id) else { return };
        self.scheduler.release_keys(ended.id, &suspended.work);
        self.scheduler.reply_when_durable(suspended.token, reply, ended.load.version);
        self.scheduler.wake(WaitFor::VolumeRoom);
    }

    /// Whether an operation has to wait until no load is under way: what it sees is to stay as it
    /// is, and the load's version is given already.
    pub(crate) fn waits_for_load(&self, operation: &Operation) -> bool {
        fault_point!("trial_snapshots_see_loads_appear", return false);
        let is_cut = matches!(operation, Operation::Snapshot(SnapshotOp::Open) | Operation::Backup { .. });
        is_cut && self.compactor.load.is_some()
    }
}
