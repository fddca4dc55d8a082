//! Walking everything: each unit has one owner, each checksum is right, each order holds.

use stratakv_base::Corruption;
use stratakv_engine::Error;
use stratakv_pmem::Pmem;

use super::directory::Directory;
use super::row::Row;
use super::units::Owner;
use super::{Container, superblock};
use crate::cursor::{Cursor, Stop};

/// What [`Container::check`] found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The medium does not have what was stored.
    #[error("{0}")]
    Damaged(#[from] Corruption),
    /// Two things that the container knows do not agree: a defect of the program.
    #[error("{0}")]
    Mistaken(String),
}

/// A value beside its key that does not check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedValue {
    /// The key, encoded.
    pub key: Vec<u8>,
    /// The version that has it.
    pub version: u64,
    /// What is wrong.
    pub damage: Corruption,
}

impl From<String> for Fault {
    fn from(mistake: String) -> Fault {
        Fault::Mistaken(mistake)
    }
}

impl<P: Pmem> Container<P> {
    /// Reads everything and compares: superblock, directory, the owner of each unit, checksums of
    /// records and values, the order of rows and what their metadata says. Ok: how many records
    /// there are. A hint that is wrong is an error too, though it would do no harm.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<u64, Fault> {
        match superblock::open(&self.medium.pmem, &self.medium.layout.uuid, self.medium.layout.shard) {
            Ok(layout) if layout == self.medium.layout => {}
            Ok(_) => return Err(Fault::Mistaken("the superblock is another one".to_owned())),
            Err(Error::Corrupt(damage)) => return Err(damage.into()),
            Err(error) => return Err(Fault::Mistaken(error.to_string())),
        }
        let (directory, _) = Directory::open(&self.medium)?;
        if directory != self.directory {
            return Err(Fault::Mistaken(format!("the directory is {directory:?}, and should be {:?}", self.directory)));
        }
        self.check_units()?;
        let mut records = 0;
        for (ordinal, row) in self.rows.iter().enumerate() {
            records += self.check_row(row)?;
            if let Some(older) = ordinal.checked_sub(1).and_then(|older| self.rows.get(older)) {
                self.check_hints(row, older)?;
            }
        }
        Ok(records + self.check_memtables()?)
    }

    /// All values that do not check, and how many versions lie behind records that do not.
    pub fn damaged_values(&self) -> (Vec<DamagedValue>, u64) {
        let (mut damaged, mut unread, mut value) = (Vec::new(), 0, Vec::new());
        let memtables = self.memtables().filter(|memtable| !memtable.is_empty());
        let rows = self.rows.iter().rev().filter(|row| row.live_elements() > 0);
        let lens = memtables.map(|memtable| memtable.tree.len() as u64);
        let lens: Vec<u64> = lens.chain(rows.map(Row::live_elements)).collect();
        for (mut cursor, len) in self.cursors().into_iter().zip(lens) {
            let (mut walked, mut step) = (0, cursor.seek(&[]));
            while step.is_ok()
                && let Some((key, meta)) = cursor.key().zip(cursor.meta())
            {
                walked += 1;
                value.clear();
                if let Err(Stop::Damaged(damage)) = cursor.value(&mut value) {
                    damaged.push(DamagedValue { key: key.to_vec(), version: meta.version, damage });
                }
                step = cursor.next();
            }
            if step.is_err() {
                unread += len.saturating_sub(walked).max(1);
            }
        }
        (damaged, unread)
    }

    /// Each unit belongs to one memtable, one row, or nobody.
    fn check_units(&self) -> Result<(), String> {
        self.units.check()?;
        let mut owners = vec![0u32; self.units.count() as usize];
        let mut count = |unit: u32| {
            if let Some(owner) = owners.get_mut(unit as usize) {
                *owner += 1;
            }
        };
        for memtable in self.memtables() {
            memtable.units.iter().for_each(|unit| count(*unit));
        }
        for row in &self.rows {
            let metadata = row.units.iter().take(row.metadata_units as usize);
            let live = row.data_units().iter().enumerate().filter(|(at, _)| !row.is_unit_down(*at));
            metadata.chain(live.map(|(_, unit)| unit)).for_each(|unit| count(*unit));
        }
        if let Some(build) = &self.build {
            build.units().for_each(&mut count);
        }
        for (unit, owners) in (0..).zip(owners) {
            let owner = self.units.owner(unit);
            if owners != u32::from(owner != Owner::Free) {
                return Err(format!("unit {unit} belongs to {owners}, and its owner is {owner:?}"));
            }
        }
        Ok(())
    }

    /// Elements are in order, their prefixes right, their records and values check.
    fn check_row(&self, row: &Row) -> Result<u64, Corruption> {
        Row::open(&self.medium, &row.entry())?;
        let (mut records, mut value, mut previous) = (0, Vec::new(), None::<(Vec<u8>, u64)>);
        for element in (0..row.elements).filter(|element| !row.is_down(*element)) {
            let head = row.head(&self.medium, element)?;
            value.clear();
            head.value(&self.medium, &mut value)?;
            let is_after = previous.as_ref().is_none_or(|(key, version)| {
                (&key[..], std::cmp::Reverse(*version)) < (head.key(), std::cmp::Reverse(head.version()))
            });
            if !is_after || !row.says(&self.medium, element, &head)? {
                return Err(row.damage_of(&self.medium, format!("element {element} out of order, or not what it says")));
            }
            previous = Some((head.key().to_vec(), head.version()));
            records += 1;
        }
        Ok(records)
    }

    /// Each hint is the first element of the older row that is not before its own.
    fn check_hints(&self, row: &Row, older: &Row) -> Result<(), Corruption> {
        let view = self.view(row);
        for element in (0..row.elements).filter(|element| !row.is_down(*element)) {
            let head = row.head(&self.medium, element)?;
            let is_above = older.live_ends().is_some() && !self.directory.rotation.is_down(head.key());
            let window = view.window(element, older)?;
            if is_above && !self.is_first(older, window.to, head.key())? {
                return Err(row.damage_of(&self.medium, format!("hint {} of element {element} is wrong", window.to)));
            }
        }
        Ok(())
    }

    /// Whether an element is the first one that is not before a key, as far as what is not down
    /// tells.
    fn is_first(&self, row: &Row, element: u32, key: &[u8]) -> Result<bool, Corruption> {
        let is_live = |element: u32| element < row.elements && !row.is_down(element);
        if is_live(element) && row.head(&self.medium, element)?.key() < key {
            return Ok(false);
        }
        match element.checked_sub(1) {
            Some(before) if is_live(before) => Ok(row.head(&self.medium, before)?.key() < key),
            _ => Ok(element <= row.elements),
        }
    }

    fn check_memtables(&self) -> Result<u64, Fault> {
        let (mut records, mut value) = (0, Vec::new());
        for memtable in self.memtables() {
            memtable.tree.check()?;
            let mut failed = None::<Fault>;
            let (from, to) = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
            memtable.tree.scan(from, to, false, &mut |key, entry| {
                records += 1;
                value.clear();
                let checked = memtable.head(&self.medium, &self.units, entry.place).and_then(|head| {
                    head.value(&self.medium, &mut value)?;
                    Ok(head.key() == key)
                });
                failed = match checked {
                    Ok(true) => return std::ops::ControlFlow::Continue(()),
                    Ok(false) => Some(format!("the index has another record for {}", key.escape_ascii()).into()),
                    Err(damage) => Some(damage.into()),
                };
                std::ops::ControlFlow::Break(())
            });
            if let Some(failed) = failed {
                return Err(failed);
            }
        }
        Ok(records)
    }
}
