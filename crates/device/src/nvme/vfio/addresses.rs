//! [`IoAddresses`]: which addresses of a device's address space (IOVAs) are free.
//!
//! They are drawn from what the IOMMU can translate, and are never a process's own addresses: an
//! IOMMU may have 39 bits, and processes use 47.

use std::collections::BTreeMap;
use std::ops::Range;

/// Pages of the IOMMU as we use it, in bytes.
const PAGE_BYTES: u64 = 4096;
/// Nothing is given out below: an address of 0 in a command is one that was forgotten.
const FIRST: u64 = 0x1_0000;
/// Where messages of interrupts go on x86; never memory.
const MSI_WINDOW: Range<u64> = 0xfee0_0000..0xfef0_0000;
/// What is translated if the kernel does not say it (before Linux 5.4): below the window of
/// interrupts, where every IOMMU works.
const RANGE_UNKNOWN: Range<u64> = FIRST..MSI_WINDOW.start;
/// Larger alignments than this gain nothing: the largest page of an IOMMU.
const ALIGNMENT_MAX: u64 = 1 << 30;

/// Free and given ranges of an address space.
#[derive(Debug)]
pub(super) struct IoAddresses {
    /// End by start; never touching.
    free: BTreeMap<u64, u64>,
    /// Length by start.
    given: BTreeMap<u64, u64>,
}

impl IoAddresses {
    /// Of the ranges that the kernel names (`None`: it names none); each from its first to its last
    /// address.
    pub(super) fn new(ranges: Option<&[(u64, u64)]>) -> IoAddresses {
        let mut free = BTreeMap::new();
        let fallback = [(RANGE_UNKNOWN.start, RANGE_UNKNOWN.end - 1)];
        for (first, last) in ranges.unwrap_or(&fallback) {
            let end = last.saturating_add(1) / PAGE_BYTES * PAGE_BYTES;
            for piece in [(*first).max(FIRST)..end.min(MSI_WINDOW.start), (*first).max(MSI_WINDOW.end)..end] {
                let start = piece.start.next_multiple_of(PAGE_BYTES);
                if start < piece.end {
                    free.insert(start, piece.end);
                }
            }
        }
        IoAddresses { free, given: BTreeMap::new() }
    }

    /// Takes `bytes` (a multiple of 4096), aligned to their own size as far as that helps the IOMMU
    /// to use large pages.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
            return None;
        }
        let alignment = bytes.checked_next_power_of_two()?.min(ALIGNMENT_MAX);
        let (start, end, at) = self.free.iter().find_map(|(start, end)| {
            let at = start.checked_next_multiple_of(alignment)?;
            (at.checked_add(bytes)? <= *end).then_some((*start, *end, at))
        })?;
        self.free.remove(&start);
        for (from, to) in [(start, at), (at + bytes, end)] {
            if from < to {
                self.free.insert(from, to);
            }
        }
        self.given.insert(at, bytes);
        Some(at)
    }

    /// Whether exactly this was taken.
    pub(super) fn has(&self, at: u64, bytes: u64) -> bool {
        self.given.get(&at) == Some(&bytes)
    }

    /// Gives back what was taken.
    pub(super) fn release(&mut self, at: u64) {
        let Some(bytes) = self.given.remove(&at) else { return };
        let (mut start, mut end) = (at, at + bytes);
        if let Some(after) = self.free.remove(&end) {
            end = after;
        }
        if let Some((before, before_end)) = self.free.range(..start).next_back().map(|(from, to)| (*from, *to))
            && before_end == start
        {
            start = before;
        }
        self.free.insert(start, end);
    }

    /// Everything taken: start and length.
    pub(super) fn given(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.given.iter().map(|(start, bytes)| (*start, *bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stratakv_base::random::Random;

    const WIDE: &[(u64, u64)] = &[(0, 0xfedf_ffff), (0xfef0_0000, (1 << 39) - 1)];

    #[test]
    fn neither_zero_nor_the_window_of_interrupts_is_given() {
        for ranges in [Some(WIDE), Some(&[(0, (1 << 39) - 1)][..]), Some(&[(0, u64::MAX)][..]), None] {
            let mut addresses = IoAddresses::new(ranges);
            let taken: Vec<u64> = std::iter::from_fn(|| addresses.take(1 << 16)).take(70_000).collect();
            let is_memory = |at: &u64| *at >= 0x1_0000 && (at + (1 << 16) <= 0xfee0_0000 || *at >= 0xfef0_0000);
            assert!(taken.iter().all(is_memory), "{ranges:?}");
            assert!(taken.len() >= 65_000, "{ranges:?}: {}", taken.len());
        }
    }

    #[test]
    fn chunks_are_aligned_so_that_large_pages_can_be_used() {
        let mut addresses = IoAddresses::new(Some(WIDE));
        let page = addresses.take(4096).unwrap();
        let chunk = addresses.take(2 << 20).unwrap();
        assert_eq!((page, chunk % (2 << 20)), (FIRST, 0));
        assert!(addresses.take(0).is_none() && addresses.take(100).is_none());
        assert!(addresses.take(1 << 63).is_none() && addresses.take(u64::MAX - 4095).is_none());
    }

    #[test]
    fn what_is_released_is_whole_again() {
        let mut addresses = IoAddresses::new(Some(WIDE));
        let untouched = addresses.free.clone();
        let mut random = Random::new(7);
        let mut taken = Vec::new();
        for _ in 0..3000 {
            if random.below(2) == 0 || taken.is_empty() {
                let bytes = (1 + random.below(300)) * PAGE_BYTES;
                let at = addresses.take(bytes).unwrap();
                assert!(taken.iter().all(|(other, len)| at + bytes <= *other || other + len <= at));
                taken.push((at, bytes));
            } else {
                let (at, bytes) = taken.swap_remove(random.below(taken.len() as u64) as usize);
                assert!(addresses.has(at, bytes) && !addresses.has(at, bytes + 4096));
                addresses.release(at);
                assert!(!addresses.has(at, bytes));
            }
        }
        assert_eq!(addresses.given().count(), taken.len());
        for (at, _) in taken {
            addresses.release(at);
            addresses.release(at);
        }
        assert_eq!(addresses.free, untouched);
    }
}
