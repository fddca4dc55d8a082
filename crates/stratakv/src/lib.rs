//! StrataKV: a persistent key-value store for NVMe, cloud volumes, persistent memory and DRAM.
//!
//! ```
//! # fn main() -> Result<(), stratakv::Error> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("data");
//! let store = stratakv::Store::open(&path)?; // created if absent
//! store.put("user:1", "Ada")?; // returns when durable; keys and values are any bytes
//! assert_eq!(store.get("user:1")?.unwrap().to_bytes(), "Ada");
//! for item in store.range("user:1".."user:5").rev() {
//!     let (key, record) = item?;
//!     println!("{} = {} bytes", key.escape_ascii(), record.len());
//! }
//! store.increment("visits", 1)?;
//! let users = store.collection("users")?; // a key space of its own
//! users.fetch_update("ada", |before| {
//!     stratakv::Next::value(if before.is_none() { "1" } else { "again" })
//! })?;
//! let mut batch = stratakv::WriteBatch::new(); // all or nothing, crashes included
//! batch.put("from", "90").put("to", "110").delete("transfer");
//! store.write(batch)?;
//! store.delete_prefix("user:")?;
//! # store.close()
//! # }
//! ```
//!
//! A [`Store`] is shared by cloning. Blocking calls do their own I/O in the calling thread; futures
//! ([`Collection::get_async`]) run on any executor; a [`Session`] keeps many operations in flight
//! from one thread.
//!
//! | to | see |
//! |---|---|
//! | choose the engine, the memory cap, durability | [`Store::builder`], [`Options`] |
//! | read and write records of a key space | [`Collection`], [`PutOptions`] |
//! | walk over keys in their order | [`Collection::range`], [`Collection::prefix`], [`Scan`] |
//! | change several keys as one | [`WriteBatch`], [`Store::transact`] |
//! | keep lists and queues | [`List`] |
//! | read a store as it was | [`Snapshot`] (engines `hash` and `matrix`) |
//! | copy it while it is in use | [`Store::backup`], [`restore`] |
//! | verify it | [`check()`] |
//! | know what went wrong, and whether to try again | [`Error::kind`], [`Error::retry_after`] |
#![forbid(unsafe_code)]

mod asking;
mod backup;
mod backup_rate;
mod batch;
mod cache_room;
mod catalogue;
mod check;
mod collection;
mod containers;
mod counting;
mod creation;
mod devices;
mod directory;
mod dropped;
mod durability;
mod engine;
mod error;
mod events;
mod expiring;
mod format;
#[cfg(any(test, fuzzing))]
#[path = "../tests/fuzzing/mod.rs"]
pub mod fuzzing;
mod hash_store;
mod kind;
mod list;
mod load;
mod merge;
mod old_names;
mod open;
mod options;
mod order;
mod parts;
mod put;
pub mod raw;
mod record;
mod region;
mod rejoin;
mod repair;
mod routing;
mod scan;
mod session;
mod snapshot;
mod store;
mod transaction;
mod walk;

pub use stratakv_base::histogram::Distribution as Latencies;
pub use stratakv_base::{CollectionId, Corruption, Expiry, Key, Level, Now, Place, Wall, limits};
pub use stratakv_engine::{
    Capability, Error as EngineError, Evicted, Expect, MeasuredKind, Stage, StageReport, Statistic, Value,
};
pub use stratakv_pmem::explain_bus_errors;
pub use stratakv_runtime::{EvictionListener, RequestLatencies};

pub use backup::{BackupSummary, BackupWatch, restore};
pub use backup_rate::BackupRate;
pub use batch::WriteBatch;
pub use check::{CheckReport, check, check_spread, check_with};
pub use collection::{Collection, Next, Updated};
pub use counting::Ttl;
pub use engine::Engine;
pub use error::{Error, ErrorKind};
pub use events::StoreEvent;
pub use format::{Format, format_of};
pub use kind::Kind;
pub use list::{Element, Elements, End, List, Position};
pub use load::Loader;
pub use options::{Compression, IoBackend, OpenProgress, Options, Placement};
pub use order::{Order, OrderError};
pub use put::{PutOptions, PutOutcome, Unmet};
pub use record::Record;
#[doc(hidden)]
pub use rejoin::since_boot_ms;
pub use rejoin::{Rejoin, Rejoined};
pub use repair::{LostRegion, LostTable, RepairReport, repair};
pub use scan::{Scan, ScanOptions};
pub use session::Session;
pub use snapshot::Snapshot;
pub use store::{RecoverySummary, Region, Store};
pub use transaction::{Commit, Transaction};

/// The README's Rust compiles as it is shown.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
