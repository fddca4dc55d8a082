//! [`Connections`]: all connections of a stack by slot, by their ends and by their timers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use smoltcp::time::Instant;
use stratakv_base::slots::Slots;

use super::connection::Connection;
use super::frame::Ends;
use super::handle::SocketId;

/// A slot, and how often it had been used before its connection.
pub(super) type ConnectionKey = (u32, u32);

/// See the module.
#[derive(Default)]
pub(super) struct Connections {
    slots: Slots<Box<Connection>, ConnectionKey>,
    by_ends: HashMap<Ends, ConnectionKey, foldhash::fast::RandomState>,
    /// May hold timers that were put off meanwhile, and those of connections that are gone.
    timers: BinaryHeap<Reverse<(Instant, ConnectionKey)>>,
    /// Those that may have something to send.
    listed: Vec<ConnectionKey>,
}

impl Connections {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn insert(&mut self, connection: Connection) -> ConnectionKey {
        let ends = connection.ends;
        let key = self.slots.insert(Box::new(connection));
        self.by_ends.insert(ends, key);
        key
    }

    pub(super) fn remove(&mut self, key: ConnectionKey) -> Option<Box<Connection>> {
        let connection = self.slots.remove(key)?;
        self.forget_ends(connection.ends, key);
        Some(connection)
    }

    /// Another connection may have these ends from now on.
    pub(super) fn forget_ends(&mut self, ends: Ends, key: ConnectionKey) {
        if self.by_ends.get(&ends) == Some(&key) {
            self.by_ends.remove(&ends);
        }
    }

    pub(super) fn get(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        self.slots.get_mut(key).map(|connection| &mut **connection)
    }

    pub(super) fn of_socket(&mut self, id: SocketId) -> Option<(ConnectionKey, &mut Connection)> {
        match id {
            SocketId::Listener(_) => None,
            SocketId::Connection(slot, generation) => {
                let key = (slot, generation);
                self.get(key).map(|connection| (key, connection))
            }
        }
    }

    pub(super) fn of_ends(&self, ends: &Ends) -> Option<ConnectionKey> {
        self.by_ends.get(ends).copied()
    }

    pub(super) fn keys(&self) -> Vec<ConnectionKey> {
        self.slots.iter().map(|(key, _)| key).collect()
    }

    /// Notes that a connection may have something to send.
    pub(super) fn list(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.get(key)
            && !std::mem::replace(&mut connection.is_listed, true)
        {
            self.listed.push(key);
        }
    }

    pub(super) fn take_listed(&mut self) -> Vec<ConnectionKey> {
        std::mem::take(&mut self.listed)
    }

    pub(super) fn has_listed(&self) -> bool {
        !self.listed.is_empty()
    }

    /// Has a connection listed at `at`. An earlier timer stays: when it is due, it finds out anew.
    pub(super) fn set_timer(&mut self, key: ConnectionKey, at: Instant) {
        if let Some(connection) = self.get(key)
            && connection.timer_at.is_none_or(|earlier| at < earlier)
        {
            connection.timer_at = Some(at);
            self.timers.push(Reverse((at, key)));
        }
    }

    /// Lists those whose timer is due.
    pub(super) fn list_due(&mut self, now: Instant) {
        while let Some(Reverse((at, key))) = self.timers.peek().copied() {
            if at > now {
                return;
            }
            self.timers.pop();
            if let Some(connection) = self.get(key)
                && connection.timer_at == Some(at)
            {
                connection.timer_at = None;
                self.list(key);
            }
        }
    }

    /// When the next timer is due.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }
}

/// Keys in the order they came, of which some may be gone: a bound on how many are, and the oldest.
#[derive(Default)]
pub(super) struct Oldest(VecDeque<ConnectionKey>);

impl Oldest {
    pub(super) fn push(&mut self, key: ConnectionKey) {
        self.0.push_back(key);
    }

    /// Takes out the first that `is_one` says still is one.
    pub(super) fn pop(&mut self, mut is_one: impl FnMut(ConnectionKey) -> bool) -> Option<ConnectionKey> {
        while let Some(key) = self.0.pop_front() {
            if is_one(key) {
                return Some(key);
            }
        }
        None
    }

    /// Drops those that are none any more, if there are more than twice as many as there can be.
    pub(super) fn trim(&mut self, most: usize, is_one: impl FnMut(&ConnectionKey) -> bool) {
        if self.0.len() > 2 * most.max(16) {
            self.0.retain(is_one);
        }
    }
}
