//! SUBSCRIBE and its kin, and messages on their way to a client that listens.

use std::borrow::Cow;

use stratakv_protocol::resp::{Version, encode, glob};

use super::table::{CommandSpec, unsupported_part};
use super::{Connection, Context, Handled};
use crate::connection::ClientProtocol;
use crate::pending::{ParsedCommand, ServerQuestion};
use crate::resp::{
    Arguments, CHANNEL_NAME_BYTES_MAX, ListenKind, MailboxOverrun, Session, Subscriptions, channels_bytes_max,
};
use crate::schedule::cost_of_text;

/// What a client that listens may ask in RESP2.
const ALLOWED: [&str; 9] =
    ["ping", "psubscribe", "punsubscribe", "quit", "reset", "ssubscribe", "subscribe", "sunsubscribe", "unsubscribe"];
const NO_ROOM: &str = "ERR the memory for clients is short: listen to fewer channels, or raise --memory";

/// The kind that a command is about: by the front of its name.
fn kind_of(a: &Arguments<'_>) -> ListenKind {
    match a.get(0).first().map(u8::to_ascii_lowercase) {
        Some(b'p') => ListenKind::Pattern,
        // Both SUBSCRIBE and SSUBSCRIBE begin so.
        Some(b's') if a.get(0).get(1).is_some_and(|byte| byte.eq_ignore_ascii_case(&b's')) => ListenKind::ShardChannel,
        Some(b's') if a.is(0, "SUNSUBSCRIBE") => ListenKind::ShardChannel,
        _ => ListenKind::Channel,
    }
}

/// What a reply to it begins with.
fn word(kind: ListenKind, begins: bool) -> &'static [u8] {
    match (kind, begins) {
        (ListenKind::Channel, true) => b"subscribe",
        (ListenKind::Channel, false) => b"unsubscribe",
        (ListenKind::Pattern, true) => b"psubscribe",
        (ListenKind::Pattern, false) => b"punsubscribe",
        (ListenKind::ShardChannel, true) => b"ssubscribe",
        (ListenKind::ShardChannel, false) => b"sunsubscribe",
    }
}

/// The reply for one name; `None`: there was none to be ended.
fn confirm(out: &mut Vec<u8>, word: &[u8], name: Option<&[u8]>, count: usize, version: Version) {
    encode::push(out, 3, version);
    encode::bulk(out, word);
    match name {
        Some(name) => encode::bulk(out, name),
        None => encode::null(out, version),
    }
    encode::integer(out, count as i64);
}

/// Whether a client may give this command now; else the reply.
pub(super) fn check_listener(command: Option<&CommandSpec>, session: &Session) -> Handled {
    let name = command.map_or("", |command| command.name);
    let listens = session.subscriptions.as_ref().is_some_and(|subscriptions| subscriptions.has_names());
    if !listens || session.version == Version::Resp3 || ALLOWED.contains(&name) {
        return Ok(());
    }
    let Some(command) = command else { return Ok(()) };
    Err(Cow::Owned(format!(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
        command.name
    )))
}

impl Connection {
    pub(super) fn resp_subscribe(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let kind = kind_of(a);
        if kind == ListenKind::Pattern && a.from(1).any(|pattern| pattern.len() > glob::PATTERN_BYTES_MAX) {
            return Err(Cow::Owned(format!("ERR a pattern has at most {} bytes", glob::PATTERN_BYTES_MAX)));
        }
        if a.from(1).any(|channel| channel.len() > CHANNEL_NAME_BYTES_MAX) {
            return Err(Cow::Owned(format!("ERR the name of a channel has at most {CHANNEL_NAME_BYTES_MAX} bytes")));
        }
        let bytes: usize = a.from(1).map(Subscriptions::bytes_of).sum();
        if !self.may_keep(bytes as u64) {
            return Err(Cow::Borrowed(NO_ROOM));
        }
        let version = s.version;
        let subscriptions = self.subscriptions_of(s, context);
        let mut out = Vec::new();
        for name in a.from(1) {
            subscriptions.add(kind, name);
            confirm(&mut out, word(kind, true), Some(name), subscriptions.count(kind), version);
        }
        self.say_always(out)
    }

    /// What the client listens to, from now on if it did not yet.
    pub(super) fn subscriptions_of<'s>(&self, s: &'s mut Session, context: &Context<'_>) -> &'s mut Subscriptions {
        s.subscriptions.get_or_insert_with(|| {
            let client = (context.server.client_id(), context.server.address());
            Box::new(context.resp.pubsub.enter(client, s.version, self.new_permit()))
        })
    }

    pub(super) fn resp_unsubscribe(
        &mut self,
        a: &Arguments<'_>,
        s: &mut Session,
        context: &mut Context<'_>,
    ) -> Handled {
        let kind = kind_of(a);
        let mut out = Vec::new();
        let named: Vec<Vec<u8>> = match (&mut s.subscriptions, a.len()) {
            (Some(subscriptions), 1) => subscriptions.all(kind),
            _ => a.from(1).map(<[u8]>::to_vec).collect(),
        };
        for name in &named {
            let count = s.subscriptions.as_mut().map_or(0, |subscriptions| {
                subscriptions.remove(kind, name);
                subscriptions.count(kind)
            });
            confirm(&mut out, word(kind, false), Some(name), count, s.version);
        }
        if named.is_empty() {
            let count = s.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.count(kind));
            confirm(&mut out, word(kind, false), None, count, s.version);
        }
        if s.subscriptions.as_ref().is_some_and(|subscriptions| subscriptions.is_empty()) {
            // What came before it was to be told all the same; if some of it is lost, it is told
            // nothing any more.
            match s.subscriptions.take().map(|subscriptions| subscriptions.take_if(true)) {
                Some(Ok(messages)) => _ = out.splice(0..0, messages),
                Some(Err(MailboxOverrun)) => {
                    self.close_overrun(context);
                    return Ok(());
                }
                None => {}
            }
        }
        self.say_always(out)
    }

    pub(super) fn resp_pubsub(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let pubsub = &context.resp.pubsub;
        let kind = if a.is(1, "SHARDCHANNELS") || a.is(1, "SHARDNUMSUB") {
            ListenKind::ShardChannel
        } else {
            ListenKind::Channel
        };
        let mut out = Vec::new();
        match () {
            () if (a.is(1, "CHANNELS") || a.is(1, "SHARDCHANNELS")) && a.len() <= 3 => {
                let pattern = (a.len() == 3).then(|| a.get(2));
                if pattern.is_some_and(|pattern| pattern.len() > glob::PATTERN_BYTES_MAX) {
                    return Err(Cow::Owned(format!("ERR a pattern has at most {} bytes", glob::PATTERN_BYTES_MAX)));
                }
                // The names, and once more as the reply; what comes later is little.
                let bytes_max = channels_bytes_max(self.budget().max_bytes());
                let bytes = 2 * context.resp.pubsub.channels_bytes(kind, pattern, bytes_max);
                let question = ServerQuestion::Channels { kind, pattern: pattern.map(<[u8]>::to_vec), bytes };
                self.begin(ParsedCommand::Question(question, s.version), context);
                return Ok(());
            }
            () if a.is(1, "NUMSUB") || a.is(1, "SHARDNUMSUB") => {
                encode::map(&mut out, a.len() - 2, Version::Resp2);
                for channel in a.from(2) {
                    encode::bulk(&mut out, channel);
                    encode::integer(&mut out, pubsub.listeners_of(kind, channel) as i64);
                }
            }
            () if a.is(1, "NUMPAT") && a.len() == 2 => {
                encode::integer(&mut out, pubsub.len(ListenKind::Pattern) as i64);
            }
            () if a.is(1, "HELP") && a.len() == 2 => return self.help("pubsub"),
            () => return Err(unsupported_part("pubsub", a)),
        }
        self.grant.spend(cost_of_text(&out));
        self.say(|text| *text = out)
    }

    /// Says what is no reply, so that it is heard also after `CLIENT REPLY OFF`.
    fn say_always(&mut self, text: Vec<u8>) -> Handled {
        let mode = std::mem::take(&mut self.client.reply_mode);
        let said = self.say(|out| *out = text);
        self.client.reply_mode = mode;
        said
    }

    /// PING of a client that listens, in RESP2: the reply looks like a message.
    pub(super) fn ping_of_listener(&mut self, a: &Arguments<'_>) -> Handled {
        self.say(|out| {
            encode::array(out, 2);
            encode::bulk(out, b"pong");
            encode::bulk(out, a.get(1));
        })
    }

    fn subscriptions(&self) -> Option<&Subscriptions> {
        match &self.client.protocol {
            ClientProtocol::Resp(client) => client.session.subscriptions.as_deref(),
            _ => None,
        }
    }

    /// Whether it listens to channels or patterns.
    pub(crate) fn is_listening(&self) -> bool {
        self.subscriptions().is_some()
    }

    /// Whether messages wait for it: then nothing more is begun before they are passed on.
    pub(in crate::connection) fn has_messages(&self) -> bool {
        self.subscriptions().is_some_and(Subscriptions::has_some)
    }

    /// Passes messages on to a client that listens, once it has taken those before. One for which
    /// there was no room is the end of it.
    pub(in crate::connection) fn pass_messages(&mut self, context: &Context<'_>) {
        if !self.has_messages() || self.ending.closing {
            return;
        }
        let is_between = self.answers.pending.is_empty() && self.unfinished.more.is_none();
        let Some(subscriptions) = self.subscriptions() else { return };
        match subscriptions.take_if(is_between && self.sending.output.is_empty()) {
            Ok(messages) => {
                self.grant.spend(cost_of_text(&messages));
                self.sending.output.push(&messages);
            }
            Err(MailboxOverrun) => self.close_overrun(context),
        }
    }

    /// There was no room for a message to it.
    fn close_overrun(&mut self, context: &Context<'_>) {
        context.counters.pubsub_kicks.add(1);
        context.resp.pubsub.count_overrun(context.wall);
        self.abort();
    }

    /// It is told nothing any more.
    pub(in crate::connection) fn stop_listening(&mut self) {
        if let ClientProtocol::Resp(client) = &mut self.client.protocol {
            client.session.subscriptions = None;
        }
    }
}
