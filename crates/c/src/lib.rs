//! StrataKV from C. What each function does stands in `include/stratakv.h`, which is the interface;
//! the documentation here says what the header cannot: how it is kept.
//!
//! Arguments arrive as types that C's pointers have the layout of (`arg.rs`): handles as references
//! and boxes that may be null, bytes and strings as pointers that are checked for null and length
//! before anything is read. That they point to what the header says is the caller's part; all code
//! that relies on it without a check is in that one module. No panic leaves a function that answers
//! with a status: it becomes `STRATAKV_ERROR_INTERNAL`. In one that frees, it ends the process.
#![expect(unsafe_code, reason = "functions that C calls by name; the pointers it gives are read in one module")]

mod arg;
pub mod batches;
pub mod collections;
pub mod lists;
pub mod opening;
mod pages;
pub mod record;
pub mod records;
pub mod scans;
pub mod status;
pub mod store;
pub mod transactions;
