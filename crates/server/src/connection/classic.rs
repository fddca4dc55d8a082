//! The text commands: each becomes a request of a key, or several.

use bytes::Bytes;
use stratakv_base::{CollectionId, Expiry, Key};
use stratakv_protocol::memcache::{Body, Command, Keys, Meta, MetaRange, Store, StoreMode, Verb, expiry, reply};

use super::more_keys::MoreForm;
use super::{Connection, Context, Header, Rest, Storing};
use crate::answer::{Answer, Dialect, FlushWords};
use crate::credentials::ATTEMPT_BYTES_MAX;
use crate::meta;
use crate::pending::ParsedCommand;
use crate::request::{Action, Request};
use crate::resp::{KeyRange, RangeForm, bounds};
use crate::schedule::{ATTEMPT_ERRORS, ATTEMPT_UNITS};

impl Connection {
    /// Whether the client has yet to say who it is.
    pub(super) fn is_stranger(&self, context: &Context<'_>) -> bool {
        context.accounts.is_some() && !self.client.admitted
    }

    /// A command of such a client: a set of any key says by its value who it is.
    pub(super) fn strange_command(&mut self, command: &Command<'_>, context: &mut Context<'_>) {
        match command {
            Command::Store(Store { verb: Verb::Set, data_bytes: data_bytes @ ..=ATTEMPT_BYTES_MAX, .. }) => {
                self.unfinished.storing = Some(Storing::new(Header::Account, Body::new(*data_bytes)));
            }
            Command::Version | Command::Quit => self.command(command, context),
            _ => {
                self.client.errors += 1;
                self.answer(Answer::Text(reply::UNAUTHENTICATED), false);
            }
        }
    }

    /// The value of such a set.
    pub(super) fn account(&mut self, value: &[u8], context: &mut Context<'_>) {
        context.counters.auth_cmds.add(1);
        self.grant.spend(ATTEMPT_UNITS);
        self.client.admitted = context.accounts.is_none_or(|accounts| accounts.now().admit_text(value));
        context.counters.auth_errors.add(u64::from(!self.client.admitted));
        self.client.errors += if self.client.admitted { 0 } else { ATTEMPT_ERRORS };
        let reply = if self.client.admitted { reply::STORED } else { reply::AUTHENTICATION_FAILURE };
        self.answer(Answer::Text(reply), false);
    }

    pub(super) fn command(&mut self, command: &Command<'_>, context: &mut Context<'_>) {
        let held = match *command {
            Command::Get { keys, cas, touch } => return self.get(keys, cas, touch, context),
            Command::Store(ref store) => return self.store(store),
            Command::Delete { key, noreply } => {
                return self.change(key, Action::Delete, Answer::Deleted, noreply, context);
            }
            Command::Arithmetic { key, delta, decrement, noreply } => {
                let action = Action::Arithmetic { decrement, delta, initial: None, touch: None, expiry: false };
                return self.change(key, action, |key| Answer::Number { decrement, key }, noreply, context);
            }
            Command::Touch { key, exptime, noreply } => {
                context.counters.cmd_touch.add(1);
                let touch = Some(expiry(exptime, context.wall));
                let action = Action::Get { value: false, touch, vivify: None, before: false, told: false };
                return self.change(key, action, Answer::Touched, noreply, context);
            }
            Command::FlushAll { delay, noreply } => ParsedCommand::Flush { delay, noreply, words: FlushWords::Text },
            Command::Detail(what) => ParsedCommand::Detail(what, None),
            Command::Stats(which) => ParsedCommand::Statistics(which, None),
            Command::Backup { name } => ParsedCommand::Backup(name.to_owned()),
            // It has nothing to do with the keys of the commands before.
            Command::Collections(asked) => {
                return self.answer(Answer::Written(context.server.collections(&asked)), false);
            }
            Command::Version => {
                let mut text = Vec::new();
                reply::version(&mut text, context.server.version());
                return self.answer(Answer::Written(text), false);
            }
            Command::Verbosity { noreply } => return self.answer(Answer::Text(reply::OK), noreply),
            Command::Meta(ref meta) => return self.meta(meta, context),
            Command::MetaRange(ref range) => return self.meta_range(range, context),
            Command::MetaNoop => return self.answer(Answer::Text(reply::META_NOOP), false),
            Command::MemoryLimit { mebibytes, noreply } => {
                let accepted = context.server.limit_memory(u64::from(mebibytes) << 20);
                let reply = if accepted { reply::OK } else { reply::MEMORY_FIXED };
                return self.answer(Answer::Text(reply), noreply);
            }
            Command::RefreshCertificates => {
                return self.answer(Answer::Written(context.server.refresh_certificates()), false);
            }
            Command::Answered { reply, noreply } => return self.answer(Answer::Text(reply), noreply),
            Command::Dump(kind) => ParsedCommand::Dump(kind),
            Command::Watch(kinds) => ParsedCommand::Watch(kinds),
            Command::Shutdown { valid } => return self.shutdown(valid, context),
            Command::Quit => {
                self.ending.closing = true;
                return;
            }
        };
        self.begin(held, context);
    }

    /// No answer is better than one that nobody may live to send.
    fn shutdown(&mut self, valid: bool, context: &mut Context<'_>) {
        match context.server.may_shut_down() {
            false => self.answer(Answer::Text(reply::NO_SHUTDOWN), false),
            true if !valid => self.answer(Answer::Text(reply::BAD_SHUTDOWN), false),
            true => {
                context.server.shut_down();
                self.ending.closing = true;
            }
        }
    }

    fn get(&mut self, keys: Keys<'_>, cas: bool, touch: Option<i64>, context: &mut Context<'_>) {
        let mut rest = Rest { line: Vec::new(), at: 0, cas, touch };
        // One key needs no copy of the line.
        match Keys::split(keys.line()) {
            Some((key, end)) if Keys::split(keys.line().get(end..).unwrap_or_default()).is_none() => {
                self.ask(key, &rest, context);
            }
            _ => rest.line = keys.line().to_vec(),
        }
        self.unfinished.rest = Some(rest);
    }

    /// Asks for the next key of a get.
    pub(super) fn next_key(&mut self, mut rest: Rest, context: &mut Context<'_>) -> bool {
        let Some((key, end)) = rest.next() else { return true };
        let next = rest.at + end;
        let begun = self.ask(key, &rest, context);
        rest.at = next;
        self.unfinished.rest = Some(rest);
        begun
    }

    /// The end of a get whose keys have all been asked for.
    pub(super) fn end_get(&mut self) {
        self.unfinished.rest = None;
        match self.answers.pending.back_mut() {
            // That of an earlier get has its end by now.
            Some(last) if matches!(last.answer, Answer::Value { .. }) && !last.ends => last.ends = true,
            _ => self.answer(Answer::ValuesEnd, false),
        }
    }

    fn ask(&mut self, key: &[u8], rest: &Rest, context: &mut Context<'_>) -> bool {
        // The parser lets no key through that the store would refuse.
        let Ok(key) = Key::new(CollectionId::default(), key) else { return true };
        let answer = Answer::Value { key: key.clone(), cas: rest.cas, touch: rest.touch.is_some() };
        let touch = rest.touch.map(|exptime| expiry(exptime, context.wall));
        let counter = if touch.is_some() { &context.counters.cmd_touch } else { &context.counters.cmd_get };
        counter.add(1);
        let action = Action::Get { value: true, touch, vivify: None, before: false, told: false };
        self.ask_once(Request::of(key, action), answer, false, context)
    }

    fn store(&mut self, store: &Store<'_>) {
        let Store { verb, key, flags, exptime, data_bytes, noreply } = *store;
        match Key::new(CollectionId::default(), key) {
            Ok(key) => {
                let header = Header::Classic { verb, key, flags, exptime, noreply };
                self.unfinished.storing = Some(Storing::new(header, Body::new(data_bytes)));
            }
            Err(_) => self.answer(Answer::Text(reply::BAD_LINE), noreply),
        }
    }

    fn meta(&mut self, meta: &Meta<'_>, context: &mut Context<'_>) {
        let Some((request, words)) = meta::request(meta, Bytes::new(), context.wall, context.counters) else {
            return self.answer(Answer::Text(reply::BAD_LINE), false);
        };
        let dialect = Dialect::Meta(words);
        match Command::Meta(*meta).data_bytes() {
            None => _ = self.plan(request, dialect, context),
            Some(data_bytes) => {
                let header = Header::Planned(Box::new((request, dialect)));
                self.unfinished.storing = Some(Storing::new(header, Body::new(data_bytes)));
            }
        }
    }

    /// `mr`.
    fn meta_range(&mut self, range: &MetaRange<'_>, context: &mut Context<'_>) {
        context.counters.cmd_meta.add(1);
        // The parser lets no ends through that are none.
        let Some((from, to)) = range.bounds() else { return };
        let ends = bounds(from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        let (line, base64): (Box<[u8]>, _) = (meta::line_of_range(range.line), range.base64);
        let form = RangeForm::Meta { line: line.clone(), base64, wants_records: range.wants_records() };
        let more = MoreForm::Meta { line, base64, end: Vec::new() };
        self.begin_range(KeyRange::new(ends, (range.reverse, range.count), form), more, context);
    }

    /// A classic storage command that is whole.
    pub(super) fn write_value(
        &mut self,
        verb: Verb,
        key: Key,
        value: Bytes,
        (flags, exptime, noreply): (u32, i64, bool),
        context: &mut Context<'_>,
    ) -> bool {
        context.counters.cmd_set.add(1);
        let (mode, compare) = match verb {
            Verb::Set => (StoreMode::Set, None),
            Verb::Add => (StoreMode::Add, None),
            Verb::Replace => (StoreMode::Replace, None),
            Verb::Append => (StoreMode::Append, None),
            Verb::Prepend => (StoreMode::Prepend, None),
            Verb::Cas(version) => (StoreMode::Set, Some(version)),
        };
        let expiry = match verb {
            // They leave it as it is.
            Verb::Append | Verb::Prepend => Expiry::NEVER,
            _ => expiry(exptime, context.wall),
        };
        let answer = Answer::Stored { verb, key: key.clone(), value_bytes: value.len() as u64, expiry };
        let action = Action::Store { mode, value, flags, expiry, late: false, vivify: None, sized: false };
        let request = Request { compare, ..Request::of(key, action) };
        if request.has_reserved_flags() {
            self.answer(Answer::Text(reply::RESERVED_FLAGS), noreply);
            return true;
        }
        self.ask_once(request, answer, noreply, context)
    }

    /// A classic command of one key that brings no value.
    fn change(
        &mut self,
        key: &[u8],
        action: Action,
        answer: impl FnOnce(Key) -> Answer,
        noreply: bool,
        context: &mut Context<'_>,
    ) {
        match Key::new(CollectionId::default(), key) {
            Ok(key) => _ = self.ask_once(Request::of(key.clone(), action), answer(key), noreply, context),
            Err(_) => self.answer(Answer::Text(reply::BAD_LINE), false),
        }
    }
}
