//! The matrix container: L0, in a region of persistent memory.
//!
//! Changes are appended to the log of the active memtable. A memtable that is long enough is sealed
//! and made a *row*: its records in order, and metadata with hints into the next older row. Rows
//! collect in the *receiver*; when its share is reached they become the *compactor*, without
//! moving, which gives its contents to the levels below by *columns*: key ranges cut through all
//! its rows, around the key space.
//!
//! Everything here is told when to happen: there is no I/O, no clock, no thread.
//! `docs/format-matrix.md` draws the region and says in what order stores become durable. What
//! [`Container`] answers to:
//! - A change is there after a cut if it was [committed](Container::commit); a batch is whole or
//!   absent; what was never committed may be there, in order: no change without all before it.
//! - Row commit, hand-over and column release are one word each: they happened, or not.

mod check;
mod column;
mod cursors;
mod directory;
#[cfg(any(test, fuzzing))]
#[path = "../../tests/fuzzing/forging.rs"]
pub(crate) mod forging;
mod log;
mod medium;
mod memtable;
mod open;
mod pairing;
mod record;
mod row;
mod superblock;
mod units;

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use stratakv_base::{Corruption, fault_point};
use stratakv_engine::Error;
use stratakv_pmem::Pmem;

pub use self::check::{DamagedValue, Fault};
pub use self::column::{Column, ColumnLimits};
pub use self::cursors::{ContainerCursor, RowPart};
pub(crate) use self::directory::NUMBERS_END;
pub use self::directory::Rotation;
pub use self::memtable::MemtableCursor;
pub use self::open::Report;
pub use self::pairing::Predecessor;
pub use self::record::{Change, What};
pub use self::row::RowCursor;
pub use self::superblock::{Config, region_bytes_of, uuid_of};

use self::directory::Directory;
use self::log::Log;
use self::medium::Medium;
use self::memtable::Memtable;
use self::record::Head;
use self::row::{Build, Row, Source, Tally, View};
use self::units::Units;
use crate::cursor::Stop;
use crate::entry::Meta;
use crate::ranges::RangeDelete;
use crate::space::DENSE_SHARE;
use crate::table::key_hash;

/// Memtables that may wait to be made rows.
const IMMUTABLES_MAX: usize = 2;

/// L0 of a shard. One owner; nothing in it waits. See the [module](self).
#[derive(Debug)]
pub struct Container<P> {
    medium: Medium<P>,
    directory: Directory,
    units: Units,
    active: Memtable,
    log: Log,
    /// Oldest first.
    immutables: VecDeque<Memtable>,
    /// Oldest first; the first ones are the compactor's.
    rows: Vec<Row>,
    build: Option<Build>,
    row_bytes: u64,
    version: u64,
    durable: u64,
    /// The deletes of ranges up to this version are in the volume's manifest, or have nothing left
    /// to hide.
    ranges_kept: u64,
    tally: Tally,
    /// A store failed half-way: nothing is written until the region is opened again.
    failed: bool,
}

/// A version of a key that was found.
#[derive(Clone, Debug)]
pub struct FoundVersion {
    /// All but key and value.
    pub meta: Meta,
    head: Head,
}

/// What a step of [`Container::flush_step`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// No sealed memtable waits.
    Idle,
    /// The oldest one deletes ranges, up to this version, and waits for the manifest that has them:
    /// [`Container::ranges_are_kept`].
    Waits(u64),
    /// There is more to do.
    More,
    /// A row is there, and durable; its log is free.
    Row {
        /// Units it took, data and metadata.
        units: u32,
        /// Records in it.
        elements: u32,
    },
}

/// Numbers of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Units in all.
    pub units: u64,
    /// Units that nobody has.
    pub units_free: u64,
    /// Bytes of a unit.
    pub unit_bytes: u64,
    /// Rows of the receiver.
    pub rows_receiver: u64,
    /// Rows of the compactor.
    pub rows_compactor: u64,
    /// Records in rows that are not down.
    pub elements: u64,
    /// Keys in memtables.
    pub keys: u64,
    /// Of elements and keys, about how many say that their key is not there.
    pub deletes: u64,
    /// Bytes of records in rows that are there only for snapshots, about; those of snapshots that
    /// are closed count until they are down.
    pub kept_bytes: u64,
    /// Memtables, the active one included.
    pub memtables: u64,
    /// Bytes of records in logs.
    pub memtable_bytes: u64,
    /// DRAM of the memtables' indexes.
    pub index_bytes: u64,
    /// DRAM of rows.
    pub row_dram_bytes: u64,
    /// What searches did.
    pub searches: Searches,
}

/// Searches of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Searches {
    /// Rows searched.
    pub searched: u64,
    /// Of them, without what hints say.
    pub searched_in_full: u64,
    /// Elements of metadata that searches looked at.
    pub elements_touched: u64,
}

impl<P: Pmem> Container<P> {
    /// Makes a region a container without contents. What it held before is lost.
    ///
    /// # Errors
    /// The region is too small, or units have no allowed length ([`Error::WrongVolume`]); the
    /// memory failed.
    pub fn create(pmem: P, config: Config) -> Result<Container<P>, Error> {
        let region_bytes = pmem.len_bytes();
        Container::create_within(pmem, config, region_bytes)
    }

    /// As [`Container::create`], in the first `region_bytes` of a region: the rest is somebody
    /// else's.
    ///
    /// # Errors
    /// As [`Container::create`].
    pub fn create_within(pmem: P, config: Config, region_bytes: u64) -> Result<Container<P>, Error> {
        let layout = superblock::plan(region_bytes.min(pmem.len_bytes()), &config)?;
        let directory = open::after_what_was_there(&pmem, &config);
        let medium = Medium { pmem, layout };
        superblock::create(&medium, &directory)?;
        Ok(Container::with(medium, directory, config.row_bytes))
    }

    /// One without memtables and rows.
    fn with(medium: Medium<P>, directory: Directory, row_bytes: u64) -> Container<P> {
        let units = Units::new(medium.layout.units());
        let (version, active) = (directory.version, Memtable::new(directory.next));
        Container {
            medium,
            directory,
            units,
            active,
            log: Log::default(),
            immutables: VecDeque::new(),
            rows: Vec::new(),
            build: None,
            row_bytes,
            version,
            durable: version,
            ranges_kept: 0,
            tally: Tally::default(),
            failed: false,
        }
    }

    /// Gives the region back.
    pub fn into_pmem(self) -> P {
        self.medium.pmem
    }

    /// The region.
    pub fn pmem(&self) -> &P {
        &self.medium.pmem
    }

    /// The newest version; 0 at first.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Every version up to this one is durable.
    pub fn durable_version(&self) -> u64 {
        self.durable
    }

    /// Longest key that a change may have.
    pub fn key_bytes_max(&self) -> usize {
        superblock::key_bytes_max(self.medium.layout.unit_bytes)
    }

    /// Longest record (36 bytes, key and value) that a unit holds.
    pub fn record_bytes_max(&self) -> u64 {
        self.medium.layout.capacity()
    }

    /// Bytes of a unit.
    pub fn unit_bytes(&self) -> u64 {
        self.medium.layout.unit_bytes.into()
    }

    /// Bytes from the beginning of the region that are its own.
    pub fn region_bytes(&self) -> u64 {
        self.medium.layout.region_bytes
    }

    /// Rows of the receiver, and of the compactor.
    pub fn rows(&self) -> (u64, u64) {
        let compactor = u64::from(self.directory.compactor_rows);
        (self.rows.len() as u64 - compactor, compactor)
    }

    /// DRAM of the memtables' indexes and of rows. O(rows).
    pub fn footprint_bytes(&self) -> u64 {
        let memtables = self.memtables().map(|memtable| memtable.footprint_bytes() as u64).sum::<u64>();
        memtables + self.rows.iter().map(Row::footprint_bytes).sum::<u64>()
    }

    /// Units that nobody has, of how many.
    pub fn units_free(&self) -> (u64, u64) {
        (self.units.free_count(), u64::from(self.units.count()))
    }

    /// The number of the newest directory, for the volume's manifest.
    pub fn directory(&self) -> u64 {
        self.directory.number
    }

    /// How far the columns of the compactor are down.
    pub fn rotation(&self) -> &Rotation {
        &self.directory.rotation
    }

    /// Appends changes as one batch: after a crash all of them are there, or none. They get the
    /// next versions, one each, in order, and are seen at once by [`Container::get`]; they are
    /// durable after [`Container::commit`]. Of a key that has a version in the memtable already,
    /// that one stays readable if a version in `retain` (ascending: the live snapshots, and the
    /// version that readers see now) sees it. Costs one pass over a value for its checksum and one
    /// to store it; no allocation but the index's.
    ///
    /// # Errors
    /// [`Error::Full`]: there is no room until a memtable is sealed and flushed, or a column
    /// released; nothing was changed. A key without bytes or too long; a record longer than
    /// [`Container::record_bytes_max`] ([`Error::ValueTooLarge`]); no changes
    /// ([`Error::BadBatch`]). The memory failed: then nothing can be written until the region is
    /// opened again.
    pub fn append(&mut self, changes: &[Change<'_>], retain: &[u64]) -> Result<RangeInclusive<u64>, Error> {
        self.writable()?;
        self.admit(changes)?;
        self.failed = true;
        if self.log.is_blank() {
            self.announce(self.active.number)?;
        }
        let first = self.version + 1;
        for (at, change) in changes.iter().enumerate() {
            self.write(change, at + 1 == changes.len(), retain)?;
        }
        self.failed = false;
        Ok(first..=self.version)
    }

    /// Whether a store failed half-way: nothing more is written.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Makes everything appended so far durable: flushes its lines, and fences once.
    ///
    /// # Errors
    /// The memory failed: what was appended since the last commit may be durable or not; nothing
    /// can be written until the region is opened again.
    pub fn commit(&mut self) -> Result<u64, Error> {
        self.writable()?;
        if self.durable == self.version {
            return Ok(self.durable);
        }
        self.failed = true;
        self.persist_log()?;
        self.failed = false;
        self.durable = self.version;
        Ok(self.durable)
    }

    fn persist_log(&mut self) -> Result<(), Error> {
        self.log.flush(&self.medium.pmem)?;
        fault_point!("matrix_commit_not_fenced", return Ok(()));
        Ok(self.medium.pmem.fence()?)
    }

    /// Whether the active memtable is long enough to be sealed.
    pub fn is_full(&self) -> bool {
        self.active.bytes >= self.row_bytes
    }

    /// Whether the active memtable has many deletes for its keys.
    pub fn is_memtable_dense(&self) -> bool {
        self.active.deletes * DENSE_SHARE > self.active.tree.len() as u64
    }

    /// Whether rows have many deletes for their elements. O(rows).
    pub fn are_rows_dense(&self) -> bool {
        let sum = |of: fn(&Row) -> u64| self.rows.iter().map(of).sum::<u64>();
        sum(Row::live_deletes) * DENSE_SHARE > sum(Row::live_elements)
    }

    /// Whether a sealed memtable waits to be made a row.
    pub fn has_sealed(&self) -> bool {
        !self.immutables.is_empty()
    }

    /// Begins a new memtable; the old one waits to be made a row, with the versions that `retain`
    /// (ascending) sees. Whether there was anything to seal.
    ///
    /// # Errors
    /// [`Error::Full`]: two wait already.
    pub fn seal(&mut self, retain: &[u64]) -> Result<bool, Error> {
        self.writable()?;
        if self.active.is_empty() {
            return Ok(false);
        }
        if self.immutables.len() >= IMMUTABLES_MAX {
            return Err(Error::Full("two memtables wait to be made rows"));
        }
        let next = Memtable::new(self.active.number + 1);
        let mut sealed = std::mem::replace(&mut self.active, next);
        sealed.retain.extend_from_slice(retain);
        self.immutables.push_back(sealed);
        self.log.end();
        Ok(true)
    }

    /// Goes on making a row of the oldest sealed memtable, for about `budget_bytes` (at least a
    /// record). The last step makes the row durable and frees its log.
    ///
    /// # Errors
    /// [`Error::Full`]: the directory has no room for another row before the compactor's are gone.
    /// Damage in a record of the log. The memory failed.
    pub fn flush_step(&mut self, budget_bytes: u64) -> Result<Flush, Error> {
        self.writable()?;
        let Some(memtable) = self.immutables.front() else { return Ok(Flush::Idle) };
        let (number, source_units) = (memtable.number, memtable.units.clone());
        let newest = memtable.ranges.last().map_or(0, |range| range.version);
        if newest > self.ranges_kept {
            return Ok(Flush::Waits(newest));
        }
        if memtable.tree.is_empty() {
            return self.forget_log();
        }
        if self.build.is_none() {
            if !self.directory.has_room(&self.medium.layout) {
                return Err(Error::Full("the directory of the container has no room for another row"));
            }
            self.announce(number)?;
            fault_point!("matrix_log_freed_early", {
                source_units.iter().for_each(|unit| self.units.give_back(*unit));
            });
        }
        let (Some(memtable), older) = (self.immutables.front(), self.rows.last()) else { return Ok(Flush::Idle) };
        let build = self.build.get_or_insert_with(|| Build::new(memtable));
        let rotation = &self.directory.rotation;
        let source = Source { medium: &self.medium, memtable, older, rotation };
        match build.step(&source, &mut self.units, budget_bytes) {
            Ok(true) => self.commit_row(),
            Ok(false) => Ok(Flush::More),
            Err(error) => {
                self.give_up_row();
                Err(error)
            }
        }
    }

    /// The row that was being made is none; the next step begins it anew.
    fn give_up_row(&mut self) {
        if let Some(build) = self.build.take() {
            build.units().for_each(|unit| self.units.give_back(unit));
        }
    }

    /// The units of a row are durable before the directory names it.
    fn fence_row(&self) -> Result<(), Error> {
        fault_point!("matrix_row_before_its_units", return Ok(()));
        Ok(self.medium.pmem.fence()?)
    }

    /// The row is there, its log is free.
    fn commit_row(&mut self) -> Result<Flush, Error> {
        let Some(build) = self.build.take() else { return Ok(Flush::Idle) };
        self.failed = true;
        self.fence_row()?;
        let row = build.into_row();
        let highest = self.immutables.front().map_or(row.highest, |memtable| memtable.highest);
        let mut directory = self.directory.clone();
        (directory.flushed, directory.version) = (row.number, highest.max(directory.version));
        directory.rows.push(row.entry());
        self.store_directory(directory)?;
        self.failed = false;
        if let Some(memtable) = self.immutables.pop_front() {
            memtable.units.iter().for_each(|unit| self.units.give_back(*unit));
            self.durable = self.durable.max(memtable.highest);
        }
        let committed = Flush::Row { units: row.units.len() as u32, elements: row.elements };
        self.rows.push(row);
        Ok(committed)
    }

    /// Frees the log of a memtable that only deletes ranges: there is nothing to make a row of.
    fn forget_log(&mut self) -> Result<Flush, Error> {
        let Some(memtable) = self.immutables.front() else { return Ok(Flush::Idle) };
        let (flushed, version) = (memtable.number, memtable.highest.max(self.directory.version));
        self.failed = true;
        self.store_directory(Directory { flushed, version, ..self.directory.clone() })?;
        self.failed = false;
        if let Some(memtable) = self.immutables.pop_front() {
            memtable.units.iter().for_each(|unit| self.units.give_back(*unit));
            self.durable = self.durable.max(memtable.highest);
        }
        Ok(Flush::More)
    }

    /// Whether a record may delete a range. Not in regions of before format 3.
    pub fn has_ranges(&self) -> bool {
        self.medium.layout.has_ranges()
    }

    /// The ranges that logs delete, oldest first.
    pub fn ranges(&self) -> Vec<RangeDelete> {
        let memtables = self.immutables.iter().chain([&self.active]);
        memtables.flat_map(|memtable| memtable.ranges.iter().cloned()).collect()
    }

    /// The volume's manifest has all deletes of ranges up to this version that still hide
    /// something: their logs are not needed for them any more.
    pub fn ranges_are_kept(&mut self, up_to: u64) {
        self.ranges_kept = self.ranges_kept.max(up_to);
    }

    /// Whether a memtable or row has anything that a delete of a range hides, perhaps.
    pub fn has_older_than(&self, range: &RangeDelete) -> bool {
        let overlaps = |first: &[u8], last: &[u8]| first < &range.to[..] && last >= &range.from[..];
        let in_row = |row: &Row| row.lowest < range.version && overlaps(&row.first_key, &row.last_key);
        let in_memtable = |memtable: &Memtable| {
            (1..range.version).contains(&memtable.lowest)
                && memtable.ends().is_some_and(|(first, last)| overlaps(&first, &last))
        };
        self.rows.iter().any(in_row) || self.memtables().any(in_memtable)
    }

    /// Whether rows may come to a compactor that has some. In regions of before format 2 they wait
    /// until it is empty.
    pub fn joins(&self) -> bool {
        self.medium.layout.joins()
    }

    /// Makes the receiver's rows the compactor's: the next column is cut through them, too. No data
    /// moves. No column may be on its way down: it was cut through fewer rows. Whether there were
    /// rows.
    ///
    /// # Errors
    /// Damage; the memory failed.
    pub fn hand_over(&mut self) -> Result<bool, Error> {
        self.writable()?;
        let before = self.directory.compactor_rows as usize;
        if self.rows.len() == before || (before > 0 && !self.joins()) {
            return Ok(false);
        }
        let mut directory = self.directory.clone();
        directory.compactor_rows = self.rows.len() as u32;
        let start = directory.rotation.cursor.clone();
        let compactor = directory.rotation.compactor + 1;
        directory.rotation = Rotation { compactor, cursor: start.clone(), start, wrapped: false, begun: false };
        let mut joining = Vec::new();
        for (row, entry) in self.rows.iter().zip(&mut directory.rows).skip(before).filter(|_| self.joins()) {
            let down = row.joins_at(&self.medium, &directory.rotation).map_err(damaged)?;
            (entry.down_from, entry.down_to) = (down.from, down.to);
            joining.push(down);
        }
        self.failed = true;
        self.store_directory(directory)?;
        self.failed = false;
        self.rows[before..].iter_mut().zip(joining).for_each(|(row, down)| row.down = down);
        Ok(true)
    }

    /// The newest version of a key that is not newer than `at`; deletes are found too. What is in
    /// neither memtables nor rows, nor above the columns that are down, is `None`: look below. Rows
    /// are found by hints; see [`Searches::elements_touched`].
    ///
    /// # Errors
    /// [`Stop::Damaged`].
    pub fn get(&self, key: &[u8], at: u64) -> Result<Option<FoundVersion>, Stop> {
        self.find(key, at, true)
    }

    /// As [`Container::get`], with each row searched in full: to measure what filters and hints
    /// save.
    ///
    /// # Errors
    /// As [`Container::get`].
    pub fn get_without_hints(&self, key: &[u8], at: u64) -> Result<Option<FoundVersion>, Stop> {
        self.find(key, at, false)
    }

    fn find(&self, key: &[u8], at: u64, by_hints: bool) -> Result<Option<FoundVersion>, Stop> {
        for memtable in self.memtables() {
            if let Some(head) = memtable.get(&self.medium, &self.units, key, at)? {
                return Ok(Some(FoundVersion { meta: head.meta(), head }));
            }
        }
        let (mut window, hash) = (None, key_hash(key));
        for (ordinal, row) in self.rows.iter().enumerate().rev() {
            if self.is_compactor(ordinal) && self.directory.rotation.is_down(key) {
                return Ok(None);
            }
            if by_hints && !row.may_have(hash) {
                window = None;
                continue;
            }
            let view = self.view(row);
            let (element, found) = view.find(key, window)?;
            if found && let Some(head) = view.version(key, element, at)? {
                return Ok(Some(FoundVersion { meta: head.meta(), head }));
            }
            let older = ordinal.checked_sub(1).and_then(|older| self.rows.get(older)).filter(|_| by_hints);
            window = older.map(|older| view.window(element, older)).transpose()?;
        }
        Ok(None)
    }

    /// Drops filters of the oldest rows until the others take so many bytes at most. O(rows).
    pub fn keep_filters_within(&mut self, bytes_max: u64) {
        let mut bytes = self.rows.iter().map(Row::filter_bytes).sum::<usize>();
        for row in &mut self.rows {
            if bytes as u64 <= bytes_max {
                return;
            }
            bytes -= row.drop_filter();
        }
    }

    /// Appends the value that lies here ([`Body::Here`](crate::entry::Body::Here)), its checksum
    /// compared; nothing for the others. `found` must be of this container, and nothing may have
    /// been written since.
    ///
    /// # Errors
    /// [`Stop::Damaged`].
    pub fn value(&self, found: &FoundVersion, into: &mut Vec<u8>) -> Result<(), Stop> {
        found.head.value(&self.medium, into).map_err(Stop::from)
    }

    /// Memtables, newest first.
    fn memtables(&self) -> impl Iterator<Item = &Memtable> {
        std::iter::once(&self.active).chain(self.immutables.iter().rev())
    }

    fn is_compactor(&self, ordinal: usize) -> bool {
        ordinal < self.directory.compactor_rows as usize
    }

    fn view<'a>(&'a self, row: &'a Row) -> View<'a, P> {
        View { medium: &self.medium, row, rotation: &self.directory.rotation, tally: Some(&self.tally) }
    }

    fn writable(&self) -> Result<(), Error> {
        let failed = "a store to the region failed half-way: open the container again";
        if self.failed { Err(Error::Unknown(failed)) } else { Ok(()) }
    }

    /// Sees to it that a memtable's number is never used again, whatever a cut leaves of what it
    /// seeds.
    fn announce(&mut self, number: u64) -> Result<(), Error> {
        fault_point!("matrix_number_not_announced", return Ok(()));
        if number < self.directory.next {
            return Ok(());
        }
        let directory = Directory { next: number + 1, ..self.directory.clone() };
        self.store_directory(directory)
    }

    /// Makes a directory durable: the next one.
    fn store_directory(&mut self, mut directory: Directory) -> Result<(), Error> {
        directory.number = self.directory.number + 1;
        self.persist_directory(&directory)?;
        self.directory = directory;
        Ok(())
    }

    fn persist_directory(&self, directory: &Directory) -> Result<(), Error> {
        directory.store(&self.medium)?;
        fault_point!("matrix_directory_not_fenced", return Ok(()));
        Ok(self.medium.pmem.fence()?)
    }

    /// Numbers of the moment. O(rows).
    pub fn statistics(&self) -> Statistics {
        let (units, units_free) = (u64::from(self.units.count()), self.units.free_count());
        let compactor = u64::from(self.directory.compactor_rows);
        Statistics {
            units,
            units_free,
            unit_bytes: u64::from(self.medium.layout.unit_bytes),
            rows_receiver: self.rows.len() as u64 - compactor,
            rows_compactor: compactor,
            elements: self.rows.iter().map(Row::live_elements).sum(),
            keys: self.memtables().map(|memtable| memtable.tree.len() as u64).sum(),
            deletes: self.rows.iter().map(Row::live_deletes).sum::<u64>()
                + self.memtables().map(|memtable| memtable.deletes).sum::<u64>(),
            kept_bytes: self.rows.iter().map(Row::live_kept_bytes).sum(),
            memtables: 1 + self.immutables.len() as u64,
            memtable_bytes: self.memtables().map(|memtable| memtable.bytes).sum(),
            index_bytes: self.memtables().map(|memtable| memtable.footprint_bytes() as u64).sum(),
            row_dram_bytes: self.rows.iter().map(Row::footprint_bytes).sum(),
            searches: Searches {
                searched: self.tally.searched.get(),
                searched_in_full: self.tally.searched_in_full.get(),
                elements_touched: self.tally.elements.get(),
            },
        }
    }
}

/// An error of a write that found damage.
fn damaged(corruption: Corruption) -> Error {
    Error::Corrupt(corruption)
}
