//! Commands of keys, whatever their type.

use std::borrow::Cow;

use stratakv_protocol::resp::encode;
use stratakv_structures::{Kind, STRUCTURE_FLAGS};

use super::super::arguments::{RequestRefusal, SYNTAX};
use super::super::edit::Edit;
use super::super::nodes::{KeyNodesRead, NAME_BYTES, put_packed, refused, tree_of, whole};
use super::super::records::{Call, Records, StoredRecord};
use super::super::reply::ttl as time_to_live;
use super::options;
use super::strings::edited;

type Done = Result<(), RequestRefusal>;

/// DEL and UNLINK.
pub(crate) fn del(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let mut deleted = 0;
    for key in call.a.from(1) {
        deleted += i64::from(records.head(key).is_some());
        records.delete(key);
    }
    encode::integer(out, deleted);
    Ok(())
}

/// EXISTS and TOUCH.
pub(crate) fn exists(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let present = call.a.from(1).filter(|key| records.head(key).is_some()).count();
    encode::integer(out, present as i64);
    Ok(())
}

/// TYPE.
pub(crate) fn kind(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let record = records.head(call.a.get(1));
    encode::simple(out, record.map_or("none", |record| record.kind().name()));
    Ok(())
}

/// MEMORY USAGE of a long structure: its root, and about as much as its nodes and their keys have.
pub(crate) fn memory_usage(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let key = call.a.get(2);
    let Some(record) = records.get(key)? else {
        encode::null(out, call.version);
        return Ok(());
    };
    let mut bytes = (record.value.len() + key.len()) as u64;
    if let (true, Some(root)) = (record.flags == STRUCTURE_FLAGS, tree_of(&record)?) {
        let about = root.estimate(&KeyNodesRead { records, key, id: root.id() });
        let about = about.map_err(|error| refused(error, root.kind()))?;
        let keys_bytes = about.nodes.saturating_mul((key.len() + NAME_BYTES) as u64);
        bytes = bytes.saturating_add(about.node_bytes).saturating_add(keys_bytes);
    }
    encode::integer(out, i64::try_from(bytes).unwrap_or(i64::MAX));
    Ok(())
}

/// EXPIRE and its kin.
pub(crate) fn expire(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let (expiry, only_if) = options::expiry_said(&call.a, call.wall)?;
    edited(call, records, out, Edit::Expire { expiry, only_if })
}

pub(crate) fn persist(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    edited(call, records, out, Edit::Persist)
}

/// TTL and its kin.
pub(crate) fn ttl(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let (in_seconds, is_absolute) = options::ttl_said(&call.a);
    let record = records.head(call.a.get(1));
    let told = record.map_or(-2, |record| time_to_live(record.expiry, in_seconds, is_absolute, call.wall));
    encode::integer(out, told);
    Ok(())
}

pub(crate) fn ping(call: &Call<'_>, _: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    match call.a.len() {
        1 => encode::simple(out, "PONG"),
        2 => encode::bulk(out, call.a.get(1)),
        _ => return Err(Cow::Borrowed("ERR wrong number of arguments for 'ping' command")),
    }
    Ok(())
}

pub(crate) fn echo(call: &Call<'_>, _: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    encode::bulk(out, call.a.get(1));
    Ok(())
}

pub(crate) fn time(call: &Call<'_>, _: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let millis = call.wall.0;
    encode::array(out, 2);
    encode::bulk(out, (millis / 1000).to_string().as_bytes());
    encode::bulk(out, (millis % 1000 * 1000).to_string().as_bytes());
    Ok(())
}

/// UNWATCH in a transaction, which watches nothing once it runs.
pub(crate) fn unwatch(_: &Call<'_>, _: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    encode::simple(out, "OK");
    Ok(())
}

fn renamed(call: &Call<'_>, records: &dyn Records) -> Result<StoredRecord, RequestRefusal> {
    records.get(call.a.get(1))?.ok_or(Cow::Borrowed("ERR no such key"))
}

/// Puts what was read of the first key under the second one. The nodes of a tree carry their key,
/// so they are written anew.
fn put_at_second(call: &Call<'_>, records: &mut dyn Records, record: StoredRecord) -> Done {
    match record.kind() {
        Kind::String => records.put(call.a.get(2), record),
        _ => {
            let record = whole(records, call.a.get(1), record)?;
            put_packed(call, records, call.a.get(2), record)?;
        }
    }
    Ok(())
}

fn rename_to(call: &Call<'_>, records: &mut dyn Records, record: StoredRecord) -> Done {
    if call.a.get(1) != call.a.get(2) {
        put_at_second(call, records, record)?;
        records.delete(call.a.get(1));
    }
    Ok(())
}

pub(crate) fn rename(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let record = renamed(call, records)?;
    rename_to(call, records, record)?;
    encode::simple(out, "OK");
    Ok(())
}

pub(crate) fn renamenx(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let record = renamed(call, records)?;
    let is_free = records.head(call.a.get(2)).is_none();
    if is_free {
        rename_to(call, records, record)?;
    }
    encode::integer(out, i64::from(is_free));
    Ok(())
}

/// MOVE: there is one database, where the key is already.
pub(crate) fn move_key(call: &Call<'_>, _: &mut dyn Records, _: &mut Vec<u8>) -> Done {
    Err(Cow::Borrowed(match call.a.integer(2)? {
        0 => "ERR source and destination objects are the same",
        _ => "ERR DB index is out of range",
    }))
}

/// SWAPDB: there is one database.
pub(crate) fn swapdb(call: &Call<'_>, _: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let first = call.a.integer(1).map_err(|_| Cow::Borrowed("ERR invalid first DB index"))?;
    let second = call.a.integer(2).map_err(|_| Cow::Borrowed("ERR invalid second DB index"))?;
    match (first, second) {
        (0, 0) => encode::simple(out, "OK"),
        _ => return Err(Cow::Borrowed("ERR DB index is out of range")),
    }
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
        put_at_second(call, records, record)?;
    }
    Ok(())
}
