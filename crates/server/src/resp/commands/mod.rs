//! Data commands as functions of records, one file for each group.

pub(crate) mod bits;
pub(crate) mod hashes;
pub(crate) mod keys;
mod lots;
pub(crate) mod options;
mod scanning;
pub(crate) mod strings;
