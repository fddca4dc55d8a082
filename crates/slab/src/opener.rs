//! [`IndexedOpener`]: creates a volume, or recovers one, as a state machine like the shard itself.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_base::{Corruption, Place, Unreadable, fault_point};
use stratakv_chassis::opener::OpenerIo;
use stratakv_chassis::superblock::{SuperblockError, SuperblockPair};
use stratakv_device::{Block, Class, IoFault};
use stratakv_engine::{Effects, Error, Io, IoOutcome, Opener, Progress};

use crate::config::{RecoveryReport, SlabConfig};
use crate::grow::{initial_pages, zero_parts};
use crate::placement::Placement;
use crate::recovery::{REPORTED_MAX, RecoveredShard, WHOLE_VOLUME};
use crate::shard::IndexedShard;
use crate::space::{SEGMENT_PAGES, offset};
use crate::superblock::{INCARNATIONS_MAX, Superblock};

/// Slices read ahead by recovery.
const AHEAD: usize = 16;
/// No record takes less, in either placement.
const RECORD_BYTES_MIN: u64 = 32;
/// Smallest volume, in pages.
const PAGES_MIN: u32 = 16;

/// Contiguous pages to be read at once: the first, and how many.
pub(crate) type Range = (u32, u32);

const SLICE_PAGES: u32 = (SLICE_BYTES / PAGE_BYTES) as u32;

/// Ranges in pieces that are read at once.
pub(crate) fn slices(ranges: Vec<Range>) -> Vec<Range> {
    let mut slices = Vec::new();
    for (first, pages) in ranges {
        let mut at = 0;
        while at < pages {
            let len = (pages - at).min(SLICE_PAGES);
            slices.push((first + at, len));
            at += len;
        }
    }
    slices
}

/// Judges the pages of a volume: which of them hold, and which record of each key. No I/O.
pub(crate) trait Scanner<P>: Debug + Send {
    /// What is read first.
    fn first_ranges(&self) -> Vec<Range>;
    /// Takes the next page of what was asked for.
    fn page(&mut self, number: u32, page: &mut [u8]);
    /// A slice cannot be read; zeros are given for it.
    fn unreadable(&mut self, page: u32);
    /// Whether what cannot be read now is done without.
    fn may_do_without(&self) -> bool {
        false
    }
    /// Everything asked for has been given: what is to be read next, or nothing more.
    fn next_ranges(&mut self, _digest: Option<u64>) -> Option<Vec<Range>> {
        None
    }
    /// Everything is read: what was found, and whether something is to be repaired.
    fn finish(self, digest: Option<u64>) -> (RecoveredShard<P>, bool);
}

/// Creates or recovers an [`IndexedShard`].
#[derive(Debug)]
pub enum IndexedOpener<P: Placement> {
    /// Lays out a new volume.
    Create(Box<Creation<P>>),
    /// Opens an existing one.
    Recover(Box<Recovery<P>>),
}

impl<P: Placement> IndexedOpener<P> {
    /// Lays out a new, empty volume: 4 MiB of zeros and two superblocks, flushed.
    pub fn create(config: SlabConfig) -> Self {
        let superblock = Superblock {
            shard: config.shard,
            shards: config.shards,
            incarnation: 1,
            segment_pages: P::segment_pages(&config),
            ..Superblock::default()
        };
        let last = LastWrites::new(superblock, Vec::new());
        let (io, placement) = (OpenerIo::default(), PhantomData);
        IndexedOpener::Create(Box::new(Creation { config, next: 0, to: 0, zeroes: None, last, io, placement }))
    }

    /// Opens an existing volume: reads all of it, checks every record and rebuilds index and space
    /// maps (KVell paper, section 5.6). Writes nothing but zeros over pages torn by the crash, and
    /// the superblocks; a crash during recovery changes nothing.
    pub fn recover(config: SlabConfig) -> Self {
        IndexedOpener::Recover(Box::new(Recovery {
            config,
            superblocks: SuperblockPair::default(),
            superblock: None,
            repaired: false,
            scanner: None,
            found: None,
            ranges: Vec::new(),
            next: 0,
            looked_at: 0,
            arrived: BTreeMap::new(),
            last: None,
            io: OpenerIo::default(),
            read_bytes: 0,
            unreadable: Vec::new(),
        }))
    }
}

impl<P: Placement> Opener for IndexedOpener<P> {
    type Shard = IndexedShard<P>;

    fn start(&mut self, effects: &mut Effects) {
        match self {
            IndexedOpener::Create(creation) => creation.start(effects),
            IndexedOpener::Recover(recovery) => recovery.start(effects),
        }
    }

    fn complete(&mut self, io: Io, outcome: IoOutcome, effects: &mut Effects) {
        match self {
            IndexedOpener::Create(creation) => creation.complete(io, outcome, effects),
            IndexedOpener::Recover(recovery) => recovery.complete(io, outcome, effects),
        }
    }

    fn progress(&self) -> Progress {
        let page = PAGE_BYTES as u64;
        match self {
            IndexedOpener::Create(creation) => {
                Progress { done_bytes: u64::from(creation.next) * page, total_bytes: u64::from(creation.to) * page }
            }
            IndexedOpener::Recover(recovery) => Progress {
                done_bytes: recovery.read_bytes,
                total_bytes: recovery.superblock.map_or(recovery.config.volume_bytes, |found| found.usable_bytes),
            },
        }
    }

    fn is_finished(&self) -> bool {
        match self {
            IndexedOpener::Create(creation) => creation.io.is_idle(),
            IndexedOpener::Recover(recovery) => recovery.io.is_idle(),
        }
    }

    fn finish(self) -> Result<IndexedShard<P>, Error> {
        match self {
            IndexedOpener::Create(creation) => creation.finish(),
            IndexedOpener::Recover(recovery) => recovery.finish(),
        }
    }
}

/// The last writes of creation and recovery: pages to be zeroed, a flush, superblock 0,
/// superblock 1.
#[derive(Debug)]
struct LastWrites {
    superblock: Superblock,
    zero: VecDeque<u32>,
    step: u64,
    done: bool,
}

impl LastWrites {
    fn new(superblock: Superblock, zero: Vec<u32>) -> LastWrites {
        LastWrites { superblock, zero: zero.into(), step: 0, done: false }
    }

    /// Submits the next request.
    fn next<T>(&mut self, uuid: &[u8; 16], io: &mut OpenerIo<T>, purpose: T, effects: &mut Effects) {
        if let Some(page) = self.zero.pop_front() {
            return io.write((page.into(), 1), false, purpose, effects, |block| block.fill(0));
        }
        fault_point!("recovery_without_a_flush", self.step == 0, self.step = 1);
        fault_point!("one_superblock_copy", self.step == 2, self.step = 3);
        match self.step {
            0 => effects.flush(io.start(purpose)),
            1 | 2 => {
                let encode = |page: &mut [u8]| self.superblock.encode(uuid, page);
                io.write((self.step - 1, 1), true, purpose, effects, encode);
            }
            _ => self.done = true,
        }
        self.step += 1;
    }
}

/// A volume being created.
#[derive(Debug)]
pub struct Creation<P: Placement> {
    config: SlabConfig,
    next: u32,
    to: u32,
    zeroes: Option<Arc<Block>>,
    last: LastWrites,
    io: OpenerIo<()>,
    placement: PhantomData<P>,
}

impl<P: Placement> Creation<P> {
    fn start(&mut self, effects: &mut Effects) {
        self.to = initial_pages(self.config.capacity_bytes, self.last.superblock.segment_pages);
        self.last.superblock.usable_bytes = offset(self.to);
        if self.to < PAGES_MIN {
            let bytes = offset(PAGES_MIN);
            let why = format!("the capacity is too small: give each shard {bytes} bytes at least");
            return self.io.fail(Error::Option(why));
        }
        let Some(mut block) = self.io.block(SEGMENT_PAGES.into(), effects) else { return };
        block.fill(0);
        self.zeroes = Some(Arc::new(block));
        self.step(effects);
    }

    fn step(&mut self, effects: &mut Effects) {
        if let Some(zeroes) = self.zeroes.as_ref().filter(|_| self.next < self.to) {
            let end = (self.next + SEGMENT_PAGES).min(self.to);
            effects.write(self.io.start(()), offset(self.next), zero_parts(zeroes, end - self.next), false);
            self.next = end;
            return;
        }
        self.zeroes = None;
        self.last.next(&self.config.uuid, &mut self.io, (), effects);
    }

    fn complete(&mut self, io: Io, outcome: IoOutcome, effects: &mut Effects) {
        if self.io.finish(io).is_none() {
            return;
        }
        match outcome.fault() {
            Some(IoFault::Full) => self.io.fail(Error::Full("no space for a new volume")),
            Some(fault) => self.io.fail(Error::Io { what: "creating a volume", fault }),
            None => self.step(effects),
        }
    }

    fn finish(mut self) -> Result<IndexedShard<P>, Error> {
        self.io.result()?;
        if !self.last.done {
            return Err(Error::Unknown("the volume is not complete"));
        }
        let superblock = self.last.superblock;
        let found = RecoveredShard::empty(P::create(&superblock), self.to);
        let mut shard = IndexedShard::build(self.config, superblock, found);
        P::extended(&mut shard);
        Ok(shard)
    }
}

/// What a request of recovery is for.
#[derive(Clone, Copy, Debug)]
enum OpenerIoPurpose {
    Superblock(usize),
    Slice(usize),
    Last,
}

/// A volume being recovered.
#[derive(Debug)]
pub struct Recovery<P: Placement> {
    config: SlabConfig,
    superblocks: SuperblockPair<Superblock>,
    superblock: Option<Superblock>,
    repaired: bool,
    scanner: Option<P::Scanner>,
    found: Option<RecoveredShard<P>>,
    /// What is read, in order; the next of it to ask for, and to look at.
    ranges: Vec<Range>,
    next: usize,
    looked_at: usize,
    arrived: BTreeMap<usize, Block>,
    last: Option<LastWrites>,
    io: OpenerIo<OpenerIoPurpose>,
    read_bytes: u64,
    unreadable: Vec<Unreadable>,
}

impl<P: Placement> Recovery<P> {
    fn start(&mut self, effects: &mut Effects) {
        if self.config.volume_bytes < 2 * PAGE_BYTES as u64 {
            let why = format!(
                "the volume of shard {} has {} bytes, too few for its superblocks: it was cut short or its creation was interrupted; restore it from a backup",
                self.config.shard, self.config.volume_bytes
            );
            return self.io.fail(Error::WrongVolume(why));
        }
        (0..2).for_each(|slot| self.io.read(slot, 1, OpenerIoPurpose::Superblock(slot as usize), effects));
    }

    fn complete(&mut self, io: Io, outcome: IoOutcome, effects: &mut Effects) {
        let Some(purpose) = self.io.finish(io) else { return };
        match (purpose, outcome) {
            (OpenerIoPurpose::Superblock(slot), IoOutcome::Read(block, result)) => {
                self.superblocks.read(slot, result, || Superblock::decode(&self.config.uuid, &block));
                drop(block);
                if self.superblocks.is_read() {
                    match self.choose_superblock() {
                        Ok(superblock) => self.start_scan(&superblock),
                        Err(error) => self.io.fail(error),
                    }
                }
            }
            (OpenerIoPurpose::Slice(slice), IoOutcome::Read(mut block, Err(fault))) if self.may_do_without(fault) => {
                // Saves what can be read. For writing this would be dangerous: the pages would
                // count as free.
                block.fill(0);
                let (first, pages) = self.ranges.get(slice).copied().unwrap_or_default();
                if self.scanner.as_ref().is_some_and(|scanner| !scanner.may_do_without()) {
                    self.note_unreadable(first, pages, fault);
                }
                if let Some(scanner) = &mut self.scanner {
                    scanner.unreadable(first);
                }
                self.arrived.insert(slice, block);
                self.look();
            }
            (OpenerIoPurpose::Slice(_), IoOutcome::Read(_, Err(fault))) => {
                self.io.fail(Error::Io { what: "reading the volume (opened read-only, the rest can be saved)", fault });
            }
            (OpenerIoPurpose::Slice(slice), IoOutcome::Read(block, Ok(()))) => {
                self.arrived.insert(slice, block);
                self.look();
            }
            (OpenerIoPurpose::Last, outcome) => {
                if let Some(fault) = outcome.fault() {
                    self.io.fail(Error::Io { what: "writing a superblock", fault });
                }
            }
            (OpenerIoPurpose::Superblock(_) | OpenerIoPurpose::Slice(_), _) => {}
        }
        self.go_on(effects);
    }

    /// Whether the rest is looked at without what could not be read.
    fn may_do_without(&self, fault: IoFault) -> bool {
        let is_spare = || self.scanner.as_ref().is_some_and(Scanner::may_do_without);
        self.config.read_only || matches!(fault, IoFault::Os(_)) && is_spare()
    }

    fn choose_superblock(&mut self) -> Result<Superblock, Error> {
        let (pair, shard) = (std::mem::take(&mut self.superblocks), self.config.shard);
        pair.refuse_strangers()?;
        for (slot, error) in pair.errors() {
            match error {
                SuperblockError::Unreadable(fault) => self.note_unreadable(slot as u32, 1, *fault),
                error => {
                    tracing::debug!(shard, slot, ?error, "a superblock is damaged");
                    self.repaired = true;
                }
            }
        }
        let best = pair.choose((shard, self.config.shards))?;
        if (best.segment_pages > 0) != (P::segment_pages(&self.config) > 0) {
            let other = if best.segment_pages > 0 { "packed" } else { "in_place" };
            return Err(Error::WrongVolume(format!(
                "the volume of shard {shard} is of placement `{other}`, not `{}`: restore the store's manifest from a backup",
                P::NAME
            )));
        }
        // Written to, it would be as long as before, and nobody would know what is missing.
        if best.usable_bytes > self.config.volume_bytes && !self.config.read_only {
            return Err(Error::WrongVolume(format!(
                "the volume of shard {shard} has {} bytes but should have {}: it was cut short; restore it from a backup, or save what is left with `stratakv dump --skip-damaged` and load that into a new store",
                self.config.volume_bytes, best.usable_bytes
            )));
        }
        Ok(best)
    }

    fn note_unreadable(&mut self, first: u32, pages: u32, fault: IoFault) {
        let place = Place { shard: self.config.shard, offset_bytes: offset(first) };
        let len_bytes = u64::from(pages) * PAGE_BYTES as u64;
        let unreadable = Unreadable { place, len_bytes, why: fault.to_string() };
        if !self.unreadable.contains(&unreadable) && self.unreadable.len() < REPORTED_MAX {
            self.unreadable.push(unreadable);
        }
    }

    /// What zeros in place of unreadable bytes look like is no damage.
    fn tell_unreadable(&mut self, report: &mut RecoveryReport) {
        let unreadable = std::mem::take(&mut self.unreadable);
        if !unreadable.is_empty() {
            let is_known = |corruption: &Corruption| unreadable.iter().any(|one| one.holds(corruption.place));
            report.corrupt.retain(|corruption| corruption.what != WHOLE_VOLUME && !is_known(corruption));
        }
        report.unreadable = unreadable;
        self.tell_cut_short(report);
    }

    /// Places beyond the end of a volume that was cut short are no fault of the device: whatever
    /// lay there is lost.
    fn tell_cut_short(&self, report: &mut RecoveryReport) {
        let (has_bytes, usable_bytes) = (self.config.volume_bytes, self.superblock.map_or(0, |one| one.usable_bytes));
        if usable_bytes <= has_bytes {
            return;
        }
        report.unreadable.retain(|one| one.place.offset_bytes + one.len_bytes <= has_bytes);
        report.lost_unknown += (usable_bytes - has_bytes) / RECORD_BYTES_MIN;
        report.corrupt.push(Corruption {
            place: Place { shard: self.config.shard, offset_bytes: has_bytes },
            what: "the end of the volume",
            expected: format!("a volume of {usable_bytes} bytes"),
            found: format!("one of {has_bytes}: it was cut short"),
        });
    }

    fn start_scan(&mut self, superblock: &Superblock) {
        let scanner = P::scanner(&self.config, superblock);
        self.ranges = scanner.first_ranges();
        (self.scanner, self.superblock) = (Some(scanner), Some(*superblock));
    }

    /// Looks at the slices that have arrived, in order.
    fn look(&mut self) {
        let Some(scanner) = &mut self.scanner else { return };
        while let Some(mut block) = self.arrived.remove(&self.looked_at) {
            let Some(&(first, pages)) = self.ranges.get(self.looked_at) else { return };
            for (number, page) in (first..first + pages).zip(block.chunks_exact_mut(PAGE_BYTES)) {
                scanner.page(number, page);
            }
            self.read_bytes += u64::from(pages) * PAGE_BYTES as u64;
            self.looked_at += 1;
        }
    }

    fn go_on(&mut self, effects: &mut Effects) {
        let Some(superblock) = self.superblock.filter(|_| !self.io.has_failed()) else { return };
        let digest = superblock.clean.then_some(superblock.digest);
        while let Some(scanner) = &mut self.scanner {
            while let Some(&(first, pages)) = self.ranges.get(self.next).filter(|_| self.next < self.looked_at + AHEAD)
            {
                let Some(block) = effects.block(Class::Slice) else { break };
                let io = self.io.start(OpenerIoPurpose::Slice(self.next));
                effects.read(io, offset(first), block, pages * PAGE_BYTES as u32);
                self.next += 1;
            }
            if self.looked_at < self.ranges.len() {
                if self.io.is_idle() {
                    self.io.lacks_memory();
                }
                return;
            }
            match scanner.next_ranges(digest) {
                Some(ranges) => (self.ranges, self.next, self.looked_at) = (ranges, 0, 0),
                None => self.scanned(superblock, digest),
            }
        }
        if let Some(last) = &mut self.last
            && !last.done
        {
            last.next(&self.config.uuid, &mut self.io, OpenerIoPurpose::Last, effects);
        }
    }

    fn scanned(&mut self, mut superblock: Superblock, digest: Option<u64>) {
        let Some(scanner) = self.scanner.take() else { return };
        let (mut found, repaired) = scanner.finish(digest);
        self.repaired |= repaired;
        found.report.clean = superblock.clean;
        found.report.superblock_repaired = self.repaired;
        found.report.read_bytes = self.read_bytes;
        self.tell_unreadable(&mut found.report);
        superblock.incarnation = superblock.incarnation.max(found.last_number >> 40);
        superblock.incarnation += 1;
        fault_point!("versions_are_reused", superblock.incarnation -= 1);
        if superblock.incarnation >= INCARNATIONS_MAX && !self.config.read_only {
            // New versions and sequences would begin again below those on the volume.
            return self.io.fail(Error::Corrupt(Corruption {
                place: Place { shard: self.config.shard, offset_bytes: 0 },
                what: "the highest sequence number of the volume",
                expected: "one that leaves room for more (opened read-only, the records can be saved)".into(),
                found: found.last_number.to_string(),
            }));
        }
        superblock.generation += 1;
        superblock.clean = false;
        superblock.digest = 0;
        // The flush before the superblocks makes everything found durable: damage met later is no
        // torn write.
        superblock.durable = superblock.durable.max(found.last_number);
        if !self.config.read_only {
            self.last = Some(LastWrites::new(superblock, std::mem::take(&mut found.torn_places)));
        }
        self.superblock = Some(superblock);
        self.found = Some(found);
    }

    fn finish(mut self) -> Result<IndexedShard<P>, Error> {
        self.io.result()?;
        match (self.superblock, self.found) {
            (Some(superblock), Some(found)) if self.config.read_only || self.last.is_some_and(|last| last.done) => {
                Ok(IndexedShard::build(self.config, superblock, found))
            }
            _ => Err(Error::Unknown("recovery is not complete")),
        }
    }
}
