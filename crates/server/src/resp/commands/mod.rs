//! Data commands as functions of records, one file for each group.

pub(crate) mod bit_fields;
pub(crate) mod bits;
mod counts;
pub(crate) mod hashes;
pub(crate) mod keys;
pub(crate) mod lcs;
pub(crate) mod list_moves;
pub(crate) mod lists;
pub(super) mod lots;
pub(crate) mod options;
pub(crate) mod publishing;
mod scanning;
pub(crate) mod score_combinations;
pub(crate) mod score_ranges;
pub(crate) mod set_combinations;
pub(crate) mod sets;
pub(crate) mod sort;
pub(crate) mod sorted_sets;
pub(crate) mod strings;
pub(crate) mod waits;
