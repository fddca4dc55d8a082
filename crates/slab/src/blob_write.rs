//! Writing blobs: the slices of a value in any order and a bounded number at a time, then the head
//! with a group.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::Level;
use stratakv_base::limits::SLICE_BYTES;
use stratakv_device::{Block, BlockPart, Class, IoFault};
use stratakv_engine::{Effects, Error, Reply, Stage};

use crate::blob::{self, Shape};
use crate::place::RecordPlace;
use crate::placement::Placement;
use crate::record::{self, Meta};
use crate::requests::IoPurpose;
use crate::shard::IndexedShard;
use crate::space::{Extent, offset};
use crate::write::{Ack, Change, Changed, Stop, Work};

/// Blobs being written.
#[derive(Debug)]
pub(crate) struct BlobWrites<P: Placement> {
    /// Boxed: each is taken out and put back whenever it goes on.
    active: BTreeMap<u64, Box<BlobWrite<P>>>,
    next: u64,
    in_flight: usize,
    /// Those that have not begun, wait for their turn at the device, or for a block, in order.
    waiting: VecDeque<u64>,
    /// Those that wait until the segment tables let blobs lie where they are.
    unallowed: Vec<u64>,
    /// How often a write was gone on with.
    steps: u64,
}

#[derive(Debug)]
struct BlobWrite<P: Placement> {
    first: u32,
    shape: Shape,
    meta: Meta,
    value: Bytes,
    crcs: Vec<u32>,
    /// The next slice to write.
    next: usize,
    in_flight: usize,
    fault: Option<IoFault>,
    change: Change<P>,
    level: Level,
    /// It is in the queue of those that wait.
    is_queued: bool,
}

/// A blob of which all but the head is written.
#[derive(Debug)]
pub(crate) struct ReadyBlob<P: Placement> {
    pub(crate) first: u32,
    pub(crate) change: Change<P>,
    pub(crate) level: Level,
    shape: Shape,
    meta: Meta,
    crcs: Vec<u32>,
    blocks: Vec<Block>,
}

impl<P: Placement> Default for BlobWrites<P> {
    fn default() -> Self {
        let (active, waiting) = (BTreeMap::new(), VecDeque::new());
        BlobWrites { active, next: 0, in_flight: 0, waiting, unallowed: Vec::new(), steps: 0 }
    }
}

impl<P: Placement> BlobWrites<P> {
    pub(crate) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// How often a write was gone on with.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }
}

impl<P: Placement> ReadyBlob<P> {
    pub(crate) fn meta(&self) -> Meta {
        self.meta
    }

    pub(crate) fn value_bytes(&self) -> u32 {
        self.shape.value_len as u32
    }

    /// Whether slices were written ahead of the head.
    pub(crate) fn has_body(&self) -> bool {
        self.shape.slices > self.shape.head_slices()
    }

    /// The head's slices, complete, and the change they make durable.
    pub(crate) fn seal(mut self, uuid: &[u8; 16], sequences: (u64, u64)) -> (Vec<BlockPart>, Change<P>) {
        let key = self.change.key.encoded();
        let head = blob::encode_head(uuid, self.first, &self.shape, &self.meta, sequences, &self.crcs, key);
        for (block, bytes) in self.blocks.iter_mut().zip(head.chunks(SLICE_BYTES)) {
            block[..bytes.len()].copy_from_slice(bytes);
        }
        let shape = self.shape;
        let parts = self.blocks.into_iter().enumerate().map(|(slice, block)| {
            let len = shape.slice_bytes(slice) as u32;
            BlockPart { block: Arc::new(block), start: 0, len }
        });
        (parts.collect(), self.change)
    }
}

impl<P: Placement> BlobWrite<P> {
    /// Lays the value's part of a slice into `block` and notes its checksum.
    fn fill(&mut self, uuid: &[u8; 16], slice: usize, block: &mut Block) {
        let part = self.shape.value_part(slice);
        let at = (self.shape.head_bytes() + part.start).saturating_sub(slice * SLICE_BYTES);
        let bytes = self.value.get(part).unwrap_or_default();
        if !bytes.is_empty() {
            block[at..at + bytes.len()].copy_from_slice(bytes);
        }
        let used = if bytes.is_empty() { 0 } else { at + bytes.len() };
        block[used..].fill(0);
        self.crcs[slice] = blob::slice_crc(uuid, self.first, self.meta.version, slice, bytes);
    }
}

impl<P: Placement> IndexedShard<P> {
    /// Begins to write a record as a blob.
    pub(crate) fn start_blob(
        &mut self,
        work: &mut Work,
        mut meta: Meta,
        value: Bytes,
        reply: &dyn Fn(u64) -> Reply,
        effects: &mut Effects,
    ) -> Result<(), Stop<P>> {
        let shape = Shape::new(work.key.encoded().len(), value.len());
        let first = match work.extent.take() {
            Some(extent) => Some(extent.first),
            None => {
                let kept = self.reserve_pages() + self.batches.reserved_pages();
                let kept = self.placement.unplaced_pages() + if work.has_reserve() { 0 } else { kept };
                self.space.take_blob(shape.pages(), kept)
            }
        };
        let Some(first) = first else {
            return Err(self.no_room(shape.pages(), effects));
        };
        self.found_room();
        meta.version = work.version.unwrap_or_else(|| self.next_number());
        self.blobs.tags.insert(first, record::tag(meta.version));
        let place = RecordPlace::Blob { first, pages: shape.pages() };
        self.keys.changed(&work.key, Some(place), meta.expiry);
        let ack = Some(Ack { origin: work.origin, reply: reply(meta.version) });
        let change =
            Change { key: work.key.clone(), place, expiry: meta.expiry, finger: None, kind: Changed::Put, ack };
        let blob = BlobWrite {
            first,
            meta,
            crcs: vec![0; shape.slices],
            next: shape.head_slices(),
            in_flight: 0,
            fault: None,
            change,
            level: work.level,
            shape,
            value,
            is_queued: true,
        };
        P::claim_for_blobs(self, Extent { first, pages: blob.shape.pages() });
        self.blobs.writes.next += 1;
        self.blobs.writes.active.insert(self.blobs.writes.next, Box::new(blob));
        self.blobs.writes.waiting.push_back(self.blobs.writes.next);
        work.origin.enter(Stage::Write, effects);
        Ok(())
    }

    /// Writes slices of waiting blobs, as far as depth and blocks allow; those complete but for the
    /// head join the next group.
    pub(crate) fn pump_blob_writes(&mut self, effects: &mut Effects) {
        while let Some(number) = self.blobs.writes.waiting.pop_front() {
            let Some(blob) = self.blobs.writes.active.get_mut(&number) else { continue };
            blob.is_queued = false;
            if self.step_blob_write(number, effects) {
                // It is at the end of the queue again.
                self.blobs.writes.waiting.rotate_right(1);
                return;
            }
        }
    }

    /// The tables of segments say something new: blobs may lie there now.
    pub(crate) fn allow_blob_writes(&mut self) {
        for number in std::mem::take(&mut self.blobs.writes.unallowed) {
            if let Some(blob) = self.blobs.writes.active.get_mut(&number).filter(|blob| !blob.is_queued) {
                blob.is_queued = true;
                self.blobs.writes.waiting.push_back(number);
            }
        }
    }

    /// Goes on with a blob. Whether it waits for its turn at the device, or for a block.
    fn step_blob_write(&mut self, number: u64, effects: &mut Effects) -> bool {
        let Some(mut blob) = self.blobs.writes.active.remove(&number) else { return false };
        self.blobs.writes.steps += 1;
        let allowed = self.placement.blobs_may_lie_at(Extent { first: blob.first, pages: blob.shape.pages() });
        let mut waits = false;
        while allowed && blob.fault.is_none() && blob.next < blob.shape.slices {
            let is_due = self.blobs.writes.in_flight < self.config.depth.max(1) as usize;
            let block = if is_due { self.take_block(Class::Slice, effects) } else { None };
            let Some(block) = block else {
                waits = true;
                break;
            };
            self.write_slice(number, &mut blob, block, effects);
        }
        match (blob.fault, blob.in_flight) {
            (Some(fault), 0) => {
                self.blob_failed(*blob, fault, effects);
                return false;
            }
            (None, 0) if allowed && blob.next == blob.shape.slices => match self.head_of_blob(&mut blob, effects) {
                Some(blocks) => {
                    self.blob_body_done(*blob, blocks, effects);
                    return false;
                }
                None => waits = true,
            },
            _ => {}
        }
        if !allowed && !waits {
            self.blobs.writes.unallowed.push(number);
        }
        let is_new = waits && !blob.is_queued;
        blob.is_queued |= waits;
        self.blobs.writes.active.insert(number, blob);
        if is_new {
            self.blobs.writes.waiting.push_back(number);
        }
        waits
    }

    fn write_slice(&mut self, number: u64, blob: &mut BlobWrite<P>, mut block: Block, effects: &mut Effects) {
        let slice = blob.next;
        blob.fill(&self.config.uuid, slice, &mut block);
        blob.next += 1;
        blob.in_flight += 1;
        self.blobs.writes.in_flight += 1;
        let len = blob.shape.slice_bytes(slice) as u32;
        self.io.counters.page_writes += 1;
        self.io.counters.write_bytes += u64::from(len);
        let io = self.io.start(IoPurpose::BlobBody { blob: number });
        let offset = offset(blob.first) + (slice * SLICE_BYTES) as u64;
        effects.write(io, offset, vec![BlockPart { block: Arc::new(block), start: 0, len }], false);
    }

    /// The slices with the head of a blob. `None`: there are no blocks for them.
    fn head_of_blob(&mut self, blob: &mut BlobWrite<P>, effects: &mut Effects) -> Option<Vec<Block>> {
        let mut blocks = Vec::new();
        for slice in 0..blob.shape.head_slices() {
            let mut block = self.take_block(Class::Slice, effects)?;
            blob.fill(&self.config.uuid, slice, &mut block);
            blocks.push(block);
        }
        Some(blocks)
    }

    fn blob_body_done(&mut self, blob: BlobWrite<P>, blocks: Vec<Block>, effects: &mut Effects) {
        let BlobWrite { first, change, level, shape, meta, crcs, .. } = blob;
        P::blob_written(self, ReadyBlob { first, change, level, shape, meta, crcs, blocks }, effects);
    }

    /// The head was not written, so nothing has changed: the pages are free again.
    fn blob_failed(&mut self, blob: BlobWrite<P>, fault: IoFault, effects: &mut Effects) {
        self.blobs.tags.remove(&blob.first);
        self.space.release(Extent { first: blob.first, pages: blob.shape.pages() });
        let error = match fault {
            IoFault::Full => Error::Full("no space left on the device"),
            fault => Error::Io { what: "writing a large value", fault },
        };
        if let Some(ack) = blob.change.ack {
            self.answer(ack.origin, Reply::Failed(error), effects);
        }
        self.backup_saw_end(&blob.change.key);
        if let Some(pending) = self.keys.pending.get_mut(&blob.change.key) {
            pending.outstanding -= 1;
        }
        self.wake(&blob.change.key, effects);
    }

    /// A slice of a blob is written.
    pub(crate) fn blob_body_written(&mut self, number: u64, result: Result<(), IoFault>, effects: &mut Effects) {
        self.blobs.writes.in_flight -= 1;
        if let Some(blob) = self.blobs.writes.active.get_mut(&number) {
            blob.in_flight -= 1;
            blob.fault = blob.fault.or(result.err());
        }
        self.step_blob_write(number, effects);
        self.pump_blob_writes(effects);
    }

    /// Gives up all blobs being written, after a failure.
    pub(crate) fn abandon_blob_writes(&mut self) -> Vec<Change<P>> {
        std::mem::take(&mut self.blobs.writes.active).into_values().map(|blob| blob.change).collect()
    }
}
