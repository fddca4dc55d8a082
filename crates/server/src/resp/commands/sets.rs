//! Sets.

use std::borrow::Cow;

use stratakv_base::Expiry;
use stratakv_protocol::resp::encode;
use stratakv_structures::{Kind, Set};

use super::super::arguments::{RequestRefusal, SYNTAX};
use super::super::forms::SetForm;
use super::super::records::{
    Call, Records, StoredRecord, check_reply, refused_by_damage, reply_too_long, stored, structure,
};
use super::scanning::{self, ElementScan};
use super::{counts, lots};

type Done = Result<(), RequestRefusal>;

/// The record of a set, whichever form it has.
pub(super) fn record(records: &dyn Records, key: &[u8]) -> Result<Option<StoredRecord>, RequestRefusal> {
    stored(records, key, Kind::Set)
}

/// The record of a set with all its members.
pub(super) fn whole_record(records: &dyn Records, key: &[u8]) -> Result<Option<StoredRecord>, RequestRefusal> {
    structure(records, key, Kind::Set)
}

pub(super) fn parsed(record: Option<&StoredRecord>) -> Result<Set<'_>, RequestRefusal> {
    match record {
        Some(record) => Set::parse(&record.value).map_err(refused_by_damage),
        None => Ok(Set::default()),
    }
}

/// When a set expires that a command changes: as before.
pub(super) fn expiry(record: Option<&StoredRecord>) -> Expiry {
    record.map_or(Expiry::NEVER, |record| record.expiry)
}

pub(crate) fn sadd(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(records, call.a.get(1))?;
    let mut set = SetForm::of(old.as_ref())?;
    let members: Vec<&[u8]> = call.a.from(2).collect();
    let added = set.insert_all((records, call.a.get(1)), &members)?;
    if added > 0 {
        set.store(call, (records, call.a.get(1)), expiry(old.as_ref()))?;
    }
    encode::integer(out, added as i64);
    Ok(())
}

pub(crate) fn srem(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(records, call.a.get(1))?;
    let mut set = SetForm::of(old.as_ref())?;
    let members: Vec<&[u8]> = call.a.from(2).collect();
    let removed = set.remove_all((records, call.a.get(1)), &members)?;
    if removed > 0 {
        set.store(call, (records, call.a.get(1)), expiry(old.as_ref()))?;
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
    let old = record(records, call.a.get(1))?;
    let is_member = SetForm::lookup((records, call.a.get(1)), old.as_ref(), call.a.get(2))?;
    encode::integer(out, i64::from(is_member));
    Ok(())
}

pub(crate) fn smismember(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(records, call.a.get(1))?;
    let members: Vec<&[u8]> = call.a.from(2).collect();
    let found = SetForm::of(old.as_ref())?.contain((records, call.a.get(1)), &members)?;
    encode::array(out, found.len());
    found.into_iter().for_each(|is_member| encode::integer(out, i64::from(is_member)));
    Ok(())
}

/// The members of several sets as the reply.
pub(super) fn write_set(call: &Call<'_>, set: &Set<'_>, out: &mut Vec<u8>) -> Done {
    // Those of one set fit; those of several may not.
    if set.iter().map(<[u8]>::len).sum::<usize>() > call.reply_bytes_max {
        return Err(reply_too_long(call));
    }
    encode::set(out, set.len(), call.version);
    set.iter().for_each(|member| encode::bulk(out, member));
    Ok(())
}

pub(crate) fn smembers(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(records, call.a.get(1))?;
    let members = SetForm::of(old.as_ref())?.members((records, call.a.get(1)))?;
    encode::set(out, members.len(), call.version);
    members.iter().for_each(|member| encode::bulk(out, member));
    Ok(())
}

pub(crate) fn spop(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let count = match call.a.len() {
        2 => None,
        3 => Some(counts::of_elements(call.a.get(2))?),
        _ => return Err(Cow::Borrowed(SYNTAX)),
    };
    let old = record(records, call.a.get(1))?;
    let (mut set, key) = (SetForm::of(old.as_ref())?, call.a.get(1));
    let wanted = i64::try_from(count.unwrap_or(1)).unwrap_or(i64::MAX);
    let places = lots::places(call, records, (set.len(), wanted))?;
    let drawn = set.at_places((records, key), &places)?;
    let taken = drawn.in_order();
    if !taken.is_empty() {
        let members: Vec<&[u8]> = taken.iter().map(|member| &member[..]).collect();
        set.remove_all((records, key), &members)?;
        set.store(call, (records, key), expiry(old.as_ref()))?;
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
    let (set, at) = (SetForm::of(old.as_ref())?, (&*records, call.a.get(1)));
    let Some(count) = count else {
        let place = lots::any(set.len(), call.seed);
        match set.at_places(at, place.as_slice())?.in_order().first() {
            Some(member) => encode::bulk(out, member),
            None => encode::null(out, call.version),
        }
        return Ok(());
    };
    let places = lots::places(call, at.0, (set.len(), count))?;
    let began = out.len();
    encode::array(out, places.len());
    for member in set.at_places(at, &places)?.in_order() {
        encode::bulk(out, member);
        check_reply(call, at.0, (out.as_slice(), began))?;
    }
    Ok(())
}

pub(crate) fn sscan(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let mut old = None;
    let scan = ElementScan::read(call, || {
        old = record(records, call.a.get(1))?;
        Ok(old.is_some())
    })?;
    let (mut members, next) = SetForm::of(old.as_ref())?.scan((records, call.a.get(1)), scan.page)?;
    members.retain(|member| scan.matches(member));
    scanning::begin(out, (next, members.len()));
    members.iter().for_each(|member| encode::bulk(out, member));
    Ok(())
}
