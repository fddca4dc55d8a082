//! A disk that completes requests in any order and loses what was not flushed, and a shard driven
//! on it.

use std::collections::{BTreeSet, HashMap};

use stratakv_base::random::Random;
use stratakv_base::{Expiry, Key, Level, Mono, Now, Wall};
use stratakv_device::{DiskOutcome, DiskRequest, Geometry, IoFault, Pool};
use stratakv_engine::{Effects, Error, Io, Opener, Operation, Reply, Shard, Token};
use stratakv_slab::{CheckReport, Packed, PackedOpener, RecoveryReport, Slab, SlabConfig, SlabOpener};

/// Reads in flight at most.
pub const DEPTH: usize = 8;

pub const UUID: [u8; 16] = *b"slab crash tests";

/// A volume in memory with a volatile write cache.
#[derive(Default)]
pub struct Disk {
    /// What survives a loss of power.
    stable: Vec<u8>,
    /// What reads see.
    pub current: Vec<u8>,
    /// Completed writes that no flush covered yet.
    cached: Vec<(u64, Vec<u8>)>,
    in_flight: Vec<(Io, DiskRequest, usize)>,
    pub limit_bytes: u64,
    /// Every write fails from now on.
    pub fail_writes: Option<IoFault>,
    pub fail_flushes: Option<IoFault>,
    /// Discards fail from now on.
    pub fail_discards: Option<IoFault>,
    /// Discards asked for.
    pub discards: u64,
    /// Pages that are holes: while the file system is full, they cannot be written.
    pub holes: BTreeSet<u64>,
    pub is_full: bool,
    /// The device has no volatile cache: what is written is durable.
    pub writes_through: bool,
    /// Reads of this place fail.
    pub bad_place: Option<u64>,
    /// So many reads to come fail.
    pub fail_reads: u64,
    /// Reads submitted, and most requests that were in flight at once.
    pub reads: u64,
    pub deepest: usize,
}

impl Disk {
    pub fn new(limit_bytes: u64) -> Disk {
        Disk { limit_bytes, ..Disk::default() }
    }

    pub fn submit(&mut self, requests: &mut Vec<(Io, DiskRequest)>) {
        for (io, request) in requests.drain(..) {
            let cached = self.cached.len();
            self.reads += u64::from(matches!(request, DiskRequest::Read { .. }));
            self.in_flight.push((io, request, cached));
            self.deepest = self.deepest.max(self.in_flight.len());
            // If one failed, another that overlapped it might be heard of first.
            let flushes = self.in_flight.iter().filter(|one| matches!(one.1, DiskRequest::Flush)).count();
            assert!(flushes <= 1, "{flushes} flushes at once");
        }
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Carries out the request with this number among those in flight.
    pub fn complete(&mut self, number: usize) -> (Io, DiskOutcome) {
        let (io, request, cached) = self.in_flight.swap_remove(number);
        let outcome = match request {
            DiskRequest::Read { offset, mut block, len } => {
                let range = offset as usize..offset as usize + len as usize;
                let bad = self.fail_reads > 0 || self.bad_place.is_some_and(|bad| range.contains(&(bad as usize)));
                self.fail_reads = self.fail_reads.saturating_sub(1);
                let result = match self.current.get(range) {
                    Some(_) if bad => Err(IoFault::Os(5)),
                    Some(bytes) => {
                        block[..len as usize].copy_from_slice(bytes);
                        Ok(())
                    }
                    None => Err(IoFault::Short),
                };
                DiskOutcome::Read(block, result)
            }
            DiskRequest::Write { offset, parts, durable } => {
                let bytes: Vec<u8> = parts.iter().flat_map(|part| part.bytes().to_vec()).collect();
                DiskOutcome::Write(self.write(offset, bytes, durable))
            }
            DiskRequest::Flush => match self.fail_flushes {
                Some(fault) => DiskOutcome::Flush(Err(fault)),
                None => {
                    for (offset, bytes) in self.cached.drain(..cached) {
                        put(&mut self.stable, offset, &bytes);
                    }
                    for (_, _, before) in &mut self.in_flight {
                        *before = before.saturating_sub(cached);
                    }
                    DiskOutcome::Flush(Ok(()))
                }
            },
            DiskRequest::Allocate { .. } => DiskOutcome::Allocate(Ok(())),
            DiskRequest::Discard { offset, len } => {
                self.discards += 1;
                DiskOutcome::Discard(match self.fail_discards {
                    Some(fault) => Err(fault),
                    None => {
                        self.holes.extend(offset / 4096..(offset + len) / 4096);
                        put(&mut self.current, offset, &vec![0; len as usize]);
                        Ok(())
                    }
                })
            }
        };
        (io, outcome)
    }

    fn write(&mut self, offset: u64, bytes: Vec<u8>, durable: bool) -> Result<(), IoFault> {
        assert!(offset.is_multiple_of(4096) && bytes.len().is_multiple_of(4096), "unaligned write");
        if let Some(fault) = self.fail_writes {
            return Err(fault);
        }
        let pages = offset / 4096..(offset + bytes.len() as u64) / 4096;
        let is_hole = self.is_full && pages.clone().any(|page| self.holes.contains(&page));
        if offset + bytes.len() as u64 > self.limit_bytes || is_hole {
            return Err(IoFault::Full);
        }
        self.holes.retain(|page| !pages.contains(page));
        put(&mut self.current, offset, &bytes);
        if durable || self.writes_through {
            // Write-through: of this range, the older cached writes cannot surface any more.
            put(&mut self.stable, offset, &bytes);
            let end = offset + bytes.len() as u64;
            let overlaps = |other: &(u64, Vec<u8>)| other.0 < end && offset < other.0 + other.1.len() as u64;
            if self.cached.iter().any(overlaps) {
                self.cached.push((offset, bytes));
            }
        } else {
            self.cached.push((offset, bytes));
        }
        Ok(())
    }

    /// The power fails: of what was not flushed, any part may have reached the medium, in pieces of
    /// 512 bytes.
    pub fn lose_power(&mut self, random: &mut Random) {
        let mut writes = std::mem::take(&mut self.cached);
        writes.extend(self.unfinished());
        let mode = random.below(4);
        for (offset, bytes) in writes {
            let keep = match mode {
                0 => 0,
                1 => 100,
                _ => [0, 50, 100][random.below(3) as usize],
            };
            for (number, sector) in bytes.chunks(512).enumerate() {
                if random.below(100) < keep {
                    put(&mut self.stable, offset + number as u64 * 512, sector);
                }
            }
        }
        self.current = self.stable.clone();
    }

    /// The power fails, and nothing that was not flushed or written through has reached the medium.
    pub fn lose_all_unflushed(&mut self) {
        self.cached.clear();
        self.in_flight.clear();
        self.current = self.stable.clone();
    }

    /// The process dies: what was completed stays, what was in flight may be there in part.
    pub fn kill(&mut self, random: &mut Random) {
        for (offset, bytes) in self.unfinished() {
            let keep = [0, 50, 100][random.below(3) as usize];
            for (number, sector) in bytes.chunks(512).enumerate() {
                if random.below(100) < keep {
                    put(&mut self.current, offset + number as u64 * 512, sector);
                }
            }
        }
        // What reached the device's cache stays there, unflushed; simplest is to let it settle.
        self.stable = self.current.clone();
        self.cached.clear();
    }

    fn unfinished(&mut self) -> Vec<(u64, Vec<u8>)> {
        let in_flight = std::mem::take(&mut self.in_flight);
        in_flight
            .into_iter()
            .filter_map(|(_, request, _)| match request {
                DiskRequest::Write { offset, parts, .. } => {
                    Some((offset, parts.iter().flat_map(|part| part.bytes().to_vec()).collect()))
                }
                _ => None,
            })
            .filter(|(offset, bytes): &(u64, Vec<u8>)| offset + bytes.len() as u64 <= self.limit_bytes)
            .collect()
    }

    /// Replaces the medium.
    pub fn restore(&mut self, image: Vec<u8>) {
        self.stable = image.clone();
        self.current = image;
        self.cached.clear();
        self.in_flight.clear();
    }

    /// Flips bits of the medium.
    pub fn damage(&mut self, offset: usize, mask: u8) {
        self.current[offset] ^= mask;
        self.stable[offset] ^= mask;
    }
}

fn put(image: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let end = offset as usize + bytes.len();
    if image.len() < end {
        image.resize(end, 0);
    }
    image[offset as usize..end].copy_from_slice(bytes);
}

pub fn config(disk: &Disk, memory_bytes: u64, capacity_bytes: Option<u64>) -> SlabConfig {
    SlabConfig {
        uuid: UUID,
        shard: 0,
        shards: 1,
        geometry: Geometry { volatile_cache: !disk.writes_through, ..Geometry::unknown() },
        memory_bytes,
        depth: DEPTH as u32,
        capacity_bytes,
        volume_bytes: disk.current.len() as u64,
        read_only: false,
        checkpoints: Default::default(),
        discards: None,
        scanned_per_write_min: stratakv_slab::SCANNED_PER_WRITE_MIN,
        record_cache: true,
        verify: true,
    }
}

/// A shard of either placement.
pub trait Engine: Shard + std::fmt::Debug + Sized {
    fn create(config: SlabConfig) -> impl Opener<Shard = Self>;
    fn recover(config: SlabConfig) -> impl Opener<Shard = Self>;
    fn check(&self) -> CheckReport;
    fn recovery(&self) -> &RecoveryReport;
}

macro_rules! engines {
    ($($shard:ty, $opener:ty;)*) => {$(
        impl Engine for $shard {
            fn create(config: SlabConfig) -> impl Opener<Shard = Self> {
                <$opener>::create(config)
            }
            fn recover(config: SlabConfig) -> impl Opener<Shard = Self> {
                <$opener>::recover(config)
            }
            fn check(&self) -> CheckReport {
                <$shard>::check(self)
            }
            fn recovery(&self) -> &RecoveryReport {
                <$shard>::recovery(self)
            }
        }
    )*};
}
engines! { Slab, SlabOpener; Packed, PackedOpener; }

/// Runs a block for each engine, which it calls `$engine`; its name is in `$name`.
#[macro_export]
macro_rules! each_engine {
    ($engine:ident, $name:ident => $body:block) => {{
        each_engine!(@ stratakv_slab::Slab, "slab", $engine, $name, $body);
        each_engine!(@ stratakv_slab::Packed, "packed", $engine, $name, $body);
    }};
    (@ $shard:ty, $called:literal, $engine:ident, $name:ident, $body:block) => {{
        type $engine = $shard;
        let $name = $called;
        $body
    }};
}

/// Runs an opener to its end, or until `stop` requests were completed.
pub fn open<O: Opener>(
    mut opener: O,
    disk: &mut Disk,
    effects: &mut Effects,
    random: &mut Random,
    stop: Option<u64>,
) -> Option<Result<O::Shard, Error>> {
    opener.start(effects);
    let mut completed = 0;
    loop {
        disk.submit(&mut effects.requests);
        if opener.is_finished() {
            return Some(opener.finish());
        }
        if stop == Some(completed) {
            return None;
        }
        completed += 1;
        let (io, outcome) = disk.complete(random.below(disk.in_flight() as u64) as usize);
        opener.complete(io, outcome, effects);
    }
}

/// A shard, its disk and its clock.
pub struct Machine<E = Slab> {
    pub disk: Disk,
    pub slab: E,
    pub effects: Effects,
    pub random: Random,
    pub now: Now,
    next: u32,
    pub replies: HashMap<u32, Reply>,
}

impl Machine {
    /// One of engine `slab`.
    pub fn create(seed: u64, limit_bytes: u64, memory_bytes: u64, capacity_bytes: Option<u64>) -> Machine {
        Machine::create_as(seed, limit_bytes, memory_bytes, capacity_bytes)
    }
}

impl<E: Engine> Machine<E> {
    /// One shard of several.
    pub fn create_of(shard: u32, shards: u32, seed: u64) -> Machine<E> {
        let mut disk = Disk::new(1 << 30);
        let mut random = Random::new(seed);
        let mut effects = Effects::new(Pool::new(8 << 20));
        let config = SlabConfig { shard, shards, ..config(&disk, 8 << 20, None) };
        let slab = open(E::create(config), &mut disk, &mut effects, &mut random, None).unwrap().unwrap();
        let now = Now { mono: Mono(1), wall: Wall(1000) };
        Machine { disk, slab, effects, random, now, next: 0, replies: HashMap::new() }
    }

    pub fn create_as(seed: u64, limit_bytes: u64, memory_bytes: u64, capacity_bytes: Option<u64>) -> Machine<E> {
        let mut disk = Disk::new(limit_bytes);
        let mut random = Random::new(seed);
        let mut effects = Effects::new(Pool::new(memory_bytes as usize));
        let opener = E::create(config(&disk, memory_bytes, capacity_bytes));
        let slab = open(opener, &mut disk, &mut effects, &mut random, None).unwrap().unwrap();
        let now = Now { mono: Mono(1), wall: Wall(1000) };
        Machine { disk, slab, effects, random, now, next: 0, replies: HashMap::new() }
    }

    /// Opens the volume again after a crash.
    pub fn recover(&mut self, memory_bytes: u64, capacity_bytes: Option<u64>) -> Result<(), Error> {
        self.recover_as(config(&self.disk, memory_bytes, capacity_bytes))
    }

    /// The same, of one shard of several.
    pub fn recover_of(&mut self, shard: u32, shards: u32) -> Result<(), Error> {
        self.recover_as(SlabConfig { shard, shards, ..config(&self.disk, 8 << 20, None) })
    }

    /// The same, for reading alone.
    pub fn recover_for_reading(&mut self, shard: u32, shards: u32) -> Result<(), Error> {
        self.recover_as(SlabConfig { shard, shards, read_only: true, ..config(&self.disk, 8 << 20, None) })
    }

    /// The same, with another pace of checkpoints.
    pub fn recover_paced(&mut self, pace: stratakv_slab::CheckpointPace, memory_bytes: u64, capacity: Option<u64>) {
        let config = config(&self.disk, memory_bytes, capacity);
        self.recover_as(SlabConfig { checkpoints: pace, ..config }).expect("the volume opens");
    }

    /// The same, of a shard that gives free pages to the file system at once.
    pub fn recover_discarding(&mut self, memory_bytes: u64, capacity: Option<u64>) {
        let pace = stratakv_slab::DiscardPace { after_ns: 0, bytes_per_second: u64::MAX, kept_bytes: 0 };
        let config = config(&self.disk, memory_bytes, capacity);
        self.recover_as(SlabConfig { discards: Some(pace), ..config }).expect("the volume opens");
    }

    fn recover_as(&mut self, config: SlabConfig) -> Result<(), Error> {
        self.replies.clear();
        self.disk.in_flight.clear();
        self.effects = Effects::new(Pool::new(config.memory_bytes as usize));
        let opener = E::recover(config);
        self.slab = open(opener, &mut self.disk, &mut self.effects, &mut self.random, None).unwrap()?;
        Ok(())
    }

    /// Hands over an operation; its number names the reply.
    pub fn submit(&mut self, operation: Operation) -> u32 {
        self.next += 1;
        self.effects.begin(self.now);
        let token = Token { slot: self.next, generation: 0 };
        self.slab.accept(token, operation, &mut self.effects).expect("the shard is open");
        self.next
    }

    /// Completes up to `count` requests, in random order, and ends the tick.
    pub fn tick(&mut self, count: u64) {
        self.now.mono.0 += 1_000_000;
        self.effects.begin(self.now);
        for _ in 0..count.min(self.disk.in_flight() as u64) {
            let (io, outcome) = self.disk.complete(self.random.below(self.disk.in_flight() as u64) as usize);
            self.slab.complete(io, outcome, &mut self.effects);
        }
        self.slab.tick_end(&mut self.effects);
        self.disk.submit(&mut self.effects.requests);
        for (token, reply) in self.effects.replies.drain(..) {
            assert!(self.replies.insert(token.slot, reply).is_none(), "a second reply for {token:?}");
        }
    }

    /// Runs until the operation is answered.
    pub fn wait(&mut self, number: u32) -> Reply {
        for _ in 0..100_000 {
            if let Some(reply) = self.replies.remove(&number) {
                return reply;
            }
            self.tick(4);
            let sleeps = self.disk.in_flight() == 0 && !self.effects.more && self.effects.wake_at.is_none();
            assert!(
                !sleeps || self.replies.contains_key(&number),
                "operation {number} waits, and nothing wakes the shard"
            );
        }
        panic!("operation {number} is never answered: {:#?}", self.slab);
    }

    pub fn run(&mut self, operation: Operation) -> Reply {
        let number = self.submit(operation);
        self.wait(number)
    }

    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Reply {
        self.run(put_operation(key, value, Expiry::NEVER, Level::PowerLoss))
    }

    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        match self.run(Operation::Get { key: self::key(key), part: stratakv_engine::RecordPart::Whole }) {
            Reply::Record(record) => Ok(record.map(|record| record.value.to_bytes().to_vec())),
            Reply::Failed(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    pub fn delete(&mut self, key: &[u8]) -> Reply {
        self.run(delete_operation(key, Level::PowerLoss))
    }

    /// Runs ticks until nothing is in flight.
    pub fn run_until_idle(&mut self) {
        for _ in 0..10_000 {
            self.tick(64);
            if self.disk.in_flight() == 0 {
                self.tick(0);
                if self.disk.in_flight() == 0 {
                    return;
                }
            }
        }
        panic!("never at rest");
    }

    /// The same, and whatever a shard does by itself after that.
    pub fn run_until_at_rest(&mut self) {
        loop {
            self.run_until_idle();
            if !self.effects.more {
                return;
            }
        }
    }

    pub fn close(&mut self) {
        self.effects.begin(self.now);
        self.slab.close(&mut self.effects);
        for _ in 0..10_000 {
            if self.slab.is_closed() {
                return;
            }
            self.tick(64);
        }
        panic!("never closed: {:#?}", self.slab);
    }
}

pub fn key(bytes: &[u8]) -> Key {
    Key::new(stratakv_base::CollectionId(0), bytes).unwrap()
}

pub fn put_operation(key: &[u8], value: &[u8], expiry: Expiry, level: Level) -> Operation {
    let kind = stratakv_engine::ChangeKind::Put { value: bytes::Bytes::copy_from_slice(value), flags: 0, expiry };
    write(key, stratakv_engine::Expect::Any, kind, level)
}

pub fn delete_operation(key: &[u8], level: Level) -> Operation {
    write(key, stratakv_engine::Expect::Any, stratakv_engine::ChangeKind::Delete, level)
}

pub fn write(
    key: &[u8],
    expect: stratakv_engine::Expect,
    kind: stratakv_engine::ChangeKind,
    level: Level,
) -> Operation {
    let changes = vec![stratakv_engine::Change { key: self::key(key), expect, kind }];
    Operation::Write { changes, level }
}
