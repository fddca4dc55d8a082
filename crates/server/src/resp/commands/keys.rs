//! Commands of keys, whatever their type.

use std::borrow::Cow;

use stratakv_protocol::resp::encode;

use super::super::arguments::{RequestRefusal, SYNTAX};
use super::super::records::{Call, Records, StoredRecord};

type Done = Result<(), RequestRefusal>;

fn renamed(call: &Call<'_>, records: &dyn Records) -> Result<StoredRecord, RequestRefusal> {
    records.get(call.a.get(1))?.ok_or(Cow::Borrowed("ERR no such key"))
}

fn rename_to(call: &Call<'_>, records: &mut dyn Records, record: StoredRecord) {
    if call.a.get(1) != call.a.get(2) {
        records.delete(call.a.get(1));
        records.put(call.a.get(2), record);
    }
}

pub(crate) fn rename(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let record = renamed(call, records)?;
    rename_to(call, records, record);
    encode::simple(out, "OK");
    Ok(())
}

pub(crate) fn renamenx(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let record = renamed(call, records)?;
    let is_free = records.head(call.a.get(2)).is_none();
    if is_free {
        rename_to(call, records, record);
    }
    encode::integer(out, i64::from(is_free));
    Ok(())
}

pub(crate) fn copy(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let (from, to) = (call.a.get(1), call.a.get(2));
    let (mut replaces, mut at) = (false, 3);
    while at < call.a.len() {
        match () {
            () if call.a.is(at, "REPLACE") => replaces = true,
            () if call.a.is(at, "DB") && at + 1 < call.a.len() => {
                at += 1;
                if call.a.integer(at)? != 0 {
                    return Err(Cow::Borrowed("ERR DB index is out of range"));
                }
            }
            () => return Err(Cow::Borrowed(SYNTAX)),
        }
        at += 1;
    }
    if from == to {
        return Err(Cow::Borrowed("ERR source and destination objects are the same"));
    }
    let is_free = replaces || records.head(to).is_none();
    let copied = if is_free { records.get(from)? } else { None };
    encode::integer(out, i64::from(copied.is_some()));
    if let Some(record) = copied {
        records.put(to, record);
    }
    Ok(())
}
