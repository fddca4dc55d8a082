//! Lists.

use std::borrow::Cow;

use stratakv_base::Expiry;
use stratakv_protocol::resp::encode;
use stratakv_structures::Kind;
use stratakv_structures::list::{from_front, range};

use super::super::arguments::{RequestRefusal, SYNTAX};
use super::super::forms::{ElementBytes, ListEnd, ListForm};
use super::super::records::{Call, Records, StoredRecord, refused_by_damage, stored};
use super::counts;

type Done = Result<(), RequestRefusal>;

pub(super) fn record(records: &dyn Records, key: &[u8]) -> Result<Option<StoredRecord>, RequestRefusal> {
    stored(records, key, Kind::List)
}

/// When a list expires that a command changes: as before.
pub(super) fn expiry(record: Option<&StoredRecord>) -> Expiry {
    record.map_or(Expiry::NEVER, |record| record.expiry)
}

fn push(call: &Call<'_>, records: &mut dyn Records, (end, creates): (ListEnd, bool), out: &mut Vec<u8>) -> Done {
    let old = record(records, call.a.get(1))?;
    if old.is_none() && !creates {
        encode::integer(out, 0);
        return Ok(());
    }
    let mut list = ListForm::of(old.as_ref())?;
    list.push_all((records, call.a.get(1)), end, call.a.from(2))?;
    let len = list.len();
    list.store(call, (records, call.a.get(1)), expiry(old.as_ref()))?;
    encode::integer(out, len as i64);
    Ok(())
}

pub(crate) fn lpush(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    push(call, records, (ListEnd::Left, true), out)
}

pub(crate) fn rpush(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    push(call, records, (ListEnd::Right, true), out)
}

pub(crate) fn lpushx(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    push(call, records, (ListEnd::Left, false), out)
}

pub(crate) fn rpushx(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    push(call, records, (ListEnd::Right, false), out)
}

/// Takes up to so many elements off an end, and gives the reply to `write`.
pub(super) fn take(
    call: &Call<'_>,
    records: &mut dyn Records,
    (key, old): (&[u8], &StoredRecord),
    (end, count): (ListEnd, usize),
    write: impl FnOnce(&[ElementBytes<'_>]),
) -> Done {
    let mut list = ListForm::of(Some(old))?;
    let taken = list.take((records, key), (end, count))?;
    if !taken.is_empty() {
        list.store(call, (records, key), old.expiry)?;
    }
    write(&taken);
    Ok(())
}

fn pop(call: &Call<'_>, records: &mut dyn Records, (end, name): (ListEnd, &str), out: &mut Vec<u8>) -> Done {
    let count = match call.a.len() {
        2 => None,
        3 => Some(counts::of_elements(call.a.get(2))?),
        _ => return Err(Cow::Owned(format!("ERR wrong number of arguments for '{name}' command"))),
    };
    let key = call.a.get(1);
    match (record(records, key)?, count) {
        (None, None) => encode::null(out, call.version),
        (None, Some(_)) => encode::null_array(out, call.version),
        (Some(old), None) => {
            return take(call, records, (key, &old), (end, 1), |taken| {
                encode::bulk(out, taken.first().map_or(&b""[..], |element| element));
            });
        }
        (Some(old), Some(count)) => {
            return take(call, records, (key, &old), (end, count), |taken| write_all(taken, out));
        }
    }
    Ok(())
}

/// Elements as an array.
pub(super) fn write_all(elements: &[ElementBytes<'_>], out: &mut Vec<u8>) {
    encode::array(out, elements.len());
    elements.iter().for_each(|element| encode::bulk(out, element));
}

pub(crate) fn lpop(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    pop(call, records, (ListEnd::Left, "lpop"), out)
}

pub(crate) fn rpop(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    pop(call, records, (ListEnd::Right, "rpop"), out)
}

pub(crate) fn llen(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let elements = match record(records, call.a.get(1))? {
        Some(record) => stratakv_structures::len(&record.value).map_err(refused_by_damage)?,
        None => 0,
    };
    encode::integer(out, elements as i64);
    Ok(())
}

pub(crate) fn lindex(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let Some(old) = record(records, call.a.get(1))? else {
        encode::null(out, call.version);
        return Ok(());
    };
    match ListForm::lookup((records, call.a.get(1)), &old, call.a.integer(2)?)? {
        Some(element) => encode::bulk(out, &element),
        None => encode::null(out, call.version),
    }
    Ok(())
}

pub(crate) fn lset(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let key = call.a.get(1);
    let old = record(records, key)?.ok_or(Cow::Borrowed("ERR no such key"))?;
    let place = call.a.integer(2)?;
    let mut list = ListForm::of(Some(&old))?;
    let place = from_front(place, list.len()).ok_or(Cow::Borrowed("ERR index out of range"))?;
    list.set((records, key), place, call.a.get(3))?;
    list.store(call, (records, key), old.expiry)?;
    encode::simple(out, "OK");
    Ok(())
}

pub(crate) fn lrange(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let (first, last) = (call.a.integer(2)?, call.a.integer(3)?);
    let old = record(records, call.a.get(1))?;
    let list = ListForm::of(old.as_ref())?;
    let places = range(first, last, list.len());
    write_all(&list.range((records, call.a.get(1)), places)?, out);
    Ok(())
}

pub(crate) fn ltrim(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let (first, last) = (call.a.integer(2)?, call.a.integer(3)?);
    let key = call.a.get(1);
    if let Some(old) = record(records, key)? {
        let mut list = ListForm::of(Some(&old))?;
        let kept = range(first, last, list.len());
        if kept.len() < list.len() {
            let behind = kept.end..list.len();
            list.remove_range((records, key), behind)?;
            list.remove_range((records, key), 0..kept.start)?;
            list.store(call, (records, key), old.expiry)?;
        }
    }
    encode::simple(out, "OK");
    Ok(())
}

pub(crate) fn lrem(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let (key, count, element) = (call.a.get(1), call.a.integer(2)?, call.a.get(3));
    let Some(old) = record(records, key)? else {
        encode::integer(out, 0);
        return Ok(());
    };
    let mut list = ListForm::of(Some(&old))?;
    let wanted = if count == 0 { usize::MAX } else { usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) };
    let mut places = list.places_of((records, key), element, (count < 0, usize::MAX, wanted))?;
    // From the end on: places before those removed stay what they are.
    places.sort_unstable_by(|one, other| other.cmp(one));
    for place in &places {
        list.remove_range((records, key), *place..*place + 1)?;
    }
    if !places.is_empty() {
        list.store(call, (records, key), old.expiry)?;
    }
    encode::integer(out, places.len() as i64);
    Ok(())
}

pub(crate) fn linsert(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let is_behind = match () {
        () if call.a.is(2, "AFTER") => true,
        () if call.a.is(2, "BEFORE") => false,
        () => return Err(Cow::Borrowed(SYNTAX)),
    };
    let key = call.a.get(1);
    let Some(old) = record(records, key)? else {
        encode::integer(out, 0);
        return Ok(());
    };
    let mut list = ListForm::of(Some(&old))?;
    let places = list.places_of((records, key), call.a.get(3), (false, usize::MAX, 1))?;
    let Some(place) = places.first() else {
        encode::integer(out, -1);
        return Ok(());
    };
    list.insert((records, key), place + usize::from(is_behind), call.a.get(4))?;
    let len = list.len();
    list.store(call, (records, key), old.expiry)?;
    encode::integer(out, len as i64);
    Ok(())
}

/// What LPOS looks for.
struct Search {
    /// The first match that counts: 1 the first one, -1 the last one.
    rank: i64,
    /// How many are told, 0 for all; `None`: one, and not as an array.
    count: Option<usize>,
    /// How many elements are looked at; 0 for all.
    compared_max: usize,
}

impl Search {
    fn read(call: &Call<'_>) -> Result<Search, RequestRefusal> {
        let mut search = Search { rank: 1, count: None, compared_max: 0 };
        for at in (3..call.a.len()).step_by(2) {
            let value = call.a.get(at + 1);
            match () {
                () if at + 1 == call.a.len() => return Err(Cow::Borrowed(SYNTAX)),
                () if call.a.is(at, "RANK") => {
                    search.rank = counts::of_any_sign(call, at + 1)?;
                    if search.rank == 0 {
                        return Err(Cow::Borrowed(
                            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list",
                        ));
                    }
                }
                () if call.a.is(at, "COUNT") => {
                    search.count = Some(counts::from_zero(value, "ERR COUNT can't be negative")?);
                }
                () if call.a.is(at, "MAXLEN") => {
                    search.compared_max = counts::from_zero(value, "ERR MAXLEN can't be negative")?;
                }
                () => return Err(Cow::Borrowed(SYNTAX)),
            }
        }
        Ok(search)
    }

    /// Places of the matches that are told.
    fn places(
        &self,
        at: (&dyn Records, &[u8]),
        list: &ListForm<'_>,
        wanted: &[u8],
    ) -> Result<Vec<usize>, RequestRefusal> {
        let compared_max = if self.compared_max == 0 { usize::MAX } else { self.compared_max };
        let passed = usize::try_from(self.rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
        let told = match self.count {
            None => 1,
            Some(0) => usize::MAX,
            Some(count) => count,
        };
        let search = (self.rank < 0, compared_max, passed.saturating_add(told));
        let mut places = list.places_of(at, wanted, search)?;
        Ok(places.split_off(passed.min(places.len())))
    }
}

pub(crate) fn lpos(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let search = Search::read(call)?;
    let old = record(records, call.a.get(1))?;
    let places = search.places((records, call.a.get(1)), &ListForm::of(old.as_ref())?, call.a.get(2))?;
    match (search.count, places.first()) {
        (None, Some(place)) => encode::integer(out, *place as i64),
        (None, None) => encode::null(out, call.version),
        (Some(_), _) => {
            encode::array(out, places.len());
            places.iter().for_each(|place| encode::integer(out, *place as i64));
        }
    }
    Ok(())
}
