//! [`IndexedShard`]: the state of one shard, and its face to the driver.

use std::sync::Arc;

use stratakv_base::key::KeyError;
use stratakv_base::limits::{KEY_BYTES_MAX, PAGE_BYTES, VALUE_BYTES_MAX};
use stratakv_base::{CollectionId, Corruption, Expiry, Key, Level, Mono};
use stratakv_device::Class;
use stratakv_engine::{
    Capabilities, Capability, Change, ChangeKind, Effects, Error, Io, IoOutcome, Message, Operation, Reply, Shard,
    ShardId, Statistic, Token,
};

use crate::backup::Backup;
use crate::batch::Batches;
use crate::blobs::Blobs;
use crate::config::{RecoveryReport, SlabConfig};
use crate::group::Groups;
use crate::grow::Volume;
use crate::health::{Closing, Health, read_only};
use crate::index::Index;
use crate::keys::KeyQueues;
use crate::memory::Memory;
use crate::placement::Placement;
use crate::range::Ranges;
use crate::requests::{IoPurpose, Requests};
use crate::scan::Scans;
use crate::space::{Space, offset};
use crate::write::{Kind, Origin, Work};

/// One shard of a store whose index lies in memory: KVell's design (SOSP 2019, section 4), with
/// small records where placement `P` lays them.
#[derive(Debug)]
pub struct IndexedShard<P: Placement> {
    pub(crate) config: SlabConfig,
    pub(crate) volume: Volume,
    pub(crate) space: Space,
    pub(crate) index: Index,
    /// Where small records lie.
    pub(crate) placement: P,
    pub(crate) blobs: Blobs<P>,
    pub(crate) keys: KeyQueues<P>,
    pub(crate) groups: Groups<P::Member>,
    pub(crate) scans: Scans<P>,
    pub(crate) ranges: Ranges,
    pub(crate) batches: Batches,
    pub(crate) backup: Option<Backup>,
    pub(crate) io: Requests<P::IoPurpose>,
    pub(crate) memory: Memory,
    pub(crate) health: Health,
}

impl<P: Placement> IndexedShard<P> {
    /// What recovery found when the shard was opened.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.health.report
    }

    /// A new version or sequence: larger than any given out before, in this and earlier openings.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.groups.next_number()
    }

    pub(crate) fn corruption(&self, page: u32, what: &'static str, expected: String, found: &str) -> Corruption {
        let place = stratakv_base::Place { shard: self.config.shard, offset_bytes: offset(page) };
        Corruption { place, what, expected, found: found.into() }
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
            return effects.reply(token, Reply::Failed(read_only()));
        }
        self.submit(work, effects);
    }

    /// Whether nothing is under way.
    fn is_idle(&self) -> bool {
        self.keys.is_empty()
            && self.placement.is_idle()
            && self.groups.is_idle()
            && !self.groups.has_acks()
            && self.blobs.is_idle()
            && self.scans.is_idle()
            && self.ranges.is_idle()
            && self.batches.is_idle()
            && self.io.is_empty()
    }

    fn close_step(&mut self, effects: &mut Effects) {
        if self.health.closing != Closing::Draining || !self.is_idle() {
            return;
        }
        if self.config.read_only || self.health.poisoned.is_some() {
            self.health.closing = Closing::Closed;
            return;
        }
        if P::delays_close(self, effects) {
            return;
        }
        self.health.closing = Closing::Flushing;
        let io = self.io.start(IoPurpose::Close);
        effects.flush(io);
    }

    fn close_done(&mut self, outcome: &IoOutcome, effects: &mut Effects) {
        if let IoOutcome::Flush(Err(fault)) | IoOutcome::Write(Err(fault)) = outcome {
            // Whoever closes the store is told: what was acknowledged below `power_loss` may be
            // lost.
            self.poison(*fault, "the last flush or superblock failed", effects);
            self.health.closing = Closing::Closed;
            return;
        }
        let next = match self.health.closing {
            Closing::Flushing => {
                self.volume.superblock.generation += 1;
                self.volume.superblock.clean = true;
                self.volume.superblock.durable = self.groups.counter;
                self.volume.superblock.digest = P::digest(self);
                self.volume.superblock.discarded_from = self.space.discarded_from();
                Closing::Superblock(0)
            }
            Closing::Superblock(0) => Closing::Superblock(1),
            _ => Closing::Closed,
        };
        self.health.closing = next;
        if let Closing::Superblock(slot) = next {
            let Some(mut block) = self.take_block(Class::Page, effects) else {
                // No memory for a page at the very end: the volume stays marked as in use, which
                // recovery handles.
                self.health.closing = Closing::Closed;
                return;
            };
            self.volume.superblock.encode(&self.config.uuid, &mut block);
            let io = self.io.start(IoPurpose::Close);
            let part = stratakv_device::BlockPart::whole(Arc::new(block));
            effects.write(io, slot * PAGE_BYTES as u64, vec![part], true);
        }
    }
}

impl<P: Placement> Shard for IndexedShard<P> {
    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: true, snapshot: false, durable: true, evicting: false, blind: false }
    }

    fn accept(&mut self, token: Token, operation: Operation, effects: &mut Effects) -> Result<(), Operation> {
        if !self.health.is_open() {
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
                // An edit may make a record.
                let expect = match update {
                    stratakv_engine::Update::Edit(_) => stratakv_engine::Expect::Any,
                    _ => stratakv_engine::Expect::Present,
                };
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
                match self.health.poisoned {
                    Some(fault) => effects.reply(token, Reply::Failed(Error::Poisoned(fault))),
                    None => self.answer_when_durable(Origin::Client(token), Level::PowerLoss, done, effects),
                }
            }
        }
        Ok(())
    }

    fn complete(&mut self, io: Io, outcome: IoOutcome, effects: &mut Effects) {
        let Some(purpose) = self.io.finish(io, &outcome) else { return };
        match (purpose, outcome) {
            (IoPurpose::BlobSlice { read, slice }, IoOutcome::Read(block, result)) => {
                self.blob_slice_read(read, slice, block, result, effects);
            }
            (IoPurpose::BlobBody { blob }, IoOutcome::Write(result)) => self.blob_body_written(blob, result, effects),
            (IoPurpose::Group { number }, IoOutcome::Write(result)) => self.group_written(number, result, effects),
            (IoPurpose::Flush { covers }, IoOutcome::Flush(result)) => self.flushed(covers, result, effects),
            (IoPurpose::Placement(purpose), outcome) => P::complete(self, purpose, outcome, effects),
            (IoPurpose::Grow, IoOutcome::Write(result) | IoOutcome::Flush(result)) => self.grow_done(result, effects),
            (IoPurpose::Discard, IoOutcome::Discard(result)) => self.discard_done(result, effects),
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
        self.step_batches(effects);
        if self.health.closing == Closing::Closed {
            return;
        }
        if self.memory.is_balance_due() {
            self.balance_memory(effects);
        }
        self.wake_block_waiters(effects);
        self.pump_scans(effects);
        self.step_backup(effects);
        P::pump_reads(self, effects);
        self.pump_blob_reads(effects);
        if !self.config.read_only && self.health.poisoned.is_none() {
            self.sweep_expired(effects);
            self.pump_ranges(effects);
            P::pump_writes(self, effects);
            self.pump_discards(effects);
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
        effects.events.append(&mut self.health.events);
        self.close_step(effects);
        let starved =
            P::is_starved(self) || !self.keys.block_waiters.is_empty() || self.io.is_empty() && !self.blobs.is_idle();
        if starved && effects.requests.is_empty() {
            self.give_back_blocks();
            // Every block is lent out, to replies on their way: ask again soon.
            wake_soon(effects);
        }
    }

    fn cancel(&mut self, has_left: &dyn Fn(Token) -> bool, effects: &mut Effects) {
        let left = self.placement.give_up(has_left);
        left.into_iter().for_each(|token| effects.reply(token, Reply::Failed(Error::Cancelled)));
        self.give_up_blob_reads(has_left, effects);
    }

    fn close(&mut self, effects: &mut Effects) {
        if self.health.is_open() {
            self.health.closing = Closing::Draining;
            self.close_batches(effects);
            self.backup_failed(None, Error::Closed, effects);
        }
        effects.more();
    }

    fn is_closed(&self) -> bool {
        self.health.closing == Closing::Closed
    }

    fn failure(&self) -> Option<Error> {
        self.health.failure()
    }

    fn statistics(&self, out: &mut Vec<Statistic>) {
        let counters = &self.io.counters;
        let held = u64::from(self.space.held());
        let mut add = |name, value| out.push(Statistic { name, value });
        add("records", self.index.tree.len() as u64);
        add("index_bytes", self.index_bytes());
        add("cache_bytes", self.placement.cached_bytes() as u64);
        add("cache_hits", counters.cache_hits);
        add("cache_misses", counters.cache_misses);
        add("damaged_places", self.health.corruptions.len() as u64);
        add("full", u64::from(self.volume.is_full));
        add("pages_used", self.placement.pages() as u64);
        add("pages_free", u64::from(self.space.free_pages()));
        add("pages_deferred", u64::from(self.space.deferred_pages()));
        add("blob_pages", self.blobs.pages);
        add("usable_bytes", held * PAGE_BYTES as u64);
        add("discarded_bytes", u64::from(self.space.discarded_pages()) * PAGE_BYTES as u64);
        add("large_read_steps", self.blobs.reads.steps());
        add("large_write_steps", self.blobs.writes.steps());
        add("groups", counters.groups);
        add("flushes", counters.flushes);
        add("page_reads", counters.page_reads);
        add("page_writes", counters.page_writes);
        add("read_bytes", counters.read_bytes);
        add("write_bytes", counters.write_bytes);
        add("corrupt_records", self.health.corrupt_records);
        add("full_refusals", counters.full_refusals);
        add("expired_records", counters.expired_records);
        add("batches", self.batches.done());
        add("batches_under_way", self.batches.under_way());
        add("recovery_bytes_read", self.health.report.read_bytes);
        add("recovered_by_checkpoint", u64::from(self.health.report.checkpoint.is_used));
        add("checkpoints_refused", self.health.report.checkpoint.refused);
        add("waiting", (self.keys.pending.len() + self.placement.waiting()) as u64);
        self.placement.statistics(out);
        self.memory_account().append(out);
    }
}

/// Whether an operation names a key that cannot be one: bounds of scans are not checked when they
/// are made.
#[inline]
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

/// No block is to be had now: a tick comes soon, with or without completions.
pub(crate) fn wake_soon(effects: &mut Effects) {
    effects.wake_at(Mono(effects.now().mono.0 + 1_000_000));
}

/// Whether a record with this expiry is gone.
pub(crate) fn is_expired(expiry: u64, effects: &Effects) -> bool {
    Expiry(expiry).is_past(effects.now().wall)
}
