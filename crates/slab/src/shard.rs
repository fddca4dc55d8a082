//! [`IndexedShard`]: the state of one shard, and its face to the driver.

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::HashMap;
use stratakv_base::key::KeyError;
use stratakv_base::limits::{KEY_BYTES_MAX, PAGE_BYTES, VALUE_BYTES_MAX};
use stratakv_base::{CollectionId, Corruption, Expiry, Key, Level, Mono, fault_point};
use stratakv_device::block::CHUNK_BYTES;
use stratakv_device::{Block, Class, IoFault};
use stratakv_engine::{
    Capabilities, Capability, Change, ChangeKind, Effects, Error, Io, IoOutcome, Message, Operation, Reply, Shard,
    ShardEvent, ShardId, Statistic, Token,
};
use stratakv_index::Tree;

use crate::backup::Backup;
use crate::batch::Batches;
use crate::blob_read::BlobReads;
use crate::blob_write::BlobWrites;
use crate::config::{RecoveryReport, SlabConfig};
use crate::group::Groups;
use crate::grow::Growth;
use crate::placement::Placement;
use crate::range::Ranges;
use crate::scan::Scans;
use crate::space::{Space, offset};
use crate::superblock::Superblock;
use crate::write::{Kind, Origin, PendingWrites, Work};
use stratakv_engine::IoTable;

/// What a request in flight is for.
#[derive(Debug)]
pub(crate) enum IoPurpose<P> {
    /// A slice of a blob that is read.
    BlobSlice { read: u64, slice: usize },
    /// Slices of a blob's value, ahead of its group.
    BlobBody { blob: u64 },
    /// A write of a commit group.
    Group { number: u64 },
    /// A flush that covers the groups up to this one.
    Flush { covers: u64 },
    /// A step of growth.
    Grow,
    /// A step of closing.
    Close,
    /// Of the placement.
    Placement(P),
}

/// An answer to be given once a group is durable.
#[derive(Debug)]
pub(crate) struct PendingAck {
    origin: Origin,
    reply: Reply,
    pub(crate) group: u64,
}

/// Counters, see [`Shard::statistics`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) cache_hits: u64,
    pub(crate) cache_misses: u64,
    pub(crate) groups: u64,
    pub(crate) flushes: u64,
    pub(crate) page_reads: u64,
    pub(crate) page_writes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
    pub(crate) corrupt_records: u64,
    pub(crate) full_refusals: u64,
    pub(crate) expired_records: u64,
}

/// How far closing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    Open,
    /// Finishing what was accepted.
    Draining,
    Flushing,
    /// Writing superblock 0 or 1.
    Superblock(u64),
    Closed,
}

/// One shard of a store whose index lies in memory: KVell's design (SOSP 2019, section 4), with
/// small records where placement `P` lays them.
#[derive(Debug)]
pub struct IndexedShard<P: Placement> {
    pub(crate) config: SlabConfig,
    pub(crate) report: RecoveryReport,
    pub(crate) superblock: Superblock,
    /// The durable state.
    pub(crate) index: DebugTree,
    /// Where small records lie.
    pub(crate) placement: P,
    pub(crate) space: Space,
    /// The last version or sequence given out.
    pub(crate) counter: u64,
    pub(crate) io: IoTable<IoPurpose<P::IoPurpose>>,
    pub(crate) pending: HashMap<Key, PendingWrites<P>>,
    pub(crate) groups: Groups<P::Member>,
    pub(crate) blob_reads: BlobReads,
    pub(crate) blob_writes: BlobWrites<P>,
    pub(crate) scans: Scans<P>,
    pub(crate) ranges: Ranges,
    pub(crate) batches: Batches,
    pub(crate) backup: Option<Backup>,
    pub(crate) growth: Growth,
    /// Keys whose write waits for space, or for a block.
    pub(crate) space_waiters: Vec<Key>,
    pub(crate) block_waiters: VecDeque<Key>,
    pub(crate) blob_pages: u64,
    /// [`tag`](crate::record::tag) of the version of each blob, by its first page: an older
    /// value of the same key at the same place is noticed.
    pub(crate) blob_tags: HashMap<u32, u32>,
    /// Index entries with an expiry, and where the sweep for expired ones goes on.
    pub(crate) expiring: u64,
    pub(crate) sweep_from: Option<Key>,
    pub(crate) sweep_at: Mono,
    /// In the order of their groups: of those that are shown the number only grows.
    pub(crate) pending_acks: VecDeque<PendingAck>,
    /// A flush is in flight, of a group, growth or a checkpoint.
    pub(crate) is_flushing: bool,
    pub(crate) poisoned: Option<IoFault>,
    pub(crate) closing: Closing,
    pub(crate) counters: Counters,
    pub(crate) corruptions: Vec<Corruption>,
    /// For the operator, at the end of the tick.
    pub(crate) events: Vec<ShardEvent>,
    /// A write was refused for want of space, and none has found some since.
    pub(crate) is_full: bool,
    pub(crate) zeroes: Option<Arc<Block>>,
    pub(crate) ticks: u64,
    pub(crate) next_budget_at: u64,
}

/// [`Tree`] with a short `Debug`.
pub(crate) struct DebugTree(pub(crate) Tree);

impl std::fmt::Debug for DebugTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tree({} keys)", self.0.len())
    }
}
impl<P: Placement> IndexedShard<P> {
    /// What recovery found when the shard was opened.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.report
    }

    /// A new version or sequence: larger than any given out before, in this and earlier openings.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// A block, making room in the cache if need be.
    pub(crate) fn take_block(&mut self, class: Class, effects: &Effects) -> Option<Block> {
        if let Some(block) = effects.block(class) {
            return Some(block);
        }
        for _ in 0..8 {
            if class == Class::Slice || !self.placement.evict_page() {
                break;
            }
            if let Some(block) = effects.block(class) {
                return Some(block);
            }
        }
        // The next tick looks whether one class took everything.
        self.next_budget_at = 0;
        None
    }

    pub(crate) fn corruption(&self, page: u32, what: &'static str, expected: String, found: &str) -> Corruption {
        let place = stratakv_base::Place { shard: self.config.shard, offset_bytes: offset(page) };
        Corruption { place, what, expected, found: found.into() }
    }

    /// Counts and keeps (the first hundred) damage found while running.
    pub(crate) fn note_corruption(&mut self, corruption: &Corruption) {
        self.counters.corrupt_records += 1;
        if self.corruptions.len() < 100 && !self.corruptions.contains(corruption) {
            tracing::warn!(%corruption, "damage on the medium");
            self.corruptions.push(corruption.clone());
            self.events.push(ShardEvent::Damaged(corruption.clone()));
        }
    }

    /// Bytes the index and the tables take.
    pub(crate) fn index_bytes(&self) -> u64 {
        (self.index.0.footprint_bytes()
            + self.placement.footprint_bytes()
            + self.blob_tags.capacity() * 9
            + self.space.footprint_bytes()) as u64
    }

    /// Bytes the index may take: what the cap leaves beside a minimal cache.
    pub(crate) fn index_limit_bytes(&self) -> u64 {
        self.config.memory_bytes - (4 << 20).min(self.config.memory_bytes / 2)
    }

    /// Gives the cache what the index leaves of the cap, and sees to it that a block of each class
    /// can be had: a pool filled with blocks of one class would starve the other.
    fn balance_memory(&mut self, effects: &Effects) {
        let pool = effects.pool();
        let used = self.index_bytes() + self.placement.working_bytes() as u64;
        // What the allocator cannot use between blocks, and answers under way: 3 to 8 % of a
        // process that was measured.
        let cap = self.config.memory_bytes - self.config.memory_bytes / 24;
        let left = (cap.saturating_sub(used) as usize).max(2 * CHUNK_BYTES);
        let limit = left - CHUNK_BYTES;
        pool.set_limit_bytes(limit);
        self.placement.set_limit_bytes(&self.config, limit);
        for _ in 0..4 {
            if pool.held_bytes() <= left {
                break;
            }
            let Some(chunk) = pool.retire_chunk() else { break };
            self.placement.drop_chunk(chunk);
        }
        // A few cached pages may be lent to replies or lie in a chunk that is being given back:
        // they help nobody.
        let starved = [(Class::Slice, true), (Class::Page, self.placement.lacks_pages())];
        for (class, _) in starved.into_iter().filter(|(_, starved)| *starved) {
            if effects.block(class).is_none() && pool.held_bytes() <= left + 2 * CHUNK_BYTES {
                pool.set_limit_bytes(pool.held_bytes() + CHUNK_BYTES);
                drop(effects.block(class));
                pool.set_limit_bytes(limit);
            }
        }
    }

    fn accept_write(&mut self, token: Token, mut changes: Vec<Change>, level: Level, effects: &mut Effects) {
        if changes.len() != 1 {
            return self.accept_batch(token, changes, level, effects);
        }
        let Some(Change { key, expect, kind }) = changes.pop() else { return };
        let kind = match kind {
            ChangeKind::Put { value, flags, expiry } => Kind::Put { value, flags, expiry },
            ChangeKind::Delete => Kind::Delete,
            ChangeKind::Check => return self.accept_batch(token, vec![Change { key, expect, kind }], level, effects),
        };
        let work = Work::new(Origin::Client(token), key, expect, kind, level);
        self.accept_work(token, work, effects);
    }

    fn accept_work(&mut self, token: Token, work: Work, effects: &mut Effects) {
        if work.level == Level::Memory {
            return effects.reply(token, Reply::Failed(Error::Unsupported(Capability::Level)));
        }
        if let Kind::Put { value, .. } = &work.kind
            && value.len() > VALUE_BYTES_MAX
        {
            let error = Error::ValueTooLarge { len_bytes: value.len() as u64, max_bytes: VALUE_BYTES_MAX as u64 };
            return effects.reply(token, Reply::Failed(error));
        }
        if self.config.read_only {
            let error =
                Error::WrongVolume("the store is open for reading only: open it for writing to change it".into());
            return effects.reply(token, Reply::Failed(error));
        }
        self.submit(work, effects);
    }

    /// Whether nothing is under way.
    fn is_idle(&self) -> bool {
        self.pending.is_empty()
            && self.placement.is_idle()
            && self.groups.is_idle()
            && self.blob_reads.is_idle()
            && self.blob_writes.is_idle()
            && self.scans.is_idle()
            && self.ranges.is_idle()
            && self.pending_acks.is_empty()
            && self.batches.is_idle()
            && self.io.is_empty()
    }

    fn close_step(&mut self, effects: &mut Effects) {
        if self.closing != Closing::Draining || !self.is_idle() {
            return;
        }
        if self.config.read_only || self.poisoned.is_some() {
            self.closing = Closing::Closed;
            return;
        }
        if P::delays_close(self, effects) {
            return;
        }
        self.closing = Closing::Flushing;
        let io = self.io.start(IoPurpose::Close);
        effects.flush(io);
    }

    fn close_done(&mut self, outcome: &IoOutcome, effects: &mut Effects) {
        if let IoOutcome::Flush(Err(fault)) | IoOutcome::Write(Err(fault)) = outcome {
            // Whoever closes the store is told: what was acknowledged below `power_loss` may be
            // lost.
            self.poison(*fault, "the last flush or superblock failed", effects);
            self.closing = Closing::Closed;
            return;
        }
        let next = match self.closing {
            Closing::Flushing => {
                self.superblock.generation += 1;
                self.superblock.clean = true;
                self.superblock.durable = self.counter;
                self.superblock.digest = P::digest(self);
                Closing::Superblock(0)
            }
            Closing::Superblock(0) => Closing::Superblock(1),
            _ => Closing::Closed,
        };
        self.closing = next;
        if let Closing::Superblock(slot) = next {
            let Some(mut block) = self.take_block(Class::Page, effects) else {
                // No memory for a page at the very end: the volume stays marked as in use, which
                // recovery handles.
                self.closing = Closing::Closed;
                return;
            };
            self.superblock.encode(&self.config.uuid, &mut block);
            let io = self.io.start(IoPurpose::Close);
            let part = stratakv_device::BlockPart::whole(Arc::new(block));
            effects.write(io, slot * PAGE_BYTES as u64, vec![part], true);
        }
    }

    /// Gives an answer that rests on what is shown now, without a change of its own: at power loss
    /// once all of that is durable.
    pub(crate) fn answer_when_durable(&mut self, origin: Origin, level: Level, reply: Reply, effects: &mut Effects) {
        fault_point!("delete_of_nothing_at_once", return self.answer(origin, reply, effects));
        let group = self.groups.applied();
        if level < Level::PowerLoss || group <= self.groups.durable() {
            return self.answer(origin, reply, effects);
        }
        self.pending_acks.push_back(PendingAck { origin, reply, group });
    }

    /// Sends the pending acknowledgements whose group is durable.
    pub(crate) fn send_pending_acks(&mut self, effects: &mut Effects) {
        let (durable, poisoned) = (self.groups.durable(), self.poisoned);
        let asked_for = self.pending_acks.back().map(|newest| newest.group);
        while let Some(pending_ack) = self.pending_acks.pop_front_if(|next| poisoned.is_some() || next.group <= durable)
        {
            let reply = poisoned.map_or(pending_ack.reply, |fault| Reply::Failed(Error::Poisoned(fault)));
            self.answer(pending_ack.origin, reply, effects);
        }
        // The last delete of a range brings the answer to the range, for which no flush was asked.
        let mut is_asked_for = self.pending_acks.back().map(|newest| newest.group) <= asked_for;
        fault_point!("library_flush_for_a_range_is_not_asked_for", is_asked_for = true);
        if !is_asked_for {
            effects.more();
        }
    }

    /// Writes that waited for a block try again, until one still gets none.
    fn wake_block_waiters(&mut self, effects: &mut Effects) {
        for _ in 0..self.block_waiters.len() {
            let Some(key) = self.block_waiters.pop_front() else { return };
            self.wake(&key, effects);
            if self.block_waiters.back() == Some(&key) {
                return;
            }
        }
    }
}

impl<P: Placement> Shard for IndexedShard<P> {
    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: true, snapshot: false, durable: true, evicting: false, blind: false }
    }

    fn accept(&mut self, token: Token, operation: Operation, effects: &mut Effects) -> Result<(), Operation> {
        if self.closing != Closing::Open {
            return Err(operation);
        }
        if let Some(error) = key_error(&operation) {
            effects.reply(token, Reply::Failed(error.into()));
            return Ok(());
        }
        let Some((token, operation)) = self.defer_until_decided(token, operation, effects) else { return Ok(()) };
        match operation {
            Operation::Get { key, part } => self.get(token, key, part, effects),
            Operation::Write { changes, level } => self.accept_write(token, changes, level, effects),
            Operation::Update { key, update, level } => {
                let expect = stratakv_engine::Expect::Present;
                let work = Work::new(Origin::Client(token), key, expect, Kind::Update(update), level);
                self.accept_work(token, work, effects);
            }
            Operation::Load { .. } => effects.reply(token, Reply::Failed(Error::Unsupported(Capability::Load))),
            Operation::Page(request) => self.scan(token, *request, effects),
            Operation::List(_) => effects.reply(token, Reply::Failed(Error::Unsupported(Capability::List))),
            // It finds what batches handed over before it leave.
            Operation::DeleteRange { range, level } if self.batches.change_some_of(&range) => {
                return Err(Operation::DeleteRange { range, level });
            }
            Operation::DeleteRange { range, level } => match self.batches.stuck_within(&range).cloned() {
                Some(error) => effects.reply(token, Reply::Failed(error)),
                None => self.delete_range(token, *range, level, effects),
            },
            Operation::Snapshot(_) => effects.reply(token, Reply::Failed(Error::Unsupported(Capability::Snapshot))),
            Operation::Backup { cursor: 0, .. } => self.begin_backup(token, effects),
            Operation::Backup { cursor, .. } => self.backup_piece(token, cursor, effects),
            Operation::Sync => {
                let done = Reply::Done { version: 0, existed: false };
                match self.poisoned {
                    Some(fault) => effects.reply(token, Reply::Failed(Error::Poisoned(fault))),
                    None => self.answer_when_durable(Origin::Client(token), Level::PowerLoss, done, effects),
                }
            }
        }
        Ok(())
    }

    fn complete(&mut self, io: Io, outcome: IoOutcome, effects: &mut Effects) {
        let Some(purpose) = self.io.finish(io) else { return };
        self.is_flushing &= !matches!(outcome, IoOutcome::Flush(_));
        match (purpose, outcome) {
            (IoPurpose::BlobSlice { read, slice }, IoOutcome::Read(block, result)) => {
                self.blob_slice_read(read, slice, block, result, effects);
            }
            (IoPurpose::BlobBody { blob }, IoOutcome::Write(result)) => self.blob_body_written(blob, result, effects),
            (IoPurpose::Group { number }, IoOutcome::Write(result)) => self.group_written(number, result, effects),
            (IoPurpose::Flush { covers }, IoOutcome::Flush(result)) => self.flushed(covers, result, effects),
            (IoPurpose::Placement(purpose), outcome) => P::complete(self, purpose, outcome, effects),
            (IoPurpose::Grow, IoOutcome::Write(result) | IoOutcome::Flush(result)) => self.grow_done(result, effects),
            (IoPurpose::Close, outcome) => self.close_done(&outcome, effects),
            (purpose, outcome) => {
                debug_assert!(false, "{outcome:?} for {purpose:?}");
            }
        }
    }

    fn message(&mut self, from: ShardId, message: Message, _: &mut Effects) {
        self.batch_message(from, message);
    }

    fn gone(&mut self, shard: ShardId, effects: &mut Effects) {
        self.shard_failed(shard, effects);
    }

    fn tick_end(&mut self, effects: &mut Effects) {
        self.ticks += 1;
        self.step_batches(effects);
        if self.closing == Closing::Closed {
            return;
        }
        if self.ticks >= self.next_budget_at {
            self.next_budget_at = self.ticks + 64;
            self.balance_memory(effects);
        }
        self.wake_block_waiters(effects);
        self.pump_scans(effects);
        self.step_backup(effects);
        P::pump_reads(self, effects);
        self.pump_blob_reads(effects);
        if !self.config.read_only && self.poisoned.is_none() {
            self.sweep_expired(effects);
            self.pump_ranges(effects);
            P::pump_writes(self, effects);
        }
        self.send_pending_acks(effects);
        if self.batches.has_work() {
            effects.more();
        }
        self.await_late_space(effects);
        if self.scans.is_awake() {
            // Large values that were all in memory came after scans had their turn, and no
            // completion brings the next one.
            effects.more();
        }
        effects.events.append(&mut self.events);
        self.close_step(effects);
        let starved = P::is_starved(self)
            || !self.block_waiters.is_empty()
            || self.io.is_empty() && !(self.blob_reads.is_idle() && self.blob_writes.is_idle());
        if starved && effects.requests.is_empty() {
            self.give_back_blocks();
            // Every block is lent out, to replies on their way: ask again soon.
            effects.wake_at(Mono(effects.now().mono.0 + 1_000_000));
        }
    }

    fn cancel(&mut self, has_left: &dyn Fn(Token) -> bool, effects: &mut Effects) {
        let left = self.placement.give_up(has_left);
        left.into_iter().for_each(|token| effects.reply(token, Reply::Failed(Error::Cancelled)));
        self.give_up_blob_reads(has_left, effects);
    }

    fn close(&mut self, effects: &mut Effects) {
        if self.closing == Closing::Open {
            self.closing = Closing::Draining;
            self.close_batches(effects);
            self.backup_failed(None, Error::Closed, effects);
        }
        effects.more();
    }

    fn is_closed(&self) -> bool {
        self.closing == Closing::Closed
    }

    fn failure(&self) -> Option<Error> {
        self.poisoned.map(Error::Poisoned)
    }

    fn statistics(&self, out: &mut Vec<Statistic>) {
        let counters = &self.counters;
        let total = u64::from(self.space.total());
        let mut add = |name, value| out.push(Statistic { name, value });
        add("records", self.index.0.len() as u64);
        add("index_bytes", self.index_bytes());
        add("cache_bytes", self.placement.cached_bytes() as u64);
        add("cache_hits", counters.cache_hits);
        add("cache_misses", counters.cache_misses);
        add("memory_limit_bytes", self.config.memory_bytes);
        add("damaged_places", self.corruptions.len() as u64);
        add("full", u64::from(self.is_full));
        add("pages_used", self.placement.pages() as u64);
        add("pages_free", u64::from(self.space.free_pages()));
        add("pages_deferred", u64::from(self.space.deferred_pages()));
        add("blob_pages", self.blob_pages);
        add("usable_bytes", total * PAGE_BYTES as u64);
        add("large_read_steps", self.blob_reads.steps());
        add("large_write_steps", self.blob_writes.steps());
        add("groups", counters.groups);
        add("flushes", counters.flushes);
        add("page_reads", counters.page_reads);
        add("page_writes", counters.page_writes);
        add("read_bytes", counters.read_bytes);
        add("write_bytes", counters.write_bytes);
        add("corrupt_records", counters.corrupt_records);
        add("full_refusals", counters.full_refusals);
        add("expired_records", counters.expired_records);
        add("batches", self.batches.done());
        add("batches_under_way", self.batches.under_way());
        add("recovery_bytes_read", self.report.read_bytes);
        add("recovered_by_checkpoint", u64::from(self.report.by_checkpoint));
        add("checkpoints_refused", self.report.checkpoints_refused);
        add("waiting", (self.pending.len() + self.placement.waiting()) as u64);
        self.placement.statistics(out);
    }
}

/// Whether an operation names a key that cannot be one: bounds of scans are not checked when they
/// are made.
fn key_error(operation: &Operation) -> Option<KeyError> {
    let check = |key: &Key| match key.user().len() {
        0 => Some(KeyError::Empty),
        len if len > KEY_BYTES_MAX => Some(KeyError::TooLong(len)),
        _ if key.collection() == CollectionId::ENGINE => Some(KeyError::Reserved),
        _ => None,
    };
    match operation {
        Operation::Get { key, .. } | Operation::Update { key, .. } => check(key),
        Operation::Write { changes, .. } => changes.iter().find_map(|change| check(&change.key)),
        _ => None,
    }
}

/// Whether a record with this expiry is gone.
pub(crate) fn is_expired(expiry: u64, effects: &Effects) -> bool {
    Expiry(expiry).is_past(effects.now().wall)
}
