//! Strings. Those that change a string in dependence on itself are the [`Edit`]s that its owner
//! carries out; here they are carried out in memory.

use std::borrow::Cow;

use stratakv_base::Expiry;
use stratakv_protocol::resp::{encode, number};
use stratakv_structures::Kind;

use super::super::arguments::{Arguments, RequestRefusal};
use super::super::edit::{Edit, EditRule, NOT_A_FLOAT};
use super::super::records::{Call, Records, StoredRecord, check_reply, string};
use super::options::{Options, OptionsOf, positive_expiry};

type Done = Result<(), RequestRefusal>;

/// Carries an edit out on the record of the command's first key.
pub(super) fn edited(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>, edit: Edit) -> Done {
    EditRule::new(edit, call.value_bytes_max).carry_out(call.a.get(1), call.version, records, out)
}

/// What SETRANGE does.
pub(crate) fn set_range(a: &Arguments<'_>) -> Result<Edit, RequestRefusal> {
    let offset = usize::try_from(a.integer(2)?).map_err(|_| Cow::Borrowed("ERR offset is out of range"))?;
    Ok(Edit::SetRange { offset, value: a.bytes(3) })
}

/// What INCR and its kin do.
pub(crate) fn addition(a: &Arguments<'_>) -> Result<Edit, RequestRefusal> {
    Ok(Edit::Add(match () {
        () if a.is(0, "INCR") => 1,
        () if a.is(0, "DECR") => -1,
        () if a.is(0, "INCRBY") => a.integer(2)?,
        () if a.is(0, "DECRBY") => a.integer(2)?.checked_neg().ok_or(Cow::Borrowed("ERR decrement would overflow"))?,
        () if number::is_float(a.get(2)) => return Ok(Edit::AddFloat(a.bytes(2))),
        () => return Err(Cow::Borrowed(NOT_A_FLOAT)),
    }))
}

/// A value, or null.
fn say(call: &Call<'_>, record: Option<&StoredRecord>, out: &mut Vec<u8>) {
    match record {
        Some(record) => encode::bulk(out, &record.value),
        None => encode::null(out, call.version),
    }
}

/// Gives the command's first key a value.
fn put(call: &Call<'_>, records: &mut dyn Records, at: usize, expiry: Expiry) {
    records.put(call.a.get(1), StoredRecord { value: call.a.bytes(at), flags: 0, expiry });
}

pub(crate) fn get(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let record = string(records, call.a.get(1))?;
    say(call, record.as_ref(), out);
    Ok(())
}

pub(crate) fn set(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let options = Options::read(&call.a, 3, OptionsOf::Set, call.wall)?;
    let key = call.a.get(1);
    let old = if options.wants_old { string(records, key)? } else { records.head(key) };
    let holds = (!options.only_if_absent || old.is_none()) && (!options.only_if_present || old.is_some());
    if holds {
        // What is made new has no expiry to keep.
        let kept = old.as_ref().filter(|_| options.keeps_expiry).map(|old| old.expiry);
        put(call, records, 2, kept.or(options.expiry).unwrap_or(Expiry::NEVER));
    }
    match (options.wants_old, holds) {
        (true, _) => say(call, old.as_ref(), out),
        (false, true) => encode::simple(out, "OK"),
        (false, false) => encode::null(out, call.version),
    }
    Ok(())
}

pub(crate) fn setnx(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let is_free = records.head(call.a.get(1)).is_none();
    if is_free {
        put(call, records, 2, Expiry::NEVER);
    }
    encode::integer(out, i64::from(is_free));
    Ok(())
}

pub(crate) fn setex(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    put_until(call, records, out, (true, "setex"))
}

pub(crate) fn psetex(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    put_until(call, records, out, (false, "psetex"))
}

fn put_until(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>, (in_seconds, name): (bool, &str)) -> Done {
    let expiry = positive_expiry(call.a.integer(2)?, in_seconds, false, call.wall, name)?;
    put(call, records, 3, expiry);
    encode::simple(out, "OK");
    Ok(())
}

pub(crate) fn getset(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let (value, expiry) = (call.a.bytes(2), Some(Expiry::NEVER));
    edited(call, records, out, Edit::Replace { value, expiry, wants_old: true, only_if_present: false })
}

pub(crate) fn getdel(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    edited(call, records, out, Edit::Remove)
}

pub(crate) fn getex(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let options = Options::read(&call.a, 2, OptionsOf::Getex, call.wall)?;
    match if options.persists { Some(Expiry::NEVER) } else { options.expiry } {
        Some(expiry) => edited(call, records, out, Edit::GetExpire(expiry)),
        None => get(call, records, out),
    }
}

pub(crate) fn append(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    edited(call, records, out, Edit::Append(call.a.bytes(2)))
}

pub(crate) fn setrange(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    edited(call, records, out, set_range(&call.a)?)
}

pub(crate) fn add(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    edited(call, records, out, addition(&call.a)?)
}

pub(crate) fn strlen(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let record = string(records, call.a.get(1))?;
    encode::integer(out, record.map_or(0, |record| record.value.len() as i64));
    Ok(())
}

pub(crate) fn getrange(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let (first, last) = (call.a.integer(2)?, call.a.integer(3)?);
    let record = string(records, call.a.get(1))?;
    let value = record.as_ref().map_or(&b""[..], |record| &record.value);
    encode::bulk(out, part(value, first, last));
    Ok(())
}

/// A part of a value, from a byte to another one, below zero counted from its end.
fn part(value: &[u8], first: i64, last: i64) -> &[u8] {
    let length = i64::try_from(value.len()).unwrap_or(i64::MAX);
    let from_front = |place: i64| if place < 0 { place.saturating_add(length).max(0) } else { place };
    if first < 0 && last < first {
        return b"";
    }
    let (first, last) = (from_front(first), from_front(last).min(length - 1));
    let (first, behind) = (usize::try_from(first).ok(), usize::try_from(last.saturating_add(1)).ok());
    first.zip(behind).and_then(|(first, behind)| value.get(first..behind)).unwrap_or_default()
}

pub(crate) fn mget(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let began = out.len();
    encode::array(out, call.a.len() - 1);
    for key in call.a.from(1) {
        // One key may come often.
        check_reply(call, records, (out.as_slice(), began))?;
        // Of another type it is none.
        let record = records.get(key)?.filter(|record| record.kind() == Kind::String);
        say(call, record.as_ref(), out);
    }
    Ok(())
}

pub(crate) fn mset(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    put_pairs(call, records, "mset")?;
    encode::simple(out, "OK");
    Ok(())
}

pub(crate) fn msetnx(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let is_free = (1..call.a.len()).step_by(2).all(|at| records.head(call.a.get(at)).is_none());
    if is_free || call.a.len().is_multiple_of(2) {
        put_pairs(call, records, "msetnx")?;
    }
    encode::integer(out, i64::from(is_free));
    Ok(())
}

fn put_pairs(call: &Call<'_>, records: &mut dyn Records, name: &str) -> Done {
    if call.a.len().is_multiple_of(2) {
        return Err(Cow::Owned(format!("ERR wrong number of arguments for '{name}' command")));
    }
    for at in (1..call.a.len()).step_by(2) {
        let record = StoredRecord { value: call.a.bytes(at + 1), flags: 0, expiry: Expiry::NEVER };
        records.put(call.a.get(at), record);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_from_either_end() {
        for (first, last, expected) in [
            (0, 4, "Hello"),
            (-5, -1, "World"),
            (6, 100, "World"),
            (5, 2, ""),
            (-1, -5, ""),
            (0, -50, "H"),
            (-50, -40, "H"),
            (3, -50, ""),
            (11, 20, ""),
            (0, i64::MAX, "Hello World"),
            (i64::MIN, -1, "Hello World"),
            (i64::MAX, i64::MAX, ""),
        ] {
            assert_eq!(part(b"Hello World", first, last), expected.as_bytes(), "{first} {last}");
        }
        assert_eq!(part(b"", 0, -1), b"");
        assert_eq!(part(b"", 0, 0), b"");
    }
}
