//! Lists: commands of several keys.

use std::borrow::Cow;

use stratakv_protocol::resp::encode;

use super::super::arguments::{Arguments, RequestRefusal, SYNTAX};
use super::super::records::{Call, Records};
use super::counts;
use super::lists::{ListEnd, parsed, record, store_list, take, write_all};

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
    let mut list = parsed(Some(&old))?;
    let other_old = if source == destination { None } else { record(records, destination)? };
    let element = from.pop(&mut list).unwrap_or_default();
    if source == destination {
        to.push(&mut list, element);
    } else {
        let mut other = parsed(other_old.as_ref())?;
        to.push(&mut other, element);
        store_list(call, records, destination, (&other, other_old.as_ref()))?;
    }
    store_list(call, records, source, (&list, Some(&old)))?;
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
                write_all(taken.iter(), out);
            });
        }
    }
    encode::null_array(out, call.version);
    Ok(())
}
