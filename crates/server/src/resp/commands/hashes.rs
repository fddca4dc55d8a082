//! Hashes.

use std::borrow::Cow;

use stratakv_base::Expiry;
use stratakv_protocol::resp::number::{self, SumError};
use stratakv_protocol::resp::{Version, encode, glob};
use stratakv_structures::{Hash, Kind};

use super::super::arguments::{RequestRefusal, SYNTAX};
use super::super::edit::{NOT_A_FLOAT, NOT_FINITE, OVERFLOW};
use super::super::records::{Call, Records, StoredRecord, check_reply, refused_by_damage, store, structure};
use super::{lots, scanning};

type Done = Result<(), RequestRefusal>;

fn record(call: &Call<'_>, records: &dyn Records) -> Result<Option<StoredRecord>, RequestRefusal> {
    structure(records, call.a.get(1), Kind::Hash)
}

fn parsed(record: Option<&StoredRecord>) -> Result<Hash<'_>, RequestRefusal> {
    match record {
        Some(record) => Hash::parse(&record.value).map_err(refused_by_damage),
        None => Ok(Hash::default()),
    }
}

/// The value of one field.
fn lookup<'a>(record: Option<&'a StoredRecord>, field: &[u8]) -> Result<Option<&'a [u8]>, RequestRefusal> {
    match record {
        Some(record) => Hash::lookup(&record.value, field).map_err(refused_by_damage),
        None => Ok(None),
    }
}

/// When a hash expires that a command changes: as before.
fn expiry(record: Option<&StoredRecord>) -> Expiry {
    record.map_or(Expiry::NEVER, |record| record.expiry)
}

fn wrong_count(name: &str) -> RequestRefusal {
    Cow::Owned(format!("ERR wrong number of arguments for '{name}' command"))
}

/// Gives fields their values; how many are new.
fn set(call: &Call<'_>, records: &mut dyn Records, name: &str) -> Result<usize, RequestRefusal> {
    if !call.a.len().is_multiple_of(2) {
        return Err(wrong_count(name));
    }
    let old = record(call, records)?;
    let mut hash = parsed(old.as_ref())?;
    let pairs = (2..call.a.len()).step_by(2).map(|at| (call.a.get(at), call.a.get(at + 1)));
    let added = match call.a.len() {
        4 => usize::from(hash.insert(call.a.get(2), call.a.get(3))),
        _ => hash.insert_all(pairs),
    };
    store(call, records, call.a.get(1), (hash.encode(call.value_bytes_max), expiry(old.as_ref())))?;
    Ok(added)
}

pub(crate) fn hset(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let added = set(call, records, "hset")?;
    encode::integer(out, added as i64);
    Ok(())
}

pub(crate) fn hmset(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    set(call, records, "hmset")?;
    encode::simple(out, "OK");
    Ok(())
}

pub(crate) fn hsetnx(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(call, records)?;
    let is_there = lookup(old.as_ref(), call.a.get(2))?.is_some();
    if !is_there {
        set(call, records, "hsetnx")?;
    }
    encode::integer(out, i64::from(!is_there));
    Ok(())
}

pub(crate) fn hget(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(call, records)?;
    match lookup(old.as_ref(), call.a.get(2))? {
        Some(value) => encode::bulk(out, value),
        None => encode::null(out, call.version),
    }
    Ok(())
}

pub(crate) fn hmget(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(call, records)?;
    let hash = parsed(old.as_ref())?;
    let began = out.len();
    encode::array(out, call.a.len() - 2);
    for field in call.a.from(2) {
        match hash.get(field) {
            Some(value) => encode::bulk(out, value),
            None => encode::null(out, call.version),
        }
        check_reply(call, out, began)?;
    }
    Ok(())
}

pub(crate) fn hdel(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(call, records)?;
    let mut hash = parsed(old.as_ref())?;
    let removed = hash.remove_all(call.a.from(2));
    if removed > 0 {
        store(call, records, call.a.get(1), (hash.encode(call.value_bytes_max), expiry(old.as_ref())))?;
    }
    encode::integer(out, removed as i64);
    Ok(())
}

pub(crate) fn hlen(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let fields = match record(call, records)? {
        Some(record) => stratakv_structures::len(&record.value).map_err(refused_by_damage)?,
        None => 0,
    };
    encode::integer(out, fields as i64);
    Ok(())
}

pub(crate) fn hexists(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(call, records)?;
    encode::integer(out, i64::from(lookup(old.as_ref(), call.a.get(2))?.is_some()));
    Ok(())
}

pub(crate) fn hstrlen(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(call, records)?;
    encode::integer(out, lookup(old.as_ref(), call.a.get(2))?.map_or(0, <[u8]>::len) as i64);
    Ok(())
}

pub(crate) fn hkeys(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(call, records)?;
    let hash = parsed(old.as_ref())?;
    encode::array(out, hash.len());
    hash.iter().for_each(|(field, _)| encode::bulk(out, field));
    Ok(())
}

pub(crate) fn hvals(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(call, records)?;
    let hash = parsed(old.as_ref())?;
    encode::array(out, hash.len());
    hash.iter().for_each(|(_, value)| encode::bulk(out, value));
    Ok(())
}

pub(crate) fn hgetall(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(call, records)?;
    let hash = parsed(old.as_ref())?;
    encode::map(out, hash.len(), call.version);
    for (field, value) in hash.iter() {
        encode::bulk(out, field);
        encode::bulk(out, value);
    }
    Ok(())
}

pub(crate) fn hincrby(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let delta = call.a.integer(3)?;
    let old = record(call, records)?;
    let number = match lookup(old.as_ref(), call.a.get(2))? {
        Some(value) => number::integer(value).ok_or(Cow::Borrowed("ERR hash value is not an integer"))?,
        None => 0,
    };
    let sum = number.checked_add(delta).ok_or(Cow::Borrowed(OVERFLOW))?;
    set_one(call, records, old.as_ref(), sum.to_string().as_bytes())?;
    encode::integer(out, sum);
    Ok(())
}

pub(crate) fn hincrbyfloat(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let delta = call.a.get(3);
    if !number::is_float(delta) {
        return Err(Cow::Borrowed(NOT_A_FLOAT));
    }
    let old = record(call, records)?;
    let value = lookup(old.as_ref(), call.a.get(2))?.unwrap_or(b"0");
    let sum = number::sum(value, delta).map_err(|error| match error {
        SumError::NotANumber => Cow::Borrowed("ERR hash value is not a float"),
        SumError::Infinite => Cow::Borrowed(NOT_FINITE),
    })?;
    set_one(call, records, old.as_ref(), sum.as_bytes())?;
    encode::bulk(out, sum.as_bytes());
    Ok(())
}

/// Gives the field that a command names this value.
fn set_one(call: &Call<'_>, records: &mut dyn Records, old: Option<&StoredRecord>, value: &[u8]) -> Done {
    let mut hash = parsed(old)?;
    hash.insert(call.a.get(2), value);
    store(call, records, call.a.get(1), (hash.encode(call.value_bytes_max), expiry(old)))
}

pub(crate) fn hrandfield(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let count = match call.a.len() {
        2 => None,
        _ => Some(lots::count(call.a.get(2))?),
    };
    let with_values = match call.a.len() {
        2 | 3 => false,
        4 if call.a.is(3, "WITHVALUES") => true,
        _ => return Err(Cow::Borrowed(SYNTAX)),
    };
    if with_values && count.is_some_and(|count| count.unsigned_abs() > i64::MAX as u64 / 2) {
        return Err(Cow::Borrowed("ERR value is out of range"));
    }
    let old = record(call, records)?;
    let hash = parsed(old.as_ref())?;
    let Some(count) = count else {
        match lots::any(hash.len(), call.seed).and_then(|place| hash.get_at(place)) {
            Some((field, _)) => encode::bulk(out, field),
            None => encode::null(out, call.version),
        }
        return Ok(());
    };
    let places = lots::places(call, hash.len(), count)?;
    let began = out.len();
    let is_flat = call.version == Version::Resp2;
    encode::array(out, if with_values && is_flat { places.len() * 2 } else { places.len() });
    for place in places {
        let (field, value) = hash.get_at(place).unwrap_or_default();
        if with_values && !is_flat {
            encode::array(out, 2);
        }
        encode::bulk(out, field);
        if with_values {
            encode::bulk(out, value);
        }
        check_reply(call, out, began)?;
    }
    Ok(())
}

/// All fields at once, whatever their number: the record was read as a whole.
pub(crate) fn hscan(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    scanning::check_cursor(call.a.get(2))?;
    let old = record(call, records)?;
    let pattern = match &old {
        Some(_) => scanning::pattern(call, 3)?,
        // As Redis, which looks for the key first.
        None => None,
    };
    let hash = parsed(old.as_ref())?;
    let found = || hash.iter().filter(|(field, _)| pattern.is_none_or(|pattern| glob::matches(pattern, field)));
    scanning::begin(out, found().count() * 2);
    for (field, value) in found() {
        encode::bulk(out, field);
        encode::bulk(out, value);
    }
    Ok(())
}
