//! RocksDB through its C interface: the few calls a benchmark needs. It is the system's 7.8, or
//! with feature `today` the one of its crate.
#![expect(unsafe_code, reason = "foreign functions")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use bytes::Bytes;
use stratakv_bench::BenchError;
use stratakv_bench::graph::KeyValue;
use stratakv_bench::target::{Front, OperationOutcome};

// Linked for its symbols: its declarations are those below.
#[cfg(feature = "today")]
use librocksdb_sys as _;

#[cfg(feature = "today")]
mod tuned;

type Pointer = *mut c_void;

#[cfg_attr(not(feature = "today"), link(name = "rocksdb"))]
unsafe extern "C" {
    fn rocksdb_options_create() -> Pointer;
    fn rocksdb_options_destroy(options: Pointer);
    fn rocksdb_options_increase_parallelism(options: Pointer, threads: c_int);
    fn rocksdb_options_set_create_if_missing(options: Pointer, yes: u8);
    fn rocksdb_options_set_compression(options: Pointer, kind: c_int);
    fn rocksdb_options_set_max_open_files(options: Pointer, files: c_int);
    fn rocksdb_options_set_use_direct_reads(options: Pointer, yes: u8);
    fn rocksdb_options_set_use_direct_io_for_flush_and_compaction(options: Pointer, yes: u8);
    fn rocksdb_options_set_db_write_buffer_size(options: Pointer, bytes: usize);
    fn rocksdb_options_set_write_buffer_size(options: Pointer, bytes: usize);
    fn rocksdb_options_set_block_based_table_factory(options: Pointer, table: Pointer);
    fn rocksdb_block_based_options_create() -> Pointer;
    fn rocksdb_block_based_options_destroy(table: Pointer);
    fn rocksdb_block_based_options_set_block_cache(table: Pointer, cache: Pointer);
    fn rocksdb_block_based_options_set_filter_policy(table: Pointer, policy: Pointer);
    fn rocksdb_block_based_options_set_cache_index_and_filter_blocks(table: Pointer, yes: u8);
    fn rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(table: Pointer, yes: u8);
    fn rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(table: Pointer, yes: u8);
    fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: f64) -> Pointer;
    fn rocksdb_cache_create_lru(bytes: usize) -> Pointer;
    fn rocksdb_cache_destroy(cache: Pointer);
    fn rocksdb_open(options: Pointer, path: *const c_char, error: *mut *mut c_char) -> Pointer;
    fn rocksdb_close(db: Pointer);
    fn rocksdb_writeoptions_create() -> Pointer;
    fn rocksdb_writeoptions_destroy(options: Pointer);
    fn rocksdb_writeoptions_set_sync(options: Pointer, yes: u8);
    fn rocksdb_writeoptions_disable_WAL(options: Pointer, yes: c_int);
    fn rocksdb_readoptions_create() -> Pointer;
    fn rocksdb_readoptions_destroy(options: Pointer);
    fn rocksdb_put(
        db: Pointer,
        options: Pointer,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
        error: *mut *mut c_char,
    );
    fn rocksdb_writebatch_create() -> Pointer;
    fn rocksdb_writebatch_destroy(batch: Pointer);
    fn rocksdb_writebatch_put(batch: Pointer, key: *const u8, key_len: usize, value: *const u8, value_len: usize);
    fn rocksdb_write(db: Pointer, options: Pointer, batch: Pointer, error: *mut *mut c_char);
    fn rocksdb_get_pinned(
        db: Pointer,
        options: Pointer,
        key: *const u8,
        key_len: usize,
        error: *mut *mut c_char,
    ) -> Pointer;
    fn rocksdb_pinnableslice_value(slice: Pointer, len: *mut usize) -> *const u8;
    fn rocksdb_pinnableslice_destroy(slice: Pointer);
    fn rocksdb_create_iterator(db: Pointer, options: Pointer) -> Pointer;
    fn rocksdb_iter_destroy(iterator: Pointer);
    fn rocksdb_iter_seek(iterator: Pointer, key: *const u8, len: usize);
    fn rocksdb_iter_valid(iterator: Pointer) -> u8;
    fn rocksdb_iter_next(iterator: Pointer);
    fn rocksdb_iter_value(iterator: Pointer, len: *mut usize) -> *const u8;
    fn rocksdb_iter_get_error(iterator: Pointer, error: *mut *mut c_char);
    fn rocksdb_free(memory: Pointer);
    fn rocksdb_dbpath_create(path: *const c_char, target_bytes: u64) -> Pointer;
    fn rocksdb_dbpath_destroy(path: Pointer);
    fn rocksdb_options_set_db_paths(options: Pointer, paths: *const Pointer, count: usize);
    fn rocksdb_options_set_wal_dir(options: Pointer, path: *const c_char);
}

/// What RocksDB is told beside its memory and cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settings {
    /// A filter, blocks of 4 KiB, direct I/O: what all columns of RocksDB have.
    Usual,
    /// And what its own guides say since: [`tuned`]. Needs feature `today`.
    Tuned,
    /// And values in files of their own (BlobDB).
    Blobs,
}

impl Settings {
    /// As it stands in tables.
    pub fn name(self) -> &'static str {
        match self {
            Settings::Usual => "rocksdb",
            Settings::Tuned => "rocksdb_tuned",
            Settings::Blobs => "rocksdb_blobs",
        }
    }
}

/// An open database.
#[derive(Debug)]
pub struct RocksDb {
    db: NonNull<c_void>,
    #[cfg_attr(not(feature = "today"), expect(dead_code, reason = "read where there is a choice"))]
    settings: Settings,
}

// SAFETY: RocksDB's database handle may be used by any number of threads at once (rocksdb/db.h).
unsafe impl Send for RocksDb {}
// SAFETY: as above.
unsafe impl Sync for RocksDb {}

/// Turns an error text into an error, and frees it.
fn checked(what: &str, error: *mut c_char) -> Result<(), BenchError> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: RocksDB sets it to a string that ends with a zero, which is ours to free.
    let text = unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        rocksdb_free(error.cast());
        text
    };
    Err(BenchError::Wrong(format!("RocksDB: {what}: {text}")))
}

impl RocksDb {
    /// Opens or creates the database in `path`. An eighth of `memory_bytes` (64 MiB to 256 MiB, at
    /// most half) is for write buffers, the rest for the block cache, which holds indexes and
    /// filters too.
    ///
    /// # Errors
    /// RocksDB's own.
    pub fn open(path: &Path, memory_bytes: u64, cores: usize, settings: Settings) -> Result<RocksDb, BenchError> {
        RocksDb::open_with(path, memory_bytes, cores, (true, None), settings)
    }

    /// As [`RocksDb::open`], its log and the first `fast_bytes` of its tables (L0, and what else
    /// fits) in `fast`.
    ///
    /// # Errors
    /// RocksDB's own.
    pub fn open_over(
        path: &Path,
        (fast, fast_bytes): (&Path, u64),
        memory_bytes: u64,
        cores: usize,
    ) -> Result<RocksDb, BenchError> {
        RocksDb::open_with(path, memory_bytes, cores, (true, Some((fast, fast_bytes))), Settings::Usual)
    }

    /// The same with everything through the kernel's cache: on a medium that is memory, direct I/O
    /// gains nothing, and some have none.
    ///
    /// # Errors
    /// RocksDB's own.
    pub fn open_buffered(path: &Path, memory_bytes: u64, cores: usize) -> Result<RocksDb, BenchError> {
        RocksDb::open_with(path, memory_bytes, cores, (false, None), Settings::Usual)
    }

    fn open_with(
        path: &Path,
        memory_bytes: u64,
        cores: usize,
        (direct, fast): (bool, Option<(&Path, u64)>),
        settings: Settings,
    ) -> Result<RocksDb, BenchError> {
        if settings != Settings::Usual && cfg!(not(feature = "today")) {
            let name = settings.name();
            return Err(BenchError::Wrong(format!("{name} needs RocksDB of today: cargo xtask compare --today")));
        }
        let text = |path: &Path| {
            CString::new(path.to_string_lossy().as_bytes())
                .map_err(|_| BenchError::Wrong("a path with a zero byte".into()))
        };
        let name = text(path)?;
        let fast = fast.map(|(path, bytes)| Ok::<_, BenchError>((text(path)?, bytes))).transpose()?;
        let memory = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
        let buffers = (memory / 8).clamp(64 << 20, 256 << 20).min(memory / 2);
        let mut error = ptr::null_mut();
        // SAFETY: every object is used between its creation and its destruction; the table options
        // keep the cache and own the policy, the options keep the table, the database keeps the
        // options' contents (rocksdb/c.h). `name` outlives the call.
        let db = unsafe {
            let options = rocksdb_options_create();
            rocksdb_options_increase_parallelism(options, c_int::try_from(cores).unwrap_or(2));
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_set_compression(options, 0);
            rocksdb_options_set_max_open_files(options, -1);
            rocksdb_options_set_use_direct_reads(options, u8::from(direct));
            rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, u8::from(direct));
            rocksdb_options_set_db_write_buffer_size(options, buffers);
            rocksdb_options_set_write_buffer_size(options, buffers / 2);
            #[cfg(feature = "today")]
            let cache = tuned::cache(settings, memory - buffers);
            #[cfg(not(feature = "today"))]
            let cache = rocksdb_cache_create_lru(memory - buffers);
            let table = rocksdb_block_based_options_create();
            #[cfg(feature = "today")]
            tuned::tune(settings, options, (table, cache), cores);
            rocksdb_block_based_options_set_block_cache(table, cache);
            rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(10.0));
            rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
            rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(table, 1);
            rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(table, 1);
            rocksdb_options_set_block_based_table_factory(options, table);
            if let Some((fast, bytes)) = &fast {
                let paths =
                    [rocksdb_dbpath_create(fast.as_ptr(), *bytes), rocksdb_dbpath_create(name.as_ptr(), 1 << 40)];
                rocksdb_options_set_db_paths(options, paths.as_ptr(), paths.len());
                rocksdb_options_set_wal_dir(options, fast.as_ptr());
                paths.into_iter().for_each(|path| rocksdb_dbpath_destroy(path));
            }
            let db = rocksdb_open(options, name.as_ptr(), &mut error);
            rocksdb_block_based_options_destroy(table);
            rocksdb_cache_destroy(cache);
            rocksdb_options_destroy(options);
            db
        };
        checked("open", error)?;
        let db = NonNull::new(db).ok_or_else(|| BenchError::Wrong("RocksDB: open gave nothing".into()))?;
        Ok(RocksDb { db, settings })
    }
}

impl Drop for RocksDb {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once; every target holds an `Arc` of it.
        unsafe { rocksdb_close(self.db.as_ptr()) }
    }
}

/// What becomes of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// A write returns when it is on the device; threads that write at once share a flush.
    Synchronous,
    /// A write returns when it is in the kernel's cache.
    Written,
    /// There is none.
    None,
}

/// A graph in RocksDB: one thread's way in.
pub struct RocksDbGraph(RocksDbTarget);

impl RocksDbGraph {
    /// In `db`.
    pub fn new(db: RocksDb, log: Log) -> RocksDbGraph {
        RocksDbGraph(RocksDbTarget::new(Arc::new(db), log))
    }
}

impl KeyValue for RocksDbGraph {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BenchError> {
        let (mut error, mut len) = (ptr::null_mut(), 0);
        // SAFETY: key and options live through the call; the slice is copied before it is
        // destroyed.
        let found = unsafe {
            let slice = rocksdb_get_pinned(self.0.db.db.as_ptr(), self.0.read, key.as_ptr(), key.len(), &mut error);
            if slice.is_null() {
                None
            } else {
                let value = rocksdb_pinnableslice_value(slice, &mut len);
                let copy = Bytes::copy_from_slice(std::slice::from_raw_parts(value, len));
                rocksdb_pinnableslice_destroy(slice);
                Some(copy)
            }
        };
        checked("get", error)?;
        Ok(found)
    }

    fn write(&mut self, puts: &[(&[u8], &[u8])]) -> Result<(), BenchError> {
        let mut error = ptr::null_mut();
        // SAFETY: the batch copies keys and values, and is destroyed once, after it is written.
        unsafe {
            let batch = rocksdb_writebatch_create();
            for (key, value) in puts {
                rocksdb_writebatch_put(batch, key.as_ptr(), key.len(), value.as_ptr(), value.len());
            }
            rocksdb_write(self.0.db.db.as_ptr(), self.0.write, batch, &mut error);
            rocksdb_writebatch_destroy(batch);
        }
        checked("write", error)
    }
}

/// One thread's way in: a request is done when it has been submitted.
pub struct RocksDbTarget {
    db: Arc<RocksDb>,
    read: Pointer,
    scan: Pointer,
    write: Pointer,
    done: Vec<(u64, OperationOutcome)>,
}

impl RocksDbTarget {
    /// A way into `db`.
    pub fn new(db: Arc<RocksDb>, log: Log) -> RocksDbTarget {
        // SAFETY: destroyed in `drop`.
        unsafe {
            let write = rocksdb_writeoptions_create();
            rocksdb_writeoptions_set_sync(write, u8::from(log == Log::Synchronous));
            rocksdb_writeoptions_disable_WAL(write, c_int::from(log == Log::None));
            let read = rocksdb_readoptions_create();
            let scan = rocksdb_readoptions_create();
            #[cfg(feature = "today")]
            tuned::read_ahead(db.settings, scan);
            RocksDbTarget { db, read, scan, write, done: Vec::new() }
        }
    }

    fn get(&self, key: &[u8]) -> Result<OperationOutcome, BenchError> {
        let (mut error, mut len) = (ptr::null_mut(), 0);
        // SAFETY: key and options live through the call; the slice is read before it is destroyed.
        let outcome = unsafe {
            let slice = rocksdb_get_pinned(self.db.db.as_ptr(), self.read, key.as_ptr(), key.len(), &mut error);
            if slice.is_null() {
                OperationOutcome::default()
            } else {
                let value = rocksdb_pinnableslice_value(slice, &mut len);
                let front = Front::of(std::slice::from_raw_parts(value, len));
                rocksdb_pinnableslice_destroy(slice);
                OperationOutcome { records: 1, front }
            }
        };
        checked("get", error)?;
        Ok(outcome)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<OperationOutcome, BenchError> {
        let mut error = ptr::null_mut();
        // SAFETY: key, value and options live through the call, which copies what it keeps.
        unsafe {
            let (db, write) = (self.db.db.as_ptr(), self.write);
            rocksdb_put(db, write, key.as_ptr(), key.len(), value.as_ptr(), value.len(), &mut error);
        }
        checked("put", error)?;
        Ok(OperationOutcome::default())
    }

    fn scan(&self, key: &[u8], len: u32) -> Result<OperationOutcome, BenchError> {
        let (mut error, mut records) = (ptr::null_mut(), 0);
        // SAFETY: the iterator is destroyed at the end; a value is read only where the iterator is
        // valid.
        unsafe {
            let iterator = rocksdb_create_iterator(self.db.db.as_ptr(), self.scan);
            rocksdb_iter_seek(iterator, key.as_ptr(), key.len());
            while records < len && rocksdb_iter_valid(iterator) != 0 {
                let mut bytes = 0;
                let value = rocksdb_iter_value(iterator, &mut bytes);
                std::hint::black_box(std::slice::from_raw_parts(value, bytes).to_vec());
                records += 1;
                rocksdb_iter_next(iterator);
            }
            rocksdb_iter_get_error(iterator, &mut error);
            rocksdb_iter_destroy(iterator);
        }
        checked("scan", error)?;
        Ok(OperationOutcome { records, ..OperationOutcome::default() })
    }
}

crate::at_once::answers_at_once!(RocksDbTarget);

impl Drop for RocksDbTarget {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once.
        unsafe {
            rocksdb_readoptions_destroy(self.read);
            rocksdb_readoptions_destroy(self.scan);
            rocksdb_writeoptions_destroy(self.write);
        }
    }
}
