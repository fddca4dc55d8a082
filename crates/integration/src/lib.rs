//! What StrataKV's integration tests stand on: the built program as a child process, a plain
//! memcache client, values that prove themselves, and the long harnesses (`attacks`, `crash`,
//! `proxies`, `realdata`, `suites`, `ukv`, `veth`, `walks`) that `cargo xtask` runs too.
//!
//! The harnesses of real processes look at a store from outside, as a user would; `sim` and `world`
//! have it inside simulations.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod attacks;
pub mod beside_redis;
pub mod crash;
pub mod differ;
pub mod engine;
pub mod executor;
pub mod lab;
mod logged;
pub mod loop_device;
pub mod memcache;
pub mod packages;
pub mod pinned;
pub mod place;
pub mod probes;
pub mod process;
pub mod program;
pub mod protocol;
pub mod proxies;
pub mod realdata;
pub mod redis_py_suite;
pub mod redis_suite;
pub mod requirement;
pub mod resp;
pub mod scenario;
pub mod sim;
pub mod soak;
pub mod suites;
pub mod twemproxy;
pub mod ukv;
pub mod value;
pub mod veth;
pub mod walks;
pub mod world;
