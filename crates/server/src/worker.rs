//! One thread of the server: a ring, its connections, and the ticks they cause.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stratakv::raw::{Driver, Event};
use stratakv_base::{Mono, Wall, fault_point};
use stratakv_device::ring::Chunk;
use stratakv_device::{NetOutcome, NetRequest, Socket, SocketHandle, Wait};
use stratakv_engine::{Operation, Reply};
use stratakv_protocol::memcache::reply;

use crate::connection::{Connection, Context, Submission, Target, delete_everything};
use crate::counters::Counters;
use crate::measures::{Kind, Measures};
use crate::memory_budget::MemoryPermit;
use crate::orphans::NodeRemovals;
use crate::resp;
use crate::schedule::{HANDSHAKE_UNITS, Schedule};
use crate::server::{Arrival, Listening, Peer, Speaks, WorkerSlot, lock};
use crate::server_context::CommandContext;
use crate::shared::Shared;
use crate::timing::SlowLog;
use crate::watch::{self, Due, Log};
use absence::{WorkerPresence, pause_ends_at};
use entry::ConnectionEntry;
use lingering::Lingering;
use node_sweeper::NodeSweeper;
use refusals::Refusals;
use relief::Relief;
use waits::WaitTimers;

mod absence;
mod entry;
pub(crate) mod lingering;
mod node_sweeper;
mod refusals;
mod relief;
mod turn_grants;
mod waits;

/// How long commands in progress are waited for when the server stops.
const DRAIN: Duration = Duration::from_secs(10);
/// How long what does not answer even then is waited for.
const DRAIN_FORCED: Duration = Duration::from_secs(1);
/// With this many disk requests in flight, a tick waits for a quarter of them or this long, so
/// that batches do not degenerate to one.
const BATCH_FROM: usize = 8;
const BATCH_WAIT: Duration = Duration::from_micros(50);
/// How long to leave a listener alone after accepting failed (too many open files).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a client may take for the beginning of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How a receive ends that is called off (ECANCELED).
const CALLED_OFF: i32 = 125;

/// Tags of socket requests: connections count from 0, these from the top.
const TAG_WAKEUP: u64 = u64::MAX;
const TAG_LISTENER: u64 = 1 << 63;
/// With more operations under way than these, a connection waits behind those with few: who asks
/// for one record is not delayed by who asks for a hundred.
const OPERATIONS_FEW: usize = 4;
/// Tag of operations nobody waits for.
const TAG_BACKGROUND: u64 = u64::MAX;
/// Tag of operations of the sweeper.
const TAG_SWEEP: u64 = u64::MAX - 1;

/// See the module.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    index: usize,
    driver: Driver,
    wakeup: Socket,
    /// What the first thread accepts from; empty for others.
    listeners: Vec<Listener>,
    entries: Vec<Option<ConnectionEntry>>,
    free: Vec<u32>,
    /// Connections to which something happened, and those that have more to do.
    schedule: Schedule,
    relief: Relief,
    lingering: Lingering,
    sweeper: NodeSweeper,
    submissions: Vec<Submission>,
    logs: WorkerLogs,
    /// Socket requests in flight.
    net_in_flight: usize,
    times: WorkerTimes,
}

/// When a thread began, and what it is to do when.
#[derive(Debug, Default)]
struct WorkerTimes {
    /// When it began to serve.
    began: Wall,
    /// When idle connections are looked for again.
    sweep_at: Mono,
    /// A `flush_all` to come that was asked for on this thread.
    flush_at: Cell<Option<Mono>>,
    /// When draining ends by force.
    drain_until: Option<Mono>,
    /// Connections have been cut off.
    forced: bool,
    waits: WaitTimers,
    presence: WorkerPresence,
}

/// Keys of a client's operations whose records are asked for at once: so much stays in a cache.
const PREFETCHED_MAX: usize = 64;

/// What a thread says now and then.
#[derive(Debug, Default)]
struct WorkerLogs {
    slow: SlowLog,
    refusals: Refusals,
}

struct Listener {
    socket: Socket,
    speaks: Speaks,
    /// Others go on listening on the socket.
    inherited: bool,
    accepting: bool,
    /// Since when, and until when, it is left alone.
    pause: Option<(Mono, Mono)>,
}

impl Worker {
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: usize,
        driver: Driver,
        wakeup: Socket,
        listeners: Vec<Listening>,
    ) -> Worker {
        let listener = |Listening { socket, speaks, inherited }| Listener {
            socket,
            speaks,
            inherited,
            accepting: false,
            pause: None,
        };
        Worker {
            shared,
            index,
            driver,
            wakeup,
            listeners: listeners.into_iter().map(listener).collect(),
            entries: Vec::new(),
            free: Vec::new(),
            schedule: Schedule::default(),
            relief: Relief::default(),
            lingering: Lingering::default(),
            sweeper: NodeSweeper::default(),
            submissions: Vec::new(),
            logs: WorkerLogs::default(),
            net_in_flight: 0,
            times: WorkerTimes::default(),
        }
    }

    /// Serves until told to stop and drained.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Vec::new();
        self.begin();
        while self.tick(&mut events)? {}
        Ok(())
    }

    /// Listens to the other threads.
    pub(crate) fn begin(&mut self) {
        self.times.began = self.driver.now().wall;
        self.shared.recency.begin(self.times.began);
        self.listen_to_wakeup(Vec::with_capacity(64));
    }

    /// One tick; false when all is over.
    pub(crate) fn tick(&mut self, events: &mut Vec<Event>) -> io::Result<bool> {
        self.accept_more();
        self.driver.tick(self.wait(), events)?;
        self.measures().ticks.add(1);
        self.measures().system_calls.set(self.driver.system_calls());
        self.notice_absence(events);
        for event in events.drain(..) {
            self.handle(event);
        }
        self.timers();
        self.pump_touched();
        self.give_turns();
        self.report_absence();
        let over = self
            .times
            .drain_until
            .is_some_and(|until| self.is_idle() || (self.times.forced && until <= self.driver.now().mono));
        if over {
            self.driver.shutdown(&self.wakeup);
        }
        Ok(!over)
    }

    /// Lets connections do what they can, then those that watch them.
    fn pump_touched(&mut self) {
        self.pump_all();
        if self.shared.figures.watches.is_watched() && self.touch_watchers() {
            self.pump_all();
            // Once only: others may tell them more and more. What the end of a watcher told is for
            // the next tick.
            if self.touch_watchers() {
                self.shared.worker_slots[self.index].ring();
            }
        }
        self.pump_called();
    }

    fn pump_all(&mut self) {
        let mut tick = self.schedule.begin(self.driver.now().mono);
        while let Some(number) = self.schedule.next(&mut tick) {
            let used = self.pump(number, tick.is_behind());
            tick.used(used);
        }
    }

    /// Whether connections of this thread have lines to send; the other threads are told of theirs.
    fn touch_watchers(&mut self) -> bool {
        let Due { here, elsewhere } = self.shared.figures.watches.due(self.index);
        elsewhere
            .iter()
            .filter_map(|worker_slot| self.shared.worker_slots.get(*worker_slot))
            .for_each(WorkerSlot::ring);
        here.iter().for_each(|number| _ = self.touch(*number));
        !here.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.entries.len() == self.free.len() && self.listeners.iter().all(|listener| !listener.accepting)
    }

    fn counters(&self) -> &Counters {
        &self.shared.figures.counters[self.index]
    }

    fn measures(&self) -> &Measures {
        &self.shared.figures.measures[self.index]
    }

    fn handle(&mut self, event: Event) {
        self.net_in_flight -= usize::from(matches!(event, Event::Net { .. }));
        match event {
            Event::Reply { tag: tag @ (TAG_BACKGROUND | TAG_SWEEP), reply } => self.own_reply(tag, Box::new(reply)),
            Event::Reply { tag, reply } => self.replied((tag >> 32) as u32, tag as u32, reply),
            Event::Net { tag: TAG_WAKEUP, outcome } => self.woken(outcome),
            Event::Net { tag, outcome: NetOutcome::Accept(accepted) } => self.accepted(tag, accepted),
            Event::Net { tag, outcome: NetOutcome::Recv(buffer, result) } => self.received(tag as u32, buffer, result),
            Event::Net { tag, outcome: NetOutcome::Send(result) } => self.sent(tag as u32, result),
        }
    }

    /// The connection `number`, marked to be looked at.
    fn touch(&mut self, number: u32) -> Option<&mut ConnectionEntry> {
        let now = self.driver.now().mono;
        let entry = self.entries.get_mut(number as usize)?.as_mut()?;
        if !entry.touched {
            entry.touched = true;
            let is_behind =
                self.schedule.is_used_up(entry.share.used(now)) || entry.in_flight.operations > OPERATIONS_FEW;
            self.schedule.add(number, is_behind);
        }
        Some(entry)
    }

    fn replied(&mut self, number: u32, sequence: u32, reply: Reply) {
        self.time(number, sequence);
        let Some(entry) = self.touch(number) else { return };
        entry.in_flight.operations -= 1;
        entry.connection.replied(sequence, reply);
    }

    /// Counts how long an operation took.
    fn time(&mut self, number: u32, sequence: u32) {
        let (now, measures) = (self.driver.now(), &self.shared.figures.measures[self.index]);
        let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) else { return };
        if let Some(slow) = entry.begun.replied(sequence, now, measures, &self.shared.limits.slow_from) {
            self.logs.slow.tell(&slow, number, entry.in_flight.operations, now.mono);
        }
    }

    fn received(&mut self, number: u32, buffer: Vec<u8>, result: io::Result<usize>) {
        let bytes = *result.as_ref().unwrap_or(&0);
        self.counters().bytes_read.add(bytes as u64);
        let now = self.driver.now().mono;
        let last_seconds = self.driver.now().wall.0.saturating_sub(self.times.began.0) / 1000;
        let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) else { return };
        let shakes_hands = entry.tls.as_ref().is_some_and(|tls| tls.is_handshaking());
        if shakes_hands {
            // To sign takes long: those who are through come first.
            entry.share.add(HANDSHAKE_UNITS, now);
        }
        let Some(entry) = self.touch(number) else { return };
        entry.in_flight.receiving = false;
        let called_off = std::mem::take(&mut entry.in_flight.calls_off);
        if called_off && result.as_ref().is_err_and(|error| error.raw_os_error() == Some(CALLED_OFF)) {
            entry.give_room_back(buffer);
            return;
        }
        entry.active_at = now;
        entry.memory.is_proven |= bytes > 0 && entry.connection.has_answered();
        entry.progress.moved(bytes as u64, now);
        entry.peer.last_seconds.store(last_seconds, Ordering::Relaxed);
        match &mut entry.tls {
            None => entry.connection.received(buffer, bytes),
            Some(tls) => tls.keep(buffer),
        }
        if let Err(error) = result {
            tracing::debug!(%error, "receiving failed");
            entry.connection.abort();
        }
    }

    fn sent(&mut self, number: u32, result: io::Result<()>) {
        let now = self.driver.now().mono;
        let Some(entry) = self.touch(number) else { return };
        entry.in_flight.sending = false;
        entry.active_at = now;
        entry.progress.moved(std::mem::take(&mut entry.in_flight.sending_bytes), now);
        // Of TLS there may be more to be sealed.
        if entry.tls.is_none() || result.is_err() {
            entry.connection.sent(result.is_ok());
        }
    }

    /// Lets a connection do what its share of the tick allows, and carries out what it wants. What
    /// it used of its share.
    fn pump(&mut self, number: u32, is_behind: bool) -> i64 {
        let (now, units) = (self.driver.now().mono, self.schedule.units_each());
        let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) else { return 0 };
        entry.touched = false;
        entry.connection.grant(units, is_behind);
        entry.open_received();
        self.drive(number);
        self.time_wait(number);
        let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) else { return 1 };
        let used = entry.connection.take_spent();
        entry.share.add(used, now);
        self.schedule.served(entry.share.used(now));
        if entry.connection.is_finished() {
            self.close(number);
            return used;
        }
        let rests_until = entry.share.add_errors(entry.connection.take_errors(), now);
        let is_draining = self.times.drain_until.is_some();
        if let Some(until) = rests_until.filter(|until| *until > now && !is_draining) {
            // What comes meanwhile waits with it; an end of the server does not.
            entry.touched = true;
            self.schedule.rest(number, until);
        } else if entry.connection.wants_more() && !std::mem::replace(&mut entry.touched, true) {
            self.schedule.add(number, true);
        }
        self.account(number);
        used
    }

    fn drive(&mut self, number: u32) {
        let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) else { return };
        let (worker_slot, connection) = (self.index, number);
        let (shared, flush_at) = (&*self.shared, &self.times.flush_at);
        let here = CommandContext {
            shared,
            flush_at,
            mono: self.driver.now().mono,
            socket: &entry.socket,
            peer: &entry.peer,
            worker_slot,
            connection,
        };
        let mut context = Context {
            wall: self.driver.now().wall,
            level: self.shared.level,
            shards: self.shared.store.shards(),
            counters: &self.shared.figures.counters[self.index],
            marks: &self.shared.marks,
            recency: &self.shared.recency,
            nodes: NodeRemovals { queue: &self.sweeper.orphans, sweeps: &self.shared.resp.sweeps },
            log: log(&self.shared, self.driver.now().wall, &entry.socket),
            accounts: self.shared.security.accounts.as_ref(),
            server: &here,
            resp: &self.shared.resp,
            is_cache: self.shared.store.engine() == stratakv::Engine::Tier,
            submissions: &mut self.submissions,
        };
        // What a connection does wrong ends the connection, not its neighbours.
        let advanced = catch_unwind(AssertUnwindSafe(|| entry.connection.advance(&mut context)));
        if advanced.is_err() {
            tracing::error!(number, "a defect ended a connection");
            entry.connection.abort();
        }
        if self.submissions.len() > 1 {
            let keys = self.submissions.iter().filter_map(|submission| key_of(&submission.operation));
            self.driver.prefetch(&mut keys.map(stratakv_base::Key::encoded).take(PREFETCHED_MAX));
        }
        for Submission { sequence, target, operation } in self.submissions.drain(..) {
            let tag = u64::from(number) << 32 | u64::from(sequence);
            let (kind, key) = (
                Kind::of(&operation),
                self.shared.limits.slow_from.is_on().then(|| key_of(&operation).cloned()).flatten(),
            );
            let replies = submit(&mut self.driver, &self.shared, tag, target, operation);
            entry.in_flight.operations += replies;
            entry.begun.begin(sequence, kind, key, replies, self.driver.now().mono);
        }
        let hangs_up = entry.connection.hang_up();
        match entry.tls {
            None => self.exchange(number, hangs_up),
            Some(_) if entry.connection.is_finished() => {}
            Some(_) => self.exchange_tls(number, hangs_up),
        }
        if hangs_up {
            self.linger(number);
        }
    }

    /// Receives and sends what a connection wants.
    fn exchange(&mut self, number: u32, hangs_up: bool) {
        let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) else { return };
        if hangs_up && entry.socket.end_sending().is_err() {
            entry.connection.abort();
        }
        if let Some(buffer) = entry.connection.next_recv() {
            entry.in_flight.receiving = true;
            self.net_in_flight += 1;
            self.driver.net(u64::from(number), NetRequest::Recv { socket: entry.socket.clone(), buffer });
        }
        if let Some((chunks, bytes)) = entry.connection.next_send() {
            (entry.in_flight.sending, entry.in_flight.sending_bytes) = (true, bytes);
            self.net_in_flight += 1;
            self.shared.figures.counters[self.index].bytes_written.add(bytes);
            self.driver.net(u64::from(number), NetRequest::Send { socket: entry.socket.clone(), chunks });
        }
    }

    /// The same with TLS in between.
    fn exchange_tls(&mut self, number: u32, hangs_up: bool) {
        let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) else { return };
        let Some(tls) = &mut entry.tls else { return };
        if hangs_up {
            tls.end();
        }
        let mut again = false;
        if tls.wanted.is_none() {
            tls.wanted = entry.connection.next_recv();
        }
        if let Some((buffer, bytes)) = tls.take_plain() {
            entry.connection.received(buffer, bytes);
            again = true;
        } else if !entry.in_flight.receiving && tls.wants_bytes() {
            entry.in_flight.receiving = true;
            self.net_in_flight += 1;
            let buffer = tls.buffer(self.shared.memory.budget.is_scarce());
            let request = NetRequest::Recv { socket: entry.socket.clone(), buffer };
            self.driver.net(u64::from(number), request);
        }
        if let Some((chunks, _)) = entry.connection.next_send() {
            tls.send(chunks);
        }
        if !entry.in_flight.sending {
            let sealed = tls.seal(self.shared.memory.budget.is_scarce());
            if !sealed.is_empty() {
                (entry.in_flight.sending, entry.in_flight.sending_bytes) = (true, sealed.len() as u64);
                self.net_in_flight += 1;
                self.shared.figures.counters[self.index].bytes_written.add(sealed.len() as u64);
                let chunks = vec![Chunk::Bytes(sealed)];
                self.driver.net(u64::from(number), NetRequest::Send { socket: entry.socket.clone(), chunks });
            } else if tls.is_sealed() && std::mem::take(&mut tls.sending) {
                entry.connection.sent(true);
                again = true;
            } else if tls.is_over() && entry.socket.end_sending().is_err() {
                entry.connection.abort();
            }
        }
        if again {
            self.touch(number);
        }
    }

    /// Ends what is in flight on the socket, and lets go once everything has come back.
    fn close(&mut self, number: u32) {
        let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) else { return };
        if let (Some(tls), false) = (&mut entry.tls, entry.in_flight.sending || entry.ending.shut) {
            // One attempt to say why, or that it was all: the connection is closed in any case.
            tls.end();
            entry.socket.send_last_words(&tls.seal(true));
        }
        if (entry.in_flight.receiving || entry.in_flight.sending) && !entry.ending.shut {
            entry.ending.shut = true;
            self.driver.shutdown(&entry.socket);
        }
        if entry.in_flight.operations > 0 && !std::mem::replace(&mut entry.ending.given_up, true) {
            let first = u64::from(number) << 32;
            self.driver.give_up(first..=first | u64::from(u32::MAX));
        }
        let mut is_answered = entry.in_flight.operations == 0;
        fault_point!("server_number_given_away_too_early", is_answered = true);
        if !entry.in_flight.receiving && !entry.in_flight.sending && is_answered {
            let unshaken = entry.tls.as_ref().is_some_and(|tls| tls.is_handshaking());
            self.shared.figures.counters[self.index].ssl_handshake_errors.add(u64::from(unshaken));
            self.release(number);
            self.entries[number as usize] = None;
            self.free.push(number);
            self.shared.memory.budget.count_released();
        }
    }

    fn accepts(&self) -> bool {
        self.times.drain_until.is_none() && self.times.presence.is_serving()
    }

    fn accept_more(&mut self) {
        if !self.accepts() {
            return;
        }
        let now = self.driver.now().mono;
        for (number, listener) in self.listeners.iter_mut().enumerate() {
            if !listener.accepting && listener.pause.is_none_or(|(_, until)| until <= now) {
                listener.accepting = true;
                self.net_in_flight += 1;
                if let Some((since, _)) = listener.pause.take() {
                    let paused_us = now.0.saturating_sub(since.0) / 1000;
                    self.shared.figures.counters[self.index].time_in_listen_disabled_us.add(paused_us);
                    self.shared.listening.paused.fetch_sub(1, Ordering::Relaxed);
                }
                let request = NetRequest::Accept { listener: listener.socket.clone() };
                self.driver.net(TAG_LISTENER | number as u64, request);
            }
        }
    }

    fn accepted(&mut self, tag: u64, accepted: io::Result<(Socket, Option<SocketAddr>)>) {
        let now = self.driver.now().mono;
        let (stopping, serves) = (self.times.drain_until.is_some(), self.times.presence.is_serving());
        let Some(listener) = self.listeners.get_mut((tag & !TAG_LISTENER) as usize) else { return };
        listener.accepting = false;
        match accepted {
            _ if !serves => {}
            Ok((socket, peer)) => {
                tracing::debug!(?peer, "accepted");
                let speaks = listener.speaks;
                self.assign(socket, speaks);
            }
            Err(_) if stopping => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection; trying again in a moment");
                listener.pause = Some((now, after(now, ACCEPT_PAUSE)));
                self.counters().listen_disabled_num.add(1);
                self.shared.listening.paused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Gives a new connection to the thread with the fewest. One of this thread's own stack stays
    /// here: no other ring knows it.
    fn assign(&mut self, socket: Socket, speaks: Speaks) {
        let is_of_kernel = matches!(&*socket, SocketHandle::Kernel(_));
        if self.shared.connections() >= self.shared.limits.connections_max {
            self.counters().rejected_connections.add(1);
            self.logs.refusals.tell(self.shared.limits.connections_max, self.driver.now().mono);
            // One attempt: a client that does not even take this is closed all the same.
            let words = if speaks.resp { resp::TOO_MANY_CONNECTIONS } else { reply::TOO_MANY_CONNECTIONS };
            if !speaks.tls {
                socket.send_last_words(words);
            }
            return;
        }
        self.counters().total_connections.add(1);
        let worker_slots = self.shared.worker_slots.iter().enumerate();
        let eligible = worker_slots.filter(|(index, _)| is_of_kernel || *index == self.index);
        let fewest = eligible.min_by_key(|(_, worker_slot)| worker_slot.connections.load(Ordering::Relaxed));
        let Some((index, worker_slot)) = fewest else { return };
        worker_slot.connections.fetch_add(1, Ordering::Relaxed);
        let arrival = Arrival { socket, speaks, seen: self.times.presence.seen() };
        if index == self.index {
            self.adopt(arrival);
        } else {
            match &mut *lock(&worker_slot.handover) {
                Some(arriving) => arriving.push(arrival),
                // The thread has ended, so the server is stopping: nobody would serve this
                // connection, nor close it.
                None => _ = worker_slot.connections.fetch_sub(1, Ordering::Relaxed),
            }
            worker_slot.ring();
        }
    }

    fn adopt(&mut self, arrival: Arrival) {
        let tls = arrival.speaks.tls.then(|| self.shared.security.acceptor.begin().map(Box::new));
        if matches!(tls, Some(None)) {
            tracing::error!("a TLS connection cannot be begun");
            self.shared.worker_slots[self.index].connections.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let permit = MemoryPermit::new(&self.shared.memory.budget);
        let mut connection =
            Connection::new(self.shared.limits.item_bytes_max, Arc::clone(&self.shared.memory.block_budget), permit);
        let now = self.driver.now().mono;
        let last_seconds = self.shared.started.elapsed().as_secs();
        let mut peer = Peer::of(&arrival.socket, last_seconds);
        if arrival.speaks.resp {
            connection = connection.speaks_resp();
            peer.resp = Some(self.shared.resp.peer(last_seconds));
        }
        let peer = Arc::new(peer);
        let listed = Arc::clone(&peer);
        watch::connected(log(&self.shared, self.driver.now().wall, &arrival.socket), &peer, None);
        let entry = ConnectionEntry::new(arrival.socket, tls.flatten(), peer, connection, now);
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[number as usize] = Some(entry);
                number
            }
            None => {
                self.entries.push(Some(entry));
                (self.entries.len() - 1) as u32
            }
        };
        lock(&self.shared.worker_slots[self.index].open).insert(number, listed);
        if self.times.drain_until.is_some() {
            self.end(number);
        }
        self.touch(number);
    }

    /// Another thread left something: connections, or the order to stop.
    fn woken(&mut self, outcome: NetOutcome) {
        self.adopt_arrived();
        if self.shared.stopping.load(Ordering::Acquire) && self.times.drain_until.is_none() {
            self.drain();
        }
        if self.shared.resp.sweeps.is_wanted() {
            self.sweep_soon();
        }
        if let NetOutcome::Recv(mut buffer, Ok(1..)) = outcome {
            buffer.clear();
            self.listen_to_wakeup(buffer);
        }
    }

    fn listen_to_wakeup(&mut self, buffer: Vec<u8>) {
        self.net_in_flight += 1;
        self.driver.net(TAG_WAKEUP, NetRequest::Recv { socket: self.wakeup.clone(), buffer });
    }

    /// Accepts and receives no more; what was received is answered.
    fn drain(&mut self) {
        self.times.drain_until = Some(after(self.driver.now().mono, DRAIN));
        for listener in self.listeners.iter().filter(|listener| listener.accepting) {
            // A shutdown would end an inherited one for everybody who has it, and does not end an
            // accept at a UNIX socket.
            self.driver.cancel(&listener.socket);
            if !listener.inherited {
                self.driver.shutdown(&listener.socket);
            }
        }
        (0..self.entries.len() as u32).for_each(|number| self.end(number));
    }

    /// Ends a connection's receiving in order: what has arrived is still read.
    fn end(&mut self, number: u32) {
        let Some(entry) = self.touch(number) else { return };
        entry.ending.reason = Some("shutdown");
        if entry.socket.end_receiving().is_err() {
            entry.connection.abort();
        }
        entry.connection.end();
    }

    /// What to wait for: anything, or a batch of disk requests.
    fn wait(&self) -> Wait {
        if self.schedule.has_more() {
            return Wait::For { completions: 0, timeout: None };
        }
        let timeout = self.timeout();
        match self.driver.in_flight().saturating_sub(self.net_in_flight) {
            disk @ BATCH_FROM.. => {
                let timeout = timeout.map_or(BATCH_WAIT, |timeout| timeout.min(BATCH_WAIT));
                Wait::For { completions: (disk / 4) as u32, timeout: Some(timeout) }
            }
            _ => Wait::For { completions: 1, timeout },
        }
    }

    /// How long to sleep if nothing happens.
    fn timeout(&self) -> Option<Duration> {
        let now = self.driver.now();
        let pauses = self.listeners.iter().map(|listener| listener.pause);
        let has_entries = self.entries.len() > self.free.len();
        let sweep = self.sweeps_for().filter(|_| has_entries).map(|_| self.times.sweep_at);
        let instants = [
            pause_ends_at(pauses, self.accepts()),
            self.times.drain_until,
            sweep,
            self.times.flush_at.get(),
            self.relief_at(),
            self.lingers_until(),
            self.schedule.returns_at(),
            self.times.waits.next(),
            self.sweeps_at(),
        ];
        instants.iter().flatten().min().map(|at| Duration::from_nanos(at.0.saturating_sub(now.mono.0)))
    }

    fn timers(&mut self) {
        let now = self.driver.now();
        self.sweep();
        self.end_lingering();
        self.end_waits();
        self.relieve();
        self.retry_starved();
        self.trim();
        self.sweep_nodes();
        if let Some(at) = self.times.flush_at.get().filter(|at| *at <= now.mono) {
            self.times.flush_at.set(None);
            // Unless another flush_all has taken its place.
            if self.shared.flush_at.compare_exchange(at.0, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                let operation = delete_everything(self.shared.level);
                submit(&mut self.driver, &self.shared, TAG_BACKGROUND, Target::Every, operation);
                self.shared.sweep_nodes();
            }
        }
        if !self.times.forced && self.times.drain_until.is_some_and(|until| until <= now.mono) {
            self.times.forced = true;
            let open = self.entries.iter().flatten().count();
            if open > 0 {
                tracing::warn!(open, "connections are cut off after waiting for their commands");
            }
            self.times.drain_until = Some(after(now.mono, DRAIN_FORCED));
            for number in 0..self.entries.len() as u32 {
                if let Some(entry) = self.touch(number) {
                    entry.connection.abort();
                }
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end_relief();
        let worker_slot = &self.shared.worker_slots[self.index];
        let unserved = lock(&worker_slot.handover).take().map_or(0, |arriving| arriving.len());
        worker_slot.connections.fetch_sub(unserved, Ordering::Relaxed);
    }
}

/// Hands an operation to its shard or shards; returns how many replies will come.
fn submit(driver: &mut Driver, shared: &Shared, tag: u64, target: Target, operation: Operation) -> usize {
    let shards = shared.store.shards();
    match (target, key_of(&operation)) {
        (Target::Key, Some(key)) => {
            let shard = shared.store.shard_of(key);
            driver.submit(shard, tag, operation);
            1
        }
        (Target::Shard(shard), _) => {
            driver.submit(shard, tag, operation);
            1
        }
        (Target::Batch, _) => {
            driver.submit(shared.store.shard_of_write(&operation), tag, operation);
            1
        }
        _ => {
            (0..shards).for_each(|shard| driver.submit(shard, tag, operation.clone()));
            shards
        }
    }
}

fn key_of(operation: &Operation) -> Option<&stratakv_base::Key> {
    match operation {
        Operation::Get { key, .. } | Operation::Update { key, .. } => Some(key),
        Operation::Write { changes, .. } => changes.first().map(|change| &change.key),
        _ => None,
    }
}

fn log<'a>(shared: &'a Shared, wall: Wall, socket: &Socket) -> Log<'a> {
    Log { watches: &shared.figures.watches, details: &shared.figures.details, wall, cfd: socket.number() }
}

pub(crate) fn after(now: Mono, duration: Duration) -> Mono {
    Mono(now.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
}
