//! What the store does and meets, told as it happens.

use std::path::PathBuf;
use std::sync::Arc;

use stratakv_base::Corruption;
use stratakv_base::quantity::format_count;
use stratakv_engine::{ShardEvent, ShardId};
use stratakv_runtime::Listener;

use crate::store::RecoverySummary;

/// Something that happened to a store: see [`Options::on_event`](crate::Options::on_event).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreEvent {
    /// It is open, with what opening found.
    Opened {
        /// Its directory.
        path: PathBuf,
        /// What was found; damage too.
        recovery: RecoverySummary,
    },
    /// A shard's volume has grown.
    Grew {
        /// Which.
        shard: u32,
        /// What it may hold now.
        usable_bytes: u64,
    },
    /// A shard's volume could not grow; tried again when space is wanted.
    CannotGrow {
        /// Which.
        shard: u32,
        /// Why.
        why: String,
    },
    /// A write was refused for want of space; reads and deletes go on. Once, until
    /// [`StoreEvent::Room`].
    Full {
        /// Which shard; none: the whole store, which has no shards (engine `hash`).
        shard: Option<u32>,
    },
    /// Writes of new records find space again. With the engine `hash`: for ten seconds none was
    /// refused.
    Room {
        /// Which shard; none: the whole store.
        shard: Option<u32>,
    },
    /// Damaged bytes were met, for the first time at this place. They are never returned as data.
    Damaged {
        /// Where, what was expected, what was found.
        corruption: Corruption,
    },
    /// Opening could use no checkpoint of a shard's index, and read all of its volume: it took
    /// longer, and found the same. Told once the store is open.
    ReadInFull {
        /// Which.
        shard: u32,
        /// Why.
        why: String,
    },
    /// No more writes are taken there until the store is opened again: a device failed under a
    /// write or flush, or a defect stopped the shard. Once; see
    /// [`Store::failure`](crate::Store::failure).
    Failed {
        /// Which shard; none: the whole store.
        shard: Option<u32>,
        /// How.
        why: String,
    },
    /// It was closed in order, by [`Store::close`](crate::Store::close) or by dropping the last
    /// handle.
    Closed {
        /// Its directory.
        path: PathBuf,
    },
}

/// Who is told.
pub(crate) type Watcher = Arc<dyn Fn(&StoreEvent) + Send + Sync>;

/// Tells `watcher` what shards say.
pub(crate) fn listener(watcher: Watcher) -> Listener {
    Box::new(move |ShardId(shard), event| {
        let event = match event {
            ShardEvent::Grew { usable_bytes } => StoreEvent::Grew { shard, usable_bytes },
            ShardEvent::CannotGrow { fault } => StoreEvent::CannotGrow { shard, why: fault.to_string() },
            ShardEvent::Full => StoreEvent::Full { shard: Some(shard) },
            ShardEvent::Room => StoreEvent::Room { shard: Some(shard) },
            ShardEvent::Damaged(corruption) => StoreEvent::Damaged { corruption },
            ShardEvent::ReadInFull { why } => StoreEvent::ReadInFull { shard, why: why.into() },
            ShardEvent::Failed { error } => StoreEvent::Failed { shard: Some(shard), why: error.to_string() },
            _ => return,
        };
        watcher(&event);
    })
}

impl std::fmt::Display for StoreEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StoreEvent::Opened { path, recovery } => {
                write!(f, "{} is open with {}", path.display(), format_count(recovery.records, "record"))
            }
            StoreEvent::Grew { shard, usable_bytes } => write!(f, "shard {shard} has grown to {usable_bytes} bytes"),
            StoreEvent::CannotGrow { shard, why } => write!(f, "shard {shard} cannot grow: {why}"),
            StoreEvent::Full { shard } => {
                write!(f, "{} is full: new records are refused until there is room", whole(*shard))
            }
            StoreEvent::Room { shard } => write!(f, "{} has room again", whole(*shard)),
            StoreEvent::Damaged { corruption } => write!(f, "damage: {corruption}"),
            StoreEvent::ReadInFull { shard, why } => {
                write!(f, "all of shard {shard} was read to open it: {why}")
            }
            StoreEvent::Failed { shard, why } => {
                write!(f, "{} takes no more writes ({why}): reopen the store", whole(*shard))
            }
            StoreEvent::Closed { path } => write!(f, "{} is closed", path.display()),
        }
    }
}

/// What an event concerns, for people.
fn whole(shard: Option<u32>) -> String {
    shard.map_or_else(|| "the store".to_owned(), |shard| format!("shard {shard}"))
}
