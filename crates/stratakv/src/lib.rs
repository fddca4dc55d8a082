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
//! store.delete(b"user:1")?;
//! # store.close()
//! # }
//! ```
//!
//! A [`Store`] is shared by cloning. Blocking calls do their own I/O in the calling thread; futures ([`Store::get_async`]) run on
//! any executor; a [`Session`] keeps many operations in flight from one thread.
#![forbid(unsafe_code)]

mod check;
mod directory;
mod engine;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod open;
mod options;
mod record;
mod scan;
mod session;
mod store;

pub use stratakv_base::{CollectionId, Expiry, Key, Level, Now, Place, Wall, limits};
pub use stratakv_engine::{
    Capability, Change, ChangeKind, Error as EngineError, Expect, Operation, PageRequest, Record as EngineRecord,
    RecordPart, Reply, Statistic, Unmet, Update, Value,
};
pub use stratakv_runtime::{Event, Pending};

pub use check::{CheckReport, check};
pub use engine::AnyShard;
pub use error::{Error, ErrorKind};
pub use options::{IoBackend, OpenProgress, Options, Placement};
pub use record::Record;
pub use scan::{Scan, ScanOptions};
pub use session::Session;
pub use store::{PutOptions, PutOutcome, RecoverySummary, Store};

/// One thread's ring and its way to every shard: what a server is built on.
pub type Driver = stratakv_runtime::Driver<AnyShard>;
