//! Epochs: when a freed extent can be written again.
//!
//! A reader enters before it looks at the table and leaves when it has copied what it found. Whatever it can have found was reachable when it entered, so what became
//! unreachable in epoch *e* is free for reuse once nobody is left who entered in *e* or before. Readers count themselves in one of some counters for the parity of the epoch:
//! no registration, any number of threads. The epoch goes from *e* to *e + 1* when nobody of *e − 1* is left: so of two
//! parities one is being left and one entered, and what was freed in *e* is free at *e + 2*.
//!
//! Source: the striped two-phase counters of userspace RCU (Desnoyers et al., "User-Level Implementations of Read-Copy Update", IEEE TPDS 2012, section 4).

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counters of each parity: threads rarely share one.
const STRIPES: usize = 64;

/// The readers of one stripe, by parity of their epoch. On a cache line of its own, and its neighbour that is fetched with it.
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
        self.0.fetch_sub(1, Ordering::Release);
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
        let Stripe(counters) = &self.stripes[stripe() % STRIPES];
        loop {
            let epoch = self.now.load(Ordering::SeqCst);
            let counter = &counters[(epoch & 1) as usize];
            counter.fetch_add(1, Ordering::SeqCst);
            // The epoch may have gone on before the count was seen: then it protects nothing.
            if self.now.load(Ordering::SeqCst) == epoch {
                return Inside(counter);
            }
            counter.fetch_sub(1, Ordering::Release);
        }
    }

    /// The epoch now. What becomes unreachable before the call is free at this plus 2.
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    /// Begins the next epoch if nobody of the last one is left; the epoch now.
    pub(crate) fn advance(&self) -> u64 {
        let epoch = self.now.load(Ordering::SeqCst);
        let last = (epoch.wrapping_sub(1) & 1) as usize;
        if self.stripes.iter().all(|Stripe(counters)| counters[last].load(Ordering::SeqCst) == 0) {
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
