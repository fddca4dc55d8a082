//! What a connection holds, and receiving: both stop where the budget of the server's memory ends.

use super::{
    Connection, LEND_BYTES_MIN, PENDING_MAX, RECV_BYTES_MAX, RECV_BYTES_MIN, Receiving, Storing, WRITING_BYTES_MAX,
};
use crate::memory_budget::{FREE_BYTES, MemoryBudget, MemoryPermit};
use crate::pending::{ParsedCommand, PendingAnswer};
use crate::received::Received;

/// Places that a connection has whatever the others do.
const FREE_PLACES: usize = 4;
/// What the thread and the engine hold for an operation under way, beside its place.
const OPERATION_BYTES: usize = 256;
/// Places are given back from this number on once they are empty.
const KEPT_PLACES: usize = 8;

impl Storing {
    /// What it holds, or is going to.
    fn held_bytes(&self) -> u64 {
        let came = self.body.total() - self.body.missing().min(self.body.total());
        if self.claimed.is_some() { self.body.total() as u64 } else { came as u64 }
    }
}

impl Connection {
    /// Bytes that it holds outside of the store.
    pub(super) fn footprint(&self) -> u64 {
        let value = self.unfinished.storing.as_ref().map_or(0, Storing::held_bytes);
        let line = self.unfinished.rest.as_ref().map_or(0, |rest| rest.line.capacity());
        let places =
            self.answers.pending.capacity() * size_of::<PendingAnswer>() + self.answers.pending.len() * OPERATION_BYTES;
        let more = self.unfinished.more.as_ref().map_or(0, |more| more.held_bytes());
        let requests = self.client.held_bytes() + more;
        let buffers = (self.input.received.capacity() + self.input.receiving_bytes + line + places + requests) as u64;
        let held = self.unfinished.held.as_ref().map_or(0, ParsedCommand::held_bytes);
        let values = self.reading.bytes + self.writing_bytes + value + held;
        buffers + values + self.sending.output.bytes() + self.sending.bytes + self.memory.outside_bytes
    }

    /// Trues up what the budget knows of it; what others hold for it, TLS say, is `outside_bytes`.
    /// What it is then.
    pub(crate) fn true_up(&mut self, outside_bytes: u64) -> u64 {
        self.memory.outside_bytes = outside_bytes;
        if self.ending.broken {
            // What is in flight is freed with it.
            self.memory.permit.set(0);
            return 0;
        }
        let held = self.footprint();
        self.memory.permit.set(held);
        self.memory.permit.bytes()
    }

    /// Whether so many bytes more may be held; they count from then on. If not, it waits.
    pub(super) fn may_take(&mut self, bytes: u64) -> bool {
        self.may(MemoryPermit::try_grow, bytes)
    }

    /// The same for an answer that is begun.
    pub(super) fn may_begin(&mut self, bytes: u64) -> bool {
        self.may(MemoryPermit::try_begin, bytes)
    }

    fn may(&mut self, grow: fn(&mut MemoryPermit, u64, u64) -> bool, bytes: u64) -> bool {
        let held = self.footprint();
        let may = grow(&mut self.memory.permit, held, bytes);
        self.memory.is_starved |= !may;
        may
    }

    /// Whether so many bytes may be kept for long, beside all that is allowed so far; it does not
    /// wait for them.
    pub(super) fn may_keep(&mut self, bytes: u64) -> bool {
        let held = self.memory.permit.bytes() + FREE_BYTES;
        self.memory.permit.try_grow(held, bytes)
    }

    /// A permit for what another holds for it.
    pub(super) fn new_permit(&self) -> MemoryPermit {
        self.memory.permit.another()
    }

    /// Bytes of answers that are read, being read, waiting and being sent.
    pub(super) fn answer_bytes(&self) -> u64 {
        self.reading.bytes + self.sending.output.bytes() + self.sending.bytes
    }

    /// It may do so much more; what takes long only if others had their turn.
    pub(crate) fn grant(&mut self, units: i64, others_had_theirs: bool) {
        self.grant.give(units, others_had_theirs);
    }

    /// Counts work against its share: what its commands cost, and the values that are sent to it.
    pub(crate) fn spend(&mut self, units: i64) {
        self.grant.spend(units);
    }

    /// What it has cost since this was last asked.
    pub(crate) fn take_spent(&mut self) -> i64 {
        self.grant.take_spent()
    }

    /// How many errors its client made since this was last asked.
    pub(crate) fn take_errors(&mut self) -> u32 {
        std::mem::take(&mut self.client.errors)
    }

    /// Whether it stopped because its share of the tick is used up.
    pub(crate) fn wants_more(&self) -> bool {
        self.grant.wants_more && !self.ending.broken
    }

    /// Waits for memory that others hold.
    pub(crate) fn is_starved(&self) -> bool {
        self.memory.is_starved
    }

    /// Holds room for a receive between two requests that others could use.
    pub(crate) fn has_idle_room(&self) -> bool {
        self.input.receiving == Some(Receiving::Lines)
            && self.input.receiving_bytes > RECV_BYTES_MIN
            && self.is_between_requests()
    }

    /// Whether nothing was begun that its client has to go on with.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.unfinished.storing.is_none()
            && self.unfinished.refused.is_none()
            && self.input.unfinished_bytes == 0
            && self.client.is_between_requests()
    }

    /// Whether everything that was asked is answered, and something was.
    pub(crate) fn has_answered(&self) -> bool {
        self.answers.first > 0
            && self.answers.pending.is_empty()
            && self.answer_bytes() == 0
            && self.is_between_requests()
    }

    /// Whether somebody who may use the server is at the other end: it has logged in if that is
    /// asked for, and has had an answer.
    pub(crate) fn is_client(&self, has_accounts: bool) -> bool {
        self.answers.first > 0 && (self.client.admitted || !has_accounts)
    }

    /// The server's budget.
    pub(super) fn budget(&self) -> &MemoryBudget {
        self.memory.permit.budget()
    }

    /// What the place of one more command takes. It counts although nothing is read for it: a value
    /// that is too long for now is let go, and its place stays.
    fn next_place_bytes(&self) -> u64 {
        let (places, room) = (self.answers.pending.len(), self.answers.pending.capacity());
        let growth = if places == room { room.max(FREE_PLACES) * size_of::<PendingAnswer>() } else { 0 };
        (growth + OPERATION_BYTES) as u64
    }

    /// Whether another command may be begun.
    pub(super) fn has_room(&mut self) -> bool {
        if self.answers.pending.len() >= PENDING_MAX || self.writing_bytes >= WRITING_BYTES_MAX {
            return false;
        }
        self.reading.first_bytes = self.first_bytes();
        let was_starved = self.memory.is_starved;
        if self.may_hold(self.reading.first_bytes) && self.may_begin(self.reading.first_bytes + self.next_place_bytes())
        {
            return true;
        }
        // A short answer is free, and whether this one is long is not known.
        let is_free = self.answers.pending.len() < FREE_PLACES && self.answer_bytes() == 0;
        if is_free {
            (self.reading.first_bytes, self.memory.is_starved) = (FREE_BYTES, was_starved);
        }
        is_free
    }

    /// Whether the rest of a long value may be received: all of it, or it would stop half-way.
    pub(super) fn may_collect(&mut self) -> bool {
        let Some(storing) = &self.unfinished.storing else { return true };
        let (total, missing) = (storing.body.total(), storing.body.missing());
        if storing.claimed.is_some() || total <= LEND_BYTES_MIN || missing <= self.input.received.fresh().len() {
            return true;
        }
        let held = self.footprint();
        let claimed = self.memory.permit.try_value(held, missing as u64);
        let claimed = match claimed {
            None if self.has_turn() => Some(self.memory.permit.take_value(held, missing as u64)),
            claimed => claimed,
        };
        self.memory.is_starved |= claimed.is_none();
        match &mut self.unfinished.storing {
            Some(storing) => {
                storing.claimed = claimed;
                storing.claimed.is_some()
            }
            None => true,
        }
    }

    /// A receive ended: the buffer from [`Connection::next_recv`], and how many bytes it got; 0 or
    /// an error is the end.
    pub(crate) fn received(&mut self, buffer: Vec<u8>, bytes: usize) {
        self.input.receiving_bytes = 0;
        match (self.input.receiving.take(), &mut self.unfinished.storing) {
            (Some(Receiving::Body), Some(storing)) => {
                self.input.received = Received::new(storing.body.restore(buffer));
            }
            (Some(Receiving::Behind), _) => self.input.received.append(buffer),
            _ => {
                let filled = buffer.len() == buffer.capacity();
                self.input.recv_bytes = if filled {
                    self.input.recv_bytes * 2
                } else {
                    bytes.max(self.input.recv_bytes - self.input.recv_bytes / 8)
                };
                self.input.recv_bytes = self.input.recv_bytes.clamp(RECV_BYTES_MIN, RECV_BYTES_MAX);
                self.input.received = Received::new(buffer);
            }
        }
        self.ending.ended |= bytes == 0;
        self.input.hungry = false;
        if self.ending.hung_up {
            self.input.received = Received::default();
            self.ending.unheard_bytes += bytes;
        }
    }

    /// A receive was called off, with its buffer, so that others have the room.
    pub(crate) fn room_taken(&mut self, buffer: Vec<u8>) {
        let receiving = self.input.receiving.take();
        (self.input.receiving_bytes, self.input.recv_bytes) = (0, RECV_BYTES_MIN);
        if receiving != Some(Receiving::Behind) {
            self.input.received = Received::new(buffer);
        }
    }

    /// A buffer to receive into, if something should be received now.
    pub(crate) fn next_recv(&mut self) -> Option<Vec<u8>> {
        if self.ending.hung_up && self.input.receiving.is_none() && !self.ending.ended {
            self.input.receiving = Some(Receiving::Lines);
            return Some(Vec::with_capacity(RECV_BYTES_MIN));
        }
        if self.input.receiving.is_some() || self.ending.ended || self.ending.closing {
            return None;
        }
        if !self.input.hungry {
            return self.recv_behind();
        }
        if self.answers.pending.is_empty() && self.answers.pending.capacity() > KEPT_PLACES {
            self.answers.pending = std::collections::VecDeque::new();
        }
        let unparsed = self.input.received.fresh().len();
        if let Some(storing) =
            self.unfinished.storing.as_mut().filter(|s| unparsed == 0 && s.body.missing() >= LEND_BYTES_MIN)
        {
            self.input.receiving = Some(Receiving::Body);
            return Some(storing.body.lend());
        }
        self.input.unfinished_bytes = unparsed;
        self.recv_lines()
    }

    /// While a command waits, what comes behind it is received, so that the end of the client is
    /// noticed; no more of it than of any input.
    fn recv_behind(&mut self) -> Option<Vec<u8>> {
        let unparsed = self.input.received.fresh().len();
        let may = self.waiting.is_some()
            && (unparsed == 0 || (unparsed < RECV_BYTES_MAX && self.may_take(RECV_BYTES_MIN as u64)));
        if !may {
            return None;
        }
        self.input.unfinished_bytes = 0;
        self.input.receiving = Some(Receiving::Behind);
        self.input.receiving_bytes = RECV_BYTES_MIN;
        let buffer = match unparsed {
            0 => std::mem::take(&mut self.input.received).into_buffer(),
            _ => Vec::new(),
        };
        Some(if buffer.capacity() == RECV_BYTES_MIN { buffer } else { Vec::with_capacity(RECV_BYTES_MIN) })
    }

    fn recv_lines(&mut self) -> Option<Vec<u8>> {
        let mut buffer = std::mem::take(&mut self.input.received).into_buffer();
        if buffer.capacity() > 4 * self.input.recv_bytes.max(buffer.len()) {
            // Connections that have become quiet give their room back.
            buffer.shrink_to_fit();
        }
        // A long line doubles; anything else gets room for one receive.
        let room = self.input.recv_bytes.max(if buffer.len() >= RECV_BYTES_MAX { buffer.len() } else { 0 });
        let was_starved = self.memory.is_starved;
        self.input.receiving_bytes = buffer.capacity();
        let spare = buffer.capacity() - buffer.len();
        if room <= RECV_BYTES_MIN || room <= spare || self.may_take((room - spare) as u64) || self.has_turn() {
            buffer.reserve_exact(room);
        } else if buffer.len() < RECV_BYTES_MIN {
            // Less will do.
            self.memory.is_starved = was_starved;
            buffer.shrink_to(buffer.len() + RECV_BYTES_MIN);
            buffer.reserve_exact(RECV_BYTES_MIN);
        } else {
            self.input.receiving_bytes = 0;
            self.input.received = Received::new(buffer);
            return None;
        }
        self.input.receiving = Some(Receiving::Lines);
        self.input.receiving_bytes = buffer.capacity();
        Some(buffer)
    }
}

#[cfg(test)]
#[path = "../../tests/unit/connection/memory.rs"]
mod tests;
