//! A shard over a region and a volume in memory, driven to the end of whatever it is asked.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use stratakv_base::{CollectionId, Expiry, Key, Level, Mono, Now, Wall};
use stratakv_device::{DiskOutcome, DiskRequest, IoFault, Pool};
use stratakv_engine::{
    Change, ChangeKind, Effects, Error, Expect, Io, Opener, Operation, PageRequest, RecordPart, Reply, Shard, Token,
};
use stratakv_pmem::{Pmem, PmemError};

use crate::{Compression, Matrix, MatrixConfig, MatrixOpener};

pub(super) const UUID: [u8; 16] = *b"a fuzzed matrix ";
pub(super) const REGION_BYTES: usize = 192 << 10;
/// What lies beyond finds the device full.
const DEVICE_BYTES: u64 = 32 << 20;
/// Ticks within which everything ends.
const TICKS_MAX: usize = 5_000;

/// What a key has: nothing, or bytes.
pub(super) type Value = Option<Vec<u8>>;

/// Bytes that a shard and the fuzzer share.
#[derive(Clone, Debug)]
pub(super) struct Region(Arc<Mutex<Vec<u8>>>);

impl Region {
    pub(super) fn new(image: Vec<u8>) -> Region {
        Region(Arc::new(Mutex::new(image)))
    }

    pub(super) fn image(&self) -> Vec<u8> {
        self.with(|bytes| bytes.clone())
    }

    pub(super) fn with<T>(&self, action: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        action(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn at<T>(&self, offset: u64, len: usize, action: impl FnOnce(&mut [u8]) -> T) -> Result<T, PmemError> {
        self.with(|bytes| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let place = bytes.get_mut(start..).and_then(|rest| rest.get_mut(..len));
            place.map(action).ok_or(PmemError::Poisoned { offset })
        })
    }
}

impl Pmem for Region {
    fn len_bytes(&self) -> u64 {
        self.with(|bytes| bytes.len() as u64)
    }
    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), PmemError> {
        self.at(offset, into.len(), |bytes| into.copy_from_slice(bytes))
    }
    fn load_u64(&self, offset: u64) -> Result<u64, PmemError> {
        let mut word = [0; 8];
        self.load(offset, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.at(offset, bytes.len(), |place| place.copy_from_slice(bytes))
    }
    fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError> {
        self.store(offset, &value.to_le_bytes())
    }
    fn store_nt(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.store(offset, bytes)
    }
    fn flush(&self, _: u64, _: u64) -> Result<(), PmemError> {
        Ok(())
    }
    fn fence(&self) -> Result<(), PmemError> {
        Ok(())
    }
}

pub(super) fn config(session: u64, read_only: bool) -> MatrixConfig {
    MatrixConfig {
        uuid: UUID,
        shard: 0,
        shards: 1,
        memory_bytes: 4 << 20,
        depth: 8,
        capacity_bytes: Some(16 << 20),
        row_bytes: 8 << 10,
        table_bytes: 16 << 10,
        level_bytes: 24 << 10,
        pmem_levels_bytes: 0,
        range_keys_few: 4,
        compression: Compression::Lz4,
        read_only,
        session,
    }
}

pub(super) fn key(name: &[u8]) -> Key {
    Key::bound(CollectionId(0), name)
}

pub(super) struct Machine {
    pub(super) region: Region,
    pub(super) volume: Vec<u8>,
    pub(super) shard: Matrix<Region>,
    effects: Effects,
    in_flight: VecDeque<(Io, DiskRequest)>,
    replies: Vec<Reply>,
    more: bool,
    now: Now,
    next: u32,
}

impl Machine {
    pub(super) fn create() -> Machine {
        let region = Region::new(vec![0; REGION_BYTES]);
        let opener = MatrixOpener::create(config(1, false), region.clone(), 4096);
        Machine::open(opener, region, Vec::new()).expect("a new shard")
    }

    pub(super) fn recover(config: MatrixConfig, region: Vec<u8>, volume: Vec<u8>) -> Result<Machine, Error> {
        let region = Region::new(region);
        Machine::open(MatrixOpener::recover(config, region.clone()), region, volume)
    }

    fn open(mut opener: MatrixOpener<Region>, region: Region, mut volume: Vec<u8>) -> Result<Machine, Error> {
        let now = Now { mono: Mono(1), wall: Wall(1000) };
        let mut effects = Effects::new(Pool::new(4 << 20));
        effects.begin(now);
        opener.start(&mut effects);
        let mut in_flight: VecDeque<_> = effects.requests.drain(..).collect();
        for _ in 0..TICKS_MAX {
            let Some((io, request)) = in_flight.pop_front() else {
                assert!(opener.is_finished(), "waits for nothing");
                let shard = opener.finish()?;
                let (replies, more) = (Vec::new(), false);
                return Ok(Machine { region, volume, shard, effects, in_flight, replies, more, now, next: 0 });
            };
            opener.complete(io, carry_out(&mut volume, request), &mut effects);
            in_flight.extend(effects.requests.drain(..));
        }
        panic!("opening does not end");
    }

    fn take_effects(&mut self) {
        self.more = self.effects.more;
        self.in_flight.extend(self.effects.requests.drain(..));
        self.replies.extend(self.effects.replies.drain(..).map(|(_, reply)| reply));
        self.effects.messages.clear();
    }

    /// Ends a tick, and does what was in flight before.
    pub(super) fn tick(&mut self) {
        self.now.mono.0 += 1_000_000;
        if self.in_flight.is_empty()
            && !self.more
            && let Some(at) = self.effects.wake_at
        {
            self.now.mono = self.now.mono.max(at);
        }
        self.effects.begin(self.now);
        self.shard.tick_end(&mut self.effects);
        self.take_effects();
        for _ in 0..self.in_flight.len() {
            let Some((io, request)) = self.in_flight.pop_front() else { break };
            let outcome = carry_out(&mut self.volume, request);
            self.effects.begin(self.now);
            self.shard.complete(io, outcome, &mut self.effects);
            let more = self.more;
            self.take_effects();
            self.more |= more;
        }
    }

    fn run(&mut self, operation: Operation) -> Reply {
        self.next += 1;
        let token = Token { slot: self.next, generation: 0 };
        let mut waiting = Some(operation);
        for _ in 0..TICKS_MAX {
            if let Some(operation) = waiting.take() {
                self.effects.begin(self.now);
                waiting = self.shard.accept(token, operation, &mut self.effects).err();
                self.take_effects();
            }
            if let Some(reply) = self.replies.pop() {
                return reply;
            }
            self.tick();
        }
        panic!("an operation is never answered");
    }

    pub(super) fn get(&mut self, key: &Key) -> Result<Value, Error> {
        match self.run(Operation::Get { key: key.clone(), part: RecordPart::Whole }) {
            Reply::Record(record) => Ok(record.map(|record| record.value.to_bytes().to_vec())),
            Reply::Failed(error) => Err(error),
            other => panic!("a get is answered {other:?}"),
        }
    }

    pub(super) fn put(&mut self, key: &Key, value: &Value) -> Result<(), Error> {
        let kind = match value {
            Some(value) => ChangeKind::Put { value: value.clone().into(), flags: 0, expiry: Expiry::NEVER },
            None => ChangeKind::Delete,
        };
        let changes = vec![Change { key: key.clone(), expect: Expect::Any, kind }];
        self.done(Operation::Write { changes, level: Level::PowerLoss })
    }

    pub(super) fn delete_range(&mut self, from: &Key, to: &Key) -> Result<(), Error> {
        let range = (Bound::Included(from.clone()), Bound::Excluded(to.clone()));
        self.done(Operation::DeleteRange { range: Box::new(range), level: Level::PowerLoss })
    }

    fn done(&mut self, operation: Operation) -> Result<(), Error> {
        match self.run(operation) {
            Reply::Done { .. } | Reply::Number { .. } => Ok(()),
            Reply::Failed(error) => Err(error),
            other => panic!("a write is answered {other:?}"),
        }
    }

    /// Every key and, unless it goes backwards, its value; or why not.
    pub(super) fn scan(&mut self, reverse: bool) -> Result<Vec<(Key, Value)>, Error> {
        let (mut from, mut to, mut found) = (Bound::Unbounded, Bound::Unbounded, Vec::new());
        for _ in 0..TICKS_MAX {
            let bounds = (from.clone(), to.clone());
            let request = PageRequest {
                from: bounds.0,
                to: bounds.1,
                reverse,
                keys_only: reverse,
                items_max: 64,
                bytes_max: 1 << 20,
                at: None,
            };
            let (items, next) = match self.run(Operation::Page(request.into())) {
                Reply::Page { items, next } => (items, next),
                Reply::Failed(error) => return Err(error),
                other => panic!("a page is answered {other:?}"),
            };
            let value = |record: stratakv_engine::Record| record.value.to_bytes().to_vec();
            found.extend(items.into_iter().map(|item| (item.key, item.record.map(value))));
            let Some(next) = next else { return Ok(found) };
            *(if reverse { &mut to } else { &mut from }) = next;
        }
        panic!("a scan does not end");
    }

    /// So many ticks, or until nothing is to be done.
    pub(super) fn rest(&mut self, ticks: usize) {
        for _ in 0..ticks {
            self.tick();
            if self.in_flight.is_empty() && !self.more {
                return;
            }
        }
    }

    /// An orderly end: region and volume.
    pub(super) fn close(mut self) -> (Vec<u8>, Vec<u8>) {
        self.effects.begin(self.now);
        self.shard.close(&mut self.effects);
        self.take_effects();
        for _ in 0..TICKS_MAX {
            if self.shard.is_closed() {
                return self.kill();
            }
            self.tick();
        }
        panic!("it never closes");
    }

    /// What is in flight does not happen.
    pub(super) fn kill(self) -> (Vec<u8>, Vec<u8>) {
        (self.region.image(), self.volume)
    }
}

fn carry_out(volume: &mut Vec<u8>, request: DiskRequest) -> DiskOutcome {
    match request {
        DiskRequest::Read { offset, mut block, len } => {
            let from = usize::try_from(offset).unwrap_or(usize::MAX);
            match volume.get(from..).and_then(|rest| rest.get(..len as usize)) {
                Some(bytes) => block[..bytes.len()].copy_from_slice(bytes),
                None => return DiskOutcome::Read(block, Err(IoFault::Short)),
            }
            DiskOutcome::Read(block, Ok(()))
        }
        DiskRequest::Write { offset, parts, .. } => {
            let len: u64 = parts.iter().map(|part| u64::from(part.len)).sum();
            let Some(end) = offset.checked_add(len).filter(|end| *end <= DEVICE_BYTES) else {
                return DiskOutcome::Write(Err(IoFault::Full));
            };
            volume.resize(volume.len().max(end as usize), 0);
            let mut at = offset as usize;
            for part in &parts {
                volume[at..at + part.len as usize].copy_from_slice(part.bytes());
                at += part.len as usize;
            }
            DiskOutcome::Write(Ok(()))
        }
        DiskRequest::Flush => DiskOutcome::Flush(Ok(())),
        DiskRequest::Allocate { offset, len } => {
            let fits = offset.checked_add(len).is_some_and(|end| end <= DEVICE_BYTES);
            DiskOutcome::Allocate(if fits { Ok(()) } else { Err(IoFault::Full) })
        }
        DiskRequest::Discard { .. } => DiskOutcome::Discard(Ok(())),
    }
}
