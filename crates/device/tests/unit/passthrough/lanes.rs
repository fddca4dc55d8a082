//! Lanes over a namespace in memory: requests of every kind against an oracle of pages, from seeds,
//! with commands that are slow, tried again, failed and cancelled by a reset.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stratakv_base::random::Random;

use crate::block::{BlockPart, Class, Pool};
use crate::nvme::IDENTIFY_BYTES;
use crate::passthrough::{EmulatedData, EmulatedNamespace, EmulatedTarget, PassthroughRing};
use crate::raw::RawDevice;
use crate::request::{DiskOutcome, DiskRequest, IoFault};
use crate::ring::{Completion, Ring, RingKind, Wait, open_ring};
use crate::volume::Volume;
use crate::{lock, sync};

#[path = "image.rs"]
mod image;

use image::{Image, Quirks};

const PAGES: usize = 64;
const PAGE_BYTES: usize = 4096;
const DEPTH: usize = 12;

/// What of a page is known, by versions.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Acknowledged last, or perhaps written by a request that failed.
    now: BTreeSet<u32>,
    /// What a power cut may leave.
    durable: BTreeSet<u32>,
    /// Counts changes.
    changes: u32,
}

#[derive(Clone, Debug)]
enum Sent {
    Read(usize, usize),
    Write(usize, usize, u32, bool),
    /// With the changes of each page when it was begun.
    Flush(Vec<u32>),
    Discard,
}

struct World {
    device: Arc<Mutex<Image>>,
    volume: Arc<Volume>,
    ring: PassthroughRing,
    pool: Pool,
    random: Random,
    known: Vec<Known>,
    sent: HashMap<u64, Sent>,
    busy: BTreeSet<usize>,
    tags: u64,
    version: u32,
}

fn open(device: &Arc<Mutex<Image>>) -> Arc<Volume> {
    let namespace = EmulatedTarget::open(device).unwrap();
    let raw = RawDevice::of_passthrough("/dev/ng0n1".as_ref(), &namespace);
    Arc::new(raw.range(0, raw.len_bytes()).unwrap())
}

fn ring() -> PassthroughRing {
    PassthroughRing::new(open_ring(RingKind::Auto, 16).unwrap())
}

/// The first words are the version and the page.
fn fill(page: usize, version: u32, bytes: &mut [u8]) {
    let word = (u64::from(version) << 32 | page as u64).to_le_bytes();
    let word = if version == 0 { [0; 8] } else { word };
    bytes.chunks_exact_mut(8).for_each(|place| place.copy_from_slice(&word));
}

/// The version of a page's bytes; a page that is torn or another one is none.
fn version_of(page: usize, bytes: &[u8]) -> Option<u32> {
    let version = u32::from_le_bytes(bytes[4..8].try_into().unwrap());
    let mut expected = vec![0; PAGE_BYTES];
    fill(page, version, &mut expected);
    (bytes == expected).then_some(version)
}

impl World {
    fn new(seed: u64, quirks: Quirks) -> World {
        let device = Arc::new(Mutex::new(Image::new(PAGES, seed, quirks)));
        let known = Known { now: BTreeSet::from([0]), durable: BTreeSet::from([0]), changes: 0 };
        World {
            volume: open(&device),
            device,
            ring: ring(),
            pool: Pool::new(8 << 20),
            random: Random::new(seed ^ 0x5EED),
            known: vec![known; PAGES],
            sent: HashMap::new(),
            busy: BTreeSet::new(),
            tags: 0,
            version: 0,
        }
    }

    fn begin(&mut self) {
        let most = if self.random.below(4) == 0 { 20 } else { 3 };
        let count = 1 + self.random.below(most) as usize;
        let first = self.random.below((PAGES - count) as u64) as usize;
        let kind = self.random.below(12);
        let (sent, request) = match kind {
            0..=4 => {
                let count = count.min(16);
                let block = self.pool.take(Class::Slice).unwrap();
                let (offset, len) = ((first * PAGE_BYTES) as u64, (count * PAGE_BYTES) as u32);
                (Sent::Read(first, count), DiskRequest::Read { offset, block, len })
            }
            5..=9 => {
                self.version += 1;
                let durable = self.random.below(3) == 0;
                (Sent::Write(first, count, self.version, durable), self.write(first, count, durable))
            }
            10 => (Sent::Flush(self.known.iter().map(|page| page.changes).collect()), DiskRequest::Flush),
            _ => (Sent::Discard, DiskRequest::Discard { offset: 0, len: (PAGES * PAGE_BYTES) as u64 }),
        };
        if let Sent::Read(first, count) | Sent::Write(first, count, ..) = sent {
            if (first..first + count).any(|page| self.busy.contains(&page)) {
                return;
            }
            self.busy.extend(first..first + count);
        }
        self.tags += 1;
        self.sent.insert(self.tags, sent);
        self.ring.disk(self.tags, &self.volume, request);
    }

    /// In parts of both classes.
    fn write(&mut self, first: usize, count: usize, durable: bool) -> DiskRequest {
        let mut parts = Vec::new();
        let mut page = first;
        while page < first + count {
            let left = first + count - page;
            let class = if left >= 6 { Class::Slice } else { Class::Page };
            let mut block = self.pool.take(class).unwrap();
            let pages = left.min(class.bytes() / PAGE_BYTES);
            for (number, bytes) in (page..).zip(block.chunks_exact_mut(PAGE_BYTES).take(pages)) {
                fill(number, self.version, bytes);
            }
            page += pages;
            parts.push(BlockPart { block: block.into(), start: 0, len: (pages * PAGE_BYTES) as u32 });
        }
        DiskRequest::Write { offset: (first * PAGE_BYTES) as u64, parts, durable }
    }

    fn collect(&mut self) -> Result<(), String> {
        let timeout = Some(Duration::from_millis(100));
        self.ring.submit(Wait::For { completions: 1, timeout }).unwrap();
        let mut completions = Vec::new();
        self.ring.reap(&mut completions);
        for completion in completions {
            let Completion::Disk { tag, outcome } = completion else { return Err("an answer of no disk".into()) };
            let sent = self.sent.remove(&tag).ok_or("an answer to nothing")?;
            self.take(sent, outcome)?;
        }
        Ok(())
    }

    fn take(&mut self, sent: Sent, outcome: DiskOutcome) -> Result<(), String> {
        match (sent, outcome) {
            (Sent::Read(first, count), DiskOutcome::Read(block, result)) => {
                for page in first..first + count {
                    self.busy.remove(&page);
                    let bytes = &block[(page - first) * PAGE_BYTES..][..PAGE_BYTES];
                    if result.is_ok() {
                        let version = version_of(page, bytes).ok_or(format!("page {page} is torn"))?;
                        let Known { now, durable, .. } = &self.known[page];
                        // A reset may have lost what no flush covered; the next one says so.
                        let lost = if lock(&self.device).resets > 0 { durable.clone() } else { BTreeSet::new() };
                        self.check(page, version, &now.union(&lost).copied().collect())?;
                    }
                }
            }
            (Sent::Write(first, count, version, durable), DiskOutcome::Write(result)) => {
                for page in first..first + count {
                    self.busy.remove(&page);
                    let known = &mut self.known[page];
                    known.changes += 1;
                    if result.is_ok() {
                        known.now.clear();
                    }
                    if result.is_ok() && durable {
                        known.durable.clear();
                    }
                    known.now.insert(version);
                    known.durable.insert(version);
                }
            }
            // Only a flush that succeeds promises something; what it failed to cover may be lost.
            (Sent::Flush(changes), DiskOutcome::Flush(Ok(()))) => {
                for (page, then) in self.known.iter_mut().zip(changes) {
                    if page.changes == then {
                        page.durable.clone_from(&page.now);
                    }
                }
            }
            (Sent::Flush(_), DiskOutcome::Flush(Err(_))) => {
                if lock(&self.device).resets > 0 {
                    self.known.iter_mut().for_each(|page| page.now.extend(page.durable.clone()));
                }
            }
            (Sent::Discard, DiskOutcome::Discard(_)) => {}
            (sent, outcome) => return Err(format!("{sent:?} was answered {outcome:?}")),
        }
        Ok(())
    }

    fn check(&self, page: usize, version: u32, allowed: &BTreeSet<u32>) -> Result<(), String> {
        if allowed.contains(&version) {
            return Ok(());
        }
        Err(format!("page {page} holds version {version}, not {allowed:?}"))
    }

    /// Cuts the power and looks.
    fn cut(self) -> Result<(), String> {
        let World { device, known, .. } = &self;
        let mut device = lock(device);
        device.lose_power();
        for (page, known) in known.iter().enumerate() {
            let version = version_of(page, device.page(page)).ok_or(format!("page {page} is torn"))?;
            self.check(page, version, &known.durable)?;
        }
        Ok(())
    }
}

/// Requests from a seed, then a power cut.
fn run(seed: u64) -> Result<(), String> {
    let mut world =
        World::new(seed, Quirks { retry: 30, fail: 60, reset: if seed.is_multiple_of(2) { 80 } else { 0 } });
    for _ in 0..150 {
        while world.sent.len() >= DEPTH {
            world.collect()?;
        }
        world.begin();
    }
    while !world.sent.is_empty() {
        world.collect()?;
    }
    if world.ring.in_flight() > 0 {
        return Err("all requests were answered, and the ring has more".into());
    }
    world.cut()
}

#[test]
fn requests_are_answered_once_and_nothing_is_lost() {
    let seeds = std::env::var("PASSTHROUGH_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(60);
    for seed in 1..=seeds {
        run(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

/// One that says so five times, and then once more.
#[test]
fn a_command_is_tried_again_five_times() {
    let device = Arc::new(Mutex::new(Image::new(PAGES, 0, Quirks { retry: 1, ..Quirks::default() })));
    let (volume, mut ring) = (open(&device), ring());
    ring.disk(0, &volume, DiskRequest::Flush);
    let mut done = Vec::new();
    while done.is_empty() {
        ring.submit(Wait::For { completions: 1, timeout: None }).unwrap();
        ring.reap(&mut done);
    }
    assert!(matches!(done[..], [Completion::Disk { outcome: DiskOutcome::Flush(Err(_)), .. }]), "{done:?}");
    assert_eq!(lock(&device).commands, 6);
    assert!(sync::execute(&volume, DiskRequest::Flush).fault().is_some());
    assert_eq!(lock(&device).commands, 12, "callers without a ring do the same");
    lock(&device).calm_down();
    assert_eq!(sync::execute(&volume, DiskRequest::Flush).fault(), None);
}

/// A reset may have lost what the cache held: the next flush says so, once, by ring and without.
#[test]
fn a_flush_after_a_reset_fails_once() {
    let device = Arc::new(Mutex::new(Image::new(PAGES, 0, Quirks::default())));
    let volume = open(&device);
    let pool = Pool::new(1 << 20);
    let page = || BlockPart::whole(Arc::new(pool.take(Class::Page).unwrap()));
    let flush = || sync::execute(&volume, DiskRequest::Flush).fault();
    assert_eq!(flush(), None);
    let write = DiskRequest::Write { offset: 0, parts: vec![page()], durable: false };
    assert_eq!(sync::execute(&volume, write).fault(), None);
    *lock(&device) = Image::new(PAGES, 0, Quirks { reset: 1, ..Quirks::default() });
    let block = pool.take(Class::Page).unwrap();
    let read = sync::execute(&volume, DiskRequest::Read { offset: 0, block, len: 4096 });
    assert_eq!(read.fault(), Some(IoFault::Os(libc::ETIMEDOUT)));
    lock(&device).calm_down();
    assert_eq!((flush(), flush()), (Some(IoFault::Os(libc::EIO)), None));
}

#[cfg(feature = "fault_points")]
#[test]
fn deliberate_defects_of_lanes_are_caught() {
    let names = [
        "passthrough_fua_lost",
        "passthrough_split_repeats_data",
        "passthrough_retry_forgotten",
        "passthrough_status_ignored",
        "passthrough_flush_outlives_reset",
        "passthrough_write_outlives_reset",
        "nvme_flush_lost",
        "nvme_split_ends_early",
        "nvme_reset_keeps_cache",
    ];
    for name in names {
        let is_caught = (1..400).any(|seed| {
            stratakv_base::fault_point::release(Some(name));
            let outcome = std::panic::catch_unwind(|| run(seed));
            stratakv_base::fault_point::release(None);
            !matches!(outcome, Ok(Ok(())))
        });
        assert!(is_caught, "{name} was not caught");
    }
}
