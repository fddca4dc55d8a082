//! Opening a log: by its newest checkpoint that checks, else by reading all of it. What is to be
//! read is asked for in stages. No I/O.

use stratakv_base::checksum::crc32c;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Corruption, Place, fault_point};

use super::format::{CHUNK_MAGIC, ChunkHeader, ChunkKind, Covered, KeyEntry, KeysReader, ROOT_MAGIC, Root, root_pages};
use crate::opener::{Range, Scanner, slices};
use crate::packed::Log;
use crate::packed::recovery::{LogGeometry, LogScanner};
use crate::packed::table::{SegmentKind, ZONE_SEGMENTS};
use crate::packed::tables::table_page;
use crate::recovery::RecoveredShard;

/// A checkpoint that checks.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) root: Root,
    /// Each with the mark of its chunk.
    pub(crate) covered: Vec<(u64, Covered)>,
    keys: Vec<(u64, Vec<u8>)>,
}

impl Loaded {
    /// Its keys, in order.
    pub(crate) fn keys(&self) -> Keys<'_> {
        let mut keys =
            Keys { chunks: self.keys.iter(), reader: None, key: Vec::new(), entry: None, count: 0, is_broken: false };
        keys.advance();
        keys
    }

    /// Takes the chunks of one of its segments, the bytes of which begin at page `first`; false if
    /// they do not check.
    fn take_segment(
        &mut self,
        uuid: &[u8; 16],
        (first, generation): (u32, u64),
        sums: &mut (u32, u32),
        bytes: &[u8],
    ) -> bool {
        let mut page = 0;
        while page * PAGE_BYTES < bytes.len() {
            let rest = bytes.get(page * PAGE_BYTES..).unwrap_or_default();
            let Some((header, body, pages, crc)) = ChunkHeader::decode(uuid, first + page as u32, generation, rest)
            else {
                return false;
            };
            if (header.id, header.number) != (self.root.id, sums.0) {
                return false;
            }
            *sums = (sums.0 + 1, crc32c(sums.1, &crc.to_le_bytes()));
            match header.kind {
                ChunkKind::Keys => self.keys.push((header.mark, body.to_vec())),
                ChunkKind::Segments => match Covered::decode_all(body) {
                    Some(covered) => self.covered.extend(covered.into_iter().map(|covered| (header.mark, covered))),
                    None => return false,
                },
            }
            page += pages as usize;
        }
        true
    }
}

/// Walks over the keys of a checkpoint.
#[derive(Debug)]
pub(crate) struct Keys<'a> {
    chunks: std::slice::Iter<'a, (u64, Vec<u8>)>,
    reader: Option<(u64, KeysReader<'a>)>,
    /// The key the walk is at.
    pub(crate) key: Vec<u8>,
    /// Its entry, with the mark of its chunk; `None` at the end.
    pub(crate) entry: Option<(u64, KeyEntry)>,
    /// Keys so far.
    pub(crate) count: u64,
    /// What follows makes no sense.
    pub(crate) is_broken: bool,
}

impl Keys<'_> {
    /// Goes on to the next key.
    pub(crate) fn advance(&mut self) {
        self.entry = None;
        loop {
            if let Some((mark, reader)) = &mut self.reader
                && !reader.is_done()
            {
                match reader.next() {
                    Some((key, entry)) if self.count == 0 || key > self.key.as_slice() => {
                        self.key.clear();
                        self.key.extend_from_slice(key);
                        self.count += 1;
                        self.entry = Some((*mark, entry));
                    }
                    _ => self.is_broken = true,
                }
                return;
            }
            let Some((mark, body)) = self.chunks.next() else { return };
            self.reader = Some((*mark, KeysReader::new(body)));
        }
    }
}

/// What is being read.
#[derive(Debug)]
enum Stage {
    Tables,
    /// The first pages of the segments of checkpoints.
    Roots,
    /// The chunks of the candidate tried last.
    Chunks,
    /// The segments that the checkpoint does not cover.
    Tail(Box<Loaded>),
    /// Everything.
    All,
}

/// A log being opened.
#[derive(Debug)]
pub(crate) struct LogOpening {
    log: LogGeometry,
    durable: u64,
    /// Everything is read besides, and compared.
    verify: bool,
    stage: Stage,
    scanner: LogScanner,
    /// Segments of kind checkpoint, with their generations.
    segments: Vec<(u32, u64)>,
    /// Segments that do not begin with a chunk: with a root, then, of whatever use it is.
    rooted: Vec<u32>,
    /// Roots that may be used, the best one last.
    roots: Vec<Root>,
    /// Bytes of the segment or root that passes by.
    bytes: Vec<u8>,
    loading: Loading,
    /// What the checkpoint gave, if everything is read to compare.
    by_checkpoint: Option<(RecoveredShard<Log>, bool)>,
    corrupt: Vec<Corruption>,
    refused: u64,
    /// Why the checkpoint tried last, or all of them, cannot be used.
    why_not: Option<&'static str>,
}

/// A checkpoint of which the chunks pass by.
#[derive(Debug, Default)]
struct Loading {
    loaded: Loaded,
    /// Segments done.
    segment: usize,
    /// Number and checksum of the chunks so far.
    sums: (u32, u32),
    is_bad: bool,
    /// A part of it cannot be read now.
    is_unreadable: bool,
}

impl Scanner<Log> for LogOpening {
    fn first_ranges(&self) -> Vec<Range> {
        let firsts = (0..).map(|zone| table_page(zone, self.log.segment_pages));
        firsts.take_while(|first| first + 1 < self.log.pages).map(|first| (first, 2)).collect()
    }

    fn may_do_without(&self) -> bool {
        matches!(self.stage, Stage::Roots | Stage::Chunks)
    }

    fn page(&mut self, number: u32, page: &mut [u8]) {
        match self.stage {
            Stage::Tables | Stage::Tail(_) | Stage::All => self.scanner.page(number, page),
            Stage::Roots => {
                self.bytes.extend_from_slice(page);
                if (number + 1) % self.log.segment_pages == root_pages(self.log.segment_pages) {
                    self.root(number / self.log.segment_pages);
                }
            }
            Stage::Chunks => self.bytes.extend_from_slice(page),
        }
        if matches!(self.stage, Stage::Chunks) {
            self.chunks(number);
        }
    }

    fn unreadable(&mut self, page: u32) {
        match self.stage {
            Stage::Roots => self.why_not = Some("the root of a checkpoint cannot be read"),
            Stage::Chunks => self.loading.is_unreadable = true,
            _ => self.scanner.unreadable(page),
        }
    }

    fn next_ranges(&mut self, digest: Option<u64>) -> Option<Vec<Range>> {
        match std::mem::replace(&mut self.stage, Stage::All) {
            Stage::Tables => {
                self.segments = self.scanner.segments_of_checkpoints();
                self.stage = Stage::Roots;
                let pages = root_pages(self.log.segment_pages);
                let ranges: Vec<Range> =
                    self.segments.iter().map(|(number, _)| (number * self.log.segment_pages, pages)).collect();
                if !self.scanner.is_sound() {
                    self.why_not = Some("a segment table is damaged in both copies");
                    return self.read_all();
                }
                if ranges.is_empty() { self.read_all() } else { Some(ranges) }
            }
            Stage::Roots => {
                self.roots.sort_by_key(|root| root.id);
                self.try_next_root()
            }
            Stage::Chunks => {
                let Loading { loaded, sums, is_bad, is_unreadable, .. } = std::mem::take(&mut self.loading);
                if !is_bad && sums == (loaded.root.chunks, loaded.root.chunks_crc) {
                    let ranges = self.scanner.ranges_beside(&loaded);
                    self.stage = Stage::Tail(Box::new(loaded));
                    return Some(slices(ranges));
                }
                self.refuse(&loaded.root, is_unreadable);
                self.try_next_root()
            }
            Stage::Tail(loaded) => {
                let fresh = self.fresh_scanner();
                let scanner = std::mem::replace(&mut self.scanner, fresh);
                match scanner.finish_with(&loaded, digest) {
                    Some((found, repaired)) => {
                        self.by_checkpoint = Some((found, repaired));
                        if self.verify { self.read_all() } else { None }
                    }
                    None => {
                        // Of what was read besides: if it is damage, reading everything tells.
                        self.refused += 1;
                        self.why_not = Some("the checkpoint does not agree with what was read besides it");
                        tracing::warn!(shard = self.log.shard, "the checkpoint is of no use: everything is read");
                        self.read_all()
                    }
                }
            }
            Stage::All => None,
        }
    }

    fn finish(mut self, digest: Option<u64>) -> (RecoveredShard<Log>, bool) {
        let (mut found, repaired) = match (self.by_checkpoint.take(), self.verify) {
            (Some(found), false) => found,
            (Some((found, _)), true) => {
                let (scanned, repaired) = self.scanner.finish(digest);
                match found.differs_from(&scanned) {
                    // What is damaged is told best by a scan.
                    _ if !scanned.report.corrupt.is_empty() => (scanned, repaired),
                    None => (found, repaired),
                    Some(how) => {
                        self.why_not = Some("the checkpoint differs from the log");
                        let place = Place { shard: self.log.shard, offset_bytes: 0 };
                        let expected = "what the log holds".into();
                        self.corrupt.push(Corruption { place, what: "index checkpoint", expected, found: how });
                        (scanned, repaired)
                    }
                }
            }
            (None, _) => self.scanner.finish(digest),
        };
        let used = found.placement.checkpoints.current.clone();
        found.report.checkpoint.is_used = !used.is_empty();
        found.report.checkpoint.refused = self.refused;
        found.report.checkpoint.read_in_full = self.why_not.filter(|_| !found.report.checkpoint.is_used);
        found.report.corrupt.append(&mut self.corrupt);
        // A segment they cover may be continued now. Roots only: a cut in the middle of this must
        // not leave a root without its chunks, which would look like damage (simulator, `packed`,
        // seed 3589). A large value may lie where a root was: segments that a checkpoint has given
        // back serve blobs before a table says so.
        let space = &found.space;
        let roots =
            self.rooted.iter().filter(|number| !used.contains(number)).map(|number| number * self.log.segment_pages);
        found.torn_places.extend(roots.filter(|page| space.is_free(*page)));
        (found, repaired)
    }
}

impl LogOpening {
    /// Of a log in which every sequence up to `durable` is durable.
    pub(crate) fn new(log: LogGeometry, durable: u64, verify: bool) -> LogOpening {
        LogOpening {
            log,
            durable,
            verify,
            stage: Stage::Tables,
            scanner: LogScanner::new(log, durable),
            segments: Vec::new(),
            rooted: Vec::new(),
            roots: Vec::new(),
            bytes: Vec::new(),
            loading: Loading::default(),
            by_checkpoint: None,
            corrupt: Vec::new(),
            refused: 0,
            why_not: None,
        }
    }

    fn generation(&self, number: u32) -> Option<u64> {
        self.segments.iter().find(|(other, _)| *other == number).map(|(_, generation)| *generation)
    }

    /// The root in the front of a segment has passed by.
    fn root(&mut self, number: u32) {
        let bytes = std::mem::take(&mut self.bytes);
        // A damaged one too: it may be read right the next time.
        if !bytes.starts_with(&CHUNK_MAGIC.to_le_bytes()) {
            self.rooted.push(number);
        }
        let Some(generation) = self.generation(number) else { return };
        let Some(root) = Root::decode(&self.log.uuid, number * self.log.segment_pages, generation, &bytes) else {
            if looks_like_a_root(&bytes) {
                // Or one of an earlier life of the segment, in front of a checkpoint that was never
                // completed.
                self.why_not = self.why_not.or(Some("the root of a checkpoint does not check"));
            }
            return;
        };
        let begins_here = root.segments.first().is_some_and(|(first, _)| *first == number);
        // A segment opened anew since the root was written holds something else now.
        let whole = root.segments.iter().all(|(number, pages)| {
            *pages <= self.log.segment_pages
                && self.generation(*number).is_some_and(|generation| generation <= root.mark)
        });
        if begins_here && whole {
            self.roots.push(root);
        }
    }

    /// Where the chunks of a checkpoint lie: for each segment, its first page, and how many.
    fn chunk_ranges(&self, root: &Root) -> Vec<Range> {
        let spans = root.segments.iter().enumerate().map(|(at, (number, pages))| {
            let skip = if at == 0 { root_pages(self.log.segment_pages) } else { 0 };
            (number * self.log.segment_pages + skip, pages.saturating_sub(skip))
        });
        spans.collect()
    }

    /// Another page of chunks has come.
    fn chunks(&mut self, number: u32) {
        let loading = &mut self.loading;
        while let Some(&(segment, pages)) = loading.loaded.root.segments.get(loading.segment) {
            let skip = if loading.segment == 0 { root_pages(self.log.segment_pages) } else { 0 };
            let (first, end) = (segment * self.log.segment_pages + skip, segment * self.log.segment_pages + pages);
            if first >= end {
                loading.segment += 1;
                continue;
            }
            if number + 1 == end {
                let bytes = std::mem::take(&mut self.bytes);
                let generation = self.segments.iter().find(|(other, _)| *other == segment).map_or(0, |found| found.1);
                let taken = loading.loaded.take_segment(&self.log.uuid, (first, generation), &mut loading.sums, &bytes);
                loading.is_bad |= !taken;
                loading.segment += 1;
            }
            return;
        }
    }

    fn fresh_scanner(&self) -> LogScanner {
        LogScanner::new(self.log, self.durable)
    }

    fn read_all(&mut self) -> Option<Vec<Range>> {
        self.scanner = self.fresh_scanner();
        self.stage = Stage::All;
        Some(slices(vec![(0, self.log.pages)]))
    }

    fn try_next_root(&mut self) -> Option<Vec<Range>> {
        let Some(root) = self.roots.pop() else { return self.read_all() };
        let ranges = self.chunk_ranges(&root);
        self.bytes.clear();
        self.loading = Loading { loaded: Loaded { root, ..Loaded::default() }, ..Loading::default() };
        self.stage = Stage::Chunks;
        Some(slices(ranges))
    }

    /// Its chunks do not check; that is damage, unless they could not be read.
    fn refuse(&mut self, root: &Root, is_unreadable: bool) {
        self.refused += 1;
        if is_unreadable {
            self.why_not = Some("the chunks of a checkpoint cannot be read");
            return tracing::warn!(shard = self.log.shard, "a checkpoint cannot be read");
        }
        self.why_not = Some("the chunks of a checkpoint do not check");
        let first = root.segments.first().map_or(0, |(number, _)| number * self.log.segment_pages);
        let place = Place { shard: self.log.shard, offset_bytes: u64::from(first) * PAGE_BYTES as u64 };
        let expected = "one that checks (the one before it, or the whole log, is read instead)".into();
        let corruption =
            Corruption { place, what: "index checkpoint", expected, found: "chunks that do not check".into() };
        tracing::warn!(%corruption, "a checkpoint is damaged");
        self.corrupt.push(corruption);
    }

    /// Segments of a zone that is a table's own serve no log.
    pub(crate) fn is_first_of_zone(number: u32) -> bool {
        number.is_multiple_of(ZONE_SEGMENTS)
    }
}

fn looks_like_a_root(bytes: &[u8]) -> bool {
    bytes.starts_with(&ROOT_MAGIC.to_le_bytes())
}

/// Whether the table lets the log use what a checkpoint says of a segment: it has not been opened
/// since.
pub(crate) fn is_valid(kind: SegmentKind, generation: u64, mark: u64) -> bool {
    fault_point!("checkpoint_keeps_entries_of_reused_segments", return kind == SegmentKind::Log);
    kind == SegmentKind::Log && generation <= mark
}
