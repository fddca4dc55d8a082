//! StrataKV's loop: one thread, one ring, its shards and its connections
