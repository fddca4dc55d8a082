//! DRAM: where items are appended, and what leaves when it is full.
//!
//! Two queues of segments, after S3-FIFO: new items leave the small one soon, those that were used
//! meanwhile go to the main one, and there get another round for each time they were used. What
//! leaves goes to the volume, or is dropped.

use stratakv_base::fault_point;
use stratakv_base::limits::SLICE_BYTES;
use stratakv_device::block::CHUNK_BYTES;
use stratakv_device::{Block, Class};
use stratakv_engine::Effects;

use crate::closing::Closing;
use crate::drops::DropReason;
use crate::index::{Loc, Tag};
use crate::item::{Header, SsdAddress};
use crate::segment::{Segment, Stream, ttl_class};
use crate::spill::beyond_the_limit;
use crate::tier::Tier;
use crate::volume::Volume;

/// The small queue has one of so many bytes.
const SMALL_SHARE: usize = 5;
/// Of a segment's bytes, at most so many of four stay for another round: an eviction always frees
/// some.
const KEPT_QUARTERS: usize = 3;
/// Segments of each queue that are looked at for a worn one.
const LOOKED_AT_MAX: usize = 8;

/// Why a segment is taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// DRAM is full: what was used stays.
    Evict,
    /// Much of it was superseded: everything else stays, as it was.
    Collect,
}

/// What becomes of an item of a segment that is taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is superseded, gone, or on its way to the volume.
    Left,
    /// It is in another segment in DRAM.
    Kept,
    /// It has another round together with its segment.
    Round,
    /// It is where it was: no block was free, or it goes as it lies.
    Stays,
}

/// What an item that stays is from then on.
#[derive(Clone, Copy, Debug)]
struct Round {
    stream: Stream,
    uses: u8,
    wanted: bool,
}

impl Round {
    fn of(source: &Segment, loc: Loc, cause: Cause) -> Round {
        let (stream, uses) = (source.stream, loc.uses());
        match cause {
            Cause::Collect => Round { stream, uses, wanted: loc.is_wanted() },
            // Its use brought it into the main queue; there each use is a round more.
            Cause::Evict => {
                let uses = if stream == Stream::Small { 0 } else { uses.saturating_sub(1) };
                Round { stream: Stream::Main, uses, wanted: true }
            }
        }
    }
}

impl Tier {
    /// Bytes of an ordinary segment.
    pub(crate) fn segment_len(&self) -> usize {
        self.config.segment_len()
    }

    /// Bytes that segments may take: what index, ghost queue and blocks for reads leave.
    pub(crate) fn budget(&self) -> usize {
        let (config, apart) = (&self.config, self.bytes_apart() as u64);
        let left = config.memory_bytes.saturating_sub(apart + config.blocks_bytes());
        // What cannot be lent is no room: else what leaves would find no block to leave by. The
        // longest item has a place in any case.
        let lent = config.lent_bytes(apart).max(config.segments_bytes_min());
        (left.min(lent) as usize).max(4 * self.segment_len())
    }

    /// Bytes of memory that are no blocks.
    pub(crate) fn bytes_apart(&self) -> usize {
        let returning = self.volume.as_ref().map_or(0, |volume| volume.returning.capacity());
        self.index.bytes() + self.evictions.bytes() + returning * (size_of::<Tag>() + 1)
    }

    /// Makes room for so many bytes. False: there is none before something was spilled.
    pub(crate) fn make_room(&mut self, bytes: usize, effects: &Effects) -> bool {
        let bytes = bytes + SLICE_BYTES.min(self.segment_len());
        while self.segments.bytes() + bytes > self.budget() {
            if !self.evict(effects) {
                return false;
            }
        }
        true
    }

    /// Makes room for an entry of the index. False: there is none before the volume's oldest
    /// segment is gone.
    pub(crate) fn make_index_room(&mut self, tag: Tag, effects: &Effects) -> bool {
        while !self.index.has_room(tag) && self.index.find(tag).next().is_none() {
            if !self.index.is_crowded() && self.index.shrink_slackest() {
                // A table had places that this one needs.
            } else if self.volume.as_ref().is_some_and(Volume::has_some_to_retire) || !self.evict(effects) {
                return false;
            }
        }
        true
    }

    /// Keeps room for two segments, so that writes need not wait for the volume.
    pub(crate) fn evict_ahead(&mut self, effects: &Effects) {
        let free = self.budget().saturating_sub(self.segments.bytes());
        if free < 2 * self.segment_len() && self.small.len() + self.main.len() > 1 {
            self.evict(effects);
        }
    }

    /// Appends an item to a stream. Its bytes come in pieces. `None`: no block is free.
    pub(crate) fn append<'a>(
        &mut self,
        stream: Stream,
        header: Header,
        body: impl Iterator<Item = &'a [u8]> + Clone,
        effects: &Effects,
    ) -> Option<Loc> {
        let bytes = header.total();
        // An item with slices begins with a page, whatever the cap was when it was cut.
        let is_long = bytes > self.segment_len() / 4 || is_sliced(&header);
        let class = ttl_class(header.expiry, self.now.wall);
        let slot = match self.open_slot(stream, class).filter(|_| !is_long) {
            Some(slot) if self.segments.get(slot).is_some_and(|segment| segment.fits(bytes)) => slot,
            full => {
                if let Some(slot) = full {
                    self.seal(slot);
                }
                self.new_segment(stream, if is_long { bytes } else { self.segment_len() })
            }
        };
        if !self.add_blocks(slot, bytes, effects) {
            // A segment without items would never be found again.
            if self.segments.get(slot).is_some_and(|segment| segment.items == 0) {
                self.segments.remove(slot);
                self.forget_open(slot);
            }
            return None;
        }
        if !is_long {
            self.set_open(stream, class, Some(slot));
        }
        let uuid = self.config.uuid;
        let offset = self.segments.change(slot, |segment| segment.append(&uuid, header, body))?;
        if is_long {
            self.seal(slot);
        }
        Some(Loc::dram(slot, offset))
    }

    fn new_segment(&mut self, stream: Stream, bytes: usize) -> u32 {
        self.next_segment += 1;
        let class = if bytes >= SLICE_BYTES { Class::Slice } else { Class::Page };
        self.segments.insert(Segment::new(self.next_segment, stream, class, bytes.next_multiple_of(class.bytes())))
    }

    fn add_blocks(&mut self, slot: u32, bytes: usize, effects: &Effects) -> bool {
        let Some(segment) = self.segments.get(slot) else { return false };
        let (class, count) = (segment.class(), segment.blocks_for(bytes));
        let blocks: Vec<_> = (0..count).map_while(|_| self.segment_block(class, effects)).collect();
        if blocks.len() < count {
            return false;
        }
        let add = |segment: &mut Segment| blocks.into_iter().for_each(|block| segment.add_block(block));
        self.segments.change(slot, add).is_some()
    }

    /// A block for a segment. At an orderly end what leaves finds one beyond the limit rather than
    /// none, or it would be dropped; as each segment is written another one is free.
    fn segment_block(&self, class: Class, effects: &Effects) -> Option<Block> {
        let within = || effects.block(class).or_else(|| Self::block_of_another_chunk(class, effects));
        if self.ending.phase() == Closing::Spilling {
            within().or_else(|| beyond_the_limit(class, effects.pool()))
        } else {
            within()
        }
    }

    /// The pool's chunks are all lent out in this class, or are of the other one: one that nobody
    /// uses is given back for it.
    pub(crate) fn block_of_another_chunk(class: Class, effects: &Effects) -> Option<Block> {
        let pool = effects.pool();
        let limit_bytes = pool.limit_bytes();
        pool.set_limit_bytes(pool.held_bytes().saturating_sub(CHUNK_BYTES));
        pool.retire_chunk();
        pool.set_limit_bytes(limit_bytes);
        // A pool of two chunks takes none for that.
        pool.exchange_chunk(class);
        pool.take(class)
    }

    fn open_slot(&self, stream: Stream, class: usize) -> Option<u32> {
        match stream {
            Stream::Small => self.open[0][class],
            Stream::Main => self.open[1][class],
            Stream::Outgoing => self.outgoing,
        }
    }

    fn set_open(&mut self, stream: Stream, class: usize, slot: Option<u32>) {
        match stream {
            Stream::Small => self.open[0][class] = slot,
            Stream::Main => self.open[1][class] = slot,
            Stream::Outgoing => self.outgoing = slot,
        }
    }

    fn forget_open(&mut self, slot: u32) {
        self.open.iter_mut().flatten().filter(|open| **open == Some(slot)).for_each(|open| *open = None);
        self.outgoing = self.outgoing.filter(|open| *open != slot);
    }

    /// Nothing more is appended to a segment: it joins its queue.
    pub(crate) fn seal(&mut self, slot: u32) {
        self.forget_open(slot);
        self.segments.change(slot, Segment::seal);
        match self.segments.get(slot).map(|segment| segment.stream) {
            Some(Stream::Small) => self.small.push_back(slot),
            Some(Stream::Main) => self.main.push_back(slot),
            Some(Stream::Outgoing) => {
                if let Some(volume) = &mut self.volume {
                    volume.spills.push(slot);
                }
            }
            None => {}
        }
    }

    /// Seals what is being filled, the outgoing segment aside. Whether there was anything.
    pub(crate) fn seal_open(&mut self) -> bool {
        let open: Vec<u32> = self.open.iter().flatten().copied().flatten().collect();
        open.iter().for_each(|slot| self.seal(*slot));
        !open.is_empty()
    }

    /// Blocks are given back: of superseded items, if that is worth it, or one segment leaves DRAM.
    /// False: the volume must take what left before, or there is nothing.
    pub(crate) fn evict(&mut self, effects: &Effects) -> bool {
        if self.collect(effects) {
            return true;
        }
        if self.is_backed_up() {
            return false;
        }
        for _ in 0..LOOKED_AT_MAX {
            let victim = match self.victim() {
                None if self.seal_open() => self.victim(),
                victim => victim,
            };
            let Some(slot) = victim else {
                // All that there is waits to fill a segment. Where the volume is lost it goes, or
                // it would be in the way for ever.
                self.outgoing.into_iter().for_each(|slot| self.seal(slot));
                return false;
            };
            if self.rewrite_segment(slot, Cause::Evict, effects) {
                return true;
            }
        }
        false
    }

    fn victim(&mut self) -> Option<u32> {
        let is_large = self.segments.small_bytes() > self.budget() / SMALL_SHARE;
        if self.main.is_empty() || (!self.small.is_empty() && is_large) {
            return self.small.pop_front();
        }
        self.main.pop_front()
    }

    /// While much of what segments may take is superseded items or free, nothing has to leave: the
    /// oldest segments are looked at, and a worn one is written anew. Whether one was found.
    fn collect(&mut self, effects: &Effects) -> bool {
        if !self.ending.is_open()
            || self.segments.live_bytes() > self.budget() / 100 * self.config.collected_percent as usize
        {
            return false;
        }
        for _ in 0..LOOKED_AT_MAX {
            for small in [true, false] {
                let queue = if small { &mut self.small } else { &mut self.main };
                let Some(slot) = queue.pop_front() else { continue };
                if self.segments.get(slot).is_none_or(Segment::is_worn) {
                    return self.rewrite_segment(slot, Cause::Collect, effects);
                }
                queue.push_back(slot);
            }
        }
        false
    }

    /// An item was superseded. A sealed segment whose last one it was gives its blocks back at
    /// once.
    pub(crate) fn supersede_item(&mut self, slot: u32, header: &Header) {
        let collects = self.config.collected_percent > 0;
        let is_open = self.open.iter().flatten().any(|open| *open == Some(slot));
        let done = self.segments.change(slot, |segment| {
            let gone = segment.supersede(header) && collects && !is_open && segment.stream != Stream::Outgoing;
            if gone {
                segment.empty();
            }
            gone
        });
        if done == Some(true) {
            self.empty_segments += 1;
            self.forget_empty();
        }
    }

    /// Empty segments leave their queues once those are half empty: each such walk is paid for by
    /// what it removes.
    fn forget_empty(&mut self) {
        if self.empty_segments <= 8.max((self.small.len() + self.main.len()) / 2) {
            return;
        }
        let segments = &mut self.segments;
        let mut is_there = |slot: &u32| {
            let there = segments.get(*slot).is_some_and(|segment| segment.used_bytes() > 0);
            if !there {
                segments.remove(*slot);
            }
            there
        };
        self.small.retain(&mut is_there);
        self.main.retain(&mut is_there);
        self.empty_segments = 0;
    }

    /// Takes apart the oldest segment of a queue: what is hot stays, what is cold goes. False: some
    /// of it can neither stay nor go now, and it is queued again.
    fn rewrite_segment(&mut self, slot: u32, cause: Cause, effects: &Effects) -> bool {
        let Some(mut source) = self.segments.take(slot) else { return true };
        self.empty_segments -= usize::from(source.used_bytes() == 0);
        let items: Vec<(usize, Header)> = source.walk().collect();
        let is_alone = items.len() == 1;
        let (mut kept_bytes, mut stays) = (0, false);
        for (offset, header) in items {
            // Its length under another cap does not tell: one that has slices lies alone for ever.
            let is_whole = is_alone && (is_sliced(&header) || source.used_bytes() > self.segment_len() / 4);
            match self.rewrite_item(&source, Loc::dram(slot, offset), header, is_whole, cause, kept_bytes, effects) {
                Fate::Left => {}
                Fate::Kept => kept_bytes += header.total(),
                Fate::Round => {
                    source.stream = Stream::Main;
                    self.segments.put_back(slot, source);
                    self.main.push_back(slot);
                    return true;
                }
                Fate::Stays if cause == Cause::Collect => {
                    // No block is free: it is collected another time.
                    self.queue_again(slot, source);
                    return false;
                }
                Fate::Stays => stays = true,
            }
        }
        if stays {
            return self.send_whole(slot, source, effects);
        }
        drop(source);
        self.segments.give_back(slot);
        true
    }

    /// One of its items.
    #[expect(clippy::too_many_arguments, reason = "an item out of its segment is many things")]
    fn rewrite_item(
        &mut self,
        source: &Segment,
        place: Loc,
        header: Header,
        is_whole: bool,
        cause: Cause,
        kept_bytes: usize,
        effects: &Effects,
    ) -> Fate {
        let Some((_, offset)) = place.in_dram() else { return Fate::Left };
        let key = source.key(offset, &header);
        let tag = Tag::of(&key);
        let Some(loc) = self.index.at(tag, place) else { return Fate::Left };
        let ssd_address = source.ssd_address(offset, &header).filter(|ssd_address| self.may_be_found(ssd_address));
        if header.expiry.is_past(self.now.wall) {
            self.expire_item(tag, loc, source.stream, ssd_address);
            return Fate::Left;
        }
        if self.versions.is_flushed(&key, header.version) {
            self.release(tag, place, ssd_address);
            return Fate::Left;
        }
        let is_open = self.ending.is_open();
        if loc.uses() > 0 && is_whole && is_open {
            self.index.replace(tag, place, loc.with_uses(loc.uses() - 1));
            return Fate::Round;
        }
        let may_stay = is_open && kept_bytes + header.total() <= source.used_bytes() / 4 * KEPT_QUARTERS;
        if (cause == Cause::Collect || loc.uses() > 0) && may_stay {
            let round = Round::of(source, loc, cause);
            if self.keep(source, offset, header, ssd_address, tag, loc, round, effects) {
                return Fate::Kept;
            }
            if cause == Cause::Collect {
                return Fate::Stays;
            }
        }
        if ssd_address.is_some() {
            self.release(tag, place, ssd_address);
            return Fate::Left;
        }
        let reason = match self.can_spill() {
            true if self.is_admitted(source, loc) => {
                if !is_whole && self.send_out(source, offset, header, tag, loc, effects) {
                    return Fate::Left;
                }
                fault_point!("tier_item_dropped_for_want_of_a_block", {
                    self.note_evicted(&key, &header, loc.uses() > 0 || source.stream == Stream::Main, effects);
                    self.drop_item(tag, place, DropReason::MemoryFull);
                    return Fate::Left;
                });
                return Fate::Stays;
            }
            true => DropReason::NotAdmitted,
            false => self.unspilled(),
        };
        self.note_evicted(&key, &header, loc.uses() > 0 || source.stream == Stream::Main, effects);
        self.drop_item(tag, place, reason);
        Fate::Left
    }

    /// What is left of a segment goes to the volume as it lies: it is one long item, or no block
    /// was free to lay it together with what goes too. False: a reply still has a block that its
    /// checksums belong in, and there is no other; to drop it would give back no block either.
    fn send_whole(&mut self, slot: u32, mut source: Segment, effects: &Effects) -> bool {
        let (class, uuid) = (source.class(), self.config.uuid);
        let is_left = |(offset, header): &(usize, Header)| {
            self.index.at(Tag::of(&source.key(*offset, header)), Loc::dram(slot, *offset)).is_some()
        };
        let left: Vec<usize> = source.walk().filter(is_left).map(|(offset, _)| offset).collect();
        let mut spare = || self.segment_block(class, effects);
        if !left.into_iter().all(|offset| source.sum_up(&uuid, offset, &mut spare)) {
            self.queue_again(slot, source);
            return false;
        }
        source.stream = Stream::Outgoing;
        self.segments.put_back(slot, source);
        self.seal(slot);
        true
    }

    /// A segment that was to leave is behind all others of its queue.
    fn queue_again(&mut self, slot: u32, source: Segment) {
        let queue = if source.stream == Stream::Small { &mut self.small } else { &mut self.main };
        queue.push_back(slot);
        self.segments.put_back(slot, source);
    }

    /// Another round.
    #[expect(clippy::too_many_arguments, reason = "an item out of its segment is many things")]
    fn keep(
        &mut self,
        source: &Segment,
        offset: usize,
        header: Header,
        ssd_address: Option<SsdAddress>,
        tag: Tag,
        loc: Loc,
        round: Round,
        effects: &Effects,
    ) -> bool {
        let body = source.slices(offset + crate::item::HEADER_BYTES, body_bytes(&header, ssd_address.is_some()));
        let header = Header { has_ssd_address: ssd_address.is_some(), ..header };
        let Some(new) = self.append(round.stream, header, body, effects) else { return false };
        self.index.replace(tag, loc, new.with_uses(round.uses).wanted(round.wanted))
    }

    /// To the segment that will be written next.
    fn send_out(
        &mut self,
        source: &Segment,
        offset: usize,
        header: Header,
        tag: Tag,
        loc: Loc,
        effects: &Effects,
    ) -> bool {
        let body = source.slices(offset + crate::item::HEADER_BYTES, body_bytes(&header, false));
        let header = Header { has_ssd_address: false, ..header };
        let Some(new) = self.append(Stream::Outgoing, header, body, effects) else { return false };
        let is_main = source.stream == Stream::Main;
        // What is saved comes back to the queue that it was in.
        let new = if self.is_saving() { new.with_uses(loc.uses()).wanted(is_main) } else { new.wanted(true) };
        self.index.replace(tag, loc, new)
    }

    /// The admission filter: until the log has been full everything passes; then only what somebody
    /// wanted.
    fn is_admitted(&self, source: &Segment, loc: Loc) -> bool {
        let lapped = self.volume.as_ref().is_some_and(|volume| volume.lapped);
        !lapped || loc.is_wanted() || loc.uses() > 0 || source.stream == Stream::Main || !self.ending.is_open()
    }

    /// Whoever listens is told that this item is dropped.
    pub(crate) fn note_evicted(&mut self, key: &[u8], header: &Header, used: bool, effects: &Effects) {
        if effects.tells_evictions {
            self.evictions.tell(key, header, used);
        }
    }

    /// Drops an item that has no copy on the volume.
    pub(crate) fn drop_item(&mut self, tag: Tag, place: Loc, reason: DropReason) {
        self.index.remove(tag, place);
        self.evictions.add(tag, reason);
    }

    /// An item leaves DRAM: what is left is its copy on the volume, if it has one. It was used
    /// there, so the recycler takes it along.
    pub(crate) fn release(&mut self, tag: Tag, place: Loc, ssd_address: Option<SsdAddress>) {
        match ssd_address {
            Some(ssd_address) => self.index.replace(tag, place, ssd_address.loc.with_uses(1)),
            None => self.index.remove(tag, place),
        };
    }

    /// An item has expired. Where somebody wanted it, it is likely to be put again, and is wanted
    /// then too.
    fn expire_item(&mut self, tag: Tag, loc: Loc, stream: Stream, ssd_address: Option<SsdAddress>) {
        if loc.is_wanted() || loc.uses() > 0 || stream == Stream::Main {
            self.evictions.add_expired(tag);
        }
        self.release(tag, loc, ssd_address);
        self.counters.expired += 1;
    }

    /// Whether a recovery might find this copy. If so the item keeps its SSD address, or becomes
    /// it: also while its segment is being retired, until the journal has said so.
    fn may_be_found(&self, ssd_address: &SsdAddress) -> bool {
        self.volume.as_ref().is_some_and(|volume| volume.may_return(ssd_address))
    }

    /// Looks at one segment: if all of it has expired, it goes.
    pub(crate) fn expire_step(&mut self) {
        if self.segments.slots() == 0 || self.config.read_only {
            return;
        }
        self.expiry_hand = (self.expiry_hand + 1) % self.segments.slots();
        let slot = self.expiry_hand as u32;
        let now = self.now.wall;
        let goes = |segment: &Segment| segment.is_expired(now) && segment.stream != Stream::Outgoing;
        if !self.segments.get(slot).is_some_and(goes) {
            return;
        }
        self.forget_open(slot);
        self.small.retain(|queued| *queued != slot);
        self.main.retain(|queued| *queued != slot);
        let Some(source) = self.segments.take(slot) else { return };
        for (offset, header) in source.walk() {
            let (tag, place) = (Tag::of(&source.key(offset, &header)), Loc::dram(slot, offset));
            if let Some(loc) = self.index.at(tag, place) {
                let ssd_address =
                    source.ssd_address(offset, &header).filter(|ssd_address| self.may_be_found(ssd_address));
                self.expire_item(tag, loc, source.stream, ssd_address);
            }
        }
        self.segments.give_back(slot);
    }
}

/// Whether an item must lie alone, whatever the cap is now.
fn is_sliced(header: &Header) -> bool {
    fault_point!("tier_slices_judged_by_the_cap_of_the_day", return false);
    header.slice_shift > 0
}

fn body_bytes(header: &Header, with_ssd_address: bool) -> usize {
    Header { has_ssd_address: with_ssd_address, ..*header }.body_bytes()
}
