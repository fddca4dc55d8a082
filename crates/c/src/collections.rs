//! Key spaces by name.

use std::ffi::{c_char, c_int};

use stratakv::{Expiry, Kind};

use crate::arg::{self, Out, Text};
use crate::status::{Answer, Failure, Status, c_function, found, into_c};
use crate::store::Store;

/// `stratakv_collection`.
pub struct Collection {
    pub(crate) records: stratakv::Collection,
}

type Made<'a> = Out<'a, Option<Box<Collection>>>;

/// A store, and a name in it.
fn named<'a>(store: Option<&'a Store>, name: Text<'a>) -> Result<(&'a stratakv::Store, &'a str), Failure> {
    Ok((&arg::handle(store, "store")?.store, name.take("the name")?))
}

fn made(out: Made<'_>, records: impl FnOnce() -> Result<Option<stratakv::Collection>, Failure>) -> Answer {
    let out = arg::wanted(out, "collection")?.write(None);
    *out = records()?.map(|records| Box::new(Collection { records }));
    Ok(found(out.is_some()))
}

c_function! {
    /// The collection of a name, made if there is none.
    fn stratakv_collection_open(store: Option<&Store>, name: Text<'_>, collection: Made<'_>) {
        made(collection, || {
            let (store, name) = named(store, name)?;
            Ok(Some(store.collection(name)?))
        })
    }
}

c_function! {
    /// The same, in an order.
    fn stratakv_collection_in_order(store: Option<&Store>, name: Text<'_>, order: Text<'_>, collection: Made<'_>) {
        made(collection, || {
            let (store, name) = named(store, name)?;
            Ok(Some(store.collection_in_order(name, order.take("the order's name")?)?))
        })
    }
}

c_function! {
    /// The collection of a name, if there is one.
    fn stratakv_collection_existing(store: Option<&Store>, name: Text<'_>, collection: Made<'_>) {
        made(collection, || {
            let (store, name) = named(store, name)?;
            Ok(store.existing_collection(name)?)
        })
    }
}

/// Frees the handle.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_collection_free(collection: Option<Box<Collection>>) {
    drop(collection);
}

c_function! {
    /// Removes a collection or list.
    fn stratakv_collection_drop(store: Option<&Store>, name: Text<'_>) {
        let (store, name) = named(store, name)?;
        Ok(found(store.drop_collection(name)?))
    }
}

c_function! {
    /// Sets when a collection or list expires.
    fn stratakv_collection_set_expiry(store: Option<&Store>, name: Text<'_>, expiry_ms: u64) {
        let (store, name) = named(store, name)?;
        Ok(found(store.expire_collection(name, Expiry(expiry_ms))?))
    }
}

c_function! {
    /// When a collection or list expires.
    fn stratakv_collection_expiry(store: Option<&Store>, name: Text<'_>, expiry_ms: Out<'_, u64>) {
        let (store, name) = named(store, name)?;
        let expiry = store.collection_expiry(name)?;
        arg::wanted(expiry_ms, "expiry")?.write(expiry.map_or(0, |expiry| expiry.0));
        Ok(found(expiry.is_some()))
    }
}

c_function! {
    /// Whether a name stands for a list.
    fn stratakv_collection_is_list(store: Option<&Store>, name: Text<'_>, is_list: Out<'_, c_int>) {
        let (store, name) = named(store, name)?;
        let kind = store.kind_of(name)?;
        arg::wanted(is_list, "answer")?.write((kind == Some(Kind::List)).into());
        Ok(found(kind.is_some()))
    }
}

c_function! {
    /// All names, as JSON.
    fn stratakv_collection_names(store: Option<&Store>, json: Out<'_, *mut c_char>) {
        let json = arg::wanted(json, "JSON")?.write(std::ptr::null_mut());
        let store = &arg::handle(store, "store")?.store;
        *json = into_c(serde_json::Value::from(store.collections()?).to_string());
        Ok(Status::Ok)
    }
}
