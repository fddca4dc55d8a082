//! The contract between engines and what drives them.
//!
//! An engine is a state machine without I/O, clock, threads or randomness of its own ([`Shard`]).
//! It is told operations, completions and the time; it answers through [`Effects`]. So the same
//! bytes of code run under the real ring, in a blocking caller's own thread, in the server and in
//! the simulator.
//!
//! Rules an engine keeps:
//! * each accepted [`Token`] gets exactly one terminal [`Reply`];
//! * a write is acknowledged only when it is durable at the asked [`Level`](stratakv_base::Level),
//!   and is visible to reads only then, in sequence order;
//! * a block handed to [`Effects`] is not touched until its [`IoOutcome`] gives it back;
//! * long work is done in bounded steps in [`Shard::tick_end`].
#![forbid(unsafe_code)]

pub mod edit;
pub mod effects;
pub mod error;
pub mod event;
pub mod io_table;
pub mod operation;
pub mod range;
pub mod shard;
pub mod shared;
pub mod stages;
pub mod update;

pub use edit::RecordEdit;
pub use effects::{Effects, Io, IoOutcome, IoRequest};
pub use error::{Capability, Error, Unmet};
pub use event::{Evicted, ShardEvent};
pub use io_table::IoTable;
pub use operation::{
    Change, ChangeKind, Expect, Hold, Item, ListRequest, LoadRecord, Operation, PageRequest, Record, RecordPart, Reply,
    SnapshotOp, Update, Value,
};
pub use shard::{Capabilities, Message, Opener, Progress, Shard, ShardId, Statistic, Token};
pub use shared::Shared;
pub use stages::{MeasuredKind, Stage, StageReport, StageTimes};
