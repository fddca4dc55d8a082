//! From the engine's reply to the client's: wording, and what is counted.

use stratakv_base::{Expiry, Key, Wall};
use stratakv_engine::{Error, Record, Reply, Unmet};
use stratakv_protocol::memcache::{DumpKind, Verb, reply};

use crate::binary;
use crate::connection::dump::{self, Dump};
use crate::connection::hash;
use crate::counters::Counters;
use crate::marks::Marks;
use crate::meta;
use crate::orphans::NodeRemovals;
use crate::output::Output;
use crate::recency::Recency;
use crate::request::{Plan, Request, RequestOutcome};
use crate::resp::{self, RespAnswer, Work};
use crate::structure::is_structure;
use crate::watch::{self, Log};

/// What a client waits for.
#[derive(Clone, Debug, Default)]
pub(crate) enum Answer {
    /// A key of get, gets, gat or gats.
    Value { key: Key, cas: bool, touch: bool },
    /// The end of a get.
    #[default]
    ValuesEnd,
    /// A storage command.
    Stored { verb: Verb, key: Key, value_bytes: u64, expiry: Expiry },
    /// delete.
    Deleted(Key),
    /// incr, decr.
    Number { decrement: bool, key: Key },
    /// touch.
    Touched(Key),
    /// A request of a dialect that asks for more than the classic one.
    Planned(Box<Planned>),
    /// A list of every record, which writes itself. Apart, as answers are moved: few of them are
    /// lists.
    Dump(Box<Dump>),
    /// A record of such a list, whose key came before what is known of it.
    Listed { kind: DumpKind, key: Key },
    /// flush_all.
    Flushed(FlushWords),
    /// A command of a Redis client that is one operation.
    Resp(RespAnswer),
    /// The same of one that is several.
    Work(Box<Work>),
    /// Text known beforehand.
    Text(&'static [u8]),
    /// Text made beforehand.
    Written(Vec<u8>),
}

/// How a flush is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlushWords {
    Text,
    Binary(binary::Words),
    Resp,
}

impl FlushWords {
    fn write(self, reply: Option<Reply>, out: &mut Output, counters: &Counters) {
        match (self, reply) {
            (FlushWords::Text, Some(Reply::Failed(error))) => failed(&error, false, out, counters),
            (FlushWords::Text, _) => out.push(reply::OK),
            (FlushWords::Binary(words), Some(Reply::Failed(error))) => words.failed(&error, out, counters),
            (FlushWords::Binary(words), _) => words.flushed(out),
            (FlushWords::Resp, Some(Reply::Failed(error))) => {
                out.text(|text| resp::failed(&error, false, text, counters));
            }
            (FlushWords::Resp, _) => out.push(b"+OK\r\n"),
        }
    }
}

/// A request on its way, and how its outcome is worded.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) dialect: Dialect,
    /// Once it has ended.
    pub(crate) outcome: Option<RequestOutcome>,
}

/// How an outcome is worded.
#[derive(Clone, Debug)]
pub(crate) enum Dialect {
    Meta(meta::Words),
    Binary(binary::Words),
}

impl Dialect {
    /// What follows the last byte of a value.
    pub(crate) fn end_of_value(&self) -> &'static [u8] {
        match self {
            Dialect::Meta(_) => meta::Words::END_OF_VALUE,
            Dialect::Binary(_) => b"",
        }
    }

    fn write(&self, request: &Request, outcome: RequestOutcome, out: &mut Output, here: &AnswerContext<'_>) {
        match self {
            Dialect::Meta(words) => words.write(request, outcome, here, out),
            Dialect::Binary(words) => words.write(request, outcome, here, out),
        }
    }
}

impl Planned {
    /// Begins the answer of a get whose value follows slice by slice.
    pub(crate) fn begin_value(&self, record: Record, out: &mut Output, here: &AnswerContext<'_>) {
        let outcome = RequestOutcome::Found { record, before: None, follows: true };
        self.dialect.write(&self.plan.request, outcome, out, here);
    }
}

/// What answers are made of besides replies, and what they change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerContext<'a> {
    pub(crate) counters: &'a Counters,
    pub(crate) marks: &'a Marks,
    pub(crate) recency: &'a Recency,
    pub(crate) nodes: NodeRemovals<'a>,
    pub(crate) log: Log<'a>,
    pub(crate) wall: Wall,
}

impl Answer {
    /// The key whose value is being read for the client.
    pub(crate) fn reads(&self) -> Option<&Key> {
        match self {
            Answer::Value { key, .. } => Some(key),
            Answer::Resp(answer) if answer.wants_value() => Some(&answer.key),
            Answer::Planned(planned) if planned.plan.wants_value() => Some(&planned.plan.request.key),
            _ => None,
        }
    }
}

impl Answer {
    /// What follows the last byte of a value that was read.
    pub(crate) fn end_of_value(&self) -> &'static [u8] {
        match self {
            Answer::Planned(planned) => planned.dialect.end_of_value(),
            _ => reply::CRLF,
        }
    }

    /// Whether the bytes of a record that comes are of use.
    pub(crate) fn needs_value(&self) -> bool {
        match self {
            Answer::Value { .. } => true,
            Answer::Planned(planned) => planned.plan.needs_value(),
            Answer::Resp(answer) => answer.wants_value(),
            _ => false,
        }
    }
}

/// Puts replies into words. One for each connection: the values of a get are one answer.
#[derive(Debug, Default)]
pub(crate) struct ResponseEncoder {
    /// A key of the current get failed; its error ended the answer.
    get_failed: bool,
    /// A record of the current list failed; its error ended the answer.
    pub(crate) list_failed: bool,
}

impl ResponseEncoder {
    /// Begins the answer of a get whose value follows slice by slice. False: there is none, since
    /// one before it failed.
    pub(crate) fn begin_value(
        &mut self,
        answer: &Answer,
        record: Record,
        out: &mut Output,
        here: &AnswerContext<'_>,
    ) -> bool {
        match answer {
            Answer::Value { key, cas, .. } if !self.get_failed => {
                value_head(key, *cas, &record, record.value_bytes, out, here);
                out.push_value(record.value);
            }
            Answer::Planned(planned) => planned.begin_value(record, out, here),
            Answer::Resp(answer) => answer.begin_value(record, out, here),
            _ => return false,
        }
        true
    }

    /// The answer of a get whose record is a structure of Redis clients.
    pub(crate) fn refuse_structure(&mut self, answer: &Answer, out: &mut Output, here: &AnswerContext<'_>) {
        match answer {
            Answer::Value { .. } if !self.get_failed => {
                self.get_failed = true;
                out.push(reply::NOT_A_STRING);
            }
            Answer::Planned(planned) => {
                planned.dialect.write(&planned.plan.request, RequestOutcome::NotAString, out, here);
            }
            Answer::Resp(answer) => answer.refuse_structure(out),
            _ => {}
        }
    }

    /// Appends the answer, nothing if the client wants none. `reply` is `None` for answers without
    /// operation.
    pub(crate) fn write(
        &mut self,
        answer: Answer,
        reply: Option<Reply>,
        noreply: bool,
        out: &mut Output,
        here: &AnswerContext<'_>,
    ) {
        let counters = here.counters;
        let mut unheard = Output::default();
        let out = if noreply { &mut unheard } else { out };
        if let Answer::Stored { verb, key, value_bytes, expiry } = &answer {
            let status = watch::status_of_reply(*verb, reply.as_ref());
            here.log.stored(key, watch::command_of(*verb), status, *expiry, *value_bytes);
        }
        match (answer, reply) {
            (Answer::Text(text), _) => out.push(text),
            (Answer::Written(text), _) => out.push(&text),
            (Answer::ValuesEnd, _) => {
                if !std::mem::take(&mut self.get_failed) {
                    out.push(reply::END);
                }
            }
            (Answer::Value { .. }, _) if self.get_failed => {}
            (answer @ Answer::Value { .. }, Some(Reply::Record(Some(record)))) if is_structure(&record) => {
                self.refuse_structure(&answer, out, here);
            }
            (Answer::Value { .. }, Some(Reply::Failed(error))) => {
                self.get_failed = true;
                failed(&error, false, out, counters);
            }
            (Answer::Flushed(words), reply) => words.write(reply, out, counters),
            (Answer::Resp(answer), reply) => answer.write(reply, out, here),
            // A command that has ended is its written answer.
            (Answer::Dump(_) | Answer::Work(_), _) => {}
            (Answer::Listed { .. }, _) if self.list_failed => {}
            (Answer::Listed { .. }, Some(Reply::Failed(error))) => {
                self.list_failed = true;
                failed(&error, false, out, counters);
            }
            (Answer::Listed { kind, key }, Some(Reply::Record(Some(record)))) => {
                dump::line(kind, &key, &record, out, here)
            }
            // It has gone since.
            (Answer::Listed { .. }, _) => {}
            (answer, Some(Reply::Failed(error))) => {
                failed(&error, matches!(answer, Answer::Stored { .. }), out, counters)
            }
            (Answer::Planned(planned), _) => {
                let Planned { plan, dialect, outcome } = *planned;
                let outcome = outcome.unwrap_or(RequestOutcome::Missing);
                dialect.write(&plan.request, outcome, out, here);
            }
            (Answer::Value { key, cas, touch }, reply) => value(&key, cas, touch, reply, out, here),
            (Answer::Stored { verb, key, .. }, reply) => out.push(stored(verb, &key, reply.as_ref(), here)),
            (Answer::Deleted(key), reply) => {
                here.log.deleted(&key);
                out.push(deleted(reply.as_ref(), counters));
            }
            (Answer::Number { decrement, key }, reply) => number(decrement, &key, reply.as_ref(), out, here),
            (Answer::Touched(key), reply) => out.push(touched(&key, reply.as_ref(), here)),
        }
    }
}

fn value(key: &Key, cas: bool, touch: bool, reply: Option<Reply>, out: &mut Output, here: &AnswerContext<'_>) {
    let counters = here.counters;
    let Some(Reply::Record(Some(record))) = reply else {
        // A get that touches counts as a touch alone.
        if touch { &counters.touch_misses } else { &counters.get_misses }.add(1);
        here.log.fetched(key, None);
        return;
    };
    if touch { &counters.touch_hits } else { &counters.get_hits }.add(1);
    if touch {
        here.marks.keep(key, record.version, None, Some(record.expiry));
    }
    // The length sent must be that of the bytes which follow, whatever the record says.
    debug_assert_eq!(record.value.len(), record.value_bytes);
    value_head(key, cas, &record, record.value.len(), out, here);
    out.push_value(record.value);
    out.push(reply::CRLF);
}

/// What comes before the bytes of a value.
fn value_head(key: &Key, cas: bool, record: &Record, len_bytes: u64, out: &mut Output, here: &AnswerContext<'_>) {
    here.recency.fetched(hash(key), here.wall);
    here.log.fetched(key, Some(len_bytes));
    let version = if cas { here.marks.shown(key, record.version) } else { record.version };
    out.text(|text| reply::value_header(text, key.user(), record.flags, len_bytes, cas.then_some(version)));
}

fn stored(verb: Verb, key: &Key, reply: Option<&Reply>, here: &AnswerContext<'_>) -> &'static [u8] {
    let counters = here.counters;
    let is_cas = matches!(verb, Verb::Cas(_));
    match reply {
        Some(Reply::Unmet(Unmet::Absent)) if is_cas => {
            counters.cas_misses.add(1);
            reply::NOT_FOUND
        }
        Some(Reply::Unmet(Unmet::Unchanged)) => reply::NOT_A_STRING,
        Some(Reply::Unmet(_)) if is_cas => {
            counters.cas_badval.add(1);
            reply::EXISTS
        }
        Some(Reply::Unmet(_)) => reply::NOT_STORED,
        reply => {
            counters.cas_hits.add(u64::from(is_cas));
            counters.total_items.add(1);
            if let Some(Reply::Done { version, .. }) = reply {
                here.marks.forget(key, *version);
            }
            here.recency.stored(hash(key), here.wall);
            reply::STORED
        }
    }
}

fn deleted(reply: Option<&Reply>, counters: &Counters) -> &'static [u8] {
    match reply {
        Some(Reply::Done { existed: false, .. } | Reply::Unmet(_)) => {
            counters.delete_misses.add(1);
            reply::NOT_FOUND
        }
        _ => {
            counters.delete_hits.add(1);
            reply::DELETED
        }
    }
}

fn number(decrement: bool, key: &Key, reply: Option<&Reply>, out: &mut Output, here: &AnswerContext<'_>) {
    let counters = here.counters;
    let (hits, misses) = match decrement {
        true => (&counters.decr_hits, &counters.decr_misses),
        false => (&counters.incr_hits, &counters.incr_misses),
    };
    match reply {
        Some(Reply::Number { number, version }) => {
            hits.add(1);
            here.marks.keep(key, *version, None, None);
            out.text(|text| reply::number(text, *number));
        }
        Some(Reply::Unmet(Unmet::NotANumber)) => out.push(reply::NOT_A_NUMBER),
        _ => {
            misses.add(1);
            out.push(reply::NOT_FOUND);
        }
    }
}

fn touched(key: &Key, reply: Option<&Reply>, here: &AnswerContext<'_>) -> &'static [u8] {
    let counters = here.counters;
    match reply {
        Some(Reply::Record(Some(record))) => {
            counters.touch_hits.add(1);
            here.recency.fetched(hash(key), here.wall);
            here.log.fetched(key, Some(record.value_bytes));
            here.marks.keep(key, record.version, None, Some(record.expiry));
            reply::TOUCHED
        }
        _ => {
            counters.touch_misses.add(1);
            here.log.fetched(key, None);
            reply::NOT_FOUND
        }
    }
}

pub(crate) fn failed(error: &Error, storing: bool, out: &mut Output, counters: &Counters) {
    count_failure(error, storing, counters);
    match error {
        Error::ValueTooLarge { .. } => out.push(reply::TOO_LARGE),
        Error::Full(_) | Error::MemoryFull { .. } if storing => {
            out.text(|text| reply::server_error(text, &format!("out of memory storing object: {error}")));
        }
        error => out.text(|text| reply::server_error(text, &error.to_string())),
    }
}

/// Counts a failed operation, and logs it where nobody else does.
pub(crate) fn count_failure(error: &Error, storing: bool, counters: &Counters) {
    counters.server_errors.add(1);
    match error {
        Error::ValueTooLarge { .. } => counters.store_too_large.add(1),
        Error::Full(_) | Error::MemoryFull { .. } if storing => counters.store_no_memory.add(1),
        // Damage is logged once, where it is met, not with every request for it.
        Error::Io { .. } | Error::Poisoned(_) | Error::Unknown(_) => tracing::error!(%error, "an operation failed"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use stratakv_base::CollectionId;
    use stratakv_engine::Value;

    use super::*;

    fn written(replies: Vec<(Answer, Option<Reply>)>) -> String {
        let (mut response_encoder, mut out, counters) =
            (ResponseEncoder::default(), Output::default(), Counters::default());
        let (marks, recency) = (Marks::default(), Recency::default());
        let watches = watch::Watches::default();
        let details = crate::details::Details::default();
        let log = Log { watches: &watches, details: &details, wall: Wall(1), cfd: 7 };
        let (queue, sweeps) = Default::default();
        let nodes = NodeRemovals { queue: &queue, sweeps: &sweeps };
        let here = AnswerContext { counters: &counters, marks: &marks, recency: &recency, nodes, log, wall: Wall(1) };
        for (answer, reply) in replies {
            response_encoder.write(answer, reply, false, &mut out, &here);
        }
        let mut text = Vec::new();
        for chunk in out.take().0 {
            let stratakv_device::ring::Chunk::Bytes(bytes) = chunk else { panic!("no blocks here") };
            text.extend(bytes);
        }
        String::from_utf8(text).unwrap()
    }

    fn key() -> Key {
        Key::new(CollectionId(0), b"k").unwrap()
    }

    fn get() -> Answer {
        Answer::Value { key: key(), cas: true, touch: false }
    }

    fn stored(verb: Verb) -> Answer {
        Answer::Stored { verb, key: key(), value_bytes: 1, expiry: Expiry::NEVER }
    }

    fn record() -> Option<Reply> {
        let value = Value::Inline(bytes::Bytes::from_static(b"ab"));
        let expiry = stratakv_base::Expiry::NEVER;
        Some(Reply::Record(Some(Record { value, value_bytes: 2, flags: 3, version: 4, expiry })))
    }

    #[test]
    fn an_error_ends_a_get_and_the_next_is_whole_again() {
        let bad = Some(Reply::Failed(Error::Busy));
        let replies = vec![
            (get(), record()),
            (get(), Some(Reply::Record(None))),
            (get(), bad),
            (get(), record()),
            (Answer::ValuesEnd, None),
            (get(), record()),
            (Answer::ValuesEnd, None),
        ];
        assert_eq!(
            written(replies),
            "VALUE k 3 2 4\r\nab\r\nSERVER_ERROR too many operations are waiting; try again\r\nVALUE k 3 2 4\r\nab\r\nEND\r\n"
        );
    }

    #[test]
    fn conditions_that_do_not_hold_have_words_of_their_own() {
        let cases = [
            (stored(Verb::Add), Unmet::Present { version: 1 }, "NOT_STORED\r\n"),
            (stored(Verb::Append), Unmet::Absent, "NOT_STORED\r\n"),
            (stored(Verb::Cas(1)), Unmet::Absent, "NOT_FOUND\r\n"),
            (stored(Verb::Cas(1)), Unmet::Version { found: 2 }, "EXISTS\r\n"),
            (Answer::Deleted(key()), Unmet::Absent, "NOT_FOUND\r\n"),
            (Answer::Touched(key()), Unmet::Absent, "NOT_FOUND\r\n"),
            (Answer::Number { decrement: true, key: key() }, Unmet::Absent, "NOT_FOUND\r\n"),
            (
                Answer::Number { decrement: false, key: key() },
                Unmet::NotANumber,
                "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            ),
        ];
        for (answer, unmet, expected) in cases {
            assert_eq!(written(vec![(answer.clone(), Some(Reply::Unmet(unmet)))]), expected, "{answer:?}");
        }
        let full = written(vec![(stored(Verb::Set), Some(Reply::Failed(Error::Full("no page"))))]);
        assert!(full.starts_with("SERVER_ERROR out of memory storing object: the store is full (no page)"), "{full}");
    }
}
