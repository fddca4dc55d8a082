//! Redis clients: their requests become operations, and go through the same order of answers,
//! limits and budget as those of memcache clients.

use std::borrow::Cow;

use bytes::Bytes;
use stratakv_base::Key;
use stratakv_engine::Operation;
use stratakv_protocol::memcache::Body;
use stratakv_protocol::resp::{ARGUMENTS_MAX, Limits, Parsed, ProtocolError, RequestExcess, encode, words};

use super::state::ClientProtocol;
use super::{Connection, Context, Header, RECV_BYTES_MAX, Storing, Target};
use crate::answer::Answer;
use crate::pending::{Access, ParsedCommand, PendingAnswer, Reading};
use crate::request::{Action, Request};
use crate::resp::{
    Arguments, RequestRefusal, RespAnswer, RespClient, Said, Session, TurnWaiter, Work, WorkContext, WorkKind, written,
};
use crate::schedule::UNITS_EACH;

mod about;
mod accounts;
mod alone;
mod bits;
mod clients;
mod cluster;
mod data;
mod help;
mod keys;
mod observers;
mod pubsub;
mod ranges;
mod saving;
mod server;
mod session;
mod strings;
mod table;
mod transactions;
mod waits;

pub(super) use strings::GET;

use table::CommandSpec;
pub(crate) use waits::Waiting;

/// A request may hold this part of the server's memory for clients.
const REQUEST_SHARE: u64 = 4;
/// And this much beside its longest argument in any case.
const REQUEST_BYTES_MIN: usize = 64 << 10;
/// What a client may send that has yet to say who it is.
const STRANGER_LIMITS: Limits = Limits { argument_bytes_max: 1 << 10, request_bytes_max: 4 << 10, arguments_max: 10 };

/// So many arguments cost as much as a command.
const ARGUMENTS_OF_A_UNIT: usize = 8;

/// What handlers of commands return: a refusal is the reply.
pub(super) type Handled = Result<(), RequestRefusal>;

impl Connection {
    /// A fresh connection of a Redis client becomes one.
    pub(crate) fn speaks_resp(mut self) -> Connection {
        self.client.protocol = ClientProtocol::Resp(Box::default());
        self
    }

    /// Parses what has come of a Redis client; how many bytes that were, `None` if something is
    /// missing.
    pub(super) fn resp(&mut self, fresh: &[u8], context: &mut Context<'_>) -> Option<usize> {
        let limits = self.request_limits(context);
        let ClientProtocol::Resp(client) = &mut self.client.protocol else { return None };
        match client.parser.parse(fresh, limits) {
            Parsed::Incomplete => None,
            Parsed::Skip { consumed } => Some(consumed),
            Parsed::Part { consumed } => {
                client.gathered.keep(fresh, client.parser.spans());
                Some(consumed)
            }
            Parsed::Long { bytes, consumed } => {
                client.gathered.keep(fresh, client.parser.spans());
                self.unfinished.storing = Some(Storing::new(Header::Argument, Body::new(bytes)));
                Some(consumed)
            }
            Parsed::Request { consumed } => {
                self.request(fresh, context);
                Some(consumed)
            }
            Parsed::Inline { bytes, consumed } => {
                self.inline(fresh.get(..bytes).unwrap_or_default(), context);
                Some(consumed)
            }
            Parsed::TooLarge { excess, consumed } => {
                client.end_request();
                self.refuse_request(excess, limits, context);
                Some(consumed)
            }
            Parsed::Error(error) => {
                self.end_protocol(error, context);
                Some(fresh.len())
            }
        }
    }

    /// What a request may have: no more than the memory for clients allows, whatever others hold.
    fn request_limits(&self, context: &Context<'_>) -> Limits {
        if self.is_stranger(context) {
            return STRANGER_LIMITS;
        }
        let argument_bytes_max = usize::try_from(self.client.item_bytes_max).unwrap_or(usize::MAX);
        let share = usize::try_from(self.budget().max_bytes() / REQUEST_SHARE).unwrap_or(usize::MAX);
        let request_bytes_max = share.max(argument_bytes_max.saturating_add(REQUEST_BYTES_MIN));
        Limits { argument_bytes_max, request_bytes_max, arguments_max: ARGUMENTS_MAX }
    }

    /// Whether more of a request may be parsed that holds much already: what is kept of it is
    /// memory that others may be waiting for.
    pub(super) fn may_gather(&mut self) -> bool {
        let held = match &self.client.protocol {
            ClientProtocol::Resp(client) => client.held_bytes(),
            _ => return true,
        };
        held <= RECV_BYTES_MAX || self.may_take(self.input.received.fresh().len() as u64) || self.has_turn()
    }

    /// Whether it has the turn of large requests, which it takes if it may. Only for a request that
    /// holds much: those that hold nothing can wait.
    pub(super) fn has_turn(&mut self) -> bool {
        let ClientProtocol::Resp(client) = &mut self.client.protocol else { return false };
        let has = client.held_bytes() > RECV_BYTES_MAX && client.take_turn(&self.memory.permit);
        self.memory.is_starved &= !has;
        has
    }

    /// A long argument is whole.
    pub(super) fn argument(&mut self, argument: Bytes) -> bool {
        if let ClientProtocol::Resp(client) = &mut self.client.protocol {
            client.gathered.push_long(argument);
        }
        true
    }

    /// The stream of requests cannot go on.
    pub(super) fn end_protocol(&mut self, error: ProtocolError, context: &mut Context<'_>) {
        context.counters.protocol_errors.add(1);
        self.client.errors += 1;
        self.answer(refusal(&format!("ERR Protocol error: {error}")), false);
        self.ending.closing = true;
    }

    /// A browser was led here by somebody's page: nothing behind this is carried out or answered.
    fn end_http(&mut self, context: &mut Context<'_>) {
        tracing::debug!("a client of HTTP is closed");
        context.counters.protocol_errors.add(1);
        self.client.errors += 1;
        self.ending.closing = true;
    }

    /// A request over its limits has passed.
    fn refuse_request(&mut self, excess: RequestExcess, limits: Limits, context: &mut Context<'_>) {
        context.counters.protocol_errors.add(1);
        self.client.errors += 1;
        if self.is_stranger(context) {
            return self.answer(refusal(session::NO_AUTH), false);
        }
        context.counters.store_too_large.add(1);
        let text = match excess {
            RequestExcess::Argument(bytes) => format!(
                "ERR an argument has {bytes} bytes, and clients may store {}: raise --item-bytes-max, or store it in parts",
                limits.argument_bytes_max
            ),
            RequestExcess::Request => format!(
                "ERR the request has more than {} bytes in all: send it in parts, or raise --memory",
                limits.request_bytes_max
            ),
        };
        self.answer(refusal(&text), false);
    }

    fn inline(&mut self, line: &[u8], context: &mut Context<'_>) {
        let Ok(words) = words(line) else { return self.end_protocol(ProtocolError::Quotes, context) };
        if words.is_empty() {
            return;
        }
        if let ClientProtocol::Resp(client) = &mut self.client.protocol {
            words.iter().for_each(|word| client.gathered.push(word));
        }
        // The line is in words: nothing of it is read again.
        self.request(b"", context);
    }

    /// Carries out a whole request. Who sends it is lent out of `self` meanwhile.
    fn request(&mut self, fresh: &[u8], context: &mut Context<'_>) {
        let protocol = std::mem::replace(&mut self.client.protocol, ClientProtocol::Undecided);
        let ClientProtocol::Resp(mut client) = protocol else { return };
        let RespClient { parser, gathered, session, .. } = &mut *client;
        let arguments = Arguments::new(gathered, fresh, parser.spans());
        if let Err(why) = self.dispatch(&arguments, session, context) {
            self.client.errors += 1;
            context.counters.protocol_errors.add(1);
            self.answer(refusal(&why), false);
        }
        client.end_request();
        self.client.protocol = ClientProtocol::Resp(client);
    }

    fn dispatch(&mut self, arguments: &Arguments<'_>, session: &mut Session, context: &mut Context<'_>) -> Handled {
        context.counters.cmd_resp.add(1);
        self.client.reply_mode = self.client.reply_mode.next();
        self.grant.spend((arguments.len() / ARGUMENTS_OF_A_UNIT) as i64);
        let command = CommandSpec::find(arguments.get(0));
        if command.is_none() && is_http(arguments.get(0)) {
            self.end_http(context);
            return Ok(());
        }
        let is_open = command.is_some_and(|command| command.is_for_strangers());
        if self.is_stranger(context) && !is_open {
            return Err(Cow::Borrowed(session::NO_AUTH));
        }
        if let Some(command) = command
            && self.is_elsewhere(command, arguments, session, context)
        {
            return Ok(());
        }
        pubsub::check_listener(command, session)?;
        if session.transaction.queue.is_some() && !command.is_some_and(transactions::is_at_once) {
            let queued = self.queue(command, arguments, session, context);
            if let (Ok(()), Some(command)) = (&queued, command) {
                self.observe(command, arguments, true, context);
            }
            return queued;
        }
        let command = command.ok_or_else(|| table::unknown(arguments))?;
        if !command.takes(arguments.len()) {
            return Err(transactions::wrong_count(command, session));
        }
        self.observe(command, arguments, false, context);
        match (command.run, command.core) {
            (Some(run), _) => run(self, arguments, session, context),
            (None, Some(core)) => self.data_command(command, core, arguments, (session, context)),
            (None, None) => Err(table::unknown(arguments)),
        }
    }

    /// Asks one operation, whose reply is the answer.
    fn ask_resp(&mut self, key: Key, action: Action, said: Said, session: &Session, context: &mut Context<'_>) {
        let answer = Answer::Resp(RespAnswer { key: key.clone(), said, version: session.version });
        self.ask_once(Request::of(key, action), answer, false, context);
    }

    /// Begins a command of several operations. It reads and writes so many bytes.
    fn begin_work(
        &mut self,
        work: Work,
        access: Access,
        (reading_bytes, writing_bytes): (u64, u64),
        context: &mut Context<'_>,
    ) {
        let reading = Reading { bytes: reading_bytes, whole: false };
        self.begin(ParsedCommand::Work { work: Box::new(work), access, reading, writing_bytes }, context);
    }

    /// Asks for what a command needs first, and makes its place.
    pub(super) fn place_work(
        &mut self,
        mut work: Box<Work>,
        access: Access,
        (reading, writing_bytes): (Reading, u64),
        context: &mut Context<'_>,
    ) {
        let mut asked = Vec::new();
        let sequence = self.answers.first.wrapping_add(self.answers.pending.len() as u32);
        let ended = work.begin(&work_context(context, sequence), &mut asked);
        self.spend_on(&work, asked.len());
        let waits_for = work.waits_for();
        for (target, operation) in asked {
            self.submit(target, operation, context);
        }
        let reading_bytes = reading.bytes + work.held_bytes();
        self.writing_bytes += writing_bytes;
        self.reading.bytes += reading_bytes;
        let place = self.place(Answer::Work(work), false, access);
        (place.missing, place.reading_bytes, place.writing_bytes) = (1, reading_bytes, writing_bytes);
        let last = self.answers.pending.len() - 1;
        if let Some(timeout) = waits_for {
            self.begin_waiting(self.answers.first.wrapping_add(last as u32), timeout);
        }
        self.complete_step(last, ended);
    }

    /// Goes on with a command whose replies have come.
    pub(super) fn go_on(&mut self, index: usize, context: &mut Context<'_>) {
        let sequence = self.answers.first.wrapping_add(index as u32);
        let mut asked: Vec<(Target, Operation)> = Vec::new();
        let mut ended = None;
        let Some(pending) = self.answers.pending.get_mut(index) else { return };
        let Answer::Work(work) = &mut pending.answer else { return };
        while let (None, Some(reply)) = (&ended, work.arrived.pop_front()) {
            ended = work.step(reply, &work_context(context, sequence), &mut asked);
        }
        if (work.takes_long() || work.is_idle()) && ended.is_none() {
            let held = work.held_bytes();
            self.reading.bytes = self.reading.bytes - pending.reading_bytes + held;
            pending.reading_bytes = held;
        }
        let units = units_of(work, asked.len());
        self.grant.spend(units);
        for (target, operation) in asked {
            context.submissions.push(super::Submission { sequence, target, operation });
        }
        self.complete_step(index, ended);
    }

    /// Goes on with a command that has waited for room for so many bytes.
    pub(super) fn go_on_with_room(&mut self, index: usize, bytes: u64, context: &mut Context<'_>) {
        let sequence = self.answers.first.wrapping_add(index as u32);
        let mut asked: Vec<(Target, Operation)> = Vec::new();
        let Some(Answer::Work(work)) = self.answers.pending.get_mut(index).map(|pending| &mut pending.answer) else {
            return;
        };
        let ended = work.has_room(bytes, &work_context(context, sequence), &mut asked);
        for (target, operation) in asked {
            context.submissions.push(super::Submission { sequence, target, operation });
        }
        self.complete_step(index, ended);
    }

    /// A command has its answer, or waits for room. What it has said so far is sent in its turn.
    fn complete_step(&mut self, index: usize, ended: Option<Vec<u8>>) {
        if let Some(answer) = ended {
            self.begin_rest(index);
            return self.end_work(index, answer);
        }
        let Some(pending) = self.answers.pending.get_mut(index) else { return };
        let Answer::Work(work) = &mut pending.answer else { return };
        let said = if index == 0 { work.take_said() } else { Vec::new() };
        if !said.is_empty() {
            self.sending.output.push(&said);
        }
        let Some(bytes) = work.take_wanted_room() else { return };
        let held_bytes = work.held_bytes();
        if let WorkKind::Data(_) = work.kind {
            // As much is asked for at first of those that follow.
            self.reading.value_bytes = bytes.max(self.reading.value_bytes - self.reading.value_bytes / 8);
        }
        if let WorkKind::Many(_) = work.kind {
            // What it makes has room of its own, for which it asks.
            self.writing_bytes = self.writing_bytes.saturating_sub(std::mem::take(&mut pending.writing_bytes));
        }
        self.reading.bytes = self.reading.bytes - pending.reading_bytes + held_bytes;
        (pending.reading_bytes, pending.again_bytes) = (held_bytes, Some(bytes));
        self.reading.postponed += 1;
    }

    /// There is no room for a command, nor for those behind it that wait for some: they give back
    /// what they can make again. One that can never have room is refused. Whether it is to
    /// ask again at once: it wants less now, or there is another one behind it in its place.
    pub(super) fn lacks_room(&mut self, index: usize, bytes: u64) -> bool {
        for pending in self.answers.pending.iter_mut().skip(index).filter(|pending| pending.again_bytes.is_some()) {
            if let Answer::Work(work) = &mut pending.answer {
                work.shed();
            }
        }
        if let (0, Some(pending)) = (index, self.answers.pending.front_mut())
            && let Answer::Work(work) = &mut pending.answer
        {
            let said = work.take_said();
            if !said.is_empty() {
                // It wanted room for that, too.
                pending.again_bytes = Some(bytes.saturating_sub(said.len() as u64));
                self.sending.output.push(&said);
                return true;
            }
        }
        let can_have = self.footprint().saturating_add(bytes) <= self.budget().max_bytes();
        if index > 0 || can_have || !self.holds_still() {
            return false;
        }
        let most = self.budget().max_bytes();
        let Some(pending) = self.answers.pending.get_mut(index) else { return false };
        let Answer::Work(work) = &mut pending.answer else { return false };
        let text = format!(
            "ERR the command takes {bytes} bytes beside what its connection holds, which is more than the {most} \
             bytes that all clients may hold: send less at once, or raise --memory"
        );
        let said = written(|out| encode::error(out, &text));
        self.memory.is_starved = false;
        if let Some(bytes) = work.refuse_first(&said) {
            pending.again_bytes = Some(bytes);
            return true;
        }
        let answer = work.refused(said);
        pending.again_bytes = None;
        self.reading.postponed -= 1;
        self.end_work(index, answer);
        false
    }

    /// Whether nothing that it holds goes by itself: all commands behind the first one have their
    /// answers, or wait for room.
    fn holds_still(&self) -> bool {
        let is_still = |pending: &PendingAnswer| pending.missing == 0 || pending.again_bytes.is_some();
        let is_sent = self.sending.output.bytes() + self.sending.bytes == 0;
        is_sent && self.memory.outside_bytes == 0 && self.answers.pending.iter().all(is_still)
    }

    fn spend_on(&mut self, work: &Work, operations: usize) {
        self.grant.spend(units_of(work, operations));
    }

    /// A command has its answer.
    pub(super) fn end_work(&mut self, index: usize, answer: Vec<u8>) {
        self.end_waiting(index, &answer);
        let Some(pending) = self.answers.pending.get_mut(index) else { return };
        let bytes = answer.capacity() as u64;
        pending.missing = 0;
        self.reading.bytes = self.reading.bytes - pending.reading_bytes + bytes;
        pending.reading_bytes = bytes;
        let written = std::mem::take(&mut pending.writing_bytes);
        self.writing_bytes = self.writing_bytes.saturating_sub(written);
        pending.answer = Answer::Written(answer);
    }
}

/// Whether these are the first words of lines of HTTP that a page may have a browser send here: no
/// command has such a name. What comes behind could be commands.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"Host:")
}

/// What commands of several operations see of the server.
fn work_context<'a>(context: &Context<'a>, sequence: u32) -> WorkContext<'a> {
    let (worker_slot, connection) = context.server.place();
    WorkContext {
        turns: &context.resp.turns,
        trees: &context.resp.trees,
        waiter: TurnWaiter { worker_slot, connection, sequence },
        here: context.here(),
        level: context.level,
        batch_level: context.resp.batch_level,
        shards: context.shards,
        cursors: &context.resp.cursors,
        waits: &context.resp.waits,
        pubsub: &context.resp.pubsub,
    }
}

/// What operations of a command cost beside the command.
fn units_of(work: &Work, operations: usize) -> i64 {
    if work.takes_long() { UNITS_EACH * operations as i64 } else { operations as i64 }
}

/// An error reply.
fn refusal(text: &str) -> Answer {
    Answer::Written(written(|out| encode::error(out, text)))
}
