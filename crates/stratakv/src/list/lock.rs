//! Locks of lists: who changes one holds its lock, so that nobody has to try again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use stratakv_base::CollectionId;

/// Lists share them: more lists than this may wait for one another, which costs time and nothing
/// else.
const STRIPES: usize = 64;

/// The locks of a store's lists.
#[derive(Debug)]
pub(crate) struct ListLocks([Mutex<()>; STRIPES]);

/// Locks held, of one list or several.
pub(crate) struct ListGuards<'a>(#[expect(dead_code, reason = "held until it is dropped")] Vec<MutexGuard<'a, ()>>);

impl Default for ListLocks {
    fn default() -> ListLocks {
        ListLocks(std::array::from_fn(|_| Mutex::default()))
    }
}

impl ListLocks {
    /// Locks some lists, in one order for everybody.
    pub(crate) fn lock(&self, lists: impl IntoIterator<Item = CollectionId>) -> ListGuards<'_> {
        let mut stripes: Vec<usize> = lists.into_iter().map(|list| list.0 as usize % STRIPES).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let locks = stripes.into_iter().filter_map(|stripe| self.0.get(stripe));
        ListGuards(locks.map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner)).collect())
    }
}
