//! The two clocks, read once a turn.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stratakv_base::{Mono, Now, Wall};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Both clocks. The wall clock stands at 0 before 1970 and at its end after 2106.
pub(crate) fn now() -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    Now { mono: mono(), wall: Wall(u32::try_from(wall).unwrap_or(u32::MAX)) }
}

/// The monotonic clock.
pub(crate) fn mono() -> Mono {
    Mono(u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// How long from `from` until `to`; zero if it has passed.
pub(crate) fn until(from: Mono, to: Mono) -> Duration {
    Duration::from_nanos(to.0.saturating_sub(from.0))
}
