//! What was asked and answered, and when.

use std::sync::atomic::{AtomicU64, Ordering};

use stratakv_base::Level;
use stratakv_engine::{Operation, Reply};

/// An operation and its answer.
#[derive(Clone, Debug)]
pub struct HistoryEntry {
    /// Who asked.
    pub client: u32,
    /// The tick before it was asked.
    pub invoked: u64,
    /// The tick after it was answered; `None` if it never was.
    pub returned: Option<u64>,
    /// What was asked.
    pub operation: Operation,
    /// The answer.
    pub reply: Option<Reply>,
}

/// Operations of all clients, in any order, and crashes. Ticks are unique.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The operations.
    pub entries: Vec<HistoryEntry>,
    /// A put without a condition is answered as if its key had not been there, whether it was or
    /// not.
    pub blind: bool,
    crashes: Vec<(u64, Level)>,
}

impl History {
    /// An empty one, of an engine that answers puts blindly or not.
    pub fn new(blind: bool) -> History {
        History { blind, ..History::default() }
    }

    /// The operations of all clients.
    pub fn of<'c>(clients: impl IntoIterator<Item = Client<'c>>) -> History {
        let entries = clients.into_iter().flat_map(|client| client.entries).collect();
        History { entries, ..History::default() }
    }

    /// A crash at a tick: writes acknowledged at level `survives` or above survive it.
    pub fn crash(&mut self, at: u64, survives: Level) {
        self.crashes.push((at, survives));
        self.crashes.sort_unstable_by_key(|(at, _)| *at);
    }

    /// Ticks and levels, in order.
    pub(super) fn crashes(&self) -> &[(u64, Level)] {
        &self.crashes
    }
}

/// The clock of a history: it counts what is asked and what is answered.
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

impl Clock {
    /// The next tick.
    pub fn tick(&self) -> u64 {
        // SeqCst: an answer that came before a question has the smaller tick, on all threads.
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    /// A client of this clock's history, to be used by one thread.
    pub fn client(&self, number: u32) -> Client<'_> {
        Client { clock: self, number, entries: Vec::new() }
    }
}

/// Records what one client asks.
#[derive(Debug)]
pub struct Client<'c> {
    clock: &'c Clock,
    number: u32,
    entries: Vec<HistoryEntry>,
}

impl Client<'_> {
    /// Asks, and records what was asked and answered.
    pub fn call(&mut self, operation: Operation, execute: impl FnOnce(Operation) -> Reply) -> &Reply {
        let asked = operation.clone();
        let invoked = self.clock.tick();
        let reply = execute(operation);
        let returned = Some(self.clock.tick());
        self.entries.push(HistoryEntry { client: self.number, invoked, returned, operation: asked, reply: None });
        let last = self.entries.len() - 1;
        self.entries[last].reply.insert(reply)
    }
}
