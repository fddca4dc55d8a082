//! Expiry times as memcache clients give them.

use stratakv_base::{Expiry, Wall};

/// Up to this many seconds an expiry time counts from now: 30 days.
pub const RELATIVE_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

/// An expiry that is past at any time.
const PAST: Expiry = Expiry(1);

/// The instant meant by `exptime`: 0 never, negative at once, up to 30 days from `now`, else Unix
/// time. Times after the year 2106 are taken as its last second.
pub fn expiry(exptime: i64, now: Wall) -> Expiry {
    match exptime {
        0 => Expiry::NEVER,
        ..0 => PAST,
        1..=RELATIVE_SECONDS_MAX => Expiry::after(now, exptime as u64 * 1000),
        _ => Expiry::at_second(exptime as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_never_past_relative_or_absolute() {
        let now = Wall(1_800_000_000_123);
        assert_eq!(expiry(0, now), Expiry::NEVER);
        assert!(expiry(-1, now).is_past(now) && expiry(i64::MIN, now).is_past(now));
        assert_eq!(expiry(1, now), Expiry(now.0 + 1000));
        assert_eq!(expiry(2_592_000, now), Expiry(now.0 + 2_592_000_000));
        assert_eq!(expiry(2_592_001, now), Expiry(2_592_001_000));
        assert!(expiry(2_592_001, now).is_past(now));
        assert_eq!(expiry(i64::MAX, now), Expiry::MAX);
    }
}
