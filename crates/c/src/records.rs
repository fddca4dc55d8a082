//! Records by key.

use std::ffi::{c_int, c_void};
use std::ops::Bound;

use stratakv::{Expect, Expiry, Next, PutOutcome, Ttl};

use crate::arg::{self, Array, Bytes, Out};
use crate::collections::Collection;
use crate::record::{self, Record};
use crate::status::{Answer, Failure, Status, c_function, found};

/// `stratakv_put_options`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct PutOptions {
    expiry_ms: u64,
    expect_version: u64,
    flags: u32,
    expect: u32,
}

impl PutOptions {
    pub(crate) fn of(options: Option<&PutOptions>) -> Result<stratakv::PutOptions, Failure> {
        let options = options.copied().unwrap_or_default();
        let expect = expectation(options.expect, options.expect_version)?;
        let (flags, expiry) = (options.flags, Expiry(options.expiry_ms));
        Ok(stratakv::PutOptions::new().flags(flags).expiry(expiry).expect(expect))
    }
}

pub(crate) fn expectation(expect: u32, version: u64) -> Result<Expect, Failure> {
    match expect {
        0 => Ok(Expect::Any),
        1 => Ok(Expect::Absent),
        2 => Ok(Expect::Present),
        3 => Ok(Expect::Version(version)),
        _ => Err(Failure::usage(format!("{expect} is no condition: see stratakv_expect"))),
    }
}

pub(crate) fn written(outcome: PutOutcome, version: Out<'_, u64>) -> Status {
    match outcome {
        PutOutcome::Written { version: new } => {
            arg::give(version, new);
            Status::Ok
        }
        PutOutcome::Unmet(_) => {
            arg::give(version, 0);
            Status::Unmet
        }
    }
}

/// A collection, and a key of it.
pub(crate) fn keyed<'a>(
    collection: Option<&'a Collection>,
    key: Bytes<'a>,
    key_len: usize,
) -> Result<(&'a stratakv::Collection, &'a [u8]), Failure> {
    Ok((&arg::handle(collection, "collection")?.records, key.take(key_len, "the key")?))
}

/// Gives what was read.
pub(crate) fn answer(found: Option<stratakv::Record>, out: Out<'_, Record>) -> Answer {
    let status = crate::status::found(found.is_some());
    record::give(out, found.as_ref().map(Record::new));
    Ok(status)
}

c_function! {
    /// Reads a record.
    fn stratakv_get(collection: Option<&Collection>, key: Bytes<'_>, key_len: usize, record: Out<'_, Record>) {
        let out = arg::wanted(record, "record")?;
        out.write(record::NONE);
        let (collection, key) = keyed(collection, key, key_len)?;
        answer(collection.get(key)?, Some(out))
    }
}

c_function! {
    /// Reads a record whose value goes into the caller's room if it finds it there.
    fn stratakv_get_into(
        collection: Option<&Collection>,
        key: Bytes<'_>,
        key_len: usize,
        room: arg::Room<'_, u8>,
        room_len: usize,
        record: Out<'_, Record>,
    ) {
        let out = arg::wanted(record, "record")?;
        out.write(record::NONE);
        let room = room.take(room_len, "the room for a value")?;
        let (collection, key) = keyed(collection, key, key_len)?;
        let found = collection.get(key)?;
        let status = crate::status::found(found.is_some());
        out.write(found.map_or(record::NONE, |found| Record::in_room(&found, room)));
        Ok(status)
    }
}

c_function! {
    /// Reads several records.
    fn stratakv_multi_get(
        collection: Option<&Collection>,
        count: usize,
        keys: Array<'_, Bytes<'_>>,
        key_lens: Array<'_, usize>,
        records: arg::Room<'_, Record>,
    ) {
        let records = records.take(count, "the room for records")?;
        for record in records.iter_mut() {
            record.write(record::NONE);
        }
        let collection = &arg::handle(collection, "collection")?.records;
        let keys = pieces(keys, key_lens, count, "the keys", "a key")?;
        for (out, record) in records.iter_mut().zip(collection.multi_get(&keys)?) {
            record::give(Some(out), record.as_ref().map(Record::new));
        }
        Ok(Status::Ok)
    }
}

/// Several pieces of bytes.
pub(crate) fn pieces<'a>(
    pieces: Array<'a, Bytes<'a>>,
    lens: Array<'a, usize>,
    count: usize,
    all: &str,
    each: &str,
) -> Result<Vec<&'a [u8]>, Failure> {
    let lens = lens.take(count, "the array of lengths")?;
    pieces.take(count, all)?.iter().zip(lens).map(|(piece, len)| piece.take(*len, each)).collect()
}

c_function! {
    /// Writes a record.
    fn stratakv_put(
        collection: Option<&Collection>,
        key: Bytes<'_>,
        key_len: usize,
        value: Bytes<'_>,
        value_len: usize,
        options: Option<&PutOptions>,
        version: Out<'_, u64>,
    ) {
        let (collection, key) = keyed(collection, key, key_len)?;
        let value = value.take(value_len, "the value")?;
        Ok(written(collection.put_with(key, value, &PutOptions::of(options)?)?, version))
    }
}

c_function! {
    /// Removes a record.
    fn stratakv_delete(collection: Option<&Collection>, key: Bytes<'_>, key_len: usize) {
        let (collection, key) = keyed(collection, key, key_len)?;
        Ok(found(collection.delete(key)?))
    }
}

/// `stratakv_replacement`.
#[repr(C)]
pub struct Replacement<'a> {
    value: Bytes<'a>,
    value_len: usize,
    expiry_ms: u64,
    flags: u32,
}

/// `stratakv_next`.
pub type Decide = extern "C" fn(context: *mut c_void, before: Option<&Record>, next: &mut Replacement<'_>) -> c_int;

fn decide(next: Decide, context: *mut c_void, before: Option<&stratakv::Record>) -> Result<Next, Failure> {
    let before = before.map(Record::new);
    let mut to = Replacement { value: Bytes::NULL, value_len: 0, expiry_ms: 0, flags: 0 };
    match next(context, before.as_ref(), &mut to) {
        0 => Ok(Next::Keep),
        1 => {
            let value = bytes::Bytes::copy_from_slice(to.value.take(to.value_len, "the new value")?);
            Ok(Next::Put { value, flags: to.flags, expiry: Expiry(to.expiry_ms) })
        }
        2 => Ok(Next::Delete),
        other => Err(Failure::usage(format!("{other} is no stratakv_action"))),
    }
}

c_function! {
    /// Changes a record in dependence on itself.
    fn stratakv_fetch_update(
        collection: Option<&Collection>,
        key: Bytes<'_>,
        key_len: usize,
        next: Option<Decide>,
        context: *mut c_void,
        version: Out<'_, u64>,
    ) {
        let (collection, key) = keyed(collection, key, key_len)?;
        let next = next.ok_or_else(|| Failure::usage("the function that decides is NULL"))?;
        let mut failure = None;
        let updated = collection.fetch_update(key, |before| {
            decide(next, context, before).unwrap_or_else(|why| {
                failure = Some(why);
                Next::Keep
            })
        })?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        arg::give(version, updated.version.unwrap_or(0));
        Ok(Status::Ok)
    }
}

c_function! {
    /// Adds to a counter.
    fn stratakv_increment(collection: Option<&Collection>, key: Bytes<'_>, key_len: usize, by: u64, sum: Out<'_, u64>) {
        let (collection, key) = keyed(collection, key, key_len)?;
        arg::give(sum, collection.increment(key, by)?);
        Ok(Status::Ok)
    }
}

c_function! {
    /// Subtracts from a counter.
    fn stratakv_decrement(collection: Option<&Collection>, key: Bytes<'_>, key_len: usize, by: u64, left: Out<'_, u64>) {
        let (collection, key) = keyed(collection, key, key_len)?;
        arg::give(left, collection.decrement(key, by)?);
        Ok(Status::Ok)
    }
}

c_function! {
    /// Adds behind a value.
    fn stratakv_append(
        collection: Option<&Collection>,
        key: Bytes<'_>,
        key_len: usize,
        value: Bytes<'_>,
        value_len: usize,
    ) {
        let value = value.take(value_len, "the value")?;
        let (collection, key) = keyed(collection, key, key_len)?;
        Ok(found(collection.append(key, value)?.is_some()))
    }
}

c_function! {
    /// Adds before a value.
    fn stratakv_prepend(
        collection: Option<&Collection>,
        key: Bytes<'_>,
        key_len: usize,
        value: Bytes<'_>,
        value_len: usize,
    ) {
        let value = value.take(value_len, "the value")?;
        let (collection, key) = keyed(collection, key, key_len)?;
        Ok(found(collection.prepend(key, value)?.is_some()))
    }
}

c_function! {
    /// Sets when a record expires.
    fn stratakv_expire(collection: Option<&Collection>, key: Bytes<'_>, key_len: usize, expiry_ms: u64) {
        let (collection, key) = keyed(collection, key, key_len)?;
        Ok(found(collection.expire(key, Expiry(expiry_ms))?))
    }
}

c_function! {
    /// How long a record lives on.
    fn stratakv_ttl(collection: Option<&Collection>, key: Bytes<'_>, key_len: usize, ttl_ms: Out<'_, u64>) {
        let (collection, key) = keyed(collection, key, key_len)?;
        let ttl = collection.ttl(key)?;
        arg::wanted(ttl_ms, "time to live")?.write(match ttl {
            Ttl::Absent => 0,
            Ttl::Unlimited => u64::MAX,
            Ttl::Left(left) => u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        });
        Ok(found(ttl != Ttl::Absent))
    }
}

c_function! {
    /// Removes the keys of a range.
    fn stratakv_delete_range(
        collection: Option<&Collection>,
        from: Bytes<'_>,
        from_len: usize,
        to: Bytes<'_>,
        to_len: usize,
        count: Out<'_, u64>,
    ) {
        let collection = &arg::handle(collection, "collection")?.records;
        let from = from.take_some(from_len, "the lower bound")?.map_or(Bound::Unbounded, Bound::Included);
        let to = to.take_some(to_len, "the upper bound")?.map_or(Bound::Unbounded, Bound::Excluded);
        arg::give(count, collection.delete_range::<&[u8]>((from, to))?);
        Ok(Status::Ok)
    }
}

c_function! {
    /// Removes the keys that begin with a prefix.
    fn stratakv_delete_prefix(collection: Option<&Collection>, prefix: Bytes<'_>, prefix_len: usize, count: Out<'_, u64>) {
        let (collection, prefix) = keyed(collection, prefix, prefix_len)?;
        arg::give(count, collection.delete_prefix(prefix)?);
        Ok(Status::Ok)
    }
}

c_function! {
    /// How many records there are.
    fn stratakv_count(collection: Option<&Collection>, count: Out<'_, u64>) {
        let count = arg::wanted(count, "count")?;
        count.write(arg::handle(collection, "collection")?.records.len()?);
        Ok(Status::Ok)
    }
}
