//! Sorted sets: commands of several keys.

use std::borrow::Cow;
use std::collections::BTreeMap;

use stratakv_base::Expiry;
use stratakv_protocol::resp::{encode, number};
use stratakv_structures::{Kind, Set, SortedSet};

use super::super::arguments::{RequestRefusal, SYNTAX};
use super::super::forms::SortedSetForm;
use super::super::nodes::whole;
use super::super::records::{Call, Records, StoredRecord, check_kind, refused_by_damage, reply_too_long, store};
use super::counts;
use super::score_ranges::{RangeName, RangeQuery};
use super::sorted_sets::{EntryForm, borrowed, parsed, record, take, write_entries};

type Done = Result<(), RequestRefusal>;

pub(crate) fn zmpop(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let keys = counts::numbered_keys(call, 1, SYNTAX)?;
    let takes_greatest = match () {
        () if call.a.is(keys.end, "MIN") => false,
        () if call.a.is(keys.end, "MAX") => true,
        () => return Err(Cow::Borrowed(SYNTAX)),
    };
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
            return take(call, records, (key, &old), (takes_greatest, count), |taken| {
                encode::array(out, 2);
                encode::bulk(out, key);
                write_entries(call, taken.iter().map(borrowed), EntryForm::Pairs, out);
            });
        }
    }
    encode::null_array(out, call.version);
    Ok(())
}

pub(crate) fn zrangestore(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let query = RangeQuery::read(call, 2, RangeName::STORING)?;
    let old = record(records, call.a.get(2))?;
    let mut result = SortedSet::default();
    let members = query.members((records, call.a.get(2)), &SortedSetForm::of(old.as_ref())?)?;
    result.insert_all(members.iter().map(borrowed));
    let encoded = result.encode(usize::MAX);
    store(call, records, call.a.get(1), (encoded, Expiry::NEVER))?;
    encode::integer(out, result.len() as i64);
    Ok(())
}

/// How sorted sets become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Combination {
    Union,
    Intersection,
    Difference,
}

/// What becomes of the scores that a member has in several sorted sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum => zero_for_nan(one + other),
            Aggregate::Min if other < one => other,
            Aggregate::Max if other > one => other,
            Aggregate::Min | Aggregate::Max => one,
        }
    }
}

/// As Redis: infinity less infinity, and zero times infinity, are zero.
fn zero_for_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// The name of a command, and what it says.
#[derive(Clone, Copy, Debug)]
struct CombinationName {
    name: &'static str,
    combination: Combination,
    stores: bool,
    only_counts: bool,
}

impl CombinationName {
    const fn tells(name: &'static str, combination: Combination) -> CombinationName {
        CombinationName { name, combination, stores: false, only_counts: false }
    }

    const fn stores(name: &'static str, combination: Combination) -> CombinationName {
        CombinationName { name, combination, stores: true, only_counts: false }
    }
}

/// The options behind the keys.
struct CombinationOptions {
    /// One for each key.
    weights: Vec<f64>,
    aggregate: Aggregate,
    form: EntryForm,
    /// How many are counted; 0: all.
    limit: usize,
}

impl CombinationOptions {
    fn read(
        call: &Call<'_>,
        name: CombinationName,
        (first, keys): (usize, usize),
    ) -> Result<CombinationOptions, RequestRefusal> {
        let mut options = CombinationOptions {
            weights: vec![1.0; keys],
            aggregate: Aggregate::Sum,
            form: EntryForm::Members,
            limit: 0,
        };
        let has_scores = name.combination != Combination::Difference && !name.only_counts;
        let mut at = first;
        while at < call.a.len() {
            let behind = call.a.len() - at - 1;
            match () {
                () if has_scores && behind >= keys && call.a.is(at, "WEIGHTS") => {
                    for (place, weight) in options.weights.iter_mut().enumerate() {
                        let read = number::double(call.a.get(at + 1 + place));
                        *weight = read.ok_or(Cow::Borrowed("ERR weight value is not a float"))?;
                    }
                    at += keys;
                }
                () if has_scores && behind >= 1 && call.a.is(at, "AGGREGATE") => {
                    at += 1;
                    options.aggregate = match () {
                        () if call.a.is(at, "SUM") => Aggregate::Sum,
                        () if call.a.is(at, "MIN") => Aggregate::Min,
                        () if call.a.is(at, "MAX") => Aggregate::Max,
                        () => return Err(Cow::Borrowed(SYNTAX)),
                    };
                }
                () if !name.stores && !name.only_counts && call.a.is(at, "WITHSCORES") => {
                    options.form = EntryForm::Scores;
                }
                () if name.only_counts && behind >= 1 && call.a.is(at, "LIMIT") => {
                    at += 1;
                    options.limit = counts::from_zero(call.a.get(at), "ERR LIMIT can't be negative")?;
                }
                () => return Err(Cow::Borrowed(SYNTAX)),
            }
            at += 1;
        }
        Ok(options)
    }
}

/// A record with all its elements.
fn source(records: &dyn Records, key: &[u8]) -> Result<Option<StoredRecord>, RequestRefusal> {
    records.get(key)?.map(|record| whole(records, key, record)).transpose()
}

/// The members of a sorted set, or of a set: these have the score 1.
fn entries(record: Option<&StoredRecord>) -> Result<Vec<(&[u8], f64)>, RequestRefusal> {
    let Some(record) = record else { return Ok(Vec::new()) };
    if record.kind() == Kind::Set {
        let set = Set::parse(&record.value).map_err(refused_by_damage)?;
        return Ok(set.iter().map(|member| (member, 1.0)).collect());
    }
    check_kind(record.flags, &record.value, Kind::SortedSet)?;
    Ok(parsed(record)?.iter().collect())
}

/// A source, and the weight of its scores.
type Weighted<'a> = (Vec<(&'a [u8], f64)>, f64);

fn combined<'a>(
    mut sources: Vec<Weighted<'a>>,
    combination: Combination,
    aggregate: Aggregate,
) -> BTreeMap<&'a [u8], f64> {
    if combination != Combination::Difference {
        // Sums of doubles depend on their order: it is that of Redis.
        sources.sort_by_key(|(entries, _)| entries.len());
    }
    let mut sources = sources.into_iter();
    let Some((first, weight)) = sources.next() else { return BTreeMap::new() };
    let mut all: BTreeMap<&[u8], f64> =
        first.into_iter().map(|(member, score)| (member, zero_for_nan(score * weight))).collect();
    for (entries, weight) in sources {
        match combination {
            Combination::Union => {
                for (member, score) in entries {
                    let score = zero_for_nan(score * weight);
                    let sum = all.get(member).map_or(score, |known| aggregate.of(*known, score));
                    all.insert(member, sum);
                }
            }
            Combination::Intersection => {
                let others: BTreeMap<&[u8], f64> = entries.into_iter().collect();
                all.retain(|member, score| match others.get(member) {
                    Some(other) => {
                        *score = aggregate.of(*score, other * weight);
                        true
                    }
                    None => false,
                });
            }
            Combination::Difference => entries.iter().for_each(|(member, _)| _ = all.remove(member)),
        }
    }
    all
}

fn combine(call: &Call<'_>, records: &mut dyn Records, name: CombinationName, out: &mut Vec<u8>) -> Done {
    let at = if name.stores { 2 } else { 1 };
    let keys = match call.a.integer(at)? {
        ..=0 => return Err(Cow::Owned(format!("ERR at least 1 input key is needed for '{}' command", name.name))),
        keys => usize::try_from(keys).unwrap_or(usize::MAX),
    };
    let first = at + 1;
    if keys > call.a.len().saturating_sub(first) {
        return Err(Cow::Borrowed(SYNTAX));
    }
    let found = (first..first + keys).map(|at| source(records, call.a.get(at)));
    let found: Vec<Option<StoredRecord>> = found.collect::<Result<_, _>>()?;
    let sources = found.iter().map(|record| entries(record.as_ref())).collect::<Result<Vec<_>, _>>()?;
    let options = CombinationOptions::read(call, name, (first + keys, keys))?;
    let sources = sources.into_iter().zip(options.weights).collect();
    let all = combined(sources, name.combination, options.aggregate);
    if name.only_counts {
        let told = if options.limit > 0 { all.len().min(options.limit) } else { all.len() };
        encode::integer(out, told as i64);
        return Ok(());
    }
    let bytes: usize = all.keys().map(|member| member.len()).sum();
    let mut result = SortedSet::default();
    result.insert_all(all);
    if name.stores {
        store(call, records, call.a.get(1), (result.encode(usize::MAX), Expiry::NEVER))?;
        encode::integer(out, result.len() as i64);
        return Ok(());
    }
    if bytes > call.reply_bytes_max {
        return Err(reply_too_long(call));
    }
    write_entries(call, result.iter(), options.form, out);
    Ok(())
}

pub(crate) fn zunion(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    combine(call, records, CombinationName::tells("zunion", Combination::Union), out)
}

pub(crate) fn zinter(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    combine(call, records, CombinationName::tells("zinter", Combination::Intersection), out)
}

pub(crate) fn zdiff(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    combine(call, records, CombinationName::tells("zdiff", Combination::Difference), out)
}

pub(crate) fn zunionstore(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    combine(call, records, CombinationName::stores("zunionstore", Combination::Union), out)
}

pub(crate) fn zinterstore(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    combine(call, records, CombinationName::stores("zinterstore", Combination::Intersection), out)
}

pub(crate) fn zdiffstore(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    combine(call, records, CombinationName::stores("zdiffstore", Combination::Difference), out)
}

pub(crate) fn zintercard(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let name = CombinationName { only_counts: true, ..CombinationName::tells("zintercard", Combination::Intersection) };
    combine(call, records, name, out)
}
