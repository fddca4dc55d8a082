//! Wire protocols as functions on bytes: no sockets, no clock, no threads.
//!
//! [`memcache`] is the memcache protocol as memcached 1.6 speaks it, [`resp`] that of Redis
//! clients.
#![forbid(unsafe_code)]

pub mod memcache;
pub mod range;
pub mod resp;
