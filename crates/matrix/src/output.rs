//! A file that a compaction makes: its pages, where they go, and how far they are written.

use std::sync::Arc;

use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_device::{Block, BlockPart};

use crate::pmem_levels::PMEM_LEVELS_GROWTH_PAGES;
use crate::volume::{Extent, Places};

/// Pages written at once.
pub(crate) const SLICE_PAGES: u64 = (SLICE_BYTES / PAGE_BYTES) as u64;
/// Pages taken from the volume at a time while a file grows, as long as they are not more than this
/// share of what is free.
const GROWTH_PAGES: u32 = 256;
const GROWTH_SHARE: u64 = 8;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A table of this level, as far as there is room in the PMEM levels if that is where the level
    /// lies.
    Table {
        /// 0 is the first one below L0.
        level: usize,
        /// Whether it goes into the PMEM levels.
        in_pmem_levels: bool,
    },
    /// Values.
    Values,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Output {
    file: u64,
    role: Role,
    extents: Vec<Extent>,
    /// Pages of `extents`.
    taken: u32,
    /// Finished pages; for those before `sent` writes were begun.
    pages: Vec<u8>,
    sent: usize,
    /// Pages that writes were begun for.
    begun: u32,
    /// Writes in flight.
    in_flight: u32,
    ended: bool,
}

/// The volume has no room for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl Output {
    pub(crate) fn new(file: u64, role: Role) -> Output {
        Output {
            file,
            role,
            extents: Vec::new(),
            taken: 0,
            pages: Vec::new(),
            sent: 0,
            begun: 0,
            in_flight: 0,
            ended: false,
        }
    }

    pub(crate) fn file(&self) -> u64 {
        self.file
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Takes the next page.
    pub(crate) fn push(&mut self, page: &[u8; PAGE_BYTES]) {
        self.pages.extend_from_slice(page);
    }

    /// No more pages come.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    pub(crate) fn backlog_bytes(&self) -> usize {
        self.pages.len() - self.sent
    }

    pub(crate) fn is_written(&self) -> bool {
        self.ended && self.backlog_bytes() == 0 && self.in_flight == 0
    }

    /// Whether there is something to write: a whole slice, or the end.
    pub(crate) fn wants_write(&self) -> bool {
        self.backlog_bytes() >= SLICE_BYTES || (self.ended && self.backlog_bytes() > 0)
    }

    /// Fills `block` with the next pages, and says what goes where. So many pages of the volume
    /// stay free.
    ///
    /// # Errors
    /// The volume is full: nothing was changed, and the block is lost to the pool.
    pub(crate) fn next_write(
        &mut self,
        mut block: Block,
        extents: &mut Places,
        reserve_pages: u64,
    ) -> Result<Vec<(u64, BlockPart)>, NoRoom> {
        let bytes = self.backlog_bytes().min(SLICE_BYTES);
        let pages = (bytes / PAGE_BYTES) as u32;
        if self.begun + pages > self.taken {
            let room = extents.free_pages().saturating_sub(reserve_pages);
            let rest = (self.backlog_bytes() / PAGE_BYTES) as u32;
            // What it takes ahead others of the same compaction do not find: a volume with 277
            // pages free had no room for 40.
            let has_much = GROWTH_SHARE * u64::from(GROWTH_PAGES) <= room;
            let wanted = match self.ended {
                true if u64::from(rest) <= room => rest,
                false if has_much => GROWTH_PAGES,
                _ => pages,
            };
            if u64::from(wanted) > room {
                return Err(NoRoom);
            }
            let more = extents.take(wanted).ok_or(NoRoom)?;
            self.grow(more);
        }
        block[..bytes].copy_from_slice(&self.pages[self.sent..self.sent + bytes]);
        self.sent(bytes);
        let block = Arc::new(block);
        let mut writes: Vec<(u64, BlockPart)> = Vec::new();
        for page in 0..pages {
            let place = Extent::locate(&self.extents, self.begun + page).ok_or(NoRoom)? * PAGE_BYTES as u64;
            match writes.last_mut() {
                Some((start, part)) if *start + u64::from(part.len) == place => part.len += PAGE_BYTES as u32,
                _ => {
                    let start = page * PAGE_BYTES as u32;
                    writes.push((place, BlockPart { block: Arc::clone(&block), start, len: PAGE_BYTES as u32 }));
                }
            }
        }
        self.begun += pages;
        self.in_flight += writes.len() as u32;
        Ok(writes)
    }

    fn grow(&mut self, more: Vec<Extent>) {
        for extent in more {
            self.taken += extent.pages;
            match self.extents.last_mut() {
                Some(last) if last.end() == extent.page => last.pages += extent.pages,
                _ => self.extents.push(extent),
            }
        }
    }

    fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.pages.len() {
            self.pages.clear();
            self.sent = 0;
        }
    }

    /// What is stored next in the PMEM levels, and where. `None`: nothing, or what comes next goes
    /// to the volume, since the PMEM levels are full; then so does the rest of the file.
    pub(crate) fn next_in_pmem_levels(&mut self, places: &mut Places) -> Option<(Extent, &[u8])> {
        let wanted = (self.backlog_bytes() / PAGE_BYTES) as u32;
        if wanted == 0 || !(self.wants_write() || self.begun < self.taken) {
            return None;
        }
        if self.begun == self.taken && matches!(self.role, Role::Table { in_pmem_levels: true, .. }) {
            let on_volume = self.extents.last().is_some_and(|last| !last.in_pmem_levels());
            let growth = if self.ended { wanted.min(PMEM_LEVELS_GROWTH_PAGES) } else { PMEM_LEVELS_GROWTH_PAGES };
            let more = if on_volume { None } else { places.take_in_pmem_levels(growth) };
            self.grow(more?);
        }
        let page = Extent::locate(&self.extents, self.begun)
            .filter(|page| Extent { page: *page, pages: 1 }.in_pmem_levels())?;
        let is_next = |more: &u32| Extent::locate(&self.extents, self.begun + more) == Some(page + u64::from(*more));
        let pages = 1 + (1..wanted).take_while(is_next).count() as u32;
        let bytes = self.pages.get(self.sent..self.sent + pages as usize * PAGE_BYTES)?;
        Some((Extent { page, pages }, bytes))
    }

    /// So many pages were stored in the PMEM levels.
    pub(crate) fn stored(&mut self, pages: u32) {
        self.begun += pages;
        self.sent(pages as usize * PAGE_BYTES);
    }

    /// Pages that it has, of the volume and of the PMEM levels.
    pub(crate) fn taken(&self) -> &[Extent] {
        &self.extents
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// One of its writes is done.
    pub(crate) fn written(&mut self) {
        self.in_flight -= 1;
    }

    /// Where it lies. What was taken and is not needed is given back.
    pub(crate) fn extents(&mut self, extents: &mut Places) -> Vec<Extent> {
        let mut spare = self.taken - self.begun;
        while spare > 0 {
            let Some(mut last) = self.extents.pop() else { break };
            let cut = last.pages.min(spare);
            last.pages -= cut;
            extents.give(Extent { page: last.end(), pages: cut });
            spare -= cut;
            if last.pages > 0 {
                self.extents.push(last);
            }
        }
        self.taken = self.begun;
        std::mem::take(&mut self.extents)
    }

    /// What it had, to be given back: nobody will ever read it. Writes in flight must have ended.
    pub(crate) fn discard(self) -> Vec<Extent> {
        self.extents
    }
}
