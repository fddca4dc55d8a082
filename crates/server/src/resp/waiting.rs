//! Who waits for an element of which list or sorted set (`BLPOP` and its kin): a queue for each
//! key, in the order in which clients began to wait.
//!
//! Only the first of a queue looks at its key. Whoever leaves elements at a key calls the first;
//! when that one leaves the queue after it was called, it calls the one behind it. A client enters
//! its queues before it looks at the keys for the first time, so no element is missed.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use stratakv_base::Key;

use super::calls::{Calls, ConnectionAddress};
use crate::server::lock;

/// Bytes that a waiting client takes in here, beside its keys, and each of its keys beside its
/// name, which is there twice.
const WAITER_BYTES: usize = 256;
const QUEUE_BYTES: usize = 448;

/// The kind of structure that is waited for: each has queues of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WaitKind {
    List,
    SortedSet,
}

/// How `CLIENT UNBLOCK` ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unblock {
    Timeout,
    Error,
}

/// What a client that waits is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Called {
    /// To go on waiting.
    No,
    /// To look at those of its keys, by their number, where it is the first.
    Look(Vec<usize>),
    Unblocked(Unblock),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct WaitTable {
    waiting: AtomicUsize,
    state: Mutex<WaitState>,
    calls: Arc<Calls>,
}

#[derive(Debug, Default)]
struct WaitState {
    /// Of who came last.
    ticket: u64,
    /// Tickets and clients, in order.
    queues: HashMap<(WaitKind, Key), BTreeMap<u64, u64>>,
    /// By the number of the client.
    waiters: HashMap<u64, WaiterState>,
}

#[derive(Debug)]
struct WaiterState {
    ticket: u64,
    address: ConnectionAddress,
    kind: WaitKind,
    keys: Vec<Key>,
    /// There may be something for it.
    is_called: bool,
    /// It is looking.
    is_looking: bool,
    unblocked: Option<Unblock>,
}

impl WaitTable {
    /// Nobody waits yet. Connections that are to go on are told by `calls`.
    pub(crate) fn new(calls: &Arc<Calls>) -> Arc<WaitTable> {
        Arc::new(WaitTable { waiting: 0.into(), state: Mutex::default(), calls: Arc::clone(calls) })
    }

    /// Clients that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether this client waits.
    pub(crate) fn is_waiting(&self, client: u64) -> bool {
        self.len() > 0 && lock(&self.state).waiters.contains_key(&client)
    }

    /// A client waits at these keys, each named once, until what comes back is dropped. It is to
    /// look at once.
    pub(crate) fn enter(
        self: &Arc<Self>,
        (client, address): (u64, ConnectionAddress),
        kind: WaitKind,
        keys: &[Key],
    ) -> Waiter {
        let mut state = lock(&self.state);
        state.ticket += 1;
        let ticket = state.ticket;
        for key in keys {
            state.queues.entry((kind, key.clone())).or_default().insert(ticket, client);
        }
        let keys = keys.to_vec();
        let waiter = WaiterState { ticket, address, kind, keys, is_called: true, is_looking: false, unblocked: None };
        state.waiters.insert(client, waiter);
        self.waiting.store(state.waiters.len(), Ordering::SeqCst);
        Waiter { table: Arc::clone(self), client }
    }

    /// There are elements at this key, or may be.
    pub(crate) fn call(&self, key: &Key) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut state = lock(&self.state);
        for kind in [WaitKind::List, WaitKind::SortedSet] {
            // The key of a map has to be owned; few clients are in the way of a write.
            self.call_first(&mut state, &(kind, key.clone()));
        }
    }

    fn call_first(&self, state: &mut WaitState, queue: &(WaitKind, Key)) {
        let Some((_, client)) = state.queues.get(queue).and_then(BTreeMap::first_key_value) else { return };
        let Some(waiter) = state.waiters.get_mut(client) else { return };
        let was_called = std::mem::replace(&mut waiter.is_called, true);
        if !was_called && !waiter.is_looking {
            self.calls.add(waiter.address);
        }
    }

    /// Ends the wait of a client, if it waits.
    pub(crate) fn unblock(&self, client: u64, how: Unblock) -> bool {
        let mut state = lock(&self.state);
        let Some(waiter) = state.waiters.get_mut(&client).filter(|waiter| waiter.unblocked.is_none()) else {
            return false;
        };
        waiter.unblocked = Some(how);
        self.calls.add(waiter.address);
        true
    }

    fn leave(&self, client: u64) {
        let mut state = lock(&self.state);
        let Some(waiter) = state.waiters.remove(&client) else { return };
        let has_looked = waiter.is_called || waiter.is_looking;
        for key in waiter.keys {
            let queue = (waiter.kind, key);
            let Some(tickets) = state.queues.get_mut(&queue) else { continue };
            let was_first = tickets.first_key_value().is_some_and(|(ticket, _)| *ticket == waiter.ticket);
            tickets.remove(&waiter.ticket);
            if tickets.is_empty() {
                state.queues.remove(&queue);
            } else if was_first && has_looked {
                self.call_first(&mut state, &queue);
            }
        }
        if state.waiters.is_empty() {
            // The room of a crowd is given back.
            let ticket = state.ticket;
            *state = WaitState { ticket, ..WaitState::default() };
        }
        self.waiting.store(state.waiters.len(), Ordering::SeqCst);
    }
}

/// A client's places in the queues; it leaves them when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiter {
    table: Arc<WaitTable>,
    client: u64,
}

impl Waiter {
    /// Bytes that the places of these keys take.
    pub(crate) fn held_bytes(keys: &[Key]) -> usize {
        let names: usize = keys.iter().map(|key| 2 * key.user().len() + QUEUE_BYTES).sum();
        WAITER_BYTES + names
    }

    /// What it is to do. What it was doing is over.
    pub(crate) fn take_call(&self) -> Called {
        let mut state = lock(&self.table.state);
        let WaitState { queues, waiters, .. } = &mut *state;
        let Some(waiter) = waiters.get_mut(&self.client) else { return Called::No };
        waiter.is_looking = false;
        if let Some(how) = waiter.unblocked {
            return Called::Unblocked(how);
        }
        if !std::mem::take(&mut waiter.is_called) {
            return Called::No;
        }
        let is_first = |key: &Key| {
            let first = queues.get(&(waiter.kind, key.clone())).and_then(BTreeMap::first_key_value);
            first.is_some_and(|(ticket, _)| *ticket == waiter.ticket)
        };
        let places = waiter.keys.iter().enumerate().filter(|(_, key)| is_first(key));
        let places: Vec<usize> = places.map(|(place, _)| place).collect();
        if places.is_empty() {
            return Called::No;
        }
        waiter.is_looking = true;
        Called::Look(places)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.table.leave(self.client);
    }
}

#[cfg(test)]
#[path = "../../tests/unit/resp/waiting.rs"]
mod tests;
