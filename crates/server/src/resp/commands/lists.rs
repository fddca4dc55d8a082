//! Lists.

use std::borrow::Cow;

use stratakv_base::Expiry;
use stratakv_protocol::resp::encode;
use stratakv_structures::list::{from_front, range};
use stratakv_structures::{Kind, List};

use super::super::arguments::{RequestRefusal, SYNTAX};
use super::super::records::{Call, Records, StoredRecord, refused_by_damage, store, structure};
use super::counts;

type Done = Result<(), RequestRefusal>;

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListEnd {
    Left,
    Right,
}

impl ListEnd {
    pub(super) fn push<'a>(self, list: &mut List<'a>, element: &'a [u8]) {
        match self {
            ListEnd::Left => list.elements.push_front(element),
            ListEnd::Right => list.elements.push_back(element),
        }
    }

    pub(super) fn pop<'a>(self, list: &mut List<'a>) -> Option<&'a [u8]> {
        match self {
            ListEnd::Left => list.elements.pop_front(),
            ListEnd::Right => list.elements.pop_back(),
        }
    }
}

pub(super) fn record(records: &dyn Records, key: &[u8]) -> Result<Option<StoredRecord>, RequestRefusal> {
    structure(records, key, Kind::List)
}

pub(super) fn parsed(record: Option<&StoredRecord>) -> Result<List<'_>, RequestRefusal> {
    match record {
        Some(record) => List::parse(&record.value).map_err(refused_by_damage),
        None => Ok(List::default()),
    }
}

/// Stores what a list has become that expires as before.
pub(super) fn store_list(
    call: &Call<'_>,
    records: &mut dyn Records,
    key: &[u8],
    (list, old): (&List<'_>, Option<&StoredRecord>),
) -> Done {
    let expiry = old.map_or(Expiry::NEVER, |old| old.expiry);
    store(call, records, key, (list.encode(call.value_bytes_max), expiry))
}

fn push(call: &Call<'_>, records: &mut dyn Records, (end, creates): (ListEnd, bool), out: &mut Vec<u8>) -> Done {
    let old = record(records, call.a.get(1))?;
    if old.is_none() && !creates {
        encode::integer(out, 0);
        return Ok(());
    }
    let mut list = parsed(old.as_ref())?;
    call.a.from(2).for_each(|element| end.push(&mut list, element));
    store_list(call, records, call.a.get(1), (&list, old.as_ref()))?;
    encode::integer(out, list.elements.len() as i64);
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
    write: impl FnOnce(&[&[u8]]),
) -> Done {
    let mut list = parsed(Some(old))?;
    let taken: Vec<&[u8]> = (0..count.min(list.elements.len())).map_while(|_| end.pop(&mut list)).collect();
    if !taken.is_empty() {
        store_list(call, records, key, (&list, Some(old)))?;
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
                encode::bulk(out, taken.first().unwrap_or(&b"".as_slice()));
            });
        }
        (Some(old), Some(count)) => {
            return take(call, records, (key, &old), (end, count), |taken| write_all(taken.iter(), out));
        }
    }
    Ok(())
}

/// Elements as an array.
pub(super) fn write_all<'a>(elements: impl ExactSizeIterator<Item = &'a &'a [u8]>, out: &mut Vec<u8>) {
    encode::array(out, elements.len());
    elements.for_each(|element| encode::bulk(out, element));
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
    match List::lookup(&old.value, call.a.integer(2)?).map_err(refused_by_damage)? {
        Some(element) => encode::bulk(out, element),
        None => encode::null(out, call.version),
    }
    Ok(())
}

pub(crate) fn lset(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let key = call.a.get(1);
    let old = record(records, key)?.ok_or(Cow::Borrowed("ERR no such key"))?;
    let place = call.a.integer(2)?;
    let mut list = parsed(Some(&old))?;
    let element = from_front(place, list.elements.len()).and_then(|place| list.elements.get_mut(place));
    *element.ok_or(Cow::Borrowed("ERR index out of range"))? = call.a.get(3);
    store_list(call, records, key, (&list, Some(&old)))?;
    encode::simple(out, "OK");
    Ok(())
}

pub(crate) fn lrange(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let (first, last) = (call.a.integer(2)?, call.a.integer(3)?);
    let old = record(records, call.a.get(1))?;
    let list = parsed(old.as_ref())?;
    write_all(list.elements.range(range(first, last, list.elements.len())), out);
    Ok(())
}

pub(crate) fn ltrim(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let (first, last) = (call.a.integer(2)?, call.a.integer(3)?);
    let key = call.a.get(1);
    if let Some(old) = record(records, key)? {
        let mut list = parsed(Some(&old))?;
        let kept = range(first, last, list.elements.len());
        if kept.len() < list.elements.len() {
            list.elements.truncate(kept.end);
            list.elements.drain(..kept.start);
            store_list(call, records, key, (&list, Some(&old)))?;
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
    let mut list = parsed(Some(&old))?;
    let before = list.elements.len();
    let wanted = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let mut removed = 0;
    let mut stays = |found: &&[u8]| {
        let goes = *found == element && removed < wanted;
        removed += u64::from(goes);
        !goes
    };
    if count < 0 {
        list.elements = list.elements.into_iter().rev().filter(|found| stays(found)).collect();
        list.elements.make_contiguous().reverse();
    } else {
        list.elements.retain(|found| stays(found));
    }
    if list.elements.len() < before {
        store_list(call, records, key, (&list, Some(&old)))?;
    }
    encode::integer(out, removed as i64);
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
    let mut list = parsed(Some(&old))?;
    let Some(place) = list.elements.iter().position(|element| *element == call.a.get(3)) else {
        encode::integer(out, -1);
        return Ok(());
    };
    list.elements.insert(place + usize::from(is_behind), call.a.get(4));
    store_list(call, records, key, (&list, Some(&old)))?;
    encode::integer(out, list.elements.len() as i64);
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
    fn places(&self, list: &List<'_>, wanted: &[u8]) -> Vec<usize> {
        let len = list.elements.len();
        let compared = if self.compared_max == 0 { len } else { self.compared_max.min(len) };
        let all = (0..compared).map(|at| if self.rank < 0 { len - 1 - at } else { at });
        let matches = all.filter(|place| list.elements.get(*place).is_some_and(|element| *element == wanted));
        let passed = usize::try_from(self.rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
        let told = match self.count {
            None => 1,
            Some(0) => usize::MAX,
            Some(count) => count,
        };
        matches.skip(passed).take(told).collect()
    }
}

pub(crate) fn lpos(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let search = Search::read(call)?;
    let old = record(records, call.a.get(1))?;
    let places = search.places(&parsed(old.as_ref())?, call.a.get(2));
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
