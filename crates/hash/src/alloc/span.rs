//! The free extents of one span, in two bits for each block.

use super::{Extent, steps};

/// A bit for each of 64 blocks.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    /// It is free.
    free: u64,
    /// A free extent begins here.
    starts: u64,
}

/// One segment, or several for a record that is longer. Its free extents are those of the medium,
/// one for one.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) segments: u32,
    /// Number of its first block.
    place: u64,
    blocks: u32,
    free_blocks: u32,
    extents: u32,
    words: Box<[Word]>,
}

/// Free extents side by side: what the first one has, and all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Join {
    pub(super) first: Extent,
    pub(super) blocks: u32,
}

impl Span {
    pub(super) fn new(segments: u32, place: u64, blocks: u32) -> Span {
        let words = vec![Word::default(); blocks.div_ceil(64) as usize].into();
        Span { segments, place, blocks, free_blocks: 0, extents: 0, words }
    }

    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    pub(super) fn free_blocks(&self) -> u32 {
        self.free_blocks
    }

    /// How many free extents there are.
    pub(super) fn extents(&self) -> u32 {
        self.extents
    }

    pub(super) fn is_unused(&self) -> bool {
        self.free_blocks == self.blocks
    }

    /// Memory of the bits of so many blocks.
    pub(super) fn words_bytes(blocks: u64) -> u64 {
        blocks.div_ceil(64) * size_of::<Word>() as u64
    }

    /// How much of it is free, in eighths.
    pub(super) fn eighths_free(&self) -> u8 {
        (u64::from(self.free_blocks) * 8 / u64::from(self.blocks.max(1))) as u8
    }

    /// Adds a free extent; whether merging would do something now.
    pub(super) fn add(&mut self, extent: Extent) -> bool {
        let (at, end) = self.bounds(extent);
        self.fill(at, end, true);
        self.toggle_start(at);
        self.free_blocks += end - at;
        self.extents += 1;
        self.is_unused() || at.checked_sub(1).is_some_and(|before| self.is_free(before)) || self.is_free(end)
    }

    /// Takes a free extent out.
    pub(super) fn remove(&mut self, extent: Extent) {
        let (at, end) = self.bounds(extent);
        self.fill(at, end, false);
        self.toggle_start(at);
        self.free_blocks -= end - at;
        self.extents -= 1;
    }

    /// Whether there is this free extent, not longer and not shorter.
    pub(super) fn has(&self, extent: Extent) -> bool {
        let (at, end) = self.bounds(extent);
        let starts = self.words.get((at / 64) as usize).is_some_and(|word| word.starts >> (at % 64) & 1 == 1);
        starts
            && end <= self.blocks
            && self.next(at + 1, self.blocks.min(end + 1), |word| !word.free | word.starts) == end
    }

    /// Its free extents, ascending.
    pub(super) fn free_extents(&self) -> Vec<Extent> {
        let mut extents = Vec::with_capacity(self.extents as usize);
        let mut at = self.next(0, self.blocks, |word| word.starts);
        while at < self.blocks {
            let end = self.next(at + 1, self.blocks, |word| !word.free | word.starts);
            extents.push(Extent { place: self.place + u64::from(at), blocks: end - at });
            at = self.next(end, self.blocks, |word| word.starts);
        }
        steps::count(extents.len());
        extents
    }

    /// What is to be merged, ascending.
    pub(super) fn joins(&self) -> Vec<Join> {
        let mut joins = Vec::new();
        let mut joint = self.next_joint(0);
        while joint < self.blocks {
            let at = self.start_before(joint);
            let end = self.next(joint, self.blocks, |word| !word.free);
            let first = Extent { place: self.place + u64::from(at), blocks: joint - at };
            joins.push(Join { first, blocks: end - at });
            joint = self.next_joint(end);
        }
        steps::count(joins.len());
        joins
    }

    /// The first block from `at` on where a free extent ends and another one begins; else the end.
    fn next_joint(&self, at: u32) -> u32 {
        let mut mask = u64::MAX << (at % 64);
        for (index, word) in self.words.iter().enumerate().skip((at / 64) as usize) {
            steps::count(1);
            let before = index.checked_sub(1).and_then(|before| self.words.get(before));
            let joints = word.starts & (word.free << 1 | before.map_or(0, |before| before.free >> 63)) & mask;
            if joints != 0 {
                return index as u32 * 64 + joints.trailing_zeros();
            }
            mask = u64::MAX;
        }
        self.blocks
    }

    /// Where the last free extent before `at` begins.
    fn start_before(&self, at: u32) -> u32 {
        let mut mask = (1 << (at % 64)) - 1;
        for (index, word) in self.words.iter().enumerate().take((at / 64) as usize + 1).rev() {
            steps::count(1);
            let starts = word.starts & mask;
            if starts != 0 {
                return index as u32 * 64 + 63 - starts.leading_zeros();
            }
            mask = u64::MAX;
        }
        0
    }

    /// Makes one extent of those side by side, as the medium has it now.
    pub(super) fn join(&mut self, join: Join) {
        let (at, first_end) = self.bounds(join.first);
        let end = at + join.blocks;
        let mut next = first_end;
        while next < end {
            self.toggle_start(next);
            self.extents -= 1;
            next = self.next(next + 1, end, |word| word.starts);
        }
    }

    /// An extent's first block and the one behind its last, counted from the span's first.
    fn bounds(&self, extent: Extent) -> (u32, u32) {
        let at = (extent.place - self.place) as u32;
        (at, at + extent.blocks)
    }

    fn is_free(&self, at: u32) -> bool {
        self.words.get((at / 64) as usize).is_some_and(|word| word.free >> (at % 64) & 1 == 1)
    }

    fn toggle_start(&mut self, at: u32) {
        if let Some(word) = self.words.get_mut((at / 64) as usize) {
            word.starts ^= 1 << (at % 64);
        }
    }

    /// By words: an extent may have a million blocks.
    fn fill(&mut self, mut at: u32, end: u32, free: bool) {
        while at < end {
            let (index, bit) = ((at / 64) as usize, at % 64);
            let count = (64 - bit).min(end - at);
            let mask = (u64::MAX >> (64 - count)) << bit;
            if let Some(word) = self.words.get_mut(index) {
                debug_assert_eq!(word.free & mask, if free { 0 } else { mask }, "freed or taken twice");
                word.free ^= mask;
            }
            at += count;
            steps::count(1);
        }
    }

    /// The first block from `at` on, and before `end`, whose bit is set in what `of` makes of its
    /// word; else `end`.
    fn next(&self, at: u32, end: u32, of: impl Fn(Word) -> u64) -> u32 {
        let mut mask = u64::MAX << (at % 64);
        let mut base = at - at % 64;
        while base < end {
            steps::count(1);
            let Some(word) = self.words.get((base / 64) as usize) else { break };
            let found = of(*word) & mask;
            if found != 0 {
                return (base + found.trailing_zeros()).min(end);
            }
            (mask, base) = (u64::MAX, base + 64);
        }
        end
    }
}
