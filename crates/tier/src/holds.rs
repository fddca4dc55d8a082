//! [`Holds`]: long items of which slices are being taken.
//!
//! A hold keeps what checking needs, and pins its segment until the hold ends. It owns the rule
//! when that is: nobody tells, so a few are looked at in each tick. `slices.rs` calls it, and takes
//! the pins back.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use stratakv_base::Mono;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_engine::Hold;

use crate::fetch::Fetched;
use crate::index::{Loc, Tag};
use crate::item::Header;
use crate::slices::Want;

/// A segment that is to make room waits for a hold until nothing was asked for by it for so long,
const HOLD_NS: u64 = 2_000_000_000;
/// and for all of them so long at most.
const HOLDS_NS_MAX: u64 = 30_000_000_000;
/// Holds that a tick looks at, whether they are over: nobody tells.
const HOLDS_PER_TICK: usize = 32;

/// What a hold keeps.
#[derive(Debug)]
struct SegmentPin {
    hold: Hold,
    tag: Tag,
    place: Loc,
    /// First page of its segment, which it pins.
    segment: u64,
    header: Header,
    /// Checksums of the slices, as they lie on the volume.
    sums: Arc<[u8]>,
    /// When something was asked for by it last.
    used: Mono,
}

/// The pages of a held item that are to be read.
#[derive(Debug)]
pub(crate) struct HeldPages {
    pub(crate) want: Want,
    /// First page of the segment they lie in.
    pub(crate) segment: u64,
    pub(crate) page: u64,
    pub(crate) pages: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    pins: BTreeMap<u64, SegmentPin>,
    last: u64,
    /// The next one to be looked at, whether it is over.
    hand: u64,
}

impl Holds {
    pub(crate) fn is_empty(&self) -> bool {
        self.pins.is_empty()
    }

    /// Keeps an item whose segment the caller has pinned.
    pub(crate) fn add(&mut self, tag: Tag, place: Loc, segment: u64, item: &Fetched, now: Mono) -> Hold {
        self.last += 1;
        let hold = Hold::new(self.last);
        let (header, sums) = (item.header, item.sums().into());
        self.pins.insert(self.last, SegmentPin { hold: hold.clone(), tag, place, segment, header, sums, used: now });
        hold
    }

    /// What is to be read for this part of the value. `None`: the hold is gone, or there is no such
    /// part.
    pub(crate) fn pages_of(&mut self, hold: u64, start: u64, len: u32, now: Mono) -> Option<HeldPages> {
        let held = self.pins.get_mut(&hold)?;
        held.used = now;
        let all = u64::from(held.header.value_bytes);
        let range: Range<usize> = start.min(all) as usize..(start.min(all) + u64::from(len)).min(all) as usize;
        let mut touched = held.header.slices(range.clone()).map(|(_, slice)| slice);
        let first = touched.next()?;
        let end = touched.last().map_or(first.end, |last| last.end);
        let value_at = held.header.value_at();
        let (from, to) = ((value_at + first.start) / PAGE_BYTES, (value_at + end).div_ceil(PAGE_BYTES));
        let want = Want { tag: held.tag, place: held.place, header: held.header, sums: Arc::clone(&held.sums), range };
        let page = held.place.address() / PAGE_BYTES as u64 + from as u64;
        Some(HeldPages { want, segment: held.segment, page, pages: (to - from) as u64 })
    }

    /// Ends all of them: the segments that they pinned.
    pub(crate) fn end_all(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.pins).into_values().map(|held| held.segment).collect()
    }

    /// Ends some of those that are over: the segments that they pinned. `waits`: the segment that
    /// is to make room, and since when it waits for its readers.
    pub(crate) fn end_some(&mut self, waits: Option<(u64, Mono)>, now: Mono) -> Vec<u64> {
        let is_past = |since: Mono, ns: u64| since.0 + ns <= now.0;
        let is_due = |held: &SegmentPin, since: Mono| is_past(held.used, HOLD_NS) || is_past(since, HOLDS_NS_MAX);
        let is_over = |held: &SegmentPin| {
            held.hold.is_over() || waits.is_some_and(|(page, since)| held.segment == page && is_due(held, since))
        };
        let looked_at = self.pins.range(self.hand..).chain(self.pins.range(..self.hand));
        let looked_at: Vec<_> = looked_at.take(HOLDS_PER_TICK).map(|(id, held)| (*id, is_over(held))).collect();
        self.hand = looked_at.last().map_or(0, |(id, _)| id + 1);
        let ended = looked_at.into_iter().filter(|(_, is_over)| *is_over);
        ended.filter_map(|(id, _)| self.pins.remove(&id)).map(|held| held.segment).collect()
    }
}

#[cfg(test)]
mod tests {
    use stratakv_base::Expiry;

    use super::*;

    fn item() -> Fetched {
        let header = Header {
            checksum: 0,
            key_bytes: 4,
            value_bytes: 100,
            flags: 0,
            expiry: Expiry::NEVER,
            version: 1,
            has_ssd_address: false,
            slice_shift: 0,
        };
        Fetched::new(header, Vec::new(), 0, 0)
    }

    #[test]
    fn a_hold_ends_when_its_reader_does_or_when_its_segment_has_waited() {
        let mut holds = Holds::default();
        let (tag, place) = (Tag::from_bits(1), Loc::volume(40 * PAGE_BYTES as u64, 1));
        let kept: Vec<Hold> = (0..3).map(|segment| holds.add(tag, place, segment, &item(), Mono(0))).collect();
        assert_eq!(holds.end_some(None, Mono(u64::MAX / 2)), [0; 0], "without need a hold lasts");
        drop(kept.into_iter().next());
        assert_eq!(holds.end_some(None, Mono(1)), [0, 1, 2]);
        let _kept: Vec<Hold> = (0..3).map(|segment| holds.add(tag, place, segment, &item(), Mono(0))).collect();
        assert_eq!(holds.end_some(Some((1, Mono(1))), Mono(HOLD_NS - 1)), [0; 0]);
        assert_eq!(holds.end_some(Some((1, Mono(1))), Mono(HOLD_NS)), [1], "the one that is in the way");
        assert_eq!((holds.end_all(), holds.is_empty()), (vec![0, 2], true));
    }
}
