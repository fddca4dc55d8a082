//! [`Effects`]: everything a shard wants done, collected during a tick.

use std::sync::Arc;

use stratakv_base::slots::SlotKey;
use stratakv_base::{Mono, Now};
use stratakv_device::{Block, BlockPart, Class, DiskOutcome, DiskRequest, Pool};

use crate::event::ShardEvent;
use crate::operation::{Operation, Reply};
use crate::shard::{Message, ShardId, Token};
use crate::stages::{Stage, StageSampler, StageTimes};

/// Names an I/O request in flight. Made by the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Io {
    /// Slot in the engine's table.
    pub slot: u32,
    /// Distinguishes successive users of a slot.
    pub generation: u32,
}

impl Io {
    /// As one number, for a driver's tag.
    pub fn to_bits(self) -> u64 {
        u64::from(self.slot) << 32 | u64::from(self.generation)
    }
    /// Back from [`Io::to_bits`].
    pub fn from_bits(bits: u64) -> Io {
        Io { slot: (bits >> 32) as u32, generation: bits as u32 }
    }
}

impl SlotKey for Io {
    fn new(slot: u32, generation: u32) -> Io {
        Io { slot, generation }
    }

    fn parts(self) -> (u32, u32) {
        (self.slot, self.generation)
    }
}

/// A request to the shard's volume.
pub type IoRequest = DiskRequest;
/// How it ended; gives the block back.
pub type IoOutcome = DiskOutcome;

/// What a shard wants done. Filled during a tick, emptied by the driver after it.
#[derive(Debug)]
pub struct Effects {
    now: Now,
    pool: Pool,
    /// Requests to submit, in order.
    pub requests: Vec<(Io, IoRequest)>,
    /// Of the tick's requests, those that no operation waits for; see [`Effects::background`].
    pub background: Vec<Io>,
    /// Replies to deliver, in order.
    pub replies: Vec<(Token, Reply)>,
    /// Messages to other shards, in order.
    pub messages: Vec<(ShardId, Message)>,
    /// What an operator wants to hear of, in order.
    pub events: Vec<ShardEvent>,
    /// Somebody listens to [`ShardEvent::Evicted`]: the driver says so before a tick.
    pub tells_evictions: bool,
    /// The shard's cap on memory has become this, in bytes: the driver says so before a tick, and
    /// an engine that evicts follows. `None`: it is as it was opened.
    pub memory_bytes: Option<u64>,
    /// Earliest instant at which the shard wants a tick even if nothing happens.
    pub wake_at: Option<Mono>,
    /// The shard has more to do at once and wants another tick after the waiting ones.
    pub more: bool,
    /// Where the time of some operations goes.
    stages: StageSampler,
}

impl Effects {
    /// Empty effects over a pool of blocks.
    pub fn new(pool: Pool) -> Effects {
        Effects {
            now: Now::default(),
            pool,
            requests: Vec::new(),
            background: Vec::new(),
            replies: Vec::new(),
            messages: Vec::new(),
            events: Vec::new(),
            tells_evictions: false,
            memory_bytes: None,
            wake_at: None,
            more: false,
            stages: StageSampler::default(),
        }
    }

    /// Starts a tick: the driver tells the time.
    pub fn begin(&mut self, now: Now) {
        self.now = now;
        self.wake_at = None;
        self.more = false;
        self.background.clear();
    }

    /// The tick's time.
    pub fn now(&self) -> Now {
        self.now
    }

    /// The pool behind [`Effects::block`].
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A free block, if the pool has one; else evict something and ask again.
    pub fn block(&self, class: Class) -> Option<Block> {
        self.pool.take(class)
    }

    /// Reads `len` bytes at `offset` into `block`.
    pub fn read(&mut self, io: Io, offset: u64, block: Block, len: u32) {
        self.requests.push((io, DiskRequest::Read { offset, block, len }));
    }

    /// Writes `parts` at `offset`; `durable` asks for write-through.
    pub fn write(&mut self, io: Io, offset: u64, parts: Vec<BlockPart>, durable: bool) {
        self.requests.push((io, DiskRequest::Write { offset, parts, durable }));
    }

    /// No operation in progress waits for this request: a caller need not see it through, another
    /// thread may.
    pub fn background(&mut self, io: Io) {
        self.background.push(io);
    }

    /// Sets space aside for `len` bytes at `offset`.
    pub fn allocate(&mut self, io: Io, offset: u64, len: u64) {
        self.requests.push((io, DiskRequest::Allocate { offset, len }));
    }

    /// Gives `len` bytes at `offset` back to the file system, where it takes them.
    pub fn discard(&mut self, io: Io, offset: u64, len: u64) {
        self.requests.push((io, DiskRequest::Discard { offset, len }));
    }

    /// Makes completed writes durable.
    pub fn flush(&mut self, io: Io) {
        self.requests.push((io, DiskRequest::Flush));
    }

    /// The driver hands an operation to the shard: its stages are measured, if it is one of those.
    #[inline]
    pub fn measure(&mut self, token: Token, operation: &Operation) {
        self.stages.begin(token, operation, self.now.mono);
    }

    /// The shard has not taken it.
    pub fn forget(&mut self, token: Token) {
        self.stages.forget(token);
    }

    /// What an operation waits for from now on. Costs a few instructions.
    #[inline]
    pub fn enter(&mut self, token: Token, stage: Stage) {
        self.stages.enter(token, stage, self.now.mono);
    }

    /// Whether any operation in progress is measured: if none is, nobody need look for one among
    /// many.
    #[inline]
    pub fn is_measuring(&self) -> bool {
        self.stages.is_measuring()
    }

    /// Figures of all stages, for reading beside the shard.
    pub fn stage_times(&self) -> &Arc<StageTimes> {
        self.stages.times()
    }

    /// Answers an operation.
    pub fn reply(&mut self, token: Token, reply: Reply) {
        self.stages.answered(token, self.now.mono);
        self.replies.push((token, reply));
    }

    /// Sends to another shard of the store.
    pub fn send(&mut self, to: ShardId, message: Message) {
        self.messages.push((to, message));
    }

    /// Asks for a tick at `at` at the latest.
    pub fn wake_at(&mut self, at: Mono) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Asks for another tick soon.
    pub fn more(&mut self) {
        self.more = true;
    }
}
