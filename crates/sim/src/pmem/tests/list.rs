//! A doubly linked list, a line for each node. The forward pointer is the truth; recovery mends the
//! backward ones.

use super::super::{LINE_BYTES, Pmem, PmemError, Region};
use super::Subject;

const NEXT: u64 = 0;
const PREVIOUS: u64 = 8;
const VALUE: u64 = 16;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Defect {
    PublishedEarly,
    PointerNotFlushed,
    /// Recovery does not mend the backward pointers.
    BackPointerTrusted,
}

pub(super) struct List(pub Option<Defect>);

impl List {
    fn insert(&self, region: &Region, after: u64, node: u64, value: u64) -> Result<(), PmemError> {
        let next = region.load_u64(after + NEXT)?;
        region.store_u64(node + NEXT, next)?;
        region.store_u64(node + PREVIOUS, after)?;
        region.store_u64(node + VALUE, value)?;
        if self.0 != Some(Defect::PublishedEarly) {
            region.persist(node, LINE_BYTES)?;
        }
        region.store_u64(after + NEXT, node)?;
        if self.0 == Some(Defect::PublishedEarly) {
            region.flush(node, LINE_BYTES)?;
        }
        if self.0 != Some(Defect::PointerNotFlushed) {
            region.flush(after + NEXT, 8)?;
        }
        region.fence()?;
        region.store_u64(next + PREVIOUS, node)?;
        region.persist(next + PREVIOUS, 8)
    }

    fn remove(&self, region: &Region, node: u64) -> Result<(), PmemError> {
        let (previous, next) = (region.load_u64(node + PREVIOUS)?, region.load_u64(node + NEXT)?);
        region.store_u64(previous + NEXT, next)?;
        region.persist(previous + NEXT, 8)?;
        region.store_u64(next + PREVIOUS, previous)?;
        region.persist(next + PREVIOUS, 8)
    }

    fn walk(&self, region: &Region) -> Result<Vec<u64>, PmemError> {
        let mut values = Vec::new();
        let (mut previous, mut at) = (0, region.load_u64(NEXT)?);
        loop {
            if region.load_u64(at + PREVIOUS)? != previous && self.0 != Some(Defect::BackPointerTrusted) {
                region.store_u64(at + PREVIOUS, previous)?;
                region.flush(at + PREVIOUS, 8)?;
            }
            if at == 0 || values.len() == 16 {
                region.fence()?;
                return Ok(values);
            }
            values.push(region.load_u64(at + VALUE)?);
            (previous, at) = (at, region.load_u64(at + NEXT)?);
        }
    }

    fn walk_back(region: &Region) -> Result<Vec<u64>, PmemError> {
        let mut values = Vec::new();
        let mut at = region.load_u64(PREVIOUS)?;
        while at != 0 && values.len() < 16 {
            values.push(region.load_u64(at + VALUE)?);
            at = region.load_u64(at + PREVIOUS)?;
        }
        values.reverse();
        Ok(values)
    }
}

impl Subject for List {
    fn run(&self, region: &Region) -> Result<(), PmemError> {
        self.insert(region, 0, 64, 10)?;
        region.acknowledge();
        self.insert(region, 64, 128, 30)?;
        region.acknowledge();
        self.insert(region, 64, 192, 20)?;
        region.acknowledge();
        self.remove(region, 64)?;
        region.acknowledge();
        Ok(())
    }

    fn expected(&self, operations: u64) -> Vec<u64> {
        match operations {
            0 => vec![],
            1 => vec![10],
            2 => vec![10, 30],
            3 => vec![10, 20, 30],
            _ => vec![20, 30],
        }
    }

    fn recover(&self, region: &Region) -> Result<Vec<u64>, String> {
        let forward = self.walk(region).map_err(|error| error.to_string())?;
        let backward = Self::walk_back(region).map_err(|error| error.to_string())?;
        if forward == backward { Ok(forward) } else { Err(format!("forward {forward:?}, backward {backward:?}")) }
    }
}
