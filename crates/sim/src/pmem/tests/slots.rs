//! Slots of a line each, {mark, a, b}: the mark is the last store to the line, so one flush and one
//! fence do.

use super::super::{LINE_BYTES, Pmem, PmemError, Region};
use super::Subject;

const SLOTS: u64 = 3;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Defect {
    /// The mark and `a` in one store of 16 bytes.
    WideStore,
    /// The mark before what it marks.
    MarkFirst,
}

pub(super) struct Slots(pub Option<Defect>);

impl Slots {
    fn put(&self, region: &Region, slot: u64, value: u64) -> Result<(), PmemError> {
        let at = slot * LINE_BYTES;
        if self.0 == Some(Defect::MarkFirst) {
            region.store_u64(at, 1)?;
        }
        region.store_u64(at + 16, !value)?;
        match self.0 {
            None => {
                region.store_u64(at + 8, value)?;
                region.store_u64(at, 1)?;
            }
            Some(Defect::WideStore) => region.store(at, &[1u64.to_ne_bytes(), value.to_ne_bytes()].concat())?,
            Some(Defect::MarkFirst) => region.store_u64(at + 8, value)?,
        }
        region.persist(at, LINE_BYTES)
    }
}

impl Subject for Slots {
    fn run(&self, region: &Region) -> Result<(), PmemError> {
        for slot in 0..SLOTS {
            self.put(region, slot, 100 + slot)?;
            region.acknowledge();
        }
        Ok(())
    }

    fn expected(&self, operations: u64) -> Vec<u64> {
        (0..operations.min(SLOTS)).map(|slot| 100 + slot).collect()
    }

    fn recover(&self, region: &Region) -> Result<Vec<u64>, String> {
        let mut values = Vec::new();
        for at in (0..SLOTS).map(|slot| slot * LINE_BYTES) {
            let word = |offset| region.load_u64(at + offset).map_err(|error| error.to_string());
            if word(0)? == 0 {
                continue;
            }
            if word(16)? != !word(8)? {
                return Err(format!("the slot at {at} is marked and not whole"));
            }
            values.push(word(8)?);
        }
        Ok(values)
    }
}
