//! [`ManifestSearch`]: which manifest counts. The opener hands it the superblocks as they are read,
//! reads the copies of manifests that it names, one after the other, and stops at the first whole
//! one. It reads nothing itself.

use std::collections::VecDeque;

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Place, Unreadable, fault_point};
use stratakv_chassis::superblock::SuperblockPair;
use stratakv_device::IoFault;
use stratakv_engine::Error;

use super::MANIFEST_PAGES_MAX;
use crate::volume::Superblock;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ManifestSearch {
    pub(super) superblocks: SuperblockPair<Superblock>,
    /// The superblock that counts, as it was found.
    counted: Superblock,
    /// Copies of manifests to try after this one.
    copies: VecDeque<(Superblock, bool)>,
    /// The second copy of a manifest is read.
    second_copy: bool,
    /// The highest number that a manifest may have.
    highest: u64,
    /// A superblock, or a copy of the manifest, is damaged or old.
    repairs: bool,
    /// What the device did not give, of superblocks and copies of the manifest.
    unreadable: Vec<(Unreadable, IoFault)>,
}

impl ManifestSearch {
    /// Both superblocks were read: the manifest is where the newer one says.
    ///
    /// # Errors
    /// None of them is whole, or they are of another shard.
    pub(super) fn choose(&mut self, shard: (u32, u32)) -> Result<(), Error> {
        let newest = self.superblocks.choose(shard)?;
        let (is_whole, mut whole) = (self.superblocks.is_whole(), self.superblocks.newest_first());
        self.repairs = !is_whole || whole.iter().any(|superblock| superblock.number != newest.number);
        // One that cannot be read may have the next number already.
        self.highest = newest.number + u64::from(!is_whole);
        whole.dedup_by_key(|superblock| superblock.number);
        let is_plausible = |superblock: &Superblock| (1..=MANIFEST_PAGES_MAX).contains(&superblock.pages);
        let plausible = whole.into_iter().filter(is_plausible);
        self.copies = plausible.flat_map(|superblock| [(superblock, false), (superblock, true)]).collect();
        self.counted = newest;
        Ok(())
    }

    /// The superblock of the next copy to read. The older one counts if nothing of the newer one's
    /// is whole: what it names is not free before both superblocks are durable, so a manifest that
    /// was never installed is all that can be damaged then.
    pub(super) fn next_copy(&mut self) -> Option<Superblock> {
        let (superblock, second) = self.copies.pop_front()?;
        self.repairs |= second || superblock != self.counted;
        (self.counted, self.second_copy) = (superblock, second);
        Some(superblock)
    }

    pub(super) fn has_more(&self) -> bool {
        !self.copies.is_empty()
    }

    pub(super) fn counted(&self) -> Superblock {
        self.counted
    }

    pub(super) fn is_second_copy(&self) -> bool {
        self.second_copy
    }

    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    pub(super) fn repairs(&self) -> bool {
        self.repairs
    }

    /// Where the copy begins that is being read.
    pub(super) fn copy_page(&self) -> u64 {
        self.counted.page + u64::from(self.counted.pages) * u64::from(self.second_copy)
    }

    /// A slot with another superblock than the one that counts. One that could not be read may have
    /// an epoch that the volume took up and the region will have forgotten, once it begins the one
    /// after the next.
    pub(super) fn other_slot(&self) -> Option<usize> {
        fault_point!("trial_epoch_over_slots_that_differ", return None);
        (0..2).find(|slot| !self.superblocks.has(*slot, &self.counted))
    }

    /// Both slots, the one first that has another superblock: one of them is whole all the while.
    pub(super) fn slots_to_mend(&self) -> [u64; 2] {
        if self.superblocks.has(0, &self.counted) { [1, 0] } else { [0, 1] }
    }

    /// The device did not give these pages.
    pub(super) fn note_unreadable(&mut self, shard: u32, page: u64, pages: u64, fault: IoFault) {
        let page_bytes = PAGE_BYTES as u64;
        let place = Place { shard, offset_bytes: page.saturating_mul(page_bytes) };
        let unreadable = Unreadable { place, len_bytes: pages * page_bytes, why: fault.to_string() };
        self.unreadable.push((unreadable, fault));
    }

    /// What was not given last.
    pub(super) fn last_fault(&self) -> Option<IoFault> {
        self.unreadable.last().map(|(_, fault)| *fault)
    }

    pub(super) fn into_unreadable(self) -> Vec<Unreadable> {
        self.unreadable.into_iter().map(|(place, _)| place).collect()
    }
}
