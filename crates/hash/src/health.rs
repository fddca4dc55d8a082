//! [`Health`]: whether the memory failed where the medium may have one state or the other. Whoever
//! stores notes it, whoever is about to store asks. A failure stays until the next opening.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use stratakv_pmem::PmemError;

/// How the memory failed, if it did.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The first time, in the middle of a write: then there are no more.
    failure: Mutex<Option<PmemError>>,
    failed: AtomicBool,
}

impl Health {
    /// It failed; the first failure stays.
    pub(crate) fn fail(&self, error: &PmemError) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(*error);
        self.failed.store(true, Ordering::Release);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub(crate) fn failure(&self) -> Option<PmemError> {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
