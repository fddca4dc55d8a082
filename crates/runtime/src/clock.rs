//! The two clocks, read once a turn: the system's, or one that a simulator sets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use stratakv_base::{Mono, Now, Wall};

static START_NS: LazyLock<u64> = LazyLock::new(|| now_ns(ClockId::Monotonic));

/// Where a runtime gets the time from.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The system. The wall clock stands at 0 before 1970 and at its end after 2106.
    #[default]
    System,
    /// Stands still until it is set: for simulations.
    Manual(Arc<ManualClock>),
}

/// A clock that only moves when told to.
#[derive(Debug, Default)]
pub struct ManualClock {
    mono: AtomicU64,
    wall: AtomicU64,
}

impl ManualClock {
    /// Sets both clocks. Time must not run backwards.
    pub fn set(&self, now: Now) {
        self.mono.store(now.mono.0, Ordering::Release);
        self.wall.store(now.wall.0, Ordering::Release);
    }
}

impl Clock {
    /// Both clocks as of the kernel's last tick, 1 to 10 ms ago: for what is done a million times a second, where asking for the exact time would be a tenth of the work.
    pub fn at_last_tick(&self) -> Now {
        match self {
            Clock::System => system(ClockId::MonotonicCoarse, ClockId::RealtimeCoarse),
            Clock::Manual(_) => self.now(),
        }
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        match self {
            Clock::System => system(ClockId::Monotonic, ClockId::Realtime),
            Clock::Manual(clock) => {
                Now { mono: Mono(clock.mono.load(Ordering::Acquire)), wall: Wall(clock.wall.load(Ordering::Acquire)) }
            }
        }
    }
}

fn now_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    u64::try_from(ns).unwrap_or(0)
}

fn system(mono: ClockId, wall: ClockId) -> Now {
    Now { mono: Mono(now_ns(mono).saturating_sub(*START_NS)), wall: Wall(now_ns(wall) / 1_000_000) }
}

/// How long from `from` until `to`; zero if it has passed.
pub(crate) fn until(from: Mono, to: Mono) -> Duration {
    Duration::from_nanos(to.0.saturating_sub(from.0))
}
