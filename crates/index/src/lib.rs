//! StrataKV's in-memory structures: ordered index and page cache. No I/O
