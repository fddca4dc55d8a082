//! Opening a region: the directory, its rows, and what logs hold that is in no row.

use std::collections::BTreeMap;

use stratakv_base::{Corruption, fault_point};
use stratakv_engine::Error;
use stratakv_pmem::Pmem;

use super::directory::Directory;
use super::medium::{LOG, Medium, UNIT_HEADER_BYTES};
use super::memtable::{Memtable, Taken};
use super::record::Head;
use super::row::Row;
use super::units::Owner;
use super::{Config, Container, damaged, superblock};

/// What opening found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Rows of the directory.
    pub rows: u64,
    /// Versions found in logs.
    pub recovered: u64,
    /// Records behind the end of the valid part of a log: never acknowledged.
    pub void_records: u64,
    /// A slot of the directory does not check: a cut while it was written, or damage to the older
    /// one.
    pub torn_directory: bool,
}

/// Units of a log, by ordinal.
type LogUnits = BTreeMap<u32, u32>;

/// Reads logs.
struct Replay<'a, P> {
    medium: &'a Medium<P>,
    memtable: Memtable,
    /// The newest version that is there with all before it.
    version: u64,
    /// The newest version that void records say was durable, and where the first of them lies.
    claimed: u64,
    claimed_at: u64,
    /// Where the valid part of the last log ends.
    end_at: u64,
    void_records: u64,
    used: Vec<(u32, u64)>,
    value: Vec<u8>,
}

/// The first directory of a new container. If a container of the same store was in the region,
/// numbers go on from its own: what it left in units would check under numbers that are used again.
pub(super) fn after_what_was_there<P: Pmem>(pmem: &P, config: &Config) -> Directory {
    let blank = Directory::blank();
    let Ok(layout) = superblock::open(pmem, &config.uuid, config.shard) else { return blank };
    let Ok((old, _)) = Directory::open(&Medium { pmem, layout }) else { return blank };
    Directory { flushed: old.next.saturating_sub(1), next: old.next.max(1), ..blank }
}

impl<P: Pmem> Container<P> {
    /// Opens the container of a shard. Reads logs and the metadata of rows, stores nothing, flushes
    /// what it found in logs. `row_bytes`: how long a log becomes before it is made a row.
    ///
    /// # Errors
    /// [`Error::WrongVolume`]: the region is no container, another store's or another shard's, or
    /// shorter than it was. [`Error::NewerFormat`]. [`Error::Corrupt`]: something does not check
    /// that was durable. The memory failed.
    pub fn open(pmem: P, uuid: [u8; 16], shard: u32, row_bytes: u64) -> Result<(Container<P>, Report), Error> {
        let layout = superblock::open(&pmem, &uuid, shard)?;
        let medium = Medium { pmem, layout };
        let (directory, torn_directory) = Directory::open(&medium).map_err(damaged)?;
        let mut container = Container::with(medium, directory, row_bytes);
        container.open_rows().map_err(damaged)?;
        let void_records = container.replay_logs().map_err(damaged)?;
        container.units.found_all();
        container.complete()?;
        let (rows, recovered) = (container.rows.len() as u64, container.active.records);
        Ok((container, Report { rows, recovered, void_records, torn_directory }))
    }

    fn open_rows(&mut self) -> Result<(), Corruption> {
        for entry in &self.directory.rows {
            let row = Row::open(&self.medium, entry)?;
            for (at, unit) in row.units.iter().enumerate() {
                let is_down = at.checked_sub(row.metadata_units as usize).is_some_and(|data| row.is_unit_down(data));
                if !is_down {
                    self.units.found(&self.medium, *unit, Owner::Row(row.number))?;
                }
            }
            self.rows.push(row);
        }
        Ok(())
    }

    /// Makes durable what was found: a process that ended may have stored it and not flushed it,
    /// and what comes next builds on it.
    fn complete(&self) -> Result<(), Error> {
        let (pmem, layout) = (&self.medium.pmem, &self.medium.layout);
        fault_point!("matrix_recovered_not_flushed", return Ok(()));
        pmem.flush(0, layout.first())?;
        for unit in &self.active.units {
            pmem.flush(layout.unit_start(*unit), layout.unit_bytes.into())?;
        }
        Ok(pmem.fence()?)
    }

    /// Finds what is in no row. How many void records there are.
    fn replay_logs(&mut self) -> Result<u64, Corruption> {
        let (logs, broken) = self.find_logs()?;
        let (version, medium) = (self.directory.version, &self.medium);
        let memtable = Memtable::new(self.directory.next);
        let mut replay = Replay {
            medium,
            memtable,
            version,
            claimed: 0,
            claimed_at: 0,
            end_at: medium.layout.first(),
            void_records: 0,
            used: Vec::new(),
            value: Vec::new(),
        };
        for (number, units) in &logs {
            replay.log(*number, units)?;
        }
        for unit in broken {
            replay.broken_unit(unit, self.directory.flushed + 1..self.directory.next);
        }
        if replay.claimed > replay.version {
            let found = format!(
                "its end; a record at byte {} says that version {} was durable",
                replay.claimed_at, replay.claimed
            );
            let wanted = format!("version {}", replay.version + 1);
            return Err(medium.damage(replay.end_at, "log", wanted, found));
        }
        for (unit, number) in &replay.used {
            self.units.found(medium, *unit, Owner::Log(*number))?;
        }
        (self.version, self.durable) = (replay.version, replay.version);
        let void_records = replay.void_records;
        self.active = replay.memtable;
        Ok(void_records)
    }

    /// Logs that are in no row, by number; and the units whose header does not check.
    fn find_logs(&self) -> Result<(BTreeMap<u64, LogUnits>, Vec<u32>), Corruption> {
        let (mut logs, mut broken) = (BTreeMap::<u64, LogUnits>::new(), Vec::new());
        let mut probe = vec![0; self.medium.layout.unit_bytes as usize];
        for unit in 0..self.units.count() {
            if self.units.owner(unit) != Owner::Free {
                continue;
            }
            let at = self.medium.layout.unit_start(unit);
            match self.medium.unit_header(unit)? {
                Some(header) if header.kind == LOG && header.number > self.directory.flushed => {
                    let mut is_announced = header.number < self.directory.next;
                    fault_point!("matrix_number_not_announced", is_announced = true);
                    if !is_announced {
                        let (number, next) = (header.number, self.directory.next);
                        return Err(self.medium.damage(
                            at,
                            "directory",
                            format!("one that knows log {number}"),
                            format!("next is {next}"),
                        ));
                    }
                    // What the medium cannot give back is damage, not an end.
                    self.medium.load(at, &mut probe)?;
                    if let Some(other) = logs.entry(header.number).or_default().insert(header.ordinal, unit) {
                        return Err(self.medium.damage(
                            at,
                            "unit",
                            "an ordinal of its own",
                            format!("that of unit {other}"),
                        ));
                    }
                }
                Some(_) => {}
                None => broken.push(unit),
            }
        }
        Ok((logs, broken))
    }
}

impl<P: Pmem> Replay<'_, P> {
    /// Reads one log: what continues the versions so far is taken, to the last whole batch; what is
    /// behind is void.
    fn log(&mut self, number: u64, units: &LogUnits) -> Result<(), Corruption> {
        let layout = &self.medium.layout;
        let mut batch: Vec<Head> = Vec::new();
        // Up to where whole batches go: ordinal, place.
        let (mut end, mut next) = (None::<(u32, u64)>, self.version + 1);
        'units: for (ordinal, (at, unit)) in units.iter().enumerate() {
            if *at as usize != ordinal {
                break;
            }
            let (mut place, unit_end) = (layout.unit_start(*unit) + UNIT_HEADER_BYTES, layout.unit_end(*unit));
            let mut is_first = true;
            while place < unit_end {
                let Some(head) = self.whole(number, place, next) else { break };
                (place, next, is_first) = (place + head.record_bytes(), next + 1, false);
                let ends_batch = head.ends_batch();
                batch.push(head);
                if ends_batch {
                    self.take(&mut batch, number)?;
                    end = Some((*at, place));
                }
            }
            if is_first {
                break 'units;
            }
        }
        fault_point!("matrix_incomplete_batch_kept", self.take(&mut batch, number)?);
        self.void_part(number, units, end);
        Ok(())
    }

    /// The record at a place, if it checks, with its value, and is this version.
    fn whole(&mut self, number: u64, place: u64, version: u64) -> Option<Head> {
        let head = Head::load(self.medium, number, place).ok()?;
        let mut follows = head.version() == version;
        fault_point!("matrix_gap_passed_over", follows = true);
        if !follows {
            return None;
        }
        self.value.clear();
        fault_point!("matrix_value_not_checked_at_open", return Some(head));
        head.value(self.medium, &mut self.value).ok()?;
        Some(head)
    }

    /// Takes a whole batch.
    fn take(&mut self, batch: &mut Vec<Head>, number: u64) -> Result<(), Corruption> {
        for head in batch.drain(..) {
            let unit = self.medium.layout.unit_of(head.place);
            if self.used.last() != Some(&(unit, number)) {
                self.used.push((unit, number));
                self.memtable.units.push(unit);
            }
            let (bytes, version) = (head.record_bytes(), head.version());
            let taken = Taken { place: head.place, bytes, version, is_delete: head.is_delete() };
            if head.is_range() {
                let mut to = Vec::new();
                head.value(self.medium, &mut to)?;
                self.memtable.insert_range(head.key(), &to, taken);
            } else {
                self.memtable.insert(self.medium, head.key(), taken, &[])?;
            }
            self.version = version;
            self.end_at = head.place + bytes;
        }
        Ok(())
    }

    /// Looks through what lies behind the end of a log for records that say the missing version was
    /// durable.
    fn void_part(&mut self, number: u64, units: &LogUnits, end: Option<(u32, u64)>) {
        let layout = self.medium.layout;
        for (ordinal, unit) in units {
            let start = layout.unit_start(*unit) + UNIT_HEADER_BYTES;
            let from = match end {
                Some((last, place)) if last == *ordinal => place,
                Some((last, _)) if last > *ordinal => continue,
                _ => start,
            };
            self.void_records_in(number, *unit, from);
        }
    }

    /// Records may begin at any multiple of 8.
    fn void_records_in(&mut self, number: u64, unit: u32, from: u64) {
        let unit_start = self.medium.layout.unit_start(unit);
        let mut bytes = vec![0; self.medium.layout.unit_bytes as usize];
        if self.medium.load(unit_start, &mut bytes).is_err() {
            return;
        }
        for at in ((from - unit_start) as usize..bytes.len()).step_by(8) {
            // A length, a kind and flags there can be.
            let is_plausible = bytes[at + 4..at + 6] != [0, 0] && (1..=4).contains(&bytes[at + 6]) && bytes[at + 7] < 2;
            if is_plausible && let Ok(head) = Head::load(self.medium, number, unit_start + at as u64) {
                self.claim(&head);
            }
        }
    }

    fn claim(&mut self, head: &Head) {
        self.void_records += 1;
        if head.durable_version() > self.claimed {
            (self.claimed, self.claimed_at) = (head.durable_version(), head.place);
        }
    }

    /// A unit whose header does not check may have been a log's: its records say so themselves.
    fn broken_unit(&mut self, unit: u32, numbers: std::ops::Range<u64>) {
        let place = self.medium.layout.unit_start(unit) + UNIT_HEADER_BYTES;
        for number in numbers.rev().take(64) {
            if Head::load(self.medium, number, place).is_ok() {
                self.void_records_in(number, unit, place);
            }
        }
    }
}
