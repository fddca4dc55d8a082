//! [`Segments`]: all segments in DRAM, and the queues in which they wait to leave.
//!
//! It owns the slots, the open segment of each stream and class of expiry, the queues small and
//! main, and the sums over all of them. A segment is open, in one queue, on its way to the volume,
//! or taken out by whoever takes it apart. `memory.rs` and `rewrite.rs` decide what leaves.

use std::collections::VecDeque;

use stratakv_base::Wall;
use stratakv_device::Class;

use crate::index::Loc;
use crate::item::Header;
use crate::segment::{Segment, Stream, TTL_CLASSES};

/// The small queue has one of so many bytes.
const SMALL_SHARE: usize = 5;
/// Segments of each queue that are looked at for a worn one.
pub(crate) const LOOKED_AT_MAX: usize = 8;

/// What segments come to.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    bytes: usize,
    live_bytes: usize,
    /// Of the small queue's segments.
    small_bytes: usize,
}

impl Totals {
    fn of(segment: &Segment) -> Totals {
        let bytes = segment.footprint_bytes();
        let small_bytes = if segment.stream == Stream::Small { bytes } else { 0 };
        Totals { bytes, live_bytes: segment.live_bytes(), small_bytes }
    }

    fn add(&mut self, more: Totals) {
        self.bytes += more.bytes;
        self.live_bytes += more.live_bytes;
        self.small_bytes += more.small_bytes;
    }

    fn subtract(&mut self, less: Totals) {
        self.bytes -= less.bytes;
        self.live_bytes -= less.live_bytes;
        self.small_bytes -= less.small_bytes;
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Segments {
    /// By slot: a place's first half.
    slots: Vec<Option<Segment>>,
    free: Vec<u32>,
    totals: Totals,
    /// Being filled: small and main, by class of expiry.
    open: [[Option<u32>; TTL_CLASSES]; 2],
    /// Being filled, for the volume.
    outgoing: Option<u32>,
    /// Sealed, the oldest first.
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    /// Of these two, segments whose items were all superseded.
    emptied: usize,
    last_id: u64,
    /// The slot that was looked at last for expired segments.
    expiry_hand: usize,
}

impl Segments {
    /// None. They get names from behind this one.
    pub(crate) fn new(last_id: u64) -> Segments {
        Segments {
            slots: Vec::new(),
            free: Vec::new(),
            totals: Totals::default(),
            open: [[None; TTL_CLASSES]; 2],
            outgoing: None,
            small: VecDeque::new(),
            main: VecDeque::new(),
            emptied: 0,
            last_id,
            expiry_hand: 0,
        }
    }

    fn insert(&mut self, segment: Segment) -> u32 {
        self.totals.add(Totals::of(&segment));
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(segment);
        slot
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Segment> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// Changes a segment; the totals follow.
    pub(crate) fn change<T>(&mut self, slot: u32, change: impl FnOnce(&mut Segment) -> T) -> Option<T> {
        let segment = self.slots.get_mut(slot as usize)?.as_mut()?;
        self.totals.subtract(Totals::of(segment));
        let result = change(segment);
        self.totals.add(Totals::of(segment));
        Some(result)
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<Segment> {
        let segment = self.take(slot)?;
        self.free.push(slot);
        Some(segment)
    }

    /// Takes a segment out; its slot stays its own until [`Segments::give_back`] or
    /// [`Segments::put_back`].
    pub(crate) fn take(&mut self, slot: u32) -> Option<Segment> {
        let segment = self.slots.get_mut(slot as usize)?.take()?;
        self.totals.subtract(Totals::of(&segment));
        Some(segment)
    }

    /// The slot of a segment that was taken out is free.
    pub(crate) fn give_back(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// A segment that was taken out is there again.
    pub(crate) fn put_back(&mut self, slot: u32, segment: Segment) {
        self.totals.add(Totals::of(&segment));
        self.slots[slot as usize] = Some(segment);
    }

    /// Bytes of blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.totals.bytes
    }

    /// Bytes of items that nothing has superseded.
    pub(crate) fn live_bytes(&self) -> usize {
        self.totals.live_bytes
    }

    /// Bytes of blocks of the small queue's segments.
    pub(crate) fn small_bytes(&self) -> usize {
        self.totals.small_bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The item at a place, if it lies in DRAM.
    pub(crate) fn item(&self, loc: Loc) -> Option<(&Segment, usize, Header)> {
        let (slot, offset) = loc.in_dram()?;
        let segment = self.get(slot)?;
        Some((segment, offset, segment.header(offset)?))
    }

    /// Begins a segment that takes so many bytes.
    pub(crate) fn create(&mut self, stream: Stream, class: Class, limit_bytes: usize) -> u32 {
        self.last_id += 1;
        self.insert(Segment::new(self.last_id, stream, class, limit_bytes))
    }

    /// The segment of a stream that items of this class of expiry are appended to.
    pub(crate) fn open(&self, stream: Stream, class: usize) -> Option<u32> {
        match stream {
            Stream::Small => self.open[0][class],
            Stream::Main => self.open[1][class],
            Stream::Outgoing => self.outgoing,
        }
    }

    pub(crate) fn set_open(&mut self, stream: Stream, class: usize, slot: u32) {
        match stream {
            Stream::Small => self.open[0][class] = Some(slot),
            Stream::Main => self.open[1][class] = Some(slot),
            Stream::Outgoing => self.outgoing = Some(slot),
        }
    }

    fn forget_open(&mut self, slot: u32) {
        self.open.iter_mut().flatten().filter(|open| **open == Some(slot)).for_each(|open| *open = None);
        self.outgoing = self.outgoing.filter(|open| *open != slot);
    }

    /// Segments that are being filled, the outgoing one aside.
    pub(crate) fn open_ones(&self) -> usize {
        self.open.iter().flatten().flatten().count()
    }

    /// The one that is filled with what goes to the volume next.
    pub(crate) fn outgoing(&self) -> Option<u32> {
        self.outgoing
    }

    /// Segments in queues.
    pub(crate) fn queued(&self) -> usize {
        self.small.len() + self.main.len()
    }

    /// A segment that no block was free for: without items it would never be found again.
    pub(crate) fn remove_unused(&mut self, slot: u32) {
        if self.get(slot).is_some_and(|segment| segment.items == 0) {
            self.remove(slot);
            self.forget_open(slot);
        }
    }

    /// Nothing more is appended to a segment: it joins its queue. True: it goes to the volume.
    pub(crate) fn seal(&mut self, slot: u32) -> bool {
        self.forget_open(slot);
        self.change(slot, Segment::seal);
        let stream = self.get(slot).map(|segment| segment.stream);
        stream.is_some_and(|stream| self.queue(stream).map(|queue| queue.push_back(slot)).is_none())
    }

    fn queue(&mut self, stream: Stream) -> Option<&mut VecDeque<u32>> {
        match stream {
            Stream::Small => Some(&mut self.small),
            Stream::Main => Some(&mut self.main),
            Stream::Outgoing => None,
        }
    }

    /// Seals what is being filled, the outgoing segment aside. Whether there was anything.
    pub(crate) fn seal_open(&mut self) -> bool {
        let open: Vec<u32> = self.open.iter().flatten().copied().flatten().collect();
        open.iter().for_each(|slot| _ = self.seal(*slot));
        !open.is_empty()
    }

    /// The segment that leaves next, where all of them may have so many bytes: out of its queue.
    pub(crate) fn victim(&mut self, budget: usize) -> Option<u32> {
        let is_large = self.small_bytes() > budget / SMALL_SHARE;
        if self.main.is_empty() || (!self.small.is_empty() && is_large) {
            return self.small.pop_front();
        }
        self.main.pop_front()
    }

    /// A worn segment among the oldest: out of its queue. Others go to the back.
    pub(crate) fn worn(&mut self) -> Option<u32> {
        for _ in 0..LOOKED_AT_MAX {
            for small in [true, false] {
                let queue = if small { &mut self.small } else { &mut self.main };
                let Some(slot) = queue.pop_front() else { continue };
                if self.get(slot).is_none_or(Segment::is_worn) {
                    return Some(slot);
                }
                let queue = if small { &mut self.small } else { &mut self.main };
                queue.push_back(slot);
            }
        }
        None
    }

    /// Takes one out that left its queue.
    pub(crate) fn take_victim(&mut self, slot: u32) -> Option<Segment> {
        let source = self.take(slot)?;
        self.emptied -= usize::from(source.used_bytes() == 0);
        Some(source)
    }

    /// One that was taken out is there again, behind all others of its queue.
    pub(crate) fn queue_again(&mut self, slot: u32, source: Segment) {
        let queue = if source.stream == Stream::Small { &mut self.small } else { &mut self.main };
        queue.push_back(slot);
        self.put_back(slot, source);
    }

    /// An item was superseded. `collects`: a sealed segment whose last one it was gives its blocks
    /// back at once.
    pub(crate) fn supersede(&mut self, slot: u32, header: &Header, collects: bool) {
        let is_open = self.open.iter().flatten().any(|open| *open == Some(slot));
        let done = self.change(slot, |segment| {
            let gone = segment.supersede(header) && collects && !is_open && segment.stream != Stream::Outgoing;
            if gone {
                segment.empty();
            }
            gone
        });
        if done == Some(true) {
            self.emptied += 1;
            self.forget_emptied();
        }
    }

    /// Empty segments leave their queues once those are half empty: each such walk is paid for by
    /// what it removes.
    fn forget_emptied(&mut self) {
        if self.emptied <= 8.max(self.queued() / 2) {
            return;
        }
        let (mut small, mut main) = (std::mem::take(&mut self.small), std::mem::take(&mut self.main));
        let mut is_there = |slot: &u32| {
            let there = self.get(*slot).is_some_and(|segment| segment.used_bytes() > 0);
            if !there {
                self.remove(*slot);
            }
            there
        };
        small.retain(&mut is_there);
        main.retain(&mut is_there);
        (self.small, self.main, self.emptied) = (small, main, 0);
    }

    /// Looks at one segment, the next one: takes it out if all of it has expired.
    pub(crate) fn take_expired(&mut self, now: Wall) -> Option<(u32, Segment)> {
        self.expiry_hand = (self.expiry_hand + 1) % self.slots.len().max(1);
        let slot = self.expiry_hand as u32;
        self.get(slot).filter(|segment| segment.is_expired(now) && segment.stream != Stream::Outgoing)?;
        self.forget_open(slot);
        self.small.retain(|queued| *queued != slot);
        self.main.retain(|queued| *queued != slot);
        Some((slot, self.take(slot)?))
    }
}

#[cfg(test)]
mod tests {
    use stratakv_base::Expiry;

    use super::*;

    const HEADER: Header = Header {
        checksum: 0,
        key_bytes: 0,
        value_bytes: 0,
        flags: 0,
        expiry: Expiry::NEVER,
        version: 1,
        has_ssd_address: false,
        slice_shift: 0,
    };

    /// A sealed segment with one item.
    fn sealed(segments: &mut Segments, stream: Stream, pool: &stratakv_device::Pool) -> u32 {
        let slot = segments.create(stream, Class::Page, Class::Page.bytes());
        let block = pool.take(Class::Page).expect("a block");
        segments.change(slot, |segment| {
            segment.add_block(block);
            segment.append(&[0; 16], HEADER, std::iter::empty())
        });
        segments.seal(slot);
        slot
    }

    #[test]
    fn a_small_queue_beyond_its_share_leaves_first_and_what_was_read_last_stays() {
        let (pool, page) = (stratakv_device::Pool::new(2 << 20), Class::Page.bytes());
        let mut segments = Segments::new(0);
        let small: Vec<u32> = (0..2).map(|_| sealed(&mut segments, Stream::Small, &pool)).collect();
        let main = sealed(&mut segments, Stream::Main, &pool);
        assert_eq!(segments.victim(9 * page), Some(small[0]), "two of nine are beyond a fifth");
        segments.take_victim(small[0]).expect("it is there");
        segments.give_back(small[0]);
        assert_eq!(segments.victim(9 * page), Some(main));
        let source = segments.take_victim(main).expect("it is there");
        segments.queue_again(main, source);
        assert_eq!((segments.queued(), segments.victim(9 * page)), (2, Some(main)));
    }

    #[test]
    fn an_empty_segment_gives_its_blocks_back_at_once_and_leaves_its_queue_with_others() {
        let pool = stratakv_device::Pool::new(2 << 20);
        let mut segments = Segments::new(0);
        let slots: Vec<u32> = (0..20).map(|_| sealed(&mut segments, Stream::Small, &pool)).collect();
        for (number, slot) in slots.iter().enumerate() {
            segments.supersede(*slot, &HEADER, true);
            assert_eq!(segments.bytes(), (19 - number) * Class::Page.bytes());
        }
        assert!(segments.len() < 20, "some of them are forgotten");
        assert_eq!(segments.len(), segments.queued(), "each segment is in one queue");
        while let Some(slot) = segments.victim(0) {
            segments.take_victim(slot).expect("it is there");
            segments.give_back(slot);
        }
        assert_eq!((segments.len(), segments.emptied), (0, 0));
    }
}
