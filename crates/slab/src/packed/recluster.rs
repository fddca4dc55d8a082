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
use stratakv_index::Finger;

use super::addr::RecordAddress;
use super::batch::{LogRecord, RecordKind, Stream};
use super::clean::{LOW, VictimRecord};
use super::commit::{BATCH_PAGES, LogGroup, Moving};
use super::{Log, LogPlace, Packed};
use crate::placement::Scanned;
use crate::record::Meta;
use crate::shard::is_expired;

/// Bytes appended in one group.
const PORTION: usize = SLICE_BYTES;
/// The same while the log is sorted: a full batch.
const SORT_PORTION: usize = BATCH_PAGES as usize * PAGE_BYTES - (8 << 10);
/// Records looked at for one batch.
const LOOKED_AT: u32 = 1024;
/// Groups with copies in flight while the log is sorted; else one.
const SORT_GROUPS: usize = 2;
/// Bytes that wait at most, but no more than a 32nd of the shard's memory; what finds no room is
/// left where it is.
const QUEUE_BYTES: u64 = 4 * PORTION as u64;
/// Fewest records of a page worth the trouble.
const ITEMS_MIN: usize = 4;
/// A page is well reclustered if its reads brought so many records each, but for two: it may begin
/// in what one page gathered and end in another's. With two records instead of eight, uniform scans
/// of 50 stayed at 15 reads each.
pub(crate) const RECORDS_OF_READ_MIN: usize = 8;
const READS_MAX: usize = 2;
/// Where a record was read: its address, and the generation of its segment.
pub(crate) type Origin = (RecordAddress, u64);

/// What was copied into a group.
#[derive(Debug, Default)]
struct Copied {
    group: u64,
    bytes: usize,
    /// Where the originals lie.
    from: HashSet<u64>,
    /// How many of them in each segment.
    segments: HashMap<u32, u32>,
}

/// Records to be appended together.
#[derive(Debug, Default)]
pub(crate) struct Reclusterer {
    queue: VecDeque<Reclustered>,
    bytes: usize,
    /// What was appended into groups that are not shown yet: the index names the old places until
    /// then.
    in_flight: VecDeque<Copied>,
    /// Records that scans read, and that users wrote, lately.
    scanned: u64,
    written: u64,
}

/// Lately: both are halved when they reach this together.
const LATELY_RECORDS: u64 = 1 << 14;

/// A record to be appended.
#[derive(Debug)]
pub(crate) struct Reclustered {
    key: Key,
    meta: Meta,
    value: bytes::Bytes,
    origin: Origin,
}

impl Reclustered {
    pub(crate) fn new(key: Key, meta: Meta, value: bytes::Bytes, origin: Origin) -> Reclustered {
        Reclustered { key, meta, value, origin }
    }

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

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn push(&mut self, record: Reclustered) {
        self.bytes += record.origin.0.bytes() as usize;
        self.queue.push_back(record);
    }

    /// What found no room is the next again.
    fn put_back(&mut self, record: Reclustered) {
        self.bytes += record.origin.0.bytes() as usize;
        self.queue.push_front(record);
    }

    fn pop(&mut self) -> Option<Reclustered> {
        let record = self.queue.pop_front()?;
        self.bytes = self.bytes.saturating_sub(record.origin.0.bytes() as usize);
        Some(record)
    }
}

/// Longer records take a read each wherever they are.
pub(crate) fn is_small(addr: RecordAddress) -> bool {
    addr.bytes() as usize <= PAGE_BYTES
}

/// A record that was read, if it is one to be appended beside its neighbours.
pub(crate) fn to_be_appended(
    key: &Key,
    record: &Record,
    origin: Option<Origin>,
    effects: &Effects,
) -> Option<Reclustered> {
    let origin = origin.filter(|(addr, _)| is_small(*addr))?;
    let Value::Inline(value) = &record.value else { return None };
    let is_alive = !is_expired(record.expiry.0, effects);
    is_alive.then(|| Reclustered::new(key.clone(), Meta::of(record), value.clone(), origin))
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

    /// Whether scans have lately read enough records for each one that was written. Else what
    /// writes undo is appended again with every scan: at 57 % writes and 2 % scans that was a byte
    /// for each one written, and its cleaning.
    pub(crate) fn scans_prevail(&self) -> bool {
        let reclusterer = &self.placement.reclusterer;
        reclusterer.scanned >= u64::from(self.config.scanned_per_write_min) * reclusterer.written
    }

    /// A page of a scan has taken `reads` reads for these records, in the order of their keys or
    /// the reverse.
    pub(crate) fn recluster(&mut self, reads: usize, records: &[Scanned<'_, Log>], effects: &Effects) {
        self.placement.reclusterer.scanned(records.len());
        let enough = READS_MAX + records.len() / RECORDS_OF_READ_MIN;
        if !self.scans_prevail() || reads <= enough || records.len() < ITEMS_MIN {
            return;
        }
        let is_long = |(_, _, origin): &&Scanned<'_, Log>| origin.is_none_or(|(addr, _)| !is_small(addr));
        let long = records.iter().filter(is_long).count();
        self.placement.sorter.scanned(reads.saturating_sub(enough + long) as u64);
        let (room, may_recluster) = (QUEUE_BYTES.min(self.config.memory_bytes / 32) as usize, self.may_recluster());
        if !may_recluster {
            // It buys room instead, for the scans to come: where few write, nobody else does.
            self.placement.counters.refused_bytes +=
                records.iter().map(|(_, record, _)| record.value.len()).sum::<u64>();
            return;
        }
        if self.placement.sorter.is_active() {
            return;
        }
        for (key, record, origin) in records.iter().copied() {
            if self.placement.reclusterer.bytes + PAGE_BYTES > room {
                return;
            }
            if let Some(copy) = to_be_appended(key, record, origin, effects) {
                self.placement.reclusterer.push(copy);
            }
        }
    }

    /// Appends some of what was gathered, or of a run, into the group.
    pub(crate) fn append_reclustered(&mut self, group_builder: &mut LogGroup, effects: &mut Effects) {
        let (applied, is_sorting) = (self.groups.applied(), self.placement.sorter.is_active());
        let in_flight = &mut self.placement.reclusterer.in_flight;
        while in_flight.pop_front_if(|copied| copied.group <= applied).is_some() {}
        if in_flight.len() >= if is_sorting { SORT_GROUPS } else { 1 } {
            return;
        }
        if is_sorting && !self.may_sort() {
            return;
        }
        if !is_sorting && !self.may_recluster() {
            self.placement.reclusterer.clear();
            return;
        }
        let copied = self.append_copies(if is_sorting { SORT_PORTION } else { PORTION }, group_builder, effects);
        if copied.bytes == 0 {
            return;
        }
        let counters = &mut self.placement.counters;
        let counter = if is_sorting { &mut counters.sorted_bytes } else { &mut counters.reclustered_bytes };
        *counter += copied.bytes as u64;
        self.placement.reclusterer.in_flight.push_back(copied);
    }

    fn next_copy(&mut self) -> Option<Reclustered> {
        self.placement.reclusterer.pop().or_else(|| self.placement.sorter.next())
    }

    /// Appends a batch of copies of about so many bytes.
    fn append_copies(&mut self, bytes_max: usize, group_builder: &mut LogGroup, effects: &mut Effects) -> Copied {
        let mut copied = Copied { group: self.groups.sealed() + 1, ..Copied::default() };
        let Some(mut next) = self.next_copy() else { return copied };
        let Some(mut open) = self.open_batch(Stream::Cold, next.record().bytes()) else {
            self.placement.reclusterer.put_back(next);
            return copied;
        };
        for looked_at in 1.. {
            if let Some(finger) = self.copyable(&next, &copied) {
                let (addr, bytes) = (next.origin.0, next.record().bytes());
                if !self.make_room(&mut open, bytes, effects) {
                    self.placement.reclusterer.put_back(next);
                    break;
                }
                copied.bytes += bytes;
                copied.from.insert(addr.at);
                *copied.segments.entry(self.placement.segments.of(addr)).or_default() += 1;
                self.append_copy(&mut open, addr, &next.record(), (next.key.clone(), Moving::Value, Some(finger)));
            }
            if copied.bytes >= bytes_max {
                break;
            }
            let Some(following) = self.next_copy() else {
                if copied.bytes == 0 {
                    // All were dead: no completion tells who waits for the end.
                    effects.more();
                }
                break;
            };
            next = following;
            if looked_at == LOOKED_AT {
                // Most were dead: the tick has others to serve.
                self.placement.reclusterer.put_back(next);
                effects.more();
                break;
            }
        }
        if !open.segment_writer.is_empty() {
            self.seal_batch(open, group_builder);
        }
        copied
    }

    /// Where the index has the key of a record that is to be copied beside those that were
    /// `copied`, if it is: once, though several scans may have asked for it, since of two copies it
    /// would be left to chance which one lives.
    fn copyable(&self, next: &Reclustered, copied: &Copied) -> Option<Finger> {
        let (addr, segment) = (next.origin.0, self.placement.segments.of(next.origin.0));
        let all = || self.placement.reclusterer.in_flight.iter().chain([copied]);
        let own = all().filter_map(|copied| copied.segments.get(&segment)).sum();
        let is_new =
            next.record().bytes() as u32 <= addr.bytes() && !all().any(|copied| copied.from.contains(&addr.at));
        self.finger_of(next, own).filter(|_| is_new)
    }

    /// Where the index has the key, if the record lies where it was read, no write of it is under
    /// way, and the cleaner neither moves it now nor is about to: of the moves out of its segment
    /// that are not shown yet, `own` are copies of this kind. A pass of the cleaner may end before
    /// what it moved is shown.
    fn finger_of(&self, reclustered: &Reclustered, own: u32) -> Option<Finger> {
        let (addr, generation) = reclustered.origin;
        let (entry, finger) = self.index.find(&reclustered.key)?;
        let mut named = entry.place == LogPlace::Record(addr).to_bits();
        fault_point!("gathered_though_it_was_written_over", named = true);
        let number = self.placement.segments.of(addr);
        let segment = self.placement.segments.get(number);
        let mut same_life = segment.generation == generation;
        fault_point!("gathered_from_another_life", same_life = true);
        let named = named && same_life && !self.placement.cleaner.holds(number) && segment.moving == own;
        let verdict = self.unless_pending(&reclustered.key, named, Moving::Value);
        Some(finger).filter(|_| matches!(verdict, VictimRecord::Live(_)))
    }
}
