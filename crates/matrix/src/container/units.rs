//! Which units are free, in DRAM.

use stratakv_base::Corruption;
use stratakv_engine::Error;
use stratakv_pmem::Pmem;

use super::medium::Medium;

/// Who has a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Free,
    /// The log with this number.
    Log(u64),
    /// The row of the memtable with this number.
    Row(u64),
}

#[derive(Debug)]
pub(super) struct Units {
    owners: Vec<Owner>,
    free: Vec<u32>,
}

impl Units {
    /// All free.
    pub(super) fn new(units: u32) -> Units {
        Units { owners: vec![Owner::Free; units as usize], free: (0..units).rev().collect() }
    }

    pub(super) fn free_count(&self) -> u64 {
        self.free.len() as u64
    }

    pub(super) fn count(&self) -> u32 {
        self.owners.len() as u32
    }

    pub(super) fn owner(&self, unit: u32) -> Owner {
        self.owners.get(unit as usize).copied().unwrap_or(Owner::Free)
    }

    /// The number that the checksums of a unit's records are seeded with.
    pub(super) fn number(&self, unit: u32) -> u64 {
        match self.owner(unit) {
            Owner::Free => 0,
            Owner::Log(number) | Owner::Row(number) => number,
        }
    }

    pub(super) fn take(&mut self, owner: Owner) -> Result<u32, Error> {
        let unit = self.free.pop().ok_or(Error::Full("no unit of the container is free"))?;
        self.owners[unit as usize] = owner;
        Ok(unit)
    }

    pub(super) fn give_back(&mut self, unit: u32) {
        if let Some(owner) = self.owners.get_mut(unit as usize)
            && *owner != Owner::Free
        {
            *owner = Owner::Free;
            self.free.push(unit);
        }
    }

    /// Finds at open that a unit has an owner; [`Units::found_all`] comes after all of them.
    pub(super) fn found<P: Pmem>(&mut self, medium: &Medium<P>, unit: u32, owner: Owner) -> Result<(), Corruption> {
        let (at, count) = (medium.layout.unit_start(unit.min(self.count())), self.count());
        match self.owners.get_mut(unit as usize) {
            Some(free @ Owner::Free) => *free = owner,
            Some(other) => return Err(medium.damage(at, "a unit", "one owner", format!("{other:?} and {owner:?}"))),
            None => return Err(medium.damage(at, "a row", format!("units below {count}"), format!("unit {unit}"))),
        }
        Ok(())
    }

    pub(super) fn found_all(&mut self) {
        let free = |unit: &u32| self.owners[*unit as usize] == Owner::Free;
        self.free = (0..self.owners.len() as u32).rev().filter(free).collect();
    }

    /// Sees that the list of free units is what the owners say.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut free = self.free.clone();
        free.sort_unstable();
        let owned = (0..self.count()).filter(|unit| self.owner(*unit) == Owner::Free);
        if free.iter().copied().eq(owned) { Ok(()) } else { Err("the list of free units is wrong".to_owned()) }
    }
}
