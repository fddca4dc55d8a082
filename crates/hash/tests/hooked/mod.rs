//! A region that calls back before it loads, stores and fences: so a test stops a thread where it
//! wants to.

use stratakv_pmem::{Pmem, PmemError};
use stratakv_sim::pmem::Region;

pub struct Hooked<'a, R = Region> {
    pub region: R,
    pub at_load: &'a (dyn Fn() + Sync),
    pub at_store: &'a (dyn Fn(&[u8]) + Sync),
    pub at_fence: &'a (dyn Fn() + Sync),
}

impl<R: Pmem> Pmem for Hooked<'_, R> {
    fn len_bytes(&self) -> u64 {
        self.region.len_bytes()
    }
    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), PmemError> {
        (self.at_load)();
        self.region.load(offset, into)
    }
    fn load_u64(&self, offset: u64) -> Result<u64, PmemError> {
        (self.at_load)();
        self.region.load_u64(offset)
    }
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        (self.at_store)(bytes);
        self.region.store(offset, bytes)
    }
    fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError> {
        self.region.store_u64(offset, value)
    }
    fn store_nt(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.region.store_nt(offset, bytes)
    }
    fn flush(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        self.region.flush(offset, len_bytes)
    }
    fn fence(&self) -> Result<(), PmemError> {
        (self.at_fence)();
        self.region.fence()
    }
    fn sync(&self) -> Result<(), PmemError> {
        self.region.sync()
    }
}
