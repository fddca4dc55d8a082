//! Commands of requests: which blocks, and where their data lies in memory.

use std::io;
use std::sync::Arc;

use stratakv_base::fault_point;

use crate::nvme::Bus;
use crate::nvme::command::{Command, Extent, Prp};
use crate::nvme::memory::{DmaMemory, MEMORY_PAGE_BYTES};
use crate::nvme::requests::{Kind, MISALIGNED, Request};
use crate::request::IoFault;

/// Entries of a PRP list of one page, and so pages of one command.
const PAGES_MAX: usize = MEMORY_PAGE_BYTES / 8;
/// Logical blocks that a range of Dataset Management counts.
const RANGE_BLOCKS_MAX: u64 = u32::MAX as u64;

/// Makes the commands of one queue pair.
#[derive(Debug)]
pub(super) struct CommandBuilder {
    /// A page for each slot: its PRP list, or its range.
    lists: DmaMemory,
}

impl CommandBuilder {
    pub(super) fn new(bus: &Arc<dyn Bus>, slots: u16) -> io::Result<CommandBuilder> {
        Ok(CommandBuilder { lists: DmaMemory::new(bus, usize::from(slots) * MEMORY_PAGE_BYTES)? })
    }

    /// The next command of a request, and how many bytes of the request it does.
    pub(super) fn command(&mut self, slot: u16, request: &Request) -> Result<(Command, u64), IoFault> {
        let namespace = request.volume.namespace();
        let (nsid, lba) = (namespace.nsid(), u64::from(namespace.lba_bytes()));
        let left = request.total - request.issued;
        let at = request.offset + request.issued;
        let page = usize::from(slot) * MEMORY_PAGE_BYTES;
        match &request.kind {
            Kind::Flush => Ok((Command::flush(nsid), 1)),
            Kind::Discard => {
                let blocks = (left / lba).min(RANGE_BLOCKS_MAX);
                self.lists.store(page, 0);
                self.lists.store(page + 4, blocks as u32);
                self.lists.store_u64(page + 8, at / lba);
                Ok((Command::deallocate(nsid, self.lists.address(page)), blocks * lba))
            }
            Kind::Read { .. } | Kind::Write { .. } => {
                let bytes = left.min(namespace.transfer_bytes_max()).min((PAGES_MAX * MEMORY_PAGE_BYTES) as u64);
                let extent = Extent { nsid, slba: at / lba, blocks: (bytes / lba) as u32 };
                let prp = self.prp(slot, request, bytes)?;
                Ok(match &request.kind {
                    Kind::Write { durable, .. } => {
                        let mut fua = *durable;
                        fault_point!("nvme_fua_lost", fua = false);
                        (Command::write(extent, prp, fua), bytes)
                    }
                    _ => (Command::read(extent, prp), bytes),
                })
            }
        }
    }

    /// Where the next `bytes` of a request's data lie (4.1.1): the first page, then the second one
    /// or the list of the rest.
    fn prp(&mut self, slot: u16, request: &Request, bytes: u64) -> Result<Prp, IoFault> {
        let list = usize::from(slot) * MEMORY_PAGE_BYTES;
        let pages = bytes.div_ceil(MEMORY_PAGE_BYTES as u64) as usize;
        let domain = request.volume.namespace().controller().domain();
        let refused = |error: io::Error| IoFault::Os(error.raw_os_error().unwrap_or(libc::ENOMEM));
        let mut prp = [0; 2];
        let mut page = 0;
        for (block, run) in request.runs(request.issued) {
            // A block lies in one piece, so it is looked up once.
            let (byte, chunk) = block.reach(run.start).ok_or(MISALIGNED)?;
            let first = domain.address(byte, chunk).map_err(refused)?;
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
        Ok(prp)
    }
}
