//! [`Versions`]: the versions that a store hands out. Writes draw them, an opening says where they
//! go on. None is handed out twice, not after a crash either: those below a durable lease may have
//! been.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use stratakv_pmem::{Pmem, PmemError};

use crate::layout::{LEASE, LEASE_AT, root_word};
use crate::region::Region;

/// Versions of a store.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// The last one handed out.
    last: AtomicU64,
    /// None at or above is handed out.
    leased: AtomicU64,
    /// One thread at a time leases more.
    leasing: Mutex<()>,
}

impl Versions {
    /// The last one handed out.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// One above all before it. Durably none at or above the lease is ever handed out.
    pub(crate) fn draw<P: Pmem>(&self, region: &Region<P>) -> Result<u64, PmemError> {
        let version = self.last.fetch_add(1, Ordering::AcqRel) + 1;
        while version >= self.leased.load(Ordering::Acquire) {
            let _leasing = self.leasing.lock().unwrap_or_else(PoisonError::into_inner);
            let leased = self.leased.load(Ordering::Acquire);
            if version >= leased {
                self.lease(region, leased / LEASE + 1)?;
            }
        }
        Ok(version)
    }

    /// Goes on behind so many leases.
    pub(crate) fn resume<P: Pmem>(&self, region: &Region<P>, leases: u64) -> Result<(), PmemError> {
        self.last.store(leases * LEASE, Ordering::Release);
        self.lease(region, leases + 1)
    }

    /// Leases the versions below `number` leases.
    pub(crate) fn lease<P: Pmem>(&self, region: &Region<P>, number: u64) -> Result<(), PmemError> {
        region.pmem.store_u64(LEASE_AT, root_word(region.uuid(), LEASE_AT, number))?;
        region.pmem.persist(LEASE_AT, 8)?;
        self.leased.store(number * LEASE, Ordering::Release);
        Ok(())
    }
}
