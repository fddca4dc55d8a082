//! [`RegionPart`]: one of several owners' share of a region.

use std::sync::Arc;

use crate::{Mapping, Pmem, PmemError};

/// A range of a mapped region, as a region of its own: offset 0 is where it begins. Parts that do
/// not overlap are independent, but for a failure to write pages back: then no part takes any more
/// stores.
#[derive(Clone, Debug)]
pub struct RegionPart {
    mapping: Arc<Mapping>,
    from_bytes: u64,
    len_bytes: u64,
}

impl RegionPart {
    /// The `len_bytes` from `from_bytes` on.
    ///
    /// # Errors
    /// [`PmemError::OutOfBounds`]; [`PmemError::Misaligned`]: a part begins at a multiple of 4096.
    pub fn new(mapping: Arc<Mapping>, from_bytes: u64, len_bytes: u64) -> Result<RegionPart, PmemError> {
        if !from_bytes.is_multiple_of(4096) {
            return Err(PmemError::Misaligned { offset: from_bytes });
        }
        let region_bytes = mapping.len_bytes();
        if from_bytes.checked_add(len_bytes).is_none_or(|end| end > region_bytes) {
            return Err(PmemError::OutOfBounds { offset: from_bytes, len_bytes, region_bytes });
        }
        Ok(RegionPart { mapping, from_bytes, len_bytes })
    }

    /// Where in the region an access lies.
    fn at(&self, offset: u64, len_bytes: u64) -> Result<u64, PmemError> {
        match offset.checked_add(len_bytes).is_some_and(|end| end <= self.len_bytes) {
            true => Ok(self.from_bytes + offset),
            false => Err(PmemError::OutOfBounds { offset, len_bytes, region_bytes: self.len_bytes }),
        }
    }
}

impl Pmem for RegionPart {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), PmemError> {
        self.mapping.load(self.at(offset, into.len() as u64)?, into)
    }

    fn load_u64(&self, offset: u64) -> Result<u64, PmemError> {
        self.mapping.load_u64(self.at(offset, 8)?)
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.mapping.store(self.at(offset, bytes.len() as u64)?, bytes)
    }

    fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError> {
        self.mapping.store_u64(self.at(offset, 8)?, value)
    }

    fn store_nt(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.mapping.store_nt(self.at(offset, bytes.len() as u64)?, bytes)
    }

    fn prefetch(&self, offset: u64, len_bytes: u64) {
        if let Ok(at) = self.at(offset, len_bytes) {
            self.mapping.prefetch(at, len_bytes);
        }
    }

    fn flush(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        self.mapping.flush(self.at(offset, len_bytes)?, len_bytes)
    }

    fn fence(&self) -> Result<(), PmemError> {
        self.mapping.fence()
    }

    fn fence_waits(&self) -> bool {
        self.mapping.fence_waits()
    }

    fn will_read(&self, offset: u64, len_bytes: u64) {
        if let Ok(at) = self.at(offset, len_bytes) {
            self.mapping.will_read(at, len_bytes);
        }
    }

    fn sync(&self) -> Result<(), PmemError> {
        self.mapping.sync_range(self.from_bytes..self.from_bytes + self.len_bytes)
    }

    fn failure(&self) -> Option<PmemError> {
        self.mapping.failure()
    }

    fn survives_power_loss(&self) -> bool {
        self.mapping.survives_power_loss()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MapOptions;

    fn mapping() -> Arc<Mapping> {
        Arc::new(Mapping::anonymous(16 << 10, MapOptions::default()).expect("it is mapped"))
    }

    #[test]
    fn parts_do_not_see_one_another() {
        let whole = mapping();
        let parts = [0, 1].map(|part| RegionPart::new(Arc::clone(&whole), part * 8192, 8192).expect("it is inside"));
        parts[0].store(8184, b"one's end").expect_err("it would reach into the other");
        parts[0].store(8184, b"the end.").expect("it is stored");
        parts[1].store_u64(0, 7).expect("it is stored");
        let mut bytes = [0; 16];
        whole.load(8184, &mut bytes).expect("it is loaded");
        assert_eq!(bytes[..8], *b"the end.");
        assert_eq!(whole.load_u64(8192), Ok(7));
        assert_eq!(parts[1].load_u64(0), Ok(7));
        assert!(parts[1].load_u64(8192).is_err() && parts[1].load(u64::MAX, &mut bytes).is_err());
    }

    #[test]
    fn a_part_lies_in_its_region() {
        assert!(RegionPart::new(mapping(), 8192, 8193).is_err());
        assert!(RegionPart::new(mapping(), !4095, 4096).is_err());
        assert!(RegionPart::new(mapping(), 100, 4096).is_err());
        assert!(RegionPart::new(mapping(), 4096, 12 << 10).is_ok());
    }
}
