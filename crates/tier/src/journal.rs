//! The journal of invalidations: what was on the volume and is overwritten, deleted or flushed, so
//! that a recovery does not take it for the newest.
//!
//! A write that makes a copy on the volume stale is answered when its record was written. Two
//! *tail* pages are written in turn, with all records since the last full page of the *ring*. When
//! the ring is full its oldest page is given up, and with it the segments that its records may
//! speak of: they go on serving, but a recovery does not trust them.

use std::collections::VecDeque;

use foldhash::{HashMap, HashMapExt};
use stratakv_base::Mono;
use stratakv_base::checksum::{crc32c, seed};
use stratakv_base::codec::{Reader, Truncated, Writer};
use stratakv_base::limits::PAGE_BYTES;
use stratakv_device::IoFault;

use crate::index::Tag;
use crate::journal_group::{GroupProgress, JournalGroup, Page};

const MAGIC: u64 = u64::from_le_bytes(*b"STRTIERJ");
const CRC_AT: usize = PAGE_BYTES - 4;
const RECORD_BYTES: usize = 16;
/// Records of a page of the ring.
pub(crate) const RING_RECORDS: usize = (CRC_AT - 32) / RECORD_BYTES;
/// Flushed ranges of collections that are told apart; more become one.
pub(crate) const FLUSH_WATERMARKS_MAX: usize = 32;
const FLOOR_BYTES: usize = 16;
/// Records of a tail page.
pub(crate) const TAIL_RECORDS: usize = (CRC_AT - 96 - FLUSH_WATERMARKS_MAX * FLOOR_BYTES) / RECORD_BYTES;

/// What is on the volume with this tag and a version below this one is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) tag: Tag,
    pub(crate) version: u64,
}

/// Collections from `first` to `last` were flushed: items with a version below this one are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlushWatermark {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) version: u64,
}

impl FlushWatermark {
    /// Whether an item of this collection with this version is gone.
    pub(crate) fn covers(&self, collection: u32, version: u64) -> bool {
        (self.first..=self.last).contains(&collection) && version < self.version
    }
}

/// What a tail page says besides records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    /// Counts tail pages; the higher one holds.
    pub(crate) number: u64,
    /// The first page of the ring that counts, by position.
    pub(crate) first: u64,
    /// The position of the next one.
    pub(crate) next: u64,
    /// Segments up to this order are not trusted after a crash.
    pub(crate) untrusted: u64,
    /// Segments below this order are gone.
    pub(crate) low: u64,
    /// Where the segment of order `low`, or a later one, begins: a page of the volume.
    pub(crate) low_page: u64,
    /// No segment that a record may speak of has a higher order.
    pub(crate) newest: u64,
    /// The opening that wrote the first tail of this life found no segment after this one, and its
    /// own have at least this order: what lies between was passed over, and does not count if it
    /// can be read after all.
    pub(crate) ends: u64,
    pub(crate) since: u64,
    pub(crate) flush_watermarks: Vec<FlushWatermark>,
    pub(crate) records: Vec<Record>,
}

fn encode_records(writer: &mut Writer<'_>, records: &[Record]) {
    for record in records {
        writer.u64(record.tag.bits()).u64(record.version);
    }
}

fn decode_records(reader: &mut Reader<'_>, count: u32, max: usize) -> Result<Vec<Record>, Truncated> {
    let record = |_| Ok(Record { tag: Tag::from_bits(reader.u64()?), version: reader.u64()? });
    (0..count.min(max as u32)).map(record).collect()
}

/// Seals a page that is written to this page of the volume.
fn seal(uuid: &[u8; 16], page: u64, bytes: &mut [u8]) {
    let crc = crc32c(seed(uuid, page, MAGIC), &bytes[..CRC_AT]);
    Writer::new(&mut bytes[CRC_AT..]).u32(crc);
}

fn is_sealed(uuid: &[u8; 16], page: u64, bytes: &[u8]) -> Option<bool> {
    let crc = Reader::new(bytes.get(CRC_AT..)?).u32().ok()?;
    Some(crc == crc32c(seed(uuid, page, MAGIC), bytes.get(..CRC_AT)?))
}

impl Tail {
    /// As the bytes of this page of the volume.
    pub(crate) fn encode(&self, uuid: &[u8; 16], page: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        let mut writer = Writer::new(bytes);
        writer.u64(MAGIC).u32(self.flush_watermarks.len() as u32).u32(self.records.len() as u32).u64(self.number);
        writer.u64(self.first).u64(self.next).u64(self.untrusted).u64(self.low).u64(self.low_page).u64(self.newest);
        writer.u64(self.ends).u64(self.since);
        for flush_watermark in &self.flush_watermarks {
            writer.u32(flush_watermark.first).u32(flush_watermark.last).u64(flush_watermark.version);
        }
        encode_records(&mut writer, &self.records);
        seal(uuid, page, bytes);
    }

    /// From the bytes of this page of the volume; `None` if there is none.
    pub(crate) fn decode(uuid: &[u8; 16], page: u64, bytes: &[u8]) -> Option<Tail> {
        is_sealed(uuid, page, bytes).filter(|sealed| *sealed)?;
        Tail::parse(bytes).ok().flatten()
    }

    /// Whether it can have been written: all that it counts is below `end`, and the ring has room
    /// for the pages that count.
    pub(crate) fn is_possible(&self, end: u64, ring_pages: u64) -> bool {
        let counted = [self.number, self.next, self.untrusted, self.low, self.newest, self.ends, self.since];
        let pages = self.next.checked_sub(self.first);
        counted.iter().all(|number| *number < end) && pages.is_some_and(|pages| pages <= ring_pages)
    }

    fn parse(bytes: &[u8]) -> Result<Option<Tail>, Truncated> {
        let mut reader = Reader::new(bytes);
        if reader.u64()? != MAGIC {
            return Ok(None);
        }
        let (flush_watermarks, records) = (reader.u32()?, reader.u32()?);
        let mut tail = Tail {
            number: reader.u64()?,
            first: reader.u64()?,
            next: reader.u64()?,
            untrusted: reader.u64()?,
            low: reader.u64()?,
            low_page: reader.u64()?,
            newest: reader.u64()?,
            ends: reader.u64()?,
            since: reader.u64()?,
            ..Tail::default()
        };
        for _ in 0..flush_watermarks.min(FLUSH_WATERMARKS_MAX as u32) {
            tail.flush_watermarks.push(FlushWatermark {
                first: reader.u32()?,
                last: reader.u32()?,
                version: reader.u64()?,
            });
        }
        tail.records = decode_records(&mut reader, records, TAIL_RECORDS)?;
        Ok(Some(tail))
    }
}

/// A page of the ring: its position, the newest segment at its writing, its records.
pub(crate) fn encode_ring(
    uuid: &[u8; 16],
    page: u64,
    position: u64,
    newest: u64,
    records: &[Record],
    bytes: &mut [u8],
) {
    bytes.fill(0);
    let mut writer = Writer::new(bytes);
    writer.u64(!MAGIC).u64(position).u64(newest).u32(records.len() as u32).u32(0);
    encode_records(&mut writer, records);
    seal(uuid, page, bytes);
}

/// The newest segment at its writing, and the records, if this is the page of this position.
pub(crate) fn decode_ring(uuid: &[u8; 16], page: u64, position: u64, bytes: &[u8]) -> Option<(u64, Vec<Record>)> {
    is_sealed(uuid, page, bytes).filter(|sealed| *sealed)?;
    let mut reader = Reader::new(bytes);
    if reader.u64().ok()? != !MAGIC || reader.u64().ok()? != position {
        return None;
    }
    let (newest, count) = (reader.u64().ok()?, reader.u32().ok()?);
    reader.u32().ok()?;
    Some((newest, decode_records(&mut reader, count, RING_RECORDS).ok()?))
}

/// The journal of a shard that is open.
#[derive(Debug)]
pub(crate) struct Journal {
    uuid: [u8; 16],
    /// Pages of the volume: tails, then the ring.
    tail_page: u64,
    ring_pages: u64,
    tail: Tail,
    /// Of the ring's pages that count, the newest segment at their writing.
    newest_of: VecDeque<u64>,
    queued: Vec<Record>,
    /// Tags with a record that is not written yet, and the group that will write it.
    pending: HashMap<Tag, u64>,
    /// Everybody waits for this group: a flush is in it.
    barrier: u64,
    /// The group that is being gathered; groups up to `written` are on the volume.
    gathering: u64,
    written: u64,
    dirty: bool,
    /// The group that is being written.
    group: JournalGroup,
    /// See [`stratakv_engine::Shard::statistics`].
    pages_issued: u64,
    invalidations: u64,
}

impl Journal {
    pub(crate) fn new(
        uuid: [u8; 16],
        tail_page: u64,
        ring_pages: u64,
        tail: Tail,
        newest_of: VecDeque<u64>,
    ) -> Journal {
        Journal {
            uuid,
            tail_page,
            ring_pages: ring_pages.max(1),
            tail,
            newest_of,
            queued: Vec::new(),
            pending: HashMap::new(),
            barrier: 0,
            gathering: 1,
            written: 0,
            dirty: false,
            group: JournalGroup::default(),
            pages_issued: 0,
            invalidations: 0,
        }
    }

    /// Notes that copies with this tag and a version below this one are stale.
    pub(crate) fn invalidate(&mut self, tag: Tag, version: u64) {
        self.queued.push(Record { tag, version });
        self.pending.insert(tag, self.gathering);
        self.dirty = true;
        self.invalidations += 1;
    }

    /// A segment of this order is being written: a record may speak of it from now on.
    pub(crate) fn begin_segment(&mut self, order: u64) {
        self.tail.newest = order;
    }

    /// What the next tail page says.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Pages that were handed out to be written.
    pub(crate) fn pages_issued(&self) -> u64 {
        self.pages_issued
    }

    /// Records so far.
    pub(crate) fn invalidations(&self) -> u64 {
        self.invalidations
    }

    /// Segments below this order are gone; the next one begins at this page. The group whose
    /// writing makes it so.
    pub(crate) fn raise_low(&mut self, low: u64, low_page: u64) -> u64 {
        (self.tail.low, self.tail.low_page) = (low, low_page);
        self.dirty = true;
        self.gathering
    }

    /// Collections were flushed: nothing is said to anybody before that is written.
    pub(crate) fn flush(&mut self, flush_watermarks: &[FlushWatermark]) {
        self.tail.flush_watermarks = flush_watermarks.to_vec();
        self.barrier = self.gathering;
        self.dirty = true;
    }

    /// The group that must be written before anything is said of this tag; `None` if nothing must.
    pub(crate) fn waits_for(&self, tag: Option<Tag>) -> Option<u64> {
        let pending = tag.and_then(|tag| self.pending.get(&tag)).copied().unwrap_or(0);
        Some(pending.max(self.barrier)).filter(|group| *group > self.written)
    }

    pub(crate) fn is_written(&self, group: u64) -> bool {
        group <= self.written
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.group.is_idle() && !self.dirty
    }

    /// Segments below this order are gone, or about to be.
    pub(crate) fn low(&self) -> u64 {
        self.tail.low
    }

    /// When a group that failed to be written is tried again, if one did.
    pub(crate) fn retries_at(&self) -> Option<Mono> {
        self.group.retries_at()
    }

    /// The pages of the next group, if there is something to write and nothing in flight, or those
    /// that failed. All are in flight then.
    pub(crate) fn issue(&mut self) -> Vec<Page> {
        let pages = self.group.retry().unwrap_or_else(|| self.next_group());
        self.pages_issued += pages.len() as u64;
        pages
    }

    fn next_group(&mut self) -> Vec<Page> {
        if !self.dirty || !self.group.is_idle() {
            return Vec::new();
        }
        let mut pages = Vec::new();
        self.tail.records.append(&mut self.queued);
        while self.tail.records.len() > TAIL_RECORDS {
            pages.push(self.ring_page());
        }
        self.tail.number += 1;
        let page = self.tail_page + self.tail.number % 2;
        let mut bytes = vec![0; PAGE_BYTES].into_boxed_slice();
        self.tail.encode(&self.uuid, page, &mut bytes);
        pages.push((page, bytes));
        self.dirty = false;
        self.gathering += 1;
        self.group.begin(pages)
    }

    fn ring_page(&mut self) -> Page {
        let tail = &mut self.tail;
        let records: Vec<Record> = tail.records.drain(..tail.records.len().min(RING_RECORDS)).collect();
        let page = self.tail_page + 2 + tail.next % self.ring_pages;
        let mut bytes = vec![0; PAGE_BYTES].into_boxed_slice();
        encode_ring(&self.uuid, page, tail.next, tail.newest, &records, &mut bytes);
        tail.next += 1;
        self.newest_of.push_back(tail.newest);
        if tail.next - tail.first > self.ring_pages {
            tail.first += 1;
            tail.untrusted = tail.untrusted.max(self.newest_of.pop_front().unwrap_or(tail.newest));
        }
        (page, bytes)
    }

    /// A page was written, or not. When all of its group are back and one was not, they are tried
    /// again; `Some`: that was the last time.
    pub(crate) fn page_written(&mut self, result: Result<(), IoFault>, now: Mono) -> Option<IoFault> {
        match self.group.page_written(result, now) {
            GroupProgress::Unwritten => return None,
            GroupProgress::Failed(fault) => return Some(fault),
            GroupProgress::Written => {}
        }
        self.written = self.gathering - 1;
        let written = self.written;
        self.pending.retain(|_, group| *group > written);
        None
    }

    /// Tags with a record that is not written.
    pub(crate) fn unwritten(&self) -> impl Iterator<Item = Tag> {
        self.pending.keys().copied()
    }

    /// It cannot be written: nothing is said to anybody before the volume is void, as nobody knows
    /// any more which keys have copies.
    pub(crate) fn hold(&mut self) {
        self.barrier = self.gathering;
    }

    /// The volume counts no longer: nothing waits for the journal.
    pub(crate) fn abandon(&mut self) {
        self.written = u64::MAX;
        self.pending.clear();
        self.queued.clear();
        (self.group, self.dirty) = (JournalGroup::default(), false);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::journal_group::{RETRY_NS, TRIES};

    const UUID: [u8; 16] = [5; 16];

    fn record(number: u64) -> Record {
        Record { tag: Tag::from_bits(number), version: number + 1 }
    }

    fn journal(ring_pages: u64) -> Journal {
        Journal::new(UUID, 2, ring_pages, Tail { low: 7, low_page: 40, ..Tail::default() }, VecDeque::new())
    }

    #[test]
    fn pages_are_read_back_and_only_where_they_were_written() {
        let flush_watermarks = vec![FlushWatermark { first: 1, last: 2, version: 3 }; FLUSH_WATERMARKS_MAX];
        let records: Vec<Record> = (0..TAIL_RECORDS as u64).map(record).collect();
        let tail = Tail {
            number: 9,
            first: 1,
            next: 2,
            untrusted: 3,
            low: 4,
            low_page: 5,
            newest: 6,
            ends: 7,
            since: 8,
            flush_watermarks,
            records,
        };
        let mut page = vec![0; PAGE_BYTES];
        tail.encode(&UUID, 3, &mut page);
        assert_eq!(Tail::decode(&UUID, 3, &page), Some(tail));
        assert_eq!(Tail::decode(&UUID, 2, &page), None);
        let records: Vec<Record> = (0..RING_RECORDS as u64).map(record).collect();
        encode_ring(&UUID, 4, 11, 12, &records, &mut page);
        assert_eq!(decode_ring(&UUID, 4, 11, &page), Some((12, records)));
        assert_eq!(decode_ring(&UUID, 4, 12, &page), None, "another position's");
        assert_eq!(Tail::decode(&UUID, 4, &page), None);
    }

    #[test]
    fn a_tag_waits_for_its_group_and_for_no_other() {
        let mut journal = journal(4);
        let (one, two) = (Tag::from_bits(1), Tag::from_bits(2));
        assert_eq!(journal.waits_for(Some(one)), None);
        journal.invalidate(one, 10);
        let first = journal.waits_for(Some(one)).expect("it waits");
        assert_eq!(journal.waits_for(Some(two)), None);
        assert_eq!(journal.issue().len(), 1);
        journal.invalidate(two, 11);
        assert!(journal.issue().is_empty(), "one group at a time");
        assert!(journal.page_written(Ok(()), Mono(0)).is_none() && journal.is_written(first));
        assert_eq!(journal.waits_for(Some(one)), None);
        assert!(journal.waits_for(Some(two)).is_some());
        journal.flush(&[FlushWatermark { first: 0, last: 0, version: 12 }]);
        assert!(journal.waits_for(Some(one)).is_some(), "everybody waits for a flush");
    }

    #[test]
    fn a_group_that_failed_is_written_again_and_is_not_written_before() {
        let mut journal = journal(4);
        (0..TAIL_RECORDS as u64 + 5).for_each(|number| journal.invalidate(Tag::from_bits(number), 1));
        let group = journal.waits_for(Some(Tag::from_bits(1))).expect("it waits");
        let pages = journal.issue();
        assert_eq!(pages.len(), 2);
        assert_eq!(journal.page_written(Err(IoFault::Full), Mono(7)), None);
        assert_eq!((journal.page_written(Ok(()), Mono(7)), journal.is_written(group)), (None, false));
        assert_eq!((journal.retries_at(), journal.is_idle()), (Some(Mono(7 + RETRY_NS)), false));
        // What comes meanwhile is of the next group.
        journal.invalidate(Tag::from_bits(1), 2);
        assert_eq!(journal.issue(), pages);
        pages.iter().for_each(|_| assert_eq!(journal.page_written(Ok(()), Mono(9)), None));
        assert!(journal.is_written(group) && journal.retries_at().is_none());
        assert!(journal.waits_for(Some(Tag::from_bits(1))).is_some());
        // A disk that stays as it is.
        let tries = (0..100).take_while(|_| {
            journal.issue();
            journal.page_written(Err(IoFault::Full), Mono(9)).is_none()
        });
        assert_eq!(tries.count(), TRIES as usize);
    }

    #[test]
    fn a_full_ring_gives_up_its_oldest_page_and_what_that_spoke_of() {
        let mut journal = journal(2);
        let mut untrusted = Vec::new();
        for round in 0..4 {
            journal.begin_segment(100 + round);
            (0..RING_RECORDS as u64).for_each(|number| journal.invalidate(Tag::from_bits(number), 1));
            let pages = journal.issue();
            for _ in pages {
                journal.page_written(Ok(()), Mono(0));
            }
            untrusted.push(journal.tail.untrusted);
        }
        assert_eq!(journal.tail.next - journal.tail.first, 2);
        assert!(untrusted[0] == 0 && untrusted[3] >= 100, "{untrusted:?}");
        assert!(journal.tail.untrusted < 103, "the newest segments are trusted");
    }

    proptest! {
        /// Whatever a page says, with a checksum that holds.
        #[test]
        fn pages_of_any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), CRC_AT), is_tail in any::<bool>()) {
            let mut page = bytes;
            page.resize(PAGE_BYTES, 0);
            page[..8].copy_from_slice(&if is_tail { MAGIC } else { !MAGIC }.to_le_bytes());
            seal(&UUID, 3, &mut page);
            prop_assert_eq!(Tail::decode(&UUID, 3, &page).is_some(), is_tail);
            let _ = decode_ring(&UUID, 3, u64::from_le_bytes([page[8], page[9], page[10], page[11], page[12], page[13], page[14], page[15]]), &page);
        }
    }
}
