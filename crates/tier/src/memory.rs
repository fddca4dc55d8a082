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
use crate::rewrite::Cause;
use crate::segment::{Segment, Stream, ttl_class};
use crate::segments::LOOKED_AT_MAX;
use crate::spill::beyond_the_limit;
use crate::tier::Tier;
use crate::volume::Volume;

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
        if free < 2 * self.segment_len() && self.segments.queued() > 1 {
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
        let slot = match self.segments.open(stream, class).filter(|_| !is_long) {
            Some(slot) if self.segments.get(slot).is_some_and(|segment| segment.fits(bytes)) => slot,
            full => {
                if let Some(slot) = full {
                    self.seal(slot);
                }
                let bytes = if is_long { bytes } else { self.segment_len() };
                let blocks = if bytes >= SLICE_BYTES { Class::Slice } else { Class::Page };
                self.segments.create(stream, blocks, bytes.next_multiple_of(blocks.bytes()))
            }
        };
        if !self.add_blocks(slot, bytes, effects) {
            self.segments.remove_unused(slot);
            return None;
        }
        if !is_long {
            self.segments.set_open(stream, class, slot);
        }
        let uuid = self.config.uuid;
        let offset = self.segments.change(slot, |segment| segment.append(&uuid, header, body))?;
        if is_long {
            self.seal(slot);
        }
        Some(Loc::dram(slot, offset))
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
    pub(crate) fn segment_block(&self, class: Class, effects: &Effects) -> Option<Block> {
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

    /// Nothing more is appended to a segment: it joins its queue, or those for the volume.
    pub(crate) fn seal(&mut self, slot: u32) {
        if self.segments.seal(slot)
            && let Some(volume) = &mut self.volume
        {
            volume.spills.push(slot);
        }
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
            let victim = match self.segments.victim(self.budget()) {
                None if self.segments.seal_open() => self.segments.victim(self.budget()),
                victim => victim,
            };
            let Some(slot) = victim else {
                // All that there is waits to fill a segment. Where the volume is lost it goes, or
                // it would be in the way for ever.
                self.segments.outgoing().into_iter().for_each(|slot| self.seal(slot));
                return false;
            };
            if self.rewrite_segment(slot, Cause::Evict, effects) {
                return true;
            }
        }
        false
    }

    /// While much of what segments may take is superseded items or free, nothing has to leave: the
    /// oldest segments are looked at, and a worn one is written anew. Whether one was found.
    fn collect(&mut self, effects: &Effects) -> bool {
        if !self.ending.is_open()
            || self.segments.live_bytes() > self.budget() / 100 * self.config.collected_percent as usize
        {
            return false;
        }
        self.segments.worn().is_some_and(|slot| self.rewrite_segment(slot, Cause::Collect, effects))
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
    pub(crate) fn expire_item(&mut self, tag: Tag, loc: Loc, stream: Stream, ssd_address: Option<SsdAddress>) {
        if loc.is_wanted() || loc.uses() > 0 || stream == Stream::Main {
            self.evictions.add_expired(tag);
        }
        self.release(tag, loc, ssd_address);
        self.counters.expired += 1;
    }

    /// Whether a recovery might find this copy. If so the item keeps its SSD address, or becomes
    /// it: also while its segment is being retired, until the journal has said so.
    pub(crate) fn may_be_found(&self, ssd_address: &SsdAddress) -> bool {
        self.volume.as_ref().is_some_and(|volume| volume.may_return(ssd_address))
    }

    /// Looks at one segment: if all of it has expired, it goes.
    pub(crate) fn expire_step(&mut self) {
        if self.config.read_only {
            return;
        }
        let Some((slot, source)) = self.segments.take_expired(self.now.wall) else { return };
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
pub(crate) fn is_sliced(header: &Header) -> bool {
    fault_point!("tier_slices_judged_by_the_cap_of_the_day", return false);
    header.slice_shift > 0
}
