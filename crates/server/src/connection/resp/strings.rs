//! Commands of strings.

use std::borrow::Cow;
use std::collections::HashMap;

use bytes::Bytes;
use stratakv_base::{Expiry, Key, Wall};
use stratakv_engine::{Change, ChangeKind, Expect};
use stratakv_protocol::memcache::StoreMode;
use stratakv_protocol::resp::{encode, number};

use super::{Connection, Context, Handled, MoreKeys};
use crate::answer::Answer;
use crate::connection::hash;
use crate::pending::Access;
use crate::request::Action;
use crate::resp::{
    Arguments, Batch, EachPut, Edit, EditRule, HeadQuestion, KeyList, NOT_AN_INTEGER, RangeRead, RequestRefusal,
    SYNTAX, Said, Session, Work, WorkKind, written,
};

/// Reads a value.
pub(super) const GET: Action = Action::Get { value: true, touch: None, vivify: None, before: false, told: false };
/// Most keys of MSET and MSETNX.
const BATCH_KEYS_MAX: usize = 16_384;
/// What a change of a batch takes beside its value.
const CHANGE_BYTES: u64 = 160;

/// What SET, GETEX and their kin say beside key and value.
#[derive(Debug, Default)]
struct Options {
    /// `None`: not said.
    expiry: Option<Expiry>,
    keeps_expiry: bool,
    only_if_absent: bool,
    only_if_present: bool,
    wants_old: bool,
    persists: bool,
}

/// Which of them a command has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OptionsOf {
    Set,
    Getex,
}

impl Options {
    fn read(arguments: &Arguments<'_>, from: usize, of: OptionsOf, wall: Wall) -> Result<Options, RequestRefusal> {
        let (mut options, mut at) = (Options::default(), from);
        let is_set = of == OptionsOf::Set;
        while at < arguments.len() {
            let is = |word| arguments.is(at, word);
            let unit = [("EX", true, false), ("PX", false, false), ("EXAT", true, true), ("PXAT", false, true)];
            match () {
                () if is_set && is("NX") => options.only_if_absent = true,
                () if is_set && is("XX") => options.only_if_present = true,
                () if is_set && is("GET") => options.wants_old = true,
                () if is_set && is("KEEPTTL") => options.keeps_expiry = true,
                () if !is_set && is("PERSIST") => options.persists = true,
                () => {
                    let unit = unit.iter().find(|(word, ..)| is(word)).ok_or(Cow::Borrowed(SYNTAX))?;
                    if options.expiry.is_some() || at + 1 >= arguments.len() {
                        return Err(Cow::Borrowed(SYNTAX));
                    }
                    let command = if is_set { "set" } else { "getex" };
                    at += 1;
                    let (_, in_seconds, is_absolute) = *unit;
                    let number = arguments.integer(at)?;
                    options.expiry = Some(positive_expiry(number, in_seconds, is_absolute, wall, command)?);
                }
            }
            at += 1;
        }
        let times = [options.expiry.is_some(), options.keeps_expiry, options.persists];
        let has_both = options.only_if_absent && options.only_if_present;
        match has_both || times.iter().filter(|is_said| **is_said).count() > 1 {
            true => Err(Cow::Borrowed(SYNTAX)),
            false => Ok(options),
        }
    }
}

/// When a record expires that gets this time, by commands to which a time that is over is an error.
fn positive_expiry(
    number: i64,
    in_seconds: bool,
    is_absolute: bool,
    wall: Wall,
    command: &str,
) -> Result<Expiry, RequestRefusal> {
    if number <= 0 {
        return Err(invalid_expiry(command));
    }
    expiry_of(number, in_seconds, is_absolute, wall, command)
}

fn invalid_expiry(command: &str) -> RequestRefusal {
    Cow::Owned(format!("ERR invalid expire time in '{command}' command"))
}

/// The same, where it may be over: the record is gone then.
pub(super) fn expiry_of(
    number: i64,
    in_seconds: bool,
    is_absolute: bool,
    wall: Wall,
    command: &str,
) -> Result<Expiry, RequestRefusal> {
    let millis = i128::from(number) * if in_seconds { 1000 } else { 1 };
    if millis < i128::from(i64::MIN) {
        return Err(invalid_expiry(command));
    }
    let at = millis + if is_absolute { 0 } else { i128::from(wall.0) };
    match u64::try_from(at.max(1)) {
        Ok(at) if at <= Expiry::MAX.0 => Ok(Expiry(at)),
        _ => Err(Cow::Owned(format!(
            "ERR invalid expire time in '{command}' command: the latest that is kept is in the year 2106"
        ))),
    }
}

impl Connection {
    pub(super) fn resp_get(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let key = a.key(1)?;
        context.counters.cmd_get.add(1);
        self.ask_resp(key, GET, Said::Value, s, context);
        Ok(())
    }

    pub(super) fn resp_strlen(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        self.look(a.key(1)?, HeadQuestion::Length, (s, context));
        Ok(())
    }

    pub(super) fn resp_set(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let key = a.key(1)?;
        let options = Options::read(a, 3, OptionsOf::Set, context.wall)?;
        let expiry = options.expiry.unwrap_or(Expiry::NEVER);
        let mode = match (options.only_if_absent, options.only_if_present) {
            (true, _) => StoreMode::Add,
            (_, true) => StoreMode::Replace,
            _ => StoreMode::Set,
        };
        // What is made new has no expiry to keep.
        let keeps = options.keeps_expiry && !options.only_if_absent;
        if !options.wants_old && !keeps {
            return self.store_value(key, a.bytes(2), (mode, expiry), false, (s, context));
        }
        let value = a.bytes(2);
        if options.only_if_absent {
            let made = Some((value, expiry));
            self.edit(key, Edit::Look, made, (s, context));
            return Ok(());
        }
        let edit = Edit::Replace {
            value,
            expiry: if keeps { None } else { Some(expiry) },
            wants_old: options.wants_old,
            only_if_present: options.only_if_present,
        };
        self.edit(key, edit, None, (s, context));
        Ok(())
    }

    pub(super) fn resp_setnx(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        self.store_value(a.key(1)?, a.bytes(2), (StoreMode::Add, Expiry::NEVER), true, (s, context))
    }

    pub(super) fn resp_setex(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let expiry = positive_expiry(a.integer(2)?, true, false, context.wall, "setex")?;
        self.store_value(a.key(1)?, a.bytes(3), (StoreMode::Set, expiry), false, (s, context))
    }

    pub(super) fn resp_psetex(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let expiry = positive_expiry(a.integer(2)?, false, false, context.wall, "psetex")?;
        self.store_value(a.key(1)?, a.bytes(3), (StoreMode::Set, expiry), false, (s, context))
    }

    /// A write of one operation; `counts`: its reply is a number.
    fn store_value(
        &mut self,
        key: Key,
        value: Bytes,
        (mode, expiry): (StoreMode, Expiry),
        counts: bool,
        (session, context): (&Session, &mut Context<'_>),
    ) -> Handled {
        context.counters.cmd_set.add(1);
        let said = Said::Stored { bytes: value.len() as u64, expiry, counts };
        let action = Action::Store { mode, value, flags: 0, expiry, late: false, vivify: None, sized: false };
        self.ask_resp(key, action, said, session, context);
        Ok(())
    }

    /// A change of one record at its owner.
    pub(super) fn edit(
        &mut self,
        key: Key,
        edit: Edit,
        creates_first: Option<(Bytes, Expiry)>,
        (session, context): (&Session, &mut Context<'_>),
    ) {
        let value_bytes_max = usize::try_from(self.client.item_bytes_max).unwrap_or(usize::MAX);
        let rule = EditRule::new(edit, value_bytes_max);
        let made = creates_first.as_ref().map_or(0, |(value, _)| value.len() as u64);
        let writing_bytes = stratakv_engine::RecordEdit::value_bytes(&rule).min(value_bytes_max as u64) + made;
        let reading_bytes = if rule.takes_old() { value_bytes_max as u64 } else { 0 };
        let access = Access::Alone(hash(&key));
        let work = Work::edit(key, rule, creates_first, session.version);
        self.begin_work(work, access, (reading_bytes, writing_bytes), context);
    }

    pub(super) fn resp_getset(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        context.counters.cmd_set.add(1);
        let (value, expiry) = (a.bytes(2), Some(Expiry::NEVER));
        let edit = Edit::Replace { value, expiry, wants_old: true, only_if_present: false };
        self.edit(a.key(1)?, edit, None, (s, context));
        Ok(())
    }

    pub(super) fn resp_getdel(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        self.edit(a.key(1)?, Edit::Remove, None, (s, context));
        Ok(())
    }

    pub(super) fn resp_getex(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let key = a.key(1)?;
        let options = Options::read(a, 2, OptionsOf::Getex, context.wall)?;
        match if options.persists { Some(Expiry::NEVER) } else { options.expiry } {
            None => {
                context.counters.cmd_get.add(1);
                self.ask_resp(key, GET, Said::Value, s, context);
            }
            Some(expiry) => {
                context.counters.cmd_touch.add(1);
                self.edit(key, Edit::GetExpire(expiry), None, (s, context));
            }
        }
        Ok(())
    }

    pub(super) fn resp_append(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        context.counters.cmd_set.add(1);
        self.edit(a.key(1)?, Edit::Append(a.bytes(2)), None, (s, context));
        Ok(())
    }

    pub(super) fn resp_setrange(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let (key, offset) = (a.key(1)?, a.integer(2)?);
        let offset = usize::try_from(offset).map_err(|_| Cow::Borrowed("ERR offset is out of range"))?;
        context.counters.cmd_set.add(1);
        self.edit(key, Edit::SetRange { offset, value: a.bytes(3) }, None, (s, context));
        Ok(())
    }

    pub(super) fn resp_getrange(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let (key, range) = (a.key(1)?, (a.integer(2)?, a.integer(3)?));
        context.counters.cmd_get.add(1);
        let bytes_max = usize::try_from(self.client.item_bytes_max).unwrap_or(usize::MAX);
        let (first, last) = range;
        let is_known = first >= 0 && last >= first;
        let asked = if is_known { last.abs_diff(first).saturating_add(1) } else { u64::MAX };
        let access = Access::Read(hash(&key));
        let work = Work::new(WorkKind::Range(RangeRead::new(key, range, bytes_max)), s.version);
        self.begin_work(work, access, (asked.min(bytes_max as u64), 0), context);
        Ok(())
    }

    pub(super) fn resp_incr(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        self.add(a, 1, (s, context))
    }

    pub(super) fn resp_decr(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        self.add(a, -1, (s, context))
    }

    pub(super) fn resp_incrby(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        self.add(a, a.integer(2)?, (s, context))
    }

    pub(super) fn resp_decrby(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let delta = a.integer(2)?.checked_neg().ok_or(Cow::Borrowed("ERR decrement would overflow"))?;
        self.add(a, delta, (s, context))
    }

    fn add(&mut self, a: &Arguments<'_>, delta: i64, (s, context): (&Session, &mut Context<'_>)) -> Handled {
        self.edit(a.key(1)?, Edit::Add(delta), None, (s, context));
        Ok(())
    }

    pub(super) fn resp_incrbyfloat(
        &mut self,
        a: &Arguments<'_>,
        s: &mut Session,
        context: &mut Context<'_>,
    ) -> Handled {
        let (key, delta) = (a.key(1)?, a.bytes(2));
        if !number::is_float(&delta) {
            return Err(Cow::Borrowed("ERR value is not a valid float"));
        }
        self.edit(key, Edit::AddFloat(delta), None, (s, context));
        Ok(())
    }

    pub(super) fn resp_mget(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let keys = KeyList::of(a, 1, 1)?;
        self.answer(Answer::Written(written(|out| encode::array(out, a.len() - 1))), false);
        self.next_resp_key(Box::new(MoreKeys { keys, version: s.version }), context);
        Ok(())
    }

    pub(super) fn resp_mset(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        self.set_many(a, false, (s, context))
    }

    pub(super) fn resp_msetnx(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        self.set_many(a, true, (s, context))
    }

    fn set_many(
        &mut self,
        a: &Arguments<'_>,
        is_conditional: bool,
        (session, context): (&Session, &mut Context<'_>),
    ) -> Handled {
        let name = if is_conditional { "msetnx" } else { "mset" };
        if a.len().is_multiple_of(2) {
            return Err(super::table::wrong_count(name));
        }
        if a.len() / 2 > BATCH_KEYS_MAX {
            return Err(Cow::Owned(format!("ERR {name} takes up to {BATCH_KEYS_MAX} keys: send them in parts")));
        }
        let changes = changes(a, is_conditional)?;
        if is_conditional && context.is_cache && changes.len() > 1 {
            return Err(Cow::Borrowed(
                "ERR the engine `tier` has no batches, so MSETNX of several keys cannot be all or nothing: use SETNX",
            ));
        }
        context.counters.cmd_set.add(changes.len() as u64);
        let value_bytes = |change: &Change| match &change.kind {
            ChangeKind::Put { value, .. } => CHANGE_BYTES + value.len() as u64,
            _ => 0,
        };
        let writing_bytes = changes.iter().map(value_bytes).sum();
        let kind = match context.is_cache && changes.len() > 1 {
            true => WorkKind::Each(EachPut::new(changes, KeyList::of(a, 1, 2)?)),
            false => WorkKind::Batch(Batch { changes, keys: KeyList::of(a, 1, 2)?, is_conditional }),
        };
        let work = Work::new(kind, session.version);
        self.begin_work(work, Access::Everything, (0, writing_bytes), context);
        Ok(())
    }
}

/// The changes of MSET; of a key that comes twice the last value counts.
fn changes(a: &Arguments<'_>, is_conditional: bool) -> Result<Vec<Change>, RequestRefusal> {
    let expect = if is_conditional { Expect::Absent } else { Expect::Any };
    let mut places: HashMap<&[u8], usize> = HashMap::with_capacity(a.len() / 2);
    let mut changes: Vec<Change> = Vec::with_capacity(a.len() / 2);
    for at in (1..a.len()).step_by(2) {
        let kind = ChangeKind::Put { value: a.bytes(at + 1), flags: 0, expiry: Expiry::NEVER };
        let change = Change { key: a.key(at)?, expect, kind };
        match places.get(a.get(at)).and_then(|place| changes.get_mut(*place)) {
            Some(earlier) => *earlier = change,
            None => {
                places.insert(a.get(at), changes.len());
                changes.push(change);
            }
        }
    }
    Ok(changes)
}

/// A number that is none.
pub(super) fn not_an_integer() -> RequestRefusal {
    Cow::Borrowed(NOT_AN_INTEGER)
}
