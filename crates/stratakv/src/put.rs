//! How one record is written, and under which condition.

use std::time::Duration;

use stratakv_base::{Expiry, Level};
use stratakv_engine::Expect;

use crate::collection::Collection;
use crate::raw;

/// How to write one record.
///
/// ```
/// use std::time::Duration;
/// use stratakv::{Expect, PutOptions};
///
/// let _ = PutOptions::new().ttl(Duration::from_secs(60)).expect(Expect::Absent);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// Opaque to the store.
    pub flags: u32,
    /// When it expires, if `ttl` does not say it.
    pub expiry: Expiry,
    /// How long it lives from the write on, to the millisecond, by the store's clock.
    pub ttl: Option<Duration>,
    /// Under which condition.
    pub expect: Expect,
    /// When to acknowledge; `None` for the store's own level.
    pub level: Option<Level>,
}

impl PutOptions {
    /// No flags, no expiry, no condition, the store's own level.
    #[must_use]
    pub fn new() -> PutOptions {
        PutOptions::default()
    }

    /// Bytes of the caller's own beside the value.
    #[must_use]
    pub fn flags(mut self, flags: u32) -> PutOptions {
        self.flags = flags;
        self
    }

    /// How long the record lives from the write on. Without one it does not expire.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> PutOptions {
        self.ttl = Some(ttl);
        self
    }

    /// When the record expires, as a time.
    #[must_use]
    pub fn expiry(mut self, expiry: Expiry) -> PutOptions {
        (self.expiry, self.ttl) = (expiry, None);
        self
    }

    /// Write only if this holds of the record that is there.
    #[must_use]
    pub fn expect(mut self, expect: Expect) -> PutOptions {
        self.expect = expect;
        self
    }

    /// When to acknowledge, if not at the store's own level.
    #[must_use]
    pub fn level(mut self, level: Level) -> PutOptions {
        self.level = Some(level);
        self
    }

    /// When a record that is written to `collection` now expires.
    pub(crate) fn expiry_in(&self, collection: &Collection) -> Expiry {
        self.ttl.map_or(self.expiry, |ttl| collection.expiry_after(ttl))
    }
}

/// Outcome of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// Written, durable at its level.
    Written {
        /// The new version.
        version: u64,
    },
    /// The condition did not hold; nothing was changed.
    Unmet(Unmet),
}

/// Why a condition ([`Expect`]) did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// The key does not exist.
    Absent,
    /// The key exists.
    Present {
        /// Its version.
        version: u64,
    },
    /// The key has another version.
    Version {
        /// Its version.
        found: u64,
    },
}

impl Unmet {
    /// As an engine says it of a write; `None` if no write is answered so.
    pub(crate) fn of(unmet: raw::Unmet) -> Option<Unmet> {
        match unmet {
            raw::Unmet::Absent => Some(Unmet::Absent),
            raw::Unmet::Present { version } => Some(Unmet::Present { version }),
            raw::Unmet::Version { found } => Some(Unmet::Version { found }),
            raw::Unmet::NotANumber | raw::Unmet::Unchanged | raw::Unmet::Occupied => None,
        }
    }
}
