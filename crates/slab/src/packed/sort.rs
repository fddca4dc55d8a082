//! Putting the whole log in key order, when scans have paid for it.
//!
//! Records are appended as they are written, so a scan over them reads one place for each. Two
//! passes bring all of them together, as a merge sort does (Knuth, volume 3, section 5.4):
//!
//! ```text
//!  idle     scans have made more reads for want of order than a pass costs
//!      | begin_sort: the sealed segments, emptiest first
//!  sort     as many segments as fit the buffer are read; what lives in them is one run
//!      | the run is appended in key order, its segments are dead; then the next segments
//!  merge    the keys are walked in order: each run gives a few neighbours with one read
//!      | what lies apart is appended in key order; the runs die from the front
//!  idle
//! ```
//!
//! Everything is read and written twice, in long requests, whereas the cleaner would move what
//! scans leave behind two or three times. A copy is one of the re-clusterer's (`recluster.rs`),
//! with the same conditions; so a crash at any time finds a log like any other.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow, Range};

use bytes::Bytes;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Key, probe};
use stratakv_device::{Block, IoFault};
use stratakv_engine::Effects;
use stratakv_engine::range::{before_engine_keys, encoded};

use super::addr::RecordAddress;
use super::batch::{self, RecordKind};
use super::clean::LOW;
use super::recluster::{Origin, RECORDS_OF_READ_MIN, Reclustered, is_small, to_be_appended};
use super::segment_reader::{Next, SegmentReader};
use super::segments::State;
use super::{Log, LogIoPurpose, LogPlace, Packed};
use crate::placement::Scanned;
use crate::record::Meta;
use crate::shard::{is_expired, wake_soon};
use crate::space::offset;

/// A pass begins when scans have made a read too many for each so many bytes of live records. Two
/// passes over a MiB take as long as some 600 random reads, on disks that were measured; so this
/// pays back what it costs when scans go on half as long again.
const BYTES_OF_EXCESS_READ: u64 = 2 * PAGE_BYTES as u64;
/// Fewest sealed segments worth a pass.
const SEGMENTS_MIN: usize = 8;
/// What the segments of a run may take: this part of the shard's memory, and at most so much. There
/// are two, one that is read and one that is appended.
const RUN_PART: u64 = 12;
const RUN_BYTES: u64 = 64 << 20;
/// Part of the shard's memory for the records of a page of a merge, and most bytes of them.
const MERGE_PART: u64 = 32;
const MERGE_BYTES: u64 = 2 << 20;
/// Fewest bytes of a page of the merge that each run gives, about; with less, the merge would read
/// as much in vain as scans do.
const BYTES_OF_RUN_MIN: u64 = 2 * PAGE_BYTES as u64;
/// Fewest segments of a run.
const RUN_SEGMENTS_MIN: u32 = 2;
/// Bytes of a segment looked at in one tick.
const LOOKED_AT: usize = 128 << 10;
/// Slices of a segment read at once.
const AHEAD: u32 = 8;
/// Ticks that a run waits for memory at most; then there is none to be had, and the merge begins.
const TICKS_MAX: u32 = 4096;
/// Pages of a merge that are read at once.
const MERGE_PAGES: u32 = 2;
/// Most keys that a page of a merge passes.
const WALKED_MAX: usize = 4096;
/// Bytes between two records that one read brings.
const GAP_BYTES: u64 = 2 * PAGE_BYTES as u64;

/// What is being put in order.
#[derive(Debug, Default)]
pub(crate) struct Sorter {
    stage: Stage,
    /// Reads that scans have made since the last pass, and would not have made in order.
    excess_reads: u64,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Idle,
    Sort(Box<Sort>),
    Merge(Merge),
}

/// Runs become one order.
#[derive(Debug, Default)]
struct Merge {
    /// Keys behind this one are not walked yet; without one, none is.
    after: Option<Key>,
    /// Nor is any to be walked.
    is_over: bool,
    /// Pages that are being read, and most bytes of one.
    pages: u32,
    page_bytes: u64,
}

/// Segments become runs.
#[derive(Debug, Default)]
struct Sort {
    /// Those that are left, with their generations; the next is the last.
    segments: Vec<(u32, u64)>,
    reader: Option<SegmentReader>,
    /// Where the records of `reader` begin.
    found: Vec<usize>,
    /// Memory of the last segment read.
    spare: Vec<u8>,
    /// The run that is read, and whether it waits for the one before it to be appended.
    run: Run,
    is_complete: bool,
    appending: Run,
    /// Ticks for which there has been no memory, or no segment.
    waited: u32,
    /// What both runs and a segment take, and whether it is there.
    memory_bytes: usize,
    has_memory: bool,
}

/// Records of some segments, by key. Its memory serves all runs of a pass.
#[derive(Debug, Default)]
struct Run {
    /// With their values, in `values`, and where they lie.
    records: BTreeMap<Key, (Meta, Range<usize>, Origin)>,
    values: Vec<u8>,
    segments: u32,
}

impl Run {
    fn clear(&mut self) {
        self.records.clear();
        self.values.clear();
        self.segments = 0;
    }

    /// Adds the records that begin at `found` in what was read of a segment, which begins at offset
    /// `first` on the volume.
    fn add(&mut self, found: &mut Vec<usize>, first: u64, reader: &SegmentReader, effects: &Effects) {
        for at in found.drain(..) {
            let Some((record, _)) = batch::parsed(reader.from(at)) else { continue };
            if record.kind != RecordKind::Value || is_expired(record.meta.expiry, effects) {
                continue;
            }
            let Some(key) = Key::from_encoded(record.key) else { continue };
            let newer = |(other, ..): &(Meta, Range<usize>, Origin)| other.version > record.meta.version;
            if self.records.get(&key).is_some_and(newer) {
                continue;
            }
            let start = self.values.len();
            self.values.extend_from_slice(record.value);
            let addr = RecordAddress::new(first + at as u64, record.bytes() as u32);
            self.records.insert(key, (record.meta, start..self.values.len(), (addr, reader.generation)));
        }
    }

    fn pop(&mut self) -> Option<Reclustered> {
        let (key, (meta, value, origin)) = self.records.pop_first()?;
        let value = Bytes::copy_from_slice(self.values.get(value)?);
        Some(Reclustered::new(key, meta, value, origin))
    }
}

impl Sorter {
    pub(crate) fn is_active(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// A page of a scan has made so many reads for want of order.
    pub(crate) fn scanned(&mut self, excess_reads: u64) {
        if !self.is_active() {
            self.excess_reads += excess_reads;
        }
    }

    /// Bytes it has beside the pool's blocks, or is about to take.
    pub(crate) fn footprint_bytes(&self) -> usize {
        match &self.stage {
            Stage::Idle => 0,
            Stage::Sort(sort) => sort.memory_bytes,
            Stage::Merge(merge) => merge.pages as usize * merge.page_bytes as usize,
        }
    }

    /// Whether a read in flight is in this segment.
    pub(crate) fn pins(&self, number: u32) -> bool {
        let Stage::Sort(sort) = &self.stage else { return false };
        sort.reader.as_ref().is_some_and(|reader| reader.segment == number && reader.in_flight() > 0)
    }

    /// The next record of a run that is to be appended.
    pub(crate) fn next(&mut self) -> Option<Reclustered> {
        let Stage::Sort(sort) = &mut self.stage else { return None };
        sort.appending.pop()
    }

    pub(crate) fn abandon(&mut self) {
        self.stage = Stage::Idle;
    }
}

impl Packed {
    /// Runs and merges take spare segments before they give them back: they leave half of what the
    /// cleaner keeps to users' records.
    fn segments_for_sort(&self) -> u32 {
        let high = self.spare_high();
        self.spare_segments().saturating_sub(LOW + high.saturating_sub(LOW) / 2)
    }

    pub(crate) fn may_sort(&self) -> bool {
        !self.config.read_only
            && self.health.poisoned.is_none()
            && self.health.is_open()
            && self.segments_for_sort() > 0
    }

    /// Begins a pass when it is time, and goes on with the one that is under way.
    pub(crate) fn pump_sorter(&mut self, effects: &mut Effects) {
        match &mut self.placement.sorter.stage {
            Stage::Idle => self.begin_sort(),
            Stage::Sort(sort) => {
                let sort = std::mem::take(sort);
                self.placement.sorter.stage = self.step_sort(sort, effects);
            }
            Stage::Merge(_) => self.step_merge(effects),
        }
    }

    fn begin_sort(&mut self) {
        let live = self.placement.segments.live_bytes();
        let is_due = self.placement.sorter.excess_reads * BYTES_OF_EXCESS_READ >= live.max(1);
        if !is_due || !self.may_sort() || !self.scans_prevail() || !self.is_memory_enough(live) {
            return;
        }
        self.placement.sorter.excess_reads = 0;
        let sealed = self.placement.segments.iter().filter(|(_, segment)| segment.state == State::Sealed);
        let mut segments: Vec<(u32, u64, u32)> =
            sealed.map(|(number, segment)| (segment.live, segment.generation, number)).collect();
        if segments.len() < SEGMENTS_MIN {
            return;
        }
        segments.sort_unstable_by(|a, b| b.cmp(a));
        let segments = segments.into_iter().map(|(_, generation, number)| (number, generation)).collect();
        self.placement.counters.sorts += 1;
        probe!("packed: a log is put in order");
        let memory_bytes = (2 * self.segments_in_memory() + 1) as usize * self.placement.segments.bytes() as usize;
        self.placement.sorter.stage = Stage::Sort(Box::new(Sort { segments, memory_bytes, ..Sort::default() }));
    }

    /// Whether so few runs come of so many bytes that one merge brings them together.
    fn is_memory_enough(&self, live_bytes: u64) -> bool {
        let segments = self.segments_in_memory();
        let count = live_bytes / (u64::from(segments) * u64::from(self.placement.segments.bytes())).max(1);
        segments >= RUN_SEGMENTS_MIN && count * BYTES_OF_RUN_MIN <= merge_bytes(self.config.memory_bytes)
    }

    fn segments_in_memory(&self) -> u32 {
        let bytes = (self.config.memory_bytes / RUN_PART).min(RUN_BYTES);
        (bytes / u64::from(self.placement.segments.bytes())) as u32
    }

    /// Most segments of a run: as the memory has room for, and as there are spare ones beside those
    /// that the run before it takes.
    fn segments_of_run(&self, appending: u32) -> u32 {
        self.segments_in_memory().min(self.segments_for_sort().saturating_sub(appending))
    }

    fn step_sort(&mut self, mut sort: Box<Sort>, effects: &mut Effects) -> Stage {
        if let Some(mut reader) = sort.reader.take() {
            self.placement.counters.sort_read_bytes +=
                self.read_ahead((&mut reader, AHEAD), |slice| LogIoPurpose::Sort { slice }, effects);
            sort.reader = self.look_at(&mut sort, reader, effects);
            return Stage::Sort(sort);
        }
        if !self.health.is_open() || self.health.poisoned.is_some() || !self.scans_prevail() {
            return Stage::Idle;
        }
        if sort.waited > TICKS_MAX {
            return self.merge_all(effects);
        }
        if !sort.has_memory {
            sort.has_memory = self.has_room_for(sort.memory_bytes, effects);
            sort.waited += 1;
            wake_soon(effects);
            return Stage::Sort(sort);
        }
        if sort.appending.records.is_empty() && self.placement.reclusterer.is_empty() {
            sort.appending.clear();
            if std::mem::take(&mut sort.is_complete) {
                std::mem::swap(&mut sort.run, &mut sort.appending);
            }
        }
        if sort.is_complete { Stage::Sort(sort) } else { self.read_next(sort, effects) }
    }

    /// Reads another segment into the run, unless that is complete.
    fn read_next(&mut self, mut sort: Box<Sort>, effects: &mut Effects) -> Stage {
        let room = self.segments_of_run(sort.appending.segments);
        let next = sort.segments.pop_if(|_| sort.run.segments < room);
        let Some((number, generation)) = next else {
            if sort.segments.is_empty() && sort.run.segments == 0 && sort.appending.segments == 0 {
                return self.merge_all(effects);
            }
            sort.is_complete = sort.run.segments > 0;
            if sort.is_complete && sort.appending.segments == 0 {
                effects.more();
            }
            if room == 0 {
                sort.waited += 1;
                self.want_room(effects);
            }
            return Stage::Sort(sort);
        };
        effects.more();
        let segment = self.placement.segments.get(number);
        // Else the cleaner was here.
        if segment.generation == generation && segment.state == State::Sealed && segment.live > 0 {
            sort.waited = 0;
            sort.run.segments += 1;
            if sort.run.values.capacity() == 0 {
                sort.run.values.reserve_exact(sort.memory_bytes / 2);
            }
            let mut bytes = std::mem::take(&mut sort.spare);
            bytes.resize(segment.end as usize * PAGE_BYTES, 0);
            sort.reader = Some(SegmentReader::new(number, generation, bytes));
        }
        Stage::Sort(sort)
    }

    /// Looks at what has been read of a segment; the reader, unless all of it is in the run. What
    /// is dead is not sorted out: it is found to be when it is its turn.
    fn look_at(&mut self, sort: &mut Sort, mut reader: SegmentReader, effects: &mut Effects) -> Option<SegmentReader> {
        let (uuid, pages) = (self.config.uuid, self.placement.segments.pages);
        let mut looked_at = 0;
        while looked_at < LOOKED_AT {
            match reader.next(&uuid, pages) {
                Next::Record(at, len) => {
                    if len <= PAGE_BYTES {
                        sort.found.push(at);
                    }
                    looked_at += len;
                    reader.advance(len);
                }
                Next::NotRead => return Some(reader),
                // What does not check is the cleaner's to tell of; the rest of the segment stays.
                Next::End | Next::Damaged if reader.in_flight() > 0 => return Some(reader),
                Next::End | Next::Damaged => {
                    sort.run.add(&mut sort.found, offset(reader.segment * pages), &reader, effects);
                    sort.spare = reader.into_bytes();
                    if self.space.has_pinned() {
                        self.release_deferred(effects);
                    }
                    effects.more();
                    return None;
                }
            }
        }
        effects.more();
        Some(reader)
    }

    /// A slice of a segment that becomes part of a run has been read.
    pub(crate) fn sort_read(&mut self, slice: u32, block: &Block, result: Result<(), IoFault>, effects: &mut Effects) {
        let Stage::Sort(sort) = &mut self.placement.sorter.stage else { return };
        let Some(reader) = &mut sort.reader else { return };
        reader.arrived(slice, block, result);
        let segment = reader.segment;
        self.note_segment_read(segment, result);
        effects.more();
    }

    fn merge_all(&self, effects: &mut Effects) -> Stage {
        effects.more();
        Stage::Merge(Merge { page_bytes: merge_bytes(self.config.memory_bytes), ..Merge::default() })
    }

    /// Asks for pages of the merge as long as there is room for them. A page that lies in memory is
    /// there at once: so the state stays where [`Packed::merge_read`] finds it.
    fn step_merge(&mut self, effects: &mut Effects) {
        let goes_on = self.health.is_open() && self.health.poisoned.is_none() && self.scans_prevail();
        while let Stage::Merge(merge) = &mut self.placement.sorter.stage {
            merge.is_over |= !goes_on;
            let (pages, is_over, after) = (merge.pages, merge.is_over, merge.after.clone());
            let room = merge.page_bytes;
            if is_over && pages == 0 {
                self.placement.sorter.stage = Stage::Idle;
            }
            if is_over || pages >= MERGE_PAGES || self.placement.reclusterer.bytes() as u64 > room {
                return;
            }
            if !self.may_sort() {
                return self.want_room(effects);
            }
            let page = self.walk(after.as_ref(), room);
            let is_apart = !lie_together(&page.places);
            if let Stage::Merge(merge) = &mut self.placement.sorter.stage {
                (merge.is_over, merge.after) = (page.next.is_none(), page.next);
                merge.pages += u32::from(is_apart);
            }
            if !is_apart {
                return effects.more();
            }
            probe!("packed: sorted runs are merged", self.placement.counters.sorted_bytes > 0);
            self.scan_for_merge(page.keys, page.places, effects);
        }
    }

    /// There is no segment to be had: what passes have left waits for a flush, if nobody else asks
    /// for one.
    fn want_room(&mut self, effects: &mut Effects) {
        if self.space.deferred_pages() > 0 {
            self.groups.want(self.space.deferred_waits_for().unwrap_or_default());
            wake_soon(effects);
        }
    }

    /// The keys behind `after` with records of `bytes_max` or some more, but for long ones: those
    /// take a read each wherever they are.
    fn walk(&self, after: Option<&Key>, bytes_max: u64) -> Walked {
        let mut walked = Walked::default();
        let (mut bytes, mut seen) = (0, 0);
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.encoded()));
        let to = before_engine_keys(Bound::Unbounded);
        self.index.tree.scan(from, encoded(&to), false, &mut |key, entry| {
            seen += 1;
            if let LogPlace::Record(addr) = LogPlace::from_bits(entry.place)
                && is_small(addr)
            {
                bytes += u64::from(addr.bytes());
                walked.keys.extend(Key::from_encoded(key));
                walked.places.push(Some(entry.place));
            }
            if seen < WALKED_MAX && bytes < bytes_max {
                return ControlFlow::Continue(());
            }
            walked.next = Key::from_encoded(key);
            ControlFlow::Break(())
        });
        walked
    }

    /// A page of the merge has been read; without records, if that failed.
    pub(crate) fn merge_read(&mut self, records: &[Scanned<'_, Log>], effects: &mut Effects) {
        if let Stage::Merge(merge) = &mut self.placement.sorter.stage {
            merge.pages -= 1;
        }
        for (key, record, origin) in records {
            if let Some(copy) = to_be_appended(key, record, *origin, effects) {
                self.placement.reclusterer.push(copy);
            }
        }
        effects.more();
    }
}

/// Keys of a page of the merge, in order, and where their records lie.
#[derive(Default)]
struct Walked {
    keys: Vec<Key>,
    places: Vec<Option<u64>>,
    /// The next page begins behind this key.
    next: Option<Key>,
}

/// Bytes of a page of the merge.
fn merge_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / MERGE_PART).min(MERGE_BYTES)
}

/// Whether records at these places, in the order of their keys, are read together.
fn lie_together(places: &[Option<u64>]) -> bool {
    let (mut last, mut apart) = (None, 0);
    for place in places.iter().flatten() {
        let LogPlace::Record(addr) = LogPlace::from_bits(*place) else { continue };
        let near = |last: RecordAddress| addr.at >= last.at && addr.at <= last.at + u64::from(last.bytes()) + GAP_BYTES;
        apart += usize::from(!last.is_some_and(near));
        last = Some(addr);
    }
    apart * RECORDS_OF_READ_MIN <= places.len() + RECORDS_OF_READ_MIN
}
