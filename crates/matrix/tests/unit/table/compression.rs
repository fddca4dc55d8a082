//! Tables of compressed pages: what they take, and what becomes of what does not compress.

use super::*;
use crate::table::packing::{self, RAW_BYTES_MAX};
use crate::table::page::{CONTENTS_BYTES, HEADER_BYTES, Kind};
use crate::table::{entries_of_block, get, verify};

/// Values of 100 bytes of which so many are at random.
fn versions(count: u32, drawn: impl Fn(u32) -> usize) -> Vec<Version> {
    let mut random = Random::new(7);
    let make = |number: u32| {
        let mut value = [b' '; 100];
        random.fill(&mut value[..drawn(number)]);
        put(format!("key {number:08}").as_bytes(), 9, &value)
    };
    (0..count).map(make).collect()
}

fn kinds(facts: &TableFacts, parts: &[BlockPart]) -> (usize, usize) {
    let of = |kind: Kind| parts.iter().filter(|part| part.bytes()[4] == kind as u8).count();
    assert_eq!(of(Kind::Data) + of(Kind::Packed), facts.data_pages as usize);
    (of(Kind::Data), of(Kind::Packed))
}

#[test]
fn pages_are_full_and_hold_what_was_foreseen() {
    for (drawn, pages_of_hundred) in [(0, 24..=27), (30, 38..=50), (60, 64..=78)] {
        let versions = versions(8_000, |_| drawn);
        let (plain, _) = build(&versions, 10);
        let (facts, parts) = build_with(&versions, 10, Compression::Lz4);
        let percent = facts.data_pages * 100 / plain.data_pages;
        assert!(pages_of_hundred.contains(&percent), "{drawn} bytes at random: {percent} pages of a hundred");
        let (of_plain, _) = kinds(&facts, &parts);
        assert!(of_plain <= 1, "{of_plain} pages are not compressed");
        assert!(facts.is_compressed());
        let (told, real) = (facts.plain_pages, plain.pages);
        assert!(told >= real && told <= real + real / 20 + 2, "{told} pages were told, and it has {real}");
    }
}

#[test]
fn what_does_not_compress_is_as_it_was() {
    let versions = versions(4_000, |_| 100);
    let (plain, plain_parts) = build(&versions, 10);
    let (facts, parts) = build_with(&versions, 10, Compression::Lz4);
    assert_eq!(facts, plain);
    assert!(parts.iter().zip(&plain_parts).all(|(part, plain)| part.bytes() == plain.bytes()));
}

/// What was foreseen of a dull block did not fit once it was followed by others: entries are taken
/// out again.
#[test]
fn entries_that_do_not_fit_go_into_the_next_page() {
    for every in [37, 300, 1_000] {
        let versions = versions(6_000, |number| if number / every % 2 == 0 { 0 } else { 100 });
        let (facts, parts) = build_with(&versions, 10, Compression::Lz4);
        let (of_plain, of_packed) = kinds(&facts, &parts);
        assert!(of_packed > 0 && (every < 300 || of_plain > 10), "{of_plain} plain, {of_packed} packed");
        let store = Store::new(parts);
        let (mut ordinal, mut at) = (0, 0);
        while ordinal < u64::from(facts.data_pages) {
            let each = &mut |key: &[u8], meta: Meta| {
                assert_eq!((key, meta), (&versions[at].key[..], versions[at].meta));
                at += 1;
            };
            ordinal = entries_of_block(&store, FILE, ordinal as u32, each).unwrap();
        }
        assert_eq!(at, versions.len());
        for version in versions.iter().step_by(11) {
            let hit = get(&facts, &store, &version.key, 9).unwrap().unwrap();
            let mut value = Vec::new();
            hit.value(&mut value).unwrap();
            assert_eq!(value, version.value);
        }
    }
}

/// Keys nearly as long as a page, with nearly all of it in common: what is taken out of a block has
/// whole keys again, and is longer than it was.
#[test]
fn long_keys_are_taken_out_and_put_back() {
    let mut random = Random::new(3);
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for prefix in 0..40u8 {
        let shared = [&[prefix][..], &vec![7; 500 + 80 * usize::from(prefix)]].concat();
        keys.extend((0..200u32).map(|number| [&shared[..], &number.to_be_bytes()].concat()));
    }
    let versions: Vec<Version> = keys
        .iter()
        .map(|key| {
            let mut value = vec![0; random.below(40) as usize];
            random.fill(&mut value);
            put(key, 5, &value)
        })
        .collect();
    let (facts, parts) = build_with(&versions, 10, Compression::Lz4);
    for (ordinal, part) in parts.iter().enumerate() {
        verify(part.bytes(), &UUID, FILE, ordinal as u32).unwrap();
    }
    let store = Store::new(parts);
    for version in &versions {
        assert_eq!(get(&facts, &store, &version.key, 9).unwrap().unwrap().meta, version.meta);
    }
}

#[test]
fn a_compressed_block_is_as_drawn() {
    let (_, parts) = build_with(&versions(500, |_| 20), 10, Compression::Lz4);
    let page = parts[0].bytes();
    assert_eq!((&page[4..6], &page[12..16]), (&[4, 0][..], &[0; 4][..]), "a compressed block of one page");
    let used = u32::from_le_bytes(page[8..12].try_into().unwrap()) as usize;
    assert!(used <= CONTENTS_BYTES && page[HEADER_BYTES + used..].iter().all(|byte| *byte == 0));
    let contents = &page[HEADER_BYTES..HEADER_BYTES + used];
    let raw = packing::unpack(contents).unwrap();
    assert_eq!(contents[..4], (raw.len() as u32).to_le_bytes());
    assert!((CONTENTS_BYTES..=RAW_BYTES_MAX).contains(&raw.len()));
    let restarts = u16::from_le_bytes(*raw.last_chunk().unwrap());
    assert_eq!(restarts, u16::from_le_bytes([page[6], page[7]]).div_ceil(16));
    assert_eq!(raw[..5], [0, 12, 9, 1, 100]);
}

/// What a compressor makes of bytes may change, and old pages are read nevertheless: what is
/// forever is that this page is read.
#[test]
fn a_compressed_page_is_read_for_ever() {
    let raw = [&[0, 2, 7, 1, 20][..], &value_checksum(7, &[b'x'; 20]).to_le_bytes(), b"kk", &[b'x'; 20], &[0, 0, 1, 0]];
    let raw = raw.concat();
    // 12 literals, and 18 more of the last one; then five literals, as LZ4 wants at the end.
    let packed = [&(raw.len() as u32).to_le_bytes()[..], &[0xce], &raw[..12], &[1, 0], &[0x50], &raw[raw.len() - 5..]];
    let packed = packed.concat();
    let mut page = vec![0; PAGE_BYTES];
    page[4..16].copy_from_slice(&[4, 0, 1, 0, packed.len() as u8, 0, 0, 0, 0, 0, 0, 0]);
    page[16..16 + packed.len()].copy_from_slice(&packed);
    let mut pages = Packed::new();
    pages.push(page[..].try_into().unwrap());
    let mut found = Vec::new();
    let store = Store::new(pages.parts());
    entries_of_block(&store, FILE, 0, &mut |key, meta| found.push((key.to_vec(), meta))).unwrap();
    assert_eq!(found, [(b"kk".to_vec(), put(b"kk", 7, &[b'x'; 20]).meta)]);
}

/// Every byte of a page is turned, as if the checksum had been computed of that: there is an
/// answer, or damage.
#[test]
fn turned_bytes_of_a_compressed_page_are_damage_or_do_no_harm() {
    let versions = versions(70, |_| 10);
    let (facts, parts) = build_with(&versions, 10, Compression::Lz4);
    assert_eq!((facts.data_pages, parts[0].bytes()[4]), (1, Kind::Packed as u8));
    let mut damaged = 0;
    for at in 4..PAGE_BYTES {
        for mask in [1, 0x80, 0xff] {
            let mut page: Page = parts[0].bytes().try_into().unwrap();
            page[at] ^= mask;
            let mut forged = Packed::new();
            forged.push(&page);
            parts[1..].iter().for_each(|part| forged.push(part.bytes().try_into().unwrap()));
            let store = Store::new(forged.parts());
            for version in versions.iter().step_by(23) {
                match get(&facts, &store, &version.key, 9) {
                    Ok(hit) => _ = hit.map(|hit| hit.value(&mut Vec::new())),
                    Err(Stop::Damaged(corruption)) => {
                        damaged += 1;
                        assert!(corruption.to_string().contains("file 7"), "{corruption}");
                    }
                    Err(stop) => panic!("{stop:?}"),
                }
            }
        }
    }
    assert!(damaged > 1_000, "{damaged}");
}
