//! A shard on an image in memory, driven to the end of whatever it is asked.

use std::ops::Bound;

use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Expiry, Key, Level, Mono, Now, Wall};
use stratakv_device::memory::Image;
use stratakv_device::{DiskRequest, Pool};
use stratakv_engine::{
    Change, ChangeKind, Effects, Error, Expect, Io, Opener, Operation, Record, RecordPart, Reply, Shard, Token,
};

use crate::{Tier, TierConfig, TierOpener, Verified};

pub(super) const UUID: [u8; 16] = *b"a fuzzed cache  ";
/// 256 pages: four of them are the journal's ring.
pub(super) const CAPACITY_BYTES: u64 = 1 << 20;
/// Ticks within which everything ends. One in which nothing happens goes on to when the shard wants
/// to be woken.
const TICKS_MAX: usize = 20_000;

/// What a key has: nothing, or bytes.
pub(super) type Value = Option<Vec<u8>>;

pub(super) fn config() -> TierConfig {
    TierConfig {
        uuid: UUID,
        shard: 0,
        shards: 1,
        // Little, so that segments leave it.
        memory_bytes: 512 << 10,
        depth: 8,
        capacity_bytes: Some(CAPACITY_BYTES),
        segment_bytes: 8 << 10,
        collected_percent: 66,
        boot: Some([1; 16]),
        saves_at_shutdown: false,
        begins_empty: false,
        read_only: false,
    }
}

pub(super) struct Machine {
    pub(super) image: Image,
    pub(super) shard: Tier,
    effects: Effects,
    in_flight: Vec<(Io, DiskRequest)>,
    random: Random,
    now: Now,
    next: u32,
}

impl Machine {
    pub(super) fn create() -> Machine {
        Machine::open(TierOpener::create(config()), Vec::new(), 3).expect("a new volume")
    }

    pub(super) fn recover(config: TierConfig, image: Vec<u8>, seed: u64) -> Result<Machine, Error> {
        Machine::open(TierOpener::recover(config), image, seed)
    }

    fn open(mut opener: TierOpener, bytes: Vec<u8>, seed: u64) -> Result<Machine, Error> {
        let mut image = Image { bytes, capacity_bytes: Some(CAPACITY_BYTES) };
        let now = Now { mono: Mono(1), wall: Wall(1000) };
        let mut effects = Effects::new(Pool::new(1 << 20));
        let (mut random, mut in_flight) = (Random::new(seed), Vec::new());
        effects.begin(now);
        opener.start(&mut effects);
        for _ in 0..TICKS_MAX {
            in_flight.append(&mut effects.requests);
            if in_flight.is_empty() {
                assert!(opener.is_finished(), "waits for nothing");
                return Ok(Machine { image, shard: opener.finish()?, effects, in_flight, random, now, next: 0 });
            }
            let (io, request) = in_flight.swap_remove(random.below(in_flight.len() as u64) as usize);
            opener.complete(io, image.execute(request), &mut effects);
        }
        panic!("opening does not end");
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.shard.config.read_only
    }

    /// Completes some requests in any order and ends the tick.
    fn tick(&mut self) -> Option<Reply> {
        self.now.mono.0 += 1_000_000;
        if self.in_flight.is_empty()
            && !self.effects.more
            && let Some(at) = self.effects.wake_at
        {
            self.now.mono = self.now.mono.max(at);
        }
        self.effects.begin(self.now);
        for _ in 0..self.in_flight.len().min(4) {
            let (io, request) = self.in_flight.swap_remove(self.random.below(self.in_flight.len() as u64) as usize);
            self.shard.complete(io, self.image.execute(request), &mut self.effects);
        }
        self.shard.tick_end(&mut self.effects);
        self.in_flight.append(&mut self.effects.requests);
        self.effects.replies.pop().map(|(_, reply)| reply)
    }

    fn run(&mut self, operation: Operation) -> Reply {
        self.next += 1;
        self.effects.begin(self.now);
        let token = Token { slot: self.next, generation: 0 };
        assert!(self.shard.accept(token, operation, &mut self.effects).is_ok(), "it takes what is asked alone");
        if let Some((_, reply)) = self.effects.replies.pop() {
            return reply;
        }
        self.in_flight.append(&mut self.effects.requests);
        (0..TICKS_MAX).find_map(|_| self.tick()).expect("an operation is answered")
    }

    pub(super) fn get(&mut self, key: &Key) -> Value {
        match self.run(Operation::Get { key: key.clone(), part: RecordPart::Whole }) {
            Reply::Record(record) => record.map(whole),
            other => panic!("a get is answered {other:?}"),
        }
    }

    /// As [`Machine::get`], so many bytes at a time. `None` also if its end could not be had.
    pub(super) fn get_slices(&mut self, key: &Key, step: u32) -> Value {
        let sliced = |hold, start| {
            let part = RecordPart::Sliced { hold, start, len: step };
            Operation::Get { key: key.clone(), part }
        };
        let (record, hold) = match self.run(sliced(0, 0)) {
            Reply::Record(Some(record)) if record.value.len() < record.value_bytes => return self.get(key),
            Reply::Record(record) => return record.map(whole),
            Reply::Part(record, hold) => (record, hold),
            other => panic!("a get is answered {other:?}"),
        };
        let mut bytes = record.value.to_bytes().to_vec();
        while (bytes.len() as u64) < record.value_bytes {
            match self.run(sliced(hold.id(), bytes.len() as u64)) {
                Reply::Record(Some(more)) if !more.value.is_empty() => {
                    assert_eq!(more.value_bytes, record.value_bytes);
                    bytes.extend_from_slice(&more.value.to_bytes());
                }
                Reply::Record(None) => return None,
                other => panic!("a slice is answered {other:?}"),
            }
        }
        Some(bytes)
    }

    pub(super) fn put(&mut self, key: &Key, value: &Value) -> Result<(), Error> {
        let kind = match value {
            Some(value) => ChangeKind::Put { value: value.clone().into(), flags: 0, expiry: Expiry::NEVER },
            None => ChangeKind::Delete,
        };
        let changes = vec![Change { key: key.clone(), expect: Expect::Any, kind }];
        self.done(Operation::Write { changes, level: Level::Memory })
    }

    /// Deletes all that a collection has.
    pub(super) fn flush(&mut self, collection: u32) -> Result<(), Error> {
        let bound = |collection| Key::bound(CollectionId(collection), b"");
        let range = (Bound::Included(bound(collection)), Bound::Excluded(bound(collection + 1)));
        self.done(Operation::DeleteRange { range: Box::new(range), level: Level::Memory })
    }

    fn done(&mut self, operation: Operation) -> Result<(), Error> {
        match self.run(operation) {
            Reply::Done { .. } | Reply::Number { .. } => Ok(()),
            Reply::Failed(error) => Err(error),
            other => panic!("a write is answered {other:?}"),
        }
    }

    /// Runs ticks until nothing is in flight.
    pub(super) fn rest(&mut self) {
        for _ in 0..TICKS_MAX {
            self.tick();
            if self.in_flight.is_empty() && !self.effects.more {
                return;
            }
        }
        panic!("never at rest");
    }

    /// An orderly end.
    pub(super) fn close(mut self) -> Vec<u8> {
        self.effects.begin(self.now);
        self.shard.close(&mut self.effects);
        for _ in 0..TICKS_MAX {
            if self.shard.is_closed() {
                return self.image.bytes;
            }
            self.tick();
        }
        panic!("never closed");
    }

    /// The process dies, the system runs on: what was issued is there.
    pub(super) fn kill(mut self) -> Vec<u8> {
        while let Some((_, request)) = self.in_flight.pop() {
            self.image.execute(request);
        }
        self.image.bytes
    }

    /// What `verify` says of it.
    pub(super) fn verify(&self) -> Verified {
        let bytes = &self.image.bytes;
        self.shard.verify(&mut |offset, len| {
            assert!(len as u64 <= CAPACITY_BYTES, "{len} bytes at once are longer than the volume");
            let end = offset.checked_add(len as u64).ok_or("it lies nowhere")?;
            bytes.get(offset as usize..end as usize).map(<[u8]>::to_vec).ok_or_else(|| "it ends before".to_owned())
        })
    }
}

fn whole(record: Record) -> Vec<u8> {
    assert_eq!(record.value.len(), record.value_bytes);
    record.value.to_bytes().to_vec()
}
