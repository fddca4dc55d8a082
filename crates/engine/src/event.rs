//! What happens to a shard, for whoever runs it.

use stratakv_base::{Corruption, Expiry, Key};
use stratakv_device::IoFault;

use crate::error::Error;

/// Something an operator wants to hear of when it happens, not when somebody looks at the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardEvent {
    /// The volume has grown.
    Grew {
        /// What it may hold now.
        usable_bytes: u64,
    },
    /// The volume could not grow; tried again when space is wanted.
    CannotGrow {
        /// Why.
        fault: IoFault,
    },
    /// A write was refused for want of space. Told once, until [`ShardEvent::Room`].
    Full,
    /// Writes of new records find space again.
    Room,
    /// Damaged bytes were met, for the first time at this place.
    Damaged(Corruption),
    /// Opening could use no checkpoint of the index that is there, and read everything: it took
    /// longer, and found the same.
    ReadInFull {
        /// Why.
        why: &'static str,
    },
    /// A cache dropped a record for want of room. Told only while
    /// [`Effects::tells_evictions`](crate::Effects::tells_evictions) says that somebody listens.
    Evicted(Evicted),
    /// The shard takes no more writes until the store is opened again, as
    /// [`Shard::failure`](crate::Shard::failure) says. Drivers tell it once, engines do not.
    Failed {
        /// Why.
        error: Error,
    },
}

/// A record that a cache dropped, since it had no room for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Whose.
    pub key: Key,
    /// Length of its value, in bytes.
    pub value_bytes: u64,
    /// When it would have expired.
    pub expiry: Expiry,
    /// It was used after it was written, or came back after it had been dropped.
    pub used: bool,
}
