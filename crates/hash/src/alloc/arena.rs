//! What one arena has: spans, and their free extents by length.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use super::span::{Join, Span};
use super::{Extent, Owners, steps};

/// Lengths in blocks with a list of their own.
const EXACT: u32 = 64;
/// Void entries of lists that are always borne with.
pub(super) const VOID_MAX: usize = 1024;
/// Spans with fewer eighths free are not cleared, and not looked for.
const ROOMY_EIGHTHS: u8 = 1;
/// Spans with fewer eighths free are not taken over.
const TAKEN_OVER_EIGHTHS: u8 = 2;

#[derive(Debug)]
pub(super) struct Arena {
    lists: Lists,
    /// What records are cut from. In no span's bits; its span may be another arena's.
    pub(super) tail: Option<Extent>,
    spans: HashMap<u32, Span, BuildHasherDefault<SegmentHasher>>,
    /// Spans with free extents side by side, and those that are free as a whole: to be merged.
    queue: BTreeSet<u32>,
    /// The one to be merged next, in the order of their numbers.
    next_merge: u32,
    /// Spans by eighths free, from [`ROOMY_EIGHTHS`] on.
    roomy: BTreeSet<(u8, u32)>,
    blocks: u64,
    free: u64,
    /// Free extents of all spans.
    extents: usize,
}

/// Of the numbers of segments: they come from nobody outside, so one multiplication will do.
#[derive(Debug, Default)]
struct SegmentHasher(u64);

impl Hasher for SegmentHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Places of free extents by length. An entry is void unless its span has exactly that extent: so
/// nobody looks for the entries of what is merged, and what goes.
#[derive(Debug)]
struct Lists {
    exact: Vec<Vec<u64>>,
    /// A bit for each of those that is not empty.
    filled: u64,
    longer: BTreeMap<u32, Vec<u64>>,
    entries: usize,
}

impl Lists {
    fn new() -> Lists {
        Lists { exact: vec![Vec::new(); EXACT as usize], filled: 0, longer: BTreeMap::new(), entries: 0 }
    }

    fn push(&mut self, extent: Extent) {
        if extent.blocks <= EXACT {
            self.exact[extent.blocks as usize - 1].push(extent.place);
            self.filled |= 1 << (extent.blocks - 1);
        } else {
            self.longer.entry(extent.blocks).or_default().push(extent.place);
        }
        self.entries += 1;
    }

    fn has_exactly(&self, blocks: u32) -> bool {
        blocks <= EXACT && self.filled >> (blocks - 1) & 1 == 1
    }

    /// An entry of the list of the shortest length that is at least `blocks`.
    fn pop(&mut self, blocks: u32) -> Option<Extent> {
        let filled = if blocks <= EXACT { self.filled >> (blocks - 1) } else { 0 };
        let (length, place) = if filled != 0 {
            let index = blocks - 1 + filled.trailing_zeros();
            let list = &mut self.exact[index as usize];
            let place = list.pop();
            if list.is_empty() {
                self.filled &= !(1 << index);
            }
            (index + 1, place?)
        } else {
            let (length, list) = self.longer.range_mut(blocks..).next()?;
            let (length, place) = (*length, list.pop());
            if list.is_empty() {
                self.longer.remove(&length);
            }
            (length, place?)
        };
        self.entries -= 1;
        Some(Extent { place, blocks: length })
    }

    /// The highest length of an entry, void or not; or 0.
    fn longest(&self) -> u32 {
        self.longer.last_key_value().map_or(64 - self.filled.leading_zeros(), |(length, _)| *length)
    }

    /// Keeps the entries that are not void, each once.
    fn prune(&mut self, mut is_there: impl FnMut(Extent) -> bool) {
        steps::count(self.entries);
        let mut keep = |blocks: u32, list: &mut Vec<u64>| {
            list.sort_unstable();
            list.dedup();
            list.retain(|place| is_there(Extent { place: *place, blocks }));
            list.shrink_to_fit();
        };
        for (blocks, list) in (1..).zip(&mut self.exact) {
            keep(blocks, list);
        }
        self.longer.retain(|blocks, list| {
            keep(*blocks, list);
            !list.is_empty()
        });
        let exact = (0..).zip(&self.exact);
        self.filled = exact.fold(0, |filled, (index, list)| filled | u64::from(!list.is_empty()) << index);
        self.entries = self.exact.iter().chain(self.longer.values()).map(Vec::len).sum();
    }

    fn footprint_bytes(&self) -> usize {
        let places: usize = self.exact.iter().chain(self.longer.values()).map(Vec::capacity).sum();
        places * size_of::<u64>() + (self.exact.len() + 2 * self.longer.len()) * size_of::<Vec<u64>>()
    }
}

impl Arena {
    pub(super) fn new() -> Arena {
        Arena {
            lists: Lists::new(),
            tail: None,
            spans: HashMap::default(),
            queue: BTreeSet::new(),
            next_merge: 0,
            roomy: BTreeSet::new(),
            blocks: 0,
            free: 0,
            extents: 0,
        }
    }

    /// Blocks of its spans.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Of them, free.
    pub(super) fn free_blocks(&self) -> u64 {
        self.free
    }

    /// More than a quarter is free.
    pub(super) fn has_much(&self) -> bool {
        self.free * 4 > self.blocks
    }

    pub(super) fn span(&self, first: u32) -> Option<&Span> {
        self.spans.get(&first)
    }

    /// Memory of its lists and spans, without the trees' inner nodes. O(lengths of free extents).
    pub(super) fn footprint_bytes(&self) -> u64 {
        let spans = self.spans.capacity() * size_of::<(u32, Span)>();
        let numbers = (self.queue.len() + 2 * self.roomy.len()) * size_of::<u32>();
        (spans + numbers + self.lists.footprint_bytes()) as u64 + Span::words_bytes(self.blocks)
    }

    /// Takes a span in, with what is free in it.
    pub(super) fn insert(&mut self, first: u32, span: Span) {
        for extent in span.free_extents() {
            self.lists.push(extent);
        }
        self.blocks += u64::from(span.blocks());
        self.free += u64::from(span.free_blocks());
        self.extents += span.extents() as usize;
        if span.eighths_free() >= ROOMY_EIGHTHS {
            self.roomy.insert((span.eighths_free(), first));
        }
        self.spans.insert(first, span);
    }

    /// Gives a span away. What lists say of it is void.
    pub(super) fn remove(&mut self, first: u32, owners: &Owners) -> Option<Span> {
        let span = self.spans.remove(&first)?;
        self.blocks -= u64::from(span.blocks());
        self.free -= u64::from(span.free_blocks());
        self.extents -= span.extents() as usize;
        self.roomy.remove(&(span.eighths_free(), first));
        self.queue.remove(&first);
        self.prune(owners);
        Some(span)
    }

    /// Adds a free extent to a span; false if the arena has no such span.
    pub(super) fn free(&mut self, first: u32, extent: Extent) -> bool {
        let Some(span) = self.spans.get_mut(&first) else { return false };
        let eighths = span.eighths_free();
        if span.add(extent) {
            self.queue.insert(first);
        }
        let eighths = (eighths, span.eighths_free());
        self.set_roomy(first, eighths);
        self.free += u64::from(extent.blocks);
        self.extents += 1;
        self.lists.push(extent);
        true
    }

    /// Takes out a free extent of at least so many blocks: one exactly so long, else the tail, else
    /// whatever is longer.
    pub(super) fn take(&mut self, owners: &Owners, blocks: u32) -> Option<Extent> {
        let is_usable = |tail: &mut Extent| tail.blocks >= blocks;
        if !self.lists.has_exactly(blocks)
            && let Some(tail) = self.tail.take_if(is_usable).filter(|tail| owners.span_of(tail.place).is_some())
        {
            return Some(tail);
        }
        self.take_listed(owners, blocks)
    }

    /// Takes out a free extent of exactly so many blocks, if there is one and it has a list of its
    /// own.
    pub(super) fn take_exactly(&mut self, owners: &Owners, blocks: u32) -> Option<Extent> {
        let found = self.lists.has_exactly(blocks).then(|| self.take_listed(owners, blocks))?;
        // The entries may all have been void.
        found.filter(|found| {
            let fits = found.blocks == blocks;
            if !fits && let Some((first, _)) = owners.span_of(found.place) {
                self.free(first, *found);
            }
            fits
        })
    }

    /// Takes out the shortest free extent of at least so many blocks. The tail is none.
    pub(super) fn take_listed(&mut self, owners: &Owners, blocks: u32) -> Option<Extent> {
        loop {
            let found = self.lists.pop(blocks)?;
            steps::count(1);
            let Some((first, span)) = self.holder_of(owners, found) else { continue };
            let eighths = span.eighths_free();
            span.remove(found);
            let eighths = (eighths, span.eighths_free());
            self.set_roomy(first, eighths);
            self.free -= u64::from(found.blocks);
            self.extents -= 1;
            self.prune(owners);
            return Some(found);
        }
    }

    /// No free extent is longer.
    pub(super) fn longest_listed(&self) -> u32 {
        self.lists.longest()
    }

    /// The span that has exactly this free extent, if it is here.
    fn holder_of(&mut self, owners: &Owners, extent: Extent) -> Option<(u32, &mut Span)> {
        let (first, _) = owners.span_of(extent.place)?;
        let span = self.spans.get_mut(&first).filter(|span| span.has(extent))?;
        Some((first, span))
    }

    /// Moves a span among those with much room.
    fn set_roomy(&mut self, first: u32, (before, after): (u8, u8)) {
        if before == after {
            return;
        }
        self.roomy.remove(&(before, first));
        if after >= ROOMY_EIGHTHS {
            self.roomy.insert((after, first));
        }
    }

    /// The emptiest span of those with a quarter free, to an eighth.
    pub(super) fn emptiest(&self) -> Option<u32> {
        self.roomy.last().filter(|(eighths, _)| *eighths >= TAKEN_OVER_EIGHTHS).map(|(_, first)| *first)
    }

    /// The emptiest span, to an eighth, of those with so many blocks and not in `tried`: how many
    /// eighths are free, and which it is.
    pub(super) fn emptiest_of(&self, blocks: u32, tried: &[u32]) -> Option<(u8, u32)> {
        let untried = self.roomy.iter().rev().filter(|(_, first)| !tried.contains(first));
        let is_long = |first: &u32| self.spans.get(first).is_some_and(|span| span.blocks() >= blocks);
        untried.copied().find(|(_, first)| is_long(first))
    }

    /// Of each span of one segment how many blocks are not free.
    pub(super) fn live_blocks_of_segments(&self) -> impl Iterator<Item = (u32, u64)> {
        let of_one = self.spans.iter().filter(|(_, span)| span.segments == 1);
        of_one.map(|(first, span)| (*first, u64::from(span.blocks() - span.free_blocks())))
    }

    /// How many spans wait to be merged.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Takes the next span out of those that wait to be merged.
    pub(super) fn next_queued(&mut self) -> Option<u32> {
        let next = self.queue.range(self.next_merge..).next().or_else(|| self.queue.first()).copied()?;
        self.next_merge = next + 1;
        self.queue.remove(&next);
        Some(next)
    }

    pub(super) fn is_queued(&self, first: u32) -> bool {
        self.queue.contains(&first)
    }

    /// Makes of neighbours one extent each, as the medium has them now.
    pub(super) fn join(&mut self, first: u32, joins: &[Join], owners: &Owners) {
        let Some(span) = self.spans.get_mut(&first) else { return };
        let before = span.extents();
        for join in joins {
            span.join(*join);
            self.lists.push(Extent { place: join.first.place, blocks: join.blocks });
        }
        self.extents -= (before - span.extents()) as usize;
        self.prune(owners);
    }

    /// Rids the lists of void entries when these are more than the others: a constant share of work
    /// for each entry that was pushed, and memory for live ones only.
    fn prune(&mut self, owners: &Owners) {
        if self.lists.entries <= 2 * self.extents + VOID_MAX {
            return;
        }
        let spans = &self.spans;
        self.lists.prune(|extent| {
            let first = owners.span_of(extent.place).map(|(first, _)| first);
            first.and_then(|first| spans.get(&first)).is_some_and(|span| span.has(extent))
        });
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> (usize, usize) {
        (self.lists.entries, self.extents)
    }
}
