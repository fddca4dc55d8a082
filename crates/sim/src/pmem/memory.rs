//! A region that outlives the shard that writes to it, and loses power when told to.

use std::sync::{Arc, Mutex, PoisonError};

use stratakv_base::random::Random;

use super::region::{Domain, Region};
use super::{Pmem, PmemError};

/// A [`Region`] for engines that own theirs. Clones share it.
#[derive(Clone)]
pub struct Memory(Arc<Mutex<(Region, Random)>>);

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

impl Memory {
    /// A region of zeros; the seed draws what its cuts leave.
    ///
    /// # Panics
    /// As [`Region::new`].
    pub fn new(bytes: usize, seed: u64) -> Memory {
        Memory(Arc::new(Mutex::new((Region::new(bytes), Random::new(seed)))))
    }

    /// The power fails: see [`Region::cut`].
    pub fn cut(&self) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (region, random) = &mut *guard;
        let image = region.cut(random);
        *region = Region::open(image, Domain::Adr);
    }

    fn with<R>(&self, look: impl FnOnce(&Region) -> R) -> R {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner).0)
    }
}

impl Pmem for Memory {
    fn len_bytes(&self) -> u64 {
        self.with(Pmem::len_bytes)
    }
    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), PmemError> {
        self.with(|region| region.load(offset, into))
    }
    fn load_u64(&self, offset: u64) -> Result<u64, PmemError> {
        self.with(|region| region.load_u64(offset))
    }
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.with(|region| region.store(offset, bytes))
    }
    fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError> {
        self.with(|region| region.store_u64(offset, value))
    }
    fn store_nt(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.with(|region| region.store_nt(offset, bytes))
    }
    fn flush(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        self.with(|region| region.flush(offset, len_bytes))
    }
    fn fence(&self) -> Result<(), PmemError> {
        self.with(Pmem::fence)
    }
}
