//! Reads from the volume: of an item's pages, or of a segment's head.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::HashMap;
use stratakv_base::fault_point;
use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_device::{Block, Class, IoFault};
use stratakv_engine::{Effects, Token, Value};

use crate::drops::DropReason;
use crate::index::{Loc, Tag};
use crate::item::{self, HEADER_BYTES, Header};
use crate::log::Stored;
use crate::segment::is_equal;
use crate::slices::Want;
use crate::spill::beyond_the_limit;
use crate::tier::{IoPurpose, Tier};

/// Who waits for a fetch instead of an operation: the recycler.
pub(crate) const RECYCLER: u64 = 0;
/// And the list that is being gathered.
pub(crate) const LISTER: u64 = u64::MAX;

/// An item as read and checked: whole, or its front.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) header: Header,
    blocks: Vec<Arc<Block>>,
    /// Its first byte, in the first block.
    start: usize,
    /// So much of the value is there.
    pub(crate) value_there: usize,
}

impl Fetched {
    pub(crate) fn new(header: Header, blocks: Vec<Arc<Block>>, start: usize, value_there: usize) -> Fetched {
        Fetched { header, blocks, start, value_there }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.value_there == self.header.value_bytes as usize
    }

    pub(crate) fn slices(&self, from: usize, len: usize) -> impl Iterator<Item = &[u8]> + Clone {
        slices(&self.blocks, self.start + from, len)
    }

    pub(crate) fn has_key(&self, key: &[u8]) -> bool {
        fault_point!("tier_recycled_segment_read_unverified", return true);
        let is_long_enough = self.header.key_bytes as usize == key.len();
        is_long_enough && is_equal(self.slices(HEADER_BYTES, key.len()), key)
    }

    /// Key, checksums and value.
    pub(crate) fn body(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.slices(HEADER_BYTES, Header { has_ssd_address: false, ..self.header }.body_bytes())
    }

    /// `len` bytes of the value from byte `start` on, where they were read to.
    pub(crate) fn value(&self, start: usize, len: usize) -> Value {
        value_of(&self.blocks, self.start + self.header.value_at() + start, len)
    }
}

/// `len` bytes from `from` on of blocks laid end to end, shared.
pub(crate) fn value_of(blocks: &[Arc<Block>], from: usize, len: usize) -> Value {
    let block_len = blocks.first().map_or(PAGE_BYTES, |block| block.len());
    let (first, last) = (from / block_len, (from + len).saturating_sub(1) / block_len);
    let blocks = blocks.get(first..=last).unwrap_or_default().to_vec();
    Value::Blocks { blocks, start: (from % block_len) as u32, len: len as u64 }
}

pub(crate) fn slices(blocks: &[Arc<Block>], from: usize, len: usize) -> impl Iterator<Item = &[u8]> + Clone {
    let block_len = blocks.first().map_or(PAGE_BYTES, |block| block.len());
    let end = from + len;
    let touched = (from / block_len..end.div_ceil(block_len)).filter_map(move |number| {
        let begin = number * block_len;
        blocks.get(number)?.get(from.max(begin) - begin..end.min(begin + block_len) - begin)
    });
    touched.filter(|slice| !slice.is_empty())
}

/// What is read.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    Item(Tag, Loc),
    /// Its first slice.
    Front(Tag, Loc),
    /// Slices of what this hold keeps.
    Slices(Token, Arc<Want>),
    /// Of the segment that is being recycled.
    Head,
    /// A whole segment of what was saved.
    Segment,
}

#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) wanted: Wanted,
    /// First page of the segment it lies in.
    pub(crate) segment: u64,
    page: u64,
    pages: u64,
    blocks: Vec<Option<Arc<Block>>>,
    left: usize,
    pub(crate) failed: bool,
    pub(crate) waiters: Vec<u64>,
}

impl Fetch {
    /// Pages that are read.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }
}

const CHUNK_PAGES: u64 = (SLICE_BYTES / PAGE_BYTES) as u64;

/// All reads of a shard.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    next: u64,
    running: HashMap<u64, Fetch>,
    of_place: HashMap<Loc, u64>,
    queue: VecDeque<(u64, usize)>,
    in_flight: u32,
    /// Requests so far.
    device_reads: u64,
    /// The segment of which reads come first.
    hastened: Option<u64>,
    /// How often the queue was put in order for one.
    pub(crate) sorted: u64,
}

impl Fetches {
    /// The longest of what is being read.
    pub(crate) fn longest_pages(&self) -> u64 {
        self.running.values().map(|fetch| fetch.pages).max().unwrap_or_default()
    }

    /// Reads that the device was given so far.
    pub(crate) fn device_reads(&self) -> u64 {
        self.device_reads
    }

    /// Whether something waits to be read.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// What is still to be read of a segment comes first, from now on. O(reads that wait) for each
    /// segment.
    fn hasten(&mut self, segment: Option<u64>) {
        if self.hastened == segment {
            return;
        }
        self.hastened = segment;
        let Some(segment) = segment else { return };
        self.sorted += 1;
        let is_of_it = |id: &u64| self.running.get(id).is_some_and(|fetch| fetch.segment == segment);
        let (mut first, others): (VecDeque<_>, VecDeque<_>) = self.queue.drain(..).partition(|(id, _)| is_of_it(id));
        first.extend(others);
        self.queue = first;
    }

    pub(crate) fn begin(&mut self, wanted: Wanted, segment: u64, page: u64, pages: u64, waiters: Vec<u64>) -> u64 {
        self.next += 1;
        let makes_room = waiters.contains(&RECYCLER) || self.hastened == Some(segment);
        let chunks = pages.div_ceil(CHUNK_PAGES) as usize;
        let blocks = (0..chunks).map(|_| None).collect();
        self.running
            .insert(self.next, Fetch { wanted, segment, page, pages, blocks, left: chunks, failed: false, waiters });
        if makes_room {
            // Those who wait for blocks may wait for the room that this makes.
            (0..chunks).rev().for_each(|chunk| self.queue.push_front((self.next, chunk)));
        } else {
            self.queue.extend((0..chunks).map(|chunk| (self.next, chunk)));
        }
        self.next
    }
}

impl Tier {
    /// Has an item read for somebody, or the front of a long one if that will do, and pins its
    /// segment: the pin. `None`: no segment is there.
    pub(crate) fn fetch_item(&mut self, tag: Tag, loc: Loc, waiter: u64, front_will_do: bool) -> Option<u64> {
        let volume = self.volume.as_ref().filter(|volume| !volume.is_lost)?;
        let stored = *volume.log.of(loc.address()).filter(|stored| stored.is_written && !stored.is_void)?;
        let in_slices = front_will_do && self.reads_front(loc);
        if !in_slices && loc.pages() > self.cap.fetch_pages_max() {
            // For good: who was told that it is not there must not find it under a higher cap.
            self.drop_unreadable(tag, loc.place(), DropReason::TooLong);
            return None;
        }
        let volume = self.volume.as_mut()?;
        volume.log.get_mut(stored.page)?.pins += 1;
        if in_slices {
            self.fetch_front(tag, loc.place(), stored.page, self.front_pages(), vec![waiter]);
        } else {
            self.fetch_whole(tag, loc.place(), &stored, vec![waiter]);
        }
        Some(stored.page)
    }

    /// Has all of an item read for those who have pinned its segment.
    pub(crate) fn fetch_whole(&mut self, tag: Tag, place: Loc, stored: &Stored, waiters: Vec<u64>) {
        if let Some(fetch) = self.fetches.of_place.get(&place).and_then(|id| self.fetches.running.get_mut(id)) {
            return fetch.waiters.extend(waiters);
        }
        let page = place.address() / PAGE_BYTES as u64;
        let pages = place.pages().min(stored.end() - page);
        let id = self.fetches.begin(Wanted::Item(tag, place), stored.page, page, pages, waiters);
        self.fetches.of_place.insert(place, id);
    }

    /// Has the head of a segment read for the recycler.
    pub(crate) fn fetch_head(&mut self, stored: &Stored) {
        self.fetches.begin(Wanted::Head, stored.page, stored.page, u64::from(stored.head_pages), vec![RECYCLER]);
    }

    /// Has all of a segment read that was saved.
    pub(crate) fn fetch_segment(&mut self, stored: &Stored) {
        self.fetches.begin(Wanted::Segment, stored.page, stored.page, stored.pages, vec![RECYCLER]);
    }

    pub(crate) fn unpin(&mut self, pins: &[u64]) {
        let Some(volume) = &mut self.volume else { return };
        for page in pins {
            if let Some(stored) = volume.log.get_mut(*page) {
                stored.pins = stored.pins.saturating_sub(1);
            }
        }
    }

    /// Reads nothing for those who have left that the device does not have yet. O(reads).
    pub(crate) fn give_up_reads(&mut self) {
        let mut queued = HashMap::<u64, usize>::default();
        self.fetches.queue.iter().for_each(|(id, _)| *queued.entry(*id).or_default() += 1);
        let has_left = |waiter: &u64| self.operations.is_cancelled(*waiter);
        let of_item = |fetch: &Fetch| matches!(fetch.wanted, Wanted::Item(..) | Wanted::Front(..));
        let is_unread = |id: &u64, fetch: &Fetch| queued.get(id) == Some(&fetch.blocks.len());
        let running = self.fetches.running.iter();
        let unwanted: Vec<u64> = running
            .filter(|(id, fetch)| of_item(fetch) && is_unread(id, fetch) && fetch.waiters.iter().all(has_left))
            .map(|(id, _)| *id)
            .collect();
        for id in &unwanted {
            let Some(fetch) = self.fetches.running.remove(id) else { continue };
            if let Wanted::Item(_, place) = fetch.wanted {
                self.fetches.of_place.remove(&place);
            }
            for waiter in fetch.waiters {
                self.operations.read_ended(waiter, None);
            }
        }
        // Their places in the queue stay: whoever takes one finds no fetch.
    }

    /// Hands reads to the device, as many as it should have.
    pub(crate) fn pump_reads(&mut self, effects: &mut Effects) {
        // A segment that only waits for its readers makes room when they are done.
        let awaited = self.volume.as_ref().and_then(|volume| volume.pinned_since().and(volume.log.oldest()));
        let awaited = awaited.map(|stored| stored.page);
        self.fetches.hasten(awaited);
        while self.fetches.in_flight < self.config.depth.max(1) {
            let Some((id, chunk)) = self.fetches.queue.pop_front() else { break };
            let Some(fetch) = self.fetches.running.get(&id) else { continue };
            let first = chunk as u64 * CHUNK_PAGES;
            let (page, pages) = (fetch.page + first, (fetch.pages - first).min(CHUNK_PAGES));
            let class = if fetch.pages == 1 { Class::Page } else { Class::Slice };
            let makes_room = fetch.waiters.contains(&RECYCLER) || awaited == Some(fetch.segment);
            let block = self.take_block(class, effects);
            let Some(block) = block.or_else(|| makes_room.then(|| beyond_the_limit(class, effects.pool())).flatten())
            else {
                self.fetches.queue.push_front((id, chunk));
                break;
            };
            self.fetches.in_flight += 1;
            self.fetches.device_reads += 1;
            let io = self.io.start(IoPurpose::Read(id, chunk));
            effects.read(io, page * PAGE_BYTES as u64, block, (pages as usize * PAGE_BYTES) as u32);
        }
    }

    /// A chunk came back.
    pub(crate) fn chunk_read(
        &mut self,
        id: u64,
        chunk: usize,
        block: Block,
        result: Result<(), IoFault>,
        effects: &mut Effects,
    ) {
        self.fetches.in_flight -= 1;
        let Some(fetch) = self.fetches.running.get_mut(&id) else { return };
        fetch.failed |= result.is_err();
        if let Some(place) = fetch.blocks.get_mut(chunk) {
            *place = Some(Arc::new(block));
        }
        fetch.left -= 1;
        if fetch.left > 0 {
            return;
        }
        let Some(mut fetch) = self.fetches.running.remove(&id) else { return };
        let blocks: Vec<Arc<Block>> = std::mem::take(&mut fetch.blocks).into_iter().flatten().collect();
        match fetch.wanted.clone() {
            Wanted::Front(tag, place) => self.front_read(fetch, tag, place, blocks, effects),
            Wanted::Slices(token, want) => self.slices_read(&fetch, token, &want, &blocks, effects),
            Wanted::Head => {
                self.counters.read_errors += u64::from(fetch.failed);
                self.head_read((!fetch.failed).then_some(blocks), effects);
            }
            Wanted::Segment => {
                self.counters.read_errors += u64::from(fetch.failed);
                self.segment_read(if fetch.failed { &[] } else { &blocks }, effects);
            }
            Wanted::Item(tag, place) => {
                self.fetches.of_place.remove(&place);
                let start = place.address() as usize % PAGE_BYTES;
                let item = if fetch.failed { None } else { self.check_item(tag, place, fetch.segment, blocks, start) };
                self.hand_out(&fetch, tag, place, item, effects);
            }
        }
    }

    /// Gives everybody who waited for it what was read.
    pub(crate) fn hand_out(
        &mut self,
        fetch: &Fetch,
        tag: Tag,
        place: Loc,
        item: Option<Fetched>,
        effects: &mut Effects,
    ) {
        let Some(item) = item else {
            self.counters.note_unreadable(!fetch.failed);
            return self.give_up(fetch, tag, place, DropReason::Unreadable, effects);
        };
        let item = Some(Arc::new(item));
        for waiter in &fetch.waiters {
            self.item_read(*waiter, fetch.segment, place, item.clone(), effects);
        }
    }

    /// It is a miss for everybody who waited for it.
    pub(crate) fn give_up(&mut self, fetch: &Fetch, tag: Tag, place: Loc, reason: DropReason, effects: &mut Effects) {
        self.drop_unreadable(tag, place, reason);
        for waiter in &fetch.waiters {
            self.item_read(*waiter, fetch.segment, place, None, effects);
        }
    }

    /// The item, if the bytes, from this one of the first block on, are that item of that segment.
    pub(crate) fn check_item(
        &self,
        tag: Tag,
        place: Loc,
        segment: u64,
        blocks: Vec<Arc<Block>>,
        start: usize,
    ) -> Option<Fetched> {
        let stored = self.volume.as_ref()?.log.of(place.address()).filter(|stored| stored.page == segment)?;
        let offset = place.address().checked_sub(stored.data_at());
        let head = in_one_piece(slices(&blocks, start, HEADER_BYTES));
        let header = Header::decode(&head)?;
        let sum = item::head_sum(&head, &self.config.uuid, stored.id, offset.unwrap_or_default() as usize);
        drop(head);
        let fetched = Fetched::new(header, blocks, start, header.value_bytes as usize);
        fault_point!("tier_recycled_segment_read_unverified", return Some(fetched));
        offset?;
        let body = header.body_bytes();
        let is_whole = fetched.slices(HEADER_BYTES, body).map(<[u8]>::len).sum::<usize>() == body;
        let sum = header.fold(sum, fetched.slices(HEADER_BYTES, body));
        let key = in_one_piece(fetched.slices(HEADER_BYTES, header.key_bytes as usize));
        let is_it = is_whole && sum == header.checksum && Tag::of(&key) == tag && fetched.has_sound_slices();
        drop(key);
        is_it.then_some(fetched)
    }

    /// What cannot be read is a miss from now on, and after a crash.
    pub(crate) fn drop_unreadable(&mut self, tag: Tag, place: Loc, reason: DropReason) {
        if self.index.remove(tag, place) {
            self.evictions.count(reason, 1);
            self.invalidate(tag, self.versions.next());
        }
    }

    fn item_read(&mut self, waiter: u64, segment: u64, place: Loc, item: Option<Arc<Fetched>>, effects: &mut Effects) {
        if waiter == RECYCLER {
            self.unpin(&[segment]);
            return self.reinsert(place, item, effects);
        }
        if waiter == LISTER {
            return self.listed_item_read(place, item);
        }
        if !self.operations.read_ended(waiter, Some((place, item))) {
            self.unpin(&[segment]);
        }
    }
}

/// Slices end to end: as they lie if there is but one.
pub(crate) fn in_one_piece<'a>(mut slices: impl Iterator<Item = &'a [u8]>) -> Cow<'a, [u8]> {
    let first = slices.next().unwrap_or_default();
    match slices.next() {
        None => Cow::Borrowed(first),
        Some(second) => Cow::Owned([first, second].into_iter().chain(slices).flatten().copied().collect()),
    }
}

/// The bytes of blocks, end to end.
pub(crate) fn joined(blocks: &[Arc<Block>]) -> Vec<u8> {
    blocks.iter().flat_map(|block| block.iter()).copied().collect()
}

#[cfg(test)]
mod tests {
    use stratakv_device::Pool;

    use super::*;

    /// The volume was full, so segments in memory could not leave it; its oldest segment could not
    /// make room, since the read of its head waited behind reads without blocks.
    #[test]
    fn what_makes_room_waited_behind_those_who_wait_for_room() {
        let mut fetches = Fetches::default();
        let of_somebody = fetches.begin(Wanted::Head, 10, 10, 2 * CHUNK_PAGES, vec![7]);
        let head = fetches.begin(Wanted::Head, 50, 50, CHUNK_PAGES + 1, vec![RECYCLER]);
        assert_eq!(fetches.queue, [(head, 0), (head, 1), (of_somebody, 0), (of_somebody, 1)]);

        // The segment at page 10 makes room as soon as it was read.
        fetches.hasten(Some(10));
        assert_eq!(fetches.queue, [(of_somebody, 0), (of_somebody, 1), (head, 0), (head, 1)]);

        let pool = Pool::new(1 << 20);
        let limit_bytes = pool.limit_bytes();
        let taken: Vec<Block> = std::iter::from_fn(|| pool.take(Class::Slice)).collect();
        assert!(!taken.is_empty() && pool.take(Class::Page).is_none());
        assert!(beyond_the_limit(Class::Page, &pool).is_some());
        assert_eq!(pool.limit_bytes(), limit_bytes);
    }
}
