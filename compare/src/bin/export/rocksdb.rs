//! RocksDB of the system, through its C interface.
#![expect(unsafe_code, reason = "foreign functions")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write;
use std::path::Path;
use std::ptr;

use crate::lines::Lines;

type Pointer = *mut c_void;

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_options_create() -> Pointer;
    fn rocksdb_options_destroy(options: Pointer);
    fn rocksdb_list_column_families(
        options: Pointer,
        path: *const c_char,
        count: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut *mut c_char;
    fn rocksdb_list_column_families_destroy(names: *mut *mut c_char, count: usize);
    fn rocksdb_open_for_read_only_column_families(
        options: Pointer,
        path: *const c_char,
        count: c_int,
        names: *const *const c_char,
        family_options: *const Pointer,
        families: *mut Pointer,
        error_if_wal_file_exists: u8,
        error: *mut *mut c_char,
    ) -> Pointer;
    fn rocksdb_column_family_handle_destroy(family: Pointer);
    fn rocksdb_close(db: Pointer);
    fn rocksdb_readoptions_create() -> Pointer;
    fn rocksdb_readoptions_destroy(options: Pointer);
    fn rocksdb_create_iterator_cf(db: Pointer, options: Pointer, family: Pointer) -> Pointer;
    fn rocksdb_iter_destroy(iterator: Pointer);
    fn rocksdb_iter_seek_to_first(iterator: Pointer);
    fn rocksdb_iter_seek(iterator: Pointer, key: *const u8, key_bytes: usize);
    fn rocksdb_iter_valid(iterator: Pointer) -> u8;
    fn rocksdb_iter_key(iterator: Pointer, len: *mut usize) -> *const u8;
    fn rocksdb_iter_value(iterator: Pointer, len: *mut usize) -> *const u8;
    fn rocksdb_iter_next(iterator: Pointer);
    fn rocksdb_iter_get_error(iterator: Pointer, error: *mut *mut c_char);
    fn rocksdb_free(pointer: Pointer);
}

/// Takes an error, if there is one.
fn taken(path: &Path, error: *mut c_char) -> Result<(), String> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: RocksDB's errors are strings that end with a zero, and are ours to free.
    let why = unsafe {
        let why = CStr::from_ptr(error).to_string_lossy().into_owned();
        rocksdb_free(error.cast());
        why
    };
    Err(format!("{}: {why}", path.display()))
}

/// An open directory with two column families: the default one, which must be opened, and that
/// which is read.
struct Opened {
    options: Pointer,
    db: Pointer,
    families: [Pointer; 2],
}

impl Opened {
    fn open(path: &Path, family: &str) -> Result<Opened, String> {
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| "a name has a zero byte in it".to_owned());
        let directory = text(path.as_os_str().as_encoded_bytes())?;
        let names = [text(b"default")?, text(family.as_bytes())?];
        let names = [names[0].as_ptr(), names[1].as_ptr()];
        // Naming it twice is refused.
        let count = if family == "default" { 1 } else { 2 };
        let (mut families, mut error) = ([ptr::null_mut(); 2], ptr::null_mut());
        // SAFETY: all that is handed over lives until the call ends; options outlive the database.
        let (options, db) = unsafe {
            let options = rocksdb_options_create();
            let db = rocksdb_open_for_read_only_column_families(
                options,
                directory.as_ptr(),
                count,
                names.as_ptr(),
                [options; 2].as_ptr(),
                families.as_mut_ptr(),
                0,
                &raw mut error,
            );
            (options, db)
        };
        let opened = Opened { options, db, families };
        taken(path, error)?;
        Ok(opened)
    }

    fn family(&self) -> Pointer {
        self.families.iter().rev().copied().find(|family| !family.is_null()).unwrap_or(ptr::null_mut())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: each of them is ours, destroyed once, families before their database.
        unsafe {
            for family in self.families.into_iter().filter(|family| !family.is_null()) {
                rocksdb_column_family_handle_destroy(family);
            }
            if !self.db.is_null() {
                rocksdb_close(self.db);
            }
            rocksdb_options_destroy(self.options);
        }
    }
}

/// Names of all column families.
fn families(path: &Path) -> Result<Vec<String>, String> {
    let directory =
        CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| "a zero byte in a path".to_owned())?;
    let (mut count, mut error) = (0, ptr::null_mut());
    // SAFETY: as the interface wants it; the names are copied before they are destroyed.
    unsafe {
        let options = rocksdb_options_create();
        let names = rocksdb_list_column_families(options, directory.as_ptr(), &raw mut count, &raw mut error);
        rocksdb_options_destroy(options);
        taken(path, error)?;
        let text = |at| CStr::from_ptr(*names.add(at)).to_string_lossy().into_owned();
        let all = (0..count).map(text).collect();
        rocksdb_list_column_families_destroy(names, count);
        Ok(all)
    }
}

/// Writes the records of a column family.
///
/// # Errors
/// It is no directory of RocksDB, has no such family, has an order of its own, or cannot be read.
pub fn read<W: Write>(path: &Path, family: &str, lines: &mut Lines<W>) -> Result<(), String> {
    let all = families(path)?;
    if !all.iter().any(|known| known == family) {
        return Err(format!("{} has no column family `{family}`: {}", path.display(), all.join(", ")));
    }
    let opened = Opened::open(path, family)?;
    for other in all.iter().filter(|known| *known != family) {
        lines.note(format!("the column family `{other}` is not read here: --column-family {other}"));
    }
    // SAFETY: options and iterator are destroyed before what they belong to.
    unsafe {
        let options = rocksdb_readoptions_create();
        let iterator = rocksdb_create_iterator_cf(opened.db, options, opened.family());
        match lines.begun_behind() {
            None => rocksdb_iter_seek_to_first(iterator),
            Some(key) => rocksdb_iter_seek(iterator, key.as_ptr(), key.len()),
        }
        let written = each(iterator, lines);
        let mut error = ptr::null_mut();
        rocksdb_iter_get_error(iterator, &raw mut error);
        rocksdb_iter_destroy(iterator);
        rocksdb_readoptions_destroy(options);
        written.and(taken(path, error))
    }
}

/// # Safety
/// An iterator that was placed.
unsafe fn each<W: Write>(iterator: Pointer, lines: &mut Lines<W>) -> Result<(), String> {
    // SAFETY: key and value live until the iterator moves.
    unsafe {
        while rocksdb_iter_valid(iterator) != 0 {
            let (mut key_bytes, mut value_bytes) = (0, 0);
            let key = rocksdb_iter_key(iterator, &raw mut key_bytes);
            let value = rocksdb_iter_value(iterator, &raw mut value_bytes);
            lines.write(bytes(key, key_bytes), bytes(value, value_bytes))?;
            rocksdb_iter_next(iterator);
        }
    }
    Ok(())
}

/// # Safety
/// So many bytes lie there, or none.
unsafe fn bytes<'b>(from: *const u8, len: usize) -> &'b [u8] {
    // SAFETY: as above; a slice of nothing needs no place.
    if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(from, len) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn rocksdb_options_set_create_if_missing(options: Pointer, yes: u8);
        fn rocksdb_open(options: Pointer, path: *const c_char, error: *mut *mut c_char) -> Pointer;
        fn rocksdb_create_column_family(
            db: Pointer,
            options: Pointer,
            name: *const c_char,
            error: *mut *mut c_char,
        ) -> Pointer;
        fn rocksdb_writeoptions_create() -> Pointer;
        fn rocksdb_writeoptions_destroy(options: Pointer);
        fn rocksdb_put(
            db: Pointer,
            options: Pointer,
            key: *const u8,
            key_bytes: usize,
            value: *const u8,
            value_bytes: usize,
            error: *mut *mut c_char,
        );
        fn rocksdb_put_cf(
            db: Pointer,
            options: Pointer,
            family: Pointer,
            key: *const u8,
            key_bytes: usize,
            value: *const u8,
            value_bytes: usize,
            error: *mut *mut c_char,
        );
    }

    fn filled(folder: &Path) {
        let directory = CString::new(folder.as_os_str().as_encoded_bytes()).unwrap();
        let mut error = ptr::null_mut();
        // SAFETY: as the interface wants it.
        unsafe {
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            let db = rocksdb_open(options, directory.as_ptr(), &raw mut error);
            let family = rocksdb_create_column_family(db, options, c"users".as_ptr(), &raw mut error);
            let writes = rocksdb_writeoptions_create();
            for (key, value) in [(&b"a"[..], &b"1"[..]), (b"\xFF\x00", b""), (b"", b"nameless")] {
                rocksdb_put(db, writes, key.as_ptr(), key.len(), value.as_ptr(), value.len(), &raw mut error);
            }
            rocksdb_put_cf(db, writes, family, b"u".as_ptr(), 1, b"2".as_ptr(), 1, &raw mut error);
            taken(folder, error).unwrap();
            rocksdb_writeoptions_destroy(writes);
            rocksdb_column_family_handle_destroy(family);
            rocksdb_close(db);
            rocksdb_options_destroy(options);
        }
    }

    #[test]
    fn records_of_a_column_family_come_and_others_are_told_of() {
        let folder = std::env::temp_dir().join(format!("stratakv-export-rocksdb-{}", std::process::id()));
        filled(&folder);
        let exported = |family: &str| {
            let mut out = Vec::new();
            let mut lines = Lines::new(&mut out);
            read(&folder, family, &mut lines).and_then(|()| lines.end()).unwrap();
            let report = lines.report();
            (String::from_utf8(out).unwrap(), report)
        };
        let (text, report) = exported("default");
        assert_eq!(text, "{\"key\":\"a\",\"value\":\"1\"}\n{\"key_base64\":\"/wA=\",\"value\":\"\"}\n");
        assert!(report.contains("--column-family users") && report.contains("1: a store has no empty key"), "{report}");
        assert_eq!(exported("users").0, "{\"key\":\"u\",\"value\":\"2\"}\n");
        for (key, rest) in [("", 2), ("a", 1), ("b", 1), ("~", 1)] {
            let mut lines = Lines::new(Vec::new());
            lines.begin_behind(Some(key.into())).unwrap();
            read(&folder, "default", &mut lines).unwrap();
            assert!(lines.report().contains(&format!("{rest} records")), "{key}: {}", lines.report());
        }
        let why = read(&folder, "absent", &mut Lines::new(Vec::new())).unwrap_err();
        assert!(why.contains("default, users"), "{why}");
        let why = read(&folder.join("absent"), "default", &mut Lines::new(Vec::new())).unwrap_err();
        assert!(why.contains("absent"), "{why}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
