//! Data commands as functions of records, one file for each group.

mod counts;
pub(crate) mod hashes;
pub(crate) mod keys;
pub(crate) mod list_moves;
pub(crate) mod lists;
mod lots;
mod scanning;
pub(crate) mod score_combinations;
pub(crate) mod score_ranges;
pub(crate) mod set_combinations;
pub(crate) mod sets;
pub(crate) mod sorted_sets;
