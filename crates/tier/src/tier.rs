//! [`Tier`]: the state of one shard, and its face to the driver.

use std::collections::{BTreeMap, VecDeque};

use foldhash::HashMap;
use stratakv_base::{Level, Mono, Now};
use stratakv_device::{Block, Class, IoFault};
use stratakv_engine::{
    Capabilities, Effects, Error, Io, IoOutcome, IoTable, Message, Operation, Reply, Shard, ShardEvent, ShardId,
    Statistic, Token,
};

use crate::config::{RecoveryReport, TierConfig};
use crate::drops::Drops;
use crate::ending::Closing;
use crate::fetch::Fetches;
use crate::ghost_queue::GhostQueue;
use crate::index::{Index, Tag};
use crate::journal::FlushWatermark;
use crate::listing::Listings;
use crate::operations::{Suspended, Work};
use crate::resize::Draining;
use crate::segment::{Segments, TTL_CLASSES};
use crate::superblock::Superblock;
use crate::volume::Volume;

/// What a request in flight is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IoPurpose {
    /// A chunk of a fetch.
    Read(u64, usize),
    /// A piece of the segment of this order.
    Spill(u64),
    /// The head of an empty segment, where one that failed to be written begins: at this page.
    Fill(u64),
    Journal,
    /// A piece of the table of an orderly end.
    Table,
    Flush,
    Superblock,
    /// Room for the table of what is to be saved.
    Reserve,
    /// What came back to DRAM is given back to the file system.
    Discard,
}

/// See [`Shard::statistics`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) hits_dram: u64,
    pub(crate) hits_volume: u64,
    pub(crate) misses: u64,
    pub(crate) drops: Drops,
    pub(crate) expired: u64,
    /// Items written where their predecessor lay.
    pub(crate) overwritten: u64,
    pub(crate) spilled_bytes: u64,
    pub(crate) spilled_items: u64,
    pub(crate) promoted: u64,
    pub(crate) reinserted: u64,
    pub(crate) volume_reads: u64,
    pub(crate) read_errors: u64,
    pub(crate) write_errors: u64,
    pub(crate) corrupt_records: u64,
    pub(crate) stalled_ticks: u64,
    /// Items that the orderly end found no room for.
    pub(crate) dropped_at_end: u64,
    /// At suspended operations.
    pub(crate) steps: u64,
}

/// One shard of a store with the engine `tier`. See the crate.
#[derive(Debug)]
pub struct Tier {
    /// Its memory is that which counts now; see [`Tier::memory_target_bytes`].
    pub(crate) config: TierConfig,
    /// The cap on memory: as it was opened, or as the driver said since.
    pub(crate) memory_target_bytes: u64,
    /// The longest item that has a place under that cap.
    pub(crate) item_bytes_max: u64,
    /// What was held of it at the end of the last tick's balance: chunks of the pool, index,
    /// ghost queue.
    pub(crate) held_bytes: u64,
    pub(crate) draining: Draining,
    pub(crate) report: RecoveryReport,
    pub(crate) index: Index,
    pub(crate) ghost_queue: GhostQueue,
    pub(crate) segments: Segments,
    /// Being filled: small and main, by class of expiry.
    pub(crate) open: [[Option<u32>; TTL_CLASSES]; 2],
    pub(crate) outgoing: Option<u32>,
    /// Sealed, the oldest first.
    pub(crate) small: VecDeque<u32>,
    pub(crate) main: VecDeque<u32>,
    /// Of these two, segments whose items were all superseded.
    pub(crate) empty_segments: usize,
    pub(crate) next_segment: u64,
    pub(crate) volume: Option<Volume>,
    pub(crate) fetches: Fetches,
    pub(crate) listings: Listings,
    pub(crate) io: IoTable<IoPurpose>,
    pub(crate) suspended: HashMap<u64, Suspended>,
    pub(crate) next_operation: u64,
    pub(crate) ready: VecDeque<u64>,
    /// Suspended writes that found no room, in order: the first one tries, and those behind it once
    /// that is done.
    pub(crate) cramped: VecDeque<u64>,
    /// Tags with a suspended write, and the writes that wait for it.
    pub(crate) busy: HashMap<Tag, VecDeque<u64>>,
    /// Writes that wait for room, and those behind them.
    pub(crate) held: VecDeque<(Token, Work)>,
    /// Replies that wait for a group of the journal, by that, and of which tag they tell; of none:
    /// of every one.
    pub(crate) pending_acks: BTreeMap<u64, Vec<(Token, Option<Tag>, Reply)>>,
    pub(crate) superblock: Superblock,
    /// Superblocks that could not be written, when the volume was lost.
    pub(crate) void_tries: u32,
    /// When it is tried again, after many; never, if none has to be.
    pub(crate) void_at: Option<Mono>,
    pub(crate) version: u64,
    /// What was flushed.
    pub(crate) flush_watermarks: Vec<FlushWatermark>,
    pub(crate) now: Now,
    /// The next slot to be looked at for expired segments.
    pub(crate) expiry_hand: usize,
    pub(crate) closing: Closing,
    /// What had been dropped when the end began.
    pub(crate) drops_before_end: Drops,
    /// An end did not keep what it should have, for this reason.
    pub(crate) end_failure: Option<IoFault>,
    /// The last write or flush that failed.
    pub(crate) last_fault: Option<IoFault>,
    pub(crate) counters: Counters,
    /// Whoever listens to evictions is told of these at the end of the tick; empty if nobody does.
    pub(crate) evicted: Vec<ShardEvent>,
}

impl Tier {
    /// What opening found.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.report
    }

    /// A block for a read, making room if need be. It may be longer than was asked for.
    pub(crate) fn take_block(&mut self, class: Class, effects: &Effects) -> Option<Block> {
        effects.block(class).or_else(|| effects.block(Class::Slice)).or_else(|| {
            self.evict(effects);
            effects.block(class).or_else(|| Self::block_of_another_chunk(class, effects))
        })
    }

    /// Answers, once the journal says so of this tag.
    pub(crate) fn answer(&mut self, token: Token, reply: Reply, tag: Option<Tag>, effects: &mut Effects) {
        let group = self.volume.as_ref().and_then(|volume| volume.journal.waits_for(tag));
        match group {
            Some(group) => self.pending_acks.entry(group).or_default().push((token, tag, reply)),
            None => effects.reply(token, reply),
        }
    }

    fn send_pending_acks(&mut self, effects: &mut Effects) {
        let Some(volume) = &self.volume else { return };
        let is_written = |group: u64| volume.journal.is_written(group);
        while let Some(group) = self.pending_acks.first_entry().filter(|group| is_written(*group.key())) {
            group.remove().into_iter().for_each(|(token, _, reply)| effects.reply(token, reply));
        }
    }

    /// Why there can be no writes, if there can be none.
    pub(crate) fn refusal(&self) -> Option<Error> {
        self.config
            .read_only
            .then(|| Error::WrongVolume("the store is open for reading only: open it for writing to change it".into()))
    }

    fn completed(&mut self, purpose: IoPurpose, outcome: IoOutcome, effects: &mut Effects) {
        match (purpose, outcome) {
            (IoPurpose::Read(fetch, chunk), IoOutcome::Read(block, result)) => {
                self.chunk_read(fetch, chunk, block, result, effects);
            }
            (IoPurpose::Spill(order), IoOutcome::Write(result)) => self.spill_written(order, result),
            (IoPurpose::Fill(page), IoOutcome::Write(result)) => self.hole_filled(page, result),
            (IoPurpose::Journal, IoOutcome::Write(result)) => self.journal_written(result, effects),
            (IoPurpose::Table, IoOutcome::Write(result)) => self.table_written(result, effects),
            (IoPurpose::Flush, IoOutcome::Flush(result)) => self.flushed(result, effects),
            (IoPurpose::Reserve, IoOutcome::Allocate(result)) => self.reserved(result, effects),
            (IoPurpose::Superblock, IoOutcome::Write(result)) => self.superblock_written(result, effects),
            _ => {}
        }
    }

    /// Writes what the journal has gathered.
    fn issue_journal(&mut self, effects: &mut Effects) {
        let Some(volume) = self.volume.as_mut().filter(|volume| volume.journals()) else { return };
        if self.config.read_only {
            return;
        }
        if let Some(at) = volume.journal.retries_at().filter(|at| *at > self.now.mono) {
            return effects.wake_at(at);
        }
        for (page, bytes) in volume.journal.issue() {
            self.write_pages(page, &bytes, IoPurpose::Journal, effects);
        }
    }

    /// A page of the journal was written, or not: then it is tried again, and nobody whom it tells
    /// of is answered so far.
    fn journal_written(&mut self, result: Result<(), IoFault>, effects: &mut Effects) {
        self.counters.write_errors += u64::from(result.is_err());
        self.last_fault = result.err().or(self.last_fault);
        let now = self.now.mono;
        let Some(volume) = self.volume.as_mut().filter(|volume| !volume.is_lost) else { return };
        if let Some(fault) = volume.journal.page_written(result, now) {
            self.lose_volume(fault, effects);
        }
    }

    /// Writes bytes, a multiple of a page, from this page of the volume on.
    pub(crate) fn write_pages(&mut self, page: u64, bytes: &[u8], purpose: IoPurpose, effects: &mut Effects) {
        let durable = matches!(purpose, IoPurpose::Superblock);
        let parts = crate::spill::parts_of(bytes, effects.pool());
        effects.write(self.io.start(purpose), page * 4096, parts, durable);
    }

    pub(crate) fn write_superblock(&mut self, effects: &mut Effects) {
        self.superblock.generation += 1;
        self.write_superblock_again(effects);
    }

    /// The same one, where it failed to be written.
    pub(crate) fn write_superblock_again(&mut self, effects: &mut Effects) {
        let mut page = vec![0; 4096];
        self.superblock.encode(&self.config.uuid, &mut page);
        self.write_pages(self.superblock.generation % 2, &page, IoPurpose::Superblock, effects);
    }
}

/// When nothing is in flight and there is no room, it is tried again so much later.
pub(crate) const RETRY_NS: u64 = 1_000_000;
/// Writes that may wait for room.
const HELD_MAX: usize = 1024;

impl Shard for Tier {
    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: false, snapshot: false, durable: false, evicting: true, blind: true }
    }

    fn accept(&mut self, token: Token, operation: Operation, effects: &mut Effects) -> Result<(), Operation> {
        self.now = effects.now();
        if self.closing != Closing::Open || self.held.len() >= HELD_MAX {
            return Err(operation);
        }
        match self.complaint(&operation) {
            Some(error) => effects.reply(token, Reply::Failed(error)),
            None => self.begin(token, operation, effects),
        }
        Ok(())
    }

    fn complete(&mut self, io: Io, outcome: IoOutcome, effects: &mut Effects) {
        self.now = effects.now();
        if let Some(purpose) = self.io.finish(io) {
            self.completed(purpose, outcome, effects);
        }
    }

    fn message(&mut self, _: ShardId, _: Message, _: &mut Effects) {}

    fn tick_end(&mut self, effects: &mut Effects) {
        self.now = effects.now();
        self.follow_memory(effects);
        self.balance_memory(effects);
        self.run_ready(effects);
        self.run_held(effects);
        self.pump_listing(effects);
        self.expire_step();
        self.evict_ahead(effects);
        self.pump_recycle(effects);
        self.release_holds(effects);
        self.pump_spills(effects);
        self.issue_journal(effects);
        self.pump_void(effects);
        self.pump_reads(effects);
        self.send_pending_acks(effects);
        self.pump_close(effects);
        effects.events.append(&mut self.evicted);
        let waits = !self.held.is_empty() || !self.ready.is_empty() || !self.cramped.is_empty();
        let waits = waits || self.fetches.is_waiting();
        self.counters.stalled_ticks += u64::from(!self.held.is_empty());
        if waits && self.io.is_empty() {
            effects.wake_at(Mono(self.now.mono.0 + RETRY_NS));
        }
    }

    fn cancel(&mut self, has_left: &dyn Fn(Token) -> bool, effects: &mut Effects) {
        let gone =
            self.suspended.values_mut().filter(|suspended| !suspended.work.is_write() && has_left(suspended.token));
        gone.for_each(|suspended| suspended.is_cancelled = true);
        self.cancel_listings(has_left, effects);
        self.give_up_reads();
        effects.more();
    }

    fn close(&mut self, effects: &mut Effects) {
        if self.closing == Closing::Open {
            self.closing = Closing::Draining;
        }
        effects.more();
    }

    fn is_closed(&self) -> bool {
        self.closing == Closing::Closed
    }

    /// While it serves a cache goes on without its volume. An end that could not keep what was in
    /// memory says so.
    fn failure(&self) -> Option<Error> {
        let what = "writing what was in memory to the volume, at this end,";
        self.end_failure.map(|fault| Error::Io { what, fault })
    }

    fn statistics(&self, out: &mut Vec<Statistic>) {
        let counters = &self.counters;
        let (volume, suspended) = match self.volume.as_ref() {
            Some(volume) if volume.saving.is_some() => (None, Some(volume)),
            volume => (volume, None),
        };
        let mut add = |name, value| out.push(Statistic { name, value });
        add("items", self.index.len() as u64);
        add("index_bytes", self.index.bytes() as u64);
        add("memory_limit_bytes", self.memory_target_bytes);
        add("memory_bytes", self.held_bytes);
        add("ghost_queue_bytes", self.ghost_queue.bytes() as u64);
        add("dram_bytes", self.segments.bytes() as u64);
        add("dram_segments", self.segments.len() as u64);
        add("ssd_bytes", volume.map_or(0, |volume| volume.log.used_pages() * 4096));
        add("ssd_segments", volume.map_or(0, |volume| volume.log.len() as u64));
        add("ssd_capacity_bytes", self.superblock.layout.log_pages * 4096);
        add("saved_bytes", suspended.map_or(0, |volume| volume.log.used_pages() * 4096));
        add("ssd_lost", volume.map_or(0, |volume| u64::from(volume.is_lost)));
        add("ssd_refused_keys", volume.map_or(0, |volume| volume.returning.len() as u64));
        add("ssd_holes", volume.map_or(0, |volume| volume.spills.holes() as u64));
        add("ssd_paused", volume.map_or(0, |volume| u64::from(volume.spills.is_paused(self.now.mono))));
        add("expired", counters.expired);
        add("overwritten_in_place", counters.overwritten);
        add("spilled_bytes", counters.spilled_bytes);
        add("spilled_items", counters.spilled_items);
        add("promoted", counters.promoted);
        add("reinserted", counters.reinserted);
        add("hits_dram", counters.hits_dram);
        add("hits_ssd", counters.hits_volume);
        add("misses", counters.misses);
        add("ssd_reads", counters.volume_reads);
        add("ssd_read_errors", counters.read_errors);
        add("ssd_write_errors", counters.write_errors);
        add("corrupt_records", counters.corrupt_records);
        add("journal_writes", volume.map_or(0, |volume| volume.journal.pages_issued()));
        add("invalidations", volume.map_or(0, |volume| volume.journal.invalidations()));
        add("evictions_at_end", counters.dropped_at_end);
        add("stalled_ticks", counters.stalled_ticks);
        add("suspended_steps", counters.steps);
        add("recovered_items", self.report.items);
        add("recovered_segments", self.report.segments);
        add("untrusted_segments", self.report.untrusted_segments);
        counters.drops.statistics(out);
    }
}

/// Only memory acknowledges here.
pub(crate) fn unsupported(level: Level) -> Option<Error> {
    (level != Level::Memory).then_some(Error::Unsupported(stratakv_engine::Capability::Level))
}
