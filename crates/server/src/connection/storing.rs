//! Storage commands whose data block is coming.

use bytes::Bytes;
use stratakv_base::Key;
use stratakv_protocol::memcache::{BadDataChunk, Body, Verb, reply};
use stratakv_protocol::resp::ProtocolError;

use super::{Connection, Context};
use crate::answer::{Answer, Dialect};
use crate::memory_budget::ValuePermit;
use crate::received::SHARED_BYTES_MIN;
use crate::request::Request;

/// A storage command whose data block is coming.
#[derive(Debug)]
pub(super) struct Storing {
    pub(super) header: Header,
    pub(super) body: Body,
    /// For all of it.
    pub(super) claimed: Option<ValuePermit>,
}

impl Storing {
    pub(super) fn new(header: Header, body: Body) -> Storing {
        Storing { header, body, claimed: None }
    }
}

#[derive(Debug)]
pub(super) enum Header {
    Classic {
        verb: Verb,
        key: Key,
        flags: u32,
        exptime: i64,
        noreply: bool,
    },
    /// The value is missing.
    Planned(Box<(Request, Dialect)>),
    /// The value says who the client is.
    Account,
    /// An argument of a Redis client.
    Argument,
}

impl Connection {
    /// Moves received bytes into the data block; begins the command when it is whole.
    pub(super) fn collect(&mut self, context: &mut Context<'_>) -> bool {
        let Some(mut storing) = self.unfinished.storing.take() else { return true };
        let Some(value) = self.take_block(&mut storing.body) else {
            self.input.hungry = true;
            self.unfinished.storing = Some(storing);
            return false;
        };
        let header = storing.header;
        let Ok(value) = value else {
            if matches!(header, Header::Argument) {
                self.end_protocol(ProtocolError::NoLineEnd, context);
                return true;
            }
            context.counters.protocol_errors.add(1);
            self.client.errors += 1;
            let is_classic = matches!(header, Header::Classic { .. });
            context.counters.cmd_set.add(u64::from(is_classic));
            self.answer(Answer::Text(reply::BAD_DATA_CHUNK), matches!(header, Header::Classic { noreply: true, .. }));
            return true;
        };
        match header {
            Header::Classic { verb, key, flags, exptime, noreply } => {
                self.write_value(verb, key, value, (flags, exptime, noreply), context)
            }
            Header::Account => {
                self.account(&value, context);
                true
            }
            Header::Argument => self.argument(value),
            Header::Planned(planned) => {
                let (mut request, dialect) = *planned;
                request.set_value(value);
                self.plan(request, dialect, context)
            }
        }
    }

    /// The value, once its block is whole. What is long stays in the buffer that it was received
    /// in.
    fn take_block(&mut self, body: &mut Body) -> Option<Result<Bytes, BadDataChunk>> {
        let fresh = self.input.received.fresh().len();
        if body.is_untouched() && fresh.min(body.total()) >= SHARED_BYTES_MIN {
            if fresh >= body.total() {
                return Some(body.whole(self.input.received.cut(body.total())));
            }
            if let Some((buffer, from)) = self.input.received.surrender() {
                body.adopt(buffer, from);
                return None;
            }
        }
        let taken = body.push(self.input.received.fresh());
        self.input.received.consume(taken);
        (body.missing() == 0).then(|| std::mem::take(body).finish())
    }
}
