//! Connections that are closed for what they do not do: nothing for too long, a request that does
//! not go on, an answer that is not taken; and, while memory for clients is short, those that hold
//! it and move nothing.

use std::time::Duration;

use stratakv_base::Mono;
use stratakv_device::allocator;

use super::{HANDSHAKE, Worker, after};
use crate::server::WorkerSlot;

/// How often connections that stopped for want of memory try again.
const RETRY_EVERY: Duration = Duration::from_millis(2);
/// How many do so at once, and one in how many of them is of those that have had no answer yet.
const RETRIES: usize = 16;
const RETRIES_OF_OTHERS: usize = 4;
/// How often it is looked for those that hold memory and move nothing, while others wait for it.
const RELIEVE_EVERY: Duration = Duration::from_millis(100);
/// Where most of the memory is held by connections that wait for more of it, they may wait for so
/// long.
const STUCK: Duration = Duration::from_secs(1);
/// And for so long where one connection has the turn of large requests, which they wait for.
const STUCK_FOR_TURN: Duration = Duration::from_secs(10);
/// How often the log tells of it.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What a thread knows of memory that its connections wait for.
#[derive(Debug, Default)]
pub(super) struct Relief {
    /// Connections that stopped, the newest last: those of which a client took an answer and asked
    /// again, and others.
    starved: [Vec<u32>; 2],
    retry_at: Mono,
    relieve_at: Mono,
    tell_at: Mono,
    /// Closed and not told of.
    untold: u64,
}

impl Relief {
    fn is_empty(&self) -> bool {
        self.starved.iter().all(Vec::is_empty)
    }
}

impl Worker {
    /// What a connection holds now, and whether it waits for memory.
    pub(super) fn account(&mut self, number: u32) {
        let now = self.driver.now().mono;
        let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) else { return };
        // What is sealed is a copy; what is plain the connection knows of.
        let outside_bytes = entry.tls.as_ref().map_or(0, |tls| tls.held_bytes() + entry.in_flight.sending_bytes);
        let before = entry.memory.held_bytes;
        entry.memory.held_bytes = entry.connection.true_up(outside_bytes);
        if before == 0 && entry.memory.held_bytes > 0 {
            entry.progress.begin(now);
        }
        if !entry.connection.is_starved() {
            entry.memory.starved_since = None;
        } else if !entry.memory.starving {
            entry.memory.starving = true;
            if entry.memory.starved_since.is_none() {
                entry.memory.starved_since = Some(now);
                self.shared.figures.counters[self.index].memory_waits.add(1);
            }
            self.relief.starved[usize::from(!entry.memory.is_proven)].push(number);
            self.shared.memory.budget.count_waiting(true);
        }
    }

    /// When something of this is to be done.
    pub(super) fn relief_at(&self) -> Option<Mono> {
        let retry = (!self.relief.is_empty()).then_some(self.relief.retry_at);
        retry.into_iter().chain(self.shared.memory.budget.trim_at()).min()
    }

    /// Lets those try again that stopped for want of memory: most of them are such whose clients
    /// have taken answers, as long as there are any. Of each kind the newest are first, for who has
    /// waited long has likely been given up by its client.
    pub(super) fn retry_starved(&mut self) {
        let now = self.driver.now().mono;
        if self.relief.is_empty() || now < self.relief.retry_at {
            return;
        }
        self.relief.retry_at = after(now, RETRY_EVERY);
        for at in 0..RETRIES {
            let [proven, others] = &mut self.relief.starved;
            let (first, second) = if at % RETRIES_OF_OTHERS == 0 { (others, proven) } else { (proven, others) };
            let Some(number) = first.pop().or_else(|| second.pop()) else { break };
            self.shared.memory.budget.count_waiting(false);
            let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) else { continue };
            if std::mem::take(&mut entry.memory.starving) {
                self.touch(number);
            }
        }
    }

    /// While connections of any thread wait for memory: takes back what idle ones have, then closes
    /// those that hold it and move nothing, those first that have done so longest.
    pub(super) fn relieve(&mut self) {
        let now = self.driver.now().mono;
        if self.shared.memory.budget.waiting() == 0 || now < self.relief.relieve_at {
            return;
        }
        self.relief.relieve_at = after(now, RELIEVE_EVERY);
        if !self.relief.is_empty() {
            // What they wait for others may hold.
            let others =
                self.shared.worker_slots.iter().enumerate().filter(|(worker_slot, _)| *worker_slot != self.index);
            others.for_each(|(_, worker_slot)| WorkerSlot::ring(worker_slot));
        }
        let offenders = self.offenders(now);
        let (mut wanted, mut closed) = (self.shared.memory.budget.max_bytes() / 4, 0);
        for (_, number, held) in offenders {
            if wanted == 0 {
                break;
            }
            wanted = wanted.saturating_sub(held);
            closed += 1;
            self.cut_off(number, "memory");
        }
        self.counters().memory_kicks.add(closed);
        self.tell_closed(closed, now);
    }

    /// Connections that hold memory and move nothing: since when, which, and how much. Idle ones
    /// give theirs back.
    fn offenders(&mut self, now: Mono) -> Vec<(Mono, u32, u64)> {
        let (mut offenders, mut stuck, mut stuck_bytes) = (Vec::new(), Vec::new(), 0);
        let patience = if self.shared.memory.budget.has_turn() { STUCK_FOR_TURN } else { STUCK };
        for (number, slot) in (0u32..).zip(&mut self.entries) {
            let Some(entry) = slot.as_mut().filter(|entry| entry.memory.held_bytes > 0 && !entry.ending.shut) else {
                continue;
            };
            if entry.waits_for_client() || entry.hoards() {
                entry.look(now);
                offenders.extend(entry.progress.slow_since(now).map(|since| (since, number, entry.memory.held_bytes)));
            } else if let Some(since) = entry.memory.starved_since {
                stuck_bytes += entry.memory.held_bytes;
                stuck.extend((after(since, patience) <= now).then_some((since, number, entry.memory.held_bytes)));
            } else if entry.in_flight.receiving && entry.has_idle_room() {
                entry.in_flight.calls_off = true;
                self.driver.cancel(&entry.socket);
            }
        }
        // Those that wait may hold what they wait for.
        let threads = self.shared.worker_slots.len() as u64;
        if offenders.is_empty() && stuck_bytes * 2 * threads > self.shared.memory.budget.max_bytes() {
            offenders = stuck;
        }
        offenders.sort_unstable();
        offenders
    }

    fn tell_closed(&mut self, closed: u64, now: Mono) {
        self.relief.untold += closed;
        if self.relief.untold > 0 && self.relief.tell_at <= now {
            self.relief.tell_at = after(now, TELL_EVERY);
            let closed = std::mem::take(&mut self.relief.untold);
            let limit_bytes = self.shared.memory.budget.max_bytes();
            tracing::warn!(
                closed,
                limit_bytes,
                "memory for clients is short: connections that held it and moved nothing are closed"
            );
        }
    }

    fn cut_off(&mut self, number: u32, why: &'static str) {
        if let Some(entry) = self.touch(number) {
            entry.ending.reason = Some(why);
            entry.connection.abort();
        }
    }

    /// The shortest time after which a connection of some kind is closed.
    pub(super) fn sweeps_for(&self) -> Option<Duration> {
        let handshake = self.shared.security.serves_tls.then_some(HANDSHAKE);
        let limits = [self.shared.limits.idle_limit.get(), self.shared.limits.request_limit.get(), handshake];
        limits.into_iter().flatten().min()
    }

    /// Closes connections of which nothing was heard for too long: those that wait for their
    /// client, not those that are waited for.
    pub(super) fn sweep(&mut self) {
        let now = self.driver.now().mono;
        let (idle_limit, request_limit) = (self.shared.limits.idle_limit.get(), self.shared.limits.request_limit.get());
        let Some(limit) = self.sweeps_for() else { return };
        let next = after(now, sweep_every(limit));
        if now < self.times.sweep_at {
            // The limit may have become shorter.
            self.times.sweep_at = self.times.sweep_at.min(next);
            return;
        }
        self.times.sweep_at = next;
        let (mut quiet, mut starved) = (Vec::new(), Vec::new());
        for (number, slot) in (0u32..).zip(&mut self.entries) {
            let Some(entry) = slot.as_mut().filter(|entry| !entry.ending.shut) else { continue };
            let is_over = |since: Mono, limit: Option<Duration>| limit.is_some_and(|limit| after(since, limit) <= now);
            if entry.memory.starved_since.is_some_and(|since| is_over(since, request_limit)) {
                starved.push(number);
            } else if entry.in_flight.operations == 0 && !entry.connection.is_starved() {
                entry.look(now);
                if is_over(entry.active_at, entry.limit(idle_limit, request_limit)) {
                    quiet.push(number);
                }
            }
        }
        self.counters().memory_kicks.add(starved.len() as u64);
        starved.into_iter().for_each(|number| self.cut_off(number, "memory"));
        if !quiet.is_empty() {
            self.measures().idle_closed.add(quiet.len() as u64);
            self.counters().idle_kicks.add(quiet.len() as u64);
            tracing::debug!(closed = quiet.len(), "idle connections are closed");
            quiet.into_iter().for_each(|number| self.cut_off(number, "idle_timeout"));
        }
    }

    /// Gives memory that clients no longer need back to the system.
    pub(super) fn trim(&self) {
        if self.shared.memory.budget.begin_trim(self.driver.now().mono) {
            allocator::give_back();
        }
    }

    /// Nobody waits any more.
    pub(super) fn end_relief(&mut self) {
        self.relief
            .starved
            .iter_mut()
            .flat_map(|list| list.drain(..))
            .for_each(|_| self.shared.memory.budget.count_waiting(false));
    }
}

/// How often idle connections are looked for: they live an eighth longer at most, and each look
/// costs a step for each connection.
fn sweep_every(limit: Duration) -> Duration {
    (limit / 8).clamp(Duration::from_millis(10), Duration::from_secs(30))
}
