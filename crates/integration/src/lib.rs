//! What StrataKV's integration tests stand on: the built program as a child process, a plain memcache client, values
//! that prove themselves, and the long harnesses (`crash`, `realdata`) that `cargo xtask` runs too.
//!
//! Nothing here calls into the store: it is looked at from outside, as a user would.
#![forbid(unsafe_code)]

pub mod crash;
pub mod memcache;
pub mod packages;
pub mod place;
pub mod program;
pub mod realdata;
pub mod requirement;
pub mod sim;
pub mod value;
