//! Wire protocols as functions on bytes: no sockets, no clock, no threads.
//!
//! [`memcache`] is the memcache text protocol as memcached 1.6 speaks it.
#![forbid(unsafe_code)]

pub mod memcache;
