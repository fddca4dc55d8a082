//! Engine `tier` in the simulator. A cache may forget, so the judge of durable engines is none for
//! it: this one asks that what is answered is the newest, or nothing; through kills, power cuts,
//! orderly ends and a disk that fails.

mod judge;
mod losses;
mod resizing;
mod slices;

use std::cell::Cell;

use stratakv_base::checksum::crc32c;
use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Expiry, Key, Level, Wall};
use stratakv_engine::{Change, ChangeKind, Error, Expect, Operation, RecordPart, Reply, Update};
use stratakv_sim::coverage::Coverage;
use stratakv_sim::disk::{Chances, Disk, DiskOptions};
use stratakv_sim::machine::{Audit, Engine, Machine, Opening};
use stratakv_tier::{Start, Tier, TierConfig, TierOpener};

use crate::world::{self, left_out};
use judge::{Judge, TOUCHED, piece};
use slices::Taken;

/// The engine, on a system that boots anew after a power cut.
#[derive(Debug, Default)]
pub struct TierEngine {
    boot: Cell<u64>,
    segment_bytes: Cell<u32>,
    collected_percent: Cell<u32>,
    saves_at_shutdown: Cell<bool>,
}

impl Engine for TierEngine {
    type Opener = TierOpener;
    type Shard = Tier;

    fn opener(&self, opening: &Opening) -> TierOpener {
        let mut boot = [0; 16];
        boot[..8].copy_from_slice(&self.boot.get().to_le_bytes());
        let config = TierConfig {
            uuid: *b"simulated store!",
            shard: 0,
            shards: 1,
            memory_bytes: opening.memory_bytes,
            depth: opening.depth,
            capacity_bytes: opening.capacity_bytes,
            segment_bytes: self.segment_bytes.get(),
            collected_percent: self.collected_percent.get(),
            saves_at_shutdown: self.saves_at_shutdown.get(),
            boot: Some(boot),
            begins_empty: false,
            read_only: opening.read_only,
        };
        if opening.create { TierOpener::create(config) } else { TierOpener::recover(config) }
    }

    fn audit(&self, shard: &Tier) -> Audit {
        Audit { mistakes: shard.check(), ..Audit::default() }
    }
}

/// What runs added up to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Operations handed over.
    pub operations: u64,
    /// Writes acknowledged.
    pub acknowledged: u64,
    /// Gets that found something.
    pub hits: u64,
    /// Of them, on the volume.
    pub hits_ssd: u64,
    /// Values that were taken slice by slice to their end, and those that were not to be had so
    /// far.
    pub sliced: [u64; 2],
    /// Kills, power cuts, orderly ends.
    pub ends: [u64; 3],
    /// Openings after which something was there, by the same.
    pub warm: [u64; 3],
    /// Keys that were there after an end, by the same.
    pub found: [u64; 3],
    /// Ends that saved what was in memory where nothing failed, and items that came back to
    /// memory.
    pub saved: [u64; 2],
    /// Segments recycled, items taken along, items promoted.
    pub recycled: [u64; 3],
    /// Copies on the volume that were called stale.
    pub invalidations: u64,
    /// Changes of the cap on memory.
    pub resizes: u64,
    /// Lives in which the volume was given up.
    pub lost_volumes: u64,
    /// The longest segment in memory, and the longest value, in bytes.
    pub lengths_max: [u64; 2],
    /// Items written to volumes, by the length of segments in memory, from 8 KiB on by powers of
    /// two.
    pub spilled: [u64; 8],
    /// Which faults the disk had.
    pub coverage: Coverage,
    /// A checksum over everything that was answered and counted, to compare runs by.
    pub digest: u64,
}

impl Statistics {
    /// Adds another's figures.
    pub fn add(&mut self, other: &Statistics) {
        self.operations += other.operations;
        self.acknowledged += other.acknowledged;
        self.hits += other.hits;
        self.hits_ssd += other.hits_ssd;
        self.invalidations += other.invalidations;
        self.resizes += other.resizes;
        self.lost_volumes += other.lost_volumes;
        self.sliced = [0, 1].map(|at| self.sliced[at] + other.sliced[at]);
        self.coverage.add(&other.coverage);
        // In whatever order runs are added.
        self.digest = self.digest.wrapping_add(other.digest);
        self.lengths_max = [0, 1].map(|at| self.lengths_max[at].max(other.lengths_max[at]));
        self.spilled.iter_mut().zip(other.spilled).for_each(|(mine, theirs)| *mine += theirs);
        let sums = [
            (&mut self.ends, other.ends),
            (&mut self.warm, other.warm),
            (&mut self.found, other.found),
            (&mut self.recycled, other.recycled),
        ];
        self.saved = [0, 1].map(|at| self.saved[at] + other.saved[at]);
        for (mine, theirs) in sums {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
    }

    fn note(&mut self, bytes: &[u8]) {
        let sum = u64::from(crc32c(self.digest as u32, bytes));
        self.digest = self.digest.rotate_left(23).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ sum;
    }
}

/// Of [`World::fails_at_end`]: one write in eight.
const END_WRITE_ERROR: u16 = 8192;

/// What an operation in flight was asked.
#[derive(Clone, Debug)]
enum Asked {
    /// Of this key, at this time, when this was the oldest state that counted.
    Get {
        key: usize,
        floor: u64,
        wall: Wall,
    },
    Write {
        key: usize,
        number: u64,
    },
    Flush {
        numbers: Vec<u64>,
    },
    /// More of a value that is taken slice by slice.
    Slices(Box<Taken>),
}

impl Asked {
    fn key(&self) -> Option<usize> {
        match self {
            Asked::Get { key, .. } | Asked::Write { key, .. } => Some(*key),
            Asked::Slices(taken) => Some(taken.key),
            Asked::Flush { .. } => None,
        }
    }
}

struct World<'e> {
    machine: Machine<'e, TierEngine>,
    engine: &'e TierEngine,
    judge: Judge,
    asked: Vec<(u32, Asked)>,
    random: Random,
    keys: u64,
    value_bytes_max: u64,
    /// The cap on memory now, and the lowest one that counted since the shard was opened.
    memory_bytes: u64,
    memory_bytes_min: u64,
    /// The cap changes now and then.
    resizes: bool,
    chances: Chances,
    /// There is no second tier: orderly ends save what is in memory, and this disk has room for all
    /// of it.
    saves_all: bool,
    /// Gets so far that found what never expires.
    lasting: u64,
    /// The disk breaks now and then.
    breaks: bool,
    /// Many writes of an orderly end fail once.
    fails_at_end: bool,
    /// Bits tick: what is answered must have been written once, and that is all.
    flips: bool,
    statistics: Statistics,
}

fn key(number: usize) -> Key {
    Key::bound(CollectionId((number % 2) as u32), format!("key {number}").as_bytes())
}

fn chances(random: &mut Random) -> Chances {
    let mut chances = Chances { delay: 3000, ..Chances::default() };
    match random.below(6) {
        0 => (chances.read_error, chances.write_error) = (400, 400),
        1 => chances.full = 600,
        2 => (chances.flush_error, chances.error_forever, chances.write_error) = (2000, 30, 60),
        3 => chances.flip = 300,
        _ => {}
    }
    chances
}

/// As [`run_seed`], for whoever runs worlds.
///
/// # Errors
/// As [`run_seed`].
pub fn run(seed: u64) -> Result<world::Statistics, String> {
    let found = run_seed(seed)?;
    let [kills, power_cuts, closes] = found.ends;
    let (asked, answered, digest) = (found.operations, found.acknowledged, found.digest);
    let served = world::Served { hits: found.hits, degraded: found.lost_volumes, ..world::Served::default() };
    let (runs, coverage) = (1, found.coverage);
    let nothing = world::Statistics::default();
    Ok(world::Statistics { runs, kills, power_cuts, closes, asked, answered, digest, served, coverage, ..nothing })
}

/// Runs the scenario of a seed.
///
/// # Errors
/// A key's answer was older than the newest, or nothing that was ever written; or the engine stood
/// still.
pub fn run_seed(seed: u64) -> Result<Statistics, String> {
    let mut random = Random::new(seed ^ 0x7169_E200);
    let engine = TierEngine::default();
    let mut sizes = Sizes::draw(&mut random);
    if matches!(seed % 16, 0 | 1) {
        // Seeds that were kept for what they found are none of these.
        sizes = Sizes::of_a_small_pool(&mut random);
    }
    engine.segment_bytes.set(sizes.segment_bytes as u32);
    // Without it more goes to the volume. (Seeds that were kept for what they found are none of
    // these.)
    engine.collected_percent.set(if matches!(seed % 16, 0 | 1 | 2 | 7 | 15) { 66 } else { 0 });
    let saves_at_shutdown = matches!(seed % 16, 2 | 7 | 12);
    engine.saves_at_shutdown.set(saves_at_shutdown);
    let Sizes { memory_bytes, value_bytes_max, .. } = sizes;
    let is_short = saves_at_shutdown && seed.is_multiple_of(5);
    let capacity_bytes = if is_short { memory_bytes / 2 } else { sizes.capacity_bytes };
    let volatile_cache = random.below(2) == 0;
    let chances = chances(&mut random);
    let opening = Opening {
        create: true,
        volume_bytes: 0,
        capacity_bytes: Some(capacity_bytes).filter(|_| !saves_at_shutdown),
        memory_bytes,
        depth: [1, 2, 8][random.below(3) as usize],
        checkpoint_bytes: None,
        record_cache: false,
        volatile_cache,
        read_only: false,
    };
    let keys = 4 + random.below(120);
    // What is saved has room even when the cap on memory has grown to four times what it was.
    let disk_bytes = if saves_at_shutdown && !is_short { 4 * capacity_bytes } else { capacity_bytes };
    let disk = Disk::new(DiskOptions { capacity_bytes: disk_bytes, volatile_cache });
    let mut world = World {
        machine: Machine::new(&engine, disk, opening),
        engine: &engine,
        judge: Judge::new(keys as usize),
        asked: Vec::new(),
        random,
        keys,
        value_bytes_max,
        memory_bytes,
        memory_bytes_min: memory_bytes,
        // Seeds that were kept for what they found are none of these.
        resizes: matches!(seed % 16, 2 | 6 | 7 | 10 | 15),
        breaks: matches!(seed % 16, 0 | 15),
        fails_at_end: seed % 16 == 11,
        chances,
        flips: chances.flip > 0,
        saves_all: saves_at_shutdown && !is_short && chances == Chances { delay: chances.delay, ..Chances::default() },
        lasting: 0,
        statistics: Statistics { lengths_max: [sizes.segment_bytes, 0], ..Statistics::default() },
    };
    world.open(true)?;
    let lives = 3 + world.random.below(5);
    for _ in 0..lives {
        world.live()?;
        world.end()?;
    }
    world.statistics.coverage = world.machine.disk.coverage().clone();
    Ok(world.statistics)
}

/// How large everything is.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    memory_bytes: u64,
    capacity_bytes: u64,
    /// Of a segment in memory, as the engine cuts it.
    segment_bytes: u64,
    value_bytes_max: u64,
}

impl Sizes {
    /// A segment is a sixty-fourth of memory and volume at most: most runs are small, so that all
    /// of them is soon full, and few have long segments.
    fn draw(random: &mut Random) -> Sizes {
        let memory_bytes: u64 = match random.below(64) {
            0 => 64 << 20,
            1..=3 => 16 << 20,
            4..=11 => 4 << 20,
            12..=23 => 1 << 20,
            _ => [128 << 10, 192 << 10, 512 << 10][random.below(3) as usize],
        };
        let capacity_bytes = memory_bytes.max(200_000) + random.below(3 * memory_bytes.min(4 << 20));
        let wanted = 8192 << random.below(8);
        let share = (memory_bytes.min(capacity_bytes) / 64).max(8192);
        let segment_bytes = if share >= 64 << 10 { share >> 16 << 16 } else { share >> 12 << 12 }.min(wanted);
        // A twelfth of the memory has a place.
        let longest = memory_bytes / 13;
        let lengths = [300, 3000, segment_bytes / 2, segment_bytes * 3, longest, longest];
        let value_bytes_max = lengths[random.below(6) as usize].clamp(300, longest);
        Sizes { memory_bytes, capacity_bytes, segment_bytes, value_bytes_max }
    }
}

impl Sizes {
    /// So little memory that the pool's chunks, of 1 MiB each, are what it is short of; and much
    /// more on the volume.
    fn of_a_small_pool(random: &mut Random) -> Sizes {
        let memory_bytes = [2, 3, 4, 6, 8][random.below(5) as usize] << 20;
        let share: u64 = memory_bytes / 64;
        let segment_bytes = if share >= 64 << 10 { share >> 16 << 16 } else { share >> 12 << 12 };
        let longest = memory_bytes / 13;
        let value_bytes_max = [4000, 30_000, longest][random.below(3) as usize];
        Sizes { memory_bytes, capacity_bytes: memory_bytes + random.below(64 << 20), segment_bytes, value_bytes_max }
    }
}

impl World<'_> {
    fn open(&mut self, create: bool) -> Result<(), String> {
        // New volumes are made on disks that work; others may fail, and are opened again when they
        // do not.
        let fails = !create && self.random.below(2) == 0;
        self.machine.disk.set_chances(if fails { self.chances } else { Chances::default() });
        if !fails {
            self.machine.disk.repair();
        }
        let mut opened = self.machine.open(create, None, &mut self.random);
        if opened.is_err() && fails {
            self.machine.die(false, &mut self.random);
            self.machine.disk.repair();
            self.machine.disk.set_chances(Chances::default());
            opened = self.machine.open(create, None, &mut self.random);
        }
        match opened {
            Ok(_) => {}
            // Both superblocks rotted: a new volume takes its place, and is empty.
            Err(Error::Corrupt(_)) if self.flips => return self.open(true),
            Err(error) => return Err(format!("cannot open: {error}")),
        }
        self.machine.disk.set_chances(self.chances);
        // Another cap is not kept over an end.
        self.memory_bytes = self.machine.opening().memory_bytes;
        self.memory_bytes_min = self.memory_bytes;
        self.check()
    }

    fn check(&self) -> Result<(), String> {
        let audit = self.machine.audit();
        if audit.mistakes.is_empty() { Ok(()) } else { Err(format!("the accounting: {:?}", audit.mistakes)) }
    }

    fn live(&mut self) -> Result<(), String> {
        let steps = 100 + self.random.below(1200);
        for _ in 0..steps {
            if left_out::is_next() {
                continue;
            }
            if self.resizes && self.random.below(150) == 0 {
                self.resize();
            }
            if self.machine.disk.failed() > 0 && self.random.below(6) == 0 {
                // What failed is tried again after a while, and given up after a longer one.
                self.machine.pass(1);
            }
            match self.random.below(400) {
                0 => self.machine.pass(1 + self.random.below(40) as u32),
                1 => {
                    self.rest()?;
                    self.check_memory()?;
                    self.check_losses()?;
                    self.check()?;
                }
                2 if self.random.below(4) == 0 => self.machine.disk.repair(),
                // Whatever is asked of it, until it is repaired or the process has ended.
                3 if self.breaks => {
                    let chances = Chances { error_forever: u16::MAX, ..self.chances };
                    self.machine.disk.set_chances(chances);
                }
                2..260 => self.submit(),
                _ => {
                    let completions = self.random.below(6) as u8;
                    self.machine.tick(completions, &mut self.random);
                }
            }
            self.take_replies()?;
        }
        Ok(())
    }

    fn rest(&mut self) -> Result<(), String> {
        if !self.machine.run_until_idle(&mut self.random) {
            return Err("it never comes to rest".into());
        }
        self.take_replies()
    }

    /// The process dies, the power fails, or it closes in order; then every key is asked for.
    fn end(&mut self) -> Result<(), String> {
        let how = self.random.below(3) as usize;
        self.note_statistics();
        let mut faults = self.faults();
        if how == 2 {
            self.machine.disk.repair();
            self.drain()?;
            if self.saves_all {
                // A cap that was lowered just now is still being followed: what that evicts is not
                // owed.
                self.rest()?;
                self.lasting = 0;
                self.ask_for_all()?;
            }
            let paused = self.figure("evictions_ssd_paused");
            faults = self.faults();
            if self.fails_at_end {
                self.machine.disk.set_chances(Chances { write_error: END_WRITE_ERROR, ..self.chances });
            }
            if !self.machine.close(&mut self.random) {
                return Err("it never closes".into());
            }
            if self.figure("evictions_ssd_paused") > paused {
                return Err("an end dropped what was in memory, as a write had failed before it".into());
            }
        }
        self.check_losses()?;
        let owes_clean_start = how == 2 && self.owes_clean_start(faults);
        let (before, failed) = (self.segments_owed(), self.machine.disk.failed());
        self.statistics.ends[how] += 1;
        for (_, asked) in std::mem::take(&mut self.asked) {
            match asked {
                Asked::Get { .. } | Asked::Slices(_) => {}
                Asked::Write { key, number } => self.judge.left_open(key, number),
                Asked::Flush { numbers } => {
                    let numbers = numbers.iter().enumerate().filter(|(_, number)| **number > 0);
                    numbers.for_each(|(key, number)| self.judge.left_open(key, *number));
                }
            }
        }
        let power = how == 1 || (how == 2 && self.random.below(2) == 0);
        self.machine.die(power, &mut self.random);
        self.engine.boot.set(self.engine.boot.get() + u64::from(power));
        self.open(false)?;
        let report = self.machine.shard().recovery().clone();
        self.statistics.warm[how] += u64::from(report.items > 0);
        if owes_clean_start && report.start != Start::Clean && self.machine.disk.failed() == failed {
            return Err(format!(
                "few writes of an end failed, none of them for good, and it was not clean: {report:?}"
            ));
        }
        // Reads that failed while it was opened may have hidden all of the log.
        if how == 0 && report.start == Start::Recovered && self.machine.disk.failed() == failed {
            self.check_segments(before, report.segments)?;
        }
        if how == 1 && report.items > 0 && report.start != Start::Emptied {
            return Err(format!("after a power cut {report:?}"));
        }
        if self.saves_all && how == 2 {
            self.statistics.saved[0] += 1;
            if report.items < self.lasting {
                return Err(format!("{} items were there at an end that saves: {report:?}", self.lasting));
            }
        }
        if self.engine.saves_at_shutdown.get() && how != 2 && report.items > 0 {
            return Err(format!("nobody has saved that: {report:?}"));
        }
        self.machine.disk.set_chances(Chances::default());
        self.statistics.found[how] += self.ask_for_all()?;
        self.machine.disk.set_chances(self.chances);
        Ok(())
    }

    /// How many keys are there.
    fn ask_for_all(&mut self) -> Result<u64, String> {
        let hits = self.statistics.hits;
        for number in 0..self.keys as usize {
            self.get(number, RecordPart::Whole);
            self.drain()?;
        }
        Ok(self.statistics.hits - hits)
    }

    fn note_statistics(&mut self) {
        let mut found = Vec::new();
        stratakv_engine::Shard::statistics(self.machine.shard(), &mut found);
        let value =
            |name: &str| found.iter().find(|statistic| statistic.name == name).map_or(0, |statistic| statistic.value);
        self.statistics.hits_ssd += value("hits_ssd");
        self.statistics.invalidations += value("invalidations");
        self.statistics.lost_volumes += value("ssd_lost");
        self.statistics.saved[1] += if self.engine.saves_at_shutdown.get() { value("reinserted") } else { 0 };
        let power = (self.statistics.lengths_max[0] >> 13).max(1).ilog2().min(7) as usize;
        self.statistics.spilled[power] += value("spilled_items");
        let values: Vec<u8> = found.iter().flat_map(|statistic| statistic.value.to_le_bytes()).collect();
        let recycled = [value("evictions"), value("reinserted"), value("promoted")];
        self.statistics.recycled.iter_mut().zip(recycled).for_each(|(sum, value)| *sum += value);
        self.statistics.note(&values);
    }

    fn drain(&mut self) -> Result<(), String> {
        let mut idle = 0;
        while !self.asked.is_empty() {
            let busy = self.machine.tick(8, &mut self.random);
            idle = if busy || self.machine.disk.in_flight() > 0 { 0 } else { idle + 1 };
            self.take_replies()?;
            if idle > 3000 {
                let mut found = Vec::new();
                stratakv_engine::Shard::statistics(self.machine.shard(), &mut found);
                let found: Vec<_> =
                    found.iter().filter(|s| s.value > 0).map(|s| format!("{} {}", s.name, s.value)).collect();
                return Err(format!(
                    "never answered: {:?} of {}; {}",
                    self.asked.first(),
                    self.asked.len(),
                    found.join(", ")
                ));
            }
        }
        Ok(())
    }

    fn submit(&mut self) {
        let number = match self.random.below(3) {
            0 => self.random.below(self.keys),
            _ => self.random.below(self.keys.min(12)),
        } as usize;
        match self.random.below(100) {
            0..20 => self.get(number, RecordPart::Whole),
            20..32 => self.get(number, RecordPart::Sliced { hold: 0, start: 0, len: u32::MAX }),
            32..40 => self.get(number, RecordPart::Meta),
            40 if self.random.below(6) == 0 => self.flush(),
            40..48 => self.write(number, Expect::Any, None),
            48..55 => self.update(number),
            55..62 => {
                let expect = self.condition(number);
                self.put(number, expect);
            }
            _ => self.put(number, Expect::Any),
        }
    }

    fn condition(&mut self, number: usize) -> Expect {
        match self.random.below(3) {
            0 => Expect::Absent,
            1 => Expect::Present,
            _ => self.judge.keys[number]
                .versions
                .iter()
                .next_back()
                .map_or(Expect::Present, |(version, _)| Expect::Version(*version)),
        }
    }

    fn get(&mut self, number: usize, part: RecordPart) {
        let (floor, wall) = (self.judge.keys[number].floor, self.machine.now().wall);
        if let Some(token) = self.machine.submit(Operation::Get { key: key(number), part }) {
            self.asked.push((token, Asked::Get { key: number, floor, wall }));
            self.statistics.operations += 1;
        }
        self.judge.meta_only = part == RecordPart::Meta || self.judge.meta_only && !self.asked.is_empty();
    }

    fn put(&mut self, number: usize, expect: Expect) {
        // As many short ones as long ones.
        let most = self.value_bytes_max >> self.random.below(u64::from(self.value_bytes_max.ilog2()) / 2 + 1);
        let len = 1 + self.random.below(most) as usize;
        self.statistics.lengths_max[1] = self.statistics.lengths_max[1].max(len as u64);
        let wall = self.machine.now().wall.0;
        let expiry = match self.random.below(5) {
            0 => Expiry(wall + 1 + self.random.below(60_000)),
            _ => Expiry::NEVER,
        };
        self.write(number, expect, Some((len, expiry)));
    }

    /// A put of so many bytes, or a delete.
    fn write(&mut self, number: usize, expect: Expect, put: Option<(usize, Expiry)>) {
        let write = self.judge.begin(number, put.map(|(len, expiry)| (number, len, expiry)), expect);
        let kind = match put {
            Some((len, expiry)) => {
                ChangeKind::Put { value: piece(number, write, len).into(), flags: write as u32, expiry }
            }
            None => ChangeKind::Delete,
        };
        let changes = vec![Change { key: key(number), expect, kind }];
        self.hand_over(number, write, Operation::Write { changes, level: Level::Memory });
    }

    fn update(&mut self, number: usize) {
        let write = self.judge.begin_update(number);
        let update = match self.random.below(2) {
            0 => Update::Touch(Expiry(TOUCHED + write)),
            _ => {
                let len = self.random.below(300) as usize;
                self.judge.note_append(number, write, len);
                Update::Append(piece(number, write, len).into())
            }
        };
        self.hand_over(number, write, Operation::Update { key: key(number), update, level: Level::Memory });
    }

    fn hand_over(&mut self, number: usize, write: u64, operation: Operation) {
        match self.machine.submit(operation) {
            Some(token) => {
                self.asked.push((token, Asked::Write { key: number, number: write }));
                self.statistics.operations += 1;
            }
            None => self.judge.refused(number, write),
        }
    }

    /// Of one collection, or of both.
    fn flush(&mut self) {
        let both = self.random.below(2) == 0;
        let from = std::ops::Bound::Included(Key::bound(CollectionId(0), b""));
        let to = std::ops::Bound::Excluded(Key::bound(CollectionId(if both { 2 } else { 1 }), b""));
        if let Some(token) =
            self.machine.submit(Operation::DeleteRange { range: Box::new((from, to)), level: Level::Memory })
        {
            let covered = |number: usize| both || number.is_multiple_of(2);
            let numbers = (0..self.keys as usize)
                .map(|number| if covered(number) { self.judge.begin(number, None, Expect::Any) } else { 0 });
            let numbers = numbers.collect();
            self.asked.push((token, Asked::Flush { numbers }));
            self.statistics.operations += 1;
        }
    }

    fn take_replies(&mut self) -> Result<(), String> {
        for (token, reply) in std::mem::take(&mut self.machine.replies) {
            let Some(at) = self.asked.iter().position(|(asked, _)| *asked == token) else {
                return Err(format!("an answer to nothing: {reply:?}"));
            };
            let (_, asked) = self.asked.swap_remove(at);
            self.note_reply(token, &reply);
            if let Some((key, why)) = self.take_slices(&asked, &reply).err() {
                return Err(format!("slices: {why}; {}", self.judge.describe(Some(key))));
            }
            self.judge_reply(&asked, &reply)
                .map_err(|why| format!("{asked:?}: {why}; {}", self.judge.describe(asked.key())))?;
        }
        Ok(())
    }

    fn note_reply(&mut self, token: u32, reply: &Reply) {
        let mut told = token.to_le_bytes().to_vec();
        match reply {
            Reply::Record(Some(record)) => {
                told.extend([record.version, record.expiry.0, record.value_bytes].iter().flat_map(|n| n.to_le_bytes()));
                told.extend(record.value.to_bytes());
            }
            Reply::Part(record, _) => told.extend(record.value.to_bytes()),
            Reply::Page { .. } => {}
            // Nothing in them has an address.
            other => told.extend(format!("{other:?}").bytes()),
        }
        self.statistics.note(&told);
    }

    fn judge_reply(&mut self, asked: &Asked, reply: &Reply) -> Result<(), String> {
        let wall = self.machine.now().wall;
        match (asked, reply) {
            (Asked::Get { .. }, Reply::Record(None) | Reply::Part(..)) | (Asked::Slices(_), Reply::Record(_)) => Ok(()),
            (Asked::Get { key, floor, wall }, Reply::Record(Some(record))) => {
                self.statistics.hits += 1;
                self.lasting += u64::from(record.expiry == Expiry::NEVER);
                self.judge.seen(*key, *floor, record, *wall, self.flips)
            }
            (Asked::Write { key, number }, Reply::Record(Some(record))) => {
                // A touch.
                self.statistics.acknowledged += 1;
                self.judge.touched(*key, *number, record, wall, self.flips)
            }
            (Asked::Write { key, number }, Reply::Done { version, .. }) => {
                self.statistics.acknowledged += 1;
                self.judge.acknowledged(*key, *number, *version, self.flips)
            }
            (Asked::Write { key, number }, Reply::Unmet(_) | Reply::Record(None)) => {
                self.judge.refused(*key, *number);
                Ok(())
            }
            (Asked::Flush { numbers }, Reply::Number { .. }) => {
                let numbers = numbers.iter().enumerate().filter(|(_, number)| **number > 0);
                numbers.for_each(|(key, number)| self.judge.raise(key, *number));
                Ok(())
            }
            // Too long for so little memory: nothing is changed. A twelfth of the memory has a
            // place.
            (Asked::Write { key, number }, Reply::Failed(Error::ValueTooLarge { len_bytes, .. }))
                if *len_bytes > self.memory_bytes_min / 12 =>
            {
                self.judge.refused(*key, *number);
                Ok(())
            }
            // A copy on the volume would come back, and the volume cannot say that it is stale:
            // nothing is changed.
            (Asked::Write { key, number }, Reply::Failed(Error::Io { .. })) if self.machine.disk.failed() > 0 => {
                self.judge.refused(*key, *number);
                Ok(())
            }
            (Asked::Flush { numbers }, Reply::Failed(Error::Io { .. })) if self.machine.disk.failed() > 0 => {
                let numbers = numbers.iter().enumerate().filter(|(_, number)| **number > 0);
                numbers.for_each(|(key, number)| self.judge.refused(key, *number));
                Ok(())
            }
            // What the volume's failure left in doubt.
            (Asked::Write { .. } | Asked::Flush { .. } | Asked::Get { .. }, Reply::Failed(Error::Unknown(_))) => Ok(()),
            (_, other) => Err(format!("answered {other:?}")),
        }
    }
}

#[cfg(test)]
mod tests;
