//! Hashes.

use std::borrow::Cow;

use stratakv_base::Expiry;
use stratakv_protocol::resp::number::{self, SumError};
use stratakv_protocol::resp::{Version, encode};
use stratakv_structures::Kind;

use super::super::arguments::{RequestRefusal, SYNTAX};
use super::super::edit::{NOT_A_FLOAT, NOT_FINITE, OVERFLOW};
use super::super::forms::{ElementBytes, HashForm};
use super::super::records::{Call, Records, StoredRecord, check_reply, refused_by_damage, stored};
use super::lots;
use super::scanning::{self, ElementScan};

type Done = Result<(), RequestRefusal>;

fn record(call: &Call<'_>, records: &dyn Records) -> Result<Option<StoredRecord>, RequestRefusal> {
    stored(records, call.a.get(1), Kind::Hash)
}

/// The value of the field that the third argument names.
fn lookup<'a>(
    call: &Call<'_>,
    records: &dyn Records,
    record: Option<&'a StoredRecord>,
) -> Result<Option<ElementBytes<'a>>, RequestRefusal> {
    HashForm::lookup((records, call.a.get(1)), record, call.a.get(2))
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
    let mut hash = HashForm::of(old.as_ref())?;
    let pairs: Vec<_> = (2..call.a.len()).step_by(2).map(|at| (call.a.get(at), call.a.get(at + 1))).collect();
    let added = hash.insert_all((records, call.a.get(1)), &pairs)?;
    hash.store(call, (records, call.a.get(1)), expiry(old.as_ref()))?;
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
    let is_there = lookup(call, records, old.as_ref())?.is_some();
    if !is_there {
        set(call, records, "hsetnx")?;
    }
    encode::integer(out, i64::from(!is_there));
    Ok(())
}

pub(crate) fn hget(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(call, records)?;
    match lookup(call, records, old.as_ref())? {
        Some(value) => encode::bulk(out, &value),
        None => encode::null(out, call.version),
    }
    Ok(())
}

pub(crate) fn hmget(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(call, records)?;
    let hash = HashForm::of(old.as_ref())?;
    let fields: Vec<&[u8]> = call.a.from(2).collect();
    let began = out.len();
    encode::array(out, fields.len());
    for value in hash.values((records, call.a.get(1)), &fields)? {
        match value {
            Some(value) => encode::bulk(out, &value),
            None => encode::null(out, call.version),
        }
        check_reply(call, records, (out.as_slice(), began))?;
    }
    Ok(())
}

pub(crate) fn hdel(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(call, records)?;
    let mut hash = HashForm::of(old.as_ref())?;
    let fields: Vec<&[u8]> = call.a.from(2).collect();
    let removed = hash.remove_all((records, call.a.get(1)), &fields)?;
    if removed > 0 {
        hash.store(call, (records, call.a.get(1)), expiry(old.as_ref()))?;
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
    encode::integer(out, i64::from(lookup(call, records, old.as_ref())?.is_some()));
    Ok(())
}

pub(crate) fn hstrlen(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(call, records)?;
    encode::integer(out, lookup(call, records, old.as_ref())?.map_or(0, |value| value.len()) as i64);
    Ok(())
}

pub(crate) fn hkeys(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(call, records)?;
    let entries = HashForm::of(old.as_ref())?.entries((records, call.a.get(1)))?;
    encode::array(out, entries.len());
    entries.iter().for_each(|(field, _)| encode::bulk(out, field));
    Ok(())
}

pub(crate) fn hvals(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(call, records)?;
    let entries = HashForm::of(old.as_ref())?.entries((records, call.a.get(1)))?;
    encode::array(out, entries.len());
    entries.iter().for_each(|(_, value)| encode::bulk(out, value));
    Ok(())
}

pub(crate) fn hgetall(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(call, records)?;
    let entries = HashForm::of(old.as_ref())?.entries((records, call.a.get(1)))?;
    encode::map(out, entries.len(), call.version);
    for (field, value) in &entries {
        encode::bulk(out, field);
        encode::bulk(out, value);
    }
    Ok(())
}

pub(crate) fn hincrby(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let delta = call.a.integer(3)?;
    let old = record(call, records)?;
    let number = match lookup(call, records, old.as_ref())? {
        Some(value) => number::integer(&value).ok_or(Cow::Borrowed("ERR hash value is not an integer"))?,
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
    let value = lookup(call, records, old.as_ref())?.unwrap_or(ElementBytes::Borrowed(b"0"));
    let sum = number::sum(&value, delta).map_err(|error| match error {
        SumError::NotANumber => Cow::Borrowed("ERR hash value is not a float"),
        SumError::Infinite => Cow::Borrowed(NOT_FINITE),
    })?;
    set_one(call, records, old.as_ref(), sum.as_bytes())?;
    encode::bulk(out, sum.as_bytes());
    Ok(())
}

/// Gives the field that a command names this value.
fn set_one(call: &Call<'_>, records: &mut dyn Records, old: Option<&StoredRecord>, value: &[u8]) -> Done {
    let mut hash = HashForm::of(old)?;
    hash.insert_all((records, call.a.get(1)), &[(call.a.get(2), value)])?;
    hash.store(call, (records, call.a.get(1)), expiry(old))
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
    let (hash, at) = (HashForm::of(old.as_ref())?, (&*records, call.a.get(1)));
    let Some(count) = count else {
        let place = lots::any(hash.len(), call.seed);
        match hash.at_places(at, place.as_slice())?.in_order().first() {
            Some((field, _)) => encode::bulk(out, field),
            None => encode::null(out, call.version),
        }
        return Ok(());
    };
    let places = lots::places(call, at.0, (hash.len(), count))?;
    let began = out.len();
    let is_flat = call.version == Version::Resp2;
    encode::array(out, if with_values && is_flat { places.len() * 2 } else { places.len() });
    for (field, value) in hash.at_places(at, &places)?.in_order() {
        if with_values && !is_flat {
            encode::array(out, 2);
        }
        encode::bulk(out, field);
        if with_values {
            encode::bulk(out, value);
        }
        check_reply(call, at.0, (out.as_slice(), began))?;
    }
    Ok(())
}

pub(crate) fn hscan(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let mut old = None;
    let scan = ElementScan::read(call, || {
        old = record(call, records)?;
        Ok(old.is_some())
    })?;
    let (mut entries, next) = HashForm::of(old.as_ref())?.scan((records, call.a.get(1)), scan.page)?;
    entries.retain(|(field, _)| scan.matches(field));
    scanning::begin(out, (next, entries.len() * 2));
    for (field, value) in &entries {
        encode::bulk(out, field);
        encode::bulk(out, value);
    }
    Ok(())
}
