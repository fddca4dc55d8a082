//! Changes that are made as one.

use std::ffi::c_int;

use stratakv::{Expect, WriteBatch};

use crate::arg::{self, Bytes, Out};
use crate::collections::Collection;
use crate::lists::{self, List, end};
use crate::pages;
use crate::records::{PutOptions, expectation, keyed, written};
use crate::status::{Status, c_function};
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

c_function! {
    /// Sets a record.
    fn stratakv_batch_put(
        batch: Option<&mut Batch>,
        collection: Option<&Collection>,
        key: Bytes<'_>,
        key_len: usize,
        value: Bytes<'_>,
        value_len: usize,
        options: Option<&PutOptions>,
    ) {
        let batch = &mut arg::handle_mut(batch, "batch")?.batch;
        let (collection, key) = keyed(collection, key, key_len)?;
        let value = value.take(value_len, "the value")?;
        batch.put_with(collection, key, value, &PutOptions::of(options)?);
        Ok(Status::Ok)
    }
}

c_function! {
    /// Removes a record.
    fn stratakv_batch_delete(
        batch: Option<&mut Batch>,
        collection: Option<&Collection>,
        key: Bytes<'_>,
        key_len: usize,
        expect: u32,
        expect_version: u64,
    ) {
        let batch = &mut arg::handle_mut(batch, "batch")?.batch;
        let (collection, key) = keyed(collection, key, key_len)?;
        batch.delete_if(collection, key, expectation(expect, expect_version)?);
        Ok(Status::Ok)
    }
}

c_function! {
    /// Sets and removes the records of a page.
    fn stratakv_batch_page(
        batch: Option<&mut Batch>,
        collection: Option<&Collection>,
        page: Bytes<'_>,
        len: usize,
    ) {
        let batch = &mut arg::handle_mut(batch, "batch")?.batch;
        let collection = &arg::handle(collection, "collection")?.records;
        for change in pages::changes(page.take(len, "the page")?)? {
            match change.value {
                Some(value) => batch.put_with(collection, change.key, value, &change.options),
                None => batch.delete_if(collection, change.key, Expect::Any),
            };
        }
        Ok(Status::Ok)
    }
}

c_function! {
    /// Puts an element at an end of a list.
    fn stratakv_batch_push(
        batch: Option<&mut Batch>,
        list: Option<&List>,
        end_: c_int,
        value: Bytes<'_>,
        value_len: usize,
    ) {
        let batch = &mut arg::handle_mut(batch, "batch")?.batch;
        batch.push(lists::list(list)?, end(end_)?, value.take(value_len, "the value")?);
        Ok(Status::Ok)
    }
}

c_function! {
    /// Makes all changes as one.
    fn stratakv_write(store: Option<&Store>, batch: Option<&mut Batch>, version: Out<'_, u64>) {
        let store = &arg::handle(store, "store")?.store;
        let batch = std::mem::take(&mut arg::handle_mut(batch, "batch")?.batch);
        Ok(written(store.write(batch)?, version))
    }
}
