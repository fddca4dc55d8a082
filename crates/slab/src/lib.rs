//! StrataKV's slab engine: KVell's design, items unsorted on disk under an ordered index in memory
