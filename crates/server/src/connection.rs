//! A connection as a state machine: bytes in, operations out; replies in, chunks out. No sockets,
//! no clock.
//!
//! Many commands of a connection are in progress at once; their answers leave in the order of the
//! commands. A command waits for an earlier one of the same connection only where the order can be
//! seen: a read and a write of the same key, and `flush_all`, `stats` and `backup`, which wait for
//! everything before them. What a connection holds is bounded (`has_room` in `memory`): beyond it
//! nothing more is parsed, and then nothing more is received.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stratakv_base::{CollectionId, Key, Level, Mono, Wall, fault_point, probe};
use stratakv_device::ring::Chunk;
use stratakv_engine::{Operation, Reply, Value};
use stratakv_protocol::memcache::binary::{REQUEST_MAGIC, Status};
use stratakv_protocol::memcache::{
    BinaryParsed, BinaryParser, BinaryRequest, Body, CollectionsRequest, Detail, LINE_BYTES_MAX, Parsed, Parser,
    Statistics, Watched, reply,
};

use crate::answer::{Answer, AnswerContext, Dialect, Planned};
use crate::binary::{self, Begun};
use crate::block_budget::BlockBudget;
use crate::counters::Counters;
use crate::credentials::Accounts;
use crate::marks::Marks;
use crate::memory_budget::MemoryPermit;
use crate::orphans::NodeRemovals;
use crate::output::Output;
use crate::pending::{Access, ParsedCommand, PendingAnswer, Reading};
use crate::recency::Recency;
use crate::request::{Action, Next, Plan, Request, RequestOutcome};
use crate::resp::{
    ClientDescription, ClientFilter, ConnectionAddress, EncodingSettings, KilledClients, RespShared, TurnNews,
};
use crate::schedule::{ATTEMPT_ERRORS, cost_of, cost_of_text};
use crate::watch::{Log, Watching};

mod classic;
pub(crate) mod dump;
mod grant;
mod memory;
mod more_keys;
mod places;
mod reading;
mod refused;
mod resp;
mod state;
mod storing;

use grant::Grant;
pub(crate) use reading::Stream;
pub(crate) use resp::Waiting;
use state::{
    Answers, Client, ClientProtocol, Ending, Footprint, Input, ReadAhead, ReplyMode, Rest, Sending, Unfinished,
};
use storing::{Header, Storing};

/// Commands in progress on one connection.
const PENDING_MAX: usize = 64;
/// Bytes of answers put into words ahead of sending; further replies wait as they are, and count as
/// commands in progress.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Bytes of values being written for one connection, beyond which nothing more is begun.
const WRITING_BYTES_MAX: u64 = 4 << 20;
/// Room for one receive: grows while receives fill it, until a value of 64 KiB comes whole.
const RECV_BYTES_MIN: usize = 2 << 10;
const RECV_BYTES_MAX: usize = 68 << 10;
/// Bytes thrown away while a peer does not notice that it was hung up on.
const UNHEARD_BYTES_MAX: usize = 4 << 20;
/// So much is sent although more follows at once.
const CORK_BYTES: u64 = 64 << 10;
/// Bodies with less than this missing are received with the lines around them.
const LEND_BYTES_MIN: usize = 4 << 10;

/// Where an operation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The shard of its key.
    Key,
    /// One shard.
    Shard(usize),
    /// The shard that coordinates a write of several keys.
    Batch,
    /// Every shard, a copy each; as many replies.
    Every,
}

/// An operation to submit; its reply comes back with the same number.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) sequence: u32,
    pub(crate) target: Target,
    pub(crate) operation: Operation,
}

/// What a connection sees of its server.
pub(crate) struct Context<'a> {
    pub(crate) wall: Wall,
    pub(crate) level: Level,
    pub(crate) shards: usize,
    pub(crate) counters: &'a Counters,
    pub(crate) marks: &'a Marks,
    pub(crate) recency: &'a Recency,
    pub(crate) nodes: NodeRemovals<'a>,
    pub(crate) log: Log<'a>,
    /// Who may use the server, if not everybody may.
    pub(crate) accounts: Option<&'a Accounts>,
    pub(crate) server: &'a dyn ServerContext,
    /// What Redis clients share.
    pub(crate) resp: &'a RespShared,
    /// Whether the store may drop records.
    pub(crate) is_cache: bool,
    /// Operations that came out.
    pub(crate) submissions: &'a mut Vec<Submission>,
}

impl<'a> Context<'a> {
    /// What answers are made of.
    fn here(&self) -> AnswerContext<'a> {
        AnswerContext {
            counters: self.counters,
            marks: self.marks,
            recency: self.recency,
            nodes: self.nodes,
            log: self.log,
            wall: self.wall,
        }
    }
}

/// The server's side of commands that are not about keys.
pub(crate) trait ServerContext {
    /// The text of a `stats`.
    fn statistics(&self, which: Statistics, wall: Wall) -> Vec<u8>;
    /// Remembers a `flush_all` for so much later; replaces the one remembered before. `None`
    /// forgets it.
    fn flush_later(&self, delay: Option<Duration>);
    /// From now on the connection is told of these; `None`: as many watch as may.
    fn watch(&self, kinds: Watched) -> Option<Watching>;
    /// Begins a backup of this name; the answer.
    fn backup(&self, name: &str) -> Vec<u8>;
    /// Begins a request about collections; the answer.
    fn collections(&self, asked: &CollectionsRequest<'_>) -> Vec<u8>;
    /// Changes what the store may take of memory; whether it can.
    fn limit_memory(&self, bytes: u64) -> bool;
    /// Reads the files of TLS again; the answer.
    fn refresh_certificates(&self) -> Vec<u8>;
    /// Whether clients may stop the server.
    fn may_shut_down(&self) -> bool;
    /// Stops the server in order.
    fn shut_down(&self);
    /// The server's version.
    fn version(&self) -> &str;
    /// Records of the store.
    fn records(&self) -> u64;
    /// The thread of the connection, and its number there.
    fn place(&self) -> (usize, u32);
    /// The number of the client.
    fn client_id(&self) -> u64;
    /// Where the client's connection is.
    fn address(&self) -> ConnectionAddress;
    /// Others are told this of the client.
    fn describe_client(&self, description: &ClientDescription);
    /// The line of the client in `CLIENT LIST`.
    fn client(&self) -> String;
    /// How many clients there are.
    fn connections(&self) -> usize;
    /// The lines of `CLIENT LIST` of these clients.
    fn clients(&self, filter: &ClientFilter) -> String;
    /// Closes these clients, but for the one that asks.
    fn kill_clients(&self, filter: &ClientFilter) -> KilledClients;
    /// When the tick began.
    fn mono(&self) -> Mono;
    /// Where the client is, in words of Redis, and its name.
    fn client_words(&self) -> (String, String);
    /// Where the client has connected to, if not to a file.
    fn local_address(&self) -> Option<SocketAddr>;
    /// When the last backup was whole, in seconds of the wall clock; at first the server's start.
    fn saved_at(&self) -> u64;
    /// These sections of `INFO`; none: all.
    fn info(&self, sections: &[String], wall: Wall) -> String;
    /// Everything was removed: nodes of long structures are to go, too.
    fn sweep_nodes(&self);
    /// What `CONFIG GET` knows.
    fn resp_settings(&self) -> Vec<(&'static str, String)>;
    /// What `CONFIG SET` may change.
    fn resp_encodings(&self) -> &EncodingSettings;
}

/// The buffer of a receive in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    Lines,
    Body,
    /// What comes behind bytes that wait.
    Behind,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Client,
    input: Input,
    unfinished: Unfinished,
    answers: Answers,
    reading: ReadAhead,
    /// Bytes of values being written.
    writing_bytes: u64,
    sending: Sending,
    memory: Footprint,
    grant: Grant,
    /// It takes no commands any more, and is told what others do.
    watching: Option<Watching>,
    /// Its command that waits for an element: those behind it wait too.
    waiting: Option<Waiting>,
    ending: Ending,
}

impl Connection {
    /// A fresh connection; storage commands may carry up to `item_bytes_max`; answers may hold
    /// blocks from `block_budget`; what it holds beyond a constant is what `permit` allows.
    pub(crate) fn new(item_bytes_max: usize, block_budget: Arc<BlockBudget>, permit: MemoryPermit) -> Connection {
        Connection {
            client: Client::new(item_bytes_max as u64),
            input: Input::default(),
            unfinished: Unfinished::default(),
            answers: Answers::default(),
            reading: ReadAhead::default(),
            writing_bytes: 0,
            sending: Sending::new(block_budget),
            memory: Footprint::new(permit),
            grant: Grant::new(),
            watching: None,
            waiting: None,
            ending: Ending::default(),
        }
    }

    /// Whether to end sending now, so that the peer learns it is over: all answers are out. What
    /// the peer still sends is read and thrown away until it hangs up too; closing with bytes
    /// unread would take back answers on their way.
    pub(crate) fn hang_up(&mut self) -> bool {
        let now = self.is_drained() && !self.ending.ended && !self.ending.broken && !self.ending.hung_up;
        self.ending.hung_up |= now;
        now
    }

    /// An operation was answered.
    pub(crate) fn replied(&mut self, sequence: u32, reply: Reply) {
        let index = sequence.wrapping_sub(self.answers.first) as usize;
        if self.answers.pending.get(index).is_none_or(|pending| pending.missing == 0) {
            return;
        }
        let Some(reply) = self.after_old_value(index, reply) else { return };
        let Some(pending) = self.answers.pending.get_mut(index) else { return };
        if let Answer::Work(work) = &mut pending.answer {
            work.arrived.push_back(reply);
            self.answers.replied.push(sequence);
            return;
        }
        let mut reply = match reply {
            Reply::Part(record, hold) => return self.begin_stream(index, record, hold),
            Reply::Longer(bytes) => return self.postpone(index, bytes),
            reply if pending.stream.is_some() => return self.slices_came(index, reply),
            reply => reply,
        };
        let mut read_bytes = 0;
        if let (false, Reply::Record(Some(record))) = (pending.answer.needs_value(), &mut reply) {
            // A touch brings the whole record.
            record.value = Value::Inline(Bytes::new());
        }
        if let (Some(_), Reply::Record(Some(record))) = (pending.answer.reads(), &mut reply) {
            self.reading.value_bytes = record.value_bytes.max(self.reading.value_bytes - self.reading.value_bytes / 8);
            let missing_bytes = record.value_bytes.saturating_sub(pending.reading_bytes);
            // All of it, as the engine had to read it, stays if it may be held: to ask again would
            // be to read again.
            let is_all = record.value.len() == record.value_bytes;
            let (held, whole) = (self.reading.bytes + self.sending.output.bytes() + self.sending.bytes, pending.whole);
            let fits = is_all && held + missing_bytes <= reading::HELD_BYTES_MAX;
            if !whole && missing_bytes > 0 && !(fits && self.may_take(missing_bytes)) {
                return self.postpone(index, record.value_bytes);
            }
            read_bytes = record.value.len();
            self.grant.spend(cost_of(read_bytes));
        }
        let Some(pending) = self.answers.pending.get_mut(index) else { return };
        if let (Some(_), Reply::Record(Some(record))) = (pending.answer.reads(), &mut reply) {
            pending.block_permit = self.sending.block_budget.permit(&mut record.value);
        }
        self.reading.bytes = self.reading.bytes - pending.reading_bytes + read_bytes;
        pending.reading_bytes = read_bytes;
        if let Answer::Planned(_) | Answer::Dump(_) = pending.answer {
            let goes_on = matches!(pending.answer, Answer::Planned(_));
            self.answers.replied.extend(goes_on.then_some(sequence));
            pending.reply = Some(reply);
            return;
        }
        pending.missing -= 1;
        // Of several replies the first failure counts.
        if !matches!(pending.reply, Some(Reply::Failed(_))) {
            pending.reply = Some(reply);
        }
        if pending.missing == 0 {
            let written = std::mem::take(&mut pending.writing_bytes);
            self.writing_bytes = self.writing_bytes.saturating_sub(written);
        }
    }

    /// There is news for a command about the turn with this ticket.
    pub(crate) fn hear(&mut self, sequence: u32, ticket: u64, news: TurnNews) {
        let index = sequence.wrapping_sub(self.answers.first) as usize;
        let Some(Answer::Work(work)) = self.answers.pending.get_mut(index).map(|pending| &mut pending.answer) else {
            return;
        };
        if work.hear(ticket, news) {
            self.answers.replied.push(sequence);
        }
    }

    /// A send ended; if it failed, the connection is over.
    pub(crate) fn sent(&mut self, ok: bool) {
        self.sending.bytes = 0;
        self.sending.permits.clear();
        if !ok {
            self.abort();
        }
    }

    /// Nothing more is received: what has come is answered.
    pub(crate) fn end(&mut self) {
        self.ending.ended = true;
    }

    /// Gives up: nothing more is parsed or sent.
    pub(crate) fn abort(&mut self) {
        fault_point!("server_blocks_kept_of_a_broken_connection", {
            Box::leak(Box::new(std::mem::take(&mut self.sending.output)));
        });
        self.ending.broken = true;
        self.ending.closing = true;
        self.answers.pending.iter_mut().for_each(|pending| pending.stream = None);
        self.sending.output = Output::default();
        self.unfinished.held = None;
        self.unfinished.rest = None;
        self.unfinished.more = None;
        self.unfinished.storing = None;
        self.unfinished.refused = None;
        self.watching = None;
        self.give_up_waiting();
        self.stop_listening();
    }

    /// Parses, begins and words as much as limits and order allow.
    pub(crate) fn advance(&mut self, context: &mut Context<'_>) {
        (self.memory.is_starved, self.grant.wants_more) = (false, false);
        loop {
            self.drop_old_values(context);
            self.proceed(context);
            self.resume_waiting(context);
            self.word(&context.here());
            while self.pump_stream(context) || self.list(context) {
                self.word(&context.here());
            }
            self.ask_again(context);
            // With room a command may have ended at once.
            self.word(&context.here());
            self.note_slow(context);
            self.pass_on();
            self.pass_messages(context);
            if !self.step(context) {
                break;
            }
        }
        if self.ending.ended && self.input.hungry && self.input.receiving.is_none() {
            self.ending.closing = true;
            self.watching = None;
        }
    }

    /// What to send, if there is something and nothing is being sent.
    pub(crate) fn next_send(&mut self) -> Option<(Vec<Chunk>, u64)> {
        // What follows at once goes with it.
        let is_corked = self.grant.wants_more && self.sending.output.bytes() < CORK_BYTES;
        if self.sending.bytes > 0 || self.sending.output.is_empty() || self.ending.broken || is_corked {
            return None;
        }
        let (chunks, bytes, block_permits) = self.sending.output.take();
        self.sending.bytes = bytes;
        self.sending.permits = block_permits;
        Some((chunks, bytes))
    }

    /// Whether the connection can be closed.
    pub(crate) fn is_finished(&self) -> bool {
        self.ending.broken
            || (self.is_drained() && (self.ending.ended || self.ending.unheard_bytes > UNHEARD_BYTES_MAX))
    }

    /// All that will be answered has been sent.
    fn is_drained(&self) -> bool {
        self.ending.closing
            && self.answers.pending.is_empty()
            && self.sending.output.is_empty()
            && self.sending.bytes == 0
    }

    /// Whether it is told what others do.
    pub(crate) fn is_watching(&self) -> bool {
        self.watching.is_some()
    }

    /// Whether it was given up, and did not end in order.
    pub(crate) fn is_broken(&self) -> bool {
        self.ending.broken
    }

    /// What a watcher is told next, once it has taken what it was told before.
    fn pass_on(&mut self) {
        if self.answers.pending.is_empty() && self.sending.bytes == 0 && self.sending.output.is_empty() {
            let lines = self.watching.as_ref().map(Watching::take).unwrap_or_default();
            self.sending.output.push(&lines);
        }
    }

    /// Answers that are complete and next in order.
    fn word(&mut self, here: &AnswerContext<'_>) {
        while self.sending.output.bytes() < OUTPUT_BYTES_MAX
            && self.answers.pending.front().is_some_and(|first| first.missing == 0)
        {
            let Some(first) = self.answers.pending.front_mut() else { return };
            // Piece by piece: as a whole it is large.
            let answer = std::mem::replace(&mut first.answer, Answer::ValuesEnd);
            let (noreply, ends, reading_bytes) = (first.noreply, first.ends, first.reading_bytes);
            let (reply, block_permit) = (first.reply.take(), first.block_permit.take());
            self.answers.pending.drain(..1);
            self.answers.first = self.answers.first.wrapping_add(1);
            self.reading.bytes -= reading_bytes;
            if !self.ending.broken {
                self.answers.response_encoder.write(answer, reply, noreply, &mut self.sending.output, here);
                if ends {
                    self.answers.response_encoder.write(Answer::ValuesEnd, None, false, &mut self.sending.output, here);
                }
                self.sending.output.hold(block_permit);
            }
        }
    }

    /// What follows from replies to requests of several operations.
    fn proceed(&mut self, context: &mut Context<'_>) {
        for sequence in std::mem::take(&mut self.answers.replied) {
            let index = sequence.wrapping_sub(self.answers.first) as usize;
            let Some(pending) = self.answers.pending.get_mut(index) else { continue };
            if let Answer::Work(work) = &pending.answer {
                match self.ending.broken && work.takes_long() {
                    // Nobody is there to hear the rest of a walk.
                    true => self.end_work(index, Vec::new()),
                    false => self.go_on(index, context),
                }
                continue;
            }
            let (Answer::Planned(planned), Some(reply)) = (&mut pending.answer, pending.reply.take()) else { continue };
            match planned.plan.next(reply, context.level, context.marks, context.wall) {
                Next::Ask(operation) => {
                    context.submissions.push(Submission { sequence, target: Target::Key, operation });
                }
                Next::End(outcome) => {
                    planned.outcome = Some(outcome);
                    pending.missing = 0;
                    let written = std::mem::take(&mut pending.writing_bytes);
                    self.writing_bytes = self.writing_bytes.saturating_sub(written);
                }
            }
        }
    }

    /// Does one thing; false if nothing can be done now.
    fn step(&mut self, context: &mut Context<'_>) -> bool {
        if self.watching.is_some() && self.input.receiving.is_none() {
            // What a watcher says is thrown away.
            self.input.received.consume(self.input.received.fresh().len());
            self.input.hungry = true;
        }
        let is_receiving = self.input.receiving.is_some_and(|receiving| receiving != Receiving::Behind);
        if self.ending.closing || self.input.hungry || is_receiving || self.waiting.is_some() {
            return false;
        }
        if self.unfinished.held.is_none() && self.unfinished.rest.as_ref().is_some_and(Rest::is_over) {
            self.end_get();
            return true;
        }
        if self.grant.units <= 0 {
            self.grant.wants_more = true;
            return false;
        }
        // What is behind a postponed value is not asked for before it.
        let takes_a_block = self.unfinished.storing.is_some() || self.unfinished.refused.is_some();
        if (self.reading.postponed > 0 && !takes_a_block) || !self.has_room() {
            return false;
        }
        self.grant.spend(1);
        if let Some(held) = self.unfinished.held.take() {
            return self.begin(held, context);
        }
        if let Some(rest) = self.unfinished.rest.take() {
            return self.next_key(rest, context);
        }
        if let Some(more) = self.unfinished.more.take() {
            return self.next_of_more(more, context);
        }
        if let Some(refused) = self.unfinished.refused.take() {
            return self.swallow(refused, context);
        }
        if self.unfinished.storing.is_some() {
            return self.may_collect() && self.collect(context);
        }
        // Messages go out between answers.
        let lets_messages_pass = self.has_messages() && !self.answers.pending.is_empty();
        !lets_messages_pass && self.may_gather() && self.parse(context)
    }

    fn parse(&mut self, context: &mut Context<'_>) -> bool {
        // The buffer is lent out of `self` while commands borrow from it.
        let received = std::mem::take(&mut self.input.received);
        let fresh = received.fresh();
        if let (ClientProtocol::Undecided, Some(first)) = (&self.client.protocol, fresh.first()) {
            let item_bytes_max = self.client.item_bytes_max as usize;
            self.client.protocol = match *first {
                REQUEST_MAGIC => ClientProtocol::Binary(BinaryParser::new(item_bytes_max)),
                _ => ClientProtocol::Text(Parser::new(item_bytes_max)),
            };
        }
        let consumed = match &mut self.client.protocol {
            ClientProtocol::Undecided => None,
            ClientProtocol::Resp(_) => self.resp(fresh, context),
            ClientProtocol::Text(parser) => {
                let parsed = parser.parse(fresh);
                // The keys of a long get are kept for those who may have them.
                match line_bytes(&parsed, fresh) > LINE_BYTES_MAX && self.is_stranger(context) {
                    true => self.text(&Parsed::Error { reply: b"", consumed: fresh.len(), close: true }, context),
                    false => self.text(&parsed, context),
                }
            }
            ClientProtocol::Binary(parser) => {
                let parsed = parser.parse(fresh);
                self.binary(parsed, context)
            }
        };
        self.input.received = received;
        self.input.hungry = consumed.is_none();
        self.input.received.consume(consumed.unwrap_or_default());
        consumed.is_some()
    }

    /// Takes what was parsed; how many bytes it was, `None` if it is not whole.
    fn text(&mut self, parsed: &Parsed<'_>, context: &mut Context<'_>) -> Option<usize> {
        match *parsed {
            Parsed::Incomplete => None,
            Parsed::Skip { consumed } => Some(consumed),
            Parsed::Command { ref command, consumed } if self.is_stranger(context) => {
                self.strange_command(command, context);
                Some(consumed)
            }
            Parsed::Command { ref command, consumed } => {
                self.command(command, context);
                Some(consumed)
            }
            Parsed::TooLarge { ref command, consumed } => {
                self.refuse_value(command, context);
                Some(consumed)
            }
            Parsed::Error { reply, consumed, close } => {
                context.counters.protocol_errors.add(1);
                self.client.errors += 1;
                let stranger = self.is_stranger(context) && !close;
                self.answer(Answer::Text(if stranger { reply::UNAUTHENTICATED } else { reply }), false);
                self.ending.closing |= close;
                Some(consumed)
            }
        }
    }

    /// As [`Connection::text`].
    fn binary(&mut self, parsed: BinaryParsed<'_>, context: &mut Context<'_>) -> Option<usize> {
        match parsed {
            BinaryParsed::Incomplete => None,
            BinaryParsed::Skip { consumed } => Some(consumed),
            BinaryParsed::Request { request, consumed } => {
                self.binary_request(&request, context);
                Some(consumed)
            }
            BinaryParsed::TooLarge { request, consumed } => {
                self.refuse_binary_value(&request, context);
                Some(consumed)
            }
            BinaryParsed::Error { tag, status, consumed, close } => {
                context.counters.protocol_errors.add(1);
                self.client.errors += 1;
                context.counters.store_too_large.add(u64::from(status == Status::TooLarge));
                if let Some(tag) = tag {
                    self.answer(Answer::Written(binary::refused(tag, status)), false);
                }
                self.ending.closing |= close;
                Some(consumed)
            }
        }
    }

    fn binary_request(&mut self, request: &BinaryRequest<'_>, context: &mut Context<'_>) {
        let is_asked = std::mem::take(&mut self.client.is_asked);
        match binary::begin(request, self.is_stranger(context), is_asked, context) {
            Begun::Ask(text) => {
                self.client.is_asked = true;
                self.answer(Answer::Written(text), false);
            }
            Begun::Admit(text) => {
                self.client.admitted = true;
                self.answer(Answer::Written(text), false);
            }
            Begun::Expel(text) => {
                self.client.admitted = false;
                self.client.errors += ATTEMPT_ERRORS;
                self.answer(Answer::Written(text), false);
            }
            Begun::Request(request, words) => _ = self.plan(request, Dialect::Binary(words), context),
            Begun::Store(request, words, data_bytes) => {
                let header = Header::Planned(Box::new((request, Dialect::Binary(words))));
                self.unfinished.storing = Some(Storing::new(header, Body::bare(data_bytes)));
            }
            Begun::Held(held) => _ = self.begin(held, context),
            Begun::Answer(text) => self.answer(Answer::Written(text), false),
            Begun::Quit(text) => {
                self.answer(Answer::Written(text), false);
                self.ending.closing = true;
            }
        }
    }

    /// Begins a request, or holds it.
    fn plan(&mut self, request: Request, dialect: Dialect, context: &mut Context<'_>) -> bool {
        let reading = self.reading_of(&request, context.wall);
        let outcome = request.has_reserved_flags().then_some(RequestOutcome::ReservedFlags);
        let is_refused = outcome.is_some();
        let planned = Box::new(Planned { plan: Plan::new(request, self.reading.first_bytes), dialect, outcome });
        if is_refused {
            self.answer(Answer::Planned(planned), false);
            return true;
        }
        self.begin(ParsedCommand::Planned { planned, reading }, context)
    }

    /// The same for a request of a classic command, which is one operation.
    fn ask_once(&mut self, request: Request, answer: Answer, noreply: bool, context: &mut Context<'_>) -> bool {
        let reading = self.reading_of(&request, context.wall);
        self.begin(ParsedCommand::Operation { request, answer, noreply, reading }, context)
    }

    /// What a request reads for its answer.
    fn reading_of(&self, request: &Request, wall: Wall) -> Reading {
        let (bytes, whole) = match &request.action {
            // After it there will be nothing to be asked for again.
            Action::Get { value: true, touch: Some(expiry), .. } if expiry.is_past(wall) => {
                (self.reading.first_bytes.max(self.client.item_bytes_max), true)
            }
            Action::Get { value: true, .. } => (self.reading.first_bytes, false),
            _ if request.reads_first() => (self.client.item_bytes_max, true),
            _ => (0, false),
        };
        Reading { bytes, whole }
    }

    /// Begins a command, or holds it until what it must wait for is done.
    fn begin(&mut self, held: ParsedCommand, context: &mut Context<'_>) -> bool {
        let access = held.access();
        // What a mark says of a record goes into the words of a read: until they are there, no
        // write of its key ends the mark.
        let are_marks = !context.marks.is_empty();
        let waits_for = |p: &PendingAnswer| p.is_open() || (are_marks && matches!(p.access, Access::Read(_)));
        let must_wait = self.answers.accesses.may_conflict(access)
            && self.answers.pending.iter().any(|p| waits_for(p) && access.conflicts(p.access));
        let reading_bytes = held.reading_bytes();
        if must_wait || (reading_bytes > self.reading.first_bytes && !self.may_take(reading_bytes)) {
            self.unfinished.held = Some(held);
            return false;
        }
        if held.takes_long() && !self.grant.may_take_long {
            (self.unfinished.held, self.grant.wants_more) = (Some(held), true);
            return false;
        }
        match held {
            ParsedCommand::Operation { request, answer, noreply, reading } => {
                let names_given = || request.compare.is_some_and(|shown| context.marks.is_given(&request.key, shown));
                probe!("server: a classic cas names a version that a meta command gave", names_given());
                let operation = request.operation(reading.bytes, context.level, context.marks);
                let writing_bytes = request.writing_bytes();
                self.place_request(operation, (answer, noreply), access, (writing_bytes, reading), context);
            }
            ParsedCommand::Planned { mut planned, reading } => {
                let operation = planned.plan.begin(context.level, context.marks);
                let writing_bytes = planned.plan.request.writing_bytes();
                let answer = (Answer::Planned(planned), false);
                self.place_request(operation, answer, access, (writing_bytes, reading), context);
            }
            ParsedCommand::Statistics(which, binary) => {
                let text = context.server.statistics(which, context.wall);
                let text = binary.map_or(text.clone(), |words| words.statistics(&text));
                self.grant.spend(cost_of_text(&text));
                self.answer(Answer::Written(text), false);
            }
            ParsedCommand::Question(question, version) => self.answer_question(&question, version, context),
            ParsedCommand::Dump(kind) => self.begin_dump(kind),
            ParsedCommand::Detail(what, words) => {
                let mut text = context.log.details.command(what);
                let is_dump = what == Detail::Dump;
                text.extend_from_slice(if is_dump { reply::END } else { reply::OK });
                let text = match words {
                    Some(words) => words.details(is_dump.then_some(&text)),
                    None => text,
                };
                self.answer(Answer::Written(text), false);
            }
            ParsedCommand::Watch(kinds) => {
                self.watching = context.server.watch(kinds);
                let reply = if self.watching.is_some() { reply::OK } else { reply::TOO_MANY_WATCHERS };
                self.answer(Answer::Text(reply), false);
            }
            ParsedCommand::Backup(name) => self.answer(Answer::Written(context.server.backup(&name)), false),
            ParsedCommand::Work { work, access, reading, writing_bytes } => {
                self.place_work(work, access, (reading, writing_bytes), context);
            }
            ParsedCommand::Flush { delay, noreply, words } => self.flush(delay, noreply, words, context),
        }
        true
    }
}

/// How long the line at the front of the input is, without its newline, or what there is of it.
fn line_bytes(parsed: &Parsed<'_>, input: &[u8]) -> usize {
    match parsed {
        Parsed::Incomplete => input.len(),
        Parsed::Skip { .. } => 0,
        Parsed::Command { consumed, .. } | Parsed::TooLarge { consumed, .. } | Parsed::Error { consumed, .. } => {
            consumed.saturating_sub(1)
        }
    }
}

/// Deletes every key of the collection that memcache clients see.
pub(crate) fn delete_everything(level: Level) -> Operation {
    use std::ops::Bound;
    let from = Bound::Included(Key::bound(CollectionId(0), b""));
    let to = Bound::Excluded(Key::bound(CollectionId(1), b""));
    Operation::DeleteRange { range: Box::new((from, to)), level }
}

/// The hash that routes keys, before it is cut down to the number of shards. Equal hashes only make
/// commands wait.
pub(crate) fn hash(key: &Key) -> u64 {
    stratakv_base::checksum::shard_of(key.encoded(), usize::MAX) as u64
}

#[cfg(test)]
#[path = "../tests/unit/connection.rs"]
mod tests;
