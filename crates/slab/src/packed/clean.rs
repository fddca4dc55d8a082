//! The cleaner: reads the emptiest segment once, and lets each group copy some of its live records
//! to the cold stream.
//!
//! A bounded amount for each group, in proportion to what users wrote: docs/format-packed.md has
//! the arithmetic.

use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_base::{Key, fault_point};
use stratakv_device::{Block, IoFault};
use stratakv_engine::Effects;
use stratakv_index::{Finger, IndexEntry};

use super::addr::RecordAddress;
use super::batch::{self, LogRecord, RecordKind, Stream};
use super::commit::{Appended, AppendedBatch, LogGroup, MovedRecord, Moving, Open};
use super::segment_reader::{Next, SegmentReader};
use super::{LogIoPurpose, LogPlace, Packed};
use crate::group::Groups;
use crate::space::offset;

/// Slices of a victim read at once.
const AHEAD: u32 = 4;
/// Bytes of a victim looked at in one group.
const LOOKED_AT: usize = 256 << 10;
/// What the copies of a segment's records may take beside their bytes.
const WASTED_BYTES: u64 = 4 * PAGE_BYTES as u64;
/// Spare segments at which cleaning is urgent.
pub(crate) const LOW: u32 = 4;

/// The segment being cleaned, and what may be spent on it.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    victim: Option<Victim>,
    /// Bytes that may be moved.
    credit: u64,
    /// Bytes users had appended, and scans gathered or would have, when credit was last given.
    given_at: u64,
    condensing: Condensing,
    /// Users' records wait for a segment.
    pub(crate) blocked: bool,
    /// Segments cleaned since they could be appended the last time.
    fruitless: u32,
    /// Bytes that were alive in the last victim when it was chosen: what room costs now.
    price: u32,
    /// Memory of the last victim.
    spare: Vec<u8>,
}

/// Cleaning so that the file system may have what lies in pieces.
#[derive(Debug, Default)]
struct Condensing {
    /// The next victim is for that.
    is_due: bool,
    /// Victims since it was begun, or since users appended a segment; and how many there may be.
    victims: u32,
    victims_max: u32,
    /// What users had appended then.
    user_bytes: u64,
}

#[derive(Debug)]
struct Victim {
    reader: SegmentReader,
    /// Something was moved, or waits.
    fruitful: bool,
    /// It is cleaned so that the file system may have its space.
    is_condensed: bool,
}

impl Cleaner {
    pub(crate) fn is_idle(&self) -> bool {
        self.victim.is_none()
    }

    /// Whether this is the victim: it is not given back before the pass over it ends.
    pub(crate) fn holds(&self, number: u32) -> bool {
        self.victim.as_ref().is_some_and(|victim| victim.reader.segment == number)
    }

    /// Users' records were appended, or (`blocked`) wait for a segment. Whether they wait from now
    /// on.
    pub(crate) fn note(&mut self, blocked: bool) -> bool {
        let was_blocked = std::mem::replace(&mut self.blocked, blocked);
        if !blocked {
            self.fruitless = 0;
        }
        blocked && !was_blocked
    }

    /// Whether what was bought has been moved, about.
    pub(crate) fn keeps_up(&self) -> bool {
        self.credit < 2 * SLICE_BYTES as u64
    }

    /// Whether so much was moved without making room that there is none to be made.
    pub(crate) fn is_hopeless(&self, segments: u32) -> bool {
        self.blocked && self.fruitless > 2 * segments + 8
    }

    pub(crate) fn abandon(&mut self) {
        self.victim = None;
    }

    pub(crate) fn footprint_bytes(&self) -> usize {
        self.spare.capacity() + self.victim.as_ref().map_or(0, |victim| victim.reader.footprint_bytes())
    }
}

/// What is to be done with a record of the victim.
pub(crate) enum VictimRecord {
    Dead,
    Live(Moving),
    /// It will be dead when a write in flight is done.
    Wait,
    /// A tombstone that nothing needs.
    Drop,
}

impl Packed {
    /// Above this many spare segments nothing is moved.
    pub(crate) fn spare_high(&self) -> u32 {
        let all = self.space.whole_segments() + self.placement.segments.used();
        (all / 64 + 6).min((all / 2).max(LOW + 1))
    }

    fn tombstones_are_many(&self) -> bool {
        let log = u64::from(self.placement.segments.used()) * u64::from(self.placement.segments.bytes());
        self.placement.segments.tombstone_bytes() > log / 64
    }

    /// Whether space was given back when everything was durable already: no completion will see to
    /// it.
    pub(crate) fn has_late_space(&self) -> bool {
        self.space.deferred_begins().is_some_and(|group| group <= self.groups.durable())
    }

    /// Chooses a victim when it is time, and reads it.
    pub(crate) fn pump_cleaner(&mut self, effects: &mut Effects) {
        if self.has_late_space() {
            self.release_deferred(effects);
        }
        let spare = self.spare_segments();
        let urgent = spare < self.spare_high();
        if let Some(victim) = &self.placement.cleaner.victim {
            let segment = self.placement.segments.get(victim.reader.segment);
            if victim.reader.in_flight() == 0 && (segment.live, segment.moving) == (0, 0) {
                self.end_victim(false, 0);
            }
            return self.read_victim(effects);
        }
        // A closing shard moves only what stands in the way of its last writes.
        let needed = self.health.is_open() || !self.placement.queue.is_empty();
        let condenses = std::mem::take(&mut self.placement.cleaner.condensing.is_due);
        let many = !urgent && !condenses && self.tombstones_are_many();
        if !needed || !(urgent || many || condenses) || (spare > LOW && self.growth_comes_first()) {
            return;
        }
        let applied = self.groups.applied();
        let choice =
            if many { self.placement.segments.oldest(applied) } else { self.placement.segments.emptiest(applied) };
        let Some(number) = choice else { return };
        let segment = self.placement.segments.get(number);
        self.placement.cleaner.price = segment.live;
        let mut bytes = std::mem::take(&mut self.placement.cleaner.spare);
        // What an earlier victim left is overwritten by what is read, or not looked at.
        bytes.resize(segment.end as usize * PAGE_BYTES, 0);
        let reader = SegmentReader::new(number, segment.generation, bytes);
        self.placement.cleaner.victim = Some(Victim { reader, fruitful: false, is_condensed: condenses });
        self.read_victim(effects);
    }

    /// Most of the volume is free, but in pieces: a segment is cleaned, a batch at each call.
    /// Whether there is one for which it pays. A batch takes whole pages, so a short segment may
    /// give nothing; and each is cleaned twice at most for what users append of a segment.
    pub(crate) fn condense(&mut self) -> bool {
        let (user_bytes, segment_bytes) = (self.placement.counters.user_bytes, self.placement.segments.bytes());
        let used = self.placement.segments.used();
        let condensing = &mut self.placement.cleaner.condensing;
        if condensing.victims_max == 0 || user_bytes - condensing.user_bytes >= u64::from(segment_bytes) {
            *condensing = Condensing { user_bytes, victims_max: 2 * used, ..Condensing::default() };
        }
        let may_begin = condensing.victims < condensing.victims_max;
        let is_under_way = self.placement.cleaner.victim.as_ref().is_some_and(|victim| victim.is_condensed);
        if !is_under_way {
            if !may_begin || self.placement.cleaner.victim.is_none() && !self.pays_to_condense() {
                return false;
            }
            self.placement.cleaner.condensing.victims += 1;
            match &mut self.placement.cleaner.victim {
                // Users' writes would have paid for it, but none come, perhaps.
                Some(victim) => victim.is_condensed = true,
                None => self.placement.cleaner.condensing.is_due = true,
            }
        }
        self.placement.cleaner.credit += u64::from(super::commit::BATCH_PAGES) * PAGE_BYTES as u64;
        true
    }

    fn pays_to_condense(&self) -> bool {
        let emptiest = self.placement.segments.emptiest(self.groups.applied());
        let live = emptiest.map(|number| u64::from(self.placement.segments.get(number).live));
        live.is_some_and(|live| (live + WASTED_BYTES) * 2 <= u64::from(self.placement.segments.bytes()))
    }

    /// Whether the volume grows instead.
    fn growth_comes_first(&self) -> bool {
        self.wants_growth() && self.is_growing()
    }

    fn read_victim(&mut self, effects: &mut Effects) {
        let Some(mut victim) = self.placement.cleaner.victim.take() else { return };
        let purpose = |slice| LogIoPurpose::Victim { slice };
        self.placement.counters.cleaner_read_bytes += self.read_ahead((&mut victim.reader, AHEAD), purpose, effects);
        self.placement.cleaner.victim = Some(victim);
    }

    /// A slice of the victim has been read.
    pub(crate) fn victim_read(&mut self, slice: u32, block: &Block, result: Result<(), IoFault>) {
        // After a failure the victim is given up with reads in flight: nothing is cleaned any more
        // then.
        let Some(victim) = &mut self.placement.cleaner.victim else { return };
        victim.reader.arrived(slice, block, result);
        let (segment, failed) = (victim.reader.segment, victim.reader.failed);
        self.note_segment_read(segment, result);
        if failed {
            self.fail_victim();
        }
    }

    /// The victim cannot be cleaned. The pass ends when nothing of it is being read any more.
    fn fail_victim(&mut self) {
        let sealed = self.groups.sealed();
        let Some(victim) = self.placement.cleaner.victim.as_mut() else { return };
        victim.reader.failed = true;
        if victim.reader.in_flight() == 0 {
            self.end_victim(true, sealed);
        }
    }

    /// The pass over a victim is over; groups up to `sealed` may decide what is left in it.
    fn end_victim(&mut self, failed: bool, sealed: u64) {
        let group = self.groups.applied();
        let Some(victim) = self.placement.cleaner.victim.take() else { return };
        let number = victim.reader.segment;
        self.placement.cleaner.spare = victim.reader.into_bytes();
        if let Some(segment) = self.placement.segments.get_mut(number) {
            // What waits in it for a write in flight is settled then.
            segment.not_before = sealed;
            // Nothing in it is named, and still it counts as alive: not again.
            let useless = !victim.fruitful && segment.live > 0 && segment.moving == 0;
            segment.failures = segment.failures.saturating_add(u8::from(failed || useless));
        }
        self.placement.cleaner.fruitless += u32::from(self.placement.cleaner.blocked);
        self.give_back_if_dead(number, group);
    }

    /// Adds to what may be moved, as users append records and scans gather them.
    fn give_credit(&mut self) -> u64 {
        let (spare, high) = (self.spare_segments(), self.spare_high());
        let counters = &self.placement.counters;
        let appended =
            counters.user_bytes + counters.reclustered_bytes + counters.refused_bytes - self.placement.cleaner.given_at;
        self.placement.cleaner.given_at += appended;
        let batch = u64::from(super::commit::BATCH_PAGES) * PAGE_BYTES as u64;
        if self.placement.cleaner.blocked {
            self.placement.cleaner.credit = batch;
        } else if spare >= high {
            // Only for the sake of tombstones.
            self.placement.cleaner.credit = (self.placement.cleaner.credit + appended).min(batch);
        } else {
            let all = u64::from(self.placement.segments.bytes());
            let live = u64::from(self.placement.cleaner.price).min(all - all / 64);
            let (gap, range) = (u64::from(high.saturating_sub(spare)), u64::from(high.saturating_sub(LOW).max(1)));
            let earned = appended * live / (all - live) * 2 * gap / range;
            self.placement.cleaner.credit = (self.placement.cleaner.credit + earned).min(4 * batch);
        }
        self.placement.cleaner.credit
    }

    /// Copies some live records of the victim into the group.
    pub(crate) fn clean(&mut self, group_builder: &mut LogGroup, effects: &mut Effects) {
        let credit = self.give_credit();
        let urgent = self.spare_segments() <= LOW;
        let least = u64::from(self.placement.segments.bytes() / 4).min(SLICE_BYTES as u64);
        if credit < least || self.placement.cleaner.victim.as_ref().is_none_or(|victim| victim.reader.failed) {
            return;
        }
        // In small portions, unless segments run short: a group is as fast as what it writes.
        let portion = if urgent { credit } else { credit.min(least) };
        let after = |group_builder: &LogGroup, groups: &Groups<AppendedBatch>| {
            groups.sealed() + u64::from(!group_builder.members.is_empty())
        };
        let first = match self.next_of_victim() {
            Next::Record(_, len) => len,
            Next::NotRead => return,
            Next::End => return self.end_victim(false, after(group_builder, &self.groups)),
            Next::Damaged => return self.fail_victim(),
        };
        let Some(mut open) = self.open_batch(Stream::Cold, first) else { return };
        let (mut left, mut looked_at) = (portion, 0);
        // The pass ends, and has failed.
        let mut over = None;
        while looked_at < LOOKED_AT {
            match self.next_of_victim() {
                // Up to the end of a page.
                Next::Record(_, len)
                    if left == 0 && open.segment_writer.pages_with(len) > open.segment_writer.blocks() => {}
                Next::Record(at, len) => {
                    let Some(moved) = self.move_record(&mut open, (at, len), effects) else { break };
                    left = left.saturating_sub(moved);
                    looked_at += len;
                    self.advance_victim(len);
                    continue;
                }
                Next::NotRead => {}
                Next::End => over = Some(false),
                Next::Damaged => over = Some(true),
            }
            break;
        }
        self.placement.cleaner.credit = credit - (portion - left);
        if looked_at >= LOOKED_AT {
            effects.more();
        }
        if open.segment_writer.is_empty() {
            self.placement.cleaner.credit = credit;
        } else {
            self.seal_batch(open, group_builder);
        }
        match over {
            Some(true) => self.fail_victim(),
            Some(false) => self.end_victim(false, after(group_builder, &self.groups)),
            None => {}
        }
        self.pump_cleaner(effects);
    }

    /// Copies records of the victim to where a batch of users' records would end in zeros: room
    /// that costs nothing. With few records in a batch that is a fifth of what is written.
    pub(crate) fn fill_up(&mut self, open: &mut Open, effects: &mut Effects) {
        let pages = open.segment_writer.pages_with(0);
        let mut looked_at = 0;
        while looked_at < SLICE_BYTES
            && let Next::Record(at, len) = self.next_of_victim()
            && open.segment_writer.pages_with(len) <= pages
            && let Some(moved) = self.move_record(open, (at, len), effects)
        {
            looked_at += len;
            self.advance_victim(len);
            self.placement.cleaner.credit = self.placement.cleaner.credit.saturating_sub(moved);
        }
    }

    fn advance_victim(&mut self, len: usize) {
        if let Some(victim) = self.placement.cleaner.victim.as_mut() {
            victim.reader.advance(len);
        }
    }

    /// The next record of the victim, as far as it is read.
    fn next_of_victim(&mut self) -> Next {
        let (uuid, pages) = (self.config.uuid, self.placement.segments.pages);
        match self.placement.cleaner.victim.as_mut() {
            Some(victim) => victim.reader.next(&uuid, pages),
            None => Next::Damaged,
        }
    }

    /// Copies a record of the victim if it is alive; the bytes appended. `None`: there is no room
    /// in the batch.
    fn move_record(&mut self, open: &mut Open, (at, len): (usize, usize), effects: &mut Effects) -> Option<u64> {
        let victim = self.placement.cleaner.victim.take()?;
        let offset = offset(victim.reader.segment * self.placement.segments.pages) + at as u64;
        let record = batch::parsed(victim.reader.from(at)).map(|(record, _)| record);
        let mut fruitful = victim.fruitful;
        let moved = match record {
            Some(record) => {
                let from = (victim.reader.segment, offset);
                self.judge_and_move(open, from, &record, &mut fruitful, effects)
            }
            None => Some(0),
        };
        debug_assert!(len > 0);
        self.placement.cleaner.victim = Some(Victim { fruitful, ..victim });
        moved
    }

    fn judge_and_move(
        &mut self,
        open: &mut Open,
        (segment, offset): (u32, u64),
        record: &LogRecord<'_>,
        fruitful: &mut bool,
        effects: &mut Effects,
    ) -> Option<u64> {
        let from = RecordAddress::new(offset, record.bytes() as u32);
        let (verdict, finger) = self.verdict(segment, from, record);
        let what = match verdict {
            VictimRecord::Dead => return Some(0),
            VictimRecord::Wait => {
                *fruitful = true;
                return Some(0);
            }
            VictimRecord::Drop => {
                *fruitful = true;
                let tombstone = matches!(record.kind, RecordKind::Deleted { .. });
                self.placement.segments.remove_live(from, tombstone);
                self.placement.counters.tombstones_dropped += 1;
                return Some(0);
            }
            VictimRecord::Live(what) => what,
        };
        let bytes = record.bytes();
        if !self.make_room(open, bytes, effects) {
            return None;
        }
        *fruitful = true;
        self.placement.counters.moved_bytes += bytes as u64;
        self.append_copy(open, from, record, (Key::from_encoded(record.key)?, what, finger));
        Some(bytes as u64)
    }

    /// Appends a copy of a live record, for which there is room.
    pub(crate) fn append_copy(
        &mut self,
        open: &mut Open,
        from: RecordAddress,
        record: &LogRecord<'_>,
        (key, what, finger): (Key, Moving, Option<Finger>),
    ) {
        let to = RecordAddress::new(open.segment_writer.append(record), record.bytes() as u32);
        self.placement.segments.begin_move(from, to, what == Moving::Tombstone);
        open.appended.push(Appended::Moved(MovedRecord { key, finger, what, from, to }));
    }

    /// What becomes of a record, and where the index has its key.
    fn verdict(&self, segment: u32, from: RecordAddress, record: &LogRecord<'_>) -> (VictimRecord, Option<Finger>) {
        let Some(key) = Key::from_encoded(record.key) else { return (VictimRecord::Dead, None) };
        let (entry, finger) = self.index.tree.find(record.key).unzip();
        (self.verdict_of(segment, from, record, (&key, entry)), finger)
    }

    fn verdict_of(
        &self,
        segment: u32,
        from: RecordAddress,
        record: &LogRecord<'_>,
        (key, entry): (&Key, Option<IndexEntry>),
    ) -> VictimRecord {
        match record.kind {
            RecordKind::Deleted { .. } if !self.placement.segments.counts(from) => VictimRecord::Dead,
            RecordKind::Deleted { appended } => {
                let mut needed = entry.is_none() && self.placement.segments.oldest_but(segment) < appended;
                fault_point!("tombstone_dropped_too_early", needed = false);
                if needed { VictimRecord::Live(Moving::Tombstone) } else { VictimRecord::Drop }
            }
            RecordKind::Value => {
                let named = entry.is_some_and(|entry| entry.place == LogPlace::Record(from).to_bits());
                let is_dropped = named && from.at.is_multiple_of(7);
                fault_point!("cleaner_drops_a_live_record", is_dropped, return VictimRecord::Drop);
                self.unless_pending(key, named, Moving::Value)
            }
            RecordKind::Large { blob, .. } => {
                let named = self.placement.pointers.get(&blob.first) == Some(&from);
                self.unless_pending(key, named, Moving::Large(blob.first))
            }
        }
    }

    /// A copy appended after a tombstone of its key could outlive it.
    pub(crate) fn unless_pending(&self, key: &Key, named: bool, what: Moving) -> VictimRecord {
        let appended = || self.keys.pending.get(key).is_some_and(|pending| pending.placement.appended > 0);
        fault_point!("moved_while_a_write_is_under_way", named, return VictimRecord::Live(what));
        match named {
            false => VictimRecord::Dead,
            true if appended() => VictimRecord::Wait,
            true => VictimRecord::Live(what),
        }
    }
}
