//! Publish and subscribe: who listens to which channel or pattern, and the messages that wait for
//! each listener.
//!
//! A publisher puts a message into the mailbox of each listener and goes on. A mailbox has bounded
//! room, which counts in the memory for clients. A listener whose mailbox is full is closed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use stratakv_base::Wall;
use stratakv_protocol::resp::{Version, encode, glob};

use super::calls::{Calls, ConnectionAddress};
use crate::memory_budget::{FREE_BYTES, MemoryPermit};
use crate::server::lock;

/// Bytes of names that `PUBSUB CHANNELS` tells, and what each takes beside its own.
const CHANNELS_BYTES_MAX: u64 = 1 << 20;
const CHANNEL_BYTES: u64 = 48;
/// Longest name of a channel: patterns are looked for in each that is published to, while others
/// wait.
pub(crate) const CHANNEL_NAME_BYTES_MAX: usize = 65_535;
/// The messages that wait for one listener may have this part of the memory for clients, and so
/// many bytes at most; one message may be longer.
const MAILBOX_SHARE: u64 = 64;
const MAILBOX_BYTES_MAX: u64 = 4 << 20;
/// Bytes that a name takes beside its own, which are there twice: with the listener and here.
const NAME_BYTES: usize = 256;
/// How often the log tells of listeners that were closed.
const TELL_EVERY_MS: u64 = 10_000;

/// Bytes of names that `PUBSUB CHANNELS` may tell where clients have so much memory: a client that
/// is alone always has room for them.
pub(crate) fn channels_bytes_max(client_memory_bytes: u64) -> u64 {
    CHANNELS_BYTES_MAX.min(client_memory_bytes / 16)
}

/// What is listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenKind {
    Channel,
    Pattern,
    /// A channel of a cluster's shard: here they are channels of their own.
    ShardChannel,
}

impl ListenKind {
    /// All of them.
    pub(crate) const ALL: [ListenKind; 3] = [ListenKind::Channel, ListenKind::Pattern, ListenKind::ShardChannel];
}

/// The listeners of each name, by their number.
type Names = BTreeMap<Vec<u8>, BTreeSet<u64>>;

/// See the module.
#[derive(Debug)]
pub(crate) struct PubSub {
    listeners: AtomicUsize,
    /// Of them, those who are told what all clients do.
    monitors: AtomicUsize,
    state: Mutex<PubSubState>,
    calls: Arc<Calls>,
    overruns: Mutex<Overruns>,
}

/// Listeners that were closed and not told of.
#[derive(Debug, Default)]
struct Overruns {
    untold: u64,
    told_at: Wall,
}

/// There was no room for a message: its listener is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MailboxOverrun;

#[derive(Debug, Default)]
struct PubSubState {
    /// One for each kind, in the order of [`ListenKind::ALL`].
    names: [Names; 3],
    mailboxes: HashMap<u64, Arc<Mailbox>>,
    monitors: BTreeSet<u64>,
}

/// Where messages wait for a listener.
#[derive(Debug)]
struct Mailbox {
    address: ConnectionAddress,
    is_resp3: AtomicBool,
    /// How many names of each kind its listener has.
    counts: [AtomicUsize; 3],
    /// There is something in it.
    has_some: AtomicBool,
    messages: Mutex<Messages>,
}

#[derive(Debug)]
struct Messages {
    bytes: Vec<u8>,
    permit: MemoryPermit,
    /// There was no room for one: the listener is to be closed.
    is_overrun: bool,
}

impl PubSub {
    /// Nobody listens yet.
    pub(crate) fn new(calls: &Arc<Calls>) -> Arc<PubSub> {
        Arc::new(PubSub {
            listeners: 0.into(),
            monitors: 0.into(),
            state: Mutex::default(),
            calls: Arc::clone(calls),
            overruns: Mutex::default(),
        })
    }

    /// A client begins to listen: to nothing yet.
    pub(crate) fn enter(
        self: &Arc<Self>,
        (client, address): (u64, ConnectionAddress),
        version: Version,
        permit: MemoryPermit,
    ) -> Subscriptions {
        let messages = Messages { bytes: Vec::new(), permit, is_overrun: false };
        let mailbox = Arc::new(Mailbox {
            address,
            is_resp3: (version == Version::Resp3).into(),
            counts: Default::default(),
            has_some: false.into(),
            messages: Mutex::new(messages),
        });
        let mut state = lock(&self.state);
        state.mailboxes.insert(client, Arc::clone(&mailbox));
        self.listeners.store(state.mailboxes.len(), Ordering::SeqCst);
        Subscriptions {
            pubsub: Arc::clone(self),
            client,
            mailbox,
            names: Default::default(),
            name_bytes: 0,
            monitors: false,
        }
    }

    /// Whether anybody is told what all clients do.
    pub(crate) fn has_monitors(&self) -> bool {
        self.monitors.load(Ordering::Relaxed) > 0
    }

    /// Tells them a line.
    pub(crate) fn tell_monitors(&self, line: &[u8]) {
        let state = lock(&self.state);
        _ = self.send(&state, &state.monitors, |out, _| out.extend_from_slice(line));
    }

    /// Sends a message to all who listen; how many times it was.
    pub(crate) fn publish(&self, kind: ListenKind, channel: &[u8], message: &[u8]) -> usize {
        if self.listeners.load(Ordering::SeqCst) == 0 {
            return 0;
        }
        let state = lock(&self.state);
        let mut sent = 0;
        if let Some(listeners) = state.names_of(kind).get(channel) {
            let word = if kind == ListenKind::ShardChannel { "smessage" } else { "message" };
            sent += self.send(&state, listeners, |out, version| {
                encode::push(out, 3, version);
                [word.as_bytes(), channel, message].iter().for_each(|part| encode::bulk(out, part));
            });
        }
        if kind == ListenKind::ShardChannel {
            return sent;
        }
        for (pattern, listeners) in state.names_of(ListenKind::Pattern) {
            if glob::matches(pattern, channel) {
                sent += self.send(&state, listeners, |out, version| {
                    encode::push(out, 4, version);
                    [b"pmessage", &pattern[..], channel, message].iter().for_each(|part| encode::bulk(out, part));
                });
            }
        }
        sent
    }

    /// Puts a message, which is made once for each version, into these mailboxes.
    fn send(&self, state: &PubSubState, listeners: &BTreeSet<u64>, write: impl Fn(&mut Vec<u8>, Version)) -> usize {
        let (mut plain, mut pushed) = (Vec::new(), Vec::new());
        for mailbox in listeners.iter().filter_map(|client| state.mailboxes.get(client)) {
            let is_resp3 = mailbox.is_resp3.load(Ordering::Relaxed);
            let (text, version) = if is_resp3 { (&mut pushed, Version::Resp3) } else { (&mut plain, Version::Resp2) };
            if text.is_empty() {
                write(text, version);
            }
            if mailbox.put(text) {
                self.calls.add(mailbox.address);
            }
        }
        listeners.len()
    }

    /// Channels with listeners whose names match, or all; `None`: they have more than so many
    /// bytes.
    pub(crate) fn channels(&self, kind: ListenKind, pattern: Option<&[u8]>, bytes_max: u64) -> Option<Vec<Vec<u8>>> {
        let state = lock(&self.state);
        let mut bytes = 0;
        let bounded = state.matching(kind, pattern).map(|name| {
            bytes += CHANNEL_BYTES + name.len() as u64;
            (bytes <= bytes_max).then(|| name.clone())
        });
        bounded.collect()
    }

    /// Bytes that these take; 0 if that is more than so many.
    pub(crate) fn channels_bytes(&self, kind: ListenKind, pattern: Option<&[u8]>, bytes_max: u64) -> u64 {
        let state = lock(&self.state);
        let bytes = state.matching(kind, pattern).map(|name| CHANNEL_BYTES + name.len() as u64).sum();
        if bytes <= bytes_max { bytes } else { 0 }
    }

    /// How many listen to a channel.
    pub(crate) fn listeners_of(&self, kind: ListenKind, channel: &[u8]) -> usize {
        lock(&self.state).names_of(kind).get(channel).map_or(0, BTreeSet::len)
    }

    /// How many names of this kind there are.
    pub(crate) fn len(&self, kind: ListenKind) -> usize {
        lock(&self.state).names_of(kind).len()
    }

    /// How many names of each kind a client listens to; `None`: it does not listen.
    pub(crate) fn counts_of(&self, client: u64) -> Option<[usize; 3]> {
        if self.listeners.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let state = lock(&self.state);
        let mailbox = state.mailboxes.get(&client)?;
        Some(mailbox.counts.each_ref().map(|count| count.load(Ordering::Relaxed)))
    }

    /// A listener was closed, as there was no room for a message to it.
    pub(crate) fn count_overrun(&self, wall: Wall) {
        let mut overruns = lock(&self.overruns);
        overruns.untold += 1;
        if wall.0.saturating_sub(overruns.told_at.0) < TELL_EVERY_MS {
            return;
        }
        let closed = std::mem::take(&mut overruns.untold);
        overruns.told_at = wall;
        tracing::warn!(
            closed,
            "listeners to channels are closed: they did not take their messages, or memory for clients is short"
        );
    }
}

impl PubSubState {
    /// Names of this kind that match, or all.
    fn matching<'a>(&'a self, kind: ListenKind, pattern: Option<&'a [u8]>) -> impl Iterator<Item = &'a Vec<u8>> {
        let is_asked = move |name: &&Vec<u8>| pattern.is_none_or(|pattern| glob::matches(pattern, name));
        self.names_of(kind).keys().filter(is_asked)
    }

    fn names_of(&self, kind: ListenKind) -> &Names {
        let [channels, patterns, shards] = &self.names;
        match kind {
            ListenKind::Channel => channels,
            ListenKind::Pattern => patterns,
            ListenKind::ShardChannel => shards,
        }
    }

    fn names_of_mut(&mut self, kind: ListenKind) -> &mut Names {
        let [channels, patterns, shards] = &mut self.names;
        match kind {
            ListenKind::Channel => channels,
            ListenKind::Pattern => patterns,
            ListenKind::ShardChannel => shards,
        }
    }

    fn remove(&mut self, kind: ListenKind, name: &[u8], client: u64) {
        let names = self.names_of_mut(kind);
        if let Some(listeners) = names.get_mut(name) {
            listeners.remove(&client);
            if listeners.is_empty() {
                names.remove(name);
            }
        }
    }
}

impl Mailbox {
    /// Puts a message into it, if there is room; whether its listener has to be told.
    fn put(&self, message: &[u8]) -> bool {
        let mut messages = lock(&self.messages);
        if messages.is_overrun {
            return false;
        }
        let held = messages.bytes.len();
        let most = (messages.permit.budget().max_bytes() / MAILBOX_SHARE).min(MAILBOX_BYTES_MAX);
        let fits = held == 0 || (held + message.len()) as u64 <= most;
        // What is free for each connection is for its answers.
        if fits && messages.permit.try_grow(FREE_BYTES + held as u64, message.len() as u64) {
            messages.bytes.extend_from_slice(message);
        } else {
            (messages.bytes, messages.is_overrun) = (Vec::new(), true);
        }
        // Nothing ahead: of a message to many, each would keep others from having it.
        let held = messages.bytes.capacity() as u64;
        messages.permit.set(if held == 0 { 0 } else { FREE_BYTES + held });
        let was_told = self.has_some.swap(true, Ordering::AcqRel);
        !was_told || messages.is_overrun
    }
}

/// What a client listens to; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    pubsub: Arc<PubSub>,
    client: u64,
    mailbox: Arc<Mailbox>,
    /// In the order of [`ListenKind::ALL`].
    names: [BTreeSet<Vec<u8>>; 3],
    name_bytes: usize,
    /// It is told what all clients do.
    monitors: bool,
}

impl Subscriptions {
    /// Bytes that a name takes.
    pub(crate) fn bytes_of(name: &[u8]) -> usize {
        2 * name.len() + NAME_BYTES
    }

    /// Bytes of memory that its names take.
    pub(crate) fn held_bytes(&self) -> usize {
        self.name_bytes
    }

    fn names_mut(&mut self, kind: ListenKind) -> &mut BTreeSet<Vec<u8>> {
        let [channels, patterns, shards] = &mut self.names;
        match kind {
            ListenKind::Channel => channels,
            ListenKind::Pattern => patterns,
            ListenKind::ShardChannel => shards,
        }
    }

    /// How many names it listens to, of this kind; those of channels and patterns are one number.
    pub(crate) fn count(&self, kind: ListenKind) -> usize {
        let [channels, patterns, shards] = &self.names;
        match kind {
            ListenKind::ShardChannel => shards.len(),
            _ => channels.len() + patterns.len(),
        }
    }

    /// Whether it listens to nothing.
    pub(crate) fn is_empty(&self) -> bool {
        !self.monitors && !self.has_names()
    }

    /// Whether it listens to channels or patterns.
    pub(crate) fn has_names(&self) -> bool {
        self.names.iter().any(|names| !names.is_empty())
    }

    /// Is told what all clients do from now on.
    pub(crate) fn monitor(&mut self) {
        self.monitors = true;
        let mut state = lock(&self.pubsub.state);
        state.monitors.insert(self.client);
        self.pubsub.monitors.store(state.monitors.len(), Ordering::Relaxed);
    }

    fn note_counts(&self) {
        for (names, count) in self.names.iter().zip(&self.mailbox.counts) {
            count.store(names.len(), Ordering::Relaxed);
        }
    }

    /// Listens to this too.
    pub(crate) fn add(&mut self, kind: ListenKind, name: &[u8]) {
        if self.names_mut(kind).insert(name.to_vec()) {
            self.name_bytes += Subscriptions::bytes_of(name);
            let client = self.client;
            lock(&self.pubsub.state).names_of_mut(kind).entry(name.to_vec()).or_default().insert(client);
            self.note_counts();
        }
    }

    /// Listens to this no longer.
    pub(crate) fn remove(&mut self, kind: ListenKind, name: &[u8]) {
        if self.names_mut(kind).remove(name) {
            self.name_bytes -= Subscriptions::bytes_of(name);
            lock(&self.pubsub.state).remove(kind, name, self.client);
            self.note_counts();
        }
    }

    /// Its names of this kind.
    pub(crate) fn all(&mut self, kind: ListenKind) -> Vec<Vec<u8>> {
        self.names_mut(kind).iter().cloned().collect()
    }

    /// Messages are written in this version from now on.
    pub(crate) fn speak(&self, version: Version) {
        self.mailbox.is_resp3.store(version == Version::Resp3, Ordering::Relaxed);
    }

    /// Whether messages wait, or the client is to be closed.
    pub(crate) fn has_some(&self) -> bool {
        self.mailbox.has_some.load(Ordering::Acquire)
    }

    /// The messages that wait, if they may be taken now.
    ///
    /// # Errors
    /// There was no room for one.
    pub(crate) fn take_if(&self, may: bool) -> Result<Vec<u8>, MailboxOverrun> {
        let mut messages = lock(&self.mailbox.messages);
        if messages.is_overrun {
            return Err(MailboxOverrun);
        }
        if !may {
            return Ok(Vec::new());
        }
        self.mailbox.has_some.store(false, Ordering::Release);
        messages.permit.set(0);
        Ok(std::mem::take(&mut messages.bytes))
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        let mut state = lock(&self.pubsub.state);
        for (kind, names) in ListenKind::ALL.into_iter().zip(&self.names) {
            names.iter().for_each(|name| state.remove(kind, name, self.client));
        }
        state.mailboxes.remove(&self.client);
        state.monitors.remove(&self.client);
        self.pubsub.monitors.store(state.monitors.len(), Ordering::Relaxed);
        if state.mailboxes.is_empty() {
            // The room of a crowd is given back.
            *state = PubSubState::default();
        }
        self.pubsub.listeners.store(state.mailboxes.len(), Ordering::SeqCst);
    }
}

/// A message that goes out when a transaction has been carried out.
#[derive(Clone, Debug)]
pub(crate) struct Publication {
    /// Where in the reply it is told how many have got it.
    pub(crate) at: usize,
    pub(crate) kind: ListenKind,
    pub(crate) channel: Bytes,
    pub(crate) message: Bytes,
}

impl Publication {
    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Publication>() + self.channel.len() + self.message.len()
    }
}

/// Sends these messages, and tells in the reply how many have got each.
pub(crate) fn send_all(pubsub: &PubSub, publications: &[Publication], said: &mut Vec<u8>) {
    let sent = publications.iter().map(|one| pubsub.publish(one.kind, &one.channel, &one.message));
    let sent: Vec<usize> = sent.collect();
    let mut all = Vec::with_capacity(said.len() + 8 * sent.len());
    let mut from = 0;
    for (publication, sent) in publications.iter().zip(sent) {
        all.extend_from_slice(said.get(from..publication.at).unwrap_or_default());
        encode::integer(&mut all, sent as i64);
        from = publication.at;
    }
    all.extend_from_slice(said.get(from..).unwrap_or_default());
    *said = all;
}

#[cfg(test)]
#[path = "../../tests/unit/resp/pubsub.rs"]
mod tests;
