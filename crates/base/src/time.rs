//! Instants as values: engines are told the time, they never ask.

/// Monotonic nanoseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

/// Wall-clock seconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub u32);

/// Both clocks, read together by the driver at the start of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For intervals.
    pub mono: Mono,
    /// For expiry.
    pub wall: Wall,
}

/// When a record expires: wall-clock seconds, 0 for never. At that second it is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expiry(pub u32);

impl Expiry {
    /// Never.
    pub const NEVER: Expiry = Expiry(0);

    /// Whether a record with this expiry is gone at `wall`.
    #[inline]
    pub fn is_past(self, wall: Wall) -> bool {
        self.0 != 0 && self.0 <= wall.0
    }
}
