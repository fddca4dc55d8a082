//! Atomics and locks of the table, the epochs and the orders: those of the standard library, or
//! loom's where every interleaving is tried.

#[cfg(not(all(test, loom)))]
pub(crate) use std::{
    hint::spin_loop,
    sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic::AtomicU64},
    thread::yield_now,
};

#[cfg(all(test, loom))]
pub(crate) use loom::{
    hint::spin_loop,
    sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic::AtomicU64},
    thread::yield_now,
};

/// Whether loom runs what is compiled: sizes are small then.
pub(crate) const IS_TRIED: bool = cfg!(all(test, loom));

/// Loom takes sequentially consistent accesses for acquire and release. Where the order of all of
/// them matters it is given a fence, which it knows.
#[inline(always)]
pub(crate) fn fence_for_loom() {
    #[cfg(all(test, loom))]
    loom::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}
