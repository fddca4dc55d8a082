//! A region that outlives the shard that writes to it, and loses power or fails when told to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stratakv_base::random::Random;

use super::region::{Domain, Region};
use super::{Pmem, PmemError};

/// A [`Region`] for engines that own theirs. Clones share it.
#[derive(Clone)]
pub struct Memory(Arc<Mutex<State>>);

struct State {
    region: Region,
    random: Random,
    /// Stores and fences until writing back fails; `None`: it does not.
    calls_left: Option<u64>,
}

const FAILED: PmemError = PmemError::SyncFailed { errno: 5 };

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
        let (region, random) = (Region::new(bytes), Random::new(seed));
        Memory(Arc::new(Mutex::new(State { region, random, calls_left: None })))
    }

    /// The power fails: see [`Region::cut`]. What opens the region next finds one that works.
    pub fn cut(&self) {
        let mut guard = self.state();
        let State { region, random, calls_left } = &mut *guard;
        let image = region.cut(random);
        (*region, *calls_left) = (Region::open(image, Domain::Adr), None);
    }

    /// After so many more stores and fences writing back fails. Then stores and fences fail until
    /// the region is opened again, as [`Pmem::fence`] says, and loads go on.
    pub fn fail_after(&self, calls: u64) {
        self.state().calls_left = Some(calls);
    }

    /// Whether writing back has failed.
    pub fn has_failed(&self) -> bool {
        self.state().calls_left == Some(0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R>(&self, look: impl FnOnce(&Region) -> R) -> R {
        look(&self.state().region)
    }

    /// As [`Memory::with`], of a store or a fence.
    fn change<R>(&self, change: impl FnOnce(&Region) -> Result<R, PmemError>) -> Result<R, PmemError> {
        let mut state = self.state();
        match &mut state.calls_left {
            Some(0) => return Err(FAILED),
            Some(left) => *left -= 1,
            None => {}
        }
        change(&state.region)
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
        self.change(|region| region.store(offset, bytes))
    }
    fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError> {
        self.change(|region| region.store_u64(offset, value))
    }
    fn store_nt(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.change(|region| region.store_nt(offset, bytes))
    }
    fn flush(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        self.with(|region| region.flush(offset, len_bytes))
    }
    fn fence(&self) -> Result<(), PmemError> {
        self.change(Pmem::fence)
    }
    fn failure(&self) -> Option<PmemError> {
        self.has_failed().then_some(FAILED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_that_failed_is_read_and_takes_writes_again_once_it_is_opened() {
        let memory = Memory::new(4096, 1);
        memory.fail_after(3);
        memory.store_u64(0, 7).expect("one of three");
        memory.flush(0, 8).expect("flushes are no calls that can fail");
        memory.fence().expect("two of three");
        assert_eq!((memory.has_failed(), memory.failure()), (false, None));
        memory.store_u64(64, 8).expect("the last one");
        let mut read = [0; 8];
        memory.load(0, &mut read).expect("it is read as before");
        assert_eq!(
            (memory.store_u64(0, 9), memory.fence(), memory.failure()),
            (Err(FAILED), Err(FAILED), Some(FAILED))
        );
        memory.cut();
        assert_eq!((memory.load_u64(0), memory.store_u64(0, 9), memory.has_failed()), (Ok(7), Ok(()), false));
    }
}
