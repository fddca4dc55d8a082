//! The memcache protocols: text (memcached's `doc/protocol.txt`, replies checked against memcached
//! 1.6.18) and [`binary`].
//!
//! [`Parser`] turns received bytes into [`Command`]s, one line at a time; the data block of a
//! storage command is collected by [`Body`], outside the parser, so that it is copied at most once
//! and its header is parsed once. What comes out does not depend on how the bytes were cut into
//! pieces. [`reply`] writes the answers.
//!
//! Where it differs from memcached, on purpose:
//! * a zero byte in a key is refused, where memcached takes the line to end there;
//! * flags of more than 32 bits and lengths of more than 31 bits are refused, where memcached cuts
//!   them silently;
//! * a line may have [`LINE_BYTES_MAX`] bytes, a line of get, gets, gat or gats
//!   [`GET_LINE_BYTES_MAX`], wherever packets end;
//! * `mr`, `backup`, `collections` and their `stats` are ours;
//! * a refused `set` leaves the old value in place: a store is not a cache.

mod admin;
pub mod binary;
mod body;
mod collections;
mod command;
mod expiry;
#[cfg(any(test, fuzzing))]
#[path = "../../tests/fuzzing/mod.rs"]
pub mod fuzzing;
mod line;
mod meta;
mod parser;
mod range;
pub mod reply;

pub use binary::{BinaryCommand, BinaryParsed, BinaryParser, BinaryRequest};
pub use body::{BadDataChunk, Body};
pub use collections::{CollectionsAction, CollectionsRequest};
pub use command::{Command, Detail, DumpKind, Keys, Statistics, Store, Verb, Watched};
pub use expiry::{RELATIVE_SECONDS_MAX, expiry};
pub use line::is_backup_name;
pub use meta::{META_OPAQUE_BYTES_MAX, Meta, MetaArithmetic, MetaFlags, MetaTimes, MetaVerb, StoreMode, encode_key};
pub use parser::{Parsed, Parser};
pub use range::{KeyEnds, MetaRange, RANGE_COUNT_MAX};

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 250;

/// Longest name of a backup, in bytes.
pub const BACKUP_NAME_BYTES_MAX: usize = 100;

/// Longest line without its newline, in bytes.
pub const LINE_BYTES_MAX: usize = 2048;

/// Longest line of get, gets, gat and gats, in bytes: clients ask for thousands of keys at once.
pub const GET_LINE_BYTES_MAX: usize = 1 << 20;
