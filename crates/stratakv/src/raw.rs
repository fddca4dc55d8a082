//! What engines are asked and what they answer, one operation at a time. Servers and sessions are
//! built on it; programs that embed a store hardly need it, but for
//! [`Session::submit`](crate::Session::submit).
//!
//! [`Collection::key`](crate::Collection::key) makes the keys of operations.

pub use stratakv_engine::update::{UpdateError, UpdatedRecord};
pub use stratakv_engine::{
    Change, ChangeKind, ListRequest, LoadRecord, Operation, PageRequest, Record as EngineRecord, RecordEdit,
    RecordPart, Reply, Unmet, Update,
};
pub use stratakv_runtime::{Event, Pending};

pub use crate::engine::AnyShard;

/// One thread's ring and its way to every shard: what a server is built on.
pub type Driver = stratakv_runtime::Driver<AnyShard>;
