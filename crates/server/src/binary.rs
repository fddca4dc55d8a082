//! The binary protocol: from a request to what is done, from its outcome to the response.

use bytes::Bytes;
use stratakv_base::{CollectionId, Expiry, Key};
use stratakv_engine::{Error, Record};
use stratakv_protocol::memcache::binary::{Status, Tag, refusal, response, status};
use stratakv_protocol::memcache::{BinaryCommand, BinaryRequest, StoreMode, expiry, reply};

use crate::answer::{AnswerContext, FlushWords, count_failure};
use crate::connection::{Context, hash};
use crate::counters::Counters;
use crate::credentials::Accounts;
use crate::meta;
use crate::output::Output;
use crate::pending::ParsedCommand;
use crate::request::{Action, Request, RequestOutcome};

/// How a client says who it is.
const MECHANISM: &str = "PLAIN";
const PLAIN: &[u8] = MECHANISM.as_bytes();

/// What of a request its response needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    tag: Tag,
    quiet: bool,
    with_key: bool,
}

/// What a request becomes.
pub(crate) enum Begun {
    Request(Request, Words),
    /// Its value, so long, is to come.
    Store(Request, Words, usize),
    Held(ParsedCommand),
    Answer(Vec<u8>),
    /// As well, and from now on the client may do everything.
    Admit(Vec<u8>),
    /// As well, and from now on the client is a stranger, whatever it was before.
    Expel(Vec<u8>),
    /// As well, and the client's next step says who it is.
    Ask(Vec<u8>),
    /// The last answer.
    Quit(Vec<u8>),
}

/// The response to what is no request.
pub(crate) fn refused(tag: Tag, why: Status) -> Vec<u8> {
    written(|out| status(out, tag, why))
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

/// What to do for a request; a `stranger` has yet to say who it is, and `is_asked` if it began to.
pub(crate) fn begin(request: &BinaryRequest<'_>, stranger: bool, is_asked: bool, context: &Context<'_>) -> Begun {
    if let Some(begun) = context.accounts.and_then(|accounts| introduce(request, accounts, is_asked, context.counters))
    {
        return begun;
    }
    // Hung up on, so that what follows is not taken for requests.
    if stranger && !matches!(request.command, BinaryCommand::Version | BinaryCommand::Quit) {
        return Begun::Quit(refused(request.tag, Status::AuthError));
    }
    let (tag, quiet) = (request.tag, request.quiet);
    let with_key = matches!(request.command, BinaryCommand::Get { with_key: true, .. });
    let words = Words { tag, quiet, with_key };
    let at = |seconds: u32| expiry(seconds.into(), context.wall);
    let done = || {
        written(|out| {
            if !quiet {
                status(out, tag, Status::Ok)
            }
        })
    };
    match request.command {
        BinaryCommand::Noop | BinaryCommand::Verbosity => Begun::Answer(done()),
        BinaryCommand::Version => Begun::Answer(written(|out| {
            refusal(out, tag, Status::Ok, context.server.version());
        })),
        BinaryCommand::Quit => Begun::Quit(done()),
        BinaryCommand::Flush { delay } => {
            Begun::Held(ParsedCommand::Flush { delay: delay.into(), noreply: quiet, words: FlushWords::Binary(words) })
        }
        BinaryCommand::Stat(None) => Begun::Answer(refused(tag, Status::NotFound)),
        BinaryCommand::Detail(what) => Begun::Held(ParsedCommand::Detail(what, Some(words))),
        BinaryCommand::Stat(Some(which)) => Begun::Held(ParsedCommand::Statistics(which, Some(words))),
        BinaryCommand::SaslList | BinaryCommand::SaslAuth { .. } | BinaryCommand::SaslUnnamed => {
            Begun::Answer(refused(tag, Status::UnknownCommand))
        }
        BinaryCommand::Get { key, .. }
        | BinaryCommand::Store { key, .. }
        | BinaryCommand::Delete { key }
        | BinaryCommand::Arithmetic { key, .. } => {
            let Ok(key) = Key::new(CollectionId::default(), key) else {
                return Begun::Answer(refused(tag, Status::Invalid));
            };
            let (action, data_bytes) = action(request, at, context.counters);
            let asked = Request { key, action, compare: request.compare, version: None };
            match data_bytes {
                Some(bytes) => Begun::Store(asked, words, bytes),
                None => Begun::Request(asked, words),
            }
        }
    }
}

/// What to do for a request that says who its client is, or asks how to; `None`: it does not.
fn introduce(request: &BinaryRequest<'_>, accounts: &Accounts, is_asked: bool, counters: &Counters) -> Option<Begun> {
    let status = |status, text: &str| written(|out| refusal(out, request.tag, status, text));
    Some(match request.command {
        BinaryCommand::SaslList => Begun::Answer(status(Status::Ok, MECHANISM)),
        BinaryCommand::SaslUnnamed => Begun::Answer(refused(request.tag, Status::Invalid)),
        // PLAIN has the first word: without one the client is asked for it.
        BinaryCommand::SaslAuth { step: false, mechanism, data: b"" } if mechanism == PLAIN => {
            Begun::Ask(status(Status::AuthContinue, ""))
        }
        BinaryCommand::SaslAuth { step, mechanism, data } => {
            // A step without a beginning leads nowhere.
            let is_begun = !step || is_asked;
            let admitted = is_begun && mechanism == PLAIN && accounts.now().admit_plain(data);
            counters.auth_cmds.add(1);
            counters.auth_errors.add(u64::from(!admitted));
            match admitted {
                true => Begun::Admit(status(Status::Ok, "Authenticated")),
                false => Begun::Expel(refused(request.tag, Status::AuthError)),
            }
        }
        _ => return None,
    })
}

/// What is done to the key, and how long the value is that is to come.
fn action(request: &BinaryRequest<'_>, at: impl Fn(u32) -> Expiry, counters: &Counters) -> (Action, Option<usize>) {
    match request.command {
        BinaryCommand::Get { with_value, touch, .. } => {
            let counter = if touch.is_some() { &counters.cmd_touch } else { &counters.cmd_get };
            counter.add(1);
            let touch = touch.map(at);
            (Action::Get { value: with_value, touch, vivify: None, before: false, told: false }, None)
        }
        BinaryCommand::Store { mode, flags, exptime, data_bytes, .. } => {
            counters.cmd_set.add(1);
            // A version makes an add what it makes of a set.
            let mode = if request.compare.is_some() && mode == StoreMode::Add { StoreMode::Set } else { mode };
            let (value, expiry) = (Bytes::new(), at(exptime));
            (Action::Store { mode, value, flags, expiry, late: false, vivify: None, sized: false }, Some(data_bytes))
        }
        BinaryCommand::Arithmetic { decrement, delta, initial, .. } => {
            let initial = initial.map(|(number, exptime)| (number, at(exptime)));
            (Action::Arithmetic { decrement, delta, initial, touch: None, expiry: false }, None)
        }
        _ => (Action::Delete, None),
    }
}

impl Words {
    /// Appends the response, if one is wanted.
    pub(crate) fn write(&self, request: &Request, outcome: RequestOutcome, here: &AnswerContext<'_>, out: &mut Output) {
        meta::tell(request, &outcome, here);
        match (&request.action, outcome) {
            (_, RequestOutcome::Failed(error)) => self.failed(&error, out, here.counters),
            (_, RequestOutcome::NotAString) => self.refuse_as(reply::NOT_A_STRING, out),
            (_, RequestOutcome::ReservedFlags) => self.refuse_as(reply::RESERVED_FLAGS, out),
            (Action::Get { touch, value, .. }, outcome) => {
                self.get(request, outcome, touch.is_some(), *value, here, out);
            }
            (Action::Store { mode, .. }, outcome) => self.stored(request, *mode, &outcome, here, out),
            (Action::Arithmetic { decrement, .. }, outcome) => self.number(*decrement, &outcome, here, out),
            (_, RequestOutcome::Done { .. }) => {
                here.counters.delete_hits.add(1);
                self.done(0, out);
            }
            (_, RequestOutcome::Exists) => self.refuse(Status::Exists, out),
            _ => {
                here.counters.delete_misses.add(1);
                self.refuse(Status::NotFound, out);
            }
        }
    }

    fn get(
        &self,
        request: &Request,
        outcome: RequestOutcome,
        touch: bool,
        with_value: bool,
        here: &AnswerContext<'_>,
        out: &mut Output,
    ) {
        let counters = here.counters;
        let key = if self.with_key { request.key.user() } else { b"" };
        let RequestOutcome::Found { record, follows, .. } = outcome else {
            // A get that touches counts as a touch alone.
            if touch { &counters.touch_misses } else { &counters.get_misses }.add(1);
            return match (self.quiet, self.with_key) {
                (true, _) => {}
                // The key says enough.
                (_, true) => out.text(|out| response(out, self.tag, Status::NotFound, 0, b"", key, 0)),
                _ => self.refuse(Status::NotFound, out),
            };
        };
        if touch { &counters.touch_hits } else { &counters.get_hits }.add(1);
        here.recency.fetched(hash(&request.key), here.wall);
        let Record { value, value_bytes, flags, version, .. } = record;
        let cas = here.marks.shown(&request.key, version);
        let len_bytes = if follows { value_bytes } else { value.len() };
        let len_bytes = if with_value { len_bytes as usize } else { 0 };
        out.text(|out| response(out, self.tag, Status::Ok, cas, &flags.to_be_bytes(), key, len_bytes));
        if with_value {
            out.push_value(value);
        }
    }

    fn stored(
        &self,
        request: &Request,
        mode: StoreMode,
        outcome: &RequestOutcome,
        here: &AnswerContext<'_>,
        out: &mut Output,
    ) {
        let counters = here.counters;
        let has_cas = u64::from(request.counts_as_cas());
        match (outcome, mode) {
            (RequestOutcome::Done { version, .. }, _) => {
                counters.cas_hits.add(has_cas);
                counters.total_items.add(1);
                here.recency.stored(hash(&request.key), here.wall);
                self.done(*version, out);
            }
            (RequestOutcome::Exists, _) => {
                counters.cas_badval.add(has_cas);
                self.refuse(Status::Exists, out);
            }
            (RequestOutcome::NotStored, StoreMode::Add) => self.refuse(Status::Exists, out),
            (RequestOutcome::NotStored, StoreMode::Append | StoreMode::Prepend) => self.refuse(Status::NotStored, out),
            _ => {
                counters.cas_misses.add(has_cas);
                self.refuse(Status::NotFound, out);
            }
        }
    }

    fn number(&self, decrement: bool, outcome: &RequestOutcome, here: &AnswerContext<'_>, out: &mut Output) {
        let counters = here.counters;
        let (hits, misses) = match decrement {
            true => (&counters.decr_hits, &counters.decr_misses),
            false => (&counters.incr_hits, &counters.incr_misses),
        };
        match outcome {
            RequestOutcome::Number { number, version, is_made, .. } => {
                hits.add(u64::from(!is_made));
                if !self.quiet {
                    out.text(|out| response(out, self.tag, Status::Ok, *version, b"", b"", 8));
                    out.push(&number.to_be_bytes());
                }
            }
            RequestOutcome::NotANumber => self.refuse(Status::NotANumber, out),
            RequestOutcome::Exists => self.refuse(Status::Exists, out),
            _ => {
                misses.add(1);
                self.refuse(Status::NotFound, out);
            }
        }
    }

    fn done(&self, cas: u64, out: &mut Output) {
        if !self.quiet {
            out.text(|out| response(out, self.tag, Status::Ok, cas, b"", b"", 0));
        }
    }

    fn refuse(&self, why: Status, out: &mut Output) {
        out.text(|out| status(out, self.tag, why));
    }

    /// As the text protocol says it.
    fn refuse_as(&self, line: &[u8], out: &mut Output) {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_start_matches("CLIENT_ERROR ").trim_end();
        out.text(|out| refusal(out, self.tag, Status::Invalid, text));
    }

    /// Of a flush; its caller leaves it out if it is not wanted.
    pub(crate) fn flushed(&self, out: &mut Output) {
        out.text(|out| status(out, self.tag, Status::Ok));
    }

    pub(crate) fn failed(&self, error: &Error, out: &mut Output, counters: &Counters) {
        let storing = matches!(self.tag.opcode, 0x01..=0x03 | 0x0E | 0x0F | 0x11..=0x13 | 0x19 | 0x1A);
        count_failure(error, storing, counters);
        let why = match error {
            Error::ValueTooLarge { .. } => return self.refuse(Status::TooLarge, out),
            Error::Full(_) | Error::MemoryFull { .. } => Status::OutOfMemory,
            Error::Busy => Status::Busy,
            _ => Status::Internal,
        };
        out.text(|out| refusal(out, self.tag, why, &error.to_string()));
    }

    /// Counts by prefix as a response, if they were asked for, and an empty one.
    pub(crate) fn details(&self, text: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(text) = text {
            response(&mut out, self.tag, Status::Ok, 0, b"", b"detailed", text.len());
            out.extend_from_slice(text);
        }
        status(&mut out, self.tag, Status::Ok);
        out
    }

    /// The text of statistics as responses: one for each line, and an empty one.
    pub(crate) fn statistics(&self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in text.split(|byte| *byte == b'\n') {
            let Some(line) = line.strip_prefix(b"STAT ") else { continue };
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let (name, value) = line.split_at(line.iter().position(|byte| *byte == b' ').unwrap_or(line.len()));
            let value = value.strip_prefix(b" ").unwrap_or(value);
            response(&mut out, self.tag, Status::Ok, 0, b"", name, value.len());
            out.extend_from_slice(value);
        }
        status(&mut out, self.tag, Status::Ok);
        out
    }
}
