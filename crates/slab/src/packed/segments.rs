//! Segments in memory: which are open, how much of each is alive, and which one to clean.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use stratakv_base::limits::PAGE_BYTES;

use super::addr::RecordAddress;
use super::batch::Stream;
use super::inline_bytes;

/// First bit of the code of a tombstone's length, where a checkpoint has it: above an offset in a
/// segment of 1 MiB.
const TOMBSTONE_CODE: u32 = 17;
/// So much may the rounded length of an address reach over its segment's end.
const RECORD_ADDRESS_EXCESS: u64 = 4096;

/// A segment that could not be cleaned so often is left alone.
const FAILURES_MAX: u8 = 4;

/// What becomes of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// No log: free, waiting to be, or used by blobs.
    #[default]
    Free,
    /// Its new generation is being written.
    Preparing,
    /// Empty.
    Ready,
    Open,
    Sealed,
    /// It belongs to a checkpoint.
    Checkpoint,
}

/// One segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segment {
    pub(crate) state: State,
    pub(crate) generation: u64,
    /// Bytes of records that are alive or being written.
    pub(crate) live: u32,
    /// Of them, tombstones.
    pub(crate) tombstones: u32,
    /// Pages in use.
    pub(crate) end: u32,
    /// Batches being written.
    pub(crate) in_flight: u32,
    /// Records being moved away.
    pub(crate) moving: u32,
    /// Times it could not be cleaned.
    pub(crate) failures: u8,
    /// Not cleaned again before this group is shown.
    pub(crate) not_before: u64,
}

/// The segments of a volume.
#[derive(Debug)]
pub(crate) struct Segments {
    pub(crate) pages: u32,
    all: Vec<Segment>,
    pub(crate) ready: VecDeque<u32>,
    pub(crate) preparing: u32,
    open: [Option<u32>; 2],
    /// Segments that are not [`State::Free`].
    used: u32,
    live: u64,
    /// Of it, copies that are being written: their originals count too.
    moving: u64,
    tombstones: u64,
    /// Records that died in a segment which had not so much alive.
    pub(crate) miscounted: u64,
    /// Tombstones that count as live, by offset, with the code of their length. One that is moved
    /// or dropped, or that recovery was not shown, lies there still and is none of these.
    live_tombstones: BTreeMap<u64, u16>,
    /// By generation, the segments that are logs on the medium, given back or not.
    pub(crate) on_medium: BTreeSet<(u64, u32)>,
}

impl Segments {
    pub(crate) fn new(pages: u32) -> Segments {
        Segments {
            pages,
            all: Vec::new(),
            ready: VecDeque::new(),
            preparing: 0,
            open: [None; 2],
            used: 0,
            live: 0,
            moving: 0,
            tombstones: 0,
            miscounted: 0,
            live_tombstones: BTreeMap::new(),
            on_medium: BTreeSet::new(),
        }
    }

    pub(crate) fn extend(&mut self, total_pages: u32) {
        let count = (total_pages / self.pages) as usize;
        self.all.resize(count.max(self.all.len()), Segment::default());
    }

    pub(crate) fn footprint_bytes(&self) -> usize {
        self.all.capacity() * size_of::<Segment>() + (self.on_medium.len() + self.live_tombstones.len()) * 24
    }

    pub(crate) fn of(&self, addr: RecordAddress) -> u32 {
        (addr.at / (u64::from(self.pages) * PAGE_BYTES as u64)) as u32
    }

    pub(crate) fn get(&self, number: u32) -> Segment {
        self.all.get(number as usize).copied().unwrap_or_default()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Segment> {
        self.all.get_mut(number as usize)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        (0u32..).zip(&self.all)
    }

    /// Generation of the segment that holds an address.
    pub(crate) fn generation(&self, addr: RecordAddress) -> u64 {
        self.get(self.of(addr)).generation
    }

    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Bytes of records that are alive or being written, those that are being moved once.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live.saturating_sub(self.moving)
    }

    /// A copy of the record at `from` is appended at `to`.
    pub(crate) fn begin_move(&mut self, from: RecordAddress, to: RecordAddress, tombstone: bool) {
        self.add_live(to, tombstone);
        self.moving += u64::from(to.bytes());
        let number = self.of(from);
        if let Some(segment) = self.get_mut(number) {
            segment.moving += 1;
        }
    }

    /// The copy is shown, or not any more.
    pub(crate) fn end_move(&mut self, from: RecordAddress, to: RecordAddress) {
        self.moving -= u64::from(to.bytes());
        let number = self.of(from);
        if let Some(segment) = self.get_mut(number) {
            segment.moving -= 1;
        }
    }

    pub(crate) fn tombstone_bytes(&self) -> u64 {
        self.tombstones
    }

    /// Bytes of a segment.
    pub(crate) fn bytes(&self) -> u32 {
        self.pages * PAGE_BYTES as u32
    }

    /// Bytes of records that a segment takes in any case.
    pub(crate) fn payload_bytes(&self) -> u64 {
        let bytes = self.bytes() as usize;
        (bytes - bytes / 64 - inline_bytes(self.pages)) as u64
    }

    pub(crate) fn set_state(&mut self, number: u32, state: State) {
        let Some(segment) = self.all.get_mut(number as usize) else { return };
        self.used += u32::from(state != State::Free);
        self.used -= u32::from(segment.state != State::Free);
        self.preparing += u32::from(state == State::Preparing);
        self.preparing -= u32::from(segment.state == State::Preparing);
        segment.state = state;
    }

    /// The open segment of a stream, and its next page.
    pub(crate) fn open(&self, stream: Stream) -> Option<(u32, u32)> {
        let number = self.open[stream as usize]?;
        Some((number, self.get(number).end))
    }

    /// Makes `number` the open segment of a stream.
    pub(crate) fn set_open(&mut self, stream: Stream, number: u32) {
        self.open[stream as usize] = Some(number);
        self.set_state(number, State::Open);
    }

    /// Closes the open segment of a stream; its number.
    pub(crate) fn close(&mut self, stream: Stream) -> Option<u32> {
        let number = self.open[stream as usize].take()?;
        self.set_state(number, State::Sealed);
        Some(number)
    }

    /// A record of `addr` is appended.
    pub(crate) fn add_live(&mut self, addr: RecordAddress, tombstone: bool) {
        let number = self.of(addr);
        let Some(segment) = self.all.get_mut(number as usize) else { return };
        segment.live += addr.bytes();
        self.live += u64::from(addr.bytes());
        if tombstone {
            segment.tombstones += addr.bytes();
            self.tombstones += u64::from(addr.bytes());
            self.live_tombstones.insert(addr.at, addr.code());
        }
    }

    /// A record is dead; its segment.
    pub(crate) fn remove_live(&mut self, addr: RecordAddress, tombstone: bool) -> u32 {
        let number = self.of(addr);
        let Some(segment) = self.all.get_mut(number as usize) else { return number };
        // Only where a disk lied, at recovery or to the cleaner. `check` tells; in an honest world
        // it is a defect.
        self.miscounted += u64::from(segment.live < addr.bytes());
        segment.live = segment.live.saturating_sub(addr.bytes());
        self.live = self.live.saturating_sub(u64::from(addr.bytes()));
        if tombstone {
            self.live_tombstones.remove(&addr.at);
            segment.tombstones = segment.tombstones.saturating_sub(addr.bytes());
            self.tombstones = self.tombstones.saturating_sub(u64::from(addr.bytes()));
        }
        number
    }

    /// Tombstones of a segment that count, as a checkpoint writes them down: where they begin, in
    /// units of 8 bytes, and from bit 17 on the code of their length.
    pub(crate) fn tombstones_of(&self, number: u32) -> Vec<u32> {
        let from = u64::from(number) * u64::from(self.bytes());
        let range = self.live_tombstones.range(from..from + u64::from(self.bytes()));
        range.map(|(at, code)| ((at - from) / 8) as u32 | u32::from(*code) << TOMBSTONE_CODE).collect()
    }

    /// A tombstone as [`Segments::tombstones_of`] wrote it, if it can be one.
    pub(crate) fn written_tombstone(&self, number: u32, written: u32) -> Option<RecordAddress> {
        let offset = u64::from(written & ((1 << TOMBSTONE_CODE) - 1)) * 8;
        let addr =
            RecordAddress::coded(u64::from(number) * u64::from(self.bytes()) + offset, written >> TOMBSTONE_CODE)?;
        (offset + u64::from(addr.bytes()) <= u64::from(self.bytes()) + RECORD_ADDRESS_EXCESS).then_some(addr)
    }

    /// Whether the tombstone at `addr` counts as live.
    pub(crate) fn counts(&self, addr: RecordAddress) -> bool {
        self.live_tombstones.contains_key(&addr.at)
    }

    /// A segment is opened: what lay there is gone.
    pub(crate) fn reset(&mut self, number: u32, generation: u64) {
        if let Some(segment) = self.all.get_mut(number as usize) {
            debug_assert_eq!((segment.live, segment.in_flight, segment.moving), (0, 0, 0));
            debug_assert!(segment.tombstones == 0 || self.miscounted > 0, "{segment:?}");
            let (state, left) = (segment.state, std::mem::take(&mut segment.tombstones));
            *segment = Segment { state, generation, ..Segment::default() };
            if left > 0 {
                // A disk lied: what it made of the sums ends here.
                self.tombstones = self.tombstones.saturating_sub(u64::from(left));
                let from = u64::from(number) * u64::from(self.bytes());
                let end = from + u64::from(self.bytes());
                self.live_tombstones.retain(|at, _| !(from..end).contains(at));
            }
        }
    }

    /// Whether a segment holds nothing alive and nothing will come.
    pub(crate) fn is_dead(&self, number: u32) -> bool {
        let segment = self.get(number);
        segment.state == State::Sealed && segment.live == 0 && segment.in_flight == 0 && segment.moving == 0
    }

    /// The lowest generation of a log on the medium, but for `own`.
    pub(crate) fn oldest_but(&self, own: u32) -> u64 {
        let others = self.on_medium.iter().find(|(_, number)| *number != own);
        others.map_or(u64::MAX, |(generation, _)| *generation)
    }

    /// The table on the medium says from now on that the segment is a log of this generation, or
    /// none.
    pub(crate) fn set_on_medium(&mut self, number: u32, before: Option<u64>, now: Option<u64>) {
        if let Some(before) = before {
            self.on_medium.remove(&(before, number));
        }
        if let Some(now) = now {
            self.on_medium.insert((now, number));
        }
    }

    fn can_be_cleaned(segment: &Segment, applied: u64) -> bool {
        segment.state == State::Sealed
            && segment.in_flight == 0
            && segment.moving == 0
            && segment.not_before <= applied
            && segment.failures < FAILURES_MAX
    }

    /// The segment that gives most for what it costs, when group `applied` is shown; a fully live
    /// one gives nothing.
    pub(crate) fn emptiest(&self, applied: u64) -> Option<u32> {
        let most = self.payload_bytes();
        let gives = |segment: &Segment| Self::can_be_cleaned(segment, applied) && u64::from(segment.live) < most;
        let worth = self.iter().filter(|(_, segment)| gives(segment));
        worth.min_by_key(|(_, segment)| (segment.failures, segment.live)).map(|(number, _)| number)
    }

    /// The oldest sealed segment.
    pub(crate) fn oldest(&self, applied: u64) -> Option<u32> {
        let (_, number) = self.on_medium.iter().find(|(generation, number)| {
            let segment = self.get(*number);
            segment.generation == *generation && Self::can_be_cleaned(&segment, applied) && segment.failures == 0
        })?;
        Some(*number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by `sim --placement packed --seed 305248`: the bytes of a tombstone that recovery was
    /// not shown (a stale read) were taken from those of another one in its segment.
    #[test]
    fn a_tombstone_that_was_never_counted_does_not_die_for_another() {
        let mut segments = Segments::new(4);
        segments.extend(8);
        segments.set_state(1, State::Sealed);
        let (counted, unseen) = (RecordAddress::new(5 * 4096, 40), RecordAddress::new(5 * 4096 + 40, 40));
        segments.add_live(counted, true);
        assert!(segments.counts(counted) && !segments.counts(unseen));
        let written = segments.tombstones_of(1);
        assert_eq!(written.iter().map(|one| segments.written_tombstone(1, *one)).collect::<Vec<_>>(), [Some(counted)]);
        assert_eq!(segments.written_tombstone(1, u32::MAX), None);
        segments.remove_live(counted, true);
        assert!(!segments.counts(counted));
        assert_eq!((segments.live_bytes(), segments.tombstone_bytes()), (0, 0));
    }
}
