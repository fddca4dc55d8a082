//! Changes that are made as one.

use std::ffi::{c_char, c_int};

use stratakv::WriteBatch;

use crate::arg::{self, Bytes, Out};
use crate::collections::Collection;
use crate::lists::{self, List, end};
use crate::records::{PutOptions, expectation, written};
use crate::status::{Status, call};
use crate::store::Store;

/// `stratakv_batch`.
#[derive(Default)]
pub struct Batch {
    batch: WriteBatch,
}

/// An empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_batch_new() -> Box<Batch> {
    Box::default()
}

/// Frees a batch.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_batch_free(batch: Option<Box<Batch>>) {
    drop(batch);
}

/// Number of changes.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_batch_count(batch: Option<&Batch>) -> usize {
    batch.map_or(0, |batch| batch.batch.len())
}

/// Sets a record.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_batch_put(
    batch: Option<&mut Batch>,
    collection: Option<&Collection>,
    key: Bytes<'_>,
    key_len: usize,
    value: Bytes<'_>,
    value_len: usize,
    options: Option<&PutOptions>,
    message: Out<'_, *mut c_char>,
) -> Status {
    call(message, || {
        let batch = &mut arg::handle_mut(batch, "batch")?.batch;
        let collection = &arg::handle(collection, "collection")?.records;
        let (key, value) = (key.take(key_len, "the key")?, value.take(value_len, "the value")?);
        batch.put_with(collection, key, value, &PutOptions::of(options)?);
        Ok(Status::Ok)
    })
}

/// Removes a record.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_batch_delete(
    batch: Option<&mut Batch>,
    collection: Option<&Collection>,
    key: Bytes<'_>,
    key_len: usize,
    expect: u32,
    expect_version: u64,
    message: Out<'_, *mut c_char>,
) -> Status {
    call(message, || {
        let batch = &mut arg::handle_mut(batch, "batch")?.batch;
        let collection = &arg::handle(collection, "collection")?.records;
        batch.delete_if(collection, key.take(key_len, "the key")?, expectation(expect, expect_version)?);
        Ok(Status::Ok)
    })
}

/// Puts an element at an end of a list.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_batch_push(
    batch: Option<&mut Batch>,
    list: Option<&List>,
    end_: c_int,
    value: Bytes<'_>,
    value_len: usize,
    message: Out<'_, *mut c_char>,
) -> Status {
    call(message, || {
        let batch = &mut arg::handle_mut(batch, "batch")?.batch;
        batch.push(lists::list(list)?, end(end_)?, value.take(value_len, "the value")?);
        Ok(Status::Ok)
    })
}

/// Makes all changes as one.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_write(
    store: Option<&Store>,
    batch: Option<&mut Batch>,
    version: Out<'_, u64>,
    message: Out<'_, *mut c_char>,
) -> Status {
    call(message, || {
        let store = &arg::handle(store, "store")?.store;
        let batch = std::mem::take(&mut arg::handle_mut(batch, "batch")?.batch);
        Ok(written(store.write(batch)?, version))
    })
}
