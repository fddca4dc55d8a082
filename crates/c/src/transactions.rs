//! Reads and writes that take effect as one.

use std::ffi::c_int;

use stratakv::Commit;

use crate::arg::{self, Bytes, Out};
use crate::collections::Collection;
use crate::lists::{self, List, element, emptied, end};
use crate::record::{self, Record};
use crate::records::{PutOptions, answer, keyed};
use crate::status::{Failure, Status, c_function};
use crate::store::Store;

/// `stratakv_transaction`.
pub struct Transaction {
    transaction: stratakv::Transaction,
}

fn of(transaction: Option<&mut Transaction>) -> Result<&mut stratakv::Transaction, Failure> {
    Ok(&mut arg::handle_mut(transaction, "transaction")?.transaction)
}

c_function! {
    /// Begins a transaction.
    fn stratakv_transaction_new(store: Option<&Store>, transaction: Out<'_, Option<Box<Transaction>>>) {
        let out = arg::wanted(transaction, "transaction")?.write(None);
        let transaction = arg::handle(store, "store")?.store.transaction();
        *out = Some(Box::new(Transaction { transaction }));
        Ok(Status::Ok)
    }
}

c_function! {
    /// Reads a record.
    fn stratakv_transaction_get(
        transaction: Option<&mut Transaction>,
        collection: Option<&Collection>,
        key: Bytes<'_>,
        key_len: usize,
        record: Out<'_, Record>,
    ) {
        let out = arg::wanted(record, "record")?;
        out.write(record::NONE);
        let (collection, key) = keyed(collection, key, key_len)?;
        answer(of(transaction)?.get(collection, key)?, Some(out))
    }
}

c_function! {
    /// Sets a record.
    fn stratakv_transaction_put(
        transaction: Option<&mut Transaction>,
        collection: Option<&Collection>,
        key: Bytes<'_>,
        key_len: usize,
        value: Bytes<'_>,
        value_len: usize,
        options: Option<&PutOptions>,
    ) {
        let (collection, key) = keyed(collection, key, key_len)?;
        let value = value.take(value_len, "the value")?;
        let holds = of(transaction)?.put_with(collection, key, value, &PutOptions::of(options)?)?;
        Ok(if holds { Status::Ok } else { Status::Unmet })
    }
}

c_function! {
    /// Removes a record.
    fn stratakv_transaction_delete(
        transaction: Option<&mut Transaction>,
        collection: Option<&Collection>,
        key: Bytes<'_>,
        key_len: usize,
    ) {
        let (collection, key) = keyed(collection, key, key_len)?;
        of(transaction)?.delete(collection, key)?;
        Ok(Status::Ok)
    }
}

c_function! {
    /// Puts an element at an end of a list.
    fn stratakv_transaction_push(
        transaction: Option<&mut Transaction>,
        list: Option<&List>,
        end_: c_int,
        value: Bytes<'_>,
        value_len: usize,
    ) {
        of(transaction)?.push(lists::list(list)?, end(end_)?, value.take(value_len, "the value")?)?;
        Ok(Status::Ok)
    }
}

c_function! {
    /// Takes the element at an end of a list.
    fn stratakv_transaction_pop(
        transaction: Option<&mut Transaction>,
        list: Option<&List>,
        end_: c_int,
        value: Out<'_, Record>,
    ) {
        let out = emptied(value)?;
        element(of(transaction)?.pop(lists::list(list)?, end(end_)?)?, out)
    }
}

c_function! {
    /// Reads the element at an end of a list.
    fn stratakv_transaction_peek(
        transaction: Option<&mut Transaction>,
        list: Option<&List>,
        end_: c_int,
        value: Out<'_, Record>,
    ) {
        let out = emptied(value)?;
        element(of(transaction)?.peek(lists::list(list)?, end(end_)?)?, out)
    }
}

c_function! {
    /// Commits a transaction and frees it.
    fn stratakv_transaction_commit(transaction: Option<Box<Transaction>>, version: Out<'_, u64>) {
        let transaction = transaction.ok_or_else(|| Failure::usage("the transaction is NULL"))?;
        Ok(match transaction.transaction.commit()? {
            Commit::Done { version: new } => {
                arg::give(version, new);
                Status::Ok
            }
            Commit::Conflict { .. } => {
                arg::give(version, 0);
                Status::Unmet
            }
        })
    }
}

/// Gives a transaction up.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_transaction_free(transaction: Option<Box<Transaction>>) {
    drop(transaction);
}
