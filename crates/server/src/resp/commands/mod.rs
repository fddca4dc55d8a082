//! Data commands as functions of records, one file for each group.

pub(crate) mod hashes;
mod lots;
mod scanning;
