//! Drives a controller from user space: every kind of request against an oracle of pages, a reset
//! of the controller under them, an orderly end, and a process that is killed while it writes.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use stratakv_base::random::Random;
use stratakv_device::nvme::{Bus, Controller, Namespace, NvmeOptions, NvmeRing, Vfio};
use stratakv_device::{
    Completion, DiskOutcome, DiskRequest, IoFault, Pool, RawDevice, Ring, RingKind, Volume, Wait, open_ring, sync,
};

use super::super::guest::text;
use super::VOLUME;
use super::binding::{bind, give_back};
use super::pages::{self, PAGE_BYTES, Pages};

/// The first word of a process that is started to be killed.
pub(super) const VICTIM: &str = "bypass-victim";
/// Controller Configuration (NVMe base specification, 3.1.3.5); all zeros takes it out of service.
const CC: usize = 0x14;
/// Pages that are written to, at the device's begin.
const PAGES: usize = 2048;
const DEPTH: usize = 24;
const OPERATIONS: usize = 800;
/// Commands whose controller was stopped are given up after so long.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
const POOL_BYTES: usize = 16 << 20;
/// Writes of a victim between two flushes.
const BATCH: usize = 8;
/// Batches that are acknowledged before it is killed.
const BATCHES: u32 = 40;
/// Versions of a victim begin here.
const VICTIM_VERSION: u32 = 1 << 24;

pub(super) fn run(seed: u64) -> Result<String, String> {
    bind(VOLUME)?;
    let mut disk = Disk::open(Pages::new(PAGES), seed)?;
    let identity = disk.controller.identity().clone();
    disk.work(OPERATIONS, Faults::None)?;
    let compared = disk.compare()?;
    let faults = disk.reset_under_load()?;
    disk.work(OPERATIONS / 2, Faults::OneFlush)?;
    let compared = compared + disk.compare()?;
    let (counts, pages) = disk.close();

    let mut disk = Disk::open(pages, seed + 1)?;
    let compared = compared + disk.compare()?;
    disk.work(OPERATIONS / 4, Faults::None)?;
    let (_, mut pages) = disk.close();

    let batches = kill(seed, &mut pages)?;
    let mut disk = Disk::open(pages, seed + 2).map_err(|error| format!("after a kill: {error}"))?;
    let compared = compared + disk.compare().map_err(|error| format!("after a kill: {error}"))?;
    disk.work(OPERATIONS / 4, Faults::None)?;
    disk.close();
    give_back(VOLUME)?;
    Ok(format!(
        "{} {}, firmware {}, cache {}; {counts:?} (reads, writes, flushes, discards); {faults} requests failed in a reset, none was \
         forgotten; killed after {batches} batches; {compared} pages compared",
        identity.model_number,
        identity.serial_number,
        identity.firmware_revision,
        if identity.volatile_write_cache { "volatile" } else { "none" },
    ))
}

/// What an exercise may meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faults {
    None,
    /// The controller was reset: what its cache held may be lost, and the next flush says so.
    OneFlush,
    /// It is being reset.
    Any,
}

/// A request that is under way.
#[derive(Clone, Copy, Debug)]
enum Sent {
    Read { first: usize },
    Write { first: usize, count: usize, version: u32 },
    Flush,
    Discard { first: usize, count: usize },
}

impl Sent {
    fn pages(self) -> std::ops::Range<usize> {
        match self {
            // As many as a block of 64 KiB holds.
            Sent::Read { first } => first..first + 16,
            Sent::Write { first, count, .. } | Sent::Discard { first, count } => first..first + count,
            Sent::Flush => 0..0,
        }
    }
}

/// A controller, a volume on it, and what it must hold.
struct Disk {
    bus: Arc<Vfio>,
    controller: Arc<Controller>,
    volume: Arc<Volume>,
    ring: NvmeRing,
    pool: Pool,
    pages: Pages,
    random: Random,
    sent: HashMap<u64, Sent>,
    tags: u64,
    /// Done: reads, writes, flushes, discards.
    counts: [u64; 4],
}

impl Disk {
    fn open(pages: Pages, seed: u64) -> Result<Disk, String> {
        let bus = Arc::new(Vfio::open(VOLUME).map_err(|error| error.to_string())?);
        let options = NvmeOptions { command_timeout: COMMAND_TIMEOUT, ..NvmeOptions::default() };
        let shared: Arc<dyn Bus> = Arc::clone(&bus) as Arc<dyn Bus>;
        let controller = Controller::start(shared, options).map_err(text("start the controller"))?;
        let namespace = Namespace::open(&controller, 1).map_err(text("open the namespace"))?;
        let device = RawDevice::of_namespace(Path::new("nvme"), &namespace);
        let volume = device.range(0, (PAGES * PAGE_BYTES) as u64).map_err(text("take a range"))?;
        let ring = NvmeRing::new(open_ring(RingKind::IoUring, 64).map_err(text("open a ring"))?);
        Ok(Disk {
            bus,
            controller,
            volume: Arc::new(volume),
            ring,
            pool: Pool::new(POOL_BYTES),
            pages,
            random: Random::new(seed),
            sent: HashMap::new(),
            tags: 0,
            counts: [0; 4],
        })
    }

    /// Ends in order.
    fn close(self) -> ([u64; 4], Pages) {
        let Disk { ring, volume, pages, counts, .. } = self;
        drop(ring);
        volume.unlock();
        (counts, pages)
    }

    /// So many requests, [`DEPTH`] at a time, each answer compared.
    fn work(&mut self, count: usize, mut faults: Faults) -> Result<(), String> {
        for _ in 0..count {
            while self.sent.len() >= DEPTH {
                self.collect(&mut faults)?;
            }
            self.begin()?;
        }
        self.end_all(&mut faults).map(drop)
    }

    /// Waits for all that is under way; how many failed.
    fn end_all(&mut self, faults: &mut Faults) -> Result<u64, String> {
        let mut failed = 0;
        while !self.sent.is_empty() {
            failed += self.collect(faults)?;
        }
        match self.ring.in_flight() {
            0 => Ok(failed),
            left => Err(format!("all requests were answered, and the ring has {left} more")),
        }
    }

    /// One more request, on pages that no other one is under way for.
    fn begin(&mut self) -> Result<(), String> {
        let most = if self.random.below(4) == 0 { 40 } else { 4 };
        let count = 1 + self.random.below(most) as usize;
        let first = self.random.below((PAGES - 40) as u64) as usize;
        let kind = self.random.below(20);
        let sent = match kind {
            0..=7 => Sent::Read { first },
            8..=17 => Sent::Write { first, count, version: self.pages.next_version() },
            18 => Sent::Flush,
            _ => Sent::Discard { first, count },
        };
        let range = sent.pages();
        if self.sent.values().any(|other| range.start < other.pages().end && other.pages().start < range.end) {
            return Ok(());
        }
        let durable = self.random.below(3) == 0;
        let request = match sent {
            Sent::Read { first } => pages::read(&self.pool, first, 16)?,
            Sent::Write { first, count, version } => pages::write(&self.pool, (first, count), version, durable)?,
            Sent::Flush => DiskRequest::Flush,
            Sent::Discard { first, count } => {
                DiskRequest::Discard { offset: (first * PAGE_BYTES) as u64, len: (count * PAGE_BYTES) as u64 }
            }
        };
        self.tags += 1;
        self.sent.insert(self.tags, sent);
        self.ring.disk(self.tags, &self.volume, request);
        Ok(())
    }

    /// Takes answers; how many were faults.
    fn collect(&mut self, faults: &mut Faults) -> Result<u64, String> {
        let timeout = Some(Duration::from_secs(1));
        self.ring.submit(Wait::For { completions: 1, timeout }).map_err(text("wait for the ring"))?;
        let mut completions = Vec::new();
        self.ring.reap(&mut completions);
        let mut failed = 0;
        for completion in completions {
            let Completion::Disk { tag, outcome } = completion else { return Err("an answer of no disk".into()) };
            let sent = self.sent.remove(&tag).ok_or_else(|| format!("an answer to nothing, {tag}"))?;
            if let Err(fault) = self.take(sent, outcome)? {
                failed += 1;
                match (*faults, sent) {
                    (Faults::Any, _) => {}
                    (Faults::OneFlush, Sent::Flush) => *faults = Faults::None,
                    _ => return Err(format!("{sent:?} failed: {fault}")),
                }
            }
        }
        Ok(failed)
    }

    /// Compares an answer with what is known, and learns from it.
    fn take(&mut self, sent: Sent, outcome: DiskOutcome) -> Result<Result<(), IoFault>, String> {
        let (kind, result) = match (sent, outcome) {
            (Sent::Read { first }, DiskOutcome::Read(block, result)) => {
                if result.is_ok() {
                    for (page, bytes) in (first..).zip(block.chunks_exact(PAGE_BYTES)) {
                        self.pages.check(page, bytes)?;
                    }
                }
                (0, result)
            }
            (Sent::Write { first, count, version }, DiskOutcome::Write(result)) => {
                match result {
                    Ok(()) => self.pages.written(first, count, version),
                    Err(_) => self.pages.maybe_written(first, count, version),
                }
                (1, result)
            }
            (Sent::Flush, DiskOutcome::Flush(result)) => (2, result),
            // Zeros, or what was there.
            (Sent::Discard { first, count }, DiskOutcome::Discard(result)) => {
                self.pages.maybe_written(first, count, 0);
                (3, result)
            }
            (sent, outcome) => return Err(format!("{sent:?} was answered {outcome:?}")),
        };
        if let Some(count) = self.counts.get_mut(kind) {
            *count += 1;
        }
        Ok(result)
    }

    /// Takes the controller out of service with requests under way: the driver must find out by
    /// itself, answer each of them, and go on.
    fn reset_under_load(&mut self) -> Result<u64, String> {
        self.begin_many()?;
        self.bus.write_u32(CC, 0);
        let failed = self.end_all(&mut Faults::Any)?;
        if failed > 0 {
            return Ok(failed);
        }
        // All were done before it stopped: those that come now are not.
        self.begin_many()?;
        let failed = self.end_all(&mut Faults::Any)?;
        if failed == 0 { Err("the controller was stopped, and no request failed".into()) } else { Ok(failed) }
    }

    /// As many requests as are under way at a time; the device knows of them.
    fn begin_many(&mut self) -> Result<(), String> {
        while self.sent.len() < DEPTH {
            self.begin()?;
        }
        self.ring.submit(Wait::None).map_err(text("ring the doorbells"))
    }

    /// Reads all pages as callers without a ring do.
    fn compare(&mut self) -> Result<usize, String> {
        let mut first = 0;
        while first < self.pages.len() {
            let outcome = sync::execute(&self.volume, pages::read(&self.pool, first, 16)?);
            let DiskOutcome::Read(block, result) = outcome else { return Err("a read was not answered as one".into()) };
            result.map_err(|fault| format!("page {first} cannot be read: {fault}"))?;
            for bytes in block.chunks_exact(PAGE_BYTES) {
                self.pages.check(first, bytes)?;
                first += 1;
            }
        }
        Ok(first)
    }
}

/// What batch `number` of a victim writes: runs of pages, each with its version.
fn batch(seed: u64, number: u32) -> Vec<(usize, usize, u32)> {
    let mut random = Random::new(seed ^ u64::from(number) << 20);
    let slot = PAGES / BATCH;
    let run = |index: usize| {
        let (at, count) = (random.below((slot - 20) as u64) as usize, 1 + random.below(20) as usize);
        (index * slot + at, count, VICTIM_VERSION + number * BATCH as u32 + index as u32)
    };
    (0..BATCH).map(run).collect()
}

/// Writes batch after batch, each with its flush, and tells of each.
#[expect(clippy::print_stdout, reason = "who kills it listens")]
pub(super) fn victim(seed: u64) -> Result<(), String> {
    let mut disk = Disk::open(Pages::new(PAGES), seed)?;
    for number in 0.. {
        for (first, count, version) in batch(seed, number) {
            let request = pages::write(&disk.pool, (first, count), version, false)?;
            disk.tags += 1;
            disk.sent.insert(disk.tags, Sent::Write { first, count, version });
            disk.ring.disk(disk.tags, &disk.volume, request);
        }
        disk.end_all(&mut Faults::None)?;
        if !matches!(sync::execute(&disk.volume, DiskRequest::Flush), DiskOutcome::Flush(Ok(()))) {
            return Err("a flush failed".into());
        }
        println!("{number}");
        std::io::stdout().flush().map_err(text("tell of a batch"))?;
    }
    Ok(())
}

/// Starts a victim and kills it while it writes; how many batches it told of.
fn kill(seed: u64, pages: &mut Pages) -> Result<u32, String> {
    let mut command = Command::new("/init");
    command.args([VICTIM, &seed.to_string()]).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(text("start a victim"))?;
    let lines = BufReader::new(child.stdout.take().ok_or("a victim without a voice")?).lines();
    let mut told = None;
    for line in lines {
        let number: u32 = line.map_err(text("hear a victim"))?.parse().map_err(text("read a number"))?;
        told = Some(number);
        // It goes on until it is dead; what it still tells is heard.
        if number == BATCHES {
            child.kill().map_err(text("kill a victim"))?;
        }
    }
    let status = child.wait().map_err(text("bury a victim"))?;
    let told = told.filter(|told| *told >= BATCHES).ok_or_else(|| format!("a victim ended by itself: {status}"))?;
    for number in 0..=told + 1 {
        for (first, count, version) in batch(seed, number) {
            match number {
                _ if number <= told => pages.written(first, count, version),
                _ => pages.maybe_written(first, count, version),
            }
        }
    }
    Ok(told + 1)
}
