//! Damaged tables.

use stratakv_base::random::Random;

use super::*;
use crate::table::{fuzzing, verify};

fn small() -> Vec<BlockPart> {
    let versions: Vec<Version> = (0..70u32).map(|number| put(&number.to_be_bytes(), 3, &[number as u8; 90])).collect();
    let (facts, parts) = build(&versions, 10);
    assert_eq!((facts.data_pages, facts.pages), (2, 4));
    parts
}

#[test]
fn no_bit_turns_unseen() {
    for (ordinal, part) in small().iter().enumerate() {
        let mut page = part.bytes().to_vec();
        for bit in 0..PAGE_BYTES * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(verify(&page, &UUID, FILE, ordinal as u32).is_err(), "bit {bit} of page {ordinal}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
        verify(&page, &UUID, FILE, ordinal as u32).unwrap();
    }
}

#[test]
fn a_page_proves_its_place() {
    let parts = small();
    let page = parts[1].bytes();
    verify(page, &UUID, FILE, 1).unwrap();
    assert!(verify(page, &UUID, FILE, 0).is_err());
    assert!(verify(page, &UUID, FILE + 1, 1).is_err());
    assert!(verify(page, b"another store's.", FILE, 1).is_err());
    assert!(verify(&page[..4095], &UUID, FILE, 1).is_err());
    let corruption = verify(page, &UUID, FILE, 2).unwrap_err();
    assert!(corruption.to_string().contains("page 2 of file 7"), "{corruption}");
}

#[test]
fn forged_pages_behind_right_checksums_do_no_harm() {
    for seed in 0..4_000 {
        let mut random = Random::new(seed);
        let mut input = vec![0; 8 + random.below(200) as usize];
        random.fill(&mut input);
        fuzzing::table(&input);
    }
}
