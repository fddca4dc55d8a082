//! What a connection knows of its Redis client.

use stratakv_base::Wall;
use stratakv_base::random::Random;
use stratakv_protocol::resp::{Parser, Version};

use super::arguments::Gathered;
use super::pubsub::Subscriptions;
use super::transaction::Transaction;
use crate::memory_budget::{MemoryPermit, RequestTurn};

/// The request that is coming, and who sends it.
#[derive(Debug, Default)]
pub(crate) struct RespClient {
    pub(crate) parser: Parser,
    pub(crate) gathered: Gathered,
    pub(crate) session: Session,
    /// Of the request that is coming.
    turn: Option<RequestTurn>,
}

impl RespClient {
    /// Bytes of memory that it holds for a request that has not come whole, and for a transaction.
    pub(crate) fn held_bytes(&self) -> usize {
        let Session { transaction, subscriptions, .. } = &self.session;
        let names = subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.held_bytes());
        self.parser.held_bytes() + self.gathered.held_bytes() + transaction.held_bytes() + names
    }

    /// Has the turn of large requests from now on, or not.
    pub(crate) fn take_turn(&mut self, permit: &MemoryPermit) -> bool {
        if self.turn.is_none() {
            self.turn = permit.try_turn();
        }
        self.turn.is_some()
    }

    /// The request is over: forgets what was kept of it.
    pub(crate) fn end_request(&mut self) {
        self.gathered.clear();
        self.parser.shrink();
        self.turn = None;
    }

    /// Whether no request has begun.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.gathered.is_empty() && self.parser.is_between_requests()
    }
}

/// How a client has introduced itself.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) version: Version,
    pub(crate) description: ClientDescription,
    pub(crate) transaction: Transaction,
    /// What it listens to, if it does.
    pub(crate) subscriptions: Option<Box<Subscriptions>>,
    /// Commands that may have drawn lots.
    draws: u64,
}

impl Session {
    /// A number that no other command has, of a client with this number at this time.
    pub(crate) fn draw(&mut self, client_id: u64, wall: Wall) -> u64 {
        self.draws = self.draws.wrapping_add(1);
        mixed(mixed(mixed(wall.0) ^ client_id) ^ self.draws)
    }
}

/// A number drawn by this one: the same gives the same.
pub(crate) fn mixed(number: u64) -> u64 {
    Random::new(number).next_u64()
}

/// What others are told of a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientDescription {
    pub(crate) name: String,
    pub(crate) library: String,
    pub(crate) library_version: String,
    pub(crate) version: Version,
    /// Who it has said it is; empty: nobody asked.
    pub(crate) user: String,
}

impl ClientDescription {
    /// Whose connection it is.
    pub(crate) fn user(&self) -> &str {
        if self.user.is_empty() { "default" } else { &self.user }
    }
}
