//! The unit harness: a shard on a disk that does each request when it is told to, and a region
//! whose stores fail on command. For what the simulator meets too rarely.

mod compression;
mod failures;
#[cfg(feature = "fault_points")]
mod fault_points;
mod giving_up;
mod growth;
mod installs;
mod load;
mod pairing;
mod pmem_levels;
mod ranges;
mod reads;
mod shards;
mod space;
mod walks;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{CollectionId, Expiry, Key, Level, Mono, Now, Wall};
use stratakv_device::{DiskOutcome, DiskRequest, IoFault, Pool};
use stratakv_engine::{
    Change, ChangeKind, Effects, Expect, Io, Opener, Operation, PageRequest, RecordPart, Reply, Shard, Token,
};
use stratakv_pmem::{Pmem, PmemError};
use stratakv_sim::pmem::Memory;

use crate::{Compression, Matrix, MatrixConfig, MatrixOpener};

/// A region that refuses stores once so many were made.
#[derive(Clone, Debug)]
pub(crate) struct Faulty {
    memory: Memory,
    stores_left: Arc<AtomicI64>,
    fences_left: Arc<AtomicI64>,
    syncs_left: Arc<AtomicI64>,
    /// Calls of sync.
    pub(crate) syncs: Arc<AtomicI64>,
    /// What fences is lost with the power.
    pub(crate) volatile: Arc<std::sync::atomic::AtomicBool>,
}

impl Faulty {
    fn new(bytes: usize) -> Faulty {
        let many = || Arc::new(AtomicI64::new(i64::MAX));
        let (stores_left, fences_left, syncs_left) = (many(), many(), many());
        let memory = Memory::new(bytes, 3);
        Faulty { memory, stores_left, fences_left, syncs_left, syncs: Arc::default(), volatile: Arc::default() }
    }

    fn count(left: &AtomicI64) -> Result<(), PmemError> {
        if left.fetch_sub(1, Ordering::Relaxed) > 0 { Ok(()) } else { Err(PmemError::Poisoned { offset: 0 }) }
    }
}

impl Pmem for Faulty {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }
    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), PmemError> {
        self.memory.load(offset, into)
    }
    fn load_u64(&self, offset: u64) -> Result<u64, PmemError> {
        self.memory.load_u64(offset)
    }
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        Faulty::count(&self.stores_left)?;
        self.memory.store(offset, bytes)
    }
    fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError> {
        Faulty::count(&self.stores_left)?;
        self.memory.store_u64(offset, value)
    }
    fn store_nt(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        Faulty::count(&self.stores_left)?;
        self.memory.store_nt(offset, bytes)
    }
    fn flush(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        self.memory.flush(offset, len_bytes)
    }
    fn fence(&self) -> Result<(), PmemError> {
        Faulty::count(&self.fences_left)?;
        self.memory.fence()
    }
    fn sync(&self) -> Result<(), PmemError> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Faulty::count(&self.syncs_left)?;
        self.fence()
    }
    fn survives_power_loss(&self) -> bool {
        !self.volatile.load(Ordering::Relaxed)
    }
}

/// Ticks of which none brings anything, after which a shard counts as stuck.
const TICKS_MAX: u32 = 5_000;

/// See the module.
pub(crate) struct Harness {
    pub(crate) config: MatrixConfig,
    pub(crate) region: Faulty,
    pub(crate) shard: Matrix<Faulty>,
    pub(crate) volume: Vec<u8>,
    /// Requests that were submitted and not carried out, in order.
    pub(crate) in_flight: VecDeque<(Io, DiskRequest)>,
    pub(crate) replies: HashMap<u32, Reply>,
    /// The last tick asked for another one.
    pub(crate) more: bool,
    /// It asked for one, then or later.
    pub(crate) wakes: bool,
    pub(crate) effects: Effects,
    now: Now,
    last_token: u32,
    /// What lies beyond finds the device full.
    pub(crate) device_bytes: u64,
}

pub(crate) fn config() -> MatrixConfig {
    MatrixConfig {
        uuid: *b"a store on trial",
        shard: 0,
        shards: 1,
        memory_bytes: 8 << 20,
        depth: 16,
        capacity_bytes: Some(64 << 20),
        row_bytes: 24 << 10,
        table_bytes: 64 << 10,
        level_bytes: 256 << 10,
        pmem_levels_bytes: 0,
        range_keys_few: 16,
        compression: Compression::None,
        read_only: false,
        session: 1,
    }
}

/// A unit of the region.
pub(crate) const UNIT_BYTES: u32 = 4096;

pub(crate) fn key(name: &str) -> Key {
    Key::new(CollectionId(0), name.as_bytes()).unwrap()
}

pub(crate) fn value(seed: u64, bytes: usize) -> Bytes {
    let mut random = stratakv_base::random::Random::new(seed);
    (0..bytes).map(|_| random.below(256) as u8).collect::<Vec<u8>>().into()
}

pub(crate) fn put(name: &str, value: Bytes) -> Change {
    let kind = ChangeKind::Put { value, flags: 0, expiry: Expiry::NEVER };
    Change { key: key(name), expect: Expect::Any, kind }
}

pub(crate) fn delete(name: &str) -> Change {
    Change { key: key(name), expect: Expect::Any, kind: ChangeKind::Delete }
}

pub(crate) fn write(changes: Vec<Change>) -> Operation {
    Operation::Write { changes, level: Level::PowerLoss }
}

pub(crate) fn get(name: &str) -> Operation {
    Operation::Get { key: key(name), part: RecordPart::Whole }
}

pub(crate) fn page(items_max: u32, at: Option<u64>) -> Operation {
    use std::ops::Bound::Unbounded;
    let bytes_max = 64 << 20;
    let (reverse, keys_only) = (false, false);
    Operation::Page(PageRequest { from: Unbounded, to: Unbounded, reverse, keys_only, items_max, bytes_max, at }.into())
}

/// The value of a record that was found.
pub(crate) fn found(reply: &Reply) -> Option<Vec<u8>> {
    match reply {
        Reply::Record(record) => record.as_ref().map(|record| record.value.slices().flatten().copied().collect()),
        other => panic!("not a record: {other:?}"),
    }
}

impl Harness {
    /// A new store.
    pub(crate) fn new(config: MatrixConfig, region_bytes: usize, unit_bytes: u32) -> Harness {
        let region = Faulty::new(region_bytes);
        let opener = MatrixOpener::create(config.clone(), region.clone(), unit_bytes);
        let (mut volume, pool) = (Vec::new(), Pool::new(config.memory_bytes as usize));
        let mut effects = Effects::new(pool);
        let shard = open(opener, &mut effects, &mut volume, u32::MAX).unwrap();
        Harness {
            config,
            region,
            shard,
            volume,
            in_flight: VecDeque::new(),
            replies: HashMap::new(),
            more: false,
            wakes: false,
            effects,
            now: Now { mono: Mono(1), wall: Wall(1000) },
            last_token: 0,
            device_bytes: u64::MAX,
        }
    }

    /// The process ends, what is in flight does not happen; the store is opened again. Of the
    /// requests of opening so many are carried out: fewer than it has make it end before it serves,
    /// and another one follows.
    pub(crate) fn reopen_after(&mut self, requests: u32) -> Result<(), stratakv_engine::Error> {
        self.in_flight.clear();
        self.replies.clear();
        self.effects = Effects::new(Pool::new(self.config.memory_bytes as usize));
        let opener = MatrixOpener::recover(self.config.clone(), self.region.clone());
        if let Some(shard) = open_some(opener, &mut self.effects, &mut self.volume, requests)? {
            self.shard = shard;
            return Ok(());
        }
        self.reopen_after(u32::MAX)
    }

    pub(crate) fn reopen(&mut self) {
        self.reopen_after(u32::MAX).unwrap();
    }

    /// From here on stores, or fences, fail after so many.
    pub(crate) fn fail_stores_after(&self, stores: i64) {
        self.region.stores_left.store(stores, Ordering::Relaxed);
    }

    pub(crate) fn fail_fences_after(&self, fences: i64) {
        self.region.fences_left.store(fences, Ordering::Relaxed);
    }

    pub(crate) fn fail_syncs_after(&self, syncs: i64) {
        self.region.syncs_left.store(syncs, Ordering::Relaxed);
    }

    /// Hands over an operation, in a tick that has not ended.
    pub(crate) fn submit(&mut self, operation: Operation) -> u32 {
        self.last_token += 1;
        let token = Token { slot: self.last_token, generation: 0 };
        let mut waiting = Some(operation);
        for _ in 0..TICKS_MAX {
            let Some(operation) = waiting.take() else { break };
            self.effects.begin(self.now);
            if let Err(refused) = self.shard.accept(token, operation, &mut self.effects) {
                self.now.mono = self.effects.wake_at.expect("it is told when to try again");
                waiting = Some(refused);
            }
        }
        assert!(waiting.is_none(), "it is never accepted");
        self.last_token
    }

    /// Ends a tick.
    pub(crate) fn tick(&mut self) {
        self.now.mono.0 += 1_000_000;
        self.effects.begin(self.now);
        self.shard.tick_end(&mut self.effects);
        self.take_effects();
    }

    fn take_effects(&mut self) {
        self.more = self.effects.more;
        self.wakes = self.more || self.effects.wake_at.is_some();
        self.in_flight.extend(self.effects.requests.drain(..));
        for (token, reply) in self.effects.replies.drain(..) {
            assert!(self.replies.insert(token.slot, reply).is_none(), "a second reply");
        }
    }

    /// The first request in flight for which `choose` says so is carried out, or fails. Whether
    /// there was one.
    pub(crate) fn complete_where(&mut self, fault: Option<IoFault>, choose: impl Fn(&DiskRequest) -> bool) -> bool {
        let Some(at) = self.in_flight.iter().position(|(_, request)| choose(request)) else { return false };
        let Some((io, request)) = self.in_flight.remove(at) else { return false };
        let end = match &request {
            DiskRequest::Allocate { offset, len } => offset + len,
            DiskRequest::Write { offset, parts, .. } => {
                offset + parts.iter().map(|part| u64::from(part.len)).sum::<u64>()
            }
            _ => 0,
        };
        let fault = fault.or((end > self.device_bytes).then_some(IoFault::Full));
        let outcome = carry_out(&mut self.volume, request, fault);
        self.effects.begin(self.now);
        self.shard.complete(io, outcome, &mut self.effects);
        self.take_effects();
        true
    }

    /// Runs ticks until nothing is in flight and no tick is asked for. The number of ticks.
    pub(crate) fn run_until_idle(&mut self) -> u32 {
        self.run_until(|_| false)
    }

    /// As [`Harness::run_until_idle`], or until `done` says so.
    pub(crate) fn run_until(&mut self, done: impl Fn(&Harness) -> bool) -> u32 {
        for tick in 0..TICKS_MAX {
            self.tick();
            if done(self) {
                return tick;
            }
            if self.in_flight.is_empty() && !self.more {
                return tick;
            }
            while self.complete_where(None, |_| true) {}
        }
        panic!("the shard never comes to rest");
    }

    /// Requests one by one, and ticks between them, until `done` says so.
    pub(crate) fn go_on_until(&mut self, done: impl Fn(&Harness) -> bool) {
        for _ in 0..TICKS_MAX {
            if done(self) {
                return;
            }
            if !self.complete_where(None, |_| true) {
                self.tick();
                assert!(!self.in_flight.is_empty() || self.more || done(self), "nothing happens any more");
            }
        }
        panic!("it never comes to that");
    }

    /// Hands over an operation, and ticks until it is answered.
    pub(crate) fn ask(&mut self, operation: Operation) -> Reply {
        let token = self.submit(operation);
        self.run_until(|harness| harness.replies.contains_key(&token));
        self.replies.remove(&token).expect("the operation is never answered")
    }

    /// An orderly end.
    pub(crate) fn close(&mut self) {
        self.effects.begin(self.now);
        self.shard.close(&mut self.effects);
        self.run_until(|harness| harness.shard.is_closed());
        assert!(self.shard.is_closed(), "it never closes");
    }

    pub(crate) fn pass(&mut self, seconds: u64) {
        self.now.mono.0 += seconds * 1_000_000_000;
    }

    /// Puts `keys` keys, each with a value of so many bytes; those are drawn from `seed` and the
    /// key.
    pub(crate) fn fill(&mut self, keys: std::ops::Range<u64>, bytes: usize) {
        for number in keys {
            let reply = self.ask(write(vec![put(&name(number), value(number, bytes))]));
            assert!(matches!(reply, Reply::Done { .. }), "key {number}: {reply:?}");
        }
    }

    /// Sees that keys have what [`Harness::fill`] gave them.
    pub(crate) fn assert_filled(&mut self, keys: std::ops::Range<u64>, bytes: usize) {
        for number in keys {
            let reply = self.ask(get(&name(number)));
            assert_eq!(found(&reply).as_deref(), Some(&value(number, bytes)[..]), "key {number}");
        }
    }

    pub(crate) fn assert_sound(&self) {
        let (damage, mistakes) = self.shard.check();
        assert!(damage.is_empty() && mistakes.is_empty(), "{damage:?} {mistakes:?}");
    }

    pub(crate) fn statistic(&self, name: &str) -> u64 {
        let mut statistics = Vec::new();
        self.shard.statistics(&mut statistics);
        statistics.iter().find(|statistic| statistic.name == name).expect("a known name").value
    }
}

pub(crate) fn name(number: u64) -> String {
    format!("key{number:06}")
}

fn open(
    opener: MatrixOpener<Faulty>,
    effects: &mut Effects,
    volume: &mut Vec<u8>,
    requests: u32,
) -> Result<Matrix<Faulty>, stratakv_engine::Error> {
    open_some(opener, effects, volume, requests).map(|shard| shard.expect("it was not stopped"))
}

fn open_some(
    mut opener: MatrixOpener<Faulty>,
    effects: &mut Effects,
    volume: &mut Vec<u8>,
    mut requests: u32,
) -> Result<Option<Matrix<Faulty>>, stratakv_engine::Error> {
    effects.begin(Now { mono: Mono(1), wall: Wall(1000) });
    opener.start(effects);
    let mut queue: VecDeque<(Io, DiskRequest)> = effects.requests.drain(..).collect();
    while let Some((io, request)) = queue.pop_front() {
        let is_write = matches!(request, DiskRequest::Write { .. });
        if is_write && requests == 0 {
            return Ok(None);
        }
        requests -= u32::from(is_write);
        opener.complete(io, carry_out(volume, request, None), effects);
        queue.extend(effects.requests.drain(..));
    }
    assert!(opener.is_finished());
    opener.finish().map(Some)
}

fn carry_out(volume: &mut Vec<u8>, request: DiskRequest, fault: Option<IoFault>) -> DiskOutcome {
    let result = fault.map_or(Ok(()), Err);
    match request {
        DiskRequest::Read { offset, mut block, len } => {
            let range = offset as usize..offset as usize + len as usize;
            match volume.get(range) {
                Some(bytes) if result.is_ok() => block[..bytes.len()].copy_from_slice(bytes),
                Some(_) => {}
                None => return DiskOutcome::Read(block, Err(IoFault::Short)),
            }
            DiskOutcome::Read(block, result)
        }
        DiskRequest::Write { offset, parts, .. } => {
            let mut at = offset as usize;
            for part in parts.iter().filter(|_| result.is_ok()) {
                let end = at + part.len as usize;
                if volume.len() < end {
                    volume.resize(end, 0);
                }
                volume[at..end].copy_from_slice(part.bytes());
                at = end;
            }
            DiskOutcome::Write(result)
        }
        DiskRequest::Flush => DiskOutcome::Flush(result),
        DiskRequest::Allocate { .. } => DiskOutcome::Allocate(result),
        DiskRequest::Discard { .. } => DiskOutcome::Discard(result),
    }
}
