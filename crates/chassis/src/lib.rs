//! What the block engines (`slab`, `matrix`, `tier`) share.
//!
//! Each part is a struct that owns its state and knows nothing of the engine around it: it is told
//! what happened, and returns what is to be done. An engine keeps what is its own: where records
//! lie, its log and levels, what it caches.
#![forbid(unsafe_code)]

pub mod account;
pub mod batches;
pub mod opener;
pub mod superblock;
