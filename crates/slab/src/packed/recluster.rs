//! Bringing neighbours together: a page of a scan that got fewer than eight records from a read,
//! about, has its small records appended once more, in key order, into the cold stream. The next
//! scan finds them side by side.
//!
//! A copy is one of the cleaner's: it is appended only if the index names this very place, in the
//! same life of its segment, and no write of the key is under way; version and expiry stay; the
//! index changes when the copy is durable, and only if it still names the old place. So
//! docs/format-packed.md holds as it stands. What it may cost: 64 KiB in a group, one group at a
//! time, paid for in cleaning as users' records are, and nothing when segments are short; nobody
//! waits for it, and what would have to wait for room is forgotten.

use std::collections::{HashMap, HashSet, VecDeque};

use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_base::{Key, fault_point};
use stratakv_engine::{Effects, Record, Value};

use super::addr::RecordAddress;
use super::batch::{LogRecord, RecordKind, Stream};
use super::clean::{LOW, VictimRecord};
use super::commit::{LogGroup, Moving};
use super::{LogPlace, Packed};
use crate::record::Meta;
use crate::shard::is_expired;

/// Bytes appended in one group.
const PORTION: usize = SLICE_BYTES;
/// Bytes that wait at most, but no more than a 32nd of the shard's memory; what finds no room is
/// left where it is.
const QUEUE_BYTES: u64 = 4 * PORTION as u64;
/// Fewest records of a page worth the trouble.
const ITEMS_MIN: usize = 4;
/// A page is well reclustered if its reads brought so many records each, but for two: it may begin
/// in what one page gathered and end in another's. With two records instead of eight, uniform scans
/// of 50 stayed at 15 reads each.
const RECORDS_OF_READ_MIN: usize = 8;
const READS_MAX: usize = 2;
/// Where a record was read: its address, and the generation of its segment.
pub(crate) type Origin = (RecordAddress, u64);

/// Records to be appended together.
#[derive(Debug, Default)]
pub(crate) struct Reclusterer {
    queue: VecDeque<Reclustered>,
    bytes: usize,
    /// The group with the copies appended last: the index names the old places until it is shown.
    group: u64,
    /// Records that scans read, and that users wrote, lately.
    scanned: u64,
    written: u64,
}

/// Lately: both are halved when they reach this together.
const LATELY_RECORDS: u64 = 1 << 14;

#[derive(Debug)]
struct Reclustered {
    key: Key,
    meta: Meta,
    value: bytes::Bytes,
    origin: Origin,
}

impl Reclustered {
    fn record(&self) -> LogRecord<'_> {
        LogRecord { kind: RecordKind::Value, meta: self.meta, key: self.key.encoded(), value: &self.value }
    }
}

impl Reclusterer {
    /// A user has written a record.
    pub(crate) fn written(&mut self) {
        self.written += 1;
        self.forget();
    }

    fn scanned(&mut self, records: usize) {
        self.scanned += records as u64;
        self.forget();
    }

    fn forget(&mut self) {
        if self.scanned + self.written >= LATELY_RECORDS {
            (self.scanned, self.written) = (self.scanned / 2, self.written / 2);
        }
    }

    fn clear(&mut self) {
        (self.queue, self.bytes) = (VecDeque::new(), 0);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Packed {
    /// Down to a quarter of the spare segments that the cleaner keeps: there each byte appended
    /// buys half as much room again as it takes, so gathering goes on as long as it helps, and
    /// users' records find the rest. (At half, it never began after a time of many writes: they
    /// leave less.)
    fn may_recluster(&self) -> bool {
        let (spare, high) = (self.spare_segments(), self.spare_high());
        let keeps_up = self.placement.cleaner.keeps_up();
        !self.config.read_only
            && self.health.poisoned.is_none()
            && self.health.is_open()
            && (spare >= high || spare > LOW + high.saturating_sub(LOW) / 4 && keeps_up)
    }

    /// A page of a scan has taken `reads` reads for these records, in the order of their keys or
    /// the reverse.
    pub(crate) fn recluster(&mut self, reads: usize, records: &[(&Key, &Record, Option<Origin>)], effects: &Effects) {
        let per_write_min = u64::from(self.config.scanned_per_write_min);
        let reclusterer = &mut self.placement.reclusterer;
        reclusterer.scanned(records.len());
        // Else what writes undo is appended again with every scan: at 57 % writes and 2 % scans
        // that was a byte for each one written, and its cleaning.
        if reclusterer.scanned < per_write_min * reclusterer.written {
            return;
        }
        if reads <= READS_MAX + records.len() / RECORDS_OF_READ_MIN || records.len() < ITEMS_MIN {
            return;
        }
        let (room, may_recluster) = (QUEUE_BYTES.min(self.config.memory_bytes / 32) as usize, self.may_recluster());
        if !may_recluster {
            // It buys room instead, for the scans to come: where few write, nobody else does.
            self.placement.counters.refused_bytes +=
                records.iter().map(|(_, record, _)| record.value.len()).sum::<u64>();
            return;
        }
        for (key, record, origin) in records.iter().copied() {
            if self.placement.reclusterer.bytes + PAGE_BYTES > room {
                return;
            }
            // Longer ones take a read each wherever they are.
            let small = origin.filter(|(addr, _)| addr.bytes() as usize <= PAGE_BYTES);
            let (Some(origin), Value::Inline(value)) = (small, &record.value) else { continue };
            if is_expired(record.expiry.0, effects) {
                continue;
            }
            self.placement.reclusterer.bytes += origin.0.bytes() as usize;
            self.placement.reclusterer.queue.push_back(Reclustered {
                key: key.clone(),
                meta: Meta::of(record),
                value: value.clone(),
                origin,
            });
        }
    }

    /// Appends some of what was gathered into the group.
    pub(crate) fn append_reclustered(&mut self, group_builder: &mut LogGroup, effects: &mut Effects) {
        let reclusterer = &self.placement.reclusterer;
        let Some(front) = reclusterer.queue.front() else { return };
        let (first, visible) = (front.record().bytes(), reclusterer.group <= self.groups.applied());
        if !self.may_recluster() {
            self.placement.reclusterer.clear();
            return;
        }
        if !visible {
            return;
        }
        let Some(mut open) = self.open_batch(Stream::Cold, first) else { return };
        let (mut appended, mut from, mut taken) = (0, HashSet::new(), HashMap::<u32, u32>::new());
        while appended < PORTION
            && let Some(next) = self.placement.reclusterer.queue.pop_front()
        {
            let bytes = next.record().bytes();
            let (addr, generation) = next.origin;
            // Once, though several scans may have asked for it: of two copies it would be left to
            // chance which one lives.
            let segment = self.placement.segments.of(addr);
            let own = taken.get(&segment).copied().unwrap_or_default();
            let live = self.is_still_at(&next, own) && bytes as u32 <= addr.bytes() && !from.contains(&addr.at);
            if live && !self.make_room(&mut open, bytes, effects) {
                self.placement.reclusterer.queue.push_front(next);
                break;
            }
            self.placement.reclusterer.bytes = self.placement.reclusterer.bytes.saturating_sub(addr.bytes() as usize);
            if live {
                from.insert(addr.at);
                *taken.entry(segment).or_default() += 1;
                debug_assert_eq!(self.placement.segments.generation(addr), generation);
                self.append_copy(&mut open, addr, &next.record(), (next.key.clone(), Moving::Value));
                appended += bytes;
            }
        }
        if open.segment_writer.is_empty() {
            return;
        }
        self.seal_batch(open, group_builder);
        let group = self.groups.sealed() + 1;
        self.placement.counters.reclustered_bytes += appended as u64;
        self.placement.reclusterer.group = group;
    }

    /// Whether the record lies where it was read, no write of it is under way, and the cleaner
    /// neither moves it now nor is about to: of the moves out of its segment that are not shown
    /// yet, `own` are of this group. A pass of the cleaner may end before what it moved is shown.
    fn is_still_at(&self, reclustered: &Reclustered, own: u32) -> bool {
        let (addr, generation) = reclustered.origin;
        let entry = self.index.get(&reclustered.key);
        let mut named = entry.is_some_and(|entry| entry.place == LogPlace::Record(addr).to_bits());
        fault_point!("gathered_though_it_was_written_over", named = entry.is_some());
        let number = self.placement.segments.of(addr);
        let segment = self.placement.segments.get(number);
        let mut same_life = segment.generation == generation;
        fault_point!("gathered_from_another_life", same_life = true);
        let named = named && same_life && !self.placement.cleaner.holds(number) && segment.moving == own;
        matches!(self.unless_pending(&reclustered.key, named, Moving::Value), VictimRecord::Live(_))
    }
}
