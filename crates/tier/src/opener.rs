//! [`TierOpener`]: creates or recovers a shard. Superblocks, the journal's tails, then the table of
//! an orderly end, or the journal and the heads of segments.

use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_base::{Now, fault_point};
use stratakv_chassis::opener::OpenerIo;
use stratakv_chassis::superblock::SuperblockPair;
use stratakv_device::{Block, IoFault};
use stratakv_engine::{Effects, Error, Io, IoOutcome, IoTable, Opener, Progress};

use crate::config::{RecoveryReport, Start, TierConfig};
use crate::counters::Counters;
use crate::drops::DropReason;
use crate::ending::{TablePage, decode_page};
use crate::evictions::Evictions;
use crate::fetch::Fetches;
use crate::index::Index;
use crate::journal::{Journal, Tail, decode_ring};
use crate::log::{Head, Log, Stored};
use crate::memory_cap::MemoryCap;
use crate::recovery::Recovery;
use crate::saving::Saving;
use crate::segments::Segments;
use crate::spill::parts_of;
use crate::superblock::{IndexDump, Layout, Superblock, TAIL_PAGE};
use crate::superblock_writer::SuperblockWriter;
use crate::tier::Tier;
use crate::versions::Versions;
use crate::volume::Volume;

const CHUNK_PAGES: u64 = (SLICE_BYTES / PAGE_BYTES) as u64;
/// Pages of a new ring that are written at once.
const RESERVED_PAGES: u64 = 128;
/// A summary longer than this is none: 16 MiB.
const HEAD_PAGES_MAX: u32 = 4096;
/// A volume with a shorter log is too small.
const LOG_PAGES_MIN: u64 = 16;

const OPENING: &str = "opening the volume for writing";

/// What is being read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenerIoPurpose {
    Superblock(usize),
    Tail(usize),
    /// The ring, from this position on.
    Ring(u64),
    /// The table, from this page of it on.
    Table(u64),
    /// The head of the segment that may begin at this page; whether that is where the log wraps.
    Head(u64, bool),
    /// Its summary.
    Summary(Stored, Head, u64),
    /// Whether it is the second one.
    WriteTail(bool),
    /// Zeros, from this page of the ring on.
    WriteRing(u64),
    WriteSuperblock,
}

/// See the module.
#[derive(Debug)]
pub struct TierOpener {
    config: TierConfig,
    create: bool,
    layout: Option<Layout>,
    /// What an orderly end saved is to come back.
    saved: bool,
    io: OpenerIo<OpenerIoPurpose>,
    superblocks: SuperblockPair<Superblock>,
    tails: [Option<Option<Tail>>; 2],
    /// The superblock that is to be written.
    superblock: Superblock,
    recovery: Recovery,
    report: RecoveryReport,
    /// Bytes of a head that is being gathered.
    gathered: Vec<u8>,
    is_done: bool,
    superblocks_left: u32,
}

impl TierOpener {
    /// Makes a new shard. What was on the volume is forgotten.
    pub fn create(config: TierConfig) -> TierOpener {
        TierOpener { create: true, superblocks_left: 2, ..TierOpener::recover(config) }
    }

    /// Opens one that is there.
    pub fn recover(config: TierConfig) -> TierOpener {
        let layout = Layout::of(&config);
        TierOpener {
            create: false,
            io: OpenerIo::default(),
            superblocks: SuperblockPair::default(),
            tails: [None, None],
            superblock: Superblock { shard: config.shard, shards: config.shards, ..Superblock::default() },
            recovery: Recovery::new(Log::new(layout.unwrap_or_default()), Tail::default(), config.index_bytes_max()),
            report: RecoveryReport::default(),
            gathered: Vec::new(),
            is_done: false,
            superblocks_left: 1,
            layout,
            saved: false,
            config,
        }
    }

    fn read(&mut self, page: u64, pages: u64, step: OpenerIoPurpose, effects: &mut Effects) {
        self.report.read_bytes += pages * PAGE_BYTES as u64;
        self.io.read(page, pages, step, effects);
    }

    fn write(&mut self, page: u64, bytes: &[u8], step: OpenerIoPurpose, effects: &mut Effects) {
        let durable = step == OpenerIoPurpose::WriteSuperblock;
        match parts_of(bytes, effects.pool()) {
            Ok(parts) => effects.write(self.io.start(step), page * PAGE_BYTES as u64, parts, durable),
            Err(fault) => self.io.fail(Error::Io { what: OPENING, fault }),
        }
    }

    fn superblock_read(&mut self, slot: usize, block: &Block, result: Result<(), IoFault>, effects: &mut Effects) {
        self.superblocks.read(slot, result, || Superblock::decode(&self.config.uuid, slot as u64, block));
        if self.superblocks.is_read() {
            match self.superblocks.choose((self.config.shard, self.config.shards)) {
                Ok(newest) => self.chosen(newest, effects),
                Err(error) => self.io.fail(error),
            }
        }
    }

    fn chosen(&mut self, found: Superblock, effects: &mut Effects) {
        let is_whole = self.superblocks.is_whole();
        let same_system = found.boot.is_some() && found.boot == self.config.boot;
        self.superblocks_left = if is_whole { 1 } else { 2 };
        // As many openings as it may know of.
        self.superblock = Superblock { incarnation: found.incarnation + u64::from(!is_whole), ..found };
        self.report.start = match self.layout {
            _ if self.config.begins_empty => Start::Emptied,
            Some(layout) if layout != found.layout => Start::Emptied,
            // The one that cannot be read may be the newer one, and say that the volume was opened
            // since, or is void.
            _ if !is_whole => Start::Emptied,
            _ if found.clean => Start::Clean,
            Some(_) if same_system && !found.clean => Start::Recovered,
            _ => Start::Emptied,
        };
        if self.layout.is_some() {
            self.read(TAIL_PAGE, 1, OpenerIoPurpose::Tail(0), effects);
            self.read(TAIL_PAGE + 1, 1, OpenerIoPurpose::Tail(1), effects);
        } else if self.report.start == Start::Clean && found.is_saved() {
            self.saved = true;
            self.recovery = Recovery::new(Log::new(found.layout), Tail::default(), self.config.index_bytes_max());
            self.begin_table(effects);
        } else {
            self.begin_writing(effects);
        }
    }

    fn tail_read(&mut self, slot: usize, block: &Block, result: Result<(), IoFault>, effects: &mut Effects) {
        let page = TAIL_PAGE + slot as u64;
        let found = result.ok().and_then(|()| Tail::decode(&self.config.uuid, page, block));
        let (end, ring_pages) = (self.superblock.end_number(), self.superblock.layout.ring_pages);
        self.tails[slot] = Some(found.filter(|tail| tail.is_possible(end, ring_pages)));
        if self.tails.iter().any(Option::is_none) {
            return;
        }
        let is_whole = self.tails.iter().flatten().all(Option::is_some);
        let (Some(tail), true) = (self.newest_tail(), is_whole && self.report.start != Start::Emptied) else {
            // The one that cannot be read may be the newer one: nobody knows what it called stale.
            self.report.start = Start::Emptied;
            return self.begin_writing(effects);
        };
        self.recovery = Recovery::new(Log::new(self.superblock.layout), tail, self.config.index_bytes_max());
        match self.report.start {
            Start::Clean => self.begin_table(effects),
            _ => self.read_ring(self.recovery.tail.first, effects),
        }
    }

    fn newest_tail(&self) -> Option<Tail> {
        self.tails.iter().flatten().flatten().max_by_key(|tail| tail.number).cloned()
    }

    fn read_ring(&mut self, position: u64, effects: &mut Effects) {
        let tail = &self.recovery.tail;
        if position >= tail.next || tail.next - position > self.superblock.layout.ring_pages {
            return self.begin_table(effects);
        }
        let page = TAIL_PAGE + 2 + position % self.superblock.layout.ring_pages;
        self.read(page, 1, OpenerIoPurpose::Ring(position), effects);
    }

    fn ring_read(&mut self, position: u64, block: &Block, result: Result<(), IoFault>, effects: &mut Effects) {
        let page = TAIL_PAGE + 2 + position % self.superblock.layout.ring_pages;
        let found = result.ok().and_then(|()| decode_ring(&self.config.uuid, page, position, block));
        self.recovery.ring_page(found);
        self.read_ring(position + 1, effects);
    }

    /// The table, if the log still has segments from before it.
    fn table(&self) -> Option<IndexDump> {
        let is_clean = self.report.start == Start::Clean;
        self.superblock.table.filter(|table| is_clean || table.order >= self.recovery.tail.low)
    }

    fn begin_table(&mut self, effects: &mut Effects) {
        match self.table() {
            Some(table) if table.pages() > 0 => self.read_table(table, 0, effects),
            _ => self.table_done(effects),
        }
    }

    fn read_table(&mut self, table: IndexDump, number: u64, effects: &mut Effects) {
        let pages = (table.pages() - number).min(CHUNK_PAGES);
        self.read(table.page + number, pages, OpenerIoPurpose::Table(number), effects);
    }

    fn table_read(&mut self, number: u64, block: &Block, result: Result<(), IoFault>, effects: &mut Effects) {
        let Some(table) = self.table() else { return };
        let is_clean = self.report.start == Start::Clean;
        let pages = (table.pages() - number).min(CHUNK_PAGES);
        for (number, page) in (number..).zip(block.chunks(PAGE_BYTES)).take(pages as usize) {
            match result.ok().and_then(|()| decode_page(&self.config.uuid, &table, number, page)) {
                Some(TablePage::Segments(segments)) => {
                    let is_given = |stored: &Stored| {
                        stored.order < self.superblock.end_number() && stored.head_pages <= HEAD_PAGES_MAX
                    };
                    let segments = segments.into_iter().filter(is_given);
                    segments.for_each(|stored| self.recovery.table_segment(stored));
                }
                Some(TablePage::Entries(entries)) => {
                    entries.into_iter().for_each(|(tag, loc)| self.recovery.table_entry(tag, loc, is_clean));
                }
                None => {
                    // Nobody knows which keys have copies, so none counts.
                    if self.saved {
                        let shard = self.config.shard;
                        tracing::warn!(shard, "the table of what was saved is damaged: the cache begins empty");
                    }
                    (self.report.start, self.saved) = (Start::Emptied, false);
                    return self.begin_writing(effects);
                }
            }
        }
        if number + pages < table.pages() {
            return self.read_table(table, number + pages, effects);
        }
        self.table_done(effects);
    }

    fn table_done(&mut self, effects: &mut Effects) {
        if let Some(table) = self.table() {
            let pages = table.next_page.saturating_sub(table.page);
            let IndexDump { page, order, .. } = table;
            let stored = Stored {
                id: 0,
                order,
                page,
                pages,
                head_pages: 0,
                expires_s: 0,
                pins: 0,
                is_written: true,
                is_void: true,
            };
            if self.recovery.log.has_place(page, pages) {
                self.recovery.log.push(stored);
            }
            self.recovery.last = order;
        }
        if self.report.start == Start::Clean {
            return self.begin_writing(effects);
        }
        let page = self.table().map_or(self.recovery.tail.low_page, |table| table.next_page);
        self.read_head(page, page == self.superblock.layout.log_page, effects);
    }

    fn read_head(&mut self, page: u64, wrapped: bool, effects: &mut Effects) {
        let Layout { log_page, log_pages, .. } = self.superblock.layout;
        if (log_page..log_page + log_pages).contains(&page) {
            self.read(page, 1, OpenerIoPurpose::Head(page, wrapped), effects);
        } else if wrapped {
            self.begin_writing(effects);
        } else {
            self.read_head(log_page, true, effects);
        }
    }

    fn head_read(
        &mut self,
        page: u64,
        wrapped: bool,
        block: &Block,
        result: Result<(), IoFault>,
        effects: &mut Effects,
    ) {
        let layout = self.superblock.layout;
        let fits = |head: &Head| {
            let is_given = head.order < self.superblock.end_number();
            let has_place = self.recovery.log.has_place(page, u64::from(head.pages));
            is_given && has_place && head.head_pages <= HEAD_PAGES_MAX
        };
        // A volume that ends before it has none there.
        if result.is_err_and(|fault| fault != IoFault::Short) {
            // It may be there the next time, and an older one than those that follow at the
            // beginning: nobody knows which keys have copies in it.
            self.report.start = Start::Emptied;
            return self.begin_writing(effects);
        }
        let found = result.ok().and_then(|()| Head::decode(&self.config.uuid, page, block));
        let Some(head) = found.filter(|head| self.recovery.is_next(head.order) && fits(head)) else {
            // The log ends here, or goes on at its beginning.
            return if wrapped { self.begin_writing(effects) } else { self.read_head(layout.log_page, true, effects) };
        };
        let Head { id, order, head_pages, expires_s, .. } = head;
        let pages = u64::from(head.pages);
        let stored =
            Stored { id, order, page, pages, head_pages, expires_s, pins: 0, is_written: true, is_void: false };
        self.gathered = block.to_vec();
        self.read_summary(stored, head, effects);
    }

    /// The pages of a head that are still missing.
    fn read_summary(&mut self, stored: Stored, head: Head, effects: &mut Effects) {
        let done = (self.gathered.len() / PAGE_BYTES) as u64;
        let left = u64::from(head.head_pages) - done.min(u64::from(head.head_pages));
        if left > 0 {
            let pages = left.min(CHUNK_PAGES);
            return self.read(stored.page + done, pages, OpenerIoPurpose::Summary(stored, head, pages), effects);
        }
        let lines = head.lines(&self.gathered);
        self.recovery.segment(stored, lines);
        self.read_head(stored.end(), stored.end() == self.superblock.layout.log_page, effects);
    }

    fn summary_read(
        &mut self,
        (stored, head, pages): (Stored, Head, u64),
        block: &Block,
        result: Result<(), IoFault>,
        effects: &mut Effects,
    ) {
        let len = pages as usize * PAGE_BYTES;
        match (result, block.get(..len)) {
            (Ok(()), Some(bytes)) => self.gathered.extend_from_slice(bytes),
            // Zeros, which do not check.
            _ => self.gathered.resize(self.gathered.len() + len, 0),
        }
        self.read_summary(stored, head, effects);
    }

    /// Everything is read. The journal's tail first, then the superblock: it is what makes the
    /// volume count for this system.
    fn begin_writing(&mut self, effects: &mut Effects) {
        self.superblock.incarnation += 1;
        let first = self.superblock.first_number();
        if let Some(layout) = self.layout.filter(|_| matches!(self.report.start, Start::Created | Start::Emptied)) {
            self.superblock.layout = layout;
            let tail = Tail { low: first, low_page: layout.log_page, ..Tail::default() };
            self.recovery = Recovery::new(Log::new(layout), tail, self.config.index_bytes_max());
            self.superblock.table = None;
        }
        if self.layout.is_none() && !self.saved {
            let nothing = Log::new(Layout::default());
            self.recovery = Recovery::new(nothing, Tail::default(), self.config.index_bytes_max());
        }
        if !(self.saved && self.config.read_only) {
            self.superblock.layout = self.layout.unwrap_or_default();
            self.superblock.table = self.superblock.table.filter(|_| self.layout.is_some());
        }
        self.set_tail(first);
        self.set_report();
        // What was saved is called used before anything is served: after a kill nothing of it
        // counts.
        (self.superblock.clean, self.superblock.boot) = (false, self.config.boot.filter(|_| self.layout.is_some()));
        fault_point!("tier_parked_not_called_used", self.saved, {
            self.is_done = true;
            return;
        });
        if self.config.read_only {
            self.is_done = true;
        } else if self.layout.is_some() {
            self.write_tail(false, effects);
        } else {
            self.write_superblock(effects);
        }
    }

    /// The tail with which this life begins.
    fn set_tail(&mut self, first: u64) {
        let is_recovered = self.report.start == Start::Recovered;
        let newest_tail = self.newest_tail().map_or(0, |tail| tail.number);
        let recovery = &mut self.recovery;
        let last_page = recovery.log.iter().last().map(|stored| stored.end());
        let tail = &mut recovery.tail;
        if !is_recovered {
            // Nothing on record matters: there is nothing on the volume, or the table says what is.
            (tail.first, tail.next, tail.untrusted) = (first, first, 0);
            tail.records.clear();
            recovery.newest_of.clear();
        }
        fault_point!("tier_flush_forgotten_at_restart", tail.flush_watermarks.clear());
        (tail.ends, tail.since) = (recovery.last.max(tail.low.saturating_sub(1)), first);
        tail.newest = tail.newest.max(recovery.last);
        // Not over the tail that counts until this one is there.
        tail.number = (first + 1).max(newest_tail + 1);
        if newest_tail != 0 && tail.number % 2 == newest_tail % 2 {
            tail.number += 1;
        }
        let start = tail.low_page;
        recovery.log.set_head(last_page.unwrap_or(start));
    }

    fn set_report(&mut self) {
        let recovery = &self.recovery;
        self.report.items = recovery.index.len() as u64;
        self.report.segments = recovery.log.len() as u64;
        self.report.untrusted_segments = recovery.untrusted_segments;
        self.report.invalidated = recovery.invalidated;
    }

    /// Both are written, so that one that cannot be read is always one that was there.
    fn write_tail(&mut self, second: bool, effects: &mut Effects) {
        self.recovery.tail.number += u64::from(second);
        let page = TAIL_PAGE + self.recovery.tail.number % 2;
        let mut bytes = vec![0; PAGE_BYTES];
        self.recovery.tail.encode(&self.config.uuid, page, &mut bytes);
        self.write(page, &bytes, OpenerIoPurpose::WriteTail(second), effects);
    }

    /// A ring that was not there before is written once, with zeros: a disk that is full later has
    /// its pages all the same.
    fn reserve_ring(&mut self, done: u64, effects: &mut Effects) {
        let is_new = matches!(self.report.start, Start::Created | Start::Emptied);
        let pages = (self.superblock.layout.ring_pages - done).min(RESERVED_PAGES);
        if !is_new || pages == 0 {
            return self.write_superblock(effects);
        }
        let zeros = vec![0; pages as usize * PAGE_BYTES];
        self.write(TAIL_PAGE + 2 + done, &zeros, OpenerIoPurpose::WriteRing(done + pages), effects);
    }

    fn write_superblock(&mut self, effects: &mut Effects) {
        self.superblock.generation += 1;
        let mut bytes = vec![0; PAGE_BYTES];
        self.superblock.encode(&self.config.uuid, &mut bytes);
        self.write(self.superblock.generation % 2, &bytes, OpenerIoPurpose::WriteSuperblock, effects);
    }

    /// A new volume has two superblocks from the beginning. And where one could not be read, both
    /// are written before anything is served: else the other one, read alone the next time too,
    /// would have versions given twice.
    fn superblock_written(&mut self, effects: &mut Effects) {
        self.superblocks_left = self.superblocks_left.saturating_sub(1);
        if self.superblocks_left > 0 {
            return self.write_superblock(effects);
        }
        self.is_done = true;
    }

    fn tier(self) -> Tier {
        let first = self.superblock.first_number();
        let Recovery { index, log, tail, newest_of, crowded_out, .. } = self.recovery;
        let mut evictions = Evictions::new(self.config.memory_bytes);
        evictions.count(DropReason::IndexFull, crowded_out);
        let flush_watermarks = tail.flush_watermarks.clone();
        let (has_volume, ring_pages) = (self.layout.is_some() || self.saved, self.superblock.layout.ring_pages);
        let volume = has_volume.then(|| {
            let lapped = log.oldest().is_some_and(|stored| stored.page != self.superblock.layout.log_page);
            let journal = Journal::new(self.config.uuid, TAIL_PAGE, ring_pages, tail, newest_of);
            Volume { lapped, ..Volume::new(log, journal, first + 1, self.saved.then(Saving::default)) }
        });
        let index = if has_volume { index } else { Index::new(self.config.index_bytes_max()) };
        Tier {
            cap: MemoryCap::new(&self.config),
            index,
            evictions,
            segments: Segments::new(first),
            volume,
            fetches: Fetches::default(),
            listings: Default::default(),
            io: IoTable::new(),
            operations: Default::default(),
            versions: Versions::new(self.superblock.version.max(first), flush_watermarks),
            superblock: SuperblockWriter::new(self.superblock),
            now: Now::default(),
            ending: Default::default(),
            counters: Counters { recovered: self.report, ..Counters::default() },
            config: self.config,
        }
    }
}

impl Opener for TierOpener {
    type Shard = Tier;

    fn start(&mut self, effects: &mut Effects) {
        if let Some(layout) = self.layout.filter(|layout| layout.log_pages < LOG_PAGES_MIN) {
            let wanted = (layout.log_page + LOG_PAGES_MIN) * PAGE_BYTES as u64;
            let given = self.config.capacity_bytes.unwrap_or_default();
            return self.io.fail(Error::Option(format!(
                "a volume of {given} bytes is too small for the second tier: give it at least {wanted}, or none"
            )));
        }
        if self.create {
            return self.begin_writing(effects);
        }
        self.read(0, 1, OpenerIoPurpose::Superblock(0), effects);
        self.read(1, 1, OpenerIoPurpose::Superblock(1), effects);
    }

    fn complete(&mut self, io: Io, outcome: IoOutcome, effects: &mut Effects) {
        let Some(step) = self.io.finish(io) else { return };
        match (step, outcome) {
            (OpenerIoPurpose::Superblock(slot), IoOutcome::Read(block, result)) => {
                self.superblock_read(slot, &block, result, effects)
            }
            (OpenerIoPurpose::Tail(slot), IoOutcome::Read(block, result)) => {
                self.tail_read(slot, &block, result, effects)
            }
            (OpenerIoPurpose::Ring(position), IoOutcome::Read(block, result)) => {
                self.ring_read(position, &block, result, effects)
            }
            (OpenerIoPurpose::Table(number), IoOutcome::Read(block, result)) => {
                self.table_read(number, &block, result, effects)
            }
            (OpenerIoPurpose::Head(page, wrapped), IoOutcome::Read(block, result)) => {
                self.head_read(page, wrapped, &block, result, effects)
            }
            (OpenerIoPurpose::Summary(stored, head, pages), IoOutcome::Read(block, result)) => {
                self.summary_read((stored, head, pages), &block, result, effects);
            }
            (OpenerIoPurpose::WriteTail(false), IoOutcome::Write(Ok(()))) => self.write_tail(true, effects),
            (OpenerIoPurpose::WriteTail(true), IoOutcome::Write(Ok(()))) => self.reserve_ring(0, effects),
            (OpenerIoPurpose::WriteRing(next), IoOutcome::Write(Ok(()))) => self.reserve_ring(next, effects),
            // What was there before opens on a full disk too, to be made shorter, say. If the
            // journal finds no place later, the volume is given up then.
            (OpenerIoPurpose::WriteRing(_), IoOutcome::Write(Err(IoFault::Full))) if !self.create => {
                self.write_superblock(effects)
            }
            (OpenerIoPurpose::WriteRing(_), IoOutcome::Write(Err(fault))) => {
                self.io.fail(Error::Io { what: "reserving the journal's place on the volume", fault });
            }
            (OpenerIoPurpose::WriteSuperblock, IoOutcome::Write(Ok(()))) => self.superblock_written(effects),
            (_, IoOutcome::Write(Err(fault))) => self.io.fail(Error::Io { what: OPENING, fault }),
            _ => {}
        }
    }

    fn progress(&self) -> Progress {
        Progress {
            done_bytes: self.report.read_bytes,
            total_bytes: match self.superblock.table.filter(|_| self.saved) {
                Some(table) => (table.pages() + 2) * PAGE_BYTES as u64,
                None => self.superblock.layout.log_pages * PAGE_BYTES as u64,
            },
        }
    }

    fn is_finished(&self) -> bool {
        self.io.is_idle()
    }

    fn finish(mut self) -> Result<Tier, Error> {
        self.io.result()?;
        match self.is_done {
            true => Ok(self.tier()),
            false => Err(Error::Unknown("the opener was not carried to its end")),
        }
    }
}
