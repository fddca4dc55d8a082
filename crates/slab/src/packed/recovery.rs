//! Recovery's judgement of a log: which batches hold, and which record of each key. No I/O.
//!
//! docs/format-packed.md argues why that is right.

use std::ops::{Bound, ControlFlow};

use foldhash::{HashMap, HashMapExt};
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Corruption, Key, fault_point};
use stratakv_index::{Builder, IndexEntry};

use super::addr::{self, RecordAddress};
use super::batch::{BatchEntry, RecordKind, Stream, records};
use super::checkpoint::format::KeyEntry;
use super::checkpoint::load::{Keys, Loaded, LogOpening, is_valid};
use super::segments::State;
use super::table::{SegmentKind, SegmentTable, TableEntry, ZONE_SEGMENTS};
use super::tables::table_page;
use super::walk::{BatchAt, latest_generation, next_batch};
use super::{Log, LogPlace};
use crate::check::Digest;
use crate::index::Index;
use crate::opener::Range;
use crate::place::Address;
use crate::place::RecordPlace;
use crate::record;
use crate::recovery::{REPORTED_MAX, RecoveredShard, Unread, WHOLE_VOLUME};
use crate::space::{Extent, FIRST_PAGE, Space};

/// A batch as found.
#[derive(Debug)]
struct FoundBatch {
    segment: u32,
    at: BatchAt,
    /// Every record checks, and they are those of the header.
    sound: bool,
    holds: bool,
}

/// A record as found.
#[derive(Debug)]
struct Candidate {
    key_at: usize,
    key_len: u32,
    batch: u32,
    expiry: u64,
    version: u64,
    kind: RecordKind,
    at: u64,
    bytes: u32,
    damaged: bool,
}

/// A copy of a table.
#[derive(Debug)]
enum Copy {
    Good(SegmentTable),
    Blank,
    Bad,
}

/// Whose log it is, and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogGeometry {
    pub(crate) uuid: [u8; 16],
    pub(crate) shard: u32,
    /// Of the volume.
    pub(crate) pages: u32,
    pub(crate) segment_pages: u32,
}

/// Takes the pages of a volume in order.
#[derive(Debug)]
pub(crate) struct LogScanner {
    log: LogGeometry,
    durable: u64,
    last_number: u64,
    first_copy: Option<Copy>,
    zones: Vec<(SegmentTable, u32, bool)>,
    /// The table of this zone is lost.
    lost: bool,
    segment: Vec<u8>,
    batches: Vec<FoundBatch>,
    keys: Vec<u8>,
    candidates: Vec<Candidate>,
    corrupt: Vec<Corruption>,
    /// Pages where no batch is in front of one, with the sequence of that one.
    gaps: Vec<(u32, u64)>,
    /// Where the batches begin that a checkpoint does not know, by segment.
    newer_from: HashMap<u32, u32>,
    repaired: bool,
    unread: Unread,
}

impl LogScanner {
    pub(crate) fn new(log: LogGeometry, durable: u64) -> LogScanner {
        LogScanner {
            log,
            durable,
            last_number: 0,
            first_copy: None,
            zones: Vec::new(),
            lost: false,
            segment: Vec::new(),
            batches: Vec::new(),
            keys: Vec::new(),
            candidates: Vec::new(),
            corrupt: Vec::new(),
            gaps: Vec::new(),
            newer_from: HashMap::new(),
            repaired: false,
            unread: Unread::default(),
        }
    }

    /// Looks at the next page.
    pub(crate) fn page(&mut self, number: u32, page: &[u8]) {
        if number >= self.log.pages {
            return;
        }
        let within = number % (ZONE_SEGMENTS * self.log.segment_pages);
        if within == FIRST_PAGE || within == FIRST_PAGE + 1 {
            self.table_copy(number, within - FIRST_PAGE, page);
        }
        if within < self.log.segment_pages {
            return;
        }
        self.segment.extend_from_slice(page);
        if (number + 1).is_multiple_of(self.log.segment_pages) {
            let mut bytes = std::mem::take(&mut self.segment);
            self.segment(number / self.log.segment_pages, &mut bytes);
            bytes.clear();
            self.segment = bytes;
        }
    }

    /// A slice cannot be read; zeros are given for it.
    pub(crate) fn unreadable(&mut self, page: u32) {
        self.unread.add(page);
        self.damage(page, "slice", "64 KiB that can be read".into(), "a device error".into());
    }

    fn damage(&mut self, page: u32, what: &'static str, expected: String, found: String) {
        let place = stratakv_base::Place { shard: self.log.shard, offset_bytes: u64::from(page) * PAGE_BYTES as u64 };
        if self.corrupt.len() < REPORTED_MAX {
            self.corrupt.push(Corruption { place, what, expected, found });
        }
    }

    fn table_copy(&mut self, number: u32, copy: u32, page: &[u8]) {
        let found = match SegmentTable::decode(&self.log.uuid, number, page) {
            Some(table) => Copy::Good(table),
            None if page.iter().all(|byte| *byte == 0) => Copy::Blank,
            None => Copy::Bad,
        };
        if copy == 0 {
            self.first_copy = Some(found);
            return;
        }
        let first = self.first_copy.take().unwrap_or(Copy::Bad);
        self.lost = false;
        self.repaired |= matches!((&first, &found), (Copy::Good(_), Copy::Bad) | (Copy::Bad, Copy::Good(_)));
        let chosen = match (first, found) {
            (Copy::Good(first), Copy::Good(second)) if first == second => (first, 0, true),
            (Copy::Good(first), Copy::Good(second)) if first.counter > second.counter => (first, 0, false),
            (_, Copy::Good(second)) => (second, 1, false),
            (Copy::Good(first), _) => (first, 0, false),
            (Copy::Blank, Copy::Blank) => (SegmentTable::blank(), 0, true),
            // The very first write of a table was torn.
            (Copy::Blank, Copy::Bad) => (SegmentTable::blank(), 0, false),
            (Copy::Bad, Copy::Blank) => (SegmentTable::blank(), 1, false),
            (Copy::Bad, Copy::Bad) => {
                self.lost = true;
                let expected = "a copy that checks (segments are judged by what they hold)".into();
                self.damage(number - 1, "segment table, in both copies,", expected, "neither does".into());
                (SegmentTable::blank(), 0, false)
            }
        };
        self.durable = self.durable.max(chosen.0.durable);
        let latest = chosen.0.entries.iter().map(|entry| entry.generation).max();
        self.last_number = self.last_number.max(latest.unwrap_or_default());
        self.zones.push(chosen);
    }

    fn generation_of(&mut self, number: u32, bytes: &[u8]) -> Option<u64> {
        let first = number * self.log.segment_pages;
        let (zone, entry) = ((number / ZONE_SEGMENTS) as usize, (number % ZONE_SEGMENTS) as usize);
        if self.lost {
            let generation = latest_generation(&self.log.uuid, first, bytes)?;
            if let Some(entry) = self.zones.get_mut(zone).and_then(|(table, ..)| table.entries.get_mut(entry)) {
                (entry.kind, entry.generation) = (SegmentKind::Log, generation);
            }
            return Some(generation);
        }
        let entry = self.zones.get(zone)?.0.entries.get(entry)?;
        (entry.kind == SegmentKind::Log).then_some(entry.generation)
    }

    /// Finds the batches of a segment and their records.
    fn segment(&mut self, number: u32, bytes: &mut [u8]) {
        let Some(generation) = self.generation_of(number, bytes) else { return };
        let uuid = self.log.uuid;
        let first = number * self.log.segment_pages;
        let mut page = 0;
        while let Some(batch) = next_batch(&uuid, first, generation, bytes, page) {
            let header = batch.header;
            self.durable = self.durable.max(header.durable);
            self.last_number = self.last_number.max(header.sequence).max(header.version_max);
            if batch.page != page {
                // Whether that is damage is known when the durable mark is.
                self.gaps.push((first + page, header.sequence));
            }
            let index = self.batches.len() as u32;
            let at = (u64::from(first) * PAGE_BYTES as u64) + batch.records().start as u64;
            let Some(region) = bytes.get_mut(batch.records()) else { return };
            let (keys, candidates) = (&mut self.keys, &mut self.candidates);
            let sound = records(&uuid, at, generation, header.records_crc, region, |entry| {
                let BatchEntry::Record { record, start, bytes, damaged, mended } = entry else { return };
                if Key::from_encoded(record.key).is_none() || bytes > addr::RECORD_BYTES_MAX as usize {
                    return;
                }
                let key_at = keys.len();
                keys.extend_from_slice(record.key);
                candidates.push(Candidate {
                    key_at,
                    key_len: record.key.len() as u32,
                    batch: index,
                    expiry: record.meta.expiry,
                    // Of a damaged one, no more than its batch had.
                    version: record.meta.version.min(header.version_max),
                    // A large one that is not sure of its blob is read as what it is: damaged.
                    kind: if damaged && !mended { RecordKind::Value } else { record.kind },
                    at: at + start as u64,
                    bytes: bytes as u32,
                    damaged,
                });
            });
            self.batches.push(FoundBatch { segment: number, at: batch, sound, holds: false });
            page = batch.page + header.pages;
        }
    }

    /// Segments that the tables call those of checkpoints, with their generations.
    pub(crate) fn segments_of_checkpoints(&self) -> Vec<(u32, u64)> {
        let all = self.entries().filter(|(_, entry)| entry.kind == SegmentKind::Checkpoint);
        all.map(|(number, entry)| (number, entry.generation)).collect()
    }

    /// Whole segments and what the tables say of them.
    fn entries(&self) -> impl Iterator<Item = (u32, TableEntry)> {
        let whole = self.log.pages / self.log.segment_pages;
        let zones = (0u32..).zip(&self.zones).flat_map(|(zone, (table, ..))| {
            (0u32..).zip(&table.entries).map(move |(entry, found)| (zone * ZONE_SEGMENTS + entry, *found))
        });
        zones.filter(move |(number, _)| *number < whole && !LogOpening::is_first_of_zone(*number))
    }

    /// Nothing was found damaged so far.
    pub(crate) fn is_sound(&self) -> bool {
        self.corrupt.is_empty()
    }

    /// What is to be read besides a checkpoint: the segments of the log that it does not cover.
    pub(crate) fn ranges_beside(&self, checkpoint: &Loaded) -> Vec<Range> {
        let mut covered: Vec<(u32, u64)> = checkpoint.covered.iter().map(|(mark, item)| (item.number, *mark)).collect();
        covered.sort_unstable();
        let log = self.entries().filter(|(_, entry)| entry.kind == SegmentKind::Log);
        let beside = log.filter(|(number, entry)| {
            let found = covered.binary_search_by_key(number, |(number, _)| *number).ok();
            let mark = found.and_then(|at| covered.get(at)).map(|(_, mark)| *mark);
            mark.is_none_or(|mark| !is_valid(entry.kind, entry.generation, mark))
        });
        beside.map(|(number, _)| (number * self.log.segment_pages, self.log.segment_pages)).collect()
    }

    /// Decides which batches hold; pages of void ones are returned, to be zeroed.
    fn cut(&mut self) -> Vec<u32> {
        let durable = self.durable;
        let mut above: Vec<usize> = Vec::new();
        for index in 0..self.batches.len() {
            let (sequence, whole, page) = {
                let batch = &self.batches[index];
                (
                    batch.at.header.sequence,
                    batch.sound && batch.at.both,
                    batch.segment * self.log.segment_pages + batch.at.page,
                )
            };
            if sequence > durable {
                above.push(index);
                continue;
            }
            self.batches[index].holds = true;
            let pages = self.batches[index].at.header.pages;
            if !whole && !self.unread.meets(page, pages) {
                let expected = format!("the batch of sequence {sequence:x}, whole");
                self.damage(page, "batch", expected, "headers or records that do not check".into());
            }
        }
        for (page, next) in std::mem::take(&mut self.gaps) {
            if next <= durable {
                self.damage(page, "batch", format!("one before that of sequence {next:x}"), "none".into());
            }
        }
        above.sort_by_key(|index| self.batches[*index].at.header.sequence);
        let mut last = durable;
        let mut torn = Vec::new();
        let mut void = false;
        for index in above {
            let batch = &mut self.batches[index];
            let header = batch.at.header;
            let mut follows = header.previous == last || (last == durable && header.previous <= durable);
            fault_point!("batches_after_a_torn_one_hold", follows = true);
            let mut whole = batch.sound && batch.at.both;
            fault_point!("torn_batch_holds", whole = true);
            void |= !(follows && whole);
            batch.holds = !void;
            last = header.sequence;
            if void {
                let first = batch.segment * self.log.segment_pages + batch.at.page;
                torn.extend([first, first + header.pages - 1]);
            }
        }
        torn.dedup();
        torn
    }

    /// All pages were given: decides.
    pub(crate) fn finish(mut self, digest: Option<u64>) -> (RecoveredShard<Log>, bool) {
        let torn_places = self.cut();
        let (mut found, _) = self.place(torn_places, None);
        if digest.is_some_and(|digest| digest != log_digest(&found.placement, &found.index)) {
            let found = "another set: some are lost or outdated".into();
            self.damage(0, WHOLE_VOLUME, "the batches of the last orderly close".into(), found);
        }
        found.report.corrupt = self.corrupt;
        (found, self.repaired)
    }

    /// All pages that a checkpoint does not cover were given. `None`: they, or the checkpoint, make
    /// no sense; everything must be read.
    pub(crate) fn finish_with(
        mut self,
        checkpoint: &Loaded,
        digest: Option<u64>,
    ) -> Option<(RecoveredShard<Log>, bool)> {
        self.durable = self.durable.max(checkpoint.root.durable);
        self.last_number = self.last_number.max(checkpoint.root.mark);
        let torn_places = self.cut();
        let (found, fits) = self.place(torn_places, Some(checkpoint));
        let same = digest.is_none_or(|digest| digest == log_digest(&found.placement, &found.index));
        (fits && same && self.corrupt.is_empty()).then_some((found, self.repaired))
    }

    /// Puts together what was found; false if the checkpoint does not fit.
    fn place(&mut self, torn_places: Vec<u32>, checkpoint: Option<&Loaded>) -> (RecoveredShard<Log>, bool) {
        let segment_pages = self.log.segment_pages;
        let empty = (Log::new(segment_pages), Space::with_segments(segment_pages));
        let mut found = RecoveredShard::empty(empty, self.log.pages);
        found.last_number = self.last_number;
        found.report.clean = false;
        found.report.torn = self.batches.iter().filter(|batch| !batch.holds).count() as u64;
        found.torn_places = torn_places;
        fault_point!("void_batches_stay", found.torn_places.clear());
        let mut packed = Log::new(self.log.segment_pages);
        self.place_segments(&mut packed, &mut found.space);
        let mut fits =
            checkpoint.is_none_or(|checkpoint| self.place_checkpoint(checkpoint, &mut packed, &mut found.space));
        let start = checkpoint.map_or(0, |checkpoint| checkpoint.root.start);
        let newer = self.batches.iter().filter(|batch| batch.holds && batch.at.header.sequence > start);
        packed.checkpoints.log_bytes = newer.map(|batch| u64::from(batch.at.header.pages) * PAGE_BYTES as u64).sum();
        fits &= self.place_records(&mut packed, &mut found, checkpoint);
        self.free_the_rest(&mut packed, &mut found.space);
        packed.last_sequence = self.last_number;
        found.report.records = found.index.tree.len() as u64;
        found.report.pages = packed.segments.iter().map(|(_, segment)| u64::from(segment.end)).sum();
        found.placement = packed;
        (found, fits)
    }

    /// The segments of a checkpoint, and those it covers; false if they make no sense.
    fn place_checkpoint(&self, checkpoint: &Loaded, packed: &mut Log, space: &mut Space) -> bool {
        for (mark, item) in &checkpoint.covered {
            let entry = packed.tables.durable(item.number);
            if !is_valid(entry.kind, entry.generation, *mark) {
                continue;
            }
            let tombstones = item.tombstones.iter().map(|one| packed.segments.written_tombstone(item.number, *one));
            let Some(tombstones) = tombstones.collect::<Option<Vec<_>>>() else { return false };
            if item.end > self.log.segment_pages || packed.segments.get(item.number).end > 0 {
                return false;
            }
            if let Some(segment) = packed.segments.get_mut(item.number) {
                segment.end = item.end;
            }
            for tombstone in tombstones {
                if packed.segments.counts(tombstone) {
                    return false;
                }
                packed.segments.add_live(tombstone, true);
            }
        }
        for (number, _) in &checkpoint.root.segments {
            if !space.occupy(self.extent(*number), false) {
                return false;
            }
            packed.segments.set_state(*number, State::Checkpoint);
            packed.segments.reset(*number, packed.tables.durable(*number).generation);
            packed.checkpoints.current.push(*number);
        }
        true
    }

    /// Segments as the tables have them, with the batches that hold.
    fn place_segments(&mut self, packed: &mut Log, space: &mut Space) {
        packed.segments.extend(self.log.pages);
        for (zone, (table, good, both)) in (0u32..).zip(std::mem::take(&mut self.zones)) {
            space.occupy(Extent { first: table_page(zone, self.log.segment_pages), pages: 2 }, true);
            for (entry, found) in (0u32..).zip(&table.entries) {
                let number = zone * ZONE_SEGMENTS + entry;
                let whole = (number + 1).checked_mul(self.log.segment_pages).is_some_and(|end| end <= self.log.pages);
                if found.kind != SegmentKind::Log || !whole {
                    continue;
                }
                packed.segments.set_on_medium(number, None, Some(found.generation));
                packed.segments.set_state(number, State::Sealed);
                packed.segments.reset(number, found.generation);
                space.occupy(self.extent(number), false);
            }
            packed.tables.add(table, good, both);
        }
        let mut last: [Option<(u64, u32)>; 2] = [None; 2];
        for batch in self.batches.iter().filter(|batch| batch.holds) {
            let header = batch.at.header;
            if let Some(segment) = packed.segments.get_mut(batch.segment) {
                segment.end = segment.end.max(batch.at.page + header.pages);
            }
            let last = &mut last[header.stream as usize];
            *last = (*last).max(Some((header.sequence, batch.segment)));
        }
        for (stream, last) in [Stream::Hot, Stream::Cold].into_iter().zip(last) {
            if let Some((_, number)) = last
                && packed.segments.get(number).end < self.log.segment_pages
                && packed.segments.get(number).state == State::Sealed
            {
                packed.segments.set_open(stream, number);
            }
        }
    }

    fn extent(&self, number: u32) -> Extent {
        Extent { first: number * self.log.segment_pages, pages: self.log.segment_pages }
    }

    /// The record of each key that holds; false if the checkpoint does not fit.
    fn place_records(
        &mut self,
        packed: &mut Log,
        found: &mut RecoveredShard<Log>,
        checkpoint: Option<&Loaded>,
    ) -> bool {
        let (keys, batches) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.batches));
        self.newer_from = checkpoint.map(|checkpoint| newer_from(&batches, checkpoint.root.start)).unwrap_or_default();
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.retain(|candidate| batches[candidate.batch as usize].holds);
        let key_of = |candidate: &Candidate| &keys[candidate.key_at..][..candidate.key_len as usize];
        let sequence = |candidate: &Candidate| batches[candidate.batch as usize].at.header.sequence;
        if let Some(checkpoint) = checkpoint {
            // What it knows of: batches up to its start, and later copies of tombstones from there,
            // which may lie behind a newer record of their key. The tombstones may still be needed.
            let start = checkpoint.root.start;
            let is_known =
                |candidate: &Candidate| matches!(candidate.kind, RecordKind::Deleted { appended } if appended <= start);
            candidates.retain(|candidate| {
                let known = sequence(candidate) <= start || is_known(candidate);
                if known && matches!(candidate.kind, RecordKind::Deleted { .. }) {
                    packed.segments.add_live(RecordAddress::new(candidate.at, candidate.bytes), true);
                }
                !known
            });
        }
        candidates.sort_unstable_by(|a, b| {
            let newer = b.version.cmp(&a.version).then(a.damaged.cmp(&b.damaged)).then(sequence(b).cmp(&sequence(a)));
            key_of(a).cmp(key_of(b)).then(newer)
        });
        fault_point!("oldest_record_of_a_log_wins", {
            candidates.sort_unstable_by(|a, b| key_of(a).cmp(key_of(b)).then(a.version.cmp(&b.version)));
        });
        let mut builder = Builder::new();
        let mut entries = checkpoint.map(Loaded::keys);
        let mut fits = true;
        for group in candidates.chunk_by(|a, b| key_of(a) == key_of(b)) {
            let Some(top) = group.first() else { continue };
            fits &= self.place_entries(&mut entries, Some(key_of(top)), packed, found, &mut builder);
            let addr = |candidate: &Candidate| RecordAddress::new(candidate.at, candidate.bytes);
            // One that names its blob is damaged where no get looks: the blob says itself whose it
            // is.
            let first = (top.at / PAGE_BYTES as u64) as u32;
            let is_unread = self.unread.meets(first, top.bytes.div_ceil(PAGE_BYTES as u32) + 1);
            if top.damaged && matches!(top.kind, RecordKind::Value) && !is_unread {
                found.report.lose(key_of(top));
            }
            match top.kind {
                RecordKind::Deleted { .. } => {
                    let own = packed.segments.of(addr(top));
                    let older = |other: &&Candidate| !matches!(other.kind, RecordKind::Deleted { .. });
                    let mut older = group.iter().filter(older);
                    // What a checkpoint covers was not read: it may be there.
                    let mut needed = checkpoint.is_some() || older.any(|other| packed.segments.of(addr(other)) != own);
                    fault_point!("tombstones_forgotten_at_recovery", needed = false);
                    if needed {
                        packed.segments.add_live(addr(top), true);
                    }
                }
                RecordKind::Value => {
                    let entry = KeyEntry { addr: addr(top), expiry: top.expiry, large: None };
                    self.place_key(key_of(top), &entry, packed, found, &mut builder);
                }
                RecordKind::Large { blob, .. } => {
                    let large = Some((blob, record::tag(top.version)));
                    let entry = KeyEntry { addr: addr(top), expiry: top.expiry, large };
                    if !self.place_key(key_of(top), &entry, packed, found, &mut builder) {
                        let expected = "pages of its own for each large value".into();
                        self.damage(blob.first, "large value", expected, format!("{} pages in use", blob.pages));
                    }
                }
            }
        }
        fits &= self.place_entries(&mut entries, None, packed, found, &mut builder);
        found.index = Index::new(builder.finish(), found.expiring);
        let entries_max = checkpoint.map_or(0, |checkpoint| checkpoint.root.entries);
        fits && entries.is_none_or(|entries| !entries.is_broken && entries.count == entries_max)
    }

    /// The entries of a checkpoint up to a key that has a newer record, or all; false if one of
    /// them makes no sense.
    fn place_entries(
        &self,
        entries: &mut Option<Keys<'_>>,
        to: Option<&[u8]>,
        packed: &mut Log,
        found: &mut RecoveredShard<Log>,
        builder: &mut Builder,
    ) -> bool {
        let Some(entries) = entries else { return true };
        let mut fits = true;
        while let Some((mark, entry)) = entries.entry.filter(|_| to.is_none_or(|to| entries.key.as_slice() <= to)) {
            let number = packed.segments.of(entry.addr);
            let table = packed.tables.durable(number);
            let is_newer = to == Some(entries.key.as_slice());
            if !is_newer && is_valid(table.kind, table.generation, mark) {
                fits &= self.names_a_record(entry.addr, number, packed)
                    && self.place_key(&entries.key, &entry, packed, found, builder);
            }
            entries.advance();
        }
        fits
    }

    /// What an entry names lies in a batch up to the checkpoint's start. On a disk that loses what
    /// it acknowledged, another batch may be there.
    fn names_a_record(&self, addr: RecordAddress, number: u32, packed: &Log) -> bool {
        let within = addr.at.saturating_sub(u64::from(number) * u64::from(self.log.segment_pages) * PAGE_BYTES as u64);
        let ends = within.saturating_add(u64::from(addr::BYTES_MIN)).div_ceil(PAGE_BYTES as u64);
        let newer = self.newer_from.get(&number).copied().unwrap_or(self.log.segment_pages);
        addr.to_bits() >> 40 != 0 && ends <= u64::from(packed.segments.get(number).end.min(newer))
    }

    /// Puts a key into the index; false if the pages of its blob are taken.
    fn place_key(
        &self,
        key: &[u8],
        entry: &KeyEntry,
        packed: &mut Log,
        found: &mut RecoveredShard<Log>,
        builder: &mut Builder,
    ) -> bool {
        let mut place = RecordPlace::Record(entry.addr);
        if let Some((blob, tag)) = entry.large {
            let end = blob.first.checked_add(blob.pages);
            let fits = blob.pages < crate::blob::PAGES_MAX && end.is_some_and(|end| end <= self.log.pages);
            if !fits || !found.space.occupy(blob, true) {
                return false;
            }
            place = RecordPlace::Blob { first: blob.first, pages: blob.pages };
            packed.pointers.insert(blob.first, entry.addr);
            found.blob_pages += u64::from(blob.pages);
            found.blob_tags.insert(blob.first, tag);
            found.report.blobs += 1;
        }
        packed.segments.add_live(entry.addr, false);
        found.expiring += u64::from(entry.expiry != 0);
        builder.push(key, IndexEntry { place: place.to_bits(), expiry: entry.expiry });
        true
    }

    /// Segments without live records are free; those without any are ready.
    fn free_the_rest(&self, packed: &mut Log, space: &mut Space) {
        let numbers: Vec<u32> = packed.segments.iter().map(|(number, _)| number).collect();
        for number in numbers {
            let segment = packed.segments.get(number);
            if segment.state != State::Sealed || segment.live > 0 {
                continue;
            }
            if segment.end == 0 {
                packed.segments.set_state(number, State::Ready);
                packed.segments.ready.push_back(number);
            } else {
                packed.segments.set_state(number, State::Free);
                space.release(self.extent(number));
            }
        }
    }
}

/// Of each segment with a batch above `start`, whether that holds or not, the first page of the
/// first of them.
fn newer_from(batches: &[FoundBatch], start: u64) -> HashMap<u32, u32> {
    let mut first = HashMap::new();
    for batch in batches.iter().filter(|batch| batch.at.header.sequence > start) {
        let page = first.entry(batch.segment).or_insert(batch.at.page);
        *page = batch.at.page.min(*page);
    }
    first
}

impl RecoveredShard<Log> {
    /// How what a checkpoint gave differs from what a scan of everything did.
    pub(crate) fn differs_from(&self, scanned: &RecoveredShard<Log>) -> Option<String> {
        let (mine, other) = (&self.placement, &scanned.placement);
        let mut differs = None;
        if self.index.tree.len() != scanned.index.tree.len() {
            differs = Some(format!("{} keys instead of {}", self.index.tree.len(), scanned.index.tree.len()));
        }
        scanned.index.tree.scan(Bound::Unbounded, Bound::Unbounded, false, &mut |key, entry| {
            let found = self.index.tree.get(key);
            if found == Some(entry) {
                return ControlFlow::Continue(());
            }
            let found = found.map(|entry| (LogPlace::from_bits(entry.place), entry.expiry));
            let place = LogPlace::from_bits(entry.place);
            differs = Some(format!("{} at {found:?} instead of {place:?}, {}", key.escape_ascii(), entry.expiry));
            ControlFlow::Break(())
        });
        if mine.pointers != other.pointers || self.blob_tags != scanned.blob_tags {
            differs = differs.or(Some("other large values".into()));
        }
        for ((number, mine), (_, other)) in mine.segments.iter().zip(other.segments.iter()) {
            let same = mine.live - mine.tombstones == other.live - other.tombstones;
            // Tombstones that nothing needs may count a little longer.
            if !same || mine.tombstones < other.tombstones {
                differs = differs.or(Some(format!("segment {number} is {mine:?} instead of {other:?}")));
            }
        }
        differs
    }
}

/// A sum over the batches and blobs of the durable state.
pub(crate) fn log_digest(log: &Log, index: &Index) -> u64 {
    let mut digest = Digest::default();
    for (number, segment) in log.segments.iter().filter(|(_, segment)| segment.end > 0) {
        if log.tables.durable(number).kind == SegmentKind::Log {
            digest.page(number, record::tag(segment.generation) ^ segment.end);
        }
    }
    index.blobs(|first| digest.blob(first));
    digest.sum()
}
