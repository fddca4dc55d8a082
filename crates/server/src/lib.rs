//! StrataKV's server: memcache and Redis clients in front of a [`stratakv::Store`].
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = stratakv::Store::open("data")?;
//! let server = stratakv_server::Server::start(store, stratakv_server::ServerOptions::default())?;
//! println!("serving on {:?}", server.addresses());
//! server.join()?; // until another thread calls shutdown()
//! # Ok(())
//! # }
//! ```
//!
//! A few threads, each with one ring that carries its connections and the disk I/O of the ticks it
//! runs (`worker`). A connection is a state machine without sockets (`connection`): bytes in,
//! operations out; replies in, chunks out.
#![forbid(unsafe_code)]

mod absence;
mod admin;
mod answer;
mod backups;
#[cfg(any(test, fuzzing))]
#[path = "../tests/unit/bench.rs"]
mod bench;
mod binary;
mod block_budget;
mod collection_jobs;
mod connection;
mod counters;
mod credentials;
mod details;
mod driven;
#[cfg(any(test, fuzzing))]
#[path = "../tests/fuzzing/mod.rs"]
pub mod fuzzing;
mod listener;
mod marks;
mod measures;
mod memory_budget;
mod meta;
#[cfg(any(test, fuzzing))]
#[path = "../tests/unit/model.rs"]
mod model;
mod orphans;
mod output;
mod pending;
mod presence;
mod progress;
mod received;
mod recency;
mod request;
mod resp;
mod schedule;
mod server;
mod server_context;
mod shared;
mod statistics;
mod structure;
mod timing;
mod tls;
mod unix;
mod walk;
mod watch;
mod worker;
mod xdp;

pub use admin::Admin;
#[doc(hidden)]
pub use driven::{DrivenListeners, DrivenServer};
pub use listener::check_free;
pub use memory_budget::client_memory_bytes;
pub use resp::{ClusterNode, ClusterSlots};
pub use server::{ClientLimits, Error, Inherited, PreparedServer, RespListeners, Server, ServerOptions};
/// Where to serve through AF_XDP, and with how much memory.
pub use stratakv_device::xdp::{UMEM_BYTES, XdpOptions};
pub use tls::TlsOptions;
pub use unix::check_socket_path;
