//! WiredTiger through its C interface. Its calls are members of its objects, so the front of each
//! object is declared here as `wiredtiger.h` of 3.2 has it; `check_version` refuses a library of
//! another version.
#![expect(unsafe_code, reason = "foreign functions")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use stratakv_bench::BenchError;
use stratakv_bench::target::{Front, OperationOutcome};

const ROLLBACK: c_int = -31_800;
const NOT_FOUND: c_int = -31_803;
const TABLE: &CStr = c"table:records";
/// Leaf pages as large as RocksDB's blocks.
const TABLE_CONFIG: &CStr = c"key_format=u,value_format=u,leaf_page_max=4KB,internal_page_max=4KB,checksum=on";

/// A member that is not called.
type Unused = *const c_void;

#[repr(C)]
struct Connection {
    async_flush: Unused,
    async_new_op: Unused,
    close: unsafe extern "C" fn(*mut Connection, *const c_char) -> c_int,
    debug_info: Unused,
    reconfigure: Unused,
    get_home: Unused,
    configure_method: Unused,
    is_new: Unused,
    open_session: unsafe extern "C" fn(*mut Connection, *mut c_void, *const c_char, *mut *mut Session) -> c_int,
}

#[repr(C)]
struct Session {
    connection: Unused,
    app_private: Unused,
    close: unsafe extern "C" fn(*mut Session, *const c_char) -> c_int,
    reconfigure: Unused,
    strerror: Unused,
    open_cursor:
        unsafe extern "C" fn(*mut Session, *const c_char, *mut Cursor, *const c_char, *mut *mut Cursor) -> c_int,
    alter: Unused,
    create: unsafe extern "C" fn(*mut Session, *const c_char, *const c_char) -> c_int,
}

#[repr(C)]
struct Cursor {
    session: Unused,
    uri: Unused,
    key_format: Unused,
    value_format: Unused,
    get_key: Unused,
    get_value: unsafe extern "C" fn(*mut Cursor, ...) -> c_int,
    set_key: unsafe extern "C" fn(*mut Cursor, ...),
    set_value: unsafe extern "C" fn(*mut Cursor, ...),
    compare: Unused,
    equals: Unused,
    next: unsafe extern "C" fn(*mut Cursor) -> c_int,
    prev: Unused,
    reset: unsafe extern "C" fn(*mut Cursor) -> c_int,
    search: unsafe extern "C" fn(*mut Cursor) -> c_int,
    search_near: unsafe extern "C" fn(*mut Cursor, *mut c_int) -> c_int,
    insert: unsafe extern "C" fn(*mut Cursor) -> c_int,
}

#[repr(C)]
struct Item {
    data: *const u8,
    size: usize,
    mem: *mut c_void,
    memsize: usize,
    flags: u32,
}

impl Item {
    fn new(bytes: &[u8]) -> Item {
        Item { data: bytes.as_ptr(), size: bytes.len(), mem: ptr::null_mut(), memsize: 0, flags: 0 }
    }
}

#[link(name = "wiredtiger")]
unsafe extern "C" {
    fn wiredtiger_open(
        home: *const c_char,
        handler: *mut c_void,
        config: *const c_char,
        connection: *mut *mut Connection,
    ) -> c_int;
    fn wiredtiger_strerror(error: c_int) -> *const c_char;
    fn wiredtiger_version(major: *mut c_int, minor: *mut c_int, patch: *mut c_int) -> *const c_char;
}

fn checked(what: &str, code: c_int) -> Result<(), BenchError> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: always a constant string.
    let text = unsafe { CStr::from_ptr(wiredtiger_strerror(code)) }.to_string_lossy().into_owned();
    Err(BenchError::Wrong(format!("WiredTiger: {what}: {text}")))
}

/// The objects above are those of 3.2.
fn check_version() -> Result<(), BenchError> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two numbers, takes null for the third.
    unsafe { wiredtiger_version(&mut major, &mut minor, ptr::null_mut()) };
    if (major, minor) == (3, 2) {
        return Ok(());
    }
    Err(BenchError::Wrong(format!("WiredTiger {major}.{minor}: this program knows the objects of 3.2 only")))
}

/// An open database.
#[derive(Debug)]
pub struct WiredTiger {
    connection: *mut Connection,
}

// SAFETY: a connection may be used by any number of threads at once; sessions and cursors stay with
// one (its documentation).
unsafe impl Send for WiredTiger {}
// SAFETY: as above.
unsafe impl Sync for WiredTiger {}

impl WiredTiger {
    /// Opens or creates the database in `path`, with all of `memory_bytes` as its cache. With
    /// `sync`, a write returns when the log is on the device; threads that write at once share a
    /// flush.
    ///
    /// # Errors
    /// WiredTiger's own.
    pub fn open(path: &Path, memory_bytes: u64, sync: bool, sessions: usize) -> Result<WiredTiger, BenchError> {
        check_version()?;
        let sync = if sync { "enabled=true,method=fsync" } else { "enabled=false" };
        let config = format!(
            "create,cache_size={memory_bytes},session_max={},direct_io=[data],buffer_alignment=4096,log=(enabled=true),\
             transaction_sync=({sync}),checkpoint=(wait=60,log_size=2GB),eviction=(threads_min=1,threads_max=4)",
            sessions + 32
        );
        let text = |text: &str| CString::new(text).map_err(|_| BenchError::Wrong("a path with a zero byte".into()));
        let (home, config) = (text(&path.to_string_lossy())?, text(&config)?);
        let mut connection = ptr::null_mut();
        // SAFETY: both strings outlive the call.
        let code = unsafe { wiredtiger_open(home.as_ptr(), ptr::null_mut(), config.as_ptr(), &mut connection) };
        checked("open", code)?;
        let opened = WiredTiger { connection };
        let session = opened.session()?;
        // SAFETY: an open session of this thread, closed at once.
        let (created, closed) = unsafe {
            let created = ((*session).create)(session, TABLE.as_ptr(), TABLE_CONFIG.as_ptr());
            (created, ((*session).close)(session, ptr::null()))
        };
        checked("create", created)?;
        checked("close a session", closed)?;
        Ok(opened)
    }

    fn session(&self) -> Result<*mut Session, BenchError> {
        let mut session = ptr::null_mut();
        // SAFETY: the connection is open.
        let code =
            unsafe { ((*self.connection).open_session)(self.connection, ptr::null_mut(), ptr::null(), &mut session) };
        checked("open a session", code)?;
        Ok(session)
    }
}

impl Drop for WiredTiger {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once; every target holds an `Arc` of it and has closed its
        // session before.
        let code = unsafe { ((*self.connection).close)(self.connection, ptr::null()) };
        if let Err(error) = checked("close", code) {
            eprintln!("{error}");
        }
    }
}

/// One thread's way in: a request is done when it has been submitted.
pub struct WiredTigerTarget {
    /// Dropped after the session is closed.
    _db: Arc<WiredTiger>,
    session: *mut Session,
    cursor: *mut Cursor,
    done: Vec<(u64, OperationOutcome)>,
}

impl WiredTigerTarget {
    /// # Errors
    /// No session left.
    pub fn new(db: Arc<WiredTiger>) -> Result<WiredTigerTarget, BenchError> {
        let session = db.session()?;
        let mut cursor = ptr::null_mut();
        // SAFETY: an open session of this thread.
        let code =
            unsafe { ((*session).open_cursor)(session, TABLE.as_ptr(), ptr::null_mut(), ptr::null(), &mut cursor) };
        checked("open a cursor", code)?;
        Ok(WiredTigerTarget { _db: db, session, cursor, done: Vec::new() })
    }

    fn value(&mut self) -> Result<Vec<u8>, BenchError> {
        let mut item = MaybeUninit::<Item>::zeroed();
        // SAFETY: the cursor stands on a record; its value is valid until the next call, and copied
        // before.
        unsafe {
            checked("get a value", ((*self.cursor).get_value)(self.cursor, item.as_mut_ptr()))?;
            let item = item.assume_init();
            Ok(std::slice::from_raw_parts(item.data, item.size).to_vec())
        }
    }

    fn reset(&mut self) -> Result<(), BenchError> {
        // SAFETY: an open cursor of this thread.
        checked("reset", unsafe { ((*self.cursor).reset)(self.cursor) })
    }

    fn get(&mut self, key: &[u8]) -> Result<OperationOutcome, BenchError> {
        let mut item = Item::new(key);
        // SAFETY: an open cursor of this thread; the key outlives the search.
        let code = unsafe {
            ((*self.cursor).set_key)(self.cursor, &mut item as *mut Item);
            ((*self.cursor).search)(self.cursor)
        };
        if code == NOT_FOUND {
            return Ok(OperationOutcome::default());
        }
        checked("search", code)?;
        let front = Front::of(&self.value()?);
        self.reset()?;
        Ok(OperationOutcome { records: 1, front })
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<OperationOutcome, BenchError> {
        let (mut key, mut value) = (Item::new(key), Item::new(value));
        loop {
            // SAFETY: an open cursor of this thread; key and value outlive the insert.
            let code = unsafe {
                ((*self.cursor).set_key)(self.cursor, &mut key as *mut Item);
                ((*self.cursor).set_value)(self.cursor, &mut value as *mut Item);
                ((*self.cursor).insert)(self.cursor)
            };
            // Another thread writes the same record, or the cache is full: the documentation says
            // to do it again.
            if code != ROLLBACK {
                checked("insert", code)?;
                return Ok(OperationOutcome::default());
            }
        }
    }

    fn scan(&mut self, key: &[u8], len: u32) -> Result<OperationOutcome, BenchError> {
        let (mut item, mut exact, mut records) = (Item::new(key), 0, 0);
        // SAFETY: an open cursor of this thread; the key outlives the search.
        let mut code = unsafe {
            ((*self.cursor).set_key)(self.cursor, &mut item as *mut Item);
            ((*self.cursor).search_near)(self.cursor, &mut exact)
        };
        if code == 0 && exact < 0 {
            // SAFETY: as above.
            code = unsafe { ((*self.cursor).next)(self.cursor) };
        }
        while code == 0 {
            std::hint::black_box(self.value()?);
            records += 1;
            if records == len {
                break;
            }
            // SAFETY: as above.
            code = unsafe { ((*self.cursor).next)(self.cursor) };
        }
        if code != NOT_FOUND {
            checked("scan", code)?;
        }
        self.reset()?;
        Ok(OperationOutcome { records, ..OperationOutcome::default() })
    }
}

crate::at_once::answers_at_once!(WiredTigerTarget);

impl Drop for WiredTigerTarget {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once, with its cursor, by the thread it belongs to.
        let code = unsafe { ((*self.session).close)(self.session, ptr::null()) };
        if let Err(error) = checked("close a session", code) {
            eprintln!("{error}");
        }
    }
}
