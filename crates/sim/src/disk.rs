//! A disk with a volatile write cache, which fails on command.
//!
//! What the medium promises is little (RELIABILITY: fault model): requests complete in any order; a
//! completed write may be lost by a power cut until a flush *submitted after its completion* has
//! completed; what is cut may be there in part, in sectors of 512 bytes; a write that completes
//! only when durable (FUA) covers itself and nothing else. On command it fails, is full, or lies.

use std::collections::{BTreeMap, BTreeSet};

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::random::Random;
use stratakv_device::{DiskOutcome, DiskRequest, IoFault};

use crate::coverage::{Call, Coverage, Fault, StorePhase};
use crate::nvme::{NvmeFront, Quirk};

mod cut;

const SECTOR_BYTES: usize = 512;
/// EIO.
const EIO: IoFault = IoFault::Os(5);

type Page = Box<[u8]>;

/// What kind of disk.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// Writes beyond this many bytes are answered `Full`.
    pub capacity_bytes: u64,
    /// Completed writes are durable only when flushed.
    pub volatile_cache: bool,
}

/// How often requests fail or lie, in parts of 65,536.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chances {
    /// A request takes much longer than the others.
    pub delay: u16,
    /// EIO, once.
    pub read_error: u16,
    /// EIO, once; part of it may be written.
    pub write_error: u16,
    /// EIO, once; part of what it covered is lost.
    pub flush_error: u16,
    /// From now on, requests of this kind fail until [`Disk::repair`] (reads: of this place).
    pub error_forever: u16,
    /// A write finds no space.
    pub full: u16,
    /// One bit is wrong: in what a read returns, or in what a write leaves.
    pub flip: u16,
    /// A read returns what was there before the last write.
    pub stale: u16,
    /// Another place is read or written.
    pub misdirected: u16,
    /// A write is acknowledged and not done.
    pub lost: u16,
}

/// What fails until repaired.
#[derive(Clone, Debug, Default)]
pub struct Broken {
    reads_of: Vec<u64>,
    writes: bool,
    flushes: bool,
}

impl Broken {
    /// Whether anything fails.
    pub fn is_any(&self) -> bool {
        self.writes || self.flushes || !self.reads_of.is_empty()
    }
}

#[derive(Debug)]
struct InFlight {
    tag: u64,
    request: DiskRequest,
    call: Call,
    number: u64,
    /// Writes completed before its submission have smaller numbers.
    completed: u64,
    ready_at: u64,
}

/// A page in the volatile cache.
#[derive(Debug)]
struct Cached {
    page: u64,
    bytes: Page,
    /// Number of the write it was part of, in order of completion.
    write: u64,
    call: Call,
}

/// See the module.
#[derive(Debug)]
pub struct Disk {
    options: DiskOptions,
    /// What reads see.
    current: Vec<u8>,
    /// What survives a power cut in any case.
    stable: Vec<u8>,
    cached: Vec<Cached>,
    in_flight: Vec<InFlight>,
    /// Completed writes.
    completed: u64,
    submitted: u64,
    tick: u64,
    chances: Chances,
    broken: Broken,
    /// What was on a page before its last write; kept while reads may be stale.
    before: BTreeMap<u64, Page>,
    spare: Vec<Page>,
    /// Pages written last, a ring.
    recent: [u64; 16],
    failed_flushes: u64,
    failed: u64,
    full: u64,
    phase: StorePhase,
    coverage: Coverage,
    /// What drives it, if requests go through a driver.
    front: Option<Box<NvmeFront>>,
    /// Pages that were discarded and not zero-written since, if that is asked of an engine.
    holes: Option<BTreeSet<u64>>,
}

impl Disk {
    /// An empty disk behind an NVMe controller: requests go through the real driver.
    pub fn driven(options: DiskOptions) -> Disk {
        Disk { front: Some(Box::new(NvmeFront::new(options))), ..Disk::new(options) }
    }

    /// An empty disk.
    pub fn new(options: DiskOptions) -> Disk {
        Disk {
            options,
            holes: None,
            current: Vec::new(),
            stable: Vec::new(),
            cached: Vec::new(),
            in_flight: Vec::new(),
            completed: 0,
            submitted: 0,
            tick: 0,
            chances: Chances::default(),
            broken: Broken::default(),
            before: BTreeMap::new(),
            spare: Vec::new(),
            recent: [0; 16],
            failed_flushes: 0,
            failed: 0,
            full: 0,
            phase: StorePhase::default(),
            coverage: Coverage::default(),
            front: None,
        }
    }

    /// What was asked of it.
    pub fn options(&self) -> DiskOptions {
        self.options
    }

    /// From now on, requests count for this phase of the store's life.
    pub fn set_phase(&mut self, phase: StorePhase) {
        self.phase = phase;
    }

    /// How often requests fail from now on.
    pub fn set_chances(&mut self, chances: Chances) {
        self.chances = chances;
    }

    /// What fails for ever works again, as after an exchange of the cable; data stays as it is.
    pub fn repair(&mut self) {
        self.broken = Broken::default();
    }

    /// As [`Disk::repair`], until [`Disk::break_again`].
    pub fn mend_for_now(&mut self) -> Broken {
        std::mem::take(&mut self.broken)
    }

    /// What was mended for a while fails again.
    pub fn break_again(&mut self, broken: Broken) {
        self.broken = broken;
    }

    /// Which faults were met so far.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Flushes that failed so far: each may have lost what had been written before it.
    pub fn failed_flushes(&self) -> u64 {
        self.failed_flushes
    }

    /// Requests answered with EIO so far.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Writes answered `Full` so far.
    pub fn full(&self) -> u64 {
        self.full
    }

    /// Length: the end of the furthest write.
    pub fn len_bytes(&self) -> u64 {
        self.current.len() as u64
    }

    /// What reads see.
    pub fn bytes(&self) -> &[u8] {
        &self.current
    }

    /// Replaces the medium; nothing is cached or in flight.
    pub fn restore(&mut self, image: &[u8]) {
        self.current = image.to_vec();
        self.stable = image.to_vec();
        self.cached.clear();
        self.in_flight.clear();
        self.exchange_front();
    }

    /// The process that drove it is gone; another one begins.
    fn exchange_front(&mut self) {
        if self.front.take().is_some() {
            self.front = Some(Box::new(NvmeFront::new(self.options)));
        }
    }

    /// Pages written last: most hold what is current.
    pub fn recent(&self) -> [u64; 16] {
        self.recent
    }

    /// Flips bits of the byte at `offset`, on the medium.
    pub fn flip(&mut self, offset: usize, mask: u8) {
        for image in [&mut self.current, &mut self.stable] {
            if let Some(byte) = image.get_mut(offset) {
                *byte ^= mask;
            }
        }
    }

    /// Queues a request.
    ///
    /// # Panics
    /// It is not aligned to 4096 bytes: O_DIRECT would refuse it.
    pub fn submit(&mut self, tag: u64, request: DiskRequest, random: &mut Random) {
        match self.front.take() {
            None => self.accept(tag, request, random),
            Some(mut front) => {
                front.submit(tag, request, self, random);
                self.front = Some(front);
            }
        }
    }

    /// The same, of the disk itself.
    pub(crate) fn accept(&mut self, tag: u64, request: DiskRequest, random: &mut Random) {
        let call = call_of(&request);
        self.coverage.call(self.phase, call);
        tracing::trace!(tag, ?call, extent = ?extent(&request), "submitted");
        self.submitted += 1;
        let delayed = chance(random, self.chances.delay);
        let ready_at = if delayed { self.tick + 8 + random.below(200) } else { 0 };
        if delayed {
            self.coverage.hit(self.phase, call, Fault::Delayed);
        }
        let (number, completed) = (self.submitted, self.completed);
        self.in_flight.push(InFlight { tag, request, call, number, completed, ready_at });
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.front.as_ref().map_or(self.in_flight.len(), |front| front.in_flight())
    }

    /// Carries out one of the requests in flight.
    ///
    /// # Panics
    /// The driver never answers it.
    pub fn complete(&mut self, random: &mut Random) -> Option<(u64, DiskOutcome)> {
        let Some(mut front) = self.front.take() else { return self.carry_out(random) };
        let ended = front.complete(self, random);
        if let Some(fault) = ended.as_ref().and_then(|(_, outcome)| outcome.fault()) {
            self.full += u64::from(fault == IoFault::Full);
            self.failed += u64::from(matches!(fault, IoFault::Os(_)) && front.has_misbehaved);
        }
        self.front = Some(front);
        ended
    }

    /// Whether controllers do nothing wrong now.
    pub(crate) fn is_calm(&self) -> bool {
        self.chances.write_error == 0
    }

    /// What a controller does wrong with the next command, if it does: as often as a write fails.
    pub(crate) fn draw_quirk(&self, random: &mut Random) -> Option<Quirk> {
        let is_drawn = self.chances.write_error > 0 && chance(random, self.chances.write_error);
        is_drawn.then(|| match random.below(8) {
            0 => Quirk::Lost { abortable: false },
            1 => Quirk::Fatal,
            2 => Quirk::Twice,
            3 => Quirk::Lost { abortable: true },
            4 => Quirk::Late(50 + random.below(150) as u16),
            _ => Quirk::NotReady,
        })
    }

    /// The controller was reset: of what was in flight any part is done, and of what the cache held
    /// some is lost.
    pub(crate) fn reset(&mut self, random: &mut Random) {
        self.finish_in_flight(random);
        if self.options.volatile_cache {
            self.failed_flushes += 1;
            self.lose_cached(random);
        }
        self.failed += 1;
    }

    /// Carries out one of the disk's own.
    pub(crate) fn carry_out(&mut self, random: &mut Random) -> Option<(u64, DiskOutcome)> {
        self.tick += 1;
        let count = self.in_flight.len();
        if count == 0 {
            return None;
        }
        let start = random.below(count as u64) as usize;
        let ready = (0..count).map(|step| (start + step) % count);
        let at = ready.into_iter().find(|at| self.in_flight[*at].ready_at <= self.tick).unwrap_or(start);
        let InFlight { tag, request, call, number, completed, .. } = self.in_flight.swap_remove(at);
        if self.in_flight.iter().any(|other| other.number < number) {
            self.coverage.hit(self.phase, call, Fault::Reordered);
        }
        let outcome = match request {
            DiskRequest::Read { offset, mut block, len } => {
                let result = self.read(offset, &mut block[..len as usize], call, random);
                DiskOutcome::Read(block, result)
            }
            DiskRequest::Write { offset, parts, durable } => {
                let bytes: Vec<&[u8]> = parts.iter().map(|part| part.bytes()).collect();
                let pages = bytes.iter().flat_map(|bytes| bytes.chunks(PAGE_BYTES));
                self.fill_holes(offset, pages.clone());
                DiskOutcome::Write(self.write(offset, &pages.collect::<Vec<_>>(), durable, call, random))
            }
            DiskRequest::Flush => DiskOutcome::Flush(self.flush(completed, random)),
            DiskRequest::Allocate { offset, len } => DiskOutcome::Allocate(self.allocate(offset, len, random)),
            DiskRequest::Discard { offset, len } => {
                if let Some(holes) = &mut self.holes {
                    holes.extend(offset / PAGE_BYTES as u64..(offset + len) / PAGE_BYTES as u64);
                }
                let zeros = vec![0; PAGE_BYTES];
                let pages = vec![&zeros[..]; len as usize / PAGE_BYTES];
                DiskOutcome::Discard(self.write(offset, &pages, false, call, random))
            }
        };
        tracing::trace!(tag, ?call, ?outcome, "completed");
        Some((tag, outcome))
    }

    /// From now on what was discarded must be zero-written before it is used: only so does a full
    /// file system say so in time.
    pub fn demand_zeros(&mut self) {
        self.holes = Some(BTreeSet::new());
    }

    fn fill_holes<'p>(&mut self, offset: u64, pages: impl Iterator<Item = &'p [u8]>) {
        let Some(holes) = &mut self.holes else { return };
        for (number, page) in (offset / PAGE_BYTES as u64..).zip(pages) {
            let was_hole = holes.remove(&number);
            assert!(!was_hole || page.iter().all(|byte| *byte == 0), "page {number} is used, and was discarded");
        }
    }

    /// Nothing of it is seen afterwards, so nothing of it can be lost: a volume that is shorter
    /// after a crash is lengthened again.
    fn allocate(&mut self, offset: u64, len: u64, random: &mut Random) -> Result<(), IoFault> {
        assert!(aligned(offset, len as usize), "misaligned: {len} bytes at {offset}");
        let (chances, call) = (self.chances, Call::Allocate);
        if self.broken.writes || self.meets(chances.write_error, call, Fault::ErrorOnce, random) {
            self.failed += 1;
            return Err(EIO);
        }
        if offset + len > self.options.capacity_bytes || self.meets(chances.full, call, Fault::Full, random) {
            self.full += 1;
            return Err(IoFault::Full);
        }
        Ok(())
    }

    fn meets(&mut self, chance_of: u16, call: Call, fault: Fault, random: &mut Random) -> bool {
        let met = chance(random, chance_of);
        if met {
            self.coverage.hit(self.phase, call, fault);
        }
        met
    }

    fn read(&mut self, offset: u64, into: &mut [u8], call: Call, random: &mut Random) -> Result<(), IoFault> {
        assert!(aligned(offset, into.len()), "a misaligned read of {} bytes at {offset}", into.len());
        let chances = self.chances;
        let pages = offset / PAGE_BYTES as u64..(offset + into.len() as u64) / PAGE_BYTES as u64;
        if self.meets(chances.error_forever, call, Fault::ErrorForever, random) {
            self.broken.reads_of.push(pages.start + random.below(pages.end - pages.start));
        }
        if self.broken.reads_of.iter().any(|page| pages.contains(page))
            || self.meets(chances.read_error, call, Fault::ErrorOnce, random)
        {
            self.failed += 1;
            random.fill(&mut into[..64]);
            return Err(EIO);
        }
        let mut from = offset as usize;
        if self.meets(chances.misdirected, call, Fault::Misdirected, random) {
            from = random.below(self.current.len() as u64 / PAGE_BYTES as u64) as usize * PAGE_BYTES;
            from = from.min(self.current.len().saturating_sub(into.len()));
        }
        let bytes = self.current.get(from..).and_then(|bytes| bytes.get(..into.len())).ok_or(IoFault::Short)?;
        into.copy_from_slice(bytes);
        if chances.stale > 0 && chance(random, chances.stale) {
            for (number, piece) in pages.zip(into.chunks_mut(PAGE_BYTES)) {
                if let Some(before) = self.before.get(&number) {
                    piece.copy_from_slice(before);
                    self.coverage.hit(self.phase, call, Fault::Stale);
                }
            }
        }
        if self.meets(chances.flip, call, Fault::BitFlip, random) {
            let bit = random.below(into.len() as u64 * 8) as usize;
            into[bit / 8] ^= 1 << (bit % 8);
        }
        self.see_writes_in_flight(offset, into, random);
        Ok(())
    }

    /// A read beside a write of the same place sees any part of it.
    fn see_writes_in_flight(&self, offset: u64, into: &mut [u8], random: &mut Random) {
        let end = offset + into.len() as u64;
        for other in &self.in_flight {
            let DiskRequest::Write { offset: at, parts, .. } = &other.request else { continue };
            let mut at = *at;
            for part in parts {
                let bytes = part.bytes();
                if at < end && offset < at + bytes.len() as u64 {
                    for (number, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                        let place = (at + (number * SECTOR_BYTES) as u64).checked_sub(offset);
                        let seen = place.and_then(|place| into.get_mut(place as usize..place as usize + SECTOR_BYTES));
                        if let Some(seen) = seen.filter(|_| random.below(2) == 0) {
                            seen.copy_from_slice(sector);
                        }
                    }
                }
                at += bytes.len() as u64;
            }
        }
    }

    fn write(
        &mut self,
        offset: u64,
        pages: &[&[u8]],
        durable: bool,
        call: Call,
        random: &mut Random,
    ) -> Result<(), IoFault> {
        let len = pages.len() * PAGE_BYTES;
        let whole = pages.iter().all(|page| page.len() == PAGE_BYTES);
        assert!(whole && aligned(offset, len), "a misaligned write of {len} bytes at {offset}");
        let chances = self.chances;
        self.completed += 1;
        if self.meets(chances.error_forever, call, Fault::ErrorForever, random) {
            self.broken.writes = true;
        }
        if self.broken.writes || self.meets(chances.write_error, call, Fault::ErrorOnce, random) {
            self.failed += 1;
            for (number, page) in (offset / PAGE_BYTES as u64..).zip(pages) {
                if random.below(2) == 0 && (number + 1) * PAGE_BYTES as u64 <= self.options.capacity_bytes {
                    self.put(number, page, durable, call);
                }
            }
            return Err(EIO);
        }
        if offset + len as u64 > self.options.capacity_bytes || self.meets(chances.full, call, Fault::Full, random) {
            self.full += 1;
            return Err(IoFault::Full);
        }
        if self.meets(chances.lost, call, Fault::Lost, random) {
            return Ok(());
        }
        let mut first = offset / PAGE_BYTES as u64;
        let held = self.current.len() as u64 / PAGE_BYTES as u64;
        if held > pages.len() as u64 && self.meets(chances.misdirected, call, Fault::Misdirected, random) {
            first = random.below(held - pages.len() as u64 + 1);
        }
        let flipped = self.meets(chances.flip, call, Fault::BitFlip, random).then(|| random.below(len as u64 * 8));
        for (number, page) in (first..).zip(pages) {
            self.put(number, page, durable, call);
        }
        if let Some(bit) = flipped {
            self.flip_newest(first, bit as usize);
        }
        Ok(())
    }

    /// Wrong already when it reached the disk: so in the cache, and on the medium if it is there.
    fn flip_newest(&mut self, first: u64, bit: usize) {
        let at = first as usize * PAGE_BYTES + bit / 8;
        let page = (at / PAGE_BYTES) as u64;
        self.current[at] ^= 1 << (bit % 8);
        match self.cached.iter_mut().rev().find(|cached| cached.page == page) {
            Some(cached) => cached.bytes[at % PAGE_BYTES] ^= 1 << (bit % 8),
            None => self.stable[at] ^= 1 << (bit % 8),
        }
    }

    fn put(&mut self, page: u64, bytes: &[u8], durable: bool, call: Call) {
        self.recent.rotate_right(1);
        self.recent[0] = page;
        if self.chances.stale > 0
            && let Some(before) = self.current.get(page as usize * PAGE_BYTES..).and_then(|b| b.get(..PAGE_BYTES))
        {
            self.before.insert(page, before.into());
        }
        put(&mut self.current, page, bytes);
        if durable || !self.options.volatile_cache {
            // Older writes of this page that are still in the cache have been superseded there.
            self.cached.retain(|cached| cached.page != page);
            put(&mut self.stable, page, bytes);
        } else {
            let mut copy = self.spare.pop().unwrap_or_else(|| vec![0; PAGE_BYTES].into());
            copy.copy_from_slice(bytes);
            self.cached.push(Cached { page, bytes: copy, write: self.completed, call });
        }
    }

    fn flush(&mut self, completed: u64, random: &mut Random) -> Result<(), IoFault> {
        let chances = self.chances;
        if self.meets(chances.error_forever, Call::Flush, Fault::ErrorForever, random) {
            self.broken.flushes = true;
        }
        if self.broken.flushes || self.meets(chances.flush_error, Call::Flush, Fault::ErrorOnce, random) {
            self.failed_flushes += 1;
            self.failed += 1;
            self.lose_cached(random);
            return Err(EIO);
        }
        let covered = self.cached.iter().take_while(|cached| cached.write <= completed).count();
        for cached in self.cached.drain(..covered) {
            put(&mut self.stable, cached.page, &cached.bytes);
            self.spare.push(cached.bytes);
        }
        Ok(())
    }

    /// A flush failed: of what it covered, some pages are lost for good, at once or when the power
    /// fails.
    fn lose_cached(&mut self, random: &mut Random) {
        let doomed: Vec<u64> = self.cached.iter().map(|cached| cached.page).filter(|_| random.below(2) == 0).collect();
        self.cached.retain(|cached| !doomed.contains(&cached.page));
        for page in doomed {
            self.revert(page);
        }
    }

    /// Reads see the durable content of a page again.
    fn revert(&mut self, page: u64) {
        let range = page as usize * PAGE_BYTES..(page as usize + 1) * PAGE_BYTES;
        let Some(current) = self.current.get_mut(range.clone()) else { return };
        match self.stable.get(range) {
            Some(stable) => current.copy_from_slice(stable),
            None => current.fill(0),
        }
    }
}

fn put(image: &mut Vec<u8>, page: u64, bytes: &[u8]) {
    let at = page as usize * PAGE_BYTES;
    if image.len() < at + PAGE_BYTES {
        image.resize(at + PAGE_BYTES, 0);
    }
    image[at..at + PAGE_BYTES].copy_from_slice(bytes);
}

/// First page and number of pages.
fn extent(request: &DiskRequest) -> (u64, u64) {
    let page = PAGE_BYTES as u64;
    match request {
        DiskRequest::Read { offset, len, .. } => (offset / page, u64::from(*len) / page),
        DiskRequest::Write { offset, parts, .. } => {
            (offset / page, parts.iter().map(|part| u64::from(part.len)).sum::<u64>() / page)
        }
        DiskRequest::Flush => (0, 0),
        DiskRequest::Allocate { offset, len } | DiskRequest::Discard { offset, len } => (offset / page, len / page),
    }
}

fn call_of(request: &DiskRequest) -> Call {
    match request {
        DiskRequest::Read { len, .. } if *len as usize > PAGE_BYTES => Call::ReadLarge,
        DiskRequest::Read { .. } => Call::Read,
        DiskRequest::Write { durable: true, .. } => Call::WriteThrough,
        DiskRequest::Write { parts, .. } => {
            let len: u64 = parts.iter().map(|part| u64::from(part.len)).sum();
            if len as usize > PAGE_BYTES { Call::WriteLarge } else { Call::Write }
        }
        DiskRequest::Flush => Call::Flush,
        DiskRequest::Allocate { .. } => Call::Allocate,
        DiskRequest::Discard { .. } => Call::Discard,
    }
}

fn aligned(offset: u64, len: usize) -> bool {
    offset.is_multiple_of(PAGE_BYTES as u64) && len.is_multiple_of(PAGE_BYTES) && len > 0
}

fn chance(random: &mut Random, chance: u16) -> bool {
    chance > 0 && random.next_u64() as u16 <= chance
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stratakv_device::{BlockPart, Class, Pool};

    use super::*;

    struct Bench {
        disk: Disk,
        pool: Pool,
        random: Random,
    }

    impl Bench {
        fn new(seed: u64) -> Bench {
            let disk = Disk::new(DiskOptions { capacity_bytes: 1 << 20, volatile_cache: true });
            Bench { disk, pool: Pool::new(2 << 20), random: Random::new(seed) }
        }

        fn queue_write(&mut self, page: u64, byte: u8, durable: bool) {
            let mut block = self.pool.take(Class::Page).unwrap();
            block.fill(byte);
            let parts = vec![BlockPart::whole(Arc::new(block))];
            let offset = page * PAGE_BYTES as u64;
            self.disk.submit(page, DiskRequest::Write { offset, parts, durable }, &mut self.random);
        }

        fn write(&mut self, page: u64, byte: u8, durable: bool) -> Result<(), IoFault> {
            self.queue_write(page, byte, durable);
            match self.disk.complete(&mut self.random) {
                Some((_, DiskOutcome::Write(result))) => result,
                other => panic!("{other:?}"),
            }
        }

        fn flush(&mut self) {
            self.disk.submit(0, DiskRequest::Flush, &mut self.random);
            assert!(matches!(self.disk.complete(&mut self.random), Some((_, DiskOutcome::Flush(Ok(()))))));
        }

        fn bytes(&self, page: usize) -> Vec<u8> {
            let mut bytes = self.disk.bytes()[page * PAGE_BYTES..][..PAGE_BYTES].to_vec();
            bytes.dedup();
            bytes
        }
    }

    #[test]
    fn a_cut_takes_only_what_was_not_flushed() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let mut bench = Bench::new(seed);
            bench.write(3, 1, false).unwrap();
            bench.flush();
            bench.write(3, 2, false).unwrap();
            bench.write(4, 3, true).unwrap();
            bench.queue_write(5, 4, false);
            bench.disk.cut_power(&mut bench.random);
            assert_eq!(bench.bytes(4), [3], "written through");
            assert!(bench.bytes(3).iter().all(|byte| [1, 2].contains(byte)));
            seen.insert(bench.bytes(3));
        }
        assert!(seen.contains(&vec![1]) && seen.contains(&vec![2]) && seen.len() > 4, "torn in many ways: {seen:?}");
    }

    #[test]
    fn a_flush_covers_what_was_completed_before_it_was_asked_for() {
        let lost = (0..100).any(|seed| {
            let mut bench = Bench::new(seed);
            bench.write(0, 1, false).unwrap();
            bench.flush();
            bench.disk.submit(9, DiskRequest::Flush, &mut bench.random);
            bench.queue_write(0, 2, false);
            while bench.disk.complete(&mut bench.random).is_some() {}
            bench.disk.cut_power(&mut bench.random);
            bench.bytes(0) == [1]
        });
        assert!(lost, "the write completed after the flush was submitted: nothing makes it durable");
    }

    #[test]
    fn an_older_write_does_not_surface_over_one_written_through() {
        for seed in 0..50 {
            let mut bench = Bench::new(seed);
            bench.write(2, 1, false).unwrap();
            bench.write(2, 2, true).unwrap();
            bench.disk.cut_power(&mut bench.random);
            assert_eq!(bench.bytes(2), [2]);
        }
    }

    #[test]
    fn a_failed_flush_loses_data_and_a_kill_does_not() {
        let mut lost = 0;
        for seed in 0..50 {
            let mut bench = Bench::new(seed);
            bench.write(1, 1, false).unwrap();
            bench.flush();
            bench.write(1, 2, false).unwrap();
            bench.disk.kill(&mut bench.random);
            assert_eq!(bench.bytes(1), [2]);
            bench.disk.set_chances(Chances { flush_error: u16::MAX, ..Chances::default() });
            bench.disk.submit(0, DiskRequest::Flush, &mut bench.random);
            assert!(matches!(bench.disk.complete(&mut bench.random), Some((_, DiskOutcome::Flush(Err(_))))));
            lost += u32::from(bench.bytes(1) == [1]);
        }
        assert!((5..45).contains(&lost), "{lost}");
    }

    #[test]
    fn it_lies_on_command() {
        let mut bench = Bench::new(1);
        bench.disk.set_chances(Chances { stale: 1, ..Chances::default() });
        bench.write(0, 1, true).unwrap();
        bench.write(0, 2, true).unwrap();
        let read = |bench: &mut Bench, chances| {
            bench.disk.set_chances(chances);
            let block = bench.pool.take(Class::Page).unwrap();
            bench.disk.submit(0, DiskRequest::Read { offset: 0, block, len: 4096 }, &mut bench.random);
            match bench.disk.complete(&mut bench.random) {
                Some((_, DiskOutcome::Read(block, result))) => {
                    result.map(|()| block.iter().filter(|b| **b == 2).count())
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(read(&mut bench, Chances::default()), Ok(4096));
        assert_eq!(read(&mut bench, Chances { stale: u16::MAX, ..Chances::default() }), Ok(0));
        assert_eq!(read(&mut bench, Chances { flip: u16::MAX, ..Chances::default() }), Ok(4095));
        assert_eq!(read(&mut bench, Chances { read_error: u16::MAX, ..Chances::default() }), Err(EIO));
        assert_eq!(read(&mut bench, Chances { error_forever: u16::MAX, ..Chances::default() }), Err(EIO));
        assert_eq!(read(&mut bench, Chances::default()), Err(EIO), "for ever");
        bench.disk.repair();
        bench.disk.set_chances(Chances { lost: u16::MAX, ..Chances::default() });
        bench.write(0, 3, true).unwrap();
        assert_eq!(read(&mut bench, Chances::default()), Ok(4096));
        assert_eq!(bench.write(300, 1, false), Err(IoFault::Full));
    }
}
