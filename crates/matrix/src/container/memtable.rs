//! A memtable: an index in DRAM over the records of its log.

use std::collections::HashMap;
use std::ops::{Bound, ControlFlow};

use foldhash::fast::FixedState;
use smallvec::SmallVec;
use stratakv_base::Corruption;
use stratakv_index::{IndexEntry, Tree};
use stratakv_pmem::Pmem;

use super::medium::Medium;
use super::record::{self, Head};
use super::units::Units;
use crate::cursor::{Cursor, Stop};
use crate::entry::Meta;
use crate::ranges::RangeDelete;

/// Keys that a cursor takes from the index at once.
const CHUNK_KEYS: usize = 32;

/// A record that was just written, or found in a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) place: u64,
    /// Its length.
    pub(super) bytes: u64,
    pub(super) version: u64,
    pub(super) is_delete: bool,
}

#[derive(Debug, Default)]
pub(super) struct Memtable {
    /// The number of its (last) log, and of its row.
    pub(super) number: u64,
    /// Units of its log, oldest first.
    pub(super) units: Vec<u32>,
    pub(super) tree: Tree,
    /// From a record to an older one of the same key that a snapshot needs.
    older: HashMap<u64, u64, FixedState>,
    /// Length of its records, those included that were overwritten.
    pub(super) bytes: u64,
    pub(super) records: u64,
    /// Keys whose newest record is a delete.
    pub(super) deletes: u64,
    /// Length of its longest record.
    pub(super) longest: u64,
    /// 0: it has no records.
    pub(super) lowest: u64,
    pub(super) highest: u64,
    /// Snapshots that its row is made for.
    pub(super) retain: Vec<u64>,
    /// Ranges that its log deletes, oldest first. Its row has none of them.
    pub(super) ranges: Vec<RangeDelete>,
}

/// Whether a snapshot sees a version that another one replaced.
fn is_seen(retain: &[u64], version: u64, replaced_by: u64) -> bool {
    let next = retain.partition_point(|snapshot| *snapshot < version);
    retain.get(next).is_some_and(|snapshot| *snapshot < replaced_by)
}

impl Memtable {
    pub(super) fn new(number: u64) -> Memtable {
        Memtable { number, ..Memtable::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records == 0
    }

    pub(super) fn footprint_bytes(&self) -> usize {
        self.tree.footprint_bytes() + self.older.capacity() * 17
    }

    /// Takes a record that was just written; an older one of the key stays reachable if one of
    /// `retain` (ascending) sees it.
    pub(super) fn insert<P: Pmem>(
        &mut self,
        medium: &Medium<P>,
        key: &[u8],
        Taken { place, bytes, version, is_delete }: Taken,
        retain: &[u64],
    ) -> Result<(), Corruption> {
        let previous = self.tree.insert(key, IndexEntry { place, expiry: 0 });
        self.count(bytes, version);
        self.deletes += u64::from(is_delete);
        let Some(previous) = previous.map(|entry| entry.place) else { return Ok(()) };
        if self.deletes > u64::from(is_delete) && record::is_delete_at(medium, previous)? {
            self.deletes -= 1;
        }
        if retain.is_empty() && self.older.is_empty() {
            return Ok(());
        }
        if is_seen(retain, record::version_at(medium, previous)?, version) {
            self.older.insert(place, previous);
        } else if let Some(older) = self.older.remove(&previous) {
            self.older.insert(place, older);
        }
        Ok(())
    }

    /// Takes a record that was just written, and deletes a range.
    pub(super) fn insert_range(&mut self, from: &[u8], to: &[u8], Taken { bytes, version, .. }: Taken) {
        self.count(bytes, version);
        self.ranges.push(RangeDelete { from: from.into(), to: to.into(), version });
    }

    fn count(&mut self, bytes: u64, version: u64) {
        self.bytes += bytes;
        self.records += 1;
        self.longest = self.longest.max(bytes);
        self.highest = version;
        if self.lowest == 0 {
            self.lowest = version;
        }
    }

    /// The newest version of a key that is not newer than `at`.
    pub(super) fn get<P: Pmem>(
        &self,
        medium: &Medium<P>,
        units: &Units,
        key: &[u8],
        at: u64,
    ) -> Result<Option<Head>, Corruption> {
        let mut place = self.tree.get(key).map(|entry| entry.place);
        while let Some(here) = place {
            let head = self.head(medium, units, here)?;
            if head.version() <= at {
                return Ok(Some(head));
            }
            place = self.older.get(&here).copied();
        }
        Ok(None)
    }

    pub(super) fn head<P: Pmem>(&self, medium: &Medium<P>, units: &Units, place: u64) -> Result<Head, Corruption> {
        Head::load(medium, units.number(medium.layout.unit_of(place)), place)
    }

    /// The places of a key's versions, newest first; the newest one is given.
    fn versions(&self, newest: u64) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(newest), |place| self.older.get(place).copied())
    }

    /// The versions of a key that its row needs, newest first.
    pub(super) fn needed<P: Pmem>(
        &self,
        medium: &Medium<P>,
        units: &Units,
        newest: u64,
    ) -> Result<SmallVec<[Head; 1]>, Corruption> {
        let mut heads = SmallVec::<[Head; 1]>::new();
        for place in self.versions(newest) {
            let head = self.head(medium, units, place)?;
            let is_needed = heads.last().is_none_or(|newer| is_seen(&self.retain, head.version(), newer.version()));
            if is_needed {
                heads.push(head);
            }
        }
        Ok(heads)
    }

    /// First and last key.
    pub(super) fn ends(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let end = |reverse| {
            let mut found = None;
            self.tree.scan(Bound::Unbounded, Bound::Unbounded, reverse, &mut |key, _| {
                found = Some(key.to_vec());
                ControlFlow::Break(())
            });
            found
        };
        Some((end(false)?, end(true)?))
    }
}

/// Where a cursor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    BeforeFirst,
    /// At this version of the chunk.
    Item(usize),
    Behind,
}

/// A place in a memtable.
pub struct MemtableCursor<'a, P> {
    medium: &'a Medium<P>,
    units: &'a Units,
    memtable: &'a Memtable,
    /// Keys of the chunk, in order: where each ends in `bytes`.
    keys: Vec<usize>,
    bytes: Vec<u8>,
    /// Versions of the chunk, in order: rank of the key, place.
    items: Vec<(usize, u64)>,
    at: At,
    head: Option<Head>,
}

impl<'a, P: Pmem> MemtableCursor<'a, P> {
    pub(super) fn new(medium: &'a Medium<P>, units: &'a Units, memtable: &'a Memtable) -> Self {
        let (keys, bytes, items) = Default::default();
        MemtableCursor { medium, units, memtable, keys, bytes, items, at: At::BeforeFirst, head: None }
    }

    fn key_of(&self, rank: usize) -> &[u8] {
        let start = if rank == 0 { 0 } else { self.keys.get(rank - 1).copied().unwrap_or(0) };
        self.keys.get(rank).and_then(|end| self.bytes.get(start..*end)).unwrap_or_default()
    }

    /// Takes the next keys from a bound on; nothing changes if there are none.
    fn fill(&mut self, from: Bound<&[u8]>) -> bool {
        let (mut keys, mut bytes, mut places) = (Vec::new(), Vec::new(), Vec::new());
        self.memtable.tree.scan(from, Bound::Unbounded, false, &mut |key, entry| {
            bytes.extend_from_slice(key);
            keys.push(bytes.len());
            places.push(entry.place);
            if keys.len() < CHUNK_KEYS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        self.take(keys, bytes, &places)
    }

    /// Takes the keys before a bound.
    fn fill_back(&mut self, to: Bound<&[u8]>) -> bool {
        let mut found = Vec::new();
        self.memtable.tree.scan(Bound::Unbounded, to, true, &mut |key, entry| {
            found.push((key.to_vec(), entry.place));
            if found.len() < CHUNK_KEYS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let (mut keys, mut bytes, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (key, place) in found.into_iter().rev() {
            bytes.extend(key);
            keys.push(bytes.len());
            places.push(place);
        }
        self.take(keys, bytes, &places)
    }

    fn take(&mut self, keys: Vec<usize>, bytes: Vec<u8>, places: &[u64]) -> bool {
        if keys.is_empty() {
            return false;
        }
        (self.keys, self.bytes) = (keys, bytes);
        self.items.clear();
        for (rank, newest) in places.iter().enumerate() {
            self.items.extend(self.memtable.versions(*newest).map(|place| (rank, place)));
        }
        true
    }

    fn stand(&mut self, at: At) -> Result<(), Stop> {
        self.at = at;
        self.head = None;
        if let At::Item(item) = at
            && let Some((_, place)) = self.items.get(item)
        {
            self.head = Some(self.memtable.head(self.medium, self.units, *place)?);
        }
        Ok(())
    }

    fn first_of(&mut self, from: Bound<&[u8]>) -> Result<(), Stop> {
        let at = if self.fill(from) { At::Item(0) } else { At::Behind };
        self.stand(at)
    }

    fn last_of(&mut self, to: Bound<&[u8]>) -> Result<(), Stop> {
        let at = if self.fill_back(to) { At::Item(self.items.len().saturating_sub(1)) } else { At::BeforeFirst };
        self.stand(at)
    }
}

impl<P: Pmem> Cursor for MemtableCursor<'_, P> {
    fn seek(&mut self, key: &[u8]) -> Result<(), Stop> {
        self.first_of(Bound::Included(key))
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<(), Stop> {
        self.last_of(key.map_or(Bound::Unbounded, Bound::Excluded))
    }

    fn next(&mut self) -> Result<(), Stop> {
        match self.at {
            At::BeforeFirst => self.first_of(Bound::Unbounded),
            At::Item(item) if item + 1 < self.items.len() => self.stand(At::Item(item + 1)),
            At::Item(_) => {
                let last = self.key_of(self.keys.len().saturating_sub(1)).to_vec();
                self.first_of(Bound::Excluded(&last))
            }
            At::Behind => Ok(()),
        }
    }

    fn prev(&mut self) -> Result<(), Stop> {
        match self.at {
            At::BeforeFirst => Ok(()),
            At::Item(0) => {
                let first = self.key_of(0).to_vec();
                self.last_of(Bound::Excluded(&first))
            }
            At::Item(item) => self.stand(At::Item(item - 1)),
            At::Behind => self.last_of(Bound::Unbounded),
        }
    }

    fn key(&self) -> Option<&[u8]> {
        self.head.as_ref().map(Head::key)
    }

    fn meta(&self) -> Option<Meta> {
        self.head.as_ref().map(Head::meta)
    }

    fn value(&self, into: &mut Vec<u8>) -> Result<(), Stop> {
        self.head.as_ref().map_or(Ok(()), |head| head.value(self.medium, into)).map_err(Stop::from)
    }
}
