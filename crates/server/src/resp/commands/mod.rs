//! Data commands as functions of records, one file for each group.

pub(crate) mod hashes;
pub(crate) mod keys;
mod lots;
mod scanning;
