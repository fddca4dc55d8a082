//! Sorted sets: members and their scores. Ranges and combinations have files of their own.

use std::borrow::Cow;
use std::collections::BTreeMap;

use stratakv_base::Expiry;
use stratakv_protocol::resp::number::{self, double_text};
use stratakv_protocol::resp::{Version, encode};
use stratakv_structures::{Kind, SortedSet};

use super::super::arguments::{RequestRefusal, SYNTAX};
use super::super::edit::NOT_A_FLOAT;
use super::super::forms::{ElementBytes, NewScore, SortedSetForm};
use super::super::records::{Call, Records, StoredRecord, refused_by_damage, reply_too_long, stored};
use super::scanning::{self, ElementScan};
use super::{counts, lots};

type Done = Result<(), RequestRefusal>;

/// The record of a sorted set, whichever form it has.
pub(super) fn record(records: &dyn Records, key: &[u8]) -> Result<Option<StoredRecord>, RequestRefusal> {
    stored(records, key, Kind::SortedSet)
}

/// The elements of a packed sorted set.
pub(super) fn parsed(record: &StoredRecord) -> Result<SortedSet<'_>, RequestRefusal> {
    SortedSet::parse(&record.value).map_err(refused_by_damage)
}

/// When a sorted set expires that a command changes: as before.
pub(super) fn expiry(record: Option<&StoredRecord>) -> Expiry {
    record.map_or(Expiry::NEVER, |record| record.expiry)
}

/// How members and scores are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryForm {
    /// Members without their scores.
    Members,
    /// Members and scores one after the other, in RESP3 as pairs.
    Scores,
    /// Pairs.
    Pairs,
}

/// Appends an array of members.
pub(super) fn write_entries<'a>(
    call: &Call<'_>,
    entries: impl ExactSizeIterator<Item = (&'a [u8], f64)>,
    form: EntryForm,
    out: &mut Vec<u8>,
) {
    let is_paired = form == EntryForm::Pairs || (form == EntryForm::Scores && call.version == Version::Resp3);
    let is_flat = form == EntryForm::Scores && !is_paired;
    encode::array(out, if is_flat { entries.len() * 2 } else { entries.len() });
    for (member, score) in entries {
        if is_paired {
            encode::array(out, 2);
        }
        encode::bulk(out, member);
        if form != EntryForm::Members {
            encode::double(out, score, call.version);
        }
    }
}

/// The options of ZADD.
#[derive(Clone, Copy, Debug, Default)]
struct AddOptions {
    /// NX.
    only_new: bool,
    /// XX.
    only_present: bool,
    /// GT.
    only_greater: bool,
    /// LT.
    only_less: bool,
    /// CH.
    counts_changes: bool,
    /// INCR.
    increments: bool,
}

impl AddOptions {
    /// Those in the arguments from the second on, and where the scores begin.
    fn read(call: &Call<'_>, increments: bool) -> Result<(AddOptions, usize), RequestRefusal> {
        let mut options = AddOptions { increments, ..AddOptions::default() };
        let mut at = 2;
        loop {
            let option = match () {
                () if call.a.is(at, "NX") => &mut options.only_new,
                () if call.a.is(at, "XX") => &mut options.only_present,
                () if call.a.is(at, "GT") => &mut options.only_greater,
                () if call.a.is(at, "LT") => &mut options.only_less,
                () if call.a.is(at, "CH") => &mut options.counts_changes,
                () if call.a.is(at, "INCR") => &mut options.increments,
                () => break,
            };
            *option = true;
            at += 1;
        }
        let rest = call.a.len().saturating_sub(at);
        let by_order = u8::from(options.only_greater) + u8::from(options.only_less) + u8::from(options.only_new);
        let refusal = match () {
            () if rest == 0 || !rest.is_multiple_of(2) => SYNTAX,
            () if options.only_new && options.only_present => {
                "ERR XX and NX options at the same time are not compatible"
            }
            () if by_order > 1 => "ERR GT, LT, and/or NX options at the same time are not compatible",
            () if options.increments && rest > 2 => "ERR INCR option supports a single increment-element pair",
            () => return Ok((options, at)),
        };
        Err(Cow::Borrowed(refusal))
    }

    /// The score that a member gets which has the score `old`; `None`: nothing is done.
    fn new_score(self, old: Option<f64>, given: f64) -> Result<Option<f64>, RequestRefusal> {
        let Some(old) = old else { return Ok((!self.only_present).then_some(given)) };
        if self.only_new {
            return Ok(None);
        }
        let score = if self.increments { old + given } else { given };
        if score.is_nan() {
            return Err(Cow::Borrowed("ERR resulting score is not a number (NaN)"));
        }
        let is_kept = (self.only_less && score >= old) || (self.only_greater && score <= old);
        Ok((!is_kept).then_some(score))
    }
}

fn add(call: &Call<'_>, records: &mut dyn Records, increments: bool, out: &mut Vec<u8>) -> Done {
    let (options, first) = AddOptions::read(call, increments)?;
    let places = (first..call.a.len()).step_by(2);
    let given: Vec<(&[u8], f64)> = places
        .map(|at| Some((call.a.get(at + 1), number::double(call.a.get(at))?)))
        .collect::<Option<_>>()
        .ok_or(Cow::Borrowed(NOT_A_FLOAT))?;
    let key = call.a.get(1);
    let old = record(records, key)?;
    let mut set = SortedSetForm::of(old.as_ref())?;
    let members: Vec<&[u8]> = given.iter().map(|(member, _)| *member).collect();
    let olds = set.scores_of((records, key), &members)?;
    let mut scores = olds.clone();
    let (mut added, mut updated, mut last) = (0, 0, None);
    let mut changed = BTreeMap::new();
    for (member, given) in given {
        let Some(score) = scores.get_mut(member) else { continue };
        last = options.new_score(*score, given)?;
        let Some(new) = last else { continue };
        match *score {
            // As Redis: zero stays the zero that it is.
            Some(old) if old == new => continue,
            Some(_) => updated += 1,
            None => added += 1,
        }
        *score = Some(new);
        changed.insert(member, new);
    }
    if !changed.is_empty() {
        let changed: Vec<NewScore<'_>> = changed
            .into_iter()
            .map(|(member, score)| NewScore { member, old: olds.get(member).copied().flatten(), score })
            .collect();
        set.insert_all((records, key), &changed)?;
        set.store(call, (records, key), expiry(old.as_ref()))?;
    }
    match (options.increments, last) {
        (true, Some(score)) => encode::double(out, score, call.version),
        (true, None) => encode::null(out, call.version),
        (false, _) if options.counts_changes => encode::integer(out, added + updated),
        (false, _) => encode::integer(out, added),
    }
    Ok(())
}

pub(crate) fn zadd(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    add(call, records, false, out)
}

pub(crate) fn zincrby(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    add(call, records, true, out)
}

pub(crate) fn zrem(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(records, call.a.get(1))?;
    let mut set = SortedSetForm::of(old.as_ref())?;
    let members: Vec<&[u8]> = call.a.from(2).collect();
    let removed = set.remove_all((records, call.a.get(1)), &members)?;
    if removed > 0 {
        set.store(call, (records, call.a.get(1)), expiry(old.as_ref()))?;
    }
    encode::integer(out, removed as i64);
    Ok(())
}

pub(crate) fn zcard(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let members = match record(records, call.a.get(1))? {
        Some(record) => stratakv_structures::len(&record.value).map_err(refused_by_damage)?,
        None => 0,
    };
    encode::integer(out, members as i64);
    Ok(())
}

fn write_score(call: &Call<'_>, score: Option<f64>, out: &mut Vec<u8>) {
    match score {
        Some(score) => encode::double(out, score, call.version),
        None => encode::null(out, call.version),
    }
}

pub(crate) fn zscore(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(records, call.a.get(1))?;
    let score = SortedSetForm::lookup((records, call.a.get(1)), old.as_ref(), call.a.get(2))?;
    write_score(call, score, out);
    Ok(())
}

pub(crate) fn zmscore(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let old = record(records, call.a.get(1))?;
    let members: Vec<&[u8]> = call.a.from(2).collect();
    let scores = SortedSetForm::of(old.as_ref())?.scores_of((records, call.a.get(1)), &members)?;
    encode::array(out, call.a.len() - 2);
    for member in call.a.from(2) {
        write_score(call, scores.get(member).copied().flatten(), out);
    }
    Ok(())
}

fn rank(call: &Call<'_>, records: &dyn Records, is_reverse: bool, out: &mut Vec<u8>) -> Done {
    let old = record(records, call.a.get(1))?;
    let set = SortedSetForm::of(old.as_ref())?;
    match set.rank((records, call.a.get(1)), call.a.get(2))? {
        Some(rank) if is_reverse => encode::integer(out, (set.len() - 1 - rank) as i64),
        Some(rank) => encode::integer(out, rank as i64),
        None => encode::null(out, call.version),
    }
    Ok(())
}

pub(crate) fn zrank(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    rank(call, records, false, out)
}

pub(crate) fn zrevrank(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    rank(call, records, true, out)
}

/// Takes members with the least scores, or the greatest, and gives them to `write`.
pub(super) fn take(
    call: &Call<'_>,
    records: &mut dyn Records,
    (key, old): (&[u8], &StoredRecord),
    (takes_greatest, count): (bool, usize),
    write: impl FnOnce(&[(ElementBytes<'_>, f64)]),
) -> Done {
    let mut set = SortedSetForm::of(Some(old))?;
    let count = count.min(set.len());
    let places = if takes_greatest { set.len() - count..set.len() } else { 0..count };
    let mut taken = set.remove_range((records, key), places)?;
    if takes_greatest {
        taken.reverse();
    }
    if count > 0 {
        set.store(call, (records, key), old.expiry)?;
    }
    write(&taken);
    Ok(())
}

/// A member and its score, to be written.
pub(super) fn borrowed<'a>((member, score): &'a (ElementBytes<'_>, f64)) -> (&'a [u8], f64) {
    (member, *score)
}

fn pop(call: &Call<'_>, records: &mut dyn Records, takes_greatest: bool, out: &mut Vec<u8>) -> Done {
    let count = match call.a.len() {
        2 => None,
        3 => Some(counts::of_elements(call.a.get(2))?),
        _ => return Err(Cow::Borrowed(SYNTAX)),
    };
    let key = call.a.get(1);
    let Some(old) = record(records, key)? else {
        encode::array(out, 0);
        return Ok(());
    };
    take(call, records, (key, &old), (takes_greatest, count.unwrap_or(1)), |taken| match (count, taken.first()) {
        (None, Some((member, score))) => {
            encode::array(out, 2);
            encode::bulk(out, member);
            encode::double(out, *score, call.version);
        }
        _ => write_entries(call, taken.iter().map(borrowed), EntryForm::Scores, out),
    })
}

pub(crate) fn zpopmin(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    pop(call, records, false, out)
}

pub(crate) fn zpopmax(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    pop(call, records, true, out)
}

pub(crate) fn zrandmember(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let count = match call.a.len() {
        2 => None,
        _ => Some(counts::of_any_sign(call, 2)?),
    };
    let form = match call.a.len() {
        2 | 3 => EntryForm::Members,
        4 if call.a.is(3, "WITHSCORES") => EntryForm::Scores,
        _ => return Err(Cow::Borrowed(SYNTAX)),
    };
    if form == EntryForm::Scores && count.is_some_and(|count| count.unsigned_abs() > i64::MAX as u64 / 2) {
        return Err(Cow::Borrowed("ERR value is out of range"));
    }
    let old = record(records, call.a.get(1))?;
    let (set, at) = (SortedSetForm::of(old.as_ref())?, (&*records, call.a.get(1)));
    let Some(count) = count else {
        let place = lots::any(set.len(), call.seed);
        match set.at_places(at, place.as_slice())?.in_order().first() {
            Some((member, _)) => encode::bulk(out, member),
            None => encode::null(out, call.version),
        }
        return Ok(());
    };
    let places = lots::places(call, at.0, (set.len(), count))?;
    let drawn = set.at_places(at, &places)?;
    let drawn = drawn.in_order();
    // One member may come often.
    let bytes: usize = drawn.iter().map(|(member, _)| member.len()).sum();
    if bytes > call.reply_bytes_max {
        at.0.needs_room();
        return Err(reply_too_long(call));
    }
    write_entries(call, drawn.into_iter().map(borrowed), form, out);
    Ok(())
}

pub(crate) fn zscan(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let mut old = None;
    let scan = ElementScan::read(call, || {
        old = record(records, call.a.get(1))?;
        Ok(old.is_some())
    })?;
    let (mut found, next) = SortedSetForm::of(old.as_ref())?.scan((records, call.a.get(1)), scan.page)?;
    found.retain(|(member, _)| scan.matches(member));
    scanning::begin(out, (next, found.len() * 2));
    for (member, score) in &found {
        encode::bulk(out, member);
        encode::bulk(out, double_text(*score).as_bytes());
    }
    Ok(())
}
