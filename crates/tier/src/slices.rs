//! Long values are taken slice by slice: the first with the item's front, more of it by a hold on
//! its place.
//!
//! The front has the checksums of all slices, and is checked by the item's own; each slice is
//! checked before it is handed out. A hold pins the segment, so that what comes is the record that
//! was begun, whatever was written since. It does not last for ever: `holds.rs` says how long.

use std::ops::Range;
use std::sync::Arc;

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Mono, fault_point};
use stratakv_device::Block;
use stratakv_engine::{Effects, Hold, Record, Reply, Stage, Token, Value};

use crate::drops::DropReason;
use crate::fetch::{Fetch, Fetched, Wanted, in_one_piece, slices, value_of};
use crate::holds::HeldPages;
use crate::index::{Loc, Tag};
use crate::item::{self, HEADER_BYTES, Header};
use crate::tier::Tier;

/// What is read of it. It has what checking needs: the hold may be over by then.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) tag: Tag,
    pub(crate) place: Loc,
    pub(crate) header: Header,
    pub(crate) sums: Arc<[u8]>,
    /// Bytes of the value that were asked for.
    pub(crate) range: Range<usize>,
}

/// What the front of an item says.
enum Front {
    Sound(Fetched),
    /// Its slices are longer, as the cap on memory was higher when it was put: its first one ends
    /// after so many pages.
    Longer(u64),
    /// The item has no slices.
    Unsliced,
    Damaged,
}

impl Fetched {
    /// Checksums of its slices.
    pub(crate) fn sums(&self) -> Vec<u8> {
        let at = HEADER_BYTES + self.header.key_bytes as usize;
        self.slices(at, self.header.value_at() - at).flatten().copied().collect()
    }

    /// Whether all slices that are there are what their checksums say.
    pub(crate) fn has_sound_slices(&self) -> bool {
        let (sums, at) = (self.sums(), self.header.value_at());
        let mut there = self.header.slices(0..self.value_there);
        there.all(|(number, range)| {
            slice_of(&sums, number) == Some(item::slice_sum(number, self.slices(at + range.start, range.len())))
        })
    }
}

fn slice_of(sums: &[u8], number: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*sums.get(number * 4..)?.first_chunk()?))
}

impl Tier {
    /// Whether the item at this place may have a front to be read alone: it is long, and begins
    /// with a page.
    pub(crate) fn has_front(&self, loc: Loc) -> bool {
        let is_long = loc.pages() as usize * PAGE_BYTES > self.config.sliced_from();
        is_long && loc.address().is_multiple_of(PAGE_BYTES as u64)
    }

    /// Whether the front of the item at this place is read for those whom it will do.
    pub(crate) fn reads_front(&self, loc: Loc) -> bool {
        // What is saved moves soon, and a hold could not keep it there.
        self.has_front(loc) && self.volume.as_ref().is_some_and(|volume| volume.saving.is_none())
    }

    pub(crate) fn front_pages(&self) -> u64 {
        (1 << self.config.slice_shift()) / PAGE_BYTES as u64
    }

    /// A front came back, or not.
    pub(crate) fn front_read(
        &mut self,
        fetch: Fetch,
        tag: Tag,
        place: Loc,
        blocks: Vec<Arc<Block>>,
        effects: &mut Effects,
    ) {
        let front = if fetch.failed { Front::Damaged } else { self.check_front(tag, place, &fetch, blocks) };
        match front {
            Front::Longer(pages) if pages <= self.cap.fetch_pages_max() => {
                self.fetch_front(tag, place, fetch.segment, pages, fetch.waiters);
            }
            Front::Longer(_) => self.give_up(&fetch, tag, place, DropReason::TooLong, effects),
            Front::Sound(item) => self.hand_out(&fetch, tag, place, Some(item), effects),
            Front::Damaged => self.hand_out(&fetch, tag, place, None, effects),
            Front::Unsliced => {
                let stored = self.volume.as_ref().and_then(|volume| volume.log.of(place.address())).copied();
                match stored.filter(|_| place.pages() <= self.cap.fetch_pages_max()) {
                    Some(stored) => self.fetch_whole(tag, place, &stored, fetch.waiters),
                    None => self.give_up(&fetch, tag, place, DropReason::TooLong, effects),
                }
            }
        }
    }

    /// Has so many pages of a long item read for those who have pinned its segment.
    pub(crate) fn fetch_front(&mut self, tag: Tag, place: Loc, segment: u64, pages: u64, waiters: Vec<u64>) {
        let page = place.address() / PAGE_BYTES as u64;
        self.fetches.begin(Wanted::Front(tag, place), segment, page, pages, waiters);
    }

    fn check_front(&self, tag: Tag, place: Loc, fetch: &Fetch, blocks: Vec<Arc<Block>>) -> Front {
        let stored = self.volume.as_ref().and_then(|volume| volume.log.of(place.address()));
        let Some(stored) = stored.filter(|stored| stored.page == fetch.segment) else { return Front::Damaged };
        let Some(offset) = place.address().checked_sub(stored.data_at()) else { return Front::Damaged };
        let head = in_one_piece(slices(&blocks, 0, HEADER_BYTES));
        let Some(header) = Header::decode(&head) else { return Front::Damaged };
        let there = blocks.iter().map(|block| block.len()).sum::<usize>().min(fetch.pages() as usize * PAGE_BYTES);
        let value_at = header.value_at();
        // Whole slices alone are of use.
        let mut slices = header.slices(0..header.value_bytes as usize).map(|(_, range)| range).peekable();
        let Some(first) = slices.peek().cloned().filter(|_| !header.has_ssd_address) else { return Front::Unsliced };
        let Some(last) = slices.take_while(|range| value_at + range.end <= there).last() else {
            // Whose first slice lies beyond the item is no header.
            let pages = (value_at + first.end).div_ceil(PAGE_BYTES) as u64;
            return if pages <= place.pages() { Front::Longer(pages) } else { Front::Damaged };
        };
        let sum = item::head_sum(&head, &self.config.uuid, stored.id, offset as usize);
        drop(head);
        let item = Fetched::new(header, blocks, 0, last.end);
        let sum = header.fold(sum, item.slices(HEADER_BYTES, value_at - HEADER_BYTES));
        let is_it = {
            let key = in_one_piece(item.slices(HEADER_BYTES, header.key_bytes as usize));
            sum == header.checksum && Tag::of(&key) == tag
        };
        if is_it && item.has_sound_slices() { Front::Sound(item) } else { Front::Damaged }
    }

    /// Keeps an item of which the front was read, for somebody who will ask for more.
    pub(crate) fn hold(&mut self, tag: Tag, place: Loc, item: &Fetched) -> Option<Hold> {
        let volume = self.volume.as_mut()?;
        let segment = volume.log.of(place.address())?.page;
        volume.log.get_mut(segment)?.pins += 1;
        Some(volume.holds.add(tag, place, segment, item, self.now.mono))
    }

    /// Has more read of what is held.
    pub(crate) fn begin_slices(&mut self, token: Token, hold: u64, start: u64, len: u32, effects: &mut Effects) {
        let now = self.now.mono;
        let volume = self.volume.as_mut().filter(|volume| !volume.is_lost);
        let Some((volume, held)) =
            volume.and_then(|volume| volume.holds.pages_of(hold, start, len, now).map(|held| (volume, held)))
        else {
            return effects.reply(token, Reply::Record(None));
        };
        let HeldPages { want, segment, page, pages } = held;
        if let Some(stored) = volume.log.get_mut(segment) {
            stored.pins += 1;
        }
        effects.enter(token, Stage::Read);
        self.fetches.begin(Wanted::Slices(token, Arc::new(want)), segment, page, pages, Vec::new());
    }

    /// Slices came back: what was asked for, if all of them check. Else the record counts as lost.
    pub(crate) fn slices_read(
        &mut self,
        fetch: &Fetch,
        token: Token,
        want: &Want,
        blocks: &[Arc<Block>],
        effects: &mut Effects,
    ) {
        self.unpin(&[fetch.segment]);
        let value = if fetch.failed { None } else { want.value(blocks) };
        if value.is_none() {
            self.counters.note_unreadable(!fetch.failed);
            self.drop_unreadable(want.tag, want.place, DropReason::Unreadable);
        }
        let Header { flags, version, expiry, value_bytes, .. } = want.header;
        let record = |value| Record { value, value_bytes: value_bytes.into(), flags, version, expiry };
        effects.reply(token, Reply::Record(value.map(record)));
    }

    /// Lets go of what nobody takes any more; of what lies in the segment that makes room too, when
    /// it has waited long enough.
    pub(crate) fn release_holds(&mut self, effects: &mut Effects) {
        let (now, is_open) = (self.now.mono, self.ending.is_open());
        let Some(volume) = self.volume.as_mut().filter(|volume| !volume.holds.is_empty()) else { return };
        let waits = volume.log.oldest().and_then(|oldest| Some((oldest.page, volume.pinned_since()?)));
        let pins = if is_open { volume.holds.end_some(waits, now) } else { volume.holds.end_all() };
        let is_left = !volume.holds.is_empty();
        self.unpin(&pins);
        let Some((page, _)) = waits else { return };
        if pins.contains(&page) {
            effects.more();
        } else if is_left {
            // Nobody tells when a hold is over: it is looked for while somebody waits for that.
            effects.wake_at(Mono(self.now.mono.0 + crate::tier::RETRY_NS));
        }
    }
}

impl Want {
    /// The bytes that were asked for, if every slice of these blocks is what its checksum says.
    fn value(&self, blocks: &[Arc<Block>]) -> Option<Value> {
        let value_at = self.header.value_at();
        let mut touched = self.header.slices(self.range.clone()).peekable();
        // The first block begins with the page in which the first slice does.
        let skipped = (value_at + touched.peek()?.1.start) / PAGE_BYTES * PAGE_BYTES;
        let mut is_sound = touched.all(|(number, range)| {
            let bytes = slices(blocks, value_at + range.start - skipped, range.len());
            let is_whole = bytes.clone().map(<[u8]>::len).sum::<usize>() == range.len();
            is_whole && slice_of(&self.sums, number) == Some(item::slice_sum(number, bytes))
        });
        fault_point!("tier_later_slice_unverified", is_sound = true);
        is_sound.then(|| value_of(blocks, value_at + self.range.start - skipped, self.range.len()))
    }
}
