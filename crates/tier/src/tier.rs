//! [`Tier`]: the state of one shard, and its face to the driver.

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Level, Mono, Now};
use stratakv_device::{Block, Class, IoFault};
use stratakv_engine::{
    Capabilities, Effects, Error, Io, IoOutcome, IoTable, Message, Operation, Reply, Shard, ShardId, Stage, Statistic,
    Token,
};

use crate::closing::{Closing, Ending};
use crate::config::{RecoveryReport, TierConfig};
use crate::counters::Counters;
use crate::evictions::Evictions;
use crate::fetch::Fetches;
use crate::index::{Index, Tag};
use crate::listing::Listings;
use crate::memory_cap::MemoryCap;
use crate::operation_queues::OperationQueues;
use crate::segments::Segments;
use crate::spill::parts_of;
use crate::superblock_writer::SuperblockWriter;
use crate::versions::Versions;
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

/// One shard of a store with the engine `tier`. See the crate.
#[derive(Debug)]
pub struct Tier {
    /// Its memory is that which counts now; see [`MemoryCap`].
    pub(crate) config: TierConfig,
    pub(crate) cap: MemoryCap,
    pub(crate) index: Index,
    pub(crate) evictions: Evictions,
    pub(crate) segments: Segments,
    pub(crate) volume: Option<Volume>,
    pub(crate) fetches: Fetches,
    pub(crate) listings: Listings,
    pub(crate) io: IoTable<IoPurpose>,
    pub(crate) operations: OperationQueues,
    pub(crate) superblock: SuperblockWriter,
    pub(crate) versions: Versions,
    pub(crate) now: Now,
    pub(crate) ending: Ending,
    pub(crate) counters: Counters,
}

impl Tier {
    /// What opening found.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.counters.recovered
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
            Some(group) => {
                effects.enter(token, Stage::Write);
                self.operations.acknowledge_after(group, (token, tag, reply))
            }
            None => effects.reply(token, reply),
        }
    }

    fn send_pending_acks(&mut self, effects: &mut Effects) {
        let Some(volume) = &self.volume else { return };
        while let Some(acks) = self.operations.next_acks(|group| volume.journal.is_written(group)) {
            acks.into_iter().for_each(|(token, _, reply)| effects.reply(token, reply));
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
        self.counters.note_write(result);
        let now = self.now.mono;
        let Some(volume) = self.volume.as_mut().filter(|volume| !volume.is_lost) else { return };
        if let Some(fault) = volume.journal.page_written(result, now) {
            self.lose_volume(fault, effects);
        }
    }

    /// Writes bytes, a multiple of a page, from this page of the volume on. Where there is no
    /// memory for that it has failed when this returns.
    pub(crate) fn write_pages(&mut self, page: u64, bytes: &[u8], purpose: IoPurpose, effects: &mut Effects) {
        let durable = matches!(purpose, IoPurpose::Superblock);
        match parts_of(bytes, effects.pool()) {
            Ok(parts) => effects.write(self.io.start(purpose), page * PAGE_BYTES as u64, parts, durable),
            Err(fault) => {
                self.completed(purpose, IoOutcome::Write(Err(fault)), effects);
                effects.more();
            }
        }
    }

    pub(crate) fn write_superblock(&mut self, effects: &mut Effects) {
        self.superblock.advance();
        self.write_superblock_again(effects);
    }

    /// The same one, where it failed to be written.
    pub(crate) fn write_superblock_again(&mut self, effects: &mut Effects) {
        self.superblock.begin_retry();
        let (page, bytes) = self.superblock.page(&self.config.uuid);
        self.write_pages(page, &bytes, IoPurpose::Superblock, effects);
    }
}

/// When nothing is in flight and there is no room, it is tried again so much later.
pub(crate) const RETRY_NS: u64 = 1_000_000;

impl Shard for Tier {
    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: false, snapshot: false, durable: false, evicting: true, blind: true }
    }

    fn accept(&mut self, token: Token, operation: Operation, effects: &mut Effects) -> Result<(), Operation> {
        self.now = effects.now();
        if !self.ending.is_open() || self.operations.is_full() {
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
        self.pump_superblock(effects);
        self.pump_reads(effects);
        self.send_pending_acks(effects);
        self.pump_close(effects);
        effects.events.append(self.evictions.events());
        let waits = self.operations.end_tick() || self.fetches.is_waiting();
        if waits && self.io.is_empty() {
            effects.wake_at(Mono(self.now.mono.0 + RETRY_NS));
        }
    }

    fn cancel(&mut self, has_left: &dyn Fn(Token) -> bool, effects: &mut Effects) {
        self.operations.cancel(has_left);
        self.cancel_listings(has_left, effects);
        self.give_up_reads();
        effects.more();
    }

    fn close(&mut self, effects: &mut Effects) {
        if self.ending.is_open() {
            self.ending.enter(Closing::Draining);
        }
        effects.more();
    }

    fn is_closed(&self) -> bool {
        self.ending.phase() == Closing::Closed
    }

    /// While it serves a cache goes on without its volume. An end that could not keep what was in
    /// memory says so.
    fn failure(&self) -> Option<Error> {
        let what = "writing what was in memory to the volume, at this end,";
        self.ending.failure().map(|fault| Error::Io { what, fault })
    }

    fn statistics(&self, out: &mut Vec<Statistic>) {
        self.all_statistics(out);
    }
}

/// Only memory acknowledges here.
pub(crate) fn unsupported(level: Level) -> Option<Error> {
    (level != Level::Memory).then_some(Error::Unsupported(stratakv_engine::Capability::Level))
}
