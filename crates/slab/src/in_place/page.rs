//! Small pages as bytes: header, slots, trailer. Pure functions; the layout is drawn in
//! docs/format-slab.md.
//!
//! The trailer repeats the header, so that a page whose first or last sector is damaged still says
//! which logical page and which moment it is. Every slot has a checksum of its own, seeded with the
//! page's place and sequence.

use stratakv_base::checksum::{crc32c, seed, turned_bit};
use stratakv_base::codec::{Reader, Writer};
use stratakv_base::fault_point;
use stratakv_base::limits::PAGE_BYTES;

use super::class::SizeClass;
use crate::expiry;
use crate::record::Meta;
use crate::superblock::FORMAT;

const MAGIC: u32 = u32::from_le_bytes(*b"SLPG");
/// Bytes of header and of trailer.
const HEADER_BYTES: usize = 32;
/// Bytes shared by the slots.
pub(crate) const PAYLOAD_BYTES: usize = PAGE_BYTES - 2 * HEADER_BYTES;
/// Bytes of a record in front of its key, without the optional flags and expiry.
pub(crate) const RECORD_BYTES: usize = 20;

/// Bytes of a slot with the version.
const VERSION: std::ops::Range<usize> = 12..20;

const FREE: u8 = 0;
const LIVE: u8 = 1;
const DAMAGED: u8 = 2;
const HAS_FLAGS: u8 = 1;

/// What a page's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageHeader {
    pub(crate) class: SizeClass,
    pub(crate) logical: u32,
    pub(crate) sequence: u64,
    /// Every sequence up to this one was durable when the page was sealed.
    pub(crate) durable: u64,
}

/// A record in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRecord<'a> {
    pub(crate) meta: Meta,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Offset of the value in the page.
    pub(crate) value_start: usize,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot<'a> {
    Free,
    Live(SlotRecord<'a>),
    /// A record that did not check when the page was read; with its key if that still does.
    /// `below`: its version was lower than this, the sequence of the image in which the damage was
    /// first seen.
    Damaged {
        key: Option<&'a [u8]>,
        below: u64,
    },
}

/// Bytes a record takes in a slot.
pub(crate) fn record_bytes(meta: &Meta, key: usize, value: usize) -> usize {
    RECORD_BYTES + 4 * usize::from(meta.flags != 0) + expiry::bytes(meta.expiry) + key + value
}

/// Makes `page` an empty page of `class`. Not sealed.
pub(crate) fn clear(page: &mut [u8], class: SizeClass) {
    page.fill(0);
    if let Some(byte) = page.get_mut(5) {
        *byte = class.number();
    }
}

/// The class of a page in memory.
pub(crate) fn class_of(page: &[u8]) -> SizeClass {
    page.get(5).and_then(|class| SizeClass::from_number(*class)).unwrap_or(SizeClass::first())
}

fn slot_range(class: SizeClass, slot: u8) -> std::ops::Range<usize> {
    let start = HEADER_BYTES + usize::from(slot) * class.slot_bytes();
    start..start + class.slot_bytes()
}

/// Writes a record into a slot; the caller picked the class from [`record_bytes`].
pub(crate) fn put(page: &mut [u8], slot: u8, meta: &Meta, key: &[u8], value: &[u8]) {
    let range = slot_range(class_of(page), slot);
    let Some(bytes) = page.get_mut(range) else { return };
    let bits = (u8::from(meta.flags != 0) * HAS_FLAGS) | expiry::bit(meta.expiry);
    let mut writer = Writer::new(bytes);
    writer.u32(0).u8(LIVE).u8(bits).u16(key.len() as u16).u16(value.len() as u16).u16(key_check(key)).u64(meta.version);
    if meta.flags != 0 {
        writer.u32(meta.flags);
    }
    expiry::write(&mut writer, meta.expiry);
    writer.bytes(key).bytes(value);
    let end = writer.at();
    bytes[end..].fill(0);
}

/// Frees a slot.
pub(crate) fn free(page: &mut [u8], slot: u8) {
    fault_point!("lost_tombstone", return);
    let range = slot_range(class_of(page), slot);
    if let Some(bytes) = page.get_mut(range) {
        bytes.fill(0);
    }
}

fn key_check(key: &[u8]) -> u16 {
    crc32c(0x5EED, key) as u16
}

/// What `slot` holds. The page was verified when it was read, or made here.
pub(crate) fn slot(page: &[u8], slot: u8) -> Slot<'_> {
    let range = slot_range(class_of(page), slot);
    let start = range.start;
    let Some(bytes) = page.get(range) else { return Slot::Free };
    match bytes.get(4) {
        Some(&FREE) | None => Slot::Free,
        Some(&LIVE) => parse(bytes, start).map_or_else(|| damaged(bytes, start), Slot::Live),
        Some(_) => damaged(bytes, start),
    }
}

fn damaged(slot: &[u8], start: usize) -> Slot<'_> {
    let key = parse(slot, start).map(|record| record.key).filter(|key| key_checks(slot, key));
    Slot::Damaged {
        key,
        below: slot.get(VERSION).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes),
    }
}

fn key_checks(slot: &[u8], key: &[u8]) -> bool {
    let stored = slot.get(10..12).and_then(|bytes| <[u8; 2]>::try_from(bytes).ok()).map(u16::from_le_bytes);
    !key.is_empty() && stored == Some(key_check(key))
}

fn parse(slot: &[u8], start: usize) -> Option<SlotRecord<'_>> {
    let mut reader = Reader::new(slot);
    reader.u32().ok()?;
    reader.u8().ok()?;
    let bits = reader.u8().ok()?;
    let (key_len, value_len) = (reader.u16().ok()?, reader.u16().ok()?);
    reader.u16().ok()?;
    let version = reader.u64().ok()?;
    let flags = if bits & HAS_FLAGS != 0 { reader.u32().ok()? } else { 0 };
    let expiry = expiry::read(&mut reader, bits).ok()?;
    let key = reader.bytes(usize::from(key_len)).ok()?;
    let value_start = start + reader.at();
    let value = reader.bytes(usize::from(value_len)).ok()?;
    Some(SlotRecord { meta: Meta { version, flags, expiry }, key, value, value_start })
}

/// Bytes of a slot that its checksum covers, after the checksum itself.
fn covered(slot: &[u8]) -> usize {
    match slot.get(4) {
        Some(&FREE) => RECORD_BYTES,
        Some(&LIVE) => parse(slot, 0).map_or(slot.len(), |record| record.value_start + record.value.len()),
        _ => slot.len(),
    }
}

fn slot_crc(page_seed: u32, number: u8, slot: &[u8]) -> u32 {
    crc32c(page_seed ^ u32::from(number), slot.get(4..covered(slot)).unwrap_or_default())
}

/// Completes a page for physical page `place`: header, trailer and every checksum.
pub(crate) fn seal(page: &mut [u8], uuid: &[u8; 16], place: u32, header: &PageHeader) {
    let page_seed = seed(uuid, u64::from(place), header.sequence);
    for number in 0..header.class.slots() {
        let Some(slot) = page.get_mut(slot_range(header.class, number)) else { continue };
        let crc = slot_crc(page_seed, number, slot);
        Writer::new(slot).u32(crc);
    }
    let mut bytes = [0; HEADER_BYTES];
    let mut writer = Writer::new(&mut bytes);
    writer.u32(MAGIC).u8(FORMAT).u8(header.class.number()).u16(0).u32(header.logical).u32(0);
    writer.u64(header.sequence).u64(header.durable);
    let crc = header_crc(&bytes, uuid, place);
    Writer::new(&mut bytes[12..16]).u32(crc);
    page[..HEADER_BYTES].copy_from_slice(&bytes);
    page[PAGE_BYTES - HEADER_BYTES..].copy_from_slice(&bytes);
}

fn header_crc(bytes: &[u8; HEADER_BYTES], uuid: &[u8; 16], place: u32) -> u32 {
    crc32c(crc32c(seed(uuid, u64::from(place), 0), &bytes[..12]), &bytes[16..])
}

fn read_header(bytes: &[u8], uuid: &[u8; 16], place: u32) -> Option<PageHeader> {
    let bytes: &[u8; HEADER_BYTES] = bytes.try_into().ok()?;
    let mut reader = Reader::new(bytes);
    let (magic, format, class) = (reader.u32().ok()?, reader.u8().ok()?, reader.u8().ok()?);
    if magic != MAGIC || format != FORMAT {
        return None;
    }
    reader.u16().ok()?;
    let (logical, crc) = (reader.u32().ok()?, reader.u32().ok()?);
    let (sequence, durable) = (reader.u64().ok()?, reader.u64().ok()?);
    let class = SizeClass::from_number(class)?;
    (header_crc(bytes, uuid, place) == crc).then_some(PageHeader { class, logical, sequence, durable })
}

/// How a page read from the medium checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageCheck {
    /// No page image: neither header nor trailer checks.
    Unknown,
    /// Header and trailer are of different writes: torn.
    Mixed(PageHeader, PageHeader),
    /// An image; `bad` counts damaged slots, `edges` is false if header or trailer is damaged.
    Image { header: PageHeader, bad: u8, edges: bool },
}

/// Checks a page read from `place`. Damaged slots are marked so in `page` (and stay so when it is
/// sealed again).
pub(crate) fn verify(page: &mut [u8], uuid: &[u8; 16], place: u32) -> PageCheck {
    if page.len() != PAGE_BYTES {
        return PageCheck::Unknown;
    }
    let front = read_header(&page[..HEADER_BYTES], uuid, place);
    let back = read_header(&page[PAGE_BYTES - HEADER_BYTES..], uuid, place);
    let (header, edges) = match (front, back) {
        (None, None) => return PageCheck::Unknown,
        (Some(front), Some(back)) if front != back => return PageCheck::Mixed(front, back),
        (Some(header), Some(_)) => (header, true),
        (Some(header), None) | (None, Some(header)) => (header, false),
    };
    page[5] = header.class.number();
    let page_seed = seed(uuid, u64::from(place), header.sequence);
    let mut bad = 0;
    for number in 0..header.class.slots() {
        let Some(slot) = page.get_mut(slot_range(header.class, number)) else { continue };
        let stored = Reader::new(slot).u32().unwrap_or_default();
        let mut checks = stored == slot_crc(page_seed, number, slot);
        fault_point!("skip_the_checksum_of_records", checks = true);
        if !checks {
            mend_key(slot, page_seed ^ u32::from(number));
        }
        if !checks || slot[4] > DAMAGED {
            slot[4] = DAMAGED;
            // Kept when the page is written again: its later sequences would make the record newer
            // than copies written since.
            slot[VERSION].copy_from_slice(&header.sequence.to_le_bytes());
            bad += 1;
        }
    }
    PageCheck::Image { header, bad, edges }
}

/// A damaged record that does not name its key any more: if one turned bit explains that, turns it
/// back. Else its key would be "not found" instead of damaged.
fn mend_key(slot: &mut [u8], seed: u32) {
    fault_point!("damaged_keys_are_forgotten", return);
    if parse(slot, 0).is_some_and(|record| key_checks(slot, record.key)) {
        return;
    }
    let stored = Reader::new(slot).u32().unwrap_or_default();
    let crc = |slot: &[u8]| crc32c(seed, slot.get(4..covered(slot)).unwrap_or_default());
    // The fields decide how much the checksum covers.
    for bit in 4 * 8..RECORD_BYTES * 8 {
        slot[bit / 8] ^= 1 << (bit % 8);
        if crc(slot) == stored {
            return;
        }
        slot[bit / 8] ^= 1 << (bit % 8);
    }
    if let Some((byte, mask)) = turned_bit(crc(slot) ^ stored, covered(slot) - 4) {
        slot[4 + byte] ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] = [7; 16];

    fn sample() -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        let class = SizeClass::for_record(100).unwrap();
        clear(&mut page, class);
        put(&mut page, 0, &Meta { version: 5, flags: 0, expiry: 0 }, b"\0alpha", b"one");
        put(&mut page, 3, &Meta { version: 6, flags: 9, expiry: 77_000 }, b"\0beta", &[8; 60]);
        seal(&mut page, &UUID, 42, &PageHeader { class, logical: 3, sequence: 10, durable: 9 });
        page
    }

    #[test]
    fn the_format_of_a_page_is_fixed() {
        // A change of this number makes every existing store unreadable: raise FORMAT and convert
        // instead.
        assert_eq!(crc32c(0, &sample()), 0x602D_D4B4);
    }

    #[test]
    fn reads_back_what_was_sealed() {
        let mut page = sample();
        let PageCheck::Image { header, bad: 0, edges: true } = verify(&mut page, &UUID, 42) else { panic!() };
        assert_eq!((header.logical, header.sequence, header.durable), (3, 10, 9));
        let Slot::Live(record) = slot(&page, 3) else { panic!() };
        assert_eq!(
            (record.key, record.value, record.meta.flags, record.meta.expiry),
            (&b"\0beta"[..], &[8; 60][..], 9, 77_000)
        );
        assert_eq!(&page[record.value_start..][..60], &[8; 60]);
        assert_eq!(slot(&page, 1), Slot::Free);
        assert_eq!(verify(&mut sample(), &UUID, 43), PageCheck::Unknown, "another place");
        assert_eq!(verify(&mut sample(), &[8; 16], 42), PageCheck::Unknown, "another store");
    }

    #[test]
    fn every_flipped_bit_in_use_is_found_and_damages_one_record_at_most() {
        let class = SizeClass::for_record(100).unwrap();
        let clean = sample();
        for bit in 0..PAGE_BYTES * 8 {
            let mut page = clean.clone();
            page[bit / 8] ^= 1 << (bit % 8);
            let at = bit / 8;
            let verdict = verify(&mut page, &UUID, 42);
            let PageCheck::Image { bad, edges, .. } = verdict else { panic!("{verdict:?} at {at}") };
            let in_edges = !(HEADER_BYTES..PAGE_BYTES - HEADER_BYTES).contains(&at);
            assert_eq!(edges, !in_edges);
            assert!(bad <= 1);
            for (number, len) in [(0, RECORD_BYTES + 9), (3, RECORD_BYTES + 8 + 65)] {
                let range = slot_range(class, number);
                if (range.start..range.start + len).contains(&at) {
                    assert!(matches!(slot(&page, number), Slot::Damaged { .. }), "flip at {at}");
                } else {
                    assert!(matches!(slot(&page, number), Slot::Live(_)), "flip at {at}");
                }
            }
        }
    }

    #[test]
    fn damage_is_not_sealed_into_truth() {
        let mut page = sample();
        let at = slot_range(class_of(&page), 3).start + 50;
        page[at] ^= 1;
        verify(&mut page, &UUID, 42);
        assert_eq!(slot(&page, 3), Slot::Damaged { key: Some(b"\0beta"), below: 10 });
        let class = class_of(&page);
        seal(&mut page, &UUID, 50, &PageHeader { class, logical: 3, sequence: 11, durable: 9 });
        let PageCheck::Image { bad: 0, edges: true, .. } = verify(&mut page, &UUID, 50) else { panic!() };
        assert_eq!(slot(&page, 3), Slot::Damaged { key: Some(b"\0beta"), below: 10 });
    }
}
