//! A disk request on its way: what it is of, how far it came, and the blocks that it owns.

use std::ops::Range;
use std::sync::Arc;

use crate::block::{Block, BlockPart};
use crate::nvme::memory::MEMORY_PAGE_BYTES;
use crate::nvme::namespace::NvmeVolume;
use crate::request::{DiskOutcome, DiskRequest, IoFault};

/// A request, from its submission to its outcome.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) tag: u64,
    pub(super) volume: Arc<NvmeVolume>,
    pub(super) kind: Kind,
    /// Where on the namespace, in bytes.
    pub(super) offset: u64,
    /// Bytes of it that commands were made of; a flush counts as one.
    pub(super) issued: u64,
    pub(super) total: u64,
    /// Commands in flight.
    pub(super) running: u16,
    pub(super) fault: Option<IoFault>,
    /// Of a flush: the writes that it covers.
    covered: u64,
}

/// What it does.
#[derive(Debug)]
pub(super) enum Kind {
    Read { block: Block },
    Write { parts: Vec<BlockPart>, durable: bool },
    Flush,
    Discard,
}

pub(super) const MISALIGNED: IoFault = IoFault::Os(libc::EINVAL);

impl Request {
    /// Or how it ends, if the device need not be asked.
    pub(super) fn new(tag: u64, volume: &Arc<NvmeVolume>, request: DiskRequest) -> Result<Request, DiskOutcome> {
        let namespace = volume.namespace();
        if namespace.controller().is_dead() {
            return Err(request.refuse(IoFault::Os(libc::ENODEV)));
        }
        let fits = |offset: u64, len: u64, beyond| {
            let lba = u64::from(namespace.lba_bytes());
            let end = offset.checked_add(len);
            match end {
                _ if !offset.is_multiple_of(lba) || !len.is_multiple_of(lba) || len == 0 => Err(MISALIGNED),
                Some(end) if end <= namespace.len_bytes() => Ok(()),
                _ => Err(beyond),
            }
        };
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
                let is_page = |start: u32| (start as usize).is_multiple_of(MEMORY_PAGE_BYTES);
                // Each part but the last one fills its pages, as no page is sent in two pieces.
                let is_aligned = parts.iter().all(|part| is_page(part.start))
                    && parts.iter().rev().skip(1).all(|part| is_page(part.len));
                let aligned = if is_aligned { Ok(()) } else { Err(MISALIGNED) };
                aligned
                    .and_then(|()| fits(offset, total, IoFault::Full))
                    .map_err(|fault| DiskOutcome::Write(Err(fault)))?;
                (Kind::Write { parts, durable: durable && namespace.has_volatile_cache() }, offset, total)
            }
            DiskRequest::Flush => {
                volume.may_flush().map_err(|fault| DiskOutcome::Flush(Err(fault)))?;
                (Kind::Flush, 0, 1)
            }
            DiskRequest::Allocate { offset, len } => {
                return Err(DiskOutcome::Allocate(fits(offset, len, IoFault::Full)));
            }
            DiskRequest::Discard { offset, len } => {
                fits(offset, len, IoFault::Short).map_err(|fault| DiskOutcome::Discard(Err(fault)))?;
                if !namespace.controller().identity().takes_dataset_management {
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
            covered,
        })
    }

    /// Whether commands were made of all of it.
    pub(super) fn is_issued(&self) -> bool {
        self.issued >= self.total
    }

    /// Its data from byte `from` on: blocks, and which bytes of each.
    pub(super) fn runs(&self, from: u64) -> impl Iterator<Item = (&Block, Range<usize>)> {
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
    pub(super) fn completed(&self, generation: u32) {
        let is_volatile = self.volume.namespace().has_volatile_cache();
        match &self.kind {
            Kind::Write { durable: false, .. } if is_volatile => self.volume.write_completed(generation),
            Kind::Flush if self.fault.is_none() => self.volume.flushed(self.covered),
            _ => {}
        }
    }

    pub(super) fn end(self) -> (u64, DiskOutcome) {
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
