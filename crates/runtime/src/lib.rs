//! The loop: ticks of shards, rings of threads, and the ways callers reach them.
//!
//! Two ownerships make it up (docs/decisions/0001):
//! * a **tick** belongs to whoever holds a shard's lock (a `Cell`): completions, operations, end of
//!   tick, effects out. No request is carried out under it;
//! * a **ring** belongs to one thread ([`Driver`]): it executes what came out of the ticks that
//!   thread ran.
//!
//! A blocking caller has no ring and executes its own read or write in place
//! ([`Runtime::execute`]), so it makes no hop. What it should not wait for goes to a *reactor*, a
//! background thread with a ring, which also serves futures and timers.
//!
//! An engine whose medium is memory ([`Shared`](stratakv_engine::Shared)) has neither ticks nor
//! rings: the same ways in call it in place (`Direct`). Callers wait for their replies in this
//! crate and nowhere else. It does not know the engines.
#![forbid(unsafe_code)]

mod cell;
mod clock;
mod direct;
mod driver;
mod mailbox;
mod nodes;
mod open;
mod order;
mod pump;
mod reactor;
mod requests;
mod runtime;
mod slot;
mod workers;

pub use clock::{Clock, ManualClock};
pub use driver::{Driver, Event};
pub use open::{OpenFailure, open_shard, open_shard_by};
pub use pump::with_pump;
pub use requests::RequestLatencies;
pub use runtime::{EvictionListener, Listener, Member, Runtime, RuntimeOptions};
pub use slot::{Pending, Started, block_on};
