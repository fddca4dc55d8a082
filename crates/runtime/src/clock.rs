//! The two clocks, read once a turn: the system's, or one that a simulator sets.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stratakv_base::{Mono, Now, Wall};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

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
    wall: AtomicU32,
}

impl ManualClock {
    /// Sets both clocks. Time must not run backwards.
    pub fn set(&self, now: Now) {
        self.mono.store(now.mono.0, Ordering::Release);
        self.wall.store(now.wall.0, Ordering::Release);
    }
}

impl Clock {
    /// Both clocks.
    pub fn now(&self) -> Now {
        match self {
            Clock::System => system(),
            Clock::Manual(clock) => {
                Now { mono: Mono(clock.mono.load(Ordering::Acquire)), wall: Wall(clock.wall.load(Ordering::Acquire)) }
            }
        }
    }
}

fn system() -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let mono = u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Now { mono: Mono(mono), wall: Wall(u32::try_from(wall).unwrap_or(u32::MAX)) }
}

/// How long from `from` until `to`; zero if it has passed.
pub(crate) fn until(from: Mono, to: Mono) -> Duration {
    Duration::from_nanos(to.0.saturating_sub(from.0))
}
