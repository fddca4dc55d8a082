//! Commands of keys, whatever their type.

use std::borrow::Cow;
use std::sync::Arc;

use stratakv_base::Key;
use stratakv_protocol::resp::{glob, number};
use stratakv_structures::Kind;

use super::strings::not_an_integer;
use super::table::CommandSpec;
use super::{Connection, Context, Handled};
use crate::answer::FlushWords;
use crate::connection::hash;
use crate::pending::{Access, ParsedCommand, ServerQuestion};
use crate::request::Action;
use crate::resp::commands::{self, options, sort};
use crate::resp::{
    Arguments, Counted, DataCommand, Edit, ExpireIf, HeadQuestion, HeadRead, KeyCount, KeyList, ManyWork, RandomKey,
    RequestRefusal, SYNTAX, Said, Session, Walk, WalkKind, Work, WorkKind,
};
use crate::walk::WalkPlace;

/// What is known of a record, without its value.
pub(super) const LOOK: Action = Action::Get { value: false, touch: None, vivify: None, before: false, told: false };
/// Keys that SCAN looks at if it is not told how many.
const SCAN_COUNT: u32 = 10;

impl Connection {
    pub(super) fn resp_del(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        if a.len() == 2 {
            self.ask_resp(a.key(1)?, Action::Delete, Said::Deleted, s, context);
            return Ok(());
        }
        self.count(a, Counted::Deleted, (s, context))
    }

    /// EXISTS and TOUCH.
    pub(super) fn resp_exists(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        if a.len() == 2 {
            self.ask_resp(a.key(1)?, LOOK, Said::Exists, s, context);
            return Ok(());
        }
        self.count(a, Counted::Present, (s, context))
    }

    fn count(&mut self, a: &Arguments<'_>, counted: Counted, (s, context): (&Session, &mut Context<'_>)) -> Handled {
        let keys = KeyList::of(a, 1, 1)?;
        let work = Work::new(WorkKind::Count(KeyCount::new(keys, counted)), s.version);
        self.begin_work(work, Access::Everything, (0, 0), context);
        Ok(())
    }

    pub(super) fn resp_type(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        self.look(a.key(1)?, HeadQuestion::Type, (s, context));
        Ok(())
    }

    pub(super) fn resp_object(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let question = match () {
            () if a.is(1, "ENCODING") => HeadQuestion::Encoding,
            () if a.is(1, "REFCOUNT") => HeadQuestion::References,
            () if a.is(1, "IDLETIME") => HeadQuestion::IdleTime,
            () if a.is(1, "FREQ") => HeadQuestion::Frequency,
            () if a.is(1, "HELP") && a.len() == 2 => return self.help("object"),
            () => return Err(super::table::unsupported_part("object", a)),
        };
        if a.len() != 3 {
            let name = String::from_utf8_lossy(a.get(1)).to_ascii_lowercase();
            return Err(super::table::wrong_count(&format!("object|{name}")));
        }
        self.look(a.key(2)?, question, (s, context));
        Ok(())
    }

    pub(super) fn resp_memory(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        match () {
            () if a.is(1, "HELP") && a.len() == 2 => return self.help("memory"),
            () if !a.is(1, "USAGE") => return Err(super::table::unsupported_part("memory", a)),
            () if a.len() < 3 => return Err(super::table::wrong_count("memory|usage")),
            () if a.len() == 3 => {}
            // How many elements are looked at: one of each level of a tree in any case.
            () if a.len() == 5 && a.is(3, "SAMPLES") => _ = a.integer(4)?,
            () => return Err(Cow::Borrowed(SYNTAX)),
        }
        let (key, settings, limits) = (a.key(2)?, self.call_settings(s, context), self.many_limits(context));
        let data = Arc::new(DataCommand::new(commands::keys::memory_usage, a));
        let of_tree = ManyWork::on_one_tree(data, key.clone(), settings, limits, false);
        let head = HeadRead { of_tree: Some(Box::new(of_tree)), ..HeadRead::new(key, HeadQuestion::Memory) };
        self.look_by(head, (s, context));
        Ok(())
    }

    pub(super) fn resp_randomkey(&mut self, _: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let seed = s.draw(context.server.client_id(), context.wall);
        // Of `tier` a cursor is a tag, and of `hash` a hash.
        let cursor_bits = if context.is_cache { 40 } else { u64::BITS };
        let work = Work::new(WorkKind::Random(RandomKey::new(seed, cursor_bits)), s.version);
        self.begin_work(work, Access::Everything, (0, 0), context);
        Ok(())
    }

    /// Asks what is known of a record without its value.
    pub(super) fn look(&mut self, key: Key, question: HeadQuestion, (s, context): (&Session, &mut Context<'_>)) {
        self.look_by(HeadRead::new(key, question), (s, context));
    }

    fn look_by(&mut self, head: HeadRead, (s, context): (&Session, &mut Context<'_>)) {
        let access = Access::Read(hash(&head.key));
        let work = Work::new(WorkKind::Head(head), s.version);
        self.begin_work(work, access, (0, 0), context);
    }

    /// SORT: at the owner of the key only if the result is stored.
    pub(super) fn resp_sort(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let name: &[u8] = if sort::stored_at(a).is_some() { b"sort" } else { b"sort_ro" };
        let command = CommandSpec::find(name).ok_or_else(|| super::table::unknown(a))?;
        self.data_command(command, sort::sort, a, (s, context))
    }

    pub(super) fn resp_ttl(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let (in_seconds, is_absolute) = options::ttl_said(a);
        self.ask_resp(a.key(1)?, LOOK, Said::Ttl { in_seconds, is_absolute }, s, context);
        Ok(())
    }

    /// EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT.
    pub(super) fn resp_expire(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let key = a.key(1)?;
        let (expiry, only_if) = options::expiry_said(a, context.wall)?;
        context.counters.cmd_touch.add(1);
        if only_if == ExpireIf::default() {
            let touch = Some(expiry);
            let action = Action::Get { value: false, touch, vivify: None, before: false, told: false };
            self.ask_resp(key, action, Said::Touched, s, context);
        } else {
            self.edit(key, Edit::Expire { expiry, only_if }, (s, context));
        }
        Ok(())
    }

    pub(super) fn resp_persist(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        self.edit(a.key(1)?, Edit::Persist, (s, context));
        Ok(())
    }

    pub(super) fn resp_scan(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let cursor = std::str::from_utf8(a.get(1)).ok().and_then(|text| text.parse::<u64>().ok());
        let cursor = cursor.ok_or(Cow::Borrowed("ERR invalid cursor"))?;
        let (mut wanted, mut pattern, mut kind) = (SCAN_COUNT, None, None);
        for at in (2..a.len()).step_by(2) {
            match () {
                () if at + 1 >= a.len() => return Err(Cow::Borrowed(SYNTAX)),
                () if a.is(at, "COUNT") => wanted = scan_count(a.get(at + 1))?,
                () if a.is(at, "MATCH") => pattern = Some(pattern_of(a.get(at + 1))?),
                () if a.is(at, "TYPE") => kind = Some(kind_named(a.get(at + 1))),
                () => return Err(Cow::Borrowed(SYNTAX)),
            }
        }
        let place = match cursor {
            0 => Some(WalkPlace::start()),
            cursor => context.resp.cursors.place(cursor),
        };
        let place =
            place.ok_or(Cow::Borrowed("ERR invalid cursor: it is not known, or too old; begin again with 0"))?;
        self.walk(Walk::new(WalkKind::Scan { cursor, wanted, kind }, place, pattern), (s, context));
        Ok(())
    }

    pub(super) fn resp_keys(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let pattern = Some(pattern_of(a.get(1))?);
        self.walk(Walk::new(WalkKind::Keys, WalkPlace::start(), pattern), (s, context));
        Ok(())
    }

    fn walk(&mut self, walk: Walk, (s, context): (&Session, &mut Context<'_>)) {
        let work = Work::new(WorkKind::Walk(walk), s.version);
        self.begin_work(work, Access::Everything, (0, 0), context);
    }

    pub(super) fn resp_dbsize(&mut self, _: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        self.begin(ParsedCommand::Question(ServerQuestion::Records, s.version), context);
        Ok(())
    }

    /// FLUSHDB and FLUSHALL: there is one database.
    pub(super) fn resp_flush(&mut self, a: &Arguments<'_>, _: &mut Session, context: &mut Context<'_>) -> Handled {
        if a.len() > 2 || (a.len() == 2 && !a.is(1, "ASYNC") && !a.is(1, "SYNC")) {
            return Err(Cow::Borrowed(SYNTAX));
        }
        self.begin(ParsedCommand::Flush { delay: 0, noreply: false, words: FlushWords::Resp }, context);
        Ok(())
    }
}

/// The type of this name; `None`: there is none.
fn kind_named(name: &[u8]) -> Option<Kind> {
    let kinds = [Kind::String, Kind::Hash, Kind::List, Kind::Set, Kind::SortedSet];
    kinds.into_iter().find(|kind| kind.name().as_bytes().eq_ignore_ascii_case(name))
}

fn scan_count(text: &[u8]) -> Result<u32, RequestRefusal> {
    match number::integer(text) {
        None => Err(not_an_integer()),
        Some(..=0) => Err(Cow::Borrowed(SYNTAX)),
        Some(count) => Ok(u32::try_from(count).unwrap_or(u32::MAX)),
    }
}

fn pattern_of(pattern: &[u8]) -> Result<Vec<u8>, RequestRefusal> {
    match pattern.len() > glob::PATTERN_BYTES_MAX {
        true => Err(Cow::Owned(format!("ERR a pattern has at most {} bytes", glob::PATTERN_BYTES_MAX))),
        false => Ok(pattern.to_vec()),
    }
}
