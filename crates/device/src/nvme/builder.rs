//! Commands of requests: which blocks, and where their data lies in memory.

use std::io;
use std::sync::Arc;

use stratakv_base::fault_point;

use crate::nvme::Bus;
use crate::nvme::command::{Command, Prp};
use crate::nvme::memory::{DmaMemory, Domain, MEMORY_PAGE_BYTES};
use crate::nvme::requests::{Kind, MISALIGNED, Request};
use crate::request::IoFault;

/// Entries of a PRP list of one page, and so pages of one command.
const PAGES_MAX: usize = MEMORY_PAGE_BYTES / 8;

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
                let prp = self.prp(slot, request, bytes, domain)?;
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
    fn prp(&mut self, slot: u16, request: &Request, bytes: u64, domain: &Domain) -> Result<Prp, IoFault> {
        let list = usize::from(slot) * MEMORY_PAGE_BYTES;
        let pages = bytes.div_ceil(MEMORY_PAGE_BYTES as u64) as usize;
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
