//! A shard on an image in memory, driven to the end of whatever it is asked.

use std::ops::Bound;

use bytes::Bytes;
use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Expiry, Key, Level, Mono, Now, Wall};
use stratakv_device::memory::Image;
use stratakv_device::{DiskRequest, Geometry, Pool};
use stratakv_engine::{
    Change, ChangeKind, Effects, Error, Expect, Io, Opener, Operation, PageRequest, RecordPart, Reply, Shard, Token,
};

use super::UUID;
use crate::batch::record;
use crate::batch::{BatchId, BatchStep};
use crate::opener::IndexedOpener;
use crate::placement::Placement;
use crate::write::{Kind, Origin, Work};
use crate::{CheckpointPace, IndexedShard, SlabConfig};

const MEMORY_BYTES: u64 = 4 << 20;
/// Ticks within which everything ends.
const TICKS_MAX: usize = 2000;

/// What a key has: nothing, or bytes.
pub(super) type Value = Option<Vec<u8>>;

/// How a volume of so many bytes is opened: the bits of `mode` decide.
pub(super) fn config(volume_bytes: u64, capacity_bytes: u64, mode: u8) -> SlabConfig {
    SlabConfig {
        uuid: UUID,
        shard: 0,
        shards: 1,
        geometry: Geometry { volatile_cache: mode & 4 != 0, ..Geometry::unknown() },
        memory_bytes: MEMORY_BYTES,
        depth: 8,
        capacity_bytes: (mode & 8 != 0).then_some(capacity_bytes),
        volume_bytes,
        read_only: mode & 0x30 == 0x30,
        // Often: a few records make one worth it.
        checkpoints: CheckpointPace { log_bytes_min: 12 << 10, times: 0, step_bytes: 200 },
        discards: None,
        scanned_per_write_min: 0,
        record_cache: true,
        verify: mode & 0x40 != 0,
    }
}

/// A shard on an image in memory.
pub(super) struct Machine<P: Placement> {
    pub(super) image: Image,
    pub(super) slab: IndexedShard<P>,
    effects: Effects,
    in_flight: Vec<(Io, DiskRequest)>,
    random: Random,
    now: Now,
    next: u32,
}

impl<P: Placement> Machine<P> {
    pub(super) fn recover(image: Image, capacity_bytes: u64, mode: u8) -> Result<Machine<P>, Error> {
        let config = config(image.bytes.len() as u64, capacity_bytes, mode);
        Machine::open(IndexedOpener::recover(config), image, u64::from(mode))
    }

    pub(super) fn open(mut opener: IndexedOpener<P>, mut image: Image, seed: u64) -> Result<Machine<P>, Error> {
        let mut effects = Effects::new(Pool::new(MEMORY_BYTES as usize));
        let mut random = Random::new(seed);
        let mut in_flight = Vec::new();
        opener.start(&mut effects);
        for _ in 0..TICKS_MAX {
            in_flight.append(&mut effects.requests);
            if in_flight.is_empty() {
                assert!(opener.is_finished(), "waits for nothing");
                let now = Now { mono: Mono(1), wall: Wall(1000) };
                return Ok(Machine { image, slab: opener.finish()?, effects, in_flight, random, now, next: 0 });
            }
            let (io, request) = in_flight.swap_remove(random.below(in_flight.len() as u64) as usize);
            opener.complete(io, image.execute(request), &mut effects);
        }
        panic!("opening does not end");
    }

    /// Completes some requests in any order and ends the tick.
    fn tick(&mut self) -> Option<Reply> {
        self.now.mono.0 += 1_000_000;
        self.effects.begin(self.now);
        for _ in 0..self.in_flight.len().min(4) {
            let pick = self.random.below(self.in_flight.len() as u64) as usize;
            let (io, request) = self.in_flight.swap_remove(pick);
            self.slab.complete(io, self.image.execute(request), &mut self.effects);
        }
        self.slab.tick_end(&mut self.effects);
        self.in_flight.append(&mut self.effects.requests);
        // To shards that there are not.
        self.effects.messages.clear();
        self.effects.replies.pop().map(|(_, reply)| reply)
    }

    pub(super) fn run(&mut self, operation: Operation) -> Reply {
        self.next += 1;
        self.effects.begin(self.now);
        let token = Token { slot: self.next, generation: 0 };
        self.slab.accept(token, operation, &mut self.effects).expect("the shard is open");
        (0..TICKS_MAX).find_map(|_| self.tick()).expect("an operation is answered")
    }

    /// The value of a key.
    pub(super) fn get(&mut self, key: &[u8]) -> Result<Value, Error> {
        let key = Key::bound(CollectionId(0), key);
        match self.run(Operation::Get { key, part: RecordPart::Whole }) {
            Reply::Record(record) => Ok(record.map(|record| {
                assert_eq!(record.value.len(), record.value_bytes);
                record.value.to_bytes().to_vec()
            })),
            Reply::Failed(error) => Err(error),
            other => panic!("a get is answered {other:?}"),
        }
    }

    pub(super) fn put(&mut self, key: &[u8], value: &Value) -> Result<(), Error> {
        let expiry = Expiry(u64::from(key.first() == Some(&b'e')) * 5000);
        let flags = key.len() as u32 % 3;
        let kind = match value {
            Some(value) => ChangeKind::Put { value: Bytes::copy_from_slice(value), flags, expiry },
            None => ChangeKind::Delete,
        };
        let changes = vec![Change { key: Key::bound(CollectionId(0), key), expect: Expect::Any, kind }];
        match self.run(Operation::Write { changes, level: Level::PowerLoss }) {
            Reply::Done { .. } => Ok(()),
            Reply::Failed(error) => Err(error),
            other => panic!("a write is answered {other:?}"),
        }
    }

    /// Leaves a record of a batch that is not under way; false if there is no room.
    pub(super) fn leave_record(&mut self, id: BatchId, value: Bytes) -> bool {
        let key = record::key(id);
        let kind = Kind::Put { value, flags: 0, expiry: Expiry::NEVER };
        let origin = Origin::Batch(id, BatchStep::Log);
        self.effects.begin(self.now);
        self.slab.submit(Work::new(origin, key.clone(), Expect::Any, kind, Level::PowerLoss), &mut self.effects);
        self.rest();
        self.slab.index.tree.get(key.encoded()).is_some()
    }

    /// Every key and, unless `keys_only`, its value; or why not.
    pub(super) fn scan(&mut self, reverse: bool, keys_only: bool) -> Result<Vec<(Key, Value)>, Error> {
        let (mut from, mut to, mut found) = (Bound::Unbounded, Bound::Unbounded, Vec::new());
        for _ in 0..TICKS_MAX {
            let bounds = (from.clone(), to.clone());
            let request = PageRequest {
                from: bounds.0,
                to: bounds.1,
                reverse,
                keys_only,
                items_max: 16,
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

    pub(super) fn close(&mut self) {
        self.effects.begin(self.now);
        self.slab.close(&mut self.effects);
        for _ in 0..TICKS_MAX {
            if self.slab.is_closed() {
                return;
            }
            self.tick();
        }
        panic!("never closed");
    }
}
