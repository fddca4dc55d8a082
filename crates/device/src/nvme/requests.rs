//! A disk request on its way: what it is of, how far it came, and the blocks that it owns.

use std::ops::Range;
use std::sync::Arc;

use crate::block::{Block, BlockPart};
use crate::nvme::command::Extent;
use crate::nvme::memory::MEMORY_PAGE_BYTES;
use crate::nvme::shape::{NamespaceShape, VolumeState};
use crate::request::{DiskOutcome, DiskRequest, IoFault};

/// A request, from its submission to its outcome.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) tag: u64,
    pub(crate) volume: Arc<VolumeState>,
    pub(crate) kind: Kind,
    /// Where on the namespace, in bytes.
    pub(crate) offset: u64,
    /// Bytes of it that commands were made of; a flush counts as one.
    pub(crate) issued: u64,
    pub(crate) total: u64,
    /// Commands in flight.
    pub(crate) running: u16,
    pub(crate) fault: Option<IoFault>,
    /// The controller's generation when it was begun.
    pub(crate) begun: u32,
    /// Of a flush: the writes that it covers.
    covered: u64,
}

/// What it does.
#[derive(Debug)]
pub(crate) enum Kind {
    Read { block: Block },
    Write { parts: Vec<BlockPart>, durable: bool },
    Flush,
    Discard,
}

/// Logical blocks that a range of Dataset Management counts.
const RANGE_BLOCKS_MAX: u64 = u32::MAX as u64;

pub(crate) const MISALIGNED: IoFault = IoFault::Os(libc::EINVAL);

/// Whether whole blocks of a namespace are asked for; `beyond` says what is behind its end.
fn fits(shape: &NamespaceShape, offset: u64, len: u64, beyond: IoFault) -> Result<(), IoFault> {
    let lba = u64::from(shape.lba_bytes);
    match offset.checked_add(len) {
        _ if !offset.is_multiple_of(lba) || !len.is_multiple_of(lba) || len == 0 => Err(MISALIGNED),
        Some(end) if end <= shape.len_bytes => Ok(()),
        _ => Err(beyond),
    }
}

/// Whether each part but the last one fills its pages, as no page is sent in two pieces.
fn fill_pages(parts: &[BlockPart]) -> bool {
    let is_page = |bytes: u32| (bytes as usize).is_multiple_of(MEMORY_PAGE_BYTES);
    parts.iter().all(|part| is_page(part.start)) && parts.iter().rev().skip(1).all(|part| is_page(part.len))
}

impl Request {
    /// Or how it ends, if the device need not be asked. `generation` is the controller's.
    pub(crate) fn new(
        tag: u64,
        volume: &Arc<VolumeState>,
        generation: u32,
        request: DiskRequest,
    ) -> Result<Request, DiskOutcome> {
        let shape = volume.shape();
        let fits = |offset, len, beyond| fits(shape, offset, len, beyond);
        let (kind, offset, total) = match request {
            DiskRequest::Read { offset, block, len } => {
                let room = if len as usize > block.len() { Err(MISALIGNED) } else { Ok(()) };
                match room.and_then(|()| fits(offset, len.into(), IoFault::Short)) {
                    Ok(()) => (Kind::Read { block }, offset, len.into()),
                    Err(fault) => return Err(DiskOutcome::Read(block, Err(fault))),
                }
            }
            DiskRequest::Write { offset, parts, durable } => {
                let total = parts.iter().map(|part| u64::from(part.len)).sum();
                let aligned = if fill_pages(&parts) { Ok(()) } else { Err(MISALIGNED) };
                aligned
                    .and_then(|()| fits(offset, total, IoFault::Full))
                    .map_err(|fault| DiskOutcome::Write(Err(fault)))?;
                (Kind::Write { parts, durable: durable && shape.has_volatile_cache }, offset, total)
            }
            DiskRequest::Flush => {
                volume.may_flush(generation).map_err(|fault| DiskOutcome::Flush(Err(fault)))?;
                (Kind::Flush, 0, 1)
            }
            DiskRequest::Allocate { offset, len } => {
                return Err(DiskOutcome::Allocate(fits(offset, len, IoFault::Full)));
            }
            DiskRequest::Discard { offset, len } => {
                fits(offset, len, IoFault::Short).map_err(|fault| DiskOutcome::Discard(Err(fault)))?;
                if !shape.takes_dataset_management {
                    return Err(DiskOutcome::Discard(Err(IoFault::Os(libc::EOPNOTSUPP))));
                }
                (Kind::Discard, offset, len)
            }
        };
        let covered = volume.cached_writes();
        Ok(Request {
            tag,
            volume: Arc::clone(volume),
            kind,
            offset,
            issued: 0,
            total,
            running: 0,
            fault: None,
            begun: generation,
            covered,
        })
    }

    /// Whether it is a flush.
    pub(crate) fn is_flush(&self) -> bool {
        matches!(self.kind, Kind::Flush)
    }

    /// The blocks of its next command, of `most` bytes at most, and how many bytes these are.
    pub(crate) fn next_extent(&self, most: u64) -> (Extent, u64) {
        let NamespaceShape { nsid, lba_bytes, transfer_bytes_max, .. } = *self.volume.shape();
        let lba = u64::from(lba_bytes);
        let bytes = (self.total - self.issued).min(most).min(transfer_bytes_max);
        (Extent { nsid, slba: (self.offset + self.issued) / lba, blocks: (bytes / lba) as u32 }, bytes)
    }

    /// The same of a discard: a range of Dataset Management (NVM 3.2.1, figure 39) as words.
    pub(crate) fn next_range(&self) -> ([u32; 4], u64) {
        let lba = u64::from(self.volume.shape().lba_bytes);
        let blocks = ((self.total - self.issued) / lba).min(RANGE_BLOCKS_MAX);
        let slba = (self.offset + self.issued) / lba;
        ([0, blocks as u32, slba as u32, (slba >> 32) as u32], blocks * lba)
    }

    /// Whether commands were made of all of it.
    pub(crate) fn is_issued(&self) -> bool {
        self.issued >= self.total
    }

    /// Its data from byte `from` on: blocks, and which bytes of each.
    pub(crate) fn runs(&self, from: u64) -> impl Iterator<Item = (&Block, Range<usize>)> {
        let (read, parts) = match &self.kind {
            Kind::Read { block } => (Some((block, 0, self.total as usize)), &[][..]),
            Kind::Write { parts, .. } => (None, &parts[..]),
            Kind::Flush | Kind::Discard => (None, &[][..]),
        };
        let parts = parts.iter().map(|part| (&*part.block, part.start as usize, part.len as usize));
        let mut skip = from as usize;
        read.into_iter().chain(parts).filter_map(move |(block, start, len)| {
            let skipped = skip.min(len);
            skip -= skipped;
            (skipped < len).then_some((block, start + skipped..start + len))
        })
    }

    /// Its last command has ended: what that says of the volume's cache is noted.
    pub(crate) fn completed(&self, generation: u32) {
        let is_volatile = self.volume.shape().has_volatile_cache;
        match &self.kind {
            Kind::Write { durable: false, .. } if is_volatile => self.volume.write_completed(generation),
            Kind::Flush if self.fault.is_none() => self.volume.flushed(self.covered),
            _ => {}
        }
    }

    pub(crate) fn end(self) -> (u64, DiskOutcome) {
        let result = self.fault.map_or(Ok(()), Err);
        let outcome = match self.kind {
            Kind::Read { block } => DiskOutcome::Read(block, result),
            Kind::Write { .. } => DiskOutcome::Write(result),
            Kind::Flush => DiskOutcome::Flush(result),
            Kind::Discard => DiskOutcome::Discard(result),
        };
        (self.tag, outcome)
    }
}
