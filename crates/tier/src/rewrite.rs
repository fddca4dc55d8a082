//! A segment that is taken apart: what stays in DRAM is appended to another one. What leaves goes
//! to the volume, or is dropped.
//!
//! `memory.rs` chooses the segment, and why.

use stratakv_base::fault_point;
use stratakv_engine::Effects;

use crate::drops::DropReason;
use crate::index::{Loc, Tag};
use crate::item::{HEADER_BYTES, Header, SsdAddress};
use crate::memory::is_sliced;
use crate::segment::{Segment, Stream};
use crate::tier::Tier;

/// Of a segment's bytes, at most so many of four stay for another round: an eviction always frees
/// some.
const KEPT_QUARTERS: usize = 3;
/// Why a segment is taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
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

/// An item of a segment that is taken apart.
struct Leaving<'a> {
    source: &'a Segment,
    offset: usize,
    header: Header,
    key: Vec<u8>,
    tag: Tag,
    /// As the index has it.
    loc: Loc,
    /// Its copy on the volume, if a recovery might find it.
    ssd_address: Option<SsdAddress>,
    /// It lies alone: it goes, or stays, together with its segment.
    is_whole: bool,
}

impl Leaving<'_> {
    /// Its bytes behind the header, without or with where its copy lies, and the header for them.
    fn form(&self, has_ssd_address: bool) -> (Header, impl Iterator<Item = &[u8]> + Clone) {
        let header = Header { has_ssd_address, ..self.header };
        (header, self.source.slices(self.offset + HEADER_BYTES, header.body_bytes()))
    }

    fn is_main(&self) -> bool {
        self.source.stream == Stream::Main
    }
}

impl Tier {
    /// Takes apart the oldest segment of a queue: what is hot stays, what is cold goes. False: some
    /// of it can neither stay nor go now, and it is queued again.
    pub(crate) fn rewrite_segment(&mut self, slot: u32, cause: Cause, effects: &Effects) -> bool {
        let Some(mut source) = self.segments.take_victim(slot) else { return true };
        let items: Vec<(usize, Header)> = source.walk().collect();
        let is_alone = items.len() == 1;
        let (mut kept_bytes, mut stays) = (0, false);
        for (offset, header) in items {
            // Its length under another cap does not tell: one that has slices lies alone for ever.
            let is_whole = is_alone && (is_sliced(&header) || source.used_bytes() > self.segment_len() / 4);
            let Some(item) = self.valid_item(&source, slot, offset, header, is_whole) else { continue };
            match self.rewrite_item(&item, cause, kept_bytes, effects) {
                Fate::Left => {}
                Fate::Kept => kept_bytes += header.total(),
                Fate::Round => {
                    source.stream = Stream::Main;
                    self.segments.queue_again(slot, source);
                    return true;
                }
                Fate::Stays if cause == Cause::Collect => {
                    // No block is free: it is collected another time.
                    self.segments.queue_again(slot, source);
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

    /// One of its items, if it is still one; what has expired or was flushed is let go of.
    fn valid_item<'a>(
        &mut self,
        source: &'a Segment,
        slot: u32,
        offset: usize,
        header: Header,
        is_whole: bool,
    ) -> Option<Leaving<'a>> {
        let key = source.key(offset, &header);
        let tag = Tag::of(&key);
        let loc = self.index.at(tag, Loc::dram(slot, offset))?;
        let ssd_address = source.ssd_address(offset, &header).filter(|ssd_address| self.may_be_found(ssd_address));
        if header.expiry.is_past(self.now.wall) {
            self.expire_item(tag, loc, source.stream, ssd_address);
            return None;
        }
        if self.versions.is_flushed(&key, header.version) {
            self.release(tag, loc, ssd_address);
            return None;
        }
        Some(Leaving { source, offset, header, key, tag, loc, ssd_address, is_whole })
    }

    /// Where `kept_bytes` of its segment stay already.
    fn rewrite_item(&mut self, item: &Leaving<'_>, cause: Cause, kept_bytes: usize, effects: &Effects) -> Fate {
        let (tag, loc, is_open) = (item.tag, item.loc, self.ending.is_open());
        if loc.uses() > 0 && item.is_whole && is_open {
            self.index.replace(tag, loc, loc.with_uses(loc.uses() - 1));
            return Fate::Round;
        }
        let may_stay = is_open && kept_bytes + item.header.total() <= item.source.used_bytes() / 4 * KEPT_QUARTERS;
        if (cause == Cause::Collect || loc.uses() > 0) && may_stay {
            if self.keep(item, Round::of(item.source, loc, cause), effects) {
                return Fate::Kept;
            }
            if cause == Cause::Collect {
                return Fate::Stays;
            }
        }
        if item.ssd_address.is_some() {
            self.release(tag, loc, item.ssd_address);
            return Fate::Left;
        }
        let reason = match self.can_spill() {
            true if self.is_admitted(item) => {
                if !item.is_whole && self.send_out(item, effects) {
                    return Fate::Left;
                }
                fault_point!("tier_item_dropped_for_want_of_a_block", {
                    self.drop_leaving(item, DropReason::MemoryFull, effects);
                    return Fate::Left;
                });
                return Fate::Stays;
            }
            true => DropReason::NotAdmitted,
            false => self.unspilled(),
        };
        self.drop_leaving(item, reason, effects);
        Fate::Left
    }

    fn drop_leaving(&mut self, item: &Leaving<'_>, reason: DropReason, effects: &Effects) {
        self.note_evicted(&item.key, &item.header, item.loc.uses() > 0 || item.is_main(), effects);
        self.drop_item(item.tag, item.loc, reason);
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
            self.segments.queue_again(slot, source);
            return false;
        }
        source.stream = Stream::Outgoing;
        self.segments.put_back(slot, source);
        self.seal(slot);
        true
    }

    /// Another round.
    fn keep(&mut self, item: &Leaving<'_>, round: Round, effects: &Effects) -> bool {
        let (header, body) = item.form(item.ssd_address.is_some());
        let Some(new) = self.append(round.stream, header, body, effects) else { return false };
        self.index.replace(item.tag, item.loc, new.with_uses(round.uses).wanted(round.wanted))
    }

    /// To the segment that will be written next.
    fn send_out(&mut self, item: &Leaving<'_>, effects: &Effects) -> bool {
        let (header, body) = item.form(false);
        let Some(new) = self.append(Stream::Outgoing, header, body, effects) else { return false };
        // What is saved comes back to the queue that it was in.
        let is_saving = self.is_saving();
        let new = if is_saving { new.with_uses(item.loc.uses()).wanted(item.is_main()) } else { new.wanted(true) };
        self.index.replace(item.tag, item.loc, new)
    }

    /// The admission filter: until the log has been full everything passes; then only what somebody
    /// wanted.
    fn is_admitted(&self, item: &Leaving<'_>) -> bool {
        let lapped = self.volume.as_ref().is_some_and(|volume| volume.lapped);
        let is_wanted = item.loc.is_wanted() || item.loc.uses() > 0 || item.is_main();
        !lapped || is_wanted || !self.ending.is_open()
    }
}
