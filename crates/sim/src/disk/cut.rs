//! What a power cut, and a kill, leave: of what was not flushed any part.

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::random::Random;
use stratakv_device::DiskRequest;

use crate::coverage::Fault;

use super::{Disk, SECTOR_BYTES, put};

impl Disk {
    /// The power fails: of what was not flushed any part may be there.
    pub fn cut_power(&mut self, random: &mut Random) {
        self.lose_power(random);
        self.exchange_front();
    }

    fn lose_power(&mut self, random: &mut Random) {
        // Some cuts take everything, some nothing, most are mixed.
        let bias = [0, 100, 50, 50, 50, 50, 10, 90][random.below(8) as usize];
        let cached = std::mem::take(&mut self.cached);
        let mut touched: Vec<u64> = Vec::with_capacity(cached.len());
        let mut len_pages = self.stable.len() / PAGE_BYTES;
        for pages in cached.chunk_by(|a, b| a.write == b.write) {
            let mut fate = Fate::default();
            for cached in pages {
                touched.push(cached.page);
                let kept = keep(&mut self.stable, cached.page, &cached.bytes, bias, random);
                tracing::trace!(page = cached.page, sectors = kept.0, "kept of the cache");
                fate.add(kept);
            }
            let Some(call) = pages.first().map(|cached| cached.call) else { continue };
            self.coverage.hit(self.phase, call, fate.unflushed());
        }
        self.spare.extend(cached.into_iter().map(|cached| cached.bytes));
        let mut in_flight = std::mem::take(&mut self.in_flight);
        while !in_flight.is_empty() {
            // Concurrent writes of one place: any order.
            let other = in_flight.swap_remove(random.below(in_flight.len() as u64) as usize);
            let DiskRequest::Write { offset, parts, .. } = &other.request else {
                self.coverage.hit(self.phase, other.call, Fault::CutDropped);
                continue;
            };
            let mut fate = Fate::default();
            let pages = parts.iter().flat_map(|part| part.bytes().chunks(PAGE_BYTES));
            for (page, bytes) in (offset / PAGE_BYTES as u64..).zip(pages) {
                if (page + 1) * PAGE_BYTES as u64 <= self.options.capacity_bytes {
                    touched.push(page);
                    let kept = keep(&mut self.stable, page, bytes, bias, random);
                    tracing::trace!(page, sectors = kept.0, "kept of a write in flight");
                    fate.add(kept);
                }
            }
            self.coverage.hit(self.phase, other.call, fate.in_flight());
        }
        // The length that was not flushed: as it was, as the kept pages need it, or all of it.
        len_pages = len_pages.max(self.stable.len() / PAGE_BYTES);
        if random.below(2) == 0 {
            len_pages = len_pages.max(self.current.len() / PAGE_BYTES);
        }
        self.stable.resize(len_pages * PAGE_BYTES, 0);
        self.current.resize(len_pages * PAGE_BYTES, 0);
        touched.sort_unstable();
        touched.dedup();
        for page in touched {
            self.revert(page);
        }
    }

    /// The process dies: what was in flight is done or not, page by page. The cache stays,
    /// unflushed.
    pub fn kill(&mut self, random: &mut Random) {
        self.finish_in_flight(random);
        self.exchange_front();
    }

    /// What is in flight is done or not, page by page.
    pub(super) fn finish_in_flight(&mut self, random: &mut Random) {
        for other in std::mem::take(&mut self.in_flight) {
            self.coverage.hit(self.phase, other.call, Fault::Killed);
            let DiskRequest::Write { offset, parts, durable } = &other.request else { continue };
            self.completed += 1;
            let keep = [0, 50, 100][random.below(3) as usize];
            let pages = parts.iter().flat_map(|part| part.bytes().chunks(PAGE_BYTES));
            for (page, bytes) in (offset / PAGE_BYTES as u64..).zip(pages) {
                let fits = (page + 1) * PAGE_BYTES as u64 <= self.options.capacity_bytes;
                if fits && random.below(100) < keep {
                    self.put(page, bytes, *durable, other.call);
                }
            }
        }
    }
}

/// What became of the pages of one write.
#[derive(Default)]
struct Fate {
    kept: bool,
    dropped: bool,
    torn: bool,
}

impl Fate {
    fn add(&mut self, sectors: (u32, u32)) {
        let (kept, all) = sectors;
        self.kept |= kept == all;
        self.dropped |= kept == 0;
        self.torn |= kept != 0 && kept != all;
    }

    fn in_flight(&self) -> Fault {
        match (self.torn, self.kept, self.dropped) {
            (true, ..) => Fault::CutTorn512,
            (false, true, true) => Fault::CutTorn4K,
            (false, true, false) => Fault::CutKept,
            _ => Fault::CutDropped,
        }
    }

    fn unflushed(&self) -> Fault {
        match self.in_flight() {
            Fault::CutKept => Fault::UnflushedKept,
            Fault::CutDropped => Fault::UnflushedDropped,
            _ => Fault::UnflushedTorn,
        }
    }
}

/// Keeps all, nothing, or some sectors of a page; `bias` is the percentage kept. Returns sectors
/// kept, of how many.
fn keep(stable: &mut Vec<u8>, page: u64, bytes: &[u8], bias: u64, random: &mut Random) -> (u32, u32) {
    let sectors = (PAGE_BYTES / SECTOR_BYTES) as u32;
    let mask: u64 = match (bias, random.below(2)) {
        (0, _) => 0,
        (100, _) => u64::MAX,
        (_, 0) => match random.below(4) {
            0 => random.next_u64(),
            // The first sectors only, or the last.
            1 | 2 => (1 << random.below(u64::from(sectors))) - 1,
            _ => u64::MAX << random.below(u64::from(sectors)),
        },
        _ if random.below(100) < bias => u64::MAX,
        _ => 0,
    };
    let mask = mask & ((1 << sectors) - 1);
    if mask == 0 {
        return (0, sectors);
    }
    if mask.count_ones() == sectors {
        put(stable, page, bytes);
        return (sectors, sectors);
    }
    for (number, sector) in bytes.chunks(SECTOR_BYTES).enumerate().filter(|(number, _)| mask >> number & 1 == 1) {
        let at = page as usize * PAGE_BYTES + number * SECTOR_BYTES;
        if stable.len() < (page as usize + 1) * PAGE_BYTES {
            stable.resize((page as usize + 1) * PAGE_BYTES, 0);
        }
        stable[at..at + SECTOR_BYTES].copy_from_slice(sector);
    }
    (mask.count_ones(), sectors)
}
