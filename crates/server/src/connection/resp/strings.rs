//! Commands of strings.

use std::borrow::Cow;
use std::collections::HashMap;

use bytes::Bytes;
use stratakv_base::{Expiry, Key};
use stratakv_engine::{Change, ChangeKind, Expect};
use stratakv_protocol::memcache::StoreMode;
use stratakv_protocol::resp::encode;

use super::{Connection, Context, Handled};
use crate::answer::Answer;
use crate::connection::hash;
use crate::connection::more_keys::{MoreForm, MoreKeys};
use crate::pending::Access;
use crate::request::Action;
use crate::resp::commands::options::{Options, OptionsOf, positive_expiry};
use crate::resp::commands::strings;
use crate::resp::{
    Arguments, Batch, EachPut, Edit, EditRule, HeadQuestion, KeyList, NOT_AN_INTEGER, RangeRead, RequestRefusal, Said,
    Session, Work, WorkKind, written,
};

/// Reads a value.
pub(in crate::connection) const GET: Action =
    Action::Get { value: true, touch: None, vivify: None, before: false, told: false };
/// Most keys of MSET and MSETNX.
const BATCH_KEYS_MAX: usize = 16_384;
/// What a change of a batch takes beside its value.
const CHANGE_BYTES: u64 = 160;

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
            self.edit(key, Edit::Make { value, expiry }, (s, context));
            return Ok(());
        }
        let edit = Edit::Replace {
            value,
            expiry: if keeps { None } else { Some(expiry) },
            wants_old: options.wants_old,
            only_if_present: options.only_if_present,
        };
        self.edit(key, edit, (s, context));
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
    pub(super) fn edit(&mut self, key: Key, edit: Edit, (session, context): (&Session, &mut Context<'_>)) {
        let value_bytes_max = usize::try_from(self.client.item_bytes_max).unwrap_or(usize::MAX);
        let rule = EditRule::new(edit, value_bytes_max);
        let writing_bytes = stratakv_engine::RecordEdit::value_bytes(&rule).min(value_bytes_max as u64);
        let reading_bytes = if rule.takes_old() { value_bytes_max as u64 } else { 0 };
        let access = Access::Alone(hash(&key));
        let work = Work::edit(key, rule, session.version);
        self.begin_work(work, access, (reading_bytes, writing_bytes), context);
    }

    pub(super) fn resp_getset(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        context.counters.cmd_set.add(1);
        let (value, expiry) = (a.bytes(2), Some(Expiry::NEVER));
        let edit = Edit::Replace { value, expiry, wants_old: true, only_if_present: false };
        self.edit(a.key(1)?, edit, (s, context));
        Ok(())
    }

    pub(super) fn resp_getdel(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        self.edit(a.key(1)?, Edit::Remove, (s, context));
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
                self.edit(key, Edit::GetExpire(expiry), (s, context));
            }
        }
        Ok(())
    }

    pub(super) fn resp_append(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        context.counters.cmd_set.add(1);
        self.edit(a.key(1)?, Edit::Append(a.bytes(2)), (s, context));
        Ok(())
    }

    pub(super) fn resp_setrange(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let key = a.key(1)?;
        let edit = strings::set_range(a)?;
        context.counters.cmd_set.add(1);
        self.edit(key, edit, (s, context));
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

    /// INCR, DECR, INCRBY, DECRBY and INCRBYFLOAT.
    pub(super) fn resp_add(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let key = a.key(1)?;
        self.edit(key, strings::addition(a)?, (s, context));
        Ok(())
    }

    pub(super) fn resp_mget(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let keys = KeyList::of(a, 1, 1)?;
        self.answer(Answer::Written(written(|out| encode::array(out, a.len() - 1))), false);
        self.next_of_more(MoreKeys::new(keys, MoreForm::Values(s.version)), context);
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
