//! Connections that watch what others do (`watch`): a line for each fetch, store, connection, in
//! memcached's words.
//!
//! Lines are made only while somebody wants them: a relaxed load otherwise. A watcher has bounded
//! room. One that does not take its lines loses those that find none, is told how many, and slows
//! nobody down.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use stratakv::{EvictionListener, Store};
use stratakv_base::{Expiry, Key, Wall};
use stratakv_engine::{Error, Evicted, Reply, Unmet};
use stratakv_protocol::memcache::{StoreMode, Verb, Watched, reply};

use crate::details::Details;
use crate::meta::seconds_left;
use crate::request::RequestOutcome;
use crate::server::{Peer, lock};

/// As memcached has it.
const WATCHERS_MAX: usize = 20;
/// Lines that wait for one watcher.
pub(crate) const WAITING_BYTES_MAX: usize = 256 << 10;

/// Everybody who watches.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// What any of them wants.
    wanted: AtomicU8,
    written: AtomicU64,
    skipped: AtomicU64,
    sent: AtomicU64,
    state: Mutex<State>,
    /// Whose evictions are watched.
    store: Option<Store>,
}

#[derive(Debug, Default)]
struct State {
    /// Of the last line.
    number: u64,
    last_id: u64,
    watchers: Vec<Watcher>,
}

#[derive(Debug)]
struct Watcher {
    id: u64,
    kinds: Watched,
    /// Its thread, and its connection there.
    worker_slot: usize,
    connection: u32,
    lines: Vec<u8>,
    /// Lines that found no room since the last one that did.
    skipped: u64,
    /// Its thread has to look at it.
    due: bool,
    /// And has been told so.
    called: bool,
}

/// Connections with lines to send.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// Of the thread that asks.
    pub(crate) here: Vec<u32>,
    /// Threads that have some and are to be rung.
    pub(crate) elsewhere: Vec<usize>,
}

/// What was counted since the server began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchCounts {
    pub(crate) watchers: usize,
    pub(crate) written: u64,
    pub(crate) skipped: u64,
    pub(crate) sent: u64,
}

impl Watches {
    /// Nobody watches the server of this store yet.
    pub(crate) fn of(store: Store) -> Arc<Watches> {
        Arc::new(Watches { store: Some(store), ..Watches::default() })
    }

    /// A connection watches, until what comes back is dropped. `None`: as many do as may.
    pub(crate) fn begin(self: &Arc<Self>, kinds: Watched, worker_slot: usize, connection: u32) -> Option<Watching> {
        let mut state = lock(&self.state);
        if state.watchers.len() >= WATCHERS_MAX {
            return None;
        }
        state.last_id += 1;
        let id = state.last_id;
        let (lines, skipped) = (Vec::new(), 0);
        state.watchers.push(Watcher { id, kinds, worker_slot, connection, lines, skipped, due: false, called: false });
        self.count_wanted(&state);
        Some(Watching { watches: Arc::clone(self), id })
    }

    fn count_wanted(self: &Arc<Self>, state: &State) {
        let wanted = state.watchers.iter().fold(Watched::NOTHING, |all, watcher| all.and(watcher.kinds));
        let before = Watched::from_bits(self.wanted.swap(wanted.bits(), Ordering::Relaxed));
        let now = wanted.meets(Watched::EVICTIONS);
        if let Some(store) = self.store.as_ref().filter(|_| now != before.meets(Watched::EVICTIONS)) {
            store.listen_to_evictions(now.then(|| self.eviction_listener()));
        }
    }

    /// Tells watchers what the store evicts. `la`, the time since its last use, is not known.
    fn eviction_listener(self: &Arc<Self>) -> EvictionListener {
        let watches = Arc::downgrade(self);
        Arc::new(move |evicted: &Evicted, wall| {
            let Some(watches) = watches.upgrade() else { return };
            let mut line = keyed("eviction", evicted.key.user());
            let (fetch, ttl) = (if evicted.used { "yes" } else { "no" }, seconds_left(evicted.expiry, wall));
            line.extend(format!(" fetch={fetch} ttl={ttl} la=-1 clsid=1 size={}", evicted.value_bytes).into_bytes());
            watches.tell(Watched::EVICTIONS, wall, &line);
        })
    }

    /// Whether somebody watches one of these kinds.
    pub(crate) fn wants(&self, kinds: Watched) -> bool {
        Watched::from_bits(self.wanted.load(Ordering::Relaxed)).meets(kinds)
    }

    /// Whether anybody watches.
    pub(crate) fn is_watched(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) != 0
    }

    /// A line for everybody who wants this kind.
    fn tell(&self, kind: Watched, wall: Wall, line: &[u8]) {
        let mut state = lock(&self.state);
        state.number += 1;
        let head = format!("ts={}.{:03}000 gid={} type=", wall.0 / 1000, wall.0 % 1000, state.number);
        self.written.fetch_add(1, Ordering::Relaxed);
        for watcher in state.watchers.iter_mut().filter(|watcher| watcher.kinds.meets(kind)) {
            if watcher.lines.len() + head.len() + line.len() > WAITING_BYTES_MAX {
                watcher.skipped += 1;
                self.skipped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            watcher.tell_skipped();
            watcher.lines.extend_from_slice(head.as_bytes());
            watcher.lines.extend_from_slice(line);
            watcher.lines.push(b'\n');
            watcher.due = true;
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whose lines wait. Each is named once to its thread, and each thread once to the others.
    pub(crate) fn due(&self, worker_slot: usize) -> Due {
        let mut due = Due::default();
        for watcher in lock(&self.state).watchers.iter_mut().filter(|watcher| watcher.due) {
            if watcher.worker_slot == worker_slot {
                (watcher.due, watcher.called) = (false, false);
                due.here.push(watcher.connection);
            } else if !watcher.called {
                watcher.called = true;
                due.elsewhere.push(watcher.worker_slot);
            }
        }
        due.elsewhere.sort_unstable();
        due.elsewhere.dedup();
        due
    }

    pub(crate) fn counts(&self) -> WatchCounts {
        WatchCounts {
            watchers: lock(&self.state).watchers.len(),
            written: self.written.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
        }
    }
}

impl Watcher {
    fn tell_skipped(&mut self) {
        let skipped = std::mem::take(&mut self.skipped);
        if skipped > 0 {
            self.lines.extend_from_slice(format!("skipped={skipped}\n").as_bytes());
        }
    }
}

/// A connection's part in it.
#[derive(Debug)]
pub(crate) struct Watching {
    watches: Arc<Watches>,
    id: u64,
}

impl Watching {
    /// The lines that wait.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut state = lock(&self.watches.state);
        let Some(watcher) = state.watchers.iter_mut().find(|watcher| watcher.id == self.id) else { return Vec::new() };
        watcher.tell_skipped();
        std::mem::take(&mut watcher.lines)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut state = lock(&self.watches.state);
        state.watchers.retain(|watcher| watcher.id != self.id);
        self.watches.count_wanted(&state);
    }
}

/// Where the lines of one connection go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log<'a> {
    pub(crate) watches: &'a Watches,
    pub(crate) details: &'a Details,
    pub(crate) wall: Wall,
    /// Its descriptor.
    pub(crate) cfd: i32,
}

impl Log<'_> {
    /// A key was asked for; so many bytes were found.
    pub(crate) fn fetched(&self, key: &Key, found_bytes: Option<u64>) {
        self.details.got(key.user(), found_bytes.is_some());
        if !self.watches.wants(Watched::FETCHERS) {
            return;
        }
        let mut line = keyed("item_get", key.user());
        let (status, class) = if found_bytes.is_some() { ("found", 1) } else { ("not_found", 0) };
        let size = found_bytes.unwrap_or_default();
        line.extend(format!(" status={status} clsid={class} cfd={} size={size}", self.cfd).into_bytes());
        self.watches.tell(Watched::FETCHERS, self.wall, &line);
    }

    /// A value was to be stored.
    pub(crate) fn stored(&self, key: &Key, command: &str, status: &str, expiry: Expiry, value_bytes: u64) {
        self.details.set(key.user());
        if self.watches.wants(Watched::MUTATIONS) {
            let ttl = match seconds_left(expiry, self.wall) {
                -1 => 0,
                // What has expired is not what never does.
                0 => -1,
                seconds => seconds,
            };
            self.mutation(key.user(), command, status, ttl, value_bytes);
        }
    }

    /// A delete was asked for. memcached 1.6.18 tells nobody.
    pub(crate) fn deleted(&self, key: &Key) {
        self.details.deleted(key.user());
    }

    fn mutation(&self, key: &[u8], command: &str, status: &str, ttl: i128, value_bytes: u64) {
        let mut line = keyed("item_store", key);
        let cfd = self.cfd;
        let rest = format!(" status={status} cmd={command} ttl={ttl} clsid=1 cfd={cfd} size={value_bytes}");
        line.extend(rest.into_bytes());
        self.watches.tell(Watched::MUTATIONS, self.wall, &line);
    }

    /// A value was too long for the server, and not even received.
    pub(crate) fn refused(&self, key: &[u8], command: &str, value_bytes: u64) {
        if self.watches.wants(Watched::MUTATIONS) {
            self.mutation(key, command, "too_large", 0, value_bytes);
        }
    }
}

fn keyed(kind: &str, key: &[u8]) -> Vec<u8> {
    let mut line = format!("{kind} key=").into_bytes();
    reply::encoded_key(&mut line, key);
    line
}

/// A connection came (no reason) or went.
pub(crate) fn connected(log: Log<'_>, peer: &Peer, reason: Option<&str>) {
    if !log.watches.wants(Watched::CONNECTION_EVENTS) {
        return;
    }
    let kind = if reason.is_some() { "conn_close" } else { "conn_new" };
    let (ip, port, transport) = match peer.address {
        Some(address) => (address.ip().to_string(), address.port(), "tcp"),
        None => ("unix".to_owned(), 0, "local"),
    };
    let reason = reason.map(|reason| format!(" reason={reason}")).unwrap_or_default();
    let line = format!("{kind} rip={ip} rport={port} transport={transport}{reason} cfd={}", log.cfd);
    log.watches.tell(Watched::CONNECTION_EVENTS, log.wall, line.as_bytes());
}

/// The command of a line, in the classic protocol.
pub(crate) fn command_of(verb: Verb) -> &'static str {
    match verb {
        Verb::Set => "set",
        Verb::Add => "add",
        Verb::Replace => "replace",
        Verb::Append => "append",
        Verb::Prepend => "prepend",
        Verb::Cas(_) => "cas",
    }
}

/// And in the others: with a version each is a `cas`.
pub(crate) fn command_of_mode(mode: StoreMode, with_version: bool) -> &'static str {
    match mode {
        _ if with_version => "cas",
        StoreMode::Set => "set",
        StoreMode::Add => "add",
        StoreMode::Replace => "replace",
        StoreMode::Append => "append",
        StoreMode::Prepend => "prepend",
    }
}

/// How a classic storage command ended.
pub(crate) fn status_of_reply(verb: Verb, reply: Option<&Reply>) -> &'static str {
    match (verb, reply) {
        (_, Some(Reply::Failed(error))) => status_of_error(error),
        (Verb::Cas(_), Some(Reply::Unmet(Unmet::Absent))) => "not_found",
        (Verb::Cas(_), Some(Reply::Unmet(_))) => "exists",
        (_, Some(Reply::Unmet(_))) => "not_stored",
        _ => "stored",
    }
}

/// How another one ended.
pub(crate) fn status_of(outcome: &RequestOutcome) -> &'static str {
    match outcome {
        RequestOutcome::Failed(error) => status_of_error(error),
        RequestOutcome::Exists => "exists",
        RequestOutcome::Missing => "not_found",
        RequestOutcome::NotStored | RequestOutcome::NotAString | RequestOutcome::ReservedFlags => "not_stored",
        _ => "stored",
    }
}

/// memcached has no word for other failures than want of memory and too long a value.
fn status_of_error(error: &Error) -> &'static str {
    match error {
        Error::ValueTooLarge { .. } => "too_large",
        Error::Full(_) | Error::MemoryFull { .. } => "no_memory",
        _ => "not_stored",
    }
}

#[cfg(test)]
#[path = "../tests/unit/watch.rs"]
mod tests;
