//! Commands of requests: which blocks, and where their data lies in memory.

use std::io;
use std::sync::Arc;

use stratakv_base::fault_point;

use crate::block::Block;
use crate::nvme::Bus;
use crate::nvme::command::{Command, DataPointer, data_block, last_segment};
use crate::nvme::memory::{DmaMemory, Domain, MEMORY_PAGE_BYTES};
use crate::nvme::requests::{Kind, MISALIGNED, Request};
use crate::request::IoFault;

/// Entries of a PRP list of one page, and so pages of one command.
const PAGES_MAX: usize = MEMORY_PAGE_BYTES / 8;
const SGL_DESCRIPTOR_BYTES: usize = 16;
/// Descriptors of an SGL segment of one page.
const DESCRIPTORS_MAX: usize = MEMORY_PAGE_BYTES / SGL_DESCRIPTOR_BYTES;

/// Makes the commands of one queue pair.
#[derive(Debug)]
pub(super) struct CommandBuilder {
    /// A page for each slot: its PRP list, its SGL segment, or its range.
    lists: DmaMemory,
}

impl CommandBuilder {
    pub(super) fn new(bus: &Arc<dyn Bus>, slots: u16) -> io::Result<CommandBuilder> {
        Ok(CommandBuilder { lists: DmaMemory::new(bus, usize::from(slots) * MEMORY_PAGE_BYTES)? })
    }

    /// The next command of a request, and how many bytes of the request it does. Its memory is
    /// reached by `domain`.
    pub(super) fn command(&mut self, slot: u16, request: &Request, domain: &Domain) -> Result<(Command, u64), IoFault> {
        let page = usize::from(slot) * MEMORY_PAGE_BYTES;
        match &request.kind {
            Kind::Flush => Ok((Command::flush(request.volume.shape().nsid), 1)),
            Kind::Discard => {
                let (range, bytes) = request.next_range();
                for (at, word) in (page..).step_by(4).zip(range) {
                    self.lists.store(at, word);
                }
                Ok((Command::deallocate(request.volume.shape().nsid, self.lists.address(page)), bytes))
            }
            Kind::Read { .. } | Kind::Write { .. } => {
                let (extent, bytes) = request.next_extent((PAGES_MAX * MEMORY_PAGE_BYTES) as u64);
                let data = self.data(slot, request, bytes, domain)?;
                Ok(match &request.kind {
                    Kind::Write { durable, .. } => {
                        let mut fua = *durable;
                        fault_point!("nvme_fua_lost", fua = false);
                        (Command::write(extent, data, fua), bytes)
                    }
                    _ => (Command::read(extent, data), bytes),
                })
            }
        }
    }

    /// Where the next `bytes` of a request's data lie. Two pages need no list. More are told by an
    /// SGL where that is taken: a block lies in one piece, and so needs one descriptor instead of
    /// an entry for each of its pages.
    fn data(&mut self, slot: u16, request: &Request, bytes: u64, domain: &Domain) -> Result<DataPointer, IoFault> {
        let pages = bytes.div_ceil(MEMORY_PAGE_BYTES as u64) as usize;
        // A run fills its pages, so there are no more runs than pages.
        if request.volume.shape().takes_sgls && (3..=DESCRIPTORS_MAX).contains(&pages) {
            return self.sgl(slot, request, bytes, domain);
        }
        self.prp(slot, request, pages, domain)
    }

    /// An SGL (4.1.2): the one data block that there is, or a segment of several.
    fn sgl(&mut self, slot: u16, request: &Request, bytes: u64, domain: &Domain) -> Result<DataPointer, IoFault> {
        let segment = usize::from(slot) * MEMORY_PAGE_BYTES;
        let (mut left, mut at, mut first) = (bytes as usize, segment, [0; 2]);
        for (block, run) in request.runs(request.issued) {
            let len = run.len().min(left);
            let mut address = address(block, run.start, domain)?;
            fault_point!("nvme_descriptor_misplaced", at > segment, address -= MEMORY_PAGE_BYTES as u64);
            let descriptor = data_block(address, len as u32);
            if at == segment {
                first = descriptor;
            }
            self.lists.store_u64(at, descriptor[0]);
            self.lists.store_u64(at + 8, descriptor[1]);
            (left, at) = (left - len, at + SGL_DESCRIPTOR_BYTES);
            if left == 0 {
                break;
            }
        }
        match at - segment {
            _ if left > 0 => Err(MISALIGNED),
            SGL_DESCRIPTOR_BYTES => Ok(DataPointer::Sgl(first)),
            many => Ok(DataPointer::Sgl(last_segment(self.lists.address(segment), many as u32))),
        }
    }

    /// PRP entries (4.1.1): the first page, then the second one or the list of the rest.
    fn prp(&mut self, slot: u16, request: &Request, pages: usize, domain: &Domain) -> Result<DataPointer, IoFault> {
        let list = usize::from(slot) * MEMORY_PAGE_BYTES;
        let mut prp = [0; 2];
        let mut page = 0;
        for (block, run) in request.runs(request.issued) {
            // A block lies in one piece, so it is looked up once.
            let first = address(block, run.start, domain)?;
            for offset in (0..run.len() as u64).step_by(MEMORY_PAGE_BYTES).take(pages - page) {
                match page {
                    0 => prp[0] = first + offset,
                    1 if pages == 2 => prp[1] = first + offset,
                    _ => self.lists.store_u64(list + 8 * (page - 1), first + offset),
                }
                page += 1;
            }
            if page == pages {
                break;
            }
        }
        if page < pages {
            return Err(MISALIGNED);
        }
        if pages > 2 {
            prp[1] = self.lists.address(list);
            fault_point!("nvme_list_off_by_one", prp[1] += 8);
        }
        Ok(DataPointer::Prp(prp))
    }
}

/// Where the device finds a byte of a block.
fn address(block: &Block, at: usize, domain: &Domain) -> Result<u64, IoFault> {
    let (byte, chunk) = block.reach(at).ok_or(MISALIGNED)?;
    domain.address(byte, chunk).map_err(|error| IoFault::Os(error.raw_os_error().unwrap_or(libc::ENOMEM)))
}
