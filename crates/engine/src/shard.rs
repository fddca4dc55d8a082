//! [`Shard`]: one engine's hold on one partition of the keys. [`Opener`]: how it comes to life.

use std::any::Any;

use stratakv_base::slots::SlotKey;

use crate::effects::{Effects, Io, IoOutcome};
use crate::error::Error;
use crate::operation::Operation;

/// Names an operation in progress. Made by the driver; the engine gives it back with exactly one
/// terminal reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// Slot in the driver's table.
    pub slot: u32,
    /// Distinguishes successive users of a slot.
    pub generation: u32,
}

impl SlotKey for Token {
    fn new(slot: u32, generation: u32) -> Token {
        Token { slot, generation }
    }

    fn parts(self) -> (u32, u32) {
        (self.slot, self.generation)
    }
}

/// A shard's number in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub u32);

/// What an engine can do; what it cannot answers [`Error::Unsupported`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Ordered scans.
    pub ordered: bool,
    /// Scans and reads on a snapshot.
    pub snapshot: bool,
    /// Acknowledges at durable levels.
    pub durable: bool,
    /// May drop records to make room.
    pub evicting: bool,
    /// A put without a condition does not look whether its key is there, which would cost a read:
    /// it is answered as if it were not.
    pub blind: bool,
}

/// A message between shards of one store (batches across shards, snapshot cuts). Opaque to the
/// driver: what it is, only engines of its kind know. It never leaves the process.
pub struct Message(pub Box<dyn Any + Send>);

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Message")
    }
}

/// A named counter or gauge, declared where it is counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistic {
    /// Name with unit last, e.g. `index_bytes`.
    pub name: &'static str,
    /// Its value; values of equal names are added over shards.
    pub value: u64,
}

/// One partition of the keys. See the crate's documentation for the rules.
pub trait Shard: Send {
    /// What the engine can do.
    fn capabilities(&self) -> Capabilities;

    /// Takes an operation, or gives it back if there is no room. May reply at once.
    fn accept(&mut self, token: Token, operation: Operation, effects: &mut Effects) -> Result<(), Operation>;

    /// Learns how an I/O request ended.
    fn complete(&mut self, io: Io, outcome: IoOutcome, effects: &mut Effects);

    /// Takes a message from another shard of the store.
    fn message(&mut self, from: ShardId, message: Message, effects: &mut Effects);

    /// Another shard of the store is broken: it answers no message any more. Told once, and again
    /// for each message that is sent to it later: whatever waits for its answer ends here, so this
    /// may be called at any time, any number of times.
    fn gone(&mut self, shard: ShardId, effects: &mut Effects) {
        // No results: names of arguments that this default does not use.
        let _ = (shard, effects);
    }

    /// Ends a tick: seal batches, free, expire, checkpoint. Called once per tick, after completions
    /// and operations.
    fn tick_end(&mut self, effects: &mut Effects);

    /// The callers of these operations have left. Gets and pages that are not done yet are given
    /// up: what has not been handed to the device for them is not read any more, and they are
    /// answered with [`Error::Cancelled`], now or once what is in flight has come back. Writes are
    /// carried out. Costs one pass over what waits, however many have left.
    fn cancel(&mut self, has_left: &dyn Fn(Token) -> bool, effects: &mut Effects);

    /// Begins an orderly end: finish what was accepted, make it durable, mark the volume clean.
    /// Call ticks until [`Shard::is_closed`]. New operations are given back.
    fn close(&mut self, effects: &mut Effects);

    /// Whether [`Shard::close`] has been carried out.
    fn is_closed(&self) -> bool;

    /// Why the shard takes no more writes until the store is opened again: its medium failed under
    /// a write, a flush or the end of the shard. Once there is a failure it stays, over
    /// [`Shard::close`] too.
    fn failure(&self) -> Option<Error> {
        None
    }

    /// Appends counters and gauges.
    fn statistics(&self, out: &mut Vec<Statistic>);
}

/// How far a long task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// Creates or recovers a shard, as a state machine like the shard itself.
pub trait Opener: Send {
    /// What comes out.
    type Shard: Shard;

    /// Queues the first requests.
    fn start(&mut self, effects: &mut Effects);

    /// Learns how a request ended; queues more.
    fn complete(&mut self, io: Io, outcome: IoOutcome, effects: &mut Effects);

    /// How far it is.
    fn progress(&self) -> Progress;

    /// Whether [`Opener::finish`] can be called: nothing is in flight and nothing more will be
    /// asked.
    fn is_finished(&self) -> bool;

    /// The shard, or why the volume cannot be opened.
    ///
    /// # Errors
    /// I/O faults, damaged or newer formats, another store's volume.
    fn finish(self) -> Result<Self::Shard, Error>
    where
        Self: Sized;
}
