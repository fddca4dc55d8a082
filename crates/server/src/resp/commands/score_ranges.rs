//! Ranges of sorted sets: by rank, by score, by member.

use std::borrow::Cow;
use std::ops::Range;

use stratakv_protocol::resp::encode;
use stratakv_structures::list;

use super::super::arguments::{RequestRefusal, SYNTAX};
use super::super::forms::{ElementBytes, ScoreEdge, SortedSetForm};
use super::super::records::{Call, Records};
use super::sorted_sets::{EntryForm, borrowed, expiry, record, write_entries};

type Done = Result<(), RequestRefusal>;

/// What the ends of a range are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeBy {
    Rank,
    Score,
    Member,
}

/// A range as it was asked for.
#[derive(Clone, Copy, Debug)]
enum MemberRange<'a> {
    Rank(i64, i64),
    Score(ScoreBound, ScoreBound),
    Member(MemberBound<'a>, MemberBound<'a>),
}

#[derive(Clone, Copy, Debug)]
struct ScoreBound {
    score: f64,
    is_exclusive: bool,
}

#[derive(Clone, Copy, Debug)]
enum MemberBound<'a> {
    /// Before all members.
    Start,
    /// Behind all members.
    End,
    At {
        member: &'a [u8],
        is_exclusive: bool,
    },
}

impl ScoreBound {
    /// As `strtod` reads it: blanks may come first, nothing is zero, a number that is too large is
    /// infinite.
    fn read(text: &[u8]) -> Option<ScoreBound> {
        let (is_exclusive, text) = match text.strip_prefix(b"(") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let score = match text {
            [] => 0.0,
            text => std::str::from_utf8(text.trim_ascii_start()).ok()?.parse::<f64>().ok()?,
        };
        (!score.is_nan()).then_some(ScoreBound { score, is_exclusive })
    }

    /// Before the scores of a range whose first it is, or behind them as the last.
    fn edge(self, is_last: bool) -> ScoreEdge<'static> {
        ScoreEdge::Score { score: self.score, is_behind: self.is_exclusive != is_last }
    }
}

impl<'a> MemberBound<'a> {
    fn read(text: &'a [u8]) -> Option<MemberBound<'a>> {
        match text {
            b"-" => Some(MemberBound::Start),
            b"+" => Some(MemberBound::End),
            [b'[', member @ ..] => Some(MemberBound::At { member, is_exclusive: false }),
            [b'(', member @ ..] => Some(MemberBound::At { member, is_exclusive: true }),
            _ => None,
        }
    }

    /// The same of members.
    fn edge(self, is_last: bool) -> ScoreEdge<'a> {
        match self {
            MemberBound::Start => ScoreEdge::Start,
            MemberBound::End => ScoreEdge::End,
            MemberBound::At { member, is_exclusive } => {
                ScoreEdge::Member { member, is_behind: is_exclusive != is_last }
            }
        }
    }
}

impl<'a> MemberRange<'a> {
    /// The one whose ends are the arguments at these places.
    fn read(call: &Call<'a>, by: RangeBy, (first, last): (usize, usize)) -> Result<MemberRange<'a>, RequestRefusal> {
        let (first_text, last_text) = (call.a.get(first), call.a.get(last));
        match by {
            RangeBy::Rank => Ok(MemberRange::Rank(call.a.integer(first)?, call.a.integer(last)?)),
            RangeBy::Score => match (ScoreBound::read(first_text), ScoreBound::read(last_text)) {
                (Some(first), Some(last)) => Ok(MemberRange::Score(first, last)),
                _ => Err(Cow::Borrowed("ERR min or max is not a float")),
            },
            RangeBy::Member => match (MemberBound::read(first_text), MemberBound::read(last_text)) {
                (Some(first), Some(last)) => Ok(MemberRange::Member(first, last)),
                _ => Err(Cow::Borrowed("ERR min or max not valid string range item")),
            },
        }
    }

    /// The places of the members in it. By member it means something only where scores are equal.
    fn places(
        self,
        at: (&dyn Records, &[u8]),
        set: &SortedSetForm<'_>,
        is_reverse: bool,
    ) -> Result<Range<usize>, RequestRefusal> {
        let (first, last) = match self {
            MemberRange::Rank(first, last) => {
                let places = list::range(first, last, set.len());
                return Ok(match is_reverse {
                    true => set.len() - places.end..set.len() - places.start,
                    false => places,
                });
            }
            MemberRange::Score(first, last) => (first.edge(false), last.edge(true)),
            MemberRange::Member(first, last) => (first.edge(false), last.edge(true)),
        };
        let (start, end) = (set.count_before(at, first)?, set.count_before(at, last)?);
        Ok(start..end.max(start))
    }
}

/// What ZRANGE and its kin ask for.
pub(super) struct RangeQuery<'a> {
    range: MemberRange<'a>,
    is_reverse: bool,
    form: EntryForm,
    /// Members that are passed over.
    offset: i64,
    /// Members that are told; below zero all.
    limit: i64,
}

/// What the name of a command says of its range.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RangeName {
    by: Option<RangeBy>,
    is_reverse: Option<bool>,
    stores: bool,
}

impl RangeName {
    /// Everything is said by arguments, and the members are stored.
    pub(super) const STORING: RangeName = RangeName { by: None, is_reverse: None, stores: true };
}

impl<'a> RangeQuery<'a> {
    /// The one in the arguments from the key at `key` on.
    pub(super) fn read(call: &Call<'a>, key: usize, name: RangeName) -> Result<RangeQuery<'a>, RequestRefusal> {
        let RangeName { mut by, mut is_reverse, stores } = name;
        let (mut form, mut offset, mut limit) = (EntryForm::Members, 0, -1);
        let mut at = key + 3;
        while at < call.a.len() {
            match () {
                () if !stores && call.a.is(at, "WITHSCORES") => form = EntryForm::Scores,
                () if call.a.is(at, "LIMIT") && at + 2 < call.a.len() => {
                    (offset, limit) = (call.a.integer(at + 1)?, call.a.integer(at + 2)?);
                    at += 2;
                }
                () if is_reverse.is_none() && call.a.is(at, "REV") => is_reverse = Some(true),
                () if by.is_none() && call.a.is(at, "BYLEX") => by = Some(RangeBy::Member),
                () if by.is_none() && call.a.is(at, "BYSCORE") => by = Some(RangeBy::Score),
                () => return Err(Cow::Borrowed(SYNTAX)),
            }
            at += 1;
        }
        let (by, is_reverse) = (by.unwrap_or(RangeBy::Rank), is_reverse.unwrap_or(false));
        if limit != -1 && by == RangeBy::Rank {
            return Err(Cow::Borrowed(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if form == EntryForm::Scores && by == RangeBy::Member {
            return Err(Cow::Borrowed("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        let ends = match is_reverse && by != RangeBy::Rank {
            true => (key + 2, key + 1),
            false => (key + 1, key + 2),
        };
        let range = MemberRange::read(call, by, ends)?;
        Ok(RangeQuery { range, is_reverse, form, offset, limit })
    }

    /// The members asked for, in the order asked for.
    pub(super) fn members<'b>(
        &self,
        at: (&dyn Records, &[u8]),
        set: &SortedSetForm<'b>,
    ) -> Result<Vec<(ElementBytes<'b>, f64)>, RequestRefusal> {
        let places = self.range.places(at, set, self.is_reverse)?;
        let is_by_rank = matches!(self.range, MemberRange::Rank(..));
        let offset = if is_by_rank { Some(0) } else { usize::try_from(self.offset).ok() };
        let limit = if is_by_rank { usize::MAX } else { usize::try_from(self.limit).unwrap_or(usize::MAX) };
        // A negative offset passes over all of them.
        let Some(offset) = offset.filter(|offset| *offset < places.len()) else { return Ok(Vec::new()) };
        let told = limit.min(places.len() - offset);
        if !self.is_reverse {
            return set.range(at, places.start + offset..places.start + offset + told);
        }
        let mut members = set.range(at, places.end - offset - told..places.end - offset)?;
        members.reverse();
        Ok(members)
    }
}

fn range(call: &Call<'_>, records: &dyn Records, name: RangeName, out: &mut Vec<u8>) -> Done {
    let query = RangeQuery::read(call, 1, name)?;
    let old = record(records, call.a.get(1))?;
    let members = query.members((records, call.a.get(1)), &SortedSetForm::of(old.as_ref())?)?;
    write_entries(call, members.iter().map(borrowed), query.form, out);
    Ok(())
}

pub(crate) fn zrange(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    range(call, records, RangeName::default(), out)
}

/// The name of a command of before Redis 6.2.
fn old_name(by: RangeBy, is_reverse: bool) -> RangeName {
    RangeName { by: Some(by), is_reverse: Some(is_reverse), stores: false }
}

pub(crate) fn zrevrange(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    range(call, records, old_name(RangeBy::Rank, true), out)
}

pub(crate) fn zrangebyscore(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    range(call, records, old_name(RangeBy::Score, false), out)
}

pub(crate) fn zrevrangebyscore(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    range(call, records, old_name(RangeBy::Score, true), out)
}

pub(crate) fn zrangebylex(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    range(call, records, old_name(RangeBy::Member, false), out)
}

pub(crate) fn zrevrangebylex(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    range(call, records, old_name(RangeBy::Member, true), out)
}

fn count(call: &Call<'_>, records: &dyn Records, by: RangeBy, out: &mut Vec<u8>) -> Done {
    let range = MemberRange::read(call, by, (2, 3))?;
    let old = record(records, call.a.get(1))?;
    let places = range.places((records, call.a.get(1)), &SortedSetForm::of(old.as_ref())?, false)?;
    encode::integer(out, places.len() as i64);
    Ok(())
}

pub(crate) fn zcount(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    count(call, records, RangeBy::Score, out)
}

pub(crate) fn zlexcount(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    count(call, records, RangeBy::Member, out)
}

fn remove(call: &Call<'_>, records: &mut dyn Records, by: RangeBy, out: &mut Vec<u8>) -> Done {
    let range = MemberRange::read(call, by, (2, 3))?;
    let old = record(records, call.a.get(1))?;
    let (mut set, key) = (SortedSetForm::of(old.as_ref())?, call.a.get(1));
    let places = range.places((records, key), &set, false)?;
    let removed = places.len();
    if removed > 0 {
        set.remove_range((records, key), places)?;
        set.store(call, (records, key), expiry(old.as_ref()))?;
    }
    encode::integer(out, removed as i64);
    Ok(())
}

pub(crate) fn zremrangebyrank(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    remove(call, records, RangeBy::Rank, out)
}

pub(crate) fn zremrangebyscore(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    remove(call, records, RangeBy::Score, out)
}

pub(crate) fn zremrangebylex(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    remove(call, records, RangeBy::Member, out)
}
