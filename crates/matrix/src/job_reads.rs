//! [`JobReads`]: pages that were read for a compaction, as many as it may hold, and the reads that
//! it waits for. The compaction asks, and takes what comes; nobody else looks in.

use std::collections::VecDeque;
use std::sync::Arc;

use stratakv_base::fault_point;
use stratakv_device::{Block, BlockPart};

use crate::reading::Pins;

/// Reads of up to 16 pages that a job holds: two tables, with their indexes, and the value files
/// that it moves values out of, each with what is read ahead.
const READS_HELD: usize = 32;

/// The pages of a read, and its block; without pages there is none.
type TakenRead = (Vec<(u64, u32)>, Option<Arc<Block>>);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct JobReads {
    pub(crate) pins: Pins,
    /// What was read for it: the oldest go first.
    read: VecDeque<TakenRead>,
    /// First pages of the reads that it waits for, and how many those were.
    missing: Vec<u64>,
    asked: usize,
}

impl JobReads {
    /// It waits for the reads that begin at these pages.
    pub(crate) fn wait_for(&mut self, reads: Vec<u64>) {
        (self.asked, self.missing) = (reads.len(), reads);
    }

    pub(crate) fn waits(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Whether it waits for the read that begins at this page.
    pub(crate) fn waits_for(&self, page: u64) -> bool {
        self.missing.contains(&page)
    }

    /// Pages were read for it, from this one on. It keeps all reads that it asked for together, and
    /// some older ones; what it needs again of those that went is read again.
    pub(crate) fn take(&mut self, first: u64, parts: impl Iterator<Item = ((u64, u32), BlockPart)>) {
        let (mut names, mut block) = (Vec::new(), None);
        for (name, part) in parts {
            names.push(name);
            block.get_or_insert_with(|| Arc::clone(&part.block));
            self.pins.insert(name, part);
        }
        self.missing.retain(|page| *page != first);
        self.read.push_back((names, block));
        while self.read.len() > READS_HELD.max(self.asked) {
            let Some((names, block)) = self.read.pop_front() else { break };
            // A page that was read twice goes with the later read.
            let goes = |part: &BlockPart| {
                fault_point!("trial_pages_go_with_the_first_read", return true);
                block.as_ref().is_some_and(|block| Arc::ptr_eq(block, &part.block))
            };
            for name in names {
                if self.pins.get(&name).is_some_and(goes) {
                    self.pins.remove(&name);
                }
            }
        }
    }

    /// Lets go of what was read for it.
    pub(crate) fn release(&mut self) {
        self.pins.clear();
        self.read.clear();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use stratakv_device::{Class, Pool};

    use super::*;

    /// Of two reads that overlapped the older one dropped pages of the newer: a compaction hung.
    #[test]
    pub(crate) fn a_page_that_was_read_twice_goes_with_the_later_read() {
        let pool = Pool::new(4 << 20);
        let part = || BlockPart::whole(Arc::new(pool.take(Class::Page).expect("a block")));
        let mut job = JobReads::default();
        let mut read = |first: u32| job.take(0, (first..first + 2).map(|page| ((1, page), part())));
        [0, 1].into_iter().chain((1..READS_HELD as u32).map(|at| at * 10)).for_each(&mut read);
        let is_held = |page| job.pins.contains_key(&(1, page));
        assert!(!is_held(0) && is_held(1) && is_held(2), "{:?}", job.read);
    }
}
