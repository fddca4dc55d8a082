//! Epochs: when a freed extent can be written again.
//!
//! A reader enters before it looks at the table and leaves when it has copied what it found.
//! Whatever it can have found was reachable when it entered, so what became unreachable in epoch
//! *e* is free for reuse once nobody is left who entered in *e* or before. Readers count themselves
//! in one of some counters for the parity of the epoch: no registration, any number of threads. The
//! epoch goes from *e* to *e + 1* when nobody of *e − 1* is left: so of two parities one is being
//! left and one entered, and what was freed in *e* is free at *e + 2*.
//!
//! Source: the striped two-phase counters of userspace RCU (Desnoyers et al., "User-Level
//! Implementations of Read-Copy Update", IEEE TPDS 2012, section 4).

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use stratakv_base::fault_point;

use crate::sync::{AtomicU64, IS_TRIED, fence_for_loom, yield_now};

/// Counters of each parity: threads rarely share one.
const STRIPES: usize = if IS_TRIED { 2 } else { 64 };

/// The readers of one stripe, by parity of their epoch. On a cache line of its own, and its
/// neighbour that is fetched with it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe([AtomicU64; 2]);

#[derive(Debug)]
pub(crate) struct Epochs {
    now: AtomicU64,
    stripes: Box<[Stripe]>,
}

/// Somebody who has entered. Leaves when dropped.
pub(crate) struct Inside<'a>(&'a AtomicU64);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // Release: what was read lies before.
        let mut release = Ordering::Release;
        fault_point!("hash_order_left_without_release", release = Ordering::Relaxed);
        self.0.fetch_sub(1, release);
    }
}

/// The stripe of the calling thread: dealt out in turn.
pub(crate) fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        mine.get()
    })
}

impl Epochs {
    pub(crate) fn new() -> Epochs {
        // Not 0: what was freed in epoch 0 would be free at once.
        Epochs { now: AtomicU64::new(2), stripes: (0..STRIPES).map(|_| Stripe::default()).collect() }
    }

    pub(crate) fn enter(&self) -> Inside<'_> {
        self.enter_at(stripe())
    }

    pub(crate) fn enter_at(&self, stripe: usize) -> Inside<'_> {
        let Stripe(counters) = &self.stripes[stripe % STRIPES];
        loop {
            let epoch = self.now.load(Ordering::SeqCst);
            let counter = &counters[(epoch & 1) as usize];
            counter.fetch_add(1, Ordering::SeqCst);
            fence_for_loom();
            // The epoch may have gone on before the count was seen: then it protects nothing.
            let mut is_now = self.now.load(Ordering::SeqCst) == epoch;
            fault_point!("hash_order_entered_without_looking_again", is_now = true);
            if is_now {
                return Inside(counter);
            }
            counter.fetch_sub(1, Ordering::Release);
        }
    }

    /// The epoch now, in which something became unreachable by a store of the calling thread: it is
    /// free at this plus 2.
    ///
    /// A load would not do: it may be carried out before others see the store. Then the epoch goes
    /// on, a reader enters the next one, still finds what was unlinked, and the epoch that was
    /// returned is too early by one. The epoch is only ever changed by exchanges, and this is one:
    /// what begins the next epoch reads what this wrote, or what was exchanged for it, so whoever
    /// enters a later epoch has seen the store. A fence here alone would need another one in
    /// `enter`. On x86-64 this is a fence and a load, 1 % of an update.
    pub(crate) fn of_unlinked(&self) -> u64 {
        fault_point!("hash_order_unlinked_by_a_load", return self.now());
        self.now.fetch_or(0, Ordering::AcqRel)
    }

    /// The epoch now.
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    /// Returns when everybody who is inside now has left. Not for somebody inside.
    pub(crate) fn wait(&self) {
        let until = self.now() + 2;
        while self.advance() < until {
            yield_now();
        }
    }

    /// Begins the next epoch if nobody of the last one is left; the epoch now.
    pub(crate) fn advance(&self) -> u64 {
        let epoch = self.now.load(Ordering::SeqCst);
        fence_for_loom();
        let last = (epoch.wrapping_sub(1) & 1) as usize;
        if self.stripes.iter().all(|Stripe(counters)| counters[last].load(Ordering::SeqCst) == 0) {
            // Whoever was faster has advanced it.
            let _ = self.now.compare_exchange(epoch, epoch + 1, Ordering::SeqCst, Ordering::SeqCst);
        }
        self.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_inside_holds_the_second_next_epoch_back() {
        let epochs = Epochs::new();
        let before = epochs.now();
        let inside = epochs.enter();
        assert_eq!(epochs.advance(), before + 1);
        assert_eq!(epochs.advance(), before + 1, "somebody of the last epoch is inside");
        let later = epochs.enter();
        drop(inside);
        assert_eq!(epochs.advance(), before + 2);
        assert_eq!(epochs.advance(), before + 2);
        drop(later);
        assert_eq!(epochs.advance(), before + 3);
    }
}
