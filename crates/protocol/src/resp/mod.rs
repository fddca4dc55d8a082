//! RESP, the protocol of Redis clients, versions 2 and 3 (redis.io, "Redis serialization
//! protocol specification").
//!
//! [`Parser`] turns received bytes into requests. It says where arguments lie and copies nothing.
//! Arguments of [`LONG_BYTES_MIN`] bytes or more are collected outside of it, by
//! [`Body`](crate::memcache::Body). What comes out does not depend on how the bytes were cut into
//! pieces. [`encode`] writes replies. [`number`] and [`glob`] have the rules of Redis for numbers
//! and patterns.
//!
//! No length that a client sends is trusted: memory follows what came, within [`Limits`].

pub mod encode;
#[cfg(any(test, fuzzing))]
#[path = "../../tests/fuzzing/resp.rs"]
pub mod fuzzing;
pub mod glob;
mod inline;
pub mod number;
mod parser;

pub use encode::Version;
pub use inline::{UnbalancedQuotes, words};
pub use parser::{Limits, Parsed, Parser, ProtocolError, RequestExcess};

/// Most arguments of a request, its command included; as Redis.
pub const ARGUMENTS_MAX: usize = 1 << 20;

/// Longest inline command without its newline, in bytes; as Redis.
pub const INLINE_BYTES_MAX: usize = 64 << 10;

/// Longest argument whose length is believed so far that its bytes are waited for or thrown away.
pub const ARGUMENT_BYTES_MAX: u64 = 512 << 20;

/// Arguments from this length on are collected outside of the parser.
pub const LONG_BYTES_MIN: usize = 1 << 10;
