//! Logical pages: where each one's durable image lies, its class, and how many slots are free in
//! its newest image.

use super::class::{CLASSES, SizeClass};
use crate::record::tag;

/// No physical page.
pub(crate) const NOWHERE: u32 = u32::MAX;
/// Pages with free slots remembered per class; the rest is found again in the table.
const HEADS: usize = 64;
/// Most table entries looked at for one refill of the heads.
const REFILL_STEP: usize = 1 << 16;

/// One logical page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageEntry {
    /// Physical page of the durable image, or [`NOWHERE`].
    pub(crate) place: u32,
    /// [`tag`] of that image's sequence: a lost write is noticed when the page is read.
    pub(crate) tag: u32,
    pub(crate) class: SizeClass,
    /// Free slots of the newest image, durable or not.
    pub(crate) free: u8,
}

/// The page table and the free-slot heads (docs/decisions/0002).
#[derive(Debug, Default)]
pub(crate) struct PageTable {
    entries: Vec<PageEntry>,
    /// Logical numbers without any image.
    holes: Vec<u32>,
    heads: [Vec<u32>; CLASSES],
    /// Free slots by class, over all pages.
    free_slots: [u64; CLASSES],
    refill_at: [usize; CLASSES],
    /// Pages that became empty; checked again when taken.
    empty: Vec<u32>,
}

impl PageTable {
    pub(crate) fn from_entries(entries: Vec<PageEntry>) -> PageTable {
        let mut table = PageTable { entries, ..PageTable::default() };
        for logical in 0..table.entries.len() as u32 {
            let entry = table.entries[logical as usize];
            if entry.place == NOWHERE {
                table.entries[logical as usize].free = 0;
                table.holes.push(logical);
                continue;
            }
            table.free_slots[entry.class.index()] += u64::from(entry.free);
            if entry.free == entry.class.slots() {
                table.empty.push(logical);
            }
        }
        table
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.holes.len()
    }

    pub(crate) fn get(&self, logical: u32) -> Option<&PageEntry> {
        self.entries.get(logical as usize)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &PageEntry)> {
        (0u32..).zip(&self.entries)
    }

    /// Bytes of memory.
    pub(crate) fn footprint_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<PageEntry>() + (self.holes.capacity() + self.empty.capacity()) * 4
    }

    /// A logical page for a new image of `class`, all slots free.
    pub(crate) fn add(&mut self, class: SizeClass) -> u32 {
        let entry = PageEntry { place: NOWHERE, tag: 0, class, free: class.slots() };
        let logical = self.holes.pop().unwrap_or_else(|| {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        });
        self.entries[logical as usize] = entry;
        self.free_slots[class.index()] += u64::from(class.slots());
        logical
    }

    /// An empty page, which `usable` accepts, recast to `class`.
    pub(crate) fn recast(&mut self, class: SizeClass, usable: impl Fn(u32) -> bool) -> Option<u32> {
        for _ in 0..self.empty.len().min(HEADS) {
            let logical = self.empty.pop()?;
            let entry = &mut self.entries[logical as usize];
            if entry.free != entry.class.slots() {
                continue;
            }
            if !usable(logical) {
                self.empty.insert(0, logical);
                continue;
            }
            self.free_slots[entry.class.index()] -= u64::from(entry.free);
            entry.class = class;
            entry.free = class.slots();
            self.free_slots[class.index()] += u64::from(entry.free);
            return Some(logical);
        }
        None
    }

    /// The durable image moved.
    pub(crate) fn place(&mut self, logical: u32, place: u32, sequence: u64) -> u32 {
        let entry = &mut self.entries[logical as usize];
        entry.tag = tag(sequence);
        std::mem::replace(&mut entry.place, place)
    }

    /// A slot was taken in the newest image.
    pub(crate) fn slot_taken(&mut self, logical: u32) {
        let entry = &mut self.entries[logical as usize];
        debug_assert!(entry.free > 0);
        entry.free -= 1;
        self.free_slots[entry.class.index()] -= 1;
    }

    /// A slot was freed in the newest image.
    pub(crate) fn slot_freed(&mut self, logical: u32) {
        let entry = &mut self.entries[logical as usize];
        entry.free += 1;
        debug_assert!(entry.free <= entry.class.slots());
        let class = entry.class.index();
        self.free_slots[class] += 1;
        if entry.free == entry.class.slots() && self.empty.len() <= self.entries.len() {
            self.empty.push(logical);
        }
        let heads = &mut self.heads[class];
        if heads.len() < HEADS && !heads.contains(&logical) {
            heads.insert(0, logical);
        }
    }

    /// The page cannot be read: nothing new goes there. The number of slots given up.
    pub(crate) fn shun(&mut self, logical: u32) -> u8 {
        let Some(entry) = self.entries.get_mut(logical as usize) else { return 0 };
        self.free_slots[entry.class.index()] -= u64::from(entry.free);
        std::mem::take(&mut entry.free)
    }

    /// Makes `logical` the page that the next items of its class go to.
    pub(crate) fn open(&mut self, logical: u32) {
        let class = self.entries[logical as usize].class.index();
        self.heads[class].push(logical);
    }

    /// A page of `class` with a free slot.
    pub(crate) fn with_free_slot(&mut self, class: SizeClass, whole_table: bool) -> Option<u32> {
        let index = class.index();
        if self.free_slots[index] == 0 {
            self.heads[index].clear();
            return None;
        }
        loop {
            while let Some(&logical) = self.heads[index].last() {
                let entry = &self.entries[logical as usize];
                if entry.class == class && entry.free > 0 {
                    return Some(logical);
                }
                self.heads[index].pop();
            }
            if !self.refill(class, whole_table) {
                return None;
            }
        }
    }

    fn refill(&mut self, class: SizeClass, whole_table: bool) -> bool {
        let (index, count) = (class.index(), self.entries.len());
        let steps = if whole_table { count } else { count.min(REFILL_STEP) };
        let mut at = self.refill_at[index];
        for _ in 0..steps {
            at = if at + 1 >= count { 0 } else { at + 1 };
            let entry = &self.entries[at];
            if entry.class == class && entry.free > 0 {
                self.heads[index].push(at as u32);
                if self.heads[index].len() >= HEADS {
                    break;
                }
            }
        }
        self.refill_at[index] = at;
        self.heads[index].reverse();
        !self.heads[index].is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_slots_are_found_again_and_empty_pages_recast() {
        let (small, large) = (SizeClass::for_record(50).unwrap(), SizeClass::for_record(2000).unwrap());
        let mut table = PageTable::default();
        for _ in 0..200 {
            let page = table.add(small);
            table.open(page);
            (0..small.slots()).for_each(|_| table.slot_taken(page));
        }
        assert_eq!(table.with_free_slot(small, true), None);
        (0..200).for_each(|page| table.slot_freed(page));
        let mut found = std::collections::BTreeSet::new();
        while let Some(page) = table.with_free_slot(small, true) {
            table.slot_taken(page);
            assert!(found.insert(page));
        }
        assert_eq!(found.len(), 200, "also the pages that did not fit the heads");
        assert_eq!(table.recast(large, |_| true), None);
        (0..small.slots()).for_each(|_| table.slot_freed(3));
        assert_eq!(table.recast(large, |page| page != 3), None);
        assert_eq!(table.recast(large, |_| true), Some(3));
        assert_eq!(table.get(3).map(|entry| entry.free), Some(large.slots()));
    }
}
