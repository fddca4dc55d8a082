//! StrataKV: a persistent key-value store for NVMe, cloud volumes, persistent memory and DRAM.
//!
//! ```
//! # fn main() -> Result<(), stratakv::Error> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("data");
//! let store = stratakv::Store::open(&path)?; // created if absent
//! store.put(b"user:1", b"Ada")?; // returns when durable
//! assert_eq!(store.get(b"user:1")?.unwrap().to_bytes(), "Ada");
//! for item in store.prefix(b"user:") {
//!     let (key, record) = item?;
//!     println!("{} = {} bytes", key.escape_ascii(), record.len());
//! }
//! store.increment(b"visits", 1)?;
//! let users = store.collection("users")?; // a key space of its own
//! users.fetch_update(b"ada", |before| {
//!     stratakv::Next::value(if before.is_none() { "1" } else { "again" })
//! })?;
//! let mut batch = stratakv::WriteBatch::new(); // all or nothing, crashes included
//! batch.put(b"from", b"90").put(b"to", b"110").delete(b"transfer");
//! store.write(batch)?;
//! store.delete_prefix(b"user:")?;
//! # store.close()
//! # }
//! ```
//!
//! A [`Store`] is shared by cloning. Blocking calls do their own I/O in the calling thread; futures
//! ([`Collection::get_async`]) run on any executor; a [`Session`] keeps many operations in flight
//! from one thread.
#![forbid(unsafe_code)]

mod asking;
mod backup;
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
mod record;
mod region;
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
pub use stratakv_engine::update::{UpdateError, UpdatedRecord};
pub use stratakv_engine::{
    Capability, Change, ChangeKind, Error as EngineError, Evicted, Expect, ListRequest, LoadRecord, MeasuredKind,
    Operation, PageRequest, Record as EngineRecord, RecordEdit, RecordPart, Reply, Stage, StageReport, Statistic,
    Unmet, Update, Value,
};
pub use stratakv_pmem::explain_bus_errors;
pub use stratakv_runtime::{Event, EvictionListener, Pending, RequestLatencies};

pub use backup::{BackupSummary, BackupWatch, restore};
pub use batch::WriteBatch;
pub use check::{CheckReport, check, check_spread, check_with};
pub use collection::{Collection, Next, PutOptions, PutOutcome, Updated};
pub use counting::Ttl;
pub use engine::{AnyShard, Engine};
pub use error::{Error, ErrorKind};
pub use events::StoreEvent;
pub use format::{Format, format_of};
pub use kind::Kind;
pub use list::{Element, Elements, End, List, Position};
pub use load::Loader;
pub use options::{Compression, IoBackend, OpenProgress, Options, Placement};
pub use order::{Order, OrderError};
pub use record::Record;
pub use repair::{LostRegion, LostTable, RepairReport, repair};
pub use scan::{Scan, ScanOptions};
pub use session::Session;
pub use snapshot::Snapshot;
pub use store::{RecoverySummary, Region, Store};
pub use transaction::{Commit, Transaction};

/// One thread's ring and its way to every shard: what a server is built on.
pub type Driver = stratakv_runtime::Driver<AnyShard>;

/// The README's Rust compiles as it is shown.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
