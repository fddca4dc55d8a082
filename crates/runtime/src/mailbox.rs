//! [`Mailbox`]: what others leave for one that looks now and then. Whoever looks at an empty one
//! takes no lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::slot::lock;

/// Things left, in their order.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    left: Mutex<Vec<T>>,
    has_any: AtomicBool,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Mailbox<T> {
        Mailbox { left: Mutex::default(), has_any: false.into() }
    }
}

impl<T> Mailbox<T> {
    /// Leaves what `add` adds.
    pub(crate) fn leave(&self, add: impl FnOnce(&mut Vec<T>)) {
        add(&mut lock(&self.left));
        self.has_any.store(true, Ordering::Release);
    }

    /// All that was left, to be taken out; `None`: nothing was.
    pub(crate) fn collect(&self) -> Option<MutexGuard<'_, Vec<T>>> {
        self.has_any.swap(false, Ordering::AcqRel).then(|| lock(&self.left))
    }
}
