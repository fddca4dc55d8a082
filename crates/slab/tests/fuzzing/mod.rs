//! What holds for any bytes on a medium: run by the fuzzers (docs/fuzzing.md), and over their
//! corpus by a test.
//!
//! Checksums stop a fuzzer that changes bytes blindly, so each of these can also mend them: what
//! comes behind a checksum that matches is not trusted either.

mod checkpoint;
mod log_pages;
mod machine;
mod share;
mod volume;

use std::ops::Range;

use stratakv_base::Key;
use stratakv_base::checksum::{crc32c, seed};
use stratakv_base::codec::{Reader, Writer};
use stratakv_base::limits::{PAGE_BYTES, SLICE_BYTES};
use stratakv_base::random::Random;

use crate::blob::{self, Shape};
use crate::in_place::SlotPlace;
use crate::in_place::class::SizeClass;
use crate::in_place::page::{self, PageCheck, PageHeader, Slot};
use crate::in_place::recovery::PageScanner;
use crate::opener::Scanner;
use crate::record::Meta;
use crate::superblock::{FORMAT, Superblock};

pub use checkpoint::checkpoint;
pub use share::share;
pub use volume::{log, volume};

const UUID: [u8; 16] = *b"fuzzed volume 01";
const OTHER_UUID: [u8; 16] = *b"fuzzed volume 02";

/// Numbers off the front of an input; zeros when it is used up.
struct Choices<'a>(Reader<'a>);

impl<'a> Choices<'a> {
    fn new(input: &'a [u8]) -> Self {
        Choices(Reader::new(input))
    }

    fn byte(&mut self) -> u8 {
        self.0.u8().unwrap_or_default()
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0.u16().map_or(0, |number| usize::from(number) % bound.max(1))
    }

    fn u32(&mut self) -> u32 {
        self.0.u32().unwrap_or_default()
    }

    fn u64(&mut self) -> u64 {
        self.0.u64().unwrap_or_default()
    }

    /// Up to `len` bytes.
    fn bytes(&mut self, len: usize) -> &'a [u8] {
        self.0.bytes(len.min(self.0.left())).unwrap_or_default()
    }
}

/// Copies as much as there is room for.
fn lay(bytes: &[u8], into: &mut [u8]) {
    let len = bytes.len().min(into.len());
    into[..len].copy_from_slice(&bytes[..len]);
}

/// A superblock, its magic number, UUID and checksum mended if the first byte says so. One that is
/// accepted reads back as it is written, and not with any bit flipped.
///
/// # Panics
/// A property does not hold.
pub fn superblock(input: &[u8]) {
    let Some((mode, bytes)) = input.split_first() else { return };
    let mut page = vec![0; PAGE_BYTES];
    lay(bytes, &mut page);
    if mode & 1 != 0 {
        mend_superblock(&mut page);
    }
    let len = if mode & 2 != 0 { bytes.len().min(PAGE_BYTES) } else { PAGE_BYTES };
    let Ok(found) = Superblock::decode(&UUID, &page[..len]) else { return };
    assert!(found.usable_bytes.is_multiple_of(PAGE_BYTES as u64));
    let mut again = vec![0; PAGE_BYTES];
    found.encode(&UUID, &mut again);
    assert_eq!(Superblock::decode(&UUID, &again), Ok(found));
    assert!(Superblock::decode(&OTHER_UUID, &again).is_err());
    for bit in 0..92 * 8 {
        page[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::decode(&UUID, &page).is_err(), "bit {bit}");
        page[bit / 8] ^= 1 << (bit % 8);
    }
}

fn mend_superblock(page: &mut [u8]) {
    page[..8].copy_from_slice(b"STRSLAB\0");
    page[16..32].copy_from_slice(&UUID);
    let crc = crc32c(seed(&UUID, 0, 0), &page[..88]);
    Writer::new(&mut page[88..]).u32(crc);
}

/// A small page: forged, with checksums that match whatever it holds; or built by the engine's own
/// functions, then damaged.
///
/// # Panics
/// A property does not hold.
pub fn page(input: &[u8]) {
    let mut choices = Choices::new(input);
    match choices.byte() % 2 {
        0 => forged_page(&mut choices),
        _ => built_page(&mut choices),
    }
}

/// What a slot holds, without borrowing from its page.
fn slots(page: &[u8]) -> Vec<String> {
    (0..page::class_of(page).slots()).map(|slot| slot_text(page, slot)).collect()
}

fn slot_text(page: &[u8], slot: u8) -> String {
    match page::slot(page, slot) {
        Slot::Live(record) => {
            let value = record.value;
            assert_eq!(page.get(record.value_start..).and_then(|rest| rest.get(..value.len())), Some(value));
            format!("{:?} {:?} {value:?}", record.meta, record.key)
        }
        other => format!("{other:?}"),
    }
}

fn forged_page(choices: &mut Choices<'_>) {
    let (place, mode, mended) = (choices.u32(), choices.byte(), choices.u64());
    let class = choices.byte();
    let mut page = vec![0; PAGE_BYTES];
    let mut headers = [[0; 32]; 2];
    let (logical, sequence, durable) = (choices.u32(), choices.u64(), choices.u64());
    for (number, header) in headers.iter_mut().enumerate() {
        let later = u64::from(mode & 4 != 0 && number == 1);
        let mut writer = Writer::new(header);
        writer.bytes(b"SLPG").u8(FORMAT).u8(class).u16(0).u32(logical).u32(0);
        writer.u64(sequence.wrapping_add(later)).u64(durable);
        if mode & (1 << number) == 0 {
            mend_page_header(header, place);
        }
    }
    lay(choices.bytes(PAGE_BYTES), &mut page[32..PAGE_BYTES - 32]);
    page[..32].copy_from_slice(&headers[0]);
    page[PAGE_BYTES - 32..].copy_from_slice(&headers[1]);
    if let Some(class) = SizeClass::from_number(class) {
        let page_seed = seed(&UUID, u64::from(place), sequence);
        (0..class.slots())
            .filter(|slot| mended >> slot & 1 == 1)
            .for_each(|slot| mend_slot(&mut page, class, slot, page_seed));
    }
    let known = SizeClass::from_number(class).is_some() && mode & 3 != 3;
    match page::verify(&mut page, &UUID, place) {
        PageCheck::Unknown => assert!(!known),
        PageCheck::Mixed(front, back) => assert!(known && front.sequence != back.sequence),
        PageCheck::Image { header, edges, .. } => {
            assert!(known && edges == (mode & 3 == 0));
            let before = slots(&page);
            page::seal(&mut page, &UUID, place ^ 1, &PageHeader { durable: 0, ..header });
            assert_eq!(page::verify(&mut page.clone(), &UUID, place), PageCheck::Unknown, "sealed for another place");
            assert!(matches!(page::verify(&mut page, &UUID, place ^ 1), PageCheck::Image { bad: 0, edges: true, .. }));
            assert_eq!(slots(&page), before);
        }
    }
}

fn mend_page_header(header: &mut [u8], place: u32) {
    let crc = crc32c(crc32c(seed(&UUID, u64::from(place), 0), &header[..12]), &header[16..]);
    Writer::new(&mut header[12..16]).u32(crc);
}

/// Gives a slot the checksum of what it holds: of the whole slot if its lengths make no sense, as
/// the engine does.
fn mend_slot(page: &mut [u8], class: SizeClass, slot: u8, page_seed: u32) {
    let bytes = &mut page[slot_range(class, slot)];
    let lengths = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let optional = 4 * (bytes[5] & 3).count_ones() as usize;
    let covered = match bytes[4] {
        0 => page::RECORD_BYTES,
        1 => Some(page::RECORD_BYTES + optional + lengths(6) + lengths(8))
            .filter(|end| *end <= bytes.len())
            .unwrap_or(bytes.len()),
        _ => bytes.len(),
    };
    let crc = crc32c(page_seed ^ u32::from(slot), &bytes[4..covered]);
    Writer::new(bytes).u32(crc);
}

fn slot_range(class: SizeClass, slot: u8) -> Range<usize> {
    let start = 32 + usize::from(slot) * class.slot_bytes();
    start..start + class.slot_bytes()
}

fn built_page(choices: &mut Choices<'_>) {
    let class = SizeClass::from_number(choices.byte() % 19).unwrap_or(SizeClass::first());
    let header = PageHeader { class, logical: choices.u32(), sequence: choices.u64(), durable: choices.u64() };
    let place = choices.u32();
    let mut page = vec![0; PAGE_BYTES];
    page::clear(&mut page, class);
    let mut model = vec!["Free".to_owned(); usize::from(class.slots())];
    for _ in 0..choices.byte() % 16 {
        let slot = choices.byte() % class.slots();
        let meta = Meta { version: choices.u64(), flags: choices.u32() & 0xFF, expiry: u64::from(choices.byte()) };
        let room = class.slot_bytes() - page::record_bytes(&meta, 0, 0).min(class.slot_bytes());
        let len = choices.below(room + 1);
        let key = choices.bytes(len);
        let len = choices.below(room - key.len() + 1);
        let value = choices.bytes(len);
        if key.is_empty() || page::record_bytes(&meta, key.len(), value.len()) > class.slot_bytes() {
            page::free(&mut page, slot);
            model[usize::from(slot)] = "Free".into();
        } else {
            page::put(&mut page, slot, &meta, key, value);
            model[usize::from(slot)] = format!("{meta:?} {key:?} {value:?}");
        }
        assert_eq!(slots(&page), model);
    }
    page::seal(&mut page, &UUID, place, &header);
    assert_eq!(page::verify(&mut page.clone(), &OTHER_UUID, place), PageCheck::Unknown);
    let whole = PageCheck::Image { header, bad: 0, edges: true };
    assert_eq!(page::verify(&mut page.clone(), &UUID, place), whole);
    let damages = choices.byte() % 4;
    for _ in 0..damages {
        page[choices.below(PAGE_BYTES)] ^= choices.byte();
    }
    match page::verify(&mut page, &UUID, place) {
        PageCheck::Image { header: found, bad, .. } => {
            assert_eq!(found, header);
            assert!(bad <= damages);
            for (found, slot) in slots(&page).iter().zip(&model) {
                assert!(found == slot || found.starts_with("Damaged"), "{found} was {slot}");
            }
        }
        verdict => assert!(verdict == PageCheck::Unknown && damages > 1, "{verdict:?}"),
    }
}

/// A large item: a forged header, with a checksum that matches; or a run as the engine writes it,
/// then damaged, given to recovery.
///
/// # Panics
/// A property does not hold.
pub fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    match choices.byte() % 2 {
        0 => forged_blob(&mut choices),
        _ => built_blob(&mut choices),
    }
}

fn mend_blob_header(head: &mut [u8], place: u32) {
    let crc = crc32c(crc32c(seed(&UUID, u64::from(place), 1), &head[..8]), &head[12..64]);
    Writer::new(&mut head[8..12]).u32(crc);
}

/// Gives the checksums and the key of a run, as far as they are there, a checksum that matches.
fn mend_blob_table(head: &mut [u8], place: u32, head_bytes: usize) {
    let sequence = Reader::new(&head[16..]).u64().unwrap_or_default();
    let table = head.get(64..head_bytes).unwrap_or_default();
    let crc = crc32c(seed(&UUID, u64::from(place), sequence), table);
    Writer::new(&mut head[12..16]).u32(crc);
    mend_blob_header(head, place);
}

fn forged_blob(choices: &mut Choices<'_>) {
    let (place, mode) = (choices.u32(), choices.byte());
    let mut page = vec![0; PAGE_BYTES];
    lay(choices.bytes(PAGE_BYTES), &mut page);
    if mode & 1 != 0 {
        page[..5].copy_from_slice(b"SLRN\x01");
        if mode & 2 != 0 {
            let (value, key) = (choices.u32() % (80 << 20), choices.u32() % 70_000);
            let pages = Shape::new(key as usize, value as usize).pages();
            Writer::new(&mut page[40..52]).u32(value).u32(key).u32(pages);
        }
        mend_blob_header(&mut page, place);
    }
    let Some(header) = blob::decode_header(&UUID, place, &page) else { return };
    let shape = header.shape;
    assert!(shape.pages() < blob::PAGES_MAX && shape.total_bytes() <= shape.pages() as usize * PAGE_BYTES);
    let mut at = 0;
    for slice in 0..shape.slices {
        let part = shape.value_part(slice);
        assert_eq!(part.start, at);
        at = part.end;
    }
    assert_eq!(at, shape.value_len);
    let pages: usize = (0..shape.slices).map(|slice| shape.slice_bytes(slice) / PAGE_BYTES).sum();
    assert_eq!(pages, shape.pages() as usize);
    let mut head = page.clone();
    head.resize(shape.head_bytes(), mode);
    mend_blob_table(&mut head, place, shape.head_bytes());
    let header = blob::decode_header(&UUID, place, &head).expect("a mended header");
    assert!(blob::head_checks(&UUID, place, &header, &head));
    assert!(!blob::head_checks(&UUID, place ^ 1, &header, &head));
    assert_eq!(blob::head_key(&shape, &head).len(), shape.key_len);
    blob::head_slice_crc(&head, choices.below(1 << 16));
    blob::write_tombstone(&UUID, place, &mut head);
    assert!(blob::decode_header(&UUID, place, &head).is_some_and(|header| header.dead));
}

/// Any instant that is kept: whole seconds and others.
fn expiry(choices: &mut Choices<'_>) -> u64 {
    let seconds = u64::from(choices.u32());
    seconds * 1000 + seconds % 4 * 333
}

fn built_blob(choices: &mut Choices<'_>) {
    let (mode, first) = (choices.byte(), 2 + u32::from(choices.byte()));
    let key = Key::bound(Default::default(), &vec![b'k'; 1 + choices.below(if mode & 1 == 0 { 300 } else { 65_534 })]);
    let value_len = choices.below(if mode & 2 == 0 { 20_000 } else { 65_535 }) << (mode >> 2 & 1);
    let mut value = vec![0; value_len];
    Random::new(choices.u64()).fill(&mut value);
    let (sequence, durable) = (choices.u64(), choices.u64());
    let meta = Meta { version: choices.u64(), flags: choices.u32(), expiry: expiry(choices) };
    let shape = Shape::new(key.encoded().len(), value.len());
    let crc = |slice| blob::slice_crc(&UUID, first, meta.version, slice, &value[shape.value_part(slice)]);
    let crcs: Vec<u32> = (0..shape.slices).map(crc).collect();
    let mut bytes = blob::encode_head(&UUID, first, &shape, &meta, (sequence, 0), &crcs, key.encoded());
    bytes.extend_from_slice(&value);
    assert!(bytes.len() <= shape.slices * SLICE_BYTES);
    let used = bytes.len();
    bytes.resize(shape.pages() as usize * PAGE_BYTES, 0);
    let mut damaged = false;
    for _ in 0..choices.byte() % 4 {
        let (at, mask) = (choices.u32() as usize % bytes.len(), choices.byte());
        bytes[at] ^= mask;
        damaged |= mask != 0 && at < used;
    }
    let pages = first + shape.pages() + u32::from(mode >> 4 & 1);
    let mut scanner = PageScanner::new(UUID, 0, pages, durable);
    for (number, page) in (first..).zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
        scanner.page(number, page);
    }
    let (found, _) = scanner.finish(None);
    let place = found.index.tree.get(key.encoded()).map(|entry| SlotPlace::from_bits(entry.place));
    let whole = found.report.corrupt.is_empty() && found.report.torn == 0 && place.is_some();
    assert!(whole || damaged, "{:?}", found.report);
    if whole {
        assert_eq!(place, Some(SlotPlace::Blob { first, pages: shape.pages() }));
        assert!(bytes_agree(&bytes, &value, &shape, &key), "damage passes for data");
    }
}

/// Whether the run still says what was written: a byte damaged twice may be whole again.
fn bytes_agree(bytes: &[u8], value: &[u8], shape: &Shape, key: &Key) -> bool {
    let head = shape.head_bytes();
    bytes[head..head + value.len()] == *value && blob::head_key(shape, &bytes[..head]) == key.encoded()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(target: &str, check: fn(&[u8])) {
        let folder = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
        for file in std::fs::read_dir(folder).unwrap() {
            check(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }

    #[test]
    fn the_corpus_of_superblocks_holds() {
        holds("superblock", superblock);
    }

    #[test]
    fn the_corpus_of_pages_holds() {
        holds("page", page);
    }

    #[test]
    fn the_corpus_of_runs_holds() {
        holds("run", run);
    }

    #[test]
    fn the_corpus_of_volumes_holds() {
        holds("volume", volume);
    }

    #[test]
    fn the_corpus_of_logs_holds() {
        holds("log", super::log);
    }

    #[test]
    fn the_corpus_of_checkpoints_holds() {
        holds("checkpoint", checkpoint);
    }

    #[test]
    fn the_corpus_of_shares_holds() {
        holds("share", share);
    }
}
