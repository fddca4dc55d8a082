//! The text commands: each becomes an operation, or several.

use bytes::Bytes;
use stratakv_base::{CollectionId, Expiry, Key};
use stratakv_engine::{ChangeKind, Expect, Operation, RecordPart, Update};
use stratakv_protocol::memcache::{Body, Command, Keys, Meta, Store, Verb, expiry, reply};

use super::{Connection, Context, Header, Rest, Storing, hash};
use crate::answer::{Answer, Dialect};
use crate::credentials::ATTEMPT_BYTES_MAX;
use crate::meta;
use crate::pending::{Access, ParsedCommand};
use crate::request;
use crate::schedule::{ATTEMPT_ERRORS, ATTEMPT_UNITS};

impl Connection {
    /// Whether the client has yet to say who it is.
    pub(super) fn is_stranger(&self, context: &Context<'_>) -> bool {
        context.accounts.is_some() && !self.admitted
    }

    /// A command of such a client: a set of any key says by its value who it is.
    pub(super) fn strange_command(&mut self, command: &Command<'_>, context: &mut Context<'_>) {
        match command {
            Command::Store(Store { verb: Verb::Set, data_bytes: data_bytes @ ..=ATTEMPT_BYTES_MAX, .. }) => {
                self.storing = Some(Storing::new(Header::Account, Body::new(*data_bytes)));
            }
            Command::Version | Command::Quit => self.command(command, context),
            _ => {
                self.errors += 1;
                self.answer(Answer::Text(reply::UNAUTHENTICATED), false);
            }
        }
    }

    /// The value of such a set.
    pub(super) fn account(&mut self, value: &[u8], context: &mut Context<'_>) {
        context.counters.auth_cmds.add(1);
        self.grant.spend(ATTEMPT_UNITS);
        self.admitted = context.accounts.is_none_or(|accounts| accounts.now().admit_text(value));
        context.counters.auth_errors.add(u64::from(!self.admitted));
        self.errors += if self.admitted { 0 } else { ATTEMPT_ERRORS };
        let reply = if self.admitted { reply::STORED } else { reply::AUTHENTICATION_FAILURE };
        self.answer(Answer::Text(reply), false);
    }

    pub(super) fn command(&mut self, command: &Command<'_>, context: &mut Context<'_>) {
        let held = match *command {
            Command::Get { keys, cas, touch } => return self.get(keys, cas, touch, context),
            Command::Store(ref store) => return self.store(store),
            Command::Delete { key, noreply } => {
                write(key, Expect::Any, ChangeKind::Delete, Answer::Deleted, noreply, context)
            }
            Command::Arithmetic { key, delta, decrement, noreply } => {
                let update = if decrement { Update::Decrement(delta) } else { Update::Increment(delta) };
                update_key(key, update, |key| Answer::Number { decrement, key }, noreply, context)
            }
            Command::Touch { key, exptime, noreply } => {
                context.counters.cmd_touch.add(1);
                update_key(key, Update::Touch(expiry(exptime, context.wall)), Answer::Touched, noreply, context)
            }
            Command::FlushAll { delay, noreply } => Some(ParsedCommand::Flush { delay, noreply, binary: None }),
            Command::Detail(what) => Some(ParsedCommand::Detail(what, None)),
            Command::Stats(which) => Some(ParsedCommand::Statistics(which, None)),
            Command::Backup { name } => Some(ParsedCommand::Backup(name.to_owned())),
            Command::Version => {
                let mut text = Vec::new();
                reply::version(&mut text, context.server.version());
                return self.answer(Answer::Written(text), false);
            }
            Command::Verbosity { noreply } => return self.answer(Answer::Text(reply::OK), noreply),
            Command::Meta(ref meta) => return self.meta(meta, context),
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
            Command::Dump(kind) => Some(ParsedCommand::Dump(kind)),
            Command::Watch(kinds) => Some(ParsedCommand::Watch(kinds)),
            Command::Shutdown { valid } => return self.shutdown(valid, context),
            Command::Quit => {
                self.closing = true;
                return;
            }
        };
        match held {
            Some(held) => _ = self.begin(held, context),
            None => self.answer(Answer::Text(reply::BAD_LINE), false),
        }
    }

    /// No answer is better than one that nobody may live to send.
    fn shutdown(&mut self, valid: bool, context: &mut Context<'_>) {
        match context.server.may_shut_down() {
            false => self.answer(Answer::Text(reply::NO_SHUTDOWN), false),
            true if !valid => self.answer(Answer::Text(reply::BAD_SHUTDOWN), false),
            true => {
                context.server.shut_down();
                self.closing = true;
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
        self.rest = Some(rest);
    }

    /// Asks for the next key of a get.
    pub(super) fn next_key(&mut self, mut rest: Rest, context: &mut Context<'_>) -> bool {
        let Some((key, end)) = rest.next() else { return true };
        let next = rest.at + end;
        let begun = self.ask(key, &rest, context);
        rest.at = next;
        self.rest = Some(rest);
        begun
    }

    /// The end of a get whose keys have all been asked for.
    pub(super) fn end_get(&mut self) {
        self.rest = None;
        match self.pending.back_mut() {
            // That of an earlier get has its end by now.
            Some(last) if matches!(last.answer, Answer::Value { .. }) && !last.ends => last.ends = true,
            _ => self.answer(Answer::ValuesEnd, false),
        }
    }

    fn ask(&mut self, key: &[u8], rest: &Rest, context: &mut Context<'_>) -> bool {
        // The parser lets no key through that the store would refuse.
        let Ok(key) = Key::new(CollectionId::default(), key) else { return true };
        let answer = Answer::Value { key: key.clone(), cas: rest.cas, touch: rest.touch.is_some() };
        let hash = hash(&key);
        let mut reading_bytes = self.first_bytes;
        let mut whole = false;
        let (operation, access) = match rest.touch {
            None => {
                context.counters.cmd_get.add(1);
                (
                    Operation::Get { key, part: RecordPart::Sliced { hold: 0, start: 0, len: reading_bytes as u32 } },
                    Access::Read(hash),
                )
            }
            Some(exptime) => {
                context.counters.cmd_touch.add(1);
                let expiry = expiry(exptime, context.wall);
                // After it there will be nothing to be asked for again.
                if expiry.is_past(context.wall) {
                    (reading_bytes, whole) = (reading_bytes.max(self.item_bytes_max), true);
                }
                let update = Update::Touch(expiry);
                (Operation::Update { key, update, level: context.level }, Access::Write(hash))
            }
        };
        let noreply = false;
        self.begin(
            ParsedCommand::Operation { operation, answer, noreply, access, writing_bytes: 0, reading_bytes, whole },
            context,
        )
    }

    fn store(&mut self, store: &Store<'_>) {
        let Store { verb, key, flags, exptime, data_bytes, noreply } = *store;
        match Key::new(CollectionId::default(), key) {
            Ok(key) => {
                let header = Header::Classic { verb, key, flags, exptime, noreply };
                self.storing = Some(Storing::new(header, Body::new(data_bytes)));
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
                self.storing = Some(Storing::new(header, Body::new(data_bytes)));
            }
        }
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
        let writing_bytes = value.len() as u64;
        let expect = match verb {
            Verb::Set | Verb::Append | Verb::Prepend => Expect::Any,
            Verb::Add => Expect::Absent,
            Verb::Replace => Expect::Present,
            Verb::Cas(version) => Expect::Version(version),
        };
        let expiry = match verb {
            // They leave it as it is.
            Verb::Append | Verb::Prepend => Expiry::NEVER,
            _ => expiry(exptime, context.wall),
        };
        let answer = Answer::Stored { verb, key: key.clone(), value_bytes: writing_bytes, expiry };
        let (access, level) = (Access::Write(hash(&key)), context.level);
        let operation = match verb {
            Verb::Append => Operation::Update { key, update: Update::Append(value), level },
            Verb::Prepend => Operation::Update { key, update: Update::Prepend(value), level },
            _ => {
                let kind = ChangeKind::Put { value, flags, expiry };
                request::write(key, expect, kind, level)
            }
        };
        self.begin(
            ParsedCommand::Operation {
                operation,
                answer,
                noreply,
                access,
                writing_bytes,
                reading_bytes: 0,
                whole: false,
            },
            context,
        )
    }
}

fn write(
    key: &[u8],
    expect: Expect,
    kind: ChangeKind,
    answer: impl FnOnce(Key) -> Answer,
    noreply: bool,
    context: &Context<'_>,
) -> Option<ParsedCommand> {
    let key = Key::new(CollectionId::default(), key).ok()?;
    let access = Access::Write(hash(&key));
    let answer = answer(key.clone());
    let operation = request::write(key, expect, kind, context.level);
    Some(ParsedCommand::Operation {
        operation,
        answer,
        noreply,
        access,
        writing_bytes: 0,
        reading_bytes: 0,
        whole: false,
    })
}

fn update_key(
    key: &[u8],
    update: Update,
    answer: impl FnOnce(Key) -> Answer,
    noreply: bool,
    context: &Context<'_>,
) -> Option<ParsedCommand> {
    let key = Key::new(CollectionId::default(), key).ok()?;
    let access = Access::Write(hash(&key));
    let answer = answer(key.clone());
    let operation = Operation::Update { key, update, level: context.level };
    Some(ParsedCommand::Operation {
        operation,
        answer,
        noreply,
        access,
        writing_bytes: 0,
        reading_bytes: 0,
        whole: false,
    })
}
