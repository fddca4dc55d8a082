//! The store as a whole.

use std::ffi::{CStr, c_char};

use stratakv::Engine;

use crate::arg::{self, Out, Text};
use crate::collections::Collection;
use crate::status::{Status, c_function, into_c};

/// `stratakv_store`.
pub struct Store {
    pub(crate) store: stratakv::Store,
    default: Collection,
}

impl Store {
    pub(crate) fn new(store: stratakv::Store) -> Store {
        let default = Collection { records: (*store).clone() };
        Store { store, default }
    }
}

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    const TEXT: &CStr = match CStr::from_bytes_with_nul(VERSION.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"?",
    };
    TEXT.as_ptr()
}

/// The name of a store's engine.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_engine(store: Option<&Store>) -> *const c_char {
    let name = match store.map(|store| store.store.engine()) {
        Some(Engine::Slab) => c"slab",
        Some(Engine::Hash) => c"hash",
        Some(Engine::Matrix) => c"matrix",
        Some(Engine::Tier) => c"tier",
        _ => c"?",
    };
    name.as_ptr()
}

/// Now, by the store's clock; 0 for null.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_wall_ms(store: Option<&Store>) -> u64 {
    store.map_or(0, |store| store.store.wall().0)
}

/// The default collection.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_default(store: Option<&Store>) -> Option<&Collection> {
    store.map(|store| &store.default)
}

c_function! {
    /// Makes what was acknowledged durable at power loss.
    fn stratakv_sync(store: Option<&Store>) {
        arg::handle(store, "store")?.store.sync()?;
        Ok(Status::Ok)
    }
}

c_function! {
    /// Counters and gauges as JSON.
    fn stratakv_stats(store: Option<&Store>, json: Out<'_, *mut c_char>) {
        let json = arg::wanted(json, "JSON")?.write(std::ptr::null_mut());
        let store = &arg::handle(store, "store")?.store;
        let figures = store.stats().into_iter().map(|figure| (figure.name.to_owned(), figure.value.into()));
        *json = into_c(serde_json::Value::Object(figures.collect()).to_string());
        Ok(Status::Ok)
    }
}

c_function! {
    /// Writes a backup.
    fn stratakv_backup(store: Option<&Store>, directory: Text<'_>, records: Out<'_, u64>) {
        let store = &arg::handle(store, "store")?.store;
        let summary = store.backup(directory.path("the backup's directory")?)?;
        arg::give(records, summary.records);
        Ok(Status::Ok)
    }
}
