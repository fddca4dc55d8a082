//! Reading a whole segment, a few slices ahead, and going through its records as they arrive.

use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_device::{Block, Class, IoFault};
use stratakv_engine::Effects;

use super::walk::next_batch;
use super::{LogIoPurpose, Packed, batch};
use crate::requests::IoPurpose;
use crate::shard::wake_soon;
use crate::space::offset;

/// Failed reads that the log tells of.
const TOLD_MAX: u64 = 10;

/// A segment that is read from its beginning to its end.
#[derive(Debug)]
pub(crate) struct SegmentReader {
    pub(crate) segment: u32,
    pub(crate) generation: u64,
    bytes: Vec<u8>,
    asked: u32,
    /// The slices that have arrived, a bit each.
    arrived: u32,
    /// One of them could not be read.
    pub(crate) failed: bool,
    /// The batch being looked at ends here, and its next record begins there; then follows this
    /// page.
    at: usize,
    end: usize,
    page: u32,
}

/// What comes next in a segment.
pub(crate) enum Next {
    /// A record: where it lies in the segment's bytes, and how long it is.
    Record(usize, usize),
    NotRead,
    End,
    /// It does not check.
    Damaged,
}

impl SegmentReader {
    /// `bytes` is as long as the segment is written, and is overwritten by what is read.
    pub(crate) fn new(segment: u32, generation: u64, bytes: Vec<u8>) -> SegmentReader {
        SegmentReader { segment, generation, bytes, asked: 0, arrived: 0, failed: false, at: 0, end: 0, page: 0 }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn footprint_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    fn slices(&self) -> u32 {
        self.bytes.len().div_ceil(SLICE_BYTES) as u32
    }

    fn is_read(&self) -> bool {
        self.arrived.count_ones() == self.slices()
    }

    /// What has arrived of it, from its beginning.
    fn read(&self) -> &[u8] {
        let bytes = self.arrived.trailing_ones() as usize * SLICE_BYTES;
        self.bytes.get(..bytes).unwrap_or(&self.bytes)
    }

    /// Slices asked for that have not arrived.
    pub(crate) fn in_flight(&self) -> u32 {
        self.asked - self.arrived.count_ones()
    }

    /// A slice has arrived, or its read has failed.
    pub(crate) fn arrived(&mut self, slice: u32, block: &Block, result: Result<(), IoFault>) {
        self.arrived |= 1 << slice;
        self.failed |= result.is_err();
        let from = slice as usize * SLICE_BYTES;
        let len = self.bytes.len().saturating_sub(from).min(SLICE_BYTES);
        if let (Some(to), Some(bytes)) = (self.bytes.get_mut(from..from + len), block.get(..len)) {
            to.copy_from_slice(bytes);
        }
    }

    /// The bytes from `at` on.
    pub(crate) fn from(&self, at: usize) -> &[u8] {
        self.bytes.get(at..).unwrap_or_default()
    }

    /// Passes over a record of `len` bytes.
    pub(crate) fn advance(&mut self, len: usize) {
        self.at += len;
    }

    /// The next record, as far as the segment is read. Segments have `pages` pages.
    pub(crate) fn next(&mut self, uuid: &[u8; 16], pages: u32) -> Next {
        if self.failed {
            return Next::Damaged;
        }
        let first = self.segment * pages;
        while self.at >= self.end {
            if self.page as usize * PAGE_BYTES >= self.bytes.len() {
                return Next::End;
            }
            let next = next_batch(uuid, first, self.generation, self.read(), self.page);
            let Some(batch) = next.filter(|batch| batch.page == self.page) else {
                return if self.is_read() { Next::Damaged } else { Next::NotRead };
            };
            (self.at, self.end) = (batch.records().start, batch.records().end);
            self.page += batch.header.pages;
        }
        let at = offset(first) + self.at as u64;
        let bytes = self.bytes.get(self.at..self.end).unwrap_or_default();
        match batch::record(uuid, at, self.generation, bytes) {
            Some((record, _)) => Next::Record(self.at, record.bytes()),
            None => Next::Damaged,
        }
    }
}

impl Packed {
    /// Counts a failed read of a segment, and tells of the first ones. What lies there is read
    /// again when somebody asks for it.
    pub(crate) fn note_segment_read(&mut self, segment: u32, result: Result<(), IoFault>) {
        let Err(fault) = result else { return };
        let errors = &mut self.placement.counters.segment_read_errors;
        *errors += 1;
        if *errors <= TOLD_MAX {
            let shard = self.config.shard;
            tracing::warn!(%fault, shard, segment, "a segment could not be read to move its records: they stay there");
        }
    }

    /// Asks for the next slices of a segment, so many ahead; the bytes asked for.
    pub(crate) fn read_ahead(
        &mut self,
        (reader, ahead): (&mut SegmentReader, u32),
        purpose: impl Fn(u32) -> LogIoPurpose,
        effects: &mut Effects,
    ) -> u64 {
        let mut read_bytes = 0;
        while !reader.failed && reader.asked < reader.slices() && reader.in_flight() < ahead {
            let Some(block) = self.take_block(Class::Slice, effects) else {
                if self.io.is_empty() {
                    wake_soon(effects);
                }
                break;
            };
            let (slice, first) = (reader.asked, offset(reader.segment * self.placement.segments.pages));
            let len = (reader.bytes.len() - slice as usize * SLICE_BYTES).min(SLICE_BYTES);
            let io = self.io.start(IoPurpose::Placement(purpose(slice)));
            effects.read(io, first + u64::from(slice) * SLICE_BYTES as u64, block, len as u32);
            read_bytes += len as u64;
            reader.asked += 1;
        }
        self.io.counters.read_bytes += read_bytes;
        read_bytes
    }
}
