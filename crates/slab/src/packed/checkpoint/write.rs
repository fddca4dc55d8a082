//! Writing checkpoints, a chunk in a tick at most, beside everything else. Nobody waits for them.
//!
//! While the log is written, a checkpoint is spread over all of the log from its begin to the next
//! one's: there is no second in which more is written for it than in another.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use stratakv_base::checksum::crc32c;
use stratakv_base::fault_point;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_device::{BlockPart, Class, IoFault};
use stratakv_engine::Effects;

use super::format::{CHUNK_HEADER_BYTES, ChunkHeader, ChunkKind, Covered, KeysBody, Root, chunk_pages, root_pages};
use crate::packed::clean::LOW;
use crate::packed::segments::State;
use crate::packed::table::{SegmentKind, TableEntry};
use crate::packed::{LogIoPurpose, Packed};
use crate::requests::IoPurpose;
use crate::shard::wake_soon;
use crate::space::offset;

/// Pages of a chunk, unless a key is longer.
const CHUNK_PAGES: u32 = 16;
/// Chunks being written at once.
const IN_FLIGHT: u32 = 2;
/// While the log is written, it takes so many bytes at least for each of a checkpoint.
const LOG_SHARE_MIN: u64 = 3;

/// How far a checkpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckpointPhase {
    /// Covered segments, then keys are written down.
    Segments,
    Keys,
    /// All chunks are submitted.
    Written,
    /// The flush that covers them is in flight.
    Flushing,
    /// They are durable; what they tell of may not be yet.
    Durable,
    /// The root is being written.
    Root,
}

/// A checkpoint being written.
#[derive(Debug)]
pub(crate) struct Writing {
    phase: CheckpointPhase,
    root: Root,
    /// Segments to be listed.
    covered: VecDeque<u32>,
    /// The last key written down.
    after: Option<Vec<u8>>,
    /// The next segment, which the table does not yet call ours.
    asked: Option<u32>,
    /// The rest of the last segment is left empty.
    is_full: bool,
    in_flight: u32,
    bytes: u64,
    /// While the log is written, it takes so many bytes for each of the checkpoint.
    log_share: u64,
    /// Bytes of the log when a chunk was last looked for.
    log_bytes_seen: u64,
    /// It is not finished: its segments are given back as soon as nothing is in flight.
    is_over: bool,
}

impl Writing {
    /// Segments it has.
    pub(super) fn held(&self) -> usize {
        self.root.segments.len() + usize::from(self.asked.is_some())
    }

    fn numbers(&self) -> Vec<u32> {
        self.root.segments.iter().map(|(number, _)| *number).chain(self.asked).collect()
    }
}

/// What a chunk tells, and how far it gets.
struct Filled {
    kind: ChunkKind,
    body: Vec<u8>,
    entries: u64,
    /// Covered segments dealt with.
    segments: usize,
    after: Option<Vec<u8>>,
    /// Of its kind there is no more.
    is_last: bool,
}

impl Packed {
    /// Bytes that a checkpoint takes, about.
    fn checkpoint_estimate(&self) -> u64 {
        (self.index.tree.footprint_bytes() as u64).min(64 * self.index.tree.len() as u64)
    }

    /// Bytes that the next one will take, if it takes for each key what the last one took.
    fn next_checkpoint_bytes(&self) -> u64 {
        let (bytes, entries) = self.placement.checkpoints.last_took;
        match (bytes * self.index.tree.len() as u64).checked_div(entries) {
            Some(bytes) => bytes,
            None => self.checkpoint_estimate(),
        }
    }

    /// Bytes by which the log grows from one checkpoint to the next.
    fn checkpoint_interval_bytes(&self) -> u64 {
        let pace = &self.config.checkpoints;
        pace.log_bytes_min.max(u64::from(pace.times) * self.checkpoint_estimate())
    }

    /// Begins a checkpoint when it is due, and takes it a step further.
    pub(crate) fn pump_checkpoint(&mut self, effects: &mut Effects) {
        self.give_checkpoints_back(effects);
        if self.placement.checkpoints.writing.is_none() {
            if !self.health.is_open() || self.placement.checkpoints.log_bytes < self.checkpoint_interval_bytes() {
                return;
            }
            self.try_checkpoint();
        }
        self.step_checkpoint(effects);
    }

    fn has_room_for_checkpoint(&self) -> bool {
        let needed = self.checkpoint_estimate() * 5 / 4 / u64::from(self.placement.segments.bytes()) + 2;
        let all = self.space.whole_segments() + self.placement.segments.used();
        let more = u32::try_from(needed).unwrap_or(u32::MAX).saturating_add(all / 64);
        let small = u64::from(self.placement.checkpoints.held()) + needed <= u64::from(all / 3);
        small && self.spare_segments() > LOW && self.fits_beside_checkpoints(more)
    }

    /// Begins a checkpoint if there is room, or makes room for one. False: there can be none.
    fn try_checkpoint(&mut self) -> bool {
        if !self.has_room_for_checkpoint() {
            return self.give_outdated_checkpoint_back();
        }
        self.begin_checkpoint();
        true
    }

    fn begin_checkpoint(&mut self) {
        let id = self.next_number();
        let mut start = self.groups.applied_sequence();
        fault_point!("checkpoint_starts_before_it_is_shown", start = self.placement.last_sequence);
        let log_share = self.checkpoint_interval_bytes() / self.next_checkpoint_bytes().max(1);
        self.placement.checkpoints.log_bytes = 0;
        self.placement.checkpoints.writing = Some(Writing {
            phase: CheckpointPhase::Segments,
            root: Root { id, start, ..Root::default() },
            covered: self.placement.segments.covered_segments().into(),
            after: None,
            asked: None,
            is_full: false,
            in_flight: 0,
            bytes: 0,
            log_share: log_share.max(LOG_SHARE_MIN),
            log_bytes_seen: 0,
            is_over: false,
        });
    }

    /// Whether an orderly close waits for a checkpoint, begun now if it is worth it.
    pub(crate) fn closing_checkpoint(&mut self, effects: &mut Effects) -> bool {
        let estimate = self.checkpoint_estimate();
        let least = estimate.max(self.config.checkpoints.log_bytes_min);
        let worth = self.placement.checkpoints.log_bytes >= least && !self.placement.checkpoints.closing_tried;
        let tries = self.placement.checkpoints.writing.is_none() && worth && self.try_checkpoint();
        let writes = self.placement.checkpoints.writing.is_some();
        // While room is being made it is tried again in the next tick.
        self.placement.checkpoints.closing_tried = writes || !tries;
        let waits = writes || tries;
        if waits {
            effects.more();
        }
        waits
    }

    fn step_checkpoint(&mut self, effects: &mut Effects) {
        let durable = self.groups.durable_sequence();
        let Some(writing) = self.placement.checkpoints.writing.as_mut() else { return };
        if writing.is_over {
            return self.abandon_checkpoint();
        }
        fault_point!("checkpoint_acknowledged_too_early", matches!(writing.phase, CheckpointPhase::Written), {
            return self.write_root(effects);
        });
        match writing.phase {
            CheckpointPhase::Segments | CheckpointPhase::Keys => self.write_chunk(effects),
            CheckpointPhase::Written if writing.in_flight > 0 => {}
            CheckpointPhase::Written if self.config.geometry.volatile_cache => {
                if self.io.submit_flush(IoPurpose::Placement(LogIoPurpose::CheckpointFlush), effects)
                    && let Some(writing) = self.placement.checkpoints.writing.as_mut()
                {
                    writing.phase = CheckpointPhase::Flushing;
                }
            }
            CheckpointPhase::Written => writing.phase = CheckpointPhase::Durable,
            CheckpointPhase::Durable if durable >= writing.root.durable => self.write_root(effects),
            CheckpointPhase::Durable => self.groups.want(self.groups.sealed()),
            CheckpointPhase::Flushing | CheckpointPhase::Root => {}
        }
    }

    /// Whether the log has had its share since the last chunk, or nobody writes to it: then it has
    /// not grown from one wake to the next.
    fn may_write_chunk(&mut self, effects: &mut Effects) -> bool {
        let log_bytes = self.placement.checkpoints.log_bytes;
        let (is_closing, is_quiet) = (!self.health.is_open(), self.groups.in_flight() == 0);
        let Some(writing) = &mut self.placement.checkpoints.writing else { return false };
        if writing.in_flight >= IN_FLIGHT {
            return false;
        }
        let is_due = writing.bytes * writing.log_share <= log_bytes;
        let has_grown = std::mem::replace(&mut writing.log_bytes_seen, log_bytes) != log_bytes;
        if is_quiet && has_grown && !is_due && !is_closing {
            wake_soon(effects);
        }
        is_due || is_closing || (is_quiet && !has_grown)
    }

    /// Pages left in the segment that is being filled, having opened it. `None`: there is none yet,
    /// or will not be.
    fn checkpoint_pages_left(&mut self) -> Option<u32> {
        let spare = self.spare_segments();
        let (all, most) = (self.placement.segments.pages, Root::segments_max(self.placement.segments.pages));
        let writing = self.placement.checkpoints.writing.as_mut()?;
        if let Some(number) = writing.asked {
            let entry = self.placement.tables.durable(number);
            let own = TableEntry {
                kind: SegmentKind::Checkpoint,
                generation: self.placement.segments.get(number).generation,
            };
            if entry != own {
                return None;
            }
            let begins = if writing.root.segments.is_empty() { root_pages(all) } else { 0 };
            writing.root.segments.push((number, begins));
            (writing.asked, writing.is_full) = (None, false);
        }
        let left = writing.root.segments.last().map_or(0, |(_, pages)| all - pages);
        if left > 0 && !writing.is_full {
            return Some(left);
        }
        if writing.root.segments.len() >= most || spare <= LOW && !self.health.is_open() {
            self.abandon_checkpoint();
            return None;
        }
        if spare <= LOW {
            return None;
        }
        let Some(number) = self.space.take_segment() else {
            // What is spare stands ready for the log. A closing shard frees no more.
            if !self.health.is_open() {
                self.abandon_checkpoint();
            }
            return None;
        };
        self.groups.counter += 1;
        let generation = self.groups.counter;
        self.placement.segments.set_state(number, State::Checkpoint);
        self.placement.segments.reset(number, generation);
        self.placement.tables.set(number, TableEntry { kind: SegmentKind::Checkpoint, generation });
        self.placement.checkpoints.writing.as_mut()?.asked = Some(number);
        None
    }

    fn write_chunk(&mut self, effects: &mut Effects) {
        if !self.may_write_chunk(effects) {
            return;
        }
        let Some(left) = self.checkpoint_pages_left() else { return };
        let mark = self.next_number();
        let most = left.min(CHUNK_PAGES) as usize * PAGE_BYTES - CHUNK_HEADER_BYTES;
        let Some(filled) = self.fill_chunk(most) else { return self.abandon_checkpoint() };
        let pages = chunk_pages(filled.body.len());
        let uuid = self.config.uuid;
        let Some(writing) = &mut self.placement.checkpoints.writing else { return };
        let fresh = writing.root.segments.last().is_some_and(|(_, pages)| *pages == 0);
        if pages > left {
            // One key that is longer than what is left: into the next segment. No key is longer
            // than a segment.
            writing.is_full = true;
            if fresh {
                self.abandon_checkpoint();
            }
            return effects.more();
        }
        if !filled.body.is_empty() {
            let Some(&(number, end)) = writing.root.segments.last() else { return };
            let (first, generation) =
                (number * self.placement.segments.pages + end, self.placement.segments.get(number).generation);
            let header = ChunkHeader { id: writing.root.id, mark, number: writing.root.chunks, kind: filled.kind };
            let (bytes, crc) = header.encode(&uuid, first, generation, &filled.body);
            if !self.write_checkpoint_pages(first, &bytes, LogIoPurpose::CheckpointChunk, false, effects) {
                return;
            }
            let Some(writing) = self.placement.checkpoints.writing.as_mut() else {
                return;
            };
            writing.root.chunks += 1;
            writing.root.chunks_crc = crc32c(writing.root.chunks_crc, &crc.to_le_bytes());
            if let Some((_, end)) = writing.root.segments.last_mut() {
                *end += pages;
            }
        }
        self.chunk_filled(filled, effects);
    }

    /// Goes on behind what was written down.
    fn chunk_filled(&mut self, filled: Filled, effects: &mut Effects) {
        let Some(writing) = &mut self.placement.checkpoints.writing else { return };
        writing.root.entries += filled.entries;
        writing.covered.drain(..filled.segments);
        if filled.after.is_some() {
            writing.after = filled.after;
        }
        if filled.is_last {
            writing.phase =
                if filled.kind == ChunkKind::Segments { CheckpointPhase::Keys } else { CheckpointPhase::Written };
            // Whatever was seen is in a batch up to here.
            writing.root.durable = self.placement.last_sequence;
            effects.more();
        }
    }

    /// The body of the next chunk, of `most` bytes unless a single key is longer. `None`: the index
    /// makes no sense.
    fn fill_chunk(&self, most: usize) -> Option<Filled> {
        let writing = self.placement.checkpoints.writing.as_ref()?;
        if writing.phase == CheckpointPhase::Segments {
            return Some(self.fill_segments(&writing.covered, writing.root.start, most));
        }
        let (mut keys, mut after, mut sound, mut is_last) = (KeysBody::default(), None, true, true);
        let most = most.min(self.config.checkpoints.step_bytes as usize);
        let from = writing.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.index.tree.scan(from, Bound::Unbounded, false, &mut |key, entry| {
            let entry = self.checkpoint_entry(entry);
            sound &= entry.is_some();
            if !sound || entry.is_some_and(|entry| !keys.push(key, &entry, most)) {
                is_last = false;
                return ControlFlow::Break(());
            }
            let after = after.get_or_insert_with(Vec::new);
            after.clear();
            after.extend_from_slice(key);
            ControlFlow::Continue(())
        });
        let (body, entries) = (keys.bytes, keys.entries);
        sound.then_some(Filled { kind: ChunkKind::Keys, body, entries, segments: 0, after, is_last })
    }

    fn fill_segments(&self, covered: &VecDeque<u32>, start: u64, most: usize) -> Filled {
        let (mut body, mut segments) = (Vec::new(), 0);
        let longest = CHUNK_PAGES as usize * PAGE_BYTES - CHUNK_HEADER_BYTES;
        for number in covered {
            let (segment, entry) = (self.placement.segments.get(*number), self.placement.tables.durable(*number));
            let on_medium = TableEntry { kind: SegmentKind::Log, generation: segment.generation };
            // Opened anew meanwhile, or about to be: it will be read.
            let covered_segments = segment.generation <= start && entry == on_medium;
            let item: Covered = self.placement.segments.covered(*number);
            if covered_segments && item.bytes() < longest {
                if body.len() + item.bytes() > most {
                    break;
                }
                item.encode(&mut body);
            }
            segments += 1;
        }
        // A short rest of a segment that took nothing: the next one does.
        let stuck = segments == 0 && !covered.is_empty();
        let is_last = segments == covered.len();
        let body = if stuck { vec![0; most + PAGE_BYTES] } else { body };
        Filled { kind: ChunkKind::Segments, body, entries: 0, segments, after: None, is_last }
    }

    /// Writes pages of a checkpoint; false if there are no blocks for them now.
    fn write_checkpoint_pages(
        &mut self,
        first: u32,
        bytes: &[u8],
        purpose: LogIoPurpose,
        through: bool,
        effects: &mut Effects,
    ) -> bool {
        let mut parts = Vec::with_capacity(bytes.len() / PAGE_BYTES);
        for page in bytes.chunks_exact(PAGE_BYTES) {
            let Some(mut block) = self.take_block(Class::Page, effects) else {
                wake_soon(effects);
                return false;
            };
            block.copy_from_slice(page);
            parts.push(BlockPart::whole(Arc::new(block)));
        }
        self.io.counters.page_writes += 1;
        self.io.counters.write_bytes += bytes.len() as u64;
        let io = self.io.start(IoPurpose::Placement(purpose));
        effects.write(io, offset(first), parts, through);
        self.placement.checkpoints.bytes += bytes.len() as u64;
        if let Some(writing) = &mut self.placement.checkpoints.writing {
            writing.in_flight += 1;
            writing.bytes += bytes.len() as u64;
        }
        true
    }

    /// Chunks, and what they tell of, are durable: the root makes them the checkpoint.
    fn write_root(&mut self, effects: &mut Effects) {
        let (uuid, mark) = (self.config.uuid, self.next_number());
        let Some(writing) = &mut self.placement.checkpoints.writing else { return };
        writing.root.mark = mark;
        // An empty index has no chunk, perhaps; and it is not worth a checkpoint.
        let Some(&(number, _)) = writing.root.segments.first() else { return self.abandon_checkpoint() };
        let (first, generation) =
            (number * self.placement.segments.pages, self.placement.segments.get(number).generation);
        let bytes = writing.root.encode(&uuid, first, generation, self.placement.segments.pages);
        let before = std::mem::replace(&mut writing.phase, CheckpointPhase::Root);
        if !self.write_checkpoint_pages(first, &bytes, LogIoPurpose::CheckpointRoot, true, effects)
            && let Some(writing) = self.placement.checkpoints.writing.as_mut()
        {
            writing.phase = before;
        }
    }

    /// A write of a checkpoint is done: a chunk, or the root.
    pub(crate) fn checkpoint_written(&mut self, is_root: bool, result: Result<(), IoFault>) {
        let Some(writing) = &mut self.placement.checkpoints.writing else { return };
        writing.in_flight -= 1;
        if let Err(fault) = result {
            tracing::warn!(%fault, shard = self.config.shard, "a checkpoint could not be written: the one before it stays");
            writing.is_over = true;
        }
        if writing.is_over {
            return self.abandon_checkpoint();
        }
        if is_root {
            let new = writing.numbers();
            self.placement.checkpoints.last_took = (writing.bytes, writing.root.entries);
            self.placement.checkpoints.writing = None;
            self.placement.checkpoints.made += 1;
            let old = std::mem::replace(&mut self.placement.checkpoints.current, new);
            self.release_checkpoint(&old);
        }
    }

    /// The flush of the chunks is done.
    pub(crate) fn checkpoint_flushed(&mut self, result: Result<(), IoFault>, effects: &mut Effects) {
        if let Err(fault) = result {
            // What else this flush should have covered is not known.
            return self.poison(fault, "a flush failed", effects);
        }
        if let Some(writing) = self.placement.checkpoints.writing.as_mut() {
            writing.phase = CheckpointPhase::Durable;
        }
    }

    /// Gives a checkpoint up, or will when nothing of it is in flight.
    pub(super) fn abandon_checkpoint(&mut self) {
        let Some(writing) = &mut self.placement.checkpoints.writing else { return };
        writing.is_over = true;
        if writing.in_flight == 0 && writing.phase != CheckpointPhase::Flushing {
            let numbers = writing.numbers();
            self.placement.checkpoints.writing = None;
            self.release_checkpoint(&numbers);
        }
    }
}
