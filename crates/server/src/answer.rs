//! From the engine's reply to the client's: wording, and what is counted.

use stratakv_base::Key;
use stratakv_engine::{Error, Record, Reply, Unmet};
use stratakv_protocol::memcache::{Verb, reply};

use crate::counters::Counters;
use crate::output::Output;

/// What a client waits for.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A key of get, gets, gat or gats.
    Value { key: Key, cas: bool, touch: bool },
    /// The end of a get.
    ValuesEnd,
    /// A storage command.
    Stored(Verb),
    /// delete.
    Deleted,
    /// incr, decr.
    Number { decrement: bool },
    /// touch.
    Touched,
    /// flush_all.
    Flushed,
    /// Text known beforehand.
    Text(&'static [u8]),
    /// Text made beforehand.
    Written(Vec<u8>),
}

/// Puts replies into words. One for each connection: the values of a get are one answer.
#[derive(Debug, Default)]
pub(crate) struct Wording {
    /// A key of the current get failed; its error ended the answer.
    get_failed: bool,
}

impl Wording {
    /// Appends the answer, nothing if the client wants none. `reply` is `None` for answers without operation.
    pub(crate) fn write(
        &mut self,
        answer: Answer,
        reply: Option<Reply>,
        noreply: bool,
        out: &mut Output,
        counters: &Counters,
    ) {
        let mut unheard = Output::default();
        let out = if noreply { &mut unheard } else { out };
        match (answer, reply) {
            (Answer::Text(text), _) => out.push(text),
            (Answer::Written(text), _) => out.push(&text),
            (Answer::ValuesEnd, _) => {
                if !std::mem::take(&mut self.get_failed) {
                    out.push(reply::END);
                }
            }
            (Answer::Value { .. }, _) if self.get_failed => {}
            (Answer::Value { .. }, Some(Reply::Failed(error))) => {
                self.get_failed = true;
                failed(&error, false, out, counters);
            }
            (answer, Some(Reply::Failed(error))) => failed(&error, matches!(answer, Answer::Stored(_)), out, counters),
            (Answer::Value { key, cas, touch }, reply) => value(&key, cas, touch, reply, out, counters),
            (Answer::Stored(verb), reply) => out.push(stored(verb, reply.as_ref(), counters)),
            (Answer::Deleted, reply) => out.push(deleted(reply.as_ref(), counters)),
            (Answer::Number { decrement }, reply) => number(decrement, reply.as_ref(), out, counters),
            (Answer::Touched, reply) => out.push(touched(reply.as_ref(), counters)),
            (Answer::Flushed, _) => out.push(reply::OK),
        }
    }
}

fn value(key: &Key, cas: bool, touch: bool, reply: Option<Reply>, out: &mut Output, counters: &Counters) {
    let Some(Reply::Record(Some(Record { value, value_bytes, flags, version, .. }))) = reply else {
        counters.get_misses.add(1);
        counters.touch_misses.add(u64::from(touch));
        return;
    };
    counters.get_hits.add(1);
    counters.touch_hits.add(u64::from(touch));
    // The length sent must be that of the bytes which follow, whatever the record says.
    debug_assert_eq!(value.len(), value_bytes);
    out.text(|text| reply::value_header(text, key.user(), flags, value.len(), cas.then_some(version)));
    out.push_value(&value);
    out.push(reply::CRLF);
}

fn stored(verb: Verb, reply: Option<&Reply>, counters: &Counters) -> &'static [u8] {
    let is_cas = matches!(verb, Verb::Cas(_));
    match reply {
        Some(Reply::Unmet(Unmet::Absent)) if is_cas => {
            counters.cas_misses.add(1);
            reply::NOT_FOUND
        }
        Some(Reply::Unmet(_)) if is_cas => {
            counters.cas_badval.add(1);
            reply::EXISTS
        }
        Some(Reply::Unmet(_)) => reply::NOT_STORED,
        _ => {
            counters.cas_hits.add(u64::from(is_cas));
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

fn number(decrement: bool, reply: Option<&Reply>, out: &mut Output, counters: &Counters) {
    let (hits, misses) = match decrement {
        true => (&counters.decr_hits, &counters.decr_misses),
        false => (&counters.incr_hits, &counters.incr_misses),
    };
    match reply {
        Some(Reply::Number { number, .. }) => {
            hits.add(1);
            out.text(|text| reply::number(text, *number));
        }
        Some(Reply::Unmet(Unmet::NotANumber)) => out.push(reply::NOT_A_NUMBER),
        _ => {
            misses.add(1);
            out.push(reply::NOT_FOUND);
        }
    }
}

fn touched(reply: Option<&Reply>, counters: &Counters) -> &'static [u8] {
    match reply {
        Some(Reply::Record(Some(_)) | Reply::Done { .. }) => {
            counters.touch_hits.add(1);
            reply::TOUCHED
        }
        _ => {
            counters.touch_misses.add(1);
            reply::NOT_FOUND
        }
    }
}

fn failed(error: &Error, storing: bool, out: &mut Output, counters: &Counters) {
    counters.server_errors.add(1);
    match error {
        Error::ValueTooLarge { .. } => {
            counters.store_too_large.add(1);
            out.push(reply::TOO_LARGE);
        }
        Error::Full(_) | Error::MemoryFull { .. } if storing => {
            counters.store_no_memory.add(1);
            out.text(|text| reply::server_error(text, &format!("out of memory storing object: {error}")));
        }
        // Damage is logged once, where it is met, not with every request for it.
        Error::Io { .. } | Error::Poisoned(_) | Error::Unknown(_) => {
            tracing::error!(%error, "an operation failed");
            out.text(|text| reply::server_error(text, &error.to_string()));
        }
        error => out.text(|text| reply::server_error(text, &error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use stratakv_base::CollectionId;
    use stratakv_engine::Value;

    use super::*;

    fn written(replies: Vec<(Answer, Option<Reply>)>) -> String {
        let (mut wording, mut out, counters) = (Wording::default(), Output::default(), Counters::default());
        for (answer, reply) in replies {
            wording.write(answer, reply, false, &mut out, &counters);
        }
        let mut text = Vec::new();
        for chunk in out.take().0 {
            let stratakv_device::ring::Chunk::Bytes(bytes) = chunk else { panic!("no blocks here") };
            text.extend(bytes);
        }
        String::from_utf8(text).unwrap()
    }

    fn get() -> Answer {
        Answer::Value { key: Key::new(CollectionId(0), b"k").unwrap(), cas: true, touch: false }
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
            (Answer::Stored(Verb::Add), Unmet::Present { version: 1 }, "NOT_STORED\r\n"),
            (Answer::Stored(Verb::Append), Unmet::Absent, "NOT_STORED\r\n"),
            (Answer::Stored(Verb::Cas(1)), Unmet::Absent, "NOT_FOUND\r\n"),
            (Answer::Stored(Verb::Cas(1)), Unmet::Version { found: 2 }, "EXISTS\r\n"),
            (Answer::Deleted, Unmet::Absent, "NOT_FOUND\r\n"),
            (Answer::Touched, Unmet::Absent, "NOT_FOUND\r\n"),
            (Answer::Number { decrement: true }, Unmet::Absent, "NOT_FOUND\r\n"),
            (
                Answer::Number { decrement: false },
                Unmet::NotANumber,
                "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            ),
        ];
        for (answer, unmet, expected) in cases {
            assert_eq!(written(vec![(answer.clone(), Some(Reply::Unmet(unmet)))]), expected, "{answer:?}");
        }
        let full = written(vec![(Answer::Stored(Verb::Set), Some(Reply::Failed(Error::Full("no page"))))]);
        assert!(full.starts_with("SERVER_ERROR out of memory storing object: the store is full (no page)"), "{full}");
    }
}
