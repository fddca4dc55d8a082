//! StrataKV's in-memory structures: ordered index and caches. No I/O
//!
//! [`Tree`] maps whole keys to places on a volume; [`PageCache`] maps page numbers to blocks,
//! [`RecordCache`] places to records. Each belongs to one shard, takes no lock and does no I/O;
//! neither ever stops for a rebuild of the whole (KVell paper, section 5.2: growing a hash table
//! cost 100 ms spikes).

mod cache;
mod linear;
mod records;
mod tree;

pub use cache::PageCache;
pub use records::{CachedAt, Hit, RecordCache};
pub use tree::{Builder, Finger, IndexEntry, Tree};
