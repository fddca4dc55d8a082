//! RocksDB as its own guides tune it (wiki: RocksDB Tuning Guide, Setup Options and Basic Tuning,
//! HyperClockCache, Asynchronous IO, BlobDB).

use std::ffi::c_int;

use super::{Pointer, Settings, rocksdb_cache_create_lru};

unsafe extern "C" {
    fn rocksdb_cache_create_hyper_clock(bytes: usize, estimated_entry_charge: usize) -> Pointer;
    fn rocksdb_options_set_level_compaction_dynamic_level_bytes(options: Pointer, yes: u8);
    fn rocksdb_options_set_enable_pipelined_write(options: Pointer, yes: u8);
    fn rocksdb_options_set_max_subcompactions(options: Pointer, count: u32);
    fn rocksdb_options_set_max_background_jobs(options: Pointer, count: c_int);
    fn rocksdb_options_set_bytes_per_sync(options: Pointer, bytes: u64);
    fn rocksdb_options_compaction_readahead_size(options: Pointer, bytes: usize);
    fn rocksdb_block_based_options_set_format_version(table: Pointer, version: c_int);
    fn rocksdb_block_based_options_set_optimize_filters_for_memory(table: Pointer, yes: u8);
    fn rocksdb_options_set_enable_blob_files(options: Pointer, yes: u8);
    fn rocksdb_options_set_min_blob_size(options: Pointer, bytes: u64);
    fn rocksdb_options_set_enable_blob_gc(options: Pointer, yes: u8);
    fn rocksdb_options_set_blob_cache(options: Pointer, cache: Pointer);
    fn rocksdb_readoptions_set_async_io(options: Pointer, yes: u8);
    fn rocksdb_readoptions_set_adaptive_readahead(options: Pointer, yes: u8);
}

/// Values from this length on lie in files of their own.
const BLOB_BYTES_MIN: u64 = 512;

/// The block cache: HyperClockCache, which finds out itself how large its entries are.
///
/// # Safety
/// As any object of RocksDB, it is destroyed once.
pub(super) unsafe fn cache(settings: Settings, bytes: usize) -> Pointer {
    // SAFETY: both make an object of their own.
    unsafe {
        match settings {
            Settings::Usual => rocksdb_cache_create_lru(bytes),
            Settings::Tuned | Settings::Blobs => rocksdb_cache_create_hyper_clock(bytes, 0),
        }
    }
}

/// Sets what the guides say for a store on an SSD that is written and read at random.
///
/// # Safety
/// All three are alive.
pub(super) unsafe fn tune(settings: Settings, options: Pointer, (table, cache): (Pointer, Pointer), cores: usize) {
    if settings == Settings::Usual {
        return;
    }
    let cores = u32::try_from(cores).unwrap_or(2);
    // SAFETY: setters of live objects.
    unsafe {
        rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
        rocksdb_options_set_enable_pipelined_write(options, 1);
        rocksdb_options_set_max_subcompactions(options, cores);
        rocksdb_options_set_max_background_jobs(options, c_int::try_from(cores + 2).unwrap_or(4));
        rocksdb_options_set_bytes_per_sync(options, 1 << 20);
        rocksdb_options_compaction_readahead_size(options, 2 << 20);
        rocksdb_block_based_options_set_format_version(table, 6);
        rocksdb_block_based_options_set_optimize_filters_for_memory(table, 1);
        if settings == Settings::Blobs {
            rocksdb_options_set_enable_blob_files(options, 1);
            rocksdb_options_set_min_blob_size(options, BLOB_BYTES_MIN);
            rocksdb_options_set_enable_blob_gc(options, 1);
            rocksdb_options_set_blob_cache(options, cache);
        }
    }
}

/// Scans read ahead beside what they compute, as far as they have gone.
///
/// # Safety
/// `options` are alive.
pub(super) unsafe fn read_ahead(settings: Settings, options: Pointer) {
    if settings != Settings::Usual {
        // SAFETY: setters of live objects.
        unsafe {
            rocksdb_readoptions_set_async_io(options, 1);
            rocksdb_readoptions_set_adaptive_readahead(options, 1);
        }
    }
}
