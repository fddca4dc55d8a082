//! A region of a process whose power fails, or whose writing back fails, in the middle of what it
//! does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use stratakv_base::random::Random;

use super::{Pmem, PmemError, Region};

/// Nothing was ordered.
const NEVER: u64 = u64::MAX;

/// As [`Region`]; at a call that was ordered before it the power fails, or writing back does. That
/// call and those after it fail; what a cut of the power left is kept. Loads go on.
#[derive(Debug)]
pub struct Cutting {
    region: Region,
    calls_left: AtomicU64,
    /// It is writing back that fails, not the power.
    keeps_power: AtomicBool,
    has_failed: AtomicBool,
    /// What the medium held when the power had failed.
    left: Mutex<Option<Vec<u8>>>,
    random: Mutex<Random>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cutting {
    /// Over a region; the seed decides what a cut leaves.
    pub fn new(region: Region, seed: u64) -> Cutting {
        Cutting {
            region,
            calls_left: NEVER.into(),
            keeps_power: false.into(),
            has_failed: false.into(),
            left: Mutex::default(),
            random: Mutex::new(Random::new(seed)),
        }
    }

    /// The power fails after so many more stores, flushes and fences.
    pub fn cut_after(&self, calls: u64) {
        self.calls_left.store(calls, Ordering::Relaxed);
    }

    /// Writing back fails after so many more stores, flushes and fences, as it does for good once a
    /// system has failed to write a page.
    pub fn fail_after(&self, calls: u64) {
        self.keeps_power.store(true, Ordering::Relaxed);
        self.cut_after(calls);
    }

    /// Whether writing back has failed, and the power has not.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Whether the power has failed.
    pub fn is_cut(&self) -> bool {
        lock(&self.left).is_some()
    }

    /// What the next process finds: the power fails now, if it has not yet, or only the process
    /// ends.
    pub fn end(&self, power: bool) -> Vec<u8> {
        let left = lock(&self.left).take();
        left.unwrap_or_else(|| if power { self.region.cut(&mut lock(&self.random)) } else { self.region.image() })
    }

    /// Counts a call, which the power may fail at.
    fn call(&self) -> Result<(), PmemError> {
        match self.calls_left.load(Ordering::Relaxed) {
            NEVER => Ok(()),
            0 if self.keeps_power.load(Ordering::Relaxed) => {
                self.has_failed.store(true, Ordering::Relaxed);
                Err(PmemError::SyncFailed { errno: 5 })
            }
            0 => {
                let cut = || self.region.cut(&mut lock(&self.random));
                lock(&self.left).get_or_insert_with(cut);
                Err(PmemError::SyncFailed { errno: 5 })
            }
            left => {
                self.calls_left.store(left - 1, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

impl Pmem for Cutting {
    fn len_bytes(&self) -> u64 {
        self.region.len_bytes()
    }

    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), PmemError> {
        self.region.load(offset, into)
    }

    fn load_u64(&self, offset: u64) -> Result<u64, PmemError> {
        self.region.load_u64(offset)
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.call()?;
        self.region.store(offset, bytes)
    }

    fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError> {
        self.call()?;
        self.region.store_u64(offset, value)
    }

    fn store_nt(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.call()?;
        self.region.store_nt(offset, bytes)
    }

    fn flush(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        self.call()?;
        self.region.flush(offset, len_bytes)
    }

    fn fence(&self) -> Result<(), PmemError> {
        self.call()?;
        self.region.fence()
    }

    fn failure(&self) -> Option<PmemError> {
        (self.is_cut() || self.has_failed()).then_some(PmemError::SyncFailed { errno: 5 })
    }
}
