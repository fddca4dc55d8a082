//! Writing runs: the slices of a value in any order and a bounded number at a time, then the head
//! with a group.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::Level;
use stratakv_base::limits::SLICE_BYTES;
use stratakv_device::{Block, Class, IoFault, Part};
use stratakv_engine::{Effects, Error, Reply};

use crate::page::Meta;
use crate::place::Place;
use crate::run::{self, Shape};
use crate::slab::{Purpose, Slab};
use crate::space::Extent;
use crate::write::{Ack, Change, Changed, Stop, Work};

/// Runs being written.
#[derive(Debug, Default)]
pub(crate) struct RunWrites {
    /// Boxed: each is taken out and put back whenever it goes on.
    active: BTreeMap<u64, Box<RunWrite>>,
    next: u64,
    in_flight: usize,
    /// Those that have not begun, wait for their turn at the device, or for a block, in order.
    waiting: VecDeque<u64>,
    /// Those that wait until the segment tables let runs lie where they are.
    unallowed: Vec<u64>,
    /// How often a write was gone on with.
    steps: u64,
}

#[derive(Debug)]
struct RunWrite {
    first: u32,
    shape: Shape,
    meta: Meta,
    value: Bytes,
    crcs: Vec<u32>,
    /// The next slice to write.
    next: usize,
    in_flight: usize,
    fault: Option<IoFault>,
    change: Change,
    level: Level,
    /// It is in the queue of those that wait.
    is_queued: bool,
}

/// A run of which all but the head is written.
#[derive(Debug)]
pub(crate) struct ReadyRun {
    pub(crate) first: u32,
    pub(crate) change: Change,
    pub(crate) level: Level,
    shape: Shape,
    meta: Meta,
    crcs: Vec<u32>,
    blocks: Vec<Block>,
}

impl RunWrites {
    pub(crate) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// How often a write was gone on with.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }
}

impl ReadyRun {
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
    pub(crate) fn seal(mut self, uuid: &[u8; 16], sequences: (u64, u64)) -> (Vec<Part>, Change) {
        let key = self.change.key.encoded();
        let head = run::encode_head(uuid, self.first, &self.shape, &self.meta, sequences, &self.crcs, key);
        for (block, bytes) in self.blocks.iter_mut().zip(head.chunks(SLICE_BYTES)) {
            block[..bytes.len()].copy_from_slice(bytes);
        }
        let shape = self.shape;
        let parts = self.blocks.into_iter().enumerate().map(|(slice, block)| {
            let len = shape.slice_bytes(slice) as u32;
            Part { block: Arc::new(block), start: 0, len }
        });
        (parts.collect(), self.change)
    }
}

impl RunWrite {
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
        self.crcs[slice] = run::slice_crc(uuid, self.first, self.meta.version, slice, bytes);
    }
}

impl Slab {
    /// Begins to write a record as a run.
    pub(crate) fn start_run(
        &mut self,
        work: &mut Work,
        mut meta: Meta,
        value: Bytes,
        reply: &dyn Fn(u64) -> Reply,
        effects: &mut Effects,
    ) -> Result<(), Stop> {
        let shape = Shape::new(work.key.encoded().len(), value.len());
        let first = match work.extent.take() {
            Some(extent) => Some(extent.first),
            None => {
                let kept = self.reserve_pages() + self.batches.reserved_pages();
                let kept = self.promised_pages + if work.has_reserve() { 0 } else { kept };
                self.space.take_run(shape.pages(), kept)
            }
        };
        let Some(first) = first else {
            return Err(self.no_room(shape.pages(), effects));
        };
        self.found_room();
        meta.version = work.version.unwrap_or_else(|| self.next_number());
        self.run_tags.insert(first, crate::table::tag(meta.version));
        let place = Place::Run { first, pages: shape.pages() };
        let pending = self.pending.entry(work.key.clone()).or_default();
        pending.outstanding += 1;
        pending.place = Some(place);
        pending.expiry = meta.expiry;
        let ack = Some(Ack { origin: work.origin, reply: reply(meta.version) });
        let change = Change { key: work.key.clone(), place, expiry: meta.expiry, kind: Changed::Put, ack };
        let run = RunWrite {
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
        self.claim_for_runs(Extent { first, pages: run.shape.pages() });
        self.run_writes.next += 1;
        self.run_writes.active.insert(self.run_writes.next, Box::new(run));
        self.run_writes.waiting.push_back(self.run_writes.next);
        Ok(())
    }

    /// Writes slices of waiting runs, as far as depth and blocks allow; those complete but for the
    /// head join the next group.
    pub(crate) fn pump_run_writes(&mut self, effects: &mut Effects) {
        while let Some(number) = self.run_writes.waiting.pop_front() {
            let Some(run) = self.run_writes.active.get_mut(&number) else { continue };
            run.is_queued = false;
            if self.step_run_write(number, effects) {
                // It is at the end of the queue again.
                self.run_writes.waiting.rotate_right(1);
                return;
            }
        }
    }

    /// The tables of segments say something new: runs may lie there now.
    pub(crate) fn allow_run_writes(&mut self) {
        for number in std::mem::take(&mut self.run_writes.unallowed) {
            if let Some(run) = self.run_writes.active.get_mut(&number).filter(|run| !run.is_queued) {
                run.is_queued = true;
                self.run_writes.waiting.push_back(number);
            }
        }
    }

    /// Goes on with a run. Whether it waits for its turn at the device, or for a block.
    fn step_run_write(&mut self, number: u64, effects: &mut Effects) -> bool {
        let Some(mut run) = self.run_writes.active.remove(&number) else { return false };
        self.run_writes.steps += 1;
        let allowed = self.runs_may_lie_at(Extent { first: run.first, pages: run.shape.pages() });
        let mut waits = false;
        while allowed && run.fault.is_none() && run.next < run.shape.slices {
            let is_due = self.run_writes.in_flight < self.config.depth.max(1) as usize;
            let block = if is_due { self.take_block(Class::Slice, effects) } else { None };
            let Some(block) = block else {
                waits = true;
                break;
            };
            self.write_slice(number, &mut run, block, effects);
        }
        match (run.fault, run.in_flight) {
            (Some(fault), 0) => {
                self.run_failed(*run, fault, effects);
                return false;
            }
            (None, 0) if allowed && run.next == run.shape.slices => match self.head_of_run(&mut run, effects) {
                Some(blocks) => {
                    self.run_body_done(*run, blocks, effects);
                    return false;
                }
                None => waits = true,
            },
            _ => {}
        }
        if !allowed && !waits {
            self.run_writes.unallowed.push(number);
        }
        let is_new = waits && !run.is_queued;
        run.is_queued |= waits;
        self.run_writes.active.insert(number, run);
        if is_new {
            self.run_writes.waiting.push_back(number);
        }
        waits
    }

    fn write_slice(&mut self, number: u64, run: &mut RunWrite, mut block: Block, effects: &mut Effects) {
        let slice = run.next;
        run.fill(&self.config.uuid, slice, &mut block);
        run.next += 1;
        run.in_flight += 1;
        self.run_writes.in_flight += 1;
        let len = run.shape.slice_bytes(slice) as u32;
        self.counters.page_writes += 1;
        self.counters.write_bytes += u64::from(len);
        let io = self.io.start(Purpose::RunBody { run: number });
        let offset = Self::offset(run.first) + (slice * SLICE_BYTES) as u64;
        effects.write(io, offset, vec![Part { block: Arc::new(block), start: 0, len }], false);
    }

    /// The slices with the head of a run. `None`: there are no blocks for them.
    fn head_of_run(&mut self, run: &mut RunWrite, effects: &mut Effects) -> Option<Vec<Block>> {
        let mut blocks = Vec::new();
        for slice in 0..run.shape.head_slices() {
            let mut block = self.take_block(Class::Slice, effects)?;
            run.fill(&self.config.uuid, slice, &mut block);
            blocks.push(block);
        }
        Some(blocks)
    }

    fn run_body_done(&mut self, run: RunWrite, blocks: Vec<Block>, effects: &mut Effects) {
        let RunWrite { first, change, level, shape, meta, crcs, .. } = run;
        let ready = ReadyRun { first, change, level, shape, meta, crcs, blocks };
        match self.packed {
            Some(_) => self.write_run_head(ready, effects),
            None => self.groups.add_run(ready),
        }
    }

    /// The head was not written, so nothing has changed: the pages are free again.
    fn run_failed(&mut self, run: RunWrite, fault: IoFault, effects: &mut Effects) {
        self.run_tags.remove(&run.first);
        self.space.release(Extent { first: run.first, pages: run.shape.pages() });
        let error = match fault {
            IoFault::Full => Error::Full("no space left on the device"),
            fault => Error::Io { what: "writing a large value", fault },
        };
        if let Some(ack) = run.change.ack {
            self.answer(ack.origin, Reply::Failed(error), effects);
        }
        self.backup_saw_end(&run.change.key);
        if let Some(pending) = self.pending.get_mut(&run.change.key) {
            pending.outstanding -= 1;
        }
        self.wake(&run.change.key, effects);
    }

    /// A slice of a run is written.
    pub(crate) fn run_body_written(&mut self, number: u64, result: Result<(), IoFault>, effects: &mut Effects) {
        self.run_writes.in_flight -= 1;
        if let Some(run) = self.run_writes.active.get_mut(&number) {
            run.in_flight -= 1;
            run.fault = run.fault.or(result.err());
        }
        self.step_run_write(number, effects);
        self.pump_run_writes(effects);
    }

    /// Gives up all runs being written, after a failure.
    pub(crate) fn abandon_run_writes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.run_writes.active).into_values().map(|run| run.change).collect()
    }
}
