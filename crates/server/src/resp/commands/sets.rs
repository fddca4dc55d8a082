//! Sets.

use std::borrow::Cow;

use stratakv_base::Expiry;
use stratakv_protocol::resp::{encode, glob};
use stratakv_structures::{Kind, Set};

use super::super::arguments::{RequestRefusal, SYNTAX};
use super::super::records::{
    Call, Records, StoredRecord, check_reply, refused_by_damage, reply_too_long, store, structure,
};
use super::{counts, lots, scanning};

type Done = Result<(), RequestRefusal>;

pub(super) fn record(records: &dyn Records, key: &[u8]) -> Result<Option<StoredRecord>, RequestRefusal> {
    structure(records, key, Kind::Set)
}

pub(super) fn parsed(record: Option<&StoredRecord>) -> Result<Set<'_>, RequestRefusal> {
    match record {
        Some(record) => Set::parse(&record.value).map_err(refused_by_damage),
        None => Ok(Set::default()),
    }
}

/// Stores what a set has become that expires as before.
pub(super) fn store_set(
    call: &Call<'_>,
    records: &mut dyn Records,
    key: &[u8],
    (set, old): (&Set<'_>, Option<&StoredRecord>),
) -> Done {
    let expiry = old.map_or(Expiry::NEVER, |old| old.expiry);
    store(call, records, key, (set.encode(call.value_bytes_max), expiry))
}

pub(crate) fn sadd(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(records, call.a.get(1))?;
    let mut set = parsed(old.as_ref())?;
    let added = set.insert_all(call.a.from(2));
    if added > 0 {
        store_set(call, records, call.a.get(1), (&set, old.as_ref()))?;
    }
    encode::integer(out, added as i64);
    Ok(())
}

pub(crate) fn srem(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(records, call.a.get(1))?;
    let mut set = parsed(old.as_ref())?;
    let removed = set.remove_all(call.a.from(2));
    if removed > 0 {
        store_set(call, records, call.a.get(1), (&set, old.as_ref()))?;
    }
    encode::integer(out, removed as i64);
    Ok(())
}

pub(crate) fn scard(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let members = match record(records, call.a.get(1))? {
        Some(record) => stratakv_structures::len(&record.value).map_err(refused_by_damage)?,
        None => 0,
    };
    encode::integer(out, members as i64);
    Ok(())
}

pub(crate) fn sismember(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let is_member = match record(records, call.a.get(1))? {
        Some(record) => Set::lookup(&record.value, call.a.get(2)).map_err(refused_by_damage)?,
        None => false,
    };
    encode::integer(out, i64::from(is_member));
    Ok(())
}

pub(crate) fn smismember(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(records, call.a.get(1))?;
    let set = parsed(old.as_ref())?;
    encode::array(out, call.a.len() - 2);
    call.a.from(2).for_each(|member| encode::integer(out, i64::from(set.contains(member))));
    Ok(())
}

/// The members as the reply.
pub(super) fn write_set(call: &Call<'_>, set: &Set<'_>, out: &mut Vec<u8>) -> Done {
    // Those of one set fit; those of several may not.
    if set.iter().map(<[u8]>::len).sum::<usize>() > call.value_bytes_max {
        return Err(reply_too_long(call));
    }
    encode::set(out, set.len(), call.version);
    set.iter().for_each(|member| encode::bulk(out, member));
    Ok(())
}

pub(crate) fn smembers(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(records, call.a.get(1))?;
    write_set(call, &parsed(old.as_ref())?, out)
}

pub(crate) fn spop(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let count = match call.a.len() {
        2 => None,
        3 => Some(counts::of_elements(call.a.get(2))?),
        _ => return Err(Cow::Borrowed(SYNTAX)),
    };
    let old = record(records, call.a.get(1))?;
    let mut set = parsed(old.as_ref())?;
    let wanted = i64::try_from(count.unwrap_or(1)).unwrap_or(i64::MAX);
    let places = lots::places(call, set.len(), wanted)?;
    let taken: Vec<&[u8]> = places.into_iter().filter_map(|place| set.get_at(place)).collect();
    set.remove_all(taken.iter().copied());
    if !taken.is_empty() {
        store_set(call, records, call.a.get(1), (&set, old.as_ref()))?;
    }
    match (count, taken.first()) {
        (None, Some(member)) => encode::bulk(out, member),
        (None, None) => encode::null(out, call.version),
        (Some(_), _) => {
            encode::set(out, taken.len(), call.version);
            taken.iter().for_each(|member| encode::bulk(out, member));
        }
    }
    Ok(())
}

pub(crate) fn srandmember(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let count = match call.a.len() {
        2 => None,
        3 => Some(counts::of_any_sign(call, 2)?),
        _ => return Err(Cow::Borrowed(SYNTAX)),
    };
    let old = record(records, call.a.get(1))?;
    let set = parsed(old.as_ref())?;
    let Some(count) = count else {
        match lots::any(set.len(), call.seed).and_then(|place| set.get_at(place)) {
            Some(member) => encode::bulk(out, member),
            None => encode::null(out, call.version),
        }
        return Ok(());
    };
    let places = lots::places(call, set.len(), count)?;
    let began = out.len();
    encode::array(out, places.len());
    for place in places {
        encode::bulk(out, set.get_at(place).unwrap_or_default());
        check_reply(call, out, began)?;
    }
    Ok(())
}

/// All members at once, whatever their number: the record was read as a whole.
pub(crate) fn sscan(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    scanning::check_cursor(call.a.get(2))?;
    let old = record(records, call.a.get(1))?;
    let pattern = match &old {
        Some(_) => scanning::pattern(call, 3)?,
        // As Redis, which looks for the key first.
        None => None,
    };
    let set = parsed(old.as_ref())?;
    let found = || set.iter().filter(|member| pattern.is_none_or(|pattern| glob::matches(pattern, member)));
    scanning::begin(out, found().count());
    found().for_each(|member| encode::bulk(out, member));
    Ok(())
}
