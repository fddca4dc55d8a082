//! Instants as values: engines are told the time, they never ask.

/// Monotonic nanoseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

/// Wall-clock milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub u64);

impl Wall {
    /// Whole seconds since 1970, rounded down.
    #[inline]
    pub fn seconds(self) -> u64 {
        self.0 / 1000
    }
}

/// Both clocks, read together by the driver at the start of a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For intervals.
    pub mono: Mono,
    /// For expiry.
    pub wall: Wall,
}

/// When a record expires: wall-clock milliseconds since 1970, 0 for never. At that millisecond it
/// is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expiry(pub u64);

impl Expiry {
    /// Never.
    pub const NEVER: Expiry = Expiry(0);

    /// The last one that can be kept, in the year 2106: formats keep whole seconds in 32 bits and
    /// milliseconds beside them.
    pub const MAX: Expiry = Expiry(u32::MAX as u64 * 1000 + 999);

    /// At a second since 1970; what is later than [`Expiry::MAX`] becomes that. 0 is never.
    #[inline]
    pub fn at_second(second: u64) -> Expiry {
        Expiry(second.saturating_mul(1000).min(Expiry::MAX.0))
    }

    /// After `millis` milliseconds from `now`, at most [`Expiry::MAX`].
    #[inline]
    pub fn after(now: Wall, millis: u64) -> Expiry {
        Expiry(now.0.saturating_add(millis).min(Expiry::MAX.0))
    }

    /// Seconds since 1970, if it is a whole one that 32 bits hold; 0 is never.
    #[inline]
    pub fn whole_seconds(self) -> Option<u32> {
        u32::try_from(self.0 / 1000).ok().filter(|_| self.0.is_multiple_of(1000))
    }

    /// Whole seconds since 1970, rounded up: no record is said to be gone before it is. 0 is never.
    #[inline]
    pub fn seconds(self) -> u64 {
        self.0.div_ceil(1000)
    }

    /// Whether a record with this expiry is gone at `wall`.
    #[inline]
    pub fn is_past(self, wall: Wall) -> bool {
        self.0 != 0 && self.0 <= wall.0
    }
}
