//! The examples of docs/structures.md are what the crate reads and writes.

use stratakv_structures::{Hash, Kind, STRUCTURE_FLAGS, SortedSet, kind_of};

/// Bytes of the example with this number.
fn example(number: usize) -> Vec<u8> {
    let page = include_str!("../../../docs/structures.md");
    let block = page.split("```hex").nth(number + 1).and_then(|rest| rest.split("```").next()).unwrap();
    block.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

#[test]
fn the_hash_of_the_page_is_that_of_the_crate() {
    let value = example(0);
    let mut hash = Hash::default();
    assert!(hash.insert(b"name", b"Ada") && hash.insert(b"age", b"36"));
    assert_eq!(hash.encode(value.len()), Ok(Some(value.clone())));
    assert_eq!(hash.encode(value.len() - 1).unwrap_err().bytes, value.len());
    assert_eq!(Hash::parse(&value), Ok(hash));
    assert_eq!(Hash::lookup(&value, b"name"), Ok(Some(&b"Ada"[..])));
    assert_eq!(kind_of(STRUCTURE_FLAGS, &value), Kind::Hash);
}

#[test]
fn the_sorted_set_of_the_page_is_that_of_the_crate() {
    let value = example(1);
    let mut set = SortedSet::default();
    set.insert_all([(&b"b"[..], 1.5)]);
    assert_eq!(set.encode(value.len()), Ok(Some(value.clone())));
    assert_eq!(SortedSet::lookup(&value, b"b"), Ok(Some(1.5)));
    assert_eq!(kind_of(STRUCTURE_FLAGS, &value), Kind::SortedSet);
}

#[test]
fn flags_and_magic_make_a_structure() {
    let value = example(0);
    assert_eq!(kind_of(0, &value), Kind::String);
    assert_eq!(kind_of(STRUCTURE_FLAGS, b""), Kind::String);
    assert_eq!(kind_of(STRUCTURE_FLAGS, &value[..3]), Kind::String);
    assert_eq!(kind_of(STRUCTURE_FLAGS, &value[..4]), Kind::Damaged);
    assert_eq!(kind_of(STRUCTURE_FLAGS, &value[..12]), Kind::Hash, "a header is enough");
    assert_eq!(stratakv_structures::len(&value[..12]), Ok(2));
    for (at, byte) in [(4, 0), (5, 0), (5, 5), (6, 2), (7, 1), (8, 0)] {
        let mut forged = value.clone();
        forged[at] = byte;
        assert_eq!(kind_of(STRUCTURE_FLAGS, &forged), Kind::Damaged, "byte {at} is {byte}");
        assert!(Hash::parse(&forged).is_err() && stratakv_structures::len(&forged).is_err());
    }
}

/// Whoever reads "damaged" removes the record, which a newer program could read.
#[test]
fn a_newer_layout_is_told_from_damage() {
    let mut value = example(0);
    value[4] = 2;
    // Whatever follows the version, a newer layout may have.
    for at in [5, 6, 7, 8] {
        value[at] ^= 0x55;
        assert_eq!(kind_of(STRUCTURE_FLAGS, &value), Kind::Newer);
        assert_eq!(kind_of(STRUCTURE_FLAGS, &value[..8]), Kind::Newer);
    }
    let why = Hash::parse(&value).unwrap_err();
    assert!(why.is_newer());
    assert_eq!(why.to_string(), "the structure has format 2, this program knows up to 1: use a newer stratakv");
    assert_eq!(stratakv_structures::len(&value), Err(why));
    let value = example(0);
    assert!(Hash::parse(&value[..11]).is_err_and(|why| !why.is_newer() && why.to_string().contains("is damaged")));
}
