//! Recovery's judgement: which images and blobs hold, which are torn, which are damaged. No I/O.
//!
//! The newest image of a logical page holds, then the highest version of a key. docs/format-slab.md
//! argues why that is right.

use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_base::{Corruption, Key, fault_point};
use stratakv_index::{Builder, IndexEntry};

use super::class::SizeClass;
use super::page::{self, PageCheck, PageHeader, Slot};
use super::table::{NOWHERE, PageEntry, PageTable};
use super::{InPlace, SlotAddress, SlotPlace};
use crate::blob::{self, BlobHeader};
use crate::check::Digest;
use crate::config::RecoveryReport;
use crate::index::Index;
use crate::opener::{Range, Scanner, slices};
use crate::place::RecordPlace;
use crate::placement::Placement;
use crate::record::{self, Meta};
use crate::recovery::{REPORTED_MAX, RecoveredShard, Unread, WHOLE_VOLUME};
use crate::space::{Extent, FIRST_PAGE};
use crate::superblock::Superblock;

/// An image of a logical page.
#[derive(Clone, Copy, Debug)]
struct ImageAt {
    sequence: u64,
    place: u32,
    class: SizeClass,
    free: u8,
    /// Slots that are not free and of no known key.
    lost: u8,
    /// Slots that were found damaged before the page was written: sound but for them.
    marked: u8,
    /// Damaged slots, or damaged header or trailer.
    bad: u8,
    edges: bool,
}

/// A copy of a record.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    key_at: usize,
    key_len: u32,
    expiry: u64,
    version: u64,
    place: SlotPlace,
    /// Sequence of the image it lies in; 0 for blobs.
    image: u64,
    damaged: bool,
}

/// A blob whose pages pass by.
#[derive(Debug)]
struct OpenBlob {
    header: BlobHeader,
    first: u32,
    head: Vec<u8>,
    slice_crc: u32,
    intact: bool,
}

/// A blob that does not check.
#[derive(Debug)]
struct BadBlob {
    sequence: u64,
    first: u32,
    pages: u32,
    key: Option<(usize, u32)>,
    version: u64,
    expiry: u64,
}

/// Takes the pages of a volume in order.
#[derive(Debug)]
pub(crate) struct PageScanner {
    uuid: [u8; 16],
    shard: u32,
    pages: u32,
    durable: u64,
    last_number: u64,
    images: Vec<Option<ImageAt>>,
    damaged: Vec<(u32, ImageAt)>,
    /// Pages with header and trailer of different writes, each with the higher sequence.
    mixed: Vec<(u64, u32)>,
    keys: Vec<u8>,
    candidates: Vec<Candidate>,
    blob: Option<OpenBlob>,
    bad_blobs: Vec<BadBlob>,
    corrupt: Vec<Corruption>,
    unread: Unread,
}

impl Scanner<InPlace> for PageScanner {
    fn first_ranges(&self) -> Vec<Range> {
        slices(vec![(0, self.pages)])
    }

    fn page(&mut self, number: u32, page: &mut [u8]) {
        if number < FIRST_PAGE || number >= self.pages {
            return;
        }
        if let Some(blob) = self.blob.take() {
            return self.blob_page(blob, number, page);
        }
        // Looked for first: `verify` changes the page.
        let head = blob::decode_header(&self.uuid, number, page);
        let mended = if head.is_none() { blob::mend_header(&self.uuid, number, page) } else { None };
        let is_older_than_head = |image: &PageHeader| {
            fault_point!("run_head_before_an_old_trailer", return false);
            head.is_some_and(|head| head.sequence > image.sequence)
        };
        match page::verify(page, &self.uuid, number) {
            // A blob whose write was cut off over an older image: its head is there, and still the
            // image's trailer.
            PageCheck::Image { header, .. } if is_older_than_head(&header) => {
                self.note(header.sequence, header.durable);
                self.maybe_blob(number, page, head, true);
            }
            PageCheck::Image { header, bad, edges } => self.image(number, page, &header, bad, edges),
            PageCheck::Mixed(front, back) => {
                self.note(front.sequence, front.durable);
                self.note(back.sequence, back.durable);
                self.mixed.push((front.sequence.max(back.sequence), number));
            }
            PageCheck::Unknown => self.maybe_blob(number, page, head.or(mended), mended.is_none()),
        }
    }

    fn unreadable(&mut self, page: u32) {
        self.unread.add(page);
    }

    fn finish(mut self, digest: Option<u64>) -> (RecoveredShard<InPlace>, bool) {
        let mut torn_places = Vec::new();
        // Zeroed as well: one half alone, left by the next cut, would look like damage.
        let mixed = self.mixed.iter().filter(|(sequence, _)| *sequence > self.durable);
        torn_places.extend(mixed.map(|(_, place)| *place));
        fault_point!("mixed_pages_stay", torn_places.clear());
        let mut torn = torn_places.len() as u64;
        torn += self.judge_images(&mut torn_places);
        torn += self.judge_blobs(&mut torn_places);
        fault_point!("torn_places_stay", torn_places.clear());
        let mut found = RecoveredShard::empty(InPlace::create(&Superblock::default()), self.pages);
        found.last_number = self.last_number;
        found.report = RecoveryReport { torn, ..RecoveryReport::default() };
        found.torn_places = torn_places;
        let mut digest_found = Digest::default();
        self.tell_marked();
        self.place_images(&mut found, &mut digest_found);
        self.place_records(&mut found, &mut digest_found);
        if digest.is_some_and(|digest| digest != digest_found.sum()) {
            self.damage(
                0,
                WHOLE_VOLUME,
                "the pages of the last orderly close",
                "another set of pages: some are lost or outdated".into(),
            );
        }
        found.report.corrupt = self.corrupt;
        found.report.records = found.index.tree.len() as u64;
        found.report.obsolete = found.placement.obsolete.iter().count() as u64;
        (found, false)
    }
}

impl PageScanner {
    pub(crate) fn new(uuid: [u8; 16], shard: u32, pages: u32, durable: u64) -> PageScanner {
        PageScanner {
            uuid,
            shard,
            pages,
            durable,
            last_number: 0,
            images: Vec::new(),
            damaged: Vec::new(),
            mixed: Vec::new(),
            keys: Vec::new(),
            candidates: Vec::new(),
            blob: None,
            bad_blobs: Vec::new(),
            corrupt: Vec::new(),
            unread: Unread::default(),
        }
    }

    fn note(&mut self, sequence: u64, durable: u64) {
        self.last_number = self.last_number.max(sequence);
        self.durable = self.durable.max(durable);
    }

    fn image(&mut self, place: u32, page: &[u8], header: &PageHeader, bad: u8, edges: bool) {
        self.note(header.sequence, header.durable);
        let logical = header.logical;
        // A damaged number could ask for any amount of memory; there are never more logical pages
        // than physical ones.
        if logical >= self.pages {
            return self.damage(place, "page", "the number of a logical page", format!("page {logical}"));
        }
        if self.images.len() <= logical as usize {
            self.images.resize(logical as usize + 1, None);
        }
        let sound = bad == 0 && edges;
        let known = self.images[logical as usize];
        if known.is_some_and(|known| known.sequence >= header.sequence) {
            return;
        }
        let class = header.class;
        let (mut free, mut lost, mut marked) = (0, 0, 0);
        for slot in 0..class.slots() {
            let (key, meta, damaged) = match page::slot(page, slot) {
                Slot::Free => {
                    free += 1;
                    continue;
                }
                Slot::Live(record) => (Some(record.key), record.meta, false),
                // What its version was is not known, but it was below this: it may be the newest.
                Slot::Damaged { key, below } => {
                    let mut version = below;
                    fault_point!("damage_becomes_newer", version = header.sequence);
                    fault_point!("damage_is_rolled_back", version = 0);
                    (key, Meta { version, ..Meta::default() }, true)
                }
            };
            marked += u8::from(damaged);
            let Some(key) = key.filter(|key| Key::from_encoded(key).is_some()) else {
                lost += 1;
                continue;
            };
            let (key_at, key_len) = self.keep_key(key);
            self.candidates.push(Candidate {
                key_at,
                key_len,
                expiry: meta.expiry,
                version: meta.version,
                place: RecordPlace::Record(SlotAddress { logical, slot }),
                image: header.sequence,
                damaged,
            });
        }
        let image = ImageAt { sequence: header.sequence, place, class, free, lost, marked, bad, edges };
        if sound {
            self.images[logical as usize] = Some(image);
        } else {
            self.damaged.push((logical, image));
        }
    }

    fn keep_key(&mut self, key: &[u8]) -> (usize, u32) {
        let at = self.keys.len();
        self.keys.extend_from_slice(key);
        (at, key.len() as u32)
    }

    fn maybe_blob(&mut self, number: u32, page: &[u8], head: Option<BlobHeader>, intact: bool) {
        let Some(header) = head else {
            if blob::looks_like_head(page) {
                self.damage(
                    number,
                    "head of a large value",
                    "a header that checks",
                    "a checksum that does not match".into(),
                );
            }
            return;
        };
        self.note(header.sequence, header.durable);
        if header.dead || header.shape.pages() > self.pages - number {
            return;
        }
        let blob = OpenBlob { header, first: number, head: Vec::new(), slice_crc: 0, intact };
        self.blob_page(blob, number, page);
    }

    fn blob_page(&mut self, mut blob: OpenBlob, number: u32, page: &[u8]) {
        blob.take(&self.uuid, number, page);
        let shape = blob.header.shape;
        if number + 1 < blob.first + shape.pages() {
            self.blob = Some(blob);
            return;
        }
        let key_checks = blob::head_checks(&self.uuid, blob.first, &blob.header, &blob.head)
            || blob::mend_table(&self.uuid, blob.first, &blob.header, &mut blob.head);
        let key = key_checks.then(|| blob::head_key(&shape, &blob.head)).filter(|key| Key::from_encoded(key).is_some());
        let key = key.map(|key| key.to_vec());
        let place = RecordPlace::Blob { first: blob.first, pages: shape.pages() };
        let meta = blob.header.meta;
        let kept = key.map(|key| self.keep_key(&key));
        match kept.filter(|_| blob.intact) {
            Some((key_at, key_len)) => self.candidates.push(Candidate {
                key_at,
                key_len,
                expiry: meta.expiry,
                version: meta.version,
                place,
                image: 0,
                damaged: false,
            }),
            None => self.bad_blobs.push(BadBlob {
                sequence: blob.header.sequence,
                first: blob.first,
                pages: shape.pages(),
                key: kept,
                version: meta.version,
                expiry: meta.expiry,
            }),
        }
    }

    fn damage(&mut self, page: u32, what: &'static str, expected: &str, found: String) {
        let offset_bytes = u64::from(page) * PAGE_BYTES as u64;
        let place = stratakv_base::Place { shard: self.shard, offset_bytes };
        let corruption = Corruption { place, what, expected: expected.into(), found };
        // Whoever opened the volume tells it, out of the report.
        tracing::debug!(%corruption, "damage on the medium");
        if self.corrupt.len() < REPORTED_MAX {
            self.corrupt.push(corruption);
        }
    }

    /// Damaged images that are newer than the newest sound one of their page: torn, or damaged
    /// after they were durable.
    fn judge_images(&mut self, torn_places: &mut Vec<u32>) -> u64 {
        let mut torn = 0;
        let mut damaged = std::mem::take(&mut self.damaged);
        // Newest first: nothing needs the older damaged ones.
        damaged.sort_by_key(|(logical, image)| (*logical, std::cmp::Reverse(image.sequence)));
        for (logical, image) in damaged {
            let known = self.images.get(logical as usize).copied().flatten();
            if known.is_some_and(|known| known.sequence >= image.sequence) {
                continue;
            }
            if image.sequence > self.durable {
                torn += 1;
                torn_places.push(image.place);
                continue;
            }
            let found = match (image.bad, image.edges) {
                (0, _) => "a header or trailer that does not match its checksum".to_owned(),
                (bad, _) => format!("{bad} records that do not match their checksums"),
            };
            self.damage(image.place, "page", "a page that checks", found);
            self.images[logical as usize] = Some(image);
        }
        torn
    }

    fn judge_blobs(&mut self, torn_places: &mut Vec<u32>) -> u64 {
        let mut torn = 0;
        for blob in std::mem::take(&mut self.bad_blobs) {
            if blob.sequence > self.durable {
                torn += 1;
                torn_places.push(blob.first);
                continue;
            }
            if !self.unread.meets(blob.first, blob.pages) {
                self.damage(blob.first, "large value", "slices that check", "a checksum that does not match".into());
            }
            // Kept, with its pages: the head still claims them.
            let (key_at, key_len) = blob.key.unwrap_or((0, 0));
            self.candidates.push(Candidate {
                key_at,
                key_len,
                expiry: blob.expiry,
                version: blob.version,
                place: RecordPlace::Blob { first: blob.first, pages: blob.pages },
                image: 0,
                damaged: true,
            });
        }
        torn
    }

    /// Damage that a write of the page took along: the page checks, and its record is lost all the
    /// same.
    fn tell_marked(&mut self) {
        let marked = |image: &ImageAt| image.marked > 0 && image.bad == 0 && image.edges;
        let marked: Vec<ImageAt> = self.images.iter().flatten().copied().filter(marked).collect();
        for ImageAt { place, marked, .. } in marked {
            let found = format!("{marked} that did not when the page was written last");
            self.damage(place, "page", "records that match their checksums", found);
        }
    }

    fn place_images(&mut self, found: &mut RecoveredShard<InPlace>, digest: &mut Digest) {
        let mut entries = Vec::with_capacity(self.images.len());
        for (logical, image) in (0u32..).zip(&self.images) {
            let Some(image) = image else {
                let class = SizeClass::first();
                entries.push(PageEntry { place: NOWHERE, tag: 0, class, free: 0 });
                continue;
            };
            found.space.occupy(Extent::page(image.place), false);
            let tag = record::tag(image.sequence);
            digest.page(logical, tag);
            found.report.pages += 1;
            found.placement.lost_slots += u64::from(image.lost);
            found.report.lost_unknown += u64::from(image.lost);
            entries.push(PageEntry { place: image.place, tag, class: image.class, free: image.free });
        }
        found.placement.table = PageTable::from_entries(entries);
    }

    fn place_records(&mut self, found: &mut RecoveredShard<InPlace>, digest: &mut Digest) {
        let (keys, images) = (&self.keys, &self.images);
        let key_of = |candidate: &Candidate| &keys[candidate.key_at..][..candidate.key_len as usize];
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.retain(|candidate| match candidate.place {
            RecordPlace::Blob { .. } => true,
            RecordPlace::Record(SlotAddress { logical, .. }) => {
                images[logical as usize].is_some_and(|image| image.sequence == candidate.image)
            }
        });
        candidates.sort_unstable_by(|a, b| key_of(a).cmp(key_of(b)).then(b.version.cmp(&a.version)));
        fault_point!("oldest_version_wins", {
            candidates.sort_unstable_by(|a, b| key_of(a).cmp(key_of(b)).then(a.version.cmp(&b.version)));
        });
        let mut builder = Builder::new();
        let mut last: Option<&[u8]> = None;
        let mut last_damaged = false;
        for candidate in &candidates {
            if let RecordPlace::Blob { first, pages } = candidate.place {
                found.space.occupy(Extent { first, pages }, true);
                found.blob_pages += u64::from(pages);
                found.blob_tags.insert(first, record::tag(candidate.version));
                found.report.blobs += 1;
            }
            let key = key_of(candidate);
            if key.is_empty() {
                found.report.lost_unknown += 1;
                continue;
            }
            if last == Some(key) {
                let Some(key) = Key::from_encoded(key) else { continue };
                if last_damaged {
                    found.placement.obsolete.keep(key, candidate.place);
                } else {
                    found.placement.obsolete.add(&key, candidate.place, 0);
                }
                continue;
            }
            (last, last_damaged) = (Some(key), candidate.damaged);
            let is_unread =
                matches!(candidate.place, RecordPlace::Blob { first, pages } if self.unread.meets(first, pages));
            if candidate.damaged && !is_unread {
                found.report.lose(key);
            }
            if let RecordPlace::Blob { first, .. } = candidate.place {
                digest.blob(first);
            }
            found.expiring += u64::from(candidate.expiry != 0);
            let mut expiry = candidate.expiry;
            fault_point!("expired_record_resurrected", expiry = 0);
            builder.push(key, IndexEntry { place: candidate.place.to_bits(), expiry });
        }
        found.index = Index::new(builder.finish(), found.expiring);
    }
}

impl OpenBlob {
    /// Takes one page: collects the head, checks the slices that end in it.
    fn take(&mut self, uuid: &[u8; 16], number: u32, page: &[u8]) {
        let shape = self.header.shape;
        let at = (number - self.first) as usize * PAGE_BYTES;
        let in_head = shape.head_bytes().saturating_sub(at).min(page.len());
        self.head.extend_from_slice(&page[..in_head]);
        if self.head.len() == shape.head_bytes() && at < shape.head_bytes() {
            self.intact &= blob::head_checks(uuid, self.first, &self.header, &self.head);
        }
        let slice = at / SLICE_BYTES;
        if at.is_multiple_of(SLICE_BYTES) || (at < shape.head_bytes() && in_head < page.len()) {
            self.slice_crc = blob::slice_crc(uuid, self.first, self.header.meta.version, slice, &[]);
        }
        let end = shape.total_bytes().saturating_sub(at).min(page.len());
        self.slice_crc = stratakv_base::checksum::crc32c(self.slice_crc, page.get(in_head..end).unwrap_or_default());
        let last_of_slice = (at + PAGE_BYTES).is_multiple_of(SLICE_BYTES) || at + PAGE_BYTES >= shape.total_bytes();
        if last_of_slice && slice + 1 >= shape.head_slices() && self.intact {
            self.intact = self.slice_crc == blob::head_slice_crc(&self.head, slice);
        }
    }
}
