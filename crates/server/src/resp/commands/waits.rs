//! Commands that wait for an element: what they say, and one attempt to take it.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

use stratakv_protocol::resp::{encode, number};

use super::super::arguments::{Arguments, Gathered, RequestRefusal, SYNTAX};
use super::super::forms::ListEnd;
use super::super::records::{Call, Records, StoredRecord, WRONG_TYPE};
use super::super::waiting::WaitKind;
use super::counts;
use super::list_moves::{end_at, move_element};
use super::lists::{self, write_all};
use super::sorted_sets::{self, EntryForm, borrowed, write_entries};

type Done = Result<(), RequestRefusal>;

/// What is done to the key that has elements.
#[derive(Clone, Copy, Debug)]
enum WaitAction {
    Pop(ListEnd),
    Move(ListEnd, ListEnd),
    PopMany(ListEnd, usize),
    /// The greatest score, or the least.
    PopScore(bool),
    PopScores(bool, usize),
}

/// A command that waits, as it was read.
#[derive(Clone, Debug)]
pub(crate) struct WaitRequest {
    /// `None`: for ever.
    pub(crate) timeout: Option<Duration>,
    /// Where the keys are that it waits at.
    pub(crate) keys: Range<usize>,
    action: WaitAction,
}

impl WaitRequest {
    /// Reads a command that waits.
    ///
    /// # Errors
    /// Its arguments are none of it.
    pub(crate) fn read(a: Arguments<'_>) -> Result<WaitRequest, RequestRefusal> {
        let last = a.len().saturating_sub(1);
        let simple = |action, keys| Ok(WaitRequest { timeout: timeout_at(a, last)?, keys, action });
        match () {
            () if a.is(0, "BLPOP") => simple(WaitAction::Pop(ListEnd::Left), 1..last),
            () if a.is(0, "BRPOP") => simple(WaitAction::Pop(ListEnd::Right), 1..last),
            () if a.is(0, "BZPOPMIN") => simple(WaitAction::PopScore(false), 1..last),
            () if a.is(0, "BZPOPMAX") => simple(WaitAction::PopScore(true), 1..last),
            () if a.is(0, "BRPOPLPUSH") => simple(WaitAction::Move(ListEnd::Right, ListEnd::Left), 1..2),
            () if a.is(0, "BLMOVE") => simple(WaitAction::Move(end_at(a, 3)?, end_at(a, 4)?), 1..2),
            () => WaitRequest::read_numbered(a),
        }
    }

    /// BLMPOP and BZMPOP.
    fn read_numbered(a: Arguments<'_>) -> Result<WaitRequest, RequestRefusal> {
        let timeout = timeout_at(a, 1)?;
        let keys = counts::numbered_keys_of(a, 2, SYNTAX)?;
        let is_of_lists = a.is(0, "BLMPOP");
        let end = if is_of_lists { Some(end_at(a, keys.end)?) } else { None };
        if !is_of_lists && !a.is(keys.end, "MIN") && !a.is(keys.end, "MAX") {
            return Err(Cow::Borrowed(SYNTAX));
        }
        let count = match a.len() - keys.end {
            1 => 1,
            3 if a.is(keys.end + 1, "COUNT") => {
                counts::from_one(a.get(keys.end + 2), "ERR count should be greater than 0")?
            }
            _ => return Err(Cow::Borrowed(SYNTAX)),
        };
        let action = match end {
            Some(end) => WaitAction::PopMany(end, count),
            None => WaitAction::PopScores(a.is(keys.end, "MAX"), count),
        };
        Ok(WaitRequest { timeout, keys, action })
    }

    /// What it waits for.
    pub(crate) fn kind(&self) -> WaitKind {
        match self.action {
            WaitAction::Pop(_) | WaitAction::Move(..) | WaitAction::PopMany(..) => WaitKind::List,
            WaitAction::PopScore(_) | WaitAction::PopScores(..) => WaitKind::SortedSet,
        }
    }

    /// Whether it changes a second key.
    pub(crate) fn moves(&self) -> bool {
        matches!(self.action, WaitAction::Move(..))
    }

    /// The same command with one of its keys.
    pub(crate) fn of_key(&self, a: Arguments<'_>, key: &[u8]) -> Gathered {
        let mut one = Gathered::default();
        let has_count = matches!(self.action, WaitAction::PopMany(..) | WaitAction::PopScores(..));
        let before = if has_count { 2 } else { 1 };
        a.from(0).take(before).for_each(|argument| one.push(argument));
        if has_count {
            one.push(b"1");
        }
        one.push(key);
        a.from(self.keys.end).for_each(|argument| one.push(argument));
        one
    }
}

/// The time for which a client waits; 0 is for ever.
fn timeout_at(a: Arguments<'_>, at: usize) -> Result<Option<Duration>, RequestRefusal> {
    let seconds = number::double(a.get(at)).ok_or(Cow::Borrowed("ERR timeout is not a float or out of range"))?;
    let millis = (seconds * 1000.0).ceil();
    match millis {
        millis if millis < 0.0 => Err(Cow::Borrowed("ERR timeout is negative")),
        0.0 => Ok(None),
        millis if millis >= i64::MAX as f64 => Err(Cow::Borrowed("ERR timeout is out of range")),
        millis => Ok(Some(Duration::from_millis(millis as u64))),
    }
}

/// The record that elements are taken off. A client that has waited does not see those of another
/// type: it waits until there is one of its own.
fn source(
    found: Result<Option<StoredRecord>, RequestRefusal>,
    has_waited: bool,
) -> Result<Option<StoredRecord>, RequestRefusal> {
    match found {
        Err(why) if has_waited && why == WRONG_TYPE => Ok(None),
        found => found,
    }
}

/// Takes what there is; nothing: the reply is null.
pub(crate) fn attempt(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    try_keys(call, records, false, out)
}

/// The same for a client that has waited.
pub(crate) fn attempt_again(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    try_keys(call, records, true, out)
}

fn try_keys(call: &Call<'_>, records: &mut dyn Records, has_waited: bool, out: &mut Vec<u8>) -> Done {
    let request = WaitRequest::read(call.a)?;
    if let WaitAction::Move(from, to) = request.action {
        return match source(lists::record(records, call.a.get(1)), has_waited)? {
            Some(_) => move_element(call, records, (from, to), out),
            None => {
                encode::null(out, call.version);
                Ok(())
            }
        };
    }
    for at in request.keys {
        let key = call.a.get(at);
        let found = match request.action {
            WaitAction::PopScore(_) | WaitAction::PopScores(..) => sorted_sets::record(records, key),
            _ => lists::record(records, key),
        };
        if let Some(old) = source(found, has_waited)? {
            return take(call, records, (key, &old), request.action, out);
        }
    }
    encode::null_array(out, call.version);
    Ok(())
}

/// Takes elements off a record, which has some.
fn take(
    call: &Call<'_>,
    records: &mut dyn Records,
    (key, old): (&[u8], &StoredRecord),
    action: WaitAction,
    out: &mut Vec<u8>,
) -> Done {
    match action {
        WaitAction::Pop(end) | WaitAction::Move(end, _) => lists::take(call, records, (key, old), (end, 1), |taken| {
            encode::array(out, 2);
            encode::bulk(out, key);
            encode::bulk(out, taken.first().map_or(&b""[..], |element| element));
        }),
        WaitAction::PopMany(end, count) => lists::take(call, records, (key, old), (end, count), |taken| {
            encode::array(out, 2);
            encode::bulk(out, key);
            write_all(taken, out);
        }),
        WaitAction::PopScore(takes_greatest) => {
            sorted_sets::take(call, records, (key, old), (takes_greatest, 1), |taken| {
                let (member, score) = taken.first().map(borrowed).unwrap_or_default();
                encode::array(out, 3);
                encode::bulk(out, key);
                encode::bulk(out, member);
                encode::double(out, score, call.version);
            })
        }
        WaitAction::PopScores(takes_greatest, count) => {
            sorted_sets::take(call, records, (key, old), (takes_greatest, count), |taken| {
                encode::array(out, 2);
                encode::bulk(out, key);
                write_entries(call, taken.iter().map(borrowed), EntryForm::Pairs, out);
            })
        }
    }
}
