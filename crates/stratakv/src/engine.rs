//! The engines behind one name: an enum outside, one match per call of a turn.

use stratakv_engine::{
    Budget, Capabilities, Effects, Io, Message, Operation, Outcome, Room, Shard, ShardId, Statistic, Token,
};
use stratakv_slab::Slab;

/// A shard of any engine.
pub enum AnyShard {
    /// KVell's design.
    Slab(Box<Slab>),
}

macro_rules! each {
    ($self:expr, $shard:ident => $call:expr) => {
        match $self {
            AnyShard::Slab($shard) => $call,
        }
    };
}

impl Shard for AnyShard {
    fn capabilities(&self) -> Capabilities {
        each!(self, shard => shard.capabilities())
    }
    fn room(&self) -> Room {
        each!(self, shard => shard.room())
    }
    fn accept(&mut self, token: Token, operation: Operation, effects: &mut Effects) -> Result<(), Operation> {
        each!(self, shard => shard.accept(token, operation, effects))
    }
    fn complete(&mut self, io: Io, outcome: Outcome, effects: &mut Effects) {
        each!(self, shard => shard.complete(io, outcome, effects));
    }
    fn message(&mut self, from: ShardId, message: Message, effects: &mut Effects) {
        each!(self, shard => shard.message(from, message, effects));
    }
    fn gone(&mut self, peer: ShardId, effects: &mut Effects) {
        each!(self, shard => shard.gone(peer, effects));
    }
    fn turn_end(&mut self, budget: Budget, effects: &mut Effects) {
        each!(self, shard => shard.turn_end(budget, effects));
    }
    fn cancel(&mut self, token: Token) {
        each!(self, shard => shard.cancel(token));
    }
    fn close(&mut self, effects: &mut Effects) {
        each!(self, shard => shard.close(effects));
    }
    fn is_closed(&self) -> bool {
        each!(self, shard => shard.is_closed())
    }
    fn statistics(&self, out: &mut Vec<Statistic>) {
        each!(self, shard => shard.statistics(out));
    }
}
