//! [`Connections`]: all connections of a stack by slot, by their ends and by their timers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use smoltcp::time::Instant;

use super::connection::Connection;
use super::frame::Ends;
use super::handle::SocketId;

/// A slot, and how often it had been used before its connection.
pub(super) type ConnectionKey = (u32, u32);

/// See the module.
#[derive(Default)]
pub(super) struct Connections {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_ends: HashMap<Ends, u32, foldhash::fast::RandomState>,
    /// May hold timers that were put off meanwhile, and those of connections that are gone.
    timers: BinaryHeap<Reverse<(Instant, ConnectionKey)>>,
    /// Those that may have something to send.
    listed: Vec<ConnectionKey>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    connection: Option<Box<Connection>>,
}

impl Connections {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, connection: Connection) -> ConnectionKey {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        self.by_ends.insert(connection.ends, slot);
        let place = &mut self.slots[slot as usize];
        place.connection = Some(Box::new(connection));
        (slot, place.generation)
    }

    pub(super) fn remove(&mut self, (slot, generation): ConnectionKey) -> Option<Box<Connection>> {
        let place = self.slots.get_mut(slot as usize).filter(|place| place.generation == generation)?;
        let connection = place.connection.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(slot);
        self.forget_ends(connection.ends, slot);
        Some(connection)
    }

    /// Another connection may have these ends from now on.
    pub(super) fn forget_ends(&mut self, ends: Ends, slot: u32) {
        if self.by_ends.get(&ends) == Some(&slot) {
            self.by_ends.remove(&ends);
        }
    }

    pub(super) fn get(&mut self, (slot, generation): ConnectionKey) -> Option<&mut Connection> {
        let place = self.slots.get_mut(slot as usize).filter(|place| place.generation == generation)?;
        place.connection.as_deref_mut()
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
        let slot = *self.by_ends.get(ends)?;
        self.slots.get(slot as usize).map(|place| (slot, place.generation))
    }

    pub(super) fn keys(&self) -> Vec<ConnectionKey> {
        let used = |(slot, place): (usize, &Slot)| place.connection.as_ref().map(|_| (slot as u32, place.generation));
        self.slots.iter().enumerate().filter_map(used).collect()
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
