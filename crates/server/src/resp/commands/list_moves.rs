//! Lists: commands of several keys.

use std::borrow::Cow;

use stratakv_protocol::resp::encode;

use super::super::arguments::{Arguments, RequestRefusal, SYNTAX};
use super::super::forms::{ListEnd, ListForm};
use super::super::records::{Call, Records};
use super::counts;
use super::lists::{expiry, record, take, write_all};

type Done = Result<(), RequestRefusal>;

/// The end that an argument names.
pub(super) fn end_at(a: Arguments<'_>, at: usize) -> Result<ListEnd, RequestRefusal> {
    match () {
        () if a.is(at, "LEFT") => Ok(ListEnd::Left),
        () if a.is(at, "RIGHT") => Ok(ListEnd::Right),
        () => Err(Cow::Borrowed(SYNTAX)),
    }
}

/// Takes an element off one list, and puts it into another one, or the same.
pub(super) fn move_element(
    call: &Call<'_>,
    records: &mut dyn Records,
    (from, to): (ListEnd, ListEnd),
    out: &mut Vec<u8>,
) -> Done {
    let (source, destination) = (call.a.get(1), call.a.get(2));
    let Some(old) = record(records, source)? else {
        encode::null(out, call.version);
        return Ok(());
    };
    let mut list = ListForm::of(Some(&old))?;
    let other_old = if source == destination { None } else { record(records, destination)? };
    let taken = list.take((records, source), (from, 1))?;
    let element = taken.first().map_or(&b""[..], |element| element);
    if source == destination {
        list.push_all((records, source), to, [element].into_iter())?;
    } else {
        let mut other = ListForm::of(other_old.as_ref())?;
        other.push_all((records, destination), to, [element].into_iter())?;
        other.store(call, (records, destination), expiry(other_old.as_ref()))?;
    }
    list.store(call, (records, source), old.expiry)?;
    encode::bulk(out, element);
    Ok(())
}

pub(crate) fn lmove(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let ends = (end_at(call.a, 3)?, end_at(call.a, 4)?);
    move_element(call, records, ends, out)
}

pub(crate) fn rpoplpush(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    move_element(call, records, (ListEnd::Right, ListEnd::Left), out)
}

pub(crate) fn lmpop(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let keys = counts::numbered_keys(call, 1, SYNTAX)?;
    let end = end_at(call.a, keys.end)?;
    let count = match call.a.len() - keys.end {
        1 => 1,
        3 if call.a.is(keys.end + 1, "COUNT") => {
            counts::from_one(call.a.get(keys.end + 2), "ERR count should be greater than 0")?
        }
        _ => return Err(Cow::Borrowed(SYNTAX)),
    };
    for at in keys {
        let key = call.a.get(at);
        if let Some(old) = record(records, key)? {
            return take(call, records, (key, &old), (end, count), |taken| {
                encode::array(out, 2);
                encode::bulk(out, key);
                write_all(taken, out);
            });
        }
    }
    encode::null_array(out, call.version);
    Ok(())
}
